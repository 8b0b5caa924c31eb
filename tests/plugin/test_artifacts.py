"""Does each failed assertion leave its window, under a name that keeps, and does nothing else leave anything?"""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.plugin.artifacts import build_file_name
from tests.support.chrome import Chrome, chrome, nanoseconds
from tests.support.commands import run
from tests.support.gates import Project, write_trace
from tests.support.reports import by_name, report_of

OPTIONS = ("--nsys-trace=run.sqlite", "--nsys-artifacts=windows")
RED = """
- id: red
  assert: overlap >= 90%
- exposed_ns < 10ms
"""


@pytest.fixture
def red(project: Project) -> Project:
    """A trace that fails the first of two assertions."""
    project.gated(RED)
    return project


def windows(project: Project, folder: str = "windows") -> dict[str, Chrome]:
    """The checked traces in the folder, by name."""
    return {path.name: chrome(path) for path in sorted((project.root / folder).glob("*"))}


def test_the_window_of_the_worst_rank(project: Project) -> None:
    project.gated(RED, {(1, "stage4_f"): 450})
    said = project.pytest(*OPTIONS, code=1)
    (name,) = windows(project)
    assert name == "gate__red.json.gz"
    shown = windows(project)[name]
    assert list(shown.processes.values()) == ["rank 1 (pp=1 dp=0 cp=0 ep=0)"]
    lengths = {e["args"]["stage"]: nanoseconds(e["dur"]) for e in shown.spans("exposed")}
    assert lengths == {"stage2_f": 200_000, "stage4_f": 450_000}
    assert "ui.perfetto.dev opens windows/gate__red.json.gz  # the window" in said
    assert said.count("nsys: wrote 1 window of failed assertions: windows/gate__red.json.gz") == 1


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("- overlap >= 80%", 0),
        ("- {id: a, assert: overlap >= 90%, severity: warn}", 0),
        ("- {id: a, assert: overlap >= 90%, xfail: known}", 0),
        ("- {id: a, assert: stage5 overlap >= 90%}", 1),
        ("- {id: a, assert: exposed_ns <= baseline}", 1),
    ],
)
def test_nothing_where_nothing_failed(project: Project, gate: str, code: int) -> None:
    project.gated(gate)
    assert "window of failed" not in project.pytest(*OPTIONS, code=code)
    assert not (project.root / "windows").exists()


def test_base_and_head_begin_together(project: Project) -> None:
    project.gated("- exposed_ns below baseline plus 5%", {(1, "stage4_f"): 300})
    project.trace("base.sqlite", every_ms=33)
    project.pytest(*OPTIONS, "--nsys-against=base.sqlite", code=1)
    (shown,) = windows(project).values()
    place = "(pp=1 dp=0 cp=0 ep=0)"
    assert list(shown.processes.values()) == [f"base rank 1 {place}", f"head rank 1 {place}"]
    assert len({nanoseconds(e["ts"]) for e in shown.lane("window")}) == 1
    lengths = [nanoseconds(e["dur"]) for e in shown.spans("exposed") if e["args"]["stage"] == "stage4_f"]
    assert lengths == [200_000, 300_000]


@pytest.mark.parametrize("kept", [True, False])
def test_of_a_stored_baseline_the_base_is_what_is_kept_beside_it(project: Project, kept: bool) -> None:
    project.gated("- exposed_ns below baseline plus 5%")
    project.refresh("--nsys-trace=run.sqlite", keeps_windows=kept)
    project.trace(exposed_us=300)
    project.pytest(*OPTIONS, code=1)
    (shown,) = windows(project).values()
    place = "rank 0 (pp=0 dp=0 cp=0 ep=0)"
    assert list(shown.processes.values()) == ([f"base {place}", f"head {place}"] if kept else [place])


def test_a_balance_is_of_all_ranks(project: Project) -> None:
    project.gated("- balance of exposed_ns across pp <= 1.1", {(0, "stage2_f"): 400})
    project.pytest(*OPTIONS, code=1)
    (shown,) = windows(project).values()
    assert len(shown.processes) == 2


def test_the_report_names_the_file(red: Project) -> None:
    found = by_name(report_of(red, *OPTIONS, code=1))
    assert {name: a["artifact"] for name, a in found.items()} == {
        "red": "windows/gate__red.json.gz",
        "exposed_ns <": "",
    }


def test_workers_write_what_one_process_writes(project: Project) -> None:
    project.gated(RED + "- overlap >= 95%\n- overlap >= 96%\n")
    project.pytest(*OPTIONS, code=1)
    alone = {path.name: path.read_bytes() for path in (project.root / "windows").iterdir()}
    said = project.pytest_in_a_process("--nsys-trace=run.sqlite", "--nsys-artifacts=others", "-n2", code=1)
    assert {path.name: path.read_bytes() for path in (project.root / "others").iterdir()} == alone
    assert len(alone) == 3
    assert said.count("nsys: wrote 3 windows of failed assertions: others/ (open in ui.perfetto.dev)") == 1


def test_the_key_of_the_ini_file(project: Project) -> None:
    project.file("pytest.ini", "[pytest]\nnsys_artifacts = kept/here\n")
    project.gated(RED, name="traces/run.sqlite")
    project.pytest("--nsys-trace=traces/run.sqlite", code=1)
    assert list(windows(project, "kept/here")) == ["gate__red.json.gz"]
    project.pytest("--nsys-trace=traces/run.sqlite", "--nsys-artifacts=wins", code=1)
    assert list(windows(project, "wins")) == ["gate__red.json.gz"]


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        (".", "--nsys-artifacts=.: it holds the traces"),
        ("gate.nsys.yaml", "gate.nsys.yaml is not a folder: give another one"),
        ("gate.nsys.yaml/below", "gate.nsys.yaml is not a folder: give another one"),
    ],
)
def test_a_folder_that_cannot_be_meant(red: Project, folder: str, why: str) -> None:
    before = red.files()
    assert why in red.pytest("--nsys-trace=run.sqlite", f"--nsys-artifacts={folder}", code=4)
    assert red.files() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_rights(red: Project) -> None:
    (red.root / "windows").mkdir(mode=0o500)
    assert "cannot be written: permission denied" in red.pytest(*OPTIONS, code=4)


def test_a_file_that_cannot_be_written_is_told_and_the_verdict_stays(red: Project) -> None:
    (red.root / "windows" / "gate__red.json.gz").mkdir(parents=True)
    said = red.pytest(*OPTIONS, code=1)
    assert "gate__red.json.gz: is a folder; name a file in it" in said
    assert "failed: 4 of 4 rows below their limit" in said


def test_a_trace_of_that_name_is_not_replaced(project: Project) -> None:
    project.gate("trace: windows/gate__red.sqlite\nassertions:\n" + RED)
    trace = write_trace(project.root / "windows" / "gate__red.sqlite")
    said = project.pytest("--nsys-artifacts=windows", code=1)
    assert "nsys: window not written: " in said
    assert "it holds the traces" in said
    assert list(trace.parent.iterdir()) == [trace]


def test_a_second_run_replaces_the_first(project: Project) -> None:
    project.gate(RED)
    for exposed_us in (300, 400):
        project.trace(exposed_us=exposed_us)
        project.pytest(*OPTIONS, code=1)
        (shown,) = windows(project).values()
        assert {nanoseconds(e["dur"]) for e in shown.spans("exposed")} == {exposed_us * 1_000}


# Comparisons


def test_a_comparison(project: Project) -> None:
    project.trace("base.sqlite")
    project.gated("- id: red\n  assert: exposed_ns below baseline plus 5%\n- overlap >= 60%", 300, name="head.sqlite")
    arguments = ["compare", "base.sqlite", "head.sqlite", "--gate=gate.nsys.yaml", "--artifacts=windows"]
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (1, "wrote windows/gate__red.json.gz: red\n")
    (shown,) = windows(project).values()
    assert [name.partition(" (")[0] for name in shown.processes.values()] == ["base rank 0", "head rank 0"]
    result = run(*arguments[:4], "--artifacts=.")
    assert (result.exit_code, result.output.startswith("error: --artifacts=.: it holds the traces")) == (2, True)


# Names


@pytest.mark.parametrize(
    ("gate", "assertion", "starts"),
    [
        ("perf/overlap.nsys.yaml", "stage3 overlap >= 60%", "perf-overlap__stage3-overlap-60-"),
        ("gate.nsys.yaml", "../../etc/passwd", "gate__etc-passwd-"),
        ("gate.nsys.yaml", "\x1b[31m\x00", "gate__31m-"),
        ("gate.nsys.yaml", "a__b", "gate__a-b-"),
        ("gate.nsys.yaml", "Red", "gate__Red-"),
        ("gate.nsys.yaml", "€", "gate__x-"),
        ("gate.nsys.yaml", "half \udc80", "gate__half-"),
        ("gate.nsys.yaml", "x" * 500, f"gate__{'x' * 60}-"),
    ],
)
def test_names_are_made_safe(gate: str, assertion: str, starts: str) -> None:
    name = build_file_name(gate, assertion)
    assert name.startswith(starts)
    assert len(name) == len(starts) + 8 + len(".json.gz")


PARTS = st.text(alphabet="aAbB_-. /é\u0130", min_size=1, max_size=6)


@given(st.lists(st.tuples(PARTS, PARTS), unique=True, min_size=2, max_size=6))
def test_names_are_unique_on_every_file_system(pairs: list[tuple[str, str]]) -> None:
    names = [build_file_name(gate, assertion) for gate, assertion in pairs]
    assert len({name.lower() for name in names}) == len(pairs)
    assert all(Path(name).name == name and name.isascii() and name.isprintable() for name in names)
