"""For what did an operation wait on other streams? Followed through the waits of its stream to what was recorded.

A wait holds back what is launched on its stream after it; the next operation launched there is its consumer, and
whatever comes later waits for that one anyway. A wait is for the last operation launched on the recording stream before
the record, and for what that stream waited for between the two.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from pytest_nsys.analysis.operations import NONE, Operations
from pytest_nsys.core.columns import Column, equal, order, take, where_not
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.model import NO_LAUNCH, Stream
from pytest_nsys.core.operations import Place, StreamWait

Latest = tuple[tuple[int, int], ...]
"""(time, operation) of a few operations, the latest first."""


class Walked:
    """What was walked to for one gap: of nodes and operations, each once."""

    def __init__(self) -> None:
        self.nodes: set[int] = set()
        self.operations: set[int] = set()


class _Line:
    """One stream: its operations and its waits, each in the order of their calls. ``first`` numbers the first wait."""

    def __init__(self, ran: Operations, stream: Stream, at: Sequence[Place], first: int) -> None:
        own = ran.of_streams.get(stream, array("q"))
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
    """Which operations each operation waited for on other streams, as far as joined waits say.

    Waits and records are nodes, each reached from those before it; an operation stands at the record that it precedes.
    """

    def __init__(self, operations: Operations, waits: Sequence[StreamWait]) -> None:
        self._ran = operations
        by_stream = grouped((wait.stream, wait) for wait in sorted(waits, key=lambda wait: wait.at))
        self._waits = [wait for own in by_stream.values() for wait in own]
        self._lines: dict[Stream, _Line] = {}
        first = 0
        for stream, own in by_stream.items():
            self._lines[stream] = _Line(operations, stream, [wait.at for wait in own], first)
            first += len(own)
        leads_to, self._stands_at = self._graph()
        self._came_from: list[list[int]] = [[] for _ in leads_to]
        for node, followers in enumerate(leads_to):
            for follower in followers:
                self._came_from[follower].append(node)
        self._latest_end = self._latest(operations.end_ns, leads_to, 2)
        self._latest_start = self._latest(operations.start_ns, leads_to, 1)

    @kept
    def _line(self, stream: Stream) -> _Line:
        return self._lines.get(stream) or _Line(self._ran, stream, (), 0)

    @cached_property
    def consumers(self) -> Mapping[int, int]:
        """The last wait before each operation that waited."""
        found: dict[int, int] = {}
        for line in self._lines.values():
            for number, behind in enumerate(line.behind):
                if behind < len(line.operations):
                    found[line.operations[behind]] = line.first + number
        return found

    def producers(self, consumer: int, after_ns: int, walked: Walked) -> Iterator[int]:
        """The operations that one of :attr:`consumers` waited for and that end after a moment, but those that were
        ``walked`` to before. Where a node is reached from one such alone, it is known: a chain to it is not walked,
        however long.
        """
        todo = [self.consumers[consumer]]
        while todo:
            node = todo.pop()
            if node in walked.nodes:
                continue
            walked.nodes.add(node)
            found = [operation for end_ns, operation in self._latest_end[node] if end_ns > after_ns]
            if len(found) > 1:
                todo += self._came_from[node]
                found = [self._stands_at[node]] if node in self._stands_at else []
            for own in found:
                if own not in walked.operations and self._ran.end_ns[own] > after_ns:
                    walked.operations.add(own)
                    yield own

    def contradicts(self, consumer: int) -> bool:
        """Whether one of :attr:`consumers` waited, as the trace has it, for what starts at or after it."""
        latest = self._latest_start[self.consumers[consumer]]
        return bool(latest) and latest[0][0] >= self._ran.start_ns[consumer]

    def _graph(self) -> tuple[list[list[int]], dict[int, int]]:
        """To which nodes each leads, waits before records; the operation of each record."""
        leads_to: list[list[int]] = [[] for _ in self._waits]
        stands_at: dict[int, int] = {}
        for (stream, place), node in self._records(leads_to).items():
            line = self._line(stream)
            before = line.before(place)
            if (relayed := line.last_wait(place, before)) != NONE:
                leads_to[relayed].append(node)
            if before:
                stands_at[node] = line.operations[before - 1]
        for line in self._lines.values():
            for number in range(1, len(line.behind)):
                if line.behind[number - 1] == line.behind[number]:
                    leads_to[line.first + number - 1].append(line.first + number)
        return leads_to, stands_at

    def _records(self, leads_to: list[list[int]]) -> Mapping[tuple[Stream, Place], int]:
        """The node of each record, which leads to its waits."""
        found: dict[tuple[Stream, Place], int] = {}
        for node, wait in enumerate(self._waits):
            if wait.recorded_on is not None and wait.recorded_at is not None:
                at = found.setdefault((wait.recorded_on, wait.recorded_at), len(leads_to))
                if at == len(leads_to):
                    leads_to.append([])
                leads_to[at].append(node)
        return found

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
