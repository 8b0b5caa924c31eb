"""Runs opened once and asked many times: metric in, rows out.

Several captures of one program give rows that are medians over the captures. Whatever was read or measured is kept, so
that a second assertion, or a second gate file on the same trace, costs no reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import combinations, starmap
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.analysis.between_captures import FEWEST, how_same, looked_at, outlying, times_of, twins
from pytest_nsys.analysis.circumstances import Facts, RunKey, facts_of, key_of, profilers_of
from pytest_nsys.analysis.doubts import notes_on
from pytest_nsys.analysis.explained import KernelSequence
from pytest_nsys.analysis.metrics import MEASURED, METRICS, Better, Bounds, Metric, Of, Request, Scope, Unit, measured
from pytest_nsys.analysis.quality import crossed
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import Run, RunWindow
from pytest_nsys.analysis.structure import sequences
from pytest_nsys.analysis.table import UNSEEN, Coordinates, Table, label_key
from pytest_nsys.analysis.windows import UsedWindow, WindowSpec, spec_under
from pytest_nsys.core.errors import GOES_ON, NoRows, NothingMeasured, NsysError, TraceError, UsageMistake
from pytest_nsys.core.exact import median
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.model import KernelsMode, Label, Note, Row, Span, Unseen, Value
from pytest_nsys.core.words import counted, from_here

_SECOND_NS = 1_000_000_000


class Mesh(NamedTuple):
    """Coordinates by rank number, and the size of each axis."""

    coordinates: Coordinates
    sizes: Mapping[str, int]


class Captures:
    """The captures of one program under one convention. Raises TraceError where they cannot be judged."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = tuple(runs)
        self.convention = runs[0].convention

    @property
    def began(self) -> datetime | None:
        """When the first trace of the first capture began, in UTC; None where none says."""
        found = [facts.started_ns for facts in self.runs[0].facts if facts.started_ns is not None]
        try:
            return datetime.fromtimestamp(min(found) // _SECOND_NS, UTC) if found else None
        except (ValueError, OverflowError, OSError):
            return None

    def spec(self, window: str, span: Span | None = None, kernels: KernelsMode | None = None) -> WindowSpec:
        """A window spec, with what is left open as the convention has it."""
        return spec_under(self.convention, window, span, kernels)

    def measure(self, request: Request) -> Table:
        """The rows that were asked for, of traces that are good enough for them. Raises TraceError where they are not.

        Everything that is judged, stored, compared or read ahead is measured here.
        """
        metric = self.metric(request.metric or "")
        found = self.rows(metric, request.spec)  # an empty window says more than what is wrong with it
        if metric.outside:
            return found
        if doubts := self._doubts(request.bounds, request.spec, metric):
            raise TraceError(GOES_ON.join(doubts))
        self.refuse_twins(request.spec)
        return found

    @kept
    def metric(self, name: str) -> Metric:
        """The metric of a name, with what the captures say of it.

        Raises NothingMeasured where a capture has no measurement of that name, TraceError where they are of two kinds.
        """
        if (known := METRICS.get(name)) is not None:
            return known
        own = name.removeprefix(f"{MEASURED} ")
        first, *others = ((run.measurements, run.measurements.kind(own)) for run in self.runs)
        for files, kind in others:
            if kind != first[1]:
                raise TraceError(f"{files.shown}: {own} has {kind}, and in {first[0].shown} {first[1]}")
        unit, better, dimensions = first[1]
        return measured(own, unit, Better(better) if better else None, dimensions)

    @kept
    def refuse_twins(self, spec: WindowSpec) -> None:
        """Raises UsageMistake where two captures, or two ranks of one, are one in other bytes: its values would scatter
        by nothing.
        """
        if spec.outside:
            return
        times = times_of(self.each, looked_at([], [spec]), len(self.runs)) if len(self.runs) > 1 else ()
        for (n, one), (m, other) in combinations(enumerate(times), 2):
            if how := how_same(one, other):
                first, second = (self.runs[place].path for place in (n, m))
                raise UsageMistake(f"{first} and {second} are the same capture: {how}; one trace is one sample")
        if found := twins(run.measured(spec) for run in self.runs):
            paths = " and ".join(str(track.rank.trace) for track in found)
            how = f"{counted(len(found[0].kernels), 'kernel')} are equal to the nanosecond"
            raise UsageMistake(f"{paths} are the same capture: {how}; one trace is one rank")

    @kept
    def rows(self, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None = None) -> Table:
        """The rows of a metric, of all ranks or of some: medians over captures, each the median over its windows."""
        each = self.each(metric, spec, ranks)
        if metric.window_by and len(each) > 1:
            by = self.each(METRICS[metric.window_by], spec, ranks)
            return _of_one(list(zip(each, by, strict=True)), self._table(metric), captures=True)
        return _combined(metric, each, "captures", self._table(metric))

    @kept
    def each(self, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None = None) -> Sequence[Table]:
        """The rows of a metric in each capture."""
        empty = self._table(metric)
        return [_capture_rows(capture, metric, spec, ranks, empty) for capture in self.runs]

    def unordered(self, metric: Metric, spec: WindowSpec) -> tuple[str, ...]:
        """The streams that keep no order in any capture, where that changes what the metric means."""
        if not metric.by_order:
            return ()
        tracks = [track for run in self.runs if run.traces for track in run.measured(spec).tracks.values()]
        places = {(track.rank.number, stream.number) for track in tracks for stream in track.unordered}
        return tuple(f"rank {rank} stream {stream}" for rank, stream in sorted(places))

    def _table(self, metric: Metric) -> Table:
        """A table of the metric without a row."""
        sizes, where = self.mesh.sizes, self.mesh.coordinates
        return Table(metric.dimensions, (), where, sizes, metric.every_stage, metric.without)

    @kept
    def sequences(self, spec: WindowSpec) -> Mapping[int, KernelSequence]:
        """What the fingerprints of all windows stand for."""
        windows = (window for run in self.runs for own in run.measured(spec).filled().values() for window in own)
        return {h: each for window in windows for h, each in sequences(window).items()}

    @cached_property
    def mesh(self) -> Mesh:
        """Where each rank stands, as the setup labels say."""
        run = self.runs[0]
        return Mesh({rank.number: rank.coordinates for rank in run.ranks}, run.sizes)

    def stored(self, metric: Metric, rows: Mapping[tuple[Label, ...], Value]) -> Table:
        """Rows of a baseline as a gate sees them, its ranks standing where those of this run do."""
        return replace(self._table(metric), rows=tuple(starmap(Row, rows.items())), patchy=metric.over_clocks)

    @kept
    def windows(self, spec: WindowSpec) -> tuple[UsedWindow, ...]:
        """The windows that were measured."""
        return tuple(
            UsedWindow(number, rank, window)
            for number, capture in enumerate(() if spec.outside else self.runs)
            for rank, windows in sorted(capture.measured(spec).windows.items())
            for window in windows
        )

    def middle_windows(self, spec: WindowSpec, rank: Label) -> Iterator[RankWindow]:
        """The window in the middle of those of a rank, in each capture."""
        for capture in () if spec.outside else self.runs:
            windows = capture.measured(spec).ranks.get(rank, ()) if isinstance(rank, int) else ()
            yield from windows[len(windows) // 2 :][:1]

    @kept
    def notes(self, spec: WindowSpec, *metrics: Metric) -> tuple[Note, ...]:
        """What a person should know about the measurements of these metrics."""
        stages = any(metric.looks_up for metric in metrics)
        streams = not metrics or any(metric.of not in (Of.FAMILIES, Of.GPU) for metric in metrics)
        launches = any(metric.window_by for metric in metrics)
        looked_at = () if spec.outside else self.runs
        found = [
            note for run in looked_at for note in notes_on(run, spec, stages=stages, streams=streams, launches=launches)
        ]
        for about in dict.fromkeys(metric.about for metric in metrics):
            found += about(self.runs, spec) if about else ()
        found += [Note(line, True) for metric in metrics for line in self.outlying(metric, spec)]
        return tuple(dict.fromkeys(note._replace(text=from_here(note.text)) for note in found))

    def outlying(self, metric: Metric, spec: WindowSpec) -> tuple[str, ...]:
        """The captures that lie far from the others, a line each: their median hides it."""
        if metric.unit is Unit.HASH or len(self.runs) < FEWEST:
            return ()
        each = [dict(one.rows) for one in self.each(metric, spec)]
        names = [f"capture {n} of {len(each)} ({run.path.name})" for n, run in enumerate(self.runs, 1)]
        return tuple(f"{names[far.capture]}: {far.told(metric)}" for far in outlying(each))

    @kept
    def _doubts(self, bounds: Bounds, spec: WindowSpec, metric: Metric) -> Sequence[str]:
        """Why the traces are not good enough to judge a metric: a line for each crossed bound."""
        several = len(self.runs) > 1
        lines = ((run.path, line) for run in self.runs for line in crossed(run, spec, bounds, metric))
        return [f"{path}: {line}" if several else line for path, line in lines]

    def key(self, stated: Mapping[str, Label]) -> RunKey:
        """What makes this run comparable to another. ``stated`` is what the gate file says where the trace does not."""
        return self._key(tuple(sorted(stated.items())))

    @kept
    def _key(self, stated: tuple[tuple[str, Label], ...]) -> RunKey:
        return key_of(self.runs, dict(stated))

    @cached_property
    def facts(self) -> Facts:
        """Circumstances that are compared but do not name a baseline."""
        return facts_of(self.runs)

    def identity(self, stated: Mapping[str, Label]) -> Mapping[str, Any]:
        """By what this run is compared with one that is stored."""
        return {**self.key(stated).as_json(), **self.facts}

    @property
    def convention_words(self) -> str:
        """The name of the convention, and the known libraries that make it another one to a baseline."""
        added = ", ".join(sorted(self.runs[0].libraries))
        return self.convention.name + (f" with {added}" if added else "")

    def circumstances(self, stated: Mapping[str, Label]) -> Mapping[str, object]:
        """By what two runs are compared that are both measured now: by one table of libraries, whichever ran."""
        return {**self.identity(stated), "convention": self.convention.fingerprint()}

    def profilers(self) -> tuple[str, ...]:
        """The versions of the profiler that wrote the traces."""
        return profilers_of(self.runs)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The traces of all captures."""
        return tuple(trace.path for capture in self.runs for trace in capture.traces)

    @property
    def measured_in(self) -> frozenset[Path]:
        """The files of measurements of all captures."""
        return frozenset(path.resolve() for capture in self.runs for path in capture.measurements.paths)

    @property
    def measured_names(self) -> frozenset[str]:
        """What was measured outside of the traces. Raises TraceError for files that cannot be meant."""
        return frozenset(name for capture in self.runs for name in capture.measurements.names)

    def close(self) -> None:
        """Let the files go."""
        for capture in self.runs:
            capture.close()


def _capture_rows(capture: Run, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None, empty: Table) -> Table:
    if metric.scope is Scope.CAPTURE:
        return _of_ranks(replace(empty, rows=tuple(metric.rows(capture))), ranks)
    if not capture.traces:
        raise NothingMeasured(f"{metric.name} needs a trace, and none is given beside {capture.measurements.shown}")
    if metric.scope is Scope.RUN:
        return _run_rows(capture, metric, spec, ranks, empty)
    own = [_rank_rows(metric, windows, empty) for windows in capture.measured(spec).filled(ranks).values()]
    return replace(
        empty,
        rows=tuple(row for table in own for row in table.rows),
        missing=tuple(lost for table in own for lost in table.missing),
        without=_why(own, empty),
    )


def _rank_rows(metric: Metric, windows: Sequence[RankWindow], empty: Table) -> Table:
    each = [_measured(metric, window, empty) for window in windows]
    if metric.window_by and len(each) > 1:
        by = [_measured(METRICS[metric.window_by], window, empty) for window in windows]
        return _of_one(list(zip(each, by, strict=True)), empty)
    return _combined(metric, each, "windows", empty)


def _run_rows(capture: Run, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None, empty: Table) -> Table:
    """The rows of all ranks together; of some ranks those that are theirs, where the metric has the dimension."""
    each = [_measured(metric, window, empty) for window in capture.measured(spec).together()]
    return _of_ranks(_combined(metric, each, "windows", empty), ranks)


def _of_ranks(found: Table, ranks: frozenset[int] | None) -> Table:
    """The rows of some ranks, where rows are of ranks."""
    if ranks is None or "rank" not in found.dimensions:
        return found
    at = found.dimensions.index("rank")
    rows = tuple(row for row in found.rows if row.labels[at] in ranks)
    unseen = {labels: error for labels, error in found.unseen.items() if labels[at] in ranks}
    missing = tuple(lost for lost in found.missing if lost[0][at] in ranks)
    return replace(found, rows=rows, missing=missing, unseen=unseen)


def _measured(metric: Metric, window: RankWindow | RunWindow, empty: Table) -> Table:
    """The rows of one window, or why it has none."""
    try:
        found = list(metric.function(window))
    except NoRows as nothing:
        return replace(empty, without=str(nothing))
    rows = tuple(row for row in found if isinstance(row, Row))
    unseen = dict(row for row in found if isinstance(row, Unseen))
    without = UNSEEN if unseen and not rows else empty.without
    return replace(empty, rows=rows, unseen=unseen, without=without)


def _why(each: Sequence[Table], empty: Table) -> str:
    """What one of them says of having no row, before what is true of the metric anywhere."""
    return next((one.without for one in each if one.without != empty.without), empty.without)


def _combined(metric: Metric, each: Sequence[Table], of_what: str, empty: Table) -> Table:
    """Medians row by row; a row that one of them lacks is missing."""
    if len(each) == 1:
        return each[0]
    values: dict[tuple[Label, ...], list[Value]] = {}
    missing = {labels: why for one in each for labels, why in one.missing}
    for one in each:
        for labels, value in one.rows:
            values.setdefault(labels, []).append(value)
    unseen: dict[tuple[Label, ...], Value] = {}
    for one in each:
        unseen |= {labels: max(error, unseen.get(labels, 0)) for labels, error in one.unseen.items()}
    rows = []
    for labels, found in sorted(values.items(), key=lambda item: [label_key(label) for label in item[0]]):
        if labels in unseen:  # of some of them no value is known, so no median is
            continue
        if metric.sparse:
            rows.append(Row(labels, median([*found, *[0] * (len(each) - len(found))])))
        elif len(found) < len(each):
            missing.setdefault(labels, f"only {len(found)} of {len(each)} {of_what} have this row")
        elif metric.unit is Unit.HASH and len(set(found)) > 1:
            missing.setdefault(labels, f"it is not the same in all {len(each)} {of_what}")
        elif labels not in missing:
            rows.append(Row(labels, median(found)))
    without = _why(each, empty)
    return replace(empty, rows=tuple(rows), missing=tuple(missing.items()), unseen=unseen, without=without)


NOT_IN_THAT_WINDOW = "the window whose budget stands for all has no such row"
"""Why a rank has no row of a budget, where other windows have some."""


def _of_one(each: Sequence[tuple[Table, Table]], empty: Table, *, captures: bool = False) -> Table:
    """Of each rank the rows of one of the tables, whose row beside it is the lower median of those of the rank: rows
    that add up in each table add up here. What only other windows of the rank have is missing if that one has nothing;
    of captures each must have rows of the rank.
    """
    by_rank: dict[Label, list[tuple[Value, int]]] = {}
    for number, (_, by) in enumerate(each):
        for (rank,), value in by.rows:
            by_rank.setdefault(rank, []).append((value, number))
    rows: list[Row] = []
    missing = {labels: why for table, _ in each for labels, why in table.missing}
    for rank, found in sorted(by_rank.items(), key=lambda item: label_key(item[0])):
        own = [[row for row in table.rows if row.labels[0] == rank] for table, _ in each]
        here, chosen = sum(map(bool, own)), own[sorted(found)[(len(found) - 1) // 2][1]]
        if chosen and (here == len(each) or not captures):
            rows += chosen
            continue
        why = f"only {here} of {len(each)} captures have this row" if captures else NOT_IN_THAT_WINDOW
        missing |= {row.labels: missing.get(row.labels, why) for some in own for row in some}
    without = _why([table for table, _ in each], empty)
    return replace(empty, rows=tuple(rows), missing=tuple(missing.items()), without=without)


NO_STREAM = "no communication kernel has a stream of its own in the window"
NO_ROW = "nothing of the kind is in the window"


class Available(NamedTuple):
    """The metrics that one command shows: how many have rows, and those that have none by the reason."""

    view: str
    metrics: int
    with_rows: int
    without: Mapping[str, Sequence[str]]


def available(captures: Captures, spec: WindowSpec) -> Iterator[Available]:
    """Every metric of traces, by the command that shows it, but those that a gate file has to state something for."""
    asked = [metric for metric in METRICS.values() if not metric.outside and metric.needs is None]
    for view, metrics in grouped((metric.view, metric) for metric in asked).items():
        reasons = [(reason, metric.name) for metric in metrics if (reason := _why_none(captures, metric, spec))]
        yield Available(view, len(metrics), len(metrics) - len(reasons), grouped(reasons))


def _why_none(captures: Captures, metric: Metric, spec: WindowSpec) -> str:
    """Why a metric has no row; empty where it has one."""
    try:
        table = captures.rows(metric, spec)
    except NsysError as error:
        return str(error).removeprefix(f"{captures.paths[0]}: ")
    if table.rows:
        return ""
    missing = next((why for _, why in table.missing), "")
    return table.without or missing or (NO_STREAM if metric.of is Of.COMMUNICATION else NO_ROW)
