"""How does a comparison of two runs become a session, and how is it shown in a terminal?"""

from __future__ import annotations

from dataclasses import replace

from pytest_nsys.gates.model import Comparator, Outcome, Verdict
from pytest_nsys.reports.session.comparison_tables import build_comparison_tables, describe_comparison
from pytest_nsys.reports.session.headline import format_headline
from pytest_nsys.reports.session.record import AssertionRecord, make_record
from pytest_nsys.reports.session.session import Session, sort_records
from pytest_nsys.reports.session.story import sort_by_severity
from pytest_nsys.reports.session.story_lines import wrap_line
from pytest_nsys.reports.session.summary import render_terminal_summary
from pytest_nsys.reports.tables.formats import UNLIMITED_LENGTH
from pytest_nsys.reports.words.verdict_text import build_row_table, render_reasons, select_rows_to_show
from pytest_nsys.verdicts.comparison import BUILT_IN_GATE, Comparison, Result, Side

INDENT = "  "
MAX_LIMIT_ROWS = 10
"""At most this many rows of an assertion with a constant limit are shown."""


def make_comparison_session(comparison: Comparison) -> Session:
    """Return a comparison as a session; its exit status is that of a pytest session with these verdicts."""
    shown_verdicts = (verdict for verdict in comparison.verdicts if not _can_never_fail(verdict))
    records = sort_records(_make_comparison_record(verdict, comparison.head) for verdict in shown_verdicts)
    return Session(records, exit_status=int(comparison.result is not Result.NOT_WORSE), comparison=comparison)


def _can_never_fail(verdict: Verdict) -> bool:
    """Whether no value can break the limits of an assertion of the built-in gate, such as an overlap of at least 0
    %.
    """
    least_value = verdict.assertion.measured_metric.least
    if verdict.address != BUILT_IN_GATE or verdict.outcome is not Outcome.PASSED or least_value is None:
        return False
    is_lower_limit = verdict.assertion.requirement.comparator is Comparator.GE
    limits = [row.limit for row in verdict.rows]
    return is_lower_limit and bool(limits) and all(limit is not None and limit <= least_value for limit in limits)


def _make_comparison_record(verdict: Verdict, head: Side) -> AssertionRecord:
    """Return the record of a compared verdict, in which an improvement is never bad, whatever its ``severity`` says."""
    is_expected = verdict.assertion.xfail is not None and verdict.outcome is Outcome.FAILED
    return replace(
        make_record(verdict, ", ".join(head.paths)),
        traces=head.paths,
        key=head.key,
        good=verdict.good or is_expected or verdict.outcome is Outcome.IMPROVED,
        xfailed=is_expected,
    )


def render_comparison(session: Session, width: int = UNLIMITED_LENGTH, *, verbose: bool = False) -> list[str]:
    """Return the lines of a comparison, each of at most ``width`` characters: the result, what changed, why, then the
    summary.

    Without ``verbose`` it omits rows within their limits, and shows only the first of many rows.
    """
    assert session.comparison is not None
    sentence = format_headline(session)
    lead_lines = (
        [session.headline] if sentence.rstrip(".").lower() == session.headline.lower() else [session.headline, sentence]
    )
    parts = [[*lead_lines, *describe_comparison(session.comparison)]]
    for table in build_comparison_tables(session.comparison, verbose=verbose):
        table_lines = table.render_lines("… {} more (-v shows them)", width - len(INDENT))
        parts.append([table.caption, *(f"{INDENT}{line}" for line in table_lines)])
    told_causes: set[str] = set()
    for record in filter(lambda record: record.needs_attention, sort_by_severity(session.records)):
        causes = [row for row in record.verdict.causes if str(row) not in told_causes]
        told_causes.update(map(str, causes))
        rows = (
            build_row_table(record.verdict, select_rows_to_show(record.verdict), MAX_LIMIT_ROWS)
            if record.verdict.on_base
            else None
        )
        reason_lines = (
            [f"{INDENT}{line}" for line in rows.render_lines("… {} more", width - len(INDENT))]
            if rows is not None and rows.rows
            else []
        )
        reason_lines += render_reasons(record.verdict, causes)
        is_told = record.outcome in (Outcome.FAILED, Outcome.IMPROVED) and not record.assertion.is_claim
        if reason_lines or not is_told:  # the rows of these say it
            parts.append([f"{record.state}: {record.title}: {record.message}", *reason_lines])
    parts.append(render_terminal_summary(session.records, verbose=verbose, width=width))
    separated_lines = (line for number, part in enumerate(parts) for line in (*([""] if number else []), *part))
    return [part for line in separated_lines for part in wrap_line(line, width)]
