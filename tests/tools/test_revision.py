"""Are commit and branch those of the gate file, also where CI checked out a commit alone?"""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_nsys.tools.git import BRANCH_VARIABLES, Revision, revision_of
from tests.support.gates import Project
from tests.support.git_project import commit, git, isolate
from tests.support.sql import ask

GATE = "- exposed_ns < 1 ms"


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch)


def test_commit_and_branch_of_the_gate_file(project: Project) -> None:
    gate = project.gate(GATE, "perf/gate.nsys.yaml")
    project.file(".gitignore", "*.sqlite\n*.db\n")
    project.trace()
    git(project.root, "init", "-q", "-b", "main")
    first = commit(project.root)
    project.pytest("--nsys-trace=run.sqlite", "--nsys-history=perf.db", code=0)
    gate.write_text(gate.read_text() + "# changed\n")
    project.pytest("--nsys-trace=run.sqlite", "--nsys-history=perf.db", code=0)
    found = ask(project.root / "perf.db", "SELECT commit_id, branch, dirty FROM runs")
    assert found == [(first, "main", 0), (first, "main", 1)]


def test_a_detached_head_takes_the_branch_from_ci(project: Project) -> None:
    project.gate(GATE)
    git(project.root, "init", "-q", "-b", "main")
    commit(project.root)
    assert revision_of(project.root, {"GITHUB_REF_NAME": "elsewhere"}).branch == "main"
    git(project.root, "checkout", "-q", "--detach")
    assert revision_of(project.root, {}).branch is None
    for name in BRANCH_VARIABLES:
        assert revision_of(project.root, {name: "topic", "GITHUB_REF_NAME": "topic"}).branch == "topic"
    github = {"GITHUB_HEAD_REF": "", "GITHUB_REF_NAME": "main"}
    assert revision_of(project.root, github).branch == "main"
    github = {"GITHUB_HEAD_REF": "topic", "GITHUB_REF_NAME": "12/merge"}
    assert revision_of(project.root, github).branch == "pull/12/merge"


@pytest.mark.parametrize(
    ("environment", "branch"),
    [
        ({"GITHUB_HEAD_REF": "main", "GITHUB_REF_NAME": "7/merge"}, "pull/7/merge"),
        ({"CI_MERGE_REQUEST_IID": "7", "CI_COMMIT_REF_NAME": "main"}, "merge-request/7"),
        ({"CHANGE_ID": "7", "BRANCH_NAME": "main"}, "pull/7"),
    ],
)
def test_what_a_fork_proposes_from_its_main_is_not_our_main(
    project: Project, environment: dict[str, str], branch: str
) -> None:
    """A limit from the history of main must not follow a pull request."""
    git(project.root, "init", "-q", "-b", "main")
    git(project.root, "commit", "-q", "--allow-empty", "-m", "first")
    git(project.root, "checkout", "-q", "--detach")
    assert revision_of(project.root, environment).branch == branch


def test_without_git_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert revision_of(tmp_path, {"GITHUB_REF_NAME": "main"}) == Revision(None, None, None)


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert revision_of(tmp_path, {}) == Revision(None, None, None)
