"""Which streams of an export wait for an event that another stream recorded?

A wait and its record share the process and ``eventSyncId``; ``eventId`` is used again and never joins. Both stand where
their calls do: the times of their own rows may be 0. In real exports ``deviceId`` of a wait is 0 whatever the device
is, so the kernels of its context say it.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import NamedTuple

from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import NO_LAUNCH, Stream
from pytest_nsys.core.tables import Place, StreamWait, each_once
from pytest_nsys.traces.launches import EMPTY, Earliest
from pytest_nsys.traces.nsys.launches import call_tables
from pytest_nsys.traces.nsys.tables import CUDA_EVENT, PLACE, RUNTIME, SYNCHRONIZATION
from pytest_nsys.traces.sqlite_columns import worth
from pytest_nsys.traces.sqlite_conditions import one_of
from pytest_nsys.traces.sqlite_file import SqliteFile
from pytest_nsys.traces.sqlite_kernels import read_blocks

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
        waits = _waits(file)
    if not waits:
        return None
    with damage(CUDA_EVENT):
        known = _records(_event_calls(file, CUDA_EVENT))
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


def _waits(file: SqliteFile) -> list[EventCall]:
    if not file.has(SYNCHRONIZATION, "syncType"):
        return []
    types = [STREAM_WAIT]
    if file.has(SYNC_TYPES, "id", "name"):
        named = file.rows(f"SELECT id FROM {SYNC_TYPES} WHERE name GLOB '*_STREAM_WAIT_EVENT'")
        types = [number for (number,) in named if type(number) is int] or types
    return _event_calls(file, SYNCHRONIZATION, "syncType", f"({one_of('syncType', types)} OR syncType IS NULL)")


def _event_calls(file: SqliteFile, table: str, kind: str = "0", where: str = "1") -> list[EventCall]:
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
        whole=worth(file.about(table)),
    )


def _records(rows: Iterable[EventCall]) -> dict[tuple[int, int], EventCall | None]:
    """The record of each (process, sync id); None where there are two of which any could be meant."""
    found: dict[tuple[int, int], EventCall | None] = {}
    for row in rows:
        if NO_SYNC_IDS[0] < row.sync_id < NO_SYNC_IDS[1]:
            key = row.global_pid, row.sync_id
            found[key] = row if found.get(key, row) == row else None
    return found
