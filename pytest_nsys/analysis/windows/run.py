"""Which ranks, anchors and kernels does one run have, in any window?

A run is opened once. Every table is read once per question for all ranks of a trace together, and then memoized: a
second metric, assertion or gate file with the same window reads nothing.
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

from pytest_nsys.analysis.windows.kernel_anchors import LaunchedKernels, steps_of_kernel
from pytest_nsys.analysis.windows.measurements import Measurements
from pytest_nsys.analysis.windows.rank_steps import steps_by_launch, steps_by_time
from pytest_nsys.analysis.windows.rank_window import RankWindow, explain_empty, explain_no_anchor, in_window
from pytest_nsys.analysis.windows.spans import (
    MEDIAN,
    RUN,
    WORDS,
    RankSteps,
    WindowSpec,
    anchor_of,
    anchor_windows,
    find_ranks,
    lasting,
    marks_steps,
    numbered,
    read_labels,
    whole_steps,
)
from pytest_nsys.analysis.windows.step_kinds import RunSteps
from pytest_nsys.analysis.windows.tracks import LONGEST_NS, Around, RankTrack, from_to
from pytest_nsys.core.columns import Column, bounds, equal, exceeds, minus, take, total, where, where_not
from pytest_nsys.core.conventions import Convention, KernelAnchor, like
from pytest_nsys.core.errors import NothingMeasured, UsageMistake, did_you_mean
from pytest_nsys.core.families import known_communication
from pytest_nsys.core.intervals import hull
from pytest_nsys.core.kept import grouped, kept
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
    StepsOfRun,
    TraceFacts,
    Window,
)
from pytest_nsys.core.tables import Kernels, Ranges
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.words import printable
from pytest_nsys.core.workload import Workload
from pytest_nsys.traces.copies_as_kernels import with_copies


class Run:
    """Represents one execution of the program: its traces, read under one convention.

    ``measurements`` stand beside the traces, of which there may then be none. Raises TraceError where the traces cannot
    be judged.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        convention: Convention,
        workload: Workload | None = None,
        measurements: Measurements | None = None,
    ) -> None:
        self.measurements = measurements or Measurements()
        self.traces = tuple(with_copies(trace, convention.copies) for trace in traces)
        self.convention = convention
        self.workload = workload or Workload()
        self._anchors: dict[tuple[int, str], Sequence[Range]] = {}

    @cached_property
    def facts(self) -> tuple[TraceFacts, ...]:
        """What each trace says about its machine and its profiler."""
        return tuple(trace.facts() for trace in self.traces)

    @property
    def path(self) -> Path:
        """The first file of the run, by which messages name it."""
        return self.traces[0].path if self.traces else self.measurements.paths[0]

    @property
    def files(self) -> int:
        """The number of the profiler's files that the run is made of."""
        return sum(facts.files for facts in self.facts)

    @cached_property
    def _ranges(self) -> list[Mapping[int, Sequence[Range]]]:
        """The ranges that are anchors or setup labels, of each trace by process, from one pass."""
        patterns = [self.convention.range_anchor, self.convention.setup_pattern]
        return [trace.ranges([p for p in patterns if p is not None]) for trace in self.traces]

    @cached_property
    def _found(self) -> tuple[tuple[Rank, ...], tuple[Note, ...]]:
        traces_and_ranges = zip(self.traces, self._ranges, strict=True)
        labels = [read_labels(trace, ranges, self.convention) for trace, ranges in traces_and_ranges]
        return find_ranks(self.traces, labels, [facts.numbers for facts in self.facts])

    @cached_property
    def has_kernels(self) -> bool:
        """Whether any process ran a kernel."""
        return any(facts.has_kernels for facts in self.facts)

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """The ranks, sorted by number. Raises NothingMeasured for a run without kernels."""
        ranks = self._found[0]
        if not self.traces:
            return ()
        if not self.has_kernels:
            raise NothingMeasured(self._why_no_kernels())
        return ranks

    def ranks_of(self, trace: int) -> Sequence[Rank]:
        """Return the ranks of one trace, sorted by number."""
        return self._by_trace.get(trace, ())

    @cached_property
    def _by_trace(self) -> Mapping[int, Sequence[Rank]]:
        return grouped((rank.process.trace, rank) for rank in self.ranks)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The number of ranks along each axis of the mesh, as the setup labels say; empty without labels."""
        return next((rank.setup.sizes for rank in self.labelled_ranks if rank.setup is not None), {})

    @property
    def labelled_ranks(self) -> tuple[Rank, ...]:
        """The ranks that have a setup label, also in a run without kernels."""
        return tuple(rank for rank in self._found[0] if rank.setup is not None)

    @property
    def rank_notes(self) -> tuple[Note, ...]:
        """Notes on how the ranks were identified."""
        return self._found[1]

    def _why_no_kernels(self) -> str:
        names = ", ".join(str(trace.path) for trace in self.traces[:3])
        graph_count = sum(facts.whole_graphs for facts in self.facts)
        if graph_count:
            return (
                f"{names}: no kernels: {graph_count} CUDA graph replays were traced whole; use --cuda-graph-trace=node"
            )
        return f"{names}: no kernels: {self.facts[0].to_see_kernels}"

    def anchors(self, rank: Rank, spec: WindowSpec | None = None) -> Sequence[Range]:
        """Find the anchors of a rank, sorted by start, whether or not a kernel was launched in them.

        They are the closed ranges that match the pattern of the convention, or that of the spec, or the steps of a
        kernel that is the anchor.
        """
        anchor = anchor_of(self.convention, spec)
        if isinstance(anchor, KernelAnchor):
            return self._steps_of(rank.number, self._by_launch(spec)).steps
        if anchor is None:
            return ()
        if (rank.number, anchor) not in self._anchors:
            self._anchors[rank.number, anchor] = self._find_anchors(rank, anchor)
        return self._anchors[rank.number, anchor]

    def _by_launch(self, spec: WindowSpec | None) -> bool:
        """Return whether kernels count by their launches.

        The whole run has no mode of its own, so that of the convention counts.
        """
        mode = self.convention.kernels if spec is None or spec.whole_run else spec.kernels
        return mode is KernelsMode.LAUNCHED

    def rank_steps(self, rank: Rank, spec: WindowSpec) -> RankSteps | None:
        """Find the steps of a rank that have a window, of whatever kind; None where anchors mark no steps."""
        return self._steps_of(rank.number, self._by_launch(spec)) if marks_steps(self.convention, spec) else None

    def labels_of_a_step(self, rank: Rank) -> int:
        """Return how many labels the longest step of a rank has: several where they alternate, else 1."""
        spec = WindowSpec(kernels=self.convention.kernels)
        if self.convention.kinds or self.convention.kernel_anchor is not None or not self._by_launch(spec):
            return 1
        rank_steps, anchor_starts_ns = self.rank_steps(rank, spec), [anchor.start_ns for anchor in self.anchors(rank)]
        if rank_steps is None:
            return 1
        label_counts = (
            bisect_left(anchor_starts_ns, step.end_ns) - bisect_left(anchor_starts_ns, step.start_ns)
            for step in rank_steps.steps[:-1]
        )
        return max(label_counts, default=1)

    def steps_to_keep(self, rank: Rank) -> Mapping[tuple[str, bool], StepsOfRun]:
        """Return the steps of a rank that a cut stores, by (anchor, whether by launch); combinations without steps are
        absent.
        """
        if not marks_steps(self.convention):
            return {}
        steps_by_mode = {
            (str(self.convention.anchor), by_launch): self._steps_of(rank.number, by_launch)
            for by_launch in (False, True)
        }
        return {
            anchor_and_mode: rank_steps.of_run
            for anchor_and_mode, rank_steps in steps_by_mode.items()
            if rank_steps.steps
        }

    @cached_property
    def _by_number(self) -> Mapping[int, Rank]:
        return {rank.number: rank for rank in self._found[0]}

    @kept
    def _steps_of(self, number: int, by_launch: bool) -> RankSteps:
        rank = self._by_number[number]
        anchor, trace_index, lane = self.convention.anchor, rank.process.trace, rank.lane
        kernel_anchor = self.convention.kernel_anchor
        anchors = self.anchors(rank) if kernel_anchor is None else ()
        if (stored_steps := self.facts[trace_index].units.get((lane, str(anchor), by_launch))) is not None:
            return RankSteps.kept(stored_steps, anchors, str(anchor))
        if kernel_anchor is not None:
            trace_context = self.everything(trace_index)
            if lane not in trace_context.kernels:
                return RankSteps((), why="it ran no kernel")
            rank_kernels = LaunchedKernels(trace_context.kernels[lane], trace_context.launch_calls[lane].start_ns)
            return steps_of_kernel(kernel_anchor, rank_kernels, by_launch=by_launch)
        extend_last_step = bool(self.convention.kinds)  # sampling runs after its range
        if by_launch:
            return steps_by_launch(self.whole().tracks[rank.number], anchors, to_the_end=extend_last_step)
        kernel_ends_ns = self.whole().tracks[rank.number].kernels.end_ns if extend_last_step else ()
        return steps_by_time(anchors, to_the_end=max(kernel_ends_ns, default=None))

    @kept
    def copies_between_gpus(self, trace: int) -> Mapping[Lane, Kernels]:
        """Read the copies that move data between GPUs, by lane, unless the convention counts them as communication."""
        return self.traces[trace].copies_between_gpus()

    @kept
    def everything(self, trace: int) -> Around:
        """Read all that the ranks of a trace ran."""
        spans: dict[Lane, Interval | None] = {rank.lane: None for rank in self.ranks_of(trace)}
        return Around(self.traces[trace], self.convention, self.traces[trace].kernels(spans) if spans else {}, spans)

    def have_anchors(self, patterns: Sequence[str]) -> frozenset[str]:
        """Return those patterns of which every rank has a closed range, from one pass over each trace.

        In a run without kernels, every labelled rank needs one.
        """
        label_patterns = [self.convention.setup_pattern] if self.convention.setup_pattern is not None else []
        # One pass finds the ranks' labels too.
        ranges_by_trace = self.ranges_named(tuple(dict.fromkeys([*patterns, *label_patterns])))
        ranks = self.ranks if self.has_kernels else self.labelled_ranks
        ranges_by_rank = [ranges_by_trace[rank.process.trace].get(rank.process.global_pid, ()) for rank in ranks]
        names_by_rank = [{r.name for r in rank_ranges if r.end_ns != OPEN_END_NS} for rank_ranges in ranges_by_rank]
        matchers = {pattern: like(pattern) for pattern in patterns}
        return frozenset(
            p for p, matches in matchers.items() if all(any(map(matches, rank_names)) for rank_names in names_by_rank)
        )

    @cached_property
    def steps(self) -> RunSteps:
        """The anchors as steps by kind; empty where steps have no kinds."""
        anchors_by_rank = {rank.number: self.anchors(rank) for rank in self.ranks} if self.convention.kinds else {}
        return RunSteps(self.convention, anchors_by_rank, str(self.path))

    def marks(self, rank: Rank, spec: WindowSpec) -> Sequence[Range]:
        """Find the anchors among which a spec picks, also those without a kernel.

        Where steps have kinds they are those of the spec's kind; in a span of time, or the whole run, those of any.
        Raises as :meth:`StepsByKind.select_steps` does.
        """
        anchors = self.anchors(rank, spec)
        if not self.convention.kinds or spec.anchor is not None or not anchors:
            return anchors
        if spec.whole_run or spec.explicit is not None:
            return self.steps.by_rank[rank.number]
        return self.steps.of(rank.number, spec.kind)

    def anchors_under(self, rank: Rank, spec: WindowSpec) -> Sequence[Range]:
        """List the anchors from which a spec's windows are picked: of steps those with a window, each until the next
        one.

        Raises as :meth:`StepsByKind.select_steps` does.
        """
        anchors = self.marks(rank, spec)
        if not anchors or (rank_steps := self.rank_steps(rank, spec)) is None:
            return anchors
        if not rank_steps.steps:  # whose windows are empty, which says why
            return lasting(anchors)
        if not self.convention.kinds:
            return rank_steps.steps
        begins_ns = {anchor.start_ns for anchor in anchors}
        return [step for step in rank_steps.steps if step.start_ns in begins_ns]

    def _find_anchors(self, rank: Rank, pattern: str) -> Sequence[Range]:
        ranges = self._ranges if pattern == self.convention.range_anchor else self.ranges_named((pattern,))
        matches = like(pattern)
        process_ranges = ranges[rank.process.trace].get(rank.process.global_pid, ())
        return [r for r in process_ranges if r.end_ns != OPEN_END_NS and matches(r.name)]

    @kept
    def ranges_named(self, patterns: tuple[str, ...]) -> list[Mapping[int, Ranges]]:
        """Read the ranges whose name matches one of the patterns, of each trace by process.

        They are sorted by start; open ones are among them.
        """
        return [trace.ranges(patterns) for trace in self.traces]

    def named(self, rank: Rank, patterns: tuple[str, ...]) -> Sequence[Range]:
        """List the ranges of a rank's process whose name matches one of the patterns, by start, open ones too."""
        return self.ranges_named(patterns)[rank.process.trace].get(rank.process.global_pid, ())

    def windows(self, rank: Rank, spec: WindowSpec) -> list[Window]:
        """Pick the windows of a rank, before any kernel is read; not for the whole run, which its kernels bound.

        Raises UsageMistake where a kind and a window without kinds are requested, NothingMeasured where there is no
        anchor.
        """
        if spec.kind is not None and (spec.explicit is not None or spec.anchor is not None):
            window_text = printable(spec.window) + did_you_mean(spec.window, (*WORDS, *self.convention.kind_names))
            raise UsageMistake(f"'{spec.kind}' picks steps, and window {window_text} does not: leave one out")
        if spec.explicit is not None:
            start, end = spec.explicit
            return [Window(start, end, spec.window)]
        anchors = self.anchors_under(rank, spec)
        if not anchors:
            raise NothingMeasured(self._why_no_anchor(rank, spec))
        picked_spec = spec
        if spec.window == MEDIAN and (shared_numbers := self.shared_steps(spec)):
            picked_spec = replace(spec, window=str(numbered(anchors)[shared_numbers[len(shared_numbers) // 2]]))
        try:
            return anchor_windows(anchors, picked_spec)
        except NothingMeasured as error:
            raise NothingMeasured(f"{rank.trace}: rank {rank.number}: {error}") from None

    @kept
    def shared_steps(self, spec: WindowSpec) -> Sequence[int]:
        """Return the sorted numbers of the whole steps that all ranks hold, so that ranks are compared on the same
        step.

        It is empty where all ranks hold the same steps, where none is shared, and where names do not count steps.
        """
        if not marks_steps(self.convention, spec) or self.convention.kinds or len(self.ranks) < 2:
            return ()
        numbers_by_rank = []
        for rank in self.ranks:
            anchors = self.anchors_under(rank, spec)
            numbers_by_rank.append([*numbered(anchors)][: whole_steps(anchors)])
        if all(rank_numbers == numbers_by_rank[0] for rank_numbers in numbers_by_rank):
            return ()
        return sorted(set(numbers_by_rank[0]).intersection(*numbers_by_rank[1:]))

    def _why_no_anchor(self, rank: Rank, spec: WindowSpec) -> str:
        if isinstance(anchor_of(self.convention, spec), KernelAnchor):
            remedy = f"`pytest-nsys init {shlex.quote(str(rank.trace))}` finds the step anew"
            missing_reason = self._steps_of(rank.number, self._by_launch(spec)).why
            return f"{rank.trace}: rank {rank.number} (process {rank.pid}): {missing_reason}; {remedy}"
        if self.convention.kinds and spec.anchor is None and self.anchors(rank):
            missing_steps = f"rank {rank.number} has no {spec.kind or 'such'} step, though another rank has"
            return f"{rank.trace}: {missing_steps}: give the traces of one engine"
        return explain_no_anchor(self.traces[rank.process.trace], self.convention, rank, spec)

    @kept
    def measured(self, spec: WindowSpec) -> WindowGroup:
        """Load the windows of every rank with their kernels."""
        return WindowGroup(self, spec)

    def whole(self) -> WindowGroup:
        """Load all kernels of the run as one window per rank."""
        return self.measured(WindowSpec(RUN))

    def gpu_model(self) -> str | None:
        """Return the model of the GPUs that the ranks used, several joined by ``+``; None where no trace says it."""
        return " + ".join(sorted({model for models in self.gpu_models.values() for model in models})) or None

    @cached_property
    def gpu_models(self) -> Mapping[int, frozenset[str]]:
        """The models of the GPUs that each rank used, by rank number; empty where its trace does not say."""
        models_by_rank: dict[int, frozenset[str]] = {}
        for trace_index, facts in enumerate(self.facts):
            only_model = facts.models if len(facts.models) == 1 else ()
            for rank in self.ranks_of(trace_index):
                rank_models = {
                    m for (pid, gpu), m in facts.gpus.items() if pid == rank.pid and rank.device in (gpu, None)
                }
                models_by_rank[rank.number] = frozenset(rank_models or only_model)
        return models_by_rank

    @cached_property
    def shared_gpus(self) -> Sequence[Sequence[Rank]]:
        """The ranks of each GPU that several processes used, as far as the traces identify GPUs."""
        process_gpus = {(n, pid, uuid) for n, facts in enumerate(self.facts) for (pid, _), uuid in facts.uuids.items()}
        users = Counter(uuid for _, _, uuid in process_gpus)
        if all(count == 1 for count in users.values()):  # which devices a labelled process used takes reading
            return ()
        rank_devices = [(rank, device) for rank in self.ranks for device in self._devices_of(rank)]
        ranks_by_gpu = grouped((self.gpu_of(rank.process, device), rank) for rank, device in rank_devices).values()
        return [gpu_ranks for gpu_ranks in ranks_by_gpu if len({rank.process for rank in gpu_ranks}) > 1]

    def _devices_of(self, rank: Rank) -> Sequence[int]:
        if rank.device is not None:
            return [rank.device]
        lanes = self.traces[rank.process.trace].lanes()
        lane_devices = (lane.device for lane in lanes if lane.global_pid == rank.process.global_pid)
        return [device for device in lane_devices if device is not None]

    def gpu_of(self, process: ProcessId, device: int) -> object:
        """Return a value that identifies the GPU which a process calls ``device`` among all GPUs of the run."""
        uuid = self.facts[process.trace].uuids.get((process.pid, device))
        return (process, device) if uuid is None or process in self._namesakes else uuid

    @cached_property
    def _namesakes(self) -> frozenset[ProcessId]:
        """Processes of several machines or containers that share one id, so that nothing identifies their devices."""
        processes_by_number = grouped(
            ((process.trace, process.pid), process) for process in {rank.process for rank in self.ranks}
        )
        return frozenset(
            process for processes in processes_by_number.values() if len(processes) > 1 for process in processes
        )

    def count_gpus(self, ranks: Collection[int]) -> int:
        """Count the GPUs of some ranks, one that several of them used once."""
        sharing_ranks = ([rank.number for rank in gpu_ranks if rank.number in ranks] for gpu_ranks in self.shared_gpus)
        return len(ranks) - sum(max(len(numbers) - 1, 0) for numbers in sharing_ranks)

    @cached_property
    def libraries(self) -> frozenset[str]:
        """The known libraries whose kernels communicate anywhere in the run, although the convention does not name
        them.
        """
        traces = self.traces if self.convention.libraries else ()
        kernels = {kernel_names for trace in traces for kernel_names in trace.library_kernels()}
        added_kernels = (
            kernel_names for kernel_names in kernels if not self.convention.names_communication(*kernel_names)
        )
        return frozenset(
            known_library.library
            for kernel_names in added_kernels
            if (known_library := known_communication(*kernel_names)) is not None
        )

    def close(self) -> None:
        """Close the files of the traces."""
        for trace in self.traces:
            trace.close()


def chosen_ranks(ranks: Iterable[Rank], asked: Collection[int]) -> dict[int, Rank]:
    """Return the ranks with these numbers, by number; all where none is given.

    Raises UsageMistake for a number that no rank has.
    """
    rank_by_number = {rank.number: rank for rank in ranks}
    for number in asked:
        if number not in rank_by_number:
            raise UsageMistake(
                f"there is no rank {number}: the ranks are {', '.join(map(str, sorted(rank_by_number)))}"
            )
    return {number: rank for number, rank in rank_by_number.items() if number in (asked or rank_by_number)}


@dataclass(frozen=True)
class RunWindow:
    """Holds one picked window of every rank, on which a metric of the whole run is measured."""

    run: Run
    by_rank: Mapping[int, RankWindow]  # those of two traces stand on two clocks
    group: WindowGroup  # what they were picked from


# A profiler stops within a second of what runs, so no kernel of a session ends later.
LONG_AFTER_NS = 1_000_000_000
"""The latest time after the end of a profiling session at which one of its kernels may end, in ns."""


class Unlaunched(NamedTuple):
    """Counts the kernels that have no launch on record, with their time, among all kernels."""

    kernels: int = 0  # without a launch
    among: int = 0  # all of them
    ns: int = 0
    among_ns: int = 0

    @property
    def share(self) -> Fraction:
        """The unlaunched kernels' share of the kernel time, as a fraction."""
        return Fraction(self.ns, self.among_ns or 1)

    @classmethod
    def of(cls, kernels: Kernels, launches: Column) -> Unlaunched:
        """Count the kernels without a launch, whose entry in ``launch_times_ns`` is NO_LAUNCH."""
        lengths_ns, unlaunched = minus(kernels.end_ns, kernels.start_ns), where(equal(launches, NO_LAUNCH))
        return cls(len(unlaunched), len(kernels), total(take(lengths_ns, unlaunched)), total(lengths_ns))

    @classmethod
    def of_all(cls, each: Iterable[Unlaunched]) -> Unlaunched:
        """Return the sum of several counts."""
        return cls(*map(sum, zip(cls(), *each, strict=True)))


class WindowGroup:
    """Holds the windows of all ranks for one window spec; launches and ranges are read for all on first use."""

    def __init__(self, run: Run, spec: WindowSpec) -> None:
        self.run, self.spec = run, spec
        if spec.whole_run and spec.kind is not None:
            raise UsageMistake(f"'{spec.kind}' picks steps, and window {RUN} has none: leave one out")
        self.windows: dict[int, list[Window]] = {}
        self._without: dict[int, NothingMeasured] = {}
        for rank in run.ranks if not spec.whole_run else ():
            self._pick_windows(rank)
        self.around = [self._around(number) for number in range(len(run.traces))]
        ranks = [rank for number in range(len(run.traces)) for rank in self._trace_ranks(number)]
        self.tracks = {rank.number: RankTrack(rank, self.around[rank.process.trace], self) for rank in ranks}
        self.ranks: dict[int, list[RankWindow]] = {
            number: self._rank_windows(self.tracks[number]) for number in sorted(self.tracks)
        }

    def __iter__(self) -> Iterator[RankWindow]:
        """Iterate over every window of every rank."""
        return (window for windows in self.ranks.values() for window in windows)

    def _pick_windows(self, rank: Rank) -> None:
        """Pick the windows of a rank; one without a window is an error only when that rank is requested."""
        try:
            self.windows[rank.number] = self.run.windows(rank, self.spec)
        except NothingMeasured as error:
            self._without[rank.number] = error

    def _trace_ranks(self, trace: int) -> list[Rank]:
        """List the ranks of a trace that have a window."""
        return [rank for rank in self.run.ranks_of(trace) if rank.number not in self._without]

    @property
    def _by_launch(self) -> bool:
        """Whether kernels are in the windows that launched them, wherever on the GPU they ran."""
        return self.spec.by_launch

    def _around(self, number: int) -> Around:
        """Read what a trace holds around the windows of its ranks."""
        trace = self.run.traces[number]
        if self.spec.whole_run:
            return self.run.everything(number)
        windows = {rank.lane: self.windows.get(rank.number, ()) for rank in self._trace_ranks(number)}
        are_steps = marks_steps(self.run.convention, self.spec) and self.spec.explicit is None
        end_margin_ns = int(are_steps and self._by_launch)  # what begins the next step was not launched in this one
        hulls = {
            lane: hull((w.start_ns, w.end_ns - end_margin_ns) for w in lane_windows)
            for lane, lane_windows in windows.items()
            if lane_windows
        }
        spans: dict[Lane, Interval | None] = {lane: hulls.get(lane) for lane in windows}
        kernels: Mapping[Lane, Kernels] = {}
        if spans:
            kernels = trace.kernels_launched(hulls) if self._by_launch else trace.kernels(spans)
        return Around(trace, self.run.convention, kernels, spans)

    @cached_property
    def on_gpu(self) -> Mapping[int, RankTrack]:
        """All that ran on each rank's GPU in the windows, by rank number.

        For windows of launches that is more than was launched in them.
        """
        if not self._by_launch:
            return self.tracks
        numbered_ranks = ((number, track.rank) for number, track in self.tracks.items())
        return {number: RankTrack(rank, self._meanwhile[rank.process.trace], self) for number, rank in numbered_ranks}

    @cached_property
    def _meanwhile(self) -> list[Around]:
        """What each trace ran from the start of the windows' first kernel to the end of their last, whenever it was
        launched.
        """
        traces_and_spans = [(trace, self._filled_spans(number)) for number, trace in enumerate(self.run.traces)]
        return [Around(trace, self.run.convention, trace.kernels(spans), spans) for trace, spans in traces_and_spans]

    @cached_property
    def after(self) -> list[Around]:
        """What started after the windows of each trace, on every lane at least until compute did."""
        contexts = []
        for number, trace_context in enumerate(self._meanwhile if self._by_launch else self.around):
            ends = {lane: span[1] for lane, span in trace_context.spans.items() if span is not None}
            windows = (w for rank in self._trace_ranks(number) for w in self.ranks[rank.number])
            longest_ns = max((w.length_ns for w in windows), default=0)
            contexts.append(until_compute(trace_context.trace, self.run.convention, ends, longest_ns))
        return contexts

    @cached_property
    def copies(self) -> list[Mapping[Lane, Sequence[Copy]] | None]:
        """The copies of each trace that are launched in the windows, or at most a window's length before one.

        One pass reads them for all ranks. An entry is None for a trace that does not say between which memories they
        move.
        """
        copies = []
        for number, trace in enumerate(self.run.traces):
            lane_windows = [(rank.lane, self.ranks[rank.number]) for rank in self._trace_ranks(number)]
            spans = {lane: hull(_with_before(w) for w in windows) for lane, windows in lane_windows if windows}
            copies.append(trace.copies(spans))
        return copies

    def _filled_spans(self, trace: int) -> dict[Lane, Interval | None]:
        """Return the time from the first filled window of each process to its last one, by lane of a trace.

        It is that of the process and not of the lane: of its devices one may have waited before, or after, its own
        windows for what another device ran.
        """
        ranks = self._trace_ranks(trace)
        spans_by_process = grouped(
            (rank.process, w.ran_ns) for rank in ranks for w in self.ranks[rank.number] if len(w)
        )
        return {rank.lane: hull(spans_by_process[rank.process]) for rank in ranks if rank.process in spans_by_process}

    @cached_property
    def unlaunched(self) -> Unlaunched:
        """The kernels without a launch that ran while the windows' kernels did."""
        return Unlaunched.of_all(
            Unlaunched.of(trace_context.kernels[lane], calls.start_ns)
            for trace_context in self._meanwhile
            for lane, calls in trace_context.launch_calls.items()
        )

    @cached_property
    def out_of_session(self) -> int:
        """The number of kernels around the windows that start before the profiler's session, or end after it."""
        count = 0
        for track in self.tracks.values():
            starts = track.kernels.start_ns
            count += bisect_left(starts, 0)
            process = track.rank.process
            facts = self.run.facts[process.trace]
            session_ns = facts.sessions_ns.get(process.global_pid, facts.session_ns)
            if (
                session_ns is not None and len(starts) and starts[0] <= session_ns
            ):  # else its times count from elsewhere
                count += len(starts) - bisect_right(starts, session_ns)
                latest_end_ns = session_ns + LONG_AFTER_NS
                if bounds(track.kernels.end_ns)[1] > latest_end_ns:
                    ends = track.kernels.end_ns[: bisect_right(starts, session_ns)]
                    count += sum(end > latest_end_ns for end in ends)
        return count

    def _rank_windows(self, track: RankTrack) -> list[RankWindow]:
        rank = track.rank
        if self.spec.whole_run:
            if not len(track.kernels):
                nothing = f"rank {rank.number} ran no kernel: profile it again, or give the traces of the others"
                self._without[rank.number] = NothingMeasured(f"{rank.trace}: {nothing}")
                return []
            self.windows[rank.number] = [Window(*from_to(track.kernels), RUN)]
        windows = self.windows[rank.number]
        return [RankWindow(track, w, self.spec, in_window(track, w, self.spec)) for w in windows]

    def filled(self, ranks: Container[int] | None = None) -> dict[int, list[RankWindow]]:
        """Return the windows by rank number, of all ranks or of some, none of them empty.

        Raises NothingMeasured where a rank has no window, or an empty one.
        """
        chosen_numbers = [n for n in sorted({*self.ranks, *self._without}) if ranks is None or n in ranks]
        for number in chosen_numbers:
            windows = self.ranks.get(number, [])
            if number not in self._without and not all(map(len, windows)):  # explained once, whoever asks
                track = None if self.spec.whole_run else self.run.whole().tracks[number]
                self._without[number] = NothingMeasured(explain_empty(windows, track))
            if number in self._without:
                raise self._without[number]
        return {number: self.ranks[number] for number in chosen_numbers}

    @kept
    def together(self, ranks: frozenset[int] | None = None) -> Sequence[RunWindow]:
        """Return the windows of all ranks, or of some, as run windows: the first window of each rank, then the second,
        and so on.

        Raises NothingMeasured as :meth:`require_filled_windows` does, and where the ranks have different numbers of
        windows.
        """
        if ranks is not None and ranks >= {*self.ranks, *self._without}:
            return self.together()  # what was summed over all ranks is kept there
        windows_by_rank = self.filled(ranks)
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


def _with_before(window: RankWindow) -> Interval:
    """Return the span of a window, extended backwards by its own length."""
    before_ns = window.start_ns - window.length_ns
    return min(before_ns, window.window.start_ns), max(window.end_ns, window.window.end_ns)


# The first read looks 1 ms ahead at least, each next one eight times as far: few reads, and little too much.
_SHORTEST_NS, _LONGER = 1_000_000, 8


def until_compute(trace: Trace, convention: Convention, ends: Mapping[Lane, int], first_ns: int) -> Around:
    """Read what started on each lane after a time, at least until a compute kernel that takes time, or to the end.

    ``ends`` has the time by lane. ``first_reach_ns`` is how far ahead the first read looks.
    """
    reach_ns = dict.fromkeys(ends, max(first_ns, _SHORTEST_NS))
    kernels_by_lane: dict[Lane, Kernels] = {}
    spans_by_lane: dict[Lane, Interval | None] = {}
    while reach_ns:
        next_spans = {
            lane: (ends[lane], min(ends[lane] + lane_reach_ns, LONGEST_NS)) for lane, lane_reach_ns in reach_ns.items()
        }
        new_kernels = {
            lane: _after(kernels, next_spans[lane][0]) for lane, kernels in trace.kernels(dict(next_spans)).items()
        }
        kernels_by_lane.update(new_kernels)
        spans_by_lane.update(next_spans)
        new_context = Around(trace, convention, new_kernels)
        unfinished_ends = {
            lane: end for lane, (_, end) in next_spans.items() if not _computes(new_context, lane) and end < LONGEST_NS
        }
        idle_lanes = (
            trace.idle({lane: [(end, OPEN_END_NS)] for lane, end in unfinished_ends.items()}) if unfinished_ends else {}
        )
        reach_ns = {lane: reach_ns[lane] * _LONGER for lane in unfinished_ends if lane not in idle_lanes}
    context = Around(trace, convention, kernels_by_lane, spans_by_lane)
    if context.transfers is not None:
        context.transfers = {lane: _after(transfers, ends[lane]) for lane, transfers in context.transfers.items()}
    return context


def _after(kernels: Kernels, moment: int) -> Kernels:
    return kernels.take(range(bisect_right(kernels.start_ns, moment), len(kernels)))


def _computes(step: Around, lane: Lane) -> bool:
    kernels = step.kernels.get(lane)
    if kernels is None or not len(kernels):
        return False
    compute_kernels = where_not(step.communicating(lane)[0])
    return exceeds(take(kernels.end_ns, compute_kernels), take(kernels.start_ns, compute_kernels))
