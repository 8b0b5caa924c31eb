"""How does a notebook show a verdict? By its sentence in colour, its rows, and their causes if it is bad."""

from __future__ import annotations

from html import escape

from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.gates.model import Outcome, Verdict
from pytest_nsys.reports.words.verdict_text import (
    SHOWN_ROWS,
    build_difference_table,
    build_row_table,
    render_reasons,
    select_rows_to_show,
)

BAD_COLOUR, DOUBTFUL_COLOUR, GOOD_COLOUR = "#c62828", "#b26a00", "#2e7d32"
"""Colours of outcomes, readable on white and on black."""


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
