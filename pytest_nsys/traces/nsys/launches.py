"""Which call launched each of some operations of a GPU, when did it begin and end, and on which thread?

Several rows of an id exist (event class 67 repeats rows): the earliest counts, and kernels never multiply.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS, Lane
from pytest_nsys.core.operations import LaunchCalls
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.call_table import EMPTY, CallTable, earliest_calls
from pytest_nsys.traces.nsys.tables import RUNTIME, THREAD_BITS, by_process
from pytest_nsys.traces.sqlite_columns import Block, blocks, worth
from pytest_nsys.traces.sqlite_conditions import listed, within
from pytest_nsys.traces.sqlite_file import SqliteFile, SqlRow
from pytest_nsys.traces.sqlite_kernels import as_blocks, joined
from pytest_nsys.traces.sqlite_values import OddValue

JSON_IN_SQLITE = (3, 38)
"""Since this version every SQLite knows json_each."""

LAUNCH_ROW = ("start", "globalTid", f"ifnull(correlationId, {NO_LAUNCH})")
"""The columns of a launch in the order in which :meth:`LaunchTable.see` takes them."""
CALL_ROW = (*LAUNCH_ROW, "end")


T = TypeVar("T")


def launches(file: SqliteFile, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Column]:
    """The start of the earliest launch row of each kernel, NO_LAUNCH where there is none."""
    tables = _tables(kernels)
    _read(file, tables, LAUNCH_ROW, lambda found: see(tables, found))
    return {
        lane: tables[lane.global_pid].of(some.correlation) if len(some) else array("q")
        for lane, some in kernels.items()
    }


def launch_calls(file: SqliteFile, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
    """The call that launched each kernel."""
    tables = _tables(kernels)
    known = _read(file, tables, CALL_ROW, lambda found: call_tables(tables, found)) or {}
    return {lane: known.get(lane.global_pid, EMPTY).of(some.correlation) for lane, some in kernels.items()}


def call_starts(file: SqliteFile, correlations: Mapping[int, Iterable[int]]) -> dict[int, dict[int, int]]:
    """The start of the earliest call of each correlation that has one, by process."""
    wanted = {pid: array("q", own) for pid, own in correlations.items()}
    tables = {pid: LaunchTable(own) for pid, own in wanted.items()}
    _read(file, tables, LAUNCH_ROW, lambda found: see(tables, found))
    starts = {pid: zip(own, tables[pid].of(own), strict=True) for pid, own in wanted.items()}
    return {pid: {c: start for c, start in own if start != NO_LAUNCH} for pid, own in starts.items()}


def _read(
    file: SqliteFile,
    tables: Mapping[int, LaunchTable],
    row: Sequence[str],
    use: Callable[[Iterable[Block]], T],
) -> T | None:
    """What ``use`` makes of the launches of these tables, of others too; None where there are none."""
    count = sum(table.count for table in tables.values())
    if RUNTIME not in file.tables or not count:
        return None
    whole = worth(count) and worth(file.about(RUNTIME))
    fast = blocks(file, row, RUNTIME) if whole else None
    return as_blocks(fast, _launch_rows(file, tables, row), use)


def see(tables: Mapping[int, LaunchTable], found: Iterable[Block]) -> None:
    """Blocks of :data:`LAUNCH_ROW` into the table of their process, where it has one."""
    for start, tid, correlation in found:
        for _, table, rows in _by_thread(tables, tid):
            table.see(columns.take(correlation, rows), columns.take(start, rows))


def _by_thread(tables: Mapping[int, LaunchTable], tid: Column) -> Iterator[tuple[int, LaunchTable, Column]]:
    """The rows of each thread of a process that has a table."""
    numbers, keys = columns.distinct(tid)
    for (thread,), rows in zip(keys, columns.members(numbers, len(keys)), strict=True):
        if (table := tables.get(thread & ~THREAD_BITS)) is not None:
            yield thread, table, rows


def call_tables(tables: Mapping[int, LaunchTable], found: Iterable[Block]) -> dict[int, CallTable]:
    """The launches of the ids of the tables among blocks of :data:`CALL_ROW`, by process. Raises OddValue."""
    parts: dict[int, list[Block]] = defaultdict(list)
    for start, tid, correlation, end in found:
        if columns.exceeds(start, end):
            raise OddValue("a call ends before it starts")
        for thread, table, rows in _by_thread(tables, tid):
            own = table.known(columns.take(correlation, rows))
            chosen = [columns.take(columns.take(column, rows), own) for column in (correlation, start, end)]
            parts[thread & ~THREAD_BITS].append([*chosen, array("q", [thread & THREAD_BITS]) * len(own)])
    each = {pid: map(joined, zip(*own, strict=True)) for pid, own in parts.items()}
    return {pid: earliest_calls(correlation, LaunchCalls(*rest)) for pid, (correlation, *rest) in each.items()}


def launch_rows(file: SqliteFile, kernels: Mapping[Lane, Kernels]) -> Iterator[SqlRow]:
    """Start, thread and correlation of every launch of these kernels, of others too."""
    tables = _tables(kernels)
    if RUNTIME in file.tables and any(table.count for table in tables.values()):
        for rows in _launch_rows(file, tables, ("start", "globalTid", "correlationId")):
            yield from rows


def _tables(kernels: Mapping[Lane, Kernels]) -> dict[int, LaunchTable]:
    parts: dict[int, Column] = {}
    for lane, some in kernels.items():
        if len(some):
            parts.setdefault(lane.global_pid, array("q")).extend(some.correlation)
    return {pid: LaunchTable(own) for pid, own in parts.items()}


def _launch_rows(file: SqliteFile, tables: Mapping[int, LaunchTable], row: Sequence[str]) -> Iterator[Sequence[SqlRow]]:
    wanted = {pid: table for pid, table in tables.items() if table.count}
    low, high = min(t.low for t in wanted.values()), max(t.high for t in wanted.values())
    own = by_process("globalTid", {pid: table.condition() for pid, table in wanted.items()})
    where = f"{within('correlationId', low, high)} AND correlationId IS NOT NULL AND {own}"
    lists = [listed for _, table in sorted(wanted.items()) for listed in table.parameters()]
    many = worth(sum(table.count for table in wanted.values()))
    yield from file.parts(", ".join(row), RUNTIME, where, lists, whole=many)


class LaunchTable:
    """Earliest launch by correlation id, of one process."""

    def __init__(self, correlation: Column) -> None:
        ids = columns.values(correlation)
        self._ids = ids[1:] if ids and ids[0] == NO_LAUNCH else ids
        self._first = array("q", [OPEN_END_NS]) * len(self._ids)
        self.count = len(self._ids)
        self.low, self.high = (self._ids[0], self._ids[-1]) if self._ids else (0, 0)
        self._listed = self.high - self.low > 2 * self.count and sqlite3.sqlite_version_info >= JSON_IN_SQLITE

    def condition(self) -> str:
        """SQL that lets through at least the rows of these ids: their bounds, and their list where it says more."""
        between = within("correlationId", self.low, self.high)
        known = "(correlationId IN (SELECT value FROM json_each(?)) OR typeof(correlationId) <> 'integer')"
        return f"{between} AND {known}" if self._listed else between

    def parameters(self) -> Sequence[str]:
        """What the condition's placeholders stand for: a list of any length is one text of JSON."""
        return [f"[{listed(self._ids)}]"] if self._listed else []

    def known(self, correlation: Column) -> Column:
        """Where in a column there is one of these ids."""
        found = columns.joined(self._ids, self._ids, NO_LAUNCH, correlation)
        return columns.where_not(columns.equal(found, NO_LAUNCH))

    def see(self, correlation: Column, start_ns: Column) -> None:
        """Launch rows, perhaps of ids that nobody asked for."""
        self._first = columns.least(self._ids, self._first, correlation, start_ns)

    def of(self, correlation: Column) -> Column:
        """The earliest launch of each id, NO_LAUNCH where none was seen."""
        seen = columns.where_not(columns.equal(self._first, OPEN_END_NS))
        ids, first = columns.take(self._ids, seen), columns.take(self._first, seen)
        return columns.joined(ids, first, NO_LAUNCH, correlation)
