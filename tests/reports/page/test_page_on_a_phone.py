"""Does a phone show what happened on its first screen, the whole red on three, and no label on another?"""

from pathlib import Path

import pytest

from pytest_nsys.cli.demo import DUALPIPE
from tests.support.browser import Browser, needs_browser
from tests.support.gates import Project
from tests.support.red_page import red_session

pytestmark = needs_browser

PHONE = (390, 844)

OVERLAPPING = """(() => {
  const found = [];
  for (const drawing of document.querySelectorAll("figure.timeline .plot, .budget-bar, .strip, .plots")) {
    const boxes = [...drawing.querySelectorAll("text")].map((text) => {
      const { left, right, top, bottom } = text.getBoundingClientRect(), own = text.closest(".names svg");
      const end = own ? left - 4 + own.width.baseVal.value : right;
      return [text.textContent, { left, right: Math.min(right, end), top, bottom }];
    });
    const shown = boxes.filter(([, box]) => box.right > box.left);
    shown.forEach(([one, a], i) => shown.slice(i + 1).forEach(([other, b]) => {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 0.5 && high > 3) found.push(`${one} | ${other}`);
    }));
  }
  return found;
})()"""
"""Texts of a drawing, cut where their own ends, of which one lies on another. Lines may overlap where no letter is."""


@pytest.fixture(scope="module")
def red(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the demo's red."""
    return red_session(tmp_path_factory.mktemp("red"), "--nsys-html", "red.html")


@pytest.fixture(scope="module")
def dualpipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the red of the demo of DualPipe."""
    return red_session(tmp_path_factory.mktemp("dualpipe"), "--nsys-html", "red.html", DUALPIPE)


def bottom(browser: Browser, selector: str) -> float:
    """Where on the page the first such element ends."""
    found: float = browser.run(f"document.querySelector({selector!r}).getBoundingClientRect().bottom + scrollY")
    return found


def test_the_first_screen_has_the_sentence_the_ranks_and_the_picture(
    browser: Browser, red: Path, dualpipe: Path
) -> None:
    for page in (red, dualpipe):  # the second has two roots, stages and five streams
        browser.open(page, *PHONE)
        ends = [bottom(browser, selector) for selector in ("h1", ".ranks", "figure.timeline .plot")]
        assert ends == sorted(ends)
        assert ends[-1] <= PHONE[1]
        assert bottom(browser, ".timeline .legend") > ends[-1]
    quiet = "[...document.querySelectorAll('figure.timeline:first-of-type .quiet')].map(row => row.offsetHeight > 0)"
    assert browser.run(quiet) == [False, False]
    browser.run("document.querySelector('.more-lanes summary').click()")
    assert browser.run(quiet) == [True, True]
    assert browser.errors == []


def test_a_red_of_one_root_takes_three_screens(browser: Browser, red: Path) -> None:
    browser.open(red, *PHONE)
    assert browser.run("document.documentElement.scrollHeight") <= 3 * PHONE[1]
    assert browser.run("document.querySelectorAll('section.root').length") == 1


def test_brackets_and_links_walk_through_the_roots(browser: Browser, project: Project) -> None:
    project.gated("- launches <= 1\n- overlap >= 90%\n- exposed_ns below baseline plus 5%\n", {(1, "stage4_f"): 700})
    project.trace("base.sqlite")
    project.pytest("--nsys-trace=run.sqlite", "--nsys-html=page.html", "--nsys-against=base.sqlite", code=1)
    browser.open(project.root / "page.html", *PHONE)
    now = "document.activeElement.id"
    assert browser.run("document.querySelectorAll('section.root').length") == 2
    for key, reached in (("]", "root-2"), ("[", "root-1"), ("[", "root-1")):
        browser.key(key)
        assert browser.run(now) == reached
    first, second = (
        browser.run(f"document.getElementById('root-{n}').getBoundingClientRect().top + scrollY") for n in (1, 2)
    )
    browser.open(project.root / "page.html", *PHONE, script=False)
    browser.run("document.querySelector('.walk a[href]').click()")
    assert -20 < second - browser.run("scrollY") < PHONE[1] / 3
    assert first < second
    assert browser.run("document.querySelector('.walk a[href]').getBoundingClientRect().height") >= 36
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.errors == []


@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("width", [360, 390, 700, 1280])
@pytest.mark.sampled(3)
def test_labels_that_touch_give_way(browser: Browser, red: Path, dualpipe: Path, width: int, script: bool) -> None:
    for page in (red, dualpipe):
        browser.open(page, width, script=script)
        assert browser.run(OVERLAPPING) == []
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
