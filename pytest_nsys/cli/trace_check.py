"""What do traces hold, and what do they lack? A part of ``pytest-nsys check``, which imports it where it reads one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_nsys.analysis.captures.captures import OF_A_RUN, Captures, available
from pytest_nsys.analysis.fact_bounds import Bounds
from pytest_nsys.analysis.facts.fact import Weight
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.cli.asking import shown
from pytest_nsys.cli.group import Exit
from pytest_nsys.cli.options import MeasureOptions
from pytest_nsys.core.conventions import Anchor
from pytest_nsys.core.errors import NothingMeasured, NsysError
from pytest_nsys.reports.screens.check import Group, RunShape, TraceFile
from pytest_nsys.traces.measurements import find_measurements, read_measurements
from pytest_nsys.traces.opening import format_of


def checked_run(
    traces: Sequence[str], convention: str | None, anchor: Anchor | None, executor: str | None
) -> tuple[RunShape | None, list[str], Exit]:
    """The run that traces are, why it cannot be read where it cannot, and the exit code that asks for."""
    asked = MeasureOptions(convention=convention, anchor=anchor, executor=executor)
    try:
        with asked.one_run(traces, may_be_a_step=True) as (captures, spec):
            for run in captures.runs if anchor is not None else ():
                for rank in run.ranks:
                    run.windows(rank, spec)  # says why the anchor that somebody typed makes none
            return shape_of(captures, spec, asked), [], Exit.GOOD
    except NsysError as error:
        code = Exit.NO_DATA if isinstance(error, NothingMeasured) else Exit.MISTAKE
        return None, [*measurements_among(traces)] or str(error).splitlines(), code


def measurements_among(values: Sequence[str]) -> Iterator[str]:
    """What among the traces are measurements, each with the option that takes it."""
    for value in values:
        with contextlib.suppress(NsysError):
            for path in find_measurements(value, Path()):
                read_measurements(path)
                yield f"{path}: holds measurements, not a trace: pytest takes it as --nsys-measurements={value}"


def shape_of(captures: Captures, spec: WindowSpec, asked: MeasureOptions) -> RunShape:
    """What the report tells of a run."""
    (run,) = captures.runs
    files = [
        TraceFile(str(shown(trace.path)), format_of(trace.path), facts.profiler_version)
        for trace, facts in zip(run.traces, run.facts, strict=True)
    ]
    groups = [
        Group(one.view, one.metrics, one.with_rows, {why: list(names) for why, names in one.without.items()})
        for one in available(captures, spec)
    ]
    found = captures.facts_about(spec, Bounds(world=run.workload.world), *map(METRICS.__getitem__, OF_A_RUN))
    return RunShape(
        files=files,
        ranks=[rank.number for rank in run.ranks],
        gpu=run.gpu_model(),
        convention=asked.notes[0].text if asked.notes else captures.convention_words,
        anchored=not spec.whole_run,
        measured_as=str(spec),
        quality=[*_unfilled(run, spec), *(fact.error for fact in found if fact.weight is Weight.ERROR)],
        doubts=[fact.sentence for fact in found if fact.weight is Weight.DOUBT],
        groups=groups,
    )


def _unfilled(run: Run, spec: WindowSpec) -> Iterator[str]:
    """That a rank has no window, or an empty one."""
    try:
        run.measured(spec).filled()
    except NothingMeasured as why:
        yield str(why)
