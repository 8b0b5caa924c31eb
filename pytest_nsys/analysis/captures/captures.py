"""How are metrics measured on a run of one or several captures that is opened once and asked many times?

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
    """Holds the coordinates of each rank by its number, and the size of each axis."""

    coordinates: Coordinates
    sizes: Mapping[str, int]


class LeftOut(NamedTuple):
    """Describes a capture that is left out as a hiccup: its index among those that were taken, and the line that names
    it.
    """

    place: int
    line: str


class Captures:
    """Measures the captures of one program under one convention. Raises TraceError where they cannot be judged."""

    def __init__(self, runs: Sequence[Run], left_out: LeftOut | None = None) -> None:
        """Take the captures that count; ``omitted_capture`` is one that was taken beside them and does not count."""
        self.runs = tuple(runs)
        self.left_out = left_out
        self.convention = runs[0].convention

    @property
    def places(self) -> tuple[int, ...]:
        """The index of each capture among those that were taken."""
        omitted_index = self.left_out.place if self.left_out is not None else None
        return tuple(index for index in range(self.taken) if index != omitted_index)

    @property
    def taken(self) -> int:
        """The number of captures that were taken, one that is left out included."""
        # By this a rule is chosen: leaving one out must not move a run to the rule for fewer captures.
        return len(self.runs) + (self.left_out is not None)

    @kept
    def leave_out(self, place: int, why: str) -> Captures:
        """Return the captures without one of them, whose files stay open with these. Nothing of it counts any more."""
        remaining_runs = [run for n, run in enumerate(self.runs) if n != place]
        line = f"{self._named(place)} is a hiccup, and left out of every row: {why}"
        return Captures(remaining_runs, LeftOut(place, from_here(line)))

    def _named(self, place: int) -> str:
        return f"capture {place + 1} of {len(self.runs)} ({self.runs[place].path.name})"

    @property
    def began(self) -> datetime | None:
        """The time when the first trace of the first capture began, in UTC; None where no trace has it."""
        start_times = [facts.started_ns for facts in self.runs[0].facts if facts.started_ns is not None]
        try:
            return datetime.fromtimestamp(min(start_times) // _SECOND_NS, UTC) if start_times else None
        except (ValueError, OverflowError, OSError):
            return None

    def spec(self, window: str, span: Span | None = None, kernels: KernelsMode | None = None) -> WindowSpec:
        """Make a window spec whose open fields are as the convention has them."""
        return spec_under(self.convention, window, span, kernels)

    def measure(self, request: Request) -> MetricTable:
        """Return the requested rows, of traces that are good enough for them. Raises TraceError where they are not.

        Everything that is judged, stored, compared or read ahead is measured here.
        """
        metric = self.metric(request.metric or "")
        if request.spec.whole_run and not metric.outside:
            # All calls of a run take most memory at once: they are looked at before anything is derived of its kernels.
            with contextlib.suppress(NsysError):
                self._errors(request.bounds, request.spec, metric)
        table = self.rows(metric, request.spec)  # an empty window says more than what is wrong with it
        if metric.outside:  # with a trace, its ranks are those that have a value
            world = request.bounds.world if not self.paths else None
            return replace(table, coordinates={**{rank: {} for rank in range(world or 0)}, **table.coordinates})
        if errors := self._errors(request.bounds, request.spec, metric):
            raise TraceError(GOES_ON.join(errors))
        self.refuse_twins(request.spec)
        return table

    @kept
    def metric(self, name: str) -> Metric:
        """Return the metric of a name, with what the captures say of it.

        Raises NothingMeasured where a capture has no measurement of that name, TraceError where they are of two kinds.
        """
        if not name.startswith(f"{MEASURED} "):
            return known_metric(name)
        measured_name = name.removeprefix(f"{MEASURED} ")
        first_kind, *other_kinds = ((run.measurements, run.measurements.kind(measured_name)) for run in self.runs)
        for files, kind in other_kinds:
            if kind != first_kind[1]:
                raise TraceError(
                    f"{files.shown}: {measured_name} has {kind}, and in {first_kind[0].shown} {first_kind[1]}"
                )
        unit, better, dimensions = first_kind[1]
        return measured(measured_name, unit, Better(better) if better else None, dimensions)

    @kept
    def refuse_twins(self, spec: WindowSpec) -> None:
        """Check that no two captures, and no two ranks of one, are copies of one trace. Raises UsageMistake where they
        are.
        """
        # The values of one trace in two files would scatter by nothing.
        groups = [] if spec.outside else [run.measured(spec) for run in self.runs]
        for first, second in combinations_with_replacement(groups, 2):
            for pair in find_equal_ranks(first, second):
                paths = " and ".join(str(track.rank.trace) for track in pair)
                evidence = f"{counted(len(pair[0].kernels), 'kernel')} are equal to the nanosecond"
                unit = "rank" if first is second else "sample"
                raise UsageMistake(f"{paths} are the same capture: {evidence}; one trace is one {unit}")

    @kept
    def rows(self, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None = None) -> MetricTable:
        """Return the rows of a metric, of all ranks or of some: medians over the captures, each the median over its
        windows.
        """
        capture_tables = self.each(metric, spec, ranks)
        if metric.window_by and len(capture_tables) > 1:
            selecting_tables = self.each(METRICS[metric.window_by], spec, ranks)
            table = of_one(list(zip(capture_tables, selecting_tables, strict=True)), self._table(metric), captures=True)
        else:
            table = combined(metric, capture_tables, "captures", self._table(metric))
        # A convention that says its stages itself has them: where they are lost, no other row stands for them.
        counted_table = count_unstaged(table) if self.convention.libraries else table
        if ranks is None or counted_table is table:
            return counted_table
        # Some ranks alone do not say whether the run has stages.
        with contextlib.suppress(NsysError):  # a rank that nobody asked for has no window
            return replace(table, every_stage=self.rows(metric, spec).every_stage)
        return table

    @kept
    def each(self, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None = None) -> Sequence[MetricTable]:
        """Return the rows of a metric in each capture."""
        empty_table = self._table(metric)
        if metric.scope is not Scope.CAPTURE and not spec.outside:
            check_captures({"the captures have": self.runs}, spec)
        return [_capture_rows(capture, metric, spec, ranks, empty_table) for capture in self.runs]

    def unordered(self, metric: Metric, spec: WindowSpec) -> tuple[str, ...]:
        """List the streams that keep no order in any capture, where that changes what the metric means."""
        if not metric.by_order:
            return ()
        tracks = [track for run in self.runs if run.traces for track in run.measured(spec).tracks.values()]
        places = {(track.rank.number, stream.number) for track in tracks for stream in track.unordered}
        return tuple(f"rank {rank} stream {stream}" for rank, stream in sorted(places))

    def _table(self, metric: Metric) -> MetricTable:
        """Return a table of the metric without rows."""
        sizes, coordinates = self.mesh.sizes, self.mesh.coordinates
        every_stage = metric.every_stage or self.convention.stage is None
        return MetricTable(metric.dimensions, (), coordinates, sizes, every_stage, metric.without)

    @kept
    def sequences(self, spec: WindowSpec) -> Mapping[int, tuple[str, ...]]:
        """Return the sequence of kernels that each fingerprint of the windows stands for."""
        windows = (
            window
            for run in self.runs
            for windows_of_rank in run.measured(spec).filled().values()
            for window in windows_of_rank
        )
        return {fingerprint: sequence for window in windows for fingerprint, sequence in sequences(window).items()}

    @cached_property
    def mesh(self) -> Mesh:
        """The coordinates of each rank, as the setup labels say."""
        run = self.runs[0]
        return Mesh({rank.number: rank.coordinates for rank in run.ranks}, run.sizes)

    def stored(self, metric: Metric, rows: Mapping[tuple[Label, ...], Value]) -> MetricTable:
        """Build a table of a baseline's rows as a gate sees them, with its ranks at the coordinates that this run's
        have.
        """
        table = replace(self._table(metric), rows=tuple(starmap(Row, rows.items())), patchy=metric.over_clocks)
        return count_unstaged(table)

    @kept
    def windows(self, spec: WindowSpec) -> tuple[UsedWindow, ...]:
        """List the windows that were measured."""
        return tuple(
            UsedWindow(number, rank, window, spec.by_launch, spec.kind)
            for number, capture in (() if spec.outside else zip(self.places, self.runs, strict=True))
            for rank, windows in sorted(capture.measured(spec).windows.items())
            for window in windows
        )

    def middle_windows(self, spec: WindowSpec, rank: Label) -> Iterator[RankWindow]:
        """Yield the middle one of a rank's windows, for each capture."""
        for capture in () if spec.outside else self.runs:
            windows = capture.measured(spec).ranks.get(rank, ()) if isinstance(rank, int) else ()
            yield from windows[len(windows) // 2 :][:1]

    @kept
    def notes(self, spec: WindowSpec, *metrics: Metric, bounds: Bounds = NO_BOUNDS) -> tuple[Note, ...]:
        """List what a person should know about the measurements of these metrics."""
        notes = [fact.note for fact in self.facts_about(spec, bounds, *(metrics or (METRICS["idle_ns"],)))]
        for find_notes in dict.fromkeys(metric.about for metric in metrics):
            notes += find_notes(self.runs, spec) if find_notes else ()
        notes += [Note(line, True) for metric in metrics for line in self.outlying(metric, spec)]
        notes += [Note(self.left_out.line)] if self.left_out is not None else []
        return merged([note._replace(text=from_here(note.text)) for note in notes])

    def notes_of(self, spec: WindowSpec, *names: str) -> Sequence[Note]:
        """List the notes of facts with these names alone; none for a run without kernels."""
        with contextlib.suppress(NothingMeasured):
            facts_by_run = [facts_about(Ground(run, spec, METRICS["idle_ns"]), names) for run in self.runs]
            return merged([fact.note for facts in facts_by_run for fact in facts])
        return ()

    @kept
    def facts_about(self, spec: WindowSpec, bounds: Bounds, *metrics: Metric) -> Sequence[Fact]:
        """List the facts that the measurements of these metrics depend on, the heaviest first."""
        runs = () if spec.outside else self.runs
        contexts = [Ground(run, spec, metric, bounds) for run in runs for metric in metrics]
        all_facts = dict.fromkeys(fact for context in contexts for fact in self._facts_of(context))
        # Of several captures of one step each the scatter is known.
        relevant_facts = (fact for fact in all_facts if len(runs) == 1 or fact.name != "single_step")
        heaviest = {fact.sentence: fact for fact in sorted(relevant_facts, key=lambda fact: fact.weight)}
        return sorted(heaviest.values(), key=lambda fact: -fact.weight)

    @kept
    def _facts_of(self, ground: Ground) -> Sequence[Fact]:
        """Find all facts in one context: errors come before a verdict, notes stand beside it."""
        return tuple(facts_about(ground))

    def outlying(self, metric: Metric, spec: WindowSpec) -> tuple[str, ...]:
        """Describe the captures that lie far from the others, a line each: their median hides it."""
        if metric.unit == HASH or len(self.runs) < FEWEST or self.left_out is not None:
            return ()
        rows_by_capture = [dict(table.rows) for table in self.each(metric, spec)]

        def format_row(labels: tuple[Label, ...]) -> str:
            return f"{place_words(zip(metric.dimensions, labels, strict=True))} {metric.name}".strip()

        return tuple(
            f"{self._named(outlier.capture)}: {outlier.describe(format_row(outlier.key), metric.unit)}"
            for outlier in find_outliers(rows_by_capture)
        )

    @kept
    def _errors(self, bounds: Bounds, spec: WindowSpec, metric: Metric) -> Sequence[str]:
        """Find why the traces are not good enough to judge a metric: a line for each crossed bound."""
        is_several = len(self.runs) > 1
        contexts = ((run.path, Ground(run, spec, metric, bounds)) for run in self.runs)
        facts = ((path, fact) for path, context in contexts for fact in self._facts_of(context))
        lines = ((path, fact.error) for path, fact in facts if fact.weight is Weight.ERROR)
        return [f"{path}: {line}" if is_several else line for path, line in lines]

    @cached_property
    def gpu_models(self) -> Mapping[int, str]:
        """The GPU model of each rank for which the traces have it, several joined by ``+``."""
        models_by_rank = grouped(
            (rank, model) for run in self.runs for rank, models in run.gpu_models.items() for model in models
        )
        return {rank: " + ".join(sorted({*models})) for rank, models in models_by_rank.items()}

    def key(self, stated: Mapping[str, Label]) -> RunKey:
        """Return what makes this run comparable to another; the labels are what the gate file states where the trace
        does not.
        """
        return self._key(tuple(sorted(stated.items())))

    @kept
    def _key(self, stated: tuple[tuple[str, Label], ...]) -> RunKey:
        return key_of(self.runs, dict(stated))

    @cached_property
    def facts(self) -> Facts:
        """The circumstances that are compared but do not name a baseline."""
        return facts_of(self.runs)

    def identity(self, stated: Mapping[str, Label]) -> Mapping[str, Any]:
        """Return what this run has to share with a stored one to be compared with it, by key."""
        return {**self.key(stated).as_json(), **self.facts}

    @property
    def convention_words(self) -> str:
        """The name of the convention, and the known libraries that make it another one to a baseline."""
        libraries = ", ".join(sorted(self.runs[0].libraries))
        return self.convention.name + (f" with {libraries}" if libraries else "")

    def circumstances(self, stated: Mapping[str, Label]) -> Mapping[str, object]:
        """Return what two runs measured now have to share, by key: one table of libraries, whichever ran."""
        return {**self.identity(stated), "convention": self.convention.fingerprint()}

    def profilers(self) -> tuple[str, ...]:
        """List the versions of the profiler that wrote the traces."""
        return profilers_of(self.runs)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of the traces of all captures."""
        return tuple(trace.path for capture in self.runs for trace in capture.traces)

    @property
    def measured_in(self) -> frozenset[Path]:
        """The files of the measurements of all captures."""
        return frozenset(path.resolve() for capture in self.runs for path in capture.measurements.paths)

    @property
    def measured_names(self) -> frozenset[str]:
        """The names of what was measured outside of the traces. Raises TraceError for files that cannot be meant."""
        return frozenset(name for capture in self.runs for name in capture.measurements.names)

    def close(self) -> None:
        """Close the files of all captures."""
        for capture in self.runs:
            capture.close()


def _capture_rows(
    capture: Run, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None, empty: MetricTable
) -> MetricTable:
    """Measure a metric in one capture, of all ranks or of some. Raises NothingMeasured where it has no trace."""
    if metric.scope is Scope.CAPTURE:
        return of_ranks(replace(empty, rows=tuple(metric.rows(capture))), ranks)
    if not capture.traces:
        raise NothingMeasured(f"{metric.name} needs a trace, and none is given beside {capture.measurements.shown}")
    if (missing_reason := capture.steps.lacks(spec.kind)) is not None:
        return replace(empty, without=missing_reason)
    if metric.scope is Scope.RUN:
        return _run_rows(capture, metric, spec, ranks, empty)
    rank_tables = [_rank_rows(metric, windows, empty) for windows in capture.measured(spec).filled(ranks).values()]
    table = of_all(rank_tables, empty)
    if metric.of is not Of.COMMUNICATION or table.rows or table.without:
        return table
    return replace(table, without=sharing_in(capture.measured(spec)).why_not_in_own)


def _rank_rows(metric: Metric, windows: Sequence[RankWindow], empty: MetricTable) -> MetricTable:
    window_tables = [_measured(metric, window, empty) for window in windows]
    if metric.window_by and len(window_tables) > 1:
        selecting_tables = [_measured(METRICS[metric.window_by], window, empty) for window in windows]
        return of_one(list(zip(window_tables, selecting_tables, strict=True)), empty)
    return combined(metric, window_tables, "windows", empty)


def _run_rows(
    capture: Run, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None, empty: MetricTable
) -> MetricTable:
    """Measure a metric of all ranks together; of some ranks return the rows that are theirs, where it has that
    dimension.
    """
    # Kernels are summed over the ranks that are asked for, as a sum of all tells nothing of one of them.
    summed_ranks = ranks if metric.of is Of.FAMILIES else None
    window_tables = [_measured(metric, window, empty) for window in capture.measured(spec).together(summed_ranks)]
    return of_ranks(combined(metric, window_tables, "windows", empty), ranks)


def _measured(metric: Metric, window: RankWindow | RunWindow, empty: MetricTable) -> MetricTable:
    """Return the rows of one window, or the reason why it has none."""
    try:
        results = list(metric.all_rows(window))
    except NoRows as error:
        return replace(empty, without=str(error))
    rows = tuple(row for row in results if isinstance(row, Row))
    unseen = dict(row for row in results if isinstance(row, Unseen))
    reason = UNSEEN if unseen and not rows else empty.without
    return replace(empty, rows=rows, unseen=unseen, without=reason)


_NO_ROW = "none in this window"


class Available(NamedTuple):
    """Counts the metrics that one command shows and those that have rows, and names those without by the reason."""

    view: str  # the name of the command
    metrics: int
    with_rows: int
    without: Mapping[str, Sequence[str]]  # metrics without a row, by the reason


def available(captures: Captures, spec: WindowSpec) -> Iterator[Available]:
    """Yield what each command can show of a run, leaving out metrics for which a gate file has to state something."""
    trace_metrics = [metric for metric in METRICS.values() if not metric.outside and metric.needs is None]
    for view, metrics in grouped((metric.view, metric) for metric in trace_metrics).items():
        reasons = [(reason, metric.name) for metric in metrics if (reason := why_none(captures, metric, spec))]
        yield Available(view, len(metrics), len(metrics) - len(reasons), grouped(reasons))


def why_none(captures: Captures, metric: Metric, spec: WindowSpec) -> str:
    """Return why a metric has no row; empty where it has one."""
    try:
        table = captures.rows(metric, spec)
    except NsysError as error:
        return str(error).removeprefix(f"{captures.paths[0]}: ")
    if table.rows:
        return ""
    missing_reason = next((reason for _, reason in table.missing), "")
    return table.without or missing_reason or _NO_ROW


OF_A_RUN = ("compute_absent_ns", "launches")
"""The metrics whose notes count for a run where no metric was asked for: those of its budget, and of kernels by stage.
"""


def check_captures(sides: Mapping[str, Sequence[Run]], spec: WindowSpec) -> None:
    """Check that several captures are of one kind of steps where ``spec`` leaves open which.

    ``sides`` has the captures by who has them. Raises UsageMistake where they are of several kinds.
    """
    if sum(map(len, sides.values())) > 1 and spec.kind is None and spec.picks_steps:
        of_one_kind({owner: counted_kinds(run.steps.counts for run in runs) for owner, runs in sides.items()})


def usual(run: Run, spec: WindowSpec, left_open: Collection[str]) -> WindowSpec:
    """Return the spec that a person looks at first.

    It is the given one, for the usual kind of steps where it leaves open which. For a cut it is what the cut holds,
    where that differs only in the fields that are ``open_fields``.
    """
    spec = _of_usual_kind(run, spec)
    cut_specs = [WindowSpec(*cut_spec) for facts in run.facts[:1] for cut_spec in facts.views]
    if spec in cut_specs:
        return spec
    matching_specs = [
        cut_spec
        for cut_spec in cut_specs
        if replace(spec, **{name: getattr(cut_spec, name) for name in left_open}) == cut_spec
    ]
    return _of_usual_kind(
        run,
        next((cut_spec for cut_spec in matching_specs if cut_spec.window == spec.window), [*matching_specs, spec][0]),
    )


def _of_usual_kind(run: Run, spec: WindowSpec) -> WindowSpec:
    kind = run.steps.usual if run.convention.kinds and not spec.kind and spec.picks_steps else spec.kind
    return replace(spec, kind=kind)
