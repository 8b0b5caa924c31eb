"""Which values and verdicts does the history hold, in the order of writing, and how did each row move?

A track is one row of one measurement of one gate file and key, over time. The wide table, which change-point tools
read, has one line per run and one column per track, and no empty cell: these tools refuse one.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from pytest_nsys.analysis.metrics.registry import find_metric
from pytest_nsys.analysis.metrics.table import (
    MetricTable,
    NothingSelected,
    Selector,
    count_unstaged,
    make_labels_key,
    select_rows,
)
from pytest_nsys.core.exact import median, parse_exact
from pytest_nsys.core.model import Label, Row, Value
from pytest_nsys.core.text_format import format_count, format_labels_in_full, sanitize_line
from pytest_nsys.stored.baselines.baseline_file import RowLabels, SeriesId
from pytest_nsys.stored.history.database import MAX_CLOCK_SKEW, NEVER_NULL, TABLES, make_storable, open_for_reading

_SeriesKey = tuple[str, str, SeriesId, str, str | None, str]
"""What makes rows one measurement: gate file, key, what was measured, unit, direction and dimensions."""

_RUNS_PER_QUERY = 500
"""The number of runs whose rows one query reads: SQLite takes so many parameters everywhere."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """Describes one gate file in one session, as the history stores it.

    ``key`` and ``digest`` are None where its traces could not be judged.
    """

    id: int
    time: str
    commit: str | None
    branch: str | None
    dirty: bool | None
    gate: str
    digest: str | None  # of the key
    key: Mapping[str, Any] | None
    facts: Mapping[str, Any]
    coordinates: Mapping[int, Mapping[str, int]]
    trace: str
    profiler: str
    captures: int | None
    outcome: str
    version: str | None


@dataclass(frozen=True, slots=True)
class HistorySeries:
    """Holds the rows of one measurement of one gate file and key; each row has its values by run id."""

    gate: str
    digest: str
    sid: SeriesId
    unit: str
    better: str | None
    dimensions: tuple[str, ...]
    rows: dict[RowLabels, dict[int, Value]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class History:
    """Holds runs in the order of writing, their measurements and their verdicts."""

    runs: tuple[StoredRun, ...]
    series: tuple[HistorySeries, ...]  # by gate file, key and name, their rows by label
    verdicts: Mapping[int, Sequence[Mapping[str, Any]]]  # by run id


def load_history(
    path: Path, gates: Collection[str] | None = None, branch: str | None = None, last: int | None = None
) -> History:
    """Read the runs of these gate files and this branch (None: of all), the ``last`` ones of each gate file and key.

    Raises HistoryError.
    """
    with open_for_reading(path) as connection:
        if connection is None:
            return History((), (), {})
        conditions = {} if gates is None else {"gate": list(gates)}
        conditions |= {} if branch is None else {"branch": [branch]}
        runs = select_newest(list(iterate_stored_runs(connection, conditions)), last)
        series: dict[_SeriesKey, HistorySeries] = {}
        verdicts: dict[int, list[Mapping[str, Any]]] = {}
        for start in range(0, len(runs), _RUNS_PER_QUERY):
            queried_runs = {run.id: run for run in runs[start : start + _RUNS_PER_QUERY]}
            _read_rows(connection, queried_runs, series)
            for verdict in read_records(
                connection, "verdicts", _format_run_condition(queried_runs), tuple(queried_runs)
            ):
                verdicts.setdefault(verdict["run"], []).append(verdict)
        sorted_series = sorted(series.values(), key=lambda s: (s.gate, s.digest, s.sid))
        return History(tuple(runs), tuple(map(_sort_rows, sorted_series)), verdicts)


def list_known_values(path: Path, column: Literal["gate", "branch"]) -> list[str]:
    """List the gate files, or the branches, that have a run, sorted. Raises HistoryError."""
    with open_for_reading(path) as connection:
        if connection is None:
            return []
        records = connection.execute(f"SELECT DISTINCT {column} FROM runs WHERE {column} IS NOT NULL ORDER BY 1")
        return [str(value) for (value,) in records]


def select_newest(runs: Sequence[StoredRun], last: int | None) -> list[StoredRun]:
    """Return the runs without the older ones of a gate file and key that has more than ``last``; None keeps all of
    them.
    """
    counts: dict[tuple[str, str | None], int] = {}
    newest_runs = []
    for run in reversed(runs):
        series = run.gate, run.digest
        counts[series] = counts.get(series, 0) + 1
        if last is None or counts[series] <= last:
            newest_runs.append(run)
    return newest_runs[::-1]


def describe_clock_ahead(runs: Sequence[StoredRun]) -> str:
    """Describe that the clock of a run was ahead, as a run written later has an earlier time; empty where none was."""
    times = [datetime.fromisoformat(run.time).astimezone(UTC) for run in runs]
    earliest_later = [*accumulate(reversed(times), min)][::-1]  # of each run and those that were written after it
    runs_ahead = [
        run for run, time, earliest in zip(runs, times, earliest_later, strict=True) if earliest < time - MAX_CLOCK_SKEW
    ]
    if not runs_ahead:
        return ""
    return (
        f"the clock of {format_count(len(runs_ahead), 'run')} was ahead, first {runs_ahead[0].time}: runs stand as "
        "written"
    )


def _sort_rows(series: HistorySeries) -> HistorySeries:
    ordered = sorted(series.rows.items(), key=lambda item: make_labels_key(item[0]))
    return replace(series, rows=dict(ordered))


def iterate_stored_runs(
    connection: sqlite3.Connection,
    accepted_values: Mapping[str, Sequence[str]],
    *,
    newest_first: bool = False,
    extra_condition: str = "",
) -> Iterator[StoredRun]:
    """Iterate over the runs whose columns have one of the accepted values, in the order of writing.

    ``extra_condition`` is SQL that must hold, too.
    """
    conditions = [f"{column} IN ({', '.join('?' * len(accepted))})" for column, accepted in accepted_values.items()]
    direction = "DESC" if newest_first else "ASC"
    condition = f"{' AND '.join([*conditions, extra_condition or '1'])} ORDER BY id {direction}"
    values = [value for accepted in accepted_values.values() for value in accepted]
    return map(_parse_stored_run, read_records(connection, "runs", condition, values))


def _parse_stored_run(row: Mapping[str, Any]) -> StoredRun:
    _check_time(row["time"])
    return StoredRun(
        **{name: row[name] for name in ("id", "time", "branch", "gate", "captures", "outcome", "version")},
        commit=row["commit_id"],
        dirty=None if row["dirty"] is None else bool(row["dirty"]),
        digest=row["key"],
        key=None if row["key_json"] is None else _parse_json(row["key_json"], dict),
        facts=_parse_json(row["facts"] or "{}", dict),
        coordinates=_parse_coordinates(row["coordinates"] or "{}"),
        trace=row["trace"] or "",
        profiler=row["profiler"] or "",
    )


def _read_rows(
    connection: sqlite3.Connection, runs: Mapping[int, StoredRun], series_by_key: dict[_SeriesKey, HistorySeries]
) -> None:
    for row in read_records(connection, "rows", _format_run_condition(runs), tuple(runs)):
        run = runs.get(row["run"])
        if run is None or run.digest is None:
            raise ValueError(f"run {row['run']} has rows and no {'entry' if run is None else 'key'}")
        sid = SeriesId(*(row[name] for name in SeriesId._fields))
        key = run.gate, run.digest, sid, row["unit"], row["better"], row["dimensions"]
        if key not in series_by_key:
            dimensions = tuple(map(str, _parse_json(row["dimensions"], list)))
            series_by_key[key] = HistorySeries(*key[:-1], dimensions)
        labels = parse_labels(row)
        if len(labels) != len(series_by_key[key].dimensions):
            raise ValueError(f"a row of {sid.metric} does not fit its dimensions")
        series_by_key[key].rows.setdefault(labels, {})[run.id] = parse_exact(row["value"])


def _format_run_condition(runs: Iterable[int]) -> str:
    return f"run IN ({', '.join('?' for _ in runs)}) ORDER BY run, id"


def read_records(
    connection: sqlite3.Connection, table: str, condition: str, values: Sequence[str | int]
) -> Iterator[dict[str, Any]]:
    """Read rows of a table, and check that each value has its column's type: SQLite stores any type in any column.

    Raises ValueError where one has not.
    """
    query = f"SELECT {', '.join(TABLES[table])} FROM {table} WHERE {condition}"
    for row in connection.execute(
        query, [make_storable(value) if isinstance(value, str) else value for value in values]
    ):
        for (name, column_type), value in zip(TABLES[table].items(), row, strict=True):
            if name in NEVER_NULL[table] if value is None else type(value) is not column_type:
                raise ValueError(f"{name} in the table {table} is {sanitize_line(repr(value), 60)}")
        yield dict(zip(TABLES[table], row, strict=True))


def _check_time(text: str) -> None:
    try:
        datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"'{sanitize_line(text, 40)}' is not a time") from error


def _parse_coordinates(text: str) -> dict[int, dict[str, int]]:
    try:
        return {
            int(rank): {str(axis): int(place) for axis, place in axes.items()}
            for rank, axes in _parse_json(text, dict).items()
        }
    except (TypeError, AttributeError, OverflowError) as error:
        raise ValueError("the coordinates of a run are none") from error


def parse_labels(row: Mapping[str, Any]) -> RowLabels:
    return tuple(label if isinstance(label, int) else str(label) for label in _parse_json(row["labels"], list))


def _parse_json(text: str, expected_type: type[Any]) -> Any:
    """Parse the JSON in a column. Raises ValueError where it is not of the type that was written there."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    if not isinstance(value, expected_type):
        raise ValueError(f"{sanitize_line(text, 60)} is not {'a list' if expected_type is list else 'an object'}")
    return value


# Rows over time

_WINDOW_FIELDS = ("definition", "window", "span", "kernels")


@dataclass(frozen=True, slots=True)
class RowTrack:
    """Holds one row over time: at least one run and its value, oldest first."""

    series: HistorySeries
    labels: RowLabels
    runs: tuple[StoredRun, ...]
    values: tuple[Value, ...]

    @property
    def labels_by_dimension(self) -> Mapping[str, Label]:
        """The labels by their dimensions."""
        return dict(zip(self.series.dimensions, self.labels, strict=True))

    @property
    def value_by_run(self) -> Mapping[int, Value]:
        """The values by run id."""
        return self.series.rows[self.labels]

    @property
    def labels_text(self) -> str:
        """The labels as text: ``rank 0 stage stage2_f``."""
        return format_labels_in_full(self.labels_by_dimension)

    @property
    def earlier_median(self) -> Value | None:
        """The median of the values before the last; None where there is none."""
        return median(self.values[:-1]) if len(self.values) > 1 else None


def select_tracks(
    history: History, metrics: Collection[str], selectors: Mapping[str, Selector]
) -> tuple[list[RowTrack], list[tuple[str, str]]]:
    """Return the rows of these metrics (none: of all) that the selectors select, and each measurement without one, with
    why.
    """
    tracks: list[RowTrack] = []
    missing: list[tuple[str, str]] = []
    for series in history.series:
        if metrics and series.sid.metric not in metrics:
            continue
        runs = [run for run in history.runs if (run.gate, run.digest) == (series.gate, series.digest)]
        coordinates = next((run.coordinates for run in reversed(runs) if run.coordinates), {})
        metric = find_metric(series.sid.metric)
        every_stage, rows = metric is not None and metric.counts_unstaged, [Row(labels, 0) for labels in series.rows]
        table = count_unstaged(MetricTable(series.dimensions, rows, coordinates, counts_unstaged=every_stage))
        try:
            selected_rows = select_rows(table, selectors)
        except NothingSelected as error:
            missing.append((f"{series.sid.metric} of {series.gate}", str(error)))
            continue
        tracks += [
            _build_track(series, tuple(labels[d] for d in series.dimensions), runs) for labels, _ in selected_rows
        ]
    return tracks, missing


def find_track(history: History, gate: str, digest: str, sid: SeriesId, labels: RowLabels) -> RowTrack | None:
    """Return one row over time; None where no run has it."""
    matching_series = (
        s for s in history.series if (s.gate, s.digest, s.sid) == (gate, digest, sid) and labels in s.rows
    )
    series = next(matching_series, None)
    return None if series is None else _build_track(series, labels, history.runs)


def _build_track(series: HistorySeries, labels: RowLabels, runs: Sequence[StoredRun]) -> RowTrack:
    by_run = series.rows[labels]
    runs_with_value = [run for run in runs if run.id in by_run]
    return RowTrack(series, labels, tuple(runs_with_value), tuple(by_run[run.id] for run in runs_with_value))


def describe_measurements(tracks: Sequence[RowTrack]) -> list[str]:
    """Describe, for each track, how its measurement differs from others of the same metric; empty where none differs.

    A field is named for all tracks of a metric as soon as two of them differ in it.
    """
    values_by_field: dict[tuple[str, str], set[object]] = {}
    for track in tracks:
        for name in _WINDOW_FIELDS:
            values_by_field.setdefault((track.series.sid.metric, name), set()).add(getattr(track.series.sid, name))
    return [
        ", ".join(
            f"{name} {getattr(track.series.sid, name)}"
            for name in _WINDOW_FIELDS
            if len(values_by_field[track.series.sid.metric, name]) > 1
        )
        for track in tracks
    ]


def format_column_names(tracks: Sequence[RowTrack]) -> list[str]:
    """Return the name of each track's column, as ``exposed_ns rank 0 stage stage2_f``.

    A metric that was measured in several ways also has how.
    """
    return [
        " ".join(
            part
            for part in (track.series.sid.metric, track.labels_text, f"({measurement})" if measurement else "")
            if part
        )
        for track, measurement in zip(tracks, describe_measurements(tracks), strict=True)
    ]


def select_full_columns(tracks: Sequence[RowTrack]) -> tuple[list[tuple[str, RowTrack]], list[StoredRun], list[str]]:
    """Return the named columns that half of the runs have, the runs that have all of those, and notes on what is left
    out.
    """
    runs = {run.id: run for track in tracks for run in track.runs}
    columns: dict[bool, list[tuple[str, RowTrack]]] = {True: [], False: []}
    for name, track in zip(format_column_names(tracks), tracks, strict=True):
        columns[2 * len(track.runs) >= len(runs)].append((name, track))
    full_columns, dropped_names = columns[True], [name for name, _ in columns[False]]
    column_counts = Counter(run.id for _, track in full_columns for run in track.runs)
    full_runs = [run for number, run in sorted(runs.items()) if column_counts[number] == len(full_columns)]
    notes = []
    if dropped_names:
        dropped_count = format_count(len(dropped_names), "column")
        notes.append(
            f"{dropped_count} left out, which less than half of the {len(runs)} runs have: {', '.join(dropped_names)}"
        )
    if len(full_runs) < len(runs):
        dropped_count = format_count(len(runs) - len(full_runs), "run")
        notes.append(f"{dropped_count} of {len(runs)} left out, which lack a column that the others have")
    return full_columns, full_runs, notes


def format_spaced_time(time: str) -> str:
    """Format a stored time with blanks, as change-point tools read it: ``2026-01-31 02:00:00 +0000``."""
    return datetime.fromisoformat(time).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S %z")
