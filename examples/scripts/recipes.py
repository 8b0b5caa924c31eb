"""Write the traces of docs/recipes.md to this folder."""

from pathlib import Path

from tests.support.samples.builder import TraceBuilder
from tests.support.samples.data_parallel import DataParallelShape, write_data_parallel
from tests.support.samples.dualpipe import SAMPLE_SHAPE, Regression, write_dualpipe, write_ranks

# Six more small kernels in each layer's expert forward, as after a graph break.
write_dualpipe(Path("broken_graph.sqlite"), SAMPLE_SHAPE, Regression(extra_launches={"stage3_f": 6}))
# The combine runs on the stream of the pipeline's transfers.
write_dualpipe(Path("mixed.sqlite"), SAMPLE_SHAPE, Regression(stream={"stage4_f": 40}))
# A data-parallel step of torch.profiler, one file per rank; rank 3 computes 500 us longer.
write_data_parallel(Path("late"), DataParallelShape(late_us=500))
# The good step of the demo, one file per rank.
write_ranks(Path("nodes"), SAMPLE_SHAPE)
# 24 units of encode (3 ms) and decode (2 ms), which overlap too little.
pipeline = TraceBuilder()
gpu = pipeline.process()
for unit in range(25):
    at = 1_000_000 + 4_200_000 * unit
    gpu.range(f"unit {unit}", at, at + 3_000_000)
    gpu.range("encode", at, at + 3_000_000)
    gpu.range("decode", at, at + 2_000_000, thread=101)
    gpu.kernel("encode_kernel", at + 10_000, at + 2_990_000, launch_ns=at + 5_000)
    gpu.kernel("decode_kernel", at + 20_000, at + 2_000_000, launch_ns=at + 8_000, stream=9)
pipeline.write(Path("serving.sqlite"))
