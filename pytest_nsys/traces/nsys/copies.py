"""What do the copies and memsets of an export say: their memories, their times, which may be communication?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_nsys.core.conventions import CopyKind
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Copy, Interval, Lane
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.copies_as_kernels import (
    COPY_ID,
    GRAPH_ID,
    MEMSET_ID,
    NAME_IDS,
    NAMES,
    TRANSFERS,
    kinds_to_read,
    touching_span,
)
from pytest_nsys.traces.nsys.columns import read_kernels
from pytest_nsys.traces.nsys.enums import labels
from pytest_nsys.traces.nsys.launches import calls_started
from pytest_nsys.traces.nsys.tables import GRAPHS, MEMCPY, MEMSET, RUNTIME
from pytest_nsys.traces.sqlite_conditions import listed, touches, within
from pytest_nsys.traces.sqlite_file import SqliteFile
from pytest_nsys.traces.sqlite_values import check_whole

KINDS_TABLE = "ENUM_CUDA_MEM_KIND"
KINDS = ("pageable", "pinned", "device", "array", "managed", "device static", "managed static", "unknown")
"""Kinds of memory by number, for versions that export no table of them."""

_COLUMNS = ("start", "deviceId", "globalPid", "correlationId", "srcKind", "dstKind")
_PLACE_AND_TIME = ("start", "end", "correlationId", "deviceId", "contextId", "streamId", "globalPid")
_OF_A_KERNEL = (*_PLACE_AND_TIME, "copyKind")

TRANSFER_TABLES = {MEMCPY: COPY_ID, MEMSET: MEMSET_ID, GRAPHS: GRAPH_ID}

COPY_KINDS: Mapping[CopyKind, int] = {
    CopyKind.HOST_TO_DEVICE: 1,
    CopyKind.DEVICE_TO_HOST: 2,
    CopyKind.DEVICE_TO_DEVICE: 8,
    CopyKind.PEER: 10,
}
"""The kinds of copies as CUPTI numbers them."""


def read_copies(file: SqliteFile, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Sequence[Copy]] | None:
    """The copies of each lane that were launched in its span, by start; None where no version says their memories.

    Raises TypeError for a value that is no number.
    """
    if MEMCPY not in file.tables or not spans:  # an export has no table without a row
        return {}
    if not file.has(MEMCPY, *_COLUMNS):
        return None
    kinds, calls = labels(file, KINDS_TABLE, KINDS), _calls(file, spans)
    first = min(low for low, _ in spans.values())
    found: dict[Lane, list[Copy]] = {}
    rows = file.scan(", ".join(_COLUMNS), MEMCPY, within("start", low=first))
    for start, device, pid, correlation, source, target in rows:
        check_whole(start, pid, device, 0 if correlation is None else correlation)
        called = start if calls is None else calls.get(pid, {}).get(correlation)
        if called is None:
            continue
        copy = Copy(start, kinds.get(source, ""), kinds.get(target, ""), called)
        for lane in (Lane(pid, device), Lane(pid, None)):
            if lane in spans and spans[lane][0] <= called <= spans[lane][1]:
                found.setdefault(lane, []).append(copy)
    return {lane: sorted(copies) for lane, copies in found.items()}


def _calls(file: SqliteFile, spans: Mapping[Lane, Interval]) -> Mapping[int, Mapping[int, int]] | None:
    """The earliest call in the spans of each correlation, by process; None where the trace has no calls."""
    if RUNTIME not in file.tables:
        return None
    each = grouped((lane.global_pid, span) for lane, span in spans.items())
    hulls = {pid: (min(own)[0], max(high for _, high in own)) for pid, own in each.items()}
    return {pid: calls.starts() for pid, calls in calls_started(file, hulls).items()}


def read_as_kernels(file: SqliteFile, kinds: Sequence[str]) -> dict[Lane, Kernels]:
    """The copies of :func:`kinds_to_read`, each as a kernel, by process and device, ordered by start.

    Raises TraceError where the version does not say where a copy runs, TypeError for a value that is no number.
    """
    if MEMCPY not in file.tables:
        return {}
    if missing := [name for name in _OF_A_KERNEL if not file.has(MEMCPY, name)]:
        raise TraceError(
            f"{file.path}: table {MEMCPY} lacks the column {', '.join(missing)}, so its copies cannot count as "
            "communication: export the report with a newer nsys, or take 'copies' out of the convention"
        )
    numbers = {COPY_KINDS[kind]: NAME_IDS[kind] for kind in kinds_to_read(kinds)}
    name = f"CASE copyKind {' '.join(f'WHEN {number} THEN {name}' for number, name in numbers.items())} END"
    where = f"copyKind IN ({listed(numbers)})"
    tables, _ = read_kernels(file, None, where, whole=True, table=MEMCPY, name=name)
    return {lane: table.sorted_kernels(NAMES, file.path) for lane, table in tables.items()}


def read_transfers(
    file: SqliteFile, table: str, spans: Mapping[Lane, Interval | None]
) -> Mapping[Lane, Kernels] | None:
    """The rows of one of ``TRANSFER_TABLES`` that touch the span of their lane, each as a kernel, ordered by start.

    None where the version does not say where they ran. Raises TypeError for a value that is no number.
    """
    if table not in file.tables or not spans:
        return {}
    if not file.has(table, *_PLACE_AND_TIME):
        return None
    bounded = [span for span in spans.values() if span is not None]
    whole = len(bounded) < len(spans)
    where = "1" if whole else touches((min(low for low, _ in bounded), max(high for _, high in bounded)))
    tables, _ = read_kernels(file, spans, where, whole=whole, table=table, name=str(TRANSFER_TABLES[table]))
    found = {lane: columns.sorted_kernels(TRANSFERS, file.path) for lane, columns in tables.items() if columns}
    return {lane: touching_span(some, spans[lane]) for lane, some in found.items()}
