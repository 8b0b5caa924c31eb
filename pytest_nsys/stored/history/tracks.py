"""How did each row move from run to run, and as what table do change-point tools read it?

A track is one row of one measurement of one gate file and key, over time. The wide table has one line per run and one
column per track, and no empty cell: Apache Otava refuses a column that has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pytest_nsys.analysis.metrics import metric_called
from pytest_nsys.analysis.table import NothingSelected, Selector, Table, select
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.exact import median
from pytest_nsys.core.model import Label, Row, Value
from pytest_nsys.core.words import counted, label_words
from pytest_nsys.stored.baselines.baseline_file import RowLabels
from pytest_nsys.stored.history.reading import History, StoredRun, StoredSeries

_HOW = ("definition", "window", "span", "kernels")


@dataclass(frozen=True, slots=True)
class Track:
    """One row over time: at least one run and its value, oldest first."""

    series: StoredSeries
    labels: RowLabels
    runs: tuple[StoredRun, ...]
    values: tuple[Value, ...]

    @property
    def named(self) -> Mapping[str, Label]:
        """The labels with their dimensions."""
        return dict(zip(self.series.dimensions, self.labels, strict=True))

    @property
    def place(self) -> str:
        """``rank 0 stage stage2_f``."""
        return label_words(self.named)

    @property
    def earlier(self) -> Value | None:
        """The median of the values before the last; None where there is none."""
        return median(self.values[:-1]) if len(self.values) > 1 else None


@dataclass(frozen=True, slots=True)
class Wide:
    """One line per run. ``notes`` say which runs and columns are left out, and why."""

    names: tuple[str, ...]
    tracks: tuple[Track, ...]
    runs: tuple[StoredRun, ...]
    notes: tuple[str, ...]

    def line(self, run: StoredRun) -> list[Value]:
        """The values of a run."""
        return [track.series.rows[track.labels][run.id] for track in self.tracks]


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
        every_stage = metric is not None and metric.every_stage
        if "stage" in series.dimensions:  # no row with a stage: the gate meant those without one
            at = series.dimensions.index("stage")
            every_stage = every_stage or all(labels[at] == NO_STAGE for labels in series.rows)
        table = Table(
            series.dimensions, [Row(labels, 0) for labels in series.rows], coordinates, every_stage=every_stage
        )
        try:
            chosen = select(table, selectors)
        except NothingSelected as nothing:
            absent.append((f"{series.sid.metric} of {series.gate}", str(nothing)))
            continue
        found += [_track(series, tuple(labels[d] for d in series.dimensions), runs) for labels, _ in chosen]
    return found, absent


def _track(series: StoredSeries, labels: RowLabels, runs: Sequence[StoredRun]) -> Track:
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


def wide(tracks: Sequence[Track]) -> Wide:
    """The table without holes: columns that half of the runs have, and the runs that have all of those."""
    runs = {run.id: run for track in tracks for run in track.runs}
    kept = [track for track in tracks if 2 * len(track.runs) >= len(runs)]
    count = Counter(run.id for track in kept for run in track.runs)
    whole = [run for run in runs.values() if count[run.id] == len(kept)]
    names = dict(zip(map(id, tracks), column_names(tracks), strict=True))
    notes = []
    stays = set(map(id, kept))
    left = [names[id(track)] for track in tracks if id(track) not in stays]
    if left:
        what = counted(len(left), "column")
        notes.append(f"{what} left out, which less than half of the {len(runs)} runs have: {', '.join(left)}")
    if len(whole) < len(runs):
        what = counted(len(runs) - len(whole), "run")
        notes.append(f"{what} of {len(runs)} left out, which lack a column that the others have")
    ordered = sorted(whole, key=lambda run: run.id)
    return Wide(tuple(names[id(track)] for track in kept), tuple(kept), tuple(ordered), tuple(notes))


def otava_time(time: str) -> str:
    """A stored time as Apache Otava writes its own: ``2026-01-31 02:00:00 +0000``."""
    return datetime.fromisoformat(time).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S %z")
