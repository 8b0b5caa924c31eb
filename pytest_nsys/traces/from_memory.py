"""A trace that is in memory: every question of the protocol is answered from the tables of its processes.

A reader fills a :class:`Process` for each process of its file, and says of itself what no table holds: its facts, which
ranks it states, and which copies stand for communication.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.conventions import like
from pytest_nsys.core.families import known_communication
from pytest_nsys.core.model import NO_LAUNCH, Api, Collective, Copy, Interval, Lane
from pytest_nsys.core.tables import NO_KERNELS, Kernels, LaunchCalls, Memory, Ranges, Series, StreamWait
from pytest_nsys.traces.answers import ApiCalls, CallTable, idle_among, named_ranges, not_by_nccl
from pytest_nsys.traces.copies_as_kernels import merged, touching_span

T = TypeVar("T")


class CollectiveKey(NamedTuple):
    """Which kernel of a process: those of one CUDA graph share their correlation, but not their start."""

    correlation: int
    start_ns: int


class Process(Protocol):
    """What a trace holds of one process; None stands for what it has no record of, and is a class attribute where the
    format never has one.

    What takes a further pass over the file, or may be damaged without harm to those who do not ask, is read when it is
    asked for. Raises TraceError then.
    """

    @property
    def kernels(self) -> Mapping[int, Kernels]:
        """By device, ordered by start."""

    @property
    def launches(self) -> CallTable:
        """The launch of each correlation, of copies and memsets too; ``answers.EMPTY`` where no call is on record."""

    @property
    def ranges(self) -> Ranges:
        """In any order."""

    @property
    def calls(self) -> ApiCalls | None: ...

    @property
    def copies(self) -> Sequence[tuple[int | None, Copy]] | None:
        """Each with its device; None: nothing says."""

    @property
    def transfers(self) -> Mapping[int, Kernels] | None:
        """By device, named as ``Trace.transfers`` does, ordered by start."""

    @property
    def waits(self) -> Sequence[StreamWait] | None:
        """In the order of their place."""

    @property
    def memory(self) -> Mapping[int, Memory] | None:
        """By device."""

    @property
    def sm_clocks(self) -> Series | None: ...

    @property
    def collectives(self) -> Mapping[CollectiveKey, Collective] | None: ...

    def check_calls(self) -> None:
        """Raises TraceError where the end of a call is damaged."""


class TraceInMemory:
    """What all traces whose processes are in memory answer alike; see :class:`~pytest_nsys.core.trace.Trace`."""

    path: Path

    @property
    def processes(self) -> Mapping[int, Process]:
        """What is in the file, by serialised process id. Raises TraceError."""
        raise NotImplementedError

    def _known(self, ask: Callable[[Process], T | None]) -> dict[int, T] | None:
        """The answers of the processes that have one; None where none has."""
        found = {pid: answer for pid, process in self.processes.items() if (answer := ask(process)) is not None}
        return found or None

    def _on_device(self, tables: Callable[[Process], Mapping[int, T] | None], lane: Lane) -> Iterator[T]:
        """The tables of the devices of a lane."""
        process = self.processes.get(lane.global_pid)
        for device, own in ((process and tables(process)) or {}).items():
            if lane.device in (None, device):
                yield own

    def unasked(self) -> Set[int]:
        """None: a trace is of few processes, and all are asked for."""
        return frozenset()

    def lanes(self) -> Sequence[Lane]:
        """Every (process, device) that ran a kernel, ordered."""
        return sorted(Lane(pid, device) for pid, process in self.processes.items() for device in process.kernels)

    def library_kernels(self) -> Set[tuple[str, str]]:
        """The names of the kernels of known communication libraries."""
        found: set[tuple[str, str]] = set()
        for process in self.processes.values():
            for kernels in process.kernels.values():
                _, pairs = columns.distinct(kernels.name, kernels.full_name)
                found |= {(kernels.names[short], kernels.names[full]) for short, full in pairs}
        return {pair for pair in found if known_communication(*pair) is not None}

    # -- ranges

    def ranges(self, patterns: Sequence[str]) -> Mapping[int, Ranges]:
        """The ranges whose name matches a pattern, open ones too."""
        matches = [like(pattern) for pattern in patterns]

        def wanted(name: str) -> bool:
            return any(match(name) for match in matches)

        return _named({pid: process.ranges for pid, process in self.processes.items()}, wanted)

    def ranges_around(self, spans: Mapping[int, Interval]) -> Mapping[int, Ranges]:
        """The ranges of each process that touch its span, open ones included, NCCL's own left out."""
        each = ((pid, process.ranges) for pid, process in self.processes.items() if pid in spans)
        touching = {pid: own.take(columns.touching(own.start_ns, own.end_ns, *spans[pid])) for pid, own in each}
        return _named(touching, not_by_nccl)

    def module_calls(self) -> Mapping[int, Ranges]:
        """None: few profilers record the calls of modules."""
        return {}

    def common_range_names(self, global_pid: int) -> Sequence[tuple[str, int]]:
        """The names that most ranges of a process have, with their counts."""
        if (process := self.processes.get(global_pid)) is None:
            return ()
        names, counts = process.ranges.names, Counter(process.ranges.name)
        return sorted(((names[i], n) for i, n in counts.items()), key=lambda item: (-item[1], item[0]))

    # -- kernels

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that touch its span; None: all of them."""
        return self._touching(lambda process: process.kernels, spans)

    def transfers(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels] | None:
        """The copies and memsets of each lane that touch its span; None where nothing says when they ran."""
        if self._known(lambda process: process.transfers) is None:
            return None
        return self._touching(lambda process: process.transfers, spans)

    def _touching(
        self, tables: Callable[[Process], Mapping[int, Kernels] | None], spans: Mapping[Lane, Interval | None]
    ) -> dict[Lane, Kernels]:
        each = {
            lane: [touching_span(own, span) for own in self._on_device(tables, lane)] for lane, span in spans.items()
        }
        return _merged(each)

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that have a launch row starting in its span, edges included."""
        found: dict[Lane, list[Kernels]] = {}
        for lane, span in spans.items():
            for own in self._on_device(lambda process: process.kernels, lane):
                launch_ns = self._launch_ns(lane, own)
                found.setdefault(lane, []).append(own.take(columns.touching(launch_ns, launch_ns, *span)))
        return _merged(found)

    def idle(self, spans: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
        """Those of the spans of each lane, which stand by start, in which no kernel runs; at an edge none does."""
        kernels = self.kernels({lane: (own[0][0], own[-1][1]) for lane, own in spans.items()})
        found: dict[Lane, Sequence[Interval]] = {}
        for lane, own in spans.items():
            some = kernels.get(lane, NO_KERNELS)
            if idle := idle_among(some.start_ns, some.end_ns, own):
                found[lane] = idle
        return found

    # -- launches and other calls

    def _launch_ns(self, lane: Lane, kernels: Kernels) -> Column:
        return self.processes[lane.global_pid].launches.starts_of(kernels.correlation)

    def launch_calls(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
        """The earliest call of each kernel."""
        found: dict[Lane, LaunchCalls] = {}
        for lane, some in kernels.items():
            process = self.processes[lane.global_pid]
            process.check_calls()
            found[lane] = process.launches.of(some.correlation)
        return found

    def stream_waits(self) -> Mapping[int, Sequence[StreamWait]] | None:
        """Every stream-wait by process, in the order of its place; None where there is none on record."""
        return self._known(lambda process: process.waits)

    def api_calls(self, name_globs: Sequence[str], spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Api]] | None:
        """The calls whose name matches a glob and that start in the span, one per correlation; None: without record."""
        known = self._known(lambda process: process.calls)
        return (
            None
            if known is None
            else {
                pid: sorted(_called(calls, name_globs, spans[pid]), key=lambda call: (call.start_ns, call.name))
                for pid, calls in known.items()
                if pid in spans
            }
        )

    def copies(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Sequence[Copy]] | None:
        """The copies of each lane that were launched in its span; None where nothing says what they join."""
        known = self._known(lambda process: process.copies)
        if known is None:
            return None
        found = {
            lane: sorted(
                copy
                for device, copy in known.get(lane.global_pid, ())
                if (device is None or lane.device in (None, device)) and low <= copy.launch_ns <= high
            )
            for lane, (low, high) in spans.items()
        }
        return {lane: own for lane, own in found.items() if own}

    # -- what is recorded beside them

    def memory(self) -> Mapping[Lane, Memory] | None:
        """What each process had allocated on each device; None where nothing says it."""
        known = self._known(lambda process: process.memory)
        return (
            None
            if known is None
            else {Lane(pid, device): own for pid, each in known.items() for device, own in each.items()}
        )

    def sm_clocks(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Series] | None:
        """Samples of the SM clock of each lane; None where there are none on record."""
        known = self._known(lambda process: process.sm_clocks)
        return None if known is None else {lane: known[lane.global_pid] for lane in spans if lane.global_pid in known}

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[Collective | None]] | None:
        """What is recorded of each kernel as a collective; None where nothing is of any."""
        known = self._known(lambda process: process.collectives)
        return (
            None
            if known is None
            else {
                lane: [
                    known[lane.global_pid].get(CollectiveKey(*key))
                    for key in zip(some.correlation, some.start_ns, strict=True)
                ]
                for lane, some in kernels.items()
                if lane.global_pid in known
            }
        )


def by_device(everything: Kernels) -> dict[int, Kernels]:
    """The kernels of each device, ordered by start and end."""
    order = columns.order(everything.start_ns, everything.end_ns)
    devices = columns.take(array("q", [stream.device for stream in everything.streams]), everything.stream)
    rows = columns.members_by(lambda device: device, devices, among=order)
    return {device: everything.take(own) for device, own in sorted(rows.items())}


def _named(ranges: Mapping[int, Ranges], wanted: Callable[[str], bool]) -> dict[int, Ranges]:
    """The ranges of each process with a name that is wanted, by start, end and name."""
    found: dict[int, Ranges] = {}
    for pid, own in ranges.items():
        flags = bytearray(map(wanted, own.names))
        some = own.take(columns.where(columns.take(flags, own.name)))  # few of very many, mostly
        if len(some):
            known, columns_of = dict(enumerate(own.names)), (some.start_ns, some.end_ns, some.thread, some.name)
            found[pid] = named_ranges(known, *columns_of, wanted=wanted)
    return found


def _called(calls: ApiCalls, name_globs: Sequence[str], span: Interval) -> Iterator[Api]:
    """The calls whose name matches and that start in the span: of those of one correlation the earliest."""
    wanted = array("q", [any(fnmatchcase(name, glob) for glob in name_globs) for name in calls.names])
    rows = columns.where(columns.take(wanted, calls.name))
    starts = columns.take(calls.start_ns, rows)
    rows = columns.take(rows, columns.touching(starts, starts, *span))
    earliest: dict[tuple[int, bool], int] = {}
    for i in sorted(rows, key=calls.start_ns.__getitem__):
        alone = calls.correlation[i] == NO_LAUNCH
        earliest.setdefault((i if alone else calls.correlation[i], alone), i)
    for i in earliest.values():
        yield Api(calls.start_ns[i], calls.names[calls.name[i]], calls.end_ns[i], calls.thread[i])


def _merged(parts: Mapping[Lane, Sequence[Kernels]]) -> dict[Lane, Kernels]:
    """The kernels of all parts of a lane; a lane without any is absent."""
    each = {lane: merged([part for part in own if len(part)]) for lane, own in parts.items()}
    return {lane: own for lane, own in each.items() if own is not None}
