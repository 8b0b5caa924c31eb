"""Does a database of rocprofv3 give the numbers that are in it, of one process or many, on one host or several?"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pytest_nsys.core.conventions import CopyKind
from pytest_nsys.core.errors import TraceError, UsageMistake
from pytest_nsys.core.model import NO_LAUNCH, NO_STREAM, KernelsMode, Lane, Stream
from pytest_nsys.core.tables import Kernels
from pytest_nsys.core.trace import Trace
from pytest_nsys.traces.rocpd.database import RocpdDatabase
from pytest_nsys.traces.sqlite import columns as sqlite_columns
from pytest_nsys.traces.trace_files import describe_format, find_traces, open_trace
from tests.support.commands import run
from tests.support.measure import SETUP, rows
from tests.support.samples.rocpd import HSA, RCCL, RocpdBuilder
from tests.support.sql import execute

MS = 1_000_000
Edit = Callable[[RocpdBuilder], object]
FULL = "void at::native::fill<4>(int, float*)"


def step(pid: int = 100, *, rank: int | None = None, slower_us: int = 0, **more: object) -> RocpdBuilder:
    """Five steps of 10 ms; in each 3 ms of compute and 2 ms of RCCL, of which 1 ms is under it."""
    trace = RocpdBuilder(pid, **more)  # type: ignore[arg-type]
    if rank is not None:
        trace.range(SETUP.format(rank, rank), 10, 20)
    for k in range(5):
        at = 10 * MS * (k + 1)
        trace.range(f"step {k}", at, at + 9 * MS)
        trace.range("layer00.stage2_f", at + 1_000, at + 9_000)
        trace.kernel("gemm", at + MS, at + 4 * MS, launch_ns=at + 20_000)
        end = at + 5 * MS + 1_000 * slower_us
        trace.kernel("ncclDevKernel_AllReduce_Sum_bf16", at + 3 * MS, end, stream=28, launch_ns=at + 2_000)
    return trace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return step(rank=0).write(tmp_path / "100_results.db")


def read(path: Path) -> closing[Trace]:
    trace = open_trace(path)
    assert isinstance(trace, RocpdDatabase)
    return closing[Trace](trace)


def whole(path: Path) -> Kernels:
    with read(path) as trace:
        (lane,) = trace.lanes()
        return trace.kernels({lane: None})[lane]


# -- what it is


def test_it_is_told_by_its_tables(tmp_path: Path) -> None:
    for name in ("100_results.db", "run.sqlite", "of any name"):
        assert describe_format(step().write(tmp_path / name)) == "database of rocprofv3"
        assert rows(tmp_path / name, "exposed_ns")


def test_views_are_never_read(tmp_path: Path) -> None:
    step(rank=0).write(tmp_path / "with.db")
    step(rank=0).write(tmp_path / "without.db", views=False)
    assert rows(tmp_path / "with.db", "exposed_ns") == rows(tmp_path / "without.db", "exposed_ns")


def test_the_numbers_of_a_step(path: Path) -> None:
    assert rows(path, "exposed_ns") == {(0, "stage2_f"): MS}
    assert rows(path, "launches", kernels="launched") == {(0, "stage2_f"): 1, (0, "none"): 1}


def test_what_it_says_of_the_machine(path: Path) -> None:
    with read(path) as trace:
        facts = trace.facts()
    assert facts.profiler_version == "rocpd 3"
    assert facts.gpus == {(100, 0): "AMD Instinct MI300X"}
    assert facts.models == ["AMD Instinct MI300X"]


@pytest.mark.parametrize("many_rows", [0, sqlite_columns.MANY_ROWS], ids=["blocks", "rows"])
def test_it_is_read_as_an_export_of_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many_rows: int) -> None:
    monkeypatch.setattr(sqlite_columns, "MANY_ROWS", many_rows)
    ranks = [step(100 + rank, rank=rank, device=rank) for rank in range(2)]
    path = ranks[0].write(tmp_path / "a.db", ranks[1])
    before = path.read_bytes()
    with read(path) as opened:
        spans = dict.fromkeys(opened.lanes())
        for kernels in opened.kernels(spans).values():
            assert [kernels.names[number] for number in kernels.name[:2]] == [
                "gemm",
                "ncclDevKernel_AllReduce_Sum_bf16",
            ]
        for calls in opened.launch_calls(opened.kernels(spans)).values():
            assert list(calls.start_ns)[:2] == [10 * MS + 20_000, 10 * MS + 2_000]
        around = opened.ranges_around({lane.global_pid: (0, 15 * MS) for lane in spans})
        assert [sum(each.name.startswith("step") for each in own) for own in around.values()] == [1, 1]
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["a.db"]


# -- ranks


def test_the_processes_of_a_merged_file_are_ranks(tmp_path: Path) -> None:
    others = [step(100 + rank, rank=rank, device=rank, slower_us=100 * rank) for rank in range(2)]
    merged = others[0].write(tmp_path / "merged.db", *others[1:])
    assert sorted(value for value in rows(merged, "exposed_ns").values()) == [MS, MS + 100_000]
    for rank, each in enumerate(others):
        each.write(tmp_path / "run" / f"{100 + rank}_results.db")
    assert rows(tmp_path / "run", "exposed_ns") == rows(merged, "exposed_ns")


def test_processes_of_one_number_on_two_hosts_are_two(tmp_path: Path) -> None:
    one, other = step(100, host="a"), step(100, host="b", slower_us=7)
    with read(one.write(tmp_path / "merged.db", other)) as trace:
        first, second = trace.lanes()
        assert first.global_pid != second.global_pid
        assert {len(kernels) for kernels in trace.kernels({first: None, second: None}).values()} == {10}
        assert not trace.list_unrequested_processes()
        assert list(trace.kernels({first: (0, 15 * MS)})) == [first]
        assert trace.list_unrequested_processes() == {second.global_pid}


def test_processes_of_one_number_in_two_containers_of_a_host_are_two(tmp_path: Path) -> None:
    one, other = step(100), step(100)
    other.guid = "f" * 32
    with read(one.write(tmp_path / "merged.db", other)) as trace:
        assert len({lane.global_pid for lane in trace.lanes()}) == 2


def test_two_processes_in_one_capture(tmp_path: Path) -> None:
    trace = step(100, rank=0)
    trace.insert("info_process", id=101, nid=trace.node, pid=101)
    trace.pid, trace.device = 101, 1
    trace.range(SETUP.format(1, 1), 10, 20)
    for k in range(5):
        at = 10 * MS * (k + 1) + 5_000
        trace.range(f"step {k}", at, at + 9 * MS)
        trace.range("layer00.stage2_f", at + 1_000, at + 9_000)
        trace.kernel("ncclDevKernel_AllReduce_Sum_bf16", at + MS, at + 3 * MS, stream=28, launch_ns=at + 2_000)
        trace.kernel("gemm", at + MS, at + 2 * MS, launch_ns=at + 20_000)
    path = trace.write(tmp_path / "a.db")
    for kernels in KernelsMode:
        assert rows(path, "exposed_ns", kernels=kernels) == {(0, "stage2_f"): MS, (1, "stage2_f"): MS}
    with read(path) as opened:
        first, second = opened.lanes()
        assert [*opened.idle({lane: [(54 * MS, 55 * MS)] for lane in (first, second)})] == [second]
        assert opened.common_range_names(second.global_pid)[0] == ("layer00.stage2_f", 5)
        around = opened.ranges_around({first.global_pid: (0, 15), second.global_pid: (30 * MS, 31 * MS)})
        assert [len(around[lane.global_pid]) for lane in (first, second)] == [1, 2]


def test_the_launcher_says_the_rank(tmp_path: Path) -> None:
    for pid, rank in ((100, 1), (101, 0)):
        secrets = {"RANK": str(rank), "WORLD_SIZE": "2", "TOKEN": "secret"}
        step(pid, slower_us=100 * rank, environment=secrets).write(tmp_path / f"{pid}_results.db")
    assert rows(tmp_path, "exposed_ns") == {(0, "stage2_f"): MS, (1, "stage2_f"): MS + 100_000}


@pytest.mark.parametrize("environment", [{"RANK": "x", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}, {}])
def test_what_is_no_rank_is_none(tmp_path: Path, environment: dict[str, str]) -> None:
    with read(step(environment=environment).write(tmp_path / "a.db")) as trace:
        assert not trace.setups()


def test_a_gpu_is_a_rank_where_nothing_says_more(tmp_path: Path) -> None:
    trace = step()
    trace.kernel("gemm", 12 * MS, 13 * MS, device=3)
    with read(trace.write(tmp_path / "a.db")) as opened:
        assert [lane.device for lane in opened.lanes()] == [0, 3]


# -- which files


def test_a_folder_means_the_databases_in_it_or_in_those_of_its_hosts(tmp_path: Path) -> None:
    for host, pid in (("a", 100), ("b", 20), ("b", 3)):
        step(pid, host=host).write(tmp_path / host / f"{pid}_results.db")
    execute(tmp_path / "b" / "perf.db", "CREATE TABLE runs (id)")
    assert [path.name for path in find_traces(str(tmp_path / "b"), tmp_path)] == ["3_results.db", "20_results.db"]
    assert [str(path.relative_to(tmp_path)) for path in find_traces(str(tmp_path), tmp_path)] == [
        "a/100_results.db",
        "b/3_results.db",
        "b/20_results.db",
    ]


def test_the_database_of_a_launcher_is_passed_over(tmp_path: Path) -> None:
    for pid in (100, 101):
        step(pid, rank=pid - 100).write(tmp_path / f"{pid}_results.db")
    launcher = RocpdBuilder(99)
    launcher.api("hipGetDeviceCount", 10, 20)
    launcher.write(tmp_path / "99_results.db")
    for given in (str(tmp_path), str(tmp_path / "*.db")):
        assert [path.name for path in find_traces(given, Path())] == ["100_results.db", "101_results.db"]
    assert set(rows(tmp_path, "exposed_ns")) == {(0, "stage2_f"), (1, "stage2_f")}
    launcher.range(SETUP.format(2, 2), 10, 20)  # a worker, of which the kernels are lost
    launcher.write(tmp_path / "99_results.db")
    assert len(find_traces(str(tmp_path), Path())) == 3
    for pid in (100, 101):
        RocpdBuilder(pid).write(tmp_path / f"{pid}_results.db")
    (tmp_path / "99_results.db").unlink()
    assert "no kernels: capture with rocprofv3" in run("--view=overlap", tmp_path, code=3).stderr


def test_a_broken_database_in_a_folder_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "100_results.db").write_bytes(b"")
    (tmp_path / "other.db").write_bytes(b"")
    (found,) = find_traces(str(tmp_path), tmp_path)
    with pytest.raises(TraceError, match=r"100_results\.db: is empty \(0 bytes\): profile again"):
        open_trace(found)
    found.unlink()
    with pytest.raises(UsageMistake, match=r"\*_results\.db"):
        find_traces(str(tmp_path), tmp_path)


# -- launches


def test_the_call_inside_which_a_kernel_was_dispatched_launched_it(path: Path) -> None:
    with read(path) as trace:
        (lane,) = trace.lanes()
        kernels = trace.kernels({lane: None})
        calls = trace.launch_calls(kernels)[lane]
    assert list(calls.start_ns)[:2] == [10 * MS + 20_000, 10 * MS + 2_000]
    assert list(calls.end_ns)[:2] == [10 * MS + 23_000, 10 * MS + 5_000]
    assert set(calls.thread) == {100}


def test_a_call_of_hsa_belongs_to_that_of_hip_around_it(tmp_path: Path) -> None:
    trace = RocpdBuilder()
    outer = trace.api("hipLaunchKernel", 1_000, 5_000)
    middle = trace.api("hsa_one", 2_000, 4_000, category=HSA, parent=outer)
    inner = trace.api("hsa_two", 2_500, 3_000, category=HSA, parent=middle)
    trace.kernel("gemm", 6_000, 7_000, correlation=inner)
    alone = trace.api("hsa_three", 8_000, 8_500, category=HSA)
    trace.kernel("gemm", 9_000, 9_500, correlation=alone)
    trace.kernel("gemm", 10_000, 10_500, launch=False)
    with read(trace.write(tmp_path / "a.db")) as opened:
        (lane,) = opened.lanes()
        assert list(opened.launch_calls(opened.kernels({lane: None}))[lane].start_ns) == [1_000, 8_000, NO_LAUNCH]
        assert len(opened.kernels_launched({lane: (900, 1_100)})[lane]) == 1
        assert not opened.kernels_launched({lane: (2_000, 5_000)})
        assert opened.api_calls(("*",), {lane.global_pid: (0, 9_999)}) == {
            lane.global_pid: [(1_000, "hipLaunchKernel", 5_000, 100)]
        }


def test_what_a_graph_launches_is_a_node_of_it(tmp_path: Path) -> None:
    trace = RocpdBuilder()
    launch = trace.api("hipGraphLaunch", 1_000)
    for k in range(3):
        trace.kernel("gemm", 2_000 + 100 * k, 2_050 + 100 * k, correlation=launch)
    both = trace.api("hipExtModuleLaunchKernel", 3_000)
    for k in range(2):
        trace.kernel("gemm", 4_000 + 100 * k, 4_050 + 100 * k, correlation=both)
    assert list(whole(trace.write(tmp_path / "a.db")).graph_node) == [1, 1, 1, 0, 0]


def test_without_calls_nothing_was_launched(tmp_path: Path) -> None:
    trace = RocpdBuilder()
    trace.kernel("gemm", 10, 20, launch=False)
    with read(trace.write(tmp_path / "a.db")) as opened:
        (lane,) = opened.lanes()
        assert opened.api_calls(("*",), {lane.global_pid: (0, 100)}) is None
        assert list(opened.launch_calls(opened.kernels({lane: None}))[lane].start_ns) == [NO_LAUNCH]
        assert not opened.kernels_launched({lane: (0, 100)})


def test_a_copy_of_nothing_excuses_no_copy_of_another_process(tmp_path: Path) -> None:
    """Both calls have one stack id, each in its capture."""
    empty, lost = (step(100 + rank, rank=rank, device=rank) for rank in range(2))
    for trace in (empty, lost):
        stack = trace.api("hipMemcpyAsync", 12 * MS)
    event = next(row["event_id"] for kind, row in empty.rows if kind == "region" and row["id"] == stack)
    empty.insert("arg", event_id=event, position=2, type="size_t", name="sizeBytes", value="0")
    with read(empty.write(tmp_path / "a.db", lost)) as opened:
        records = opened.launch_records({}, opened.kernels(dict.fromkeys(opened.lanes())))
    assert records is not None
    assert [[(each.kind, each.unrecorded) for each in own] for _, own in sorted(records.items())] == [
        [("kernel", 0)],
        [("kernel", 0), ("copy", 1)],
    ]


# -- streams and names


def test_a_stream_is_one_of_hip_whatever_queue_it_runs_through(tmp_path: Path) -> None:
    trace = RocpdBuilder(device=2)
    for stream, queue in ((0, 1), (1, 1), (1, 2), (0, 2)):
        trace.kernel("gemm", 10 + stream, 20, stream=stream, queue=queue)
    assert set(whole(trace.write(tmp_path / "a.db")).streams) == {Stream(2, 0, 0), Stream(2, 0, 1)}


def test_a_kernel_is_named_without_its_descriptor(tmp_path: Path) -> None:
    trace = RocpdBuilder()
    for name in (f"{FULL} [clone .kd]", "Cijk_Alik.kd", "gemm"):
        trace.kernel(name, 10, 20)
    path = trace.write(tmp_path / "a.db")
    execute(path, f"UPDATE {trace.table('kernel_dispatch')} SET kernel_id = 0 WHERE id = 3")
    kernels = whole(path)
    named = zip(kernels.name, kernels.full_name, strict=True)
    assert sorted((kernels.names[short], kernels.names[full]) for short, full in named) == [
        ("Cijk_Alik", "Cijk_Alik"),
        ("fill", FULL),
        ("unknown_kernel", "unknown_kernel"),
    ]


# -- ranges


def test_ranges_are_named_by_their_messages(tmp_path: Path) -> None:
    trace = RocpdBuilder()
    trace.range("step 1", 10, 20)
    trace.api("ncclAllReduce", 12, 13, category=RCCL)
    trace._region("MARKER_CORE_RANGE_API", "of another profiler", 14, 15, None)
    trace._region("MARKER_CORE_RANGE_API", "roctxThreadRangeA", 16, 17, None)
    trace._region("MARKER_CORE_API", "roctxRangePushA", 10, 11, None, message="step 1")
    with read(trace.write(tmp_path / "a.db")) as opened:
        pid = 100 << 24
        assert [r.name for r in opened.ranges(["%"])[pid]] == ["step 1", "ncclAllReduce", "of another profiler"]
        assert [r.name for r in opened.ranges(["nccl%"])[pid]] == ["ncclAllReduce"]
        assert not opened.ranges(["roctx%"])
        assert [r.name for r in opened.ranges_around({pid: (15, 30)})[pid]] == ["step 1", "of another profiler"]
        assert opened.common_range_names(pid) == [("of another profiler", 1), ("step 1", 1)]


def test_before_ranges_had_a_category_their_calls_were_the_ranges(tmp_path: Path) -> None:
    trace = RocpdBuilder()
    trace._region("MARKER_CORE_API", "roctxRangePushA", 10, 30, None, message="step 1")
    trace._region("MARKER_CONTROL_API", "roctxProfilerPause", 11, 12, None, message="no range")
    with read(trace.write(tmp_path / "a.db")) as opened:
        assert {pid: [*own] for pid, own in opened.ranges(["%"]).items()} == {100 << 24: [(10, 30, 100, "step 1")]}


# -- copies and memory


def test_copies_are_told_apart_by_their_agents(tmp_path: Path) -> None:
    trace = RocpdBuilder()
    for k, kind in enumerate((1, 2, 8, 10)):
        trace.memcpy(100 * k, 100 * k + 50, kind=kind, stream=None if kind == 8 else 7, launch_ns=k)
    with read(trace.write(tmp_path / "a.db")) as opened:
        lane = Lane(100 << 24, 0)
        found = opened.copies_as_kernels(list(CopyKind))[lane]
        named = [found.names[number] for number in found.name]
        assert named == ["[host to device copy]", "[device to host copy]", "[device to device copy]", "[peer copy]"]
        assert [found.streams[number].number for number in found.stream] == [7, 7, NO_STREAM, 7]
        (transfers,) = opened.transfers({lane: (60, 320)}).values()  # type: ignore[union-attr]
        assert list(transfers.start_ns) == [100, 200, 300]
        assert opened.copies({lane: (0, 1_000)}) is None


def test_a_copy_launched_inside_a_call_of_rccl_is_a_collective(tmp_path: Path) -> None:
    trace = RocpdBuilder()
    trace.api("ncclAllGather", 100, 200, category=RCCL)
    for launch in (150, 250):
        trace.memcpy(launch + 1_000, launch + 1_050, kind=10, launch_ns=launch)
    with read(trace.write(tmp_path / "a.db")) as opened:
        (found,) = opened.copies_as_kernels([CopyKind.COLLECTIVE]).values()
        assert [(start, found.names[name]) for start, name in zip(found.start_ns, found.name, strict=True)] == [
            (1_150, "[collective copy]")
        ]


def test_memory_is_freed_by_its_address(tmp_path: Path) -> None:
    trace = step()
    trace.allocate(10, 1_000, address=1)
    trace.allocate(20, 500, address=2, level="VIRTUAL")
    trace.allocate(25, 9_000, address=3, on_gpu=False)
    trace.allocate(26, 9_000, address=4, level="SCRATCH")
    trace.free(30, address=1)
    trace.free(35, address=3)
    trace.free(40, address=99)
    with read(trace.write(tmp_path / "a.db")) as opened:
        (memory,) = opened.memory().values()  # type: ignore[union-attr]
    assert list(zip(*memory.levels, strict=True)) == [(10, 1_000), (20, 1_500), (30, 500)]
    assert memory.earlier_frees == 1


def test_without_allocations_it_says_how_to_have_them(path: Path) -> None:
    said = run("rows", "peak_allocated_bytes", "--trace", path, code=3).stderr
    assert "capture with rocprofv3 --memory-allocation-trace" in said


# -- other generations, and what is missing


def test_another_generation_is_named(tmp_path: Path) -> None:
    old = tmp_path / "trace.rpd"
    execute(old, "CREATE TABLE rocpd_api (id)", "CREATE TABLE rocpd_op (id)", "CREATE TABLE rocpd_string (id)")
    with pytest.raises(TraceError, match=r"database of rocmProfileData \(rpd\).*profile with rocprofv3 of ROCm 7"):
        open_trace(old)
    trace = step()
    newer = trace.write(tmp_path / "newer.db")
    execute(newer, f"UPDATE {trace.table('metadata')} SET value = '4.0.0' WHERE tag = 'schema_version'")
    with pytest.raises(TraceError, match=r"newer\.db: is rocpd of schema 4\.0\.0, and 3 is read: profile"):
        open_trace(newer)
    early = trace.write(tmp_path / "early.db")
    execute(early, f"CREATE TABLE {trace.table('timestamp')} (id, value)")
    with pytest.raises(TraceError, match=r"early\.db: .*rocpd_timestamp, which is not read: profile with rocprofv3"):
        open_trace(early)
    patched = trace.write(tmp_path / "patched.db")
    execute(patched, f"UPDATE {trace.table('metadata')} SET value = '3.0.2' WHERE tag = 'schema_version'")
    with read(patched) as opened:
        assert opened.facts().profiler_version == "rocpd 3.0.2"


def test_an_empty_trace_says_what_to_capture(tmp_path: Path) -> None:
    path = RocpdBuilder().write(tmp_path / "a.db")
    said = run("--view=overlap", path, code=3).stderr
    assert "no kernels: capture with rocprofv3 --kernel-trace" in said
    trace = RocpdBuilder()
    trace.kernel("gemm", 10, 20)
    said = run("rows", "overlap", "--trace", trace.write(path), "--convention=pithtrain", code=3).stderr
    assert "no ranges at all: capture with rocprofv3 --kernel-trace" in said
    assert "mark the step with ROCTx" in said


@pytest.mark.parametrize("place", ["", "host"])
def test_json_of_rocprofv3_is_told_to_be_a_database(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / place / "7_results.json").write_text('{"rocprofiler-sdk-tool": [{"metadata": {"pid": 7}}]}')
    assert run("--view=overlap", tmp_path, code=2).stderr.endswith(
        ": holds JSON of rocprofv3 (7_results.json); its database is read: profile with rocprofv3 -f rocpd\n"
    )
    step().write(tmp_path / place / "7_results.db")
    run("--view=overlap", tmp_path, code=0)  # beside the database it is nothing


@pytest.mark.parametrize("many_rows", [0, sqlite_columns.MANY_ROWS], ids=["blocks", "rows"])
def test_without_calls_it_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many_rows: int) -> None:
    monkeypatch.setattr(sqlite_columns, "MANY_ROWS", many_rows)
    trace = RocpdBuilder()
    for k in range(6):
        trace.range(f"step {k}", 10_000 * k, 10_000 * k + 9_000)
        for start in (1_000, 5_000):
            trace.kernel("gemm", 10_000 * k + start, 10_000 * k + start + 2_000, launch=False)
    path = trace.write(tmp_path / "a.db")
    hint = "capture with rocprofv3 --hip-trace on all ranks"
    for metric in ("syncs", "launch_starved_ns"):
        assert hint in run("rows", metric, "--trace", path, "--convention=generic", "--anchor=step %", code=3).stderr
    assert hint in " ".join(run("check", path).output.split())


def test_an_id_that_stands_for_two_texts_is_refused_whichever_fits(tmp_path: Path) -> None:
    """The category of markers was found by the one, and the other passed unseen."""
    trace = step()
    path = trace.write(tmp_path / "a.db", views=False)
    strings = trace.table("string")
    execute(
        path,
        f'CREATE TABLE new AS SELECT * FROM "{strings}"',
        f'DROP TABLE "{strings}"',
        f'ALTER TABLE new RENAME TO "{strings}"',
        f"""INSERT INTO "{strings}" (id, string) SELECT id, 'another' FROM "{strings}" WHERE string LIKE 'MARKER%'""",
    )
    assert "has two texts" in run("--view=overlap", path, code=2).stderr


def test_the_environment_is_never_told(tmp_path: Path) -> None:
    trace = step(host="a-host-name", environment={"RANK": "0", "WORLD_SIZE": "1", "TOKEN": "a-secret"})
    path = trace.write(tmp_path / "a.db")
    for command in (["--view=overlap"], ["--view=ranks"], ["check"], ["--view=budget"], ["check", "--format=json"]):
        result = run(*command, path, code=None)
        assert "a-secret" not in result.output
        assert "a-host-name" not in result.output
