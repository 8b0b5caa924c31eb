"""On what does a kernel depend that may still have run after a moment? Its edges, through any number of operations.

An operation depends on the one before it on its stream, and on what its stream waited for before it. What started at or
before the moment was already running, so whatever it waited for had ended: from there no edge is followed. What starts
at or after its consumer contradicts the trace, and is no producer.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from pytest_nsys.analysis.dependencies import Dependencies, Walked
from pytest_nsys.analysis.operations import Operations
from pytest_nsys.core.columns import Column, later, members_by, minus, order, places, spread, stretches, take, where
from pytest_nsys.core.operations import StreamWait


class Reached(NamedTuple):
    """``operations``, each with the index of the kernel that depends on it in ``owners``: by owner, start and stream.
    ``contradicted``: of how many kernels the trace says that they depend on what starts later.
    """

    owners: Column
    operations: Column
    contradicted: int


class Producers:
    """What the operations of one table depend on. A place is one in ``by_line``, where those of a stream that keeps
    order follow each other by their starts.
    """

    def __init__(self, ran: Operations, waits: Sequence[StreamWait]) -> None:
        self._ran, self._waits = ran, Dependencies(ran, waits)
        self._by_line = by_line = ran.by_line
        self._place = spread(by_line, array("q", range(len(by_line))), len(by_line), 0)
        self._start_ns, self._line = take(ran.start_ns, by_line), take(ran.line, by_line)
        self._consuming = array("q", sorted(self._place[each] for each in self._waits.consumers))

    def of(self, waiting: Column, since_ns: Column) -> Reached:
        """What kernels depend on that may have run after a moment, each of its own; all of them start after it."""
        last = take(self._place, waiting)
        running, begin = self._before(last, since_ns)
        owners, at = stretches(later(running, begin), last)
        operations = take(self._by_line, at)
        asked = where(minus(places(self._consuming, last), places(self._consuming, running)))
        if not asked:
            return Reached(owners, operations, 0)
        contradicted = 0
        for owner in asked:
            found, odd = self._through_waits(waiting[owner], since_ns[owner])
            contradicted += odd
            owners += array("q", [owner]) * len(found)
            operations += array("q", found)
        places_of_streams = take(self._ran.stream_order, take(self._ran.stream, operations))
        by_owner = order(owners, take(self._ran.start_ns, operations), places_of_streams)
        return Reached(take(owners, by_owner), take(operations, by_owner), contradicted)

    def _before(self, last: Column, since_ns: Column) -> tuple[Column, Column]:
        """Of the line of each place: the place of the last that started by the moment, or the one before the line; and
        where the line begins.
        """
        lines, ones = take(self._line, last), array("q", [1]) * len(last)
        begin, running = places(self._line, minus(lines, ones)), minus(last, ones)
        for own in members_by(lambda line: line, lines, among=where(minus(last, begin))).values():
            low, high = begin[own[0]], max(take(last, own))
            for i, started in zip(own, places(self._start_ns[low:high], take(since_ns, own)), strict=True):
                running[i] = low + started - 1
        return running, begin

    def _through_waits(self, kernel: int, since_ns: int) -> tuple[Sequence[int], bool]:
        """What a kernel depends on by waits, and all that depends on; whether the trace contradicts any of it.

        Later consumers come first: what an earlier one waited for too is no producer of it that was not found by then.
        """
        ran, found, contradicted = self._ran, list[int](), False
        asking, done, walked = [(-ran.start_ns[kernel], kernel)], dict[int, int](), Walked()
        waited: list[tuple[int, int]] = []
        while asking or waited:
            if waited and (not asking or waited[0] <= asking[0]):
                _, consumer = heappop(waited)
                contradicted |= self._waits.contradicts(consumer)
                for each in self._waits.producers(consumer, since_ns, walked):
                    if ran.start_ns[each] < ran.start_ns[consumer]:
                        found.append(each)
                        if ran.start_ns[each] > since_ns:
                            heappush(asking, (-ran.start_ns[each], each))
                continue
            place = self._place[heappop(asking)[1]]
            line = self._line[place]
            begin = bisect_left(self._line, line)
            running = max(bisect_right(self._start_ns, since_ns, begin, place) - 1, done.get(line, -1))
            if place > running:
                done[line] = place
                found += self._by_line[max(running, begin) : place]
                for at in self._consuming[
                    bisect_right(self._consuming, running) : bisect_right(self._consuming, place)
                ]:
                    heappush(waited, (-self._start_ns[at], self._by_line[at]))
        return found, contradicted
