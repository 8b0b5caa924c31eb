"""One window of one rank, and what every metric asks of it: who communicates, where, under which stage.

A kernel that communicates on a stream which also computes in the window is an in-order *barrier*: never exposed, never
overlapped. A *communication stream* has no compute kernel in the window. Compute is what runs on compute streams.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.trace_kernels import NO_CONTEXT, ByName, Context, TraceKernels, look_up
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.conventions import COMPUTE, MIXED, UNKNOWN
from pytest_nsys.core.exact import median
from pytest_nsys.core.families import KnownLibrary, known_communication
from pytest_nsys.core.grouping import grouped
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.model import (
    NO_KERNELS,
    NO_LAUNCH,
    Api,
    Collective,
    Copy,
    Interval,
    KernelsMode,
    Range,
    Rank,
    Span,
    Stream,
    Value,
    Window,
)
from pytest_nsys.core.workload import Workload


class RankTrack:
    """The kernels of one rank around its windows, with what is known of each; read lazily, and once.

    ``around`` reads for all ranks of the trace. ``whole`` makes the window of the rank's whole run.
    """

    def __init__(
        self,
        rank: Rank,
        around: TraceKernels,
        anchors: Sequence[Range] = (),
        workload: Workload | None = None,
        whole: Callable[[], RankWindow] | None = None,
    ) -> None:
        self.rank, self.around, self.anchors = rank, around, anchors
        self.convention, self.workload = around.convention, workload or Workload()
        self.kernels = around.kernels.get(rank.lane) or NO_KERNELS
        self._whole = whole
        self.looked_up = self.claimed_twice = 0

    @property
    def whole(self) -> RankWindow:
        """All that the rank ran, as one window."""
        assert self._whole is not None
        return self._whole()

    @cached_property
    def _communicating(self) -> tuple[bytearray, ByName]:
        return self.around.communicating(self.rank.lane) if len(self.kernels) else (bytearray(), {})

    @property
    def communicates(self) -> bytearray:
        """1 where a kernel is communication under the convention."""
        return self._communicating[0]

    @cached_property
    def uncounted(self) -> Mapping[tuple[int, int], KnownLibrary]:
        """The (short, demangled) name ids of kernels of known communication libraries that count as compute."""
        names = self.kernels.names
        compute = (key for key, flag in self._communicating[1].items() if not flag)
        found = ((key, known_communication(names[key[0]], names.get(key[1], ""))) for key in compute)
        return {key: known for key, known in found if known is not None}

    @cached_property
    def launch_ns(self) -> array[int]:
        """Start of the earliest launch row of each kernel, NO_LAUNCH where there is none."""
        return self.around.launches.get(self.rank.lane) or array("q")

    @property
    def collectives(self) -> Mapping[int, Collective] | None:
        """What is recorded of the communication kernels, by index; None where the trace has no record of any size."""
        found = self.around.collectives
        return None if found is None else found.get(self.rank.lane, {})

    def api_calls(self, globs: Sequence[str], span: Interval) -> Sequence[Api] | None:
        """The calls of the rank's process; None where the trace has no record of any."""
        pid = self.rank.process.global_pid
        found = self.around.trace.api_calls(globs, {pid: span})
        return None if found is None else found.get(pid, ())

    def copies(self, span: Interval) -> Sequence[Copy] | None:
        """The copies that are launched in the span; None where the trace does not say between which memories."""
        found = self.around.trace.copies({self.rank.lane: span})
        return None if found is None else found.get(self.rank.lane, ())

    @cached_property
    def launchless(self) -> tuple[int, int]:
        """Kernels without a launch row, and of how many: all of a few, of many those that communicate, if any does."""
        some = [i for i, flag in enumerate(self.communicates) if flag] if self.around.many else []
        if not some:
            return self.launch_ns.count(NO_LAUNCH), len(self.kernels)
        launches = self._communication_launches
        return sum(launches[i] == NO_LAUNCH for i in some), len(some)

    @cached_property
    def launch_order(self) -> list[int]:
        """The kernels that have a launch row, by its start."""
        launched = (i for i, t in enumerate(self.launch_ns) if t != NO_LAUNCH)
        return sorted(launched, key=self.launch_ns.__getitem__)

    @cached_property
    def longest_ns(self) -> int:
        """Length of the longest kernel: how far before a window one that reaches into it may start."""
        return max((e - s for s, e in zip(self.kernels.start_ns, self.kernels.end_ns, strict=True)), default=0)

    @property
    def _communication_launches(self) -> Sequence[int]:
        return self.around.communication_launches.get(self.rank.lane, ())

    @cached_property
    def _communication_contexts(self) -> dict[int, Context]:
        indices = [i for i, flag in enumerate(self.communicates) if flag]
        return self._look_up(indices, self._communication_launches)

    @cached_property
    def contexts(self) -> dict[int, Context]:
        """Stage and purpose of every kernel."""
        return self._look_up(range(len(self.kernels)), self.launch_ns)

    @property
    def communication_contexts(self) -> dict[int, Context]:
        """Stage and purpose of every communication kernel at least; of few kernels of all, which costs no more."""
        if "contexts" in self.__dict__ or not self.around.many:
            return self.contexts
        return self._communication_contexts

    def _look_up(self, indices: Sequence[int], launches: Sequence[int]) -> dict[int, Context]:
        starts = self.kernels.start_ns
        times = [starts[i] if launches[i] == NO_LAUNCH else launches[i] for i in indices]
        found = look_up(self.around.ranges.get(self.rank.process.global_pid, ()), times, self.convention.contexts())
        self.looked_up, self.claimed_twice = len(times), found.claimed_twice
        return dict(zip(indices, found.contexts, strict=True))


class StreamUse(NamedTuple):
    """What one stream did in a window. ``purpose`` is ``compute`` for a compute stream."""

    stream: Stream
    communication_kernels: int
    compute_kernels: int
    communication_ns: int
    compute_ns: int
    purpose: str


class RankWindow:
    """The kernels of ``track`` that are in ``window`` under the spec's mode; times cut where the mode is clipped.

    ``positions`` are their indices in the track. ``start_ns`` and ``end_ns`` bound the window in GPU time: the
    window's own, but with mode launched from the first start to the last end of its kernels.
    """

    def __init__(self, track: RankTrack, window: Window, spec: WindowSpec, positions: Sequence[int]) -> None:
        self.track, self.window, self.spec, self.positions = track, window, spec, positions
        self.rank, self.anchors = track.rank, track.anchors
        whole = len(positions) == len(track.kernels)
        kernels = track.kernels if whole else track.kernels.take(positions)
        clipped = spec.kernels is KernelsMode.CLIPPED and not spec.whole_run
        self.kernels = kernels.cut(window.start_ns, window.end_ns) if clipped else kernels
        self.start_ns, self.end_ns = window.start_ns, window.end_ns
        if spec.kernels is KernelsMode.LAUNCHED and len(kernels) and not spec.whole_run:
            self.start_ns, self.end_ns = min(kernels.start_ns), max(kernels.end_ns)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    @cached_property
    def communicates(self) -> bytearray:
        """1 where a kernel of the window is communication."""
        flags = self.track.communicates
        return bytearray(flags[i] for i in self.positions)

    @cached_property
    def durations_ns(self) -> array[int]:
        """Length of each kernel in the window."""
        return array("q", [e - s for s, e in zip(self.kernels.start_ns, self.kernels.end_ns, strict=True)])

    @cached_property
    def by_name(self) -> Mapping[tuple[int, int], tuple[int, int]]:
        """(time in ns, number) of the kernels of each (short name id, demangled name id)."""
        kernels = self.kernels
        counts: Counter[tuple[int, int]] = Counter(zip(kernels.name, kernels.full_name, strict=True))
        lengths = dict.fromkeys(counts, 0)
        keys = zip(kernels.name, kernels.full_name, strict=True)
        for key, start, end in zip(keys, kernels.start_ns, kernels.end_ns, strict=True):
            lengths[key] += end - start
        return {key: (lengths[key], count) for key, count in counts.items()}

    @cached_property
    def compute_streams(self) -> frozenset[int]:
        """Indices of the streams with at least one compute kernel in the window."""
        return frozenset(s for s, flag in zip(self.kernels.stream, self.communicates, strict=True) if not flag)

    @cached_property
    def communication(self) -> list[int]:
        """The communication kernels on communication streams, by index in the window."""
        own, streams = self.compute_streams, self.kernels.stream
        return [i for i, flag in enumerate(self.communicates) if flag and streams[i] not in own]

    @cached_property
    def barriers(self) -> list[int]:
        """The communication kernels on compute streams, by index in the window."""
        own, streams = self.compute_streams, self.kernels.stream
        return [i for i, flag in enumerate(self.communicates) if flag and streams[i] in own]

    @property
    def hides_barriers(self) -> bool:
        """Whether compute may run during a barrier: on another stream, for a barrier is in order with its own."""
        return bool(self.barriers) and len(self.compute_streams) > 1

    @cached_property
    def compute(self) -> list[int]:
        """The compute kernels, by index in the window."""
        return [i for i, flag in enumerate(self.communicates) if not flag]

    def spans(self, indices: Sequence[int]) -> Iterator[Interval]:
        """(start, end) of the kernels at ``indices``."""
        starts, ends = self.kernels.start_ns, self.kernels.end_ns
        return ((starts[i], ends[i]) for i in indices)

    @cached_property
    def compute_time(self) -> Intervals:
        """When compute ran."""
        return Intervals(self.spans(self.compute))

    @cached_property
    def communication_time(self) -> Intervals:
        """When communication ran on communication streams."""
        return Intervals(self.spans(self.communication))

    @cached_property
    def all_communication_time(self) -> Intervals:
        """When communication ran, barriers included."""
        return Intervals(self.spans(self.communication + self.barriers))

    @cached_property
    def exposed_ns(self) -> dict[int, int]:
        """Per kernel of ``communication`` the part during which no compute ran."""
        covered = self.compute_time.covered_ns
        return {
            i: end - start - covered(start, end)
            for i, (start, end) in zip(self.communication, self.spans(self.communication), strict=True)
        }

    @cached_property
    def alone_median_ns(self) -> dict[int, Value]:
        """Median length of each compute kernel (by demangled name id) over those that no communication overlapped."""
        covered, names = self.all_communication_time.covered_ns, self.kernels.full_name
        spans = zip(self.compute, self.spans(self.compute), strict=True)
        alone = grouped((names[i], end - start) for i, (start, end) in spans if not covered(start, end))
        return {name: median(lengths) for name, lengths in alone.items()}

    @cached_property
    def under_communication(self) -> list[int]:
        """The compute kernels during which communication ran anywhere in the run, by index in the window."""
        covered = self.track.whole.all_communication_time.covered_ns
        return [
            i for i, (start, end) in zip(self.compute, self.spans(self.compute), strict=True) if covered(start, end)
        ]

    def context(self, i: int) -> Context:
        """(stage, purpose) of kernel ``i`` of the window."""
        position = self.positions[i]
        contexts = self.track.communication_contexts if self.communicates[i] else self.track.contexts
        return contexts.get(position, NO_CONTEXT)

    @cached_property
    def by_stage(self) -> dict[str, list[int]]:
        """The kernels of ``communication`` by stage, stages ordered by name."""
        return self._grouped(self.communication)

    @cached_property
    def by_place(self) -> dict[tuple[str, str, str | None], list[int]]:
        """The communication kernels, barriers too, by short name, stage and purpose, each in order of start."""
        ordered = sorted(self.communication + self.barriers, key=lambda i: (self.kernels.start_ns[i], i))
        return grouped(((self.kernels.names[self.kernels.name[i]], *self.context(i)), i) for i in ordered)

    @cached_property
    def all_by_stage(self) -> dict[str, list[int]]:
        """All kernels of the window by stage, stages ordered by name."""
        self.track.contexts  # noqa: B018  one look-up for all kinds of kernels, before the first is asked for
        return self._grouped(range(len(self)))

    def _grouped(self, indices: Sequence[int]) -> dict[str, list[int]]:
        return dict(sorted(grouped((self.context(i)[0], i) for i in indices).items()))

    @cached_property
    def by_stream(self) -> dict[Stream, list[int]]:
        """All kernels of the window by stream, ordered by (device, context, stream)."""
        members = grouped((stream, i) for i, stream in enumerate(self.kernels.stream))
        return dict(sorted((self.kernels.streams[stream], indices) for stream, indices in members.items()))

    @cached_property
    def streams(self) -> list[StreamUse]:
        """What each stream did, in the order of :attr:`by_stream`."""
        return [self._stream_use(stream, indices) for stream, indices in self.by_stream.items()]

    def _stream_use(self, stream: Stream, indices: Sequence[int]) -> StreamUse:
        communication = [i for i in indices if self.communicates[i]]
        length = self.durations_ns
        communication_ns = sum(length[i] for i in communication)
        compute = len(indices) - len(communication)
        return StreamUse(
            stream=stream,
            communication_kernels=len(communication),
            compute_kernels=compute,
            communication_ns=communication_ns,
            compute_ns=sum(length[i] for i in indices) - communication_ns,
            purpose=COMPUTE if compute else self._purpose(communication),
        )

    def _purpose(self, communication: Sequence[int]) -> str:
        """Unanimous vote: disagreement is ``mixed``, also between a known and an unknown purpose."""
        votes = {self.context(i)[1] or UNKNOWN for i in communication}
        return votes.pop() if len(votes) == 1 else MIXED


def in_window(track: RankTrack, window: Window, spec: WindowSpec) -> Sequence[int]:
    """Indices in the track of the kernels that are in the window under the spec's mode."""
    starts, ends = track.kernels.start_ns, track.kernels.end_ns
    low, high = window.start_ns, window.end_ns
    if spec.whole_run:
        return range(len(starts))
    if spec.kernels is KernelsMode.LAUNCHED:
        # A period is half open: a launch at the next anchor's start belongs to the next one.
        half_open = spec.span is Span.PERIOD and window.index is not None
        order, launch = track.launch_order, track.launch_ns
        first = bisect_left(order, low, key=launch.__getitem__)
        after = (bisect_left if half_open else bisect_right)(order, high, key=launch.__getitem__)
        return sorted(order[first:after])
    if spec.kernels is KernelsMode.CONTAINED:
        first, after = bisect_left(starts, low), bisect_right(starts, high)
        return [i for i in range(first, after) if ends[i] <= high]
    first, after = bisect_left(starts, low - track.longest_ns), bisect_right(starts, high)
    return [
        i
        for i in range(first, after)
        if (starts[i] < high and ends[i] > low) or (starts[i] == ends[i] and low <= starts[i])
    ]
