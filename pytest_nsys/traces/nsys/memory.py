"""What do the copies, memsets and memory events of an export say: which memories, when, how much was allocated?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_nsys.core.conventions import CopyKind
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import Copy, Interval, Lane
from pytest_nsys.core.tables import Kernels, Memory
from pytest_nsys.traces.copies_as_kernels import (
    COPY_ID,
    COPY_NAME_IDS,
    COPY_NAMES_BY_ID,
    GRAPH_ID,
    MEMSET_ID,
    TRANSFER_NAMES,
    list_readable_kinds,
    select_touching,
)
from pytest_nsys.traces.nsys.calls import read_started_calls
from pytest_nsys.traces.nsys.tables import (
    GRAPHS_TABLE,
    MEMCPY_TABLE,
    MEMSET_TABLE,
    RUNTIME_TABLE,
    read_kernels,
    read_labels,
)
from pytest_nsys.traces.sqlite.columns import InvalidValue, check_integers
from pytest_nsys.traces.sqlite.conditions import build_bounds_condition, build_touch_condition, format_ids
from pytest_nsys.traces.sqlite.file import SqliteFile
from pytest_nsys.traces.trace_queries import Allocation, measure_memory_levels

MEMORY_EVENTS = "CUDA_GPU_MEMORY_USAGE_EVENTS"
MEMORY_OPERATIONS_TABLE = "ENUM_CUDA_DEV_MEM_EVENT_OPER"
ALLOCATION_LABEL, FREE_LABEL = "allocation", "deallocation"
# Operations by number, for versions that export no table of them.
MEMORY_OPERATIONS = (ALLOCATION_LABEL, FREE_LABEL)

# Kinds that take room on a GPU: pinned and pageable memory is the host's, managed memory where it is used.
DEVICE_MEMORY_KINDS = frozenset({"device", "array", "device static"})

_EVENT_COLUMNS = ("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType")

NSYS_MEMORY_ADVICE = "capture with --cuda-memory-usage=true"
NSYS_TIMES_ADVICE = "all its memory events are at 0 ns, so their times are unknown: capture with another nsys"


def read_memory(file: SqliteFile) -> Mapping[Lane, Memory] | None:
    """Return what each process had allocated on each device, from each change on; None where the file does not say.

    An allocation is freed by its address: memory allocated before the recording began is in no sum, and its free takes
    nothing off. Raises TypeError for a value that cannot be.
    """
    if not file.has_columns(MEMORY_EVENTS, *_EVENT_COLUMNS) or _lacks_times(file):
        return None
    kinds, operations = (
        read_labels(file, MEMORY_KINDS_TABLE, MEMORY_KINDS),
        read_labels(file, MEMORY_OPERATIONS_TABLE, MEMORY_OPERATIONS),
    )
    correlation = f"ifnull({file.get_column(MEMORY_EVENTS, 'correlationId')}, 0)"
    # Of two events at one time the one with the lower correlation was called first.
    rows = file.fetch_rows(f"SELECT {', '.join(_EVENT_COLUMNS)} FROM {MEMORY_EVENTS} ORDER BY start, {correlation}")

    def iterate_allocations() -> Iterator[Allocation]:
        for start, pid, device, address, size, kind, operation in rows:
            check_integers(start, pid, device, address, size, kind, operation)
            if size < 0:
                raise InvalidValue(f"an allocation of {size} bytes")
            if (operation_label := operations.get(operation)) not in MEMORY_OPERATIONS:
                raise InvalidValue(f"a memory operation {operation}, which is neither an allocation nor a free")
            lane = Lane(pid, device) if kinds.get(kind) in DEVICE_MEMORY_KINDS else None
            yield Allocation(start, (pid, address), lane, size, is_free=operation_label == FREE_LABEL)

    return measure_memory_levels(iterate_allocations())


def _lacks_times(file: SqliteFile) -> bool:
    """Return whether all memory events are at 0 ns, as some versions of nsys write them."""
    return not file.fetch_rows(f"SELECT 1 FROM {MEMORY_EVENTS} WHERE start <> 0 LIMIT 1")


def describe_memory_capture(file: SqliteFile) -> str:
    """Describe how to capture what this file does not say of memory."""
    return (
        NSYS_TIMES_ADVICE
        if file.has_columns(MEMORY_EVENTS, *_EVENT_COLUMNS) and _lacks_times(file)
        else NSYS_MEMORY_ADVICE
    )


MEMORY_KINDS_TABLE = "ENUM_CUDA_MEM_KIND"
# Kinds of memory by number, for versions that export no table of them.
MEMORY_KINDS = ("pageable", "pinned", "device", "array", "managed", "device static", "managed static", "unknown")

_COPY_COLUMNS = ("start", "deviceId", "globalPid", "correlationId", "srcKind", "dstKind")
_TRANSFER_COLUMNS = ("start", "end", "correlationId", "deviceId", "contextId", "streamId", "globalPid")
_COPY_KERNEL_COLUMNS = (*_TRANSFER_COLUMNS, "copyKind")

TRANSFER_TABLES = {MEMCPY_TABLE: COPY_ID, MEMSET_TABLE: MEMSET_ID, GRAPHS_TABLE: GRAPH_ID}

# The kinds of copies as CUPTI numbers them (CUpti_ActivityMemcpyKind).
CUPTI_COPY_KINDS: Mapping[CopyKind, int] = {
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
    if MEMCPY_TABLE not in file.tables or not spans:  # an export has no table without a row
        return {}
    if not file.has_columns(MEMCPY_TABLE, *_COPY_COLUMNS):
        return None
    kinds, calls = read_labels(file, MEMORY_KINDS_TABLE, MEMORY_KINDS), _read_call_starts(file, spans)
    first = min(low for low, _ in spans.values())
    copies_by_lane: dict[Lane, list[Copy]] = {}
    rows = file.scan_rows(", ".join(_COPY_COLUMNS), MEMCPY_TABLE, build_bounds_condition("start", low=first))
    for start, device, pid, correlation, source, target in rows:
        check_integers(start, pid, device, 0 if correlation is None else correlation)
        call_start = start if calls is None else calls.get(pid, {}).get(correlation)
        if call_start is None:
            continue
        copy = Copy(start, kinds.get(source, ""), kinds.get(target, ""), call_start)
        for lane in (Lane(pid, device), Lane(pid, None)):
            if lane in spans and spans[lane][0] <= call_start <= spans[lane][1]:
                copies_by_lane.setdefault(lane, []).append(copy)
    return {lane: sorted(copies) for lane, copies in copies_by_lane.items()}


def _read_call_starts(file: SqliteFile, spans: Mapping[Lane, Interval]) -> Mapping[int, Mapping[int, int]] | None:
    """Return the start of the earliest call in the spans of each correlation, by process; None where the trace has no
    calls.
    """
    if RUNTIME_TABLE not in file.tables:
        return None
    spans_by_process = group_by_key((lane.global_pid, span) for lane, span in spans.items())
    hulls = {
        pid: (min(process_spans)[0], max(high for _, high in process_spans))
        for pid, process_spans in spans_by_process.items()
    }
    return {pid: calls.build_start_map() for pid, calls in read_started_calls(file, hulls).items()}


def read_copies_as_kernels(file: SqliteFile, kinds: Sequence[str]) -> dict[Lane, Kernels]:
    """Return the copies of :func:`list_readable_kinds`, each as a kernel, by process and device, ordered by start.

    Raises TraceError where the version does not say where a copy runs, TypeError for a value that is no number.
    """
    if MEMCPY_TABLE not in file.tables:
        return {}
    if missing := [name for name in _COPY_KERNEL_COLUMNS if not file.has_columns(MEMCPY_TABLE, name)]:
        raise TraceError(
            f"{file.path}: table {MEMCPY_TABLE} lacks the column {', '.join(missing)}, so its copies cannot count as "
            "communication: export the report with a newer nsys, or take 'copies' out of the convention"
        )
    numbers = {CUPTI_COPY_KINDS[kind]: COPY_NAME_IDS[kind] for kind in list_readable_kinds(kinds)}
    name = f"CASE copyKind {' '.join(f'WHEN {number} THEN {name}' for number, name in numbers.items())} END"
    where = f"copyKind IN ({format_ids(numbers)})"
    tables, _ = read_kernels(file, None, where, whole_table=True, table=MEMCPY_TABLE, name_expression=name)
    return {lane: table.build_kernels(COPY_NAMES_BY_ID, file.path) for lane, table in tables.items() if table}


def read_transfers(
    file: SqliteFile, table: str, spans: Mapping[Lane, Interval | None]
) -> Mapping[Lane, Kernels] | None:
    """Return the rows of one of ``TRANSFER_TABLES`` that touch the span of their lane, each as a kernel, ordered by
    start.

    None where the version does not say where they ran. Raises TypeError for a value that is no number.
    """
    if table not in file.tables or not spans:
        return {}
    if not file.has_columns(table, *_TRANSFER_COLUMNS):
        return None
    bounded = [span for span in spans.values() if span is not None]
    whole_table = len(bounded) < len(spans)
    where = (
        "1"
        if whole_table
        else build_touch_condition((min(low for low, _ in bounded), max(high for _, high in bounded)))
    )
    tables, _ = read_kernels(
        file, spans, where, whole_table=whole_table, table=table, name_expression=str(TRANSFER_TABLES[table])
    )
    transfers_by_lane = {
        lane: columns.build_kernels(TRANSFER_NAMES, file.path) for lane, columns in tables.items() if columns
    }
    return {lane: select_touching(lane_transfers, spans[lane]) for lane, lane_transfers in transfers_by_lane.items()}
