"""What does the GPU wait for between two steps, and since when?"""

from __future__ import annotations

from pytest_nsys.analysis.windows.rank_track import fill_missing_launches
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.window_selection import count_whole_steps
from pytest_nsys.core.columns import Column, find_min_max, find_touching_spans, take
from pytest_nsys.core.conventions import KernelAnchor
from pytest_nsys.core.tables import Kernels


def find_own_work_end(window: RankWindow) -> int | None:
    """Return when the last kernel, copy or memset of a step ended, in ns; None if the window is no step, or the last
    one.
    """
    track, index = window.track, window.window.index
    if index is None or track.steps_by_kind is None or len(track.steps_by_kind.steps) < 2 or not len(window):
        return None
    last_step = track.steps_by_kind.steps[count_whole_steps(track.steps_by_kind.steps) - 1]
    if window.window.start_ns > last_step.start_ns:
        return None
    context, gpu = track.gpu_track.trace_context, track.gpu_track
    # Steps that kernels mark are times of the GPU, all others times of the host: work belongs to a step by its start
    # there, else by its launch.
    by_time = not window.spec.is_by_launch and isinstance(track.convention.anchor, KernelAnchor)
    end_ns = window.start_ns
    for work, launches in ((gpu.kernels, gpu.launch_ns), (gpu.transfers, None)):
        if work is not None and len(work):
            calls = context.transfer_calls[gpu.rank.lane].start_ns if launches is None else launches
            end_ns = max(
                end_ns,
                _find_last_end(work, work.start_ns if by_time else fill_missing_launches(calls, work.start_ns), window),
            )
    return min(end_ns, window.end_ns)


def _find_last_end(work: Kernels, host_times_ns: Column, window: RankWindow) -> int:
    """Return when the last operation that began in a step ended, in ns; 0 if there is none.

    ``host_times_ns`` are the times of the operations that decide whether they belong to the step.
    """
    step_rows = find_touching_spans(host_times_ns, host_times_ns, window.window.start_ns, window.window.end_ns - 1)
    return find_min_max(take(work.end_ns, step_rows))[1]
