"""A run, for Python: open it, ask for rows, judge a sentence or a gate file, compare it with another.

The fixtures and the commands stand on the same functions. What goes wrong is a subclass of NsysError, in one line.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypeVar, overload

from pytest_nsys.analysis.capture_cache import CaptureCache, check_two_runs
from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS, Metric, Unit
from pytest_nsys.analysis.table import NothingSelected, Selector
from pytest_nsys.analysis.windows import MEDIAN, UsedWindow, WindowSpec
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import ArgumentMistake, NoRows, did_you_mean, naming
from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.core.model import KernelsMode, Label, Note, Span, Value
from pytest_nsys.core.words import printable
from pytest_nsys.core.workload import Workload
from pytest_nsys.gates import gate_file
from pytest_nsys.gates.assertion import Assertion, GateFile, Location, requests_of
from pytest_nsys.gates.convention_keys import Named, check_named, convention_for, convention_of
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.judgement import lacking
from pytest_nsys.gates.limits import SentenceMistake
from pytest_nsys.gates.selection import complete
from pytest_nsys.gates.sentences import parse_sentence
from pytest_nsys.gates.verdict import Verdict
from pytest_nsys.reports.comparison.tables import BUILT_IN_GATE
from pytest_nsys.traces.opening import find_traces
from pytest_nsys.verdicts.comparison import Comparison, Pair, compare_pairs
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from pytest_nsys.verdicts.references import OtherRun

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A capture (file, folder or glob), or several of one program."""

BUILT_IN_PATH = Path(gate_file.__file__).with_name("default.nsys.yaml")
Kind = TypeVar("Kind", bound=StrEnum)


@dataclass(frozen=True)
class MetricRow:
    """One value with its dimensions: nanoseconds and counts are int, ratios are exact fractions."""

    metric: str
    labels: Mapping[str, Label]
    value: Value
    unit: str

    def __getitem__(self, dimension: str) -> Label:
        return self.labels[dimension]

    def as_record(self) -> dict[str, Label | float]:
        """The row as one plain dict; a fraction becomes a float, a ratio always."""
        value = self.value if isinstance(self.value, int) and self.unit != Unit.RATIO else float(self.value)
        return {"metric": self.metric, **self.labels, "value": value, "unit": str(self.unit)}


class NsysRun:
    """The captures of one program under one convention, opened when first asked for.

    As a context manager, or by ``close()``, it lets the files go; asked again it opens them again. ``captures_for`` are
    the captures as a gate file has them measured.
    """

    def __init__(
        self,
        captures_for: Callable[[GateFile], Captures],
        convention: Convention,
        workload: Workload | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        if not isinstance(workload, Workload | None):
            raise ArgumentMistake(f"workload= is a pytest_nsys.core.workload.Workload, not {workload!r}")
        self.captures_for, self.convention, self._workload = captures_for, convention, workload or Workload()
        self.close = close

    def under(self, convention: Named, anchor: str | None = None) -> Self:
        """The same run read with another convention: a built-in name, a YAML file, or one of your own."""
        return type(self)(self.captures_for, convention_of(convention, anchor), self._workload, self.close)

    @property
    def gate(self) -> GateFile:
        """A gate file of this convention without assertions."""
        return GateFile(Path(), (), self.convention, workload=self._workload)

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
        """What a person should know of the run before a figure of its median window is believed."""
        captures = self.captures
        return captures.notes(captures.spec(MEDIAN))

    def windows(
        self, window: str = MEDIAN, *, span: Span | str | None = None, kernels: KernelsMode | str | None = None
    ) -> tuple[UsedWindow, ...]:
        """The windows that are measured, of each rank of each capture. Raises TraceError where there is none."""
        captures, spec = self.captures, self._spec(window, span, kernels)
        if not (found := captures.windows(spec)):
            for run in captures.runs:
                run.windows(run.ranks[0], spec)  # says why
        return found

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
        """The rows of a metric, selected as a gate file would: ``stage="stage3"``, ``rank=[0, 1]``.

        Raises NoRows where a selector matches nothing, where not every capture has a row, or a rank has none where
        others have one: a list that lacks rows would let a loop of assertions pass. ``allow_missing={"stage1_*": [0]}``
        names ranks that may lack stages.
        """
        measured, captures = metric_of(metric), self.captures
        spec = self._spec(window, span, kernels)
        if not isinstance(allow_missing, Mapping | None):
            raise ArgumentMistake(f"allow_missing= maps stages to ranks, as {{'stage1_*': [0]}}, not {allow_missing!r}")
        excused = {glob: frozenset(ranks) for glob, ranks in (allow_missing or {}).items()}
        if not all(type(rank) is int for ranks in excused.values() for rank in ranks):
            raise ArgumentMistake(f"allow_missing= names ranks by their numbers, not {allow_missing!r}")
        selectors = {d: Selector(tuple(map(str, _listed(d, labels)))) for d, labels in where.items()}
        captures.refuse_twins(spec)
        table = captures.rows(measured, spec)
        try:
            if lost := lacking(table, selectors):
                raise NothingSelected(lost)
            found = complete(table, selectors, excused)
        except NothingSelected as nothing:
            raise NoRows(f"{metric}: no data: {nothing}") from None
        return [MetricRow(metric, labels, value, measured.unit) for labels, value in found]

    def to_records(self, metric: str, **asked: Any) -> list[dict[str, Label | float]]:
        """The rows as plain dicts, which ``pandas.DataFrame`` and ``polars.DataFrame`` take; asked for as by
        :meth:`rows`."""
        return [row.as_record() for row in self.rows(metric, **asked)]

    def _spec(self, window: str, span: Span | str | None, kernels: KernelsMode | str | None) -> WindowSpec:
        if not isinstance(window, str):
            raise ArgumentMistake(f"window= is text, as in 'median' or '3', not {window!r}")
        return self.captures.spec(window, _one_of(Span, span), _one_of(KernelsMode, kernels))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_run(
    paths: Paths,
    *,
    convention: Named | None = None,
    anchor: str | None = None,
    workload: Workload | None = None,
) -> NsysRun:
    """Open a trace, or a list of captures of one program, whose rows then are medians over them.

    ``convention`` is a built-in name, a YAML file (a convention, or a gate file that has one) or one of your own; by
    default the usual one of the format. ``anchor`` is the pattern (``%``) of the range that repeats, where it is
    another than the convention's. Raises UsageMistake for a path or name that means nothing, TraceError for a trace
    that cannot be read.
    """
    values, cache = _values(paths), CaptureCache()

    def opened(gate: GateFile) -> Captures:
        return cache.captures(values, Path(), gate.convention, gate.workload, requests_of(gate))

    run = NsysRun(opened, convention_for(values, convention, anchor), workload, cache.close)
    _ = run.captures
    return run


@overload
def judge(what: str, run: NsysRun, against: NsysRun | None = None) -> Verdict: ...
@overload
def judge(what: Path, run: NsysRun, against: NsysRun | None = None) -> tuple[Verdict, ...]: ...
def judge(what: str | Path, run: NsysRun, against: NsysRun | None = None) -> Verdict | tuple[Verdict, ...]:
    """Judge a sentence under the run's convention, or (a Path) each assertion of a gate file under the file's own.

    A baseline in a sentence is the run ``against``; those stored in a repository are pytest's, by the fixture
    ``nsys_gate``. Nothing is raised for a bad verdict: look at ``outcome`` and ``good``. Raises UsageMistake for a
    sentence that cannot be meant, GateFileError, and TraceError where a trace cannot be judged.
    """
    if not all(isinstance(each, NsysRun) for each in (run, against or run)):
        raise ArgumentMistake("what is judged, and what it is held against, is a run: judge(sentence, open_run(…))")
    if isinstance(what, Path):
        gate = load_gate_file(what)
    elif what.endswith(GATE_SUFFIX):
        raise ArgumentMistake(f"'{printable(what)}' is a gate file: judge(Path(…), run)")
    else:
        gate = replace(run.gate, assertions=(assertion_of(what, run.gate),))
    if against is None and isinstance(what, str) and gate.assertions[0].needs_baseline:
        raise ArgumentMistake("a baseline is another run: judge(sentence, run, against=…)")
    context = GateContext(run.captures_for(gate), gate)
    if against is not None:
        before = against.captures_for(gate)
        check_two_runs(context.captures.paths, before.paths)
        context.baseline = OtherRun(context.captures, gate, before)
    verdicts = tuple(evaluate(assertion, context) for assertion in gate.assertions)
    return verdicts if isinstance(what, Path) else verdicts[0]


def compare(
    base: Paths,
    head: Paths,
    gate: str | os.PathLike[str] | None = None,
    *,
    convention: Named | None = None,
    anchor: str | None = None,
) -> Comparison:
    """Hold the run ``head`` against the run ``base``: its ``result``, its ``rows`` worst first, what came and went.

    ``gate`` is the gate file that judges, under its own convention; without one a built-in set of assertions does.
    Raises as :func:`judge` does.
    """
    sides = _values(base), _values(head)
    check_two_runs(*([path for value in side for path in find_traces(value, Path())] for side in sides))
    if gate is None:
        gates = [usual_gate(convention_for([*sides[0], *sides[1]], convention, anchor))]
    elif convention is not None or anchor is not None:
        raise ArgumentMistake("the gate file says the convention: give gate=, or convention= and anchor=")
    else:
        gates = [load_gate_file(Path(gate))]
    with contextlib.closing(CaptureCache()) as cache:
        return compare_pairs([pair_of(cache, each, *sides) for each in gates], *sides)


def pair_of(cache: CaptureCache, gate: GateFile, base: Sequence[str], head: Sequence[str]) -> Pair:
    """Both runs under the convention of a gate file; an error names its side."""
    opened = []
    for side, values in (("base", base), ("head", head)):
        with naming(side):
            opened.append(cache.captures(values, Path(), gate.convention, gate.workload, requests_of(gate)))
    return Pair(gate, *opened)


def usual_gate(
    convention: Convention, window: str = MEDIAN, span: Span | None = None, kernels: KernelsMode | None = None
) -> GateFile:
    """The built-in assertions, measured in a certain way."""
    name = Path(BUILT_IN_GATE)
    gate = load_gate_file(BUILT_IN_PATH, display=name)
    measured = [replace(a, window=window, span=span, kernels=kernels) for a in gate.assertions]
    return GateFile(name, tuple(measured), convention, window=window, span=span, kernels=kernels)


def metric_of(name: str) -> Metric:
    """The metric of a name. Raises ArgumentMistake."""
    if not isinstance(name, str):
        raise ArgumentMistake(f"a metric is a name, as in 'exposed_ns', not {name!r}")
    if name not in METRICS:
        hint = did_you_mean(name, METRICS) or "; `pytest-nsys metrics` lists them"
        raise ArgumentMistake(f"unknown metric '{printable(name, 60)}'{hint}")
    return METRICS[name]


def assertion_of(sentence: str, gate: GateFile) -> Assertion:
    """A sentence as an assertion of a gate file, whose settings it takes. Raises ArgumentMistake."""
    try:
        return parse_sentence(sentence, gate, Location(gate.path, 1, 1))
    except SentenceMistake as mistake:
        raise ArgumentMistake(f"{sentence!r}, character {mistake.offset + 1}: {mistake}") from None


def _one_of(kind: type[Kind], value: str | None) -> Kind | None:
    if value is None:
        return None
    if value not in list(kind):
        raise ArgumentMistake(f"'{printable(value, 40)}' is none of {', '.join(kind)}")
    return kind(value)


def _listed(dimension: str, labels: object) -> list[Label]:
    """The labels that a selector names. Raises ArgumentMistake for what is no label."""
    found = [labels] if isinstance(labels, int | str) else [*labels] if isinstance(labels, Iterable) else []
    if not found or not all(isinstance(label, int | str) for label in found):
        raise ArgumentMistake(f"{dimension}= is a label or a list of labels, as in rank=[0, 1], not {labels!r}")
    return found


def _values(paths: Paths) -> tuple[str, ...]:
    """The paths as text. Raises ArgumentMistake for none, UsageMistake for an empty one."""
    try:
        found = tuple(os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths))
    except TypeError:
        raise ArgumentMistake("a trace is a path, or a list of them, not " + type(paths).__name__) from None
    if not found:
        raise ArgumentMistake("there is no trace: give a path, or several captures")
    check_named(found)
    return found
