"""How does a comparison read in a browser? One self-contained page without network, every name escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_nsys.reports.comparison import tables
from pytest_nsys.reports.page.page import render
from pytest_nsys.reports.page.timeline_view import COLUMNS, timeline_view
from pytest_nsys.reports.tables import Table
from pytest_nsys.verdicts.comparison import ComparedRow

WIDTH, MIDDLE, UNIT = 140, 50, 20
"""Of a bar in pixels: its length, where no change stands, and what a change of one tolerance takes."""


@dataclass(frozen=True, slots=True)
class Bar:
    """The change of a row as a bar from ``left`` of so much ``width``.

    ``cut``: it goes on beyond the edge. ``exact``: the row may not change at all, so there is no strip to stay in.
    """

    left: int
    width: int
    better: bool
    cut: bool
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table of metric rows: its cells, its word as a class of style, its bar."""

    cells: tuple[str, ...]
    style: str
    bar: Bar | None


def as_html(shown: tables.Shown) -> str:
    """The page, with the windows that are drawn on it. No row is left out; what is long is folded."""
    comparison, windows = shown.comparison, shown.windows
    judged = not comparison.incomparable
    moved, within = tables.moved_table(comparison), tables.within_table(comparison)
    return render(
        "comparison.html.j2",
        interactive=bool(windows),
        timelines=[timeline_view(picture, number) for number, picture in enumerate(windows, 1)],
        timeline_columns=COLUMNS,
        headline=tables.headline(comparison),
        judged=judged,
        result=str(comparison.result).replace(" ", "-"),
        significance=tables.significance(comparison) if judged else "",
        sides=tables.sides_table(comparison),
        circumstances=tables.circumstances_table(comparison),
        moved=moved,
        moved_lines=_lines(comparison.moved, moved),
        unmoved=tables.unmoved_words(comparison),
        within=within,
        within_lines=_lines(tables.within(comparison), within),
        undecided=tables.undecided_table(comparison),
        constants=tables.constants_table(comparison),
        structure=tables.structure_table(comparison),
        causes=tables.causes_table(comparison),
        things=tables.things_table(comparison),
        folded=[tables.assertion_table(comparison), tables.windows_table(comparison), tables.notes_table(comparison)],
        bar={"width": WIDTH, "middle": MIDDLE, "limit": MIDDLE + UNIT},
    )


def _lines(rows: Sequence[ComparedRow], table: Table) -> list[Line]:
    return [
        Line(cells, tables.word(row).replace(" ", "-"), bar_of(row))
        for row, cells in zip(rows, table.rows, strict=True)
    ]


def bar_of(each: ComparedRow) -> Bar | None:
    """The bar of a row that has a tolerance; one that may not change at all has its change as a cut bar."""
    times = each.times_limit
    if times is None:
        if each.row.limit is None or each.row.sees != 0 or not each.changed:
            return None
        return Bar(MIDDLE, WIDTH - MIDDLE, better=False, cut=True, exact=True)
    length = round(abs(times) * UNIT)
    room = MIDDLE if times < 0 else WIDTH - MIDDLE
    shown = min(length, room)
    left = MIDDLE - shown if times < 0 else MIDDLE
    return Bar(left, shown, better=times < Fraction(0), cut=length > room)
