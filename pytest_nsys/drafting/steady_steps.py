"""How many steady steps of a capture break a limit that is drafted from its median step?

The gate judges the median step, so a few steps beyond the limit fail no run; many mean that the next median may fail.
The count is reported and does not widen the limit: a limit as wide as the slowest step would let a slower program pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.registry import Metric, MetricScope
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.window_selection import MEDIAN, STEADY, WindowSpec
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.text_format import format_count

# Steps measured on each rank: each costs as much as the median one, and more would not make the share clearer.
MAX_MEASURED_STEPS = 16

BreaksLimit = Callable[[tuple[Label, ...], Value], bool]


class StepMisses(NamedTuple):
    """Holds how many of the measured steps have a row that breaks a limit."""

    broken_count: int
    step_count: int  # measured steps

    def __str__(self) -> str:
        steps_text = format_count(self.step_count, "steady step")
        return (
            f"{self.broken_count} of {steps_text} {'breaks' if self.broken_count == 1 else 'break'} it: the middle "
            "step is judged."
        )


def count_misses(captures: Captures, spec: WindowSpec, metric: Metric, breaks_limit: BreaksLimit) -> StepMisses | None:
    """Count the steady steps of a capture in which a row of any rank breaks a limit; None if no step does.

    Also None if the metric has no values for single steps of a rank, or if the limit comes from the spread of several
    captures.
    """
    if len(captures.runs) > 1:
        return None
    if spec.window != MEDIAN or metric.scope is not MetricScope.RANK or not metric.reads_kernels:
        return None
    with contextlib.suppress(NsysError):  # a capture of one step has no steady steps
        windows_by_rank = captures.runs[0].load_windows(replace(spec, window=STEADY)).require_filled_windows().values()
        steps = list(zip(*windows_by_rank, strict=False))
        measured_steps = steps[:: ceil(len(steps) / MAX_MEASURED_STEPS) or 1]
        broken_count = sum(any(_has_miss(metric, window, breaks_limit) for window in step) for step in measured_steps)
        return StepMisses(broken_count, len(measured_steps)) if broken_count else None
    return None


def _has_miss(metric: Metric, window: RankWindow, breaks_limit: BreaksLimit) -> bool:
    return any(breaks_limit(row.labels, row.value) for row in metric.measure_rows(window))
