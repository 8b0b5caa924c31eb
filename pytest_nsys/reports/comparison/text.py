"""How does a comparison read in a terminal? Aligned tables, the worst row first."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_nsys.reports.comparison import tables as tables
from pytest_nsys.reports.comparison.tables import SHOWN_ROWS, Table
from pytest_nsys.reports.text import aligned
from pytest_nsys.verdicts.comparison import Comparison


def as_text(comparison: Comparison, *, verbose: bool = False) -> str:
    """The report; ``verbose`` leaves no row out, and adds those within their limits."""
    limit = None if verbose else SHOWN_ROWS
    lines = [tables.headline(comparison)]
    if not comparison.incomparable:
        lines.append(tables.significance(comparison))
    lines += _listed(tables.sides_table(comparison))
    lines += _listed(tables.circumstances_table(comparison))
    lines += _listed(tables.moved_table(comparison, limit))
    lines += ["", tables.unmoved_words(comparison)]
    if verbose:
        lines += _listed(tables.within_table(comparison, None))
        lines += _listed(tables.assertion_table(comparison))
    else:
        lines += _listed(tables.undecided_table(comparison))
    lines += _listed(tables.causes_table(comparison, limit))
    lines += _listed(tables.structure_table(comparison, limit))
    lines += _listed(tables.constants_table(comparison))
    lines += _listed(tables.things_table(comparison, limit))
    lines += _listed(tables.windows_table(comparison))
    lines += _listed(tables.notes_table(comparison))
    return "\n".join(lines) + "\n"


def _listed(table: Table) -> Iterator[str]:
    """A table below its caption; nothing where it has no row."""
    if not table.rows:
        return
    yield ""
    yield table.caption
    head = [table.columns] if any(table.columns) else []
    yield from (f"  {line}" for line in aligned([*head, *table.rows]))
    if table.more:
        yield f"  … {table.more} more (-v shows them)"
