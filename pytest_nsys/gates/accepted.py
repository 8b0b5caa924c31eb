"""Which rows that are worse than the merge base's baseline did the branch accept?

Those that it refreshed to what they are now, with a reason. What is red is judged once more, by the same assertion and
tolerance, with the branch's baseline as data. A row has to lie within the tolerance of the branch's value on both
sides: else a branch could store 20 ms for a step of 11 ms, and the next regression would be green. Only *failed* is
accepted, and only by a baseline: a constant, the rule of a pipeline, a row that is new or gone are not.
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
"""What to do to make the verdict *accepted* green."""


class Refreshed(NamedTuple):
    """Holds what a branch made of the baseline: its own accepted runs, and the reason that it gives."""

    reference: Reference | None
    reason: str = ""
    refused: str = ""  # why the runs accept nothing


class AcceptedRows(NamedTuple):
    """Holds the texts of a verdict whose worse rows the branch refreshed."""

    words: str = ""  # follows the message of the verdict
    reason: str = ""  # of the refresh; empty where a row is not accepted
    warning: str = ""  # stands at the line of what is green by it


def accept(
    assertion: Assertion, judgement: Judgement, measured: MetricTable, refreshed: Refreshed | None, *, lets_pass: bool
) -> tuple[Judgement, AcceptedRows]:
    """Return the judgement with each row *accepted* that the branch refreshed to what it is, and the texts that say so.

    ``lets_pass`` says whether an accepted row is green.
    """
    limit = assertion.require.limit
    if not isinstance(limit, FromBaseline) or not is_acceptable(assertion, judgement) or refreshed is None:
        return judgement, AcceptedRows()
    branch_rows: Mapping[RowKey, JudgedRow] = {}
    if refreshed.reference is not None:
        with contextlib.suppress(NothingSelected):
            branch_rows = {
                row_key(assertion, row.labels): row for row in judge(assertion, measured, refreshed.reference).rows
            }
    rows, refused_rows = [], list[JudgedRow]()
    for row in judgement.rows:
        is_red = row.outcome in _red_outcomes(assertion)
        if is_red and _is_within(assertion, limit, row, branch_rows.get(row_key(assertion, row.labels))):
            row = replace(row, outcome=Outcome.ACCEPTED)
        elif is_red:
            refused_rows.append(row)
        rows.append(row)
    judgement = amounting(rows, judgement.warnings)
    if judgement.outcome is not Outcome.ACCEPTED:
        refusal = refreshed.refused or _describe_beyond(assertion, refused_rows, branch_rows)
        return judgement, AcceptedRows(f"; not accepted on this branch: {refusal}" if refusal else "")
    message_suffix = f"; accepted on this branch ({refreshed.reason})"
    red_reason = _red_beside(assertion, judgement) or ("" if lets_pass else LET_PASS)
    if assertion.severity.failed is Severity.FAIL and red_reason:
        return judgement, AcceptedRows(
            f"{message_suffix}; stays red until somebody lets it pass: {red_reason}", refreshed.reason
        )
    return judgement, AcceptedRows(message_suffix, refreshed.reason, _warning(assertion, judgement, refreshed.reason))


def is_acceptable(assertion: Assertion, judgement: Judgement) -> bool:
    """Whether an assertion is red by a baseline, so that a refresh may accept it."""
    has_baseline = isinstance(assertion.require.limit, FromBaseline)
    return has_baseline and judgement.outcome in _red_outcomes(assertion)


def _red_outcomes(assertion: Assertion) -> tuple[Outcome, ...]:
    """List the outcomes of rows that a refresh accepts: outside the limit, or better where a better value has to be
    stored.
    """
    is_ratchet = assertion.severity.improved is Severity.FAIL
    return (Outcome.FAILED, Outcome.IMPROVED) if is_ratchet else (Outcome.FAILED,)


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
    """Describe another red row of the assertion, which what is accepted must not cover; empty where there is none."""
    other_severities = {
        Outcome.INCONCLUSIVE: assertion.severity.inconclusive,
        Outcome.IMPROVED: assertion.severity.improved,
    }
    red_rows = (row for row in judgement.rows if other_severities.get(row.outcome) is Severity.FAIL)
    return next(
        (f"{printable(place_words(row.labels)) or 'a row'} is {row.outcome}, which fails" for row in red_rows), ""
    )


def _warning(assertion: Assertion, judgement: Judgement, reason: str) -> str:
    """Describe what is green because it was accepted: the worst row, its change, and why."""
    rows, unit = [row for row in judgement.rows if row.outcome is Outcome.ACCEPTED], assertion.judged.unit
    row, change_text = rows[0], "changed"
    if row.baseline is not None and row.value is not None and unit != HASH:
        baseline_text, current_text = format_apart(row.baseline, row.value, unit)
        change_text = f"{baseline_text} → {current_text} ({change_words(row.value, row.baseline, unit)})"
    place = printable(place_words(row.labels or row.origin))
    more_rows = f", and {counted(len(rows) - 1, 'more row')}" if len(rows) > 1 else ""
    return f"accepted on this branch: {f'{place} {change_text}'.lstrip()}{more_rows}: {reason}"


def _describe_beyond(assertion: Assertion, beyond: list[JudgedRow], again: Mapping[RowKey, JudgedRow]) -> str:
    """Describe the worst row that is not what the branch stored."""
    row, unit = beyond[0], assertion.judged.unit
    place = printable(place_words(row.labels)) or "the value"
    more_rows = f", and {counted(len(beyond) - 1, 'more row')}" if len(beyond) > 1 else ""
    if breaks_rule(row):
        return f"{place} breaks the rule of the pipeline, which no baseline accepts{more_rows}"
    branch_row = again.get(row_key(assertion, row.labels))
    if row.value is None or branch_row is None or branch_row.baseline is None or unit == HASH:
        return f"{place} is not what it stored{more_rows}"
    current_text, stored_text = format_apart(row.value, branch_row.baseline, unit)
    return f"{place} is {current_text}, and it stored {stored_text}{more_rows}"
