"""Four requests that an engine serves: a prefill for each as it comes, and between them decode steps of all others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.samples.formats import write_one

US = 1_000


class EngineStep(NamedTuple):
    """One step: tokens of prompts, requests that decode, and how long it has the GPU."""

    context: int
    generation: int
    length_us: int

    def label(self, engine: str) -> str:
        """What the engine calls it."""
        requests = 1 if self.context else 0
        if engine == "vllm":
            return f"execute_context_{requests}({self.context})_generation_{self.generation}({self.generation})"
        if not self.context:
            return f"step[DECODE bs={self.generation}]" if self.generation else "step[IDLE bs=0]"
        return f"step[MIXED bs={self.generation + 1}]" if self.generation else f"step[EXTEND bs=1 toks={self.context}]"


def prefill(length_us: int = 40_000) -> EngineStep:
    return EngineStep(512, 0, length_us)


def decode(requests: int, length_us: int = 10_000) -> EngineStep:
    return EngineStep(0, requests, length_us)


def mixed(length_us: int = 45_000) -> EngineStep:
    return EngineStep(256, 2, length_us)


def four_requests(decode_us: int = 10_000, prefill_us: int = 40_000, slow_us: int = 0) -> list[EngineStep]:
    """20 decode steps, 3 prefill steps by turns, and a mixed one. ``slow_us``: one decode step of the middle takes so
    much longer.
    """
    steps: list[EngineStep] = []
    for requests in (1, 2, 3, 4):
        steps.append(mixed() if requests == 3 else prefill(prefill_us))
        steps += [decode(requests, decode_us + k * 10) for k in range(5)]
    if slow_us:
        steps[14] = decode(3, decode_us + slow_us)
    return steps


def write_serving(
    folder: Path,
    format: str,
    steps: Sequence[EngineStep],
    *,
    engine: str = "vllm",
    exposed_us: int = 1_000,
    sampling: bool = True,
    setup: str = "",
) -> Path:
    """The trace of an engine whose CPU is ahead: it labels and launches a step while the GPU runs the one before.

    A decode step is one launch of a graph. Each has 8 kernels and an all-reduce of 4 ms on a stream of its own, the
    last ``exposed_us`` of which nothing hides; behind the label comes the kernel that samples, which ends the step.
    ``setup`` is the label of the rank, if any.
    """

    def put(trace: Any) -> None:
        free = 1_000_000
        before = 0
        if setup:
            trace.range(setup, 10, 20)
        for step in steps:
            called, ends = before + 100 * US, free + step.length_us * US
            trace.range(step.label(engine), called, called + 900 * US)
            number = trace.api("cudaGraphLaunch", called + 10 * US, called + 20 * US) if not step.context else None
            work = step.length_us * US - 100 * US - exposed_us * US
            for i in range(8):
                start = free + work * i // 8
                how = {"launch_ns": called + (30 + i) * US} if number is None else {"correlation": number}
                trace.kernel(f"gemm_{i}", start, free + work * (i + 1) // 8, stream=7, **how)
            how = {"launch_ns": called + 50 * US} if number is None else {"correlation": number}
            done = ends - 100 * US
            trace.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", done - 4_000 * US, done, stream=20, **how)
            if sampling:
                trace.kernel("sample_tokens", done, ends, stream=7, launch_ns=called + 950 * US)
            before, free = free, ends

    folder.mkdir(parents=True, exist_ok=True)
    return write_one(folder, format, put)
