"""How does a command print? By one function, so that no text of a file or an option controls a terminal or CI."""

from __future__ import annotations

import click

from pytest_nsys.core.words import fit_to_print


def say(text: object = "", *, err: bool = False, nl: bool = True, drawn: bool = False) -> None:
    """Print ``text``, of one line or several. What is ``drawn`` has the colours that its stream takes."""
    click.echo(fit_to_print(str(text), coloured=drawn), err=err, nl=nl, color=drawn or None)
