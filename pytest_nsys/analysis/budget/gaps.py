"""When did no compute run, which kernel ended that gap, when was it issued, and what did it still wait for meanwhile?

All windows of a rank query one table of its operations. A gap ends with the compute kernel that starts next, even after
the window; kernels without length end and begin no gap.

A gap is *launch-starved* until the call that launched the kernel at its end returned: until then the host had not
issued it. From then on it is *blocked* while something runs that the kernel depends on, directly or through other
operations; each moment is attributed to what ran then. The rest is *stalled*. The three add up exactly.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.budget.dependencies import Dependencies
from pytest_nsys.analysis.budget.operations import NO_OPERATION, PRODUCER_KINDS, Operations
from pytest_nsys.analysis.explain.budget_lines import BLOCKED_PARTS, BudgetPart
from pytest_nsys.analysis.windows.rank_track import RankTrack
from pytest_nsys.core.columns import (
    NO_END,
    Column,
    Flags,
    clip,
    concatenate_columns,
    count_edges_before,
    fill_column,
    find_nonzero,
    find_zeros,
    mark_equal,
    mark_records,
    sort_indices,
    subtract,
    take,
    take_maximum,
    take_minimum,
)
from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.model import NO_LAUNCH, Stream

PARTS = tuple(BudgetPart)
"""The parts of a window by their number."""

STARVED, BETWEEN_STEPS, DURING_COMMUNICATION, STALLED = map(
    PARTS.index, (BudgetPart.STARVED, BudgetPart.BETWEEN, BudgetPart.BESIDE, BudgetPart.STALLED)
)
_PART_OF_KIND = bytearray(PARTS.index(BLOCKED_PARTS[kind]) if kind in BLOCKED_PARTS else 0 for kind in PRODUCER_KINDS)


class _GapParts(NamedTuple):
    """Holds some parts of gaps, with the columns of :class:`Gaps`: start, end, gap, producer and class."""

    columns: tuple[Column, Column, Column, Column]
    part_numbers: Flags


class Gaps(NamedTuple):
    """Holds the times without compute of a window: the gaps, and their parts sorted by start."""

    waiting_kernels: Column  # by gap, the operation that ends it; NO_OPERATION for the last gap of the run
    # Number of gaps that end before something began that, by the trace, their kernel depends on: it blocked nothing.
    contradicted_count: int
    # By part, in the order of their starts:
    part_numbers: Flags  # the part's class, as an index into PARTS
    start_ns: Column
    end_ns: Column
    gap_numbers: Column
    producers: Column  # the blocking operation, else NO_OPERATION


def is_open_ended(track: RankTrack) -> bool:
    """Return whether the last gap of a track may continue after it, because no compute covers its end."""
    end_ns = track.read_until_ns
    return end_ns is not None and not track.compute_time.measure_covered_ns(end_ns - 1, end_ns)


class ComputeWaits:
    """Finds what the compute of a rank waited for, around all of its windows."""

    def __init__(self, track: RankTrack) -> None:
        waits_by_process, lane = track.trace_context.stream_waits, track.rank.lane
        all_waits = () if waits_by_process is None else waits_by_process.get(lane.global_pid, ())
        waits = [wait for wait in all_waits if lane.device in (None, wait.stream.device)]
        self.has_wait_records = waits_by_process is not None
        self.wait_count, self.joined_count = len(waits), sum(wait.recorded_place is not None for wait in waits)
        joined_waits = [wait for wait in all_waits if wait.recorded_place is not None]
        self.track = track
        self.operations = operations = Operations(
            track, with_following=is_open_ended(track), with_other_devices=bool(joined_waits)
        )
        self._ordered_waits = [
            wait for wait in joined_waits if not {wait.stream, wait.recorded_stream} & operations.unordered_streams
        ]
        wait_streams = {stream for wait in joined_waits for stream in (wait.stream, wait.recorded_stream)}
        self.unordered_streams = {*track.unordered_streams, *(wait_streams & operations.unordered_streams)}
        compute = operations.list_compute()
        self._compute_kernels = compute + array("q", [NO_OPERATION])
        self._compute_starts_ns = take(operations.work.start_ns, compute) + array("q", [NO_END])

    @cached_property
    def _dependencies(self) -> Dependencies:
        return Dependencies(self.operations, self._ordered_waits)

    def find_gaps(self, start_ns: int, end_ns: int, own_work_end_ns: int = NO_END) -> Gaps:
        """Find the gaps of a window; if it is a step, its own work ends at ``own_work_end_ns``."""
        starts, ends = self._find_times_without_compute(start_ns, end_ns)
        waiting_kernels = self._find_next_kernels(ends)
        issued_ns = self._find_issue_times(starts, ends, waiting_kernels)
        late_gaps = find_nonzero(subtract(issued_ns, starts))
        starved_parts, between_parts = _split_starved_parts(
            take(starts, late_gaps), take(issued_ns, late_gaps), late_gaps, own_work_end_ns
        )
        issued_gaps = find_nonzero(subtract(ends, issued_ns))
        dependencies = self._dependencies.find_dependencies(
            take(waiting_kernels, issued_gaps), take(issued_ns, issued_gaps)
        )
        blocked_parts = self._find_blocked_parts(
            take(issued_gaps, dependencies.owners), dependencies.operations, issued_ns, ends
        )
        stalled_parts = self._find_stalled_parts(
            starts, take(issued_ns, issued_gaps), take(ends, issued_gaps), blocked_parts
        )
        all_parts = starved_parts, between_parts, blocked_parts, stalled_parts
        start_order = sort_indices(concatenate_columns([parts.columns[0] for parts in all_parts]))
        part_numbers = take(bytearray().join(parts.part_numbers for parts in all_parts), start_order)
        columns = zip(*(parts.columns for parts in all_parts), strict=True)
        return Gaps(
            waiting_kernels,
            dependencies.contradicted_count,
            part_numbers,
            *(take(concatenate_columns(column), start_order) for column in columns),
        )

    def _find_issue_times(self, starts: Column, ends: Column, waiting_kernels: Column) -> Column:
        """Return the time until which each gap is launch-starved."""
        has_tail = waiting_kernels[-1:] == array("q", [NO_OPERATION])
        call_ends_ns = take(self.operations.kernel_calls.end_ns, waiting_kernels[: len(waiting_kernels) - has_tail])
        # The whole tail is launch-starved: no launch after it is known.
        return take_minimum(ends, take_maximum(starts, call_ends_ns + array("q", [NO_END] * has_tail)))

    def _find_blocked_parts(self, gap: Column, producer: Column, issued_ns: Column, ends: Column) -> _GapParts:
        """Return the parts of gaps that were blocked by operations that the gaps' kernels depend on.

        Each moment belongs to the running operation that ends last, and among equals to the first. So an operation that
        ends later than all before it blocks from its start until its end, or until the next such operation starts.
        """
        work = self.operations.work
        lasting_rows = find_nonzero(mark_records(gap, take(work.end_ns, producer)))
        gap, producer = take(gap, lasting_rows), take(producer, lasting_rows)
        start = take_maximum(take(work.start_ns, producer), take(issued_ns, gap))
        end = take_minimum(take(work.end_ns, producer), take(ends, gap))
        same_gap_rows = find_zeros(subtract(gap[1:], gap[:-1]))
        end = take_minimum(end, fill_column(same_gap_rows, take(start[1:], same_gap_rows), len(gap), NO_END))
        nonempty_rows = find_nonzero(clip(subtract(end, start), 0, NO_END))
        part_numbers = take(_PART_OF_KIND, take(self.operations.kind_numbers, producer))
        columns = (
            take(start, nonempty_rows),
            take(end, nonempty_rows),
            take(gap, nonempty_rows),
            take(producer, nonempty_rows),
        )
        return _GapParts(columns, take(part_numbers, nonempty_rows))

    def _find_stalled_parts(
        self, starts: Column, issued_ns: Column, ends: Column, blocked_parts: _GapParts
    ) -> _GapParts:
        """Return the unblocked rest of gaps after the launch, by whether the rank communicated. ``starts`` has every
        gap's start.
        """
        # Subtracts disjoint parts from disjoint times: each rest begins where a time begins or a part ends.
        start, end = (
            concatenate_columns([issued_ns, blocked_parts.columns[1]]),
            concatenate_columns([ends, blocked_parts.columns[0]]),
        )
        start, end = take(start, sort_indices(start)), take(end, sort_indices(end))
        nonempty_rows = find_nonzero(subtract(end, start))
        _, start, end, during_communication = self.track.communication_time.split_spans(
            take(start, nonempty_rows), take(end, nonempty_rows)
        )
        part_numbers = take(bytearray([STALLED, DURING_COMMUNICATION]), during_communication)
        return _GapParts(
            (start, end, subtract(count_edges_before(starts, start), _repeat(1, start)), _repeat(NO_OPERATION, start)),
            part_numbers,
        )

    def _find_times_without_compute(self, start_ns: int, end_ns: int) -> tuple[Column, Column]:
        """Return the starts and the ends of the times without compute."""
        compute = self.track.compute_time
        first, after = bisect_right(compute.ends, start_ns), bisect_left(compute.starts, end_ns)
        starts = array("q", [start_ns]) + compute.ends[first:after]
        ends = compute.starts[first:after] + array("q", [end_ns])
        # Only the first and the last can be empty.
        nonempty_range = range(ends[0] <= starts[0], len(ends) - (ends[-1] <= starts[-1]))
        return take(starts, nonempty_range), take(ends, nonempty_range)

    def _find_next_kernels(self, ends: Column) -> Column:
        """Return the compute kernel that starts next at or after each end; of several, the one that was launched
        first.
        """
        positions = count_edges_before(self._compute_starts_ns, subtract(ends, _repeat(1, ends)))
        next_kernels = take(self._compute_kernels, positions)
        start_counts = subtract(
            count_edges_before(self._compute_starts_ns, take(self._compute_starts_ns, positions)), positions
        )
        for i in find_zeros(mark_equal(start_counts, 1)):
            next_kernels[i] = min(
                self._compute_kernels[positions[i] : positions[i] + start_counts[i]], key=self._make_launch_key
            )
        return next_kernels

    def _make_launch_key(self, kernel: int) -> tuple[int, Stream, int]:
        """Return the key that sorts kernels which start together by launch; a kernel without a launch row comes
        last.
        """
        work, launch = self.operations.work, self.operations.kernel_calls.start_ns[kernel]
        return NO_END if launch == NO_LAUNCH else launch, work.streams[work.stream[kernel]], work.correlation[kernel]


def _split_starved_parts(
    starts: Column, ends: Column, gap: Column, own_work_end_ns: int
) -> tuple[_GapParts, _GapParts]:
    """Split the launch-starved parts of gaps at the end of the step's own work."""
    edges = take_minimum(ends, take_maximum(starts, _repeat(own_work_end_ns, starts)))
    split_parts = []
    for part, start, end in ((STARVED, starts, edges), (BETWEEN_STEPS, edges, ends)):
        nonempty_rows = find_nonzero(subtract(end, start))
        columns = (
            take(start, nonempty_rows),
            take(end, nonempty_rows),
            take(gap, nonempty_rows),
            _repeat(NO_OPERATION, nonempty_rows),
        )
        split_parts.append(_GapParts(columns, bytearray([part]) * len(nonempty_rows)))
    return split_parts[0], split_parts[1]


def _repeat(value: int, column: Column) -> Column:
    """Return a column that repeats a value, as long as another column."""
    return array("q", [value]) * len(column)


@memoize_method
def measure_compute_waits(track: RankTrack) -> ComputeWaits:
    """Measure what the compute of a rank waited for, as far as its track was read."""
    return ComputeWaits(track)
