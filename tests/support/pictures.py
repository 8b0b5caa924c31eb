"""The pictures of the documentation, each with the text that was on it, so that a test notices a stale one.

``python -m tests.support.pictures`` takes all again, after a change of the pages or of the summary. Needs Chromium, and
the group ``dev``.
"""

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.cli.demo import FSDP, write_demo
from pytest_nsys.core.version import VERSION
from tests.support import red_page
from tests.support.browser import chromium

IMAGES = red_page.IMAGES
RECORD = IMAGES / "pictures.json"
"""For each picture a hash of the text that it was taken of."""

WIDTH, HEIGHT = 1280, 830
UNSEEN = {"script", "style", "title"}
CHANGING = re.compile(rf"{re.escape(VERSION)}|\d{{4}}-\d\d-\d\d(?:[T ][\d:]+Z?)?|\b[0-9a-f]{{10,}}\b|/\S+/")
"""What differs from one day, version or machine to the next."""


class Text(HTMLParser):
    """The text of a page that a person sees."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002  the name of the base class
        self._unseen += tag in UNSEEN

    def handle_endtag(self, tag: str) -> None:
        self._unseen -= tag in UNSEEN

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.words += data.split()


def text_of(path: Path) -> str:
    """The words of a page, or of Markdown, without what changes from day to day."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        text = Text()
        text.feed(content)
        content = " ".join(text.words)
    return CHANGING.sub("…", " ".join(content.split()))


def digest(path: Path) -> str:
    """The hash by which a picture is known to be of this text."""
    return hashlib.sha256(text_of(path).encode()).hexdigest()[:16]


def trace_page(folder: Path) -> Path:
    """The page of one trace, as ``--open`` shows it."""
    write_demo(folder / "demo", FSDP)
    words = [sys.executable, "-m", "pytest_nsys", "demo/traces/regressed", "-o", "run.html"]
    subprocess.run([*words, "--format=html"], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return folder / "run.html"


def first_window(page: Path) -> bytes:
    """A PNG of what a window of a desktop shows of a page first."""
    with chromium() as browser:
        browser.open(page, WIDTH)
        return browser.picture({"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT})


def summary_image(markdown: Path) -> bytes:
    """A PNG of the Markdown of a red session."""
    from tests.support import summary_picture  # needs a reader of Markdown

    page = markdown.with_suffix(".html")
    page.write_text(summary_picture.shown(markdown.read_text(encoding="utf-8")), encoding="utf-8")
    return summary_picture.picture(page)


class Picture(NamedTuple):
    """What is on a picture, and how it is taken."""

    write: Callable[[Path], Path]
    take: Callable[[Path], bytes]


PICTURES: Mapping[str, Picture] = {
    "red-page.png": Picture(lambda folder: red_page.red_session(folder, "--nsys-html", "red.html"), red_page.picture),
    "summary.png": Picture(lambda folder: red_page.red_session(folder, "--nsys-summary", "summary.md"), summary_image),
    "trace-page.png": Picture(trace_page, first_window),
}


def take_all() -> None:
    """Take every picture again, and record its text."""
    record = {}
    for name, picture in PICTURES.items():
        with tempfile.TemporaryDirectory(prefix="picture-") as scratch:
            shown = picture.write(Path(scratch))
            record[name] = digest(shown)
            (IMAGES / name).write_bytes(picture.take(shown))
    RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    take_all()
