"""What a breakdown knows beside the length of its kernels: their places, gaps, calls, copies and the clock."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.analysis.budget.breakdown import break_down_window
from pytest_nsys.analysis.explain.breakdown_model import AT_END, Breakdown, BreakdownRow, RowActivity
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.model import KernelsMode, Span
from tests.support.measure import STEP, captures
from tests.support.one_process import OneProcess
from tests.support.samples.formats import Format, write_one
from tests.support.samples.gpu_state import sm_clock

GENERIC = replace(BUILT_IN_CONVENTIONS["generic"], anchor="step%")
NSYS_AND_TORCH = pytest.mark.parametrize("format", [Format.NSYS, Format.KINETO])


def broken(path: Path, *, stages: bool = False) -> Breakdown:
    """The step of the only rank, cut at its edges."""
    with captures(path, convention=STEP if stages else GENERIC) as found:
        (run,) = found.runs
        spec = found.make_spec("median", Span.RANGE, KernelsMode.CLIPPED)
        ((rank, windows),) = run.load_windows(spec).windows_by_rank.items()
        return break_down_window({rank: windows[0]}, rank)


def of(found: Breakdown, *what: RowActivity) -> dict[str, BreakdownRow]:
    return {part.name: part for part in found.rows if part.activity in what}


def put_step(gpu: Any) -> None:
    gpu.range("step", 0, 10_000)
    gpu.kernel("gemm", 1_000, 2_000, launch_ns=100, launch_length_ns=50)
    gpu.kernel("gemm", 2_000, 3_000, launch_ns=200, launch_length_ns=50)
    gpu.api("cudaStreamSynchronize", 1_500, 4_500)
    gpu.kernel("add", 5_000, 6_000, launch_ns=4_600, launch_length_ns=50)
    gpu.api("cudaDeviceSynchronize", 9_000, 12_000)


@NSYS_AND_TORCH
def test_a_gap_is_before_a_kernel_and_under_a_call(tmp_path: Path, format: Format) -> None:
    found = broken(write_one(tmp_path, format, put_step))
    idle = {(what, name): ns for (what, name), ns in found.time_ns.items() if what is not RowActivity.KERNEL}
    assert idle == {
        (RowActivity.IDLE, "gemm"): 900,
        (RowActivity.HOST, "gemm"): 100,
        (RowActivity.HOST, "add"): 1_600,
        (RowActivity.IDLE, "add"): 400,
        (RowActivity.IDLE, AT_END): 4_000,
    }
    calls = {name: (part.number, part.length_ns) for name, part in of(found, RowActivity.CALL).items()}
    assert calls == {"cudaStreamSynchronize": (1, 1_500), "cudaDeviceSynchronize": (1, 0)}
    assert found.unrecorded == []
    assert found.clock_mhz is None


@NSYS_AND_TORCH
def test_a_copy_is_told_from_a_memset_and_names_what_it_blocks(tmp_path: Path, format: Format) -> None:
    def put(gpu: Any) -> None:
        gpu.range("step", 0, 10_000)
        gpu.kernel("gemm", 1_000, 2_000, launch_ns=100, launch_length_ns=50)
        gpu.memcpy(2_000, 4_000, kind=1, pinned=True, launch_ns=200)
        gpu.memset(4_000, 4_500, launch_ns=300)
        gpu.memset(4_500, 4_600, launch_ns=400)
        gpu.kernel("add", 5_000, 6_000, launch_ns=500, launch_length_ns=50)
        gpu.memcpy(9_500, 10_500, kind=2, pinned=True, launch_ns=600)

    found = broken(write_one(tmp_path, format, put))
    transfers = of(found, RowActivity.COPY, RowActivity.MEMSET)
    assert {name: (p.activity, p.number, p.length_ns, p.ns_by_kernel) for name, p in transfers.items()} == {
        "copy from pinned to device": (RowActivity.COPY, 1, 2_000, {"add": 2_000}),
        "copy from device to pinned": (RowActivity.COPY, 1, 500, {}),
        "memset": (RowActivity.MEMSET, 2, 600, {"add": 600}),
    }


def test_a_place_is_the_stage_the_stream_and_how_many_ran_before(gpu: OneProcess) -> None:
    gpu.range("step", 0, 100_000)
    for at, name, stream in ((10, "a", 7), (20, "b", 7), (30, "a", 13), (40, "c", 7), (50, "b", 7)):
        stage = "stage2_f" if at < 45 else "stage2_b"
        gpu.range(stage, at * 1_000 - 6_000, at * 1_000 - 4_000)
        gpu.kernel(name, at * 1_000, at * 1_000 + 500, stream=stream, launch_ns=at * 1_000 - 5_000)
    parts = broken(gpu.trace.write(gpu.path), stages=True).rows
    assert [(*each[1:6], each.order) for each in parts if each.activity is RowActivity.KERNEL] == [
        ("b", "stage2_b", 0, 1, 500, 0),
        ("a", "stage2_f", 0, 1, 500, 0),
        ("b", "stage2_f", 0, 1, 500, 1),
        ("c", "stage2_f", 0, 1, 500, 2),
        ("a", "stage2_f", 1, 1, 500, 0),
    ]


def test_the_clock_is_the_median_of_the_window(gpu: OneProcess) -> None:
    gpu.trace.gpu("NVIDIA H100 80GB HBM3", process=gpu)
    gpu.range("step", 0, 10_000)
    gpu.kernel("gemm", 1_000, 2_000)
    sm_clock(gpu.trace, (100, 1_980_000_000), (5_000, 1_830_000_000), (9_000, 1_830_400_000), (20_000, 90_000_000))
    assert broken(gpu.trace.write(gpu.path)).clock_mhz == 1_830
