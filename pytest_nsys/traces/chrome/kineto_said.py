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
from pytest_nsys.core.words import printable
from pytest_nsys.traces.chrome.events import CALLS, FUNCTIONS, KERNELS, nanoseconds, whole
from pytest_nsys.traces.chrome.json_stream import Decoded, EventStream
from pytest_nsys.traces.chrome.merged import label_of
from pytest_nsys.traces.from_memory import CollectiveKey
from pytest_nsys.traces.messages import diagnostics

# A mesh has groups of several of these axes too, whose sizes would count twice.
BASE_AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
"""The axes of a device mesh whose sizes multiply to the world size."""
_MESH = "mesh_"
_RANK = re.compile(r"(?<![A-Za-z])(rank|worker)[-_.]?([0-9]{1,9})(?![0-9])", re.IGNORECASE)


def setup_of(members: Mapping[str, Any]) -> Setup | None:
    """Parse rank and mesh coordinates from ``distributedInfo``; None where it names no rank."""
    info = members.get("distributedInfo")
    rank = _number(info.get("rank")) if isinstance(info, dict) else None
    if rank is None or not isinstance(info, dict):
        return None
    world = _number(info.get("world_size"))
    if not world or rank >= world:
        return Setup(f"distributedInfo: rank {rank}", rank, {}, {})
    mesh = _mesh(info.get("pg_config"), rank, world)
    text = f"distributedInfo: rank {rank} of {world}"
    text += "".join(f" {axis}={coordinate}/{size}" for axis, (coordinate, size) in mesh.items())
    sizes = {axis: size for axis, (_, size) in mesh.items()} or {"world": world}
    return Setup(text, rank, {axis: coordinate for axis, (coordinate, _) in mesh.items()}, sizes)


def setup_of_name(name: str) -> Setup | None:
    """Parse the rank from a file's name, as in ``rank-34.json``, ``rank0_trace.json`` or ``worker0.pt.trace.json``;
    None where it names none.
    """
    numbers = {kind.lower(): int(number) for kind, number in _RANK.findall(name)}
    rank = numbers.get("rank", numbers.get("worker"))
    return None if rank is None else Setup(f"file name: rank {rank}", rank, {}, {})


def _mesh(groups: object, rank: int, world: int) -> dict[str, tuple[int, int]]:
    """Return (coordinate, size) of the rank on each axis of the mesh; empty where the axes do not span the world."""
    axes_of_rank: dict[str, tuple[int, int]] = {}
    for group in groups if isinstance(groups, list) else ():
        if not isinstance(group, dict):
            continue
        name, ranks = group.get("pg_desc"), group.get("ranks")
        if isinstance(name, str) and name.startswith(_MESH) and isinstance(ranks, list) and rank in ranks:
            axes_of_rank.setdefault(name.removeprefix(_MESH), (ranks.index(rank), len(ranks)))
    axes = {axis: axes_of_rank[axis] for axis in BASE_AXES if axis in axes_of_rank} or axes_of_rank
    return axes if axes and prod(size for _, size in axes.values()) == world else {}


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def models_of(members: Mapping[str, Any]) -> dict[int, str]:
    """Return the GPU model of each device of the machine, by device number."""
    models: dict[int, str] = {}
    devices = members.get("deviceProperties")
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict) and isinstance(device.get("name"), str) and type(device.get("id")) is int:
            models[device["id"]] = device["name"]
    return models


def is_of_amd(members: Mapping[str, Any]) -> bool:
    """Whether an AMD GPU was profiled."""
    # The runtime tells it, for not every trace has the GPU's model.
    return "hip_runtime_version" in members or any("AMD" in model for model in models_of(members).values())


def version_of(members: Mapping[str, Any]) -> str | None:
    """Return the version of torch where the trace says it, else that of the trace's layout, else None."""
    for key in ("torch_version", "pytorch_version", "PyTorch version"):
        if isinstance(members.get(key), str):
            return str(members[key])
    schema = members.get("schemaVersion")
    return str(schema) if isinstance(schema, int | str) else None


def messages_of(members: Mapping[str, Any]) -> tuple[Diagnostic, ...]:
    """Return the errors and warnings that the profiler logged into its own trace."""
    lists = (members.get(key) for key in ("ERROR", "WARNING"))
    return diagnostics((text for texts in lists if isinstance(texts, list) for text in texts), members.items())


_MEMORIES = re.compile(r"\(([\w ]+) -> ([\w ]+)\)")
_SAYS_NOTHING = ("", "host")  # ROCm's profiler does not tell pinned host memory from pageable
"""The words for a memory that do not say its kind."""


def memories_of(copy: str) -> tuple[str, str]:
    """Return the kinds of memory that a copy reads and writes, by its name (``Memcpy HtoD (Pageable -> Device)``).

    A kind is empty where the name does not say it.
    """
    match = _MEMORIES.search(copy)
    kinds = (match[1].lower(), match[2].lower()) if match else ("", "")
    source, target = ("" if kind in _SAYS_NOTHING else kind for kind in kinds)
    return source, target


_BETWEEN = re.compile(r"memcpy ?([HDP])(?:to|2)([HDP])|copy(Host|Device)To(Host|Device)", re.IGNORECASE)
"""Matches ``Memcpy PtoP (Device -> Device)`` of CUDA, ``MemcpyP2P`` of XProf and ``CopyDeviceToHost`` of ROCm."""

_KINDS = {
    "hd": CopyKind.HOST_TO_DEVICE,
    "dh": CopyKind.DEVICE_TO_HOST,
    "dd": CopyKind.DEVICE_TO_DEVICE,
    "pp": CopyKind.PEER,
}


def kind_of(name: str) -> CopyKind | None:
    """Return the kind of copy that an operation's name stands for; None for a name that is no copy's."""
    match = _BETWEEN.match(name)
    source, target = [end for end in match.groups() if end] if match else ("", "")
    return _KINDS.get((source[:1] + target[:1]).lower())


UNDEFINED = "undefined"
"""The description of a process group that the program gave none."""

MOST_RANKS = 30  # of a larger group it writes the first ones and the last; what annotates a graph may write all
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


def dtype_of(written: str) -> str:
    """Return a data type under its name in c10, however it is spelt; an unknown one stays as it is."""
    # A kernel of a graph may have ``bfloat16`` where its eager twin has ``BFloat16``.
    return _DTYPES.get(_NAMESPACES.sub("", written.strip()).lower(), written)


def _ranks(written: object) -> str | None:
    """Return the ranks of a process group as torch.profiler spells them: ``[0, 1]``; None where there are none."""
    if written is None:
        return None
    rank_values = written if isinstance(written, list) else str(written).strip("[]() ").split(",")
    ranks = [str(rank).strip() for rank in rank_values]
    if len(ranks) > MOST_RANKS and "..." not in ranks:
        ranks = [*ranks[: MOST_RANKS - 1], "...", ranks[-1]]
    return _clean(f"[{', '.join(ranks)}]")


class CollectiveArgs(Decoded, frozen=True):
    """Holds what is read of the ``args`` of a collective's kernel, each with its name in torch.profiler."""

    correlation: int | None = None
    name: str | None = field(default=None, name="Collective name")
    in_elements: int | None = field(default=None, name="In msg nelems")
    out_elements: int | None = field(default=None, name="Out msg nelems")
    dtype: str | None = None
    group_size: int | None = field(default=None, name="Group size")
    group: str | None = field(default=None, name="Process Group Name")
    description: str | None = field(default=None, name="Process Group Description")
    ranks: str | None = field(default=None, name="Process Group Ranks")


class CollectiveEvent(Decoded, frozen=True):
    """Describes one event, as far as it tells of a collective."""

    ARGS = CollectiveArgs

    cat: str | None = None
    pid: int | str = ""
    ts: Raw = Raw()
    args: CollectiveArgs | None = None


def read_collectives(path: Path) -> Mapping[str, Mapping[CollectiveKey, Collective]]:
    """Read what is recorded of each kernel that has a collective's name, by the label of its process.

    Raises TraceError for a file that cannot be read.
    """
    collectives: defaultdict[str, dict[CollectiveKey, Collective]] = defaultdict(dict)
    for events in EventStream(path, CollectiveEvent):
        for event in events:
            if event.cat in KERNELS and event.args is not None and isinstance(event.args.name, str):
                correlation = _size(event.args.correlation)
                key = CollectiveKey(NO_LAUNCH if correlation is None else correlation, nanoseconds(event.ts))
                collectives[label_of(event.pid)][key] = _collective(event.args)
    return collectives


def _collective(args: CollectiveArgs) -> Collective:
    """Build a collective from a kernel's arguments."""
    # The annotations of a CUDA graph are written as text, numbers and lists too.
    dtype, ranks = _text(args.dtype), _ranks(args.ranks)
    description = _text(args.description)
    name = _text(args.group)
    return Collective(
        name=str(args.name),
        group=name if description in (None, UNDEFINED) else description,
        # The ranks as they are written: of a large group they are cut short, and equal on all its ranks.
        members=None if name is None and ranks is None else f"{name} {ranks}",
        group_size=_size(args.group_size),
        in_elements=_size(args.in_elements),
        out_elements=_size(args.out_elements),
        dtype=None if dtype is None else dtype_of(dtype),
    )


def _text(value: object) -> str | None:
    return _clean(value) if isinstance(value, str) and value else None


def _clean(text: str) -> str:
    """Replace lone surrogates, which are no characters, so that the text can be written anywhere."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _size(value: object) -> int | None:
    number = whole(value)
    return number if number is not None and 0 <= number < 1 << 62 else None


MODULE = "nn.Module: "
"""What torch.profiler writes before the class of a module and the number of its instance."""


class FunctionEvent(Decoded, frozen=True):
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
            if event.cat == FUNCTIONS and event.name.startswith(MODULE):
                try:
                    start = nanoseconds(event.ts)
                    end = start + nanoseconds(event.dur)
                except ValueError:
                    continue
                if NO_LAUNCH < start <= end < OPEN_END_NS:
                    thread = threads.setdefault(event.tid, len(threads))
                    calls_by_label[label_of(event.pid)].append(Range(start, end, thread, _clean(event.name)))
    return {label: Ranges.of(sorted(calls)) for label, calls in calls_by_label.items()}


class CallArgs(Decoded, frozen=True):
    """Holds what is read of the arguments of an API call, which torch.profiler writes under ROCm."""

    correlation: int | None = None
    size: int | str | None = field(default=None, name="bytes")


class CallEvent(Decoded, frozen=True):
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
            args = event.args if event.cat in CALLS else None
            if args is not None and args.correlation is not None and args.size in (0, "0"):
                correlations[label_of(event.pid)].add(args.correlation)
    return correlations


MEMORY = "[memory]"
CPU = 0
"""The ``Device Type`` of the host; that of CUDA is 1, and ROCm uses it, too."""


class MemoryArgs(Decoded, frozen=True):
    """Holds what is read of the ``args`` of a memory event."""

    kind: int | None = field(default=None, name="Device Type")
    device: int | None = field(default=None, name="Device Id")
    size: int | None = field(default=None, name="Bytes")
    total: int | None = field(default=None, name="Total Allocated")


class MemoryEvent(Decoded, frozen=True):
    """Describes one event, as far as it tells of memory."""

    ARGS = MemoryArgs

    name: str = ""
    pid: int | str = ""
    ts: Raw = Raw()
    args: MemoryArgs | None = None


def read_memory(path: Path) -> Mapping[str, Mapping[int, Memory]]:
    """Read the bytes that each process had allocated on each device over time, by the label of the process.

    Before the first change the level is the one that this change started from. Raises TraceError for a file that cannot
    be read, or holds an impossible event.
    """
    changes_by_device: defaultdict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for events in EventStream(path, MemoryEvent):
        for event in events:
            if event.name == MEMORY and event.args is not None and _on_gpu(event.args):
                changes_by_device[label_of(event.pid), _whole(path, event.args.device)].append(_change(path, event))
    memory_by_label: defaultdict[str, dict[int, Memory]] = defaultdict(dict)
    for (label, device), changes in sorted(changes_by_device.items()):
        memory_by_label[label][device] = Memory(_levels(changes))
    return memory_by_label


def _on_gpu(args: MemoryArgs) -> bool:
    """Whether a memory event is of a GPU, and says how much is allocated in total."""
    # Versions of torch before 1.10 wrote no total.
    return args.total is not None and args.kind != CPU and args.device is not None and args.device != -1


def _change(path: Path, event: MemoryEvent) -> tuple[int, int, int]:
    """Return the time of a memory event in ns, the bytes that are allocated after it, and the bytes that it added."""
    assert event.args is not None
    total_bytes, size_bytes = _whole(path, event.args.total), _whole(path, event.args.size or 0)
    try:
        time_ns = nanoseconds(event.ts)
    except ValueError:
        time_ns = OPEN_END_NS
    if total_bytes < 0 or not NO_LAUNCH < time_ns < OPEN_END_NS:
        problem = f"{total_bytes} bytes allocated" if total_bytes < 0 else "no time that can be read"
        raise TraceError(f"{path}: a {MEMORY} event has {problem}: damaged; profile again")
    return time_ns, total_bytes, size_bytes


def _whole(path: Path, value: object) -> int:
    if type(value) is not int or not -(1 << 62) < value < 1 << 62:
        value_text = printable(str(value), 40)
        raise TraceError(f"{path}: a {MEMORY} event says '{value_text}' where a number belongs: damaged; profile again")
    return value


def _levels(changes: list[tuple[int, int, int]]) -> Series:
    """Build the allocated bytes over time from changes of one device."""
    # Sorting is stable: changes of one moment stay in the order of the file.
    changes.sort(key=lambda change: change[0])
    _, total_bytes, size_bytes = changes[0]
    return Series.of(
        [
            (ALWAYS_NS, max(total_bytes - size_bytes, 0)),
            *((time_ns, total_bytes) for time_ns, total_bytes, _ in changes),
        ]
    )
