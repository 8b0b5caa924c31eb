"""How are exact values put together, and how is one stored so that it is read back as it was?

An even count's median is the exact mean of the middle two, a percentile a value that occurred. A whole number is stored
as it is, any other as ``a/b``: in JSON ``123`` or ``"a/b"``, where a column holds text alone ``123`` or ``a/b``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import overload

from pytest_nsys.core.model import Value
from pytest_nsys.core.words import printable


def exact(value: Fraction) -> Value:
    """A whole Fraction as the int that it is."""
    return value.numerator if value.denominator == 1 else value


def median(values: Sequence[Value]) -> Value:
    """The middle value; of an even count the exact mean of the middle two."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return exact(Fraction(ordered[middle - 1] + ordered[middle]) / 2)


def distance(a: Value, b: Value) -> Value:
    """|a − b|, exactly."""
    return a - b if a >= b else b - a


def mean(values: Sequence[Value]) -> Value:
    """The exact mean."""
    return exact(Fraction(sum(values)) / len(values))


def percentile(values: Sequence[Value], percent: int) -> Value:
    """The nearest-rank percentile: the smallest value that ``percent`` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]


def aggregate(word: str) -> Callable[[Sequence[Value]], Value]:
    """The function that a gate file's word names: median, mean, max, min, sum, or pNN."""
    words: dict[str, Callable[[Sequence[Value]], Value]] = {
        "median": median,
        "mean": mean,
        "max": max,
        "min": min,
        "sum": sum,
    }
    if word in words:
        return words[word]
    if re.fullmatch(r"p[1-9]\d?", word):
        return lambda values: percentile(values, int(word[1:]))
    raise ValueError(f"no aggregate is called {word!r}")


Exact = int | str | None
"""A value as JSON has it; None where there is none."""

_TEXT = re.compile(r"(-?[0-9]{1,400})(?:/([1-9][0-9]{0,400}))?")


@overload
def as_exact(value: Value) -> int | str: ...
@overload
def as_exact(value: Value | None) -> Exact: ...
def as_exact(value: Value | None) -> Exact:
    """The value as JSON has it."""
    return value if value is None or isinstance(value, int) else f"{value.numerator}/{value.denominator}"


def exact_text(value: Value | None) -> str | None:
    """The value as text has it."""
    return None if value is None else str(value)


def exact_value(stored: object) -> Value:
    """The value that :func:`as_exact` or :func:`exact_text` wrote, of what may be anything. Raises ValueError."""
    if isinstance(stored, int) and not isinstance(stored, bool):
        return stored
    match = _TEXT.fullmatch(stored) if isinstance(stored, str) else None
    if match is None:
        raise ValueError(f'{printable(repr(stored), 60)} is not a value: write a whole number or "a/b"')
    return exact(Fraction(int(match[1]), int(match[2] or 1)))
