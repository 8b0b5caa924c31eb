"""Why is a row worse than before? Both runs' windows are broken down, and the root causes of the change are named.

Of the run that a baseline was last written from, the windows are kept beside the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from pytest_nsys.analysis.explain.parts import Change, ChangeKind, Explained, Explanation, Root, StepChange, What
from pytest_nsys.analysis.metrics.registry import METRICS, PERIOD, Metric
from pytest_nsys.analysis.metrics.table import MetricTable
from pytest_nsys.analysis.windows.spans import LookedAt, WindowSpec
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.exact import distance
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.model import WORSE, JudgedRow, Labels, Outcome, Verdict, spec_for
from pytest_nsys.verdicts.apart import MEDIAN_PERIOD, Apart, RunBreakdowns, usual

if TYPE_CHECKING:
    from pytest_nsys.analysis.captures.captures import Captures
    from pytest_nsys.analysis.explain.roots import Roots

EXPLAINED = (*WORSE, Outcome.INCONCLUSIVE, Outcome.IMPROVED)

MATERIAL = 100
"""A row without a baseline is explained only where it got worse by more than one part in this many."""


ON_GPU = (What.KERNEL, What.COLLECTIVE, What.COPY, What.MEMSET, What.ALL)
"""Lists the kinds of root that are the same on other ranks. What the host does differs: ranks that wait show something
of their own.
"""


class Why(NamedTuple):
    """Says why the rows of one assertion got worse, and what became of a step beside them."""

    rows: tuple[Explained, ...] = ()  # in the order of the judged rows
    step: StepChange | None = None  # None where one run does not know it
    looked_at: LookedAt | None = None  # the current run's windows that the worst row was examined in
    lacks: str = ""  # what it would take to explain the worst row; empty where it is explained


class _Sides(NamedTuple):
    """Holds the two windows that explain a row, and how the length of a step changed between them."""

    was: Apart
    now: Apart
    step: StepChange


TO_HAVE_THEM = "give its trace with --nsys-against"
NONE_KEPT = f"no windows of the run before are kept: {TO_HAVE_THEM}"
LOST = "{} is gone, or not the file that the baseline names: take it from git, or give the trace with --nsys-against"


def explain_rows(
    metric: Metric, spec: WindowSpec, rows: Sequence[JudgedRow], before: RunBreakdowns, now: RunBreakdowns
) -> Why:
    """Return why the rows that got worse or improved did so, as far as the windows of both runs say it.

    A row is left out where one run lacks its window, or where nothing is known to be behind the change.
    """
    explainer = _Rows(metric, spec, before, now)
    explained_rows: list[Explained] = []
    step_changes: list[StepChange] = []
    examined_windows: list[LookedAt | None] = []
    missing_reasons: list[str] = []
    for row in rows if not metric.outside else ():
        if row.outcome in EXPLAINED:
            labels = explainer.labels(row)
            sides = explainer.sides(row, labels)
            if sides is not None:
                explanation = explainer.explained(row, labels, sides)
                explained_rows += [] if explanation is None else [explainer.with_all_ranks(explanation, sides)]
                step_changes.append(sides.step)
            missing_reasons += (
                [explainer.lacks(row, labels, sides)] if row.baseline is not None and row.outcome in WORSE else []
            )
            examined_windows += [
                looked_at(metric, spec, [row], now) if sides is None else now.looked_at(spec, sides.now)
            ]
    return Why(
        tuple(explained_rows),
        step_changes[0] if step_changes else None,
        examined_windows[0] if examined_windows else None,
        missing_reasons[0] if missing_reasons else "",
    )


def looked_at(metric: Metric, spec: WindowSpec, rows: Sequence[JudgedRow], now: RunBreakdowns) -> LookedAt | None:
    """Return the window that gave the worst row its value, where nothing is known of the baseline; None where no row is
    bad.
    """
    row = next((row for row in rows if row.outcome in EXPLAINED), None)
    if row is not None and row.value is not None and not metric.outside:
        with suppress(NsysError):
            return now.looked_at(spec, now.apart(metric, spec, {**row.origin, **row.labels}, row.value))
    return None


def against(verdict: Verdict, before: Captures) -> LookedAt | None:
    """Return the window of an earlier run that explains what the worst row of a verdict is compared with; None where
    there is none.
    """
    row = next((row for row in verdict.rows if row.outcome in EXPLAINED), None)
    value = None if row is None else row.value if row.baseline is None else row.baseline
    if row is None or value is None:
        return None
    metric, spec = verdict.assertion.measures, spec_for(before.convention, verdict.assertion)
    with suppress(NsysError):  # what is kept of a run need not have it
        breakdown = RunBreakdowns(before).apart(metric, spec, usual({**row.origin, **row.labels}), value)
        return None if breakdown is None else breakdown.at
    return None


def between_steps(before: MetricTable, now: MetricTable) -> StepChange | None:
    """Return how the median step of each rank changed, in ns, of the ranks whose period both tables have; None where
    there are none.

    A step time has no rank, and stands for rank 0.
    """
    baseline_ns, current_ns = (
        {labels.get("rank", 0): round(value) for labels, value in table.labelled() if usual(labels) == labels}
        for table in (before, now)
    )
    ranks = sorted(rank for rank in baseline_ns.keys() & current_ns.keys() if isinstance(rank, int))
    return (
        StepChange({rank: baseline_ns[rank] for rank in ranks}, {rank: current_ns[rank] for rank in ranks})
        if ranks
        else None
    )


@dataclass
class _Rows:
    """Explains the rows of one metric under one window spec by the windows of two runs."""

    metric: Metric
    spec: WindowSpec
    before: RunBreakdowns
    now: RunBreakdowns

    def labels(self, row: JudgedRow) -> Labels:
        """Return the labels of the row that an aggregate was taken from; for a step time with the rank whose step it
        is.
        """
        is_slowest_rank = self.metric.slowest and row.value is not None
        return {**row.origin, **row.labels} | (
            {"rank": self.now.slowest(self.metric, self.spec, row.value)}
            if is_slowest_rank and row.value is not None
            else {}
        )

    def sides(self, row: JudgedRow, labels: Labels) -> _Sides | None:
        """Return the windows of both runs that explain a row; None where one of them is not at hand.

        A quantile of periods is explained by its own step against the median one, unless it is the median step that got
        longer.
        """
        value = row.baseline if row.value is None else row.value
        baseline = value if row.baseline is None else row.baseline
        if value is None or baseline is None:
            return None
        median_labels = usual(labels)
        baseline_window = self._was(self.metric, median_labels, baseline)
        current_window = self.now.apart(self.metric, self.spec, median_labels, value)
        if baseline_window is None or current_window is None:
            return None
        step = StepChange(*(self._of_one_step(side.lengths_ns) for side in (baseline_window, current_window)))
        outlier_window = self.now.apart(self.metric, self.spec, labels, value) if median_labels != labels else None
        rank = labels.get("rank")
        if (
            outlier_window is None
            or not isinstance(rank, int)
            or rank not in baseline_window.lengths_ns
            or rank not in current_window.lengths_ns
        ):
            return _Sides(baseline_window, current_window, step)
        typical_ns = baseline_window.lengths_ns[rank]
        change = value - (typical_ns if row.baseline is None else row.baseline)
        # Half of the change or more in the typical step, whichever way it goes, says that all steps changed.
        all_steps = 2 * (current_window.lengths_ns[rank] - typical_ns) * change >= change * change
        return (
            _Sides(baseline_window, current_window, step) if all_steps else _Sides(current_window, outlier_window, step)
        )

    def _was(self, metric: Metric, labels: Labels, value: Value) -> Apart | None:
        """Return the baseline window behind a value; None where nobody kept it."""
        with suppress(NsysError):  # a constant is judged on one side, whatever the other is
            return self.before.apart(metric, self.spec, labels, value)
        return None

    def lacks(self, row: JudgedRow, labels: Labels, sides: _Sides | None) -> str:
        """Return what is missing to break down a row; empty where nothing is."""
        rank = labels.get("rank")
        if sides is not None:
            has_rank = not isinstance(rank, int) or rank in sides.was.lengths_ns
            return "" if has_rank else f"no windows of rank {rank} are kept of the run before: {TO_HAVE_THEM}"
        if row.value is not None and self.now.apart(self.metric, self.spec, usual(labels), row.value) is None:
            return "the trace does not hold a step that all ranks have, of the convention's anchors, in full"
        return f"the windows that are kept of the run before are others: {TO_HAVE_THEM}"

    def _of_one_step(self, lengths_ns: Mapping[int, int]) -> Mapping[int, int]:
        """Return the lengths of one step, in ns, where the number of steps in a window is stated."""
        steps = (self.now.captures.runs[0].workload.steps if self.metric.slowest else None) or 1
        return {rank: round(Fraction(ns, steps)) for rank, ns in lengths_ns.items()}

    def explained(self, row: JudgedRow, labels: Labels, sides: _Sides) -> Explained | None:
        """Explain a row by its own parts, else by the root causes of the time it depends on; None where nothing is
        known to be behind it.

        A row of several ranks, or of a metric that has no parts, has root causes alone.
        """
        from pytest_nsys.analysis.explain.credits import behind, came_or_went

        metric, roots, parts = self.metric, self.now.roots(sides.was, sides.now), self.metric.hangs_on
        shared_ranks = sides.was.lengths_ns.keys() & sides.now.lengths_ns.keys()
        ranks = sorted(shared_ranks & {labels["rank"]} if "rank" in labels else shared_ranks)
        if metric.counts:
            kernel_name = str(labels.get("kernel", labels.get("call", "")))
            changes = came_or_went(roots, ranks, metric.subject, kernel_name)
            return _of_roots(labels, changes)
        both_sides = {rank: pair for rank in ranks if (pair := roots.both(rank)) is not None}
        if parts is None or not both_sides:
            return None
        causes = {rank: [*parts.causes(*pair, labels)] for rank, pair in both_sides.items()}
        lengths_ns = [[parts.measured_ns(pair[n], labels) for pair in both_sides.values()] for n in (0, 1)]
        is_known = None not in (*lengths_ns[0], *lengths_ns[1])
        before_ns, after_ns = (sum(ns or 0 for ns in side) for side in lengths_ns)
        change, extra_changes = after_ns - before_ns, list[Change]()
        if not is_known:  # what runs at once counts several times in its parts: these say how far it moved
            all_causes = [cause for rank_causes in causes.values() for cause in rank_causes]
            before_ns, change = (
                sum(cause.before_ns for cause in all_causes),
                sum(cause.change_ns for cause in all_causes),
            )
        steps = self.now.captures.runs[0].workload.steps if metric.slowest else None
        is_single_rank = metric.parts is not None and "rank" in labels and {*metric.dimensions} <= labels.keys()
        is_own_time = is_single_rank and metric.unit == TIME and not row.origin and usual(labels) == labels
        if is_own_time and row.value is not None and row.baseline is not None:
            is_known, change = True, round((row.value - row.baseline) * (steps or 1))
        elif row.baseline is None and MATERIAL * change <= before_ns:
            return None
        if metric.slowest and row.baseline is not None:
            extra_changes = [_slowest_before(ranks[0], sides, row.baseline * (steps or 1))]
        changes = behind(roots, causes, change, self._of_step)
        if not (is_single_rank and is_known):
            return _of_roots(labels, changes) if change > 0 else None
        row_labels = labels if steps is None else {**labels, "window": f"window of {steps} steps"}
        return Explained(row_labels, parts.explain(labels, change, *both_sides[ranks[0]], extra_changes), changes)

    def with_all_ranks(self, told: Explained, sides: _Sides) -> Explained:
        """Return the explanation with its root causes on the other ranks, and with the kernels of the windows that were
        broken down.
        """
        roots = self.now.roots(sides.was, sides.now)
        gpu_changes = {change.root: change for change in told.roots if change.root.of in ON_GPU}
        other_changes = tuple(
            other_change
            for root, change in gpu_changes.items()
            for other_change in roots.alike(root)
            if change in roots.alike(root)
        )
        ranks = {told.labels.get("rank"), *(change.rank for change in told.roots)}
        breakdowns = [side.get(rank) for side in sides[:2] for rank in ranks]
        kernel_names = frozenset(name for breakdown in breakdowns if breakdown is not None for name in breakdown.names)
        return told._replace(alike=other_changes, beside=kernel_names)

    @kept
    def _of_step(self) -> Roots | None:
        """Return the root causes of the change of the median period, which covers a whole step; None where one run
        lacks it.
        """
        periods = METRICS[PERIOD]
        labels: dict[str, Label] = {"rank": 0, "quantile": MEDIAN_PERIOD}
        with suppress(NsysError):
            baseline_window, current_window = (
                self._was(periods, labels, 0),
                self.now.apart(periods, self.spec, labels, 0),
            )
            return (
                None
                if baseline_window is None or current_window is None
                else self.now.roots(baseline_window, current_window)
            )
        return None


def _of_roots(labels: Labels, roots: tuple[Change, ...]) -> Explained | None:
    return Explained(labels, Explanation(0, (), 0), roots) if roots else None


def _slowest_before(rank: int, sides: _Sides, baseline_ns: Value) -> Change:
    """Return the change that says which rank was the slowest in the baseline, as a step time may be of another rank
    than before.
    """
    lengths_ns = sides.was.lengths_ns
    longer_ranks = [other_rank for other_rank in lengths_ns if lengths_ns[other_rank] > lengths_ns[rank]]
    slowest_rank = min(
        [rank, *sorted(longer_ranks)], key=lambda other_rank: distance(lengths_ns[other_rank], baseline_ns)
    )
    root = Root(ChangeKind.ELSEWHERE, What.RANK, "")
    return Change(root, rank, lengths_ns[slowest_rank], lengths_ns[rank], straggler=slowest_rank)
