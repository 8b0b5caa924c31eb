"""Which table do the judged rows of an assertion make? The job summary and the page print the same columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from pytest_nsys.core.exact import from_exact
from pytest_nsys.core.units import format_apart, format_value
from pytest_nsys.reports.tables import CellKind, Column, Table, number, table_of
from pytest_nsys.reports.text import change_words, distance_words

NO_VALUE = "–"


def dimensions_of(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """A column for each dimension of these rows, in the order of the metric."""
    return [Column(d, CellKind.LABEL) for d in dict.fromkeys(d for row in rows for d in row["labels"])]


def label_cells(row: Mapping[str, Any], dimensions: Sequence[Column]) -> list[str]:
    """The row's coordinates, empty where it has none."""
    return [str(row["labels"].get(dimension.name, "")) for dimension in dimensions]


def row_table(
    record: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], limit: int, *, margins: bool = False
) -> Table:
    """The first ``limit`` of these ``rows`` of a plain record: where each is, its value, its limit with its source.

    Before the limit, where something is stored, the baseline and the change; after it what is left to it, if
    ``margins``, and what a test says of two sets of captures.
    """
    dimensions = dimensions_of(rows)
    stored = any(row["baseline"] is not None or row["limit"] is None for row in rows)
    tested = any(row["test"] for row in rows)
    columns = [*dimensions, *map(number, ("now", "baseline", "change") if stored else ("now",)), Column("limit")]
    columns += [*([number("margin")] if margins else []), *([Column("test")] if tested else [])]
    cells = (
        [
            *label_cells(row, dimensions),
            *_numbers(row, record, stored=stored),
            *([_margin(row, record["unit"])] if margins else []),
            *([row["test"]] if tested else []),
        ]
        for row in rows
    )
    return table_of("", columns, cells, limit)


def _numbers(row: Mapping[str, Any], record: Mapping[str, Any], *, stored: bool) -> Iterator[str]:
    """Value, baseline and change where a baseline is ``stored``, limit."""
    unit = record["unit"]
    value, limit, baseline = (from_exact(row[name]) for name in ("value", "limit", "baseline"))
    now = "gone" if value is None else format_value(value, unit)
    allowed = NO_VALUE if limit is None else format_value(limit, unit)
    if value is not None and limit is not None and value != limit:
        now, allowed = format_apart(value, limit, unit)
    yield now
    if stored:
        yield NO_VALUE if baseline is None else format_value(baseline, unit)
        yield change_words(value, baseline, unit)
    source = f"({row['limit_source']})" if row["limit_source"] else ""
    yield NO_VALUE if limit is None else f"{record['comparator']} {allowed} {source}".strip()


def _margin(row: Mapping[str, Any], unit: str) -> str:
    """What is left to the limit, negative where it is crossed; of a waived row what is left to its ceiling."""
    value, ceiling, margin = (from_exact(row[name]) for name in ("value", "ceiling", "margin"))
    if row["waived"] and value is not None and ceiling is not None:
        return f"{distance_words(abs(Fraction(ceiling) - value), unit)} to its ceiling"
    return NO_VALUE if margin is None else distance_words(margin, unit).replace("-", "−")
