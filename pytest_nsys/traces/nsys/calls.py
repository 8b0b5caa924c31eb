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
from pytest_nsys.core.intervals import find_hull
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import NO_LAUNCH, Api, Interval, Lane, Stream
from pytest_nsys.core.tables import Kernels, LaunchCalls, LaunchPlace, StreamWait, deduplicate_waits
from pytest_nsys.traces.launch_records import LAUNCH_KINDS_BY_GLOB, widen_span
from pytest_nsys.traces.nsys.tables import (
    CUDA_EVENT_TABLE,
    PLACE_COLUMNS,
    RUNTIME_TABLE,
    STRINGS_TABLE,
    SYNCHRONIZATION_TABLE,
    THREAD_BITS,
    build_process_condition,
    build_process_start_condition,
)
from pytest_nsys.traces.other_profilers import LAUNCH_GLOBS
from pytest_nsys.traces.sqlite.columns import (
    InvalidValue,
    check_integers,
    collect_texts,
    has_many_rows,
    is_large_count,
    read_column_blocks,
    report_damage,
)
from pytest_nsys.traces.sqlite.conditions import build_bounds_condition, build_ids_condition, format_ids
from pytest_nsys.traces.sqlite.file import SqliteFile, SqlRow
from pytest_nsys.traces.sqlite.zones import find_starting_rows
from pytest_nsys.traces.trace_queries import EMPTY_CALL_TABLE, ApiCalls, CallTable, EarliestCalls

# Since this version every SQLite knows json_each.
JSON_SINCE_SQLITE = (3, 38)

# So many rows at least show which processes there are.
PROBED_ROWS = 2_000

# A kernel mostly starts no later than so long after its call; a call that is not found there is looked for everywhere.
LEAD_NS = 1_000_000_000

START_COLUMNS = ("globalTid", f"ifnull(correlationId, {NO_LAUNCH})", "start")
CALL_COLUMNS = (*START_COLUMNS, "end")


def read_launch_calls(file: SqliteFile, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
    """Return the call that launched each kernel. Raises InvalidValue for a damaged row."""
    spans = [
        (lane_kernels.start_ns[0] - LEAD_NS, columns.find_min_max(lane_kernels.end_ns)[1])
        for lane_kernels in kernels.values()
        if len(lane_kernels)
    ]
    search_span = find_hull(spans)
    calls_by_process: Mapping[int, ApiCalls] = {}
    has_many_kernels = RUNTIME_TABLE in file.tables and is_large_count(sum(map(len, kernels.values())))
    if has_many_kernels and find_starting_rows(file, RUNTIME_TABLE, search_span) is None:
        with suppress(TraceError):  # what is damaged may be the call of another process
            calls_by_process = _read_all_launching(file)
    calls_by_lane: dict[Lane, LaunchCalls] = {}
    unresolved: dict[int, EarliestCalls] = {}
    for pid, lanes in group_by_key((lane.global_pid, lane) for lane in kernels).items():
        earliest = EarliestCalls(columns.concatenate_columns([kernels[lane].correlation for lane in lanes]))
        if (calls := calls_by_process.get(pid)) is not None:
            _check_call_ends(calls.start_ns, calls.end_ns)
            earliest.add_calls(calls.correlation, calls.start_ns, calls.end_ns, calls.thread)
        if earliest.list_missing():
            unresolved[pid] = earliest
        else:
            table = earliest.build_table()
            calls_by_lane |= {lane: table.find_calls(kernels[lane].correlation) for lane in lanes}
    table_by_process = read_call_tables(file, unresolved, CALL_COLUMNS, search_span)
    other_lanes = (lane for lane in kernels if lane not in calls_by_lane)
    return calls_by_lane | {
        lane: table_by_process.get(lane.global_pid, EMPTY_CALL_TABLE).find_calls(kernels[lane].correlation)
        for lane in other_lanes
    }


def read_call_tables(
    file: SqliteFile,
    earliest_by_process: Mapping[int, EarliestCalls],
    expressions: Sequence[str] = START_COLUMNS,
    search_span: Interval | None = None,
) -> dict[int, CallTable]:
    """Return the earliest call of each requested correlation that has one, by process. Raises InvalidValue.

    A call that starts in ``search_span`` is looked for there alone; the rows of one id stand together.
    """
    nonempty = {pid: earliest for pid, earliest in earliest_by_process.items() if earliest.correlations}
    if RUNTIME_TABLE not in file.tables or not nonempty:
        return {}
    row_id_ranges = None if search_span is None else find_starting_rows(file, RUNTIME_TABLE, search_span)
    for searched_ranges in (row_id_ranges, None) if row_id_ranges is not None else (None,):
        _read_missing(file, nonempty, expressions, searched_ranges)
    return {pid: earliest.build_table() for pid, earliest in nonempty.items()}


def _read_missing(
    file: SqliteFile,
    earliest_by_process: Mapping[int, EarliestCalls],
    expressions: Sequence[str],
    row_id_ranges: Sequence[Interval] | None,
) -> None:
    """Look for the calls that are missing yet, in some ranges of row ids or everywhere."""
    missing_ids = {
        pid: process_ids
        for pid, earliest in sorted(earliest_by_process.items())
        if (process_ids := earliest.list_missing())
    }
    if not missing_ids:
        return
    has_many_ids = row_id_ranges is None and is_large_count(sum(map(len, missing_ids.values())))

    def read_rows() -> Iterable[Sequence[SqlRow]]:
        low, high = (
            min(column[0] for column in missing_ids.values()),
            max(column[-1] for column in missing_ids.values()),
        )
        # A list of very many costs more than the rows that it keeps away.
        conditions_by_process = {
            pid: (build_bounds_condition("correlationId", column[0], column[-1]), ())
            if has_many_ids
            else build_correlation_condition(column)
            for pid, column in missing_ids.items()
        }
        process_condition = build_process_condition(
            "globalTid", {pid: condition for pid, (condition, _) in conditions_by_process.items()}
        )
        where = (
            f"{build_bounds_condition('correlationId', low, high)} AND correlationId IS NOT NULL AND "
            f"{process_condition}"
        )
        lists = [text for _, texts in conditions_by_process.values() for text in texts]
        return file.read_chunks(
            ", ".join(expressions), RUNTIME_TABLE, where, lists, whole_table=has_many_ids, row_id_ranges=row_id_ranges
        )

    read_column_blocks(
        file,
        expressions,
        RUNTIME_TABLE,
        "1",
        lambda blocks: _add_calls(blocks, earliest_by_process),
        whole_table=has_many_ids,
        read_rows=read_rows,
    )


def read_started_calls(file: SqliteFile, spans: Mapping[int, Interval]) -> dict[int, CallTable]:
    """Return the earliest call of each correlation that starts in the span of its process. Raises InvalidValue."""
    where = build_process_start_condition("globalTid", spans)
    row_id_ranges = find_starting_rows(file, RUNTIME_TABLE, find_hull(spans.values()))
    whole_table = row_id_ranges is None and has_many_rows(file, RUNTIME_TABLE, where)
    blocks = read_column_blocks(
        file, START_COLUMNS, RUNTIME_TABLE, where, list[Block], whole_table=whole_table, row_id_ranges=row_id_ranges
    )
    ids_by_process: dict[int, Column] = {}
    for tid, correlation, _ in blocks:
        for thread, rows in _group_by_thread(tid):
            ids_by_process.setdefault(thread & ~THREAD_BITS, array("q")).extend(columns.take(correlation, rows))
    earliest_by_process = {pid: EarliestCalls(process_ids) for pid, process_ids in ids_by_process.items()}
    _add_calls(blocks, earliest_by_process)
    return {pid: earliest.build_table() for pid, earliest in earliest_by_process.items()}


def count_launches(file: SqliteFile) -> int:
    """Return how many calls launched a kernel, or a graph of them: several rows of a correlation are one call."""
    if RUNTIME_TABLE not in file.tables or STRINGS_TABLE not in file.tables:
        return 0
    name_condition = " OR ".join(f"value GLOB '{glob}'" for glob in LAUNCH_GLOBS)
    names = f"SELECT id FROM {STRINGS_TABLE} WHERE {name_condition}"
    distinct_calls = (
        f"SELECT DISTINCT globalTid & {~THREAD_BITS}, correlationId FROM {RUNTIME_TABLE} WHERE nameId IN ({names})"
    )
    with report_damage(file, RUNTIME_TABLE):
        return int(file.fetch_rows(f"SELECT count(*) FROM ({distinct_calls})")[0][0])


LaunchingCalls = tuple[Mapping[int, str], Mapping[int, ApiCalls]]
"""The names of the calls that launch work, by id, and those of them that did not fail, by process."""

# Of a whole run kernels look for their calls first, and then calls for their work: one pass reads them for both.
_SHARED_LAUNCHING: WeakKeyDictionary[SqliteFile, LaunchingCalls] = WeakKeyDictionary()


def read_launching_calls(file: SqliteFile, spans: Mapping[int, Interval | None]) -> LaunchingCalls:
    """Return the calls that launch work and start in the span of their process, or near it; of a process without a span
    all.

    Raises TraceError for a damaged row.
    """
    if None in spans.values():
        return _SHARED_LAUNCHING.pop(file, None) or _read_launching_calls(file, {})
    return _read_launching_calls(file, {**dict.fromkeys(_sample_processes(file)), **spans})


def _read_all_launching(file: SqliteFile) -> Mapping[int, ApiCalls]:
    if file not in _SHARED_LAUNCHING:
        _SHARED_LAUNCHING[file] = _read_launching_calls(file, {})
    return _SHARED_LAUNCHING[file][1]


def _read_launching_calls(file: SqliteFile, spans: Mapping[int, Interval | None]) -> LaunchingCalls:
    with report_damage(file, STRINGS_TABLE):
        matches = " OR ".join("value GLOB ?" for _ in LAUNCH_KINDS_BY_GLOB)
        names_by_id = collect_texts(
            file.fetch_rows(f"SELECT id, value FROM {STRINGS_TABLE} WHERE {matches}", [*LAUNCH_KINDS_BY_GLOB])
        )
    if not names_by_id:
        return names_by_id, {}
    where = (
        f"{build_ids_condition('nameId', names_by_id)} AND ifnull({file.get_column(RUNTIME_TABLE, 'returnValue')}, 0) "
        "= 0"
    )
    row_id_ranges = None
    if spans:
        widened_spans = {pid: widen_span(span) for pid, span in spans.items()}
        known_spans = [span for span in widened_spans.values() if span is not None]
        if len(known_spans) == len(widened_spans):
            row_id_ranges, where = (
                find_starting_rows(file, RUNTIME_TABLE, find_hull(known_spans)),
                f"{build_bounds_condition('start', *find_hull(known_spans))} AND {where}",
            )
        process_conditions = {
            pid: "1" if span is None else build_bounds_condition("start", *span) for pid, span in widened_spans.items()
        }
        where += f" AND {build_process_condition('globalTid', process_conditions)}"
    expressions = ("globalTid", f"ifnull(correlationId, {NO_LAUNCH})", "start", "end", "nameId")
    whole_table = not spans or None in spans.values()
    with report_damage(file, RUNTIME_TABLE):
        calls = read_column_blocks(
            file,
            expressions,
            RUNTIME_TABLE,
            where,
            lambda blocks: _group_calls(blocks, names_by_id),
            whole_table=whole_table,
            row_id_ranges=row_id_ranges,
        )
    return names_by_id, {pid: _chain_calls(calls.pop(pid)) for pid in [*calls]}


def _group_calls(blocks: Iterable[Block], names_by_id: Mapping[int, str]) -> dict[int, list[ApiCalls]]:
    """Return the calls of each process as they are read: of a whole run they are never held twice."""
    names, ids = [*names_by_id.values()], array("q", names_by_id)
    order = columns.sort_indices(ids)
    ids, order = columns.take(ids, order), columns.narrow_column(order)
    calls: dict[int, list[ApiCalls]] = {}
    for tid, correlation, start, end, name in blocks:
        threads, keys = columns.find_distinct_rows(tid)
        thread = columns.take(array("i", [key & THREAD_BITS for (key,) in keys]), threads)
        block_calls = ApiCalls(start, end, thread, columns.look_up_keys(ids, order, 0, name), correlation, names)
        for pid, rows in columns.group_indices_by(lambda serial_thread: serial_thread & ~THREAD_BITS, tid).items():
            calls.setdefault(pid, []).append(block_calls if len(rows) == len(start) else block_calls.take(rows))
    return calls


def _chain_calls(parts: Sequence[ApiCalls]) -> ApiCalls:
    start, end, thread, name, correlation = (
        columns.concatenate_columns(column_parts) for column_parts in zip(*(part[:5] for part in parts), strict=True)
    )
    return ApiCalls(start, end, thread, name, correlation, parts[0].names)


def _sample_processes(file: SqliteFile) -> set[int]:
    """Return the processes that call, but for one with hardly a call: of a large table sampled rows show it."""
    row_id, last = file.find_row_id_name(RUNTIME_TABLE), file.estimate_row_count(RUNTIME_TABLE)
    rows = range(1, last + 1, max(1, last // PROBED_ROWS))
    where = f"{row_id} IN ({format_ids(rows)})" if row_id else "1"
    with report_damage(file, RUNTIME_TABLE):
        sampled_rows = file.fetch_rows(f"SELECT DISTINCT globalTid FROM {RUNTIME_TABLE} WHERE {where}")
    return {tid & ~THREAD_BITS for (tid,) in sampled_rows if type(tid) is int}


def read_api_calls(
    file: SqliteFile, name_globs: Sequence[str], spans: Mapping[int, Interval]
) -> dict[int, list[Api]] | None:
    """Return the calls whose name matches a glob and that start in the span, one per correlation id, by process.

    None where the file has no call. Raises TypeError for a damaged row.
    """
    if RUNTIME_TABLE not in file.tables:
        return None
    matches = " OR ".join("value GLOB ?" for _ in name_globs)
    with report_damage(file, STRINGS_TABLE):
        names = collect_texts(file.fetch_rows(f"SELECT id, value FROM {STRINGS_TABLE} WHERE {matches}", name_globs))
    if not names:
        return {}
    where = build_process_start_condition("globalTid", spans, extra_condition=build_ids_condition("nameId", names))
    calls: dict[int, dict[object, Api]] = defaultdict(dict)
    row, row_id_ranges = (
        "start, end, globalTid, correlationId, nameId",
        find_starting_rows(file, RUNTIME_TABLE, find_hull(spans.values())),
    )
    for start, end, tid, correlation, name in file.scan_rows(row, RUNTIME_TABLE, where, row_id_ranges=row_id_ranges):
        check_integers(start, end, tid, name)
        process_calls = calls[tid & ~THREAD_BITS]
        key = (tid, start) if correlation is None else correlation
        if key not in process_calls or start < process_calls[key].start_ns:
            process_calls[key] = Api(start, names[name], end, tid & THREAD_BITS)
    return {
        pid: sorted(process_calls.values(), key=lambda call: (call.start_ns, call.name))
        for pid, process_calls in calls.items()
    }


def _add_calls(blocks: Iterable[Block], earliest_by_process: Mapping[int, EarliestCalls]) -> None:
    """Add blocks of ``CALL_COLUMNS`` or ``START_COLUMNS`` to the earliest calls of each process."""
    for tid, correlation, start, *end in blocks:
        if end:
            _check_call_ends(start, *end)
        for thread, rows in _group_by_thread(tid):
            if (earliest := earliest_by_process.get(thread & ~THREAD_BITS)) is not None:
                call = [columns.take(column, rows) for column in (start, *end)]
                thread_column = [array("q", [thread & THREAD_BITS]) * len(rows)] if end else []
                earliest.add_calls(columns.take(correlation, rows), *call, *thread_column)


def _check_call_ends(starts: Column, ends: Column) -> None:
    if columns.is_exceeded(starts, ends):
        raise InvalidValue("a call ends before it starts")


def _group_by_thread(tid: Column) -> Iterator[tuple[int, Column]]:
    numbers, keys = columns.find_distinct_rows(tid)
    for (thread,), rows in zip(keys, columns.group_indices(numbers, len(keys)), strict=True):
        yield thread, rows


def build_correlation_condition(ids: Column) -> tuple[str, Sequence[str]]:
    """Return SQL that lets through at least the rows of these ascending ids, with the values of its placeholders."""
    # The list is added where it says more than the bounds; at any length it is one text of JSON.
    bounds_condition = build_bounds_condition("correlationId", ids[0], ids[-1])
    if ids[-1] - ids[0] <= 2 * len(ids) or sqlite3.sqlite_version_info < JSON_SINCE_SQLITE:
        return bounds_condition, []
    list_condition = "(correlationId IN (SELECT value FROM json_each(?)) OR typeof(correlationId) <> 'integer')"
    return f"{bounds_condition} AND {list_condition}", [f"[{format_ids(ids)}]"]


SYNC_TYPES_TABLE = "ENUM_CUPTI_SYNC_TYPE"
# The type of a stream-wait as CUPTI numbers it, for versions that export no table of types.
STREAM_WAIT_TYPE = 2

# These stand for no event, as everything outside of them does.
SYNC_ID_LIMITS = (0, 0xFFFFFFFF)


class EventCall(NamedTuple):
    """Describes a wait for an event or the record of one: a row of its table."""

    start_ns: int  # 0 where the row has none, as a record
    global_pid: int
    device: int
    context: int
    stream: int
    correlation: int
    sync_id: int


def read_stream_waits(
    file: SqliteFile,
    list_kernel_places: Callable[[], Iterable[tuple[int, int, int]]],
    report_damage: Callable[[str], AbstractContextManager[None]],
) -> Mapping[int, Sequence[StreamWait]] | None:
    """Return every stream-wait by process, in the order of its place; None where there is no row of one.

    ``list_kernel_places`` finds the (process, device, context) of all kernels; ``report_damage`` names the table of
    what is raised.
    """
    with report_damage(SYNCHRONIZATION_TABLE):
        waits = read_stream_wait_calls(file)
    if not waits:
        return None
    with report_damage(CUDA_EVENT_TABLE):
        record_by_key = _index_records(read_event_calls(file, CUDA_EVENT_TABLE))
    keys = {(wait.global_pid, wait.sync_id) for wait in waits}
    records = {key: record for key in keys if (record := record_by_key.get(key)) is not None}
    ids_by_process = group_by_key((call.global_pid, call.correlation) for call in (*waits, *records.values()))
    with report_damage(RUNTIME_TABLE):
        calls = read_call_tables(
            file, {pid: EarliestCalls(array("q", process_ids)) for pid, process_ids in ids_by_process.items()}
        )
    starts = {pid: calls.get(pid, EMPTY_CALL_TABLE).build_start_map() for pid in ids_by_process}
    devices: dict[tuple[int, int], set[int]] = defaultdict(set)
    for pid, device, context in list_kernel_places():
        devices[pid, context].add(device)

    @cache
    def resolve_stream(global_pid: int, device: int, context: int, number: int) -> Stream:
        # deviceId of a wait is 0 in real exports whatever the device is: the kernels of its context say it.
        context_devices = devices.get((global_pid, context), {device})
        return Stream(device if device in context_devices else min(context_devices), context, number)

    def find_stream(call: EventCall) -> Stream:
        return resolve_stream(call.global_pid, call.device, call.context, call.stream)

    waits_by_process: dict[int, list[StreamWait]] = defaultdict(list)
    for wait in waits:
        call_starts = starts[wait.global_pid]
        place = LaunchPlace(call_starts.get(wait.correlation, wait.start_ns), wait.correlation)
        record = records.get((wait.global_pid, wait.sync_id))
        if record is None or record.correlation not in call_starts:
            waits_by_process[wait.global_pid].append(StreamWait(find_stream(wait), place))
        else:
            recorded_at = LaunchPlace(call_starts[record.correlation], record.correlation)
            waits_by_process[wait.global_pid].append(
                StreamWait(find_stream(wait), place, find_stream(record), recorded_at)
            )
    return {pid: deduplicate_waits(process_waits) for pid, process_waits in waits_by_process.items()}


def read_stream_wait_calls(file: SqliteFile) -> list[EventCall]:
    """Return the waits of streams for events; none where the version does not tell them from other synchronisations."""
    if not file.has_columns(SYNCHRONIZATION_TABLE, "syncType"):
        return []
    types = [STREAM_WAIT_TYPE]
    if file.has_columns(SYNC_TYPES_TABLE, "id", "name"):
        rows = file.fetch_rows(f"SELECT id FROM {SYNC_TYPES_TABLE} WHERE name GLOB '*_STREAM_WAIT_EVENT'")
        types = [number for (number,) in rows if type(number) is int] or types
    return read_event_calls(
        file, SYNCHRONIZATION_TABLE, "syncType", f"({build_ids_condition('syncType', types)} OR syncType IS NULL)"
    )


def read_event_calls(file: SqliteFile, table: str, kind: str = "0", where: str = "1") -> list[EventCall]:
    """Return the rows of a table that pass; none where the version does not say where they are.

    Raises TypeError for a value that is not a whole number, one of ``kind`` included.
    """
    if not file.has_columns(table, *PLACE_COLUMNS):
        return []
    default_by_column = {"start": 0, "correlationId": NO_LAUNCH, "eventSyncId": 0}
    start, *ids = (f"ifnull({file.get_column(table, name)}, {default})" for name, default in default_by_column.items())
    expressions = (start, *PLACE_COLUMNS, *ids, kind)
    return read_column_blocks(
        file,
        expressions,
        table,
        where,
        lambda blocks: [EventCall(*values[:-1]) for block in blocks for values in zip(*block, strict=True)],
        whole_table=has_many_rows(file, table, where),
    )


def _index_records(rows: Iterable[EventCall]) -> dict[tuple[int, int], EventCall | None]:
    """Return the record of each (process, sync id); None where there are two of which any could be meant."""
    records: dict[tuple[int, int], EventCall | None] = {}
    for row in rows:
        if SYNC_ID_LIMITS[0] < row.sync_id < SYNC_ID_LIMITS[1]:
            key = row.global_pid, row.sync_id
            records[key] = row if records.get(key, row) == row else None
    return records
