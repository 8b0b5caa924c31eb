"""What was there beside the kernels of a window: what the host waited in, what was copied, how fast the clock was?

Found for a breakdown, which holds them against those of another run.
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
    """The calls that made the host wait for the GPU, by name; None where the trace has no record of any call.

    Of those that began before the window it knows what began no more than its length before.
    """
    low, high = window.window.start_ns, window.window.end_ns
    calls = window.track.api_calls(SYNCHRONISING_CALLS, (low - window.window.length_ns, high))
    if calls is None:
        return None
    counts = Counter(waiting_call(call.name) for call in calls if call.start_ns < high and call.end_ns > low)
    budget = _budget(window) if counts else None
    starved = budget.in_syncs if budget is not None else {}
    each = sorted(counts.items())
    return [Part(What.CALL, name, "", OWN_STREAM, count, starved.get(name, 0)) for name, count in each if name]


def _budget(window: RankWindow) -> Budget | None:
    try:
        return budget_of(window)
    except NoRows:
        return None


def kind_of_transfer(window: RankWindow) -> Callable[[str, int], str]:
    """The kind of a copy or memset by its name and start: ``copy from pageable to device``.

    Between which memories is known of what was launched in the window, or no more than its length before.
    """
    copies = window.track.on_gpu.copies((window.start_ns - window.length_ns, window.end_ns)) or ()
    memories = {each.start_ns: (each.source, each.target) for each in copies if each.source and each.target}

    def kind(name: str, at: int) -> str:
        joined = memories.get(at) if name == TRANSFERS[COPY_ID] else None
        return name if joined is None else "{} from {} to {}".format(name, *joined)

    return kind


def transferred(window: RankWindow) -> list[Part] | None:
    """The copies and memsets that ran in the window, by kind; None where the trace does not say when they ran."""
    track, low, high = window.track.on_gpu, window.start_ns, window.end_ns
    ran = track.transfers
    if ran is None:
        return None
    kind = kind_of_transfer(window)
    near = touching(ran.start_ns, ran.end_ns, low, high)
    lengths = minus(within(take(ran.end_ns, near), low, high), within(take(ran.start_ns, near), low, high))
    some = where(lengths)
    own = take(near, some)
    each = zip(take(ran.name, own), take(ran.start_ns, own), take(lengths, some), strict=True)
    moved = grouped((kind(TRANSFERS[name], at), ns) for name, at, ns in each if name != GRAPH_ID)
    blocks = {name: Counter[str]() for name in moved}
    budget = _budget(window)
    for name, at, waiting, ns in budget.held_by_transfers() if budget is not None else ():
        blocks.setdefault(kind(name, at), Counter())[telling_name(waiting)] += ns
    return [
        Part(
            What.MEMSET if name.startswith(TRANSFERS[MEMSET_ID]) else What.COPY,
            name,
            "",
            OWN_STREAM,
            number=len(moved.get(name, ())),
            length_ns=sum(moved.get(name, ())),
            beside_ns=dict(sorted(by.items())),
        )
        for name, by in sorted(blocks.items())
    ]


def clock_mhz(window: RankWindow) -> int | None:
    """Median clock of the SMs; None where the window has no sample of it."""
    with suppress(NoRows):
        return round(sm_clock_mhz(window))
    return None
