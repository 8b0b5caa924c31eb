"""Does ``baseline diff`` show what is different in stored baselines, and ``prune`` drop what nothing reads: no more?"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.stored.baselines.store import prune, store_of
from tests.support.commands import run
from tests.support.gates import ACCEPTING, Project, built_once
from tests.support.git_project import commit, git, start

GATE = """
tolerance: {rel: 5%, abs: 20us}
assertions:
  - exposed_ns below baseline plus tolerance
  - overlap >= baseline - 1pp
"""
RUN = "--nsys-trace=run.sqlite"
SLOWER = {(1, "stage4_f"): 350}


@built_once
def committed(project: Project) -> Project:
    start(project)
    project.gate_with_trace(GATE)
    project.refresh(RUN)
    commit(project.root)
    return project


@pytest.fixture
def stored(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The baseline of a gate, committed on main."""
    monkeypatch.chdir(project.root)
    committed(project)
    (path,) = (project.root / "baselines").rglob("*.json")
    return path.relative_to(project.root)


def diff(*arguments: str, code: int = 0) -> Result:
    """The command in this process."""
    return run("baseline", "diff", *arguments, code=code)


def slower(project: Project) -> None:
    project.trace(exposed_us=SLOWER)
    project.refresh(RUN, "--nsys-reason=a slower link")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_nothing_changed(stored: Path) -> None:
    result = diff("main", "--exit-code")
    assert result.stdout == ""
    assert result.stderr.startswith("no baseline changed since ")
    assert result.stderr.endswith(" (merge base of main), in the work tree\n")
    assert json.loads(diff("main", "--format=json").stdout)["rows"] == []
    stored.write_text(stored.read_text().replace("\n", "\r\n"))
    assert "no baseline changed" in diff("main", "--exit-code").stderr


def test_rows_with_old_new_and_change(project: Project, stored: Path) -> None:
    slower(project)
    result = diff("main")
    head, _, *rows = result.stdout.splitlines()
    assert head.split() == ["file", "metric", "labels", "old", "new", "change", "measured"]
    assert [" ".join(row.split()) for row in rows] == [
        f"{stored} exposed_ns rank 1 stage stage4_f 200 us 350 us +75% median, range, contained",
        f"{stored} overlap rank 1 stage stage4_f 80% 65% −15 pp median, range, contained",
    ]
    now = git(project.root, "rev-parse", "HEAD")
    assert f"{stored}: 2 rows changed; reason a slower link, commit {now}\n" in result.stderr
    assert f"1 file changed since {now[:7]} (merge base of main), in the work tree\n" in result.stderr
    diff("main", "--exit-code", code=1)


def test_numbers_for_programs(project: Project, stored: Path) -> None:
    slower(project)
    found = json.loads(diff("main", "--format=json").stdout)
    assert [(row["metric"], row["old"], row["new"]) for row in found["rows"]] == [
        ("exposed_ns", 200_000, 350_000),
        ("overlap", 0.8, 0.65),
    ]
    commit_now = git(project.root, "rev-parse", "HEAD")
    assert (found["ref"], found["since"]) == ("main", commit_now)
    (file,) = found["files"]
    assert (file["file"], file["state"], file["reason"]) == (str(stored), "changed", "a slower link")
    rows = list(csv.DictReader(io.StringIO(diff("main", "--format=csv").stdout)))
    assert [(row["old"], row["new"]) for row in rows] == [("200000", "350000"), ("0.8", "0.65")]
    assert "| 200 us | 350 us |" in diff("main", "--format=markdown").stdout


def test_files_that_came_and_went(project: Project, stored: Path) -> None:
    stored.unlink()
    project.trace(ranks=1)
    project.refresh(RUN)
    (added,) = Path("baselines").rglob("*.json")
    result = diff("main")
    assert f"{stored}: deleted, 8 rows\n" in result.stderr
    assert f"{added}: added, 4 rows; reason a new normal" in result.stderr
    rows = json.loads(diff("main", "--format=json").stdout)["rows"]
    assert sorted((row["file"], row["change"]) for row in rows) == sorted(
        [(str(stored), "gone")] * 8 + [(str(added), "new")] * 4
    )


def test_a_folder_that_is_gone(stored: Path) -> None:
    shutil.rmtree("baselines")
    assert f"{stored}: deleted, 8 rows\n" in diff("main").stderr
    assert "there are no baselines here, and none at" in diff("main", "nowhere", code=2).stderr


def test_a_folder_below_and_one_that_is_typed_from_elsewhere(
    project: Project, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slower(project)
    for folder in ("baselines", "baselines/", "./baselines/gate", str(project.root / "baselines"), "."):
        assert "1 file changed" in diff("main", folder).stderr, folder
    (project.root / "perf").mkdir()
    monkeypatch.chdir(project.root / "perf")
    assert f"../{stored}: 2 rows changed" in diff("main", "../baselines").stderr


def test_what_the_branch_changed_and_not_what_main_did(project: Project, stored: Path) -> None:
    git(project.root, "switch", "-qc", "feature")
    git(project.root, "switch", "-q", "main")
    slower(project)
    commit(project.root)
    git(project.root, "switch", "-q", "feature")
    assert "no baseline changed since" in diff("main", "--exit-code").stderr
    git(project.root, "switch", "-q", "main")
    assert f"{stored}: 2 rows changed" in diff("feature").stderr


def edited(stored: Path, change: str) -> None:
    text = stored.read_text()
    old, new = {
        "calibrated": ("[200000]]", "[200000], [200000, 210000, 190000, 200000, 200000]]"),
        "a run more": ("[200000]]", "[200000, 200000]]"),
        "another origin": ('"reason": "a new normal"', '"reason": "another"'),
        "another key": ('"micro_batch": 1', '"micro_batch": 2'),
        "another direction": ('"better": "lower"', '"better": "higher"'),
    }[change]
    assert old in text
    stored.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("calibrated", "no row changed; noise measured again"),
        ("a run more", "no row changed; accepted runs 1 → 2"),
        ("another origin", "no row changed; provenance changed: reason"),
        ("another key", "no row changed; micro_batch 1 → 2"),
        ("another direction", "no row changed; direction, unit or dimensions changed"),
    ],
)
def test_what_changes_beside_the_values(stored: Path, change: str, words: str) -> None:
    edited(stored, change)
    assert f"{stored}: {words}" in diff("main", "--exit-code", code=1).stderr


def test_another_unit_is_another_series(stored: Path) -> None:
    text = stored.read_text()
    assert '"dimensions": ["rank", "stage"]' in text
    one, *rest = text.split('"dimensions": ["rank", "stage"]')
    stored.write_text('"dimensions": ["rank", "layer"]'.join([one, *rest]))
    rows = json.loads(diff("main", "--format=json").stdout)["rows"]
    assert [row["change"] for row in rows].count("gone") == 8
    assert {row["labels"].split()[2] for row in rows if row["change"] == "new"} == {"layer"}


@pytest.mark.parametrize("side", ["now", "then"])
def test_a_broken_file_is_one_line_and_hides_no_other(project: Project, stored: Path, side: str) -> None:
    good = stored.read_text()
    project.gate(GATE, "second.nsys.yaml")
    project.refresh(RUN, "second.nsys.yaml")
    stored.write_text("<<<<<<< ours\n")
    if side == "then":
        commit(project.root)
        stored.write_text(good)
    project.trace(exposed_us=SLOWER)
    project.refresh(RUN, "second.nsys.yaml")
    result = diff("main", code=2)
    assert result.stderr.count("error: ") == 1
    where = f"{stored} at " if side == "then" else f"{stored}: is not a baseline: line 1"
    assert f"error: {where}" in result.stderr
    assert "baselines/second/" in result.stdout


def test_what_is_written_in_a_baseline_does_not_reach_the_terminal(stored: Path) -> None:
    text = stored.read_text()
    stored.write_text(text.replace("a new normal", "evil \\u001b[31m").replace('"stage4_f"', '"\\u001b]0;x\\u0007"'))
    for form in ("table", "csv", "markdown", "json"):
        assert "\x1b" not in diff("main", f"--format={form}").output


@pytest.mark.usefixtures("stored")
def test_what_cannot_be_meant_is_one_line() -> None:
    assert diff("--", "--output=x", code=2).stderr.startswith("error: '--output=x' is not a ref")
    assert diff("main", "/", code=2).stderr.startswith("error: / is not in a git repository")


def test_a_folder_without_baselines_is_not_unchanged(project: Project, stored: Path) -> None:
    project.file("gates/nsys-gate-file.schema.json", "{}")
    commit(project.root)
    assert "gates: there are no baselines here, and none at " in diff("main", "gates", code=2).stderr
    assert "no baseline changed" in diff("main", str(stored)).stderr


TWO = """
assertions:
  - {id: exposed, assert: exposed_ns <= baseline + 50us}
  - {id: share, assert: overlap >= baseline - 1pp}
"""
ONE = """
assertions:
  - {id: exposed, assert: exposed_ns <= baseline + 50us}
"""


@pytest.fixture
def stale(project: Project) -> Path:
    """A baseline with rows of an assertion that is gone."""
    project.gate_with_trace(TWO, "perf/step.nsys.yaml")
    project.refresh(RUN)
    project.gate(ONE, "perf/step.nsys.yaml")
    (path,) = (project.root / "baselines").rglob("*.json")
    return path


def metrics(path: Path) -> list[str]:
    return [series["metric"] for series in json.loads(path.read_text())["series"]]


def test_a_series_that_nobody_reads_is_an_error_that_names_it_and_the_command(project: Project, stale: Path) -> None:
    cases = project.cases(RUN, code=1)
    (case,) = cases.values()
    assert case.state == "error"
    shown = stale.relative_to(project.root)
    assert f"{shown}: no assertion of perf/step.nsys.yaml reads overlap (window median, span range" in case.text
    assert "pytest-nsys baseline prune perf/step.nsys.yaml" in case.text


def test_a_gate_file_that_dropped_its_last_baseline_is_an_error_too(project: Project, stale: Path) -> None:
    """Constants need no baseline, but rows that are stored for nobody say that a gate was dropped."""
    project.gate("- overlap >= 10%\n- no syncs", "perf/step.nsys.yaml")
    cases = project.cases(RUN, code=1)
    assert {case.state for case in cases.values()} == {"error"}
    what = "reads exposed_ns (window median, span range, kernels contained) and 1 more"
    assert all(what in case.properties["nsys_message"] for case in cases.values())
    said = project.command("baseline", "prune", "perf/step.nsys.yaml", code=0)
    assert f"{stale.relative_to(project.root)}: was removed, as nothing of it is read" in said
    assert not stale.parent.exists()
    project.pytest(RUN, code=0)


def test_the_command_of_the_error_makes_it_green(project: Project, stale: Path) -> None:
    before = stale.read_bytes()
    said = project.command("baseline", "prune", "perf/step.nsys.yaml", "--dry-run", code=0)
    shown = stale.relative_to(project.root)
    assert f"{shown}: would drop overlap (window median, span range, kernels contained): 4 rows" in said
    assert stale.read_bytes() == before
    said = project.command("baseline", "prune", "perf/step.nsys.yaml", code=0)
    assert f"{shown}: dropped overlap (window median, span range, kernels contained): 4 rows" in said
    assert metrics(stale) == ["exposed_ns"]
    project.pytest(RUN, code=0)
    after = stale.read_bytes()
    assert "nothing to prune: every stored series is in use" in project.command("baseline", "prune", "perf", code=0)
    assert stale.read_bytes() == after


def test_a_refresh_prunes_by_itself(project: Project, stale: Path) -> None:
    said = project.refresh(RUN)
    assert "overlap rank 0 stage2_f: 80% → gone" in said
    assert metrics(stale) == ["exposed_ns"]


def test_every_key_of_the_gate_file_is_pruned(project: Project) -> None:
    project.gate(TWO)
    for gpu in ("NVIDIA B200", "NVIDIA H100"):
        project.trace(gpu=gpu)
        project.refresh(RUN)
    project.gate(ONE)
    project.command("baseline", "prune", "gate.nsys.yaml", code=0)
    assert [metrics(path) for path in (project.root / "baselines").rglob("*.json")] == [["exposed_ns"]] * 2


def test_a_limit_of_the_history_reads_no_baseline(project: Project, stale: Path) -> None:
    project.gate(ONE + "  - {id: share, assert: overlap >= last 3 runs - 1pp}\n", "perf/step.nsys.yaml")
    project.command("baseline", "prune", "perf/step.nsys.yaml", code=0)
    assert metrics(stale) == ["exposed_ns"]


def test_rows_measured_another_way_are_pruned_too(project: Project, stale: Path) -> None:
    project.gate("window: first" + TWO, "perf/step.nsys.yaml")
    said = project.command("baseline", "prune", "perf/step.nsys.yaml", "--dry-run", code=0)
    assert "would drop exposed_ns (window median" in said
    assert len(metrics(stale)) == 2


def test_the_convention_decides_what_an_assertion_reads(project: Project) -> None:
    """What the gate file leaves open, the convention says, without a trace."""
    head = "convention: {extends: pithtrain, kernels: launched}"
    project.gate_with_trace(head + ONE)
    project.refresh(RUN)
    assert "nothing to prune" in project.command("baseline", "prune", "gate.nsys.yaml", code=0)
    project.pytest(RUN, code=0)


def test_the_folder_is_that_of_the_gate_run(project: Project) -> None:
    project.file("pytest.ini", "[pytest]\nnsys_baseline_dir = stored\naddopts = -n 2 -m 'not nsys'\n")
    project.gate_with_trace(TWO)
    project.pytest_in_a_process(*ACCEPTING, RUN, "-m", "nsys", "-n", "0", code=0)
    project.gate(ONE)
    assert "stored/gate/" in project.command("baseline", "prune", "gate.nsys.yaml", "--dry-run", code=0)
    assert "nothing to prune" in project.command("baseline", "prune", "gate.nsys.yaml", "--baseline-dir=other", code=0)


def test_baselines_of_a_gate_file_that_is_gone(project: Project, stale: Path) -> None:
    project.gate(ONE, "perf/other.nsys.yaml")
    project.refresh(RUN, "perf/other.nsys.yaml")
    project.command("baseline", "prune", "perf/step.nsys.yaml", code=0)
    (project.root / "perf/other.nsys.yaml").unlink()
    before = project.baselines()
    said = project.command("baseline", "prune", "perf", code=0)
    assert "baselines/perf__other: its gate file perf/other.nsys.yaml is gone; --orphans removes its 1 baseline" in said
    said = project.command("baseline", "prune", "perf", "--orphans", "--dry-run", code=0)
    assert "would remove its 1 baseline" in said
    assert project.baselines() == before
    assert "removed its 1 baseline" in project.command("baseline", "prune", "perf", "--orphans", code=0)
    assert list((project.root / "baselines").rglob("*.json")) == [stale]


def test_a_folder_that_holds_something_else_is_no_orphan(project: Project, stale: Path) -> None:
    for name, text in {"notes/readme.txt": "mine", "broken/0.json": "{", "empty/0.json": "", "a.json": "{}"}.items():
        project.file(f"baselines/{name}", text)
    (project.root / "baselines" / "link").symlink_to(stale.parent)
    before = project.baselines()
    project.gate(TWO, "perf/step.nsys.yaml")
    assert "nothing to prune" in project.command("baseline", "prune", "perf", "--orphans", code=0)
    assert project.baselines() == before


BROKEN: dict[str, tuple[Callable[[str], str], str]] = {
    "no baseline": (lambda _: "{", "is not a baseline: line 1"),
    "a later format": (lambda text: text.replace('"format": 1', '"format": 3'), "is not a baseline: format 3 is not 1"),
    "another gate file's": (
        lambda text: text.replace("perf/step.nsys", "perf/else.nsys"),
        "is the baseline of another gate file, perf/else.nsys.yaml",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_file_that_cannot_be_read_is_left_and_the_others_are_pruned(project: Project, stale: Path, case: str) -> None:
    broken, why = BROKEN[case]
    other = stale.with_name("000000000000.json")
    other.write_text(broken(stale.read_text()))
    before = other.read_bytes()
    said = project.command("baseline", "prune", "perf/step.nsys.yaml", code=2)
    assert f"error: {other}: {why}" in said
    assert metrics(stale) == ["exposed_ns"]
    assert other.read_bytes() == before


def test_what_cannot_be_written_is_left_as_it_is(
    project: Project, stale: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = load_gate_file(project.root / "perf/step.nsys.yaml")
    before = project.contents()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    pruned, (error,) = prune(gate, store_of(gate.path, project.root / "baselines", project.root))
    assert str(error) == f"{stale}: cannot be written: No space left on device; nothing was changed"
    assert pruned == []
    assert project.contents() == before


def test_the_command_and_its_mistakes(project: Project) -> None:
    assert "no.nsys.yaml: there is no such file or folder" in project.command(
        "baseline", "prune", "no.nsys.yaml", code=2
    )
    project.gate("- overlp >= 60%")
    assert "unknown metric" in project.command("baseline", "prune", "gate.nsys.yaml", code=2)
    (project.root / "empty").mkdir()
    assert "no gate file to be read in empty" in project.command("baseline", "prune", "empty", code=2)


def test_a_configuration_that_there_is_not_lists_no_assertions(project: Project) -> None:
    project.gate_with_trace(GATE)
    said = project.command("baseline", "prune", f"{project.name}[a]", code=2)
    assert f"ERROR: {project.name} has no configuration 'a'" in said
    assert "::" not in said
