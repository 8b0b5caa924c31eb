"""Runs opened once and asked many times: metric in, rows out; assertion in, Verdict out.

Several captures of one program give rows that are medians over the captures. Whatever was read or measured is kept, so
that a second assertion, or a second gate file on the same trace, costs no reading.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pytest_nsys.analysis.collectives import collective_notes
from pytest_nsys.analysis.identity import Key
from pytest_nsys.analysis.kernel_families import PER_STEP, Launcher
from pytest_nsys.analysis.metrics import Metric, Scope, Unit
from pytest_nsys.analysis.outlying import FEWEST, outlying
from pytest_nsys.analysis.pipeline import OF_STAGES, RANGES_ALONE, pipeline_notes
from pytest_nsys.analysis.preflight import notes_on
from pytest_nsys.analysis.quality import Bounds, crossed
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.reading_plan import Opening, Request, as_they_are
from pytest_nsys.analysis.run import Run, RunWindow
from pytest_nsys.analysis.structure import KernelSequence, barrier_notes, sequences
from pytest_nsys.analysis.table import Coordinates, Table, label_key
from pytest_nsys.analysis.throughput import batch_words
from pytest_nsys.analysis.windows import UsedWindow, WindowSpec, spec_under
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.errors import GOES_ON, NoRows, NsysError, TraceError, UsageMistake
from pytest_nsys.core.model import KernelsMode, Label, Note, Row, Span, Trace, Value, from_here
from pytest_nsys.core.statistics import median
from pytest_nsys.core.units import format_value
from pytest_nsys.core.workload import Workload
from pytest_nsys.traces.opening import check_one_format, find_traces
from pytest_nsys.traces.same_bytes import given_twice, in_both


@dataclass(frozen=True)
class Mesh:
    """Coordinates by rank number, and the size of each axis."""

    coordinates: Coordinates
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class MetricRows:
    """The rows of one metric, ordered by label, and the rows that some capture or window lacks, with why.

    ``why`` there are none, where the metric can tell.
    """

    metric: Metric
    rows: tuple[Row, ...]
    missing: tuple[tuple[tuple[Label, ...], str], ...] = ()
    why: str = ""

    def table(self, mesh: Mesh) -> Table:
        """The rows as a gate sees them."""
        rows = [(row.labels, row.value) for row in self.rows]
        return _table(self.metric, rows, mesh, self.why)


def _table(metric: Metric, rows: Sequence[tuple[tuple[Label, ...], Value]], mesh: Mesh, why: str = "") -> Table:
    return Table(metric.dimensions, rows, mesh.coordinates, mesh.sizes, metric.every_stage, why or metric.without)


class Captures:
    """The captures of one program under one convention. Raises TraceError where they cannot be judged."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = tuple(runs)
        self.convention = runs[0].convention
        self._measured: dict[tuple[str, WindowSpec, frozenset[int] | None], MetricRows] = {}
        self._each: dict[tuple[str, WindowSpec, frozenset[int] | None], Sequence[MetricRows]] = {}
        self._windows: dict[WindowSpec, tuple[UsedWindow, ...]] = {}
        self._sequences: dict[WindowSpec, Mapping[int, KernelSequence]] = {}
        self._keys: dict[tuple[tuple[str, Label], ...], Key] = {}
        self._doubts: dict[tuple[Bounds, WindowSpec, str], tuple[str, ...]] = {}

    def spec(self, window: str, span: Span | None = None, kernels: KernelsMode | None = None) -> WindowSpec:
        """A window spec, with what is left open as the convention has it."""
        return spec_under(self.convention, window, span, kernels)

    def rows(self, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None = None) -> MetricRows:
        """The rows of a metric, of all ranks or of some: medians over captures, each the median over its windows."""
        key = (metric.name, spec, ranks)
        if key not in self._measured:
            each = self.each(metric, spec, ranks)
            self._measured[key] = each[0] if len(each) == 1 else _combined(metric, each, "captures")
        return self._measured[key]

    def each(self, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None = None) -> Sequence[MetricRows]:
        """The rows of a metric in each capture."""
        key = (metric.name, spec, ranks)
        if key not in self._each:
            self._each[key] = [_capture_rows(capture, metric, spec, ranks) for capture in self.runs]
        return self._each[key]

    def sequences(self, spec: WindowSpec) -> Mapping[int, KernelSequence]:
        """What the fingerprints of all windows stand for."""
        if spec not in self._sequences:
            windows = (
                window for capture in self.runs for own in capture.measured(spec).filled().values() for window in own
            )
            self._sequences[spec] = {h: each for window in windows for h, each in sequences(window).items()}
        return self._sequences[spec]

    @cached_property
    def mesh(self) -> Mesh:
        """Where each rank stands, as the setup labels say."""
        ranks = self.runs[0].ranks
        sizes = next((rank.setup.sizes for rank in ranks if rank.setup is not None), {})
        return Mesh({rank.number: rank.coordinates for rank in ranks}, sizes)

    def stored(self, metric: Metric, rows: Mapping[tuple[Label, ...], Value]) -> Table:
        """Rows of a baseline as a gate sees them, its ranks standing where those of this run do."""
        return _table(metric, list(rows.items()), self.mesh)

    def windows(self, spec: WindowSpec) -> tuple[UsedWindow, ...]:
        """The windows that were measured."""
        if spec not in self._windows:
            self._windows[spec] = tuple(
                UsedWindow(number, rank, window)
                for number, capture in enumerate(self.runs)
                for rank, windows in sorted(capture.measured(spec).windows.items())
                for window in windows
            )
        return self._windows[spec]

    def middle_windows(self, spec: WindowSpec, rank: Label) -> Iterator[RankWindow]:
        """The window in the middle of those of a rank, in each capture."""
        for capture in self.runs:
            windows = capture.measured(spec).ranks.get(rank, ()) if isinstance(rank, int) else ()
            yield from windows[len(windows) // 2 :][:1]

    def notes(self, spec: WindowSpec, *metrics: Metric) -> tuple[Note, ...]:
        """What a person should know about the measurements of these metrics."""
        staged = [metric for metric in metrics if metric.name not in RANGES_ALONE]
        stages = any({"stage", "purpose"} & set(metric.dimensions) for metric in staged)
        tax = any(metric.name == "overlap_tax_ns" for metric in metrics)
        streams = not metrics or any(metric.name not in PER_STEP for metric in metrics)
        told = {"stages": stages, "streams": streams, "tax": tax}
        found = [note for capture in self.runs for note in notes_on(capture, spec, **told)]
        if any(metric.name in OF_STAGES for metric in metrics):
            windows = (window for each in self.runs for window in each.measured(spec).together()[:1])
            found += [note for window in windows for note in pipeline_notes(window)]
        if any("collective" in metric.dimensions for metric in metrics):
            found += collective_notes(self.runs, spec)
        if any(metric.name == "compute_on_comm_streams" for metric in metrics):
            of_ranks = (own for each in self.runs for own in each.measured(spec).ranks.values())
            found += barrier_notes(window for own in of_ranks for window in own)
        found += [Note(line, True) for metric in metrics for line in self.outlying(metric, spec)]
        return tuple(dict.fromkeys(note._replace(text=from_here(note.text)) for note in found))

    def outlying(self, metric: Metric, spec: WindowSpec) -> tuple[str, ...]:
        """The captures that lie far from the others, a line each: their median hides it."""
        if metric.unit is Unit.HASH or len(self.runs) < FEWEST:
            return ()
        each = [dict(one.rows) for one in self.each(metric, spec)]
        names = [f"capture {n} of {len(each)} ({run.traces[0].path.name})" for n, run in enumerate(self.runs, 1)]
        return tuple(f"{names[far.capture]}: {far.told(metric)}" for far in outlying(each))

    def check(self, bounds: Bounds, spec: WindowSpec, metric: Metric) -> None:
        """Raises TraceError where the traces are not good enough to judge a metric: a line for each crossed bound."""
        key = (bounds, spec, metric.name)
        if key not in self._doubts:
            self.rows(metric, spec)  # an empty window says more than what is wrong with it
            found: list[str] = []
            for capture in self.runs:
                where = f"{capture.traces[0].path}: " if len(self.runs) > 1 else ""
                found += [where + line for line in crossed(capture, spec, bounds, metric.name, metric.dimensions)]
            self._doubts[key] = tuple(found)
        if self._doubts[key]:
            raise TraceError(GOES_ON.join(self._doubts[key]))

    def key(self, stated: Mapping[str, Label]) -> Key:
        """What makes this run comparable to another. ``stated`` is what the gate file says where the trace does not."""
        asked = tuple(sorted(stated.items()))
        if asked not in self._keys:
            keys = [_key(capture, stated) for capture in self.runs]
            for other in keys[1:]:
                if other != keys[0]:
                    differing = [n for n, v in keys[0].as_json().items() if other.as_json()[n] != v]
                    raise TraceError(f"the captures differ in {', '.join(differing)}: give captures of one program")
            self._keys[asked] = keys[0]
        return self._keys[asked]

    @cached_property
    def facts(self) -> Mapping[str, Sequence[str | int] | None]:
        """Circumstances that are compared but do not name a baseline: the ranks' numbers of anchors, the steps that
        are stated, the GPUs, how the files say that they were launched, the anchors' names with their numbers left out,
        the major version of the profiler, and what is stated of a pipeline, of blocks, of the batch and of the
        network. None where nobody says.
        """
        anchors = [capture.anchors(rank) for capture in self.runs for rank in capture.ranks]
        steps = {len(own) for own in anchors if own}
        shapes = {re.sub(r"[0-9]+", "N", name) for name in {anchor.name for own in anchors for anchor in own}}
        majors = {version.split(".")[0] for version in self.profilers()}
        stated = self.runs[0].workload
        found: dict[str, set[int] | set[str]] = {"steps": steps, "anchor": shapes, "profiler": majors}
        found |= {"stated_steps": {stated.steps} if stated.steps else {"no"}}
        found |= {"gpus": {len(capture.ranks) for capture in self.runs}}
        found |= {"launcher": {str(Launcher.of(len(run.ranks), run.files)) for run in self.runs}}
        found |= {"pipeline": set(stated.pipeline.words if stated.pipeline else ()), "blocks": set(stated.blocks)}
        peak, batch = stated.peak_gb_per_s, batch_words(stated)
        found |= {"batch": {batch} if batch else set(), "peak": set() if peak is None else {format_value(peak, "GB/s")}}
        return {name: sorted(values) or None for name, values in found.items()}

    @property
    def convention_words(self) -> str:
        """The name of the convention, and the known libraries that make it another one to a baseline."""
        added = ", ".join(sorted(self.runs[0].libraries))
        return self.convention.name + (f" with {added}" if added else "")

    def circumstances(self, stated: Mapping[str, Label]) -> Mapping[str, object]:
        """By what two runs are compared that are both measured now: by one table of libraries, whichever ran."""
        return {**self.key(stated).as_json(), **self.facts, "convention": self.convention.fingerprint()}

    def profilers(self) -> tuple[str, ...]:
        """The versions of the profiler that wrote the traces."""
        versions = {facts.profiler_version for capture in self.runs for facts in capture.facts}
        return tuple(sorted(v for v in versions if v is not None))

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of all captures."""
        return tuple(trace.path for capture in self.runs for trace in capture.traces)

    def close(self) -> None:
        """Let the files go."""
        for capture in self.runs:
            capture.close()


def check_two_runs(now: Sequence[Path], before: Sequence[Path]) -> None:
    """Raises UsageMistake where both sides of a comparison hold the same trace: it would be green whatever happened."""
    if found := in_both(now, before):
        and_copy = f" (of which {found.second} is a copy)" if found.is_copy else ""
        raise UsageMistake(f"both sides are the same trace: {found.first}{and_copy}; nothing can differ")


def _capture_rows(capture: Run, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None) -> MetricRows:
    if metric.scope is Scope.RUN:
        return _run_rows(capture, metric, spec, ranks)
    rows: list[Row] = []
    missing: list[tuple[tuple[Label, ...], str]] = []
    why = ""
    for windows in capture.measured(spec).filled(ranks).values():
        each = [_measured(metric, window) for window in windows]
        own = each[0] if len(each) == 1 else _combined(metric, each, "windows")
        why = why or own.why
        rows += own.rows
        missing += own.missing
    return MetricRows(metric, tuple(rows), tuple(missing), why)


def _run_rows(capture: Run, metric: Metric, spec: WindowSpec, ranks: frozenset[int] | None) -> MetricRows:
    """The rows of all ranks together; of some ranks those that are theirs, where the metric has the dimension."""
    each = [_measured(metric, window) for window in capture.measured(spec).together()]
    found = each[0] if len(each) == 1 else _combined(metric, each, "windows")
    if ranks is None or "rank" not in metric.dimensions:
        return found
    at = metric.dimensions.index("rank")
    rows = tuple(row for row in found.rows if row.labels[at] in ranks)
    return MetricRows(metric, rows, tuple(lost for lost in found.missing if lost[0][at] in ranks), found.why)


def _measured(metric: Metric, window: RankWindow | RunWindow) -> MetricRows:
    """The rows of one window, or why it has none."""
    try:
        return MetricRows(metric, tuple(metric.rows(window)))
    except NoRows as nothing:
        return MetricRows(metric, (), why=str(nothing))


def _combined(metric: Metric, each: Sequence[MetricRows], of_what: str) -> MetricRows:
    """Medians row by row; a row that one of them lacks is missing."""
    values: dict[tuple[Label, ...], list[Value]] = {}
    missing = {labels: why for one in each for labels, why in one.missing}
    for one in each:
        for row in one.rows:
            values.setdefault(row.labels, []).append(row.value)
    rows = []
    for labels, found in sorted(values.items(), key=lambda item: [label_key(label) for label in item[0]]):
        if len(found) < len(each):
            missing.setdefault(labels, f"only {len(found)} of {len(each)} {of_what} have this row")
        elif metric.unit is Unit.HASH and len(set(found)) > 1:
            missing.setdefault(labels, f"it is not the same in all {len(each)} {of_what}")
        elif labels not in missing:
            rows.append(Row(labels, median(found)))
    why = next((one.why for one in each if one.why), "")
    return MetricRows(metric, tuple(rows), tuple(missing.items()), why)


def _key(capture: Run, stated: Mapping[str, Label]) -> Key:
    ranks = capture.ranks
    setup = next((rank.setup for rank in ranks if rank.setup is not None), None)
    mesh = dict(setup.sizes) if setup else {}
    mesh |= {axis: int(n) for axis, n in stated.items() if axis not in _RUN_FACTS and axis not in mesh}

    def told(name: str, found: int | None) -> int | None:
        return int(stated[name]) if found is None and name in stated else found

    gpu = capture.gpu_model()
    return Key(
        convention=capture.convention.fingerprint(capture.libraries),
        mesh=mesh or None,
        micro_batch=told("micro_batch", setup.micro_batch if setup else None),
        sequence_length=told("sequence_length", setup.sequence_length if setup else None),
        world=int(stated.get("world", len(ranks))) if setup is None else len(ranks),
        gpu=str(stated["gpu"]) if gpu is None and "gpu" in stated else gpu,
    )


_RUN_FACTS = ("gpu", "world", "micro_batch", "sequence_length")


@dataclass
class CaptureCache:
    """Every run of a session, opened when first asked for. An error is remembered too: a trace fails only once."""

    opening: Opening = as_they_are
    _known: dict[tuple[tuple[tuple[Path, ...], ...], Convention, Workload], Captures | NsysError] = field(
        default_factory=dict
    )

    def captures(
        self,
        captures: Sequence[str],
        base: Path,
        convention: Convention,
        workload: Workload | None = None,
        requests: Sequence[Request] = (),
    ) -> Captures:
        """The captures (file, folder or glob, relative to ``base``) under a convention, and what is stated of them.

        ``requests`` may say what will be asked of them, so that it can be read ahead.
        Raises UsageMistake for a path that means nothing, TraceError for a trace that cannot be read.
        """
        named = [find_traces(value, base) for value in captures]
        if len({tuple(p.resolve() for p in own) for own in named}) < len(named):
            raise UsageMistake(f"a capture is given twice: {', '.join(captures)}; each is one run of its own")
        return self._captures(named, convention, workload or Workload(), requests)

    def one_run(
        self,
        traces: Sequence[str],
        base: Path,
        convention: Convention,
        workload: Workload | None = None,
        requests: Sequence[Request] = (),
    ) -> Captures:
        """One capture, of all the files that ``traces`` mean together; everything else as :meth:`captures` has it."""
        found = [path for value in traces for path in find_traces(value, base)]
        path, times = Counter(path.resolve() for path in found).most_common(1)[0]
        if times > 1:
            raise UsageMistake(f"{path}: is given twice; give each file of the run once")
        return self._captures([found], convention, workload or Workload(), requests)

    def _captures(
        self, named: Sequence[Sequence[Path]], convention: Convention, stated: Workload, requests: Sequence[Request]
    ) -> Captures:
        paths = tuple(tuple(p.resolve() for p in own) for own in named)
        key = (paths, convention, stated)
        if key not in self._known:
            try:
                _check_copies(named)
                opening = self.opening([p for own in paths for p in own], convention, stated, requests)
                self._known[key] = Captures(_opened(paths, convention, stated, opening))
            except NsysError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, NsysError):
            raise found
        return found

    def close(self) -> None:
        """Let all files go."""
        for known in self._known.values():
            if isinstance(known, Captures):
                known.close()


def _check_copies(captures: Sequence[Sequence[Path]]) -> None:
    """Raises UsageMistake where two captures hold the same trace, which would be taken for two without any noise."""
    if (found := given_twice(captures)) is None:
        return
    what = f"{found.first} and {found.second} hold the same bytes" if found.is_copy else f"{found.first} is given twice"
    raise UsageMistake(f"{what}: one trace is one sample")


def _opened(
    captures: Sequence[Sequence[Path]], convention: Convention, workload: Workload, opening: Callable[[Path], Trace]
) -> list[Run]:
    """The runs of the captures; where one trace cannot be opened, none stays open."""
    with contextlib.ExitStack() as opened:
        runs = []
        for paths in captures:
            traces = []
            for path in paths:
                traces.append(opening(path))
                opened.callback(traces[-1].close)
            check_one_format(traces)
            runs.append(Run(traces, convention, workload))
        opened.pop_all()
    return runs
