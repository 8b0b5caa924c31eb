"""What do traces contain, and what do they lack? A part of ``pytest-nsys check``, imported only if a trace is read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_nsys.analysis.captures.captures import DEFAULT_NOTE_METRICS, Captures, list_metric_availability
from pytest_nsys.analysis.fact_bounds import Bounds
from pytest_nsys.analysis.facts.fact import Weight
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.cli.command_group import ExitCode
from pytest_nsys.cli.options import MeasureOptions
from pytest_nsys.cli.pytest_session import shorten_path
from pytest_nsys.core.conventions import Anchor
from pytest_nsys.core.errors import NothingMeasured, NsysError
from pytest_nsys.reports.screens.check import MetricGroup, RunShape, TraceFile
from pytest_nsys.traces.sidecars.measurements import find_measurement_files, read_measurements
from pytest_nsys.traces.trace_files import describe_format


def check_run(
    traces: Sequence[str], convention: str | None, anchor: Anchor | None, executor: str | None
) -> tuple[RunShape | None, list[str], ExitCode]:
    """Return the run of the traces, or None with the reasons why it cannot be read and the exit code."""
    options = MeasureOptions(convention=convention, anchor=anchor, executor=executor)
    try:
        with options.open_one_run(traces, may_be_a_step=True) as (captures, spec):
            for run in captures.runs if anchor is not None else ():
                for rank in run.ranks:
                    run.pick_windows(rank, spec)  # raises the reason if the given anchor makes no window
            return describe_run(captures, spec, options), [], ExitCode.GOOD
    except NsysError as error:
        code = ExitCode.NO_DATA if isinstance(error, NothingMeasured) else ExitCode.MISTAKE
        return None, [*describe_measurement_files(traces)] or str(error).splitlines(), code


def describe_measurement_files(values: Sequence[str]) -> Iterator[str]:
    """Yield which of the given traces are files of measurements, each with the option to use instead."""
    for value in values:
        with contextlib.suppress(NsysError):
            for path in find_measurement_files(value, Path()):
                read_measurements(path)
                yield f"{path}: holds measurements, not a trace: pytest takes it as --nsys-measurements={value}"


def describe_run(captures: Captures, spec: WindowSpec, measure_options: MeasureOptions) -> RunShape:
    """Return the contents of a check's report on a run."""
    (run,) = captures.runs
    files = [
        TraceFile(str(shorten_path(trace.path)), describe_format(trace.path), trace_facts.profiler_version)
        for trace, trace_facts in zip(run.traces, run.facts, strict=True)
    ]
    groups = [
        MetricGroup(
            view_group.command,
            view_group.metric_count,
            view_group.available_count,
            {reason: list(names) for reason, names in view_group.missing_by_reason.items()},
        )
        for view_group in list_metric_availability(captures, spec)
    ]
    facts = captures.list_facts(spec, Bounds(world=run.workload.world), *map(METRICS.__getitem__, DEFAULT_NOTE_METRICS))
    return RunShape(
        files=files,
        ranks=[rank.number for rank in run.ranks],
        gpu=run.find_gpu_model(),
        convention=measure_options.notes[0].text if measure_options.notes else captures.convention_text,
        anchored=not spec.is_whole_run,
        measured_as=str(spec),
        quality=[*_describe_unfilled(run, spec), *(fact.error for fact in facts if fact.weight is Weight.ERROR)],
        doubts=[fact.sentence for fact in facts if fact.weight is Weight.DOUBT],
        groups=groups,
    )


def _describe_unfilled(run: Run, spec: WindowSpec) -> Iterator[str]:
    """Yield the ranks with no window or an empty one, as text."""
    try:
        run.load_windows(spec).require_filled_windows()
    except NothingMeasured as error:
        yield str(error)
