"""Is a configuration that takes the place of others held to their baselines, and named where it cannot be?"""

from __future__ import annotations

import pytest

from tests.support.gates import Project
from tests.support.git_project import commit, git, start

NAME = "exposed_ns below"
BASELINED = f"{NAME} baseline plus tolerance"
GATE = f"convention: pithtrain\ntolerance: {{rel: 5%%, abs: 20us}}\n%sassertions:\n- {BASELINED}\n- overlap >= 10%%\n"
REF, FAIL = "--nsys-baseline-ref=main", "--nsys-gate-changes=fail"
FILE = "perf/gate.nsys.yaml"


def on_a_branch(project: Project, keys: str) -> Project:
    """A repository with this gate and its baselines on main, and a branch that is checked out."""
    start(project)
    project.file("pytest.ini", "[pytest]\n")
    project.trace("perf/run.sqlite")
    project.trace("perf/other.sqlite", 500)
    project.trace("perf/slow.sqlite", 600)
    project.trace("perf/four.sqlite", 600, ranks=4)
    project.gate(GATE % keys, FILE)
    project.refresh()
    commit(project.root)
    git(project.root, "switch", "-qc", "feature")
    return project


def judged(project: Project, keys: str, code: int = 1) -> dict[str, str]:
    """What comes of each assertion with a baseline once the branch has written its own."""
    project.gate(GATE % keys, FILE)
    project.refresh()
    cases = project.cases("perf", REF, code=code)
    return {name: case.properties["nsys_outcome"] for name, case in cases.items() if NAME in name}


def loosened(project: Project) -> list[str]:
    said = project.pytest("perf", REF, FAIL, code=1)
    return [line for line in said.splitlines() if line.startswith("this PR loosens") and "baseline [" in line]


def test_a_file_that_becomes_a_matrix(project: Project) -> None:
    branch = on_a_branch(project, "trace: run.sqlite\n")
    assert judged(branch, "matrix: {a: slow.sqlite}\n") == {f"{NAME}[a]": "failed"}
    assert loosened(branch) == []
    said = branch.pytest("-v", "perf", REF, code=1)
    assert "600 us > 220 us" in said
    assert "baseline baselines/perf__gate/" in said


@pytest.mark.parametrize(
    ("before", "after", "outcomes"),
    [
        ("trace: run.sqlite", "matrix: {a: slow.sqlite, b: run.sqlite}", {"[a]": "failed", "[b]": "passed"}),
        ("matrix: {a: run.sqlite}", "trace: slow.sqlite", {"": "failed"}),
        ("trace: run.sqlite", "window: first\nmatrix: {a: run.sqlite}", {"[a]": "incomparable"}),
    ],
    ids=["each of two is held to the file", "a matrix becomes a file", "measured otherwise"],
)
def test_what_takes_a_place_is_held_to_what_was_there(
    project: Project, before: str, after: str, outcomes: dict[str, str]
) -> None:
    branch = on_a_branch(project, f"{before}\n")
    assert judged(branch, f"{after}\n") == {f"{NAME}{name}": outcome for name, outcome in outcomes.items()}


@pytest.mark.parametrize("comparable", ["", "comparable_on: [gpu]\n"])
def test_of_another_key_it_is_named_as_loosened(project: Project, comparable: str) -> None:
    branch = on_a_branch(project, f"trace: run.sqlite\n{comparable}")
    found = judged(branch, f"matrix: {{a: four.sqlite}}\n{comparable}", code=int(comparable != ""))
    if comparable:
        assert found[f"{NAME}[a]"] != "passed"
        return
    assert found == {f"{NAME}[a]": "passed"}
    (line,) = loosened(branch)
    assert line.startswith(f"this PR loosens: {FILE} baseline [a] that of the file → its own: mesh: now ")
    assert "world: now 4, baseline 2" in line


def test_a_new_name_and_of_several_the_one_of_the_same_trace(project: Project) -> None:
    branch = on_a_branch(project, "matrix: {a: run.sqlite, b: other.sqlite}\n")
    branch.trace("perf/run.sqlite", 600)
    found = judged(branch, "matrix: {c: run.sqlite, d: other.sqlite}\n")
    assert found == {f"{NAME}[c]": "failed", f"{NAME}[d]": "passed"}
    assert loosened(branch) == []


def test_where_nobody_can_say_whose_place_it_took_it_is_named(project: Project) -> None:
    branch = on_a_branch(project, "matrix: {a: run.sqlite, b: other.sqlite}\n")
    assert judged(branch, "matrix: {c: slow.sqlite}\n", code=0) == {f"{NAME}[c]": "passed"}
    why = "baseline [c] that of a, b → its own: several had its key"
    assert loosened(branch) == [f"this PR loosens: {FILE} {why}"]


def test_beside_unchanged_ones_it_is_new(project: Project) -> None:
    branch = on_a_branch(project, "matrix: {a: run.sqlite}\n")
    found = judged(branch, "matrix: {a: run.sqlite, b: slow.sqlite}\n", code=0)
    assert found == {f"{NAME}[a]": "passed", f"{NAME}[b]": "passed"}
    branch.pytest("perf", REF, FAIL, code=0)


def test_a_sentence_that_nobody_measured_before_is_held_to_its_own(project: Project) -> None:
    branch = on_a_branch(project, "trace: run.sqlite\n")
    branch.gate(GATE % "matrix: {a: run.sqlite}\n" + "- launches <= baseline + 5%\n", FILE)
    branch.refresh()
    said = branch.pytest("perf", REF, code=0)
    assert "this branch is the first to measure it" in said
