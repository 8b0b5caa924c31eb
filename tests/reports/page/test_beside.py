"""Do the windows of a run begin at the left end, on one scale, and is it said how much later each began?"""

from dataclasses import replace
from typing import Any

import pytest

from pytest_nsys.analysis.budget.budget import GapPart
from pytest_nsys.analysis.budget.operations import Operation
from pytest_nsys.analysis.budget.timeline import Bar, Timeline, TimelineGap, TimelineLane
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.core.model import Stream
from pytest_nsys.reports.drawings.pictures import Picture
from pytest_nsys.reports.page import timeline_view
from pytest_nsys.reports.page.timeline_view import build_timeline_views
from tests.support.gates import Project
from tests.support.page import Page
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.data_parallel import DataParallelShape, write_data_parallel


def timeline(
    began_ns: int | None, length_ns: int, *, clock: str = "", error_ns: int | None = 0, **more: Any
) -> Timeline:
    """A window with one kernel, from 10 ns on."""
    lane = TimelineLane(
        "stream 7", "compute", "compute", 1, 4, [Bar(10, 14, "gemm", family="gemm")], exposed_spans=[(3, 9)]
    )
    found = Timeline(
        coordinates_text="",
        window="step",
        window_rule="window median",
        start_ns=0,
        length_ns=length_ns,
        common_start_ns=began_ns,
        clock_text=clock,
        clock_error_ns=error_ns,
        kernel_count=1,
        bands=[(5, 25, "stage1_f")],
        lanes=[lane],
    )
    return replace(found, **more)


def picture(rank: int, head: Timeline, base: Timeline | None = None, beside: str = "run") -> Picture:
    return Picture(f"{beside} {rank}", beside, rank, base, head)


def drawn(*pictures: Picture) -> list[tuple[int, list[int], str]]:
    """Of each picture how long it is, when the kernels of its first lane start, and what is told below."""
    views = build_timeline_views(pictures)
    starts = [view["data"]["sides"][-1]["lanes"][0]["s"] for view in views]
    return [(view["length_ns"], own, view["note"]) for view, own in zip(views, starts, strict=True)]


def test_windows_of_several_ranks_share_a_scale() -> None:
    """Rank 1 begins 40 ns later and is 10 ns shorter; what lies outside of a window is no lane."""
    pictures = [picture(0, timeline(began_ns=1_000, length_ns=100)), picture(1, timeline(1_040, 90))]
    assert drawn(*pictures) == [(100, [10], ""), (100, [10], "its window begins 40 ns after the first one here")]
    first, second = build_timeline_views(pictures)
    paths = [{path.css: path.d for path in view["sides"][0]["lanes"][0]["paths"]} for view in (first, second)]
    assert [each.get("outside") for each in paths] == [None, "M90 10h10"]
    assert paths[1]["family-gemm"].startswith("M10 10")


def test_everything_of_a_window_is_drawn_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_view, "build_budget_view", lambda *_: None)
    monkeypatch.setattr(timeline_view, "select_large_parts", lambda _: {*BudgetPart})
    stream = Stream(0, 1, 7)
    by, waiting = (Operation("copy", "copy", "none", stream, a, b) for a, b in ((2, 4), (9, 12)))
    gap = TimelineGap(GapPart(7, 9, BudgetPart.COPY, waiting, by), arrow_lanes=(0, 0))
    one = timeline(1_040, 90, gaps=[gap], budget={}, start_ns=-40)
    (side,) = build_timeline_views([picture(0, timeline(1_000, 100)), picture(1, one)])[1]["data"]["sides"]
    assert side["bands"] == [[45, 20, 0]]
    assert (side["gaps"]["s"], side["gaps"]["d"]) == ([47], [2])
    assert side["gaps"]["a"] == {0: [0, 44, 0, 49]}


@pytest.mark.parametrize(
    ("pictures", "expected"),
    [
        ([picture(0, timeline(1_000, 100))], [(100, [10], "")]),
        (
            [picture(0, timeline(1_000, 100)), picture(1, timeline(1_150, 90))],
            [(100, [10], ""), (100, [10], "its window begins 150 ns after the first one here")],
        ),
        (
            [picture(0, timeline(1_000, 100)), picture(1, timeline(1_040, 90), beside="another")],
            [(100, [10], ""), (90, [10], "")],
        ),
        (
            [picture(0, timeline(1_000, 100)), picture(1, timeline(None, 90, clock="not placed"))],
            [(100, [10], ""), (100, [10], "not placed")],
        ),
        (  # less than it may be wrong by
            [picture(0, timeline(1_000, 100)), picture(1, timeline(1_040, 90, error_ns=40, clock="placed to 40 ns"))],
            [(100, [10], ""), (100, [10], "placed to 40 ns")],
        ),
    ],
    ids=["one rank", "far apart", "of two runs", "nobody knows", "less than its error"],
)
def test_what_is_said_of_a_start(pictures: list[Picture], expected: list[tuple[int, list[int], str]]) -> None:
    assert drawn(*pictures) == expected


def test_base_and_head_begin_at_the_same_place() -> None:
    """However far their clocks are apart: what lies below each other is compared."""
    pictures = [
        picture(0, timeline(1_000, 100), timeline(70_000, 100)),
        picture(1, timeline(1_040, 90), timeline(70_010, 90)),
    ]
    base, head = build_timeline_views(pictures)[1]["data"]["sides"]
    assert base["lanes"][0]["s"] == head["lanes"][0]["s"] == [10]


def test_the_page_of_ranks_in_one_file(project: Project) -> None:
    trace = TraceBuilder()
    for rank in range(2):
        gpu = trace.process(pid=100 + rank, device=rank)
        for at in range(0, 90_000, 10_000):
            gpu.range("forward chunk 0 backward chunk 0", at + 1_500 * rank, at + 9_000)
            gpu.kernel("gemm", at + 1_500 * rank + 10, at + 6_000)
    trace.write(project.root / "run.sqlite")
    project.gate("- compute_ns <= 1ns")
    project.pytest("--nsys-trace=run.sqlite", "--nsys-html=page.html", code=1)
    page = Page((project.root / "page.html").read_text())
    assert "its window begins 1.5 us after the first one here" in page.text
    assert {tuple(one["sides"][0]["lanes"][0]["s"]) for one in page.data} == {(10,)}
    assert [one["length"] for one in page.data] == [9_000, 9_000]
    assert [one["d"] for one in page.by_class("outside")] == ["M7500 10h1500"] * 2  # the lane, and the gaps


def test_the_page_of_ranks_on_two_hosts(project: Project) -> None:
    """Their clocks are 250 ms apart, and their windows begin together but for some microseconds."""
    write_data_parallel(project.root / "run", DataParallelShape(late_us=500, hosts=2))
    project.gate("convention: kineto\ntrace: run\nassertions: [wall_exposed_all_ns <= 1us]")
    project.pytest("--nsys-html=page.html", code=1)
    text = (project.root / "page.html").read_text()
    assert text.count("clocks aligned within 5.5 us by the ends of matched collectives") == 2
    assert "after the first one here" not in text
