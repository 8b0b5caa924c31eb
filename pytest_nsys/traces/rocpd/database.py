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
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from pytest_nsys.core import columns
from pytest_nsys.core.conventions import like
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.families import known_communication
from pytest_nsys.core.model import NO_LAUNCH, Api, Interval, Lane, Memory, ProcessId, Range, Setup, Stream, TraceFacts
from pytest_nsys.core.ranges import Ranges
from pytest_nsys.core.tables import Kernels, LaunchCalls, StreamWait
from pytest_nsys.traces.answers import EMPTY, idle, levels
from pytest_nsys.traces.copies_as_kernels import COPY_ID, NAMES, TRANSFERS, told_apart, touching_span
from pytest_nsys.traces.rocpd.calls import api_calls, graph_launches, read_calls, stacks_started
from pytest_nsys.traces.rocpd.copies import copy_row, kind_of_copies, with_a_gpu
from pytest_nsys.traces.rocpd.memory import TO_SEE_MEMORY, allocations
from pytest_nsys.traces.rocpd.parts import Part, find_parts, versions
from pytest_nsys.traces.rocpd.ranges import common_names, in_order, read_around, read_ranges
from pytest_nsys.traces.sqlite_columns import Block, Columns, check_whole, damage, fill, read_blocks, slower
from pytest_nsys.traces.sqlite_conditions import listed, touches, within
from pytest_nsys.traces.sqlite_file import SqliteFile

TRACE = "capture with rocprofv3 --kernel-trace --hip-trace --memory-copy-trace --marker-trace"
TO_SEE_KERNELS = f"{TRACE} -f rocpd on a step that uses the GPU"
TO_SEE_RANGES = f"{TRACE} -f rocpd and mark the step with ROCTx (torch.cuda.nvtx.range_push does under ROCm)"
TO_SEE_SIZES = "rocprofv3 does not record how many ranks a collective is of"
T = TypeVar("T")

CONTEXT = 0
"""Of every stream: HIP has no contexts beside its devices."""


class Rocpd:
    """One database; the :class:`~pytest_nsys.core.model.Trace` of this format."""

    def __init__(self, path: Path, file: SqliteFile | None = None) -> None:
        self.path = path
        self._file = SqliteFile(path) if file is None else file
        self._unasked: set[int] = set()
        try:
            self._parts = find_parts(self._file)
        except TraceError:
            self.close()
            raise

    def close(self) -> None:
        """Let the file go."""
        self._file.close()

    def _damage(self, part: Part, kind: str) -> AbstractContextManager[None]:
        return damage(self._file, part.table(kind))

    def facts(self) -> TraceFacts:
        """The schema, and the GPUs that ran kernels; never the stored environment."""
        gpus: dict[tuple[int, int], str] = {}
        for part in self._parts:
            for lane in self._lanes[part]:
                model = next((a.model for a in part.agents.values() if a.is_gpu and a.device == lane.device), "")
                if model and lane.device is not None:
                    gpus[ProcessId(0, lane.global_pid).pid, lane.device] = model
        return TraceFacts(
            profiler_version=versions(self._file),
            gpus=gpus,
            models=sorted(set(gpus.values())),
            whole_graphs=0,
            diagnostics=(),
            notes=[f"{self.path}: {why}: pip install -U 'pytest-nsys[fast]'"] if (why := slower()) else (),
            to_see_kernels=TO_SEE_KERNELS,
            to_see_ranges=TO_SEE_RANGES,
            to_see_calls="capture with rocprofv3 --hip-trace on all ranks",
            to_see_sizes=TO_SEE_SIZES,
            to_see_memory=TO_SEE_MEMORY,
            to_see_clocks="rocprofv3 does not sample clocks",
        )

    def setups(self) -> Mapping[int, Setup]:
        """The rank that the launcher put into the environment of each process."""
        return {pid: setup for part in self._parts for pid, setup in part.setups()}

    def unasked(self) -> Set[int]:
        """Processes that ran kernels in the spans read so far, but in no lane that was asked for."""
        return self._unasked

    def has_kernels(self) -> bool:
        """Whether anything ran on a GPU."""
        return any(self._file.rows(f'SELECT 1 FROM "{part.table("kernel_dispatch")}" LIMIT 1') for part in self._parts)

    def lanes(self) -> Sequence[Lane]:
        """Every (process, GPU) that ran a kernel, by process and GPU."""
        return sorted({lane for lanes in self._lanes.values() for lane in lanes})

    @cached_property
    def _lanes(self) -> Mapping[Part, Set[Lane]]:
        found: dict[Part, Set[Lane]] = {}
        for part in self._parts:
            places = self._file.distinct("pid, agent_id", part.table("kernel_dispatch"))
            with self._damage(part, "kernel_dispatch"):
                for place in places:
                    check_whole(*place)
                found[part] = frozenset(Lane(part.process(pid), part.device(agent)) for pid, agent in places)
        return found

    def library_kernels(self) -> Set[tuple[str, str]]:
        """The names of the kernels of known communication libraries."""
        found: set[tuple[str, str]] = set()
        for part in self._parts:
            known = {n: names for n, names in part.symbols.names().items() if known_communication(*names) is not None}
            if known:
                sql = f'SELECT DISTINCT kernel_id FROM "{part.table("kernel_dispatch")}" WHERE kernel_id IN ({{}})'
                found |= {known[number] for (number,) in self._file.rows(sql.format(listed(known)))}
        return found

    # -- ranges

    def ranges(self, patterns: Sequence[str]) -> Mapping[int, Sequence[Range]]:
        """The ranges whose name matches a pattern."""
        if not patterns:
            return {}
        wanted = [like(pattern) for pattern in patterns]
        found: dict[int, list[Range]] = {}
        for part in self._parts:
            with self._damage(part, "region"):
                found |= read_ranges(part, patterns, lambda name: any(matches(name) for matches in wanted))
        return {pid: in_order(ranges) for pid, ranges in found.items()}

    def ranges_around(self, spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Range]]:
        """The ranges of each process that touch its span, RCCL's own left out."""
        found: dict[int, Ranges] = {}
        for part in self._parts:
            with self._damage(part, "region"):
                found |= read_around(part, spans)
        return found

    def common_range_names(self, global_pid: int) -> Sequence[tuple[str, int]]:
        """The names that most ranges of a process have, with their counts."""
        counts: Counter[str] = Counter()
        for part in self._parts:
            with self._damage(part, "region"):
                counts.update(dict(common_names(part, global_pid)))
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))

    # -- kernels

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that touch its span; None: all of them."""
        found: dict[Lane, Kernels] = {}
        for part in self._parts:
            own = _of_part(part, spans)
            found |= self._read(part, own, _hull(own or spans), whole=None in own.values())
        return {lane: touching_span(kernels, spans[lane]) for lane, kernels in found.items()}

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """The kernels of each lane that have a launch row starting in its span, edges included."""
        found: dict[Lane, Kernels] = {}
        for part in self._parts:
            own = _of_part(part, spans)
            with self._damage(part, "region"):
                stacks = stacks_started(part, {lane.global_pid: span for lane, span in own.items()}) if own else ()
            if stacks:
                some = self._read(part, own, part.of_event(within("stack_id", min(stacks), max(stacks))), whole=False)
                for lane, launches in self.launches(some).items():
                    low, high = spans[lane]
                    inside = [i for i, launch in enumerate(launches) if low <= launch <= high]
                    if inside:
                        found[lane] = some[lane].take(inside)
        return found

    def _read(self, part: Part, lanes: Mapping[Lane, object], where: str, *, whole: bool) -> dict[Lane, Kernels]:
        """The kernels of the lanes of a capture that pass; other processes that pass become unasked."""
        row = ("start", "end", part.stack(NO_LAUNCH), "kernel_id", "pid", "agent_id", part.stream)
        with self._damage(part, "kernel_dispatch"):
            tables, without = _read_lanes(part, part.table("kernel_dispatch"), row, where, lanes, whole=whole)
            self._unasked |= without
        return {lane: self._named(part, table) for lane, table in tables.items() if table}

    def _named(self, part: Part, table: Columns) -> Kernels:
        """The kernels, ordered by start, with the names of their symbols; what shares a launch may be of a graph."""
        ids, short, full, texts = part.symbols
        kernels = table.sorted_kernels(dict.fromkeys(ids, ""), self.path, part.table("info_kernel_symbol"))
        shared = len(columns.values(kernels.correlation)) < len(kernels)
        graphs = columns.values(array("q", graph_launches(part) if shared else ()))
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
        return {lane: own for part in self._parts for lane, own in self._idle(part, _of_part(part, spans)).items()}

    def _idle(self, part: Part, spans: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
        table = part.table("kernel_dispatch")
        places = self._file.by_place(table, "start", sum(map(len, spans.values())))

        place = f"{self._file.row_id(table) or 0} BETWEEN ? AND ?"

        def busy(lanes: Sequence[Lane], span: Interval) -> set[Lane]:
            rows = [row for lane in lanes for row in part.rows_of(lane.global_pid)]
            devices = {lane.device for lane in lanes}
            where = f"{place} AND end > ? AND start < ? AND pid IN ({listed(rows)})"
            if None not in devices:
                where += f" AND agent_id IN ({listed(n for n, a in part.agents.items() if a.device in devices)})"
            sql = f'SELECT DISTINCT pid, agent_id FROM "{table}" WHERE {where} LIMIT {len(rows)}'
            found = self._file.rows(sql, (*places(*span), *span))
            return {Lane(part.process(pid), device) for pid, agent in found for device in (part.device(agent), None)}

        return idle(spans, busy, partial(self._times, part))

    def _times(self, part: Part, around: Mapping[Lane, Interval]) -> Mapping[Lane, Iterable[Interval]]:
        found: dict[Lane, list[Interval]] = defaultdict(list)
        table, hull = part.table("kernel_dispatch"), _hull(around)
        with self._damage(part, "kernel_dispatch"):
            for pid, agent, start, end in self._file.scan("pid, agent_id, start, end", table, hull):
                check_whole(pid, agent, start, end)
                for device in (part.device(agent), None):
                    found[Lane(part.process(pid), device)].append((start, end))
        return found

    # -- launches and other calls

    def launches(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, array[int]]:
        """The start of the call that launched each kernel."""
        return {lane: calls.start_ns for lane, calls in self.launch_calls(kernels).items()}

    def launch_calls(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
        """The call that launched each kernel."""
        found: dict[Lane, LaunchCalls] = {}
        for part in self._parts:
            own = _of_part(part, kernels)
            with self._damage(part, "region"):
                known = read_calls(part, [some.correlation for some in own.values()])
            found |= {lane: known.get(lane.global_pid, EMPTY).of(some.correlation) for lane, some in own.items()}
        return found

    def stream_waits(self) -> Mapping[int, Sequence[StreamWait]] | None:
        """None: the arguments of hipStreamWaitEvent are addresses, which name no stream and no event of the file."""
        return None

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> None:
        """None: nothing says of how many ranks a collective is."""

    def api_calls(self, name_globs: Sequence[str], spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Api]] | None:
        """The calls of HIP whose name matches a glob and that start in the span, by process."""
        each = []
        for part in self._parts:
            with self._damage(part, "region"):
                each.append(api_calls(part, name_globs, spans))
        known = [calls for calls in each if calls is not None]
        return {pid: some for calls in known for pid, some in calls.items()} if known else None

    def copies(self, spans: Mapping[Lane, Interval]) -> None:
        """None: whether memory of the host is pinned or pageable is in no row."""

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """All copies of these kinds, each named for its kind, by process and GPU."""
        found: dict[Lane, Kernels] = {}
        for part in self._parts:
            name, where = kind_of_copies(part, kinds)
            found |= self._copies(part, copy_row(part, name), where, None, NAMES, whole=True)
        return told_apart(self, found, kinds)

    def transfers(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels] | None:
        """The copies of each lane that touch its span; memsets are kernels of ROCm."""
        found: dict[Lane, Kernels] = {}
        for part in self._parts:
            if own := _of_part(part, spans):
                row, where = copy_row(part, str(COPY_ID)), f"{with_a_gpu(part)} AND {_hull(own)}"
                found |= self._copies(part, row, where, own, TRANSFERS, whole=None in own.values())
        return {lane: touching_span(some, spans[lane]) for lane, some in found.items()}

    def _copies(
        self,
        part: Part,
        row: Sequence[str],
        where: str,
        lanes: Mapping[Lane, object] | None,
        names: Mapping[int, str],
        *,
        whole: bool,
    ) -> dict[Lane, Kernels]:
        with self._damage(part, "memory_copy"):
            tables, _ = _read_lanes(part, part.table("memory_copy"), row, where, lanes, whole=whole)
        return {lane: table.sorted_kernels(names, self.path) for lane, table in tables.items() if table}

    def memory(self) -> Mapping[Lane, Memory] | None:
        """What each process had allocated on each GPU; None where the trace was captured without allocations."""
        found: dict[Lane, Memory] = {}
        for part in self._parts:
            with self._damage(part, "memory_allocate"):
                found |= levels(allocations(part))
        return found or None

    def sm_clocks(self, spans: Mapping[Lane, Interval | None]) -> None:
        """None: rocprofv3 samples no clocks."""


def _of_part(part: Part, some: Mapping[Lane, T]) -> dict[Lane, T]:
    """What is of the processes of a capture."""
    pids = set(part.processes.values())
    return {lane: value for lane, value in some.items() if lane.global_pid in pids}


def _hull(spans: Mapping[Lane, Interval | None]) -> str:
    """Rows that touch the least span that holds all of these, in SQL; without a bound all rows."""
    bounded = [span for span in spans.values() if span is not None]
    if not bounded or len(bounded) < len(spans):
        return "1"
    return touches((min(low for low, _ in bounded), max(high for _, high in bounded)))


def _read_lanes(
    part: Part, table: str, row: Sequence[str], where: str, lanes: Collection[Lane] | None, *, whole: bool
) -> tuple[dict[Lane, Columns], set[int]]:
    """Rows of start, end, correlation, name, process, agent and stream, by lane, and the processes without a lane."""

    def placed(place: Sequence[int]) -> tuple[Lane, Stream]:
        row, agent, stream = place
        device = part.device(agent)
        return Lane(part.process(row), device), Stream(device, CONTEXT, stream)

    def use(found: Iterable[Block]) -> tuple[dict[Lane, Columns], set[int]]:
        """No row says that a graph launched its kernel, and each has one name."""
        return fill(
            lanes, ((s, e, c, name, name, array("q", [0]) * len(s), *at) for s, e, c, name, *at in found), placed
        )

    return read_blocks(part.file, row, table, where, use, whole=whole)
