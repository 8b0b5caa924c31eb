"""What happened in a window other than kernels: which calls did the host wait in, what was copied, how fast was the
clock?

A breakdown compares these with those of another run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from pytest_nsys.analysis.budget.budget import Budget, measure_budget
from pytest_nsys.analysis.explain.breakdown_model import OWN_STREAM, BreakdownRow, RowActivity
from pytest_nsys.analysis.metrics.activity import SYNCHRONISING_CALLS, parse_waiting_call
from pytest_nsys.analysis.metrics.gpu_state import sm_clock_mhz
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.columns import clip, find_nonzero, find_touching_spans, subtract, take
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.kernel_names import make_stable_name
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.traces.copies_as_kernels import COPY_ID, GRAPH_ID, MEMSET_ID, TRANSFER_NAMES


def list_host_waits(window: RankWindow) -> list[BreakdownRow] | None:
    """List the calls that made the host wait for the GPU, by name; None if the trace records no calls.

    Calls that began earlier than one window length before the window are missing.
    """
    low, high = window.window.start_ns, window.window.end_ns
    calls = window.track.select_api_calls(SYNCHRONISING_CALLS, (low - window.window.length_ns, high))
    if calls is None:
        return None
    counts = Counter(parse_waiting_call(call.name) for call in calls if call.start_ns < high and call.end_ns > low)
    budget = _find_window_budget(window) if counts else None
    starved_by_call = budget.in_syncs if budget is not None else {}
    sorted_counts = sorted(counts.items())
    return [
        BreakdownRow(RowActivity.CALL, name, "", OWN_STREAM, count, starved_by_call.get(name, 0))
        for name, count in sorted_counts
        if name
    ]


def _find_window_budget(window: RankWindow) -> Budget | None:
    try:
        return measure_budget(window)
    except NoRows:
        return None


def make_transfer_namer(window: RankWindow) -> Callable[[str, int], str]:
    """Make a function that names a copy or memset from its name and start: ``copy from pageable to device``.

    The two memories are known for copies that were launched in the window or at most its length before.
    """
    copies = window.track.gpu_track.select_copies((window.start_ns - window.length_ns, window.end_ns)) or ()
    memories = {copy.start_ns: (copy.source, copy.target) for copy in copies if copy.source and copy.target}

    def name_transfer(name: str, start_ns: int) -> str:
        memory_pair = memories.get(start_ns) if name == TRANSFER_NAMES[COPY_ID] else None
        return name if memory_pair is None else "{} from {} to {}".format(name, *memory_pair)

    return name_transfer


def list_transfers(window: RankWindow) -> list[BreakdownRow] | None:
    """List the copies and memsets that ran in the window, by kind; None if the trace does not say when they ran."""
    track, low, high = window.track.gpu_track, window.start_ns, window.end_ns
    transfers = track.transfers
    if transfers is None:
        return None
    name_transfer = make_transfer_namer(window)
    near_rows = find_touching_spans(transfers.start_ns, transfers.end_ns, low, high)
    lengths = subtract(
        clip(take(transfers.end_ns, near_rows), low, high), clip(take(transfers.start_ns, near_rows), low, high)
    )
    nonempty_rows = find_nonzero(lengths)
    transfer_rows = take(near_rows, nonempty_rows)
    rows = zip(
        take(transfers.name, transfer_rows),
        take(transfers.start_ns, transfer_rows),
        take(lengths, nonempty_rows),
        strict=True,
    )
    lengths_by_kind = group_by_key(
        (name_transfer(TRANSFER_NAMES[name], start_ns), ns) for name, start_ns, ns in rows if name != GRAPH_ID
    )
    blocked_by_kind = {name: Counter[str]() for name in lengths_by_kind}
    budget = _find_window_budget(window)
    for name, start_ns, kernel_name, ns in budget.list_transfer_waits() if budget is not None else ():
        blocked_by_kind.setdefault(name_transfer(name, start_ns), Counter())[make_stable_name(kernel_name)] += ns
    return [
        BreakdownRow(
            RowActivity.MEMSET if name.startswith(TRANSFER_NAMES[MEMSET_ID]) else RowActivity.COPY,
            name,
            "",
            OWN_STREAM,
            number=len(lengths_by_kind.get(name, ())),
            length_ns=sum(lengths_by_kind.get(name, ())),
            ns_by_kernel=dict(sorted(blocked_ns.items())),
        )
        for name, blocked_ns in sorted(blocked_by_kind.items())
    ]


def measure_clock_mhz(window: RankWindow) -> int | None:
    """Return the median clock of the SMs in MHz; None if the window has no sample."""
    with suppress(NoRows):
        return round(sm_clock_mhz(window))
    return None
