"""Does ``pytest-nsys bisect-exit`` lead ``git bisect run`` to the commit that turned a gate red, past the unjudged?"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import Any

import pytest

from pytest_nsys.cli.bisect_exit import of_report, without_report
from tests.support.gates import Project, write_trace
from tests.support.git_project import commit, git, start

GATE = """
trace: run.sqlite
tolerance: {rel: 5%, abs: 50us}
assertions:
  - exposed_ns below baseline plus tolerance
  - stage2_f overlap >= 50%
"""
STEP = """
set -e
kind=$(cat kind)
test "$kind" != broken
cp traces/"$kind".sqlite run.sqlite
{python} -m pytest -q -p no:cacheprovider -p no:hypothesispytest gate.nsys.yaml
"""


def python() -> str:
    return shlex.quote(sys.executable)


def bisect_exit() -> str:
    return f"{python()} -m pytest_nsys bisect-exit -- "


def prepared(project: Project) -> None:
    """A repository whose script captures (here: copies) the trace that the commit names, and judges it."""
    write_trace(project.root / "traces" / "good.sqlite")
    write_trace(project.root / "traces" / "worse.sqlite", 600)
    write_trace(project.root / "traces" / "nothing.sqlite", stages=("stage4_f",))
    project.gate(GATE)
    project.trace("run.sqlite")
    project.refresh()
    project.file("step.sh", STEP.format(python=python()))


def ended(project: Project, command: str, **environment: str) -> tuple[int, str]:
    """The exit code of ``bisect-exit`` on a shell command, and the line in which it says why."""
    done = subprocess.run(
        [*shlex.split(bisect_exit()), "sh", "-c", command],
        cwd=project.root,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.strip().splitlines()[-1]


def test_git_finds_the_commit(project: Project) -> None:
    start(project)
    prepared(project)
    commits = []
    for n, kind in enumerate(["good", "good", "nothing", "good", "worse", "worse"]):
        project.file("kind", kind)
        project.file("change", str(n))
        commits.append(commit(project.root, f"change {n}"))
    git(project.root, "bisect", "start", "HEAD", commits[0])
    said = git(project.root, "bisect", "run", "sh", "-c", f"{bisect_exit()} sh step.sh")
    assert f"{commits[4]} is the first bad commit" in said
    log = git(project.root, "bisect", "log")
    assert f"git bisect skip {commits[2]}" in log
    assert f"git bisect good {commits[3]}" in log


def test_a_run_says_why_it_ends_as_it_does(project: Project) -> None:
    prepared(project)
    for kind, code, why in (
        ("worse", 1, "bisect-exit: bad (1): failed: 'exposed_ns below baseline plus tolerance' (4 of 4 rows above"),
        ("broken", 125, "bisect-exit: cannot be judged (125): the command ended in 1 before any gate ran"),
    ):
        project.file("kind", kind)
        found, said = ended(project, "sh step.sh", PYTEST_ADDOPTS="-p no:randomly")
        assert (found, said.startswith(why)) == (code, True), said
    project.file("kind", "good")
    project.gate("- overlp >= 60%")
    code, said = ended(project, "sh step.sh")
    assert (code, "1 mistake in gate files: gate.nsys.yaml: unknown metric 'overlp'" in said) == (129, True)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("true", "no gate ran"),
        ("exit 128", "stops the bisection"),
        ("pytest --nsys-json=own.json", "remove --nsys-json from the command"),
        ("{python} -m pytest --nsys-trace=missing.sqlite", "a usage error of pytest"),
    ],
)
def test_a_command_that_cannot_be_meant_stops_the_bisection(project: Project, command: str, said: str) -> None:
    code, line = ended(project, command.format(python=python()))
    assert (code, said in line) == (129, True), line


def test_a_command_that_does_not_exist(project: Project) -> None:
    said = project.command("bisect-exit", "--", "./no-such-program", code=129)
    assert "./no-such-program: cannot be run: No such file or directory" in said


@pytest.mark.parametrize(("code", "answer"), [(0, 129), (1, 125), (2, 125), (4, 129), (5, 129), (125, 125), (-11, 125)])
def test_without_a_report_the_exit_status_counts(code: int, answer: int) -> None:
    assert without_report(code).code == answer


def report(*states: str, mistakes: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    own = [{"name": f"n{i}", "state": state, "message": "why"} for i, state in enumerate(states)]
    return {"mistakes": mistakes or [], "headline": "all hold", "gate_files": [{"assertions": own}] if own else []}


@pytest.mark.parametrize(
    ("states", "code", "answer"),
    [
        (("passed", "improved", "warned", "waived", "xfailed"), 0, 0),
        (("passed", "failed", "no data"), 1, 1),
        (("passed", "error"), 1, 125),
        (("passed", "incomparable"), 1, 125),
        (("passed", "inconclusive"), 0, 125),
        (("passed", "no data"), 1, 125),
        (("passed",), 1, 125),
        ((), 5, 129),
    ],
)
def test_the_verdicts_decide(states: tuple[str, ...], code: int, answer: int) -> None:
    assert of_report(report(*states), code).code == answer


@pytest.mark.parametrize(("states", "code", "answer"), [((), 0, 125), (("passed",), 0, 125), (("failed",), 1, 1)])
def test_what_had_no_trace_is_not_good(states: tuple[str, ...], code: int, answer: int) -> None:
    not_run = [{"file": "gate.nsys.yaml", "assertions": ["a"], "why": "no trace given"}]
    assert of_report(report(*states) | {"not_run": not_run}, code).code == answer


def test_a_capture_that_left_no_trace_cannot_be_judged(project: Project) -> None:
    project.gate(GATE)
    code, said = ended(project, f"{python()} -m pytest -q -p no:hypothesispytest gate.nsys.yaml", CI="")
    assert (code, "not run: gate.nsys.yaml: no trace given" in said) == (125, True), said


def test_a_mistake_elsewhere_is_no_verdict() -> None:
    own = report("passed", mistakes=[{"file": "test_model.py", "text": "ImportError: no such module"}])
    found = of_report(own, 2)
    assert (found.code, found.why) == (125, "no assertion failed, but ImportError: no such module")
