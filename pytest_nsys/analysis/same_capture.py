"""Are two captures one, in other bytes? A copy through VACUUM, or a report exported twice.

No two runs of a program take the same time to the nanosecond. Equal counts say nothing: good runs have them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from pytest_nsys.analysis.metrics import METRICS, Metric, Unit
from pytest_nsys.analysis.table import Table
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.model import Label, Value, counted

ENOUGH = 8
"""Rows of time that are not 0: fewer may agree by chance, as two steps of one kernel do."""

USUAL = ("window_ns", "busy_ns", "idle_ns", "compute_ns", "gpu_gap_ns", "period_ns")
"""Looked at beside what is asked, for a gate may ask for ratios alone: read off kernels and anchors that are there."""

Asked = tuple[Metric, WindowSpec]
Times = Mapping[tuple[str, WindowSpec, tuple[Label, ...]], Value]


def looked_at(asked: Iterable[Asked], specs: Iterable[WindowSpec]) -> list[Asked]:
    """What is asked of times, and under each spec what is usual."""
    times = [(metric, spec) for metric, spec in asked if metric.unit is Unit.NS]
    return list(dict.fromkeys([*times, *((METRICS[name], spec) for name in USUAL for spec in specs)]))


def times_of(each: Callable[[Metric, WindowSpec], Sequence[Table]], asked: Iterable[Asked], count: int) -> list[Times]:
    """The rows of time that are not 0 in each of ``count`` captures."""
    found: list[dict[tuple[str, WindowSpec, tuple[Label, ...]], Value]] = [{} for _ in range(count)]
    for metric, spec in asked:
        with contextlib.suppress(NsysError):  # who asks for it is told
            for own, table in zip(found, each(metric, spec), strict=False):
                own.update({(metric.name, spec, labels): value for labels, value in table.rows if value})
    return list(found)


def how_same(one: Times, other: Times) -> str:
    """By what two captures are one, in words; empty where they are two."""
    same = one == other and len(one) >= ENOUGH
    return f"{counted(len(one), 'row')} of time are equal to the nanosecond" if same else ""
