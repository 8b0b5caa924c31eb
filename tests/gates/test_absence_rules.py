"""Which rank lacks a row that others have? Tables of a few rows: by pipeline place, by stage, under selectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from pytest_nsys.analysis.table import NothingSelected, Selector, Table
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.model import Label, Row
from pytest_nsys.gates.absence import Absence, absences, complete, excuse, told

PP = {0: {"pp": 0, "dp": 0}, 1: {"pp": 0, "dp": 1}, 2: {"pp": 1, "dp": 0}, 3: {"pp": 1, "dp": 1}}
Place = tuple[Label, ...]


def table(
    *places: Place,
    dimensions: Sequence[str] = ("rank", "stage"),
    mesh: Mapping[int, Mapping[str, int]] = PP,
    every_stage: bool = False,
) -> Table:
    return Table(tuple(dimensions), [Row(place, 1) for place in places], mesh, {}, every_stage)


def where(**selectors: str) -> dict[str, Selector]:
    return {dimension: Selector((value,)) for dimension, value in selectors.items()}


FULL: tuple[Place, ...] = ((0, "a"), (1, "a"), (2, "b"), (3, "b"))


def test_ranks_of_one_place_have_the_same_stages_and_those_of_two_need_not() -> None:
    assert absences(table(*FULL)) == []
    assert absences(table(*FULL, (0, "c"))) == [Absence(1, ("c",), 0, False)]
    assert absences(table(*FULL[1:])) == [Absence(0, ("a",), 1, True)]
    without = {rank: {"dp": place["dp"]} for rank, place in PP.items()}
    assert [each.rank for each in absences(table(*FULL, mesh=without))] == [0, 1, 2, 3]


def test_a_place_without_any_row_is_held_to_all_stages() -> None:
    assert absences(table(*FULL[:2])) == [Absence(2, ("a",), 0, True), Absence(3, ("a",), 0, True)]


def test_the_one_that_has_it_is_of_the_own_place_where_there_is_one() -> None:
    found = absences(table((0, "a"), (2, "a"), (3, "a"), (1, "b"), (0, "b")))
    assert found == [Absence(1, ("a",), 0, False)]
    (only,) = absences(table((0, "a"), (1, "a"), (3, "a")))
    assert (only.rank, only.other) == (2, 3)


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
    assert [each.rank for each in absences(table(*FULL, (0, "c")), where(**selectors))] == ranks


def test_sparse_dimensions_are_not_compared() -> None:
    rows: tuple[Place, ...] = ((0, "x"), (0, "y"), (1, "x"))
    mesh = {0: {"pp": 0}, 1: {"pp": 0}}
    assert absences(table(*rows, dimensions=("rank", "group"), mesh=mesh)) == []
    assert absences(table(rows[0], dimensions=("rank", "group"), mesh=mesh), where(group="x")) == [
        Absence(1, ("",), 0, True)
    ]
    assert absences(table((7,), dimensions=("family",))) == []
    assert absences(table((0, "cudaDeviceSynchronize"), dimensions=("rank", "call"))) == []


def test_kernels_without_a_stage_are_missed_only_where_they_are_asked_for() -> None:
    rows: tuple[Place, ...] = (*FULL, (0, NO_STAGE))
    assert absences(table(*rows)) == []
    assert absences(table(*rows), where(stage="*")) == []
    assert absences(table(*rows), where(stage=NO_STAGE)) == [Absence(1, (NO_STAGE,), 0, False)]


def test_kernels_without_a_stage_are_missed_where_nothing_else_could_be() -> None:
    """Of a metric with a row for every stage of the convention, those without one among them."""
    assert absences(table(*FULL, (0, NO_STAGE), every_stage=True)) == []
    none = table((0, NO_STAGE), (2, NO_STAGE), (3, NO_STAGE), every_stage=True)
    assert absences(none) == [Absence(1, (NO_STAGE,), 0, True)]


def test_what_is_excused_by_stage_and_rank_is_not_missed() -> None:
    rows = table(*FULL, (0, "c"))
    assert absences(rows, None, {"c": frozenset({1})}) == []
    assert absences(rows, None, {"*": frozenset({1})}) == []
    assert [each.rank for each in absences(rows, None, {"c": frozenset({0})})] == [1]
    assert [each.rank for each in absences(rows, None, {"a": frozenset({1})})] == [1]
    assert absences(rows, None, {"[c]": frozenset({1, 3})}) == []
    flat = Table(("rank",), [Row((0,), 1)], {0: {}, 1: {}}, without="nobody knows")
    assert str(absences(flat)[0]) == "rank 1 has no row, though rank 0 has (nobody knows)"
    assert absences(flat, {}, {"stage1": frozenset({1})})
    assert absences(flat, {}, {"*": frozenset({1})}) == []


def test_who_is_missing_is_said_with_what_to_write() -> None:
    found = absences(table(*FULL[:2]))
    assert excuse(found) == 'allow_missing: {"*": [2, 3]}'
    assert told(found) == (
        "rank 2 has no row, though rank 0 has (and 1 more rank); where that is right, select other ranks or write "
        'allow_missing: {"*": [2, 3]}'
    )
    assert excuse(absences(table(*FULL, (2, "c"), (0, "d"), mesh={**PP, 4: {"pp": 1}}))) == (
        'allow_missing: {"*": [4], c: [3], d: [1]}'
    )
    some = absences(table(*FULL, *((0, stage) for stage in "cdef")))
    assert str(some[0]) == "rank 1 has no row of stages c, d, e …, though rank 0 has"
    assert str(absences(table(*FULL, (0, "c")))[0]) == "rank 1 has no row of stage c, though rank 0 has"
    with pytest.raises(NothingSelected, match="rank 2 has no row, though rank 0 has"):
        complete(table(*FULL[:2]), {})
    assert len(complete(table(*FULL), {})) == 4
