"""Numbers on the clock of a trace: levels, each of which holds until the next, or samples of a moment each."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

ALWAYS_NS = -(1 << 63)
"""When a level began that was there before the first event: before every time of a trace."""


class Series(NamedTuple):
    """Numbers by time, ordered by it."""

    at_ns: array[int]
    value: array[int]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Series:
        """(time, number), in the order of time."""
        at, values = array("q"), array("q")
        for time, number in pairs:
            at.append(time)
            values.append(number)
        return cls(at, values)

    def between(self, low_ns: int, high_ns: int) -> Series:
        """The samples in a span, which holds its ends."""
        own = slice(bisect_left(self.at_ns, low_ns), bisect_right(self.at_ns, high_ns))
        return Series(self.at_ns[own], self.value[own])

    def levels(self, low_ns: int, high_ns: int) -> Series:
        """The levels that hold in a span: the one at its start, from when on it holds, and those that begin in it."""
        first, after = bisect_left(self.at_ns, low_ns), bisect_right(self.at_ns, high_ns)
        if first and (first == len(self.at_ns) or self.at_ns[first] > low_ns):
            first -= 1
        return Series(self.at_ns[first:after], self.value[first:after])


def summed(each: Sequence[Series]) -> Series:
    """The sum of several levels; one that has not begun is 0."""
    if len(each) == 1:
        return each[0]
    changes = [(time, place, level) for place, one in enumerate(each) for time, level in zip(*one, strict=True)]
    changes.sort(key=itemgetter(0))  # of one moment those of one place stay in their order
    now = [0] * len(each)
    found: list[tuple[int, int]] = []
    for time, place, level in changes:
        now[place] = level
        found.append((time, sum(now)))
    return Series.of(found)
