"""Which rows that are worse than the merge base's baseline did the branch accept? Those that it refreshed to what they
are now, with a reason.

What is red is judged once more, by the same assertion and tolerance, with the branch's baseline as data. A row has to
lie within the tolerance of the branch's value on both sides: else a branch could store 20 ms for a step of 11 ms, and
the next regression would be green. Only *failed* is accepted, and only by a baseline: a constant, the rule of a
pipeline, a row that is new or gone are not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from pytest_nsys.analysis.metrics.table import MetricTable, NothingSelected
from pytest_nsys.core.exact import distance
from pytest_nsys.core.numbers import change_words, format_apart
from pytest_nsys.core.units import HASH
from pytest_nsys.core.words import counted, place_words, printable
from pytest_nsys.gates.judgement import (
    Judgement,
    Reference,
    RowKey,
    allowed_change,
    amounting,
    breaks_rule,
    judge,
    row_key,
)
from pytest_nsys.gates.model import Assertion, FromBaseline, JudgedRow, Outcome, Severity

LET_PASS = "set nsys_accepted = pass in the ini file of the merge base"
"""What makes the verdict *accepted* green."""


class Refreshed(NamedTuple):
    """What a branch made of the rows that it is judged by: its own accepted runs, and the reason that it gives.

    ``refused`` says why they accept nothing.
    """

    reference: Reference | None
    reason: str = ""
    refused: str = ""


class AcceptedRows(NamedTuple):
    """What is said where a branch refreshed what is worse: ``words`` follow the message, ``warning`` stands at the line
    of what is green by it. ``reason`` is empty where a row is not accepted.
    """

    words: str = ""
    reason: str = ""
    warning: str = ""


def accept(
    assertion: Assertion, judgement: Judgement, measured: MetricTable, refreshed: Refreshed | None, *, lets_pass: bool
) -> tuple[Judgement, AcceptedRows]:
    """The judgement of what is measured, with each row *accepted* that the branch refreshed to what it is.

    ``lets_pass`` tells whether that is green.
    """
    limit = assertion.require.limit
    if not isinstance(limit, FromBaseline) or not is_acceptable(assertion, judgement) or refreshed is None:
        return judgement, AcceptedRows()
    again: Mapping[RowKey, JudgedRow] = {}
    if refreshed.reference is not None:
        with contextlib.suppress(NothingSelected):
            again = {
                row_key(assertion, row.labels): row for row in judge(assertion, measured, refreshed.reference).rows
            }
    rows, beyond = [], list[JudgedRow]()
    for row in judgement.rows:
        red = row.outcome in _red_outcomes(assertion)
        if red and _is_within(assertion, limit, row, again.get(row_key(assertion, row.labels))):
            row = replace(row, outcome=Outcome.ACCEPTED)
        elif red:
            beyond.append(row)
        rows.append(row)
    judgement = amounting(rows, judgement.warnings)
    if judgement.outcome is not Outcome.ACCEPTED:
        refused = refreshed.refused or _describe_beyond(assertion, beyond, again)
        return judgement, AcceptedRows(f"; not accepted on this branch: {refused}" if refused else "")
    words = f"; accepted on this branch ({refreshed.reason})"
    stays_red = _red_beside(assertion, judgement) or ("" if lets_pass else LET_PASS)
    if assertion.severity.failed is Severity.FAIL and stays_red:
        return judgement, AcceptedRows(f"{words}; stays red until somebody lets it pass: {stays_red}", refreshed.reason)
    return judgement, AcceptedRows(words, refreshed.reason, _warning(assertion, judgement, refreshed.reason))


def is_acceptable(assertion: Assertion, judgement: Judgement) -> bool:
    """Whether an assertion is red by a baseline, so that a refresh may accept it."""
    held = isinstance(assertion.require.limit, FromBaseline)
    return held and judgement.outcome in _red_outcomes(assertion)


def _red_outcomes(assertion: Assertion) -> tuple[Outcome, ...]:
    """What a row may be that a refresh accepts: outside its limit, or better where a better value has to be stored."""
    ratchet = assertion.severity.improved is Severity.FAIL
    return (Outcome.FAILED, Outcome.IMPROVED) if ratchet else (Outcome.FAILED,)


def _is_within(assertion: Assertion, limit: FromBaseline, row: JudgedRow, again: JudgedRow | None) -> bool:
    """Whether a row is what the branch stored, on both sides, by tolerance and noise of the merge base."""
    if again is None or breaks_rule(row):
        return False
    if limit.no is not None or assertion.judged.unit == HASH:
        return again.outcome is Outcome.PASSED
    if again.value is None or again.baseline is None:
        return False
    return distance(again.value, again.baseline) <= allowed_change(limit, again.tolerance or 0, row.noise)


def _red_beside(assertion: Assertion, judgement: Judgement) -> str:
    """What else of the assertion is red, which what is accepted must not cover."""
    others = {Outcome.INCONCLUSIVE: assertion.severity.inconclusive, Outcome.IMPROVED: assertion.severity.improved}
    red = (row for row in judgement.rows if others.get(row.outcome) is Severity.FAIL)
    return next((f"{printable(place_words(row.labels)) or 'a row'} is {row.outcome}, which fails" for row in red), "")


def _warning(assertion: Assertion, judgement: Judgement, reason: str) -> str:
    """What a person has to know of what is green: the worst row, its change, and why."""
    rows, unit = [row for row in judgement.rows if row.outcome is Outcome.ACCEPTED], assertion.judged.unit
    row, changed = rows[0], "changed"
    if row.baseline is not None and row.value is not None and unit != HASH:
        was, now = format_apart(row.baseline, row.value, unit)
        changed = f"{was} → {now} ({change_words(row.value, row.baseline, unit)})"
    where = printable(place_words(row.labels or row.origin))
    more = f", and {counted(len(rows) - 1, 'more row')}" if len(rows) > 1 else ""
    return f"accepted on this branch: {f'{where} {changed}'.lstrip()}{more}: {reason}"


def _describe_beyond(assertion: Assertion, beyond: list[JudgedRow], again: Mapping[RowKey, JudgedRow]) -> str:
    """The worst row that is not what the branch stored."""
    row, unit = beyond[0], assertion.judged.unit
    where = printable(place_words(row.labels)) or "the value"
    more = f", and {counted(len(beyond) - 1, 'more row')}" if len(beyond) > 1 else ""
    if breaks_rule(row):
        return f"{where} breaks the rule of the pipeline, which no baseline accepts{more}"
    stored = again.get(row_key(assertion, row.labels))
    if row.value is None or stored is None or stored.baseline is None or unit == HASH:
        return f"{where} is not what it stored{more}"
    now, own = format_apart(row.value, stored.baseline, unit)
    return f"{where} is {now}, and it stored {own}{more}"
