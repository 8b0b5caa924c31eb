"""How does a comparison read, in a terminal, a pull request or a job summary? Tables, the worst row first."""

from __future__ import annotations

from pytest_nsys.reports.comparison.tables import Shown, headline, sections, significance
from pytest_nsys.reports.tables import Column, Table, as_markdown, escape_markdown


def as_text(shown: Shown) -> str:
    """The report; a verbose one leaves no row out, and adds those within their limits."""
    comparison = shown.comparison
    lines = [headline(comparison)]
    if not comparison.incomparable:
        lines.append(significance(comparison))
    for part in sections(comparison, verbose=shown.verbose):
        below = [f"  {line}" for line in part.lines("… {} more (-v shows them)")] if isinstance(part, Table) else []
        lines += ["", part.caption if isinstance(part, Table) else part, *below]
    return "\n".join(lines) + "\n"


FOLDED = 5
"""From so many rows on, a table that may be folded away is."""


def as_markdown_report(shown: Shown) -> str:
    """The same in GitHub's Markdown, every name escaped."""
    comparison = shown.comparison
    parts = [f"## pytest-nsys compare: {escape_markdown(headline(comparison))}\n"]
    if not comparison.incomparable:
        parts.append(f"{escape_markdown(significance(comparison))}\n")
    found = sections(comparison, verbose=shown.verbose)
    parts += [_section(part) if isinstance(part, Table) else f"{escape_markdown(part)}\n" for part in found]
    return "\n".join(parts)


def _section(table: Table) -> str:
    """A table below its caption."""
    text = as_markdown([Column(column.name or " ", column.kind) for column in table.columns], table.rows)
    if table.more:
        text += f"\n… {table.more} more\n"
    caption = escape_markdown(table.caption)
    if table.folded and len(table.rows) > FOLDED:
        return f"<details><summary>{caption} ({len(table.rows) + table.more})</summary>\n\n{text}\n</details>\n"
    return f"### {caption}\n\n{text}"
