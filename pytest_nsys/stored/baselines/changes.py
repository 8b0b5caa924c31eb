"""What changed between two states of the stored baselines, and what do newer rules change for them?

The former tells of files and rows, from what to what: the value of a row is what it is judged by, the median over its
accepted runs. The latter is told without a trace, as far as the baselines tell: they keep the rows of every rank, and
of the kernels of their windows the short names; what names no library, such as the ``dispatch`` of DeepEP, shows in a
run alone.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby, starmap
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.analysis.table import Coordinates, MetricTable, label_key
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.exact import median
from pytest_nsys.core.families import KnownLibrary, known_communication
from pytest_nsys.core.file_names import BASELINE_SUFFIX
from pytest_nsys.core.model import Label, Row, Value
from pytest_nsys.core.numbers import distance_words, format_apart, format_value
from pytest_nsys.core.words import counted, label_words, place_words, printable
from pytest_nsys.gates.model import Assertion, GateFile
from pytest_nsys.gates.noise import deviation
from pytest_nsys.gates.selection import Absence, absences, excuse
from pytest_nsys.stored.baselines.baseline_file import (
    NOISE,
    Baseline,
    RowLabels,
    SeriesId,
    StoredSeries,
    kept_by,
    loads,
    series_for,
)
from pytest_nsys.stored.baselines.store import WorkTree
from pytest_nsys.tools.git import Snapshot

SHOWN, SHOWN_NEW = 24, 8
"""Changes of one series on a terminal; the second where all of them are new."""


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

    def __str__(self) -> str:
        old = "new" if self.old is None else format_value(self.old, self.unit)
        new = "gone" if self.new is None else format_value(self.new, self.unit)
        if self.old is not None and self.new is not None:
            old, new = format_apart(self.old, self.new, self.unit)
        return printable(f"{' '.join(filter(None, [self.series.metric, self.where]))}: {old} → {new}")


def changes(old: Mapping[SeriesId, StoredSeries], new: Mapping[SeriesId, StoredSeries]) -> Iterator[RowChange]:
    """The rows whose baseline is another one in ``new``, by series and labels."""
    for sid in sorted({*old, *new}):
        before, after = old.get(sid), new.get(sid)
        if before is not None and after is not None and _shape(before) != _shape(after):
            yield from _of_series(sid, before, None)  # a label or number of the one says nothing in the other
            yield from _of_series(sid, None, after)
        else:
            yield from _of_series(sid, before, after)


def row_lines(found: Iterable[RowChange], *, folded: bool) -> Iterator[str]:
    """A line for each change; ``folded``: for the first of each series, fewer where nothing has an old value."""
    for sid, same in groupby(found, key=lambda change: change.series):
        own = list(same)
        shown = SHOWN if any(change.old is not None for change in own) else SHOWN_NEW
        if not folded or len(own) <= shown + 1:
            shown = len(own)
        yield from map(str, own[:shown])
        if len(own) > shown:
            yield f"… and {len(own) - shown} more rows of {sid.metric} (pytest -v shows them)"


def _of_series(sid: SeriesId, before: StoredSeries | None, after: StoredSeries | None) -> Iterator[RowChange]:
    either = after or before
    assert either is not None
    was, now = _middles(before), _middles(after)
    for labels in sorted({*was, *now}, key=lambda row: [label_key(label) for label in row]):
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
    return printable(f"noise measured anew ({told})") if told else ""


def _values(was: StoredSeries, now: StoredSeries) -> bool:
    return any(
        values != now.rows[labels] and median(values) == median(now.rows[labels])
        for labels, values in was.rows.items()
        if labels in now.rows
    )


def _pairs(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(name, old.get(name), new.get(name)) for name in sorted({*old, *new})]


# What newer rules change


class Upgrade(NamedTuple):
    """What changes, the line of the gate file that it is about, and what to write or run."""

    line: int
    what: str
    remedy: str


def upgrades(gate: GateFile, stored: Sequence[Baseline], refresh: str) -> list[Upgrade]:
    """What the rules of today say otherwise of the runs behind the baselines, each once.

    ``refresh`` is the command that stores the baselines anew.
    """
    read = [(replace(gate, convention=c), b) for b in stored if (c := gate.convention or kept_by(b)) is not None]
    found = [one for own, baseline in read for one in _libraries(own.resolved_convention, baseline, refresh)]
    excused: dict[str, list[tuple[Assertion, Absence]]] = {}
    for assertion in gate.assertions:
        lacking = {absence: None for own, baseline in read for absence in _lacking(own, assertion, baseline)}
        if lacking:
            excused.setdefault(excuse(lacking), []).append((assertion, next(iter(lacking))))
    for write, about in excused.items():
        assertion, absence = about[0]
        more = f", here and in {len(about) - 1} more of the file" if about[1:] else ""
        found.append(
            Upgrade(assertion.location.line, f"'{assertion.name}' is no data now: {absence}{more}", f"write {write}")
        )
    return list(dict.fromkeys(found))


def _libraries(convention: Convention, baseline: Baseline, refresh: str) -> Iterator[Upgrade]:
    """Kernels of known libraries that were compute when the baseline was stored."""
    times: Counter[str] = Counter()
    kernels = whole = 0
    known: set[KnownLibrary] = set()
    for breakdown in (each for ranks in baseline.breakdowns.values() for each in ranks.values()):
        whole += sum(kernel.length_ns for own in breakdown.communication.values() for kernel in own)
        whole += sum(barrier.length_ns for barrier in breakdown.barriers.values())
        for name, compute in breakdown.compute.items():
            whole += compute.length_ns
            if (library := known_communication(name, name)) is not None:
                known.add(library)
                times[name] += compute.length_ns
                kernels += compute.kernels
    if not known:
        return
    from pytest_nsys.analysis.doubts import Uncounted

    found = Uncounted(times, kernels, whole, frozenset(known))
    if all(convention.is_communication(name, name) for name in times):
        what = f"the stored baseline has {found.words}, and they are communication now: no run is comparable with it"
        yield Upgrade(1, what, f"run {refresh}")
    else:
        yield Upgrade(1, f"the stored baseline has {found.words}: an error now", found.remedy(convention))


def _lacking(gate: GateFile, assertion: Assertion, baseline: Baseline) -> Iterator[Absence]:
    """The ranks without a row that the assertion means, however the ranks lie on the pipeline."""
    series = baseline.series.get(series_for(gate.resolved_convention, assertion))
    if series is None:
        return
    pipelines = [_table(assertion, series, places) for places in _layouts(baseline.key)]
    each = [absences(table, assertion.where, assertion.allow_missing) for table in pipelines]
    for found in each[0]:
        stages = tuple(s for s in found.stages if all((found.rank, s) in _lacks(other) for other in each[1:]))
        if stages:
            yield found._replace(stages=stages)


def _lacks(found: Sequence[Absence]) -> set[tuple[int, str]]:
    return {(absence.rank, stage) for absence in found for stage in absence.stages}


def _table(assertion: Assertion, series: StoredSeries, places: Coordinates) -> MetricTable:
    metric = assertion.measures
    return MetricTable(
        series.dimensions, [*starmap(Row, series.middles.items())], places, {}, metric.every_stage, metric.without
    )


def _layouts(key: Mapping[str, object]) -> list[Coordinates]:
    """Where the ranks may stand in the pipeline, which no baseline says: in blocks, or in turn."""
    world, mesh = key.get("world"), key.get("mesh")
    sizes = mesh if isinstance(mesh, dict) else {}
    if not isinstance(world, int) or (sizes and prod(sizes.values()) != world):
        return [{}]
    pp = sizes.get("pp", 1)
    return [
        {rank: {"pp": rank * pp // world} for rank in range(world)},
        {rank: {"pp": rank % pp} for rank in range(world)},
    ]
