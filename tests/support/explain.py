"""Why did a row change? As the metric's own parts say, by the metric's name."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_nsys.analysis.breakdown import Breakdown
from pytest_nsys.analysis.causes import Explanation
from pytest_nsys.analysis.metrics import METRICS


def explain(metric: str, labels: Mapping[str, object], change_ns: int, was: Breakdown, now: Breakdown) -> Explanation:
    parts = METRICS[metric].explained_by
    assert parts is not None
    return parts.explain(labels, change_ns, was, now)
