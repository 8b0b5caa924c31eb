"""Does one gate file judge one and the same step alike, whichever profiler recorded it, with equal numbers?

A metric that is new in the registry is held to this without a word here. Where it fails because a format does not
record what the metric needs, :data:`CANNOT` says so; where the gate file has to state more, :data:`STATED` does.
"""

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_nsys.analysis.captures.cache import CaptureCache
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.model import KernelsMode, Label, Span, Value
from pytest_nsys.core.units import BARE, COUNT, HASH, RATIO, TIME
from pytest_nsys.gates.gate_file import load_gate_file
from tests.support.gates import ByName, Project
from tests.support.reports import report_of
from tests.support.samples.formats import KINETO_CLOCK_NS, Format, write_step
from tests.support.samples.step import Regression, StepShape

SHAPE = StepShape(pp=2, cp=2, ep=1, chunks=7, layers=2, kernels_per_stage=2, transfers_per_stage=2)
"""Four ranks: pipeline, ring and token exchange on streams of their own, and barriers on the compute stream."""

SLOWER = Regression(
    ranks=frozenset({3}),
    communication={"stage4_f": 1.6},
    compute={"stage3_b": 0.35},
    stream={"stage2_b": 36},
    extra_launches={"stage1_f": 4},
)

SIZED = (*("collective_bytes", "busbw", "collective_wait_ns"),)
WHY_NO_SIZES = {
    Format.NSYS: "sizes and groups stand in payloads of NCCL's ranges, which few exports have",
    Format.KINETO: "the arguments of a kernel say them where torch.distributed launched it, and nobody did here",
    Format.JAX: "XProf records no sizes and no groups",
    Format.ROCPD: "rocprofv3 records the calls of RCCL, and not how many ranks they are of",
}
WHY_NO_STATE = {
    "peak_allocated_bytes": "the step allocates nothing; tests/analysis/metrics/test_gpu_state.py has some that do",
    "sm_clock_mhz": "Nsight Systems alone samples clocks, and the step has no samples",
}
CANNOT: Mapping[tuple[str, Format], str] = {
    **{(metric, f): WHY_NO_SIZES[f] for metric in SIZED for f in Format},
    **{(metric, f): why for metric, why in WHY_NO_STATE.items() for f in Format},
    ("pageable_copies", Format.ROCPD): "rocprofv3 does not tell pinned from pageable memory",
}
"""What a format does not record, by metric and format. Collectives with sizes are a step of their own, below."""

CONVENTION = r"""
convention:
  anchor: forward chunk%backward chunk%
  setup: 'rank=(?P<rank>\d+); pp=(?P<pp>\d+)/(?P<pp_size>\d+) dp=(?P<dp>\d+)/(?P<dp_size>\d+)
    cp=(?P<cp>\d+)/(?P<cp_size>\d+) ep=(?P<ep>\d+)/(?P<ep_size>\d+);
    mbs=(?P<micro_batch>\d+) seq=(?P<sequence_length>\d+)'
  stage: '(?P<stage>stage[1-5]_[fbw])'
  purposes:
    ep_a2a: {stage: [stage2_*, stage4_*]}
    cp_ring: {stage: [stage1_*]}
    pp_p2p: {range: [pipeline send/recv]}
  kernels: launched
"""
STATED = """
run: {gpu: NVIDIA H100 80GB HBM3}
pipeline: {stage0: ['%stage2_f'], stage1: ['%stage3_b'], warmup: 0}
blocks: ['%stage3_f', '%stage3_w']
workload: {steps: 1, samples: 64, step_time: 15ms, peak: 400GB/s}
comparable_on: [convention, mesh, micro_batch, sequence_length, world, gpu, steps, anchor]
"""
ASSERTIONS = """
  - stage2 overlap >= 60%
  - no mixed comm streams
  - p90 of exposed_ns <= 1ms
  - balance of compute_ns across pp <= 1.2
  - {id: of the run, assert: idle_ns <= 20ms, window: run}
  - {id: of the period, assert: compute_ns >= 1ms, window: steady, span: period, kernels: clipped}
  - {assert: exposed_ns <= baseline, window: median}
  - compute_ns <= baseline
  - sequence == baseline
"""
FLOOR = {TIME: "1ns", RATIO: "50%", COUNT: "2", BARE: "0.5"}


ALONE = ("trace", "pid", "device", "context", "file", "gpu", "start_ns", "end_ns")
"""Columns that name the file, the process, the machine, and moments of its clock."""


VIEWS = (
    *product(("median",), Span, KernelsMode),
    *product(("0", "steady", "run"), [Span.RANGE], [KernelsMode.CONTAINED]),
    ("run", Span.RANGE, KernelsMode.CLIPPED),
)
"""Window, span and kernels of each comparison of numbers."""

NAMING = ("next_steps", "explanation", "notes")
"""Of an assertion: what holds the path of the trace (and else what the rows say), and the baseline's profiler."""


class Numbers(NamedTuple):
    """The rows of one metric, and the rows that some window lacks."""

    rows: Mapping[tuple[Label, ...], Value]
    missing: object


def gate_text(assertions: str = ASSERTIONS) -> str:
    return f"{CONVENTION}{STATED}assertions:{assertions}"


def floors() -> str:
    """One assertion for each metric that all formats can give."""
    able = [metric for metric in METRICS.values() if not any((metric.name, f) in CANNOT for f in Format)]
    chosen = [metric for metric in able if metric.unit != HASH]  # that one has no floor
    return "\n" + "\n".join(f"  - {metric.name} >= {FLOOR.get(metric.unit, f'1 {metric.unit}')}" for metric in chosen)


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the step in every format, good and with the regression."""
    folder = tmp_path_factory.mktemp("steps")
    for format in Format:
        write_step(folder / format, format, SHAPE)
        write_step(folder / f"slower-{format}", format, SHAPE, SLOWER)
    return folder


@pytest.fixture(scope="module")
def opened(steps: Path) -> Iterator[Mapping[Format, Captures]]:
    """The good step in every format, under the gate file's convention."""
    path = steps / "gate.nsys.yaml"
    path.write_text("version: 1\n" + gate_text())
    gate = load_gate_file(path)
    with closing(CaptureCache()) as library:
        yield {f: library.open_captures([f], steps, gate.resolved_convention, gate.workload) for f in Format}


@pytest.fixture(scope="module")
def of_whole_steps(opened: Mapping[Format, Captures], steps: Path) -> Iterator[Mapping[Format, Captures]]:
    """The same with anchors that are steps, and no parts of one."""
    with closing(CaptureCache()) as library:
        yield {
            f: library.open_captures([f], steps, own.convention.with_anchor("forward chunk%"))
            for f, own in opened.items()
        }


def numbers(captures: Captures, metric: str, window: str, span: Span, kernels: KernelsMode) -> Numbers:
    found = captures.measure_rows(METRICS[metric], captures.make_spec(window, span, kernels))
    return Numbers({row.labels: row.value for row in found.rows}, found.missing)


# -- numbers


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.sampled(3)
def test_numbers(opened: Mapping[Format, Captures], of_whole_steps: Mapping[Format, Captures], metric: str) -> None:
    opened = of_whole_steps if metric == "between_steps_ns" else opened
    able = [f for f in Format if (metric, f) not in CANNOT]
    some = len(able) < 2
    for window, span, kernels in VIEWS:
        found = {f: numbers(opened[f], metric, window, span, kernels) for f in Format}
        for f in able[1:]:
            assert found[f] == found[able[0]], (
                f"{metric} (window {window}, span {span}, kernels {kernels}) differs between {able[0]} and {f}: "
                f"the metric stands on what no reader promises (the order of kernels that start together), or a reader "
                f"is wrong; where {f} does not record what the metric needs, say what in CANNOT"
            )
        for f in Format:
            assert f in able or not found[f].rows, f"CANNOT says that {f} has no {metric}, but it has: take it out"
        some = some or bool(found[able[0]].rows)
    assert some, (
        f"{metric} has no row in any window of the step, so equal numbers prove nothing: state what it needs in STATED "
        "(pipeline, blocks, workload …), or give the step what it measures (tests/support/samples/step.py)"
    )


def test_the_table_of_what_cannot_be_had_names_metrics() -> None:
    assert {metric for metric, _ in CANNOT} <= METRICS.keys()


def test_windows_cut_kernels(opened: Mapping[Format, Captures]) -> None:
    """Else the three modes would be one."""
    for captures in opened.values():
        counts = {k: numbers(captures, "launches", "median", Span.RANGE, k).rows for k in KernelsMode}
        assert len({tuple(sorted(rows.items())) for rows in counts.values()}) == 3


def test_times_are_those_that_floats_lose(steps: Path) -> None:
    text = gzip.decompress((steps / "kineto" / "rank0_trace.json.gz").read_bytes()).decode()
    times = re.findall(r'"ts": (\d+\.\d{3})', text)
    assert {len(time) for time in times} == {20}  # 19 digits and the point
    assert sum(round(float(time) * 1000) != int(time.replace(".", "")) for time in times) > len(times) / 2
    assert len({int(time[-3:]) % 10 for time in times}) == 10
    assert KINETO_CLOCK_NS % 1000


# -- verdicts


def told(report: dict[str, Any]) -> Any:
    """What a report says of a run, without what its profiler alone tells: clocks and names of files."""
    (file,) = report["gate_files"]
    windows = [
        (how["measured_as"], w["rank"], w["name"], w["index"], w["count"], w["end_ns"] - w["start_ns"])
        for how in file["windows"]
        for w in how["windows"]
    ]
    assertions = [{key: value for key, value in a.items() if key not in NAMING} for a in file["assertions"]]
    return report["counts"], file["key"], windows, assertions


@pytest.mark.parametrize("run", ["slower-", pytest.param("", marks=pytest.mark.slow)])
def test_equal_verdicts(project: Project, steps: Path, run: str) -> None:
    project.gate(gate_text())
    project.refresh(f"--nsys-trace={steps / Format.NSYS}", code=0)
    project.gate(gate_text(ASSERTIONS + floors()))
    reports = {f: report_of(project, f"--nsys-trace={steps / (run + f)}", code=1) for f in Format}
    assert {"passed", "failed"} <= {a["outcome"] for a in told(reports[Format.NSYS])[3]}
    for f in Format:
        assert told(reports[f]) == told(reports[Format.NSYS])
    by_name = ByName({a["name"]: a["outcome"] for a in told(reports[Format.JAX])[3]})
    assert by_name["no mixed comm streams"] == ("failed" if run else "passed")
    assert by_name["exposed_ns <= baseline"] == ("failed" if run else "passed")


@pytest.mark.parametrize("command", ["--view=ranks", "--view=streams", "--view=overlap"])
@pytest.mark.sampled(3)
def test_equal_tables(project: Project, steps: Path, command: str) -> None:
    tables = []
    for f in Format:
        project.command(command, steps / f, "--convention=pithtrain", "--kernels=clipped", "--format=json", code=0)
        rows = json.loads(project.result.stdout.str())["rows"]
        rows.sort(key=lambda row: (row["rank"], row.get("stream", 0)))  # the reference's order is that of processes
        tables.append([{key: value for key, value in row.items() if key not in ALONE} for row in rows])
    assert tables == [tables[0]] * len(Format)
    assert len(tables[0]) >= SHAPE.world
    assert len(tables[0][0]) >= 4
