"""Which call of an export launched an operation of a GPU, and which stream waits for an event that another recorded?

Several launch rows of an id exist (event class 67 repeats rows): the earliest counts, and kernels never multiply.

A wait and its record share the process and ``eventSyncId``; ``eventId`` is used again and never joins. Both stand where
their calls do: the times of their own rows may be 0. In real exports ``deviceId`` of a wait is 0 whatever the device
is, so the kernels of its context say it.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Block, Column
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.intervals import hull
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import NO_LAUNCH, Api, Interval, Lane, Stream
from pytest_nsys.core.tables import Kernels, LaunchCalls, Place, StreamWait, each_once
from pytest_nsys.traces.answers import EMPTY, ApiCalls, CallTable, Earliest
from pytest_nsys.traces.launch_records import KINDS, around
from pytest_nsys.traces.nsys.tables import (
    CUDA_EVENT,
    PLACE,
    RUNTIME,
    STRINGS,
    SYNCHRONIZATION,
    THREAD_BITS,
    by_process,
    starting,
)
from pytest_nsys.traces.other_profilers import LAUNCHES
from pytest_nsys.traces.sqlite_columns import (
    OddValue,
    are_many,
    check_whole,
    damage,
    has_many,
    read_blocks,
    texts_of,
)
from pytest_nsys.traces.sqlite_conditions import listed, one_of, within
from pytest_nsys.traces.sqlite_file import SqliteFile, SqlRow
from pytest_nsys.traces.sqlite_zones import find_starting

JSON_IN_SQLITE = (3, 38)
"""Since this version every SQLite knows json_each."""

PROBES = 2_000
"""So many rows at least show which processes there are."""

LEAD_NS = 1_000_000_000
"""A kernel mostly starts no later than so long after its call."""

START = ("globalTid", f"ifnull(correlationId, {NO_LAUNCH})", "start")
CALL = (*START, "end")


def launch_calls(file: SqliteFile, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
    """The call that launched each kernel. Raises OddValue."""
    spans = [(some.start_ns[0] - LEAD_NS, columns.bounds(some.end_ns)[1]) for some in kernels.values() if len(some)]
    near = hull(spans)
    launching: Mapping[int, ApiCalls] = {}
    many = RUNTIME in file.tables and are_many(sum(map(len, kernels.values())))
    if many and find_starting(file, RUNTIME, near) is None:
        with suppress(TraceError):  # what is damaged may be the call of another process
            launching = _all_launching(file)
    found: dict[Lane, LaunchCalls] = {}
    left: dict[int, Earliest] = {}
    for pid, lanes in grouped((lane.global_pid, lane) for lane in kernels).items():
        wanted = Earliest(columns.chained([kernels[lane].correlation for lane in lanes]))
        if (calls := launching.get(pid)) is not None:
            _check_ends(calls.start_ns, calls.end_ns)
            wanted.see(calls.correlation, calls.start_ns, calls.end_ns, calls.thread)
        if wanted.missing():
            left[pid] = wanted
        else:
            table = wanted.table()
            found |= {lane: table.of(kernels[lane].correlation) for lane in lanes}
    known = call_tables(file, left, CALL, near)
    others = (lane for lane in kernels if lane not in found)
    return found | {lane: known.get(lane.global_pid, EMPTY).of(kernels[lane].correlation) for lane in others}


def call_tables(
    file: SqliteFile, some: Mapping[int, Earliest], row: Sequence[str] = START, near: Interval | None = None
) -> dict[int, CallTable]:
    """The earliest call of each wanted correlation that has one, by process. Raises OddValue.

    A call that starts in the span ``near`` is looked for there alone; the rows of one id stand together.
    """
    wanted = {pid: own for pid, own in some.items() if own.ids}
    if RUNTIME not in file.tables or not wanted:
        return {}
    stretches = None if near is None else find_starting(file, RUNTIME, near)
    for where in (stretches, None) if stretches is not None else (None,):
        _read_missing(file, wanted, row, where)
    return {pid: own.table() for pid, own in wanted.items()}


def _read_missing(
    file: SqliteFile, wanted: Mapping[int, Earliest], row: Sequence[str], stretches: Sequence[Interval] | None
) -> None:
    """Look for the calls that are missing yet, in some stretches of row ids or everywhere."""
    ids = {pid: own for pid, some in sorted(wanted.items()) if (own := some.missing())}
    if not ids:
        return
    many = stretches is None and are_many(sum(map(len, ids.values())))

    def rows() -> Iterable[Sequence[SqlRow]]:
        low, high = min(own[0] for own in ids.values()), max(own[-1] for own in ids.values())
        # A list of very many costs more than the rows that it keeps away.
        each = {
            pid: (within("correlationId", own[0], own[-1]), ()) if many else among_ids(own) for pid, own in ids.items()
        }
        own = by_process("globalTid", {pid: condition for pid, (condition, _) in each.items()})
        where = f"{within('correlationId', low, high)} AND correlationId IS NOT NULL AND {own}"
        lists = [text for _, texts in each.values() for text in texts]
        return file.parts(", ".join(row), RUNTIME, where, lists, whole=many, stretches=stretches)

    read_blocks(file, row, RUNTIME, "1", lambda found: _see(found, wanted), whole=many, rows=rows)


def calls_started(file: SqliteFile, spans: Mapping[int, Interval]) -> dict[int, CallTable]:
    """The earliest call of each correlation that starts in the span of its process. Raises OddValue."""
    where = starting("globalTid", spans)
    stretches = find_starting(file, RUNTIME, hull(spans.values()))
    whole = stretches is None and has_many(file, RUNTIME, where)
    found = read_blocks(file, START, RUNTIME, where, list[Block], whole=whole, stretches=stretches)
    started: dict[int, Column] = {}
    for tid, correlation, _ in found:
        for thread, rows in _by_thread(tid):
            started.setdefault(thread & ~THREAD_BITS, array("q")).extend(columns.take(correlation, rows))
    wanted = {pid: Earliest(own) for pid, own in started.items()}
    _see(found, wanted)
    return {pid: own.table() for pid, own in wanted.items()}


def count_launches(file: SqliteFile) -> int:
    """Return how many calls launched a kernel, or a graph of them: several rows of a correlation are one call."""
    if RUNTIME not in file.tables or STRINGS not in file.tables:
        return 0
    launching = " OR ".join(f"value GLOB '{glob}'" for glob in LAUNCHES)
    names = f"SELECT id FROM {STRINGS} WHERE {launching}"
    each = f"SELECT DISTINCT globalTid & {~THREAD_BITS}, correlationId FROM {RUNTIME} WHERE nameId IN ({names})"
    with damage(file, RUNTIME):
        return int(file.rows(f"SELECT count(*) FROM ({each})")[0][0])


Launching = tuple[Mapping[int, str], Mapping[int, ApiCalls]]
"""The names of the calls that launch work, by id, and those of them that did not fail, by process."""

_UNTIL_RECORDS: WeakKeyDictionary[SqliteFile, Launching] = WeakKeyDictionary()
"""Of a whole run kernels look for their calls first, and then calls for their work: one pass reads them for both."""


def read_launching(file: SqliteFile, spans: Mapping[int, Interval | None]) -> Launching:
    """The calls that launch work and start in the span of their process, or near it; of a process without a span all.
    Raises TraceError for a damaged row.
    """
    if None in spans.values():
        return _UNTIL_RECORDS.pop(file, None) or _read_launching(file, {})
    return _read_launching(file, {**dict.fromkeys(_processes(file)), **spans})


def _all_launching(file: SqliteFile) -> Mapping[int, ApiCalls]:
    if file not in _UNTIL_RECORDS:
        _UNTIL_RECORDS[file] = _read_launching(file, {})
    return _UNTIL_RECORDS[file][1]


def _read_launching(file: SqliteFile, spans: Mapping[int, Interval | None]) -> Launching:
    with damage(file, STRINGS):
        matches = " OR ".join("value GLOB ?" for _ in KINDS)
        known = texts_of(file.rows(f"SELECT id, value FROM {STRINGS} WHERE {matches}", [*KINDS]))
    if not known:
        return known, {}
    where = f"{one_of('nameId', known)} AND ifnull({file.column(RUNTIME, 'returnValue')}, 0) = 0"
    stretches = None
    if spans:
        bounded = {pid: around(span) for pid, span in spans.items()}
        each = [span for span in bounded.values() if span is not None]
        if len(each) == len(bounded):
            stretches, where = find_starting(file, RUNTIME, hull(each)), f"{within('start', *hull(each))} AND {where}"
        own = {pid: "1" if span is None else within("start", *span) for pid, span in bounded.items()}
        where += f" AND {by_process('globalTid', own)}"
    row = ("globalTid", f"ifnull(correlationId, {NO_LAUNCH})", "start", "end", "nameId")
    whole = not spans or None in spans.values()
    with damage(file, RUNTIME):
        calls = read_blocks(
            file, row, RUNTIME, where, lambda found: _by_process(found, known), whole=whole, stretches=stretches
        )
    return known, {pid: _chained(calls.pop(pid)) for pid in [*calls]}


def _by_process(found: Iterable[Block], known: Mapping[int, str]) -> dict[int, list[ApiCalls]]:
    """The calls of each process as they are read: of a whole run they are never held twice."""
    names, ids = [*known.values()], array("q", known)
    order = columns.order(ids)
    ids, order = columns.take(ids, order), columns.narrowed(order)
    calls: dict[int, list[ApiCalls]] = {}
    for tid, correlation, start, end, name in found:
        threads, keys = columns.distinct(tid)
        thread = columns.take(array("i", [key & THREAD_BITS for (key,) in keys]), threads)
        some = ApiCalls(start, end, thread, columns.joined(ids, order, 0, name), correlation, names)
        for pid, rows in columns.members_by(lambda each: each & ~THREAD_BITS, tid).items():
            calls.setdefault(pid, []).append(some if len(rows) == len(start) else some.take(rows))
    return calls


def _chained(parts: Sequence[ApiCalls]) -> ApiCalls:
    start, end, thread, name, correlation = (
        columns.chained(each) for each in zip(*(part[:5] for part in parts), strict=True)
    )
    return ApiCalls(start, end, thread, name, correlation, parts[0].names)


def _processes(file: SqliteFile) -> set[int]:
    """The processes that call, but for one with hardly a call: of a large table some rows say it, from end to end."""
    row_id, last = file.row_id(RUNTIME), file.about(RUNTIME)
    rows = range(1, last + 1, max(1, last // PROBES))
    where = f"{row_id} IN ({listed(rows)})" if row_id else "1"
    with damage(file, RUNTIME):
        found = file.rows(f"SELECT DISTINCT globalTid FROM {RUNTIME} WHERE {where}")
    return {tid & ~THREAD_BITS for (tid,) in found if type(tid) is int}


def read_api_calls(
    file: SqliteFile, name_globs: Sequence[str], spans: Mapping[int, Interval]
) -> dict[int, list[Api]] | None:
    """The calls whose name matches a glob and that start in the span, one per correlation id, by process; None where
    the file has no call. Raises TypeError for a damaged row.
    """
    if RUNTIME not in file.tables:
        return None
    matches = " OR ".join("value GLOB ?" for _ in name_globs)
    with damage(file, STRINGS):
        names = texts_of(file.rows(f"SELECT id, value FROM {STRINGS} WHERE {matches}", name_globs))
    if not names:
        return {}
    where = starting("globalTid", spans, also=one_of("nameId", names))
    calls: dict[int, dict[object, Api]] = defaultdict(dict)
    row, stretches = "start, end, globalTid, correlationId, nameId", find_starting(file, RUNTIME, hull(spans.values()))
    for start, end, tid, correlation, name in file.scan(row, RUNTIME, where, stretches=stretches):
        check_whole(start, end, tid, name)
        own = calls[tid & ~THREAD_BITS]
        key = (tid, start) if correlation is None else correlation
        if key not in own or start < own[key].start_ns:
            own[key] = Api(start, names[name], end, tid & THREAD_BITS)
    return {pid: sorted(own.values(), key=lambda a: (a.start_ns, a.name)) for pid, own in calls.items()}


def _see(found: Iterable[Block], wanted: Mapping[int, Earliest]) -> None:
    """Look for what is wanted of each process in blocks of ``CALL`` or ``START``."""
    for tid, correlation, start, *end in found:
        if end:
            _check_ends(start, *end)
        for thread, rows in _by_thread(tid):
            if (own := wanted.get(thread & ~THREAD_BITS)) is not None:
                call = [columns.take(column, rows) for column in (start, *end)]
                numbers = [array("q", [thread & THREAD_BITS]) * len(rows)] if end else []
                own.see(columns.take(correlation, rows), *call, *numbers)


def _check_ends(starts: Column, ends: Column) -> None:
    if columns.exceeds(starts, ends):
        raise OddValue("a call ends before it starts")


def _by_thread(tid: Column) -> Iterator[tuple[int, Column]]:
    numbers, keys = columns.distinct(tid)
    for (thread,), rows in zip(keys, columns.members(numbers, len(keys)), strict=True):
        yield thread, rows


def among_ids(ids: Column) -> tuple[str, Sequence[str]]:
    """SQL that lets through at least the rows of these ascending ids, and what its placeholders stand for: the bounds,
    and the list where it says more, which at any length is one text of JSON.
    """
    between = within("correlationId", ids[0], ids[-1])
    if ids[-1] - ids[0] <= 2 * len(ids) or sqlite3.sqlite_version_info < JSON_IN_SQLITE:
        return between, []
    known = "(correlationId IN (SELECT value FROM json_each(?)) OR typeof(correlationId) <> 'integer')"
    return f"{between} AND {known}", [f"[{listed(ids)}]"]


SYNC_TYPES = "ENUM_CUPTI_SYNC_TYPE"
STREAM_WAIT = 2
"""The type of a stream-wait as CUPTI numbers it, for versions that export no table of types."""

NO_SYNC_IDS = (0, 0xFFFFFFFF)
"""What stands for no event, as everything outside of these does."""


class EventCall(NamedTuple):
    """A wait or a record: a row of its table. ``start_ns`` is 0 where the row has none, as a record."""

    start_ns: int
    global_pid: int
    device: int
    context: int
    stream: int
    correlation: int
    sync_id: int


def read_waits(
    file: SqliteFile,
    kernel_places: Callable[[], Iterable[tuple[int, int, int]]],
    damage: Callable[[str], AbstractContextManager[None]],
) -> Mapping[int, Sequence[StreamWait]] | None:
    """Every stream-wait by process, in the order of its place; None where there is no row of one.

    ``kernel_places`` looks for the (process, device, context) of all kernels; ``damage`` names the table of what is
    raised.
    """
    with damage(SYNCHRONIZATION):
        waits = read_wait_calls(file)
    if not waits:
        return None
    with damage(CUDA_EVENT):
        known = _records(read_event_calls(file, CUDA_EVENT))
    keys = {(wait.global_pid, wait.sync_id) for wait in waits}
    records = {key: record for key in keys if (record := known.get(key)) is not None}
    wanted = grouped((call.global_pid, call.correlation) for call in (*waits, *records.values()))
    with damage(RUNTIME):
        calls = call_tables(file, {pid: Earliest(array("q", own)) for pid, own in wanted.items()})
    starts = {pid: calls.get(pid, EMPTY).starts() for pid in wanted}
    devices: dict[tuple[int, int], set[int]] = defaultdict(set)
    for pid, device, context in kernel_places():
        devices[pid, context].add(device)

    @cache
    def stream_of(global_pid: int, device: int, context: int, number: int) -> Stream:
        known = devices.get((global_pid, context), {device})
        return Stream(device if device in known else min(known), context, number)

    def stream(call: EventCall) -> Stream:
        return stream_of(call.global_pid, call.device, call.context, call.stream)

    found: dict[int, list[StreamWait]] = defaultdict(list)
    for wait in waits:
        called = starts[wait.global_pid]
        at = Place(called.get(wait.correlation, wait.start_ns), wait.correlation)
        record = records.get((wait.global_pid, wait.sync_id))
        if record is None or record.correlation not in called:
            found[wait.global_pid].append(StreamWait(stream(wait), at))
        else:
            recorded_at = Place(called[record.correlation], record.correlation)
            found[wait.global_pid].append(StreamWait(stream(wait), at, stream(record), recorded_at))
    return {pid: each_once(own) for pid, own in found.items()}


def read_wait_calls(file: SqliteFile) -> list[EventCall]:
    if not file.has(SYNCHRONIZATION, "syncType"):
        return []
    types = [STREAM_WAIT]
    if file.has(SYNC_TYPES, "id", "name"):
        named = file.rows(f"SELECT id FROM {SYNC_TYPES} WHERE name GLOB '*_STREAM_WAIT_EVENT'")
        types = [number for (number,) in named if type(number) is int] or types
    return read_event_calls(file, SYNCHRONIZATION, "syncType", f"({one_of('syncType', types)} OR syncType IS NULL)")


def read_event_calls(file: SqliteFile, table: str, kind: str = "0", where: str = "1") -> list[EventCall]:
    """The rows of a table that pass; none where the version does not say where they are.

    Raises TypeError for a value that is not a whole number, one of ``kind`` included.
    """
    if not file.has(table, *PLACE):
        return []
    may_lack = {"start": 0, "correlationId": NO_LAUNCH, "eventSyncId": 0}
    start, *ids = (f"ifnull({file.column(table, name)}, {fill})" for name, fill in may_lack.items())
    row = (start, *PLACE, *ids, kind)
    return read_blocks(
        file,
        row,
        table,
        where,
        lambda found: [EventCall(*each[:-1]) for part in found for each in zip(*part, strict=True)],
        whole=has_many(file, table, where),
    )


def _records(rows: Iterable[EventCall]) -> dict[tuple[int, int], EventCall | None]:
    """The record of each (process, sync id); None where there are two of which any could be meant."""
    found: dict[tuple[int, int], EventCall | None] = {}
    for row in rows:
        if NO_SYNC_IDS[0] < row.sync_id < NO_SYNC_IDS[1]:
            key = row.global_pid, row.sync_id
            found[key] = row if found.get(key, row) == row else None
    return found
