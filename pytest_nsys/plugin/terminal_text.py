"""How does the plugin print? Always by one function, so that text from files and options cannot control a terminal or
CI.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytest_nsys.core.text_format import sanitize_text
from pytest_nsys.reports.tables.colours import colour_lines


def print_terminal_line(terminalreporter: Any, line: str, **markup: bool) -> None:
    """Print one of our lines between pytest's."""
    terminalreporter.line(sanitize_text(line), **markup)


def print_coloured_lines(terminalreporter: Any, lines: Iterable[str]) -> None:
    """Print lines on verdicts, with the colours that pytest's terminal shows: ``--color`` and ``NO_COLOR`` decide."""
    for pieces in colour_lines(map(sanitize_text, lines)):
        for text, tone in pieces:
            terminalreporter.write(text, **({} if tone is None else {tone.value: True}))
        terminalreporter.line("")
