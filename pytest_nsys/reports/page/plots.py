"""How does a value move over time, drawn: a sparkline for a terminal, an SVG for a page.

The SVG has no script and no font, fetches nothing, and has the same bytes for the same values; the page has its style.
Text in it is somebody else's and is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pytest_nsys.core.exact import median
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import BARE, COUNT, NANOSECONDS, RATIO, SHARES, TIME
from pytest_nsys.core.words import exists_in, printable
from pytest_nsys.reports.page.page import template

TICKS = "▁▂▃▄▅▆▇█"
ASCII_TICKS = "_.:-=+*#"
SPARK_WIDTH = 24
"""The newest values that a sparkline shows."""

WIDTH, HEIGHT = 460, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 44, 44
_LONGEST_TITLE = 62


@dataclass(frozen=True, slots=True)
class Point:
    """A value and what to say of it: when it was measured, at which commit."""

    value: Value
    time: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """The values of one row, oldest first; at least one. ``quantity`` names what the vertical axis counts."""

    title: str
    quantity: str
    unit: str
    points: tuple[Point, ...]


def sparkline(values: Sequence[Value], encoding: str = "utf-8", ends: tuple[Value, Value] | None = None) -> str:
    """The newest values as a line of ticks between ``ends``, by default their minimum and maximum; ASCII where the
    encoding lacks the ticks.
    """
    shown = list(values[-SPARK_WIDTH:])
    if not shown:
        return ""
    ticks = TICKS if exists_in(TICKS, encoding) else ASCII_TICKS
    low, high = (Fraction(end) for end in ends or (min(shown), max(shown)))
    if low == high:
        return ticks[len(ticks) // 2 - 1] * len(shown)
    top = len(ticks) - 1
    return "".join(ticks[int((Fraction(v) - low) * top / (high - low) + Fraction(1, 2))] for v in shown)


def panel_svg(panel: Panel, ident: str) -> str:
    """One plot; ``ident`` tells it from others of the page."""
    box = {"left": _LEFT, "right": WIDTH - _RIGHT, "top": _TOP, "below": HEIGHT - _BOTTOM + 16}
    box |= {"width": WIDTH, "height": HEIGHT}
    said = printable(_in_words(panel), 4000)
    return template("plots.svg.j2").render(said=said, p=_panel(panel), box=box, ident=ident).rstrip()


def _in_words(panel: Panel) -> str:
    first, last = (format_value(point.value, panel.unit) for point in (panel.points[0], panel.points[-1]))
    return f"{panel.title}, {len(panel.points)} values from {first} to {last}"


def _panel(panel: Panel) -> dict[str, Any]:
    """What the template draws of a panel: texts, and coordinates as it writes them."""
    word, scale = _axis([point.value for point in panel.points], panel.unit)
    values = [Fraction(point.value) / scale for point in panel.points]
    ticks = _ticks(min(values), max(values), whole=panel.unit == COUNT)
    low, high = ticks[0], ticks[-1]
    inner = WIDTH - _LEFT - _RIGHT

    def y(value: Fraction) -> str:
        return _number(_TOP + (high - value) * (HEIGHT - _TOP - _BOTTOM) / (high - low))

    def x(n: int) -> str:
        return _number(_LEFT + (Fraction(inner * n, len(values) - 1) if len(values) > 1 else Fraction(inner, 2)))

    said = [
        ", ".join(part for part in (point.time, format_value(point.value, panel.unit), point.note) if part)
        for point in panel.points
    ]
    return {
        "title": printable(panel.title),
        "short": printable(panel.title, _LONGEST_TITLE),
        "axis": printable(panel.quantity + (f" in {word}" if word else "")),
        "middle": _number(Fraction(_TOP + HEIGHT - _BOTTOM, 2)),
        "center": _number(Fraction(_LEFT + WIDTH - _RIGHT, 2)),
        "ticks": [(y(tick), _short(tick)) for tick in ticks],
        "median": y(Fraction(median(values[:-1]))) if len(values) > 1 else "",
        "dots": [(x(n), y(value), printable(said[n])) for n, value in enumerate(values)],
        "first": printable(panel.points[0].time),
        "last": printable(panel.points[-1].time),
    }


def _axis(values: Sequence[Value], unit: str) -> tuple[str, Fraction]:
    """The unit that the axis counts in, and how much of the metric's own unit it is."""
    if unit == TIME:
        largest = max(abs(Fraction(value)) for value in values)
        word = next((word for word, scale in NANOSECONDS.items() if largest < 10_000 * scale), "s")
        return word, Fraction(NANOSECONDS[word])
    if unit in SHARES:
        return RATIO, Fraction(1, 100)
    return ("" if unit == BARE else "count" if unit == COUNT else unit), Fraction(1)


def _ticks(low: Fraction, high: Fraction, *, whole: bool = False) -> list[Fraction]:
    """A few round numbers that enclose the values; ``whole`` numbers where things are counted."""
    if low == high:
        room = Fraction(1) if whole or not low else abs(low) / 10
        low, high = low - room, high + room
    step = Fraction(1)
    while step > (high - low) / 4 and not whole:
        step /= 10
    while step * 10 <= (high - low) / 4:
        step *= 10
    step *= next(factor for factor in (1, 2, 5, 10) if step * factor * 4 >= high - low)
    first, last = low // step, -(-high // step)
    return [step * n for n in range(int(first), int(last) + 1)]


def _short(value: Fraction) -> str:
    """A tick in as many decimals as it takes."""
    decimals = next((n for n in range(19) if (value * 10**n).denominator == 1), 18)
    digits = str(abs(round(value * 10**decimals))).rjust(decimals + 1, "0")
    whole, rest = digits[: len(digits) - decimals], digits[len(digits) - decimals :]
    return ("-" if value < 0 else "") + whole + (f".{rest}" if rest else "")


def _number(value: Fraction) -> str:
    """A coordinate in tenths of a pixel."""
    return _short(Fraction(round(value * 10), 10))
