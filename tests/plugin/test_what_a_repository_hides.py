"""Is what a repository keeps from being judged named, and red where that is asked for, whatever a branch writes?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.gates import Project, built_once
from tests.support.git_project import commit, git, start
from tests.support.reports import by_name, checked, report_of

GATE = "- {id: exposed, assert: exposed_ns < 1 ms}\n- {id: overlap, assert: overlap >= 60%}"
FILE = "perf/gate.nsys.yaml"
REF, FAIL, RUN = "--nsys-baseline-ref=main", "--nsys-gate-changes=fail", "--nsys-trace=run.sqlite"
ITEM = "nsys::gate changes"


@pytest.fixture
@built_once
def branch(project: Project) -> Project:
    """A repository with a gate file on main, which a good trace passes, and a branch that is checked out."""
    return on_a_branch(project)


def on_a_branch(project: Project, ini: str = "") -> Project:
    start(project)
    project.gate(GATE, FILE)
    project.gate("- overlap >= 60%", "other/gate.nsys.yaml")
    project.file("test_plain.py", "def test_plain(): pass\n")
    project.file("pytest.ini", f"[pytest]\n{ini}")
    project.trace()
    commit(project.root)
    git(project.root, "switch", "-qc", "feature")
    return project


@contextmanager
def on_main(project: Project) -> Iterator[None]:
    """What is written meanwhile is committed on main, and the branch begins anew behind it."""
    git(project.root, "switch", "-q", "main")
    yield
    commit(project.root)
    git(project.root, "switch", "-qC", "feature")


def loosen(project: Project) -> None:
    project.gate(GATE.replace("60%", "30%"), FILE)


def left_out(project: Project, *words: str, code: int) -> list[tuple[str, str | None, str, str]]:
    return [(e["file"], e["name"], e["by"], e["why"]) for e in report_of(project, RUN, *words, code=code)["left_out"]]


def ini(text: str) -> tuple[str, str]:
    return "pytest.ini", f"[pytest]\n{text}\n"


HIDDEN = {
    "a virtual environment": (
        ("perf/pyvenv.cfg", ""),
        "not collected: perf/pyvenv.cfg makes its folder a virtual environment",
    ),
    "norecursedirs": (ini("norecursedirs = perf"), "not collected: norecursedirs has perf"),
    "collect_ignore": (("conftest.py", "collect_ignore = ['perf']"), "not collected: collect_ignore of conftest.py"),
    "testpaths": (ini("testpaths = other"), "not collected: testpaths is other"),
    "addopts": (ini("addopts = other"), "not collected: addopts names other"),
    "ignored": (ini("addopts = --ignore=perf"), "ignored by addopts in the ini file"),
}


@pytest.mark.parametrize("how", HIDDEN)
def test_a_gate_file_of_the_merge_base_that_pytest_passes_over(branch: Project, how: str) -> None:
    file, why = HIDDEN[how]
    branch.file(*file)
    assert left_out(branch, REF, code=0) == [(FILE, None, "repository", why)]
    line = f"{FILE}: the whole file, {why}"
    assert f"nsys: left out: {line}" in branch.pytest(RUN, REF, code=0)
    report = branch.root / "report.json"
    said = branch.pytest(RUN, REF, FAIL, f"--nsys-json={report}", code=1)
    assert f"FAILED {ITEM} - " in said
    assert f"  {line}" in said
    assert (checked(report)["verdict"], checked(report)["good"]) == ("failed", False)


def test_also_where_nothing_else_is_collected(branch: Project) -> None:
    branch.file("perf/pyvenv.cfg", "")
    branch.file("other/pyvenv.cfg", "")
    (branch.root / "test_plain.py").unlink()
    branch.pytest(RUN, REF, code=5)
    assert f"FAILED {ITEM}" in branch.pytest(RUN, REF, FAIL, code=1)


def test_paths_that_a_person_types_are_those_asked(branch: Project) -> None:
    branch.file("perf/pyvenv.cfg", "")
    assert left_out(branch, REF, FAIL, "other", code=0) == []
    assert left_out(branch, REF, FAIL, "other/gate.nsys.yaml", "test_plain.py::test_plain", code=0) == []


def test_testpaths_are_those_of_the_merge_base(project: Project) -> None:
    branch = on_a_branch(project, "testpaths = perf test_plain.py\n")
    assert left_out(branch, REF, FAIL, code=0) == []
    branch.file(*ini("testpaths = test_plain.py"))
    assert left_out(branch, REF, FAIL, code=1) == [
        (FILE, None, "repository", "not collected: testpaths is test_plain.py")
    ]


def test_what_the_merge_base_passes_over_by_itself(branch: Project) -> None:
    with on_main(branch):
        branch.gate(GATE, "build/gate.nsys.yaml")
        branch.gate(GATE, ".github/gate.nsys.yaml")
    assert left_out(branch, REF, FAIL, code=0) == []


@pytest.mark.parametrize("said", [".git", "nowhere\n  perf/other"])
def test_what_the_merge_base_looks_into_by_its_ini_file(project: Project, said: str) -> None:
    project.gate(GATE, "perf/build/gate.nsys.yaml")
    branch = on_a_branch(project, f"norecursedirs = {said}\n")
    assert left_out(branch, REF, FAIL, code=0) == []
    branch.file(*ini(""))
    why = "not collected: norecursedirs has build"
    assert left_out(branch, REF, FAIL, code=1) == [("perf/build/gate.nsys.yaml", None, "repository", why)]


BEFORE = {
    "norecursedirs": ini("norecursedirs = night*"),
    "addopts": ini("addopts = --ignore=perf/nightly"),
    "a glob of addopts": ini("addopts = --ignore-glob=*/nightly"),
    "collect_ignore": ("conftest.py", "collect_ignore = ['setup.py', 'perf/nightly']"),
    "collect_ignore_glob": ("perf/conftest.py", "collect_ignore_glob = ['night*']"),
}


@pytest.mark.parametrize("how", BEFORE)
def test_what_the_merge_base_left_out_itself_is_named_and_not_red(project: Project, how: str) -> None:
    project.gate(GATE, "perf/nightly/gate.nsys.yaml")
    branch = on_a_branch(project)
    with on_main(branch):
        branch.file(*BEFORE[how])
    ((file, name, by, why),) = left_out(branch, REF, FAIL, code=0)
    assert (file, name, by) == ("perf/nightly/gate.nsys.yaml", None, "merge base")
    assert f"nsys: left out: {file}: the whole file, {why}" in branch.pytest(RUN, REF, FAIL, code=0)
    branch.file("perf/pyvenv.cfg", "")
    assert {file for file, _, by, _ in left_out(branch, REF, FAIL, code=1) if by == "repository"} == {FILE}


def test_what_the_merge_base_left_out_and_a_person_types(project: Project) -> None:
    project.gate(GATE, "perf/nightly/gate.nsys.yaml")
    branch = on_a_branch(project, "norecursedirs = nightly\n")
    assert left_out(branch, REF, FAIL, "perf/nightly", code=0) == []
    branch.file("conftest.py", "collect_ignore_glob = ['perf/nightly/*']")
    ((_, _, by, why),) = left_out(branch, REF, FAIL, "perf/nightly", code=1)
    assert (by, why) == ("repository", "not collected: collect_ignore_glob of conftest.py")


def test_a_list_of_the_merge_base_that_is_made_while_it_runs_is_none(branch: Project) -> None:
    with on_main(branch):
        branch.file("conftest.py", "collect_ignore = ['perf']\nimport os\nif 'CI' in os.environ: collect_ignore = []")
    assert [by for _, _, by, _ in left_out(branch, REF, FAIL, code=1)] == ["repository"]


# -- what is chosen


@pytest.mark.parametrize("words", [(), ("-m", "nsys or a"), ("-k", "overlap or exposed")])
def test_what_addopts_of_the_repository_leave_out_is_red(branch: Project, words: tuple[str, ...]) -> None:
    option = "-m 'not b'" if words[:1] == ("-k",) else "-k 'not exposed'"
    branch.gate(GATE.replace("id: exposed,", "id: exposed, marks: [b],"), FILE)
    branch.file(*ini(f"addopts = {option}\nmarkers =\n  b: a mark"))
    why = "deselected by addopts in the ini file"
    assert (FILE, "exposed", "repository", why) in left_out(branch, REF, *words, code=0)
    assert f"  {FILE}: 1 assertion, {why}" in branch.pytest(RUN, REF, FAIL, *words, code=1)


@pytest.mark.parametrize("addopts", ["", "-m 'not slow'"])
@pytest.mark.parametrize("words", [("-k", "not exposed"), ("-m", "not b"), ("--deselect", f"{FILE}::exposed")])
def test_what_a_person_types_is_not(branch: Project, words: tuple[str, ...], addopts: str) -> None:
    branch.gate(GATE.replace("id: exposed,", "id: exposed, marks: [b],"), FILE)
    branch.file(*ini(f"addopts = {addopts}\nmarkers =\n  b: a mark\n  slow: another"))
    found = left_out(branch, REF, FAIL, *words, code=1)  # for the mark, which may loosen
    assert found == [(FILE, "exposed", "arguments", "deselected by the arguments")]
    commit(branch.root)
    git(branch.root, "switch", "-qC", "main")
    assert left_out(branch, REF, FAIL, *words, code=0) == found


def test_a_node_id_that_a_person_types_leaves_the_others_to_them(branch: Project) -> None:
    found = left_out(branch, REF, FAIL, f"{FILE}::overlap", code=0)
    assert found == [(FILE, "exposed", "arguments", "deselected by the arguments")]


@pytest.mark.parametrize("name", ["selection", "history", "reporting", "artifacts"])
def test_no_part_of_the_plugin_can_be_kept_out(branch: Project, name: str) -> None:
    branch.file(*ini(f"addopts = -p no:nsys-{name}"))
    more = ("--nsys-history=h.db", "--nsys-json=r.json", "--nsys-artifacts=kept")
    said = branch.pytest_in_a_process(RUN, REF, FAIL, *more, code=4)
    assert f"-p no:nsys-{name} disables a part of pytest-nsys: remove it, also from addopts" in said


def test_what_passed_the_last_time_may_be_left_out(branch: Project) -> None:
    branch.trace(exposed_us=600)
    cached = ("-p", "cacheprovider")
    branch.pytest(RUN, REF, FAIL, *cached, code=1)
    assert ITEM not in branch.pytest(RUN, REF, FAIL, "--lf", *cached, code=1)
    branch.file(*ini("addopts = --lf"))
    assert f"FAILED {ITEM}" in branch.pytest_in_a_process(RUN, REF, FAIL, code=1)


def test_workers_tell_the_same(branch: Project) -> None:
    pytest.importorskip("xdist")
    branch.file("perf/pyvenv.cfg", "")
    branch.gate(GATE, "other/gate.nsys.yaml")
    said = branch.pytest_in_a_process(RUN, REF, FAIL, "-n2", "-k", "not exposed", code=1)
    assert f"FAILED {ITEM} - " in said
    assert "1 failed, 2 passed" in said  # what is typed is not told there
    assert "other/gate.nsys.yaml" not in said.partition("FAILURES")[2].partition("= nsys gate")[0]
    (branch.root / "perf/pyvenv.cfg").unlink()
    branch.pytest_in_a_process(RUN, REF, FAIL, "-n2", "-k", "not exposed", code=0)


def test_assertions_that_vanish_while_they_are_collected(branch: Project) -> None:
    drops = "    report.result = [each for each in report.result if each.name != 'exposed']\n"
    hook = "def pytest_make_collect_report(collector):\n    report = yield\n"
    branch.file("conftest.py", f"import pytest\n@pytest.hookimpl(wrapper=True)\n{hook}{drops}    return report\n")
    why = "dropped by a conftest.py or a plugin"
    assert left_out(branch, REF, code=0) == [(FILE, "exposed", "repository", why)]
    assert f"FAILED {ITEM}" in branch.pytest(RUN, REF, FAIL, code=1)


# -- outcomes

MARKS = {
    "items": "import pytest\ndef pytest_itemcollected(item): item.add_marker(pytest.mark.xfail)",
    "the file": "import pytest\ndef pytest_collectstart(collector): collector.add_marker(pytest.mark.xfail)",
    "at run time": "import pytest\ndef pytest_runtest_setup(item): item.add_marker(pytest.mark.xfail)",
}
RED = "- {id: red, assert: overlap >= 99%}\n- {id: known, assert: overlap >= 98%, xfail: known}"


@pytest.mark.parametrize("how", MARKS)
def test_marks_that_the_gate_file_does_not_set(branch: Project, how: str) -> None:
    branch.gate(RED, "new/red.nsys.yaml")
    branch.file("conftest.py", MARKS[how])
    found = report_of(branch, RUN, REF, "new", code=0)
    assert (found["verdict"], found["good"]) == ("failed", False)
    assert {name: (one["state"], one["good"]) for name, one in by_name(found).items()} == dict.fromkeys(
        ("red", "known"), ("failed", False)
    )
    why = "marked xfail by a conftest.py or a plugin"
    assert [(one["name"], one["by"], one["why"]) for one in found["left_out"]] == [
        ("known", "repository", why),
        ("red", "repository", why),
    ]
    assert f"nsys: left out: new/red.nsys.yaml: 2 assertions, {why}" in branch.pytest(RUN, REF, FAIL, "new", code=1)


def test_marks_of_the_gate_file_and_others_are_its_own(branch: Project) -> None:
    branch.gate("- {id: known, assert: overlap >= 98%, xfail: known}", "new/red.nsys.yaml")
    branch.file("conftest.py", "def pytest_itemcollected(item): item.add_marker('perf')")
    branch.file(*ini("markers =\n  perf: a mark"))
    found = report_of(branch, RUN, REF, FAIL, "new", code=0)
    assert (found["left_out"], by_name(found)["known"]["state"]) == ([], "xfailed")


REWRITES = {
    "its report": "@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_makereport(item):\n"
    "    report = yield\n    report.outcome = 'passed'\n    return report",
    "late": "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_logreport(report):\n    report.outcome = 'passed'",
    "the call": "@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_call(item):\n"
    "    try:\n        yield\n    except Exception:\n        pass",
}


@pytest.mark.parametrize("how", REWRITES)
def test_outcomes_that_are_rewritten(branch: Project, how: str) -> None:
    branch.gate("- {id: red, assert: overlap >= 99%}", "new/red.nsys.yaml")
    branch.file("conftest.py", f"import pytest\n{REWRITES[how]}")
    found = report_of(branch, RUN, REF, "new", code=int(how == "late"))  # pytest has counted it by then
    assert (found["verdict"], found["good"], by_name(found)["red"]["good"]) == ("failed", False, False)
    why = "its verdict is failed, and a conftest.py or a plugin says passed"
    assert [(one["name"], one["by"], one["why"]) for one in found["left_out"]] == [("red", "repository", why)]
    assert f"nsys: left out: new/red.nsys.yaml: 1 assertion, {why}" in branch.pytest(RUN, REF, FAIL, "new", code=1)


# -- the ini file


@pytest.mark.parametrize("text", ["", "nsys_gate_changes = warn", "[other]"])
def test_whether_a_change_is_red_is_said_by_the_merge_base(project: Project, text: str) -> None:
    branch = on_a_branch(project, "nsys_gate_changes = fail\n")
    loosen(branch)
    branch.file(*ini(text))
    for words in ((), ("--nsys-gate-changes=warn",), ("-o", "nsys_gate_changes=warn")):
        assert f"FAILED {ITEM}" in branch.pytest(RUN, REF, *words, code=1)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pytest.toml", "[pytest]\nnsys_gate_changes = 'fail'\n"),
        ("pyproject.toml", "[tool.pytest.ini_options]\nnsys_gate_changes = 'fail'\n"),
        ("pyproject.toml", "[tool.pytest]\nnsys_gate_changes = 'fail'\n"),
        ("tox.ini", "[pytest]\nnsys_gate_changes = fail\n"),
        ("setup.cfg", "[tool:pytest]\nnsys_gate_changes = fail\n"),
    ],
)
def test_in_whichever_file_it_stands(branch: Project, file: str, text: str) -> None:
    """Also where the branch puts another one before it."""
    with on_main(branch):
        (branch.root / "pytest.ini").unlink()
        branch.file(file, text)
    loosen(branch)
    branch.file("perf/pytest.ini", "")
    assert f"FAILED perf/{ITEM}" in branch.pytest(RUN, REF, "perf", code=1)


def test_an_ini_file_of_the_merge_base_that_cannot_be_read_says_nothing(branch: Project) -> None:
    with on_main(branch):
        branch.file("pytest.ini", "no section\n")
        branch.file("pyproject.toml", "no toml")
    branch.file(*ini(""))
    (branch.root / "pyproject.toml").unlink()
    branch.pytest(RUN, REF, FAIL, code=0)


@pytest.mark.parametrize("text", ["nsys_baseline_ref = HEAD", "addopts = --nsys-baseline-ref=HEAD", ""])
def test_the_ref_is_the_one_of_the_merge_base(project: Project, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Where CI says which branch the pull request is for, also if its own ini file names no ref any more."""
    branch = on_a_branch(project, "nsys_gate_changes = fail\nnsys_baseline_ref = main\n")
    git(branch.root, "update-ref", "refs/remotes/origin/main", "main")
    loosen(branch)
    branch.file(*ini(text))
    commit(branch.root)
    branch.pytest(RUN, code=0)
    monkeypatch.setenv("GITHUB_BASE_REF", "main")
    refused = text.startswith("addopts")
    red = "addopts of the merge base lacks it" if refused else f"FAILED {ITEM}"
    assert red in branch.pytest(RUN, code=4 if refused else 1)
    branch.pytest(RUN, "-o", "nsys_baseline_ref=", code=0)
    monkeypatch.setenv("GITHUB_BASE_REF", "unknown")
    branch.pytest(RUN, code=0)


def test_what_is_typed_comes_before_the_ref_of_the_merge_base(project: Project) -> None:
    branch = on_a_branch(project, "nsys_baseline_ref = nowhere\n")
    assert "as of the merge base of main" in branch.pytest(RUN, REF, code=0)
    assert "cannot tell what this PR loosens" in branch.pytest(RUN, code=0)


@pytest.mark.parametrize("said", ["true", "On", "1"])
def test_that_a_missing_trace_is_red_is_said_by_the_merge_base(project: Project, said: str) -> None:
    project.gate("trace: gone.sqlite\nassertions:\n- overlap >= 60%", "new/gate.nsys.yaml")
    branch = on_a_branch(project, f"nsys_strict = {said}\n")
    branch.file(*ini("nsys_strict = false"))
    branch.pytest("new", code=0)
    for words in ((), ("-o", "nsys_strict=false")):
        assert "1 error" in branch.pytest(REF, *words, "new", code=1)


# -- what else a branch can write


@pytest.mark.parametrize(
    "conftest",
    [
        "def pytest_runtest_protocol(item): return True if item.name == 'gate changes' else None",
        "import pytest\n@pytest.hookimpl(trylast=True)\ndef pytest_collection_finish(session): session.items.pop(0)",
        "def pytest_runtest_setup(item): item.add_marker('xfail') if item.name == 'gate changes' else None",
    ],
)
def test_the_item_of_gate_changes_cannot_be_kept_from_its_verdict(branch: Project, conftest: str) -> None:
    loosen(branch)
    branch.file("conftest.py", conftest)
    branch.pytest(RUN, REF, FAIL, code=1)


@pytest.mark.parametrize(
    "addopts",
    [
        *("--collect-only", "--fixtures", "--fixtures-per-test", "--markers", "-VV"),
        *("--nsys-against=base.sqlite", "--nsys-update-baselines --nsys-reason=x", "-o addopts="),
    ],
)
def test_options_that_a_branch_adds_to_addopts_are_refused(project: Project, addopts: str) -> None:
    branch = on_a_branch(project, "nsys_gate_changes = fail\nnsys_baseline_ref = main\n")
    branch.trace("base.sqlite", exposed_us=150)
    branch.file(*ini(f"nsys_baseline_ref = main\naddopts = {addopts}"))
    word = addopts if addopts.startswith("-o") else addopts.split()[0]
    assert f"addopts in the ini file has {word}: addopts of the merge base lacks it" in branch.pytest(RUN, code=4)
    branch.pytest(RUN, *addopts.split(), "-o", "addopts=", code=0)
    commit(branch.root)
    git(branch.root, "branch", "-qf", "main")
    branch.pytest(RUN, code=0)


@pytest.mark.parametrize("addopts", ["--help", "-qh"])
def test_so_is_the_help(project: Project, addopts: str) -> None:
    branch = on_a_branch(project, "nsys_gate_changes = fail\n")
    branch.file(*ini(f"addopts = {addopts}"))
    assert f"addopts in the ini file has {addopts}: " in branch.pytest(RUN, REF, code=4)


@pytest.mark.parametrize("addopts", ["--color=no", "-p no:doctest", "--confcutdir=."])
def test_other_options_are_not(project: Project, addopts: str) -> None:
    branch = on_a_branch(project, "nsys_gate_changes = fail\naddopts = --nsys-trace run.sqlite\n")
    branch.file(*ini(f"addopts = --nsys-trace run.sqlite {addopts}"))
    branch.pytest(REF, code=0)


def test_options_that_a_branch_takes_from_addopts_are_refused(project: Project) -> None:
    """Also where they alone say what is red, and by which ref."""
    project.trace("good.sqlite")
    own = ("--nsys-gate-changes=fail", "--nsys-baseline-ref=main", "--nsys-trace run.sqlite")
    branch = on_a_branch(project, f"addopts = {' '.join(own)}\n")
    for word in own:
        left = " ".join(each for each in own if each != word)
        branch.file(*ini(f"addopts = {left}\nnsys_trace = good.sqlite"))
        assert f"has no {word}: addopts of the merge base has it" in branch.pytest(REF, "--color=no", code=4)
        branch.pytest(RUN, REF, "-o", "addopts=", code=0)
    branch.file(*ini(f"addopts = {' '.join(own).replace('run', 'good')}"))
    assert "has --nsys-trace good.sqlite: addopts of the merge base lacks it" in branch.pytest(code=4)


@pytest.mark.parametrize("own", [".pytest.ini", "tox.ini"])
def test_an_ini_file_that_addopts_name_is_not_the_one_asked(project: Project, own: str) -> None:
    """Whether the branch writes it, or the merge base had it beside the one that counts."""
    project.file("tox.ini", "[pytest]\n")
    branch = on_a_branch(project, "nsys_gate_changes = fail\n")
    loosen(branch)
    (branch.root / "pytest.ini").unlink()
    branch.file(own, f"[pytest]\naddopts = -c {own}\n")
    assert f"FAILED {ITEM}" in branch.pytest(RUN, REF, code=1)
    branch.pytest(RUN, REF, "-c", "tox.ini", code=0)  # typed


def test_what_the_ini_file_says_of_traces_and_baselines_is_told(project: Project) -> None:
    """Where nobody types it: a branch may name a trace, or baselines, of its own."""
    branch = on_a_branch(project, "nsys_trace =\n  run.sqlite\nnsys_baseline_dir = stored\n")
    branch.pytest(REF, FAIL, code=0)
    branch.trace("good.sqlite")
    branch.file(*ini("nsys_trace = good.sqlite"))
    said = branch.pytest(REF, FAIL, code=1)
    assert "this PR changes, and may loosen: pytest.ini nsys_trace run.sqlite → good.sqlite" in said
    assert "this PR changes, and may loosen: pytest.ini nsys_baseline_dir stored → none" in said
    branch.pytest(RUN, "--nsys-baseline-dir=stored", REF, FAIL, code=0)


OLD = pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest 8 takes no -o from addopts")


@pytest.mark.parametrize(
    "text", ["nsys_baseline_dir = other", pytest.param("addopts = -o nsys_baseline_dir=other", marks=OLD)]
)
def test_a_baseline_folder_that_only_the_branch_names_is_told(branch: Project, text: str) -> None:
    branch.file(*ini(text))
    said = branch.pytest(RUN, REF, FAIL, code=1)
    assert "this PR changes, and may loosen: pytest.ini nsys_baseline_dir none → other" in said
    branch.pytest(RUN, "--nsys-baseline-dir=other", REF, FAIL, code=0)
    assert "cannot tell what this PR loosens" in branch.pytest(RUN, "--nsys-baseline-ref=nowhere", code=0)


def test_an_ini_file_in_another_folder_names_other_files(project: Project) -> None:
    """The text is the same, and what it names is not; and where both name the same nothing is told."""
    text = "nsys_trace = run.sqlite\nnsys_baseline_dir = stored\n"
    branch = on_a_branch(project, text)
    branch.trace("perf/run.sqlite")
    branch.file("perf/pytest.ini", f"[pytest]\n{text}")
    said = branch.pytest(REF, FAIL, "perf", code=1)
    assert "perf/pytest.ini nsys_trace run.sqlite → perf/run.sqlite" in said
    assert "perf/pytest.ini nsys_baseline_dir stored → perf/stored" in said
    branch.file("perf/pytest.ini", f"[pytest]\n{text.replace('= ', '= ../')}")
    branch.pytest(REF, FAIL, "perf", code=0)
