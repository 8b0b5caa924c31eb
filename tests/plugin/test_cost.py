"""What does a run of pytest load of the package, and does its work grow as its gate files do? Calls are counted."""

import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from pytest_nsys.gates.model import build_requests
from pytest_nsys.plugin import session
from pytest_nsys.plugin.sources import Sources
from tests.support.gates import Project

COUNTED = {
    Sources: ("find_trace_source", "find_sources"),
    session.NsysSession: ("open_captures", "get_context", "format_path", "find_baseline_folder"),
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the session was asked, and how many assertions were turned into requests."""
    found: Counter[str] = Counter()

    def counting(kind: type, name: str) -> Any:
        original = getattr(kind, name)

        def counted(*words: Any, **more: Any) -> Any:
            found[name] += 1
            return original(*words, **more)

        return counted

    for kind, names in COUNTED.items():
        for name in names:
            monkeypatch.setattr(kind, name, counting(kind, name))

    def requests(*words: Any) -> Any:
        made = build_requests(*words)
        found["requests"] += len(made)
        return made

    monkeypatch.setattr("pytest_nsys.plugin.session.build_requests", requests)
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
    """Those that hold, kept to the end, are most of what a session of thousands would hold; the nearest is told of."""
    project.file(
        "conftest.py",
        """
        def pytest_runtest_logreport(report):
            if hasattr(report, "nsys"):
                assert len(report.nsys.verdict.rows) == 4

        def pytest_sessionfinish(session):
            assert [len(item.record.verdict.rows) for item in session.items] == [1]
        """,
    )
    project.gated("- overlap >= 60%")
    project.pytest("--nsys-trace=run.sqlite", code=0)


FACTS = {
    "explain",
    "explain.budget_lines",
    "explain.breakdown_model",
    "fact_bounds",
    "facts",
    "metrics",
    "metrics.names",
    "metrics.registry",
    "metrics.table",
    "steps",
    "steps.search_result",
    "steps.search_text",
    "windows",
    "windows.run_conditions",
    "windows.window_selection",
}
"""The modules of ``analysis`` that measure nothing."""

LOADED = """
import sys
try:
    {call}
except SystemExit:
    pass
print("loaded:", *(name for name in sys.modules if name.startswith(("numpy", "pytest_nsys"))))
"""


@pytest.mark.parametrize(
    ("call", "rooms"),
    [
        ("import pytest; pytest.main(['--collect-only', '-q'])", {"traces"}),
        ("import pytest; pytest.main(['-q'])", set()),
        ("from pytest_nsys.cli import main; main(['check', 'gate.nsys.yaml'])", {"traces"}),
        ("from pytest_nsys.cli import main; main(['--help'])", {"traces", "gates"}),
    ],
    ids=["collected", "no trace", "check", "help"],
)
def test_what_reads_no_trace_loads_nothing_that_measures(project: Project, call: str, rooms: set[str]) -> None:
    """numpy alone takes as long as all of the rest."""
    project.gate("- overlap >= 60%\n- measured tokens >= 5")
    words = [sys.executable, "-c", LOADED.format(call=call)]
    done = subprocess.run(words, cwd=project.root, capture_output=True, text=True, check=True)
    loaded = [line.split(".") for line in done.stdout.rpartition("loaded:")[2].split()]
    assert ["pytest_nsys"] in loaded
    assert ["numpy"] not in loaded
    assert not {name[1] for name in loaded if name[1:]} & rooms
    assert {".".join(name[2:]) for name in loaded if name[1:2] == ["analysis"] and name[2:]} <= FACTS


SESSIONS = """
import sys, pytest
def own():
    return sorted(name for name in sys.modules if name.partition(".")[0] == "pytest_nsys")
assert pytest.main(["-q", "-W", "error", *sys.argv[1:], "plain"]) == 0
print("plain:", *own())
assert pytest.main(["-q", "-W", "error", "perf", "--nsys-trace=run.sqlite", *sys.argv[1:]]) == 0
print("loaded:", len(own()))
print("rewritten:", *(name for name in own() if "pytest" in type(sys.modules[name].__loader__).__module__))
"""


@pytest.mark.parametrize("named", [False, True], ids=["found", "named"])
def test_pytest_rewrites_nothing_and_a_run_without_gates_loads_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """Two sessions of one process: without a gate file, and with one."""
    if named:
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project.gate("- overlap >= 60%", "perf/gate.nsys.yaml")
    project.file("plain/test_other.py", "def test_other():\n    pass\n")
    project.trace()
    words = [sys.executable, "-c", SESSIONS, *(["-p", "pytest_nsys.plugin"] if named else [])]
    done = subprocess.run(words, cwd=project.root, capture_output=True, text=True, check=True)
    said = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    assert said["plain"].split() == [
        *("pytest_nsys", "pytest_nsys.plugin", "pytest_nsys.plugin.hooks"),
        *("pytest_nsys.plugin.ordinary_import", "pytest_nsys.plugin.settings"),
    ]
    assert int(said["loaded"]) > 50
    early = {"pytest_nsys", "pytest_nsys.plugin", "pytest_nsys.plugin.ordinary_import"}  # before they can say so
    assert set(said["rewritten"].split()) <= early
