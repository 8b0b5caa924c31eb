"""What does a refresh change in the stored baselines, and how noisy are these?

The rows that change come worst first, each with its change. A calibration says of each stored row how noisy it is, and
which tolerance is tighter than the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.metrics.table import label_key, row_key
from pytest_nsys.core.exact import median
from pytest_nsys.core.kernel_names import in_the_middle
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import change_words, distance_words, format_apart, format_value
from pytest_nsys.core.words import counted, place_words, printable, typed
from pytest_nsys.gates.judgement import describe_noise, judge
from pytest_nsys.gates.model import Assertion, FromBaseline, GateFile, JudgedRow
from pytest_nsys.gates.noise import deviation
from pytest_nsys.gates.settling import settled
from pytest_nsys.reports.tables.formats import CellKind, Column, Format, Row, Table
from pytest_nsys.stored.baselines.baseline_file import Baseline, StoredSeries, accepted_runs, series_for, spelled
from pytest_nsys.stored.baselines.changes import RowChange
from pytest_nsys.verdicts.refresh import Written

SHOWN_ROWS = 10


def worst_first(rows: Iterable[RowChange], baseline: Baseline) -> list[RowChange]:
    """Sort rows by how bad their change is.

    First come those that are gone, then those that may be worse now, by how much in parts of the old value, then new
    ones.
    """

    def make_sort_key(row: RowChange) -> tuple[object, ...]:
        labels = [(dimension, *label_key(label)) for dimension, label in row.labels.items()]
        if row.old is None or row.new is None:
            return (2 if row.old is None else 0, Fraction(0), row.series, labels)
        return (1, *_looser(baseline, row, row.old, row.new), row.series, labels)

    return sorted(rows, key=make_sort_key)


def _looser(baseline: Baseline, row: RowChange, old: Value, new: Value) -> tuple[object, ...]:
    """Return a sort key that puts first what lets a gate pass that did not before."""
    series = baseline.series.get(row.series)
    better = None if series is None else series.better
    change = Fraction(new) - old
    worse = abs(change) if better is None else change if str(better) == "lower" else -change
    shares = worse / abs(Fraction(old)) if old else worse
    # A change from 0 is beyond any share.
    return (-(worse > 0), -(not old) if worse > 0 else 0, -shares)


def change_texts(row: RowChange) -> tuple[str, str]:
    """Format the old and the new value, with as many digits as tell them apart; a missing one is empty."""
    if row.old is not None and row.new is not None:
        return format_apart(row.old, row.new, row.unit)
    old_text, new_text = ("" if value is None else format_value(value, row.unit) for value in (row.old, row.new))
    return old_text, new_text


LONGEST_WHERE = 80  # so that old and new value stand in the line, too
"""How many characters the labels of a row take at most, as a kernel by its name."""


def _row_words(row: RowChange) -> str:
    """Format the change of a row: ``exposed_ns rank 1 stage4_f: 200 us → 350 us (+75%)``."""
    row_text = in_the_middle(printable(place_words(row.labels), 10_000), LONGEST_WHERE)
    row_text = f"{row.series.metric} {row_text}".rstrip()
    old_text, new_text = change_texts(row)
    change = f" ({change_words(row.new, row.old, row.unit)})" if old_text and new_text else ""
    return printable(f"{row_text}: {old_text or 'new'} → {new_text or 'gone'}{change}")


def written_lines(written: Written, shown: Callable[[Path], str], *, folded: bool) -> list[str]:
    """Render a line for each row that a refresh changed; folded, for the ten that let most pass.

    ``format_path`` gives a path as a person types it.
    """
    rows = written.changes
    # A line that counts one more row would be as long as that row.
    if not folded or len(rows) <= SHOWN_ROWS + 1:
        return [*map(_row_words, rows)]
    worst_rows = worst_first(rows, written.new)
    list_command = f"pytest-nsys baseline show {typed([shown(written.path.parent)])} lists them"
    return [
        *map(_row_words, worst_rows[:SHOWN_ROWS]),
        f"… and {counted(len(rows) - SHOWN_ROWS, 'more row')} ({list_command})",
    ]


COLUMNS = (Column("row"), Column("median"), Column("s0 / median", CellKind.RATIO), Column("s0"))


def noise_lines(gate: GateFile, stored: Baseline, captures: Captures) -> list[str]:
    """Render a table of the noise of each calibrated series, and a line for each assertion that reads it."""
    lines = []
    for sid, series in sorted(stored.series.items()):
        readers = [a for a in gate.assertions if a.reads_stored and series_for(gate.resolved_convention, a) == sid]
        if not series.calibration or not readers:
            continue
        lines.append(f"  noise of {spelled(sid)} over {counted(len(series.calibration_runs), 'trace')}")
        lines += [
            f"    {line}".rstrip() for line in Table(COLUMNS, [*_noise_rows(series)]).render(Format.TABLE).splitlines()
        ]
        lines += [f"    {_of_tolerance(settled(reader, captures), series, captures)}" for reader in readers]
    return lines


def _noise_rows(series: StoredSeries) -> Iterator[Row]:
    for labels in sorted(series.calibration, key=row_key):
        values = series.calibration[labels]
        row_median, spread = median(values), deviation(values)
        share = Fraction(spread) / abs(Fraction(row_median)) if row_median else None
        row_text = place_words(zip(series.dimensions, labels, strict=True))
        yield row_text, format_value(row_median, series.unit), share, distance_words(spread, series.unit)


def _of_tolerance(reader: Assertion, series: StoredSeries, captures: Captures) -> str:
    """Describe whether the tolerance of an assertion stands above the bound of the noise in every row."""
    metric, unit = reader.measures, reader.judged.unit
    limit = reader.require.limit
    assert isinstance(limit, FromBaseline)
    if limit.tolerance is None:
        return f"{reader.full_name}: no tolerance, so noise does not count"
    rows = list(_judged(reader, metric, series, captures))
    widest = max(rows, key=lambda row: Fraction(row.noise or 0), default=None)
    if widest is None:
        return f"{reader.full_name}: the noise of what it judges is not measured"
    largest_noise = distance_words(widest.noise or 0, unit)
    if limit.tolerance.noise:
        return f"{reader.full_name}: the noise is the tolerance, up to {largest_noise}{_place(widest)}"
    if doubt := describe_noise(rows, unit):
        return f"{reader.full_name}: warning: {doubt}"
    return f"{reader.full_name}: the tolerance holds the noise, which is up to {largest_noise}"


def _judged(reader: Assertion, metric: Metric, series: StoredSeries, captures: Captures) -> Iterator[JudgedRow]:
    """Yield the rows of the assertion that have noise, judged with its tolerance."""
    reference = accepted_runs(series, partial(captures.stored, metric))
    # Any run would do: the verdict does not matter here, only the tolerance and the noise.
    for row in judge(reader, reference.runs[-1], reference).rows:
        if row.noise is not None:
            yield row


def _place(row: JudgedRow) -> str:
    labels_text = printable(place_words(row.labels))
    return f" ({labels_text})" if labels_text else ""
