"""Which table do the judged rows of an assertion make? The job summary and the page print the same columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from pytest_nsys.core.exact import Exact, from_exact
from pytest_nsys.core.units import format_apart, format_value
from pytest_nsys.reports.tables import CellKind, Column, Table, Told, number, table_by
from pytest_nsys.reports.text import change_words, distance_words

NO_VALUE = "–"


Plain = Mapping[str, Any]


def coordinates(rows: Sequence[Plain]) -> list[Told[Plain]]:
    """A column for each dimension of these rows, in the order of the metric."""
    dimensions = dict.fromkeys(d for row in rows for d in row["labels"])
    return [(Column(d, CellKind.LABEL), _coordinate(d)) for d in dimensions]


def _coordinate(dimension: str) -> Callable[[Plain], str]:
    return lambda row: str(row["labels"].get(dimension, ""))


def row_table(record: Plain, rows: Sequence[Plain], limit: int, *, margins: bool = False) -> Table:
    """The first ``limit`` of these ``rows`` of a plain record: where each is, its value, its limit with its source.

    Before the limit, where something is stored, the baseline and the change; after it what is left to it, if
    ``margins``, and what a test says of two sets of captures.
    """
    unit = record["unit"]
    stored: list[Told[Plain]] = [
        (number("baseline"), lambda row: _value(row["baseline"], unit)),
        (number("change"), lambda row: change_words(from_exact(row["value"]), from_exact(row["baseline"]), unit)),
    ]
    columns: list[Told[Plain]] = [
        *coordinates(rows),
        (number("now"), lambda row: _apart(row, unit)[0]),
        *(stored if any(row["baseline"] is not None or row["limit"] is None for row in rows) else ()),
        ("limit", lambda row: _limit(row, record)),
    ]
    if margins:
        columns.append((number("margin"), lambda row: _margin(row, unit)))
    if any(row["test"] for row in rows):
        columns.append(("test", lambda row: str(row["test"])))
    return table_by("", columns, rows, limit)


def _value(stored: Exact, unit: str) -> str:
    value = from_exact(stored)
    return NO_VALUE if value is None else format_value(value, unit)


def _apart(row: Plain, unit: str) -> tuple[str, str]:
    value, limit = from_exact(row["value"]), from_exact(row["limit"])
    if value is not None and limit is not None and value != limit:
        return format_apart(value, limit, unit)
    return "gone" if value is None else format_value(value, unit), _value(row["limit"], unit)


def _limit(row: Plain, record: Plain) -> str:
    if row["limit"] is None:
        return NO_VALUE
    source = f"({row['limit_source']})" if row["limit_source"] else ""
    return f"{record['comparator']} {_apart(row, record['unit'])[1]} {source}".strip()


def _margin(row: Mapping[str, Any], unit: str) -> str:
    """What is left to the limit, negative where it is crossed; of a waived row what is left to its ceiling."""
    value, ceiling, margin = (from_exact(row[name]) for name in ("value", "ceiling", "margin"))
    if row["waived"] and value is not None and ceiling is not None:
        return f"{distance_words(abs(Fraction(ceiling) - value), unit)} to its ceiling"
    return NO_VALUE if margin is None else distance_words(margin, unit).replace("-", "−")
