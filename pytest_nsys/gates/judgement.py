"""How does a verdict follow from values and limits?

A limit is a constant (rule R2), or a baseline with its tolerance (R3). Every row, or the aggregate that the sentence
names, must hold its limit. Missing data is never a pass: no row at all, a row that one capture or the baseline lacks,
or a row of the baseline that is gone.

Two rules apply to a judgement besides its limits. With ``fail_after: N`` only the N-th bad run in a row fails; the ones
before are *inconclusive*. Only *failed* against a baseline with a tolerance (R3, R4) is delayed. Without a history, a
branch, or an earlier run on the branch, the first bad run fails. An assertion that failed once fails until it holds
again.

A claim (``at least 3% below baseline``) is the other way round: it holds where the change to the better is as large as
claimed, and more than the noise. What the captures do not show fails, as a change that is too small does.

``pipeline overlap_score >= 0.30`` also limits the period, as stages that overlap have a good score even if something
else keeps the period long. The sentence holds for a rank if the score reaches its limit and ``serialization`` is below
one half: the median period is nearer to the length of the longer stage than to the sum of both stages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fractions import Fraction
from itertools import takewhile
from typing import NamedTuple

from pytest_nsys.analysis.metrics.table import (
    LabelledValue,
    MetricTable,
    NothingSelected,
    Selector,
    make_label_key,
    select_meant_rows,
    select_rows,
)
from pytest_nsys.core.exact import distance, median, simplify_fraction
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Label, Note, Row, Value
from pytest_nsys.core.numbers import format_distance
from pytest_nsys.core.text_format import format_count, format_labels, sanitize_line
from pytest_nsys.core.units import HASH
from pytest_nsys.gates.model import (
    Assertion,
    BaselineLimit,
    ClaimEvidence,
    ClaimFinding,
    Comparator,
    Difference,
    JudgedLabels,
    JudgedRow,
    Outcome,
    Requirement,
    UnmatchedRows,
)
from pytest_nsys.gates.noise import (
    CLAIM_ROWS,
    FEWEST_FOR_SEPARATION,
    IMPOSSIBLE,
    Decision,
    compute_noise_bound,
    count_needed_captures,
    measure_accepted_spread,
)
from pytest_nsys.gates.selection import (
    describe_absent_ranks,
    find_absent_ranks,
    find_origin_row,
    fold_rows,
    select_complete_rows,
)
from pytest_nsys.gates.waivers import make_selector_match, waive


@dataclass(frozen=True, slots=True)
class Judgement:
    """Holds the judged rows, worst first, and the outcome that follows from them.

    ``reason`` explains an outcome that does not follow from a row.
    """

    outcome: Outcome
    rows: tuple[JudgedRow, ...] = ()
    reason: str = ""
    warnings: tuple[str, ...] = ()


RowKey = tuple[tuple[str, Label], ...]
"""Identifies a judged row by its labels. Empty for a balance, whose worst value is one row wherever in the mesh it
occurs.
"""


class NotComparable(NamedTuple):
    """Says why there is nothing to compare with. ``outcome`` is NO_DATA or INCOMPARABLE."""

    outcome: Outcome
    reason: str
    differences: tuple[Difference, ...] = ()
    is_new: bool = False  # the baseline is stored, and has no rows of this metric yet


@dataclass(frozen=True, slots=True)
class Reference:
    """Holds what a row is compared with: the median of accepted runs, and what distinguishes a change from noise."""

    runs: Sequence[MetricTable]  # the accepted ones
    calibration: Sequence[MetricTable] = ()  # the runs that the noise was measured on
    calibrated_places: frozenset[int] = frozenset()  # places of accepted runs that the calibration was made of
    decisions: Mapping[RowKey, Decision] | None = None  # results for two sets of captures (R4); None for one run (R3)
    origin: str = ""  # where the runs come from
    warnings: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()


def judge_rows(
    assertion: Assertion, table: MetricTable, reference: Reference | NotComparable | None, today: date | None = None
) -> Judgement:
    """Compare what was measured with what the assertion asks for, and return the judgement.

    ``reference`` is the baseline of an assertion that needs one. ``today`` (default: in UTC) is the day by which
    waivers expire.
    """
    table, reference = _match_stage_counting(table, reference)
    judgement = _add_origins(_judge_limits(assertion, table, reference), assertion, table)
    if assertion.warn is not None:
        judgement = replace(judgement, rows=tuple(_add_early_warning(assertion.warn, row) for row in judgement.rows))
    if assertion.waivers and judgement.rows:
        day = today or datetime.now(UTC).date()
        rows, waiver_warnings = waive(
            assertion, assertion.limit_target.unit, judgement.rows, make_selector_match(table), day
        )
        judgement = summarize_rows(rows, warnings=(*judgement.warnings, *waiver_warnings))
    absent_ranks = find_absent_ranks(table, assertion.where, assertion.allow_missing)
    if not absent_ranks or judgement.outcome is Outcome.NO_DATA:
        return judgement
    # The verdict still shows the rows that exist.
    return replace(judgement, outcome=Outcome.NO_DATA, reason=describe_absent_ranks(absent_ranks))


def _match_stage_counting(
    current: MetricTable, reference: Reference | NotComparable | None
) -> tuple[MetricTable, Reference | NotComparable | None]:
    """Return both sides with kernels without a stage counted in both or in neither.

    Else a run that lost its stages would be compared with rows of stages, and an aggregate would hide that.
    """
    if not isinstance(reference, Reference):
        return current, reference
    if all(table.counts_unstaged for table in (current, *reference.runs, *reference.calibration)):
        return current, reference
    runs = [replace(table, counts_unstaged=False) for table in reference.runs]
    calibration = [replace(table, counts_unstaged=False) for table in reference.calibration]
    return replace(current, counts_unstaged=False), replace(reference, runs=runs, calibration=calibration)


def _add_origins(judgement: Judgement, assertion: Assertion, table: MetricTable) -> Judgement:
    """Return the judgement with the row that each aggregate took its value from, which names the rank."""
    if not assertion.aggregates or not judgement.rows:
        return judgement
    selected_rows = select_meant_rows(table, assertion.where)
    rows = tuple(
        row
        if row.value is None
        else replace(row, origin=find_origin_row(table, selected_rows, assertion, (row.labels, row.value)))
        for row in judgement.rows
    )
    return replace(judgement, rows=rows)


def _judge_limits(assertion: Assertion, current: MetricTable, reference: Reference | NotComparable | None) -> Judgement:
    """Return the judgement of the limit alone, without early limit, waivers and absent ranks."""
    if problem := describe_lacking_row(current, assertion.where):
        return Judgement(Outcome.NO_DATA, reason=problem)
    try:
        selected_rows = select_rows(current, assertion.where)
    except NothingSelected as nothing:
        if not assertion.allow_no_data:
            return Judgement(Outcome.NO_DATA, reason=str(nothing))
        runs = reference.runs if isinstance(reference, Reference) else ()
        unseen_bounds = _collect_unseen_bounds(assertion, current)
        baseline_rows = [
            (build_row_key(assertion, labels), baseline)
            for table in runs
            for labels, baseline in select_meant_rows(table, assertion.where)
        ]
        if not all(
            _is_certainly_better(assertion, unseen_bounds.get(key), baseline) for key, baseline in baseline_rows
        ):
            return Judgement(Outcome.NO_DATA, reason=f"{nothing}, but the baseline has one")
        return Judgement(Outcome.PASSED, reason=str(nothing))
    try:
        rows = fold_rows(current, selected_rows, assertion)
    except NothingSelected as nothing:
        return Judgement(Outcome.NO_DATA, reason=str(nothing))
    limit = assertion.requirement.limit
    if not isinstance(limit, BaselineLimit):
        return _judge_by_constants(assertion, rows)
    assert reference is not None  # where no baseline is at hand, the reference says why
    if isinstance(reference, NotComparable):
        return Judgement(reference.outcome, reason=reference.reason)
    return _judge_by_baseline(assertion, limit, rows, reference, _collect_unseen_bounds(assertion, current))


def _collect_unseen_bounds(assertion: Assertion, table: MetricTable) -> dict[RowKey, Value]:
    """Return, for each row that is absent because its value is too small to be measured, the bound that the value is
    below.
    """
    return {build_row_key(assertion, labels): error for labels, error in table.label_rows(table.unseen.items())}


def _is_certainly_better(assertion: Assertion, unseen_bound: Value | None, baseline: Value) -> bool:
    """Whether an absent row is better than its baseline for every value below its bound."""
    return unseen_bound is not None and assertion.requirement.worse_direction > 0 and unseen_bound <= baseline


def describe_lacking_row(table: MetricTable, where: Mapping[str, Selector]) -> str | None:
    """Describe the first selected row that some capture or window lacks, and why; None if none is lacking."""
    for labels, reason in table.missing:
        for named_labels, _ in select_meant_rows(replace(table, rows=[Row(labels, 0)]), where):
            return f"{place}: {reason}" if (place := format_labels(named_labels)) else reason
    return None


def measure_worsening(requirement: Requirement, value: Value, reference: Value) -> Value:
    """Return how much worse a value is than another, negative where it is better.

    Where both directions are worse, return the distance.
    """
    return (
        simplify_fraction(requirement.worse_direction * (Fraction(value) - reference))
        if requirement.worse_direction
        else distance(value, reference)
    )


def compute_tolerance(
    limit: BaselineLimit,
    unit: str,
    accepted: Sequence[Value],
    calibration: Sequence[Value],
    calibrated_places: frozenset[int],
    row_count: int,
) -> tuple[Value, Value | None]:
    """Return the tolerance T of a row with these accepted values, and the bound B of its noise, both in the row's unit.

    The gate sees changes of more than max(T, B). Rows of structure have neither tolerance nor noise. B is None if the
    noise was not measured.
    """
    if limit.tolerance is None:
        return 0, None
    return simplify_fraction(limit.tolerance.compute_amount(median(accepted), unit)), compute_noise_bound(
        accepted, calibration, calibrated_places, row_count
    )


# Without a limit one hiccup among the captures of a calibration would let every later regression pass.
MOST_EXCUSED_TOLERANCES = 2
"""How many times the tolerance a change that noise may explain can be, at most."""


def compute_allowed_change(limit: BaselineLimit, tolerance: Value, noise: Value | None) -> Value:
    """Return how far worse than its baseline a row may be before it fails: max(T, B), and at most 2T.

    Where the noise is the tolerance, it alone decides.
    """
    if limit.tolerance is not None and limit.tolerance.noise_only:
        return noise or 0
    return min(max(tolerance, noise or 0), MOST_EXCUSED_TOLERANCES * tolerance)


def _judge_by_constants(assertion: Assertion, rows: Sequence[LabelledValue]) -> Judgement:
    """Judge each row by the constant, or by the constant of the row's GPU model."""
    judged_rows: list[JudgedRow] = []
    problems: dict[str, None] = {}
    for row in rows:
        try:
            judged_rows.append(_judge_by_constant(assertion, assertion.requirement.find_constant(row[0]).value, row))
        except ValueError as problem:
            problems[str(problem)] = None
            judged_rows.append(JudgedRow(*row, None, Outcome.NO_DATA))
    judgement = summarize_rows(judged_rows)
    return replace(judgement, reason="; ".join(problems)) if problems else judgement


def _judge_by_constant(assertion: Assertion, limit: Fraction, row: LabelledValue) -> JudgedRow:
    labels, value = row
    comparator = assertion.requirement.comparator
    assert comparator is not None  # only a baseline has two sides
    return JudgedRow(
        labels=labels,
        value=value,
        limit=simplify_fraction(limit),
        outcome=Outcome.PASSED if comparator.is_satisfied(value, limit) else Outcome.FAILED,
        margin=-measure_worsening(assertion.requirement, value, simplify_fraction(limit)),
    )


def _add_early_warning(early_limit: Requirement, row: JudgedRow) -> JudgedRow:
    """Return the row, marked where it holds its limit but not the early one."""
    assert early_limit.comparator is not None
    if row.value is None or row.outcome in (Outcome.FAILED, Outcome.NO_DATA):
        return row
    with contextlib.suppress(ValueError):  # of another GPU model than those that it names
        return replace(
            row,
            early_warning=not early_limit.comparator.is_satisfied(
                row.value, early_limit.find_constant(row.labels).value
            ),
        )
    return row


def fold_table(table: MetricTable, assertion: Assertion) -> dict[RowKey, Value]:
    """Return the judged values of a table after aggregation, by row. Raises NothingSelected."""
    rows = fold_rows(table, select_complete_rows(table, assertion.where, assertion.allow_missing), assertion)
    return {build_row_key(assertion, labels): value for labels, value in rows}


def build_row_key(assertion: Assertion, labels: Mapping[str, Label]) -> RowKey:
    """Return the key of a judged row, by which it is found in other runs."""
    return () if assertion.balance_across is not None else tuple(labels.items())


def _judge_by_baseline(
    assertion: Assertion,
    limit: BaselineLimit,
    rows: Sequence[LabelledValue],
    reference: Reference,
    unseen_bounds: Mapping[RowKey, Value],
) -> Judgement:
    """Judge rows by the accepted values of the same rows, and judge the rows that only one side has."""
    try:
        runs = [fold_table(table, assertion) for table in reference.runs]
    except NothingSelected as nothing:
        return Judgement(Outcome.NO_DATA, reason=f"in the baseline {nothing}")
    accepted_by_key = group_by_key(row for run in runs for row in run.items())
    rows_by_key = {build_row_key(assertion, labels): (labels, value) for labels, value in rows}
    all_rows = [
        (key, *rows_by_key.get(key, (dict(key), None)), accepted_by_key.get(key, ()))
        for key in dict.fromkeys((*rows_by_key, *accepted_by_key))
    ]
    if assertion.limit_target.unit == HASH:
        return summarize_rows([_judge_fingerprint(*row) for _, *row in all_rows])
    if limit.forbidden_rows is not None:
        allowed_amount = (
            0 if limit.tolerance is None else limit.tolerance.compute_amount(0, assertion.limit_target.unit)
        )
        return summarize_rows(
            [*filter(None, (_judge_unmatched_row(limit.forbidden_rows, allowed_amount, *row) for _, *row in all_rows))]
        )
    baseline_judge = _BaselineJudge(assertion, limit, reference, len(rows))
    judge_row = baseline_judge.judge_claim if limit.is_claim else baseline_judge.judge_row
    judged_rows = []
    for key, labels, value, accepted in all_rows:
        if value is not None and accepted:
            judged_rows.append(judge_row(labels, value, accepted))
        elif value is not None:
            judged_rows.append(JudgedRow(labels, value, None, Outcome.NO_DATA))
        # Below the baseline by an unknown amount is not as much better as claimed.
        elif limit.is_claim or not _is_certainly_better(assertion, unseen_bounds.get(key), median(accepted)):
            judged_rows.append(JudgedRow(labels, None, None, Outcome.NO_DATA, baseline=median(accepted)))
    if limit.is_claim:
        return summarize_rows(judged_rows)
    if (
        limit.tolerance is not None
        and limit.tolerance.noise_only
        and (problem := _explain_missing_noise(judged_rows, reference))
    ):
        return Judgement(Outcome.NO_DATA, reason=problem)
    warnings = [*_warn_of_tolerance(limit, judged_rows, assertion.limit_target.unit)]
    if reference.decisions is not None:
        warnings += _warn_of_captures(limit, judged_rows, reference.decisions, assertion)
    return summarize_rows(judged_rows, warnings=tuple(warnings))


def _warn_of_captures(
    limit: BaselineLimit, rows: Sequence[JudgedRow], decisions: Mapping[RowKey, Decision], assertion: Assertion
) -> Iterator[str]:
    """Yield a warning where the noise between two sets of captures is more than twice the tolerance.

    Below that the test between both sets takes care of it.
    """
    if limit.tolerance is None or limit.tolerance.noise_only:
        return
    decided_rows = [
        (row, decisions.get(build_row_key(assertion, row.labels))) for row in rows if row.tolerance is not None
    ]
    noisy_rows = [replace(row, noise=decision.noise) for row, decision in decided_rows if decision is not None]
    if any(map(_is_blind, noisy_rows)):
        yield describe_noise(noisy_rows, assertion.limit_target.unit, "take more captures")


def _judge_unmatched_row(
    forbidden_rows: UnmatchedRows,
    allowed_amount: Fraction | int,
    labels: JudgedLabels,
    value: Value | None,
    accepted: Sequence[Value],
) -> JudgedRow | None:
    """Return the judged row of both sides, where a side without the row counts as 0.

    It fails where the limit forbids rows of that side alone, and the change is more than allowed. None for a row of the
    side that the limit does not ask about.
    """
    current, baseline = value or 0, median(accepted) if accepted else 0
    only_side = UnmatchedRows.NEW if not accepted else None if current else UnmatchedRows.VANISHED
    if only_side is not None and forbidden_rows not in (only_side, UnmatchedRows.EITHER):
        return None
    change = distance(current, baseline)
    if only_side is None or change <= allowed_amount:
        return JudgedRow(labels, current, None, Outcome.PASSED, baseline)
    return JudgedRow(
        labels, current, baseline, Outcome.FAILED, baseline, margin=simplify_fraction(allowed_amount - Fraction(change))
    )


def _judge_fingerprint(labels: JudgedLabels, value: Value | None, accepted: Sequence[Value]) -> JudgedRow:
    """Judge a fingerprint by whether it is one of the accepted ones; fingerprints have no meaningful distance.

    A row that only one side has fails: nothing ran there on the other side.
    """
    is_same = value is not None and value in accepted
    baseline = value if is_same else accepted[-1] if accepted else None
    outcome = Outcome.PASSED if is_same else Outcome.FAILED
    return JudgedRow(labels, value, baseline, outcome, baseline, tolerance=0, margin=0 if is_same else -1)


class _BaselineJudge:
    """Judges rows by their baseline, with the tolerance that the gate file allows and the measured noise."""

    def __init__(self, assertion: Assertion, limit: BaselineLimit, reference: Reference, row_count: int) -> None:
        self._assertion, self._limit, self._reference = assertion, limit, reference
        self._row_count = row_count  # rows are judged as one gate
        self._calibration: dict[RowKey, list[Value]] = {}
        with contextlib.suppress(NothingSelected):  # the noise of such rows is not measured
            tables = (fold_table(table, assertion) for table in reference.calibration)
            self._calibration = group_by_key(row for table_rows in tables for row in table_rows.items())

    def judge_row(self, labels: Mapping[str, Label], value: Value, accepted: Sequence[Value]) -> JudgedRow:
        """Return the judged row of a value and the median of its accepted values."""
        baseline, requirement = median(accepted), self._assertion.requirement
        is_noise_only = self._limit.tolerance is not None and self._limit.tolerance.noise_only
        unclear_outcome = Outcome.PASSED if is_noise_only else Outcome.INCONCLUSIVE  # there is no tolerance to exceed
        key = build_row_key(self._assertion, labels)
        decision = self._reference.decisions.get(key) if self._reference.decisions is not None else None
        tolerance, noise = self._compute_row_tolerance(key, accepted)
        allowed_worsening = compute_allowed_change(self._limit, tolerance, noise)
        change = measure_worsening(requirement, value, baseline)
        limit = simplify_fraction(
            Fraction(baseline) + (requirement.worse_direction or (1 if value >= baseline else -1)) * allowed_worsening
        )
        outcome = Outcome.PASSED
        if change > allowed_worsening:
            is_real = self._limit.tolerance is None or decision is None or decision.is_worse
            is_inexcusable = not is_noise_only and change > MOST_EXCUSED_TOLERANCES * tolerance
            outcome = Outcome.FAILED if is_real or is_inexcusable else unclear_outcome
        elif change > tolerance:
            outcome = unclear_outcome
        elif change < -max(Fraction(tolerance), Fraction(noise or 0)) and (decision is None or decision.is_better):
            outcome = Outcome.IMPROVED
        is_test_only = decision is not None and is_noise_only
        return JudgedRow(
            labels=labels,
            value=value,
            limit=None if is_test_only else limit,
            outcome=outcome,
            baseline=baseline,
            tolerance=None if is_test_only else tolerance,
            margin=None if is_test_only else simplify_fraction(Fraction(allowed_worsening) - change),
            noise=noise,
            test=decision.label if decision is not None and self._limit.tolerance is not None else "",
        )

    def judge_claim(self, labels: Mapping[str, Label], value: Value, accepted: Sequence[Value]) -> JudgedRow:
        """Return the judged row of a claim: whether it got as much better as claimed, and by more than the noise."""
        requirement, baseline = self._assertion.requirement, median(accepted)
        assert self._limit.tolerance is not None
        assert requirement.comparator is not None
        amount = simplify_fraction(self._limit.tolerance.compute_amount(baseline, self._assertion.limit_target.unit))
        limit = simplify_fraction(Fraction(baseline) - requirement.worse_direction * amount)
        gain = -Fraction(measure_worsening(requirement, value, baseline))
        evidence, noise, test = self._weigh_claim(build_row_key(self._assertion, labels), accepted, gain)
        if gain <= 0:
            evidence = evidence._replace(finding=ClaimFinding.WORSE, needed_captures=None)
        elif not requirement.comparator.is_satisfied(value, limit):
            has_amount = requirement.comparator in (Comparator.LE, Comparator.GE)
            finding = ClaimFinding.TOO_SMALL if has_amount else ClaimFinding.WITHIN_TOLERANCE
            evidence = evidence._replace(finding=finding, needed_captures=None)
        return JudgedRow(
            labels=labels,
            value=value,
            limit=limit,
            outcome=Outcome.PASSED if evidence.finding is ClaimFinding.SHOWN else Outcome.FAILED,
            baseline=baseline,
            tolerance=amount,
            margin=-measure_worsening(requirement, value, limit),
            noise=noise,
            test=test,
            claim=evidence,
        )

    def _weigh_claim(
        self, key: RowKey, accepted: Sequence[Value], gain: Fraction
    ) -> tuple[ClaimEvidence, Value | None, str]:
        """Return what the captures, or the accepted runs, say of a change to the better; the noise, and what tested
        it.
        """
        if self._reference.decisions is None:
            evidence, noise = self._weigh_accepted_runs(key, accepted, gain)
            return evidence, noise, ""
        decision = self._reference.decisions.get(key)
        if decision is None:  # some capture lacks the row
            return ClaimEvidence(ClaimFinding.NOT_TESTED), None, IMPOSSIBLE
        if decision.is_better:
            finding = ClaimFinding.SHOWN
        elif decision.noise is None:
            finding = ClaimFinding.NOT_TESTED
        else:
            finding = ClaimFinding.OVERLAPPING if gain > decision.noise else ClaimFinding.WITHIN_NOISE
        return ClaimEvidence(finding, decision.captures, decision.needed_captures), decision.noise, decision.label

    def _weigh_accepted_runs(
        self, key: RowKey, accepted: Sequence[Value], gain: Fraction
    ) -> tuple[ClaimEvidence, Value | None]:
        """Return what accepted runs say of a change to the better, and their noise."""
        calibration, places = self._find_calibration(key), self._reference.calibrated_places
        noise = compute_noise_bound(accepted, calibration, places, CLAIM_ROWS)
        runs_text = format_count(len(accepted), "accepted run" if self._limit.history is None else "run")
        # One run of two may be a hiccup, whatever the noise of the others is.
        is_tested = noise is not None and len(accepted) >= FEWEST_FOR_SEPARATION
        if is_tested and noise is not None and gain > noise:
            return ClaimEvidence(ClaimFinding.SHOWN, runs_text), noise
        spread = measure_accepted_spread(accepted, calibration, places)
        needed_captures = None if spread is None or gain <= 0 else count_needed_captures(gain, spread)
        finding = ClaimFinding.WITHIN_NOISE if is_tested else ClaimFinding.NOT_TESTED
        return ClaimEvidence(finding, runs_text, needed_captures), noise

    def _compute_row_tolerance(self, key: RowKey, accepted: Sequence[Value]) -> tuple[Value, Value | None]:
        """Return tolerance and noise of a row; between two sets of captures the test stands in for the noise."""
        tolerance, noise = compute_tolerance(
            self._limit,
            self._assertion.limit_target.unit,
            accepted,
            self._find_calibration(key),
            self._reference.calibrated_places,
            self._row_count,
        )
        return tolerance, noise if self._reference.decisions is None else None

    def _find_calibration(self, key: RowKey) -> Sequence[Value]:
        """Return the values of a row in the runs that its noise was measured on; none unless all of them have it."""
        calibration = self._calibration.get(key, [])
        return calibration if len(calibration) == len(self._reference.calibration) else []


def _explain_missing_noise(rows: Sequence[JudgedRow], reference: Reference) -> str | None:
    """Explain why the noise, which alone decides here, is missing; None if it was measured."""
    if reference.decisions is not None:
        if not any(row.test.startswith(IMPOSSIBLE) for row in rows):
            return None
        texts = (decision.basis for decision in reference.decisions.values())
        problem = next((basis for basis in texts if basis.startswith(IMPOSSIBLE)), IMPOSSIBLE)
        return f"the tolerance is the noise, and there is {problem}"
    unmeasured_rows = [row for row in rows if row.baseline is not None and row.value is not None and row.noise is None]
    if not unmeasured_rows:
        return None
    first_place = format_labels(unmeasured_rows[0].labels)
    return (
        f"the tolerance is the noise, which is not measured for {format_count(len(unmeasured_rows), 'row')}"
        f"{f', the first {first_place}' if first_place else ''}: calibrate the baseline, or accept more runs"
    )


def _warn_of_tolerance(limit: BaselineLimit, rows: Sequence[JudgedRow], unit: str) -> Iterator[str]:
    """Yield warnings of a tolerance that does not fit its baseline."""
    tolerance = limit.tolerance
    if tolerance is None or tolerance.noise_only:
        return
    if tolerance.relative and any(row.baseline == 0 and row.tolerance == 0 for row in rows):
        yield "a baseline is 0 and the tolerance has no abs of its unit: any change of it fails"
    if noise_text := describe_noise(rows, unit):
        yield noise_text


def describe_noise(rows: Sequence[JudgedRow], unit: str, remedy: str = "calibrate anew") -> str:
    """Return what a gate cannot see because its tolerance is tighter than the measured noise; empty where none is.

    ``remedy`` is what makes the noise smaller.
    """
    tighter_rows = [row for row in rows if _measure_excess_noise(row) > 0]
    if not tighter_rows:
        return ""
    blind_rows = [row for row in tighter_rows if _is_blind(row)]
    row = max(blind_rows or tighter_rows, key=_measure_excess_noise)
    noise, tolerance = (format_distance(amount or 0, unit) for amount in (row.noise, row.tolerance))
    row_share, place = (
        f"in {len(blind_rows or tighter_rows)} of {format_count(len(rows), 'row')}",
        format_labels(row.labels),
    )
    place_text = f" ({sanitize_line(place)})" if place else ""
    if not blind_rows:
        problem = f"the tolerance is tighter than the noise {row_share}: {tolerance} < {noise}{place_text}"
        return f"{problem}: only changes beyond the noise can fail it"
    problem = f"the noise is more than twice the tolerance {row_share}: {noise}, tolerance {tolerance}{place_text}"
    return f"{problem}: no change below {noise} can be told from chance: {remedy}, or widen the tolerance"


def _is_blind(row: JudgedRow) -> bool:
    """Whether the noise is too large for a pass or a failure to mean much."""
    return row.noise is not None and row.noise > MOST_EXCUSED_TOLERANCES * (row.tolerance or 0)


def _measure_excess_noise(row: JudgedRow) -> Fraction:
    """Return how much the noise of a row is more than its tolerance; 0 where the noise is not known."""
    return Fraction(0) if row.noise is None else Fraction(row.noise) - (row.tolerance or 0)


ROW_OUTCOMES_WORST_FIRST = (
    *(Outcome.FAILED, Outcome.NO_DATA, Outcome.ACCEPTED),
    *(Outcome.INCONCLUSIVE, Outcome.IMPROVED, Outcome.PASSED),
)


def summarize_rows(rows: Sequence[JudgedRow], warnings: tuple[str, ...] = ()) -> Judgement:
    """Sort the rows worst first, and return them with their common outcome, which a row that could not be judged
    decides.

    Else ``severity: warn`` or an expected failure, which are meant for rows outside their limit, would hide a lost row.
    """

    def sort_key(row: JudgedRow) -> tuple[object, ...]:
        return (
            ROW_OUTCOMES_WORST_FIRST.index(row.outcome),
            0 if row.margin is None else row.margin,
            [(dimension, *make_label_key(label)) for dimension, label in row.labels.items()],
        )

    ordered_rows = tuple(sorted(rows, key=sort_key))
    if any(row.outcome is Outcome.NO_DATA for row in ordered_rows):
        return Judgement(Outcome.NO_DATA, ordered_rows, _describe_lost_rows(ordered_rows), warnings)
    return Judgement(ordered_rows[0].outcome, ordered_rows, "", warnings)


def _describe_lost_rows(rows: Sequence[JudgedRow]) -> str:
    """Describe the rows that only one side has: how many are gone or new, and the first of them."""
    gone_rows = [row for row in rows if row.outcome is Outcome.NO_DATA and row.value is None]
    new_rows = [row for row in rows if row.outcome is Outcome.NO_DATA and row.value is not None]
    phrases = []
    if gone_rows:
        present_ranks = {row.labels.get("rank") for row in rows if row.value is not None}
        lost_ranks = sorted(
            {rank for row in gone_rows if isinstance(rank := row.labels.get("rank"), int)} - present_ranks
        )
        phrases += [f"rank {lost_ranks[0]} has no row: the baseline has it"] if lost_ranks and present_ranks else []
        phrases.append(
            f"{format_count(len(gone_rows), 'row')} of the baseline gone, the first "
            f"{format_labels(gone_rows[0].labels)}"
        )
    if new_rows:
        phrases.append(
            f"{format_count(len(new_rows), 'row')} not in the baseline, the first {format_labels(new_rows[0].labels)}"
        )
    failed_count = sum(row.outcome is Outcome.FAILED for row in rows)
    if failed_count:
        phrases.append(f"{format_count(failed_count, 'row')} outside the limit")
    return "; ".join(phrases)


# Which bad run fails?


class PastRun(NamedTuple):
    """Describes a run of the history: its time, its commit, and whether the assertion failed."""

    time: str  # in UTC, as 2026-01-31T02:00:00Z
    commit: str | None
    is_red: bool

    def __str__(self) -> str:
        return self.time[:10] + (f" at {self.commit[:10]}" if self.commit else "")


class BadRuns(NamedTuple):
    """Holds the unbroken series of bad runs of an assertion on a branch, up to the run before the present one."""

    branch: str
    runs: tuple[PastRun, ...] = ()  # newest first

    @property
    def red_since(self) -> PastRun | None:
        """Return the oldest run of the unbroken series of failed runs; None if the newest run did not fail."""
        red_runs = tuple(takewhile(lambda run: run.is_red, self.runs))
        return red_runs[-1] if red_runs else None

    def is_failing(self, fail_after: int) -> bool:
        """Return whether one more bad run fails: it is the ``fail_after``-th, or an earlier one of the series failed
        already.
        """
        return len(self.runs) + 1 >= fail_after or any(run.is_red for run in self.runs)


def delay_failure(judgement: Judgement, fail_after: int, bad_runs: BadRuns | None) -> Judgement:
    """Return the judgement; *inconclusive* if it is bad, but only a later bad run may fail.

    ``bad_runs`` None: bad runs are not counted, so nothing is delayed.
    """
    if judgement.outcome is not Outcome.FAILED or bad_runs is None or bad_runs.is_failing(fail_after):
        return judgement
    rows = [
        replace(row, outcome=Outcome.INCONCLUSIVE) if row.outcome is Outcome.FAILED else row for row in judgement.rows
    ]
    return summarize_rows(rows, judgement.warnings)


# What does `pipeline` ask?

# At 0 the period is as long as the longer stage, at 1 as both stages one after the other.
HALFWAY = Fraction(1, 2)
"""The serialization from which on the period is no nearer to the longer stage than to the sum of both."""


def apply_pipeline_rule(judgement: Judgement, serialization: Mapping[RowKey, Value]) -> Judgement:
    """Return the judgement of the score with each row judged by the pipeline rule as well, which no waiver lifts."""
    if not judgement.rows or judgement.outcome is Outcome.NO_DATA:
        return judgement
    rows = [_apply_rule_to_row(row, serialization.get(tuple(row.labels.items()))) for row in judgement.rows]
    return summarize_rows(rows, judgement.warnings)


def breaks_pipeline_rule(row: JudgedRow) -> bool:
    """Whether the row's period is no nearer the longer stage than the sum of both."""
    return row.serialization is not None and row.serialization >= HALFWAY


def is_limit_reached(row: JudgedRow, assertion: Assertion) -> bool:
    """Whether the row's score holds its limit; True for a row without a limit."""
    comparator = assertion.requirement.comparator
    return row.value is None or row.limit is None or comparator is None or comparator.is_satisfied(row.value, row.limit)


def _apply_rule_to_row(row: JudgedRow, value: Value | None) -> JudgedRow:
    """Return a row of the score with the pipeline rule applied; its margin is the smaller of both."""
    if row.value is None:
        return row
    if value is None:
        return replace(row, outcome=Outcome.NO_DATA)
    ruled_row = replace(row, serialization=value)
    rule_margin = simplify_fraction(HALFWAY - value)
    if row.margin is not None:
        ruled_row = replace(ruled_row, margin=min(row.margin, rule_margin))
    if not breaks_pipeline_rule(ruled_row) or row.outcome is Outcome.NO_DATA:
        return ruled_row
    return replace(ruled_row, outcome=Outcome.FAILED, early_warning=False, waived=False, ceiling=None)
