"""How does the plugin print? Through one function, in which no text of a file or option commands a terminal or CI."""

from __future__ import annotations

from typing import Any

from pytest_nsys.core.text_format import sanitize_text


def print_terminal_line(terminalreporter: Any, line: str, **markup: bool) -> None:
    """Print a line of ours among those of pytest."""
    terminalreporter.line(sanitize_text(line), **markup)
