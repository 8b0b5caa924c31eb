"""The rule beside a pipeline's score, the circumstances that are compared, and the values that a metric cannot have."""

from __future__ import annotations

from fractions import Fraction

import pytest

from pytest_nsys.gates.comparability import differences, shown
from pytest_nsys.gates.judgement import Judgement, amounting
from pytest_nsys.gates.pipeline_rule import with_rule
from pytest_nsys.gates.value_range import impossible
from pytest_nsys.gates.verdict import JudgedRow, Outcome
from pytest_nsys.metrics import METRICS
from pytest_nsys.model import Value

KEY = (("rank", 0),)


def ruled(serialization: Value | None, outcome: Outcome = Outcome.PASSED, value: Value | None = 1) -> Judgement:
    row = JudgedRow({"rank": 0}, value, Fraction(1, 2), outcome, margin=Fraction(1, 4))
    return with_rule(amounting([row]), {} if serialization is None else {KEY: serialization})


@pytest.mark.parametrize(
    ("serialization", "outcome", "margin"),
    [
        (Fraction(1, 10), Outcome.PASSED, Fraction(1, 4)),
        (Fraction(2, 5), Outcome.PASSED, Fraction(1, 10)),
        (Fraction(1, 2), Outcome.FAILED, 0),  # halfway is not nearer
        (Fraction(3, 5), Outcome.FAILED, Fraction(-1, 10)),
    ],
)
def test_a_row_is_held_to_the_rule_beside_its_limit(serialization: Value, outcome: Outcome, margin: Value) -> None:
    found = ruled(serialization)
    assert (found.outcome, found.rows[0].margin) == (outcome, margin)
    assert ruled(serialization, Outcome.FAILED).outcome is Outcome.FAILED


def test_a_row_whose_stages_are_not_known_is_no_data() -> None:
    assert ruled(None).outcome is Outcome.NO_DATA
    lost = ruled(Fraction(3, 5), Outcome.NO_DATA, None)
    assert (lost.outcome, lost.rows[0].outcome) == (Outcome.NO_DATA, Outcome.NO_DATA)
    nothing = Judgement(Outcome.PASSED)
    assert with_rule(nothing, {}) is nothing


def test_circumstances_that_differ_are_told_in_words() -> None:
    now = {"world": 4, "gpu": None, "mesh": {"pp": 2, "dp": 2}, "batch": 3}
    was = {"world": 8, "gpu": "H100", "mesh": {"pp": 4, "dp": 1}, "batch": None}
    found = {d.name: (d.now, d.baseline) for d in differences(now, was)}
    assert found == {"world": ("4", "8"), "gpu": ("not stated", "H100"), "mesh": ("pp=2 dp=2", "pp=4 dp=1")}
    assert [d.name for d in differences(now, was, ("gpu",))] == ["gpu"]
    assert (shown(["a", 1]), shown(0)) == ("a, 1", "0")


@pytest.mark.parametrize(
    ("value", "wrong"), [(0, False), (1, False), (Fraction(101, 100), True), (Fraction(-1, 100), True)]
)
def test_a_ratio_is_between_nothing_and_all(value: Value, wrong: bool) -> None:
    assert (impossible(Fraction(value), METRICS["overlap"]) is not None) is wrong
