"""How are metrics measured on a run of one or several captures that is opened once and queried many times?

Several captures of one program give rows that are medians over the captures. Everything that was read or measured is
kept, so that a second assertion, or a second gate file on the same trace, reads nothing.
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

from pytest_nsys.analysis.captures.duplicates import find_ranks_with_equal_kernels
from pytest_nsys.analysis.captures.outliers import MIN_CAPTURES, find_outliers
from pytest_nsys.analysis.fact_bounds import NO_BOUNDS, Bounds
from pytest_nsys.analysis.facts.fact import Fact, Weight
from pytest_nsys.analysis.facts.kinds import measure_facts as facts_about
from pytest_nsys.analysis.facts.quality_context import QualityContext
from pytest_nsys.analysis.metrics.registry import (
    MEASURED_WORD,
    METRICS,
    Better,
    Metric,
    MetricRequest,
    MetricScope,
    MetricSource,
    get_metric,
    make_measured_metric,
)
from pytest_nsys.analysis.metrics.stream_sharing import measure_sharing
from pytest_nsys.analysis.metrics.structure import map_names_by_fingerprint
from pytest_nsys.analysis.metrics.table import (
    UNSEEN_REASON,
    Coordinates,
    MetricTable,
    choose_median_tables,
    count_unstaged,
    join_tables,
    keep_ranks,
    merge_by_median,
)
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, RunWindow
from pytest_nsys.analysis.windows.run_conditions import (
    RunConditions,
    RunKey,
    build_run_key,
    collect_run_conditions,
    list_profiler_versions,
)
from pytest_nsys.analysis.windows.step_kinds import check_single_kind, sum_kind_counts
from pytest_nsys.analysis.windows.window_selection import UsedWindow, WindowSpec, complete_window_spec
from pytest_nsys.core.errors import NEXT_LINE, NoRows, NothingMeasured, NsysError, TraceError, UsageMistake
from pytest_nsys.core.memoize import group_by_key, memoize_method
from pytest_nsys.core.model import KernelsMode, Label, Note, Row, RowBelowError, Span, Value, merge_notes
from pytest_nsys.core.text_format import format_count, format_labels, shorten_paths
from pytest_nsys.core.units import HASH

_SECOND_NS = 1_000_000_000


class Mesh(NamedTuple):
    """Holds the coordinates of each rank by its number, and the size of each axis."""

    coordinates: Coordinates
    sizes: Mapping[str, int]


class OmittedCapture(NamedTuple):
    """Describes a capture that is left out as a hiccup: its index among all captures that were taken, and a line that
    names it.
    """

    capture_index: int
    line: str


class Captures:
    """Measures the captures of one program under one convention. Raises TraceError where they cannot be judged."""

    def __init__(self, runs: Sequence[Run], omitted_capture: OmittedCapture | None = None) -> None:
        """Take the captures that count; ``omitted_capture`` was taken with them but does not count."""
        self.runs = tuple(runs)
        self.omitted_capture = omitted_capture
        self.convention = runs[0].convention

    @property
    def capture_indexes(self) -> tuple[int, ...]:
        """The index of each capture that counts among all that were taken."""
        omitted_index = self.omitted_capture.capture_index if self.omitted_capture is not None else None
        return tuple(index for index in range(self.capture_count) if index != omitted_index)

    @property
    def capture_count(self) -> int:
        """The number of captures that were taken, including an omitted one."""
        # The noise rule depends on it: an omitted capture must not move a run to the rule for fewer.
        return len(self.runs) + (self.omitted_capture is not None)

    @memoize_method
    def omit_capture(self, index: int, reason: str) -> Captures:
        """Return the captures without one of them, which no longer counts; its files stay open with the others."""
        remaining_runs = [run for n, run in enumerate(self.runs) if n != index]
        line = f"{self._describe_capture(index)} is a hiccup, and left out of every row: {reason}"
        return Captures(remaining_runs, OmittedCapture(index, shorten_paths(line)))

    def _describe_capture(self, index: int) -> str:
        return f"capture {index + 1} of {len(self.runs)} ({self.runs[index].path.name})"

    @property
    def start_time(self) -> datetime | None:
        """The time when the first trace of the first capture began, in UTC; None if no trace states it."""
        start_times = [facts.started_ns for facts in self.runs[0].facts if facts.started_ns is not None]
        try:
            return datetime.fromtimestamp(min(start_times) // _SECOND_NS, UTC) if start_times else None
        except (ValueError, OverflowError, OSError):
            return None

    def make_spec(self, window: str, span: Span | None = None, kernels: KernelsMode | None = None) -> WindowSpec:
        """Make a window spec, taking from the convention whatever is None."""
        return complete_window_spec(self.convention, window, span, kernels)

    def measure(self, request: MetricRequest) -> MetricTable:
        """Return the requested rows. Raises TraceError if the traces are not good enough for them.

        Everything that is judged, stored, compared or read ahead is measured here.
        """
        metric = self.resolve_metric(request.metric or "")
        if request.spec.is_whole_run and not metric.is_outside_trace:
            # All calls of a run need most memory, so they are read before anything is derived from its kernels.
            with contextlib.suppress(NsysError):
                self._find_errors(request.bounds, request.spec, metric)
        table = self.measure_rows(metric, request.spec)  # the error of an empty window is more useful than its facts
        if metric.is_outside_trace:  # with a trace, only its ranks may have a value
            world = request.bounds.world if not self.paths else None
            return replace(table, coordinates={**{rank: {} for rank in range(world or 0)}, **table.coordinates})
        if errors := self._find_errors(request.bounds, request.spec, metric):
            raise TraceError(NEXT_LINE.join(errors))
        self.check_no_twins(request.spec)
        return table

    @memoize_method
    def resolve_metric(self, name: str) -> Metric:
        """Return the metric with a name, completed with what the captures say about it.

        Raises NothingMeasured if a capture has no measurement of that name, TraceError if two captures have different
        kinds.
        """
        if not name.startswith(f"{MEASURED_WORD} "):
            return get_metric(name)
        measured_name = name.removeprefix(f"{MEASURED_WORD} ")
        first_kind, *other_kinds = ((run.measurements, run.measurements.find_kind(measured_name)) for run in self.runs)
        for files, kind in other_kinds:
            if kind != first_kind[1]:
                raise TraceError(
                    f"{files.paths_text}: {measured_name} has {kind}, and in {first_kind[0].paths_text} {first_kind[1]}"
                )
        unit, better, dimensions = first_kind[1]
        return make_measured_metric(measured_name, unit, Better(better) if better else None, dimensions)

    @memoize_method
    def check_no_twins(self, spec: WindowSpec) -> None:
        """Check that no two captures, and no two ranks of one capture, are copies of one trace. Raises UsageMistake
        otherwise.
        """
        # Two copies of one trace would show no scatter.
        groups = [] if spec.is_outside_trace else [run.load_windows(spec) for run in self.runs]
        for first, second in combinations_with_replacement(groups, 2):
            for pair in find_ranks_with_equal_kernels(first, second):
                paths = " and ".join(str(track.rank.trace) for track in pair)
                evidence = f"{format_count(len(pair[0].kernels), 'kernel')} are equal to the nanosecond"
                unit = "rank" if first is second else "sample"
                raise UsageMistake(f"{paths} are the same capture: {evidence}; one trace is one {unit}")

    @memoize_method
    def measure_rows(self, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None = None) -> MetricTable:
        """Return the rows of a metric, of all ranks or of some: medians over the captures of medians over the
        windows.
        """
        capture_tables = self.measure_each_capture(metric, spec, ranks)
        if metric.median_window_metric and len(capture_tables) > 1:
            selecting_tables = self.measure_each_capture(METRICS[metric.median_window_metric], spec, ranks)
            table = choose_median_tables(
                list(zip(capture_tables, selecting_tables, strict=True)),
                self._make_empty_table(metric),
                are_captures=True,
            )
        else:
            table = merge_by_median(metric, capture_tables, "captures", self._make_empty_table(metric))
        # A convention that defines stages needs them: rows without a stage must not replace lost ones.
        counted_table = count_unstaged(table) if self.convention.libraries else table
        if ranks is None or counted_table is table:
            return counted_table
        # Some ranks alone do not show whether the run has stages.
        with contextlib.suppress(NsysError):  # a rank that was not requested has no window
            return replace(table, counts_unstaged=self.measure_rows(metric, spec).counts_unstaged)
        return table

    @memoize_method
    def measure_each_capture(
        self, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None = None
    ) -> Sequence[MetricTable]:
        """Return the rows of a metric in each capture."""
        empty_table = self._make_empty_table(metric)
        if metric.scope is not MetricScope.CAPTURE and not spec.is_outside_trace:
            check_one_step_kind({"the captures have": self.runs}, spec)
        return [_measure_capture(capture, metric, spec, ranks, empty_table) for capture in self.runs]

    def list_unordered_streams(self, metric: Metric, spec: WindowSpec) -> tuple[str, ...]:
        """List the streams that keep no order in any capture, if that affects what the metric means."""
        if not metric.depends_on_order:
            return ()
        tracks = [track for run in self.runs if run.traces for track in run.load_windows(spec).tracks.values()]
        places = {(track.rank.number, stream.number) for track in tracks for stream in track.unordered_streams}
        return tuple(f"rank {rank} stream {stream}" for rank, stream in sorted(places))

    def _make_empty_table(self, metric: Metric) -> MetricTable:
        """Return a table of the metric without rows."""
        sizes, coordinates = self.mesh.sizes, self.mesh.coordinates
        every_stage = metric.counts_unstaged or self.convention.stage is None
        return MetricTable(metric.dimensions, (), coordinates, sizes, every_stage, metric.no_row_reason)

    @memoize_method
    def map_names_by_fingerprint(self, spec: WindowSpec) -> Mapping[int, tuple[str, ...]]:
        """Return the sequence of kernels that each fingerprint of the windows stands for."""
        windows = (
            window
            for run in self.runs
            for windows_of_rank in run.load_windows(spec).require_filled_windows().values()
            for window in windows_of_rank
        )
        return {
            fingerprint: sequence
            for window in windows
            for fingerprint, sequence in map_names_by_fingerprint(window).items()
        }

    @cached_property
    def mesh(self) -> Mesh:
        """The coordinates of each rank, as the setup labels say."""
        run = self.runs[0]
        return Mesh({rank.number: rank.coordinates for rank in run.ranks}, run.mesh_sizes)

    def build_stored_table(self, metric: Metric, rows: Mapping[tuple[Label, ...], Value]) -> MetricTable:
        """Build a table of a baseline's rows for a gate, with the mesh coordinates that the ranks have in this run."""
        table = replace(
            self._make_empty_table(metric),
            rows=tuple(starmap(Row, rows.items())),
            has_unknown_unseen=metric.compares_clocks,
        )
        return count_unstaged(table)

    @memoize_method
    def list_windows(self, spec: WindowSpec) -> tuple[UsedWindow, ...]:
        """List the windows that were measured."""
        return tuple(
            UsedWindow(number, rank, window, spec.is_by_launch, spec.kind)
            for number, capture in (() if spec.is_outside_trace else zip(self.capture_indexes, self.runs, strict=True))
            for rank, windows in sorted(capture.load_windows(spec).picked_windows.items())
            for window in windows
        )

    def select_middle_windows(self, spec: WindowSpec, rank: Label) -> Iterator[RankWindow]:
        """Yield the middle one of a rank's windows, for each capture."""
        for capture in () if spec.is_outside_trace else self.runs:
            windows = capture.load_windows(spec).windows_by_rank.get(rank, ()) if isinstance(rank, int) else ()
            yield from windows[len(windows) // 2 :][:1]

    @memoize_method
    def list_notes(self, spec: WindowSpec, *metrics: Metric, bounds: Bounds = NO_BOUNDS) -> tuple[Note, ...]:
        """List what a person should know about the measurements of these metrics."""
        notes = [fact.note for fact in self.list_facts(spec, bounds, *(metrics or (METRICS["idle_ns"],)))]
        for find_notes in dict.fromkeys(metric.notes_function for metric in metrics):
            notes += find_notes(self.runs, spec) if find_notes else ()
        notes += [Note(line, True) for metric in metrics for line in self.describe_outlying_captures(metric, spec)]
        notes += [Note(self.omitted_capture.line)] if self.omitted_capture is not None else []
        return merge_notes([note._replace(text=shorten_paths(note.text)) for note in notes])

    def list_notes_of(self, spec: WindowSpec, *names: str) -> Sequence[Note]:
        """List the notes of only the facts with these names; none for a run without kernels."""
        with contextlib.suppress(NothingMeasured):
            facts_by_run = [facts_about(QualityContext(run, spec, METRICS["idle_ns"]), names) for run in self.runs]
            return merge_notes([fact.note for facts in facts_by_run for fact in facts])
        return ()

    @memoize_method
    def list_facts(self, spec: WindowSpec, bounds: Bounds, *metrics: Metric) -> Sequence[Fact]:
        """List the facts that the measurements of these metrics depend on, the most serious first."""
        runs = () if spec.is_outside_trace else self.runs
        contexts = [QualityContext(run, spec, metric, bounds) for run in runs for metric in metrics]
        all_facts = dict.fromkeys(fact for context in contexts for fact in self._find_facts(context))
        # Several captures of one step each do show the scatter.
        relevant_facts = (fact for fact in all_facts if len(runs) == 1 or fact.name != "single_step")
        heaviest = {fact.sentence: fact for fact in sorted(relevant_facts, key=lambda fact: fact.weight)}
        return sorted(heaviest.values(), key=lambda fact: -fact.weight)

    @memoize_method
    def _find_facts(self, context: QualityContext) -> Sequence[Fact]:
        """Find all facts in one context: an error replaces a verdict, a note accompanies it."""
        return tuple(facts_about(context))

    def describe_outlying_captures(self, metric: Metric, spec: WindowSpec) -> tuple[str, ...]:
        """Describe the captures that lie far from the others, one line each, because the median hides them."""
        if metric.unit == HASH or len(self.runs) < MIN_CAPTURES or self.omitted_capture is not None:
            return ()
        rows_by_capture = [dict(table.rows) for table in self.measure_each_capture(metric, spec)]

        def format_row(labels: tuple[Label, ...]) -> str:
            return f"{format_labels(zip(metric.dimensions, labels, strict=True))} {metric.name}".strip()

        return tuple(
            f"{self._describe_capture(outlier.capture_index)}: {outlier.describe(format_row(outlier.key), metric.unit)}"
            for outlier in find_outliers(rows_by_capture)
        )

    @memoize_method
    def _find_errors(self, bounds: Bounds, spec: WindowSpec, metric: Metric) -> Sequence[str]:
        """Find why the traces are not good enough to judge a metric: one line per crossed bound."""
        is_several = len(self.runs) > 1
        contexts = ((run.path, QualityContext(run, spec, metric, bounds)) for run in self.runs)
        facts = ((path, fact) for path, context in contexts for fact in self._find_facts(context))
        lines = ((path, fact.error) for path, fact in facts if fact.weight is Weight.ERROR)
        return [f"{path}: {line}" if is_several else line for path, line in lines]

    @cached_property
    def gpu_models(self) -> Mapping[int, str]:
        """The GPU model of each rank whose trace states it, several joined by ``+``."""
        models_by_rank = group_by_key(
            (rank, model) for run in self.runs for rank, models in run.gpu_models_by_rank.items() for model in models
        )
        return {rank: " + ".join(sorted({*models})) for rank, models in models_by_rank.items()}

    def build_key(self, stated_labels: Mapping[str, Label]) -> RunKey:
        """Return what makes this run comparable to another; ``stated_labels`` of the gate file fill in what the traces
        do not say.
        """
        return self._build_key(tuple(sorted(stated_labels.items())))

    @memoize_method
    def _build_key(self, stated_labels: tuple[tuple[str, Label], ...]) -> RunKey:
        return build_run_key(self.runs, dict(stated_labels))

    @cached_property
    def facts(self) -> RunConditions:
        """The conditions that are compared but do not name a baseline."""
        return collect_run_conditions(self.runs)

    def build_identity(self, stated_labels: Mapping[str, Label]) -> Mapping[str, Any]:
        """Return, by key, what must be equal in a stored run for this run to be compared with it."""
        return {**self.build_key(stated_labels).as_json(), **self.facts}

    @property
    def convention_text(self) -> str:
        """The name of the convention, and the known libraries that a baseline distinguishes conventions by."""
        libraries = ", ".join(sorted(self.runs[0].libraries))
        return self.convention.name + (f" with {libraries}" if libraries else "")

    def build_circumstances(self, stated_labels: Mapping[str, Label]) -> Mapping[str, object]:
        """Return, by key, what two runs measured now must have in common; which libraries ran does not matter."""
        return {**self.build_identity(stated_labels), "convention": self.convention.compute_fingerprint()}

    def list_profilers(self) -> tuple[str, ...]:
        """List the versions of the profiler that wrote the traces."""
        return list_profiler_versions(self.runs)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of the traces of all captures."""
        return tuple(trace.path for capture in self.runs for trace in capture.traces)

    @property
    def measurement_files(self) -> frozenset[Path]:
        """The files of the measurements of all captures."""
        return frozenset(path.resolve() for capture in self.runs for path in capture.measurements.paths)

    @property
    def measurement_names(self) -> frozenset[str]:
        """The names of the metrics that were measured outside of the traces. Raises TraceError for contradictory
        files.
        """
        return frozenset(name for capture in self.runs for name in capture.measurements.names)

    def close(self) -> None:
        """Close the files of all captures."""
        for capture in self.runs:
            capture.close()


def _measure_capture(
    capture: Run, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None, empty_table: MetricTable
) -> MetricTable:
    """Measure a metric in one capture, of all ranks or of some. Raises NothingMeasured if the capture has no trace."""
    if metric.scope is MetricScope.CAPTURE:
        return keep_ranks(replace(empty_table, rows=tuple(metric.measure_rows(capture))), ranks)
    if not capture.traces:
        raise NothingMeasured(
            f"{metric.name} needs a trace, and none is given beside {capture.measurements.paths_text}"
        )
    if (missing_reason := capture.steps_by_kind.explain_missing_kind(spec.kind)) is not None:
        return replace(empty_table, no_row_reason=missing_reason)
    if metric.scope is MetricScope.RUN:
        return _measure_run(capture, metric, spec, ranks, empty_table)
    rank_tables = [
        _measure_rank(metric, windows, empty_table)
        for windows in capture.load_windows(spec).require_filled_windows(ranks).values()
    ]
    table = join_tables(rank_tables, empty_table)
    if metric.source is not MetricSource.COMMUNICATION or table.rows or table.no_row_reason:
        return table
    return replace(table, no_row_reason=measure_sharing(capture.load_windows(spec)).left_out_reason)


def _measure_rank(metric: Metric, windows: Sequence[RankWindow], empty_table: MetricTable) -> MetricTable:
    window_tables = [_measure_window(metric, window, empty_table) for window in windows]
    if metric.median_window_metric and len(window_tables) > 1:
        selecting_tables = [
            _measure_window(METRICS[metric.median_window_metric], window, empty_table) for window in windows
        ]
        return choose_median_tables(list(zip(window_tables, selecting_tables, strict=True)), empty_table)
    return merge_by_median(metric, window_tables, "windows", empty_table)


def _measure_run(
    capture: Run, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None, empty_table: MetricTable
) -> MetricTable:
    """Measure a metric of all ranks together; given some ranks, return only their rows if rows have the dimension
    rank.
    """
    # Kernels are summed over the requested ranks, because a sum over all says nothing about one.
    summed_ranks = ranks if metric.source is MetricSource.FAMILIES else None
    window_tables = [
        _measure_window(metric, window, empty_table)
        for window in capture.load_windows(spec).list_run_windows(summed_ranks)
    ]
    return keep_ranks(merge_by_median(metric, window_tables, "windows", empty_table), ranks)


def _measure_window(metric: Metric, window: RankWindow | RunWindow, empty_table: MetricTable) -> MetricTable:
    """Return the rows of one window, or the reason why there are none."""
    try:
        results = list(metric.iterate_rows(window))
    except NoRows as error:
        return replace(empty_table, no_row_reason=str(error))
    rows = tuple(row for row in results if isinstance(row, Row))
    unseen = dict(row for row in results if isinstance(row, RowBelowError))
    reason = UNSEEN_REASON if unseen and not rows else empty_table.no_row_reason
    return replace(empty_table, rows=rows, unseen=unseen, no_row_reason=reason)


_NO_ROW_TEXT = "none in this window"


class MetricAvailability(NamedTuple):
    """Counts the metrics that one command shows and those that have rows, and names the others by reason."""

    command: str  # the name of the command
    metric_count: int
    available_count: int
    missing_by_reason: Mapping[str, Sequence[str]]  # metrics without a row, by the reason


def list_metric_availability(captures: Captures, spec: WindowSpec) -> Iterator[MetricAvailability]:
    """Yield which metrics each command can show of a run, without those that need a statement in a gate file."""
    trace_metrics = [
        metric for metric in METRICS.values() if not metric.is_outside_trace and metric.required_key is None
    ]
    for view, metrics in group_by_key((metric.view, metric) for metric in trace_metrics).items():
        reasons = [
            (reason, metric.name) for metric in metrics if (reason := describe_missing_rows(captures, metric, spec))
        ]
        yield MetricAvailability(view, len(metrics), len(metrics) - len(reasons), group_by_key(reasons))


def describe_missing_rows(captures: Captures, metric: Metric, spec: WindowSpec) -> str:
    """Return why a metric has no rows; empty if it has some."""
    try:
        table = captures.measure_rows(metric, spec)
    except NsysError as error:
        return str(error).removeprefix(f"{captures.paths[0]}: ")
    if table.rows:
        return ""
    missing_reason = next((reason for _, reason in table.missing), "")
    return table.no_row_reason or missing_reason or _NO_ROW_TEXT


DEFAULT_NOTE_METRICS = ("compute_absent_ns", "launches")
"""The metrics whose notes are shown if no metric was requested: those of the budget and of kernels by stage."""


def check_one_step_kind(sides: Mapping[str, Sequence[Run]], spec: WindowSpec) -> None:
    """Check that several captures have one kind of steps, if ``spec`` names none.

    ``sides`` has the captures by owner. Raises UsageMistake if there are several kinds.
    """
    if sum(map(len, sides.values())) > 1 and spec.kind is None and spec.picks_steps:
        check_single_kind(
            {owner: sum_kind_counts(run.steps_by_kind.counts_by_kind for run in runs) for owner, runs in sides.items()}
        )


def resolve_default_spec(run: Run, spec: WindowSpec, open_fields: Collection[str]) -> WindowSpec:
    """Return the spec of the windows that a command shows by default.

    It is the given one, with the usual kind of steps if it names none. For a cut it is the spec that was cut, if that
    differs only in ``open_fields``.
    """
    spec = _fill_step_kind(run, spec)
    cut_specs = [WindowSpec(*cut_spec) for facts in run.facts[:1] for cut_spec in facts.cut_window_specs]
    if spec in cut_specs:
        return spec
    matching_specs = [
        cut_spec
        for cut_spec in cut_specs
        if replace(spec, **{name: getattr(cut_spec, name) for name in open_fields}) == cut_spec
    ]
    return _fill_step_kind(
        run,
        next((cut_spec for cut_spec in matching_specs if cut_spec.window == spec.window), [*matching_specs, spec][0]),
    )


def _fill_step_kind(run: Run, spec: WindowSpec) -> WindowSpec:
    kind = run.steps_by_kind.default_kind if run.convention.kinds and not spec.kind and spec.picks_steps else spec.kind
    return replace(spec, kind=kind)
