"""Given a series as it is stored and as it is measured now: which rows does each mode of a refresh write?

``moved`` and ``all`` replace: of several accepted runs one is left, since all rows of a series hold the same number of
runs. The other modes promise to leave something alone, and refuse where that promise cannot be kept.
"""

from __future__ import annotations

import enum
import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pytest_nsys.analysis.metric_names import metric_named
from pytest_nsys.analysis.metrics import Metric
from pytest_nsys.analysis.table import MetricTable, meant, row_key
from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.exact import distance
from pytest_nsys.core.model import Value
from pytest_nsys.core.words import counted, place_words, printable
from pytest_nsys.gates.judgement import Judgement, Reference, allowed_change, judge, reach, worse_by
from pytest_nsys.gates.model import Assertion, Comparator, FromBaseline, JudgedRow
from pytest_nsys.gates.names import names_of
from pytest_nsys.stored.baselines.baseline_file import RowLabels, SeriesId, StoredSeries, accepted_runs

KEPT_RUNS = 10
"""Accepted runs of a row; the oldest makes room for the newest."""

INSTEAD = "refresh without {} to replace the baseline"


class Mode(enum.StrEnum):
    """What a refresh writes."""

    MOVED = "moved"
    ALL = "all"
    NEW = "new"
    BETTER = "better"
    ACCEPT_RUN = "accept-run"
    CALIBRATE = "calibrate"

    @property
    def replaces(self) -> bool:
        """Whether the run takes the place of what was accepted; the others leave accepted values alone."""
        return self in (Mode.MOVED, Mode.ALL)

    @property
    def option(self) -> str:
        """What a person types for it."""
        return f"--rows {self}" if self in ROWS else f"--{self}"


ROWS = (Mode.MOVED, Mode.ALL, Mode.NEW, Mode.BETTER)
"""Those that choose among the rows of one run."""


@dataclass(frozen=True)
class Acceptance:
    """What of a run is written: which rows, of the assertions and metrics named ``only`` or of all, and whether its
    windows are kept.
    """

    mode: Mode = Mode.MOVED
    only: tuple[str, ...] = ()
    windows: bool = True

    def names(self, assertion: Assertion) -> bool:
        """Whether the assertion is among those that are written: of all, where no name or metric is given."""
        return not self.only or any(named(assertion, each) for each in self.only)


def named(assertion: Assertion, pattern: str) -> bool:
    """Whether a name, sentence or glob means the assertion: by its own name, or by that of its metric, as people say
    it.
    """
    names, metric = (*names_of(assertion), assertion.sentence, assertion.metric), metric_named(pattern)
    by_metric = metric is not None and metric.name == assertion.metric
    return by_metric or pattern in names or any(fnmatch.fnmatchcase(name, pattern) for name in names)


@dataclass(frozen=True)
class Remeasured:
    """One series: its rows now, what is stored of it, and the assertions that read it; ``unmeasured`` are those of them
    that have no data now.

    ``table`` spells rows as a gate sees them; ``each`` are the rows of every capture by itself, by its name. ``hiccup``
    is the place of the stored run that does not count.
    ``unordered`` are the streams that keep no order now.
    """

    sid: SeriesId
    metric: Metric
    now: Mapping[RowLabels, Value]
    stored: StoredSeries | None
    readers: Sequence[Assertion]
    table: Callable[[Mapping[RowLabels, Value]], MetricTable]
    each: Mapping[str, Mapping[RowLabels, Value]] = field(default_factory=dict)
    hiccup: int | None = None
    unordered: tuple[str, ...] = ()
    unmeasured: Sequence[Assertion] = ()

    @cached_property
    def counted(self) -> StoredSeries | None:
        """What is stored of it, as a gate reads it: without the accepted run that is a hiccup."""
        if self.stored is None or self.hiccup is None:
            return self.stored
        return self.stored.without({self.hiccup})

    @cached_property
    def middles(self) -> dict[RowLabels, Value]:
        """The stored baseline of each row."""
        return self.counted.middles if self.counted else {}

    @cached_property
    def reference(self) -> Reference:
        """What the assertions are held against as long as nothing is written."""
        assert self.counted is not None
        return accepted_runs(self.counted, self.table)

    def reference_of(self, rows: Mapping[RowLabels, Value]) -> Reference:
        """What the assertions are held against once ``rows`` are the one accepted run."""
        if rows == self.middles:
            return self.reference
        calibration = self.stored.calibration_runs if self.stored else []
        return Reference(runs=[self.table(rows)], calibration=[self.table(each) for each in calibration])

    def judged(self, assertion: Assertion, rows: Mapping[RowLabels, Value], reference: Reference) -> Judgement:
        """What the assertion says of ``rows``."""
        return judge(assertion, self.table(rows), reference)

    def named(self, labels: RowLabels) -> str:
        """A row in words."""
        return printable(place_words(zip(self.metric.dimensions, labels, strict=True)))

    def series(self, rows: dict[RowLabels, list[Value]]) -> StoredSeries:
        """The series with these accepted values. Rows that stay keep what their noise was measured on."""
        better = str(self.metric.better) if self.metric.better else None
        calibration = self.stored.calibration if self.stored else {}
        kept = {labels: values for labels, values in calibration.items() if labels in rows}
        return StoredSeries(str(self.metric.unit), better, self.metric.dimensions, rows, kept, self.unordered)

    def replaced(self, rows: Mapping[RowLabels, Value]) -> StoredSeries:
        """The series with one accepted run."""
        return self.series({labels: [value] for labels, value in rows.items()})


@dataclass(frozen=True, slots=True)
class Renewed:
    """The series as it is to be stored, None where it stays away, and what a person should know of it."""

    series: StoredSeries | None
    notes: tuple[str, ...] = ()


def renew(mode: Mode, measured: Remeasured) -> Renewed:
    """What the mode makes of a series. Raises BaselineError where the mode cannot do what it promises."""
    stored = measured.stored
    if stored is not None and (stored.dimensions, stored.unit) != (
        measured.metric.dimensions,
        str(measured.metric.unit),
    ):
        raise BaselineError(
            f"{measured.sid.metric} is stored with other dimensions or another unit: restore the file from git, or "
            "delete it and refresh"
        )
    if stored is not None and stored.unordered != measured.unordered:
        if mode.replaces:
            return Renewed(replace(measured, stored=None).replaced(measured.now))
        raise BaselineError(
            f"{measured.sid.metric} is stored of kernels that overlap on other streams: refresh the baseline as a whole"
        )
    if mode is Mode.CALIBRATE:
        return Renewed(_calibrated(measured))
    if stored is None:
        return Renewed(None if mode is Mode.BETTER else measured.replaced(measured.now))
    match mode:
        case Mode.NEW:
            return Renewed(_with_new(measured, stored))
        case Mode.ACCEPT_RUN:
            return Renewed(_appended(measured, stored))
        case Mode.BETTER:
            return _ratcheted(measured, stored)
    return _replaced(mode, measured, stored)


def keep_unmeasured(m: Remeasured, renewed: Renewed) -> Renewed:
    """Return the series with the rows that it would lose, and that assertions without data mean: nobody has seen that
    those are gone. They keep their median, as all rows of a series hold the same number of runs.
    """
    series, stored = renewed.series, m.stored
    if series is None or stored is None or not m.unmeasured:
        return renewed
    gone = m.table({labels: value for labels, value in m.middles.items() if labels not in series.rows})
    selected = [labels for reader in m.unmeasured for labels, _ in meant(gone, reader.where)]
    kept = {tuple(labels[dimension] for dimension in m.metric.dimensions) for labels in selected}
    if not kept:
        return renewed
    runs = len(series.runs) or 1
    whole = replace(
        series,
        rows={**series.rows, **{labels: [m.middles[labels]] * runs for labels in kept}},
        calibration={**series.calibration, **{k: v for k, v in stored.calibration.items() if k in kept}},
    )
    names = ", ".join(f"'{reader.full_name}'" for reader in m.unmeasured)
    note = printable(f"{m.sid.metric}: {counted(len(kept), 'stored row')} of {names} kept, without data now")
    return Renewed(whole, (*renewed.notes, note))


def _replaced(mode: Mode, m: Remeasured, stored: StoredSeries) -> Renewed:
    rows = dict(m.now) if mode is Mode.ALL else _moved(m)
    if mode is Mode.MOVED and rows == m.middles:
        return Renewed(stored)
    return Renewed(m.replaced(rows), _made_room(m, stored))


def _made_room(m: Remeasured, stored: StoredSeries) -> tuple[str, ...]:
    lost = len(stored.runs)
    return (f"{m.sid.metric}: {lost} accepted runs were replaced by one",) if lost > 1 else ()


def _moved(m: Remeasured) -> dict[RowLabels, Value]:
    """The rows of now, but those within their tolerance, or their noise, as they are stored."""
    rows = {
        labels: m.middles[labels] if labels in m.middles and not _has_moved(m, labels, value) else value
        for labels, value in m.now.items()
    }
    for reader in m.readers:
        judged = m.judged(reader, m.now, m.reference_of(rows)).rows
        if any(row.value is None or row.baseline is None or _beyond(row) for row in judged):
            return dict(m.now)  # an aggregate may leave its limit while no row does, and noise go with the runs
    return rows


def _has_moved(m: Remeasured, labels: RowLabels, value: Value) -> bool:
    """Whether a row moved by more than an assertion that reads it lets pass."""
    assert m.counted is not None
    readers = [reader for reader in m.readers if meant(m.table({labels: 0}), reader.where)] or m.readers
    for reader in readers:
        limit, together = reader.require.limit, len(meant(m.table(m.now), reader.where)) or 1
        assert isinstance(limit, FromBaseline)
        calibration, among = m.counted.calibration.get(labels, ()), m.counted.among_calibration
        tolerance, noise = reach(limit, str(m.metric.unit), m.counted.rows[labels], calibration, among, together)
        if distance(m.middles[labels], value) > allowed_change(limit, tolerance, noise):
            return True
    return False


def _beyond(row: JudgedRow) -> bool:
    """Whether a judged row is off its baseline by more than the gate lets pass, on either side."""
    assert row.value is not None
    assert row.baseline is not None
    return distance(row.value, row.baseline) > (row.reach or 0)


def _with_new(m: Remeasured, stored: StoredSeries) -> StoredSeries:
    """What is stored, and the rows that were not."""
    new = [labels for labels in m.now if labels not in stored.rows]
    runs = len(stored.runs)
    if new and runs > 1:
        raise BaselineError(
            f"{m.sid.metric} {m.named(new[0])} is new, and the other rows hold {runs} accepted runs, which it has not: "
            + INSTEAD.format(Mode.NEW.option)
        )
    return m.series({**stored.rows, **{labels: [m.now[labels]] for labels in new}}) if new else stored


def _appended(m: Remeasured, stored: StoredSeries) -> StoredSeries:
    """The run after the accepted ones; without the oldest where they are too many."""
    for labels in (*m.now, *stored.rows):
        if (labels in m.now) != (labels in stored.rows):
            how = "new" if labels in m.now else "gone"
            raise BaselineError(
                f"{m.sid.metric} {m.named(labels)} is {how}, so the accepted runs are of another program: "
                + INSTEAD.format(Mode.ACCEPT_RUN.option)
            )
    return m.series({labels: [*values, m.now[labels]][-KEPT_RUNS:] for labels, values in stored.rows.items()})


def _ratcheted(m: Remeasured, stored: StoredSeries) -> Renewed:
    """The rows that improved beyond tolerance and noise; no assertion ever gets a looser limit from it.

    Where an aggregate or a balance is judged, the rows are taken all or none: the best rows of two runs together would
    make a baseline that no run has reached.
    """
    steps = [step for reader in m.readers for step in _steps(m, reader)]
    worse = {tuple(row.labels.items()) for row, by in steps if by is not None and by > (row.reach or 0)}
    notes = [f"{m.sid.metric}: {counted(len(worse), 'row')} worse than stored, left alone"] if worse else []
    if other := set(m.now) ^ set(m.middles):
        notes.append(f"{m.sid.metric}: {counted(len(other), 'row')} new or gone, left alone")
    if all(not reader.aggregates and reader.balance_across is None for reader in m.readers):
        better = _better_rows(m, steps)
        rows = {labels: m.now[labels] if labels in better else value for labels, value in m.middles.items()}
    else:
        whole = not other and all(by is not None and by <= 0 for _, by in steps)
        rows = dict(m.now) if whole and any((by or 0) < -(row.sees or 0) for row, by in steps) else m.middles
    if rows == m.middles:
        return Renewed(stored, tuple(notes))
    return Renewed(m.replaced(rows), (*notes, *_made_room(m, stored)))


def _steps(m: Remeasured, reader: Assertion) -> Iterator[tuple[JudgedRow, Value | None]]:
    """Each judged row, and how much worse it is than its baseline, negative if better; None: nobody can say."""
    require = reader.require
    if not require.worse and m.metric.better is not None:
        require = replace(require, comparator=Comparator.LE if m.metric.better == "lower" else Comparator.GE)
    for row in m.judged(reader, m.now, m.reference).rows:
        if row.value is not None and row.baseline is not None:
            yield row, worse_by(require, row.value, row.baseline) if require.worse else None


def _better_rows(m: Remeasured, steps: Sequence[tuple[JudgedRow, Value | None]]) -> set[RowLabels]:
    """The rows that improved for one assertion and got worse for none."""
    better, worse = set(), set()
    for row, by in steps:
        labels = tuple(row.labels[dimension] for dimension in m.metric.dimensions)
        if (by or 0) < -(row.sees or 0):
            better.add(labels)
        if by is None or by > 0:
            worse.add(labels)
    return better - worse


def _calibrated(m: Remeasured) -> StoredSeries:
    """The values of each row in all traces. Where nothing is stored, these are the accepted runs as well."""
    every = sorted({labels for rows in m.each.values() for labels in rows}, key=row_key)
    for name, rows in m.each.items():
        for labels in every:
            if labels not in rows:
                raise BaselineError(f"{m.sid.metric} {m.named(labels)} is not in {name}, and is in another trace")
    values = {labels: [rows[labels] for rows in m.each.values()] for labels in every}
    if m.stored is not None and set(m.stored.rows) != set(values):
        labels = min(set(m.stored.rows) ^ set(values), key=row_key)
        where = "the traces" if labels in m.stored.rows else "the stored baseline"
        raise BaselineError(f"{m.sid.metric} {m.named(labels)} is not in {where}: refresh the baseline first")
    accepted = m.stored.rows if m.stored else {labels: each[-KEPT_RUNS:] for labels, each in values.items()}
    found = m.series(accepted)
    found.calibration = values
    return found
