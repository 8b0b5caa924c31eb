"""Who may let pass what a branch accepts? The merge base's ini file alone, whatever a branch or a workflow writes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.gates import Project, built_once
from tests.support.git_project import commit, git, start
from tests.support.reports import by_name, report_of

NAME = "exposed_ns below baseline plus tolerance"
REF, RUN = "--nsys-baseline-ref=main", "--nsys-trace=run.sqlite"
PASS, FAIL = "--nsys-accepted=pass", "--nsys-accepted=fail"
SET = "set nsys_accepted = pass in the ini file of the merge base"
BACK = "put nsys_accepted = pass back into the ini file of this branch"
NOTHING, SAYS_PASS, SAYS_FAIL = "[pytest]\n", "[pytest]\nnsys_accepted = pass\n", "[pytest]\nnsys_accepted = fail\n"
TOML = '[tool.pytest.ini_options]\nnsys_accepted = "pass"\n'
INI, PROJECT = "pytest.ini", "pyproject.toml"

Files = Mapping[str, str]


@pytest.fixture
@built_once
def begun(project: Project) -> Project:
    """A repository on main with a gate and its baseline, not committed yet."""
    start(project)
    project.gate(f"tolerance: {{rel: 5%}}\nassertions: [{NAME}]", "perf/gate.nsys.yaml")
    project.trace()
    project.refresh("--rootdir=.", RUN)
    return project


def branch_of(project: Project, then: Files, now: Files) -> Project:
    """A branch whose regression is accepted: the ini files of main, and its own."""
    for name, text in then.items():
        project.file(name, text)
    commit(project.root)
    git(project.root, "switch", "-qc", "feature")
    for name in then:
        (project.root / name).unlink()
    for name, text in now.items():
        project.file(name, text)
    project.trace(exposed_us=300)
    project.refresh("--rootdir=.", RUN, "--nsys-reason=smaller buckets", "-o", "nsys_baseline_ref=", "-o", "addopts=")
    commit(project.root)
    return project


WAYS: dict[str, tuple[Files, Files, tuple[str, ...], str]] = {
    "both say it": ({INI: SAYS_PASS}, {INI: SAYS_PASS}, (), ""),
    "both say it, and it is typed": ({INI: SAYS_PASS}, {INI: SAYS_PASS}, (PASS,), ""),
    "another ini file says it": ({INI: SAYS_PASS}, {PROJECT: TOML}, (), ""),
    "addopts of both say it": (
        {INI: f"[pytest]\naddopts = {PASS}\n"},
        {INI: "[pytest]\naddopts = --nsys-accepted pass\n"},
        (),
        "",
    ),
    "it is typed where the branch says nothing": ({INI: SAYS_PASS}, {INI: NOTHING}, (PASS,), ""),
    "nobody says it": ({INI: NOTHING}, {INI: NOTHING}, (), SET),
    "the branch says it": ({INI: NOTHING}, {INI: SAYS_PASS}, (), SET),
    "the branch says it in addopts": ({INI: NOTHING}, {INI: f"[pytest]\naddopts = {PASS}\n"}, (), SET),
    "the branch has the first ini file": ({}, {INI: SAYS_PASS}, (), SET),
    "the branch has an ini file nearer": ({INI: NOTHING}, {INI: NOTHING, "perf/pytest.ini": SAYS_PASS}, ("perf",), SET),
    "the branch removes the file before it": ({INI: NOTHING, PROJECT: TOML}, {PROJECT: TOML}, (), SET),
    "it is typed": ({INI: NOTHING}, {INI: NOTHING}, (PASS,), SET),
    "it is typed as an ini key": ({INI: NOTHING}, {INI: NOTHING}, ("-o", "nsys_accepted=pass"), SET),
    "another ini file is typed": ({INI: NOTHING}, {INI: NOTHING, "mine.ini": SAYS_PASS}, ("-c", "mine.ini"), SET),
    "the ref is turned off and typed": (
        {INI: NOTHING},
        {INI: NOTHING},
        ("-o", "nsys_baseline_ref=", PASS),
        SET,
    ),
    "main says fail": ({INI: SAYS_FAIL}, {INI: SAYS_PASS}, (), SET),
    "main says both": ({INI: f"{SAYS_PASS}addopts = {FAIL}\n"}, {INI: SAYS_PASS}, (), SET),
    "main says another word": ({INI: "[pytest]\nnsys_accepted = Pass\n"}, {INI: SAYS_PASS}, (), SET),
    "main's file is broken": ({INI: "nsys_accepted = pass\n"}, {INI: SAYS_PASS}, (), SET),
    "the branch drops it": ({INI: SAYS_PASS}, {INI: NOTHING}, (), BACK),
    "the branch has no ini file any more": ({INI: SAYS_PASS}, {}, ("--rootdir=.",), BACK),
    "the branch says fail": ({INI: SAYS_PASS}, {INI: SAYS_FAIL}, (), BACK),
    "the branch says fail, and pass is typed": ({INI: SAYS_PASS}, {INI: SAYS_FAIL}, (PASS,), BACK),
    "fail is typed": ({INI: SAYS_PASS}, {INI: SAYS_PASS}, (FAIL,), f"leave out {FAIL}"),
    "fail is in addopts": ({INI: SAYS_PASS}, {INI: f"{SAYS_PASS}addopts = {FAIL}\n"}, (), f"leave out {FAIL}"),
}


@pytest.mark.parametrize("way", WAYS)
def test_who_lets_it_pass(begun: Project, way: str) -> None:
    then, now, words, red = WAYS[way]
    branch = branch_of(begun, then, now)
    found = by_name(report_of(branch, RUN, REF, *words, code=1 if red else 0))[NAME]
    assert (found["outcome"], found["good"]) == ("accepted", not red)
    assert found["message"].endswith(f"; stays red until somebody lets it pass: {red}" if red else "(smaller buckets)")


def test_the_environment_does_not(begun: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    branch = branch_of(begun, {INI: NOTHING}, {INI: NOTHING})
    monkeypatch.setenv("PYTEST_ADDOPTS", PASS)
    branch.pytest(RUN, REF, code=1)


def test_a_broken_ini_file_of_the_merge_base_is_told(begun: Project) -> None:
    branch = branch_of(begun, {INI: "[pytest\n"}, {INI: SAYS_PASS})
    assert "the ini file of the merge base is broken, and says nothing: pytest.ini: " in branch.pytest(RUN, REF, code=1)


@pytest.mark.parametrize("word", [PASS, FAIL])
def test_it_is_of_a_merge_base(project: Project, word: str) -> None:
    project.gated("- overlap >= 60%")
    said = project.pytest(RUN, word, code=4)
    assert "--nsys-accepted is of what differs from a merge base: give --nsys-baseline-ref too" in said


def test_another_word_is_a_mistake(project: Project) -> None:
    project.gated("- overlap >= 60%")
    project.file(INI, "[pytest]\nnsys_accepted = perhaps\n")
    assert "nsys_accepted is fail or pass, not 'perhaps'" in project.pytest(RUN, code=4)


def test_workers_are_told_what_the_merge_base_decides(begun: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch that drops the ref from its ini file is not its own judge under xdist."""
    says = {INI: "[pytest]\nnsys_baseline_ref = main\n"}
    branch = branch_of(begun, says, {INI: NOTHING})
    git(branch.root, "update-ref", "refs/remotes/origin/main", "main")
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    for words in ((), ("-n", "2")):
        assert "accepted on this branch" in branch.pytest_in_a_process(RUN, *words, code=1)
