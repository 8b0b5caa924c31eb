"""Communication that nobody named is no compute: every command doubts its windows, and no gate is green on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_nsys.core.conventions import BUILT_IN, Convention
from pytest_nsys.samples.builder import TraceBuilder
from tests.support.commands import run
from tests.support.gate_files import loaded
from tests.support.gates import Project
from tests.support.measure import notes, rows
from tests.support.reference_data import DEEPSEEK, DUALPIPE, DUALPIPE_RUNS, REAL, expected_figures

DISPATCH = "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)"
NCCL = "ncclDevKernel_SendRecv"
MAPPING = "{anchor: step%}"


def two_kernels(path: Path, second: str = DISPATCH) -> Path:
    """In each of 16 steps NCCL for 200 us beside another kernel of 200 us, and nothing else."""
    trace = TraceBuilder()
    process = trace.process()
    for step in range(16):
        at = 1_000_000 * step + 1_000
        process.range(f"step {step}", at, at + 900_000)
        process.range("decode", at, at + 400_000)
        process.range("encode", at + 400_000, at + 800_000)
        process.kernel(NCCL, at + 100_000, at + 300_000, stream=20, launch_ns=at + 1)
        name = "second" if second == DISPATCH else second
        process.kernel(name, at + 100_000, at + 300_000, stream=21, launch_ns=at + 2, demangled=second)
    return trace.write(path)


def convention_of(written: str) -> Convention:
    return loaded(f"version: 1\nconvention: {written}\nassertions: [wall_overlap >= 90%]").convention


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (MAPPING, 'write communication: ["*deep_ep::*"] in the convention'),
        ("{anchor: step%, communication: mine*}", 'write communication: ["mine*", "*deep_ep::*"] in the convention'),
        ("{extends: pithtrain, anchor: step%}", 'write communication: ["*deep_ep::*"] in the convention'),
    ],
)
def test_two_kernels_of_communication_hide_nothing(tmp_path: Path, written: str, line: str) -> None:
    """With no compute at all these were an overlap of 100 %. The line that is told makes them 0 %."""
    path = two_kernels(tmp_path / "run.sqlite")
    (said,) = doubts(path, convention_of(written))
    assert said.startswith("1 kernel of DeepEP counts as compute, 50.0 % of the kernel time")
    assert line in said
    key = line.removeprefix("write ").removesuffix(" in the convention")
    kept = written.replace(", communication: mine*", "").replace("}", f", {key}}}")
    for knowing in (convention_of(kept), convention_of("{extends: generic, anchor: step%}")):
        assert rows(path, "wall_overlap", convention=knowing) == {0: 0}
        assert doubts(path, knowing) == []


def test_the_bound(project: Project) -> None:
    """Accepted on purpose it is told all the same; what is read off the anchors stands on no kernel."""
    two_kernels(project.root / "run.sqlite")
    for bound, outcome in ((49.9, "error"), (50, "passed")):
        bounds = f"quality: {{unknown_communication: {bound}%}}\nconvention: {MAPPING}\n"
        project.gate(f"{bounds}assertions: [wall_overlap >= 90%, anchors == 16, p50 period_ns < 2ms]")
        cases = project.cases("--nsys-trace=run.sqlite").values()
        assert [case.properties["nsys_outcome"] for case in cases] == [outcome, "passed", "passed"]
        told = "error: trace quality: 1 kernel" if outcome == "error" else "warning: 1 kernel"
        assert f"{told} of DeepEP counts as compute" in "\n".join(project.result.outlines)


COMMANDS = {
    "streams": ("streams", "{run}"),
    "overlap": ("overlap", "{run}"),
    "rows": ("rows", "window_ns", "--trace={run}"),
    "kernels": ("kernels", "{run}"),
    "collectives": ("collectives", "{run}"),
    "cut": ("cut", "{run}", "--output={folder}/cut.json"),
    "compare": ("compare", "{run}", "{other}"),
    "pipeline": ("pipeline", "{run}", "--stage0=decode", "--stage1=encode"),
    "report": ("report", "{run}", "--config={folder}/job.toml", "--output=-"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_measures_warns(tmp_path: Path, command: str) -> None:
    (tmp_path / "own.yaml").write_text(MAPPING)
    (tmp_path / "job.toml").write_text("[training]\nlocal_batch_size = 1\nseq_len = 8\n")
    places = {
        "run": two_kernels(tmp_path / "run.sqlite"),
        "other": two_kernels(tmp_path / "other.sqlite", "gemm"),
        "folder": tmp_path,
    }
    words = [word.format(**places) for word in COMMANDS[command]]
    result = run(*words, f"--convention={tmp_path / 'own.yaml'}")
    said = result.output + result.stderr
    assert "kernel of DeepEP counts as compute" in said or "kernels of DeepEP count as compute" in said
    assert 'communication: ["*deep_ep::*"]' in said


@pytest.mark.reference
@pytest.mark.parametrize("name", DUALPIPE_RUNS)
def test_the_reference_traces_are_not_doubted(name: str) -> None:
    assert doubts(DUALPIPE / f"{name}.sqlite", BUILT_IN["pithtrain"]) == []


@pytest.mark.reference
@pytest.mark.parametrize("name", [name for name, figures in expected_figures().items() if "full" in figures])
def test_real_traces_are_not_doubted(name: str) -> None:
    """Under any convention: NCCL and RCCL are all that communicates there."""
    assert doubts(REAL / name, Convention("own"), window="run") == []


@pytest.mark.reference
def test_the_published_profile_is_doubted_where_its_library_is_not_counted() -> None:
    (said,) = doubts(DEEPSEEK, Convention("own"), window="run")
    assert said.startswith("36 kernels of DeepEP count as compute, 46.5 % of the kernel time (dpsk::ep::")
    assert doubts(DEEPSEEK, BUILT_IN["kineto"], window="run") == []


def doubts(trace: Path, convention: Convention, window: str = "median") -> list[str]:
    return [line for line in notes(trace, "busy_ns", convention=convention, window=window) if "as compute" in line]
