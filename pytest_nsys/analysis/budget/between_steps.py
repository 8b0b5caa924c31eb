"""What does the GPU wait for between two steps, and since when?"""

from __future__ import annotations

from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.spans import whole_steps
from pytest_nsys.analysis.windows.tracks import or_start
from pytest_nsys.core.columns import Column, bounds, take, touching
from pytest_nsys.core.conventions import KernelAnchor
from pytest_nsys.core.tables import Kernels


def own_work_until(window: RankWindow) -> int | None:
    """Return when the last kernel, copy or memset of a step ended, in ns; None of what is no step, or the last one."""
    track, index = window.track, window.window.index
    if index is None or track.steps is None or len(track.steps.steps) < 2 or not len(window):
        return None
    last = track.steps.steps[whole_steps(track.steps.steps) - 1]
    if window.window.start_ns > last.start_ns:
        return None
    around, gpu = track.on_gpu.around, track.on_gpu
    by_time = not window.spec.by_launch and isinstance(track.convention.anchor, KernelAnchor)
    found = window.start_ns
    for work, launches in ((gpu.kernels, gpu.launch_ns), (gpu.transfers, None)):
        if work is not None and len(work):
            calls = around.transfer_calls[gpu.rank.lane].start_ns if launches is None else launches
            found = max(found, _ends(work, work.start_ns if by_time else or_start(calls, work.start_ns), window))
    return min(found, window.end_ns)


def _ends(work: Kernels, moments: Column, window: RankWindow) -> int:
    """When the last of what began in a step, at such moments of the host, ended; 0 of none."""
    own = touching(moments, moments, window.window.start_ns, window.window.end_ns - 1)
    return bounds(take(work.end_ns, own))[1]
