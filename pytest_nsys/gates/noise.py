"""How far does a value move by itself from run to run? The prediction bound of one new trace (R3).

B = t(1 − 0.01/n, ν) · s · √(1 + 1/K): of a hundred gates without any change one exceeds its baseline by more than B in
any of the n rows that it judges together. s² pools the variance of the K accepted runs with that of the calibration,
which counts for ν₀ = 4 degrees of freedom however many traces it had; so few accepted runs do not give a bound of their
own luck.

Student's t has a closed form for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4), so SciPy is not
needed. Its quantile is rounded up at the third digit, so that it is the same fraction on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from fractions import Fraction
from functools import lru_cache
from math import isqrt

from pytest_nsys.core.exact import exact, mean
from pytest_nsys.core.model import Value

_DIGITS = 1000
_HIGHEST = 1e9


def tail(t: float, freedom: int) -> float:
    """P(T > t) for t ≥ 0."""
    theta = math.atan(t / math.sqrt(freedom))
    cosine, sine = math.cos(theta), math.sin(theta)
    odd = freedom % 2
    term, total = (cosine, cosine) if odd else (1.0, 1.0)
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if odd:
        inner = theta + (sine * total if freedom > 1 else 0.0)
        return 0.5 - inner / math.pi
    return 0.5 - sine * total / 2


@lru_cache(maxsize=1024)
def quantile(freedom: int, beyond: Fraction) -> Fraction:
    """The t that is exceeded with probability ``beyond`` (under a half), rounded up at the third digit."""
    low, high = 0.0, 1.0
    while tail(high, freedom) > beyond and high < _HIGHEST:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle, freedom) > beyond else (low, middle)
    return Fraction(math.ceil(round(high * _DIGITS, 6)), _DIGITS)


CALIBRATION_FREEDOM = 4
"""ν₀: what the calibrated noise counts for."""

FEWEST_TRACES = 5
"""Of a calibration: fewer say too little of a variance."""

FEWEST_RUNS = 4
"""Without calibration so many accepted runs are needed before their own variance is a bound."""

_RESOLUTION = 10**9
"""B is rounded up to this part of a unit: a square root is no fraction."""

FALSE_ALARMS = Fraction(1, 100)
"""How often a gate without any change may exceed the bound in one of its rows."""


def bound(
    accepted: Sequence[Value],
    calibration: Sequence[Value] = (),
    among: Container[int] = frozenset(),
    rows: int = 1,
) -> Value | None:
    """B for a row with these values in the accepted runs, in the row's unit; None where the noise is not measured.

    ``among`` are the places of accepted runs that the calibration was made of: they are one sample, not two. ``rows``
    are judged together, of which none may exceed its bound by chance.
    """
    if not calibration and len(accepted) < FEWEST_RUNS:
        return None
    freedom, squares = _spread(accepted, calibration, among)
    squared = quantile(freedom, FALSE_ALARMS / rows) ** 2 * squares / freedom * (1 + Fraction(1, len(accepted)))
    return exact(_root_above(squared))


def _spread(accepted: Sequence[Value], calibration: Sequence[Value], among: Container[int]) -> tuple[int, Fraction]:
    """Degrees of freedom, and the sum of squares that goes with them, of the larger of two honest samples.

    Each value counts once: the calibration with the accepted runs that it was not made of, or the accepted runs alone.
    """
    alone = len(accepted) - 1
    if not calibration:
        return alone, alone * variance(accepted)
    fresh = [value for place, value in enumerate(accepted) if place not in among]
    own = max(0, len(fresh) - 1)
    if alone > own + CALIBRATION_FREEDOM:
        return alone, alone * variance(accepted)
    return own + CALIBRATION_FREEDOM, own * variance(fresh) + CALIBRATION_FREEDOM * variance(calibration)


def variance(values: Sequence[Value]) -> Fraction:
    """The sample variance, exactly; 0 of a single value."""
    if len(values) < 2:
        return Fraction(0)
    middle = Fraction(mean(values))
    return sum(((value - middle) ** 2 for value in values), Fraction(0)) / (len(values) - 1)


def deviation(values: Sequence[Value]) -> Value:
    """The sample standard deviation s, rounded up at the ninth digit."""
    return exact(_root_above(variance(values)))


def _root_above(square: Fraction) -> Fraction:
    """The square root, rounded up to the resolution; 0 of 0."""
    if not square:
        return Fraction(0)
    scaled = -(-square.numerator * _RESOLUTION**2 // square.denominator)
    root = isqrt(scaled)
    return Fraction(root if root * root == scaled else root + 1, _RESOLUTION)
