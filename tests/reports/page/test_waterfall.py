"""Does the waterfall lead from the baseline to the value, cause by cause, with the words of the terminal?"""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.explain.breakdown_model import (
    Change,
    ChangeKind,
    Explanation,
    RootCause,
    RowActivity,
    RowExplanation,
)
from pytest_nsys.core.model import Value
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.model import JudgedRow, Outcome
from pytest_nsys.reports.page.templating import TemplateData
from pytest_nsys.reports.page.waterfall import _build_bars, _tabulate_kernels, draw_waterfall
from pytest_nsys.reports.words.cause_text import list_cause_cells
from pytest_nsys.reports.words.waterfall import BAR_CELLS, build_waterfall, build_waterfall_table, find_waterfall
from tests.support.browser import Browser, needs_browser
from tests.support.gates import Project
from tests.support.page import Page
from tests.support.reports import record

MS = 1_000_000


def explain(*changes_ns: int, unexplained_ns: int = 0) -> RowExplanation:
    """Return a row that kernels k0, k1 and so on made longer or shorter."""
    causes = tuple(
        Change(
            RootCause(ChangeKind.LONGER if ns > 0 else ChangeKind.SHORTER, RowActivity.KERNEL, f"k{number}"),
            *(0, 5 * MS, 5 * MS + ns, 1, 1),
        )
        for number, ns in enumerate(changes_ns)
    )
    return RowExplanation({"rank": 0}, Explanation(sum(changes_ns) + unexplained_ns, causes, unexplained_ns))


def draw_bars(row: RowExplanation, base_ns: Value, head_ns: Value) -> TemplateData | None:
    waterfall = build_waterfall(row, "step_time_ns", base_ns, head_ns)
    return None if waterfall is None else _build_bars(waterfall)


def find_edges(bar: dict[str, str]) -> tuple[float, float]:
    left = float(bar["x"].removesuffix("%"))
    return left, left + float(bar["width"].removesuffix("%"))


def test_each_cause_begins_where_the_one_before_ended() -> None:
    drawing = draw_bars(explain(2 * MS, -1 * MS), 10 * MS, 11 * MS)
    assert drawing is not None
    base, longer, shorter, head = drawing["bars"]
    assert [bar["kind"] for bar in drawing["bars"]] == ["total", "more", "less", "total"]
    assert [bar["amount"] for bar in drawing["bars"]] == ["10 ms", "+2 ms", "−1 ms", "11 ms"]
    assert find_edges(longer)[0] == find_edges(base)[1]
    assert find_edges(shorter)[1] == find_edges(longer)[1]
    assert find_edges(head)[1] == find_edges(shorter)[0]
    assert drawing["note"] == "The bars begin at 8 ms."


def test_the_words_are_those_of_the_terminal() -> None:
    row = explain(2 * MS)
    drawing = draw_bars(row, 10 * MS, 12 * MS)
    assert drawing is not None
    assert [bar["text"] for bar in drawing["bars"][1:-1]] == [text for _, text in list_cause_cells(row)]


def test_a_row_without_bars_does_not_hide_the_next_one() -> None:
    labels = {"rank": 1}
    rows = (
        JudgedRow({"rank": 0}, 10 * MS, 10 * MS, Outcome.PASSED, baseline=10 * MS),
        JudgedRow(labels, 12 * MS, 11 * MS, Outcome.FAILED, baseline=10 * MS),
    )
    causes = (explain(), explain(2 * MS)._replace(labels=labels))
    drawing = draw_waterfall(record(unit=TIME, judged=rows, causes=causes).verdict)
    assert drawing is not None
    assert [bar["amount"] for bar in drawing["bars"]] == ["10 ms", "+2 ms", "12 ms"]


def test_the_rank_with_the_cause_is_drawn_and_not_the_worst_that_waits_for_it() -> None:
    root = RootCause(ChangeKind.LONGER, RowActivity.KERNEL, "gemm")
    changes_ns = {1: 3 * MS, 2: 2 * MS, 0: 1 * MS}
    cause = Change(root, 2, 5 * MS, 7 * MS, 1, 1)
    rows = [
        JudgedRow({"rank": rank}, 10 * MS + ns, 9 * MS, Outcome.FAILED, baseline=10 * MS)
        for rank, ns in changes_ns.items()
    ]
    causes = [RowExplanation({"rank": rank}, Explanation(ns, (), ns), (cause,)) for rank, ns in changes_ns.items()]
    waterfall = find_waterfall(record(unit=TIME, judged=rows, causes=causes).verdict)
    assert waterfall is not None
    assert (waterfall.place, waterfall.head_ns) == ("rank 2", 12 * MS)


@given(st.lists(st.integers(-3 * MS, 3 * MS).filter(bool), min_size=1, max_size=9), st.integers(-MS, MS))
def test_the_bars_lead_to_the_head_whatever_the_causes(changes_ns: list[int], unexplained_ns: int) -> None:
    row = explain(*changes_ns, unexplained_ns=unexplained_ns)
    base_ns = 40 * MS
    drawing = draw_bars(row, base_ns, Fraction(base_ns + row.explanation.change_ns))
    if drawing is None:
        return  # the parts make up for one another
    *steps, head = drawing["bars"]
    edges = [find_edges(bar) for bar in steps]
    assert all(-0.01 <= left <= right <= 100.01 for left, right in edges)
    last = edges[-1][0 if steps[-1]["kind"] == "less" else 1]
    assert last == pytest.approx(find_edges(head)[1], abs=0.01)


def test_the_kernels_that_changed_stand_with_their_launches_and_times() -> None:
    row = explain(2 * MS, -1 * MS)
    table = _tabulate_kernels(row, row.explanation.causes, 3)
    assert table.caption == "Kernels that changed: rank 0 (3 smaller changes left out)"
    assert [*table.rows] == [
        ("k0", "1", "1", "5 ms", "7 ms", "+2 ms"),
        ("k1", "1", "1", "5 ms", "4 ms", "−1 ms"),
    ]


def test_a_count_and_a_green_row_have_none(project: Project) -> None:
    project.accepted("- window_ns below baseline plus 1%\n- no syncs")
    project.pytest("--nsys-trace=run.sqlite", "--nsys-html=page.html", code=0)
    page = Page((project.root / "page.html").read_text(encoding="utf-8"))
    assert page.by_class("waterfall") == []


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_red_time_has_one_and_a_phone_shows_the_timeline_first(
    project: Project, browser: Browser, width: int
) -> None:
    project.accepted("- exposed_ns below baseline plus 1%")
    project.trace(exposed_us={(1, "stage4_f"): 450})
    project.pytest("--nsys-trace=run.sqlite", "--nsys-html=page.html", code=1)
    browser.open(project.root / "page.html", width)
    assert browser.run("document.documentElement.scrollWidth") <= width
    tops = browser.run("['.waterfall', '.timeline'].map(s => document.querySelector(s).getBoundingClientRect().top)")
    assert (tops[0] < tops[1]) is (width > 1_000)


def test_an_axis_reaches_below_0_where_causes_take_more_than_there_was() -> None:
    """What took 5 ms off 1 ms was made up for elsewhere: no bar may leave its lane."""
    row = explain(-5 * MS, unexplained_ns=9 * MS // 2)
    waterfall = build_waterfall(row, "idle_ns", MS, MS // 2)
    assert waterfall is not None
    assert waterfall.choose_axis()[0] < 0
    bars = [str(bar) for _, bar, _ in build_waterfall_table(waterfall).rows]
    assert {len(bar) for bar in bars} == {BAR_CELLS}
    drawing = _build_bars(waterfall)
    assert all(0 <= edge <= 100.01 for bar in drawing["bars"] for edge in find_edges(bar))
