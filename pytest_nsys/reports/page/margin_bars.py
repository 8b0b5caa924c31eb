"""How near is each row to its limit, drawn? A bar from the line of the limit: to the left what is left, to the right
what is beyond it. Each side of an assertion has its own scale: a row far beyond would hide what is left of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pytest_nsys.core.exact import from_exact
from pytest_nsys.core.model import counted
from pytest_nsys.reports.row_table import row_table
from pytest_nsys.reports.tables import Column

WIDTH, MIDDLE = 140, 70
"""Of a bar's picture in pixels: its length, and where the limit is."""

MOST_ROWS = 500
"""Of one assertion; the JSON report has all of them."""


@dataclass(frozen=True, slots=True)
class MarginBar:
    """A bar from ``left`` of so much ``width``; ``kind`` is held, crossed or waived, which differ in shape too."""

    left: int
    width: int
    kind: str


@dataclass(frozen=True, slots=True)
class RowLine:
    """One row: its word, its cells, its bar; None where it has no limit that it could be near to."""

    word: str
    cells: tuple[str, ...]
    bar: MarginBar | None


@dataclass(frozen=True, slots=True)
class RowsView:
    """The rows of one assertion, worst first: those to look at, and those that hold. ``more`` says what is left out."""

    columns: tuple[Column, ...]
    lines: tuple[RowLine, ...]
    holding: tuple[RowLine, ...]
    more: str


def rows_view(record: Mapping[str, Any]) -> RowsView:
    """The judged rows of a plain record."""
    rows = record["judged"]
    table = row_table(record, rows, MOST_ROWS, margins=True)
    margins = [Fraction(m) for row in rows if (m := from_exact(row["margin"])) is not None]
    scales = max((-m for m in margins if m < 0), default=None), max((m for m in margins if m > 0), default=None)
    lines: list[RowLine] = []
    holding: list[RowLine] = []
    for row, cells in zip(rows, table.rows, strict=False):
        word = _word(row)
        (holding if word == "passed" else lines).append(RowLine(word, cells, _bar(row, scales)))
    left_out = f"… {counted(table.more, 'more row')}, in the JSON report" if table.more else ""
    return RowsView(table.columns, tuple(lines), tuple(holding), left_out)


def _word(row: Mapping[str, Any]) -> str:
    return "waived" if row["waived"] else "near" if row["early_warning"] else str(row["outcome"])


def _bar(row: Mapping[str, Any], scales: tuple[Fraction | None, Fraction | None]) -> MarginBar | None:
    margin = from_exact(row["margin"])
    if margin is None:
        return None
    scale = scales[0] if margin < 0 else scales[1]
    width = int(abs(Fraction(margin)) * (MIDDLE - 2) / scale) if scale else 0
    kind = "waived" if row["waived"] else "crossed" if margin < 0 or row["outcome"] == "failed" else "held"
    return MarginBar(MIDDLE if margin < 0 else MIDDLE - width, width, kind)


def nearness(rows: Sequence[Mapping[str, Any]]) -> Fraction | None:
    """The least margin as a share of its limit: how near the rows of an assertion are to failing beside others.

    A row that holds and may not move at all is not about to fail, and says nothing.
    """
    found = [
        Fraction(margin) / max(abs(Fraction(limit)), Fraction(1, 1_000_000))
        for row in rows
        if (margin := from_exact(row["margin"])) is not None
        and (margin or row["outcome"] != "passed")
        and (limit := from_exact(row["limit"])) is not None
    ]
    return min(found, default=None)
