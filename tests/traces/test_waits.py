"""Which call issued an operation, and for what does its stream wait? Alike in every format that says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from pytest_nsys.analysis.blocking import budget_of
from pytest_nsys.analysis.budget_facts import facts_of
from pytest_nsys.core.conventions import BUILT_IN
from pytest_nsys.core.model import NO_LAUNCH, NO_STREAM, KernelsMode, Stream, Trace
from pytest_nsys.core.operations import Place, StreamWait
from pytest_nsys.samples.builder import Process, TraceBuilder
from pytest_nsys.samples.jax import JaxBuilder
from pytest_nsys.samples.kineto import KinetoBuilder
from pytest_nsys.traces.opening import open_trace
from tests.support.measure import captures
from tests.support.reference_data import MORE
from tests.support.samples.formats import Format
from tests.support.samples.known_step import BLOCKS, COPIES, LATE, STALLS, write_known_step

Put = Callable[[Process | KinetoBuilder], None]


def written(folder: Path, format: str, put: Put) -> Trace:
    if format == "nsys":
        builder = TraceBuilder()
        put(builder.process())
        return open_trace(builder.write(folder / "run.sqlite"))
    trace = KinetoBuilder()
    put(trace)
    return open_trace(trace.write(folder / "run.json.gz"))


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
    assert unjoined.at.launch_ns == 4_500
    assert joined.recorded_at is not None
    assert (joined.stream, joined.recorded_on) == (Stream(0, 1, 7), Stream(0, 1, 20))
    assert (joined.at, joined.recorded_at.launch_ns) == (Place(5_000, numbers[1]), 4_000)


@pytest.mark.parametrize("format", ["nsys", "kineto"])
def test_where_no_wait_is_on_record_nothing_is_said_of_waits(tmp_path: Path, format: str) -> None:
    def put(gpu: Process | KinetoBuilder) -> None:
        gpu.kernel("gemm", 1_000, 2_000)
        gpu.event_record(4_000, stream=20)

    assert written(tmp_path, format, put).stream_waits() is None


def test_jax_has_no_record_of_waits(tmp_path: Path) -> None:
    trace = JaxBuilder()
    trace.kernel("gemm", 1_000, 2_000)
    assert open_trace(trace.write(tmp_path / "host.trace.json.gz")).stream_waits() is None


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


@pytest.mark.parametrize("window", ["median", "run"])
@pytest.mark.parametrize("kernels", KernelsMode)
def test_a_step_of_known_truth_is_the_same_in_both_formats(tmp_path: Path, window: str, kernels: KernelsMode) -> None:
    told = []
    for format, name in ((Format.NSYS, "run.sqlite"), (Format.KINETO, "run.json")):
        with captures(write_known_step(tmp_path / name, format), convention=BUILT_IN["pithtrain"]) as opened:
            (group,) = (run.measured(opened.spec(window, None, kernels)) for run in opened.runs)
            told += [facts_of(budget_of(measured)) for measured in group]
    assert told[0] == told[1]
    parts = {name: ns for name, ns in told[0]["blocking_ns"].items() if ns}
    assert (parts, told[0]["dependency_stalled_ns"]) == ({"collective": BLOCKS, "copy": COPIES}, STALLS)
    assert (told[0]["launch_starved_ns"], told[0]["waits_joined"], told[0]["at_least"]) == (LATE, 1, False)


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
    assert list(trace.launches(transfers)[lane]) == [200, 300]
    assert list(trace.launch_calls(trace.kernels({lane: None}))[lane].end_ns) == [130]


def test_a_copy_of_no_stream_is_on_none(tmp_path: Path) -> None:
    """On stream 0 it would be the producer of what runs there."""
    trace = KinetoBuilder()
    trace.kernel("gemm", 1_000, 2_000, stream=0)
    trace.memcpy(3_000, 4_000, stream=None)
    found = open_trace(trace.write(tmp_path / "run.json"))
    (transfers,) = (found.transfers(dict.fromkeys(found.lanes())) or {}).values()
    assert transfers.streams[transfers.stream[0]].number == NO_STREAM


EXPECTED = "budget_expected.json"


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
        joined = [wait for wait in own if wait.recorded_at is not None]
        assert (len(own), len(joined)) == (rank["waits"], rank["waits_joined"])
        kernels = trace.kernels({lane: None})
        calls = trace.launch_calls(kernels)[lane]
        assert calls.start_ns == trace.launches(kernels)[lane]
        assert all(start <= end for start, end in zip(calls.start_ns, calls.end_ns, strict=True))
