"""``pytest-nsys rows``: what are the values of any metrics, exactly as a gate would see them?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import click

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import Metric, Unit
from pytest_nsys.analysis.table import Labelled, NothingSelected, Selector, select
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.cli.options import MeasureOptions, measuring
from pytest_nsys.cli.output import about_windows, json_window, print_answer
from pytest_nsys.cli.selecting import check_dimensions, selectors_of, where_option
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.model import Label, Note, label_words
from pytest_nsys.gates.absence import absences
from pytest_nsys.library import MetricRow, metric_of
from pytest_nsys.reports.tables import CellKind, Column, Measure, Row, json_value


@dataclass
class Found:
    """The selected rows by metric, and what is to be said of the rest."""

    rows: list[MetricRow] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


@click.command()
@click.argument("names", metavar="METRIC…", nargs=-1, required=True)
@click.option(
    "--trace",
    "traces",
    multiple=True,
    required=True,
    help="A capture: file, folder or glob. Repeated: values are medians over the captures.",
)
@where_option
@measuring()
def rows(asked: MeasureOptions, names: tuple[str, ...], traces: tuple[str, ...], where: tuple[str, ...]) -> None:
    """The rows of metrics."""
    metrics = [metric_of(name) for name in dict.fromkeys(names)]
    selectors = selectors_of(where)
    with asked.captures(traces, metrics=[metric.name for metric in metrics]) as (captures, spec):
        ranks = frozenset(asked.chosen(captures.runs[0].ranks))
        _check_dimensions(captures, metrics, selectors)
        found = _find(captures, metrics, spec, ranks, selectors)
        notes = [Note(str(spec)), *captures.notes(spec, *metrics), *(Note(text, True) for text in found.absent)]
        definition = max(metric.definition for metric in metrics)
        about = about_windows(traces, spec, list(_windows(captures, spec, ranks)), definition)
        columns, cells = _columns(metrics, found)
        json_rows = [_json_row(row) for row in found.rows]
        print_answer(asked.format, columns, cells, about, notes, json_rows=json_rows)


def _check_dimensions(captures: Captures, metrics: Sequence[Metric], selectors: Mapping[str, Selector]) -> None:
    axes = sorted({axis for coordinates in captures.mesh.coordinates.values() for axis in coordinates})
    for metric in metrics:
        check_dimensions(metric.name, metric.dimensions, axes, selectors)


def _find(
    captures: Captures,
    metrics: Sequence[Metric],
    spec: WindowSpec,
    ranks: frozenset[int],
    selectors: Mapping[str, Selector],
) -> Found:
    """The rows of every metric. Raises NothingMeasured where none of them has one."""
    found = Found()
    captures.refuse_twins(spec)
    for metric in metrics:
        table = captures.rows(metric, spec, ranks)
        found.absent += [_missing(metric, labels, why) for labels, why in table.missing]
        try:
            selected: list[Labelled] = select(table, selectors)
        except NothingSelected as nothing:
            found.absent.append(f"{metric.name}: {nothing}")
        else:
            lost = [str(each) for each in absences(table, selectors) if each.rank in ranks]
            found.absent += [f"{metric.name}: {each}" for each in lost]
            found.rows += [MetricRow(metric.name, labels, value, metric.unit) for labels, value in selected]
    if not found.rows:
        said = [*found.absent, *(note.text for note in captures.notes(spec) if "communication streams" in note.text)]
        raise NothingMeasured(f"no rows under {spec}: {'; '.join(said)}")
    return found


def _missing(metric: Metric, labels: Sequence[Label], why: str) -> str:
    place = label_words(zip(metric.dimensions, labels, strict=True))
    return f"{metric.name}: {place}: {why}"


def _windows(captures: Captures, spec: WindowSpec, ranks: frozenset[int]) -> Iterator[dict[str, object]]:
    for number, capture in enumerate(captures.runs):
        for _, windows in sorted(capture.measured(spec).filled(ranks).items()):
            for w in windows:
                yield {**json_window(w.rank, w.window, (w.start_ns, w.end_ns)), "capture": number}


def _measure(row: MetricRow) -> Measure:
    return Measure(row.value, CellKind.RATIO if row.unit is Unit.RATIO else CellKind.NUMBER)


def _json_row(row: MetricRow) -> dict[str, object]:
    return {**row.labels, row.metric: json_value(_measure(row), CellKind.NUMBER)}


def _columns(metrics: Sequence[Metric], found: Found) -> tuple[list[Column], list[Row]]:
    """Metric, every dimension that one of the metrics has, value, unit."""
    dimensions = list(dict.fromkeys(d for metric in metrics for d in metric.dimensions))
    columns = [Column("metric"), *map(Column, dimensions), Column("value", CellKind.NUMBER), Column("unit")]
    cells: list[Row] = [
        (row.metric, *(row.labels.get(d) for d in dimensions), _measure(row), str(row.unit)) for row in found.rows
    ]
    return columns, cells
