"""Runs opened once and asked many times: metric in, rows out; assertion in, Verdict out.

Several captures of one program give rows that are medians over the captures. Whatever was read or measured is kept, so
that a second assertion, or a second gate file on the same trace, costs no reading.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pytest_nsys.analysis.preflight import notes_on
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.statistics import median
from pytest_nsys.analysis.windows import RUN, Pick
from pytest_nsys.conventions import Convention
from pytest_nsys.errors import NsysError, TraceError, UsageMistake
from pytest_nsys.gates.assertion import Assertion
from pytest_nsys.gates.baselines import Key, SeriesId
from pytest_nsys.gates.selection import Coordinates, Table, label_key
from pytest_nsys.gates.verdict import UsedWindow
from pytest_nsys.metrics import Metric
from pytest_nsys.model import KernelsMode, Label, Note, Row, Span, Value
from pytest_nsys.traces.opening import find_traces, open_trace


@dataclass(frozen=True)
class Mesh:
    """Coordinates by rank number, and the size of each axis."""

    coordinates: Coordinates
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class Measured:
    """The rows of one metric, ordered by label, and the rows that some capture or window lacks, with why."""

    metric: Metric
    rows: tuple[Row, ...]
    missing: tuple[tuple[tuple[Label, ...], str], ...] = ()

    def table(self, mesh: Mesh) -> Table:
        """The rows as a gate sees them."""
        rows = [(row.labels, row.value) for row in self.rows]
        return Table(self.metric.dimensions, rows, mesh.coordinates, mesh.sizes)


class Evidence:
    """The captures of one program under one convention. Raises TraceError where they cannot be judged."""

    def __init__(self, captures: Sequence[Run]) -> None:
        self.captures = tuple(captures)
        self.convention = captures[0].convention
        self._measured: dict[tuple[str, Pick, frozenset[int] | None], Measured] = {}
        self._windows: dict[Pick, tuple[UsedWindow, ...]] = {}
        self._keys: dict[tuple[tuple[str, Label], ...], Key] = {}

    def pick(self, window: str, span: Span | None = None, kernels: KernelsMode | None = None) -> Pick:
        """A pick, with what is left open as the convention has it."""
        asked = Pick(window, span or self.convention.span, kernels or self.convention.kernels)
        if asked.whole_run:
            return Pick(RUN)  # has neither anchors nor edges: however it is asked for, it is read once
        return replace(asked, span=Span.RANGE) if asked.explicit else asked

    def pick_of(self, assertion: Assertion) -> Pick:
        """What the assertion is judged on."""
        return self.pick(assertion.window, assertion.span, assertion.kernels)

    def rows(self, metric: Metric, pick: Pick, ranks: frozenset[int] | None = None) -> Measured:
        """The rows of a metric, of all ranks or of some: medians over captures, each the median over its windows."""
        key = (metric.name, pick, ranks)
        if key not in self._measured:
            each = [_capture_rows(capture, metric, pick, ranks) for capture in self.captures]
            self._measured[key] = each[0] if len(each) == 1 else _combined(metric, each, "captures")
        return self._measured[key]

    @cached_property
    def mesh(self) -> Mesh:
        """Where each rank stands, as the setup labels say."""
        ranks = self.captures[0].ranks
        sizes = next((rank.setup.sizes for rank in ranks if rank.setup is not None), {})
        return Mesh({rank.number: rank.coordinates for rank in ranks}, sizes)

    def stored(self, metric: Metric, rows: Mapping[tuple[Label, ...], Value]) -> Table:
        """Rows of a baseline as a gate sees them, its ranks standing where those of this run do."""
        return Table(metric.dimensions, list(rows.items()), self.mesh.coordinates, self.mesh.sizes)

    def windows(self, pick: Pick) -> tuple[UsedWindow, ...]:
        """The windows that were measured."""
        if pick not in self._windows:
            self._windows[pick] = tuple(
                UsedWindow(number, rank, window)
                for number, capture in enumerate(self.captures)
                for rank, windows in sorted(capture.measured(pick).windows.items())
                for window in windows
            )
        return self._windows[pick]

    def notes(self, pick: Pick, *metrics: Metric) -> tuple[Note, ...]:
        """What a person should know about the measurements of these metrics."""
        stages = any({"stage", "purpose"} & set(metric.dimensions) for metric in metrics)
        tax = any(metric.name == "overlap_tax_ns" for metric in metrics)
        found = (note for capture in self.captures for note in notes_on(capture, pick, stages=stages, tax=tax))
        return tuple(dict.fromkeys(found))

    def key(self, stated: Mapping[str, Label]) -> Key:
        """What makes this run comparable to another. ``stated`` is what the gate file says where the trace does not."""
        asked = tuple(sorted(stated.items()))
        if asked not in self._keys:
            keys = [_key(capture, stated) for capture in self.captures]
            for other in keys[1:]:
                if other != keys[0]:
                    differing = [n for n, v in keys[0].as_json().items() if other.as_json()[n] != v]
                    raise TraceError(f"the captures differ in {', '.join(differing)}: give captures of one program")
            self._keys[asked] = keys[0]
        return self._keys[asked]

    def profilers(self) -> tuple[str, ...]:
        """The versions of the profiler that wrote the traces."""
        versions = {facts.profiler_version for capture in self.captures for facts in capture.facts}
        return tuple(sorted(v for v in versions if v is not None))

    def close(self) -> None:
        """Let the files go."""
        for capture in self.captures:
            capture.close()


def series_id(metric: Metric, pick: Pick) -> SeriesId:
    """What the rows of a metric are stored under."""
    return SeriesId(metric.name, metric.definition, pick.window, str(pick.span), str(pick.kernels))


def _capture_rows(capture: Run, metric: Metric, pick: Pick, ranks: frozenset[int] | None) -> Measured:
    rows: list[Row] = []
    missing: list[tuple[tuple[Label, ...], str]] = []
    for windows in capture.measured(pick).filled(ranks).values():
        each = [Measured(metric, tuple(metric.rows(window))) for window in windows]
        own = each[0] if len(each) == 1 else _combined(metric, each, "windows")
        rows += own.rows
        missing += own.missing
    return Measured(metric, tuple(rows), tuple(missing))


def _combined(metric: Metric, each: Sequence[Measured], of_what: str) -> Measured:
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
        elif labels not in missing:
            rows.append(Row(labels, median(found)))
    return Measured(metric, tuple(rows), tuple(missing.items()))


def _key(capture: Run, stated: Mapping[str, Label]) -> Key:
    ranks = capture.ranks
    setup = next((rank.setup for rank in ranks if rank.setup is not None), None)
    mesh = dict(setup.sizes) if setup else {}
    mesh |= {axis: int(n) for axis, n in stated.items() if axis not in _RUN_FACTS and axis not in mesh}

    def told(name: str, found: int | None) -> int | None:
        return int(stated[name]) if found is None and name in stated else found

    gpu = capture.gpu_model()
    return Key(
        convention=capture.convention.fingerprint(),
        mesh=mesh or None,
        micro_batch=told("micro_batch", setup.micro_batch if setup else None),
        sequence_length=told("sequence_length", setup.sequence_length if setup else None),
        world=int(stated.get("world", len(ranks))) if setup is None else len(ranks),
        gpu=str(stated["gpu"]) if gpu is None and "gpu" in stated else gpu,
    )


_RUN_FACTS = ("gpu", "world", "micro_batch", "sequence_length")


@dataclass
class Library:
    """Every run of a session, opened when first asked for. An error is remembered too: a trace fails only once."""

    _known: dict[tuple[tuple[tuple[Path, ...], ...], Convention], Evidence | NsysError] = field(default_factory=dict)

    def evidence(self, captures: Sequence[str], base: Path, convention: Convention) -> Evidence:
        """The captures (file, folder or glob, relative to ``base``) under a convention.

        Raises UsageMistake for a path that means nothing, TraceError for a trace that cannot be read.
        """
        paths = tuple(tuple(p.resolve() for p in find_traces(value, base)) for value in captures)
        if len(set(paths)) < len(paths):
            raise UsageMistake(f"a capture is given twice: {', '.join(captures)}; each is one run of its own")
        key = (paths, convention)
        if key not in self._known:
            try:
                self._known[key] = Evidence(_opened(paths, convention))
            except NsysError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, NsysError):
            raise found
        return found

    def close(self) -> None:
        """Let all files go."""
        for known in self._known.values():
            if isinstance(known, Evidence):
                known.close()


def _opened(captures: Sequence[Sequence[Path]], convention: Convention) -> list[Run]:
    """The runs of the captures; where one trace cannot be opened, none stays open."""
    with contextlib.ExitStack() as opened:
        runs = []
        for paths in captures:
            traces = []
            for path in paths:
                traces.append(open_trace(path))
                opened.callback(traces[-1].close)
            runs.append(Run(traces, convention))
        opened.pop_all()
    return runs
