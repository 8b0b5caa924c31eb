"""How does a trace hold what there are many of? As parallel columns: kernels, their launch calls, ranges, numbers by
time.

Waits of streams, of which there are few, stand here as well.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple, overload

from pytest_nsys.core.columns import clip, concatenate_columns, take
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.model import Range, Stream
from pytest_nsys.core.scopes import Direction


@dataclass(frozen=True, slots=True)
class Kernels:
    """Holds kernels of one rank as parallel columns, ordered by start: compact enough for a whole run.

    Kernels that start together stand in any order. None ends before it starts: a reader leaves such a row out, and
    counts it (``ImpossibleRows``). A file that has one name only: the short one is ``families.extract_short_name`` of
    it.
    """

    start_ns: array[int]
    end_ns: array[int]
    correlation: array[int]  # joins a kernel to its launch; NO_LAUNCH where nothing launched it
    stream: array[int]  # indices into ``streams``
    name: array[int]  # short names, as ids that ``names`` spells out
    full_name: array[int]  # demangled names, as ids that ``names`` spells out
    streams: Sequence[Stream]
    names: Mapping[int, str]
    # 1 where a CUDA graph launched the kernel: those share the correlation of the one graph launch
    graph_node: bytearray

    def __len__(self) -> int:
        return len(self.start_ns)

    def take(self, indices: Sequence[int]) -> Kernels:
        """Return the kernels at ``indices``, in that order; streams and names are shared."""
        places = indices if isinstance(indices, array | range) else array("q", indices)
        return replace(
            self,
            start_ns=take(self.start_ns, places),
            end_ns=take(self.end_ns, places),
            correlation=take(self.correlation, places),
            stream=take(self.stream, places),
            name=take(self.name, places),
            full_name=take(self.full_name, places),
            graph_node=take(self.graph_node, places),
        )

    def merge_run_times(self, indices: array[int]) -> Intervals:
        """Return the times in which any of the kernels at ``indices`` ran."""
        return Intervals(take(self.start_ns, indices), take(self.end_ns, indices))

    def clip(self, start_ns: int, end_ns: int) -> Kernels:
        """Return the same kernels, each of which touches the span, clipped to its edges."""
        return replace(
            self,
            start_ns=clip(self.start_ns, start_ns, end_ns),
            end_ns=clip(self.end_ns, start_ns, end_ns),
        )


def concatenate_kernels(parts: Sequence[Kernels]) -> Kernels:
    """Join the kernels of all parts, whose names are numbered alike; of a single one no second copy is made."""
    if len(parts) < 2:
        return parts[0] if parts else NO_KERNELS
    numbers = {stream: i for i, stream in enumerate(dict.fromkeys(s for part in parts for s in part.streams))}
    streams = [take(array("q", [numbers[s] for s in part.streams]), part.stream) for part in parts]
    return Kernels(
        start_ns=concatenate_columns([part.start_ns for part in parts]),
        end_ns=concatenate_columns([part.end_ns for part in parts]),
        correlation=concatenate_columns([part.correlation for part in parts]),
        stream=concatenate_columns(streams),
        name=concatenate_columns([part.name for part in parts]),
        full_name=concatenate_columns([part.full_name for part in parts]),
        streams=tuple(numbers),
        names={number: name for part in parts for number, name in part.names.items()},
        graph_node=bytearray().join(part.graph_node for part in parts),
    )


_NONE = array("q")
NO_KERNELS = Kernels(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE, (), {}, bytearray())


class LaunchCalls(NamedTuple):
    """Holds the call that launched each of some kernels: its earliest launch row, of those that start together the
    first to end.

    NO_LAUNCH stands in ``start_ns`` and ``end_ns`` where there is none; ``thread`` is as of a Range, and 0 there.
    """

    start_ns: array[int]
    end_ns: array[int]
    thread: array[int]


NO_LAUNCH_CALLS = LaunchCalls(array("q"), array("q"), array("q"))


class LaunchPlace(NamedTuple):
    """Says where a call stands in the launch order of its stream; calls that start together follow by correlation."""

    launch_ns: int
    correlation: int


class StreamWait(NamedTuple):
    """Describes one stream-wait: what is launched on ``stream`` after its place waits for the work recorded on another
    stream.
    """

    stream: Stream
    place: LaunchPlace  # when the stream waits
    # The wait is for all that was launched on that stream before its place; both None: the trace does not hold the
    # record.
    recorded_stream: Stream | None = None
    recorded_place: LaunchPlace | None = None


def deduplicate_waits(waits: Iterable[StreamWait]) -> list[StreamWait]:
    """Return the waits in the order of their place, each once however often the trace repeats it."""
    return sorted(dict.fromkeys(waits), key=lambda wait: wait.place)


@dataclass(frozen=True, slots=True)
class Ranges(Sequence[Range]):
    """Holds ranges as parallel columns; each Range object is made on access."""

    start_ns: array[int]
    end_ns: array[int]
    thread: array[int]
    name: array[int]  # indices into ``names``
    names: Sequence[str]

    @classmethod
    def from_ranges(cls, ranges: Iterable[Range]) -> Ranges:
        """Build columns from ranges, in the same order."""
        *numbers, texts = [*zip(*ranges, strict=True)] or [()] * 4
        start, end, thread = (array("q", column) for column in numbers)
        name_index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        return cls(start, end, thread, array("q", [name_index[text] for text in texts]), list(name_index))

    def take(self, rows: array[int]) -> Ranges:
        """Return the ranges at ``rows``, in that order; names are shared."""
        start, end, thread, name = (
            take(column, rows) for column in (self.start_ns, self.end_ns, self.thread, self.name)
        )
        return Ranges(start, end, thread, name, self.names)

    def __len__(self) -> int:
        return len(self.start_ns)

    def __iter__(self) -> Iterator[Range]:
        names = map(self.names.__getitem__, self.name)
        return map(Range, self.start_ns, self.end_ns, self.thread, names)

    @overload
    def __getitem__(self, index: int) -> Range: ...
    @overload
    def __getitem__(self, index: slice) -> list[Range]: ...
    def __getitem__(self, index: int | slice) -> Range | list[Range]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return Range(self.start_ns[index], self.end_ns[index], self.thread[index], self.names[self.name[index]])


class KernelOrigin(NamedTuple):
    """Says what a trace states of a kernel itself, whatever was open where it was launched; None where it does not."""

    module_path: tuple[str, ...] | None = None
    separator: str = "/"  # between the elements of the path
    op: str | None = None
    source: str | None = None
    direction: Direction | None = None


KernelKey = tuple[int, int]
"""Identifies a kernel of a process: its correlation, which kernels of one CUDA graph share, and its start in ns."""


class OpCalls(NamedTuple):
    """Holds the calls of operators, one column for each property, in the order of ``spans``."""

    spans: Ranges
    # The number that autograd gave the op, which that of the backward pass repeats; NO_SEQUENCE without one.
    sequence: array[int]
    # Whether the op is of the backward pass: then ``sequence`` is that of the forward op that it belongs to.
    is_backward: bytearray
    # The profiler's own number of the forward op's thread, which is no ``thread`` of spans; 0 where it does not say.
    forward_thread: array[int]


NO_SEQUENCE = -1


class BackwardLink(NamedTuple):
    """Joins a moment of the backward pass to the moment of the forward pass that it belongs to."""

    thread: int
    time_ns: int
    forward_thread: int
    forward_time_ns: int


NO_RANGES = Ranges.from_ranges(())
NO_OPS = OpCalls(NO_RANGES, array("q"), bytearray(), array("q"))


class ProgramRecords(NamedTuple):
    """Holds what a trace records of the program that launched the kernels of one process."""

    # Those that the program named, without its ops; None: those of ``ranges_around``, whose names say what each is.
    ranges: Ranges | None = None
    modules: Ranges = NO_RANGES  # calls of modules: class and number of the instance, ``Block_3``
    ops: OpCalls = NO_OPS
    functions: Ranges = NO_RANGES  # calls of functions of the user's own files
    links: Sequence[BackwardLink] = ()
    origins: Mapping[KernelKey, KernelOrigin] = {}


# When a level began that was there before the first event: before every time of a trace.
ALWAYS_NS = -(1 << 63)


class Series(NamedTuple):
    """Holds numbers by time, ordered by it."""

    time_ns: array[int]
    value: array[int]

    @classmethod
    def from_time_value_pairs(cls, pairs: Iterable[tuple[int, int]]) -> Series:
        """Build a series from (time, number) pairs, which come in the order of time."""
        times, values = array("q"), array("q")
        for time, number in pairs:
            times.append(time)
            values.append(number)
        return cls(times, values)

    def select_between(self, low_ns: int, high_ns: int) -> Series:
        """Return the samples in a span, which includes its ends."""
        inside = slice(bisect_left(self.time_ns, low_ns), bisect_right(self.time_ns, high_ns))
        return Series(self.time_ns[inside], self.value[inside])

    def select_levels(self, low_ns: int, high_ns: int) -> Series:
        """Return the levels that hold in a span: the one at its start, from when on it holds, and those that begin in
        it.
        """
        first, after = bisect_left(self.time_ns, low_ns), bisect_right(self.time_ns, high_ns)
        if first and (first == len(self.time_ns) or self.time_ns[first] > low_ns):
            first -= 1
        return Series(self.time_ns[first:after], self.value[first:after])


class Memory(NamedTuple):
    """Holds what was allocated on a device, in bytes."""

    levels: Series  # in bytes, each of which holds until the next
    # Frees of memory that was allocated before the recording began: then the levels lack it, and what else was there.
    earlier_frees: int = 0


def sum_levels(series: Sequence[Series]) -> Series:
    """Sum several levels into one series; a level that has not begun counts as 0."""
    if len(series) == 1:
        return series[0]
    changes = [(time, place, level) for place, levels in enumerate(series) for time, level in zip(*levels, strict=True)]
    changes.sort(key=itemgetter(0))  # of one moment those of one place stay in their order
    current_levels = [0] * len(series)
    sums: list[tuple[int, int]] = []
    for time, place, level in changes:
        current_levels[place] = level
        sums.append((time, sum(current_levels)))
    return Series.from_time_value_pairs(sums)
