"""How does a trace in memory answer every question of the protocol? From the tables of its processes.

A reader fills a :class:`ProcessTables` for each process of its file, and itself states what no table holds: its facts,
the ranks that it names, and which copies stand for communication.
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
from pytest_nsys.core.conventions import make_pattern_matcher
from pytest_nsys.core.families import find_communication_library
from pytest_nsys.core.model import NO_LAUNCH, Api, Collective, Copy, Interval, Lane
from pytest_nsys.core.tables import NO_KERNELS, Kernels, LaunchCalls, Memory, ProgramRecords, Ranges, Series, StreamWait
from pytest_nsys.traces.copies_as_kernels import merge_kernels, select_touching
from pytest_nsys.traces.trace_queries import (
    ApiCalls,
    CallTable,
    is_not_nccl_range,
    select_idle_among,
    select_named_ranges,
)

T = TypeVar("T")


class CollectiveKey(NamedTuple):
    """Identifies a kernel of a process: those of one CUDA graph share their correlation, but not their start."""

    correlation: int
    start_ns: int


class ProcessTables(Protocol):
    """Declares what a trace holds about one process.

    None means that the trace does not record it, and is a class attribute if the format never does. Tables that need a
    further pass over the file, or whose damage should not affect other queries, are read on request, and then raise
    TraceError.
    """

    @property
    def kernels(self) -> Mapping[int, Kernels]:
        """The kernels by device, ordered by start."""

    @property
    def launches(self) -> CallTable:
        """The launch of each correlation, of copies and memsets too; ``EMPTY_CALL_TABLE`` where no call is on
        record.
        """

    @property
    def ranges(self) -> Ranges:
        """The ranges, in any order."""

    @property
    def calls(self) -> ApiCalls | None: ...

    @property
    def copies(self) -> Sequence[tuple[int | None, Copy]] | None:
        """The copies, each with its device, which is None where nothing says it."""

    @property
    def transfers(self) -> Mapping[int, Kernels] | None:
        """The copies and memsets by device, named as ``Trace.transfers`` does, ordered by start."""

    @property
    def waits(self) -> Sequence[StreamWait] | None:
        """The waits of streams, in the order of their place."""

    @property
    def memory(self) -> Mapping[int, Memory] | None:
        """The allocated memory by device."""

    @property
    def sm_clocks(self) -> Series | None: ...

    @property
    def collectives(self) -> Mapping[CollectiveKey, Collective] | None: ...

    def check_calls(self) -> None:
        """Raise TraceError where the end of a call is damaged."""


class InMemoryTrace:
    """Answers the queries that are alike for all traces whose processes are in memory; see
    :class:`~pytest_nsys.core.trace.Trace`.
    """

    path: Path

    @property
    def processes(self) -> Mapping[int, ProcessTables]:
        """The tables of each process, by serialised process id. Raises TraceError."""
        raise NotImplementedError

    def _collect_known(self, get_table: Callable[[ProcessTables], T | None]) -> dict[int, T] | None:
        """Return one table of each process that has it; None where none has."""
        tables = {pid: table for pid, process in self.processes.items() if (table := get_table(process)) is not None}
        return tables or None

    def _iterate_device_tables(
        self, get_tables: Callable[[ProcessTables], Mapping[int, T] | None], lane: Lane
    ) -> Iterator[T]:
        """Yield the tables of the devices of a lane."""
        process = self.processes.get(lane.global_pid)
        for device, table in ((process and get_tables(process)) or {}).items():
            if lane.device in (None, device):
                yield table

    def list_unrequested_processes(self) -> Set[int]:
        """Return no process: a trace in memory is of few, and all are requested."""
        return frozenset()

    def lanes(self) -> Sequence[Lane]:
        """Return every (process, device) that ran a kernel, ordered."""
        return sorted(Lane(pid, device) for pid, process in self.processes.items() for device in process.kernels)

    def library_kernels(self) -> Set[tuple[str, str]]:
        """Return the names of the kernels of known communication libraries."""
        names: set[tuple[str, str]] = set()
        for process in self.processes.values():
            for kernels in process.kernels.values():
                _, pairs = columns.find_distinct_rows(kernels.name, kernels.full_name)
                names |= {(kernels.names[short], kernels.names[full]) for short, full in pairs}
        return {pair for pair in names if find_communication_library(*pair) is not None}

    # -- ranges

    def ranges(self, patterns: Sequence[str]) -> Mapping[int, Ranges]:
        """Return the ranges whose name matches a pattern, open ones too, by process."""
        matches = [make_pattern_matcher(pattern) for pattern in patterns]

        def matches_any(name: str) -> bool:
            return any(matches_pattern(name) for matches_pattern in matches)

        return _filter_ranges({pid: process.ranges for pid, process in self.processes.items()}, matches_any)

    def ranges_around(self, spans: Mapping[int, Interval]) -> Mapping[int, Ranges]:
        """Return the ranges of each process that touch its span, open ones included, NCCL's own left out."""
        ranges_by_process = ((pid, process.ranges) for pid, process in self.processes.items() if pid in spans)
        touching_ranges = {
            pid: process_ranges.take(
                columns.find_touching_spans(process_ranges.start_ns, process_ranges.end_ns, *spans[pid])
            )
            for pid, process_ranges in ranges_by_process
        }
        return _filter_ranges(touching_ranges, is_not_nccl_range)

    def module_calls(self) -> Mapping[int, Ranges]:
        """Return none: few profilers record the calls of modules."""
        return {}

    def program_records(self, _spans: Mapping[int, Interval]) -> Mapping[int, ProgramRecords]:
        """Return none: few profilers record more of a program than its ranges."""
        return {}

    def common_range_names(self, global_pid: int) -> Sequence[tuple[str, int]]:
        """Return the names that most ranges of a process have, with their counts, the most frequent first."""
        if (process := self.processes.get(global_pid)) is None:
            return ()
        names, counts = process.ranges.names, Counter(process.ranges.name)
        return sorted(((names[i], n) for i, n in counts.items()), key=lambda item: (-item[1], item[0]))

    # -- kernels

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """Return the kernels of each lane that touch its span; None: all of them."""
        return self._select_touching(lambda process: process.kernels, spans)

    def transfers(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels] | None:
        """Return the copies and memsets of each lane that touch its span; None where nothing says when they ran."""
        if self._collect_known(lambda process: process.transfers) is None:
            return None
        return self._select_touching(lambda process: process.transfers, spans)

    def _select_touching(
        self, get_tables: Callable[[ProcessTables], Mapping[int, Kernels] | None], spans: Mapping[Lane, Interval | None]
    ) -> dict[Lane, Kernels]:
        """Return the kernels of one kind of table that touch the span of their lane."""
        parts_by_lane = {
            lane: [
                select_touching(device_kernels, span)
                for device_kernels in self._iterate_device_tables(get_tables, lane)
            ]
            for lane, span in spans.items()
        }
        return _merge_parts(parts_by_lane)

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """Return the kernels of each lane that have a launch row starting in its span, edges included."""
        parts_by_lane: dict[Lane, list[Kernels]] = {}
        for lane, span in spans.items():
            for device_kernels in self._iterate_device_tables(lambda process: process.kernels, lane):
                launch_ns = self._find_launch_starts(lane, device_kernels)
                parts_by_lane.setdefault(lane, []).append(
                    device_kernels.take(columns.find_touching_spans(launch_ns, launch_ns, *span))
                )
        return _merge_parts(parts_by_lane)

    def idle(self, spans: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
        """Return those of the spans of each lane, which stand by start, in which no kernel runs; at an edge none
        does.
        """
        kernels = self.kernels({lane: (lane_spans[0][0], lane_spans[-1][1]) for lane, lane_spans in spans.items()})
        idle_by_lane: dict[Lane, Sequence[Interval]] = {}
        for lane, lane_spans in spans.items():
            lane_kernels = kernels.get(lane, NO_KERNELS)
            if idle := select_idle_among(lane_kernels.start_ns, lane_kernels.end_ns, lane_spans):
                idle_by_lane[lane] = idle
        return idle_by_lane

    # -- launches and other calls

    def _find_launch_starts(self, lane: Lane, kernels: Kernels) -> Column:
        return self.processes[lane.global_pid].launches.find_starts(kernels.correlation)

    def launch_calls(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
        """Return the earliest call of each kernel."""
        calls: dict[Lane, LaunchCalls] = {}
        for lane, lane_kernels in kernels.items():
            process = self.processes[lane.global_pid]
            process.check_calls()
            calls[lane] = process.launches.find_calls(lane_kernels.correlation)
        return calls

    def issue_calls(
        self, _: Mapping[Lane, Kernels], launches: Mapping[Lane, LaunchCalls], /
    ) -> Mapping[Lane, LaunchCalls]:
        """Return the launches: no format in memory says when the node of a CUDA graph was created."""
        return launches

    def stated_modules(self, _kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[str]]:
        """Return none: the kernels of few profilers name a module."""
        return {}

    def stream_waits(self) -> Mapping[int, Sequence[StreamWait]] | None:
        """Return every stream-wait by process, in the order of its place; None where there is none on record."""
        return self._collect_known(lambda process: process.waits)

    def api_calls(self, name_globs: Sequence[str], spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Api]] | None:
        """Return the calls whose name matches a glob and that start in the span, one per correlation, by process.

        None where no process has a record of calls.
        """
        calls_by_process = self._collect_known(lambda process: process.calls)
        return (
            None
            if calls_by_process is None
            else {
                pid: sorted(
                    _select_matching_calls(calls, name_globs, spans[pid]), key=lambda call: (call.start_ns, call.name)
                )
                for pid, calls in calls_by_process.items()
                if pid in spans
            }
        )

    def copies(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Sequence[Copy]] | None:
        """Return the copies of each lane that were launched in its span; None where nothing says which memories they
        join.
        """
        copies_by_process = self._collect_known(lambda process: process.copies)
        if copies_by_process is None:
            return None
        launched_copies = {
            lane: sorted(
                copy
                for device, copy in copies_by_process.get(lane.global_pid, ())
                if (device is None or lane.device in (None, device)) and low <= copy.launch_ns <= high
            )
            for lane, (low, high) in spans.items()
        }
        return {lane: lane_copies for lane, lane_copies in launched_copies.items() if lane_copies}

    # -- what is recorded beside them

    def memory(self) -> Mapping[Lane, Memory] | None:
        """Return what each process had allocated on each device; None where nothing says it."""
        memory_by_process = self._collect_known(lambda process: process.memory)
        return (
            None
            if memory_by_process is None
            else {
                Lane(pid, device): memory
                for pid, memory_by_device in memory_by_process.items()
                for device, memory in memory_by_device.items()
            }
        )

    def sm_clocks(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Series] | None:
        """Return samples of the SM clock of each lane; None where there are none on record."""
        clocks = self._collect_known(lambda process: process.sm_clocks)
        return (
            None if clocks is None else {lane: clocks[lane.global_pid] for lane in spans if lane.global_pid in clocks}
        )

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[Collective | None]] | None:
        """Return what is recorded of each kernel as a collective; None where nothing is of any."""
        known_collectives = self._collect_known(lambda process: process.collectives)
        return (
            None
            if known_collectives is None
            else {
                lane: [
                    known_collectives[lane.global_pid].get(CollectiveKey(*key))
                    for key in zip(lane_kernels.correlation, lane_kernels.start_ns, strict=True)
                ]
                for lane, lane_kernels in kernels.items()
                if lane.global_pid in known_collectives
            }
        )


def group_by_device(kernels: Kernels) -> dict[int, Kernels]:
    """Return the kernels of each device, ordered by start and end."""
    order = columns.sort_indices(kernels.start_ns, kernels.end_ns)
    devices = columns.take(array("q", [stream.device for stream in kernels.streams]), kernels.stream)
    rows = columns.group_indices_by(lambda device: device, devices, subset=order)
    return {device: kernels.take(indices) for device, indices in sorted(rows.items())}


def _filter_ranges(ranges: Mapping[int, Ranges], name_filter: Callable[[str], bool]) -> dict[int, Ranges]:
    """Return the ranges of each process whose name passes the filter, ordered by start, end and name."""
    ranges_by_process: dict[int, Ranges] = {}
    for pid, process_ranges in ranges.items():
        flags = bytearray(map(name_filter, process_ranges.names))
        # These are few of very many, mostly: the rest is left behind before texts are compared.
        matching_ranges = process_ranges.take(columns.find_nonzero(columns.take(flags, process_ranges.name)))
        if len(matching_ranges):
            names_by_id, range_columns = (
                dict(enumerate(process_ranges.names)),
                (matching_ranges.start_ns, matching_ranges.end_ns, matching_ranges.thread, matching_ranges.name),
            )
            ranges_by_process[pid] = select_named_ranges(names_by_id, *range_columns, name_filter=name_filter)
    return ranges_by_process


def _select_matching_calls(calls: ApiCalls, name_globs: Sequence[str], span: Interval) -> Iterator[Api]:
    """Yield the calls whose name matches and that start in the span: of those of one correlation the earliest."""
    name_matches = array("q", [any(fnmatchcase(name, glob) for glob in name_globs) for name in calls.names])
    rows = columns.find_nonzero(columns.take(name_matches, calls.name))
    starts = columns.take(calls.start_ns, rows)
    rows = columns.take(rows, columns.find_touching_spans(starts, starts, *span))
    earliest: dict[tuple[int, bool], int] = {}
    for i in sorted(rows, key=calls.start_ns.__getitem__):
        # Calls without a correlation are not one call: each counts.
        has_no_correlation = calls.correlation[i] == NO_LAUNCH
        earliest.setdefault((i if has_no_correlation else calls.correlation[i], has_no_correlation), i)
    for i in earliest.values():
        yield Api(calls.start_ns[i], calls.names[calls.name[i]], calls.end_ns[i], calls.thread[i])


def _merge_parts(parts: Mapping[Lane, Sequence[Kernels]]) -> dict[Lane, Kernels]:
    """Return the kernels of all parts of a lane; a lane without any is absent."""
    merged_by_lane = {
        lane: merge_kernels([part for part in lane_parts if len(part)]) for lane, lane_parts in parts.items()
    }
    return {lane: lane_kernels for lane, lane_kernels in merged_by_lane.items() if lane_kernels is not None}
