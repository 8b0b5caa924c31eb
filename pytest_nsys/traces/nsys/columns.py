"""Rows of an export into compact columns: the kernels of a lane, and the earliest launch of each."""

from __future__ import annotations

import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import gt, le
from pathlib import Path

from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import NO_LAUNCH, Kernels, Lane, Stream, counted, printable
from pytest_nsys.traces.nsys.tables import DEVICE, PROCESS, RUNTIME, STRINGS, by_process, listed, within
from pytest_nsys.traces.sqlite_file import SqliteFile, SqlRow

MANY = 100_000
"""From so many launches on, their rows are read in chunks instead of at once."""

JSON_IN_SQLITE = (3, 38)
"""Since this version every SQLite knows json_each."""

DENSE = 32
"""A table by correlation id may have this many slots for each kernel; sparser ids go into a dictionary."""


class OddValue(TypeError):
    """A value that its column cannot have, in words."""


class Columns:
    """Kernels of one lane while they are read."""

    def __init__(self) -> None:
        self.start, self.end, self.correlation = array("q"), array("q"), array("q")
        self.stream, self.name, self.full_name = array("q"), array("q"), array("q")
        self.streams: dict[tuple[int, int, int], int] = {}
        self.graph_node = bytearray()

    def extend(self, rows: Sequence[SqlRow]) -> None:
        """More kernels, column by column: a loop over rows costs three times as much."""
        start, end, correlation, device, context, stream, short, full, node, _ = zip(*rows, strict=True)
        self.start.extend(start)
        self.end.extend(end)
        if any(map(gt, start, end)):
            raise OddValue("a kernel ends before it starts")
        if None in correlation:
            correlation = tuple(NO_LAUNCH if c is None else c for c in correlation)
        self.correlation.extend(correlation)
        for key in dict.fromkeys(zip(device, context, stream, strict=True)):
            check_whole(*key)
            self.streams.setdefault(key, len(self.streams))
        self.stream.extend(map(self.streams.__getitem__, zip(device, context, stream, strict=True)))
        self.name.extend(short)
        self.full_name.extend(full)
        self.graph_node.extend(n is not None for n in node)

    def name_ids(self) -> set[int]:
        """Every name that was read."""
        return {*self.name, *self.full_name}

    def sorted_kernels(self, names: Mapping[int, str], path: Path) -> Kernels:
        """The kernels, ordered by start. Raises TraceError where a name is lost."""
        lost = set(self.name) - names.keys()
        if lost:
            what = f"{counted(len(lost), 'kernel name id')} not in {STRINGS}"
            raise TraceError(f"{path}: {what}: ids do not join; export the report again")
        kernels = Kernels(
            start_ns=self.start,
            end_ns=self.end,
            correlation=self.correlation,
            stream=self.stream,
            name=self.name,
            full_name=self.full_name,
            streams=tuple(Stream(*key) for key in self.streams),
            names=names,
            graph_node=self.graph_node,
        )
        if all(map(le, self.start, islice(self.start, 1, None))):  # as most exports write them, and quick to see
            return kernels
        times = list(zip(self.start, self.end, strict=True))
        return kernels.take(sorted(range(len(times)), key=times.__getitem__))


def fill(tables: dict[Lane, Columns], parts: Iterable[list[SqlRow]], *, every: bool = False) -> set[int]:
    """Sort rows of :data:`KERNEL_ROW` into their lanes; the processes of those that have none are returned.

    With ``every`` there are none: a lane that is missing is made.
    """
    strangers: set[int] = set()
    for rows in parts:
        lanes: dict[tuple[int, int], list[SqlRow]] = defaultdict(list)
        for row in rows:
            lanes[row[PROCESS], row[DEVICE]].append(row)
        for (pid, device), own in lanes.items():
            table = tables.get(Lane(pid, device)) or tables.get(Lane(pid, None))
            if table is None and every:
                check_whole(pid, device)
                table = tables[Lane(pid, device)] = Columns()
            if table is not None:
                table.extend(own)
            else:
                check_process(pid, device)
                strangers.add(pid)
    return strangers - {lane.global_pid for lane in tables}


def launch_rows(file: SqliteFile, tables: Mapping[int, LaunchTable]) -> Iterator[SqlRow]:
    """Start, thread and correlation of every launch of these kernels, by process."""
    wanted = {pid: table for pid, table in tables.items() if table.count}
    if RUNTIME not in file.tables or not wanted:
        return iter(())
    low, high = min(t.low for t in wanted.values()), max(t.high for t in wanted.values())
    own = by_process("globalTid", {pid: table.condition() for pid, table in wanted.items()})
    where = f"{within('correlationId', low, high)} AND correlationId IS NOT NULL AND {own}"
    lists = [listed for _, table in sorted(wanted.items()) for listed in table.parameters()]
    many = sum(table.count for table in wanted.values()) > MANY
    return chain.from_iterable(file.parts("start, globalTid, correlationId", RUNTIME, where, lists, whole=many))


class LaunchTable:
    """Earliest launch by correlation id, of one process: an array where the ids lie close, else a dictionary."""

    def __init__(self, parts: Sequence[array[int]]) -> None:
        self._ids = sorted({c for part in parts for c in part if c != NO_LAUNCH})
        self.count = len(self._ids)
        self.low, self.high = (self._ids[0], self._ids[-1]) if self._ids else (0, 0)
        self._sparse: dict[int, int] | None = None
        if self.high - self.low < DENSE * self.count + 1024:
            self._dense = array("q", [NO_LAUNCH]) * (self.high - self.low + 1)
        else:
            self._sparse = dict.fromkeys(self._ids, NO_LAUNCH)
        self._listed = self.high - self.low > 2 * self.count and sqlite3.sqlite_version_info >= JSON_IN_SQLITE

    def condition(self) -> str:
        """SQL that lets through at least the rows of these ids: their bounds, and their list where it says more."""
        between = within("correlationId", self.low, self.high)
        known = "(correlationId IN (SELECT value FROM json_each(?)) OR typeof(correlationId) <> 'integer')"
        return f"{between} AND {known}" if self._listed else between

    def parameters(self) -> Sequence[str]:
        """What the condition's placeholders stand for: a list of any length is one text of JSON."""
        return [f"[{listed(self._ids)}]"] if self._listed else []

    def see(self, correlation: int, start_ns: int) -> None:
        """One launch row, perhaps of an id that nobody asked for."""
        if self._sparse is None:
            known = self._dense[correlation - self.low]
            if known == NO_LAUNCH or start_ns < known:
                self._dense[correlation - self.low] = start_ns
        elif correlation in self._sparse:
            known = self._sparse[correlation]
            if known == NO_LAUNCH or start_ns < known:
                self._sparse[correlation] = start_ns
        else:
            check_whole(correlation)

    def get(self, correlation: int) -> int:
        """The earliest launch of an id, NO_LAUNCH where none was seen."""
        if self._sparse is not None:
            return self._sparse.get(correlation, NO_LAUNCH)
        return self._dense[correlation - self.low] if self.low <= correlation <= self.high else NO_LAUNCH


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
