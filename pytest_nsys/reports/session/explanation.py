"""How does a bad verdict read: what was decided, the rows, worst first, why, the window, what to do next?

The job summary and the page show the same table of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pytest_nsys.core.exact import distance
from pytest_nsys.core.model import Note, Step
from pytest_nsys.core.numbers import distance_words, format_value, scale_of
from pytest_nsys.core.words import printable
from pytest_nsys.gates.model import JudgedRow, Outcome, Verdict
from pytest_nsys.reports.causes import cause_lines
from pytest_nsys.reports.tables import CellKind, Column, Table, Told, number, table_by, table_of
from pytest_nsys.reports.text import (
    apart,
    change,
    limit_of,
    limit_source,
    rows_to_show,
    serialization_cells,
    shown_windows,
)

NO_VALUE = "—"
SHOWN_ROWS = 10
SHOWN_DETAILS = 4


def explanation(verdict: Verdict, next_steps: Sequence[Step]) -> list[str]:
    """A bad verdict below its sentence, in a terminal."""
    lines = [f"  {verdict.outcome}: {verdict.message}"]
    for table in (row_table(verdict, rows_to_show(verdict), SHOWN_ROWS), difference_table(verdict, 100)):
        lines += [f"  {line}" for line in table.lines("… {} more")] if table.rows else []
    details = [printable(line, 1000) for line in verdict.details[:SHOWN_DETAILS]]
    more = len(verdict.details) - SHOWN_DETAILS
    details += [f"… {more} more (all of them in the JSON report)"] if more > 0 else []
    lines += _block("change:", details)
    lines += _block("why:", cause_lines(verdict.causes))
    lines += _block("window:", () if verdict.outcome is Outcome.PASSED else shown_windows(verdict))
    for note in (*(Note(text, True) for text in verdict.warnings), *verdict.notes):
        lines.append(f"  {'' if note.warning else 'note:   '}{note.printable(400)}")
    return lines + _block("next:", next_steps)


def _block(title: str, lines: Iterable[object]) -> list[str]:
    """Lines below each other, the first behind the title."""
    return [f"  {'' if number else title:<7} {line}" for number, line in enumerate(lines)]


def difference_table(verdict: Verdict, longest: int) -> Table:
    """The circumstances that make the runs incomparable."""
    columns = [Column(name, CellKind.NAME) for name in ("differs", "now", "baseline")]
    return table_of("", columns, verdict.differences, longest=longest)


def row_table(verdict: Verdict, rows: Sequence[JudgedRow], limit: int, *, margins: bool = False) -> Table:
    """The first ``limit`` of these ``rows`` of a verdict: where each is, its value, its limit with its source.

    Before the limit, where something is stored, the baseline and the change; after it what is left to it, if
    ``margins``, what a test says of two sets of captures, and the rule of a pipeline.
    """
    unit, assertion = verdict.unit, verdict.assertion
    comparator = assertion.require.comparator or ""
    scale = scale_of([v for row in rows[:limit] for v in (row.value, row.baseline, row.limit)], unit)

    def limit_cell(row: JudgedRow) -> str:
        if row.limit is None:
            return NO_VALUE
        source = limit_source(assertion, unit, row)
        limit = limit_of(row, unit, scale, two_sided=not comparator)
        return f"{comparator} {limit} {f'({source})' if source else ''}".strip()

    def baseline(row: JudgedRow) -> str:
        return NO_VALUE if row.baseline is None else format_value(row.baseline, unit, scale=scale)

    columns: list[Told[JudgedRow]] = [
        *labels_columns([row.labels for row in rows], lambda row: row.labels),
        *labels_columns([row.origin for row in rows], lambda row: row.origin, "({})"),
        (number("now"), lambda row: apart(row, unit, scale)[0]),
    ]
    if rows and assertion.needs_baseline:
        columns += [(number("baseline"), baseline), (number("change"), lambda row: change(row, unit))]
    columns.append(("limit", limit_cell))
    if margins:
        columns.append((number("headroom"), lambda row: _margin(row, unit)))
    if any(row.test for row in rows):
        columns.append(("test", lambda row: row.test))
    if any(row.serialization is not None for row in rows):
        columns.append(("serialization", lambda row: serialization_cells(row)[0]))
        columns.append(("limit", lambda row: serialization_cells(row)[1]))
    return table_by("", columns, rows, limit)


def labels_columns(
    labels: Iterable[Mapping[str, Any]], of: Callable[[Any], Mapping[str, Any]], called: str = "{}"
) -> list[Told[Any]]:
    """A column for each dimension of these labels, in the order of the metric."""

    def cell(dimension: str) -> Callable[[Any], str]:
        return lambda row: str(of(row).get(dimension, ""))

    dimensions = dict.fromkeys(d for own in labels for d in own)
    return [(Column(called.format(d), CellKind.LABEL), cell(d)) for d in dimensions]


def _margin(row: JudgedRow, unit: str) -> str:
    """What is left to the limit, negative where it is crossed; of a waived row what is left to its ceiling."""
    if row.waived and row.value is not None and row.ceiling is not None:
        return f"{distance_words(distance(row.ceiling, row.value), unit)} to its ceiling"
    return NO_VALUE if row.margin is None else distance_words(row.margin, unit)
