"""Anchors, windows and stages of a few numbers: what do the rules of the analysis say exactly on their edges?"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_nsys.analysis.anchor_counts import Uneven, uneven_anchors
from pytest_nsys.analysis.kernel_families import anchors_in
from pytest_nsys.analysis.pipeline import _stage_times
from pytest_nsys.analysis.preflight import _about_unlaunched
from pytest_nsys.analysis.structure import kernel_launches
from pytest_nsys.model import OPEN_END_NS, Range, Row
from pytest_nsys.workload import TwoStages


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ([], None),
        ([(0, 5), (0, 5)], None),
        ([(0, 5), (0, 7), (0, 6)], Uneven((5, 0), (7, 1), alike=True)),
        ([(0, 5), (0, 6), (1, 9), (1, 7)], Uneven((7, 3), (9, 2), alike=True)),
        ([(0, 5), (0, 5), (1, 8)], Uneven((5, 0), (8, 2), alike=False)),
        ([(None, 3), (None, 4)], Uneven((3, 0), (4, 1), alike=True)),
    ],
)
def test_anchors_are_counted_among_ranks_of_one_place_before_all(
    places: Sequence[tuple[int | None, int]], found: Uneven | None
) -> None:
    tracks = {
        number: SimpleNamespace(
            anchors=range(count), rank=SimpleNamespace(coordinates={} if pp is None else {"pp": pp})
        )
        for number, (pp, count) in enumerate(places)
    }
    group: Any = SimpleNamespace(tracks=tracks)
    assert uneven_anchors(group) == found


def windowed(
    span: tuple[int, int], *anchors: tuple[int, int], index: int | None = None, whole_run: bool = False
) -> Any:
    return SimpleNamespace(
        window=SimpleNamespace(start_ns=span[0], end_ns=span[1], index=index),
        pick=SimpleNamespace(whole_run=whole_run),
        anchors=[SimpleNamespace(start_ns=start, end_ns=end) for start, end in anchors],
    )


@pytest.mark.parametrize(
    ("window", "anchors"),
    [
        (windowed((10, 20), (10, 20), (12, 18), index=3), 1),  # nested ones
        (windowed((10, 20), (15, 30), index=3), 1),
        (windowed((0, 5), (10, 20), (30, 40), whole_run=True), 2),
        (windowed((10, 20), (0, 10), (10, 15), (15, 20), (20, 30)), 2),
        (windowed((10, 20), (9, 15)), None),
        (windowed((10, 20), (15, 21)), None),
        (windowed((10, 20)), 0),
    ],
)
def test_a_window_holds_its_anchor_or_those_that_it_does_not_cut(window: Any, anchors: int | None) -> None:
    assert anchors_in(window) == anchors


@pytest.mark.parametrize(("without", "many"), [(0, None), (1, False), (10, False), (11, True)])
def test_more_than_a_tenth_of_kernels_without_a_launch_is_many(without: int, many: bool | None) -> None:
    group: Any = SimpleNamespace(unlaunched=(without, 100))
    assert [note.warning for note in _about_unlaunched(group)] == ([] if many is None else [many])


def test_kernels_of_one_plain_name_are_counted_together() -> None:
    window: Any = SimpleNamespace(
        kernels=SimpleNamespace(names={0: "at 0x1234", 1: "at 0x3456", 2: "norm"}, name=[0, 1, 2, 1, 0]),
        all_by_stage={"first": range(4), "second": [4]},
        rank=SimpleNamespace(number=5),
    )
    assert list(kernel_launches(window)) == [
        Row((5, "first", "at 0x"), 3),
        Row((5, "first", "norm"), 1),
        Row((5, "second", "at 0x"), 1),
    ]


def stage_times(*ranges: tuple[str, int, int]) -> Any:
    """Of units that begin at 100, 200 and 300 ns, the last of which nobody knows the end of."""
    named = [Range(start, end, 1, name) for name, start, end in ranges]
    window: Any = SimpleNamespace(anchors=[SimpleNamespace(start_ns=at) for at in (100, 200, 300)], rank=0)
    run: Any = SimpleNamespace(named=lambda *_: named)
    return _stage_times(run, window, TwoStages(("a",), ("b",)))


def test_stages_are_summed_by_the_unit_that_they_begin_in() -> None:
    found = stage_times(
        ("a", 99, 150), ("a", 100, 130), ("a", 140, 150), ("b", 199, 260), ("b", 200, 230), ("a", 300, 310)
    )
    assert (found.by_unit, found.unclosed, found.overlapping) == (({0: 40}, {0: 61, 1: 30}), set(), 1)


def test_a_stage_that_was_not_closed_counts_nothing_and_is_told() -> None:
    found = stage_times(("a", 110, OPEN_END_NS), ("a", 120, 130), ("b", 210, 220), ("b", 230, OPEN_END_NS))
    assert (found.by_unit, found.unclosed, found.overlapping) == (({0: 10}, {1: 10}), {0, 1}, 0)


def test_ranges_of_a_stage_that_touch_or_have_no_length_do_not_overlap() -> None:
    found = stage_times(("a", 100, 150), ("a", 150, 160), ("a", 155, 155), ("b", 120, 170), ("a", 159, 165))
    assert found.overlapping == 1
