"""How are many rows of a table read as columns of whole numbers, and become kernels? As few Python objects as can be.

A large table is read in blocks, on two threads: SQLite writes each column of a block as one text of JSON, which needs
no interpreter, and numpy reads that at once: a third of what a row of Python objects costs. Of what is small, rows are
read.

SQLite keeps any type in any column: what is not a whole number is :class:`Unfit`, and the table is read again as rows,
whose errors tell.
"""

from __future__ import annotations

import contextlib
import sqlite3
from array import array
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Block, Column
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import ImpossibleRows, Interval, Lane, Stream
from pytest_nsys.core.tables import Kernels
from pytest_nsys.core.words import counted, printable
from pytest_nsys.traces.sqlite_conditions import IMPOSSIBLE, LISTED, listed
from pytest_nsys.traces.sqlite_file import BLOCK_ROWS, FAILURES, SqliteFile, SqlRow, Unfit

T = TypeVar("T")

COLUMN_AS_TEXT = "json_group_array({})"
THREADS = 2
MANY_ROWS = 100_000
"""From so many rows on, a block costs less than its rows."""


SAMPLES = 500
"""So many rows at least show which part of a table passes."""


def are_many(rows: int) -> bool:
    """Return whether so many rows are let go as they are read: as objects of Python they take much memory at once."""
    return rows >= MANY_ROWS


def has_many(file: SqliteFile, table: str, where: str) -> bool:
    """Return whether so many rows of a table pass that none is kept as it is read, by samples from all over it: it may
    be ordered by process before time.
    """
    count = file.about(table)
    if not are_many(count) or not (row_id := file.row_id(table)):
        return False
    rows = listed(range(1, count + 1, max(1, count // SAMPLES)))
    sql = f"SELECT count(*), total({where}) FROM {table} WHERE {row_id} IN ({rows})"
    ((sampled, passed),) = file.rows(sql)
    return are_many(int(count * passed // sampled) if sampled else count)


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
        listed = ", ".join(map(COLUMN_AS_TEXT.format, columns))
        conditions = [f"{bound} AND ({where})" for bound in (*bounds, f"{row_id} < 1")]
        queries = [f'SELECT {listed} FROM "{table}" WHERE {condition}' for condition in conditions]
        yield from _in_order([file.connection(number) for number in range(min(THREADS, len(queries)))], queries)
    except (TraceError, ValueError, *FAILURES) as error:
        raise Unfit(str(error)) from error
    finally:
        file.being_read -= 1


def _in_order(connections: Sequence[sqlite3.Connection], queries: Iterable[str]) -> Iterator[Block]:
    """A block for each query; the next ones are being read meanwhile."""
    free: SimpleQueue[sqlite3.Connection] = SimpleQueue()
    for connection in connections:
        free.put(connection)

    def read(query: str) -> Block:
        connection = free.get()
        try:
            return [columns.parsed(text) for text in connection.execute(query).fetchone()]
        finally:
            free.put(connection)

    with ThreadPoolExecutor(len(connections), thread_name_prefix="nsys-read") as pool:
        coming: deque[Future[Block]] = deque()
        try:
            for query in queries:
                coming.append(pool.submit(read, query))
                if len(coming) > len(connections):
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            for future in coming:
                future.cancel()


class OddValue(TypeError):
    """A value that its column cannot have, in words."""


def check_whole(*values: object) -> None:
    """SQLite keeps any type in any column, and numbers of a trace become part of later questions to it."""
    for value in values:
        if type(value) is not int:
            raise OddValue(f"{str(value)[:60]!r} is not a whole number")


def check_row(row: SqlRow) -> None:
    """Raises OddValue where not all of a row are whole numbers."""
    check_whole(*row)


def check_text(value: object) -> str:
    """A name. Raises OddValue for what is none."""
    if not isinstance(value, str):
        raise OddValue(f"{printable(repr(value), 40)} is not a name")
    return value


def texts_of(rows: Iterable[SqlRow]) -> dict[int, str]:
    """The texts of rows of an id and a text. Raises OddValue where one is none, or an id has two."""
    found: dict[int, str] = {}
    for number, text in rows:
        check_whole(number)
        if found.setdefault(number, check_text(text)) != text:
            raise OddValue(f"the id {number} has two texts")
    return found


def read_texts(file: SqliteFile, ids: Collection[int], table: str, text: str) -> dict[int, str]:
    """The texts of distinct ids. Raises OddValue."""
    try:
        wanted = columns.values(array("q", ids))
    except (TypeError, OverflowError):
        check_whole(*ids)
        raise
    if len(wanted) > LISTED and wanted[-1] - wanted[0] < 4 * len(wanted):  # most of a table: what is between is dropped
        known, bounds = set(wanted), f"id BETWEEN {wanted[0]} AND {wanted[-1]}"
        rows = file.chunks(f'SELECT id, {text} FROM "{table}" WHERE {bounds}')
        return texts_of(row for some in rows for row in some if row[0] in known)
    found: dict[int, str] = {}
    for at in range(0, len(wanted), LISTED):
        some = listed(wanted[at : at + LISTED])
        found |= texts_of(file.rows(f'SELECT id, {text} FROM "{table}" WHERE id IN ({some})'))
    return found


@contextlib.contextmanager
def damage(file: SqliteFile, table: str) -> Iterator[None]:
    """Raises TraceError, which names the table, where a number of it is none, or cannot be."""
    try:
        yield
    except (TypeError, OverflowError) as error:
        what = f"table {file.table_of(table)} holds a value that cannot be" + (
            f" ({error})" if isinstance(error, OddValue) else ""
        )
        raise TraceError(f"{file.path}: {what}: damaged, or changed after it was written; {file.again}") from error


def of_rows(rows: Iterable[Sequence[SqlRow]], explain: Callable[[SqlRow], object] = check_row) -> Iterator[Block]:
    """Rows as columns. Raises TypeError and OverflowError for other than whole numbers, or what ``explain`` raises."""
    for some in rows:
        if some:
            try:
                yield [array("q", column) for column in zip(*some, strict=True)]
            except (TypeError, OverflowError):
                for row in some:
                    explain(row)
                raise


class Columns:
    """Kernels of one lane while they are read."""

    def __init__(self) -> None:
        self.streams: dict[Stream, int] = {}
        self._parts: list[Block] = []

    def extend(self, part: Block) -> None:
        """More kernels: start, end, correlation, number in ``streams``, name, full name, and 1 for a node of a graph.

        Impossible rows are left out: :func:`impossible_rows` counts them.
        """
        left_out = columns.impossible(part[0], part[1])
        if 1 in left_out:
            possible = columns.where_not(left_out)
            part = [columns.take(column, possible) for column in part]
        if part[0]:
            self._parts.append([*part[:3], *map(columns.narrowed, part[3:])])

    def sorted_kernels(self, names: Mapping[int, str], path: Path, named_by: str = "StringIds") -> Kernels:
        """The kernels, ordered by start, after which this has none. Raises TraceError where the table that names them
        lacks one.
        """
        start, end, correlation, stream, name, full_name, node = map(columns.chained, zip(*self._parts, strict=True))
        self._parts.clear()
        lost = set(columns.values(name)) - names.keys()
        if lost:
            what = f"{counted(len(lost), 'kernel name id')} not in {named_by}"
            raise TraceError(f"{path}: {what}: ids do not join; export the report again")
        kernels = Kernels(
            start_ns=start,
            end_ns=end,
            correlation=correlation,
            stream=stream,
            name=name,
            full_name=full_name,
            streams=tuple(self.streams),
            names=names,
            graph_node=columns.equal(node, 1),
        )
        if not columns.exceeds(start[:-1], start[1:]):  # as most exports write them, and quick to see
            return kernels
        return kernels.take(columns.order(start, end))

    def __bool__(self) -> bool:
        return bool(self._parts)

    def name_ids(self) -> set[int]:
        """Every name that was read."""
        return {name for part in self._parts for column in part[4:6] for name in columns.values(column)}


def impossible_rows(
    file: SqliteFile,
    table: str,
    what: str,
    stream: str,
    name: str,
    name_of: Callable[[int], str] = lambda _: "",
    stretches: Sequence[Interval] | None = None,
) -> ImpossibleRows:
    """The rows of a table whose times cannot be; ``stream`` and ``name`` are columns of it, or expressions, and
    ``stretches`` of row ids where such rows stand.

    A time that is no number is damage, and for who reads the row to refuse.
    """
    rows = file.scan(f"start, end, {stream}, {name}", table, IMPOSSIBLE, stretches=stretches)
    number, first = 0, None
    for row in rows:
        if {type(row[0]), type(row[1])} == {int}:
            number += 1
            first = row if first is None else min(first, row, key=lambda each: (*each[:2], str(each[2:])))
    if first is None:
        return ImpossibleRows()
    start, end, on, named = first
    return ImpossibleRows.of(number, what, name_of(named) if type(named) is int else "", on, start, end)


def read_blocks(
    file: SqliteFile,
    row: Sequence[str],
    table: str,
    where: str,
    use: Callable[[Iterable[Block]], T],
    *,
    whole: bool,
    rows: Callable[[], Iterable[Sequence[SqlRow]]] | None = None,
    explain: Callable[[SqlRow], object] = check_row,
    stretches: Sequence[Interval] | None = None,
) -> T:
    """What ``use`` makes of the rows that pass; ``whole``: they may be as many as the table has.

    ``rows`` reads fewer rows than pass, where no blocks are read; ``stretches`` of row ids are where all stand.
    ``explain`` is shown the rows of which one holds what is no whole number, and raises what is said of it. Where
    ``use`` fails nothing is being read any more: the file may be closed then, and SQLite does not survive that.
    """
    if whole and are_many(file.about(table)):
        with suppress(Unfit), closing(blocks(file, row, table, where)) as fast:
            return use(fast)
    return use(
        of_rows(rows() if rows else file.parts(", ".join(row), table, where, whole=whole, stretches=stretches), explain)
    )


def fill(
    lanes: Collection[Lane] | None,
    found: Iterable[Block],
    placed: Callable[[Sequence[int]], tuple[Lane, Stream]],
) -> tuple[dict[Lane, Columns], set[int]]:
    """Sort kernels into their lanes; the processes of those that have none are returned. With None there are none: each
    lane that occurs is made.

    Blocks hold start, end, correlation, name, full name, 1 for a node of a graph, and then the columns of which
    ``placed`` makes lane and stream.
    """
    tables: dict[Lane, Columns] = {lane: Columns() for lane in lanes or ()}
    strangers: set[int] = set()
    for start, end, correlation, short, full, node, *place in found:
        numbers, keys = columns.distinct(*place)
        own: list[Columns] = []
        places: dict[Lane, int] = {}
        table_of, stream_of = array("q"), array("q")
        for key in keys:
            lane, stream = placed(key)
            if lanes is None:
                tables.setdefault(lane, Columns())
            elif lane not in tables:
                lane = Lane(lane.global_pid, None)
            if lane in tables and lane not in places:
                places[lane] = len(own)
                own.append(tables[lane])
            if lane not in tables:
                strangers.add(lane.global_pid)
            streams = tables[lane].streams if lane in tables else {}
            table_of.append(places.get(lane, len(keys)))  # a stranger is behind all lanes
            stream_of.append(streams.setdefault(stream, len(streams)))
        each = (start, end, correlation, columns.take(stream_of, numbers), short, full, node)
        parts_of = split(columns.take(table_of, numbers), len(keys) + 1, each)
        for table, parts in zip(own, parts_of, strict=False):
            if parts[0]:
                table.extend(parts)
    return tables, strangers - {lane.global_pid for lane in tables}


def split(groups: Column, size: int, each: Sequence[Column]) -> Iterator[list[Column]]:
    """For each number below ``size``, as all of ``groups`` are, the part of each column where it stands, in order."""
    sorted_ = list(each)
    # Most stand by group already: many exports write one process after the other.
    if columns.exceeds(groups[:-1], groups[1:]):
        order = columns.order(groups)
        sorted_ = [columns.take(column, order) for column in each]
    low = 0
    for count in columns.counts(groups, size):
        yield [column[low : low + count] for column in sorted_]
        low += count
