"""How do a notebook and print() show a verdict or a comparison? Its sentence, its rows, and the causes of a bad one."""

from __future__ import annotations

from dataclasses import replace
from html import escape

from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.gates.model import Outcome, Verdict
from pytest_nsys.reports.words.verdict_text import (
    SHOWN_ROWS,
    build_difference_table,
    build_row_table,
    describe_reason,
    format_baseline_change,
    format_crossed_limit,
    format_row_place,
    format_subject,
    render_reasons,
    select_rows_to_show,
)
from pytest_nsys.verdicts.comparison import Comparison

BAD_COLOUR, DOUBTFUL_COLOUR, GOOD_COLOUR = "#c62828", "#b26a00", "#2e7d32"
"""Colours of outcomes, readable on white and on black."""


MAX_COMPARED_ROWS = 5
"""So many rows of a comparison are printed, the worst first."""


def render_verdict_text(verdict: Verdict) -> str:
    """Return a verdict as the lines that print() writes: the sentence with its reason, the rows, what changed, why."""
    is_bad = not verdict.good
    reason = describe_reason(verdict).removeprefix(f"{verdict.outcome}: ") if is_bad else verdict.message
    rows = (select_rows_to_show(verdict) if verdict.outcome is not Outcome.PASSED else []) or verdict.rows
    tables = (
        replace(
            build_row_table(verdict, rows[:SHOWN_ROWS], SHOWN_ROWS, with_headroom=True),
            omitted_count=max(0, len(rows) - SHOWN_ROWS),
        ),
        build_difference_table(verdict, 100),
    )
    return "\n".join(
        [
            sanitize_line(f"{verdict.outcome}: {verdict.assertion.full_name}: {reason}", 400),
            *(f"  {line}" for table in tables if table.rows for line in table.render_lines("… {} more")),
            *render_reasons(verdict, verdict.causes),
            *(f"  {sanitize_line(text, 400)}" for text in verdict.warnings),
        ]
    )


def render_comparison_text(comparison: Comparison) -> str:
    """Return a comparison as the lines that print() writes: the result, and the rows that moved most for the worse."""
    worse_count, lines = len(comparison.worse), []
    for verdict, row in comparison.worse[:MAX_COMPARED_ROWS]:
        place = format_row_place(row, verdict)
        metric_and_place = f"{format_subject(verdict.assertion)} {place}".strip()
        change_text = format_baseline_change(row, verdict.unit)
        limit_text = format_crossed_limit(row, verdict)
        lines.append(
            f"  {metric_and_place}: {limit_text or row.outcome}" + (f" ({change_text})" if change_text else "")
        )
    if worse_count > MAX_COMPARED_ROWS:
        lines.append(f"  … {worse_count - MAX_COMPARED_ROWS} more: to_records() has every row")
    head = f"{comparison.result}: {worse_count} of {len(comparison.rows)} rows worse"
    return "\n".join([head, *(sanitize_line(line, 400) for line in lines)])


def render_verdict_html(verdict: Verdict) -> str:
    """Return a verdict as the HTML that a notebook shows."""
    colour = BAD_COLOUR if not verdict.good else GOOD_COLOUR if verdict.outcome is Outcome.PASSED else DOUBTFUL_COLOUR
    head = f'<strong style="color:{colour}">{escape(verdict.outcome)}</strong>'
    sentence = escape(sanitize_line(f"{verdict.assertion.full_name}: {verdict.message}", 400))
    notable_rows = select_rows_to_show(verdict) if verdict.outcome is not Outcome.PASSED else []
    tables = (
        build_row_table(verdict, notable_rows or verdict.rows, SHOWN_ROWS, with_headroom=True),
        build_difference_table(verdict, 100),
    )
    lines_below = [
        *render_reasons(verdict, verdict.causes),
        *(f"  {sanitize_line(text, 400)}" for text in verdict.warnings),
    ]
    text = escape("\n".join(lines_below))
    parts = [table.render_html() for table in tables if table.rows] + ([f"<pre>{text}</pre>"] if text else [])
    return f"<div>{head} {sentence}{''.join(parts)}</div>"
