"""Which operations ran on the GPU of a rank around its windows, until compute came next, as one table?

An operation, a kernel or a transfer, is known by its index. The rank's own kernels come first, then its transfers, then
the operations of other devices of the process, which its kernels may have waited for.
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
"""The name of each kind of operation as a producer, which compute of the rank itself never is."""

NONE = -1
"""The index that stands for no operation."""


class Operation(NamedTuple):
    """Describes one operation of the table."""

    kind: str  # one of KINDS
    name: str  # a kernel's demangled name, of copies and memsets the kind
    stage: str
    stream: Stream
    start_ns: int
    end_ns: int


class _Piece(NamedTuple):
    """Holds the kernels of one lane as they were read, or chosen ones of its transfers."""

    around: Around
    lane: Lane
    after: bool  # whether they follow the windows
    work: Kernels
    kinds: Flags
    chosen: Column | None = None

    @property
    def calls(self) -> LaunchCalls:
        """The call that launched each operation."""
        if self.chosen is None:
            return self.around.launch_calls[self.lane]
        return LaunchCalls(*(take(column, self.chosen) for column in self.around.transfer_calls[self.lane]))


class Operations:
    """Holds the operations of one rank: the first ``kernel_count`` are its kernels, the first ``own_count`` its own."""

    def __init__(self, track: RankTrack, *, after: bool, others: bool) -> None:
        own_lane, contexts = track.rank.lane, [track.around, *([track.after] if after else ())]
        lanes: list[Lane] = []
        if others:  # of one that ran no kernel meanwhile a copy may have been waited for
            known_lanes = {lane for context in contexts for lane in (*context.kernels, *(context.transfers or ()))}
            lanes = sorted(lane for lane in known_lanes if lane != own_lane and lane.global_pid == own_lane.global_pid)
        self.unordered = {*track.unordered}.union(*(track.around.unordered(lane) for lane in lanes))
        self._read, self._process = contexts, own_lane.global_pid
        self._launched, transfer_pieces = list(_kernels(contexts, own_lane)), list(_transfers(contexts, own_lane))
        other_pieces = [piece for lane in lanes for piece in (*_kernels(contexts, lane), *_transfers(contexts, lane))]
        self._pieces = [*self._launched, *transfer_pieces, *other_pieces]
        self.kernels = sum(len(piece.work) for piece in self._launched)
        self.own = self.kernels + sum(len(piece.work) for piece in transfer_pieces)
        self.work = one_after_another([piece.work for piece in self._pieces])
        kinds = bytearray().join(piece.kinds for piece in (*self._launched, *transfer_pieces))
        self.kind = kinds + bytearray([OTHER_DEVICE]) * (len(self.work) - self.own)

    def __len__(self) -> int:
        return len(self.work)

    def compute(self) -> Column:
        """List the rank's compute kernels that take time, by start."""
        compute_rows = where(equal(self.kind, OWN_COMPUTE))
        return take(
            compute_rows, where(minus(take(self.work.end_ns, compute_rows), take(self.work.start_ns, compute_rows)))
        )

    def collectives(self, low: int, high: int) -> Column:
        """List the rank's collectives that run between two times, by start."""
        collective_rows, starts, longest_ns = self._collectives
        near_rows = collective_rows[bisect_left(starts, low - longest_ns) : bisect_left(starts, high)]
        ends = within(take(self.work.end_ns, near_rows), low, high)
        return take(near_rows, where(minus(ends, within(take(self.work.start_ns, near_rows), low, high))))

    @cached_property
    def _collectives(self) -> tuple[Column, Column, int]:
        """The rank's collectives, their starts, and the length of the longest."""
        collective_rows = where(equal(self.kind[: self.kernels], COLLECTIVE))
        starts = take(self.work.start_ns, collective_rows)
        return collective_rows, starts, bounds(minus(take(self.work.end_ns, collective_rows), starts))[1]

    @cached_property
    def kernel_calls(self) -> LaunchCalls:
        """The call that launched each of the rank's kernels."""
        piece_calls = [piece.calls for piece in self._launched] or [NO_CALLS]
        return LaunchCalls(*(chained(columns) for columns in zip(*piece_calls, strict=True)))

    @cached_property
    def launch_ns(self) -> Column:
        """The time when the call began that launched each operation, NO_LAUNCH where there is none."""
        other_pieces = self._pieces[len(self._launched) :]
        return chained([self.kernel_calls.start_ns, *(piece.calls.start_ns for piece in other_pieces)])

    def stages(self, operations: Column) -> tuple[Column, Sequence[str]]:
        """Find the stages that operations were launched for: a number for each, and the stage that each number stands
        for.

        Two numbers may stand for one stage.
        """
        launches = self.kernel_calls.start_ns if bounds(operations)[1] < self.kernels else self.launch_ns
        times = or_start(take(launches, operations), take(self.work.start_ns, operations))
        codes, contexts, _ = self._read[0].saying(self._process).at(times)
        stages = [stage for stage, _ in contexts]
        if after := where(take(self._after, operations)):
            codes_after, contexts, _ = self._read[1].saying(self._process).at(take(times, after))
            for i, code in zip(after, codes_after, strict=True):
                codes[i] = len(stages) + code
            stages += (stage for stage, _ in contexts)
        return codes, stages

    @cached_property
    def _after(self) -> Flags:
        return bytearray().join(bytearray([piece.after]) * len(piece.work) for piece in self._pieces)

    def name_of(self, short: int, full: int) -> str:
        """Return the demangled name by the numbers of both names; where there is none, and of copies, the short one."""
        return self.work.names.get(full) or self.work.names[short]

    def told(self, operations: Column) -> Mapping[int, Operation]:
        """Build a description of each of these operations, by its index; NO_OPERATION has none."""
        asked_rows, work = values(take(operations, where_not(equal(operations, NONE)))), self.work
        codes, stages = self.stages(asked_rows)
        return {
            i: Operation(
                kind=KINDS[self.kind[i]],
                name=self.name_of(work.name[i], work.full_name[i]),
                stage=stages[code],
                stream=work.streams[work.stream[i]],
                start_ns=work.start_ns[i],
                end_ns=work.end_ns[i],
            )
            for i, code in zip(asked_rows, codes, strict=True)
        }


def _kernels(read: Sequence[Around], lane: Lane) -> Iterator[_Piece]:
    """List the kernels of a lane, around the windows and after them."""
    for number, context in enumerate(read):
        if (lane_kernels := context.kernels.get(lane)) is not None and len(lane_kernels):
            kinds, _ = context.communicating(lane)  # 1, as COLLECTIVE is, or 0, as OWN_COMPUTE
            yield _Piece(context, lane, number > 0, lane_kernels, kinds)


def _transfers(read: Sequence[Around], lane: Lane) -> Iterator[_Piece]:
    """List the copies and memsets of a lane; graphs that were traced whole are neither."""
    for number, context in enumerate(read):
        if (lane_transfers := (context.transfers or {}).get(lane)) is not None and len(lane_transfers):
            chosen_rows = where_not(equal(lane_transfers.name, GRAPH_ID))
            work = lane_transfers.take(chosen_rows)
            kinds = bytearray(MEMSET if name == MEMSET_ID else COPY for name in work.name)
            yield _Piece(context, lane, number > 0, work, kinds, chosen_rows)
