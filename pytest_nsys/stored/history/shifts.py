"""At which run did a row move, and stay? Told only where the change is beyond what the runs vary by themselves.

Of all ways to cut the runs in two that one is taken whose sides lie closest around their own medians, and each side is
cut again. A cut counts where the medians beside it are apart by more than six times what the runs there vary, over the
root of how many runs each side has, and by 1 % or 1 pp. Of 100 rows that vary by 2 % and do not move, 2 show a shift in
10 to 30 runs, and 7 in 100.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from statistics import median as middle
from typing import NamedTuple

from pytest_nsys.core.exact import median
from pytest_nsys.core.model import Value
from pytest_nsys.core.units import SHARES

NEWEST = 100
"""Runs that are looked at: a row is read in milliseconds."""

FEWEST = 4
"""Of fewer runs none can be told from noise."""

_BEYOND = 6
_LEAST = Fraction(1, 100)
_OF_MEDIAN, _OF_MEAN = 1.4826, 1.2533
"""What makes a standard deviation of the median and of the mean distance."""


class Shift(NamedTuple):
    """``at`` is the first run of the new level, ``before`` and ``after`` are the medians up to the next shifts."""

    at: int
    before: Value
    after: Value


def shifts_of(values: Sequence[Value], unit: str) -> tuple[Shift, ...]:
    """The shifts among the newest runs, oldest first."""
    first = max(0, len(values) - NEWEST)
    cuts = [first, *_cuts([float(value) for value in values[first:]], unit, first, newest=True), len(values)]
    levels = [median(values[start:end]) for start, end in pairwise(cuts)] if values else []
    return tuple(Shift(at, *apart) for at, apart in zip(cuts[1:], pairwise(levels), strict=False))


def _cuts(values: Sequence[float], unit: str, first: int, *, newest: bool) -> list[int]:
    """Where the runs from ``first`` on are cut. A side has two runs; the ``newest`` run of all may stand alone."""
    last = len(values) - (0 if newest else 1)
    if len(values) < FEWEST or max(values) == min(values) or last <= 2:
        return []
    before, after = _distances(values), _distances(values[::-1])[::-1]
    at = min(range(2, last), key=lambda k: (before[k - 1] + after[k], k))
    earlier = _cuts(values[:at], unit, first, newest=False)
    later = _cuts(values[at:], unit, first + at, newest=newest)
    low, high = (earlier or [first])[-1] - first, (later or [first + len(values)])[0] - first
    own = [first + at] if _is_shift(values[low:at], values[at:high], unit) else []
    return [*earlier, *own, *later]


def _distances(values: Sequence[float]) -> list[float]:
    """Of each run and all before it how far they are from their median, together."""
    found, ordered = [], list[float]()
    for value in values:
        bisect.insort(ordered, value)
        own = ordered[len(ordered) // 2]
        found.append(sum(abs(each - own) for each in ordered))
    return found


def _is_shift(before: Sequence[float], after: Sequence[float], unit: str) -> bool:
    low, high = middle(before), middle(after)
    off = [abs(value - low) for value in before] + [abs(value - high) for value in after]
    varies = max(_OF_MEDIAN * middle(off), _OF_MEAN * sum(off) / (len(off) - 2))
    noise = _BEYOND * varies * math.sqrt(1 / len(before) + 1 / len(after))
    return abs(high - low) > max(noise, _LEAST * (1 if unit in SHARES else abs(low)))
