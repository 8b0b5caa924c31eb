"""Which tests start a real pytest (``e2e``), and which need the traces of ../shared (``reference``)?"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.support.reference_data import DATA

WANT = "the reference traces are not beside the checkout"


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Mark what starts a pytest; leave out what needs traces that are not there."""
    for item in items:
        if "pytester" in getattr(item, "fixturenames", ()):
            item.add_marker("e2e")
        if item.get_closest_marker("reference") and not DATA.is_dir():
            item.add_marker(pytest.mark.skip(reason=WANT))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud how much was not looked at."""
    skipped = terminalreporter.stats.get("skipped", [])
    if not DATA.is_dir() and (count := sum("reference" in report.keywords for report in skipped)):
        terminalreporter.write_line(
            f"skipped for want of the reference traces: {count} (../shared is not there)", yellow=True
        )
