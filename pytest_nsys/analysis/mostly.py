"""What is a window mostly? Where one thing takes most of it, figures and gates of anything else say little of the run.

Of the windows of all ranks together: so much of their time nothing runs on the GPU, only copies run, or one kernel
computes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_nsys.analysis.budget import Budget, budget_of, window_of_several
from pytest_nsys.analysis.gpu_state import device_of
from pytest_nsys.analysis.losses import Losses
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.core.columns import sums_by, take
from pytest_nsys.core.errors import NoRows


class MostOf(enum.StrEnum):
    """What takes most of the time."""

    COPIES = "copies"
    IDLE = "idle"
    KERNEL = "one kernel"


LEAST: Mapping[MostOf, Fraction] = {
    MostOf.COPIES: Fraction(1, 2),
    MostOf.IDLE: Fraction(1, 2),
    MostOf.KERNEL: Fraction(1, 2),
}
"""Of the windows' time: so much of it at least is told."""

ONE_GAP = Fraction(1, 2)
"""Of the idle time: a gap that is more of it is told, for the rest of the run may be worth measuring alone."""


@dataclass(frozen=True, slots=True)
class Mostly:
    """One thing that takes ``share`` of the windows, of which ``computes`` is compute. ``what`` are the memories
    between which most copies go, or the kernel's name. ``gap_ns`` is one gap that most of the idle time is.
    """

    of: MostOf
    share: Fraction
    computes: Fraction
    what: str = ""
    gap_ns: int | None = None


def mostly(windows: Mapping[int, Sequence[RankWindow]]) -> Mostly | None:
    """What takes the largest part of windows of ranks, if any does; None, too, where no rank has a budget."""
    known = [*_budgets(windows)]
    whole = sum(budget.window_ns for _, budget in known)
    if not whole:
        return None
    computes = Fraction(sum(budget.compute_busy_ns for _, budget in known), whole)
    parts = {MostOf.COPIES: _only_copies_ns(known), MostOf.IDLE: _idle_ns(known)}
    name, parts[MostOf.KERNEL] = _largest_kernel([window for window, _ in known])
    most = max(parts, key=lambda of: (Fraction(parts[of]) / LEAST[of], of))
    if (share := Fraction(parts[most], whole)) < LEAST[most]:
        return None
    if most is MostOf.KERNEL:
        return Mostly(most, share, computes, name)
    window, budget = max(known, key=lambda each: each[1].compute_absent_ns)
    if most is MostOf.IDLE:
        gap_ns = max((end - start for start, end in _gaps(window)), default=0)
        return Mostly(most, share, computes, gap_ns=gap_ns if gap_ns > ONE_GAP * (budget.device_idle_ns or 0) else None)
    between = Losses(window, ()).longest_copies()
    return Mostly(most, share, computes, between[0] if between else "")


def _budgets(windows: Mapping[int, Sequence[RankWindow]]) -> Iterator[tuple[RankWindow, Budget]]:
    """Of each rank that has one, with the window that stands for all of its windows."""
    for own in windows.values():
        try:
            window = window_of_several(own)
            yield window, budget_of(window)
        except NoRows:  # which the rank's bar says
            continue


def _only_copies_ns(known: Sequence[tuple[RankWindow, Budget]]) -> int:
    """How long copies and memsets run while no kernel does."""
    busy = ((budget.device_busy_ns, window) for window, budget in known)
    return sum(ns - w.meanwhile.busy_time.covered_ns(w.start_ns, w.end_ns) for ns, w in busy if ns is not None)


def _idle_ns(known: Sequence[tuple[RankWindow, Budget]]) -> int:
    """How long nothing runs; unknown where the trace does not say when copies ran."""
    return sum(budget.device_idle_ns or 0 for _, budget in known)


def _gaps(window: RankWindow) -> Iterator[tuple[int, int]]:
    """When nothing ran, copies and the work of other steps included."""
    return (device_of(window).busy or window.meanwhile.busy_time).uncovered(window.start_ns, window.end_ns)


def _largest_kernel(windows: Sequence[RankWindow]) -> tuple[str, int]:
    """Of what computes the kernel that takes longest, by its demangled name, and how long."""
    found: dict[str, int] = {}
    for window in windows:
        kernels, own = window.kernels, window.compute
        names = take(kernels.name, own), take(kernels.full_name, own)
        for (short, full), (ns, _) in sums_by(lambda *ids: ids, take(window.durations_ns, own), *names).items():
            name = kernels.names.get(full) or kernels.names[short]
            found[name] = found.get(name, 0) + ns
    return max(found.items(), key=lambda item: (item[1], item[0]), default=("", 0))
