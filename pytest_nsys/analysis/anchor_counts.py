"""Do the anchors of a run stand for the same work on every rank, with kernels in all of them?

The window is found by counting anchors. Where the record of the kernels ends before that of the ranges, or where one
rank has fewer anchors than the ranks beside it, the one in the middle may be whole and be another piece of work.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import NamedTuple

from pytest_nsys.analysis.run import Run, WindowGroup
from pytest_nsys.core.grouping import grouped
from pytest_nsys.core.model import Range, Rank, counted


class Empty(NamedTuple):
    """How many of a rank's anchors, the last ones, begin after its last kernel."""

    rank: int
    anchors: int
    of: int

    def __str__(self) -> str:
        begin = "begins" if self.anchors == 1 else "begin"
        return f"rank {self.rank}: {self.anchors} of {counted(self.of, 'anchor')} {begin} after its last kernel"


class Uneven(NamedTuple):
    """The fewest and the most anchors of ranks that should have as many; ``alike``: they are of one ``pp`` coordinate.

    Each is (number of anchors, rank).
    """

    fewest: tuple[int, int]
    most: tuple[int, int]
    alike: bool

    @property
    def apart(self) -> int:
        """How many anchors lie between them."""
        return self.most[0] - self.fewest[0]

    def __str__(self) -> str:
        (few, rank), (many, other) = self.fewest, self.most
        return f"rank {rank} has {counted(few, 'anchor')}, rank {other} has {many}"


def empty_anchors(group: WindowGroup) -> list[Empty]:
    """The ranks whose kernels end before their anchors do; from a few rows where none does."""
    found = []
    for rank, anchors in ((track.rank, track.anchors) for track in group.tracks.values()):
        if anchors and _idle_after(group.run, rank, anchors[-1]):
            with_work = bisect_left(anchors, True, key=partial(_idle_after, group.run, rank))
            found.append(Empty(rank.number, len(anchors) - with_work, len(anchors)))
    return found


def _idle_after(run: Run, rank: Rank, anchor: Range) -> bool:
    return not run.traces[rank.process.trace].work_after({rank.lane: anchor.start_ns})


def uneven_anchors(group: WindowGroup) -> Uneven | None:
    """The worst difference among the ranks of one ``pp`` coordinate, where pipelines do as much; else among all ranks.

    None where all ranks have as many.
    """
    counts = [(len(track.anchors), number) for number, track in group.tracks.items()]
    places = grouped((group.tracks[number].rank.coordinates.get("pp"), (count, number)) for count, number in counts)
    alike = [Uneven(min(own), max(own), alike=True) for own in places.values()]
    worst = max(alike, key=lambda each: each.apart, default=None)
    if worst is not None and worst.apart:
        return worst
    among_all = Uneven(min(counts), max(counts), alike=False) if counts else None
    return among_all if among_all is not None and among_all.apart else None
