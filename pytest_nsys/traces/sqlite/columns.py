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
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.traces.sqlite.conditions import IMPOSSIBLE_TIMES, MAX_LISTED_IDS, format_ids
from pytest_nsys.traces.sqlite.file import BLOCK_ROWS, SQLITE_ERRORS, FastReadError, SqliteFile, SqlRow

T = TypeVar("T")

COLUMN_AS_JSON = "json_group_array({})"
# SQLite and numpy let go of the interpreter's lock, so two blocks are read at once.
READER_THREADS = 2
# From so many rows on, a block costs less than its rows.
MANY_ROWS = 100_000


# So many rows at least show which part of a table passes; from all over it, as it may be ordered by process before
# time.
SAMPLE_ROWS = 500


def is_large_count(rows: int) -> bool:
    """Return whether so many rows are let go as they are read: as objects of Python they take much memory at once."""
    return rows >= MANY_ROWS


def has_many_rows(file: SqliteFile, table: str, where: str) -> bool:
    """Return whether so many rows of a table pass that none is kept as it is read, estimated by samples from all over
    it.
    """
    count = file.estimate_row_count(table)
    if not is_large_count(count) or not (row_id := file.find_row_id_name(table)):
        return False
    rows = format_ids(range(1, count + 1, max(1, count // SAMPLE_ROWS)))
    sql = f"SELECT count(*), total({where}) FROM {table} WHERE {row_id} IN ({rows})"
    ((sample_count, pass_count),) = file.fetch_rows(sql)
    return is_large_count(int(count * pass_count // sample_count) if sample_count else count)


def iterate_blocks(
    file: SqliteFile, expressions: Sequence[str], table: str, where: str = "1"
) -> Generator[Block, None, None]:
    """Yield the columns (names or expressions) of the rows that pass, in blocks in the order of the row ids.

    Raises FastReadError where a value is no whole number, or the table has no row ids to divide it by.
    """
    file.active_reads += 1
    try:
        last, row_id = file.estimate_row_count(table), file.find_row_id_name(table)
        if not row_id:
            raise FastReadError("the rows have no ids")
        if last > file.size_bytes:  # no row is that small: the ids have gaps
            raise FastReadError("the row ids have gaps")
        bounds = [f"{row_id} BETWEEN {low} AND {low + BLOCK_ROWS - 1}" for low in range(1, last + 1, BLOCK_ROWS)]
        select_list = ", ".join(map(COLUMN_AS_JSON.format, expressions))
        conditions = [f"{bound} AND ({where})" for bound in (*bounds, f"{row_id} < 1")]
        queries = [f'SELECT {select_list} FROM "{table}" WHERE {condition}' for condition in conditions]
        yield from _read_in_order(
            [file.get_connection(number) for number in range(min(READER_THREADS, len(queries)))], queries
        )
    except (TraceError, ValueError, *SQLITE_ERRORS) as error:
        raise FastReadError(str(error)) from error
    finally:
        file.active_reads -= 1


def _read_in_order(connections: Sequence[sqlite3.Connection], queries: Iterable[str]) -> Iterator[Block]:
    """Yield a block for each query, in order; the next ones are being read meanwhile."""
    idle_connections: SimpleQueue[sqlite3.Connection] = SimpleQueue()
    for connection in connections:
        idle_connections.put(connection)

    def read_block(query: str) -> Block:
        connection = idle_connections.get()
        try:
            return [columns.parse_int_list(text) for text in connection.execute(query).fetchone()]
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


class InvalidValue(TypeError):
    """Reports a value that its column cannot have, in words."""


def check_integers(*values: object) -> None:
    """Raise InvalidValue for the first value that is no whole number: numbers of a trace become part of later questions
    to it.
    """
    for value in values:
        if type(value) is not int:
            raise InvalidValue(f"{str(value)[:60]!r} is not a whole number")


def check_integer_row(row: SqlRow) -> None:
    """Raise InvalidValue where not all of a row are whole numbers."""
    check_integers(*row)


def check_text(value: object) -> str:
    """Return a name unchanged. Raises InvalidValue for a value that is no text."""
    if not isinstance(value, str):
        raise InvalidValue(f"{sanitize_line(repr(value), 40)} is not a name")
    return value


def collect_texts(rows: Iterable[SqlRow]) -> dict[int, str]:
    """Return the texts of rows of an id and a text, by id. Raises InvalidValue where one is no text, or an id has
    two.
    """
    texts: dict[int, str] = {}
    for number, text in rows:
        check_integers(number)
        if texts.setdefault(number, check_text(text)) != text:
            raise InvalidValue(f"the id {number} has two texts")
    return texts


def read_texts(file: SqliteFile, ids: Collection[int], table: str, text_column: str) -> dict[int, str]:
    """Return the texts of distinct ids, by id. Raises InvalidValue for an id or text that is none."""
    try:
        sorted_ids = columns.list_distinct(array("q", ids))
    except (TypeError, OverflowError):
        check_integers(*ids)
        raise
    # Most of a table: one range is read, and what is between is dropped.
    if len(sorted_ids) > MAX_LISTED_IDS and sorted_ids[-1] - sorted_ids[0] < 4 * len(sorted_ids):
        known_ids, bounds = set(sorted_ids), f"id BETWEEN {sorted_ids[0]} AND {sorted_ids[-1]}"
        rows = file.fetch_chunks(f'SELECT id, {text_column} FROM "{table}" WHERE {bounds}')
        return collect_texts(row for chunk in rows for row in chunk if row[0] in known_ids)
    texts: dict[int, str] = {}
    for offset in range(0, len(sorted_ids), MAX_LISTED_IDS):
        chunk = format_ids(sorted_ids[offset : offset + MAX_LISTED_IDS])
        texts |= collect_texts(file.fetch_rows(f'SELECT id, {text_column} FROM "{table}" WHERE id IN ({chunk})'))
    return texts


@contextlib.contextmanager
def report_damage(file: SqliteFile, table: str) -> Iterator[None]:
    """Turn an error about a value into a TraceError that names the table, where a number in it is none, or cannot
    be.
    """
    try:
        yield
    except (TypeError, OverflowError) as error:
        problem = f"table {file.describe_table(table)} holds a value that cannot be" + (
            f" ({error})" if isinstance(error, InvalidValue) else ""
        )
        raise TraceError(f"{file.path}: {problem}: damaged, or changed after it was written; {file.remedy}") from error


def build_blocks(
    chunks: Iterable[Sequence[SqlRow]], explain_row: Callable[[SqlRow], object] = check_integer_row
) -> Iterator[Block]:
    """Yield chunks of rows as blocks of columns.

    Raises TypeError and OverflowError for a value that is no whole number, or what ``explain_row`` raises of its row.
    """
    for chunk in chunks:
        if chunk:
            try:
                yield [array("q", column) for column in zip(*chunk, strict=True)]
            except (TypeError, OverflowError):
                for row in chunk:
                    explain_row(row)
                raise


class KernelColumns:
    """Collects the kernels of one lane while they are read."""

    def __init__(self) -> None:
        self.streams: dict[Stream, int] = {}
        self._parts: list[Block] = []

    def add_block(self, block: Block) -> None:
        """Add kernels: start, end, correlation, number in ``streams``, name, full name, and 1 for a node of a graph.

        Impossible rows are left out: :func:`count_impossible_rows` counts them.
        """
        impossible_flags = columns.mark_impossible(block[0], block[1])
        # Most tables have no such row: then no column is copied.
        if 1 in impossible_flags:
            possible_rows = columns.find_zeros(impossible_flags)
            block = [columns.take(column, possible_rows) for column in block]
        if block[0]:
            self._parts.append([*block[:3], *map(columns.narrow_column, block[3:])])

    def build_kernels(self, names: Mapping[int, str], path: Path, names_table: str = "StringIds") -> Kernels:
        """Return the kernels ordered by start, and hold none of them any more.

        Raises TraceError where the table that names them lacks a name.
        """
        start, end, correlation, stream, name, full_name, node = map(
            columns.concatenate_columns, zip(*self._parts, strict=True)
        )
        self._parts.clear()
        unknown_names = set(columns.list_distinct(name)) - names.keys()
        if unknown_names:
            problem = f"{format_count(len(unknown_names), 'kernel name id')} not in {names_table}"
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
            graph_node=columns.mark_equal(node, 1),
        )
        if not columns.is_exceeded(start[:-1], start[1:]):  # as most exports write them, and quick to see
            return kernels
        return kernels.take(columns.sort_indices(start, end))

    def __bool__(self) -> bool:
        return bool(self._parts)

    def list_read_name_ids(self) -> set[int]:
        """Return the id of every name that was read."""
        return {name for part in self._parts for column in part[4:6] for name in columns.list_distinct(column)}


def count_impossible_rows(
    file: SqliteFile,
    table: str,
    row_label: str,
    stream: str,
    name: str,
    get_name: Callable[[int], str] = lambda _: "",
    row_id_ranges: Sequence[Interval] | None = None,
) -> ImpossibleRows:
    """Count the rows of a table whose times cannot be, and describe the first of them.

    ``stream`` and ``name`` are columns of the table, or expressions; ``row_id_ranges`` say where such rows stand. A
    time that is no number is damage, which the reader of the row refuses.
    """
    rows = file.scan_rows(f"start, end, {stream}, {name}", table, IMPOSSIBLE_TIMES, row_id_ranges=row_id_ranges)
    row_count, first = 0, None
    for row in rows:
        if {type(row[0]), type(row[1])} == {int}:
            row_count += 1
            first = row if first is None else min(first, row, key=lambda values: (*values[:2], str(values[2:])))
    if first is None:
        return ImpossibleRows()
    start, end, stream_number, name_id = first
    return ImpossibleRows.from_first_row(
        row_count, row_label, get_name(name_id) if type(name_id) is int else "", stream_number, start, end
    )


def read_column_blocks(
    file: SqliteFile,
    expressions: Sequence[str],
    table: str,
    where: str,
    consume: Callable[[Iterable[Block]], T],
    *,
    whole_table: bool,
    read_rows: Callable[[], Iterable[Sequence[SqlRow]]] | None = None,
    explain_row: Callable[[SqlRow], object] = check_integer_row,
    row_id_ranges: Sequence[Interval] | None = None,
) -> T:
    """Return what ``consume`` makes of the rows that pass; ``whole_table``: they may be as many as the table has.

    ``read_rows`` reads fewer rows than pass, where no blocks are read; ``row_id_ranges`` say where all of them stand.
    ``explain_row`` gets the rows of which one holds a value that is no whole number, and raises an error that says so.
    Where ``consume`` fails nothing is being read any more: the file may be closed then, and SQLite does not survive
    that.
    """
    # What is read fast and fails is read again by rows: only they can name the bad value.
    if whole_table and is_large_count(file.estimate_row_count(table)):
        with suppress(FastReadError), closing(iterate_blocks(file, expressions, table, where)) as column_blocks:
            return consume(column_blocks)
    return consume(
        build_blocks(
            read_rows()
            if read_rows
            else file.read_chunks(
                ", ".join(expressions), table, where, whole_table=whole_table, row_id_ranges=row_id_ranges
            ),
            explain_row,
        )
    )


def sort_into_lanes(
    lanes: Collection[Lane] | None,
    blocks: Iterable[Block],
    locate: Callable[[Sequence[int]], tuple[Lane, Stream]],
) -> tuple[dict[Lane, KernelColumns], set[int]]:
    """Sort kernels into their lanes, and return the lanes with the processes of those kernels that are in none of them.

    With None for ``lanes`` each lane that occurs is made. Blocks hold start, end, correlation, name, full name, 1 for a
    node of a graph, and then the columns of which ``locate`` makes lane and stream.
    """
    tables: dict[Lane, KernelColumns] = {lane: KernelColumns() for lane in lanes or ()}
    foreign_processes: set[int] = set()
    for start, end, correlation, short_name, full_name, node, *place_columns in blocks:
        place_numbers, keys = columns.find_distinct_rows(*place_columns)
        lane_tables: list[KernelColumns] = []
        index_by_lane: dict[Lane, int] = {}
        table_numbers, stream_numbers = array("q"), array("q")
        for key in keys:
            lane, stream = locate(key)
            if lanes is None:
                tables.setdefault(lane, KernelColumns())
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
        parts_by_table = split_by_group(columns.take(table_numbers, place_numbers), len(keys) + 1, kernel_columns)
        for table, parts in zip(lane_tables, parts_by_table, strict=False):
            if parts[0]:
                table.add_block(parts)
    return tables, foreign_processes - {lane.global_pid for lane in tables}


def split_by_group(groups: Column, group_count: int, values: Sequence[Column]) -> Iterator[list[Column]]:
    """Yield the part of each column that belongs to each group number, in order; all of ``groups`` are below
    ``group_count``.
    """
    sorted_columns = list(values)
    # Most stand by group already: many exports write one process after the other.
    if columns.is_exceeded(groups[:-1], groups[1:]):
        order = columns.sort_indices(groups)
        sorted_columns = [columns.take(column, order) for column in values]
    low = 0
    for count in columns.count_numbers(groups, group_count):
        yield [column[low : low + count] for column in sorted_columns]
        low += count
