"""How does the plugin print? Always by one function, so that text from files and options cannot control a terminal or
CI.
"""

from __future__ import annotations

from typing import Any

from pytest_nsys.core.text_format import sanitize_text


def print_terminal_line(terminalreporter: Any, line: str, **markup: bool) -> None:
    """Print one of our lines between pytest's."""
    terminalreporter.line(sanitize_text(line), **markup)
