"""Is the time of a window on the GPU split by what ran, to the nanosecond? Held against ticks counted one by one."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_nsys.analysis.budget.budget import build_budget_facts, measure_budget
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, CopyKind
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import Interval, KernelsMode, Lane, Value
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from pytest_nsys.traces.trace_files import open_trace
from tests.support.measure import captures, rows, rows_of, why
from tests.support.one_process import OneProcess
from tests.support.reference_data import MORE
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.formats import Format, write_one
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.odd_rows import graph_trace
from tests.support.sql import execute

BUDGET = ("device_idle_ns", "compute_absent_ns", "comm_alone_ns")
PLAIN = replace(BUILT_IN_CONVENTIONS["generic"], anchor="step%")
NCCL = "ncclDevKernel_SendRecv"


class Ran(NamedTuple):
    """One piece of work on a GPU, by what it is: ``compute``, ``comm``, ``peer``, ``copy`` or ``memset``."""

    what: str
    start_ns: int
    end_ns: int
    stream: int
    launch_ns: int


def write(format: Format, folder: Path, work: list[Ran]) -> Path:
    """One step with this work; rocprofv3 has kernels for memsets, and a copy within the GPU stands for them."""

    def put(gpu: Any) -> None:
        gpu.range("step", 0, 100)
        for what, start, end, stream, launch in work:
            if what in ("compute", "comm"):
                gpu.kernel("gemm" if what == "compute" else NCCL, start, end, stream=stream, launch_ns=launch)
            elif what == "memset" and format != Format.ROCPD:
                gpu.memset(start, end, stream=stream, launch_ns=launch)
            else:
                kind = {"peer": 10, "memset": 8}.get(what, 1)
                gpu.memcpy(start, end, kind=kind, stream=stream, launch_ns=launch)

    return write_one(folder, format, put)


Write = Callable[[Path, list[Ran]], Path]
nsys, *_, rocpd = FORMATS = tuple(partial(write, format) for format in Format)


def said(path: Path, kernels: KernelsMode, window: str = "median", *, peer: bool = False) -> dict[str, Value]:
    """The budget of the one rank, with the length of its window and what hides no communication."""
    convention = replace(PLAIN, copies=(CopyKind.PEER,)) if peer else PLAIN
    found: dict[str, Value] = {}
    with captures(path, convention=convention) as run:
        spec = run.make_spec(window, None, kernels)
        for name in (*BUDGET, "window_ns", "wall_exposed_all_ns"):
            for value in rows_of(run, name, spec).values():
                found[name] = value
    return found


def main_stream(kernels: list[Ran]) -> int:
    """The lowest of the streams that compute at least 0.9 of what any does; without compute of those that are busy."""
    computing = [each for each in kernels if each.what == "compute"] or kernels
    times = Counter[int]()
    for each in computing:
        times[each.stream] += each.end_ns - each.start_ns
    return min(stream for stream, ns in times.items() if 10 * ns >= 9 * max(times.values()))


def counted(work: list[Ran], kernels: KernelsMode, window: str, *, peer: bool) -> dict[str, Value] | None:
    """METRICS.md, section 9, tick by tick; None for a window without a kernel."""
    is_kernel = ("compute", "comm", "peer") if peer else ("compute", "comm")
    own = [each for each in work if each.what in is_kernel]
    low, high = 0, 100
    if window == "run":
        low, high = min(each.start_ns for each in own), max(each.end_ns for each in own)
    elif kernels is KernelsMode.LAUNCHED:  # of one step alone: to the end of its range or of its work
        stream, until = main_stream(own), 100
        if not any(each.stream == stream and 0 <= each.launch_ns <= until for each in own):
            until = 1_000  # its range only marks where the step begins
        own = [each for each in own if 0 <= each.launch_ns <= until]
        moved = [each.end_ns for each in work if each not in own and 0 <= each.launch_ns <= until]
        low = min(each.start_ns for each in own if each.stream == stream)
        high = max(100, *(each.end_ns for each in own), *moved)
    elif kernels is KernelsMode.CONTAINED:
        own = [each for each in own if each.start_ns >= low and each.end_ns <= high]
    else:
        own = [
            each
            for each in own
            if (each.start_ns < high and each.end_ns > low) or low <= each.start_ns == each.end_ns <= high
        ]
    if not own:
        return None

    def ticks(*kinds: str) -> set[int]:
        spans = (range(each.start_ns, each.end_ns) for each in work if each.what in kinds)
        return {tick for span in spans for tick in span if low <= tick < high}

    compute, comm = ticks("compute"), ticks("comm", *(("peer",) if peer else ()))
    copies = ticks("copy", "memset", *(() if peer else ("peer",)))
    found: dict[str, Value] = {
        "device_idle_ns": high - low - len(compute | comm | copies),
        "compute_absent_ns": high - low - len(compute),
        "window_ns": high - low,
    }
    return found | ({"comm_alone_ns": len(comm - compute - copies)} if comm else {})


WORK = st.lists(
    st.builds(
        lambda what, start, length, stream, launch: Ran(what, start, start + length, stream, min(launch, start)),
        st.sampled_from(["compute", "compute", "comm", "peer", "copy", "memset"]),
        st.integers(2, 120),
        st.sampled_from([0, 1, 7, 20, 60]),
        st.sampled_from([7, 20]),
        st.integers(1, 115),
    ),
    min_size=1,
    max_size=8,
)


@given(work=WORK, write=st.sampled_from(FORMATS), peer=st.booleans())
def test_it_counts_ticks(tmp_path_factory: pytest.TempPathFactory, work: list[Ran], write: Write, peer: bool) -> None:
    work.append(Ran("compute", 40, 45, 7, 3))
    path = write(tmp_path_factory.mktemp("budget"), work)
    for window, mode in (*(("median", mode) for mode in KernelsMode), ("run", KernelsMode.CLIPPED)):
        expected = counted(work, mode, window, peer=peer)
        assert expected is not None
        found = said(path, mode, window, peer=peer)
        exposed = found.pop("wall_exposed_all_ns", 0)
        assert found == expected
        if mode is KernelsMode.CLIPPED:
            assert found.get("comm_alone_ns", 0) <= exposed


def test_contained_cuts_what_crosses_an_edge_here_alone(gpu: OneProcess) -> None:
    gpu.range("step", 100, 200)
    gpu.kernel("gemm", 90, 110, launch_ns=50)
    gpu.kernel("gemm", 150, 160, launch_ns=120)
    gpu.memcpy(190, 250, launch_ns=130)
    assert rows(gpu, "busy_ns", kernels="contained") == {0: 10}
    assert rows(gpu, "device_busy_ns", kernels="contained") == {0: 10 + 10 + 10}


# -- several windows, several captures


def steps(path: Path, *lengths: tuple[int, int]) -> Path:
    """Steps of 100 ns, each with a gemm and a copy of these lengths, side by side from the same moment on."""
    gpu = TraceBuilder().process()
    for i, (compute, copy) in enumerate(lengths):
        at = 100 * i
        gpu.range("step", at, at + 100)
        gpu.kernel("gemm", at + 10, at + 10 + compute, launch_ns=at + 2)
        gpu.memcpy(at + 10, at + 10 + copy, launch_ns=at + 3)
    return gpu.trace.write(path)


EDGE = (90, 90)
"""Steps of such are at both ends, which are not steady."""


def test_steady_is_the_window_whose_compute_absent_is_the_lower_median(tmp_path: Path) -> None:
    own = ((40, 80), (10, 20), (30, 85), (20, 5))  # absent: 60, 90, 70 and 80
    path = steps(tmp_path / "a.sqlite", EDGE, EDGE, *own, EDGE, EDGE)
    found = {name: rows(path, name, window="steady") for name in ("device_busy_ns", *BUDGET[:2], "compute_busy_ns")}
    assert found == {
        "device_busy_ns": {0: 85},  # of the same window, and no median of 85, 80, 40 and 20
        "device_idle_ns": {0: 15},
        "compute_busy_ns": {0: 30},
        "compute_absent_ns": {0: 70},
    }


def test_of_several_captures_it_is_that_of_one(tmp_path: Path) -> None:
    each = ((40, 80), (10, 20), (30, 85), (20, 5))
    paths = [steps(tmp_path / f"{i}.sqlite", one) for i, one in enumerate(each)]
    with captures(*paths) as run:
        spec = run.make_spec("median")
        assert {name: rows_of(run, name, spec)[0] for name in ("device_busy_ns", *BUDGET[:2], "compute_busy_ns")} == {
            "device_busy_ns": 85,
            "device_idle_ns": 15,
            "compute_busy_ns": 30,
            "compute_absent_ns": 70,
        }


def test_a_capture_without_the_rank_s_row_makes_it_missing(tmp_path: Path) -> None:
    paths = []
    for i in range(2):
        trace = TraceBuilder()
        gpu = trace.process()
        gpu.range("step", 0, 100)
        gpu.kernel("gemm", 10, 20 + i, launch_ns=2)
        if i:
            gpu.kernel(NCCL, 30, 40, launch_ns=3)
        paths.append(trace.write(tmp_path / f"{i}.sqlite"))
    with captures(*paths) as run:
        table = run.measure_rows(METRICS["comm_alone_ns"], run.make_spec("median"))
    assert (table.rows, table.missing) == ((), (((0,), "only 1 of 2 captures have this row"),))


# -- what a trace does not hold

OF_COMMUNICATION = ("blocking_comm_ns", "blocking_comm_max_ns")
why_none = partial(why, convention=PLAIN, kernels="clipped")


def test_nothing_communicates_nothing_is_alone(tmp_path: Path) -> None:
    path = nsys(tmp_path, [Ran("compute", 10, 20, 7, 2), Ran("comm", 120, 130, 7, 3)])
    assert why_none(path, "comm_alone_ns") == "no communication kernel runs in the window"
    assert rows(path, "comm_alone_ns", convention=PLAIN, window="run") == {0: 10}


@pytest.mark.parametrize("table", ["MEMCPY", "MEMSET"])
def test_a_version_that_does_not_say_where_a_copy_ran_says_so(tmp_path: Path, table: str) -> None:
    work = [
        Ran("compute", 10, 20, 7, 2),
        Ran("copy", 30, 40, 7, 3),
        Ran("memset", 30, 40, 7, 3),
        Ran("comm", 1, 2, 7, 0),
    ]
    path = nsys(tmp_path, work)
    execute(path, f"ALTER TABLE CUPTI_ACTIVITY_KIND_{table} DROP COLUMN globalPid")
    for metric in ("device_idle_ns", "comm_alone_ns"):
        assert why_none(path, metric) == "the trace does not say when and where copies and memsets ran"
    assert rows(path, "compute_absent_ns", convention=PLAIN) == {0: 90}


def test_a_graph_that_was_traced_whole_leaves_its_window_without_a_budget(gpu: OneProcess) -> None:
    for at in (0, 100, 200):
        gpu.range("step", at, at + 100)
        gpu.kernel("gemm", at + 10, at + 20, launch_ns=at + 2)
    graph_trace(gpu, 250, 260, launch_ns=203)
    path = Path(gpu)
    assert rows(path, "device_idle_ns", convention=PLAIN, window="median") == {0: 90}
    held_back = ("launch_starved_ns", "blocking_ns", "dependency_stalled_ns", *OF_COMMUNICATION)
    reason = "a CUDA graph in the window was traced whole: capture with --cuda-graph-trace=node"
    for metric in (*BUDGET, *held_back):
        assert why_none(path, metric, window="last") == reason


@pytest.mark.parametrize(
    ("table", "change", "what"),
    [
        ("MEMSET", "start = 'soon'", "holds a value that cannot be"),
        ("MEMCPY", "end = NULL", "holds a value that cannot be"),
        ("MEMSET", "streamId = NULL", "holds a value that cannot be"),
        ("MEMCPY", "globalPid = 'x'", "holds a value that cannot be"),
    ],
)
@pytest.mark.parametrize("window", ["median", "run"])
def test_a_damaged_row_is_refused_when_asked_for(
    tmp_path: Path, table: str, change: str, what: str, window: str
) -> None:
    path = nsys(tmp_path, [Ran("compute", 10, 20, 7, 2), Ran("copy", 30, 40, 7, 3), Ran("memset", 30, 40, 7, 3)])
    name = f"CUPTI_ACTIVITY_KIND_{table}"
    columns = ", ".join(("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid"))
    execute(path, f"CREATE TABLE odd AS SELECT {columns} FROM {name}", f"DROP TABLE {name}")
    execute(path, f"ALTER TABLE odd RENAME TO {name}", f"UPDATE {name} SET {change}")
    with pytest.raises(TraceError, match=f"table {name} .*{what}"):
        rows(path, "device_busy_ns", convention=PLAIN, window=window)
    assert rows(path, "busy_ns", convention=PLAIN, window=window).keys() == {0}


@pytest.mark.parametrize("change", ["end = 9223372036854775807", "start = -9223372036854775807"])
def test_a_copy_that_takes_longer_than_a_column_holds_is_refused(tmp_path: Path, change: str) -> None:
    path = nsys(tmp_path, [Ran("compute", 10, 20, 7, 2), Ran("copy", 30, 40, 7, 3)])
    execute(
        path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = -50", f"UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET {change}"
    )
    with pytest.raises(
        TraceError, match=r"run\.sqlite: from the first copy or kernel to the last are more than 292 years"
    ):
        rows(path, "device_busy_ns", convention=PLAIN, window="run")


@pytest.mark.parametrize(("category", "what"), [("gpu_memcpy", "copy"), ("gpu_memset", "memset")])
def test_a_damaged_copy_of_torch_is_refused_where_it_is_asked_for(tmp_path: Path, category: str, what: str) -> None:
    trace = KinetoBuilder(rank=None)
    trace.kernel("gemm", 1_000, 3_000)
    trace.event(category, "it", 2_000, 2_500, pid=0, tid=7, args={"device": 0, "stream": 7}, dur="soon")
    path = trace.write(tmp_path / "run.json")
    with pytest.raises(TraceError, match=rf"{what} 'it' at ts 2\.000 has no duration that can be read"):
        rows(path, "device_busy_ns", convention=PLAIN, window="run")
    assert rows(path, "busy_ns", convention=PLAIN, window="run") == {0: 2_000}


@pytest.mark.parametrize("write", FORMATS, ids=list(Format))
def test_transfers_are_those_that_touch_the_span_of_their_lane(tmp_path: Path, write: Write) -> None:
    work = [
        Ran("copy", 10, 20, 9, 2),
        Ran("memset", 30, 40, 7, 3),
        Ran("copy", 50, 60, 9, 4),
        Ran("compute", 5, 6, 7, 1),
    ]
    trace, memset = open_trace(write(tmp_path, work)), "copy" if write is rocpd else "memset"
    (lane,) = trace.lanes()
    for asked in (lane, Lane(lane.global_pid, None)):
        for span, expected in {
            None: ["copy", memset, "copy"],
            (20, 30): ["copy", memset],
            (21, 29): [],
            (60, 70): ["copy"],
        }.items():
            found = (trace.transfers({asked: span}) or {}).get(asked)
            assert ([] if found is None else [found.names[name] for name in found.name]) == expected
    assert not trace.transfers({Lane(lane.global_pid, 5): None})
    trace.close()


# -- what it costs


def test_only_who_asks_reads_copies_and_once_for_all_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = TraceBuilder()
    for rank in range(3):
        gpu = trace.process(pid=100 + rank)
        for at in range(0, 800, 100):
            gpu.range("step", at, at + 100)
            gpu.kernel("gemm", at + 10, at + 20, launch_ns=at + 2)
            gpu.kernel(NCCL, at + 15, at + 30, launch_ns=at + 2)
            gpu.memcpy(at + 30, at + 40, launch_ns=at + 3)
    path = trace.write(tmp_path / "a.sqlite")
    asked: list[int] = []
    transfers = NsysSqlite.transfers

    def watched(self: NsysSqlite, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels] | None:
        asked.append(len(spans))
        return transfers(self, spans)

    monkeypatch.setattr(NsysSqlite, "transfers", watched)
    with captures(path, convention=PLAIN) as run:
        spec = run.make_spec("steady", None, KernelsMode.CLIPPED)
        for name in ("idle_ns", "window_ns", "wall_exposed_all_ns"):
            assert len(rows_of(run, name, spec)) == 3
        assert asked == []
        for name in BUDGET:
            assert len(rows_of(run, name, spec)) == 3
    assert asked == [3]


# -- real traces


def expected_budgets() -> Mapping[str, list[dict[str, Any]]]:
    path = MORE / "budget_by_moment_expected.json"
    found = json.loads(path.read_text()) if path.is_file() else {}
    return {name: ranks for name, ranks in found.items() if name != "what"}


@pytest.mark.reference
@pytest.mark.parametrize("name", expected_budgets())
def test_real_traces(name: str) -> None:
    ranks = expected_budgets()[name]
    with captures(MORE / name, convention=BUILT_IN_CONVENTIONS["generic"]) as run:
        spec = run.make_spec("run")
        for metric in (*BUDGET, "window_ns", "launch_starved_ns", "dependency_stalled_ns", "blocking_comm_max_ns"):
            table = run.measure_rows(METRICS[metric], spec)
            found = {row.labels[0]: row.value for row in table.rows}
            if metric.startswith(("comm", "blocking_comm")) and not any(rank["comm_alone_ns"] for rank in ranks):
                assert (found, table.no_row_reason) == ({}, "no communication kernel runs in the window")
            else:
                assert found == {number: rank[metric] for number, rank in enumerate(ranks)}
        blocking = run.measure_rows(METRICS["blocking_ns"], spec).rows
        for (number, (window,)), rank in zip(
            run.runs[0].load_windows(spec).windows_by_rank.items(), ranks, strict=True
        ):
            own = {labels[1]: value for labels, value in blocking if labels[0] == number and value}
            assert own == rank["blocking_ns"]
            facts = build_budget_facts(measure_budget(window))
            for told in ("tail_ns", "waits", "waits_joined", "gaps_without_launch"):
                assert getattr(facts, told) == rank[told], told
