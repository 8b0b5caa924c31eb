"""What is a window mostly? Where one thing takes most of it, figures and gates of anything else say little of the run.

Of the windows of all ranks together: so much of their time nothing runs on the GPU, only copies run, or one kernel
computes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_nsys.analysis.budget.budget import Budget
from pytest_nsys.analysis.metrics.gpu_state import device_of
from pytest_nsys.analysis.summary.losses import longest_copies
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.columns import sums_by, take
from pytest_nsys.core.errors import NoRows


class MostOf(enum.StrEnum):
    """What takes most of the time."""

    COPIES = "copies"
    IDLE = "idle"
    KERNEL = "one kernel"


LEAST = Fraction(1, 2)
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


def mostly(budgets: Mapping[int, Budget | NoRows]) -> Mostly | None:
    """What takes the largest part of windows of ranks, if any does; None, too, where no rank has a budget."""
    known = [budget for budget in budgets.values() if isinstance(budget, Budget)]
    whole = sum(budget.lines.window_ns for budget in known)
    if not whole:
        return None
    computes = Fraction(sum(budget.lines.compute_busy_ns for budget in known), whole)
    # of a trace that does not say when copies ran nobody knows when nothing did
    idle_ns = sum(budget.lines.device_idle_ns or 0 for budget in known)
    parts = {MostOf.COPIES: sum(map(_only_copies_ns, known)), MostOf.IDLE: idle_ns}
    name, parts[MostOf.KERNEL] = _largest_kernel([budget.window for budget in known])
    most = max(parts, key=lambda of: (parts[of], of))
    if (share := Fraction(parts[most], whole)) < LEAST:
        return None
    if most is MostOf.KERNEL:
        return Mostly(most, share, computes, name)
    worst = max(known, key=lambda budget: budget.lines.compute_absent_ns)
    window = worst.window
    if most is MostOf.IDLE:
        # copies and the work of other steps are not idle either
        busy = device_of(window).busy_time or window.meanwhile.busy_time
        gap_ns = max((end - start for start, end in busy.uncovered(window.start_ns, window.end_ns)), default=0)
        much = gap_ns > ONE_GAP * (worst.lines.device_idle_ns or 0)
        return Mostly(most, share, computes, gap_ns=gap_ns if much else None)
    between = longest_copies(window)
    return Mostly(most, share, computes, between[0] if between else "")


def _only_copies_ns(budget: Budget) -> int:
    """How long copies and memsets run while no kernel does."""
    busy_ns, window = budget.lines.device_busy_ns, budget.window
    if busy_ns is None:
        return 0
    return busy_ns - window.meanwhile.busy_time.covered_ns(window.start_ns, window.end_ns)


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
