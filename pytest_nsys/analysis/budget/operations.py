"""Which operations ran on the GPU of a rank around its windows, and until the next compute, as one table?

An operation, that is a kernel or a transfer, is identified by its index. The rank's own kernels come first, then its
transfers, then the operations of other devices of the process, which its kernels may have waited for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.windows.rank_track import RankTrack, TraceContext, fill_missing_launches
from pytest_nsys.core.columns import (
    Column,
    Flags,
    clip,
    concatenate_columns,
    find_min_max,
    find_nonzero,
    find_zeros,
    list_distinct,
    mark_equal,
    subtract,
    take,
)
from pytest_nsys.core.model import Lane, Stream
from pytest_nsys.core.tables import NO_LAUNCH_CALLS, Kernels, LaunchCalls, concatenate_kernels
from pytest_nsys.traces.copies_as_kernels import GRAPH_ID, MEMSET_ID

OWN_COMPUTE, COLLECTIVE, COPY, MEMSET, OTHER_DEVICE = range(5)
PRODUCER_KINDS = ("", "collective", "copy", "memset", "other_device")
"""The name of each kind of operation as a producer; the rank's own compute, which never is one, has an empty name."""

NO_OPERATION = -1
"""The index that stands for no operation."""


class Operation(NamedTuple):
    """Describes one operation of the table."""

    kind: str  # one of KINDS
    name: str  # a kernel's demangled name; for copies and memsets the kind
    stage: str
    stream: Stream
    start_ns: int
    end_ns: int


class _LaneOperations(NamedTuple):
    """Holds the kernels of one lane as they were read, or a selection of its transfers."""

    context: TraceContext
    lane: Lane
    is_after: bool  # whether they follow the windows
    work: Kernels
    kinds: Flags
    chosen_rows: Column | None = None

    @property
    def issues_ns(self) -> Column:
        """When the program issued each operation, which its stage is told by."""
        return self.context.find_issue_times(self.lane) if self.chosen_rows is None else self.calls.start_ns

    @property
    def module_codes(self) -> Column | None:
        """The context that the module of each operation gives; None where none is named, as by transfers."""
        return self.context.find_module_codes(self.lane) if self.chosen_rows is None else None

    @property
    def calls(self) -> LaunchCalls:
        """The call that launched each operation."""
        if self.chosen_rows is None:
            return self.context.launch_calls[self.lane]
        return LaunchCalls(*(take(column, self.chosen_rows) for column in self.context.transfer_calls[self.lane]))


class Operations:
    """Holds the operations of one rank: the first ``kernel_count`` are its kernels, the first ``own_count`` its own."""

    def __init__(self, track: RankTrack, *, with_following: bool, with_other_devices: bool) -> None:
        own_lane, contexts = track.rank.lane, [track.trace_context, *([track.context_after] if with_following else ())]
        lanes: list[Lane] = []
        if with_other_devices:  # even without kernels, a device may have run a copy that is waited for
            known_lanes = {lane for context in contexts for lane in (*context.kernels, *(context.transfers or ()))}
            lanes = sorted(lane for lane in known_lanes if lane != own_lane and lane.global_pid == own_lane.global_pid)
        self.unordered_streams = {*track.unordered_streams}.union(
            *(track.trace_context.find_unordered_streams(lane) for lane in lanes)
        )
        self._contexts, self._global_pid = contexts, own_lane.global_pid
        self._kernel_pieces, transfer_pieces = (
            list(_list_kernel_pieces(contexts, own_lane)),
            list(_list_transfer_pieces(contexts, own_lane)),
        )
        other_pieces = [
            piece
            for lane in lanes
            for piece in (*_list_kernel_pieces(contexts, lane), *_list_transfer_pieces(contexts, lane))
        ]
        self._pieces = [*self._kernel_pieces, *transfer_pieces, *other_pieces]
        self.kernel_count = sum(len(piece.work) for piece in self._kernel_pieces)
        self.own_count = self.kernel_count + sum(len(piece.work) for piece in transfer_pieces)
        self.work = concatenate_kernels([piece.work for piece in self._pieces])
        kinds = bytearray().join(piece.kinds for piece in (*self._kernel_pieces, *transfer_pieces))
        self.kind_numbers = kinds + bytearray([OTHER_DEVICE]) * (len(self.work) - self.own_count)

    def __len__(self) -> int:
        return len(self.work)

    def list_compute(self) -> Column:
        """List the rank's compute kernels of nonzero length, by start."""
        compute_rows = find_nonzero(mark_equal(self.kind_numbers, OWN_COMPUTE))
        return take(
            compute_rows,
            find_nonzero(subtract(take(self.work.end_ns, compute_rows), take(self.work.start_ns, compute_rows))),
        )

    def list_collectives(self, start_ns: int, end_ns: int) -> Column:
        """List the rank's collectives that run between two times, by start."""
        collective_rows, starts, longest_ns = self._all_collectives
        near_rows = collective_rows[bisect_left(starts, start_ns - longest_ns) : bisect_left(starts, end_ns)]
        ends = clip(take(self.work.end_ns, near_rows), start_ns, end_ns)
        return take(
            near_rows, find_nonzero(subtract(ends, clip(take(self.work.start_ns, near_rows), start_ns, end_ns)))
        )

    @cached_property
    def _all_collectives(self) -> tuple[Column, Column, int]:
        """The rank's collectives, their starts, and the length of the longest."""
        collective_rows = find_nonzero(mark_equal(self.kind_numbers[: self.kernel_count], COLLECTIVE))
        starts = take(self.work.start_ns, collective_rows)
        return collective_rows, starts, find_min_max(subtract(take(self.work.end_ns, collective_rows), starts))[1]

    @cached_property
    def kernel_calls(self) -> LaunchCalls:
        """The call that launched each of the rank's kernels."""
        piece_calls = [piece.calls for piece in self._kernel_pieces] or [NO_LAUNCH_CALLS]
        return LaunchCalls(*(concatenate_columns(columns) for columns in zip(*piece_calls, strict=True)))

    @cached_property
    def launch_ns(self) -> Column:
        """The start of the call that launched each operation, in ns; NO_LAUNCH without one."""
        other_pieces = self._pieces[len(self._kernel_pieces) :]
        return concatenate_columns([self.kernel_calls.start_ns, *(piece.calls.start_ns for piece in other_pieces)])

    @cached_property
    def _kernel_issues_ns(self) -> Column:
        return concatenate_columns([piece.issues_ns for piece in self._kernel_pieces])

    @cached_property
    def _issues_ns(self) -> Column:
        return concatenate_columns([piece.issues_ns for piece in self._pieces])

    @cached_property
    def _module_codes(self) -> Column | None:
        """The context that the module of each operation gives, 0 for none; None where no operation names one."""
        codes_by_piece = [piece.module_codes for piece in self._pieces]
        if all(codes is None for codes in codes_by_piece):
            return None
        no_codes = (array("q", bytes(8 * len(piece.work))) for piece in self._pieces)
        return concatenate_columns([n if c is None else c for c, n in zip(codes_by_piece, no_codes, strict=True)])

    def find_stages(self, operations: Column) -> tuple[Column, Sequence[str]]:
        """Find the stage that each operation was issued for, as a number, and the stage of each number.

        Two numbers may have the same stage.
        """
        issues = self._kernel_issues_ns if find_min_max(operations)[1] < self.kernel_count else self._issues_ns
        times = fill_missing_launches(take(issues, operations), take(self.work.start_ns, operations))
        modules = None if self._module_codes is None else take(self._module_codes, operations)
        codes, contexts, _ = self._contexts[0].find_label_index(self._global_pid).find_contexts(times, modules)
        stages = [stage for stage, _ in contexts]
        if after := find_nonzero(take(self._is_after, operations)):
            index_after = self._contexts[1].find_label_index(self._global_pid)
            modules_after = None if modules is None else take(modules, after)
            codes_after, contexts, _ = index_after.find_contexts(take(times, after), modules_after)
            for i, code in zip(after, codes_after, strict=True):
                codes[i] = len(stages) + code
            stages += (stage for stage, _ in contexts)
        return codes, stages

    @cached_property
    def _is_after(self) -> Flags:
        return bytearray().join(bytearray([piece.is_after]) * len(piece.work) for piece in self._pieces)

    def resolve_name(self, short_number: int, full_number: int) -> str:
        """Return the demangled name, given the numbers of both names; the short one for copies and if there is no
        demangled one.
        """
        return self.work.names.get(full_number) or self.work.names[short_number]

    def build_operations(self, operations: Column) -> Mapping[int, Operation]:
        """Build a description of each of these operations, by its index; NO_OPERATION has none."""
        asked_rows, work = list_distinct(take(operations, find_zeros(mark_equal(operations, NO_OPERATION)))), self.work
        codes, stages = self.find_stages(asked_rows)
        return {
            i: Operation(
                kind=PRODUCER_KINDS[self.kind_numbers[i]],
                name=self.resolve_name(work.name[i], work.full_name[i]),
                stage=stages[code],
                stream=work.streams[work.stream[i]],
                start_ns=work.start_ns[i],
                end_ns=work.end_ns[i],
            )
            for i, code in zip(asked_rows, codes, strict=True)
        }


def _list_kernel_pieces(contexts: Sequence[TraceContext], lane: Lane) -> Iterator[_LaneOperations]:
    """List the kernels of a lane, around the windows and after them."""
    for number, context in enumerate(contexts):
        if (lane_kernels := context.kernels.get(lane)) is not None and len(lane_kernels):
            kinds, _ = context.flag_communication(lane)  # 1 (COLLECTIVE) or 0 (OWN_COMPUTE)
            yield _LaneOperations(context, lane, number > 0, lane_kernels, kinds)


def _list_transfer_pieces(contexts: Sequence[TraceContext], lane: Lane) -> Iterator[_LaneOperations]:
    """List the copies and memsets of a lane, without CUDA graphs that were traced as a whole."""
    for number, context in enumerate(contexts):
        if (lane_transfers := (context.transfers or {}).get(lane)) is not None and len(lane_transfers):
            chosen_rows = find_zeros(mark_equal(lane_transfers.name, GRAPH_ID))
            work = lane_transfers.take(chosen_rows)
            kinds = bytearray(MEMSET if name == MEMSET_ID else COPY for name in work.name)
            yield _LaneOperations(context, lane, number > 0, work, kinds, chosen_rows)
