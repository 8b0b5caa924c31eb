"""What changed between two states of the stored baselines? Files and rows, from what to what.

The value of a row is what it is judged by, the median over its accepted runs.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from pytest_nsys.analysis.table import row_key
from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.exact import median
from pytest_nsys.core.file_names import BASELINE_SUFFIX
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.numbers import distance_words
from pytest_nsys.core.words import counted, label_words, place_words, printable
from pytest_nsys.gates.noise import deviation
from pytest_nsys.stored.baselines.baseline_file import NOISE, Baseline, RowLabels, SeriesId, StoredSeries, loads
from pytest_nsys.stored.baselines.store import WorkTree
from pytest_nsys.tools.git import Snapshot


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row of a baseline that changed: ``old`` None where it is new, ``new`` None where it is gone."""

    series: SeriesId
    unit: str
    labels: Mapping[str, Label]
    old: Value | None
    new: Value | None

    @property
    def where(self) -> str:
        """The row's labels in words."""
        return label_words(self.labels)


def changes(old: Mapping[SeriesId, StoredSeries], new: Mapping[SeriesId, StoredSeries]) -> Iterator[RowChange]:
    """The rows whose baseline is another one in ``new``, by series and labels."""
    for sid in sorted({*old, *new}):
        before, after = old.get(sid), new.get(sid)
        if before is not None and after is not None and _shape(before) != _shape(after):
            yield from _of_series(sid, before, None)  # a label or number of the one says nothing in the other
            yield from _of_series(sid, None, after)
        else:
            yield from _of_series(sid, before, after)


def _of_series(sid: SeriesId, before: StoredSeries | None, after: StoredSeries | None) -> Iterator[RowChange]:
    either = after or before
    assert either is not None
    was, now = _middles(before), _middles(after)
    for labels in sorted({*was, *now}, key=row_key):
        if was.get(labels) != now.get(labels):
            named = dict(zip(either.dimensions, labels, strict=True))
            yield RowChange(sid, either.unit, named, was.get(labels), now.get(labels))


def _shape(series: StoredSeries) -> tuple[tuple[str, ...], str]:
    return series.dimensions, series.unit


def _middles(series: StoredSeries | None) -> dict[RowLabels, Value]:
    return series.middles if series is not None else {}


class State(enum.StrEnum):
    """What happened to a baseline file. ``BROKEN``: one of its two states cannot be read."""

    ADDED = "added"
    DELETED = "deleted"
    CHANGED = "changed"
    BROKEN = "broken"


@dataclass(frozen=True)
class FileChange:
    """A baseline file that is another one now. ``besides`` tells of what changed beside the value of a row."""

    path: Path
    state: State
    rows: tuple[RowChange, ...] = ()
    besides: tuple[str, ...] = ()
    old: Baseline | None = None
    new: Baseline | None = None
    broken: str = ""

    @property
    def origin(self) -> Mapping[str, Any]:
        """Where what changed came from, the noise where it is that alone; empty where no file is left."""
        was, now = (side.provenance if side is not None else {} for side in (self.old, self.new))
        accepted_before = {**now, NOISE: None} == {**was, NOISE: None}
        noise = now.get(NOISE)
        return noise if accepted_before and isinstance(noise, Mapping) else now

    @property
    def words(self) -> str:
        """What happened, in a few words: ``2 rows changed, 1 row gone; accepted runs 1 → 2``."""
        if self.state is State.BROKEN:
            return f"cannot be compared: {self.broken}"
        if self.state is not State.CHANGED:
            return f"{self.state}, {counted(len(self.rows), 'row')}"
        added = sum(row.old is None for row in self.rows)
        gone = sum(row.new is None for row in self.rows)
        moved = len(self.rows) - added - gone
        counts = [
            f"{counted(n, 'row')} {what}" for n, what in ((moved, "changed"), (added, "new"), (gone, "gone")) if n
        ]
        return "; ".join([", ".join(counts) or "no row changed", *self.besides])


def file_changes(folder: Path, then: Snapshot) -> list[FileChange]:
    """The baseline files below a folder that are not as they were at a commit, sorted. Raises BaselineError.

    A file that cannot be read is one of them; what is wrong with it is no reason to be silent of the others.
    """
    before = then.below(folder)
    now = [path for path in folder.rglob(f"*{BASELINE_SUFFIX}") if path.is_file() or path.is_symlink()]
    found = (_file_change(path, then) for path in sorted({*before, *now}))
    return [change for change in found if change is not None]


def _file_change(path: Path, then: Snapshot) -> FileChange | None:
    try:
        content = WorkTree().read(path)
        if content is not None and then.holds(path, content):
            return None
        previous = then.read(path)
        old = loads(previous, f"{path}{then.origin}") if previous is not None else None
        new = loads(content, str(path)) if content is not None else None
    except BaselineError as error:
        return FileChange(path, State.BROKEN, broken=str(error))
    if old is None or new is None:
        if old is new:
            return None  # a link that leads nowhere, then and now
        rows = tuple(changes(old.series if old else {}, new.series if new else {}))
        return FileChange(path, State.ADDED if old is None else State.DELETED, rows, old=old, new=new)
    rows, besides = tuple(changes(old.series, new.series)), tuple(_besides(old, new))
    return FileChange(path, State.CHANGED, rows, besides, old, new) if rows or besides else None


def _besides(old: Baseline, new: Baseline) -> Iterator[str]:
    """What else is another one: the gate file, the circumstances, the accepted runs, the noise, the origin."""
    for what, was, now in (("gate", old.gate, new.gate), *_pairs(old.key, new.key), *_pairs(old.facts, new.facts)):
        if was != now:
            yield printable(f"{what} {was} → {now}")
    shared = [(series, new.series[sid]) for sid, series in old.series.items() if sid in new.series]
    runs = {(len(was.runs), len(now.runs)) for was, now in shared if len(was.runs) != len(now.runs)}
    for counts in sorted(runs):
        yield f"accepted runs {counts[0]} → {counts[1]}"
    if not runs and any(_values(was, now) for was, now in shared):
        yield "values of accepted runs changed under the same median"
    if noise := _noise([(sid, old.series[sid], new.series[sid]) for sid in old.series if sid in new.series]):
        yield noise
    if any((was.better, _shape(was)) != (now.better, _shape(now)) for was, now in shared):
        yield "direction, unit or dimensions changed"
    changed = [name for name, was, now in _pairs(old.provenance, new.provenance) if was != now]
    if changed and old.series == new.series:
        yield f"provenance changed: {printable(', '.join(changed))}"


def _noise(shared: Sequence[tuple[SeriesId, StoredSeries, StoredSeries]]) -> str:
    """That noise was measured anew, with its deviation in the row where it grew most; empty where it was not."""
    most, told = Fraction(-1), ""
    for sid, was, now in shared:
        for labels in now.rows if was.calibration != now.calibration else ():
            before, after = (deviation(side.calibration.get(labels, ())) for side in (was, now))
            if (grown := Fraction(after) / (before or 1)) > most:
                where = place_words(zip(now.dimensions, labels, strict=True))
                then = distance_words(before, now.unit) if labels in was.calibration else "not measured"
                here = distance_words(after, now.unit)
                most, told = grown, f"s0 {then} → {here} of {sid.metric} {where}".rstrip()
    return printable(f"noise measured again ({told})") if told else ""


def _values(was: StoredSeries, now: StoredSeries) -> bool:
    return any(
        values != now.rows[labels] and median(values) == median(now.rows[labels])
        for labels, values in was.rows.items()
        if labels in now.rows
    )


def _pairs(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(name, old.get(name), new.get(name)) for name in sorted({*old, *new})]
