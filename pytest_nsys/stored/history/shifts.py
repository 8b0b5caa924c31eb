"""At which run did a row move and stay there, beyond what the runs vary by themselves?

Of all ways to cut the runs in two, the one is taken whose sides lie closest around their own medians, and each side is
cut again. A cut counts where the medians beside it differ by more than six times what the runs there vary, over the
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
from pytest_nsys.core.units import SHARE_UNITS

MAX_EXAMINED_RUNS = 100
"""The most runs that are examined: a row then takes milliseconds."""

MIN_EXAMINED_RUNS = 4
"""The fewest runs in which a shift can be distinguished from noise."""

# Six times the noise shows a shift in 2 of 100 rows that do not move; a change counts from 1 %, or 1 pp, on.
_NOISE_FACTOR = 6
_MIN_CHANGE = Fraction(1, 100)
# Factors that make a standard deviation of the median and of the mean distance, for normally distributed values.
_MEDIAN_TO_SIGMA, _MEAN_TO_SIGMA = 1.4826, 1.2533


class Shift(NamedTuple):
    """Describes one shift of a row to another level."""

    position: int  # the first run of the new level
    before: Value  # median back to the previous shift
    after: Value  # median up to the next shift


def find_shifts(values: Sequence[Value], unit: str) -> tuple[Shift, ...]:
    """Find the shifts among the newest runs, oldest first."""
    first = max(0, len(values) - MAX_EXAMINED_RUNS)
    cuts = [
        first,
        *_find_cuts([float(value) for value in values[first:]], unit, first, may_end_alone=True),
        len(values),
    ]
    levels = [median(values[start:end]) for start, end in pairwise(cuts)] if values else []
    return tuple(Shift(cut, *levels_beside) for cut, levels_beside in zip(cuts[1:], pairwise(levels), strict=False))


def _find_cuts(values: Sequence[float], unit: str, first: int, *, may_end_alone: bool) -> list[int]:
    """Find where the runs from ``first`` on are cut; each side has two runs, but the last with ``may_end_alone``."""
    last_cut = len(values) - (0 if may_end_alone else 1)
    if len(values) < MIN_EXAMINED_RUNS or max(values) == min(values) or last_cut <= 2:
        return []
    distances_before, distances_after = _sum_distances(values), _sum_distances(values[::-1])[::-1]
    best_cut = min(range(2, last_cut), key=lambda k: (distances_before[k - 1] + distances_after[k], k))
    earlier_cuts = _find_cuts(values[:best_cut], unit, first, may_end_alone=False)
    later_cuts = _find_cuts(values[best_cut:], unit, first + best_cut, may_end_alone=may_end_alone)
    start, stop = (earlier_cuts or [first])[-1] - first, (later_cuts or [first + len(values)])[0] - first
    own_cuts = [first + best_cut] if _is_shift(values[start:best_cut], values[best_cut:stop], unit) else []
    return [*earlier_cuts, *own_cuts, *later_cuts]


def _sum_distances(values: Sequence[float]) -> list[float]:
    """Return, for each run, the sum of distances of it and all before it from their median."""
    distances, ordered = [], list[float]()
    for value in values:
        bisect.insort(ordered, value)
        middle_value = ordered[len(ordered) // 2]
        distances.append(sum(abs(earlier_value - middle_value) for earlier_value in ordered))
    return distances


def _is_shift(before: Sequence[float], after: Sequence[float], unit: str) -> bool:
    """Return whether the medians of both sides differ by more than noise, and by enough to matter."""
    level_before, level_after = middle(before), middle(after)
    distances = [abs(value - level_before) for value in before] + [abs(value - level_after) for value in after]
    variation = max(_MEDIAN_TO_SIGMA * middle(distances), _MEAN_TO_SIGMA * sum(distances) / (len(distances) - 2))
    noise = _NOISE_FACTOR * variation * math.sqrt(1 / len(before) + 1 / len(after))
    return abs(level_after - level_before) > max(noise, _MIN_CHANGE * (1 if unit in SHARE_UNITS else abs(level_before)))
