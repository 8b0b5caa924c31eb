"""What do the readers make of rows on the edge of a span, and of those that come twice? The readers alone."""

import json
from array import array
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from pytest_nsys.analysis.metrics.registry import MetricRequest
from pytest_nsys.core.conventions import CopyKind
from pytest_nsys.core.errors import TraceError, UsageMistake
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS, ImpossibleRows, Lane, Range
from pytest_nsys.core.model import Collective as CollectiveRecord
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces import trace_files
from pytest_nsys.traces.chrome import json_stream
from pytest_nsys.traces.chrome.events import Event, EventColumns, convert_column_to_ns, convert_to_ns
from pytest_nsys.traces.chrome.jax import JaxEvent, JaxLanes
from pytest_nsys.traces.chrome.kineto import KinetoProcess, KinetoTrace
from pytest_nsys.traces.chrome.kineto_metadata import (
    CollectiveArgs,
    _build_collective,
    parse_copy_memories,
    parse_distributed_info,
    read_gpu_models,
    read_torch_version,
)
from pytest_nsys.traces.nsys.collectives import BYTES_FIELD, LaunchPoint, PayloadRow, _ProcessCalls
from pytest_nsys.traces.nsys.memory import _read_call_starts
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from pytest_nsys.traces.profiler_messages import hide_names
from pytest_nsys.traces.sqlite import columns as sqlite_columns
from pytest_nsys.traces.sqlite.file import SqliteFile
from pytest_nsys.traces.trace_files import _choose_reader, find_duplicate_trace, find_traces, list_traces_in
from pytest_nsys.traces.trace_queries import EMPTY_CALL_TABLE, EarliestCalls
from tests.support.commands import answer
from tests.support.gates import write_trace
from tests.support.measure import captures, notes
from tests.support.one_process import OneProcess
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.odd_rows import raw
from tests.support.sql import execute

SPAN = (100, 200)


def starts(found: Kernels | None) -> list[int]:
    return [] if found is None else list(found.start_ns)


# Events of torch.profiler, in columns


def columns(*events: dict[str, Any]) -> EventColumns:
    found = EventColumns(Path("trace.json"))
    found.add_events(list(map(Event.from_json, events)))
    return found


def event(category: str, ts: object, dur: object = "1.000", **more: Any) -> dict[str, Any]:
    own = {"ph": "X", "cat": category, "name": "it", "pid": 5, "tid": 6, "ts": ts, "dur": dur}
    args = {"device": 0, "context": 1, "stream": 7, "correlation": 3}
    return {**own, "args": args if category != "user_annotation" else {}, **more}


def span_event(ts: str, dur: str) -> dict[str, Any]:
    return event("Trace", ts, dur, name="PyTorch Profiler (0)")


def window_end(ts: str) -> dict[str, Any]:
    return {"ph": "i", "name": "Record Window End", "ts": ts}


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_of_several_ends_of_the_recording_the_earliest_counts(order: Sequence[int]) -> None:
    """What came after the first of them may be missing."""
    ends = [window_end("30.000"), span_event("1.000", "19.000"), window_end("25.000")]
    assert columns(*(ends[i] for i in order)).recorded_until_ns == 20_000


def test_an_end_of_the_recording_that_is_no_time_says_nothing() -> None:
    assert columns(window_end("soon")).recorded_until_ns is None
    assert columns(window_end("soon"), span_event("1.000", "never")).recorded_until_ns is None
    assert columns(event("user_annotation", "1.000"), window_end("9.000")).recorded_until_ns == 9_000
    assert columns({"ph": "i", "name": "another instant", "ts": "1.000"}).recorded_until_ns is None


@pytest.mark.parametrize("beside", [(), ("1.0",)], ids=["in columns", "one by one"])
def test_a_range_that_ends_before_it_starts_is_damaged(beside: Sequence[str]) -> None:
    others = [event("user_annotation", ts, tid="a name") for ts in beside]
    with pytest.raises(TraceError, match=r"'it' at ts 5\.000 ends before it starts: damaged; profile again"):
        columns(*others, event("user_annotation", "5.000", "-0.001"))
    assert columns(*others, event("user_annotation", "5.000", "0.000")).ranges.end_ns[-1] == 5_000


@pytest.mark.parametrize("beside", [(), ("1.0",)], ids=["in columns", "one by one"])
def test_a_kernel_that_ends_before_it_starts_is_left_out(beside: Sequence[str]) -> None:
    others = [event("kernel", ts) for ts in beside]
    found = columns(*others, event("kernel", "5.000", "-0.001"), event("kernel", "6.000", "0.000"))
    assert list(found.kernels.start_ns) == [*(1_000 for _ in beside), 6_000]
    assert found.impossible == ImpossibleRows(1, "kernel it on stream 7: start 5000, end 4999")


@pytest.mark.parametrize("thread", [6, "6", "a thread"])
def test_a_range_is_the_same_in_columns_and_one_by_one(thread: object) -> None:
    found = columns(event("user_annotation", "5.000", "2.500", tid=thread))
    assert (list(found.ranges.start_ns), list(found.ranges.end_ns)) == ([5_000], [7_500])
    assert list(found.ranges.thread) == [-1 if thread == "a thread" else 6]
    assert found.range_pids == {5}


def test_ranges_without_an_end_are_open() -> None:
    begun = event("user_annotation", "5.000", ph="B")
    without = event("user_annotation", "6.000", None)
    assert list(columns(begun, without).ranges.end_ns) == [OPEN_END_NS, OPEN_END_NS]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_kernel_is_the_same_in_columns_and_one_by_one(one_by_one: bool) -> None:
    args = {"device": "0" if one_by_one else 0, "context": None, "stream": 7, "correlation": None, "graph node id": 4}
    found = columns(event("kernel", "5.000", "2.500", args=args), event("kernel", "6.000", "0.001"))
    assert (list(found.kernels.start_ns), list(found.kernels.end_ns)) == ([5_000, 6_000], [7_500, 6_001])
    assert list(found.kernels.correlation) == [NO_LAUNCH, 3]
    assert list(found.kernels.places) == [(0, 0, 7), (0, 1, 7)]
    assert list(found.kernels.place_number) == [0, 1]
    assert list(found.kernels.graph_node) == [1, 0]


def test_events_as_the_profiler_writes_them_go_through_column_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one gives the same, and takes ten times as long."""
    monkeypatch.setattr(EventColumns, "_read_span", lambda *_: pytest.fail("one by one"))
    some = [event(kind, f"{ts}.000") for kind in ("kernel", "cuda_runtime", "user_annotation") for ts in (5, 3)]
    found = columns(*some, event("kernel", "7.000", args={"device": 1, "stream": 9}), event("cpu_op", "9.000", pid=4))
    assert list(found.kernels.start_ns) == [5_000, 3_000, 7_000]
    assert list(found.kernels.end_ns) == [6_000, 4_000, 8_000]
    assert list(found.kernels.correlation) == [3, 3, NO_LAUNCH]
    assert (list(found.kernels.place_number), list(found.kernels.places)) == ([0, 0, 1], [(0, 1, 7), (1, 0, 9)])
    assert (list(found.calls.start_ns), list(found.calls.correlation), found.call_pids) == ([5_000, 3_000], [3, 3], {5})
    assert list(found.ranges.start_ns) == [5_000, 3_000, 9_000]
    assert list(found.ranges.end_ns) == [6_000, 4_000, 10_000]
    assert (list(found.ranges.thread), found.range_pids) == ([6, 6, 6], {4, 5})
    assert {*found.kernels.name_number, *found.calls.name_number, *found.ranges.name_number} == {0}
    assert found.names.list_names() == ["it"]


def test_processes_are_told_by_what_they_are_called() -> None:
    assert columns(event("cpu_op", "1.000", pid=8), event("cpu_op", "2.000", pid=1)).range_pids == {1, 8}
    odd = event("cpu_op", "1.0", pid="no number", tid="x")
    assert columns(odd).range_pids == {"no number"}


@pytest.mark.parametrize("one_by_one", [False, True])
def test_calls_have_their_start_and_correlation(one_by_one: bool) -> None:
    correlation: object = "3" if one_by_one else 3
    found = columns(
        event("cuda_runtime", "5.000", args={"correlation": correlation}), event("cuda_runtime", "6.000", args={})
    )
    assert (list(found.calls.start_ns), list(found.calls.correlation)) == ([5_000, 6_000], [3, NO_LAUNCH])
    with pytest.raises(TraceError, match="API call 'it' at ts soon has no time that can be read"):
        columns(event("cuda_runtime", "soon"))


def test_copies_are_those_of_a_known_device() -> None:
    found = columns(
        event("gpu_memcpy", "5.000", args={"device": 2, "correlation": 4}),
        event("gpu_memcpy", "6.000", pid=3, args={}),
        event("gpu_memcpy", "7.000", pid="a name", args={}),
        event("gpu_memcpy", "8.000", pid=1 << 31, args={}),
        event("gpu_memcpy", "9.000", ph="i"),
    )
    assert list(found.transfers.start_ns) == [5_000, 6_000, 8_000]
    assert [device for device, _, _ in found.transfers.places] == [2, 3, 1 << 31]
    assert list(found.transfers.correlation) == [4, NO_LAUNCH, NO_LAUNCH]


@pytest.mark.parametrize(
    ("value", "shown"), [([], "no number"), (True, "no number"), ("", "missing"), ("soon", "soon")]
)
def test_a_duration_that_is_none_is_shown(value: object, shown: str) -> None:
    with pytest.raises(TraceError, match=rf"kernel 'it' at ts 5\.000 has no duration that can be read \(dur {shown}\)"):
        columns(event("kernel", "5.000", value))


def test_a_lane_may_be_told_by_process_and_thread() -> None:
    found = columns(event("kernel", "5.000", pid="GPU 2", tid="stream 9", args={}))
    assert list(found.kernels.places) == [(2, 0, 9)]
    with pytest.raises(TraceError, match="runs on no known device and stream"):
        columns(event("kernel", "5.000", pid="GPU", tid="stream 9", args={}))


@pytest.mark.parametrize("category", ["kernel", "cuda_runtime", "user_annotation"])
def test_instants_and_metadata_are_nothing(category: str) -> None:
    found = columns(event(category, "5.000"), event(category, "6.000", ph="i"), event(category, "7.000", ph="M"))
    assert len(found.kernels.start_ns) + len(found.calls.start_ns) + len(found.ranges.start_ns) == 1


def test_a_time_beyond_every_clock_is_damaged() -> None:
    with pytest.raises(TraceError, match="lies outside of every clock"):
        columns(event("user_annotation", "9223372036854774.000", "2.000"))
    assert columns(event("user_annotation", "9223372036854774.000", "1.806")).ranges.end_ns[0] == OPEN_END_NS - 1


# One file of torch.profiler


def content(tmp_path: Path, trace: KinetoBuilder) -> KinetoProcess:
    (process,) = KinetoTrace(trace.write(tmp_path / "trace.json")).processes.values()
    return process


def kineto(tmp_path: Path, trace: KinetoBuilder) -> tuple[KinetoTrace, Lane]:
    """The trace, and its only lane."""
    opened = KinetoTrace(trace.write(tmp_path / "trace.json"))
    (lane,) = opened.lanes()
    return opened, lane


def at_the_edges(gpu: Process | KinetoBuilder) -> None:
    """Kernels and launches before, on and behind the edges of 100 to 200 ns."""
    spans = ((40, 99), (50, 100), (60, 101), (199, 300), (200, 301), (201, 302))
    for (start, end), launch_ns in zip(spans, (99, 100, 150, 199, 200, 201), strict=True):
        gpu.kernel("gemm", start, end, launch_ns=launch_ns)


def test_what_touches_a_span_is_in_it_edges_included(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    at_the_edges(trace)
    opened, lane = kineto(tmp_path, trace)
    assert starts(opened.kernels({lane: SPAN})[lane]) == [50, 60, 199, 200]
    assert starts(opened.kernels_launched({lane: SPAN})[lane]) == [50, 60, 199, 200]


def test_a_kernel_that_began_long_before_a_span_may_reach_into_it(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.kernel("long", 0, 100, launch_ns=0)
    trace.kernel("short", 10, 20, launch_ns=0)
    trace.kernel("late", 150, 160, launch_ns=0)
    opened, lane = kineto(tmp_path, trace)
    assert starts(opened.kernels({lane: SPAN})[lane]) == [0, 150]


def test_of_several_calls_of_one_correlation_the_earliest_counts(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.kernel("gemm", 500, 600, correlation=7)
    for start in (130, 90, 120):
        trace.api("cudaLaunchKernel", start, correlation=7)
    opened, lane = kineto(tmp_path, trace)
    (process,) = opened.processes.values()
    assert process.launches.build_start_map() == {7: 90}
    assert opened.kernels_launched({lane: SPAN}) == {}
    assert starts(opened.kernels_launched({lane: (0, 90)})[lane]) == [500]


def test_a_launch_that_no_call_tells_is_that_of_the_earliest_arrow(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    for number in (7, 8):
        trace.kernel("gemm", 500 * number, 500 * number + 1, correlation=number)
    trace.api("cudaLaunchKernel", 300, correlation=8)
    for number, start in ((7, 130), (7, 90), (7, 120), (8, 50), (9, 10)):
        trace.event("ac2g", "ac2g", start, start, ph="s", id=number)
    trace.event("ac2g", "ac2g", 5, 5, ph="f", id=7)
    found = content(tmp_path, trace).launches.find_calls(array("q", [6, 7, 8, 9]))
    assert list(found.start_ns) == [NO_LAUNCH, 90, 300, NO_LAUNCH]


def test_ranges_touch_a_span_with_their_edges_and_are_ordered_by_start_end_and_name(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    for name, start, end in (("c", 201, 300), ("b", 200, 300), ("z", 50, 100), ("y", 50, 100), ("x", 50, 99)):
        trace.range(name, start, end)
    opened = KinetoTrace(trace.write(tmp_path / "trace.json"))
    (pid,) = opened.processes
    assert [each.name for each in opened.ranges(["%"])[pid]] == ["x", "y", "z", "b", "c"]
    assert [each.name for each in opened.ranges_around({pid: SPAN})[pid]] == ["y", "z", "b"]


@pytest.mark.parametrize(
    ("base", "kernel", "begin", "started"),
    [
        (1_000, 50, 70, 1_050),
        (1_000, 90, 70, 1_070),
        (None, 50, 70, None),
        (None, 1_500_000_000_000_000_000, 1_420_070_400_000_000_000, 1_420_070_400_000_000_000),
        (None, 1_500_000_000_000_000_000, 1_420_070_399_999_999_999, None),
        (None, 4_102_444_800_000_000_000, 4_102_444_800_000_000_001, None),
        (None, 4_102_444_799_999_999_999, 4_102_444_800_000_000_000, 4_102_444_799_999_999_999),
    ],
)
def test_a_file_began_with_its_first_kernel_or_range(
    tmp_path: Path, base: int | None, kernel: int, begin: int, started: int | None
) -> None:
    trace = KinetoBuilder()
    if base is not None:
        trace.members["baseTimeNanoseconds"] = base
    trace.kernel("gemm", kernel + 200, kernel + 300, launch_ns=0)
    trace.kernel("gemm", kernel, kernel + 10, launch_ns=0, device=1)
    trace.range("later", begin + 5, begin + 9)
    trace.range("step", begin, begin + 10)
    assert content(tmp_path, trace).started_ns == started


def test_calls_of_two_processes_are_refused_and_ranges_of_two_are_not(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.range("other", 0, 10)
    trace.events[-1]["pid"] = 101
    trace.kernel("gemm", 50, 60, launch_ns=10)
    found = content(tmp_path, trace)
    assert (found.pid, found.global_pid) == (100, 100 << 24)
    trace.api("cudaLaunchKernel", 5, correlation=99)
    trace.events[-1]["pid"] = 101
    with pytest.raises(TraceError, match="holds API calls of 2 processes"):
        content(tmp_path, trace)


@pytest.mark.parametrize(("until", "whole"), [(None, True), (991, True), (990, False), (989, False)])
def test_a_last_step_that_ends_with_the_recording_is_incomplete(tmp_path: Path, until: int | None, whole: bool) -> None:
    trace = KinetoBuilder()
    for k in range(3):
        trace.range(f"ProfilerStep#{k}", 330 * k, 330 * k + 330)
        trace.kernel("gemm", 330 * k + 50, 330 * k + 60, launch_ns=330 * k + 5)
    if until is not None:
        trace.recorded_until(until)
    found = content(tmp_path, trace)
    assert (found.ranges.end_ns[-1] != OPEN_END_NS, bool(found.notes)) == (whole, not whole)
    assert list(found.ranges.end_ns[:2]) == [330, 660]


def lost_launches(tmp_path: Path, *steps: tuple[int, int]) -> KinetoProcess:
    """Steps of 1 us, each of so many launches of which so many ran no kernel."""
    trace = KinetoBuilder()
    for k, (launches, lost) in enumerate(steps):
        trace.range(f"ProfilerStep#{k}", 1_000 * k, 1_000 * k + 900)
        for i in range(launches):
            if i < lost:
                trace.api("cudaLaunchKernel", 1_000 * k + i)
            else:
                trace.kernel("gemm", 1_000 * k + 50 + i, 1_000 * k + 51 + i, launch_ns=1_000 * k + i)
    trace.api("cudaMemcpy", 1_000 * len(steps) - 500)
    trace.api("cudaLaunchKernel", 1_000 * len(steps) - 50)  # behind the last step: in none
    return content(tmp_path, trace)


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        (((8, 0), (8, 0), (8, 0)), None),
        (((8, 0), (8, 0), (8, 1)), "1 kernel launch of 8 ran no kernel"),
        (((8, 2), (8, 0), (8, 4)), None),  # twice what is usual
        (((8, 2), (8, 0), (8, 5)), "5 kernel launches of 8 ran no kernel"),
        (((8, 0), (10, 0), (4, 0)), None),  # half of the fewest
        (((10, 0), (8, 0), (4, 0)), None),
        (((8, 0), (10, 0), (3, 0)), "it launches 3 kernels, each step before it at least 8"),
    ],
)
def test_a_last_step_without_kernels_is_cut(tmp_path: Path, steps: Sequence[tuple[int, int]], why: str | None) -> None:
    found = lost_launches(tmp_path, *steps)
    path = tmp_path / "trace.json"
    notes = () if why is None else (f"{path}: the last step, ProfilerStep#2, is incomplete and left out: {why}",)
    assert found.notes == notes


def test_the_only_step_stays_though_it_is_incomplete(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.range("ProfilerStep#0", 0, 100)
    trace.kernel("gemm", 50, 60, launch_ns=5)
    trace.recorded_until(100)
    found = content(tmp_path, trace)
    assert list(found.ranges.end_ns) == [100]
    assert found.notes[0].endswith("the only step, ProfilerStep#0, is incomplete: the recording ended inside it")


def test_a_file_without_kernels_and_ranges_does_not_say_when_it_began(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    trace.members["baseTimeNanoseconds"] = 1_000
    trace.api("cudaMalloc", 5)
    assert content(tmp_path, trace).started_ns is None


@pytest.mark.parametrize(
    ("name", "memories"),
    [
        ("Memcpy HtoD (Pageable -> Device)", ("pageable", "device")),
        ("Memcpy DtoH (Device -> Pinned)", ("device", "pinned")),
        ("CopyHostToDevice (Host -> Device)", ("", "device")),
        ("Memset (Device)", ("", "")),
    ],
)
def test_a_copy_names_what_it_reads_and_writes(name: str, memories: tuple[str, str]) -> None:
    assert parse_copy_memories(name) == memories


def group(description: object, ranks: object) -> dict[str, object]:
    return {"pg_desc": description, "ranks": ranks}


@pytest.mark.parametrize(
    ("groups", "coordinates", "sizes"),
    [
        ([group("mesh_own", [0, 1, 2, 3])], {"own": 1}, {"own": 4}),
        (
            [group("mesh_tp", [1, 3]), group("mesh_pp", [0, 1]), group("mesh_own", [1, 2])],
            {"tp": 0, "pp": 1},
            {"tp": 2, "pp": 2},
        ),
        ([group("mesh_dp_shard", [0, 1, 2, 3]), group("mesh_dp_shard_cp", [1, 3])], {"dp_shard": 1}, {"dp_shard": 4}),
        ([group("mesh_dp", [1, 3])], {}, {"world": 4}),
        ([group(5, [1]), group("mesh_dp", 7), group("mesh_dp", [0, 2]), "odd"], {}, {"world": 4}),
        ([group("default", [0, 1, 2, 3])], {}, {"world": 4}),
        (None, {}, {"world": 4}),
    ],
)
def test_the_mesh_is_that_of_the_groups_where_they_span_the_world(
    groups: object, coordinates: dict[str, int], sizes: dict[str, int]
) -> None:
    found = parse_distributed_info({"distributedInfo": {"rank": 1, "world_size": 4, "pg_config": groups}})
    assert found is not None
    assert (found.rank, dict(found.coordinates), dict(found.sizes)) == (1, coordinates, sizes)


@pytest.mark.parametrize(
    ("info", "rank"),
    [({"rank": 3, "world_size": 4}, 3), ({"rank": 4, "world_size": 4}, 4), ({"rank": -1}, None), ({}, None), (5, None)],
)
def test_a_rank_is_a_number(info: object, rank: int | None) -> None:
    found = parse_distributed_info({"distributedInfo": info})
    assert (found.rank if found else None) == rank
    assert found is None or bool(found.sizes) == (rank == 3)


def test_a_device_has_a_model_where_its_number_and_name_are_known() -> None:
    devices = [7, {"id": 0, "name": 5}, {"id": True, "name": "A"}, {"name": "B"}, {"id": 2, "name": "H100"}, {"id": 3}]
    assert read_gpu_models({"deviceProperties": devices}) == {2: "H100"}
    for odd in ({}, {"deviceProperties": {"id": 0, "name": "A"}}, {"deviceProperties": 5}):
        assert read_gpu_models(odd) == {}


@pytest.mark.parametrize(
    ("members", "version"),
    [({"torch_version": "2.9", "schemaVersion": 1}, "2.9"), ({"schemaVersion": 1}, "1"), ({"schemaVersion": []}, None)],
)
def test_the_version_is_that_of_torch_or_of_its_layout(members: dict[str, object], version: str | None) -> None:
    assert read_torch_version(members) == version


def test_ranks_of_file_names_that_are_missing_are_told(tmp_path: Path) -> None:
    for number in (0, 2):
        trace = KinetoBuilder(None)
        trace.range("step", 0, 100)
        trace.kernel("gemm", 50, 60 + number, launch_ns=5)
        trace.write(tmp_path / "run" / f"rank{number}.json")
    told = "1 of 3 ranks is missing: no trace holds rank 1, though there is a rank 2; profile all ranks"
    assert told in notes(tmp_path / "run", "compute_ns", window="run")
    with captures(tmp_path / "run") as run, pytest.raises(TraceError, match="missing_ranks: 1"):
        run.measure(MetricRequest("compute_ns", run.make_spec("run")))


def test_kernels_of_two_devices_are_lanes_of_their_own(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    for i, device in enumerate((1, 0, 1, 0)):
        trace.kernel("gemm", 100 * i, 100 * i + 10, device=device)
    with closing(KinetoTrace(trace.write(tmp_path / "trace.json"))) as opened:
        lanes = opened.lanes()
        assert [lane.device for lane in lanes] == [0, 1]
        found = opened.kernels(dict.fromkeys(lanes))
        assert [starts(found[lane]) for lane in lanes] == [[100, 300], [0, 200]]


def test_kernels_that_start_together_are_ordered_by_their_end(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    for start, end in ((50, 60), (10, 30), (10, 20), (50, 55)):
        trace.kernel("gemm", start, end)
    (found,) = content(tmp_path, trace).kernels.values()
    assert list(zip(found.start_ns, found.end_ns, strict=True)) == [(10, 20), (10, 30), (50, 55), (50, 60)]


def test_kernels_of_two_devices_of_one_labelled_process_are_one_lane(tmp_path: Path) -> None:
    trace = KinetoBuilder()
    for i, device in enumerate((1, 0, 1, 0)):
        trace.kernel(f"gemm{i}", 100 * i, 100 * i + 10, device=device, stream=7 + i)
    with closing(KinetoTrace(trace.write(tmp_path / "trace.json"))) as opened:
        lane = Lane(opened.lanes()[0].global_pid, None)
        found = opened.kernels({lane: None})[lane]
        places = [found.streams[place] for place in found.stream]
        assert [(place.device, place.number) for place in places] == [(1, 7), (0, 8), (1, 9), (0, 10)]
        assert [found.names[name] for name in found.full_name] == ["gemm0", "gemm1", "gemm2", "gemm3"]


# An export of Nsight Systems


def opened(trace: OneProcess) -> NsysSqlite:
    return NsysSqlite(Path(trace))


@pytest.mark.parametrize("order", list(permutations((900, 300, 500))))
def test_of_several_session_starts_the_earliest_counts(gpu: OneProcess, order: Sequence[int]) -> None:
    gpu.kernel("gemm", 10, 20)
    for ns in (*order, None, 0, -5):
        gpu.trace.insert("TARGET_INFO_SESSION_START_TIME", utcEpochNs=ns)
    assert NsysSqlite(Path(gpu)).facts().started_ns == 300


NOON = 1_767_355_200_000_000_000


@pytest.mark.parametrize(
    ("starts", "zeros"),
    [
        ((NOON,), {None: NOON}),
        ((NOON, NOON), {None: NOON}),
        ((NOON, NOON + 1), {}),  # of which of its machines?
        ((5,), {}),
        ((1 << 62,), {}),
        (("noon",), {}),
        ((), {}),
    ],
)
def test_nsys_counts_from_its_session(gpu: OneProcess, starts: Sequence[int | str], zeros: dict[None, int]) -> None:
    gpu.kernel("gemm", 10, 20)
    for start in starts:
        gpu.trace.insert("TARGET_INFO_SESSION_START_TIME", utcEpochNs=start)
    assert NsysSqlite(Path(gpu)).facts().clock_zeros_ns == zeros


@pytest.mark.parametrize(
    ("base", "at", "zeros"),
    [
        (NOON, 10, {None: NOON}),
        (NOON, -(10**18), {}),  # what began before its clock was made
        (None, NOON, {None: 0}),  # before there was such a member times counted from 1970
        (None, 10, {}),
        ("noon", 10, {}),
        (5, 10, {}),
    ],
)
def test_torch_profiler_counts_from_its_base(tmp_path: Path, base: object, at: int, zeros: dict[None, int]) -> None:
    trace = KinetoBuilder()
    trace.kernel("gemm", at, at + 10)
    if base is not None:
        trace.members["baseTimeNanoseconds"] = base
    assert KinetoTrace(trace.write(tmp_path / "trace.json")).facts().clock_zeros_ns == zeros


@pytest.mark.parametrize(
    ("durations", "session_ns"),
    [((5, 9, 7), 9), ((5,), 5), ((), None), ((5, "damaged"), None), ((5, 0), None), ((0,), None)],
)
def test_of_several_sessions_the_longest_counts_where_each_is_known(
    gpu: OneProcess, durations: Sequence[int | str], session_ns: int | None
) -> None:
    gpu.kernel("gemm", 10, 20)
    for duration in durations:
        gpu.trace.insert("ANALYSIS_DETAILS", globalVid=0, duration=duration, startTime=0, stopTime=0)
    if not durations:
        gpu.trace.insert("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1)
    assert NsysSqlite(Path(gpu)).facts().session_ns == session_ns


def two_processes() -> tuple[TraceBuilder, list[Lane]]:
    """Two processes with the same kernels."""
    trace = TraceBuilder()
    processes = [trace.process(pid=pid) for pid in (100, 101)]
    for process in processes:
        at_the_edges(process)
    return trace, [Lane(process.global_pid, None) for process in processes]


def test_an_export_gives_what_touches_or_was_launched_in_a_span_edges_included(tmp_path: Path) -> None:
    trace, lanes = two_processes()
    run = NsysSqlite(trace.write(tmp_path / "trace.sqlite"))
    spans = {lanes[0]: SPAN, lanes[1]: (50, 98)}
    touching = run.kernels(spans)
    assert [starts(touching.get(lane)) for lane in lanes] == [[50, 60, 199, 200], [40, 50, 60]]
    launched = run.kernels_launched(spans)
    assert [starts(launched.get(lane)) for lane in lanes] == [[50, 60, 199, 200], []]
    whole = run.kernels({lanes[0]: None, lanes[1]: SPAN})
    assert len(starts(whole[lanes[0]])) == 6


def test_a_kernel_between_those_that_were_launched_in_a_span_is_not_one_of_them(gpu: OneProcess) -> None:
    for correlation, launch_ns in ((7, 110), (8, 90), (9, 120)):
        gpu.kernel("gemm", correlation, 300, correlation=correlation, launch_ns=launch_ns)
    lane = Lane(gpu.global_pid, None)
    assert starts(opened(gpu).kernels_launched({lane: SPAN})[lane]) == [7, 9]


def test_processes_that_nobody_asked_for_are_told(tmp_path: Path) -> None:
    trace, lanes = two_processes()
    run = NsysSqlite(trace.write(tmp_path / "trace.sqlite"))
    run.kernels({lanes[0]: (0, 45)})
    assert run.list_unrequested_processes() == {lanes[1].global_pid}


def test_of_several_rows_of_one_correlation_id_the_earliest_is_the_launch(tmp_path: Path) -> None:
    process = TraceBuilder().process()
    other = process.trace.process(pid=101)
    process.kernel("gemm", 500, 600, launch=False, correlation=7)
    for start in (130, 90, 120):
        process.api("cudaLaunchKernel_v7000", start, start + 5, correlation=7)
    other.api("cudaLaunchKernel_v7000", 10, 15, correlation=7)  # another process's id says nothing
    lane = Lane(process.global_pid, None)
    run = NsysSqlite(process.trace.write(tmp_path / "trace.sqlite"))
    kernels = run.kernels({lane: None})
    assert list(run.launch_calls(kernels)[lane].start_ns) == [90]
    assert starts(run.kernels_launched({lane: (115, 125)}).get(lane)) == [500]


def test_calls_of_one_correlation_id_are_one_call_and_those_without_are_their_own(gpu: OneProcess) -> None:
    for name, start, correlation in (("cudaB", 150, 7), ("cudaA", 120, 7), ("cudaC", 130, 7), ("cudaD", 120, 8)):
        gpu.api(name, start, start + 5, correlation=correlation)
    for start in (100, 200, 99, 201):
        raw(gpu, "CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=start + 1, correlationId=None, nameId=1, eventClass=0)
    found = opened(gpu).api_calls(["cuda*"], {gpu.global_pid: SPAN})
    assert found is not None
    names = [(call.start_ns, call.name) for call in found[gpu.global_pid]]
    assert [each for each in names if each[1] in ("cudaA", "cudaC", "cudaD")] == [(120, "cudaA"), (120, "cudaD")]
    assert [start for start, _ in names] == [100, 120, 120, 200]


def test_no_such_call_is_nothing_and_no_table_of_calls_is_unknown(tmp_path: Path) -> None:
    trace = TraceBuilder()
    process = trace.process()
    process.kernel("gemm", 10, 20)
    assert NsysSqlite(trace.write(tmp_path / "trace.sqlite")).api_calls(["hip*"], {process.global_pid: SPAN}) == {}
    without = TraceBuilder()
    process = without.process()
    process.kernel("gemm", 10, 20, launch=False)
    assert NsysSqlite(without.write(tmp_path / "b.sqlite")).api_calls(["cuda*"], {process.global_pid: SPAN}) is None


def test_ranges_of_an_export_are_ordered_by_start_end_and_name(gpu: OneProcess) -> None:
    for name, start, end, registered in (
        ("step c", 50, 90, False),
        ("step b", 50, 90, True),
        ("step d", 50, 80, False),
        ("step a", 40, None, True),
        ("stop", 10, 20, False),
    ):
        gpu.range(name, start, end, registered=registered)
    found = opened(gpu).ranges(["step%"])[gpu.global_pid]
    assert [each.name for each in found] == ["step a", "step d", "step b", "step c"]
    assert found[0] == Range(40, OPEN_END_NS, found[0].thread, "step a")


def test_ranges_around_a_span_touch_it_and_are_none_of_nccl(gpu: OneProcess) -> None:
    for name, start, end in (("a", 50, 99), ("b", 50, 100), ("c", 200, 300), ("d", 201, 300), ("e", 10, None)):
        gpu.range(name, start, end)
    gpu.range("f", 150, 160, registered=True)
    for registered in (False, True):
        gpu.range("ncclAllReduce", 120, 130, registered=registered)
    found = opened(gpu).ranges_around({gpu.global_pid: SPAN})[gpu.global_pid]
    assert [each.name for each in found] == ["e", "b", "f", "c"]


def test_many_rows_pass_with_one_process_before_the_other(gpu: OneProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_columns, "MANY_ROWS", 100)
    for _ in range(2):
        for at in (-90, -80, *range(0, 1000, 10)):
            gpu.range("step", at, at + 5)
    with closing(SqliteFile(Path(gpu))) as file:
        found = [sqlite_columns.has_many_rows(file, "NVTX_EVENTS", f"start <= {end}") for end in (-100, 99, 495, 5000)]
    assert found == [False, False, True, True]


@pytest.mark.parametrize("ids", [(5, 6, 9), (5, 1 << 40, -(1 << 40)), (5,)])
def test_of_all_calls_the_earliest_of_the_correlations_that_were_asked_for_counts(ids: Sequence[int]) -> None:
    asked = EarliestCalls(array("q", [*ids, NO_LAUNCH, ids[0]]))
    assert list(asked.correlations) == sorted(ids)
    assert asked.build_table() == EMPTY_CALL_TABLE
    for start, end in ((30, 31), (10, 40), (10, 15), (20, 21), (10, 16)):
        asked.add_calls(
            array("q", [*ids, 77, NO_LAUNCH]), *(array("q", [each] * (len(ids) + 2)) for each in (start, end, end))
        )
    found = asked.build_table().find_calls(array("q", ids))
    assert [*zip(*found, strict=True)] == [(10, 15, 15)] * len(ids)
    others = array("q", [min(ids) - 1, max(ids) + 1, 77, NO_LAUNCH])
    assert list(asked.build_table().find_starts(others)) == [NO_LAUNCH] * 4


@pytest.mark.parametrize(
    "pieces", [["1.500", "2.000"], ["1.5", "2"], ["1.500", "2"], [b"1.500", b"2.000"], ['"1.5"', "2"]]
)
def test_a_column_of_times_is_exact_however_they_are_written(pieces: list[object]) -> None:
    assert convert_column_to_ns(pieces) == [1_500, 2_000]
    assert convert_column_to_ns([1, 2]) == [1_000, 2_000]


_NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{3}|\.[0-9]{1,4})?([eE][+-]?[0-9])?", fullmatch=True)


_EXACT = st.from_regex(r"-?(0|[1-9][0-9]{0,14})\.[0-9]{3}", fullmatch=True)

_WHOLE = st.from_regex(r"-?(0|[1-9][0-9]{0,14})", fullmatch=True)


@given(st.lists(_NUMBERS, max_size=4) | st.lists(_EXACT, max_size=4) | st.lists(_WHOLE, max_size=4))
@example(["0.512", "-0.500", "0.000", "12.001"])
@example(["1.500", "2.0005", "1e3"])
@example(["12", "0", "-7"])
@example(["12", "", "3,4"])
@example(["-"])
@example(["1.000e3", "1.50e00", "15.e3"])
def test_a_column_of_times_is_that_of_each(pieces: list[str]) -> None:
    assert _all_or_none(lambda: convert_column_to_ns(pieces)) == _all_or_none(lambda: list(map(convert_to_ns, pieces)))
    raw = [Raw(piece.encode()) for piece in pieces]
    assert _all_or_none(lambda: convert_column_to_ns(raw)) == _all_or_none(lambda: list(map(convert_to_ns, raw)))


def _all_or_none(read: Callable[[], list[int]]) -> list[int] | None:
    try:
        return read()
    except ValueError:
        return None


# What names a collective, a copy, and a file


def test_a_kernel_that_no_call_of_nccl_launched_has_no_collective() -> None:
    """Though its thread has calls: one before, one after, and one inside of which it does not start."""
    calls = _ProcessCalls(
        [PayloadRow(start, end, 1, "ncclAllReduce", {BYTES_FIELD: 8}) for start, end in ((10, 20), (40, 50))]
    )
    assert (
        calls.find_collectives([LaunchPoint(at, 1) for at in (9, 21, 39, 51)] + [LaunchPoint(15, 2), None])
        == [None] * 6
    )
    at_edges = calls.find_collectives([LaunchPoint(10, 1), LaunchPoint(50, 1)])
    assert [each is not None and each.name for each in at_edges] == ["ncclAllReduce"] * 2


def test_a_record_of_torch_is_what_it_says_in_text_and_whole_numbers() -> None:
    unset: dict[str, Any] = {"group_description": None, "group_name": None, "ranks": None, "group_size": None}
    sizes: dict[str, Any] = {"in_elements": 3, "out_elements": True, "dtype": ""}
    bare = _build_collective(CollectiveArgs(name="allreduce", **unset, **sizes))
    assert bare == CollectiveRecord("allreduce", in_elements=3)
    named = unset | {"group_name": "3", "group_size": -1}
    assert _build_collective(CollectiveArgs(name="x", **named, **sizes))[1:4] == ("3", "3 None", None)
    listed = unset | {"ranks": "[0, 1]", "group_description": "mesh_dp", "group_size": 2}
    assert _build_collective(CollectiveArgs(name="x", **listed, **sizes))[1:4] == ("mesh_dp", "None [0, 1]", 2)
    undefined = named | {"group_description": "undefined"}
    assert _build_collective(CollectiveArgs(name="x", **undefined, **sizes)).group == "3"


def test_of_several_calls_of_one_copy_the_earliest_is_its_launch(gpu: OneProcess) -> None:
    gpu.kernel("gemm", 1, 2)
    for start in (130, 110, 120):
        gpu.api("cudaMemcpyAsync", start, start + 5, correlation=7)
    with closing(SqliteFile(Path(gpu))) as file:
        found = _read_call_starts(file, {Lane(gpu.global_pid, 0): (100, 115), Lane(gpu.global_pid, 1): (118, 200)})
    assert found == {gpu.global_pid: {7: 110}}


def test_two_folders_are_the_same_trace_where_all_of_their_files_are(tmp_path: Path) -> None:
    for name, second in (("a", b"22"), ("b", b"23"), ("c", b"22")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.parquet").write_bytes(b"11")
        (tmp_path / name / "two.parquet").write_bytes(second)
    a, b, c = (tmp_path / name for name in "abc")
    assert find_duplicate_trace([[a], [b]]) is None
    assert find_duplicate_trace([[a], [b], [c]]) == (a, c)


def test_traces_of_one_size_are_not_all_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"rank{number}.sqlite" for number in range(30)]
    for number, path in enumerate(paths):
        path.write_bytes(b"the same head" * 10_000 + number.to_bytes(2) * 10_000)
    compared: list[Path] = []
    monkeypatch.setattr(trace_files, "_have_same_bytes", lambda *pair: compared.extend(pair))
    assert find_duplicate_trace([path] for path in paths) is None
    assert compared == []
    paths[-1].write_bytes(paths[0].read_bytes())
    monkeypatch.undo()
    assert find_duplicate_trace([path] for path in paths) == (paths[0], paths[-1])


@pytest.mark.parametrize(
    ("content", "reader"),
    [
        (b"\x1f\x8b\x08", "_open_json_trace"),
        (b"{}  ", "_open_json_trace"),
        (b"[1]", "_open_json_trace"),
        (b"SQLite", "_open_sqlite"),
        (b"", "_open_sqlite"),
    ],
)
def test_a_file_of_any_name_is_read_as_its_first_bytes_say(tmp_path: Path, content: bytes, reader: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    assert _choose_reader(path).__name__ == reader


@pytest.mark.parametrize("rest", [b" " * 900, b" " * 900 + b"{}", b"\n" * 70 + b"]"])
def test_behind_its_end_a_file_has_only_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: bytes) -> None:
    for name in ("BLOCK", "FIRST_WINDOW"):
        monkeypatch.setattr(json_stream, name, 64)
    path = tmp_path / "a.json"
    path.write_bytes(b'{"traceEvents": [{"ph": "X"}]}' + rest)
    if rest.isspace():
        assert sum(map(len, json_stream.EventStream(path, Event))) == 1
    else:
        with pytest.raises(TraceError, match="goes on after its end"):
            list(json_stream.EventStream(path, Event))


def test_among_events_of_jax_only_objects_count(tmp_path: Path) -> None:
    lanes, path = JaxLanes(0), tmp_path / "a.json"
    named = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:3"}}
    path.write_text(json.dumps([named, 5, "text", ["list"], {}]))
    assert [lanes.convert_events(events) for events in json_stream.EventStream(path, JaxEvent)] == [[]]
    assert lanes.gpu_devices == {1: 3}


def test_an_export_without_texts_and_strings_has_no_ranges(gpu: OneProcess) -> None:
    gpu.range("step 0", 10, 20)
    path = Path(gpu)
    execute(path, "ALTER TABLE NVTX_EVENTS DROP COLUMN text")
    assert NsysSqlite(path).ranges(["step%"]) == {}


def test_of_a_message_the_names_of_its_trace_are_hidden() -> None:
    assert hide_names("failed on Alpha7: no events, alpha", {"alpha7"}) == "failed on …: no events, alpha"
    assert hide_names("no events were lost", ()) == "no events were lost"


@pytest.mark.parametrize(("phase", "copies"), [("X", 1), ("i", 0), ("M", 0)])
def test_of_copies_only_those_with_a_length_are_kernels(tmp_path: Path, phase: str, copies: int) -> None:
    trace = KinetoBuilder()
    place = {"device": 0, "context": 1, "stream": 7}
    trace.event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1_000, 2_000, pid=0, tid=7, args=place)
    trace.events[-1]["ph"] = phase
    found = content(tmp_path, trace).select_copies({CopyKind.HOST_TO_DEVICE})
    assert sum(map(len, found.values())) == copies


def test_a_folder_without_a_trace_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageMistake, match=r"\(\*\.sqlite, .*\*\.nsys-rep, .*\*\.json\.gz, \*_results\.db\)"):
        find_traces(str(tmp_path), Path())


def test_a_folder_is_searched_for_suffixes_of_two_parts(tmp_path: Path) -> None:
    for name in ("run.kernels.csv", "run.csv"):
        (tmp_path / name).touch()
    assert list_traces_in(tmp_path, (".sqlite", ".kernels.csv")) == [tmp_path / "run.kernels.csv"]


@pytest.mark.parametrize(
    "table", ["StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"]
)
def test_a_view_is_read_like_the_table_that_it_stands_for(tmp_path: Path, table: str) -> None:
    path, tables_alone = write_trace(tmp_path / "run.sqlite"), tmp_path / "tables.sqlite"
    tables_alone.write_bytes(path.read_bytes())
    execute(path, f"ALTER TABLE {table} RENAME TO hidden", f"CREATE VIEW {table} AS SELECT * FROM hidden")
    asked = ("rows", "exposed_ns", "--kernels=launched")
    assert answer(*asked, f"--trace={path}")["rows"] == answer(*asked, f"--trace={tables_alone}")["rows"]
