"""What does a cut hold of one rank? Its kernels, ranges, calls and copies, in the columns of torch.profiler."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from pytest_nsys.core.model import (
    MACHINE_BITS,
    NO_LAUNCH,
    OPEN_END_NS,
    Collective,
    Copy,
    Interval,
    Lane,
    Memory,
    Note,
    Setup,
    Tie,
)
from pytest_nsys.core.series import Series
from pytest_nsys.core.tables import Kernels, LaunchCalls, StreamWait
from pytest_nsys.traces.answers import CallTable, earliest_calls
from pytest_nsys.traces.chrome.json_stream import Written
from pytest_nsys.traces.chrome.kineto import CollectiveArgs, Kineto
from pytest_nsys.traces.chrome.kineto_columns import Columns
from pytest_nsys.traces.chrome.kineto_content import Content
from pytest_nsys.traces.chrome.kineto_events import nanoseconds
from pytest_nsys.traces.chrome.kineto_kernels import copies_by_device
from pytest_nsys.traces.copies_as_kernels import COPY_ID, NAMES, TRANSFERS, together, touching_span, united

KERNEL, CALL, RANGE, COPY = "kernel", "cuda_runtime", "user_annotation", "gpu_memcpy"
"""Categories of the events that are read back, as torch.profiler calls them."""
TRANSFER = "transfer"
"""And of copies and memsets by the time for which they kept the GPU busy; a copy is there by its launch."""
COUNTER = "C"
"""Phase of an event that shows a number from its time on."""
MEMORY, CLOCK = "allocated bytes", "SM clock in Hz"
"""Counters, by name."""
GRAPH_NODE = "graph node id"
COPY_NAME_IDS = {name: number for number, name in NAMES.items()}
TRANSFER_IDS = {name: number for number, name in TRANSFERS.items()}


class Args(CollectiveArgs, frozen=True):
    """What the event of a kernel, a copy or a range says of it; of a collective torch.profiler's words are used."""

    members: str | None = field(default=None, name="Process Group Members")
    device: int | None = None
    context: int | None = None
    stream: int | None = None
    launch_ns: int = NO_LAUNCH
    launch_length_ns: int = 0
    launch_thread: int = 0
    demangled: str | None = None
    graph_node: object = field(default=None, name=GRAPH_NODE)
    start_ns: int | None = None
    end_ns: int | UnsetType | None = UNSET
    source: str = ""
    target: str = ""
    value: int = 0


_WRITTEN = dict(zip(Args.__struct_fields__, Args.__struct_encode_fields__, strict=True))
COLLECTIVE = {member: _WRITTEN[member] for member in Collective._fields}
"""What torch.profiler calls the fields of a Collective; it has no word for what tells two groups of a name apart."""


class CutEvent(Written, frozen=True):
    """One event of the file."""

    ph: str
    pid: int
    cat: str | None = None
    name: str = ""
    tid: int = 0
    ts: Raw = Raw()
    dur: Raw = Raw()
    args: Args = Args()

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """As msgspec would have it: nobody but us writes these files. Raises ValidationError."""
        return msgspec.json.decode(json.dumps(found), type=cls)


class SaidSetup(msgspec.Struct, frozen=True):
    """What the trace stated of a rank: a Setup, whose number is that of the run."""

    text: str
    coordinates: dict[str, int]
    sizes: dict[str, int]
    micro_batch: int | None
    sequence_length: int | None


class AboutView(msgspec.Struct, frozen=True):
    """How windows were picked, in words. ``launched``: their kernels by their launches."""

    measured: str
    whole_run: bool
    launched: bool


class RankView(msgspec.Struct, frozen=True):
    """The windows of one rank that were picked in one way. ``on_gpu``: all kernels of that time are here, too."""

    windows: list[Interval]
    on_gpu: Interval | None

    def holds(self, span: Interval) -> bool:
        """Whether all picked of the span is here: it lies in the windows, or goes from the first to the last."""
        merged = united(self.windows)
        hull = merged[0][0], merged[-1][1]
        return span == hull or any(start <= span[0] and span[1] <= end for start, end in merged)

    def follows(self, span: Interval) -> bool:
        """Whether the span begins where the windows end: what is here of it is what a window needs."""
        return span[0] == (self.on_gpu[1] if self.on_gpu is not None else max(end for _, end in self.windows))


class AboutRank(msgspec.Struct, frozen=True):
    """What the file says of one rank. ``views`` are in the order of those of the file."""

    pid: int
    side: str
    rank: int
    setup: SaidSetup | None
    base_ns: int
    clock: int
    gpus: dict[int, str]
    models: list[str]
    profiler: str | None
    whole_graphs: int
    calls: bool
    copies: bool
    collectives: bool
    threads: dict[int, int]
    views: list[RankView]
    anchors: list[tuple[int, int | None, int, str]]
    transfers: bool
    memory: bool
    earlier: int
    clocks: bool
    waits: list[StreamWait] | None
    zero_ns: int | None
    tie: Tie | None
    session_ns: int | None
    idle: list[Interval]


class About(msgspec.Struct, frozen=True):
    """What the file says of itself. ``diagnostics`` are what the profiler told, ``to_see`` how to capture the sizes of
    collectives, what is allocated, the clock of the SMs, ``on_gpus`` what nvidia-smi said before and after the run.
    """

    measured: str
    views: list[AboutView]
    convention: str
    fingerprint: str
    ranges: list[str]
    files: int
    processes: list[AboutRank]
    diagnostics: list[str]
    to_see: tuple[str, str, str]
    on_gpus: list[Note]
    copies: list[str] = []
    libraries: list[tuple[str, str]] = []
    mapping: dict[str, Any] | None = None


class CutContent(Content):
    """The events of one rank, while they are read and after it. Raises ValueError and the like for a changed one."""

    def __init__(self, path: Path, about: AboutRank) -> None:
        self.path, self.about = path, about
        self.pid, self.global_pid = about.pid, about.clock << MACHINE_BITS | about.pid << 24
        self.columns, self._as_kernels = Columns(path), Columns(path)
        self._short_names = array("i")
        self._launches: dict[int, int] = {}
        self._calls: list[tuple[int, int, int, int]] = []
        self.copies: list[Copy] = []
        self.counters: dict[str, list[tuple[int, int]]] = {MEMORY: [], CLOCK: []}
        self.collectives: dict[tuple[int, int, tuple[int, int, int]], Collective] = {}
        for start, end, thread, name in about.anchors:
            self.columns.put_range(start, _end(end), thread, name)

    def add(self, event: CutEvent) -> None:
        """A kernel, call, range, copy or counter of the process; any other event is passed over."""
        if event.ph == COUNTER and event.name in self.counters:
            self.counters[event.name].append((self.about.base_ns + nanoseconds(event.ts), event.args.value))
        if event.ph != "X" or event.cat not in (KERNEL, CALL, RANGE, COPY, TRANSFER):
            return
        args, name = event.args, event.name
        start = self.about.base_ns + nanoseconds(event.ts)
        end = start + nanoseconds(event.dur)
        if event.cat == KERNEL:
            self._add_kernel(name, start, end, args)
        elif event.cat == CALL:
            self.columns.put_call(start, end, self.about.threads.get(event.tid, 0), NO_LAUNCH, name)
        elif event.cat == COPY:
            self.copies.append(Copy(start, args.source, args.target, args.launch_ns))
        elif event.cat == TRANSFER:
            correlation = NO_LAUNCH if args.correlation is None else args.correlation
            self.columns.put_transfer(start, end, correlation, _place(args), TRANSFER_IDS[name], name)
            self._add_launch(correlation, args)
        else:
            start = start if args.start_ns is None else args.start_ns
            end = end if args.end_ns is UNSET else _end(args.end_ns)
            self.columns.put_range(start, end, self.about.threads[event.tid], name)

    def _add_kernel(self, name: str, start: int, end: int, args: Args) -> None:
        place = _place(args)
        correlation = NO_LAUNCH if args.correlation is None else args.correlation
        node = args.graph_node is not None
        self._add_launch(correlation, args)
        if name in COPY_NAME_IDS:
            self._as_kernels.put_kernel(start, end, correlation, place, name, node)
            return
        full = name if args.demangled is None else args.demangled
        self.columns.put_kernel(start, end, correlation, place, full, node)
        self._short_names.append(self.columns.names[name])
        if correlation != NO_LAUNCH:
            self._launches[correlation] = args.launch_ns
        if args.name is not None:
            said = [getattr(args, member) for member in Collective._fields]
            self.collectives[start, end, place] = Collective(*said)

    def finish(self) -> None:
        """Put everything into the order that its readers count on."""
        self._index(self._short_names)
        for correlation, launch_ns in self._launches.items():
            self.launches.see(correlation, launch_ns)
        self.copies.sort()

    def _add_launch(self, correlation: int, args: Args) -> None:
        if args.launch_ns != NO_LAUNCH:
            end = args.launch_ns + args.launch_length_ns
            self._calls.append((correlation, args.launch_ns, end, args.launch_thread))

    @cached_property
    def calls(self) -> CallTable:
        """The launches of kernels, copies and memsets."""
        correlation, *calls = [array("q", column) for column in zip(*self._calls, strict=True)] or [array("q")] * 4
        return earliest_calls(correlation, LaunchCalls(*calls))

    @cached_property
    def as_kernels(self) -> Mapping[int, Kernels]:
        """The copies that count as communication, by device."""
        return copies_by_device(self._as_kernels, COPY_NAME_IDS.__getitem__)


class CutRank(Kineto):
    """One rank, asked as a trace of torch.profiler is. Its events go to ``content``."""

    def __init__(self, path: Path, about: AboutRank) -> None:
        super().__init__(path)
        self.about, self.content = about, CutContent(path, about)

    @property
    def _content(self) -> CutContent:
        return self.content

    def setups(self) -> Mapping[int, Setup]:
        """What the trace stated of the rank; its number alone where it stated nothing."""
        said = self.about.setup or SaidSetup(f"rank {self.about.rank}", {}, {}, None, None)
        return {self.content.global_pid: Setup(rank=self.about.rank, **msgspec.structs.asdict(said))}

    def lanes(self) -> Sequence[Lane]:
        """Every device that ran a kernel, or a copy that counts as communication."""
        devices = sorted({*self.content.kernels, *self.content.as_kernels})
        return [Lane(self.content.global_pid, device) for device in devices]

    def copies(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Sequence[Copy]]:
        """The copies of each lane that were launched in its span."""
        own = {lane: span for lane, span in spans.items() if lane.global_pid == self.content.global_pid}
        found = {n: [c for c in self.content.copies if a <= c.launch_ns <= b] for n, (a, b) in own.items()}
        return {lane: copies for lane, copies in found.items() if copies}

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:  # noqa: ARG002  all that it has
        """The copies that count as communication, by device."""
        return {Lane(self.content.global_pid, device): own for device, own in self.content.as_kernels.items()}

    def transfers(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """The copies and memsets that touch the span, with the copies that count as communication."""
        copies = super().transfers(spans) or {}
        counted = {
            lane: touching_span(_named(kernels, COPY_ID), span)
            for lane, span in spans.items()
            for place, kernels in self.copies_as_kernels(()).items()
            if lane in (place, Lane(place.global_pid, None))
        }
        return together(copies, counted)

    def memory(self) -> Mapping[Lane, Memory]:
        """What the rank had allocated in the windows."""
        levels = Series.of(self.content.counters[MEMORY])
        return {lane: Memory(levels, self.about.earlier) for lane in self.lanes()[:1]}

    def sm_clocks(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Series]:
        """Samples of the SM clock in the windows."""
        samples = Series.of(self.content.counters[CLOCK])
        return {lane: samples for lane in spans if lane.global_pid == self.content.global_pid}

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[Collective | None]]:
        """For each kernel what its trace recorded of it as a collective."""
        known = self.content.collectives
        return {
            lane: [
                known.get((start, end, some.streams[stream]))
                for start, end, stream in zip(some.start_ns, some.end_ns, some.stream, strict=True)
            ]
            for lane, some in kernels.items()
            if lane.global_pid == self.content.global_pid
        }


def _named(kernels: Kernels, name: int) -> Kernels:
    """The same, all of them with the name of a transfer."""
    names = array("q", [name]) * len(kernels)
    return replace(kernels, name=names, full_name=names, names=TRANSFERS)


def _place(args: Args) -> tuple[int, int, int]:
    if args.device is None or args.context is None or args.stream is None:
        raise ValueError("a kernel that is nowhere")
    return args.device, args.context, args.stream


def _end(end: int | None) -> int:
    return OPEN_END_NS if end is None else end
