"""Reading windows that ``pytest-nsys cut`` wrote: ranks, kernels, launches, ranges and calls are those of its trace.

The file is Chrome's JSON of some megabytes, one process for each rank, whose events are called as torch.profiler calls
them. What no event shows stands under ``CUT``: who the ranks are, the anchors elsewhere in the run, the clock. Where it
holds a base and a head, head is read.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence, Set
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from pytest_nsys.core.errors import NothingMeasured, TraceError
from pytest_nsys.core.model import (
    MACHINE_BITS,
    NO_LAUNCH,
    OPEN_END_NS,
    SINCE_1970,
    Api,
    Collective,
    Copy,
    Diagnostic,
    ImpossibleRows,
    Interval,
    KernelsMode,
    Lane,
    LaunchKind,
    LaunchRecord,
    Note,
    Picked,
    Setup,
    StepsOfRun,
    Tie,
    TraceFacts,
)
from pytest_nsys.core.tables import Kernels, LaunchCalls, Memory, Ranges, Series, StreamWait
from pytest_nsys.core.words import counted, printable
from pytest_nsys.traces.answers import ApiCalls, earliest_calls
from pytest_nsys.traces.chrome.events import EventColumns, GpuRows, nanoseconds
from pytest_nsys.traces.chrome.json_stream import Decoded, EventStream
from pytest_nsys.traces.chrome.kineto import gpu_table
from pytest_nsys.traces.chrome.kineto_said import CollectiveArgs
from pytest_nsys.traces.copies_as_kernels import COPY_ID, NAMES, TRANSFERS, merged, united
from pytest_nsys.traces.from_memory import CollectiveKey, TraceInMemory, by_device

CUT = "pytestNsysCut"
"""The first member of the file, which says what was cut."""
MARK = re.compile(rb'\A\s*\{\s*"' + CUT.encode() + rb'"\s*:')
FORMAT = 1
BASE, HEAD = "base", "head"
AGAIN = "cut it again from its trace"

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


class CutArgs(CollectiveArgs, frozen=True):
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


_WRITTEN = dict(zip(CutArgs.__struct_fields__, CutArgs.__struct_encode_fields__, strict=True))
COLLECTIVE = {member: _WRITTEN[member] for member in Collective._fields}
"""What torch.profiler calls the fields of a Collective; it has no word for what tells two groups of a name apart."""


class CutEvent(Decoded, frozen=True):
    """One event of the file."""

    ph: str
    pid: int
    cat: str | None = None
    name: str = ""
    tid: int = 0
    ts: Raw = Raw()
    dur: Raw = Raw()
    args: CutArgs = CutArgs()

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


class SaidLaunches(msgspec.Struct, frozen=True):
    """A LaunchRecord; ``without`` is a fraction, ``first`` the time, the name, the end and the thread of a call."""

    kind: LaunchKind
    calls: int
    without: tuple[int, int]
    first: tuple[int, str, int, int] | None
    outside: int

    def record(self) -> LaunchRecord:
        """The same as the trace had it."""
        share = Fraction(*self.without)
        without = share.numerator if share.denominator == 1 else share
        return LaunchRecord(self.kind, self.calls, without, self.first and Api(*self.first), self.outside)


class RankView(msgspec.Struct, frozen=True):
    """The windows of one rank that were picked in one way. ``on_gpu``: all kernels of that time are here, too.

    ``launches`` is what became of the calls in the windows, where work of one was lost.
    """

    windows: list[Interval]
    on_gpu: Interval | None
    launches: list[SaidLaunches] = []

    def holds(self, span: Interval) -> bool:
        """Whether all picked of the span is here: it lies in the windows, or goes from the first to the last."""
        merged = united(self.windows)
        (low, _), (_, high) = merged[0], merged[-1]
        if span[0] == low and span[1] in (high, high - 1):  # what begins the unit after a kernel's last is left out
            return True
        return any(start <= span[0] and span[1] <= end for start, end in merged)

    def lies_in(self, span: Interval) -> bool:
        """Whether the span goes from before the windows, where their kernels may have been launched, to their end."""
        return span[0] <= min(self.windows)[0] and max(end for _, end in self.windows) <= span[1]

    def follows(self, span: Interval) -> bool:
        """Whether the span begins where the windows end: what is here of it is what a window needs."""
        return span[0] == (self.on_gpu[1] if self.on_gpu is not None else max(end for _, end in self.windows))


class AboutRank(msgspec.Struct, frozen=True):
    """What the file says of one rank. ``views`` are in the order of those of the file, ``shares`` numbers the GPUs of a
    run in which processes share some, by device.
    """

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
    units: list[tuple[str, bool, list[Interval], list[Interval]]] = []
    shares: dict[int, int] = {}


class About(msgspec.Struct, frozen=True):
    """What the file says of itself. ``diagnostics`` are what the profiler told, ``to_see`` how to capture the sizes of
    collectives, what is allocated, the clock of the SMs, ``on_gpus`` what nvidia-smi said before and after the run,
    ``impossible`` which rows of the traces were left out.
    """

    measured: str
    views: list[Picked]
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
    impossible: ImpossibleRows = ImpossibleRows()


class CutProcess:
    """One rank, while its events are read and after it. Raises ValueError and the like for a changed one."""

    def __init__(self, path: Path, about: AboutRank) -> None:
        self.about, self.global_pid = about, about.clock << MACHINE_BITS | about.pid << 24
        self._events, self._short_names = EventColumns(path), array("q")
        self._as_kernels, self._between_gpus = GpuRows.none(), GpuRows.none()
        self._launches: list[tuple[int, int, int, int]] = []
        self._copies: list[tuple[int | None, Copy]] = []
        self._counters: dict[str, list[tuple[int, int]]] = {MEMORY: [], CLOCK: []}
        self._collectives: dict[CollectiveKey, Collective] = {}
        for start, end, thread, name in about.anchors:
            _put(self._events.ranges, start, _end(end), thread, self._events.names[name])

    def add(self, event: CutEvent) -> None:
        """A kernel, call, range, copy or counter of the process; any other event is passed over."""
        if event.ph == COUNTER and event.name in self._counters:
            self._counters[event.name].append((self.about.base_ns + nanoseconds(event.ts), event.args.value))
        if event.ph != "X" or event.cat not in (KERNEL, CALL, RANGE, COPY, TRANSFER):
            return
        args, events = event.args, self._events
        start = self.about.base_ns + nanoseconds(event.ts)
        end = start + nanoseconds(event.dur)
        if event.cat == CALL:
            _put(events.calls, start, end, self.about.threads.get(event.tid, 0), events.names[event.name], NO_LAUNCH)
        elif event.cat == RANGE:
            start = start if args.start_ns is None else args.start_ns
            end = end if args.end_ns is UNSET else _end(args.end_ns)
            _put(events.ranges, start, end, self.about.threads[event.tid], events.names[event.name])
        elif event.cat == COPY:
            self._copies.append((None, Copy(start, args.source, args.target, args.launch_ns)))
        else:
            self._add_on_gpu(event.cat, event.name, start, end, args)

    def _add_on_gpu(self, category: str, name: str, start: int, end: int, args: CutArgs) -> None:
        """A kernel, a copy that counts as communication, or a copy or memset by its time."""
        if args.device is None or args.context is None or args.stream is None:
            raise ValueError("a kernel that is nowhere")
        correlation = NO_LAUNCH if args.correlation is None else args.correlation
        if args.launch_ns != NO_LAUNCH:
            launched = args.launch_ns, args.launch_ns + args.launch_length_ns, args.launch_thread
            self._launches.append((correlation, *launched))
        names = self._events.names
        if category == TRANSFER:
            rows, number = self._events.transfers, TRANSFER_IDS.get(name, COPY_ID)
            if name not in TRANSFER_IDS:
                between = self._between_gpus
                place = between.places[args.device, args.context, args.stream]
                _put(between, start, end, correlation, place, COPY_NAME_IDS[name], 0)
        elif name in COPY_NAME_IDS:
            rows, number = self._as_kernels, COPY_NAME_IDS[name]
        else:
            rows, number = self._events.kernels, names[name if args.demangled is None else args.demangled]
            self._short_names.append(names[name])
            if args.name is not None:
                said = [getattr(args, member) for member in Collective._fields]
                self._collectives[CollectiveKey(correlation, start)] = Collective(*said)
        place = rows.places[args.device, args.context, args.stream]
        _put(rows, start, end, correlation, place, number, args.graph_node is not None)

    def finish(self, recorded: Set[str]) -> None:
        """Make tables of what was read; ``recorded`` is what the trace had a record of, whatever the rank."""
        events, names = self._events, self._events.names.texts()
        kernels = gpu_table(events.kernels, dict(enumerate(names)), self._short_names, events.kernels.name)
        self.kernels = by_device(kernels)
        self.as_kernels = by_device(gpu_table(self._as_kernels, NAMES, self._as_kernels.name, self._as_kernels.name))
        self.between_gpus = by_device(gpu_table(self._between_gpus, NAMES, *[self._between_gpus.name] * 2))
        self.devices = sorted({*self.kernels, *self.as_kernels})
        correlation, *calls = [array("q", column) for column in zip(*self._launches, strict=True)] or [array("q")] * 4
        self.launches = earliest_calls(correlation, LaunchCalls(*calls))
        self.ranges = Ranges(*events.ranges, names)
        self.calls = ApiCalls(*events.calls, names) if "calls" in recorded else None
        self.copies = self._copies if "copies" in recorded else None
        self.transfers = self._busy() if "transfers" in recorded else None
        levels = Memory(Series.of(self._counters[MEMORY]), self.about.earlier)
        self.memory = dict.fromkeys(self.devices[:1], levels) if "memory" in recorded else None
        self.sm_clocks = Series.of(self._counters[CLOCK]) if "clocks" in recorded else None
        self.collectives = self._collectives if "collectives" in recorded else None
        self.waits = self.about.waits

    def check_calls(self) -> None:
        """The end of every call could be read."""

    def _busy(self) -> Mapping[int, Kernels]:
        """The copies and memsets, with the copies that count as communication."""
        busy = by_device(gpu_table(self._events.transfers, TRANSFERS, *[self._events.transfers.name] * 2))
        copies = by_device(
            gpu_table(self._as_kernels, TRANSFERS, *[array("q", [COPY_ID]) * len(self._as_kernels.start)] * 2)
        )
        parts = {device: [own[device] for own in (busy, copies) if device in own] for device in {*busy, *copies}}
        return {device: own for device, some in parts.items() if (own := merged(some)) is not None}

    def setup(self) -> Setup:
        """What the trace stated of the rank; its number alone where it stated nothing."""
        said = self.about.setup or SaidSetup(f"rank {self.about.rank}", {}, {}, None, None)
        return Setup(rank=self.about.rank, **msgspec.structs.asdict(said))


def _put(rows: Sequence[Any], *values: int) -> None:
    for column, value in zip(rows, values, strict=False):
        column.append(value)


def _end(end: int | None) -> int:
    return OPEN_END_NS if end is None else end


RECORDS = ("calls", "copies", "transfers", "memory", "clocks", "collectives")
"""What a rank's ``AboutRank`` says was on record."""


class CutTrace(TraceInMemory):
    """One file; the :class:`~pytest_nsys.core.trace.Trace` of this format."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def close(self) -> None:
        """Let go what was read; reading on reads it again."""
        self.__dict__.pop("_content", None)

    @cached_property
    def _content(self) -> tuple[About, dict[int, CutProcess]]:
        """What was cut, and its ranks by serialised process id."""
        stream = EventStream(self.path, CutEvent)
        try:
            events = [event for part in stream for event in part]
            if stream.members[CUT]["format"] != FORMAT:
                raise TraceError(f"{self.path}: was cut by another version of pytest-nsys: {AGAIN}")
            about = msgspec.convert(stream.members[CUT], About, str_keys=True)
            ranks = {one.pid: CutProcess(self.path, one) for one in about.processes if one.side != BASE}
            for event in events:
                if event.pid in ranks:
                    ranks[event.pid].add(event)
            recorded = {what for what in RECORDS if any(getattr(rank.about, what) for rank in ranks.values())}
            for rank in ranks.values():
                rank.finish(recorded)
        except (msgspec.MsgspecError, KeyError, OverflowError, TypeError, ValueError):
            raise TraceError(
                f"{self.path}: is not a complete cut of pytest-nsys: it was changed or truncated; {AGAIN}"
            ) from None
        return about, {rank.global_pid: rank for rank in ranks.values()}

    @property
    def about(self) -> About:
        """What was cut, under which convention. Raises TraceError."""
        return self._content[0]

    @property
    def processes(self) -> Mapping[int, CutProcess]:
        """The ranks. Raises TraceError."""
        return self._content[1]

    def facts(self) -> TraceFacts:
        """What the trace said of its profiler and GPUs, and that this is no whole trace."""
        about, told = self.about, [rank.about for rank in self.processes.values()]
        sizes, memory, clocks = about.to_see
        both = "; it holds base and head, and head is read" if {p.side for p in about.processes} > {HEAD} else ""
        return TraceFacts(
            has_kernels=bool(self.lanes()),
            profiler_version=next((p.profiler for p in told if p.profiler is not None), None),
            gpus={(p.pid, device): model for p in told for device, model in p.gpus.items()},
            models=sorted({model for p in told for model in p.models}),
            uuids={(p.pid, device): f"{self.path} {number}" for p in told for device, number in p.shares.items()},
            whole_graphs=max((p.whole_graphs for p in told), default=0),
            diagnostics=[Diagnostic(text, text) for text in about.diagnostics],
            notes=(f"{self.path}: is a cut ({about.measured}, convention {about.convention}){both}", *self._lost()),
            files=about.files,
            on_gpus=about.on_gpus,
            units=self._units(),
            views=about.views,
            impossible=about.impossible,
            sessions_ns={pid: s for pid, r in self.processes.items() if (s := r.about.session_ns) is not None},
            ties={p.clock: p.tie for p in told if p.tie is not None},
            zeros_ns={p.clock: zero for p in told if (zero := p.zero_ns or 0) in SINCE_1970 or p.zero_ns == 0},
            to_see_kernels=AGAIN,
            to_see_ranges=AGAIN,
            to_see_sizes=sizes,
            to_see_memory=memory,
            to_see_clocks=clocks,
        )

    def _units(self) -> Mapping[tuple[int, str, bool], StepsOfRun]:
        return {
            (pid, anchor, by_launch): StepsOfRun(on_host, on_gpu)
            for pid, rank in self.processes.items()
            for anchor, by_launch, on_host, on_gpu in rank.about.units
        }

    def _lost(self) -> Iterator[str]:
        """Ranks that shared a process are apart in a cut, so that compute of one blocks none of the other."""
        for rank in self.processes.values():
            over = sum(
                w.recorded_on is not None and w.recorded_on.device not in rank.devices for w in rank.about.waits or ()
            )
            if over:
                waits = counted(over, "wait")
                yield f"{self.path}: {waits} of rank {rank.about.rank} on another GPU of its process cannot be followed"

    def setups(self) -> Mapping[int, Setup]:
        """Every rank by its number, also where the trace had none; nothing where their order alone says as much."""
        ranks = [self.processes[lane.global_pid].about for lane in self.lanes()]
        if all(rank.setup is None for rank in ranks) and [rank.rank for rank in ranks] == [*range(len(self.processes))]:
            return {}
        return {pid: rank.setup() for pid, rank in self.processes.items()}

    def lanes(self) -> Sequence[Lane]:
        """Every (process, device) that ran a kernel, or a copy that counts as communication."""
        return sorted(Lane(pid, device) for pid, rank in self.processes.items() for device in rank.devices)

    def library_kernels(self) -> Set[tuple[str, str]]:
        """The names of the kernels of known communication libraries, those elsewhere in the run too."""
        return {*self.about.libraries, *super().library_kernels()}

    def idle(self, spans: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
        """Those of the spans that were idle in the trace: a cut keeps the kernels of its windows alone."""
        known = {lane: {*self.processes[lane.global_pid].about.idle} for lane in spans}
        found = {lane: [span for span in own if span in known[lane]] for lane, own in spans.items()}
        return {lane: own for lane, own in found.items() if own}

    def ranges(self, patterns: Sequence[str]) -> Mapping[int, Ranges]:
        """The anchors and setup labels of the run.

        Raises NothingMeasured for another pattern: of other ranges only those around the window are here.
        """
        about = self.about
        if others := [pattern for pattern in patterns if pattern not in about.ranges]:
            raise NothingMeasured(
                f"{self.path}: is a cut ({about.measured}, convention {about.convention}), which does not hold "
                f"all ranges like '{printable(others[0], 80)}': measure under that convention, or on the trace"
            )
        return super().ranges(patterns)

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that touch its span.

        Raises NothingMeasured where more is asked for than the file holds: that would be another number.
        """
        about = self.about
        if None in spans.values() and not self._whole_run:
            raise NothingMeasured(
                f"{self.path}: is a cut ({about.measured}), and this needs the whole run: measure it on the trace"
            )
        self._check_held(spans, launched=False)
        return super().kernels(spans)

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that were launched in its span, edges included. Raises as :meth:`kernels` does."""
        self._check_held(spans, launched=True)
        return super().kernels_launched(spans)

    @property
    def _whole_run(self) -> bool:
        return any(view.whole_run for view in self.about.views)

    def _check_held(self, spans: Mapping[Lane, Interval | None], *, launched: bool) -> None:
        for lane, span in spans.items() if not self._whole_run else ():
            rank = self.processes.get(lane.global_pid)
            views = () if rank is None else zip(self.about.views, rank.about.views, strict=True)
            if span is None or not any(_holds(how, view, span, launched=launched) for how, view in views):
                raise NothingMeasured(
                    f"{self.path}: is a cut ({self.about.measured}), and does not hold all kernels of this window: "
                    "measure the same window, span and kernels, or measure on the trace; a cut for a gate file is "
                    "made by pytest-nsys cut --gate FILE TRACES"
                )

    def launch_records(
        self, spans: Mapping[int, Interval | None], _kernels: Mapping[Lane, Kernels], /
    ) -> Mapping[int, Sequence[LaunchRecord]]:
        """What the trace had on record of the calls in the windows that a span holds: of others a cut holds no call."""
        found: dict[int, Sequence[LaunchRecord]] = {}
        views = [(pid, view) for pid, rank in self.processes.items() for view in rank.about.views]
        for pid, view in views:
            span = spans.get(pid)
            if view.launches and (self._whole_run if span is None else view.holds(span) or view.lies_in(span)):
                found.setdefault(pid, [said.record() for said in view.launches])
        return found

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """The copies that counted as communication.

        Raises NothingMeasured where other kinds of copies did: those of these kinds may not all be here.
        """
        about = self.about
        if set(about.copies) != set(kinds):
            raise NothingMeasured(
                f"{self.path}: is a cut ({about.measured}, convention {about.convention}) with "
                f"{', '.join(map(printable, about.copies)) or 'no'} copies as communication, not {', '.join(kinds)}: "
                "measure under that convention, or on the trace"
            )
        each = ((pid, rank.as_kernels.items()) for pid, rank in self.processes.items())
        return {Lane(pid, device): copies for pid, own in each for device, copies in own}

    def copies_between_gpus(self) -> Mapping[Lane, Kernels]:
        """Those around the windows that did not count as communication."""
        each = ((pid, rank.between_gpus.items()) for pid, rank in self.processes.items())
        return {Lane(pid, device): copies for pid, own in each for device, copies in own}


def _holds(how: Picked, view: RankView, span: Interval, *, launched: bool) -> bool:
    """Whether all kernels of a span are here: of windows of launches also those that ran while theirs did."""
    by_launch = how.kernels is KernelsMode.LAUNCHED
    if by_launch and not launched and span == view.on_gpu:
        return True
    return (not launched and view.follows(span)) or (by_launch is launched and view.holds(span))
