"""What judged a gate file at the merge base: to which of its baselines is a configuration held, and what of them does a
branch loosen?

A new configuration beside unchanged ones is new, as a new gate file is. One that took the place of others, or of the
file without a matrix, is held to their baselines of its own key: else a branch would be its own judge by a new name.

What lies within the noise is *inconclusive*, which is no red: captures that lie wide apart let a row pass at any
multiple of its tolerance. So wider noise asks for less, as a wider tolerance does; it is told with the value that
passes now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.analysis.metrics import MEASURED, Better, Metric, measured
from pytest_nsys.analysis.table import MetricTable, NothingSelected, count_unstaged
from pytest_nsys.core.errors import BaselineError, GateFileError, UsageMistake
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Row, Value
from pytest_nsys.core.numbers import distance_words, format_value
from pytest_nsys.core.words import counted, place_words, printable
from pytest_nsys.gates.comparability import differences, told
from pytest_nsys.gates.gate_changes import GateChange
from pytest_nsys.gates.gate_file import load_gate_file, loads_gate_file
from pytest_nsys.gates.judgement import judge
from pytest_nsys.gates.loosening_rules import ChangeKind, KeyChange
from pytest_nsys.gates.model import Assertion, FromBaseline, GateFile, JudgedRow, Severity
from pytest_nsys.gates.settling import settled_as
from pytest_nsys.stored.baselines.baseline_file import (
    Baseline,
    RowLabels,
    SeriesId,
    StoredSeries,
    accepted_runs,
    series_for,
)
from pytest_nsys.stored.baselines.store import BaselineStore, MergeBase

Key = Mapping[str, Any]


class Before(NamedTuple):
    """A configuration that is gone, or the file without one, and the keys of its baselines at the merge base."""

    gate: GateFile
    store: BaselineStore
    keys: Sequence[Key]


def gate_file_at(base: MergeBase) -> GateFile | None:
    """The gate file as it was; None where it was not there, or is of another version. Raises BaselineError."""
    text = base.snapshot.gate_file(base.gate)
    try:
        return loads_gate_file(text, path=base.gate) if text is not None else None
    except GateFileError:
        return None


def held_to(gate: GateFile, store: BaselineStore, key: Key) -> Before | None:
    """What a configuration took the place of, and is comparable with. None: it took nobody's place, or nobody can say
    whose. Raises BaselineError.
    """
    return _chosen(gate, key, _replaced(gate, store))


def then_and_now(gate: GateFile, store: BaselineStore) -> Iterator[tuple[Path, Baseline, Baseline]]:
    """Each baseline of a configuration in the work tree, and the one of the merge base whose place it takes: of one
    that replaced another configuration, the other one's. Raises BaselineError.
    """
    replaced = _replaced(gate, store)
    for path, now in store.here.all():
        if (before := _chosen(gate, now.key, replaced)) is None:
            with suppress(BaselineError):  # said where it is read
                if (then := store.at(path)) is not None:
                    yield path, then, now
        else:
            alike = (each for _, each in before.store.all() if not differences(now.key, each.key, gate.comparable_on))
            yield from ((path, then, now) for then in alike)


def not_held(path: Path, store_of: Callable[[GateFile], BaselineStore]) -> Iterator[KeyChange]:
    """The configurations of a gate file that took the place of others, and are their own judges."""
    try:
        configurations = load_gate_file(path).each
    except GateFileError:  # said where it is collected
        return
    for gate in configurations:
        store = store_of(gate)
        before = _replaced(gate, store)
        known = [key for one in before for key in one.keys]
        for _, own in store.here.all() if known else ():
            if _chosen(gate, own.key, before) is None:
                fields = min((differences(own.key, key, gate.comparable_on) for key in known), key=len)
                why = told(fields) or "several had its key"
                was = ", ".join(one.gate.configuration for one in before if one.gate.configuration) or "the file"
                yield KeyChange(
                    ChangeKind.LOOSENED, f"baseline [{gate.configuration}]", f"that of {was}", f"its own: {why}"
                )


def _replaced(gate: GateFile, store: BaselineStore) -> list[Before]:
    """What judged the file at the merge base and does so no more, where the configuration is new."""
    if store.base is None or store.base.is_as_it_was or (then := gate_file_at(store.base)) is None:
        return []
    before = {each.configuration: each for each in then.each}
    if gate.configuration in before:
        return []
    gone = {name: each for name, each in before.items() if name not in gate.names}
    stores = {name: store.of(name) for name in gone}
    return [Before(each, stores[name], [own.key for _, own in stores[name].all()]) for name, each in gone.items()]


def _chosen(gate: GateFile, key: Key, before: Sequence[Before]) -> Before | None:
    """The one of the same key; of several the one of the same trace."""
    alike = [one for one in before if any(not differences(key, each, gate.comparable_on) for each in one.keys)]
    same = [one for one in alike if one.gate.traces == gate.traces]
    return next((found[0] for found in (alike, same) if len(found) == 1), None)


def wider_noise(gate: GateFile, old: Baseline, new: Baseline) -> list[GateChange]:
    """A change for each series whose noise lets more pass, with the row in which it grew most, and who reads it."""
    told = grouped(
        (change, assertion)
        for assertion in gate.assertions
        for sid in _read(gate, assertion, new)
        if (was := old.series.get(sid, new.series[sid])) != new.series[sid]
        and (change := _change(assertion, was, new.series[sid])) is not None
    )
    return [GateChange(change, tuple(each.full_name for each in readers)) for change, readers in told.items()]


def _read(gate: GateFile, assertion: Assertion, stored: Baseline) -> Iterator[SeriesId]:
    """The series whose noise lets values of the assertion pass; any of its metric where no convention is known."""
    limit, convention = assertion.require.limit, gate.convention or stored.convention
    if not isinstance(limit, FromBaseline) or limit.history is not None or limit.tolerance is None:
        return
    if assertion.severity.inconclusive is Severity.FAIL and not limit.tolerance.noise:
        return
    asked = series_for(convention, assertion) if convention is not None else None
    yield from (sid for sid in stored.series if asked in (None, sid) and sid.metric == assertion.measures.name)


def _change(assertion: Assertion, old: StoredSeries, new: StoredSeries) -> KeyChange | None:
    before = _judged(assertion, old)
    wider = [
        (was, row)
        for key, row in _judged(assertion, new).items()
        if (was := before.get(key)) is not None and (row.reach or 0) > max(was.reach or 0, row.tolerance or 0)
    ]
    if not wider:
        return None
    was, row = max(wider, key=lambda pair: Fraction(_noise(pair[1])) - _noise(pair[0]))
    where = f"{assertion.measures.name} {place_words(row.labels)}".rstrip()
    more = f" and {counted(len(wider) - 1, 'more row')}" if len(wider) > 1 else ""
    noise = "not measured" if was.noise is None else distance_words(was.noise, new.unit)
    lets_pass = f", which lets {format_value(row.limit, new.unit)} pass" if row.limit is not None else ""
    now = f"{distance_words(_noise(row), new.unit)}{lets_pass}"
    return KeyChange(ChangeKind.LOOSENED, printable(f"noise of {where}{more}"), noise, now)


def _noise(row: JudgedRow) -> Value:
    return row.noise or 0


def _judged(assertion: Assertion, series: StoredSeries) -> Mapping[tuple[object, ...], JudgedRow]:
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


def _table(metric: Metric, series: StoredSeries, rows: Mapping[RowLabels, Value]) -> MetricTable:
    found = [Row(labels, value) for labels, value in rows.items()]
    return count_unstaged(MetricTable(series.dimensions, found, {}, every_stage=metric.every_stage, patchy=True))
