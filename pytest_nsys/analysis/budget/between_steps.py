"""What does the GPU wait for between two steps, and since when?"""

from __future__ import annotations

from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.spans import whole_steps
from pytest_nsys.analysis.windows.tracks import or_start
from pytest_nsys.core.columns import Column, bounds, take, touching
from pytest_nsys.core.conventions import KernelAnchor
from pytest_nsys.core.tables import Kernels


def own_work_until(window: RankWindow) -> int | None:
    """Return when the last kernel, copy or memset of a step ended, in ns; None for a window that is no step, or the
    last one.
    """
    track, index = window.track, window.window.index
    if index is None or track.steps is None or len(track.steps.steps) < 2 or not len(window):
        return None
    last_step = track.steps.steps[whole_steps(track.steps.steps) - 1]
    if window.window.start_ns > last_step.start_ns:
        return None
    context, gpu = track.on_gpu.around, track.on_gpu
    # Steps that kernels mark are times of the GPU, all others times of the host: work belongs to a step by its start
    # there, else by its launch.
    by_time = not window.spec.by_launch and isinstance(track.convention.anchor, KernelAnchor)
    end_ns = window.start_ns
    for work, launches in ((gpu.kernels, gpu.launch_ns), (gpu.transfers, None)):
        if work is not None and len(work):
            calls = context.transfer_calls[gpu.rank.lane].start_ns if launches is None else launches
            end_ns = max(end_ns, _ends(work, work.start_ns if by_time else or_start(calls, work.start_ns), window))
    return min(end_ns, window.end_ns)


def _ends(work: Kernels, moments: Column, window: RankWindow) -> int:
    """Return when the last operation that began in a step ended, in ns; 0 where none did.

    ``host_times_ns`` are the moments of the host by which operations belong to the step.
    """
    step_rows = touching(moments, moments, window.window.start_ns, window.window.end_ns - 1)
    return bounds(take(work.end_ns, step_rows))[1]
