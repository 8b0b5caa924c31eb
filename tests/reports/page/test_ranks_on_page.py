"""Does the page of a red draw all ranks, each made of its budget, and mark which one is to blame?"""

import contextlib
import re
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest

from pytest_nsys.analysis.budget.budget import GapPart
from pytest_nsys.analysis.budget.strips import RankStrip
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.gates.model import Outcome
from pytest_nsys.reports.drawings.pictures import RankPicture, VerdictPictures
from pytest_nsys.reports.page.rank_view import build_rank_view, describe_slowest
from pytest_nsys.reports.page.root_view import Section, build_section_views
from tests.support.browser import chromium, needs_browser
from tests.support.commands import run
from tests.support.fault_programs import BACK_GEMM, data_parallel, dense
from tests.support.fault_runs import Do, Op, Program
from tests.support.page import Page
from tests.support.quick_python import quick_python
from tests.support.reports import record
from tests.support.samples.formats import Format

MS = 1_000_000


def strip(rank: int, length_ms: int, *gaps_ms: tuple[int, int, BudgetPart]) -> RankStrip:
    """A window that begins at 7 ms."""
    gaps = [GapPart((7 + start) * MS, (7 + end) * MS, part) for start, end, part in gaps_ms]
    return RankStrip(rank, 7 * MS, length_ms * MS, gaps)


def write_straggler(folder: Path, ranks: int, slow_rank: int) -> Path:
    """The page of a run of which one rank computes longer."""
    slow = data_parallel(ranks=ranks, steps=5)
    for op in slow.ops(BACK_GEMM, ranks=[slow_rank]):
        op.ns = op.ns * 13 // 10
    return write_page(folder, data_parallel(ranks=ranks, steps=5), slow)


def write_page(folder: Path, before: Program, now: Program) -> Path:
    """The page of a gate that ``init`` drafts of one program, for another."""
    base, head = before.write(folder / "base", Format.NSYS, 1), now.write(folder / "head", Format.NSYS, 2)
    with contextlib.chdir(folder):
        run("init", base, code=0)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--nsys-trace={head}", "--nsys-html=page.html", "."]
    subprocess.run([quick_python(), *words], cwd=folder, stdout=subprocess.DEVNULL, check=False)
    return folder / "page.html"


def list_rows(page: Page) -> list[str]:
    """The markup of each rank."""
    return re.findall(r'<li[^>]*><span class="name">rank .*?</li>', page.text, re.DOTALL)


def test_a_stacked_strip_has_the_time_of_each_part_in_one_piece() -> None:
    stacked = strip(0, 20, (1, 3, BudgetPart.COPY), (5, 6, BudgetPart.STARVED), (10, 12, BudgetPart.COPY)).stack_parts()
    assert [(gap.start_ns, gap.end_ns, gap.part) for gap in stacked.gaps] == [
        (22 * MS, 23 * MS, BudgetPart.STARVED),
        (23 * MS, 27 * MS, BudgetPart.COPY),
    ]
    assert stacked.ns_by_part[BudgetPart.COMPUTE] == 15 * MS


def test_all_bars_have_the_scale_of_the_longest() -> None:
    picture = RankPicture("one", [strip(0, 10), strip(1, 12)], [strip(0, 10), strip(1, 24)])
    view = build_rank_view(picture, "ranks-1", cause_ranks=(), waiting_ranks=(), red_ranks=())
    assert view["length_ns"] == 24 * MS
    assert [[side["paths"][0].d for side in row["sides"]] for row in view["rows"]] == [
        ["M0 10h10000000", "M0 10h10000000"],
        ["M0 10h12000000", "M0 10h24000000"],
    ]
    assert [(row["lengths"], row["change"]) for row in view["rows"]] == [
        ("10 → 10 ms", "0%"),
        ("12 → 24 ms", "+100%"),
    ]


def test_what_is_to_blame_counts_more_than_what_waits_or_failed() -> None:
    head = [strip(rank, 10) for rank in range(4)]
    view = build_rank_view(
        RankPicture("one", (), head), "ranks-1", cause_ranks={2}, waiting_ranks=(1, 2), red_ranks={0, 1, 2}
    )
    assert [row["mark"] for row in view["rows"]] == ["red", "waits", "cause", ""]


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        (
            [strip(0, 49), strip(2, 47)],
            [strip(0, 49), strip(2, 54)],
            "Slowest → slowest rank: 49 ms is rank 0, 54 ms is rank 2, which took 47 ms in the base.",
        ),
        ([strip(0, 49), strip(2, 47)], [strip(0, 54), strip(2, 47)], ""),
        ([strip(0, 49), strip(2, 49)], [strip(0, 49), strip(2, 54)], ""),
        ([], [strip(0, 49), strip(2, 54)], ""),
    ],
    ids=["two ranks", "one rank", "equal before", "no base"],
)
def test_the_slowest_ranks_are_named_where_they_differ(
    base: list[RankStrip], head: list[RankStrip], expected: str
) -> None:
    assert describe_slowest(RankPicture("one", base, head)) == expected


@pytest.mark.parametrize(("ranks", "slow_rank", "size"), [(2, 1, "few"), (4, 2, "few"), (16, 10, "some")])
def test_a_straggler_is_seen_among_all_ranks(tmp_path: Path, ranks: int, slow_rank: int, size: str) -> None:
    page = Page(write_straggler(tmp_path, ranks, slow_rank).read_text(encoding="utf-8"))
    assert len(page.by_class("ranks")) == len(page.by_class(size)) == 1
    assert f"{'Both' if ranks == 2 else f'All {ranks}'} ranks, base above head" in page.text
    rows = list_rows(page)
    assert [row.count("<svg") for row in rows] == [2] * ranks
    assert ["<b>cause</b>" in row for row in rows] == [rank == slow_rank for rank in range(ranks)]
    assert ["<b>waits</b>" in row for row in rows] == [rank != slow_rank for rank in range(ranks)]
    # All steps end together, so what a step is made of tells which rank computes longer.
    shares = [Fraction(re.findall(r"head: [\d.]+ ms, ([\d.]+)% compute", row)[0]) for row in rows]
    assert max(range(ranks), key=lambda rank: shares[rank]) == slow_rank
    page.asks_for_nothing()


@pytest.mark.parametrize(("fault", "has_bars"), [(BACK_GEMM, False), ("", True)], ids=["compute", "gaps"])
def test_bars_that_say_the_same_twice_give_way_to_the_waterfall(tmp_path: Path, fault: str, has_bars: bool) -> None:
    """A longer kernel of a step that only computes leaves 99 % compute at 99 %; a gap does not."""
    slow = dense(steps=5)
    if fault:
        for op in slow.ops(fault):
            op.ns = op.ns * 13 // 10
    else:
        slow.edit(lambda step: [Op(Do.WORK, ns=4 * MS), *step])
    page = Page(write_page(tmp_path, dense(steps=5), slow).read_text(encoding="utf-8"))
    assert len(page.by_class("waterfall")) == 1
    assert bool(page.by_class("budget")) is has_bars
    assert not page.by_class("ranks")


def test_a_rank_that_the_base_lacks_has_its_head_alone() -> None:
    picture = RankPicture("one", [strip(0, 10)], [strip(0, 10), strip(1, 12)])
    view = build_rank_view(picture, "ranks-1", cause_ranks=(), waiting_ranks=(), red_ranks=())
    assert [(len(row["sides"]), row["lengths"]) for row in view["rows"]] == [(2, "10 → 10 ms"), (1, "12 ms")]


def test_a_green_run_has_none(tmp_path: Path) -> None:
    page = write_straggler(tmp_path, 2, 1)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--nsys-trace=base/run.sqlite", "--nsys-html=green.html"]
    assert (
        subprocess.run([quick_python(), *words, "."], cwd=tmp_path, stdout=subprocess.DEVNULL, check=False).returncode
        == 0
    )
    green = Page((tmp_path / "green.html").read_text(encoding="utf-8"))
    assert (len(Page(page.read_text()).by_class("ranks")), len(green.by_class("ranks"))) == (1, 0)


MAX_PAGE_BYTES, MAX_SCRIPT_S = 600_000, 1


@needs_browser
@pytest.mark.slow
def test_64_ranks_take_600_kb_and_a_second_of_script(tmp_path: Path) -> None:
    path = write_straggler(tmp_path, 64, 42)
    assert path.stat().st_size <= MAX_PAGE_BYTES
    with chromium() as browser:
        browser.call("Performance.enable")
        browser.open(path)
        metrics = {each["name"]: each["value"] for each in browser.call("Performance.getMetrics")["metrics"]}
        assert metrics["ScriptDuration"] <= MAX_SCRIPT_S
        bottom = browser.run("document.querySelector('.ranks .is-cause').getBoundingClientRect().bottom")
        assert bottom <= 900  # the first screen has it
        assert browser.run("document.documentElement.scrollWidth") <= 1280
        assert browser.errors == []


def test_ranks_are_drawn_once_however_their_windows_are_named() -> None:
    """Two workers of xdist read the windows of a baseline from folders of their own."""
    records = [record(name, line=line, outcome=Outcome.FAILED) for line, name in enumerate(("one", "two", "three"), 1)]
    heads = [[strip(0, 10), strip(1, length_ms)] for length_ms in (10, 10, 30)]
    drawn = [RankPicture(f"worker {n}", (), head) for n, head in enumerate(heads)]
    pictures = {
        each.identity: VerdictPictures((), None, ranks=ranks) for each, ranks in zip(records, drawn, strict=True)
    }
    views = build_section_views([Section(each.name, [each]) for each in records], pictures, {})
    assert [view["ranks"] and view["ranks"]["length_ns"] for view in views] == [10 * MS, None, 30 * MS]
