"""Which series of a baseline file does an assertion read, and which does no assertion of its gate file read any more?

The gate file alone says it, without a trace: the metric with its definition, and how the assertion has it measured.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_nsys.analysis.windows import RUN, Pick
from pytest_nsys.conventions import Convention
from pytest_nsys.gates.assertion import Assertion, GateFile
from pytest_nsys.gates.baseline_file import Baseline, SeriesId
from pytest_nsys.gates.stored_breakdown import Measured, explaining
from pytest_nsys.metrics import METRICS, Metric
from pytest_nsys.model import KernelsMode, Span, printable


def pick_under(
    convention: Convention, window: str, span: Span | None = None, kernels: KernelsMode | None = None
) -> Pick:
    """A pick, with what is left open as the convention has it."""
    asked = Pick(window, span or convention.span, kernels or convention.kernels)
    if asked.whole_run:
        return Pick(RUN)  # has neither anchors nor edges: however it is asked for, it is read once
    return replace(asked, span=Span.RANGE) if asked.explicit else asked


def pick_for(convention: Convention, assertion: Assertion) -> Pick:
    """What the assertion is judged on."""
    return pick_under(convention, assertion.window, assertion.span, assertion.kernels)


def series_id(metric: Metric, pick: Pick) -> SeriesId:
    """What the rows of a metric are stored under."""
    return SeriesId(metric.name, metric.definition, pick.window, str(pick.span), str(pick.kernels))


def explained_by(metric: Metric, pick: Pick) -> Measured:
    """What the breakdowns behind the rows of a metric are stored under."""
    return explaining(Measured(pick.window, str(pick.span), str(pick.kernels)), metric.dimensions)


def series_for(gate: GateFile, assertion: Assertion) -> SeriesId:
    """What an assertion of the gate file reads, or would read, of a baseline."""
    return series_id(METRICS[assertion.metric], pick_for(gate.convention, assertion))


def stale(gate: GateFile, baseline: Baseline) -> list[SeriesId]:
    """The series that no assertion of the gate file reads any more, sorted."""
    read = {series_for(gate, assertion) for assertion in gate.assertions if assertion.reads_stored}
    return sorted(sid for sid in baseline.series if sid not in read)


def spelled(sid: SeriesId) -> str:
    """A series in words: ``exposed_ns (window median, span range, kernels contained)``."""
    definition = f"definition {sid.definition}, " if _redefined(sid) else ""
    return printable(f"{sid.metric} ({definition}window {sid.window}, span {sid.span}, kernels {sid.kernels})")


def _redefined(sid: SeriesId) -> bool:
    """Whether the metric is not, or is no longer, defined as it was for this series."""
    return sid.metric not in METRICS or METRICS[sid.metric].definition != sid.definition
