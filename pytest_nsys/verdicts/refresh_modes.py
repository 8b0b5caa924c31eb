"""Given a series as it is stored and as it is measured now: which rows does each mode of a refresh write?

``moved`` and ``all`` replace: of several accepted runs one is left, since all rows of a series hold the same number of
runs. The others leave accepted values alone, and refuse where they cannot.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.metrics.table import MetricTable, meant, row_key
from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.exact import distance
from pytest_nsys.core.model import Value
from pytest_nsys.core.words import counted, place_words, printable
from pytest_nsys.gates.judgement import Judgement, Reference, allowed_change, judge, reach
from pytest_nsys.gates.model import Assertion, FromBaseline, JudgedRow
from pytest_nsys.stored.baselines.baseline_file import RowLabels, SeriesId, StoredSeries, accepted_runs

KEPT_RUNS = 10
"""Accepted runs of a row; the oldest makes room for the newest."""


class Mode(enum.StrEnum):
    """What a refresh writes."""

    MOVED = "moved"
    ALL = "all"
    ACCEPT_RUN = "accept-run"
    CALIBRATE = "calibrate"

    @property
    def replaces(self) -> bool:
        """Whether the run takes the place of what was accepted; the others leave accepted values alone."""
        return self in (Mode.MOVED, Mode.ALL)


@dataclass(frozen=True)
class Acceptance:
    """What of a run is written, and whether its windows are kept."""

    mode: Mode = Mode.MOVED
    windows: bool = True


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
    """The series as it is to be stored, and what a person should know of it."""

    series: StoredSeries
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
        return Renewed(measured.replaced(measured.now))
    if mode is Mode.ACCEPT_RUN:
        return Renewed(_appended(measured, stored))
    rows = dict(measured.now) if mode is Mode.ALL else _moved(measured)
    if mode is Mode.MOVED and rows == measured.middles:
        return Renewed(stored)
    lost = len(stored.runs)
    made_room = (f"{measured.sid.metric}: {lost} accepted runs were replaced by one",) if lost > 1 else ()
    return Renewed(measured.replaced(rows), made_room)


def keep_unmeasured(m: Remeasured, renewed: Renewed) -> Renewed:
    """Return the series with the rows that it would lose, and that assertions without data mean: nobody has seen that
    those are gone. They keep their median, as all rows of a series hold the same number of runs.
    """
    series, stored = renewed.series, m.stored
    if stored is None or not m.unmeasured:
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


def _appended(m: Remeasured, stored: StoredSeries) -> StoredSeries:
    """The run after the accepted ones; without the oldest where they are too many."""
    for labels in (*m.now, *stored.rows):
        if (labels in m.now) != (labels in stored.rows):
            how = "new" if labels in m.now else "gone"
            raise BaselineError(
                f"{m.sid.metric} {m.named(labels)} is {how}, so the accepted runs are of another program: "
                "refresh without --accept-run to replace the baseline"
            )
    return m.series({labels: [*values, m.now[labels]][-KEPT_RUNS:] for labels, values in stored.rows.items()})


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
