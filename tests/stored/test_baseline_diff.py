"""Does ``pytest-nsys baseline diff`` show what is different in the stored baselines, and nothing else?"""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.commands import run
from tests.support.gates import Project
from tests.support.git_project import commit, git, isolate, start

GATE = """
tolerance: {rel: 5%, abs: 20us}
assertions:
  - exposed_ns below baseline plus tolerance
  - overlap >= baseline - 1pp
"""
RUN = "--nsys-trace=run.sqlite"
SLOWER = {(1, "stage4_f"): 350}


@pytest.fixture
def stored(project: Project, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The baseline of a gate, committed on main."""
    isolate(monkeypatch)
    monkeypatch.chdir(project.root)
    start(project)
    project.gate(GATE)
    project.trace()
    project.refresh(RUN)
    commit(project.root)
    (path,) = (project.root / "baselines").rglob("*.json")
    return path.relative_to(project.root)


def diff(*arguments: str, code: int = 0) -> Result:
    """The command in this process: an error is one line and the right exit code."""
    result = run("baseline", "diff", *arguments)
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def slower(project: Project) -> None:
    project.trace(exposed_us=SLOWER)
    project.refresh(RUN, "--nsys-reason=a slower link")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_nothing_changed(stored: Path) -> None:
    result = diff("main", "--exit-code")
    assert result.stdout == ""
    assert result.stderr.startswith("no baseline changed since ")
    assert result.stderr.endswith(" (main), in the work tree\n")
    assert json.loads(diff("main", "--format=json").stdout)["rows"] == []
    stored.write_text(stored.read_text().replace("\n", "\r\n"))
    assert "no baseline changed" in diff("main", "--exit-code").stderr


def test_rows_with_old_new_and_change(project: Project, stored: Path) -> None:
    slower(project)
    result = diff("main")
    head, _, *rows = result.stdout.splitlines()
    assert head.split() == ["file", "metric", "labels", "old", "new", "change", "unit", "measured"]
    assert [" ".join(row.split()) for row in rows] == [
        f"{stored} exposed_ns rank 1 stage stage4_f 200 us 350 us +75 % ns median, range, contained",
        f"{stored} overlap rank 1 stage stage4_f 80.0% 65.0% -15.00 pp % median, range, contained",
    ]
    now = git(project.root, "rev-parse", "HEAD")
    assert f"{stored}: 2 rows changed; reason a slower link, commit {now}\n" in result.stderr
    assert f"1 file changed since {now[:7]} (main), in the work tree\n" in result.stderr
    diff("main", "--exit-code", code=1)


def test_numbers_for_programs(project: Project, stored: Path) -> None:
    slower(project)
    found = json.loads(diff("main", "--format=json").stdout)
    assert [(row["metric"], row["old"], row["new"]) for row in found["rows"]] == [
        ("exposed_ns", 200_000, 350_000),
        ("overlap", 0.8, 0.65),
    ]
    commit_now = git(project.root, "rev-parse", "HEAD")
    assert (found["ref"], found["since"], found["merge_base"]) == ("main", commit_now, False)
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


def test_the_ref_itself_or_the_merge_base(project: Project, stored: Path) -> None:
    git(project.root, "switch", "-qc", "feature")
    git(project.root, "switch", "-q", "main")
    slower(project)
    commit(project.root)
    git(project.root, "switch", "-q", "feature")
    assert f"{stored}: 2 rows changed" in diff("main").stderr
    result = diff("main", "--merge-base", "--exit-code")
    assert "no baseline changed since" in result.stderr
    assert "(merge base of main)" in result.stderr


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
        ("calibrated", "no row changed; noise measured anew"),
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
    where = f"{stored} at " if side == "then" else f"{stored}: is no baseline: line 1"
    assert f"error: {where}" in result.stderr
    assert "baselines/second/" in result.stdout


def test_what_is_written_in_a_baseline_does_not_reach_the_terminal(stored: Path) -> None:
    text = stored.read_text()
    stored.write_text(text.replace("a new normal", "evil \\u001b[31m").replace('"stage4_f"', '"\\u001b]0;x\\u0007"'))
    for form in ("table", "csv", "markdown", "json"):
        assert "\x1b" not in diff("main", f"--format={form}").output


@pytest.mark.usefixtures("stored")
def test_what_cannot_be_meant_is_one_line() -> None:
    assert diff("--", "--output=x", code=2).stderr.startswith("error: '--output=x' is no ref")
    assert diff("main", "/", code=2).stderr.startswith("error: / lies in no git repository")


def test_a_folder_without_baselines_is_not_unchanged(project: Project, stored: Path) -> None:
    project.file("gates/nsys-gate-file.schema.json", "{}")
    commit(project.root)
    assert "gates: there are no baselines here, and none at " in diff("main", "gates", code=2).stderr
    assert "no baseline changed" in diff("main", str(stored)).stderr
