"""Exact aggregates: an even count's median is the exact mean of the middle two, a percentile a value that occurred."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from pytest_nsys.core.model import Value


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
