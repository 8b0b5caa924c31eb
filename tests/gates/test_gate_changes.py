"""Is a branch that loosens its own gate told of it, and red where that is asked for?"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pytest_nsys.gates.gate_changes import GateChanges, gate_changes
from pytest_nsys.reports.changes import gate_change_lines, gate_terminal_lines
from pytest_nsys.tools.git import snapshot_of
from tests.support.gates import Project, built_once
from tests.support.git_project import commit, git, on_main, start
from tests.support.reports import checked

GATE = "- overlap >= 60%\n- no mixed comm streams"
OTHER = "- exposed_ns < 1 ms"
REF, FAIL, RUN = "--nsys-baseline-ref=main", "--nsys-gate-changes=fail", "--nsys-trace=run.sqlite"
ITEM = "gate changes"


@pytest.fixture
@built_once
def branch(project: Project) -> Project:
    """A repository with two gate files on main, a good trace, and a branch that is checked out."""
    start(project)
    project.gate(GATE, "perf/gate.nsys.yaml")
    project.gate(OTHER, "perf/other.nsys.yaml")
    project.file("pytest.ini", "[pytest]\n")
    project.trace()
    commit(project.root)
    git(project.root, "switch", "-qc", "feature")
    return project


def loosen(branch: Project) -> None:
    branch.gate("- overlap >= 30%\n- {assert: no mixed comm streams, severity: warn}", "perf/gate.nsys.yaml")


def changes(branch: Project) -> GateChanges:
    """What the branch asks less than main, without a session."""
    return GateChanges(gate_changes(snapshot_of(branch.root, "main"), lambda path: str(path.relative_to(branch.root))))


def loosened(branch: Project) -> list[str]:
    """A line for each change."""
    return list(gate_change_lines(changes(branch)))


LOOSENED = [
    "this PR loosens: perf/gate.nsys.yaml:3 limit >= 60% → >= 30% (overlap >= 30%)",
    "this PR loosens: perf/gate.nsys.yaml:4 severity failed fail → warn (no mixed comm streams)",
]


def told(said: str) -> list[str]:
    """What the summary says of the gate files, which comes before all else."""
    lines = said.partition(" nsys gate ")[2].splitlines()[1:]
    return [line for line in lines if line.startswith(("this PR", "cannot tell", "gate files"))]


def test_what_a_branch_loosens_is_told_first_everywhere(branch: Project) -> None:
    loosen(branch)
    reports = {name: branch.root / name for name in ("report.json", "summary.md", "page.html")}
    options = [f"--nsys-{k}={p}" for k, p in zip(("json", "summary", "html"), reports.values(), strict=True)]
    said = branch.pytest(RUN, REF, "--nsys-annotate", *options, code=0)
    assert said.partition(" nsys gate ")[2].splitlines()[1:3] == LOOSENED
    assert "3 passed" in said
    base = git(branch.root, "merge-base", "main", "HEAD")[:7]
    report = checked(reports["report.json"])
    assert (report["verdict"], report["good"]) == ("passed", True)
    assert report["gate_changes"]["changes"]
    assert (report["gate_changes"]["refused"], report["gate_changes"]["problem"]) == (False, "")
    assert report["gate_changes"]["changes"][0] == {
        "file": "perf/gate.nsys.yaml",
        "since": f"{base} (merge base of main)",
        "kind": "loosened",
        "key": "limit",
        "was": ">= 60%",
        "now": ">= 30%",
        "assertions": ["overlap >= 30%"],
        "lines": [3],
    }
    table = [line for line in reports["summary.md"].read_text().splitlines() if line.startswith(("###", "| "))]
    assert table[:4] == [
        "### This PR loosens",
        "| where | what | was | now | assertion |",
        "| --- | --- | --- | --- | --- |",
        "| `perf/gate.nsys.yaml:3` | limit | `>= 60%` | `>= 30%` | `overlap >= 30%` |",
    ]
    assert "<li>this PR loosens: perf/gate.nsys.yaml:3 limit &gt;= 60%" in reports["page.html"].read_text()
    first = next(line for line in said.splitlines() if line.startswith("::"))
    assert first == (
        "::warning file=perf/gate.nsys.yaml,line=3,title=nsys gate%3A this PR loosens"
        "::limit >= 60%25 → >= 30%25 (overlap >= 30%25)"
    )


def test_with_fail_an_item_of_its_own_is_red(branch: Project) -> None:
    loosen(branch)
    report = branch.root / "report.json"
    cases = branch.cases(RUN, REF, FAIL, "--nsys-annotate", f"--nsys-json={report}", code=1)
    assert {name: case.state for name, case in cases.items()} == {
        ITEM: "failure",
        "overlap >=": "passed",
        "no mixed comm streams": "passed",
        "exposed_ns <": "passed",
    }
    assert cases[ITEM].text.splitlines()[-2:] == [f"  {line}" for line in LOOSENED]
    found = checked(report)
    assert (found["verdict"], found["good"], found["gate_changes"]["refused"]) == ("failed", False, True)
    assert found["headline"] == "This PR loosens its gate: 2 changes"
    assert "::error file=perf/gate.nsys.yaml,line=3," in branch.pytest(RUN, REF, FAIL, "--nsys-annotate", code=1)


@pytest.mark.parametrize(
    "selected",
    [
        *(["perf/other.nsys.yaml"], ["-k", "exposed_ns"], ["-m", "not nsys"]),
        *(["-k", "nothing_of_this_name"], ["-x"], ["--deselect", "nsys::gate changes"]),
    ],
)
def test_nothing_that_selects_leaves_it_out(branch: Project, selected: list[str]) -> None:
    loosen(branch)
    said = branch.pytest(RUN, REF, FAIL, *selected, code=1)
    assert told(said) == LOOSENED
    assert f"FAILED nsys::{ITEM}" in said


def test_a_conftest_that_drops_items_does_not(branch: Project) -> None:
    loosen(branch)
    branch.file("conftest.py", "def pytest_collection_modifyitems(items):\n    items.clear()\n")
    assert told(branch.pytest(RUN, REF, FAIL, code=1)) == LOOSENED
    assert told(branch.pytest(RUN, REF, code=5)) == LOOSENED


def test_last_failed_and_workers(branch: Project) -> None:
    pytest.importorskip("xdist")
    branch.trace(exposed_us=1000)
    loosen(branch)
    cached = ("-p", "cacheprovider")
    assert "3 failed, 1 passed" in branch.pytest_in_a_process(RUN, REF, FAIL, "-n", "2", *cached, code=1)
    branch.trace()
    said = branch.pytest_in_a_process(RUN, REF, FAIL, "--lf", *cached, code=1)
    assert "1 failed, 2 passed" in said
    assert told(said) == LOOSENED


def test_what_is_tighter_new_or_form_is_green(branch: Project) -> None:
    text = "- no mixed comm streams\n- overlap >= 70%\n- launches >= 1"
    path = branch.gate(text, "perf/gate.nsys.yaml")
    path.write_text(f"# more\n{path.read_text()}")
    branch.gate(OTHER, "perf/new.nsys.yaml")
    said = branch.pytest(RUN, REF, FAIL, code=0)
    assert "6 passed" in said
    assert told(said) == ["gate files since the merge base: no gate was loosened"]


def test_what_nobody_can_order_is_told_as_such(branch: Project) -> None:
    branch.gate(f"window: first\nassertions:\n{GATE}", "perf/gate.nsys.yaml")
    said = branch.pytest(RUN, REF, FAIL, "--nsys-json=report.json", code=1)
    which = "overlap >= 60% and 1 more"
    assert told(said) == [f"this PR changes, and may loosen: perf/gate.nsys.yaml:4 window median → first ({which})"]
    assert checked(branch.root / "report.json")["headline"] == "This PR may loosen its gate: 1 change"


def test_nothing_judged_is_no_green(branch: Project) -> None:
    """The item alone would make a session green that judged nothing."""
    branch.pytest(RUN, REF, FAIL, "-k", "nothing_of_this_name", code=5)


def test_a_file_that_is_gone(branch: Project) -> None:
    (branch.root / "perf" / "other.nsys.yaml").unlink()
    gone = ["this PR loosens: perf/other.nsys.yaml gate file judged → gone"]
    assert loosened(branch) == gone
    shutil.rmtree(branch.root / "perf")
    assert len(told(branch.pytest(RUN, REF, code=5))) == 2
    assert len(told(branch.pytest(RUN, REF, FAIL, code=1))) == 2
    assert len(told(branch.pytest(RUN, REF, FAIL, "perf", code=4))) == 2


def test_a_file_that_moved_is_held_against_its_new_place(branch: Project) -> None:
    """Its baselines are the branch's own there, and pytest may not look there."""
    (branch.root / "attic").mkdir()
    old, new = branch.root / "perf" / "gate.nsys.yaml", branch.root / "attic" / "gate.nsys.yaml"
    old.rename(new)
    renamed = f"this PR loosens: {old.relative_to(branch.root)} gate file judged → renamed to attic/gate.nsys.yaml"
    assert loosened(branch) == [renamed]
    branch.gate("- overlap >= 60%\n- {assert: no mixed comm streams, xfail: flaky}", "attic/gate.nsys.yaml")
    lines = loosened(branch)
    assert lines == [renamed, "this PR loosens: perf/gate.nsys.yaml:4 xfail none → flaky (no mixed comm streams)"]


def test_a_suffix_that_pytest_does_not_collect(branch: Project) -> None:
    (branch.root / "perf" / "gate.nsys.yaml").rename(branch.root / "perf" / "gate.yaml")
    assert loosened(branch) == ["this PR loosens: perf/gate.nsys.yaml gate file judged → gone"]


def test_a_file_that_is_not_understood_any_more(branch: Project) -> None:
    branch.gate("- overlp >= 60%", "perf/gate.nsys.yaml")
    (line,) = loosened(branch)
    assert line.startswith(
        "this PR loosens: perf/gate.nsys.yaml gate file judged → not understood: perf/gate.nsys.yaml:3"
    )


def test_a_file_that_was_not_understood_is_told_and_no_crash(branch: Project) -> None:
    with on_main(branch):
        branch.gate("- overlp >= 60%", "perf/gate.nsys.yaml")
    assert loosened(branch) == []
    branch.gate(GATE, "perf/gate.nsys.yaml")
    (line,) = loosened(branch)
    assert line.startswith(
        "this PR changes, and may loosen: perf/gate.nsys.yaml gate file not understood by this version: "
        "perf/gate.nsys.yaml:3:3: unknown metric 'overlp'"
    )


@pytest.mark.parametrize("target", ["../shared/common.yaml", "other.nsys.yaml"])
def test_a_link_is_judged_by_what_it_leads_to(branch: Project, target: str) -> None:
    with on_main(branch):
        shared = branch.gate(OTHER, "shared/common.yaml")
        link = branch.root / "perf" / "link.nsys.yaml"
        link.symlink_to(target)
    assert loosened(branch) == []
    looser = shared if target.startswith("..") else branch.root / "perf" / "other.nsys.yaml"
    looser.write_text(looser.read_text().replace("1 ms", "2 ms"))
    changed = "this PR loosens: perf/link.nsys.yaml:3 limit < 1 ms → < 2 ms (exposed_ns < 2 ms)"
    assert changed in loosened(branch)


def test_a_link_in_place_of_a_file_and_one_that_leads_elsewhere(branch: Project) -> None:
    with on_main(branch):
        links = [branch.root / "perf" / f"{name}.nsys.yaml" for name in ("link", "out")]
        links[0].symlink_to("other.nsys.yaml")
        links[1].symlink_to("/nowhere.yaml")
    branch.gate("- exposed_ns < 3 ms", "looser.yaml")
    for path in (*links, branch.root / "perf" / "other.nsys.yaml"):
        path.unlink()
        path.symlink_to("../looser.yaml")
    changed = "limit < 1 ms → < 3 ms (exposed_ns < 3 ms)"
    assert loosened(branch) == [
        f"this PR loosens: perf/link.nsys.yaml:3 {changed}",
        f"this PR loosens: perf/other.nsys.yaml:3 {changed}",
        "this PR changes, and may loosen: perf/out.nsys.yaml gate file a link out of the repository → another one",
    ]


def test_a_sparse_checkout_deletes_nothing(branch: Project) -> None:
    git(branch.root, "sparse-checkout", "set", "--no-cone", "/*", "!/perf/other.nsys.yaml")
    assert not (branch.root / "perf" / "other.nsys.yaml").exists()
    assert loosened(branch) == []


def test_where_it_cannot_be_told(branch: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    loosen(branch)
    ref = "--nsys-baseline-ref=nowhere"
    (line,) = told(branch.pytest(RUN, ref, code=0))
    assert line.startswith("cannot tell what this PR loosens: ")
    assert line.endswith("has no commit 'nowhere': fetch it: git fetch origin nowhere")
    assert told(branch.pytest(RUN, ref, FAIL, code=1)) == [line]
    monkeypatch.setenv("PATH", str(branch.root))
    assert "git is not installed" in branch.pytest(RUN, REF, FAIL, code=1)


def test_a_file_that_cannot_be_read(branch: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "gate.nsys.yaml":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    (line,) = told(branch.pytest(RUN, REF, FAIL, code=1))
    assert line == "cannot tell what this PR loosens: perf/gate.nsys.yaml: cannot be read: Permission denied"


def test_names_that_are_no_text_and_no_command(branch: Project) -> None:
    with on_main(branch):
        for name in (b"\xff.nsys.yaml", b"##[error]\x1b[31m.nsys.yaml"):
            Path(branch.root, os.fsdecode(name)).write_text("version: 1\nassertions:\n- overlap >= 60%\n")
    for path in branch.root.glob("*.nsys.yaml"):
        path.unlink()
    report = branch.root / "report.json"
    assert told(branch.pytest(RUN, REF, "--nsys-annotate", f"--nsys-json={report}", code=0)) == [
        "this PR loosens: # #[error]�[31m.nsys.yaml gate file judged → gone",
        "this PR loosens: �.nsys.yaml gate file judged → gone",
    ]
    assert len(checked(report)["gate_changes"]["changes"]) == 2


def test_without_a_ref_nothing_changes(branch: Project) -> None:
    loosen(branch)
    report = branch.root / "report.json"
    said = branch.pytest(RUN, f"--nsys-json={report}", code=0)
    assert told(said) == []
    assert checked(report)["gate_changes"] is None
    assert "give --nsys-baseline-ref too" in branch.pytest(RUN, FAIL, code=4)


def test_beside_another_trace_the_ref_is_that_of_the_gate_files(branch: Project) -> None:
    branch.trace("base.sqlite", exposed_us=150)
    loosen(branch)
    against = "--nsys-against=base.sqlite"
    assert "or --nsys-gate-changes " in branch.pytest(RUN, REF, against, code=4)
    assert told(branch.pytest(RUN, REF, against, "--nsys-gate-changes=warn", code=0)) == LOOSENED
    assert told(branch.pytest(RUN, REF, against, FAIL, code=1)) == LOOSENED


def test_a_session_that_only_collects_or_refreshes_judges_nothing(branch: Project) -> None:
    branch.file("pytest.ini", "[pytest]\nnsys_gate_changes = fail\nnsys_baseline_ref = main\n")
    branch.gate("- exposed_ns below baseline plus 90%", "perf/gate.nsys.yaml")
    assert ITEM not in branch.pytest("--collect-only", "-q", code=0)
    branch.refresh(RUN, "perf/gate.nsys.yaml")
    branch.command("baseline", "prune", "perf/gate.nsys.yaml", "--dry-run", code=0)


def test_of_many_changes_the_first_are_shown_and_the_rest_counted(branch: Project) -> None:
    with on_main(branch):
        branch.gate("\n".join(f"- launches <= {n}" for n in range(100, 125)), "perf/gate.nsys.yaml")
    branch.gate(OTHER, "perf/gate.nsys.yaml")
    assert len(loosened(branch)) == 25
    lines = gate_terminal_lines(changes(branch), judged=True)
    assert lines[20:] == ["… and 5 more changes, in the reports"]


def test_the_stricter_of_ini_key_and_option_counts(branch: Project) -> None:
    loosen(branch)
    branch.file("pytest.ini", "[pytest]\nnsys_gate_changes = fail\n")
    assert "3 passed" in branch.pytest(RUN, code=0)
    assert told(branch.pytest(RUN, REF, code=1)) == LOOSENED
    assert told(branch.pytest(RUN, REF, "--nsys-gate-changes=warn", code=1)) == LOOSENED
    branch.trace("base.sqlite", exposed_us=150)
    assert told(branch.pytest(RUN, REF, "--nsys-against=base.sqlite", code=1)) == LOOSENED
    branch.file("pytest.ini", "[pytest]\nnsys_gate_changes = warn\n")
    assert told(branch.pytest(RUN, REF, "--nsys-gate-changes=fail", code=1)) == LOOSENED
    branch.file("pytest.ini", "[pytest]\nnsys_gate_changes = never\n")
    assert "nsys_gate_changes is warn or fail, not 'never'" in branch.pytest(RUN, REF, code=4)


def test_tests_that_are_no_gates_say_nothing_but_what_is_loosened(branch: Project) -> None:
    branch.file("test_plain.py", "def test_plain(): pass\n")
    assert "nsys gate" not in branch.pytest("test_plain.py", REF, code=0)
    assert "nsys gate" not in branch.pytest("test_plain.py", "--nsys-baseline-ref=nowhere", code=0)
    loosen(branch)
    assert told(branch.pytest("test_plain.py", REF, code=0)) == LOOSENED


def test_gate_files_of_the_whole_repository_from_a_folder_below(
    branch: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    loosen(branch)
    (branch.root / "sub").mkdir()
    branch.file("sub/test_plain.py", "def test_plain(): pass\n")
    monkeypatch.chdir(branch.root / "sub")
    (first, _) = told(branch.pytest(REF, FAIL, code=1))
    assert first == "this PR loosens: ../perf/gate.nsys.yaml:3 limit >= 60% → >= 30% (overlap >= 30%)"
