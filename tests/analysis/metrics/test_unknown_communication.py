"""What communicates and does not count so: copies of a collective or between GPUs, kernels that multiply as well."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.analysis.facts.communication import measure_unknown_communication
from pytest_nsys.analysis.facts.fact import MeasuredFact
from pytest_nsys.analysis.facts.quality_context import QualityContext
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention, CopyKind
from pytest_nsys.core.families import find_fused_communication
from tests.support.commands import run
from tests.support.gates import Project
from tests.support.measure import captures
from tests.support.reference_data import DATA
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.formats import Format, write_one
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.rocpd import RCCL, RocpdBuilder

PLAIN = replace(BUILT_IN_CONVENTIONS["generic"], anchor="step%")
GATE = "window: first\nconvention: {{extends: generic, anchor: step%}}\nassertions:\n  - {{id: a, assert: {}}}\n"
NCCL = "ncclDevKernel_AllReduce"
DEVICE, PEER = 8, 10
XPROF = {DEVICE: "MemcpyD2D", PEER: "MemcpyP2P"}

in_every_format = pytest.mark.parametrize("format", [*Format])


def found(path: Path, convention: Convention = PLAIN, window: str = "median") -> list[MeasuredFact]:
    with captures(path, convention=convention) as opened:
        ground = QualityContext(opened.runs[0], opened.make_spec(window, None, None), METRICS["exposed_ns"])
        return [*measure_unknown_communication(ground)]


def copied(gpu: Any, kind: int, start_ns: int, end_ns: int, launch_ns: int) -> None:
    if isinstance(gpu, JaxBuilder):
        details: Any = {"memcpy_details": "kind_src:device kind_dst:device size:4 dest:1 async:1"}
        gpu.kernel(XPROF[kind], start_ns, end_ns, stream=28, launch_ns=launch_ns, **details)
    else:
        gpu.memcpy(start_ns, end_ns, kind=kind, stream=28, launch_ns=launch_ns)


def write(
    folder: Path, format: Format, copies: Sequence[tuple[int, int, int]], *, call: str = "", collective: str = ""
) -> Path:
    """A step with a product of 2 us, and copies of 1 us each (kind, start, launch), a call, and a kernel of 1 us."""

    def put(gpu: Any) -> None:
        gpu.range("step", 0, 10_000)
        gpu.kernel("gemm", 1_000, 3_000, launch_ns=400)
        if collective:
            gpu.kernel(collective, 8_000, 9_000, stream=30, launch_ns=450)
        if call and isinstance(gpu, RocpdBuilder):
            gpu.api(call, 500, 700, category=RCCL)
        elif call:
            gpu.range(call, 500, 700)
        for kind, start_ns, launch_ns in copies:
            copied(gpu, kind, start_ns, start_ns + 1_000, launch_ns)

    folder.mkdir(exist_ok=True)
    return write_one(folder, format, put)


# -- copies


@in_every_format
def test_copies_that_a_collective_launched_are_told(tmp_path: Path, format: Format) -> None:
    path = write(tmp_path, format, [(DEVICE, 4_000, 600), (DEVICE, 6_000, 900)], call="ncclAllGather")
    (told,) = found(path)
    assert told.value == Fraction(1, 3)  # of 2 us of kernels and 1 us of a copy
    assert told.words == (
        "1 copy between GPUs is no communication under this convention, 33.3% of the time of kernels and copies "
        "(collective copy 1 us)"
    )
    assert told.reason == "what the copy engines move is in no exposed time and no overlap"
    assert told.remedy == "write copies: [collective] in the convention"
    assert found(path, replace(PLAIN, copies=(CopyKind.COLLECTIVE,))) == []


@pytest.mark.parametrize("call", ["nccl:_all_gather_base", "c10d::_allgather_base_", "record_param_comms"])
@pytest.mark.parametrize("format", [Format.NSYS, Format.KINETO])
def test_calls_of_pytorch_are_collectives(tmp_path: Path, format: Format, call: str) -> None:
    path = write(tmp_path, format, [(DEVICE, 4_000, 600)], call=call)
    assert [told.value for told in found(path)] == [Fraction(1, 3)]
    assert found(path, replace(PLAIN, copies=(CopyKind.COLLECTIVE,))) == []


@in_every_format
def test_copies_to_another_gpu_are_told_where_a_collective_runs(tmp_path: Path, format: Format) -> None:
    copies = [(PEER, 4_000, 600), (PEER, 6_000, 800)]
    (told,) = found(write(tmp_path / "a", format, copies, collective=NCCL))
    assert told.value == Fraction(2, 5)
    assert "2 copies between GPUs are no communication" in told.words
    assert "(peer copy 2 us)" in told.words
    assert told.remedy == "write copies: [peer] in the convention"
    assert found(write(tmp_path / "b", format, copies)) == []  # one process that moves tensors between its GPUs
    peer = replace(PLAIN, copies=(CopyKind.PEER,))
    assert found(write(tmp_path / "c", format, copies, collective=NCCL), peer) == []


def test_copies_to_another_gpu_are_told_where_several_processes_work(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for pid in (100, 200):
        gpu = trace.process(pid=pid)
        gpu.range("step", 0, 10_000)
        gpu.kernel("gemm", 1_000, 3_000, launch_ns=400)
        copied(gpu, PEER, 4_000, 5_000, 600)
    assert [told.value for told in found(trace.write(tmp_path / "run.sqlite"))] == [Fraction(1, 3)]


def test_both_kinds_are_one_line_and_one_key(tmp_path: Path) -> None:
    path = write(tmp_path, Format.NSYS, [(DEVICE, 4_000, 600), (PEER, 6_000, 900)], call="ncclAllGather")
    (told,) = found(path)
    assert "(collective copy 1 us, peer copy 1 us)" in told.words
    assert told.remedy == "write copies: [peer, collective] in the convention"
    (told,) = found(path, replace(PLAIN, copies=(CopyKind.PEER,)))
    assert "(collective copy 1 us)" in told.words
    assert told.remedy == "write copies: [peer, collective] in the convention"
    (told,) = found(path, replace(PLAIN, copies=(CopyKind.COLLECTIVE,)))
    assert "(peer copy 1 us)" in told.words


def test_copies_outside_of_the_window_are_none_of_it(tmp_path: Path) -> None:
    path = write(tmp_path, Format.NSYS, [(PEER, 12_000, 600)], collective=NCCL)
    assert found(path) == []
    (told,) = found(path, window="2500:12300")
    assert "(peer copy 300 ns)" in told.words


def test_a_gate_refuses_them_and_can_accept_them(project: Project) -> None:
    """Communication of 1 us is told, and 2 us that the copy engines move are not."""
    write(project.root, Format.NSYS, [(PEER, 4_000, 600), (PEER, 6_000, 800)], collective=NCCL).rename("run.sqlite")
    gate = GATE.format("comm_ns <= 1us")
    project.gate(gate)
    said = " ".join(project.pytest("--nsys-trace=run.sqlite", code=1).split())
    assert "2 copies between GPUs are no communication under this convention, 40% of the time of kernels and" in said
    assert "write copies: [peer] in the convention, or write quality: {unknown_communication: 40%}" in said
    project.gate("quality: {unknown_communication: 40%}\n" + gate)
    project.pytest("--nsys-trace=run.sqlite", code=0)
    project.gate(gate.replace("step%}", "step%, copies: [peer]}"))
    assert "3 us" in project.pytest("--nsys-trace=run.sqlite", code=1)


def test_a_cut_tells_of_them_too(tmp_path: Path) -> None:
    copies = [(DEVICE, 4_000, 600), (PEER, 6_000, 900), (DEVICE, 7_500, 950)]
    path = write(tmp_path, Format.NSYS, copies, call="ncclAllGather", collective=NCCL)
    cut = tmp_path / "cut.sqlite"
    run("cut", path, "--convention=generic", "--anchor=step%", "-o", cut, code=0)
    assert found(cut) == found(path) != []
    before, after = (_transfers(each) for each in (path, cut))
    assert before == after


def _transfers(path: Path) -> list[tuple[int, int, str]]:
    with captures(path, convention=PLAIN) as opened:
        trace = opened.runs[0].traces[0]
        (own,) = (trace.transfers(dict.fromkeys(trace.lanes())) or {}).values()
        return [(s, e, own.names[n]) for s, e, n in zip(own.start_ns, own.end_ns, own.name, strict=True)]


# -- kernels that multiply and communicate in one

FUSED = {
    "all_gather_matmul": "all_gather_matmul",
    "ag_gemm": "ag_gemm",
    "gemm_rs": "gemm_rs",
    "gemm_ar": "gemm_ar",
    "gemm_all_reduce": "gemm_all_reduce",
    "allgather_gemm": "allgather_gemm",
    "gemm_reduce_scatter": "gemm_reduce_scatter",
    "fused_all_gather_scaled_mm": "fused_all_gather_scaled_mm",
    "matmul_reduce_scatter": "matmul_reduce_scatter",
    "kernel_consumer_ag_group_gemm": "kernel_consumer_ag_group_gemm",
    "gemm_a2a_transpose": "gemm_a2a_transpose",
    "all_to_all_gemm": "all_to_all_gemm",
    "AllGatherGemm": "AllGatherGemm",
    "void ns::MatmulReduceScatter<float, 8>(float*)": "MatmulReduceScatter",
    "_ZN4flux7ag_gemmIiEEvPi": "ag_gemm",
    "void cutlass::device_kernel<bytedance::flux::GemmV2AGKernel_Device<int>>(int)": "GemmV2AGKernel_Device",
    "void cutlass::device_kernel<cutlass::distributed::kernel::DistributedGemmKernelWrapper<int>>(int)": (
        "DistributedGemmKernelWrapper"
    ),
}
NOT_FUSED = [
    "splitKreduce_kernel",
    "gemm_reduce",
    "small_gather_gemm",
    "gather_gemm_scatter",
    "triton_red_fused_all_gather_mm_3",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_rs_kernel",
    "void gemm<int>(AllGatherGemm)",
    "flag_gemm",
    "gemm_args",
    "reduce_scatter",
    "moe_permute_gemm",
    NCCL,
    "void cutlass::device_kernel<flux::Gemm<nvshmem_team_t>>(deep_ep::Config)",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_AG1_AFEM1",
    "",
]


def test_names() -> None:
    names = [*FUSED, *NOT_FUSED]
    assert {name: find_fused_communication(name) for name in names} == {name: FUSED.get(name, "") for name in names}


@in_every_format
def test_kernels_that_multiply_and_communicate_are_told(tmp_path: Path, format: Format) -> None:
    (told,) = found(write(tmp_path, format, (), collective="gemm_reduce_scatter"))
    assert told.value == Fraction(1, 3)
    assert told.words == (
        "1 kernel says by name that it multiplies and communicates in one, 33.3% of the kernel time "
        "(gemm_reduce_scatter 1 us)"
    )
    named = replace(PLAIN, communication=("*gemm_reduce_scatter*",))
    assert found(write(tmp_path / "b", format, (), collective="gemm_reduce_scatter"), named) == []


def test_a_gate_refuses_fused_kernels_and_can_accept_them(project: Project) -> None:
    write(project.root, Format.KINETO, (), collective="ag_gemm").rename("run.json")
    gate = GATE.format("compute_ns <= 3us")
    project.gate(gate)
    said = " ".join(project.pytest("--nsys-trace=run.json", code=1).split())
    assert "says by name that it multiplies and communicates in one" in said
    project.gate("quality: {unknown_communication: 33.4%}\n" + gate)
    project.pytest("--nsys-trace=run.json", code=0)


@pytest.mark.slow
def test_no_kernel_of_the_real_traces_says_so() -> None:
    paths = [*DATA.glob("*/*.sqlite"), *DATA.glob("*/*.json.gz")]
    if not paths:
        pytest.skip("the real traces are not at hand")
    from pytest_nsys.traces.trace_files import open_trace

    for path in paths:
        trace = open_trace(path)
        try:
            each = trace.kernels(dict.fromkeys(trace.lanes()))
            names = {own.names[number] for own in each.values() for number in {*own.name, *own.full_name}}
            assert [name for name in names if find_fused_communication(name)] == []
            assert not trace.copies_between_gpus()
        finally:
            trace.close()
