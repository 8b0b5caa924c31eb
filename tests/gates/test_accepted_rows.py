"""Is a row accepted where it is what the branch stored, by tolerance and noise of the merge base, and else never?"""

from dataclasses import replace
from fractions import Fraction

import pytest

from pytest_nsys.analysis.metrics.table import MetricTable
from pytest_nsys.core.model import Row, Value
from pytest_nsys.gates.accepted_rows import LET_PASS_HINT, AcceptanceTexts, BranchRefresh, accept_rows
from pytest_nsys.gates.judgement import Judgement, Reference, apply_pipeline_rule, judge_rows
from pytest_nsys.gates.model import Assertion, Outcome, Severities, Severity
from tests.support.gate_files import asked

WITHIN = "comm_ns below baseline plus 5%"
ABOVE = "comm_ns above baseline minus 5%"
EXACT = "comm_ns == baseline"


def runs(*values: Value | None) -> list[MetricTable]:
    """Runs of one rank; None: of no row at all but another's."""
    return [MetricTable(("rank",), [Row((0 if v is not None else 1,), v or 7)], {}) for v in values]


def decided(
    sentence: str, base: list[Value], now: Value, own: list[Value | None], noise: tuple[Value, ...] = ()
) -> tuple[Judgement, str]:
    """The judgement, and what is said of it."""
    assertion, (table,) = asked(sentence), runs(now)
    judgement = judge_rows(assertion, table, Reference(runs(*base), runs(*noise)))
    assert judgement.outcome is Outcome.FAILED
    found, said = accept_rows(assertion, judgement, table, BranchRefresh(Reference(runs(*own)), "why"), lets_pass=True)
    return found, said.message_suffix


@pytest.mark.parametrize(
    ("sentence", "base", "now", "own", "accepted"),
    [
        (WITHIN, [100], 200, [200], True),
        (WITHIN, [100], 210, [200], True),
        (WITHIN, [100], 211, [200], False),
        (WITHIN, [100], 190, [200], True),
        (WITHIN, [100], 189, [200], False),
        (WITHIN, [100], 200, [100, 200, 300], True),
        (WITHIN, [100], 200, [100, 100, 200], False),
        (WITHIN, [100], 200, [None], False),
        (ABOVE, [100], 50, [50], True),
        (ABOVE, [100], 47, [50], False),
        (ABOVE, [100], 53, [50], False),
        (EXACT, [100], 200, [200], True),
        (EXACT, [100], 200, [201], False),
    ],
)
def test_a_row_is_what_the_branch_stored(
    sentence: str, base: list[Value], now: Value, own: list[Value | None], *, accepted: bool
) -> None:
    found, said = decided(sentence, base, now, own)
    assert found.outcome is (Outcome.ACCEPTED if accepted else Outcome.FAILED)
    assert said.startswith(
        "; accepted on this branch (why)" if accepted else "; not accepted on this branch: rank 0 is "
    )
    assert [row.outcome for row in found.rows] == [found.outcome]


def test_noise_is_that_of_the_merge_base() -> None:
    """Of a branch neither its calibration nor runs that lie far apart widen anything."""
    noise = tuple(100 + off for off in (-4, -2, 0, 2, 4))
    wide, _ = decided(WITHIN, [100], 215, [200], noise)
    assert wide.outcome is Outcome.ACCEPTED
    assert decided(WITHIN, [100], 215, [200])[0].outcome is Outcome.FAILED
    assert decided(WITHIN, [100], 215, [100, 150, 200, 250, 300])[0].outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("word", "base", "now", "own", "accepted"),
    [("new", None, 5, 5, True), ("new", None, 5, 9, True), ("new", None, 5, None, False)],
)
def test_a_row_of_one_side(word: str, base: Value | None, now: Value, own: Value | None, *, accepted: bool) -> None:
    assertion = asked(f"no {word} kernels")

    def table(value: Value | None) -> MetricTable:
        kept = Row((0, "stage1_f", "gemm"), 3)
        rows = [kept] if value is None else [kept, Row((0, "stage1_f", "cast"), value)]
        return MetricTable(("rank", "stage", "kernel"), rows, {})

    judgement = judge_rows(assertion, table(now), Reference([table(base)]))
    found, _ = accept_rows(
        assertion, judgement, table(now), BranchRefresh(Reference([table(own)]), "why"), lets_pass=True
    )
    assert found.outcome is (Outcome.ACCEPTED if accepted else Outcome.FAILED)


def held(now: Value = 200) -> tuple[Assertion, Judgement]:
    (table,) = runs(now)
    return asked(WITHIN), judge_rows(asked(WITHIN), table, Reference(runs(100)))


OWN = BranchRefresh(Reference(runs(200)), "why")


def accepted(
    judgement: Judgement,
    refreshed: BranchRefresh | None = OWN,
    *,
    severity: Severity = Severity.FAIL,
    lets_pass: bool = True,
) -> tuple[Judgement, AcceptanceTexts]:
    return accept_rows(
        replace(asked(WITHIN), severity=Severities(severity)), judgement, runs(200)[0], refreshed, lets_pass=lets_pass
    )


def test_what_breaks_the_rule_of_a_pipeline_is_not_accepted() -> None:
    _, judgement = held()
    found, said = accepted(apply_pipeline_rule(judgement, {(("rank", 0),): Fraction(3, 5)}))
    assert found.outcome is Outcome.FAILED
    assert (
        said.message_suffix
        == "; not accepted on this branch: rank 0 breaks the rule of the pipeline, which no baseline accepts"
    )
    assert accepted(apply_pipeline_rule(judgement, {(("rank", 0),): Fraction(2, 5)}))[0].outcome is Outcome.ACCEPTED


def test_nothing_is_said_where_the_branch_refreshed_nothing() -> None:
    _, judgement = held()
    assert accepted(judgement, None)[1].message_suffix == ""
    said = accepted(judgement, BranchRefresh(None, refused="why not"))[1].message_suffix
    assert said == "; not accepted on this branch: why not"
    fine = judge_rows(asked(WITHIN), runs(100)[0], Reference(runs(100)))
    assert accepted(fine)[0] is fine


@pytest.mark.parametrize(
    ("lets_pass", "severity", "said"),
    [(True, Severity.FAIL, ""), (False, Severity.FAIL, LET_PASS_HINT), (False, Severity.WARN, "")],
)
def test_what_has_to_be_done_before_it_is_green(severity: Severity, said: str, *, lets_pass: bool) -> None:
    _, judgement = held()
    _, found = accepted(judgement, severity=severity, lets_pass=lets_pass)
    assert found.message_suffix == "; accepted on this branch (why)" + (
        f"; stays red until somebody lets it pass: {said}" if said else ""
    )
    assert found.warning == ("" if said else "accepted on this branch: rank 0 100 ns → 200 ns (+100%): why")


def test_what_is_better_and_has_to_be_stored_is_accepted_too() -> None:
    assertion = replace(asked(WITHIN), severity=Severities(improved=Severity.FAIL))
    judgement = judge_rows(assertion, runs(80)[0], Reference(runs(100)))
    found, _ = accept_rows(assertion, judgement, runs(80)[0], BranchRefresh(Reference(runs(80)), "why"), lets_pass=True)
    assert found.outcome is Outcome.ACCEPTED
