"""The picture of a pull request's summary: the Markdown of a red session, as GitHub shows it, in a real browser.

``python -m tests.support.pictures`` takes it again, after a change of the summary. Needs the group ``dev``, of
which rich brings a reader of Markdown.
"""

from pathlib import Path

from markdown_it import MarkdownIt

from tests.support.browser import chromium
from tests.support.red_page import IMAGES

PICTURE = IMAGES / "summary.png"
WIDTH = 920
STYLE = """
body { margin: 0; padding: 16px 24px; font: 14px/1.5 "Noto Sans", "Liberation Sans", Helvetica, sans-serif;
    color: #1f2328; }
h2 { font-size: 21px; border-bottom: 1px solid #d1d9e0; padding-bottom: 5px; margin: 4px 0 12px; }
h3, h4 { font-size: 15px; margin: 18px 0 10px; } p { margin: 0 0 10px; }
code { background: #eff1f3; border-radius: 6px; padding: 2px 5px;
    font: 12px "Noto Sans Mono", "Liberation Mono", monospace; }
table { border-collapse: collapse; margin-bottom: 12px; } th, td { border: 1px solid #d1d9e0; padding: 5px 11px; }
tr:nth-child(2n) { background: #f6f8fa; }
"""
"""Near enough to GitHub's."""

LAST = "document.querySelectorAll('h4')[1].getBoundingClientRect().top + scrollY"
"""Where the picture ends: before the second assertion that failed."""


def shown(markdown: str) -> str:
    """The page that GitHub makes of a summary."""
    body = MarkdownIt("commonmark").enable("table").render(markdown)
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{body}"


def picture(page: Path) -> bytes:
    """A PNG of the page."""
    with chromium() as browser:
        browser.open(page, WIDTH)
        return browser.picture({"x": 0, "y": 0, "width": WIDTH, "height": round(browser.run(LAST))})
