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
from types import MappingProxyType
from typing import Any, NamedTuple

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.conventions import CopyKind
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.families import extract_short_name
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
from pytest_nsys.core.tables import (
    KernelKey,
    KernelOrigin,
    Kernels,
    LaunchCalls,
    LaunchPlace,
    Memory,
    ProgramRecords,
    Ranges,
    StreamWait,
    deduplicate_waits,
)
from pytest_nsys.core.text_format import format_count
from pytest_nsys.traces.chrome.events import (
    CALL,
    KERNEL,
    PYTHON_CATEGORY,
    WAIT,
    CallRows,
    Event,
    EventColumns,
    GpuRows,
    KeyNumbers,
    StreamWaitEvent,
    find_arrow_starts,
)
from pytest_nsys.traces.chrome.json_stream import EventStream
from pytest_nsys.traces.chrome.kineto_metadata import (
    is_amd_trace,
    parse_copy_kind,
    parse_copy_memories,
    parse_distributed_info,
    parse_rank_from_name,
    read_empty_copies,
    read_gpu_models,
    read_kineto_collectives,
    read_kineto_memory,
    read_module_calls,
    read_profiler_messages,
    read_torch_version,
    replace_surrogates,
)
from pytest_nsys.traces.chrome.program_records import read_kineto_program
from pytest_nsys.traces.chrome.rank_labels import (
    UNLABELLED,
    describe_labels,
    group_by_label,
    parse_process_number,
    resolve_label_ranks,
    sort_labels,
)
from pytest_nsys.traces.copies_as_kernels import (
    COPY_ID,
    COPY_NAME_IDS,
    COPY_NAMES_BY_ID,
    INTER_GPU_COPY_KINDS,
    TRANSFER_NAMES,
    list_readable_kinds,
    select_copies,
)
from pytest_nsys.traces.in_memory_trace import CollectiveKey, InMemoryTrace, group_by_device
from pytest_nsys.traces.launch_records import (
    RecordedWork,
    build_launch_records,
    is_capture_call,
    measure_missing_shares,
)
from pytest_nsys.traces.other_profilers import describe_device, describe_missing_gpu
from pytest_nsys.traces.trace_queries import ApiCalls, CallTable, find_earliest_calls

STEP_NAME = re.compile(r"ProfilerStep\*?#\d+")
GRAPH_LAUNCH = "GraphLaunch"
LAUNCH_CALL = re.compile(r"LaunchKernel|GraphLaunch|LaunchCooperativeKernel")
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


PID_MASK = 0xFFFFFF
MAX_DOUBLED_SHARE = 0.01  # in one process one call launches one kernel
"""The share of correlations that may have two calls and two kernels each in the trace of one process."""


class FurtherPasses:
    """Reads what few measurements ask for, each in one more pass over the file, for all its processes at once."""

    def __init__(self, path: Path, threads_by_label: Mapping[str, KeyNumbers] = MappingProxyType({})) -> None:
        """Take a file; ``threads_by_label`` are the threads of each process that have a name for a number."""
        self.path, self._threads_by_label = path, threads_by_label

    @cached_property
    def memory(self) -> Mapping[str, Mapping[int, Memory]]:
        """The allocated memory over time, by label and device."""
        return read_kineto_memory(self.path)

    @cached_property
    def collectives(self) -> Mapping[str, Mapping[CollectiveKey, Collective]]:
        """What is recorded of kernels as collectives, by label."""
        return read_kineto_collectives(self.path)

    @cached_property
    def module_calls(self) -> Mapping[str, Ranges]:
        """The calls of modules, by label."""
        return read_module_calls(self.path)

    @cached_property
    def program(self) -> Mapping[str, ProgramRecords]:
        """What is recorded of the program, by label."""
        return read_kineto_program(self.path, self._threads_by_label)

    @cached_property
    def empty_copies(self) -> Mapping[str, Set[int]]:
        """The correlations of calls that copy 0 bytes, by label."""
        return read_empty_copies(self.path)


class TraceContent(NamedTuple):
    """Holds what one pass over a file found: its events by the label of their process, and the other members of its
    root.
    """

    path: Path
    columns_by_label: Mapping[str, EventColumns]  # by label; only processes in which something ran, where there is one
    root_members: Mapping[str, Any]


def read_trace_content(path: Path) -> TraceContent:
    """Read the events of a file into columns, by the label of their process. Raises TraceError."""
    stream = EventStream(path, Event)
    columns_by_label = {UNLABELLED: EventColumns(path)}
    for events in stream:
        for label, label_events in group_by_label(events).items():
            if label not in columns_by_label:
                columns_by_label[label] = EventColumns(path)
            columns_by_label[label].add_events(label_events)
    check_has_events(stream)
    with_work = {label: event_columns for label, event_columns in columns_by_label.items() if event_columns.has_work}
    return TraceContent(path, with_work or {UNLABELLED: columns_by_label[UNLABELLED]}, stream.root_members)


def check_has_events(stream: EventStream[Any]) -> None:
    """Check that a file that was read has a list of events. Raises TraceError where it has none."""
    if not stream.has_events:
        raise TraceError(f"{stream.path}: is JSON, but holds no traceEvents: it is not a trace")


class KinetoProcess:
    """Holds what a trace records of one process: of a file, or of one label in a merged file. Raises TraceError."""

    STEP_PATTERN = STEP_NAME
    sm_clocks = None

    def __init__(
        self,
        content: TraceContent,
        further_passes: FurtherPasses,
        label: str = UNLABELLED,
        machine: int = 0,
        number: int | None = None,
    ) -> None:
        """Read the columns of the process with this label.

        ``machine`` tells processes of one file apart: each keeps its number, and is taken to have its own clock.
        ``number`` is given for a process of a cut, whose steps were checked when it was cut out of its trace.
        """
        self.path, self.label, self.root_members = content.path, label, content.root_members
        self._events = events = content.columns_by_label[label]
        self._further_passes = further_passes
        self._check_single_process()
        self._drop_untimed_kernels()
        is_whole, number = number is None, self._find_process_number() if number is None else number
        self.pid, self.global_pid = number & PID_MASK, machine << MACHINE_BITS | number << 24
        short_names = number_short_names(events)
        self.names = events.names.list_names()
        self._mark_graph_kernels()
        self._missing_shares = self._find_short_replays()
        kernels, events.kernels = events.kernels, GpuRows.make_empty()._replace(places=events.kernels.places)
        self.kernels = group_by_device(
            build_kernel_table(kernels, dict(enumerate(self.names)), short_names, kernels.name_number)
        )
        ran_correlations = columns.list_distinct(kernels.correlation)
        del kernels, short_names  # from here on they are kept in order alone
        if columns.is_exceeded(events.calls.correlation[:-1], events.calls.correlation[1:]):
            order = columns.sort_indices(events.calls.correlation)
            events.calls = CallRows(*(columns.take(column, order) for column in events.calls))
        self.calls = ApiCalls(*events.calls, self.names) if events.calls.start_ns else None
        self.launches = self._index_launches(ran_correlations)
        self._check_correlations()
        self.ranges = Ranges(*events.ranges, self.names)
        self.started_ns = self._find_start_time()
        self.notes = tuple(self._leave_out_incomplete_step(ran_correlations)) if is_whole else ()

    def _check_single_process(self) -> None:
        """Check that the events are those of one process. Raises TraceError where no label tells several apart."""
        if (number := len(self._events.call_pids)) > 1:
            raise self._make_merged_error(
                f"holds API calls of {number} processes, whose correlations cannot be told apart"
            )
        if self._events.recording_ends > 1:
            raise self._make_merged_error(
                f"holds the ends of {self._events.recording_ends} recordings under one process number"
            )

    def _check_correlations(self) -> None:
        """Check that calls and kernels share no correlation by chance. Raises TraceError where those of several
        processes do.
        """
        calls = self._events.calls
        if len(self.launches.correlations) >= len(calls.correlation):
            return
        call_counts, kernel_counts = Counter(calls.correlation), Counter[int]()
        for kernels in self.kernels.values():
            kernel_counts.update(columns.take(kernels.correlation, columns.find_zeros(kernels.graph_node)))
        doubled_count = sum(
            count > 1 and call_counts[number] > 1 for number, count in kernel_counts.items() if number != NO_LAUNCH
        )
        if doubled_count > MAX_DOUBLED_SHARE * len(kernel_counts):
            raise self._make_merged_error(
                f"has {format_count(doubled_count, 'correlation')} with two calls and two kernels each"
            )

    def _make_merged_error(self, problem: str) -> TraceError:
        return TraceError(f"{self.path}: {problem}: a merged trace; give the file of each rank")

    def _drop_untimed_kernels(self) -> None:
        """Leave out the operations that the profiler did not time."""
        # An operation that the profiler did not time has time 0: on a clock that counts from 1970 it starts in 1970.
        starts, base_ns = self._events.kernels.start_ns, self.root_members.get("baseTimeNanoseconds", 0)
        if starts and type(base_ns) is int and base_ns + columns.find_min_max(starts)[1] in SINCE_1970:
            self._events.drop_rows_at(-base_ns)

    def _find_process_number(self) -> int:
        """Return the number that tells the process from others."""
        pids = self._events.call_pids or self._events.range_pids
        return min((n for pid in pids if (n := parse_process_number(pid)) is not None), default=0) & PID_MASK

    def _find_rows_named(self, name_column: Column, is_wanted: Callable[[str], object]) -> Column:
        """Return the rows of a column of names whose name is wanted."""
        return columns.find_nonzero(columns.take(bytearray(bool(is_wanted(name)) for name in self.names), name_column))

    def _mark_graph_kernels(self) -> None:
        """Mark the kernels that share the correlation of a graph's launch as kernels of that graph."""
        kernels, calls = self._events.kernels, self._events.calls
        graph_launches = self._find_rows_named(calls.name_number, lambda name: GRAPH_LAUNCH in name)
        launch_correlations = columns.list_distinct(columns.take(calls.correlation, graph_launches))
        is_graph_kernel = columns.look_up_keys(
            launch_correlations, array("q", [c != NO_LAUNCH for c in launch_correlations]), 0, kernels.correlation
        )
        for i in columns.find_nonzero(is_graph_kernel):
            kernels.graph_node[i] = 1

    def _find_short_replays(self) -> Mapping[int, Fraction]:
        """Return the missing share of each replay of a graph that ran less than another replay of it."""
        tables = (self._events.kernels, self._events.transfers)
        graphs = columns.concatenate_columns([rows.graph_id for rows in tables])
        graph_rows = columns.find_nonzero(graphs)
        correlations = columns.concatenate_columns([rows.correlation for rows in tables])
        return measure_missing_shares(columns.take(graphs, graph_rows), columns.take(correlations, graph_rows))

    def _index_launches(self, ran_correlations: Column) -> CallTable:
        """Return the earliest call of each correlation."""
        # Kernels that no call launched may have an arrow from one, whose start is all that is known of it: finding the
        # arrows takes a second pass, which few files need.
        start, end, thread, _, correlation = self._events.calls
        calls = LaunchCalls(start, end, thread)
        is_unique = NO_LAUNCH not in correlation[:1] and len(columns.list_distinct(correlation)) == len(correlation)
        table = CallTable(correlation, calls) if is_unique else find_earliest_calls(correlation, calls)
        unlaunched_rows = columns.find_nonzero(
            columns.mark_equal(
                columns.look_up_keys(table.correlations, table.correlations, NO_LAUNCH, ran_correlations), NO_LAUNCH
            )
        )
        arrows = [*self._find_launch_arrows({ran_correlations[i] for i in unlaunched_rows} - {NO_LAUNCH})]
        if not arrows:
            return table
        numbers, starts = (array("q", column) for column in zip(*arrows, strict=True))
        calls = LaunchCalls(start + starts, end + starts, thread + array("q", bytes(8 * len(starts))))
        return find_earliest_calls(correlation + numbers, calls)

    def _find_launch_arrows(self, correlations: Set[int]) -> Iterator[tuple[int, int]]:
        """Yield the correlation and the start in ns of the arrows that lead to kernels with these correlations."""
        for events in EventStream(self.path, Event) if correlations else ():
            yield from find_arrow_starts(group_by_label(events).get(self.label, ()), correlations)

    def _find_start_time(self) -> int | None:
        """Return when the first kernel or range began, in ns since 1970; None where the file does not say."""
        starts = [kernels.start_ns[0] for kernels in self.kernels.values()]
        if self.ranges.start_ns:
            starts.append(columns.find_min_max(self.ranges.start_ns)[0])
        if not starts:
            return None
        # Before torch wrote ``baseTimeNanoseconds`` times counted from 1970.
        base_ns = self.root_members.get("baseTimeNanoseconds")
        if type(base_ns) is int:
            return base_ns + min(starts)
        return min(starts) if min(starts) in SINCE_1970 else None

    @property
    def zero_ns(self) -> int | None:
        """The moment from which times count, in ns since 1970; None where the file does not say."""
        base_ns = self.root_members.get("baseTimeNanoseconds", 0)
        is_plausible = self.started_ns is not None and self.started_ns in SINCE_1970
        return base_ns if type(base_ns) is int and is_plausible else None

    def _leave_out_incomplete_step(self, ran_correlations: Column) -> Iterator[str]:
        """Leave out the last step where it is incomplete and not the only one. Yield a note on an incomplete step.

        Raises TraceError where a step runs twice at one time, as in the traces of two ranks.
        """
        start, end, _, name = self._events.ranges
        step_rows = sorted(
            self._find_rows_named(name, self.STEP_PATTERN.fullmatch),
            key=lambda i: (start[i], end[i], self.names[name[i]]),
        )
        steps = self._list_profiler_steps(step_rows, ran_correlations)
        for step, next_step in pairwise(steps):
            if step.name == next_step.name and next_step.start_ns < step.end_ns and STEP_NAME.fullmatch(step.name):
                raise self._make_merged_error(f"is in {step.name} twice at one time under one process number")
        reason = describe_incomplete_step(steps, self._events.recorded_until_ns)
        if reason is None:
            return
        if len(step_rows) > 1:
            end[step_rows[-1]] = OPEN_END_NS  # an open range is no anchor
            yield f"{self.path}: the last step, {steps[-1].name}, is incomplete and left out: {reason}"
        else:
            yield f"{self.path}: the only step, {steps[-1].name}, is incomplete: {reason}"

    def _list_profiler_steps(self, step_rows: Sequence[int], ran_correlations: Column) -> list[ProfilerStep]:
        """Return the profiler steps of these ranges, with their launches and how many of them have no kernel."""
        calls, ranges = self._events.calls, self._events.ranges
        launch_rows = self._find_rows_named(calls.name_number, LAUNCH_CALL.search)
        launch_starts = columns.take(calls.start_ns, launch_rows)
        kernel_correlations = columns.look_up_keys(
            ran_correlations, ran_correlations, NO_LAUNCH, columns.take(calls.correlation, launch_rows)
        )
        lost_starts = columns.take(
            launch_starts, columns.find_nonzero(columns.mark_equal(kernel_correlations, NO_LAUNCH))
        )
        launch_starts, lost_starts = (
            columns.take(starts, columns.sort_indices(starts)) for starts in (launch_starts, lost_starts)
        )
        steps = []
        for i, next_row in zip_longest(step_rows, step_rows[1:]):
            start, end = ranges.start_ns[i], ranges.end_ns[i]
            # of steps that overlap, a launch belongs to the last that has begun
            last_ns = end if next_row is None else min(end, ranges.start_ns[next_row] - 1)
            counts = (
                bisect_right(starts, last_ns) - bisect_left(starts, start) for starts in (launch_starts, lost_starts)
            )
            steps.append(ProfilerStep(self.names[ranges.name_number[i]], start, end, *(max(n, 0) for n in counts)))
        return steps

    @property
    def all_waits(self) -> Sequence[StreamWaitEvent]:
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
    def launch_count(self) -> int:
        """The number of calls that launched a kernel, or a graph of kernels."""
        return len(self._find_rows_named(self._events.calls.name_number, LAUNCH_CALL.search))

    # -- what few ask for, and may be damaged without harm to others

    def _raise_damage(self, *kinds: str) -> None:
        """Raise the first damage that was found in events of these kinds."""
        for (kind, _), error in self._events.damage_errors.items():
            if kind in kinds:
                raise error

    def check_calls(self) -> None:
        """Check that the ends of calls can be read. Raises TraceError where one is damaged."""
        self._raise_damage(CALL)

    @property
    def recorded_work(self) -> RecordedWork:
        """The work of the process's calls that is on record."""
        kernels = columns.list_distinct(
            columns.concatenate_columns(
                [array("q"), *(device_kernels.correlation for device_kernels in self.kernels.values())]
            )
        )
        transfers = columns.list_distinct(self._events.transfers.correlation)
        lazy_parts = (partial(self._find_launch_span, kernels), self._list_capture_calls, self._read_empty_copies)
        return RecordedWork(kernels, transfers, self._missing_shares, lambda: [kernels], *lazy_parts)

    def _find_launch_span(self, kernels: Column) -> Interval | None:
        """Return the time from the first call that launched one of the kernels to the last; None where no call is
        known.
        """
        starts = self.launches.find_starts(kernels)
        known_starts = columns.take(starts, columns.find_zeros(columns.mark_equal(starts, NO_LAUNCH)))
        return columns.find_min_max(known_starts) if known_starts else None

    def _list_capture_calls(self) -> Iterator[Api]:
        rows = self._find_rows_named(self._events.calls.name_number, is_capture_call)
        return ApiCalls(*self._events.calls, self.names).take(rows).iterate_calls()

    def _read_empty_copies(self) -> Set[int]:
        return self._further_passes.empty_copies.get(self.label, frozenset())

    @cached_property
    def transfers(self) -> Mapping[int, Kernels]:
        """The copies and memsets of each device, ordered by start. Raises TraceError for a damaged one."""
        self._raise_damage(*TRANSFER_NAMES.values())
        rows, kind = self._events.transfers, self._events.transfer_ids
        return group_by_device(
            build_kernel_table(rows._replace(graph_node=bytearray(len(kind))), TRANSFER_NAMES, kind, kind)
        )

    @cached_property
    def copies(self) -> Sequence[tuple[int | None, Copy]]:
        """The copies with their devices; a name says which memories a copy is between, and one without a launch counts
        from its own start.
        """
        rows = self._events.transfers
        devices = [device for device, _, _ in rows.places]
        launches, memories = (
            self.launches.find_starts(rows.correlation),
            [parse_copy_memories(name) for name in self.names],
        )
        copies: list[tuple[int | None, Copy]] = []
        for i in columns.find_nonzero(columns.mark_equal(self._events.transfer_ids, COPY_ID)):
            start = rows.start_ns[i]
            launch_ns = start if launches[i] == NO_LAUNCH else launches[i]
            copies.append((devices[rows.place_number[i]], Copy(start, *memories[rows.name_number[i]], launch_ns)))
        return copies

    def select_copies(self, kinds: Set[CopyKind]) -> dict[int, Kernels]:
        """Return the copies of these kinds as kernels, by device. Raises TraceError for a damaged one."""
        for (damaged_kind, name), error in self._events.damage_errors.items():
            if damaged_kind in (KERNEL, TRANSFER_NAMES[COPY_ID]) and parse_copy_kind(name) in kinds:
                raise error
        rows = self._events.transfers
        kinds_by_name = (parse_copy_kind(name) for name in self.names)
        ids = array("q", [COPY_NAME_IDS[kind] if kind is not None and kind in kinds else 0 for kind in kinds_by_name])
        kernel_names = columns.take(ids, rows.name_number)
        copies = columns.find_nonzero(columns.mark_equal(self._events.transfer_ids, COPY_ID))
        chosen_rows = columns.take(copies, columns.find_nonzero(columns.take(kernel_names, copies)))
        return group_by_device(build_kernel_table(rows, COPY_NAMES_BY_ID, kernel_names, kernel_names).take(chosen_rows))

    @cached_property
    def waits(self) -> Sequence[StreamWait] | None:
        """The stream-waits in the order of their place; None where there is none. Raises TraceError."""
        self._raise_damage(WAIT)
        events = self._events
        places = (*events.kernels.places, *events.transfers.places)
        return (
            build_stream_waits(events.waits, self.launches.build_start_map(), (Stream(*p) for p in places))
            if events.waits
            else None
        )

    @cached_property
    def memory(self) -> Mapping[int, Memory] | None:
        """The allocated memory of each device over time; None where no event says it."""
        return self._further_passes.memory.get(self.label)

    @cached_property
    def collectives(self) -> Mapping[CollectiveKey, Collective] | None:
        """What the arguments of kernels record; torch.profiler writes it for most kernels of NCCL, not for all."""
        return self._further_passes.collectives.get(self.label)

    @cached_property
    def module_calls(self) -> Ranges:
        """The calls of modules; read in one more pass, and only over a file that has calls of Python's functions."""
        calls_by_label = self._further_passes.module_calls if PYTHON_CATEGORY in self.categories else {}
        return calls_by_label.get(self.label, Ranges.from_ranges(()))

    @property
    def program_records(self) -> ProgramRecords | None:
        """What is recorded of the program; None where nothing is."""
        if (records := self._further_passes.program.get(self.label)) is None:
            return None
        return records._replace(
            origins={key: KernelOrigin(tuple(module.split(".")), ".") for key, module in self.stated_modules.items()}
        )

    @cached_property
    def stated_modules(self) -> Mapping[KernelKey, str]:
        """The modules that kernels themselves name."""
        return {key: replace_surrogates(module) for key, module in self._events.stated_modules.items()}


class KinetoTrace(InMemoryTrace):
    """Answers what is asked of a torch.profiler trace; the :class:`~pytest_nsys.core.trace.Trace` of this format."""

    def __init__(self, path: Path, process_numbers: Mapping[int, int] | None = None) -> None:
        """Take a file that is read when first asked. ``process_numbers`` are those of the processes of a cut, by
        machine.
        """
        self.path, self.process_numbers = path, process_numbers or {}

    def close(self) -> None:
        """Drop what was read; the next question reads the file again."""
        self.__dict__.pop("processes", None)

    @cached_property
    def processes(self) -> Mapping[int, KinetoProcess]:
        """What the file holds of each process, by serialised process id. Raises TraceError."""
        content = read_trace_content(self.path)
        columns_by_label = content.columns_by_label
        threads_by_label = {label: event_columns.threads for label, event_columns in columns_by_label.items()}
        further_passes = FurtherPasses(self.path, threads_by_label)
        processes = (
            KinetoProcess(content, further_passes, label, machine, self.process_numbers.get(machine))
            for machine, label in enumerate(sort_labels(content.columns_by_label))
        )
        return {process.global_pid: process for process in processes}

    @property
    def root_members(self) -> Mapping[str, Any]:
        """The root's members: those of the first rank where the file was merged."""
        return next(iter(self.processes.values())).root_members

    def facts(self) -> TraceFacts:
        """Return the facts about the trace: its version, GPU models, the profiler's own messages, what became of the
        last step.
        """
        root_members, processes = self.root_members, self.processes.values()
        models = read_gpu_models(root_members)
        start_times = [process.started_ns for process in processes if process.started_ns is not None]
        zeros_by_machine = {pid >> MACHINE_BITS: process.zero_ns for pid, process in self.processes.items()}
        return TraceFacts(
            has_kernels=bool(self.lanes()),
            profiler_version=read_torch_version(root_members),
            gpus={
                (process.pid, device): models[device]
                for process in processes
                for device in process.kernels
                if device in models
            },
            models=sorted(set(models.values())),
            whole_graph_count=0,
            diagnostics=read_profiler_messages(root_members),
            notes=[*self._note_merged(), *(note for process in processes for note in process.notes)],
            to_see_kernels=self._describe_missing_kernels(),
            to_see_ranges=TO_SEE_RANGES,
            to_see_calls="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] on all ranks",
            to_see_sizes=TO_SEE_SIZES,
            to_see_memory=TO_SEE_MEMORY,
            to_see_clocks=WITHOUT_CLOCKS if is_amd_trace(root_members) else TO_SEE_CLOCKS,
            started_ns=min(start_times, default=None),
            clock_zeros_ns={
                None if len(processes) == 1 else machine: zero
                for machine, zero in zeros_by_machine.items()
                if zero is not None
            },
            file_count=len(processes),
            slowing_setting=WITH_STACK if root_members.get("with_stack") else "",
            impossible_rows=reduce(ImpossibleRows.add, (process.impossible for process in processes), ImpossibleRows()),
        )

    def _list_labels(self) -> list[str]:
        return [process.label for process in self.processes.values()]

    def _note_merged(self) -> Iterator[str]:
        if len(labels := self._list_labels()) > 1:
            yield f"{self.path}: was merged of {format_count(len(labels), 'rank')}: {describe_labels(labels)}"

    def _describe_missing_kernels(self) -> str:
        """Describe what to do where nothing ran on a GPU: by the device of the trace, or by its launches."""
        processes = self.processes.values()
        if any(process.kernels for process in processes):
            return TO_SEE_KERNELS
        if (
            device := describe_device({category for process in processes for category in process.categories})
        ) is not None:
            return device
        launch_count = sum(process.launch_count for process in processes)
        return describe_missing_gpu(launch_count, TO_SEE_LAUNCHED) if launch_count else TO_SEE_KERNELS

    def stated_modules(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[str]]:
        """Return the module that each kernel of a CUDA graph names where its exporter annotated it."""
        modules_by_process = {pid: process.stated_modules for pid, process in self.processes.items()}
        return {
            lane: [modules.get(key, "") for key in zip(lane_kernels.correlation, lane_kernels.start_ns, strict=True)]
            for lane, lane_kernels in kernels.items()
            if (modules := modules_by_process.get(lane.global_pid))
        }

    def module_calls(self) -> Mapping[int, Ranges]:
        """Return the calls of modules by process; recorded with ``with_stack`` or ``with_modules``."""
        calls_by_process = ((pid, process.module_calls) for pid, process in self.processes.items())
        return {pid: calls for pid, calls in calls_by_process if len(calls)}

    def program_records(self, _spans: Mapping[int, Interval]) -> Mapping[int, ProgramRecords]:
        """Return what is recorded of the program of each process, in one more pass over the file."""
        records_by_process = ((pid, process.program_records) for pid, process in self.processes.items())
        return {pid: records for pid, records in records_by_process if records is not None}

    def launch_records(
        self, spans: Mapping[int, Interval | None], _kernels: Mapping[Lane, Kernels], /
    ) -> Mapping[int, Sequence[LaunchRecord]] | None:
        """Return how much of the launched work is on record, for the calls that start in the span of each process.

        None where no process has calls.
        """
        processes_with_calls = {pid: process for pid, process in self.processes.items() if process.calls is not None}
        records_by_process = {
            pid: build_launch_records(process.calls, process.recorded_work, spans.get(pid))
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
        distributed_info = parse_distributed_info(self.root_members)
        if len(self.processes) == 1:
            setup = distributed_info or parse_rank_from_name(self.path.name)
            return {} if setup is None else dict.fromkeys(self.processes, setup)
        world = (
            prod(distributed_info.sizes.values()) if distributed_info is not None and distributed_info.sizes else None
        )
        ranks = resolve_label_ranks(self._list_labels(), world)
        sizes = {} if world is None else {"world": world}
        return {
            pid: Setup(f"process {process.label}: rank {ranks[process.label]}", ranks[process.label], {}, sizes)
            for pid, process in self.processes.items()
            if ranks
        }

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """Return all copies of these kinds as kernels, each named for its kind, by lane."""
        copies_by_process = (
            (pid, process.select_copies({*list_readable_kinds(kinds)})) for pid, process in self.processes.items()
        )
        return select_copies(
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
        return self.copies_as_kernels(INTER_GPU_COPY_KINDS)


def build_kernel_table(
    rows: GpuRows, names: Mapping[int, str], name_number: Column, full_name_number: Column
) -> Kernels:
    """Build kernels with these names from rows in any order."""
    return Kernels(
        start_ns=rows.start_ns,
        end_ns=rows.end_ns,
        correlation=rows.correlation,
        stream=rows.place_number,
        name=name_number,
        full_name=full_name_number,
        streams=tuple(Stream(*place) for place in rows.places),
        names=names,
        graph_node=rows.graph_node,
    )


def number_short_names(events: EventColumns) -> Column:
    """Return the number of each kernel's short name; new short names get numbers in ``events``."""
    full_numbers, names = columns.list_distinct(events.kernels.name_number), events.names.list_names()
    short_numbers = array("q", [events.names[extract_short_name(names[number])] for number in full_numbers])
    return columns.look_up_keys(full_numbers, short_numbers, 0, events.kernels.name_number)


class ProfilerStep(NamedTuple):
    """Describes one ``ProfilerStep#`` and the launches inside it."""

    name: str
    start_ns: int
    end_ns: int
    launch_count: int  # of kernels, inside the step
    lost_launch_count: int  # launches that have no kernel


def describe_incomplete_step(steps: Sequence[ProfilerStep], recorded_until_ns: int | None) -> str | None:
    """Describe what shows that the last of the steps, ordered by start, is incomplete; None where nothing does."""
    if not steps:
        return None
    last_step, earlier_steps = steps[-1], steps[:-1]
    if last_step.end_ns == OPEN_END_NS:
        return "it has no end"
    if recorded_until_ns is not None and last_step.end_ns >= recorded_until_ns:
        return "the recording ended inside it"
    largest_lost_share = max(
        (step.lost_launch_count / step.launch_count for step in earlier_steps if step.launch_count), default=0.0
    )
    # Whole steps may lack kernels too: only twice the largest share of theirs shows that the last is incomplete.
    if last_step.lost_launch_count and last_step.lost_launch_count / last_step.launch_count > 2 * largest_lost_share:
        lost_text = format_count(last_step.lost_launch_count, "kernel launch").replace("launchs", "launches")
        return f"{lost_text} of {last_step.launch_count} ran no kernel"
    fewest_launches = min((step.launch_count for step in earlier_steps), default=0)
    # Half as many launches as in the smallest other step: steps of one program vary less.
    if 2 * last_step.launch_count < fewest_launches:
        return f"it launches {last_step.launch_count} kernels, each step before it at least {fewest_launches}"
    return None


def build_stream_waits(
    waits: Iterable[StreamWaitEvent], call_starts: Mapping[int, int], streams: Iterable[Stream]
) -> Sequence[StreamWait]:
    """Build the stream-waits with their records, in the order of their place: both stand where their calls start.

    ``call_starts`` has the start of each call by correlation, ``streams`` are those that ran something.
    """
    streams_by_number: dict[int, set[Stream]] = {}
    for stream in streams:
        streams_by_number.setdefault(stream.number, set()).add(stream)
    stream_waits = []
    for wait in waits:
        waiting_stream, wait_place, record = wait.stream, wait.place, wait.record_correlation
        if wait_place.correlation in call_starts:
            wait_place = wait_place._replace(launch_ns=call_starts[wait_place.correlation])
        if (
            record in call_starts
            and record is not None
            and wait.awaited_stream is not None
            and min(record, wait.awaited_stream) >= 0
        ):
            # The trace gives only the number of the other stream, which may be of another device.
            same_device_stream = waiting_stream._replace(number=wait.awaited_stream)
            candidates = streams_by_number.get(wait.awaited_stream, {same_device_stream})
            recorded_on = same_device_stream if same_device_stream in candidates else min(candidates)
            stream_waits.append(
                StreamWait(waiting_stream, wait_place, recorded_on, LaunchPlace(call_starts[record], record))
            )
        else:
            stream_waits.append(StreamWait(waiting_stream, wait_place))
    return deduplicate_waits(stream_waits)
