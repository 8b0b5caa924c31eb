"""How is nsys' ``parquetdir`` export read? It is a folder with one Parquet file for each table.

Its tables and columns are those of the SQLite export, so it is written into one once, in the cache of
``export_cache.py``, and read as such. pyarrow, which reads Parquet, is the extra ``parquet``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import sqlite3
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from pytest_nsys.core.errors import TraceError, convert_os_errors
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.traces.nsys.export_cache import Export, ExportRequest, find_export, write_export

# Version of what is written: raise it where that changes, so that an older cache is not read for it.
WRITTEN_VERSION = "1"

BATCH_ROWS = 50_000
# What is taken over: never the tables that hold the user's environment.
EXPORTED_TABLES = re.compile(
    r"CUPTI_\w+|NVTX_\w+|DYNAMIC_NVTX\w+|ENUM_\w+|StringIds|ThreadNames|PROCESSES|DIAGNOSTIC_EVENT|ANALYSIS_DETAILS"
    r"|META_DATA_EXPORT|TARGET_INFO_(?:GPU|GPU_METRICS|CUDA_DEVICE|SESSION_START_TIME)"
    r"|CUDA_GPU_MEMORY_USAGE_EVENTS|CUDA_GRAPH_NODE_EVENTS|GPU_METRICS"
)

COLUMN_NAME = re.compile(r"\w{1,100}")
PAYLOAD_COLUMN = "binaryData"


def export_parquet(folder: Path) -> Export:
    """Return the tables of the folder as one SQLite file, written now where the cache has none. Raises TraceError."""
    files = list_table_files(folder)
    request = ExportRequest(folder, _hash_files(files), WRITTEN_VERSION)
    return find_export(request) or write_export(request, functools.partial(_write_database, folder, files))


def list_table_files(folder: Path) -> list[Path]:
    """Return the files of the tables that are read, by name. Raises TraceError where there are none."""
    with convert_os_errors(TraceError, f"{folder}: cannot be read"):
        files = sorted(path for path in folder.glob("*.parquet") if EXPORTED_TABLES.fullmatch(path.stem))
    if not files:
        raise TraceError(f"{folder}: holds no table of an Nsight Systems export (*.parquet)")
    return files


def _hash_files(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode("utf-8", "surrogateescape") + b"\0")
        with convert_os_errors(TraceError, f"{path}: cannot be read"), path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _write_database(folder: Path, files: list[Path], target: Path) -> None:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise TraceError(
            f"{folder}: reading Parquet needs pyarrow: pip install 'pytest-nsys[parquet]', or export with --type=sqlite"
        ) from error
    try:
        with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = OFF")  # a file that is not finished is thrown away
            database.execute("PRAGMA synchronous = OFF")
            database.execute("BEGIN")
            for path in files:
                _write_table(database, path, arrow, parquet)
            database.execute("COMMIT")
    except sqlite3.Error as error:
        raise TraceError(f"{folder}: its tables cannot be written to {target.parent}: {error}") from error


def _write_table(database: sqlite3.Connection, path: Path, arrow: Any, parquet: Any) -> None:
    try:
        with parquet.ParquetFile(path) as file:
            names = [name for name in file.schema_arrow.names if COLUMN_NAME.fullmatch(name)]
            if not names:
                return
            kinds = {
                name: "BLOB" if name == PAYLOAD_COLUMN else _choose_type(file.schema_arrow.field(name).type, arrow)
                for name in names
            }
            columns = ", ".join(f'"{name}" {kind}' for name, kind in kinds.items())
            database.execute(f'CREATE TABLE "{path.stem}" ({columns})')
            insert = f'INSERT INTO "{path.stem}" VALUES ({", ".join("?" * len(names))})'
            for rows in _iterate_batches(file, names, arrow):
                database.executemany(insert, rows)
    except (OSError, ValueError, arrow.ArrowException) as error:
        problem = sanitize_line(str(error).splitlines()[0] if str(error) else type(error).__name__)
        raise TraceError(f"{path}: is damaged, or no Parquet file ({problem}): export the report again") from error


def _iterate_batches(file: Any, names: list[str], arrow: Any) -> Iterator[Iterator[tuple[object, ...]]]:
    for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=names):
        yield zip(*(_convert_values(batch.column(name), arrow, name) for name in names), strict=True)


def _convert_values(column: Any, arrow: Any, name: str) -> list[object]:
    if name == PAYLOAD_COLUMN and (arrow.types.is_string(column.type) or arrow.types.is_large_string(column.type)):
        column = column.cast(arrow.large_binary())  # bytes that nsys declares as text, which they seldom are
    if arrow.types.is_uint64(column.type):  # SQLite's integers have a sign, and nsys' export wraps ids into it
        column = column.cast(arrow.int64(), safe=False)
    values: list[object] = column.to_pylist()
    return values


def _choose_type(arrow_type: Any, arrow: Any) -> str:
    if arrow.types.is_integer(arrow_type) or arrow.types.is_boolean(arrow_type):
        return "INTEGER"
    if arrow.types.is_floating(arrow_type):
        return "REAL"
    return "TEXT" if arrow.types.is_string(arrow_type) or arrow.types.is_large_string(arrow_type) else "BLOB"
