"""Do the tests between two sets of captures (R4) say what enumeration says? Oracles are too slow to ship."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import chain, combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.core.model import Value
from pytest_nsys.gates.noise import (
    SIGNIFICANCE_LEVEL,
    Trial,
    _format_p,
    can_test,
    compute_rank_sum_p,
    compute_smallest_p,
    compute_t_quantile,
    correct_by_holm,
    decide_trials,
    variance,
)

tied: st.SearchStrategy[list[int]] = st.lists(st.integers(0, 4), min_size=1, max_size=4)
three_or_more: st.SearchStrategy[list[int]] = st.lists(st.integers(0, 4), min_size=3, max_size=6)
apart = st.lists(st.integers(0, 10**6), min_size=1, max_size=4, unique=True)
sides = st.one_of(st.tuples(tied, tied), st.tuples(apart, apart))
ways = st.sampled_from((1, -1))
ps = st.fractions(Fraction(0), Fraction(1), max_denominator=500)


def trial(before: Sequence[Value], after: Sequence[Value], worse: int = 1) -> Trial:
    return Trial(tuple(before), tuple(after), worse)


def separated(before: int, after: int, worse: int = 1) -> Trial:
    """So many captures on each side, of which all those after are worse."""
    return trial([worse * i for i in range(before)], [worse * (1_000 + i) for i in range(after)], worse)


def overlapping(before: int, after: int) -> Trial:
    """The same values on both sides: no change at all."""
    return trial(range(before), range(after))


def share_of_orders(before: Sequence[Value], after: Sequence[Value], direction: int) -> Fraction:
    """In how many ways to tell the captures which side they are of is the evidence as strong, or stronger?

    The evidence is how many pairs moved: a pair in the direction counts 2, an equal one 1 (Mann and Whitney's U).
    """

    def pairs(one: Sequence[Value], other: Sequence[Value]) -> int:
        return sum((direction * b > direction * a) * 2 + (a == b) for a in one for b in other)

    values = [*before, *after]
    places = range(len(values))
    observed = pairs(before, after)
    as_strong = 0
    for chosen in combinations(places, len(after)):
        rest = [values[i] for i in places if i not in chosen]
        as_strong += pairs(rest, [values[i] for i in chosen]) >= observed
    return Fraction(as_strong, comb(len(values), len(after)))


@given(sides, ways)
def test_p_is_the_share_of_all_orders_ties_included(both: tuple[list[int], list[int]], direction: int) -> None:
    before, after = both
    assert compute_rank_sum_p(trial(before, after), direction) == share_of_orders(before, after, direction)


@given(sides)
def test_both_ways_is_twice_the_smaller(both: tuple[list[int], list[int]]) -> None:
    before, after = both
    smaller = min(share_of_orders(before, after, 1), share_of_orders(before, after, -1))
    assert compute_rank_sum_p(trial(before, after), 0) == min(1, 2 * smaller)


@pytest.mark.parametrize(("before", "after"), [(5, 5), (5, 9), (12, 5)])
@pytest.mark.parametrize("direction", [1, -1, 0])
def test_complete_separation_has_the_smallest_p(before: int, after: int, direction: int) -> None:
    one = separated(before, after, direction or 1)
    assert compute_rank_sum_p(one, direction) == compute_smallest_p(one, direction)
    assert compute_smallest_p(one, direction) == Fraction(2 if direction == 0 else 1, comb(before + after, after))


def test_fractions_rank_among_whole_numbers() -> None:
    before: list[Value] = [Fraction(1, 3), 1, Fraction(5, 2)]
    assert compute_rank_sum_p(trial(before, [2, 3, Fraction(10, 3)]), 1) == Fraction(2, 20)


@given(st.lists(ps, max_size=6))
def test_holm_is_the_closed_test(found: list[Fraction]) -> None:
    """A row has moved where every set of rows with it is refuted: the smallest p of a set, times its size."""
    places = range(len(found))
    sets = list(chain.from_iterable(combinations(places, size) for size in range(1, len(found) + 1)))
    closed = {
        i: max(min(Fraction(1), len(some) * min(found[j] for j in some)) for some in sets if i in some) for i in places
    }
    assert correct_by_holm(dict(enumerate(found))) == closed


def reds(trials: Mapping[str, Trial]) -> set[str]:
    return {key for key, decision in decide_trials(trials).items() if decision.is_worse}


NONE = "no test possible with"


@pytest.mark.parametrize(
    ("one", "worse", "label", "basis"),
    [
        (separated(1, 1), True, "no test possible", f"{NONE} 1 + 1 captures: one trace a side is one sample"),
        (overlapping(2, 5), True, "no test possible", f"{NONE} 2 + 5 captures"),
        (separated(3, 3), True, "separated", "complete separation of 3 + 3 captures"),
        (overlapping(3, 4), False, "overlap", "complete separation of 3 + 4 captures"),
        (separated(5, 4), True, "separated", "complete separation of 5 + 4 captures"),
        (separated(5, 5), True, "p = 0.004", "exact rank-sum test of 5 + 5 captures"),
        (overlapping(5, 5), False, "p = 0.59", "exact rank-sum test of 5 + 5 captures"),
        (separated(9, 9), True, "p < 0.0001", "exact rank-sum test of 9 + 9 captures"),
    ],
)
def test_the_label_says_what_was_asked(one: Trial, worse: bool, label: str, basis: str) -> None:
    (decision,) = decide_trials({"row": one}).values()
    assert (decision.is_worse, decision.label, decision.basis) == (worse, label, basis)


def test_rows_that_are_tested_together_are_told() -> None:
    found = decide_trials({"moved": separated(5, 5), "same": overlapping(5, 5), "few": separated(3, 3)})
    assert found["moved"].label == "p = 0.0079"
    assert found["moved"].basis == found["same"].basis == "exact rank-sum test of 5 + 5 captures, Holm over 2 rows"
    assert (found["moved"].is_worse, found["same"].is_worse) == (True, False)
    assert (found["few"].label, found["few"].basis) == ("separated", "complete separation of 3 + 3 captures")


@pytest.mark.parametrize(("rows", "tested"), [(12, True), (13, False)])
def test_so_many_rows_that_none_could_be_significant_are_decided_by_separation(rows: int, tested: bool) -> None:
    """1 of 252 orders, times 13, is beyond 0.05."""
    assert (compute_smallest_p(separated(5, 5), 1) * rows <= SIGNIFICANCE_LEVEL) is tested
    found = decide_trials({"moved": separated(5, 5), **{str(i): overlapping(5, 5) for i in range(rows - 1)}})
    beyond = f"complete separation of 5 + 5 captures beyond the noise of {rows} rows"
    assert found["moved"].is_worse
    assert found["moved"].label == ("p = 0.048" if tested else "separated")
    assert found["moved"].basis.endswith(f", Holm over {rows} rows" if tested else beyond)
    assert not found["0"].is_worse
    assert found["0"].label == ("p = 1" if tested else "overlap")
    assert found["0"].basis == found["moved"].basis


def test_of_many_rows_one_that_is_just_separated_is_not_worse() -> None:
    """The shift is 5; s · sqrt(1/5 + 1/5) is 1, and t of 8 degrees of freedom beyond 0.05 / 100 is 5.042."""
    just = trial([0, 1, 2, 3, 4], [5, 6, 7, 8, 9])
    others = {str(i): overlapping(5, 5) for i in range(99)}
    (alone,) = decide_trials({"row": just}).values()
    among = decide_trials({"row": just, **others})["row"]
    assert alone.is_worse
    assert (among.is_worse, among.label) == (False, "separated, within noise")
    wider = trial([0, 1, 2, 3, 4], [6, 7, 8, 9, 10])
    assert decide_trials({"row": wider, **others})["row"].is_worse


def test_one_capture_out_of_order_is_not_significant_among_many_rows() -> None:
    almost = trial([0, 1, 2, 3, 10], [9, 11, 12, 13, 14])
    assert compute_rank_sum_p(almost, 1) == Fraction(2, 252)
    assert reds({"almost": almost}) == {"almost"}
    rows = {str(i): overlapping(5, 5) for i in range(6)}
    assert reds({"almost": almost, **rows}) == set()  # 7 · 2 / 252 is beyond 0.05
    del rows["0"]
    assert reds({"almost": almost, **rows}) == {"almost"}


@pytest.mark.parametrize("captures", [3, 5])
def test_the_direction_says_which_way_is_worse(captures: int) -> None:
    up, down = separated(captures, captures), separated(captures, captures, -1)
    for one, worse, better in ((up, True, False), (down, True, False)):
        (decision,) = decide_trials({"row": one}).values()
        assert (decision.is_worse, decision.is_better) == (worse, better)
        (decision,) = decide_trials({"row": Trial(one.before, one.after, -one.worse_direction)}).values()
        assert (decision.is_worse, decision.is_better) == (better, worse)
        (decision,) = decide_trials({"row": Trial(one.before, one.after, 0)}).values()
        assert decision.is_worse


def test_a_change_either_way_needs_twice_the_evidence() -> None:
    """9 of 252 orders are enough for one way, not for either."""
    before, after = (0, 1, 2, 6, 7), (4, 5, 8, 9, 10)
    one_way = compute_rank_sum_p(trial(before, after), 1)
    assert SIGNIFICANCE_LEVEL / 2 < one_way <= SIGNIFICANCE_LEVEL
    assert reds({"row": trial(before, after)}) == {"row"}
    assert reds({"row": trial(before, after, 0)}) == set()


def test_a_p_of_exactly_a_twentieth_is_enough() -> None:
    exactly = trial([0, 1, 1, 2, 2, 2, 2], [0, 1, 2, 2, 3, 3, 4, 4, 4])
    assert compute_rank_sum_p(exactly, 1) == Fraction(1, 20)
    assert reds({"row": exactly}) == {"row"}
    assert reds({"row": exactly, "other": overlapping(7, 9)}) == set()


def test_rows_of_which_complete_separation_is_just_significant_are_tested() -> None:
    """2 of 11 440 orders, times 286, is 0.05; the medians lie nearer to each other than the noise of 286 rows."""
    near = trial([0, 1, 2, 90, 91, 92, 93], [94, 95, 96, 97, 98, 190, 191, 192, 193], 0)
    rows = {"near": near, **{str(i): trial(range(7), range(9), 0) for i in range(285)}}
    found = decide_trials(rows)["near"]
    assert (found.is_worse, found.label) == (True, "p = 0.05")
    found = decide_trials({**rows, "one more": rows["0"]})["near"]
    assert (found.is_worse, found.label) == (False, "separated, within noise")


def just_beyond_the_noise_of(rows: int, worse: int) -> tuple[Trial, Trial]:
    """Two separated trials of 5 + 6 captures: the shift of the first is within the noise of so many rows, by hand."""
    before, after = [0, 100, 200, 300, 400], [0, 10, 20, 30, 40, 50]
    s2 = (4 * variance(before) + 5 * variance(after)) / 9
    t = compute_t_quantile(9, SIGNIFICANCE_LEVEL / rows if worse else SIGNIFICANCE_LEVEL / (2 * rows))
    bound = t**2 * s2 * (Fraction(1, 5) + Fraction(1, 6))
    shift = next(n for n in range(400, 2_000) if Fraction(n + 25 - 200) ** 2 > bound)
    way = worse or -1
    return tuple(  # type: ignore[return-value]
        trial([way * value for value in before], [way * (value + n) for value in after], worse)
        for n in (shift - 1, shift)
    )


@pytest.mark.parametrize("worse", [1, -1, 0])
def test_the_noise_of_many_rows_is_that_of_both_sides(worse: int) -> None:
    """Pooled with 5 + 6 − 2 degrees of freedom, corrected for the rows, and once more where either way is worse."""
    within, beyond = just_beyond_the_noise_of(100, worse)
    rows = {str(i): trial(range(5), range(6), worse) for i in range(98)}
    found = decide_trials({"within": within, "beyond": beyond, **rows})
    assert (found["within"].is_worse, found["within"].label) == (False, "separated, within noise")
    assert (found["beyond"].is_worse, found["beyond"].label) == (True, "separated")


def test_a_shift_that_is_the_noise_of_many_rows_is_within_it() -> None:
    assert not decide_trials({str(i): trial([7] * 5, [7] * 5) for i in range(100)})["0"].is_worse
    flat = trial([7] * 5, [8] * 5)
    assert decide_trials({"flat": flat, **{str(i): overlapping(5, 5) for i in range(99)}})["flat"].is_worse


@pytest.mark.parametrize("captures", [3, 4])
def test_either_way_counts_where_neither_is_better(captures: int) -> None:
    """With three or four captures a side: by complete separation, upwards and downwards."""
    for worse in (1, -1):
        one = separated(captures, captures, worse)
        assert reds({"row": trial(one.before, one.after, 0)}) == {"row"}
    assert reds({"row": trial([1, 2, 3], [3, 4, 5])}) == set()  # they touch
    assert reds({"row": trial([3, 4, 5], [1, 2, 3], -1)}) == set()


counts = st.integers(3, 8)


@given(counts, counts, counts, counts, st.integers(0, 20), st.integers(3, 8), ways)
def test_more_captures_that_stay_apart_never_turn_red_to_green(
    before: int, after: int, more_before: int, more_after: int, others: int, of_others: int, worse: int
) -> None:
    rows = {str(i): overlapping(of_others, of_others) for i in range(others)}
    few = separated(before, after, worse)
    many = separated(before + more_before, after + more_after, worse)
    assert reds({"row": few, **rows}) == {"row"}
    assert reds({"row": many, **rows}) == {"row"}


@given(st.lists(st.tuples(tied, tied), min_size=1, max_size=5))
def test_the_order_of_rows_and_captures_does_not_matter(rows: list[tuple[list[int], list[int]]]) -> None:
    trials = {str(i): trial(*both) for i, both in enumerate(rows)}
    turned = {key: trial(t.before[::-1], t.after[::-1]) for key, t in reversed(trials.items())}
    assert decide_trials(trials) == decide_trials(turned)


@given(three_or_more, three_or_more)
def test_what_is_exchanged_moved_the_other_way(before: list[int], after: list[int]) -> None:
    assert can_test(trial(before, after))
    (there,) = decide_trials({"row": trial(before, after)}).values()
    (back,) = decide_trials({"row": trial(after, before)}).values()
    assert (there.is_worse, there.is_better) == (back.is_better, back.is_worse)


@pytest.mark.parametrize(
    ("p", "words"),
    [(Fraction(1, 252), "= 0.004"), (Fraction(1, 10_000), "= 0.0001"), (Fraction(1, 10_001), "< 0.0001")],
)
def test_a_p_in_words(p: Fraction, words: str) -> None:
    assert _format_p(p) == words
