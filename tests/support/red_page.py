"""The picture in the README: the page of a red gate in a real browser, without what a first look does not need.

``python -m tests.support.pictures`` takes it again, after a change of the page.
"""

import subprocess
from pathlib import Path

from pytest_nsys.cli.demo import FSDP, DemoSample, write_demo
from tests.support.browser import chromium
from tests.support.quick_python import quick_python

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
PICTURE = IMAGES / "red-page.png"
WIDTH = 900
LEFT_OUT = (
    ".producers",
    ".ranks .legend",
    "figure.timeline :is(p.none, details, .readout, .tools)",
    ".about",
    ".assertion",
)
"""Selectors of what the picture goes without."""


def red_session(folder: Path, option: str, name: str, demo: DemoSample = FSDP) -> Path:
    """The file that an option writes of a demo's regressed run."""
    write_demo(folder / "demo", demo)
    written = folder / name
    options = [f"--nsys-trace=demo/traces/{demo.regressed_trace}", f"{option}={written}"]
    words = [quick_python(), "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "demo"]
    assert subprocess.run(words, cwd=folder, stdout=subprocess.DEVNULL, check=False).returncode == 1
    return written


def picture(page: Path) -> bytes:
    """A PNG of the page as far as its first root."""
    with chromium() as browser:
        browser.open(page, WIDTH)
        rules = f"{', '.join(LEFT_OUT)} {{ display: none !important }}"
        browser.run(f"document.styleSheets[0].insertRule({rules!r})")
        end = browser.run("document.querySelector('section.root').getBoundingClientRect().bottom + scrollY")
        return browser.picture({"x": 0, "y": 0, "width": WIDTH, "height": round(end) + 1})
