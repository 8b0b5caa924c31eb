"""What state was the GPU in: busy with what, how much memory was allocated on it, and how fast did its SMs run?

Memory is allocated and freed by the host, so its window is on the host: the range of the anchor, or until the next one.
Clocks are sampled on the GPU, in GPU time. If a format records neither, there is no row, and a message says what to
set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from pytest_nsys.analysis.windows.rank_track import RankTrack
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.exact import median, simplify_fraction
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.text_format import format_count

MEGA = 1_000_000  # samples of the clock are in Hz


def peak_allocated_bytes(window: RankWindow) -> int:
    """Most bytes allocated on the GPU at a moment of the run, per rank, whatever the window: any peak is one too many.

    torch.profiler says what tensors have, nsys what the driver gave: PyTorch keeps more of that than its tensors have.
    """
    memory = window.track.memory
    if memory is None:
        raise NoRows(f"the trace does not say what was allocated: {window.track.trace_context.facts.to_see_memory}")
    if not memory.levels.value:
        raise NoRows("no allocation is on record: record from the start of the program")
    return max(memory.levels.value)


def memory_notes(runs: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """Yield a note where memory was freed that had been allocated before the recording began."""
    for run in runs:
        for rank, track in run.load_windows(spec).tracks.items():
            if (memory := track.memory) is not None and memory.earlier_frees:
                frees_text = f"{format_count(memory.earlier_frees, 'free')} of memory from before the recording"
                yield Note(f"rank {rank}: {frees_text}: peak_allocated_bytes is a lower bound", True)


def sm_clock_mhz(window: RankWindow) -> Value:
    """Median SM clock of the samples in the window, per rank."""
    clocks = window.track.gpu_track.sm_clocks
    if clocks is None:
        raise NoRows(f"the trace has no samples of the clock: {window.track.trace_context.facts.to_see_clocks}")
    samples = clocks.select_between(window.start_ns, window.end_ns).value
    if not samples:
        raise NoRows("no sample of the clock lies in the window: sample more often (--gpu-metrics-frequency)")
    return simplify_fraction(Fraction(median(samples)) / MEGA)


def get_gpu_track(window: RankWindow) -> RankTrack:
    """Return what kept the GPU busy around all windows of the rank.

    Raises NoRows if a CUDA graph in the window was traced as a whole, because what it ran is unknown.
    """
    device = window.track.gpu_track
    # With --cuda-graph-trace=graph nsys records one interval for a whole graph, and none of its kernels.
    if device.graph_time.measure_covered_ns(window.start_ns, window.end_ns):
        raise NoRows("a CUDA graph in the window was traced whole: capture with --cuda-graph-trace=node")
    return device
