"""Kernel families in a gate: sentences, baselines, circumstances, families of the file."""

from pathlib import Path

import pytest

from pytest_nsys import judge, open_run
from tests.support.gates import Project, write_trace

GATE = """
workload: {{steps: {steps}}}
window: run
tolerance: {{rel: 5%, abs: 1us}}
assertions:
  - family_ns of gemm <= baseline + 5%
  - exposed_ns <= baseline
"""


def gate(steps: int = 5) -> str:
    return GATE.format(steps=steps)


@pytest.mark.parametrize(
    ("sentence", "outcome"),
    [
        ("gemm family_ns <= 1.6ms", "passed"),
        ("family_ns of gemm < 1.6ms", "failed"),
        ("max family_ns of nccl <= 2ms", "passed"),
        ("no triton family_ns", "passed"),
        ("no nccl family_ns", "failed"),
        ("sum family_ns <= 3.6ms", "passed"),
        ("total_kernel_ns < 3.6ms", "failed"),
        ("step_minus_kernel_ns >= 16.4ms", "passed"),
        ("{assert: sum over family of family_ns <= 3.6ms, where: {family: [nccl, gemm]}}", "passed"),
    ],
)
def test_sentences(tmp_path: Path, sentence: str, outcome: str) -> None:
    """Each rank runs two gemms of 800 us and two collectives of 1 ms in a step of 20 ms."""
    gate = tmp_path / "gate.nsys.yaml"
    gate.write_text(f"version: 1\nassertions:\n  - {sentence}\n")
    with open_run(write_trace(tmp_path / "run.sqlite")) as run:
        assert [verdict.outcome for verdict in judge(gate, run)] == [outcome]


def test_unknown_steps_are_no_data_and_stated_ones_are(project: Project) -> None:
    project.gated("window: run\nconvention: generic\nassertions:\n  - total_kernel_ns < 1s")
    assert "so the number of steps in it is unknown; set workload:" in project.pytest(
        "-v", "--nsys-trace=run.sqlite", code=1
    )
    project.gate("window: run\nconvention: generic\nworkload: {steps: 2}\nassertions:\n  - total_kernel_ns == 9ms")
    project.pytest("-v", "--nsys-trace=run.sqlite", code=0)


def test_a_family_that_vanishes_is_zero_and_no_lost_row(project: Project) -> None:
    project.accepted("tolerance: {abs: 1us}\nassertions:\n  - family_ns <= baseline + 1us", name="base.sqlite")
    project.trace(exposed_us=dict.fromkeys([(r, f"stage{s}_f") for r in (0, 1) for s in (2, 4)], 1000))
    (case,) = project.cases("--nsys-trace=run.sqlite", code=0).values()
    assert case.properties["nsys_outcome"] == "improved"


def test_steps_gpus_and_launcher_make_runs_incomparable(project: Project) -> None:
    project.accepted(gate(), name="base.sqlite")
    project.pytest("--nsys-trace=base.sqlite", code=0)
    project.gate(gate(steps=4))
    assert "(stated_steps: now 4, baseline 5)" in project.pytest("--nsys-trace=base.sqlite", code=1)
    project.gate(gate().replace("workload: {steps: 5}\n", ""))
    assert "(stated_steps: now no, baseline 5)" in project.pytest("--nsys-trace=base.sqlite", code=1)
    project.gate(gate())
    for rank in range(2):
        project.trace(
            f"each/{rank}.sqlite", ranks=1, label=f"rank={rank}; pp={rank}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
        )
    said = project.pytest("--nsys-trace=each", code=1)
    assert "(launcher: now 1-process-per-gpu, baseline 1-process-per-node)" in said


def test_families_of_the_gate_file_count(project: Project) -> None:
    project.gated(
        "convention: {extends: pithtrain, families: {mine: [ge?m, nothing], theirs: nccl*}}\n"
        "assertions:\n  - mine family_ns == 1.6ms\n  - theirs family_ns <= 2ms\n  - no other family_ns"
    )
    project.pytest("--nsys-trace=run.sqlite", code=0)


def test_the_command_that_a_failure_leads_to_divides_as_the_gate_does(project: Project) -> None:
    project.gated("workload: {steps: 2, step_time: 1ms}\nassertions:\n  - step_minus_kernel_ns >= 0ns")
    said = project.pytest("--nsys-trace=run.sqlite", code=1)
    words = next(line for line in said.splitlines() if "next:" in line).split("pytest-nsys ")[1].split()
    assert words[-4:] == ["--steps", "2", "--step-time", "1000000ns"]
    assert "step - total kernel  −800 us" in project.command(*words, code=0)
