"""``pytest-nsys budget``: a step with known truth in every format, its bars, and what it says where less is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_nsys.cli import main
from pytest_nsys.core.conventions import BUILT_IN
from tests.support.commands import answer, run
from tests.support.measure import rows
from tests.support.one_process import OneProcess
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.known_step import BLOCKS, COPIES, LATE, STALLS, US, known_step
from tests.support.samples.odd_rows import graph_trace


@pytest.fixture
def step(gpu: OneProcess) -> Path:
    """A trace of the known step."""
    known_step(gpu)
    return Path(gpu)


def test_a_step_with_known_truth(step: Path) -> None:
    done = run("budget", step, code=0)
    first, legend, empty, *_ = done.stdout.splitlines()
    assert first == "rank 0  " + "█" * 54 + "·" * 3 + "▓" * 3 + "  10 ms"
    assert legend.startswith("█ compute  · launch-starved  ▓ blocked  ▒ stalled ")
    assert empty == ""
    words = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for line in (
        "rank part time share ceiling",
        "0 window 10 ms 100% -",
        "0 compute 8.95 ms 89.5% -",
        "0 without compute 1.05 ms 10.5% +11.7%",
        "0 launch-starved 0.5 ms 5% +5.26%",
        "0 blocked by collective >= 0.3 ms 3% +3.09%",
        "0 blocked by collective <= 0.3 ms 3% +3.09%",
        "0 blocked by copy 0.2 ms 2% +2.04%",
        "0 dependency-stalled 0.05 ms 0.5% +0.503%",
        "0 communication alone 0.3 ms 3% -",
        "0 device idle 0.55 ms 5.5% -",
        "rank 0: stage4_b ncclDevKernel_SendRecv blocks grouped_gemm for 0.3 ms in 1 gap",
        "rank 0: copy blocks gelu for 0.2 ms in 1 gap",
        "rank 0: launch-starved before adam for 0.5 ms in 1 gap",
        "rank 0: dependency-stalled before layer_norm for 0.05 ms in 1 gap",
    ):
        assert line in words, line
    assert "note: window median, kernels contained" in done.stderr
    assert "it is a bound and no forecast" in done.stderr
    assert "lower bound" not in done.stderr
    assert "\x1b" not in done.stdout  # colour is for terminals


def test_programs_get_nanoseconds(step: Path) -> None:
    found = answer("budget", step)
    (row,) = found["rows"]
    assert row["rank"] == 0
    assert row["blocking_ns"] == {"collective": BLOCKS, "copy": COPIES, "memset": 0, "other_device": 0}
    assert (row["launch_starved_ns"], row["dependency_stalled_ns"]) == (LATE, STALLS)
    assert row["blocking_comm_ns"] == {"stage4_b": BLOCKS}
    assert (row["blocking_comm_max_ns"], row["at_least"]) == (BLOCKS, False)
    assert (row["waits"], row["waits_joined"]) == (1, 1)
    assert row["ceilings"]["launch-starved"] == 0.5 / 9.5
    assert row["producers"][0] == {
        "kind": "collective",
        "name": "ncclDevKernel_SendRecv",
        "stage": "stage4_b",
        "waiting": "grouped_gemm",
        "ns": BLOCKS,
        "gaps": 1,
    }
    assert found["windows"][0]["end"] == 10_000 * US
    assert any("no forecast" in note for note in found["notes"])
    head, *lines = run("budget", step, "--format=csv", code=0).stdout.splitlines()
    assert head == "rank,part,bound,time_ns,share,ceiling"
    assert f"0,blocked by collective,at most,{BLOCKS},0.03," in "\n".join(lines)
    told = run("budget", step, "--format=markdown", code=0).stdout
    assert told.startswith("```text\nrank 0  █")
    assert "| 0 | blocked by copy | 0.2 ms | 2% | +2.04% |" in told
    assert "- rank 0: copy blocks gelu for 0.2 ms in 1 gap" in told


def test_the_figures_are_those_of_the_metrics(step: Path) -> None:
    (row,) = answer("budget", step)["rows"]
    for metric in (
        "device_busy_ns",
        "compute_absent_ns",
        "launch_starved_ns",
        "dependency_stalled_ns",
        "blocking_comm_max_ns",
    ):
        assert rows(step, metric, convention=BUILT_IN["pithtrain"]) == {0: row[metric]}


def test_of_several_windows_each_rank_shows_the_lower_median(tmp_path: Path) -> None:
    gpu = OneProcess(tmp_path / "steps.sqlite")
    for step, late in enumerate((100, 100, 700, 300, 400, 500, 100, 100)):
        known_step(gpu, 20_000 * step * US, late * US)
    found = answer("budget", Path(gpu), "--window=steady")
    assert [row["launch_starved_ns"] for row in found["rows"]] == [400 * US]
    assert [window["index"] for window in found["windows"]] == [4]


def test_other_windows_and_ranks(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for pid in (100, 200):
        gpu = trace.process(pid=pid)
        gpu.range("step", 0, 1_000)
        gpu.kernel("gemm", 0, pid, launch_ns=-9_000)
        gpu.kernel("gemm", 900, 1_000, launch_ns=-5_000)
    path = trace.write(tmp_path / "two.sqlite")
    first, second = answer("budget", path, "--anchor=step")["rows"]
    assert (first["compute_busy_ns"], second["compute_busy_ns"]) == (200, 300)
    (only,) = answer("budget", path, "--rank=1", "--start=0", "--end=950", "--kernels=clipped")["rows"]
    assert (only["rank"], only["window_ns"], only["compute_busy_ns"]) == (1, 950, 250)
    assert "there is no rank 7" in run("budget", path, "--rank=7", "--anchor=step", code=2).output


def test_what_is_unknown_is_said(tmp_path: Path) -> None:
    trace = KinetoBuilder(rank=None)
    trace.range("ProfilerStep#1", 0, 100_000)
    trace.kernel("gemm", 0, 10_000, launch_ns=-20_000)
    trace.kernel("ncclDevKernel_SendRecv", 10_000, 80_000, stream=20, launch_ns=-15_000)
    trace.kernel("gemm", 80_000, 100_000, launch_ns=-10_000)
    done = run("budget", trace.write(tmp_path / "run.json.gz"), "--convention=kineto", "--kernels=clipped", code=0)
    words = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert words[0] == "rank 0 " + "█" * 18 + "▒" * 42 + " 100 us"
    assert "0 blocked by collective >= 0 us 0% +0%" in words
    assert "0 blocked by collective <= 70 us 70% +233%" in words
    assert "0 dependency-stalled <= 70 us 70% +233%" in words
    assert "blocking is a lower bound, and dependency-stalled an upper one: no stream wait is recorded" in done.stderr


def test_a_graph_that_was_traced_whole_has_no_budget(gpu: OneProcess) -> None:
    gpu.range("step", 0, 1_000)
    gpu.kernel("gemm", 0, 100)
    graph_trace(gpu, 200, 300)
    done = run("budget", Path(gpu), "--anchor=step", code=3)
    assert "rank 0 has no budget: a CUDA graph in the window was traced whole" in done.output
    assert "--cuda-graph-trace=node" in done.output


def test_a_window_that_takes_no_time_has_no_budget(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100)
    gpu.kernel("gemm", 50, 50, launch_ns=10)
    said = run("budget", Path(gpu), "--window=run", code=3).output
    assert "rank 0 has no budget: the window takes no time" in said


def test_a_rank_without_a_budget_leaves_the_others_theirs(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for pid in (100, 200):
        gpu = trace.process(pid=pid)
        gpu.range("step", 0, 1_000)
        gpu.kernel("gemm", 0, 400, launch_ns=-5_000)
    graph_trace(gpu, 500, 600)
    done = run("budget", trace.write(tmp_path / "two.sqlite"), "--anchor=step", code=0)
    assert "rank 0 " in done.stdout
    assert "rank 1 " not in done.stdout
    assert "note: rank 1 has no budget: a CUDA graph in the window was traced whole" in done.stderr


def test_a_terminal_without_blocks_gets_ascii(step: Path) -> None:
    done = CliRunner(charset="ascii").invoke(main, ["budget", str(step)])
    assert done.stdout.splitlines()[0] == "rank 0  " + "#" * 54 + "." * 3 + "X" * 3 + "  10 ms"
    assert done.stdout.isascii()
