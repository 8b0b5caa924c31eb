"""Which call of NCCL launched a kernel, of how many bytes, in which communicator? NCCL says so in its own NVTX ranges.

Every call of NCCL is a range (``ncclAllReduce``) whose payload holds the size of the message and, if NCCL is not too
old, the communicator. Alone it launches its kernel inside its range; calls between ``ncclGroupStart`` and
``ncclGroupEnd`` are launched together inside the latter. How many ranks a communicator has stands in the range that
made it.

Payloads are decoded by the schemas that the program registered, which are exported too. Two forms are read.
``NVTX_EVENTS.binaryData`` (``nsys export --include-blobs=true``) begins with four numbers of 64 bits: domain, schema,
length of the payload, and one that nobody needs. Then come the fields at the offsets of
``NVTX_PAYLOAD_SCHEMA_ENTRIES``. ``nsys export --dynamic-tables=all`` of 2026.4 writes a table for each schema instead,
``DYNAMIC_NVTXPAYLOAD_DATATYPE_<process>_<domain>_<schema>``, with a row for each event.
"""

from __future__ import annotations

import json
import re
import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_nsys.core.model import NO_LAUNCH, Collective, Lane
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.nsys.calls import read_launch_calls
from pytest_nsys.traces.nsys.graph_nodes import read_issue_calls
from pytest_nsys.traces.nsys.tables import KERNEL_TABLE, NVTX_TABLE, STRINGS_TABLE, THREAD_BITS
from pytest_nsys.traces.sqlite.columns import InvalidValue, check_integers, check_text, collect_texts
from pytest_nsys.traces.sqlite.conditions import build_name_condition
from pytest_nsys.traces.sqlite.file import SqliteFile

SCHEMA_ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
DYNAMIC_TABLE = re.compile(r"DYNAMIC_NVTXPAYLOAD_DATATYPE_-?\d+_\d+_\d+")

PAYLOAD_HEADER = struct.Struct("<QQQQ")
ID_MASK = 0xFFFFFFFF
# The types of NVTX's payload entries that are one whole number, as 64-bit Linux has them; 22 is size_t
# (nvToolsExtPayload.h).
INTEGER_FORMATS = {
    3: "<h",
    4: "<H",
    5: "<i",
    6: "<I",
    7: "<q",
    8: "<Q",
    9: "<q",
    10: "<Q",
    11: "<b",
    12: "<B",
    13: "<h",
    14: "<H",
    15: "<i",
    16: "<I",
    17: "<q",
    18: "<Q",
    22: "<Q",
}

PayloadSchemas = Mapping[tuple[int, int], "dict[str, tuple[int, str]]"]
"""By domain and schema: offset and form of each field, by its name."""


class PayloadRow(NamedTuple):
    """Describes one range, and the whole numbers in its payload by the normalised name of their field."""

    start_ns: int
    end_ns: int
    global_tid: int
    name: str
    fields: Mapping[str, int]


def has_payloads(file: SqliteFile) -> bool:
    """Return whether the export can hold payloads at all: empty tables are not written."""
    if file.has_columns(NVTX_TABLE, "eventId") and any(DYNAMIC_TABLE.fullmatch(table) for table in file.tables):
        return True
    if not file.has_columns(NVTX_TABLE, "binaryData") or SCHEMA_ENTRIES not in file.tables:
        return False
    return bool(file.fetch_rows(f"SELECT 1 FROM {NVTX_TABLE} WHERE binaryData IS NOT NULL LIMIT 1"))


def read_payloads(file: SqliteFile, prefix: str) -> Iterator[PayloadRow]:
    """Yield the closed ranges whose name begins with ``prefix``, with what their payload holds; empty where it has
    none.

    Raises InvalidValue for a damaged row.
    """
    condition, values = build_name_condition("value", prefix + "%")
    names = collect_texts(file.fetch_rows(f"SELECT id, value FROM {STRINGS_TABLE} WHERE {condition}", values))
    decoded_payloads = _read_decoded_payloads(file) if file.has_columns(NVTX_TABLE, "eventId") else {}
    schemas = _read_schemas(file)
    text, text_id, blob, event = (
        file.get_column(NVTX_TABLE, name) for name in ("text", "textId", "binaryData", "eventId")
    )
    columns = f"start, end, globalTid, {text}, {text_id}, CAST({blob} AS BLOB), {event}"
    rows = file.scan_rows(columns, NVTX_TABLE, "end IS NOT NULL AND globalTid IS NOT NULL")
    for start, end, tid, inline_text, number, payload, event_id in rows:
        name = names.get(number) if inline_text is None else check_text(inline_text)
        if name is None or not name.startswith(prefix):
            continue
        fields = decoded_payloads.get(event_id) or (
            decode_payload(payload, schemas) if isinstance(payload, bytes) else {}
        )
        check_integers(start, end, tid)
        yield PayloadRow(start, end, tid, name, fields)


def decode_payload(data: bytes, schemas: PayloadSchemas) -> dict[str, int]:
    """Return the whole numbers of one payload by the name of their field; empty where no schema fits it."""
    if len(data) < PAYLOAD_HEADER.size:
        return {}
    domain, schema, length, _ = PAYLOAD_HEADER.unpack_from(data)
    payload = data[PAYLOAD_HEADER.size : PAYLOAD_HEADER.size + length]
    fields = schemas.get((domain & ID_MASK, schema & ID_MASK), {})
    if len(payload) < length:
        return {}
    return {
        name: struct.unpack_from(form, payload, offset)[0]
        for name, (offset, form) in fields.items()
        if offset + struct.calcsize(form) <= length
    }


def _read_schemas(file: SqliteFile) -> PayloadSchemas:
    """Return the registered schemas without those ids by which several processes mean different things."""
    if SCHEMA_ENTRIES not in file.tables:
        return {}
    schemas: dict[tuple[int, int], dict[str, tuple[int, str]]] = {}
    ambiguous: set[tuple[int, int]] = set()
    for domain, schema, kind, name, offset in file.fetch_rows(
        f"SELECT domainId, schemaId, type, name, offset FROM {SCHEMA_ENTRIES} WHERE name IS NOT NULL"
    ):
        form = INTEGER_FORMATS.get(kind)
        if form is None or (offset is not None and (type(offset) is not int or offset < 0)):
            continue
        schema_fields = schemas.setdefault((domain, schema), {})
        position = (offset or 0, form)
        if schema_fields.setdefault(normalize_field_name(check_text(name)), position) != position:
            ambiguous.add((domain, schema))
    return {key: fields for key, fields in schemas.items() if key not in ambiguous}


def _read_decoded_payloads(file: SqliteFile) -> dict[int, dict[str, int]]:
    """Return the payloads of the tables that hold them decoded, by event."""
    payloads: dict[int, dict[str, int]] = {}
    for table in sorted(name for name in file.tables if DYNAMIC_TABLE.fullmatch(name)):
        columns = [name for name in file.read_columns(table) if re.fullmatch(r"\w+", name) and name != "eventid"]
        if not columns or "eventid" not in file.read_columns(table):
            continue
        select_list = ", ".join(f'"{name}"' for name in columns)
        for event, *values in file.fetch_rows(f'SELECT eventId, {select_list} FROM "{table}"'):
            event_fields = payloads.setdefault(event, {})
            event_fields |= {
                normalize_field_name(name): value
                for name, value in zip(columns, values, strict=True)
                if type(value) is int
            }
    return payloads


def normalize_field_name(name: str) -> str:
    """Return the name of a field in its letters and digits alone, as both forms write it: ``messagesizebytes``."""
    return "".join(c for c in name.lower() if c.isalnum())


# A column that the kernels of a cut alone have: what their traces said of each as a collective.
COLLECTIVE_COLUMN = "pytestNsysCollective"
NSYS_SIZES_ADVICE = (
    "an export of nsys has the sizes of collectives only in the payloads of NCCL's NVTX ranges: capture with "
    "--trace=cuda,nvtx, and export with `nsys export --type=sqlite --include-blobs=true`"
)
NCCL_PREFIX = "nccl"
# A range of NCCL itself; nccl:all_reduce is one of torch around it.
NCCL_CALL = re.compile(r"nccl[A-Z]\w*")
GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"
COMMUNICATOR_FIELD, BYTES_FIELD, RANKS_FIELD, PEER_FIELD = (
    "ncclcommunicatorid",
    "messagesizebytes",
    "noofranks",
    "peerrank",
)
SEND_CALL, RECEIVE_CALL = "ncclSend", "ncclRecv"
# Calls whose size is that of one rank's part, and the side on which that is the whole; elsewhere it is times the ranks.
ONE_RANK_SIDES = {"ncclAllGather": (1, None), "ncclReduceScatter": (None, 1), "ncclAlltoAll": (None, None)}


class LaunchPoint(NamedTuple):
    """Says where a kernel was issued."""

    start_ns: int
    thread: int
    replay: int = NO_LAUNCH  # each replay of a CUDA graph has the kernels of a call once again


class Communicator(NamedTuple):
    """Describes one communicator of a process."""

    name: str | None  # in this trace alone: the id of a communicator differs from run to run
    ranks: int | None


def read_collectives(
    file: SqliteFile, kernels: Mapping[Lane, Kernels]
) -> Mapping[Lane, Sequence[Collective | None]] | None:
    """Return for each kernel the call that launched it; None where the export has no payloads.

    Raises InvalidValue where it is damaged.
    """
    if file.has_columns(KERNEL_TABLE, COLLECTIVE_COLUMN):
        return _read_cut_collectives(file, kernels)
    if not has_payloads(file):
        return None
    calls: dict[int, list[PayloadRow]] = defaultdict(list)
    for row in read_payloads(file, NCCL_PREFIX):
        if NCCL_CALL.fullmatch(row.name):
            calls[row.global_tid & ~THREAD_BITS].append(row)
    launches = read_issue_calls(file, kernels, read_launch_calls(file, kernels))
    collectives: dict[Lane, Sequence[Collective | None]] = {}
    for lane in kernels:
        process_calls = _ProcessCalls(calls.get(lane.global_pid, []))
        starts, _, threads = launches[lane]
        nodes, correlations = kernels[lane].graph_node, kernels[lane].correlation
        replays = [correlation if node else NO_LAUNCH for node, correlation in zip(nodes, correlations, strict=True)]
        collectives[lane] = process_calls.find_collectives(
            [
                None if start == NO_LAUNCH else LaunchPoint(start, lane.global_pid | thread, replay)
                for start, thread, replay in zip(starts, threads, replays, strict=True)
            ]
        )
    return collectives


def _read_cut_collectives(
    file: SqliteFile, kernels: Mapping[Lane, Kernels]
) -> Mapping[Lane, Sequence[Collective | None]]:
    """Return what a cut says of each kernel: the calls of the run that tell its communicators apart are not in it."""
    sql = (
        f"SELECT globalPid, correlationId, start, {COLLECTIVE_COLUMN} FROM {KERNEL_TABLE} WHERE {COLLECTIVE_COLUMN} "
        "IS NOT NULL"
    )
    collectives: dict[tuple[int, int, int], Collective] = {}
    try:
        for pid, correlation, start, text in file.fetch_rows(sql):
            collectives[pid, correlation, start] = Collective(*json.loads(text))
    except ValueError as error:
        raise InvalidValue("a collective cannot be read") from error
    return {
        lane: [
            collectives.get((lane.global_pid, *key))
            for key in zip(lane_kernels.correlation, lane_kernels.start_ns, strict=True)
        ]
        for lane, lane_kernels in kernels.items()
    }


class _ProcessCalls:
    """Holds the calls of NCCL in one process."""

    def __init__(self, rows: Sequence[PayloadRow]) -> None:
        ordered = sorted(rows, key=lambda row: (row.start_ns, -row.end_ns, row.name))
        self.communicators = _name_communicators(ordered)
        self._rows_by_thread: dict[int, list[PayloadRow]] = defaultdict(list)
        for row in ordered:
            self._rows_by_thread[row.global_tid].append(row)
        self._starts = {tid: [row.start_ns for row in thread_rows] for tid, thread_rows in self._rows_by_thread.items()}
        self._parents = {tid: _find_parents(thread_rows) for tid, thread_rows in self._rows_by_thread.items()}

    def find_collectives(self, launches: Sequence[LaunchPoint | None]) -> list[Collective | None]:
        """Return the collective of each launch, None for none.

        Kernels of one group share its calls: a single kernel has all of them, several kernels have one each.
        """
        range_places = [None if launch is None else self._find_outermost_range(launch) for launch in launches]
        launches_by_range: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for i, (launch, range_place) in enumerate(zip(launches, range_places, strict=True)):
            if launch is not None and range_place is not None:
                launches_by_range[*range_place, launch.replay].append(i)
        collectives: list[Collective | None] = [None] * len(launches)
        for (thread, index, _), members in launches_by_range.items():
            members.sort(key=lambda i: launches[i] or LaunchPoint(NO_LAUNCH, 0))
            calls = self._list_calls(thread, index)
            if len(members) == 1:
                collectives[members[0]] = self._combine_calls(calls)
            elif len(members) == len(calls):
                for i, call in zip(members, calls, strict=True):
                    collectives[i] = self._combine_calls([call])
        return collectives

    def _find_outermost_range(self, launch: LaunchPoint) -> tuple[int, int] | None:
        """Return the thread and place of the outermost range of NCCL around a launch: a group's end, or a call
        alone.
        """
        thread_rows = self._rows_by_thread.get(launch.thread)
        if not thread_rows:
            return None
        outermost = None
        index = bisect_right(self._starts[launch.thread], launch.start_ns) - 1
        while index >= 0:
            if thread_rows[index].end_ns >= launch.start_ns:
                outermost = index
            index = self._parents[launch.thread][index]
        return None if outermost is None else (launch.thread, outermost)

    def _list_calls(self, thread: int, index: int) -> list[PayloadRow]:
        """Return the calls that a range launches: itself, or those since the start of the group that it ends."""
        thread_rows = self._rows_by_thread[thread]
        if thread_rows[index].name != GROUP_END:
            return [thread_rows[index]] if BYTES_FIELD in thread_rows[index].fields else []
        calls, depth = [], 0
        for row in reversed(thread_rows[:index]):
            if row.name == GROUP_END:
                depth += 1
            elif row.name == GROUP_START:
                if not depth:
                    break
                depth -= 1
            elif BYTES_FIELD in row.fields:
                calls.append(row)
        return calls[::-1]

    def _combine_calls(self, calls: Sequence[PayloadRow]) -> Collective | None:
        """Return several calls as one collective: of one kind and communicator, or sends and receives; None for
        others.
        """
        if len({call.fields.get(COMMUNICATOR_FIELD) for call in calls}) > 1:
            return None
        if not calls:
            return None
        number = calls[0].fields.get(COMMUNICATOR_FIELD)  # older versions of NCCL tell the size alone
        communicator = Communicator(None, None) if number is None else self.communicators[number]
        names = {call.name for call in calls}
        if names <= {SEND_CALL, RECEIVE_CALL}:
            name, sent_bytes, received_bytes = _combine_exchange(calls, communicator.ranks)
        elif len(names) == 1:
            name = calls[0].name
            sent_bytes, received_bytes = _measure_sides(
                name, sum(call.fields[BYTES_FIELD] for call in calls), communicator.ranks
            )
        else:
            return None
        members = None if number is None else f"{number & (1 << 64) - 1:#x}"
        return Collective(name, communicator.name, members, communicator.ranks, sent_bytes, received_bytes, "Byte")


def _find_parents(rows: Sequence[PayloadRow]) -> list[int]:
    """Return the place of the range around each range of a thread, -1 where there is none; ``rows`` are by start."""
    parents: list[int] = []
    enclosing: list[int] = []
    for i, row in enumerate(rows):
        while enclosing and rows[enclosing[-1]].end_ns < row.end_ns:
            enclosing.pop()
        parents.append(enclosing[-1] if enclosing else -1)
        enclosing.append(i)
    return parents


def _name_communicators(rows: Sequence[PayloadRow]) -> dict[int, Communicator]:
    """Return the communicators by id, named in the order in which the process first used them."""
    ranks: dict[int, int | None] = {}
    for row in rows:
        communicator = row.fields.get(COMMUNICATOR_FIELD)
        if communicator is not None:
            ranks[communicator] = row.fields.get(RANKS_FIELD) or ranks.get(communicator)
    return {number: Communicator(f"comm{i}", size) for i, (number, size) in enumerate(ranks.items())}


def _measure_sides(name: str, size_bytes: int, ranks: int | None) -> tuple[int | None, int | None]:
    """Return how many bytes the rank gives and gets; None where that takes the number of ranks, which is not known."""
    if name not in ONE_RANK_SIDES:
        return size_bytes, size_bytes
    total_bytes = None if ranks is None else size_bytes * ranks
    sends_part, receives_part = ONE_RANK_SIDES[name]
    return size_bytes if sends_part else total_bytes, size_bytes if receives_part else total_bytes


def _combine_exchange(calls: Sequence[PayloadRow], ranks: int | None) -> tuple[str, int | None, int | None]:
    """Return the name of an exchange, and how many bytes the rank sends and receives in it."""
    sends = [call for call in calls if call.name == SEND_CALL]
    receives = [call for call in calls if call.name == RECEIVE_CALL]
    peers = [{call.fields.get(PEER_FIELD) for call in side_calls} for side_calls in (sends, receives)]
    is_all_to_all = ranks is not None and ranks > 1 and all(len(side_peers) == ranks for side_peers in peers)
    sent_bytes, received_bytes = (
        sum(call.fields[BYTES_FIELD] for call in side_calls) for side_calls in (sends, receives)
    )
    # NCCL before 2.28 makes an all-to-all of sends to all ranks and receives from all.
    return "AllToAll" if is_all_to_all else "SendRecv", sent_bytes, received_bytes
