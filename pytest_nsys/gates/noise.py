"""Which change is chance? How far does a value move by itself (R3), and did it get worse between two sets of captures
(R4)?

The prediction bound of one new trace is B = t(1 − 0.01/n, ν) · s · √(1 + 1/K): one in a hundred gates of an unchanged
program exceeds its baseline by more than B in any of the n rows that it judges together. s² pools the variance of the K
accepted runs with that of the calibration, which counts for ν₀ = 4 degrees of freedom however many traces it had; so
the chance variance of few accepted runs does not decide the bound.

Student's t has a closed form for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4), so SciPy is not
needed.

Two sets of captures are compared by the exact rank-sum test, with Holm over all rows of a gate file. One trace is one
sample. With five or more captures on each side a row has moved where its one-sided exact p, corrected for the number of
rows that are tested together, is at most 0.05. With three or four no test can say that; there the two sides must be
completely separated. With one or two no test is possible: the tolerance decides alone, and the label says so. With so
many rows that not even complete separation is significant, a row has moved if its sides are completely separated and
its shift exceeds the noise bound for that many rows: a gate of many rows must be able to fail.

A claim (:func:`decide_claim`) turns the question round: an unchanged program must not show it. It has to hold in every
row, so each row is tested alone.
"""

from __future__ import annotations

import math
from collections.abc import Container, Hashable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb, isqrt
from typing import NamedTuple, TypeVar

from pytest_nsys.core.exact import mean, median, simplify_fraction
from pytest_nsys.core.model import Value

# The quantile of t is rounded up at the third digit, so that it is the same fraction on every machine.
_QUANTILE_PARTS = 1000
_HIGHEST_T = 1e9


def compute_t_tail(t: float, freedom: int) -> float:
    """Return P(T > t) of Student's t with ``freedom`` degrees of freedom, for t ≥ 0."""
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
def compute_t_quantile(freedom: int, tail_probability: Fraction) -> Fraction:
    """Return the t that is exceeded with this probability (under a half), rounded up at the third digit."""
    low, high = 0.0, 1.0
    while compute_t_tail(high, freedom) > tail_probability and high < _HIGHEST_T:
        high *= 2
    for _ in range(80):  # more halvings than a float has bits
        middle = (low + high) / 2
        low, high = (middle, high) if compute_t_tail(middle, freedom) > tail_probability else (low, middle)
    return Fraction(math.ceil(round(high * _QUANTILE_PARTS, 6)), _QUANTILE_PARTS)


CALIBRATION_FREEDOM = 4
"""ν₀: the degrees of freedom that the calibrated noise counts for, however many traces it has."""

FEWEST_TRACES = 5
"""The fewest traces of a calibration: fewer say too little about a variance."""

FEWEST_RUNS = 4
"""The fewest accepted runs whose own variance gives a bound without a calibration."""

# A square root is irrational in general, so it is rounded up.
_RESOLUTION = 10**9
"""Parts of a unit to which B is rounded up."""

FALSE_ALARMS = Fraction(1, 100)
"""How often a gate without any change may exceed the bound in one of its rows."""


def compute_noise_bound(
    accepted: Sequence[Value],
    calibration: Sequence[Value] = (),
    calibrated_places: Container[int] = frozenset(),
    row_count: int = 1,
) -> Value | None:
    """Return B, how far a row may be off by chance, in its unit; None where the noise is not measured.

    ``accepted`` are the values of the row in the accepted runs. ``calibrated_places`` are the places of accepted runs
    that the calibration was made of: the values of such a run count once. ``row_count`` is the number of rows judged
    together, none of which may exceed its bound by chance.
    """
    if not calibration and len(accepted) < FEWEST_RUNS:
        return None
    freedom, squares = _pool_accepted_spread(accepted, calibration, calibrated_places)
    squared_bound = (
        compute_t_quantile(freedom, FALSE_ALARMS / row_count) ** 2
        * squares
        / freedom
        * (1 + Fraction(1, len(accepted)))
    )
    return simplify_fraction(_round_root_up(squared_bound))


def measure_accepted_spread(
    accepted: Sequence[Value], calibration: Sequence[Value], calibrated_places: Container[int]
) -> Fraction | None:
    """Return the variance of a run, as :func:`compute_noise_bound` takes it; None where nothing was measured twice."""
    if not calibration and len(accepted) < 2:
        return None
    freedom, squares = _pool_accepted_spread(accepted, calibration, calibrated_places)
    return squares / freedom


def _pool_accepted_spread(
    accepted: Sequence[Value], calibration: Sequence[Value], calibrated_places: Container[int]
) -> tuple[int, Fraction]:
    """Return the degrees of freedom, and the sum of squared deviations, of the larger of two samples.

    Each value counts once: the calibration with the accepted runs that it was not made of, or the accepted runs alone.
    """
    accepted_freedom = len(accepted) - 1
    if not calibration:
        return accepted_freedom, accepted_freedom * variance(accepted)
    fresh_values = [value for place, value in enumerate(accepted) if place not in calibrated_places]
    fresh_freedom = max(0, len(fresh_values) - 1)
    if accepted_freedom > fresh_freedom + CALIBRATION_FREEDOM:
        return accepted_freedom, accepted_freedom * variance(accepted)
    return fresh_freedom + CALIBRATION_FREEDOM, fresh_freedom * variance(fresh_values) + CALIBRATION_FREEDOM * variance(
        calibration
    )


def variance(values: Sequence[Value]) -> Fraction:
    """Return the sample variance, exactly; 0 of a single value."""
    if len(values) < 2:
        return Fraction(0)
    middle = Fraction(mean(values))
    return sum(((value - middle) ** 2 for value in values), Fraction(0)) / (len(values) - 1)


def sample_deviation(values: Sequence[Value]) -> Value:
    """Return the sample standard deviation s, rounded up at the ninth digit."""
    return simplify_fraction(_round_root_up(variance(values)))


def _round_root_up(square: Fraction) -> Fraction:
    """Return the square root, rounded up to the resolution; 0 of 0."""
    if not square:
        return Fraction(0)
    scaled_square = -(-square.numerator * _RESOLUTION**2 // square.denominator)
    root = isqrt(scaled_square)
    return Fraction(root if root * root == scaled_square else root + 1, _RESOLUTION)


# Between two sets of captures

SIGNIFICANCE_LEVEL = Fraction(1, 20)
FEWEST_FOR_A_TEST = 5  # captures a side: complete separation of 5 + 5 has p = 1/252
FEWEST_FOR_SEPARATION = 3  # of 3 + 3 it has p = 1/20, of fewer more than ALPHA
IMPOSSIBLE = "no test possible"

Key = TypeVar("Key", bound=Hashable)


class Trial(NamedTuple):
    """Holds the values of one row on both sides, one for each capture."""

    before: tuple[Value, ...]
    after: tuple[Value, ...]
    worse_direction: int  # +1 up, −1 down, 0 either way
    left_out: tuple[int, int] = (0, 0)  # number of hiccups left out of each side

    @property
    def captures_text(self) -> str:
        left_out_text = f" ({sum(self.left_out)} left out)" if any(self.left_out) else ""
        return f"{len(self.before)} + {len(self.after)} captures{left_out_text}"


class Decision(NamedTuple):
    """Says whether the captures show that the row moved, to the worse or to the better."""

    is_worse: bool
    is_better: bool
    label: str  # result for this row alone, in a word or two
    basis: str  # the rule by which all rows with as many captures were decided
    noise: Value | None = None  # the largest shift by chance, in the row's unit; None for too few captures
    captures: str = ""  # that decided
    needed_captures: int | None = None  # how many a side would show a claim; None where it is shown, or not known


class _Movement(NamedTuple):
    """Says whether a row moved in the direction that was asked for, with the texts of :class:`Decision`."""

    has_moved: bool
    label: str
    basis: str


def decide_trials(trials: Mapping[Key, Trial]) -> dict[Key, Decision]:
    """Decide for each row whether it moved, corrected for testing all rows of a gate file together."""
    worse_movements = _test_directions({key: (trial, trial.worse_direction) for key, trial in trials.items()})
    better_movements = _test_directions({key: (trial, -trial.worse_direction) for key, trial in trials.items()})
    return {
        key: Decision(
            movement.has_moved,
            better_movements[key].has_moved,
            movement.label,
            movement.basis,
            compute_chance_shift(trials[key], len(trials)),
        )
        for key, movement in worse_movements.items()
    }


def compute_chance_shift(trial: Trial, row_count: int) -> Value | None:
    """Return the shift between both sides, in the row's unit, that one in a hundred unchanged gates of ``row_count``
    rows exceeds in some row.

    None where the captures are too few.
    """
    if not can_test(trial):
        return None
    freedom, spread = _pool_sides(trial)
    return simplify_fraction(_round_root_up(compute_t_quantile(freedom, FALSE_ALARMS / row_count) ** 2 * spread))


def _pool_spread(trial: Trial) -> Fraction | None:
    """Return the variance of a capture of either side; None of one capture a side, which has none."""
    before_count, after_count = len(trial.before), len(trial.after)
    if before_count + after_count <= 2:
        return None
    _, shift_variance = _pool_sides(trial)
    return shift_variance / (Fraction(1, before_count) + Fraction(1, after_count))


def can_test(trial: Trial) -> bool:
    """Whether there are enough captures to tell a change from noise at all."""
    return _count_smaller_side(trial) >= FEWEST_FOR_SEPARATION


CLAIM_ROWS = 2
"""The noise of a claimed row is that of a gate of so many rows: a median of few captures scatters more than their mean,
which the bound is for. So one unchanged row in a hundred is beyond it, in ``tests/benchmarks/claim_simulation.py``.
"""

MOST_NEEDED_CAPTURES = 100
"""More captures a side are not counted: nobody takes them."""

POWER = Fraction(4, 5)
"""How often the captures that :func:`count_needed_captures` names would show a change of that size."""


def decide_claim(trial: Trial) -> Decision:
    """Decide whether the captures show that a row got better, in one unchanged row of a hundred at most.

    Fewer than three a side show nothing. Else the two sides are separated, or the exact p is at most 0.01; and the
    shift is beyond the noise, as outliers of one side can separate it from the other.
    """
    direction, smaller_side, spread = -trial.worse_direction, _count_smaller_side(trial), _pool_spread(trial)
    gain = direction * Fraction(median(trial.after) - median(trial.before))
    needed_captures = (
        None if spread is None or gain <= 0 else count_needed_captures(gain, spread, fewest=smaller_side + 1)
    )
    noise = compute_chance_shift(trial, CLAIM_ROWS)
    if noise is None:
        basis = f"{IMPOSSIBLE} with {trial.captures_text}"
        return Decision(False, False, IMPOSSIBLE, basis, None, trial.captures_text, needed_captures)
    if smaller_side < FEWEST_FOR_A_TEST:
        movement = _decide_by_separation(trial, direction)
    else:
        p = compute_rank_sum_p(trial, direction)
        is_apart = p <= FALSE_ALARMS or _is_separated(trial, direction)
        movement = _Movement(is_apart, f"p {_format_p(p)}", f"exact rank-sum test of {trial.captures_text}")
    is_shown, basis = movement.has_moved and gain > noise, f"{movement.basis}, and a shift beyond the noise"
    return Decision(
        False, is_shown, movement.label, basis, noise, trial.captures_text, None if is_shown else needed_captures
    )


def count_needed_captures(change: Value, spread: Fraction, fewest: int = FEWEST_FOR_SEPARATION) -> int | None:
    """Return how many captures a side would show a change of this size in four of five comparisons, if a capture has
    this variance.

    At least three, and ``fewest``. None where more than ``MOST_NEEDED_CAPTURES`` would.
    """
    for count in range(max(FEWEST_FOR_SEPARATION, fewest), MOST_NEEDED_CAPTURES + 1):
        freedom = 2 * count - 2
        needed_t = compute_t_quantile(freedom, FALSE_ALARMS / CLAIM_ROWS) + compute_t_quantile(freedom, 1 - POWER)
        if Fraction(change) ** 2 >= needed_t**2 * spread * Fraction(2, count):
            return count
    return None


def _count_smaller_side(trial: Trial) -> int:
    """Count the captures of the smaller side, hiccups included: leaving one out does not select a weaker rule."""
    before_left_out, after_left_out = trial.left_out
    return min(len(trial.before) + before_left_out, len(trial.after) + after_left_out)


def _test_directions(directions: Mapping[Key, tuple[Trial, int]]) -> dict[Key, _Movement]:
    """Test whether each row moved in its direction: 1 up, −1 down, 0 either."""
    testable = {key: pair for key, pair in directions.items() if _count_smaller_side(pair[0]) >= FEWEST_FOR_A_TEST}
    corrected_p = correct_by_holm({key: compute_rank_sum_p(*pair) for key, pair in testable.items()})
    movements = {}
    for key, (trial, direction) in directions.items():
        if key not in testable:
            movements[key] = _decide_by_separation(trial, direction)
        elif compute_smallest_p(trial, direction) * len(testable) > SIGNIFICANCE_LEVEL:
            movements[key] = _decide_among_many_rows(trial, direction, len(testable))
        else:
            p = corrected_p[key]
            correction_text = f", Holm over {len(testable)} rows" if len(testable) > 1 else ""
            movements[key] = _Movement(
                p <= SIGNIFICANCE_LEVEL,
                f"p {_format_p(p)}",
                f"exact rank-sum test of {trial.captures_text}{correction_text}",
            )
    return movements


def _format_p(p: Fraction) -> str:
    return f"= {float(p):.2g}" if p >= Fraction(1, 10_000) else "< 0.0001"


def _decide_by_separation(trial: Trial, direction: int) -> _Movement:
    """Decide that a row moved where its two sides are completely separated; or, of too few captures, where no test is
    possible.
    """
    if not can_test(trial):
        is_single = len(trial.before) == len(trial.after) == 1
        reason = ": one trace a side is one sample" if is_single else ""
        return _Movement(True, IMPOSSIBLE, f"{IMPOSSIBLE} with {trial.captures_text}{reason}")
    is_apart = any(_is_separated(trial, way_direction) for way_direction in ((direction,) if direction else (1, -1)))
    return _Movement(is_apart, "separated" if is_apart else "overlap", f"complete separation of {trial.captures_text}")


def _decide_among_many_rows(trial: Trial, direction: int, row_count: int) -> _Movement:
    """Decide that a row moved where its sides are separated, and its shift is beyond the noise of all rows as well.

    Among many rows some are separated by chance. The noise is the bound of Student's t with Bonferroni's correction, on
    the pooled variance of the two sides.
    """
    movement = _decide_by_separation(trial, direction)
    basis = f"{movement.basis} beyond the noise of {row_count} rows"
    if not movement.has_moved:
        return _Movement(False, movement.label, basis)
    freedom, spread = _pool_sides(trial)
    t = compute_t_quantile(freedom, SIGNIFICANCE_LEVEL / row_count / (1 if direction else 2))
    is_beyond_noise = Fraction(median(trial.after) - median(trial.before)) ** 2 > t**2 * spread
    return _Movement(is_beyond_noise, movement.label if is_beyond_noise else f"{movement.label}, within noise", basis)


def _pool_sides(trial: Trial) -> tuple[int, Fraction]:
    """Return the degrees of freedom of both sides together, and the variance of the shift between them."""
    before_count, after_count = len(trial.before), len(trial.after)
    freedom = before_count + after_count - 2
    squares = (before_count - 1) * variance(trial.before) + (after_count - 1) * variance(trial.after)
    return freedom, squares / freedom * (Fraction(1, before_count) + Fraction(1, after_count))


def _is_separated(trial: Trial, direction: int) -> bool:
    if direction > 0:
        return min(trial.after) > max(trial.before)
    return max(trial.after) < min(trial.before)


def compute_rank_sum_p(trial: Trial, direction: int) -> Fraction:
    """Return the exact p of the rank-sum test that ``after`` moved up (+1), down (−1), or either way (0, twice the
    smaller).
    """
    if direction == 0:
        return min(Fraction(1), 2 * min(compute_rank_sum_p(trial, 1), compute_rank_sum_p(trial, -1)))
    values = [*trial.before, *trial.after]
    ranks = _double_ranks([direction * value for value in values])
    observed_sum = sum(ranks[len(trial.before) :])
    counts = _count_rank_sums(tuple(sorted(ranks)), len(trial.after))
    return Fraction(sum(n for total, n in counts if total >= observed_sum), comb(len(values), len(trial.after)))


def compute_smallest_p(trial: Trial, direction: int) -> Fraction:
    """Return the p of complete separation, the smallest p for these numbers of captures."""
    return Fraction(1 if direction else 2, comb(len(trial.before) + len(trial.after), len(trial.after)))


def _double_ranks(values: Sequence[Value]) -> list[int]:
    """Return twice the rank of each value, equal ones at the middle of their places: so they are whole numbers."""
    sorted_values = sorted(values)
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for place, value in enumerate(sorted_values, start=1):
        first.setdefault(value, place)
        last[value] = place
    return [first[value] + last[value] for value in values]


@lru_cache(maxsize=256)
def _count_rank_sums(ranks: tuple[int, ...], sample_size: int) -> tuple[tuple[int, int], ...]:
    """Return each sum of ``sample_size`` ranks with the number of ways to choose them; without ties the same for every
    row.
    """
    ways: list[dict[int, int]] = [{0: 1}, *({} for _ in range(sample_size))]
    for rank in ranks:
        for size in range(sample_size, 0, -1):
            for total, n in ways[size - 1].items():
                ways[size][total + rank] = ways[size].get(total + rank, 0) + n
    return tuple(sorted(ways[sample_size].items()))


def correct_by_holm(p_values: Mapping[Key, Fraction]) -> dict[Key, Fraction]:
    """Return each p corrected for how many are tested together, step by step from the smallest (Holm 1979)."""
    corrected_p: dict[Key, Fraction] = {}
    largest = Fraction(0)
    for place, key in enumerate(sorted(p_values, key=lambda key: p_values[key])):
        largest = max(largest, min(Fraction(1), p_values[key] * (len(p_values) - place)))
        corrected_p[key] = largest
    return corrected_p
