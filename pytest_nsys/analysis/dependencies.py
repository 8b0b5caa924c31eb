"""For what did a kernel wait on other streams? Followed through the waits of its stream to what was recorded.

A wait holds back what is launched on its stream after it; the next operation launched there is its consumer, and
whatever comes later waits for that one anyway. A wait is for the last operation launched on the recording stream before
the record, and for what that stream waited for between the two. Of all that is so reached the producer is what ends
last: each place is labelled once, by the latest end that reaches it, so that cycles end and long chains cost nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property

from pytest_nsys.analysis.operations import NONE, OWN_COMPUTE, Operations
from pytest_nsys.core.columns import equal, order, take, where, where_not
from pytest_nsys.core.grouping import grouped
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import NO_LAUNCH, Stream
from pytest_nsys.core.operations import Place, StreamWait


class _Line:
    """One stream: its operations and its waits, each in the order of their calls. ``first`` numbers the first wait."""

    def __init__(self, ran: Operations, stream: Stream, at: Sequence[Place], first: int) -> None:
        own = array("q")
        if stream in ran.streams:
            own = where(equal(ran.stream, ran.streams.index(stream)))
            own = take(own, where_not(equal(take(ran.launch_ns, own), NO_LAUNCH)))
            own = take(own, order(take(ran.launch_ns, own), take(ran.correlation, own), take(ran.start_ns, own)))
        self.operations, self.first, self._at = own, first, at
        self._launch_ns, self._correlation = take(ran.launch_ns, own), take(ran.correlation, own)
        self.behind = [self.before(place) for place in at]

    def before(self, place: Place) -> int:
        """How many operations were launched before the place."""
        found = bisect_left(self._launch_ns, place.launch_ns)
        while found < len(self.operations) and (self._launch_ns[found], self._correlation[found]) < place:
            found += 1
        return found

    def last_wait(self, place: Place, before: int) -> int:
        """The number of the last wait before the place, NONE where an operation was launched between the two."""
        number = bisect_left(self._at, place) - 1
        return self.first + number if number >= 0 and self.behind[number] == before else NONE


class Dependencies:
    """Which operation each operation waited for longest on other streams, as far as joined waits say."""

    def __init__(self, operations: Operations, waits: Sequence[StreamWait]) -> None:
        self._ran = operations
        by_stream = grouped((wait.stream, wait) for wait in sorted(waits, key=lambda wait: wait.at))
        self._waits = [wait for own in by_stream.values() for wait in own]
        self._lines: dict[Stream, _Line] = {}
        first = 0
        for stream, own in by_stream.items():
            self._lines[stream] = _Line(operations, stream, [wait.at for wait in own], first)
            first += len(own)

    @kept
    def _line(self, stream: Stream) -> _Line:
        return self._lines.get(stream) or _Line(self._ran, stream, (), 0)

    @cached_property
    def producer(self) -> Mapping[int, int]:
        """By consumer the operation of those it waited for that ended last; of several the one of the first stream."""
        leads_to, sources, consumers = self._graph
        found = array("q", [NONE]) * len(leads_to)
        for last, node in sources:
            reached = [node]
            while reached:
                node = reached.pop()
                if found[node] == NONE:
                    found[node] = last
                    reached += leads_to[node]
        return {consumer: found[wait] for consumer, wait in consumers.items() if found[wait] != NONE}

    def producer_before(self, consumer: int) -> int:
        """The same of those alone that started before the consumer did, NONE where none is such: for a trace that says
        it waited for what started later.
        """
        _, sources, consumers = self._graph
        reached, known = [consumers[consumer]], {consumers[consumer]}
        while reached:
            new = {node for node in self._leads_from[reached.pop()] if node not in known}
            known |= new
            reached += new
        start_ns = self._ran.start_ns
        early = (last for last, node in sources if node in known and start_ns[last] < start_ns[consumer])
        return next(early, NONE)

    @cached_property
    def _leads_from(self) -> Sequence[Sequence[int]]:
        leads_to, _, _ = self._graph
        found: list[list[int]] = [[] for _ in leads_to]
        for node, followers in enumerate(leads_to):
            for follower in followers:
                found[follower].append(node)
        return found

    @cached_property
    def _graph(self) -> tuple[Sequence[Sequence[int]], Sequence[tuple[int, int]], Mapping[int, int]]:
        """To which places each leads, by wait and then by record; (operation, record), what ended last first; the wait
        of each consumer.
        """
        ran, waits = self._ran, len(self._waits)
        leads_to: list[list[int]] = [[] for _ in range(waits)]  # by wait, and then by record
        records: dict[tuple[Stream, Place], int] = {}
        for node, wait in enumerate(self._waits):
            if wait.recorded_on is None or wait.recorded_at is None:
                continue
            record = wait.recorded_on, wait.recorded_at
            at = records.get(record)
            if at is None:
                at = records[record] = len(leads_to)
                leads_to.append([])
            leads_to[at].append(node)
        consumers: dict[int, int] = {}
        for line in self._lines.values():
            for number, behind in enumerate(line.behind):
                if number and line.behind[number - 1] == behind:
                    leads_to[line.first + number - 1].append(line.first + number)
                if behind < len(line.operations):
                    consumers[line.operations[behind]] = line.first + number
        sources = []
        for record, node in records.items():
            line = self._line(record[0])
            before = line.before(record[1])
            if (relayed := line.last_wait(record[1], before)) != NONE:
                leads_to[relayed].append(node)
            if before and ran.kind[last := line.operations[before - 1]] != OWN_COMPUTE:
                sources.append((-ran.end_ns[last], record, last, node))
        return leads_to, [(last, node) for *_, last, node in sorted(sources)], consumers
