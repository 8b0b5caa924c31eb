"""A pytest plugin for ``pytest-nsys baseline refresh``: tells the bad verdicts apart, which all are 1 to pytest."""

from __future__ import annotations

import pytest

UNREADABLE, NOT_JUDGED = 12, 13
"""Beyond pytest's own exit codes."""


def pytest_sessionfinish(session: pytest.Session) -> None:
    """An error weighs more than a verdict without data, which weighs more than a failure."""
    if session.exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    outcomes = set()
    for item in session.items:
        record = getattr(item, "record", None)
        if record is not None:
            outcomes.add("no data" if getattr(item, "nothing_measured", False) else record.outcome)
    if "error" in outcomes:
        session.exitstatus = UNREADABLE
    elif outcomes & {"no data", "incomparable"}:
        session.exitstatus = NOT_JUDGED
