"""Is there, for every metric and every form of sentence, a trace that turns it red? A gate needs one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pytest_nsys.metrics import METRICS
from pytest_nsys.samples.builder import Process, TraceBuilder
from tests.gates import MS, Project

Trace = dict[str, Any]
"""What a trace has other than the usual: keywords of :func:`tests.gates.write_trace`."""


@dataclass(frozen=True)
class Reds:
    """A sentence that holds on ``green`` and fails on ``red``."""

    sentence: str
    red: Trace
    green: Trace


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


METRIC_CASES = {
    "comm_ns": Reds("comm_ns <= 1ms", added(("ncclDevKernel_SendRecv", 28, 5_000, 5_010)), {}),
    "exposed_ns": Reds("exposed_ns < 300us", exposed(700), {}),
    "overlap": Reds("overlap >= 60%", exposed(700), {}),
    "overlap_min": Reds("overlap_min >= 60%", exposed(700), {}),
    "overlap_max": Reds("overlap_max >= 60%", exposed(700), {}),
    "barrier_ns": Reds("no barrier_ns", added(("ncclDevKernel_AllReduce", 7, 5_000, 5_010)), {}),
    "compute_ns": Reds("compute_ns <= 1.6ms", added(("gemm", 7, 5_000, 5_010)), {}),
    "stream_compute_ns": Reds("stream 7 stream_compute_ns <= 1.6ms", added(("gemm", 7, 5_000, 5_010)), {}),
    "wall_exposed_ns": Reds("wall_exposed_ns <= 400us", exposed(201), {}),
    "stage_wall_exposed_ns": Reds("stage_wall_exposed_ns <= 200us", exposed(201), {}),
    "wall_overlap": Reds("wall_overlap >= 80%", exposed(201), {}),
    "wall_exposed_all_ns": Reds(
        "wall_exposed_all_ns <= 400us", added(("ncclDevKernel_AllReduce", 7, 5_000, 5_010)), {}
    ),
    "wall_overlap_all": Reds("wall_overlap_all >= 80%", added(("ncclDevKernel_AllReduce", 7, 5_000, 5_010)), {}),
    "busy_ns": Reds("busy_ns <= 2ms", added(("gemm", 7, 5_000, 5_010)), {}),
    "idle_ns": Reds("idle_ns <= 13ms", {"chunks_ms": (15, 15, 16, 15, 15)}, {}),
    "window_ns": Reds("window_ns <= 15ms", {"chunks_ms": (15, 15, 16, 15, 15)}, {}),
    "overlap_tax_ns": Reds("overlap_tax_ns <= 50us", alone(700), alone(800)),
    "comm_streams": Reds("no mixed comm streams", {"edit": ring}, {}),
    "compute_streams": Reds("compute_streams <= 1", added(("gemm", 9, 5_000, 5_010)), {}),
    "period_ns": Reds("p50 period_ns <= 20ms", {"every_ms": 21}, {}),
    "anchors": Reds("anchors >= 5", {"chunks_ms": (15,) * 4}, {}),
    "window_typicality": Reds("window_typicality <= 1", {"chunks_ms": (15, 14, 19, 16, 15)}, {}),
    "launches": Reds("launches == 2", added(("gemm", 7, 5_000, 5_010)), {}),
    "mean_kernel_ns": Reds("mean_kernel_ns >= 900us", added(("tiny", 7, 5_000, 5_001)), {}),
    "gpu_gap_ns": Reds("gpu_gap_ns <= 3.2ms", exposed(201), {}),
    "syncs": Reds("no syncs", {"edit": synchronised}, {}),
}

ONE, TWO = {(0, "stage2_f"): 700}, {(0, "stage2_f"): 700, (1, "stage4_f"): 700}
BOTH_STAGES = {(0, "stage2_f"): 700, (0, "stage4_f"): 700}
FOUR = {"ranks": 4, "label": "rank={rank}; pp={rank}/4 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"}


def rows(exposed_us: dict[tuple[int, str], int]) -> Trace:
    """Rows that are not the usual 200 us."""
    return {"exposed_us": exposed_us}


FORMS = {
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
    "where": Reds(
        "{metric: exposed_ns, where: {stage: [stage2_f], rank: ['0']}, require: <= 300us}",
        rows(ONE),
        rows({(1, "stage2_f"): 700, (0, "stage4_f"): 700}),
    ),
    "across ranks": Reds(
        "{metric: exposed_ns, across: {rank: sum}, require: <= 900us}",
        rows({(0, "stage2_f"): 700, (1, "stage2_f"): 700}),
        rows(TWO),
    ),
    "across stages": Reds(
        "{metric: exposed_ns, across: {stage: sum}, require: <= 900us}", rows(BOTH_STAGES), rows(TWO)
    ),
    "across both in turn": Reds(
        "{metric: exposed_ns, across: {stage: sum, rank: max}, require: <= 900us}", rows(BOTH_STAGES), rows(TWO)
    ),
    "across a mesh axis": Reds(
        "{metric: exposed_ns, across: {pp: sum}, require: <= 1000us}",
        {**FOUR, **rows({(2, "stage2_f"): 700})},
        FOUR,
    ),
    "for": Reds("{for: {stage: [stage2_f, stage4_f]}, metric: exposed_ns, require: <= 300us}", rows(ONE), {}),
    "balance as a key": Reds("{metric: compute_ns, balance: pp, require: <= 1.2}", rows(BOTH_STAGES), {}),
    "window": Reds(
        "{assert: window_ns <= 15ms, window: first}",
        {"chunks_ms": (16, 15, 15, 15, 15)},
        {"chunks_ms": (15, 15, 16, 15, 15)},
    ),
    "span": Reds("{assert: window_ns <= 20ms, span: period}", {"every_ms": 21}, {}),
    "kernels": Reds("{assert: launches == 2, kernels: launched}", added(("gemm", 7, 30_000, 30_010)), {}),
}

HELD = {  # against the baseline of the usual trace: 200 us, 80 %
    "below baseline plus tolerance": Reds("exposed_ns below baseline plus tolerance", exposed(211), exposed(210)),
    "above baseline minus tolerance": Reds("overlap above baseline minus tolerance", exposed(241), exposed(240)),
    "<= baseline": Reds("exposed_ns <= baseline", exposed(201), {}),
    ">= baseline": Reds("overlap >= baseline", exposed(201), {}),
    "== baseline": Reds("exposed_ns == baseline", exposed(199), {}),
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
    "baseline, worse is more": Reds("{metric: exposed_ns, baseline: {abs: 50us}}", exposed(251), exposed(250)),
    "baseline, worse is less": Reds("{metric: overlap, baseline: {abs: 1pp}}", exposed(211), exposed(210)),
    "baseline, more on both sides": Reds(
        "{metric: comm_ns, baseline: {abs: 5us}}",
        added(("ncclDevKernel_SendRecv", 28, 5_000, 5_006)),
        added(("ncclDevKernel_SendRecv", 28, 5_000, 5_005)),
    ),
    "baseline, less on both sides": Reds("{metric: mean_kernel_ns, baseline: {abs: 5us}}", exposed(211), exposed(210)),
    "baseline, of the file's tolerance": Reds("{metric: exposed_ns, baseline: {}}", exposed(211), exposed(210)),
    "baseline across ranks": Reds(
        "{metric: exposed_ns, across: {rank: max}, baseline: {abs: 50us}}", rows(ONE), exposed(250)
    ),
}


def judged(project: Project, trace: Trace) -> set[str]:
    """The outcomes of all items."""
    project.trace(**trace)
    return {c.properties["nsys_outcome"] for c in project.cases("--nsys-trace=run.sqlite").values()}


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric(project: Project, metric: str) -> None:
    case = METRIC_CASES[metric]
    project.gate(f"- {case.sentence}")
    assert judged(project, case.green) == {"passed"}
    assert "failed" in judged(project, case.red)
    assert project.result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_constant(project: Project, form: str) -> None:
    case = FORMS[form]
    project.gate(f"- {case.sentence}")
    assert judged(project, case.green) == {"passed"}
    assert "failed" in judged(project, case.red)
    assert project.result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("form", HELD)
def test_every_form_of_a_baseline(project: Project, form: str) -> None:
    case = HELD[form]
    project.gate(f"tolerance: {{rel: 5%}}\nassertions:\n  - {case.sentence}")
    project.trace("base.sqlite")
    project.refresh("--nsys-trace=base.sqlite")
    assert judged(project, {}) == {"passed"}
    assert judged(project, case.green) == {"passed"}
    assert judged(project, case.red) == {"failed"}
    assert project.result.ret == pytest.ExitCode.TESTS_FAILED


def test_for_makes_an_item_of_each(project: Project) -> None:
    project.gate("- {id: e, for: {stage: [stage2_f, stage4_f]}, metric: exposed_ns, require: <= 300us}")
    project.trace(exposed_us=ONE)
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
