"""How does a comparison read in a browser? One self-contained page without network, every name escaped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_nsys.core.kept import grouped
from pytest_nsys.reports.causes import CauseTable, cause_table
from pytest_nsys.reports.comparison import tables
from pytest_nsys.reports.headline import of_comparison, records_of
from pytest_nsys.reports.page.page import render
from pytest_nsys.reports.page.timeline_view import COLUMNS, marks_of, timeline_views
from pytest_nsys.reports.session.record import Record
from pytest_nsys.reports.tables import Table
from pytest_nsys.verdicts.comparison import ComparedRow

WIDTH, MIDDLE, UNIT = 140, 50, 20
"""Of a bar in pixels: its length, where no change stands, and what a change of one tolerance takes."""


def as_html(shown: tables.Shown) -> str:
    """The page, with the windows that are drawn on it. No row is left out; what is long is folded."""
    comparison = shown.comparison
    records = records_of(comparison)
    rows = [row for record in records for row in record.verdict.causes]
    marks = {one.key: marks_of(rows, one.rank) for one in shown.windows}
    moved, within = tables.moved_table(comparison), tables.within_table(comparison)
    return render(
        "comparison.html.j2",
        interactive=bool(shown.windows),
        timelines=timeline_views(shown.windows, marks),
        timeline_columns=COLUMNS,
        headline=of_comparison(comparison, tables.headline(comparison)),
        comparison=comparison,
        tables=tables,
        moved=moved,
        moved_lines=_lines(comparison.moved, moved),
        causes=_causes(records),
        within=within,
        within_lines=_lines(tables.within(comparison), within),
        bar={"width": WIDTH, "middle": MIDDLE, "limit": MIDDLE + UNIT},
    )


def _causes(records: Sequence[Record]) -> list[CauseTable]:
    """Why rows are worse, those of several metrics once."""
    rows = {str(row): row for record in records for row in record.verdict.causes}
    metrics = grouped((str(row), record.assertion.metric) for record in records for row in record.verdict.causes)
    return [cause_table(row, f"{', '.join(dict.fromkeys(metrics[key]))}, ") for key, row in rows.items()]


def _lines(rows: Sequence[ComparedRow], table: Table) -> list[dict[str, Any]]:
    """The rows of a table: cells, word as a class of style, bar."""
    return [
        {"cells": cells, "style": tables.word(row).replace(" ", "-"), "bar": _bar(row)}
        for row, cells in zip(rows, table.rows, strict=True)
    ]


def _bar(each: ComparedRow) -> dict[str, Any] | None:
    """The change of a row as a bar from ``left`` of so much ``width``; None of one that has no tolerance.

    ``cut``: it goes on beyond the edge. ``exact``: the row may not change at all, so there is no strip to stay in.
    """
    times = each.row.times_tolerance
    if times is None:
        if each.row.limit is None or each.row.sees != 0 or not each.changed:
            return None
        return {"left": MIDDLE, "width": WIDTH - MIDDLE, "better": False, "cut": True, "exact": True}
    length, better = round(abs(times) * UNIT), times < 0
    room = MIDDLE if better else WIDTH - MIDDLE
    width = min(length, room)
    left = MIDDLE - width if better else MIDDLE
    return {"left": left, "width": width, "better": better, "cut": length > room, "exact": False}
