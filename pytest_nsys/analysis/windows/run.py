"""One run, opened once and asked many times: its ranks, its anchors, and the kernels of any window.

Every table is passed once per question for all ranks of a trace together, and what was read is kept: a second metric,
assertion or gate file that asks for the same window costs no reading.
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
    """One execution of the program: its traces under one convention. Raises TraceError where they cannot be judged.

    ``measurements`` stand beside the traces, of which there then may be none.
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
        """What each trace says of its machine and profiler."""
        return tuple(trace.facts() for trace in self.traces)

    @property
    def path(self) -> Path:
        """The first of its files: what a message calls it by."""
        return self.traces[0].path if self.traces else self.measurements.paths[0]

    @property
    def files(self) -> int:
        """How many files of the profiler the run is made of."""
        return sum(facts.files for facts in self.facts)

    @cached_property
    def _ranges(self) -> list[Mapping[int, Sequence[Range]]]:
        """Anchors and setup labels of each trace, from one pass."""
        patterns = [self.convention.range_anchor, self.convention.setup_pattern]
        return [trace.ranges([p for p in patterns if p is not None]) for trace in self.traces]

    @cached_property
    def _found(self) -> tuple[tuple[Rank, ...], tuple[Note, ...]]:
        each = zip(self.traces, self._ranges, strict=True)
        labels = [read_labels(trace, ranges, self.convention) for trace, ranges in each]
        return find_ranks(self.traces, labels, [facts.numbers for facts in self.facts])

    @cached_property
    def has_kernels(self) -> bool:
        """Whether any process ran one."""
        return any(facts.has_kernels for facts in self.facts)

    @property
    def ranks(self) -> tuple[Rank, ...]:
        """The ranks, by number. Raises NothingMeasured for a run without kernels."""
        ranks = self._found[0]
        if not self.traces:
            return ()
        if not self.has_kernels:
            raise NothingMeasured(self._why_no_kernels())
        return ranks

    def ranks_of(self, trace: int) -> Sequence[Rank]:
        """The ranks of one trace, by number."""
        return self._by_trace.get(trace, ())

    @cached_property
    def _by_trace(self) -> Mapping[int, Sequence[Rank]]:
        return grouped((rank.process.trace, rank) for rank in self.ranks)

    @property
    def sizes(self) -> Mapping[str, int]:
        """How many ranks there are along each axis of the mesh, as the setup labels say; empty without one."""
        return next((rank.setup.sizes for rank in self.labelled_ranks if rank.setup is not None), {})

    @property
    def labelled_ranks(self) -> tuple[Rank, ...]:
        """The ranks that have a setup label, also in a run without kernels."""
        return tuple(rank for rank in self._found[0] if rank.setup is not None)

    @property
    def rank_notes(self) -> tuple[Note, ...]:
        return self._found[1]

    def _why_no_kernels(self) -> str:
        names = ", ".join(str(trace.path) for trace in self.traces[:3])
        graphs = sum(facts.whole_graphs for facts in self.facts)
        if graphs:
            return f"{names}: no kernels: {graphs} CUDA graph replays were traced whole; use --cuda-graph-trace=node"
        return f"{names}: no kernels: {self.facts[0].to_see_kernels}"

    def anchors(self, rank: Rank, spec: WindowSpec | None = None) -> Sequence[Range]:
        """The anchors of a rank by start, whatever was launched in them: closed ranges like the pattern of the
        convention, or like the one that the spec names; the steps of a kernel that anchors.
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
        """The whole run has no mode of its own, and that of the convention counts."""
        mode = self.convention.kernels if spec is None or spec.whole_run else spec.kernels
        return mode is KernelsMode.LAUNCHED

    def rank_steps(self, rank: Rank, spec: WindowSpec) -> RankSteps | None:
        """The steps of a rank that have a window, of whatever kind; None where anchors mark none."""
        return self._steps_of(rank.number, self._by_launch(spec)) if marks_steps(self.convention, spec) else None

    def labels_of_a_step(self, rank: Rank) -> int:
        """Return how many labels the longest step of a rank has: several where they take turns, else 1."""
        spec = WindowSpec(kernels=self.convention.kernels)
        if self.convention.kinds or self.convention.kernel_anchor is not None or not self._by_launch(spec):
            return 1
        steps, marks = self.rank_steps(rank, spec), [mark.start_ns for mark in self.anchors(rank)]
        if steps is None:
            return 1
        each = (bisect_left(marks, step.end_ns) - bisect_left(marks, step.start_ns) for step in steps.steps[:-1])
        return max(each, default=1)

    def steps_to_keep(self, rank: Rank) -> Mapping[tuple[str, bool], StepsOfRun]:
        """Those of a rank by anchor and by whether they are of launches, as far as there are any: see TraceFacts."""
        if not marks_steps(self.convention):
            return {}
        found = {(str(self.convention.anchor), mode): self._steps_of(rank.number, mode) for mode in (False, True)}
        return {place: own.of_run for place, own in found.items() if own.steps}

    @cached_property
    def _by_number(self) -> Mapping[int, Rank]:
        return {rank.number: rank for rank in self._found[0]}

    @kept
    def _steps_of(self, number: int, by_launch: bool) -> RankSteps:
        rank = self._by_number[number]
        anchor, trace, lane = self.convention.anchor, rank.process.trace, rank.lane
        kernel = self.convention.kernel_anchor
        marks = self.anchors(rank) if kernel is None else ()
        if (kept_steps := self.facts[trace].units.get((lane, str(anchor), by_launch))) is not None:
            return RankSteps.kept(kept_steps, marks, str(anchor))
        if kernel is not None:
            around = self.everything(trace)
            if lane not in around.kernels:
                return RankSteps((), why="it ran no kernel")
            ran = LaunchedKernels(around.kernels[lane], around.launch_calls[lane].start_ns)
            return steps_of_kernel(kernel, ran, by_launch=by_launch)
        to_the_end = bool(self.convention.kinds)  # sampling runs after its range
        if by_launch:
            return steps_by_launch(self.whole().tracks[rank.number], marks, to_the_end=to_the_end)
        ends = self.whole().tracks[rank.number].kernels.end_ns if to_the_end else ()
        return steps_by_time(marks, to_the_end=max(ends, default=None))

    @kept
    def copies_between_gpus(self, trace: int) -> Mapping[Lane, Kernels]:
        """What copies move between GPUs, as far as the convention does not count it as communication."""
        return self.traces[trace].copies_between_gpus()

    @kept
    def everything(self, trace: int) -> Around:
        """All that the ranks of a trace ran."""
        spans: dict[Lane, Interval | None] = {rank.lane: None for rank in self.ranks_of(trace)}
        return Around(self.traces[trace], self.convention, self.traces[trace].kernels(spans) if spans else {}, spans)

    def have_anchors(self, patterns: Sequence[str]) -> frozenset[str]:
        """Those of the patterns that every rank has a closed range of, from one pass over each trace.

        Of a run without kernels that is every labelled one.
        """
        labels = [self.convention.setup_pattern] if self.convention.setup_pattern is not None else []
        found = self.ranges_named(tuple(dict.fromkeys([*patterns, *labels])))  # one pass finds the ranks' labels too
        ranks = self.ranks if self.has_kernels else self.labelled_ranks
        each = [found[rank.process.trace].get(rank.process.global_pid, ()) for rank in ranks]
        names = [{r.name for r in own if r.end_ns != OPEN_END_NS} for own in each]
        matchers = {pattern: like(pattern) for pattern in patterns}
        return frozenset(p for p, matches in matchers.items() if all(any(map(matches, own)) for own in names))

    @cached_property
    def steps(self) -> RunSteps:
        """The anchors as steps that have kinds; none where steps have no kinds."""
        own = {rank.number: self.anchors(rank) for rank in self.ranks} if self.convention.kinds else {}
        return RunSteps(self.convention, own, str(self.path))

    def marks(self, rank: Rank, spec: WindowSpec) -> Sequence[Range]:
        """The anchors of what a spec picks from, also those without a kernel: where steps have kinds, those of one; in
        a span of time they are of any. Raises as :meth:`RunSteps.of` does.
        """
        anchors = self.anchors(rank, spec)
        if not self.convention.kinds or spec.anchor is not None or not anchors:
            return anchors
        if spec.whole_run or spec.explicit is not None:
            return self.steps.by_rank[rank.number]
        return self.steps.of(rank.number, spec.kind)

    def anchors_under(self, rank: Rank, spec: WindowSpec) -> Sequence[Range]:
        """The anchors that the windows of a spec are picked from: of steps those that have a window, each until the
        next. Raises as :meth:`RunSteps.of` does.
        """
        marks = self.marks(rank, spec)
        if not marks or (own := self.rank_steps(rank, spec)) is None:
            return marks
        if not own.steps:  # whose windows are empty, which says why
            return lasting(marks)
        if not self.convention.kinds:
            return own.steps
        begins = {mark.start_ns for mark in marks}
        return [step for step in own.steps if step.start_ns in begins]

    def _find_anchors(self, rank: Rank, pattern: str) -> Sequence[Range]:
        ranges = self._ranges if pattern == self.convention.range_anchor else self.ranges_named((pattern,))
        matches = like(pattern)
        own = ranges[rank.process.trace].get(rank.process.global_pid, ())
        return [r for r in own if r.end_ns != OPEN_END_NS and matches(r.name)]

    @kept
    def ranges_named(self, patterns: tuple[str, ...]) -> list[Mapping[int, Ranges]]:
        """The ranges of each trace, open ones too, whose name is like one of the patterns, by process, by start."""
        return [trace.ranges(patterns) for trace in self.traces]

    def named(self, rank: Rank, patterns: tuple[str, ...]) -> Sequence[Range]:
        """The ranges of a rank's process, open ones too, whose name is like one of the patterns, by start."""
        return self.ranges_named(patterns)[rank.process.trace].get(rank.process.global_pid, ())

    def windows(self, rank: Rank, spec: WindowSpec) -> list[Window]:
        """The picked windows of a rank, before any kernel is read (not for the whole run, which kernels bound)."""
        if spec.kind is not None and (spec.explicit is not None or spec.anchor is not None):
            which = printable(spec.window) + did_you_mean(spec.window, (*WORDS, *self.convention.kind_names))
            raise UsageMistake(f"'{spec.kind}' picks steps, and window {which} does not: leave one out")
        if spec.explicit is not None:
            start, end = spec.explicit
            return [Window(start, end, spec.window)]
        anchors = self.anchors_under(rank, spec)
        if not anchors:
            raise NothingMeasured(self._why_no_anchor(rank, spec))
        picked = spec
        if spec.window == MEDIAN and (shared := self.shared_steps(spec)):
            picked = replace(spec, window=str(numbered(anchors)[shared[len(shared) // 2]]))
        try:
            return anchor_windows(anchors, picked)
        except NothingMeasured as error:
            raise NothingMeasured(f"{rank.trace}: rank {rank.number}: {error}") from None

    @kept
    def shared_steps(self, spec: WindowSpec) -> Sequence[int]:
        """The numbers of the whole steps that all ranks hold, by which ranks are compared; empty where the ranks hold
        the same ones, where none is shared, and where names do not count steps.
        """
        if not marks_steps(self.convention, spec) or self.convention.kinds or len(self.ranks) < 2:
            return ()
        each = []
        for rank in self.ranks:
            anchors = self.anchors_under(rank, spec)
            each.append([*numbered(anchors)][: whole_steps(anchors)])
        if all(own == each[0] for own in each):
            return ()
        return sorted(set(each[0]).intersection(*each[1:]))

    def _why_no_anchor(self, rank: Rank, spec: WindowSpec) -> str:
        if isinstance(anchor_of(self.convention, spec), KernelAnchor):
            anew = f"`pytest-nsys init {shlex.quote(str(rank.trace))}` finds the step anew"
            why = self._steps_of(rank.number, self._by_launch(spec)).why
            return f"{rank.trace}: rank {rank.number} (process {rank.pid}): {why}; {anew}"
        if self.convention.kinds and spec.anchor is None and self.anchors(rank):
            lacks = f"rank {rank.number} has no {spec.kind or 'such'} step, though another rank has"
            return f"{rank.trace}: {lacks}: give the traces of one engine"
        return explain_no_anchor(self.traces[rank.process.trace], self.convention, rank, spec)

    @kept
    def measured(self, spec: WindowSpec) -> WindowGroup:
        """The windows of every rank with their kernels."""
        return WindowGroup(self, spec)

    def whole(self) -> WindowGroup:
        """All kernels of the run."""
        return self.measured(WindowSpec(RUN))

    def gpu_model(self) -> str | None:
        """The model of the GPUs that the ranks used, several joined by ``+``; None where no trace says."""
        return " + ".join(sorted({model for models in self.gpu_models.values() for model in models})) or None

    @cached_property
    def gpu_models(self) -> Mapping[int, frozenset[str]]:
        """The models of the GPUs that each rank used, as far as its trace says."""
        found: dict[int, frozenset[str]] = {}
        for number, facts in enumerate(self.facts):
            alone = facts.models if len(facts.models) == 1 else ()
            for rank in self.ranks_of(number):
                own = {m for (pid, gpu), m in facts.gpus.items() if pid == rank.pid and rank.device in (gpu, None)}
                found[rank.number] = frozenset(own or alone)
        return found

    @cached_property
    def shared_gpus(self) -> Sequence[Sequence[Rank]]:
        """The ranks of each GPU that several processes used, as far as the traces tell GPUs apart."""
        places = {(n, pid, uuid) for n, facts in enumerate(self.facts) for (pid, _), uuid in facts.uuids.items()}
        users = Counter(uuid for _, _, uuid in places)
        if all(count == 1 for count in users.values()):  # which devices a labelled process used takes reading
            return ()
        ran = [(rank, device) for rank in self.ranks for device in self._devices_of(rank)]
        each = grouped((self.gpu_of(rank.process, device), rank) for rank, device in ran).values()
        return [own for own in each if len({rank.process for rank in own}) > 1]

    def _devices_of(self, rank: Rank) -> Sequence[int]:
        if rank.device is not None:
            return [rank.device]
        lanes = self.traces[rank.process.trace].lanes()
        own = (lane.device for lane in lanes if lane.global_pid == rank.process.global_pid)
        return [device for device in own if device is not None]

    def gpu_of(self, process: ProcessId, device: int) -> object:
        """What tells the GPU that a process calls ``device`` from the others of the run."""
        uuid = self.facts[process.trace].uuids.get((process.pid, device))
        return (process, device) if uuid is None or process in self._namesakes else uuid

    @cached_property
    def _namesakes(self) -> frozenset[ProcessId]:
        """Processes of several machines or containers with one number, whose devices nothing tells apart."""
        each = grouped(((process.trace, process.pid), process) for process in {rank.process for rank in self.ranks})
        return frozenset(process for own in each.values() if len(own) > 1 for process in own)

    def count_gpus(self, ranks: Collection[int]) -> int:
        """Count the GPUs of some ranks, one that several of them used once."""
        shared = ([rank.number for rank in own if rank.number in ranks] for own in self.shared_gpus)
        return len(ranks) - sum(max(len(own) - 1, 0) for own in shared)

    @cached_property
    def libraries(self) -> frozenset[str]:
        """The known libraries whose kernels, anywhere in the run, communicate though the convention names none."""
        traces = self.traces if self.convention.libraries else ()
        kernels = {pair for trace in traces for pair in trace.library_kernels()}
        added = (pair for pair in kernels if not self.convention.names_communication(*pair))
        return frozenset(known.library for pair in added if (known := known_communication(*pair)) is not None)

    def close(self) -> None:
        """Let the files go."""
        for trace in self.traces:
            trace.close()


def chosen_ranks(ranks: Iterable[Rank], asked: Collection[int]) -> dict[int, Rank]:
    """The ranks that are asked for, by number; all where none is. Raises UsageMistake for one that does not exist."""
    known = {rank.number: rank for rank in ranks}
    for number in asked:
        if number not in known:
            raise UsageMistake(f"there is no rank {number}: the ranks are {', '.join(map(str, sorted(known)))}")
    return {number: rank for number, rank in known.items() if number in (asked or known)}


@dataclass(frozen=True)
class RunWindow:
    """One picked window of every rank, by rank number: what a metric of the whole run is measured on.

    The windows of ranks of two traces stand on two clocks. ``group`` is what it was picked from.
    """

    run: Run
    by_rank: Mapping[int, RankWindow]
    group: WindowGroup


LONG_AFTER_NS = 1_000_000_000
"""A profiler stops within a second of what runs: no kernel of a session ends later."""


class Unlaunched(NamedTuple):
    """How many kernels, of how many, have no launch on record, and the time of both in ns."""

    kernels: int = 0
    among: int = 0
    ns: int = 0
    among_ns: int = 0

    @property
    def share(self) -> Fraction:
        """Of the kernel time."""
        return Fraction(self.ns, self.among_ns or 1)

    @classmethod
    def of(cls, kernels: Kernels, launches: Column) -> Unlaunched:
        """Return those of kernels whose launches, NO_LAUNCH where there is none, stand at the same places."""
        lengths, without = minus(kernels.end_ns, kernels.start_ns), where(equal(launches, NO_LAUNCH))
        return cls(len(without), len(kernels), total(take(lengths, without)), total(lengths))

    @classmethod
    def of_all(cls, each: Iterable[Unlaunched]) -> Unlaunched:
        """Return the sum of several."""
        return cls(*map(sum, zip(cls(), *each, strict=True)))


class WindowGroup:
    """The windows of all ranks for one window spec; launches and ranges are read for all when first asked for."""

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
        """Every window of every rank."""
        return (window for windows in self.ranks.values() for window in windows)

    def _pick_windows(self, rank: Rank) -> None:
        """A rank without a window is an error only when it is asked for."""
        try:
            self.windows[rank.number] = self.run.windows(rank, self.spec)
        except NothingMeasured as error:
            self._without[rank.number] = error

    def _trace_ranks(self, trace: int) -> list[Rank]:
        """The ranks of a trace that have a window."""
        return [rank for rank in self.run.ranks_of(trace) if rank.number not in self._without]

    @property
    def _by_launch(self) -> bool:
        """Whether kernels are in the windows that launched them, wherever on the GPU they ran."""
        return self.spec.by_launch

    def _around(self, number: int) -> Around:
        trace = self.run.traces[number]
        if self.spec.whole_run:
            return self.run.everything(number)
        windows = {rank.lane: self.windows.get(rank.number, ()) for rank in self._trace_ranks(number)}
        follow = marks_steps(self.run.convention, self.spec) and self.spec.explicit is None
        beside = int(follow and self._by_launch)  # what begins the next step was not launched in this one
        hulls = {lane: hull((w.start_ns, w.end_ns - beside) for w in own) for lane, own in windows.items() if own}
        spans: dict[Lane, Interval | None] = {lane: hulls.get(lane) for lane in windows}
        kernels: Mapping[Lane, Kernels] = {}
        if spans:
            kernels = trace.kernels_launched(hulls) if self._by_launch else trace.kernels(spans)
        return Around(trace, self.run.convention, kernels, spans)

    @cached_property
    def on_gpu(self) -> Mapping[int, RankTrack]:
        """By rank all that ran on its GPU in the windows, which for windows of launches is more than was launched."""
        if not self._by_launch:
            return self.tracks
        own = ((number, track.rank) for number, track in self.tracks.items())
        return {number: RankTrack(rank, self._meanwhile[rank.process.trace], self) for number, rank in own}

    @cached_property
    def _meanwhile(self) -> list[Around]:
        """What ran from the start of the windows' first kernel to the end of their last, whenever it was launched."""
        each = [(trace, self._filled_spans(number)) for number, trace in enumerate(self.run.traces)]
        return [Around(trace, self.run.convention, trace.kernels(spans), spans) for trace, spans in each]

    @cached_property
    def after(self) -> list[Around]:
        """What started after the windows of each trace, on every lane at least until compute did."""
        found = []
        for number, around in enumerate(self._meanwhile if self._by_launch else self.around):
            ends = {lane: span[1] for lane, span in around.spans.items() if span is not None}
            windows = (w for rank in self._trace_ranks(number) for w in self.ranks[rank.number])
            longest = max((w.length_ns for w in windows), default=0)
            found.append(until_compute(around.trace, self.run.convention, ends, longest))
        return found

    @cached_property
    def copies(self) -> list[Mapping[Lane, Sequence[Copy]] | None]:
        """The copies of each trace that are launched in the windows, or before one no longer than that is: one pass for
        all ranks. None of a trace that does not say between which memories.
        """
        found = []
        for number, trace in enumerate(self.run.traces):
            each = [(rank.lane, self.ranks[rank.number]) for rank in self._trace_ranks(number)]
            spans = {lane: hull(_with_before(w) for w in own) for lane, own in each if own}
            found.append(trace.copies(spans))
        return found

    def _filled_spans(self, trace: int) -> dict[Lane, Interval | None]:
        """By lane of a trace the time from its process's first filled window to its last: of the devices of a process
        one may have waited for what another ran before, or after, its own windows.
        """
        ranks = self._trace_ranks(trace)
        filled = grouped((rank.process, w.ran_ns) for rank in ranks for w in self.ranks[rank.number] if len(w))
        return {rank.lane: hull(filled[rank.process]) for rank in ranks if rank.process in filled}

    @cached_property
    def unlaunched(self) -> Unlaunched:
        """What ran while the windows' kernels did."""
        return Unlaunched.of_all(
            Unlaunched.of(around.kernels[lane], calls.start_ns)
            for around in self._meanwhile
            for lane, calls in around.launch_calls.items()
        )

    @cached_property
    def out_of_session(self) -> int:
        """Kernels around the windows that start before the profiler's session, or end after it."""
        found = 0
        for track in self.tracks.values():
            starts = track.kernels.start_ns
            found += bisect_left(starts, 0)
            process = track.rank.process
            facts = self.run.facts[process.trace]
            session = facts.sessions_ns.get(process.global_pid, facts.session_ns)
            if session is not None and len(starts) and starts[0] <= session:  # else its times count from elsewhere
                found += len(starts) - bisect_right(starts, session)
                late = session + LONG_AFTER_NS
                if bounds(track.kernels.end_ns)[1] > late:
                    ends = track.kernels.end_ns[: bisect_right(starts, session)]
                    found += sum(end > late for end in ends)
        return found

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
        """The windows by rank number, of all ranks or of some.

        Raises NothingMeasured where one of them has no window, or an empty one.
        """
        chosen = [n for n in sorted({*self.ranks, *self._without}) if ranks is None or n in ranks]
        for number in chosen:
            windows = self.ranks.get(number, [])
            if number not in self._without and not all(map(len, windows)):  # explained once, whoever asks
                track = None if self.spec.whole_run else self.run.whole().tracks[number]
                self._without[number] = NothingMeasured(explain_empty(windows, track))
            if number in self._without:
                raise self._without[number]
        return {number: self.ranks[number] for number in chosen}

    @kept
    def together(self, ranks: frozenset[int] | None = None) -> Sequence[RunWindow]:
        """The filled windows of all ranks, or of some, the first of each, then the second, and so on.

        Raises NothingMeasured as :meth:`filled` does, and where the ranks have different numbers of windows.
        """
        if ranks is not None and ranks >= {*self.ranks, *self._without}:
            return self.together()  # what was summed over all ranks is kept there
        filled = self.filled(ranks)
        counts = {len(windows) for windows in filled.values()}
        if len(counts) > 1:
            raise NothingMeasured(
                f"{self.run.traces[0].path}: the ranks have from {min(counts)} to {max(counts)} windows, so no window "
                "is that of the whole run: take one window, as in window: median"
            )
        return [
            RunWindow(self.run, {number: windows[i] for number, windows in filled.items()}, self)
            for i in range(max(counts, default=0))
        ]


def _with_before(window: RankWindow) -> Interval:
    """The time of a window, and as long before it."""
    before_ns = window.start_ns - window.length_ns
    return min(before_ns, window.window.start_ns), max(window.end_ns, window.window.end_ns)


_SHORTEST_NS, _LONGER = 1_000_000, 8


def until_compute(trace: Trace, convention: Convention, ends: Mapping[Lane, int], first_ns: int) -> Around:
    """What started on each lane after a time, at least until a compute kernel that takes time, or to the end.

    ``first_ns``: how far ahead to look first.
    """
    reach = dict.fromkeys(ends, max(first_ns, _SHORTEST_NS))
    found: dict[Lane, Kernels] = {}
    read: dict[Lane, Interval | None] = {}
    while reach:
        ahead = {lane: (ends[lane], min(ends[lane] + own, LONGEST_NS)) for lane, own in reach.items()}
        new = {lane: _after(own, ahead[lane][0]) for lane, own in trace.kernels(dict(ahead)).items()}
        found.update(new)
        read.update(ahead)
        step = Around(trace, convention, new)
        short = {lane: end for lane, (_, end) in ahead.items() if not _computes(step, lane) and end < LONGEST_NS}
        nothing = trace.idle({lane: [(end, OPEN_END_NS)] for lane, end in short.items()}) if short else {}
        reach = {lane: reach[lane] * _LONGER for lane in short if lane not in nothing}
    after = Around(trace, convention, found, read)
    if after.transfers is not None:
        after.transfers = {lane: _after(own, ends[lane]) for lane, own in after.transfers.items()}
    return after


def _after(kernels: Kernels, moment: int) -> Kernels:
    return kernels.take(range(bisect_right(kernels.start_ns, moment), len(kernels)))


def _computes(step: Around, lane: Lane) -> bool:
    kernels = step.kernels.get(lane)
    if kernels is None or not len(kernels):
        return False
    own = where_not(step.communicating(lane)[0])
    return exceeds(take(kernels.end_ns, own), take(kernels.start_ns, own))
