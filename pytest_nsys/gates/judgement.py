"""How a verdict is reached: values against limits, exactly; a constant (R2), or a baseline with its tolerance (R3).

Every row must hold, or the aggregate that the sentence names. What cannot be judged is never a pass: no row, a row that
one capture or the baseline lacks, a row that the baseline has and now is gone.

Two rules are laid on a judgement beside its limits. With ``fail_after: N`` only the N-th bad run in a row is red; the
ones before are *inconclusive*. That delays *failed* against a baseline with a tolerance (R3, R4) alone. Where nobody
counts, for want of a history, of a branch, or of an earlier run on it, the first bad run is red; and what is red stays
red until it holds.

``pipeline overlap_score >= 0.30`` asks as well that the period is nearer the longer stage. A score alone can be had by
stages that overlap while something else keeps the period long. So the sentence holds for a rank where both do: the
score reaches its limit, and ``serialization`` is below one half, which is to say that the median period is nearer the
longer stage than the sum of both.
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
    Labelled,
    MetricTable,
    NothingSelected,
    Selector,
    label_key,
    meant,
    select,
)
from pytest_nsys.core.exact import distance, exact, median
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Label, Note, Row, Value
from pytest_nsys.core.numbers import distance_words
from pytest_nsys.core.units import HASH
from pytest_nsys.core.words import counted, place_words, printable
from pytest_nsys.gates.model import (
    Assertion,
    Difference,
    FromBaseline,
    JudgedRow,
    Labels,
    Outcome,
    Requirement,
    Unmatched,
)
from pytest_nsys.gates.noise import IMPOSSIBLE, Decision, bound
from pytest_nsys.gates.selection import absences, complete, fold, origin, told
from pytest_nsys.gates.waivers import meaning, waive


@dataclass(frozen=True, slots=True)
class Judgement:
    """The rows, worst first, and what they amount to. ``reason`` explains an outcome that no row shows."""

    outcome: Outcome
    rows: tuple[JudgedRow, ...] = ()
    reason: str = ""
    warnings: tuple[str, ...] = ()


RowKey = tuple[tuple[str, Label], ...]
"""The labels of a judged row; empty for a worst balance, which is one row wherever in the mesh it was found."""


class NotComparable(NamedTuple):
    """Why there is nothing to compare with: NO_DATA or INCOMPARABLE."""

    outcome: Outcome
    reason: str
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """What a row is held against: accepted runs, of which the median counts, and what tells a change from noise.

    ``calibration`` are the runs that the noise was measured on, ``among`` the places of accepted runs that are such.
    ``decisions`` are what two sets of captures say (R4); None: one run against accepted ones (R3). ``origin`` says
    where they come from; ``warnings`` and ``notes`` what a person should know of that.
    """

    runs: Sequence[MetricTable]
    calibration: Sequence[MetricTable] = ()
    among: frozenset[int] = frozenset()
    decisions: Mapping[RowKey, Decision] | None = None
    origin: str = ""
    warnings: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()


def judge(
    assertion: Assertion, now: MetricTable, reference: Reference | NotComparable | None, today: date | None = None
) -> Judgement:
    """Hold what was measured against what was asked.

    ``reference`` is what the assertion is compared with, where it needs a baseline. ``today`` (default: in UTC) is what
    waivers expire by.
    """
    now, reference = _count_stages_alike(now, reference)
    found = _with_origins(_judge(assertion, now, reference), assertion, now)
    if assertion.warn is not None:
        found = replace(found, rows=tuple(_warned(assertion.warn, row) for row in found.rows))
    if assertion.waivers and found.rows:
        day = today or datetime.now(UTC).date()
        rows, said = waive(assertion, assertion.judged.unit, found.rows, meaning(now), day)
        found = amounting(rows, warnings=(*found.warnings, *said))
    lost = absences(now, assertion.where, assertion.allow_missing)
    if not lost or found.outcome is Outcome.NO_DATA:
        return found
    return replace(found, outcome=Outcome.NO_DATA, reason=told(lost))  # the rows that there are stay to be seen


def _count_stages_alike(
    now: MetricTable, reference: Reference | NotComparable | None
) -> tuple[MetricTable, Reference | NotComparable | None]:
    """Return both sides so that kernels without a stage count in each or in none: a run that lost its stages is not
    held against rows of stages, which an aggregate would hide.
    """
    if not isinstance(reference, Reference):
        return now, reference
    if all(table.every_stage for table in (now, *reference.runs, *reference.calibration)):
        return now, reference
    runs = [replace(table, every_stage=False) for table in reference.runs]
    calibration = [replace(table, every_stage=False) for table in reference.calibration]
    return replace(now, every_stage=False), replace(reference, runs=runs, calibration=calibration)


def _with_origins(judgement: Judgement, assertion: Assertion, now: MetricTable) -> Judgement:
    """The judgement, with the row that each aggregate took its value from: which rank is it?"""
    if not assertion.aggregates or not judgement.rows:
        return judgement
    chosen = meant(now, assertion.where)
    rows = tuple(
        row if row.value is None else replace(row, origin=origin(now, chosen, assertion, (row.labels, row.value)))
        for row in judgement.rows
    )
    return replace(judgement, rows=rows)


def _judge(assertion: Assertion, now: MetricTable, reference: Reference | NotComparable | None) -> Judgement:
    if lost := lacking(now, assertion.where):
        return Judgement(Outcome.NO_DATA, reason=lost)
    try:
        chosen = select(now, assertion.where)
    except NothingSelected as nothing:
        if not assertion.allow_no_data:
            return Judgement(Outcome.NO_DATA, reason=str(nothing))
        runs = reference.runs if isinstance(reference, Reference) else ()
        unseen = _unseen(assertion, now)
        before = [(row_key(assertion, labels), was) for table in runs for labels, was in meant(table, assertion.where)]
        if not all(_is_less(assertion, unseen.get(key), was) for key, was in before):
            return Judgement(Outcome.NO_DATA, reason=f"{nothing}, but the baseline has one")
        return Judgement(Outcome.PASSED, reason=str(nothing))
    try:
        rows = fold(now, chosen, assertion)
    except NothingSelected as nothing:
        return Judgement(Outcome.NO_DATA, reason=str(nothing))
    limit = assertion.require.limit
    if not isinstance(limit, FromBaseline):
        return _against_constants(assertion, rows)
    if reference is None:
        return Judgement(Outcome.NO_DATA, reason="no baseline is stored")
    if isinstance(reference, NotComparable):
        return Judgement(reference.outcome, reason=reference.reason)
    return _against_baseline(assertion, limit, rows, reference, _unseen(assertion, now))


def _unseen(assertion: Assertion, now: MetricTable) -> dict[RowKey, Value]:
    """The rows that there are not, because their values are less than this."""
    return {row_key(assertion, labels): error for labels, error in now.labelled(now.unseen.items())}


def _is_less(assertion: Assertion, error: Value | None, was: Value) -> bool:
    """Whether a row that there is not is better than it was, whatever it is."""
    return error is not None and assertion.require.worse > 0 and error <= was


def lacking(table: MetricTable, where: Mapping[str, Selector]) -> str | None:
    """The first row that ``where`` means and some capture or window lacks, with why; None where all have all."""
    for labels, why in table.missing:
        for named, _ in meant(replace(table, rows=[Row(labels, 0)]), where):
            return f"{place}: {why}" if (place := place_words(named)) else why
    return None


def worse_by(require: Requirement, value: Value, held_to: Value) -> Value:
    """How much worse a value is than another, negative where it is better; where either way is worse, how far away."""
    return exact(require.worse * (Fraction(value) - held_to)) if require.worse else distance(value, held_to)


def reach(
    limit: FromBaseline,
    unit: str,
    accepted: Sequence[Value],
    calibration: Sequence[Value],
    among: frozenset[int],
    together: int,
) -> tuple[Value, Value | None]:
    """The tolerance T of a row with these accepted values, and the bound B of its noise, None where it is not measured.

    max(T, B) is how far the row may be off before the gate can see it. Structure has no tolerance, and no noise either.
    """
    if limit.tolerance is None:
        return 0, None
    return exact(limit.tolerance.amount(median(accepted), unit)), bound(accepted, calibration, among, together)


MOST_EXCUSED = 2
"""So many tolerances is what noise may excuse. Without an end one hiccup among the captures of a calibration would let
every later regression pass.
"""


def allowed_change(limit: FromBaseline, tolerance: Value, noise: Value | None) -> Value:
    """Return how far worse than its baseline a row may be before it fails: max(T, B), and at most 2T.

    Where the noise is the tolerance, it alone decides.
    """
    if limit.tolerance is not None and limit.tolerance.noise:
        return noise or 0
    return min(max(tolerance, noise or 0), MOST_EXCUSED * tolerance)


def _against_constants(assertion: Assertion, rows: Sequence[Labelled]) -> Judgement:
    """Each row against the constant; where there is one for each GPU model, that of its own."""
    judged: list[JudgedRow] = []
    without: dict[str, None] = {}
    for row in rows:
        try:
            judged.append(_against_constant(assertion, assertion.require.constant(row[0]).value, row))
        except ValueError as none:
            without[str(none)] = None
            judged.append(JudgedRow(*row, None, Outcome.NO_DATA))
    found = amounting(judged)
    return replace(found, reason="; ".join(without)) if without else found


def _against_constant(assertion: Assertion, limit: Fraction, row: Labelled) -> JudgedRow:
    labels, value = row
    comparator = assertion.require.comparator
    assert comparator is not None  # only a baseline has two sides
    return JudgedRow(
        labels=labels,
        value=value,
        limit=exact(limit),
        outcome=Outcome.PASSED if comparator.holds(value, limit) else Outcome.FAILED,
        margin=-worse_by(assertion.require, value, exact(limit)),
    )


def _warned(warn: Requirement, row: JudgedRow) -> JudgedRow:
    """The row, with whether it holds its limit and does not reach the early one."""
    assert warn.comparator is not None
    if row.value is None or row.outcome in (Outcome.FAILED, Outcome.NO_DATA):
        return row
    with contextlib.suppress(ValueError):  # of another GPU model than those that it names
        return replace(row, early_warning=not warn.comparator.holds(row.value, warn.constant(row.labels).value))
    return row


def folded(table: MetricTable, assertion: Assertion) -> dict[RowKey, Value]:
    """What the assertion judges of a table. Raises NothingSelected."""
    rows = fold(table, complete(table, assertion.where, assertion.allow_missing), assertion)
    return {row_key(assertion, labels): value for labels, value in rows}


def row_key(assertion: Assertion, labels: Mapping[str, Label]) -> RowKey:
    """What a judged row is found by in other runs."""
    return () if assertion.balance_across is not None else tuple(labels.items())


def _against_baseline(
    assertion: Assertion,
    limit: FromBaseline,
    rows: Sequence[Labelled],
    reference: Reference,
    unseen: Mapping[RowKey, Value],
) -> Judgement:
    try:
        runs = [folded(table, assertion) for table in reference.runs]
    except NothingSelected as nothing:
        return Judgement(Outcome.NO_DATA, reason=f"in the baseline {nothing}")
    stored = grouped(row for run in runs for row in run.items())
    now = {row_key(assertion, labels): (labels, value) for labels, value in rows}
    both = [(key, *now.get(key, (dict(key), None)), stored.get(key, ())) for key in dict.fromkeys((*now, *stored))]
    if assertion.judged.unit == HASH:
        return amounting([_in_the_same_order(*row) for _, *row in both])
    if limit.no is not None:
        allowed = 0 if limit.tolerance is None else limit.tolerance.amount(0, assertion.judged.unit)
        return amounting([*filter(None, (_unmatched(limit.no, allowed, *row) for _, *row in both))])
    scale = _BaselineScale(assertion, limit, reference, len(rows))
    judged = []
    for key, labels, value, accepted in both:
        if value is not None and accepted:
            judged.append(scale.judged(labels, value, accepted))
        elif value is not None:
            judged.append(JudgedRow(labels, value, None, Outcome.NO_DATA))
        elif not _is_less(assertion, unseen.get(key), was := median(accepted)):
            judged.append(JudgedRow(labels, None, None, Outcome.NO_DATA, baseline=was))
    if limit.tolerance is not None and limit.tolerance.noise and (unmeasured := _unmeasured(judged, reference)):
        return Judgement(Outcome.NO_DATA, reason=unmeasured)
    told = [*_about_tolerance(limit, judged, assertion.judged.unit)]
    if reference.decisions is not None:
        told += _about_captures(limit, judged, reference.decisions, assertion)
    return amounting(judged, warnings=tuple(told))


def _about_captures(
    limit: FromBaseline, rows: Sequence[JudgedRow], decisions: Mapping[RowKey, Decision], assertion: Assertion
) -> Iterator[str]:
    """What two sets of captures cannot tell: of noise up to twice the tolerance their test takes care."""
    if limit.tolerance is None or limit.tolerance.noise:
        return
    known = [(row, decisions.get(row_key(assertion, row.labels))) for row in rows if row.tolerance is not None]
    noisy = [replace(row, noise=found.noise) for row, found in known if found is not None]
    if any(map(_is_blind, noisy)):
        yield describe_noise(noisy, assertion.judged.unit, "take more captures")


def _unmatched(
    no: Unmatched, allowed: Fraction | int, labels: Labels, value: Value | None, accepted: Sequence[Value]
) -> JudgedRow | None:
    """The row of both sides: one that a side has not is 0 there, and fails where the limit means it, and so much."""
    now, middle = value or 0, median(accepted) if accepted else 0
    alone = Unmatched.NEW if not accepted else None if now else Unmatched.VANISHED
    if alone is not None and no not in (alone, Unmatched.EITHER):
        return None
    apart = distance(now, middle)
    if alone is None or apart <= allowed:
        return JudgedRow(labels, now, None, Outcome.PASSED, middle)
    return JudgedRow(labels, now, middle, Outcome.FAILED, middle, margin=exact(allowed - Fraction(apart)))


def _in_the_same_order(labels: Labels, value: Value | None, accepted: Sequence[Value]) -> JudgedRow:
    """A fingerprint against those that were accepted: it is one of them or not, and no distance says more.

    A row of one side alone fails: nothing ran there on the other.
    """
    holds = value is not None and value in accepted
    baseline = value if holds else accepted[-1] if accepted else None
    outcome = Outcome.PASSED if holds else Outcome.FAILED
    return JudgedRow(labels, value, baseline, outcome, baseline, tolerance=0, margin=0 if holds else -1)


class _BaselineScale:
    """Holds rows against their baseline: the tolerance is the policy, the noise what the measurement can tell."""

    def __init__(self, assertion: Assertion, limit: FromBaseline, reference: Reference, together: int) -> None:
        self._assertion, self._limit, self._reference = assertion, limit, reference
        self._together = together  # rows are judged as one gate
        self._calibration: dict[RowKey, list[Value]] = {}
        with contextlib.suppress(NothingSelected):  # the noise of such rows is not measured
            every = (folded(table, assertion) for table in reference.calibration)
            self._calibration = grouped(row for rows in every for row in rows.items())

    def judged(self, labels: Mapping[str, Label], value: Value, accepted: Sequence[Value]) -> JudgedRow:
        """The row against the median of its accepted values."""
        middle, require = median(accepted), self._assertion.require
        noise_alone = self._limit.tolerance is not None and self._limit.tolerance.noise
        unclear = Outcome.PASSED if noise_alone else Outcome.INCONCLUSIVE  # no policy that could be missed
        key = row_key(self._assertion, labels)
        decision = self._reference.decisions.get(key) if self._reference.decisions is not None else None
        tolerance, noise = self._reach(key, accepted)
        reach = allowed_change(self._limit, tolerance, noise)
        worse = worse_by(require, value, middle)
        limit = exact(Fraction(middle) + (require.worse or (1 if value >= middle else -1)) * reach)
        outcome = Outcome.PASSED
        if worse > reach:
            decided = self._limit.tolerance is None or decision is None or decision.worse
            beyond_excuse = not noise_alone and worse > MOST_EXCUSED * tolerance
            outcome = Outcome.FAILED if decided or beyond_excuse else unclear
        elif worse > tolerance:
            outcome = unclear
        elif worse < -max(Fraction(tolerance), Fraction(noise or 0)) and (decision is None or decision.better):
            outcome = Outcome.IMPROVED
        by_test_alone = decision is not None and noise_alone
        return JudgedRow(
            labels=labels,
            value=value,
            limit=None if by_test_alone else limit,
            outcome=outcome,
            baseline=middle,
            tolerance=None if by_test_alone else tolerance,
            margin=None if by_test_alone else exact(Fraction(reach) - worse),
            noise=noise,
            test=decision.label if decision is not None and self._limit.tolerance is not None else "",
        )

    def _reach(self, key: RowKey, accepted: Sequence[Value]) -> tuple[Value, Value | None]:
        calibration = self._calibration.get(key, [])
        whole = calibration if len(calibration) == len(self._reference.calibration) else []
        tolerance, noise = reach(
            self._limit, self._assertion.judged.unit, accepted, whole, self._reference.among, self._together
        )
        return tolerance, noise if self._reference.decisions is None else None


def _unmeasured(rows: Sequence[JudgedRow], reference: Reference) -> str | None:
    """Why the noise, which alone is to decide, cannot; None where it can."""
    if reference.decisions is not None:
        if not any(row.test.startswith(IMPOSSIBLE) for row in rows):
            return None
        bases = (each.basis for each in reference.decisions.values())
        impossible = next((basis for basis in bases if basis.startswith(IMPOSSIBLE)), IMPOSSIBLE)
        return f"the tolerance is the noise, and there is {impossible}"
    without = [row for row in rows if row.baseline is not None and row.value is not None and row.noise is None]
    if not without:
        return None
    first = place_words(without[0].labels)
    return (
        f"the tolerance is the noise, which is not measured for {counted(len(without), 'row')}"
        f"{f', the first {first}' if first else ''}: calibrate the baseline, or accept more runs"
    )


def _about_tolerance(limit: FromBaseline, rows: Sequence[JudgedRow], unit: str) -> Iterator[str]:
    """What is wrong with a tolerance in the light of the baseline that it is held to."""
    tolerance = limit.tolerance
    if tolerance is None or tolerance.noise:
        return
    if tolerance.relative and any(row.baseline == 0 and row.tolerance == 0 for row in rows):
        yield "a baseline is 0 and the tolerance has no abs of its unit: any change of it fails"
    if doubt := describe_noise(rows, unit):
        yield doubt


def describe_noise(rows: Sequence[JudgedRow], unit: str, remedy: str = "calibrate anew") -> str:
    """Say what a gate cannot see, as its tolerance is tighter than the measured noise; empty where none is. ``remedy``
    is what makes the noise smaller.
    """
    tighter = [row for row in rows if _excess(row) > 0]
    if not tighter:
        return ""
    blind = [row for row in tighter if _is_blind(row)]
    row = max(blind or tighter, key=_excess)
    noise, tolerance = (distance_words(each or 0, unit) for each in (row.noise, row.tolerance))
    among, place = f"in {len(blind or tighter)} of {counted(len(rows), 'row')}", place_words(row.labels)
    where = f" ({printable(place)})" if place else ""
    if not blind:
        what = f"the tolerance is tighter than the noise {among}: {tolerance} < {noise}{where}"
        return f"{what}: only changes beyond the noise can fail it"
    what = f"the noise is more than twice the tolerance {among}: {noise}, tolerance {tolerance}{where}"
    return f"{what}: no change below {noise} can be told from chance: {remedy}, or widen the tolerance"


def _is_blind(row: JudgedRow) -> bool:
    """Whether the noise is more than may be excused: neither a green nor a red says much then."""
    return row.noise is not None and row.noise > MOST_EXCUSED * (row.tolerance or 0)


def _excess(row: JudgedRow) -> Fraction:
    """How much the noise of a row is more than its tolerance; 0 where nobody knows the noise."""
    return Fraction(0) if row.noise is None else Fraction(row.noise) - (row.tolerance or 0)


WORST_FIRST = (
    *(Outcome.FAILED, Outcome.NO_DATA, Outcome.ACCEPTED),
    *(Outcome.INCONCLUSIVE, Outcome.IMPROVED, Outcome.PASSED),
)


def amounting(rows: Sequence[JudgedRow], warnings: tuple[str, ...] = ()) -> Judgement:
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
        here = {row.labels.get("rank") for row in rows if row.value is not None}
        lost = sorted({rank for row in gone if isinstance(rank := row.labels.get("rank"), int)} - here)
        said += [f"rank {lost[0]} has no row: the baseline has it"] if lost and here else []
        said.append(f"{counted(len(gone), 'row')} of the baseline gone, the first {place_words(gone[0].labels)}")
    if new:
        said.append(f"{counted(len(new), 'row')} not in the baseline, the first {place_words(new[0].labels)}")
    failed = sum(row.outcome is Outcome.FAILED for row in rows)
    if failed:
        said.append(f"{counted(failed, 'row')} outside the limit")
    return "; ".join(said)


# Which bad run fails?


class PastRun(NamedTuple):
    """A run of the history: its time in UTC as ``2026-01-31T02:00:00Z``, its commit, and whether it was red."""

    time: str
    commit: str | None
    red: bool

    def __str__(self) -> str:
        return self.time[:10] + (f" at {self.commit[:10]}" if self.commit else "")


class BadRuns(NamedTuple):
    """The last runs of a branch in a row in which one assertion was bad, newest first; without the present one."""

    branch: str
    runs: tuple[PastRun, ...] = ()

    @property
    def red_since(self) -> PastRun | None:
        """The first of the red ones up to the newest; None where the newest was not red."""
        red = tuple(takewhile(lambda run: run.red, self.runs))
        return red[-1] if red else None

    def failing(self, fail_after: int) -> bool:
        """Whether one more does not wait: it is the last that may, or one of them was red already."""
        return len(self.runs) + 1 >= fail_after or any(run.red for run in self.runs)


def delayed(judgement: Judgement, fail_after: int, before: BadRuns | None) -> Judgement:
    """The judgement, *inconclusive* where it is bad and only a later run is to fail; ``before`` None: nobody counts."""
    if judgement.outcome is not Outcome.FAILED or before is None or before.failing(fail_after):
        return judgement
    rows = [replace(r, outcome=Outcome.INCONCLUSIVE) if r.outcome is Outcome.FAILED else r for r in judgement.rows]
    return amounting(rows, judgement.warnings)


# What does `pipeline` ask?

HALFWAY = Fraction(1, 2)
"""The serialization from which on the period is not nearer to the longer stage than to the sum of both."""


def with_rule(judgement: Judgement, serialization: Mapping[RowKey, Value]) -> Judgement:
    """The judgement of the score, with each row held to the rule as well; a waiver is no leave from it."""
    if not judgement.rows or judgement.outcome is Outcome.NO_DATA:
        return judgement
    rows = [_ruled(row, serialization.get(tuple(row.labels.items()))) for row in judgement.rows]
    return amounting(rows, judgement.warnings)


def breaks_rule(row: JudgedRow) -> bool:
    """Whether the row's period is no nearer the longer stage than the sum of both."""
    return row.serialization is not None and row.serialization >= HALFWAY


def reaches_limit(row: JudgedRow, assertion: Assertion) -> bool:
    """Whether the row's score stands to its limit as the assertion asks; a row without a limit does."""
    comparator = assertion.require.comparator
    return row.value is None or row.limit is None or comparator is None or comparator.holds(row.value, row.limit)


def _ruled(row: JudgedRow, value: Value | None) -> JudgedRow:
    if row.value is None:
        return row
    if value is None:
        return replace(row, outcome=Outcome.NO_DATA)
    ruled = replace(row, serialization=value)
    room = exact(HALFWAY - value)
    if row.margin is not None:
        ruled = replace(ruled, margin=min(row.margin, room))
    if not breaks_rule(ruled) or row.outcome is Outcome.NO_DATA:
        return ruled
    return replace(ruled, outcome=Outcome.FAILED, early_warning=False, waived=False, ceiling=None)
