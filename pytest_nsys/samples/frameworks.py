"""What do traces of other frameworks look like? Those that the pages of ``docs/frameworks/`` are about."""

from __future__ import annotations

from pathlib import Path

from pytest_nsys.samples.builder import TraceBuilder
from pytest_nsys.samples.jax import JaxBuilder

GPUS, STEPS, STEP_NS = 2, 6, 5_000_000
MICRO_BATCHES = 4


def write_maxtext(folder: Path, scatter_ns: int = 400_000) -> Path:
    """Write what JAX leaves of MaxText: steps of a GEMM beside a gather, attention, and a scatter; the folder."""
    trace = JaxBuilder(gpus=range(GPUS))
    for step in range(STEPS):
        at = 1_000_000 + step * STEP_NS
        trace.step("train", 10 + step, at, at + 600_000)
        for gpu in range(GPUS):
            t = at + 200_000 + gpu * 10_000
            launch_ns = at + 100_000 + gpu * 1_000
            for name, start, end, stream in (
                ("void ck::kernel_gemm_xdl_cshuffle", 0, 2_000_000, 7),
                ("flash_attn_fwd", 2_000_000, 3_000_000, 7),
                ("input_scatter_fusion_3", 3_000_000, 3_000_000 + scatter_ns, 7),
                ("ncclDevKernel_AllGather_RING_LL", 1_500_000, 2_500_000, 28),
            ):
                trace.kernel(name, t + start, t + end, stream=stream, launch_ns=launch_ns, device=gpu)
    trace.write(folder / "plugins" / "profile" / "2026_01_31_02_00_00" / "host0.trace.json.gz")
    return folder


def write_micro_batches(path: Path) -> Path:
    """Write eight steps of four micro-batches, which dispatch tokens over DeepEP, compute, and combine; the path."""
    trace = TraceBuilder()
    trace.gpu("NVIDIA H100 80GB HBM3")
    gpu = trace.process(pid=100)
    for step in range(8):
        at = 1_000_000 + step * 10_000_000
        gpu.range(f"train step {step}", at, at + 9_000_000)
        for micro in range(MICRO_BATCHES):
            t = at + 100_000 + micro * 2_200_000
            gpu.range(f"micro {micro} moe dispatch", t, t + 300_000)
            name = "void deep_ep::internode::dispatch<8>()"
            gpu.kernel("dispatch", t + 50_000, t + 650_000, stream=30, launch_ns=t + 10_000, demangled=name)
            gpu.range(f"micro {micro} moe experts", t + 300_000, t + 500_000)
            gpu.kernel("grouped_gemm", t + 450_000, t + 1_450_000, launch_ns=t + 400_000)
            gpu.range(f"micro {micro} moe combine", t + 500_000, t + 700_000)
            name = "void deep_ep::internode::combine<8>()"
            gpu.kernel("combine", t + 1_300_000, t + 2_000_000, stream=30, launch_ns=t + 600_000, demangled=name)
    return trace.write(path)
