"""Which traces are bad? What each is called, how it is damaged, and the one line that is said of it.

The reader, a command and a gate are each held to all of them, in ``tests/traces/test_bad_traces.py``.
"""

import gzip
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.gates import ANCHOR, MS, write_trace
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.rocpd import TABLES, RocpdBuilder
from tests.support.sql import execute

KERNEL, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNC, EVENT = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
IN_WINDOW = "start BETWEEN 40001000 AND 42000000"
ANCHORED = "text LIKE 'forward chunk 2%'"
LABEL = "rank={rank}; pp={rank}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"
GIB = 1 << 30

AT = 4_458_676_522_690_655_000
FORMATS = ("kineto", "jax")
HEAD = {
    "kineto": b'{"schemaVersion": 1, "traceEvents": [',
    "jax": b'{"metadata": {"highres-ticks": true}, "traceEvents": [',
}

Edit = Callable[[KinetoBuilder], object]


class Sqlite(NamedTuple):
    """How to write the file, what is said of it, and the exit code of a command."""

    make: Callable[[Path], Path]
    said: str
    code: int = 2


class Json(NamedTuple):
    """How to make the content from the name of the format, an expression for what is said, and the exit code."""

    make: Callable[[str], str | bytes]
    said: str
    code: int = 2


class Bad(NamedTuple):
    """One bad trace: the convention that it is read under, an expression for the line, and a metric that meets it."""

    write: Callable[[Path], Path]
    convention: str
    suffix: str
    said: str
    code: int
    metric: str = "overlap"


# Exports of Nsight Systems


def changed(path: Path, statement: str) -> Path:
    """A good trace after some SQL."""
    execute(write_trace(path), statement)
    return path


def another_database(path: Path) -> Path:
    execute(write_trace(path), *(f"DROP TABLE {table}" for table in (KERNEL, RUNTIME, "NVTX_EVENTS")))
    return path


def waiting(_: TraceBuilder, processes: list[Process]) -> None:
    """A stream that waits for another one in each chunk."""
    for process in processes:
        for k in range(5):
            record = process.event_record(20 * MS * k + 1_100, stream=28)
            process.stream_wait(20 * MS * k + 1_200, record, stream=7)


def loosened(path: Path, table: str, change: str, where: str) -> Path:
    """A trace whose table was written by a program that declares no types, with rows that no export has."""
    execute(
        write_trace(path, edit=waiting),
        f"CREATE TABLE new AS SELECT * FROM {table}",
        f"DROP TABLE {table}",
        f"ALTER TABLE new RENAME TO {table}",
        f"UPDATE {table} SET {change} WHERE {where}",
    )
    return path


def schema_in_no_utf8(path: Path) -> Path:
    content, table = write_trace(path).read_bytes(), b"CREATE TABLE NVTX_EVENTS"
    assert table in content
    return written(path, content.replace(table, b"CREATE TABLE NVTX_EVENT\xff"))


def truncated(path: Path) -> Path:
    content = write_trace(path).read_bytes()
    return written(path, content[: len(content) * 2 // 3])


def cut_in_a_page(path: Path) -> Path:
    """SQLite would read zeros for what is gone."""
    return written(path, write_trace(path).read_bytes()[:-1])


def corrupted(path: Path) -> Path:
    """Noise in every page but the first, which holds the schema."""
    content = bytearray(write_trace(path).read_bytes())
    for page in range(4096, len(content), 4096):
        content[page : page + 64] = b"\xab" * 64
    path.write_bytes(content)
    return path


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def without_anchor(path: Path) -> Path:
    def epochs(_: TraceBuilder, processes: list[Process]) -> None:
        for process in processes:
            for k in range(3):
                process.range(f"epoch {k}", 300 * MS + k, 301 * MS)
            process.kernel("gemm", 302 * MS, 303 * MS)

    return write_trace(path, chunks_ms=(), edit=epochs)


def empty_window(path: Path) -> Path:
    """The GPU runs 200 ms behind the CPU: no kernel lies inside the CPU time of its chunk."""
    process = TraceBuilder().process()
    process.range(LABEL.format(rank=0), 1, 2)
    for k in range(5):
        process.range(ANCHOR.format(k), 20 * MS * k + 10, 20 * MS * k + 15 * MS)
        process.kernel("gemm", 20 * MS * k + 201 * MS, 20 * MS * k + 202 * MS, launch_ns=20 * MS * k + MS)
    return process.trace.write(path)


def two_labels(path: Path) -> Path:
    return write_trace(path, edit=lambda _, processes: processes[0].range(LABEL.format(rank=7), 30, 40))


def stranger(path: Path) -> Path:
    """A process with a label and an anchor, and no kernel."""

    def third(trace: TraceBuilder, _: list[Process]) -> None:
        process = trace.process(pid=999)
        process.range(LABEL.format(rank=2), 10, 20)
        process.range(ANCHOR.format(0), 40 * MS, 60 * MS)

    return write_trace(path, edit=third)


CHANGED_EXPORTS: Mapping[str, tuple[str, str, int]] = {
    "no kernels": (
        f"DROP TABLE {KERNEL}",
        "launches are on record, but the GPU side was not recorded: capture again, with no other profiler on the GPU",
        3,
    ),
    "a table of kernels without a row": (f"DELETE FROM {KERNEL}", "no kernel", 3),
    "no NVTX": (
        "DROP TABLE NVTX_EVENTS",
        "the trace holds no ranges at all: capture with --trace=cuda,nvtx and mark the step with NVTX",
        3,
    ),
    "kernel names that do not join": (
        "UPDATE StringIds SET id = id + 1000",
        "kernel name ids not in StringIds: ids do not join; export the report again",
        2,
    ),
    "processes that do not join": (
        f"UPDATE {KERNEL} SET globalPid = globalPid + 16777216",
        "ids do not join, or it used no GPU",
        3,
    ),
    "no names": ("DROP TABLE StringIds", "has no table StringIds, so no kernel has a name", 2),
    "a column that is not there": (
        f"ALTER TABLE {KERNEL} DROP COLUMN shortName",
        f"table {KERNEL} lacks the column shortName",
        2,
    ),
}
"""A statement after which a good trace is bad, what is said of it, and the exit code."""

EXPORTS: Mapping[str, Sqlite] = {
    **{
        name: Sqlite(partial(changed, statement=statement), said, code)
        for name, (statement, said, code) in CHANGED_EXPORTS.items()
    },
    "no SQLite": Sqlite(
        partial(written, content=b"date,loss\n" * 100),
        "is not a SQLite file: give what `nsys export --type=sqlite` or `rocprofv3 -f rocpd` wrote",
    ),
    "nothing at all": Sqlite(partial(written, content=b""), "is empty (0 bytes): export the report again"),
    "truncated": Sqlite(truncated, "is damaged or truncated: export the report again"),
    "cut in its last page": Sqlite(cut_in_a_page, "is damaged or truncated: export the report again"),
    "corrupted in the middle": Sqlite(corrupted, "is damaged or truncated: export the report again"),
    "another database": Sqlite(another_database, "is SQLite, but not an Nsight Systems export"),
    "no anchor": Sqlite(
        without_anchor,
        "no range matches the anchor 'forward chunk%backward chunk%'; most frequent ranges: 'epoch %' (3)",
        3,
    ),
    "an empty window": Sqlite(
        empty_window,
        "holds no kernel, kernels contained; the GPU is 200 ms behind the CPU (median; at most 200 ms; 0% of 5 "
        "kernels have no launch row); anchors that hold kernels: contained 0, clipped 0, launched 5 of 5",
        3,
    ),
    "two labels in a process": Sqlite(
        two_labels, "process 100 has 2 setup labels ('rank=0; pp=0/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048', 'rank=7; "
    ),
    "a labelled process without kernels": Sqlite(stranger, "no kernel belongs to process 999 with the setup label", 3),
    "a schema that is not UTF-8": Sqlite(schema_in_no_utf8, "is damaged or truncated: export the report again"),
}


DAMAGED_ROWS = {
    "a name without a text": ("StringIds", "value = NULL", "rowid = 1", "StringIds holds a value that cannot be"),
    "a name that is a blob": ("StringIds", "value = X'FFFE'", "rowid = 1", "is not a name): damaged"),
    "an id that is NULL": ("StringIds", "id = NULL", "rowid = 1", "StringIds holds a value that cannot be"),
    "an id that stands for two texts": ("StringIds", "id = 2", "id = 3", "the id 2 has two texts"),
    "a kernel that starts at a text": (KERNEL, "start = 'abc'", IN_WINDOW, "holds a value that cannot be ('abc' is"),
    "a kernel that starts at NULL": (KERNEL, "start = NULL", IN_WINDOW, KERNEL),
    "a kernel that starts at infinity": (KERNEL, "start = 9e999", IN_WINDOW, KERNEL),
    "a kernel that ends before all time": (KERNEL, "end = -9e999", IN_WINDOW, KERNEL),
    "a kernel that starts within a nanosecond": (KERNEL, "start = start + 0.5", IN_WINDOW, KERNEL),
    "a kernel whose name is a text": (KERNEL, "demangledName = 'text'", IN_WINDOW, KERNEL),
    "a kernel whose name is lost": ("StringIds", "id = 999", "value = 'gemm'", "1 kernel name id not in StringIds"),
    "a kernel of no device": (KERNEL, "deviceId = NULL", IN_WINDOW, "('None' is not a whole number)"),
    "an anchor whose name is a blob": ("NVTX_EVENTS", "text = X'00'", ANCHORED, "is not a name): damaged"),
    "an anchor that starts at NULL": ("NVTX_EVENTS", "start = NULL", ANCHORED, "('None' is not a whole number)"),
    "an anchor of no kind": ("NVTX_EVENTS", "eventType = 'x'", ANCHORED, "('x' is not a whole number)"),
    "an anchor of a thread that is a text": ("NVTX_EVENTS", "globalTid = 'text'", ANCHORED, "is not a whole number)"),
    "an anchor of no thread": ("NVTX_EVENTS", "globalTid = NULL", ANCHORED, "('None' is not a whole number)"),
    "a launch without a time": (RUNTIME, "start = X'00'", IN_WINDOW, RUNTIME),
    "a launch of a text": (RUNTIME, "correlationId = 'abc'", IN_WINDOW, RUNTIME),
    "a launch of no thread": (RUNTIME, "globalTid = NULL", IN_WINDOW, RUNTIME),
    "a GPU whose name is a blob": ("TARGET_INFO_GPU", "name = X'FF'", "1", "TARGET_INFO_GPU holds a value"),
}
"""Table, change and rows, and what is said: SQLite keeps any type in any column."""

DAMAGED_EVENTS = {
    "a wait of no type": (SYNC, "syncType = NULL", "rowid = 3", f"{SYNC} holds a value that cannot be"),
    "a wait whose type is a text": (SYNC, "syncType = 'x'", "rowid = 3", f"{SYNC} holds a value that cannot be"),
    "a wait of no process": (SYNC, "globalPid = NULL", "rowid = 3", f"{SYNC} holds a value that cannot be"),
    "a wait of a text as stream": (SYNC, "streamId = 'seven'", "rowid = 3", f"{SYNC} holds a value that cannot be"),
    "a wait for a text": (SYNC, "eventSyncId = 'x'", "rowid = 3", f"{SYNC} holds a value that cannot be"),
    "a wait at infinity": (SYNC, "start = 9e999", "rowid = 3", f"{SYNC} holds a value that cannot be"),
    "a record on no stream": (EVENT, "streamId = NULL", "rowid = 3", f"{EVENT} holds a value that cannot be"),
    "a record of a blob": (EVENT, "correlationId = X'00'", "rowid = 3", f"{EVENT} holds a value that cannot be"),
    "a record in no context": (EVENT, "contextId = 'x'", "rowid = 3", f"{EVENT} holds a value that cannot be"),
    "a launch that never ends": (RUNTIME, "end = NULL", IN_WINDOW, f"{RUNTIME} holds a value that cannot be"),
    "a launch that ends before it starts": (RUNTIME, "end = start - 1", IN_WINDOW, "(a call ends before it starts)"),
}
"""The same, of what the budget alone reads."""


# Databases of rocprofv3


def rocpd_step() -> RocpdBuilder:
    """Five steps of 10 ms with a gemm and a collective in each, a copy, and an allocation that grows."""
    trace = RocpdBuilder()
    trace.range(LABEL.format(rank=0), 10, 20)
    for k in range(5):
        at = 20 * MS * k + MS
        trace.range(ANCHOR.format(k), at, at + 15 * MS)
        trace.range("layer00.stage2_f", at + 1_000, at + 9_000)
        trace.kernel("gemm", at + MS, at + 4 * MS, launch_ns=at + 20_000)
        trace.kernel("ncclDevKernel_SendRecv", at + 3 * MS, at + 5 * MS, stream=28, launch_ns=at + 2_000)
        trace.memcpy(at + 6 * MS, at + 7 * MS, launch_ns=at + 30_000)
        trace.allocate(at + MS, 1_000_000, address=k)
    return trace


def rocpd(path: Path, *statements: str) -> Path:
    """A good database after some SQL, in which ``{kind}`` stands for the table of a kind."""
    trace = rocpd_step()
    execute(trace.write(path), *(sql.format_map({kind: trace.table(kind) for kind in TABLES}) for sql in statements))
    return path


def rocpd_loosened(path: Path, kind: str, change: str, where: str) -> Path:
    """The same, whose table declares no types."""
    table = f"{{{kind}}}"
    return rocpd(
        path,
        *(f"DROP VIEW rocpd_{each}" for each in TABLES),
        f"CREATE TABLE new AS SELECT * FROM {table}",
        f"DROP TABLE {table}",
        f"ALTER TABLE new RENAME TO {table}",
        f"UPDATE {table} SET {change} WHERE {where}",
    )


OF_KERNEL = "id = 5"
OF_ANCHOR = "name_id = (SELECT name_id FROM {region} WHERE end - start = 15000000) AND end - start = 15000000"
OF_CALL = "end - start = 3000"
ROCPD_ROWS: Mapping[tuple[str, str], Mapping[str, tuple[str, str]]] = {
    ("kernel_dispatch", OF_KERNEL): {
        "a kernel that starts at a text": ("start = 'abc'", "('abc' is not a whole number)"),
        "a kernel that starts at NULL": ("start = NULL", "('None' is not a whole number)"),
        "a kernel that starts at infinity": ("start = 9e999", "('inf' is not a whole number)"),
        "a kernel of no process": ("pid = NULL", "('None' is not a whole number)"),
        "a kernel of another process": ("pid = 7", "7 is not a process of rocpd_info_process"),
        "a kernel on a CPU": ("agent_id = 0", "agent 0 is not a GPU"),
        "a kernel on no agent": ("agent_id = 77", "77 is not an agent of rocpd_info_agent"),
        "a kernel on a stream that is a text": ("stream_id = 'x'", "('x' is not a whole number)"),
        "a kernel of an event at infinity": ("event_id = 9e999", "is not a whole number"),
        "a kernel whose name is lost": ("kernel_id = 77", "1 kernel name id not in rocpd_info"),
    },
    ("region", "end - start = 8000"): {
        "a range of an event that is a text": ("event_id = 'x'", "is not a whole number")
    },
    ("region", OF_CALL): {
        "a call of an event that is a text": ("event_id = 'x'", "holds a value that cannot be"),
        "a launch without a time": ("start = X'00'", "holds a value that cannot be"),
        "a launch that ends before it starts": ("end = start - 1", "(a call ends before it starts)"),
        "a launch before all time": ("start = -9223372036854775807 - 1", "a call starts before the clock"),
    },
    ("info_kernel_symbol", "1"): {"a kernel whose name is a blob": ("display_name = X'00'", "is not a name)")},
    ("event", "id % 5 = 2"): {"an event whose stack is a text": ("stack_id = 'x'", "('x' is not a whole number)")},
    ("region", OF_ANCHOR): {
        "an anchor that starts at NULL": ("start = NULL", "('None' is not a whole number)"),
        "an anchor that ends before it starts": ("end = start - 1", "('a range ends before it starts' is"),
        "an anchor on a thread that is a text": ("tid = 'main'", "('main' is not a whole number)"),
    },
    ("event", "extdata LIKE '%forward%'"): {
        "an anchor whose message is a number": ("""extdata = '{{"message": 5}}'""", "(5 is not a name)")
    },
    ("string", "string LIKE '%HIP%'"): {"a string that is a blob": ("string = X'FF'", "is not a name)")},
    ("info_process", "1"): {"a process whose number is a text": ("pid = 'x'", "('x' is not a whole number)")},
    ("info_agent", "1"): {"an agent whose number is NULL": ("id = NULL", "('None' is not a whole number)")},
}
"""By table and rows: change, and what is said."""

ROCPD: Mapping[str, Sqlite] = {
    "no SQLite": Sqlite(partial(written, content=b"date,loss\n" * 100), "or `rocprofv3 -f rocpd` wrote"),
    "nothing at all": Sqlite(partial(written, content=b""), "is empty (0 bytes): profile again"),
    "truncated": Sqlite(
        lambda path: written(path, rocpd(path).read_bytes()[: path.stat().st_size * 2 // 3]),
        "is damaged or truncated: profile again",
    ),
    "no kernels": Sqlite(
        lambda path: rocpd(path, "DELETE FROM {kernel_dispatch}"),
        "launches are on record, but the GPU side was not recorded: capture with rocprofv3 --kernel-trace",
        3,
    ),
    "no ranges": Sqlite(
        lambda path: rocpd(path, "DELETE FROM {region} WHERE end - start <> 3000"),
        "the trace holds no ranges at all: capture with rocprofv3 --kernel-trace",
        3,
    ),
    "a table that is not there": Sqlite(
        lambda path: rocpd(path, *(f"DROP VIEW rocpd_{kind}" for kind in TABLES), "DROP TABLE {event}"),
        "has no table rocpd_event_",
    ),
    "a column that is not there": Sqlite(
        lambda path: rocpd(
            path,
            *(f"DROP VIEW rocpd_{kind}" for kind in TABLES),
            "ALTER TABLE {kernel_dispatch} RENAME COLUMN start TO start_id",
        ),
        "lacks the column start: profile with rocprofv3 of ROCm 7",
    ),
    "two labels in a process": Sqlite(
        lambda path: (lambda t: (t.range(LABEL.format(rank=7), 30, 40), t.write(path))[1])(rocpd_step()),
        "process 100 has 2 setup labels",
    ),
}


# JSON of torch.profiler and JAX


def good(format: str, edit: Edit | None = None, **more: Any) -> KinetoBuilder:
    """Five steps of 1 ms with a gemm in each."""
    trace = JaxBuilder() if format == "jax" else KinetoBuilder(**more)
    at = 10_000_000 if format == "jax" else AT
    for k in range(5):
        begin = at + 1_000_000 * k
        if isinstance(trace, JaxBuilder):
            trace.step("train", k, begin, begin + 990_000)
        else:
            trace.range(f"ProfilerStep#{k}", begin, begin + 990_000)
        trace.kernel("gemm", begin + 100_000, begin + 400_000, launch_ns=begin + 20_000)
    if edit is not None:
        edit(trace)
    return trace


def text(format: str, edit: Edit | None = None) -> str:
    return good(format, edit).text()


def of_kernel(format: str, **members: str) -> str:
    """The trace with members of its last kernel as this text of JSON."""

    def change(trace: KinetoBuilder) -> None:
        names = {e["tid"]: e["args"]["name"] for e in trace.events if e["name"] == "thread_name"}
        kernels = [e for e in trace.events if e["name"] == "gemm" and not names.get(e["tid"], "").startswith("XLA")]
        kernels[-1].update({name: f"@{name}@" for name in members})

    changed = text(format, change)
    for name, written in members.items():
        changed = changed.replace(f'"@{name}@"', written)
    return changed


def bomb(start: bytes, filling: bytes) -> bytes:
    """Ten GiB of a filling, packed: members of 16 MiB."""
    size = 16 << 20
    member = gzip.compress((filling * (size // len(filling) + 1))[:size])
    return gzip.compress(start) + member * (10 * GIB // size)


def nothing_of_gpu(format: str) -> str:
    def only_ranges(trace: KinetoBuilder) -> None:
        trace.events[:] = [e for e in trace.events if "step_num" in str(e) or e.get("cat") == "user_annotation"]
        trace.events.append({"ph": "M", "name": "process_name", "pid": trace.pid, "args": {"name": "/host:CPU"}})

    return text(format, only_ranges)


def merged(trace: KinetoBuilder) -> None:
    trace.event("cuda_runtime", "cudaLaunchKernel", AT, AT + 1, pid=101, args={"correlation": 1})


JSON: Mapping[str, Json] = {
    "empty": Json(lambda _: b"", r"is empty \(0 bytes\): profile again"),
    "blank": Json(lambda _: b" \n\t", r"is not JSON: give what torch.profiler or the profiler of JAX wrote"),
    "a web page": Json(lambda _: b"<html>", r"is not JSON"),
    "a number": Json(lambda _: b"12", r"is not JSON"),
    "zip": Json(lambda _: b"PK\x03\x04" + bytes(100), r"is not JSON"),
    "JSON of something else": Json(lambda _: b'{"a": 1}', r"is JSON, but no trace of torch.profiler or JAX"),
    "JSON of rocprofv3": Json(
        lambda _: b'{"rocprofiler-sdk-tool": [{"metadata": {"pid": 7}}]}',
        r"holds JSON of rocprofv3 \(.*\); its database is read: profile with rocprofv3 -f rocpd",
    ),
    "cut in the middle": Json(
        lambda f: text(f)[: len(text(f)) // 2], r"its JSON ends in the middle \(after \d+ bytes\)"
    ),
    "cut before its end": Json(lambda f: text(f).rstrip()[:-1], r"its JSON ends in the middle"),
    "cut in a name": Json(lambda f: text(f)[: text(f).rindex("gemm") + 2], r"its JSON ends in the middle"),
    "cut after the list": Json(lambda f: text(f)[: text(f).rindex('"traceName"')], r"its JSON ends in the middle"),
    "no colon": Json(lambda f: text(f).replace('"dur": 990.000', '"dur" 990.000', 1), r"is not valid JSON at byte \d+"),
    "truncated gzip": Json(
        lambda f: gzip.compress(text(f).encode())[:-30], r"its gzip stream ends in the middle: .*copy"
    ),
    "gzip of two bytes": Json(lambda _: b"\x1f\x8b", r"its gzip stream ends in the middle"),
    "damaged gzip": Json(lambda f: gzip.compress(text(f).encode())[:-8] + bytes(8), r"its gzip stream is damaged"),
    "rest behind gzip": Json(lambda f: gzip.compress(text(f).encode()) + b"rest", r"its gzip stream is damaged"),
    "packed twice": Json(lambda f: gzip.compress(gzip.compress(text(f).encode())), r"is not JSON"),
    "UTF-16": Json(lambda f: text(f).encode("utf-16"), r"is text in UTF-16 or UTF-32: write it as UTF-8"),
    "UTF-16 without a mark": Json(lambda f: text(f).encode("utf-16-le"), r"is text in UTF-16 or UTF-32"),
    "UTF-32": Json(lambda f: text(f).encode("utf-32-be"), r"is text in UTF-16 or UTF-32"),
    "brackets": Json(lambda _: b"[" * 10**5, r"is JSON, but no trace"),
    "brackets as event": Json(lambda f: HEAD[f] + b"[" * 10**5, r"is nested deeper than any trace"),
    "objects as event": Json(lambda f: HEAD[f] + b'{"a":' * 10**5, r"is nested deeper than any trace"),
    "closed brackets": Json(
        lambda f: text(f).replace('"args": {', '"args": {"x": ' + "[" * 10**5 + "]" * 10**5 + ", ", 1),
        r"is nested deeper than any trace",
    ),
    "no events": Json(
        lambda f: HEAD[f].partition(b', "traceEvents"')[0] + b"}", r"holds no traceEvents: it is not a trace"
    ),
    "events are null": Json(lambda f: HEAD[f][:-1] + b"null}", r"holds no traceEvents: it is not a trace"),
    "two lists of events": Json(
        lambda f: text(f).rstrip()[:-1] + ', "traceEvents": []}', r"a second list of traceEvents: these are two traces"
    ),
    "two traces": Json(lambda f: text(f) + text(f), r"the file goes on after its end: these are two traces"),
    "a rest": Json(lambda f: text(f) + '"dur": 1}]}', r"the file goes on after its end"),
    "no GPU lanes": Json(nothing_of_gpu, r"no kernels: (profile with activities=|there is no lane 'Stream #')", 3),
    "NaN as length": Json(
        lambda f: of_kernel(f, dur="NaN"), r"kernel 'gemm' .*has no duration that can be read \(dur NaN\)"
    ),
    "endless": Json(lambda f: of_kernel(f, dur="Infinity"), r"kernel 'gemm' .*has no duration that can be read"),
    "NaN as time": Json(lambda f: of_kernel(f, ts="NaN"), r"kernel 'gemm' at ts NaN has no time that can be read"),
    "enormous time": Json(lambda f: of_kernel(f, ts="9" * 5000), r"kernel 'gemm' .*has no time that can be read"),
    "time beyond 64 bits": Json(lambda f: of_kernel(f, ts="9223372036854775.999"), r"kernel 'gemm' .* lies outside"),
    "enormous exponent": Json(
        lambda f: of_kernel(f, ts="1e999999999"), r"kernel 'gemm' .*has no time that can be read"
    ),
    "a word as time": Json(lambda f: of_kernel(f, ts='"noon"'), r"kernel 'gemm' .*has no time that can be read"),
    "digits of another script": Json(lambda f: of_kernel(f, dur='"\u0661"'), r"kernel 'gemm' .*has no duration"),
    "a list as length": Json(lambda f: of_kernel(f, dur="[1]"), r"kernel 'gemm' .*has no duration that can be read"),
}

OF_TORCH: Mapping[str, Json] = {
    "no name": Json(lambda f: of_kernel(f, name="null"), r"a kernel has no name: the trace is damaged"),
    "no lane": Json(lambda f: of_kernel(f, args="{}", pid='"x"'), r"kernel .* runs on no known device and stream"),
    "calls of two processes": Json(lambda f: text(f, merged), r"holds API calls of 2 processes"),
}


def of_wait(format: str, **members: Any) -> str:
    """The trace with a stream-wait that has these members, and none where they are None."""

    def change(trace: KinetoBuilder) -> None:
        trace.stream_wait(AT + 1_000, trace.event_record(AT + 500, stream=28))
        for name, value in members.items():
            trace.events[-1].pop(name) if value is None else trace.events[-1].update({name: value})

    return text(format, change)


def of_call(format: str, dur: str) -> str:
    """The trace with this length of its last call."""
    head, _, tail = text(format).rpartition('"cudaLaunchKernel"')
    return head + '"cudaLaunchKernel"' + re.sub(r'"dur": [0-9.]+', f'"dur": {dur}', tail, count=1)


OF_EVENTS: Mapping[str, Json] = {
    "a wait without a time": Json(lambda f: of_wait(f, ts=None), r"stream-wait .* has no time that can be read"),
    "a wait at a word": Json(lambda f: of_wait(f, ts="noon"), r"stream-wait .*at ts noon has no time that can be"),
    "a wait of no stream": Json(
        lambda f: of_wait(f, args={}, pid="x", tid="x"), r"stream-wait .* is of no known device and stream"
    ),
    "a call without a length": Json(lambda f: of_call(f, "null"), r"API call 'cudaLaunchKernel' .* has no duration"),
    "a call of a negative length": Json(lambda f: of_call(f, "-1.5"), r"API call .* ends before it starts"),
}
"""What the budget of torch alone reads."""

BOMBS: Mapping[str, Json] = {
    "10 GiB of zeros": Json(lambda _: bomb(b"", b"\0"), r"is not JSON"),
    "10 GiB of spaces": Json(lambda f: bomb(HEAD[f], b" "), r"unpacks to more than 100 times its size, .*refused"),
    "10 GiB in a text": Json(lambda f: bomb(HEAD[f] + b'{"name": "', b"a"), r"one event has more than 16 MiB"),
    "10 GiB in a member": Json(
        lambda f: bomb(HEAD[f].partition(b'"traceEvents"')[0] + b'"x": "', b"a"), r"one value has more than 16 MiB"
    ),
}


def _written_as(bad: Json, format: str) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        content = bad.make(format)
        return written(path, content.encode() if isinstance(content, str) else content)

    return write


OF_NSYS, OF_ROCPD = ("pithtrain", ".sqlite"), ("pithtrain", ".db")

BAD: Mapping[str, Bad] = {
    **{
        f"nsys: {name}": Bad(
            partial(loosened, table=table, change=change, where=where), *OF_NSYS, re.escape(said), 2, metric
        )
        for metric, cases in (("overlap", DAMAGED_ROWS), ("blocking_ns", DAMAGED_EVENTS))
        for name, (table, change, where, said) in cases.items()
    },
    **{
        f"rocpd: {name}": Bad(
            partial(rocpd_loosened, kind=kind, change=change, where=where), *OF_ROCPD, re.escape(said), 2
        )
        for (kind, where), cases in ROCPD_ROWS.items()
        for name, (change, said) in cases.items()
    },
    **{f"rocpd: {name}": Bad(b.make, *OF_ROCPD, re.escape(b.said), b.code) for name, b in ROCPD.items()},
    **{f"nsys: {name}": Bad(b.make, *OF_NSYS, re.escape(b.said), b.code) for name, b in EXPORTS.items()},
    **{
        f"{format}: {name}": Bad(_written_as(bad, format), format, ".json", bad.said, bad.code)
        for format in FORMATS
        for name, bad in JSON.items()
    },
    **{
        f"kineto: {name}": Bad(_written_as(bad, "kineto"), "kineto", ".json", bad.said, bad.code, metric)
        for metric, cases in (("overlap", OF_TORCH), ("blocking_ns", OF_EVENTS))
        for name, bad in cases.items()
    },
}
"""Every bad trace by its name."""
