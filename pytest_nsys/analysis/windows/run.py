"""Which ranks, anchors and kernels does one run have, in any window?

A run is opened once. Every table is read once per question, for all ranks of a trace together, and then kept: a second
metric, assertion or gate file with the same window reads nothing.
"""

from __future__ import annotations

import shlex
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.analysis.windows.kernel_anchors import KernelLaunches, find_kernel_steps
from pytest_nsys.analysis.windows.measurements import OutsideMeasurements
from pytest_nsys.analysis.windows.rank_steps import find_steps_by_launch, find_steps_by_time
from pytest_nsys.analysis.windows.rank_track import MAX_COLUMN_NS, RankTrack, TraceContext, find_work_span
from pytest_nsys.analysis.windows.rank_window import (
    RankWindow,
    explain_empty_windows,
    explain_no_anchor,
    select_window_kernels,
)
from pytest_nsys.analysis.windows.step_kinds import StepsByKind
from pytest_nsys.analysis.windows.window_selection import (
    MEDIAN,
    RUN,
    WINDOW_WORDS,
    RankSteps,
    WindowSpec,
    build_step_spans,
    count_whole_steps,
    find_anchor,
    find_ranks,
    map_step_numbers,
    marks_steps,
    pick_anchor_windows,
    read_setup_labels,
)
from pytest_nsys.core.columns import (
    Column,
    find_min_max,
    find_nonzero,
    find_zeros,
    is_exceeded,
    mark_equal,
    subtract,
    sum_column,
    take,
)
from pytest_nsys.core.conventions import Convention, KernelAnchor, make_pattern_matcher
from pytest_nsys.core.errors import NothingMeasured, UsageMistake, suggest_word
from pytest_nsys.core.families import find_communication_library
from pytest_nsys.core.intervals import find_hull
from pytest_nsys.core.memoize import group_by_key, memoize_method
from pytest_nsys.core.model import (
    NO_LAUNCH,
    OPEN_END_NS,
    Copy,
    Interval,
    KernelsMode,
    Lane,
    Note,
    ProcessId,
    Range,
    Rank,
    StepSpans,
    TraceFacts,
    Window,
)
from pytest_nsys.core.tables import Kernels, Ranges
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.workload import Workload
from pytest_nsys.traces.copies_as_kernels import add_copies


class Run:
    """Represents one execution of the program: its traces, read under one convention.

    ``measurements`` were taken outside of the traces; with them there may be no trace. Raises TraceError if the traces
    cannot be judged.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        convention: Convention,
        workload: Workload | None = None,
        measurements: OutsideMeasurements | None = None,
    ) -> None:
        self.measurements = measurements or OutsideMeasurements()
        self.traces = tuple(add_copies(trace, convention.copies) for trace in traces)
        self.convention = convention
        self.workload = workload or Workload()
        self._anchors: dict[tuple[int, str], Sequence[Range]] = {}

    @cached_property
    def facts(self) -> tuple[TraceFacts, ...]:
        """What each trace says about its machine and its profiler."""
        return tuple(trace.facts() for trace in self.traces)

    @property
    def path(self) -> Path:
        """The first file of the run, which stands for the run in messages."""
        return self.traces[0].path if self.traces else self.measurements.paths[0]

    @property
    def file_count(self) -> int:
        """The number of profiler files in the run."""
        return sum(facts.file_count for facts in self.facts)

    @cached_property
    def _ranges(self) -> list[Mapping[int, Sequence[Range]]]:
        """The ranges of each trace that are anchors or setup labels, by process, from one pass."""
        patterns = [self.convention.range_anchor, self.convention.setup_pattern]
        return [trace.ranges([p for p in patterns if p is not None]) for trace in self.traces]

    @cached_property
    def _ranks_and_notes(self) -> tuple[tuple[Rank, ...], tuple[Note, ...]]:
        traces_and_ranges = zip(self.traces, self._ranges, strict=True)
        labels = [read_setup_labels(trace, ranges, self.convention) for trace, ranges in traces_and_ranges]
        return find_ranks(self.traces, labels, [facts.rank_numbers for facts in self.facts])

    @cached_property
    def has_kernels(self) -> bool:
        """Whether any process ran a kernel."""
        return any(facts.has_kernels for facts in self.facts)

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """The ranks, sorted by number. Raises NothingMeasured for a run without kernels."""
        ranks = self._ranks_and_notes[0]
        if not self.traces:
            return ()
        if not self.has_kernels:
            raise NothingMeasured(self._explain_no_kernels())
        return ranks

    def list_trace_ranks(self, trace_index: int) -> Sequence[Rank]:
        """Return the ranks of one trace, sorted by number."""
        return self._ranks_by_trace.get(trace_index, ())

    @cached_property
    def _ranks_by_trace(self) -> Mapping[int, Sequence[Rank]]:
        return group_by_key((rank.process.trace, rank) for rank in self.ranks)

    @property
    def mesh_sizes(self) -> Mapping[str, int]:
        """The number of ranks along each axis of the mesh, from the setup labels; empty without labels."""
        return next((rank.setup.sizes for rank in self.labelled_ranks if rank.setup is not None), {})

    @property
    def labelled_ranks(self) -> tuple[Rank, ...]:
        """The ranks that have a setup label, even if the run has no kernels."""
        return tuple(rank for rank in self._ranks_and_notes[0] if rank.setup is not None)

    @property
    def rank_notes(self) -> tuple[Note, ...]:
        """Notes on how the ranks were identified."""
        return self._ranks_and_notes[1]

    def _explain_no_kernels(self) -> str:
        names = ", ".join(str(trace.path) for trace in self.traces[:3])
        graph_count = sum(facts.whole_graph_count for facts in self.facts)
        if graph_count:
            return (
                f"{names}: no kernels: {graph_count} CUDA graph replays were traced whole; use --cuda-graph-trace=node"
            )
        return f"{names}: no kernels: {self.facts[0].to_see_kernels}"

    def find_anchors(self, rank: Rank, spec: WindowSpec | None = None) -> Sequence[Range]:
        """Find the anchors of a rank, sorted by start, whether or not a kernel was launched in them.

        They are the closed ranges that match the pattern of the spec, else of the convention, or the steps that a
        kernel anchor begins.
        """
        anchor = find_anchor(self.convention, spec)
        if isinstance(anchor, KernelAnchor):
            return self._find_steps(rank.number, self._counts_by_launch(spec)).steps
        if anchor is None:
            return ()
        if (rank.number, anchor) not in self._anchors:
            self._anchors[rank.number, anchor] = self._find_range_anchors(rank, anchor)
        return self._anchors[rank.number, anchor]

    def _counts_by_launch(self, spec: WindowSpec | None) -> bool:
        """Return whether kernels count by their launches.

        The whole run has no mode of its own, so it takes that of the convention.
        """
        mode = self.convention.kernels if spec is None or spec.is_whole_run else spec.kernels
        return mode is KernelsMode.LAUNCHED

    def find_rank_steps(self, rank: Rank, spec: WindowSpec) -> RankSteps | None:
        """Find the steps of a rank that have a window, of all kinds; None if anchors mark no steps."""
        return (
            self._find_steps(rank.number, self._counts_by_launch(spec)) if marks_steps(self.convention, spec) else None
        )

    def count_labels_per_step(self, rank: Rank) -> int:
        """Return how many labels the longest step of a rank has: several if labels alternate, else 1."""
        spec = WindowSpec(kernels=self.convention.kernels)
        if self.convention.kinds or self.convention.kernel_anchor is not None or not self._counts_by_launch(spec):
            return 1
        rank_steps, anchor_starts_ns = (
            self.find_rank_steps(rank, spec),
            [anchor.start_ns for anchor in self.find_anchors(rank)],
        )
        if rank_steps is None:
            return 1
        label_counts = (
            bisect_left(anchor_starts_ns, step.end_ns) - bisect_left(anchor_starts_ns, step.start_ns)
            for step in rank_steps.steps[:-1]
        )
        return max(label_counts, default=1)

    def collect_steps_for_cut(self, rank: Rank) -> Mapping[tuple[str, bool], StepSpans]:
        """Return the steps of a rank that a cut stores, by (anchor, whether by launch); combinations without steps are
        absent.
        """
        if not marks_steps(self.convention):
            return {}
        steps_by_mode = {
            (str(self.convention.anchor), by_launch): self._find_steps(rank.number, by_launch)
            for by_launch in (False, True)
        }
        return {
            anchor_and_mode: rank_steps.step_spans
            for anchor_and_mode, rank_steps in steps_by_mode.items()
            if rank_steps.steps
        }

    @cached_property
    def _rank_by_number(self) -> Mapping[int, Rank]:
        return {rank.number: rank for rank in self._ranks_and_notes[0]}

    @memoize_method
    def _find_steps(self, rank_number: int, by_launch: bool) -> RankSteps:
        rank = self._rank_by_number[rank_number]
        anchor, trace_index, lane = self.convention.anchor, rank.process.trace, rank.lane
        kernel_anchor = self.convention.kernel_anchor
        anchors = self.find_anchors(rank) if kernel_anchor is None else ()
        if (stored_steps := self.facts[trace_index].cut_steps.get((lane, str(anchor), by_launch))) is not None:
            return RankSteps.restore(stored_steps, anchors, str(anchor))
        if kernel_anchor is not None:
            trace_context = self.read_whole_trace(trace_index)
            if lane not in trace_context.kernels:
                return RankSteps((), missing_reason="it ran no kernel")
            rank_kernels = KernelLaunches(trace_context.kernels[lane], trace_context.launch_calls[lane].start_ns)
            return find_kernel_steps(kernel_anchor, rank_kernels, by_launch=by_launch)
        extend_last_step = bool(self.convention.kinds)  # sampling runs after the range of a step
        if by_launch:
            return find_steps_by_launch(
                self.load_whole_run().tracks[rank.number], anchors, extend_last_step=extend_last_step
            )
        kernel_ends_ns = self.load_whole_run().tracks[rank.number].kernels.end_ns if extend_last_step else ()
        return find_steps_by_time(anchors, last_end_ns=max(kernel_ends_ns, default=None))

    @memoize_method
    def read_copies_between_gpus(self, trace_index: int) -> Mapping[Lane, Kernels]:
        """Read the copies that move data between GPUs, by lane, unless the convention counts them as communication."""
        return self.traces[trace_index].copies_between_gpus()

    @memoize_method
    def read_whole_trace(self, trace_index: int) -> TraceContext:
        """Read everything that the ranks of a trace ran."""
        spans: dict[Lane, Interval | None] = {rank.lane: None for rank in self.list_trace_ranks(trace_index)}
        return TraceContext(
            self.traces[trace_index], self.convention, self.traces[trace_index].kernels(spans) if spans else {}, spans
        )

    def select_common_anchors(self, patterns: Sequence[str]) -> frozenset[str]:
        """Return the patterns that match a closed range of every rank, from one pass over each trace.

        In a run without kernels, every labelled rank needs one.
        """
        label_patterns = [self.convention.setup_pattern] if self.convention.setup_pattern is not None else []
        # The same pass also finds the ranks' setup labels.
        ranges_by_trace = self.read_matching_ranges_by_trace(tuple(dict.fromkeys([*patterns, *label_patterns])))
        ranks = self.ranks if self.has_kernels else self.labelled_ranks
        ranges_by_rank = [ranges_by_trace[rank.process.trace].get(rank.process.global_pid, ()) for rank in ranks]
        names_by_rank = [{r.name for r in rank_ranges if r.end_ns != OPEN_END_NS} for rank_ranges in ranges_by_rank]
        matchers = {pattern: make_pattern_matcher(pattern) for pattern in patterns}
        return frozenset(
            p for p, matches in matchers.items() if all(any(map(matches, rank_names)) for rank_names in names_by_rank)
        )

    @cached_property
    def steps_by_kind(self) -> StepsByKind:
        """The anchors as steps by kind; empty where steps have no kinds."""
        anchors_by_rank = {rank.number: self.find_anchors(rank) for rank in self.ranks} if self.convention.kinds else {}
        return StepsByKind(self.convention, anchors_by_rank, str(self.path))

    def find_anchors_of_kind(self, rank: Rank, spec: WindowSpec) -> Sequence[Range]:
        """Find the anchors among which a spec picks, including those without a kernel.

        If steps have kinds, they are those of the spec's kind; for a span of time or the whole run, those of all kinds.
        Raises as :meth:`StepsByKind.select_steps` does.
        """
        anchors = self.find_anchors(rank, spec)
        if not self.convention.kinds or spec.anchor is not None or not anchors:
            return anchors
        if spec.is_whole_run or spec.explicit_span_ns is not None:
            return self.steps_by_kind.by_rank[rank.number]
        return self.steps_by_kind.select_steps(rank.number, spec.kind)

    def list_pickable_anchors(self, rank: Rank, spec: WindowSpec) -> Sequence[Range]:
        """List the anchors from which a spec's windows are picked; if they are steps, those with a window, each until
        the next.

        Raises as :meth:`StepsByKind.select_steps` does.
        """
        anchors = self.find_anchors_of_kind(rank, spec)
        if not anchors or (rank_steps := self.find_rank_steps(rank, spec)) is None:
            return anchors
        if not rank_steps.steps:  # leave windows empty, so that the error says why
            return build_step_spans(anchors)
        if not self.convention.kinds:
            return rank_steps.steps
        begins_ns = {anchor.start_ns for anchor in anchors}
        return [step for step in rank_steps.steps if step.start_ns in begins_ns]

    def _find_range_anchors(self, rank: Rank, pattern: str) -> Sequence[Range]:
        ranges = (
            self._ranges if pattern == self.convention.range_anchor else self.read_matching_ranges_by_trace((pattern,))
        )
        matches = make_pattern_matcher(pattern)
        process_ranges = ranges[rank.process.trace].get(rank.process.global_pid, ())
        return [r for r in process_ranges if r.end_ns != OPEN_END_NS and matches(r.name)]

    @memoize_method
    def read_matching_ranges_by_trace(self, patterns: tuple[str, ...]) -> list[Mapping[int, Ranges]]:
        """Read the ranges of each trace whose name matches one of the patterns, by process.

        They are sorted by start and include open ranges.
        """
        return [trace.ranges(patterns) for trace in self.traces]

    def list_rank_ranges(self, rank: Rank, patterns: tuple[str, ...]) -> Sequence[Range]:
        """List the ranges of a rank's process whose name matches one of the patterns, by start, including open
        ranges.
        """
        return self.read_matching_ranges_by_trace(patterns)[rank.process.trace].get(rank.process.global_pid, ())

    def pick_windows(self, rank: Rank, spec: WindowSpec) -> list[Window]:
        """Pick the windows of a rank, before any kernel is read. It cannot pick the whole run, which is bounded by its
        kernels.

        Raises UsageMistake if a kind is requested together with a window that has no kinds, and NothingMeasured if
        there is no anchor.
        """
        if spec.kind is not None and (spec.explicit_span_ns is not None or spec.anchor is not None):
            window_text = sanitize_line(spec.window) + suggest_word(
                spec.window, (*WINDOW_WORDS, *self.convention.kind_names)
            )
            raise UsageMistake(f"'{spec.kind}' picks steps, and window {window_text} does not: leave one out")
        if spec.explicit_span_ns is not None:
            start, end = spec.explicit_span_ns
            return [Window(start, end, spec.window)]
        anchors = self.list_pickable_anchors(rank, spec)
        if not anchors:
            raise NothingMeasured(self._explain_no_anchor(rank, spec))
        picked_spec = spec
        if spec.window == MEDIAN and (shared_numbers := self.find_shared_steps(spec)):
            picked_spec = replace(spec, window=str(map_step_numbers(anchors)[shared_numbers[len(shared_numbers) // 2]]))
        try:
            return pick_anchor_windows(anchors, picked_spec)
        except NothingMeasured as error:
            raise NothingMeasured(f"{rank.trace}: rank {rank.number}: {error}") from None

    @memoize_method
    def find_shared_steps(self, spec: WindowSpec) -> Sequence[int]:
        """Return the sorted numbers of the whole steps that all ranks hold, so that ranks are compared on the same
        step.

        It is empty if all ranks hold the same steps anyway, if none is shared, or if names do not number the steps.
        """
        if not marks_steps(self.convention, spec) or self.convention.kinds or len(self.ranks) < 2:
            return ()
        numbers_by_rank = []
        for rank in self.ranks:
            anchors = self.list_pickable_anchors(rank, spec)
            numbers_by_rank.append([*map_step_numbers(anchors)][: count_whole_steps(anchors)])
        if all(rank_numbers == numbers_by_rank[0] for rank_numbers in numbers_by_rank):
            return ()
        return sorted(set(numbers_by_rank[0]).intersection(*numbers_by_rank[1:]))

    def _explain_no_anchor(self, rank: Rank, spec: WindowSpec) -> str:
        if isinstance(find_anchor(self.convention, spec), KernelAnchor):
            remedy = f"`pytest-nsys init {shlex.quote(str(rank.trace))}` finds the step anew"
            missing_reason = self._find_steps(rank.number, self._counts_by_launch(spec)).missing_reason
            return f"{rank.trace}: rank {rank.number} (process {rank.pid}): {missing_reason}; {remedy}"
        if self.convention.kinds and spec.anchor is None and self.find_anchors(rank):
            missing_steps = f"rank {rank.number} has no {spec.kind or 'such'} step, though another rank has"
            return f"{rank.trace}: {missing_steps}: give the traces of one engine"
        return explain_no_anchor(self.traces[rank.process.trace], self.convention, rank, spec)

    @memoize_method
    def load_windows(self, spec: WindowSpec) -> WindowGroup:
        """Load the windows of every rank with their kernels."""
        return WindowGroup(self, spec)

    def load_whole_run(self) -> WindowGroup:
        """Load all kernels of the run as one window per rank."""
        return self.load_windows(WindowSpec(RUN))

    def find_gpu_model(self) -> str | None:
        """Return the model of the GPUs that the ranks used, several joined by ``+``; None if no trace says it."""
        return " + ".join(sorted({model for models in self.gpu_models_by_rank.values() for model in models})) or None

    @cached_property
    def gpu_models_by_rank(self) -> Mapping[int, frozenset[str]]:
        """The models of the GPUs that each rank used, by rank number; empty if its trace does not say."""
        models_by_rank: dict[int, frozenset[str]] = {}
        for trace_index, facts in enumerate(self.facts):
            only_model = facts.models if len(facts.models) == 1 else ()
            for rank in self.list_trace_ranks(trace_index):
                rank_models = {
                    m for (pid, gpu), m in facts.gpus.items() if pid == rank.pid and rank.device in (gpu, None)
                }
                models_by_rank[rank.number] = frozenset(rank_models or only_model)
        return models_by_rank

    @cached_property
    def ranks_of_shared_gpus(self) -> Sequence[Sequence[Rank]]:
        """The groups of ranks that share a GPU between several processes, as far as the traces identify GPUs."""
        process_gpus = {(n, pid, uuid) for n, facts in enumerate(self.facts) for (pid, _), uuid in facts.uuids.items()}
        users = Counter(uuid for _, _, uuid in process_gpus)
        if all(count == 1 for count in users.values()):  # finding the devices of labelled processes takes reading
            return ()
        rank_devices = [(rank, device) for rank in self.ranks for device in self._list_devices(rank)]
        ranks_by_gpu = group_by_key(
            (self.identify_gpu(rank.process, device), rank) for rank, device in rank_devices
        ).values()
        return [gpu_ranks for gpu_ranks in ranks_by_gpu if len({rank.process for rank in gpu_ranks}) > 1]

    def _list_devices(self, rank: Rank) -> Sequence[int]:
        if rank.device is not None:
            return [rank.device]
        lanes = self.traces[rank.process.trace].lanes()
        lane_devices = (lane.device for lane in lanes if lane.global_pid == rank.process.global_pid)
        return [device for device in lane_devices if device is not None]

    def identify_gpu(self, process: ProcessId, device: int) -> object:
        """Return a value that identifies, among all GPUs of the run, the GPU that a process calls ``device``."""
        uuid = self.facts[process.trace].uuids.get((process.pid, device))
        return (process, device) if uuid is None or process in self._ambiguous_processes else uuid

    @cached_property
    def _ambiguous_processes(self) -> frozenset[ProcessId]:
        """Processes of several machines or containers that share one process id, so that nothing identifies their
        devices.
        """
        processes_by_number = group_by_key(
            ((process.trace, process.pid), process) for process in {rank.process for rank in self.ranks}
        )
        return frozenset(
            process for processes in processes_by_number.values() if len(processes) > 1 for process in processes
        )

    def count_gpus(self, rank_numbers: Collection[int]) -> int:
        """Count the GPUs of some ranks; a GPU that several of them used counts once."""
        sharing_ranks = (
            [rank.number for rank in gpu_ranks if rank.number in rank_numbers]
            for gpu_ranks in self.ranks_of_shared_gpus
        )
        return len(rank_numbers) - sum(max(len(numbers) - 1, 0) for numbers in sharing_ranks)

    @cached_property
    def libraries(self) -> frozenset[str]:
        """The known libraries whose kernels communicate anywhere in the run, without being named in the convention."""
        traces = self.traces if self.convention.libraries else ()
        kernels = {kernel_names for trace in traces for kernel_names in trace.library_kernels()}
        added_kernels = (
            kernel_names for kernel_names in kernels if not self.convention.is_named_communication(*kernel_names)
        )
        return frozenset(
            known_library.library
            for kernel_names in added_kernels
            if (known_library := find_communication_library(*kernel_names)) is not None
        )

    def close(self) -> None:
        """Close the files of the traces."""
        for trace in self.traces:
            trace.close()


def select_ranks(ranks: Iterable[Rank], numbers: Collection[int]) -> dict[int, Rank]:
    """Return the ranks with these numbers, by number; all if no number is given.

    Raises UsageMistake for a number that no rank has.
    """
    rank_by_number = {rank.number: rank for rank in ranks}
    for number in numbers:
        if number not in rank_by_number:
            raise UsageMistake(
                f"there is no rank {number}: the ranks are {', '.join(map(str, sorted(rank_by_number)))}"
            )
    return {number: rank for number, rank in rank_by_number.items() if number in (numbers or rank_by_number)}


@dataclass(frozen=True)
class RunWindow:
    """Holds one picked window of every rank, on which a metric of the whole run is measured."""

    run: Run
    by_rank: Mapping[int, RankWindow]  # windows of two traces may use two clocks
    group: WindowGroup  # the group that they were picked from


# A profiler stops within a second, so no kernel of a session ends later.
MAX_PROFILER_STOP_NS = 1_000_000_000
"""The latest time after the end of a profiling session at which one of its kernels may end, in ns."""


class UnlaunchedKernels(NamedTuple):
    """Counts the kernels that have no launch on record, and sums their time, among all kernels."""

    unlaunched_count: int = 0  # without a launch
    kernel_count: int = 0  # all of them
    unlaunched_ns: int = 0
    kernel_ns: int = 0

    @property
    def time_share(self) -> Fraction:
        """The share of kernel time that is in unlaunched kernels, as a fraction."""
        return Fraction(self.unlaunched_ns, self.kernel_ns or 1)

    @classmethod
    def measure(cls, kernels: Kernels, launch_times_ns: Column) -> UnlaunchedKernels:
        """Count the kernels without a launch, whose entry in ``launch_times_ns`` is NO_LAUNCH."""
        lengths_ns, unlaunched = (
            subtract(kernels.end_ns, kernels.start_ns),
            find_nonzero(mark_equal(launch_times_ns, NO_LAUNCH)),
        )
        return cls(len(unlaunched), len(kernels), sum_column(take(lengths_ns, unlaunched)), sum_column(lengths_ns))

    @classmethod
    def add_up(cls, parts: Iterable[UnlaunchedKernels]) -> UnlaunchedKernels:
        """Return the sum of several counts."""
        return cls(*map(sum, zip(cls(), *parts, strict=True)))


class WindowGroup:
    """Holds the windows of all ranks for one window spec; launches and ranges are read on first use, for all ranks at
    once.
    """

    def __init__(self, run: Run, spec: WindowSpec) -> None:
        self.run, self.spec = run, spec
        if spec.is_whole_run and spec.kind is not None:
            raise UsageMistake(f"'{spec.kind}' picks steps, and window {RUN} has none: leave one out")
        self.picked_windows: dict[int, list[Window]] = {}
        self._errors_by_rank: dict[int, NothingMeasured] = {}
        for rank in run.ranks if not spec.is_whole_run else ():
            self._pick_rank_windows(rank)
        self.trace_contexts = [self._read_trace_context(number) for number in range(len(run.traces))]
        ranks = [rank for number in range(len(run.traces)) for rank in self._list_measured_ranks(number)]
        self.tracks = {rank.number: RankTrack(rank, self.trace_contexts[rank.process.trace], self) for rank in ranks}
        self.windows_by_rank: dict[int, list[RankWindow]] = {
            number: self._build_rank_windows(self.tracks[number]) for number in sorted(self.tracks)
        }

    def __iter__(self) -> Iterator[RankWindow]:
        """Iterate over every window of every rank."""
        return (window for windows in self.windows_by_rank.values() for window in windows)

    def _pick_rank_windows(self, rank: Rank) -> None:
        """Pick the windows of a rank. A rank without a window is an error only when it is requested."""
        try:
            self.picked_windows[rank.number] = self.run.pick_windows(rank, self.spec)
        except NothingMeasured as error:
            self._errors_by_rank[rank.number] = error

    def _list_measured_ranks(self, trace_index: int) -> list[Rank]:
        """List the ranks of a trace that have a window."""
        return [rank for rank in self.run.list_trace_ranks(trace_index) if rank.number not in self._errors_by_rank]

    @property
    def _is_by_launch(self) -> bool:
        """Whether a kernel belongs to the window that launched it, wherever it ran on the GPU."""
        return self.spec.is_by_launch

    def _read_trace_context(self, trace_index: int) -> TraceContext:
        """Read what a trace holds around the windows of its ranks."""
        trace = self.run.traces[trace_index]
        if self.spec.is_whole_run:
            return self.run.read_whole_trace(trace_index)
        windows = {
            rank.lane: self.picked_windows.get(rank.number, ()) for rank in self._list_measured_ranks(trace_index)
        }
        are_steps = marks_steps(self.run.convention, self.spec) and self.spec.explicit_span_ns is None
        end_margin_ns = int(are_steps and self._is_by_launch)  # the launch at the end edge belongs to the next step
        hulls = {
            lane: find_hull((w.start_ns, w.end_ns - end_margin_ns) for w in lane_windows)
            for lane, lane_windows in windows.items()
            if lane_windows
        }
        spans: dict[Lane, Interval | None] = {lane: hulls.get(lane) for lane in windows}
        kernels: Mapping[Lane, Kernels] = {}
        if spans:
            kernels = trace.kernels_launched(hulls) if self._is_by_launch else trace.kernels(spans)
        return TraceContext(trace, self.run.convention, kernels, spans)

    @cached_property
    def gpu_tracks(self) -> Mapping[int, RankTrack]:
        """Everything that ran on each rank's GPU in the windows, by rank number.

        For windows of launches this is more than what was launched in them.
        """
        if not self._is_by_launch:
            return self.tracks
        numbered_ranks = ((number, track.rank) for number, track in self.tracks.items())
        return {
            number: RankTrack(rank, self._gpu_contexts[rank.process.trace], self) for number, rank in numbered_ranks
        }

    @cached_property
    def _gpu_contexts(self) -> list[TraceContext]:
        """What each trace ran from the start of the windows' first kernel to the end of the last, whenever it was
        launched.
        """
        traces_and_spans = [(trace, self._find_filled_spans(number)) for number, trace in enumerate(self.run.traces)]
        return [
            TraceContext(trace, self.run.convention, trace.kernels(spans), spans) for trace, spans in traces_and_spans
        ]

    @cached_property
    def contexts_after(self) -> list[TraceContext]:
        """What started after the windows of each trace, on every lane at least until compute started."""
        contexts = []
        for number, trace_context in enumerate(self._gpu_contexts if self._is_by_launch else self.trace_contexts):
            ends = {lane: span[1] for lane, span in trace_context.spans.items() if span is not None}
            windows = (w for rank in self._list_measured_ranks(number) for w in self.windows_by_rank[rank.number])
            longest_ns = max((w.length_ns for w in windows), default=0)
            contexts.append(read_until_compute(trace_context.trace, self.run.convention, ends, longest_ns))
        return contexts

    @cached_property
    def copies_by_trace(self) -> list[Mapping[Lane, Sequence[Copy]] | None]:
        """The copies of each trace that are launched in the windows, or at most a window's length before one.

        One pass reads them for all ranks. An entry is None for a trace that does not say between which memories its
        copies move.
        """
        copies = []
        for number, trace in enumerate(self.run.traces):
            lane_windows = [
                (rank.lane, self.windows_by_rank[rank.number]) for rank in self._list_measured_ranks(number)
            ]
            spans = {
                lane: find_hull(_extend_backwards(w) for w in windows) for lane, windows in lane_windows if windows
            }
            copies.append(trace.copies(spans))
        return copies

    def _find_filled_spans(self, trace_index: int) -> dict[Lane, Interval | None]:
        """Return the time from the first filled window of each process to its last one, by lane of a trace.

        The time is that of the process, not of the lane: before or after the windows of one device, it may have waited
        for what another device of the process ran.
        """
        ranks = self._list_measured_ranks(trace_index)
        spans_by_process = group_by_key(
            (rank.process, w.full_span_ns) for rank in ranks for w in self.windows_by_rank[rank.number] if len(w)
        )
        return {
            rank.lane: find_hull(spans_by_process[rank.process]) for rank in ranks if rank.process in spans_by_process
        }

    @cached_property
    def unlaunched(self) -> UnlaunchedKernels:
        """The unlaunched kernels among those that ran while the windows' kernels did."""
        return UnlaunchedKernels.add_up(
            UnlaunchedKernels.measure(trace_context.kernels[lane], calls.start_ns)
            for trace_context in self._gpu_contexts
            for lane, calls in trace_context.launch_calls.items()
        )

    @cached_property
    def out_of_session_kernel_count(self) -> int:
        """The number of kernels around the windows that start before the profiler's session or end after it."""
        count = 0
        for track in self.tracks.values():
            starts = track.kernels.start_ns
            count += bisect_left(starts, 0)
            process = track.rank.process
            facts = self.run.facts[process.trace]
            session_ns = facts.sessions_ns.get(process.global_pid, facts.session_ns)
            if (
                session_ns is not None and len(starts) and starts[0] <= session_ns
            ):  # otherwise its times have another origin
                count += len(starts) - bisect_right(starts, session_ns)
                latest_end_ns = session_ns + MAX_PROFILER_STOP_NS
                if find_min_max(track.kernels.end_ns)[1] > latest_end_ns:
                    ends = track.kernels.end_ns[: bisect_right(starts, session_ns)]
                    count += sum(end > latest_end_ns for end in ends)
        return count

    def _build_rank_windows(self, track: RankTrack) -> list[RankWindow]:
        rank = track.rank
        if self.spec.is_whole_run:
            if not len(track.kernels):
                nothing = f"rank {rank.number} ran no kernel: profile it again, or give the traces of the others"
                self._errors_by_rank[rank.number] = NothingMeasured(f"{rank.trace}: {nothing}")
                return []
            self.picked_windows[rank.number] = [Window(*find_work_span(track.kernels), RUN)]
        windows = self.picked_windows[rank.number]
        return [RankWindow(track, w, self.spec, select_window_kernels(track, w, self.spec)) for w in windows]

    def require_filled_windows(self, rank_numbers: Container[int] | None = None) -> dict[int, list[RankWindow]]:
        """Return the windows of all ranks, or of some, by rank number; none of them is empty.

        Raises NothingMeasured if a rank has no window, or an empty one.
        """
        chosen_numbers = [
            n
            for n in sorted({*self.windows_by_rank, *self._errors_by_rank})
            if rank_numbers is None or n in rank_numbers
        ]
        for number in chosen_numbers:
            windows = self.windows_by_rank.get(number, [])
            if number not in self._errors_by_rank and not all(map(len, windows)):  # explained once, then kept
                track = None if self.spec.is_whole_run else self.run.load_whole_run().tracks[number]
                self._errors_by_rank[number] = NothingMeasured(explain_empty_windows(windows, track))
            if number in self._errors_by_rank:
                raise self._errors_by_rank[number]
        return {number: self.windows_by_rank[number] for number in chosen_numbers}

    @memoize_method
    def list_run_windows(self, rank_numbers: frozenset[int] | None = None) -> Sequence[RunWindow]:
        """Return the windows of all ranks, or of some, as run windows: first the first window of every rank, then the
        second, and so on.

        Raises NothingMeasured as :meth:`require_filled_windows` does, and if the ranks have different numbers of
        windows.
        """
        if rank_numbers is not None and rank_numbers >= {*self.windows_by_rank, *self._errors_by_rank}:
            return self.list_run_windows()  # reuses the memoized sums over all ranks
        windows_by_rank = self.require_filled_windows(rank_numbers)
        counts = {len(windows) for windows in windows_by_rank.values()}
        if len(counts) > 1:
            raise NothingMeasured(
                f"{self.run.traces[0].path}: the ranks have from {min(counts)} to {max(counts)} windows, so no window "
                "is that of the whole run: take one window, as in window: median"
            )
        return [
            RunWindow(self.run, {number: windows[i] for number, windows in windows_by_rank.items()}, self)
            for i in range(max(counts, default=0))
        ]


def _extend_backwards(window: RankWindow) -> Interval:
    """Return the span of a window, extended backwards by its own length."""
    before_ns = window.start_ns - window.length_ns
    return min(before_ns, window.window.start_ns), max(window.end_ns, window.window.end_ns)


# The first read looks at least 1 ms ahead, each further one eight times as far: few reads, and little excess.
_MIN_REACH_NS, _REACH_GROWTH = 1_000_000, 8


def read_until_compute(
    trace: Trace, convention: Convention, ends: Mapping[Lane, int], first_reach_ns: int
) -> TraceContext:
    """Read what started on each lane after a time, at least until a compute kernel of nonzero length, or to the end.

    ``ends`` has the time in ns by lane. ``first_reach_ns`` is how far ahead the first read looks.
    """
    reach_ns = dict.fromkeys(ends, max(first_reach_ns, _MIN_REACH_NS))
    kernels_by_lane: dict[Lane, Kernels] = {}
    spans_by_lane: dict[Lane, Interval | None] = {}
    while reach_ns:
        next_spans = {
            lane: (ends[lane], min(ends[lane] + lane_reach_ns, MAX_COLUMN_NS))
            for lane, lane_reach_ns in reach_ns.items()
        }
        new_kernels = {
            lane: _select_kernels_after(kernels, next_spans[lane][0])
            for lane, kernels in trace.kernels(dict(next_spans)).items()
        }
        kernels_by_lane.update(new_kernels)
        spans_by_lane.update(next_spans)
        new_context = TraceContext(trace, convention, new_kernels)
        unfinished_ends = {
            lane: end
            for lane, (_, end) in next_spans.items()
            if not _has_compute(new_context, lane) and end < MAX_COLUMN_NS
        }
        idle_lanes = (
            trace.idle({lane: [(end, OPEN_END_NS)] for lane, end in unfinished_ends.items()}) if unfinished_ends else {}
        )
        reach_ns = {lane: reach_ns[lane] * _REACH_GROWTH for lane in unfinished_ends if lane not in idle_lanes}
    context = TraceContext(trace, convention, kernels_by_lane, spans_by_lane)
    if context.transfers is not None:
        context.transfers = {
            lane: _select_kernels_after(transfers, ends[lane]) for lane, transfers in context.transfers.items()
        }
    return context


def _select_kernels_after(kernels: Kernels, time_ns: int) -> Kernels:
    return kernels.take(range(bisect_right(kernels.start_ns, time_ns), len(kernels)))


def _has_compute(trace_context: TraceContext, lane: Lane) -> bool:
    kernels = trace_context.kernels.get(lane)
    if kernels is None or not len(kernels):
        return False
    compute_kernels = find_zeros(trace_context.flag_communication(lane)[0])
    return is_exceeded(take(kernels.end_ns, compute_kernels), take(kernels.start_ns, compute_kernels))
