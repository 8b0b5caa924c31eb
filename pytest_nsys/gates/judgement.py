"""How a verdict is reached: values against limits, exactly; a constant (R2), or a baseline with its tolerance (R3).

Every row must hold, or the aggregate that the sentence names. What cannot be judged is never a pass: no row, a row that
one capture or the baseline lacks, a row that the baseline has and now is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_nsys.analysis.statistics import distance, exact, median
from pytest_nsys.gates.assertion import Assertion, Comparator, Constant, FromBaseline, Selector, Tolerance
from pytest_nsys.gates.selection import Labelled, NothingSelected, Table, fold, label_key, meant, select
from pytest_nsys.gates.verdict import JudgedRow, Outcome
from pytest_nsys.model import Label, Value, counted


@dataclass(frozen=True, slots=True)
class Judgement:
    """The rows, worst first, and what they amount to. ``reason`` explains an outcome that no row shows."""

    outcome: Outcome
    rows: tuple[JudgedRow, ...] = ()
    reason: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unlike:
    """Why there is no stored baseline to compare with: NO_DATA or INCOMPARABLE."""

    outcome: Outcome
    reason: str


def judge(
    assertion: Assertion,
    unit: str,
    now: Table,
    missing: Sequence[tuple[tuple[Label, ...], str]],
    accepted: Sequence[Table] | Unlike | None,
) -> Judgement:
    """Hold what was measured against what was asked.

    ``missing`` are rows that some capture or window lacks, with why. ``accepted`` are the rows of each accepted run of
    the baseline, where the assertion needs one.
    """
    if lost := lacking(now, missing, assertion.where):
        return Judgement(Outcome.NO_DATA, reason=lost)
    try:
        chosen = select(now, assertion.where)
    except NothingSelected as nothing:
        if not assertion.allow_no_data:
            return Judgement(Outcome.NO_DATA, reason=str(nothing))
        if not isinstance(accepted, Unlike) and any(meant(table, assertion.where) for table in accepted or ()):
            return Judgement(Outcome.NO_DATA, reason=f"{nothing}, but the baseline has one")
        return Judgement(Outcome.PASSED, reason=str(nothing), warnings=(f"nothing was judged: {nothing}",))
    try:
        rows = fold(now, chosen, assertion)
    except NothingSelected as nothing:
        return Judgement(Outcome.NO_DATA, reason=str(nothing))
    limit = assertion.require.limit
    if isinstance(limit, Constant):
        return _amount([_against_constant(assertion, limit.value, row) for row in rows])
    if accepted is None or isinstance(accepted, Unlike):
        outcome, reason = (
            (accepted.outcome, accepted.reason) if accepted else (Outcome.NO_DATA, "no baseline is stored")
        )
        return Judgement(outcome, reason=reason)
    return _against_baseline(assertion, limit, unit, rows, accepted)


def lacking(
    table: Table, missing: Sequence[tuple[tuple[Label, ...], str]], where: Mapping[str, Selector]
) -> str | None:
    """The first row that ``where`` means and some capture or window lacks, with why; None where all have all."""
    for labels, why in missing:
        for named, _ in meant(Table(table.dimensions, [(labels, 0)], table.coordinates), where):
            return f"{_spelled(named)}: {why}"
    return None


def _spelled(labels: Mapping[str, Label]) -> str:
    return " ".join(f"{d} {label}" for d, label in labels.items())


def _room(comparator: Comparator | None, value: Value, limit: Value) -> Value:
    """How far the value may still move before it fails; negative where it fails."""
    if comparator in (Comparator.LT, Comparator.LE):
        return exact(Fraction(limit) - value)
    if comparator in (Comparator.GT, Comparator.GE):
        return exact(Fraction(value) - limit)
    return -distance(value, limit)


def _against_constant(assertion: Assertion, limit: Fraction, row: Labelled) -> JudgedRow:
    labels, value = row
    comparator = assertion.require.comparator
    assert comparator is not None  # only a baseline has two sides
    holds = comparator.holds(value, limit)
    warn = assertion.warn
    early = (
        holds
        and warn is not None
        and warn.comparator is not None
        and isinstance(warn.limit, Constant)
        and not warn.comparator.holds(value, warn.limit.value)
    )
    return JudgedRow(
        labels=labels,
        value=value,
        limit=exact(limit),
        outcome=Outcome.PASSED if holds else Outcome.FAILED,
        margin=_room(comparator, value, exact(limit)),
        early_warning=early,
    )


def _against_baseline(
    assertion: Assertion, limit: FromBaseline, unit: str, rows: Sequence[Labelled], accepted: Sequence[Table]
) -> Judgement:
    try:
        runs = [fold(table, select(table, assertion.where), assertion) for table in accepted]
    except NothingSelected as nothing:
        return Judgement(Outcome.NO_DATA, reason=f"in the baseline {nothing}")
    # The worst balance is one row, wherever in the mesh it was found.
    worst_only = assertion.balance_across is not None
    stored: dict[tuple[tuple[str, Label], ...], list[Value]] = {}
    for run in runs:
        for labels, value in run:
            stored.setdefault(() if worst_only else tuple(labels.items()), []).append(value)
    judged, bare = [], False
    for labels, value in rows:
        values = stored.pop(() if worst_only else tuple(labels.items()), None)
        if values is None:
            judged.append(JudgedRow(labels, value, None, Outcome.NO_DATA))
            continue
        middle = median(values)
        tolerance = limit.tolerance.amount(middle, unit) if limit.tolerance else Fraction(0)
        bare |= _bare(limit.tolerance, middle, tolerance)
        judged.append(_compared(assertion.require.comparator, labels, value, middle, exact(tolerance)))
    judged += [JudgedRow(dict(key), None, None, Outcome.NO_DATA, baseline=median(v)) for key, v in stored.items()]
    warning = "a baseline is 0 and the tolerance has no abs of its unit: any change of it fails"
    return _amount(judged, warnings=(warning,) if bare else ())


def _bare(tolerance: Tolerance | None, middle: Value, amount: Fraction) -> bool:
    """Whether a relative tolerance alone stands before a baseline of 0."""
    return tolerance is not None and not middle and not amount and bool(tolerance.relative)


def _compared(
    comparator: Comparator | None, labels: Mapping[str, Label], value: Value, middle: Value, tolerance: Value
) -> JudgedRow:
    if comparator in (Comparator.LT, Comparator.LE):
        worse, limit = exact(Fraction(value) - middle), exact(Fraction(middle) + tolerance)
    elif comparator in (Comparator.GT, Comparator.GE):
        worse, limit = exact(Fraction(middle) - value), exact(Fraction(middle) - tolerance)
    else:
        worse = distance(value, middle)
        limit = exact(Fraction(middle) + (tolerance if value >= middle else -Fraction(tolerance)))
    outcome = Outcome.PASSED
    if worse > tolerance:
        outcome = Outcome.FAILED
    elif worse < -tolerance:
        outcome = Outcome.IMPROVED
    return JudgedRow(
        labels=labels,
        value=value,
        limit=limit,
        outcome=outcome,
        baseline=middle,
        tolerance=tolerance,
        margin=exact(Fraction(tolerance) - worse),
    )


WORST_FIRST = (Outcome.FAILED, Outcome.NO_DATA, Outcome.INCONCLUSIVE, Outcome.IMPROVED, Outcome.PASSED)


def _amount(rows: Sequence[JudgedRow], warnings: tuple[str, ...] = ()) -> Judgement:
    """The rows worst first, and the outcome: a row that could not be judged decides it.

    Else ``severity: warn`` or an expected failure, which are for rows outside their limit, would cover a lost one.
    """

    def order(row: JudgedRow) -> tuple[object, ...]:
        return (
            WORST_FIRST.index(row.outcome),
            0 if row.margin is None else row.margin,
            [(d, *label_key(label)) for d, label in row.labels.items()],
        )

    ordered = tuple(sorted(rows, key=order))
    if any(row.outcome is Outcome.NO_DATA for row in ordered):
        return Judgement(Outcome.NO_DATA, ordered, _lost(ordered), warnings)
    return Judgement(ordered[0].outcome, ordered, "", warnings)


def _lost(rows: Sequence[JudgedRow]) -> str:
    gone = [row for row in rows if row.outcome is Outcome.NO_DATA and row.value is None]
    new = [row for row in rows if row.outcome is Outcome.NO_DATA and row.value is not None]
    said = []
    if gone:
        said.append(f"{counted(len(gone), 'row')} of the baseline gone, the first {_spelled(gone[0].labels)}")
    if new:
        said.append(f"{counted(len(new), 'row')} not in the baseline, the first {_spelled(new[0].labels)}")
    failed = sum(row.outcome is Outcome.FAILED for row in rows)
    if failed:
        said.append(f"{counted(failed, 'row')} outside the limit")
    return "; ".join(said)
