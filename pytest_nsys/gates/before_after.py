"""Did it get worse between two sets of captures (R4)? The exact rank-sum test, with Holm over all rows of a gate file.

One trace is one sample. With five or more captures on each side a row has moved where its one-sided exact p, corrected
for the number of rows that are tested together, is at most 0.05. With three or four no test can say that; there the two
sides must be completely separated. With one or two nothing can be said, and the label says so: the tolerance decides
alone. Of so many rows that not even complete separation could be significant a row has moved where its sides are
completely separated, and its shift is beyond the noise of that many rows: a gate of many rows must be able to fail.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import NamedTuple, TypeVar

from pytest_nsys.core.exact import median
from pytest_nsys.core.model import Value
from pytest_nsys.gates.noise import quantile, variance

ALPHA = Fraction(1, 20)
FEWEST_FOR_A_TEST = 5
FEWEST_FOR_SEPARATION = 3
IMPOSSIBLE = "no test possible"

Key = TypeVar("Key", bound=Hashable)


class Trial(NamedTuple):
    """The values of one row, a capture each. ``worse`` says which way is worse: +1 up, −1 down, 0 either."""

    before: tuple[Value, ...]
    after: tuple[Value, ...]
    worse: int

    @property
    def captures(self) -> str:
        return f"{len(self.before)} + {len(self.after)} captures"


class Decision(NamedTuple):
    """Whether the captures say that the row moved, to the worse or to the better.

    ``label`` is what they say of this row alone, in a word or two; ``basis`` how all such rows were decided.
    """

    worse: bool
    better: bool
    label: str
    basis: str


class _Found(NamedTuple):
    """Whether a row moved in the direction that was asked for, with the words of :class:`Decision`."""

    moved: bool
    label: str
    basis: str


def decide(trials: Mapping[Key, Trial]) -> dict[Key, Decision]:
    """What each row's captures say, all rows of a gate file taken together."""
    worse = _moved({key: (trial, trial.worse) for key, trial in trials.items()})
    better = _moved({key: (trial, -trial.worse) for key, trial in trials.items()})
    return {key: Decision(worse[key].moved, better[key].moved, worse[key].label, worse[key].basis) for key in trials}


def can_test(trial: Trial) -> bool:
    """Whether there are enough captures to tell a change from noise at all."""
    return _fewest(trial) >= FEWEST_FOR_SEPARATION


def _fewest(trial: Trial) -> int:
    return min(len(trial.before), len(trial.after))


def _moved(asked: Mapping[Key, tuple[Trial, int]]) -> dict[Key, _Found]:
    """Whether each row moved in the direction that is asked for."""
    tested = {key: pair for key, pair in asked.items() if _fewest(pair[0]) >= FEWEST_FOR_A_TEST}
    adjusted = holm({key: p_moved(*pair) for key, pair in tested.items()})
    found = {}
    for key, (trial, direction) in asked.items():
        if key not in tested:
            found[key] = _by_separation(trial, direction)
        elif smallest_p(trial, direction) * len(tested) > ALPHA:
            found[key] = _by_separation_of_many(trial, direction, len(tested))
        else:
            p = adjusted[key]
            rows = f", Holm over {len(tested)} rows" if len(tested) > 1 else ""
            found[key] = _Found(p <= ALPHA, f"p {_p_words(p)}", f"exact rank-sum test of {trial.captures}{rows}")
    return found


def _p_words(p: Fraction) -> str:
    return f"= {float(p):.2g}" if p >= Fraction(1, 10_000) else "< 0.0001"


def _by_separation(trial: Trial, direction: int) -> _Found:
    if not can_test(trial):
        single = len(trial.before) == len(trial.after) == 1
        why = ": one trace a side is one sample" if single else ""
        return _Found(True, IMPOSSIBLE, f"{IMPOSSIBLE} with {trial.captures}{why}")
    moved = any(_separated(trial, way) for way in ((direction,) if direction else (1, -1)))
    return _Found(moved, "separated" if moved else "overlap", f"complete separation of {trial.captures}")


def _by_separation_of_many(trial: Trial, direction: int, rows: int) -> _Found:
    """Of so many rows some are separated by chance: the shift must be beyond the noise of all of them as well.

    That is the bound of Student's t with Bonferroni's correction, on the pooled variance of the two sides.
    """
    found = _by_separation(trial, direction)
    basis = f"{found.basis} beyond the noise of {rows} rows"
    if not found.moved:
        return _Found(False, found.label, basis)
    before, after = len(trial.before), len(trial.after)
    freedom = before + after - 2
    squares = (before - 1) * variance(trial.before) + (after - 1) * variance(trial.after)
    spread = squares / freedom * (Fraction(1, before) + Fraction(1, after))
    t = quantile(freedom, ALPHA / rows / (1 if direction else 2))
    moved = Fraction(median(trial.after) - median(trial.before)) ** 2 > t**2 * spread
    return _Found(moved, found.label if moved else f"{found.label}, within noise", basis)


def _separated(trial: Trial, direction: int) -> bool:
    if direction > 0:
        return min(trial.after) > max(trial.before)
    return max(trial.after) < min(trial.before)


def p_moved(trial: Trial, direction: int) -> Fraction:
    """Exact p of the rank-sum test that ``after`` moved up (+1), down (−1), or either way (0, twice the smaller)."""
    if direction == 0:
        return min(Fraction(1), 2 * min(p_moved(trial, 1), p_moved(trial, -1)))
    values = [*trial.before, *trial.after]
    ranks = _doubled_ranks([direction * value for value in values])
    observed = sum(ranks[len(trial.before) :])
    counts = _sums(tuple(sorted(ranks)), len(trial.after))
    return Fraction(sum(n for total, n in counts if total >= observed), comb(len(values), len(trial.after)))


def smallest_p(trial: Trial, direction: int) -> Fraction:
    """The p of complete separation."""
    return Fraction(1 if direction else 2, comb(len(trial.before) + len(trial.after), len(trial.after)))


def _doubled_ranks(values: Sequence[Value]) -> list[int]:
    """Twice the rank of each value, equal ones at the middle of their places: whole numbers."""
    ordered = sorted(values)
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for place, value in enumerate(ordered, start=1):
        first.setdefault(value, place)
        last[value] = place
    return [first[value] + last[value] for value in values]


@lru_cache(maxsize=256)
def _sums(ranks: tuple[int, ...], chosen: int) -> tuple[tuple[int, int], ...]:
    """(sum, number of ways to choose so many of the ranks with that sum); without ties the same for every row."""
    ways: list[dict[int, int]] = [{0: 1}, *({} for _ in range(chosen))]
    for rank in ranks:
        for size in range(chosen, 0, -1):
            for total, n in ways[size - 1].items():
                ways[size][total + rank] = ways[size].get(total + rank, 0) + n
    return tuple(sorted(ways[chosen].items()))


def holm(ps: Mapping[Key, Fraction]) -> dict[Key, Fraction]:
    """Each p corrected for how many are tested together, step by step from the smallest (Holm 1979)."""
    found: dict[Key, Fraction] = {}
    largest = Fraction(0)
    for place, key in enumerate(sorted(ps, key=lambda key: ps[key])):
        largest = max(largest, min(Fraction(1), ps[key] * (len(ps) - place)))
        found[key] = largest
    return found
