"""What an export has many rows of, as columns: the kernels of a lane, and how any such table is read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import Kernels, Lane, Stream
from pytest_nsys.core.words import counted, printable
from pytest_nsys.traces.nsys.tables import (
    CONTEXT,
    DEVICE,
    KERNEL,
    PROCESS,
    STREAM,
    STRINGS,
    kernel_row,
    listed,
)
from pytest_nsys.traces.sqlite_columns import Block, Unfit, blocks, of_rows, texts_between, worth
from pytest_nsys.traces.sqlite_file import SqliteFile, SqlRow

T = TypeVar("T")


class OddValue(TypeError):
    """A value that its column cannot have, in words."""


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

    def sorted_kernels(self, names: Mapping[int, str], path: Path) -> Kernels:
        """The kernels, ordered by start, after which this has none. Raises TraceError where a name is lost."""
        start, end, correlation, stream, name, full_name, node = map(joined, zip(*self._parts, strict=True))
        self._parts.clear()
        lost = set(columns.values(name)) - names.keys()
        if lost:
            what = f"{counted(len(lost), 'kernel name id')} not in {STRINGS}"
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


def read_kernels(
    file: SqliteFile, lanes: Collection[Lane] | None, where: str, *, whole: bool, table: str = KERNEL, name: str = ""
) -> tuple[dict[Lane, Columns], set[int]]:
    """The kernels that pass, by lane, and the processes of those that are in none of the lanes; None: all lanes.

    ``whole``: they may be as many as the table has. ``name`` stands for the names of kernels.
    """
    row = kernel_row(file, table, name)
    fast = blocks(file, row, table, where) if whole and worth(file.about(table)) else None
    rows = file.parts(", ".join(row), table, where, whole=whole)
    return as_blocks(fast, rows, lambda found: fill(lanes, found), _explain_kernel)


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


def _explain_kernel(row: SqlRow) -> None:
    check_process(row[PROCESS], row[DEVICE])
    check_whole(row[DEVICE], row[CONTEXT], row[STREAM])


def fill(lanes: Collection[Lane] | None, found: Iterable[Block]) -> tuple[dict[Lane, Columns], set[int]]:
    """Sort blocks of :data:`KERNEL_ROW` into their lanes; the processes of those that have none are returned.

    With None there are none: each lane that occurs is made.
    """
    tables: dict[Lane, Columns] = {lane: Columns() for lane in lanes or ()}
    strangers: set[int] = set()
    for start, end, correlation, device, context, stream, short, full, node, pid in found:
        numbers, keys = columns.distinct(pid, device, context, stream)
        own: list[Columns] = []
        places: dict[Lane, int] = {}
        table_of, stream_of = array("q"), array("q")
        for key in keys:
            lane = Lane(*key[:2])
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
            stream_of.append(streams.setdefault(Stream(*key[1:]), len(streams)))
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


def check_whole(*values: object) -> None:
    """SQLite keeps any type in any column, and numbers of a trace become part of later questions to it."""
    for value in values:
        if type(value) is not int:
            raise OddValue(f"{str(value)[:40]!r} is no whole number")


def check_process(pid: object, device: object) -> None:
    """A kernel without a process could be of any rank. Raises OddValue."""
    if pid is None:
        raise OddValue(f"a kernel on device {device} has no process: its globalPid is NULL")
    check_whole(pid)


def check_text(value: object) -> str:
    """A name. Raises OddValue for what is none."""
    if not isinstance(value, str):
        raise OddValue(f"{printable(repr(value), 40)} is no name")
    return value


def texts_of(rows: Iterable[SqlRow]) -> dict[int, str]:
    """The texts of rows of an id and a text. Raises OddValue where one is none, or an id has two."""
    found: dict[int, str] = {}
    for number, text in rows:
        check_whole(number)
        if found.setdefault(number, check_text(text)) != text:
            raise OddValue(f"the id {number} stands for two texts")
    return found


LISTED = 20_000
"""Texts that are asked for by their ids at once: a statement may have a million bytes."""


def read_texts(file: SqliteFile, ids: Collection[int]) -> dict[int, str]:
    """The texts of distinct ids; of many ids those of the ids between them, too. Raises OddValue."""
    try:
        wanted = columns.values(array("q", ids))
    except (TypeError, OverflowError):
        check_whole(*ids)
        raise
    if len(wanted) > LISTED and wanted[-1] - wanted[0] < 4 * len(wanted):
        try:
            return texts_between(file, STRINGS, wanted[0], wanted[-1])
        except Unfit:
            pass
    found: dict[int, str] = {}
    for at in range(0, len(wanted), LISTED):
        some = listed(wanted[at : at + LISTED])
        found |= texts_of(file.rows(f"SELECT id, value FROM {STRINGS} WHERE id IN ({some})"))
    return found
