"""What does a run of training on one GPU leave in a trace of any format, whose steps can each be changed?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.samples.builder import Process
from tests.support.samples.formats import Format, write_process
from tests.support.samples.gpu_state import allocate, torch_memory
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.rocpd import RocpdBuilder

US, MS, GIB = 1_000, 1_000_000, 1 << 30
STEPS, COMPUTE, COMM = 24, 7, 20
REDUCE, OPTIMIZER = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "multi_tensor_apply_kernel"
CALL_NS, BETWEEN_NS = 8 * US, 60 * US

Lengths = Mapping[str, int]
"""The kernels of a step in the order of their launches, and how long each runs in ns."""

MICRO: Lengths = {"rms_norm_kernel": 150 * US, "nvjet_tst_128x256": 2_000 * US, "flash_fwd_kernel": 900 * US}
WHOLE: Lengths = {**MICRO, REDUCE: 700 * US, OPTIMIZER: 400 * US}


@dataclass(frozen=True)
class Training:
    """The steps of a run on one GPU; ``loading_ns`` is how long the host loads between two. With ``memory`` its levels
    are on record; ``leak_bytes`` more remain allocated after every step.
    """

    steps: tuple[Lengths, ...] = (WHOLE,) * STEPS
    loading_ns: int = 0
    memory: bool = False
    leak_bytes: int = 0

    def write(self, path: Path, format: Format) -> Path:
        return write_process(path, format, self.put)

    def put(self, trace: Any) -> None:
        """The host launches all kernels of a step, waits for them, and loads the next batch."""
        now_ns = MS
        level = _Level(trace)
        for number, lengths in enumerate(self.steps):
            began_ns, free_ns = now_ns, {COMPUTE: now_ns, COMM: now_ns}
            if self.memory:
                level.add(began_ns + US, GIB if number == 0 else self.leak_bytes)
            for name, length_ns in lengths.items():
                stream = COMM if name == REDUCE else COMPUTE
                start_ns = max(now_ns + 5 * US, *free_ns.values())
                free_ns[stream] = start_ns + length_ns
                trace.kernel(name, start_ns, free_ns[stream], stream=stream, launch_ns=now_ns)
                now_ns += CALL_NS
            synced_ns = max(now_ns, *free_ns.values()) + 5 * US
            call = "hipDeviceSynchronize" if isinstance(trace, RocpdBuilder) else "cudaDeviceSynchronize"
            trace.api(call, now_ns, synced_ns)
            if isinstance(trace, JaxBuilder):
                trace.step("train", number, began_ns, synced_ns)
            else:
                trace.range(f"ProfilerStep#{number}", began_ns, synced_ns)
            now_ns = synced_ns + BETWEEN_NS + self.loading_ns
            trace.range("load_batch", synced_ns + 2 * US, now_ns - 2 * US)


@dataclass
class _Level:
    """What is allocated on a GPU, as its profiler writes it down."""

    trace: Process | KinetoBuilder | RocpdBuilder
    total_bytes: int = 0
    pieces: int = 0

    def add(self, at_ns: int, size_bytes: int) -> None:
        if not size_bytes:
            return
        self.total_bytes += size_bytes
        self.pieces += 1
        if isinstance(self.trace, RocpdBuilder):
            self.trace.allocate(at_ns, size_bytes, address=self.pieces)
        elif isinstance(self.trace, KinetoBuilder):
            torch_memory(self.trace, at_ns, self.total_bytes, size_bytes)
        else:
            allocate(self.trace, at_ns, size_bytes, address=self.pieces)


def slower(lengths: Lengths, percent: int, *names: str) -> Lengths:
    """The same kernels, of which some, or all where none is named, take so much longer."""
    return {name: ns + ns * percent // 100 if not names or name in names else ns for name, ns in lengths.items()}


def changed(run: Training, numbers: range, change: Callable[[Lengths], Lengths]) -> Training:
    """A run in which the steps of some numbers are others."""
    return replace(run, steps=tuple(change(own) if n in numbers else own for n, own in enumerate(run.steps)))


PLAIN = Training()
