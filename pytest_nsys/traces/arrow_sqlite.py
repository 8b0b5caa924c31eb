"""How does ADBC's SQLite driver read columns of whole numbers? Through Arrow's C interface, without pyarrow.

The driver and its manager are the extra ``fast``. They import in 15 ms; pyarrow takes ten times that, nanoarrow three
times, and of a record batch of whole numbers nothing but the address of each column is wanted. The driver brings an
SQLite of its own, so it is told each safeguard of :mod:`~pytest_nsys.traces.sqlite_file` again.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cache

from pytest_nsys.core.columns import Block, Column
from pytest_nsys.traces.sqlite_file import BLOCK_ROWS, BUSY_TIMEOUT_S, SAFEGUARDS, Unfit

ROWS_AT_ONCE = "adbc.sqlite.query.batch_rows"
WHOLE_NUMBER = b"l"
"""What Arrow calls a column of int64."""


@cache
def trouble() -> str | None:
    """Why the driver cannot be used, "" where it is not installed; None where it reads what it should."""
    try:
        reader = ArrowReader("file::memory:")
        found = reader.columns("SELECT 1, -9223372036854775808 UNION ALL SELECT 2, 9223372036854775807")
        reader.close()
    except ModuleNotFoundError:
        return ""
    except Exception as error:  # nobody knows what another version of it does
        return str(error) or type(error).__name__
    right = [[1, 2], [-1 << 63, (1 << 63) - 1]]
    return None if [[*column] for column in found] == right else "it reads other numbers"


class _Schema(ctypes.Structure):
    """Arrow's ``struct ArrowSchema``, whose layout is its stable interface, as is that of the next two."""


_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))),
    ("private_data", ctypes.c_void_p),
]


class _Array(ctypes.Structure):
    """``struct ArrowArray``."""


_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))),
    ("private_data", ctypes.c_void_p),
]


class _Stream(ctypes.Structure):
    """``struct ArrowArrayStream``."""


_Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Schema))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Array))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(_Stream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Stream))),
    ("private_data", ctypes.c_void_p),
]


class ArrowReader:
    """One connection of the driver, which begins with ``statements``. Raises Unfit for all that it cannot do."""

    def __init__(self, uri: str, statements: Sequence[str] = ()) -> None:
        import adbc_driver_manager
        import adbc_driver_sqlite

        self._manager = adbc_driver_manager
        with ExitStack() as opened:
            try:
                database = opened.enter_context(adbc_driver_sqlite.connect(uri))
                self._connection = opened.enter_context(adbc_driver_manager.AdbcConnection(database))
            except adbc_driver_manager.Error as error:
                raise Unfit(str(error)) from error
            for statement in (*statements, *SAFEGUARDS, f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000:.0f}"):
                self._run(statement)
            self._opened = opened.pop_all()

    def read(self, columns: Sequence[str], table: str, where: str) -> Block:
        """The rows that pass."""
        return self.columns(f'SELECT {", ".join(columns)} FROM "{table}" WHERE {where}')

    def columns(self, sql: str) -> Block:
        """The columns of what a query finds."""
        first, *more = self._run(sql)
        for batch in more:
            for column, part in zip(first, batch, strict=True):
                column.extend(part)
        return first

    def _run(self, sql: str) -> list[Block]:
        """The columns of each batch."""
        try:
            with self._manager.AdbcStatement(self._connection) as statement:
                statement.set_options(**{ROWS_AT_ONCE: str(BLOCK_ROWS)})
                statement.set_sql_query(sql)
                handle, _ = statement.execute_query()
                try:
                    return list(_batches(_Stream.from_address(handle.address)))
                finally:
                    handle.release()
        except self._manager.Error as error:
            raise Unfit(str(error)) from error

    def close(self) -> None:
        """Let the file go."""
        self._opened.close()


def _batches(stream: _Stream) -> Iterator[Block]:
    """Raises Unfit for a column that is not all whole numbers, and where the driver fails half-way."""
    schema = _Schema()
    _check(stream.get_schema(stream, schema))
    try:
        kinds = [schema.children[i].contents.format for i in range(schema.n_children)]
    finally:
        schema.release(schema)
    if any(kind != WHOLE_NUMBER for kind in kinds):
        raise Unfit("a value is not a whole number")
    yield [array("q") for _ in kinds]  # no row, no batch
    while True:
        batch = _Array()
        _check(stream.get_next(stream, batch))
        if not batch.release:
            return
        try:
            yield [_copied(batch.children[i].contents) for i in range(batch.n_children)]
        finally:
            batch.release(batch)


def _check(status: int) -> None:
    if status:
        raise Unfit("the driver stopped half-way, as where a value is not a whole number")


def _copied(column: _Array) -> Column:
    count, known, data = column.length, column.buffers[0], column.buffers[1]
    if column.offset:
        raise Unfit("a column begins inside its buffer")
    if column.null_count and known:  # a count of -1 says that nobody has counted
        bits = int.from_bytes(ctypes.string_at(known, (count + 7) // 8), "little")
        if bits & (every := (1 << count) - 1) != every:
            raise Unfit("a value is NULL")
    found = array("q")
    found.frombytes((ctypes.c_char * (8 * count)).from_address(data))
    return found
