"""Which call issued an operation, and for what does its stream wait? Alike in every format that says so."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from pytest_nsys.analysis.budget.budget import build_budget_facts, measure_budget
from pytest_nsys.analysis.explain.budget_lines import BudgetFacts
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, CopyKind
from pytest_nsys.core.model import NO_LAUNCH, NO_STREAM, KernelsMode, Stream
from pytest_nsys.core.tables import LaunchPlace, StreamWait
from pytest_nsys.core.trace import Trace
from pytest_nsys.traces.copies_as_kernels import add_copies
from pytest_nsys.traces.sqlite import columns as sqlite_columns
from pytest_nsys.traces.trace_files import open_trace
from tests.support.measure import captures
from tests.support.one_process import OneProcess
from tests.support.reference_data import MORE
from tests.support.samples import schema
from tests.support.samples.builder import Process
from tests.support.samples.formats import Format, write_one
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.known_step import BLOCKS, COPIES, LATE, STALLS, write_known_step
from tests.support.samples.schema import CUDA_EVENT, SYNCHRONIZATION
from tests.support.sql import execute

Put = Callable[[Process | KinetoBuilder], object]


def written(folder: Path, format: str, put: Put) -> Trace:
    return open_trace(write_one(folder, format, put))


def waits_of(trace: Trace) -> Sequence[StreamWait]:
    (waits,) = (trace.stream_waits() or {}).values()
    return waits


@pytest.mark.parametrize("format", ["nsys", "kineto"])
def test_a_wait_stands_where_its_call_does_and_so_does_its_record(tmp_path: Path, format: str) -> None:
    numbers: list[int] = []

    def put(gpu: Process | KinetoBuilder) -> None:
        gpu.kernel("gemm", 1_000, 2_000, stream=7, launch_ns=100)
        numbers.append(gpu.event_record(4_000, stream=20))
        numbers.append(gpu.stream_wait(5_000, numbers[0], stream=7))
        gpu.stream_wait(4_500, stream=9)

    unjoined, joined = waits_of(written(tmp_path, format, put))
    assert unjoined[:1] + unjoined[2:] == (Stream(0, 1, 9), None, None)
    assert unjoined.place.launch_ns == 4_500
    assert joined.recorded_place is not None
    assert (joined.stream, joined.recorded_stream) == (Stream(0, 1, 7), Stream(0, 1, 20))
    assert (joined.place, joined.recorded_place.launch_ns) == (LaunchPlace(5_000, numbers[1]), 4_000)


@pytest.mark.parametrize("format", ["nsys", "kineto"])
def test_where_no_wait_is_on_record_nothing_is_said_of_waits(tmp_path: Path, format: str) -> None:
    def put(gpu: Process | KinetoBuilder) -> None:
        gpu.kernel("gemm", 1_000, 2_000)
        gpu.event_record(4_000, stream=20)

    assert written(tmp_path, format, put).stream_waits() is None


def test_jax_has_no_record_of_waits(tmp_path: Path) -> None:
    assert written(tmp_path, "jax", lambda gpu: gpu.kernel("gemm", 1_000, 2_000)).stream_waits() is None


@pytest.mark.parametrize("format", ["nsys", "kineto"])
def test_of_several_calls_of_a_kernel_the_earliest_says_all(tmp_path: Path, format: str) -> None:
    def put(gpu: Process | KinetoBuilder) -> None:
        gpu.kernel("gemm", 1_000, 2_000, correlation=5)
        gpu.kernel("gemm", 3_000, 4_000, launch=False)
        gpu.api("cudaLaunchKernel", 500, 900, thread=77, correlation=5)
        gpu.api("cudaLaunchKernel", 400, 600, thread=78, correlation=5)
        gpu.api("cudaLaunchKernel", 400, 500, thread=79, correlation=5)

    trace = written(tmp_path, format, put)
    (lane,) = trace.lanes()
    calls = trace.launch_calls(trace.kernels({lane: None}))[lane]
    assert [list(each) for each in calls] == [[400, NO_LAUNCH], [500, NO_LAUNCH], [79, 0]]


def of_two_streams(gpu: Process | KinetoBuilder) -> None:
    """Stream 7 waits for what 20 recorded."""
    gpu.kernel("ncclDevKernel_SendRecv", 1_000, 5_000, stream=20, launch_ns=100)
    gpu.stream_wait(300, gpu.event_record(200, stream=20), stream=7)
    gpu.kernel("gemm", 5_100, 6_000, stream=7, launch_ns=400)


JOINED = StreamWait(Stream(0, 1, 7), LaunchPlace(300, 3), Stream(0, 1, 20), LaunchPlace(200, 2))
UNJOINED = StreamWait(JOINED.stream, JOINED.place)
ELSEWHERE = JOINED._replace(stream=Stream(3, 1, 7), recorded_stream=Stream(3, 1, 20))
SYNC, EVENT, RUNTIME = SYNCHRONIZATION, CUDA_EVENT, schema.RUNTIME
TWICE = "INSERT INTO {0} SELECT * FROM {0}"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ((), [JOINED]),
        ((f"UPDATE {EVENT} SET eventId = 77, timestamp = 9000",), [JOINED]),
        ((f"UPDATE {SYNC} SET start = 0, end = 0",), [JOINED]),
        ((TWICE.format(SYNC), TWICE.format(EVENT)), [JOINED]),
        ((f"UPDATE {RUNTIME} SET eventClass = 67", TWICE.format(RUNTIME)), [JOINED]),
        ((TWICE.format(EVENT), f"UPDATE {EVENT} SET streamId = 9 WHERE rowid = 2"), [UNJOINED]),
        *(((f"UPDATE {SYNC} SET eventSyncId = {number}",), [UNJOINED]) for number in (0, -1, 2**32 - 1, 99, "NULL")),
        ((f"UPDATE {EVENT} SET eventSyncId = NULL",), [UNJOINED]),
        ((f"UPDATE {EVENT} SET globalPid = globalPid + 16777216",), [UNJOINED]),
        ((f"UPDATE {EVENT} SET correlationId = NULL",), [UNJOINED]),
        ((f"DELETE FROM {RUNTIME} WHERE start = 200",), [UNJOINED]),
        ((f"UPDATE {SYNC} SET correlationId = NULL",), [JOINED._replace(place=LaunchPlace(301, NO_LAUNCH))]),
        ((f"UPDATE {EVENT} SET streamId = 7",), [JOINED._replace(recorded_stream=Stream(0, 1, 7))]),
        ((f"UPDATE {EVENT} SET contextId = 5, deviceId = 1",), [JOINED._replace(recorded_stream=Stream(1, 5, 20))]),
        ((f"UPDATE {schema.KERNEL} SET deviceId = 3",), [ELSEWHERE]),
        ((f"UPDATE {schema.SYNC_TYPES} SET id = id + 10", f"UPDATE {SYNC} SET syncType = 12"), [JOINED]),
        ((f"DROP TABLE {schema.SYNC_TYPES}",), [JOINED]),
        ((f"DROP TABLE {EVENT}",), [UNJOINED]),
        ((f"ALTER TABLE {EVENT} DROP COLUMN eventSyncId",), [UNJOINED]),
        ((f"ALTER TABLE {SYNC} DROP COLUMN eventSyncId",), [UNJOINED]),
        ((f"ALTER TABLE {SYNC} DROP COLUMN contextId",), []),
        ((f"ALTER TABLE {SYNC} DROP COLUMN syncType",), []),
        ((f"UPDATE {SYNC} SET syncType = 3",), []),
        ((f"DROP TABLE {SYNC}",), []),
        ((f"DROP TABLE {RUNTIME}",), [UNJOINED._replace(place=LaunchPlace(301, 3))]),
    ],
)
@pytest.mark.parametrize("many_rows", [sqlite_columns.MANY_ROWS, 0], ids=["rows", "blocks"])
def test_what_joins_in_an_export_and_what_is_counted_as_unjoined(
    gpu: OneProcess, monkeypatch: pytest.MonkeyPatch, many_rows: int, changes: Sequence[str], expected: list[StreamWait]
) -> None:
    monkeypatch.setattr(sqlite_columns, "MANY_ROWS", many_rows)
    of_two_streams(gpu)
    path = Path(gpu)
    execute(path, *changes)
    found = open_trace(path).stream_waits()
    assert (found is None) is (not expected)
    assert [wait for waits in (found or {}).values() for wait in waits] == expected


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({}, JOINED),
        ({"stream": "7", "correlation": "3"}, JOINED),
        ({"wait_on_stream": -1}, UNJOINED),
        ({"wait_on_stream": "nowhere"}, UNJOINED),
        ({"wait_on_stream": None}, UNJOINED),
        *(({"wait_on_cuda_event_record_corr_id": number}, UNJOINED) for number in (-1, 99, None, "x", 1e300)),
        ({"wait_on_stream": 7}, JOINED._replace(recorded_stream=Stream(0, 1, 7))),
        ({"wait_on_stream": 99}, JOINED._replace(recorded_stream=Stream(0, 1, 99))),
        ({"wait_on_stream": 55}, JOINED._replace(recorded_stream=Stream(1, 1, 55))),
        ({"correlation": None}, JOINED._replace(place=LaunchPlace(301, NO_LAUNCH))),
    ],
)
def test_what_joins_in_a_trace_of_torch(tmp_path: Path, args: dict[str, object], expected: StreamWait) -> None:
    trace = KinetoBuilder()
    of_two_streams(trace)
    trace.kernel("elsewhere", 1_000, 2_000, device=1, stream=55)
    (wait,) = (event for event in trace.events if event["cat"] == "cuda_sync")
    wait["args"].update(args)
    trace.events.append(dict(wait))  # told twice, counted once
    for name, phase in (("Stream Wait Event", "i"), ("Context Sync", "X"), ("Event Sync", "X")):
        trace.events.append(wait | {"name": name, "ph": phase})
    assert waits_of(open_trace(trace.write(tmp_path / "run.json"))) == [expected]


@pytest.mark.parametrize("format", ["nsys", "kineto"])
def test_waits_in_a_circle_and_on_oneself_leave_a_budget_that_adds_up(tmp_path: Path, format: str) -> None:
    """Each stream waits for the other, and for itself, before either is told what it recorded."""

    def put(gpu: Process | KinetoBuilder) -> None:
        of_two_streams(gpu)
        first, second = gpu.event_record(500, stream=7), gpu.event_record(600, stream=20)
        for at, stream in ((450, 7), (550, 20), (650, 7), (660, 20)):
            for record in (first, second):
                gpu.stream_wait(at, record, stream=stream)
        gpu.kernel("gelu", 8_000, 9_000, stream=7, launch_ns=700)

    (budget,) = budgets(written(tmp_path, format, put).path, "generic", "run", KernelsMode.CLIPPED)
    parts = budget.launch_starved_ns + sum(budget.blocking_ns.values()) + budget.dependency_stalled_ns
    assert (budget.waits, budget.waits_joined, parts) == (9, 9, budget.compute_absent_ns)


def budgets(path: Path, convention: str, window: str, kernels: KernelsMode) -> list[BudgetFacts]:
    """The budget of each window."""
    with captures(path, convention=BUILT_IN_CONVENTIONS[convention]) as opened:
        groups = [run.load_windows(opened.make_spec(window, None, kernels)) for run in opened.runs]
        return [build_budget_facts(measure_budget(measured)) for group in groups for measured in group]


@pytest.mark.parametrize("window", ["median", "run"])
@pytest.mark.parametrize("kernels", KernelsMode)
def test_a_step_of_known_truth_is_the_same_in_both_formats(tmp_path: Path, window: str, kernels: KernelsMode) -> None:
    told: list[BudgetFacts] = []
    for format, name in ((Format.NSYS, "run.sqlite"), (Format.KINETO, "run.json")):
        told += budgets(write_known_step(tmp_path / name, format), "pithtrain", window, kernels)
    assert told[0] == told[1]
    parts = {name: ns for name, ns in told[0].blocking_ns.items() if ns}
    assert (parts, told[0].dependency_stalled_ns) == ({"collective": BLOCKS, "copy": COPIES}, STALLS)
    assert (told[0].launch_starved_ns, told[0].waits_joined, told[0].at_least) == (LATE, 1, False)


@pytest.mark.parametrize("format", ["nsys", "kineto"])
def test_copies_and_memsets_have_calls_too(tmp_path: Path, format: str) -> None:
    def put(gpu: Process | KinetoBuilder) -> None:
        gpu.kernel("gemm", 1_000, 2_000, launch_ns=100, launch_length_ns=30)
        gpu.memcpy(3_000, 4_000, launch_ns=200)
        gpu.memset(5_000, 6_000, launch_ns=300)

    trace = written(tmp_path, format, put)
    (lane,) = trace.lanes()
    transfers = trace.transfers({lane: None}) or {}
    assert [list(each) for each in trace.launch_calls(transfers)[lane]] == [[200, 300], [3_200, 3_300], [100, 100]]
    assert list(trace.launch_calls(transfers)[lane].start_ns) == [200, 300]
    assert list(trace.launch_calls(trace.kernels({lane: None}))[lane].end_ns) == [130]


@pytest.mark.parametrize("format", ["nsys", "kineto"])
def test_copies_that_communicate_have_calls_too_and_waits_are_passed_on(tmp_path: Path, format: str) -> None:
    def put(gpu: Process | KinetoBuilder) -> None:
        of_two_streams(gpu)
        gpu.memcpy(7_000, 8_000, kind=10, launch_ns=600)

    trace = written(tmp_path, format, put)
    whole = add_copies(trace, (CopyKind.PEER,))
    (lane,) = whole.lanes()
    calls = whole.launch_calls(whole.kernels({lane: None}))[lane]
    assert list(calls.start_ns) == [100, 400, 600]
    assert whole.stream_waits() == trace.stream_waits() is not None


def test_an_arrow_to_a_kernel_says_when_its_launch_began_and_no_more(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.kernel("gemm", 1_000, 2_000, correlation=7)
    trace.events.append({"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 7, "pid": 0, "tid": 0, "ts": 0.25})
    found = open_trace(trace.write(tmp_path / "run.json"))
    (calls,) = found.launch_calls(found.kernels(dict.fromkeys(found.lanes()))).values()
    assert [list(each) for each in calls] == [[250], [250], [0]]


def test_a_copy_of_no_stream_is_on_none(tmp_path: Path) -> None:
    """On stream 0 it would be the producer of what runs there."""
    trace = KinetoBuilder()
    trace.kernel("gemm", 1_000, 2_000, stream=0)
    trace.memcpy(3_000, 4_000, stream=None)
    found = open_trace(trace.write(tmp_path / "run.json"))
    (transfers,) = (found.transfers(dict.fromkeys(found.lanes())) or {}).values()
    assert transfers.streams[transfers.stream[0]].number == NO_STREAM


EXPECTED = "budget_by_moment_expected.json"


def _expected() -> Mapping[str, list[dict[str, object]]]:
    path = MORE / EXPECTED
    found = json.loads(path.read_text()) if path.exists() else {}
    return {name: ranks for name, ranks in found.items() if isinstance(ranks, list)}


@pytest.mark.reference
@pytest.mark.parametrize("name", sorted(_expected()) or [pytest.param("", marks=pytest.mark.skip("no ../shared"))])
def test_the_waits_of_real_traces_are_those_of_an_independent_count(name: str) -> None:
    trace = open_trace(MORE / name)
    found = trace.stream_waits() or {}
    for rank, lane in zip(_expected()[name], trace.lanes(), strict=True):
        own = [wait for wait in found[lane.global_pid] if wait.stream.device == lane.device]
        joined = [wait for wait in own if wait.recorded_place is not None]
        assert (len(own), len(joined)) == (rank["waits"], rank["waits_joined"])
        kernels = trace.kernels({lane: None})
        calls = trace.launch_calls(kernels)[lane]
        assert all(start <= end for start, end in zip(calls.start_ns, calls.end_ns, strict=True))
