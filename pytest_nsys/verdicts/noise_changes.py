"""Does a branch measure the noise of a stored baseline anew so that more passes?

What lies within the noise is *inconclusive*, which is no red: captures that lie wide apart let a row pass at any
multiple of its tolerance. So wider noise asks for less, as a wider tolerance does; it is told with the value that
passes now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial

from pytest_nsys.analysis.metrics import MEASURED, Better, Metric, measured
from pytest_nsys.analysis.table import NothingSelected, Table
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Row, Value
from pytest_nsys.core.numbers import distance_words, format_value
from pytest_nsys.core.words import counted, place_words, printable
from pytest_nsys.gates.gate_changes import GateChange
from pytest_nsys.gates.judgement import judge
from pytest_nsys.gates.loosening_rules import Change, ChangeKind
from pytest_nsys.gates.measured import settled_as
from pytest_nsys.gates.model import Assertion, FromBaseline, GateFile, JudgedRow, Severity
from pytest_nsys.stored.baselines.baseline_file import (
    Baseline,
    RowLabels,
    Series,
    SeriesId,
    accepted_runs,
    kept_by,
    series_for,
)


def wider_noise(gate: GateFile, old: Baseline, new: Baseline) -> list[GateChange]:
    """A change for each series whose noise lets more pass, with the row in which it grew most, and who reads it."""
    told = grouped(
        (change, assertion)
        for assertion in gate.assertions
        for sid in _read(gate, assertion, new)
        if (was := old.series.get(sid, new.series[sid])) != new.series[sid]
        and (change := _change(assertion, was, new.series[sid])) is not None
    )
    return [GateChange(change, tuple(each.name for each in readers)) for change, readers in told.items()]


def _read(gate: GateFile, assertion: Assertion, stored: Baseline) -> Iterator[SeriesId]:
    """The series whose noise lets values of the assertion pass; any of its metric where no convention is known."""
    limit, convention = assertion.require.limit, gate.convention or kept_by(stored)
    if not isinstance(limit, FromBaseline) or limit.history is not None or limit.tolerance is None:
        return
    if assertion.inconclusive is Severity.FAIL and not limit.tolerance.noise:
        return
    asked = series_for(convention, assertion) if convention is not None else None
    yield from (sid for sid in stored.series if asked in (None, sid) and sid.metric == assertion.measures.name)


def _change(assertion: Assertion, old: Series, new: Series) -> Change | None:
    before = _judged(assertion, old)
    wider = [
        (was, row)
        for key, row in _judged(assertion, new).items()
        if (was := before.get(key)) is not None and _noise(row) > max(_noise(was), row.tolerance or 0)
    ]
    if not wider:
        return None
    was, row = max(wider, key=lambda pair: Fraction(_noise(pair[1])) - _noise(pair[0]))
    where = f"{assertion.measures.name} {place_words(row.labels)}".rstrip()
    more = f" and {counted(len(wider) - 1, 'more row')}" if len(wider) > 1 else ""
    noise = "not measured" if was.noise is None else distance_words(was.noise, new.unit)
    lets_pass = f", which lets {format_value(row.limit, new.unit)} pass" if row.limit is not None else ""
    now = f"{distance_words(_noise(row), new.unit)}{lets_pass}"
    return Change(ChangeKind.LOOSENED, printable(f"noise of {where}{more}"), noise, now)


def _noise(row: JudgedRow) -> Value:
    return row.noise or 0


def _judged(assertion: Assertion, series: Series) -> Mapping[tuple[object, ...], JudgedRow]:
    """The rows of the newest accepted run by their labels, with tolerance and noise; their values do not matter.

    Where a rank is in the mesh is not stored: what the assertion selects or takes together by that is each row itself.
    """
    reference = accepted_runs(series, partial(_table, assertion.measures, series))
    if assertion.outside is not None:
        better = Better(series.better) if series.better else None
        name = assertion.measures.name.removeprefix(f"{MEASURED} ")
        with suppress(UsageMistake):  # said where it is judged
            assertion = settled_as(assertion, measured(name, series.unit, better, series.dimensions), ())
    for asked in (assertion, replace(assertion, where={}, aggregates=(), balance_across=None)):
        with suppress(NothingSelected):
            if rows := judge(asked, reference.runs[-1], reference).rows:
                return {tuple(row.labels.items()): row for row in rows}
    return {}


def _table(metric: Metric, series: Series, rows: Mapping[RowLabels, Value]) -> Table:
    found = [Row(labels, value) for labels, value in rows.items()]
    return Table(series.dimensions, found, {}, every_stage=metric.every_stage, patchy=True)
