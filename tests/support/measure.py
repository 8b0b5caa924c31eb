"""What does a metric say of a trace? Labels and values as a mapping: the shape in which a test states its numbers."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.explain.breakdown_model import Breakdown, Explanation
from pytest_nsys.analysis.metrics.quantities import QUANTITIES
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention
from pytest_nsys.core.model import KernelsMode, Label, Span, Value, Window
from pytest_nsys.core.workload import Workload

STEP = replace(BUILT_IN_CONVENTIONS["pithtrain"], name="step", anchor="step%")
"""PithTrain's stages, purposes and setup label around anchors that are quick to write."""

STEPS = replace(STEP, part=False)
"""The same anchors as whole steps, each of which lasts until the next."""

SETUP = "rank={}; pp={}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
"""The setup label of one rank of two, to be filled with its number twice."""


OF_SIZES = (
    *("collective_bytes", "traffic_share", "bandwidth_utilisation", "busbw"),
    *("collective_wait_ns", "collective_transfer_ns"),
)
"""Metrics and columns of what a trace records of its collectives: see test_collectives.py."""

OF_THE_GPU = ("peak_allocated_bytes", "sm_clock_mhz")
"""Metrics of what few traces record of the GPU itself: see test_gpu_state.py."""


COMPLEMENTS = {"busy_ns": "idle_ns", "device_busy_ns": "device_idle_ns", "compute_busy_ns": "compute_absent_ns"}
"""What a reference says of a window, and the metric that says the rest of it."""


@contextmanager
def captures(
    *captures: os.PathLike[str], convention: Convention = STEP, workload: Workload | None = None
) -> Iterator[Captures]:
    """Captures of one run each, closed at the end."""
    with closing(CaptureCache()) as library:
        yield library.open_captures([os.fspath(path) for path in captures], Path(), convention, workload)


def rows(
    trace: os.PathLike[str],
    metric: str,
    *,
    convention: Convention = STEP,
    window: str = "median",
    span: Span | str | None = None,
    kernels: KernelsMode | str | None = None,
) -> Mapping[object, Value]:
    """The values of a metric, or of a column that views show, by label, or by tuple of labels of several dimensions."""
    with captures(trace, convention=convention) as run:
        spec = run.make_spec(window, Span(span) if span else None, KernelsMode(kernels) if kernels else None)
        return rows_of(run, metric, spec)


def rows_of(run: Captures, metric: str, spec: WindowSpec) -> Mapping[object, Value]:
    """The same, of captures that are open already. What is busy is the window without what is its complement."""
    if metric in COMPLEMENTS:
        whole, rest = rows_of(run, "window_ns", spec), rows_of(run, COMPLEMENTS[metric], spec)
        return {label: whole[label] - value for label, value in rest.items()}
    return {
        _key(row.labels): row.value for row in run.measure_rows(METRICS.get(metric) or QUANTITIES[metric], spec).rows
    }


def windows(
    trace: os.PathLike[str], window: str = "median", *, convention: Convention = STEP, span: str = "range"
) -> list[Window]:
    """The windows that a window spec gives, of every rank, in order; kernels need not be in them."""
    with captures(trace, convention=convention) as run:
        (capture,) = run.runs
        spec = run.make_spec(window, Span(span))
        return [window for rank in capture.ranks for window in capture.pick_windows(rank, spec)]


def notes(
    trace: os.PathLike[str],
    *metrics: str,
    convention: Convention = STEP,
    window: str = "median",
    kernels: KernelsMode | str | None = None,
) -> list[str]:
    """What is told beside the metrics."""
    with captures(trace, convention=convention) as run:
        spec = run.make_spec(window, None, KernelsMode(kernels) if kernels else None)
        for metric in metrics:
            run.measure_rows(METRICS[metric], spec)
        return [note.text for note in run.list_notes(spec, *(METRICS[metric] for metric in metrics))]


def why(
    trace: os.PathLike[str],
    metric: str,
    *,
    convention: Convention = STEP,
    window: str = "median",
    kernels: KernelsMode | str | None = None,
    workload: Workload | None = None,
) -> str:
    """Why a metric has no row."""
    with captures(trace, convention=convention, workload=workload) as run:
        table = run.measure_rows(
            METRICS[metric], run.make_spec(window, None, KernelsMode(kernels) if kernels else None)
        )
    assert table.rows == ()
    return table.no_row_reason


def _key(labels: tuple[Label, ...]) -> Label | tuple[Label, ...]:
    return labels[0] if len(labels) == 1 else labels


def explain(metric: str, labels: Mapping[str, object], change_ns: int, was: Breakdown, now: Breakdown) -> Explanation:
    """Why a row changed, as the metric's own parts say."""
    parts = METRICS[metric].parts
    assert parts is not None
    return parts.explain(labels, change_ns, was, now)
