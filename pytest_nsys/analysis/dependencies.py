"""For what did a kernel wait on other streams? Followed through the waits of its stream to what was recorded.

A wait holds back what is launched on its stream after it; the next operation launched there is its consumer, and
whatever comes later waits for that one anyway. A wait is for the last operation launched on the recording stream before
the record, and for what that stream waited for between the two. Of all that is so reached the producer is what ends
last: each place is labelled once, by the latest end that reaches it, so that cycles end and long chains cost nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.operations import NONE, OWN_COMPUTE, Operations
from pytest_nsys.core.columns import Column, equal, order, take, where, where_not
from pytest_nsys.core.grouping import grouped
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import NO_LAUNCH, Stream
from pytest_nsys.core.operations import Place, StreamWait


class _Record(NamedTuple):
    """Where something is waited for."""

    stream: Stream
    place: Place


class _Wait(NamedTuple):
    """What holds back a stream: a wait, and the waits before it up to the operation before them."""

    stream: Stream
    number: int


_Node = _Record | _Wait


class Dependencies:
    """Which operation each operation waited for longest on other streams, as far as joined waits say."""

    def __init__(self, operations: Operations, waits: Sequence[StreamWait]) -> None:
        self._operations = operations
        self._numbers = {stream: number for number, stream in enumerate(operations.streams)}
        self._waits = grouped(
            (wait.stream, (wait.at, _Record(wait.recorded_on, wait.recorded_at)))
            for wait in sorted(waits, key=lambda wait: wait.at)
            if wait.recorded_on is not None and wait.recorded_at is not None
        )

    @kept
    def _launched(self, stream: Stream) -> tuple[Column, Column]:
        """The launch times of the operations of a stream in their order, and the operations."""
        ran = self._operations
        if stream not in self._numbers:
            return array("q"), array("q")
        own = where(equal(ran.stream, self._numbers[stream]))
        own = take(own, where_not(equal(take(ran.launch_ns, own), NO_LAUNCH)))
        own = take(own, order(take(ran.launch_ns, own), take(ran.correlation, own), take(ran.start_ns, own)))
        return take(ran.launch_ns, own), own

    def _before(self, stream: Stream, place: Place) -> int:
        """How many operations of the stream were launched before the place."""
        times, own = self._launched(stream)
        found = bisect_left(times, place.launch_ns)
        while found < len(own) and (times[found], self._operations.correlation[own[found]]) < place:
            found += 1
        return found

    @kept
    def _behind(self, stream: Stream) -> Sequence[int]:
        """Of each wait of a stream how many operations were launched there before it."""
        return [self._before(stream, at) for at, _ in self._waits.get(stream, ())]

    def _last_wait(self, record: _Record, before: int) -> Iterator[_Wait]:
        """The last wait before a record on its stream, where no operation was launched between the two."""
        number = bisect_left(self._waits.get(record.stream, ()), record.place, key=lambda wait: wait[0]) - 1
        if number >= 0 and self._behind(record.stream)[number] == before:
            yield _Wait(record.stream, number)

    @cached_property
    def producer(self) -> Mapping[int, int]:
        """By consumer the operation of those it waited for that ended last; of several the one of the first stream."""
        ran = self._operations
        leads_to: dict[_Node, list[_Node]] = defaultdict(list)
        last: dict[_Record, int] = {}
        consumers: dict[int, _Wait] = {}
        for stream, waits in self._waits.items():
            behind, (_, own) = self._behind(stream), self._launched(stream)
            for number, (_, record) in enumerate(waits):
                here = _Wait(stream, number)
                leads_to[record].append(here)
                if number and behind[number - 1] == behind[number]:
                    leads_to[_Wait(stream, number - 1)].append(here)
                if behind[number] < len(own):
                    consumers[own[behind[number]]] = here
                if record not in last:
                    before = self._before(*record)
                    last[record] = self._launched(record.stream)[1][before - 1] if before else NONE
                    for relayed in self._last_wait(record, before):
                        leads_to[relayed].append(record)
        sources = [(op, record) for record, op in last.items() if op != NONE and ran.kind[op] != OWN_COMPUTE]
        found: dict[_Node, int] = {}
        for op, record in sorted(sources, key=lambda source: (-ran.end_ns[source[0]], source[1])):
            reached: list[_Node] = [record]
            while reached:
                node = reached.pop()
                if node not in found:
                    found[node] = op
                    reached += leads_to[node]
        return {consumer: found[wait] for consumer, wait in consumers.items() if wait in found}
