"""What is in one torch.profiler trace, once it was read: kernels by device, ranges, launches, and the last step.

And what does it say of its rank and its machine? The rank and the world size stand under ``distributedInfo``, else the
rank in the file's name; where the process groups of a device mesh (``mesh_pp``, ``mesh_tp`` …) span the world, the
coordinates are read off them. The last ``ProfilerStep#`` is often incomplete: the profiler stopped inside it, or before
its kernels had run.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, compress, count, zip_longest
from math import prod
from operator import sub
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS, SINCE_1970, Diagnostic, Interval, Setup
from pytest_nsys.core.ranges import Ranges
from pytest_nsys.core.tables import Kernels, LaunchCalls
from pytest_nsys.core.words import counted
from pytest_nsys.traces.answers import CallTable, earliest_calls
from pytest_nsys.traces.chrome.json_stream import EventStream
from pytest_nsys.traces.chrome.kineto_columns import Columns, arrow_starts
from pytest_nsys.traces.chrome.kineto_events import Event
from pytest_nsys.traces.chrome.kineto_kernels import LaunchTable, kernels_by_device, order_of, transfers_by_device
from pytest_nsys.traces.copies_as_kernels import TRANSFERS
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


PID_BITS = 0xFFFFFF


class Content:
    """What counts of one file, read in one pass. Raises TraceError where that fails."""

    STEP = STEP

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = columns = Columns(path)
        stream = self._read(columns)
        if not stream.has_events:
            raise TraceError(f"{path}: is JSON, but holds no traceEvents: it is not a trace")
        if len(columns.call_pids) > 1:
            raise TraceError(
                f"{path}: holds API calls of {len(columns.call_pids)} processes, whose correlations cannot be told "
                "apart: a merged trace; give the file of each rank"
            )
        self.members = stream.members
        process = self._process()
        self.pid, self.global_pid = process & PID_BITS, process << 24
        self._index()
        self._follow_arrows()
        self.started_ns = self._started()
        self.notes = tuple(self._about_steps())

    def _index(self, short_names: array[int] | None = None) -> None:
        """Make of the columns what is asked for."""
        self.names = self.columns.names.texts()
        self.kernels = kernels_by_device(self.columns, self.names, short_names)
        self.launches = LaunchTable(self.columns)
        self._by_launch: dict[int, tuple[list[int], array[int]]] = {}
        self._longest = {device: max(map(sub, own.end_ns, own.start_ns)) for device, own in self.kernels.items()}

    def _read(self, columns: Columns) -> EventStream[Any]:
        """Put every event that counts into the columns; the stream, at its end."""
        stream = EventStream(self.path, Event)
        for events in stream:
            columns.add(events)
        return stream

    def blocks(self) -> Iterator[Sequence[Event]]:
        """The events once more, a block at a time."""
        return iter(EventStream(self.path, Event))

    @cached_property
    def transfers(self) -> Mapping[int, Kernels]:
        """The copies and memsets of each device, ordered by start. Raises TraceError for a damaged one."""
        self.refuse_damaged(*TRANSFERS.values())
        return transfers_by_device(self.columns)

    def refuse_damaged(self, *kinds: str) -> None:
        """Raises TraceError where an event of these kinds is damaged in what few ask for."""
        for kind in kinds:
            if kind in self.columns.damaged:
                raise self.columns.damaged[kind]

    @cached_property
    def calls(self) -> CallTable:
        """The earliest call by correlation."""
        columns = self.columns
        every = LaunchCalls(columns.call_start, columns.call_end, columns.call_thread)
        return earliest_calls(columns.call_correlation, every)

    def _process(self) -> int:
        """What tells the process from others."""
        return min(self.columns.call_pids or self.columns.range_pids, default=0) & PID_BITS

    def _started(self) -> int | None:
        """When the first kernel or range began, in ns since 1970; None where the file does not say.

        Times count from ``baseTimeNanoseconds``; before there was such a member they counted from 1970.
        """
        starts = [kernels.start_ns[0] for kernels in self.kernels.values()]
        first = min(chain(starts, self.columns.range_start), default=None)
        if first is None:
            return None
        base = self.members.get("baseTimeNanoseconds")
        if type(base) is int:
            return base + first
        return first if first in SINCE_1970 else None

    @property
    def zero_ns(self) -> int | None:
        """The moment from which times count, in ns since 1970; None where the file does not say."""
        base = self.members.get("baseTimeNanoseconds", 0)
        plausible = self.started_ns is not None and self.started_ns in SINCE_1970
        return base if type(base) is int and plausible else None

    def _follow_arrows(self) -> None:
        """Kernels that no call launched may have an arrow from one: that takes a second pass, which few files need."""
        if self.launches.without:
            for events in self.blocks():
                for correlation, start in arrow_starts(events, self.launches.without):
                    self.launches.see(correlation, start)

    def _about_steps(self) -> Iterator[str]:
        """The last step is left out where it is incomplete and not the only one: as an open range it is no anchor."""
        columns = self.columns
        found = self._ordered(self._called(columns.range_name, self.STEP.fullmatch))
        described = self._steps(found)
        why = why_incomplete(described, columns.recorded_until_ns)
        if why is None:
            return
        if len(found) > 1:
            columns.range_end[found[-1]] = OPEN_END_NS
            yield f"{self.path}: the last step, {described[-1].name}, is incomplete and left out: {why}"
        else:
            yield f"{self.path}: the only step, {described[-1].name}, is incomplete: {why}"

    def _steps(self, found: Sequence[int]) -> list[Step]:
        columns = self.columns
        ran, correlation = self.launches.ran(), columns.call_correlation
        launches = list(self._called(columns.call_name, LAUNCHES.search))
        lost = [i for i in launches if correlation[i] not in ran]
        every, gone = (sorted(map(columns.call_start.__getitem__, some)) for some in (launches, lost))
        steps = []
        for i, after in zip_longest(found, found[1:]):
            start, end = columns.range_start[i], columns.range_end[i]
            # of steps that overlap, a launch belongs to the last that has begun
            until = end if after is None else min(end, columns.range_start[after] - 1)
            counts = (bisect_right(some, until) - bisect_left(some, start) for some in (every, gone))
            steps.append(Step(self.names[columns.range_name[i]], start, end, *(max(n, 0) for n in counts)))
        return steps

    def _called(self, names: array[int], wanted: Callable[[str], object]) -> Iterator[int]:
        """Where in a column of names a wanted one stands."""
        chosen = bytearray(bool(wanted(name)) for name in self.names)
        return compress(count(), map(chosen.__getitem__, names))

    def _ordered(self, some: Iterable[int]) -> list[int]:
        """Some of the ranges, ordered by (start, end, name)."""
        columns, names = self.columns, self.names
        return order_of(some, columns.range_start, columns.range_end, lambda i: names[columns.range_name[i]])

    def ranges(self, wanted: Callable[[str], bool], span: Interval | None = None) -> Ranges:
        """The ranges whose name is wanted, and that touch the span, in order."""
        columns, found = self.columns, self._called(self.columns.range_name, wanted)
        if span is not None:
            found = (i for i in found if columns.range_start[i] <= span[1] and columns.range_end[i] >= span[0])
        order = self._ordered(found)
        start, end, thread, name = (
            array("q", map(column.__getitem__, order))
            for column in (columns.range_start, columns.range_end, columns.range_thread, columns.range_name)
        )
        return Ranges(start, end, thread, name, self.names)

    def touching(self, device: int, span: Interval) -> list[int]:
        """The kernels of a device that touch the span."""
        kernels = self.kernels[device]
        low, high = span
        first = bisect_left(kernels.start_ns, low - self._longest[device])
        after = bisect_right(kernels.start_ns, high)
        return [i for i in range(first, after) if kernels.end_ns[i] >= low]

    def launched(self, device: int, span: Interval) -> list[int]:
        """The kernels of a device that were launched in the span."""
        if device not in self._by_launch:
            launches = self.launches.of(self.kernels[device].correlation)
            order = sorted((i for i, t in enumerate(launches) if t != NO_LAUNCH), key=launches.__getitem__)
            self._by_launch[device] = order, array("q", map(launches.__getitem__, order))
        order, times = self._by_launch[device]
        return sorted(order[bisect_left(times, span[0]) : bisect_right(times, span[1])])
