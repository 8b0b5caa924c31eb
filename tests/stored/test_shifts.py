"""Is the run found at which a row moved for good, and is noise let be?"""

import random
from collections.abc import Sequence
from fractions import Fraction

import pytest

from pytest_nsys.core.model import Value
from pytest_nsys.stored.history.shifts import MAX_EXAMINED_RUNS, Shift, find_shifts

CASES: dict[str, tuple[Sequence[Value], str, list[tuple[int, Value, Value]]]] = {
    "nothing": ([], "ns", []),
    "one run": ([5], "ns", []),
    "three runs say nothing of noise": ([100, 100, 200], "ns", []),
    "the newest run alone": ([100, 101, 99, 100, 120], "ns", [(4, 100, 120)]),
    "two levels": ([100, 101, 99, 100, 120, 121, 119], "ns", [(4, 100, 120)]),
    "down": ([120, 121, 119, 100, 101, 99], "ns", [(3, 120, 100)]),
    "three levels": ([5] * 5 + [6] * 5 + [8] * 3, "ns", [(5, 5, 6), (10, 6, 8)]),
    "and back": ([5] * 5 + [9] * 5 + [5] * 5, "ns", [(5, 5, 9), (10, 9, 5)]),
    "from zero": ([0, 0, 0, 0, 3, 3], "count", [(4, 0, 3)]),
    "one run off is no level": ([100, 101, 99, 180, 100, 101, 99], "ns", []),
    "the first run off is no level": ([180, 100, 101, 99, 100], "ns", []),
    "always the same": ([7] * 30, "ns", []),
    "under 1 % where nothing varies": ([10_000] * 5 + [10_090] * 5, "ns", []),
    "over 1 % where nothing varies": ([10_000] * 5 + [10_110] * 5, "ns", [(5, 10_000, 10_110)]),
    "under 1 pp of a ratio": ([Fraction(1, 100)] * 5 + [Fraction(19, 1000)] * 5, "%", []),
    "over 1 pp": ([Fraction(4, 5)] * 5 + [Fraction(39, 50)] * 5, "%", [(5, Fraction(4, 5), Fraction(39, 50))]),
    "within what the runs vary": ([100, 110, 95, 105, 108, 98, 104, 112], "ns", []),
}


@pytest.mark.parametrize("case", CASES)
def test_the_run_at_which_a_row_moved(case: str) -> None:
    values, unit, expected = CASES[case]
    assert find_shifts(values, unit) == tuple(Shift(*each) for each in expected)


def test_only_the_newest_runs_are_looked_at_and_counted_from_the_first() -> None:
    long = [50] * 20 + [100] * (MAX_EXAMINED_RUNS - 3) + [200] * 3
    assert find_shifts(long, "ns") == (Shift(len(long) - 3, 100, 200),)


@pytest.mark.parametrize(("runs", "most"), [(5, 30), (12, 20), (30, 30)])
def test_noise_is_rarely_a_shift_and_ten_percent_mostly_is(runs: int, most: int) -> None:
    """Of 1 000 rows that vary by 2 %."""
    chance = random.Random(23)
    rows = [[round(chance.gauss(1e6, 2e4)) for _ in range(runs)] for _ in range(1_000)]
    assert sum(bool(find_shifts(row, "ns")) for row in rows) <= most
    if runs == 30:
        grown = [row[:20] + [value * 11 // 10 for value in row[20:]] for row in rows[:200]]
        assert sum([shift.position for shift in find_shifts(row, "ns")] == [20] for row in grown) > 180
