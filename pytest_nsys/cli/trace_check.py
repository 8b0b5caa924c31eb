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
    """Return the run that traces are, why it cannot be read where it cannot, and the exit code for that."""
    options = MeasureOptions(convention=convention, anchor=anchor, executor=executor)
    try:
        with options.one_run(traces, may_be_a_step=True) as (captures, spec):
            for run in captures.runs if anchor is not None else ():
                for rank in run.ranks:
                    run.windows(rank, spec)  # says why the anchor that somebody typed makes none
            return shape_of(captures, spec, options), [], Exit.GOOD
    except NsysError as error:
        code = Exit.NO_DATA if isinstance(error, NothingMeasured) else Exit.MISTAKE
        return None, [*measurements_among(traces)] or str(error).splitlines(), code


def measurements_among(values: Sequence[str]) -> Iterator[str]:
    """Yield which of the traces are measurements, each with the option that takes it."""
    for value in values:
        with contextlib.suppress(NsysError):
            for path in find_measurements(value, Path()):
                read_measurements(path)
                yield f"{path}: holds measurements, not a trace: pytest takes it as --nsys-measurements={value}"


def shape_of(captures: Captures, spec: WindowSpec, asked: MeasureOptions) -> RunShape:
    """Return what the report of a check says of a run."""
    (run,) = captures.runs
    files = [
        TraceFile(str(shown(trace.path)), format_of(trace.path), trace_facts.profiler_version)
        for trace, trace_facts in zip(run.traces, run.facts, strict=True)
    ]
    groups = [
        Group(
            view_group.view,
            view_group.metrics,
            view_group.with_rows,
            {reason: list(names) for reason, names in view_group.without.items()},
        )
        for view_group in available(captures, spec)
    ]
    facts = captures.facts_about(spec, Bounds(world=run.workload.world), *map(METRICS.__getitem__, OF_A_RUN))
    return RunShape(
        files=files,
        ranks=[rank.number for rank in run.ranks],
        gpu=run.gpu_model(),
        convention=asked.notes[0].text if asked.notes else captures.convention_words,
        anchored=not spec.whole_run,
        measured_as=str(spec),
        quality=[*_unfilled(run, spec), *(fact.error for fact in facts if fact.weight is Weight.ERROR)],
        doubts=[fact.sentence for fact in facts if fact.weight is Weight.DOUBT],
        groups=groups,
    )


def _unfilled(run: Run, spec: WindowSpec) -> Iterator[str]:
    """Yield that a rank has no window, or an empty one."""
    try:
        run.measured(spec).filled()
    except NothingMeasured as error:
        yield str(error)
