"""Can a name tell a CI system what to do, or a variable of git lead to another repository?"""

import subprocess
from pathlib import Path

import pytest

from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.tools.git import REPOSITORY_VARIABLES, find_commit, list_tree
from tests.support.gates import Project
from tests.support.git_project import commit, git, start


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
    assert sanitize_line(name) == shown
    assert sanitize_line(shown) == shown
    assert len(sanitize_line(name, 5)) <= 5


# -- what is asked of git is asked of the repository that the files lie in


def test_every_variable_that_git_keeps_from_other_repositories() -> None:
    own = subprocess.run(["git", "rev-parse", "--local-env-vars"], capture_output=True, text=True, check=True)
    assert set(own.stdout.split()) <= REPOSITORY_VARIABLES


@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_OBJECT_DIRECTORY", "GIT_CONFIG_PARAMETERS"])
def test_git_is_asked_there(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    start(project)
    gate = project.gate("- overlap >= 60%")
    known = commit(project.root)
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    values = {"GIT_OBJECT_DIRECTORY": other / ".git" / "objects", "GIT_CONFIG_PARAMETERS": "'broken"}
    monkeypatch.setenv(name, str(values.get(name, other / ".git")))
    assert find_commit(project.root) == known
    assert gate.name in list_tree(project.root, known)
