"""Which rows of a stored series does each mode of a refresh write, given the series as it is measured now?

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
"""Limits the accepted runs of a row; the oldest makes room for the newest."""


class Mode(enum.StrEnum):
    """Says what a refresh writes."""

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
    """Says what is written of a run, and whether its windows are kept."""

    mode: Mode = Mode.MOVED
    windows: bool = True


@dataclass(frozen=True)
class Remeasured:
    """Holds one series: its rows in the current run, what is stored of it, and the assertions that read it."""

    sid: SeriesId
    metric: Metric
    now: Mapping[RowLabels, Value]
    stored: StoredSeries | None
    readers: Sequence[Assertion]  # those that have data
    table: Callable[[Mapping[RowLabels, Value]], MetricTable]  # spells rows as a gate sees them
    each: Mapping[str, Mapping[RowLabels, Value]] = field(default_factory=dict)  # rows of every capture, by its file
    hiccup: int | None = None  # the place of the stored run that does not count
    unordered: tuple[str, ...] = ()  # streams that keep no order in the current run
    unmeasured: Sequence[Assertion] = ()  # assertions that read the series and have no data

    @cached_property
    def counted(self) -> StoredSeries | None:
        """Return what is stored of the series, as a gate reads it: without the accepted run that is a hiccup."""
        if self.stored is None or self.hiccup is None:
            return self.stored
        return self.stored.without({self.hiccup})

    @cached_property
    def middles(self) -> dict[RowLabels, Value]:
        """Return the stored baseline of each row."""
        return self.counted.middles if self.counted else {}

    @cached_property
    def reference(self) -> Reference:
        """Return what the assertions are compared with as long as nothing is written."""
        assert self.counted is not None
        return accepted_runs(self.counted, self.table)

    def reference_of(self, rows: Mapping[RowLabels, Value]) -> Reference:
        """Return what the assertions are compared with once ``rows`` are the one accepted run."""
        if rows == self.middles:
            return self.reference
        calibration = self.stored.calibration_runs if self.stored else []
        return Reference(
            runs=[self.table(rows)], calibration=[self.table(calibration_rows) for calibration_rows in calibration]
        )

    def judged(self, assertion: Assertion, rows: Mapping[RowLabels, Value], reference: Reference) -> Judgement:
        """Return what the assertion says of ``rows``."""
        return judge(assertion, self.table(rows), reference)

    def named(self, labels: RowLabels) -> str:
        """Return a row in words."""
        return printable(place_words(zip(self.metric.dimensions, labels, strict=True)))

    def series(self, rows: dict[RowLabels, list[Value]]) -> StoredSeries:
        """Return the series with these accepted values. Rows that stay keep what their noise was measured on."""
        better = str(self.metric.better) if self.metric.better else None
        calibration = self.stored.calibration if self.stored else {}
        kept_calibration = {labels: values for labels, values in calibration.items() if labels in rows}
        return StoredSeries(
            str(self.metric.unit), better, self.metric.dimensions, rows, kept_calibration, self.unordered
        )

    def replaced(self, rows: Mapping[RowLabels, Value]) -> StoredSeries:
        """Return the series with one accepted run."""
        return self.series({labels: [value] for labels, value in rows.items()})


@dataclass(frozen=True, slots=True)
class Renewed:
    """Holds the series as it is to be stored, and what a person should know of it."""

    series: StoredSeries
    notes: tuple[str, ...] = ()


def renew(mode: Mode, measured: Remeasured) -> Renewed:
    """Return what the mode makes of a series. Raises BaselineError where the mode cannot do what it promises."""
    stored_series = measured.stored
    if stored_series is not None and (stored_series.dimensions, stored_series.unit) != (
        measured.metric.dimensions,
        str(measured.metric.unit),
    ):
        raise BaselineError(
            f"{measured.sid.metric} is stored with other dimensions or another unit: restore the file from git, or "
            "delete it and refresh"
        )
    if stored_series is not None and stored_series.unordered != measured.unordered:
        if mode.replaces:
            return Renewed(replace(measured, stored=None).replaced(measured.now))
        raise BaselineError(
            f"{measured.sid.metric} is stored of kernels that overlap on other streams: refresh the baseline as a whole"
        )
    if mode is Mode.CALIBRATE:
        return Renewed(_calibrated(measured))
    if stored_series is None:
        return Renewed(measured.replaced(measured.now))
    if mode is Mode.ACCEPT_RUN:
        return Renewed(_appended(measured, stored_series))
    rows = dict(measured.now) if mode is Mode.ALL else _moved(measured)
    if mode is Mode.MOVED and rows == measured.middles:
        return Renewed(stored_series)
    replaced_runs = len(stored_series.runs)
    room_notes = (
        (f"{measured.sid.metric}: {replaced_runs} accepted runs were replaced by one",) if replaced_runs > 1 else ()
    )
    return Renewed(measured.replaced(rows), room_notes)


def keep_unmeasured(m: Remeasured, renewed: Renewed) -> Renewed:
    """Return the series with the rows that it would lose and that assertions without data mean: nobody has seen that
    those are gone.

    They keep their median, as all rows of a series hold the same number of runs.
    """
    series, stored_series = renewed.series, m.stored
    if stored_series is None or not m.unmeasured:
        return renewed
    lost_rows = m.table({labels: value for labels, value in m.middles.items() if labels not in series.rows})
    selected_labels = [labels for reader in m.unmeasured for labels, _ in meant(lost_rows, reader.where)]
    kept_labels = {tuple(labels[dimension] for dimension in m.metric.dimensions) for labels in selected_labels}
    if not kept_labels:
        return renewed
    run_count = len(series.runs) or 1  # a series whose rows are all gone has no run to count
    whole_series = replace(
        series,
        rows={**series.rows, **{labels: [m.middles[labels]] * run_count for labels in kept_labels}},
        calibration={**series.calibration, **{k: v for k, v in stored_series.calibration.items() if k in kept_labels}},
    )
    names = ", ".join(f"'{reader.full_name}'" for reader in m.unmeasured)
    note = printable(f"{m.sid.metric}: {counted(len(kept_labels), 'stored row')} of {names} kept, without data now")
    return Renewed(whole_series, (*renewed.notes, note))


def _moved(m: Remeasured) -> dict[RowLabels, Value]:
    """Return the current rows, but with the stored values of rows that are within their tolerance, or their noise."""
    rows = {
        labels: m.middles[labels] if labels in m.middles and not _has_moved(m, labels, value) else value
        for labels, value in m.now.items()
    }
    for reader in m.readers:
        judged_rows = m.judged(reader, m.now, m.reference_of(rows)).rows
        if any(row.value is None or row.baseline is None or _beyond(row) for row in judged_rows):
            return dict(m.now)  # an aggregate may leave its limit while no row does, and noise go with the runs
    return rows


def _has_moved(m: Remeasured, labels: RowLabels, value: Value) -> bool:
    """Whether a row moved by more than an assertion that reads it lets pass."""
    assert m.counted is not None
    readers = [reader for reader in m.readers if meant(m.table({labels: 0}), reader.where)] or m.readers
    for reader in readers:
        limit, row_count = reader.require.limit, len(meant(m.table(m.now), reader.where)) or 1
        assert isinstance(limit, FromBaseline)
        calibration, series_calibration = m.counted.calibration.get(labels, ()), m.counted.among_calibration
        tolerance, noise = reach(
            limit, str(m.metric.unit), m.counted.rows[labels], calibration, series_calibration, row_count
        )
        if distance(m.middles[labels], value) > allowed_change(limit, tolerance, noise):
            return True
    return False


def _beyond(row: JudgedRow) -> bool:
    """Whether a judged row is off its baseline by more than the gate lets pass, on either side."""
    assert row.value is not None
    assert row.baseline is not None
    return distance(row.value, row.baseline) > (row.reach or 0)


def _appended(m: Remeasured, stored: StoredSeries) -> StoredSeries:
    """Return the series with the run after the accepted ones; without the oldest where they are too many."""
    for labels in (*m.now, *stored.rows):
        if (labels in m.now) != (labels in stored.rows):
            change_text = "new" if labels in m.now else "gone"
            raise BaselineError(
                f"{m.sid.metric} {m.named(labels)} is {change_text}, so the accepted runs are of another program: "
                "refresh without --accept-run to replace the baseline"
            )
    return m.series({labels: [*values, m.now[labels]][-KEPT_RUNS:] for labels, values in stored.rows.items()})


def _calibrated(m: Remeasured) -> StoredSeries:
    """Return the series with the values of each row in all traces as its noise.

    Where nothing is stored, these are the accepted runs as well.
    """
    all_labels = sorted({labels for rows in m.each.values() for labels in rows}, key=row_key)
    for name, rows in m.each.items():
        for labels in all_labels:
            if labels not in rows:
                raise BaselineError(f"{m.sid.metric} {m.named(labels)} is not in {name}, and is in another trace")
    values = {labels: [rows[labels] for rows in m.each.values()] for labels in all_labels}
    if m.stored is not None and set(m.stored.rows) != set(values):
        labels = min(set(m.stored.rows) ^ set(values), key=row_key)
        place_text = "the traces" if labels in m.stored.rows else "the stored baseline"
        raise BaselineError(f"{m.sid.metric} {m.named(labels)} is not in {place_text}: refresh the baseline first")
    accepted_rows = (
        m.stored.rows if m.stored else {labels: row_values[-KEPT_RUNS:] for labels, row_values in values.items()}
    )
    series = m.series(accepted_rows)
    series.calibration = values
    return series
