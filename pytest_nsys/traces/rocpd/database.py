"""Reading a database of rocprofv3 (``rocpd``), schema 3: what does it hold in the spans asked for?

Its tables are read as those of an export of nsys are: passed once per question, with filters that are plain
comparisons. A stream is a stream of HIP (``stream_id``), as the program made it: what is issued to one runs in order.
The queue of HSA that it runs through (``queue_id``) is no such order: HIP shares four of them among all its streams. It
is taken where the profiler grouped by queue, and wrote stream 0 for everything.

Times count on the clock of the machine, of which nothing says when it was zero. A GPU is told by its number among the
GPUs of its machine (``type_index``).
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from pytest_nsys.core import columns
from pytest_nsys.core.conventions import like
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.families import known_communication
from pytest_nsys.core.model import (
    NO_LAUNCH,
    Api,
    ImpossibleRows,
    Interval,
    Lane,
    LaunchRecord,
    Memory,
    ProcessId,
    Setup,
    Stream,
    TraceFacts,
)
from pytest_nsys.core.tables import Kernels, LaunchCalls, Ranges, StreamWait
from pytest_nsys.traces.answers import EMPTY, idle, levels
from pytest_nsys.traces.copies_as_kernels import BETWEEN_GPUS, COPY_ID, NAMES, TRANSFERS, told_apart, touching_span
from pytest_nsys.traces.other_profilers import describe_missing_gpu
from pytest_nsys.traces.rocpd.captures import Captured, find_captures, versions
from pytest_nsys.traces.rocpd.launch_records import read_launch_records
from pytest_nsys.traces.rocpd.memory import TO_SEE_MEMORY, allocations, copy_row, kind_of_copies, with_a_gpu
from pytest_nsys.traces.rocpd.regions import (
    api_calls,
    common_names,
    count_launches,
    graph_launches,
    read_around,
    read_calls,
    read_ranges,
    stacks_started,
)
from pytest_nsys.traces.sqlite_columns import (
    Block,
    Columns,
    check_whole,
    damage,
    fill,
    impossible_rows,
    read_blocks,
    slower,
)
from pytest_nsys.traces.sqlite_conditions import listed, touches, within
from pytest_nsys.traces.sqlite_file import SqliteFile

TRACE = "capture with rocprofv3 --kernel-trace --hip-trace --memory-copy-trace --marker-trace"
TO_SEE_KERNELS = f"{TRACE} -f rocpd on a step that uses the GPU"
TO_SEE_RANGES = f"{TRACE} -f rocpd and mark the step with ROCTx (torch.cuda.nvtx.range_push does under ROCm)"
TO_SEE_SIZES = "rocprofv3 does not record how many ranks a collective is of"
K = TypeVar("K")
V = TypeVar("V")

CONTEXT = 0
"""Of every stream: HIP has no contexts beside its devices."""


class Rocpd:
    """One database; the :class:`~pytest_nsys.core.model.Trace` of this format."""

    def __init__(self, path: Path, file: SqliteFile | None = None) -> None:
        self.path = path
        self._file = SqliteFile(path) if file is None else file
        self._unasked: set[int] = set()
        try:
            self._captures = find_captures(self._file)
        except TraceError:
            self.close()
            raise

    def close(self) -> None:
        """Let the file go."""
        self._file.close()

    def _all(self, kind: str, ask: Callable[[Captured], Mapping[K, V]]) -> dict[K, V]:
        """The answers of all captures. Raises TraceError where their table of this kind is damaged."""
        found: dict[K, V] = {}
        for capture in self._captures:
            with damage(self._file, capture.table(kind)):
                found |= ask(capture)
        return found

    def facts(self) -> TraceFacts:
        """The schema, and the GPUs that ran kernels; never the stored environment."""
        gpus: dict[tuple[int, int], str] = {}
        uuids: dict[tuple[int, int], str] = {}
        for capture in self._captures:
            for lane in self._lanes[capture]:
                agent = next((a for a in capture.agents.values() if a.is_gpu and a.device == lane.device), None)
                if agent is None or lane.device is None:
                    continue
                place = (ProcessId(0, lane.global_pid).pid, lane.device)
                gpus |= {place: agent.model} if agent.model else {}
                uuids |= {place: agent.unique} if agent.unique else {}
        return TraceFacts(
            profiler_version=versions(self._file),
            gpus=gpus,
            models=sorted(set(gpus.values())),
            uuids=uuids,
            whole_graphs=0,
            diagnostics=(),
            notes=[f"{self.path}: {why}: pip install -U 'pytest-nsys[fast]'"] if (why := slower()) else (),
            to_see_kernels=self._to_see_kernels(),
            to_see_ranges=TO_SEE_RANGES,
            to_see_calls="capture with rocprofv3 --hip-trace on all ranks",
            to_see_sizes=TO_SEE_SIZES,
            to_see_memory=TO_SEE_MEMORY,
            to_see_clocks="rocprofv3 does not sample clocks",
            impossible=self._impossible,
        )

    @cached_property
    def _impossible(self) -> ImpossibleRows:
        """The operations whose times cannot be."""
        found = ImpossibleRows()
        for capture in self._captures:
            kernels, copies = capture.table("kernel_dispatch"), capture.table("memory_copy")
            row, stream = (capture.stream, "kernel_id"), self._file.column(copies, capture.stream)
            found = found.and_(impossible_rows(self._file, kernels, "kernel", *row, capture.symbols.name_of))
            found = found.and_(impossible_rows(self._file, copies, "copy", stream, "NULL"))
        return found

    def _to_see_kernels(self) -> str:
        """What to do where nothing ran on a GPU: by whether kernels were launched."""
        launches = 0
        for capture in () if self.has_kernels() else self._captures:
            with damage(self._file, capture.table("region")):
                launches += count_launches(capture)
        return describe_missing_gpu(launches, TO_SEE_KERNELS) if launches else TO_SEE_KERNELS

    def setups(self) -> Mapping[int, Setup]:
        """The rank that the launcher put into the environment of each process."""
        return {pid: setup for capture in self._captures for pid, setup in capture.setups()}

    def unasked(self) -> Set[int]:
        """Processes that ran kernels in the spans read so far, but in no lane that was asked for."""
        return self._unasked

    def has_kernels(self) -> bool:
        """Whether anything ran on a GPU."""
        tables = (capture.table("kernel_dispatch") for capture in self._captures)
        return any(self._file.rows(f'SELECT 1 FROM "{table}" LIMIT 1') for table in tables)

    def lanes(self) -> Sequence[Lane]:
        """Every (process, GPU) that ran a kernel, by process and GPU."""
        return sorted({lane for lanes in self._lanes.values() for lane in lanes})

    @cached_property
    def _lanes(self) -> Mapping[Captured, Set[Lane]]:
        def lanes_of(capture: Captured) -> dict[Captured, Set[Lane]]:
            places = self._file.distinct("pid, agent_id", capture.table("kernel_dispatch"))
            for place in places:
                check_whole(*place)
            return {capture: {Lane(capture.process(pid), capture.device(agent)) for pid, agent in places}}

        return self._all("kernel_dispatch", lanes_of)

    def library_kernels(self) -> Set[tuple[str, str]]:
        """The names of the kernels of known communication libraries."""
        found: set[tuple[str, str]] = set()
        for capture in self._captures:
            symbols = capture.symbols.names().items()
            known = {number: names for number, names in symbols if known_communication(*names) is not None}
            if known:
                sql = f'SELECT DISTINCT kernel_id FROM "{capture.table("kernel_dispatch")}" WHERE kernel_id IN ({{}})'
                found |= {known[number] for (number,) in self._file.rows(sql.format(listed(known)))}
        return found

    # -- ranges

    def ranges(self, patterns: Sequence[str]) -> Mapping[int, Ranges]:
        """The ranges whose name matches a pattern."""
        if not patterns:
            return {}
        wanted = [like(pattern) for pattern in patterns]

        def matches(name: str) -> bool:
            return any(match(name) for match in wanted)

        return self._all("region", lambda capture: read_ranges(capture, patterns, matches))

    def ranges_around(self, spans: Mapping[int, Interval]) -> Mapping[int, Ranges]:
        """The ranges of each process that touch its span, RCCL's own left out."""
        return self._all("region", lambda capture: read_around(capture, spans))

    def module_calls(self) -> Mapping[int, Ranges]:
        """None: a program that marks its modules does it with ranges."""
        return {}

    def common_range_names(self, global_pid: int) -> Sequence[tuple[str, int]]:
        """The names that most ranges of a process have, with their counts."""
        counts = self._all("region", lambda capture: dict(common_names(capture, global_pid)))
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))

    # -- kernels

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that touch its span; None: all of them."""

        def read(capture: Captured) -> dict[Lane, Kernels]:
            own = _of_capture(capture, spans)
            return self._read(capture, own, _hull(own or spans), whole=None in own.values())

        found = self._all("kernel_dispatch", read)
        return {lane: touching_span(kernels, spans[lane]) for lane, kernels in found.items()}

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that have a launch row starting in its span, edges included."""

        def read(capture: Captured) -> dict[Lane, Kernels]:
            own = _of_capture(capture, spans)
            with damage(self._file, capture.table("region")):
                stacks = stacks_started(capture, own.values()) if own else ()
            where = capture.of_event(within("stack_id", min(stacks), max(stacks))) if stacks else ""
            return self._read(capture, own, where, whole=False) if stacks else {}

        some = self._all("kernel_dispatch", read)
        each = self.launches(some).items()
        inside = {lane: columns.touching(launch_ns, launch_ns, *spans[lane]) for lane, launch_ns in each}
        return {lane: some[lane].take(own) for lane, own in inside.items() if len(own)}

    def _read(self, capture: Captured, lanes: Mapping[Lane, object], where: str, *, whole: bool) -> dict[Lane, Kernels]:
        """The kernels of the lanes of a capture that pass; other processes that pass become unasked."""
        row = ("start", "end", capture.stack(NO_LAUNCH), "kernel_id", "pid", "agent_id", capture.stream)
        tables, without = _read_lanes(capture, capture.table("kernel_dispatch"), row, where, lanes, whole=whole)
        self._unasked |= without
        return {lane: self._named(capture, table) for lane, table in tables.items() if table}

    def _named(self, capture: Captured, table: Columns) -> Kernels:
        """The kernels, ordered by start, with the names of their symbols; what shares a launch may be of a graph."""
        ids, short, full, texts = capture.symbols
        kernels = table.sorted_kernels(dict.fromkeys(ids, ""), self.path, capture.table("info_kernel_symbol"))
        shared = len(columns.values(kernels.correlation)) < len(kernels)
        graphs = columns.values(array("q", graph_launches(capture) if shared else ()))
        of_graphs = columns.joined(graphs, array("q", [1]) * len(graphs), 0, kernels.correlation)
        return replace(
            kernels,
            name=columns.joined(ids, short, 0, kernels.name),
            full_name=columns.joined(ids, full, 0, kernels.name),
            names=dict(enumerate(texts)),
            graph_node=columns.equal(of_graphs, 1),
        )

    def idle(self, spans: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
        """Those of the spans of each lane in which no kernel runs."""
        return self._all("kernel_dispatch", lambda capture: self._idle(capture, _of_capture(capture, spans)))

    def _idle(self, capture: Captured, spans: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
        table = capture.table("kernel_dispatch")
        places = self._file.by_place(table, "start", sum(map(len, spans.values())))

        place = f"{self._file.row_id(table) or 0} BETWEEN ? AND ?"

        def busy(lanes: Sequence[Lane], span: Interval) -> set[Lane]:
            rows = [row for lane in lanes for row in capture.rows_of(lane.global_pid)]
            devices = {lane.device for lane in lanes}
            where = f"{place} AND end > ? AND start < ? AND end >= start AND pid IN ({listed(rows)})"
            if None not in devices:
                where += f" AND agent_id IN ({listed(n for n, a in capture.agents.items() if a.device in devices)})"
            sql = f'SELECT DISTINCT pid, agent_id FROM "{table}" WHERE {where} LIMIT {len(rows)}'
            found = self._file.rows(sql, (*places(*span), *span))
            places_of = ((capture.process(pid), capture.device(agent)) for pid, agent in found)
            return {Lane(pid, own) for pid, device in places_of for own in (device, None)}

        return idle(spans, busy, partial(self._times, capture))

    def _times(self, capture: Captured, around: Mapping[Lane, Interval]) -> Mapping[Lane, Iterable[Interval]]:
        found: dict[Lane, list[Interval]] = defaultdict(list)
        table, hull = capture.table("kernel_dispatch"), _hull(around)
        for pid, agent, start, end in self._file.scan("pid, agent_id, start, end", table, hull):
            check_whole(pid, agent, start, end)
            for device in (capture.device(agent), None) if start <= end else ():
                found[Lane(capture.process(pid), device)].append((start, end))
        return found

    # -- launches and other calls

    def launches(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, array[int]]:
        """The start of the call that launched each kernel."""
        return {lane: calls.start_ns for lane, calls in self.launch_calls(kernels).items()}

    def launch_calls(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
        """The call that launched each kernel."""

        def read(capture: Captured) -> dict[Lane, LaunchCalls]:
            own = _of_capture(capture, kernels)
            known = read_calls(capture, [some.correlation for some in own.values()])
            return {lane: known.get(lane.global_pid, EMPTY).of(some.correlation) for lane, some in own.items()}

        return self._all("region", read)

    def stream_waits(self) -> Mapping[int, Sequence[StreamWait]] | None:
        """None: the arguments of hipStreamWaitEvent are addresses, which name no stream and no event of the file."""
        return None

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> None:
        """None: nothing says of how many ranks a collective is."""

    def launch_records(
        self, spans: Mapping[int, Interval | None], kernels: Mapping[Lane, Kernels], /
    ) -> Mapping[int, Sequence[LaunchRecord]] | None:
        """Of the calls that launch work and start in the span of their process, how much work is on record."""
        each = self._all("region", lambda capture: {capture: read_launch_records(capture, spans, kernels)}).values()
        known = [own for own in each if own is not None]
        return {pid: some for own in known for pid, some in own.items()} if known else None

    def api_calls(self, name_globs: Sequence[str], spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Api]] | None:
        """The calls of HIP whose name matches a glob and that start in the span, by process."""
        each = self._all("region", lambda capture: {capture: api_calls(capture, name_globs, spans)}).values()
        known = [calls for calls in each if calls is not None]
        return {pid: some for calls in known for pid, some in calls.items()} if known else None

    def copies(self, spans: Mapping[Lane, Interval]) -> None:
        """None: whether memory of the host is pinned or pageable is in no row."""

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """All copies of these kinds, each named for its kind, by process and GPU."""

        def read(capture: Captured) -> dict[Lane, Kernels]:
            name, where = kind_of_copies(capture, kinds)
            return self._copies(capture, copy_row(capture, name), where, None, NAMES, whole=True)

        return told_apart(self, self._all("memory_copy", read), kinds)

    def copies_between_gpus(self) -> Mapping[Lane, Kernels]:
        """The copies to another GPU, and those that a collective launched."""
        return self.copies_as_kernels(BETWEEN_GPUS)

    def transfers(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels] | None:
        """The copies of each lane that touch its span; memsets are kernels of ROCm."""

        def read(capture: Captured) -> dict[Lane, Kernels]:
            if not (own := _of_capture(capture, spans)):
                return {}
            row, where = copy_row(capture, str(COPY_ID)), f"{with_a_gpu(capture)} AND {_hull(own)}"
            return self._copies(capture, row, where, own, TRANSFERS, whole=None in own.values())

        return {lane: touching_span(some, spans[lane]) for lane, some in self._all("memory_copy", read).items()}

    def _copies(
        self,
        capture: Captured,
        row: Sequence[str],
        where: str,
        lanes: Mapping[Lane, object] | None,
        names: Mapping[int, str],
        *,
        whole: bool,
    ) -> dict[Lane, Kernels]:
        tables, _ = _read_lanes(capture, capture.table("memory_copy"), row, where, lanes, whole=whole)
        return {lane: table.sorted_kernels(names, self.path) for lane, table in tables.items() if table}

    def memory(self) -> Mapping[Lane, Memory] | None:
        """What each process had allocated on each GPU; None where the trace was captured without allocations."""
        return self._all("memory_allocate", lambda capture: levels(allocations(capture))) or None

    def sm_clocks(self, spans: Mapping[Lane, Interval | None]) -> None:
        """None: rocprofv3 samples no clocks."""


def _of_capture(capture: Captured, some: Mapping[Lane, V]) -> dict[Lane, V]:
    """What is of the processes of a capture."""
    pids = set(capture.processes.values())
    return {lane: value for lane, value in some.items() if lane.global_pid in pids}


def _hull(spans: Mapping[Lane, Interval | None]) -> str:
    """Rows that touch the least span that holds all of these, in SQL; without a bound all rows."""
    bounded = [span for span in spans.values() if span is not None]
    if not bounded or len(bounded) < len(spans):
        return "1"
    return touches((min(low for low, _ in bounded), max(high for _, high in bounded)))


def _read_lanes(
    capture: Captured, table: str, row: Sequence[str], where: str, lanes: Collection[Lane] | None, *, whole: bool
) -> tuple[dict[Lane, Columns], set[int]]:
    """Rows of start, end, correlation, name, process, agent and stream, by lane, and the processes without a lane."""

    def placed(place: Sequence[int]) -> tuple[Lane, Stream]:
        row, agent, stream = place
        device = capture.device(agent)
        return Lane(capture.process(row), device), Stream(device, CONTEXT, stream)

    def use(found: Iterable[Block]) -> tuple[dict[Lane, Columns], set[int]]:
        """No row says that a graph launched its kernel, and each has one name."""
        return fill(
            lanes, ((s, e, c, name, name, array("q", [0]) * len(s), *at) for s, e, c, name, *at in found), placed
        )

    return read_blocks(capture.file, row, table, where, use, whole=whole)
