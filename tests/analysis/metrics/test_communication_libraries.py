"""What communicates beside NCCL, is doubted where no convention names it, and changes which older baselines?"""

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention
from pytest_nsys.core.families import (
    FAMILIES,
    LIBRARIES,
    extract_short_name,
    find_communication_library,
    make_classifier,
)
from pytest_nsys.traces.trace_files import open_trace
from tests.support.commands import run
from tests.support.gate_files import loaded
from tests.support.gates import Project
from tests.support.measure import captures, notes, rows, rows_of
from tests.support.reference_data import DEEPSEEK, DUALPIPE, DUALPIPE_RUNS, MORE, REAL, expected_figures
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder

DISPATCH = "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)"
NCCL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"

KNOWN = {
    DISPATCH: "DeepEP",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)": "DeepEP",
    "void deep_ep::internode_ll::clean_low_latency_buffer<256>(int*, int)": "DeepEP",
    "void dpsk::ep::internode::cached_notify<false>(int, int, dpsk::ep::internode::SourceMeta*)": "DeepEP",
    "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*)": "DeepEP",
    "void primus_turbo::deep_ep::internode::combine<8>()": "DeepEP",
    "void mine::ep::internode_ll::combine<8>(int)": "DeepEP",
    "internode_ll::dispatch(int)": "DeepEP",
    "void fork::intranode::notify_dispatch<2>(int)": "DeepEP",
    "void hybrid_ep::dispatch_kernel<1>(int)": "HybridEP",
    "nvshmemi_barrier_on_stream_kernel(int)": "NVSHMEM",
    "void a::nvshmem::put<int>(int*)": "NVSHMEM",
    "void rocshmem::barrier_kernel<int>(int)": "rocSHMEM",
    "_ZN12primus_turbo7deep_ep9intranode8dispatchILi8ELi768EEEvP4int4": "DeepEP",
    "void a2a_combine_recv_kernel<true, 8>(unsigned long)": "pplx",
    "_ZN4mori3moe24EpCombineIntraNodeKernelIfEEvNS0_21EpDispatchCombineArgsE": "MORI",
    "EpDispatchIntraNodeKernel_bf16": "MORI",
    "void aiter::allgather_lastdim<__hip_bfloat16, 8>(aiter::RankData*, aiter::RankSignals)": "AITER",
    "_ZN5aiter24reduce_scatter_first_dimIDF16bLi8EEEvPNS_8RankDataE": "AITER",
    "void sglang::sp_collective::all_gather_kernel<8u, true>(sglang::sp_collective::Params)": "vLLM or sglang",
    "void flashinfer::mixed_comm::allreduce_kernel<1, 8, 1, false, false>(int)": "TensorRT-LLM or FlashInfer",
    "void kernels::reduce_fusion::lamport_style_one_shot_all_reduce_norm_kernel<8, half>(int)": (
        "TensorRT-LLM or FlashInfer"
    ),
    "_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataE": "AITER",
    "void trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8, float>(float*)": "TensorRT-LLM or FlashInfer",
    "moeA2APrepareDispatchKernel(int*)": "TensorRT-LLM or FlashInfer",
    "c10d::symmetric_memory::(anonymous namespace)::barrier_kernel(unsigned int**, int)": "torch symmetric memory",
    "void stream_executor::gpu::AllReduceKernelImpl<float, (xla::ReductionKind)0>(float*)": "XLA",
    "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*)": "RCCL",
    "void mscclpp::allreduce7<int>(int*)": "MSCCL++",
    "void uccl::internode::dispatch<4>(int*)": "UCCL",
    "void pplx::(anonymous namespace)::combineKernel<8>(float*)": "pplx",
    "pplx_kernels::a2a::dispatchKernel(int)": "pplx",
    "void vllm::cross_device_reduce_1stage<half, 4>(vllm::RankData*)": "vLLM or sglang",
    "void quickreduce::allreduce_prototype_twoshot<int>(half const*)": "vLLM or sglang",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot<4>(int)": "TensorRT-LLM or FlashInfer",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8>(int)": "TensorRT-LLM or FlashInfer",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(int)": "torch symmetric memory",
    "void c10d::symmetric_memory::two_shot_all_reduce_kernel<float>(int)": "torch symmetric memory",
    "kuserbuffers_pullsend(int, int)": "TransformerEngine",
    "void oneccl::allreduce<int>(int*)": "oneCCL",
    "rcclGeneric": "RCCL",
}
COMPUTE = [
    "void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>(Flash_fwd_params)",
    "void flash::combine<int>(int)",
    "void cuda::per_token_cast_to_fp8_with_channels<__nv_bfloat16, 128>(__nv_bfloat16 const*)",
    "void dpsk::grouped_gemm::cuda::utils::transpose<512, 128>(unsigned char const*)",
    "void cutlass::device_kernel<flux::Gemm<nvshmem_team_t>>(deep_ep::Config)",
    "my_nvshmem_free_gemm",
    "void at::native::step::internode<int>(int)",
    "void DEEP_EP::dispatch_like(int)",
    "moe_permute_kernel",
    "_ZN5aiter12norm_forwardIN7deep_ep6ConfigEEEvPN7nvshmem4TeamE",
    "triton_red_fused__to_copy_nccl_all_reduce_mul_3",
    "triton_poi_fused_moe_comm_allreduce_fusion_1",
    "void a2a_softmax_reduce_kernel<float>(float*)",
    "a2a_moe_regroup_kernel",
    "void aiter::local_device_load_rmsnorm<__hip_bfloat16, 8>(aiter::RankSignals)",
    "reduce_scatter_of_my_own",
    "splitKreduce_kernel",
    "nvjet_tst_192x192",
    "",
]
"""Names that look like the above, parameters and namespaces of another case included."""


def test_names() -> None:
    classify = make_classifier(FAMILIES)
    for full in (*KNOWN, *COMPUTE):
        known = find_communication_library(extract_short_name(full), full)
        assert (known.library if known else None) == KNOWN.get(full), full
        assert (classify(extract_short_name(full), full) in ("communication", "comm_helper")) is (known is not None), (
            full
        )
        if known is not None:  # the glob is what a convention may name it by
            own = Convention("own", communication=(known.glob,))
            assert own.is_communication(extract_short_name(full), full)
            assert not replace(own, communication=()).is_communication(extract_short_name(full), full)


def test_every_library_has_a_name_here() -> None:
    assert {library.name for library in LIBRARIES} == set(KNOWN.values())


def test_ncclkernels_are_no_librarys() -> None:
    assert find_communication_library("ncclDevKernel_SendRecv", NCCL) is None


@pytest.mark.parametrize("name", BUILT_IN_CONVENTIONS)
def test_every_built_in_convention_but_pithtrain_counts_them(name: str) -> None:
    """And a convention of one's own that extends it; one from scratch keeps what it says."""
    counts = [BUILT_IN_CONVENTIONS[name].is_communication(extract_short_name(full), full) for full in KNOWN]
    assert counts == [name != "pithtrain"] * len(KNOWN)
    assert BUILT_IN_CONVENTIONS[name].is_communication("ncclDevKernel_SendRecv", NCCL)
    assert not BUILT_IN_CONVENTIONS[name].is_communication("combine", "void flash::combine<int>(int)")


@pytest.mark.parametrize(
    ("written", "communicates"),
    [("{extends: generic, anchor: step%}", True), ("{extends: pithtrain}", False), ("{anchor: step%}", False)],
)
def test_conventions_of_a_gate_file(written: str, communicates: bool) -> None:
    convention = loaded(f"version: 1\nconvention: {written}\nassertions: [idle_ns < 1s]\n").resolved_convention
    assert convention.is_communication("dispatch", DISPATCH) is communicates


# -- what of it is a baseline's concern


def _nsys(path: Path, *names: str) -> Path:
    gpu = TraceBuilder().process()
    for at, name in enumerate(names):
        start = 10_000 * (at + 1)
        gpu.kernel(extract_short_name(name), start, start + 5_000, stream=20 + at, launch_ns=2_000, demangled=name)
    return gpu.trace.write(path)


def _kineto(path: Path, *names: str) -> Path:
    trace = KinetoBuilder()
    trace.range("ProfilerStep#1", 1_000, 90_000)
    for at, name in enumerate(names):
        trace.kernel(name, 10_000 * (at + 1), 10_000 * (at + 1) + 5_000, stream=20 + at, launch_ns=2_000)
    return trace.write(path)


def _jax(path: Path, *names: str) -> Path:
    trace = JaxBuilder()
    for at, name in enumerate(names):
        trace.kernel(name, 10_000 * (at + 1), 10_000 * (at + 1) + 5_000, stream=20 + at)
    return trace.write(path)


WRITERS = {"run.sqlite": _nsys, "run.json": _kineto, "run.trace.json.gz": _jax}


@pytest.mark.parametrize("file", WRITERS)
def test_the_table_is_in_the_fingerprint_where_it_counts_a_kernel(tmp_path: Path, file: str) -> None:
    """Once, anywhere in the run; and only what was compute before."""

    def fingerprint(convention: Convention, *names: str) -> str:
        trace = open_trace(WRITERS[file](tmp_path / file, *names))
        run = Run([trace], convention)
        try:
            return convention.compute_fingerprint(run.libraries)
        finally:
            run.close()

    generic = BUILT_IN_CONVENTIONS["generic"]
    usual = generic.compute_fingerprint()
    assert fingerprint(generic, NCCL, "void gemm(int)") == usual
    assert fingerprint(generic, NCCL, DISPATCH) != usual
    assert fingerprint(generic, DISPATCH) == fingerprint(generic, "internode_ll::combine(int)", "void gemm(int)")
    assert fingerprint(generic, DISPATCH, "nvshmem_put(int)") != fingerprint(generic, DISPATCH)
    named = replace(generic, communication=("*deep_ep::*",))
    assert fingerprint(named, DISPATCH) == named.compute_fingerprint()
    assert (
        fingerprint(BUILT_IN_CONVENTIONS["kineto"], "rcclGeneric(int)")
        == BUILT_IN_CONVENTIONS["kineto"].compute_fingerprint()
    )
    assert (
        fingerprint(BUILT_IN_CONVENTIONS["pithtrain"], DISPATCH)
        == BUILT_IN_CONVENTIONS["pithtrain"].compute_fingerprint()
    )


GATE = "convention: {convention}\nwindow: run\ntolerance: {{rel: 5%}}\nassertions:\n  - window_ns <= baseline + 5%\n"


def test_baselines_of_before_stay_but_of_runs_that_it_changes(project: Project) -> None:
    """A stored baseline of before has the fingerprint without the table, whatever ran."""
    project.gate(GATE.format(convention="kineto"))
    _kineto(project.root / "plain.json", NCCL, "gemm")
    _kineto(project.root / "deep_ep.json", NCCL, "gemm", DISPATCH)
    project.refresh("--nsys-trace=plain.json")
    (stored,) = (project.root / "baselines").rglob("*.json")
    assert (
        json.loads(stored.read_text())["key"]["convention"]
        == BUILT_IN_CONVENTIONS["kineto"].compute_fingerprint()
        == "c3c2f30f82d0"
    )
    project.pytest("--nsys-trace=plain.json", code=0)
    said = project.pytest("--nsys-trace=deep_ep.json", code=1)
    assert "(convention: now kineto with DeepEP (" in said
    assert "baseline kineto (c3c2f30f82d0)" in said
    project.refresh("--nsys-trace=deep_ep.json")
    project.pytest("--nsys-trace=deep_ep.json", code=0)


def test_two_traces_are_held_against_each_other_by_one_table(project: Project) -> None:
    """A branch that moves its dispatch to DeepEP is judged, for both sides are measured now."""
    project.gate(GATE.format(convention="kineto") + "  - wall_exposed_all_ns <= baseline + 5%\n")
    _kineto(project.root / "base.json", NCCL, "gemm", NCCL)
    _kineto(project.root / "head.json", NCCL, "gemm", DISPATCH)
    assert "2 passed" in project.pytest("--nsys-trace=head.json", "--nsys-against=base.json", code=0)
    said = project.command("compare", "base.json", "head.json", "--window=run", "--convention=generic", code=0)
    assert "convention" not in said


def test_a_cut_has_the_fingerprint_of_its_run(project: Project) -> None:
    trace = KinetoBuilder()
    for step in range(5):
        trace.range(f"ProfilerStep#{step}", 100_000 * step + 1_000, 100_000 * step + 90_000)
        trace.kernel("gemm", 100_000 * step + 10_000, 100_000 * step + 20_000)
    trace.kernel(DISPATCH, 430_000, 440_000, stream=20)
    trace.write(project.root / "run.json")
    project.gate("convention: kineto\ntolerance: {rel: 5%}\nassertions:\n  - window_ns <= baseline + 5%\n")
    project.refresh("--nsys-trace=run.json")
    project.command("cut", "run.json", "--output=cut.json", code=0)
    project.pytest("--nsys-trace=cut.json", code=0)


# -- families of kernels


def families(project: Project, trace: str) -> dict[str, int]:
    """The time of each family in the view of kernels."""
    project.command("--view=kernels", trace, "--format=json", code=0)
    found = json.loads(project.result.stdout.str())["families"]
    return {row["family"]: row["family_ns"] for row in found}


def test_communication_and_its_helpers_are_told_apart(project: Project) -> None:
    """And are no rows where none of them ran, which baselines of before do not have."""
    _kineto(project.root / "run.json", NCCL, DISPATCH, "void deep_ep::internode::notify_dispatch<0>(int)", "gemm")
    _kineto(project.root / "plain.json", NCCL, "gemm")
    with_helpers = families(project, "run.json")
    assert (with_helpers["communication"], with_helpers["comm_helper"]) == (5_000, 5_000)
    plain = families(project, "plain.json")
    assert plain["moe"] == 0
    assert not [name for name in plain if "comm" in name]
    said = project.command("--view=kernels", "plain.json", "--where=family=communication", code=3)
    assert "no row has family communication" in said


# -- a published profile whose communication is all DeepEP's


@pytest.mark.reference
def test_the_published_dualpipe_profile() -> None:
    expected: Mapping[str, int] = json.loads((MORE / "expected.json").read_text())[DEEPSEEK.name]
    with captures(DEEPSEEK, convention=BUILT_IN_CONVENTIONS["kineto"]) as run:
        (windows,) = run.runs[0].load_whole_run().windows_by_rank.values()
        (window,) = windows
        assert len(window) == expected["kernels"]
        assert sum(window.communicates) == expected["communication_kernels"]
        assert window.all_communication_time.total_ns == expected["comm_union_ns"]
        assert window.compute_time.total_ns == expected["compute_union_ns"]
        assert window.length_ns == expected["span_ns"]
        figures = {
            "busy_ns": expected["busy_ns"],
            "wall_exposed_all_ns": expected["exposed_union_ns"],
            "wall_overlap_all": Fraction(expected["overlap_ns"], expected["comm_union_ns"]),
        }
        for name, value in figures.items():
            assert rows_of(run, name, run.make_spec("run")) == {0: value}


MAPPING = "{anchor: step%}"


def two_kernels(path: Path, second: str = DISPATCH) -> Path:
    """In each of 16 steps NCCL for 200 us beside another kernel of 200 us, and nothing else."""
    process = TraceBuilder().process()
    for step in range(16):
        at = 1_000_000 * step + 1_000
        process.range(f"step {step}", at, at + 900_000)
        process.range("decode", at, at + 400_000)
        process.range("encode", at + 400_000, at + 800_000)
        process.kernel(NCCL, at + 100_000, at + 300_000, stream=20, launch_ns=at + 1)
        name = "second" if second == DISPATCH else second
        process.kernel(name, at + 100_000, at + 300_000, stream=21, launch_ns=at + 2, demangled=second)
    return process.trace.write(path)


def convention_of(written: str) -> Convention:
    return loaded(f"version: 1\nconvention: {written}\nassertions: [wall_overlap >= 90%]").resolved_convention


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
    said = doubts(path, convention_of(written))[0]
    assert said.startswith("1 kernel of DeepEP counts as compute, 50% of the kernel time")
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
        said = project.pytest("--nsys-trace=run.sqlite", "-v")
        told = "error: trace quality: 1 kernel" if outcome == "error" else "note: 1 kernel"
        assert f"{told} of DeepEP counts as compute" in said


COMMANDS = {
    "streams": ("{run}", "--view=streams"),
    "overlap": ("{run}", "--view=overlap"),
    "rows": ("rows", "window_ns", "--trace={run}"),
    "kernels": ("{run}", "--view=kernels"),
    "collectives": ("{run}", "--view=collectives"),
    "cut": ("cut", "{run}", "--output={folder}/cut.sqlite"),
    "compare": ("compare", "{run}", "{other}"),
    "report": ("{run}", "--view=config", "--config={folder}/job.toml"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_measures_warns(tmp_path: Path, command: str) -> None:
    (tmp_path / "own.yaml").write_text(MAPPING)
    (tmp_path / "stages.nsys.yaml").write_text(
        "version: 1\npipeline: {stage0: decode, stage1: encode}\nassertions: [pipeline overlap_score >= 0.3]\n"
    )
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
    assert doubts(DUALPIPE / f"{name}.sqlite", BUILT_IN_CONVENTIONS["pithtrain"]) == []


@pytest.mark.reference
@pytest.mark.parametrize("name", [name for name, figures in expected_figures().items() if "full" in figures])
def test_real_traces_are_not_doubted(name: str) -> None:
    """Under any convention: NCCL and RCCL are all that communicates there."""
    assert doubts(REAL / name, Convention("own"), window="run") == []


@pytest.mark.reference
def test_the_published_profile_is_doubted_where_its_library_is_not_counted() -> None:
    (said,) = doubts(DEEPSEEK, Convention("own"), window="run")
    assert said.startswith("36 kernels of DeepEP count as compute, 46.5% of the kernel time (dpsk::ep::")
    assert doubts(DEEPSEEK, BUILT_IN_CONVENTIONS["kineto"], window="run") == []


def doubts(trace: Path, convention: Convention, window: str = "median") -> list[str]:
    return [line for line in notes(trace, "idle_ns", convention=convention, window=window) if "as compute, " in line]
