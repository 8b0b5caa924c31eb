"""What does a torch.profiler trace say of its rank, its machine and its last step?

The rank and the world size stand under ``distributedInfo``, else the rank in the file's name; where the process groups
of a device mesh (``mesh_pp``, ``mesh_tp`` …) span the world, the coordinates are read off them. The last
``ProfilerStep#`` is often incomplete: the profiler stopped inside it, or before its kernels had run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from pytest_nsys.core.model import OPEN_END_NS, Diagnostic, Setup, counted
from pytest_nsys.traces.messages import diagnostics

STEP = re.compile(r"ProfilerStep\*?#\d+")
LAUNCHES = re.compile(r"LaunchKernel|GraphLaunch|LaunchCooperativeKernel")
BASE_AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
"""Axes of a mesh whose sizes multiply to the world; its other groups are made of these."""
_MESH = "mesh_"
_RANK = re.compile(r"(?<![A-Za-z])(rank|worker)[-_.]?([0-9]{1,9})(?![0-9])", re.IGNORECASE)
_MEMORIES = re.compile(r"\(([\w ]+) -> ([\w ]+)\)")
_SAYS_NOTHING = ("", "host")
"""ROCm's profiler does not tell pinned host memory from pageable."""


def memories_of(copy: str) -> tuple[str, str]:
    """What a copy reads and writes, by its name (``Memcpy HtoD (Pageable -> Device)``); empty where it does not say."""
    found = _MEMORIES.search(copy)
    kinds = (found[1].lower(), found[2].lower()) if found else ("", "")
    source, target = ("" if kind in _SAYS_NOTHING else kind for kind in kinds)
    return source, target


def setup_of(members: Mapping[str, Any]) -> Setup | None:
    """What ``distributedInfo`` says of the process; None where it names no rank."""
    info = members.get("distributedInfo")
    rank = _number(info.get("rank")) if isinstance(info, dict) else None
    if rank is None or not isinstance(info, dict):
        return None
    world = _number(info.get("world_size"))
    if not world or rank >= world:
        return Setup(f"distributedInfo: rank {rank}", rank, {}, {})
    mesh = _mesh(info.get("pg_config"), rank, world)
    text = f"distributedInfo: rank {rank} of {world}"
    text += "".join(f" {axis}={place}/{size}" for axis, (place, size) in mesh.items())
    sizes = {axis: size for axis, (_, size) in mesh.items()} or {"world": world}
    return Setup(text, rank, {axis: place for axis, (place, _) in mesh.items()}, sizes)


def setup_of_name(name: str) -> Setup | None:
    """The rank that a file's name tells: ``rank-34.json``, ``rank0_trace.json``, ``worker0.pt.trace.json``."""
    found = {kind.lower(): int(number) for kind, number in _RANK.findall(name)}
    rank = found.get("rank", found.get("worker"))
    return None if rank is None else Setup(f"file name: rank {rank}", rank, {}, {})


def _mesh(groups: object, rank: int, world: int) -> dict[str, tuple[int, int]]:
    """(place, size) of the rank on each axis of the mesh; empty where the axes do not span the world."""
    found: dict[str, tuple[int, int]] = {}
    for group in groups if isinstance(groups, list) else ():
        if not isinstance(group, dict):
            continue
        name, ranks = group.get("pg_desc"), group.get("ranks")
        if isinstance(name, str) and name.startswith(_MESH) and isinstance(ranks, list) and rank in ranks:
            found.setdefault(name.removeprefix(_MESH), (ranks.index(rank), len(ranks)))
    axes = {axis: found[axis] for axis in BASE_AXES if axis in found} or found
    return axes if axes and prod(size for _, size in axes.values()) == world else {}


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def models_of(members: Mapping[str, Any]) -> dict[int, str]:
    """The GPU model of each device of the machine."""
    found: dict[int, str] = {}
    devices = members.get("deviceProperties")
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict) and isinstance(device.get("name"), str) and type(device.get("id")) is int:
            found[device["id"]] = device["name"]
    return found


def version_of(members: Mapping[str, Any]) -> str | None:
    """The version of torch where the trace says it, else that of its layout."""
    for key in ("torch_version", "pytorch_version", "PyTorch version"):
        if isinstance(members.get(key), str):
            return str(members[key])
    schema = members.get("schemaVersion")
    return str(schema) if isinstance(schema, int | str) else None


def messages_of(members: Mapping[str, Any]) -> tuple[Diagnostic, ...]:
    """Errors and warnings that the profiler logged into its own trace."""
    lists = (members.get(key) for key in ("ERROR", "WARNING"))
    return diagnostics((text for some in lists if isinstance(some, list) for text in some), members.items())


class Step(NamedTuple):
    """One ``ProfilerStep#``: ``launches`` of kernels inside it, and how many of them have no kernel."""

    name: str
    start_ns: int
    end_ns: int
    launches: int
    lost: int


def why_incomplete(steps: Sequence[Step], recorded_until_ns: int | None) -> str | None:
    """What shows that the last of the steps, ordered by start, is incomplete; None where nothing does."""
    if not steps:
        return None
    last, others = steps[-1], steps[:-1]
    if last.end_ns == OPEN_END_NS:
        return "it has no end"
    if recorded_until_ns is not None and last.end_ns >= recorded_until_ns:
        return "the recording ended inside it"
    usual = max((step.lost / step.launches for step in others if step.launches), default=0.0)
    if last.lost and last.lost / last.launches > 2 * usual:
        return f"{counted(last.lost, 'kernel launch').replace('launchs', 'launches')} of {last.launches} ran no kernel"
    fewest = min((step.launches for step in others), default=0)
    if 2 * last.launches < fewest:
        return f"it launches {last.launches} kernels, each step before it at least {fewest}"
    return None
