"""How is a value written for people? Three significant digits, and one unit for values that stand together.

The whole part of a number is never cut, a share is ``0%`` or ``100%`` only where it is exactly that, and two
values that differ are told apart. What a program reads, JSON and CSV, is exact, and not made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.core.model import Value
from pytest_nsys.core.units import BARE, BYTES, COUNT, HASH, NANOSECONDS, RATIO, SHARES, SIZE, TIME, decimal

SIGNIFICANT = 3
"""Digits of a number that is not whole."""

MOST_TO_TELL_APART = 8

MINUS = "\u2212"
"""The minus sign of all numbers for people."""

TIMES = 10
"""From so many times its baseline on a value is told as a multiple."""

_SCALES: Mapping[str, Mapping[str, int]] = {
    TIME: NANOSECONDS,
    SIZE: {unit: BYTES[unit] for unit in (SIZE, "kB", "MB", "GB")},
}
_MOST_DIGITS = 18


class Scale(NamedTuple):
    """What values are written in: ``unit`` stands behind each number, which counts ``size`` of the metric's unit."""

    unit: str
    size: Fraction


def scale_of(values: Iterable[Value | None], unit: str) -> Scale:
    """One scale for values of a metric's ``unit``: the largest has one to three digits before its point in it."""
    if unit in SHARES:
        return Scale(unit, Fraction(1, 100))
    largest = max((abs(Fraction(value)) for value in values if value is not None), default=Fraction(0))
    found = Scale("" if unit in (COUNT, BARE) else unit, Fraction(1))
    for name, size in _SCALES.get(unit, {}).items():
        found = Scale(name, Fraction(size))
        if Fraction(_rounded(largest / size, SIGNIFICANT)) < 1000:
            break
    return found


def format_value(value: Value, unit: str = TIME, digits: int = SIGNIFICANT, scale: Scale | None = None) -> str:
    """``value`` for people, a time by default: ``2.71 ms``, ``88%``, ``12``; ``scale`` is that of its table."""
    if unit == HASH:
        return f"{int(value):x}"
    name, size = scale or scale_of([value], unit)
    scaled = Fraction(value) / size
    while (
        digits < _MOST_DIGITS and name in SHARES and _rounded(scaled, digits) in ("0", "100") and scaled not in (0, 100)
    ):
        digits += 1
    text = _rounded(scaled, digits).replace("-", MINUS)
    return text + name if name in SHARES else f"{text} {name}".rstrip()


def format_together(values: Sequence[Value], unit: str = TIME) -> list[str]:
    """Values that stand beside each other, in one unit."""
    scale = scale_of(values, unit)
    return [format_value(value, unit, scale=scale) for value in values]


def format_apart(
    a: Value, b: Value, unit: str, scale: Scale | None = None, *, written: bool = False
) -> tuple[str, str]:
    """Both values for people, in one unit, with as many digits as it takes to tell them apart; exact where none do.

    ``written``: somebody wrote ``b`` down, so all its digits are shown, in a unit of its own.
    """
    scale = scale or scale_of([a, b], unit)
    own = scale_of([b], unit) if written else scale
    for digits in range(SIGNIFICANT, MOST_TO_TELL_APART + 1):
        most = MOST_TO_TELL_APART if written else digits
        texts = format_value(a, unit, most if a == b else digits, scale), format_value(b, unit, most, own)
        if a == b or texts[0] != texts[1]:
            return texts
    exactly = f" {unit}" if unit in _SCALES else ""
    return f"{a}{exactly}", f"{b}{exactly}"


def format_range(low: Value, high: Value, unit: str, scale: Scale | None = None) -> str:
    """Two bounds in one unit, which stands once: ``9–11 ms``."""
    scale = scale or scale_of([low, high], unit)
    texts = [format_value(value, unit, scale=scale) for value in (low, high)]
    if low < 0:
        return f"{texts[0]} to {texts[1]}"
    return f"{texts[0].removesuffix(scale.unit).rstrip()}–{texts[1]}"


def format_signed(value: Value, unit: str = TIME, scale: Scale | None = None) -> str:
    """A difference: ``+2.78 ms``, ``−740 us``; of ratios in percentage points."""
    return ("+" if value > 0 else "") + distance_words(value, unit, scale)


def distance_words(amount: Value, unit: str, scale: Scale | None = None) -> str:
    """How far two values are apart: of ratios in percentage points, else in their unit."""
    if unit in SHARES:
        return f"{_rounded(Fraction(amount) * 100, SIGNIFICANT)} pp".replace("-", MINUS)
    return format_value(amount, unit, scale=scale)


def change_words(value: Value | None, baseline: Value | None, unit: str) -> str:
    """How far a value is from its baseline: relative, or in percentage points for a ratio."""
    if value is None:
        return "gone"
    if baseline is None:
        return "new"
    moved = Fraction(value) - baseline
    if unit == HASH:
        return "differs" if moved else "none"
    if unit in SHARES or baseline == 0:
        return format_signed(moved, unit)
    share = moved / abs(Fraction(baseline))
    if share + 1 >= TIMES:
        return f"× {_rounded(share + 1, SIGNIFICANT)}"
    return f"{'+' if share > 0 else ''}{percent(share)}"


def percent(share: Value, digits: int = SIGNIFICANT) -> str:
    """A share, from 0 to 1, in percent."""
    return format_value(share, RATIO, digits)


def share_of(part: int, whole: int) -> str:
    """How much of something a part is, in percent."""
    return percent(Fraction(part, whole))


def _rounded(value: Fraction, digits: int) -> str:
    """``value`` to that many significant digits, its whole part never cut."""
    size = abs(value)
    whole = len(str(int(size))) if size >= 1 else 0
    if not whole and size:
        while size * 10 < 1 and whole > -_MOST_DIGITS:  # each zero behind the point is one more decimal
            size, whole = size * 10, whole - 1
    return decimal(value, max(0, digits - whole))
