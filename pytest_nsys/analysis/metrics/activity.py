"""What did the GPU do in the window: how busy, with what, on which streams, launched how?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.columns import sum_column, take
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.memoize import memoize_method

SYNCHRONISING_CALLS = (
    "cudaDeviceSynchronize*",
    "cudaStreamSynchronize*",
    "cudaEventSynchronize*",
    "cuCtxSynchronize*",
    "cuStreamSynchronize*",
    "cuEventSynchronize*",
    "cudaMemcpy*",
    "cuMemcpy*",
    "hipDeviceSynchronize*",
    "hipStreamSynchronize*",
    "hipEventSynchronize*",
    "hipMemcpy*",
)
"""Lists the API calls that make the CPU wait for the GPU; of the copies only those that are not asynchronous."""

_VERSION = re.compile(r"_v\d+$")  # which CUPTI adds to the name of a call: ``cudaDeviceSynchronize_v3020``


def compute_ns(window: RankWindow) -> int:
    """Σ length of compute kernels, per rank."""
    return sum_column(take(window.durations_ns, window.compute))


def window_ns(window: RankWindow) -> int:
    """Length of the window, per rank: of a step until the next one begins, with kernels launched on the GPU."""
    return window.length_ns


def idle_ns(window: RankWindow) -> int:
    """The window minus the time in which any kernel runs, per rank."""
    return window.length_ns - window.gpu_window.busy_time.total_ns


def comm_streams(window: RankWindow) -> Mapping[str, int]:
    """Number of communication streams, per (rank, purpose): 0 for every purpose of the convention without one."""
    counts = Counter(stream_use.purpose for stream_use in window.stream_uses)
    # 0 rather than no row: a stream that disappeared is a change.
    return {purpose: counts[purpose] for purpose in window.track.convention.purpose_names}


def launches(window: RankWindow) -> Mapping[str, int]:
    """Number of kernels, per (rank, stage)."""
    return {stage: len(members) for stage, members in window.kernels_by_stage.items()}


def gpu_gap_ns(window: RankWindow) -> int | None:
    """Σ of the gaps between consecutive compute kernels, per rank; kernels of length 0 begin and end none.

    So one before the first or after the last kernel adds nothing, and compute of length 0 alone gives no row.
    """
    compute_time = window.compute_time
    return compute_time.ends[-1] - compute_time.starts[0] - compute_time.total_ns if compute_time.starts else None


def syncs(window: RankWindow) -> int:
    """Calls in the window that make the CPU wait for the GPU, per rank.

    No row where the trace has no record of any call: 0 would be green on nothing.
    """
    if (calls := count_waiting_calls(window)) is None:
        raise NoRows(f"the trace has no record of calls: {window.track.trace_context.facts.to_see_calls}")
    return calls.total()


def sync_calls(window: RankWindow) -> Mapping[str, int]:
    """The calls that ``syncs`` counts by name, per (rank, call)."""
    return dict(sorted((count_waiting_calls(window) or {}).items()))


@memoize_method
def count_waiting_calls(window: RankWindow) -> Counter[str] | None:
    """Count the calls of each name that make the CPU wait; None if the trace records no calls."""
    calls = window.track.select_api_calls(SYNCHRONISING_CALLS, (window.window.start_ns, window.window.end_ns))
    return None if calls is None else Counter(name for call in calls if (name := parse_waiting_call(call.name)))


def parse_waiting_call(name: str) -> str:
    """Return the name of a synchronising call without its version; empty for a call that does not synchronise."""
    return "" if "Async" in name else _VERSION.sub("", name)
