"""When did each rank compute in its window, and why not, coarse enough to draw all ranks below each other?

A strip shows the time as it passed, or stacked: all compute first, then each reason in one piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pytest_nsys.analysis.budget.budget import Budget, GapPart, choose_rank_budget
from pytest_nsys.analysis.budget.timeline import TimelineGap, merge_short_gaps
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.errors import NoRows, NothingMeasured

STRIP_CELLS = 240
"""Gaps shorter than this fraction of the window are drawn together; 64 ranks then take about 300 kB of a page."""


class RankStrip(NamedTuple):
    """Holds when one rank computed in its window: whenever it is not in one of the ``gaps``."""

    rank: int
    start_ns: int
    length_ns: int  # of the window; 0 if nothing is known about the rank
    gaps: Sequence[GapPart]  # by start
    why: str = ""  # why there are no gaps to draw; empty if there are some

    @property
    def ns_by_part(self) -> dict[BudgetPart, int]:
        """The time of each part, in the order of the budget; compute is what lies in no gap."""
        absent_ns = dict.fromkeys(BudgetPart, 0)
        for gap in self.gaps:
            absent_ns[gap.part] += gap.end_ns - gap.start_ns
        return {**absent_ns, BudgetPart.COMPUTE: self.length_ns - sum(absent_ns.values())}

    def stack_parts(self) -> RankStrip:
        """Return the strip with all compute first, then the time of each part in one piece, without its kernels."""
        stacked_gaps, at_ns = [], self.start_ns
        for part, ns in self.ns_by_part.items():
            if part is not BudgetPart.COMPUTE and ns:
                stacked_gaps.append(GapPart(at_ns, at_ns + ns, part))
            at_ns += ns
        return self._replace(gaps=stacked_gaps)


def list_rank_strips(
    run: Run, spec: WindowSpec, ranks: Iterable[int], window_index: int | None = None
) -> Iterator[RankStrip]:
    """Yield a strip of each rank's window, in the order of the ranks.

    If a rank has several windows, the strip is of that with ``window_index``, else of the one whose budget is shown. A
    rank without a window or a budget has a strip with the reason.
    """
    for rank in ranks:
        try:
            budget = _measure_window(run.load_windows(spec).require_filled_windows({rank})[rank], window_index)
        except (NoRows, NothingMeasured) as nothing:
            yield RankStrip(rank, 0, 0, (), str(nothing))
            continue
        window = budget.window
        cells = merge_short_gaps(
            (TimelineGap(gap) for gap in budget.list_gap_parts()), max(window.length_ns // STRIP_CELLS, 1)
        )
        yield RankStrip(rank, window.start_ns, window.length_ns, [cell.part for cell in cells])


def _measure_window(windows: Sequence[RankWindow], window_index: int | None) -> Budget:
    """Return the budget of the window with this index, or of the typical one."""
    if window_index is None or window_index >= len(windows):
        return choose_rank_budget(windows)
    return choose_rank_budget(windows[window_index : window_index + 1])
