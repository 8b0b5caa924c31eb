"""How is the first screen shown in a notebook or on a page? The same lines, with coloured bars."""

from __future__ import annotations

import re
from html import escape

from pytest_nsys.analysis.summary.summary import Summary
from pytest_nsys.reports.screens.first_screen import FirstScreen
from pytest_nsys.reports.tables.bars import Pen

_STYLE = "font-family: ui-monospace, monospace; line-height: 1.3; overflow-x: auto"
_COLOURS = {
    "90": "#8a9199",
    "33": "#c98a00",
    "93": "#b08d57",
    "31": "#b3261e",
    "35": "#c2589f",
    "36": "#55a3aa",
    "34": "#7d8f3c",
}
"""The page's colours by ANSI colour code, for every part of the bars."""

_COLOUR_PATTERN = re.compile("\x1b\\[(\\d+)m(.*?)\x1b\\[0m")


def render_screen_html(summary: Summary) -> str:
    """Return the first screen as one HTML element.

    Text from a trace is escaped, and cannot fake colours because names contain no control characters.
    """
    lines = FirstScreen(summary, Pen(has_colours=True)).render_lines()
    return f'<pre style="{_STYLE}">{"<br>".join(_paint_line(escape(line)) for line in lines)}</pre>\n'


def _paint_line(line: str) -> str:
    return _COLOUR_PATTERN.sub(lambda match: f'<span style="color: {_COLOURS[match[1]]}">{match[2]}</span>', line)
