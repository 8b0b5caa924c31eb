"""How is a torch.profiler (Kineto) trace of 2021 to 2.13, of CUDA or ROCm, read as the trace of its processes?

One file is one process, or was merged of several (``rank_labels.py``), each of which is read as if it had a file of its
own. The file is read once, in blocks, when something is first asked of it, and what counts is kept in columns: about a
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
"""The option of torch.profiler that records each call of a Python function."""


PID_BITS = 0xFFFFFF
MOST_NUMBERED_TWICE = 0.01  # in one process one call launches one kernel
"""The share of correlations that may have two calls and two kernels each in the trace of one process."""


class FurtherPasses:
    """Reads what few measurements ask for, each in one more pass over the file, for all its processes at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def memory(self) -> Mapping[str, Mapping[int, Memory]]:
        """The allocated memory over time, by label and device."""
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
    """Holds what one pass over a file found: its events by the label of their process, and the other members of its
    root.
    """

    path: Path
    parts: Mapping[str, EventColumns]  # by label; only processes in which something ran, where there is one
    members: Mapping[str, Any]


def read_content(path: Path) -> Content:
    """Read the events of a file into columns, by the label of their process. Raises TraceError."""
    stream = EventStream(path, Event)
    columns_by_label = {UNLABELLED: EventColumns(path)}
    for events in stream:
        for label, label_events in by_label(events).items():
            if label not in columns_by_label:
                columns_by_label[label] = EventColumns(path)
            columns_by_label[label].add(label_events)
    check_events(stream)
    with_work = {label: event_columns for label, event_columns in columns_by_label.items() if event_columns.has_work}
    return Content(path, with_work or {UNLABELLED: columns_by_label[UNLABELLED]}, stream.members)


def check_events(stream: EventStream[Any]) -> None:
    """Check that a file that was read has a list of events. Raises TraceError where it has none."""
    if not stream.has_events:
        raise TraceError(f"{stream.path}: is JSON, but holds no traceEvents: it is not a trace")


class KinetoProcess:
    """Holds what a trace records of one process: of a file, or of one label in a merged file. Raises TraceError."""

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
        """Read the columns of the process with this label.

        ``machine`` tells processes of one file apart: each keeps its number, and is taken to have its own clock.
        ``number`` is given for a process of a cut, whose steps were checked when it was cut out of its trace.
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
        ran_correlations = columns.values(kernels.correlation)
        del kernels, short_names  # from here on they are kept in order alone
        if columns.exceeds(events.calls.correlation[:-1], events.calls.correlation[1:]):
            order = columns.order(events.calls.correlation)
            events.calls = CallRows(*(columns.take(column, order) for column in events.calls))
        self.calls = ApiCalls(*events.calls, self.names) if events.calls.start else None
        self.launches = self._launches(ran_correlations)
        self._check_numbers()
        self.ranges = Ranges(*events.ranges, self.names)
        self.started_ns = self._started()
        self.notes = tuple(self._about_steps(ran_correlations)) if is_whole else ()

    def _check_single(self) -> None:
        """Check that the events are those of one process. Raises TraceError where no label tells several apart."""
        if (number := len(self._events.call_pids)) > 1:
            raise self._merged(f"holds API calls of {number} processes, whose correlations cannot be told apart")
        if self._events.ends > 1:
            raise self._merged(f"holds the ends of {self._events.ends} recordings under one process number")

    def _check_numbers(self) -> None:
        """Check that calls and kernels share no correlation by chance. Raises TraceError where those of several
        processes do.
        """
        calls = self._events.calls
        if len(self.launches.ids) >= len(calls.correlation):
            return
        call_counts, kernel_counts = Counter(calls.correlation), Counter[int]()
        for kernels in self.kernels.values():
            kernel_counts.update(columns.take(kernels.correlation, columns.where_not(kernels.graph_node)))
        doubled_count = sum(
            count > 1 and call_counts[number] > 1 for number, count in kernel_counts.items() if number != NO_LAUNCH
        )
        if doubled_count > MOST_NUMBERED_TWICE * len(kernel_counts):
            raise self._merged(f"has {counted(doubled_count, 'correlation')} with two calls and two kernels each")

    def _merged(self, what: str) -> TraceError:
        return TraceError(f"{self.path}: {what}: a merged trace; give the file of each rank")

    def _leave_out_untimed(self) -> None:
        """Leave out the operations that the profiler did not time."""
        # An operation that the profiler did not time has time 0: on a clock that counts from 1970 it starts in 1970.
        starts, base_ns = self._events.kernels.start, self.members.get("baseTimeNanoseconds", 0)
        if starts and type(base_ns) is int and base_ns + columns.bounds(starts)[1] in SINCE_1970:
            self._events.leave_out_at(-base_ns)

    def _number(self) -> int:
        """Return the number that tells the process from others."""
        pids = self._events.call_pids or self._events.range_pids
        return min((n for pid in pids if (n := number_of(pid)) is not None), default=0) & PID_BITS

    def _called(self, rows: Column, wanted: Callable[[str], object]) -> Column:
        """Return the rows of a column of names whose name is wanted."""
        return columns.where(columns.take(bytearray(bool(wanted(name)) for name in self.names), rows))

    def _mark_graphs(self) -> None:
        """Mark the kernels that share the correlation of a graph's launch as kernels of that graph."""
        kernels, calls = self._events.kernels, self._events.calls
        graph_launches = self._called(calls.name, lambda name: GRAPH_LAUNCH in name)
        launch_correlations = columns.values(columns.take(calls.correlation, graph_launches))
        is_graph_kernel = columns.joined(
            launch_correlations, array("q", [c != NO_LAUNCH for c in launch_correlations]), 0, kernels.correlation
        )
        for i in columns.where(is_graph_kernel):
            kernels.graph_node[i] = 1

    def _lacking_replays(self) -> Mapping[int, Fraction]:
        """Return the missing share of each replay of a graph that ran less than another replay of it."""
        tables = (self._events.kernels, self._events.transfers)
        graphs = columns.chained([rows.graph for rows in tables])
        graph_rows = columns.where(graphs)
        correlations = columns.chained([rows.correlation for rows in tables])
        return lacking_of(columns.take(graphs, graph_rows), columns.take(correlations, graph_rows))

    def _launches(self, ran: Column) -> CallTable:
        """Return the earliest call of each correlation."""
        # Kernels that no call launched may have an arrow from one, whose start is all that is known of it: finding the
        # arrows takes a second pass, which few files need.
        start, end, thread, _, correlation = self._events.calls
        calls = LaunchCalls(start, end, thread)
        is_unique = NO_LAUNCH not in correlation[:1] and len(columns.values(correlation)) == len(correlation)
        table = CallTable(correlation, calls) if is_unique else earliest_calls(correlation, calls)
        unlaunched_rows = columns.where(columns.equal(columns.joined(table.ids, table.ids, NO_LAUNCH, ran), NO_LAUNCH))
        arrows = [*self._arrows({ran[i] for i in unlaunched_rows} - {NO_LAUNCH})]
        if not arrows:
            return table
        numbers, starts = (array("q", column) for column in zip(*arrows, strict=True))
        calls = LaunchCalls(start + starts, end + starts, thread + array("q", bytes(8 * len(starts))))
        return earliest_calls(correlation + numbers, calls)

    def _arrows(self, wanted: Set[int]) -> Iterator[tuple[int, int]]:
        """Yield the correlation and the start in ns of the arrows that lead to kernels with these correlations."""
        for events in EventStream(self.path, Event) if wanted else ():
            yield from arrow_starts(by_label(events).get(self.label, ()), wanted)

    def _started(self) -> int | None:
        """Return when the first kernel or range began, in ns since 1970; None where the file does not say."""
        starts = [kernels.start_ns[0] for kernels in self.kernels.values()]
        if self.ranges.start_ns:
            starts.append(columns.bounds(self.ranges.start_ns)[0])
        if not starts:
            return None
        # Before torch wrote ``baseTimeNanoseconds`` times counted from 1970.
        base_ns = self.members.get("baseTimeNanoseconds")
        if type(base_ns) is int:
            return base_ns + min(starts)
        return min(starts) if min(starts) in SINCE_1970 else None

    @property
    def zero_ns(self) -> int | None:
        """The moment from which times count, in ns since 1970; None where the file does not say."""
        base_ns = self.members.get("baseTimeNanoseconds", 0)
        is_plausible = self.started_ns is not None and self.started_ns in SINCE_1970
        return base_ns if type(base_ns) is int and is_plausible else None

    def _about_steps(self, ran: Column) -> Iterator[str]:
        """Leave out the last step where it is incomplete and not the only one. Yield a note on an incomplete step.

        Raises TraceError where a step runs twice at one time, as in the traces of two ranks.
        """
        start, end, _, name = self._events.ranges
        step_rows = sorted(
            self._called(name, self.STEP.fullmatch), key=lambda i: (start[i], end[i], self.names[name[i]])
        )
        steps = self._steps(step_rows, ran)
        for step, next_step in pairwise(steps):
            if step.name == next_step.name and next_step.start_ns < step.end_ns and STEP.fullmatch(step.name):
                raise self._merged(f"is in {step.name} twice at one time under one process number")
        reason = why_incomplete(steps, self._events.recorded_until_ns)
        if reason is None:
            return
        if len(step_rows) > 1:
            end[step_rows[-1]] = OPEN_END_NS  # an open range is no anchor
            yield f"{self.path}: the last step, {steps[-1].name}, is incomplete and left out: {reason}"
        else:
            yield f"{self.path}: the only step, {steps[-1].name}, is incomplete: {reason}"

    def _steps(self, found: Sequence[int], ran: Column) -> list[ProfilerStep]:
        """Return the profiler steps of these ranges, with their launches and how many of them have no kernel."""
        calls, ranges = self._events.calls, self._events.ranges
        launch_rows = self._called(calls.name, LAUNCHES.search)
        launch_starts = columns.take(calls.start, launch_rows)
        kernel_correlations = columns.joined(ran, ran, NO_LAUNCH, columns.take(calls.correlation, launch_rows))
        lost_starts = columns.take(launch_starts, columns.where(columns.equal(kernel_correlations, NO_LAUNCH)))
        launch_starts, lost_starts = (
            columns.take(starts, columns.order(starts)) for starts in (launch_starts, lost_starts)
        )
        steps = []
        for i, next_row in zip_longest(found, found[1:]):
            start, end = ranges.start[i], ranges.end[i]
            # of steps that overlap, a launch belongs to the last that has begun
            last_ns = end if next_row is None else min(end, ranges.start[next_row] - 1)
            counts = (
                bisect_right(starts, last_ns) - bisect_left(starts, start) for starts in (launch_starts, lost_starts)
            )
            steps.append(ProfilerStep(self.names[ranges.name[i]], start, end, *(max(n, 0) for n in counts)))
        return steps

    @property
    def all_waits(self) -> Sequence[Wait]:
        """The stream-waits as the trace writes them."""
        return self._events.waits

    @property
    def categories(self) -> Set[str | None]:
        """The categories of the events in the file."""
        return self._events.categories

    @property
    def impossible(self) -> ImpossibleRows:
        """The operations that were left out because their times are impossible."""
        return self._events.impossible

    @property
    def launched(self) -> int:
        """The number of calls that launched a kernel, or a graph of kernels."""
        return len(self._called(self._events.calls.name, LAUNCHES.search))

    # -- what few ask for, and may be damaged without harm to others

    def _refuse_damaged(self, *kinds: str) -> None:
        """Raise the first damage that was found in events of these kinds."""
        for (kind, _), error in self._events.damaged.items():
            if kind in kinds:
                raise error

    def check_calls(self) -> None:
        """Check that the ends of calls can be read. Raises TraceError where one is damaged."""
        self._refuse_damaged(CALL)

    @property
    def recorded(self) -> Recorded:
        """The work of the process's calls that is on record."""
        kernels = columns.values(
            columns.chained([array("q"), *(device_kernels.correlation for device_kernels in self.kernels.values())])
        )
        transfers = columns.values(self._events.transfers.correlation)
        lazy_parts = (partial(self._kernel_calls, kernels), self._captures, self._empty_copies)
        return Recorded(kernels, transfers, self._lacking, lambda: [kernels], *lazy_parts)

    def _kernel_calls(self, kernels: Column) -> Interval | None:
        """Return the time from the first call that launched one of the kernels to the last; None where no call is
        known.
        """
        starts = self.launches.starts_of(kernels)
        known_starts = columns.take(starts, columns.where_not(columns.equal(starts, NO_LAUNCH)))
        return columns.bounds(known_starts) if known_starts else None

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
        """The copies with their devices; a name says which memories a copy is between, and one without a launch counts
        from its own start.
        """
        rows = self._events.transfers
        devices = [device for device, _, _ in rows.places]
        launches, memories = self.launches.starts_of(rows.correlation), [memories_of(name) for name in self.names]
        copies: list[tuple[int | None, Copy]] = []
        for i in columns.where(columns.equal(self._events.transfer_kind, COPY_ID)):
            start = rows.start[i]
            launch_ns = start if launches[i] == NO_LAUNCH else launches[i]
            copies.append((devices[rows.place[i]], Copy(start, *memories[rows.name[i]], launch_ns)))
        return copies

    def copies_as_kernels(self, kinds: Set[CopyKind]) -> dict[int, Kernels]:
        """Return the copies of these kinds as kernels, by device. Raises TraceError for a damaged one."""
        for (damaged_kind, name), error in self._events.damaged.items():
            if damaged_kind in (KERNEL, TRANSFERS[COPY_ID]) and kind_of(name) in kinds:
                raise error
        rows = self._events.transfers
        kinds_by_name = (kind_of(name) for name in self.names)
        ids = array("q", [NAME_IDS[kind] if kind is not None and kind in kinds else 0 for kind in kinds_by_name])
        kernel_names = columns.take(ids, rows.name)
        copies = columns.where(columns.equal(self._events.transfer_kind, COPY_ID))
        chosen_rows = columns.take(copies, columns.where(columns.take(kernel_names, copies)))
        return by_device(gpu_table(rows, NAMES, kernel_names, kernel_names).take(chosen_rows))

    @cached_property
    def waits(self) -> Sequence[StreamWait] | None:
        """The stream-waits in the order of their place; None where there is none. Raises TraceError."""
        self._refuse_damaged(WAIT)
        events = self._events
        places = (*events.kernels.places, *events.transfers.places)
        return (
            stream_waits(events.waits, self.launches.starts(), (Stream(*p) for p in places)) if events.waits else None
        )

    @cached_property
    def memory(self) -> Mapping[int, Memory] | None:
        """The allocated memory of each device over time; None where no event says it."""
        return self._further.memory.get(self.label)

    @cached_property
    def collectives(self) -> Mapping[CollectiveKey, Collective] | None:
        """What the arguments of kernels record; torch.profiler writes it for most kernels of NCCL, not for all."""
        return self._further.collectives.get(self.label)

    @cached_property
    def module_calls(self) -> Ranges:
        """The calls of modules; read in one more pass, and only over a file that has calls of Python's functions."""
        calls_by_label = self._further.module_calls if FUNCTIONS in self.categories else {}
        return calls_by_label.get(self.label, Ranges.of(()))


class Kineto(TraceInMemory):
    """Answers what is asked of a torch.profiler trace; the :class:`~pytest_nsys.core.trace.Trace` of this format."""

    def __init__(self, path: Path, numbers: Mapping[int, int] | None = None) -> None:
        """Take a file that is read when first asked. ``process_numbers`` are those of the processes of a cut, by
        machine.
        """
        self.path, self.numbers = path, numbers or {}

    def close(self) -> None:
        """Drop what was read; the next question reads the file again."""
        self.__dict__.pop("processes", None)

    @cached_property
    def processes(self) -> Mapping[int, KinetoProcess]:
        """What the file holds of each process, by serialised process id. Raises TraceError."""
        content = read_content(self.path)
        further_passes = FurtherPasses(self.path)
        processes = (
            KinetoProcess(content, further_passes, label, machine, self.numbers.get(machine))
            for machine, label in enumerate(in_order(content.parts))
        )
        return {process.global_pid: process for process in processes}

    @property
    def members(self) -> Mapping[str, Any]:
        """The root's members: those of the first rank where the file was merged."""
        return next(iter(self.processes.values())).members

    def facts(self) -> TraceFacts:
        """Return the facts about the trace: its version, GPU models, the profiler's own messages, what became of the
        last step.
        """
        root_members, processes = self.members, self.processes.values()
        models = models_of(root_members)
        start_times = [process.started_ns for process in processes if process.started_ns is not None]
        zeros_by_machine = {pid >> MACHINE_BITS: process.zero_ns for pid, process in self.processes.items()}
        return TraceFacts(
            has_kernels=bool(self.lanes()),
            profiler_version=version_of(root_members),
            gpus={
                (process.pid, device): models[device]
                for process in processes
                for device in process.kernels
                if device in models
            },
            models=sorted(set(models.values())),
            whole_graphs=0,
            diagnostics=messages_of(root_members),
            notes=[*self._about_labels(), *(note for process in processes for note in process.notes)],
            to_see_kernels=self._to_see_kernels(),
            to_see_ranges=TO_SEE_RANGES,
            to_see_calls="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on all ranks",
            to_see_sizes=TO_SEE_SIZES,
            to_see_memory=TO_SEE_MEMORY,
            to_see_clocks=WITHOUT_CLOCKS if is_of_amd(root_members) else TO_SEE_CLOCKS,
            started_ns=min(start_times, default=None),
            zeros_ns={
                None if len(processes) == 1 else machine: zero
                for machine, zero in zeros_by_machine.items()
                if zero is not None
            },
            files=len(processes),
            slows_host=WITH_STACK if root_members.get("with_stack") else "",
            impossible=reduce(ImpossibleRows.and_, (process.impossible for process in processes), ImpossibleRows()),
        )

    def _labels(self) -> list[str]:
        return [process.label for process in self.processes.values()]

    def _about_labels(self) -> Iterator[str]:
        if len(labels := self._labels()) > 1:
            yield f"{self.path}: was merged of {counted(len(labels), 'rank')}: {describe_labels(labels)}"

    def _to_see_kernels(self) -> str:
        """Describe what to do where nothing ran on a GPU: by the device of the trace, or by its launches."""
        processes = self.processes.values()
        if any(process.kernels for process in processes):
            return TO_SEE_KERNELS
        if (
            device := describe_device({category for process in processes for category in process.categories})
        ) is not None:
            return device
        launch_count = sum(process.launched for process in processes)
        return describe_missing_gpu(launch_count, TO_SEE_LAUNCHED) if launch_count else TO_SEE_KERNELS

    def module_calls(self) -> Mapping[int, Ranges]:
        """Return the calls of modules by process; recorded with ``with_stack`` or ``with_modules``."""
        calls_by_process = ((pid, process.module_calls) for pid, process in self.processes.items())
        return {pid: calls for pid, calls in calls_by_process if len(calls)}

    def launch_records(
        self, spans: Mapping[int, Interval | None], _kernels: Mapping[Lane, Kernels], /
    ) -> Mapping[int, Sequence[LaunchRecord]] | None:
        """Return how much of the launched work is on record, for the calls that start in the span of each process.

        None where no process has calls.
        """
        processes_with_calls = {pid: process for pid, process in self.processes.items() if process.calls is not None}
        records_by_process = {
            pid: records_of(process.calls, process.recorded, spans.get(pid))
            for pid, process in processes_with_calls.items()
            if process.calls is not None
        }
        return (
            {pid: records for pid, records in records_by_process.items() if records} if processes_with_calls else None
        )

    def setups(self) -> Mapping[int, Setup]:
        """Return the rank of each process that ``distributedInfo`` names, else the file's name.

        Of a merged file the labels name the ranks, for what its root says is of the first one.
        """
        distributed_info = setup_of(self.members)
        if len(self.processes) == 1:
            setup = distributed_info or setup_of_name(self.path.name)
            return {} if setup is None else dict.fromkeys(self.processes, setup)
        world = (
            prod(distributed_info.sizes.values()) if distributed_info is not None and distributed_info.sizes else None
        )
        ranks = ranks_of(self._labels(), world)
        sizes = {} if world is None else {"world": world}
        return {
            pid: Setup(f"process {process.label}: rank {ranks[process.label]}", ranks[process.label], {}, sizes)
            for pid, process in self.processes.items()
            if ranks
        }

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """Return all copies of these kinds as kernels, each named for its kind, by lane."""
        copies_by_process = (
            (pid, process.copies_as_kernels({*kinds_to_read(kinds)})) for pid, process in self.processes.items()
        )
        return told_apart(
            self,
            {
                Lane(pid, device): copies
                for pid, device_copies in copies_by_process
                for device, copies in device_copies.items()
            },
            kinds,
        )

    def copies_between_gpus(self) -> Mapping[Lane, Kernels]:
        """Return the copies to another GPU, and those that a collective launched, by lane."""
        return self.copies_as_kernels(BETWEEN_GPUS)


def gpu_table(rows: GpuRows, names: Mapping[int, str], name: Column, full_name: Column) -> Kernels:
    """Build kernels with these names from rows in any order."""
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
    """Return the number of each kernel's short name; new short names get numbers in ``events``."""
    full_numbers, names = columns.values(events.kernels.name), events.names.texts()
    short_numbers = array("q", [events.names[short_name(names[number])] for number in full_numbers])
    return columns.joined(full_numbers, short_numbers, 0, events.kernels.name)


class ProfilerStep(NamedTuple):
    """Describes one ``ProfilerStep#`` and the launches inside it."""

    name: str
    start_ns: int
    end_ns: int
    launches: int  # of kernels, inside the step
    lost: int  # launches that have no kernel


def why_incomplete(steps: Sequence[ProfilerStep], recorded_until_ns: int | None) -> str | None:
    """Describe what shows that the last of the steps, ordered by start, is incomplete; None where nothing does."""
    if not steps:
        return None
    last_step, earlier_steps = steps[-1], steps[:-1]
    if last_step.end_ns == OPEN_END_NS:
        return "it has no end"
    if recorded_until_ns is not None and last_step.end_ns >= recorded_until_ns:
        return "the recording ended inside it"
    largest_lost_share = max((step.lost / step.launches for step in earlier_steps if step.launches), default=0.0)
    # Whole steps may lack kernels too: only twice the largest share of theirs shows that the last is incomplete.
    if last_step.lost and last_step.lost / last_step.launches > 2 * largest_lost_share:
        lost_text = counted(last_step.lost, "kernel launch").replace("launchs", "launches")
        return f"{lost_text} of {last_step.launches} ran no kernel"
    fewest_launches = min((step.launches for step in earlier_steps), default=0)
    # Half as many launches as in the smallest other step: steps of one program vary less.
    if 2 * last_step.launches < fewest_launches:
        return f"it launches {last_step.launches} kernels, each step before it at least {fewest_launches}"
    return None


def stream_waits(waits: Iterable[Wait], calls: Mapping[int, int], streams: Iterable[Stream]) -> Sequence[StreamWait]:
    """Build the stream-waits with their records, in the order of their place: both stand where their calls start.

    ``call_starts`` has the start of each call by correlation, ``streams`` are those that ran something.
    """
    streams_by_number: dict[int, set[Stream]] = {}
    for stream in streams:
        streams_by_number.setdefault(stream.number, set()).add(stream)
    stream_waits = []
    for wait in waits:
        waiting_stream, wait_place, record = wait.stream, wait.at, wait.record
        if wait_place.correlation in calls:
            wait_place = wait_place._replace(launch_ns=calls[wait_place.correlation])
        if record in calls and record is not None and wait.on_stream is not None and min(record, wait.on_stream) >= 0:
            # The trace gives only the number of the other stream, which may be of another device.
            same_device_stream = waiting_stream._replace(number=wait.on_stream)
            candidates = streams_by_number.get(wait.on_stream, {same_device_stream})
            recorded_on = same_device_stream if same_device_stream in candidates else min(candidates)
            stream_waits.append(StreamWait(waiting_stream, wait_place, recorded_on, Place(calls[record], record)))
        else:
            stream_waits.append(StreamWait(waiting_stream, wait_place))
    return each_once(stream_waits)
