"""Which rows that are worse than the merge base's baseline did the branch accept? Those that it refreshed to what they
are now, with a reason.

A branch is not its own judge: nothing of it widens anything. The tolerance is that of the merge base, as an assertion
whose gate file asks for less there is not accepted at all; the noise is that of the merge base's baseline. And a row is
within reach of the branch's value on both sides: else a branch could store 20 ms for a step of 11 ms, and the next
regression would be green. So the run that is judged confirms what the branch stored, whoever wrote it.

Only *failed* is accepted, and only by a baseline: a constant, the rule of a pipeline, a row that is new or gone are
not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pytest_nsys.analysis.table import NothingSelected
from pytest_nsys.core.exact import distance, median
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Value
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
    folded,
    row_key,
)
from pytest_nsys.gates.model import Assertion, FromBaseline, JudgedRow, Outcome, Severity, Unmatched

LET_PASS = "set nsys_accepted = pass in the ini file of the merge base"
"""What makes the verdict *accepted* green."""


class Refreshed(NamedTuple):
    """What a branch made of the rows that it is judged by: its own accepted runs, and the reason that it gives.

    ``refused`` says why they accept nothing, ``unseen`` why they do and yet never make a check green.
    """

    reference: Reference | None
    reason: str = ""
    refused: str = ""
    unseen: str = ""


class AcceptedRows(NamedTuple):
    """What is said where a branch refreshed what is worse: ``words`` follow the message, ``warning`` stands at the line
    of what is green by it. ``reason`` is empty where a row is not accepted.
    """

    words: str = ""
    reason: str = ""
    warning: str = ""


def accept(
    assertion: Assertion, judgement: Judgement, refreshed: Refreshed | None, red: str = ""
) -> tuple[Judgement, AcceptedRows]:
    """The judgement, with each row *accepted* that the branch refreshed to what it is. ``red`` says what has to be done
    before that is green; empty: nothing.
    """
    if judgement.outcome is not Outcome.FAILED or refreshed is None:
        return judgement, AcceptedRows()
    judgement, refused = _accepted(assertion, judgement, refreshed)
    if judgement.outcome is not Outcome.ACCEPTED:
        return judgement, AcceptedRows(f"; not accepted on this branch: {refused}" if refused else "")
    reason, words = refreshed.reason, f"; accepted on this branch ({refreshed.reason})"
    if assertion.severity.failed is Severity.FAIL and (
        red := _red_beside(assertion, judgement) or red or refreshed.unseen
    ):
        return judgement, AcceptedRows(f"{words}; stays red until somebody lets it pass: {red}", reason)
    return judgement, AcceptedRows(words, reason, _warning(assertion, judgement, reason))


def _accepted(assertion: Assertion, judgement: Judgement, refreshed: Refreshed) -> tuple[Judgement, str]:
    """The judgement with the rows that are accepted, and why others are not."""
    limit = assertion.require.limit
    if refreshed.refused or refreshed.reference is None or not isinstance(limit, FromBaseline):
        return judgement, refreshed.refused
    stored: dict[RowKey, list[Value]] = {}
    with contextlib.suppress(NothingSelected):
        stored = grouped(row for table in refreshed.reference.runs for row in folded(table, assertion).items())
    rows, beyond = [], []
    for row in judgement.rows:
        values = stored.get(row_key(assertion, row.labels), [])
        if row.outcome is Outcome.FAILED and _is_within(assertion, limit, row, values):
            row = replace(row, outcome=Outcome.ACCEPTED)
        elif row.outcome is Outcome.FAILED:
            beyond.append((row, values))
        rows.append(row)
    return amounting(rows, judgement.warnings), _told(assertion, beyond)


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


def _is_within(assertion: Assertion, limit: FromBaseline, row: JudgedRow, values: Sequence[Value]) -> bool:
    """Whether a row is what the branch stored, by the merge base's tolerance and noise."""
    if row.value is None or breaks_rule(row):
        return False
    if limit.no is not None:  # a row of one side alone; it has to be there, or not, as the branch says
        return bool(values and median(values)) if row.value else not values or not median(values)
    if assertion.judged.unit == HASH or not values:
        return row.value in values
    middle = median(values)
    tolerance = limit.tolerance.amount(middle, assertion.judged.unit) if limit.tolerance is not None else 0
    return distance(row.value, middle) <= allowed_change(limit, tolerance, row.noise)


def _told(assertion: Assertion, beyond: Sequence[tuple[JudgedRow, Sequence[Value]]]) -> str:
    """The worst row that is not what the branch stored."""
    if not beyond:
        return ""
    row, values = beyond[0]
    where = printable(place_words(row.labels)) or "the value"
    more = f", and {counted(len(beyond) - 1, 'more row')}" if len(beyond) > 1 else ""
    unit, no = assertion.judged.unit, getattr(assertion.require.limit, "no", None)
    if breaks_rule(row):
        return f"{where} breaks the rule of the pipeline, which no baseline accepts{more}"
    if row.value is None or not values or unit == HASH or isinstance(no, Unmatched):
        return f"{where} is not what it stored{more}"
    now, own = format_apart(row.value, median(values), unit)
    return f"{where} is {now}, and it stored {own}{more}"
