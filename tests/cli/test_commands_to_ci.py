"""Can a name in a trace or a gate file tell a CI system what to do? No line of a log is a command of its making."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pytest_nsys.core.words import printable
from pytest_nsys.tools.git import ELSEWHERE, commit_of, list_tree
from tests.support.gates import Project
from tests.support.git_project import commit, git, start

OLD = re.compile(r"##\w*\[")
"""Where it stands in a line does not matter: GitHub looks for ``##[``, Azure and TeamCity for a word more."""


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("##[add-mask]x", "# #[add-mask]x"),
        ("a ###[error]x", "a ## #[error]x"),
        ("##vso[task.setvariable]x", "# #vso[task.setvariable]x"),
        ("##teamcity[x]", "# #teamcity[x]"),
        ("\t::error::x", "�::error::x"),
        ("::error::x", ": :error::x"),
        (" :::x", " : ::x"),
        ("a::b ## C[0] #[x] ##", "a::b ## C[0] #[x] ##"),
    ],
)
def test_a_name_is_no_command(name: str, shown: str) -> None:
    assert printable(name) == shown
    assert printable(shown) == shown
    assert len(printable(name, 5)) <= 5


HOSTILE = "##[error]stage2_f"


def commands(text: str) -> list[str]:
    """The lines that a runner obeys, in either of its two languages."""
    return [line for line in text.splitlines() if OLD.search(line) or line.strip().startswith("::")]


@pytest.fixture
def hostile(project: Project) -> Project:
    project.gate(
        """
        convention: {extends: pithtrain, stage: '.*\\.(?P<stage>.+)'}
        assertions:
          - {id: "##[set-output name=verdict;]passed", assert: exposed_ns <= 1us}
          - {assert: overlap >= 99%, where: {stage: ['##[error]stage2_f']}}
          - {id: broken, assert: overlap >= 60%, window: "##[error]x", xfail: "##[debug]why"}
        """
    )
    project.trace(stages=(HOSTILE, "::error::stage4_f"))
    return project


def test_in_the_log_of_a_session(hostile: Project) -> None:
    said = hostile.pytest("--nsys-trace=run.sqlite", "-v", "-rA", "--nsys-json=report.json", code=1)
    assert "# #[error]stage2_f" in said
    assert "1 error" in said
    assert commands(said) == []
    text = (hostile.root / "report.json").read_text()
    assert not OLD.search(text)


@pytest.mark.parametrize(
    "words",
    [
        ["--view=overlap", "--format=table"],
        ["--view=overlap", "--format=markdown"],
        ["--view=overlap", "--format=csv"],
        ["--view=overlap", "--format=json"],
        ["compare", "slower.sqlite"],
    ],
)
def test_in_the_output_of_a_command(hostile: Project, words: list[str]) -> None:
    hostile.trace("slower.sqlite", 900, stages=(HOSTILE, "::error::stage4_f"))
    command, last = words
    said = hostile.command(command, "run.sqlite", last, "--convention=gate.nsys.yaml")
    assert commands(said) == [], said
    assert "gate.nsys.yaml" not in said  # which an error of usage would name


# -- what is asked of git is asked of the repository that the files lie in


def test_every_variable_that_git_keeps_from_other_repositories() -> None:
    own = subprocess.run(["git", "rev-parse", "--local-env-vars"], capture_output=True, text=True, check=True)
    assert set(own.stdout.split()) <= ELSEWHERE


@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_OBJECT_DIRECTORY", "GIT_CONFIG_PARAMETERS"])
def test_git_is_asked_of_the_folder(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    start(project)
    gate = project.gate("- overlap >= 60%")
    known = commit(project.root)
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    values = {"GIT_OBJECT_DIRECTORY": other / ".git" / "objects", "GIT_CONFIG_PARAMETERS": "'broken"}
    monkeypatch.setenv(name, str(values.get(name, other / ".git")))
    assert commit_of(project.root) == known
    assert gate.name in list_tree(project.root, known)
