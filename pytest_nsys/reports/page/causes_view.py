"""How does a page tell why a row changed? Which row, by how much, and a table of the parts."""

from __future__ import annotations

from pytest_nsys.analysis.explained import Explained
from pytest_nsys.core.numbers import format_signed
from pytest_nsys.reports.causes import labels_words, part_cells
from pytest_nsys.reports.tables import WHOLE_TEXT, Table, number, table_of

MOST_PARTS = 6
"""The others, which are smaller, are one line; the JSON report has them."""

Why = tuple[str, str, Table]
"""Which row, its change, and the parts of it."""


def explained(row: Explained, of: str = "") -> Why:
    """An explained row; ``of`` stands before its place."""
    where = of + labels_words(row.labels)
    columns = (number("change"), "what")
    parts = table_of(f"Causes of {where}", columns, part_cells(row.explanation, MOST_PARTS), longest=WHOLE_TEXT)
    return where, format_signed(row.explanation.change_ns), parts
