"""How are many rows of a table read as columns of whole numbers, without a Python object for each value?

With the extra ``fast`` the Arrow driver of SQLite (``arrow_sqlite.py``) reads a large table in blocks, on two threads:
SQLite needs no interpreter while it steps. Without it, and of what is small, rows are read.

The driver says little of what is wrong: whatever is not a whole number, or fails, is :class:`Unfit`, and the table is
read again as rows, whose errors tell.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from queue import SimpleQueue
from typing import Protocol, TypeVar

from pytest_nsys.core.columns import Column
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.words import printable
from pytest_nsys.traces.sqlite_file import FAILURES, SqliteFile, SqlRow

Block = Sequence[Column]
"""The columns of some rows."""
T = TypeVar("T")

BLOCK_ROWS = 1 << 16
THREADS = 2
MANY_ROWS = 100_000
"""From so many rows on, a block costs less than its rows."""


class Unfit(Exception):
    """These rows cannot be read as columns in a fast way."""


class Reader(Protocol):
    """One connection of the driver."""

    def read(self, columns: Sequence[str], table: str, where: str) -> Block:
        """The rows that pass. Raises Unfit."""
        ...

    def close(self) -> None:
        """Let the file go."""
        ...


def worth(rows: int) -> bool:
    """Whether so many rows are to be read in blocks, and the driver can be used."""
    if rows < MANY_ROWS:
        return False
    from pytest_nsys.traces import arrow_sqlite

    return arrow_sqlite.trouble() is None


def blocks(file: SqliteFile, columns: Sequence[str], table: str, where: str = "1") -> Generator[Block, None, None]:
    """The columns (names or expressions) of the rows that pass, in the order of their row ids. Raises Unfit."""
    file.being_read += 1
    try:
        last, row_id = file.about(table), file.row_id(table)
        if not row_id:
            raise Unfit("the rows have no ids")
        if last > file.size_bytes:  # no row is that small: the ids have gaps
            raise Unfit("the row ids have gaps")
        bounds = [f"{row_id} BETWEEN {low} AND {low + BLOCK_ROWS - 1}" for low in range(1, last + 1, BLOCK_ROWS)]
        conditions = [f"{bound} AND ({where})" for bound in (*bounds, f"{row_id} < 1")]
        with ExitStack() as opened:
            from pytest_nsys.traces.arrow_sqlite import ArrowReader

            count = max(min(THREADS, len(bounds)), 1)
            readers = [opened.enter_context(closing(ArrowReader(file.uri))) for _ in range(count)]
            yield from _in_order(readers, columns, table, conditions)
    except (TraceError, *FAILURES) as error:
        raise Unfit(str(error)) from error
    finally:
        file.being_read -= 1


def _in_order(
    readers: Sequence[Reader], columns: Sequence[str], table: str, conditions: Sequence[str]
) -> Iterator[Block]:
    """A block for each condition; the next ones are being read meanwhile."""
    free: SimpleQueue[Reader] = SimpleQueue()
    for reader in readers:
        free.put(reader)

    def read(where: str) -> Block:
        reader = free.get()
        try:
            return reader.read(columns, table, where)
        finally:
            free.put(reader)

    with ThreadPoolExecutor(len(readers), thread_name_prefix="nsys-read") as pool:
        coming: deque[Future[Block]] = deque()
        try:
            for where in conditions:
                coming.append(pool.submit(read, where))
                if len(coming) > len(readers):
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            for future in coming:
                future.cancel()


def slower() -> str | None:
    """Why tables were read more slowly than the extra ``fast`` that is installed promises; None where none was."""
    arrow_sqlite = sys.modules.get("pytest_nsys.traces.arrow_sqlite")
    trouble = arrow_sqlite.trouble() if arrow_sqlite and arrow_sqlite.trouble.cache_info().currsize else None
    return (
        f"the driver of the extra 'fast' cannot be used ({printable(trouble)}), so tables are read more slowly"
        if trouble
        else None
    )


def of_rows(rows: Iterable[Sequence[SqlRow]], explain: Callable[[SqlRow], object] = id) -> Iterator[Block]:
    """Rows as columns. Raises TypeError and OverflowError for other than whole numbers, or what ``explain`` raises."""
    for some in rows:
        if some:
            try:
                yield [array("q", column) for column in zip(*some, strict=True)]
            except (TypeError, OverflowError):
                for row in some:
                    explain(row)
                raise
