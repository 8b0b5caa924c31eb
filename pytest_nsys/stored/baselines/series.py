"""Which series of a baseline file does an assertion read, and which does no assertion of its gate file read any more?

The gate file alone says it, without a trace: the metric with its definition, and how the assertion has it measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pytest_nsys.analysis.metrics import METRICS, Metric
from pytest_nsys.analysis.table import Table
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.model import Value, printable
from pytest_nsys.gates.assertion import Assertion, GateFile
from pytest_nsys.gates.judgement import Reference
from pytest_nsys.gates.requests import spec_for
from pytest_nsys.stored.baselines.baseline_file import Baseline, RowLabels, Series, SeriesId
from pytest_nsys.stored.baselines.breakdowns import MeasuredAs, explaining


def series_id(metric: Metric, spec: WindowSpec) -> SeriesId:
    """What the rows of a metric are stored under."""
    return SeriesId(metric.name, metric.definition, spec.window, str(spec.span), str(spec.kernels))


def explained_by(metric: Metric, spec: WindowSpec) -> MeasuredAs:
    """What the breakdowns behind the rows of a metric are stored under."""
    return explaining(series_id(metric, spec).how, metric.dimensions)


def series_for(gate: GateFile, assertion: Assertion) -> SeriesId:
    """What an assertion of the gate file reads, or would read, of a baseline."""
    return series_id(METRICS[assertion.metric], spec_for(gate.convention, assertion))


def accepted_runs(series: Series, table: Callable[[Mapping[RowLabels, Value]], Table]) -> Reference:
    """What an assertion is held against: ``table`` spells the stored rows as a gate sees them."""
    runs, calibration = ([table(rows) for rows in each] for each in (series.runs, series.calibration_runs))
    return Reference(runs, calibration, series.among_calibration)


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
