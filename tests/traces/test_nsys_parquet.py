"""Is nsys' ``parquetdir`` export read as its SQLite export is? What is written needs pyarrow, the extra ``parquet``."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_nsys.core.errors import TraceError
from pytest_nsys.traces.nsys.export_cache import CACHE
from pytest_nsys.traces.nsys.parquet import exported
from pytest_nsys.traces.opening import find_traces, open_trace
from tests.support.fake_nsys import needs_nsys
from tests.support.gates import Project, write_trace
from tests.support.reference_data import REAL

needs_pyarrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow, the extra `parquet`, is not there")

GATE = "- {id: hidden, assert: stage2 overlap >= 60%}\n- {id: exposed, assert: exposed_ns < 1ms}"
SECRETS = "TARGET_INFO_SYSTEM_ENV"


def to_parquet(export: Path, folder: Path) -> Path:
    """The tables of a SQLite export as nsys writes them: ids without a sign, one file for each table."""
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(export)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            cursor = database.execute(f'SELECT * FROM "{table}"')
            names = [column[0] for column in cursor.description]
            columns = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(names)
            made = {
                name: arrow.array([None if v is None else v % (1 << 64) for v in values], arrow.uint64())
                if name in ("globalPid", "globalTid")
                else arrow.array(values)
                for name, values in zip(names, columns, strict=True)
            }
            parquet.write_table(arrow.table(made), folder / f"{table}.parquet")
    return folder


@needs_pyarrow
def test_a_gate_judges_it_as_it_judges_the_sqlite_export(project: Project) -> None:
    project.gate(GATE)
    to_parquet(project.trace("export/run.sqlite"), project.root / "run_pqtdir")
    for _ in range(2):
        said = project.pytest("--nsys-trace=run_pqtdir", code=0)
        assert "2 ranks" in said
    assert len(list((project.root / CACHE).glob("*.sqlite"))) == 1


@needs_pyarrow
def test_every_row_is_that_of_the_sqlite_export(tmp_path: Path) -> None:
    export = write_trace(tmp_path / "run.sqlite")
    with closing(sqlite3.connect(export)) as database, database:
        for table, column in (("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"), ("NVTX_EVENTS", "globalTid")):
            database.execute(f"UPDATE {table} SET {column} = {column} | (1 << 63)")  # as ids of other hardware are
    found = exported(to_parquet(export, tmp_path / "a_pqtdir")).path
    with closing(sqlite3.connect(export)) as one, closing(sqlite3.connect(found)) as other:
        tables = [name for (name,) in other.execute("SELECT name FROM sqlite_master")]
        assert {"CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds"} <= set(tables)
        for table in tables:
            select = f'SELECT * FROM "{table}"'
            assert one.execute(select).fetchall() == other.execute(select).fetchall()


@needs_pyarrow
def test_another_content_is_written_anew_and_the_environment_never(tmp_path: Path) -> None:
    folder = to_parquet(write_trace(tmp_path / "run.sqlite"), tmp_path / "run_pqtdir")
    shutil.copyfile(folder / "StringIds.parquet", folder / f"{SECRETS}.parquet")
    first = exported(folder).path
    with closing(sqlite3.connect(first)) as database:
        assert database.execute("SELECT count(*) FROM sqlite_master WHERE name = ?", (SECRETS,)).fetchone() == (0,)
    to_parquet(write_trace(tmp_path / "other.sqlite", 900), folder)
    assert exported(folder).path != first
    assert not first.exists()


def folder_of(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "StringIds.parquet").write_bytes(b"PAR1, and then no more")
    return path


def test_folders_of_parquet_are_traces(project: Project) -> None:
    for name in ("run/a_pqtdir", "run/b_pqtdir", "run/c_pqtdir", "named"):
        folder_of(project.root / name)
    project.trace("run/b.sqlite")
    project.file("run/c.nsys-rep", "report")

    def found(value: str) -> list[str]:
        return [path.name for path in find_traces(value, project.root)]

    assert found("run") == ["b.sqlite", "c.nsys-rep", "a_pqtdir"]  # not the same trace twice
    assert found("run/a_pqtdir") == ["a_pqtdir"]
    assert found("run/*_pqtdir") == ["a_pqtdir", "b_pqtdir", "c_pqtdir"]
    assert found("named") == ["named"]


@needs_pyarrow
def test_a_damaged_table(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"StringIds.parquet: is damaged, or no Parquet file \(.*\): export the"):
        open_trace(folder_of(tmp_path / "run_pqtdir"))
    assert not list((tmp_path / CACHE).glob("*.sqlite"))


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TraceError, match=r"reading Parquet needs pyarrow: pip install 'pytest-nsys\[parquet\]'"):
        open_trace(folder_of(tmp_path / "run_pqtdir"))


def test_a_folder_of_that_name_without_tables(project: Project) -> None:
    project.gate(GATE)
    (project.root / "run_pqtdir").mkdir()
    said = project.pytest("--nsys-trace=run_pqtdir", code=1)
    assert "run_pqtdir: holds no table of an Nsight Systems export (*.parquet)" in said


@needs_nsys
@needs_pyarrow
@pytest.mark.reference
def test_what_a_real_nsys_writes(project: Project) -> None:
    words = ["nsys", "export", "--type=parquetdir", "--output=mordred_pqtdir", str(REAL / "mordred.qdrep")]
    done = subprocess.run(words, cwd=project.root, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this nsys writes no Parquet")
    said = project.command(
        "rows", "compute_ns", "--trace", "mordred_pqtdir", "--convention", "generic", "--window", "run", code=0
    )
    assert "compute_ns 0    6128761 ns" in said
