"""What state was the GPU in: how much memory was allocated on it, and how fast did its SMs run?

Memory is given and taken by the host, so its window is the host's: the range of the anchor, or from it to the next.
Clocks are sampled on the GPU, in its own time. A format that records neither has no row and says what to set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.exact import exact, median
from pytest_nsys.core.model import Note, Row
from pytest_nsys.core.words import counted

MEGA = 1_000_000


def peak_allocated_bytes(window: RankWindow) -> Iterator[Row]:
    """Most bytes allocated on the GPU at a moment of the window, earlier ones included, per rank.

    torch.profiler says what tensors have, nsys what the driver gave: PyTorch keeps more of that than its tensors have.
    """
    memory = window.track.memory
    if memory is None:
        raise NoRows(f"the trace does not say what was allocated: {window.track.around.facts.to_see_memory}")
    own = window.window
    levels = memory.levels.levels(own.start_ns, own.end_ns).value
    if not levels:
        raise NoRows("no allocation is on record before the window ends: record from the start of the program on")
    yield Row((window.rank.number,), max(levels))


def memory_notes(runs: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """That memory was freed which was allocated before the recording began."""
    for run in runs:
        for number, track in run.measured(spec).tracks.items():
            if (memory := track.memory) is not None and memory.earlier:
                what = f"{counted(memory.earlier, 'free')} of memory from before the recording"
                yield Note(f"rank {number}: {what}: peak_allocated_bytes is a lower bound", True)


def sm_clock_mhz(window: RankWindow) -> Iterator[Row]:
    """Median SM clock of the samples in the window, per rank."""
    clocks = window.track.on_gpu.sm_clocks
    if clocks is None:
        raise NoRows(f"the trace has no samples of the clock: {window.track.around.facts.to_see_clocks}")
    samples = clocks.between(window.start_ns, window.end_ns).value
    if not samples:
        raise NoRows("no sample of the clock lies in the window: sample more often (--gpu-metrics-frequency)")
    yield Row((window.rank.number,), exact(Fraction(median(samples)) / MEGA))
