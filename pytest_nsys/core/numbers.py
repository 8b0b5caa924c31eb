"""How is a value written for people? Three significant digits, and one unit for values that stand together.

The whole part of a number is never cut, a share is ``0%`` or ``100%`` only where it is exactly that, and two values
that differ look different. What a program reads, JSON and CSV, is exact, and not made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.core.model import Value
from pytest_nsys.core.units import BARE, BYTES, COUNT, HASH, NANOSECONDS, RATIO, SHARES, SIZE, TIME, decimal

# Digits of a number that is not whole.
SIGNIFICANT = 3

# More digits than a column holds: values that still look alike are written exactly.
MOST_TO_TELL_APART = 8

MINUS = "\u2212"
"""The minus sign of all numbers for people."""

# From so many times its baseline on a value is told as a multiple: +900% is harder to read than × 10.
TIMES = 10

_SCALES: Mapping[str, Mapping[str, int]] = {
    TIME: NANOSECONDS,
    SIZE: {unit: BYTES[unit] for unit in (SIZE, "kB", "MB", "GB")},
}
_MOST_DIGITS = 18


class Scale(NamedTuple):
    """Says what values are written in: ``unit`` stands behind each number, of ``size`` of the metric's unit."""

    unit: str
    size: Fraction


def scale_of(values: Iterable[Value | None], unit: str) -> Scale:
    """Choose one scale for values of a metric's ``unit``: the largest gets one to three digits before its point."""
    if unit in SHARES:
        return Scale(unit, Fraction(1, 100))
    largest = max((abs(Fraction(value)) for value in values if value is not None), default=Fraction(0))
    scale = Scale("" if unit in (COUNT, BARE) else unit, Fraction(1))
    for name, size in _SCALES.get(unit, {}).items():
        scale = Scale(name, Fraction(size))
        if Fraction(_rounded(largest / size, SIGNIFICANT)) < 1000:
            break
    return scale


def format_value(value: Value, unit: str = TIME, digits: int = SIGNIFICANT, scale: Scale | None = None) -> str:
    """Format a value for people, a time by default: ``2.71 ms``, ``88%``, ``12``; ``scale`` is that of its table."""
    if unit == HASH:
        return f"{int(value):x}"
    name, size = scale or scale_of([value], unit)
    in_scale = Fraction(value) / size
    while (
        digits < _MOST_DIGITS
        and name in SHARES
        and _rounded(in_scale, digits) in ("0", "100")
        and in_scale not in (0, 100)
    ):
        digits += 1
    text = _rounded(in_scale, digits).replace("-", MINUS)
    return text + name if name in SHARES else f"{text} {name}".rstrip()


def format_together(values: Sequence[Value], unit: str = TIME) -> list[str]:
    """Format values that stand beside each other, in one unit."""
    scale = scale_of(values, unit)
    return [format_value(value, unit, scale=scale) for value in values]


def format_apart(
    a: Value, b: Value, unit: str, scale: Scale | None = None, *, written: bool = False
) -> tuple[str, str]:
    """Format two values in one unit, with as many digits as it takes that they look different; exact where none do.

    ``second_as_written``: somebody wrote ``b`` down, so all its digits are shown, in a unit of its own.
    """
    scale = scale or scale_of([a, b], unit)
    second_scale = scale_of([b], unit) if written else scale
    for digits in range(SIGNIFICANT, MOST_TO_TELL_APART + 1):
        second_digits = MOST_TO_TELL_APART if written else digits
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
    scale = scale or scale_of([low, high], unit)
    texts = [format_value(value, unit, scale=scale) for value in (low, high)]
    if low < 0:
        return f"{texts[0]} to {texts[1]}"
    return f"{texts[0].removesuffix(scale.unit).rstrip()}–{texts[1]}"


def format_signed(value: Value, unit: str = TIME, scale: Scale | None = None) -> str:
    """Format a difference with its sign: ``+2.78 ms``, ``−740 us``; of ratios in percentage points."""
    return ("+" if value > 0 else "") + distance_words(value, unit, scale)


def distance_words(amount: Value, unit: str, scale: Scale | None = None) -> str:
    """Format how far two values are apart: of ratios in percentage points, else in their unit."""
    if unit in SHARES:
        return f"{_rounded(Fraction(amount) * 100, SIGNIFICANT)} pp".replace("-", MINUS)
    return format_value(amount, unit, scale=scale)


def change_words(value: Value | None, baseline: Value | None, unit: str) -> str:
    """Format how far a value is from its baseline: relative, or in percentage points for a ratio."""
    if value is None:
        return "gone"
    if baseline is None:
        return "new"
    difference = Fraction(value) - baseline
    if unit == HASH:
        return "differs" if difference else "none"
    if unit in SHARES or baseline == 0:
        return format_signed(difference, unit)
    share = difference / abs(Fraction(baseline))
    if share + 1 >= TIMES:
        return f"× {_rounded(share + 1, SIGNIFICANT)}"
    return f"{'+' if share > 0 else ''}{percent(share)}"


def percent(share: Value, digits: int = SIGNIFICANT) -> str:
    """Format a share, from 0 to 1, in percent."""
    return format_value(share, RATIO, digits)


def share_of(part: int, whole: int) -> str:
    """Format how much of a whole a part is, in percent."""
    return percent(Fraction(part, whole))


def _rounded(value: Fraction, digits: int) -> str:
    """Round a value to that many significant digits, its whole part never cut."""
    size = abs(value)
    whole = len(str(int(size))) if size >= 1 else 0
    if not whole and size:
        while size * 10 < 1 and whole > -_MOST_DIGITS:  # each zero behind the point is one more decimal
            size, whole = size * 10, whole - 1
    return decimal(value, max(0, digits - whole))
