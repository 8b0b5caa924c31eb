"""Of the calls of an export that launched work, how many have it on record?

The table of calls is passed once for the calls that launch, by name, and each table of what ran once for its ids. Where
work is missing, calls are read once more: by then something is wrong, and what it is may take a pass.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from fractions import Fraction
from functools import cached_property, partial

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Block, Column
from pytest_nsys.core.intervals import hull
from pytest_nsys.core.model import Api, Interval, Lane, LaunchKind, LaunchRecord
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.answers import ApiCalls, Earliest
from pytest_nsys.traces.launch_records import (
    CAPTURES,
    NEXT_IDS,
    Recorded,
    ids_of,
    kind_of_call,
    lacking_of,
    records_of,
)
from pytest_nsys.traces.nsys.calls import LEAD_NS, call_tables, read_api_calls, read_launching
from pytest_nsys.traces.nsys.tables import (
    GRAPHS,
    HOST_COPY,
    KERNEL,
    MEMCPY,
    MEMSET,
    RUNTIME,
    STRINGS,
    by_process,
)
from pytest_nsys.traces.sqlite_columns import damage, has_many, read_blocks
from pytest_nsys.traces.sqlite_conditions import one_of
from pytest_nsys.traces.sqlite_file import SqliteFile
from pytest_nsys.traces.sqlite_zones import find_touching

EVER = (-(1 << 63), (1 << 63) - 1)


def read_launch_records(
    file: SqliteFile,
    spans: Mapping[int, Interval | None],
    kernels: Mapping[Lane, Kernels],
    empty: Callable[[int], Set[int]] = lambda _: frozenset(),
) -> Mapping[int, Sequence[LaunchRecord]] | None:
    """Return how much work of the calls that start in the span of their process is on record, by process.

    All calls of a process without a span count. None where the file has no call. ``find_empty_copies`` finds the
    correlations of a process's copies of 0 bytes. Raises TraceError for a damaged row.
    """
    if RUNTIME not in file.tables or STRINGS not in file.tables:
        return None
    names, calls = read_launching(file, spans)
    if not calls:
        return {}
    work = _Work(file, names, calls, ids_of(kernels), empty)
    records_by_process = {
        pid: records_of(process_calls, work.of(pid), spans.get(pid)) for pid, process_calls in calls.items()
    }
    return {pid: records for pid, records in records_by_process.items() if records}


class _Work:
    """Reads what of the work of some calls is in the tables of an export."""

    def __init__(
        self,
        file: SqliteFile,
        names: Mapping[int, str],
        calls: Mapping[int, ApiCalls],
        read: Mapping[int, Column],
        empty: Callable[[int], Set[int]],
    ) -> None:
        self._empty = empty
        self._file, self._names, self._calls, self._read = file, names, calls, read
        id_bounds = [columns.bounds(process_calls.correlation) for process_calls in calls.values()]
        # A kernel may have one of the next ids, of a call that the runtime made.
        low, high = min(low for low, _ in id_bounds), max(high for _, high in id_bounds) + NEXT_IDS
        self._where = f"correlationId BETWEEN {low} AND {high}"
        first, last = hull(columns.bounds(process_calls.start_ns) for process_calls in calls.values())
        self._near = find_touching(file, KERNEL, (first, last + LEAD_NS))

    def of(self, pid: int) -> Recorded:
        """Return what is on record of one process."""
        return Recorded(
            self._read.get(pid, array("q")),
            self._others.get(pid, array("q")),
            self._lacking.get(pid, {}),
            lambda: (ids.get(pid, array("q")) for ids in self._kernels()),
            lambda: self._kernel_calls.get(pid),
            lambda: self._captures.get(pid, ()),
            partial(self._empty, pid),
            partial(self._launching, pid),
        )

    def _kernels(self) -> Iterator[Mapping[int, Column]]:
        """Yield the correlations of the kernels soon after the calls, then of all, by process."""
        # Most kernels start soon after their calls: mostly the whole table is not passed.
        if self._near is not None:
            yield self._kernels_near
        yield self._all_kernels

    @cached_property
    def _kernels_near(self) -> Mapping[int, Column]:
        return self._ids([KERNEL], self._where, self._near)

    @cached_property
    def _all_kernels(self) -> Mapping[int, Column]:
        return self._ids([KERNEL], self._where)

    @cached_property
    def _others(self) -> Mapping[int, Column]:
        return self._ids([MEMCPY, MEMSET, GRAPHS, HOST_COPY], self._where)

    def _ids(self, tables: Iterable[str], where: str, stretches: Sequence[Interval] | None = None) -> dict[int, Column]:
        """Return the ids of the rows that pass, by process, ascending: a damaged one is the id of no call."""
        id_parts: dict[int, list[Column]] = {}
        for table in tables:
            if self._file.has(table, "globalPid", "correlationId"):
                for pid, correlation in self._rows(table, ("globalPid", "correlationId"), where, stretches):
                    for process, rows in _groups(pid):
                        id_parts.setdefault(process, []).append(columns.take(correlation, rows))
        return {pid: columns.values(columns.chained(parts)) for pid, parts in id_parts.items()}

    def _rows(
        self, table: str, names: Sequence[str], where: str, stretches: Sequence[Interval] | None = None
    ) -> list[Block]:
        # A damaged value becomes 0, which is the id of no call: the reader of kernels refuses it.
        expressions = [f"CAST(ifnull({name}, 0) AS INTEGER)" for name in names]
        with damage(self._file, table):
            whole_table = stretches is None and has_many(self._file, table, where)
            return read_blocks(
                self._file, expressions, table, where, list[Block], whole=whole_table, stretches=stretches
            )

    @cached_property
    def _lacking(self) -> Mapping[int, Mapping[int, Fraction]]:
        """The missing share of each replay that ran less than another one of its graph, by process."""
        node_columns = ("globalPid", "graphId", "correlationId")
        node_parts: dict[int, list[tuple[Column, Column]]] = {}
        for table in (KERNEL, MEMCPY):
            if self._replays and self._file.has(table, "graphNodeId", *node_columns):
                for pid, *node in self._rows(table, node_columns, "graphNodeId IS NOT NULL AND graphId IS NOT NULL"):
                    for process, rows in _groups(pid):
                        graph, correlation = (columns.take(column, rows) for column in node)
                        node_parts.setdefault(process, []).append((graph, correlation))
        return {pid: lacking_of(*map(columns.chained, zip(*parts, strict=True))) for pid, parts in node_parts.items()}

    @property
    def _replays(self) -> bool:
        """Whether a call launches a graph."""
        call_names = (
            process_calls.names[name]
            for process_calls in self._calls.values()
            for name in columns.values(process_calls.name)
        )
        return any(kind_of_call(name) is LaunchKind.GRAPH for name in call_names)

    @cached_property
    def _kernel_calls(self) -> Mapping[int, Interval]:
        """The time from the first call that launched a kernel, or a graph, to the last, by process."""
        earliest_by_process = {
            pid: Earliest(process_ids)
            for pid, process_ids in self._ids((KERNEL, GRAPHS), "correlationId IS NOT NULL").items()
        }
        with damage(self._file, RUNTIME):
            tables = call_tables(
                self._file, {pid: earliest for pid, earliest in earliest_by_process.items() if pid in self._calls}
            )
        return {pid: columns.bounds(table.calls.start_ns) for pid, table in tables.items() if table.ids}

    def _launching(self, pid: int, ids: Interval) -> Set[int]:
        """Return those of the ids between two that are of a call that launches work."""
        where = f"correlationId BETWEEN {ids[0]} AND {ids[1]} AND {by_process('globalTid', {pid: '1'})}"
        name_condition = one_of("nameId", self._names)
        with damage(self._file, RUNTIME):
            return {
                number for number, _ in self._file.scan("correlationId, 0", RUNTIME, f"{where} AND {name_condition}")
            }

    @cached_property
    def _captures(self) -> Mapping[int, Sequence[Api]]:
        """The calls that begin the capture of a graph, or end it, by process."""
        with damage(self._file, RUNTIME):
            return read_api_calls(self._file, CAPTURES, dict.fromkeys(self._calls, EVER)) or {}


def _groups(column: Column) -> Iterator[tuple[int, Column]]:
    """Yield each distinct number, and where it stands."""
    return iter(columns.members_by(lambda number: number, column).items())
