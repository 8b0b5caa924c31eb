"""Which rows of a stored series does each mode of a refresh write, given the rows of the current run?

``moved`` and ``all`` replace accepted values and leave a single accepted run, as all rows of a series hold the same
number of runs. The other modes keep accepted values, and refuse if they cannot.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.metrics.table import MetricTable, make_labels_key, select_meant_rows
from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.exact import distance
from pytest_nsys.core.model import Value
from pytest_nsys.core.text_format import format_count, format_labels, sanitize_line
from pytest_nsys.gates.judgement import Judgement, Reference, compute_allowed_change, compute_tolerance, judge_rows
from pytest_nsys.gates.model import Assertion, BaselineLimit, JudgedRow
from pytest_nsys.stored.baselines.baseline_file import RowLabels, SeriesId, StoredSeries, build_reference

MAX_ACCEPTED_RUNS = 10
"""The greatest number of accepted runs of a row; beyond it the oldest is dropped."""


class RefreshMode(enum.StrEnum):
    """Names which rows a refresh writes."""

    MOVED = "moved"
    ALL = "all"
    ACCEPT_RUN = "accept-run"
    CALIBRATE = "calibrate"

    @property
    def replaces(self) -> bool:
        """Whether the run replaces the accepted runs; the other modes keep accepted values."""
        return self in (RefreshMode.MOVED, RefreshMode.ALL)


@dataclass(frozen=True)
class RefreshOptions:
    """Says what is written of a run, and whether its windows are kept."""

    mode: RefreshMode = RefreshMode.MOVED
    keeps_windows: bool = True


@dataclass(frozen=True)
class RemeasuredSeries:
    """Holds one series: its rows in the current run, what is stored of it, and the assertions that read it."""

    sid: SeriesId
    metric: Metric
    current_rows: Mapping[RowLabels, Value]
    stored_series: StoredSeries | None
    readers: Sequence[Assertion]  # those that have data
    make_table: Callable[[Mapping[RowLabels, Value]], MetricTable]  # makes the metric table of rows, as a gate reads it
    rows_by_file: Mapping[str, Mapping[RowLabels, Value]] = field(
        default_factory=dict
    )  # rows of every capture, by its file
    hiccup_place: int | None = None  # the place of the stored run that is a hiccup
    unordered_streams: tuple[str, ...] = ()  # streams whose kernels overlap in the current run
    unmeasured_readers: Sequence[Assertion] = ()  # assertions that read the series and have no data

    @cached_property
    def counted_series(self) -> StoredSeries | None:
        """Return the stored series as a gate reads it: without the accepted run that is a hiccup."""
        if self.stored_series is None or self.hiccup_place is None:
            return self.stored_series
        return self.stored_series.drop_runs({self.hiccup_place})

    @cached_property
    def middles(self) -> dict[RowLabels, Value]:
        """Return the stored baseline of each row."""
        return self.counted_series.baseline_values if self.counted_series else {}

    @cached_property
    def reference(self) -> Reference:
        """Return the reference from the stored rows, before the refresh."""
        assert self.counted_series is not None
        return build_reference(self.counted_series, self.make_table)

    def make_reference(self, rows: Mapping[RowLabels, Value]) -> Reference:
        """Return the reference if ``rows`` were the only accepted run."""
        if rows == self.middles:
            return self.reference
        calibration = self.stored_series.calibration_by_trace if self.stored_series else []
        return Reference(
            runs=[self.make_table(rows)],
            calibration=[self.make_table(calibration_rows) for calibration_rows in calibration],
        )

    def judge_rows(self, assertion: Assertion, rows: Mapping[RowLabels, Value], reference: Reference) -> Judgement:
        """Return the judgement of ``rows``."""
        return judge_rows(assertion, self.make_table(rows), reference)

    def format_row(self, labels: RowLabels) -> str:
        """Return a row in words."""
        return sanitize_line(format_labels(zip(self.metric.dimensions, labels, strict=True)))

    def make_series(self, rows: dict[RowLabels, list[Value]]) -> StoredSeries:
        """Return the series with these accepted values. Rows that stay keep their calibration."""
        better = str(self.metric.better) if self.metric.better else None
        calibration = self.stored_series.calibration if self.stored_series else {}
        kept_calibration = {labels: values for labels, values in calibration.items() if labels in rows}
        return StoredSeries(
            str(self.metric.unit), better, self.metric.dimensions, rows, kept_calibration, self.unordered_streams
        )

    def make_replaced_series(self, rows: Mapping[RowLabels, Value]) -> StoredSeries:
        """Return the series with one accepted run."""
        return self.make_series({labels: [value] for labels, value in rows.items()})


@dataclass(frozen=True, slots=True)
class RenewedSeries:
    """Holds the series to be stored, and the notes about it."""

    series: StoredSeries
    notes: tuple[str, ...] = ()


def renew_series(mode: RefreshMode, remeasured: RemeasuredSeries) -> RenewedSeries:
    """Return the series as the mode renews it. Raises BaselineError where the mode cannot do what it promises."""
    stored_series = remeasured.stored_series
    if stored_series is not None and (stored_series.dimensions, stored_series.unit) != (
        remeasured.metric.dimensions,
        str(remeasured.metric.unit),
    ):
        raise BaselineError(
            f"{remeasured.sid.metric} is stored with other dimensions or another unit: restore the file from git, or "
            "delete it and refresh"
        )
    if stored_series is not None and stored_series.unordered != remeasured.unordered_streams:
        if mode.replaces:
            return RenewedSeries(replace(remeasured, stored_series=None).make_replaced_series(remeasured.current_rows))
        raise BaselineError(
            f"{remeasured.sid.metric} is stored of kernels that overlap on other streams: refresh the baseline as a "
            "whole"
        )
    if mode is RefreshMode.CALIBRATE:
        return RenewedSeries(_calibrate_series(remeasured))
    if stored_series is None:
        return RenewedSeries(remeasured.make_replaced_series(remeasured.current_rows))
    if mode is RefreshMode.ACCEPT_RUN:
        return RenewedSeries(_append_run(remeasured, stored_series))
    rows = dict(remeasured.current_rows) if mode is RefreshMode.ALL else _select_moved_rows(remeasured)
    if mode is RefreshMode.MOVED and rows == remeasured.middles:
        return RenewedSeries(stored_series)
    replaced_runs = len(stored_series.rows_by_run)
    room_notes = (
        (f"{remeasured.sid.metric}: {replaced_runs} accepted runs were replaced by one",) if replaced_runs > 1 else ()
    )
    return RenewedSeries(remeasured.make_replaced_series(rows), room_notes)


def keep_unmeasured(remeasured: RemeasuredSeries, renewal: RenewedSeries) -> RenewedSeries:
    """Return the renewed series with the stored rows of assertions without data added, as these are not known to be
    gone.

    Such a row keeps its median, once for each run, as all rows of a series hold the same number of runs.
    """
    series, stored_series = renewal.series, remeasured.stored_series
    if stored_series is None or not remeasured.unmeasured_readers:
        return renewal
    lost_rows = remeasured.make_table(
        {labels: value for labels, value in remeasured.middles.items() if labels not in series.rows}
    )
    selected_labels = [
        labels for reader in remeasured.unmeasured_readers for labels, _ in select_meant_rows(lost_rows, reader.where)
    ]
    kept_labels = {tuple(labels[dimension] for dimension in remeasured.metric.dimensions) for labels in selected_labels}
    if not kept_labels:
        return renewal
    run_count = len(series.rows_by_run) or 1  # without rows there is no run to count
    whole_series = replace(
        series,
        rows={**series.rows, **{labels: [remeasured.middles[labels]] * run_count for labels in kept_labels}},
        calibration={**series.calibration, **{k: v for k, v in stored_series.calibration.items() if k in kept_labels}},
    )
    names = ", ".join(f"'{reader.full_name}'" for reader in remeasured.unmeasured_readers)
    note = sanitize_line(
        f"{remeasured.sid.metric}: {format_count(len(kept_labels), 'stored row')} of {names} kept, without data now"
    )
    return RenewedSeries(whole_series, (*renewal.notes, note))


def _select_moved_rows(remeasured: RemeasuredSeries) -> dict[RowLabels, Value]:
    """Return the current rows, with stored values for rows that moved by no more than their tolerance or noise."""
    rows = {
        labels: remeasured.middles[labels]
        if labels in remeasured.middles and not _has_row_moved(remeasured, labels, value)
        else value
        for labels, value in remeasured.current_rows.items()
    }
    for reader in remeasured.readers:
        judged_rows = remeasured.judge_rows(reader, remeasured.current_rows, remeasured.make_reference(rows)).rows
        if any(row.value is None or row.baseline is None or _is_beyond_limit(row) for row in judged_rows):
            return dict(
                remeasured.current_rows
            )  # an aggregate may break its limit while no row does, and replacing the runs drops their noise
    return rows


def _has_row_moved(remeasured: RemeasuredSeries, labels: RowLabels, value: Value) -> bool:
    """Whether a row moved by more than some assertion that reads it allows."""
    assert remeasured.counted_series is not None
    readers = [
        reader for reader in remeasured.readers if select_meant_rows(remeasured.make_table({labels: 0}), reader.where)
    ] or remeasured.readers
    for reader in readers:
        limit, row_count = (
            reader.requirement.limit,
            len(select_meant_rows(remeasured.make_table(remeasured.current_rows), reader.where)) or 1,
        )
        assert isinstance(limit, BaselineLimit)
        calibration, series_calibration = (
            remeasured.counted_series.calibration.get(labels, ()),
            remeasured.counted_series.calibrated_positions,
        )
        tolerance, noise = compute_tolerance(
            limit,
            str(remeasured.metric.unit),
            remeasured.counted_series.rows[labels],
            calibration,
            series_calibration,
            row_count,
        )
        if distance(remeasured.middles[labels], value) > compute_allowed_change(limit, tolerance, noise):
            return True
    return False


def _is_beyond_limit(row: JudgedRow) -> bool:
    """Whether a judged row is off its baseline by more than the gate lets pass, on either side."""
    assert row.value is not None
    assert row.baseline is not None
    return distance(row.value, row.baseline) > (row.allowed_change or 0)


def _append_run(remeasured: RemeasuredSeries, stored_series: StoredSeries) -> StoredSeries:
    """Return the series with the run appended to the accepted ones, without the oldest if there are too many."""
    for labels in (*remeasured.current_rows, *stored_series.rows):
        if (labels in remeasured.current_rows) != (labels in stored_series.rows):
            change_text = "new" if labels in remeasured.current_rows else "gone"
            raise BaselineError(
                f"{remeasured.sid.metric} {remeasured.format_row(labels)} is {change_text}, so the accepted runs are "
                "of another program: "
                "refresh without --accept-run to replace the baseline"
            )
    return remeasured.make_series(
        {
            labels: [*values, remeasured.current_rows[labels]][-MAX_ACCEPTED_RUNS:]
            for labels, values in stored_series.rows.items()
        }
    )


def _calibrate_series(remeasured: RemeasuredSeries) -> StoredSeries:
    """Return the series with the values of each row in all traces as its noise.

    Where nothing is stored, these are the accepted runs as well.
    """
    all_labels = sorted({labels for rows in remeasured.rows_by_file.values() for labels in rows}, key=make_labels_key)
    for name, rows in remeasured.rows_by_file.items():
        for labels in all_labels:
            if labels not in rows:
                raise BaselineError(
                    f"{remeasured.sid.metric} {remeasured.format_row(labels)} is not in {name}, and is in another trace"
                )
    values = {labels: [rows[labels] for rows in remeasured.rows_by_file.values()] for labels in all_labels}
    if remeasured.stored_series is not None and set(remeasured.stored_series.rows) != set(values):
        labels = min(set(remeasured.stored_series.rows) ^ set(values), key=make_labels_key)
        place_text = "the traces" if labels in remeasured.stored_series.rows else "the stored baseline"
        raise BaselineError(
            f"{remeasured.sid.metric} {remeasured.format_row(labels)} is not in {place_text}: refresh the baseline "
            "first"
        )
    accepted_rows = (
        remeasured.stored_series.rows
        if remeasured.stored_series
        else {labels: row_values[-MAX_ACCEPTED_RUNS:] for labels, row_values in values.items()}
    )
    series = remeasured.make_series(accepted_rows)
    series.calibration = values
    return series
