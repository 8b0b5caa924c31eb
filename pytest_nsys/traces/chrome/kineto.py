"""Reading a torch.profiler (Kineto) trace, of 2021 to 2.13, of CUDA and ROCm: one file is one process, or was merged of
several (``merged.py``), each of which is read as if it had a file of its own.

The file is passed once, in blocks, when something is first asked, and what counts of it is kept in columns: about a
tenth of the file's size. Its rank is what ``distributedInfo`` says, else what the file's name does; where the process
groups of a device mesh (``mesh_pp``, ``mesh_tp`` …) span the world, the coordinates are read off them. The last
``ProfilerStep#`` is often incomplete: the profiler stopped inside it, or before its kernels had run.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from fractions import Fraction
from functools import cached_property, partial, reduce
from itertools import pairwise, zip_longest
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.conventions import CopyKind
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.families import short_name
from pytest_nsys.core.model import (
    MACHINE_BITS,
    NO_LAUNCH,
    OPEN_END_NS,
    SINCE_1970,
    Api,
    Collective,
    Copy,
    ImpossibleRows,
    Interval,
    Lane,
    LaunchRecord,
    Setup,
    Stream,
    TraceFacts,
)
from pytest_nsys.core.tables import Kernels, LaunchCalls, Memory, Place, Ranges, StreamWait, each_once
from pytest_nsys.core.words import counted
from pytest_nsys.traces.answers import ApiCalls, CallTable, earliest_calls
from pytest_nsys.traces.chrome.events import (
    CALL,
    FUNCTIONS,
    KERNEL,
    WAIT,
    CallRows,
    Event,
    EventColumns,
    GpuRows,
    Wait,
    arrow_starts,
)
from pytest_nsys.traces.chrome.json_stream import EventStream
from pytest_nsys.traces.chrome.kineto_said import (
    is_of_amd,
    kind_of,
    memories_of,
    messages_of,
    models_of,
    read_collectives,
    read_empty_copies,
    read_memory,
    read_module_calls,
    setup_of,
    setup_of_name,
    version_of,
)
from pytest_nsys.traces.chrome.merged import (
    UNLABELLED,
    by_label,
    describe_labels,
    in_order,
    number_of,
    ranks_of,
)
from pytest_nsys.traces.copies_as_kernels import (
    BETWEEN_GPUS,
    COPY_ID,
    NAME_IDS,
    NAMES,
    TRANSFERS,
    kinds_to_read,
    told_apart,
)
from pytest_nsys.traces.from_memory import CollectiveKey, TraceInMemory, by_device
from pytest_nsys.traces.launch_records import Recorded, is_of_a_capture, lacking_of, records_of
from pytest_nsys.traces.other_profilers import describe_device, describe_missing_gpu

STEP = re.compile(r"ProfilerStep\*?#\d+")
GRAPH_LAUNCH = "GraphLaunch"
LAUNCHES = re.compile(r"LaunchKernel|GraphLaunch|LaunchCooperativeKernel")
TO_SEE_KERNELS = "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on a step that uses the GPU"
TO_SEE_LAUNCHED = "let no other profiler trace the GPU, and call torch.cuda.synchronize() before the profiler stops"
TO_SEE_MEMORY = "profile with profile_memory=True"
TO_SEE_SIZES = (
    "the kernels have no argument 'Collective name', which torch.profiler writes since torch 2.2 where "
    "ProfilerActivity.CPU is on"
)
WITHOUT_CLOCKS = "torch.profiler samples no clocks"
TO_SEE_CLOCKS = f"{WITHOUT_CLOCKS}: capture with nsys and --gpu-metrics-devices=all"
TO_SEE_RANGES = "profile with ProfilerActivity.CPU, call prof.step(), and mark the step with record_function"
WITH_STACK = "with_stack=True"
"""It records each call of a Python function."""


PID_BITS = 0xFFFFFF
MOST_NUMBERED_TWICE = 0.01
"""The share of correlations that may have two calls and two kernels: in one process one call launches one kernel."""


class FurtherPasses:
    """What few measurements ask for: each takes a pass of its own over the file, for all its processes at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def memory(self) -> Mapping[str, Mapping[int, Memory]]:
        """What was allocated, by label and device."""
        return read_memory(self.path)

    @cached_property
    def collectives(self) -> Mapping[str, Mapping[CollectiveKey, Collective]]:
        """What is recorded of kernels as collectives, by label."""
        return read_collectives(self.path)

    @cached_property
    def module_calls(self) -> Mapping[str, Ranges]:
        """The calls of modules, by label."""
        return read_module_calls(self.path)

    @cached_property
    def empty_copies(self) -> Mapping[str, Set[int]]:
        """The correlations of calls that copy 0 bytes, by label."""
        return read_empty_copies(self.path)


class Content(NamedTuple):
    """What one pass over a file found: its events by label, and what the root says beside them."""

    path: Path
    parts: Mapping[str, EventColumns]
    members: Mapping[str, Any]


def read_content(path: Path) -> Content:
    """What counts of a file. Raises TraceError."""
    stream = EventStream(path, Event)
    parts = {UNLABELLED: EventColumns(path)}
    for some in stream:
        for label, own in by_label(some).items():
            if label not in parts:
                parts[label] = EventColumns(path)
            parts[label].add(own)
    check_events(stream)
    with_work = {label: own for label, own in parts.items() if own.has_work}
    return Content(path, with_work or {UNLABELLED: parts[UNLABELLED]}, stream.members)


def check_events(stream: EventStream[Any]) -> None:
    """Raises TraceError for a file that was passed, and has no list of events."""
    if not stream.has_events:
        raise TraceError(f"{stream.path}: is JSON, but holds no traceEvents: it is not a trace")


class KinetoProcess:
    """What counts of one process: of a file, or of a label in a file that was merged. Raises TraceError."""

    STEP = STEP
    sm_clocks = None

    def __init__(
        self,
        content: Content,
        further: FurtherPasses,
        label: str = UNLABELLED,
        machine: int = 0,
        number: int | None = None,
    ) -> None:
        """``machine`` tells processes of one file apart: each keeps its number, and is taken to have its own clock.

        ``number`` is that of a process of a cut, whose steps were looked at in its trace.
        """
        self.path, self.label, self.members = content.path, label, content.members
        self._events = events = content.parts[label]
        self._further = further
        self._check_single()
        self._leave_out_untimed()
        is_whole, number = number is None, self._number() if number is None else number
        self.pid, self.global_pid = number & PID_BITS, machine << MACHINE_BITS | number << 24
        short_names = short_names_of(events)
        self.names = events.names.texts()
        self._mark_graphs()
        self._lacking = self._lacking_replays()
        kernels, events.kernels = events.kernels, GpuRows.none()._replace(places=events.kernels.places)
        self.kernels = by_device(gpu_table(kernels, dict(enumerate(self.names)), short_names, kernels.name))
        ran = columns.values(kernels.correlation)
        del kernels, short_names  # from here on they are kept in order alone
        if columns.exceeds(events.calls.correlation[:-1], events.calls.correlation[1:]):
            order = columns.order(events.calls.correlation)
            events.calls = CallRows(*(columns.take(column, order) for column in events.calls))
        self.calls = ApiCalls(*events.calls, self.names) if events.calls.start else None
        self.launches = self._launches(ran)
        self._check_numbers()
        self.ranges = Ranges(*events.ranges, self.names)
        self.started_ns = self._started()
        self.notes = tuple(self._about_steps(ran)) if is_whole else ()

    def _check_single(self) -> None:
        """Raises TraceError where the events are those of several processes that no label tells apart."""
        if (number := len(self._events.call_pids)) > 1:
            raise self._merged(f"holds API calls of {number} processes, whose correlations cannot be told apart")
        if self._events.ends > 1:
            raise self._merged(f"holds the ends of {self._events.ends} recordings under one process number")

    def _check_numbers(self) -> None:
        """Raises TraceError where calls and the kernels that they launched have the numbers of others."""
        calls = self._events.calls
        if len(self.launches.ids) >= len(calls.correlation):
            return
        called, ran = Counter(calls.correlation), Counter[int]()
        for kernels in self.kernels.values():
            ran.update(columns.take(kernels.correlation, columns.where_not(kernels.graph_node)))
        twice = sum(count > 1 and called[number] > 1 for number, count in ran.items() if number != NO_LAUNCH)
        if twice > MOST_NUMBERED_TWICE * len(ran):
            raise self._merged(f"has {counted(twice, 'correlation')} with two calls and two kernels each")

    def _merged(self, what: str) -> TraceError:
        return TraceError(f"{self.path}: {what}: a merged trace; give the file of each rank")

    def _leave_out_untimed(self) -> None:
        """Of a clock that counts from 1970, what starts in 1970 was not timed."""
        starts, base = self._events.kernels.start, self.members.get("baseTimeNanoseconds", 0)
        if starts and type(base) is int and base + columns.bounds(starts)[1] in SINCE_1970:
            self._events.leave_out_at(-base)

    def _number(self) -> int:
        """What tells the process from others."""
        pids = self._events.call_pids or self._events.range_pids
        return min((n for pid in pids if (n := number_of(pid)) is not None), default=0) & PID_BITS

    def _called(self, rows: Column, wanted: Callable[[str], object]) -> Column:
        """Where in a column of names a wanted one stands."""
        return columns.where(columns.take(bytearray(bool(wanted(name)) for name in self.names), rows))

    def _mark_graphs(self) -> None:
        """Kernels that share the correlation of a graph's launch came from that graph."""
        kernels, calls = self._events.kernels, self._events.calls
        launching = self._called(calls.name, lambda name: GRAPH_LAUNCH in name)
        graphs = columns.values(columns.take(calls.correlation, launching))
        of_graph = columns.joined(graphs, array("q", [c != NO_LAUNCH for c in graphs]), 0, kernels.correlation)
        for i in columns.where(of_graph):
            kernels.graph_node[i] = 1

    def _lacking_replays(self) -> Mapping[int, Fraction]:
        """The missing share of each replay of a graph that ran less than another one."""
        each = (self._events.kernels, self._events.transfers)
        graphs = columns.chained([rows.graph for rows in each])
        own = columns.where(graphs)
        correlations = columns.chained([rows.correlation for rows in each])
        return lacking_of(columns.take(graphs, own), columns.take(correlations, own))

    def _launches(self, ran: Column) -> CallTable:
        """The earliest call by correlation. Kernels that no call launched may have an arrow from one, whose start is
        all that is known of it: that takes a second pass, which few files need.
        """
        start, end, thread, _, correlation = self._events.calls
        calls = LaunchCalls(start, end, thread)
        unique = NO_LAUNCH not in correlation[:1] and len(columns.values(correlation)) == len(correlation)
        table = CallTable(correlation, calls) if unique else earliest_calls(correlation, calls)
        without = columns.where(columns.equal(columns.joined(table.ids, table.ids, NO_LAUNCH, ran), NO_LAUNCH))
        arrows = [*self._arrows({ran[i] for i in without} - {NO_LAUNCH})]
        if not arrows:
            return table
        numbers, starts = (array("q", column) for column in zip(*arrows, strict=True))
        calls = LaunchCalls(start + starts, end + starts, thread + array("q", bytes(8 * len(starts))))
        return earliest_calls(correlation + numbers, calls)

    def _arrows(self, wanted: Set[int]) -> Iterator[tuple[int, int]]:
        """Correlation and start of the arrows that lead to wanted kernels."""
        for events in EventStream(self.path, Event) if wanted else ():
            yield from arrow_starts(by_label(events).get(self.label, ()), wanted)

    def _started(self) -> int | None:
        """When the first kernel or range began, in ns since 1970; None where the file does not say.

        Times count from ``baseTimeNanoseconds``; before there was such a member they counted from 1970.
        """
        starts = [kernels.start_ns[0] for kernels in self.kernels.values()]
        if self.ranges.start_ns:
            starts.append(columns.bounds(self.ranges.start_ns)[0])
        if not starts:
            return None
        base = self.members.get("baseTimeNanoseconds")
        if type(base) is int:
            return base + min(starts)
        return min(starts) if min(starts) in SINCE_1970 else None

    @property
    def zero_ns(self) -> int | None:
        """The moment from which times count, in ns since 1970; None where the file does not say."""
        base = self.members.get("baseTimeNanoseconds", 0)
        plausible = self.started_ns is not None and self.started_ns in SINCE_1970
        return base if type(base) is int and plausible else None

    def _about_steps(self, ran: Column) -> Iterator[str]:
        """The last step is left out where it is incomplete and not the only one: as an open range it is no anchor."""
        start, end, _, name = self._events.ranges
        found = sorted(self._called(name, self.STEP.fullmatch), key=lambda i: (start[i], end[i], self.names[name[i]]))
        described = self._steps(found, ran)
        for step, after in pairwise(described):
            if step.name == after.name and after.start_ns < step.end_ns and STEP.fullmatch(step.name):
                raise self._merged(f"is in {step.name} twice at one time under one process number")
        why = why_incomplete(described, self._events.recorded_until_ns)
        if why is None:
            return
        if len(found) > 1:
            end[found[-1]] = OPEN_END_NS
            yield f"{self.path}: the last step, {described[-1].name}, is incomplete and left out: {why}"
        else:
            yield f"{self.path}: the only step, {described[-1].name}, is incomplete: {why}"

    def _steps(self, found: Sequence[int], ran: Column) -> list[ProfilerStep]:
        calls, ranges = self._events.calls, self._events.ranges
        launching = self._called(calls.name, LAUNCHES.search)
        every = columns.take(calls.start, launching)
        known = columns.joined(ran, ran, NO_LAUNCH, columns.take(calls.correlation, launching))
        gone = columns.take(every, columns.where(columns.equal(known, NO_LAUNCH)))
        every, gone = (columns.take(some, columns.order(some)) for some in (every, gone))
        steps = []
        for i, after in zip_longest(found, found[1:]):
            start, end = ranges.start[i], ranges.end[i]
            # of steps that overlap, a launch belongs to the last that has begun
            until = end if after is None else min(end, ranges.start[after] - 1)
            counts = (bisect_right(some, until) - bisect_left(some, start) for some in (every, gone))
            steps.append(ProfilerStep(self.names[ranges.name[i]], start, end, *(max(n, 0) for n in counts)))
        return steps

    @property
    def all_waits(self) -> Sequence[Wait]:
        """The waits of streams as they are written."""
        return self._events.waits

    @property
    def categories(self) -> Set[str | None]:
        """The categories of the events in the file."""
        return self._events.categories

    @property
    def impossible(self) -> ImpossibleRows:
        """The operations that were left out, for their times cannot be."""
        return self._events.impossible

    @property
    def launched(self) -> int:
        """How many calls launched a kernel, or a graph of them."""
        return len(self._called(self._events.calls.name, LAUNCHES.search))

    # -- what few ask for, and may be damaged without harm to others

    def _refuse_damaged(self, *kinds: str) -> None:
        for (kind, _), error in self._events.damaged.items():
            if kind in kinds:
                raise error

    def check_calls(self) -> None:
        """Raises TraceError where the end of a call is damaged."""
        self._refuse_damaged(CALL)

    @property
    def recorded(self) -> Recorded:
        """What of its calls' work is on record."""
        kernels = columns.values(columns.chained([array("q"), *(own.correlation for own in self.kernels.values())]))
        others = columns.values(self._events.transfers.correlation)
        asked = (partial(self._kernel_calls, kernels), self._captures, self._empty_copies)
        return Recorded(kernels, others, self._lacking, lambda: [kernels], *asked)

    def _kernel_calls(self, kernels: Column) -> Interval | None:
        """From the first call that launched one of the kernels to the last."""
        starts = self.launches.starts_of(kernels)
        known = columns.take(starts, columns.where_not(columns.equal(starts, NO_LAUNCH)))
        return columns.bounds(known) if known else None

    def _captures(self) -> Iterator[Api]:
        rows = self._called(self._events.calls.name, is_of_a_capture)
        return ApiCalls(*self._events.calls, self.names).take(rows).rows()

    def _empty_copies(self) -> Set[int]:
        return self._further.empty_copies.get(self.label, frozenset())

    @cached_property
    def transfers(self) -> Mapping[int, Kernels]:
        """The copies and memsets of each device, ordered by start. Raises TraceError for a damaged one."""
        self._refuse_damaged(*TRANSFERS.values())
        rows, kind = self._events.transfers, self._events.transfer_kind
        return by_device(gpu_table(rows._replace(graph_node=bytearray(len(kind))), TRANSFERS, kind, kind))

    @cached_property
    def copies(self) -> Sequence[tuple[int | None, Copy]]:
        """The copies, whose names say which memories they are between; without a launch by their own start."""
        rows = self._events.transfers
        devices = [device for device, _, _ in rows.places]
        launches, memories = self.launches.starts_of(rows.correlation), [memories_of(name) for name in self.names]
        found: list[tuple[int | None, Copy]] = []
        for i in columns.where(columns.equal(self._events.transfer_kind, COPY_ID)):
            start = rows.start[i]
            called = start if launches[i] == NO_LAUNCH else launches[i]
            found.append((devices[rows.place[i]], Copy(start, *memories[rows.name[i]], called)))
        return found

    def copies_as_kernels(self, kinds: Set[CopyKind]) -> dict[int, Kernels]:
        """The copies of these kinds, each as a kernel, by device. Raises TraceError for a damaged one."""
        for (what, name), error in self._events.damaged.items():
            if what in (KERNEL, TRANSFERS[COPY_ID]) and kind_of(name) in kinds:
                raise error
        rows = self._events.transfers
        called = (kind_of(name) for name in self.names)
        ids = array("q", [NAME_IDS[kind] if kind is not None and kind in kinds else 0 for kind in called])
        named = columns.take(ids, rows.name)
        copies = columns.where(columns.equal(self._events.transfer_kind, COPY_ID))
        chosen = columns.take(copies, columns.where(columns.take(named, copies)))
        return by_device(gpu_table(rows, NAMES, named, named).take(chosen))

    @cached_property
    def waits(self) -> Sequence[StreamWait] | None:
        """Every stream-wait in the order of its place; None where there is none. Raises TraceError."""
        self._refuse_damaged(WAIT)
        events = self._events
        places = (*events.kernels.places, *events.transfers.places)
        return (
            stream_waits(events.waits, self.launches.starts(), (Stream(*p) for p in places)) if events.waits else None
        )

    @cached_property
    def memory(self) -> Mapping[int, Memory] | None:
        """What was allocated on each device; None where no event says it."""
        return self._further.memory.get(self.label)

    @cached_property
    def collectives(self) -> Mapping[CollectiveKey, Collective] | None:
        """What the arguments of kernels record: torch.profiler writes it for most kernels of NCCL, not for all."""
        return self._further.collectives.get(self.label)

    @cached_property
    def module_calls(self) -> Ranges:
        """The calls of modules: a further pass, over a file that has any call of Python's functions."""
        known = self._further.module_calls if FUNCTIONS in self.categories else {}
        return known.get(self.label, Ranges.of(()))


class Kineto(TraceInMemory):
    """One trace; the :class:`~pytest_nsys.core.trace.Trace` of this format."""

    def __init__(self, path: Path, numbers: Mapping[int, int] | None = None) -> None:
        """``numbers`` are those of the processes of a cut by their machine."""
        self.path, self.numbers = path, numbers or {}

    def close(self) -> None:
        """Let go what was read; reading on reads it again."""
        self.__dict__.pop("processes", None)

    @cached_property
    def processes(self) -> Mapping[int, KinetoProcess]:
        """What is in the file, by serialised process id. Raises TraceError."""
        content = read_content(self.path)
        further = FurtherPasses(self.path)
        each = (
            KinetoProcess(content, further, label, machine, self.numbers.get(machine))
            for machine, label in enumerate(in_order(content.parts))
        )
        return {process.global_pid: process for process in each}

    @property
    def members(self) -> Mapping[str, Any]:
        """The root's members: those of the first rank where the file was merged."""
        return next(iter(self.processes.values())).members

    def facts(self) -> TraceFacts:
        """Version, GPU models, the profiler's own messages, and what became of the last step."""
        members, each = self.members, self.processes.values()
        models = models_of(members)
        started = [process.started_ns for process in each if process.started_ns is not None]
        zeros = {pid >> MACHINE_BITS: process.zero_ns for pid, process in self.processes.items()}
        return TraceFacts(
            has_kernels=bool(self.lanes()),
            profiler_version=version_of(members),
            gpus={(own.pid, device): models[device] for own in each for device in own.kernels if device in models},
            models=sorted(set(models.values())),
            whole_graphs=0,
            diagnostics=messages_of(members),
            notes=[*self._about_labels(), *(note for process in each for note in process.notes)],
            to_see_kernels=self._to_see_kernels(),
            to_see_ranges=TO_SEE_RANGES,
            to_see_calls="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on all ranks",
            to_see_sizes=TO_SEE_SIZES,
            to_see_memory=TO_SEE_MEMORY,
            to_see_clocks=WITHOUT_CLOCKS if is_of_amd(members) else TO_SEE_CLOCKS,
            started_ns=min(started, default=None),
            zeros_ns={None if len(each) == 1 else own: zero for own, zero in zeros.items() if zero is not None},
            files=len(each),
            slows_host=WITH_STACK if members.get("with_stack") else "",
            impossible=reduce(ImpossibleRows.and_, (process.impossible for process in each), ImpossibleRows()),
        )

    def _labels(self) -> list[str]:
        return [process.label for process in self.processes.values()]

    def _about_labels(self) -> Iterator[str]:
        if len(labels := self._labels()) > 1:
            yield f"{self.path}: was merged of {counted(len(labels), 'rank')}: {describe_labels(labels)}"

    def _to_see_kernels(self) -> str:
        """What to do where nothing ran on a GPU: by the device that it is of, or that kernels were launched."""
        each = self.processes.values()
        if any(process.kernels for process in each):
            return TO_SEE_KERNELS
        if (device := describe_device({category for own in each for category in own.categories})) is not None:
            return device
        launched = sum(process.launched for process in each)
        return describe_missing_gpu(launched, TO_SEE_LAUNCHED) if launched else TO_SEE_KERNELS

    def module_calls(self) -> Mapping[int, Ranges]:
        """Those that torch.profiler recorded, with ``with_stack`` or ``with_modules``."""
        each = ((pid, process.module_calls) for pid, process in self.processes.items())
        return {pid: calls for pid, calls in each if len(calls)}

    def launch_records(
        self, spans: Mapping[int, Interval | None], _kernels: Mapping[Lane, Kernels], /
    ) -> Mapping[int, Sequence[LaunchRecord]] | None:
        """Of the calls that launch work and start in the span of each process, how much work is on record."""
        calling = {pid: own for pid, own in self.processes.items() if own.calls is not None}
        each = {
            pid: records_of(own.calls, own.recorded, spans.get(pid))
            for pid, own in calling.items()
            if own.calls is not None
        }
        return {pid: found for pid, found in each.items() if found} if calling else None

    def setups(self) -> Mapping[int, Setup]:
        """The rank that ``distributedInfo`` names, else the file's name. Of a file that was merged the labels name
        them: what its root says is of the first one.
        """
        said = setup_of(self.members)
        if len(self.processes) == 1:
            setup = said or setup_of_name(self.path.name)
            return {} if setup is None else dict.fromkeys(self.processes, setup)
        world = prod(said.sizes.values()) if said is not None and said.sizes else None
        ranks = ranks_of(self._labels(), world)
        sizes = {} if world is None else {"world": world}
        return {
            pid: Setup(f"process {own.label}: rank {ranks[own.label]}", ranks[own.label], {}, sizes)
            for pid, own in self.processes.items()
            if ranks
        }

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """All copies of these kinds, each named for its kind, by device."""
        each = ((pid, own.copies_as_kernels({*kinds_to_read(kinds)})) for pid, own in self.processes.items())
        return told_apart(self, {Lane(pid, device): some for pid, own in each for device, some in own.items()}, kinds)

    def copies_between_gpus(self) -> Mapping[Lane, Kernels]:
        """The copies to another GPU, and those that a collective launched."""
        return self.copies_as_kernels(BETWEEN_GPUS)


def gpu_table(rows: GpuRows, names: Mapping[int, str], name: Column, full_name: Column) -> Kernels:
    """Rows in any order as kernels with these names."""
    return Kernels(
        start_ns=rows.start,
        end_ns=rows.end,
        correlation=rows.correlation,
        stream=rows.place,
        name=name,
        full_name=full_name,
        streams=tuple(Stream(*place) for place in rows.places),
        names=names,
        graph_node=rows.graph_node,
    )


def short_names_of(events: EventColumns) -> Column:
    """The numbers of the kernels' short names."""
    full, texts = columns.values(events.kernels.name), events.names.texts()
    short = array("q", [events.names[short_name(texts[number])] for number in full])
    return columns.joined(full, short, 0, events.kernels.name)


class ProfilerStep(NamedTuple):
    """One ``ProfilerStep#``: ``launches`` of kernels inside it, and how many of them have no kernel."""

    name: str
    start_ns: int
    end_ns: int
    launches: int
    lost: int


def why_incomplete(steps: Sequence[ProfilerStep], recorded_until_ns: int | None) -> str | None:
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


def stream_waits(waits: Iterable[Wait], calls: Mapping[int, int], streams: Iterable[Stream]) -> Sequence[StreamWait]:
    """The waits with their records, in the order of their place: both stand where their calls start.

    ``calls`` has the start of each call by correlation, ``streams`` are those that ran something.
    """
    known: dict[int, set[Stream]] = {}
    for stream in streams:
        known.setdefault(stream.number, set()).add(stream)
    found = []
    for wait in waits:
        own, at, record = wait.stream, wait.at, wait.record
        if at.correlation in calls:
            at = at._replace(launch_ns=calls[at.correlation])
        if record in calls and record is not None and wait.on_stream is not None and min(record, wait.on_stream) >= 0:
            # A number is all that is said of the other stream: it may be of another device.
            beside = own._replace(number=wait.on_stream)
            called_so = known.get(wait.on_stream, {beside})
            recorded_on = beside if beside in called_so else min(called_so)
            found.append(StreamWait(own, at, recorded_on, Place(calls[record], record)))
        else:
            found.append(StreamWait(own, at))
    return each_once(found)
