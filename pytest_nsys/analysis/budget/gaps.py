"""When was there no compute, which kernel ended it, when was that one issued, and what that it needs ran meanwhile?

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
"""The parts of a window by number."""

STARVED, BETWEEN, BESIDE, STALLED = map(
    PARTS.index, (BudgetPart.STARVED, BudgetPart.BETWEEN, BudgetPart.BESIDE, BudgetPart.STALLED)
)
_OF_KIND = bytearray(PARTS.index(BLOCKED[kind]) if kind in BLOCKED else 0 for kind in KINDS)


class _Parts(NamedTuple):
    """Some parts of gaps, as in :class:`Gaps`: start, end, gap and producer, and their classes."""

    columns: tuple[Column, Column, Column, Column]
    part: Flags


class Gaps(NamedTuple):
    """The times without compute of a window. ``waiting`` is by gap the operation that ends it, NONE for the last of the
    run; ``contradicted`` is how many gaps end before something began that their kernel depends on, as the trace has it,
    which did not block it.

    The others are of their parts, by start: the class, as a number of PARTS, and the gap of each, and of what blocks
    the producer.
    """

    waiting: Column
    contradicted: int
    part: Flags
    start_ns: Column
    end_ns: Column
    gap: Column
    producer: Column


def goes_on(track: RankTrack) -> bool:
    """Whether the last gap of a track may go on after it: no compute covers its end."""
    until = track.until_ns
    return until is not None and not track.compute_time.covered_ns(until - 1, until)


class Waiting:
    """What compute of a rank waited for, around all of its windows."""

    def __init__(self, track: RankTrack) -> None:
        found, own = track.around.stream_waits, track.rank.lane
        all_waits = () if found is None else found.get(own.global_pid, ())
        waits = [wait for wait in all_waits if own.device in (None, wait.stream.device)]
        self.recorded = found is not None
        self.waits, self.joined = len(waits), sum(wait.recorded_at is not None for wait in waits)
        joined = [wait for wait in all_waits if wait.recorded_at is not None]
        self.track = track
        self.operations = ran = Operations(track, after=goes_on(track), others=bool(joined))
        self._ordered = [wait for wait in joined if not {wait.stream, wait.recorded_on} & ran.unordered]
        of_waits = {stream for wait in joined for stream in (wait.stream, wait.recorded_on)}
        self.unordered = {*track.unordered, *(of_waits & ran.unordered)}
        compute = ran.compute()
        self._followers = compute + array("q", [NONE])
        self._starts_ns = take(ran.work.start_ns, compute) + array("q", [NEVER])

    @cached_property
    def _depends(self) -> Dependencies:
        return Dependencies(self.operations, self._ordered)

    def gaps(self, low: int, high: int, own_until: int = NEVER) -> Gaps:
        """The gaps of [low, high), of a step whose own work ends at ``own_until``."""
        starts, ends = self._without_compute(low, high)
        waiting = self._next(ends)
        issued = self._issued(starts, ends, waiting)
        late = where(minus(issued, starts))
        starved, between = _starved(take(starts, late), take(issued, late), late, own_until)
        open_ones = where(minus(ends, issued))
        reached = self._depends.of(take(waiting, open_ones), take(issued, open_ones))
        held = self._held(take(open_ones, reached.owners), reached.operations, issued, ends)
        stalled = self._stalled(starts, take(issued, open_ones), take(ends, open_ones), held)
        each = starved, between, held, stalled
        by_start = order(chained([parts.columns[0] for parts in each]))
        part = take(bytearray().join(parts.part for parts in each), by_start)
        columns = zip(*(parts.columns for parts in each), strict=True)
        return Gaps(waiting, reached.contradicted, part, *(take(chained(column), by_start) for column in columns))

    def _issued(self, starts: Column, ends: Column, waiting: Column) -> Column:
        """Until when each gap is launch-starved: all of the tail is."""
        tail = waiting[-1:] == array("q", [NONE])
        returned = take(self.operations.kernel_calls.end_ns, waiting[: len(waiting) - tail])
        return earlier(ends, later(starts, returned + array("q", [NEVER] * tail)))

    def _held(self, gap: Column, producer: Column, issued: Column, ends: Column) -> _Parts:
        """What was blocked, by operations that gaps depend on. Each moment is of the operation that ends last of those
        that run, of several of the one that comes first: so each holds from its start, if it ends later than all before
        it, until it ends or the next such one starts.
        """
        work = self.operations.work
        lasting = where(records(gap, take(work.end_ns, producer)))
        gap, producer = take(gap, lasting), take(producer, lasting)
        start = later(take(work.start_ns, producer), take(issued, gap))
        end = earlier(take(work.end_ns, producer), take(ends, gap))
        again = where_not(minus(gap[1:], gap[:-1]))
        end = earlier(end, spread(again, take(start[1:], again), len(gap), NEVER))
        some = where(within(minus(end, start), 0, NEVER))
        part = take(_OF_KIND, take(self.operations.kind, producer))
        columns = take(start, some), take(end, some), take(gap, some), take(producer, some)
        return _Parts(columns, take(part, some))

    def _stalled(self, starts: Column, issued: Column, ends: Column, held: _Parts) -> _Parts:
        """What is left of times after the launch, by whether communication of the rank ran. ``starts`` are of all gaps.

        Disjoint times less disjoint parts of them: each that is left begins where one of them does or a part ends.
        """
        start, end = chained([issued, held.columns[1]]), chained([ends, held.columns[0]])
        start, end = take(start, order(start)), take(end, order(end))
        left = where(minus(end, start))
        _, start, end, beside = self.track.communication_time.parted(take(start, left), take(end, left))
        part = take(bytearray([STALLED, BESIDE]), beside)
        return _Parts((start, end, minus(places(starts, start), _all(1, start)), _all(NONE, start)), part)

    def _without_compute(self, low: int, high: int) -> tuple[Column, Column]:
        compute = self.track.compute_time
        first, after = bisect_right(compute.ends, low), bisect_left(compute.starts, high)
        starts = array("q", [low]) + compute.ends[first:after]
        ends = compute.starts[first:after] + array("q", [high])
        some = range(ends[0] <= starts[0], len(ends) - (ends[-1] <= starts[-1]))  # only the outermost can be none
        return take(starts, some), take(ends, some)

    def _next(self, ends: Column) -> Column:
        """The compute kernel that starts first at or after each end, of several the one that was launched first."""
        at = places(self._starts_ns, minus(ends, _all(1, ends)))
        found = take(self._followers, at)
        together = minus(places(self._starts_ns, take(self._starts_ns, at)), at)
        for i in where_not(equal(together, 1)):
            found[i] = min(self._followers[at[i] : at[i] + together[i]], key=self._launch_order)
        return found

    def _launch_order(self, kernel: int) -> tuple[int, Stream, int]:
        """Without a launch row it is the last."""
        work, launch = self.operations.work, self.operations.kernel_calls.start_ns[kernel]
        return NEVER if launch == NO_LAUNCH else launch, work.streams[work.stream[kernel]], work.correlation[kernel]


def _starved(starts: Column, ends: Column, gap: Column, own_until: int) -> tuple[_Parts, _Parts]:
    """The launch-starved parts of gaps: until a step's own work ends, and from then on."""
    edges = earlier(ends, later(starts, _all(own_until, starts)))
    found = []
    for part, start, end in ((STARVED, starts, edges), (BETWEEN, edges, ends)):
        some = where(minus(end, start))
        columns = take(start, some), take(end, some), take(gap, some), _all(NONE, some)
        found.append(_Parts(columns, bytearray([part]) * len(some)))
    return found[0], found[1]


def _all(value: int, like: Column) -> Column:
    """So often as there are elements of a column."""
    return array("q", [value]) * len(like)


@kept
def waiting_around(track: RankTrack) -> Waiting:
    """What compute of a rank waited for wherever its track was read."""
    return Waiting(track)
