"""Is a gate in a submodule held to what the repository around it recorded, as its pull request moves the submodule?"""

from __future__ import annotations

import pytest

from tests.support.gates import Project
from tests.support.git_project import commit, git, start
from tests.support.reports import report_of

GATE = "tolerance: {rel: 5%, abs: 20us}\nassertions:\n- exposed_ns below baseline plus tolerance\n- overlap >= 60%\n"
REF, FAIL, RUN = "--nsys-baseline-ref=main", "--nsys-gate-changes=fail", "--nsys-trace=run.sqlite"
SUB = "perf"


@pytest.fixture
def branch(project: Project) -> Project:
    """A repository whose gate and baseline are in a submodule, and a branch of it with a slower run."""
    start(project)
    project.file("pytest.ini", "[pytest]\n")
    other = project.root.parent / f"{project.root.name}-other"
    other.mkdir()
    git(other, "init", "-q", "-b", "trunk")
    git(other, "commit", "-q", "--allow-empty", "-m", "begin")
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
    git(project.root, *add, other, SUB)
    project.gate(GATE, "perf/gate.nsys.yaml")
    (project.root / "perf/baselines").mkdir()
    project.trace()
    project.refresh(RUN)
    moved(project)
    git(project.root, "switch", "-qc", "feature")
    project.trace(exposed_us={(1, "stage4_f"): 350})
    return project


def moved(project: Project) -> None:
    """Commit what is in the submodule, and the submodule as it is then."""
    commit(project.root / SUB)
    commit(project.root)


def test_a_submodule_that_accepts_a_regression_is_not_its_own_judge(branch: Project) -> None:
    branch.refresh(RUN)
    moved(branch)
    branch.pytest(RUN, code=0)
    said = branch.pytest(RUN, REF, code=1)
    recorded = git(branch.root, "rev-parse", f"main:{SUB}")[:7]
    assert "1 of 4 rows above their limit" in said
    assert f"baselines changed in this branch since {recorded} (recorded at the merge base of main):" in said


def test_a_gate_that_is_loosened_there_is_told(branch: Project) -> None:
    branch.trace()
    branch.gate(GATE.replace("60%", "30%"), "perf/gate.nsys.yaml")
    moved(branch)
    loosened = "this PR loosens: perf/gate.nsys.yaml:5 limit >= 60% → >= 30% (overlap >= 30%)"
    assert loosened in branch.pytest(RUN, REF, code=0)
    (branch.root / "perf/gate.nsys.yaml").unlink()
    moved(branch)
    assert "this PR loosens: perf/gate.nsys.yaml gate file judged → gone" in branch.pytest(RUN, REF, FAIL, code=1)


def test_a_gate_that_is_hidden_there_is_left_out(branch: Project) -> None:
    branch.file("perf/pyvenv.cfg", "")
    moved(branch)
    (one,) = report_of(branch, RUN, REF, FAIL, code=1)["left_out"]
    assert one["file"] == "perf/gate.nsys.yaml"


def test_a_submodule_that_is_gone_is_told(branch: Project) -> None:
    git(branch.root, "rm", "-q", "-f", SUB)
    commit(branch.root)
    line = "this PR changes, and may loosen: perf submodule its gate files → gone"
    assert line in branch.pytest(RUN, REF, FAIL, code=1)


def test_one_that_is_not_checked_out_is_not(branch: Project) -> None:
    git(branch.root, "submodule", "--quiet", "deinit", "-f", SUB)
    (branch.root / SUB).rmdir()
    branch.gate("- overlap >= 60%", "own.nsys.yaml")
    assert "no gate was loosened" in branch.pytest(RUN, REF, FAIL, code=0)


def test_a_commit_that_nobody_fetched_is_an_error(branch: Project) -> None:
    recorded = git(branch.root, "rev-parse", f"main:{SUB}")
    branch.trace()
    git(branch.root / SUB, "switch", "-q", "--orphan", "anew")
    branch.gate(GATE, "perf/gate.nsys.yaml")
    moved(branch)
    for words in ("branch -qD trunk", "remote remove origin", "reflog expire --expire=now --all", "prune --expire=now"):
        git(branch.root / SUB, *words.split())
    case = branch.cases(RUN, REF, code=1)["exposed_ns below baseline plus tolerance"]
    assert case.state == "error"
    assert f"the submodule {SUB} has no commit {recorded[:7]}, which {branch.root.name} records at " in case.text
    assert f"fetch it: git -C {SUB} fetch origin {recorded}" in case.text
    assert "cannot tell what this PR loosens: " in branch.pytest(RUN, REF, FAIL, code=1)


def test_a_folder_that_becomes_a_submodule_is_held_to_the_folder(branch: Project) -> None:
    """Its gate file and baselines are at the merge base, without a submodule."""
    link, aside = branch.root / "perf/.git", branch.root / ".git/aside"
    git(branch.root, "rm", "-q", "-f", "--cached", SUB)
    link.rename(aside)
    commit(branch.root)
    git(branch.root, "branch", "-qf", "main")
    aside.rename(link)
    git(branch.root, "rm", "-rq", "--cached", SUB)
    branch.refresh(RUN)
    moved(branch)
    assert "1 of 4 rows above their limit" in branch.pytest(RUN, REF, code=1)


def test_a_submodule_that_becomes_a_folder_is_told(branch: Project) -> None:
    git(branch.root, "rm", "-q", "--cached", SUB)
    (branch.root / "perf/.git").unlink()
    branch.refresh(RUN)
    commit(branch.root)
    line = "this PR changes, and may loosen: perf submodule its gate files → gone"
    assert line in branch.pytest(RUN, REF, FAIL, code=1)
