"""What does a cut hold of one rank? Its kernels, ranges, calls and copies, from the events of one process."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Raw

from pytest_nsys.core.model import (
    NO_LAUNCH,
    OPEN_END_NS,
    Api,
    Collective,
    Copy,
    Interval,
    Kernels,
    Range,
    Setup,
    Stream,
)
from pytest_nsys.traces.chrome.json_stream import Written
from pytest_nsys.traces.chrome.kineto_events import nanoseconds
from pytest_nsys.traces.copies_as_kernels import NAMES

KERNEL, CALL, RANGE, COPY = "kernel", "cuda_runtime", "user_annotation", "gpu_memcpy"
"""Categories of the events that are read back, as torch.profiler calls them."""
GRAPH_NODE = "graph node id"
COLLECTIVE = {
    "name": "Collective name",
    "group": "Process Group Name",
    "members": "Process Group Members",
    "group_size": "Group size",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "dtype": "dtype",
}
"""What torch.profiler calls the fields of a Collective; it has no word for what tells two groups of a name apart."""
_WHOLE_FIELDS = ("group_size", "in_elements", "out_elements")
MACHINE_BITS = 48
"""Where a serialised process id names the machine: ranks whose clocks have nothing in common differ there."""


class CutEvent(Written, frozen=True):
    """One event of the file; whole ones alone are read back."""

    ph: str
    pid: int
    cat: str | None = None
    name: str = ""
    tid: int | str = ""
    ts: Raw = Raw()
    dur: Raw = Raw()
    args: dict[str, Any] | None = None


class CutKernel(NamedTuple):
    """One kernel; a file without a correlation or a launch has none."""

    start_ns: int
    end_ns: int
    stream: Stream
    name: str
    full_name: str
    correlation: int
    launch_ns: int
    graph_node: bool
    collective: Collective | None


class CutProcess:
    """One rank, while its events are read: ``about`` is what the file says of it."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.about = about
        self.global_pid = _whole(_whole(about["clock"]) << MACHINE_BITS | _whole(about["pid"]) << 24)
        self.base_ns = _whole(about["base_ns"])
        self.threads = {int(lane): _whole(thread) for lane, thread in about["threads"].items()}
        self.ranges = [
            Range(_whole(start), _end(end), _whole(thread), str(name)) for start, end, thread, name in about["anchors"]
        ]
        self.windows = [(_whole(start), _end(end)) for start, end in about["windows"]]
        low, high = about["on_gpu"] or (0, 0)
        self.on_gpu = _whole(low), _end(high)
        self.kernels: list[CutKernel] = []
        self.communicating_copies: list[CutKernel] = []
        self.calls: list[Api] = []
        self.copies: list[Copy] = []

    @property
    def setup(self) -> Setup:
        """What the trace stated of the rank; its number alone where it stated nothing."""
        number, said = int(self.about["rank"]), self.about["setup"]
        if said is None:
            return Setup(f"rank {number}", number, {}, {})
        return Setup(
            said["text"], number, said["coordinates"], said["sizes"], said["micro_batch"], said["sequence_length"]
        )

    def add(self, event: CutEvent) -> None:
        """A kernel, call, range or copy of the process; any other event is passed over."""
        category, args, name = event.cat, event.args or {}, event.name
        if event.ph != "X" or category not in (KERNEL, CALL, RANGE, COPY):
            return
        start = _whole(self.base_ns + nanoseconds(event.ts))
        end = _whole(start + nanoseconds(event.dur))
        if category == KERNEL:
            kernel = _kernel(name, start, end, args)
            if name in NAMES.values():
                self.communicating_copies.append(kernel._replace(full_name=name))
            else:
                self.kernels.append(kernel)
        elif category == CALL:
            self.calls.append(Api(start, name))
        elif category == COPY:
            self.copies.append(Copy(start, str(args["source"]), str(args["target"]), _whole(args["launch_ns"])))
        else:
            start, end = _whole(args.get("start_ns", start)), _end(args["end_ns"]) if "end_ns" in args else end
            self.ranges.append(Range(start, end, self.threads[int(event.tid)], name))

    def finish(self) -> None:
        """Put everything into the order that its readers count on."""
        self.kernels.sort(key=lambda k: k[:6])
        self.communicating_copies.sort(key=lambda k: k[:6])
        self.calls.sort(key=lambda call: (call.start_ns, call.name))
        self.copies.sort()
        self.ranges.sort(key=lambda r: (r.start_ns, r.end_ns, r.name))

    @property
    def ran(self) -> list[CutKernel]:
        """Kernels, and copies that count as communication."""
        return [*self.kernels, *self.communicating_copies]

    def chosen(self, device: int | None, wanted: Callable[[CutKernel], bool]) -> Kernels:
        """The kernels of one device, or of all, that are wanted."""
        found = [k for k in self.kernels if device in (None, k.stream.device) and wanted(k)]
        names = dict.fromkeys(n for k in found for n in (k.name, k.full_name))
        return _columns(found, {name: i for i, name in enumerate(names)})

    def holds(self, span: Interval) -> bool:
        """Whether all kernels of the span are here: it lies in the windows, or goes from the first to the last."""
        merged: list[Interval] = []
        for start, end in sorted(self.windows):
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        hull = merged[0][0], merged[-1][1]
        return span == hull or any(start <= span[0] and span[1] <= end for start, end in merged)

    def copies_by_device(self) -> dict[int, Kernels]:
        """The copies that count as communication."""
        found: dict[int, list[CutKernel]] = {}
        for copy in self.communicating_copies:
            found.setdefault(copy.stream.device, []).append(copy)
        numbers = {name: i for i, name in NAMES.items()}
        return {device: _columns(own, numbers) for device, own in sorted(found.items())}


def _columns(found: Sequence[CutKernel], names: Mapping[str, int]) -> Kernels:
    streams = {stream: i for i, stream in enumerate(dict.fromkeys(k.stream for k in found))}
    return Kernels(
        start_ns=array("q", [k.start_ns for k in found]),
        end_ns=array("q", [k.end_ns for k in found]),
        correlation=array("q", [k.correlation for k in found]),
        stream=array("q", [streams[k.stream] for k in found]),
        name=array("q", [names[k.name] for k in found]),
        full_name=array("q", [names[k.full_name] for k in found]),
        streams=tuple(streams),
        names={i: name for name, i in names.items()},
        graph_node=bytearray(k.graph_node for k in found),
    )


def _whole(value: Any) -> int:
    """A whole number that a column can hold. Raises ValueError for anything else."""
    if type(value) is not int or not NO_LAUNCH <= value <= OPEN_END_NS:
        raise ValueError("no whole number")
    return value


def _end(end: Any) -> int:
    return OPEN_END_NS if end is None else _whole(end)


def _kernel(name: str, start: int, end: int, args: Mapping[str, Any]) -> CutKernel:
    return CutKernel(
        start,
        end,
        Stream(_whole(args["device"]), _whole(args["context"]), _whole(args["stream"])),
        name,
        str(args.get("demangled", name)),
        _whole(args.get("correlation", NO_LAUNCH)),
        _whole(args.get("launch_ns", NO_LAUNCH)),
        GRAPH_NODE in args,
        _collective(args) if COLLECTIVE["name"] in args else None,
    )


def _collective(args: Mapping[str, Any]) -> Collective:
    said: dict[str, Any] = {field: args[written] for field, written in COLLECTIVE.items() if written in args}
    if any(type(value) is not (int if field in _WHOLE_FIELDS else str) for field, value in said.items()):
        raise ValueError("no collective")
    return Collective(**said)
