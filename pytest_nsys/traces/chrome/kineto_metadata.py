"""What does a torch.profiler trace say of its rank, its machine, its copies, its collectives and its memory?

Rank and machine are members of the root, copies say it in their names, collectives and memory in the arguments of
events. Few measurements ask for the last two: the file is read once more when one does, so that it costs the others
nothing.

Each ``[memory]`` event is an instant at which PyTorch's allocator gave or took memory. ``Total Allocated`` is what the
tensors of its device have after it; what the allocator keeps beside them (``Total Reserved``) does not count. Events of
the CPU's memory look alike, and do not count either.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Set
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Raw, field

from pytest_nsys.core.conventions import CopyKind
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS, Collective, Diagnostic, Range, Setup
from pytest_nsys.core.tables import ALWAYS_NS, Memory, Ranges, Series
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.traces.chrome.events import (
    CALL_CATEGORIES,
    KERNEL_CATEGORIES,
    PYTHON_CATEGORY,
    convert_to_ns,
    parse_whole_number,
)
from pytest_nsys.traces.chrome.json_stream import EventStream, JsonStruct
from pytest_nsys.traces.chrome.rank_labels import parse_rank_label
from pytest_nsys.traces.in_memory_trace import CollectiveKey
from pytest_nsys.traces.profiler_messages import build_diagnostics

# A mesh has groups of several of these axes too, whose sizes would count twice.
BASE_AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
"""The axes of a device mesh whose sizes multiply to the world size."""
_MESH_PREFIX = "mesh_"
_RANK_IN_NAME = re.compile(r"(?<![A-Za-z])(rank|worker)[-_.]?([0-9]{1,9})(?![0-9])", re.IGNORECASE)


def parse_distributed_info(root_members: Mapping[str, Any]) -> Setup | None:
    """Parse rank and mesh coordinates from ``distributedInfo``; None where it names no rank."""
    info = root_members.get("distributedInfo")
    rank = _read_rank_number(info.get("rank")) if isinstance(info, dict) else None
    if rank is None or not isinstance(info, dict):
        return None
    world = _read_rank_number(info.get("world_size"))
    if not world or rank >= world:
        return Setup(f"distributedInfo: rank {rank}", rank, {}, {})
    mesh = _parse_mesh(info.get("pg_config"), rank, world)
    text = f"distributedInfo: rank {rank} of {world}"
    text += "".join(f" {axis}={coordinate}/{size}" for axis, (coordinate, size) in mesh.items())
    sizes = {axis: size for axis, (_, size) in mesh.items()} or {"world": world}
    return Setup(text, rank, {axis: coordinate for axis, (coordinate, _) in mesh.items()}, sizes)


def parse_rank_from_name(file_name: str) -> Setup | None:
    """Parse the rank from a file's name, as in ``rank-34.json``, ``rank0_trace.json`` or ``worker0.pt.trace.json``;
    None where it names none.
    """
    numbers = {kind.lower(): int(number) for kind, number in _RANK_IN_NAME.findall(file_name)}
    rank = numbers.get("rank", numbers.get("worker"))
    return None if rank is None else Setup(f"file name: rank {rank}", rank, {}, {})


def _parse_mesh(groups: object, rank: int, world: int) -> dict[str, tuple[int, int]]:
    """Return (coordinate, size) of the rank on each axis of the mesh; empty where the axes do not span the world."""
    axes_of_rank: dict[str, tuple[int, int]] = {}
    for group in groups if isinstance(groups, list) else ():
        if not isinstance(group, dict):
            continue
        name, ranks = group.get("pg_desc"), group.get("ranks")
        if isinstance(name, str) and name.startswith(_MESH_PREFIX) and isinstance(ranks, list) and rank in ranks:
            axes_of_rank.setdefault(name.removeprefix(_MESH_PREFIX), (ranks.index(rank), len(ranks)))
    axes = {axis: axes_of_rank[axis] for axis in BASE_AXES if axis in axes_of_rank} or axes_of_rank
    return axes if axes and prod(size for _, size in axes.values()) == world else {}


def _read_rank_number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def read_gpu_models(root_members: Mapping[str, Any]) -> dict[int, str]:
    """Return the GPU model of each device of the machine, by device number."""
    models: dict[int, str] = {}
    devices = root_members.get("deviceProperties")
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict) and isinstance(device.get("name"), str) and type(device.get("id")) is int:
            models[device["id"]] = device["name"]
    return models


def is_amd_trace(root_members: Mapping[str, Any]) -> bool:
    """Whether an AMD GPU was profiled."""
    # The runtime tells it, for not every trace has the GPU's model.
    return "hip_runtime_version" in root_members or any(
        "AMD" in model for model in read_gpu_models(root_members).values()
    )


def read_torch_version(root_members: Mapping[str, Any]) -> str | None:
    """Return the version of torch where the trace says it, else that of the trace's layout, else None."""
    for key in ("torch_version", "pytorch_version", "PyTorch version"):
        if isinstance(root_members.get(key), str):
            return str(root_members[key])
    schema = root_members.get("schemaVersion")
    return str(schema) if isinstance(schema, int | str) else None


def read_profiler_messages(root_members: Mapping[str, Any]) -> tuple[Diagnostic, ...]:
    """Return the errors and warnings that the profiler logged into its own trace."""
    lists = (root_members.get(key) for key in ("ERROR", "WARNING"))
    return build_diagnostics(
        (text for texts in lists if isinstance(texts, list) for text in texts), root_members.items()
    )


_COPY_MEMORIES = re.compile(r"\(([\w ]+) -> ([\w ]+)\)")
_UNSTATED_MEMORIES = ("", "host")  # ROCm's profiler does not tell pinned host memory from pageable
"""The words for a memory that do not say its kind."""


def parse_copy_memories(copy_name: str) -> tuple[str, str]:
    """Return the kinds of memory that a copy reads and writes, by its name (``Memcpy HtoD (Pageable -> Device)``).

    A kind is empty where the name does not say it.
    """
    match = _COPY_MEMORIES.search(copy_name)
    kinds = (match[1].lower(), match[2].lower()) if match else ("", "")
    source, target = ("" if kind in _UNSTATED_MEMORIES else kind for kind in kinds)
    return source, target


_COPY_DIRECTION = re.compile(r"memcpy ?([HDP])(?:to|2)([HDP])|copy(Host|Device)To(Host|Device)", re.IGNORECASE)
"""Matches ``Memcpy PtoP (Device -> Device)`` of CUDA, ``MemcpyP2P`` of XProf and ``CopyDeviceToHost`` of ROCm."""

_COPY_KINDS = {
    "hd": CopyKind.HOST_TO_DEVICE,
    "dh": CopyKind.DEVICE_TO_HOST,
    "dd": CopyKind.DEVICE_TO_DEVICE,
    "pp": CopyKind.PEER,
}


def parse_copy_kind(copy_name: str) -> CopyKind | None:
    """Return the kind of copy that an operation's name stands for; None for a name that is no copy's."""
    match = _COPY_DIRECTION.match(copy_name)
    source, target = [end for end in match.groups() if end] if match else ("", "")
    return _COPY_KINDS.get((source[:1] + target[:1]).lower())


UNDEFINED_DESCRIPTION = "undefined"
"""The description of a process group that the program gave none."""

MAX_LISTED_RANKS = 30  # of a larger group it writes the first ones and the last; what annotates a graph may write all
"""How many ranks of a process group torch.profiler lists at most."""

_NAMESPACES = re.compile(r"\A(?:torch|c10|at)(?:\.|::)")
_DTYPES = {
    **{
        name.lower(): name
        for name in (
            *("Byte", "Char", "Short", "Int", "Long", "UInt16", "UInt32", "UInt64", "Bool"),
            *("Half", "BFloat16", "Float", "Double", "ComplexHalf", "ComplexFloat", "ComplexDouble"),
            *("Float8_e4m3fn", "Float8_e5m2", "Float8_e4m3fnuz", "Float8_e5m2fnuz", "Float8_e8m0fnu"),
            *("Float4_e2m1fn_x2", "QInt8", "QUInt8", "QInt32"),
        )
    },
    "uint8": "Byte",
    "unsigned char": "Byte",
    "int8": "Char",
    "signed char": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "long int": "Long",
    "long long": "Long",
    "cfloat": "ComplexFloat",
    "float16": "Half",
    "float32": "Float",
    "float64": "Double",
    "cdouble": "ComplexDouble",
    "complex32": "ComplexHalf",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
    "complex<half>": "ComplexHalf",
    "complex<c10::half>": "ComplexHalf",
    "complex<float>": "ComplexFloat",
    "complex<double>": "ComplexDouble",
}
"""The names of types in c10, by their names in torch and C++, in lower case and without a namespace."""


def normalize_dtype(dtype_text: str) -> str:
    """Return a data type under its name in c10, however it is spelt; an unknown one stays as it is."""
    # A kernel of a graph may have ``bfloat16`` where its eager twin has ``BFloat16``.
    return _DTYPES.get(_NAMESPACES.sub("", dtype_text.strip()).lower(), dtype_text)


def _format_group_ranks(ranks_value: object) -> str | None:
    """Return the ranks of a process group as torch.profiler spells them: ``[0, 1]``; None where there are none."""
    if ranks_value is None:
        return None
    rank_values = ranks_value if isinstance(ranks_value, list) else str(ranks_value).strip("[]() ").split(",")
    ranks = [str(rank).strip() for rank in rank_values]
    if len(ranks) > MAX_LISTED_RANKS and "..." not in ranks:
        ranks = [*ranks[: MAX_LISTED_RANKS - 1], "...", ranks[-1]]
    return replace_surrogates(f"[{', '.join(ranks)}]")


class CollectiveArgs(JsonStruct, frozen=True):
    """Holds what is read of the ``args`` of a collective's kernel, each with its name in torch.profiler."""

    correlation: int | None = None
    name: str | None = field(default=None, name="Collective name")
    in_elements: int | None = field(default=None, name="In msg nelems")
    out_elements: int | None = field(default=None, name="Out msg nelems")
    dtype: str | None = None
    group_size: int | None = field(default=None, name="Group size")
    group_name: str | None = field(default=None, name="Process Group Name")
    group_description: str | None = field(default=None, name="Process Group Description")
    ranks: str | None = field(default=None, name="Process Group Ranks")


class CollectiveEvent(JsonStruct, frozen=True):
    """Describes one event, as far as it tells of a collective."""

    ARGS = CollectiveArgs

    cat: str | None = None
    pid: int | str = ""
    ts: Raw = Raw()
    args: CollectiveArgs | None = None


def read_kineto_collectives(path: Path) -> Mapping[str, Mapping[CollectiveKey, Collective]]:
    """Read what is recorded of each kernel that has a collective's name, by the label of its process.

    Raises TraceError for a file that cannot be read.
    """
    collectives: defaultdict[str, dict[CollectiveKey, Collective]] = defaultdict(dict)
    for events in EventStream(path, CollectiveEvent):
        for event in events:
            if event.cat in KERNEL_CATEGORIES and event.args is not None and isinstance(event.args.name, str):
                correlation = _read_size(event.args.correlation)
                key = CollectiveKey(NO_LAUNCH if correlation is None else correlation, convert_to_ns(event.ts))
                collectives[parse_rank_label(event.pid)][key] = _build_collective(event.args)
    return collectives


def _build_collective(args: CollectiveArgs) -> Collective:
    """Build a collective from a kernel's arguments."""
    # The annotations of a CUDA graph are written as text, numbers and lists too.
    dtype, ranks = _read_text(args.dtype), _format_group_ranks(args.ranks)
    description = _read_text(args.group_description)
    name = _read_text(args.group_name)
    return Collective(
        name=str(args.name),
        group=name if description in (None, UNDEFINED_DESCRIPTION) else description,
        # The ranks as they are written: of a large group they are cut short, and equal on all its ranks.
        members=None if name is None and ranks is None else f"{name} {ranks}",
        group_size=_read_size(args.group_size),
        in_elements=_read_size(args.in_elements),
        out_elements=_read_size(args.out_elements),
        dtype=None if dtype is None else normalize_dtype(dtype),
    )


def _read_text(value: object) -> str | None:
    return replace_surrogates(value) if isinstance(value, str) and value else None


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which are no characters, so that the text can be written anywhere."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _read_size(value: object) -> int | None:
    number = parse_whole_number(value)
    return number if number is not None and 0 <= number < 1 << 62 else None


MODULE_PREFIX = "nn.Module: "
"""What torch.profiler writes before the class of a module and the number of its instance."""


class FunctionEvent(JsonStruct, frozen=True):
    """Describes one event, as far as it tells of the call of a module."""

    cat: str | None = None
    name: str = ""
    pid: int | str = ""
    tid: int | str = ""
    ts: Raw = Raw()
    dur: Raw = Raw()


def read_module_calls(path: Path) -> Mapping[str, Ranges]:
    """Read the calls of modules by the label of their process, ordered by (start, end).

    Calls whose times cannot be read are left out: they only say what is a part of a model. Raises TraceError for a file
    that cannot be read.
    """
    threads: dict[int | str, int] = {}
    calls_by_label: defaultdict[str, list[Range]] = defaultdict(list)
    for events in EventStream(path, FunctionEvent):
        for event in events:
            if event.cat == PYTHON_CATEGORY and event.name.startswith(MODULE_PREFIX):
                try:
                    start = convert_to_ns(event.ts)
                    end = start + convert_to_ns(event.dur)
                except ValueError:
                    continue
                if NO_LAUNCH < start <= end < OPEN_END_NS:
                    thread = threads.setdefault(event.tid, len(threads))
                    calls_by_label[parse_rank_label(event.pid)].append(
                        Range(start, end, thread, replace_surrogates(event.name))
                    )
    return {label: Ranges.from_ranges(sorted(calls)) for label, calls in calls_by_label.items()}


class CallArgs(JsonStruct, frozen=True):
    """Holds what is read of the arguments of an API call, which torch.profiler writes under ROCm."""

    correlation: int | None = None
    size_bytes: int | str | None = field(default=None, name="bytes")


class CallEvent(JsonStruct, frozen=True):
    """Describes one event, as far as it tells of what an API call copies."""

    ARGS = CallArgs

    cat: str | None = None
    pid: int | str = ""
    args: CallArgs | None = None


def read_empty_copies(path: Path) -> Mapping[str, Set[int]]:
    """Read the correlations of the calls that copy 0 bytes, by the label of their process, as far as the trace has
    them.

    Raises TraceError for a file that cannot be read.
    """
    correlations: defaultdict[str, set[int]] = defaultdict(set)
    for events in EventStream(path, CallEvent):
        for event in events:
            args = event.args if event.cat in CALL_CATEGORIES else None
            if args is not None and args.correlation is not None and args.size_bytes in (0, "0"):
                correlations[parse_rank_label(event.pid)].add(args.correlation)
    return correlations


MEMORY_EVENT = "[memory]"
CPU_DEVICE_TYPE = 0
"""The ``Device Type`` of the host; that of CUDA is 1, and ROCm uses it, too."""


class MemoryEventArgs(JsonStruct, frozen=True):
    """Holds what is read of the ``args`` of a memory event."""

    device_type: int | None = field(default=None, name="Device Type")
    device_id: int | None = field(default=None, name="Device Id")
    size_bytes: int | None = field(default=None, name="Bytes")
    total_bytes: int | None = field(default=None, name="Total Allocated")


class MemoryEvent(JsonStruct, frozen=True):
    """Describes one event, as far as it tells of memory."""

    ARGS = MemoryEventArgs

    name: str = ""
    pid: int | str = ""
    ts: Raw = Raw()
    args: MemoryEventArgs | None = None


def read_kineto_memory(path: Path) -> Mapping[str, Mapping[int, Memory]]:
    """Read the bytes that each process had allocated on each device over time, by the label of the process.

    Before the first change the level is the one that this change started from. Raises TraceError for a file that cannot
    be read, or holds an impossible event.
    """
    changes_by_device: defaultdict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for events in EventStream(path, MemoryEvent):
        for event in events:
            if event.name == MEMORY_EVENT and event.args is not None and _is_gpu_memory(event.args):
                changes_by_device[parse_rank_label(event.pid), _read_memory_number(path, event.args.device_id)].append(
                    _read_memory_change(path, event)
                )
    memory_by_label: defaultdict[str, dict[int, Memory]] = defaultdict(dict)
    for (label, device), changes in sorted(changes_by_device.items()):
        memory_by_label[label][device] = Memory(_build_memory_series(changes))
    return memory_by_label


def _is_gpu_memory(args: MemoryEventArgs) -> bool:
    """Whether a memory event is of a GPU, and says how much is allocated in total."""
    # Versions of torch before 1.10 wrote no total.
    return (
        args.total_bytes is not None
        and args.device_type != CPU_DEVICE_TYPE
        and args.device_id is not None
        and args.device_id != -1
    )


def _read_memory_change(path: Path, event: MemoryEvent) -> tuple[int, int, int]:
    """Return the time of a memory event in ns, the bytes that are allocated after it, and the bytes that it added."""
    assert event.args is not None
    total_bytes, size_bytes = (
        _read_memory_number(path, event.args.total_bytes),
        _read_memory_number(path, event.args.size_bytes or 0),
    )
    try:
        time_ns = convert_to_ns(event.ts)
    except ValueError:
        time_ns = OPEN_END_NS
    if total_bytes < 0 or not NO_LAUNCH < time_ns < OPEN_END_NS:
        problem = f"{total_bytes} bytes allocated" if total_bytes < 0 else "no time that can be read"
        raise TraceError(f"{path}: a {MEMORY_EVENT} event has {problem}: damaged; profile again")
    return time_ns, total_bytes, size_bytes


def _read_memory_number(path: Path, value: object) -> int:
    if type(value) is not int or not -(1 << 62) < value < 1 << 62:
        value_text = sanitize_line(str(value), 40)
        raise TraceError(
            f"{path}: a {MEMORY_EVENT} event says '{value_text}' where a number belongs: damaged; profile again"
        )
    return value


def _build_memory_series(changes: list[tuple[int, int, int]]) -> Series:
    """Build the allocated bytes over time from changes of one device."""
    # Sorting is stable: changes of one moment stay in the order of the file.
    changes.sort(key=lambda change: change[0])
    _, total_bytes, size_bytes = changes[0]
    return Series.from_time_value_pairs(
        [
            (ALWAYS_NS, max(total_bytes - size_bytes, 0)),
            *((time_ns, total_bytes) for time_ns, total_bytes, _ in changes),
        ]
    )
