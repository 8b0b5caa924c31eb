"""How much of one set of time spans is covered by another? Exact, in integers, O(log n) per question.

Overlap is asked for once per communication kernel against all compute kernels, so the compute spans are merged once
into disjoint ones with running sums; a question is then two binary searches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from pytest_nsys.core.model import Interval


class Intervals:
    """A union of time spans: disjoint, ascending, with the covered length up to each start."""

    __slots__ = ("_before", "ends", "starts", "total_ns")

    def __init__(self, spans: Iterable[Interval]) -> None:
        """``spans`` in any order, touching and overlapping as they may; empty ones cover nothing."""
        self.starts, self.ends, self._before = array("q"), array("q"), array("q")
        total, begin, reach = 0, 0, -1
        for start, end in sorted(spans):
            if end <= start:
                continue
            if start > reach or not self.starts:
                if self.starts:
                    self.ends.append(reach)
                    total += reach - begin
                self.starts.append(start)
                self._before.append(total)
                begin, reach = start, end
            elif end > reach:
                reach = end
        if self.starts:
            self.ends.append(reach)
            total += reach - begin
        self.total_ns = total

    def __iter__(self) -> Iterator[Interval]:
        return zip(self.starts, self.ends, strict=True)

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

    def common_ns(self, other: Intervals) -> int:
        """Length of what both unions cover."""
        common, mine, theirs = 0, 0, 0
        while mine < len(self.starts) and theirs < len(other.starts):
            my_end, their_end = self.ends[mine], other.ends[theirs]
            start = max(self.starts[mine], other.starts[theirs])
            end = min(my_end, their_end)
            if end > start:
                common += end - start
            if my_end <= their_end:
                mine += 1
            else:
                theirs += 1
        return common
