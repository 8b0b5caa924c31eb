"""Do the samples give what the tests, the demo and the benchmarks take for granted, and does the package hold them?"""

import gzip
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.samples import schema
from tests.support.samples.builder import TraceBuilder
from tests.support.samples.dualpipe import SAMPLE_SHAPE, write_dualpipe
from tests.support.samples.packaged import FOLDER, as_sql, packaged
from tests.support.samples.versions import VERSIONS, schema_of

TINY = replace(SAMPLE_SHAPE, chunks=4, layers=2)


def ask(path: Path, query: str) -> list[tuple[int | str | None, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return database.execute(query).fetchall()


def tables(path: Path) -> set[str]:
    return {str(name) for (name,) in ask(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}


def columns(path: Path, table: str) -> list[str]:
    return [str(row[1]) for row in ask(path, f"PRAGMA table_info({table})")]


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
