"""Which rows that are worse than the merge base's baseline did the branch accept?

A branch accepts a row by refreshing its baseline to the present value, with a reason. A failed assertion is judged once
more, with the same tolerance, against the branch's baseline. A row has to lie within the tolerance of the branch's
value on both sides: else a branch could store 20 ms for a step of 11 ms, and the next regression would pass. Only the
outcome *failed* against a baseline can be accepted: not a broken constant, a broken pipeline rule, or a row that is new
or gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from pytest_nsys.analysis.metrics.table import MetricTable, NothingSelected
from pytest_nsys.core.exact import distance
from pytest_nsys.core.numbers import format_change, format_distinctly
from pytest_nsys.core.text_format import format_count, format_labels, sanitize_line
from pytest_nsys.core.units import HASH
from pytest_nsys.gates.judgement import (
    Judgement,
    Reference,
    RowKey,
    breaks_pipeline_rule,
    build_row_key,
    compute_allowed_change,
    judge_rows,
    summarize_rows,
)
from pytest_nsys.gates.model import Assertion, BaselineLimit, JudgedRow, Outcome, Severity

LET_PASS_HINT = "set nsys_accepted = pass in the ini file of the merge base"
"""What to do to make the verdict *accepted* green."""


class BranchRefresh(NamedTuple):
    """Holds a branch's refresh of a baseline: the accepted runs that the branch stored, and its reason."""

    reference: Reference | None
    reason: str = ""
    refused: str = ""  # why this refresh accepts nothing; empty if it may


class AcceptanceTexts(NamedTuple):
    """Holds the texts of a verdict whose worse rows the branch refreshed."""

    message_suffix: str = ""  # follows the message of the verdict
    reason: str = ""  # of the refresh; empty where a row is not accepted
    warning: str = ""  # shown at an assertion that passes because of the refresh


def accept_rows(
    assertion: Assertion,
    judgement: Judgement,
    table: MetricTable,
    branch_refresh: BranchRefresh | None,
    *,
    lets_pass: bool,
) -> tuple[Judgement, AcceptanceTexts]:
    """Return the judgement, in which each row that the branch refreshed to its present value is *accepted*, and the
    texts that say so.

    ``lets_pass`` says whether an accepted row passes.
    """
    limit = assertion.requirement.limit
    if not isinstance(limit, BaselineLimit) or not is_acceptable(assertion, judgement) or branch_refresh is None:
        return judgement, AcceptanceTexts()
    branch_rows: Mapping[RowKey, JudgedRow] = {}
    if branch_refresh.reference is not None:
        with contextlib.suppress(NothingSelected):
            branch_rows = {
                build_row_key(assertion, row.labels): row
                for row in judge_rows(assertion, table, branch_refresh.reference).rows
            }
    rows, refused_rows = [], list[JudgedRow]()
    for row in judgement.rows:
        is_red = row.outcome in _list_red_outcomes(assertion)
        if is_red and _is_within_branch_tolerance(
            assertion, limit, row, branch_rows.get(build_row_key(assertion, row.labels))
        ):
            row = replace(row, outcome=Outcome.ACCEPTED)
        elif is_red:
            refused_rows.append(row)
        rows.append(row)
    judgement = summarize_rows(rows, judgement.warnings)
    if judgement.outcome is not Outcome.ACCEPTED:
        refusal = branch_refresh.refused or _describe_row_not_accepted(assertion, refused_rows, branch_rows)
        return judgement, AcceptanceTexts(f"; not accepted on this branch: {refusal}" if refusal else "")
    message_suffix = f"; accepted on this branch ({branch_refresh.reason})"
    red_reason = _describe_other_red(assertion, judgement) or ("" if lets_pass else LET_PASS_HINT)
    if assertion.severity.failed is Severity.FAIL and red_reason:
        return judgement, AcceptanceTexts(
            f"{message_suffix}; stays red until somebody lets it pass: {red_reason}", branch_refresh.reason
        )
    return judgement, AcceptanceTexts(
        message_suffix, branch_refresh.reason, _describe_accepted_row(assertion, judgement, branch_refresh.reason)
    )


def is_acceptable(assertion: Assertion, judgement: Judgement) -> bool:
    """Whether a baseline makes the assertion fail, so that a refresh may accept it."""
    has_baseline = isinstance(assertion.requirement.limit, BaselineLimit) and not assertion.is_claim
    return has_baseline and judgement.outcome in _list_red_outcomes(assertion)


def _list_red_outcomes(assertion: Assertion) -> tuple[Outcome, ...]:
    """List the outcomes of rows that a refresh accepts: *failed*, and *improved* if the gate file lets that fail."""
    is_ratchet = assertion.severity.improved is Severity.FAIL
    return (Outcome.FAILED, Outcome.IMPROVED) if is_ratchet else (Outcome.FAILED,)


def _is_within_branch_tolerance(
    assertion: Assertion, limit: BaselineLimit, row: JudgedRow, branch_row: JudgedRow | None
) -> bool:
    """Whether a row lies around the branch's stored value, on both sides, by the merge base's tolerance and noise."""
    if branch_row is None or breaks_pipeline_rule(row):
        return False
    if limit.forbidden_rows is not None or assertion.limit_target.unit == HASH:
        return branch_row.outcome is Outcome.PASSED
    if branch_row.value is None or branch_row.baseline is None:
        return False
    return distance(branch_row.value, branch_row.baseline) <= compute_allowed_change(
        limit, branch_row.tolerance or 0, row.noise
    )


def _describe_other_red(assertion: Assertion, judgement: Judgement) -> str:
    """Describe an inconclusive or improved row that fails the test, which accepted rows must not hide; else empty."""
    other_severities = {
        Outcome.INCONCLUSIVE: assertion.severity.inconclusive,
        Outcome.IMPROVED: assertion.severity.improved,
    }
    red_rows = (row for row in judgement.rows if other_severities.get(row.outcome) is Severity.FAIL)
    return next(
        (f"{sanitize_line(format_labels(row.labels)) or 'a row'} is {row.outcome}, which fails" for row in red_rows), ""
    )


def _describe_accepted_row(assertion: Assertion, judgement: Judgement, reason: str) -> str:
    """Describe what passes because it was accepted: the worst row, its change, and the branch's reason."""
    rows, unit = [row for row in judgement.rows if row.outcome is Outcome.ACCEPTED], assertion.limit_target.unit
    row, change_text = rows[0], "changed"
    if row.baseline is not None and row.value is not None and unit != HASH:
        baseline_text, current_text = format_distinctly(row.baseline, row.value, unit)
        change_text = f"{baseline_text} → {current_text} ({format_change(row.value, row.baseline, unit)})"
    place = sanitize_line(format_labels(row.labels or row.origin))
    more_rows = f", and {format_count(len(rows) - 1, 'more row')}" if len(rows) > 1 else ""
    return f"accepted on this branch: {f'{place} {change_text}'.lstrip()}{more_rows}: {reason}"


def _describe_row_not_accepted(
    assertion: Assertion, refused_rows: list[JudgedRow], branch_rows: Mapping[RowKey, JudgedRow]
) -> str:
    """Describe the worst row whose value is not the one that the branch stored."""
    row, unit = refused_rows[0], assertion.limit_target.unit
    place = sanitize_line(format_labels(row.labels)) or "the value"
    more_rows = f", and {format_count(len(refused_rows) - 1, 'more row')}" if len(refused_rows) > 1 else ""
    if breaks_pipeline_rule(row):
        return f"{place} breaks the rule of the pipeline, which no baseline accepts{more_rows}"
    branch_row = branch_rows.get(build_row_key(assertion, row.labels))
    if row.value is None or branch_row is None or branch_row.baseline is None or unit == HASH:
        return f"{place} is not what it stored{more_rows}"
    current_text, stored_text = format_distinctly(row.value, branch_row.baseline, unit)
    return f"{place} is {current_text}, and it stored {stored_text}{more_rows}"
