"""Does ``baseline prune`` drop what nothing reads, and no more?"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.stored.baselines.store import find_store, prune_store
from tests.support.gates import ACCEPTING, Project

GATE = """
tolerance: {rel: 5%, abs: 20us}
assertions:
  - exposed_ns below baseline plus tolerance
  - overlap >= baseline - 1pp
"""
RUN = "--nsys-trace=run.sqlite"
SLOWER = {(1, "stage4_f"): 350}


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
    assert "overlap rank 0 stage2_f: 80% → gone" in project.refresh(RUN)
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
    assert f"error: {other}: {why}" in project.command("baseline", "prune", "perf/step.nsys.yaml", code=2)
    assert metrics(stale) == ["exposed_ns"]
    assert other.read_bytes() == before


def test_what_cannot_be_written_is_left_so(project: Project, stale: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = load_gate_file(project.root / "perf/step.nsys.yaml")
    before = project.contents()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    pruned, (error,) = prune_store(gate, find_store(gate.path, project.root / "baselines", project.root))
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
