"""When did each rank compute in its window, and why not, coarse enough to draw all ranks below each other?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pytest_nsys.analysis.budget.budget import GapPart, choose_rank_budget
from pytest_nsys.analysis.budget.timeline import TimelineGap, merge_short_gaps
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


def list_rank_strips(run: Run, spec: WindowSpec, ranks: Iterable[int]) -> Iterator[RankStrip]:
    """Yield a strip of each rank's window, in the order of the ranks.

    If a rank has several windows, the strip is of the one whose budget is shown. A rank without a window or a budget
    has a strip with the reason.
    """
    for rank in ranks:
        try:
            budget = choose_rank_budget(run.load_windows(spec).require_filled_windows({rank})[rank])
        except (NoRows, NothingMeasured) as nothing:
            yield RankStrip(rank, 0, 0, (), str(nothing))
            continue
        window = budget.window
        cells = merge_short_gaps(
            (TimelineGap(gap) for gap in budget.list_gap_parts()), max(window.length_ns // STRIP_CELLS, 1)
        )
        yield RankStrip(rank, window.start_ns, window.length_ns, [cell.part for cell in cells])
