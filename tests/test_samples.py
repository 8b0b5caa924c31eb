"""Do the samples give what the tests, the demo and the benchmarks take for granted, and does the package hold them?"""

from __future__ import annotations

import gzip
import os
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_nsys import open_run
from tests.support.samples import schema
from tests.support.samples.builder import TraceBuilder, global_pid
from tests.support.samples.dualpipe import SAMPLE_REGRESSION, SAMPLE_SHAPE, Regression, StepShape, write_dualpipe
from tests.support.samples.fsdp import GATHER, FsdpShape, write_fsdp
from tests.support.samples.odd_rows import diagnostic, graph_trace, raw
from tests.support.samples.packaged import FOLDER, as_sql, packaged
from tests.support.samples.schema import Export
from tests.support.samples.versions import VERSIONS, schema_of

TINY = replace(SAMPLE_SHAPE, chunks=4, layers=2)

LAUNCHES = """
    SELECT k.globalPid, k.streamId, k.start, k.end, r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k
    LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
    ON r.correlationId = k.correlationId AND r.globalTid & ~0xffffff = k.globalPid ORDER BY 1, 2, 3
"""


def ask(path: Path, query: str) -> list[tuple[int | str | None, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return database.execute(query).fetchall()


def tables(path: Path) -> set[str]:
    return {str(name) for (name,) in ask(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}


def columns(path: Path, table: str) -> list[str]:
    return [str(row[1]) for row in ask(path, f"PRAGMA table_info({table})")]


def kernels_by_process(path: Path) -> dict[int, list[tuple[int | str | None, ...]]]:
    rows = ask(path, f"SELECT globalPid, start, end, streamId, shortName FROM {schema.KERNEL} ORDER BY 1, 2, 4")
    found: dict[int, list[tuple[int | str | None, ...]]] = {}
    for process, *rest in rows:
        assert isinstance(process, int)
        found.setdefault(process, []).append(tuple(rest))
    return found


def some_rows(version: str = "3.25") -> TraceBuilder:
    trace = TraceBuilder(schema_of(version))
    process = trace.process(pid=100)
    process.range("step", 0, 10_000)
    process.kernel("gemm", 6_000, 9_000, launch_ns=1_000)
    return trace


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_have_their_tables(tmp_path: Path, version: str) -> None:
    path = some_rows(version).write(tmp_path / "trace.sqlite")
    core = {schema.KERNEL, schema.RUNTIME, schema.NVTX, schema.STRINGS}
    known = set() if version == "none" else {schema.PROCESSES, schema_of(version).metadata}
    enums = {name for name in tables(path) if name.startswith("ENUM_")}
    assert tables(path) - enums == core | known
    assert bool(enums) == (version not in ("none", "2.9"))
    assert ("mangledName" in columns(path, schema.KERNEL)) == (version != "none")
    assert ("greenContextId" in columns(path, schema.KERNEL)) == (version not in ("none", "2.9", "3.0"))
    assert ("graphId" in columns(path, schema.KERNEL)) == (version in ("3.24", "3.25", "3.28"))
    assert ("binaryData" in columns(path, schema.NVTX)) == (version in ("3.25", "3.28"))


def test_empty_tables_do_not_exist_and_nothing_is_indexed(tmp_path: Path) -> None:
    trace = TraceBuilder()
    trace.process().range("step", 0, None)
    path = trace.write(tmp_path / "trace.sqlite")
    assert not {name for name in tables(path) if name.startswith("CUPTI")}
    assert ask(path, "SELECT count(*) FROM sqlite_master WHERE type <> 'table'") == [(0,)]


def test_rows_come_out_in_the_order_of_an_export(tmp_path: Path) -> None:
    trace = TraceBuilder()
    one, two = trace.process(pid=2), trace.process(pid=1)
    for process, start_ns in ((one, 900_000), (two, 100_000), (one, 500_000)):
        process.kernel("gemm", start_ns, start_ns + 10)
        process.range("step", start_ns, start_ns + 10)
    path = trace.write(tmp_path / "trace.sqlite")
    assert ask(path, f"SELECT start FROM {schema.KERNEL}") == [(100_000,), (500_000,), (900_000,)]
    assert ask(path, f"SELECT start FROM {schema.NVTX}") == [(100_000,), (500_000,), (900_000,)]
    assert ask(path, f"SELECT start FROM {schema.RUNTIME}") == [(95_000,), (495_000,), (895_000,)]


def test_global_ids_are_signed(tmp_path: Path) -> None:
    assert global_pid(100, hardware_id=1, vm_id=2) == 1 << 56 | 2 << 48 | 100 << 24
    assert global_pid(100, hardware_id=200) == (200 << 56 | 100 << 24) - (1 << 64)
    trace = TraceBuilder()
    process = trace.process(pid=100, hardware_id=200)
    process.kernel("gemm", 10_000, 20_000, thread=7)
    ((tid,),) = ask(trace.write(tmp_path / "trace.sqlite"), f"SELECT globalTid FROM {schema.RUNTIME}")
    assert isinstance(tid, int)
    assert tid < 0
    assert (tid & ~0xFFFFFF, tid >> 24 & 0xFFFFFF, tid & 0xFFFFFF) == (process.global_pid, 100, 7)


def test_kernels_can_share_or_lack_their_launch(tmp_path: Path) -> None:
    trace = TraceBuilder()
    process = trace.process()
    shared = process.kernel("node", 10_000, 11_000, launch_ns=1_000, launch_class=1, graph_node=1)
    process.kernel("node", 12_000, 13_000, correlation=shared, graph_node=2)
    process.kernel("orphan", 14_000, 15_000, launch=False)
    path = trace.write(tmp_path / "trace.sqlite")
    assert ask(path, f"SELECT correlationId FROM {schema.KERNEL}") == [(shared,), (shared,), (shared + 1,)]
    query = f"SELECT start, eventClass, correlationId FROM {schema.RUNTIME}"
    assert ask(path, query) == [(1_000, 1, shared)]


def test_odd_rows(tmp_path: Path) -> None:
    trace = TraceBuilder()
    process = trace.process()
    trace.gpu("NVIDIA H100 80GB HBM3", process=process)
    diagnostic(trace, 2, "events were dropped")
    trace.insert("META_DATA_CAPTURE", name="HOME", value="/root")
    process.memcpy(1_000, 2_000, bytes=64)
    graph_trace(process, 3_000, 4_000)
    raw(process, schema.NVTX, start=0, eventType=75, text="NCCL", domainId=1)
    path = trace.write(tmp_path / "trace.sqlite")
    assert ask(path, "SELECT globalTid, end, text FROM NVTX_EVENTS") == [(process.global_tid(), None, "NCCL")]
    assert ask(path, "SELECT severity FROM DIAGNOSTIC_EVENT") == [(2,)]
    assert ask(path, "SELECT cudaId, pid FROM TARGET_INFO_CUDA_DEVICE") == [(0, 100)]
    with pytest.raises(ValueError, match="no table CUPTI_NOTHING"):
        trace.insert("CUPTI_NOTHING", start=1)
    with pytest.raises(ValueError, match=r"no column NVTX_EVENTS\.colour"):
        trace.insert(schema.NVTX, colour=1)


def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace.sqlite"
    path.write_bytes(b"as it was")
    with pytest.raises(sqlite3.IntegrityError), Export(path) as export:
        export.put(schema.NVTX, ("start", "eventType"), [(None, 59)])
    assert path.read_bytes() == b"as it was"
    assert os.listdir(tmp_path) == ["trace.sqlite"]


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    one, again, other = (
        write_dualpipe(tmp_path / name, replace(TINY, seed=seed)).read_bytes()
        for name, seed in (("one", 1), ("again", 1), ("other", 2))
    )
    assert one == again
    assert one != other
    some_rows().write(tmp_path / "a")
    some_rows().write(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    "shape",
    [
        TINY,
        StepShape(chunks=3, layers=2, pp=1, cp=2, nccl_ranges=True),
        StepShape(chunks=2, layers=1, text="registered"),
    ],
    ids=["sample", "ring", "registered"],
)
def test_streams_run_in_order_after_their_launches(tmp_path: Path, shape: StepShape) -> None:
    path = write_dualpipe(tmp_path / "trace.sqlite", shape)
    before: tuple[int | str | None, ...] = ()
    stream_end = 0
    for process, stream, start_ns, end_ns, launch_ns in ask(path, LAUNCHES):
        assert isinstance(start_ns, int)
        assert isinstance(end_ns, int)
        assert isinstance(launch_ns, int)
        assert launch_ns < start_ns < end_ns
        assert (process, stream) != before or start_ns >= stream_end
        before, stream_end = (process, stream), end_ns


def test_every_rank_is_labelled_in_its_mesh(tmp_path: Path) -> None:
    path = write_dualpipe(tmp_path / "trace.sqlite", replace(TINY, cp=2, text="both"))
    query = "SELECT coalesce(text, value) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId"
    labels = sorted(str(name) for (name,) in ask(path, query) if str(name).startswith("rank="))
    assert len(labels) == 8
    assert labels[5] == "rank=5; pp=1/2 dp=0/1 cp=0/2 ep=1/2; mbs=1 seq=2048"


def test_a_regression_changes_only_its_ranks(tmp_path: Path) -> None:
    good = kernels_by_process(write_dualpipe(tmp_path / "good", TINY))
    bad = kernels_by_process(write_dualpipe(tmp_path / "bad", TINY, SAMPLE_REGRESSION))
    changed = [process for process in good if good[process] != bad[process]]
    assert len(changed) == 1
    query = "SELECT text, globalTid FROM NVTX_EVENTS WHERE text LIKE 'rank=%'"
    inline = {str(text): tid for text, tid in ask(tmp_path / "good", query)}
    assert set(inline) == {TINY.setup_label(0), TINY.setup_label(2)}
    assert not any(isinstance(tid, int) and tid & ~0xFFFFFF in changed for tid in inline.values())


def test_a_stage_may_be_missing_or_launch_more(tmp_path: Path) -> None:
    bad = Regression(ranks=frozenset({0, 2}), extra_launches={"stage1_f": 3}, missing=frozenset({"stage2_b"}))
    path = write_dualpipe(tmp_path / "trace", TINY, bad)  # whose even ranks name their ranges inline
    names = [str(name) for (name,) in ask(path, "SELECT text FROM NVTX_EVENTS WHERE text NOT NULL")]
    assert not [name for name in names if re.search("stage2_b", name)]
    assert [name for name in names if re.search("stage2_f", name)]
    launches = f"SELECT count(*) FROM {schema.KERNEL} WHERE streamId = 7 GROUP BY globalPid ORDER BY 1 DESC"
    counts = [count for (count,) in ask(path, launches)]
    assert len(set(counts)) > 1


def test_the_package_holds_the_samples(tmp_path: Path) -> None:
    """And the script of a trace makes the trace: the same script can be read off it."""
    files = {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*.gz")}
    held = {name: gzip.decompress(path.read_bytes()) for name, path in files.items()}
    assert held == packaged(), "run python -m tests.support.samples.packaged"
    assert sum(path.stat().st_size for path in files.values()) < 130_000
    script = held["dualpipe/regressed.sqlite.sql.gz"].decode()
    with closing(sqlite3.connect(tmp_path / "again.sqlite")) as database:
        database.executescript(script)
    assert as_sql(tmp_path / "again.sqlite") == script


@pytest.mark.parametrize(("prefetch", "exposed"), [(True, 1), (False, 4)])
def test_the_gathers_that_nothing_hides(tmp_path: Path, prefetch: bool, exposed: int) -> None:
    """Of each step: the first one with prefetch, that of every layer of the forward without; the last layer is kept."""
    write_fsdp(tmp_path / "run", FsdpShape(jitter=1e-5, forward_prefetch=prefetch))
    with open_run(tmp_path / "run") as run:
        gathers = {row.labels["rank"]: row.value for row in run.rows("launches", stage="all_gather")}
        lengths = [row.value / gathers[row.labels["rank"]] for row in run.rows("comm_ns", stage="all_gather")]
        launches = {row.value for row in run.rows("kernel_launches", kernel=GATHER)}
        alone = {row.value for row in run.rows("exposed_ns", stage="all_gather")}
    assert launches == {7}
    assert all(-100 < value - exposed * min(lengths) < 10_000 for value in alone)  # and the gaps between two kernels
