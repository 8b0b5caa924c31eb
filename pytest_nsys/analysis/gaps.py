"""When was there no compute, which kernel ended it, when was that one issued, and what that it needs ran meanwhile?

All windows of a rank are questions to one table of its operations. A gap ends with the compute kernel that starts next,
also after the window; kernels that take no time end and begin none.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.around import RankTrack
from pytest_nsys.analysis.gpu_state import device_around
from pytest_nsys.analysis.operations import NONE, Operations
from pytest_nsys.analysis.producers import Producers, Reached
from pytest_nsys.core.columns import (
    Column,
    earlier,
    equal,
    later,
    minus,
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

_NEVER = (1 << 63) - 1


class Held(NamedTuple):
    """Disjoint times, by start, in which something ran that the kernel at the end of a gap depends on: ``gap`` and
    ``producer`` are indices, of a gap and of an operation.
    """

    gap: Column
    start_ns: Column
    end_ns: Column
    producer: Column


class Gaps(NamedTuple):
    """Times without compute, by start: launch-starved until ``issued_ns``, then blocked while ``held``, and the rest is
    dependency-stalled. ``waiting`` is the operation that ends it, NONE for the last of the run. ``contradicted``: how
    many end before something began that their kernel depends on, as the trace has it; that did not block it.
    """

    start_ns: Column
    issued_ns: Column
    end_ns: Column
    waiting: Column
    held: Held
    contradicted: int


def goes_on(track: RankTrack) -> bool:
    """Whether the last gap of a track may go on after it: no compute covers its end."""
    until = track.until_ns
    return until is not None and not device_around(track).compute.covered_ns(until - 1, until)


class Waiting:
    """What compute of a rank waited for, around all of its windows."""

    def __init__(self, track: RankTrack) -> None:
        found, own = track.around.stream_waits, track.rank.lane
        all_waits = () if found is None else found.get(own.global_pid, ())
        waits = [wait for wait in all_waits if own.device in (None, wait.stream.device)]
        self.recorded = found is not None
        self.waits, self.joined = len(waits), sum(wait.recorded_at is not None for wait in waits)
        self._joined = [wait for wait in all_waits if wait.recorded_at is not None]
        self.compute = device_around(track).compute
        self.operations = ran = Operations(track, after=goes_on(track), others=bool(self._joined))
        self._ordered = [w for w in self._joined if not {w.stream, w.recorded_on} & ran.unordered]
        self.unordered = {
            *track.unordered,
            *(s for w in self._joined for s in (w.stream, w.recorded_on)),
        } & ran.unordered
        compute = self.operations.compute()
        self._followers = compute + array("q", [NONE])
        self._starts_ns = take(self.operations.start_ns, compute) + array("q", [_NEVER])

    @cached_property
    def _producers(self) -> Producers:
        return Producers(self.operations, self._ordered)

    def gaps(self, low: int, high: int) -> Gaps:
        """The gaps of [low, high)."""
        starts, ends = self._without_compute(low, high)
        waiting = self._next(ends)
        tail = waiting[-1:] == array("q", [NONE])
        issued = take(self.operations.issued_ns, waiting[: len(waiting) - tail]) + array("q", [_NEVER] * tail)
        issued = earlier(ends, later(starts, issued))
        open_ones = where(minus(ends, issued))
        reached = self._producers.of(take(waiting, open_ones), take(issued, open_ones))
        held = self._held(reached._replace(owners=take(open_ones, reached.owners)), issued, ends)
        return Gaps(starts, issued, ends, waiting, held, reached.contradicted)

    def _held(self, reached: Reached, issued: Column, ends: Column) -> Held:
        """Each moment is of the operation that ends last of those that run, of several of the one that comes first: so
        each holds from its start, if it ends later than all before it, until it ends or the next such one starts.
        """
        lasting = where(records(reached.owners, take(self.operations.end_ns, reached.operations)))
        gap, producer = take(reached.owners, lasting), take(reached.operations, lasting)
        start = later(take(self.operations.start_ns, producer), take(issued, gap))
        end = earlier(take(self.operations.end_ns, producer), take(ends, gap))
        again = where_not(minus(gap[1:], gap[:-1]))
        end = earlier(end, spread(again, take(start[1:], again), len(gap), _NEVER))
        some = where(within(minus(end, start), 0, _NEVER))
        return Held(*(take(column, some) for column in (gap, start, end, producer)))

    def _without_compute(self, low: int, high: int) -> tuple[Column, Column]:
        first, after = bisect_right(self.compute.ends, low), bisect_left(self.compute.starts, high)
        starts = array("q", [low]) + self.compute.ends[first:after]
        ends = self.compute.starts[first:after] + array("q", [high])
        some = range(ends[0] <= starts[0], len(ends) - (ends[-1] <= starts[-1]))  # only the outermost can be none
        return take(starts, some), take(ends, some)

    def _next(self, ends: Column) -> Column:
        """The compute kernel that starts first at or after each end, of several the one that was launched first."""
        at = places(self._starts_ns, minus(ends, array("q", [1]) * len(ends)))
        found = take(self._followers, at)
        together = minus(places(self._starts_ns, take(self._starts_ns, at)), at)
        for i in where_not(equal(together, 1)):
            found[i] = min(self._followers[at[i] : at[i] + together[i]], key=self._launch_order)
        return found

    def _launch_order(self, kernel: int) -> tuple[int, Stream, int]:
        """Without a launch row it is the last."""
        ran = self.operations
        launch = ran.kernel_launch_ns[kernel]
        return _NEVER if launch == NO_LAUNCH else launch, ran.streams[ran.stream[kernel]], ran.correlation[kernel]


@kept
def waiting_around(track: RankTrack) -> Waiting:
    """What compute of a rank waited for wherever its track was read."""
    return Waiting(track)
