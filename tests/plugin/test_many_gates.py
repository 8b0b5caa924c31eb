"""Does the work of a session grow as its gate files do? Calls are counted: times of a test tell of the machine."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pytest_nsys.gates.assertion import requests_of
from pytest_nsys.plugin import session
from tests.support.gates import Project

COUNTED = ("source", "captures", "context", "shown", "baseline_folder")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the session was asked, and how many assertions were turned into requests."""
    found: Counter[str] = Counter()

    def counting(name: str) -> Any:
        original = getattr(session.NsysSession, name)

        def counted(*words: Any, **more: Any) -> Any:
            found[name] += 1
            return original(*words, **more)

        return counted

    for name in COUNTED:
        monkeypatch.setattr(session.NsysSession, name, counting(name))

    def requests(*words: Any) -> Any:
        made = requests_of(*words)
        found["requests"] += len(made)
        return made

    monkeypatch.setattr("pytest_nsys.plugin.session.requests_of", requests)
    return found


def test_a_plan_is_walked_once(project: Project, calls: Counter[str]) -> None:
    project.trace()
    counts = []
    for number in range(12):
        project.gate("- overlap >= 10%\n- window_ns < 1s\n- no mixed comm streams", f"gate{number}.nsys.yaml")
        if number in (3, 7, 11):
            calls.clear()
            project.pytest("--nsys-trace=run.sqlite", code=0)
            counts.append(calls.copy())
    assert counts[1] - counts[0] == counts[2] - counts[1]
    assert counts[2]["requests"] == 36


def test_rows_go_once_they_were_told(project: Project) -> None:
    """Those of each assertion, held to the end, are most of what a session of thousands would hold."""
    project.file(
        "conftest.py",
        """
        def pytest_runtest_logreport(report):
            if hasattr(report, "nsys"):
                assert len(report.nsys["judged"]) == 4

        def pytest_sessionfinish(session):
            assert [item.record.judged for item in session.items] == [()]
        """,
    )
    project.gate("- overlap >= 60%")
    project.trace()
    project.pytest("--nsys-trace=run.sqlite", code=0)
