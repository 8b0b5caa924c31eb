"""What was there beside the kernels of a window: which calls did the host wait in, what was copied, how fast was the
clock?

A breakdown compares these with those of another run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from pytest_nsys.analysis.budget.budget import Budget, budget_of
from pytest_nsys.analysis.explain.parts import OWN_STREAM, Part, What
from pytest_nsys.analysis.metrics.activity import SYNCHRONISING_CALLS, waiting_call
from pytest_nsys.analysis.metrics.gpu_state import sm_clock_mhz
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.columns import minus, take, touching, where, within
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.kernel_names import telling_name
from pytest_nsys.traces.copies_as_kernels import COPY_ID, GRAPH_ID, MEMSET_ID, TRANSFERS


def host_waits(window: RankWindow) -> list[Part] | None:
    """List the calls that made the host wait for the GPU, by name; None where the trace has no record of any call.

    Of those that began before the window it knows what began no more than its length before.
    """
    low, high = window.window.start_ns, window.window.end_ns
    calls = window.track.api_calls(SYNCHRONISING_CALLS, (low - window.window.length_ns, high))
    if calls is None:
        return None
    counts = Counter(waiting_call(call.name) for call in calls if call.start_ns < high and call.end_ns > low)
    budget = _budget(window) if counts else None
    starved_by_call = budget.in_syncs if budget is not None else {}
    sorted_counts = sorted(counts.items())
    return [
        Part(What.CALL, name, "", OWN_STREAM, count, starved_by_call.get(name, 0))
        for name, count in sorted_counts
        if name
    ]


def _budget(window: RankWindow) -> Budget | None:
    try:
        return budget_of(window)
    except NoRows:
        return None


def kind_of_transfer(window: RankWindow) -> Callable[[str, int], str]:
    """Make a function that names a copy or memset by its name and start: ``copy from pageable to device``.

    Between which memories is known of what was launched in the window, or no more than its length before.
    """
    copies = window.track.on_gpu.copies((window.start_ns - window.length_ns, window.end_ns)) or ()
    memories = {copy.start_ns: (copy.source, copy.target) for copy in copies if copy.source and copy.target}

    def name_transfer(name: str, start_ns: int) -> str:
        memory_pair = memories.get(start_ns) if name == TRANSFERS[COPY_ID] else None
        return name if memory_pair is None else "{} from {} to {}".format(name, *memory_pair)

    return name_transfer


def transferred(window: RankWindow) -> list[Part] | None:
    """List the copies and memsets that ran in the window, by kind; None where the trace does not say when they ran."""
    track, low, high = window.track.on_gpu, window.start_ns, window.end_ns
    transfers = track.transfers
    if transfers is None:
        return None
    name_transfer = kind_of_transfer(window)
    near_rows = touching(transfers.start_ns, transfers.end_ns, low, high)
    lengths = minus(
        within(take(transfers.end_ns, near_rows), low, high), within(take(transfers.start_ns, near_rows), low, high)
    )
    nonempty_rows = where(lengths)
    transfer_rows = take(near_rows, nonempty_rows)
    rows = zip(
        take(transfers.name, transfer_rows),
        take(transfers.start_ns, transfer_rows),
        take(lengths, nonempty_rows),
        strict=True,
    )
    lengths_by_kind = grouped(
        (name_transfer(TRANSFERS[name], start_ns), ns) for name, start_ns, ns in rows if name != GRAPH_ID
    )
    blocked_by_kind = {name: Counter[str]() for name in lengths_by_kind}
    budget = _budget(window)
    for name, start_ns, kernel_name, ns in budget.held_by_transfers() if budget is not None else ():
        blocked_by_kind.setdefault(name_transfer(name, start_ns), Counter())[telling_name(kernel_name)] += ns
    return [
        Part(
            What.MEMSET if name.startswith(TRANSFERS[MEMSET_ID]) else What.COPY,
            name,
            "",
            OWN_STREAM,
            number=len(lengths_by_kind.get(name, ())),
            length_ns=sum(lengths_by_kind.get(name, ())),
            beside_ns=dict(sorted(blocked_ns.items())),
        )
        for name, blocked_ns in sorted(blocked_by_kind.items())
    ]


def clock_mhz(window: RankWindow) -> int | None:
    """Return the median clock of the SMs in MHz; None where the window has no sample of it."""
    with suppress(NoRows):
        return round(sm_clock_mhz(window))
    return None
