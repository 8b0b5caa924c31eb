"""All that ran on the GPU of a rank around its windows, until compute came next, as one table: kernels and transfers.

An operation is known by its index. The rank's own kernels come first, then its transfers, then the operations of other
devices of the process, which its kernels may have waited for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.windows.tracks import Around, RankTrack, or_start
from pytest_nsys.core.columns import (
    Column,
    Flags,
    bounds,
    chained,
    equal,
    minus,
    take,
    values,
    where,
    where_not,
    within,
)
from pytest_nsys.core.model import Lane, Stream
from pytest_nsys.core.tables import NO_CALLS, Kernels, LaunchCalls, one_after_another
from pytest_nsys.traces.copies_as_kernels import GRAPH_ID, MEMSET_ID

OWN_COMPUTE, COLLECTIVE, COPY, MEMSET, OTHER_DEVICE = range(5)
KINDS = ("", "collective", "copy", "memset", "other_device")
"""What each kind of operation is called as a producer, which compute of the rank itself never is."""

NONE = -1
"""The index of no operation."""


class Operation(NamedTuple):
    """One of them. ``name`` is a kernel's demangled name, of copies and memsets the ``kind``."""

    kind: str
    name: str
    stage: str
    stream: Stream
    start_ns: int
    end_ns: int


class _Piece(NamedTuple):
    """Kernels of one lane as they were read, or ``chosen`` ones of its transfers. ``after``: what followed."""

    around: Around
    lane: Lane
    after: bool
    work: Kernels
    kinds: Flags
    chosen: Column | None = None

    @property
    def calls(self) -> LaunchCalls:
        """The call that launched each."""
        if self.chosen is None:
            return self.around.launch_calls[self.lane]
        return LaunchCalls(*(take(column, self.chosen) for column in self.around.transfer_calls[self.lane]))


class Operations:
    """The table of one rank. ``after``: with what followed its windows; ``others``: with the work of other devices.
    ``unordered`` are streams that keep no order. The first ``kernels`` are the rank's own, as the first ``own`` are.
    """

    def __init__(self, track: RankTrack, *, after: bool, others: bool) -> None:
        own, read = track.rank.lane, [track.around, *([track.after] if after else ())]
        lanes: list[Lane] = []
        if others:  # of one that ran no kernel meanwhile a copy may have been waited for
            known = {lane for around in read for lane in (*around.kernels, *(around.transfers or ()))}
            lanes = sorted(lane for lane in known if lane != own and lane.global_pid == own.global_pid)
        self.unordered = {*track.unordered}.union(*(track.around.unordered(lane) for lane in lanes))
        self._read, self._process = read, own.global_pid
        self._launched, moved = list(_kernels(read, own)), list(_transfers(read, own))
        elsewhere = [piece for lane in lanes for piece in (*_kernels(read, lane), *_transfers(read, lane))]
        self._pieces = [*self._launched, *moved, *elsewhere]
        self.kernels = sum(len(piece.work) for piece in self._launched)
        self.own = self.kernels + sum(len(piece.work) for piece in moved)
        self.work = one_after_another([piece.work for piece in self._pieces])
        kinds = bytearray().join(piece.kinds for piece in (*self._launched, *moved))
        self.kind = kinds + bytearray([OTHER_DEVICE]) * (len(self.work) - self.own)

    def __len__(self) -> int:
        return len(self.work)

    def compute(self) -> Column:
        """The rank's compute kernels that take time, by start."""
        own = where(equal(self.kind, OWN_COMPUTE))
        return take(own, where(minus(take(self.work.end_ns, own), take(self.work.start_ns, own))))

    def collectives(self, low: int, high: int) -> Column:
        """The rank's collectives that run in [low, high), by start."""
        all_of_them, starts, longest_ns = self._collectives
        near = all_of_them[bisect_left(starts, low - longest_ns) : bisect_left(starts, high)]
        ends = within(take(self.work.end_ns, near), low, high)
        return take(near, where(minus(ends, within(take(self.work.start_ns, near), low, high))))

    @cached_property
    def _collectives(self) -> tuple[Column, Column, int]:
        """All of them, their starts, and how long the longest is."""
        own = where(equal(self.kind[: self.kernels], COLLECTIVE))
        starts = take(self.work.start_ns, own)
        return own, starts, bounds(minus(take(self.work.end_ns, own), starts))[1]

    @cached_property
    def kernel_calls(self) -> LaunchCalls:
        """The call that launched each of the rank's kernels."""
        each = [piece.calls for piece in self._launched] or [NO_CALLS]
        return LaunchCalls(*(chained(columns) for columns in zip(*each, strict=True)))

    @cached_property
    def launch_ns(self) -> Column:
        """When the call began that launched each operation, NO_LAUNCH where there is none."""
        rest = self._pieces[len(self._launched) :]
        return chained([self.kernel_calls.start_ns, *(piece.calls.start_ns for piece in rest)])

    def stages(self, operations: Column) -> tuple[Column, Sequence[str]]:
        """For what some operations were launched: a number for each, and the stage that the number stands for; two
        numbers may stand for one.
        """
        launches = self.kernel_calls.start_ns if bounds(operations)[1] < self.kernels else self.launch_ns
        times = or_start(take(launches, operations), take(self.work.start_ns, operations))
        codes, known, _ = self._read[0].saying(self._process).at(times)
        stages = [stage for stage, _ in known]
        if after := where(take(self._after, operations)):
            own, known, _ = self._read[1].saying(self._process).at(take(times, after))
            for i, code in zip(after, own, strict=True):
                codes[i] = len(stages) + code
            stages += (stage for stage, _ in known)
        return codes, stages

    @cached_property
    def _after(self) -> Flags:
        return bytearray().join(bytearray([piece.after]) * len(piece.work) for piece in self._pieces)

    def name_of(self, short: int, full: int) -> str:
        """Return the demangled name by the numbers of both names; where there is none, and of copies, the short one."""
        return self.work.names.get(full) or self.work.names[short]

    def told(self, operations: Column) -> Mapping[int, Operation]:
        """Each of some operations by its index; NONE is none."""
        own, work = values(take(operations, where_not(equal(operations, NONE)))), self.work
        codes, stages = self.stages(own)
        return {
            i: Operation(
                kind=KINDS[self.kind[i]],
                name=self.name_of(work.name[i], work.full_name[i]),
                stage=stages[code],
                stream=work.streams[work.stream[i]],
                start_ns=work.start_ns[i],
                end_ns=work.end_ns[i],
            )
            for i, code in zip(own, codes, strict=True)
        }


def _kernels(read: Sequence[Around], lane: Lane) -> Iterator[_Piece]:
    """The kernels of a lane, around the windows and after them."""
    for number, around in enumerate(read):
        if (own := around.kernels.get(lane)) is not None and len(own):
            kinds, _ = around.communicating(lane)  # 1, as COLLECTIVE is, or 0, as OWN_COMPUTE
            yield _Piece(around, lane, number > 0, own, kinds)


def _transfers(read: Sequence[Around], lane: Lane) -> Iterator[_Piece]:
    """Its copies and memsets; graphs that were traced whole are neither."""
    for number, around in enumerate(read):
        if (own := (around.transfers or {}).get(lane)) is not None and len(own):
            some = where_not(equal(own.name, GRAPH_ID))
            work = own.take(some)
            kinds = bytearray(MEMSET if name == MEMSET_ID else COPY for name in work.name)
            yield _Piece(around, lane, number > 0, work, kinds, some)
