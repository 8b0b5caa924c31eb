"""All that ran on the GPU of a rank around its windows, until compute came next, as one table: kernels and transfers.

An operation is known by its index. The rank's own come first, then those of other devices of the process, which its
kernels may have waited for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from pytest_nsys.analysis.around import RankTrack, TraceKernels, or_start
from pytest_nsys.core.columns import (
    Column,
    bounds,
    equal,
    members,
    minus,
    order,
    places,
    spread,
    take,
    where,
    where_not,
    within,
)
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.model import NO_LAUNCH, NO_STREAM, Lane, Stream
from pytest_nsys.core.operations import LaunchCalls
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.copies_as_kernels import COPY_ID, GRAPH_ID, MEMSET_ID

OWN_COMPUTE, COLLECTIVE, COPY, MEMSET, OTHER_DEVICE = range(5)
KINDS = ("", "collective", "copy", "memset", "other_device")
"""What each kind of operation is called as a producer, which compute of the rank itself never is."""

NONE = -1
"""The index of no operation."""


_TRANSFERS = {COPY_ID: COPY, MEMSET_ID: MEMSET}


class _Part(NamedTuple):
    """Kernels, or transfers, of one lane; ``calls`` reads which calls launched them."""

    around: TraceKernels
    lane: Lane
    work: Kernels
    kinds: Column
    transfers: bool
    calls: Callable[[], Mapping[Lane, LaunchCalls]]


class Operations:
    """The table of one rank, of which the first ``own`` are its own. ``after``: with what followed its windows;
    ``others``: with the work of other devices. ``unordered`` are streams that keep no order.
    """

    def __init__(self, track: RankTrack, *, after: bool, others: bool) -> None:
        own = track.rank.lane
        self.unordered = {*track.unordered}
        lanes = [own]
        read = [track.around, *([track.after] if after else ())]
        if others:  # of one that ran no kernel meanwhile a copy may have been waited for
            known = {lane for around in read for lane in (*around.kernels, *(around.transfers or ()))}
            lanes += sorted(lane for lane in known if lane != own and lane.global_pid == own.global_pid)
        for lane in lanes[1:]:
            self.unordered |= {*track.around.unordered(lane)}
        self._parts = [part for lane in lanes for around in read for part in _parts(around, lane, lane == own)]
        self.own = sum(len(part.work) for part in self._parts if part.lane == own)
        self._firsts = array("q", accumulate((len(part.work) for part in self._parts), initial=0))
        numbers = {stream: i for i, stream in enumerate(dict.fromkeys(s for p in self._parts for s in p.work.streams))}
        self.streams: Sequence[Stream] = tuple(numbers)
        self.names = {number: name for part in self._parts for number, name in part.work.names.items()}
        self.start_ns = self._joined(lambda part: part.work.start_ns)
        self.end_ns = self._joined(lambda part: part.work.end_ns)
        self.kind = self._joined(lambda part: part.kinds)
        self.graph_node = bytearray().join(part.work.graph_node for part in self._parts)
        self.stream = self._joined(lambda part: _renumbered(part.work, numbers))

    def __len__(self) -> int:
        return len(self.start_ns)

    def _joined(self, column: Callable[[_Part], Column]) -> Column:
        """The column of all parts; of a single one no second copy is kept, so none is written to."""
        found = array("q")
        for part in self._parts:
            own = column(part)
            whole = own if own.typecode == "q" else array("q", own)
            found = found + whole if found else whole
        return found

    @cached_property
    def name(self) -> Column:
        """The number of each operation's name."""
        return self._joined(lambda part: part.work.name)

    @cached_property
    def correlation(self) -> Column:
        """What joins each operation to its launch."""
        return self._joined(lambda part: part.work.correlation)

    def compute(self) -> Column:
        """The rank's compute kernels that take time, by start."""
        own = where(equal(self.kind, OWN_COMPUTE))
        return take(own, where(minus(take(self.end_ns, own), take(self.start_ns, own))))

    def collectives(self, low: int, high: int) -> Column:
        """The rank's collectives that run in [low, high), by start."""
        all_of_them, starts, longest_ns = self._collectives
        near = all_of_them[bisect_left(starts, low - longest_ns) : bisect_left(starts, high)]
        ends = within(take(self.end_ns, near), low, high)
        return take(near, where(minus(ends, within(take(self.start_ns, near), low, high))))

    @cached_property
    def _collectives(self) -> tuple[Column, Column, int]:
        """All of them, their starts, and how long the longest is."""
        own = where(equal(self.kind[: self.own], COLLECTIVE))
        starts = take(self.start_ns, own)
        return own, starts, bounds(minus(take(self.end_ns, own), starts))[1]

    @cached_property
    def line(self) -> Column:
        """The number of what each operation is in order with: its stream, or itself alone where that is none."""
        found = self.stream[:]
        for number, stream in enumerate(self.streams):
            if stream.number == NO_STREAM or stream in self.unordered:
                for i in where(equal(self.stream, number)):
                    found[i] = len(self.streams) + i
        return found

    @cached_property
    def by_line(self) -> Column:
        """The operations by line, those of a line by start."""
        return order(self.line, self.start_ns, self.end_ns)

    @cached_property
    def stream_order(self) -> Column:
        """By number of a stream its place among all: by device, context and own number."""
        known = {stream: place for place, stream in enumerate(sorted(self.streams))}
        return array("q", [known[stream] for stream in self.streams])

    @cached_property
    def of_streams(self) -> Mapping[Stream, Column]:
        """The operations of each stream."""
        return dict(zip(self.streams, members(self.stream, len(self.streams)), strict=True))

    @cached_property
    def launch_ns(self) -> Column:
        """When the call began that launched each operation, NO_LAUNCH where there is none."""
        return self._joined(lambda part: part.calls()[part.lane].start_ns)

    @cached_property
    def kernel_launch_ns(self) -> Column:
        """The same, without a look at transfers, which have none."""
        return self._of_kernels(lambda calls: calls.start_ns)

    @cached_property
    def issued_ns(self) -> Column:
        """When the call ended that launched each kernel, NO_LAUNCH where there is none, and of transfers."""
        return self._of_kernels(lambda calls: calls.end_ns)

    @cached_property
    def thread(self) -> Column:
        """The thread that launched each kernel; of no meaning where nothing says who did."""
        return self._of_kernels(lambda calls: calls.thread)

    def _of_kernels(self, column: Callable[[LaunchCalls], Column]) -> Column:
        def of(part: _Part) -> Column:
            nothing = array("q", [NO_LAUNCH]) * len(part.work)
            return nothing if part.transfers else column(part.calls()[part.lane])

        return self._joined(of)

    def stages(self, operations: Column) -> list[str]:
        """What some operations were launched for."""
        found = [NO_STAGE] * len(operations)
        for number, own in enumerate(members(places(self._firsts, operations), len(self._firsts) + 1)):
            if own:
                part, first = self._parts[number - 1], self._firsts[number - 1]
                at = array("q", [operations[i] - first for i in own])
                times = or_start(take(part.calls()[part.lane].start_ns, at), take(part.work.start_ns, at))
                codes, known = part.around.saying(part.lane.global_pid).at(times).contexts
                for i, code in zip(own, codes, strict=True):
                    found[i] = known[code][0]
        return found


def _renumbered(work: Kernels, numbers: Mapping[Stream, int]) -> Column:
    own = [numbers[stream] for stream in work.streams]
    return work.stream if own == list(range(len(own))) else take(array("q", own), work.stream)


def _parts(around: TraceKernels, lane: Lane, own: bool) -> Iterator[_Part]:
    kernels = around.kernels.get(lane)
    if kernels is not None and len(kernels):
        communicating = where(around.communicating(lane)[0]) if own else array("q")
        collectives, rest = array("q", [COLLECTIVE]) * len(communicating), OWN_COMPUTE if own else OTHER_DEVICE
        kinds = spread(communicating, collectives, len(kernels), rest)
        yield _Part(around, lane, kernels, kinds, False, lambda: around.launch_calls)
    transfers = (around.transfers or {}).get(lane)
    if transfers is not None and len(transfers):
        transfers = transfers.take(where_not(equal(transfers.name, GRAPH_ID)))
        kinds = array("q", [_TRANSFERS[name] if own else OTHER_DEVICE for name in transfers.name])
        yield _Part(around, lane, transfers, kinds, True, lambda: around.transfer_calls)
