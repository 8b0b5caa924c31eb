"""What can be measured, as one table: name, definition, unit, direction, dimensions, and the function that does it.

A new metric is one function in ``analysis`` and one entry here. The definition number of a metric rises whenever its
values mean something else; values of two definitions are never compared.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pytest_nsys.analysis import activity, overlap, steady
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.model import Row


class Unit(enum.StrEnum):
    """What a value counts. A ratio (``%``) is stored as a plain fraction and written and printed in percent."""

    NS = "ns"
    RATIO = "%"
    COUNT = "count"
    NUMBER = "1"


class Better(enum.StrEnum):
    """Which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured quantity. ``better`` None: neither direction is an improvement by itself."""

    name: str
    unit: Unit
    better: Better | None
    dimensions: tuple[str, ...]
    function: Callable[[RankWindow], Iterable[Row]]
    definition: int = 1

    @property
    def summary(self) -> str:
        """The first sentence of the function's own documentation."""
        text = " ".join((self.function.__doc__ or "").split("\n\n")[0].split())
        return text

    def rows(self, window: RankWindow) -> list[Row]:
        """The rows of one window of one rank."""
        return list(self.function(window))


_RANK = ("rank",)
_STAGE = ("rank", "stage")
_LOWER, _HIGHER = Better.LOWER, Better.HIGHER

METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("comm_ns", Unit.NS, None, _STAGE, overlap.comm_ns),
        Metric("exposed_ns", Unit.NS, _LOWER, _STAGE, overlap.exposed_ns),
        Metric("overlap", Unit.RATIO, _HIGHER, _STAGE, overlap.overlap),
        Metric("overlap_min", Unit.RATIO, _HIGHER, _STAGE, overlap.overlap_min),
        Metric("overlap_max", Unit.RATIO, _HIGHER, _STAGE, overlap.overlap_max),
        Metric("barrier_ns", Unit.NS, _LOWER, _RANK, overlap.barrier_ns),
        Metric("compute_ns", Unit.NS, _LOWER, _RANK, activity.compute_ns),
        Metric("stream_compute_ns", Unit.NS, _LOWER, ("rank", "stream"), activity.stream_compute_ns),
        Metric("wall_exposed_ns", Unit.NS, _LOWER, _RANK, overlap.wall_exposed_ns),
        Metric("stage_wall_exposed_ns", Unit.NS, _LOWER, _STAGE, overlap.stage_wall_exposed_ns),
        Metric("wall_overlap", Unit.RATIO, _HIGHER, _RANK, overlap.wall_overlap),
        Metric("wall_exposed_all_ns", Unit.NS, _LOWER, _RANK, overlap.wall_exposed_all_ns),
        Metric("wall_overlap_all", Unit.RATIO, _HIGHER, _RANK, overlap.wall_overlap_all),
        Metric("busy_ns", Unit.NS, None, _RANK, activity.busy_ns),
        Metric("idle_ns", Unit.NS, _LOWER, _RANK, activity.idle_ns),
        Metric("window_ns", Unit.NS, _LOWER, _RANK, activity.window_ns),
        Metric("overlap_tax_ns", Unit.NS, _LOWER, _STAGE, overlap.overlap_tax_ns),
        Metric("comm_streams", Unit.COUNT, None, ("rank", "purpose"), activity.comm_streams),
        Metric("compute_streams", Unit.COUNT, None, _RANK, activity.compute_streams),
        Metric("period_ns", Unit.NS, _LOWER, ("rank", "quantile"), steady.period_ns),
        Metric("anchors", Unit.COUNT, None, _RANK, steady.anchors),
        Metric("window_typicality", Unit.NUMBER, _LOWER, _RANK, steady.window_typicality),
        Metric("launches", Unit.COUNT, None, _STAGE, activity.launches),
        Metric("mean_kernel_ns", Unit.NS, None, _STAGE, activity.mean_kernel_ns),
        Metric("gpu_gap_ns", Unit.NS, _LOWER, _RANK, activity.gpu_gap_ns),
        Metric("syncs", Unit.COUNT, _LOWER, _RANK, activity.syncs),
    )
}
