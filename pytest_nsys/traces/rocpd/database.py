"""How is a database of rocprofv3 (``rocpd``), schema 3, read? As an export of nsys, of which it has the tables as
views.

A stream is a stream of HIP (``stream_id``), as the program made it: what is issued to one runs in order. The queue of
HSA that it runs through (``queue_id``) is no such order: HIP shares four of them among all its streams. It is taken
where the profiler grouped by queue, and wrote stream 0 for everything.

Times count on the clock of the machine, of which nothing says when it was zero. A GPU is identified by its number among
the GPUs of its machine (``type_index``).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property, partial

from pytest_nsys.core import columns
from pytest_nsys.core.families import find_communication_library
from pytest_nsys.core.model import Api, Interval, Lane, LaunchRecord, ProcessId, Setup, TraceFacts
from pytest_nsys.core.tables import Kernels, Memory
from pytest_nsys.traces.nsys.calls import count_launches
from pytest_nsys.traces.nsys.launch_records import read_launch_records
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from pytest_nsys.traces.nsys.tables import KERNEL_TABLE, RUNTIME_TABLE, STRINGS_TABLE, build_process_condition
from pytest_nsys.traces.other_profilers import describe_missing_gpu
from pytest_nsys.traces.rocpd.captures import KernelSymbols, describe_schema, find_captures, read_symbols
from pytest_nsys.traces.rocpd.memory import ROCPD_MEMORY_ADVICE, read_allocations
from pytest_nsys.traces.rocpd.views import build_views, create_outer_call_tables
from pytest_nsys.traces.sqlite.columns import KernelColumns, collect_texts, report_damage
from pytest_nsys.traces.sqlite.conditions import build_ids_condition
from pytest_nsys.traces.trace_queries import is_not_nccl_range, measure_memory_levels

ROCPD_TRACE_ADVICE = "capture with rocprofv3 --kernel-trace --hip-trace --memory-copy-trace --marker-trace"
ROCPD_KERNELS_ADVICE = f"{ROCPD_TRACE_ADVICE} -f rocpd on a step that uses the GPU"
ROCPD_RANGES_ADVICE = (
    f"{ROCPD_TRACE_ADVICE} -f rocpd and mark the step with ROCTx (torch.cuda.nvtx.range_push does under ROCm)"
)
ROCPD_SIZES_ADVICE = "rocprofv3 does not record how many ranks a collective is of"
GRAPH_LAUNCH_GLOB = "*GraphLaunch*"


class RocpdDatabase(NsysSqlite):
    """Reads one database; implements :class:`~pytest_nsys.core.trace.Trace` for this format."""

    def _check_tables(self) -> None:
        self._captures = find_captures(self._file)
        self._file.define_views([*build_views(self._captures)], partial(create_outer_call_tables, self._captures))

    def facts(self) -> TraceFacts:
        """Return the schema, and the GPUs that ran kernels; never the stored environment."""
        gpus: dict[tuple[int, int], str] = {}
        uuids: dict[tuple[int, int], str] = {}
        for capture in self._captures:
            process_ids = {*capture.processes.values()}
            for lane in self._lanes:
                agent = next((a for a in capture.agents.values() if a.is_gpu and a.device == lane.device), None)
                if lane.global_pid not in process_ids or agent is None or lane.device is None:
                    continue
                device = (ProcessId(0, lane.global_pid).pid, lane.device)
                gpus |= {device: agent.model} if agent.model else {}
                uuids |= {device: agent.identity} if agent.identity else {}
        launches = 0 if self.has_kernels() else count_launches(self._file)
        return TraceFacts(
            has_kernels=self.has_kernels(),
            profiler_version=describe_schema(self._file),
            gpus=gpus,
            models=sorted(set(gpus.values())),
            uuids=uuids,
            whole_graph_count=0,
            diagnostics=(),
            to_see_kernels=describe_missing_gpu(launches, ROCPD_KERNELS_ADVICE) if launches else ROCPD_KERNELS_ADVICE,
            to_see_ranges=ROCPD_RANGES_ADVICE,
            to_see_calls="capture with rocprofv3 --hip-trace on all ranks",
            to_see_sizes=ROCPD_SIZES_ADVICE,
            to_see_memory=ROCPD_MEMORY_ADVICE,
            to_see_clocks="rocprofv3 does not sample clocks",
            impossible_rows=self._impossible_rows,
        )

    def setups(self) -> Mapping[int, Setup]:
        """Return the rank that the launcher put into the environment of each process."""
        return {pid: setup for capture in self._captures for pid, setup in capture.read_setups()}

    @cached_property
    def _symbols(self) -> KernelSymbols:
        return read_symbols(self._captures)

    def _get_kernel_name(self, kernel: int) -> str:
        return self._symbols.find_name(kernel)

    def library_kernels(self) -> Set[tuple[str, str]]:
        """Return the names of the kernels of known communication libraries."""
        names = self._symbols.map_names()
        library_names = {
            number: name_pair
            for number, name_pair in names.items()
            if find_communication_library(*name_pair) is not None
        }
        if not library_names:
            return frozenset()
        rows = self._file.fetch_rows(
            f"SELECT DISTINCT shortName FROM {KERNEL_TABLE} WHERE {build_ids_condition('shortName', library_names)}"
        )
        return {library_names[number] for (number,) in rows if number in library_names}

    def common_range_names(self, global_pid: int) -> Sequence[tuple[str, int]]:
        """Return the names that most ranges of a process have, with their counts; calls of RCCL are left out."""
        return [(name, count) for name, count in super().common_range_names(global_pid) if is_not_nccl_range(name)]

    def _build_named_kernels(self, tables: Mapping[Lane, KernelColumns]) -> dict[Lane, Kernels]:
        """Return the kernels, ordered by start, with the names of their symbols, and which of them a graph launched."""
        ids, short_names, full_names, texts = self._symbols
        named_kernels: dict[Lane, Kernels] = {}
        symbols = self._captures[0].get_table("info_kernel_symbol")
        for lane, table in tables.items():
            kernels = table.build_kernels(dict.fromkeys(ids, ""), self.path, symbols)
            # Kernels that share a launch may be of a graph: only then the calls are read for it.
            has_shared_launches = len(columns.list_distinct(kernels.correlation)) < len(kernels)
            graph_ids = columns.list_distinct(
                array("q", self._find_graph_launches(lane.global_pid) if has_shared_launches else ())
            )
            graph_flags = columns.look_up_keys(graph_ids, array("q", [1]) * len(graph_ids), 0, kernels.correlation)
            named_kernels[lane] = replace(
                kernels,
                name=columns.look_up_keys(ids, short_names, 0, kernels.name),
                full_name=columns.look_up_keys(ids, full_names, 0, kernels.name),
                names=dict(enumerate(texts)),
                graph_node=columns.mark_equal(graph_flags, 1),
            )
        return named_kernels

    def _find_graph_launches(self, global_pid: int) -> Set[int]:
        """Return the correlations of the calls that launched a graph."""
        if RUNTIME_TABLE not in self._file.tables:
            return frozenset()
        with report_damage(self._file, STRINGS_TABLE):
            globs = (GRAPH_LAUNCH_GLOB,)
            names = collect_texts(
                self._file.fetch_rows(f"SELECT id, value FROM {STRINGS_TABLE} WHERE value GLOB ?", globs)
            )
        if not names:
            return frozenset()
        condition = (
            f"{build_ids_condition('nameId', names)} AND {build_process_condition('globalTid', {global_pid: '1'})}"
        )
        rows = self._file.scan_rows("correlationId, 0", RUNTIME_TABLE, condition)
        return frozenset(number for number, _ in rows if type(number) is int)

    # -- launches and other calls

    @property
    def _has_calls(self) -> bool:
        return any(capture.has_events(number) for capture in self._captures for number in capture.categories.hip)

    def launch_records(
        self, spans: Mapping[int, Interval | None], kernels: Mapping[Lane, Kernels], /
    ) -> Mapping[int, Sequence[LaunchRecord]] | None:
        """Return how much work is on record of the calls that launch some and start in the span of their process."""
        return read_launch_records(self._file, spans, kernels, self._find_empty_copies) if self._has_calls else None

    def _find_empty_copies(self, global_pid: int) -> Set[int]:
        """Return the stack ids of calls of a process that copy 0 bytes, as far as their arguments are on record."""
        empty_copies = set[int]()
        for capture in self._captures:
            table = capture.get_table("arg")
            if global_pid in capture.processes.values() and self._file.has_columns(table, "event_id", "name", "value"):
                event_stack = f'(SELECT stack_id FROM "{capture.get_table("event")}" WHERE id = event_id)'
                rows = self._file.scan_rows(f"{event_stack}, 0", table, "name = 'sizeBytes' AND value = '0'")
                empty_copies |= {stack for stack, _ in rows}
        return empty_copies

    def api_calls(self, name_globs: Sequence[str], spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Api]] | None:
        """Return the calls of HIP whose name matches a glob and that start in the span, by process; None without
        calls.
        """
        return super().api_calls(name_globs, spans) if self._has_calls else None

    def memory(self) -> Mapping[Lane, Memory] | None:
        """Return what each process had allocated on each GPU; None where the trace was captured without allocations."""
        memory_by_lane: dict[Lane, Memory] = {}
        for capture in self._captures:
            with report_damage(self._file, capture.get_table("memory_allocate")):
                memory_by_lane |= measure_memory_levels(read_allocations(capture))
        return memory_by_lane or None
