"""Calls that launched work which is not on record: seen in every format with calls, and silent on whole traces."""

import sqlite3
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.fact_bounds import Bounds
from pytest_nsys.analysis.facts.fact import Weight
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.model import KernelsMode, LaunchKind, LaunchRecord
from pytest_nsys.traces.trace_files import open_trace
from tests.support.commands import run as command
from tests.support.commands import screen
from tests.support.measure import STEP, captures
from tests.support.reference_data import DATA, DUALPIPE
from tests.support.samples.builder import DRIVER_API, Process, TraceBuilder
from tests.support.samples.formats import ENDINGS, Format, write_one
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.odd_rows import graph_trace
from tests.support.samples.rocpd import RocpdBuilder

MS = 1_000_000
STEPS = 6
JUDGED = STEPS // 2
WITH_CALLS = (Format.NSYS, Format.KINETO, Format.ROCPD)
CALLED: Mapping[str, tuple[str, str, str]] = {
    "nsys": ("cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cudaGraphLaunch_v10000"),
    "kineto": ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaGraphLaunch"),
    "rocpd": ("hipLaunchKernel", "hipMemcpyAsync", "hipGraphLaunch"),
}
"""The calls of a format that launch a kernel, a copy and a graph."""

in_every_format = pytest.mark.parametrize("format", WITH_CALLS)


def steps(put: Callable[[Any, int, int], object]) -> Callable[[Any], None]:
    """Steps of a millisecond, in each of which ``put`` writes from a time on; a kernel ends each, so none is empty."""

    def written(gpu: Any) -> None:
        for number in range(STEPS):
            start = number * MS + 20_000
            gpu.range(f"step {number}", start - 5_000, start + 950_000)
            put(gpu, number, start)
            gpu.kernel("last", start + 930_000, start + 940_000, launch_ns=start + 920_000)

    return written


def judged(path: Path, *, metric: str = "compute_ns", kernels: str = "contained") -> tuple[list[str], list[str]]:
    """What is an error of the median step, and what is a warning beside it."""
    with captures(path, convention=STEP) as run:
        spec = run.make_spec("median", None, KernelsMode(kernels))
        found = run.list_facts(spec, Bounds(), METRICS[metric])
        errors = [fact.error for fact in found if fact.weight is Weight.ERROR]
        return errors, [fact.sentence for fact in found if fact.weight > Weight.NOTE]


def about_loss(lines: Collection[str]) -> list[str]:
    return [line for line in lines if "on record" in line or "did not record" in line]


def kernels(gpu: Any, format: str, start: int, count: int, lost: Collection[int] = ()) -> None:
    """Launches of which some have no kernel."""
    for i in range(count):
        at = start + 4_000 * i
        if i in lost:
            gpu.api(CALLED[format][0], at, at + 2_000)
        else:
            gpu.kernel("gemm", at + 3_000, at + 6_000, launch_ns=at)


@in_every_format
@pytest.mark.parametrize("mode", ["contained", "launched"])
def test_lost_kernels_of_a_step_are_an_error_that_names_the_first(tmp_path: Path, format: str, mode: str) -> None:
    def put(gpu: Any, _: int, start: int) -> None:
        kernels(gpu, format, start, 15, range(3, 15))

    path = write_one(tmp_path, format, steps(put))
    errors, warnings = judged(path, kernels=mode)
    words = "12 of 16 kernel launches of rank 0 in the judged steps have no kernel on record "
    first = f"({CALLED[format][0]} at 0.003032 s)"
    assert errors == [
        f"trace quality: {words}{first} (bound: at most 1%): what the profiler lost is missing in every figure; "
        "profile again with fewer steps or a larger buffer, or write quality: {launches_without_work: 75%} in the gate "
        "file"
    ]
    assert [line for line in about_loss(warnings) if line.startswith(words + first)]
    assert judged(path, metric="anchors")[0] == []


@in_every_format
def test_one_lost_kernel_of_many_is_a_doubt(tmp_path: Path, format: str) -> None:
    def put(gpu: Any, number: int, start: int) -> None:
        kernels(gpu, format, start, 200, [7] if number == JUDGED else ())

    errors, warnings = judged(write_one(tmp_path, format, steps(put)))
    assert errors == []
    (said,) = about_loss(warnings)
    assert said.startswith("1 of 201 kernel launches of rank 0 in the judged steps has no kernel on record")


@in_every_format
def test_nothing_is_said_of_a_whole_trace(tmp_path: Path, format: str) -> None:
    def put(gpu: Any, _: int, start: int) -> None:
        kernels(gpu, format, start, 8)
        gpu.memcpy(start + 40_000, start + 50_000)
        gpu.memset(start + 60_000, start + 61_000)
        replay(gpu, format, start + 100_000, 4)

    for mode in ("contained", "launched"):
        errors, warnings = judged(write_one(tmp_path, format, steps(put)), kernels=mode)
        assert (errors, about_loss(warnings)) == ([], [])


def replay(gpu: Any, format: str, start: int, nodes: int, *, graph: int | None = 3) -> None:
    """A replay of a graph of which so many kernels are on record."""
    number = gpu.api(CALLED[format][2], start, start + 3_000)
    for i in range(nodes):
        more: dict[str, Any] = {"correlation": number}
        if isinstance(gpu, Process):
            more |= {"graph_node": i + 1, "graph": graph}
        elif isinstance(gpu, KinetoBuilder):
            more |= {"graph node id": i + 1, **({} if graph is None else {"graph id": graph})}
        gpu.kernel("node", start + 5_000 + 2_000 * i, start + 6_000 + 2_000 * i, **more)


@in_every_format
def test_replays_without_kernels_are_an_error(tmp_path: Path, format: str) -> None:
    def put(gpu: Any, _: int, start: int) -> None:
        for i in range(12):
            replay(gpu, format, start + 50_000 * i, 8 if i < 2 else 0)

    (error,) = judged(write_one(tmp_path, format, steps(put)))[0]
    assert "10 of 12 graph replays of rank 0 in the judged steps have not all kernels on record" in error


@pytest.mark.parametrize("format", ["nsys", "kineto"])
@pytest.mark.parametrize("kept", [5, 13], ids=["26%", "65%"])
def test_replays_with_fewer_kernels_than_others_are_an_error(tmp_path: Path, format: str, kept: int) -> None:
    """In the judged step all of them: what is whole ran in another step."""

    def put(gpu: Any, number: int, start: int) -> None:
        for i in range(4):
            replay(gpu, format, start + 100_000 * i, kept if number == JUDGED else 20)
        replay(gpu, format, start + 500_000, 7, graph=8)

    (error,) = judged(write_one(tmp_path, format, steps(put)))[0]
    missing = f"{float(Fraction(4 * (20 - kept), 20)):g}"
    assert f"{missing} of 5 graph replays of rank 0 in the judged steps have not all kernels on record" in error


@in_every_format
def test_without_the_id_of_its_graph_a_replay_is_judged_by_having_any(tmp_path: Path, format: str) -> None:
    def put(gpu: Any, number: int, start: int) -> None:
        replay(gpu, format, start, 3 if number == JUDGED else 20, graph=None)

    errors, warnings = judged(write_one(tmp_path, format, steps(put)))
    assert (errors, about_loss(warnings)) == ([], [])


def test_a_graph_that_was_traced_whole_has_its_work(tmp_path: Path) -> None:
    errors, warnings = judged(write_one(tmp_path, "nsys", steps(lambda gpu, _, at: graph_trace(gpu, at, at + 9_000))))
    assert ["traced whole" in error for error in errors] == [True]
    assert about_loss(warnings) == []


@in_every_format
def test_lost_copies_are_an_error_and_lost_memsets_are_not(tmp_path: Path, format: str) -> None:
    def put(gpu: Any, _: int, start: int) -> None:
        gpu.memcpy(start + 40_000, start + 50_000)
        gpu.api(CALLED[format][1], start + 60_000, start + 62_000)
        gpu.api(CALLED[format][1].replace("Memcpy", "Memset"), start + 70_000, start + 72_000)

    (error,) = judged(write_one(tmp_path, format, steps(put)))[0]
    assert "1 of 2 copies of rank 0 in the judged steps has no copy on record" in error


@pytest.mark.parametrize("format", ["kineto", "rocpd"])
def test_copies_of_nothing_are_no_work(tmp_path: Path, format: str) -> None:
    def put(gpu: Any, _: int, start: int) -> None:
        number = gpu.api("hipMemcpyAsync", start, start + 2_000)
        if isinstance(gpu, KinetoBuilder):
            gpu.events[-1]["args"]["bytes"] = 0
        else:
            assert isinstance(gpu, RocpdBuilder)
            event = next(row["event_id"] for kind, row in gpu.rows if kind == "region" and row["id"] == number)
            gpu.insert("arg", event_id=event, position=2, type="size_t", name="sizeBytes", value="0")

    assert judged(write_one(tmp_path, format, steps(put)))[0] == []


def test_a_call_that_failed_launches_nothing(tmp_path: Path) -> None:
    path = write_one(tmp_path, "nsys", steps(lambda gpu, _, at: kernels(gpu, "nsys", at, 4, [2])))
    assert len(judged(path)[0]) == 1
    with closing(sqlite3.connect(path)) as file:
        ran = "SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL"
        file.execute(f"UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET returnValue = 700 WHERE correlationId NOT IN ({ran})")
        file.commit()
    assert judged(path) == ([], [])


@in_every_format
def test_what_a_thread_calls_while_it_captures_a_graph_launches_nothing(tmp_path: Path, format: str) -> None:
    launch, own = CALLED[format][0], CALLED[format][0].partition("Launch")[0]

    def put(gpu: Any, number: int, start: int, *, thread: int = 100) -> None:
        if number != JUDGED:
            return
        gpu.api(f"{own}StreamBeginCapture", start, start + 1_000, thread=100)
        gpu.api(launch, start + 10_000, start + 12_000, thread=thread)
        gpu.api(f"{own}StreamEndCapture", start + 20_000, start + 21_000, thread=100)
        kernels(gpu, format, start + 30_000, 1)

    assert judged(write_one(tmp_path, format, steps(put))) == ([], [])
    other = steps(lambda gpu, number, start: put(gpu, number, start, thread=101))
    (error,) = judged(write_one(tmp_path, format, other))[0]
    assert "1 of 3 kernel launches" in error


@pytest.mark.parametrize("format", ["nsys", "kineto"])
def test_a_call_of_the_driver_inside_one_of_the_runtime_is_the_same_launch(tmp_path: Path, format: str) -> None:
    def put(gpu: Any, _: int, start: int) -> None:
        for i in range(3):
            at = start + 20_000 * i
            gpu.api("cudaLaunchKernelExC", at, at + 9_000)
            if i == 2:
                gpu.api("cuLaunchKernelEx", at + 1_000, at + 8_000)
                continue
            if isinstance(gpu, Process):
                gpu.kernel("gemm", at + 10_000, at + 15_000, launch_ns=at + 1_000, launch_class=DRIVER_API)
            else:
                number = gpu.api("cuLaunchKernelEx", at + 1_000, at + 8_000, cat="cuda_driver")
                gpu.kernel("gemm", at + 10_000, at + 15_000, correlation=number)

    (error,) = judged(write_one(tmp_path, format, steps(put)))[0]
    assert "1 of 4 kernel launches of rank 0 in the judged steps has no kernel on record (cudaLaunchKernelExC" in error


def test_a_kernel_may_have_the_next_id_where_the_driver_was_not_traced(tmp_path: Path) -> None:
    def put(gpu: Process, _: int, start: int) -> None:
        for i in range(4):
            at = start + 20_000 * i
            number = gpu.api("cudaLaunchKernelExC_v11060", at, at + 3_000)
            inner = next(gpu._correlations)
            assert inner == number + 1
            if i < 3:
                gpu.kernel("nccl", at + 5_000, at + 9_000, correlation=inner)

    (error,) = judged(write_one(tmp_path, "nsys", steps(put)))[0]
    assert "1 of 5 kernel launches" in error


def test_a_call_that_is_written_twice_is_one(tmp_path: Path) -> None:
    def put(gpu: Process, _: int, start: int) -> None:
        for i in range(2):
            at = start + 20_000 * i
            number = gpu.api("cudaLaunchKernel_v7000", at, at + 3_000)
            gpu.api("cudaLaunchKernel", at, at + 3_000, event_class=67, correlation=number)
        gpu.kernel("gemm", start + 50_000, start + 60_000, correlation=number)

    (error,) = judged(write_one(tmp_path, "nsys", steps(put)))[0]
    assert "1 of 3 kernel launches" in error


@in_every_format
def test_what_came_after_the_last_recorded_kernel_is_told_as_outside(tmp_path: Path, format: str) -> None:
    """The profiler stopped in the judged step: nothing was lost on the way, and the step is not whole."""

    def written(gpu: Any) -> None:
        for number in range(STEPS):
            start = number * MS + 20_000
            gpu.range(f"step {number}", start - 5_000, start + 950_000)
            kernels(gpu, format, start, 10, () if number < JUDGED else range(4, 10) if number == JUDGED else range(10))

    errors, warnings = judged(write_one(tmp_path, format, written))
    assert [error for error in errors if "launches_without_work" in error] == []
    assert about_loss(warnings) == [
        "6 of 10 calls that launch work in the judged steps came before or after all recorded "
        "kernels: the profiler did not record all of it"
    ]


@in_every_format
def test_processes_that_launch_and_have_no_kernel_are_an_error(tmp_path: Path, format: str) -> None:
    def put(gpu: Any, number: int) -> None:
        for step in range(STEPS):
            start = step * MS + 20_000
            gpu.range(f"step {step}", start - 5_000, start + 950_000)
            kernels(gpu, format, start, 5, () if number == 0 else range(5))

    folder = tmp_path / "run"
    folder.mkdir()
    if format == Format.NSYS:
        trace = TraceBuilder()
        for number in range(4):
            put(trace.process(pid=1_000 + number), number)
        trace.write(folder / "run.sqlite")
    else:
        for number in range(4):
            pid = 1_000 + number
            gpu = RocpdBuilder(pid=pid) if format == Format.ROCPD else KinetoBuilder(rank=None, pid=pid)
            put(gpu, number)
            gpu.write(folder / f"{number}.{ENDINGS[Format(format)]}")
    with captures(folder, convention=STEP) as run:
        found = run.list_facts(run.make_spec("median"), Bounds(), METRICS["compute_ns"])
    (fact,) = (fact for fact in found if fact.weight is Weight.ERROR)
    assert fact.measurement.value == 3
    assert "processes 1001, 1002, 1003 launch kernels and have none on record (bound: at most 0)" in fact.error


def test_a_cut_says_what_its_trace_lost(tmp_path: Path) -> None:
    def put(gpu: Process, _: int, start: int) -> None:
        kernels(gpu, "nsys", start, 9, [2, 5])
        gpu.kernel("launched before the step", start + 60_000, start + 70_000, launch_ns=start - 12_000)

    path = write_one(tmp_path, "nsys", steps(put))
    convention = "--anchor=step%"
    for mode in ("contained", "launched"):
        cut = tmp_path / f"{mode}.sqlite.gz"
        command("cut", path, "-o", cut, convention, f"--kernels={mode}", code=0)
        shown = [[*screen(trace, convention, f"--kernels={mode}").doubts] for trace in (path, cut)]
        assert about_loss(shown[0])
        assert shown[0] == shown[1]


# On real traces

TRACES = sorted(path for path in DATA.rglob("*") if path.name.endswith((".json.gz", ".sqlite")))
SLICE, STOPPED = "h100_2gpu_1s.sqlite", "mfu_2gpu_before.sqlite"


def whole(path: Path) -> dict[int, tuple[LaunchRecord, ...]]:
    with closing(open_trace(path)) as trace:
        found = trace.launch_records({lane.global_pid: None for lane in trace.lanes()}, {})
    return {pid: tuple(records) for pid, records in (found or {}).items()}


@pytest.mark.reference
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
@pytest.mark.sampled(4)
def test_real_traces_lost_nothing(path: Path) -> None:
    records = [record for own in whole(path).values() for record in own]
    assert [record for record in records if record.unrecorded] == []
    outside = sum(record.outside_calls for record in records)
    calls = outside + sum(record.calls for record in records)
    share = {SLICE: "51%", STOPPED: "0%"}.get(path.name, "0%")
    assert f"{outside / (calls or 1):.0%}" == share
    assert bool(outside) is (path.name in (SLICE, STOPPED))


@pytest.mark.reference
def test_lost_rows_of_two_families_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "pp2_ep2.sqlite"
    path.write_bytes((DUALPIPE / "pp2_ep2.sqlite").read_bytes())
    with closing(sqlite3.connect(path)) as file:
        names = "SELECT id FROM StringIds WHERE value LIKE 'nvjet%' OR value = 'ncclDevKernel_SendRecv'"
        kernel = "CUPTI_ACTIVITY_KIND_KERNEL"
        file.execute(f"DELETE FROM {kernel} WHERE shortName IN ({names}) AND rowid % 4 <> 0")
        file.commit()
    found = whole(path)
    assert len(found) == 4
    for own in found.values():
        (record,) = (record for record in own if record.kind is LaunchKind.KERNEL)
        assert record.unrecorded > record.calls // 4


# Any share of any kind

ROWS = st.sets(st.integers(0, 13), max_size=14)
"""Which rows of the judged step are lost: 8 kernels, 2 copies, 4 nodes of a graph."""


def write_losing(folder: Path, format: str, lost: Collection[int], run: int) -> Path:
    def put(gpu: Any, number: int, start: int) -> None:
        gone = lost if number == JUDGED else ()
        kernel, copy, graph = CALLED[format]
        for i in range(8):
            at = start + 40_000 * i
            if i in gone:
                gpu.api(kernel, at, at + 2_000)
            else:
                gpu.kernel("gemm", at + 3_000, at + 23_000, launch_ns=at, stream=7 + i % 2)
        for i in (8, 9):
            at = start + 400_000 + 40_000 * i
            if i in gone:
                gpu.api(copy, at - 400_000, at - 399_000)
            else:
                gpu.memcpy(at - 380_000, at - 360_000, launch_ns=at - 400_000)
        number = gpu.api(graph, start + 600_000, start + 603_000)
        for i in range(10, 14):
            if i not in gone:
                at = start + 610_000 + 20_000 * (i - 10)
                more = {"graph_node": i, "graph": 3} if format == "nsys" else {"graph node id": i, "graph id": 3}
                gpu.kernel("node", at, at + 15_000, correlation=number, **more)

    (folder / str(run)).mkdir(exist_ok=True)
    return write_one(folder / str(run), format, steps(put))


def figures(path: Path) -> dict[str, Fraction]:
    with captures(path, convention=STEP) as run:
        each = {
            name: run.measure_rows(METRICS[name], run.make_spec("median")).rows
            for name in ("compute_ns", "device_idle_ns")
        }
        return {name: sum((Fraction(row.value) for row in own), Fraction()) for name, own in each.items()}


@pytest.mark.parametrize("format", ["nsys", "kineto"])
@pytest.mark.sampled(2)
def test_whatever_is_lost_no_figure_moves_in_silence(tmp_path_factory: pytest.TempPathFactory, format: str) -> None:
    folder = tmp_path_factory.mktemp(format)
    before, runs = figures(write_losing(folder, format, (), 0)), iter(range(1, 10_000))

    @given(ROWS)
    def holds(lost: set[int]) -> None:
        path = write_losing(folder, format, lost, next(runs))
        try:
            after = figures(path)
        except NsysError:  # which is an error of every item
            return
        moved = [name for name, value in before.items() if abs(after[name] - value) * 100 > value]
        errors, warnings = judged(path)
        assert bool(about_loss([*errors, *warnings])) is bool(lost)
        assert not moved or errors or warnings

    holds()
