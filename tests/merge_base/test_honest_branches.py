"""What does the gate of the merge base say of work as people do it, and of repositories as CI checks them out?"""

import re
import shutil
from pathlib import Path

import pytest

from pytest_nsys.core.errors import BaselineError
from pytest_nsys.merge_base.base_verdict import BaseVerdict
from pytest_nsys.merge_base.judge_process import JudgeRequest, start_judge
from tests.support.gates import Project, built_once
from tests.support.git_project import commit, git, on_main, start
from tests.support.merge_base import FILE, RUN, branch_off, judge
from tests.support.sql import ask

GATE = "- {id: exposed, assert: exposed_ns below baseline plus 10%}\n- {id: overlap, assert: overlap >= 60%}"


@pytest.fixture
@built_once
def branch(project: Project) -> Project:
    """A repository with a gate file and its baseline on main, and a branch that is checked out."""
    branch_off(project, GATE, "[pytest]\n")
    return project


def test_a_new_gate_file_and_a_new_assertion_are_the_branch_s_own(branch: Project) -> None:
    branch.gate("- overlap >= 99%", "new/other.nsys.yaml")
    branch.gate(f"{GATE}\n- {{id: more, assert: overlap >= 99%}}", FILE)
    commit(branch.root)
    found = judge(branch, RUN, "perf", "new")
    assert (found.is_red, found.new_paths) == (False, ["new"])
    assert [(each.file, each.state) for each in found.differences] == [
        ("new/other.nsys.yaml", "new"),
        (FILE, "changed"),
    ]
    assert "+- {id: more, assert: overlap >= 99%}" in found.differences[1].diff
    found = judge(branch, RUN, "new")
    assert (found.is_red, found.judged_gates) == (False, ())
    assert found.headline.startswith("no gate file to judge by at ")


def test_a_gate_that_moves_with_its_baseline(branch: Project) -> None:
    (branch.root / "speed").mkdir()
    git(branch.root, "mv", FILE, "speed/gate.nsys.yaml")
    git(branch.root, "mv", "baselines/perf__gate", "baselines/speed__gate")
    commit(branch.root)
    found = judge(branch, RUN, "speed")
    assert not found.is_red
    assert [gate.name for gate in found.judged_gates] == [FILE]
    states = {each.file: each.state for each in found.differences}
    assert states["speed/gate.nsys.yaml"] == f"moved from {FILE}"
    branch.trace(RUN, 400)
    assert judge(branch, RUN, "speed").is_red


def test_main_without_gate_files_is_good_and_says_so(project: Project) -> None:
    start(project)
    project.file("readme", "nothing")
    commit(project.root)
    git(project.root, "switch", "-qc", "feature")
    project.gate_with_trace(GATE)
    commit(project.root)
    found = judge(project, RUN)
    assert not found.is_red
    assert found.headline.startswith("no gate file to judge by at ")


def test_gate_files_of_main_of_which_none_is_judged_are_red(branch: Project) -> None:
    with on_main(branch):
        branch.file("pytest.ini", "[pytest]\ntestpaths = nowhere_else\nnorecursedirs = perf\n")
    found = judge(branch, RUN)
    assert found.is_red
    assert "nothing was judged, and " in found.headline


def test_what_main_does_not_search_is_not_judged(branch: Project) -> None:
    with on_main(branch):
        branch.gate("- overlap >= 99%", "perf/nightly/gate.nsys.yaml")
        branch.gate("- overlap >= 99%", "other/gate.nsys.yaml")
        branch.file("pytest.ini", "[pytest]\nnorecursedirs = night*\ntestpaths = perf\n")
    assert [gate.name for gate in judge(branch, RUN).judged_gates] == [FILE]
    assert not judge(branch, RUN).is_red
    assert judge(branch, RUN, ".").is_red


def test_a_file_of_one_folder_is_judged_alone(branch: Project) -> None:
    """Its neighbour is of another program."""
    with on_main(branch):
        branch.gate("- overlap >= 99%", "perf/other.nsys.yaml")
    assert not judge(branch, RUN, FILE).is_red
    assert judge(branch, RUN, "perf").is_red
    git(branch.root, "rm", "-q", "perf/other.nsys.yaml")
    commit(branch.root)
    assert judge(branch, RUN, FILE).is_red


def test_a_path_that_is_nowhere_is_a_mistake(branch: Project) -> None:
    for word in ("pref", "perf/gaet.nsys.yaml"):
        with pytest.raises(BaselineError, match=rf"{word}: no such file or folder, neither here nor at \w+"):
            judge(branch, RUN, word)
    words = [f"--nsys-trace={RUN}", "--nsys-baseline-ref=main", "--pyargs", "perf", "json.tool"]
    assert "gate of the merge base: 2 assertions passed" in branch.pytest_in_a_process(*words)


def test_no_trace_is_red(branch: Project) -> None:
    assert "no trace: give --nsys-trace=PATH" in "\n".join(judge(branch).render_lines())


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("pytest.ini", "pytest.ini: is no gate file (*.nsys.yaml) and no folder"),
        ("new.txt", "new.txt: is no gate file (*.nsys.yaml) and no folder"),
    ],
)
def test_a_path_that_would_judge_nothing_is_a_mistake_of_the_command(branch: Project, word: str, why: str) -> None:
    """Green would be what looked at nothing, for one typing error in a workflow."""
    branch.file("new.txt", "")
    for paths in ([word], ["perf", word]):
        with pytest.raises(BaselineError, match=f"^{re.escape(why)}$"):
            judge(branch, RUN, *paths, gates_only=True)
    assert not judge(branch, RUN, "perf", word).is_red  # of pytest, which tells of its own paths


def test_a_configuration_is_named(branch: Project) -> None:
    with on_main(branch):
        branch.gate(f"matrix: {{a: , b: }}\nassertions: {GATE.splitlines()[1][2:].join('[]')}", FILE)
    branch.trace("bad.sqlite", 500)
    found = judge(branch, "", "perf", nsys_trace=[f"a={RUN}", "b=bad.sqlite"])
    assert [(gate.name, gate.passed, gate.traces) for gate in found.judged_gates] == [
        (f"{FILE}[a]", 1, [RUN]),
        (f"{FILE}[b]", 0, ["bad.sqlite"]),
    ]


def test_files_that_a_gate_names_come_along_and_untracked_ones_are_named(branch: Project) -> None:
    with on_main(branch):
        branch.gate(f"workload: {{config: job.toml}}\nassertions:\n{GATE}", FILE)
        branch.file("perf/job.toml", "[training]\nlocal_batch_size = 1\nseq_len = 2048\n")
    found = judge(branch, RUN, "perf")
    assert not found.is_red, found.reds
    with on_main(branch):
        git(branch.root, "rm", "-q", "--cached", "perf/job.toml")
        branch.file(".gitignore", "*.sqlite\n*.toml\n")
    found = judge(branch, RUN, "perf")
    assert found.is_red
    assert "perf/job.toml is not in git at the merge base, whose gate names it" in found.notes
    assert str(branch.root) not in "\n".join(found.render_lines())


def test_a_pointer_of_lfs_without_its_file_is_named(branch: Project) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 100\n"
    with on_main(branch):
        content = (branch.root / FILE).read_bytes()
        (branch.root / FILE).write_text(pointer)
    with pytest.raises(BaselineError, match=r"perf/gate\.nsys\.yaml at \w+ is a pointer of git LFS.*git lfs fetch"):
        judge(branch, RUN)
    kept = branch.root / ".git/lfs/objects/ab/ab" / ("ab" * 32)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(content)
    assert not judge(branch, RUN).is_red


@pytest.mark.parametrize("target", ["nowhere.nsys.yaml", "/etc/passwd", "../../outside.nsys.yaml", "loop.nsys.yaml"])
def test_a_gate_file_of_main_that_is_a_link(branch: Project, target: str) -> None:
    with on_main(branch):
        (branch.root / "perf/loop.nsys.yaml").symlink_to(target)
    with pytest.raises(BaselineError, match=r"perf/loop\.nsys\.yaml at \w+ is a link to what the repository does not"):
        judge(branch, RUN)


def test_a_link_inside_of_main_is_followed_there(branch: Project) -> None:
    with on_main(branch):
        (branch.root / "also").symlink_to("perf")
        (branch.root / "linked.nsys.yaml").symlink_to("also/gate.nsys.yaml")
    assert [gate.name for gate in judge(branch, RUN, "also").judged_gates] == [FILE]
    (branch.root / "also").unlink()
    branch.gate("- overlap >= 1%", "also/gate.nsys.yaml")
    commit(branch.root)
    branch.trace(RUN, 500)
    assert judge(branch, RUN, "also").is_red


def test_links_to_what_a_gate_is_judged_by(branch: Project) -> None:
    """Baselines, an ini file, and what a gate file names: each is a link, or lies below one; some lead around."""
    with on_main(branch):
        branch.gate(f"workload: {{config: here/job.toml}}\nassertions:\n{GATE}", FILE)
        branch.file("kept/job.toml", "[training]\nlocal_batch_size = 1\nseq_len = 2048\n")
        branch.file("kept/pytest.ini", "[pytest]\nnsys_baseline_dir = linked\n")
        (branch.root / "baselines").rename(branch.root / "kept/stored")
        (branch.root / "pytest.ini").unlink()
        links = {
            "pytest.ini": "kept/pytest.ini",
            "kept/linked": "stored",
            "linked": "kept/linked",
            "perf/here": "../kept",
        }
        links |= {f"around{number}": "." for number in range(20)} | {"kept/stored/around": "../.."}
        for name, target in links.items():
            (branch.root / name).symlink_to(target)
    found = judge(branch, RUN, "perf")
    assert not found.is_red, [*found.render_lines()]
    branch.trace("slow.sqlite", 400)
    assert judge(branch, "slow.sqlite", "perf").is_red


def test_the_history_is_read_and_not_written(branch: Project) -> None:
    history = ("--nsys-history=perf.db",)
    for name in ("one.sqlite", "two.sqlite"):
        branch.trace(name)
        branch.pytest(f"--nsys-trace={name}", *history, code=0)
    with on_main(branch):
        branch.gate("- exposed_ns <= last 2 runs + 5%", FILE)
        branch.file("pytest.ini", "[pytest]\nnsys_history = perf.db\n")
        branch.file(".gitignore", "*.sqlite\n*.db\n")
    count = ask(branch.root / "perf.db", "SELECT count(*) FROM runs")
    assert not judge(branch, RUN, nsys_history="perf.db").is_red
    branch.trace(RUN, 400)
    assert judge(branch, RUN, nsys_history="perf.db").is_red
    assert judge(branch, RUN).is_red  # as the ini file of main names it
    assert ask(branch.root / "perf.db", "SELECT count(*) FROM runs") == count


def test_a_shallow_clone_says_what_to_fetch(branch: Project, tmp_path: Path) -> None:
    branch.file("more", "more")
    commit(branch.root)
    clone = tmp_path / "clone"
    git(branch.root, "clone", "-q", "--depth=1", "-b", "feature", f"file://{branch.root}", clone)
    with pytest.raises(BaselineError, match="has no commit 'origin/main': fetch it: git fetch origin main"):
        judge(branch, RUN, ref="origin/main", here=clone)
    git(clone, "fetch", "-q", "--depth=1", "origin", "main:refs/remotes/origin/main")
    with pytest.raises(BaselineError, match=r"is a shallow clone without the merge base .*: check out with"):
        judge(branch, RUN, ref="origin/main", here=clone)


def test_unrelated_histories_have_no_merge_base(branch: Project) -> None:
    git(branch.root, "switch", "-q", "--orphan", "other")
    assert git(branch.root, "commit", "-q", "--allow-empty", "-m", "begin anew") == ""
    with pytest.raises(BaselineError, match="unrelated histories"):
        judge(branch, RUN)


def test_baselines_outside_of_the_repository(branch: Project) -> None:
    with on_main(branch):
        git(branch.root, "rm", "-rq", "baselines")
        branch.file("pytest.ini", "[pytest]\nnsys_baseline_dir = ../outside\n")
        branch.refresh(f"--nsys-trace={RUN}")
    kept = branch.root.parent / "outside"
    try:
        assert [each.name for each in kept.iterdir()] == [f"{branch.root.name}__perf__gate"]
        assert not judge(branch, RUN, "perf").is_red
        assert not judge(branch, RUN, "perf", baseline_dir="../outside").is_red
        branch.trace("slow.sqlite", 300)
        assert judge(branch, "slow.sqlite", "perf").headline.startswith("1 failed")
    finally:
        shutil.rmtree(kept)


def test_another_work_tree_and_another_folder(branch: Project, tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    git(branch.root, "worktree", "add", "-q", beside, "-b", "beside")
    branch.trace("bad.sqlite", 500)
    for name, red in ((RUN, False), ("bad.sqlite", True)):
        found = judge(branch, str(branch.root / name), "gate.nsys.yaml", here=beside / "perf")
        assert found.is_red is red
        assert [gate.name for gate in found.judged_gates] == ["gate.nsys.yaml"]


def test_paths_typed_outside_of_the_repository(branch: Project, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    found = judge(branch, str(branch.root / RUN), str(branch.root / "perf"), here=outside)
    assert (found.is_red, [gate.passed for gate in found.judged_gates]) == (False, [2])


def test_a_merge_queue_and_a_merge_commit(branch: Project) -> None:
    """HEAD is main with the branch merged into it, as GitHub makes it."""
    branch.gate(GATE.replace("60%", "1%").replace("10%", "900%"), FILE)
    commit(branch.root)
    git(branch.root, "switch", "-q", "main")
    branch.file("meanwhile", "others went on")
    commit(branch.root)
    git(branch.root, "switch", "-qc", "queue")
    git(branch.root, "merge", "-q", "--no-ff", "--no-edit", "feature")
    branch.trace("bad.sqlite", 500)
    for ref in ("main", "HEAD^1"):
        assert judge(branch, "bad.sqlite", ref=ref).is_red
        assert not judge(branch, RUN, ref=ref).is_red


WITHOUT_EFFECT = {"pyproject.toml": "[project]\nname = 'x'\n", "tox.ini": "[flake8]\n", "train.py": "print(1)\n"}


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"conftest.py": "import os\n"}, "1 conftest"),
        ({"perf/pytest.ini": "[pytest]\n"}, "1 ini file"),
        ({"pyproject.toml": "[tool.pytest.ini_options]\nnsys_strict = true\n"}, "1 ini file"),
        ({"setup.cfg": "[tool:pytest]\naddopts = -q\n"}, "1 ini file"),
        ({FILE: "version: 1\nassertions:\n# a comment\n- overlap >= 60%\n"}, "1 gate file"),
        (WITHOUT_EFFECT, ""),
    ],
)
def test_what_differs_is_told_and_red_where_main_refuses_it(branch: Project, files: dict[str, str], told: str) -> None:
    def change() -> BaseVerdict:
        for file, text in files.items():
            branch.file(file, text)
        commit(branch.root)
        return judge(branch, RUN, "perf")

    found = change()
    assert not found.is_red
    assert (
        f"differs from the merge base: {told}\n" in "\n".join(found.render_lines()) if told else not found.differences
    )
    with on_main(branch):
        branch.file("pytest.ini", "[pytest]\nnsys_gate_changes = fail\n")
    found = change()
    assert found.is_red is bool(told)
    assert told in found.headline


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-o", "nsys_baseline_ref=main"], "nsys_baseline_ref in an ini file protects nobody"),
        (["-o", "addopts=--nsys-baseline-ref=main"], "nsys_baseline_ref in an ini file protects nobody"),
        (["--nsys-baseline-ref="], "is not a ref"),
        (["--nsys-baseline-ref=main", "--nsys-against=run.sqlite"], "pytest-nsys baseline judge REF --against=PATH"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(branch: Project, words: list[str], why: str) -> None:
    assert why in branch.pytest(f"--nsys-trace={RUN}", *words, code=4)


def test_a_merge_base_that_cannot_be_asked_is_one_red_line(branch: Project) -> None:
    said = branch.pytest(f"--nsys-trace={RUN}", "--nsys-baseline-ref=origin/main", code=1)
    told = "gate of the merge base: the merge base cannot judge: "
    assert f"{told}{branch.root.name} has no commit 'origin/main': fetch it: git fetch origin main" in " ".join(
        said.split()
    )


def test_only_collecting_starts_no_judge(branch: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: JudgeRequest) -> None:
        raise AssertionError(request)

    monkeypatch.setattr("pytest_nsys.plugin.merge_base.start_judge", refuse)
    branch.pytest("--co", "-q", "--nsys-baseline-ref=main", code=0)


def test_nothing_is_left_behind(branch: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    before = sorted(branch.root.rglob("*"))
    start_judge(JudgeRequest("main", branch.root)).stop()
    assert not judge(branch, RUN).is_red
    assert [*scratch.iterdir()] == []
    assert sorted(branch.root.rglob("*")) == before
    assert git(branch.root, "status", "--porcelain") == ""


@pytest.mark.parametrize("key", ["nsys_gate_changes = fial", "nsys_accepted = PASS"])
def test_a_slip_in_what_the_ini_file_refuses_is_no_permission(branch: Project, key: str) -> None:
    name, _, value = key.partition(" = ")
    with on_main(branch):
        branch.file("pytest.ini", f"[pytest]\n{key}\n")
    found = judge(branch, RUN)
    assert (found.is_red, found.is_broken) == (True, True)
    assert re.search(rf"pytest\.ini: {name} is \w+ or \w+, not '{value}'", "\n".join(found.render_lines()))
    assert f"pytest.ini: {name} is " in branch.pytest(f"--nsys-trace={RUN}", code=4)
