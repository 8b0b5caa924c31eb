"""Does the simulation of noise judge what a gate would? Its draws stand for captures that were really opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.run import Run
from pytest_nsys.core.conventions import BUILT_IN
from pytest_nsys.gates.verdict import Outcome, Verdict
from pytest_nsys.traces.opening import open_trace
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


def opened(folder: Path, level: Level, seed: int, count: int) -> Captures:
    """The first captures of a level, as files that are open together."""
    paths = []
    for number in range(count):
        paths.append(folder / f"{level.change}-{number}.sqlite")
        write_trace(paths[-1], level.factors(Random(f"{seed}:{level}:{number}")))
    return Captures([Run([open_trace(path)], BUILT_IN["pithtrain"]) for path in paths])


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
