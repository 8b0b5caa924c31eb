"""What does a run of pytest load of the package, and who imports it?"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.gates import Project

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
        *("pytest_nsys", "pytest_nsys.plugin", "pytest_nsys.plugin.hooks", "pytest_nsys.plugin.settings")
    ]
    assert int(said["loaded"]) > 50
    assert set(said["rewritten"].split()) <= {"pytest_nsys", "pytest_nsys.plugin"}  # before they can say so
