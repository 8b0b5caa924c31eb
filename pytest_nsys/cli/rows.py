"""How does a command print the values of any metric, exactly as a gate would see them? ``metrics`` lists the
metrics.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.names import FIRST, example, spoken
from pytest_nsys.analysis.metrics.registry import MEASURED, METRICS, Metric, metric_called
from pytest_nsys.analysis.metrics.table import Labelled, NothingSelected, Selector, select
from pytest_nsys.analysis.windows.spans import OUTSIDE, WindowSpec
from pytest_nsys.cli.options import (
    MeasureOptions,
    about_windows,
    check_dimensions,
    format_option,
    json_window,
    measurements_option,
    measuring,
    print_answer,
    selectors_of,
    where_option,
)
from pytest_nsys.cli.saying import say
from pytest_nsys.core.errors import NothingMeasured, UsageMistake
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Note
from pytest_nsys.core.units import kept_in, plain
from pytest_nsys.core.words import place_words
from pytest_nsys.gates.selection import absences
from pytest_nsys.library import MetricRow, metric_of
from pytest_nsys.reports.tables.formats import CellKind, Column, Format, Measure, Row, Table, number, texts
from pytest_nsys.traces.measurements import measurements_of, read_measurements


@click.command()
@click.argument("words", metavar="METRIC… TRACES…", nargs=-1, required=True)
@click.option(
    *("--trace", "named"),
    metavar="PATH",
    multiple=True,
    help="A capture whose path reads like a metric (repeatable).",
)
@measurements_option("--measurements", "trace")
@where_option
@measuring()
def rows(
    asked: MeasureOptions,
    words: tuple[str, ...],
    named: tuple[str, ...],
    measurements: tuple[str, ...],
    where: tuple[str, ...],
) -> None:
    """Print the rows of metrics.

    `pytest-nsys metrics` lists them. Each of TRACES (a file, folder or glob) is a capture; values are medians over
    captures. Files of different ranks are one run. "measured NAME" comes from --measurements, with or without traces.
    """
    names = [word for word in words if word in METRICS or not _is_path(word)]
    _check_measured(names, measurements)
    metrics = [metric_of(name) for name in dict.fromkeys(names)]
    traces = (*(word for word in words if word not in names), *named)
    needs_no_trace = bool(measurements) and all(metric.outside for metric in metrics)
    if not metrics or not (traces or needs_no_trace):
        lacking_argument = "metric" if not metrics else "trace"
        raise UsageMistake(
            f"no {lacking_argument}: pytest-nsys rows METRIC… TRACES…; `pytest-nsys metrics` lists the metrics"
        )
    selectors = selectors_of(where)
    trace_metrics = [metric.name for metric in metrics if not metric.outside]
    with asked.captures(traces, metrics=trace_metrics, measurements=measurements) as (captures, spec):
        metrics = [captures.metric(metric.name) for metric in metrics]
        spec = spec if trace_metrics else OUTSIDE
        ranks = frozenset(asked.chosen(captures.runs[0].ranks))
        axes = sorted({axis for coordinates in captures.mesh.coordinates.values() for axis in coordinates})
        for metric in metrics:
            check_dimensions(metric.name, metric.dimensions, axes, selectors)
        metric_rows, problems = _selected(captures, metrics, spec, ranks, selectors)
        notes = [
            *asked.notes,
            Note(str(spec)),
            *captures.notes(spec, *metrics),
            *(Note(text, True) for text in problems),
        ]
        definition = max(metric.definition for metric in metrics)
        header = about_windows(traces or measurements, spec, list(_windows(captures, spec, ranks)), definition)
        table = _table(metrics, metric_rows)
        json_rows = [{**row.labels, row.metric: plain(row.value, row.unit)} for row in metric_rows]
        print_answer(asked.format, table, header, notes, json_rows=json_rows)


def _check_measured(names: Iterable[str], files: Sequence[str]) -> None:
    """Raise UsageMistake for the name of a measurement that lacks the word before it."""
    unknown = [name for name in names if metric_called(name) is None]
    if not unknown or not files:
        return
    measured_names = {
        measurement.metric
        for capture_files in measurements_of(files, Path())
        for file in capture_files
        for measurement in read_measurements(file)
    }
    if name := next((name for name in unknown if name in measured_names), None):
        raise UsageMistake(f"'{name}' is a measurement: write {shlex.quote(f'{MEASURED} {name}')}")


def _is_path(word: str) -> bool:
    """Return whether a word that is no metric means a trace: it is there, or looks like a path."""
    return not word or any(character in word for character in "/.*?[~") or Path(word).exists()


def _selected(
    captures: Captures,
    metrics: Sequence[Metric],
    spec: WindowSpec,
    ranks: frozenset[int],
    selectors: Mapping[str, Selector],
) -> tuple[list[MetricRow], list[str]]:
    """Return the rows of every metric, and a line for each that is missing. Raises NothingMeasured where there is no
    row.
    """
    rows: list[MetricRow] = []
    problems: list[str] = []
    for metric in metrics:
        table = captures.rows(metric, OUTSIDE if metric.outside else spec, ranks if captures.paths else None)
        for labels, reason in table.missing:
            problems.append(f"{metric.name}: {place_words(zip(metric.dimensions, labels, strict=True))}: {reason}")
        try:
            selected: list[Labelled] = select(table, selectors)
        except NothingSelected as error:
            problems.append(f"{metric.name}: {error}")
        else:
            missing_rows = (
                missing_row
                for missing_row in absences(table, selectors)
                if missing_row.rank in ranks or not captures.paths
            )
            problems += [f"{metric.name}: {missing_row}" for missing_row in missing_rows]
            rows += [MetricRow(metric.name, labels, value, kept_in(metric.unit)) for labels, value in selected]
    if not rows:
        raise NothingMeasured(f"no rows under {spec}: {'; '.join(problems)}")
    return rows, problems


def _windows(captures: Captures, spec: WindowSpec, ranks: frozenset[int]) -> Iterator[dict[str, object]]:
    """Yield each window that was measured as JSON has it, with the number of its capture."""
    for index, capture in enumerate(() if spec.outside else captures.runs):
        for _, windows in sorted(capture.measured(spec).filled(ranks).items()):
            for window in windows:
                yield {**json_window(window.rank, window.window, (window.start_ns, window.end_ns)), "capture": index}


def _table(metrics: Sequence[Metric], found: Sequence[MetricRow]) -> Table:
    """Return a table of metric, every dimension that one of the metrics has, value and unit."""
    dimensions = list(dict.fromkeys(dimension for metric in metrics for dimension in metric.dimensions))
    units = {metric.name: metric.unit for metric in metrics}
    columns = [Column("metric"), *map(Column, dimensions), number("value"), Column("unit", CellKind.UNIT)]
    cells: list[Row] = []
    for row in found:
        value, unit = Measure(row.value, units[row.metric]), str(units[row.metric])
        cells.append((row.metric, *(row.labels.get(dimension) for dimension in dimensions), value, unit))
    return Table(columns, cells)


COLUMNS = (
    *texts("subject", "sentence", "name", "unit", "better"),
    *(Column("dimensions", CellKind.LIST), Column("definition", CellKind.NUMBER), Column("summary")),
)
# Columns at which the names of a subject are wrapped.
WIDTH = 100


@click.command()
@click.option("--all", "every", is_flag=True, help="Every metric by subject, with all that is known of it.")
@format_option
def metrics(every: bool, format: Format) -> None:
    """List the metrics: ten for a first gate, and the names of the rest.

    Each has a sentence to write. JSON and CSV have all of every metric.
    """
    if every or format in (Format.JSON, Format.CSV):
        say(Table(COLUMNS, list(map(_known_of, METRICS.values()))).render(format), nl=False)
        return
    first_metrics = [(example(METRICS[name]), question) for name, question in FIRST.items()]
    print_answer(format, Table([*texts("write", "to answer")], first_metrics), below=_the_rest())


def _known_of(metric: Metric) -> Row:
    better, summary = metric.better and str(metric.better), metric.summary.replace("``", "")
    name_cells = (metric.subject, example(metric), metric.name, str(metric.unit), better)
    return (*name_cells, metric.dimensions, metric.definition, summary)


def _the_rest() -> Iterator[str]:
    """Yield the names of the metrics that the first table lacks, by subject, and how to see more."""
    for subject, subject_metrics in grouped((metric.subject, metric) for metric in METRICS.values()).items():
        names = ", ".join(spoken(metric) for metric in subject_metrics if metric.name not in FIRST)
        yield from textwrap.wrap(f"{subject}: {names}", WIDTH, subsequent_indent="  ")
    yield ""
    yield "--all says what each is; pytest-nsys rows METRIC TRACE has its values"
