"""Beyond what value does Student's t lie once in so many times? Exact for whole degrees of freedom, without SciPy.

The distribution has a closed form for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4). The quantile
is rounded up at the third digit, so that it is the same fraction on every machine.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

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
