"""What do the payloads of NVTX ranges hold? Decoded by the schemas that the program registered, which are exported too.

Two forms are read. ``NVTX_EVENTS.binaryData`` (``nsys export --include-blobs=true``) begins with four numbers of 64
bits: domain, schema, length of the payload, and one that nobody needs. Then come the fields at the offsets of
``NVTX_PAYLOAD_SCHEMA_ENTRIES``. ``nsys export --dynamic-tables=all`` of 2026.4 writes a table for each schema instead,
``DYNAMIC_NVTXPAYLOAD_DATATYPE_<process>_<domain>_<schema>``, with a row for each event.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pytest_nsys.traces.nsys.columns import check_text, check_whole, texts_of
from pytest_nsys.traces.nsys.tables import NVTX, STRINGS, name_condition
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
