"""Which rows of an export belong to a cut, and how do they become a SQLite file of the same tables?

Only the tables and columns of ``TABLES`` are written: what an export says of machines, users, command lines and the
environment is in none of them. The calls that launched what is left are there without their names, as nothing asks for
those. Databases of rocprofv3, which have the tables of nsys as views, become the same tables.
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
TEXTS = {KERNEL: (COLLECTIVE,), CUT_TABLE: ("mark",), KINDS_TABLE: ("label",)}
"""Columns that are no whole numbers."""

PUSH_POP_RANGE = 59
PAGE_BYTES = 4096
COUNTER, VALID_FOR, VERSION = slice(24, 28), slice(92, 96), slice(96, 100)
"""Where the header of a SQLite file counts its changes, twice, and names the SQLite that made it."""
FIRST_CHANGE, ANY_VERSION = (1).to_bytes(4), (3_037_000).to_bytes(4)
"""In their place, so that equal rows are equal bytes whichever SQLite writes them."""


def write_tables(parts: Sequence[tuple[NsysSqlite, CutPart]], mark: str) -> bytes:
    """The file of a cut. Raises TraceError for a damaged export."""
    rows: dict[str, list[Sequence[object]]] = {table: [] for table in TABLES}
    rows[CUT_TABLE].append((mark,))
    names: dict[str, int] = {}
    for trace, part in parts:
        for table, some in _Rows(trace, part, names).tables():
            rows[table] += some
    rows[KINDS_TABLE] = sorted({*map(tuple, rows[KINDS_TABLE])}, key=str)
    database = sqlite3.connect(":memory:", isolation_level=None)
    with contextlib.closing(database):
        database.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        database.execute("BEGIN")
        database.execute(f"CREATE TABLE {STRINGS} (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
        database.executemany(f"INSERT INTO {STRINGS} VALUES (?, ?)", ((number, text) for text, number in names.items()))
        for table, some in rows.items():
            if some:  # an export has no table without a row
                texts = TEXTS.get(table, ())
                declared = (f"{name} {'TEXT' if name in texts else 'INTEGER'}" for name in TABLES[table])
                database.execute(f"CREATE TABLE {table} ({', '.join(declared)})")
                database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(TABLES[table]))})", some)
        database.execute("COMMIT")
        content = bytearray(database.serialize())
    content[COUNTER], content[VALID_FOR], content[VERSION] = FIRST_CHANGE, FIRST_CHANGE, ANY_VERSION
    return bytes(content)


class _Rows:
    """What of one export goes into a cut. ``names`` numbers the texts of all."""

    def __init__(self, trace: NsysSqlite, part: CutPart, names: dict[str, int]) -> None:
        self.trace, self.file, self.part, self.names = trace, trace.file, part, names
        self.pids = {pid: part.process_in_cut(pid) for pid in part.on_host}
        self.correlations: dict[int, Column] = {pid: array("q") for pid in self.pids}

    def tables(self) -> Iterator[tuple[str, Sequence[Sequence[object]]]]:
        """The rows by table: those of the calls last, as the others say which they are."""
        yield KERNEL, [*self._kernels()]
        copies = [*self._operations(MEMCPY, self._copies_called())]
        yield MEMCPY, copies
        for table in (MEMSET, GRAPHS):
            yield table, [*self._operations(table)]
        if copies and self.file.has(KINDS_TABLE, "id", "label"):
            yield KINDS_TABLE, self.file.rows(f"SELECT id, label FROM {KINDS_TABLE}")
        waits, records = self._waits()
        yield SYNCHRONIZATION, [(w.start_ns, *self._place(w), w.correlation, w.sync_id, STREAM_WAIT) for w in waits]
        yield CUDA_EVENT, [(*self._place(r), r.correlation, r.sync_id) for r in records]
        yield RUNTIME, [*self._launches(), *self._waiting_calls()]
        yield NVTX, [*self._ranges()]

    def _number(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names) + 1)

    def _kernels(self) -> Iterator[SqlRow]:
        hulls: dict[Lane, Interval | None] = {lane: hull(spans) for lane, spans in self.part.on_gpu.items()}
        for lane, around in sorted(self.trace.kernels(hulls).items(), key=lambda item: str(item[0])):
            own = touching_any(around, self.part.on_gpu[lane])
            self.correlations[lane.global_pid].extend(own.correlation)
            numbers = {
                name: self._number(own.names[name]) for name in sorted({*own.name, *own.full_name} & own.names.keys())
            }
            pid = self.pids[lane.global_pid]
            said = (self.trace.collectives({lane: own}) or {}).get(lane) or [None] * len(own)
            for i, stream in enumerate(map(own.streams.__getitem__, own.stream)):
                yield (
                    own.start_ns[i],
                    own.end_ns[i],
                    pid,
                    *stream,
                    own.correlation[i] if own.correlation[i] != NO_LAUNCH else None,
                    numbers[own.name[i]],
                    numbers.get(own.full_name[i]),
                    1 if own.graph_node[i] else None,
                    json.dumps(collective) if (collective := said[i]) is not None else None,
                )

    def _operations(self, table: str, called: Mapping[int, frozenset[int]] | None = None) -> Iterator[SqlRow]:
        """The rows of copies, memsets or graphs that touch a span of their lane, or were ``called``."""
        if table not in self.file.tables or not self.part.on_gpu:
            return
        row = [self.file.column(table, name) for name in TABLES[table]]
        where = f"globalPid IN ({listed(self.pids)})"
        with damage(self.file, table):
            for start, end, pid, device, *rest in self.file.scan(", ".join(row), table, where):
                check_whole(start, end)
                lanes = (Lane(pid, device), Lane(pid, None))
                spans = chain.from_iterable(self.part.on_gpu.get(lane, ()) for lane in lanes)
                correlation = rest[2]
                wanted = any(start <= high and end >= low for low, high in spans)
                if wanted or (called is not None and correlation in called.get(pid, ())):
                    self.correlations[pid].append(NO_LAUNCH if correlation is None else correlation)
                    yield (start, end, self.pids[pid], device, *rest)

    def _copies_called(self) -> Mapping[int, frozenset[int]]:
        """The calls in the windows, and as long before them, whose copies say between which memories they were."""
        if MEMCPY not in self.file.tables or RUNTIME not in self.file.tables:
            return {}
        spans = {pid: (max(low - (high - low), -OPEN_END_NS), high) for pid, (low, high) in self.part.on_host.items()}
        return {pid: frozenset(calls.ids) for pid, calls in calls_started(self.file, spans).items()}

    def _place(self, call: EventCall) -> Sequence[int]:
        return self.pids[call.global_pid], call.device, call.context, call.stream

    def _waits(self) -> tuple[list[EventCall], list[EventCall]]:
        """The waits of streams in the whole run, and the records that they wait for."""
        waits = [wait for wait in read_wait_calls(self.file) if wait.global_pid in self.pids]
        keys = {(wait.global_pid, wait.sync_id) for wait in waits}
        every = read_event_calls(self.file, CUDA_EVENT) if waits else []
        records = [record for record in every if (record.global_pid, record.sync_id) in keys]
        for call in (*waits, *records):
            self.correlations[call.global_pid].append(call.correlation)
        return waits, records

    def _launches(self) -> Iterator[SqlRow]:
        """The calls that launched what is left, waited for events and recorded them."""
        wanted = {pid: Earliest(own) for pid, own in self.correlations.items() if len(own)}
        known = call_tables(self.file, wanted, CALL)
        for pid, new in self.pids.items():
            ids, calls = known.get(pid, EMPTY)
            for correlation, start, end, thread in zip(ids, *calls, strict=True):
                yield start, end, new | thread, correlation, None

    def _waiting_calls(self) -> Iterator[SqlRow]:
        """The calls in which the host waited, those too that began before the span and end in it."""
        spans = {pid: (min(0, low), high) for pid, (low, high) in self.part.on_host.items()}
        for pid, calls in (self.trace.api_calls(self.part.waiting, spans) or {}).items():
            for call in calls if pid in self.pids else ():
                if call.end_ns >= self.part.on_host[pid][0]:
                    yield call.start_ns, call.end_ns, self.pids[pid] | call.thread, None, self._number(call.name)

    def _ranges(self) -> Iterator[SqlRow]:
        """Ranges that touch the span of their process, and those of the run that the mark speaks of; NCCL's own where
        they tell which copies are of a collective.
        """
        spans = self.part.on_host
        around, named = self.trace.ranges_around(spans), self.trace.ranges(self.part.patterns)
        others = self.trace.ranges(CALLS) if self.trace.copies_between_gpus() else {}
        for pid, (low, high) in spans.items():
            outside = [r for r in named.get(pid, ()) if not _touches(r, low, high)]
            nccl = [r for r in others.get(pid, ()) if _touches(r, low, high) and not not_by_nccl(r.name)]
            for r in sorted(chain(around.get(pid, ()), outside, nccl)):
                end = None if r.end_ns == OPEN_END_NS else r.end_ns
                yield r.start_ns, end, PUSH_POP_RANGE, self.pids[pid] | r.thread, self._number(r.name)


def _touches(r: Range, low: int, high: int) -> bool:
    return r.start_ns <= high and r.end_ns >= low
