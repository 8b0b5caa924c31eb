"""How does Python use a run? Open it, ask for rows, judge a sentence or a gate file, compare it with another.

The fixtures and the commands use the same functions. Errors are subclasses of NsysError with a one-line message.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from pytest_nsys.analysis.captures.cache import CaptureCache, check_distinct_captures, check_distinct_runs
from pytest_nsys.analysis.captures.captures import Captures, describe_missing_rows, resolve_default_spec
from pytest_nsys.analysis.facts.fact import advise_quality_argument
from pytest_nsys.analysis.metrics.names import describe_unknown_metric, resolve_metric
from pytest_nsys.analysis.metrics.registry import METRICS, Metric
from pytest_nsys.analysis.metrics.table import NothingSelected, Selector
from pytest_nsys.analysis.steps.convention_fit import ConventionChoice
from pytest_nsys.analysis.windows.window_selection import (
    MEDIAN,
    OUTSIDE_TRACE_SPEC,
    RUN,
    UsedWindow,
    WindowSpec,
    assume_single_step,
    list_open_fields,
    suggest_window_word,
)
from pytest_nsys.core import notebook_display
from pytest_nsys.core.conventions import Anchor, Convention, format_anchor
from pytest_nsys.core.errors import ArgumentMistake, GateFileError, NoRows, NsysError, TraceError, suggest_or_list
from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.core.model import KernelsMode, Label, Note, Span, Value
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import find_stored_unit, to_plain_number
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates.convention_keys import ConventionSource, check_trace_paths, load_convention
from pytest_nsys.gates.gate_file import load_configuration, override_quality
from pytest_nsys.gates.hiccups import leave_out_hiccup
from pytest_nsys.gates.judgement import describe_lacking_row
from pytest_nsys.gates.limits import SentenceMistake
from pytest_nsys.gates.model import (
    Assertion,
    GateFile,
    Location,
    Verdict,
    build_requests,
)
from pytest_nsys.gates.selection import select_complete_rows
from pytest_nsys.gates.sentences import explain_wrong_dimension, parse_sentence
from pytest_nsys.reports.tables.formats import Column, Format, Table
from pytest_nsys.reports.words.notebook import render_comparison_text, render_verdict_html, render_verdict_text
from pytest_nsys.traces.sidecars.measurements import find_files_by_capture
from pytest_nsys.traces.trace_files import find_traces
from pytest_nsys.verdicts.comparison import Comparison, TwoRuns, compare_runs
from pytest_nsys.verdicts.evaluate import GateContext, evaluate, resolve_gate_convention
from pytest_nsys.verdicts.references import OtherRun
from pytest_nsys.verdicts.row_records import RowRecord, coerce_types

if TYPE_CHECKING:
    from pytest_nsys.analysis.summary.summary import Summary
    from pytest_nsys.reports.views.view import RenderedView

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A capture (file, folder or glob), or several of one program."""

QualityBound = int | str
"""A bound on the quality of a trace, as a gate file has it: a number, or text such as ``20%`` and ``off``."""

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)

notebook_display.register_renderer(Verdict, render_verdict_html)
notebook_display.register_text_renderer(Verdict, render_verdict_text)
notebook_display.register_text_renderer(Comparison, render_comparison_text)


@dataclass(frozen=True)
class MetricRow:
    """Holds one value with its dimensions: nanoseconds and counts are int, shares are exact fractions of the unit
    ``1``.
    """

    metric: str
    labels: Mapping[str, Label]
    value: Value
    unit: str

    def __getitem__(self, dimension: str) -> Label:
        return self.labels[dimension]

    def as_record(self) -> RowRecord:
        """Return the row as one plain dict: fractions become floats, and values with the unit ``1`` are always
        floats.
        """
        return {
            "metric": self.metric,
            **self.labels,
            "value": to_plain_number(self.value, self.unit),
            "unit": self.unit,
        }


LONGEST_SUMMARY = 80
"""Longer summaries of metrics are shortened in the table of a run."""


class RunMetrics(dict[str, Metric]):
    """Holds metrics by name; printed, and in a notebook, it is a table of what each measures."""

    @property
    def _table(self) -> Table:
        columns = [Column("metric"), Column("unit"), Column("of each"), Column("measures")]
        rows = [
            (
                name,
                str(metric.unit),
                ", ".join(metric.dimensions) or "run",
                sanitize_line(metric.summary.partition(", per ")[0].replace("``", "").rstrip("."), LONGEST_SUMMARY),
            )
            for name, metric in self.items()
        ]
        return Table(columns, rows)

    def __repr__(self) -> str:
        return self._table.render(Format.TABLE).rstrip("\n") if self else "no metric has rows"

    def _repr_html_(self) -> str:
        return self._table.render_html()


class NsysRun:
    """Holds the captures of one program under one convention, opened when first asked for.

    As a context manager, or by ``close()``, it closes the files; a later request opens them again. ``captures_for``
    returns the captures to be measured as a gate file says; ``resolve`` finds the convention for a gate file that names
    none, with an anchor if one is given. If ``named_convention`` is None, the convention is the one that the run fits.
    ``paths`` are as given.
    """

    def __init__(
        self,
        captures_for: Callable[[GateFile], Captures],
        named_convention: Convention | None,
        workload: Workload | None = None,
        close: Callable[[], None] = lambda: None,
        *,
        resolve: Callable[[GateFile, Anchor | None], GateFile],
        anchor: Anchor | None = None,
        paths: Sequence[str] = (),
    ) -> None:
        if not isinstance(workload, Workload | None):
            raise ArgumentMistake(f"workload= is a pytest_nsys.core.workload.Workload, not {workload!r}")
        self.captures_for, self._named_convention, self._workload = (
            captures_for,
            named_convention,
            workload or Workload(),
        )
        self.close, self._resolve, self._anchor, self._paths = close, resolve, anchor, tuple(paths)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._paths)}>"

    def under(self, convention: ConventionSource, anchor: Anchor | None = None) -> Self:
        """Return the same run, read with another convention: a built-in name, a YAML file, or your own."""
        new_convention = load_convention(convention, anchor)
        return type(self)(
            *(self.captures_for, new_convention, self._workload, self.close),
            resolve=self._resolve,
            anchor=anchor,
            paths=self._paths,
        )

    def resolve_gate(self, gate: GateFile) -> GateFile:
        """Return the gate file with its convention: the one that it names, else that of this run."""
        if gate.convention is not None:
            return gate
        if self._named_convention is not None:
            return replace(gate, convention=self._named_convention)
        return self._resolve(gate, self._anchor)

    @property
    def unresolved_gate(self) -> GateFile:
        """A gate file without assertions, with the named convention if there is one."""
        return GateFile(Path(), (), self._named_convention, workload=self._workload)

    @property
    def gate(self) -> GateFile:
        """A gate file without assertions, with the run's convention. Raises UsageMistake, TraceError."""
        return self.resolve_gate(self.unresolved_gate)

    @property
    def convention(self) -> Convention:
        """The convention with which the run is read: the named one, or the one found in it. Raises UsageMistake,
        TraceError.
        """
        return self.gate.resolved_convention

    @property
    def convention_choice(self) -> ConventionChoice:
        """The convention with which the run is read, and how it was found."""
        choice = self.gate.found_convention
        return ConventionChoice(
            self.convention, self.convention, search_result=choice.kernel_search if choice is not None else None
        )

    @property
    def captures(self) -> Captures:
        """The opened captures. Raises TraceError."""
        return self.captures_for(self.gate)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of the ranks."""
        return tuple(rank.number for rank in self.captures.runs[0].ranks)

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes on how far figures of the run's median window can be trusted."""
        captures = self.captures
        return captures.list_notes(
            resolve_default_spec(captures.runs[0], captures.make_spec(MEDIAN), list_open_fields())
        )

    def summary(self, window: str | None = None) -> Summary:
        """Return a summary of the run, as ``pytest-nsys TRACE…`` shows it: of the median step, or of the whole run if
        it has no steps.

        Raises TraceError if nothing can be measured.
        """
        from pytest_nsys.analysis.summary.summary import (  # gates do not need it
            Summary,
            choose_usual_spec,
            summarize_captures,
        )
        from pytest_nsys.reports.screens.first_screen_html import render_screen_html

        notebook_display.register_renderer(Summary, render_screen_html)
        captures = self.captures
        spec = choose_usual_spec(captures) if window is None else self._resolve_spec(window, None, None)
        named_options = (("--window", window), ("--anchor", self._anchor and format_anchor(self._anchor)))
        options = tuple((option, value) for option, value in named_options if value is not None)
        return replace(
            summarize_captures(captures, spec, self._paths),
            given_options=options,
            searched=self.convention_choice.search_result,
        )

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the first screen, or why there is none."""
        try:
            return self.summary()._repr_html_()
        except NsysError as error:
            return f"<pre>{escape(str(error))}</pre>"

    def windows(
        self, window: str = MEDIAN, *, span: Span | str | None = None, kernels: KernelsMode | str | None = None
    ) -> tuple[UsedWindow, ...]:
        """Return the measured windows of each rank of each capture. Raises TraceError if there are none."""
        captures, spec = self.captures, self._resolve_spec(window, span, kernels)
        if not (windows := captures.list_windows(spec)):
            for run in captures.runs:
                run.pick_windows(run.ranks[0], spec)  # raises the reason
        return windows

    def rows(
        self,
        metric: str,
        *,
        window: str = MEDIAN,
        span: Span | str | None = None,
        kernels: KernelsMode | str | None = None,
        allow_missing: Mapping[str, Collection[int]] | None = None,
        **where: Label | Sequence[Label],
    ) -> list[MetricRow]:
        """Return the rows of a metric, selected as in a gate file: ``stage="stage3"``, ``rank=[0, 1]``.

        Raises NoRows if a selector matches nothing, or if a capture or rank lacks a row that others have: with missing
        rows, a loop of assertions would pass unnoticed. ``allow_missing={"stage1_*": [0]}`` names ranks that may lack
        stages.
        """
        __tracebackhide__ = True  # a failing test shows its own line
        name, captures = look_up_metric(metric).name, self.captures
        measured, spec = captures.resolve_metric(name), self._resolve_spec(window, span, kernels)
        spec = OUTSIDE_TRACE_SPEC if measured.is_outside_trace else spec
        if not isinstance(allow_missing, Mapping | None):
            raise ArgumentMistake(f"allow_missing= maps stages to ranks, as {{'stage1_*': [0]}}, not {allow_missing!r}")
        missing_ranks = {glob: frozenset(ranks) for glob, ranks in (allow_missing or {}).items()}
        if not all(type(rank) is int for ranks in missing_ranks.values() for rank in ranks):
            raise ArgumentMistake(f"allow_missing= names ranks by their numbers, not {allow_missing!r}")
        axes = {axis for coordinates in captures.mesh.coordinates.values() for axis in coordinates}
        for dimension in where if captures.paths else ():
            if mistake := explain_wrong_dimension(dimension, measured, (*self.gate.axes, *axes)):
                raise ArgumentMistake(mistake)
        selectors = {d: Selector(tuple(map(str, _check_labels(d, labels)))) for d, labels in where.items()}
        captures.check_no_twins(spec)
        table = captures.measure_rows(measured, spec)
        try:
            if reason := describe_lacking_row(table, selectors):
                raise NothingSelected(reason)
            selected_rows = select_complete_rows(table, selectors, missing_ranks)
        except NothingSelected as error:
            raise NoRows(f"{metric}: no data: {error}") from None
        return [
            MetricRow(measured.name, labels, value, find_stored_unit(measured.unit)) for labels, value in selected_rows
        ]

    def to_records(self, metric: str, **options: Any) -> list[RowRecord]:
        """Return the rows as plain dicts for ``pandas.DataFrame`` and ``polars.DataFrame``; the options are those of
        :meth:`rows`.
        """
        __tracebackhide__ = True
        return coerce_types([row.as_record() for row in self.rows(metric, **options)])

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """The metrics that have rows in the default window, by name; each with unit, direction, dimensions and
        summary.
        """
        from pytest_nsys.analysis.summary.summary import choose_usual_spec

        captures = self.captures
        spec = choose_usual_spec(captures)
        metrics = {
            name: metric
            for name, metric in METRICS.items()
            if not metric.is_outside_trace and metric.required_key is None
        }
        return RunMetrics(
            {name: metric for name, metric in metrics.items() if not describe_missing_rows(captures, metric, spec)}
        )

    def view(
        self,
        name: str,
        *,
        window: str | None = None,
        span: Span | str | None = None,
        kernels: KernelsMode | str | None = None,
        **where: Label | Sequence[Label],
    ) -> RenderedView:
        """Return one part of the run in full, as ``pytest-nsys TRACE --view NAME`` shows it: ``run.view("kernels")``.

        ``to_records()`` returns its rows as plain dicts; it prints as text, and a notebook shows it as tables. Only the
        first capture of the run is shown. Raises NothingMeasured if the view has nothing to show.
        """
        __tracebackhide__ = True
        from pytest_nsys.analysis.summary.summary import choose_usual_spec
        from pytest_nsys.reports.views.all_views import VIEWS
        from pytest_nsys.reports.views.view import ViewRequest

        if (view := VIEWS.get(name)) is None:
            raise ArgumentMistake(
                f"there is no view '{sanitize_line(str(name), 40)}'{suggest_or_list(str(name), VIEWS, 'there are')}"
            )
        gate, captures = self.gate, self.captures
        has_anchor = not choose_usual_spec(Captures(captures.runs[:1])).is_whole_run
        requested_spec = self._resolve_spec(window or (view.window if has_anchor else RUN), span or view.span, kernels)
        if "steps" in view.option_names:
            workload = assume_single_step(gate.workload, requested_spec, has_anchor=has_anchor)
            captures = self.captures_for(replace(gate, workload=workload))
        captures = Captures(captures.runs[:1])
        spec = resolve_default_spec(captures.runs[0], requested_spec, list_open_fields(window, span, kernels))
        ranks = _check_labels("rank", where.pop("rank", []), needs_label=False)
        if not all(isinstance(rank, int) for rank in ranks):
            raise ArgumentMistake(f"rank= is a number or a list of numbers, not {ranks!r}")
        selectors = {d: Selector(tuple(map(str, _check_labels(d, labels)))) for d, labels in where.items()}
        return view.show(ViewRequest(captures, spec, [int(rank) for rank in ranks], selectors))

    def _resolve_spec(self, window: str, span: Span | str | None, kernels: KernelsMode | str | None) -> WindowSpec:
        __tracebackhide__ = True
        if not isinstance(window, str):
            raise ArgumentMistake(f"window= is text, as in 'median' or '3', not {window!r}")
        if suggestion := suggest_window_word(window):
            raise ArgumentMistake(f"unknown window '{sanitize_line(window, 40)}'{suggestion}")
        return self.captures.make_spec(window, _parse_choice(Span, span), _parse_choice(KernelsMode, kernels))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_run(
    paths: Paths = (),
    *,
    convention: ConventionSource | None = None,
    anchor: Anchor | None = None,
    workload: Workload | None = None,
    measurements: Paths = (),
) -> NsysRun:
    """Open a trace, or a list of captures of one program; rows are then medians over the captures.

    ``measurements`` are JSON files of what the program wrote down, one (or a glob) for each capture; without any trace
    they are the run, of which ``measured NAME`` has rows.
    ``convention`` is a built-in name, a YAML file (a convention, or a gate file that has one) or one of your own; by
    default it is found in the trace. ``anchor`` is what repeats, where it is another than the convention's: the
    pattern (``%``) of a range, or ``KernelAnchor("NAME")``. Raises UsageMistake for a path or name that means nothing,
    TraceError for a trace that cannot be read.
    """
    beside_traces, cache = find_files_by_capture(_check_paths(measurements, is_required=False), Path()), CaptureCache()
    values = _check_paths(paths, is_required=not beside_traces)

    def open_captures(gate: GateFile) -> Captures:
        return cache.open_captures(
            values, Path(), gate.resolved_convention, gate.workload, build_requests(gate), beside_traces
        )

    def resolve(gate: GateFile, anchor: Anchor | None) -> GateFile:
        return resolve_gate_convention(gate, partial(cache.choose_convention, values, Path(), anchor))

    given_paths, named_convention = values or _check_paths(measurements), load_convention(convention, anchor)
    run = NsysRun(
        open_captures, named_convention, workload, cache.close, resolve=resolve, anchor=anchor, paths=given_paths
    )
    _ = run.captures
    return run


@overload
def judge(
    sentence_or_file: str,
    run: NsysRun,
    against: NsysRun | None = None,
    *,
    quality: Mapping[str, QualityBound] | None = None,
) -> Verdict: ...
@overload
def judge(
    sentence_or_file: Path,
    run: NsysRun,
    against: NsysRun | None = None,
    *,
    quality: Mapping[str, QualityBound] | None = None,
) -> tuple[Verdict, ...]: ...
def judge(
    sentence_or_file: str | Path,
    run: NsysRun,
    against: NsysRun | None = None,
    *,
    quality: Mapping[str, QualityBound] | None = None,
) -> Verdict | tuple[Verdict, ...]:
    """Judge a sentence under the run's convention, or (a Path) each assertion of a gate file under the file's own.

    Of a gate file with a matrix one configuration is judged: ``Path("step.nsys.yaml[llama-8b]")``.
    A baseline in a sentence is the run ``against``; those stored in a repository are pytest's, by the fixture
    ``nsys_gate``. ``quality`` accepts what a trace lacks, as the key of a gate file does and instead of that:
    ``{"missing_ranks": 126}`` judges a sample of the ranks. Nothing is raised for a bad verdict: look at ``outcome``
    and ``good``. Raises UsageMistake for a sentence that cannot be meant, GateFileError, and TraceError where a trace
    cannot be judged.
    """
    if not all(isinstance(side, NsysRun) for side in (run, against or run)):
        raise ArgumentMistake("what is judged, and what it is held against, is a run: judge(sentence, open_run(…))")
    if isinstance(sentence_or_file, Path):
        gate = load_configuration(sentence_or_file)
    elif sentence_or_file.endswith(GATE_SUFFIX):
        raise ArgumentMistake(f"'{sanitize_line(sentence_or_file)}' is a gate file: judge(Path(…), run)")
    else:
        gate = run.unresolved_gate
        gate = replace(gate, assertions=(build_assertion(sentence_or_file, gate),))
    if against is None and isinstance(sentence_or_file, str) and gate.assertions[0].needs_baseline:
        raise ArgumentMistake("a baseline is another run: judge(sentence, run, against=…)")
    if quality is not None:
        gate = _override_quality(gate, quality)
    if against is None:
        gate = run.resolve_gate(gate)
    elif gate.convention is None:
        gate = resolve_gate_convention(gate, lambda _: run.convention_choice, lambda _: against.convention_choice)
    captures = run.captures_for(gate)
    context = GateContext(leave_out_hiccup(captures, gate), gate)
    if against is not None:
        baseline_captures = against.captures_for(gate)
        check_distinct_runs(captures.paths, baseline_captures.paths)
        context.baseline = OtherRun(context.captures, gate, leave_out_hiccup(baseline_captures, gate))
    try:
        verdicts = tuple(evaluate(assertion, context) for assertion in gate.assertions)
    except TraceError as error:
        if isinstance(sentence_or_file, Path):
            raise
        raise type(error)(advise_quality_argument(str(error))) from None
    return verdicts if isinstance(sentence_or_file, Path) else verdicts[0]


def _override_quality(gate: GateFile, quality: Mapping[str, QualityBound]) -> GateFile:
    """Return a gate file with other bounds. Raises ArgumentMistake."""
    if not isinstance(quality, Mapping) or not all(isinstance(name, str) for name in quality):
        raise ArgumentMistake(f'quality= maps names to bounds, as {{"missing_ranks": 126}}, not {quality!r}')
    try:
        return override_quality(gate, quality)
    except GateFileError as error:
        raise ArgumentMistake(f"quality=: {error.mistakes[0].text}") from None


def compare(
    base: Paths,
    head: Paths,
    gate: str | os.PathLike[str] | None = None,
    *,
    convention: ConventionSource | None = None,
    anchor: Anchor | None = None,
    base_measurements: Paths = (),
    head_measurements: Paths = (),
) -> Comparison:
    """Compare two runs: the ``result``, the ``rows`` with the worst regression first, what came and went.

    ``gate`` is the gate file that judges, under its own convention; without one a built-in set of assertions does.
    Raises as :func:`judge` does.
    """
    measurement_paths = (
        _check_paths(base_measurements, is_required=False),
        _check_paths(head_measurements, is_required=False),
    )
    measurements = (
        find_files_by_capture(measurement_paths[0], Path()),
        find_files_by_capture(measurement_paths[1], Path()),
    )
    sides = _check_paths(base, is_required=not all(measurements)), _check_paths(head, is_required=not all(measurements))
    check_distinct_captures(*([find_traces(value, Path()) for value in side] for side in sides))
    if gate is not None and (convention is not None or anchor is not None):
        raise ArgumentMistake("the gate file says the convention: give gate=, or convention= and anchor=")
    named_convention, written_gate = (
        load_convention(convention, anchor),
        None if gate is None else load_configuration(Path(gate)),
    )
    with contextlib.closing(CaptureCache()) as cache:
        runs = TwoRuns(cache, *sides, measurements, anchor)
        pair = runs.open_pair(runs.make_builtin_gate(named_convention) if written_gate is None else written_gate)
        return compare_runs([pair], *(sides if any(sides) else measurement_paths))


def look_up_metric(name: str) -> Metric:
    """Find the metric with a name. Raises ArgumentMistake if there is none."""
    __tracebackhide__ = True
    if not isinstance(name, str):
        raise ArgumentMistake(f"a metric is a name, as in 'exposed_ns', not {name!r}")
    if (metric := resolve_metric(name)) is None:
        raise ArgumentMistake(describe_unknown_metric(name, "; `pytest-nsys metrics` lists them"))
    return metric


def build_assertion(sentence: str, gate: GateFile) -> Assertion:
    """Build an assertion from a sentence, with the settings of a gate file. Raises ArgumentMistake."""
    __tracebackhide__ = True
    try:
        return parse_sentence(sentence, gate, Location(gate.path, 1, 1), allows_claims=True)
    except SentenceMistake as mistake:
        raise ArgumentMistake(f"{sentence!r}, character {mistake.offset + 1}: {mistake}") from None


def _parse_choice(kind: type[ChoiceT], value: str | None) -> ChoiceT | None:
    __tracebackhide__ = True
    if value is None:
        return None
    if value not in list(kind):
        raise ArgumentMistake(f"'{sanitize_line(value, 40)}' is none of {', '.join(kind)}")
    return kind(value)


def _check_labels(dimension: str, labels: object, *, needs_label: bool = True) -> list[Label]:
    """List the labels of a selector. Raises ArgumentMistake for values that are not labels."""
    __tracebackhide__ = True
    listed = [labels] if isinstance(labels, int | str) else [*labels] if isinstance(labels, Iterable) else []
    if (needs_label and not listed) or not all(isinstance(label, int | str) for label in listed):
        raise ArgumentMistake(f"{dimension}= is a label or a list of labels, as in rank=[0, 1], not {labels!r}")
    return listed


def _check_paths(paths: Paths, *, is_required: bool = True) -> tuple[str, ...]:
    """Return the paths as text. Raises ArgumentMistake if a required path is missing, UsageMistake for an empty one."""
    try:
        texts = tuple(os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths))
    except TypeError:
        raise ArgumentMistake("a trace is a path, or a list of them, not " + type(paths).__name__) from None
    if not texts and is_required:
        raise ArgumentMistake("there is no trace: give a path, or several captures")
    check_trace_paths(texts)
    return texts
