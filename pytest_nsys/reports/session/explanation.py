"""How does a bad verdict read: what was decided, the rows, worst first, why, the window, what to do next?

The job summary and the page show the same table of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_nsys.core.exact import distance
from pytest_nsys.core.model import Note, Step
from pytest_nsys.core.numbers import distance_words, format_value, scale_of
from pytest_nsys.core.words import printable
from pytest_nsys.gates.model import JudgedRow, Outcome
from pytest_nsys.reports.causes import Plain, cause_lines
from pytest_nsys.reports.session.record import judged_row, notes_of
from pytest_nsys.reports.tables import CellKind, Column, Table, Told, number, table_by, table_of
from pytest_nsys.reports.text import BAD, apart, change, limit_of, serialization_cells

NO_VALUE = "—"
SHOWN_ROWS = 10
SHOWN_DETAILS = 4


def explanation(record: Plain, next_steps: Sequence[Step]) -> list[str]:
    """A bad verdict below its sentence, in a terminal."""
    lines = [f"  {record['outcome']}: {record['message']}"]
    for table in (row_table(record, decisive(record), SHOWN_ROWS), difference_table(record, 100)):
        lines += [f"  {line}" for line in table.lines("… {} more")] if table.rows else []
    details = [printable(line, 1000) for line in record["details"][:SHOWN_DETAILS]]
    more = len(record["details"]) - SHOWN_DETAILS
    details += [f"… {more} more (all of them in the JSON report)"] if more > 0 else []
    lines += _block("change:", details)
    lines += _block("why:", cause_lines(record["causes"]))
    lines += _block("window:", record["shown_windows"])
    for note in (*(Note(text, True) for text in record["warnings"]), *notes_of(record)):
        lines.append(f"  {'' if note.warning else 'note:   '}{note.printable(400)}")
    return lines + _block("next:", next_steps)


def _block(title: str, lines: Iterable[object]) -> list[str]:
    """Lines below each other, the first behind the title."""
    return [f"  {'' if number else title:<7} {line}" for number, line in enumerate(lines)]


def decisive(record: Plain) -> list[Plain]:
    """The rows that do not hold, worst first; where none is such, those that are unclear, or improved."""
    for outcomes in (BAD, (Outcome.INCONCLUSIVE,), (Outcome.IMPROVED,)):
        if rows := [row for row in record["judged"] if row["outcome"] in outcomes and not row["waived"]]:
            return rows
    return []


def difference_table(record: Plain, longest: int) -> Table:
    """The circumstances that make the runs incomparable."""
    columns = [Column(name, CellKind.NAME) for name in ("differs", "now", "baseline")]
    rows = [(each["name"], each["now"], each["baseline"]) for each in record["differences"]]
    return table_of("", columns, rows, longest=longest)


class _Shown(NamedTuple):
    """A judged row, and where its limit comes from."""

    row: JudgedRow
    source: str


def row_table(record: Plain, rows: Sequence[Plain], limit: int, *, margins: bool = False) -> Table:
    """The first ``limit`` of these ``rows`` of a plain record: where each is, its value, its limit with its source.

    Before the limit, where something is stored, the baseline and the change; after it what is left to it, if
    ``margins``, what a test says of two sets of captures, and the rule of a pipeline.
    """
    unit, shown = record["unit"], [_Shown(judged_row(row), row["limit_source"]) for row in rows]
    scale = scale_of([v for s in shown[:limit] for v in (s.row.value, s.row.baseline, s.row.limit)], unit)

    def limit_cell(s: _Shown) -> str:
        if s.row.limit is None:
            return NO_VALUE
        source = f"({s.source})" if s.source else ""
        limit = limit_of(s.row, unit, scale, two_sided=not record["comparator"])
        return f"{record['comparator']} {limit} {source}".strip()

    def baseline(s: _Shown) -> str:
        return NO_VALUE if s.row.baseline is None else format_value(s.row.baseline, unit, scale=scale)

    columns: list[Told[_Shown]] = [
        *labels_columns([s.row.labels for s in shown], lambda s: s.row.labels),
        *labels_columns([s.row.origin for s in shown], lambda s: s.row.origin, "({})"),
        (number("now"), lambda s: apart(s.row, unit, scale)[0]),
    ]
    if any(s.source for s in shown):
        columns += [(number("baseline"), baseline), (number("change"), lambda s: change(s.row, unit))]
    columns.append(("limit", limit_cell))
    if margins:
        columns.append((number("headroom"), lambda s: _margin(s.row, unit)))
    if any(s.row.test for s in shown):
        columns.append(("test", lambda s: s.row.test))
    if any(s.row.serialization is not None for s in shown):
        columns.append(("serialization", lambda s: serialization_cells(s.row)[0]))
        columns.append(("limit", lambda s: serialization_cells(s.row)[1]))
    return table_by("", columns, shown, limit)


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
