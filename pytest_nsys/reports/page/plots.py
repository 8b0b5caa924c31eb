"""How is a value drawn over time: as a sparkline for a terminal, as an SVG for a page?

The SVG has no script or font, fetches nothing, and has the same bytes for the same values; its style is in the page.
Its texts come from traces and gate files, and are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import can_encode, sanitize_line
from pytest_nsys.core.units import BARE, COUNT, NANOSECONDS, RATIO, SHARE_UNITS, TIME
from pytest_nsys.reports.page.templating import load_template
from pytest_nsys.reports.words.trend import Trend, TrendPoint, describe_shift

TICKS = "▁▂▃▄▅▆▇█"
ASCII_TICKS = "_.:-=+*#"
SPARK_WIDTH = 24
"""A sparkline shows this many of the newest values."""

WIDTH, HEIGHT = 460, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 16, 26, 24
_LONGEST_TITLE = 62
_MARGIN = Fraction(6, 100)
"""The share of the plot's height that is free above and below the axis, so that no dot is cut off."""


def render_sparkline(values: Sequence[Value], encoding: str = "utf-8", ends: tuple[Value, Value] | None = None) -> str:
    """Return the newest values as a line of characters whose height shows the value between ``ends`` (default: their
    minimum and maximum).

    The characters are ASCII if ``encoding`` lacks block characters; without values the line is empty.
    """
    newest_values = list(values[-SPARK_WIDTH:])
    if not newest_values:
        return ""
    ticks = TICKS if can_encode(TICKS, encoding) else ASCII_TICKS
    low, high = (Fraction(end) for end in ends or (min(newest_values), max(newest_values)))
    # Equal values give a level line at half height.
    if low == high:
        return ticks[len(ticks) // 2 - 1] * len(newest_values)
    top = len(ticks) - 1
    return "".join(ticks[int((Fraction(value) - low) * top / (high - low) + Fraction(1, 2))] for value in newest_values)


def render_trend_svg(trend: Trend, ident: str) -> str:
    """Return one plot as SVG; ``ident`` makes its identifiers unique in the page."""
    box = {"left": _LEFT, "right": WIDTH - _RIGHT, "top": _TOP, "bottom": HEIGHT - _BOTTOM, "width": WIDTH}
    description = sanitize_line(_describe_trend(trend), 4000)
    plot_data = _build_plot_data(trend)
    return (
        load_template("plots.svg.j2")
        .render(said=description, p=plot_data, box={**box, "height": HEIGHT}, ident=ident)
        .rstrip()
    )


def _describe_trend(trend: Trend) -> str:
    first, last = (format_value(moment.value, trend.unit) for moment in (trend.points[0], trend.points[-1]))
    shift_text = "".join(f"; {describe_shift(trend, shift)}" for shift in trend.shifts)
    return f"{trend.title}, {len(trend.points)} values from {first} to {last}{shift_text}"


def _build_plot_data(trend: Trend) -> dict[str, Any]:
    """Return the template's data for a trend: texts, and formatted coordinates."""
    low, high = Fraction(trend.low), Fraction(trend.high)
    plot_width, plot_height, points = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM, trend.points

    def locate_y(value: Value) -> Fraction:
        offset = (high - Fraction(value)) / (high - low)
        return _TOP + plot_height * (_MARGIN + (1 - 2 * _MARGIN) * offset)

    def locate_x(n: int) -> Fraction:
        return _LEFT + (Fraction(plot_width * n, len(points) - 1) if len(points) > 1 else Fraction(plot_width, 2))

    unit_text, scale = _choose_axis_unit([low, high, *trend.values], trend.unit)
    ticks = _list_value_ticks(low / scale, high / scale, whole_numbers=trend.unit == COUNT)
    limits = [(n, locate_y(limit)) for n, limit in enumerate(_fill_limits(points)) if limit is not None]
    visible_limits = [(n, height) for n, height in limits if _TOP <= height <= HEIGHT - _BOTTOM]
    return {
        "title": sanitize_line(trend.title),
        "short": sanitize_line(trend.title, _LONGEST_TITLE),
        "ticks": [(_format_coordinate(locate_y(tick * scale)), _format_decimal(tick) + unit_text) for tick in ticks],
        "limit": _draw_level_lines(
            [(locate_x(n), height) for n, height in visible_limits], Fraction(plot_width, 2 * max(len(points) - 1, 1))
        ),
        "shifts": [
            (_format_coordinate(locate_x(shift.position)), sanitize_line(describe_shift(trend, shift)))
            for shift in trend.shifts
        ],
        "accepted": [
            (_format_coordinate(locate_x(n)), _describe_acceptance(point))
            for n, point in enumerate(points)
            if point.acceptance_reason is not None
        ],
        "dots": [
            (_format_coordinate(locate_x(n)), _format_coordinate(locate_y(point.value)), _describe_point(point, trend))
            for n, point in enumerate(points)
        ],
        "first": sanitize_line(points[0].time) if len(points) > 1 else "",
        "last": sanitize_line(points[-1].time),
    }


def _fill_limits(points: Sequence[TrendPoint]) -> list[Value | None]:
    """Return the limit of each run. A run without a limit gets that of the next run with one; after the last, that of
    the last.
    """
    filled: list[Value | None] = []
    later_limit = next((point.limit for point in reversed(points) if point.limit is not None), None)
    for point in reversed(points):
        later_limit = point.limit if point.limit is not None else later_limit
        filled.append(later_limit)
    return filled[::-1]


def _describe_point(point: TrendPoint, trend: Trend) -> str:
    limit = f"limit {format_value(point.limit, trend.unit)}" if point.limit is not None else ""
    return sanitize_line(
        ", ".join(filter(None, (point.time, format_value(point.value, trend.unit), limit, point.commit)))
    )


def _describe_acceptance(point: TrendPoint) -> str:
    return sanitize_line(f"accepted at {point.run_text}: {point.acceptance_reason}", 400)


MAX_TREND_NOTES = 3


def list_trend_notes(trend: Trend) -> list[str]:
    """Return the newest shifts and acceptances and the current limit in words, because a touch screen has no
    hovering.
    """
    shift_lines = [f"moved {describe_shift(trend, shift)}" for shift in trend.shifts[-MAX_TREND_NOTES:]]
    acceptance_lines = [_describe_acceptance(point) for point in trend.points if point.acceptance_reason is not None][
        -MAX_TREND_NOTES:
    ]
    limit = trend.points[-1].limit
    limit_lines = (
        [] if limit is None else [f"limit {format_value(limit, trend.unit)}{_describe_limit_outside(trend, limit)}"]
    )
    return [sanitize_line(line, 400) for line in (*reversed(shift_lines), *reversed(acceptance_lines), *limit_lines)]


def _describe_limit_outside(trend: Trend, limit: Value) -> str:
    room = (Fraction(trend.high) - Fraction(trend.low)) * _MARGIN
    if limit > trend.high + room:
        return ", above the picture"
    return ", below the picture" if limit < trend.low - room else ""


def _draw_level_lines(points: Iterable[tuple[Fraction, Fraction]], half_width: Fraction) -> str:
    """Return the path of a horizontal line through each point, ``half_width`` to either side, clipped to the plot."""
    ends = ((max(x - half_width, Fraction(_LEFT)), min(x + half_width, Fraction(WIDTH - _RIGHT)), y) for x, y in points)
    return "".join(
        f"M{_format_coordinate(start)} {_format_coordinate(y)}H{_format_coordinate(end)}" for start, end, y in ends
    )


def _choose_axis_unit(values: Sequence[Value], unit: str) -> tuple[str, Fraction]:
    """Return the unit of the axis, as written after a number, and its size in the metric's own unit."""
    if unit == TIME:
        largest = max(abs(Fraction(value)) for value in values)
        # Take the smallest unit in which numbers have at most four digits before the point.
        unit_name = next((unit_name for unit_name, scale in NANOSECONDS.items() if largest < 10_000 * scale), "s")
        return f" {unit_name}", Fraction(NANOSECONDS[unit_name])
    if unit in SHARE_UNITS:
        return RATIO, Fraction(1, 100)
    return ("" if unit in (BARE, COUNT) else f" {unit}"), Fraction(1)


def _list_value_ticks(low: Fraction, high: Fraction, *, whole_numbers: bool = False) -> list[Fraction]:
    """Return a few round numbers between ``low`` and ``high``; only integers if ``whole_numbers``."""
    step = Fraction(1)
    while step > (high - low) / 4 and not whole_numbers:
        step /= 10
    while step * 10 <= (high - low) / 4:
        step *= 10
    # Ticks are multiples of 1, 2 or 5 times a power of ten.
    step *= next(factor for factor in (1, 2, 5, 10) if step * factor * 4 >= high - low)
    return [step * n for n in range(-int(-low // step), int(high // step) + 1)]


def _format_decimal(value: Fraction) -> str:
    """Return a tick with as many decimals as necessary."""
    decimals = next((n for n in range(19) if (value * 10**n).denominator == 1), 18)
    digits = str(abs(round(value * 10**decimals))).rjust(decimals + 1, "0")
    integer_digits, decimal_digits = digits[: len(digits) - decimals], digits[len(digits) - decimals :]
    return ("-" if value < 0 else "") + integer_digits + (f".{decimal_digits}" if decimal_digits else "")


def _format_coordinate(value: Fraction) -> str:
    """Return a coordinate in pixels, rounded to a tenth."""
    return _format_decimal(Fraction(round(value * 10), 10))
