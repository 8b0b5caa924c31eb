"""Is the noise bound of R3 what its formula says, by integrals and floats, and does it keep its word in simulations?"""

import math
import statistics
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.model import Value
from pytest_nsys.gates.judgement import _warn_of_tolerance
from pytest_nsys.gates.model import BaselineLimit, JudgedRow, Outcome, Tolerance, Verdict
from pytest_nsys.gates.noise import (
    CALIBRATION_FREEDOM,
    FALSE_ALARMS,
    FEWEST_RUNS,
    compute_noise_bound,
    compute_t_quantile,
    sample_deviation,
    variance,
)
from pytest_nsys.traces.trace_files import open_trace
from pytest_nsys.verdicts.evaluate import GateContext, evaluate
from pytest_nsys.verdicts.references import OtherRun
from tests.benchmarks import noise_simulation as simulation
from tests.benchmarks.noisy_traces import (
    LABELS,
    Level,
    Values,
    heavy_tails,
    measured_pool,
    normal,
    outlying_captures,
    outlying_rows,
    write_trace,
)

whole = st.integers(0, 10**7)
exact_values: st.SearchStrategy[Value] = st.one_of(
    whole, st.fractions(0, 10, max_denominator=10**6).filter(lambda value: value.denominator > 1)
)
runs = st.lists(exact_values, min_size=FEWEST_RUNS, max_size=9)
few_runs = st.lists(exact_values, min_size=1, max_size=9)
calibrations = st.lists(exact_values, min_size=5, max_size=9)

ABOUT = 1e-9
"""B is rounded up at the ninth digit."""


def below(t: float, freedom: int) -> float:
    """P(T <= t) of Student's t: the density from 0 on, by Simpson's rule, with x = sqrt(freedom) tan(angle)."""
    end, steps = math.atan(t / math.sqrt(freedom)), 2_000
    step = end / steps
    weights = [1, *(4 if i % 2 else 2 for i in range(1, steps)), 1]
    area = sum(w * math.cos(i * step) ** (freedom - 1) for i, w in enumerate(weights)) * step / 3
    constant = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    return 0.5 + constant * area


def by_formula(accepted: Sequence[Value]) -> float:
    """t(0.99, nu) s sqrt(1 + 1/K) in floats."""
    k = len(accepted)
    return (
        float(compute_t_quantile(k - 1, FALSE_ALARMS)) * statistics.stdev(map(float, accepted)) * math.sqrt(1 + 1 / k)
    )


def test_the_oracle_knows_a_textbook_value() -> None:
    assert below(2.228, 10) == pytest.approx(0.975, abs=1e-5)


@pytest.mark.parametrize("beyond", [Fraction(2, 5), Fraction(1, 100), Fraction(1, 800), Fraction(1, 10_000)])
def test_a_quantile_of_t_is_right_to_three_digits_and_never_too_small(beyond: Fraction) -> None:
    for freedom in (*range(1, 13), 20, 31, 64, 1_000):
        t = compute_t_quantile(freedom, beyond)
        assert t.denominator <= 1000
        assert 1 - below(float(t), freedom) <= float(beyond) * (1 + 1e-4)
        assert 1 - below(float(t) * (1 - 1e-4) - 0.001, freedom) > float(beyond)


def test_the_search_for_a_quantile_ends() -> None:
    """It is 3e11; of so many rows no noise says anything."""
    assert compute_t_quantile(1, Fraction(1, 10**12)) == 1 << 30


@given(few_runs, calibrations, st.integers(2, 1_000))
def test_rows_judged_together_have_wider_bounds(accepted: list[Value], calibration: list[Value], rows: int) -> None:
    alone, together = (
        compute_noise_bound(accepted, calibration),
        compute_noise_bound(accepted, calibration, row_count=rows),
    )
    assert alone is not None
    assert together is not None
    assert together > alone or (together == alone and len({*calibration}) == 1)


@given(runs)
def test_without_calibration_it_is_the_formula(accepted: list[Value]) -> None:
    found = compute_noise_bound(accepted)
    assert found is not None
    assert float(found) == pytest.approx(by_formula(accepted), rel=1e-6, abs=2 * ABOUT)


def test_the_bound_by_hand() -> None:
    """s² = ((5 − 1) · 250 + 4 · 40) / 8 = 145, B = 2.897 · sqrt(145 · 6/5)."""
    accepted, calibration = [100, 110, 120, 130, 140], [196, 200, 204, 192, 208]
    assert variance(accepted) == 250
    assert variance(calibration) == 40
    found = compute_noise_bound(accepted, calibration)
    assert found is not None
    assert float(found) == pytest.approx(2.897 * math.sqrt(145 * 1.2), abs=2 * ABOUT)


@given(few_runs, calibrations)
def test_the_bound_is_exact_and_rounded_up_at_the_ninth_digit(accepted: list[Value], calibration: list[Value]) -> None:
    found = compute_noise_bound(accepted, calibration)
    assert isinstance(found, int | Fraction)
    own = len(accepted) - 1
    squares = own * variance(accepted) + CALIBRATION_FREEDOM * variance(calibration)
    freedom = own + CALIBRATION_FREEDOM
    square = compute_t_quantile(freedom, FALSE_ALARMS) ** 2 * squares / freedom * (1 + Fraction(1, len(accepted)))
    digit = Fraction(1, 10**9)
    assert Fraction(found) ** 2 >= square
    assert found == 0 or (Fraction(found) - digit) ** 2 < square
    assert found * 10**9 == int(found * 10**9)


@given(st.lists(st.integers(0, 10**15), min_size=2, max_size=9))
def test_the_deviation_of_whole_numbers_is_that_of_the_library(values: list[int]) -> None:
    assert variance(values) == statistics.variance(map(Fraction, values))
    assert float(sample_deviation(values)) == pytest.approx(statistics.stdev(values), rel=1e-9, abs=2 * ABOUT)


def test_one_value_has_no_variance() -> None:
    assert variance([7]) == 0


@given(st.lists(exact_values, min_size=1, max_size=FEWEST_RUNS - 1))
def test_fewer_than_four_runs_without_calibration_measure_no_noise(accepted: list[Value]) -> None:
    assert compute_noise_bound(accepted) is None


@given(exact_values, st.integers(FEWEST_RUNS, 9))
def test_equal_runs_have_a_bound_of_zero(value: Value, count: int) -> None:
    assert compute_noise_bound([value] * count) == 0


@given(calibrations, few_runs)
def test_accepted_runs_that_are_the_calibration_count_once(calibration: list[Value], fresh: list[Value]) -> None:
    """All values in one sample, where that has more degrees of freedom than the fresh runs with the calibration."""
    everything = [*calibration, *fresh]
    found = compute_noise_bound(everything, calibration, frozenset(range(len(calibration))))
    assert found is not None
    own, alone = len(fresh) - 1, len(everything) - 1
    if alone > own + CALIBRATION_FREEDOM:
        freedom, s2 = alone, statistics.variance(map(float, everything))
    else:
        freedom = own + CALIBRATION_FREEDOM
        own_s2 = statistics.variance(map(float, fresh)) if len(fresh) > 1 else 0.0
        s2 = (own * own_s2 + CALIBRATION_FREEDOM * statistics.variance(map(float, calibration))) / freedom
    expected = float(compute_t_quantile(freedom, FALSE_ALARMS)) * math.sqrt(s2) * math.sqrt(1 + 1 / len(everything))
    assert float(found) == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_of_two_samples_with_equal_freedom_the_fresh_runs_with_the_calibration_count() -> None:
    """Four of five accepted runs are traces of the calibration: 4 degrees of freedom either way."""
    calibration = [90, 95, 100, 105, 110]
    accepted = [95, 100, 105, 110, 500]
    found = compute_noise_bound(accepted, calibration, frozenset({0, 1, 2, 3}))
    assert found is not None
    expected = float(compute_t_quantile(4, Fraction(1, 100))) * math.sqrt(62.5) * math.sqrt(1.2)
    assert float(found) == pytest.approx(expected, abs=2 * ABOUT)
    more = compute_noise_bound(
        [*accepted, 501], calibration, frozenset({0, 1, 2, 3})
    )  # 5 alone, 1 + 4 together: equal again
    assert more is not None
    expected = float(compute_t_quantile(5, Fraction(1, 100))) * math.sqrt((0.5 + 4 * 62.5) / 5) * math.sqrt(7 / 6)
    assert float(more) == pytest.approx(expected, abs=2 * ABOUT)


def test_four_accepted_runs_are_a_noise_of_their_own_and_three_are_none() -> None:
    assert compute_noise_bound([1, 2, 3]) is None
    assert compute_noise_bound([1, 2, 3, 4]) is not None


@given(calibrations)
def test_a_baseline_that_is_its_calibration_has_the_freedom_of_its_runs(calibration: list[Value]) -> None:
    count = len(calibration)
    found = compute_noise_bound(calibration, calibration, frozenset(range(count)))
    assert found is not None
    s = statistics.stdev(map(float, calibration))
    t = float(compute_t_quantile(count - 1, FALSE_ALARMS))
    assert float(found) == pytest.approx(t * s * math.sqrt(1 + 1 / count), rel=1e-6, abs=1e-8)


@given(runs)
def test_without_values_of_the_calibration_its_runs_count_as_their_own(accepted: list[Value]) -> None:
    """A row whose noise was not measured: what the places say of other rows does not thin it out."""
    assert compute_noise_bound(accepted, (), frozenset({0, 1})) == compute_noise_bound(accepted)


def opened(folder: Path, level: Level, seed: int, count: int) -> Captures:
    """The first captures of a level, as files that are open together."""
    paths = []
    for number in range(count):
        paths.append(folder / f"{level.change}-{number}.sqlite")
        write_trace(paths[-1], level.factors(Random(f"{seed}:{level}:{number}")))
    return Captures([Run([open_trace(path)], BUILT_IN_CONVENTIONS["pithtrain"]) for path in paths])


@pytest.mark.parametrize(("change", "expected"), [(0.0, Outcome.PASSED), (0.10, Outcome.FAILED)])
def test_a_draw_is_judged_as_the_traces_that_it_stands_for(tmp_path: Path, change: float, expected: Outcome) -> None:
    gate = simulation.gate_of(simulation.GATES["8 rows"], "2%")
    before, after = Level("normal"), Level("normal", drift=-0.02, change=change)
    was, now = opened(tmp_path, before, 1, 5), opened(tmp_path, after, 2, 5)
    try:
        verdict: Verdict = evaluate(gate.assertions[0], GateContext(now, gate, OtherRun(now, gate, was)))
    finally:
        was.close()
        now.close()
    drawn = measured_pool((before, 1, 0, 5)), measured_pool((after, 2, 0, 5))
    assert simulation.outcome(simulation.R4, gate, *drawn) == verdict.outcome == expected


def test_no_trace_stands_on_both_sides() -> None:
    level = Level("normal")
    pool: list[Values] = [(number,) for number in range(simulation.MOST_OF_A_LEVEL)]
    for seed in range(50):
        drawn = simulation.draw(Random(seed), {level: pool}, [level] * len(pool), {level: 3})
        assert drawn[0] == (3,)
        assert sorted(drawn) == pool


def test_the_noise_is_what_the_table_says() -> None:
    factors = [normal(Random(number)) for number in range(4_000)]
    one, other = [f[0] for f in factors], [f[1] for f in factors]
    mean = sum(one) / len(one)
    variance = sum((x - mean) ** 2 for x in one) / len(one)
    covariance = sum((x - 1) * (y - 1) for x, y in zip(one, other, strict=True)) / len(one)
    assert len(factors[0]) == len(LABELS)
    assert mean == pytest.approx(1, abs=0.001)
    assert variance**0.5 == pytest.approx(0.02, rel=0.05)
    assert covariance / variance == pytest.approx(0.5, abs=0.05)


def test_heavy_tails_have_the_same_variance_and_more_far_out() -> None:
    factors = [row for number in range(500) for row in heavy_tails(Random(number))]
    plain = [row for number in range(500) for row in normal(Random(number))]
    assert (sum((x - 1) ** 2 for x in factors) / len(factors)) ** 0.5 == pytest.approx(0.02, rel=0.25)
    assert sum(abs(x - 1) > 0.08 for x in factors) > 3 * sum(abs(x - 1) > 0.08 for x in plain)


@pytest.mark.parametrize(("shape", "together"), [(outlying_rows, False), (outlying_captures, True)])
def test_one_in_twenty_lies_far_out(shape: Callable[[Random], tuple[float, ...]], together: bool) -> None:
    far = [[x > 1.1 for x in shape(Random(number))] for number in range(2_000)]
    assert sum(map(sum, far)) / (2_000 * len(LABELS)) == pytest.approx(0.05, abs=0.015)
    assert all(any(rows) == all(rows) for rows in far) is together


@pytest.mark.parametrize(
    ("runs", "expected"), [("FF", Outcome.FAILED), ("PF", Outcome.INCONCLUSIVE), ("FP", Outcome.PASSED)]
)
def test_the_last_of_bad_runs_in_a_row_is_red(monkeypatch: pytest.MonkeyPatch, runs: str, expected: Outcome) -> None:
    found = iter({"F": Outcome.FAILED, "P": Outcome.PASSED}[letter] for letter in runs)
    monkeypatch.setattr(simulation, "outcome", lambda *_: next(found))
    gate = simulation.gate_of(simulation.GATES["8 rows"], "5%")
    assert simulation.last_of(simulation.TWICE, gate, [], [(1,), (2,)]) is expected


def test_the_interval_is_wilsons() -> None:
    """As textbooks have it: of 10 trials none, and 3."""
    assert simulation.Trials(10, {}).interval(Outcome.FAILED) == pytest.approx((0, 0.2775), abs=1e-4)
    assert simulation.Trials(10, {Outcome.FAILED: 3}).interval(Outcome.FAILED) == pytest.approx(
        (0.1078, 0.6032), abs=1e-4
    )


@pytest.mark.parametrize(
    ("target", "red", "verdict"),
    [
        (simulation.Target(simulation.R3, 0.0, 0.01), 20, "met"),
        (simulation.Target(simulation.R3, 0.0, 0.01), 21, "MISSED?"),
        (simulation.Target(simulation.R3, 0.0, 0.01), 60, "MISSED"),
        (simulation.Target(simulation.R3, 0.1, 0.85, at_least=True), 1_700, "met"),
        (simulation.Target(simulation.R3, 0.1, 0.85, at_least=True), 1_699, "MISSED?"),
        (simulation.Target(simulation.R3, 0.1, 0.85, at_least=True), 1_500, "MISSED"),
    ],
)
def test_a_target_is_missed_by_its_share(target: simulation.Target, red: int, verdict: str) -> None:
    assert target.verdict(simulation.Trials(2_000, {Outcome.FAILED: red})) == verdict


@pytest.mark.parametrize(("noise", "said"), [(49, 0), (50, 0), (51, 1), (None, 0)])
def test_a_tolerance_is_tighter_than_noise_that_is_more(noise: int | None, said: int) -> None:
    row = JudgedRow({"rank": 0}, 1_000, 1_050, Outcome.PASSED, 1_000, 50, margin=50, noise=noise)
    limit = BaselineLimit(Tolerance(Fraction(1, 20), {}))
    assert len([*_warn_of_tolerance(limit, [row], "ns")]) == said


# One hiccup of any size, of whatever side

LEVEL_NS, TOLERANCE_NS = 400_000, 20_000
"""A row, and 5% of it. Each capture is within a quarter of that from the level, as nearly all are at a CV of 1 %."""


def scattered(random: Random, level_ns: int) -> Values:
    return tuple(level_ns + random.randint(-TOLERANCE_NS // 4, TOLERANCE_NS // 4) for _ in LABELS)


@pytest.mark.parametrize("rule", [simulation.R4_OF_5, simulation.OF_FIVE], ids=lambda rule: rule.name)
@pytest.mark.parametrize("side", ["before", "after", "none"])
@given(
    random=st.randoms(use_true_random=False),
    hiccup=st.tuples(st.integers(0, 9), st.integers(1, 10**9), st.booleans()),
    change_ns=st.one_of(st.just(0), st.integers(3 * TOLERANCE_NS, 30 * TOLERANCE_NS)),
)
def test_one_hiccup_of_any_size_changes_no_verdict(
    rule: simulation.Rule, side: str, random: Random, hiccup: tuple[int, int, bool], change_ns: int
) -> None:
    """Three tolerances more are red and an unchanged run is green, whatever one capture of five holds."""
    # Some ns apart, as no two captures are equal to the nanosecond.
    before = [scattered(random, LEVEL_NS + n) for n in range(5 if rule.captures else 10)]
    after = [scattered(random, LEVEL_NS + change_ns + 10 + n) for n in range(5)]
    place, value_ns, in_all_rows = hiccup
    hit = {"before": before, "after": after}.get(side, [])
    if hit:
        place %= len(hit)
        hit[place] = tuple(value_ns if in_all_rows or n == 3 else own for n, own in enumerate(hit[place]))
    gate = simulation.gate_of(simulation.GATES["8 rows"], "5%")
    expected = Outcome.FAILED if change_ns else Outcome.PASSED
    assert simulation.outcome(rule, gate, before, after) is expected
