"""How is a comparison of two runs made a session, and how does that read in a terminal?"""

from __future__ import annotations

from dataclasses import replace

from pytest_nsys.gates.model import Comparator, Outcome, Verdict
from pytest_nsys.reports.session.headline import of_session
from pytest_nsys.reports.session.record import Record, record_of
from pytest_nsys.reports.session.session import Session, ordered
from pytest_nsys.reports.session.story import led_by
from pytest_nsys.reports.session.summary import summary_lines
from pytest_nsys.reports.session.two_sides import beside, tables
from pytest_nsys.reports.tables.formats import WHOLE_TEXT
from pytest_nsys.reports.words.explanation import reasons, row_table, rows_to_show
from pytest_nsys.verdicts.comparison import BUILT_IN_GATE, Comparison, Result, Side

MOST_LIMITS = 10
"""So many rows are shown of a constant limit."""


def session_of_comparison(comparison: Comparison) -> Session:
    """Return a comparison as a session; its exit status is that of a pytest session with these verdicts."""
    shown_verdicts = (verdict for verdict in comparison.verdicts if not _cannot_fail(verdict))
    records = ordered(_record(verdict, comparison.head) for verdict in shown_verdicts)
    return Session(records, exit_status=int(comparison.result is not Result.NOT_WORSE), comparison=comparison)


def _cannot_fail(verdict: Verdict) -> bool:
    """Whether no value can break the limits of an assertion of the built-in gate, as an overlap of at least 0 %."""
    least_value = verdict.assertion.measures.least
    if verdict.address != BUILT_IN_GATE or verdict.outcome is not Outcome.PASSED or least_value is None:
        return False
    is_lower_limit = verdict.assertion.require.comparator is Comparator.GE
    limits = [row.limit for row in verdict.rows]
    return is_lower_limit and bool(limits) and all(limit is not None and limit <= least_value for limit in limits)


def _record(verdict: Verdict, head: Side) -> Record:
    """Return the record of a compared verdict, in which an improvement is never bad, whatever its ``severity`` says."""
    is_expected = verdict.assertion.xfail is not None and verdict.outcome is Outcome.FAILED
    return replace(
        record_of(verdict, ", ".join(head.paths)),
        traces=head.paths,
        key=head.key,
        good=verdict.good or is_expected or verdict.outcome is Outcome.IMPROVED,
        xfailed=is_expected,
    )


def comparison_text(session: Session, *, verbose: bool = False) -> str:
    """Return a comparison as a terminal shows it: the result, what changed, why, then the summary.

    Without ``verbose`` it has no row that holds, and only the first of many rows.
    """
    assert session.comparison is not None
    sentence = of_session(session)
    lead_lines = (
        [session.headline] if sentence.rstrip(".").lower() == session.headline.lower() else [session.headline, sentence]
    )
    parts = [[*lead_lines, *beside(session.comparison)]]
    for table in tables(session.comparison, verbose=verbose):
        table_lines = table.lines("… {} more (-v shows them)")
        parts.append([table.caption, *(f"  {line}" for line in table_lines)])
    told_causes: set[str] = set()
    for record in filter(lambda record: record.is_open, led_by(session.records)):
        causes = [row for row in record.verdict.causes if str(row) not in told_causes]
        told_causes.update(map(str, causes))
        rows = row_table(record.verdict, rows_to_show(record.verdict), MOST_LIMITS) if record.verdict.on_base else None
        reason_lines = [f"  {line}" for line in rows.lines("… {} more")] if rows is not None and rows.rows else []
        reason_lines += reasons(record.verdict, causes)
        if reason_lines or record.outcome not in (Outcome.FAILED, Outcome.IMPROVED):  # whose rows say it
            parts.append([f"{record.state}: {record.title}: {record.message}", *reason_lines])
    parts.append(summary_lines(session.records, verbose=verbose, width=WHOLE_TEXT))
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"
