"""Is a regression red by the gate of the merge base, however a branch hides it, and is a good run green?"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_nsys.core.errors import BaselineError
from tests.cli.test_action import Runner
from tests.support.gates import Project, built_once
from tests.support.git_project import commit, git, on_main, start
from tests.support.merge_base import FILE, judge

GATE = """
quality: {same_as_baseline: 0}
assertions:
  - {id: exposed, assert: exposed_ns below baseline plus 10%}
  - {id: overlap, assert: overlap >= 60%}
"""
OTHER = "- overlap >= 1%"
ITEM = "nsys::gate of the merge base"
INI = "[pytest]\nmarkers =\n  b: a mark\n"
BAD, GOOD = "bad.sqlite", "good.sqlite"


@pytest.fixture
@built_once
def branch(project: Project) -> Project:
    """A repository with a gate file and its baseline on main, and a branch that is checked out."""
    start(project)
    project.gate(GATE, FILE)
    project.gate(OTHER, "perf/other.nsys.yaml")
    project.file("pytest.ini", INI)
    project.file("test_plain.py", "def test_plain(): pass\n")
    (project.root / "dangling").symlink_to("nowhere")
    (project.root / "absolute").symlink_to("/etc")
    project.trace("base.sqlite", 200)
    project.trace(GOOD, 201)
    project.trace(BAD, 500)
    project.refresh("--nsys-trace=base.sqlite", "perf")
    commit(project.root)
    git(project.root, "switch", "-qc", "feature")
    return project


Edit = Callable[[Project], object]


class Way(NamedTuple):
    """What a branch does, the paths that its workflow types, and what is set in the environment of pytest alone."""

    edit: Edit
    paths: tuple[str, ...] = ("perf",)
    environment: Mapping[str, str] = {}


def gate(old: str, new: str) -> Edit:
    """The gate file with another text."""
    assert old in GATE
    return lambda project: project.gate(GATE.replace(old, new), FILE)


def ini(text: str) -> Edit:
    """Another ini file."""
    return lambda project: project.file("pytest.ini", INI + text)


def conftest(text: str, folder: str = "") -> Edit:
    """A program of the branch that pytest loads."""
    return lambda project: project.file(f"{folder}conftest.py", text)


def loosened(project: Project) -> None:
    project.gate(GATE.replace("60%", "1%").replace("10%", "900%"), FILE)


def every_gate_goes(project: Project) -> None:
    shutil.rmtree(project.root / "perf")
    project.gate(OTHER, "other.nsys.yaml")


def renamed(project: Project) -> None:
    loosened(project)
    (project.root / FILE).rename(project.root / "perf/renamed.nsys.yaml")


def another_folder(project: Project) -> None:
    loosened(project)
    (project.root / "perf").rename(project.root / "speed")


def elsewhere(project: Project) -> None:
    """The baselines of the regressed run, in a folder of their own."""
    project.refresh(f"--nsys-trace={BAD}", "--nsys-baseline-dir=mine", "perf", code=1)
    project.gate(GATE.replace("60%", "1%"), FILE)
    project.file("pytest.ini", f"{INI}nsys_baseline_dir = mine\n")


def nearer_ini(project: Project) -> None:
    elsewhere(project)
    project.file("pytest.ini", INI)
    project.file("perf/pytest.ini", f"{INI}nsys_baseline_dir = ../mine\n")


def shadowed(project: Project) -> None:
    loosened(project)
    for name in ("numpy", "msgspec", "yaml", "json"):
        project.file(f"lib/{name}.py", "raise ImportError('a shadow')\n")
    project.file("lib/pytest_nsys/__init__.py", "raise ImportError('a shadow')\n")
    ini("pythonpath = lib\n")(project)


def exported_to_nobody(project: Project) -> None:
    loosened(project)
    project.file(".gitattributes", "* export-ignore\nperf/* filter=x -diff\n")


def linked(target: str) -> Edit:
    """A link in the place of the gate file."""

    def edit(project: Project) -> None:
        (project.root / FILE).unlink()
        (project.root / FILE).symlink_to(target)

    return edit


def installed(project: Project) -> None:
    """A plugin of pytest that finds nothing to judge, as a package beside others."""
    project.file("site/evil.py", "def pytest_collection_modifyitems(items):\n    items[:] = []\n")
    project.file("site/evil-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    project.file("site/evil-1.0.dist-info/entry_points.txt", "[pytest11]\nevil = evil\n")


DROPS = "def pytest_collection_modifyitems(items):\n    items[:] = [i for i in items if 'plain' in i.name]\n"
SKIPS = (
    "import pytest\ndef pytest_collection_modifyitems(items):\n"
    "    for i in items:\n        i.add_marker(pytest.mark.skip)\n"
)
REWRITES = """
import pytest
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    report.outcome = 'passed'
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    report.outcome = 'passed'
    return report
"""
SETS_STATUS = """
import pytest
@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    session.exitstatus = 0
"""
REPLACES = "def pytest_configure(config):\n    config.option.nsys_trace = ['base.sqlite']\n"
SETS_VARIABLES = f"""
import os
os.environ.update(
    PYTEST_ADDOPTS='-k nothing', PYTHONPATH='lib', PYTEST_XDIST_WORKER='gw0', GIT_CONFIG_GLOBAL='/nowhere',
    PYTEST_DISABLE_PLUGIN_AUTOLOAD='', GIT_DIR='/nowhere', PATH='/nowhere',
)
{REPLACES}"""

WAYS: dict[str, Way] = {
    "a limit": Way(gate("60%", "1%")),
    "every assertion": Way(lambda project: project.gate(OTHER, FILE)),
    "the gate file is gone": Way(lambda project: (project.root / FILE).unlink()),
    "all gate files are gone": Way(every_gate_goes, ("other.nsys.yaml",)),
    "another name": Way(renamed),
    "a tolerance": Way(gate("10%", "900%")),
    "severity": Way(gate("id: exposed", "severity: warn, id: exposed")),
    "xfail": Way(gate("id: exposed", "xfail: known, id: exposed")),
    "a waiver": Way(
        gate(
            "assertions:",
            "waivers: [{assertion: exposed, ceiling: 900us, reason: later, expires: 2999-01-01}]\nassertions:",
        )
    ),
    "addopts -m": Way(ini("addopts = -m 'not nsys'\n")),
    "addopts -k": Way(ini("addopts = -k plain\n")),
    "addopts --co": Way(ini("addopts = --co\n")),
    "testpaths": Way(ini("testpaths = test_plain.py\n"), ()),
    "norecursedirs": Way(ini("norecursedirs = perf\n"), ()),
    "collect_ignore_glob": Way(conftest("collect_ignore_glob = ['*.nsys.yaml']\n", "perf/")),
    "a conftest that drops": Way(conftest(DROPS)),
    "a conftest that skips": Way(conftest(SKIPS)),
    "a conftest that rewrites": Way(conftest(REWRITES)),
    "a conftest that sets the status": Way(conftest(SETS_STATUS)),
    "a conftest that replaces the trace": Way(conftest(REPLACES)),
    "a conftest that sets variables": Way(conftest(SETS_VARIABLES)),
    "quality and comparable_on": Way(
        gate("quality: {same_as_baseline: 0}", "quality: off\ncomparable_on: []\ntolerance: 90%")
    ),
    "another window": Way(gate("quality:", "window: first\nquality:")),
    "baselines elsewhere": Way(elsewhere),
    "no ini file": Way(lambda project: (project.root / "pytest.ini").unlink()),
    "a nearer ini file": Way(nearer_ini),
    "pythonpath": Way(shadowed),
    "export-ignore": Way(exported_to_nobody),
    "the others typed as files": Way(
        lambda project: (project.root / FILE).unlink(), ("perf/other.nsys.yaml", "test_plain.py")
    ),
    "a plugin that is installed": Way(installed, environment={"PYTHONPATH": "site"}),
    "a dangling link": Way(linked("nowhere")),
    "an absolute link": Way(linked("/etc/passwd")),
    "another folder": Way(another_folder, ("speed",)),
}


def hide(project: Project, way: Way) -> None:
    way.edit(project)
    commit(project.root)


@pytest.mark.parametrize("name", WAYS)
def test_the_judge(branch: Project, name: str) -> None:
    way = WAYS[name]
    hide(branch, way)
    bad, good = judge(branch, BAD, *way.paths), judge(branch, GOOD, *way.paths)
    assert (bad.is_red, bad.is_broken) == (True, False), bad
    assert bad.headline.startswith("2 failed, "), bad.headline
    assert (good.is_red, good.is_broken) == (False, False), [*good.render_lines()]
    assert any(gate.name == FILE and gate.passed == 2 for gate in good.judged_gates)


def plain(project: Project, way: Way, monkeypatch: pytest.MonkeyPatch, trace: str, *words: str) -> str:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # of this suite; what runs inside is no worker of it
    for variable, value in way.environment.items():
        monkeypatch.setenv(variable, str(project.root / value))
    typed = [*way.paths, f"--nsys-trace={trace}", "--nsys-baseline-ref=main", "-rA", *words]
    return project.pytest_in_a_process(*typed)


WITHOUT_AN_ITEM = {"a conftest that rewrites"}
"""Where a program of the branch calls the report of a red one that passed: what is left is the exit status."""

QUICK = ("the gate file is gone", "addopts -m", "pythonpath", "a plugin that is installed", *WITHOUT_AN_ITEM)
SLOW = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in WAYS]


@pytest.mark.parametrize("name", SLOW)
def test_plain_pytest(branch: Project, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    hide(branch, WAYS[name])
    said = plain(branch, WAYS[name], monkeypatch, BAD)
    assert branch.result.ret not in (0, 5), said
    assert _told("PASSED" if name in WITHOUT_AN_ITEM else "FAILED", said) == 1
    assert _told("PASSED", plain(branch, WAYS[name], monkeypatch, GOOD)) == 1


def _told(how: str, said: str) -> int:
    """How often the short summary has the item: its name begins where pytest found the root directory."""
    return len(re.findall(f"^{how} (?:perf/)?{ITEM}", said, re.MULTILINE))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in WITHOUT_AN_ITEM else pytest.mark.slow) for name in WAYS]
)
def test_under_xdist(branch: Project, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    hide(branch, WAYS[name])
    said = plain(branch, WAYS[name], monkeypatch, BAD, "-n", "2")
    assert branch.result.ret not in (0, 5), said
    assert _told("PASSED" if name in WITHOUT_AN_ITEM else "FAILED", said) == 1, said


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == QUICK[0] else pytest.mark.slow) for n in WAYS])
def test_the_action(branch: Project, name: str) -> None:
    way = WAYS[name]
    hide(branch, way)
    runner = Runner(branch)
    environment = {variable: str(branch.root / value) for variable, value in way.environment.items()}
    runner.environment = environment
    paths = "\n".join(path for path in way.paths if not path.endswith(".py")) or "."
    typed = {"gate_files": paths, "baseline_ref": "main", "python": sys.executable}
    assert runner.run(traces=BAD, **typed) == 1, runner.log
    assert "gate of the merge base: 2 failed" in runner.log


# -- ways that need a repository of their own


def test_a_trace_of_the_gate_file_that_is_another_one(branch: Project) -> None:
    git(branch.root, "switch", "-q", "main")
    branch.gate(f"trace: ../run.sqlite\n{GATE}", FILE)
    commit(branch.root)
    git(branch.root, "switch", "-qC", "feature")
    branch.gate(f"trace: ../old.sqlite\n{GATE}", FILE)
    commit(branch.root)
    branch.trace("old.sqlite", 201)
    branch.trace("run.sqlite", 500)
    found = judge(branch, "", FILE)
    assert found.is_red
    assert found.judged_gates[0].traces == ["run.sqlite"]
    branch.trace("run.sqlite", 202)
    assert not judge(branch, "", FILE).is_red


def test_a_submodule_that_moved(branch: Project, tmp_path: Path) -> None:
    inner = tmp_path / "gates"
    inner.mkdir()
    git(inner, "init", "-q", "-b", "main")
    (inner / "inner.nsys.yaml").write_text("version: 1\nassertions:\n- overlap >= 60%\n")
    commit(inner)
    git(branch.root, "switch", "-q", "main")
    git(branch.root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner, "perf/inner")
    commit(branch.root)
    git(branch.root, "switch", "-qC", "feature")
    checkout = branch.root / "perf/inner"
    (checkout / "inner.nsys.yaml").write_text("version: 1\nassertions:\n- overlap >= 1%\n")
    commit(checkout)
    commit(branch.root)
    strict = [gate for gate in judge(branch, BAD, "perf/inner").judged_gates if gate.name.endswith("inner.nsys.yaml")]
    assert [(gate.passed, gate.assertions) for gate in strict] == [(0, 1)]
    assert not judge(branch, GOOD, "perf/inner").is_red
    git(branch.root, "mv", "perf/inner", "elsewhere")
    commit(branch.root)
    found = judge(branch, BAD, "perf")
    assert [gate.name for gate in found.judged_gates if gate.passed == 0] == [FILE, "perf/inner/inner.nsys.yaml"]
    git(branch.root, "rm", "-qf", "elsewhere")
    shutil.rmtree(branch.root / ".git/modules/perf/inner")
    commit(branch.root)
    with pytest.raises(Exception, match=r"the submodule perf/inner of .* is not checked out"):
        judge(branch, BAD, "perf")


def another_repository(folder: Path) -> Path:
    """One that has no gate file, and a main of origin."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "nothing")
    git(folder, "update-ref", "refs/remotes/origin/main", "main")
    return folder


def test_a_folder_that_looks_like_a_repository(branch: Project, tmp_path: Path) -> None:
    """What any commit can hold: git takes it for a bare one, with the work tree that its config names."""
    git(branch.root, "update-ref", "refs/remotes/origin/main", "main")
    another = another_repository(tmp_path / "another")
    git(another, "config", "core.worktree", ".")
    shutil.copytree(another / ".git", branch.root / "perf", dirs_exist_ok=True)
    assert git(branch.root / "perf", "rev-parse", "origin/main") == git(another, "rev-parse", "main")
    loosened(branch)
    found = judge(branch, BAD, "perf", ref="origin/main")
    assert found.headline.startswith("2 failed"), found.headline
    with pytest.raises(BaselineError, match=r"is taken for a repository by git, and has no \.git"):
        judge(branch, f"../{BAD}", ref="origin/main", here=branch.root / "perf")


@pytest.mark.parametrize("path", ["perf", "perf/deeper"])
def test_a_link_to_another_repository(branch: Project, tmp_path: Path, path: str) -> None:
    git(branch.root, "update-ref", "refs/remotes/origin/main", "main")
    (another_repository(tmp_path / "another") / "deeper").mkdir()
    shutil.rmtree(branch.root / "perf")
    (branch.root / "perf").symlink_to(tmp_path / "another")
    commit(branch.root)
    with pytest.raises(BaselineError, match="and leads to another repository"):
        judge(branch, BAD, path, ref="origin/main")
    (branch.root / "perf").unlink()
    (branch.root / "perf").symlink_to(tmp_path)
    commit(branch.root)
    assert judge(branch, BAD, "perf", ref="origin/main").headline.startswith("2 failed")


def test_a_repository_made_inside(branch: Project) -> None:
    git(branch.root, "update-ref", "refs/remotes/origin/main", "main")
    perf = branch.root / "perf"
    shutil.rmtree(perf)
    another_repository(perf)
    with pytest.raises(BaselineError, match="and leads to another repository"):
        judge(branch, BAD, "perf", ref="origin/main")
    perf.rename(branch.root / "beside")
    git(branch.root, "checkout", "-q", "perf")
    assert judge(branch, BAD, "beside", ref="origin/main").headline.startswith("no gate file to judge by")


def test_a_link_that_leads_around_the_folder(branch: Project) -> None:
    shutil.rmtree(branch.root / "perf")
    (branch.root / "perf").symlink_to(".")
    branch.gate(OTHER, "other.nsys.yaml")
    found = judge(branch, BAD, "perf/other.nsys.yaml")
    assert [gate.name for gate in found.judged_gates] == ["perf/other.nsys.yaml"]


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("runs.db", {"nsys_history": "runs.db"}),
        ("runs.db-wal", {"nsys_history": "runs.db"}),
        ("kept", {"nsys_history": "kept/runs.db"}),
        ("main/rank1.sqlite", {"nsys_against": ["main"]}),
        ("main/rank1.sqlite", {"nsys_against": ["main/*.sqlite"]}),
        ("main.sqlite", {"nsys_against": ["main.nsys-rep"]}),
        ("values.json", {"nsys_against_measurements": ["values.json"]}),
    ],
)
def test_what_a_run_is_held_against_is_not_the_branch_s(branch: Project, file: str, words: dict[str, Any]) -> None:
    (branch.root / file).parent.mkdir(exist_ok=True)
    shutil.copy(branch.root / BAD, branch.root / file)
    git(branch.root, "add", "-f", file)
    commit(branch.root)
    found = judge(branch, BAD, "perf", **words)
    assert found.is_red
    assert f"is what a run is held against, and this branch changes {file}: " in found.reds[0]


def test_a_history_that_main_names(branch: Project) -> None:
    with on_main(branch):
        branch.file("pytest.ini", f"{INI}nsys_history = runs.db\n")
    assert not judge(branch, GOOD, "perf").is_red
    branch.file("runs.db", "of the branch")
    commit(branch.root)
    assert "and this branch changes runs.db: " in judge(branch, GOOD, "perf").reds[0]
    with on_main(branch):
        branch.file("runs.db", "")
    branch.file("runs.py", "beside it")
    commit(branch.root)
    assert not judge(branch, GOOD, "perf").is_broken


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_ref_that_anybody_can_push(branch: Project, kind: str) -> None:
    git(branch.root, "update-ref", "refs/remotes/origin/main", "main")
    loosened(branch)
    commit(branch.root)
    git(branch.root, kind, "origin/main")
    with pytest.raises(BaselineError, match=r"'origin/main' is the name of several refs in .* write the whole"):
        judge(branch, BAD, "perf", ref="origin/main")
    git(branch.root, "remote", "add", "origin", ".")
    assert judge(branch, BAD, "perf", ref="origin/main").headline.startswith("2 failed")
    git(branch.root, "update-ref", "-d", "refs/remotes/origin/main")
    with pytest.raises(BaselineError, match="has no commit 'origin/main': fetch it: git fetch origin main"):
        judge(branch, BAD, "perf", ref="origin/main")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pytest.ini", "[pytest]\naddopts = --cov --of-a-plugin\nasyncio_mode = auto\nrequired_plugins = pytest-cov\n"),
        ("pytest.ini", "[pytest]\naddopts = --co -q\nfilterwarnings = error::no.such.Warning\n"),
        ("conftest.py", "import a_package_that_is_not_here\n"),
        ("pytest.ini", "[pytest]\nstrict = true\nunknown_key = 1\n"),
    ],
)
def test_what_main_sets_for_its_own_tests_stops_no_judge(branch: Project, file: str, text: str) -> None:
    git(branch.root, "switch", "-q", "main")
    branch.file(file, text)
    commit(branch.root)
    git(branch.root, "switch", "-qC", "feature")
    loosened(branch)
    commit(branch.root)
    assert judge(branch, BAD, "perf").headline.startswith("2 failed")
    assert not judge(branch, GOOD, "perf").is_red


def test_the_environment_of_the_judge_is_a_fixed_list(branch: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as a process can tell: what would leave out every test, and another package, does not reach it."""
    branch.file("lib/pytest_nsys/__init__.py", "raise ImportError('a shadow')\n")
    monkeypatch.setenv("PYTHONPATH", os.fspath(branch.root / "lib"))
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k nothing")
    monkeypatch.setenv("PYTEST_PLUGINS", "evil")
    monkeypatch.chdir(branch.root)
    branch.result = branch.pytester.run(
        sys.executable, "-I", "-m", "pytest_nsys", "baseline", "judge", "main", "perf", f"--trace={BAD}"
    )
    assert branch.result.ret == 1
    assert branch.result.stdout.str().startswith("gate of the merge base: 2 failed, 1 assertion passed of 2 gate files")
