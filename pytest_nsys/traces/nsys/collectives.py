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
from pytest_nsys.traces.nsys.calls import launch_calls
from pytest_nsys.traces.nsys.tables import KERNEL, NVTX, STRINGS, THREAD_BITS
from pytest_nsys.traces.sqlite_columns import OddValue, check_text, check_whole, texts_of
from pytest_nsys.traces.sqlite_conditions import name_condition
from pytest_nsys.traces.sqlite_file import SqliteFile

SCHEMA_ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
DYNAMIC = re.compile(r"DYNAMIC_NVTXPAYLOAD_DATATYPE_-?\d+_\d+_\d+")

HEAD = struct.Struct("<QQQQ")
ID_BITS = 0xFFFFFFFF
INTEGERS = {
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
"""The types of NVTX's payload entries that are one whole number, as 64-bit Linux has them; 22 is ``size_t``."""

Schemas = Mapping[tuple[int, int], "dict[str, tuple[int, str]]"]
"""By domain and schema: offset and form of each field, by its name."""


class PayloadRow(NamedTuple):
    """One range, and the whole numbers in its payload by the :func:`plain` name of their field."""

    start_ns: int
    end_ns: int
    global_tid: int
    name: str
    fields: Mapping[str, int]


def has_payloads(file: SqliteFile) -> bool:
    """Whether the export can hold payloads at all: empty tables are not written."""
    if file.has(NVTX, "eventId") and any(DYNAMIC.fullmatch(table) for table in file.tables):
        return True
    if not file.has(NVTX, "binaryData") or SCHEMA_ENTRIES not in file.tables:
        return False
    return bool(file.rows(f"SELECT 1 FROM {NVTX} WHERE binaryData IS NOT NULL LIMIT 1"))


def read_payloads(file: SqliteFile, prefix: str) -> Iterator[PayloadRow]:
    """The closed ranges whose name begins with ``prefix``, with what their payload holds; empty where it has none.

    Raises TypeError for a damaged row.
    """
    condition, values = name_condition("value", prefix + "%")
    names = texts_of(file.rows(f"SELECT id, value FROM {STRINGS} WHERE {condition}", values))
    dynamic = _dynamic(file) if file.has(NVTX, "eventId") else {}
    schemas = _schemas(file)
    text, text_id, blob, event = (file.column(NVTX, name) for name in ("text", "textId", "binaryData", "eventId"))
    columns = f"start, end, globalTid, {text}, {text_id}, CAST({blob} AS BLOB), {event}"
    rows = file.scan(columns, NVTX, "end IS NOT NULL AND globalTid IS NOT NULL")
    for start, end, tid, own, number, data, identity in rows:
        name = names.get(number) if own is None else check_text(own)
        if name is None or not name.startswith(prefix):
            continue
        fields = dynamic.get(identity) or (decoded(data, schemas) if isinstance(data, bytes) else {})
        check_whole(start, end, tid)
        yield PayloadRow(start, end, tid, name, fields)


def decoded(data: bytes, schemas: Schemas) -> dict[str, int]:
    """The whole numbers of one payload by the name of their field; empty where no schema fits it."""
    if len(data) < HEAD.size:
        return {}
    domain, schema, length, _ = HEAD.unpack_from(data)
    payload = data[HEAD.size : HEAD.size + length]
    fields = schemas.get((domain & ID_BITS, schema & ID_BITS), {})
    if len(payload) < length:
        return {}
    return {
        name: struct.unpack_from(form, payload, offset)[0]
        for name, (offset, form) in fields.items()
        if offset + struct.calcsize(form) <= length
    }


def _schemas(file: SqliteFile) -> Schemas:
    """Several processes may register one id; where they mean different things by it, nothing is read of either."""
    if SCHEMA_ENTRIES not in file.tables:
        return {}
    found: dict[tuple[int, int], dict[str, tuple[int, str]]] = {}
    unclear: set[tuple[int, int]] = set()
    for domain, schema, kind, name, offset in file.rows(
        f"SELECT domainId, schemaId, type, name, offset FROM {SCHEMA_ENTRIES} WHERE name IS NOT NULL"
    ):
        form = INTEGERS.get(kind)
        if form is None or (offset is not None and (type(offset) is not int or offset < 0)):
            continue
        own = found.setdefault((domain, schema), {})
        place = (offset or 0, form)
        if own.setdefault(plain(check_text(name)), place) != place:
            unclear.add((domain, schema))
    return {key: fields for key, fields in found.items() if key not in unclear}


def _dynamic(file: SqliteFile) -> dict[int, dict[str, int]]:
    """The payloads of the tables that hold them decoded, by event."""
    found: dict[int, dict[str, int]] = {}
    for table in sorted(name for name in file.tables if DYNAMIC.fullmatch(name)):
        columns = [name for name in file.columns(table) if re.fullmatch(r"\w+", name) and name != "eventid"]
        if not columns or "eventid" not in file.columns(table):
            continue
        listed = ", ".join(f'"{name}"' for name in columns)
        for event, *values in file.rows(f'SELECT eventId, {listed} FROM "{table}"'):
            own = found.setdefault(event, {})
            own |= {plain(n): v for n, v in zip(columns, values, strict=True) if type(v) is int}
    return found


def plain(name: str) -> str:
    """The name of a field in its letters and digits alone, as both forms write it: ``messagesizebytes``."""
    return "".join(c for c in name.lower() if c.isalnum())


COLLECTIVE = "pytestNsysCollective"
"""A column that the kernels of a cut alone have: what their traces said of each as a collective."""
TO_SEE_SIZES = (
    "an export of nsys has the sizes of collectives only in the payloads of NCCL's NVTX ranges: capture with "
    "--trace=cuda,nvtx, and export with `nsys export --type=sqlite --include-blobs=true`"
)
PREFIX = "nccl"
CALL = re.compile(r"nccl[A-Z]\w*")
"""A range of NCCL itself; ``nccl:all_reduce`` is one of torch around it."""
GROUP_START, GROUP_END = "ncclGroupStart", "ncclGroupEnd"
COMMUNICATOR, BYTES, RANKS, PEER = "ncclcommunicatorid", "messagesizebytes", "noofranks", "peerrank"
SENDS, RECEIVES = "ncclSend", "ncclRecv"
OF_ONE_RANK = {"ncclAllGather": (1, None), "ncclReduceScatter": (None, 1), "ncclAlltoAll": (None, None)}
"""Calls whose size is that of one rank's part, and of which side it is the whole; the rest is that times the ranks."""


class Launch(NamedTuple):
    """Where a kernel was launched."""

    start_ns: int
    thread: int


class Communicator(NamedTuple):
    """One communicator of a process: its name here, as its id differs from run to run, and how many ranks it has."""

    name: str | None
    ranks: int | None


def read_collectives(
    file: SqliteFile, kernels: Mapping[Lane, Kernels]
) -> Mapping[Lane, Sequence[Collective | None]] | None:
    """For each kernel the call that launched it; None where the export has no payloads. Raises TypeError if damaged."""
    if file.has(KERNEL, COLLECTIVE):
        return _of_cut(file, kernels)
    if not has_payloads(file):
        return None
    calls: dict[int, list[PayloadRow]] = defaultdict(list)
    for row in read_payloads(file, PREFIX):
        if CALL.fullmatch(row.name):
            calls[row.global_tid & ~THREAD_BITS].append(row)
    launches = launch_calls(file, kernels)
    found: dict[Lane, Sequence[Collective | None]] = {}
    for lane in kernels:
        own = _Calls(calls.get(lane.global_pid, []))
        starts, _, threads = launches[lane]
        each = zip(starts, threads, strict=True)
        found[lane] = own.of([None if s == NO_LAUNCH else Launch(s, lane.global_pid | t) for s, t in each])
    return found


def _of_cut(file: SqliteFile, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[Collective | None]]:
    """What a cut says of each kernel: the calls of the run that tell its communicators apart are not in it."""
    sql = f"SELECT globalPid, correlationId, start, {COLLECTIVE} FROM {KERNEL} WHERE {COLLECTIVE} IS NOT NULL"
    known: dict[tuple[int, int, int], Collective] = {}
    try:
        for pid, correlation, start, text in file.rows(sql):
            known[pid, correlation, start] = Collective(*json.loads(text))
    except ValueError as error:
        raise OddValue("a collective cannot be read") from error
    return {
        lane: [known.get((lane.global_pid, *key)) for key in zip(some.correlation, some.start_ns, strict=True)]
        for lane, some in kernels.items()
    }


class _Calls:
    """The calls of NCCL in one process."""

    def __init__(self, rows: Sequence[PayloadRow]) -> None:
        ordered = sorted(rows, key=lambda row: (row.start_ns, -row.end_ns, row.name))
        self.communicators = _communicators(ordered)
        self._threads: dict[int, list[PayloadRow]] = defaultdict(list)
        for row in ordered:
            self._threads[row.global_tid].append(row)
        self._starts = {tid: [row.start_ns for row in own] for tid, own in self._threads.items()}
        self._parents = {tid: _parents(own) for tid, own in self._threads.items()}

    def of(self, launches: Sequence[Launch | None]) -> list[Collective | None]:
        """The collective of each launch. Kernels of one group share its calls: one has all, several one each."""
        places = [None if launch is None else self._around(launch) for launch in launches]
        together: dict[tuple[int, int], list[int]] = defaultdict(list)
        for i, place in enumerate(places):
            if place is not None:
                together[place].append(i)
        found: list[Collective | None] = [None] * len(launches)
        for (thread, index), members in together.items():
            members.sort(key=lambda i: launches[i] or Launch(NO_LAUNCH, 0))
            calls = self._grouped(thread, index)
            if len(members) == 1:
                found[members[0]] = self._joined(calls)
            elif len(members) == len(calls):
                for i, call in zip(members, calls, strict=True):
                    found[i] = self._joined([call])
        return found

    def _around(self, launch: Launch) -> tuple[int, int] | None:
        """The thread and place of the outermost range of NCCL around a launch: a group's end, or a call alone."""
        own = self._threads.get(launch.thread)
        if not own:
            return None
        outermost = None
        at = bisect_right(self._starts[launch.thread], launch.start_ns) - 1
        while at >= 0:
            if own[at].end_ns >= launch.start_ns:
                outermost = at
            at = self._parents[launch.thread][at]
        return None if outermost is None else (launch.thread, outermost)

    def _grouped(self, thread: int, index: int) -> list[PayloadRow]:
        """The calls that a range launches: itself, or those since the start of the group that it ends."""
        own = self._threads[thread]
        if own[index].name != GROUP_END:
            return [own[index]] if BYTES in own[index].fields else []
        calls, depth = [], 0
        for row in reversed(own[:index]):
            if row.name == GROUP_END:
                depth += 1
            elif row.name == GROUP_START:
                if not depth:
                    break
                depth -= 1
            elif BYTES in row.fields:
                calls.append(row)
        return calls[::-1]

    def _joined(self, calls: Sequence[PayloadRow]) -> Collective | None:
        """Several calls as one: of one kind and communicator, or sends and receives."""
        if len({call.fields.get(COMMUNICATOR) for call in calls}) > 1:
            return None
        if not calls:
            return None
        number = calls[0].fields.get(COMMUNICATOR)  # older versions of NCCL tell the size alone
        communicator = Communicator(None, None) if number is None else self.communicators[number]
        names = {call.name for call in calls}
        if names <= {SENDS, RECEIVES}:
            name, given, got = _exchange(calls, communicator.ranks)
        elif len(names) == 1:
            name = calls[0].name
            given, got = _sides(name, sum(call.fields[BYTES] for call in calls), communicator.ranks)
        else:
            return None
        members = None if number is None else f"{number & (1 << 64) - 1:#x}"
        return Collective(name, communicator.name, members, communicator.ranks, given, got, "Byte")


def _parents(rows: Sequence[PayloadRow]) -> list[int]:
    """The place of the range around each range of a thread, -1 where there is none; ``rows`` are by start."""
    parents: list[int] = []
    around: list[int] = []
    for i, row in enumerate(rows):
        while around and rows[around[-1]].end_ns < row.end_ns:
            around.pop()
        parents.append(around[-1] if around else -1)
        around.append(i)
    return parents


def _communicators(rows: Sequence[PayloadRow]) -> dict[int, Communicator]:
    """By id, named in the order in which the process first used them."""
    ranks: dict[int, int | None] = {}
    for row in rows:
        communicator = row.fields.get(COMMUNICATOR)
        if communicator is not None:
            ranks[communicator] = row.fields.get(RANKS) or ranks.get(communicator)
    return {number: Communicator(f"comm{i}", size) for i, (number, size) in enumerate(ranks.items())}


def _sides(name: str, size_bytes: int, ranks: int | None) -> tuple[int | None, int | None]:
    """What the rank gives and gets, in bytes; None where that takes the number of ranks, which is not known."""
    if name not in OF_ONE_RANK:
        return size_bytes, size_bytes
    whole = None if ranks is None else size_bytes * ranks
    given, got = OF_ONE_RANK[name]
    return size_bytes if given else whole, size_bytes if got else whole


def _exchange(calls: Sequence[PayloadRow], ranks: int | None) -> tuple[str, int | None, int | None]:
    """Sends to all ranks and receives from all are what NCCL before 2.28 makes of an all-to-all."""
    sends = [call for call in calls if call.name == SENDS]
    receives = [call for call in calls if call.name == RECEIVES]
    peers = [{call.fields.get(PEER) for call in some} for some in (sends, receives)]
    to_all = ranks is not None and ranks > 1 and all(len(some) == ranks for some in peers)
    given, got = (sum(call.fields[BYTES] for call in some) for some in (sends, receives))
    return "AllToAll" if to_all else "SendRecv", given, got
