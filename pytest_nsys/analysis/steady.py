"""Is the step steady, and is its median window a typical one? Read off the anchors alone."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.statistics import distance, exact, median, percentile
from pytest_nsys.analysis.windows import periods, span_lengths, steady_indices
from pytest_nsys.model import Row, Value

QUANTILES = (50, 90, 99)


def _steady(window: RankWindow, values: list[int]) -> list[int]:
    """The values of the steady anchors that have one."""
    return [values[i] for i in steady_indices(len(window.anchors)) if i < len(values)]


def anchors(window: RankWindow) -> Iterator[Row]:
    """How many anchors the rank has."""
    yield Row((window.rank.number,), len(window.anchors))


def period_ns(window: RankWindow) -> Iterator[Row]:
    """Start of the next anchor minus start of the anchor, over the steady anchors, per (rank, quantile)."""
    if found := _steady(window, periods(window.anchors)):
        for quantile in QUANTILES:
            yield Row((window.rank.number, f"p{quantile}"), percentile(found, quantile))


def window_typicality(window: RankWindow) -> Iterator[Row]:
    """|window length − median| / MAD of the steady anchors, per rank: a large value makes every other number doubtful.

    A MAD of 0 gives 0 where the length equals the median, else no row.
    """
    lengths: list[Value] = [*_steady(window, span_lengths(window.anchors, window.pick.span))]
    if not lengths or window.window.index is None:
        return
    middle = median(lengths)
    spread = median([distance(length, middle) for length in lengths])
    apart = distance(window.window.length_ns, middle)
    if spread:
        yield Row((window.rank.number,), exact(Fraction(apart) / Fraction(spread)))
    elif not apart:
        yield Row((window.rank.number,), 0)
