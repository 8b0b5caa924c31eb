"""Runs opened once and asked many times: metric in, rows out.

Several captures of one program give rows that are medians over the captures. Whatever was read or measured is kept, so
that a second assertion, or a second gate file on the same trace, costs no reading.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import combinations_with_replacement, starmap
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.analysis.captures.duplicates import find_equal_ranks
from pytest_nsys.analysis.captures.outliers import FEWEST, find_outliers
from pytest_nsys.analysis.fact_bounds import NO_BOUNDS, Bounds
from pytest_nsys.analysis.facts.fact import Fact, Weight
from pytest_nsys.analysis.facts.ground import Ground
from pytest_nsys.analysis.facts.kinds import facts_of as facts_about
from pytest_nsys.analysis.metrics.registry import (
    MEASURED,
    METRICS,
    Better,
    Metric,
    Of,
    Request,
    Scope,
    known_metric,
    measured,
)
from pytest_nsys.analysis.metrics.sharing import sharing_in
from pytest_nsys.analysis.metrics.structure import sequences
from pytest_nsys.analysis.metrics.table import (
    UNSEEN,
    Coordinates,
    MetricTable,
    combined,
    count_unstaged,
    of_all,
    of_one,
    of_ranks,
)
from pytest_nsys.analysis.windows.circumstances import Facts, RunKey, facts_of, key_of, profilers_of
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, RunWindow
from pytest_nsys.analysis.windows.spans import UsedWindow, WindowSpec, spec_under
from pytest_nsys.analysis.windows.step_kinds import counted_kinds, of_one_kind
from pytest_nsys.core.errors import GOES_ON, NoRows, NothingMeasured, NsysError, TraceError, UsageMistake
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.model import KernelsMode, Label, Note, Row, Span, Unseen, Value, merged
from pytest_nsys.core.units import HASH
from pytest_nsys.core.words import counted, from_here, place_words

_SECOND_NS = 1_000_000_000


class Mesh(NamedTuple):
    """Coordinates by rank number, and the size of each axis."""

    coordinates: Coordinates
    sizes: Mapping[str, int]


class LeftOut(NamedTuple):
    """A capture that is a hiccup: its place among those that were taken, and the line that names it."""

    place: int
    line: str


class Captures:
    """The captures of one program under one convention. Raises TraceError where they cannot be judged."""

    def __init__(self, runs: Sequence[Run], left_out: LeftOut | None = None) -> None:
        """Take the captures that count; ``left_out`` is one that was taken beside them and does not."""
        self.runs = tuple(runs)
        self.left_out = left_out
        self.convention = runs[0].convention

    @property
    def places(self) -> tuple[int, ...]:
        """The place of each capture among those that were taken."""
        missing = self.left_out.place if self.left_out is not None else None
        return tuple(place for place in range(self.taken) if place != missing)

    @property
    def taken(self) -> int:
        """How many captures were taken, one that is left out included: by this a rule is chosen."""
        return len(self.runs) + (self.left_out is not None)

    @kept
    def leave_out(self, place: int, why: str) -> Captures:
        """Return the captures without one, whose files stay open with these. Nothing of it counts any more."""
        others = [run for n, run in enumerate(self.runs) if n != place]
        line = f"{self._named(place)} is a hiccup, and left out of every row: {why}"
        return Captures(others, LeftOut(place, from_here(line)))

    def _named(self, place: int) -> str:
        return f"capture {place + 1} of {len(self.runs)} ({self.runs[place].path.name})"

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

    def measure(self, request: Request) -> MetricTable:
        """The rows that were asked for, of traces that are good enough for them. Raises TraceError where they are not.

        Everything that is judged, stored, compared or read ahead is measured here.
        """
        metric = self.metric(request.metric or "")
        if request.spec.whole_run and not metric.outside:
            # All calls of a run take most memory at once: they are looked at before anything is derived of its kernels.
            with contextlib.suppress(NsysError):
                self._errors(request.bounds, request.spec, metric)
        found = self.rows(metric, request.spec)  # an empty window says more than what is wrong with it
        if metric.outside:  # with a trace, its ranks are those that have a value
            world = request.bounds.world if not self.paths else None
            return replace(found, coordinates={**{rank: {} for rank in range(world or 0)}, **found.coordinates})
        if errors := self._errors(request.bounds, request.spec, metric):
            raise TraceError(GOES_ON.join(errors))
        self.refuse_twins(request.spec)
        return found

    @kept
    def metric(self, name: str) -> Metric:
        """The metric of a name, with what the captures say of it.

        Raises NothingMeasured where a capture has no measurement of that name, TraceError where they are of two kinds.
        """
        if not name.startswith(f"{MEASURED} "):
            return known_metric(name)
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
        groups = [] if spec.outside else [run.measured(spec) for run in self.runs]
        for one, other in combinations_with_replacement(groups, 2):
            for pair in find_equal_ranks(one, other):
                paths = " and ".join(str(track.rank.trace) for track in pair)
                how = f"{counted(len(pair[0].kernels), 'kernel')} are equal to the nanosecond"
                unit = "rank" if one is other else "sample"
                raise UsageMistake(f"{paths} are the same capture: {how}; one trace is one {unit}")

    @kept
    def rows(self, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None = None) -> MetricTable:
        """The rows of a metric, of all ranks or of some: medians over captures, each the median over its windows."""
        each = self.each(metric, spec, ranks)
        if metric.window_by and len(each) > 1:
            by = self.each(METRICS[metric.window_by], spec, ranks)
            table = of_one(list(zip(each, by, strict=True)), self._table(metric), captures=True)
        else:
            table = combined(metric, each, "captures", self._table(metric))
        # A convention that says its stages itself has them: where they are lost, no other row stands for them.
        counting = count_unstaged(table) if self.convention.libraries else table
        if ranks is None or counting is table:
            return counting
        # Some ranks alone do not say whether the run has stages.
        with contextlib.suppress(NsysError):  # a rank that nobody asked for has no window
            return replace(table, every_stage=self.rows(metric, spec).every_stage)
        return table

    @kept
    def each(self, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None = None) -> Sequence[MetricTable]:
        """The rows of a metric in each capture."""
        empty = self._table(metric)
        if metric.scope is not Scope.CAPTURE and not spec.outside:
            check_captures({"the captures have": self.runs}, spec)
        return [_capture_rows(capture, metric, spec, ranks, empty) for capture in self.runs]

    def unordered(self, metric: Metric, spec: WindowSpec) -> tuple[str, ...]:
        """The streams that keep no order in any capture, where that changes what the metric means."""
        if not metric.by_order:
            return ()
        tracks = [track for run in self.runs if run.traces for track in run.measured(spec).tracks.values()]
        places = {(track.rank.number, stream.number) for track in tracks for stream in track.unordered}
        return tuple(f"rank {rank} stream {stream}" for rank, stream in sorted(places))

    def _table(self, metric: Metric) -> MetricTable:
        """A table of the metric without a row."""
        sizes, where = self.mesh.sizes, self.mesh.coordinates
        every_stage = metric.every_stage or self.convention.stage is None
        return MetricTable(metric.dimensions, (), where, sizes, every_stage, metric.without)

    @kept
    def sequences(self, spec: WindowSpec) -> Mapping[int, tuple[str, ...]]:
        """What the fingerprints of all windows stand for."""
        windows = (window for run in self.runs for own in run.measured(spec).filled().values() for window in own)
        return {h: each for window in windows for h, each in sequences(window).items()}

    @cached_property
    def mesh(self) -> Mesh:
        """Where each rank stands, as the setup labels say."""
        run = self.runs[0]
        return Mesh({rank.number: rank.coordinates for rank in run.ranks}, run.sizes)

    def stored(self, metric: Metric, rows: Mapping[tuple[Label, ...], Value]) -> MetricTable:
        """Rows of a baseline as a gate sees them, its ranks standing where those of this run do."""
        table = replace(self._table(metric), rows=tuple(starmap(Row, rows.items())), patchy=metric.over_clocks)
        return count_unstaged(table)

    @kept
    def windows(self, spec: WindowSpec) -> tuple[UsedWindow, ...]:
        """The windows that were measured."""
        return tuple(
            UsedWindow(number, rank, window, spec.by_launch, spec.kind)
            for number, capture in (() if spec.outside else zip(self.places, self.runs, strict=True))
            for rank, windows in sorted(capture.measured(spec).windows.items())
            for window in windows
        )

    def middle_windows(self, spec: WindowSpec, rank: Label) -> Iterator[RankWindow]:
        """The window in the middle of those of a rank, in each capture."""
        for capture in () if spec.outside else self.runs:
            windows = capture.measured(spec).ranks.get(rank, ()) if isinstance(rank, int) else ()
            yield from windows[len(windows) // 2 :][:1]

    @kept
    def notes(self, spec: WindowSpec, *metrics: Metric, bounds: Bounds = NO_BOUNDS) -> tuple[Note, ...]:
        """What a person should know about the measurements of these metrics."""
        found = [fact.note for fact in self.facts_about(spec, bounds, *(metrics or (METRICS["idle_ns"],)))]
        for about in dict.fromkeys(metric.about for metric in metrics):
            found += about(self.runs, spec) if about else ()
        found += [Note(line, True) for metric in metrics for line in self.outlying(metric, spec)]
        found += [Note(self.left_out.line)] if self.left_out is not None else []
        return merged([note._replace(text=from_here(note.text)) for note in found])

    def notes_of(self, spec: WindowSpec, *names: str) -> Sequence[Note]:
        """Notes of facts of these names alone, for what hangs on no more; none of a run without kernels."""
        with contextlib.suppress(NothingMeasured):
            each = [facts_about(Ground(run, spec, METRICS["idle_ns"]), names) for run in self.runs]
            return merged([fact.note for facts in each for fact in facts])
        return ()

    @kept
    def facts_about(self, spec: WindowSpec, bounds: Bounds, *metrics: Metric) -> Sequence[Fact]:
        """The facts that the measurements of these metrics hang on, the heaviest first."""
        runs = () if spec.outside else self.runs
        grounds = [Ground(run, spec, metric, bounds) for run in runs for metric in metrics]
        found = dict.fromkeys(fact for ground in grounds for fact in self._facts_of(ground))
        # Of several captures of one step each the scatter is known.
        shown = (fact for fact in found if len(runs) == 1 or fact.name != "single_step")
        heaviest = {fact.sentence: fact for fact in sorted(shown, key=lambda fact: fact.weight)}
        return sorted(heaviest.values(), key=lambda fact: -fact.weight)

    @kept
    def _facts_of(self, ground: Ground) -> Sequence[Fact]:
        """All facts that hang on a ground, which are errors before a verdict and notes beside it."""
        return tuple(facts_about(ground))

    def outlying(self, metric: Metric, spec: WindowSpec) -> tuple[str, ...]:
        """The captures that lie far from the others, a line each: their median hides it."""
        if metric.unit == HASH or len(self.runs) < FEWEST or self.left_out is not None:
            return ()
        each = [dict(one.rows) for one in self.each(metric, spec)]

        def row(labels: tuple[Label, ...]) -> str:
            return f"{place_words(zip(metric.dimensions, labels, strict=True))} {metric.name}".strip()

        return tuple(
            f"{self._named(far.capture)}: {far.describe(row(far.key), metric.unit)}" for far in find_outliers(each)
        )

    @kept
    def _errors(self, bounds: Bounds, spec: WindowSpec, metric: Metric) -> Sequence[str]:
        """Why the traces are not good enough to judge a metric: a line for each crossed bound."""
        several = len(self.runs) > 1
        grounds = ((run.path, Ground(run, spec, metric, bounds)) for run in self.runs)
        found = ((path, fact) for path, ground in grounds for fact in self._facts_of(ground))
        lines = ((path, fact.error) for path, fact in found if fact.weight is Weight.ERROR)
        return [f"{path}: {line}" if several else line for path, line in lines]

    @cached_property
    def gpu_models(self) -> Mapping[int, str]:
        """The model of the GPU of each rank of which the traces say it, several joined by ``+``."""
        each = grouped(
            (rank, model) for run in self.runs for rank, models in run.gpu_models.items() for model in models
        )
        return {rank: " + ".join(sorted({*models})) for rank, models in each.items()}

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


def _capture_rows(
    capture: Run, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None, empty: MetricTable
) -> MetricTable:
    if metric.scope is Scope.CAPTURE:
        return of_ranks(replace(empty, rows=tuple(metric.rows(capture))), ranks)
    if not capture.traces:
        raise NothingMeasured(f"{metric.name} needs a trace, and none is given beside {capture.measurements.shown}")
    if (lacking := capture.steps.lacks(spec.kind)) is not None:
        return replace(empty, without=lacking)
    if metric.scope is Scope.RUN:
        return _run_rows(capture, metric, spec, ranks, empty)
    own = [_rank_rows(metric, windows, empty) for windows in capture.measured(spec).filled(ranks).values()]
    found = of_all(own, empty)
    if metric.of is not Of.COMMUNICATION or found.rows or found.without:
        return found
    return replace(found, without=sharing_in(capture.measured(spec)).why_not_in_own)


def _rank_rows(metric: Metric, windows: Sequence[RankWindow], empty: MetricTable) -> MetricTable:
    each = [_measured(metric, window, empty) for window in windows]
    if metric.window_by and len(each) > 1:
        by = [_measured(METRICS[metric.window_by], window, empty) for window in windows]
        return of_one(list(zip(each, by, strict=True)), empty)
    return combined(metric, each, "windows", empty)


def _run_rows(
    capture: Run, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None, empty: MetricTable
) -> MetricTable:
    """The rows of all ranks together; of some ranks those that are theirs, where the metric has the dimension. Kernels
    are summed over the ranks that are asked for, as a sum tells nothing of one of them.
    """
    summed = ranks if metric.of is Of.FAMILIES else None
    each = [_measured(metric, window, empty) for window in capture.measured(spec).together(summed)]
    return of_ranks(combined(metric, each, "windows", empty), ranks)


def _measured(metric: Metric, window: RankWindow | RunWindow, empty: MetricTable) -> MetricTable:
    """The rows of one window, or why it has none."""
    try:
        found = list(metric.all_rows(window))
    except NoRows as nothing:
        return replace(empty, without=str(nothing))
    rows = tuple(row for row in found if isinstance(row, Row))
    unseen = dict(row for row in found if isinstance(row, Unseen))
    without = UNSEEN if unseen and not rows else empty.without
    return replace(empty, rows=rows, unseen=unseen, without=without)


_NO_ROW = "none in this window"


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
        reasons = [(reason, metric.name) for metric in metrics if (reason := why_none(captures, metric, spec))]
        yield Available(view, len(metrics), len(metrics) - len(reasons), grouped(reasons))


def why_none(captures: Captures, metric: Metric, spec: WindowSpec) -> str:
    """Why a metric has no row; empty where it has one."""
    try:
        table = captures.rows(metric, spec)
    except NsysError as error:
        return str(error).removeprefix(f"{captures.paths[0]}: ")
    if table.rows:
        return ""
    missing = next((why for _, why in table.missing), "")
    return table.without or missing or _NO_ROW


OF_A_RUN = ("compute_absent_ns", "launches")
"""Metrics on whose ground a run stands of which nobody has asked for anything: its budget, and kernels by stage."""


def check_captures(sides: Mapping[str, Sequence[Run]], spec: WindowSpec) -> None:
    """Raises UsageMistake where several captures, by who has them, are of several kinds, and ``spec`` leaves open
    which.
    """
    if sum(map(len, sides.values())) > 1 and spec.kind is None and spec.picks_steps:
        of_one_kind({who: counted_kinds(run.steps.counts for run in each) for who, each in sides.items()})


def usual(run: Run, spec: WindowSpec, left_open: Collection[str]) -> WindowSpec:
    """What a person looks at first: the spec, of the usual kind of steps where it leaves open which; of a cut
    what it holds, where that is the spec but for the fields that are ``left_open``.
    """
    spec = _of_usual_kind(run, spec)
    held = [WindowSpec(*view) for facts in run.facts[:1] for view in facts.views]
    if spec in held:
        return spec
    fits = [view for view in held if replace(spec, **{name: getattr(view, name) for name in left_open}) == view]
    return _of_usual_kind(run, next((view for view in fits if view.window == spec.window), [*fits, spec][0]))


def _of_usual_kind(run: Run, spec: WindowSpec) -> WindowSpec:
    kind = run.steps.usual if run.convention.kinds and not spec.kind and spec.picks_steps else spec.kind
    return replace(spec, kind=kind)
