"""What were the values and verdicts of the past, in the order in which they were written, and how did each row move?

A track is one row of one measurement of one gate file and key, over time. The wide table, which change-point tools
read, has one line per run and one column per track, and no empty cell: change-point tools refuse one.
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

from pytest_nsys.analysis.metrics.registry import metric_called
from pytest_nsys.analysis.metrics.table import MetricTable, NothingSelected, Selector, count_unstaged, row_key, select
from pytest_nsys.core.exact import exact_value, median
from pytest_nsys.core.model import Label, Row, Value
from pytest_nsys.core.words import counted, label_words, printable
from pytest_nsys.stored.baselines.baseline_file import RowLabels, SeriesId
from pytest_nsys.stored.history.database import NEVER_NULL, SKEW, TABLES, reading, storable

_Place = tuple[str, str, SeriesId, str, str | None, str]
"""By what rows are one measurement: gate file, key, what was measured, and of which unit, direction and dimensions."""

_AT_ONCE = 500
"""Runs whose rows one query asks for: SQLite takes so many parameters everywhere."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One gate file in one session. ``key`` and ``digest`` are None where its traces could not be judged."""

    id: int
    time: str
    commit: str | None
    branch: str | None
    dirty: bool | None
    gate: str
    digest: str | None
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
    """The rows of one measurement of one gate file and key: of each row its value by number of the run."""

    gate: str
    digest: str
    sid: SeriesId
    unit: str
    better: str | None
    dimensions: tuple[str, ...]
    rows: dict[RowLabels, dict[int, Value]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class History:
    """Runs in the order in which they were written; measurements by gate file, key and name, their rows by label;
    verdicts by run.
    """

    runs: tuple[StoredRun, ...]
    series: tuple[HistorySeries, ...]
    verdicts: Mapping[int, Sequence[Mapping[str, Any]]]


def load(
    path: Path, gates: Collection[str] | None = None, branch: str | None = None, last: int | None = None
) -> History:
    """The runs of these gate files and this branch (None: of all), the ``last`` of each gate file and key.

    Raises HistoryError.
    """
    with reading(path) as connection:
        if connection is None:
            return History((), (), {})
        where = {} if gates is None else {"gate": list(gates)}
        where |= {} if branch is None else {"branch": [branch]}
        runs = newest(list(stored_runs(connection, where)), last)
        series: dict[_Place, HistorySeries] = {}
        verdicts: dict[int, list[Mapping[str, Any]]] = {}
        for start in range(0, len(runs), _AT_ONCE):
            some = {run.id: run for run in runs[start : start + _AT_ONCE]}
            _read_rows(connection, some, series)
            for verdict in records(connection, "verdicts", _of(some), tuple(some)):
                verdicts.setdefault(verdict["run"], []).append(verdict)
        ordered = sorted(series.values(), key=lambda s: (s.gate, s.digest, s.sid))
        return History(tuple(runs), tuple(map(_by_label, ordered)), verdicts)


def known_in(path: Path, column: Literal["gate", "branch"]) -> list[str]:
    """The gate files, or the branches, that have a run. Raises HistoryError."""
    with reading(path) as connection:
        if connection is None:
            return []
        found = connection.execute(f"SELECT DISTINCT {column} FROM runs WHERE {column} IS NOT NULL ORDER BY 1")
        return [str(value) for (value,) in found]


def newest(runs: Sequence[StoredRun], last: int | None) -> list[StoredRun]:
    """Without the older runs of a gate file and key that has more than ``last``; None: all of them."""
    seen: dict[tuple[str, str | None], int] = {}
    kept = []
    for run in reversed(runs):
        place = run.gate, run.digest
        seen[place] = seen.get(place, 0) + 1
        if last is None or seen[place] <= last:
            kept.append(run)
    return kept[::-1]


def ahead(runs: Sequence[StoredRun]) -> str:
    """That the clock of a run was ahead, as one that was written later is of an earlier time; empty where none was."""
    times = [datetime.fromisoformat(run.time).astimezone(UTC) for run in runs]
    least = [*accumulate(reversed(times), min)][::-1]  # of each run and those that were written after it
    early = [run for run, own, later in zip(runs, times, least, strict=True) if later < own - SKEW]
    if not early:
        return ""
    return f"the clock of {counted(len(early), 'run')} was ahead, first {early[0].time}: runs stand as written"


def _by_label(series: HistorySeries) -> HistorySeries:
    ordered = sorted(series.rows.items(), key=lambda item: row_key(item[0]))
    return replace(series, rows=dict(ordered))


def stored_runs(
    connection: sqlite3.Connection, where: Mapping[str, Sequence[str]], *, newest_first: bool = False, besides: str = ""
) -> Iterator[StoredRun]:
    """The runs each of whose columns is among its values, and of which ``besides`` holds, in the order of writing."""
    conditions = [f"{column} IN ({', '.join('?' * len(among))})" for column, among in where.items()]
    direction = "DESC" if newest_first else "ASC"
    asked = f"{' AND '.join([*conditions, besides or '1'])} ORDER BY id {direction}"
    values = [value for among in where.values() for value in among]
    return map(_run, records(connection, "runs", asked, values))


def _run(row: Mapping[str, Any]) -> StoredRun:
    _check_time(row["time"])
    return StoredRun(
        **{name: row[name] for name in ("id", "time", "branch", "gate", "captures", "outcome", "version")},
        commit=row["commit_id"],
        dirty=None if row["dirty"] is None else bool(row["dirty"]),
        digest=row["key"],
        key=None if row["key_json"] is None else _parsed(row["key_json"], dict),
        facts=_parsed(row["facts"] or "{}", dict),
        coordinates=_coordinates(row["coordinates"] or "{}"),
        trace=row["trace"] or "",
        profiler=row["profiler"] or "",
    )


def _read_rows(
    connection: sqlite3.Connection, runs: Mapping[int, StoredRun], into: dict[_Place, HistorySeries]
) -> None:
    for row in records(connection, "rows", _of(runs), tuple(runs)):
        run = runs.get(row["run"])
        if run is None or run.digest is None:
            raise ValueError(f"run {row['run']} has rows and no {'entry' if run is None else 'key'}")
        sid = SeriesId(*(row[name] for name in SeriesId._fields))
        place = run.gate, run.digest, sid, row["unit"], row["better"], row["dimensions"]
        if place not in into:
            dimensions = tuple(map(str, _parsed(row["dimensions"], list)))
            into[place] = HistorySeries(*place[:-1], dimensions)
        labels = labels_of(row)
        if len(labels) != len(into[place].dimensions):
            raise ValueError(f"a row of {sid.metric} does not fit its dimensions")
        into[place].rows.setdefault(labels, {})[run.id] = exact_value(row["value"])


def _of(runs: Iterable[int]) -> str:
    return f"run IN ({', '.join('?' for _ in runs)}) ORDER BY run, id"


def records(
    connection: sqlite3.Connection, table: str, where: str, values: Sequence[str | int]
) -> Iterator[dict[str, Any]]:
    """Rows of a table, each value of its column's type: SQLite itself keeps any type in any column."""
    ask = f"SELECT {', '.join(TABLES[table])} FROM {table} WHERE {where}"
    for row in connection.execute(ask, [storable(value) if isinstance(value, str) else value for value in values]):
        for (name, kind), value in zip(TABLES[table].items(), row, strict=True):
            if name in NEVER_NULL[table] if value is None else type(value) is not kind:
                raise ValueError(f"{name} in the table {table} is {printable(repr(value), 60)}")
        yield dict(zip(TABLES[table], row, strict=True))


def _check_time(text: str) -> None:
    try:
        datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"'{printable(text, 40)}' is not a time") from error


def _coordinates(text: str) -> dict[int, dict[str, int]]:
    try:
        return {
            int(rank): {str(axis): int(place) for axis, place in axes.items()}
            for rank, axes in _parsed(text, dict).items()
        }
    except (TypeError, AttributeError, OverflowError) as error:
        raise ValueError("the coordinates of a run are none") from error


def labels_of(row: Mapping[str, Any]) -> RowLabels:
    return tuple(label if isinstance(label, int) else str(label) for label in _parsed(row["labels"], list))


def _parsed(text: str, kind: type[Any]) -> Any:
    """What a column has as JSON. Raises ValueError where that is not of the ``kind`` that was written there."""
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    if not isinstance(found, kind):
        raise ValueError(f"{printable(text, 60)} is not {'a list' if kind is list else 'an object'}")
    return found


# Rows over time

_HOW = ("definition", "window", "span", "kernels")


@dataclass(frozen=True, slots=True)
class Track:
    """One row over time: at least one run and its value, oldest first."""

    series: HistorySeries
    labels: RowLabels
    runs: tuple[StoredRun, ...]
    values: tuple[Value, ...]

    @property
    def named(self) -> Mapping[str, Label]:
        """The labels with their dimensions."""
        return dict(zip(self.series.dimensions, self.labels, strict=True))

    @property
    def by_run(self) -> Mapping[int, Value]:
        """The values by number of the run."""
        return self.series.rows[self.labels]

    @property
    def place(self) -> str:
        """``rank 0 stage stage2_f``."""
        return label_words(self.named)

    @property
    def earlier(self) -> Value | None:
        """The median of the values before the last; None where there is none."""
        return median(self.values[:-1]) if len(self.values) > 1 else None


def tracks_of(
    history: History, metrics: Collection[str], selectors: Mapping[str, Selector]
) -> tuple[list[Track], list[tuple[str, str]]]:
    """The rows of these metrics (none: of all) that the selectors mean, and each measurement without one, with why."""
    found: list[Track] = []
    absent: list[tuple[str, str]] = []
    for series in history.series:
        if metrics and series.sid.metric not in metrics:
            continue
        runs = [run for run in history.runs if (run.gate, run.digest) == (series.gate, series.digest)]
        coordinates = next((run.coordinates for run in reversed(runs) if run.coordinates), {})
        metric = metric_called(series.sid.metric)
        every_stage, rows = metric is not None and metric.every_stage, [Row(labels, 0) for labels in series.rows]
        table = count_unstaged(MetricTable(series.dimensions, rows, coordinates, every_stage=every_stage))
        try:
            chosen = select(table, selectors)
        except NothingSelected as nothing:
            absent.append((f"{series.sid.metric} of {series.gate}", str(nothing)))
            continue
        found += [_track(series, tuple(labels[d] for d in series.dimensions), runs) for labels, _ in chosen]
    return found, absent


def track_of(history: History, gate: str, digest: str, sid: SeriesId, labels: RowLabels) -> Track | None:
    """One row; None where no run has it."""
    own = (s for s in history.series if (s.gate, s.digest, s.sid) == (gate, digest, sid) and labels in s.rows)
    series = next(own, None)
    return None if series is None else _track(series, labels, history.runs)


def _track(series: HistorySeries, labels: RowLabels, runs: Sequence[StoredRun]) -> Track:
    by_run = series.rows[labels]
    own = [run for run in runs if run.id in by_run]
    return Track(series, labels, tuple(own), tuple(by_run[run.id] for run in own))


def how_measured(tracks: Sequence[Track]) -> list[str]:
    """For each track what tells its measurement from another one of the same metric; empty where nothing need be said.

    A field is named for all tracks of a metric as soon as two of them differ in it.
    """
    seen: dict[tuple[str, str], set[object]] = {}
    for track in tracks:
        for name in _HOW:
            seen.setdefault((track.series.sid.metric, name), set()).add(getattr(track.series.sid, name))
    return [
        ", ".join(
            f"{name} {getattr(track.series.sid, name)}" for name in _HOW if len(seen[track.series.sid.metric, name]) > 1
        )
        for track in tracks
    ]


def column_names(tracks: Sequence[Track]) -> list[str]:
    """``exposed_ns rank 0 stage stage2_f``, with how it was measured where a metric was measured in several ways."""
    return [
        " ".join(part for part in (track.series.sid.metric, track.place, f"({how})" if how else "") if part)
        for track, how in zip(tracks, how_measured(tracks), strict=True)
    ]


def without_holes(tracks: Sequence[Track]) -> tuple[list[tuple[str, Track]], list[StoredRun], list[str]]:
    """The named columns that half of the runs have, the runs that have all of those, and what is left out, and why."""
    runs = {run.id: run for track in tracks for run in track.runs}
    columns: dict[bool, list[tuple[str, Track]]] = {True: [], False: []}
    for name, track in zip(column_names(tracks), tracks, strict=True):
        columns[2 * len(track.runs) >= len(runs)].append((name, track))
    kept, left = columns[True], [name for name, _ in columns[False]]
    count = Counter(run.id for _, track in kept for run in track.runs)
    whole = [run for number, run in sorted(runs.items()) if count[number] == len(kept)]
    notes = []
    if left:
        what = counted(len(left), "column")
        notes.append(f"{what} left out, which less than half of the {len(runs)} runs have: {', '.join(left)}")
    if len(whole) < len(runs):
        what = counted(len(runs) - len(whole), "run")
        notes.append(f"{what} of {len(runs)} left out, which lack a column that the others have")
    return kept, whole, notes


def spaced_time(time: str) -> str:
    """A stored time with blanks, as change-point tools read it: ``2026-01-31 02:00:00 +0000``."""
    return datetime.fromisoformat(time).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S %z")
