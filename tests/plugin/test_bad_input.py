"""Does every bad input end in one clear line that says what to do: never green, no traceback, nothing destroyed?"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from pytest_nsys.cli import main
from pytest_nsys.samples.builder import Process, TraceBuilder
from tests.support.gates import ANCHOR, MS, Project, write_trace

GATE = "assertions:\n  - overlap > 0%\n  - exposed_ns <= baseline + 1s"
KERNEL, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
IN_WINDOW = "start BETWEEN 40001000 AND 42000000"
ANCHORED = "text LIKE 'forward chunk 2%'"
LABEL = "rank={rank}; pp={rank}/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048"


def changed(path: Path, *statements: str) -> Path:
    """A good trace after some SQL."""
    write_trace(path)
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return path


def loosened(path: Path, table: str, change: str, where: str) -> Path:
    """A trace whose table was written by a program that declares no types, with rows that no export has."""
    return changed(
        path,
        f"CREATE TABLE new AS SELECT * FROM {table}",
        f"DROP TABLE {table}",
        f"ALTER TABLE new RENAME TO {table}",
        f"UPDATE {table} SET {change} WHERE {where}",
    )


def replaced(path: Path, old: bytes, new: bytes) -> Path:
    content = write_trace(path).read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    return path


def truncated(path: Path) -> Path:
    content = write_trace(path).read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    return path


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
    trace = TraceBuilder()
    process = trace.process()
    process.range(LABEL.format(rank=0), 1, 2)
    for k in range(5):
        process.range(ANCHOR.format(k), 20 * MS * k + 10, 20 * MS * k + 15 * MS)
        process.kernel("gemm", 20 * MS * k + 201 * MS, 20 * MS * k + 202 * MS, launch_ns=20 * MS * k + MS)
    return trace.write(path)


def two_labels(path: Path) -> Path:
    return write_trace(path, edit=lambda _, processes: processes[0].range(LABEL.format(rank=7), 30, 40))


def stranger(path: Path) -> Path:
    """A process with a label and an anchor, and no kernel."""

    def third(trace: TraceBuilder, _: list[Process]) -> None:
        process = trace.process(pid=999)
        process.range(LABEL.format(rank=2), 10, 20)
        process.range(ANCHOR.format(0), 40 * MS, 60 * MS)

    return write_trace(path, edit=third)


class Bad(NamedTuple):
    """How to make the input, and what is said of it."""

    make: Callable[[Path], Path]
    said: str


UNREADABLE = {
    "no SQLite": Bad(
        lambda path: written(path, b"date,loss\n" * 100),
        "is no SQLite file: give what `nsys export --type=sqlite` wrote",
    ),
    "nothing at all": Bad(lambda path: written(path, b""), "is empty (0 bytes): export the report again"),
    "truncated": Bad(truncated, "is damaged or cut short: export the report again"),
    "corrupted in the middle": Bad(corrupted, "is damaged or cut short: export the report again"),
    "another database": Bad(
        lambda path: changed(
            path,
            "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL",
            "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME",
            "DROP TABLE NVTX_EVENTS",
        ),
        "is SQLite, but no Nsight Systems export",
    ),
    "no kernels": Bad(
        lambda path: changed(path, "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL"),
        "no kernels: capture with --trace=cuda,nvtx on a step that uses the GPU",
    ),
    "a table of kernels without a row": Bad(
        lambda path: changed(path, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL"), "no kernel"
    ),
    "no NVTX": Bad(
        lambda path: changed(path, "DROP TABLE NVTX_EVENTS"),
        "the trace holds no ranges at all: capture with --trace=cuda,nvtx and mark the step with NVTX",
    ),
    "no anchor": Bad(
        without_anchor,
        "no range matches the anchor 'forward chunk%backward chunk%'; most frequent ranges: 'epoch %' (3)",
    ),
    "an empty window": Bad(
        empty_window,
        "holds no kernel, kernels contained; the GPU is 200.0 ms behind the CPU (median; at most 200.0 ms; 0.0 % of 5 "
        "kernels have no launch row); anchors that hold kernels: contained 0, clipped 0, launched 5 of 5",
    ),
    "two labels in a process": Bad(
        two_labels, "process 100 has 2 setup labels ('rank=0; pp=0/2 dp=0/1 cp=0/1 ep=0/1; mbs=1 seq=2048', 'rank=7; "
    ),
    "a labelled process without kernels": Bad(stranger, "no kernel belongs to process 999 with the setup label"),
    "kernel names that do not join": Bad(
        lambda path: changed(path, "UPDATE StringIds SET id = id + 1000"),
        "kernel name ids not in StringIds: ids do not join; export the report again",
    ),
    "processes that do not join": Bad(
        lambda path: changed(path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = globalPid + 16777216"),
        "ids do not join, or it used no GPU",
    ),
    "no names": Bad(
        lambda path: changed(path, "DROP TABLE StringIds"), "has no table StringIds, so no kernel has a name"
    ),
    "a name without a text": Bad(
        lambda path: loosened(path, "StringIds", "value = NULL", "rowid = 1"), "StringIds holds a value that cannot be"
    ),
    "a name that is a blob": Bad(
        lambda path: loosened(path, "StringIds", "value = X'FFFE'", "rowid = 1"), "is no name): damaged"
    ),
    "an id that is NULL": Bad(
        lambda path: loosened(path, "StringIds", "id = NULL", "rowid = 1"), "StringIds holds a value that cannot be"
    ),
    "an id that stands for two texts": Bad(
        lambda path: loosened(path, "StringIds", "id = 2", "id = 3"), "the id 2 stands for two texts"
    ),
    "a kernel that starts at a text": Bad(
        lambda path: loosened(path, KERNEL, "start = 'abc'", IN_WINDOW),
        f"{KERNEL} holds a value that cannot be: damaged",
    ),
    "a kernel that starts at NULL": Bad(lambda path: loosened(path, KERNEL, "start = NULL", IN_WINDOW), KERNEL),
    "a kernel that starts at infinity": Bad(lambda path: loosened(path, KERNEL, "start = 9e999", IN_WINDOW), KERNEL),
    "a kernel that ends before all time": Bad(lambda path: loosened(path, KERNEL, "end = -9e999", IN_WINDOW), KERNEL),
    "a kernel of no device": Bad(
        lambda path: loosened(path, KERNEL, "deviceId = NULL", IN_WINDOW), "('None' is no whole number)"
    ),
    "an anchor whose name is a blob": Bad(
        lambda path: loosened(path, "NVTX_EVENTS", "text = X'00'", ANCHORED), "is no name): damaged"
    ),
    "an anchor that starts at NULL": Bad(
        lambda path: loosened(path, "NVTX_EVENTS", "start = NULL", ANCHORED), "('None' is no whole number)"
    ),
    "an anchor of no kind": Bad(
        lambda path: loosened(path, "NVTX_EVENTS", "eventType = 'x'", ANCHORED), "('x' is no whole number)"
    ),
    "an anchor of no thread": Bad(
        lambda path: loosened(path, "NVTX_EVENTS", "globalTid = NULL", ANCHORED), "('None' is no whole number)"
    ),
    "a launch without a time": Bad(lambda path: loosened(path, RUNTIME, "start = X'00'", IN_WINDOW), RUNTIME),
    "a launch of a text": Bad(lambda path: loosened(path, RUNTIME, "correlationId = 'abc'", IN_WINDOW), RUNTIME),
    "a launch of no thread": Bad(lambda path: loosened(path, RUNTIME, "globalTid = NULL", IN_WINDOW), RUNTIME),
    "a GPU whose name is a blob": Bad(
        lambda path: loosened(path, "TARGET_INFO_GPU", "name = X'FF'", "1"), "TARGET_INFO_GPU holds a value"
    ),
    "a schema that is no UTF-8": Bad(
        lambda path: replaced(path, b"CREATE TABLE NVTX_EVENTS", b"CREATE TABLE NVTX_EVENT\xff"),
        "is damaged or cut short: export the report again",
    ),
    "a column that is not there": Bad(
        lambda path: changed(path, "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN shortName"),
        "table CUPTI_ACTIVITY_KIND_KERNEL lacks the column shortName",
    ),
}


def one_line(said: str, what: str) -> str:
    """The line that says ``what``."""
    lines = {line for line in said.splitlines() if what in line and line.startswith("  error: ")}
    assert len(lines) == 1, said
    return lines.pop()


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_trace_that_cannot_be_judged(project: Project, case: str) -> None:
    bad = UNREADABLE[case]
    project.gate(GATE)
    path = bad.make(project.root / "run.sqlite")
    before, files = path.read_bytes(), project.files()
    cases = project.cases("--nsys-trace=run.sqlite", code=1)
    assert {item.state for item in cases.values()} == {"error"}
    said = project.pytest("--nsys-trace=run.sqlite", code=1)
    assert str(path) in one_line(said, bad.said)
    said = project.refresh("--nsys-trace=run.sqlite", code=1)
    one_line(said, bad.said)
    result = CliRunner().invoke(main, ["rows", "overlap", "--trace", str(path)])
    assert result.exit_code in (2, 3)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert result.stdout == ""
    assert bad.said in line
    assert str(path) in line
    assert path.read_bytes() == before
    assert project.files() == files


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("absent.sqlite", "absent.sqlite: there is no such file or folder"),
        ("absent/*.sqlite", "absent/*.sqlite: matches no file"),
        ("empty", "empty: holds no trace (*.sqlite, *.json, *.json.gz)"),
        ("raw", "raw: holds no trace, but a.qdstrm, which nsys could not turn into a report: capture it again"),
        ("nodes", "nodes: holds no trace itself; its folder node0 does: one run is one folder"),
    ],
)
def test_a_path_without_a_trace(project: Project, value: str, said: str) -> None:
    project.gate(GATE)
    (project.root / "empty").mkdir()
    project.file("raw/a.qdstrm", "raw")
    project.trace("nodes/node0/run.sqlite")
    files = project.files()
    printed = project.pytest(f"--nsys-trace={value}", code=4)
    assert f"ERROR: {project.root}/{said}\n" in printed
    assert project.files() == files


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Somebody writes the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


def test_a_trace_that_is_being_written(project: Project) -> None:
    project.gate(GATE)
    path = project.trace()
    with locked(path):
        said = project.pytest("--nsys-trace=run.sqlite", code=1)
    one_line(said, "is locked by another process: wait until its export is finished")
    project.refresh("--nsys-trace=run.sqlite", code=0)


def test_judging_leaves_nothing_beside_the_trace(project: Project) -> None:
    project.gate("- overlap >= 60%")
    path = project.trace("traces/run.sqlite")
    before = path.read_bytes()
    project.pytest("--nsys-trace=traces", code=0)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_disk_that_cannot_be_written(project: Project, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """As SQLite finds it there: it can make no file beside the trace. (These tests may run as root, who may write.)"""
    project.gate("- overlap >= 60%")
    changed(project.root / "run.sqlite", f"PRAGMA journal_mode = {mode}")
    connect = sqlite3.connect

    def read_only(name: str, **more: object) -> sqlite3.Connection:
        if mode == "WAL" and "immutable=1" not in name:
            raise sqlite3.OperationalError("unable to open database file")
        return connect(name, **more)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(sqlite3, "connect", read_only)
    project.pytest("--nsys-trace=run.sqlite", code=0)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
GATES = {
    "empty": (b"", "1:1: the file is empty: write version: 1 and assertions"),
    "binary": (b"SQLite format 3\x00" + bytes(range(32)), "1:16: a control character (U+0000)"),
    "not UTF-8": (b"version: 1\n# \xff\n", "2:1: this is not UTF-8 text"),
    "50 MB": (b"#" * 50_000_000, "1:1: the file is larger than 1 048 576 bytes"),
    "an alias bomb": (BOMB.encode(), "1:1: the file holds more than 20 000 nodes, its aliases expanded"),
    "brackets without end": (b"[" * 100_000, "nested deeper than 50 levels"),
    "a Python object": (b"version: 1\nassertions: !!python/object/apply:os.getcwd []\n", ":2:13: "),
    "no YAML": (b"version: 1\nassertions: [\n", ":3:1: not YAML"),
    "another file": (b"on: push\njobs: {}\n", "1:1: unknown key"),
}


@pytest.mark.parametrize("case", GATES)
def test_a_gate_file_that_cannot_be_read(project: Project, case: str) -> None:
    content, what = GATES[case]
    project.gate("- overlap >= 60%", "good.nsys.yaml")
    written(project.root / "bad.nsys.yaml", content)
    project.trace()
    files = project.files()
    said = project.pytest("--nsys-trace=run.sqlite", code=2)
    assert [line for line in said.splitlines() if line.startswith("bad.nsys.yaml:") and what in line], said
    assert "passed" not in said
    project.pytest("--nsys-trace=run.sqlite", "--nsys-update-baselines", "--nsys-reason=r", code=2)
    assert project.files() == files


def test_a_gate_file_that_is_a_folder(project: Project) -> None:
    (project.root / "bad.nsys.yaml").mkdir()
    project.pytest("bad.nsys.yaml", code=5)


def test_a_gate_file_that_leads_nowhere(project: Project) -> None:
    (project.root / "bad.nsys.yaml").symlink_to(project.root / "absent")
    assert "no tests ran" in project.pytest(code=5)


def test_names_of_a_stranger_do_not_reach_the_terminal(project: Project) -> None:
    """A range's name may hold what a terminal obeys."""

    def escape(_: TraceBuilder, processes: list[Process]) -> None:
        for process in processes:
            process.range("forward chunk \x1b[31m\x07 backward chunk \u202e", 300 * MS, 310 * MS)
            process.kernel("gemm", 301 * MS, 302 * MS)

    project.gate("window: last\nassertions:\n  - window_ns <= 15ms\n  - window_ns <= 1ms")
    project.trace(edit=escape)
    said = project.pytest("--nsys-trace=run.sqlite", code=1)
    assert "forward chunk �[31m� backward chunk �" in said
    assert not {"\x1b", "\x07", "\u202e"} & set(said)


def test_the_environment_in_a_trace_is_never_told(project: Project) -> None:
    def secret(trace: TraceBuilder, _: list[Process]) -> None:
        trace.meta("ENVIRONMENT", "TOKEN=hunter2", capture=True)
        trace.insert("TARGET_INFO_SYSTEM_ENV", name="TOKEN", value="hunter2")

    project.gate(GATE)
    project.trace(edit=secret)
    said = project.refresh("--nsys-trace=run.sqlite", "-v", code=0)
    said += project.pytest("--nsys-trace=run.sqlite", "-vv", f"--junitxml={project.root / 'junit.xml'}", code=0)
    assert "hunter2" not in said + (project.root / "junit.xml").read_text() + str(project.baselines())
