"""What holds the step back? The time of a window on the GPU, by what ran: nothing, compute, communication, copies.

All of it is about the device: whatever ran in the window's time counts, cut at its edges, also under ``contained``,
whose other metrics leave out what crosses an edge. Under ``launched`` the window goes from the start of its first
kernel to the end of its last, and what others launched and ran meanwhile counts, too. Communication, barriers and
copies that the convention counts as such included, is never a copy. The parts of one window add up, so of several
windows or captures each rank shows one (``window_by`` in ``metrics.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_nsys.analysis.blocking import Budget, budget_of
from pytest_nsys.analysis.gpu_state import device_of
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.model import Row

NO_COMMUNICATION = "no communication kernel runs in the window"


def device_busy_ns(window: RankWindow) -> Iterator[Row]:
    """Time during which any kernel, copy or memset runs on the GPU, per rank."""
    if (busy := device_of(window).busy) is not None:
        yield Row((window.rank.number,), busy.covered_ns(window.start_ns, window.end_ns))


def device_idle_ns(window: RankWindow) -> Iterator[Row]:
    """The window minus ``device_busy_ns``, per rank: ``idle_ns`` counts copies and memsets as idle, this does not."""
    for labels, busy in device_busy_ns(window):
        yield Row(labels, window.length_ns - busy)


def compute_busy_ns(window: RankWindow) -> Iterator[Row]:
    """Time during which any compute kernel runs on the GPU, per rank."""
    yield Row((window.rank.number,), device_of(window).compute.covered_ns(window.start_ns, window.end_ns))


def compute_absent_ns(window: RankWindow) -> Iterator[Row]:
    """The window minus ``compute_busy_ns``, per rank: what a faster step has to win back."""
    for labels, busy in compute_busy_ns(window):
        yield Row(labels, window.length_ns - busy)


def comm_alone_ns(window: RankWindow) -> Iterator[Row]:
    """Time with communication, barriers included, and without compute, copy or memset, per rank.

    No row where nothing communicates in the window: 0 would be green on nothing.
    """
    device, span = device_of(window), (window.start_ns, window.end_ns)
    if not device.communication.covered_ns(*span):
        raise NoRows(NO_COMMUNICATION)
    if device.busy is not None and device.at_work is not None:
        yield Row((window.rank.number,), device.busy.covered_ns(*span) - device.at_work.covered_ns(*span))


def launch_starved_ns(window: RankWindow) -> Iterator[Row]:
    """Time without compute until the call returned that launched the next compute kernel, per rank.

    Where no compute follows, all of the time is launch-starved; where that kernel has no launch row, none of it is.
    """
    yield Row((window.rank.number,), budget_of(window).launch_starved_ns)


def blocking_ns(window: RankWindow) -> Iterator[Row]:
    """Time without compute after that in which something that the kernel depends on ran, per (rank, producer).

    A producer is a ``collective``, ``copy``, ``memset``, or ``other_device``: anything on another device of the
    process. The kernel depends on the operation before it on its stream and on what its stream waited for, through any
    number of operations; each moment is credited to what ran then. 0 of what blocked nothing.
    """
    if (budget := _of_all_work(window)) is not None:
        for kind in budget.kinds:
            yield Row((window.rank.number, kind), budget.blocking_ns.get(kind, 0))


def dependency_stalled_ns(window: RankWindow) -> Iterator[Row]:
    """Time without compute after the launch in which nothing ran that the kernel is known to depend on, per rank."""
    if (budget := _of_all_work(window)) is not None:
        yield Row((window.rank.number,), budget.dependency_stalled_ns)


def blocking_comm_ns(window: RankWindow) -> Iterator[Row]:
    """``blocking_ns`` of collectives, per (rank, stage of the collective): proven by an edge, so a lower bound."""
    if (budget := _of_communication(window)) is not None:
        for stage, blocked in budget.blocking_comm_ns.items():
            yield Row((window.rank.number, stage), blocked)


def blocking_comm_max_ns(window: RankWindow) -> Iterator[Row]:
    """Time without compute after the launch in which communication ran, whatever it is credited to, per rank.

    An upper bound of what communication blocked.
    """
    if (budget := _of_communication(window)) is not None:
        yield Row((window.rank.number,), budget.blocking_comm_max_ns)


def _of_all_work(window: RankWindow) -> Budget | None:
    """None where the trace does not say when copies and memsets ran: one of them may have blocked."""
    budget = budget_of(window)
    return None if budget.device_busy_ns is None else budget


def _of_communication(window: RankWindow) -> Budget | None:
    budget = _of_all_work(window)
    if budget is not None and not budget.comm_ns and not budget.blocking_comm_ns:
        raise NoRows(NO_COMMUNICATION)
    return budget


def window_of_several(windows: Sequence[RankWindow]) -> RankWindow:
    """Of several windows of a rank the one whose budget is shown: with the lower median of ``compute_absent_ns``.

    Raises NoRows where one of them has no budget.
    """
    ordered = sorted(windows, key=lambda window: next(iter(compute_absent_ns(window))).value)
    return ordered[(len(windows) - 1) // 2]
