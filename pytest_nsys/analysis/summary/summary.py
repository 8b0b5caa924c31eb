"""What is in a run, at a glance: the facts of the first screen, each a row of a metric or a sum of such rows.

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

LONG = Fraction(6, 5)

LARGEST = 10
"""How many kernels are told of by name."""

STEP = "step_time_ns"
RATES = ("tokens_per_s", "samples_per_s")


@dataclass(frozen=True, slots=True)
class Rate:
    """A row of a metric."""

    metric: str
    value: Value
    unit: str


class LongestStep(NamedTuple):
    """The step that takes longest, of all ranks: ``window`` picks it."""

    ns: int
    rank: int
    window: int


class StepsOfKind(NamedTuple):
    """How many steps of a kind a rank has, and how long one takes; None where another rank has none."""

    kind: str
    number: int
    ns: Value | None


@dataclass(frozen=True, slots=True)
class StepLength:
    """How long a step of the slowest rank is, in ns: as ``metric`` has it, which is that of the window where a step is
    not known, and ``why`` then says why. ``quantiles`` are of the periods of that rank, of ``steady`` of its ``steps``.
    ``fastest`` is a rank and its length, None of one rank alone. ``rates`` are what is known of its work. ``longest``
    is told where it is ``LONG`` times the median or more, of one capture. ``kinds`` are the kinds of steps where there
    are several, of which all else is of one.
    """

    metric: str
    ns: Value
    slowest: int
    fastest: tuple[int, Value] | None
    quantiles: Mapping[str, Value]
    rates: tuple[Rate, ...]
    why: str
    steady: int = 0
    steps: int = 0
    longest: LongestStep | None = None
    kinds: tuple[StepsOfKind, ...] = ()


@dataclass(frozen=True, slots=True)
class RankBudget:
    """Where the time of a rank's window goes. ``parts`` are all of it, in ns, or there are none and ``why`` says why.

    ``bounded``: what is blocked is at least, and what is stalled at most, what is said.
    """

    rank: int
    window_ns: int
    parts: Mapping[BudgetPart, int]
    bounded: bool = False
    why: str = ""

    @property
    def shares(self) -> dict[BudgetPart, Fraction]:
        """Of the window: together 1."""
        return {part: Fraction(ns, self.window_ns) for part, ns in self.parts.items()}


@dataclass(frozen=True, slots=True)
class KernelShare:
    """What kernels of one name take of a window: the mean over the ranks. ``called`` is the name as a person reads it
    beside the others; ``share`` is of the window's time, of which kernels of several streams may take more than all.
    """

    name: str
    called: str
    family: str
    ns: Value
    launches: Value
    share: Value


@dataclass(frozen=True, slots=True)
class KernelShares:
    """The kernels that take longest, and how many others there are, which take ``others_ns``."""

    largest: tuple[KernelShare, ...]
    others: int
    others_ns: Value

    @property
    def names(self) -> list[str]:
        """The demangled names of the largest."""
        return [each.name for each in self.largest]


@dataclass(frozen=True, slots=True, repr=False)
class Summary:
    """What is in a run. ``traces`` are the paths as they were given, and ``given`` the options with which they were
    measured; ``without`` says of ranks why they have no figure.

    ``budgets`` are by rank. ``findings`` are what to look at, the largest possible win first; ``doubts`` are what makes
    the figures doubtful, a line each. ``searched``: what repeats in the kernels, where anybody looked. ``mostly``:
    what takes most of the time, if anything does.
    """

    traces: tuple[str, ...]
    subject: RunSubject
    step: StepLength
    budgets: tuple[RankBudget, ...]
    kernels: KernelShares
    communication: RunCommunication
    findings: tuple[Finding, ...]
    doubts: tuple[str, ...]
    without: Mapping[int, str]
    given: tuple[tuple[str, str], ...] = ()
    searched: Searched = None
    mostly: Mostly | None = None

    @property
    def first(self) -> tuple[str, ...]:
        """The paths of the first capture, of which the findings are."""
        return self.traces[:1] if self.subject.captures > 1 else self.traces

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """Those by which a command measures the same steps: another run may have more kinds of them than this."""
        if (window := self.subject.found.typed) is None:
            return self.given
        return (*(option for option in self.given if option[0] != "--window"), ("--window", window))

    @property
    def kind_of_several(self) -> str | None:
        """The kind of steps that is summed up, where there are others."""
        return self.subject.found.kind if self.step.kinds else None

    def __repr__(self) -> str:
        about, known = self.subject, [budget.shares for budget in self.budgets if budget.parts]
        length = f"{self.step.metric.removesuffix('_ns')} {format_value(self.step.ns)}"
        compute = f", compute {percent(min(each[BudgetPart.COMPUTE] for each in known))}" if known else ""
        told = f"{about.profiler}, {counted(len(about.ranks), 'rank')}, {length}{compute}"
        found = f"{counted(len(self.findings), 'finding')}, {counted(len(self.doubts), 'doubt')}"
        return f"<{type(self).__name__} of {', '.join(self.traces)}: {told}, {found}>"

    _repr_html_ = html_of  # what a notebook shows


def usual_spec(captures: Captures) -> WindowSpec:
    """What is summed up where nobody says: the median step, of a run without steps all of it."""
    anchored = all(run.anchors(rank) for run in captures.runs for rank in run.ranks)
    return usual(captures.runs[0], captures.spec(MEDIAN if anchored else RUN), left_open())


Tell = Callable[[str], None]
"""Told of what is measured next."""


def summary_of(
    captures: Captures,
    spec: WindowSpec,
    traces: Sequence[str] = (),
    tell: Tell = lambda _: None,
    ranks: Container[int] | None = None,
) -> Summary:
    """The summary of captures of one program under a window spec, of all ranks or of some.

    Raises NothingMeasured where no rank has anything in its windows, TraceError where a trace cannot be read.
    """
    look = _Summing(captures, spec, ranks)
    tell("kernels")
    kernels = look.kernels
    tell("what the steps wait for")
    budgets = tuple(look.list_rank_budgets())
    tell("communication")
    communication = communication_of(captures, spec, look.windows)
    tell("what to look at")
    findings = findings_of(captures, spec, ranks=look.ranks)
    tell("steps")
    step = look.step
    shown = tuple(traces) or tuple(str(path) for path in captures.paths)
    subject = subject_of(captures, spec, look.windows, look.by_name)
    doubts = tuple(look.doubts())
    parts = (shown, subject, step, budgets, kernels, communication, findings, doubts, look.without)
    return Summary(*parts, mostly=mostly(look.budgets))


class _Summing:
    """All captures of a run under one window spec, as far as they can be measured."""

    def __init__(self, captures: Captures, spec: WindowSpec, ranks: Container[int] | None) -> None:
        self.captures, self.spec = captures, spec
        held = {rank.number for run in captures.runs for rank in run.ranks}
        chosen = [number for number in sorted(held) if ranks is None or number in ranks]
        self.windows, without = measure_each(chosen, self._windows)
        self.without = {number: from_here(str(why)) for number, why in without.items()}
        self.budgets = find_budgets(self.windows)

    def _windows(self, rank: int) -> list[RankWindow]:
        """The windows of a rank in all captures. Raises NothingMeasured."""
        for run in self.captures.runs:
            if rank not in {own.number for own in run.ranks}:
                raise NothingMeasured(f"{run.path} does not hold it")
        return [w for run in self.captures.runs for w in run.measured(self.spec).filled({rank})[rank]]

    @property
    def ranks(self) -> frozenset[int]:
        return frozenset(self.windows)

    def of_ranks(self, metric: str) -> dict[tuple[object, ...], Value]:
        """The rows of a metric by their labels, none where there are none."""
        return {row.labels: row.value for row in self.captures.rows(METRICS[metric], self.spec, self.ranks).rows}

    def of_run(self, metric: str) -> Value:
        """The value of a metric of all ranks together. Raises NoRows."""
        each = [row.value for window in self._each for row in METRICS[metric].rows(window)]
        if not each:
            raise NoRows(METRICS[metric].without)
        return median(each)

    @property
    def _each(self) -> Iterator[RunWindow]:
        """The first window of all ranks together, in each capture."""
        for run in self.captures.runs:
            group = run.measured(self.spec)
            yield RunWindow(run, {number: group.ranks[number][0] for number in self.windows}, group)

    @property
    def step(self) -> StepLength:
        """The step of the slowest rank; of a run whose steps are not known the window."""
        metric, why, quantiles = STEP, "", dict[tuple[object, ...], Value]()
        try:
            ns, each = self.of_run(STEP), [step_lengths(window) for window in self._each]
            lengths = {rank: median([own[rank] for own in each]) for rank in self.windows}
            if all(run.workload.steps is None for run in self.captures.runs):  # else an anchor is no step
                quantiles = self.of_ranks("period_ns")
        except (NoRows, UsageMistake) as nothing:  # of the whole run steps may be of several kinds
            metric, why = "window_ns", str(nothing)
            lengths = {int(str(labels[0])): own for labels, own in self.of_ranks("window_ns").items()}
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
            why,
            *(self._spread(slowest) if quantiles else (0, 0, None)),
            tuple(self._kinds()),
        )

    def _kinds(self) -> Iterator[StepsOfKind]:
        counts = self.captures.runs[0].steps.counts
        for kind, count in by_number(counts) if len(counts) > 1 else ():
            spec, runs = replace(self.spec, kind=kind), [run for run in self.captures.runs if kind in run.steps.counts]
            each = [[counted_steps(kind_step_lengths(run, rank, spec)) for rank in run.ranks] for run in runs]
            known = len(runs) == len(self.captures.runs) and all(map(all, each))
            slowest = [max(median([*own.values()]) for own in ranks) for ranks in each if known]
            yield StepsOfKind(kind, count, median(slowest) if known else None)

    def _spread(self, slowest: int) -> tuple[int, int, LongestStep | None]:
        """Of how many steps of a rank its quantiles are, and which step of all ranks stands out."""
        tracks = {rank: own[0].track for rank, own in self.windows.items()}
        each = {rank: counted_periods(track) for rank, track in tracks.items()}
        found = [
            LongestStep(ns, rank, index)
            for rank, own in each.items()
            for index, ns in own.items()
            if ns >= LONG * Fraction(median([*own.values()]))
        ]
        longest = max(found, default=None) if len(self.captures.runs) == 1 else None
        return len(counted_periods(tracks[slowest])), len(tracks[slowest].anchors), longest

    def _rates(self) -> Iterator[Rate]:
        for name in RATES:
            with suppress(NoRows, UsageMistake):  # nobody said how much work a step is, or of which kind
                yield Rate(name, self.of_run(name), METRICS[name].unit)

    def list_rank_budgets(self) -> Iterator[RankBudget]:
        """Of each rank that of the window which stands for all of its windows."""
        for number, found in self.budgets.items():
            if isinstance(found, NoRows):
                yield RankBudget(number, self.windows[number][0].length_ns, {}, why=str(found))
            else:
                yield RankBudget(number, found.lines.window_ns, found.lines.parts, found.lines.at_least)

    @cached_property
    def by_name(self) -> dict[str, tuple[Usage, str]]:
        """Time and number of the kernels of each demangled name over all windows, and their family."""
        sums = FamilySums(self.captures.runs[0], [window for own in self.windows.values() for window in own])
        found: dict[str, tuple[Usage, str]] = {}
        for (short, full), usage in sums.by_name.items():
            before, family = found.get(full or short, (Usage(), sums.family_of[short, full]))
            found[full or short] = before.and_(usage), family
        return found

    @cached_property
    def kernels(self) -> KernelShares:
        """The kernels of all windows, the longest time first."""
        windows = [window for own in self.windows.values() for window in own]
        whole = sum(window.length_ns for window in windows) or 1
        ordered = sorted(self.by_name.items(), key=lambda item: (-item[1][0].ns, item[0]))
        called = readable_names([name for name, _ in ordered[:LARGEST]])
        largest = (
            KernelShare(name, called[name], family, *usage.over(len(windows)), exact(Fraction(usage.ns) / whole))
            for name, (usage, family) in ordered[:LARGEST]
        )
        rest = ordered[LARGEST:]
        others_ns = Fraction(sum(usage.ns for _, (usage, _) in rest)) / len(windows)
        return KernelShares(tuple(largest), len(rest), exact(others_ns))

    def doubts(self) -> Iterator[str]:
        """What makes the figures doubtful, each once: of bounds where what nothing explains is worth a finding."""
        notes = self.captures.notes(self.spec, *map(METRICS.__getitem__, OF_A_RUN))
        warnings = [note.text for note in notes if note.warning]
        if len(paths := self.captures.paths) == 1:
            warnings = [text.removeprefix(f"{from_here(str(paths[0]))}: ") for text in warnings]
        worth = WORTH[FindingKind.STALLED]
        known = [each.lines for each in self.budgets.values() if not isinstance(each, NoRows)]
        unsure = [lines for lines in known if lines.dependency_stalled_ns >= worth * lines.window_ns]
        yield from dict.fromkeys([*warnings, *about_bounds(unsure), *about_gaps(unsure)])
