"""How does a value move over time, drawn: a sparkline for a terminal, an SVG for everywhere else.

An SVG stands alone (no script, no font, nothing fetched), follows the reader's light or dark scheme, and has the same
bytes for the same values. Text in it is somebody else's and is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_nsys.core.model import Value, printable
from pytest_nsys.core.statistics import median
from pytest_nsys.core.units import BARE, COUNT, NANOSECONDS, RATIO, TIME, format_value

TICKS = "▁▂▃▄▅▆▇█"
ASCII_TICKS = "_.:-=+*#"
SPARK_WIDTH = 24
"""The newest values that a sparkline shows."""

WIDTH, HEIGHT = 460, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 44, 44
_HEAD = 34
_LONGEST_TITLE = 62

STYLE = """
.plots { font-family: system-ui, sans-serif; font-size: 11px; background: #ffffff; }
.plots .paper { fill: #ffffff; }
.plots text { fill: #1f2328; }
.plots .faint { fill: #59636e; }
.plots .head { font-size: 14px; font-weight: 600; }
.plots .name { font-size: 12px; font-weight: 600; }
.plots .grid { stroke: #d1d9e0; stroke-width: 1; }
.plots .median { stroke: #59636e; stroke-width: 1; stroke-dasharray: 4 3; }
.plots .line { fill: none; stroke: #0969da; stroke-width: 1.5; }
.plots .dot { fill: #0969da; }
@media (prefers-color-scheme: dark) {
  .plots { background: #0d1117; }
  .plots .paper { fill: #0d1117; }
  .plots text { fill: #e6edf3; }
  .plots .faint { fill: #9198a1; }
  .plots .grid { stroke: #30363d; }
  .plots .median { stroke: #9198a1; }
  .plots .line { stroke: #4493f8; }
  .plots .dot { fill: #4493f8; }
}
""".strip()


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


def sparkline(values: Sequence[Value], encoding: str = "utf-8") -> str:
    """The newest values as a line of ticks between their minimum and maximum; ASCII where the encoding lacks them."""
    shown = list(values[-SPARK_WIDTH:])
    if not shown:
        return ""
    ticks = TICKS if _can_write(TICKS, encoding) else ASCII_TICKS
    low, high = Fraction(min(shown)), Fraction(max(shown))
    if low == high:
        return ticks[len(ticks) // 2 - 1] * len(shown)
    top = len(ticks) - 1
    return "".join(ticks[int((Fraction(v) - low) * top / (high - low) + Fraction(1, 2))] for v in shown)


def _can_write(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeError, LookupError):
        return False
    return True


def svg(title: str, panels: Sequence[Panel]) -> str:
    """One plot, or small multiples of two columns."""
    columns = 1 if len(panels) == 1 else 2
    rows = -(-len(panels) // columns)
    width, height = WIDTH * columns, _HEAD + HEIGHT * rows
    said = f"{title}: " + "; ".join(_in_words(panel) for panel in panels)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plots" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-labelledby="plots-title plots-said">',
        f'<title id="plots-title">{_text(title)}</title>',
        f'<desc id="plots-said">{_text(said, 4000)}</desc>',
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
        f'<text class="head" x="12" y="22">{_text(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        x, y = WIDTH * (number % columns), _HEAD + HEIGHT * (number // columns)
        lines += [f'<g transform="translate({x} {y})">', *_panel(panel), "</g>"]
    return "\n".join([*lines, "</svg>"]) + "\n"


def panel_svg(panel: Panel, ident: str) -> str:
    """One plot for a page, which has the style; ``ident`` tells it from others of the page."""
    return "\n".join(
        [
            f'<svg class="plots" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{_text(ident)}">',
            f'<title id="{_text(ident)}">{_text(_in_words(panel), 4000)}</title>',
            *_panel(panel),
            "</svg>",
        ]
    )


def _in_words(panel: Panel) -> str:
    first, last = (format_value(point.value, panel.unit) for point in (panel.points[0], panel.points[-1]))
    return f"{panel.title}, {len(panel.points)} values from {first} to {last}"


def _panel(panel: Panel) -> list[str]:
    word, scale = _axis([point.value for point in panel.points], panel.unit)
    values = [Fraction(point.value) / scale for point in panel.points]
    ticks = _ticks(min(values), max(values), whole=panel.unit == COUNT)
    low, high = ticks[0], ticks[-1]

    def y(value: Fraction) -> str:
        return _number(_TOP + (high - value) * (HEIGHT - _TOP - _BOTTOM) / (high - low))

    def x(number: int) -> str:
        inner = WIDTH - _LEFT - _RIGHT
        return _number(_LEFT + (Fraction(inner * number, len(values) - 1) if len(values) > 1 else Fraction(inner, 2)))

    middle = _number(Fraction(_TOP + HEIGHT - _BOTTOM, 2))
    name = panel.quantity + (f" in {word}" if word else "")
    lines = [
        f'<text class="name" x="12" y="16"><title>{_text(panel.title)}</title>'
        f"{_text(panel.title, _LONGEST_TITLE)}</text>",
        f'<text class="faint" transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{_text(name)}</text>',
    ]
    for tick in ticks:
        at = y(tick)
        lines.append(f'<line class="grid" x1="{_LEFT}" y1="{at}" x2="{WIDTH - _RIGHT}" y2="{at}"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{at}" dy="0.35em" text-anchor="end">{_short(tick)}</text>')
    if len(values) > 1:
        lines.append(
            f'<text class="faint" x="{WIDTH - _RIGHT}" y="{_TOP - 12}" text-anchor="end">'
            "dashed: median of the runs before the last</text>"
        )
        at = y(Fraction(median(values[:-1])))
        lines.append(
            f'<line class="median" x1="{_LEFT}" y1="{at}" x2="{WIDTH - _RIGHT}" y2="{at}">'
            "<title>median of the runs before the last</title></line>"
        )
        places = " ".join(f"{x(n)},{y(value)}" for n, value in enumerate(values))
        lines.append(f'<polyline class="line" points="{places}"/>')
    for n, (point, value) in enumerate(zip(panel.points, values, strict=True)):
        said = ", ".join(part for part in (point.time, format_value(point.value, panel.unit), point.note) if part)
        lines.append(f'<circle class="dot" cx="{x(n)}" cy="{y(value)}" r="2.5"><title>{_text(said)}</title></circle>')
    return lines + _time_axis(panel.points)


def _time_axis(points: Sequence[Point]) -> list[str]:
    below = HEIGHT - _BOTTOM + 16
    center = _number(Fraction(_LEFT + WIDTH - _RIGHT, 2))
    lines = [f'<text class="faint" x="{center}" y="{below + 16}" text-anchor="middle">run, oldest first (UTC)</text>']
    if len(points) == 1:
        return [*lines, f'<text x="{center}" y="{below}" text-anchor="middle">{_text(points[0].time)}</text>']
    return [
        *lines,
        f'<text x="{_LEFT}" y="{below}">{_text(points[0].time)}</text>',
        f'<text x="{WIDTH - _RIGHT}" y="{below}" text-anchor="end">{_text(points[-1].time)}</text>',
    ]


def _axis(values: Sequence[Value], unit: str) -> tuple[str, Fraction]:
    """The unit that the axis counts in, and how much of the metric's own unit it is."""
    if unit == TIME:
        largest = max(abs(Fraction(value)) for value in values)
        word = next((word for word, scale in NANOSECONDS.items() if largest < 10_000 * scale), "s")
        return word, Fraction(NANOSECONDS[word])
    if unit == RATIO:
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


def _text(text: str, limit: int = 200) -> str:
    return html.escape(printable(text, limit))
