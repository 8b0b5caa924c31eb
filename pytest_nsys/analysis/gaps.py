"""When was there no compute, which kernel ended it, when was that one issued, and for what did it wait?

All windows of a rank are questions to one table of its operations. A gap ends with the compute kernel that starts next,
also after the window; kernels that take no time end and begin none.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.dependencies import Dependencies
from pytest_nsys.analysis.device import device_around
from pytest_nsys.analysis.operations import NONE, Operations
from pytest_nsys.analysis.rank_track import RankTrack
from pytest_nsys.core.columns import (
    Column,
    Flags,
    earlier,
    equal,
    later,
    minus,
    places,
    spread,
    take,
    where,
    where_not,
)
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import NO_LAUNCH, Stream

_NEVER = (1 << 63) - 1
_LONG_AGO = NO_LAUNCH


class Gaps(NamedTuple):
    """Times without compute, by start: launch-starved until ``issued_ns``, blocked until ``ready_ns``,
    dependency-stalled until ``end_ns``. ``waiting`` and ``producer`` are operations, NONE for none: a gap without the
    former is the last of the run. ``contradicted``: how many end before what their kernel waited for, as the trace has
    it, began; that did not block it.
    """

    start_ns: Column
    issued_ns: Column
    ready_ns: Column
    end_ns: Column
    waiting: Column
    producer: Column
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
        self._waits = [wait for wait in all_waits if wait.recorded_at is not None]
        self.compute = device_around(track).compute
        self.operations = Operations(track, after=goes_on(track), others=bool(self._waits))
        compute = self.operations.compute()
        self._followers = compute + array("q", [NONE])
        self._starts_ns = take(self.operations.start_ns, compute) + array("q", [_NEVER])

    @cached_property
    def _dependencies(self) -> Dependencies:
        return Dependencies(self.operations, self._waits)

    @cached_property
    def _consumes(self) -> Flags:
        """1 where an operation waited for another stream."""
        flags = bytearray(len(self.operations))
        for consumer in self._dependencies.producer:
            flags[consumer] = 1
        return flags

    def gaps(self, low: int, high: int) -> Gaps:
        """The gaps of [low, high)."""
        starts, ends = self._without_compute(low, high)
        waiting = self._next(ends)
        tail = waiting[-1:] == array("q", [NONE])
        followed = waiting[: len(waiting) - tail]
        issued = take(self.operations.issued_ns, followed) + array("q", [_NEVER] * tail)
        issued = earlier(ends, later(starts, issued))
        until, producer, contradicted = self._producers(followed)
        ready = earlier(ends, later(issued, until + array("q", [_LONG_AGO] * tail)))
        return Gaps(starts, issued, ready, ends, waiting, producer + array("q", [NONE] * tail), contradicted)

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

    def _producers(self, waiting: Column) -> tuple[Column, Column, int]:
        """(end, operation) of what each kernel waited for, _LONG_AGO and NONE where there is nothing.

        What starts after the kernel that should have waited for it did not hold it back: so many contradict the trace.
        """
        ran = self.operations
        before = take(ran.before, waiting)
        known = where_not(equal(before, NONE))
        own = take(known, where(take(ran.kind, take(before, known))))
        producers = take(before, own)
        until = spread(own, take(ran.end_ns, producers), len(waiting), _LONG_AGO)
        producer = spread(own, producers, len(waiting), NONE)
        contradicted = 0
        for i in where(take(self._consumes, waiting)) if self._waits else ():
            other = self._dependencies.producer[waiting[i]]
            if ran.start_ns[other] >= ran.start_ns[waiting[i]]:
                contradicted += 1
                other = self._dependencies.producer_before(waiting[i])
            if other != NONE and ran.end_ns[other] > until[i]:
                until[i], producer[i] = ran.end_ns[other], other
        return until, producer, contradicted


@kept
def waiting_around(track: RankTrack) -> Waiting:
    """What compute of a rank waited for wherever its track was read."""
    return Waiting(track)
