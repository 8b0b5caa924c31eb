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
from pytest_nsys.analysis.metrics.names import FIRST_GATE_QUESTIONS, format_example, format_spoken_name
from pytest_nsys.analysis.metrics.registry import (
    MEASURED_WORD,
    METRICS,
    SCOPE_METRICS,
    SCOPE_TIME,
    Metric,
    find_metric,
)
from pytest_nsys.analysis.metrics.table import LabelledValue, NothingSelected, Selector, select_rows
from pytest_nsys.analysis.windows.window_selection import OUTSIDE_TRACE_SPEC, WindowSpec
from pytest_nsys.cli.options import (
    MeasureOptions,
    add_measure_options,
    build_json_header,
    build_json_window,
    check_dimensions,
    format_option,
    make_measurements_option,
    parse_selectors,
    print_answer,
    where_option,
)
from pytest_nsys.cli.terminal_text import echo
from pytest_nsys.core.errors import NothingMeasured, UsageMistake
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Note
from pytest_nsys.core.scopes import ScopeKind
from pytest_nsys.core.text_format import format_labels
from pytest_nsys.core.units import find_stored_unit, to_plain_number
from pytest_nsys.gates.selection import find_absent_ranks
from pytest_nsys.library import MetricRow, look_up_metric
from pytest_nsys.reports.tables.formats import (
    CellKind,
    Column,
    Format,
    Measure,
    Row,
    Table,
    make_number_column,
    make_text_columns,
)
from pytest_nsys.traces.sidecars.measurements import find_files_by_capture, read_measurements


@click.command()
@click.argument("words", metavar="METRIC… TRACES…", nargs=-1, required=True)
@click.option(
    *("--trace", "named"),
    metavar="PATH",
    multiple=True,
    help="A capture whose path reads like a metric (repeatable).",
)
@make_measurements_option("--measurements", "trace")
@where_option
@add_measure_options()
def rows(
    measure_options: MeasureOptions,
    words: tuple[str, ...],
    named: tuple[str, ...],
    measurements: tuple[str, ...],
    where: tuple[str, ...],
) -> None:
    """Print the rows of metrics.

    `pytest-nsys metrics` lists them. Each of TRACES (a file, folder or glob) is a capture; values are medians over
    captures. Files of different ranks are one run. "measured NAME" comes from --measurements, with or without traces.
    """
    names = [word for word in words if find_metric(word) is not None or not _looks_like_path(word)]
    _check_measured_names(names, measurements)
    metrics = [look_up_metric(name) for name in dict.fromkeys(names)]
    traces = (*(word for word in words if word not in names), *named)
    needs_no_trace = bool(measurements) and all(metric.is_outside_trace for metric in metrics)
    if not metrics or not (traces or needs_no_trace):
        lacking_argument = "metric" if not metrics else "trace"
        raise UsageMistake(
            f"no {lacking_argument}: pytest-nsys rows METRIC… TRACES…; `pytest-nsys metrics` lists the metrics"
        )
    selectors = parse_selectors(where)
    trace_metrics = [metric.name for metric in metrics if not metric.is_outside_trace]
    with measure_options.open_captures(traces, metrics=trace_metrics, measurements=measurements) as (captures, spec):
        metrics = [captures.resolve_metric(metric.name) for metric in metrics]
        spec = spec if trace_metrics else OUTSIDE_TRACE_SPEC
        ranks = frozenset(measure_options.select_ranks(captures.runs[0].ranks))
        axes = sorted({axis for coordinates in captures.mesh.coordinates.values() for axis in coordinates})
        for metric in metrics:
            check_dimensions(metric.name, metric.dimensions, axes, selectors)
        metric_rows, problems = _select_rows(captures, metrics, spec, ranks, selectors)
        notes = [
            *measure_options.notes,
            Note(str(spec)),
            *captures.list_notes(spec, *metrics),
            *(Note(text, True) for text in problems),
        ]
        definition = max(metric.definition for metric in metrics)
        header = build_json_header(
            traces or measurements, spec, list(_list_json_windows(captures, spec, ranks)), definition
        )
        table = _build_rows_table(metrics, metric_rows)
        json_rows = [{**row.labels, row.metric: to_plain_number(row.value, row.unit)} for row in metric_rows]
        print_answer(measure_options.format, table, header, notes, json_rows=json_rows)


def _check_measured_names(names: Iterable[str], files: Sequence[str]) -> None:
    """Raise UsageMistake for the name of a measurement without the word ``measured`` before it."""
    unknown = [name for name in names if find_metric(name) is None]
    if not unknown or not files:
        return
    measured_names = {
        measurement.metric
        for capture_files in find_files_by_capture(files, Path())
        for file in capture_files
        for measurement in read_measurements(file)
    }
    if name := next((name for name in unknown if name in measured_names), None):
        raise UsageMistake(f"'{name}' is a measurement: write {shlex.quote(f'{MEASURED_WORD} {name}')}")


def _looks_like_path(word: str) -> bool:
    """Return whether a word that is not a metric is a trace: it exists, or looks like a path."""
    return not word or any(character in word for character in "/.*?[~") or Path(word).exists()


def _select_rows(
    captures: Captures,
    metrics: Sequence[Metric],
    spec: WindowSpec,
    ranks: frozenset[int],
    selectors: Mapping[str, Selector],
) -> tuple[list[MetricRow], list[str]]:
    """Return the rows of every metric, and a line for each missing row. Raises NothingMeasured if there is no row."""
    rows: list[MetricRow] = []
    problems: list[str] = []
    for metric in metrics:
        table = captures.measure_rows(
            metric, OUTSIDE_TRACE_SPEC if metric.is_outside_trace else spec, ranks if captures.paths else None
        )
        for labels, reason in table.missing:
            problems.append(f"{metric.name}: {format_labels(zip(metric.dimensions, labels, strict=True))}: {reason}")
        try:
            selected: list[LabelledValue] = select_rows(table, selectors)
        except NothingSelected as error:
            problems.append(f"{metric.name}: {error}")
        else:
            missing_rows = (
                missing_row
                for missing_row in find_absent_ranks(table, selectors)
                if missing_row.rank in ranks or not captures.paths
            )
            problems += [f"{metric.name}: {missing_row}" for missing_row in missing_rows]
            rows += [MetricRow(metric.name, labels, value, find_stored_unit(metric.unit)) for labels, value in selected]
    if not rows:
        raise NothingMeasured(f"no rows under {spec}: {'; '.join(problems)}")
    return rows, problems


def _list_json_windows(captures: Captures, spec: WindowSpec, ranks: frozenset[int]) -> Iterator[dict[str, object]]:
    """Yield each measured window for JSON, with the number of its capture."""
    for index, capture in enumerate(() if spec.is_outside_trace else captures.runs):
        for _, windows in sorted(capture.load_windows(spec).require_filled_windows(ranks).items()):
            for window in windows:
                yield {
                    **build_json_window(window.rank, window.window, (window.start_ns, window.end_ns)),
                    "capture": index,
                }


def _build_rows_table(metrics: Sequence[Metric], rows: Sequence[MetricRow]) -> Table:
    """Return a table with the columns metric, all dimensions of the metrics, value and unit."""
    dimensions = list(dict.fromkeys(dimension for metric in metrics for dimension in metric.dimensions))
    units = {metric.name: metric.unit for metric in metrics}
    columns = [Column("metric"), *map(Column, dimensions), make_number_column("value"), Column("unit", CellKind.UNIT)]
    cells: list[Row] = []
    for row in rows:
        value, unit = Measure(row.value, units[row.metric]), str(units[row.metric])
        cells.append((row.metric, *(row.labels.get(dimension) for dimension in dimensions), value, unit))
    return Table(columns, cells)


METRIC_COLUMNS = (
    *make_text_columns("subject", "sentence", "name", "unit", "better"),
    *(Column("dimensions", CellKind.LIST), Column("definition", CellKind.NUMBER), Column("summary")),
)
# The names of a subject are wrapped at this width.
NAMES_WIDTH = 100


@click.command()
@click.option("--all", "every", is_flag=True, help="Every metric by subject, with all that is known of it.")
@format_option
def metrics(every: bool, format: Format) -> None:
    """List the metrics: ten for a first gate, and the names of the rest.

    Each has a sentence to write. JSON and CSV have all of every metric.
    """
    if every or format in (Format.JSON, Format.CSV):
        listed_metrics = [*METRICS.values(), SCOPE_METRICS[SCOPE_TIME]]
        echo(Table(METRIC_COLUMNS, list(map(_build_metric_row, listed_metrics))).render(format), nl=False)
        return
    first_metrics = [(format_example(METRICS[name]), question) for name, question in FIRST_GATE_QUESTIONS.items()]
    print_answer(
        format, Table([*make_text_columns("write", "to answer")], first_metrics), lines_below=_list_other_metrics()
    )


def _build_metric_row(metric: Metric) -> Row:
    better, summary = metric.better and str(metric.better), metric.summary.replace("``", "")
    name_cells = (metric.subject, format_example(metric), metric.name, str(metric.unit), better)
    return (*name_cells, metric.dimensions, metric.definition, summary)


def _list_other_metrics() -> Iterator[str]:
    """Yield the names of the metrics that are not in the first table, by subject, and how to see more."""
    for subject, subject_metrics in group_by_key((metric.subject, metric) for metric in METRICS.values()).items():
        names = ", ".join(
            format_spoken_name(metric) for metric in subject_metrics if metric.name not in FIRST_GATE_QUESTIONS
        )
        yield from textwrap.wrap(f"{subject}: {names}", NAMES_WIDTH, subsequent_indent="  ")
    example = format_example(SCOPE_METRICS[SCOPE_TIME])
    scope_line = f"program: time, compute, exposed of a {', '.join(ScopeKind)}, as in {example}"
    yield from textwrap.wrap(scope_line, NAMES_WIDTH, subsequent_indent="  ")
    yield ""
    yield "--all says what each is; pytest-nsys rows METRIC TRACE has its values"
