"""How much of its step is a time of a rank? Each value over the length of its window, before anything is aggregated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import wraps
from typing import Any

from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import RunWindow
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.exact import exact
from pytest_nsys.core.model import Row, Unseen

Window = RankWindow | RunWindow


def of_step(rows: Callable[[Any], Iterable[Row | Unseen]]) -> Callable[[Window], Iterator[Row | Unseen]]:
    """What makes the rows of a time of ranks, as shares of ``window_ns`` of the rank of each."""

    @wraps(rows)
    def shares(window: Window) -> Iterator[Row | Unseen]:
        """Each row over its window. Raises NoRows for a window without a length."""
        for row in rows(window):
            own = window.by_rank[int(row.labels[0])] if isinstance(window, RunWindow) else window
            if not own.length_ns:
                raise NoRows(f"the window of rank {own.rank.number} has no length")
            if isinstance(row, Unseen):
                yield Unseen(row.labels, exact(Fraction(row.error) / own.length_ns))
            else:
                yield Row(row.labels, exact(Fraction(row.value) / own.length_ns))

    return shares
