"""What does a refresh change in the stored baselines, and how noisy are the baselines?

The rows that change come worst first, each with its change. A calibration shows the noise of each stored row, and which
tolerances are tighter than the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.metrics.table import make_label_key, make_labels_key
from pytest_nsys.core.exact import median
from pytest_nsys.core.kernel_names import shorten_middle
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_change, format_distance, format_distinctly, format_value
from pytest_nsys.core.text_format import format_count, format_labels, quote_command, sanitize_line
from pytest_nsys.gates.assertion_resolution import resolve_assertion
from pytest_nsys.gates.judgement import describe_noise, judge_rows
from pytest_nsys.gates.model import Assertion, BaselineLimit, GateFile, JudgedRow
from pytest_nsys.gates.noise import sample_deviation
from pytest_nsys.reports.tables.formats import CellKind, Column, Format, Row, Table
from pytest_nsys.stored.baselines.baseline_file import (
    Baseline,
    StoredSeries,
    build_assertion_series_id,
    build_reference,
    describe_series,
)
from pytest_nsys.stored.baselines.row_changes import RowChange
from pytest_nsys.verdicts.refresh import WrittenBaseline

MAX_CHANGED_ROWS = 10


def sort_row_changes(rows: Iterable[RowChange], baseline: Baseline) -> list[RowChange]:
    """Sort rows by how bad their change is.

    First come missing rows, then rows that may be worse now, by the change relative to the old value, then new rows.
    """

    def make_sort_key(row: RowChange) -> tuple[object, ...]:
        labels = [(dimension, *make_label_key(label)) for dimension, label in row.labels.items()]
        if row.old_value is None or row.new_value is None:
            return (2 if row.old_value is None else 0, Fraction(0), row.series, labels)
        return (1, *_measure_loosening(baseline, row, row.old_value, row.new_value), row.series, labels)

    return sorted(rows, key=make_sort_key)


def _measure_loosening(baseline: Baseline, row: RowChange, old: Value, new: Value) -> tuple[object, ...]:
    """Return a sort key that puts first the changes that loosen a gate most."""
    series = baseline.series.get(row.series)
    better = None if series is None else series.better
    change = Fraction(new) - old
    worse = abs(change) if better is None else change if str(better) == "lower" else -change
    shares = worse / abs(Fraction(old)) if old else worse
    # A change from 0 has no finite share.
    return (-(worse > 0), -(not old) if worse > 0 else 0, -shares)


def format_old_and_new(row: RowChange) -> tuple[str, str]:
    """Format the old and the new value, with enough digits to differ; a missing value is empty."""
    if row.old_value is not None and row.new_value is not None:
        return format_distinctly(row.old_value, row.new_value, row.unit)
    old_text, new_text = (
        "" if value is None else format_value(value, row.unit) for value in (row.old_value, row.new_value)
    )
    return old_text, new_text


MAX_LABELS_LENGTH = 80  # so that old and new value fit into the line
"""The most characters for the labels of a row, such as a kernel's name."""


def _format_row_change(row: RowChange) -> str:
    """Format the change of a row: ``exposed_ns rank 1 stage4_f: 200 us → 350 us (+75%)``."""
    row_text = shorten_middle(sanitize_line(format_labels(row.labels), 10_000), MAX_LABELS_LENGTH)
    row_text = f"{row.series.metric} {row_text}".rstrip()
    old_text, new_text = format_old_and_new(row)
    change = f" ({format_change(row.new_value, row.old_value, row.unit)})" if old_text and new_text else ""
    return sanitize_line(f"{row_text}: {old_text or 'new'} → {new_text or 'gone'}{change}")


def render_written_rows(
    written_baseline: WrittenBaseline, format_path: Callable[[Path], str], *, is_folded: bool
) -> list[str]:
    """Render a line for each row that a refresh changed; if ``is_folded``, only for the ten that loosen the gate most.

    ``format_path`` returns a path as a person would type it.
    """
    rows = written_baseline.changes
    # Instead of "1 more", show that row.
    if not is_folded or len(rows) <= MAX_CHANGED_ROWS + 1:
        return [*map(_format_row_change, rows)]
    worst_rows = sort_row_changes(rows, written_baseline.new)
    list_command = f"pytest-nsys baseline show {quote_command([format_path(written_baseline.path.parent)])} lists them"
    return [
        *map(_format_row_change, worst_rows[:MAX_CHANGED_ROWS]),
        f"… and {format_count(len(rows) - MAX_CHANGED_ROWS, 'more row')} ({list_command})",
    ]


NOISE_COLUMNS = (Column("row"), Column("median"), Column("s0 / median", CellKind.RATIO), Column("s0"))


def render_noise(gate: GateFile, baseline: Baseline, captures: Captures) -> list[str]:
    """Render a table of the noise of each calibrated series, and a line for each assertion that reads it."""
    lines = []
    for sid, series in sorted(baseline.series.items()):
        readers = [
            a
            for a in gate.assertions
            if a.reads_stored_baseline and build_assertion_series_id(gate.resolved_convention, a) == sid
        ]
        if not series.calibration or not readers:
            continue
        lines.append(
            f"  noise of {describe_series(sid)} over {format_count(len(series.calibration_by_trace), 'trace')}"
        )
        lines += [
            f"    {line}".rstrip()
            for line in Table(NOISE_COLUMNS, [*_list_noise_rows(series)]).render(Format.TABLE).splitlines()
        ]
        lines += [
            f"    {_describe_tolerance(resolve_assertion(reader, captures), series, captures)}" for reader in readers
        ]
    return lines


def _list_noise_rows(series: StoredSeries) -> Iterator[Row]:
    for labels in sorted(series.calibration, key=make_labels_key):
        values = series.calibration[labels]
        row_median, spread = median(values), sample_deviation(values)
        share = Fraction(spread) / abs(Fraction(row_median)) if row_median else None
        row_text = format_labels(zip(series.dimensions, labels, strict=True))
        yield row_text, format_value(row_median, series.unit), share, format_distance(spread, series.unit)


def _describe_tolerance(reader: Assertion, series: StoredSeries, captures: Captures) -> str:
    """Describe whether the tolerance of an assertion is above the noise bound in every row."""
    metric, unit = reader.measured_metric, reader.limit_target.unit
    limit = reader.requirement.limit
    assert isinstance(limit, BaselineLimit)
    if limit.tolerance is None:
        return f"{reader.full_name}: no tolerance, so noise does not count"
    rows = list(_judge_with_noise(reader, metric, series, captures))
    widest = max(rows, key=lambda row: Fraction(row.noise or 0), default=None)
    if widest is None:
        return f"{reader.full_name}: the noise of what it judges is not measured"
    largest_noise = format_distance(widest.noise or 0, unit)
    if limit.tolerance.noise_only:
        return f"{reader.full_name}: the noise is the tolerance, up to {largest_noise}{_format_place(widest)}"
    if doubt := describe_noise(rows, unit):
        return f"{reader.full_name}: warning: {doubt}"
    return f"{reader.full_name}: the tolerance holds the noise, which is up to {largest_noise}"


def _judge_with_noise(
    reader: Assertion, metric: Metric, series: StoredSeries, captures: Captures
) -> Iterator[JudgedRow]:
    """Yield those rows of the assertion that have a noise, judged with its tolerance."""
    reference = build_reference(series, partial(captures.build_stored_table, metric))
    # Any run would do: only the tolerance and the noise matter here, not the verdict.
    for row in judge_rows(reader, reference.runs[-1], reference).rows:
        if row.noise is not None:
            yield row


def _format_place(row: JudgedRow) -> str:
    labels_text = sanitize_line(format_labels(row.labels))
    return f" ({labels_text})" if labels_text else ""
