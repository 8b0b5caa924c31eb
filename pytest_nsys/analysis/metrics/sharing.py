"""How much of the communication shares streams with compute, and which figures count it?

What is in order with compute of its own stream is in no row of the plain metrics, which may then be green on an empty
table. So one choice stands for all who are free to choose, of all ranks of a run, and of both runs of a comparison.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.columns import distinct, take, total
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.words import rank_ranges

LEFT_OUT = Fraction(5, 100)
"""Limits the share of all communication's time that the plain metrics may leave out; from here on those that count all
of it stand.
"""


class Walls(NamedTuple):
    """Names the metrics of all communication of a rank."""

    exposed: str
    overlap: str


OWN = Walls("wall_exposed_ns", "wall_overlap")
"""Names the metrics of communication that has streams of its own."""

ALL = Walls("wall_exposed_all_ns", "wall_overlap_all")
"""Names the metrics of all communication."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Says how much communication in some windows shares streams with compute."""

    kernels: int  # communication kernels on streams that compute, too
    of: int  # all communication kernels
    ns: int  # time of the shared ones
    of_ns: int  # time of all
    streams: tuple[int, ...]  # numbers of the streams that are shared

    @property
    def counts(self) -> bool:
        """Whether figures that leave the shared part out say too little."""
        return self.ns > 0 and self.ns >= LEFT_OUT * self.of_ns

    @property
    def mostly(self) -> bool:
        """Whether the shared part is the greater part of the communication."""
        return 2 * self.ns > self.of_ns

    @property
    def words(self) -> str:
        """Return the sharing in words: ``36 of 40 communication kernels share stream 27 with compute``."""
        kernels_text = f"{self.kernels} of {self.of} communication kernels"
        if self.kernels == self.of:
            kernels_text = "the only communication kernel" if self.of == 1 else f"all {self.of} communication kernels"
        verb = "shares" if self.kernels == 1 else "share"
        streams_text = f"{'stream' if len(self.streams) == 1 else 'streams'} {rank_ranges(self.streams)}"
        return f"{kernels_text} {verb} {streams_text} with compute"

    @property
    def why_not_in_own(self) -> str:
        """Return what plain metrics leave out, and which ones do not; empty where that is little."""
        if not self.of:
            return "no communication kernel in the window"
        exposed, overlap = (name.removesuffix("_ns") for name in ALL)
        pronoun = "it" if self.kernels == 1 else "them"
        reason = f"{self.words} ({format_value(self.ns)}): only {exposed} and {overlap} count {pronoun}"
        return reason if self.counts else ""


def sharing_in(windows: Iterable[RankWindow]) -> Sharing:
    """Return how much communication shares streams with compute in windows of all ranks."""
    shared_kernels = all_kernels = shared_ns = all_ns = 0
    stream_numbers = set[int]()
    for window in windows:
        barriers, communication = window.barriers, window.all_communication
        shared_kernels, all_kernels = shared_kernels + len(barriers), all_kernels + len(communication)
        shared_ns, all_ns = (
            sum_ns + total(take(window.durations_ns, indices))
            for sum_ns, indices in ((shared_ns, barriers), (all_ns, communication))
        )
        _, used_streams = distinct(take(window.kernels.stream, barriers))
        stream_numbers |= {window.kernels.streams[stream].number for (stream,) in used_streams}
    return Sharing(shared_kernels, all_kernels, shared_ns, all_ns, tuple(sorted(stream_numbers)))


def walls(*runs: Sharing) -> Walls:
    """Return the metrics that stand for communication of a rank: of several runs alike, where one of them needs it."""
    return ALL if any(run.counts for run in runs) else OWN
