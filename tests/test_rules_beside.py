"""The rule beside a pipeline's score, the circumstances that are compared, and the values that a metric cannot have."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_nsys.gates.assertion import Assertion, Comparator, Constant, Location, Requirement
from pytest_nsys.gates.bad_runs import BadRuns, PastRun
from pytest_nsys.gates.baseline_file import Baseline, Series, SeriesId
from pytest_nsys.gates.comparability import differences, shown
from pytest_nsys.gates.judgement import Judgement, amounting
from pytest_nsys.gates.pipeline_rule import with_rule
from pytest_nsys.gates.value_range import impossible
from pytest_nsys.gates.verdict import JudgedRow, Outcome
from pytest_nsys.metrics import METRICS
from pytest_nsys.model import Value
from pytest_nsys.references import StoredBaseline
from pytest_nsys.refresh import Written
from pytest_nsys.refresh_modes import Mode
from pytest_nsys.verdicts import _of_earlier_runs, _pipeline_message

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


# What is said of a red


RULED = Assertion(
    "hidden",
    "hidden",
    Location(Path("g"), 1, 1),
    "overlap_score",
    Requirement(Comparator.GE, Constant(Fraction(1, 2)), ""),
)


def bad_runs(branch: str, *days: int) -> BadRuns:
    return BadRuns(branch, tuple(PastRun(f"2026-01-0{day}T00:00:00Z", None, True) for day in days))


def earlier(fail_after: int, before: BadRuns | None, there: BadRuns | None, *, history: bool = True) -> str:
    past: Any = SimpleNamespace(path=Path("h.db") if history else None, there=lambda _: there)
    return _of_earlier_runs(replace(RULED, fail_after=fail_after), past, before)


@pytest.mark.parametrize(
    ("before", "there", "said"),
    [
        (bad_runs("dev"), None, "; bad run 1 of 2 in a row on dev (fail_after)"),
        (bad_runs("dev", 9), None, "; bad run 2 of 2 in a row on dev, since 2026-01-09 (fail_after)"),
        (bad_runs("dev", 9, 8), None, "; bad run 3 in a row on dev, since 2026-01-08 (fail_after)"),
        (bad_runs("dev"), bad_runs("main"), "; bad run 1 of 2 in a row on dev (fail_after)"),
        (bad_runs("main"), bad_runs("main", 7), "; bad run 1 of 2 in a row on main (fail_after)"),
        (
            bad_runs("dev"),
            bad_runs("main", 7),
            "; bad run 1 of 2 in a row on dev (fail_after); already red on main since 2026-01-07",
        ),
        (None, None, "; fail_after counts the runs of a branch, and git names none here: the first bad run fails"),
    ],
)
def test_a_red_says_which_one_in_a_row_it_is_and_what_was_red_before(
    before: BadRuns | None, there: BadRuns | None, said: str
) -> None:
    assert earlier(2, before, there) == said


def test_without_fail_after_only_the_other_branch_is_told_of() -> None:
    assert earlier(1, None, bad_runs("main", 7)) == "; already red on main since 2026-01-07"
    assert (earlier(1, None, None), earlier(1, None, bad_runs("main"))) == ("", "")
    in_no_history = "; fail_after counts in a history (--nsys-history), and none is given here: the first bad run fails"
    assert earlier(2, None, None, history=False) == _of_earlier_runs(replace(RULED, fail_after=2), None, None)
    assert earlier(2, None, None, history=False) == in_no_history


def test_a_pipeline_says_which_half_of_its_sentence_does_not_hold_and_where() -> None:
    low = JudgedRow({"rank": 0}, Fraction(1, 3), Fraction(1, 2), Outcome.FAILED, serialization=Fraction(1, 4))
    serial = JudgedRow({"rank": 1}, 1, Fraction(1, 2), Outcome.FAILED, serialization=Fraction(1, 2))
    fine = replace(serial, outcome=Outcome.PASSED, serialization=Fraction(1, 4))
    waived = replace(low, outcome=Outcome.PASSED)
    rule = "the period is no nearer the longer stage than the sum of both"
    assert [_pipeline_message(RULED, rows, "below") for rows in ([low], [serial], [low, fine], [serial, waived])] == [
        "the score is below its limit",
        rule,
        "the score is below its limit in 1 of 2 rows",
        f"{rule} in 1 of 2 rows",
    ]
    both = f"the score is below its limit in 1 of 3 rows, and {rule} in 1 of 3 rows"
    assert _pipeline_message(RULED, [low, serial, fine], "below") == both


def baseline(*values: Value) -> Baseline:
    rows: dict[tuple[Any, ...], list[Value]] = {(0,): list(values)}
    return Baseline({}, "g", series={NS: Series("ns", "lower", ("rank",), rows)} if values else {})


NS = SeriesId("comm_ns", 1, "median", "anchor", "contained")


@pytest.mark.parametrize(
    ("mode", "old", "new", "saved", "words"),
    [
        (Mode.ALL, None, baseline(5), True, "new file, 1 row"),
        (Mode.ALL, baseline(4), baseline(5), True, "1 row changed"),
        (Mode.ALL, baseline(5), baseline(5), False, "every row has its value already; unchanged"),
        (Mode.MOVED, baseline(5), baseline(5), False, "no row moved beyond its tolerance; unchanged"),
        (Mode.ACCEPT_RUN, baseline(5), baseline(5, 6), True, "run accepted, 2 runs kept"),
        (Mode.ACCEPT_RUN, baseline(5), baseline(), True, "run accepted, 0 runs kept"),
        (Mode.CALIBRATE, baseline(5), baseline(5), True, "the accepted runs are as they were, their noise is new"),
        (Mode.CALIBRATE, baseline(4), baseline(5), True, "1 row changed"),
    ],
)
def test_a_refresh_says_what_became_of_the_file(
    mode: Mode, old: Baseline | None, new: Baseline, saved: bool, words: str
) -> None:
    assert Written(Path("b.json"), mode, old, new, saved).words == words


def test_a_measurement_that_is_not_stored_is_told_from_one_that_was_made_in_another_way() -> None:
    shelf: Any = SimpleNamespace(files=SimpleNamespace(origin=""))
    source = StoredBaseline(cast(Any, None), cast(Any, None), shelf)
    stored = baseline(5)
    wanted = replace(NS, window="run", kernels="clipped")
    told = source._without("busy_ns", wanted, Path("b.json"), stored)
    assert (told.outcome, told.reason) == (Outcome.NO_DATA, "b.json holds no busy_ns")
    told = source._without("comm_ns", wanted, Path("b.json"), stored)
    how = "comm_ns in b.json was measured with window median, now run, kernels contained, now clipped"
    assert (told.outcome, told.reason) == (Outcome.INCOMPARABLE, how)
    assert [(d.name, d.now, d.baseline) for d in told.differences] == [
        ("window", "run", "median"),
        ("kernels", "clipped", "contained"),
    ]
