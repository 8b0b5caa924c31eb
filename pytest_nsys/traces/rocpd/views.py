"""Which rows would an export of nsys have for what is in a rocpd database? Views say it, of its tables and columns.

The file stays as it is: each connection makes the views for itself. A value that has no place in the table of nsys is
there as a text that says what is wrong with it, and is refused where it is read.

A call of the HIP runtime launched each kernel or copy. The event of a kernel has the stack id of the event of the call
that it was dispatched in, which is the correlation here. Under ``--hsa-trace`` that is a call of HSA inside the one of
HIP, whose stack id is its parent: then the outermost call is the launch.

A range is a region whose event is of a category of markers: of ROCTx, or a call of RCCL, which are as its ranges in
NCCL. Its region is named for the call (``roctxThreadRangeA``); its own name is the message that the event keeps beside
it. Where there is no message the region's name is the range's.

Whether memory of the host is pinned or pageable is in no row. ``hipMemset``, and copies within one GPU, mostly run as
kernels (``__amd_rocclr_fillBufferAligned``, ``__amd_rocclr_copyBuffer``), and are kernels here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_nsys.core.conventions import CopyKind
from pytest_nsys.core.model import NO_STREAM
from pytest_nsys.traces.nsys.memory import CUPTI_COPY_KINDS
from pytest_nsys.traces.nsys.tables import (
    HOST_COPY_TABLE,
    KERNEL_TABLE,
    MEMCPY_TABLE,
    NVTX_TABLE,
    RUNTIME_TABLE,
    STRINGS_TABLE,
    THREAD_BITS,
)
from pytest_nsys.traces.rocpd.captures import NO_STACK, RocpdCapture
from pytest_nsys.traces.sqlite.conditions import MAX_INT64, MIN_INT64, format_ids
from pytest_nsys.traces.sqlite.file import TemporaryView

# Of every stream: HIP has no contexts beside its devices.
HIP_CONTEXT = 0

# What nsys calls a range that is pushed and popped.
RANGE_EVENT_TYPE = 59

# Less than one event of so many are few: then looking each up costs less than a pass.
FEW_EVENTS_DIVISOR = 4

# A region of a range that is named so is named for its call: without a message it is no range.
ROCTX_CALL_PREFIX = "roctx"

MESSAGE_SQL = "nullif(CASE WHEN json_valid(e.extdata) THEN json_extract(e.extdata, '$.message') END, '')"


def build_views(captures: Sequence[RocpdCapture]) -> Iterator[TemporaryView]:
    """Yield the views that stand for the tables of nsys, over what is in all captures."""
    selects = {
        KERNEL_TABLE: ("kernel_dispatch", _build_kernel_select),
        MEMCPY_TABLE: ("memory_copy", _build_copy_select),
        HOST_COPY_TABLE: ("memory_copy", _build_host_copy_select),
        RUNTIME_TABLE: ("region", _build_call_select),
        NVTX_TABLE: ("region", _build_range_select),
        STRINGS_TABLE: ("string", _build_string_select),
    }
    for name, (kind, select) in selects.items():
        if captures_and_sql := [(capture, select_sql) for capture in captures if (select_sql := select(capture, kind))]:
            yield TemporaryView(
                name,
                " UNION ALL ".join(select_sql for _, select_sql in captures_and_sql),
                [capture.get_table(kind) for capture, _ in captures_and_sql],
            )


def create_outer_call_tables(captures: Sequence[RocpdCapture], connection: sqlite3.Connection) -> None:
    """Give a connection the outermost call of each call of HSA that is inside another one."""
    for capture in captures:
        if capture.outer_calls:
            connection.execute(
                f"CREATE TEMP TABLE {_name_outer_call_table(capture)} (inside INTEGER PRIMARY KEY, outermost INTEGER)"
            )
            connection.executemany(
                f"INSERT INTO {_name_outer_call_table(capture)} VALUES (?, ?)", capture.outer_calls.items()
            )
    connection.commit()


def _name_outer_call_table(capture: RocpdCapture) -> str:
    return f"rocpd_outermost_call_{capture.number}"


def _build_select(
    capture: RocpdCapture, kind: str, columns: Mapping[str, str], where: str = "1", source: str = ""
) -> str:
    """Return SQL for the rows ``r`` of a table, each with its event ``e``; ``source`` says how they are found, where
    known.
    """
    table = capture.get_table(kind)
    if (row_id := capture.file.find_row_id_name(table)) and not source:
        columns = {"rowid": f"r.{row_id}", **columns}
    row = ", ".join(f'{value} AS "{name}"' for name, value in columns.items())
    source = source or f'"{table}" r LEFT JOIN "{capture.get_table("event")}" e ON e.id = r.event_id'
    return f"SELECT {row} FROM {source} WHERE {where}"


def _build_kernel_select(capture: RocpdCapture, kind: str) -> str:
    columns = {
        "start": "r.start",
        "end": "r.end",
        "globalPid": _build_process_case(capture),
        "deviceId": _build_device_case(capture, "r.agent_id"),
        "contextId": str(HIP_CONTEXT),
        "streamId": f"r.{capture.stream_column}",
        "correlationId": _build_launch_id(capture),
        "shortName": _offset_id(capture, "r.kernel_id"),
        "demangledName": _offset_id(capture, "r.kernel_id"),
    }
    return _build_select(capture, kind, columns)


def _build_copy_select(capture: RocpdCapture, kind: str) -> str:
    """Return SQL for the copies with a GPU: each is of the GPU that it leaves, else of the one that it reaches."""
    gpus, cpus = format_ids(capture.gpus), format_ids(capture.agents.keys() - {*capture.gpus})
    ends: Mapping[CopyKind, str] = {
        CopyKind.HOST_TO_DEVICE: f"r.src_agent_id IN ({cpus}) AND r.dst_agent_id IN ({gpus})",
        CopyKind.DEVICE_TO_HOST: f"r.src_agent_id IN ({gpus}) AND r.dst_agent_id IN ({cpus})",
        CopyKind.DEVICE_TO_DEVICE: f"r.src_agent_id = r.dst_agent_id AND r.src_agent_id IN ({gpus})",
        CopyKind.PEER: (
            f"r.src_agent_id <> r.dst_agent_id AND r.src_agent_id IN ({gpus}) AND r.dst_agent_id IN ({gpus})"
        ),
    }
    agent = f"(CASE WHEN r.src_agent_id IN ({gpus}) THEN r.src_agent_id ELSE r.dst_agent_id END)"
    has_stream = capture.file.has_columns(capture.get_table(kind), capture.stream_column)
    columns = {
        "start": "r.start",
        "end": "r.end",
        "globalPid": _build_process_case(capture),
        "deviceId": _build_device_case(capture, agent),
        "contextId": str(HIP_CONTEXT),
        "streamId": f"ifnull(r.{capture.stream_column}, {NO_STREAM})" if has_stream else str(NO_STREAM),
        "correlationId": _build_launch_id(capture),
        "copyKind": (
            f"CASE {' '.join(f'WHEN {where} THEN {CUPTI_COPY_KINDS[kind]}' for kind, where in ends.items())} END"
        ),
    }
    return _build_select(capture, kind, columns, _build_gpu_condition(capture))


def _build_host_copy_select(capture: RocpdCapture, kind: str) -> str:
    columns = {"globalPid": _build_process_case(capture), "correlationId": _build_launch_id(capture)}
    return _build_select(capture, kind, columns, f"NOT ({_build_gpu_condition(capture)})")


def _build_gpu_condition(capture: RocpdCapture) -> str:
    """Return SQL that lets through the rows of which one end is a GPU, or no number."""
    gpus = format_ids(capture.gpus)
    ends = (
        f"r.{end} IN ({gpus}) OR typeof(r.{end}) NOT IN ('integer', 'null')" for end in ("src_agent_id", "dst_agent_id")
    )
    return " OR ".join(ends)


def _build_call_select(capture: RocpdCapture, kind: str) -> str:
    """Return SQL for the calls of HIP, and those of HSA and RCCL, which are launches without a name."""
    categories = capture.categories
    if not any(map(capture.has_events, (*categories.hip, *categories.hsa, *categories.rccl))):
        return ""
    columns = {
        "start": "CASE WHEN r.start < 0 THEN 'a call starts before the clock of its machine did' ELSE r.start END",
        "end": "r.end",
        "globalTid": _build_thread_case(capture),
        "correlationId": f"ifnull(nullif(e.stack_id, {NO_STACK}), {_ODD_EVENT_ID})",
        "nameId": (
            f"CASE WHEN e.category_id IN ({format_ids(categories.hip)}) THEN {_offset_id(capture, 'r.name_id')} END"
        ),
    }
    return _build_select(
        capture, kind, columns, _build_category_condition((*categories.hip, *categories.hsa, *categories.rccl))
    )


def _build_range_select(capture: RocpdCapture, kind: str) -> str:
    markers, rccl = capture.categories.markers, capture.categories.rccl
    if not any(map(capture.has_events, (*markers, *rccl))):
        return ""
    text = f"CASE WHEN e.category_id NOT IN ({format_ids(rccl)}) THEN {MESSAGE_SQL} END"
    columns = {
        "start": "r.start",
        "end": "CASE WHEN r.end >= r.start THEN r.end ELSE 'a range ends before it starts' END",
        "globalTid": _build_thread_case(capture),
        "eventType": str(RANGE_EVENT_TYPE),
        "text": text,
        "textId": f"CASE WHEN r.name_id NOT IN ({format_ids(capture.find_strings(ROCTX_CALL_PREFIX))}) "
        f"AND ({text}) IS NULL THEN {_offset_id(capture, 'r.name_id')} END",
    }
    return _build_select(capture, kind, columns, *_choose_source(capture, kind, (*markers, *rccl)))


def _choose_source(capture: RocpdCapture, kind: str, categories: Sequence[int]) -> tuple[str, str]:
    """Return SQL that selects the regions of some categories, and the source of their rows, empty for the usual one."""
    region, event = capture.get_table(kind), capture.get_table("event")
    if capture.count_events(categories) > capture.file.estimate_row_count(event) // FEW_EVENTS_DIVISOR:
        return _build_category_condition(categories), ""
    category_condition = (
        f"(e.category_id IN ({format_ids(categories)}) OR e.category_id < {MIN_INT64} OR e.category_id > {MAX_INT64})"
    )
    # rocprofv3 numbers a region as its event's stack: of few events each is looked up, where all of them are so.
    join_condition = "r.id = e.stack_id AND r.event_id = e.id"
    joined_sql = f'SELECT 1 FROM "{region}" r WHERE {join_condition}'
    unjoined_sql = f'SELECT 1 FROM "{event}" e WHERE {category_condition} AND NOT EXISTS ({joined_sql}) LIMIT 1'
    return (
        (_build_category_condition(categories), "")
        if capture.file.fetch_rows(unjoined_sql)
        else (category_condition, f'"{event}" e CROSS JOIN "{region}" r ON {join_condition}')
    )


def _build_string_select(capture: RocpdCapture, kind: str) -> str:
    table = capture.get_table(kind)
    row_id = capture.file.find_row_id_name(table)
    row_id_column = f"{row_id} AS rowid, " if row_id else ""
    return f'SELECT {row_id_column}{_offset_id(capture, "r.id")} AS id, r.string AS value FROM "{table}" r'


def _build_category_condition(categories: Iterable[int]) -> str:
    """Return SQL for rows whose event is of one of the categories, or whose event or its category is no number."""
    odd_conditions = (f"typeof({column}) NOT IN ('integer', 'null')" for column in ("e.category_id", "r.event_id"))
    return f"(e.category_id IN ({format_ids(categories)}) OR {' OR '.join(odd_conditions)})"


def _build_process_case(capture: RocpdCapture, thread: str = "") -> str:
    process_sql = {row: f"{pid}{thread}" for row, pid in capture.processes.items()}
    return _build_case("r.pid", process_sql, "is not a process of rocpd_info_process")


def _build_thread_case(capture: RocpdCapture) -> str:
    is_number = f"(r.tid & {THREAD_BITS}) = +r.tid"
    return f"CASE WHEN {is_number} THEN {_build_process_case(capture, ' | r.tid')} ELSE ifnull('' || r.tid, 'None') END"


def _build_device_case(capture: RocpdCapture, agent: str) -> str:
    gpus = {number: str(capture.agents[number].device) for number in capture.gpus}
    cpus = {number: f"'agent {number} is not a GPU'" for number in capture.agents.keys() - gpus.keys()}
    return _build_case(agent, gpus | cpus, "is not an agent of rocpd_info_agent")


def _build_case(column: str, values: Mapping[int, str], other_text: str) -> str:
    """Return SQL that maps each number to its value, and another value to a text that says what it is."""
    branches = " ".join(f"WHEN {number} THEN {value}" for number, value in values.items()) or "WHEN NULL THEN NULL"
    return f"CASE {column} {branches} ELSE ifnull({column} || ' {other_text}', 'None') END"


def _offset_id(capture: RocpdCapture, column: str) -> str:
    """Return SQL that makes an id of the capture one of the file; what is no number stays as it is."""
    if not capture.number:
        return column
    return f"CASE WHEN ({column} | 0) = +{column} THEN {column} + {capture.first_id} ELSE {column} END"


def _build_launch_id(capture: RocpdCapture) -> str:
    """Return SQL for the stack id of the outermost call around a row's event, NULL for none."""
    stack = f"nullif(e.stack_id, {NO_STACK})"
    if capture.outer_calls:
        stack = f"ifnull((SELECT outermost FROM {_name_outer_call_table(capture)} WHERE inside = {stack}), {stack})"
    return f"ifnull({stack}, {_ODD_EVENT_ID})"


# An id of an event that is no number, as it is: the reader of the row refuses it.
_ODD_EVENT_ID = "CASE WHEN typeof(r.event_id) NOT IN ('integer', 'null') THEN r.event_id END"
