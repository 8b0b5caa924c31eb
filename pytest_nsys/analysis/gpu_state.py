"""What state was the GPU in: busy with what, how much memory was allocated on it, and how fast did its SMs run?

:class:`Device` says for all windows of a rank at once when its GPU was kept busy. Memory is given and taken by the
host, so its window is the host's: the range of the anchor, or from it to the next. Clocks are sampled on the GPU, in
its own time. A format that records neither has no row and says what to set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property

from pytest_nsys.analysis.around import RankTrack
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.columns import equal, take, where
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.exact import exact, median
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.tables import NO_KERNELS
from pytest_nsys.core.words import counted
from pytest_nsys.traces.copies_as_kernels import GRAPH_ID

MEGA = 1_000_000


def peak_allocated_bytes(window: RankWindow) -> int:
    """Most bytes allocated on the GPU at a moment of the run, per rank, whatever the window: any peak is one too many.

    torch.profiler says what tensors have, nsys what the driver gave: PyTorch keeps more of that than its tensors have.
    """
    memory = window.track.memory
    if memory is None:
        raise NoRows(f"the trace does not say what was allocated: {window.track.around.facts.to_see_memory}")
    if not memory.levels.value:
        raise NoRows("no allocation is on record: record from the start of the program")
    return max(memory.levels.value)


def memory_notes(runs: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """That memory was freed which was allocated before the recording began."""
    for run in runs:
        for number, track in run.measured(spec).tracks.items():
            if (memory := track.memory) is not None and memory.earlier:
                what = f"{counted(memory.earlier, 'free')} of memory from before the recording"
                yield Note(f"rank {number}: {what}: peak_allocated_bytes is a lower bound", True)


def sm_clock_mhz(window: RankWindow) -> Value:
    """Median SM clock of the samples in the window, per rank."""
    clocks = window.track.on_gpu.sm_clocks
    if clocks is None:
        raise NoRows(f"the trace has no samples of the clock: {window.track.around.facts.to_see_clocks}")
    samples = clocks.between(window.start_ns, window.end_ns).value
    if not samples:
        raise NoRows("no sample of the clock lies in the window: sample more often (--gpu-metrics-frequency)")
    return exact(Fraction(median(samples)) / MEGA)


class Device:
    """When the GPU of a rank was kept busy around its windows, by what: every window is a question to these."""

    def __init__(self, track: RankTrack) -> None:
        self._track = track

    @property
    def compute(self) -> Intervals:
        """When compute ran."""
        return self._track.compute_time

    @property
    def communication(self) -> Intervals:
        """When communication ran, barriers included."""
        return self._track.communication_time

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
