"""How does a comparison read in a pull request or a job summary? GitHub's Markdown, every name escaped."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_nsys.reports.comparison.tables import Shown, headline, sections, significance
from pytest_nsys.reports.tables import Column, Table, as_markdown, escape_markdown

FOLDED = 5
"""From so many rows on, a table that may be folded away is."""


def as_markdown_report(shown: Shown) -> str:
    """The report; a verbose one leaves no row out, and adds those within their limits."""
    comparison = shown.comparison
    parts = [f"## pytest-nsys compare: {escape_markdown(headline(comparison))}\n"]
    if not comparison.incomparable:
        parts.append(f"{escape_markdown(significance(comparison))}\n")
    for part in sections(comparison, verbose=shown.verbose):
        parts += _section(part) if isinstance(part, Table) else [f"{escape_markdown(part)}\n"]
    return "\n".join(parts)


def _section(table: Table) -> Iterator[str]:
    """A table below its caption; nothing where it has no row."""
    if not table.rows:
        return
    text = as_markdown([Column(column.name or " ", column.kind) for column in table.columns], table.rows)
    if table.more:
        text += f"\n… {table.more} more\n"
    caption = escape_markdown(table.caption)
    if table.folded and len(table.rows) > FOLDED:
        yield f"<details><summary>{caption} ({len(table.rows) + table.more})</summary>\n\n{text}\n</details>\n"
    else:
        yield f"### {caption}\n\n{text}"
