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
"""Of the time of all communication: where the plain metrics leave out so much, those that count all of it stand."""


class Walls(NamedTuple):
    """The metrics of all communication of a rank, by name."""

    exposed: str
    overlap: str


OWN = Walls("wall_exposed_ns", "wall_overlap")
"""Of what has streams of its own."""

ALL = Walls("wall_exposed_all_ns", "wall_overlap_all")
"""Of all."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Of the communication kernels of some windows those that share streams with compute: ``kernels`` of ``of``, which
    take ``ns`` of ``of_ns``, on the streams of these numbers.
    """

    kernels: int
    of: int
    ns: int
    of_ns: int
    streams: tuple[int, ...]

    @property
    def counts(self) -> bool:
        """Whether figures that leave it out say too little."""
        return self.ns > 0 and self.ns >= LEFT_OUT * self.of_ns

    @property
    def mostly(self) -> bool:
        """Whether it is the greater part of the communication."""
        return 2 * self.ns > self.of_ns

    @property
    def words(self) -> str:
        """``36 of 40 communication kernels share stream 27 with compute``."""
        which = f"{self.kernels} of {self.of} communication kernels"
        if self.kernels == self.of:
            which = "the only communication kernel" if self.of == 1 else f"all {self.of} communication kernels"
        share = "shares" if self.kernels == 1 else "share"
        where = f"{'stream' if len(self.streams) == 1 else 'streams'} {rank_ranges(self.streams)}"
        return f"{which} {share} {where} with compute"

    @property
    def why_not_in_own(self) -> str:
        """What plain metrics leave out, and which ones do not; empty where that is little."""
        if not self.of:
            return "no communication kernel in the window"
        exposed, overlap = (name.removesuffix("_ns") for name in ALL)
        what = "it" if self.kernels == 1 else "them"
        why = f"{self.words} ({format_value(self.ns)}): only {exposed} and {overlap} count {what}"
        return why if self.counts else ""


def sharing_in(windows: Iterable[RankWindow]) -> Sharing:
    """The sharing in windows of all ranks."""
    kernels = of = ns = of_ns = 0
    streams = set[int]()
    for window in windows:
        own, every = window.barriers, window.all_communication
        kernels, of = kernels + len(own), of + len(every)
        ns, of_ns = (sum_ns + total(take(window.durations_ns, some)) for sum_ns, some in ((ns, own), (of_ns, every)))
        _, found = distinct(take(window.kernels.stream, own))
        streams |= {window.kernels.streams[stream].number for (stream,) in found}
    return Sharing(kernels, of, ns, of_ns, tuple(sorted(streams)))


def walls(*runs: Sharing) -> Walls:
    """The metrics that stand for communication of a rank: of several runs alike, where one of them needs it."""
    return ALL if any(run.counts for run in runs) else OWN
