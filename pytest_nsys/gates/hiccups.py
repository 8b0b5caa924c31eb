"""Which capture is a hiccup (an outlier), by the rows that a gate file judges and their tolerances?

Captures of this run, captures of the other side and accepted runs follow one rule: a capture in which any row of time
is an outlier is left out whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.captures.outliers import MIN_CAPTURES_FOR_HICCUP, find_hiccup
from pytest_nsys.analysis.metrics.table import MetricTable, NothingSelected
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.exact import median, simplify_fraction
from pytest_nsys.core.model import KernelsMode, Span, Value
from pytest_nsys.core.text_format import format_labels
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.assertion_resolution import resolve_assertion
from pytest_nsys.gates.judgement import RowKey, fold_table
from pytest_nsys.gates.model import Assertion, BaselineLimit, GateFile, resolve_window_spec


class Hiccup(NamedTuple):
    """Describes a capture that is a hiccup: its place among the captures, and the row that shows it."""

    capture_index: int
    reason: str


def leave_out_hiccup(captures: Captures, gate: GateFile) -> Captures:
    """Return the captures on which the gate file is judged: all, or if there are five or more, those that are no
    hiccup.
    """
    if captures.capture_count < MIN_CAPTURES_FOR_HICCUP or captures.omitted_capture is not None:
        return captures
    measured_tables: list[tuple[Assertion, Sequence[MetricTable]]] = []
    for assertion in gate.assertions:
        with suppress(NsysError):  # the verdict says why
            resolved_assertion = resolve_assertion(assertion, captures)
            if resolved_assertion.limit_target.unit == TIME:
                measured_tables.append(
                    (
                        resolved_assertion,
                        captures.measure_each_capture(
                            resolved_assertion.measured_metric,
                            resolve_window_spec(captures.convention, resolved_assertion),
                        ),
                    )
                )
    hiccup = find_judged_hiccup(measured_tables)
    return captures if hiccup is None else captures.omit_capture(*hiccup)


def find_judged_hiccup(measured_tables: Iterable[tuple[Assertion, Sequence[MetricTable]]]) -> Hiccup | None:
    """Return the hiccup among captures; None where there is none.

    ``measured_tables`` pairs each resolved assertion with its table of every capture.
    """
    rows: list[dict[_HiccupRow, Value]] = []
    tolerances: dict[_HiccupRow, Value] = {}
    for assertion, tables in measured_tables:
        if assertion.limit_target.unit != TIME or len(tables) < MIN_CAPTURES_FOR_HICCUP:
            continue
        with suppress(NothingSelected):  # the verdict says why
            subject = " ".join([*(step.word for step in reversed(assertion.aggregates)), assertion.metric])
            window = (assertion.window, assertion.span, assertion.kernels, assertion.kind)
            values_by_capture = [
                {_HiccupRow(subject, window, key): value for key, value in fold_table(table, assertion).items()}
                for table in tables
            ]
            rows = rows or [{} for _ in values_by_capture]
            for capture_rows, values in zip(rows, values_by_capture, strict=True):
                capture_rows.update(values)
            for row in values_by_capture[0]:
                tolerance = _find_row_tolerance(
                    assertion, [values[row] for values in values_by_capture if row in values]
                )
                if tolerance is not None:  # if two sentences judge one row, the stricter counts
                    tolerances[row] = min(tolerance, tolerances.get(row, tolerance))
    hiccup = find_hiccup(rows, tolerances)
    if hiccup is None:
        return None
    return Hiccup(
        hiccup.capture_index,
        hiccup.describe(f"{format_labels(dict(hiccup.key.row))} {hiccup.key.subject}".strip(), TIME),
    )


class _HiccupRow(NamedTuple):
    """Identifies a row as a sentence judges it: the metric with its aggregates, the window, and the row's labels."""

    subject: str
    window: tuple[str, Span | None, KernelsMode | None, str | None]
    row: RowKey


def _find_row_tolerance(assertion: Assertion, values: Sequence[Value]) -> Value | None:
    """Return how far a row with these values may be off, in ns; None if the assertion has no tolerance."""
    limit = assertion.requirement.limit
    if not isinstance(limit, BaselineLimit) or limit.tolerance is None:
        return None
    return simplify_fraction(limit.tolerance.compute_amount(median(values), TIME))
