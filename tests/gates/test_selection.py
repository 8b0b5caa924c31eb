"""Which rows does a sentence mean, and what do they become? Tables of a few rows, of which each tells a rule apart."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from pytest_nsys.analysis.metrics.table import (
    MetricTable,
    NothingSelected,
    Selector,
    make_label_key,
    matches_label,
    select_meant_rows,
    select_rows,
)
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.exact import resolve_aggregate
from pytest_nsys.core.model import Label, Row, Value
from pytest_nsys.gates.model import Aggregate, Assertion, Comparator, Constant, Location, Requirement
from pytest_nsys.gates.selection import find_origin_row, fold_rows

MESH = {0: {"pp": 0, "dp": 0}, 1: {"pp": 0, "dp": 1}, 2: {"pp": 1, "dp": 0}, 3: {"pp": 1, "dp": 1}}
SIZES = {"pp": 2, "dp": 2}


def stages(*labels: tuple[Label, ...], every: bool = False) -> MetricTable:
    """Rows per (rank, stage), each of another value."""
    return MetricTable(("rank", "stage"), [Row(each, i + 1) for i, each in enumerate(labels)], MESH, SIZES, every)


def ranks(
    *values: Value, mesh: Mapping[int, Mapping[str, int]] = MESH, sizes: Mapping[str, int] = SIZES
) -> MetricTable:
    """A row per rank."""
    return MetricTable(("rank",), [Row((i,), value) for i, value in enumerate(values)], mesh, sizes)


def where(**selectors: str | Sequence[str]) -> dict[str, Selector]:
    return {d: Selector((s,) if isinstance(s, str) else tuple(s)) for d, s in selectors.items()}


def asking(*steps: Aggregate, across: str | None = None, **selectors: str) -> Assertion:
    """An assertion that takes rows together; its limit does not matter here."""
    require = Requirement(Comparator.GE, Constant(Fraction(0)), ">= 0")
    place = Location(Path("gate.nsys.yaml"), 1, 1)
    return Assertion("a", "a", "a", place, "m", require, where(**selectors), steps, across)


def folded(table: MetricTable, assertion: Assertion) -> list[tuple[Mapping[str, Label], Value]]:
    return fold_rows(table, select_rows(table, assertion.where), assertion)


@pytest.mark.parametrize(
    ("element", "label", "meant"),
    [
        ("stage3", "stage3", True),
        ("stage3", "stage3_f", True),
        ("stage3", "stage30", False),
        ("stage3", "xstage3", False),
        ("stage*", "stage30", True),
        ("*_f", "stage3_f", True),
        ("Stage3", "stage3", False),
        ("1", 1, True),
        ("01", 1, True),
        ("-1", -1, True),
        ("1", 10, False),
        ("1*", 10, False),
        ("0", 1, False),
        ("9" * 18, int("9" * 18), True),
        ("9" * 19, int("9" * 19), False),
    ],
)
def test_one_element_means_a_label(element: str, label: Label, meant: bool) -> None:
    assert matches_label(element, label) is meant


# Kernels without a stage


ROWS = stages((0, "stage2_f"), (0, NO_STAGE), (1, "stage2_f"), (1, NO_STAGE))


@pytest.mark.parametrize(
    ("selector", "values"),
    [
        ((), [1, 3]),
        (("*",), [1, 3]),
        (("n*",), []),
        (("stage2_f",), [1, 3]),
        ((NO_STAGE,), [2, 4]),
        (("stage2_f", NO_STAGE), [1, 2, 3, 4]),
    ],
)
def test_rows_without_a_stage_are_meant_only_by_their_name(selector: tuple[str, ...], values: list[int]) -> None:
    """Not by a glob: a gate of every stage does not judge what has none."""
    chosen = {"stage": Selector(selector)} if selector else {}
    assert [value for _, value in select_meant_rows(ROWS, chosen)] == values


def test_a_metric_of_every_stage_means_rows_without_one_where_no_stage_is_asked_for() -> None:
    table = stages((0, "stage2_f"), (0, NO_STAGE), every=True)
    assert [value for _, value in select_meant_rows(table, {})] == [1, 2]
    assert [value for _, value in select_meant_rows(table, where(rank="0"))] == [1, 2]
    assert [value for _, value in select_meant_rows(table, where(stage="*"))] == [1]


def test_without_any_stage_it_says_how_to_select_what_has_none() -> None:
    with pytest.raises(NothingSelected, match="its 2 rows in the window have no stage: select stage none to judge"):
        select_rows(stages((0, NO_STAGE), (1, NO_STAGE)), {})
    with pytest.raises(NothingSelected, match="it has no row in the window: nobody sent") as caught:
        select_rows(MetricTable(("rank", "stage"), [], {}, no_row_reason="nobody sent"), {})
    with pytest.raises(NothingSelected, match=r"^it has no row in the window: nobody sent$"):  # whatever was selected
        select_rows(
            MetricTable(("rank", "stage"), [], {}, no_row_reason="nobody sent"), {"stage": Selector(("stage2",))}
        )
    assert "select stage" not in str(caught.value)


# Each element has a row of its own


def test_each_element_of_a_selector_needs_a_row() -> None:
    assert [value for _, value in select_rows(ROWS, where(rank=("0", "1")))] == [1, 3]
    with pytest.raises(NothingSelected, match=r"^no row has rank 2; ranks with a row: 0, 1$"):
        select_rows(ROWS, where(rank=("0", "2")))
    with pytest.raises(NothingSelected, match=r"^no row has rank 2; "):
        select_rows(ROWS, where(rank=("2", "0")))


def test_what_no_row_has_together_with_the_rest_is_told_from_what_no_row_has() -> None:
    table = stages((0, "stage2_f"), (1, "stage4_f"))
    with pytest.raises(NothingSelected, match="no row of the rows that the rest selects has rank 1; ranks with a row"):
        select_rows(table, where(rank="1", stage="stage2_f"))
    with pytest.raises(NothingSelected, match=r"^no row has stage stage9; stages with a row: stage2_f, stage4_f$"):
        select_rows(table, where(rank="0", stage="stage9"))
    with pytest.raises(NothingSelected, match=r"^no row has stage none; stages with a row: stage2_f, stage4_f$"):
        select_rows(table, where(rank="0", stage=NO_STAGE))


def test_an_element_is_looked_for_among_rows_without_a_stage_where_they_are_asked_for() -> None:
    table = stages((0, "stage2_f"), (1, NO_STAGE))
    with pytest.raises(NothingSelected, match="no row has rank 1"):
        select_rows(table, where(rank="1"))
    assert [value for _, value in select_rows(table, where(rank="1", stage=NO_STAGE))] == [2]


def test_a_dimension_may_be_an_axis_of_the_rank() -> None:
    table = ranks(10, 20, 30, 40)
    assert [value for _, value in select_rows(table, where(pp="1"))] == [30, 40]
    assert [value for _, value in select_rows(table, where(pp="1", dp="0"))] == [30]
    with pytest.raises(NothingSelected, match="no row has pp 2; pps with a row: 0, 1"):
        select_rows(table, where(pp="2"))
    with pytest.raises(NothingSelected, match="no row has cp 0; no row has a cp"):
        select_rows(table, where(cp="0"))


def test_sixteen_labels_are_listed_and_numbers_stand_in_their_order() -> None:
    with pytest.raises(NothingSelected, match=r"ranks with a row: 0, 1, 2, .*, 10, .*, 15$"):
        select_rows(ranks(*range(16)), where(rank="99"))
    with pytest.raises(NothingSelected, match=r"13, 14, 15 …$"):
        select_rows(ranks(*range(17)), where(rank="99"))


def test_a_slip_in_a_name_from_a_table_is_hinted_at() -> None:
    table = MetricTable(("rank", "family"), [Row((0, "gemm"), 1), Row((0, "norm"), 2)], {})
    with pytest.raises(NothingSelected, match=r"no row has family gem \(did you mean 'gemm'\?\); families with a row"):
        select_rows(table, where(family="gem"))
    with pytest.raises(NothingSelected, match=r"no row has stage stage2_x; stages"):
        select_rows(stages((0, "stage2_f")), where(stage="stage2_x"))


# Aggregates


FOUR = stages((0, "stage2_f"), (0, "stage4_f"), (1, "stage2_f"), (1, "stage4_f"), (2, "stage2_f"), (2, "stage4_f"))


def test_an_aggregate_takes_together_what_the_sentence_does_not_fix() -> None:
    assert folded(FOUR, asking(Aggregate("max"))) == [({}, 6)]
    assert folded(FOUR, asking(Aggregate("sum"), stage="stage2_f")) == [({"stage": "stage2_f"}, 1 + 3 + 5)]
    assert folded(FOUR, asking(Aggregate("min"), rank="1")) == [({"rank": 1}, 3)]


def test_a_selector_of_several_labels_keeps_each_apart() -> None:
    found = folded(FOUR, asking(Aggregate("sum"), stage="stage*"))
    assert found == [({"stage": "stage2_f"}, 9), ({"stage": "stage4_f"}, 12)]


def test_an_axis_that_the_sentence_fixes_keeps_its_groups() -> None:
    table = ranks(10, 20, 30, 40)
    assert folded(table, asking(Aggregate("sum"), pp="0")) == [({"pp": 0}, 30)]
    assert folded(table, asking(Aggregate("median"))) == [({}, 25)]


def test_an_aggregate_over_named_dimensions_keeps_the_others() -> None:
    over_stages = folded(FOUR, asking(Aggregate("sum", ("stage",))))
    assert over_stages == [({"rank": 0}, 3), ({"rank": 1}, 7), ({"rank": 2}, 11)]
    over_ranks = folded(FOUR, asking(Aggregate("max", ("rank",))))
    assert over_ranks == [({"stage": "stage2_f"}, 5), ({"stage": "stage4_f"}, 6)]
    assert folded(FOUR, asking(Aggregate("min", ("stage", "rank")))) == [({}, 1)]


def test_an_aggregate_over_an_axis_keeps_the_other_axes() -> None:
    table = ranks(10, 20, 30, 41)
    assert folded(table, asking(Aggregate("sum", ("dp",)))) == [({"pp": 0}, 30), ({"pp": 1}, 71)]
    assert folded(table, asking(Aggregate("max", ("pp", "dp")))) == [({}, 41)]


def test_an_aggregate_over_an_axis_keeps_the_labels_beside_the_rank() -> None:
    table = stages((0, "stage2_f"), (1, "stage2_f"), (0, "stage4_f"), (1, "stage4_f"))
    found = folded(table, asking(Aggregate("sum", ("dp",))))
    assert found == [({"stage": "stage2_f", "pp": 0}, 3), ({"stage": "stage4_f", "pp": 0}, 7)]


def test_numbers_stand_before_text_and_each_in_its_order() -> None:
    labels: list[Label] = ["b", 10, "a", 2]
    assert sorted(labels, key=make_label_key) == [2, 10, "a", "b"]


def test_one_aggregate_after_the_other() -> None:
    steps = (Aggregate("sum", ("stage",)), Aggregate("max"))
    assert folded(FOUR, asking(*steps)) == [({}, 11)]
    with pytest.raises(NothingSelected, match="no row has a dp any more: its ranks were taken together before"):
        folded(FOUR, asking(Aggregate("sum", ("rank",)), Aggregate("max", ("dp",))))


def test_an_axis_that_the_trace_does_not_state_is_no_data() -> None:
    with pytest.raises(NothingSelected, match="rank 0 has no dp coordinate: the trace has no setup label with dp"):
        folded(ranks(1, 2, mesh={}), asking(Aggregate("max", ("dp",))))


def test_a_percentile_is_the_nearest_rank() -> None:
    table = ranks(10, 20, 30, 40)
    found = {word: folded(table, asking(Aggregate(word)))[0][1] for word in ("p25", "p26", "p50", "p75", "p76", "p99")}
    assert found == {"p25": 10, "p26": 20, "p50": 20, "p75": 30, "p76": 40, "p99": 40}


@pytest.mark.parametrize("word", ["p0", "p100", "p", "mode", "px"])
def test_what_is_no_aggregate_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=f"no aggregate is called '{word}'"):
        resolve_aggregate(word)


@pytest.mark.parametrize(("word", "row"), [("max", 2), ("min", 0), ("p50", 1), ("sum", None), ("mean", None)])
def test_an_aggregate_that_is_a_row_names_it(word: str, row: int | None) -> None:
    table = ranks(10, 20, 60)
    assertion = asking(Aggregate(word))
    (only,) = folded(table, assertion)
    assert find_origin_row(table, select_rows(table, {}), assertion, only) == ({} if row is None else {"rank": row})


def test_of_two_rows_with_the_value_the_first_is_named() -> None:
    assertion = asking(Aggregate("max"))
    table = ranks(5, 9, 9)
    assert find_origin_row(table, select_rows(table, {}), assertion, ({}, 9)) == {"rank": 1}
    assert find_origin_row(table, select_rows(table, {}), asking(Aggregate("max"), Aggregate("sum")), ({}, 9)) == {}
    assert find_origin_row(table, select_rows(table, {}), asking(), ({}, 9)) == {}


def test_the_row_behind_an_aggregate_is_of_its_group() -> None:
    table = stages((0, "stage2_f"), (0, "stage4_f"))
    table = MetricTable(table.dimensions, [Row(labels, 7) for labels, _ in table.rows], MESH, SIZES)
    assertion = asking(Aggregate("max"), stage="stage4_f")
    (only,) = folded(table, assertion)
    assert only == ({"stage": "stage4_f"}, 7)
    assert find_origin_row(table, select_rows(table, {}), assertion, only) == {"rank": 0}
    by_axis = asking(Aggregate("max"), pp="1")
    four = ranks(9, 9, 9, 9)
    assert find_origin_row(four, select_rows(four, {}), by_axis, ({"pp": 1}, 9)) == {"rank": 2}


# Balance


def test_a_balance_is_the_worst_ratio_across_the_axis() -> None:
    """Of dp 0: 30/10, of dp 1: 40/20; the largest counts, whichever comes first."""
    assert folded(ranks(10, 20, 30, 40), asking(across="pp")) == [({"dp": 0}, 3)]
    assert folded(ranks(20, 10, 40, 30), asking(across="pp")) == [({"dp": 1}, 3)]
    assert folded(ranks(30, 40, 10, 30), asking(across="pp")) == [({"dp": 0}, 3)]
    assert folded(ranks(10, 20, 30, 40), asking(across="dp")) == [({"pp": 0}, 2)]
    assert folded(ranks(3, 3, 2, 3), asking(across="dp")) == [({"pp": 1}, Fraction(3, 2))]


def test_a_balance_over_an_axis_of_one_place_is_no_data() -> None:
    """A rank compared with itself is always in balance."""
    alone = {0: {"pp": 0, "dp": 0}, 1: {"pp": 0, "dp": 1}}
    with pytest.raises(NothingSelected, match=r"^1 of 2 places on pp have a row \(dp 0\)$"):
        folded(ranks(10, 20, mesh=alone, sizes={"pp": 1, "dp": 2}), asking(across="pp"))
    assert folded(ranks(10, 20, mesh=alone, sizes={"pp": 1, "dp": 2}), asking(across="dp")) == [({"pp": 0}, 2)]
    with pytest.raises(NothingSelected, match="1 of 2 places on pp"):
        folded(ranks(10, mesh={0: {"pp": 0}}, sizes={}), asking(across="pp"))


def test_a_balance_needs_every_place_of_the_axis() -> None:
    three = {i: {"pp": i} for i in range(3)}
    assert folded(ranks(10, 20, 40, mesh=three, sizes={"pp": 3}), asking(across="pp")) == [({}, 4)]
    with pytest.raises(NothingSelected, match="2 of 3 places on pp have a row"):
        folded(ranks(10, 20, mesh=three, sizes={"pp": 3}), asking(across="pp"))


def test_a_balance_with_nothing_is_no_ratio() -> None:
    with pytest.raises(NothingSelected, match="the minimum across pp is 0, so there is no ratio"):
        folded(ranks(10, 20, 0, 40), asking(across="pp"))
