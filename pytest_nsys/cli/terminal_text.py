"""How does a command print? By one function, so that no text of a file or an option controls a terminal or CI."""

from __future__ import annotations

import click

from pytest_nsys.core.text_format import sanitize_text


def echo(text: object = "", *, err: bool = False, nl: bool = True, is_drawn: bool = False) -> None:
    """Print ``text``, of one line or several. What is ``drawn`` has the colours that its stream takes."""
    click.echo(sanitize_text(str(text), keep_colours=is_drawn), err=err, nl=nl, color=is_drawn or None)
