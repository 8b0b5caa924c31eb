"""How fast is a torch.profiler trace read, and in how much memory? Ratios in one run, against ``json.load``.

    python -m tests.benchmarks.kineto_speed              # 317 k kernels, 560 MB: minutes, and 0.7 GB of disk
    python -m tests.benchmarks.kineto_speed --small      # 5 k kernels: does everything run? (what CI does)

Each figure is a process of its own: ``json.load`` with the garbage collector off, reading the columns, and the whole
command ``pytest-nsys streams``. Runs alternate; a figure is the median of the ratios within one round.
"""

from __future__ import annotations

import argparse
import gzip
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.gate_speed import Spent, spend

KERNELS, SMALL = 317_000, 5_000
TARGET = {"plain": 0.43, "gzip": 0.57}
"""2.5 s and 3.3 s where ``json.load`` takes 5.8 s with the garbage collector off."""
TARGET_MIB = 200

PYTHON_JSON = "import gc, json, sys; gc.disable(); json.load(open(sys.argv[1]))"
READ = (
    "import sys; from pathlib import Path; from pytest_nsys.traces.chrome.kineto_content import Content; "
    "Content(Path(sys.argv[1]))"
)
COMMAND = (
    "import sys; from pytest_nsys.cli import main; "
    "main(['streams', sys.argv[1], '--convention=kineto'], standalone_mode=False)"
)

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
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},
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


def events(kernels: int) -> Iterator[str]:
    """Steps of 10 000 kernels: six events a kernel, laid out as torch.profiler lays them out."""
    chance = random.Random(1)
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


def write(path: Path, kernels: int) -> None:
    """The trace, plain and beside it packed."""
    with path.open("w", encoding="utf-8") as file:
        file.write(HEAD)
        file.writelines(events(kernels))
        file.write(TAIL)
    with path.open("rb") as plain, gzip.open(f"{path}.gz", "wb", compresslevel=6) as packed:
        shutil.copyfileobj(plain, packed, 1 << 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--small", action="store_true", help=f"{SMALL} kernels instead of {KERNELS}")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    kernels, rounds = (SMALL, 1) if options.small else (KERNELS, options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank0_trace.json"
        write(path, kernels)
        packed = path.with_name(path.name + ".gz")
        print(f"{kernels} kernels, {path.stat().st_size / 1e6:.0f} MB, packed {packed.stat().st_size / 1e6:.0f} MB")
        asked = {
            "json.load, no gc": (PYTHON_JSON, path, None),
            "columns": (READ, path, TARGET["plain"]),
            "columns, gzip": (READ, packed, TARGET["gzip"]),
            "pytest-nsys streams": (COMMAND, path, TARGET["plain"]),
            "pytest-nsys streams, gzip": (COMMAND, packed, TARGET["gzip"]),
        }
        found: dict[str, list[Spent]] = {name: [] for name in asked}
        for _ in range(rounds):
            for name, (code, file, _target) in asked.items():
                found[name].append(spend([sys.executable, "-c", code, str(file)], Path.cwd()))
    base = [one.seconds for one in found["json.load, no gc"]]
    print(f"{'':28}{'seconds':>9}{'ratio':>8}{'target':>8}{'MiB':>7}")
    for name, (_, _, target) in asked.items():
        ratio = statistics.median(one.seconds / b for one, b in zip(found[name], base, strict=True))
        seconds = statistics.median(one.seconds for one in found[name])
        wanted = "–" if target is None else f"{target:.2f}"
        print(f"{name:28}{seconds:9.2f}{ratio:8.2f}{wanted:>8}{max(one.peak_mib for one in found[name]):7.0f}")
    print(f"target of the memory: {TARGET_MIB} MiB")


if __name__ == "__main__":
    main()
