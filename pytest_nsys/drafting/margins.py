"""How far from what was measured does a limit stand?

The spread over captures says it. Of one capture nothing is known about the noise, so the margin is a guess: 5% of a
time, 10% of one that moves more, 5 points of a ratio; the built-in gate of ``compare`` has the same. Of two or three
captures it is three times their range, from four on the prediction bound of a new trace. Either way it is 2%, or 2
points, at least, so that a lucky set of captures does not make a gate that flakes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import ceil, floor

from pytest_nsys.core.exact import distance
from pytest_nsys.core.model import Value
from pytest_nsys.gates.noise import FEWEST_RUNS, compute_noise_bound

# Nothing is known about the noise of one capture; the built-in gate of ``compare`` has the same.
GUESSED_MARGIN = Fraction(5, 100)
# The guess of a time that is the rest of something else, or waits for others.
ROUGH_MARGIN = Fraction(10, 100)

# A lucky set of captures, which differ by less, would make a gate that flakes.
MIN_MARGIN = Fraction(2, 100)
# Times the range of two or three captures.
RANGE_FACTOR = 3

# By which captures of one program differ in the length of their steps, and which a gate on it forgives: of more they
# are captures of different programs, or one is a hiccup, and a gate that forgives it sees nothing.
MAX_STEP_MARGIN = Fraction(10, 100)

# Times that differ by less are taken for equal, where the window is long enough for that.
MAX_ABSOLUTE_NS = 50_000


def choose_absolute_ns(window_ns: Value) -> int:
    """Choose the ``abs`` of times: under 1% of the window, so that a short one is not all tolerance; 1, 2 or 5 and
    zeros.
    """
    max_ns = min(MAX_ABSOLUTE_NS, int(window_ns) // 100)
    steps = [number * 10**zeros for zeros in range(5) for number in (1, 2, 5)]
    return max([step for step in steps if step <= max_ns], default=1)


def format_ns(time_ns: int) -> str:
    """Format a time as a gate file has it: ``50us``, ``200ns``."""
    return f"{time_ns // 1000}us" if time_ns % 1000 == 0 else f"{time_ns}ns"


def estimate_noise(captures: Sequence[Value], row_count: int) -> Value | None:
    """Estimate how far one more capture may be from the median of these; None where there is one only."""
    if len(captures) >= FEWEST_RUNS:
        return compute_noise_bound(captures, row_count=row_count)
    return RANGE_FACTOR * (max(captures) - min(captures)) if len(captures) > 1 else None


def choose_relative_margin(
    rows: Sequence[Sequence[Value]], absolute: Value = 0, guess: Fraction = GUESSED_MARGIN
) -> Fraction:
    """Choose the share of a baseline that lets every row of these captures pass again, in whole percent.

    ``rows`` hold the captures of each row; amounts up to ``absolute`` are left to the tolerance's ``abs``.
    """
    noises = _estimate_noises(rows)
    if noises is None:
        return guess
    medians = (sorted(captures)[len(captures) // 2] for captures in rows)
    shares = (noise / abs(Fraction(m)) for noise, m in zip(noises, medians, strict=True) if noise > absolute and m)
    return Fraction(ceil(100 * max([MIN_MARGIN, *shares])), 100)


def choose_points_margin(rows: Sequence[Sequence[Value]]) -> Fraction:
    """Choose the distance of a ratio that lets every row of these captures pass again, as a plain fraction."""
    noises = _estimate_noises(rows)
    return GUESSED_MARGIN if noises is None else max([MIN_MARGIN, *noises])


def find_far_captures(values: Sequence[Value]) -> list[int]:
    """Return the places of what is over ``MAX_STEP_MARGIN`` from the lower median of all, of two from the first."""
    if not values:
        return []
    lower_median = values[0] if len(values) == 2 else sorted(values)[(len(values) - 1) // 2]
    return [
        place for place, value in enumerate(values) if distance(value, lower_median) > MAX_STEP_MARGIN * lower_median
    ]


def _estimate_noises(rows: Sequence[Sequence[Value]]) -> list[Fraction] | None:
    """Estimate how far one more capture of each row may be from its median; None where some row has one only."""
    noises = [estimate_noise(captures, len(rows)) for captures in rows]
    return None if None in noises else [Fraction(noise) for noise in noises if noise is not None]


def round_percent_below(values: Iterable[Value], margin: Fraction) -> int:
    """Round down to the whole percentage that the least of some ratios exceeds by ``margin`` at least."""
    return floor(100 * (Fraction(min(values)) - margin))


def round_hundredths_above(value: Value, margin: Fraction) -> Fraction:
    """Round up to the bare ratio in hundredths that lies ``margin`` above ``value`` at least."""
    return Fraction(ceil(100 * (Fraction(value) + margin)), 100)
