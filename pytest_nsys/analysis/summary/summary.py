"""What is in a run, at a glance? The facts of the first screen, each a row of a metric or a sum of such rows.

A section that cannot be measured says why in place of its figures. Only a run of which no rank can be measured has no
summary. A time that stands for all ranks is that of the worst rank, which is named; only kernels are means over the
ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.budget.budget import measure_rank_budgets
from pytest_nsys.analysis.captures.captures import DEFAULT_NOTE_METRICS, Captures, resolve_default_spec
from pytest_nsys.analysis.explain.budget_lines import BudgetPart, describe_bounds, describe_uncertain_gaps
from pytest_nsys.analysis.metrics.families import FamilySums, KernelTimeAndCount
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.metrics.throughput import measure_kind_steps, measure_step_lengths, select_counted_periods
from pytest_nsys.analysis.steps.search_text import SearchResult
from pytest_nsys.analysis.summary.communication import RunCommunication, measure_communication
from pytest_nsys.analysis.summary.dominant_activity import DominantActivity, find_dominant_activity
from pytest_nsys.analysis.summary.findings import MIN_SHARE_BY_KIND, Finding, list_findings, measure_each_rank
from pytest_nsys.analysis.summary.lost_time import FindingKind
from pytest_nsys.analysis.summary.trace_environment import TraceEnvironment, describe_environment
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import RunWindow
from pytest_nsys.analysis.windows.step_kinds import drop_first_step, sort_by_count
from pytest_nsys.analysis.windows.window_selection import MEDIAN, RUN, WindowSpec, list_open_fields
from pytest_nsys.core.errors import NoRows, NothingMeasured, UsageMistake
from pytest_nsys.core.exact import median, simplify_fraction
from pytest_nsys.core.kernel_names import make_display_names
from pytest_nsys.core.model import Value
from pytest_nsys.core.notebook_display import render_object
from pytest_nsys.core.numbers import format_percent, format_value
from pytest_nsys.core.text_format import format_count, shorten_paths

# A step longer than the median step of its rank times this factor is reported.
LONG_STEP_FACTOR = Fraction(6, 5)

# Maximum number of kernels reported by name.
MAX_KERNELS = 10

STEP_METRIC = "step_time_ns"
RATE_METRICS = ("tokens_per_s", "samples_per_s")


@dataclass(frozen=True, slots=True)
class Rate:
    """Holds a row of a metric of work per second."""

    metric: str
    value: Value
    unit: str


class LongestStep(NamedTuple):
    """Names the longest step over all ranks; ``window`` is the window that picks it."""

    ns: int
    rank: int
    window: int


class StepsOfKind(NamedTuple):
    """Counts the steps of a kind that a rank has."""

    kind: str
    step_count: int
    ns: Value | None  # how long one takes, None where another rank has none


@dataclass(frozen=True, slots=True)
class StepLength:
    """Holds the length of a step on the slowest rank, in ns."""

    metric: str  # the metric of the length; that of the window if steps are unknown
    ns: Value
    slowest_rank: int
    fastest_rank: tuple[int, Value] | None  # (rank, length); None for a single rank
    quantiles: Mapping[str, Value]  # of the periods of the slowest rank
    rates: tuple[Rate, ...]  # known rates of work
    reason: str  # why the step is unknown
    steady_count: int = 0  # steps that the quantiles are of
    step_count: int = 0  # all of the slowest rank
    longest: LongestStep | None = None  # set if it is at least LONG_STEP_FACTOR times the median, for a single capture
    kinds: tuple[StepsOfKind, ...] = ()  # if there are several kinds; everything else is about one of them


@dataclass(frozen=True, slots=True)
class RankBudget:
    """Holds what the time of a rank's window went to."""

    rank: int
    window_ns: int
    parts: Mapping[BudgetPart, int]  # all of the window, in ns, or none
    is_bounded: bool = False  # blocked times are lower bounds, stalled times upper bounds
    reason: str = ""  # why there are no parts

    @property
    def shares(self) -> dict[BudgetPart, Fraction]:
        """The shares of the window, which add up to 1."""
        return {part: Fraction(ns, self.window_ns) for part, ns in self.parts.items()}


@dataclass(frozen=True, slots=True)
class KernelShare:
    """Holds what share of a window the kernels of one name take: the mean over the ranks."""

    name: str
    display_name: str  # the name as a person reads it beside the others
    family: str
    ns: Value
    launch_count: Value
    share: Value  # of the window's time, of which kernels of several streams may take more than all


@dataclass(frozen=True, slots=True)
class KernelShares:
    """Holds the kernels that take longest, and how many others there are."""

    largest: tuple[KernelShare, ...]
    other_count: int
    others_ns: Value

    @property
    def names(self) -> list[str]:
        """The demangled names of the largest."""
        return [kernel.name for kernel in self.largest]


@dataclass(frozen=True, slots=True, repr=False)
class Summary:
    """Holds what is in a run: what the first screen shows."""

    traces: tuple[str, ...]  # paths as they were given
    environment: TraceEnvironment
    step: StepLength
    budgets: tuple[RankBudget, ...]
    kernels: KernelShares
    communication: RunCommunication
    findings: tuple[Finding, ...]  # what to look at, the largest possible win first
    doubts: tuple[str, ...]  # what makes the figures doubtful, a line each
    unmeasured_ranks: Mapping[int, str]  # why ranks have no figure
    given_options: tuple[tuple[str, str], ...] = ()  # options with which the traces were measured
    searched: SearchResult = None  # what repeats in the kernels; None if nothing was searched
    dominant_activity: DominantActivity | None = None  # what takes most of the time, if anything does

    @property
    def first_capture_paths(self) -> tuple[str, ...]:
        """The paths of the first capture, which the findings are about."""
        return self.traces[:1] if self.environment.capture_count > 1 else self.traces

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """The options with which a command measures the same steps, even on a run with more kinds of steps."""
        if (window := self.environment.selection.window_option) is None:
            return self.given_options
        return (
            *(name_and_value for name_and_value in self.given_options if name_and_value[0] != "--window"),
            ("--window", window),
        )

    @property
    def summarized_step_kind(self) -> str | None:
        """The kind of steps that is summed up, if there are several; else None."""
        return self.environment.selection.step_kind if self.step.kinds else None

    def __repr__(self) -> str:
        environment, shares = self.environment, [budget.shares for budget in self.budgets if budget.parts]
        length = f"{self.step.metric.removesuffix('_ns')} {format_value(self.step.ns)}"
        compute = (
            f", compute {format_percent(min(rank_shares[BudgetPart.COMPUTE] for rank_shares in shares))}"
            if shares
            else ""
        )
        length_text = f"{environment.profiler}, {format_count(len(environment.ranks), 'rank')}, {length}{compute}"
        count_text = f"{format_count(len(self.findings), 'finding')}, {format_count(len(self.doubts), 'doubt')}"
        return f"<{type(self).__name__} of {', '.join(self.traces)}: {length_text}, {count_text}>"

    _repr_html_ = render_object  # what a notebook shows


def choose_usual_spec(captures: Captures) -> WindowSpec:
    """Choose what is summed up by default: the median step or, for a run without steps, the whole run."""
    has_anchors = all(run.find_anchors(rank) for run in captures.runs for rank in run.ranks)
    return resolve_default_spec(
        captures.runs[0], captures.make_spec(MEDIAN if has_anchors else RUN), list_open_fields()
    )


ReportProgress = Callable[[str], None]
"""A function that is called with a description of what is measured next."""


def summarize_captures(
    captures: Captures,
    spec: WindowSpec,
    traces: Sequence[str] = (),
    report_progress: ReportProgress = lambda _: None,
    ranks: Container[int] | None = None,
) -> Summary:
    """Summarize captures of one program under a window spec, of all ranks or of some.

    Raises NothingMeasured if no rank has anything in its windows, TraceError if a trace cannot be read.
    """
    builder = _SummaryBuilder(captures, spec, ranks)
    report_progress("kernels")
    kernels = builder.kernels
    report_progress("what the steps wait for")
    budgets = tuple(builder.list_rank_budgets())
    report_progress("communication")
    communication = measure_communication(captures, spec, builder.windows)
    report_progress("what to look at")
    findings = list_findings(captures, spec, ranks=builder.ranks)
    report_progress("steps")
    step = builder.step
    shown_paths = tuple(traces) or tuple(str(path) for path in captures.paths)
    environment = describe_environment(captures, spec, builder.windows, builder.usage_by_name)
    doubts = tuple(builder.list_doubts())
    parts = (
        shown_paths,
        environment,
        step,
        budgets,
        kernels,
        communication,
        findings,
        doubts,
        builder.unmeasured_ranks,
    )
    return Summary(*parts, dominant_activity=find_dominant_activity(builder.budgets))


class _SummaryBuilder:
    """Measures all captures of a run under one window spec, as far as they can be measured."""

    def __init__(self, captures: Captures, spec: WindowSpec, ranks: Container[int] | None) -> None:
        self.captures, self.spec = captures, spec
        rank_numbers = {rank.number for run in captures.runs for rank in run.ranks}
        chosen_ranks = [number for number in sorted(rank_numbers) if ranks is None or number in ranks]
        self.windows, errors = measure_each_rank(chosen_ranks, self._read_windows)
        self.unmeasured_ranks = {number: shorten_paths(str(error)) for number, error in errors.items()}
        self.budgets = measure_rank_budgets(self.windows)

    def _read_windows(self, rank: int) -> list[RankWindow]:
        """Read the windows of a rank in all captures. Raises NothingMeasured."""
        for run in self.captures.runs:
            if rank not in {run_rank.number for run_rank in run.ranks}:
                raise NothingMeasured(f"{run.path} does not hold it")
        return [
            w for run in self.captures.runs for w in run.load_windows(self.spec).require_filled_windows({rank})[rank]
        ]

    @property
    def ranks(self) -> frozenset[int]:
        return frozenset(self.windows)

    def read_rows(self, metric: str) -> dict[tuple[object, ...], Value]:
        """Return the rows of a metric by their labels; empty if there are none."""
        return {
            row.labels: row.value for row in self.captures.measure_rows(METRICS[metric], self.spec, self.ranks).rows
        }

    def measure_run(self, metric: str) -> Value:
        """Measure a metric of all ranks together, as the median over captures. Raises NoRows."""
        values = [row.value for window in self._run_windows for row in METRICS[metric].measure_rows(window)]
        if not values:
            raise NoRows(METRICS[metric].no_row_reason)
        return median(values)

    @property
    def _run_windows(self) -> Iterator[RunWindow]:
        """The first window of all ranks together, in each capture."""
        for run in self.captures.runs:
            group = run.load_windows(self.spec)
            yield RunWindow(run, {number: group.windows_by_rank[number][0] for number in self.windows}, group)

    @property
    def step(self) -> StepLength:
        """The step of the slowest rank; the window if the run's steps are unknown."""
        metric, reason, quantiles = STEP_METRIC, "", dict[tuple[object, ...], Value]()
        try:
            ns, lengths_by_capture = (
                self.measure_run(STEP_METRIC),
                [measure_step_lengths(window) for window in self._run_windows],
            )
            lengths = {
                rank: median([rank_lengths[rank] for rank_lengths in lengths_by_capture]) for rank in self.windows
            }
            if all(run.workload.steps is None for run in self.captures.runs):  # otherwise an anchor is not a step
                quantiles = self.read_rows("period_ns")
        except (NoRows, UsageMistake) as error:  # a whole run may have steps of several kinds
            metric, reason = "window_ns", str(error)
            lengths = {int(str(labels[0])): length_ns for labels, length_ns in self.read_rows("window_ns").items()}
            ns = max(lengths.values())
        slowest = max(lengths, key=lambda rank: (lengths[rank], -rank))
        fastest = min(lengths, key=lambda rank: (lengths[rank], rank))
        return StepLength(
            metric,
            ns,
            slowest,
            (fastest, lengths[fastest]) if lengths[fastest] < lengths[slowest] else None,
            {str(quantile): value for (rank, quantile), value in quantiles.items() if rank == slowest},
            tuple(self._list_rates()),
            reason,
            *(self._measure_spread(slowest) if quantiles else (0, 0, None)),
            tuple(self._list_kinds()),
        )

    def _list_kinds(self) -> Iterator[StepsOfKind]:
        """List the kinds of steps, where there are several, the most frequent first."""
        counts = self.captures.runs[0].steps_by_kind.counts_by_kind
        for kind, count in sort_by_count(counts) if len(counts) > 1 else ():
            spec, runs = (
                replace(self.spec, kind=kind),
                [run for run in self.captures.runs if kind in run.steps_by_kind.counts_by_kind],
            )
            lengths_by_rank = [
                [drop_first_step(measure_kind_steps(run, rank, spec)) for rank in run.ranks] for run in runs
            ]
            is_known = len(runs) == len(self.captures.runs) and all(map(all, lengths_by_rank))
            slowest = [
                max(median([*step_lengths_ns.values()]) for step_lengths_ns in ranks)
                for ranks in lengths_by_rank
                if is_known
            ]
            yield StepsOfKind(kind, count, median(slowest) if is_known else None)

    def _measure_spread(self, slowest: int) -> tuple[int, int, LongestStep | None]:
        """Return the number of steps that a rank's quantiles use, the number of all its steps, and the outstanding step
        of all ranks.
        """
        tracks = {rank: rank_windows[0].track for rank, rank_windows in self.windows.items()}
        periods_by_rank = {rank: select_counted_periods(track) for rank, track in tracks.items()}
        long_steps = [
            LongestStep(ns, rank, index)
            for rank, periods in periods_by_rank.items()
            for index, ns in periods.items()
            if ns >= LONG_STEP_FACTOR * Fraction(median([*periods.values()]))
        ]
        longest = max(long_steps, default=None) if len(self.captures.runs) == 1 else None
        return len(select_counted_periods(tracks[slowest])), len(tracks[slowest].anchors), longest

    def _list_rates(self) -> Iterator[Rate]:
        for name in RATE_METRICS:
            with suppress(NoRows, UsageMistake):  # the work of a step, or its kind, is not stated
                yield Rate(name, self.measure_run(name), METRICS[name].unit)

    def list_rank_budgets(self) -> Iterator[RankBudget]:
        """List for each rank the budget of the window which stands for all of its windows."""
        for number, budget in self.budgets.items():
            if isinstance(budget, NoRows):
                yield RankBudget(number, self.windows[number][0].length_ns, {}, reason=str(budget))
            else:
                yield RankBudget(number, budget.lines.window_ns, budget.lines.parts, budget.lines.at_least)

    @cached_property
    def usage_by_name(self) -> dict[str, tuple[KernelTimeAndCount, str]]:
        """Time and number of the kernels of each demangled name over all windows, and their family."""
        sums = FamilySums(
            self.captures.runs[0], [window for rank_windows in self.windows.values() for window in rank_windows]
        )
        usages: dict[str, tuple[KernelTimeAndCount, str]] = {}
        for (short, full), usage in sums.usage_by_name.items():
            sum_so_far, family = usages.get(full or short, (KernelTimeAndCount(), sums.family_by_name[short, full]))
            usages[full or short] = sum_so_far.add(usage), family
        return usages

    @cached_property
    def kernels(self) -> KernelShares:
        """The kernels of all windows, the longest time first."""
        windows = [window for rank_windows in self.windows.values() for window in rank_windows]
        whole = sum(window.length_ns for window in windows) or 1
        longest_first = sorted(self.usage_by_name.items(), key=lambda item: (-item[1][0].time_ns, item[0]))
        display_names = make_display_names([name for name, _ in longest_first[:MAX_KERNELS]])
        largest = (
            KernelShare(
                name,
                display_names[name],
                family,
                *usage.divide_by(len(windows)),
                simplify_fraction(Fraction(usage.time_ns) / whole),
            )
            for name, (usage, family) in longest_first[:MAX_KERNELS]
        )
        rest = longest_first[MAX_KERNELS:]
        others_ns = Fraction(sum(usage.time_ns for _, (usage, _) in rest)) / len(windows)
        return KernelShares(tuple(largest), len(rest), simplify_fraction(others_ns))

    def list_doubts(self) -> Iterator[str]:
        """List what makes the figures doubtful, without duplicates; bounds count if stalled time is worth a finding."""
        notes = self.captures.list_notes(self.spec, *map(METRICS.__getitem__, DEFAULT_NOTE_METRICS))
        warnings = [note.text for note in notes if note.warning]
        if len(paths := self.captures.paths) == 1:
            warnings = [text.removeprefix(f"{shorten_paths(str(paths[0]))}: ") for text in warnings]
        min_share = MIN_SHARE_BY_KIND[FindingKind.STALLED]
        budget_lines = [budget.lines for budget in self.budgets.values() if not isinstance(budget, NoRows)]
        unsure_lines = [lines for lines in budget_lines if lines.dependency_stalled_ns >= min_share * lines.window_ns]
        yield from dict.fromkeys([*warnings, *describe_bounds(unsure_lines), *describe_uncertain_gaps(unsure_lines)])
