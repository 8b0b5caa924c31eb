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
from pytest_nsys.core.intervals import find_hull
from pytest_nsys.core.model import Api, Interval, Lane, LaunchKind, LaunchRecord
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.launch_records import (
    CAPTURE_GLOBS,
    LARGEST_ID_DISTANCE,
    RecordedWork,
    build_launch_records,
    find_launch_kind,
    group_ids_by_process,
    measure_missing_shares,
)
from pytest_nsys.traces.nsys.calls import LEAD_NS, read_api_calls, read_call_tables, read_launching_calls
from pytest_nsys.traces.nsys.tables import (
    GRAPHS_TABLE,
    HOST_COPY_TABLE,
    KERNEL_TABLE,
    MEMCPY_TABLE,
    MEMSET_TABLE,
    RUNTIME_TABLE,
    STRINGS_TABLE,
    build_process_condition,
)
from pytest_nsys.traces.sqlite.columns import has_many_rows, read_column_blocks, report_damage
from pytest_nsys.traces.sqlite.conditions import build_ids_condition
from pytest_nsys.traces.sqlite.file import SqliteFile
from pytest_nsys.traces.sqlite.zones import find_touching_rows
from pytest_nsys.traces.trace_queries import ApiCalls, EarliestCalls

ALL_TIME = (-(1 << 63), (1 << 63) - 1)


def read_launch_records(
    file: SqliteFile,
    spans: Mapping[int, Interval | None],
    kernels: Mapping[Lane, Kernels],
    find_empty_copies: Callable[[int], Set[int]] = lambda _: frozenset(),
) -> Mapping[int, Sequence[LaunchRecord]] | None:
    """Return how much work of the calls that start in the span of their process is on record, by process.

    All calls of a process without a span count. None where the file has no call. ``find_empty_copies`` finds the
    correlations of a process's copies of 0 bytes. Raises TraceError for a damaged row.
    """
    if RUNTIME_TABLE not in file.tables or STRINGS_TABLE not in file.tables:
        return None
    names, calls = read_launching_calls(file, spans)
    if not calls:
        return {}
    work = _LaunchWork(file, names, calls, group_ids_by_process(kernels), find_empty_copies)
    records_by_process = {
        pid: build_launch_records(process_calls, work.build_recorded_work(pid), spans.get(pid))
        for pid, process_calls in calls.items()
    }
    return {pid: records for pid, records in records_by_process.items() if records}


class _LaunchWork:
    """Reads what of the work of some calls is in the tables of an export."""

    def __init__(
        self,
        file: SqliteFile,
        names: Mapping[int, str],
        calls: Mapping[int, ApiCalls],
        kernel_ids: Mapping[int, Column],
        find_empty_copies: Callable[[int], Set[int]],
    ) -> None:
        self._find_empty_copies = find_empty_copies
        self._file, self._names, self._calls, self._known_kernel_ids = file, names, calls, kernel_ids
        id_bounds = [columns.find_min_max(process_calls.correlation) for process_calls in calls.values()]
        # A kernel may have one of the next ids, of a call that the runtime made.
        low, high = min(low for low, _ in id_bounds), max(high for _, high in id_bounds) + LARGEST_ID_DISTANCE
        self._where = f"correlationId BETWEEN {low} AND {high}"
        first, last = find_hull(columns.find_min_max(process_calls.start_ns) for process_calls in calls.values())
        self._row_id_ranges = find_touching_rows(file, KERNEL_TABLE, (first, last + LEAD_NS))

    def build_recorded_work(self, pid: int) -> RecordedWork:
        """Return what is on record of one process."""
        return RecordedWork(
            self._known_kernel_ids.get(pid, array("q")),
            self._other_ids.get(pid, array("q")),
            self._missing_shares.get(pid, {}),
            lambda: (ids.get(pid, array("q")) for ids in self._iterate_kernel_ids()),
            lambda: self._kernel_call_spans.get(pid),
            lambda: self._capture_calls.get(pid, ()),
            partial(self._find_empty_copies, pid),
            partial(self._find_launching_ids, pid),
        )

    def _iterate_kernel_ids(self) -> Iterator[Mapping[int, Column]]:
        """Yield the correlations of the kernels soon after the calls, then of all, by process."""
        # Most kernels start soon after their calls: mostly the whole table is not passed.
        if self._row_id_ranges is not None:
            yield self._nearby_kernel_ids
        yield self._all_kernel_ids

    @cached_property
    def _nearby_kernel_ids(self) -> Mapping[int, Column]:
        return self._read_ids([KERNEL_TABLE], self._where, self._row_id_ranges)

    @cached_property
    def _all_kernel_ids(self) -> Mapping[int, Column]:
        return self._read_ids([KERNEL_TABLE], self._where)

    @cached_property
    def _other_ids(self) -> Mapping[int, Column]:
        return self._read_ids([MEMCPY_TABLE, MEMSET_TABLE, GRAPHS_TABLE, HOST_COPY_TABLE], self._where)

    def _read_ids(
        self, tables: Iterable[str], where: str, row_id_ranges: Sequence[Interval] | None = None
    ) -> dict[int, Column]:
        """Return the ids of the rows that pass, by process, ascending: a damaged one is the id of no call."""
        id_parts: dict[int, list[Column]] = {}
        for table in tables:
            if self._file.has_columns(table, "globalPid", "correlationId"):
                for pid, correlation in self._read_rows(table, ("globalPid", "correlationId"), where, row_id_ranges):
                    for process, rows in _group_rows(pid):
                        id_parts.setdefault(process, []).append(columns.take(correlation, rows))
        return {pid: columns.list_distinct(columns.concatenate_columns(parts)) for pid, parts in id_parts.items()}

    def _read_rows(
        self, table: str, names: Sequence[str], where: str, row_id_ranges: Sequence[Interval] | None = None
    ) -> list[Block]:
        # A damaged value becomes 0, which is the id of no call: the reader of kernels refuses it.
        expressions = [f"CAST(ifnull({name}, 0) AS INTEGER)" for name in names]
        with report_damage(self._file, table):
            whole_table = row_id_ranges is None and has_many_rows(self._file, table, where)
            return read_column_blocks(
                self._file, expressions, table, where, list[Block], whole_table=whole_table, row_id_ranges=row_id_ranges
            )

    @cached_property
    def _missing_shares(self) -> Mapping[int, Mapping[int, Fraction]]:
        """The missing share of each replay that ran less than another one of its graph, by process."""
        node_columns = ("globalPid", "graphId", "correlationId")
        node_parts: dict[int, list[tuple[Column, Column]]] = {}
        for table in (KERNEL_TABLE, MEMCPY_TABLE):
            if self._has_graph_launches and self._file.has_columns(table, "graphNodeId", *node_columns):
                for pid, *node in self._read_rows(
                    table, node_columns, "graphNodeId IS NOT NULL AND graphId IS NOT NULL"
                ):
                    for process, rows in _group_rows(pid):
                        graph, correlation = (columns.take(column, rows) for column in node)
                        node_parts.setdefault(process, []).append((graph, correlation))
        return {
            pid: measure_missing_shares(*map(columns.concatenate_columns, zip(*parts, strict=True)))
            for pid, parts in node_parts.items()
        }

    @property
    def _has_graph_launches(self) -> bool:
        """Whether a call launches a graph."""
        call_names = (
            process_calls.names[name]
            for process_calls in self._calls.values()
            for name in columns.list_distinct(process_calls.name)
        )
        return any(find_launch_kind(name) is LaunchKind.GRAPH for name in call_names)

    @cached_property
    def _kernel_call_spans(self) -> Mapping[int, Interval]:
        """The time from the first call that launched a kernel, or a graph, to the last, by process."""
        earliest_by_process = {
            pid: EarliestCalls(process_ids)
            for pid, process_ids in self._read_ids((KERNEL_TABLE, GRAPHS_TABLE), "correlationId IS NOT NULL").items()
        }
        with report_damage(self._file, RUNTIME_TABLE):
            tables = read_call_tables(
                self._file, {pid: earliest for pid, earliest in earliest_by_process.items() if pid in self._calls}
            )
        return {pid: columns.find_min_max(table.calls.start_ns) for pid, table in tables.items() if table.correlations}

    def _find_launching_ids(self, pid: int, ids: Interval) -> Set[int]:
        """Return those of the ids between two that are of a call that launches work."""
        where = f"correlationId BETWEEN {ids[0]} AND {ids[1]} AND {build_process_condition('globalTid', {pid: '1'})}"
        name_condition = build_ids_condition("nameId", self._names)
        with report_damage(self._file, RUNTIME_TABLE):
            return {
                number
                for number, _ in self._file.scan_rows(
                    "correlationId, 0", RUNTIME_TABLE, f"{where} AND {name_condition}"
                )
            }

    @cached_property
    def _capture_calls(self) -> Mapping[int, Sequence[Api]]:
        """The calls that begin the capture of a graph, or end it, by process."""
        with report_damage(self._file, RUNTIME_TABLE):
            return read_api_calls(self._file, CAPTURE_GLOBS, dict.fromkeys(self._calls, ALL_TIME)) or {}


def _group_rows(column: Column) -> Iterator[tuple[int, Column]]:
    """Yield each distinct number, and where it stands."""
    return iter(columns.group_indices_by(lambda number: number, column).items())
