"""Write step.sqlite: eight steps of four micro-batches, which dispatch tokens over DeepEP, compute, and combine."""

from pathlib import Path

from tests.support.samples.builder import TraceBuilder

trace = TraceBuilder()
trace.gpu("NVIDIA H100 80GB HBM3")
gpu = trace.process(pid=100)
for step in range(8):
    at = 1_000_000 + step * 10_000_000
    gpu.range(f"train step {step}", at, at + 9_000_000)
    for micro in range(4):
        t = at + 100_000 + micro * 2_200_000
        gpu.range(f"micro {micro} moe dispatch", t, t + 300_000)
        name = "void deep_ep::internode::dispatch<8>()"
        gpu.kernel("dispatch", t + 50_000, t + 650_000, stream=30, launch_ns=t + 10_000, demangled=name)
        gpu.range(f"micro {micro} moe experts", t + 300_000, t + 500_000)
        gpu.kernel("grouped_gemm", t + 450_000, t + 1_450_000, launch_ns=t + 400_000)
        gpu.range(f"micro {micro} moe combine", t + 500_000, t + 700_000)
        name = "void deep_ep::internode::combine<8>()"
        gpu.kernel("combine", t + 1_300_000, t + 2_000_000, stream=30, launch_ns=t + 600_000, demangled=name)
trace.write(Path("step.sqlite"))
