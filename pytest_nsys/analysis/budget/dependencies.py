"""On what does a kernel depend that may still have run after a moment? Its edges, through any number of operations.

An operation depends on the one before it on its stream, and on what its stream waited for before it. What started at or
before the moment was already running, so whatever it waited for had ended: from there no edge is followed. What starts
at or after its consumer contradicts the trace, and is no producer.

A wait holds back what is launched on its stream after it; the next operation launched there is its consumer, and
whatever comes later waits for that one anyway. A wait is for the last operation launched on the recording stream before
the record, and for what that stream waited for between the two.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from pytest_nsys.analysis.budget.operations import NONE, Operations
from pytest_nsys.core.columns import (
    Column,
    chained,
    equal,
    later,
    members_by,
    minus,
    order,
    places,
    spread,
    stretches,
    take,
    where,
    where_not,
)
from pytest_nsys.core.model import NO_LAUNCH, NO_STREAM, Stream
from pytest_nsys.core.tables import Place, StreamWait

Latest = tuple[tuple[int, int], ...]
"""(time, operation) of a few operations, the latest first."""


class Reached(NamedTuple):
    """``operations``, each with the index of the kernel that depends on it in ``owners``: by owner, start and stream.
    ``contradicted``: of how many kernels the trace says that they depend on what starts later.
    """

    owners: Column
    operations: Column
    contradicted: int


class Dependencies:
    """What the operations of one table depend on. A place is one in ``_by_line``, where those of a stream that keeps
    order follow each other by their starts.
    """

    def __init__(self, ran: Operations, waits: Sequence[StreamWait]) -> None:
        self._ran, self._waits, line = ran, _Waits(ran, waits), _lines(ran)
        self._by_line = by_line = order(line, ran.work.start_ns, ran.work.end_ns)
        self._place = spread(by_line, array("q", range(len(by_line))), len(by_line), 0)
        self._start_ns, self._line = take(ran.work.start_ns, by_line), take(line, by_line)
        self._consuming = array("q", sorted(self._place[each] for each in self._waits.last_before))

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
        work = self._ran.work
        rank = {stream: place for place, stream in enumerate(sorted(work.streams))}
        of_streams = take(array("q", [rank[stream] for stream in work.streams]), take(work.stream, operations))
        by_owner = order(owners, take(work.start_ns, operations), of_streams)
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
        start_ns, found, contradicted = self._ran.work.start_ns, list[int](), False
        asking, done = [(-start_ns[kernel], kernel)], dict[int, int]()
        waited, nodes, known = list[tuple[int, int]](), set[int](), set[int]()
        while asking or waited:
            if waited and (not asking or waited[0] <= asking[0]):
                _, consumer = heappop(waited)
                contradicted |= self._waits.contradicts(consumer)
                for each in self._waits.producers(consumer, since_ns, nodes):
                    if each not in known and start_ns[each] < start_ns[consumer]:
                        found.append(each)
                        if start_ns[each] > since_ns:
                            heappush(asking, (-start_ns[each], each))
                    known.add(each)
                continue
            place = self._place[heappop(asking)[1]]
            line = self._line[place]
            begin = bisect_left(self._line, line)
            running = max(bisect_right(self._start_ns, since_ns, begin, place) - 1, done.get(line, -1))
            if place > running:
                done[line] = place
                found += self._by_line[max(running, begin) : place]
                own = slice(bisect_right(self._consuming, running), bisect_right(self._consuming, place))
                for at in self._consuming[own]:
                    heappush(waited, (-self._start_ns[at], self._by_line[at]))
        return found, contradicted


def _lines(ran: Operations) -> Column:
    """The number of what each operation is in order with: its stream, or itself alone where that is none."""
    found = ran.work.stream[:]
    for number, stream in enumerate(ran.work.streams):
        if stream.number == NO_STREAM or stream in ran.unordered:
            for i in where(equal(ran.work.stream, number)):
                found[i] = len(ran.work.streams) + i
    return found


class _Waits:
    """What operations waited for on other streams, as far as joined waits say.

    Waits and records are nodes, each reached from those before it; an operation stands at the record that it precedes.
    ``last_before`` is the last wait before each operation that waited.
    """

    def __init__(self, ran: Operations, waits: Sequence[StreamWait]) -> None:
        self._start_ns, self._end_ns = ran.work.start_ns, ran.work.end_ns
        self.last_before: dict[int, int] = {}
        self._stands_at: dict[int, int] = {}
        leads_to = self._graph(ran, waits)
        self._came_from: list[list[int]] = [[] for _ in leads_to]
        for node, followers in enumerate(leads_to):
            for follower in followers:
                self._came_from[follower].append(node)
        self._latest_end = self._latest(self._end_ns, leads_to, 2)
        self._latest_start = self._latest(self._start_ns, leads_to, 1)

    def producers(self, consumer: int, after_ns: int, walked: set[int]) -> Iterator[int]:
        """The operations that one which waited depends on and that end after a moment, but for nodes that were
        ``walked`` to before. Where a node is reached from one such alone, it is known: a chain to it is not walked,
        however long.
        """
        todo = [self.last_before[consumer]]
        while todo:
            node = todo.pop()
            if node in walked:
                continue
            walked.add(node)
            found = [operation for end_ns, operation in self._latest_end[node] if end_ns > after_ns]
            if len(found) > 1:
                todo += self._came_from[node]
                own = self._stands_at.get(node, NONE)
                found = [own] if own != NONE and self._end_ns[own] > after_ns else []
            yield from found

    def contradicts(self, consumer: int) -> bool:
        """Whether one that waited did, as the trace has it, for what starts at or after it."""
        latest = self._latest_start[self.last_before[consumer]]
        return bool(latest) and latest[0][0] >= self._start_ns[consumer]

    def _graph(self, ran: Operations, waits: Sequence[StreamWait]) -> list[list[int]]:
        """To which nodes each leads: a record to its waits, and a wait to the next wait and to records, as long as no
        operation is launched on their stream in between.
        """
        records = [(wait.recorded_on, wait.recorded_at) for wait in waits if wait.recorded_on and wait.recorded_at]
        nodes = {record: node for node, record in enumerate(dict.fromkeys(records), len(waits))}
        leads_to: list[list[int]] = [[] for _ in range(len(waits) + len(nodes))]
        for wait, record in enumerate(records):
            leads_to[nodes[record]].append(wait)
        streams, in_order, launched, behind = _by_launch(ran, [(wait.stream, wait.at) for wait in waits], list(nodes))
        before, of_stream = (NONE, NONE, NONE), take(ran.work.stream, launched)
        for node, count in zip(in_order, behind, strict=True):
            if before[1:] == (streams[node], count):
                leads_to[before[0]].append(node)
            if node < len(waits):
                before = node, streams[node], count
                if count < len(launched) and of_stream[count] == streams[node]:
                    self.last_before[launched[count]] = node
            elif count and of_stream[count - 1] == streams[node]:
                self._stands_at[node] = launched[count - 1]
        return leads_to

    def _latest(self, time_ns: Column, leads_to: Sequence[Sequence[int]], count: int) -> Sequence[Latest]:
        """The operations of the latest times from which each node is reached, so many at most: cycles end, and long
        chains cost nothing. Of two ends one that outlasts all others hides no end of the rest.
        """
        found: list[Latest] = [()] * len(leads_to)
        for node, operation in sorted(self._stands_at.items(), key=lambda item: -time_ns[item[1]]):
            label, reached = (time_ns[operation], operation), [node]
            while reached:
                at = reached.pop()
                if len(found[at]) < count and label not in found[at]:
                    found[at] = (*found[at], label)
                    reached += leads_to[at]
        return found


_Mark = tuple[Stream, Place]


def _by_launch(
    ran: Operations, waits: Sequence[_Mark], records: Sequence[_Mark]
) -> tuple[Column, Column, Column, Column]:
    """The number of the stream of each wait and record; these in the order of their launches, stream by stream; the
    operations in that order; and how many of them come before each wait or record.
    """
    marks = [*waits, *records]
    numbers = {stream: i for i, stream in enumerate(dict.fromkeys((*ran.work.streams, *(on for on, _ in marks))))}
    streams = array("q", [numbers[on] for on, _ in marks])
    launches, correlations = (array("q", [at[key] for _, at in marks]) for key in (0, 1))
    own = where_not(equal(ran.launch_ns, NO_LAUNCH))
    of_operations = (take(column, own) for column in (ran.work.stream, ran.launch_ns, ran.work.correlation))
    columns = [chained(each) for each in zip((streams, launches, correlations), of_operations, strict=True)]
    kinds = array("q", [1]) * len(waits) + array("q", [0]) * len(records) + array("q", [2]) * len(own)
    none = array("q", bytes(8 * len(marks)))
    ordered = order(*columns, kinds, none + take(ran.work.start_ns, own))
    ran_at = equal(take(kinds, ordered), 2)
    operations, marked = where(ran_at), where_not(ran_at)
    return streams, take(ordered, marked), take(none + own, take(ordered, operations)), places(operations, marked)
