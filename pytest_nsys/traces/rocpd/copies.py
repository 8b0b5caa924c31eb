"""What do the copies of a rocpd database say: between which agents, when, on which stream?

Whether memory of the host is pinned or pageable is in no row. ``hipMemset``, and copies within one GPU, mostly run as
kernels (``__amd_rocclr_fillBufferAligned``, ``__amd_rocclr_copyBuffer``), and are kernels here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_nsys.core.conventions import CopyKind
from pytest_nsys.core.model import NO_LAUNCH, NO_STREAM
from pytest_nsys.traces.copies_as_kernels import NAME_IDS, kinds_to_read
from pytest_nsys.traces.rocpd.parts import Part
from pytest_nsys.traces.sqlite_conditions import listed, one_of


def copy_row(part: Part, name: str) -> Sequence[str]:
    """The columns of a copy as those of a kernel: of the GPU that it leaves, else of the one that it reaches."""
    gpus = listed(_gpus(part))
    agent = f"CASE WHEN src_agent_id IN ({gpus}) THEN src_agent_id ELSE dst_agent_id END"
    stream = part.file.column(part.table("memory_copy"), part.stream)
    return ("start", "end", part.stack(NO_LAUNCH), name, "pid", agent, f"ifnull({stream}, {NO_STREAM})")


def with_a_gpu(part: Part) -> str:
    """Rows of which one end is a GPU, or no number, in SQL."""
    gpus = _gpus(part)
    return f"({one_of('src_agent_id', gpus)} OR {one_of('dst_agent_id', gpus)})" if gpus else "0"


def kind_of_copies(part: Part, kinds: Sequence[str]) -> tuple[str, str]:
    """The number of the name of each of :func:`kinds_to_read`, and which rows are of one, in SQL."""
    gpus, cpus = listed(_gpus(part)), listed(n for n, agent in part.agents.items() if not agent.is_gpu)
    ends: Mapping[CopyKind, str] = {
        CopyKind.HOST_TO_DEVICE: f"src_agent_id IN ({cpus}) AND dst_agent_id IN ({gpus})",
        CopyKind.DEVICE_TO_HOST: f"src_agent_id IN ({gpus}) AND dst_agent_id IN ({cpus})",
        CopyKind.DEVICE_TO_DEVICE: f"src_agent_id = dst_agent_id AND src_agent_id IN ({gpus})",
        CopyKind.PEER: f"src_agent_id <> dst_agent_id AND src_agent_id IN ({gpus}) AND dst_agent_id IN ({gpus})",
    }
    chosen = {NAME_IDS[kind]: ends[kind] for kind in kinds_to_read(kinds)}
    name = f"CASE {' '.join(f'WHEN {where} THEN {number}' for number, where in chosen.items())} END"
    return name, " OR ".join(f"({where})" for where in chosen.values())


def _gpus(part: Part) -> list[int]:
    return [number for number, agent in part.agents.items() if agent.is_gpu]
