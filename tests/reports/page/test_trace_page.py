"""Does ``pytest-nsys TRACE --format html`` show the run: all ranks, one on the timeline, and every view of it?"""

from __future__ import annotations

import dataclasses
import tempfile
import webbrowser
from pathlib import Path

import pytest

from tests.support.browser import Browser, needs_browser
from tests.support.commands import answer, run
from tests.support.fault_programs import data_parallel
from tests.support.gates import write_trace
from tests.support.page import Page
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.formats import Format
from tests.support.summaries import summary
from tests.support.training_run import PLAIN

VIEWS = ["ranks", "overlap", "streams", "kernels", "collectives", "budget"]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks with overlapped and exposed communication."""
    return write_trace(tmp_path_factory.mktemp("trace") / "run.sqlite")


def read_page(*arguments: object) -> Page:
    """Return the page that a command prints. It must print nothing beside it."""
    result = run(*arguments, "--format=html", code=0)
    assert result.stderr == ""
    found = Page(result.stdout)
    found.asks_for_nothing()
    return found


def test_the_page_has_what_the_first_screen_has(trace: Path) -> None:
    page, screen = read_page(trace), summary(trace)
    (headline,) = page.texts["h1"]
    assert headline.startswith("Window ")  # of a trace whose anchor is a part of a step
    assert "compute" in headline
    shown = [*page.texts["h2"]]
    assert shown[-7:] == [
        *("Where the time goes", "Timeline of the slowest rank", "What to look at", "Kernels", "Communication"),
        *("In full", "Next"),
    ]
    assert len(page.by_class("strips")) == 1
    names = [text for text in page.texts["span"] if text.startswith("rank ")]
    assert names == [f"rank {budget.rank} " for budget in screen.budgets]
    (timeline,) = page.by_class("timeline")
    assert timeline["id"] == "window-1"
    assert [each for each in page.texts["summary"] if each in VIEWS] == VIEWS
    cells = page.texts["td"]
    for kernel in screen.kernels.largest:
        assert any(kernel.display_name in cell for cell in cells), kernel


def test_a_strip_shows_when_a_rank_computed_to_the_nanosecond(tmp_path: Path) -> None:
    """Two kernels of 30 and 20 us, and 50 us between them, most of it before the second is launched."""
    builder = TraceBuilder()
    gpu = builder.process()
    gpu.kernel("gemm", 0, 30_000, launch_ns=0)
    gpu.kernel("gemm", 80_000, 100_000, launch_ns=70_000)
    page = read_page(builder.write(tmp_path / "run.sqlite"))
    own = [attributes for attributes in page.by_class("part-compute") if "d" in attributes]
    assert own[0]["d"] == "M0 10h30000M80000 10h20000"
    (starved,) = [one for one in page.by_class("part-starved") if one.get("stroke", "").startswith("url(#strips")]  # type: ignore[union-attr]
    assert starved["d"] == "M30000 10h43000"  # until the call that launched it, of 3 us, returned


def test_the_first_line_says_where_the_window_is_shorter_than_a_step(tmp_path: Path) -> None:
    """Shares are of the window that is drawn, not of the typical step."""
    trace = TraceBuilder()
    gpu = trace.process()
    at = 0
    for length_ms in (4, 4, 4, 40, 40, 40, 40):
        gpu.range("step", at, at + length_ms * 1_000_000)
        gpu.kernel("gemm", at + 1_000, at + 3_000_000, launch_ns=at + 500)
        at += length_ms * 1_000_000
    path = trace.write(tmp_path / "run.sqlite")
    (headline,) = read_page(path, "--anchor", "step", "--window", "1").texts["h1"]
    assert headline.replace("\u00a0", " ") == "Step 40 ms; the window below, 4 ms: 75% compute, 25% between steps"
    (alike,) = read_page(path, "--anchor", "step", "--window", "4").texts["h1"]
    assert "; the window below" not in alike


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_alone_is_a_page_with_its_notes(view: str, trace: Path) -> None:
    page, told = read_page(trace, "--view", view), answer(trace, "--view", view)
    assert page.texts["h1"] == [f"{view} of run.sqlite"]
    text = " ".join(" ".join(each) for each in page.texts.values())
    assert [note for note in told["notes"] if note.split(": ", 1)[-1][:60] not in text] == []
    assert f"pytest-nsys {trace}" in "".join(page.texts["code"])


def test_names_of_a_trace_are_text(tmp_path: Path) -> None:
    builder = TraceBuilder()
    gpu = builder.process()
    evil = "<img/src=x>{{ 7*7 }}"
    gpu.kernel(evil, 0, 30_000, launch_ns=0)
    page = read_page(builder.write(tmp_path / "run.sqlite"))
    assert any(evil in cell for cell in page.texts["td"])


def test_what_a_view_cannot_show_says_why(tmp_path: Path) -> None:
    """Without communication there is no overlap; the page says so, and has the rest."""
    builder = TraceBuilder()
    builder.process().kernel("gemm", 0, 30_000, launch_ns=0)
    page = read_page(builder.write(tmp_path / "run.sqlite"))
    assert any("communication" in text for text in page.texts["p"])
    assert any("gemm" in cell for cell in page.texts["td"])


def test_the_ranks_that_are_asked_for(trace: Path) -> None:
    page = read_page(trace, "--rank", 1)
    assert [text for text in page.texts["span"] if text.startswith("rank ")] == ["rank 1 "]


@pytest.mark.slow
def test_64_ranks_are_at_most_600_kb(tmp_path: Path) -> None:
    path = data_parallel(64, steps=5, layers=2).write(tmp_path / "run", Format.NSYS, 1)
    page = run(path, "--format=html", code=0).stdout
    assert len(page.encode()) <= 600_000
    assert len([text for text in Page(page).texts["span"] if text.startswith("rank ")]) == 64


def test_a_page_opens_in_the_browser(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def note(address: str) -> bool:
        opened.append(address)
        return len(opened) == 1

    monkeypatch.setattr(webbrowser, "open", note)
    target = tmp_path / "page.html"
    assert run(trace, "--open", "-o", target, code=0).stdout == f"{target}\n"
    assert opened == [target.as_uri()]
    said = run(trace, "--view", "kernels", "--open", code=0).stdout
    assert said.endswith("run.html: no browser was found here, open it yourself\n")
    assert "kernels of run.sqlite" in Path(said.partition(": ")[0]).read_text(encoding="utf-8")


def test_a_mistake_opens_no_older_page_and_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    older_page = tmp_path / "page.html"
    older_page.write_text("of another run", encoding="utf-8")
    assert run(tmp_path / "no.sqlite", "--open", "-o", older_page, code=2).stdout == ""
    assert run(tmp_path / "no.sqlite", "--open", code=2).stdout == ""
    assert opened == []
    assert [*scratch.iterdir()] == []


def test_open_goes_with_a_page_alone(trace: Path) -> None:
    said = run(trace, "--view", "kernels", "--open", "--format", "json", code=2)
    assert said.stderr == "error: --open shows a page: leave out --format json\n"


def test_the_time_between_steps_has_its_colour_and_pattern(tmp_path: Path) -> None:
    path = dataclasses.replace(PLAIN, loading_ns=3_000_000).write(tmp_path / "run.json", Format.KINETO)
    assert any("strips-part-between" in (one.get("stroke") or "") for one in read_page(path).by_class("part-between"))


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_a_phone_and_a_desk(browser: Browser, trace: Path, tmp_path: Path, width: int, dark: bool) -> None:
    path = tmp_path / "page.html"
    run(trace, "--format=html", "-o", path, code=0)
    browser.open(path, width, dark=dark)
    assert browser.errors == []
    assert browser.asked == [path.resolve().as_uri()]
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.querySelectorAll('figure.timeline .tools:not([hidden])').length") == 1
