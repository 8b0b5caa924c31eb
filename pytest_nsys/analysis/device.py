"""When was the GPU of a rank kept busy, and by what: compute, communication, copies?"""

from __future__ import annotations

from functools import cached_property

from pytest_nsys.analysis.rank_track import RankTrack
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.core.columns import equal, take, where, where_not
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.kept import kept
from pytest_nsys.core.tables import NO_KERNELS
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
    device = device_around(window.track.on_gpu)
    if device.graphs.covered_ns(window.start_ns, window.end_ns):
        raise NoRows("a CUDA graph in the window was traced whole: capture with --cuda-graph-trace=node")
    return device


@kept
def device_around(track: RankTrack) -> Device:
    """What kept the GPU of a rank busy wherever its track was read."""
    return Device(track)
