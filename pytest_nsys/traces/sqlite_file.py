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

from pytest_nsys.core.errors import TraceError, one_line
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import Interval
from pytest_nsys.core.words import printable
from pytest_nsys.traces.sqlite_conditions import FIRST, LAST

MAGIC = b"SQLite format 3\x00"
WRITERS = "what `nsys export --type=sqlite` or `rocprofv3 -f rocpd` wrote"
# How packed files begin, and end their names.
GZIP, PACKED = b"\x1f\x8b", ".gz"
# Offsets are those of the database header in SQLite's "Database File Format".
PAGE_SIZE_AT = slice(16, 18)
# The size of a page for which the header says 1, as 65536 does not fit into its two bytes.
LARGEST_PAGE, FIRST_PAGE = 1 << 16, 1 << 12

# Byte of the header that is 2 in a file of write-ahead mode.
WRITE_AHEAD_AT = 18

TWO_THREADS_FROM_BYTES = 100 << 20
# So long a read waits for the lock of another process; then an error says to wait for its export.
BUSY_TIMEOUT_S = 1.0
CHUNK_ROWS = 20_000
# Rows that become columns at once.
BLOCK_ROWS = 1 << 16

# Rows of a table by which places are found, at least, and how far apart they are, at least.
FEWEST_PLACES, PLACE_ROWS = 64, 128

# What SQLite calls the number of a row, unless a column is called so.
ROW_IDS = ("rowid", "_rowid_", "oid")

# Run by each connection before it reads: functions in a schema of somebody else's must not run, and nothing is
# written.
SAFEGUARDS = ("PRAGMA trusted_schema = OFF", "PRAGMA query_only = ON")

# Files of a thread, each with up to two connections: well below 256 descriptors, the least that a system allows.
OPEN_AT_ONCE = 48

# What sqlite3 raises: where SQLite complains of a schema that is not UTF-8, its very message cannot be decoded.
FAILURES = (sqlite3.Error, UnicodeError, OverflowError)

SqlRow = tuple[Any, ...]
T = TypeVar("T")


_NO_MORE = r"(?:(?!\b(?:FROM|SELECT|UNION)\b)[^()])*"
# A view of some rows and columns of one table: without another table, a query inside or a function.
PLAIN_VIEW = re.compile(
    rf'CREATE VIEW \S+\s+AS\s+SELECT\b{_NO_MORE}\bFROM\s+(?P<table>"\w+"|\w+)\s*(?:WHERE\b{_NO_MORE})?', re.IGNORECASE
)


class Unfit(Exception):
    """Reports that these rows cannot be read as columns in the fast way."""


class View(NamedTuple):
    """Describes a view that each connection makes for itself, of the same name and columns as a table of another
    format.

    It has a column ``rowid`` where each of ``tables``, which it is over, numbers its rows.
    """

    name: str
    sql: str
    tables: Sequence[str]

    @property
    def statement(self) -> str:
        """The SQL that makes the view, beside the file and not in it."""
        return f'CREATE TEMP VIEW "{self.name}" AS {self.sql}'


class _OpenFiles(threading.local):
    """Holds the files that a thread has open, the least recently used first."""

    def __init__(self) -> None:
        self._files: dict[SqliteFile, None] = {}

    def use(self, file: SqliteFile) -> None:
        """Note that the file is read now, and close the oldest one that is not being read where too many are open."""
        self._files.pop(file, None)
        self._files[file] = None
        if len(self._files) > OPEN_AT_ONCE:
            idle_file = next(
                (candidate for candidate in self._files if not candidate.being_read and candidate is not file), None
            )
            if idle_file is not None:
                idle_file.close()

    def forget(self, file: SqliteFile) -> None:
        """Note that the file is closed."""
        self._files.pop(file, None)


_OPEN = _OpenFiles()


class SqliteFile:
    """Reads the tables of one file by name. Raises TraceError for whatever SQLite cannot do."""

    def __init__(self, path: Path, again: str = "export the report again") -> None:
        """Open the file; ``remedy`` says how a person gets it once more where it is damaged."""
        self.path, self.again = path, again
        self._file = _unpack(path)
        if self._file != path:  # however this file is let go, what was laid down goes with it
            weakref.finalize(self, self._file.unlink, missing_ok=True)
        self._check_header()
        self._connections: list[sqlite3.Connection] = []
        self._prepare: Callable[[sqlite3.Connection], object] | None = None
        self.defined: Mapping[str, View] = {}
        self.being_read = 0
        try:
            entries = self.rows("SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')")
        except TraceError:
            self.close()
            raise
        self.tables = frozenset(str(name) for name, kind, _ in entries if kind == "table")
        self.views = {str(name): str(sql) for name, kind, sql in entries if kind == "view"}

    def read_views(self) -> None:
        """Take a view of one table for the table that it is named like.

        A format whose views repeat its tables does not call this; no other view is read, as it may have no end.
        """
        matches = ((name, PLAIN_VIEW.fullmatch(sql)) for name, sql in self.views.items())
        self.tables |= {
            name for name, match in matches if match is not None and match["table"].strip('"') in self.tables
        }

    def define(self, views: Iterable[View], prepare: Callable[[sqlite3.Connection], object]) -> None:
        """Take views for tables; ``prepare`` gives each connection the tables beside the file that they are over."""
        self.close()
        self._prepare = prepare
        self.defined = {view.name: view for view in views}
        self.tables |= self.defined.keys()

    def table_of(self, table: str) -> str:
        """Return the name under which a person finds a table of the file."""
        return " or ".join(self.defined[table].tables) if table in self.defined else table

    def _check_header(self) -> None:
        with one_line(TraceError, f"{self.path}: cannot be read"):
            status = self._file.stat()
            if not stat.S_ISREG(status.st_mode):
                raise TraceError(f"{self.path}: is not a plain file: give {WRITERS}")
            size = status.st_size
            with self._file.open("rb") as file:
                head = file.read(WRITE_AHEAD_AT + 1)
        if size == 0:
            raise TraceError(f"{self.path}: is empty (0 bytes): {self.again}")
        if not head.startswith(MAGIC):
            raise TraceError(f"{self.path}: is not a SQLite file: give {WRITERS}")
        page_bytes = int.from_bytes(head[PAGE_SIZE_AT]) if len(head) > WRITE_AHEAD_AT else 0
        # SQLite would read zeros where its last page is cut.
        if page_bytes and size % (page_bytes if page_bytes > 1 else LARGEST_PAGE):
            raise TraceError(f"{self.path}: is damaged or truncated: {self.again}")
        self.size_bytes = size
        self._write_ahead = head[WRITE_AHEAD_AT:] == b"\x02"

    def connection(self, number: int = 0) -> sqlite3.Connection:
        """Return one of the connections, open for as long as the file is; number 1 is for a second thread."""
        _OPEN.use(self)
        while len(self._connections) <= number:
            self._connections.append(self._connect())
        return self._connections[number]

    def _uri(self) -> str:
        uri = "file:" + urllib.parse.quote(os.fsencode(self._file.absolute())) + "?mode=ro"
        # In write-ahead mode SQLite leaves files beside the one it reads, and cannot read on a read-only disk; opened
        # as immutable it does neither, but would ignore a log that holds rows: so only where there is none.
        log = self._file.with_name(self._file.name + "-wal")
        immutable = self._write_ahead and not (log.exists() and log.stat().st_size)
        return uri + ("&immutable=1" if immutable else "")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._uri(), uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
        try:
            if self._prepare is not None:
                self._prepare(connection)
            for statement in (*(view.statement for view in self.defined.values()), *SAFEGUARDS):
                connection.execute(statement)
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
        except FAILURES:
            connection.close()
            raise
        # Names come from any program in any encoding; a broken byte must not hide the row.
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        return connection

    def _say(self, error: Exception) -> TraceError:
        text = printable(str(error))
        if "locked" in text:
            problem = "is locked by another process: wait until its export is finished"
        elif not isinstance(error, sqlite3.Error) or "malformed" in text or "not a database" in text:
            problem = f"is damaged or truncated: {self.again}"
        else:
            problem = f"cannot be read: {text}"
        return TraceError(f"{self.path}: {problem}")

    @kept
    def columns(self, table: str) -> dict[str, str]:
        """Return name as written and declared type of each column of ``table``, by lower-case name."""
        info = self.rows(f'PRAGMA table_info("{table}")')
        return {str(name).lower(): str(kind) for _, name, kind, *_ in info}

    def has(self, table: str, *columns: str) -> bool:
        """Return whether the file has the table with these columns."""
        return table in self.tables and all(name.lower() in self.columns(table) for name in columns)

    def column(self, table: str, name: str) -> str:
        """Return the column's name, or NULL where the table has none of that name."""
        return name if self.has(table, name) else "NULL"

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[SqlRow]:
        """Return all rows of a query, read on the caller's thread."""
        return [row for rows in self.chunks(sql, parameters) for row in rows]

    def chunks(self, sql: str, parameters: Sequence[object] = ()) -> Iterator[list[SqlRow]]:
        """Yield the rows of a query some thousands at a time: for results that are as large as the table."""
        self.being_read += 1
        try:
            cursor = self.connection().execute(sql, tuple(parameters))
            while rows := cursor.fetchmany(CHUNK_ROWS):
                yield rows
        except FAILURES as error:
            raise self._say(error) from error
        finally:
            self.being_read -= 1

    def scan(
        self,
        columns: str,
        table: str,
        where: str,
        parameters: Sequence[object] = (),
        stretches: Sequence[Interval] | None = None,
    ) -> Iterator[SqlRow]:
        """Yield the few rows of a large table that pass a filter, in the order of their row ids; let go as they are
        used.

        ``row_id_ranges`` say where those rows stand.
        """

        def read_range(connection: sqlite3.Connection, low: int, high: int) -> list[SqlRow]:
            bound = f"{row_id} BETWEEN {low} AND {high} AND " if (row_id := self.row_id(table)) else ""
            sql = f'SELECT {columns} FROM "{table}" WHERE {bound}({where})'
            return connection.execute(sql, tuple(parameters)).fetchall()

        if stretches is None:
            return _drained(self.halves(table, read_range))
        try:
            return _drained([read_range(self.connection(), *id_range) for id_range in stretches])
        except FAILURES as error:
            raise self._say(error) from error

    def parts(
        self,
        columns: str,
        table: str,
        where: str,
        parameters: Sequence[object] = (),
        *,
        whole: bool,
        stretches: Sequence[Interval] | None = None,
    ) -> Iterable[list[SqlRow]]:
        """Yield rows in chunks where they may be as many as the table has, else all at once, read by two threads."""
        if whole:
            return self.chunks(f'SELECT {columns} FROM "{table}" WHERE {where}', parameters)
        return [list(self.scan(columns, table, where, parameters, stretches))]

    def distinct(self, columns: str, table: str) -> set[SqlRow]:
        """Return the distinct rows of some columns."""
        return {*self.scan(f"DISTINCT {columns}", table, "1")}

    def halves(self, table: str, read: Callable[[sqlite3.Connection, int, int], T]) -> list[T]:
        """Return what ``read`` makes of both halves of the row ids, read at once; of a small file what it makes of the
        whole.
        """
        try:
            if self.size_bytes < TWO_THREADS_FROM_BYTES or not self.row_id(table):
                return [read(self.connection(), FIRST, LAST)]
            middle = self._last(table) // 2
            connections = [self.connection(0), self.connection(1)]
            with ThreadPoolExecutor(2, thread_name_prefix="nsys-scan") as pool:
                return list(pool.map(read, connections, [FIRST, middle + 1], [middle, LAST]))
        except FAILURES as error:
            raise self._say(error) from error

    @kept
    def row_id(self, table: str) -> str:
        """Return the name of SQLite's row number that no column hides; "" for a view, or a table WITHOUT ROWID."""
        if table in self.defined:
            return ROW_IDS[0] if ROW_IDS[0] in self.columns(table) else ""
        if table in self.views:  # of which an older SQLite says NULL for each row
            return ""
        columns = {str(name).lower() for _, name, *_ in self.rows(f'PRAGMA table_xinfo("{table}")')}
        name = next((name for name in ROW_IDS if name not in columns), "")
        try:
            self.connection().execute(f'SELECT {name or 1} FROM "{table}" LIMIT 0')
        except sqlite3.OperationalError as error:
            if "no such column" in str(error):
                return ""
            raise
        return name

    @kept
    def _last(self, table: str) -> int:
        if not (row_id := self.row_id(table)):
            return 0
        if table in self.defined:
            return sum(map(self._last, self.defined[table].tables))
        last_id = self.connection().execute(f'SELECT max({row_id}) FROM "{table}"').fetchone()[0]
        return last_id if isinstance(last_id, int) else 0

    def about(self, table: str) -> int:
        """Return how many rows a table has, by its last row id: at once, and right where no row was deleted; 0 without
        ids.
        """
        try:
            return self._last(table) if table in self.tables else 0
        except FAILURES as error:
            raise self._say(error) from error

    def by_place(self, table: str, column: str, questions: int) -> Callable[[int, int], tuple[int, int]]:
        """Return a function from two bounds of a column to the row ids between which such rows stand, if the column
        rises with the ids.

        Sampling the table costs something, which is worth it for so many questions.
        """
        row_id, last_id = self.row_id(table), self.about(table)
        sampled_ids = range(1, last_id + 1, max(last_id // max(4 * questions, FEWEST_PLACES), PLACE_ROWS))
        sql = (
            f'SELECT {column}, {row_id} FROM "{table}" WHERE {row_id} IN ({",".join(map(str, sampled_ids))}) ORDER BY 2'
        )
        samples = [row for row in self.rows(sql) if isinstance(row[0], int)] if row_id else []
        values, rows = [value for value, _ in samples], [FIRST, *(row for _, row in samples), LAST]

        return lambda low, high: (rows[bisect_left(values, low)], rows[bisect_right(values, high) + 1])

    def close(self) -> None:
        """Close the connections; reading on opens the file again."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        _OPEN.forget(self)


def first_page(path: Path) -> bytes:
    """Return the beginning of what is in a file, packed or not, in which SQLite keeps the names of the first tables;
    empty for one that cannot be read.
    """
    with suppress(OSError, EOFError, zlib.error):
        if path.is_file():  # a pipe would wait for ever
            with gzip.open(path) if path.name.endswith(PACKED) else path.open("rb") as file:
                return file.read(FIRST_PAGE)
    return b""


def _unpack(path: Path) -> Path:
    """Return where the content of a packed file was written to, or the path itself for a file that is not packed.

    Raises TraceError where it cannot be read or is damaged.
    """
    if not path.name.endswith(PACKED):
        return path
    with one_line(TraceError, f"{path}: cannot be read"), path.open("rb") as file:
        if file.read(len(GZIP)) != GZIP:
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


def _drained(parts: list[list[SqlRow]]) -> Iterator[SqlRow]:
    parts.reverse()
    while parts:
        yield from parts.pop()
