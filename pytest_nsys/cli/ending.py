"""How does a command end: with which exit code, and how is an error told?"""

from __future__ import annotations

from enum import IntEnum

import click

from pytest_nsys.core.model import printable

LONGEST_LINE = 4000


class Exit(IntEnum):
    """Of every command. The last two are as a shell reports a program that Ctrl-C or a closed pipe ended."""

    GOOD = 0
    WORSE = 1
    MISTAKE = 2
    NO_DATA = 3
    INTERRUPTED = 130
    BROKEN_PIPE = 141


def complain(line: object) -> None:
    """Tell an error, in one line."""
    click.echo(f"error: {printable(str(line), LONGEST_LINE)}", err=True)
