"""Waits between hosts that are less than they may be wrong by have no row: what does a gate make of that?"""

from dataclasses import replace

import pytest

from pytest_nsys.analysis.metrics.table import UNSEEN_REASON, MetricTable
from pytest_nsys.core.model import Row, RowBelowError, Value
from pytest_nsys.gates.judgement import Judgement, Reference, judge_rows
from pytest_nsys.gates.model import Outcome
from pytest_nsys.gates.selection import find_absent_ranks
from tests.support.gate_files import asked
from tests.support.gates import Project
from tests.support.samples.data_parallel import DataParallelShape, write_data_parallel

HEAD = "convention: kineto\ntrace: run\nwindow: run\nassertions:\n"


def run_on_two_hosts(project: Project, late_us: int) -> None:
    """Rank 3 is late, or none is; ends tell waits from 42 us on."""
    write_data_parallel(project.root / "run", DataParallelShape(late_us=late_us, hosts=2))


def test_the_rank_that_waits_least_may_have_no_row(project: Project) -> None:
    run_on_two_hosts(project, 500)
    project.gate(HEAD + "  - collective_wait_ns <= 4ms\n  - max collective_wait_ns <= 1ms")
    cases = project.cases(code=1)
    assert [case.state for case in cases.values()] == ["passed", "failure"]
    assert "no wait of rank 3: it is below the error of 42 us" in cases.popitem()[1].text


def test_without_any_row_there_is_no_data_unless_that_is_right(project: Project) -> None:
    run_on_two_hosts(project, 0)
    sentence = "max collective_wait_ns <= 1ms"
    project.gate(HEAD + f"  - {sentence}\n  - {{assert: {sentence}, id: healthy, allow_no_data: true}}")
    cases = project.cases(code=1)
    assert [case.state for case in cases.values()] == ["failure", "passed"]
    assert f"no data: {UNSEEN_REASON}" in next(iter(cases.values())).text


def test_a_baseline_of_such_rows_is_complete(project: Project) -> None:
    """That a rank has no row in it is no gap, and the run that it was made of passes."""
    run_on_two_hosts(project, 500)
    project.gate(HEAD + "  - collective_wait_ns below baseline plus 5%")
    project.refresh()
    assert [case.state for case in project.cases(code=0).values()] == ["passed"]


def table(rows: dict[tuple[int, str], Value], unseen: dict[tuple[int, str], Value] | None = None) -> MetricTable:
    found = [Row((rank, "dp", kind), value) for (rank, kind), value in rows.items()]
    hidden = dict(RowBelowError((rank, "dp", kind), error) for (rank, kind), error in (unseen or {}).items())
    return MetricTable(("rank", "group", "collective"), found, {0: {}, 1: {}}, unseen=hidden)


def said(now: MetricTable, before: MetricTable, *, excused: bool = False) -> Judgement:
    assertion = asked("collective_wait_ns below baseline plus 5%")
    return judge_rows(replace(assertion, allow_no_data=excused), now, Reference([before]))


R = "AllReduce"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(499, Outcome.PASSED), (500, Outcome.PASSED), (501, Outcome.NO_DATA), (None, Outcome.NO_DATA)],
)
def test_a_row_that_is_gone_passes_where_it_is_certainly_less(error: int | None, outcome: Outcome) -> None:
    now = table({(0, R): 900}, {} if error is None else {(1, R): error})
    before = table({(0, R): 900, (1, R): 500})
    assert said(now, before).outcome == outcome


@pytest.mark.parametrize(("error", "outcome"), [(500, Outcome.PASSED), (501, Outcome.NO_DATA)])
def test_where_every_row_is_gone_that_must_be_excused_too(error: int, outcome: Outcome) -> None:
    now, before = table({}, {(0, R): 9, (1, R): error}), table({(0, R): 9, (1, R): 500})
    assert said(now, before).outcome == Outcome.NO_DATA
    assert said(now, before, excused=True).outcome == outcome


def test_a_row_that_could_not_be_seen_before_is_no_data() -> None:
    now, before = table({(0, R): 900, (1, R): 500}), table({(0, R): 900}, {(1, R): 100})
    assert said(now, before).outcome == Outcome.NO_DATA


def test_what_is_not_seen_is_no_absence() -> None:
    assert find_absent_ranks(table({(0, R): 900}, {(1, R): 500})) == []
    assert [each.rank for each in find_absent_ranks(table({(0, R): 900}))] == [1]
