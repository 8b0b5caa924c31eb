"""How does the plugin print? Through one function, in which no text of a file or option commands a terminal or CI."""

from __future__ import annotations

from typing import Any

from pytest_nsys.core.words import fit_to_print


def say(terminalreporter: Any, line: str, **colours: bool) -> None:
    """Print a line of ours among those of pytest."""
    terminalreporter.line(fit_to_print(line), **colours)
