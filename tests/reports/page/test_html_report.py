"""Does ``--nsys-html`` write one whole page: verdicts first, exact, the same bytes again, all names as text?"""

import json
import re
import shutil
import unicodedata
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.budget import timeline
from pytest_nsys.analysis.budget.timeline import build_timeline
from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.explain.breakdown_model import (
    Change,
    ChangeKind,
    Explanation,
    RootCause,
    RowActivity,
    RowExplanation,
)
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.reports.drawings.pictures import Picture
from pytest_nsys.reports.page.session_page import render_session_page
from pytest_nsys.reports.page.templating import LONG_WORD, NO_BREAK, break_words, embed_json, keep_units_together
from pytest_nsys.reports.page.timeline_view import BlamedKernels, build_timeline_views, list_marks
from pytest_nsys.stored.baselines.store import build_window_path, compute_digest
from tests.support import git_project
from tests.support.commands import run
from tests.support.gates import Exposed, Project, write_trace
from tests.support.page import GLOSSARY, Page
from tests.support.red_page import red_session
from tests.support.reports import base_verdict, make_session, record
from tests.support.samples.builder import Process, TraceBuilder

RUN = ("--nsys-trace=run.sqlite", "--nsys-html=page.html")
HELD = "- exposed_ns below baseline plus 5%\n"
EVIL = '<script>alert("1")</script>\'&\x1b[31m\u202eevil</td>'


def page(project: Project, *options: str, code: int = 1) -> Page:
    project.pytest(*(options or RUN), code=code)
    return Page((project.root / "page.html").read_text(encoding="utf-8"))


def compared(project: Project, head: Exposed, gate: str = HELD, *options: str, **base: Any) -> Page:
    """The page of a gate on a trace and another one."""
    project.gated(gate, head)
    project.trace("base.sqlite", **base)
    return page(project, *RUN, "--nsys-against=base.sqlite", *options)


def judged(project: Project, gate: str = "- overlap >= 90%\n", **trace: Any) -> Page:
    """The page of a gate on a trace."""
    project.gated(gate, **trace)
    return page(project)


RED = """
- overlap >= 10%
- id: red
  assert: overlap >= 90%
- exposed_ns < 10ms
"""


def test_its_foot_leads_to_what_its_words_mean(project: Project) -> None:
    assert f'<a href="{GLOSSARY}">What the words mean</a>' in judged(project).text


def test_the_picture_comes_first_then_what_failed_in_short(project: Project) -> None:
    found = judged(project, RED, exposed_us={(1, "stage4_f"): 450})
    verdicts = [attrs for tag, attrs in found.tags if tag == "details" and "assertion" in (attrs.get("class") or "")]
    assert [attrs["class"] for attrs in verdicts] == ["assertion failed bad", "assertion passed", "assertion passed"]
    assert not any("open" in attrs for attrs in verdicts)
    assert found.texts["h1"] == ["Overlap 55% < 90%, rank 1 stage4_f"]
    for words in (
        "3 assertions: 1 failed, 2 passed",
        "4 of 4 rows below their limit",
        "55%",
        "short by 35\u00a0pp",
        "gate.nsys.yaml:4",
    ):
        assert words in found.text, words
    places = [
        found.text.index(part) for part in ("<h1>", 'class="next"', 'class="ranks', 'class="plot"', 'class="assertion')
    ]
    assert places == sorted(places)


def test_each_root_has_its_picture_above_its_assertions_and_what_has_none_comes_last(project: Project) -> None:
    found = compared(project, {(1, "stage4_f"): 700}, f"- launches <= 1\n- overlap >= 90%\n{HELD}")
    leading, unknown, *_ = found.texts["h2"]
    assert leading.startswith("gemm ")
    assert unknown == "Cause not known"
    first, last, *_ = found.text.split('<section class="root"')[1:]
    parts = ('class="next"', '<figure class="timeline" id="window-1">', "<b>exposed_ns below", "<b>overlap")
    places = [first.index(part) for part in parts]
    assert places == sorted(places)
    assert "<b>launches" in last
    assert 'href="#root-2">next</a>' in first
    assert 'href="#root-1">previous</a>' in last
    assert len(found.texts["figure"]) == len({*re.findall('id="window-[0-9]+"', found.text)}) == 2


def test_one_root_is_told_by_the_first_line_alone(project: Project) -> None:
    found = compared(project, {(1, "stage4_f"): 700}, f"- overlap >= 90%\n{HELD}")
    (sentence,) = found.texts["h1"]
    assert found.texts["h2"] == ["What failed", "More windows"]
    assert found.text.replace("<wbr>", "").count(sentence) == 1
    assert ">next</a>" not in found.text


@pytest.mark.slow
def test_eight_configurations_of_one_root_are_one_section_within_400_kb(project: Project) -> None:
    def busy(_: TraceBuilder, processes: list[Process]) -> None:
        for process in processes:
            for n in range(5 * 500):
                at = 20_000_000 * (n // 500) + 9_000_000 + 11_000 * (n % 500)
                process.kernel(f"void some::long<kernel_{n % 40}>(a, b)", at, at + 5_000 + n % 7)

    names = [f"model-{n}" for n in range(8)]
    matrix = "".join(f"  {name}: {name}.sqlite\n" for name in names)
    project.gate(f"matrix:\n{matrix}assertions:\n- overlap >= 75%\n{HELD}")
    for name, exposed_us in ((name, us) for us in (200, 600) for name in names):
        project.trace(f"{name}.sqlite", exposed_us, edit=busy)
        if name == names[-1] and exposed_us == 200:
            project.refresh()
    found = page(project, "--nsys-html=page.html")
    assert len(found.text.encode()) < 400_000
    assert len(found.by_class("root")) == 1
    assert found.texts["b"].count("overlap >= 75%") == 1
    assert "model-0 and 7 more" in found.text
    assert found.text.count("model-7") > 2


def test_of_what_commit_and_branch_a_page_is(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    git_project.isolate(monkeypatch)
    git_project.start(project)
    project.gated("- overlap >= 10%\n")
    commit = git_project.commit(project.root)
    assert f"<li>commit {commit[:10]} on main</li>" in page(project, code=0).text
    project.gate("- overlap >= 11%\n")
    assert f"<li>commit {commit[:10]} on main, with local changes</li>" in page(project, code=0).text


def test_headings_leave_out_no_level(project: Project) -> None:
    session = compared(project, 300, f"{HELD}- overlap >= 90%\n")
    comparison = run("compare", "base.sqlite", "run.sqlite", "--gate=gate.nsys.yaml", "--format=html").stdout
    for found in (session, Page(comparison)):
        levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))


def test_a_bar_ends_at_the_limit_and_each_side_has_a_scale(project: Project) -> None:
    project.gate("- exposed_ns < 400us\n")
    project.trace(exposed_us={(0, "stage2_f"): 700, (0, "stage4_f"): 550, (1, "stage2_f"): 100, (1, "stage4_f"): 250})
    page(project)
    text = (project.root / "page.html").read_text()
    bars = re.findall(r'<rect class="(crossed|held|waived)" x="(\d+)" y="(\d+)" width="(\d+)"', text)
    assert bars == [
        ("crossed", "70", "2", "68"),
        ("crossed", "70", "2", "34"),
        ("held", "36", "5", "34"),
        ("held", "2", "5", "68"),
    ]


def test_the_timeline_of_the_worst_ranks_in_their_order(project: Project) -> None:
    found = judged(project, ranks=3, exposed_us={(2, "stage2_f"): 900, (1, "stage4_f"): 800})
    assert [text.partition(" (")[0] for text in found.texts["h3"]] == ["rank 2", "rank 1", "rank 0"]


def test_at_most_eight_timelines(project: Project) -> None:
    assert len(judged(project, ranks=10).texts["figure"]) == 8


def test_a_green_session_has_the_rank_that_is_nearest_to_failing(project: Project) -> None:
    project.gated("- overlap >= 10%\n", {(1, "stage4_f"): 700})
    found = page(project, code=0)
    assert [text.partition(" (")[0] for text in found.texts["h3"]] == ["rank 1"]
    assert found.texts["h1"] == [
        "1 assertion passed; least headroom 200% of limit: overlap 30%, limit 10%, rank 1 stage4_f"
    ]


def test_lanes_and_exposed_parts_are_those_of_the_trace(project: Project) -> None:
    found = judged(project, ranks=1, exposed_us={(0, "stage4_f"): 450})
    (data,) = found.data
    (side,) = data["sides"]
    assert data["length"] == 15_000_000
    compute, communication = side["lanes"]
    assert (compute["name"], communication["name"]) == ("stream 7, compute", "stream 28, ep_a2a")
    assert communication["s"] == [1_010_000, 4_000_000]
    assert communication["d"] == [1_000_000] * 2
    assert communication["x"] == [200_000, 450_000]
    assert [side["stages"][g] for g in communication["g"]] == ["stage2_f", "stage4_f"]
    (exposed,) = [attrs["d"] for attrs in found.by_class("exposed") if (attrs["d"] or "").count("M") == 2]
    assert exposed == "M1810000 10h200000M5560000 10h450000"
    said = [attrs["aria-label"] for attrs in found.by_class("lane")]
    assert said == [
        "stream 7, compute: 2 kernels, busy 1.35 ms",
        "stream 28, ep_a2a: 2 kernels, busy 2 ms, exposed 650 us",
    ]


def test_a_barrier_is_marked(project: Project) -> None:
    def barrier(_: TraceBuilder, processes: list[Process]) -> None:
        for k in range(5):
            at = 20_000_000 * k + 9_000_000
            processes[0].kernel("ncclDevKernel_AllReduce", at, at + 100_000, launch_ns=at - 1000)

    found = judged(project, ranks=1, edit=barrier)
    assert found.data[0]["sides"][0]["lanes"][0]["b"] == [2]
    assert "M8999000 10h100000" in {attrs["d"] for attrs in found.by_class("barrier")}


def test_compute_has_the_colour_of_its_family_and_what_hides_less_is_marked(project: Project) -> None:
    found = compared(project, {(1, "stage4_f"): 700})
    legend, *_ = [text for text in found.texts["b"] if text == "cause"]
    assert legend
    drawn = [[attrs["d"] or "" for attrs in found.by_class(css)] for css in ("family-gemm", "marked")]
    for side in found.data[0]["sides"]:
        compute = side["lanes"][0]
        starts = [sum(compute["s"][: n + 1]) for n in range(len(compute["s"]))]
        bars = [*zip(starts, compute["d"], strict=True)]
        marked = [bar for bar, g in zip(bars, compute["g"], strict=True) if side["stages"][g] == "stage4_f"]
        assert 0 < len(marked) < len(bars)
        for paths, middle, own in zip(drawn, (10, 18.5), (bars, marked), strict=True):
            assert "".join(f"M{a} {middle}h{n}" for a, n in own) in paths


def test_a_root_is_marked_in_its_stage_and_on_its_rank() -> None:
    def row(rank: int, *roots: Change, kernel: str = "gemm") -> RowExplanation:
        labels: dict[str, int | str] = {"rank": rank, "stage": "stage4_f"}
        return RowExplanation(
            labels,
            Explanation(5, (Change(RootCause(ChangeKind.LONGER, RowActivity.KERNEL, kernel), 0, 0, 5),), 0),
            roots,
        )

    slow = Change(RootCause(ChangeKind.LONGER, RowActivity.COLLECTIVE, "SendRecv", "stage4_f"), 1, 5, 10)
    late = Change(RootCause(ChangeKind.LATER, RowActivity.HOST, "gemm"), 1, 5, 10)
    assert list_marks([row(1, slow)], 1) == [BlamedKernels("SendRecv", "stage4_f")]
    assert list_marks([row(0, slow)], 1) == [BlamedKernels("SendRecv", "stage4_f")]  # that rank 0 waits for
    assert list_marks([row(1, slow)], 0) == []
    assert list_marks([row(1, late)], 1) == [BlamedKernels("gemm", None, is_host=True)]
    assert list_marks([row(1)], 1) == [BlamedKernels("gemm", "stage4_f")]
    assert list_marks([row(1)], 0) == []


def test_of_kernels_that_share_a_name_the_one_that_changed_is_marked(project: Project) -> None:
    def of_one_template(length_us: int) -> Any:
        def add(_: TraceBuilder, processes: list[Process]) -> None:
            for k in range(5):
                at = 20_000_000 * k + 9_001_000
                for tile, own_us in (("128", 500), ("256", length_us)):
                    full = f"void cutlass::device_kernel<Tile<{tile}>>(P)"
                    processes[0].kernel("device_kernel", at, at + 1_000 * own_us, demangled=full)
                    at += 2_000_000

        return add

    project.gated("- compute_ns below baseline plus 1%\n", ranks=1, edit=of_one_template(1_500))
    project.trace("base.sqlite", ranks=1, edit=of_one_template(1_000))
    found = page(project, *RUN, "--nsys-against=base.sqlite")
    assert {"Tile<128>", "Tile<256>"} <= {*found.data[0]["sides"][1]["names"]}
    marked = [attrs["d"] for attrs in found.by_class("marked") if (attrs["d"] or "") != "M0 16h24"]
    assert marked == ["M11000000 18.5h1000000", "M11000000 18.5h1500000"]


def test_base_stands_above_head_on_one_scale(project: Project) -> None:
    found = compared(project, 300, chunks_ms=(15, 15, 16, 15, 15))
    assert [[side["name"] for side in data["sides"]] for data in found.data] == [["base", "head"]] * 2
    assert {attrs["viewbox"] for attrs in found.by_class("lane")} == {"0 0 16000000 20"}


def test_the_window_that_is_kept_of_the_accepted_run_stands_above_head(project: Project) -> None:
    project.gated(HELD, name="base.sqlite")
    project.trace("run.sqlite", 300)
    project.refresh("--nsys-trace=base.sqlite")
    (stored,) = (project.root / "baselines").rglob("*.json")
    whole = stored.read_text()
    told = json.loads(whole)
    assert told["provenance"].pop("window") == compute_digest(build_window_path(stored).read_bytes())
    stored.write_text(json.dumps(told))
    assert [[side["name"] for side in data["sides"]] for data in page(project).data] == [[""]] * 2  # of which run?
    stored.write_text(whole)
    kept = page(project).data
    against = page(project, *RUN, "--nsys-against=base.sqlite").data
    assert [[side["name"] for side in data["sides"]] for data in kept] == [["base", "head"]] * 2
    assert kept == against


def test_compare_has_the_same_building_blocks(project: Project) -> None:
    ours = compared(project, 300)
    result = run("compare", "base.sqlite", "run.sqlite", "--gate=gate.nsys.yaml", "--format=html")
    theirs = Page(result.stdout)
    assert theirs.data == ours.data
    assert theirs.texts["style"] == ours.texts["style"]


def test_causes_and_numbers_are_those_of_the_json_report(project: Project) -> None:
    found = compared(project, {(1, "stage4_f"): 500}, HELD, "--nsys-json=report.json")
    report = json.loads((project.root / "report.json").read_text())
    (assertion,) = report["gate_files"][0]["assertions"]
    causes = [each["text"] for row in assertion["causes"] for each in row["why"]]
    assert causes
    assert {
        *map(keep_units_together, causes),
        *(keep_units_together(row["value"]["text"]) for row in assertion["rows"]),
    } <= {*found.texts["td"]}


# The steady windows, and the past


def test_the_values_of_the_steady_windows(project: Project) -> None:
    def longer(_: TraceBuilder, processes: list[Process]) -> None:
        at = 20_000_000 * 3 + 1_001_000 + 10_000  # the fourth window's first stage
        processes[0].kernel("ncclDevKernel_SendRecv", at + MORE, at + MORE + 50_000, stream=28, launch_ns=at + 500)

    MORE = 1_000_000
    found = judged(project, "- stage2_f exposed_ns < 100us\n", ranks=1, edit=longer)
    dots = [attrs["class"] for attrs in found.by_class("dot")]
    assert dots == ["dot", "dot own", "dot"]
    said = [text for text in found.texts["title"] if text.startswith("window ")]
    assert said == ["window 2: 200 us", "window 3: 200 us", "window 4: 250 us"]


def test_too_few_windows_are_said_to_be_too_few(project: Project) -> None:
    project.gated("quality: {anchors: 4}\nassertions:\n- overlap >= 90%\n", ranks=1, chunks_ms=(15,) * 4)
    assert "Left out: the middle half of 4 anchors is 2: too few to show a distribution" in page(project).text


def test_the_work_for_it_is_bounded(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_nsys.reports.drawings.pictures.MAX_STEADY_KERNELS", 10)
    found = judged(project, ranks=1)
    assert "Left out: about 12 kernels would have to be read" in found.text
    assert not found.by_class("dot")


def test_the_trend_ends_with_this_run(project: Project) -> None:
    project.gate("- exposed_ns < 400us\n")
    history = "--nsys-history=past.db"
    for exposed in (200, 250):
        project.trace(exposed_us=exposed, ranks=1)
        project.pytest("--nsys-trace=run.sqlite", history, code=0)
    project.trace(exposed_us={(0, "stage4_f"): 500}, ranks=1)
    found = page(project, *RUN, history)
    (plot,) = [attrs for tag, attrs in found.tags if tag == "svg" and attrs.get("class") == "plots"]
    assert plot["aria-labelledby"] == "trend-1"
    assert any("rank 0 stage4_f, 3 values from 200 us to 500 us" in text for text in found.texts["title"])
    assert any(text.startswith("this run, 500 us") for text in found.texts["title"])


def test_an_overlap_has_a_trend_for_each_stage(project: Project) -> None:
    project.gate("- overlap >= 40%\n")
    history = "--nsys-history=past.db"
    for exposed in (200, 250):
        project.trace(exposed_us=exposed, ranks=2)
        project.pytest("--nsys-trace=run.sqlite", history, code=0)
    project.trace(exposed_us={(1, "stage4_f"): 700}, ranks=2)
    found = page(project, *RUN, history)
    plots = [attrs["aria-labelledby"] for tag, attrs in found.tags if tag == "svg" and attrs.get("class") == "plots"]
    assert plots == ["trend-1", "stage-trend-1", "stage-trend-2"]
    titles = [text for text in found.texts["title"] if " values from " in text]
    assert [text.split(", ")[0] for text in titles[1:]] == ["overlap rank 0 stage2_f", "overlap rank 1 stage4_f"]
    assert "3 values from 80% to 30%" in titles[2]


def test_what_never_moved_has_no_trend(project: Project) -> None:
    project.gate("- exposed_ns < 400us\n")
    history = "--nsys-history=past.db"
    project.trace(exposed_us=200, ranks=1)
    for _ in range(2):
        project.pytest("--nsys-trace=run.sqlite", history, code=0)
    found = page(project, *RUN, history, code=0)
    assert not found.by_class("plots")
    assert "No judged row has moved." in found.text


def test_a_green_session_draws_its_run_alone(project: Project) -> None:
    """What did not change is not drawn twice."""
    project.gate("trace: run.sqlite\nassertions: [exposed_ns below baseline plus 5%]\n")
    project.trace(ranks=2)
    project.refresh()
    found = page(project, *RUN, code=0)
    assert [[side["name"] for side in each["sides"]] for each in found.data] == [[""]]
    assert not found.by_class("ranks")


def test_windows_that_are_all_alike_are_no_picture(project: Project) -> None:
    found = judged(project, "- overlap >= 90%\n", ranks=1)
    assert not found.by_class("dot")
    assert "All 3 have 80%." in found.text


def test_a_first_run_has_no_trend(project: Project) -> None:
    project.gated("- exposed_ns < 400us\n")
    assert "The history has no earlier run of these rows." in page(project, *RUN, "--nsys-history=h.db", code=0).text


# Somebody else's names


def evil(project: Project) -> None:
    def add(_: TraceBuilder, processes: list[Process]) -> None:
        for k in range(5):
            at = 20_000_000 * k + 12_001_000
            processes[0].kernel(EVIL, at + 20_000, at + 30_000, launch_ns=at + 10_000)
            processes[0].kernel("alert", at + 40_000, at + 50_000, launch_ns=at + 11_000)  # what it is called alone

    project.gated('- id: "</details></script><b>x"\n  assert: overlap >= 90%\n', edit=add, gpu=EVIL)


def test_names_stay_text(project: Project) -> None:
    evil(project)
    found = page(project)
    assert {"b", "script"} & {tag for tag, _ in found.tags} == {"b", "script"}
    assert len([tag for tag, _ in found.tags if tag == "script"]) == 1 + len(found.data) == 3
    assert "</details></script><b>x" in found.texts["b"]
    names = found.data[0]["sides"][0]["names"]
    assert '<script>alert("1")</script>\'&�[31m�evil</td>' in names
    assert not {"\x1b", "\u202e"} & set(found.text)
    assert not re.search(r"<script>alert", found.text)
    found.asks_for_nothing()


@given(st.text())
def test_json_in_a_page_ends_nothing_and_reads_back(text: str) -> None:
    written = embed_json({"name": text})
    assert not set("<>&\u2028\u2029") & set(written)
    assert written.isascii()
    assert json.loads(written)["name"] == text


# The file


def test_the_page_says_what_the_gate_sees_as_the_summary_does(tmp_path: Path) -> None:
    said = red_session(tmp_path, "--nsys-html", "red.html").read_text()
    assert "<dt>smallest change</dt><dd>≥ 806 us (noise not measured)</dd>" in unicodedata.normalize("NFKC", said)


def test_reds_of_the_merge_base_keep_their_lines_and_columns() -> None:
    text = "1 ms > 2 ms\nperf/a.nsys.yaml:4: <exposed>\n  rank  now\n  0     2 ms"
    told = render_session_page(make_session(record(), merge_base=base_verdict("1 failed", red=True, reds=[text])))
    assert f"<pre>{escape(text)}</pre>" in told
    assert "<h2>Gate of the merge base</h2>" in told
    bullets = told.partition("<h2>Gate of the merge base</h2>")[2].partition("</ul>")[0]
    assert ("rank" in bullets, bullets.count("<li>1 failed</li>")) == (False, 3)


def test_the_same_traces_give_the_same_bytes(project: Project) -> None:
    project.gated(RED)
    page(project)
    first = (project.root / "page.html").read_bytes()
    page(project)
    assert (project.root / "page.html").read_bytes() == first


def test_workers_hand_over_the_same_page(project: Project) -> None:
    project.gate(RED + "\n".join(f"- {{id: more {n}, assert: overlap >= 9{n}%}}" for n in range(6)))
    project.trace(exposed_us={(1, "stage4_f"): 450}, ranks=4)
    project.pytest_in_a_process(*RUN, code=1)
    alone = (project.root / "page.html").read_bytes()
    project.pytest_in_a_process(*RUN, "-n2", code=1)
    assert (project.root / "page.html").read_bytes() == alone


def test_nothing_judged_is_no_green_page(project: Project) -> None:
    project.file("test_other.py", "def test_it(): pass\n")
    found = page(project, "--nsys-html=page.html", code=0)
    assert found.texts["h1"] == ["No assertion of a gate file was judged"]
    assert not found.by_class("good")


def test_a_session_that_only_collects_leaves_the_last_page(project: Project) -> None:
    project.gated(RED)
    before = page(project, *RUN).text
    project.pytest(*RUN, "--collect-only", "--nsys-html=page.html", code=0)
    assert (project.root / "page.html").read_text() == before


def test_what_may_not_move_is_not_the_nearest_to_failing(project: Project) -> None:
    project.gated("- no mixed comm streams\n- overlap >= 34%\n", {(1, "stage4_f"): 650})
    found = page(project, *RUN, code=0)
    assert [text.partition(" (")[0] for text in found.texts["h3"]] == ["rank 1"]


def test_a_mistake_and_a_broken_trace_are_told(project: Project) -> None:
    project.gate("- overlp >= 1%\n", "bad.nsys.yaml")
    project.gate(RED)
    (project.root / "run.sqlite").write_bytes(b"SQLite format 3\x00" + b"\xff" * 600)
    said = page(project, *RUN, "--continue-on-collection-errors").text
    assert "unknown metric" in said
    assert "3 assertions: 3 error" in said
    assert "<figure" not in said


@pytest.mark.slow
def test_eight_ranks_of_two_thousand_kernels_fit_into_two_megabytes(project: Project) -> None:
    def busy(_: TraceBuilder, processes: list[Process]) -> None:
        for process in processes:
            for n in range(2_000):
                at = 40_001_000 + 7_400 * n
                name, stream = f"void some::long<kernel_{n % 40}>(a, b)", 30 + n % 4 // 3
                process.kernel(name, at, at + 5_000 + n % 7, stream=stream)

    project.gated("- overlap >= 99.9%\n", ranks=8, edit=busy)
    shutil.copy(project.root / "run.sqlite", project.root / "spare")
    project.trace("base.sqlite", ranks=8, edit=busy)
    found = page(project, *RUN, "--nsys-against=base.sqlite")
    assert len(found.data) == 8
    drawn = [sum(len(lane["d"]) for lane in side["lanes"]) for data in found.data for side in data["sides"]]
    assert len(drawn) == 16
    assert min(drawn) >= 500  # of 2 000 the short ones together
    assert len(found.text.encode()) < 1_500_000


# Many kernels


def test_many_short_kernels_are_taken_together_and_totals_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MIN_MERGED_KERNELS", 100)

    def busy(_: TraceBuilder, processes: list[Process]) -> None:
        for n in range(500):
            at = 48_000_000 + 2_000 * n
            processes[0].kernel("small", at, at + 1_000)

    path = write_trace(tmp_path / "run.sqlite", ranks=1, edit=busy)
    run = CaptureCache().open_captures([str(path)], tmp_path, BUILT_IN_CONVENTIONS["pithtrain"]).runs[0]
    (window,) = run.load_windows(WindowSpec()).windows_by_rank[0]
    found = build_timeline(window)
    compute = found.lanes[0]
    assert compute.kernel_count == sum(bar.kernel_count for bar in compute.bars) == 502
    assert len(compute.bars) == 3
    assert compute.busy_ns == sum(window.durations_ns[i] for i in window.compute)
    assert "500 short kernels" in [bar.name for bar in compute.bars]
    (view,) = build_timeline_views([Picture("", "", 0, head=found)])
    assert view["note"] == "500 short kernels are drawn together with their neighbours"
    run.close()


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), max_size=30), st.integers(0, 20))
def test_taken_together_covers_what_was_there(spans: list[tuple[int, int]], cell: int) -> None:
    bars = [timeline.Bar(a, a + n, "k") for a, n in sorted(spans)]
    merged = list(timeline._merge_short_bars(bars, cell))
    assert sum(bar.kernel_count for bar in merged) == len(bars)
    before, after = (Intervals.from_spans((bar.start_ns, bar.end_ns) for bar in some) for some in (bars, merged))
    assert before.measure_common_ns(after) == before.total_ns
    assert after.total_ns - before.total_ns <= cell * len(bars)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("exposed_ns below baseline plus tolerance", ["exposed_ns below baseline plus tolerance"]),
        (
            "deep_gemm_fp8_m_grouped_gemm_contiguous longer",
            ["deep_", "gemm_", "fp8_", "m_", "grouped_", "gemm_", "contiguous longer"],
        ),
        ("at::native::elementwise_kernel<float>", ["at::", "native::", "elementwise_", "kernel<", "float>"]),
        ("ncclDevKernelAllReduceSumBf16Ring", ["nccl", "Dev", "Kernel", "All", "Reduce", "Sum", "Bf16", "Ring"]),
        ("0" * (LONG_WORD + 1), ["0" * LONG_WORD, "0"]),
        ("", [""]),
    ],
)
def test_long_names_break_where_a_reader_would(text: str, parts: list[str]) -> None:
    assert break_words(text) == parts


@given(st.text(max_size=80))
def test_nothing_is_lost_and_nothing_stays_too_long(text: str) -> None:
    parts = break_words(text)
    assert "".join(parts) == text
    assert all(len(word) <= LONG_WORD for part in parts for word in part.split())


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("Step 12% slower (16.8 → 18.8 ms): 3 streams", "Step 12% slower (16.8_→_18.8_ms): 3 streams"),
        ("−25.3 pp, 71.2 GiB of 4 kernels", "−25.3_pp, 71.2_GiB of 4 kernels"),
        ("500 us (was 800 us): it got shorter", "500_us (was 800_us): it got shorter"),
    ],
)
def test_no_line_parts_a_number_from_its_unit(text: str, whole: str) -> None:
    assert keep_units_together(text) == whole.replace("_", NO_BREAK)
