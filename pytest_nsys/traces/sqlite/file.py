"""How is a SQLite file of somebody else's opened, so that reading it is safe, quick and clear about what is wrong?

Read-only, its schema untrusted, only real tables, only columns requested by name. Every error of SQLite becomes one
line. A large file is scanned by two threads, a half of the row ids each: SQLite gives up the interpreter lock while it
steps through rows that a filter drops. A run of a thousand files has some tens of them open at a time.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import sqlite3
import stat
import tempfile
import threading
import urllib.parse
import weakref
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pytest_nsys.core.errors import TraceError, convert_os_errors
from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.model import Interval
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.traces.sqlite.conditions import MAX_INT64, MIN_INT64

SQLITE_MAGIC = b"SQLite format 3\x00"
EXPECTED_FILES = "what `nsys export --type=sqlite` or `rocprofv3 -f rocpd` wrote"
# How packed files begin, and end their names.
GZIP_MAGIC, GZIP_SUFFIX = b"\x1f\x8b", ".gz"
# Offsets are those of the database header in SQLite's "Database File Format".
PAGE_SIZE_SLICE = slice(16, 18)
# The size of a page for which the header says 1, as 65536 does not fit into its two bytes.
LARGEST_PAGE_BYTES, FIRST_PAGE_BYTES = 1 << 16, 1 << 12

# Byte of the header that is 2 in a file of write-ahead mode.
WRITE_AHEAD_OFFSET = 18

TWO_THREADS_FROM_BYTES = 100 << 20
# So long a read waits for the lock of another process; then an error says to wait for its export.
BUSY_TIMEOUT_S = 1.0
CHUNK_ROWS = 20_000
# Rows that become columns at once.
BLOCK_ROWS = 1 << 16

# Rows of a table by which places are found, at least, and how far apart they are, at least.
FEWEST_SAMPLED_ROWS, SAMPLED_ROW_DISTANCE = 64, 128

# What SQLite calls the number of a row, unless a column is called so.
ROW_ID_NAMES = ("rowid", "_rowid_", "oid")

# Run by each connection before it reads: functions in a schema of somebody else's must not run, and nothing is
# written.
SAFEGUARDS = ("PRAGMA trusted_schema = OFF", "PRAGMA query_only = ON")

# Files of a thread, each with up to two connections: well below 256 descriptors, the least that a system allows.
MOST_OPEN_FILES = 48

# What sqlite3 raises: where SQLite complains of a schema that is not UTF-8, its very message cannot be decoded.
SQLITE_ERRORS = (sqlite3.Error, UnicodeError, OverflowError)

SqlRow = tuple[Any, ...]
T = TypeVar("T")


_NO_SUBQUERY = r"(?:(?!\b(?:FROM|SELECT|UNION)\b)[^()])*"
# A view of some rows and columns of one table: without another table, a query inside or a function.
PLAIN_VIEW = re.compile(
    rf'CREATE VIEW \S+\s+AS\s+SELECT\b{_NO_SUBQUERY}\bFROM\s+(?P<table>"\w+"|\w+)\s*(?:WHERE\b{_NO_SUBQUERY})?',
    re.IGNORECASE,
)


class FastReadError(Exception):
    """Reports that these rows cannot be read as columns in the fast way."""


class TemporaryView(NamedTuple):
    """Describes a view that each connection makes for itself, of the same name and columns as a table of another
    format.

    It has a column ``rowid`` where each of ``tables``, which it is over, numbers its rows.
    """

    name: str
    sql: str
    tables: Sequence[str]

    @property
    def create_statement(self) -> str:
        """The SQL that makes the view, beside the file and not in it."""
        return f'CREATE TEMP VIEW "{self.name}" AS {self.sql}'


class _OpenFiles(threading.local):
    """Holds the files that a thread has open, the least recently used first."""

    def __init__(self) -> None:
        self._files: dict[SqliteFile, None] = {}

    def mark_used(self, file: SqliteFile) -> None:
        """Note that the file is read now, and close the oldest one that is not being read where too many are open."""
        self._files.pop(file, None)
        self._files[file] = None
        if len(self._files) > MOST_OPEN_FILES:
            idle_file = next(
                (candidate for candidate in self._files if not candidate.active_reads and candidate is not file), None
            )
            if idle_file is not None:
                idle_file.close()

    def remove(self, file: SqliteFile) -> None:
        """Note that the file is closed."""
        self._files.pop(file, None)


_OPEN_FILES = _OpenFiles()


class SqliteFile:
    """Reads the tables of one file by name. Raises TraceError for whatever SQLite cannot do."""

    def __init__(self, path: Path, remedy: str = "export the report again") -> None:
        """Open the file; ``remedy`` says how a person gets it once more where it is damaged."""
        self.path, self.remedy = path, remedy
        self._unpacked_path = _unpack_gzip(path)
        if self._unpacked_path != path:  # however this file is let go, what was laid down goes with it
            weakref.finalize(self, self._unpacked_path.unlink, missing_ok=True)
        self._check_header()
        self._connections: list[sqlite3.Connection] = []
        self._prepare_connection: Callable[[sqlite3.Connection], object] | None = None
        self.temporary_views: Mapping[str, TemporaryView] = {}
        self.active_reads = 0
        try:
            entries = self.fetch_rows("SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')")
        except TraceError:
            self.close()
            raise
        self.tables = frozenset(str(name) for name, kind, _ in entries if kind == "table")
        self.views = {str(name): str(sql) for name, kind, sql in entries if kind == "view"}

    def adopt_plain_views(self) -> None:
        """Take a view of one table for the table that it is named like.

        A format whose views repeat its tables does not call this; no other view is read, as it may have no end.
        """
        matches = ((name, PLAIN_VIEW.fullmatch(sql)) for name, sql in self.views.items())
        self.tables |= {
            name for name, match in matches if match is not None and match["table"].strip('"') in self.tables
        }

    def define_views(self, views: Iterable[TemporaryView], prepare: Callable[[sqlite3.Connection], object]) -> None:
        """Take views for tables; ``prepare`` gives each connection the tables beside the file that they are over."""
        self.close()
        self._prepare_connection = prepare
        self.temporary_views = {view.name: view for view in views}
        self.tables |= self.temporary_views.keys()

    def describe_table(self, table: str) -> str:
        """Return the name under which a person finds a table of the file."""
        return " or ".join(self.temporary_views[table].tables) if table in self.temporary_views else table

    def _check_header(self) -> None:
        with convert_os_errors(TraceError, f"{self.path}: cannot be read"):
            status = self._unpacked_path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise TraceError(f"{self.path}: is not a plain file: give {EXPECTED_FILES}")
            size = status.st_size
            with self._unpacked_path.open("rb") as file:
                head = file.read(WRITE_AHEAD_OFFSET + 1)
        if size == 0:
            raise TraceError(f"{self.path}: is empty (0 bytes): {self.remedy}")
        if not head.startswith(SQLITE_MAGIC):
            raise TraceError(f"{self.path}: is not a SQLite file: give {EXPECTED_FILES}")
        page_bytes = int.from_bytes(head[PAGE_SIZE_SLICE]) if len(head) > WRITE_AHEAD_OFFSET else 0
        # SQLite would read zeros where its last page is cut.
        if page_bytes and size % (page_bytes if page_bytes > 1 else LARGEST_PAGE_BYTES):
            raise TraceError(f"{self.path}: is damaged or truncated: {self.remedy}")
        self.size_bytes = size
        self._is_write_ahead = head[WRITE_AHEAD_OFFSET:] == b"\x02"

    def get_connection(self, number: int = 0) -> sqlite3.Connection:
        """Return one of the connections, open for as long as the file is; number 1 is for a second thread."""
        _OPEN_FILES.mark_used(self)
        while len(self._connections) <= number:
            self._connections.append(self._connect())
        return self._connections[number]

    def _build_uri(self) -> str:
        uri = "file:" + urllib.parse.quote(os.fsencode(self._unpacked_path.absolute())) + "?mode=ro"
        # In write-ahead mode SQLite leaves files beside the one it reads, and cannot read on a read-only disk; opened
        # as immutable it does neither, but would ignore a log that holds rows: so only where there is none.
        log = self._unpacked_path.with_name(self._unpacked_path.name + "-wal")
        immutable = self._is_write_ahead and not (log.exists() and log.stat().st_size)
        return uri + ("&immutable=1" if immutable else "")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._build_uri(), uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
        try:
            if self._prepare_connection is not None:
                self._prepare_connection(connection)
            for statement in (*(view.create_statement for view in self.temporary_views.values()), *SAFEGUARDS):
                connection.execute(statement)
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        except SQLITE_ERRORS:
            connection.close()
            raise
        # Names come from any program in any encoding; a broken byte must not hide the row.
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        return connection

    def _build_error(self, error: Exception) -> TraceError:
        text = sanitize_line(str(error))
        if "locked" in text:
            problem = "is locked by another process: wait until its export is finished"
        elif not isinstance(error, sqlite3.Error) or "malformed" in text or "not a database" in text:
            problem = f"is damaged or truncated: {self.remedy}"
        else:
            problem = f"cannot be read: {text}"
        return TraceError(f"{self.path}: {problem}")

    @memoize_method
    def read_columns(self, table: str) -> dict[str, str]:
        """Return the declared type of each column of ``table``, by the lower-case name of the column."""
        info = self.fetch_rows(f'PRAGMA table_info("{table}")')
        return {str(name).lower(): str(kind) for _, name, kind, *_ in info}

    def has_columns(self, table: str, *columns: str) -> bool:
        """Return whether the file has the table with these columns."""
        return table in self.tables and all(name.lower() in self.read_columns(table) for name in columns)

    def get_column(self, table: str, name: str) -> str:
        """Return the column's name, or NULL where the table has none of that name."""
        return name if self.has_columns(table, name) else "NULL"

    def fetch_rows(self, sql: str, parameters: Sequence[object] = ()) -> list[SqlRow]:
        """Return all rows of a query, read on the caller's thread."""
        return [row for rows in self.fetch_chunks(sql, parameters) for row in rows]

    def fetch_chunks(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[list[SqlRow]]:
        """Yield the rows of a query some thousands at a time: for results that are as large as the table."""
        self.active_reads += 1
        try:
            cursor = self.get_connection().execute(sql, tuple(parameters))
            while rows := cursor.fetchmany(CHUNK_ROWS):
                yield rows
        except SQLITE_ERRORS as error:
            raise self._build_error(error) from error
        finally:
            self.active_reads -= 1

    def scan_rows(
        self,
        columns: str,
        table: str,
        where: str,
        parameters: Sequence[object] = (),
        row_id_ranges: Sequence[Interval] | None = None,
    ) -> Iterator[SqlRow]:
        """Yield the few rows of a large table that pass a filter, in the order of their row ids; let go as they are
        used.

        ``row_id_ranges`` say where those rows stand.
        """

        def read_range(connection: sqlite3.Connection, low: int, high: int) -> list[SqlRow]:
            bound = f"{row_id} BETWEEN {low} AND {high} AND " if (row_id := self.find_row_id_name(table)) else ""
            sql = f'SELECT {columns} FROM "{table}" WHERE {bound}({where})'
            return connection.execute(sql, tuple(parameters)).fetchall()

        if row_id_ranges is None:
            return _drain(self.read_halves(table, read_range))
        try:
            return _drain([read_range(self.get_connection(), *id_range) for id_range in row_id_ranges])
        except SQLITE_ERRORS as error:
            raise self._build_error(error) from error

    def read_chunks(
        self,
        columns: str,
        table: str,
        where: str,
        parameters: Sequence[object] = (),
        *,
        whole_table: bool,
        row_id_ranges: Sequence[Interval] | None = None,
    ) -> Iterable[list[SqlRow]]:
        """Yield rows in chunks where they may be as many as the table has, else all at once, read by two threads."""
        if whole_table:
            return self.fetch_chunks(f'SELECT {columns} FROM "{table}" WHERE {where}', parameters)
        return [list(self.scan_rows(columns, table, where, parameters, row_id_ranges))]

    def fetch_distinct(self, columns: str, table: str) -> set[SqlRow]:
        """Return the distinct rows of some columns."""
        return {*self.scan_rows(f"DISTINCT {columns}", table, "1")}

    def read_halves(self, table: str, read: Callable[[sqlite3.Connection, int, int], T]) -> list[T]:
        """Return what ``read`` makes of both halves of the row ids, read at once; of a small file what it makes of the
        whole.
        """
        try:
            if self.size_bytes < TWO_THREADS_FROM_BYTES or not self.find_row_id_name(table):
                return [read(self.get_connection(), MIN_INT64, MAX_INT64)]
            middle = self._find_last_row_id(table) // 2
            connections = [self.get_connection(0), self.get_connection(1)]
            with ThreadPoolExecutor(2, thread_name_prefix="nsys-scan") as pool:
                return list(pool.map(read, connections, [MIN_INT64, middle + 1], [middle, MAX_INT64]))
        except SQLITE_ERRORS as error:
            raise self._build_error(error) from error

    @memoize_method
    def find_row_id_name(self, table: str) -> str:
        """Return the name of SQLite's row number that no column hides; "" for a view, or a table WITHOUT ROWID."""
        if table in self.temporary_views:
            return ROW_ID_NAMES[0] if ROW_ID_NAMES[0] in self.read_columns(table) else ""
        if table in self.views:  # of which an older SQLite says NULL for each row
            return ""
        columns = {str(name).lower() for _, name, *_ in self.fetch_rows(f'PRAGMA table_xinfo("{table}")')}
        name = next((name for name in ROW_ID_NAMES if name not in columns), "")
        try:
            self.get_connection().execute(f'SELECT {name or 1} FROM "{table}" LIMIT 0')
        except sqlite3.OperationalError as error:
            if "no such column" in str(error):
                return ""
            raise
        return name

    @memoize_method
    def _find_last_row_id(self, table: str) -> int:
        if not (row_id := self.find_row_id_name(table)):
            return 0
        if table in self.temporary_views:
            return sum(map(self._find_last_row_id, self.temporary_views[table].tables))
        last_id = self.get_connection().execute(f'SELECT max({row_id}) FROM "{table}"').fetchone()[0]
        return last_id if isinstance(last_id, int) else 0

    def estimate_row_count(self, table: str) -> int:
        """Return how many rows a table has, by its last row id: at once, and right where no row was deleted; 0 without
        ids.
        """
        try:
            return self._find_last_row_id(table) if table in self.tables else 0
        except SQLITE_ERRORS as error:
            raise self._build_error(error) from error

    def build_row_locator(self, table: str, column: str, question_count: int) -> Callable[[int, int], tuple[int, int]]:
        """Return a function from two bounds of a column to the row ids between which such rows stand, if the column
        rises with the ids.

        Sampling the table costs something, which is worth it for so many questions.
        """
        row_id, last_id = self.find_row_id_name(table), self.estimate_row_count(table)
        sampled_ids = range(
            1, last_id + 1, max(last_id // max(4 * question_count, FEWEST_SAMPLED_ROWS), SAMPLED_ROW_DISTANCE)
        )
        sql = (
            f'SELECT {column}, {row_id} FROM "{table}" WHERE {row_id} IN ({",".join(map(str, sampled_ids))}) ORDER BY 2'
        )
        samples = [row for row in self.fetch_rows(sql) if isinstance(row[0], int)] if row_id else []
        values, rows = [value for value, _ in samples], [MIN_INT64, *(row for _, row in samples), MAX_INT64]

        return lambda low, high: (rows[bisect_left(values, low)], rows[bisect_right(values, high) + 1])

    def close(self) -> None:
        """Close the connections; reading on opens the file again."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        _OPEN_FILES.remove(self)


def read_first_page(path: Path) -> bytes:
    """Return the beginning of what is in a file, packed or not, in which SQLite keeps the names of the first tables;
    empty for one that cannot be read.
    """
    with suppress(OSError, EOFError, zlib.error):
        if path.is_file():  # a pipe would wait for ever
            with gzip.open(path) if path.name.endswith(GZIP_SUFFIX) else path.open("rb") as file:
                return file.read(FIRST_PAGE_BYTES)
    return b""


def _unpack_gzip(path: Path) -> Path:
    """Return where the content of a packed file was written to, or the path itself for a file that is not packed.

    Raises TraceError where it cannot be read or is damaged.
    """
    if not path.name.endswith(GZIP_SUFFIX):
        return path
    with convert_os_errors(TraceError, f"{path}: cannot be read"), path.open("rb") as file:
        if file.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
            return path
        file.seek(0)
        descriptor, unpacked = tempfile.mkstemp(prefix="pytest-nsys-", suffix=".sqlite")
        try:
            with open(descriptor, "wb") as unpacked_file:
                shutil.copyfileobj(gzip.GzipFile(fileobj=file), unpacked_file)
        except BaseException as error:
            Path(unpacked).unlink()
            if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
                raise TraceError(f"{path}: is damaged or truncated: copy it again") from error
            raise
    return Path(unpacked)


def _drain(parts: list[list[SqlRow]]) -> Iterator[SqlRow]:
    parts.reverse()
    while parts:
        yield from parts.pop()
