"""Is a drafted gate red where the step in the middle is as it was? Time between steps, slow steps, a leak, parts of a
step that not every step has, a step that runs nothing: in every format, with the sentence that leads.

``RED`` names the sentences, ``HEADLINE`` how the first line of a report begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys.gates.model import Outcome
from tests.support.drafted import Drafted
from tests.support.samples.builder import Process
from tests.support.samples.formats import ENDINGS, Format, write_process
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
REMEMBERED = Training(memory=True)
ACCUMULATED = Training(steps=(MICRO, MICRO, MICRO, WHOLE) * (STEPS // 4))
WITH_AN_EMPTY_STEP = changed(PLAIN, range(7, 8), lambda _: {})

EVERY = range(STEPS)
FAULTS: Mapping[str, tuple[Training, Training]] = {
    "a host gap between steps": (PLAIN, replace(PLAIN, loading_ns=3 * MS)),
    "a slow last quarter": (PLAIN, changed(PLAIN, range(STEPS * 3 // 4, STEPS), lambda own: slower(own, 100))),
    "one slow step in ten": (PLAIN, changed(PLAIN, range(5, STEPS, 10), lambda own: slower(own, 200))),
    "a leak": (REMEMBERED, replace(REMEMBERED, leak_bytes=GIB // 4)),
    "a slow optimizer every fourth step": (
        ACCUMULATED,
        changed(ACCUMULATED, EVERY, lambda own: slower(own, 200, REDUCE, OPTIMIZER)),
    ),
    "a slow optimizer beside an empty step": (
        WITH_AN_EMPTY_STEP,
        changed(WITH_AN_EMPTY_STEP, EVERY, lambda own: slower(own, 200, OPTIMIZER)),
    ),
}
"""What was, and what is worse."""

_LATER = r"Step unchanged \(4\.22 ms\)"
HEADLINE: Mapping[str, str] = {
    "a host gap between steps": r"Step 71% slower \(4\.22 → 7\.22 ms\): the GPU waits for the host between steps: 0\.0",
    "a slow last quarter": rf"{_LATER}: all kernels alike \+100%, p90 of period 4\.22 → 8\.37 ms",
    "one slow step in ten": rf"{_LATER}; mean of period_ns \+18% \(4\.22 → 4\.97 ms\), rank 0",
    "a leak": rf"{_LATER}; peak_allocated_bytes \+575% \(1\.07 → 7\.25 GB\), rank 0",
    "a slow optimizer every fourth step": r"Step 16% slower \(13\.6 → 15\.8 ms\): AllReduce 200% longer",
    "a slow optimizer beside an empty step": r"Step 19% slower \(4\.22 → 5\.02 ms\): multi_tensor_apply_kernel 200%",
}
"""What the sentence of all begins with."""

_STEP, _MEAN, _P90 = "step time", "mean step time", "p90 step time"
RED: Mapping[str, set[str]] = {
    "a host gap between steps": {_STEP, _MEAN, _P90, "between steps", "launch starved", "idle"},
    "a slow last quarter": {_MEAN, _P90},
    "one slow step in ten": {_MEAN},
    "a leak": {"peak allocated"},
    "a slow optimizer every fourth step": {_STEP, _MEAN, "exposed", "blocking comm max", "compute"},
    "a slow optimizer beside an empty step": {_STEP, _MEAN, _P90, "compute"},
}
"""Of the drafted sentences, what stands before their limits."""


@pytest.mark.parametrize("format", list(Format))
@pytest.mark.parametrize("fault", FAULTS)
def test_what_the_step_in_the_middle_does_not_show_is_red(tmp_path: Path, fault: str, format: Format) -> None:
    """But for memory, of which a trace of JAX says nothing."""
    was, worse = FAULTS[fault]
    drafted = Drafted.of(was.write(tmp_path / f"base.{ENDINGS[format]}", format), tmp_path)
    red, sentence = drafted.told(worse.write(tmp_path / f"head.{ENDINGS[format]}", format))
    found = {record.verdict.assertion.full_name.split(" below ")[0] for record in red}
    if fault == "a leak" and format is Format.JAX:
        assert found == set()
        assert sentence.startswith("All 14 assertions passed")
        return
    assert found == RED[fault]
    assert re.match(HEADLINE[fault], sentence), sentence


@pytest.mark.parametrize("format", list(Format))
@pytest.mark.parametrize("was", [PLAIN, REMEMBERED, ACCUMULATED, WITH_AN_EMPTY_STEP])
def test_the_same_run_is_green(tmp_path: Path, was: Training, format: Format) -> None:
    drafted = Drafted.of(was.write(tmp_path / f"base.{ENDINGS[format]}", format), tmp_path)
    found = drafted.judged(drafted.trace)
    assert found == dict.fromkeys(found, Outcome.PASSED)
