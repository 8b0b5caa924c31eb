"""How are many rows of a table read as columns of whole numbers, without a Python object for each value?

A large table is read in blocks by two threads: SQLite needs no interpreter while it steps. With the extra ``fast`` its
Arrow driver fills the columns (``arrow_sqlite.py``). Without it SQLite writes each column of a block as one text of
decimals, which takes twice the driver's time, and half that of rows. What is small is read as rows.

The fast ways say little of what is wrong: whatever is not a whole number, or fails, is :class:`Unfit`, and the table is
read again as rows, whose errors tell.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from queue import SimpleQueue
from typing import Protocol, TypeVar

from pytest_nsys.core.columns import Column, parsed
from pytest_nsys.core.errors import TraceError, UsageMistake
from pytest_nsys.core.words import printable
from pytest_nsys.traces.sqlite_file import FAILURES, SqliteFile, SqlRow

Block = Sequence[Column]
"""The columns of some rows."""
T = TypeVar("T")

BLOCK_ROWS = 1 << 16
THREADS = 2
MANY_ROWS = 100_000
"""From so many rows on, a block costs less than its rows."""

WAY = "PYTEST_NSYS_READING"
"""The environment variable that says ``arrow``, ``text`` or ``rows`` for tables of every size, as tests run under."""


def _way() -> str | None:
    way = os.environ.get(WAY)
    if way not in (None, "arrow", "text", "rows"):
        raise UsageMistake(f"{WAY}={printable(way, 40)}: say arrow, text or rows")
    return way


class Unfit(Exception):
    """These rows cannot be read as columns in a fast way."""


class Reader(Protocol):
    """One connection of a fast way."""

    def read(self, columns: Sequence[str], table: str, where: str) -> Block:
        """The rows that pass. Raises Unfit, and what SQLite raises."""
        ...

    def close(self) -> None:
        """Let the file go."""
        ...


def worth(rows: int) -> bool:
    """Whether so many rows are to be read in blocks."""
    way = _way()
    return way != "rows" and (way is not None or rows >= MANY_ROWS)


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
            reader_of = _way_to_read(file)
            readers = [opened.enter_context(closing(reader_of(n))) for n in range(max(min(THREADS, len(bounds)), 1))]
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


def _way_to_read(file: SqliteFile) -> Callable[[int], Reader]:
    """Makes the reader of a number. Raises UsageMistake where the way that is forced cannot be had."""
    from pytest_nsys.traces import arrow_sqlite

    way = _way()
    trouble = arrow_sqlite.trouble() if way != "text" else ""
    if trouble is None:
        return lambda _: arrow_sqlite.ArrowReader(file.uri)
    if way == "arrow":
        raise UsageMistake(f"{WAY}=arrow: the driver cannot be used: {trouble or 'it is not installed'}")
    return lambda number: TextReader(file, number)


def slower() -> str | None:
    """Why tables were read more slowly than the extra ``fast`` that is installed promises; None where none was."""
    arrow_sqlite = sys.modules.get("pytest_nsys.traces.arrow_sqlite")
    trouble = arrow_sqlite.trouble() if arrow_sqlite and arrow_sqlite.trouble.cache_info().currsize else None
    return (
        f"the driver of the extra 'fast' cannot be used ({printable(trouble)}), so tables are read more slowly"
        if trouble
        else None
    )


class TextReader:
    """The standard library's SQLite: it makes one text of a column, so that a block is one row."""

    def __init__(self, file: SqliteFile, number: int) -> None:
        self._connection = file.connection(number)

    def read(self, columns: Sequence[str], table: str, where: str) -> Block:
        """The rows that pass. Raises Unfit, and what sqlite3 raises."""
        # The greatest value is a text or a blob where any is: SQLite sorts both behind all numbers.
        each = ", ".join(f"group_concat({column}), max({column})" for column in columns)
        count, *found = self._connection.execute(f'SELECT count(*), {each} FROM "{table}" WHERE {where}').fetchone()
        return [_of_text(text, greatest, count) for text, greatest in zip(found[::2], found[1::2], strict=True)]

    def close(self) -> None:
        """Nothing: the connection is the file's."""


def _of_text(text: str | None, greatest: object, count: int) -> Column:
    if not count:
        return array("q")
    if text is None or type(greatest) is not int or "." in text or "I" in text:  # 1.5, 1.0e+20, Inf
        raise Unfit("a value is not a whole number")
    numbers = parsed(text)
    if len(numbers) != count:  # group_concat leaves NULLs out
        raise Unfit("a value is NULL")
    return numbers


def texts_between(file: SqliteFile, table: str, text: str, low: int, high: int) -> dict[int, str]:
    """The column ``text`` by ``id`` within bounds, thousands in one: to decode each costs twice that. Raises Unfit."""
    found: dict[int, str] = {}
    count = 0
    for at in range(low, high + 1, BLOCK_ROWS):
        where = f"WHERE id BETWEEN {at} AND {min(at + BLOCK_ROWS - 1, high)}"
        each = f"count({text}), group_concat(id), max(id), group_concat({text}, char(0)), min({text}), max({text})"
        try:
            ((rows, told, ids, greatest, values, *ends),) = file.rows(f'SELECT count(*), {each} FROM "{table}" {where}')
        except TraceError as error:  # also where the texts are longer together than SQLite lets one be
            raise Unfit(str(error)) from error
        if rows:
            if not all(isinstance(end, str) for end in ends):  # texts are between numbers and blobs
                raise Unfit("a text is none")
            numbers, texts = _of_text(ids, greatest, rows), values.split("\0")
            if told != rows or len(texts) != rows:
                raise Unfit("a text is NULL, or has a zero in it")
            found.update(zip(numbers, texts, strict=True))
            count += rows
    if len(found) != count:
        raise Unfit("an id has two texts")
    return found


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
