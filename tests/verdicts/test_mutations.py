"""Does the gate go red exactly when it should, and say why? One good trace, and every kind of regression in it.

Each regression comes in sizes at the limit and one nanosecond beyond it. For each of them all assertions are looked at:
those that must go red, with the row, the value and the limit that they name, and the rest, which must stay green.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from tests.support.gates import Case, Project, built_once
from tests.support.mutated_step import (
    COMPUTE,
    EXCHANGE,
    MEDIAN,
    RANKS,
    STREAM,
    Mutation,
    Step,
    emptied,
    launched,
    less_to_hide_behind,
    longer,
    missing,
    moved,
    slower,
)

GATE = """
tolerance: {rel: 5%}
assertions:
  - {id: overlap, assert: overlap >= 75%}
  - {id: exposed, assert: exposed_ns below baseline plus tolerance}
  - {id: streams, assert: no mixed comm streams}
  - {id: comm_streams, assert: ep_a2a comm_streams == 1}
  - {id: launches, assert: launches == baseline}
  - {id: stages, assert: comm_ns <= 2ms, where: {stage: [stage1_f, stage2_f, stage4_f]}}
  - {id: compute, assert: compute_ns below baseline plus tolerance}
  - {id: balance, assert: balance of compute_ns across ep <= 1.1}
"""
NAMES = ("overlap", "exposed", "streams", "comm_streams", "launches", "stages", "compute", "balance")


@dataclass(frozen=True)
class Red:
    """What a red assertion says: its outcome, the row that it names, value and limit, or words of the reason."""

    outcome: str
    row: str = ""
    value: str = ""
    limit: str = ""
    words: str = ""


failed = partial(Red, "failed")
no_data = partial(Red, "no data")
Reds = Mapping[str, Red]


@dataclass(frozen=True)
class Size:
    """A regression of one size. ``improved`` are green assertions that find a stale baseline."""

    mutations: tuple[Mutation, ...]
    reds: Reds = field(default_factory=dict)
    improved: frozenset[str] = frozenset()


def size(*mutations: Mutation, improved: Sequence[str] = (), **reds: Red) -> Size:
    return Size(mutations, reds, frozenset(improved))


def grown(by_ns: int, improved: Sequence[str] = (), **reds: Red) -> Size:
    return size(partial(longer, rank=2, stage="stage4_f", by_ns=by_ns), improved=improved, **reds)


def lost(by_ns: int, improved: Sequence[str] = (), **reds: Red) -> Size:
    return size(partial(less_to_hide_behind, rank=2, stage="stage4_f", by_ns=by_ns), improved=improved, **reds)


def slow(by_ns: int, **reds: Red) -> Size:
    return Size((partial(slower, rank=3, by_ns=by_ns),), reds)


PAIR, OTHER_PAIR = "cp 0 dp 0 pp 1", "cp 0 dp 0 pp 0"
HERE = "rank 2 stage4_f"


def exposed(value: str) -> Red:
    return failed(HERE, value, f"<= {'210 us' if 'us' in value else '0.21 ms'} (baseline + 5%)")


def slow_rank(value: str) -> Red:
    return failed("rank 3", value, "<= 3.57 ms (baseline + 5%)")


def overlap(value: str) -> Red:
    return failed(HERE, value, ">= 75%")


MUTATIONS: Mapping[str, tuple[Size, ...]] = {
    "longer communication": (
        grown(9_999),
        grown(10_000),
        grown(10_001, exposed=exposed("210.001 us")),
        grown(66_666, exposed=exposed("267 us")),
        grown(66_667, exposed=exposed("267 us"), overlap=overlap("74.99998%")),
        grown(1_000_000, exposed=exposed("1.2 ms"), overlap=overlap("40%")),
        grown(
            1_000_001, exposed=exposed("1.2 ms"), overlap=overlap("40%"), stages=failed(HERE, "2.000001 ms", "<= 2 ms")
        ),
    ),
    "lost overlap": (
        lost(10_000),
        lost(10_001, exposed=exposed("210.001 us")),
        lost(50_000, exposed=exposed("250 us")),
        lost(50_001, exposed=exposed("250 us"), overlap=overlap("74.9999%")),
        lost(170_000, exposed=exposed("370 us"), overlap=overlap("63%")),
        lost(170_001, exposed=exposed("370 us"), overlap=overlap("63%"), improved=["compute"]),
        lost(309_090, exposed=exposed("509 us"), overlap=overlap("49.1%"), improved=["compute"]),
        lost(
            309_091,
            exposed=exposed("509 us"),
            overlap=overlap("49.1%"),
            balance=failed(PAIR, "3400000/3090909", "<= 11/10"),
            improved=["compute"],
        ),
    ),
    "one slow rank": (
        slow(170_000),
        slow(170_001, compute=slow_rank("3.570001 ms")),
        slow(340_000, compute=slow_rank("3.74 ms")),
        slow(340_001, compute=slow_rank("3.74 ms"), balance=failed(PAIR, "1.1000003", "<= 1.1")),
    ),
    "moved stream": (
        size(partial(moved, rank=1, stage="stage1_f", stream=44)),
        size(
            partial(moved, rank=1, stage="stage1_f", stream=EXCHANGE),
            streams=failed("rank 1 mixed", "1", "== 0"),
            comm_streams=failed("rank 1 ep_a2a", "0", "== 1"),
        ),
        size(partial(moved, rank=1, stage="stage4_f", stream=44), comm_streams=failed("rank 1 ep_a2a", "2", "== 1")),
        size(
            partial(moved, rank=1, stage="stage4_f", stream=COMPUTE),
            overlap=no_data(words="rank 1 has no row of stage stage4_f, though rank 0 has"),
            exposed=no_data(words="1 row of the baseline gone, the first rank 1 stage4_f"),
            stages=no_data(words="rank 1 has no row of stage stage4_f, though rank 0 has"),
        ),
    ),
    "extra launches": (
        size(partial(launched, rank=0, stage="stage2_f", more=0)),
        size(
            partial(launched, rank=0, stage="stage2_f", more=1),
            launches=failed("rank 0 stage2_f", "3", "== 2 (baseline)"),
        ),
    ),
    "missing stage": (
        size(
            partial(missing, stage="stage4_f", ranks=[2]),
            overlap=no_data(words="rank 2 has no row of stage stage4_f, though rank 3 has"),
            stages=no_data(words="rank 2 has no row of stage stage4_f, though rank 3 has"),
            exposed=no_data(words="1 row of the baseline gone, the first rank 2 stage4_f"),
            launches=no_data(words="1 row of the baseline gone, the first rank 2 stage4_f"),
            balance=failed(PAIR, "1.31", "<= 1.1"),
            improved=["compute"],
        ),
        size(
            partial(missing, stage="stage4_f"),
            exposed=no_data(words="4 rows of the baseline gone, the first rank 0 stage4_f"),
            launches=no_data(words="4 rows of the baseline gone, the first rank 0 stage4_f"),
            stages=no_data(words="no row has stage stage4_f"),
            improved=["compute"],
        ),
    ),
    "an all but emptied window": (
        size(partial(emptied, rank=1, chunk=MEDIAN - 1)),
        size(
            *(partial(missing, stage=stage, ranks=[1]) for stage in STREAM),
            overlap=no_data(words="rank 1 has no row, though rank 0 has"),
            exposed=no_data(words="3 rows of the baseline gone, the first rank 1 stage1_f"),
            stages=no_data(words="rank 1 has no row, though rank 0 has"),
            comm_streams=failed("rank 1 ep_a2a", "0", "== 1"),
            launches=no_data(words="3 rows of the baseline gone, the first rank 1 stage1_f"),
            balance=failed(OTHER_PAIR, "3.4", "<= 1.1"),
            improved=["compute"],
        ),
    ),
    "several at once": (
        size(
            partial(longer, rank=2, stage="stage4_f", by_ns=5_000),
            partial(less_to_hide_behind, rank=2, stage="stage4_f", by_ns=5_000),
        ),
        size(
            partial(longer, rank=2, stage="stage4_f", by_ns=5_000),
            partial(less_to_hide_behind, rank=2, stage="stage4_f", by_ns=5_001),
            exposed=exposed("210.001 us"),
        ),
        size(
            partial(longer, rank=2, stage="stage4_f", by_ns=10_001),
            partial(moved, rank=1, stage="stage4_f", stream=44),
            partial(launched, rank=0, stage="stage2_f", more=2),
            partial(slower, rank=3, by_ns=170_001),
            exposed=exposed("210.001 us"),
            comm_streams=failed("rank 1 ep_a2a", "2", "== 1"),
            launches=failed("rank 0 stage2_f", "4", "== 2 (baseline)"),
            compute=slow_rank("3.570001 ms"),
        ),
        size(  # a lost row comes before one outside its limit, which is still told
            partial(longer, rank=2, stage="stage4_f", by_ns=10_001),
            partial(missing, stage="stage1_f", ranks=[0]),
            partial(slower, rank=0, by_ns=800_000),
            overlap=no_data(words="rank 0 has no row of stage stage1_f, though rank 1 has"),
            stages=no_data(words="rank 0 has no row of stage stage1_f, though rank 1 has"),
            exposed=no_data(words="1 row of the baseline gone, the first rank 0 stage1_f; 1 row outside the limit"),
            launches=no_data(words="1 row of the baseline gone, the first rank 0 stage1_f"),
        ),
    ),
}


@pytest.fixture
@built_once
def accepted(project: Project) -> Project:
    """The good trace is the baseline."""
    project.gate(GATE)
    Step().write(project.root / "base.sqlite")
    project.refresh("--nsys-trace=base.sqlite")
    return project


def said(case: Case) -> Red:
    """What a red assertion says."""
    names = ("nsys_outcome", "nsys_row", "nsys_value", "nsys_limit")
    return Red(*(" ".join(case.properties.get(name, "").split()) for name in names))


@pytest.mark.parametrize("kind", MUTATIONS)
def test_the_gate_goes_red_exactly_where_it_should(accepted: Project, kind: str) -> None:
    for number, each in enumerate(MUTATIONS[kind]):
        step = Step()
        for mutation in each.mutations:
            mutation(step)
        step.write(accepted.root / f"run{number}.sqlite")
        cases = accepted.judged(f"run{number}.sqlite")
        assert tuple(cases) == NAMES
        assert {name for name, case in cases.items() if case.state != "passed"} == set(each.reds), number
        for name, red in each.reds.items():
            words = cases[name].properties["nsys_message"]
            if red.words:
                assert (cases[name].properties["nsys_outcome"], red.words in words) == (red.outcome, True), words
            else:
                assert said(cases[name]) == red
        green = {name: case.properties["nsys_outcome"] for name, case in cases.items() if name not in each.reds}
        assert {name for name, outcome in green.items() if outcome == "improved"} == each.improved
        assert set(green.values()) <= {"passed", "improved"}


def test_the_good_trace_is_green_and_stays_it(accepted: Project) -> None:
    cases = accepted.judged("base.sqlite")
    assert {name: case.properties["nsys_outcome"] for name, case in cases.items()} == dict.fromkeys(NAMES, "passed")


@pytest.mark.parametrize("ranks", [[1], range(RANKS)])
def test_an_emptied_window_is_an_error_of_every_assertion(accepted: Project, ranks: Iterable[int]) -> None:
    """Where one rank has nothing to measure, nothing is said of the others either."""
    step = Step()
    for rank in ranks:
        emptied(step, rank, MEDIAN)
    step.write(accepted.root / "run.sqlite")
    cases = accepted.judged()
    assert {name: case.state for name, case in cases.items()} == dict.fromkeys(NAMES, "error")
    first = f"rank {min(ranks)}"
    assert all(first in case.text and "no kernel" in case.text for case in cases.values())
