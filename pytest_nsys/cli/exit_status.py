"""A pytest plugin for ``pytest-nsys baseline refresh``: tells the bad verdicts apart, which all are 1 to pytest."""

from __future__ import annotations

import pytest

from pytest_nsys.core.errors import IncomparableError
from pytest_nsys.plugin.session import session_of

UNREADABLE, NOT_JUDGED = 12, 13
"""Beyond pytest's own exit codes."""


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """An error weighs more than a verdict without data, which weighs more than a failure.

    Last, when the baselines were written, or were not.
    """
    if session.exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    not_written = session_of(session.config).not_written
    outcomes = {"incomparable" if isinstance(error, IncomparableError) else "error" for error in not_written}
    for item in session.items:
        record = getattr(item, "record", None)
        if record is not None:
            outcomes.add("no data" if getattr(item, "nothing_measured", False) else record.outcome)
    if "error" in outcomes:
        session.exitstatus = UNREADABLE
    elif outcomes & {"no data", "incomparable"}:
        session.exitstatus = NOT_JUDGED
