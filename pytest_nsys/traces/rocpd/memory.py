"""What do the allocations of a rocpd database say: how many bytes were allocated on each GPU, and when?

A free names its address alone. Scratch, which the runtime takes for itself, has no address and is left out; what is
allocated of physical memory for a range of addresses (``VIRTUAL``) counts as any other allocation does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pytest_nsys.core.model import Lane
from pytest_nsys.traces.answers import Allocation
from pytest_nsys.traces.rocpd.parts import Part
from pytest_nsys.traces.sqlite_columns import OddValue, check_whole

ALLOCATION, FREE = "ALLOC", "FREE"
KINDS = (ALLOCATION, FREE, "REALLOC", "RECLAIM")
SCRATCH = "SCRATCH"
LEVELS = ("REAL", "VIRTUAL", SCRATCH)

TO_SEE_MEMORY = "capture with rocprofv3 --memory-allocation-trace"


def allocations(part: Part) -> Iterator[Allocation]:
    """Every allocation and every free, by start. Raises TypeError for a value that cannot be.

    The free of what was never allocated here is of the only GPU that its process used, where there is one.
    """
    columns, table = "start, pid, agent_id, type, level, address, size", part.table("memory_allocate")
    rows = part.file.rows(f'SELECT {columns} FROM "{table}" ORDER BY start, id')
    lanes: dict[tuple[int, int], Lane | None] = {}
    used: dict[int, set[Lane]] = defaultdict(set)
    for start, row, agent, kind, level, address, size in rows:
        check_whole(start, row, 0 if agent is None else agent, 0 if address is None else address, size)
        if size < 0:
            raise OddValue(f"an allocation of {size} bytes")
        if kind not in KINDS or level not in LEVELS:
            raise OddValue(f"a memory operation {kind!r} of {level!r}")
        if level == SCRATCH or kind not in (ALLOCATION, FREE) or address is None:
            continue
        pid = part.process(row)
        if kind == ALLOCATION:
            on_gpu = agent is not None and part.is_gpu(agent)
            lane = lanes[pid, address] = Lane(pid, part.device(agent)) if on_gpu else None
            used[pid] |= {lane} if lane else set()
        elif (pid, address) in lanes:
            lane = lanes.pop((pid, address))
        else:
            lane = next(iter(used[pid])) if len(used[pid]) == 1 else None
        yield Allocation(start, (pid, address), lane, size, frees=kind == FREE)
