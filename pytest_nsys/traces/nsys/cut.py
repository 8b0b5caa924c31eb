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
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from pytest_nsys.core.columns import Column
from pytest_nsys.core.file_names import CUT_TABLE
from pytest_nsys.core.intervals import hull
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS, Interval, Lane, Range
from pytest_nsys.traces.answers import EMPTY, Earliest, not_by_nccl
from pytest_nsys.traces.copies_as_kernels import CALLS
from pytest_nsys.traces.cut import CutPart, touching_any
from pytest_nsys.traces.nsys.calls import (
    CALL,
    STREAM_WAIT,
    EventCall,
    call_tables,
    calls_started,
    read_event_calls,
    read_wait_calls,
)
from pytest_nsys.traces.nsys.collectives import COLLECTIVE
from pytest_nsys.traces.nsys.memory import KINDS_TABLE
from pytest_nsys.traces.nsys.tables import (
    CUDA_EVENT,
    GRAPHS,
    KERNEL,
    MEMCPY,
    MEMSET,
    NVTX,
    PLACE,
    RUNTIME,
    STRINGS,
    SYNCHRONIZATION,
)
from pytest_nsys.traces.sqlite_columns import check_whole, damage
from pytest_nsys.traces.sqlite_conditions import listed
from pytest_nsys.traces.sqlite_file import SqlRow

if TYPE_CHECKING:
    from pytest_nsys.traces.nsys.sqlite import NsysSqlite

_OPERATION = ("start", "end", *PLACE, "correlationId")
TABLES: Mapping[str, Sequence[str]] = {
    CUT_TABLE: ("mark",),
    KERNEL: (*_OPERATION, "shortName", "demangledName", "graphNodeId", COLLECTIVE),
    MEMCPY: (*_OPERATION, "copyKind", "srcKind", "dstKind"),
    MEMSET: _OPERATION,
    GRAPHS: _OPERATION,
    RUNTIME: ("start", "end", "globalTid", "correlationId", "nameId"),
    NVTX: ("start", "end", "eventType", "globalTid", "textId"),
    SYNCHRONIZATION: ("start", *PLACE, "correlationId", "eventSyncId", "syncType"),
    CUDA_EVENT: (*PLACE, "correlationId", "eventSyncId"),
    KINDS_TABLE: ("id", "label"),
}
# Columns that are no whole numbers.
TEXTS = {KERNEL: (COLLECTIVE,), CUT_TABLE: ("mark",), KINDS_TABLE: ("label",)}

PUSH_POP_RANGE = 59
PAGE_BYTES = 4096
# Where the header of a SQLite file counts its changes, twice, and names the SQLite that made it.
COUNTER, VALID_FOR, VERSION = slice(24, 28), slice(92, 96), slice(96, 100)
# In their place, so that equal rows are equal bytes whichever SQLite writes them.
FIRST_CHANGE, ANY_VERSION = (1).to_bytes(4), (3_037_000).to_bytes(4)


def write_tables(parts: Sequence[tuple[NsysSqlite, CutPart]], mark: str) -> bytes:
    """Return the file of a cut as bytes. Raises TraceError for a damaged export."""
    rows: dict[str, list[Sequence[object]]] = {table: [] for table in TABLES}
    rows[CUT_TABLE].append((mark,))
    names: dict[str, int] = {}
    for trace, part in parts:
        for table, table_rows in _Rows(trace, part, names).tables():
            rows[table] += table_rows
    rows[KINDS_TABLE] = sorted({*map(tuple, rows[KINDS_TABLE])}, key=str)
    database = sqlite3.connect(":memory:", isolation_level=None)
    with contextlib.closing(database):
        database.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        database.execute("BEGIN")
        database.execute(f"CREATE TABLE {STRINGS} (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
        database.executemany(f"INSERT INTO {STRINGS} VALUES (?, ?)", ((number, text) for text, number in names.items()))
        for table, table_rows in rows.items():
            if table_rows:  # an export has no table without a row
                texts = TEXTS.get(table, ())
                definitions = (f"{name} {'TEXT' if name in texts else 'INTEGER'}" for name in TABLES[table])
                database.execute(f"CREATE TABLE {table} ({', '.join(definitions)})")
                database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(TABLES[table]))})", table_rows)
        database.execute("COMMIT")
        content = bytearray(database.serialize())
    content[COUNTER], content[VALID_FOR], content[VERSION] = FIRST_CHANGE, FIRST_CHANGE, ANY_VERSION
    return bytes(content)


class _Rows:
    """Selects what of one export goes into a cut; ``name_ids`` numbers the texts of all exports."""

    def __init__(self, trace: NsysSqlite, part: CutPart, names: dict[str, int]) -> None:
        self.trace, self.file, self.part, self.names = trace, trace.file, part, names
        self.pids = {pid: part.process_in_cut(pid) for pid in part.on_host}
        self.correlations: dict[int, Column] = {pid: array("q") for pid in self.pids}

    def tables(self) -> Iterator[tuple[str, Sequence[Sequence[object]]]]:
        """Yield the rows by table: those of the calls last, as the others say which they are."""
        yield KERNEL, [*self._kernels()]
        copies = [*self._operations(MEMCPY, self._copies_called())]
        yield MEMCPY, copies
        for table in (MEMSET, GRAPHS):
            yield table, [*self._operations(table)]
        if copies and self.file.has(KINDS_TABLE, "id", "label"):
            yield KINDS_TABLE, self.file.rows(f"SELECT id, label FROM {KINDS_TABLE}")
        waits, records = self._waits()
        yield (
            SYNCHRONIZATION,
            [(wait.start_ns, *self._place(wait), wait.correlation, wait.sync_id, STREAM_WAIT) for wait in waits],
        )
        yield CUDA_EVENT, [(*self._place(record), record.correlation, record.sync_id) for record in records]
        yield RUNTIME, [*self._launches(), *self._waiting_calls()]
        yield NVTX, [*self._ranges()]

    def _number(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names) + 1)

    def _kernels(self) -> Iterator[SqlRow]:
        hulls: dict[Lane, Interval | None] = {lane: hull(spans) for lane, spans in self.part.on_gpu.items()}
        for lane, candidates in sorted(self.trace.kernels(hulls).items(), key=lambda item: str(item[0])):
            lane_kernels = touching_any(candidates, self.part.on_gpu[lane])
            self.correlations[lane.global_pid].extend(lane_kernels.correlation)
            text_numbers = {
                name: self._number(lane_kernels.names[name])
                for name in sorted({*lane_kernels.name, *lane_kernels.full_name} & lane_kernels.names.keys())
            }
            pid = self.pids[lane.global_pid]
            collectives = (self.trace.collectives({lane: lane_kernels}) or {}).get(lane) or [None] * len(lane_kernels)
            for i, stream in enumerate(map(lane_kernels.streams.__getitem__, lane_kernels.stream)):
                yield (
                    lane_kernels.start_ns[i],
                    lane_kernels.end_ns[i],
                    pid,
                    *stream,
                    lane_kernels.correlation[i] if lane_kernels.correlation[i] != NO_LAUNCH else None,
                    text_numbers[lane_kernels.name[i]],
                    text_numbers.get(lane_kernels.full_name[i]),
                    1 if lane_kernels.graph_node[i] else None,
                    json.dumps(collective) if (collective := collectives[i]) is not None else None,
                )

    def _operations(self, table: str, called: Mapping[int, frozenset[int]] | None = None) -> Iterator[SqlRow]:
        """Yield the rows of copies, memsets or graphs that touch a span of their lane, or whose call is in
        ``called_ids``.
        """
        if table not in self.file.tables or not self.part.on_gpu:
            return
        expressions = [self.file.column(table, name) for name in TABLES[table]]
        where = f"globalPid IN ({listed(self.pids)})"
        with damage(self.file, table):
            for start, end, pid, device, *rest in self.file.scan(", ".join(expressions), table, where):
                check_whole(start, end)
                lanes = (Lane(pid, device), Lane(pid, None))
                spans = chain.from_iterable(self.part.on_gpu.get(lane, ()) for lane in lanes)
                correlation = rest[2]
                touches_span = any(start <= high and end >= low for low, high in spans)
                if touches_span or (called is not None and correlation in called.get(pid, ())):
                    self.correlations[pid].append(NO_LAUNCH if correlation is None else correlation)
                    yield (start, end, self.pids[pid], device, *rest)

    def _copies_called(self) -> Mapping[int, frozenset[int]]:
        """Return the calls in the windows, and as long before them, whose copies say between which memories they
        were.
        """
        if MEMCPY not in self.file.tables or RUNTIME not in self.file.tables:
            return {}
        spans = {pid: (max(low - (high - low), -OPEN_END_NS), high) for pid, (low, high) in self.part.on_host.items()}
        return {pid: frozenset(calls.ids) for pid, calls in calls_started(self.file, spans).items()}

    def _place(self, call: EventCall) -> Sequence[int]:
        return self.pids[call.global_pid], call.device, call.context, call.stream

    def _waits(self) -> tuple[list[EventCall], list[EventCall]]:
        """Return the waits of streams in the whole run, and the records that they wait for."""
        waits = [wait for wait in read_wait_calls(self.file) if wait.global_pid in self.pids]
        keys = {(wait.global_pid, wait.sync_id) for wait in waits}
        all_records = read_event_calls(self.file, CUDA_EVENT) if waits else []
        records = [record for record in all_records if (record.global_pid, record.sync_id) in keys]
        for call in (*waits, *records):
            self.correlations[call.global_pid].append(call.correlation)
        return waits, records

    def _launches(self) -> Iterator[SqlRow]:
        """Yield the calls that launched what is left, waited for events and recorded them."""
        earliest_by_process = {
            pid: Earliest(process_ids) for pid, process_ids in self.correlations.items() if len(process_ids)
        }
        tables = call_tables(self.file, earliest_by_process, CALL)
        for pid, cut_pid in self.pids.items():
            ids, calls = tables.get(pid, EMPTY)
            for correlation, start, end, thread in zip(ids, *calls, strict=True):
                yield start, end, cut_pid | thread, correlation, None

    def _waiting_calls(self) -> Iterator[SqlRow]:
        """Yield the calls in which the host waited, those too that began before the span and end in it."""
        spans = {pid: (min(0, low), high) for pid, (low, high) in self.part.on_host.items()}
        for pid, calls in (self.trace.api_calls(self.part.waiting, spans) or {}).items():
            for call in calls if pid in self.pids else ():
                if call.end_ns >= self.part.on_host[pid][0]:
                    yield call.start_ns, call.end_ns, self.pids[pid] | call.thread, None, self._number(call.name)

    def _ranges(self) -> Iterator[SqlRow]:
        """Yield the ranges that touch the span of their process, and those of the run that the mark names.

        NCCL's own are among them where they tell which copies are of a collective.
        """
        spans = self.part.on_host
        nearby_ranges, named_ranges = self.trace.ranges_around(spans), self.trace.ranges(self.part.patterns)
        nccl_ranges = self.trace.ranges(CALLS) if self.trace.copies_between_gpus() else {}
        for pid, (low, high) in spans.items():
            outside_ranges = [r for r in named_ranges.get(pid, ()) if not _touches(r, low, high)]
            touching_nccl = [r for r in nccl_ranges.get(pid, ()) if _touches(r, low, high) and not not_by_nccl(r.name)]
            for r in sorted(chain(nearby_ranges.get(pid, ()), outside_ranges, touching_nccl)):
                end = None if r.end_ns == OPEN_END_NS else r.end_ns
                yield r.start_ns, end, PUSH_POP_RANGE, self.pids[pid] | r.thread, self._number(r.name)


def _touches(r: Range, low: int, high: int) -> bool:
    return r.start_ns <= high and r.end_ns >= low
