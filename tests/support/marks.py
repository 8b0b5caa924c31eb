"""Which tests start a real pytest (``e2e``), need the traces of ../shared (``reference``), or can wait (``slow``)?

``sampled(n)`` is for a test of many cases that differ in size, format or trace, not in what is looked for: the suite
runs each n-th of them, and ``-m slow`` the others. Whoever names tests, by ``-k`` or ``::``, runs all that are named.
"""

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.support.reference_data import DATA

WANT = "the reference traces are not beside the checkout"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Mark what starts a pytest, and what can wait; leave out what needs traces that are not there."""
    named = config.getoption("keyword") or any("::" in word for word in config.args)
    cases = Counter[str]()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled and not named:
            test = item.nodeid.partition("[")[0]
            if cases[test] % sampled.args[0]:
                item.add_marker("slow")
            cases[test] += 1
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
