"""Can a gate be green where it looked at nothing? Each test is a way in which it once could, and now is red."""

import os
from pathlib import Path

import pytest

from tests.support.gates import Project
from tests.support.measure import notes, rows
from tests.support.samples.builder import TraceBuilder


def outcome(project: Project) -> str:
    """The verdict of the one assertion, and what it says."""
    (case,) = project.judged().values()
    return f"{case.properties['nsys_outcome']}\n{case.text}"


def labelled(path: Path, *places: tuple[int, int], step_ns: int = 10_000) -> Path:
    """Ranks of a mesh of pp=2 ep=2: 10 us of compute on the first pipeline stage, ``step_ns`` more on the second."""
    trace = TraceBuilder()
    for pp, ep in places:
        rank = 2 * pp + ep
        gpu = trace.process(pid=100 + rank, device=rank)
        gpu.range(f"rank={rank}; pp={pp}/2 dp=0/1 cp=0/1 ep={ep}/2; mbs=1 seq=2048", 1, 900_000)
        for begin in range(10_000, 5_000_000, 1_000_000):
            gpu.range("forward chunk 0 (phase0) backward chunk 0 (phase0)", begin, begin + 790_000)
            gpu.kernel("gemm", begin + 10_000, begin + 20_000 + step_ns * pp, device=rank)
    return trace.write(path)


def test_a_rank_is_not_in_balance_with_itself(project: Project) -> None:
    """The partner of rank 1 is in no trace: 1 over 1 would pass."""
    project.gate("quality: {missing_ranks: 1}\nassertions: [balance of compute_ns across pp <= 5]")
    labelled(project.root / "run.sqlite", (0, 0), (1, 0), (0, 1))
    said = outcome(project)
    assert said.startswith("no data")
    assert "1 of 2 places on pp have a row" in said
    labelled(project.root / "run.sqlite", (0, 0), (1, 0), (0, 1), (1, 1))
    assert outcome(project).startswith("passed")


@pytest.mark.parametrize("key", ["severity: warn", "xfail: known"])
def test_a_lost_row_is_not_covered_by_one_that_fails(project: Project, key: str) -> None:
    project.accepted("- exposed_ns <= baseline + 5%")
    project.gated(f"- {{assert: exposed_ns <= baseline + 5%, {key}}}", 900, stages=("stage2_f",))
    assert outcome(project).startswith("no data")


def test_allowed_no_data_does_not_cover_a_row_that_the_baseline_has(project: Project) -> None:
    project.accepted("- {assert: stage4_f exposed_ns <= baseline + 5%, allow_no_data: true}")
    project.trace(stages=("stage2_f",))
    assert outcome(project).startswith("no data")


def test_no_syncs_needs_a_record_of_calls(tmp_path: Path) -> None:
    gpu = TraceBuilder().process()
    gpu.range("step", 100, 900)
    gpu.kernel("gemm", 200, 210, launch=False)
    assert rows(gpu.trace.write(tmp_path / "trace.sqlite"), "syncs") == {}


def test_a_window_without_communication_is_told(tmp_path: Path) -> None:
    gpu = TraceBuilder().process()
    gpu.range("step", 100, 900)
    gpu.kernel("gemm", 200, 210)
    path = gpu.trace.write(tmp_path / "trace.sqlite")
    assert "no communication kernel in the window" in notes(path, "comm_streams")


def test_a_kernel_that_ends_before_it_starts_is_damage(project: Project) -> None:
    project.gate("- compute_ns < 1s")
    gpu = TraceBuilder().process()
    gpu.range("forward chunk 0 backward chunk 0", 100, 900)
    gpu.kernel("gemm", 300, 200)
    gpu.trace.write(project.root / "run.sqlite")
    assert outcome(project).startswith("error")


def test_a_baseline_that_cannot_be_read_is_not_one_that_is_missing(project: Project) -> None:
    project.accepted("- exposed_ns <= baseline + 5%")
    (path,) = (project.root / "baselines").rglob("*.json")
    path.rename(path.with_name("000000000000.json")).write_text("{}", encoding="utf-8")
    assert outcome(project).startswith("error")


@pytest.mark.parametrize("value", ["x" * 300, "fifo.sqlite"])
def test_a_path_that_cannot_be_looked_at(project: Project, value: str) -> None:
    """Neither an internal error nor a command that waits for ever."""
    os.mkfifo(project.root / "fifo.sqlite")
    project.gate("- overlap >= 1%")
    said = project.pytest(f"--nsys-trace={value}", code=4 if value.startswith("x") else 1)
    assert "cannot be read" in said or "is not a plain file" in said


def test_the_baseline_folder_is_one_however_it_is_typed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.gate("- exposed_ns <= baseline + 5%", "perf/gate.nsys.yaml")
    project.trace()
    project.refresh("--nsys-trace=run.sqlite", "--nsys-baseline-dir=kept", "perf")
    monkeypatch.chdir(project.root / "perf")
    project.pytest("--nsys-trace=../run.sqlite", "--nsys-baseline-dir=../kept", code=0)


@pytest.mark.parametrize(
    ("gate", "code", "told"),
    [
        (
            "- {assert: overlap >= 99.9%, window: first, kernels: clipped}",
            1,
            ["pytest-nsys run.sqlite --view overlap --rank 0 --window first --kernels clipped"],  # as the gate measured
        ),
        (
            "run: {gpu: A100, micro_batch: 7}\nassertions: [overlap >= 1%]",
            0,
            [
                "the gate file states gpu A100, the traces say NVIDIA H100 80GB HBM3, which counts",
                "the gate file states micro_batch 7, the traces say 1, which counts",
            ],
        ),
        (  # a name without stars is the whole name
            "convention: {extends: pithtrain, communication: deep_ep}\nassertions: [overlap >= 1%]",
            0,
            ["no kernel around the windows is like the communication pattern 'deep_ep'"],
        ),
    ],
    ids=["the command after a red", "what the gate file states against the trace", "a pattern that matches nothing"],
)
def test_what_would_mislead_is_told(project: Project, gate: str, code: int, told: list[str]) -> None:
    project.gated(gate)
    said = project.pytest("--nsys-trace=run.sqlite", code=code)
    assert [line for line in told if line not in said] == []


def test_a_micro_sign_is_a_microsecond(project: Project) -> None:
    project.gated("- exposed_ns < 201 \u00b5s\n- exposed_ns < 200 \u03bcs", 200)
    cases = project.judged()
    assert [case.properties["nsys_outcome"] for case in cases.values()] == ["passed", "failed"]


def test_home_is_where_a_shell_would_look(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project.root / "home"))
    project.file("home/empty", "")
    project.gated("- overlap >= 1%", name="home/run.sqlite")
    project.pytest("--nsys-trace=~/run.sqlite", code=0)


def test_the_fixture_warns_as_the_item_does(project: Project) -> None:
    project.accepted("- exposed_ns <= baseline + 5%", 400)
    project.trace(exposed_us=100)
    test = 'def test_it(nsys_gate):\n    nsys_gate("exposed_ns <= baseline + 5%", gate_file="gate.nsys.yaml")\n'
    project.file("test_it.py", test)
    said = project.pytest("test_it.py", "--nsys-trace=run.sqlite", code=0)
    assert "NsysWarning: exposed_ns <= baseline + 5%: 4 of 4 rows are better than the baseline" in said


def test_the_tolerance_of_a_balance_is_a_plain_number(project: Project) -> None:
    """50 us are nothing to a ratio; taken as 50 000 they would pass every balance."""
    tolerance = "tolerance: {rel: 5%, abs: [50us, 0.1]}\n"
    project.gate(f"{tolerance}assertions: [balance of compute_ns across pp below baseline plus tolerance]")
    labelled(project.root / "run.sqlite", (0, 0), (1, 0), (0, 1), (1, 1))
    project.refresh("--nsys-trace=run.sqlite")
    assert outcome(project).startswith("passed")
    labelled(project.root / "run.sqlite", (0, 0), (1, 0), (0, 1), (1, 1), step_ns=15_000)
    said = outcome(project)
    assert said.startswith("failed")
    assert "2.1 (baseline + max(5%, 0.1))" in said


@pytest.mark.parametrize(
    "ending", ["nsys.yml", "nsys.YAML", "Nsys.Yml", "nsys.yaml.bak", "nsys.yaml_off", "nsys.yaml.1"]
)
def test_a_gate_file_under_nearly_its_name_is_not_passed_over(project: Project, ending: str) -> None:
    project.gated("assertions: [compute_ns <= 1s]")
    project.gate("assertions: [compute_ns <= 1ns]", f"strict.{ending}")
    right = "end it in .nsys.yaml, as strict.nsys.yaml, or delete it"
    for words in ((), (f"strict.{ending}",)):
        said = project.pytest("--nsys-trace=run.sqlite", *words, code=2)
        assert f"strict.{ending}: pytest finds gate files by name: {right}" in said


@pytest.mark.parametrize(
    "name",
    [".gate.nsys.yaml.swp", "#gate.nsys.yaml#", "gate.nsys.yaml~", "gate.nsys.yaml.j2", "gate.nsys.yaml.license"],
)
def test_what_an_editor_keeps_and_a_template_are_no_gate_files(project: Project, name: str) -> None:
    project.gated("assertions: [compute_ns <= 1s]")
    project.file(name, "no gate")
    project.pytest("--nsys-trace=run.sqlite", code=0)


def test_brackets_in_the_name_of_a_gate_file_are_a_mistake_where_it_is_found(project: Project) -> None:
    """Nobody could name it, or one of its tests, to pytest, which the last failed need."""
    project.gate("assertions: [compute_ns <= 1s]", "perf/a[1].nsys.yaml")
    project.trace()
    said = project.pytest("--nsys-trace=run.sqlite", "perf", code=2)
    why = "pytest reads '[' in a path as the parameters of a test: rename it to a-1.nsys.yaml"
    assert f"perf/a[1].nsys.yaml: {why}" in said
