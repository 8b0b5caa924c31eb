"""What does a large trace of torch.profiler look like? Its text, laid out as the profiler lays it out."""

import random
from collections.abc import Iterator

STEP = """  {{
    "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 4242, "tid": 4242,
    "ts": {ts}, "dur": {dur},
    "args": {{
      "External id": {id}, "Record function id": 0, "Ev Idx": {id}
    }}
  }},
"""
OPERATOR = """  {{
    "ph": "X", "cat": "cpu_op", "name": "aten::op_{op}", "pid": 4242, "tid": {tid},
    "ts": {ts}, "dur": {dur},
    "args": {{
      "External id": {id}, "Record function id": 0, "Sequence number": {id}, "Fwd thread id": 1, "Ev Idx": {id},
      "Input Dims": [[{op}, 4096], [4096]], "Input type": ["float", "c10::BFloat16"]
    }}
  }},
"""
LAUNCH = """  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4242, "tid": {tid},
    "ts": {ts}, "dur": 3.123,
    "args": {{
      "External id": {id}, "cbid": 211, "correlation": {id}
    }}
  }},
  {{
    "ph": "s", "id": {id}, "pid": 4242, "tid": {tid}, "ts": {ts},
    "cat": "ac2g", "name": "ac2g"
  }},
"""
KERNEL = """  {{
    "ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": {stream},
    "ts": {ts}, "dur": {dur},
    "args": {{
      "External id": {id},
      "queued": 0, "device": 0, "context": 1,
      "stream": {stream}, "correlation": {id},
      "registers per thread": 56, "shared memory": 0,
      "blocks per SM": 4.740741, "warps per SM": 75.851852,
      "grid": [512, 1, 1], "block": [512, 1, 1],
      "est. achieved occupancy %": 100
    }}
  }},
  {{
    "ph": "f", "id": {id}, "pid": 0, "tid": {stream}, "ts": {ts},
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }},
"""
HEAD = """
{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
  "distributedInfo": {"backend": "nccl", "rank": RANK, "world_size": WORLD},
  "traceEvents": [
"""
TAIL = """  {
    "name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 9458676388068.751
  }
  ],
  "traceName": "trace.json"
}
"""
FUNCTOR = "at::native::FillFunctor<float>, std::array<char*, {0}ul>"
ELEMENTWISE = f"void at::native::vectorized_elementwise_kernel<4, {FUNCTOR} >(int, {FUNCTOR})"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize{0}x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel"
NCCL = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def _microseconds(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def events(kernels: int, rank: int = 0, ranks: int = 8) -> Iterator[str]:
    """A rank's trace, piece by piece: steps of 10 000 kernels, and six events a kernel."""
    yield HEAD.replace("RANK", str(rank), 1).replace("WORLD", str(ranks), 1)
    chance = random.Random(1 + rank)
    at = began = 4_458_676_388_068_751
    for k in range(kernels):
        number, tid = 1000 + 3 * k, 4242 + (k % 3 == 0)
        for j in (0, 1):
            at += 1_000
            length = _microseconds(12_345 - 3_000 * j)
            yield OPERATOR.format(op=(7 * k + j) % 120, tid=tid, ts=_microseconds(at), dur=length, id=number)
        yield LAUNCH.format(tid=tid, ts=_microseconds(at), id=number)
        name, stream = (ELEMENTWISE if k % 2 else GEMM).format(k % 100), 7
        if k % 50 == 0:
            name, stream = NCCL, 28
        start, length = at + 9_000 + chance.randrange(3_000), _microseconds(4_000 + chance.randrange(9_000))
        yield KERNEL.format(name=name, stream=stream, ts=_microseconds(start), dur=length, id=number)
        at += 12_000
        if k % 10_000 == 9_999 or k == kernels - 1:
            span = _microseconds(at - began)
            yield STEP.format(step=k // 10_000, ts=_microseconds(began), dur=span, id=number)
            began = at = at + 5_000
    yield TAIL
