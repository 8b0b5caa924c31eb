"""How do the rows of a table become the kernels of its lanes, as columns?"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import Lane, Stream
from pytest_nsys.core.tables import Kernels
from pytest_nsys.core.words import counted
from pytest_nsys.traces.sqlite_columns import Block, Unfit, blocks, of_rows, worth
from pytest_nsys.traces.sqlite_file import SqliteFile, SqlRow
from pytest_nsys.traces.sqlite_values import OddValue

T = TypeVar("T")


class Columns:
    """Kernels of one lane while they are read."""

    def __init__(self) -> None:
        self.streams: dict[Stream, int] = {}
        self._parts: list[Block] = []

    def extend(self, part: Block) -> None:
        """More kernels: start, end, correlation, number in ``streams``, name, full name, and 1 for a node of a graph.

        Raises OddValue.
        """
        if columns.exceeds(part[0], part[1]):
            raise OddValue("a kernel ends before it starts")
        self._parts.append(part)

    def sorted_kernels(self, names: Mapping[int, str], path: Path, named_by: str = "StringIds") -> Kernels:
        """The kernels, ordered by start, after which this has none. Raises TraceError where the table that names them
        lacks one.
        """
        start, end, correlation, stream, name, full_name, node = map(joined, zip(*self._parts, strict=True))
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


def joined(parts: Iterable[Column]) -> Column:
    """The columns one after the other: to let one grow copies it many times over."""
    found = array("q")
    found.frombytes(b"".join(parts))
    return found


def read_blocks(
    file: SqliteFile,
    row: Sequence[str],
    table: str,
    where: str,
    use: Callable[[Iterable[Block]], T],
    *,
    whole: bool,
    explain: Callable[[SqlRow], object] = id,
) -> T:
    """What ``use`` makes of the rows that pass; ``whole``: they may be as many as the table has.

    ``explain`` is shown the rows of which one holds what is no whole number, and raises what is said of it.
    """
    fast = blocks(file, row, table, where) if whole and worth(file.about(table)) else None
    return as_blocks(fast, file.parts(", ".join(row), table, where, whole=whole), use, explain)


def as_blocks(
    fast: Generator[Block, None, None] | None,
    rows: Iterable[Sequence[SqlRow]],
    use: Callable[[Iterable[Block]], T],
    explain: Callable[[SqlRow], object] = id,
) -> T:
    """What ``use`` makes of the blocks, which are read in a fast way or, where that cannot be, as rows.

    Where it fails nothing is being read any more: the file may be closed then, and SQLite does not survive that.
    """
    if fast is not None:
        with suppress(Unfit), closing(fast):
            return use(fast)
    return use(of_rows(rows, explain))


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
    order = columns.order(groups)
    sorted_ = [columns.take(column, order) for column in each]
    low = 0
    for count in columns.counts(groups, size):
        yield [column[low : low + count] for column in sorted_]
        low += count
