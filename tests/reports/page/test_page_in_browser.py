"""Is the page right in a real browser: no errors, no request, the pixels of the trace, also on a phone and dark?"""

from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Browser, needs_browser, pixels
from tests.support.commands import run
from tests.support.gates import Project, write_trace
from tests.support.red_page import PICTURE, WIDTH, picture, red_session
from tests.support.samples.builder import Process, TraceBuilder

pytestmark = needs_browser

EVIL = "<img src=x onerror=alert`2`>"  # which is left whole: else what stands in angles is cut
EXPOSED, EXPOSED_DARK = (221, 101, 0), (255, 176, 86)
WINDOW_NS = 15_000_000
HIDDEN, OPEN = (1_010_000, 1_560_000), (1_560_000, 2_010_000)
"""Of stage2_f on rank 0: (start, end) of the hidden part and of the exposed one, since the window's start."""

BELOW_NAMES = 17
"""A row of pixels of a lane that is of its bars, below the names on them and above what marks causes."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison with timelines of two ranks, base above head, and a kernel whose name is markup."""
    folder = tmp_path_factory.mktemp("page")

    def evil(_: TraceBuilder, processes: list[Process]) -> None:
        for k in range(5):
            at = 20_000_000 * k + 1_000
            processes[0].range("layer00.stage3_f", at + 9_000_000, at + 11_000_000)
            processes[0].kernel(EVIL, at + 10_000_000, at + 10_500_000, launch_ns=at + 9_500_000)
            processes[0].kernel("ncclDevKernel_AllReduce", at + 12_000_000, at + 12_100_000, launch_ns=at + 11_900_000)

    base = write_trace(folder / "base.sqlite", edit=evil)
    head = write_trace(folder / "head.sqlite", {(0, "stage2_f"): 450, (1, "stage4_f"): 300}, edit=evil)
    out = folder / "page.html"
    run("compare", base, head, f"--output={out}", code=1)
    return out


def boxes(browser: Browser, selector: str) -> list[dict[str, float]]:
    """Where on the page the elements are."""
    found: list[dict[str, float]] = browser.run(
        f"[...document.querySelectorAll({selector!r})].map(node => {{ const box = node.getBoundingClientRect();"
        " return {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height}; })"
    )
    return found


def readout(browser: Browser) -> str:
    return str(browser.run("document.querySelector('figure.timeline .readout').textContent"))


def view(browser: Browser) -> list[float]:
    """The first lane's (start, length) in nanoseconds."""
    box = str(browser.run("document.querySelector('svg.lane').getAttribute('viewBox')")).split()
    return [float(box[0]), float(box[2])]


HEAD_LANE = "figure.timeline:first-of-type .row:has(.communication) ~ .side ~ .row .lane:has(.communication)"


def clean(browser: Browser, path: Path) -> None:
    assert browser.errors == []
    assert browser.asked == [path.resolve().as_uri()]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 360])
def test_it_loads_without_error_request_or_scrolling(browser: Browser, written: Path, width: int, dark: bool) -> None:
    browser.open(written, width, dark=dark)
    clean(browser, written)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.body.scrollWidth") <= width
    page, ink = browser.run("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
    assert (page == "rgb(15, 20, 25)") == dark
    assert (ink == "rgb(230, 237, 243)") == dark


def test_the_phone_reads_names_above_lanes_and_buttons_are_for_thumbs(browser: Browser, written: Path) -> None:
    browser.open(written, 360)
    (name, *_), (lane, *_) = boxes(browser, ".row .name"), boxes(browser, "svg.lane, svg.bands")
    assert name["y"] + name["height"] <= lane["y"] + 1
    assert lane["width"] > 300
    assert all(button["height"] >= 40 for button in boxes(browser, ".tools button"))


def test_exposed_spans_have_the_pixels_of_their_nanoseconds(browser: Browser, written: Path) -> None:
    browser.open(written)
    (lane,) = boxes(browser, HEAD_LANE)[:1]
    (span,) = boxes(browser, HEAD_LANE.replace(":has(.communication)", "") + " .exposed")[:1]
    scale = lane["width"] / WINDOW_NS
    assert span["x"] - lane["x"] == pytest.approx(OPEN[0] * scale, abs=0.5)
    end = 5_010_000 + 1_000_000  # of stage4_f, whose exposed part is its last
    assert span["x"] + span["width"] - lane["x"] == pytest.approx(end * scale, abs=0.5)


@pytest.mark.parametrize("dark", [False, True])
def test_what_is_painted_is_what_was_exposed(browser: Browser, written: Path, dark: bool) -> None:
    browser.open(written, dark=dark)
    (lane,) = boxes(browser, HEAD_LANE)[:1]
    rows = pixels(browser.picture(lane))
    colour, scale = EXPOSED_DARK if dark else EXPOSED, lane["width"] / WINDOW_NS
    top, middle = rows[1], rows[BELOW_NAMES]
    first, last = OPEN[0] * scale, OPEN[1] * scale
    painted = [x for x in range(int(last) + 5) if middle[x] == colour]
    assert painted[0] == pytest.approx(first, abs=1.5)
    assert painted[-1] == pytest.approx(last, abs=1.5)
    assert painted == list(range(painted[0], painted[-1] + 1))
    inside, hidden = (painted[0] + painted[-1]) // 2, int((HIDDEN[0] + 300_000) * scale)
    assert top[inside] == colour  # exposed is as high as the lane, hidden is not: told without colour
    assert top[hidden] != middle[hidden]


def test_hovering_tells_the_kernel_and_its_exact_numbers(browser: Browser, written: Path) -> None:
    browser.open(written, height=3000)
    (lane,) = boxes(browser, HEAD_LANE)[:1]
    x = lane["x"] + lane["width"] * (HIDDEN[0] + 100_000) / WINDOW_NS
    browser.mouse("mouseMoved", x, lane["y"] + 10)
    said = readout(browser)
    for words in ("head", "ncclDevKernel_SendRecv", "stage2_f", "stream 28, ep_a2a", "starts at 1.01 ms", "lasts 1 ms"):
        assert words in said, said
    assert "450 us exposed (450000 ns)" in said
    browser.mouse("mouseMoved", lane["x"] + lane["width"] * 0.95, lane["y"] + 10)
    assert readout(browser).startswith("Point at a kernel")


def test_the_keyboard_does_it_all(browser: Browser, written: Path) -> None:
    browser.open(written)
    reached = []
    for _ in range(30):
        browser.key("Tab")
        reached.append(browser.run("document.activeElement.dataset.do || document.activeElement.className"))
        if reached[-1] == "reset":
            break
    assert reached[-6:] == ["plot", "in", "out", "left", "right", "reset"]
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.run("document.querySelector('.plot').focus()")
    assert view(browser) == [0, WINDOW_NS]
    browser.key("+")
    assert view(browser) == [WINDOW_NS / 4, WINDOW_NS / 2]
    browser.key("ArrowLeft")
    assert view(browser) == [WINDOW_NS * 0.15, WINDOW_NS / 2]
    browser.key("ArrowRight")
    browser.key("-")
    assert view(browser) == [0, WINDOW_NS]
    browser.key("+")
    browser.key("Home")
    assert view(browser) == [0, WINDOW_NS]
    browser.key("n")
    first = readout(browser)
    browser.key("n")
    assert readout(browser) != first
    browser.key("ArrowDown")
    assert "stream 28" in readout(browser)
    browser.key("Escape")
    assert readout(browser).startswith("Point at a kernel")
    clean(browser, written)


def test_keys_work_wherever_the_focus_in_the_figure_is(browser: Browser, written: Path) -> None:
    browser.open(written)
    browser.run("document.querySelector('.tools [data-do=in]').focus()")
    browser.key("n")
    assert not readout(browser).startswith("Point at")
    browser.key("+")
    browser.key("ArrowRight")
    assert view(browser) == [WINDOW_NS * 0.35, WINDOW_NS / 2]
    browser.key("Home")
    browser.run("document.querySelector('figure.timeline summary').focus()")
    browser.key("+")
    assert view(browser) == [WINDOW_NS / 4, WINDOW_NS / 2]
    browser.key("Escape")
    assert readout(browser).startswith("Point at")
    clean(browser, written)


def test_enter_shows_the_first_kernel_and_then_zooms_to_it(browser: Browser, written: Path) -> None:
    browser.open(written)
    browser.run("document.querySelector('.plot').focus()")
    browser.key("Enter")
    assert "gemm" in readout(browser)
    browser.key("Enter")
    start, length = view(browser)
    (own,) = browser.run(
        "(t => [t.d[0]])(JSON.parse(document.querySelector('figure script').textContent).sides[0].lanes[0])"
    )
    assert length == 2 * own
    assert start >= 0


def test_a_tap_keeps_what_it_says(browser: Browser, written: Path) -> None:
    browser.open(written, 390)
    browser.run("document.querySelector('svg.lane').scrollIntoView()")
    (lane,) = boxes(browser, HEAD_LANE)[:1]
    browser.run(f"scrollTo(0, {lane['y'] - 100})")
    x = lane["x"] + lane["width"] * (HIDDEN[0] + 300_000) / WINDOW_NS
    y = lane["y"] - browser.run("scrollY") + 10
    browser.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    browser.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert "ncclDevKernel_SendRecv" in readout(browser)
    (box,) = boxes(browser, "figure.timeline .readout")[:1]
    top = browser.run("scrollY")
    assert top <= box["y"] <= top + 900 - box["height"]  # where it can be read


def test_names_stand_on_bars_that_have_room(browser: Browser, written: Path) -> None:
    browser.open(written)
    ask = (
        "[...document.querySelectorAll('figure.timeline:first-of-type .names')]"
        ".map(s => [...s.querySelectorAll('text')].map(t => [t.textContent, t.getBBox().width]))"
    )
    assert "SendRecv" in [name for lane in browser.run(ask) for name, _ in lane]
    for _ in range(2):
        browser.run("document.querySelector('.tools [data-do=out]').click()")
        widths = [width for lane in browser.run(ask) for _, width in lane]
        assert widths
        assert max(widths) < 700
    browser.open(written, 360)
    assert len([name for lane in browser.run(ask) for name, _ in lane]) < len(widths)


def test_the_wheel_zooms_where_the_pointer_is(browser: Browser, written: Path) -> None:
    browser.open(written, height=3000)
    (lane,) = boxes(browser, "svg.lane")[:1]
    x, y = lane["x"] + lane["width"] / 4, lane["y"] + 10
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100)
    assert view(browser) == [0, WINDOW_NS]  # the page scrolls on below a pointer that rests
    browser.mouse("mouseMoved", x, y)
    browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100)
    assert view(browser) == [pytest.approx(WINDOW_NS * 0.05), pytest.approx(WINDOW_NS * 0.8)]
    browser.run("document.querySelector('.tools [data-do=reset]').click()")
    assert view(browser) == [0, WINDOW_NS]


def test_dragging_selects_a_range_says_its_length_and_a_double_click_zooms_to_it(
    browser: Browser, written: Path
) -> None:
    browser.open(written, height=3000)
    (lane,) = boxes(browser, "svg.lane")[:1]
    x, y = lane["x"] + lane["width"] / 2, lane["y"] + 10
    browser.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    browser.mouse("mouseMoved", x - lane["width"] / 5, y, button="left", buttons=1)
    browser.mouse("mouseReleased", x - lane["width"] / 5, y, button="left", clickCount=1)
    assert view(browser) == [0, WINDOW_NS]
    assert readout(browser).startswith("selected 3 ms, from 4.5 ms to 7.5 ms")
    (picked,) = boxes(browser, ".picked")
    assert picked["width"] == pytest.approx(lane["width"] / 5, abs=1)
    browser.run("document.querySelector('.plot').dispatchEvent(new MouseEvent('dblclick'))")
    assert view(browser) == [pytest.approx(WINDOW_NS * 0.3, rel=1e-3), pytest.approx(WINDOW_NS * 0.2, rel=1e-3)]
    assert boxes(browser, ".picked") == []


def test_a_tooltip_at_the_pointer_has_the_kernel_of_the_other_side(browser: Browser, written: Path) -> None:
    """In both runs it lasts 1 ms; a kernel that only one side has as often has no partner."""
    browser.open(written, height=3000)
    (lane,) = boxes(browser, HEAD_LANE)[:1]
    browser.mouse("mouseMoved", lane["x"] + lane["width"] * (HIDDEN[0] + 100_000) / WINDOW_NS, lane["y"] + 10)
    tip = browser.run("document.querySelector('.tooltip').innerText")
    assert tip.splitlines() == ["ncclDevKernel_SendRecv", "1 ms · base 1 ms, +0%"]
    assert readout(browser).endswith("base 1 ms, +0%")
    (box,) = boxes(browser, ".tooltip")
    assert box["y"] > lane["y"] + 10
    assert box["x"] + box["width"] <= lane["x"] + lane["width"] + 1


def test_zooming_moves_both_sides_the_axis_and_the_stages(browser: Browser, written: Path) -> None:
    browser.open(written)
    first = "document.querySelector('figure.timeline')"  # the others are further down
    ask = f"[...{first}.querySelectorAll('svg.lane')].map(s => s.getAttribute('viewBox'))"
    browser.run("document.querySelector('.tools [data-do=in]').click()")
    assert set(browser.run(ask)) == {"3750000 0 7500000 20"}
    ticks = browser.run(f"[...{first}.querySelectorAll('.axis text')].map(t => t.textContent)")
    assert ticks[0] == "4 ms"
    labels = browser.run(f"[...{first}.querySelectorAll('.bands text')].map(t => t.textContent)")
    assert labels.count("stage3_f") == 2  # of base and head
    assert labels.count("stage2_f") == 0  # before what is shown


def test_a_name_that_is_markup_stays_text(browser: Browser, written: Path) -> None:
    browser.open(written)
    browser.key("Tab")
    browser.run("document.querySelector('.plot').focus()")
    for _ in range(3):
        browser.key("n")
    assert EVIL in readout(browser)
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.querySelectorAll('script:not([type])').length") == 1
    clean(browser, written)


def test_without_script_it_is_a_picture(browser: Browser, written: Path) -> None:
    browser.open(written, script=False)
    (lane,) = boxes(browser, HEAD_LANE)[:1]
    (tools,) = boxes(browser, ".tools")[:1]
    assert tools["height"] == 0
    rows = pixels(browser.picture(lane))
    assert rows[len(rows) // 2][int((OPEN[0] + 200_000) / WINDOW_NS * lane["width"])] == EXPOSED
    assert browser.run("document.querySelectorAll('.axis text').length") > 3
    browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_on_paper_everything_is_unfolded_and_black_on_white(browser: Browser, written: Path) -> None:
    browser.open(written, 800, dark=True, media="print")
    assert browser.run("getComputedStyle(document.querySelector('.tools')).display") == "none"
    assert browser.run("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert all(box["height"] > 0 for box in boxes(browser, "details > *"))
    paper = browser.call("Page.printToPDF", printBackground=True)["data"]
    assert b64decode(paper).startswith(b"%PDF")
    browser.screen(800, 900)


def test_a_listener_hears_the_numbers(browser: Browser, written: Path) -> None:
    browser.open(written)
    browser.call("Accessibility.enable")
    nodes: list[dict[str, Any]] = browser.call("Accessibility.getFullAXTree")["nodes"]
    browser.call("Accessibility.disable")
    heard = {(node["role"]["value"], node["name"]["value"]) for node in nodes if "name" in node and not node["ignored"]}
    lanes = {name for role, name in heard if role in ("image", "img") and name.startswith("stream 28")}
    assert "stream 28, ep_a2a: 2 kernels, busy 2 ms, exposed 650 us" in lanes
    assert {("button", "zoom in"), ("button", "zoom out"), ("button", "earlier"), ("button", "reset")} <= heard


def test_the_page_of_a_session(browser: Browser, project: Project) -> None:
    project.gated("- overlap >= 90%\n- exposed_ns < 10ms\n")
    project.pytest("--nsys-trace=run.sqlite", "--nsys-html=page.html", "--nsys-history=h.db", code=1)
    path = project.root / "page.html"
    browser.open(path, 360)
    clean(browser, path)
    assert browser.run("document.documentElement.scrollWidth") <= 360
    shown = browser.run(
        "[...document.querySelectorAll('.assertion')].map(d => d.open + ' ' + d.querySelector('.badge').textContent)"
    )
    assert shown == ["false failed", "false passed"]
    assert browser.run("[...document.querySelectorAll('.scroll')].every(box => box.clientWidth <= innerWidth)")


@pytest.mark.slow
def test_the_picture_of_the_page_shows_what_is_exposed(tmp_path: Path) -> None:
    taken = picture(red_session(tmp_path, "--nsys-html", "red.html"))
    rows = pixels(taken)
    assert {len(row) for row in rows} == {WIDTH}
    assert WIDTH / 2 < len(rows) < 2 * WIDTH
    assert sum(row.count(EXPOSED) for row in rows) > 1_000
    assert len(taken) < 1.5 * PICTURE.stat().st_size


@pytest.mark.slow
def test_the_picture_of_the_summary_ends_before_the_second_red(tmp_path: Path) -> None:
    pytest.importorskip("markdown_it", reason="rich, of the group dev, brings it")
    from tests.support import summary_picture

    markdown = red_session(tmp_path, "--nsys-summary", "summary.md")
    html = markdown.with_suffix(".html")
    html.write_text(summary_picture.shown(markdown.read_text()))
    taken = summary_picture.picture(html)
    rows = pixels(taken)
    assert {len(row) for row in rows} == {summary_picture.WIDTH}
    assert 400 < len(rows) < 2 * summary_picture.WIDTH
    assert sum(any(pixel != (255, 255, 255) for pixel in row) for row in rows) > len(rows) / 2
    assert len(taken) < 1.5 * summary_picture.PICTURE.stat().st_size
