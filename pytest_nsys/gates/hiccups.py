"""Which capture is a hiccup, by the rows that a gate file judges and the tolerances that it gives them?

It is of captures of this run, of the other side's, and of accepted runs alike: where any row of time says so, the whole
capture is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.outliers import FEWEST_FOR_HICCUP, find_hiccup
from pytest_nsys.analysis.table import MetricTable, NothingSelected
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.exact import exact, median
from pytest_nsys.core.model import Value
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
    if len(captures.runs) < FEWEST_FOR_HICCUP or captures.left_out is not None:
        return captures

    def measure(assertion: Assertion) -> Sequence[MetricTable]:
        return captures.each(assertion.measures, spec_for(captures.convention, assertion))

    hiccup = find_judged_hiccup(gate.assertions, captures, measure)
    return captures if hiccup is None else captures.leave_out(*hiccup)


def find_judged_hiccup(
    assertions: Iterable[Assertion], captures: Captures, tables_of: Callable[[Assertion], Sequence[MetricTable]]
) -> Hiccup | None:
    """Return the hiccup among captures, of which ``tables_of`` has what an assertion measures, a table each; None where
    there is none. ``captures`` say what a sentence means. An assertion that has no rows says nothing here.
    """
    rows: list[dict[_Judged, Value]] = []
    tolerances: dict[_Judged, Value] = {}
    for assertion in assertions:
        with suppress(NsysError, NothingSelected):  # the verdict says why
            known = settled(assertion, captures)
            if known.judged.unit != TIME:
                continue
            what = " ".join([*(step.word for step in reversed(known.aggregates)), known.metric])
            spec = spec_for(captures.convention, known)
            each = [
                {_Judged(what, spec, key): value for key, value in folded(table, known).items()}
                for table in tables_of(known)
            ]
            rows = rows or [{} for _ in each]
            for own, values in zip(rows, each, strict=True):
                own.update(values)
            for row in each[0]:
                tolerance = _tolerance_of(known, [values[row] for values in each if row in values])
                if tolerance is not None:  # of two sentences on one row the stricter counts
                    tolerances[row] = min(tolerance, tolerances.get(row, tolerance))
    found = find_hiccup(rows, tolerances)
    if found is None:
        return None
    return Hiccup(found.capture, found.describe(f"{place_words(dict(found.key.row))} {found.key.what}".strip(), TIME))


class _Judged(NamedTuple):
    """A row as a sentence judges it: the metric with its aggregates, the window, and the row's labels."""

    what: str
    spec: WindowSpec
    row: RowKey


def _tolerance_of(assertion: Assertion, values: Sequence[Value]) -> Value | None:
    """How far a row with these values may be off; None where the assertion does not say."""
    limit = assertion.require.limit
    if not isinstance(limit, FromBaseline) or limit.tolerance is None:
        return None
    return exact(limit.tolerance.amount(median(values), TIME))
