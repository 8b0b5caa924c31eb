"""What do the memory events of an export say: how many bytes were allocated on each device, and when?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_nsys.core.model import Lane, Memory
from pytest_nsys.traces.allocations import Allocation, levels
from pytest_nsys.traces.nsys.copies import KINDS, KINDS_TABLE
from pytest_nsys.traces.nsys.enums import labels
from pytest_nsys.traces.sqlite_file import SqliteFile
from pytest_nsys.traces.sqlite_values import OddValue, check_whole

MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
OPERATIONS_TABLE = "ENUM_CUDA_DEV_MEM_EVENT_OPER"
ALLOCATION, FREE = "allocation", "deallocation"
OPERATIONS = (ALLOCATION, FREE)
"""Operations by number, for versions that export no table of them."""

ON_DEVICE = frozenset({"device", "array", "device static"})
"""Kinds that take room on a GPU: pinned and pageable memory is the host's, managed memory where it is used."""

_COLUMNS = ("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType")

TO_SEE_MEMORY = "capture with --cuda-memory-usage=true"
WITHOUT_TIMES = "all its memory events are at 0 ns, so their times are unknown: capture with another nsys"


def read_memory(file: SqliteFile) -> Mapping[Lane, Memory] | None:
    """What each process had allocated on each device, from each change on; None where the file does not say.

    An allocation is freed by its address: what was allocated before the recording began is in no sum, and its free
    takes nothing off. Raises TypeError for a value that cannot be.
    """
    if not file.has(MEMORY, *_COLUMNS) or _without_times(file):
        return None
    kinds, operations = labels(file, KINDS_TABLE, KINDS), labels(file, OPERATIONS_TABLE, OPERATIONS)
    correlation = f"ifnull({file.column(MEMORY, 'correlationId')}, 0)"
    rows = file.rows(f"SELECT {', '.join(_COLUMNS)} FROM {MEMORY} ORDER BY start, {correlation}")

    def each() -> Iterator[Allocation]:
        for start, pid, device, address, size, kind, operation in rows:
            check_whole(start, pid, device, address, size, kind, operation)
            if size < 0:
                raise OddValue(f"an allocation of {size} bytes")
            if (said := operations.get(operation)) not in OPERATIONS:
                raise OddValue(f"a memory operation {operation}, which is neither an allocation nor a free")
            lane = Lane(pid, device) if kinds.get(kind) in ON_DEVICE else None
            yield Allocation(start, (pid, address), lane, size, frees=said == FREE)

    return levels(each())


def _without_times(file: SqliteFile) -> bool:
    """Some versions write every row of the table with a start of 0."""
    return not file.rows(f"SELECT 1 FROM {MEMORY} WHERE start <> 0 LIMIT 1")


def to_see_memory(file: SqliteFile) -> str:
    """How to capture what this file does not say of memory."""
    return WITHOUT_TIMES if file.has(MEMORY, *_COLUMNS) and _without_times(file) else TO_SEE_MEMORY
