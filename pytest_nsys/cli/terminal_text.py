"""How does a command print? Always by one function, so that text from files and options cannot control a terminal or
CI.
"""

from __future__ import annotations

from collections.abc import Iterable

import click

from pytest_nsys.core.text_format import sanitize_text
from pytest_nsys.reports.tables.colours import colour_lines


def echo(text: object = "", *, err: bool = False, nl: bool = True, is_drawn: bool = False) -> None:
    """Print ``text``, one or several lines. If ``is_drawn``, the text may contain colours, which are kept if the stream
    supports them.
    """
    click.echo(sanitize_text(str(text), keep_colours=is_drawn), err=err, nl=nl, color=is_drawn or None)


def style_lines(lines: Iterable[str]) -> list[str]:
    """Return lines on verdicts with the colours of a terminal."""
    return [
        "".join(text if tone is None else click.style(text, fg=tone.value) for text, tone in pieces)
        for pieces in colour_lines(lines)
    ]
