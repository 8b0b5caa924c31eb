"""What is in a run, at a glance? The facts of the first screen, each a row of a metric or a sum of such rows.

A section that cannot be measured says why in place of its figures: a run that is measured partly has a summary, and
only one of which no rank can be measured has none. A time that stands for all ranks is that of the rank that is worst,
which is named; the kernels alone are means over the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.budget.budget import find_budgets
from pytest_nsys.analysis.captures.captures import OF_A_RUN, Captures, usual
from pytest_nsys.analysis.explain.budget_lines import BudgetPart, about_bounds, about_gaps
from pytest_nsys.analysis.metrics.families import FamilySums, Usage
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.metrics.throughput import counted_periods, kind_step_lengths, step_lengths
from pytest_nsys.analysis.steps.words import Searched
from pytest_nsys.analysis.summary.communication import RunCommunication, communication_of
from pytest_nsys.analysis.summary.findings import WORTH, Finding, findings_of, measure_each
from pytest_nsys.analysis.summary.losses import FindingKind
from pytest_nsys.analysis.summary.mostly import Mostly, mostly
from pytest_nsys.analysis.summary.subject import RunSubject, subject_of
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import RunWindow
from pytest_nsys.analysis.windows.spans import MEDIAN, RUN, WindowSpec, left_open
from pytest_nsys.analysis.windows.step_kinds import by_number, counted_steps
from pytest_nsys.core.errors import NoRows, NothingMeasured, UsageMistake
from pytest_nsys.core.exact import exact, median
from pytest_nsys.core.kernel_names import readable_names
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_value, percent
from pytest_nsys.core.shown import html_of
from pytest_nsys.core.words import counted, from_here

# Times the median step of its rank: a step that takes longer is told of.
LONG = Fraction(6, 5)

# So many kernels are told of by name.
LARGEST = 10

STEP = "step_time_ns"
RATES = ("tokens_per_s", "samples_per_s")


@dataclass(frozen=True, slots=True)
class Rate:
    """Holds a row of a metric of work per second."""

    metric: str
    value: Value
    unit: str


class LongestStep(NamedTuple):
    """Names the step that takes longest, of all ranks: ``window`` picks it."""

    ns: int
    rank: int
    window: int


class StepsOfKind(NamedTuple):
    """Counts the steps of a kind that a rank has."""

    kind: str
    number: int
    ns: Value | None  # how long one takes, None where another rank has none


@dataclass(frozen=True, slots=True)
class StepLength:
    """Holds how long a step of the slowest rank is, in ns."""

    metric: str  # which it is; that of the window where a step is not known
    ns: Value
    slowest: int
    fastest: tuple[int, Value] | None  # a rank and its length, None of one rank alone
    quantiles: Mapping[str, Value]  # of the periods of the slowest rank
    rates: tuple[Rate, ...]  # what is known of its work
    why: str  # why a step is not known
    steady: int = 0  # steps that the quantiles are of
    steps: int = 0  # all of the slowest rank
    longest: LongestStep | None = None  # told where it is LONG_STEP_FACTOR times the median or more, of one capture
    kinds: tuple[StepsOfKind, ...] = ()  # where there are several, of which all else is of one


@dataclass(frozen=True, slots=True)
class RankBudget:
    """Holds where the time of a rank's window goes."""

    rank: int
    window_ns: int
    parts: Mapping[BudgetPart, int]  # all of the window, in ns, or none
    bounded: bool = False  # what is blocked is at least, and what is stalled at most, what is said
    why: str = ""  # why there are no parts

    @property
    def shares(self) -> dict[BudgetPart, Fraction]:
        """The shares of the window, which are together 1."""
        return {part: Fraction(ns, self.window_ns) for part, ns in self.parts.items()}


@dataclass(frozen=True, slots=True)
class KernelShare:
    """Holds what kernels of one name take of a window: the mean over the ranks."""

    name: str
    called: str  # the name as a person reads it beside the others
    family: str
    ns: Value
    launches: Value
    share: Value  # of the window's time, of which kernels of several streams may take more than all


@dataclass(frozen=True, slots=True)
class KernelShares:
    """Holds the kernels that take longest, and how many others there are."""

    largest: tuple[KernelShare, ...]
    others: int
    others_ns: Value

    @property
    def names(self) -> list[str]:
        """The demangled names of the largest."""
        return [kernel.name for kernel in self.largest]


@dataclass(frozen=True, slots=True, repr=False)
class Summary:
    """Holds what is in a run: what the first screen shows."""

    traces: tuple[str, ...]  # paths as they were given
    subject: RunSubject
    step: StepLength
    budgets: tuple[RankBudget, ...]
    kernels: KernelShares
    communication: RunCommunication
    findings: tuple[Finding, ...]  # what to look at, the largest possible win first
    doubts: tuple[str, ...]  # what makes the figures doubtful, a line each
    without: Mapping[int, str]  # why ranks have no figure
    given: tuple[tuple[str, str], ...] = ()  # options with which the traces were measured
    searched: Searched = None  # what repeats in the kernels, where anybody looked
    mostly: Mostly | None = None  # what takes most of the time, if anything does

    @property
    def first(self) -> tuple[str, ...]:
        """The paths of the first capture, of which the findings are."""
        return self.traces[:1] if self.subject.captures > 1 else self.traces

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """The options by which a command measures the same steps: another run may have more kinds of them than this."""
        if (window := self.subject.found.typed) is None:
            return self.given
        return (
            *(name_and_value for name_and_value in self.given if name_and_value[0] != "--window"),
            ("--window", window),
        )

    @property
    def kind_of_several(self) -> str | None:
        """The kind of steps that is summed up, where there are others."""
        return self.subject.found.kind if self.step.kinds else None

    def __repr__(self) -> str:
        environment, shares = self.subject, [budget.shares for budget in self.budgets if budget.parts]
        length = f"{self.step.metric.removesuffix('_ns')} {format_value(self.step.ns)}"
        compute = (
            f", compute {percent(min(rank_shares[BudgetPart.COMPUTE] for rank_shares in shares))}" if shares else ""
        )
        length_text = f"{environment.profiler}, {counted(len(environment.ranks), 'rank')}, {length}{compute}"
        count_text = f"{counted(len(self.findings), 'finding')}, {counted(len(self.doubts), 'doubt')}"
        return f"<{type(self).__name__} of {', '.join(self.traces)}: {length_text}, {count_text}>"

    _repr_html_ = html_of  # what a notebook shows


def usual_spec(captures: Captures) -> WindowSpec:
    """Choose what is summed up where nobody says: the median step, of a run without steps all of it."""
    has_anchors = all(run.anchors(rank) for run in captures.runs for rank in run.ranks)
    return usual(captures.runs[0], captures.spec(MEDIAN if has_anchors else RUN), left_open())


Tell = Callable[[str], None]
"""A function that is called with what is measured next."""


def summary_of(
    captures: Captures,
    spec: WindowSpec,
    traces: Sequence[str] = (),
    tell: Tell = lambda _: None,
    ranks: Container[int] | None = None,
) -> Summary:
    """Summarize captures of one program under a window spec, of all ranks or of some.

    Raises NothingMeasured where no rank has anything in its windows, TraceError where a trace cannot be read.
    """
    builder = _Summing(captures, spec, ranks)
    tell("kernels")
    kernels = builder.kernels
    tell("what the steps wait for")
    budgets = tuple(builder.list_rank_budgets())
    tell("communication")
    communication = communication_of(captures, spec, builder.windows)
    tell("what to look at")
    findings = findings_of(captures, spec, ranks=builder.ranks)
    tell("steps")
    step = builder.step
    shown_paths = tuple(traces) or tuple(str(path) for path in captures.paths)
    environment = subject_of(captures, spec, builder.windows, builder.by_name)
    doubts = tuple(builder.doubts())
    parts = (shown_paths, environment, step, budgets, kernels, communication, findings, doubts, builder.without)
    return Summary(*parts, mostly=mostly(builder.budgets))


class _Summing:
    """Measures all captures of a run under one window spec, as far as they can be measured."""

    def __init__(self, captures: Captures, spec: WindowSpec, ranks: Container[int] | None) -> None:
        self.captures, self.spec = captures, spec
        rank_numbers = {rank.number for run in captures.runs for rank in run.ranks}
        chosen_ranks = [number for number in sorted(rank_numbers) if ranks is None or number in ranks]
        self.windows, errors = measure_each(chosen_ranks, self._windows)
        self.without = {number: from_here(str(error)) for number, error in errors.items()}
        self.budgets = find_budgets(self.windows)

    def _windows(self, rank: int) -> list[RankWindow]:
        """Read the windows of a rank in all captures. Raises NothingMeasured."""
        for run in self.captures.runs:
            if rank not in {run_rank.number for run_rank in run.ranks}:
                raise NothingMeasured(f"{run.path} does not hold it")
        return [w for run in self.captures.runs for w in run.measured(self.spec).filled({rank})[rank]]

    @property
    def ranks(self) -> frozenset[int]:
        return frozenset(self.windows)

    def of_ranks(self, metric: str) -> dict[tuple[object, ...], Value]:
        """Return the rows of a metric by their labels, none where there are none."""
        return {row.labels: row.value for row in self.captures.rows(METRICS[metric], self.spec, self.ranks).rows}

    def of_run(self, metric: str) -> Value:
        """Measure a metric of all ranks together, as the median over captures. Raises NoRows."""
        values = [row.value for window in self._each for row in METRICS[metric].rows(window)]
        if not values:
            raise NoRows(METRICS[metric].without)
        return median(values)

    @property
    def _each(self) -> Iterator[RunWindow]:
        """The first window of all ranks together, in each capture."""
        for run in self.captures.runs:
            group = run.measured(self.spec)
            yield RunWindow(run, {number: group.ranks[number][0] for number in self.windows}, group)

    @property
    def step(self) -> StepLength:
        """The step of the slowest rank; of a run whose steps are not known the window."""
        metric, reason, quantiles = STEP, "", dict[tuple[object, ...], Value]()
        try:
            ns, lengths_by_capture = self.of_run(STEP), [step_lengths(window) for window in self._each]
            lengths = {
                rank: median([rank_lengths[rank] for rank_lengths in lengths_by_capture]) for rank in self.windows
            }
            if all(run.workload.steps is None for run in self.captures.runs):  # else an anchor is no step
                quantiles = self.of_ranks("period_ns")
        except (NoRows, UsageMistake) as error:  # of the whole run steps may be of several kinds
            metric, reason = "window_ns", str(error)
            lengths = {int(str(labels[0])): length_ns for labels, length_ns in self.of_ranks("window_ns").items()}
            ns = max(lengths.values())
        slowest = max(lengths, key=lambda rank: (lengths[rank], -rank))
        fastest = min(lengths, key=lambda rank: (lengths[rank], rank))
        return StepLength(
            metric,
            ns,
            slowest,
            (fastest, lengths[fastest]) if lengths[fastest] < lengths[slowest] else None,
            {str(quantile): value for (rank, quantile), value in quantiles.items() if rank == slowest},
            tuple(self._rates()),
            reason,
            *(self._spread(slowest) if quantiles else (0, 0, None)),
            tuple(self._kinds()),
        )

    def _kinds(self) -> Iterator[StepsOfKind]:
        """List the kinds of steps, where there are several, the most frequent first."""
        counts = self.captures.runs[0].steps.counts
        for kind, count in by_number(counts) if len(counts) > 1 else ():
            spec, runs = replace(self.spec, kind=kind), [run for run in self.captures.runs if kind in run.steps.counts]
            lengths_by_rank = [
                [counted_steps(kind_step_lengths(run, rank, spec)) for rank in run.ranks] for run in runs
            ]
            is_known = len(runs) == len(self.captures.runs) and all(map(all, lengths_by_rank))
            slowest = [
                max(median([*step_lengths_ns.values()]) for step_lengths_ns in ranks)
                for ranks in lengths_by_rank
                if is_known
            ]
            yield StepsOfKind(kind, count, median(slowest) if is_known else None)

    def _spread(self, slowest: int) -> tuple[int, int, LongestStep | None]:
        """Return of how many steps of a rank its quantiles are, how many it has, and which step of all ranks stands
        out.
        """
        tracks = {rank: rank_windows[0].track for rank, rank_windows in self.windows.items()}
        periods_by_rank = {rank: counted_periods(track) for rank, track in tracks.items()}
        long_steps = [
            LongestStep(ns, rank, index)
            for rank, periods in periods_by_rank.items()
            for index, ns in periods.items()
            if ns >= LONG * Fraction(median([*periods.values()]))
        ]
        longest = max(long_steps, default=None) if len(self.captures.runs) == 1 else None
        return len(counted_periods(tracks[slowest])), len(tracks[slowest].anchors), longest

    def _rates(self) -> Iterator[Rate]:
        for name in RATES:
            with suppress(NoRows, UsageMistake):  # nobody said how much work a step is, or of which kind
                yield Rate(name, self.of_run(name), METRICS[name].unit)

    def list_rank_budgets(self) -> Iterator[RankBudget]:
        """List for each rank the budget of the window which stands for all of its windows."""
        for number, budget in self.budgets.items():
            if isinstance(budget, NoRows):
                yield RankBudget(number, self.windows[number][0].length_ns, {}, why=str(budget))
            else:
                yield RankBudget(number, budget.lines.window_ns, budget.lines.parts, budget.lines.at_least)

    @cached_property
    def by_name(self) -> dict[str, tuple[Usage, str]]:
        """Time and number of the kernels of each demangled name over all windows, and their family."""
        sums = FamilySums(
            self.captures.runs[0], [window for rank_windows in self.windows.values() for window in rank_windows]
        )
        usages: dict[str, tuple[Usage, str]] = {}
        for (short, full), usage in sums.by_name.items():
            sum_so_far, family = usages.get(full or short, (Usage(), sums.family_of[short, full]))
            usages[full or short] = sum_so_far.and_(usage), family
        return usages

    @cached_property
    def kernels(self) -> KernelShares:
        """The kernels of all windows, the longest time first."""
        windows = [window for rank_windows in self.windows.values() for window in rank_windows]
        whole = sum(window.length_ns for window in windows) or 1
        longest_first = sorted(self.by_name.items(), key=lambda item: (-item[1][0].ns, item[0]))
        display_names = readable_names([name for name, _ in longest_first[:LARGEST]])
        largest = (
            KernelShare(name, display_names[name], family, *usage.over(len(windows)), exact(Fraction(usage.ns) / whole))
            for name, (usage, family) in longest_first[:LARGEST]
        )
        rest = longest_first[LARGEST:]
        others_ns = Fraction(sum(usage.ns for _, (usage, _) in rest)) / len(windows)
        return KernelShares(tuple(largest), len(rest), exact(others_ns))

    def doubts(self) -> Iterator[str]:
        """List what makes the figures doubtful, each once: of bounds where what nothing explains is worth a finding."""
        notes = self.captures.notes(self.spec, *map(METRICS.__getitem__, OF_A_RUN))
        warnings = [note.text for note in notes if note.warning]
        if len(paths := self.captures.paths) == 1:
            warnings = [text.removeprefix(f"{from_here(str(paths[0]))}: ") for text in warnings]
        min_share = WORTH[FindingKind.STALLED]
        budget_lines = [budget.lines for budget in self.budgets.values() if not isinstance(budget, NoRows)]
        unsure_lines = [lines for lines in budget_lines if lines.dependency_stalled_ns >= min_share * lines.window_ns]
        yield from dict.fromkeys([*warnings, *about_bounds(unsure_lines), *about_gaps(unsure_lines)])
