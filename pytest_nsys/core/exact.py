"""How are exact values combined, and how is one stored so that it is read back unchanged?

The median of an even count is the exact mean of the middle two; a percentile is a value that occurred. An integer is
stored as it is, any other value as ``a/b``: in JSON ``123`` or ``"a/b"``, in a text column ``123`` or ``a/b``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import overload

from pytest_nsys.core.model import Value
from pytest_nsys.core.text_format import sanitize_line


def simplify_fraction(value: Fraction) -> Value:
    """Return a whole Fraction as an int, any other as it is."""
    return value.numerator if value.denominator == 1 else value


def median(values: Sequence[Value]) -> Value:
    """Return the middle value; of an even count the exact mean of the middle two."""
    ascending = sorted(values)
    middle = len(ascending) // 2
    if len(ascending) % 2:
        return ascending[middle]
    return simplify_fraction(Fraction(ascending[middle - 1] + ascending[middle]) / 2)


def distance(a: Value, b: Value) -> Value:
    """Return |a − b|, exactly."""
    return a - b if a >= b else b - a


def mean(values: Sequence[Value]) -> Value:
    """Return the exact mean."""
    return simplify_fraction(Fraction(sum(values)) / len(values))


def percentile(values: Sequence[Value], percent: int) -> Value:
    """Return the nearest-rank percentile: the smallest value that at least ``percent`` % of all values do not
    exceed.
    """
    ascending = sorted(values)
    return ascending[max(0, -(-percent * len(ascending) // 100) - 1)]


def resolve_aggregate(word: str) -> Callable[[Sequence[Value]], Value]:
    """Return the function that a gate file's word names: median, mean, max, min, sum, or pNN.

    Raises ValueError for any other word.
    """
    functions: dict[str, Callable[[Sequence[Value]], Value]] = {
        "median": median,
        "mean": mean,
        "max": max,
        "min": min,
        "sum": sum,
    }
    if word in functions:
        return functions[word]
    if re.fullmatch(r"p[1-9]\d?", word):
        return lambda values: percentile(values, int(word[1:]))
    raise ValueError(f"no aggregate is called {word!r}")


ExactJson = int | str | None
"""A value in its JSON form; None if there is none."""

# Bounded digits: int() takes time that grows with the square of the digits, and a stored file may be a stranger's.
_TEXT = re.compile(r"(-?[0-9]{1,400})(?:/([1-9][0-9]{0,400}))?")


@overload
def encode_exact(value: Value) -> int | str: ...
@overload
def encode_exact(value: Value | None) -> ExactJson: ...
def encode_exact(value: Value | None) -> ExactJson:
    """Encode a value for JSON: an integer, or ``"a/b"``."""
    return value if value is None or isinstance(value, int) else f"{value.numerator}/{value.denominator}"


def encode_exact_text(value: Value | None) -> str | None:
    """Encode a value for a text column."""
    return None if value is None else str(value)


def parse_exact(encoded: object) -> Value:
    """Parse the value that :func:`encode_exact` or :func:`encode_exact_text` wrote. Raises ValueError for anything
    else.
    """
    if isinstance(encoded, int) and not isinstance(encoded, bool):
        return encoded
    match = _TEXT.fullmatch(encoded) if isinstance(encoded, str) else None
    if match is None:
        raise ValueError(f'{sanitize_line(repr(encoded), 60)} is not a value: write a whole number or "a/b"')
    return simplify_fraction(Fraction(int(match[1]), int(match[2] or 1)))
