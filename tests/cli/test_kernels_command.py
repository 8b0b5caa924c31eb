"""``pytest-nsys kernels``: what it prints in every format, of several files, and what it says of mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_nsys.core.families import NVIDIA, zero_filled
from tests.support.commands import run
from tests.support.kernel_traces import steps_trace, written
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.jax import JaxBuilder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words: str | Path, code: int) -> str:
    """What a command prints, its notes after its answer; of JSON the answer alone."""
    done = run(*words, code=code)
    return done.stdout if "--format=json" in words else done.stdout + done.stderr


def table_of(said: str) -> list[list[str]]:
    """The rows of the table that is printed, without its head."""
    lines = said.splitlines()
    rule = next(i for i, line in enumerate(lines) if line.startswith("---"))
    return [line.split() for line in lines[rule + 1 : lines.index("", rule)]]


def test_command_prints_what_was_divided_by_what_and_the_families(folder: Path) -> None:
    path = steps_trace(folder / "run.sqlite", 0, 100, 200, ranks=2)
    said = command("kernels", path, "--steps=3", "--step-time=50ns", code=0)
    for line in (
        "trace files  1",
        "GPUs         2 (2 per file)",
        "steps        3 (stated)",
        "divisor      6 = 2 GPUs x 3 steps",
        "launcher     1-process-per-node",
        "looked at    window run, all kernels",
        "families     nvidia",
        "total kernel         60 ns per GPU and step",
        "step                 50 ns (stated)",
        "step - total kernel  −10 ns: negative, streams overlap",
    ):
        assert line in said.splitlines(), line
    found = table_of(said)
    assert found[0] == ["gemm", "60", "ns", "1", "100%"]
    assert found[1] == ["nccl", "0", "ns", "0", "0%"]
    assert found[-1] == ["total", "60", "ns", "1", "100%"]
    assert len(found) == len(zero_filled(NVIDIA)) + 1


def test_command_says_what_the_sign_of_the_rest_means(folder: Path) -> None:
    path = steps_trace(folder / "run.sqlite", 0, 100, 200)
    meanings = {
        "61ns": "1 ns: positive, a kernel blocks the main stream",
        "60ns": "0 ns: zero, the kernels fill the step",
        "59ns": "−1 ns: negative, streams overlap",
    }
    for time, meaning in meanings.items():
        assert meaning in command("kernels", path, "--steps=3", f"--step-time={time}", code=0)
    timed = command("kernels", path, "--anchor=step%", code=0)
    assert "step                 100 ns (median of 2 steady periods, profiled)" in timed
    assert "kernels outside of them are counted with them: --steps says otherwise" in timed


def test_command_shows_the_single_kernels_of_a_family(folder: Path) -> None:
    path = written(
        folder / "run.sqlite",
        [(0, 0, "gemm_a", 0, 30), (0, 0, "gemm_b", 50, 70), (0, 0, "gemm_a", 200, 10), (0, 0, "what", 300, 40)],
    )
    said = command("kernels", path, "--steps=2", "--family=gemm", code=0)
    assert table_of(said) == [
        ["gemm_b", "35", "ns", "0.5", "63.6%"],
        ["gemm_a", "20", "ns", "1", "36.4%"],
        ["all", "of", "gemm", "55", "ns", "1.5", "100%"],
    ]
    assert table_of(command("kernels", path, "--steps=2", "--family=other", code=0))[0][0] == "what"
    said = command("kernels", path, "--steps=2", "--family=nccl", code=3)
    assert "no kernel of the family nccl ran" in said
    assert "no family 'gemmm' (did you mean 'gemm'?)" in command("kernels", path, "--steps=2", "--family=gemmm", code=2)


def test_command_in_every_format(folder: Path) -> None:
    path = steps_trace(folder / "run.sqlite", 0, 100, 200)
    head, first, *_ = command("kernels", path, "--steps=2", "--format=csv", code=0).splitlines()
    assert (head, first) == ("family,family_ns,family_launches,share", "gemm,90,1.5,1.0")
    told = command("kernels", path, "--steps=2", "--format=markdown", code=0)
    assert "| gemm | 90 ns | 1.5 | 100% |" in told
    assert "- divisor: 2 = 1 GPU x 2 steps" in told
    found = json.loads(command("kernels", path, "--steps=2", "--step-time=100ns", "--format=json", code=0))
    assert {name: found[name] for name in ("gpus", "steps", "divisor", "total_kernel_ns", "step_minus_kernel_ns")} == {
        "gpus": 1,
        "steps": 2,
        "divisor": 2,
        "total_kernel_ns": 90,
        "step_minus_kernel_ns": 10,
    }
    assert found["rows"][0] == {"family": "gemm", "family_ns": 90, "family_launches": 1.5, "share": 1.0}


def test_command_takes_several_files_for_one_run_and_each_once(folder: Path) -> None:
    for number in (1, 2):
        written(folder / f"n{number}.sqlite", [(number, 0, "gemm", 0, 10 * number)])
    said = command("kernels", "n1.sqlite", "n2.sqlite", "--steps=1", code=0)
    assert "trace files  2" in said
    assert table_of(said)[0] == ["gemm", "15", "ns", "1", "100%"]
    assert "is given twice; give each file of the run once" in command(
        "kernels", "n1.sqlite", "n?.sqlite", "--steps=1", code=2
    )


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--convention=generic",), 3, "the window holds no anchor, so how many steps it holds is not known"),
        (("--steps=0",), 2, "'--steps'"),
        (("--steps=1", "--step-time=3"), 2, "--step-time is a time, as in 412ms, not '3'"),
        (("--steps=1", "--step-time=fast"), 2, "--step-time: 'fast' is not a number"),
        (("--steps=1", "--families=nvidai"), 2, "is no table of families and no file (did you mean 'nvidia'?)"),
        (("--steps=1", "--families=bad.yaml"), 2, "bad.yaml:1:1: 'other' cannot be defined as a family"),
        (("--steps=1", "--families=empty.yaml"), 2, "empty.yaml:1:1: "),
        (("--steps=1", "--window=steady"), 2, "--window steady is many windows"),
    ],
)
def test_mistakes_of_the_command(folder: Path, options: tuple[str, ...], code: int, said: str) -> None:
    written(folder / "run.sqlite", [(0, 0, "gemm", 0, 10)])
    Path("bad.yaml").write_text("other: x*\n")
    Path("empty.yaml").write_text("")
    assert said in command("kernels", "run.sqlite", *options, code=code)


def test_families_of_a_file_and_of_a_format(folder: Path) -> None:
    written(folder / "run.sqlite", [(0, 0, "gemm", 0, 10), (0, 0, "\x1b[31mred", 20, 10)])
    Path("mine.yaml").write_text("all of it: '*'\n")
    said = command("kernels", "run.sqlite", "--steps=1", "--families=mine.yaml", code=0)
    assert "families     its own" in said
    assert table_of(said)[0] == ["all", "of", "it", "20", "ns", "2", "100%"]
    assert "\x1b" not in command("kernels", "run.sqlite", "--steps=1", "--family=other", code=0)
    jax = JaxBuilder()
    jax.kernel("loop_reduce_fusion", 100, 400)
    jax.write(folder / "h.trace.json.gz")
    assert "families     maxtext" in command("kernels", "h.trace.json.gz", "--steps=1", code=0)


def test_a_cut_counts_the_files_that_it_is_of(folder: Path) -> None:
    (folder / "run").mkdir()
    for number in range(3):
        trace = TraceBuilder()
        process = trace.process(pid=100 + number)
        process.range("step 0", 0, 80)
        process.kernel("gemm", 10, 70, launch_ns=1)
        trace.write(folder / "run" / f"rank{number}.sqlite")
    options = ("--convention=generic", "--anchor=step %", "--window=median")
    command("cut", "run", *options, "-o", "cut.json", code=0)
    whole, cut = (command("kernels", trace, *options, code=0).splitlines()[:5] for trace in ("run", "cut.json"))
    assert whole == cut
    assert whole[:2] == ["trace files  3", "GPUs         3 (1 per file)"]
