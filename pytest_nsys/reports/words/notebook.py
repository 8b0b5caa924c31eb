"""How does a notebook show a verdict? By its sentence in a colour, its rows, and the cause where it is bad."""

from __future__ import annotations

from html import escape

from pytest_nsys.core.words import printable
from pytest_nsys.gates.model import Outcome, Verdict
from pytest_nsys.reports.words.explanation import SHOWN_ROWS, difference_table, reasons, row_table, rows_to_show

RED, AMBER, GREEN = "#c62828", "#b26a00", "#2e7d32"
"""Of an outcome, to be read on white and on black."""


def verdict_html(verdict: Verdict) -> str:
    """Return a verdict as the HTML that a notebook shows."""
    colour = RED if not verdict.good else GREEN if verdict.outcome is Outcome.PASSED else AMBER
    head = f'<strong style="color:{colour}">{escape(verdict.outcome)}</strong>'
    sentence = escape(printable(f"{verdict.assertion.full_name}: {verdict.message}", 400))
    notable_rows = rows_to_show(verdict) if verdict.outcome is not Outcome.PASSED else []
    tables = (
        row_table(verdict, notable_rows or verdict.rows, SHOWN_ROWS, margins=True),
        difference_table(verdict, 100),
    )
    lines_below = [*reasons(verdict, verdict.causes), *(f"  {printable(text, 400)}" for text in verdict.warnings)]
    text = escape("\n".join(lines_below))
    parts = [table.html() for table in tables if table.rows] + ([f"<pre>{text}</pre>"] if text else [])
    return f"<div>{head} {sentence}{''.join(parts)}</div>"
