"""How does a comparison read in a pull request or a job summary? GitHub's Markdown, every name escaped."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_nsys.reports.comparison import tables as tables
from pytest_nsys.reports.comparison.tables import SHOWN_ROWS, Table
from pytest_nsys.reports.tables import CellKind, Column, as_markdown, escape_markdown
from pytest_nsys.verdicts.comparison import Comparison

NUMERIC = ("base", "head", "change", "× tolerance", "launches", "rows")
FOLDED = 5
"""From so many rows on, a table that is not the first is folded away."""


def as_markdown_report(comparison: Comparison, *, verbose: bool = False) -> str:
    """The report; ``verbose`` leaves no row out, and adds those within their limits."""
    limit = None if verbose else SHOWN_ROWS
    parts = [f"## pytest-nsys compare: {escape_markdown(tables.headline(comparison))}\n"]
    if not comparison.incomparable:
        parts.append(f"{escape_markdown(tables.significance(comparison))}\n")
    parts += _section(tables.sides_table(comparison))
    parts += _section(tables.circumstances_table(comparison))
    parts += _section(tables.moved_table(comparison, limit))
    parts.append(f"{escape_markdown(tables.unmoved_words(comparison))}\n")
    if verbose:
        parts += _section(tables.within_table(comparison, None), fold=True)
        parts += _section(tables.assertion_table(comparison), fold=True)
    else:
        parts += _section(tables.undecided_table(comparison))
    parts += _section(tables.causes_table(comparison, limit))
    parts += _section(tables.structure_table(comparison, limit), fold=True)
    parts += _section(tables.constants_table(comparison), fold=True)
    parts += _section(tables.things_table(comparison, limit), fold=True)
    parts += _section(tables.windows_table(comparison), fold=True)
    parts += _section(tables.notes_table(comparison), fold=True)
    return "\n".join(parts)


def _section(table: Table, *, fold: bool = False) -> Iterator[str]:
    """A table below its caption; nothing where it has no row."""
    if not table.rows:
        return
    values = table.caption.startswith(("What", "Side"))
    columns = [
        Column(c or " ", CellKind.NUMBER if c == "launches" or (values and c in NUMERIC) else CellKind.TEXT)
        for c in table.columns
    ]
    text = as_markdown(columns, table.rows)
    if table.more:
        text += f"\n… {table.more} more\n"
    caption = escape_markdown(table.caption)
    if fold and len(table.rows) > FOLDED:
        yield f"<details><summary>{caption} ({len(table.rows) + table.more})</summary>\n\n{text}\n</details>\n"
    else:
        yield f"### {caption}\n\n{text}"
