"""How much of its step is a time of a rank? Each value over the length of its window, before anything is aggregated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import RunWindow
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.exact import simplify_fraction
from pytest_nsys.core.model import Row, RowBelowError

Window = RankWindow | RunWindow


def divide_by_step(rows: Iterable[Row | RowBelowError], window: Window) -> Iterator[Row | RowBelowError]:
    """Yield rows of times of ranks as shares of ``window_ns`` of the rank of each.

    Raises NoRows for a window without a length.
    """
    for row in rows:
        rank_window = window.by_rank[int(row.labels[0])] if isinstance(window, RunWindow) else window
        if not rank_window.length_ns:
            raise NoRows(f"the window of rank {rank_window.rank.number} has no length")
        labels, value = row
        yield type(row)(labels, simplify_fraction(Fraction(value) / rank_window.length_ns))
