"""Why is a row worse than before? The windows of both runs are broken down, and the root causes of the change named.

Next to a baseline lie the windows of the run that it was last written from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from pytest_nsys.analysis.explain.breakdown_model import (
    NEXT_STEP,
    Breakdown,
    Change,
    ChangeKind,
    Explanation,
    RootCause,
    RowActivity,
    RowExplanation,
    StepChange,
)
from pytest_nsys.analysis.metrics.registry import METRICS, PERIOD_METRIC, Metric
from pytest_nsys.analysis.metrics.table import MetricTable
from pytest_nsys.analysis.windows.window_selection import ExaminedWindow, WindowSpec, choose_window_noun
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.exact import distance
from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.scopes import KernelPlace, ScopeSelector
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.model import OUTSIDE_LIMIT, JudgedLabels, JudgedRow, Outcome, Verdict, resolve_window_spec
from pytest_nsys.verdicts.window_breakdowns import MEDIAN_PERIOD, RunBreakdowns, WindowBreakdown, use_median_period

if TYPE_CHECKING:
    from pytest_nsys.analysis.captures.captures import Captures
    from pytest_nsys.analysis.explain.root_causes import RootCauses

EXPLAINED_OUTCOMES = (*OUTSIDE_LIMIT, Outcome.INCONCLUSIVE, Outcome.IMPROVED)


def is_explained(row: JudgedRow) -> bool:
    """Whether a row has a why: one that got worse, or better, or that a claim is about."""
    return row.outcome in EXPLAINED_OUTCOMES or (row.claim is not None and row.value is not None)


MATERIAL_DIVISOR = 100
"""A row without a baseline is explained only if it got worse by more than 1 / MATERIAL_DIVISOR."""


GPU_ROOT_KINDS = (RowActivity.KERNEL, RowActivity.COLLECTIVE, RowActivity.COPY, RowActivity.MEMSET, RowActivity.ALL)
"""Kinds of root causes that are the same on all ranks. Host activity is not among them: a waiting rank shows other host
activity.
"""


MAX_PLACED_CAUSES = 8
"""How many kernels of a row, the largest changes first, have their place told beside the root causes."""

PLACED_ACTIVITIES = (RowActivity.KERNEL, RowActivity.COLLECTIVE)
"""The activities whose place in the program is told."""


class RowExplanations(NamedTuple):
    """Says why the rows of one assertion got worse, and how the length of a step changed."""

    rows: tuple[RowExplanation, ...] = ()  # in the order of the judged rows
    step: StepChange | None = None  # None if the length is unknown in one run
    examined_window: ExaminedWindow | None = None  # the current run's windows that the worst row was examined in
    examined_baseline: ExaminedWindow | None = None  # the windows of the run before that those were compared with
    missing_reason: str = ""  # what is missing to explain the worst row; empty if it is explained


class _ExplainingWindows(NamedTuple):
    """Holds the two windows that explain a row, and how the length of a step changed between them."""

    baseline: WindowBreakdown
    current: WindowBreakdown
    step: StepChange
    of_one_run: bool = False  # whether both are steps of the current run: a rare one, and the median one


GIVE_TRACE_HINT = "give its trace with --nsys-against"
NO_WINDOWS_KEPT = f"no windows of the base are kept: {GIVE_TRACE_HINT}"
WINDOWS_LOST = (
    "{} is gone, or not the file that the baseline names: take it from git, or give the trace with --nsys-against"
)


def explain_rows(
    metric: Metric, spec: WindowSpec, rows: Sequence[JudgedRow], baseline: RunBreakdowns, current: RunBreakdowns
) -> RowExplanations:
    """Return explanations of the rows that got worse or improved, from the windows of both runs.

    A row is left out if one run lacks its window, or if no cause is found.
    """
    explainer = _RowExplainer(metric, spec, baseline, current)
    explained_rows: list[RowExplanation] = []
    step_changes: list[StepChange] = []
    examined_windows: list[tuple[ExaminedWindow | None, ExaminedWindow | None]] = []
    missing_reasons: list[str] = []
    for row in rows if not metric.is_outside_trace else ():
        if is_explained(row):
            labels = explainer.resolve_labels(row)
            sides = explainer.find_explaining_windows(row, labels)
            if sides is not None:
                explanation = explainer.explain_row(row, labels, sides)
                explained_rows += [] if explanation is None else [explainer.add_other_ranks(explanation, sides)]
                step_changes.append(sides.step)
            missing_reasons += (
                [explainer.describe_missing(row, labels, sides)]
                if row.baseline is not None and row.outcome in OUTSIDE_LIMIT
                else []
            )
            examined_windows += [
                (find_examined_window(metric, spec, [row], current), None)
                if sides is None
                else (
                    current.find_examined_window(spec, sides.current),
                    None if sides.of_one_run else sides.baseline.location,
                )
            ]
    return RowExplanations(
        tuple(explained_rows),
        step_changes[0] if step_changes else None,
        *(examined_windows[0] if examined_windows else (None, None)),
        missing_reasons[0] if missing_reasons else "",
    )


def find_examined_window(
    metric: Metric, spec: WindowSpec, rows: Sequence[JudgedRow], current: RunBreakdowns
) -> ExaminedWindow | None:
    """Return the window that gave the worst row its value, for use without a baseline's run; None if no row is bad."""
    row = next(filter(is_explained, rows), None)
    if row is not None and row.value is not None and not metric.is_outside_trace:
        with suppress(NsysError):
            return current.find_examined_window(
                spec, current.break_down_row(metric, spec, {**row.origin, **row.labels}, row.value)
            )
    return None


def find_baseline_window(verdict: Verdict, baseline: Captures) -> ExaminedWindow | None:
    """Return the window of an earlier run that explains what the worst row of a verdict is compared with; None where
    there is none.
    """
    if verdict.examined_baseline is not None:
        return verdict.examined_baseline
    row = next(filter(is_explained, verdict.rows), None)
    value = None if row is None else row.value if row.baseline is None else row.baseline
    if row is None or value is None:
        return None
    metric, spec = verdict.assertion.measured_metric, resolve_window_spec(baseline.convention, verdict.assertion)
    with suppress(NsysError):  # the kept windows may lack it
        breakdown = RunBreakdowns(baseline).break_down_row(
            metric, spec, use_median_period({**row.origin, **row.labels}), value
        )
        return None if breakdown is None else breakdown.location
    return None


def compare_steps(baseline_table: MetricTable, current_table: MetricTable) -> StepChange | None:
    """Return how the median step changed, in ns, for each rank whose period both tables have; None if there is none.

    A step time, which has no rank, is entered as rank 0.
    """
    baseline_ns, current_ns = (
        {
            labels.get("rank", 0): round(value)
            for labels, value in table.label_rows()
            if use_median_period(labels) == labels
        }
        for table in (baseline_table, current_table)
    )
    ranks = sorted(rank for rank in baseline_ns.keys() & current_ns.keys() if isinstance(rank, int))
    return (
        StepChange({rank: baseline_ns[rank] for rank in ranks}, {rank: current_ns[rank] for rank in ranks})
        if ranks
        else None
    )


@dataclass
class _RowExplainer:
    """Explains the rows of one metric under one window spec by the windows of two runs."""

    metric: Metric
    spec: WindowSpec
    baseline: RunBreakdowns
    current: RunBreakdowns

    def resolve_labels(self, row: JudgedRow) -> JudgedLabels:
        """Return the labels of the row that an aggregate was taken from; for a step time with the rank whose step it
        is.
        """
        is_slowest_rank = self.metric.of_slowest_rank and row.value is not None
        return {**row.origin, **row.labels} | (
            {"rank": self.current.find_slowest_rank(self.metric, self.spec, row.value)}
            if is_slowest_rank and row.value is not None
            else {}
        )

    def find_explaining_windows(self, row: JudgedRow, labels: JudgedLabels) -> _ExplainingWindows | None:
        """Return the windows of both runs that explain a row; None if one of them is not available.

        A quantile of periods is explained by comparing its own step with the median step, unless the median step itself
        got longer.
        """
        value = row.baseline if row.value is None else row.value
        baseline = value if row.baseline is None else row.baseline
        if value is None or baseline is None:
            return None
        median_labels = use_median_period(labels)
        baseline_window = self._find_baseline_window(self.metric, median_labels, baseline)
        current_window = self.current.break_down_row(self.metric, self.spec, median_labels, value)
        if baseline_window is None or current_window is None:
            return None
        change = None if row.baseline is None or row.value is None else row.value - row.baseline
        baseline_window, current_window = self._choose_like_windows((baseline_window, current_window), labels, change)
        step = StepChange(
            self._divide_by_steps(baseline_window.lengths_ns),
            self._divide_by_steps(current_window.lengths_ns),
            self._count_unlike((baseline_window, current_window), labels),
        )
        outlier_window = (
            self.current.break_down_row(self.metric, self.spec, labels, value) if median_labels != labels else None
        )
        rank = labels.get("rank")
        if (
            outlier_window is None
            or not isinstance(rank, int)
            or rank not in baseline_window.lengths_ns
            or rank not in current_window.lengths_ns
        ):
            return _ExplainingWindows(baseline_window, current_window, step)
        typical_ns = baseline_window.lengths_ns[rank]
        change = value - (typical_ns if row.baseline is None else row.baseline)
        # If the typical step has half of the change or more, in the same direction, all steps changed.
        all_steps = 2 * (current_window.lengths_ns[rank] - typical_ns) * change >= change * change
        return (
            _ExplainingWindows(baseline_window, current_window, step)
            if all_steps
            else _ExplainingWindows(current_window, outlier_window, step, of_one_run=True)
        )

    def _choose_like_windows(
        self, windows: _WindowPair, labels: JudgedLabels, change: int | Fraction | None
    ) -> _WindowPair:
        """Return the two steps to compare: the given ones, or one and the same step of both runs where these do other
        work, or say little about the row's change.
        """
        baseline_index, current_index = (window.location.spec.index for window in windows)
        if baseline_index is None or current_index is None:
            return windows
        rank = labels.get("rank")
        unlike_count = 0 if baseline_index == current_index else _count_differing_kernels(windows, rank)
        if unlike_count:
            index = self.current.find_nearest_step(self.baseline, windows, self.spec, "all")
            # A stored baseline holds few steps: then the one that it has is compared with the same one now.
            for shared_index in (index, baseline_index, current_index):
                pair = self._pair_steps(windows, shared_index)
                if pair is not None and _count_differing_kernels(pair, rank) < unlike_count:
                    windows = pair
                    break
        if change is None or not isinstance(rank, int) or 2 * _rate_pair(windows, rank, change) <= distance(change, 0):
            return windows
        # The step that is typical of all ranks is not typical of this one.
        pair = self._pair_steps(windows, self.current.find_nearest_step(self.baseline, windows, self.spec, rank))
        is_better = pair is not None and 2 * _rate_pair(pair, rank, change) < _rate_pair(windows, rank, change)
        return pair if pair is not None and is_better else windows

    def _pair_steps(self, windows: _WindowPair, index: int | None) -> _WindowPair | None:
        """Return the step of an index in both runs; None if one of them does not hold it."""
        with suppress(NsysError):
            if index is not None:
                pair = self.baseline.break_down_step(windows[0], index), self.current.break_down_step(windows[1], index)
                return pair if _break_down_both(pair, None) is not None else None
        return None

    def _count_unlike(self, windows: _WindowPair, labels: JudgedLabels) -> tuple[int, int] | None:
        """Return the number of kernels of two windows of unlike work; None if they are alike, or if they are steps, of
        which each counts as one whatever it ran.
        """
        nouns = {choose_window_noun(window.location.windows) for window in windows}
        if nouns == {"step"} and not self.spec.is_whole_run:
            return None
        sides = _break_down_both(windows, labels.get("rank"))
        if sides is None or not sides[0].is_unlike(sides[1]):
            return None
        before, now = (sum(side.kernel_counts.values()) for side in sides)
        return before, now

    def _find_baseline_window(self, metric: Metric, labels: JudgedLabels, value: Value) -> WindowBreakdown | None:
        """Return the baseline window behind a value; None if it was not kept."""
        with suppress(NsysError):  # a constant limit does not need the baseline
            return self.baseline.break_down_row(metric, self.spec, labels, value)
        return None

    def describe_missing(self, row: JudgedRow, labels: JudgedLabels, sides: _ExplainingWindows | None) -> str:
        """Describe what is missing to break down a row; empty if nothing is."""
        rank = labels.get("rank")
        if sides is not None:
            has_rank = not isinstance(rank, int) or rank in sides.baseline.lengths_ns
            return "" if has_rank else f"no windows of rank {rank} are kept of the base: {GIVE_TRACE_HINT}"
        if (
            row.value is not None
            and self.current.break_down_row(self.metric, self.spec, use_median_period(labels), row.value) is None
        ):
            return "the trace does not hold a step that all ranks have, of the convention's anchors, in full"
        return f"the windows that are kept of the base are others: {GIVE_TRACE_HINT}"

    def _divide_by_steps(self, lengths_ns: Mapping[int, int]) -> Mapping[int, int]:
        """Return the length of one step, in ns, by rank, if the number of steps in a window is stated; else the given
        lengths.
        """
        steps = (self.current.captures.runs[0].workload.steps if self.metric.of_slowest_rank else None) or 1
        return {rank: round(Fraction(ns, steps)) for rank, ns in lengths_ns.items()}

    def explain_row(self, row: JudgedRow, labels: JudgedLabels, sides: _ExplainingWindows) -> RowExplanation | None:
        """Explain a row by its own parts, else by the root causes of the time that it depends on; None if no cause is
        found.

        A row of several ranks, or of a metric without parts, is explained by root causes only.
        """
        from pytest_nsys.analysis.explain.causes import find_lost_gain
        from pytest_nsys.analysis.explain.root_cause_credits import find_count_changes, find_root_causes

        if self.metric.program_scope is not None:
            return self._explain_scope_row(row, labels, sides, self.metric.program_scope)
        metric, roots, parts = (
            self.metric,
            self.current.find_roots(sides.baseline, sides.current),
            self.metric.underlying_parts,
        )
        shared_ranks = sides.baseline.lengths_ns.keys() & sides.current.lengths_ns.keys()
        ranks = sorted(shared_ranks & {labels["rank"]} if "rank" in labels else shared_ranks)
        if metric.counts_kernels:
            kernel_name = str(labels.get("kernel", labels.get("call", "")))
            changes = find_count_changes(roots, ranks, metric.subject, kernel_name)
            return _make_roots_only(labels, changes)
        both_sides = {rank: pair for rank in ranks if (pair := roots.find_both_sides(rank)) is not None}
        if parts is None or not both_sides:
            return None
        causes = {rank: [*parts.find_causes(*pair, labels)] for rank, pair in both_sides.items()}
        lengths_ns = [[parts.measure_ns(pair[n], labels) for pair in both_sides.values()] for n in (0, 1)]
        is_known = None not in (*lengths_ns[0], *lengths_ns[1])
        before_ns, after_ns = (sum(ns or 0 for ns in side) for side in lengths_ns)
        change, extra_changes = after_ns - before_ns, list[Change]()
        if not is_known:  # parts that run at once count several times: the causes say how far the row moved
            all_causes = [cause for rank_causes in causes.values() for cause in rank_causes]
            before_ns, change = (
                sum(cause.baseline_ns for cause in all_causes),
                sum(cause.change_ns for cause in all_causes),
            )
        steps = self.current.captures.runs[0].workload.steps if metric.of_slowest_rank else None
        is_single_rank = metric.parts is not None and "rank" in labels and {*metric.dimensions} <= labels.keys()
        is_own_time = is_single_rank and metric.unit == TIME and not row.origin and use_median_period(labels) == labels
        if is_own_time and row.value is not None and row.baseline is not None:
            is_known, change = True, round((row.value - row.baseline) * (steps or 1))
        elif row.baseline is None and MATERIAL_DIVISOR * change <= before_ns:
            return None
        if metric.of_slowest_rank and row.baseline is not None:
            extra_changes = [_make_slowest_rank_change(ranks[0], sides, row.baseline * (steps or 1))]
        changes = find_root_causes(roots, causes, change, self._find_step_roots, labels.get("stage"))
        if not (is_single_rank and is_known):
            is_claimed = row.claim is not None
            return _make_roots_only(labels, changes, is_claimed=is_claimed) if change > 0 or is_claimed else None
        row_labels = labels if steps is None else {**labels, "window": f"window of {steps} steps"}
        explanation = parts.explain(labels, change, *both_sides[ranks[0]], extra_changes)
        lost_gain = (
            find_lost_gain(metric.name, explanation.causes, change, before_ns)
            if row.claim is not None and metric.unit == TIME
            else None
        )
        return RowExplanation(row_labels, explanation, changes, is_claimed=row.claim is not None, lost_gain=lost_gain)

    def _explain_scope_row(
        self, row: JudgedRow, labels: JudgedLabels, sides: _ExplainingWindows, scope: ScopeSelector
    ) -> RowExplanation | None:
        """Explain the time of a part of the program by the kernels that it launches; None where the row is of no single
        rank, or a limit without a baseline found it unchanged.
        """
        from pytest_nsys.analysis.explain.root_cause_credits import select_most_credited
        from pytest_nsys.analysis.scopes.scope_causes import EXPLAINED_METRICS, explain_scope

        rank, name = labels.get("rank"), self.metric.name.partition(" ")[0]
        baseline = self.current if sides.of_one_run else self.baseline
        if not isinstance(rank, int) or name not in EXPLAINED_METRICS:
            return None
        base, head = baseline.find_rank_window(sides.baseline, rank), self.current.find_rank_window(sides.current, rank)
        if base is None or head is None or row.value is None:
            return None
        path = labels.get("scope")
        selector = scope if path is None else scope._replace(pattern=str(path))
        explanation = explain_scope(selector, name, base, head)
        credits_ns = {
            cause: abs(cause.change_ns) for cause in explanation.causes if cause.change_ns * explanation.change_ns > 0
        }
        roots = select_most_credited(credits_ns, abs(explanation.change_ns))
        place = KernelPlace(selector.kind, selector.pattern, selector.direction, None)
        return RowExplanation(
            labels, explanation, roots, is_claimed=row.claim is not None, places={root.root: place for root in roots}
        )

    def add_other_ranks(self, explained: RowExplanation, sides: _ExplainingWindows) -> RowExplanation:
        """Return the explanation with its root causes on the other ranks, and with the kernels of the windows that were
        broken down.
        """
        roots = self.current.find_roots(sides.baseline, sides.current)
        gpu_changes = {
            change.root: change for change in explained.root_causes if change.root.activity in GPU_ROOT_KINDS
        }
        other_changes = tuple(
            other_change
            for root, change in gpu_changes.items()
            for other_change in roots.list_alike_changes(root)
            if change in roots.list_alike_changes(root)
        )
        ranks = {explained.labels.get("rank"), *(change.rank for change in explained.root_causes)}
        breakdowns = [side.find_breakdown(rank) for side in sides[:2] for rank in ranks]
        kernel_names = frozenset(
            name for breakdown in breakdowns if breakdown is not None for name in breakdown.kernel_names
        )
        return explained._replace(
            alike_on_all_ranks=other_changes,
            window_kernels=kernel_names,
            places=explained.places
            or self._find_places([*explained.root_causes, *explained.explanation.causes[:MAX_PLACED_CAUSES]], sides),
        )

    def _find_places(self, changes: Sequence[Change], sides: _ExplainingWindows) -> dict[RootCause, KernelPlace]:
        """Return where in the program the kernels of the root causes are launched, and what the host does before a late
        step, as far as the traces say so.
        """
        baseline = self.current if sides.of_one_run else self.baseline
        places: dict[RootCause, KernelPlace] = {}
        late_steps = [change for change in changes if change.root.name == NEXT_STEP and change.change_ns > 0]
        host_places = {self.current.find_host_place(sides.current, change.rank) for change in late_steps}
        if len(host_places) == 1 and (host_place := next(iter(host_places))) is not None:  # on all ranks the same
            places[late_steps[0].root] = host_place
        for change in changes:
            if change.root.activity in PLACED_ACTIVITIES and change.root not in places:
                place = self.current.find_kernel_place(baseline, sides[:2], change)
                # "in stage4_f" of a convention says it where its range is taken for a module of that name.
                if place is not None and not (change.root.stage and change.root.stage in place.pattern):
                    places[change.root] = place
        return places

    @memoize_method
    def _find_step_roots(self) -> RootCauses | None:
        """Return the root causes of the change of the median period, which covers a whole step; None where one run
        lacks it.
        """
        periods = METRICS[PERIOD_METRIC]
        labels: dict[str, Label] = {"rank": 0, "quantile": MEDIAN_PERIOD}
        with suppress(NsysError):
            baseline_window, current_window = (
                self._find_baseline_window(periods, labels, 0),
                self.current.break_down_row(periods, self.spec, labels, 0),
            )
            return (
                None
                if baseline_window is None or current_window is None
                else self.current.find_roots(baseline_window, current_window)
            )
        return None


_WindowPair = tuple[WindowBreakdown, WindowBreakdown]
"""The windows of the (baseline, current) run."""


def _break_down_both(windows: _WindowPair, rank: Label | None) -> tuple[Breakdown, Breakdown] | None:
    """Return what two windows of a rank, else of the first rank that both have, were made of; None if one lacks it."""
    shared_ranks = sorted(windows[0].lengths_ns.keys() & windows[1].lengths_ns.keys())
    chosen_rank = rank if isinstance(rank, int) else next(iter(shared_ranks), None)
    baseline, current = (window.find_breakdown(chosen_rank) for window in windows)
    return None if baseline is None or current is None else (baseline, current)


def _count_differing_kernels(windows: _WindowPair, rank: Label | None) -> int:
    sides = _break_down_both(windows, rank)
    return 0 if sides is None else sides[0].count_differing_kernels(sides[1])


def _rate_pair(windows: _WindowPair, rank: int, change: Value) -> Value:
    """Return how far the change of a rank's window is from the change of a row; smaller is better."""
    if any(rank not in window.lengths_ns for window in windows):
        return 0
    return distance(windows[1].lengths_ns[rank] - windows[0].lengths_ns[rank], change)


def _make_roots_only(
    labels: JudgedLabels, roots: tuple[Change, ...], *, is_claimed: bool = False
) -> RowExplanation | None:
    return RowExplanation(labels, Explanation(0, (), 0), roots, is_claimed=is_claimed) if roots else None


def _make_slowest_rank_change(rank: int, sides: _ExplainingWindows, baseline_ns: Value) -> Change:
    """Return the change that names the slowest rank of the baseline, as the slowest rank may have changed."""
    lengths_ns = sides.baseline.lengths_ns
    longer_ranks = [other_rank for other_rank in lengths_ns if lengths_ns[other_rank] > lengths_ns[rank]]
    slowest_rank = min(
        [rank, *sorted(longer_ranks)], key=lambda other_rank: distance(lengths_ns[other_rank], baseline_ns)
    )
    root = RootCause(ChangeKind.ELSEWHERE, RowActivity.RANK, "")
    return Change(root, rank, lengths_ns[slowest_rank], lengths_ns[rank], straggler=slowest_rank)
