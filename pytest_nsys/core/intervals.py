"""How much of one set of time spans is covered by another? Exact, in integers, O(log n) per question.

Overlap is asked for once per communication kernel against all compute kernels, so the compute spans are merged once
into disjoint ones with running sums; a question is then two binary searches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from pytest_nsys.core.columns import Column, covered_before, minus, parted, total, union
from pytest_nsys.core.model import Interval


def hull(spans: Iterable[Interval]) -> Interval:
    """From the first start to the last end, (0, 0) of no span."""
    starts, ends = [*zip(*spans, strict=True)] or ((0,), (0,))
    return min(starts), max(ends)


class Intervals:
    """A union of time spans: disjoint, ascending, with the covered length up to each start."""

    __slots__ = ("_before", "ends", "starts", "total_ns")

    def __init__(self, starts: Column, ends: Column) -> None:
        """Of spans in any order, touching and overlapping as they may; empty ones cover nothing."""
        self.starts, self.ends, self._before = union(starts, ends)
        self.total_ns = self._before[-1] + self.ends[-1] - self.starts[-1] if self.starts else 0

    @classmethod
    def of(cls, spans: Iterable[Interval]) -> Intervals:
        """Of spans one by one."""
        pairs = list(spans)
        return cls(array("q", [start for start, _ in pairs]), array("q", [end for _, end in pairs]))

    def union(self, other: Intervals) -> Intervals:
        """Return the time that either covers."""
        if not other.starts:  # of a million kernels no second copy is kept
            return self
        return Intervals(self.starts + other.starts, self.ends + other.ends)

    def __iter__(self) -> Iterator[Interval]:
        return zip(self.starts, self.ends, strict=True)

    def covered(self, starts: Column, ends: Column) -> Column:
        """How much of each span lies inside the union; none ends before it starts."""
        union = self.starts, self.ends, self._before
        return minus(covered_before(*union, ends), covered_before(*union, starts))

    def covered_ns(self, start: int, end: int) -> int:
        """How much of [start, end) lies inside the union."""
        if end <= start or not self.starts:
            return 0
        first = bisect_right(self.ends, start)
        last = bisect_left(self.starts, end) - 1
        if last < first:
            return 0
        covered = self._before[last] + self.ends[last] - self.starts[last] - self._before[first]
        return covered - max(0, start - self.starts[first]) - max(0, self.ends[last] - end)

    def uncovered(self, start: int, end: int) -> Iterator[Interval]:
        """The parts of [start, end) outside of the union, ascending."""
        for i in range(bisect_right(self.ends, start), bisect_left(self.starts, end)):
            if self.starts[i] > start:
                yield start, self.starts[i]
            start = self.ends[i]
        if start < end:
            yield start, end

    def parted(self, starts: Column, ends: Column) -> tuple[Column, Column, Column, Column]:
        """(index of the span, start, end, 1 where covered) of the parts of spans that are covered, or are not."""
        return parted(starts, ends, self.starts, self.ends)

    def common_ns(self, other: Intervals) -> int:
        """Length of what both unions cover."""
        few, many = sorted((self, other), key=lambda each: len(each.starts))
        return total(many.covered(few.starts, few.ends))
