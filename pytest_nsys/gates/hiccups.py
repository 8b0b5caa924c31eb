"""Which capture is a hiccup, by the rows that a gate file judges and the tolerances that it gives them?

It is of captures of this run, of the other side's, and of accepted runs alike: where any row of time says so, the whole
capture is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.captures.outliers import FEWEST_FOR_HICCUP, find_hiccup
from pytest_nsys.analysis.metrics.table import MetricTable, NothingSelected
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.exact import exact, median
from pytest_nsys.core.model import KernelsMode, Span, Value
from pytest_nsys.core.units import TIME
from pytest_nsys.core.words import place_words
from pytest_nsys.gates.judgement import RowKey, folded
from pytest_nsys.gates.model import Assertion, FromBaseline, GateFile, spec_for
from pytest_nsys.gates.settling import settled


class Hiccup(NamedTuple):
    """A capture that is a hiccup, by its place, and the row that says so in words."""

    place: int
    why: str


def leave_out_hiccup(captures: Captures, gate: GateFile) -> Captures:
    """Return the captures on which the gate file is judged: all, or of five or more those without a hiccup."""
    if captures.taken < FEWEST_FOR_HICCUP or captures.left_out is not None:
        return captures
    measured: list[tuple[Assertion, Sequence[MetricTable]]] = []
    for assertion in gate.assertions:
        with suppress(NsysError):  # the verdict says why
            known = settled(assertion, captures)
            if known.judged.unit == TIME:
                measured.append((known, captures.each(known.measures, spec_for(captures.convention, known))))
    hiccup = find_judged_hiccup(measured)
    return captures if hiccup is None else captures.leave_out(*hiccup)


def find_judged_hiccup(measured: Iterable[tuple[Assertion, Sequence[MetricTable]]]) -> Hiccup | None:
    """Return the hiccup among captures; None where there is none.

    ``measured`` is each assertion, as it is judged, with what it measures of every capture.
    """
    rows: list[dict[_Judged, Value]] = []
    tolerances: dict[_Judged, Value] = {}
    for assertion, tables in measured:
        if assertion.judged.unit != TIME or len(tables) < FEWEST_FOR_HICCUP:
            continue
        with suppress(NothingSelected):  # the verdict says why
            what = " ".join([*(step.word for step in reversed(assertion.aggregates)), assertion.metric])
            window = (assertion.window, assertion.span, assertion.kernels, assertion.kind)
            each = [
                {_Judged(what, window, key): value for key, value in folded(table, assertion).items()}
                for table in tables
            ]
            rows = rows or [{} for _ in each]
            for own, values in zip(rows, each, strict=True):
                own.update(values)
            for row in each[0]:
                tolerance = _tolerance_of(assertion, [values[row] for values in each if row in values])
                if tolerance is not None:  # of two sentences on one row the stricter counts
                    tolerances[row] = min(tolerance, tolerances.get(row, tolerance))
    found = find_hiccup(rows, tolerances)
    if found is None:
        return None
    return Hiccup(found.capture, found.describe(f"{place_words(dict(found.key.row))} {found.key.what}".strip(), TIME))


class _Judged(NamedTuple):
    """A row as a sentence judges it: the metric with its aggregates, the window, and the row's labels."""

    what: str
    window: tuple[str, Span | None, KernelsMode | None, str | None]
    row: RowKey


def _tolerance_of(assertion: Assertion, values: Sequence[Value]) -> Value | None:
    """How far a row with these values may be off; None where the assertion does not say."""
    limit = assertion.require.limit
    if not isinstance(limit, FromBaseline) or limit.tolerance is None:
        return None
    return exact(limit.tolerance.amount(median(values), TIME))
