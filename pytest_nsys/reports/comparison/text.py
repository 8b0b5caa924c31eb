"""How does a comparison read in a terminal? Aligned tables, the worst row first."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_nsys.reports.comparison.tables import Shown, headline, sections, significance
from pytest_nsys.reports.tables import Table


def as_text(shown: Shown) -> str:
    """The report; a verbose one leaves no row out, and adds those within their limits."""
    comparison = shown.comparison
    lines = [headline(comparison)]
    if not comparison.incomparable:
        lines.append(significance(comparison))
    for part in sections(comparison, verbose=shown.verbose):
        lines += _listed(part) if isinstance(part, Table) else ["", part]
    return "\n".join(lines) + "\n"


def _listed(table: Table) -> Iterator[str]:
    """A table below its caption; nothing where it has no row."""
    if not table.rows:
        return
    yield from ("", table.caption)
    yield from (f"  {line}" for line in table.lines("… {} more (-v shows them)"))
