"""A pytest plugin for ``pytest-nsys baseline refresh``: tells the bad verdicts apart, which all are 1 to pytest."""

from __future__ import annotations

import pytest

UNREADABLE, NOT_JUDGED = 12, 13
"""Beyond pytest's own exit codes."""


def pytest_sessionfinish(session: pytest.Session) -> None:
    """An error weighs more than a verdict without data, which weighs more than a failure."""
    if session.exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    records = [getattr(item, "record", None) for item in session.items]
    outcomes = {record.outcome for record in records if record is not None}
    if "error" in outcomes:
        session.exitstatus = UNREADABLE
    elif outcomes & {"no data", "incomparable"}:
        session.exitstatus = NOT_JUDGED
