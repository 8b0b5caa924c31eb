"""Which rows of an export belong to a cut, and how do they become a SQLite file of the same tables?

Only the tables and columns of ``CUT_COLUMNS`` are written: what an export says of machines, users, command lines and
the environment is in none of them. The calls that launched what is left are there without their names, as nothing asks
for those. Databases of rocprofv3, which have the tables of nsys as views, become the same tables.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import TYPE_CHECKING

from pytest_nsys.core.columns import Column
from pytest_nsys.core.file_names import CUT_MARK_TABLE
from pytest_nsys.core.intervals import find_hull
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS, Interval, Lane, Range
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.copies_as_kernels import NCCL_CALL_PATTERNS
from pytest_nsys.traces.cut_trace import CutPart, select_touching_any
from pytest_nsys.traces.nsys.calls import (
    CALL_COLUMNS,
    STREAM_WAIT_TYPE,
    EventCall,
    read_call_tables,
    read_event_calls,
    read_started_calls,
    read_stream_wait_calls,
)
from pytest_nsys.traces.nsys.collectives import COLLECTIVE_COLUMN
from pytest_nsys.traces.nsys.memory import MEMORY_KINDS_TABLE
from pytest_nsys.traces.nsys.tables import (
    CUDA_EVENT_TABLE,
    GRAPH_NODES_TABLE,
    GRAPHS_TABLE,
    KERNEL_TABLE,
    MEMCPY_TABLE,
    MEMSET_TABLE,
    NVTX_TABLE,
    PLACE_COLUMNS,
    RUNTIME_TABLE,
    STRINGS_TABLE,
    SYNCHRONIZATION_TABLE,
)
from pytest_nsys.traces.sqlite.columns import check_integers, report_damage
from pytest_nsys.traces.sqlite.conditions import format_ids
from pytest_nsys.traces.sqlite.file import SqlRow
from pytest_nsys.traces.trace_queries import EMPTY_CALL_TABLE, EarliestCalls, is_not_nccl_range

if TYPE_CHECKING:
    from pytest_nsys.traces.nsys.sqlite import NsysSqlite

_OPERATION_COLUMNS = ("start", "end", *PLACE_COLUMNS, "correlationId")
CUT_COLUMNS: Mapping[str, Sequence[str]] = {
    CUT_MARK_TABLE: ("mark",),
    KERNEL_TABLE: (*_OPERATION_COLUMNS, "shortName", "demangledName", "graphNodeId", COLLECTIVE_COLUMN),
    MEMCPY_TABLE: (*_OPERATION_COLUMNS, "copyKind", "srcKind", "dstKind"),
    MEMSET_TABLE: _OPERATION_COLUMNS,
    GRAPHS_TABLE: _OPERATION_COLUMNS,
    GRAPH_NODES_TABLE: ("start", "end", "globalTid", "graphNodeId"),
    RUNTIME_TABLE: ("start", "end", "globalTid", "correlationId", "nameId"),
    NVTX_TABLE: ("start", "end", "eventType", "globalTid", "textId"),
    SYNCHRONIZATION_TABLE: ("start", *PLACE_COLUMNS, "correlationId", "eventSyncId", "syncType"),
    CUDA_EVENT_TABLE: (*PLACE_COLUMNS, "correlationId", "eventSyncId"),
    MEMORY_KINDS_TABLE: ("id", "label"),
}
# Columns that are no whole numbers.
TEXT_COLUMNS = {KERNEL_TABLE: (COLLECTIVE_COLUMN,), CUT_MARK_TABLE: ("mark",), MEMORY_KINDS_TABLE: ("label",)}

PUSH_POP_RANGE = 59
UNKNOWN_NODE = 1  # stands for each node of a graph of whose creation nothing is on record
PAGE_BYTES = 4096
# Where the header of a SQLite file counts its changes, twice, and names the SQLite that made it.
CHANGE_COUNTER, VERSION_VALID_FOR, SQLITE_VERSION = slice(24, 28), slice(92, 96), slice(96, 100)
# In their place, so that equal rows are equal bytes whichever SQLite writes them.
FIRST_CHANGE, ANY_VERSION = (1).to_bytes(4), (3_037_000).to_bytes(4)


def build_cut_database(parts: Sequence[tuple[NsysSqlite, CutPart]], mark: str) -> bytes:
    """Return the file of a cut as bytes. Raises TraceError for a damaged export."""
    rows: dict[str, list[Sequence[object]]] = {table: [] for table in CUT_COLUMNS}
    rows[CUT_MARK_TABLE].append((mark,))
    names: dict[str, int] = {}
    for trace, part in parts:
        for table, table_rows in _CutRows(trace, part, names).iterate_tables():
            rows[table] += table_rows
    rows[MEMORY_KINDS_TABLE] = sorted({*map(tuple, rows[MEMORY_KINDS_TABLE])}, key=str)
    database = sqlite3.connect(":memory:", isolation_level=None)
    with contextlib.closing(database):
        database.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        database.execute("BEGIN")
        database.execute(f"CREATE TABLE {STRINGS_TABLE} (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
        database.executemany(
            f"INSERT INTO {STRINGS_TABLE} VALUES (?, ?)", ((number, text) for text, number in names.items())
        )
        for table, table_rows in rows.items():
            if table_rows:  # an export has no table without a row
                texts = TEXT_COLUMNS.get(table, ())
                definitions = (f"{name} {'TEXT' if name in texts else 'INTEGER'}" for name in CUT_COLUMNS[table])
                database.execute(f"CREATE TABLE {table} ({', '.join(definitions)})")
                database.executemany(
                    f"INSERT INTO {table} VALUES ({', '.join('?' * len(CUT_COLUMNS[table]))})", table_rows
                )
        database.execute("COMMIT")
        content = bytearray(database.serialize())
    content[CHANGE_COUNTER], content[VERSION_VALID_FOR], content[SQLITE_VERSION] = (
        FIRST_CHANGE,
        FIRST_CHANGE,
        ANY_VERSION,
    )
    return bytes(content)


class _CutRows:
    """Selects what of one export goes into a cut; ``name_ids`` numbers the texts of all exports."""

    def __init__(self, trace: NsysSqlite, part: CutPart, name_ids: dict[str, int]) -> None:
        self.trace, self.file, self.part, self.name_ids = trace, trace.file, part, name_ids
        self.cut_pids = {pid: part.map_process_id(pid) for pid in part.host_spans}
        self.correlations: dict[int, Column] = {pid: array("q") for pid in self.cut_pids}
        # The creations of graph nodes by process, as start, end and thread, with the number that the cut gives a node.
        self.creations: dict[int, dict[tuple[int, int, int], int]] = {pid: {} for pid in self.cut_pids}

    def iterate_tables(self) -> Iterator[tuple[str, Sequence[Sequence[object]]]]:
        """Yield the rows by table: those of the calls last, as the others say which they are."""
        yield KERNEL_TABLE, [*self._iterate_kernel_rows()]
        copies = [*self._iterate_operation_rows(MEMCPY_TABLE, self._find_called_copies())]
        yield MEMCPY_TABLE, copies
        for table in (MEMSET_TABLE, GRAPHS_TABLE):
            yield table, [*self._iterate_operation_rows(table)]
        if copies and self.file.has_columns(MEMORY_KINDS_TABLE, "id", "label"):
            yield MEMORY_KINDS_TABLE, self.file.fetch_rows(f"SELECT id, label FROM {MEMORY_KINDS_TABLE}")
        waits, records = self._read_waits()
        yield (
            SYNCHRONIZATION_TABLE,
            [
                (wait.start_ns, *self._build_place(wait), wait.correlation, wait.sync_id, STREAM_WAIT_TYPE)
                for wait in waits
            ],
        )
        yield CUDA_EVENT_TABLE, [(*self._build_place(record), record.correlation, record.sync_id) for record in records]
        yield RUNTIME_TABLE, [*self._iterate_launch_rows(), *self._iterate_wait_rows()]
        yield (
            GRAPH_NODES_TABLE,
            [
                (start_ns, end_ns, self.cut_pids[pid] | thread, node)
                for pid, creations in self.creations.items()
                for (start_ns, end_ns, thread), node in creations.items()
            ],
        )
        yield NVTX_TABLE, [*self._iterate_range_rows()]

    def _number_text(self, text: str) -> int:
        return self.name_ids.setdefault(text, len(self.name_ids) + 1)

    def _iterate_kernel_rows(self) -> Iterator[SqlRow]:
        hulls: dict[Lane, Interval | None] = {lane: find_hull(spans) for lane, spans in self.part.gpu_spans.items()}
        for lane, candidates in sorted(self.trace.kernels(hulls).items(), key=lambda item: str(item[0])):
            lane_kernels = select_touching_any(candidates, self.part.gpu_spans[lane])
            self.correlations[lane.global_pid].extend(lane_kernels.correlation)
            text_numbers = {
                name: self._number_text(lane_kernels.names[name])
                for name in sorted({*lane_kernels.name, *lane_kernels.full_name} & lane_kernels.names.keys())
            }
            pid = self.cut_pids[lane.global_pid]
            collectives = (self.trace.collectives({lane: lane_kernels}) or {}).get(lane) or [None] * len(lane_kernels)
            nodes = self._number_nodes(lane, lane_kernels)
            for i, stream in enumerate(map(lane_kernels.streams.__getitem__, lane_kernels.stream)):
                yield (
                    lane_kernels.start_ns[i],
                    lane_kernels.end_ns[i],
                    pid,
                    *stream,
                    lane_kernels.correlation[i] if lane_kernels.correlation[i] != NO_LAUNCH else None,
                    text_numbers[lane_kernels.name[i]],
                    text_numbers.get(lane_kernels.full_name[i]),
                    nodes.get(i, UNKNOWN_NODE) if lane_kernels.graph_node[i] else None,
                    json.dumps(collective) if (collective := collectives[i]) is not None else None,
                )

    def _number_nodes(self, lane: Lane, kernels: Kernels) -> Mapping[int, int]:
        """Return the number of the node of each kernel whose creation is on record, by index."""
        if 1 not in kernels.graph_node:
            return {}
        launches = self.trace.launch_calls({lane: kernels})
        issues = self.trace.issue_calls({lane: kernels}, launches)
        creations = self.creations[lane.global_pid]
        return {
            i: creations.setdefault(issue, UNKNOWN_NODE + 1 + len(creations))
            for i, (issue, launch) in enumerate(
                zip(zip(*issues[lane], strict=True), zip(*launches[lane], strict=True), strict=True)
            )
            if issue != launch
        }

    def _iterate_operation_rows(
        self, table: str, called_ids: Mapping[int, frozenset[int]] | None = None
    ) -> Iterator[SqlRow]:
        """Yield the rows of copies, memsets or graphs that touch a span of their lane, or whose call is in
        ``called_ids``.
        """
        if table not in self.file.tables or not self.part.gpu_spans:
            return
        expressions = [self.file.get_column(table, name) for name in CUT_COLUMNS[table]]
        where = f"globalPid IN ({format_ids(self.cut_pids)})"
        with report_damage(self.file, table):
            for start, end, pid, device, *rest in self.file.scan_rows(", ".join(expressions), table, where):
                check_integers(start, end)
                lanes = (Lane(pid, device), Lane(pid, None))
                spans = chain.from_iterable(self.part.gpu_spans.get(lane, ()) for lane in lanes)
                correlation = rest[2]
                touches_span = any(start <= high and end >= low for low, high in spans)
                if touches_span or (called_ids is not None and correlation in called_ids.get(pid, ())):
                    self.correlations[pid].append(NO_LAUNCH if correlation is None else correlation)
                    yield (start, end, self.cut_pids[pid], device, *rest)

    def _find_called_copies(self) -> Mapping[int, frozenset[int]]:
        """Return the calls in the windows, and as long before them, whose copies say between which memories they
        were.
        """
        if MEMCPY_TABLE not in self.file.tables or RUNTIME_TABLE not in self.file.tables:
            return {}
        spans = {
            pid: (max(low - (high - low), -OPEN_END_NS), high) for pid, (low, high) in self.part.host_spans.items()
        }
        return {pid: frozenset(calls.correlations) for pid, calls in read_started_calls(self.file, spans).items()}

    def _build_place(self, call: EventCall) -> Sequence[int]:
        return self.cut_pids[call.global_pid], call.device, call.context, call.stream

    def _read_waits(self) -> tuple[list[EventCall], list[EventCall]]:
        """Return the waits of streams in the whole run, and the records that they wait for."""
        waits = [wait for wait in read_stream_wait_calls(self.file) if wait.global_pid in self.cut_pids]
        keys = {(wait.global_pid, wait.sync_id) for wait in waits}
        all_records = read_event_calls(self.file, CUDA_EVENT_TABLE) if waits else []
        records = [record for record in all_records if (record.global_pid, record.sync_id) in keys]
        for call in (*waits, *records):
            self.correlations[call.global_pid].append(call.correlation)
        return waits, records

    def _iterate_launch_rows(self) -> Iterator[SqlRow]:
        """Yield the calls that launched what is left, waited for events and recorded them."""
        earliest_by_process = {
            pid: EarliestCalls(process_ids) for pid, process_ids in self.correlations.items() if len(process_ids)
        }
        tables = read_call_tables(self.file, earliest_by_process, CALL_COLUMNS)
        for pid, cut_pid in self.cut_pids.items():
            ids, calls = tables.get(pid, EMPTY_CALL_TABLE)
            for correlation, start, end, thread in zip(ids, *calls, strict=True):
                yield start, end, cut_pid | thread, correlation, None

    def _iterate_wait_rows(self) -> Iterator[SqlRow]:
        """Yield the calls in which the host waited, those too that began before the span and end in it."""
        spans = {pid: (min(0, low), high) for pid, (low, high) in self.part.host_spans.items()}
        for pid, calls in (self.trace.api_calls(self.part.wait_globs, spans) or {}).items():
            for call in calls if pid in self.cut_pids else ():
                if call.end_ns >= self.part.host_spans[pid][0]:
                    yield (
                        call.start_ns,
                        call.end_ns,
                        self.cut_pids[pid] | call.thread,
                        None,
                        self._number_text(call.name),
                    )

    def _iterate_range_rows(self) -> Iterator[SqlRow]:
        """Yield the ranges that touch the span of their process, and those of the run that the mark names.

        NCCL's own are among them where they tell which copies are of a collective.
        """
        spans = self.part.host_spans
        nearby_ranges, named_ranges = self.trace.ranges_around(spans), self.trace.ranges(self.part.range_patterns)
        nccl_ranges = self.trace.ranges(NCCL_CALL_PATTERNS) if self.trace.copies_between_gpus() else {}
        for pid, (low, high) in spans.items():
            outside_ranges = [r for r in named_ranges.get(pid, ()) if not _touches_times(r, low, high)]
            touching_nccl = [
                r for r in nccl_ranges.get(pid, ()) if _touches_times(r, low, high) and not is_not_nccl_range(r.name)
            ]
            listed_ranges = [*chain(nearby_ranges.get(pid, ()), outside_ranges, touching_nccl)]
            for r in sorted([*listed_ranges, *self._list_creation_ranges(pid, {*listed_ranges})]):
                end = None if r.end_ns == OPEN_END_NS else r.end_ns
                yield r.start_ns, end, PUSH_POP_RANGE, self.cut_pids[pid] | r.thread, self._number_text(r.name)

    def _list_creation_ranges(self, pid: int, listed_ranges: Set[Range]) -> list[Range]:
        """List the further ranges in which nodes of graphs were created."""
        moments = sorted(start_ns for start_ns, _, _ in self.creations[pid])
        if not moments:
            return []
        candidates = self.trace.ranges_around({pid: (moments[0], moments[-1])}).get(pid, ())
        return [
            r
            for r in candidates
            if r not in listed_ranges and bisect_left(moments, r.start_ns) < bisect_right(moments, r.end_ns)
        ]


def _touches_times(r: Range, low: int, high: int) -> bool:
    return r.start_ns <= high and r.end_ns >= low
