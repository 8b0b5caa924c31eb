"""How far from the measured value is a drafted limit?

The spread over captures decides. One capture says nothing about the noise, so the margin is a guess, as in the built-in
gate of ``compare``: 5% of a time, 10% of a time that varies more, 5 points of a ratio. For two or three captures the
margin is three times their range; for four or more it is the prediction bound of a new trace. It is at least 2%, or 2
points, so that captures that agree by luck do not make a flaky gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import ceil, floor

from pytest_nsys.core.exact import distance
from pytest_nsys.core.model import Value
from pytest_nsys.gates.noise import FEWEST_RUNS, compute_noise_bound

# Of one capture the noise is unknown; the built-in gate of ``compare`` uses the same guess.
GUESSED_MARGIN = Fraction(5, 100)
# The guess for times that vary more: remainders of other times, and waits for other ranks.
ROUGH_MARGIN = Fraction(10, 100)

# Captures that differ by less do so by luck, and would make a flaky gate.
MIN_MARGIN = Fraction(2, 100)
# The margin of two or three captures, in units of their range.
RANGE_FACTOR = 3

# The most that captures of one program differ in step time, and that a drafted gate tolerates. If they differ by more,
# the programs differ or one capture is a hiccup, and a gate that tolerated that would see nothing.
MAX_STEP_MARGIN = Fraction(10, 100)

# Times that differ by less count as equal, if the window is long enough.
MAX_ABSOLUTE_NS = 50_000


def choose_absolute_ns(window_ns: Value) -> int:
    """Choose the ``abs`` tolerance of times, in ns: at most 1% of the window, so that short windows stay gated. It is
    1, 2 or 5 times a power of ten.
    """
    max_ns = min(MAX_ABSOLUTE_NS, int(window_ns) // 100)
    steps = [number * 10**zeros for zeros in range(5) for number in (1, 2, 5)]
    return max([step for step in steps if step <= max_ns], default=1)


def format_ns(time_ns: int) -> str:
    """Format a time in gate-file syntax: ``50us``, ``200ns``."""
    return f"{time_ns // 1000}us" if time_ns % 1000 == 0 else f"{time_ns}ns"


def estimate_noise(captures: Sequence[Value], row_count: int) -> Value | None:
    """Estimate how far another capture may be from the median of ``captures``, in their unit; None for a single one."""
    if len(captures) >= FEWEST_RUNS:
        return compute_noise_bound(captures, row_count=row_count)
    return RANGE_FACTOR * (max(captures) - min(captures)) if len(captures) > 1 else None


def choose_relative_margin(
    rows: Sequence[Sequence[Value]], absolute: Value = 0, guess: Fraction = GUESSED_MARGIN
) -> Fraction:
    """Choose the relative tolerance that lets every row of these captures pass again: a fraction of the baseline,
    rounded up to whole percent.

    ``rows`` hold the values of each row, one for each capture. Noise up to ``absolute`` is left to the ``abs``
    tolerance; ``guess`` is returned for a single capture.
    """
    noises = _estimate_noises(rows)
    if noises is None:
        return guess
    medians = (sorted(captures)[len(captures) // 2] for captures in rows)
    shares = (noise / abs(Fraction(m)) for noise, m in zip(noises, medians, strict=True) if noise > absolute and m)
    return Fraction(ceil(100 * max([MIN_MARGIN, *shares])), 100)


def choose_points_margin(rows: Sequence[Sequence[Value]]) -> Fraction:
    """Choose the distance from a measured ratio that lets every row of these captures pass again, as a plain fraction:
    0.05 is 5 points.
    """
    noises = _estimate_noises(rows)
    return GUESSED_MARGIN if noises is None else max([MIN_MARGIN, *noises])


def find_far_captures(values: Sequence[Value]) -> list[int]:
    """Return the places of values more than ``MAX_STEP_MARGIN`` from the lower median; of two, from the first."""
    if not values:
        return []
    lower_median = values[0] if len(values) == 2 else sorted(values)[(len(values) - 1) // 2]
    return [
        place for place, value in enumerate(values) if distance(value, lower_median) > MAX_STEP_MARGIN * lower_median
    ]


def _estimate_noises(rows: Sequence[Sequence[Value]]) -> list[Fraction] | None:
    """Estimate for each row how far another capture may be from its median; None if some row has a single capture."""
    noises = [estimate_noise(captures, len(rows)) for captures in rows]
    return None if None in noises else [Fraction(noise) for noise in noises if noise is not None]


def round_percent_below(values: Iterable[Value], margin: Fraction) -> int:
    """Return the largest whole percentage that is at least ``margin`` (a plain fraction) below the smallest ratio."""
    return floor(100 * (Fraction(min(values)) - margin))


def round_hundredths_above(value: Value, margin: Fraction) -> Fraction:
    """Return the smallest ratio in whole hundredths that is at least ``margin`` above ``value``."""
    return Fraction(ceil(100 * (Fraction(value) + margin)), 100)
