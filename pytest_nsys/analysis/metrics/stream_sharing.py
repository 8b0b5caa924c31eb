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
from pytest_nsys.core.columns import find_distinct_rows, sum_column, take
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import format_rank_ranges

LEFT_OUT_SHARE = Fraction(5, 100)
"""Limits the share of all communication's time that the plain metrics may leave out; from here on those that count all
of it stand.
"""


class WallMetrics(NamedTuple):
    """Names the metrics of all communication of a rank."""

    exposed: str
    overlap: str


OWN_STREAM_METRICS = WallMetrics("wall_exposed_ns", "wall_overlap")
"""Names the metrics of communication that has streams of its own."""

ALL_STREAM_METRICS = WallMetrics("wall_exposed_all_ns", "wall_overlap_all")
"""Names the metrics of all communication."""


@dataclass(frozen=True, slots=True)
class StreamSharing:
    """Says how much communication in some windows shares streams with compute."""

    shared_kernels: int  # communication kernels on streams that compute, too
    all_kernels: int  # all communication kernels
    shared_ns: int  # time of the shared ones
    all_ns: int  # time of all
    stream_numbers: tuple[int, ...]  # numbers of the streams that are shared

    @property
    def is_significant(self) -> bool:
        """Whether figures that leave the shared part out say too little."""
        return self.shared_ns > 0 and self.shared_ns >= LEFT_OUT_SHARE * self.all_ns

    @property
    def is_most(self) -> bool:
        """Whether the shared part is the greater part of the communication."""
        return 2 * self.shared_ns > self.all_ns

    @property
    def description(self) -> str:
        """Return the sharing in words: ``36 of 40 communication kernels share stream 27 with compute``."""
        kernels_text = f"{self.shared_kernels} of {self.all_kernels} communication kernels"
        if self.shared_kernels == self.all_kernels:
            kernels_text = (
                "the only communication kernel"
                if self.all_kernels == 1
                else f"all {self.all_kernels} communication kernels"
            )
        verb = "shares" if self.shared_kernels == 1 else "share"
        streams_text = (
            f"{'stream' if len(self.stream_numbers) == 1 else 'streams'} {format_rank_ranges(self.stream_numbers)}"
        )
        return f"{kernels_text} {verb} {streams_text} with compute"

    @property
    def left_out_reason(self) -> str:
        """Return what plain metrics leave out, and which ones do not; empty where that is little."""
        if not self.all_kernels:
            return "no communication kernel in the window"
        exposed, overlap = (name.removesuffix("_ns") for name in ALL_STREAM_METRICS)
        pronoun = "it" if self.shared_kernels == 1 else "them"
        reason = f"{self.description} ({format_value(self.shared_ns)}): only {exposed} and {overlap} count {pronoun}"
        return reason if self.is_significant else ""


def measure_sharing(windows: Iterable[RankWindow]) -> StreamSharing:
    """Return how much communication shares streams with compute in windows of all ranks."""
    shared_kernels = all_kernels = shared_ns = all_ns = 0
    stream_numbers = set[int]()
    for window in windows:
        barriers, communication = window.barriers, window.all_communication
        shared_kernels, all_kernels = shared_kernels + len(barriers), all_kernels + len(communication)
        shared_ns, all_ns = (
            sum_ns + sum_column(take(window.durations_ns, indices))
            for sum_ns, indices in ((shared_ns, barriers), (all_ns, communication))
        )
        _, used_streams = find_distinct_rows(take(window.kernels.stream, barriers))
        stream_numbers |= {window.kernels.streams[stream].number for (stream,) in used_streams}
    return StreamSharing(shared_kernels, all_kernels, shared_ns, all_ns, tuple(sorted(stream_numbers)))


def choose_wall_metrics(*runs: StreamSharing) -> WallMetrics:
    """Return the metrics that stand for communication of a rank: of several runs alike, where one of them needs it."""
    return ALL_STREAM_METRICS if any(run.is_significant for run in runs) else OWN_STREAM_METRICS
