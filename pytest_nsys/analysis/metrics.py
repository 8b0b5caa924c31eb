"""What can be measured, as one table: name, definition, unit, direction, dimensions, and the function that does it.

A new metric is one function in ``analysis`` and one entry here. The definition number of a metric rises whenever its
values mean something else; values of two definitions are never compared.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pytest_nsys.analysis import (
    activity,
    collectives,
    kernel_families,
    overlap,
    pipeline,
    steady,
    straggling,
    structure,
    throughput,
)
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import RunWindow
from pytest_nsys.core.model import Row


class Unit(enum.StrEnum):
    """What a value counts. A ratio (``%``) is stored as a plain fraction and written and printed in percent."""

    NS = "ns"
    RATIO = "%"
    COUNT = "count"
    NUMBER = "1"
    BYTES = "bytes"
    GB_PER_S = "GB/s"
    TOKENS_PER_S = "tokens/s"
    SAMPLES_PER_S = "samples/s"
    HASH = "hash"


class Scope(enum.StrEnum):
    """Of what a metric's function makes rows: of one rank's window, or of the windows of all ranks together."""

    RANK = "rank"
    RUN = "run"


class Better(enum.StrEnum):
    """Which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured quantity. ``better`` None: neither direction is an improvement by itself.

    No value is below ``least`` or above ``greatest``, in the base of the unit; None: no such end is known.
    ``function`` makes rows of a RankWindow, with scope ``run`` of a RunWindow. ``every_stage``: kernels without a stage
    count where nothing selects one. ``without`` says why a window may have no row.
    """

    name: str
    unit: Unit
    better: Better | None
    dimensions: tuple[str, ...]
    function: Callable[..., Iterable[Row]]
    definition: int = 1
    least: int | None = 0
    greatest: int | None = None
    scope: Scope = Scope.RANK
    every_stage: bool = False
    without: str = ""

    @property
    def summary(self) -> str:
        """The first sentence of the function's own documentation."""
        text = " ".join((self.function.__doc__ or "").split("\n\n")[0].split())
        return text

    def rows(self, window: RankWindow | RunWindow) -> list[Row]:
        """The rows of one window, of what the metric's scope says."""
        return list(self.function(window))


_RANK = ("rank",)
_STAGE = ("rank", "stage")
_LOWER, _HIGHER = Better.LOWER, Better.HIGHER
_NO_STAGES = "no stages are stated: pipeline: {stage0: …, stage1: …} in the gate file, or `pytest-nsys pipeline`"
_NO_BLOCKS = "no blocks are stated: blocks: […] in the gate file, or `pytest-nsys pipeline --block`"

_COLLECTIVE = ("rank", "group", "collective")
_COLLECTIVES = (
    Metric("collective_count", Unit.COUNT, None, _COLLECTIVE, collectives.collective_count),
    Metric("collective_bytes", Unit.BYTES, None, _COLLECTIVE, collectives.collective_bytes),
    Metric("collective_time_ns", Unit.NS, _LOWER, _COLLECTIVE, collectives.collective_time_ns),
    *(
        Metric(function.__name__, Unit.GB_PER_S, _HIGHER, _COLLECTIVE, function)
        for function in (
            *(collectives.algbw, collectives.algbw_mean, collectives.algbw_min, collectives.algbw_max),
            *(collectives.busbw, collectives.busbw_mean, collectives.busbw_min, collectives.busbw_max),
        )
    ),
    Metric("traffic_share", Unit.RATIO, None, _COLLECTIVE, collectives.traffic_share, greatest=1),
    Metric("bandwidth_utilisation", Unit.RATIO, _HIGHER, _COLLECTIVE, collectives.bandwidth_utilisation),
    Metric("collective_wait_ns", Unit.NS, _LOWER, _COLLECTIVE, straggling.collective_wait_ns, scope=Scope.RUN),
    Metric("collective_transfer_ns", Unit.NS, _LOWER, _COLLECTIVE, straggling.collective_transfer_ns, scope=Scope.RUN),
    Metric("straggler_lag_ns", Unit.NS, _LOWER, _COLLECTIVE, straggling.straggler_lag_ns, scope=Scope.RUN),
)

METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("comm_ns", Unit.NS, None, _STAGE, overlap.comm_ns),
        Metric("exposed_ns", Unit.NS, _LOWER, _STAGE, overlap.exposed_ns),
        Metric("overlap", Unit.RATIO, _HIGHER, _STAGE, overlap.overlap, greatest=1),
        Metric("overlap_min", Unit.RATIO, _HIGHER, _STAGE, overlap.overlap_min, greatest=1),
        Metric("overlap_max", Unit.RATIO, _HIGHER, _STAGE, overlap.overlap_max, greatest=1),
        Metric("barrier_ns", Unit.NS, _LOWER, _RANK, overlap.barrier_ns),
        Metric("compute_ns", Unit.NS, _LOWER, _RANK, activity.compute_ns),
        Metric("stream_compute_ns", Unit.NS, _LOWER, ("rank", "stream"), activity.stream_compute_ns),
        Metric("wall_exposed_ns", Unit.NS, _LOWER, _RANK, overlap.wall_exposed_ns),
        Metric("stage_wall_exposed_ns", Unit.NS, _LOWER, _STAGE, overlap.stage_wall_exposed_ns),
        Metric("wall_overlap", Unit.RATIO, _HIGHER, _RANK, overlap.wall_overlap, greatest=1),
        Metric("wall_exposed_all_ns", Unit.NS, _LOWER, _RANK, overlap.wall_exposed_all_ns),
        Metric("wall_overlap_all", Unit.RATIO, _HIGHER, _RANK, overlap.wall_overlap_all, greatest=1),
        Metric("busy_ns", Unit.NS, None, _RANK, activity.busy_ns),
        Metric("idle_ns", Unit.NS, _LOWER, _RANK, activity.idle_ns),
        Metric("window_ns", Unit.NS, _LOWER, _RANK, activity.window_ns),
        Metric("overlap_tax_ns", Unit.NS, _LOWER, _STAGE, overlap.overlap_tax_ns, least=None),
        Metric("comm_streams", Unit.COUNT, None, ("rank", "purpose"), activity.comm_streams),
        Metric("compute_streams", Unit.COUNT, None, _RANK, activity.compute_streams),
        Metric("period_ns", Unit.NS, _LOWER, ("rank", "quantile"), steady.period_ns),
        Metric("anchors", Unit.COUNT, None, _RANK, steady.anchors),
        Metric("window_typicality", Unit.NUMBER, _LOWER, _RANK, steady.window_typicality),
        Metric(
            "overlap_score",
            Unit.NUMBER,
            _HIGHER,
            _RANK,
            pipeline.overlap_score,
            scope=Scope.RUN,
            greatest=1,
            without=_NO_STAGES,
        ),
        Metric(
            "serialization",
            Unit.NUMBER,
            _LOWER,
            _RANK,
            pipeline.serialization,
            scope=Scope.RUN,
            least=None,
            without=_NO_STAGES,
        ),
        Metric(
            "pipeline_stage_ns",
            Unit.NS,
            _LOWER,
            _STAGE,
            pipeline.pipeline_stage_ns,
            scope=Scope.RUN,
            without=_NO_STAGES,
        ),
        Metric(
            "share",
            Unit.RATIO,
            None,
            ("rank", "block"),
            pipeline.share,
            scope=Scope.RUN,
            greatest=1,
            without=_NO_BLOCKS,
        ),
        Metric("launches", Unit.COUNT, None, _STAGE, activity.launches),
        Metric("mean_kernel_ns", Unit.NS, None, _STAGE, activity.mean_kernel_ns),
        Metric("gpu_gap_ns", Unit.NS, _LOWER, _RANK, activity.gpu_gap_ns),
        Metric("syncs", Unit.COUNT, _LOWER, _RANK, activity.syncs),
        Metric("sync_calls", Unit.COUNT, _LOWER, ("rank", "call"), activity.sync_calls),
        Metric(
            "kernel_launches",
            Unit.COUNT,
            None,
            ("rank", "stage", "kernel"),
            structure.kernel_launches,
            every_stage=True,
        ),
        Metric("sequence", Unit.HASH, None, ("rank", "stage", "stream"), structure.sequence, every_stage=True),
        *_COLLECTIVES,
        Metric("iteration_ns", Unit.NS, _LOWER, (), throughput.iteration_ns, scope=Scope.RUN),
        Metric("samples_per_s", Unit.SAMPLES_PER_S, _HIGHER, (), throughput.samples_per_s, scope=Scope.RUN),
        Metric("tokens_per_s", Unit.TOKENS_PER_S, _HIGHER, (), throughput.tokens_per_s, scope=Scope.RUN),
        Metric("barriers", Unit.COUNT, _LOWER, _RANK, structure.barriers),
        Metric(
            "compute_on_comm_streams",
            Unit.COUNT,
            _LOWER,
            ("rank", "stream"),
            structure.compute_on_comm_streams,
            without="no stream mostly communicates; communication on compute streams is counted by 'barriers'",
        ),
        Metric(
            "pageable_copies",
            Unit.COUNT,
            _LOWER,
            _RANK,
            structure.pageable_copies,
            without="the trace does not say which memory the window's copies read and write",
        ),
        Metric("family_ns", Unit.NS, _LOWER, ("family",), kernel_families.family_ns, scope=Scope.RUN),
        Metric("family_launches", Unit.COUNT, None, ("family",), kernel_families.family_launches, scope=Scope.RUN),
        Metric("total_kernel_ns", Unit.NS, _LOWER, (), kernel_families.total_kernel_ns, scope=Scope.RUN),
        Metric(
            "step_minus_kernel_ns",
            Unit.NS,
            None,
            (),
            kernel_families.step_minus_kernel_ns,
            scope=Scope.RUN,
            least=None,
            without=kernel_families.STATE_STEP_TIME,
        ),
    )
}
