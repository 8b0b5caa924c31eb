"""What do the allocations of a rocpd database say: on which agent, when, how many bytes?

A free names its address alone. Scratch, which the runtime takes for itself, has no address and is left out; what is
allocated of physical memory for a range of addresses (``VIRTUAL``) counts as any other allocation does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pytest_nsys.core.model import Lane
from pytest_nsys.traces.rocpd.captures import RocpdCapture
from pytest_nsys.traces.sqlite.columns import InvalidValue, check_integers
from pytest_nsys.traces.trace_queries import Allocation

ALLOCATE, FREE = "ALLOC", "FREE"
MEMORY_OPERATION_KINDS = (ALLOCATE, FREE, "REALLOC", "RECLAIM")
# The runtime takes scratch for itself: it has no address and is left out.
SCRATCH_LEVEL = "SCRATCH"
MEMORY_LEVELS = ("REAL", "VIRTUAL", SCRATCH_LEVEL)

ROCPD_MEMORY_ADVICE = "capture with rocprofv3 --memory-allocation-trace"


def read_allocations(capture: RocpdCapture) -> Iterator[Allocation]:
    """Yield every allocation and every free, by start. Raises TypeError for a value that cannot be."""
    columns, table = "start, pid, agent_id, type, level, address, size", capture.get_table("memory_allocate")
    rows = capture.file.fetch_rows(f'SELECT {columns} FROM "{table}" ORDER BY start, id')
    lanes: dict[tuple[int, int], Lane | None] = {}
    lanes_by_process: dict[int, set[Lane]] = defaultdict(set)
    for start, process_row, agent, kind, level, address, size in rows:
        check_integers(start, process_row, 0 if agent is None else agent, 0 if address is None else address, size)
        if size < 0:
            raise InvalidValue(f"an allocation of {size} bytes")
        if kind not in MEMORY_OPERATION_KINDS or level not in MEMORY_LEVELS:
            raise InvalidValue(f"a memory operation {kind!r} of {level!r}")
        if level == SCRATCH_LEVEL or kind not in (ALLOCATE, FREE) or address is None:
            continue
        pid = capture.get_process(process_row)
        if kind == ALLOCATE:
            device = None if agent is None else capture.find_device(agent)
            lane = lanes[pid, address] = None if device is None else Lane(pid, device)
            lanes_by_process[pid] |= {lane} if lane else set()
        elif (pid, address) in lanes:
            lane = lanes.pop((pid, address))
        else:
            # The free of what was never allocated here is of the only GPU that its process used, where there is one.
            lane = next(iter(lanes_by_process[pid])) if len(lanes_by_process[pid]) == 1 else None
        yield Allocation(start, (pid, address), lane, size, is_free=kind == FREE)
