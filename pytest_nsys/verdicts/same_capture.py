"""Are both sides of a comparison one capture, in other bytes? A copy through VACUUM, or a report exported twice.

No two runs of a program take the same time to the nanosecond. Equal counts say nothing: good runs have them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.metrics import METRICS, Metric, Unit
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.errors import NsysError, UsageMistake
from pytest_nsys.core.model import Label, Value, counted

ENOUGH = 8
"""Rows of time that are not 0: fewer may agree by chance, as two steps of one kernel do."""

USUAL = ("window_ns", "busy_ns", "idle_ns", "compute_ns", "gpu_gap_ns", "period_ns")
"""Looked at beside what is asked, for a gate may ask for ratios alone: read off kernels and anchors that are there."""

Times = Mapping[tuple[str, WindowSpec, tuple[Label, ...]], Value]


def refuse_same_capture(now: Captures, before: Captures, asked: Iterable[tuple[Metric, WindowSpec]]) -> None:
    """Raises UsageMistake where a capture of one side has every row of time of one of the other, to the nanosecond."""
    pairs = [(metric, spec) for metric, spec in asked if metric.unit is Unit.NS]
    pairs = list(dict.fromkeys([*pairs, *((METRICS[name], spec) for name in USUAL for _, spec in asked)]))
    both = [[dict(_times(side, pairs, place)) for place in range(len(side.runs))] for side in (now, before)]
    for (place, here), (other, there) in product(*map(enumerate, both)):
        if here == there and len(here) >= ENOUGH:
            first, second = (side.runs[n].traces[0].path for side, n in ((now, place), (before, other)))
            equal = f"{counted(len(here), 'row')} of time are equal to the nanosecond"
            raise UsageMistake(f"both sides are the same capture: {equal} in {first} and {second}; nothing can differ")


def _times(side: Captures, pairs: Iterable[tuple[Metric, WindowSpec]], place: int) -> Iterator[tuple[object, Value]]:
    for metric, spec in pairs:
        with contextlib.suppress(NsysError):  # who asks for it is told
            for labels, value in side.each(metric, spec)[place].rows:
                if value:
                    yield (metric.name, spec, labels), value
