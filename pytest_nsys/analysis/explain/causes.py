"""Why did a value change: by how much did each named part of it change, to the nanosecond?

A cause is an amount of time with a name and a kind. The amounts of all causes and the unexplained remainder add up to
the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.explain.breakdown_model import (
    Amounts,
    Breakdown,
    BreakdownRow,
    BudgetChange,
    Change,
    ChangeKind,
    Explanation,
    LostGain,
    RootCause,
    RowActivity,
)
from pytest_nsys.analysis.explain.budget_lines import BLOCKED_PARTS, BudgetPart
from pytest_nsys.core.memoize import group_by_key


def compare_budgets(baseline: Breakdown, current: Breakdown) -> BudgetChange | None:
    """Return how the budget changed; None if a side has no budget, or nothing changed."""
    if baseline.budget is None or current.budget is None:
        return None
    sums = [
        {
            BudgetPart.COMPUTE: side.sum_time_ns(RowActivity.KERNEL),
            **{part: sum(ns_by_name.values()) for part, ns_by_name in budget.items()},
        }
        for side, budget in ((baseline, baseline.budget), (current, current.budget))
    ]
    parts = tuple(
        (part, change_ns) for part in BudgetPart if (change_ns := sums[1].get(part, 0) - sums[0].get(part, 0))
    )
    if not parts:
        return None
    compute_change_ns = dict(parts).get(BudgetPart.COMPUTE, 0)
    changes = _compare_amounts(
        baseline, current, *(_select_time(side, (RowActivity.KERNEL,)) for side in (baseline, current))
    )
    same_way = [(change.root.name, change.change_ns) for change in changes if change.change_ns * compute_change_ns > 0]
    largest = max(same_way, key=lambda kernel: abs(kernel[1]), default=None)
    return BudgetChange(parts, largest, baseline.length_ns, current.length_ns)


MetricLabels = Mapping[str, object]
CauseFinder = Callable[[Breakdown, Breakdown, MetricLabels], Iterable[Change]]


class RowExplainer(NamedTuple):
    """Explains the changes of a metric's rows; a ratio is explained by its time in ns."""

    find_causes: CauseFinder  # from the baseline and the current breakdown, for the row's labels
    # The row's value; for a ratio, its time in ns. None if a breakdown does not hold it.
    measure_ns: Callable[[Breakdown, MetricLabels], int | None]
    has_budget: bool = False  # whether the budget of the window adds to the explanation

    def explain(
        self,
        labels: MetricLabels,
        change_ns: int,
        baseline: Breakdown,
        current: Breakdown,
        further_causes: Iterable[Change] = (),
    ) -> Explanation:
        """Explain why a row changed by ``change_ns``; ``further_causes`` are those that the breakdowns do not
        contain.
        """
        rank = labels["rank"]
        assert isinstance(rank, int)
        all_causes = (*self.find_causes(baseline, current, labels), *further_causes)
        causes = [cause._replace(rank=rank) for cause in all_causes if cause.change_ns]
        causes.sort(key=lambda cause: cause.sort_key)
        budget_change = compare_budgets(baseline, current) if self.has_budget else None
        return Explanation(
            change_ns, tuple(causes), change_ns - sum(cause.change_ns for cause in causes), budget_change
        )


def _compare_amounts(
    baseline: Breakdown, current: Breakdown, baseline_amounts: Amounts, current_amounts: Amounts, stage: object = None
) -> Iterator[Change]:
    """Yield the change of each name's amount; ``stage`` is given if the amounts are of one stage."""
    for key in sorted({*baseline_amounts, *current_amounts}):
        activity, name = key
        baseline_ns, current_ns, counts = (
            baseline_amounts.get(key, 0),
            current_amounts.get(key, 0),
            (baseline.counts[key], current.counts[key]),
        )
        straggler = None
        if activity is RowActivity.COLLECTIVE:
            straggler = _find_straggler(
                current_ns - baseline_ns, baseline.sum_waits(name, stage), current.sum_waits(name, stage)
            )
        if activity is RowActivity.HOST:
            kind = ChangeKind.LATER
        elif straggler is not None:
            kind = ChangeKind.WAITED
        # As often as before but with no time on one side: it moved to another stream, behind compute or out of it.
        elif stage is None and counts[0] == counts[1] > 0 and not (baseline_ns and current_ns):
            kind = ChangeKind.ELSEWHERE
        else:
            kind = classify_change(counts, current_ns - baseline_ns)
        yield Change(RootCause(kind, activity, name), 0, baseline_ns, current_ns, *counts, straggler=straggler)


def classify_change(counts: tuple[int, int], longer_ns: int) -> ChangeKind:
    """Return the kind of change, given (baseline, current) counts and by how much the kernels became longer."""
    baseline, current = counts
    if baseline != current:
        more_kind = ChangeKind.OFTEN if baseline else ChangeKind.NEW
        less_kind = ChangeKind.RARELY if current else ChangeKind.GONE
        return more_kind if current > baseline else less_kind
    return ChangeKind.LONGER if longer_ns > 0 else ChangeKind.SHORTER


MIN_GAIN_SHARE = Fraction(1, 50)
"""The minimum share of its own time that a kernel gains to be told: less is noise."""

MIN_GAIN_DIVISOR = 100
"""A kernel's gain is told where it is at least this part of the value: a gain that nobody would see is not lost."""


def find_lost_gain(metric: str, causes: Sequence[Change], change_ns: int, value_ns: int) -> LostGain | None:
    """Return the kernel that gained most if less than half of its gain is in a change; None if there is none.

    ``causes`` add up to the change in ns of a value that was ``value_ns``.
    """
    gains = [cause for cause in causes if cause.root.activity is RowActivity.KERNEL and cause.change_ns < 0]
    gain = min(gains, key=lambda cause: cause.sort_key, default=None)
    if gain is None or -2 * change_ns >= -gain.change_ns:
        return None
    gained_ns = -gain.change_ns
    if gained_ns < MIN_GAIN_SHARE * gain.baseline_ns or MIN_GAIN_DIVISOR * gained_ns < value_ns:
        return None
    losses = [cause for cause in causes if cause.change_ns > 0]
    largest_loss = min(losses, key=lambda cause: cause.sort_key, default=None)
    is_most = largest_loss is not None and 2 * largest_loss.change_ns >= gained_ns + change_ns
    return LostGain(metric, gain, change_ns, largest_loss if is_most else None)


def _find_straggler(change_ns: int, baseline_waits: Counter[int], current_waits: Counter[int]) -> int | None:
    """Return the rank for which kernels now wait longer, or no longer, if that is most of the change; else None."""
    more_ns = current_waits.total() - baseline_waits.total()
    # The waits must change in the same direction, by at least half of the change.
    if more_ns * change_ns <= 0 or abs(change_ns) > 2 * abs(more_ns):
        return None
    sign = 1 if more_ns > 0 else -1
    return min(
        {*baseline_waits, *current_waits}, key=lambda rank: (sign * (baseline_waits[rank] - current_waits[rank]), rank)
    )


def _sum_lengths(rows: Iterable[BreakdownRow]) -> Amounts:
    lengths = Counter[tuple[RowActivity, str]]()
    for row in rows:
        lengths[row.activity, row.name] += row.length_ns
    return lengths


def _explain_lengths(is_included: Callable[[BreakdownRow, MetricLabels], bool]) -> RowExplainer:
    """Return what explains a metric by the lengths of some kernels."""

    def sum_amounts(side: Breakdown, labels: MetricLabels) -> Amounts:
        return _sum_lengths(row for row in side.rows if is_included(row, labels))

    return RowExplainer(
        lambda baseline, current, labels: _compare_amounts(
            baseline, current, sum_amounts(baseline, labels), sum_amounts(current, labels), labels.get("stage")
        ),
        lambda side, labels: sum(sum_amounts(side, labels).values()),
    )


def _is_communication_in_stage(row: BreakdownRow, labels: MetricLabels) -> bool:
    """Return whether a row is communication of the stage in ``labels``, or of any stage if there is none."""
    return row.is_hideable and labels.get("stage", row.stage) == row.stage


def _compare_exposed(baseline: Breakdown, current: Breakdown, labels: MetricLabels) -> Iterator[Change]:
    """Yield the communication that became longer and the compute that hides less of it; what came or went counts as
    exposed.
    """
    sides = [
        group_by_key((row.name, row) for row in side.rows if _is_communication_in_stage(row, labels))
        for side in (baseline, current)
    ]
    lengths: list[dict[tuple[RowActivity, str], int]] = [{}, {}]
    hidden_ns: list[Counter[tuple[str, str]]] = [Counter(), Counter()]
    for name in {*sides[0], *sides[1]}:
        row_pair = [side.get(name, []) for side in sides]
        baseline_count, current_count = (sum(part.number for part in rows) for rows in row_pair)
        for rows, length, hidden_by_pair in zip(row_pair, lengths, hidden_ns, strict=True):
            length[RowActivity.COLLECTIVE, name] = sum(
                row.length_ns if baseline_count == current_count else row.exposed_ns for row in rows
            )
            for compute, ns in (
                (compute_name, ns)
                for row in rows
                if baseline_count == current_count
                for compute_name, ns in row.ns_by_kernel.items()
            ):
                hidden_by_pair[compute, name] += ns
    yield from _compare_amounts(baseline, current, lengths[0], lengths[1], labels.get("stage"))
    compute_lengths = [_sum_lengths(side.select_rows(RowActivity.KERNEL)) for side in (baseline, current)]
    for name, pairs in group_by_key((pair[0], pair) for pair in sorted({*hidden_ns[0], *hidden_ns[1]})).items():
        baseline_ns, current_ns = (sum(side[pair] for pair in pairs) for side in hidden_ns)
        exposed_kernel = (
            min(pairs, key=lambda pair: (hidden_ns[1][pair] - hidden_ns[0][pair], pair))[1]
            if baseline_ns > current_ns
            else ""
        )
        counts = baseline.counts[RowActivity.KERNEL, name], current.counts[RowActivity.KERNEL, name]
        shorter_ns = sum(
            sign * side.get((RowActivity.KERNEL, name), 0) for sign, side in zip((1, -1), compute_lengths, strict=True)
        )
        kind = ChangeKind.ELSEWHERE  # the compute, or what it hid, moved
        if current_ns < baseline_ns and counts[1] < counts[0]:
            kind = ChangeKind.RARELY if counts[1] else ChangeKind.GONE
        # Compute that became shorter, by at least half of the cover that was lost, is the cause itself.
        elif current_ns < baseline_ns and 2 * shorter_ns >= baseline_ns - current_ns:
            kind = ChangeKind.SHORTER
        yield Change(
            RootCause(kind, RowActivity.COVER, name), 0, baseline_ns, current_ns, *counts, exposed_kernel=exposed_kernel
        )


def _sum_exposed_ns(breakdown: Breakdown, labels: MetricLabels) -> int:
    return sum(row.exposed_ns for row in breakdown.rows if _is_communication_in_stage(row, labels))


def _select_time(side: Breakdown, activities: Iterable[RowActivity]) -> Amounts:
    return {key: ns for key, ns in side.time_ns.items() if key[0] in activities}


def _explain_time(*activities: RowActivity, budget: bool = False) -> RowExplainer:
    """Return what explains a metric by the part of the window's length that went to these activities."""
    return RowExplainer(
        lambda baseline, current, _: _compare_amounts(
            baseline, current, _select_time(baseline, activities), _select_time(current, activities)
        ),
        lambda side, _: side.sum_time_ns(*activities),
        budget,
    )


_HOLDERS = {
    BudgetPart.STARVED: RowActivity.HOST,
    BudgetPart.BETWEEN: RowActivity.HOST,
    BudgetPart.COPY: RowActivity.COPY,
    BudgetPart.MEMSET: RowActivity.MEMSET,
    BudgetPart.BESIDE: RowActivity.IDLE,
    BudgetPart.STALLED: RowActivity.IDLE,
}
"""The activity that holds compute up in each part of the budget; in all other parts it is a kernel that
communicates.
"""


def _explain_budget(*parts: BudgetPart) -> RowExplainer:
    """Return what explains a metric by these parts of the budget; a row of one producer by the part of that
    producer.
    """

    def sum_amounts(side: Breakdown, labels: MetricLabels) -> Amounts:
        amounts = Counter[tuple[RowActivity, str]]()
        for part in (BLOCKED_PARTS[str(labels["producer"])],) if "producer" in labels else parts:
            for name, ns in (side.budget or {}).get(part, {}).items():
                amounts[_HOLDERS.get(part, RowActivity.COLLECTIVE), name] += ns
        return amounts

    def find_causes(baseline: Breakdown, current: Breakdown, labels: MetricLabels) -> Iterable[Change]:
        is_unknown = baseline.budget is None or current.budget is None
        return (
            ()
            if is_unknown
            else _compare_amounts(baseline, current, sum_amounts(baseline, labels), sum_amounts(current, labels))
        )

    def measure_ns(side: Breakdown, labels: MetricLabels) -> int | None:
        if side.budget is None or "stage" in labels:  # no budget is kept by stage
            return None
        return sum(sum_amounts(side, labels).values())

    return RowExplainer(find_causes, measure_ns)


EXPOSED = RowExplainer(_compare_exposed, _sum_exposed_ns, has_budget=True)
COVER = RowExplainer(_compare_exposed, lambda *_: None, has_budget=True)
"""Explains concurrent communication, which counts once in the row but several times in its parts."""

COMMUNICATION = _explain_lengths(_is_communication_in_stage)
BARRIERS = _explain_lengths(lambda row, _: row.is_barrier)
COMPUTE = _explain_lengths(lambda row, _: row.activity is RowActivity.KERNEL)
ALL_EXPOSED, IDLE = (
    _explain_time(RowActivity.COLLECTIVE, budget=True),
    _explain_time(RowActivity.HOST, RowActivity.IDLE, budget=True),
)
WHOLE = _explain_time(RowActivity.KERNEL, RowActivity.COLLECTIVE, RowActivity.HOST, RowActivity.IDLE, budget=True)
COMPUTE_ABSENT = _explain_budget(*(part for part in BudgetPart if part is not BudgetPart.COMPUTE))
STARVED, BETWEEN = _explain_budget(BudgetPart.STARVED, BudgetPart.BETWEEN), _explain_budget(BudgetPart.BETWEEN)
STALLED = _explain_budget(BudgetPart.BESIDE, BudgetPart.STALLED)
BLOCKING, BLOCKING_COMM = _explain_budget(*BLOCKED_PARTS.values()), _explain_budget(BudgetPart.COLLECTIVE)
BLOCKING_COMM_MAX = _explain_budget(BudgetPart.COLLECTIVE, BudgetPart.BESIDE)._replace(measure_ns=lambda *_: None)
"""Explains an upper bound: communication that ran while something else blocked counts in the row, but in no budget
part.
"""
