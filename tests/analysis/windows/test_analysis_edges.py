"""Anchors, windows and stages of a few numbers: what do the rules of the analysis say exactly on their edges?"""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from pytest_nsys.analysis.budget.timeline import Bar, _merge_short_bars
from pytest_nsys.analysis.facts.steps import UnevenAnchors, find_uneven_anchors
from pytest_nsys.analysis.metrics.families import count_anchors
from pytest_nsys.analysis.metrics.pipeline import _sum_stage_times
from pytest_nsys.analysis.metrics.structure import kernel_launches
from pytest_nsys.analysis.steps.anchor_candidates import MIN_ANCHORS, AnchorCandidate, ClosedRanges, RankRanges
from pytest_nsys.analysis.windows.kernel_anchors import KernelLaunches
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.model import NO_LAUNCH, Range
from pytest_nsys.core.tables import NO_KERNELS, Ranges
from pytest_nsys.core.workload import Parallel, TwoStages, Workload, format_batch
from tests.support.commands import run
from tests.support.one_process import OneProcess


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ([], None),
        ([(0, 5), (0, 5)], None),
        ([(0, 5), (0, 7), (0, 6)], UnevenAnchors((5, 0), (7, 1), is_one_stage=True)),
        ([(0, 5), (0, 6), (1, 9), (1, 7)], UnevenAnchors((7, 3), (9, 2), is_one_stage=True)),
        ([(0, 5), (0, 5), (1, 8)], UnevenAnchors((5, 0), (8, 2), is_one_stage=False)),
        ([(None, 3), (None, 4)], UnevenAnchors((3, 0), (4, 1), is_one_stage=True)),
    ],
)
def test_anchors_count_in_one_place_before_all(
    places: Sequence[tuple[int | None, int]], found: UnevenAnchors | None
) -> None:
    tracks = {
        number: SimpleNamespace(
            anchors=range(count), rank=SimpleNamespace(coordinates={} if pp is None else {"pp": pp})
        )
        for number, (pp, count) in enumerate(places)
    }
    group: Any = SimpleNamespace(tracks=tracks, spec=WindowSpec())
    assert find_uneven_anchors(group) == found


def windowed(
    span: tuple[int, int], *anchors: tuple[int, int], index: int | None = None, whole_run: bool = False
) -> Any:
    own = [SimpleNamespace(start_ns=start, end_ns=end) for start, end in anchors]
    run = SimpleNamespace(find_anchors_of_kind=lambda *_: own, find_rank_steps=lambda *_: None)
    return SimpleNamespace(
        window=SimpleNamespace(start_ns=span[0], end_ns=span[1], index=index),
        spec=SimpleNamespace(is_whole_run=whole_run),
        anchors=own,
        rank=None,
        track=SimpleNamespace(window_group=SimpleNamespace(run=run)),
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
    assert count_anchors(window) == anchors


def test_kernels_of_one_row_name_are_counted_together() -> None:
    names = {
        0: "at 0x1234",
        1: "at 0x3456",
        2: "device_kernel",
        3: "device_kernel<A<4>>(P)",
        4: "device_kernel<A<8>>()",
    }
    kernels = SimpleNamespace(
        names=names, name=array("q", [0, 1, 2, 1, 0, 2, 2]), full_name=array("q", [-1, -1, 3, -1, -1, 4, -1])
    )
    window: Any = SimpleNamespace(
        kernels=kernels,
        durations_ns=array("q", [1] * 7),
        stage_codes=(array("q", [0, 0, 0, 2, 1, 0, 0]), ["first", "second", "first"]),
        rank=SimpleNamespace(number=5),
        encode_names=lambda called: RankWindow.encode_names(window, called),
    )
    assert [*kernel_launches(window).items()] == [
        (("first", "at 0x"), 3),
        (("first", "device_kernel"), 1),
        (("first", "device_kernel<A, 4>"), 1),
        (("first", "device_kernel<A, 8>"), 1),
        (("second", "at 0x"), 1),
    ]


def stage_times(*ranges: tuple[str, int, int]) -> Any:
    """Of units that begin at 100, 200 and 300 ns, the last of which nobody knows the end of."""
    named = [Range(start, end, 1, name) for name, start, end in ranges]
    marks = [SimpleNamespace(start_ns=at) for at in (100, 200, 300)]
    run: Any = SimpleNamespace(list_rank_ranges=lambda *_: named, find_anchors_of_kind=lambda *_: marks)
    window: Any = SimpleNamespace(rank=0, spec=None, track=SimpleNamespace(window_group=SimpleNamespace(run=run)))
    return _sum_stage_times(run, window, TwoStages(("a",), ("b",)))


def test_ranges_of_a_stage_that_touch_or_have_no_length_do_not_overlap() -> None:
    found = stage_times(("a", 100, 150), ("a", 150, 160), ("a", 155, 155), ("b", 120, 170), ("a", 159, 165))
    assert found.overlapping_count == 1


def launched(starts: Sequence[int], ends: Sequence[int], launches: Sequence[int]) -> RankRanges:
    start_ns, end_ns = array("q", starts), array("q", ends)
    kernels = replace(NO_KERNELS, start_ns=start_ns, end_ns=end_ns)
    return RankRanges(ClosedRanges({}), Ranges.from_ranges(()), KernelLaunches(kernels, array("q", launches)))


def test_the_time_of_what_was_launched_in_a_span_has_its_edges() -> None:
    """By start where no launch is known; kernels of 1, 2, 4 and 8 ns tell by their sum which are in it."""
    work = launched([50, 20, 60, 90], [51, 22, 64, 98], [10, NO_LAUNCH, 30, 40])
    assert list(work.launched_ns) == [10, 20, 30, 40]
    spans = ((10, 40), (11, 39), (20, 30), (30, 30), (31, 39), (0, 9), (41, 99))
    starts, ends = numpy.array(spans).T
    assert work.sum_kernel_time_ns(starts, ends).tolist() == [15, 6, 6, 4, 0, 0, 0]


def test_anchors_that_are_few_or_nested_or_of_two_threads_are_no_candidate() -> None:
    def found(*spans: tuple[int, int], threads: Sequence[int] = (1,)) -> AnchorCandidate | None:
        each = [Range(start, end, threads[i % len(threads)], "s") for i, (start, end) in enumerate(spans)]
        return launched([0], [4], [0]).build_candidate("s", Ranges.from_ranges(each))

    touching = [(10 * n, 10 * n + 10) for n in range(MIN_ANCHORS)]
    one = found(*touching)
    assert one is not None
    assert (one.count, one.length_ns, one.period_ns) == (MIN_ANCHORS, 10, 10)
    assert [float(share) for share in (one.period_spread, one.inside_share, one.covered_share)] == [0, 1, 1]
    assert found(*touching[1:]) is None
    assert found(*touching, threads=(1, 2)) is None
    assert found((0, 11), *touching[1:]) is None


def test_a_pattern_that_matches_ranges_of_another_shape_is_left_out() -> None:
    names = ("a 1", "a 2", "a x", "b", "c")
    closed = ClosedRanges({(0, 0): Ranges.from_ranges(Range(i, i, 0, name) for i, name in enumerate(names))})
    assert [pattern for pattern in sorted({*closed.pattern_by_name.values()}) if closed.matches_one_shape(pattern)] == [
        "a x",
        "b",
        "c",
    ]


@pytest.mark.parametrize(
    ("bars", "joined"),
    [
        ([(0, 5)], [(0, 5, 1)]),
        ([(0, 5), (9, 12)], [(0, 12, 2)]),
        ([(0, 5), (15, 17)], [(0, 5, 1), (15, 17, 1)]),
        ([(0, 5), (14, 17), (20, 40), (41, 42)], [(0, 17, 2), (20, 40, 1), (41, 42, 1)]),
        ([(0, 10), (11, 20)], [(0, 10, 1), (11, 20, 1)]),  # the second is short, and alone
    ],
)
def test_short_neighbours_are_one_bar(bars: Sequence[tuple[int, int]], joined: Sequence[tuple[int, int, int]]) -> None:
    each = [Bar(start, end, "k", "stage") for start, end in bars]
    found = list(_merge_short_bars(each, 10))
    assert [(bar.start_ns, bar.end_ns, bar.kernel_count) for bar in found] == list(joined)
    assert [bar.name == "k" for bar in found] == [kernels == 1 for _, _, kernels in joined]


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        (Workload(), ""),
        (Workload(samples=8), "8 samples"),
        (Workload(local_samples=2), "2 samples per replica"),
        (Workload(local_samples=2, parallel=Parallel(4)), "2 samples per replica, dp 4xrest"),
        (Workload(local_samples=2, parallel=Parallel(4, 2)), "2 samples per replica, dp 4x2"),
    ],
)
def test_the_batch_of_a_step_is_told_as_it_was_stated(stated: Workload, words: str) -> None:
    assert format_batch(stated) == words


@pytest.mark.parametrize("length", [(1 << 63) - 1, 1 << 63])
def test_kernels_that_last_longer_than_64_bits_say(gpu: OneProcess, length: int) -> None:
    """No profiler writes centuries; the longest that can be counted is."""
    gpu.range("step", 0, 1_000)
    gpu.kernel("gemm", -10, 500)
    gpu.kernel("gemm", -10, length - 10)
    path = Path(gpu)
    result = run("rows", "compute_ns", "window_ns", "--trace", path, "--window=run", "--format=csv")
    if length < 1 << 63:
        assert result.exit_code == 0, result.output
        assert f"compute_ns,0,{length + 510},ns\nwindow_ns,0,{length},ns\n" in result.output
    else:
        assert result.exit_code == 2
        assert "from the first kernel to the last are more than 292 years: damaged" in result.output
