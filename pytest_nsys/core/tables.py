"""What a trace holds many of: kernels and the calls that launched them, as parallel columns, and waits of streams."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from pytest_nsys.core.columns import chained, take, within
from pytest_nsys.core.model import Stream


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels of one rank as parallel columns, ordered by start: compact enough for a whole run.

    Kernels that start together stand in any order. None ends before it starts: a reader refuses a trace that says so.
    ``stream`` holds indices into ``streams``; ``name`` and ``full_name`` (short and demangled) are ids that
    ``names`` spells out. ``correlation`` joins a kernel to its launch. ``graph_node`` is 1 where a CUDA graph launched
    the kernel: those share the correlation of the one graph launch.
    """

    start_ns: array[int]
    end_ns: array[int]
    correlation: array[int]
    stream: array[int]
    name: array[int]
    full_name: array[int]
    streams: Sequence[Stream]
    names: Mapping[int, str]
    graph_node: bytearray

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, indices: Sequence[int]) -> Kernels:
        """The kernels at ``indices``, in that order; streams and names are shared."""
        at = indices if isinstance(indices, array | range) else array("q", indices)
        return replace(
            self,
            start_ns=take(self.start_ns, at),
            end_ns=take(self.end_ns, at),
            correlation=take(self.correlation, at),
            stream=take(self.stream, at),
            name=take(self.name, at),
            full_name=take(self.full_name, at),
            graph_node=take(self.graph_node, at),
        )

    def cut(self, start_ns: int, end_ns: int) -> Kernels:
        """The same kernels, each of which touches the span, cut at its edges."""
        return replace(
            self,
            start_ns=within(self.start_ns, start_ns, end_ns),
            end_ns=within(self.end_ns, start_ns, end_ns),
        )


def one_after_another(parts: Sequence[Kernels]) -> Kernels:
    """The kernels of all parts, whose names are numbered alike; of a single one no second copy is made."""
    if len(parts) < 2:
        return parts[0] if parts else NO_KERNELS
    numbers = {stream: i for i, stream in enumerate(dict.fromkeys(s for part in parts for s in part.streams))}
    streams = [take(array("q", [numbers[s] for s in part.streams]), part.stream) for part in parts]
    return Kernels(
        start_ns=chained([part.start_ns for part in parts]),
        end_ns=chained([part.end_ns for part in parts]),
        correlation=chained([part.correlation for part in parts]),
        stream=chained(streams),
        name=chained([part.name for part in parts]),
        full_name=chained([part.full_name for part in parts]),
        streams=tuple(numbers),
        names={number: name for part in parts for number, name in part.names.items()},
        graph_node=bytearray().join(part.graph_node for part in parts),
    )


_NONE = array("q")
NO_KERNELS = Kernels(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE, (), {}, bytearray())


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
