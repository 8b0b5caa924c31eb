"""How does a row vary over the steady windows, drawn? A dot for each window along the values, the median one marked."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pytest_nsys.core.exact import exact_value
from pytest_nsys.core.statistics import median, percentile
from pytest_nsys.core.units import format_value
from pytest_nsys.reports.page.drawn import Spread
from pytest_nsys.reports.page.timeline_view import percent

EDGE = Fraction(4, 100)
"""Of the width, left free at either side."""

ROWS = 4
"""Dots stand in so many rows, by turn, so that equal ones are all seen."""


@dataclass(frozen=True, slots=True)
class Dot:
    """One window at ``x`` percent."""

    x: str
    row: int
    said: str
    is_median: bool


@dataclass(frozen=True, slots=True)
class SpreadView:
    """The dots, the box of the middle half, and the limit where it is among the values; or ``why`` there are none."""

    row: str
    dots: tuple[Dot, ...]
    box: tuple[str, str]
    middle: str
    limit: str
    ends: tuple[str, str]
    said: str
    why: str


def spread_view(spread: Spread, unit: str) -> SpreadView:
    """The distribution of an assertion's worst row; ``unit`` is that of its values."""
    values = [(index, exact_value(text)) for index, text in spread["values"]]
    if not values:
        why = spread["why"] or "no steady window has this row"
        return SpreadView(spread["row"], (), ("", ""), "", "", ("", ""), "", why)
    own = sorted(value for _, value in values)
    limit = exact_value(spread["limit"]) if spread["limit"] is not None else None
    shown = [*own, *([limit] if limit is not None and _is_near(limit, own[0], own[-1]) else [])]
    low, high = Fraction(min(shown)), Fraction(max(shown))

    def x(value: Fraction | int) -> Fraction:
        return EDGE + (1 - 2 * EDGE) * (Fraction(value) - low) / (high - low) if high > low else Fraction(1, 2)

    first, third = percentile(own, 25), percentile(own, 75)
    words = [format_value(value, unit) for value in (own[0], median(own), own[-1])]
    dots = tuple(
        Dot(percent(x(v)), n % ROWS, f"window {i + 1}: {format_value(v, unit)}", i == spread["median"])
        for n, (i, v) in enumerate(values)
    )
    said = f"{len(own)} steady windows of {spread['row']}: from {words[0]} to {words[2]}, median {words[1]}"
    marked = next((format_value(v, unit) for i, v in values if i == spread["median"]), "")
    said += f"; the median-indexed window has {marked}" if marked else ""
    return SpreadView(
        row=spread["row"],
        dots=dots,
        box=(percent(x(first)), percent(x(third) - x(first))),
        middle=percent(x(median(own))),
        limit=percent(x(limit)) if limit in shown and limit is not None else "",
        ends=(format_value(low, unit), format_value(high, unit)),
        said=said,
        why="",
    )


def _is_near(limit: Fraction | int, low: Fraction | int, high: Fraction | int) -> bool:
    """Whether the dots are still told apart beside it."""
    room = 3 * max(high - low, abs(Fraction(high)) / 20)
    return low - room <= limit <= high + room
