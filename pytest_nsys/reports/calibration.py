"""What does a calibration say: how noisy is each stored row, and which tolerance is tighter than the noise?"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS, Metric
from pytest_nsys.analysis.table import label_key
from pytest_nsys.core.exact import median
from pytest_nsys.core.model import Value, counted, label_words, printable
from pytest_nsys.core.units import format_value
from pytest_nsys.gates.assertion import Assertion, FromBaseline, GateFile
from pytest_nsys.gates.judgement import judge, judged_unit
from pytest_nsys.gates.noise import deviation
from pytest_nsys.gates.verdict import JudgedRow
from pytest_nsys.reports.tables import CellKind, Column, as_table
from pytest_nsys.stored.baselines.baseline_file import Baseline, RowLabels, Series, accepted_runs, series_for, spelled

COLUMNS = (Column("row"), Column("median"), Column("s0 / median", CellKind.RATIO), Column("s0"))


def noise_lines(gate: GateFile, stored: Baseline, captures: Captures) -> list[str]:
    """A table of the noise of each calibrated series, and a line for each assertion that reads it."""
    lines = []
    for sid, series in sorted(stored.series.items()):
        readers = [a for a in gate.assertions if a.reads_stored and series_for(gate, a) == sid]
        if not series.calibration or not readers:
            continue
        lines.append(f"  noise of {spelled(sid)} over {counted(len(series.calibration_runs), 'trace')}")
        lines += [f"    {line}".rstrip() for line in _table(series).splitlines()]
        lines += [f"    {_of_tolerance(reader, series, captures)}" for reader in readers]
    return lines


def _table(series: Series) -> str:
    rows = []
    for labels in sorted(series.calibration, key=lambda row: [label_key(label) for label in row]):
        values = series.calibration[labels]
        middle, spread = median(values), deviation(values)
        share = Fraction(spread) / abs(Fraction(middle)) if middle else None
        rows.append((_named(series, labels), format_value(middle, series.unit), share, _amount(spread, series.unit)))
    return as_table(COLUMNS, rows)


def _named(series: Series, labels: RowLabels) -> str:
    return label_words(zip(series.dimensions, labels, strict=True))


def _amount(value: Value, unit: str) -> str:
    """A distance: of ratios in percentage points."""
    text = format_value(value, unit)
    return text.removesuffix("%") + " pp" if unit == "%" else text


def _of_tolerance(reader: Assertion, series: Series, captures: Captures) -> str:
    """Whether the tolerance of an assertion stands above the bound of the noise in every row."""
    metric, unit = METRICS[reader.metric], judged_unit(reader)
    limit = reader.require.limit
    assert isinstance(limit, FromBaseline)
    if limit.tolerance is None:
        return f"{reader.name}: no tolerance, the noise plays no part"
    rows = list(_judged(reader, metric, series, captures))
    widest = max(rows, key=lambda row: Fraction(row.noise or 0), default=None)
    if widest is None:
        return f"{reader.name}: the noise of what it judges is not measured"
    if limit.tolerance.noise:
        return f"{reader.name}: the noise is the tolerance, up to {_amount(widest.noise or 0, unit)}{_place(widest)}"
    tighter = [row for row in rows if (row.noise or 0) > (row.tolerance or 0)]
    if not tighter:
        return f"{reader.name}: the tolerance holds the noise, which is up to {_amount(widest.noise or 0, unit)}"
    worst = max(tighter, key=lambda row: Fraction(row.noise or 0) - (row.tolerance or 0))
    return (
        f"{reader.name}: warning: the tolerance is tighter than the noise in {len(tighter)} of "
        f"{counted(len(rows), 'row')}: {_amount(worst.tolerance or 0, unit)} < "
        f"{_amount(worst.noise or 0, unit)}{_place(worst)}"
    )


def _judged(reader: Assertion, metric: Metric, series: Series, captures: Captures) -> Iterator[JudgedRow]:
    """The rows of the assertion with tolerance and noise; what they are held against themselves does not matter."""
    reference = accepted_runs(series, partial(captures.stored, metric))
    for row in judge(reader, reference.runs[-1], reference).rows:
        if row.noise is not None:
            yield row


def _place(row: JudgedRow) -> str:
    where = printable(label_words(row.labels))
    return f" ({where})" if where else ""
