"""Is the step steady, and is its median window a typical one? Read off the anchors alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.windows import periods, span_lengths, steady_indices
from pytest_nsys.core.model import Range, Row, Value
from pytest_nsys.core.statistics import distance, exact, median, percentile

QUANTILES = (50, 90, 99)


def anchors(window: RankWindow) -> Iterator[Row]:
    """How many anchors the rank has."""
    yield Row((window.rank.number,), len(window.anchors))


def steady_periods(anchors: Sequence[Range]) -> dict[int, int]:
    """The periods of the steady anchors that have one, in ns by the anchor's index."""
    found = periods(anchors)
    return {i: found[i] for i in steady_indices(len(anchors)) if i < len(found)}


def period_ns(window: RankWindow) -> Iterator[Row]:
    """Start of the next anchor minus start of the anchor, over the steady anchors, per (rank, quantile)."""
    if found := list(steady_periods(window.anchors).values()):
        for quantile in QUANTILES:
            yield Row((window.rank.number, f"p{quantile}"), percentile(found, quantile))


def window_typicality(window: RankWindow) -> Iterator[Row]:
    """|window length − median| / MAD of the steady anchors, per rank: a large value makes every other number doubtful.

    A MAD of 0 gives 0 where the length equals the median, else no row.
    """
    if (found := deviation(window)) is not None and (found.spread_ns or not found.apart_ns):
        yield Row((window.rank.number,), found.in_spreads)


class Deviation(NamedTuple):
    """How far the length of a window is from the median of the steady anchors, and their MAD; both in ns."""

    apart_ns: Value
    spread_ns: Value

    @property
    def in_spreads(self) -> Value:
        """The distance in MAD. A MAD of 0 is taken for 1 ns, the least that a clock tells."""
        return exact(Fraction(self.apart_ns) / Fraction(self.spread_ns or 1))

    def __str__(self) -> str:
        if self.apart_ns and not self.spread_ns:
            apart = f"{float(self.apart_ns):.1f}".removesuffix(".0")
            return f"{apart} ns from the steady median, which most others hit exactly (a MAD of 0)"
        return f"{round(float(self.in_spreads), 1)} MAD from the steady median"


def deviation(window: RankWindow) -> Deviation | None:
    """How typical a window is; None for one that is no anchor, or without steady ones."""
    spans = span_lengths(window.anchors, window.spec.span)
    lengths: list[Value] = [spans[i] for i in steady_indices(len(window.anchors)) if i < len(spans)]
    if not lengths or window.window.index is None:
        return None
    middle = median(lengths)
    spread = median([distance(length, middle) for length in lengths])
    return Deviation(distance(window.window.length_ns, middle), spread)
