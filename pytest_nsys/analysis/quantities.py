"""What do views show beside the metrics, which no gate is held to: how many kernels, of which stream and name?

Each is measured as a metric is, and asked for by its facts, so that a view has its rows as it has those of a metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import partial

from pytest_nsys.analysis.collectives import transfers
from pytest_nsys.analysis.kernel_families import FamilySums, Usage, sums_of
from pytest_nsys.analysis.metrics import Metric, Of, Scope
from pytest_nsys.analysis.rank_window import RankWindow, StreamUse
from pytest_nsys.analysis.run import RunWindow
from pytest_nsys.core.exact import exact
from pytest_nsys.core.model import Row, Value
from pytest_nsys.core.units import COUNT, RATIO, TIME

OfStreams = Callable[[RankWindow], Iterator[Row]]
OfKernels = Callable[[RunWindow], Iterator[Row]]


def comm_kernels(window: RankWindow) -> Iterator[Row]:
    """Communication kernels on communication streams, per (rank, stage)."""
    for stage, members in window.by_stage.items():
        yield Row((window.rank.number, stage), len(members))


SHARED = "shared"
"""Of a stream that communicates and computes: it is no communication stream, and no kernel on it hides another."""


def _by_stream(value: Callable[[StreamUse], int]) -> OfStreams:
    def rows(window: RankWindow) -> Iterator[Row]:
        for use in sorted(window.streams, key=lambda use: (use.stream.number, use.stream.device, use.stream.context)):
            place = (use.stream.number, use.stream.device, use.stream.context)
            shared = use.communication_kernels and use.compute_kernels
            yield Row((window.rank.number, *place, SHARED if shared else use.purpose), value(use))

    return rows


stream_comm_kernels = _by_stream(lambda use: use.communication_kernels)
stream_compute_kernels = _by_stream(lambda use: use.compute_kernels)
stream_comm_ns = _by_stream(lambda use: use.communication_ns)
stream_compute_ns = _by_stream(lambda use: use.compute_ns)


def group_size(window: RankWindow) -> Iterator[Row]:
    """Ranks of a process group, where the trace says how many, per (rank, group, collective)."""
    for (group, kind), own in transfers(window).items():
        if own.group_size is not None:
            yield Row((window.rank.number, group, kind), own.group_size)


def _by_kernel(value: Callable[[Usage, FamilySums], Value]) -> OfKernels:
    def rows(window: RunWindow) -> Iterator[Row]:
        sums = sums_of(window)
        for family in sums.families:
            for name, usage in sums.kernels_of(family):
                yield Row((name, family), value(usage, sums))

    return rows


def _share(usage: Usage, sums: FamilySums) -> Value:
    return exact(Fraction(usage.ns) / sums.total.ns) if sums.total.ns else 0


kernel_ns = _by_kernel(lambda usage, _: usage.ns)
kernel_launches = _by_kernel(lambda usage, _: usage.launches)
kernel_share = _by_kernel(_share)
kernel_mean_ns = _by_kernel(lambda usage, _: exact(Fraction(usage.ns) / usage.launches) if usage.launches else 0)
kernel_of_window = _by_kernel(lambda usage, sums: sums.of_windows(usage))


def kernel_gpu_ns(window: RunWindow) -> Iterator[Row]:
    """Time of a kernel per GPU in the whole window, also where nothing says how many steps that holds."""
    sums = sums_of(window)
    for family in dict.fromkeys(sums.family_of.values()):
        for name, usage in sums.kernels_of(family, sums.gpus):
            yield Row((name, family), usage.ns)


def family_of_window(window: RunWindow) -> Iterator[Row]:
    """Of the time of the windows, per family."""
    sums = sums_of(window)
    for family, usage in sums.families.items():
        yield Row((family,), sums.of_windows(usage))


def family_share(window: RunWindow) -> Iterator[Row]:
    """Of the time of all kernels, per family."""
    sums = sums_of(window)
    for family, usage in sums.families.items():
        yield Row((family,), _share(usage, sums))


_STREAM, _KERNEL = ("rank", "stream", "device", "context", "purpose"), ("kernel", "family")
_of_stream = partial(Metric, better=None, dimensions=_STREAM, of=Of.STREAMS, by_order=True)
_of_collective = partial(Metric, better=None, dimensions=("rank", "group", "collective"))
_of_kernel = partial(Metric, better=None, dimensions=_KERNEL, scope=Scope.RUN, of=Of.FAMILIES)


def _named(*metrics: Metric) -> Iterable[tuple[str, Metric]]:
    return ((metric.name, metric) for metric in metrics)


QUANTITIES = dict(
    _named(
        Metric("quantities.comm_kernels", COUNT, None, ("rank", "stage"), of=Of.COMMUNICATION, by_order=True),
        _of_stream("quantities.stream_comm_kernels", COUNT),
        _of_stream("quantities.stream_compute_kernels", COUNT),
        _of_stream("quantities.stream_comm_ns", TIME),
        _of_stream("quantities.stream_compute_ns", TIME),
        Metric("activity.gpu_gap_ns", TIME, None, ("rank",)),
        Metric("activity.sync_calls", COUNT, None, ("rank", "call")),
        _of_collective("quantities.group_size", COUNT),
        _of_collective("collectives.collective_count", COUNT),
        _of_collective("collectives.traffic_share", RATIO),
        _of_collective("collectives.bandwidth_utilisation", RATIO),
        _of_collective("straggling.collective_transfer_ns", TIME, scope=Scope.RUN, over_clocks=True),
        Metric("kernel_families.family_launches", COUNT, None, ("family",), scope=Scope.RUN, of=Of.FAMILIES),
        _of_kernel("quantities.kernel_ns", TIME),
        _of_kernel("quantities.kernel_gpu_ns", TIME),
        _of_kernel("quantities.kernel_launches", COUNT),
        _of_kernel("quantities.kernel_mean_ns", TIME),
        _of_kernel("quantities.kernel_share", RATIO),
        _of_kernel("quantities.kernel_of_window", RATIO),
        Metric("quantities.family_of_window", RATIO, None, ("family",), scope=Scope.RUN, of=Of.FAMILIES),
        Metric("quantities.family_share", RATIO, None, ("family",), scope=Scope.RUN, of=Of.FAMILIES),
    )
)
"""By name, which none of them shares with another of this module; a metric may have it, too."""
