"""What does a trace hold around the windows of its ranks, and what is known about each rank's kernels?

Each table is read on first use, once for all ranks: :class:`TraceContext` holds it by lane. A :class:`RankTrack` is the
part of one rank, shared by all of its windows.

A kernel's stage and purpose are those of the innermost range around its launch that carries a stage or a purpose, found
in one sweep. All ranges of the process that contain the launch time count, on any thread, because the autograd thread
launches backward kernels inside the main thread's ranges; innermost means the shortest. It may have started any time
before. A kernel without a launch row is looked up at its GPU start. Where no range says anything, the module does that
a kernel of a CUDA graph names itself.

A stream on which kernels run wholly inside others is no ordered stream: a profiler merged queues, or lost their ids, so
its order proves nothing. A kernel that merely starts before the previous one ended is a programmatic dependent launch,
and nodes of CUDA graphs share the stream of the graph's launch: neither disproves the order.
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

from pytest_nsys.analysis.windows.step_kinds import StepsByKind
from pytest_nsys.analysis.windows.window_selection import RankSteps, WindowSpec
from pytest_nsys.core.columns import (
    Column,
    Flags,
    clip,
    count_edges_before,
    count_numbers,
    find_distinct_rows,
    find_innermost,
    find_min_max,
    find_nonzero,
    find_zeros,
    list_distinct,
    mark_equal,
    mark_records,
    narrow_column,
    sort_indices,
    subtract,
    sum_by_number,
    sum_column,
    take,
)
from pytest_nsys.core.conventions import NO_STAGE, Convention
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.exact import median
from pytest_nsys.core.families import LibraryMatch, find_communication_library, find_fused_communication
from pytest_nsys.core.intervals import Intervals, find_hull
from pytest_nsys.core.memoize import group_by_key, memoize_method
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
    NO_KERNELS,
    NO_LAUNCH_CALLS,
    NO_RANGES,
    Kernels,
    LaunchCalls,
    Memory,
    Ranges,
    Series,
    StreamWait,
    sum_levels,
)
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.workload import Workload
from pytest_nsys.traces.copies_as_kernels import GRAPH_ID, merge_kernels

KernelContext = tuple[str, str | None]
"""A pair (stage, purpose); the purpose is None where the convention names none."""

NO_KERNEL_CONTEXT: KernelContext = (NO_STAGE, None)


class KernelContexts(NamedTuple):
    """Holds the stage and purpose of each kernel, in the order of a column of launches."""

    codes: Column  # by kernel an index into the contexts
    contexts: Sequence[KernelContext]  # without duplicates; the first is NO_KERNEL_CONTEXT
    doubly_claimed_count: int = 0  # launches inside labelled ranges of two threads

    def get_context(self, kernel: int) -> KernelContext:
        """Return the (stage, purpose) of a kernel, by its index."""
        return self.contexts[self.codes[kernel]]


class RangeLabelIndex:
    """Finds the stage and purpose that the ranges of a process give at any time.

    It is built in one sweep; all kernels are then looked up at once. ``ranges`` are sorted by start. ``modules`` are
    names that kernels say themselves, which may give a stage and purpose, too.
    """

    def __init__(
        self, ranges: Ranges, find_context: Callable[[str], KernelContext | None], modules: Iterable[str] = ()
    ) -> None:
        code_by_context = {NO_KERNEL_CONTEXT: 0}
        codes_by_name = array(
            "q",
            [
                code_by_context.setdefault(find_context(name) or NO_KERNEL_CONTEXT, len(code_by_context))
                for name in ranges.names
            ],
        )
        code = take(codes_by_name, ranges.name)
        columns, labelled_ranges = (ranges.start_ns, ranges.end_ns, ranges.thread, code), find_nonzero(code)
        # Among ranges of equal length the later start wins, then the later name: a stable order.
        self._edges_ns, codes, self._claimed_twice = find_innermost(
            *(take(column, labelled_ranges) for column in columns)
        )
        self._codes = narrow_column(codes)
        self._code_by_module = {
            module: code_by_context.setdefault(find_context(module) or NO_KERNEL_CONTEXT, len(code_by_context))
            for module in modules
        }
        self._contexts = tuple(code_by_context)

    def find_module_codes(self, modules: Iterable[str]) -> Column:
        """Return the index of the stage and purpose that each of some modules gives; 0 for one that gives none."""
        return array("q", [self._code_by_module.get(module, 0) for module in modules])

    def find_contexts(self, times_ns: Column, module_codes: Column | None = None) -> KernelContexts:
        """Return the stage and purpose at each time, which may come in any order; where ranges say none, that of the
        module.
        """
        segments = count_edges_before(self._edges_ns, times_ns)
        codes = take(self._codes, segments)
        if module_codes is not None:
            codes = array("q", codes)
            for i in find_zeros(codes):
                codes[i] = module_codes[i]
        return KernelContexts(codes, self._contexts, sum_column(take(self._claimed_twice, segments)))


EMPTY_LABEL_INDEX = RangeLabelIndex(Ranges.from_ranges(()), lambda _: None)
"""The index of a process without ranges."""

MAX_COLUMN_NS = (1 << 63) - 1
"""The largest time in ns that a column holds; if all kernels together are no longer, no length, gap or union exceeds
it.
"""

FlagsByName = Mapping[tuple[int, int], int]
"""A flag by (short, demangled) name ids: 1 for communication."""


class TraceContext:
    """Holds the kernels of some lanes of a trace, and reads on first use what else is recorded about them.

    ``spans`` has the time for which each lane was read; None means all of it.
    """

    def __init__(
        self,
        trace: Trace,
        convention: Convention,
        kernels: Mapping[Lane, Kernels],
        spans: Mapping[Lane, Interval | None] = MappingProxyType({}),
    ) -> None:
        self.trace, self.convention, self.kernels, self.spans = trace, convention, kernels, spans
        for lane_kernels in kernels.values():
            self._check_length("kernel", lane_kernels)

    def _check_length(self, work_noun: str, *works: Kernels) -> None:
        """Raise TraceError if lengths, gaps or unions would exceed what a column holds."""
        first_ns, last_ns = find_hull(find_work_span(work) for work in works if len(work))
        if last_ns - first_ns > MAX_COLUMN_NS:
            problem = f"from the first {work_noun} to the last are more than 292 years"
            raise TraceError(f"{self.trace.path}: {problem}: damaged, or changed after it was written; export it again")

    @cached_property
    def facts(self) -> TraceFacts:
        """What the trace says about its machine and its profiler."""
        return self.trace.facts()

    @memoize_method
    def flag_communication(self, lane: Lane) -> tuple[Flags, FlagsByName]:
        """Return a flag per kernel, 1 if it is communication under the convention, and the same flags by name.

        Each name is looked up once.
        """
        kernels = self.kernels[lane]
        numbers, keys = find_distinct_rows(kernels.name, kernels.full_name)
        flags_by_name = {
            (short, full): self.convention.is_communication(kernels.names[short], kernels.names.get(full, ""))
            for short, full in keys
        }
        return take(bytearray(flags_by_name.values()), numbers), flags_by_name

    @memoize_method
    def find_stream_order(self, lane: Lane) -> StreamOrder:
        """Return which streams of a lane keep their order."""
        return measure_stream_order(self.kernels.get(lane) or NO_KERNELS)

    def find_unordered_streams(self, lane: Lane) -> Mapping[Stream, Fraction]:
        """Return the streams of a lane that keep no order, each with the share of its kernel time inside other
        kernels.
        """
        return self.find_stream_order(lane).unordered_streams

    @cached_property
    def _communication_indices(self) -> dict[Lane, Column]:
        return {lane: find_nonzero(self.flag_communication(lane)[0]) for lane in self.kernels}

    @cached_property
    def launch_calls(self) -> Mapping[Lane, LaunchCalls]:
        """The API calls that launched the kernels, by lane."""
        return self.trace.launch_calls(self.kernels)

    @cached_property
    def issue_calls(self) -> Mapping[Lane, LaunchCalls]:
        """Where the program issued the kernels from, by lane: their launch, or the creation of their node in a CUDA
        graph.
        """
        return self.trace.issue_calls(self.kernels, self.launch_calls)

    @memoize_method
    def find_issue_times(self, lane: Lane) -> Column:
        """Return the time at which the program issued each kernel of a lane, which its ranges say the stage of.

        A node of a CUDA graph that was created outside of all ranges with a stage or purpose is issued by the graph's
        launch: what the program did is told there alone.
        """
        issues_ns = (self.issue_calls.get(lane) or NO_LAUNCH_CALLS).start_ns
        launches_ns = (self.launch_calls.get(lane) or NO_LAUNCH_CALLS).start_ns
        if issues_ns is launches_ns:
            return launches_ns
        codes = self.find_label_index(lane.global_pid).find_contexts(issues_ns).codes
        issues_ns = issues_ns[:]
        for i in find_zeros(codes):
            issues_ns[i] = launches_ns[i]
        return issues_ns

    @cached_property
    def transfer_calls(self) -> Mapping[Lane, LaunchCalls]:
        """The API calls that launched the transfers, by lane."""
        return self.trace.launch_calls(self.transfers or {})

    @cached_property
    def stream_waits(self) -> Mapping[int, Sequence[StreamWait]] | None:
        """The stream waits of each process, in order; None if the trace does not record them."""
        return self.trace.stream_waits()

    @cached_property
    def transfers(self) -> Mapping[Lane, Kernels] | None:
        """The copies and memsets that touch the spans, by lane; None if the trace does not say when they ran."""
        transfers = self.trace.transfers(self.spans)
        for lane, lane_transfers in (transfers or {}).items():
            self._check_length(
                "copy or kernel", lane_transfers, *([self.kernels[lane]] if lane in self.kernels else ())
            )
        return transfers

    @cached_property
    def memory(self) -> Mapping[Lane, Memory] | None:
        """The memory allocated on each device; None if the trace does not record it."""
        return self.trace.memory()

    @cached_property
    def sm_clocks(self) -> Mapping[Lane, Series] | None:
        """Samples of the SM clock in the spans, in Hz; None if the trace does not record them."""
        return self.trace.sm_clocks(self.spans)

    @cached_property
    def collectives(self) -> Mapping[Lane, Mapping[int, Collective]] | None:
        """The records of communication kernels, by lane and index; None if the trace records the size of none."""
        communication = self._communication_indices
        records_by_lane = self.trace.collectives(
            {lane: self.kernels[lane].take(indices) for lane, indices in communication.items()}
        )
        if records_by_lane is None:
            return None
        return {
            lane: {
                i: record
                for i, record in zip(indices, records_by_lane.get(lane, ()), strict=False)
                if record is not None
            }
            for lane, indices in communication.items()
        }

    @memoize_method
    def read_api_calls(self, globs: tuple[str, ...]) -> Mapping[int, Sequence[Api]] | None:
        """Read the API calls around the windows of each process, sorted by start; None if the trace does not record
        them.
        """
        calls_by_process = self.trace.api_calls(globs, self._process_spans)
        return None if calls_by_process is None else {pid: sorted(calls) for pid, calls in calls_by_process.items()}

    @memoize_method
    def read_earlier_calls(self, globs: tuple[str, ...]) -> Mapping[int, Sequence[Api]] | None:
        """Read the API calls around the windows and all that began earlier, since a thread may still be in one; None as
        above.
        """
        return self.trace.api_calls(
            globs, {pid: (-MAX_COLUMN_NS, until) for pid, (_, until) in self._process_spans.items()}
        )

    @cached_property
    def _process_spans(self) -> dict[int, Interval]:
        """The time of each process in which its kernels were looked for, or ran."""
        kernel_spans = {
            lane: find_work_span(lane_kernels) for lane, lane_kernels in self.kernels.items() if len(lane_kernels)
        }
        read_spans = {lane: span for lane, span in self.spans.items() if span is not None}
        return _merge_spans_by_process({**kernel_spans, **read_spans}.items())

    @cached_property
    def launch_spans(self) -> Mapping[int, Interval]:
        """The time of each process from where its first kernel was issued to its last launch, and in which they ran."""
        return _merge_spans_by_process(
            (lane, self._find_issue_span(lane)) for lane, lane_kernels in self.kernels.items() if len(lane_kernels)
        )

    @cached_property
    def _label_indexes(self) -> Mapping[int, RangeLabelIndex]:
        """The index of the ranges around the places that the kernels were issued from, by process."""
        find_context = self.convention.make_stage_and_purpose_parser()
        ranges_by_process = self.trace.ranges_around(self.launch_spans)
        modules_by_process: dict[int, set[str]] = {pid: set() for pid in ranges_by_process}
        for lane, modules in self._stated_modules.items():
            modules_by_process.setdefault(lane.global_pid, set()).update(modules)
        return {
            pid: RangeLabelIndex(ranges_by_process.get(pid, NO_RANGES), find_context, sorted(modules))
            for pid, modules in modules_by_process.items()
        }

    @cached_property
    def _stated_modules(self) -> Mapping[Lane, Sequence[str]]:
        return self.trace.stated_modules(self.kernels)

    @memoize_method
    def find_module_codes(self, lane: Lane) -> Column | None:
        """Return the index of the context that the module of each kernel of a lane gives; None where none is named."""
        modules = self._stated_modules.get(lane)
        return None if modules is None else self.find_label_index(lane.global_pid).find_module_codes(modules)

    def _find_issue_span(self, lane: Lane) -> Interval:
        starts, (first, last) = self.kernels[lane].start_ns, self._find_call_span(lane, self.launch_calls)
        if self.issue_calls is not self.launch_calls:
            first = min(first, self._find_call_span(lane, self.issue_calls)[0])
        return min(starts[0], first), max(starts[-1], last)

    def _find_call_span(self, lane: Lane, calls_by_lane: Mapping[Lane, LaunchCalls]) -> Interval:
        calls_ns = calls_by_lane[lane].start_ns
        return find_min_max(take(calls_ns, _find_launched_kernels(calls_ns)) or self.kernels[lane].start_ns)

    def find_label_index(self, global_pid: int) -> RangeLabelIndex:
        """Return the index of the ranges of a process; an empty one if it has none."""
        return self._label_indexes.get(global_pid) or EMPTY_LABEL_INDEX


def find_work_span(work: Kernels) -> Interval:
    """Return the start of the first kernel and the end of the last, in ns; ``work`` holds at least one."""
    return work.start_ns[0], find_min_max(work.end_ns)[1]


def _merge_spans_by_process(spans: Iterable[tuple[Lane, Interval]]) -> dict[int, Interval]:
    """Return the span from the first start to the last end of each process's lanes."""
    return {
        pid: find_hull(process_spans)
        for pid, process_spans in group_by_key((lane.global_pid, span) for lane, span in spans).items()
    }


_START = attrgetter("start_ns")

MAX_CLOCK_SKEW_NS = 100_000
"""The maximum difference between a profiler's clocks of CPU and GPU: in real traces no kernel starts before its
launch.
"""


class LaunchCoverage(NamedTuple):
    """Counts the kernels without a launch row, and those that start before their launch."""

    kernel_count: int
    unlaunched_count: int  # kernels without a launch row
    early_count: int  # kernels that start before their launch
    lead_ns: int  # the longest time in ns by which one starts early


class RunInterface(Protocol):
    """Describes what a track reads from the run that it belongs to."""

    @property
    def workload(self) -> Workload: ...

    @property
    def steps_by_kind(self) -> StepsByKind: ...

    def find_anchors_of_kind(self, rank: Rank, spec: WindowSpec, /) -> Sequence[Range]: ...

    def list_pickable_anchors(self, rank: Rank, spec: WindowSpec, /) -> Sequence[Range]: ...

    def find_rank_steps(self, rank: Rank, spec: WindowSpec, /) -> RankSteps | None: ...

    def read_copies_between_gpus(self, trace_index: int, /) -> Mapping[Lane, Kernels]: ...

    def load_whole_run(self) -> WindowGroupInterface: ...


class WindowInterface(Protocol):
    """Describes a window by its time alone."""

    @property
    def start_ns(self) -> int: ...

    @property
    def end_ns(self) -> int: ...

    @property
    def length_ns(self) -> int: ...


class WindowGroupInterface(Protocol):
    """Describes what a track reads from the group of windows that it surrounds."""

    @property
    def windows_by_rank(self) -> Mapping[int, Sequence[WindowInterface]]: ...

    @property
    def copies_by_trace(self) -> Sequence[Mapping[Lane, Sequence[Copy]] | None]: ...

    @property
    def run(self) -> RunInterface: ...

    @property
    def spec(self) -> WindowSpec: ...

    @property
    def tracks(self) -> Mapping[int, RankTrack]: ...

    @property
    def gpu_tracks(self) -> Mapping[int, RankTrack]: ...

    @property
    def contexts_after(self) -> Sequence[TraceContext]: ...


class RankTrack:
    """Holds the kernels of one rank around its windows, and what is known about each; everything is read once, on first
    use.

    ``trace_context`` reads for all ranks of the trace; ``window_group`` has the windows of all ranks of the run.
    """

    def __init__(self, rank: Rank, trace_context: TraceContext, window_group: WindowGroupInterface) -> None:
        self.rank, self.trace_context, self.window_group = rank, trace_context, window_group
        self.convention = trace_context.convention
        self.kernels = trace_context.kernels.get(rank.lane) or NO_KERNELS

    @cached_property
    def anchors(self) -> Sequence[Range]:
        """The anchors that its windows are picked from. Raises UsageMistake if there are several kinds and none is
        chosen.
        """
        return self.window_group.run.list_pickable_anchors(self.rank, self.window_group.spec)

    @property
    def steps_by_kind(self) -> RankSteps | None:
        """The steps of the rank, of all kinds; None if its windows are not picked from steps."""
        return self.window_group.run.find_rank_steps(self.rank, self.window_group.spec)

    @cached_property
    def step_lengths_ns(self) -> Mapping[int, int]:
        """How long each whole step among those its windows are picked from has the GPU, in ns by index; empty if they
        are not steps.
        """
        lengths = self.steps_by_kind.measure_lengths_ns() if self.steps_by_kind is not None else {}
        return {i: lengths[step.start_ns] for i, step in enumerate(self.anchors) if step.start_ns in lengths}

    @property
    def whole_track(self) -> RankTrack:
        """The track of everything that the rank ran."""
        return self.window_group.run.load_whole_run().tracks[self.rank.number]

    @property
    def gpu_track(self) -> RankTrack:
        """The track of everything that ran on the GPU in the windows, whenever it was launched."""
        return self.window_group.gpu_tracks[self.rank.number]

    @property
    def read_until_ns(self) -> int | None:
        """The time up to which the trace was read, where ``context_after`` reads on; None if nothing is left."""
        span = self.trace_context.spans.get(self.rank.lane, (0, 0))
        return None if span is None else span[1]

    @property
    def context_after(self) -> TraceContext:
        """What started after the track, on all lanes of the trace, at least until a compute kernel of nonzero
        length.
        """
        return self.window_group.contexts_after[self.rank.process.trace]

    @property
    def transfers(self) -> Kernels | None:
        """The copies and memsets around the windows; None if the trace does not say when they ran."""
        transfers_by_lane = self.trace_context.transfers
        return None if transfers_by_lane is None else transfers_by_lane.get(self.rank.lane, NO_KERNELS)

    @cached_property
    def memory(self) -> Memory | None:
        """The memory that the rank had allocated on all of its devices; None if the trace does not record it."""
        if (memory_by_lane := self.trace_context.memory) is None:
            return None
        lane = self.rank.lane
        memories = [
            memory
            for memory_lane, memory in memory_by_lane.items()
            if memory_lane.global_pid == lane.global_pid and lane.device in (None, memory_lane.device)
        ]
        return Memory(sum_levels([m.levels for m in memories]), sum(m.earlier_frees for m in memories))

    @property
    def sm_clocks(self) -> Series | None:
        """Samples of the SM clock around the windows, in Hz; None if the trace does not record them."""
        clocks_by_lane = self.trace_context.sm_clocks
        return None if clocks_by_lane is None else clocks_by_lane.get(self.rank.lane, Series.from_time_value_pairs(()))

    @cached_property
    def _communication_flags(self) -> tuple[Flags, FlagsByName]:
        return self.trace_context.flag_communication(self.rank.lane) if len(self.kernels) else (bytearray(), {})

    @property
    def communicates(self) -> Flags:
        """A flag per kernel: 1 if it is communication under the convention."""
        return self._communication_flags[0]

    @cached_property
    def compute_time(self) -> Intervals:
        """The intervals in which compute ran, whichever step launched it."""
        return self.kernels.merge_run_times(find_zeros(self.communicates))

    @cached_property
    def communication_time(self) -> Intervals:
        """The intervals in which communication ran, whichever step launched it."""
        return self.kernels.merge_run_times(find_nonzero(self.communicates))

    @cached_property
    def graph_time(self) -> Intervals:
        """The intervals in which CUDA graphs ran whose kernels were not traced."""
        transfers = self.transfers or NO_KERNELS
        return transfers.merge_run_times(find_nonzero(mark_equal(transfers.name, GRAPH_ID)))

    @cached_property
    def compute_or_transfer_time(self) -> Intervals | None:
        """The intervals in which compute, a copy or a memset ran; None if the trace does not say when copies ran."""
        transfers = self.transfers
        return None if transfers is None else self.compute_time.union(Intervals(transfers.start_ns, transfers.end_ns))

    @cached_property
    def busy_time(self) -> Intervals | None:
        """The intervals in which anything ran; None as for :attr:`compute_or_transfer_time`."""
        return (
            None
            if self.compute_or_transfer_time is None
            else self.compute_or_transfer_time.union(self.communication_time)
        )

    @cached_property
    def isolated_median_ns(self) -> dict[int, Value]:
        """The median length of each compute kernel in ns, by demangled name id, over the runs that no communication
        overlapped.
        """
        compute = find_zeros(self.communicates)
        starts, ends = take(self.kernels.start_ns, compute), take(self.kernels.end_ns, compute)
        isolated = find_zeros(self.communication_time.measure_cover_per_span(starts, ends))
        lengths = take(subtract(ends, starts), isolated)
        numbers, names = find_distinct_rows(take(self.kernels.full_name, take(compute, isolated)))
        ascending_lengths = take(lengths, sort_indices(numbers, lengths))
        median_by_name: dict[int, Value] = {}
        first = 0
        for (name,), count in zip(names, count_numbers(numbers, len(names)), strict=True):
            median_by_name[name] = median(ascending_lengths[first + (count - 1) // 2 : first + count // 2 + 1])
            first += count
        return median_by_name

    @property
    def unordered_streams(self) -> Mapping[Stream, Fraction]:
        """The streams that keep no order in the windows, each with the share of its kernel time inside other
        kernels.
        """
        return self.window_group.tracks[self.rank.number].trace_context.find_unordered_streams(self.rank.lane)

    @cached_property
    def covering_kernels(self) -> Column:
        """The kernels that cover several later ones of a stream that otherwise keeps its order: such rows are wrong."""
        return self.trace_context.find_stream_order(self.rank.lane).covering_kernels

    @cached_property
    def duplicate_count(self) -> int:
        """The number of kernels that repeat another one in everything but their times, as in a table that holds them
        twice.
        """
        launched_kernels = find_zeros(self.kernels.graph_node)
        launched_kernels = take(
            launched_kernels, find_zeros(mark_equal(take(self.kernels.correlation, launched_kernels), NO_LAUNCH))
        )
        correlations = take(self.kernels.correlation, launched_kernels)
        if len(list_distinct(correlations)) == len(correlations):  # true of most tables, and quick to check
            return 0
        lengths = subtract(take(self.kernels.end_ns, launched_kernels), take(self.kernels.start_ns, launched_kernels))
        return len(launched_kernels) - len(
            find_distinct_rows(correlations, take(self.kernels.name, launched_kernels), lengths)[1]
        )

    @cached_property
    def uncounted_libraries(self) -> Mapping[tuple[int, int], LibraryMatch]:
        """The communication library of each kernel that the convention nevertheless counts as compute, by name ids."""
        names = self.kernels.names
        compute = (key for key, flag in self._communication_flags[1].items() if not flag)
        library_by_name = ((key, find_communication_library(names[key[0]], names.get(key[1], ""))) for key in compute)
        return {key: library for key, library in library_by_name if library is not None}

    @cached_property
    def fused_identifiers(self) -> Mapping[tuple[int, int], str]:
        """The part of a compute kernel's name that shows that it communicates as well, by (short, demangled) name
        ids.
        """
        names = self.kernels.names
        compute = (
            key
            for key, flag in self._communication_flags[1].items()
            if not flag and key not in self.uncounted_libraries
        )
        identifier_by_name = (
            (key, find_fused_communication(names.get(key[1], "") or names[key[0]])) for key in compute
        )
        return {key: identifier for key, identifier in identifier_by_name if identifier}

    @property
    def read_copies_between_gpus(self) -> Kernels:
        """Return the copies of the run that move data between GPUs and do not count as communication under the
        convention.
        """
        lane, copies_by_lane = self.rank.lane, self.window_group.run.read_copies_between_gpus(self.rank.process.trace)
        copy_lanes = sorted(
            copy_lane
            for copy_lane in copies_by_lane
            if copy_lane.global_pid == lane.global_pid and lane.device in (None, copy_lane.device)
        )
        return merge_kernels([copies_by_lane[copy_lane] for copy_lane in copy_lanes]) or NO_KERNELS

    @property
    def launch_ns(self) -> Column:
        """The start of the earliest launch row of each kernel; NO_LAUNCH without one."""
        return self.launch_calls.start_ns

    @property
    def launch_calls(self) -> LaunchCalls:
        """The API call that launched each kernel."""
        return self.trace_context.launch_calls.get(self.rank.lane) or NO_LAUNCH_CALLS

    @property
    def issue_calls(self) -> LaunchCalls:
        """Where the program issued each kernel from; ``launch_calls`` itself if it launched all of them one by one."""
        return self.trace_context.issue_calls.get(self.rank.lane) or NO_LAUNCH_CALLS

    @property
    def launch_or_start_ns(self) -> Column:
        """The time at which each kernel was launched; its start if no launch row exists."""
        return fill_missing_launches(self.launch_ns, self.kernels.start_ns)

    @property
    def collectives(self) -> Mapping[int, Collective] | None:
        """The records of the communication kernels, by index; None if the trace records the size of none."""
        collectives_by_lane = self.trace_context.collectives
        return None if collectives_by_lane is None else collectives_by_lane.get(self.rank.lane, {})

    def select_api_calls(self, globs: tuple[str, ...], span: Interval) -> Sequence[Api] | None:
        """Return the API calls of the rank's process that start in the span; None if the trace does not record them."""
        calls_by_process = self.trace_context.read_api_calls(globs)
        if calls_by_process is None:
            return None
        calls = calls_by_process.get(self.rank.process.global_pid, ())
        first = bisect_left(calls, span[0], key=_START)
        return calls[first : bisect_right(calls, span[1], key=_START)]

    def select_copies(self, span: Interval) -> Sequence[Copy] | None:
        """Return the copies that are launched in the span, which begins at most its own length before a window.

        Returns None if the trace does not say between which memories copies move.
        """
        copies_by_lane = self.window_group.copies_by_trace[self.rank.process.trace]
        if copies_by_lane is None:
            return None
        return [copy for copy in copies_by_lane.get(self.rank.lane, ()) if span[0] <= copy.launch_ns <= span[1]]

    @cached_property
    def launch_coverage(self) -> LaunchCoverage:
        """How many kernels have no launch row, and how many start before their launch."""
        launched_kernels = _find_launched_kernels(self.launch_ns)
        leads_ns = subtract(take(self.launch_ns, launched_kernels), take(self.kernels.start_ns, launched_kernels))
        _, lead_ns = find_min_max(leads_ns)
        is_within_skew = mark_equal(clip(leads_ns, MAX_CLOCK_SKEW_NS, MAX_COLUMN_NS), MAX_CLOCK_SKEW_NS)
        early_count = len(leads_ns) - sum_column(is_within_skew)
        return LaunchCoverage(
            len(self.kernels), len(self.kernels) - len(launched_kernels), early_count, lead_ns if early_count else 0
        )

    @cached_property
    def launch_order(self) -> Column:
        """The indices of the kernels that have a launch row, sorted by its start."""
        launched_kernels = _find_launched_kernels(self.launch_ns)
        return take(launched_kernels, sort_indices(take(self.launch_ns, launched_kernels)))

    @cached_property
    def lags_ns(self) -> Sequence[int]:
        """The time from each launch to its kernel's start in ns, ascending: how far the GPU is behind the CPU."""
        lags = subtract(take(self.kernels.start_ns, self.launch_order), take(self.launch_ns, self.launch_order))
        return take(lags, sort_indices(lags))

    @cached_property
    def longest_kernel_ns(self) -> int:
        """The length of the longest kernel in ns: a kernel that reaches into a window starts at most this long before
        it.
        """
        return find_min_max(subtract(self.kernels.end_ns, self.kernels.start_ns))[1]

    @cached_property
    def contexts(self) -> KernelContexts:
        """The stage and purpose of every kernel: those of where it was issued from."""
        issues_ns = fill_missing_launches(self.trace_context.find_issue_times(self.rank.lane), self.kernels.start_ns)
        module_codes = self.trace_context.find_module_codes(self.rank.lane)
        return self.trace_context.find_label_index(self.rank.process.global_pid).find_contexts(issues_ns, module_codes)


def _find_launched_kernels(launches: Column) -> Column:
    """Return the indices of the kernels that have a launch row."""
    return find_zeros(mark_equal(launches, NO_LAUNCH))


def fill_missing_launches(launches: Column, starts: Column) -> Column:
    """Return the launch times, with the kernel's start in place of a missing one."""
    times = launches[:]
    for i in find_nonzero(mark_equal(launches, NO_LAUNCH)):
        times[i] = starts[i]
    return times


MAX_NESTED_SHARE = Fraction(1, 100)
"""The maximum share of an ordered stream's kernel time that may lie inside other kernels of the stream."""


MIN_COVERED_KERNELS = 3
"""A kernel that covers this many later kernels of its stream is a wrong row, or shows that the stream keeps no
order.
"""

MAX_COVERING_SHARE = Fraction(1, 100)
"""The maximum share of an ordered stream's kernels that may cover several others; at least one kernel always may."""


class StreamOrder(NamedTuple):
    """Says which streams keep no order, and which kernels of the other streams are wrong rows."""

    unordered_streams: Mapping[Stream, Fraction]  # the share of its kernel time inside other kernels
    covering_kernels: Column  # indices of kernels that cover several later ones of an ordered stream


def measure_stream_order(kernels: Kernels) -> StreamOrder:
    """Measure which streams keep their order. Nodes of CUDA graphs do not count, because one launch starts many of
    them.
    """
    # Nodes of a CUDA graph share the stream of the graph's launch, and run concurrently.
    indices = find_zeros(kernels.graph_node)
    nested, covering_each = _find_nested_kernels(kernels, indices)
    wide_kernels = [kernel for kernel, count in Counter(covering_each).items() if count >= MIN_COVERED_KERNELS]
    kernels_by_stream, wide_by_stream = (
        Counter(take(kernels.stream, indices)),
        Counter(kernels.stream[kernel] for kernel in wide_kernels),
    )
    ordered_streams = {
        stream
        for stream, count in wide_by_stream.items()
        if count == 1 or count <= MAX_COVERING_SHARE * kernels_by_stream[stream]
    }
    # A few kernels that cover several others are wrong rows; without them the stream may keep its order.
    if wrong_kernels := {kernel for kernel in wide_kernels if kernels.stream[kernel] in ordered_streams}:
        indices = array("q", [kernel for kernel in indices if kernel not in wrong_kernels])
        nested, _ = _find_nested_kernels(kernels, indices)
    unordered_streams = _measure_nested_shares(kernels, indices, nested)
    kernels_of_unordered = (
        kernel for kernel in wrong_kernels if kernels.streams[kernels.stream[kernel]] in unordered_streams
    )
    return StreamOrder(unordered_streams, array("q", sorted(wrong_kernels.difference(kernels_of_unordered))))


def _find_nested_kernels(kernels: Kernels, indices: Column) -> tuple[Column, Column]:
    """Find which of some kernels lie inside an earlier one of their stream; return them, and the earlier one of
    each.
    """
    stream, start, end = (take(column, indices) for column in (kernels.stream, kernels.start_ns, kernels.end_ns))
    longest_first = sort_indices(stream, start)
    starts = take(start, longest_first)
    if sum_column(
        mark_equal(subtract(starts[1:], starts[:-1]), 0)
    ):  # kernels rarely start together; sorting by length too is slow
        longest_first = sort_indices(stream, start, subtract(start, end))
    is_outermost = mark_records(*(take(column, longest_first) for column in (stream, end)))
    inside, outer = find_zeros(is_outermost), find_nonzero(is_outermost)
    sorted_indices = take(indices, longest_first)
    return take(sorted_indices, inside), take(
        sorted_indices, take(outer[:1] + outer, count_edges_before(outer, inside))
    )


def _measure_nested_shares(kernels: Kernels, indices: Column, nested: Column) -> Mapping[Stream, Fraction]:
    """Return, for each stream where it is too large, the share of kernel time inside other kernels of the stream."""
    if not nested:
        return {}
    size, lengths_ns = len(kernels.streams), subtract(kernels.end_ns, kernels.start_ns)
    total_ns, nested_ns = (
        sum_by_number(take(kernels.stream, selected), take(lengths_ns, selected), size)
        for selected in (indices, nested)
    )
    return {
        stream: Fraction(nested_ns[number], total_ns[number])
        for number, stream in enumerate(kernels.streams)
        if stream.number != NO_STREAM and nested_ns[number] > MAX_NESTED_SHARE * total_ns[number]
    }
