"""What do views show beside the metrics, which no gate is held to: how many kernels, of which stream and name?

Each is measured as a metric is, and asked for by its facts, so that a view has its rows as it has those of a metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import partial

from pytest_nsys.analysis.metrics.collectives import transfers
from pytest_nsys.analysis.metrics.families import FamilySums, Usage, sums_of
from pytest_nsys.analysis.metrics.registry import Metric, Of, Scope
from pytest_nsys.analysis.windows.rank_window import RankWindow, StreamUse
from pytest_nsys.analysis.windows.run import RunWindow
from pytest_nsys.core.exact import exact
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.units import COUNT, RATIO, TIME

Named = Mapping[tuple[str, str], Value]
"""Maps (name, family) of a kernel to a value."""


def comm_kernels(window: RankWindow) -> Mapping[str, int]:
    """Communication kernels on communication streams, per (rank, stage)."""
    return {stage: len(members) for stage, members in window.by_stage.items()}


SHARED = "shared"
"""Stands for the purpose of a stream that communicates and computes: it is no communication stream, and no kernel on it
hides another.
"""


def _by_stream(value: Callable[[StreamUse], int]) -> Callable[[RankWindow], Mapping[tuple[Label, ...], int]]:
    def measure_streams(window: RankWindow) -> Mapping[tuple[Label, ...], int]:
        values_by_stream: dict[tuple[Label, ...], int] = {}
        for stream_use in sorted(
            window.streams,
            key=lambda stream_use: (stream_use.stream.number, stream_use.stream.device, stream_use.stream.context),
        ):
            is_shared = stream_use.communication_kernels and stream_use.compute_kernels
            labels = (  # device and context tell streams of one number apart
                stream_use.stream.number,
                stream_use.stream.device,
                stream_use.stream.context,
                SHARED if is_shared else stream_use.purpose,
            )
            values_by_stream[labels] = value(stream_use)
        return values_by_stream

    return measure_streams


stream_comm_kernels = _by_stream(lambda use: use.communication_kernels)
stream_compute_kernels = _by_stream(lambda use: use.compute_kernels)
stream_comm_ns = _by_stream(lambda use: use.communication_ns)
stream_compute_ns = _by_stream(lambda use: use.compute_ns)


def group_size(window: RankWindow) -> Mapping[tuple[str, str], int]:
    """Ranks of a process group, where the trace says how many, per (rank, group, collective)."""
    labelled_totals = transfers(window).items()
    return {labels: totals.group_size for labels, totals in labelled_totals if totals.group_size is not None}


def _by_kernel(value: Callable[[Usage, FamilySums], Value]) -> Callable[[RunWindow], Named]:
    def measure_kernels(window: RunWindow) -> Named:
        sums = sums_of(window)
        kernels = ((family, *named_usage) for family in sums.families for named_usage in sums.kernels_of(family))
        return {(name, family): value(usage, sums) for family, name, usage in kernels}

    return measure_kernels


def _share(usage: Usage, sums: FamilySums) -> Value:
    return exact(Fraction(usage.ns) / sums.total.ns) if sums.total.ns else 0


kernel_ns = _by_kernel(lambda usage, _: usage.ns)
kernel_launches = _by_kernel(lambda usage, _: usage.launches)
kernel_share = _by_kernel(_share)
kernel_mean_ns = _by_kernel(lambda usage, _: exact(Fraction(usage.ns) / usage.launches) if usage.launches else 0)
kernel_of_window = _by_kernel(lambda usage, sums: sums.of_windows(usage))


def kernel_gpu_ns(window: RunWindow) -> Named:
    """Time of a kernel per GPU in the whole window, also where nothing says how many steps that holds."""
    sums = sums_of(window)
    families = dict.fromkeys(sums.family_of.values())
    return {(name, family): usage.ns for family in families for name, usage in sums.kernels_of(family, sums.gpus)}


def family_of_window(window: RunWindow) -> Mapping[str, Value]:
    """Of the time of the windows, per family."""
    sums = sums_of(window)
    return {family: sums.of_windows(usage) for family, usage in sums.families.items()}


def family_share(window: RunWindow) -> Mapping[str, Value]:
    """Of the time of all kernels, per family."""
    sums = sums_of(window)
    return {family: _share(usage, sums) for family, usage in sums.families.items()}


_STREAM, _KERNEL = ("rank", "stream", "device", "context", "purpose"), ("kernel", "family")
_of_stream = partial(Metric, better=None, dimensions=_STREAM, of=Of.STREAMS, by_order=True)
_of_collective = partial(Metric, better=None, dimensions=("rank", "group", "collective"))
_of_kernel = partial(Metric, better=None, dimensions=_KERNEL, scope=Scope.RUN, of=Of.FAMILIES)


def _named(*metrics: Metric) -> Iterable[tuple[str, Metric]]:
    return ((metric.name, metric) for metric in metrics)


QUANTITIES = dict(
    _named(
        Metric("metrics.quantities:comm_kernels", COUNT, None, ("rank", "stage"), of=Of.COMMUNICATION, by_order=True),
        _of_stream("metrics.quantities:stream_comm_kernels", COUNT),
        _of_stream("metrics.quantities:stream_compute_kernels", COUNT),
        _of_stream("metrics.quantities:stream_comm_ns", TIME),
        _of_stream("metrics.quantities:stream_compute_ns", TIME),
        Metric("metrics.activity:gpu_gap_ns", TIME, None, ("rank",)),
        Metric("metrics.activity:sync_calls", COUNT, None, ("rank", "call")),
        _of_collective("metrics.quantities:group_size", COUNT),
        _of_collective("metrics.collectives:collective_count", COUNT),
        _of_collective("metrics.collectives:traffic_share", RATIO),
        _of_collective("metrics.collectives:bandwidth_utilisation", RATIO),
        _of_collective("metrics.straggling:collective_transfer_ns", TIME, scope=Scope.RUN, over_clocks=True),
        Metric("metrics.families:family_launches", COUNT, None, ("family",), scope=Scope.RUN, of=Of.FAMILIES),
        _of_kernel("metrics.quantities:kernel_ns", TIME),
        _of_kernel("metrics.quantities:kernel_gpu_ns", TIME),
        _of_kernel("metrics.quantities:kernel_launches", COUNT),
        _of_kernel("metrics.quantities:kernel_mean_ns", TIME),
        _of_kernel("metrics.quantities:kernel_share", RATIO),
        _of_kernel("metrics.quantities:kernel_of_window", RATIO),
        Metric("metrics.quantities:family_of_window", RATIO, None, ("family",), scope=Scope.RUN, of=Of.FAMILIES),
        Metric("metrics.quantities:family_share", RATIO, None, ("family",), scope=Scope.RUN, of=Of.FAMILIES),
    )
)
"""Maps each name, which none of them shares with another of this module, to its quantity; a metric may have the name,
too.
"""
