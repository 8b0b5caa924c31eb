"""Is a run shown by the parts of its program: folded, the widest first, with times that sum to all?"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import run
from tests.support.samples.builder import TraceBuilder
from tests.support.scope_programs import WRITERS, launches

ALL_NS = sum(each.end_ns - each.start_ns for each in launches())


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    name, write = WRITERS["torch"]
    return write(tmp_path / name, None)


def shown(trace: Path, *options: str) -> str:
    return run("--view=program", "--convention=generic", "--window=run", *options, trace).output


def rows(trace: Path, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        run("--view=program", "--convention=generic", "--window=run", "--format=json", *options, trace).stdout
    )["rows"]
    return found


def test_the_tree_is_folded_and_the_widest_comes_first(torch: Path) -> None:
    table = [(row["tree"], row["scope"], row["scopes"], row["time_ns"]) for row in rows(torch)]
    assert table == [
        ("Model", "Model", 1, ALL_NS),
        ("  Block[*]", "Model/Block[*]", 3, ALL_NS),
        ("    FeedForward", "Model/Block[*]/FeedForward", 1, 180_000),
        ("    Attention", "Model/Block[*]/Attention", 1, 90_000),
        ("    RMSNorm", "Model/Block[*]/RMSNorm", 1, 18_000),
    ]
    first = rows(torch)[0]
    assert (first["launches"], first["exposed_ns"], first["kind"]) == (18, None, "module")
    assert (first["forward_ns"], first["backward_ns"], first["recompute_ns"]) == (ALL_NS // 3, 2 * ALL_NS // 3, None)


def test_a_row_is_a_sentence(torch: Path) -> None:
    output = shown(torch)
    assert "time of module Model/Block[*]/FeedForward <= baseline + 5%" in output
    assert "by module; --where kind=op|range shows others" in output
    assert "Block[*]" in output


def test_the_range_of_the_step_is_no_part_of_the_sentence(tmp_path: Path) -> None:
    gpu = (trace := TraceBuilder()).process()
    for step in range(3):
        start = 100_000 * step
        gpu.range(f"step {step}", start, start + 90_000)
        gpu.range("loss", start + 1_000, start + 5_000)
        gpu.kernel("gemm", start + 10_000, start + 20_000, launch_ns=start + 2_000)
    path = Path(trace.write(tmp_path / "trace.sqlite"))
    output = run("--view=program", "--anchor=step %", path).output
    assert "time of range loss <= baseline + 5%" in output
    assert "step 1" in output


def test_other_kinds_and_other_depths(torch: Path) -> None:
    assert [row["scope"] for row in rows(torch, "--depth=1")] == ["Model"]
    assert {row["kind"] for row in rows(torch, "--where", "kind=range")} == {"range"}
    ops = [row["scope"] for row in rows(torch, "--where", "kind=op", "--depth=2")]
    assert ops[0] == "autograd::engine::evaluate_function: MlpBackward0"
    assert "aten::attn/aten::mm" in ops


def test_what_belongs_to_no_part_is_told(tmp_path: Path) -> None:
    gpu = (trace := TraceBuilder()).process()
    gpu.range("loss", 1_000, 5_000)
    gpu.kernel("gemm", 10_000, 20_000, launch_ns=2_000)
    gpu.kernel("gemm", 20_000, 23_000, launch_ns=6_000)
    gpu.kernel("lost", 24_000, 25_000, launch=False)
    path = Path(trace.write(tmp_path / "trace.sqlite"))
    table = [(row["scope"], row["time_ns"], row["share"]) for row in rows(path)]
    assert [(scope, time) for scope, time, _ in table] == [
        ("loss", 10_000),
        ("(outside of any scope)", 3_000),
        ("(no launch in the file)", 1_000),
    ]
    assert table[0][2] == pytest.approx(10 / 15)


def test_nothing_to_show_is_one_line(tmp_path: Path) -> None:
    (trace := TraceBuilder()).process().kernel("gemm", 10_000, 20_000)
    path = Path(trace.write(tmp_path / "trace.sqlite"))
    assert "no kernel has a module, a stage, a range or an operator" in shown(path)


def test_depth_goes_with_no_other_view(torch: Path) -> None:
    found = run("--view=kernels", "--depth=2", torch)
    assert found.exit_code == 2
    assert "--depth goes with --view program, not with kernels" in found.output
