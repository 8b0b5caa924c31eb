"""Which rank, or stage of it, lacks a row that others have, and is it ever covered by them?"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pytest_nsys import judge, open_run
from pytest_nsys.analysis.metrics.table import MetricTable, NothingSelected, Selector
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.model import Label, Row
from pytest_nsys.gates.model import Verdict
from pytest_nsys.gates.selection import (
    AbsentRank,
    describe_absent_ranks,
    find_absent_ranks,
    format_allow_missing,
    select_complete_rows,
)
from tests.support.gates import Project
from tests.support.mutated_step import STAGES, STREAM, Step, missing
from tests.support.sql import execute

GONE = "rank 1 has no row, though rank 0 has"
SENTENCES = """
- overlap >= 75%
- stage2_f overlap >= 75%
- median overlap >= 75%
- max exposed_ns <= 1ms
- wall_overlap >= 75%
- {assert: overlap >= 1%, allow_no_data: true, id: allowed}
- {assert: overlap >= 99%, severity: warn, id: warned}
- {assert: overlap >= 99%, xfail: known, id: expected}
- {assert: overlap >= 75%, where: {rank: [0, 2, 3]}, id: others}
- compute_ns <= 1s
"""


def step_without_communication(path: Path, longer_ns: int = 0) -> None:
    """Rank 1 computes as it did, and none of its communication was recorded; rank 0 may compute longer."""
    step = Step()
    step.visits[0, STAGES[0]].compute_ns += longer_ns
    for stage in STREAM:
        step.visits[1, stage].comm_ns = 0
    step.write(path)


def test_what_is_left_is_no_answer_for_all(project: Project) -> None:
    """The lie: 'worst of 9' where twelve rows should be."""
    project.gate(SENTENCES)
    step_without_communication(project.root / "run.sqlite")
    cases = project.cases("--nsys-trace=run.sqlite", code=1)
    outcomes = [case.properties["nsys_outcome"] for case in cases.values()]
    assert outcomes == ["no data"] * 8 + ["passed"] * 2
    assert all(GONE in case.properties["nsys_message"] for case in list(cases.values())[:8])
    assert {case.state for case in list(cases.values())[:8]} == {"failure"}


def judged(project: Project, gate: str) -> list[Verdict]:
    """What each assertion of a gate file says of the run."""
    return [*judge(project.gate(gate), open_run(project.root / "run.sqlite"))]


def test_a_stage_of_a_rank(project: Project) -> None:
    gate = "- overlap >= 75%\n- stage1 overlap >= 75%\n- stage2 overlap >= 75%\n- launches < 9"
    step = Step()
    missing(step, "stage1_f", ranks=[3])
    step.write(project.root / "run.sqlite")
    found = judged(project, gate)
    assert [verdict.outcome for verdict in found] == ["no data", "no data", "passed", "no data"]
    assert "rank 3 has no row of stage stage1_f, though rank 2 has" in found[0].message
    missing(step, "stage1_f", ranks=[2])
    step.write(project.root / "run.sqlite")
    assert all(verdict.good for verdict in judged(project, gate))  # the end of the pipeline has no such stage


WALL = "{assert: wall_overlap >= 75%, allow_missing: {'*': 2}}"
WAIVER = "waivers: [{assertion: overlap >= 90%, ceiling: 70%, expires: 2999-01-01, reason: known}]"


@pytest.mark.parametrize(
    ("gate", "outcomes"),
    [
        ("allow_missing: {'*': [1]}\nassertions: [overlap >= 75%, wall_overlap >= 75%]", ["passed", "passed"]),
        ("allow_missing: {stage*: 1}\nassertions: [overlap >= 75%, wall_overlap >= 75%]", ["passed", "no data"]),
        (f"allow_missing: {{'*': 1}}\nassertions: [overlap >= 75%, {WALL}]", ["passed", "no data"]),
        (f"assertions: [overlap >= 90%]\n{WAIVER}", ["no data"]),  # a waiver is no leave from it
    ],
)
def test_what_the_gate_file_says_of_them(project: Project, gate: str, outcomes: list[str]) -> None:
    step_without_communication(project.root / "run.sqlite")
    assert [verdict.outcome for verdict in judged(project, gate)] == outcomes


def test_it_is_no_new_normal(project: Project) -> None:
    project.gate("tolerance: {rel: 5%, abs: 50us}\nassertions: [exposed_ns below baseline plus tolerance]")
    step_without_communication(project.root / "run.sqlite")
    assert GONE in project.refresh("--nsys-trace=run.sqlite", code=1)
    assert not project.baselines()


def test_neither_side_of_a_comparison_covers_it(project: Project) -> None:
    project.gate("tolerance: {rel: 5%, abs: 50us}\nassertions: [exposed_ns below baseline plus tolerance]")
    step_without_communication(project.root / "lost.sqlite")
    Step().write(project.root / "whole.sqlite")
    step_without_communication(project.root / "again.sqlite", longer_ns=7)
    for base, head in (("lost", "whole"), ("whole", "lost"), ("lost", "again")):
        said = project.command("compare", f"{base}.sqlite", f"{head}.sqlite", "--gate=gate.nsys.yaml", code=3)
        assert "rank 1" in said


def test_the_command_that_shows_rows_tells(project: Project) -> None:
    step_without_communication(project.root / "run.sqlite")
    assert f"warning: overlap: {GONE}" in project.command("rows", "overlap", "--trace=run.sqlite", code=0)
    assert GONE not in project.command("rows", "overlap", "--trace=run.sqlite", "--rank=0", "--rank=2", code=0)


def test_a_draft_says_who_has_no_row(project: Project) -> None:
    step = Step()
    missing(step, "stage1_f", ranks=[3])
    step.write(project.root / "run.sqlite")
    project.command("init", "run.sqlite", "-o", "drafted.nsys.yaml", code=0)
    assert "\nallow_missing: {stage1_f: [3]}\n" in (project.root / "drafted.nsys.yaml").read_text(encoding="utf-8")
    project.pytest("drafted.nsys.yaml", code=0)


@pytest.mark.parametrize("which", ["of a stream", "one in the window"])
def test_kernels_of_no_process_are_damage(project: Project, which: str) -> None:
    """They could be of any rank: without them it looks as if it had done nothing, or less."""
    project.gate_with_trace("- overlap >= 75%\n- rank 0 overlap >= 75%")
    of_rank = "streamId = 28 AND globalPid = (SELECT max(globalPid) FROM CUPTI_ACTIVITY_KIND_KERNEL)"
    some = of_rank if which == "of a stream" else f"{of_rank} AND start > 40001000 ORDER BY start LIMIT 1"
    table = "CUPTI_ACTIVITY_KIND_KERNEL"
    gone = f"UPDATE {table} SET globalPid = NULL WHERE rowid IN (SELECT rowid FROM {table} WHERE {some})"
    execute(project.root / "run.sqlite", gone)
    for case in project.cases("--nsys-trace=run.sqlite", code=1).values():
        assert case.properties["nsys_outcome"] == "error"
        assert "a kernel on device 0 has no process: its globalPid is NULL" in case.properties["nsys_message"]


PP = {0: {"pp": 0, "dp": 0}, 1: {"pp": 0, "dp": 1}, 2: {"pp": 1, "dp": 0}, 3: {"pp": 1, "dp": 1}}
Place = tuple[Label, ...]


def table(
    *places: Place,
    dimensions: Sequence[str] = ("rank", "stage"),
    mesh: Mapping[int, Mapping[str, int]] = PP,
    every_stage: bool = False,
) -> MetricTable:
    return MetricTable(tuple(dimensions), [Row(place, 1) for place in places], mesh, {}, every_stage)


def where(**selectors: str) -> dict[str, Selector]:
    return {dimension: Selector((value,)) for dimension, value in selectors.items()}


FULL: tuple[Place, ...] = ((0, "a"), (1, "a"), (2, "b"), (3, "b"))


def test_ranks_of_one_place_have_the_same_stages_and_those_of_two_need_not() -> None:
    assert find_absent_ranks(table(*FULL)) == []
    assert find_absent_ranks(table(*FULL, (0, "c"))) == [AbsentRank(1, ("c",), 0, False)]
    assert find_absent_ranks(table(*FULL[1:])) == [AbsentRank(0, ("a",), 1, True)]
    without = {rank: {"dp": place["dp"]} for rank, place in PP.items()}
    assert [each.rank for each in find_absent_ranks(table(*FULL, mesh=without))] == [0, 1, 2, 3]


def test_a_place_without_any_row_is_held_to_all_stages() -> None:
    assert find_absent_ranks(table(*FULL[:2])) == [AbsentRank(2, ("a",), 0, True), AbsentRank(3, ("a",), 0, True)]


def test_the_one_that_has_it_is_of_the_own_place_where_there_is_one() -> None:
    found = find_absent_ranks(table((0, "a"), (2, "a"), (3, "a"), (1, "b"), (0, "b")))
    assert found == [AbsentRank(1, ("a",), 0, False)]
    (only,) = find_absent_ranks(table((0, "a"), (1, "a"), (3, "a")))
    assert (only.rank, only.example_rank) == (2, 3)


@pytest.mark.parametrize(
    ("selectors", "ranks"),
    [
        ({}, [1]),
        ({"rank": "1"}, [1]),
        ({"rank": "0"}, []),
        ({"stage": "c"}, [1]),
        ({"stage": "a"}, []),
        ({"dp": "1"}, [1]),
        ({"dp": "0"}, []),
        ({"pp": "0", "stage": "c"}, [1]),
        ({"pp": "1", "stage": "c"}, []),
    ],
)
def test_only_what_the_selectors_mean_is_missed(selectors: dict[str, str], ranks: list[int]) -> None:
    assert [each.rank for each in find_absent_ranks(table(*FULL, (0, "c")), where(**selectors))] == ranks


def test_sparse_dimensions_are_not_compared() -> None:
    rows: tuple[Place, ...] = ((0, "x"), (0, "y"), (1, "x"))
    mesh = {0: {"pp": 0}, 1: {"pp": 0}}
    assert find_absent_ranks(table(*rows, dimensions=("rank", "group"), mesh=mesh)) == []
    assert find_absent_ranks(table(rows[0], dimensions=("rank", "group"), mesh=mesh), where(group="x")) == [
        AbsentRank(1, ("",), 0, True)
    ]
    assert find_absent_ranks(table((7,), dimensions=("family",))) == []


def test_kernels_without_a_stage_are_missed_only_where_they_are_asked_for() -> None:
    rows: tuple[Place, ...] = (*FULL, (0, NO_STAGE))
    assert find_absent_ranks(table(*rows)) == []
    assert find_absent_ranks(table(*rows), where(stage="*")) == []
    assert find_absent_ranks(table(*rows), where(stage=NO_STAGE)) == [AbsentRank(1, (NO_STAGE,), 0, False)]


def test_kernels_without_a_stage_are_missed_where_nothing_else_could_be() -> None:
    """Of a metric with a row for every stage of the convention, those without one among them."""
    assert find_absent_ranks(table(*FULL, (0, NO_STAGE), every_stage=True)) == []
    none = table((0, NO_STAGE), (2, NO_STAGE), (3, NO_STAGE), every_stage=True)
    assert find_absent_ranks(none) == [AbsentRank(1, (NO_STAGE,), 0, True)]


def test_what_is_excused_by_stage_and_rank_is_not_missed() -> None:
    rows = table(*FULL, (0, "c"))
    assert find_absent_ranks(rows, None, {"c": frozenset({1})}) == []
    assert find_absent_ranks(rows, None, {"*": frozenset({1})}) == []
    assert [each.rank for each in find_absent_ranks(rows, None, {"c": frozenset({0})})] == [1]
    assert [each.rank for each in find_absent_ranks(rows, None, {"a": frozenset({1})})] == [1]
    assert find_absent_ranks(rows, None, {"[c]": frozenset({1, 3})}) == []
    flat = MetricTable(("rank",), [Row((0,), 1)], {0: {}, 1: {}}, no_row_reason="nobody knows")
    assert str(find_absent_ranks(flat)[0]) == "rank 1 has no row, though rank 0 has (nobody knows)"
    assert find_absent_ranks(flat, {}, {"stage1": frozenset({1})})
    assert find_absent_ranks(flat, {}, {"*": frozenset({1})}) == []


def test_who_is_missing_is_said_with_what_to_write() -> None:
    found = find_absent_ranks(table(*FULL[:2]))
    assert format_allow_missing(found) == 'allow_missing: {"*": [2, 3]}'
    assert describe_absent_ranks(found) == (
        "rank 2 has no row, though rank 0 has (and 1 more rank); where that is right, select other ranks or write "
        'allow_missing: {"*": [2, 3]}'
    )
    assert format_allow_missing(find_absent_ranks(table(*FULL, (2, "c"), (0, "d"), mesh={**PP, 4: {"pp": 1}}))) == (
        'allow_missing: {"*": [4], c: [3], d: [1]}'
    )
    some = find_absent_ranks(table(*FULL, *((0, stage) for stage in "cdef")))
    assert str(some[0]) == "rank 1 has no row of stages c, d, e …, though rank 0 has"
    assert str(find_absent_ranks(table(*FULL, (0, "c")))[0]) == "rank 1 has no row of stage c, though rank 0 has"
    with pytest.raises(NothingSelected, match="rank 2 has no row, though rank 0 has"):
        select_complete_rows(table(*FULL[:2]), {})
    assert len(select_complete_rows(table(*FULL), {})) == 4
