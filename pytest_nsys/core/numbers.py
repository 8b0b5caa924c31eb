"""How is a value written for people? Three significant digits, and one unit for values that stand together.

The whole part of a number is never cut, a share is ``0%`` or ``100%`` only where it is exactly that, and two values
that differ look different. What a program reads, JSON and CSV, is exact, and not made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.core.model import Value
from pytest_nsys.core.units import BARE, BYTES, COUNT, HASH, NANOSECONDS, RATIO, SHARE_UNITS, SIZE, TIME, format_decimal

# Digits of a number that is not whole.
SIGNIFICANT_DIGITS = 3

# More digits than a column holds: values that still look alike are written exactly.
MAX_DISTINGUISHING_DIGITS = 8

MINUS = "\u2212"
"""The minus sign of all numbers for people."""

# From so many times its baseline on a value is told as a multiple: +900% is harder to read than × 10.
MULTIPLE_FROM = 10

_SCALES: Mapping[str, Mapping[str, int]] = {
    TIME: NANOSECONDS,
    SIZE: {unit: BYTES[unit] for unit in (SIZE, "kB", "MB", "GB")},
}
_MAX_DECIMALS = 18


class Scale(NamedTuple):
    """Says what values are written in: ``unit`` stands behind each number, of ``size`` of the metric's unit."""

    unit: str
    size: Fraction


def choose_scale(values: Iterable[Value | None], unit: str) -> Scale:
    """Choose one scale for values of a metric's ``unit``: the largest gets one to three digits before its point."""
    if unit in SHARE_UNITS:
        return Scale(unit, Fraction(1, 100))
    largest = max((abs(Fraction(value)) for value in values if value is not None), default=Fraction(0))
    scale = Scale("" if unit in (COUNT, BARE) else unit, Fraction(1))
    for name, size in _SCALES.get(unit, {}).items():
        scale = Scale(name, Fraction(size))
        if Fraction(_round_significant(largest / size, SIGNIFICANT_DIGITS)) < 1000:
            break
    return scale


def format_value(value: Value, unit: str = TIME, digits: int = SIGNIFICANT_DIGITS, scale: Scale | None = None) -> str:
    """Format a value for people, a time by default: ``2.71 ms``, ``88%``, ``12``; ``scale`` is that of its table."""
    if unit == HASH:
        return f"{int(value):x}"
    name, size = scale or choose_scale([value], unit)
    in_scale = Fraction(value) / size
    while (
        digits < _MAX_DECIMALS
        and name in SHARE_UNITS
        and _round_significant(in_scale, digits) in ("0", "100")
        and in_scale not in (0, 100)
    ):
        digits += 1
    text = _round_significant(in_scale, digits).replace("-", MINUS)
    return text + name if name in SHARE_UNITS else f"{text} {name}".rstrip()


def format_in_one_unit(values: Sequence[Value], unit: str = TIME) -> list[str]:
    """Format values that stand beside each other, in one unit."""
    scale = choose_scale(values, unit)
    return [format_value(value, unit, scale=scale) for value in values]


def format_distinctly(
    a: Value, b: Value, unit: str, scale: Scale | None = None, *, second_as_written: bool = False
) -> tuple[str, str]:
    """Format two values in one unit, with as many digits as it takes that they look different; exact where none do.

    ``second_as_written``: somebody wrote ``b`` down, so all its digits are shown, in a unit of its own.
    """
    scale = scale or choose_scale([a, b], unit)
    second_scale = choose_scale([b], unit) if second_as_written else scale
    for digits in range(SIGNIFICANT_DIGITS, MAX_DISTINGUISHING_DIGITS + 1):
        second_digits = MAX_DISTINGUISHING_DIGITS if second_as_written else digits
        texts = (
            format_value(a, unit, second_digits if a == b else digits, scale),
            format_value(b, unit, second_digits, second_scale),
        )
        if a == b or texts[0] != texts[1]:
            return texts
    unit_suffix = f" {unit}" if unit in _SCALES else ""
    return f"{a}{unit_suffix}", f"{b}{unit_suffix}"


def format_range(low: Value, high: Value, unit: str, scale: Scale | None = None) -> str:
    """Format two bounds in one unit, which stands once: ``9–11 ms``."""
    scale = scale or choose_scale([low, high], unit)
    texts = [format_value(value, unit, scale=scale) for value in (low, high)]
    if low < 0:
        return f"{texts[0]} to {texts[1]}"
    return f"{texts[0].removesuffix(scale.unit).rstrip()}–{texts[1]}"


def format_signed(value: Value, unit: str = TIME, scale: Scale | None = None) -> str:
    """Format a difference with its sign: ``+2.78 ms``, ``−740 us``; of ratios in percentage points."""
    return ("+" if value > 0 else "") + format_distance(value, unit, scale)


def format_distance(amount: Value, unit: str, scale: Scale | None = None) -> str:
    """Format how far two values are apart: of ratios in percentage points, else in their unit."""
    if unit in SHARE_UNITS:
        return f"{_round_significant(Fraction(amount) * 100, SIGNIFICANT_DIGITS)} pp".replace("-", MINUS)
    return format_value(amount, unit, scale=scale)


def format_change(value: Value | None, baseline: Value | None, unit: str) -> str:
    """Format how far a value is from its baseline: relative, or in percentage points for a ratio."""
    if value is None:
        return "gone"
    if baseline is None:
        return "new"
    difference = Fraction(value) - baseline
    if unit == HASH:
        return "differs" if difference else "none"
    if unit in SHARE_UNITS or baseline == 0:
        return format_signed(difference, unit)
    share = difference / abs(Fraction(baseline))
    if share + 1 >= MULTIPLE_FROM:
        return f"× {_round_significant(share + 1, SIGNIFICANT_DIGITS)}"
    return f"{'+' if share > 0 else ''}{format_percent(share)}"


def format_percent(share: Value, digits: int = SIGNIFICANT_DIGITS) -> str:
    """Format a share, from 0 to 1, in percent."""
    return format_value(share, RATIO, digits)


def format_percent_of(part: int, whole: int) -> str:
    """Format how much of a whole a part is, in percent."""
    return format_percent(Fraction(part, whole))


def _round_significant(value: Fraction, digits: int) -> str:
    """Round a value to that many significant digits, its whole part never cut."""
    size = abs(value)
    whole = len(str(int(size))) if size >= 1 else 0
    if not whole and size:
        while size * 10 < 1 and whole > -_MAX_DECIMALS:  # each zero behind the point is one more decimal
            size, whole = size * 10, whole - 1
    return format_decimal(value, max(0, digits - whole))
