"""What do the copies, memsets and memory events of an export say: which memories, when, how much was allocated?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_nsys.core.conventions import CopyKind
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Copy, Interval, Lane
from pytest_nsys.core.tables import Kernels, Memory
from pytest_nsys.traces.answers import Allocation, levels
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
from pytest_nsys.traces.nsys.calls import calls_started
from pytest_nsys.traces.nsys.tables import GRAPHS, MEMCPY, MEMSET, RUNTIME, labels, read_kernels
from pytest_nsys.traces.sqlite_columns import OddValue, check_whole
from pytest_nsys.traces.sqlite_conditions import listed, touches, within
from pytest_nsys.traces.sqlite_file import SqliteFile

MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
OPERATIONS_TABLE = "ENUM_CUDA_DEV_MEM_EVENT_OPER"
ALLOCATION, FREE = "allocation", "deallocation"
# Operations by number, for versions that export no table of them.
OPERATIONS = (ALLOCATION, FREE)

# Kinds that take room on a GPU: pinned and pageable memory is the host's, managed memory where it is used.
ON_DEVICE = frozenset({"device", "array", "device static"})

_EVENT = ("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType")

TO_SEE_MEMORY = "capture with --cuda-memory-usage=true"
WITHOUT_TIMES = "all its memory events are at 0 ns, so their times are unknown: capture with another nsys"


def read_memory(file: SqliteFile) -> Mapping[Lane, Memory] | None:
    """Return what each process had allocated on each device, from each change on; None where the file does not say.

    An allocation is freed by its address: memory allocated before the recording began is in no sum, and its free takes
    nothing off. Raises TypeError for a value that cannot be.
    """
    if not file.has(MEMORY, *_EVENT) or _without_times(file):
        return None
    kinds, operations = labels(file, KINDS_TABLE, KINDS), labels(file, OPERATIONS_TABLE, OPERATIONS)
    correlation = f"ifnull({file.column(MEMORY, 'correlationId')}, 0)"
    # Of two events at one time the one with the lower correlation was called first.
    rows = file.rows(f"SELECT {', '.join(_EVENT)} FROM {MEMORY} ORDER BY start, {correlation}")

    def iterate_allocations() -> Iterator[Allocation]:
        for start, pid, device, address, size, kind, operation in rows:
            check_whole(start, pid, device, address, size, kind, operation)
            if size < 0:
                raise OddValue(f"an allocation of {size} bytes")
            if (operation_label := operations.get(operation)) not in OPERATIONS:
                raise OddValue(f"a memory operation {operation}, which is neither an allocation nor a free")
            lane = Lane(pid, device) if kinds.get(kind) in ON_DEVICE else None
            yield Allocation(start, (pid, address), lane, size, frees=operation_label == FREE)

    return levels(iterate_allocations())


def _without_times(file: SqliteFile) -> bool:
    """Return whether all memory events are at 0 ns, as some versions of nsys write them."""
    return not file.rows(f"SELECT 1 FROM {MEMORY} WHERE start <> 0 LIMIT 1")


def to_see_memory(file: SqliteFile) -> str:
    """Describe how to capture what this file does not say of memory."""
    return WITHOUT_TIMES if file.has(MEMORY, *_EVENT) and _without_times(file) else TO_SEE_MEMORY


KINDS_TABLE = "ENUM_CUDA_MEM_KIND"
# Kinds of memory by number, for versions that export no table of them.
KINDS = ("pageable", "pinned", "device", "array", "managed", "device static", "managed static", "unknown")

_COPY = ("start", "deviceId", "globalPid", "correlationId", "srcKind", "dstKind")
_PLACE_AND_TIME = ("start", "end", "correlationId", "deviceId", "contextId", "streamId", "globalPid")
_OF_A_KERNEL = (*_PLACE_AND_TIME, "copyKind")

TRANSFER_TABLES = {MEMCPY: COPY_ID, MEMSET: MEMSET_ID, GRAPHS: GRAPH_ID}

# The kinds of copies as CUPTI numbers them (CUpti_ActivityMemcpyKind).
COPY_KINDS: Mapping[CopyKind, int] = {
    CopyKind.HOST_TO_DEVICE: 1,
    CopyKind.DEVICE_TO_HOST: 2,
    CopyKind.DEVICE_TO_DEVICE: 8,
    CopyKind.PEER: 10,
}


def read_copies(file: SqliteFile, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Sequence[Copy]] | None:
    """Return the copies of each lane that were launched in its span, by start; None where no version says their
    memories.

    Raises TypeError for a value that is no number.
    """
    if MEMCPY not in file.tables or not spans:  # an export has no table without a row
        return {}
    if not file.has(MEMCPY, *_COPY):
        return None
    kinds, calls = labels(file, KINDS_TABLE, KINDS), _calls(file, spans)
    first = min(low for low, _ in spans.values())
    copies_by_lane: dict[Lane, list[Copy]] = {}
    rows = file.scan(", ".join(_COPY), MEMCPY, within("start", low=first))
    for start, device, pid, correlation, source, target in rows:
        check_whole(start, pid, device, 0 if correlation is None else correlation)
        call_start = start if calls is None else calls.get(pid, {}).get(correlation)
        if call_start is None:
            continue
        copy = Copy(start, kinds.get(source, ""), kinds.get(target, ""), call_start)
        for lane in (Lane(pid, device), Lane(pid, None)):
            if lane in spans and spans[lane][0] <= call_start <= spans[lane][1]:
                copies_by_lane.setdefault(lane, []).append(copy)
    return {lane: sorted(copies) for lane, copies in copies_by_lane.items()}


def _calls(file: SqliteFile, spans: Mapping[Lane, Interval]) -> Mapping[int, Mapping[int, int]] | None:
    """Return the start of the earliest call in the spans of each correlation, by process; None where the trace has no
    calls.
    """
    if RUNTIME not in file.tables:
        return None
    spans_by_process = grouped((lane.global_pid, span) for lane, span in spans.items())
    hulls = {
        pid: (min(process_spans)[0], max(high for _, high in process_spans))
        for pid, process_spans in spans_by_process.items()
    }
    return {pid: calls.starts() for pid, calls in calls_started(file, hulls).items()}


def read_as_kernels(file: SqliteFile, kinds: Sequence[str]) -> dict[Lane, Kernels]:
    """Return the copies of :func:`list_readable_kinds`, each as a kernel, by process and device, ordered by start.

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
    return {lane: table.sorted_kernels(NAMES, file.path) for lane, table in tables.items() if table}


def read_transfers(
    file: SqliteFile, table: str, spans: Mapping[Lane, Interval | None]
) -> Mapping[Lane, Kernels] | None:
    """Return the rows of one of ``TRANSFER_TABLES`` that touch the span of their lane, each as a kernel, ordered by
    start.

    None where the version does not say where they ran. Raises TypeError for a value that is no number.
    """
    if table not in file.tables or not spans:
        return {}
    if not file.has(table, *_PLACE_AND_TIME):
        return None
    bounded = [span for span in spans.values() if span is not None]
    whole_table = len(bounded) < len(spans)
    where = "1" if whole_table else touches((min(low for low, _ in bounded), max(high for _, high in bounded)))
    tables, _ = read_kernels(file, spans, where, whole=whole_table, table=table, name=str(TRANSFER_TABLES[table]))
    transfers_by_lane = {
        lane: columns.sorted_kernels(TRANSFERS, file.path) for lane, columns in tables.items() if columns
    }
    return {lane: touching_span(lane_transfers, spans[lane]) for lane, lane_transfers in transfers_by_lane.items()}
