"""How do the columns of a torch.profiler trace become kernels by device, and what launched each? Copies, too.

Those that a convention may count as communication are read, of torch.profiler or of JAX, as if they were kernels.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress, count, islice
from operator import eq
from pathlib import Path

from pytest_nsys.core.conventions import CopyKind
from pytest_nsys.core.families import short_name
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS, Stream
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.chrome.kineto_columns import Columns
from pytest_nsys.traces.chrome.kineto_events import COPIES, POINTLESS, Event
from pytest_nsys.traces.copies_as_kernels import NAME_IDS, NAMES, TRANSFERS, kinds_to_read

GRAPH_LAUNCH = "GraphLaunch"


def kernels_by_device(
    columns: Columns, names: Sequence[str], short_names: array[int] | None = None
) -> dict[int, Kernels]:
    """The kernels of each device, ordered by start, with their short names where these are not known already."""
    _mark_graphs(columns, names)
    if short_names is None:
        short = {full: columns.names[short_name(names[full])] for full in dict.fromkeys(columns.kernel_name)}
        short_names = array("i", map(short.__getitem__, columns.kernel_name))
    spelt = dict(enumerate(columns.names.texts()))
    everything = Kernels(
        start_ns=columns.kernel_start,
        end_ns=columns.kernel_end,
        correlation=columns.kernel_correlation,
        stream=columns.kernel_place,
        name=short_names,
        full_name=columns.kernel_name,
        streams=tuple(Stream(*place) for place in columns.places),
        names=spelt,
        graph_node=columns.graph_node,
    )
    order = order_of(range(len(everything)), everything.start_ns, everything.end_ns)
    device_of = [stream.device for stream in everything.streams]
    devices = sorted(set(device_of))
    if len(devices) == 1:
        return {devices[0]: everything if order == list(range(len(order))) else everything.take(order)}
    places: dict[int, list[int]] = {device: [] for device in devices}
    for i in order:
        places[device_of[everything.stream[i]]].append(i)
    return {device: everything.take(own) for device, own in places.items()}


def transfers_by_device(columns: Columns) -> Mapping[int, Kernels]:
    """The copies and memsets of each device, each as a kernel, ordered by start."""
    everything = Kernels(
        start_ns=columns.transfer_start,
        end_ns=columns.transfer_end,
        correlation=columns.transfer_correlation,
        stream=columns.transfer_place,
        name=columns.transfer_kind,
        full_name=columns.transfer_kind,
        streams=tuple(Stream(*place) for place in columns.transfer_places),
        names=TRANSFERS,
        graph_node=bytearray(len(columns.transfer_start)),
    )
    places: dict[int, list[int]] = {}
    for i in order_of(range(len(everything)), everything.start_ns, everything.end_ns):
        places.setdefault(everything.streams[everything.stream[i]].device, []).append(i)
    return {device: everything.take(own) for device, own in sorted(places.items())}


def _mark_graphs(columns: Columns, names: Sequence[str]) -> None:
    """Kernels that share the correlation of a graph's launch came from that graph."""
    launches = {i for i, name in enumerate(names) if GRAPH_LAUNCH in name}
    graphs = {c for c, name in zip(columns.call_correlation, columns.call_name, strict=True) if name in launches}
    if graphs := graphs - {NO_LAUNCH}:
        for i, correlation in enumerate(columns.kernel_correlation):
            if correlation in graphs:
                columns.graph_node[i] = 1


class LaunchTable:
    """The earliest launch by correlation, of those that kernels have."""

    def __init__(self, columns: Columns) -> None:
        wanted = {*columns.kernel_correlation} - {NO_LAUNCH}
        self._correlations = array("q", sorted(wanted))
        found: dict[int, int] = {}
        for correlation, start in zip(columns.call_correlation, columns.call_start, strict=True):
            if correlation in wanted and start < found.get(correlation, OPEN_END_NS):
                found[correlation] = start
        self.without = wanted - found.keys()
        self._launches = array("q", [found.get(correlation, NO_LAUNCH) for correlation in self._correlations])

    def see(self, correlation: int, start_ns: int) -> None:
        """What else is known of a launch."""
        at = bisect_left(self._correlations, correlation)
        if self._launches[at] == NO_LAUNCH or start_ns < self._launches[at]:
            self._launches[at] = start_ns

    def get(self, correlation: int) -> int:
        """When the kernels of a correlation were launched, NO_LAUNCH where nothing says."""
        at = bisect_left(self._correlations, correlation)
        known = at < len(self._correlations) and self._correlations[at] == correlation
        return self._launches[at] if known else NO_LAUNCH

    def of(self, correlations: array[int]) -> array[int]:
        """:meth:`get` of many."""
        known = dict(zip(self._correlations, self._launches, strict=True))
        return array("q", [known.get(correlation, NO_LAUNCH) for correlation in correlations])

    def ran(self) -> set[int]:
        """The correlations of which there is a kernel."""
        return set(self._correlations)


def order_of(
    some: Iterable[int], starts: array[int], ends: array[int], name: Callable[[int], str] = lambda _: ""
) -> list[int]:
    """Some indices, ordered by (start, end, name). Starts are sorted alone first: ties are few."""
    order = sorted(some, key=starts.__getitem__)
    in_order = list(map(starts.__getitem__, order))
    after = 0
    for first in compress(count(), map(eq, in_order, islice(in_order, 1, None))):
        if first < after:
            continue
        after = bisect_right(in_order, in_order[first], first)
        order[first:after] = sorted(order[first:after], key=lambda i: (ends[i], name(i)))
    return order


_BETWEEN = re.compile(r"memcpy ?([HDP])(?:to|2)([HDP])|copy(Host|Device)To(Host|Device)", re.IGNORECASE)
"""``Memcpy PtoP (Device -> Device)`` of CUDA, ``MemcpyP2P`` of XProf, ``CopyDeviceToHost`` of ROCm."""

_KINDS = {
    "hd": CopyKind.HOST_TO_DEVICE,
    "dh": CopyKind.DEVICE_TO_HOST,
    "dd": CopyKind.DEVICE_TO_DEVICE,
    "pp": CopyKind.PEER,
}


def kind_of(name: str) -> CopyKind | None:
    """The kind of copy that a profiler calls so; None for any other."""
    found = _BETWEEN.match(name)
    source, target = [end for end in found.groups() if end] if found else ("", "")
    return _KINDS.get((source[:1] + target[:1]).lower())


def read_as_kernels(path: Path, blocks: Iterable[Sequence[Event]], kinds: Sequence[str]) -> Mapping[int, Kernels]:
    """The copies of :func:`kinds_to_read`, each as a kernel, by device, ordered by start. Raises TraceError."""
    columns = _Copies(path, frozenset(kinds_to_read(kinds)))
    for events in blocks:
        columns.add(events)
    return copies_by_device(columns, lambda name: NAME_IDS[kind_of(name) or ""])


def copies_by_device(columns: Columns, id_of: Callable[[str], int]) -> Mapping[int, Kernels]:
    """Copies that were read as if they were kernels, each with the name of its kind, whose number ``id_of`` knows."""
    texts = columns.names.texts()
    found: dict[int, Kernels] = {}
    for device, copies in kernels_by_device(columns, texts).items():
        names = array("q", [id_of(texts[name]) for name in copies.full_name])
        found[device] = replace(copies, name=names, full_name=names, names=NAMES)
    return found


class _Copies(Columns):
    """The copies of some kinds, while they are read as if they were kernels. Raises TraceError for a damaged one."""

    def __init__(self, path: Path, kinds: frozenset[CopyKind]) -> None:
        super().__init__(path)
        self._kinds = kinds

    def add(self, events: Sequence[Event]) -> None:
        """The copies among more events."""
        copies = [
            event
            for event in events
            if event.cat in COPIES and event.ph not in POINTLESS and kind_of(str(event.name)) in self._kinds
        ]
        try:
            self._add_kernels(copies)
        except (TypeError, ValueError, OverflowError, AttributeError):  # before anything of them was added
            for event in copies:
                self._add_kernel(event)
