"""How are many rows of a table read as columns of whole numbers, and become kernels? With as few Python objects as can
be.

A large table is read in blocks, on two threads: SQLite writes each column of a block as one text of JSON, which needs
no interpreter, and numpy reads that at once: a third of what a row of Python objects costs. A small table is read by
rows.

SQLite keeps any type in any column: what is not a whole number raises :class:`FastReadError`, and the table is read
again as rows, whose errors name the bad value.
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
# SQLite and numpy let go of the interpreter's lock, so two blocks are read at once.
THREADS = 2
# From so many rows on, a block costs less than its rows.
MANY_ROWS = 100_000


# So many rows at least show which part of a table passes; from all over it, as it may be ordered by process before
# time.
SAMPLES = 500


def are_many(rows: int) -> bool:
    """Return whether so many rows are let go as they are read: as objects of Python they take much memory at once."""
    return rows >= MANY_ROWS


def has_many(file: SqliteFile, table: str, where: str) -> bool:
    """Return whether so many rows of a table pass that none is kept as it is read, estimated by samples from all over
    it.
    """
    count = file.about(table)
    if not are_many(count) or not (row_id := file.row_id(table)):
        return False
    rows = listed(range(1, count + 1, max(1, count // SAMPLES)))
    sql = f"SELECT count(*), total({where}) FROM {table} WHERE {row_id} IN ({rows})"
    ((sample_count, pass_count),) = file.rows(sql)
    return are_many(int(count * pass_count // sample_count) if sample_count else count)


def blocks(file: SqliteFile, columns: Sequence[str], table: str, where: str = "1") -> Generator[Block, None, None]:
    """Yield the columns (names or expressions) of the rows that pass, in blocks in the order of the row ids.

    Raises FastReadError where a value is no whole number, or the table has no row ids to divide it by.
    """
    file.being_read += 1
    try:
        last, row_id = file.about(table), file.row_id(table)
        if not row_id:
            raise Unfit("the rows have no ids")
        if last > file.size_bytes:  # no row is that small: the ids have gaps
            raise Unfit("the row ids have gaps")
        bounds = [f"{row_id} BETWEEN {low} AND {low + BLOCK_ROWS - 1}" for low in range(1, last + 1, BLOCK_ROWS)]
        select_list = ", ".join(map(COLUMN_AS_TEXT.format, columns))
        conditions = [f"{bound} AND ({where})" for bound in (*bounds, f"{row_id} < 1")]
        queries = [f'SELECT {select_list} FROM "{table}" WHERE {condition}' for condition in conditions]
        yield from _in_order([file.connection(number) for number in range(min(THREADS, len(queries)))], queries)
    except (TraceError, ValueError, *FAILURES) as error:
        raise Unfit(str(error)) from error
    finally:
        file.being_read -= 1


def _in_order(connections: Sequence[sqlite3.Connection], queries: Iterable[str]) -> Iterator[Block]:
    """Yield a block for each query, in order; the next ones are being read meanwhile."""
    idle_connections: SimpleQueue[sqlite3.Connection] = SimpleQueue()
    for connection in connections:
        idle_connections.put(connection)

    def read_block(query: str) -> Block:
        connection = idle_connections.get()
        try:
            return [columns.parsed(text) for text in connection.execute(query).fetchone()]
        finally:
            idle_connections.put(connection)

    with ThreadPoolExecutor(len(connections), thread_name_prefix="nsys-read") as pool:
        pending_blocks: deque[Future[Block]] = deque()
        try:
            for query in queries:
                pending_blocks.append(pool.submit(read_block, query))
                if len(pending_blocks) > len(connections):
                    yield pending_blocks.popleft().result()
            while pending_blocks:
                yield pending_blocks.popleft().result()
        finally:
            for future in pending_blocks:
                future.cancel()


class OddValue(TypeError):
    """Reports a value that its column cannot have, in words."""


def check_whole(*values: object) -> None:
    """Raise InvalidValue for the first value that is no whole number: numbers of a trace become part of later questions
    to it.
    """
    for value in values:
        if type(value) is not int:
            raise OddValue(f"{str(value)[:60]!r} is not a whole number")


def check_row(row: SqlRow) -> None:
    """Raise InvalidValue where not all of a row are whole numbers."""
    check_whole(*row)


def check_text(value: object) -> str:
    """Return a name unchanged. Raises InvalidValue for a value that is no text."""
    if not isinstance(value, str):
        raise OddValue(f"{printable(repr(value), 40)} is not a name")
    return value


def texts_of(rows: Iterable[SqlRow]) -> dict[int, str]:
    """Return the texts of rows of an id and a text, by id. Raises InvalidValue where one is no text, or an id has
    two.
    """
    texts: dict[int, str] = {}
    for number, text in rows:
        check_whole(number)
        if texts.setdefault(number, check_text(text)) != text:
            raise OddValue(f"the id {number} has two texts")
    return texts


def read_texts(file: SqliteFile, ids: Collection[int], table: str, text: str) -> dict[int, str]:
    """Return the texts of distinct ids, by id. Raises InvalidValue for an id or text that is none."""
    try:
        sorted_ids = columns.values(array("q", ids))
    except (TypeError, OverflowError):
        check_whole(*ids)
        raise
    # Most of a table: one range is read, and what is between is dropped.
    if len(sorted_ids) > LISTED and sorted_ids[-1] - sorted_ids[0] < 4 * len(sorted_ids):
        known_ids, bounds = set(sorted_ids), f"id BETWEEN {sorted_ids[0]} AND {sorted_ids[-1]}"
        rows = file.chunks(f'SELECT id, {text} FROM "{table}" WHERE {bounds}')
        return texts_of(row for chunk in rows for row in chunk if row[0] in known_ids)
    texts: dict[int, str] = {}
    for offset in range(0, len(sorted_ids), LISTED):
        chunk = listed(sorted_ids[offset : offset + LISTED])
        texts |= texts_of(file.rows(f'SELECT id, {text} FROM "{table}" WHERE id IN ({chunk})'))
    return texts


@contextlib.contextmanager
def damage(file: SqliteFile, table: str) -> Iterator[None]:
    """Turn an error about a value into a TraceError that names the table, where a number in it is none, or cannot
    be.
    """
    try:
        yield
    except (TypeError, OverflowError) as error:
        problem = f"table {file.table_of(table)} holds a value that cannot be" + (
            f" ({error})" if isinstance(error, OddValue) else ""
        )
        raise TraceError(f"{file.path}: {problem}: damaged, or changed after it was written; {file.again}") from error


def of_rows(rows: Iterable[Sequence[SqlRow]], explain: Callable[[SqlRow], object] = check_row) -> Iterator[Block]:
    """Yield chunks of rows as blocks of columns.

    Raises TypeError and OverflowError for a value that is no whole number, or what ``explain_row`` raises of its row.
    """
    for chunk in rows:
        if chunk:
            try:
                yield [array("q", column) for column in zip(*chunk, strict=True)]
            except (TypeError, OverflowError):
                for row in chunk:
                    explain(row)
                raise


class Columns:
    """Collects the kernels of one lane while they are read."""

    def __init__(self) -> None:
        self.streams: dict[Stream, int] = {}
        self._parts: list[Block] = []

    def extend(self, part: Block) -> None:
        """Add kernels: start, end, correlation, number in ``streams``, name, full name, and 1 for a node of a graph.

        Impossible rows are left out: :func:`count_impossible_rows` counts them.
        """
        impossible_flags = columns.impossible(part[0], part[1])
        # Most tables have no such row: then no column is copied.
        if 1 in impossible_flags:
            possible_rows = columns.where_not(impossible_flags)
            part = [columns.take(column, possible_rows) for column in part]
        if part[0]:
            self._parts.append([*part[:3], *map(columns.narrowed, part[3:])])

    def sorted_kernels(self, names: Mapping[int, str], path: Path, named_by: str = "StringIds") -> Kernels:
        """Return the kernels ordered by start, and hold none of them any more.

        Raises TraceError where the table that names them lacks a name.
        """
        start, end, correlation, stream, name, full_name, node = map(columns.chained, zip(*self._parts, strict=True))
        self._parts.clear()
        unknown_names = set(columns.values(name)) - names.keys()
        if unknown_names:
            problem = f"{counted(len(unknown_names), 'kernel name id')} not in {named_by}"
            raise TraceError(f"{path}: {problem}: ids do not join; export the report again")
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
        """Return the id of every name that was read."""
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
    """Count the rows of a table whose times cannot be, and describe the first of them.

    ``stream`` and ``name`` are columns of the table, or expressions; ``row_id_ranges`` say where such rows stand. A
    time that is no number is damage, which the reader of the row refuses.
    """
    rows = file.scan(f"start, end, {stream}, {name}", table, IMPOSSIBLE, stretches=stretches)
    row_count, first = 0, None
    for row in rows:
        if {type(row[0]), type(row[1])} == {int}:
            row_count += 1
            first = row if first is None else min(first, row, key=lambda values: (*values[:2], str(values[2:])))
    if first is None:
        return ImpossibleRows()
    start, end, stream_number, name_id = first
    return ImpossibleRows.of(
        row_count, what, name_of(name_id) if type(name_id) is int else "", stream_number, start, end
    )


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
    """Return what ``consume`` makes of the rows that pass; ``whole_table``: they may be as many as the table has.

    ``read_rows`` reads fewer rows than pass, where no blocks are read; ``row_id_ranges`` say where all of them stand.
    ``explain_row`` gets the rows of which one holds a value that is no whole number, and raises an error that says so.
    Where ``consume`` fails nothing is being read any more: the file may be closed then, and SQLite does not survive
    that.
    """
    # What is read fast and fails is read again by rows: only they can name the bad value.
    if whole and are_many(file.about(table)):
        with suppress(Unfit), closing(blocks(file, row, table, where)) as column_blocks:
            return use(column_blocks)
    return use(
        of_rows(rows() if rows else file.parts(", ".join(row), table, where, whole=whole, stretches=stretches), explain)
    )


def fill(
    lanes: Collection[Lane] | None,
    found: Iterable[Block],
    placed: Callable[[Sequence[int]], tuple[Lane, Stream]],
) -> tuple[dict[Lane, Columns], set[int]]:
    """Sort kernels into their lanes, and return the lanes with the processes of those kernels that are in none of them.

    With None for ``lanes`` each lane that occurs is made. Blocks hold start, end, correlation, name, full name, 1 for a
    node of a graph, and then the columns of which ``locate`` makes lane and stream.
    """
    tables: dict[Lane, Columns] = {lane: Columns() for lane in lanes or ()}
    foreign_processes: set[int] = set()
    for start, end, correlation, short_name, full_name, node, *place_columns in found:
        place_numbers, keys = columns.distinct(*place_columns)
        lane_tables: list[Columns] = []
        index_by_lane: dict[Lane, int] = {}
        table_numbers, stream_numbers = array("q"), array("q")
        for key in keys:
            lane, stream = placed(key)
            if lanes is None:
                tables.setdefault(lane, Columns())
            elif lane not in tables:
                # A rank without a device of its own takes all kernels of its process.
                lane = Lane(lane.global_pid, None)
            if lane in tables and lane not in index_by_lane:
                index_by_lane[lane] = len(lane_tables)
                lane_tables.append(tables[lane])
            if lane not in tables:
                foreign_processes.add(lane.global_pid)
            streams = tables[lane].streams if lane in tables else {}
            table_numbers.append(index_by_lane.get(lane, len(keys)))  # a kernel of no lane is behind all lanes
            stream_numbers.append(streams.setdefault(stream, len(streams)))
        kernel_columns = (
            start,
            end,
            correlation,
            columns.take(stream_numbers, place_numbers),
            short_name,
            full_name,
            node,
        )
        parts_by_table = split(columns.take(table_numbers, place_numbers), len(keys) + 1, kernel_columns)
        for table, parts in zip(lane_tables, parts_by_table, strict=False):
            if parts[0]:
                table.extend(parts)
    return tables, foreign_processes - {lane.global_pid for lane in tables}


def split(groups: Column, size: int, each: Sequence[Column]) -> Iterator[list[Column]]:
    """Yield the part of each column that belongs to each group number, in order; all of ``groups`` are below
    ``group_count``.
    """
    sorted_columns = list(each)
    # Most stand by group already: many exports write one process after the other.
    if columns.exceeds(groups[:-1], groups[1:]):
        order = columns.order(groups)
        sorted_columns = [columns.take(column, order) for column in each]
    low = 0
    for count in columns.counts(groups, size):
        yield [column[low : low + count] for column in sorted_columns]
        low += count
