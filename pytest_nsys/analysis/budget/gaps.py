"""When did no compute run, which kernel ended that gap, when was it issued, and what that it needs ran meanwhile?

All windows of a rank are questions to one table of its operations. A gap ends with the compute kernel that starts next,
also after the window; kernels that take no time end and begin none.

A gap is *launch-starved* until the call that launched the kernel at its end had returned: until then the host had not
issued it. From then on it is *blocked* while something runs that the kernel depends on, through any number of
operations, each moment by what ran then. The rest is *stalled*. The three add up, exactly.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.budget.dependencies import Dependencies
from pytest_nsys.analysis.budget.operations import KINDS, NONE, Operations
from pytest_nsys.analysis.explain.budget_lines import BLOCKED, BudgetPart
from pytest_nsys.analysis.windows.tracks import RankTrack
from pytest_nsys.core.columns import (
    NEVER,
    Column,
    Flags,
    chained,
    earlier,
    equal,
    later,
    minus,
    order,
    places,
    records,
    spread,
    take,
    where,
    where_not,
    within,
)
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import NO_LAUNCH, Stream

PARTS = tuple(BudgetPart)
"""The parts of a window by their number."""

STARVED, BETWEEN, BESIDE, STALLED = map(
    PARTS.index, (BudgetPart.STARVED, BudgetPart.BETWEEN, BudgetPart.BESIDE, BudgetPart.STALLED)
)
_OF_KIND = bytearray(PARTS.index(BLOCKED[kind]) if kind in BLOCKED else 0 for kind in KINDS)


class _Parts(NamedTuple):
    """Holds some parts of gaps, with the columns of :class:`Gaps`: start, end, gap and producer, and their classes."""

    columns: tuple[Column, Column, Column, Column]
    part: Flags


class Gaps(NamedTuple):
    """Holds the times without compute of a window: the gaps, and by start the parts into which they divide."""

    waiting: Column  # by gap the operation that ends it, NO_OPERATION for the last of the run
    # How many gaps end before something began that their kernel depends on, as the trace has it: it blocked nothing.
    contradicted: int
    # By part, in the order of their starts:
    part: Flags  # its class, as a number of PARTS
    start_ns: Column
    end_ns: Column
    gap: Column
    producer: Column  # of what blocks the operation, else NO_OPERATION


def goes_on(track: RankTrack) -> bool:
    """Whether the last gap of a track may go on after it, because no compute covers its end."""
    end_ns = track.until_ns
    return end_ns is not None and not track.compute_time.covered_ns(end_ns - 1, end_ns)


class Waiting:
    """Finds what compute of a rank waited for, around all of its windows."""

    def __init__(self, track: RankTrack) -> None:
        waits_by_process, lane = track.around.stream_waits, track.rank.lane
        all_waits = () if waits_by_process is None else waits_by_process.get(lane.global_pid, ())
        waits = [wait for wait in all_waits if lane.device in (None, wait.stream.device)]
        self.recorded = waits_by_process is not None
        self.waits, self.joined = len(waits), sum(wait.recorded_at is not None for wait in waits)
        joined_waits = [wait for wait in all_waits if wait.recorded_at is not None]
        self.track = track
        self.operations = operations = Operations(track, after=goes_on(track), others=bool(joined_waits))
        self._ordered = [wait for wait in joined_waits if not {wait.stream, wait.recorded_on} & operations.unordered]
        wait_streams = {stream for wait in joined_waits for stream in (wait.stream, wait.recorded_on)}
        self.unordered = {*track.unordered, *(wait_streams & operations.unordered)}
        compute = operations.compute()
        self._followers = compute + array("q", [NONE])
        self._starts_ns = take(operations.work.start_ns, compute) + array("q", [NEVER])

    @cached_property
    def _depends(self) -> Dependencies:
        return Dependencies(self.operations, self._ordered)

    def gaps(self, low: int, high: int, own_until: int = NEVER) -> Gaps:
        """Find the gaps of a window, of a step whose own work ends at ``own_work_end_ns``."""
        starts, ends = self._without_compute(low, high)
        waiting_kernels = self._next(ends)
        issued_ns = self._issued(starts, ends, waiting_kernels)
        late_gaps = where(minus(issued_ns, starts))
        starved_parts, between_parts = _starved(
            take(starts, late_gaps), take(issued_ns, late_gaps), late_gaps, own_until
        )
        issued_gaps = where(minus(ends, issued_ns))
        dependencies = self._depends.of(take(waiting_kernels, issued_gaps), take(issued_ns, issued_gaps))
        blocked_parts = self._held(take(issued_gaps, dependencies.owners), dependencies.operations, issued_ns, ends)
        stalled_parts = self._stalled(starts, take(issued_ns, issued_gaps), take(ends, issued_gaps), blocked_parts)
        all_parts = starved_parts, between_parts, blocked_parts, stalled_parts
        start_order = order(chained([parts.columns[0] for parts in all_parts]))
        part_numbers = take(bytearray().join(parts.part for parts in all_parts), start_order)
        columns = zip(*(parts.columns for parts in all_parts), strict=True)
        return Gaps(
            waiting_kernels,
            dependencies.contradicted,
            part_numbers,
            *(take(chained(column), start_order) for column in columns),
        )

    def _issued(self, starts: Column, ends: Column, waiting: Column) -> Column:
        """Return until when each gap is launch-starved."""
        has_tail = waiting[-1:] == array("q", [NONE])
        call_ends_ns = take(self.operations.kernel_calls.end_ns, waiting[: len(waiting) - has_tail])
        # All of the tail is launch-starved: nothing is known to be launched after it.
        return earlier(ends, later(starts, call_ends_ns + array("q", [NEVER] * has_tail)))

    def _held(self, gap: Column, producer: Column, issued: Column, ends: Column) -> _Parts:
        """Return the parts of gaps that were blocked, by operations that the gaps' kernels depend on.

        Each moment belongs to the operation that ends last of those that run, of several to the one that comes first:
        so each blocks from its start, if it ends later than all before it, until it ends or the next such one starts.
        """
        work = self.operations.work
        lasting_rows = where(records(gap, take(work.end_ns, producer)))
        gap, producer = take(gap, lasting_rows), take(producer, lasting_rows)
        start = later(take(work.start_ns, producer), take(issued, gap))
        end = earlier(take(work.end_ns, producer), take(ends, gap))
        same_gap_rows = where_not(minus(gap[1:], gap[:-1]))
        end = earlier(end, spread(same_gap_rows, take(start[1:], same_gap_rows), len(gap), NEVER))
        nonempty_rows = where(within(minus(end, start), 0, NEVER))
        part_numbers = take(_OF_KIND, take(self.operations.kind, producer))
        columns = (
            take(start, nonempty_rows),
            take(end, nonempty_rows),
            take(gap, nonempty_rows),
            take(producer, nonempty_rows),
        )
        return _Parts(columns, take(part_numbers, nonempty_rows))

    def _stalled(self, starts: Column, issued: Column, ends: Column, held: _Parts) -> _Parts:
        """Return what is left of gaps after the launch, by whether communication of the rank ran. ``starts`` are of all
        gaps.
        """
        # Disjoint times less disjoint parts of them: each that is left begins where a time does or a part ends.
        start, end = chained([issued, held.columns[1]]), chained([ends, held.columns[0]])
        start, end = take(start, order(start)), take(end, order(end))
        nonempty_rows = where(minus(end, start))
        _, start, end, during_communication = self.track.communication_time.parted(
            take(start, nonempty_rows), take(end, nonempty_rows)
        )
        part_numbers = take(bytearray([STALLED, BESIDE]), during_communication)
        return _Parts((start, end, minus(places(starts, start), _all(1, start)), _all(NONE, start)), part_numbers)

    def _without_compute(self, low: int, high: int) -> tuple[Column, Column]:
        """Return the starts and the ends of the times without compute."""
        compute = self.track.compute_time
        first, after = bisect_right(compute.ends, low), bisect_left(compute.starts, high)
        starts = array("q", [low]) + compute.ends[first:after]
        ends = compute.starts[first:after] + array("q", [high])
        # Only the outermost can be empty.
        nonempty_range = range(ends[0] <= starts[0], len(ends) - (ends[-1] <= starts[-1]))
        return take(starts, nonempty_range), take(ends, nonempty_range)

    def _next(self, ends: Column) -> Column:
        """Return the compute kernel that starts first at or after each end, or of several the one launched first."""
        positions = places(self._starts_ns, minus(ends, _all(1, ends)))
        next_kernels = take(self._followers, positions)
        start_counts = minus(places(self._starts_ns, take(self._starts_ns, positions)), positions)
        for i in where_not(equal(start_counts, 1)):
            next_kernels[i] = min(
                self._followers[positions[i] : positions[i] + start_counts[i]], key=self._launch_order
            )
        return next_kernels

    def _launch_order(self, kernel: int) -> tuple[int, Stream, int]:
        """Return what kernels that start together are sorted by; one without a launch row is the last."""
        work, launch = self.operations.work, self.operations.kernel_calls.start_ns[kernel]
        return NEVER if launch == NO_LAUNCH else launch, work.streams[work.stream[kernel]], work.correlation[kernel]


def _starved(starts: Column, ends: Column, gap: Column, own_until: int) -> tuple[_Parts, _Parts]:
    """Split the launch-starved parts of gaps at the end of the step's own work."""
    edges = earlier(ends, later(starts, _all(own_until, starts)))
    split_parts = []
    for part, start, end in ((STARVED, starts, edges), (BETWEEN, edges, ends)):
        nonempty_rows = where(minus(end, start))
        columns = (
            take(start, nonempty_rows),
            take(end, nonempty_rows),
            take(gap, nonempty_rows),
            _all(NONE, nonempty_rows),
        )
        split_parts.append(_Parts(columns, bytearray([part]) * len(nonempty_rows)))
    return split_parts[0], split_parts[1]


def _all(value: int, like: Column) -> Column:
    """Return a column that repeats a value, as long as another column."""
    return array("q", [value]) * len(like)


@kept
def waiting_around(track: RankTrack) -> Waiting:
    """Measure what compute of a rank waited for wherever its track was read."""
    return Waiting(track)
