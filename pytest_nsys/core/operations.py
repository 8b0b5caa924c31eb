"""What is known of the work of a GPU besides its time on it: which call issued it, and for what it waited."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from pytest_nsys.core.model import Stream


class LaunchCalls(NamedTuple):
    """The call that launched each of some kernels: its earliest launch row, of rows that start together the one that
    ends first. NO_LAUNCH in ``start_ns`` and ``end_ns`` where there is none; ``thread`` is as of a Range, and 0 there.
    """

    start_ns: array[int]
    end_ns: array[int]
    thread: array[int]


NO_CALLS = LaunchCalls(array("q"), array("q"), array("q"))


class Place(NamedTuple):
    """Where a call stands in the launch order of its stream: calls that start together are ordered by correlation."""

    launch_ns: int
    correlation: int


class StreamWait(NamedTuple):
    """One stream-wait: what is launched on ``stream`` after ``at`` waits for all that was launched on ``recorded_on``
    before ``recorded_at``. Both are None where the trace does not hold the record.
    """

    stream: Stream
    at: Place
    recorded_on: Stream | None = None
    recorded_at: Place | None = None


def each_once(waits: Iterable[StreamWait]) -> list[StreamWait]:
    """The waits in the order of their place, each once however often the trace repeats it."""
    return sorted(dict.fromkeys(waits), key=attrgetter("at"))
