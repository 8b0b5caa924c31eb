"""What do views show beside the metrics, which no gate is held to: how many kernels, of which stream and name?

Each is measured as a metric is, and asked for by its facts, so that a view has its rows as it has those of a metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import partial

from pytest_nsys.analysis.metrics.collectives import group_transfers
from pytest_nsys.analysis.metrics.families import FamilySums, KernelTimeAndCount, sum_families
from pytest_nsys.analysis.metrics.registry import Metric, MetricScope, MetricSource
from pytest_nsys.analysis.windows.rank_window import RankWindow, StreamUse
from pytest_nsys.analysis.windows.run import RunWindow
from pytest_nsys.core.exact import simplify_fraction
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.units import COUNT, RATIO, TIME

KernelValues = Mapping[tuple[str, str], Value]
"""Maps (name, family) of a kernel to a value."""


def comm_kernels(window: RankWindow) -> Mapping[str, int]:
    """Communication kernels on communication streams, per (rank, stage)."""
    return {stage: len(members) for stage, members in window.communication_by_stage.items()}


SHARED_PURPOSE = "shared"
"""Stands for the purpose of a stream that communicates and computes: it is no communication stream, and no kernel on it
hides another.
"""


def _make_stream_quantity(
    read_value: Callable[[StreamUse], int],
) -> Callable[[RankWindow], Mapping[tuple[Label, ...], int]]:
    def measure_streams(window: RankWindow) -> Mapping[tuple[Label, ...], int]:
        values_by_stream: dict[tuple[Label, ...], int] = {}
        for stream_use in sorted(
            window.stream_uses,
            key=lambda stream_use: (stream_use.stream.number, stream_use.stream.device, stream_use.stream.context),
        ):
            is_shared = stream_use.communication_kernels and stream_use.compute_kernels
            labels = (  # device and context distinguish streams with one number
                stream_use.stream.number,
                stream_use.stream.device,
                stream_use.stream.context,
                SHARED_PURPOSE if is_shared else stream_use.purpose,
            )
            values_by_stream[labels] = read_value(stream_use)
        return values_by_stream

    return measure_streams


stream_comm_kernels = _make_stream_quantity(lambda use: use.communication_kernels)
stream_compute_kernels = _make_stream_quantity(lambda use: use.compute_kernels)
stream_comm_ns = _make_stream_quantity(lambda use: use.communication_ns)
stream_compute_ns = _make_stream_quantity(lambda use: use.compute_ns)


def group_size(window: RankWindow) -> Mapping[tuple[str, str], int]:
    """Ranks of a process group, where the trace says how many, per (rank, group, collective)."""
    labelled_totals = group_transfers(window).items()
    return {labels: totals.group_size for labels, totals in labelled_totals if totals.group_size is not None}


def _make_kernel_quantity(
    read_value: Callable[[KernelTimeAndCount, FamilySums], Value],
) -> Callable[[RunWindow], KernelValues]:
    def measure_kernels(window: RunWindow) -> KernelValues:
        sums = sum_families(window)
        kernels = (
            (family, *named_usage) for family in sums.usage_by_family for named_usage in sums.list_kernels(family)
        )
        return {(name, family): read_value(usage, sums) for family, name, usage in kernels}

    return measure_kernels


def _divide_by_total(usage: KernelTimeAndCount, sums: FamilySums) -> Value:
    return simplify_fraction(Fraction(usage.time_ns) / sums.total.time_ns) if sums.total.time_ns else 0


kernel_ns = _make_kernel_quantity(lambda usage, _: usage.time_ns)
kernel_launches = _make_kernel_quantity(lambda usage, _: usage.launches)
kernel_share = _make_kernel_quantity(_divide_by_total)
kernel_mean_ns = _make_kernel_quantity(
    lambda usage, _: simplify_fraction(Fraction(usage.time_ns) / usage.launches) if usage.launches else 0
)
kernel_of_window = _make_kernel_quantity(lambda usage, sums: sums.measure_window_share(usage))


def kernel_gpu_ns(window: RunWindow) -> KernelValues:
    """Time of a kernel per GPU in the whole window, also where nothing says how many steps that holds."""
    sums = sum_families(window)
    families = dict.fromkeys(sums.family_by_name.values())
    return {
        (name, family): usage.time_ns
        for family in families
        for name, usage in sums.list_kernels(family, sums.gpu_count)
    }


def family_of_window(window: RunWindow) -> Mapping[str, Value]:
    """Of the time of the windows, per family."""
    sums = sum_families(window)
    return {family: sums.measure_window_share(usage) for family, usage in sums.usage_by_family.items()}


def family_share(window: RunWindow) -> Mapping[str, Value]:
    """Of the time of all kernels, per family."""
    sums = sum_families(window)
    return {family: _divide_by_total(usage, sums) for family, usage in sums.usage_by_family.items()}


_STREAM_DIMENSIONS, _KERNEL_DIMENSIONS = ("rank", "stream", "device", "context", "purpose"), ("kernel", "family")
_stream_quantity = partial(
    Metric, better=None, dimensions=_STREAM_DIMENSIONS, source=MetricSource.STREAMS, depends_on_order=True
)
_collective_quantity = partial(Metric, better=None, dimensions=("rank", "group", "collective"))
_kernel_quantity = partial(
    Metric, better=None, dimensions=_KERNEL_DIMENSIONS, scope=MetricScope.RUN, source=MetricSource.FAMILIES
)


def _map_by_name(*metrics: Metric) -> Iterable[tuple[str, Metric]]:
    return ((metric.name, metric) for metric in metrics)


QUANTITIES = dict(
    _map_by_name(
        Metric(
            "metrics.quantities:comm_kernels",
            COUNT,
            None,
            ("rank", "stage"),
            source=MetricSource.COMMUNICATION,
            depends_on_order=True,
        ),
        _stream_quantity("metrics.quantities:stream_comm_kernels", COUNT),
        _stream_quantity("metrics.quantities:stream_compute_kernels", COUNT),
        _stream_quantity("metrics.quantities:stream_comm_ns", TIME),
        _stream_quantity("metrics.quantities:stream_compute_ns", TIME),
        Metric("metrics.activity:gpu_gap_ns", TIME, None, ("rank",)),
        Metric("metrics.activity:sync_calls", COUNT, None, ("rank", "call")),
        _collective_quantity("metrics.quantities:group_size", COUNT),
        _collective_quantity("metrics.collectives:collective_count", COUNT),
        _collective_quantity("metrics.collectives:traffic_share", RATIO),
        _collective_quantity("metrics.collectives:bandwidth_utilisation", RATIO),
        _collective_quantity(
            "metrics.collective_waits:collective_transfer_ns", TIME, scope=MetricScope.RUN, compares_clocks=True
        ),
        Metric(
            "metrics.families:family_launches",
            COUNT,
            None,
            ("family",),
            scope=MetricScope.RUN,
            source=MetricSource.FAMILIES,
        ),
        _kernel_quantity("metrics.quantities:kernel_ns", TIME),
        _kernel_quantity("metrics.quantities:kernel_gpu_ns", TIME),
        _kernel_quantity("metrics.quantities:kernel_launches", COUNT),
        _kernel_quantity("metrics.quantities:kernel_mean_ns", TIME),
        _kernel_quantity("metrics.quantities:kernel_share", RATIO),
        _kernel_quantity("metrics.quantities:kernel_of_window", RATIO),
        Metric(
            "metrics.quantities:family_of_window",
            RATIO,
            None,
            ("family",),
            scope=MetricScope.RUN,
            source=MetricSource.FAMILIES,
        ),
        Metric(
            "metrics.quantities:family_share",
            RATIO,
            None,
            ("family",),
            scope=MetricScope.RUN,
            source=MetricSource.FAMILIES,
        ),
    )
)
"""Maps each name, which none of them shares with another of this module, to its quantity; a metric may have the name,
too.
"""
