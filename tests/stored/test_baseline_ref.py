"""Are baselines read as they were at the merge base, and is what a branch does to them told?"""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from pytest_nsys.reports.changes import ChangedBaseline, change_lines, change_sentences
from pytest_nsys.stored.baselines.baseline_file import SeriesId
from pytest_nsys.stored.baselines.changes import RowChange, State
from tests.support.gates import Project, built_once
from tests.support.git_project import commit, git, on_main, start, watch_git
from tests.support.reports import checked

GATE = """
tolerance: {rel: 5%, abs: 20us}
assertions:
  - exposed_ns below baseline plus tolerance
  - no mixed comm streams
"""
BASELINED, CONSTANT = "exposed_ns below baseline plus tolerance", "no mixed comm streams"
SLOWER = {(1, "stage4_f"): 350}
REF = "--nsys-baseline-ref=main"
RUN = "--nsys-trace=run.sqlite"


@pytest.fixture
@built_once
def branch(project: Project) -> Project:
    """A repository with a gate and its baseline on main, a slower run, and a branch that is checked out."""
    start(project)
    project.gate(GATE, "perf/gate.nsys.yaml")
    project.file("pytest.ini", "[pytest]\n")
    project.trace()
    project.refresh(RUN)
    commit(project.root)
    git(project.root, "switch", "-qc", "feature")
    project.trace(exposed_us=SLOWER)
    return project


def base_of(project: Project) -> str:
    return git(project.root, "merge-base", "main", "HEAD")[:7]


def stored(project: Project) -> Path:
    (path,) = (project.root / "baselines").rglob("*.json")
    return path


def error_line(project: Project, *arguments: str, code: int = 1) -> str:
    """The one line of the assertion with a baseline, which is in error while the other one is judged as ever."""
    cases = project.cases(RUN, *arguments, code=code)
    assert cases[CONSTANT].state == "passed"
    assert cases[BASELINED].state == "error"
    assert cases[BASELINED].properties["nsys_outcome"] == "error"
    return cases[BASELINED].properties["nsys_message"]


def test_a_branch_is_not_judged_by_its_own_baseline(branch: Project) -> None:
    branch.refresh(RUN)
    commit(branch.root)
    branch.pytest("-v", RUN, code=0)
    said = branch.pytest("-v", RUN, REF, code=1)
    assert "1 of 4 rows above their limit" in said
    assert "as of the merge base of main" in said
    assert f"baseline {stored(branch).relative_to(branch.root)} at {base_of(branch)} (merge base of main)\n" in said


def test_what_a_branch_does_to_baselines_is_listed(branch: Project) -> None:
    branch.refresh(RUN, "--nsys-reason=it is only a little slower")
    path = stored(branch).relative_to(branch.root)
    report = branch.root / "report.json"
    said = branch.pytest(RUN, REF, f"--nsys-json={report}", code=1)
    since = f"{base_of(branch)} (merge base of main)"
    row = "exposed_ns rank 1 stage4_f: 200 us → 350 us (+75%)"
    why = "it is only a little slower"
    changed = f"{path}: 1 row changed; reason: {why}\n    {row}\n"
    assert f"baselines changed in this branch since {since}:\n  {changed}" in said
    found = checked(report)
    assert found["baseline_changes"] == [f"{path}: 1 row changed since {since} (reason: {why}): {row}"]
    (file,) = found["changed_baselines"]
    assert (file["file"], file["state"], file["reason"]) == (str(path), "changed", why)
    assert file["rows"] == [
        {
            "metric": "exposed_ns",
            "unit": "ns",
            "labels": {"rank": 1, "stage": "stage4_f"},
            "old": {"exact": 200_000, "text": "200 us"},
            "new": {"exact": 350_000, "text": "350 us"},
            "change": "+75%",
        }
    ]


def test_changed_rows_are_listed_worst_first(branch: Project) -> None:
    branch.trace(exposed_us={(0, "stage2_f"): 260, (0, "stage4_f"): 100, (1, "stage4_f"): 350})
    branch.refresh(RUN, "--nsys-reason=a|b")
    summary = branch.root / "summary.md"
    said = branch.pytest("-v", RUN, REF, f"--nsys-summary={summary}", code=1)
    changed = said.partition("baselines changed")[2]
    rows = [line for line in changed.splitlines() if line.startswith("  ") and "→" in line and "(" in line]
    assert [row.partition("(")[2] for row in rows] == ["+75%)", "+30%)", "−50%)"]
    shown = summary.read_text()
    table = [line for line in shown.splitlines() if line.startswith("| `exposed_ns` |")]
    assert table[0] == "| `exposed_ns` | `1` | `stage4_f` | 200 us | 350 us | +75% |"
    assert len(table) == 3
    assert " Reason: a\\|b." in shown


def test_of_many_rows_ten_are_shown_and_the_rest_counted() -> None:
    row = RowChange(SeriesId("busy_ns", 1, "median", "period", "launched"), "ns", {"rank": 0}, 1, 2)
    head = ChangedBaseline("b.json", State.CHANGED, "main", "16 rows changed")
    first, *listed, last = change_lines([head._replace(rows=[row] * 16)])
    assert (first, last) == ("b.json: 16 rows changed", "  … 6 more rows")
    assert listed == ["  busy_ns rank 0: 1 ns → 2 ns (+100%)"] * 10
    (sentence,) = change_sentences([head._replace(rows=[row] * 11)])
    assert sentence.endswith("1 ns → 2 ns (+100%); 1 more row")


def test_the_name_of_a_row_never_hides_its_values() -> None:
    """Kernels of templates have names of hundreds of characters."""
    sid = SeriesId("kernel_share", 1, "median", "range", "contained")
    row = RowChange(sid, "ratio", {"kernel": "void " + "at::native::" * 60 + "end"}, Fraction(1, 10), Fraction(2, 10))
    _, said = change_lines([ChangedBaseline("b.json", State.CHANGED, "main", "1 row changed", rows=[row])])
    assert said.endswith("end: 0.1 ratio → 0.2 ratio (+100%)")
    assert len(said) < 130


def test_a_branch_that_leaves_the_baselines_alone_says_so(branch: Project) -> None:
    branch.trace()
    said = branch.pytest(RUN, REF, code=0)
    assert f"baselines of {base_of(branch)} (merge base of main), all unchanged" in said
    assert "baselines changed" not in said


def test_a_deleted_baseline_is_still_found_at_the_ref(branch: Project) -> None:
    path = stored(branch).relative_to(branch.root)
    shutil.rmtree(branch.root / "baselines")
    said = branch.pytest(RUN, REF, code=1)
    assert "1 of 4 rows above their limit" in said
    assert f"  {path}: deleted, 4 rows" in said


def test_a_nearer_folder_of_the_branch_does_not_hide_the_baselines(branch: Project) -> None:
    shutil.copytree(branch.root / "baselines", branch.root / "perf" / "baselines")
    branch.pytest(RUN, REF, code=1)


def test_a_baseline_of_another_key_is_new_in_the_branch(branch: Project) -> None:
    branch.trace(ranks=4)
    branch.refresh(RUN)
    said = branch.pytest("-v", RUN, REF, code=1)
    assert f"at {base_of(branch)} (merge base of main) is from a different setup (" in said
    assert "has it in this branch, which counts once it is merged" in said
    assert "json: added, 8 rows" in said


def test_what_the_branch_is_the_first_to_measure_is_held_against_its_own_baseline_with_a_warning(
    branch: Project,
) -> None:
    """Else nobody could add a sentence: its branch would be red until it is merged."""
    branch.trace()
    new = "overlap >= baseline - 1pp"
    branch.gate(GATE + f"  - {new}\n", "perf/gate.nsys.yaml")
    assert "holds no overlap" in branch.pytest(RUN, REF, code=1)
    branch.refresh(RUN)
    said = " ".join(branch.pytest(RUN, REF, code=0).split())
    assert "this branch is the first to measure it: it is compared with the branch's own baseline" in said
    branch.trace(exposed_us=250)
    cases = branch.cases(RUN, REF, code=1)
    assert cases[new].properties["nsys_outcome"] == "failed"


def test_a_sentence_that_was_there_before_its_baseline_has_no_data_until_the_branch_is_merged(branch: Project) -> None:
    git(branch.root, "switch", "-q", "main")
    sentence = "overlap >= baseline - 1pp"
    branch.gate(GATE + f"  - {sentence}\n", "perf/gate.nsys.yaml")
    commit(branch.root)
    git(branch.root, "switch", "-qc", "another")
    branch.trace()
    branch.refresh(RUN)
    cases = branch.cases(RUN, REF, code=1)
    assert cases[BASELINED].state == "passed"
    message = cases[sentence].properties["nsys_message"]
    path = stored(branch).relative_to(branch.root)
    assert message == (
        f"{path} at {base_of(branch)} (merge base of main) holds no overlap: {path} has it in this branch, which "
        "counts once it is merged"
    )


def test_a_gate_file_without_any_baseline_at_the_ref(project: Project) -> None:
    start(project)
    project.gate(GATE)
    project.file("pytest.ini", "[pytest]\n")
    project.trace()
    commit(project.root)
    git(project.root, "switch", "-qc", "feature")
    said = project.pytest(RUN, REF, code=1)
    assert f"no baseline is stored in baselines/gate at {base_of(project)} (merge base of main)" in said
    assert "in this branch" not in said
    project.refresh(RUN)
    assert "has it in this branch, which counts once it is merged" in project.pytest(RUN, REF, code=1)


def test_a_gate_file_that_is_new_is_held_against_its_own_baseline_with_a_warning(branch: Project) -> None:
    branch.trace()
    branch.gate(GATE, "perf/new.nsys.yaml")
    branch.refresh(RUN, "perf/new.nsys.yaml")
    cases = branch.cases(RUN, REF, "perf/new.nsys.yaml", code=0)
    assert {case.state for case in cases.values()} == {"passed"}
    said = " ".join(branch.pytest(RUN, REF, "perf/new.nsys.yaml", code=0).split())
    assert f"this gate file is not at {base_of(branch)} (merge base of main) yet" in said
    assert "json: added, 4 rows" in said
    assert "is not at" not in branch.pytest(RUN, REF, "perf/gate.nsys.yaml", code=0)


def test_work_tree_and_index_stay_as_they_are(branch: Project) -> None:
    branch.refresh(RUN)
    git(branch.root, "add", "baselines")
    branch.file("baselines/note.txt", "not committed")
    before = [git(branch.root, "status", "--porcelain"), (branch.root / ".git" / "index").read_bytes()]
    content = stored(branch).read_bytes()
    branch.pytest(RUN, REF, code=1)
    assert [git(branch.root, "status", "--porcelain"), (branch.root / ".git" / "index").read_bytes()] == before
    assert stored(branch).read_bytes() == content


def test_many_assertions_start_few_gits(branch: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    branch.trace()
    lines = "".join(f"  - exposed_ns below baseline plus {n}us\n" for n in range(20, 60))
    for name in ("gate", "other", "third"):
        branch.gate(GATE + lines, f"perf/{name}.nsys.yaml")
    branch.refresh(RUN)
    commit(branch.root)
    git(branch.root, "switch", "-q", "main")
    git(branch.root, "merge", "-q", "feature")
    git(branch.root, "switch", "-qc", "next")
    log = watch_git(branch, monkeypatch)
    assert "126 passed" in branch.pytest(RUN, REF, code=0)
    started = log.read_text().splitlines()
    assert len(started) <= 5 + 1 + 1 + 1 + 1 + 3, started
    assert all("ls-tree" in s or "cat-file" in s or "rev-parse" in s or "merge-base" in s for s in started)


def test_the_ini_key_does_the_same_and_leaves_a_refresh_alone(branch: Project) -> None:
    branch.file("pytest.ini", "[pytest]\nnsys_baseline_ref = main\n")
    branch.refresh(RUN)
    assert "1 of 4 rows above their limit" in branch.pytest(RUN, code=1)
    branch.pytest(RUN, "-o", "nsys_baseline_ref=", code=0)
    branch.trace("same.sqlite", {(1, "stage4_f"): 351})
    branch.pytest(RUN, "--nsys-against=same.sqlite", code=0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nsys-baseline-ref="], "--nsys-baseline-ref=: is not a ref"),
        (["--nsys-baseline-ref=--help"], "--nsys-baseline-ref=--help: is not a ref"),
        ([REF, "--nsys-update-baselines", "--nsys-reason=why"], "none can be updated"),
        ([REF, "--nsys-against=run.sqlite"], "both say what the baseline is"),
    ],
)
def test_a_ref_that_cannot_be_meant(branch: Project, arguments: list[str], said: str) -> None:
    assert said in branch.pytest(RUN, *arguments, code=4)


def test_a_ref_that_is_unknown_is_an_error_of_what_is_held_against_it_alone(branch: Project) -> None:
    assert "has no commit 'origin/main': fetch it" in error_line(branch, "--nsys-baseline-ref=origin/main")


def test_a_broken_baseline_at_the_ref_is_an_error_that_says_where(branch: Project) -> None:
    with on_main(branch):
        good = stored(branch).read_text()
        stored(branch).write_text(good[:-20])
    stored(branch).write_text(good)
    said = error_line(branch, REF)
    shown = stored(branch).relative_to(branch.root)
    assert f"{shown} at {base_of(branch)} (merge base of main): is not a baseline: line " in said
    assert "cannot be compared: " in branch.pytest(RUN, REF, code=1)


def test_only_the_controller_lists_changes(branch: Project) -> None:
    pytest.importorskip("xdist")
    branch.refresh(RUN)
    said = branch.pytest_in_a_process(RUN, REF, "-n", "2", code=1)
    assert said.count("baselines changed in this branch since") == 1
    assert "200 us → 350 us" in said
    assert "1 failed, 1 passed" in said


def test_a_sentence_of_a_python_test_reads_the_same_baseline(branch: Project) -> None:
    branch.refresh(RUN)
    branch.file(
        "test_it.py",
        """
        def test_it(nsys_gate):
            nsys_gate("exposed_ns below baseline plus tolerance", gate_file="perf/gate.nsys.yaml")
        """,
    )
    branch.pytest(RUN, "test_it.py", code=0)
    assert "1 of 4 rows above their limit" in branch.pytest(RUN, REF, "test_it.py", code=1)


def test_the_advice_on_merging_comes_with_a_new_file_until_it_is_taken(project: Project) -> None:
    start(project)
    project.gate_with_trace(GATE, "perf/gate.nsys.yaml")
    folder = "--nsys-baseline-dir=perf/my baselines"
    said = project.refresh(RUN, folder)
    line = '"perf/my baselines/**/*.json" -merge'
    assert said.count(f"add to .gitattributes: {line}") == 1
    assert "-merge" not in project.refresh(RUN, folder)
    project.file(".gitattributes", f"{line}\n")
    shutil.rmtree(project.root / "perf" / "my baselines")
    assert "-merge" not in project.refresh(RUN, folder)


@pytest.mark.parametrize("otherwise", ["span: period", "kernels: clipped", "window: first"])
def test_a_branch_does_not_become_its_own_judge_by_measuring_otherwise(branch: Project, otherwise: str) -> None:
    branch.trace(exposed_us=400)
    text = (branch.root / "perf" / "gate.nsys.yaml").read_text().replace("version: 1\n", "")
    branch.gate(f"{otherwise}\n{text}", "perf/gate.nsys.yaml")
    branch.refresh(RUN, "perf")
    cases = branch.cases(RUN, REF, "perf", code=1)
    assert cases[BASELINED].properties["nsys_outcome"] == "incomparable"


def test_a_gate_file_of_constants_alone_needs_no_repository(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.root.parent))
    project.gate_with_trace("- overlap >= 10%\n- no mixed comm streams")
    cases = project.cases(RUN, REF, code=0)
    assert {case.state for case in cases.values()} == {"passed"}
