"""How much of one set of time spans is covered by another? Exact, in integers, O(log n) per query.

Overlap is queried once per communication kernel against all compute kernels, so the compute spans are merged once into
disjoint ones with running sums; a query is then two binary searches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from pytest_nsys.core.columns import (
    Column,
    measure_covered_before,
    merge_span_columns,
    split_by_union,
    subtract,
    sum_column,
)
from pytest_nsys.core.model import Interval


def find_hull(spans: Iterable[Interval]) -> Interval:
    """Return the span from the first start to the last end, (0, 0) of no span."""
    starts, ends = [*zip(*spans, strict=True)] or ((0,), (0,))
    return min(starts), max(ends)


class Intervals:
    """Holds a union of time spans: disjoint, ascending, with the covered length up to each start."""

    __slots__ = ("_lengths_before", "ends", "starts", "total_ns")

    def __init__(self, starts: Column, ends: Column) -> None:
        """Merge spans, in any order, touching and overlapping as they may; empty ones cover nothing."""
        self.starts, self.ends, self._lengths_before = merge_span_columns(starts, ends)
        self.total_ns = self._lengths_before[-1] + self.ends[-1] - self.starts[-1] if self.starts else 0

    @classmethod
    def from_spans(cls, spans: Iterable[Interval]) -> Intervals:
        """Build the union of spans that come one by one."""
        pairs = list(spans)
        return cls(array("q", [start for start, _ in pairs]), array("q", [end for _, end in pairs]))

    def union(self, other: Intervals) -> Intervals:
        """Return the time that either covers."""
        if not other.starts:  # a million kernels are not copied for nothing
            return self
        return Intervals(self.starts + other.starts, self.ends + other.ends)

    def __iter__(self) -> Iterator[Interval]:
        return zip(self.starts, self.ends, strict=True)

    def measure_cover_per_span(self, starts: Column, ends: Column) -> Column:
        """Measure how much of each span lies inside the union; no span ends before it starts."""
        union = self.starts, self.ends, self._lengths_before
        return subtract(measure_covered_before(*union, ends), measure_covered_before(*union, starts))

    def measure_covered_ns(self, start: int, end: int) -> int:
        """Measure how much of [start, end) lies inside the union, in ns."""
        if end <= start or not self.starts:
            return 0
        first = bisect_right(self.ends, start)
        last = bisect_left(self.starts, end) - 1
        if last < first:
            return 0
        between_edges_ns = (
            self._lengths_before[last] + self.ends[last] - self.starts[last] - self._lengths_before[first]
        )
        return between_edges_ns - max(0, start - self.starts[first]) - max(0, self.ends[last] - end)

    def list_uncovered(self, start: int, end: int) -> Iterator[Interval]:
        """Yield the parts of [start, end) outside of the union, ascending."""
        for i in range(bisect_right(self.ends, start), bisect_left(self.starts, end)):
            if self.starts[i] > start:
                yield start, self.starts[i]
            start = self.ends[i]
        if start < end:
            yield start, end

    def split_spans(self, starts: Column, ends: Column) -> tuple[Column, Column, Column, Column]:
        """Split spans at the union's edges; return (index of the span, start, end, 1 where covered) of each part."""
        return split_by_union(starts, ends, self.starts, self.ends)

    def measure_common_ns(self, other: Intervals) -> int:
        """Measure how much time both unions cover, in ns."""
        smaller, larger = sorted((self, other), key=lambda spans: len(spans.starts))
        return sum_column(larger.measure_cover_per_span(smaller.starts, smaller.ends))
