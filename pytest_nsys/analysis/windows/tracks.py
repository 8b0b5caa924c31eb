"""What is read of one trace around the windows of all its ranks, and what is known of the kernels of each of them?

Each table is read when first asked, and once for all ranks: :class:`Around` holds it by lane, and :class:`RankTrack` is
what of it is one rank's, whichever of its windows asks.

A kernel's stage and purpose are those of the innermost range around its launch that says so, found by one sweep. Rule:
of the ranges of the process that contain the launch time, on any thread (the autograd thread launches backward kernels
inside the main thread's ranges), the one of smallest span that carries a stage or a purpose. There is no cap on how far
back it may have started. A kernel without a launch row is looked up at its GPU start.

Kernels that run wholly inside another one of their stream show that it is none: a profiler merged queues, or lost
their ids. Then its order proves nothing. A kernel that merely starts before the one before it ended is a programmatic
dependent launch, and nodes of CUDA graphs share the stream of the graph's launch: neither says anything.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple, Protocol

from pytest_nsys.analysis.windows.spans import RankSteps, WindowSpec
from pytest_nsys.analysis.windows.step_kinds import RunSteps
from pytest_nsys.core.columns import (
    Column,
    Flags,
    bounds,
    counts,
    distinct,
    equal,
    innermost,
    minus,
    narrowed,
    order,
    places,
    records,
    sums,
    take,
    total,
    values,
    where,
    where_not,
    within,
)
from pytest_nsys.core.conventions import NO_STAGE, Convention
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.exact import median
from pytest_nsys.core.families import KnownLibrary, fused_communication, known_communication
from pytest_nsys.core.intervals import Intervals, hull
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.model import (
    NO_LAUNCH,
    NO_STREAM,
    Api,
    Collective,
    Copy,
    Interval,
    Lane,
    Range,
    Rank,
    Stream,
    TraceFacts,
    Value,
)
from pytest_nsys.core.tables import (
    NO_CALLS,
    NO_KERNELS,
    Kernels,
    LaunchCalls,
    Memory,
    Ranges,
    Series,
    StreamWait,
    summed,
)
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.workload import Workload
from pytest_nsys.traces.copies_as_kernels import GRAPH_ID, merged

Context = tuple[str, str | None]
"""(stage, purpose); the purpose is None where the convention names none."""

NO_CONTEXT: Context = (NO_STAGE, None)


class Contexts(NamedTuple):
    """For what kernels were launched: ``codes`` are indices into ``known``, which begins with NO_CONTEXT. Ranges of two
    threads claimed ``claimed_twice`` of the launches.
    """

    codes: Column
    known: Sequence[Context]
    claimed_twice: int = 0

    def of(self, i: int) -> Context:
        """What kernel ``i`` was launched for."""
        return self.known[self.codes[i]]


class Saying:
    """What the ranges of a process say at any time: found by one sweep, and then looked up for all kernels at once.

    ``ranges`` are ordered by start. Between ranges of equal span the later start wins, then the later name: a stable
    order.
    """

    def __init__(self, ranges: Ranges, context: Callable[[str], Context | None]) -> None:
        known = {NO_CONTEXT: 0}
        of_name = array("q", [known.setdefault(context(name) or NO_CONTEXT, len(known)) for name in ranges.names])
        code = take(of_name, ranges.name)
        parts, said = (ranges.start_ns, ranges.end_ns, ranges.thread, code), where(code)
        self._edges, codes, self._twice = innermost(*(take(column, said) for column in parts))
        self._codes = narrowed(codes)
        self._known = tuple(known)

    def at(self, times_ns: Column) -> Contexts:
        """What is said at each time, in any order."""
        found = places(self._edges, times_ns)
        return Contexts(take(self._codes, found), self._known, total(take(self._twice, found)))


NOTHING_SAID = Saying(Ranges.of(()), lambda _: None)
"""Where there is no range."""

LONGEST_NS = (1 << 63) - 1
"""What a column can hold: where all kernels together last no longer, no length, gap or union does."""

ByName = Mapping[tuple[int, int], int]
"""1 for communication, by (short, demangled) name ids."""


class Around:
    """The kernels of some lanes of a trace, with what else is recorded of them.

    ``spans`` says of each lane for which time it was read, None for all of it.
    """

    def __init__(
        self,
        trace: Trace,
        convention: Convention,
        kernels: Mapping[Lane, Kernels],
        spans: Mapping[Lane, Interval | None] = MappingProxyType({}),
    ) -> None:
        self.trace, self.convention, self.kernels, self.spans = trace, convention, kernels, spans
        for own in kernels.values():
            self._check_length("kernel", own)

    def _check_length(self, what: str, *works: Kernels) -> None:
        """Raises TraceError where lengths, gaps and unions would be more than a column holds."""
        first_ns, last_ns = hull(from_to(work) for work in works if len(work))
        if last_ns - first_ns > LONGEST_NS:
            said = f"from the first {what} to the last are more than 292 years"
            raise TraceError(f"{self.trace.path}: {said}: damaged, or changed after it was written; export it again")

    @cached_property
    def facts(self) -> TraceFacts:
        """What the trace says of its machine and profiler."""
        return self.trace.facts()

    @kept
    def communicating(self, lane: Lane) -> tuple[Flags, ByName]:
        """By kernel whether it is communication under the convention, and by name, each of which is looked at once."""
        kernels = self.kernels[lane]
        numbers, keys = distinct(kernels.name, kernels.full_name)
        known = {
            (short, full): self.convention.is_communication(kernels.names[short], kernels.names.get(full, ""))
            for short, full in keys
        }
        return take(bytearray(known.values()), numbers), known

    @kept
    def order_of(self, lane: Lane) -> StreamOrder:
        """Which streams keep their order."""
        return order_of(self.kernels.get(lane) or NO_KERNELS)

    def unordered(self, lane: Lane) -> Mapping[Stream, Fraction]:
        """The streams that keep no order, with the share that shows it."""
        return self.order_of(lane).unordered

    @cached_property
    def _communication(self) -> dict[Lane, Column]:
        return {lane: where(self.communicating(lane)[0]) for lane in self.kernels}

    @cached_property
    def launch_calls(self) -> Mapping[Lane, LaunchCalls]:
        """The call that launched each kernel."""
        return self.trace.launch_calls(self.kernels)

    @cached_property
    def transfer_calls(self) -> Mapping[Lane, LaunchCalls]:
        """The call that launched each of the transfers."""
        return self.trace.launch_calls(self.transfers or {})

    @cached_property
    def stream_waits(self) -> Mapping[int, Sequence[StreamWait]] | None:
        """The stream-waits of each process, by place; None where the trace has no record of any."""
        return self.trace.stream_waits()

    @cached_property
    def transfers(self) -> Mapping[Lane, Kernels] | None:
        """The copies and memsets that touch that time; None where the trace does not say when they ran."""
        found = self.trace.transfers(self.spans)
        for lane, own in (found or {}).items():
            self._check_length("copy or kernel", own, *([self.kernels[lane]] if lane in self.kernels else ()))
        return found

    @cached_property
    def memory(self) -> Mapping[Lane, Memory] | None:
        """What was allocated on each device; None where the trace has no record of it."""
        return self.trace.memory()

    @cached_property
    def sm_clocks(self) -> Mapping[Lane, Series] | None:
        """Samples of the SM clock in that time, in Hz; None where the trace has no record of any."""
        return self.trace.sm_clocks(self.spans)

    @cached_property
    def collectives(self) -> Mapping[Lane, Mapping[int, Collective]] | None:
        """What is recorded of communication kernels, by index; None where the trace has no record of any size."""
        chosen = self._communication
        found = self.trace.collectives({lane: self.kernels[lane].take(own) for lane, own in chosen.items()})
        if found is None:
            return None
        return {
            lane: {i: one for i, one in zip(indices, found.get(lane, ()), strict=False) if one is not None}
            for lane, indices in chosen.items()
        }

    @kept
    def api_calls(self, globs: tuple[str, ...]) -> Mapping[int, Sequence[Api]] | None:
        """The calls around the windows of each process, by start; None where the trace has no record of any."""
        found = self.trace.api_calls(globs, self._process_spans)
        return None if found is None else {pid: sorted(own) for pid, own in found.items()}

    @kept
    def read_earlier_calls(self, globs: tuple[str, ...]) -> Mapping[int, Sequence[Api]] | None:
        """The same with those that began before, however long, for a thread may still stand in one; None as above."""
        return self.trace.api_calls(
            globs, {pid: (-LONGEST_NS, until) for pid, (_, until) in self._process_spans.items()}
        )

    @cached_property
    def _process_spans(self) -> dict[int, Interval]:
        """By process the time in which its kernels were looked for, or ran."""
        ran = {lane: from_to(own) for lane, own in self.kernels.items() if len(own)}
        read = {lane: span for lane, span in self.spans.items() if span is not None}
        return _of_processes({**ran, **read}.items())

    @cached_property
    def _saying(self) -> Mapping[int, Saying]:
        """What the ranges around the launches of the kernels say, by process."""
        spans = _of_processes((lane, self._launched_in(lane)) for lane, own in self.kernels.items() if len(own))
        context = self.convention.contexts()
        return {pid: Saying(own, context) for pid, own in self.trace.ranges_around(spans).items()}

    def _launched_in(self, lane: Lane) -> Interval:
        starts, launches = self.kernels[lane].start_ns, self.launch_calls[lane].start_ns
        first, last = bounds(take(launches, _with_launch(launches)) or starts)
        return min(starts[0], first), max(starts[-1], last)

    def saying(self, global_pid: int) -> Saying:
        """What the ranges of a process say."""
        return self._saying.get(global_pid) or NOTHING_SAID


def from_to(work: Kernels) -> Interval:
    """From the start of the first to the end of the last, of one at least."""
    return work.start_ns[0], bounds(work.end_ns)[1]


def _of_processes(spans: Iterable[tuple[Lane, Interval]]) -> dict[int, Interval]:
    """By process from the first start of a span of its lanes to the last end."""
    return {pid: hull(own) for pid, own in grouped((lane.global_pid, span) for lane, span in spans).items()}


_START = attrgetter("start_ns")

CLOCKS_APART_NS = 100_000
"""Profilers tie the clocks of CPU and GPU better than that: in real traces no kernel starts before its launch."""


class Launched(NamedTuple):
    """Of so many ``kernels``, those ``without`` a launch row, and those that start ``early``: before it, by up to
    ``lead_ns``.
    """

    kernels: int
    without: int
    early: int
    lead_ns: int


class AskedRun(Protocol):
    """What a track asks of the run that it is of."""

    @property
    def workload(self) -> Workload: ...

    @property
    def steps(self) -> RunSteps: ...

    def marks(self, rank: Rank, spec: WindowSpec, /) -> Sequence[Range]: ...

    def anchors_under(self, rank: Rank, spec: WindowSpec, /) -> Sequence[Range]: ...

    def rank_steps(self, rank: Rank, spec: WindowSpec, /) -> RankSteps | None: ...

    def copies_between_gpus(self, trace: int, /) -> Mapping[Lane, Kernels]: ...

    def whole(self) -> AskedWindows: ...


class AskedSpan(Protocol):
    """A window by its time alone."""

    @property
    def start_ns(self) -> int: ...

    @property
    def end_ns(self) -> int: ...

    @property
    def length_ns(self) -> int: ...


class AskedWindows(Protocol):
    """What a track asks of the windows that it is around."""

    @property
    def ranks(self) -> Mapping[int, Sequence[AskedSpan]]: ...

    @property
    def copies(self) -> Sequence[Mapping[Lane, Sequence[Copy]] | None]: ...

    @property
    def run(self) -> AskedRun: ...

    @property
    def spec(self) -> WindowSpec: ...

    @property
    def tracks(self) -> Mapping[int, RankTrack]: ...

    @property
    def on_gpu(self) -> Mapping[int, RankTrack]: ...

    @property
    def after(self) -> Sequence[Around]: ...


class RankTrack:
    """The kernels of one rank around its windows, with what is known of each; read lazily, and once.

    ``around`` reads for all ranks of the trace, ``group`` has the windows of all ranks of the run.
    """

    def __init__(self, rank: Rank, around: Around, group: AskedWindows) -> None:
        self.rank, self.around, self.group = rank, around, group
        self.convention = around.convention
        self.kernels = around.kernels.get(rank.lane) or NO_KERNELS

    @cached_property
    def anchors(self) -> Sequence[Range]:
        """What its windows are picked from. Raises UsageMistake where it is not known of which kind of steps."""
        return self.group.run.anchors_under(self.rank, self.group.spec)

    @property
    def steps(self) -> RankSteps | None:
        """The steps of the rank, of whatever kind; None where its windows are picked from anything else."""
        return self.group.run.rank_steps(self.rank, self.group.spec)

    @cached_property
    def step_lengths_ns(self) -> Mapping[int, int]:
        """How long each whole step that its windows are picked from has the GPU, in ns by index; none without steps."""
        lengths = self.steps.lengths_ns() if self.steps is not None else {}
        return {i: lengths[step.start_ns] for i, step in enumerate(self.anchors) if step.start_ns in lengths}

    @property
    def whole(self) -> RankTrack:
        """All that the rank ran."""
        return self.group.run.whole().tracks[self.rank.number]

    @property
    def on_gpu(self) -> RankTrack:
        """All that ran on the GPU in the windows, whenever it was launched."""
        return self.group.on_gpu[self.rank.number]

    @property
    def until_ns(self) -> int | None:
        """What started after that was not read, and ``after`` reads on; None where nothing is left."""
        span = self.around.spans.get(self.rank.lane, (0, 0))
        return None if span is None else span[1]

    @property
    def after(self) -> Around:
        """What started after the track, on all lanes of the trace, at least until a compute kernel that takes time."""
        return self.group.after[self.rank.process.trace]

    @property
    def transfers(self) -> Kernels | None:
        """The copies and memsets around the windows; None where the trace does not say when they ran."""
        found = self.around.transfers
        return None if found is None else found.get(self.rank.lane, NO_KERNELS)

    @cached_property
    def memory(self) -> Memory | None:
        """What the rank had allocated, on all of its devices; None where the trace has no record of it."""
        if (found := self.around.memory) is None:
            return None
        lane = self.rank.lane
        own = [m for at, m in found.items() if at.global_pid == lane.global_pid and lane.device in (None, at.device)]
        return Memory(summed([m.levels for m in own]), sum(m.earlier for m in own))

    @property
    def sm_clocks(self) -> Series | None:
        """Samples of the SM clock around the windows, in Hz; None where the trace has no record of any."""
        found = self.around.sm_clocks
        return None if found is None else found.get(self.rank.lane, Series.of(()))

    @cached_property
    def _communicating(self) -> tuple[Flags, ByName]:
        return self.around.communicating(self.rank.lane) if len(self.kernels) else (bytearray(), {})

    @property
    def communicates(self) -> Flags:
        """1 where a kernel is communication under the convention."""
        return self._communicating[0]

    @cached_property
    def compute_time(self) -> Intervals:
        """When compute ran, in whichever step."""
        return self.kernels.time_of(where_not(self.communicates))

    @cached_property
    def communication_time(self) -> Intervals:
        """When communication ran, in whichever step."""
        return self.kernels.time_of(where(self.communicates))

    @cached_property
    def graph_time(self) -> Intervals:
        """When CUDA graphs ran of which no kernel was traced."""
        transfers = self.transfers or NO_KERNELS
        return transfers.time_of(where(equal(transfers.name, GRAPH_ID)))

    @cached_property
    def at_work_time(self) -> Intervals | None:
        """When compute, a copy or a memset ran; None where the trace does not say when the latter did."""
        transfers = self.transfers
        return None if transfers is None else self.compute_time.union(Intervals(transfers.start_ns, transfers.end_ns))

    @cached_property
    def busy_time(self) -> Intervals | None:
        """When anything ran; None as above."""
        return None if self.at_work_time is None else self.at_work_time.union(self.communication_time)

    @cached_property
    def alone_median_ns(self) -> dict[int, Value]:
        """Median length of each compute kernel (by demangled name id) over those that no communication overlapped."""
        compute = where_not(self.communicates)
        starts, ends = take(self.kernels.start_ns, compute), take(self.kernels.end_ns, compute)
        alone = where_not(self.communication_time.covered(starts, ends))
        lengths = take(minus(ends, starts), alone)
        numbers, names = distinct(take(self.kernels.full_name, take(compute, alone)))
        ascending = take(lengths, order(numbers, lengths))
        found: dict[int, Value] = {}
        first = 0
        for (name,), count in zip(names, counts(numbers, len(names)), strict=True):
            found[name] = median(ascending[first + (count - 1) // 2 : first + count // 2 + 1])
            first += count
        return found

    @property
    def unordered(self) -> Mapping[Stream, Fraction]:
        """The streams that keep no order, with the share that shows it: of the kernels that the windows are of."""
        return self.group.tracks[self.rank.number].around.unordered(self.rank.lane)

    @cached_property
    def covering(self) -> Column:
        """The kernels over several later ones of a stream that otherwise keeps its order: no such row is true."""
        return self.around.order_of(self.rank.lane).covering

    @cached_property
    def doubled(self) -> int:
        """How many kernels are the same as another one, but for when they ran: a table holds them twice."""
        own = where_not(self.kernels.graph_node)
        own = take(own, where_not(equal(take(self.kernels.correlation, own), NO_LAUNCH)))
        ids = take(self.kernels.correlation, own)
        if len(values(ids)) == len(ids):  # as most are, and quick to see
            return 0
        lengths = minus(take(self.kernels.end_ns, own), take(self.kernels.start_ns, own))
        return len(own) - len(distinct(ids, take(self.kernels.name, own), lengths)[1])

    @cached_property
    def uncounted(self) -> Mapping[tuple[int, int], KnownLibrary]:
        """The (short, demangled) name ids of kernels of known communication libraries that count as compute."""
        names = self.kernels.names
        compute = (key for key, flag in self._communicating[1].items() if not flag)
        found = ((key, known_communication(names[key[0]], names.get(key[1], ""))) for key in compute)
        return {key: known for key, known in found if known is not None}

    @cached_property
    def fused(self) -> Mapping[tuple[int, int], str]:
        """What says of kernels that count as compute that they communicate as well, by (short, demangled) name ids."""
        names = self.kernels.names
        compute = (key for key, flag in self._communicating[1].items() if not flag and key not in self.uncounted)
        found = ((key, fused_communication(names.get(key[1], "") or names[key[0]])) for key in compute)
        return {key: identifier for key, identifier in found if identifier}

    @property
    def copies_between_gpus(self) -> Kernels:
        """The copies of the run that move data between GPUs and are no communication under the convention."""
        lane, of_run = self.rank.lane, self.group.run.copies_between_gpus(self.rank.process.trace)
        own = sorted(at for at in of_run if at.global_pid == lane.global_pid and lane.device in (None, at.device))
        return merged([of_run[at] for at in own]) or NO_KERNELS

    @property
    def launch_ns(self) -> Column:
        """Start of the earliest launch row of each kernel, NO_LAUNCH where there is none."""
        return self.launch_calls.start_ns

    @property
    def launch_calls(self) -> LaunchCalls:
        """The call that launched each kernel."""
        return self.around.launch_calls.get(self.rank.lane) or NO_CALLS

    @property
    def launch_or_start_ns(self) -> Column:
        """When each kernel was launched; where no row says so, when it started."""
        return or_start(self.launch_ns, self.kernels.start_ns)

    @property
    def collectives(self) -> Mapping[int, Collective] | None:
        """What is recorded of the communication kernels, by index; None where the trace has no record of any size."""
        found = self.around.collectives
        return None if found is None else found.get(self.rank.lane, {})

    def api_calls(self, globs: tuple[str, ...], span: Interval) -> Sequence[Api] | None:
        """The calls of the rank's process that start in the span; None where the trace has no record of any."""
        found = self.around.api_calls(globs)
        if found is None:
            return None
        own = found.get(self.rank.process.global_pid, ())
        first = bisect_left(own, span[0], key=_START)
        return own[first : bisect_right(own, span[1], key=_START)]

    def copies(self, span: Interval) -> Sequence[Copy] | None:
        """The copies that are launched in the span, which begins no more than its length before a window; None where
        the trace does not say between which memories.
        """
        found = self.group.copies[self.rank.process.trace]
        if found is None:
            return None
        return [copy for copy in found.get(self.rank.lane, ()) if span[0] <= copy.launch_ns <= span[1]]

    @cached_property
    def launched(self) -> Launched:
        """What launch rows say of the kernels."""
        known = _with_launch(self.launch_ns)
        leads = minus(take(self.launch_ns, known), take(self.kernels.start_ns, known))
        _, lead_ns = bounds(leads)
        near = equal(within(leads, CLOCKS_APART_NS, LONGEST_NS), CLOCKS_APART_NS)
        early = len(leads) - total(near)
        return Launched(len(self.kernels), len(self.kernels) - len(known), early, lead_ns if early else 0)

    @cached_property
    def launch_order(self) -> Column:
        """The kernels that have a launch row, by its start."""
        known = _with_launch(self.launch_ns)
        return take(known, order(take(self.launch_ns, known)))

    @cached_property
    def lags_ns(self) -> Sequence[int]:
        """How far the GPU is behind the CPU in each kernel that has a launch row, ascending."""
        lags = minus(take(self.kernels.start_ns, self.launch_order), take(self.launch_ns, self.launch_order))
        return take(lags, order(lags))

    @cached_property
    def longest_ns(self) -> int:
        """Length of the longest kernel: how far before a window one that reaches into it may start."""
        return bounds(minus(self.kernels.end_ns, self.kernels.start_ns))[1]

    @cached_property
    def contexts(self) -> Contexts:
        """Stage and purpose of every kernel."""
        return self.around.saying(self.rank.process.global_pid).at(self.launch_or_start_ns)


def _with_launch(launches: Column) -> Column:
    """The indices of the kernels that have a launch row."""
    return where_not(equal(launches, NO_LAUNCH))


def or_start(launches: Column, starts: Column) -> Column:
    """The launch times, with the start of what has none."""
    times = launches[:]
    for i in where(equal(launches, NO_LAUNCH)):
        times[i] = starts[i]
    return times


MOST_INSIDE = Fraction(1, 100)
"""Of a stream's kernel time, at most: more inside other kernels, and it is none."""


SEVERAL = 3
"""Kernels: one that lies over so many later ones of its stream is either wrong, or the stream keeps no order."""

FEW_COVERING = Fraction(1, 100)
"""Of a stream's kernels, at least one: where more lie over several others, the stream keeps no order."""


class StreamOrder(NamedTuple):
    """The streams that keep no order, each with the share of its kernel time that ran inside other kernels of it; and
    by index the kernels of the others that lie over several later ones, which cannot be.
    """

    unordered: Mapping[Stream, Fraction]
    covering: Column


def order_of(kernels: Kernels) -> StreamOrder:
    """Return which streams keep their order; nodes of graphs do not count, of which one launch starts many."""
    own = where_not(kernels.graph_node)
    inside, over = _nested(kernels, own)
    wide = [kernel for kernel, count in Counter(over).items() if count >= SEVERAL]
    on_streams, wide_ones = Counter(take(kernels.stream, own)), Counter(kernels.stream[kernel] for kernel in wide)
    few = {stream for stream, count in wide_ones.items() if count == 1 or count <= FEW_COVERING * on_streams[stream]}
    if covering := {kernel for kernel in wide if kernels.stream[kernel] in few}:
        own = array("q", [kernel for kernel in own if kernel not in covering])
        inside, _ = _nested(kernels, own)
    unordered = _shares_inside(kernels, own, inside)
    true = (kernel for kernel in covering if kernels.streams[kernels.stream[kernel]] in unordered)
    return StreamOrder(unordered, array("q", sorted(covering.difference(true))))


def _nested(kernels: Kernels, own: Column) -> tuple[Column, Column]:
    """Return which of some kernels lie inside an earlier one of their stream, and inside which."""
    stream, start, end = (take(column, own) for column in (kernels.stream, kernels.start_ns, kernels.end_ns))
    longest_first = order(stream, start)
    starts = take(start, longest_first)
    if total(equal(minus(starts[1:], starts[:-1]), 0)):  # few streams have two: lengths, in no order, are slow to sort
        longest_first = order(stream, start, minus(start, end))
    reaching = records(*(take(column, longest_first) for column in (stream, end)))
    inside, outer = where_not(reaching), where(reaching)
    by_stream = take(own, longest_first)
    return take(by_stream, inside), take(by_stream, take(outer[:1] + outer, places(outer, inside)))


def _shares_inside(kernels: Kernels, own: Column, inside: Column) -> Mapping[Stream, Fraction]:
    """Return of each stream of which too much time is inside other kernels how much that is."""
    if not inside:
        return {}
    size, lengths = len(kernels.streams), minus(kernels.end_ns, kernels.start_ns)
    whole, part = (sums(take(kernels.stream, some), take(lengths, some), size) for some in (own, inside))
    return {
        each: Fraction(part[number], whole[number])
        for number, each in enumerate(kernels.streams)
        if each.number != NO_STREAM and part[number] > MOST_INSIDE * whole[number]
    }
