"""How many of the steady steps of a capture break a limit that is drafted from its middle one?

The gate judges the middle step, so a few that break the limit make no run red; many say that the next median may. It is
told and widens nothing: a limit as wide as the slowest step would let a slower program pass.
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

# Steps of each rank that are measured: each costs as much as the median one, and a share of steps needs no more.
MAX_MEASURED_STEPS = 16

BreaksLimit = Callable[[tuple[Label, ...], Value], bool]


class StepMisses(NamedTuple):
    """Counts the steps that have a row which breaks a limit."""

    broken_count: int
    step_count: int  # that were measured

    def __str__(self) -> str:
        steps_text = format_count(self.step_count, "steady step")
        return (
            f"{self.broken_count} of {steps_text} {'breaks' if self.broken_count == 1 else 'break'} it: the middle "
            "step is judged."
        )


def count_misses(captures: Captures, spec: WindowSpec, metric: Metric, breaks_limit: BreaksLimit) -> StepMisses | None:
    """Count the steady steps of a capture in which a row of any rank breaks a limit; None where none does.

    None, too, where the metric is not one of a rank's step, or of several captures, whose spread has made the limit.
    """
    if len(captures.runs) > 1:
        return None
    if spec.window != MEDIAN or metric.scope is not MetricScope.RANK or not metric.reads_kernels:
        return None
    with contextlib.suppress(NsysError):  # a capture of one step has no others
        windows_by_rank = captures.runs[0].load_windows(replace(spec, window=STEADY)).require_filled_windows().values()
        steps = list(zip(*windows_by_rank, strict=False))
        measured_steps = steps[:: ceil(len(steps) / MAX_MEASURED_STEPS) or 1]
        broken_count = sum(any(_has_miss(metric, window, breaks_limit) for window in step) for step in measured_steps)
        return StepMisses(broken_count, len(measured_steps)) if broken_count else None
    return None


def _has_miss(metric: Metric, window: RankWindow, breaks_limit: BreaksLimit) -> bool:
    return any(breaks_limit(row.labels, row.value) for row in metric.measure_rows(window))
