"""What does a metric say of a trace? Labels and values as a mapping: the shape in which a test states its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pytest_nsys.analysis.captures import Evidence, Library
from pytest_nsys.analysis.metrics import METRICS
from pytest_nsys.analysis.windows import Pick
from pytest_nsys.core.conventions import BUILT_IN, Convention
from pytest_nsys.core.model import KernelsMode, Label, Span, Value, Window

STEP = replace(BUILT_IN["pithtrain"], name="step", anchor="step%")
"""PithTrain's stages, purposes and setup label around anchors that are quick to write."""

SETUP = "rank={}; pp={}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
"""The setup label of one rank of two, to be filled with its number twice."""


OF_SIZES = (
    *("collective_bytes", "traffic_share", "bandwidth_utilisation"),
    *("algbw", "algbw_mean", "algbw_min", "algbw_max", "busbw", "busbw_mean", "busbw_min", "busbw_max"),
    *("collective_wait_ns", "collective_transfer_ns", "straggler_lag_ns"),
)
"""Metrics of what a trace records of its collectives: see test_collectives.py."""


@contextmanager
def evidence(*captures: Path, convention: Convention = STEP) -> Iterator[Evidence]:
    """Captures of one run each, closed at the end."""
    library = Library()
    try:
        yield library.evidence([str(path) for path in captures], Path(), convention)
    finally:
        library.close()


def rows(
    trace: Path,
    metric: str,
    *,
    convention: Convention = STEP,
    window: str = "median",
    span: Span | str | None = None,
    kernels: KernelsMode | str | None = None,
) -> Mapping[object, Value]:
    """The values by label, or by tuple of labels where the metric has several dimensions."""
    with evidence(trace, convention=convention) as run:
        pick = run.pick(window, Span(span) if span else None, KernelsMode(kernels) if kernels else None)
        return rows_of(run, metric, pick)


def rows_of(run: Evidence, metric: str, pick: Pick) -> Mapping[object, Value]:
    """The same, of captures that are open already."""
    return {_key(row.labels): row.value for row in run.rows(METRICS[metric], pick).rows}


def windows(trace: Path, window: str = "median", *, convention: Convention = STEP, span: str = "range") -> list[Window]:
    """The windows that a pick gives, of every rank, in order; kernels need not be in them."""
    with evidence(trace, convention=convention) as run:
        (capture,) = run.captures
        pick = run.pick(window, Span(span))
        return [window for rank in capture.ranks for window in capture.windows(rank, pick)]


def notes(
    trace: Path,
    *metrics: str,
    convention: Convention = STEP,
    window: str = "median",
    kernels: KernelsMode | str | None = None,
) -> list[str]:
    """What is told beside the metrics."""
    with evidence(trace, convention=convention) as run:
        pick = run.pick(window, None, KernelsMode(kernels) if kernels else None)
        for metric in metrics:
            run.rows(METRICS[metric], pick)
        return [note.text for note in run.notes(pick, *(METRICS[metric] for metric in metrics))]


def _key(labels: tuple[Label, ...]) -> Label | tuple[Label, ...]:
    return labels[0] if len(labels) == 1 else labels
