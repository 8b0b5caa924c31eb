"""Are baselines read as a commit has them, whatever git was told, with one line for every reason why they cannot be?

And are commit and branch those of the gate file, also where CI checked out a commit alone?
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_nsys.core.errors import BaselineError
from pytest_nsys.tools.git import (
    BRANCH_VARIABLES,
    Revision,
    find_merge_base,
    find_outermost_repository,
    format_merge_advice,
    list_tree,
    read_blobs,
    read_revision,
)
from tests.support.gates import Project
from tests.support.git_project import commit, git, isolate
from tests.support.sql import ask

BASELINE = "baselines/gate/0.json"
BEFORE, NOW = b"as of main", b"of the branch"


@pytest.fixture(autouse=True)
def _isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


def begin(root: Path) -> Path:
    """A repository with a baseline on main, and a branch that changed it."""
    (root / BASELINE).parent.mkdir(parents=True)
    (root / BASELINE).write_bytes(BEFORE)
    git(root, "init", "-q", "-b", "main")
    commit(root)
    git(root, "switch", "-qc", "feature")
    (root / BASELINE).write_bytes(NOW)
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return begin(tmp_path / "repository")


def read(root: Path, ref: str = "main") -> bytes | None:
    root = find_outermost_repository(root)
    entry = list_tree(root, find_merge_base(root, ref)).get(BASELINE)
    return None if entry is None else read_blobs(root, [entry.object_name])[0]


def clone(root: Path, depth: int, branch: str) -> Path:
    commit(root, "slower")
    made = root.parent / "clone"
    git(root, "clone", "-q", f"--depth={depth}", "--no-single-branch", "-b", branch, f"file://{root}", made)
    return made


def test_the_merge_base_counts(root: Path) -> None:
    assert read(root) == BEFORE
    (root / BASELINE).unlink()
    assert read(root) == BEFORE


def test_a_work_tree_beside_the_first(root: Path) -> None:
    git(root, "worktree", "add", "-q", "../beside", "-b", "beside")
    assert read(root.parent / "beside") == BEFORE


def test_names_that_git_would_quote(tmp_path: Path) -> None:
    assert read(begin(tmp_path / 'a "b" ü\t[x]')) == BEFORE


def test_the_first_parent_of_a_merge_in_a_shallow_clone(root: Path) -> None:
    """As a workflow of GitHub checks a pull request out."""
    commit(root, "slower")
    git(root, "switch", "-qc", "pull", "main")
    git(root, "merge", "-q", "--no-ff", "--no-edit", "feature")
    made = root.parent / "clone"
    git(root, "clone", "-q", "--depth=2", "-b", "pull", f"file://{root}", made)
    assert read(made, "HEAD^1") == BEFORE
    assert (made / BASELINE).read_bytes() == NOW


@pytest.mark.parametrize(
    ("ref", "why"),
    [
        ("origin/main", "has no commit 'origin/main': fetch it: git fetch origin main"),
        ("nowhere", "has no commit 'nowhere': fetch it: git fetch origin nowhere"),
        ("main..feature", "has no commit 'main..feature'"),
        ("main:perf", "has no commit 'main:perf'"),
        ("HEAD^7", "has no commit 'HEAD^7': in a shallow clone: fetch-depth: 0"),
        ("$(touch hacked); x", "has no commit '$(touch hacked); x'"),
        ("--help", "'--help' is not a ref"),
        (" ", "' ' is not a ref"),
    ],
)
def test_an_unknown_ref(root: Path, ref: str, why: str) -> None:
    with pytest.raises(BaselineError, match=re.escape(why)):
        read(root, ref)
    assert not (root / "hacked").exists()


@pytest.mark.parametrize("ref", ["origin/main", "main"])
def test_the_fetch_that_is_told_brings_the_ref(root: Path, ref: str) -> None:
    """Also into a clone of one branch."""
    commit(root, "slower")
    made = root.parent / "clone"
    git(root, "clone", "-q", "--single-branch", "-b", "feature", f"file://{root}", made)
    with pytest.raises(BaselineError, match="fetch it: ") as error:
        read(made, ref)
    words = str(error.value).partition("fetch it: ")[2].split()
    git(made, *words[1:])
    assert read(made, ref) == BEFORE


def unrelated(root: Path) -> Path:
    git(root, "switch", "-q", "--discard-changes", "--orphan", "other")
    git(root, "commit", "-q", "--allow-empty", "-m", "begin anew")
    return root


def shallow(root: Path) -> Path:
    git(root, "stash", "-q")
    git(root, "switch", "-q", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "main goes on")
    git(root, "switch", "-q", "feature")
    git(root, "stash", "pop", "-q")
    return clone(root, 1, "feature")


def no_repository(root: Path) -> Path:
    (root / ".git").rename(root / "kept")
    return root


def no_commit(root: Path) -> Path:
    other = root.parent / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "main")
    return other


WHY_NOT: dict[str, tuple[Callable[[Path], Path], str, str]] = {
    "unrelated histories": (unrelated, "main", "have unrelated histories in"),
    "a shallow clone": (
        *(shallow, "origin/main"),
        "is a shallow clone without the merge base of origin/main and HEAD: check out with fetch-depth: 0",
    ),
    "no repository": (no_repository, "main", "is not in a git repository"),
    "no commit of this name": (no_commit, "main", "has no commit 'main'"),
    "no commit yet": (no_commit, "HEAD", "has no commit yet"),
}


@pytest.mark.parametrize("case", WHY_NOT)
def test_why_nothing_can_be_read(root: Path, case: str) -> None:
    make, ref, why = WHY_NOT[case]
    with pytest.raises(BaselineError, match=re.escape(why)) as caught:
        read(make(root), ref)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("PATH", ".", "git is not installed"),
        ("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1", "git config --global --add safe.directory"),
    ],
)
def test_without_git_or_its_trust(root: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, why: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(BaselineError, match=why):
        read(root)


def test_the_advice_on_merging(root: Path, tmp_path: Path) -> None:
    line = '"perf/my baselines/**/*.json" -merge'
    assert str(format_merge_advice(root / "perf/my baselines")).endswith(f"add to .gitattributes: {line}")
    assert format_merge_advice(tmp_path / "baselines") is None
    for said in (line, "*.json binary"):
        (root / ".gitattributes").write_text(f"{said}\n")
        assert format_merge_advice(root / "perf/my baselines") is None


GATE = "- exposed_ns < 1 ms"


# What is checked out


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
    assert read_revision(project.root, {"GITHUB_REF_NAME": "elsewhere"}).branch == "main"
    git(project.root, "checkout", "-q", "--detach")
    assert read_revision(project.root, {}).branch is None
    for name in BRANCH_VARIABLES:
        assert read_revision(project.root, {name: "topic", "GITHUB_REF_NAME": "topic"}).branch == "topic"
    github = {"GITHUB_HEAD_REF": "", "GITHUB_REF_NAME": "main"}
    assert read_revision(project.root, github).branch == "main"
    github = {"GITHUB_HEAD_REF": "topic", "GITHUB_REF_NAME": "12/merge"}
    assert read_revision(project.root, github).branch == "pull/12/merge"


@pytest.mark.parametrize(
    ("environment", "branch"),
    [
        ({"GITHUB_HEAD_REF": "main", "GITHUB_REF_NAME": "7/merge"}, "pull/7/merge"),
        ({"CI_MERGE_REQUEST_IID": "7", "CI_COMMIT_REF_NAME": "main"}, "merge-request/7"),
        ({"CHANGE_ID": "7", "BRANCH_NAME": "main"}, "pull/7"),
    ],
)
def test_the_main_of_a_fork_is_not_our_main(project: Project, environment: dict[str, str], branch: str) -> None:
    """A limit from the history of main must not follow a pull request."""
    git(project.root, "init", "-q", "-b", "main")
    git(project.root, "commit", "-q", "--allow-empty", "-m", "first")
    git(project.root, "checkout", "-q", "--detach")
    assert read_revision(project.root, environment).branch == branch


def test_without_git_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_revision(tmp_path, {"GITHUB_REF_NAME": "main"}) == Revision(None, None, None)


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert read_revision(tmp_path, {}) == Revision(None, None, None)
