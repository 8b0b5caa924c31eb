"""How much of one set of time spans is covered by another? Exact, in integers, O(log n) per question.

Overlap is asked for once per communication kernel against all compute kernels, so the compute spans are merged once
into disjoint ones with running sums; a question is then two binary searches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from pytest_nsys.model import Interval


class Intervals:
    """A union of time spans: disjoint, ascending, with the covered length up to each start."""

    __slots__ = ("_before", "ends", "starts", "total_ns")

    def __init__(self, spans: Iterable[Interval]) -> None:
        """``spans`` in any order, touching and overlapping as they may; empty ones cover nothing."""
        self.starts, self.ends, self._before = array("q"), array("q"), array("q")
        self.total_ns = 0
        reach: int | None = None
        begin = 0
        for start, end in sorted(spans):
            if end <= start:
                continue
            if reach is None:
                begin, reach = start, end
            elif start <= reach:
                reach = max(reach, end)
            else:
                self._add(begin, reach)
                begin, reach = start, end
        if reach is not None:
            self._add(begin, reach)

    def _add(self, start: int, end: int) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self._before.append(self.total_ns)
        self.total_ns += end - start

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

    def common_ns(self, other: Intervals) -> int:
        """Length of what both unions cover."""
        few, many = (self, other) if len(self.starts) <= len(other.starts) else (other, self)
        return sum(many.covered_ns(start, end) for start, end in few)
