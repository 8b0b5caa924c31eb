"""What do the copies and the allocations of a rocpd database say: between which agents, when, how many bytes?

Whether memory of the host is pinned or pageable is in no row. ``hipMemset``, and copies within one GPU, mostly run as
kernels (``__amd_rocclr_fillBufferAligned``, ``__amd_rocclr_copyBuffer``), and are kernels here.

A free names its address alone. Scratch, which the runtime takes for itself, has no address and is left out; what is
allocated of physical memory for a range of addresses (``VIRTUAL``) counts as any other allocation does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from pytest_nsys.core.conventions import CopyKind
from pytest_nsys.core.model import NO_LAUNCH, NO_STREAM, Lane
from pytest_nsys.traces.answers import Allocation
from pytest_nsys.traces.copies_as_kernels import NAME_IDS, kinds_to_read
from pytest_nsys.traces.rocpd.captures import Captured
from pytest_nsys.traces.sqlite_columns import OddValue, check_whole
from pytest_nsys.traces.sqlite_conditions import listed, one_of

ALLOCATION, FREE = "ALLOC", "FREE"
KINDS = (ALLOCATION, FREE, "REALLOC", "RECLAIM")
SCRATCH = "SCRATCH"
LEVELS = ("REAL", "VIRTUAL", SCRATCH)

TO_SEE_MEMORY = "capture with rocprofv3 --memory-allocation-trace"


def allocations(capture: Captured) -> Iterator[Allocation]:
    """Every allocation and every free, by start. Raises TypeError for a value that cannot be.

    The free of what was never allocated here is of the only GPU that its process used, where there is one.
    """
    columns, table = "start, pid, agent_id, type, level, address, size", capture.table("memory_allocate")
    rows = capture.file.rows(f'SELECT {columns} FROM "{table}" ORDER BY start, id')
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
        pid = capture.process(row)
        if kind == ALLOCATION:
            on_gpu = agent is not None and capture.is_gpu(agent)
            lane = lanes[pid, address] = Lane(pid, capture.device(agent)) if on_gpu else None
            used[pid] |= {lane} if lane else set()
        elif (pid, address) in lanes:
            lane = lanes.pop((pid, address))
        else:
            lane = next(iter(used[pid])) if len(used[pid]) == 1 else None
        yield Allocation(start, (pid, address), lane, size, frees=kind == FREE)


def copy_row(capture: Captured, name: str) -> Sequence[str]:
    """The columns of a copy as those of a kernel: of the GPU that it leaves, else of the one that it reaches."""
    gpus = listed(_gpus(capture))
    agent = f"CASE WHEN src_agent_id IN ({gpus}) THEN src_agent_id ELSE dst_agent_id END"
    stream = capture.file.column(capture.table("memory_copy"), capture.stream)
    return ("start", "end", capture.stack(NO_LAUNCH), name, "pid", agent, f"ifnull({stream}, {NO_STREAM})")


def with_a_gpu(capture: Captured) -> str:
    """Rows of which one end is a GPU, or no number, in SQL."""
    gpus = _gpus(capture)
    return f"({one_of('src_agent_id', gpus)} OR {one_of('dst_agent_id', gpus)})" if gpus else "0"


def kind_of_copies(capture: Captured, kinds: Sequence[str]) -> tuple[str, str]:
    """The number of the name of each of :func:`kinds_to_read`, and which rows are of one, in SQL."""
    gpus, cpus = listed(_gpus(capture)), listed(n for n, agent in capture.agents.items() if not agent.is_gpu)
    ends: Mapping[CopyKind, str] = {
        CopyKind.HOST_TO_DEVICE: f"src_agent_id IN ({cpus}) AND dst_agent_id IN ({gpus})",
        CopyKind.DEVICE_TO_HOST: f"src_agent_id IN ({gpus}) AND dst_agent_id IN ({cpus})",
        CopyKind.DEVICE_TO_DEVICE: f"src_agent_id = dst_agent_id AND src_agent_id IN ({gpus})",
        CopyKind.PEER: f"src_agent_id <> dst_agent_id AND src_agent_id IN ({gpus}) AND dst_agent_id IN ({gpus})",
    }
    chosen = {NAME_IDS[kind]: ends[kind] for kind in kinds_to_read(kinds)}
    name = f"CASE {' '.join(f'WHEN {where} THEN {number}' for number, where in chosen.items())} END"
    return name, " OR ".join(f"({where})" for where in chosen.values())


def _gpus(capture: Captured) -> list[int]:
    return [number for number, agent in capture.agents.items() if agent.is_gpu]
