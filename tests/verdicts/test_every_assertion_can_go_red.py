"""Is there, for every metric and every form of sentence, a trace that turns it red? A gate needs one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_nsys import NsysRun, judge, open_run
from pytest_nsys.analysis.metrics.registry import METRICS
from tests.support.gates import MS, Project, write_trace
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.gpu_state import allocate, free, sm_clock
from tests.support.samples.nccl import NcclRanges
from tests.support.samples.odd_rows import raw

Trace = dict[str, Any]
"""What a trace has other than the usual: keywords of :func:`tests.support.gates.write_trace`."""


@dataclass(frozen=True)
class Reds:
    """A sentence that holds on ``green`` and fails on ``red``; ``base`` is the trace of its baseline."""

    sentence: str
    red: Trace
    green: Trace
    head: str = ""
    base: Trace = field(default_factory=dict)

    @property
    def gate(self) -> str:
        """The gate file: ``head`` is what it says beside the sentence."""
        return f"{self.head}assertions:\n  - {self.sentence}"


def exposed(microseconds: int) -> Trace:
    return {"exposed_us": microseconds}


def added(*kernels: tuple[str, int, int, int]) -> Trace:
    """In the median window, 41 ms on: (name, stream, start and end in us after 45 ms), launched for stage4_f."""

    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        for name, stream, start_us, end_us in kernels:
            begin, end = 45 * MS + 1_000 * start_us, 45 * MS + 1_000 * end_us
            processes[0].kernel(name, begin, end, stream=stream, launch_ns=45 * MS + 2_000)

    return {"edit": edit}


def alone(microseconds: int) -> Trace:
    """A gemm that runs under no communication, in the first chunk."""

    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        for process in processes:
            process.kernel("gemm", 12 * MS, 12 * MS + 1_000 * microseconds)

    return {"edit": edit}


def ring(_: TraceBuilder, processes: list[Process]) -> None:
    """Communication of another purpose on the stream of the expert exchange."""
    processes[1].range("layer00.stage1_f", 50 * MS, 51 * MS)
    processes[1].kernel("ncclDevKernel_SendRecv", 50 * MS, 51 * MS, stream=28, launch_ns=50 * MS)


def stray(_: TraceBuilder, processes: list[Process]) -> None:
    """Communication outside of every stage, on a stream of its own."""
    processes[1].kernel("ncclDevKernel_Broadcast", 50 * MS, 51 * MS, stream=77)


def synchronised(_: TraceBuilder, processes: list[Process]) -> None:
    processes[1].api("cudaDeviceSynchronize_v3020", 50 * MS, 51 * MS)


def synchronised_twice(trace: TraceBuilder, processes: list[Process]) -> None:
    synchronised(trace, processes)
    synchronised(trace, processes)


def copied(_: TraceBuilder, processes: list[Process]) -> None:
    number = processes[1].api("cudaMemcpyAsync_v3020", 50 * MS, 51 * MS)
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": number}
    copy = {"start": 51 * MS, "end": 52 * MS, "bytes": 4, "copyKind": 1, "srcKind": 0, "dstKind": 2}
    raw(processes[1], "CUPTI_ACTIVITY_KIND_MEMCPY", **copy, **place)


def held_back(microseconds: int, by: str = "") -> Trace:
    """A gemm of stage4_f that starts so long after the call returned that launched it, and why: ``copy``, ``wait`` for
    an all-to-all, or ``late``, a call that takes as long; an all-to-all beside it is no reason.
    """

    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        gpu, at = processes[0], 46 * MS + 100_000
        until = at + 30_000 + 1_000 * microseconds
        if by == "copy":
            gpu.memcpy(at + 30_000, until, stream=7, launch_ns=at)
        elif by != "late":
            gpu.kernel("ncclDevKernel_SendRecv", at + 30_000, until, stream=28, launch_ns=at)
        if by == "wait":
            gpu.stream_wait(at + 20_000, gpu.event_record(at + 10_000, stream=28), stream=7)
        length = 1_000 * microseconds + 5_000 if by == "late" else 5_000
        gpu.kernel("gemm", until, until + 1_000, launch_ns=at + 25_000, launch_length_ns=length)

    return {"edit": edit}


def two_stages(*stages_ms: tuple[int, int]) -> Trace:
    """Six units of work of 20 ms on each rank, whose stages take so long; the last one given goes on to the end."""

    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        for process in processes:
            for k in range(6):
                begin, (first_ms, second_ms) = 20 * MS * k + 1_000, stages_ms[min(k, len(stages_ms) - 1)]
                process.range("encode", begin, begin + first_ms * MS)
                process.range("decode", begin, begin + second_ms * MS, thread=7)

    return {"edit": edit, "chunks_ms": (15,) * 7}


PIPELINE = "pipeline: {stage0: encode, stage1: decode, warmup: 0}\n"


def reduced(*, start_us: int = 0, size_bytes: int = 1_000_000, calls: int = 1) -> Trace:
    """All ranks sum up what they have on stream 77, from 51 ms on until 52 ms; rank 1 is there ``start_us`` later."""

    def edit(trace: TraceBuilder, processes: list[Process]) -> None:
        nccl = NcclRanges(trace)
        for rank, process in enumerate(processes):
            nccl.communicator(process, 7, ranks=len(processes), rank=rank)
            for k in range(calls):
                at = 50 * MS + 10_000 * k
                nccl.call(process, "ncclAllReduce", at, at + 5_000, 7, size_bytes)
                start = 51 * MS + 2 * MS * k + 1_000 * start_us * rank
                end = 52 * MS + 2 * MS * k
                process.kernel("ncclDevKernel_AllReduce", start, end, stream=77, launch_ns=at + 1_000)

    return {"edit": edit}


def broadcast(size_bytes: int) -> Trace:
    """Besides the sum of 1 MB a broadcast, and nothing of an unknown size."""
    both = reduced()["edit"]

    def edit(trace: TraceBuilder, processes: list[Process]) -> None:
        both(trace, processes)
        nccl = NcclRanges(trace)
        for process in processes:
            nccl.call(process, "ncclBroadcast", 50 * MS + 9_000, 50 * MS + 9_900, 7, size_bytes)
            process.kernel("ncclDevKernel_Broadcast", 53 * MS, 54 * MS, stream=77, launch_ns=50 * MS + 9_500)

    return {"edit": edit, "stages": ()}


LONGER = {"chunks_ms": (15, 15, 16, 15, 15)}
BATCH = "workload: {steps: 1, samples: 6}\nrun: {sequence_length: 100}\n"
NETWORK = "workload: {peak: 2GB/s}\n"
WHOLE_STEPS = "convention: {extends: pithtrain, anchor: forward chunk%}\n"

METRIC_CASES = {
    "collective_bytes": Reds("AllReduce collective_bytes <= 1MB", reduced(size_bytes=1_000_001), reduced()),
    "collective_time_ns": Reds("AllReduce collective_time_ns <= 1ms", reduced(calls=2), reduced()),
    "busbw": Reds("group comm0 all_reduce min busbw >= 1GB/s", reduced(size_bytes=999_999), reduced()),
    "collective_wait_ns": Reds("collective_wait_ns <= 100us", reduced(start_us=101), reduced(start_us=100)),
    "step_time_ns": Reds("step_time_ns <= 15ms", LONGER, {}, BATCH),
    "samples_per_s": Reds("samples_per_s >= 400samples/s", LONGER, {}, BATCH),
    "tokens_per_s": Reds("tokens_per_s >= 40000tokens/s", LONGER, {}, BATCH),
    "comm_ns": Reds("comm_ns <= 1ms", added(("ncclDevKernel_SendRecv", 28, 5_000, 5_010)), {}),
    "exposed_ns": Reds("exposed_ns < 300us", exposed(700), {}),
    "overlap": Reds("overlap >= 60%", exposed(700), {}),
    "overlap_min": Reds("overlap_min >= 60%", exposed(700), {}),
    "overlap_max": Reds("overlap_max >= 60%", exposed(700), {}),
    "barrier_ns": Reds("no barrier_ns", added(("ncclDevKernel_AllReduce", 7, 5_000, 5_010)), {}),
    "compute_ns": Reds("compute_ns <= 1.6ms", added(("gemm", 7, 5_000, 5_010)), {}),
    "wall_exposed_ns": Reds("wall_exposed_ns <= 400us", exposed(201), {}),
    "wall_overlap": Reds("wall_overlap >= 80%", exposed(201), {}),
    "wall_exposed_all_ns": Reds(
        "wall_exposed_all_ns <= 400us", added(("ncclDevKernel_AllReduce", 7, 5_000, 5_010)), {}
    ),
    "wall_overlap_all": Reds("wall_overlap_all >= 80%", added(("ncclDevKernel_AllReduce", 7, 5_000, 5_010)), {}),
    "idle_ns": Reds("idle_ns <= 13ms", {"chunks_ms": (15, 15, 16, 15, 15)}, {}),
    "window_ns": Reds("window_ns <= 15ms", {"chunks_ms": (15, 15, 16, 15, 15)}, {}),
    "device_idle_ns": Reds("device_idle_ns <= 13ms", {"chunks_ms": (15, 15, 16, 15, 15)}, {}),
    "compute_absent_ns": Reds("compute_absent_ns <= 13.4ms", {"chunks_ms": (15, 15, 16, 15, 15)}, {}),
    "comm_alone_ns": Reds("comm_alone_ns <= 400us", added(("ncclDevKernel_AllReduce", 7, 5_000, 5_010)), {}),
    "launch_starved_ns": Reds("rank 0 launch_starved_ns <= 12.9ms", held_back(500, "late"), held_back(500)),
    "between_steps_ns": Reds("between_steps_ns <= 14ms", {"every_ms": 21}, {}, WHOLE_STEPS),
    "blocking_ns": Reds("blocking_ns of copy <= 100us", held_back(101, "copy"), held_back(100, "copy")),
    "dependency_stalled_ns": Reds("dependency_stalled_ns <= 104us", held_back(101), held_back(100)),
    "blocking_comm_ns": Reds("blocking_comm_ns of stage4_f <= 100us", held_back(101, "wait"), held_back(101)),
    "blocking_comm_max_ns": Reds("blocking_comm_max_ns <= 100us", held_back(101), held_back(101, "copy")),
    "overlap_tax_ns": Reds("overlap_tax_ns <= 50us", alone(700), alone(800)),
    "comm_streams": Reds("no mixed comm streams", {"edit": ring}, {}),
    "period_ns": Reds("p50 period_ns <= 20ms", {"every_ms": 21}, {}),
    "anchors": Reds("anchors >= 5", {"chunks_ms": (15,) * 4}, {}),
    "overlap_score": Reds("overlap_score >= 0.30", two_stages((18, 2)), two_stages((18, 10)), PIPELINE),
    "serialization": Reds("serialization <= 0.5", two_stages((15, 9)), two_stages((15, 10)), PIPELINE),
    "pipeline_stage_ns": Reds("stage1 pipeline_stage_ns <= 10ms", two_stages((15, 11)), two_stages((15, 10)), PIPELINE),
    "share": Reds("decode share <= 50%", two_stages((15, 11)), two_stages((15, 10)), "blocks: [decode]\n"),
    "launches": Reds("launches == 2", added(("gemm", 7, 5_000, 5_010)), {}),
    "syncs": Reds("no syncs", {"edit": synchronised}, {}),
    "kernel_launches": Reds("kernel_launches == 1", added(("gemm", 7, 5_000, 5_010)), {}),
    "kernel_share": Reds("gemm kernel_share <= 44.5%", added(("gemm", 7, 5_000, 5_010)), {}),
    "compute_on_comm_streams": Reds("no compute on comm streams", added(("gemm", 28, 5_000, 5_010)), {}),
    "pageable_copies": Reds("no pageable copies", {"edit": copied}, {}),
}


def allocated(mebibytes: int) -> Trace:
    """1 GiB from the start on, and so much more for a moment of the median window."""

    def edit(_: TraceBuilder, processes: list[Process]) -> None:
        for process in processes:
            allocate(process, 500, 1 << 30, address=1)
            allocate(process, 50 * MS, mebibytes << 20, address=2)
            free(process, 51 * MS, mebibytes << 20, address=2)

    return {"edit": edit}


def clocked(*megahertz: int) -> Trace:
    """The clock of each rank's GPU all the time."""

    def edit(trace: TraceBuilder, _: list[Process]) -> None:
        for gpu, clock in enumerate(megahertz):
            sm_clock(trace, *((MS * at, clock * 1_000_000) for at in range(100)), gpu=gpu)

    return {"edit": edit}


METRIC_CASES |= {
    "peak_allocated_bytes": Reds("peak_allocated_bytes <= 1.25GiB", allocated(257), allocated(256)),
    "sm_clock_mhz": Reds("sm_clock_mhz >= 1500MHz", clocked(1980, 1499), clocked(1980, 1500)),
    "family_ns": Reds("family_ns of gemm <= 1.6ms", added(("gemm", 7, 5_000, 5_010)), {}),
    "total_kernel_ns": Reds("total_kernel_ns <= 3.6ms", added(("tiny", 7, 5_000, 5_010)), {}),
    "step_minus_kernel_ns": Reds("step_minus_kernel_ns >= 16.4ms", added(("gemm", 7, 5_000, 5_010)), {}),
}

ONE, TWO = {(0, "stage2_f"): 700}, {(0, "stage2_f"): 700, (1, "stage4_f"): 700}
BOTH_STAGES = {(0, "stage2_f"): 700, (0, "stage4_f"): 700}
FOUR = {"ranks": 4, "label": "rank={rank}; pp={rank}/4 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"}


def rows(exposed_us: Mapping[tuple[int, str], int | None]) -> Trace:
    """Rows that are not the usual 200 us."""
    return {"exposed_us": exposed_us}


def measured(*values: float, unit: str = "GiB", better: str | None = None) -> Trace:
    """A value of each rank that stands beside the trace."""
    said = {"metric": "peak", "unit": unit, "better": better}
    return {"measured": [{**said, "value": value, "labels": {"rank": rank}} for rank, value in enumerate(values)]}


FORMS = {
    "measured": Reds("measured peak <= 72GiB", measured(70, 72.001), measured(70, 72)),
    "measured, in percent": Reds("measured peak >= 45%", measured(46, 44.9, unit="%"), measured(46, 45, unit="%")),
    "measured, where a rank": Reds("rank 1 measured peak <= 72GiB", measured(70, 73), measured(73, 72)),
    "measured, where a mesh axis": Reds("pp 1 measured peak <= 72GiB", measured(70, 73), measured(73, 72)),
    "measured, of ranks": Reds("measured peak of rank 1 <= 72GiB", measured(70, 73), measured(73, 72)),
    "measured, taken together": Reds("sum measured peak <= 140GiB", measured(70, 70.1), measured(80, 60)),
    "measured, balance": Reds("balance of measured peak across pp <= 1.2", measured(60, 73), measured(60, 72)),
    "measured, none": Reds("no measured peak", measured(0, 1, unit="count"), measured(0, 0, unit="count")),
    "measured, as keys": Reds("max over rank of measured peak <= 72GiB", measured(70, 73), measured(70, 72)),
    "measured, for": Reds(
        "{for: {rank: ['0', '1']}, assert: measured peak <= 72GiB}", measured(70, 73), measured(70, 72)
    ),
    "no X": Reds("no barrier_ns", added(("ncclDevKernel_AllReduce", 7, 5_000, 5_010)), {}),
    "no selector X": Reds("no unknown comm streams", {"edit": stray}, {}),
    "<": Reds("exposed_ns < 201us", rows({(1, "stage4_f"): 201}), {}),
    "<=": Reds("exposed_ns <= 200us", rows({(1, "stage4_f"): 201}), {}),
    ">": Reds("exposed_ns > 199us", rows({(1, "stage4_f"): 199}), {}),
    ">=": Reds("exposed_ns >= 200us", rows({(1, "stage4_f"): 199}), {}),
    "==": Reds("exposed_ns == 200us", rows({(1, "stage4_f"): 199}), {}),
    "!=": Reds("exposed_ns != 199us", rows({(1, "stage4_f"): 199}), {}),
    "below": Reds("exposed_ns below 201us", rows({(1, "stage4_f"): 201}), {}),
    "above": Reds("exposed_ns above 199us", rows({(1, "stage4_f"): 199}), {}),
    "at least": Reds("exposed_ns at least 200us", rows({(1, "stage4_f"): 199}), {}),
    "at most": Reds("exposed_ns at most 200us", rows({(1, "stage4_f"): 201}), {}),
    "a share of the step": Reds("exposed <= 1% of step", rows({(1, "stage4_f"): 201}), {"chunks_ms": (20,) * 5}),
    "a share of the step, over ranks": Reds(
        "min over rank of idle <= 86.7% of step", {"chunks_ms": (16,) * 5}, {"chunks_ms": (15,) * 5}
    ),
    "median": Reds("median exposed_ns <= 300us", rows(TWO), rows(ONE)),
    "mean": Reds("mean exposed_ns <= 400us", rows(TWO), rows(ONE)),
    "sum": Reds("sum exposed_ns <= 1.3ms", rows(TWO), rows(ONE)),
    "max": Reds("max exposed_ns <= 300us", rows(ONE), {}),
    "min": Reds("min exposed_ns <= 300us", exposed(700), rows(TWO)),
    "pNN": Reds("p75 exposed_ns <= 300us", rows(TWO), rows(ONE)),
    "a word and a fixed dimension": Reds("rank 0 mean exposed_ns <= 450us", rows(BOTH_STAGES), rows(TWO)),
    "where a rank": Reds("rank 1 exposed_ns <= 300us", rows({(1, "stage2_f"): 700}), rows(ONE)),
    "where a stage": Reds("stage2 exposed_ns <= 300us", rows(ONE), rows({(0, "stage4_f"): 700})),
    "where a glob": Reds("st*4_f exposed_ns <= 300us", rows(TWO), rows(ONE)),
    "where a mesh axis": Reds("pp 1 exposed_ns <= 300us", rows({(1, "stage2_f"): 700}), rows(ONE)),
    "balance": Reds("balance of compute_ns across pp <= 1.2", rows(BOTH_STAGES), {}),
    "pipeline, by the score alone": Reds(  # medians of 19 and 10 in 20 ms, but hardly a unit has both
        "pipeline overlap_score >= 0.30",
        two_stages((19, 1), (1, 19), (19, 1), (1, 19), (19, 19), (19, 1)),
        two_stages((18, 10)),
        PIPELINE,
    ),
    "pipeline, by the period alone": Reds(
        "pipeline overlap_score >= 0.30", two_stages((15, 9)), two_stages((15, 11)), PIPELINE
    ),
    "where": Reds(
        "{assert: exposed_ns <= 300us, where: {stage: [stage2_f], rank: [0]}}",
        rows(ONE),
        rows({(1, "stage2_f"): 700, (0, "stage4_f"): 700}),
    ),
    "across ranks": Reds(
        "sum over rank of exposed_ns <= 900us", rows({(0, "stage2_f"): 700, (1, "stage2_f"): 700}), rows(TWO)
    ),
    "across stages": Reds("sum over stage of exposed_ns <= 900us", rows(BOTH_STAGES), rows(TWO)),
    "across both in turn": Reds("max over rank of sum over stage of exposed_ns <= 900us", rows(BOTH_STAGES), rows(TWO)),
    "across a mesh axis": Reds("sum over pp of exposed_ns <= 1000us", {**FOUR, **rows({(2, "stage2_f"): 700})}, FOUR),
    "for": Reds("{for: {stage: [stage2_f, stage4_f]}, assert: exposed_ns <= 300us}", rows(ONE), {}),
    "window": Reds(
        "{assert: window_ns <= 15ms, window: first}",
        {"chunks_ms": (16, 15, 15, 15, 15)},
        {"chunks_ms": (15, 15, 16, 15, 15)},
    ),
    "span": Reds("{assert: window_ns <= 20ms, span: period}", {"every_ms": 21}, {}),
    "kernels": Reds("{assert: launches == 2, kernels: launched}", added(("gemm", 7, 30_000, 30_010)), {}),
}

HELD = {  # against the baseline of the usual trace: 200 us, 80 %
    "measured": Reds(
        "measured peak below baseline plus 1%", measured(70, 71.8), measured(70.7, 71.7), base=measured(70, 71)
    ),
    "measured, worse is more": Reds(
        "measured peak <= baseline + 1GiB",
        measured(71.1, 70, better="lower"),
        measured(71, 70, better="lower"),
        base=measured(70, 70, better="lower"),
    ),
    "measured, worse is less": Reds(
        "measured peak >= baseline - 1pp",
        measured(43.9, 45, unit="%", better="higher"),
        measured(44, 45, unit="%", better="higher"),
        base=measured(45, 45, unit="%", better="higher"),
    ),
    "measured, on both sides": Reds(
        "measured peak within 1% of baseline", measured(69, 70), measured(69.5, 70.5), base=measured(70, 70)
    ),
    "below baseline plus tolerance": Reds("exposed_ns below baseline plus tolerance", exposed(211), exposed(210)),
    "above baseline minus tolerance": Reds("overlap above baseline minus tolerance", exposed(241), exposed(240)),
    "<= baseline": Reds("exposed_ns <= baseline", exposed(201), {}),
    ">= baseline": Reds("overlap >= baseline", exposed(201), {}),
    "== baseline": Reds("exposed_ns == baseline", exposed(199), {}),
    "sequence == baseline": Reds("sequence == baseline", added(("gemm", 7, 5_000, 5_010)), exposed(300)),
    "no new kernels": Reds("no new kernels", added(("gelu", 7, 5_000, 5_010)), added(("gemm", 7, 5_000, 5_010))),
    "no vanished kernels": Reds("no vanished kernels", rows({(1, "stage4_f"): None}), added(("gelu", 7, 5_000, 5_010))),
    "no new or vanished kernels": Reds(
        "no new or vanished kernels above 2%", added(("gelu", 7, 5_000, 5_074)), added(("gelu", 7, 5_000, 5_073))
    ),
    "below baseline": Reds("exposed_ns below baseline", exposed(201), {}),
    "above baseline": Reds("overlap above baseline", exposed(201), {}),
    "at most baseline": Reds("exposed_ns at most baseline + 10%", exposed(221), exposed(220)),
    "at least baseline": Reds("overlap at least baseline - 1pp", exposed(211), exposed(210)),
    "a relative tolerance": Reds("exposed_ns <= baseline + 10%", exposed(221), exposed(220)),
    "an absolute tolerance": Reds("exposed_ns <= baseline + 50us", exposed(251), exposed(250)),
    "the larger of both": Reds("exposed_ns <= baseline + max(5%, 50us)", exposed(251), exposed(250)),
    "points": Reds("overlap >= baseline - 3pp", exposed(231), exposed(230)),
    "a word": Reds("max exposed_ns <= baseline + 50us", rows(ONE), exposed(250)),
    "the median": Reds("median exposed_ns <= baseline + 50us", rows(TWO), rows(ONE)),
    "balance": Reds(
        "balance of compute_ns across pp <= baseline + 10%", rows(BOTH_STAGES), rows({(0, "stage2_f"): 300})
    ),
    "pipeline, by its score": Reds(
        "pipeline overlap_score >= baseline - 0.05",
        two_stages((17, 10)),
        two_stages((18, 10)),
        PIPELINE,
        base=two_stages((18, 10)),
    ),
    "pipeline, by its period": Reds(
        "pipeline overlap_score >= baseline - 0.5",
        two_stages((15, 9)),
        two_stages((15, 11)),
        PIPELINE,
        base=two_stages((18, 10)),
    ),
    "baseline, more on both sides": Reds(
        "comm_ns within 5us of baseline",
        added(("ncclDevKernel_SendRecv", 28, 5_000, 5_006)),
        added(("ncclDevKernel_SendRecv", 28, 5_000, 5_005)),
    ),
    "baseline, less on both sides": Reds("overlap within 1pp of baseline", exposed(211), exposed(210)),
    "baseline across ranks": Reds("max over rank of exposed_ns <= baseline + 50us", rows(ONE), exposed(250)),
}


AGAINST_A_BASELINE_ALONE = {"sequence"}
"""Metrics that no constant fits: ``HELD`` has them."""


def opened(folder: Path, name: str, trace: Trace) -> NsysRun:
    """A trace, written into a folder, with what was measured beside it."""
    more = dict(trace)
    beside = folder / f"{name}.json"
    beside.write_text(json.dumps(more.pop("measured", {"x": 1})), encoding="utf-8")
    return open_run(write_trace(folder / f"{name}.sqlite", **more), measurements=beside)


def outcomes(folder: Path, case: Reds, trace: Trace, base: NsysRun | None = None) -> set[str]:
    """The outcomes of all assertions of a case."""
    gate = folder / "gate.nsys.yaml"
    gate.write_text(f"version: 1\ntolerance: {{rel: 5%}}\n{case.gate}\n", encoding="utf-8")
    with opened(folder, "run", trace) as run:
        return {str(verdict.outcome) for verdict in judge(gate, run, base)}


def test_every_metric_has_a_case() -> None:
    lacking = METRICS.keys() - METRIC_CASES.keys() - AGAINST_A_BASELINE_ALONE
    assert lacking == set(), "give each a sentence, a green trace and a red one in METRIC_CASES"


@pytest.mark.parametrize("case", [*METRIC_CASES.values(), *FORMS.values()], ids=[*METRIC_CASES, *FORMS])
def test_every_metric_and_every_form_of_a_constant(tmp_path: Path, case: Reds) -> None:
    assert outcomes(tmp_path, case, case.green) == {"passed"}
    assert "failed" in outcomes(tmp_path, case, case.red)


@pytest.mark.parametrize("case", HELD.values(), ids=HELD)
def test_every_form_of_a_baseline(tmp_path: Path, case: Reds) -> None:
    with opened(tmp_path, "base", case.base) as base:
        assert outcomes(tmp_path, case, case.green, base) == {"passed"}
        assert outcomes(tmp_path, case, case.red, base) == {"failed"}


@pytest.mark.parametrize("kind", ["metric", "constant", "baseline"])
def test_a_red_is_the_exit_code_of_pytest(project: Project, kind: str) -> None:
    case = {"metric": METRIC_CASES["anchors"], "constant": FORMS["pNN"], "baseline": HELD["the median"]}[kind]
    project.gated(case.gate, name="base.sqlite", **case.base)
    project.refresh("--nsys-trace=base.sqlite", code=None)
    project.trace(**case.green)
    project.pytest("--nsys-trace=run.sqlite", code=0)
    project.trace(**case.red)
    project.pytest("--nsys-trace=run.sqlite", code=1)


def test_for_makes_an_item_of_each(project: Project) -> None:
    project.gated("- {id: e, for: {stage: [stage2_f, stage4_f]}, assert: exposed_ns <= 300us}", ONE)
    cases = project.cases("--nsys-trace=run.sqlite", code=1)
    assert {name: case.state for name, case in cases.items()} == {
        "e[stage=stage2_f]": "failure",
        "e[stage=stage4_f]": "passed",
    }


def test_a_balance_is_held_against_the_worst_of_the_baseline(project: Project) -> None:
    """Where in the mesh the worst pair is may change from run to run."""

    def labels(_: TraceBuilder, processes: list[Process]) -> None:
        for rank, process in enumerate(processes):
            process.range(f"rank={rank}; pp={rank // 2}/2 dp=0/1 cp=0/1 ep={rank % 2}/2; mbs=1 seq=2048", 30, 40)

    project.gate("assertions:\n  - balance of compute_ns across pp <= baseline + 5%")
    project.trace("base.sqlite", exposed_us={(0, "stage2_f"): 500}, ranks=4, label=None, edit=labels)
    project.refresh("--nsys-trace=base.sqlite")
    project.trace(exposed_us={(1, "stage2_f"): 500}, ranks=4, label=None, edit=labels)
    project.pytest("--nsys-trace=run.sqlite", code=0)
    project.trace(exposed_us={(1, "stage2_f"): 700}, ranks=4, label=None, edit=labels)
    project.pytest("--nsys-trace=run.sqlite", code=1)
    project.result.stdout.fnmatch_lines(["  failed: above its limit"])
