"""Write toy.sqlite: four kernels of which each tool tells another overlap."""

from pathlib import Path

from tests.support.samples.builder import TraceBuilder

trace = TraceBuilder()
gpu = trace.process()
gpu.range("forward chunk 0 backward chunk 0", 0, 2_000)
gpu.range("layer00.stage2_f", 100, 900)
gpu.kernel("ncclDevKernel_SendRecv", 1_000, 1_200, stream=20, launch_ns=200)
gpu.kernel("ncclDevKernel_SendRecv", 1_050, 1_250, stream=21, launch_ns=300)
gpu.kernel("gemm", 1_050, 1_125, stream=7, launch_ns=400)
gpu.kernel("ncclDevKernel_AllGather", 1_400, 1_450, stream=7, launch_ns=500)
trace.write(Path("toy.sqlite"))
