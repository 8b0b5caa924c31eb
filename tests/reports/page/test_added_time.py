"""Is the time that the head takes longer shaded where it was added, and nowhere else?"""

from pathlib import Path

import pytest

from pytest_nsys.analysis.budget.timeline import Bar, Timeline, TimelineLane
from pytest_nsys.cli.demo import DUALPIPE
from pytest_nsys.reports.drawings.pictures import Picture
from pytest_nsys.reports.page.added_time import list_added_spans
from pytest_nsys.reports.page.timeline_view import build_timeline_views
from tests.support.browser import Browser, needs_browser
from tests.support.page import Page
from tests.support.red_page import red_session


def window(length_ns: int, *kernels: tuple[str, int, int], start_ns: int = 0) -> Timeline:
    """A window with kernels of one stream, each (name, start, end) since its start."""
    bars = [Bar(start_ns + start, start_ns + end, name) for name, start, end in kernels]
    lane = TimelineLane("stream 7", "compute", "compute", len(bars), 1, bars)
    return Timeline("", "step", "median", start_ns, length_ns, None, "", None, len(bars), [], [lane])


BASE = window(1_000, ("a", 0, 200), ("b", 300, 500), ("a", 600, 800), ("c", 850, 950))


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (BASE, []),
        (window(1_100, ("a", 0, 300), ("b", 400, 600), ("a", 700, 900), ("c", 950, 1_050)), [(200, 300)]),
        (window(1_100, ("a", 0, 200), ("b", 400, 600), ("a", 700, 900), ("c", 950, 1_050)), [(300, 400)]),
        (  # in two places, and before the window's end
            window(1_210, ("a", 0, 300), ("b", 400, 600), ("a", 700, 900), ("c", 950, 1_060)),
            [(200, 300), (1_050, 1_060), (1_110, 1_210)],
        ),
        (  # what was won before is not added
            window(1_000, ("a", 0, 100), ("b", 200, 400), ("a", 600, 800), ("c", 850, 950)),
            [],
        ),
        (  # less than a two-hundredth is noise
            window(1_004, ("a", 0, 204), ("b", 304, 504), ("a", 604, 804), ("c", 854, 954)),
            [],
        ),
        (window(1_004, ("x", 0, 204)), []),  # nothing in common
        (window(1_300, ("x", 0, 204)), [(1_000, 1_300)]),
        (  # a kernel that was moved to the end matches nothing, the others still do
            window(1_100, ("a", 0, 200), ("a", 700, 900), ("c", 950, 1_050), ("b", 1_060, 1_100)),
            [(600, 700)],
        ),
    ],
    ids=["same", "longer kernel", "gap", "several", "made up for", "noise", "unlike", "unlike and longer", "moved"],
)
def test_time_is_added_where_the_head_falls_behind(head: Timeline, expected: list[tuple[int, int]]) -> None:
    assert [*list_added_spans(BASE, head)] == expected


def test_windows_may_begin_at_any_time() -> None:
    head = window(1_100, ("a", 0, 200), ("b", 400, 600), ("a", 700, 900), ("c", 950, 1_050), start_ns=77_000)
    assert [*list_added_spans(BASE, head)] == [(300, 400)]


def test_it_is_shaded_in_the_head_alone_and_summed_up_in_the_legend() -> None:
    head = window(1_100, ("a", 0, 200), ("b", 400, 600), ("a", 700, 900), ("c", 950, 1_050))
    (view,) = build_timeline_views([Picture("one", "run", 0, BASE, head)])
    base_side, head_side = ({path.css: path.d for path in side["lanes"][0]["paths"]} for side in view["sides"])
    assert ("added" in base_side, head_side["added"]) == (False, "M300 10h100")
    assert view["added"] == "added to the base: 100 ns"
    (alone,) = build_timeline_views([Picture("one", "run", 0, None, head)])
    assert alone["added"] == ""


@pytest.fixture(scope="module")
def dualpipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the red of the demo of DualPipe."""
    return red_session(tmp_path_factory.mktemp("dualpipe"), "--nsys-html", "red.html", DUALPIPE)


def test_stages_have_a_legend_and_a_colour_each(dualpipe: Path) -> None:
    page = Page(dualpipe.read_text(encoding="utf-8"))
    (data, *_) = page.data
    stages = {side["stages"][stage] for side in data["sides"] for _, _, stage in side["bands"]}
    legend = page.text.split('aria-label="stages">')[1].split("</ul>")[0]
    assert len(stages) > 6
    assert all(f"</svg>{stage}</li>" in legend for stage in stages)
    assert len({css for css in legend.split('"') if css.startswith("band")}) == len(stages)


@needs_browser
def test_a_stage_tells_its_name_and_length_at_the_pointer(browser: Browser, dualpipe: Path) -> None:
    browser.open(dualpipe)
    browser.run("document.querySelector('svg.bands').scrollIntoView({block: 'center'})")
    x, y = browser.run(
        "(() => { const box = document.querySelector('svg.bands').getBoundingClientRect();"
        " const data = JSON.parse(document.querySelector('figure.timeline script').textContent);"
        " const [start, length] = data.sides[0].bands[0];"
        " return [box.x + box.width * (start + length / 2) / data.length, box.y + 8]; })()"
    )
    browser.mouse("mouseMoved", x, y)
    name, length = browser.run("document.querySelector('.tooltip').innerText").splitlines()
    assert name.startswith("stage")
    assert length.startswith("lasts ")
    assert browser.errors == []
