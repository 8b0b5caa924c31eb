"""Does the story of a session tell every red once, below its root, and nothing twice, whatever the order of records?"""

import random
from fractions import Fraction
from typing import Any

import pytest

from pytest_nsys.analysis.explain.breakdown_model import (
    Change,
    ChangeKind,
    Explanation,
    RootCause,
    RowActivity,
    RowExplanation,
    StepChange,
)
from pytest_nsys.analysis.windows.window_selection import UsedWindow
from pytest_nsys.core.model import Label, Window
from pytest_nsys.gates.model import JudgedRow, Outcome
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.root_sentence import choose_story_names
from pytest_nsys.reports.session.story import Story, StoryRoot, build_story
from tests.support.reports import key, record

MS = 1_000_000
GEMM = RootCause(ChangeKind.LONGER, RowActivity.KERNEL, "gemm")
REDUCE = RootCause(ChangeKind.LONGER, RowActivity.COLLECTIVE, "AllReduce")


def on(rank: int, root: RootCause = GEMM, before: int = 8 * MS, now: int = 10 * MS) -> Change:
    return Change(root, rank, before, now, 4, 4)


def why(change: Change, *more: Change, **labels: Label) -> RowExplanation:
    """A row that is explained by roots, the first of which is all that it changed by."""
    return RowExplanation(labels or {"rank": change.rank}, Explanation(change.change_ns, (), 0), (change, *more))


def red(
    name: str, *causes: RowExplanation, rows: int = 0, step: tuple[int, int] | None = None, **more: Any
) -> AssertionRecord:
    """An assertion that failed by one row for each that is explained, and by ``rows`` more."""
    labels = [each.labels for each in causes] + [{"rank": 100 + n} for n in range(rows)]
    judged = [JudgedRow(own, 12, 11, Outcome.FAILED, baseline=10, margin=-1) for own in labels]
    windows = (UsedWindow(0, 0, Window(0, 1, more.pop("window", "ProfilerStep#7"))),)
    lengths = [{0: length, 1: length - MS} for length in step or ()]
    change = StepChange(lengths[0], lengths[1]) if lengths else None
    told = {"subject": "exposed_ns", "unit": "ns", "key": key(2), "windows": windows, **more}
    return record(name, judged=judged, causes=causes, step=change, **told)


def story(*records: AssertionRecord) -> Story:
    return build_story(records)


def told(root: StoryRoot) -> dict[str, int]:
    """The reds below a root, and how many rows of each."""
    return {red.record.name: len(red.rows) for red in root.reds}


def moved(root: StoryRoot) -> set[int]:
    return {change.change_ns for change in root.changes.values()}


TILES = [f"device_kernel<CollectiveMma, 4, 128, {tile}, 64>" for tile in (64, 96)]


@pytest.mark.parametrize(("beside", "called"), [(TILES, "96"), (TILES[1:], "CollectiveMma")])
def test_a_kernel_is_called_by_what_tells_it_from_all_that_ran_with_it(beside: list[str], called: str) -> None:
    root = on(0, RootCause(ChangeKind.LONGER, RowActivity.KERNEL, TILES[1]))
    assert called in choose_story_names(story(red("a", why(root)._replace(window_kernels=frozenset(beside)))))[TILES[1]]


def test_a_root_that_assertions_ranks_and_configurations_share_is_one() -> None:
    found = story(
        *(red(name, why(on(0)), why(on(1, now=11 * MS)), configuration=own) for name in "ab" for own in ("x", "y"))
    )
    (root,) = found.roots
    names = sorted((each.record.name, each.record.configuration) for each in root.reds)
    assert names == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    assert (root.root, root.ranks, moved(root)) == (GEMM, [0, 1], {2 * MS, 3 * MS})
    assert root.gate_addresses == ["perf/gate.nsys.yaml[x]", "perf/gate.nsys.yaml[y]"] == found.failed_addresses
    assert found.unexplained_reds == ()


def test_a_row_stands_below_its_largest_root_and_smaller_ones_stand_beside() -> None:
    found = story(red("a", why(on(0), on(0, REDUCE, now=9 * MS))))
    assert [(each.root, told(each)) for each in found.roots] == [(GEMM, {"a": 1}), (REDUCE, {})]


def test_what_leads_in_a_red_comes_before_a_larger_root_that_leads_in_none() -> None:
    found = story(red("a", why(on(0), on(0, REDUCE, now=19 * MS))))
    assert [(each.root, told(each)) for each in found.roots] == [(GEMM, {"a": 1}), (REDUCE, {})]


def test_a_root_that_leads_nowhere_is_told_from_a_twentieth_of_the_largest_on() -> None:
    assert [r.root for r in story(red("a", why(on(0), on(0, REDUCE, now=8 * MS + 99_000)))).roots] == [GEMM]
    assert len(story(red("a", why(on(0), on(0, REDUCE, now=8 * MS + 100_000)))).roots) == 2
    assert len(story(red("a", why(on(0))), red("b", why(on(1, REDUCE, now=8 * MS + 99_000)))).roots) == 2


def test_one_kernel_that_changed_in_several_stages_is_one_root() -> None:
    each = [on(0, REDUCE._replace(stage=stage)) for stage in ("forward", "backward")]
    (root,) = story(red("a", *(why(one, rank=0, stage=one.root.stage) for one in each))).roots
    assert (root.stages, moved(root), told(root)) == (("backward", "forward"), {4 * MS}, {"a": 2})


def test_the_root_of_the_step_leads_a_larger_one() -> None:
    found = story(red("a", why(on(0, REDUCE, now=20 * MS))), red("b", why(on(0)), subject="window_ns"))
    assert [each.root for each in found.roots] == [GEMM, REDUCE]


def test_ranks_that_wait_for_a_slow_one() -> None:
    slow = on(1, RootCause(ChangeKind.LONGER, RowActivity.ALL, ""))
    (root,) = story(red("a", why(slow), why(slow, rank=0))).roots
    assert (root.ranks, root.waiting_ranks, told(root)) == ([1], (0,), {"a": 2})


def test_a_row_that_waits_for_a_rank_stands_below_what_made_that_late() -> None:
    """Also where its own window begins when that rank comes, and shows nothing."""
    late = on(1, RootCause(ChangeKind.LATER, RowActivity.HOST, "gemm"))
    waits = Explanation(
        2 * MS,
        (Change(RootCause(ChangeKind.WAITED, RowActivity.COLLECTIVE, "AllReduce"), 0, 0, 2 * MS, straggler=1),),
        0,
    )
    found = story(red("p", why(late), subject="period_ns"), red("w", RowExplanation({"rank": 0}, waits)))
    (root,) = found.roots
    assert (told(root), found.unexplained_reds) == ({"p": 1, "w": 1}, ())


def test_a_limit_stands_below_the_root_of_the_same_row() -> None:
    limit = red("o", rows=1, subject="overlap", unit="%")
    (root,) = story(limit, red("e", why(on(100)))).roots
    assert told(root) == {"o": 1, "e": 1}
    launches = red("l", rows=1, subject="launches", unit="count")
    found = story(launches, red("e", why(on(100))))
    assert [(each.record.name, len(each.rows)) for each in found.unexplained_reds] == [("l", 1)]


def test_an_assertion_stands_in_one_place_also_where_ranks_show_no_root() -> None:
    (root,) = (found := story(red("a", why(on(0)), rows=2))).roots
    assert ([row.labels["rank"] for row in root.reds[0].rows], found.unexplained_reds) == ([0, 100, 101], ())


def test_rows_of_a_stage_without_a_root_are_told_apart_from_those_that_have_one() -> None:
    nothing = RowExplanation({"rank": 0, "stage": "b"}, Explanation(MS, (), MS))
    found = story(red("a", why(on(0), rank=0, stage="a"), nothing))
    assert [told(each) for each in found.roots] == [{"a": 1}]
    assert [(each.record.name, len(each.rows)) for each in found.unexplained_reds] == [("a", 1)]


@pytest.mark.parametrize(
    ("step", "share", "unchanged"),
    [
        ((20 * MS, 20 * MS), Fraction(0), True),
        ((20 * MS, 20_099_999), Fraction(99_999, 20 * MS), True),
        ((20 * MS, 20_100_000), Fraction(1, 200), False),
        ((20 * MS, 18 * MS), Fraction(-1, 10), False),
    ],
)
def test_what_happened_to_the_step(step: tuple[int, int], share: Fraction, unchanged: bool) -> None:
    found = story(red("a", why(on(0)), step=step)).most_changed_step
    assert found is not None
    assert (found.before_ns, found.now_ns, found.share, found.is_unchanged) == (*step, share, unchanged)


def test_the_step_that_moved_most_is_told_and_a_window_only_where_there_is_no_step() -> None:
    chunk = red("w", step=(4 * MS, 8 * MS), window="forward chunk 5")
    x, y = (red("a", step=(20 * MS, now * MS), configuration=own) for own, now in (("x", 21), ("y", 24)))
    moved = story(chunk, x, y).most_changed_step
    assert moved is not None
    assert (moved.noun, moved.address, moved.now_ns) == ("step", "perf/gate.nsys.yaml[y]", 24 * MS)
    window = story(chunk).most_changed_step
    assert window is not None
    assert window.noun == "window"
    assert story(red("a")).most_changed_step is None


def test_one_mistake_of_a_gate_file_is_told_once() -> None:
    broken = [record(f"a{n}", "error", message="run.sqlite: is no trace") for n in range(10)]
    other = record("b", "error", message="run.sqlite: is no trace", file="perf/b.nsys.yaml")
    found = story(*broken, other, record("n", "no data", message="no anchor"), red("r", why(on(0))))
    assert [(each.outcome, each.message, len(each.records)) for each in found.not_judged] == [
        (Outcome.ERROR, "run.sqlite: is no trace", 1),
        (Outcome.ERROR, "run.sqlite: is no trace", 10),
        (Outcome.NO_DATA, "no anchor", 1),
    ]


def test_warnings_are_told_where_nothing_failed() -> None:
    warned = red("w", why(on(0)), severity="warn", good=True)
    assert story(warned).is_warning
    assert [told(each) for each in story(warned).roots] == [{"w": 1}]
    failed = story(warned, red("r", why(on(1, REDUCE))))
    assert not failed.is_warning
    assert [each.root for each in failed.roots] == [REDUCE]


def test_only_rows_that_failed_have_a_say() -> None:
    half = red("a", why(on(0)))
    unclear = why(on(1, REDUCE))
    held = record("a", judged=half.verdict.rows, causes=(*half.verdict.causes, unclear), subject="exposed_ns")
    assert [each.root for each in story(held).roots] == [GEMM]
    assert story(record("g", "passed", good=True, causes=(unclear,))).roots == ()


def test_the_order_of_records_does_not_matter() -> None:
    records = [
        red(name, why(on(rank, root)), rows=rank, configuration=own, step=(20 * MS, 22 * MS))
        for name, rank, root in (("a", 0, GEMM), ("b", 1, REDUCE), ("c", 1, GEMM))
        for own in ("x", "y")
    ] + [record(f"e{n}", "error", message=f"no trace {n % 2}") for n in range(4)]
    first = story(*records)
    chance = random.Random(23)
    for _ in range(20):
        chance.shuffle(records)
        assert story(*records) == first


def test_every_failed_row_is_told_once() -> None:
    records = [red(name, why(on(0), on(0, REDUCE)), why(on(1, REDUCE), on(1)), rows=3) for name in "abc"]
    found = story(*records)
    assert sum(len(each.rows) for each in found.reds) == sum(len(each.verdict.rows) for each in records)
