"""What holds the step back? The time of a window on the GPU, by what ran: nothing, compute, communication, copies.

All of it is about the device: whatever ran in the window's time counts, cut at its edges, also under ``contained``,
whose other metrics leave out what crosses an edge. Under ``launched`` the window goes from the start of its first
kernel to the end of its last, and what others launched and ran meanwhile counts, too. Communication, barriers and
copies that the convention counts as such included, is never a copy. The parts of one window add up, so of several
windows or captures each rank shows one (``window_by`` in ``metrics.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from pytest_nsys.analysis.rank_track import RankTrack
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.core.columns import equal, take, where, where_not
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import NO_KERNELS, Row
from pytest_nsys.traces.copies_as_kernels import GRAPH_ID


class Device:
    """When the GPU of a rank was kept busy around its windows, by what: every window is a question to these."""

    def __init__(self, track: RankTrack) -> None:
        self._track, self._kernels = track, track.kernels

    @cached_property
    def compute(self) -> Intervals:
        """When compute ran."""
        own = where_not(self._track.communicates)
        return Intervals(take(self._kernels.start_ns, own), take(self._kernels.end_ns, own))

    @cached_property
    def communication(self) -> Intervals:
        """When communication ran, barriers included."""
        own = where(self._track.communicates)
        return Intervals(take(self._kernels.start_ns, own), take(self._kernels.end_ns, own))

    @cached_property
    def graphs(self) -> Intervals:
        """When CUDA graphs ran of which no kernel was traced."""
        transfers = self._track.transfers or NO_KERNELS
        own = where(equal(transfers.name, GRAPH_ID))
        return Intervals(take(transfers.start_ns, own), take(transfers.end_ns, own))

    @cached_property
    def at_work(self) -> Intervals | None:
        """When compute, a copy or a memset ran; None where the trace does not say when the latter did."""
        transfers = self._track.transfers
        return None if transfers is None else _union(self.compute, Intervals(transfers.start_ns, transfers.end_ns))

    @cached_property
    def busy(self) -> Intervals | None:
        """When anything ran; None as above."""
        return None if self.at_work is None else _union(self.at_work, self.communication)


def _union(one: Intervals, other: Intervals) -> Intervals:
    if not other.starts:  # of a million kernels no second copy is kept
        return one
    return Intervals(one.starts + other.starts, one.ends + other.ends)


def device_of(window: RankWindow) -> Device:
    """What kept the GPU busy, for all windows of a rank at once.

    Raises NoRows where a CUDA graph in the window was traced whole: of what it ran nothing is known.
    """
    device = _device(window.track.on_gpu)
    if device.graphs.covered_ns(window.start_ns, window.end_ns):
        raise NoRows("a CUDA graph in the window was traced whole: capture with --cuda-graph-trace=node")
    return device


@kept
def _device(track: RankTrack) -> Device:
    return Device(track)


def device_busy_ns(window: RankWindow) -> Iterator[Row]:
    """Time during which any kernel, copy or memset runs on the GPU, per rank."""
    if (busy := device_of(window).busy) is not None:
        yield Row((window.rank.number,), busy.covered_ns(window.start_ns, window.end_ns))


def device_idle_ns(window: RankWindow) -> Iterator[Row]:
    """The window minus ``device_busy_ns``, per rank: ``idle_ns`` counts copies and memsets as idle, this does not."""
    for labels, busy in device_busy_ns(window):
        yield Row(labels, window.length_ns - busy)


def compute_busy_ns(window: RankWindow) -> Iterator[Row]:
    """Time during which any compute kernel runs on the GPU, per rank."""
    yield Row((window.rank.number,), device_of(window).compute.covered_ns(window.start_ns, window.end_ns))


def compute_absent_ns(window: RankWindow) -> Iterator[Row]:
    """The window minus ``compute_busy_ns``, per rank: what a faster step has to win back."""
    for labels, busy in compute_busy_ns(window):
        yield Row(labels, window.length_ns - busy)


def comm_alone_ns(window: RankWindow) -> Iterator[Row]:
    """Time with communication, barriers included, and without compute, copy or memset, per rank.

    No row where nothing communicates in the window: 0 would be green on nothing.
    """
    device, span = device_of(window), (window.start_ns, window.end_ns)
    if not device.communication.covered_ns(*span):
        raise NoRows("no communication kernel runs in the window")
    if device.busy is not None and device.at_work is not None:
        yield Row((window.rank.number,), device.busy.covered_ns(*span) - device.at_work.covered_ns(*span))
