"""What takes most of a window? If a single activity does, figures and gates of anything else say little about the run.

The activities, over the windows of all ranks together: nothing runs on the GPU, only copies run, or one kernel
computes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_nsys.analysis.budget.budget import Budget
from pytest_nsys.analysis.metrics.gpu_state import get_gpu_track
from pytest_nsys.analysis.summary.lost_time import find_longest_copies
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.columns import sum_values_by, take
from pytest_nsys.core.errors import NoRows


class DominantActivityKind(enum.StrEnum):
    """Names what takes most of the time."""

    COPIES = "copies"
    IDLE = "idle"
    KERNEL = "one kernel"


# Minimum share of the windows' time to be reported.
MIN_ACTIVITY_SHARE = Fraction(1, 2)

# Share of the idle time above which a gap is reported: the rest of the run may be worth measuring alone.
MIN_GAP_SHARE = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class DominantActivity:
    """Describes the one activity that takes most of the windows."""

    kind: DominantActivityKind
    share: Fraction  # of the windows
    compute_share: Fraction  # of the windows, in which anything computes
    subject: str = ""  # the memories between which most copies go, or the kernel's name
    gap_ns: int | None = None  # the gap that has most of the idle time, if one has


def find_dominant_activity(budgets: Mapping[int, Budget | NoRows]) -> DominantActivity | None:
    """Find the activity with the largest share of the ranks' windows; None if it is too small, or no rank has a
    budget.
    """
    known_budgets = [budget for budget in budgets.values() if isinstance(budget, Budget)]
    whole_ns = sum(budget.lines.window_ns for budget in known_budgets)
    if not whole_ns:
        return None
    compute_share = Fraction(sum(budget.lines.compute_busy_ns for budget in known_budgets), whole_ns)
    # unknown if the trace does not say when copies ran
    idle_ns = sum(budget.lines.device_idle_ns or 0 for budget in known_budgets)
    parts_ns = {
        DominantActivityKind.COPIES: sum(map(_measure_copies_alone_ns, known_budgets)),
        DominantActivityKind.IDLE: idle_ns,
    }
    name, parts_ns[DominantActivityKind.KERNEL] = _find_largest_kernel([budget.window for budget in known_budgets])
    largest = max(parts_ns, key=lambda kind: (parts_ns[kind], kind))
    if (share := Fraction(parts_ns[largest], whole_ns)) < MIN_ACTIVITY_SHARE:
        return None
    if largest is DominantActivityKind.KERNEL:
        return DominantActivity(largest, share, compute_share, name)
    worst_budget = max(known_budgets, key=lambda budget: budget.lines.compute_absent_ns)
    window = worst_budget.window
    if largest is DominantActivityKind.IDLE:
        # copies and the work of other steps are not idle time
        busy_time = get_gpu_track(window).busy_time or window.gpu_window.busy_time
        gap_ns = max(
            (end - start for start, end in busy_time.list_uncovered(window.start_ns, window.end_ns)), default=0
        )
        is_mostly_one_gap = gap_ns > MIN_GAP_SHARE * (worst_budget.lines.device_idle_ns or 0)
        return DominantActivity(largest, share, compute_share, gap_ns=gap_ns if is_mostly_one_gap else None)
    copies_between = find_longest_copies(window)
    return DominantActivity(largest, share, compute_share, copies_between[0] if copies_between else "")


def _measure_copies_alone_ns(budget: Budget) -> int:
    """Measure how long copies and memsets run while no kernel does, in ns."""
    busy_ns, window = budget.lines.device_busy_ns, budget.window
    if busy_ns is None:
        return 0
    return busy_ns - window.gpu_window.busy_time.measure_covered_ns(window.start_ns, window.end_ns)


def _find_largest_kernel(windows: Sequence[RankWindow]) -> tuple[str, int]:
    """Return (demangled name, ns) of the compute kernel with the longest total time."""
    ns_by_name: dict[str, int] = {}
    for window in windows:
        kernels, compute = window.kernels, window.compute
        names = take(kernels.name, compute), take(kernels.full_name, compute)
        for (short, full), (ns, _) in sum_values_by(
            lambda *ids: ids, take(window.durations_ns, compute), *names
        ).items():
            name = kernels.names.get(full) or kernels.names[short]
            ns_by_name[name] = ns_by_name.get(name, 0) + ns
    return max(ns_by_name.items(), key=lambda item: (item[1], item[0]), default=("", 0))
