"""Does the page show the budget above the timeline, each gap by its class, and who waited for whom?"""

from pathlib import Path

import pytest

from tests.support.browser import Browser, needs_browser, pixels
from tests.support.commands import run
from tests.support.gates import Project
from tests.support.page import Page
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.known_step import BLOCKS, COPIES, LATE, STALLS, US, known_step
from tests.support.samples.odd_rows import graph_trace

GATE = "- compute_absent_ns < 1ms\n"
WINDOW = 10_000 * US
STARVED, DARK = (224, 189, 0), (255, 240, 106)


def write(path: Path, late_ns: int = LATE, *, whole_graph: bool = False) -> Path:
    """Five known steps, of which the third is the window."""
    gpu = TraceBuilder().process()
    for step in range(5):
        known_step(gpu, 2 * WINDOW * step, late_ns)
        if whole_graph:
            graph_trace(gpu, 2 * WINDOW * step + 9_000 * US, 2 * WINDOW * step + 9_100 * US)
    return gpu.trace.write(path)


def page_of(project: Project, *options: str, gate: str = GATE) -> Page:
    project.gate(gate)
    project.pytest("--nsys-trace=run.sqlite", "--nsys-html=page.html", *options, code=1)
    return Page((project.root / "page.html").read_text(encoding="utf-8"))


def bars(page: Page) -> list[list[tuple[str | None, int]]]:
    """The parts of each bar with their nanoseconds."""
    found: list[list[tuple[str | None, int]]] = []
    for tag, attrs in page.tags:
        if tag == "svg" and attrs.get("class") == "budget-bar":
            found.append([])
        elif tag == "rect" and "data-part" in attrs:
            found[-1].append((attrs["data-part"], int(attrs["data-ns"] or 0)))
    return found


def test_a_bar_and_a_legend_with_values_stand_above_the_timeline(project: Project) -> None:
    write(project.root / "run.sqlite")
    found = page_of(project)
    assert bars(found) == [
        [
            ("compute", WINDOW - LATE - BLOCKS - COPIES - STALLS),
            ("launch-starved", LATE),
            ("blocked by collective", BLOCKS),
            ("blocked by copy", COPIES),
            ("rest", STALLS),
        ]
    ]
    places = [found.text.index(f'class="{name}"') for name in ("budget", "plot", "legend")]
    assert places == sorted(places)
    for words in (
        "<b>launch-starved</b> 0.5\u00a0ms (5%)",
        "<b>blocked by collective</b> 0.3\u00a0ms (3%)",
        "<b>blocked by copy</b> 0.2\u00a0ms (2%)",
        "<li>stage4_b ncclDevKernel_SendRecv blocks grouped_gemm for 0.3\u00a0ms in 1 gap</li>",
        "by how much throughput could rise at most",
    ):
        assert words in found.text, words
    assert {"+5.26%", "0.3\u00a0ms"} <= {*found.texts["td"]}  # both bounds are the same: one line
    (bar,) = found.by_class("budget-bar")
    assert (bar["aria-label"] or "").startswith(
        "Budget of rank 0: compute 8.95\u00a0ms (89.5%), launch-starved 0.5\u00a0ms"
    )
    assert "Budget of rank 0" in found.texts["title"]
    assert "launch-starved 0.5\u00a0ms (5%)" in found.texts["title"]
    found.asks_for_nothing()


def test_gaps_have_their_class_their_kernel_and_their_producer(project: Project) -> None:
    write(project.root / "run.sqlite")
    found = page_of(project)
    (side,) = found.data[0]["sides"]
    gaps, names = side["gaps"], side["names"]
    assert [gaps["kinds"][k] for k in gaps["k"]] == [
        "blocked by collective",
        "blocked by copy",
        "stalled",
        "launch-starved",
    ]
    assert gaps["d"] == [BLOCKS, COPIES, STALLS, LATE]
    assert [names[gaps["w"][str(i)][0]] for i in range(4)] == ["grouped_gemm", "gelu", "layer_norm", "adam"]
    assert [lane["name"] for lane in side["lanes"]] == ["stream 7, compute", "stream 20, ep_a2a", "copies, and memsets"]
    assert gaps["a"] == {"0": [1, 2_300 * US, 0, 2_300 * US], "1": [2, 4_200 * US, 0, 4_200 * US]}
    drawn = {
        attrs["class"]: attrs["d"] for tag, attrs in found.tags if tag == "path" and "part-" in (attrs["class"] or "")
    }
    assert drawn["part-starved"] == "M8000000 10h500000"
    assert drawn["part-collective"] == "M2000000 10h300000"


def test_base_stands_above_head_on_one_scale(project: Project) -> None:
    write(project.root / "run.sqlite")
    write(project.root / "base.sqlite", 100 * US)
    found = page_of(project, "--nsys-against=base.sqlite")
    assert [dict(bar)["launch-starved"] for bar in bars(found)] == [100 * US, LATE]
    assert "<b>launch-starved</b> 0.5\u00a0ms (5%); base 0.1\u00a0ms" in found.text
    compared = Page(run("compare", "base.sqlite", "run.sqlite", "--format=html").stdout)
    assert bars(compared) == bars(found)


def test_a_window_without_a_budget_says_why(project: Project) -> None:
    write(project.root / "run.sqlite", whole_graph=True)
    found = page_of(project, gate="quality: {whole_graphs: off}\nassertions:\n- compute_ns < 1us\n")
    assert bars(found) == []
    assert "No budget: a CUDA graph in the window was traced whole" in found.text
    assert found.data[0]["sides"][0]["gaps"] is None


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("budget")
    base, head = write(folder / "base.sqlite", 100 * US), write(folder / "head.sqlite")
    run("compare", base, head, "--output", folder / "page.html")
    return folder / "page.html"


def box(browser: Browser, selector: str, which: int = 0) -> dict[str, float]:
    found: dict[str, float] = browser.run(
        f"(b => ({{x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height}}))"
        f"(document.querySelectorAll({selector!r})[{which}].getBoundingClientRect())"
    )
    return found


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_bar_has_the_pixels_of_its_parts(browser: Browser, written: Path, width: int, dark: bool) -> None:
    browser.open(written, width, dark=dark)
    assert browser.errors == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    bar = box(browser, ".budget-bar", 1)
    assert bar["width"] > 300
    row = pixels(browser.picture(bar))[int(bar["height"]) - 3]
    painted = [x for x, colour in enumerate(row) if colour == (DARK if dark else STARVED)]
    assert painted[0] == pytest.approx(bar["width"] * 0.895, abs=4)  # the pattern begins with a line
    assert painted[-1] == pytest.approx(bar["width"] * 0.945, abs=4)


@needs_browser
def test_pointing_at_a_gap_tells_its_class_and_draws_an_arrow(browser: Browser, written: Path) -> None:
    browser.open(written, height=2500)
    lane = box(browser, "svg.gaps", 1)
    browser.mouse("mouseMoved", lane["x"] + lane["width"] * 0.215, lane["y"] + 10)
    said = str(browser.run("document.querySelector('.readout').textContent"))
    assert said == (
        "head · blocked by collective: ncclDevKernel_SendRecv (stage4_b) · before grouped_gemm · without compute · "
        "starts at 2 ms · lasts 300 us"
    )
    plot, tip = box(browser, ".plot"), browser.run("document.querySelector('.arrow .shaft').getAttribute('d')")
    x, y = (float(each) for each in str(tip)[1:].partition("C")[0].split())
    producer = box(browser, "svg.lane:has(.communication), svg.lane:has(.exposed)", 1)
    assert plot["x"] + x == pytest.approx(producer["x"] + producer["width"] * 0.23, abs=1)
    assert plot["y"] + y == pytest.approx(producer["y"] + producer["height"] / 2, abs=1)
    browser.mouse("mouseMoved", lane["x"] + lane["width"] * 0.8 + 5, lane["y"] + 15)
    assert "launch-starved · before adam" in str(browser.run("document.querySelector('.readout').textContent"))
    assert browser.run("document.querySelectorAll('.arrow').length") == 0


@needs_browser
def test_the_keyboard_reaches_the_gaps(browser: Browser, written: Path) -> None:
    browser.open(written)
    browser.run("document.querySelector('.plot').focus()")
    for key in ("n", "ArrowUp", "n"):
        browser.key(key)
    assert "blocked by copy" in str(browser.run("document.querySelector('.readout').textContent"))
    assert browser.run("document.querySelectorAll('.arrow').length") == 1
    browser.key("Escape")
    assert browser.run("document.querySelectorAll('.arrow').length") == 0
