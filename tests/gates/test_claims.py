"""Is a claim shown where a change to the better is as large as claimed and beyond the noise, and nowhere else?"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.metrics.registry import Better, make_measured_metric
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.gates.accepted_rows import is_acceptable
from pytest_nsys.gates.assertion_resolution import resolve_outside_metric
from pytest_nsys.gates.judgement import Judgement, Reference, judge_rows
from pytest_nsys.gates.limits import SentenceMistake
from pytest_nsys.gates.model import BaselineLimit, ClaimFinding, Comparator, Outcome, Tolerance
from pytest_nsys.gates.noise import (
    IMPOSSIBLE,
    MOST_NEEDED_CAPTURES,
    Trial,
    count_needed_captures,
    decide_claim,
    decide_trials,
)
from tests.benchmarks.claim_simulation import (
    BETTER,
    KEY,
    SMALL,
    claimed,
    count_shown,
    count_shown_of_accepted,
    judged_pair,
    judged_run,
    table_of,
)
from tests.support.gate_files import asked, mistakes

FIVE = Tolerance(Fraction(5, 100))
TRIALS = 1_000


def finding(judgement: Judgement) -> ClaimFinding:
    """What the only row says, which has failed unless it is shown."""
    (row,) = judgement.rows
    assert row.claim is not None
    assert (row.claim.finding is ClaimFinding.SHOWN) is (judgement.outcome is Outcome.PASSED)
    assert judgement.outcome in (Outcome.PASSED, Outcome.FAILED)
    return row.claim.finding


def needed(judgement: Judgement) -> int | None:
    (row,) = judgement.rows
    assert row.claim is not None
    return row.claim.needed_captures


# What a sentence claims


@pytest.mark.parametrize(
    ("sentence", "comparator", "amount"),
    [
        ("step time at least 3% below baseline", Comparator.LE, Tolerance(Fraction(3, 100))),
        ("step time at  least 0.5ms below baseline", Comparator.LE, Tolerance(absolute={"ns": Fraction(500_000)})),
        ("stage3 overlap at least 2pp above baseline", Comparator.GE, Tolerance(absolute={"%": Fraction(2, 100)})),
        ("step time at least 3% better than baseline", Comparator.LE, Tolerance(Fraction(3, 100))),
        ("overlap at least 3% better than baseline", Comparator.GE, Tolerance(Fraction(3, 100))),
        ("syncs at least 3 below baseline", Comparator.LE, Tolerance(absolute={"count": Fraction(3)})),
        ("step time better than baseline", Comparator.LT, FIVE),
        ("overlap better than baseline", Comparator.GT, FIVE),
        ("max exposed_ns better than baseline", Comparator.LT, FIVE),
        ("balance of compute_ns across pp better than baseline", Comparator.LT, FIVE),
        ("p99 step time at least 5% below baseline", Comparator.LE, Tolerance(Fraction(5, 100))),
        ("measured tokens at least 5% above baseline", Comparator.GE, Tolerance(Fraction(5, 100))),
        ("step time better than median of last 5 runs of main", Comparator.LT, FIVE),
        ("step time at least 3% below last run", Comparator.LE, Tolerance(Fraction(3, 100))),
    ],
)
def test_a_claim_says_which_way_and_by_how_much(sentence: str, comparator: Comparator, amount: Tolerance) -> None:
    found = claimed(sentence, FIVE, ["pp"])
    limit = found.requirement.limit
    assert isinstance(limit, BaselineLimit)
    assert (found.requirement.comparator, limit.tolerance, found.is_claim) == (comparator, amount, True)
    assert (limit.history is not None) is ("last" in sentence)


CLAIM_IT = "claim it in pytest-nsys compare BASE HEAD --claim 'step time {}', or in a test with nsys_gate(…)"


@pytest.mark.parametrize(
    ("sentence", "offset", "problem"),
    [
        ("step time at least 3% above baseline", 22, "lower step_time_ns is better: write at least 3% below baseline"),
        ("overlap at least 2pp below baseline", 21, "higher overlap is better: write at least 2pp above baseline"),
        ("step time at least 0% below baseline", 19, "a change of 0 is none: write better than baseline"),
        (
            "step time at least 100% below baseline",
            19,
            "'at least 100% below baseline' can never hold: step_time_ns is never below 0ns",
        ),
        (
            "overlap at least 101pp above baseline",
            17,
            "'at least 101pp above baseline' can never hold: overlap is never above 100%",
        ),
        ("step time at least 3% below", 27, "'baseline' is missing after 'below'"),
        ("step time at least 3% below 5ms", 28, "a claim is about a baseline: write at least 3% below baseline"),
        ("step time better than 5ms", 22, "a claim is about a baseline: write at least 3% below baseline"),
        ("step time at least 3% better baseline", 29, "expected 'than', not 'baseline'"),
        ("step time at least 3% below baseline plus 5%", 37, "'plus' comes after the end of the limit"),
        ("step time at least 3pp below baseline", 19, "step_time_ns is a time: write it in ns, us, ms or s, not 3pp"),
        ("launches better than baseline", 9, "neither less nor more launches is better: it cannot be claimed"),
        (
            "sequence better than baseline",
            9,
            "sequence is the same as in the baseline or not: write sequence == baseline",
        ),
        (
            "measured tokens better than baseline",
            16,
            "nothing says yet which way measured tokens gets better: write at least 3% below baseline, or above",
        ),
        (
            "pipeline overlap_score at least 5% above baseline",
            0,
            "'pipeline' has a limit of its own: claim overlap_score without it",
        ),
    ],
)
def test_a_mistake_in_a_claim_is_told_where_it_is(sentence: str, offset: int, problem: str) -> None:
    with pytest.raises(SentenceMistake) as caught:
        claimed(sentence)
    assert (str(caught.value), caught.value.offset) == (problem, offset)


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        *(
            (
                limit,
                f"'{limit}' would fail an unchanged run, as every run after the next refresh: "
                + CLAIM_IT.format(limit),
            )
            for limit in (
                "at least 3% below baseline",
                "better than baseline",
                "at least 1ms below last 5 runs of main",
            )
        ),
        (
            "<= baseline - 3%",
            "'<= baseline - …' would fail an unchanged run: write <= baseline + …, or "
            + CLAIM_IT.format("at least 3% below baseline"),
        ),
        (
            "< baseline",
            "'< baseline' would fail an unchanged run: use <= or below, or " + CLAIM_IT.format("better than baseline"),
        ),
    ],
)
def test_a_gate_file_takes_no_claim_and_names_where_it_belongs(limit: str, problem: str) -> None:
    (told,) = mistakes(f"version: 1\nassertions:\n  - step time {limit}\n")
    assert told == f"3:{15 if limit[0] != '<' or limit[1] == ' ' else 27}: {problem}"
    with pytest.raises(SentenceMistake):
        asked(f"step time {limit}")


@pytest.mark.parametrize("limit", ["better than 5ms", "better than baseline", "at least 3% below baseline"])
def test_an_early_limit_is_no_claim(limit: str) -> None:
    (told,) = mistakes(f"version: 1\nassertions:\n  - {{assert: window_ns <= 1s, warn: {limit}}}\n")
    assert told.endswith(": only a constant can be written here, not a claim")


def test_the_way_of_a_measurement_is_checked_once_it_is_known() -> None:
    claim = claimed("measured tokens at least 5% below baseline")
    with pytest.raises(UsageMistake, match="higher measured tokens is better: claim the other side of the baseline"):
        resolve_outside_metric(claim, make_measured_metric("tokens", "1", Better.HIGHER), {})
    found = resolve_outside_metric(claim, make_measured_metric("tokens", "1", Better.LOWER), {})
    assert found.is_claim


# Between captures (R4)

QUIET = (0, 1, 2, -1, 3)
"""What tells captures apart where there is hardly any noise, in permille of the step."""
LOUD = (0, 60, -50, 70, -60)


def captures(count: int, noise: Sequence[int], change_permille: int = 0) -> list[int]:
    return [20 * (1_000 + change_permille) * (1_000 + permille) for permille in noise[:count]]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("sentence", "change", "quiet", "loud"),
    [
        ("window_ns at least 3% below baseline", -60, ClaimFinding.SHOWN, ClaimFinding.WITHIN_NOISE),
        ("window_ns at least 3% below baseline", -30, ClaimFinding.SHOWN, ClaimFinding.WITHIN_NOISE),
        ("window_ns at least 3% below baseline", -29, ClaimFinding.TOO_SMALL, ClaimFinding.TOO_SMALL),
        ("window_ns at least 3% below baseline", 0, ClaimFinding.WORSE, ClaimFinding.WORSE),
        ("window_ns at least 3% below baseline", 60, ClaimFinding.WORSE, ClaimFinding.WORSE),
        ("window_ns at least 0.6ms below baseline", -30, ClaimFinding.SHOWN, ClaimFinding.WITHIN_NOISE),
        ("window_ns at least 0.6ms below baseline", -29, ClaimFinding.TOO_SMALL, ClaimFinding.TOO_SMALL),
        ("window_ns better than baseline", -60, ClaimFinding.SHOWN, ClaimFinding.WITHIN_NOISE),
        ("window_ns better than baseline", -50, ClaimFinding.WITHIN_TOLERANCE, ClaimFinding.WITHIN_TOLERANCE),
        ("window_ns better than baseline", 60, ClaimFinding.WORSE, ClaimFinding.WORSE),
        ("pipelines_up", 60, ClaimFinding.SHOWN, ClaimFinding.WITHIN_NOISE),
        ("pipelines_up", 29, ClaimFinding.TOO_SMALL, ClaimFinding.TOO_SMALL),
        ("pipelines_up", -60, ClaimFinding.WORSE, ClaimFinding.WORSE),
    ],
)
def test_a_claim_takes_its_amount_and_more_than_the_noise(
    sentence: str, change: int, quiet: ClaimFinding, loud: ClaimFinding, count: int
) -> None:
    """Of one or two captures a side nothing is shown; what contradicts a claim does not wait for more."""
    claim = claimed("overlap_score at least 3% above baseline" if sentence == "pipelines_up" else sentence, FIVE)
    for noise, expected in ((QUIET, quiet), (LOUD, loud)):
        judgement = judged_pair(claim, captures(count, noise), captures(count, noise, change))
        is_open = expected in (ClaimFinding.SHOWN, ClaimFinding.WITHIN_NOISE)
        assert finding(judgement) is (ClaimFinding.NOT_TESTED if count < 3 and is_open else expected)
        (row,) = judgement.rows
        assert row.test.startswith(IMPOSSIBLE) is (count < 3)


def test_a_row_of_a_claim_has_its_limit_on_the_better_side() -> None:
    (row,) = judged_pair(
        claimed("window_ns at least 3% below baseline"), captures(5, QUIET), captures(5, QUIET, -60)
    ).rows
    baseline = 20_000_000 * 1_001 // 1_000
    assert (row.baseline, row.limit, row.tolerance) == (baseline, baseline * 97 // 100, baseline * 3 // 100)
    assert row.value is not None
    assert row.limit is not None
    assert row.margin == row.limit - row.value > 0
    assert row.tolerance is not None
    assert row.times_tolerance == (row.value - Fraction(baseline)) / row.tolerance < -1  # better by so many amounts
    assert row.headroom is None
    assert row.noise is not None
    assert row.claim is not None
    assert row.claim.captures == "5 + 5 captures"


def test_every_row_has_to_be_shown() -> None:
    claim = claimed("window_ns at least 3% below baseline")
    keys = [(("rank", rank),) for rank in (0, 1)]
    shown, small = Trial((100, 101, 102), (90, 91, 92), 1), Trial((100, 101, 102), (99, 100, 101), 1)
    reference = Reference(
        [table_of(101, 101)], decisions=dict(zip(keys, map(decide_claim, (shown, small)), strict=True))
    )
    judgement = judge_rows(claim, table_of(91, 100), reference)
    assert judgement.outcome is Outcome.FAILED
    assert [row.outcome for row in judgement.rows] == [Outcome.FAILED, Outcome.PASSED]
    both = Reference([table_of(101, 101)], decisions=dict.fromkeys(keys, decide_claim(shown)))
    assert judge_rows(claim, table_of(91, 91), both).outcome is Outcome.PASSED


def test_a_row_that_one_side_lacks_is_no_data() -> None:
    claim = claimed("window_ns at least 3% below baseline")
    decisions = {KEY: decide_claim(Trial((100, 101, 102), (90, 91, 92), 1))}
    assert (
        judge_rows(claim, table_of(91), Reference([table_of(101, 101)], decisions=decisions)).outcome is Outcome.NO_DATA
    )
    assert (
        judge_rows(claim, table_of(91, 91), Reference([table_of(101)], decisions=decisions)).outcome is Outcome.NO_DATA
    )
    lost = judge_rows(claim, table_of(91), Reference([table_of(101)], decisions={}))
    assert finding(lost) is ClaimFinding.NOT_TESTED


def test_no_refresh_accepts_a_claim() -> None:
    claim = claimed("window_ns at least 3% below baseline")
    assert not is_acceptable(claim, judged_pair(claim, [100], [100]))
    assert is_acceptable(asked("window_ns <= baseline"), Judgement(Outcome.FAILED))


# How many captures would show it


@pytest.mark.parametrize(("count", "change"), [(2, -60), (3, -60), (5, -60), (5, -80)])
def test_the_captures_that_would_show_it_follow_from_change_and_noise(count: int, change: int) -> None:
    """Where the noise is normal and known: 2 ((z + z') s / change)²; Student's t takes a few more."""
    sides = captures(count, LOUD), captures(count, LOUD, change)
    spread = statistics.mean(map(statistics.variance, sides))
    shift = statistics.median(sides[0]) - statistics.median(sides[1])
    quantiles = statistics.NormalDist().inv_cdf(0.995) + statistics.NormalDist().inv_cdf(0.8)
    found = needed(judged_pair(claimed("window_ns at least 3% below baseline"), *sides))
    assert found is not None
    assert 0 < found - 2 * quantiles**2 * spread / shift**2 < 3


@pytest.mark.parametrize(
    ("noise", "count", "change", "expected"),
    [
        (QUIET, 1, -60, None),  # one capture a side has no noise
        (QUIET, 2, -60, 3),
        (QUIET, 3, -60, None),  # it is shown
        (tuple(3 * permille for permille in LOUD), 3, -31, None),  # more than anybody takes
        (LOUD, 3, 60, None),  # it got worse
    ],
)
def test_no_number_is_given_where_none_would_help(
    noise: Sequence[int], count: int, change: int, expected: int | None
) -> None:
    claim = claimed("window_ns at least 3% below baseline")
    assert needed(judged_pair(claim, captures(count, noise), captures(count, noise, change))) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((100, 101, 102, 103, 104), (80, 81, 82, 83, 84), ClaimFinding.SHOWN),
        ((100, 101, 102, 103, 84), (80, 81, 82, 83, 84), ClaimFinding.SHOWN),  # the last of base is a hiccup
        ((100, 101, 102, 96, 90), (80, 81, 82, 95, 91), ClaimFinding.OVERLAPPING),
        ((100, 103, 96), (80, 99, 82), ClaimFinding.WITHIN_NOISE),
        ((100, 101, 91), (80, 81, 92), ClaimFinding.WITHIN_NOISE),
        ((1000, 1010, 990, 910), (800, 810, 790, 911), ClaimFinding.OVERLAPPING),
    ],
)
def test_a_shift_beyond_the_noise_is_not_enough_where_captures_overlap(
    before: Sequence[int], after: Sequence[int], expected: ClaimFinding
) -> None:
    judgement = judged_pair(claimed("window_ns at least 3% below baseline"), before, after)
    assert finding(judgement) is expected
    if expected is ClaimFinding.OVERLAPPING:
        assert needed(judgement) == len(before) + 1


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_larger_change_needs_fewer_captures(change: int, deviation: int) -> None:
    spread = Fraction(deviation**2)
    small, large = (count_needed_captures(size, spread) for size in (change, 2 * change))
    assert (large or MOST_NEEDED_CAPTURES + 1) <= (small or MOST_NEEDED_CAPTURES + 1)
    assert count_needed_captures(change, Fraction(0)) == 3


@pytest.mark.parametrize("count", [5, 8])
def test_so_many_captures_show_it_most_of_the_time(count: int) -> None:
    """The noise is 2 % of a step of 20 ms: the change that so many captures are said to show is shown in most pairs."""
    spread = Fraction(400_000) ** 2
    change = next(ns for ns in range(0, 4_000_000, 10_000) if count_needed_captures(ns, spread) == count)
    shown = count_shown(SMALL, count, 0.0, 300, -change / 20_000_000)
    assert 0.6 * 300 < shown < 300


# One run against accepted ones (R3)


@pytest.mark.parametrize(
    ("accepted", "calibration", "change", "expected"),
    [
        (5, 0, -60, ClaimFinding.SHOWN),
        (4, 0, -60, ClaimFinding.SHOWN),
        (3, 5, -60, ClaimFinding.SHOWN),
        (3, 0, -60, ClaimFinding.NOT_TESTED),  # the noise is not measured
        (2, 5, -60, ClaimFinding.NOT_TESTED),  # one of the two may be a hiccup
        (1, 0, -60, ClaimFinding.NOT_TESTED),
        (5, 0, -29, ClaimFinding.TOO_SMALL),
        (1, 0, 60, ClaimFinding.WORSE),
    ],
)
def test_accepted_runs_show_a_claim_where_their_noise_is_measured(
    accepted: int, calibration: int, change: int, expected: ClaimFinding
) -> None:
    claim = claimed("window_ns at least 3% below baseline")
    (now,) = captures(1, QUIET, change)
    judgement = judged_run(claim, captures(accepted, QUIET), captures(calibration, QUIET), now)
    assert finding(judgement) is expected


def test_the_noise_of_accepted_runs_hides_a_claim() -> None:
    claim = claimed("window_ns at least 3% below baseline")
    judgement = judged_run(claim, captures(5, LOUD), (), captures(1, QUIET, -60)[0])
    assert finding(judgement) is ClaimFinding.WITHIN_NOISE
    assert (needed(judgement) or 0) > 20


# No unchanged run shows a claim


@pytest.mark.parametrize("sentence", [SMALL, BETTER])
@pytest.mark.parametrize("captures_a_side", [3, 5])
def test_a_thousand_unchanged_pairs_show_ten_at_most(sentence: str, captures_a_side: int) -> None:
    """One capture in ten is a hiccup: so one side of five has one more often than not."""
    assert count_shown(sentence, captures_a_side, 0.1, TRIALS) <= TRIALS // 100


@pytest.mark.slow
@pytest.mark.parametrize(("captures_a_side", "hiccups"), [*product((3, 4, 5, 8), (0.0, 0.05)), (4, 0.1), (8, 0.1)])
def test_nor_do_others(captures_a_side: int, hiccups: float) -> None:
    assert count_shown(SMALL, captures_a_side, hiccups, TRIALS) <= TRIALS // 100


@pytest.mark.parametrize(("accepted", "calibration"), [(3, 5), (5, 0)])
def test_nor_does_one_run_against_accepted_ones(accepted: int, calibration: int) -> None:
    assert count_shown_of_accepted(SMALL, accepted, calibration, 0.1, TRIALS) <= TRIALS // 100


def test_a_large_change_is_shown() -> None:
    """A gate that shows nothing would pass the tests above."""
    assert count_shown(SMALL, 5, 0.0, 200, change=-0.1) > 190


values = st.lists(st.integers(1, 10**6), min_size=1, max_size=7)


@given(values, values, st.booleans(), st.integers(1, 50))
def test_what_shows_a_claim_fails_the_other_way_round(
    before: list[int], after: list[int], higher_is_better: bool, percent: int
) -> None:
    """Where head is shown to be better than base, base is worse than head: of any captures, in either direction."""
    worse = -1 if higher_is_better else 1
    shown = decide_claim(Trial(tuple(before), tuple(after), worse))
    (swapped,) = decide_trials({KEY: Trial(tuple(after), tuple(before), worse)}).values()
    assert swapped.is_worse or not shown.is_better
    name, way, side = (
        ("overlap_score", ">= baseline -", "above") if higher_is_better else ("window_ns", "<= baseline +", "below")
    )
    judgement = judged_pair(claimed(f"{name} at least {percent}% {side} baseline"), before, after)
    if judgement.outcome is Outcome.PASSED:
        (row,) = judgement.rows
        assert row.value is not None
        assert row.baseline is not None
        reference = Reference([table_of(row.value)], decisions={KEY: swapped})
        other = judge_rows(asked(f"{name} {way} {percent / 2}%"), table_of(row.baseline), reference)
        assert other.outcome is Outcome.FAILED


def test_a_row_below_what_clocks_can_tell_is_no_gain_of_a_known_amount() -> None:
    """It is less than its baseline, by nobody knows how much."""
    claim = claimed("window_ns at least 10% below baseline")
    first, second = (("rank", 0),), (("rank", 1),)
    shown = decide_claim(Trial((100_000, 100_001, 100_002), (80_000, 80_001, 80_002), 1))
    head = replace(table_of(80_001), unseen={(1,): 99_999})
    judgement = judge_rows(claim, head, Reference([table_of(100_001, 100_000)], decisions={first: shown}))
    assert judgement.outcome is Outcome.NO_DATA
    assert {tuple(row.labels.items()): row.outcome for row in judgement.rows}[second] is Outcome.NO_DATA
