"""Which streams of a torch.profiler trace wait for an event that another stream recorded?

Events of category ``cuda_sync`` say so, where the profiler was asked for them. They name the stream that recorded and
the correlation of the record's call, -1 where they know neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pytest_nsys.core.model import Stream
from pytest_nsys.core.tables import Place, StreamWait, each_once


class Wait(NamedTuple):
    """A stream-wait as it is written: ``at`` has its own time, ``record`` is the correlation of the record's call."""

    stream: Stream
    at: Place
    on_stream: int | None
    record: int | None


def stream_waits(waits: Iterable[Wait], calls: Mapping[int, int], streams: Iterable[Stream]) -> Sequence[StreamWait]:
    """The waits with their records, in the order of their place: both stand where their calls start.

    ``calls`` has the start of each call by correlation, ``streams`` are those that ran something.
    """
    known: dict[int, set[Stream]] = {}
    for stream in streams:
        known.setdefault(stream.number, set()).add(stream)
    found = []
    for wait in waits:
        own, at, record = wait.stream, wait.at, wait.record
        if at.correlation in calls:
            at = at._replace(launch_ns=calls[at.correlation])
        if record in calls and record is not None and wait.on_stream is not None and min(record, wait.on_stream) >= 0:
            # A number is all that is said of the other stream: it may be of another device.
            beside = own._replace(number=wait.on_stream)
            called_so = known.get(wait.on_stream, {beside})
            recorded_on = beside if beside in called_so else min(called_so)
            found.append(StreamWait(own, at, recorded_on, Place(calls[record], record)))
        else:
            found.append(StreamWait(own, at))
    return each_once(found)
