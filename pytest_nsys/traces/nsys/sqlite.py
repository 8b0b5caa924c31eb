"""How is an Nsight Systems SQLite export read, of schema 2021.2 to 3.28?

An export has no indexes, so a table is passed once per question, for all processes together, with filters that are
plain comparisons; names are looked up by id afterwards. Only columns that every version has are required; what a
version lacks is done without or named. Row order is never relied on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

from pytest_nsys.core.columns import find_touching_spans
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.families import find_communication_library
from pytest_nsys.core.intervals import find_hull
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import (
    SINCE_1970,
    Api,
    Collective,
    Copy,
    Diagnostic,
    ImpossibleRows,
    Interval,
    Lane,
    LaunchRecord,
    Setup,
    TraceFacts,
)
from pytest_nsys.core.tables import Kernels, LaunchCalls, Memory, ProgramRecords, Ranges, Series, StreamWait
from pytest_nsys.traces.copies_as_kernels import INTER_GPU_COPY_KINDS, merge_copies, select_copies
from pytest_nsys.traces.nsys.calls import (
    count_launches,
    read_api_calls,
    read_launch_calls,
    read_started_calls,
    read_stream_waits,
)
from pytest_nsys.traces.nsys.collectives import NSYS_SIZES_ADVICE, read_collectives
from pytest_nsys.traces.nsys.gpu_metrics import SAMPLES_TABLE, describe_clock_capture, read_sm_clocks
from pytest_nsys.traces.nsys.graph_nodes import read_issue_calls
from pytest_nsys.traces.nsys.launch_records import read_launch_records
from pytest_nsys.traces.nsys.memory import (
    MEMORY_EVENTS,
    TRANSFER_TABLES,
    describe_memory_capture,
    read_copies,
    read_copies_as_kernels,
    read_memory,
    read_transfers,
)
from pytest_nsys.traces.nsys.ranges import list_common_names, read_named_ranges, read_touching_ranges, select_by_name
from pytest_nsys.traces.nsys.tables import (
    GRAPHS_TABLE,
    KERNEL_TABLE,
    MEMCPY_TABLE,
    NVTX_TABLE,
    OPERATION_LABELS,
    REQUIRED_COLUMNS,
    RUNTIME_TABLE,
    STRINGS_TABLE,
    build_process_condition,
    check_process,
    count_impossible_operations,
    read_kernels,
    read_strings,
)
from pytest_nsys.traces.other_profilers import describe_missing_gpu
from pytest_nsys.traces.profiler_messages import build_diagnostics
from pytest_nsys.traces.sqlite.columns import (
    MANY_ROWS,
    KernelColumns,
    check_integers,
    check_text,
    has_many_rows,
    report_damage,
)
from pytest_nsys.traces.sqlite.conditions import build_bounds_condition, build_touch_condition, format_ids
from pytest_nsys.traces.sqlite.file import SqliteFile
from pytest_nsys.traces.sqlite.zones import find_touching_rows
from pytest_nsys.traces.trace_queries import EMPTY_CALL_TABLE, select_idle_spans

NSYS_KERNELS_ADVICE = "capture with --trace=cuda,nvtx on a step that uses the GPU"
NSYS_LAUNCHED_ADVICE = (
    "capture again, with no other profiler on the GPU, and let the program end by itself, or add "
    "--cuda-flush-interval=1000"
)


class NsysSqlite:
    """Reads one export; implements :class:`~pytest_nsys.core.trace.Trace` for this format."""

    def __init__(self, path: Path, file: SqliteFile | None = None) -> None:
        self.path = path
        self._file = SqliteFile(path) if file is None else file
        self._unrequested_processes: set[int] = set()
        self._cached_ranges: tuple[frozenset[str], Mapping[int, Ranges]] = frozenset(), {}
        try:
            self._check_tables()
        except TraceError:
            self.close()
            raise

    def _check_tables(self) -> None:
        """Check the tables. Raises TraceError for a file that is no export, or lacks what every version has."""
        self._file.adopt_plain_views()  # whoever shrinks an export leaves one where a table was
        tables = self._file.tables
        if not tables & {KERNEL_TABLE, RUNTIME_TABLE, NVTX_TABLE, "TARGET_INFO_SESSION_START_TIME", "ANALYSIS_DETAILS"}:
            raise TraceError(f"{self.path}: is SQLite, but not an Nsight Systems export (it has no table of one)")
        for table, names in REQUIRED_COLUMNS.items():
            if table in tables:
                missing = [n for n in names.split() if n.lower() not in self._file.read_columns(table)]
                if missing:
                    raise TraceError(f"{self.path}: table {table} lacks the column {', '.join(missing)}")
        if STRINGS_TABLE not in tables and KERNEL_TABLE in tables:
            obstacle = "a view of no one table as" if STRINGS_TABLE in self._file.views else "no table"
            raise TraceError(
                f"{self.path}: has {obstacle} {STRINGS_TABLE}, so no kernel has a name: export the report again"
            )

    @property
    def file(self) -> SqliteFile:
        """The SQLite file with its tables."""
        return self._file

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def facts(self) -> TraceFacts:
        """Return versions, GPU models and the profiler's diagnostics; never the stored environment."""
        settings: dict[str, str] = {}
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            if table in self._file.tables:
                sql = f"SELECT name, value FROM {table} WHERE name = ?"
                rows = self._file.fetch_rows(sql, ("EXPORT_PRODUCT_VERSION",))
                settings |= {name: value for name, value in rows if isinstance(value, str)}
        graph_count = (
            self._file.fetch_rows(f"SELECT count(*) FROM {GRAPHS_TABLE}")[0][0]
            if GRAPHS_TABLE in self._file.tables
            else 0
        )
        lengths_ns = self._read_numbers("ANALYSIS_DETAILS", "duration")
        starts_ns = {*filter(None, self._read_numbers("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"))}
        return TraceFacts(
            has_kernels=self.has_kernels(),
            profiler_version=settings.get("EXPORT_PRODUCT_VERSION"),
            gpus=self._read_gpus(),
            models=self._read_models(),
            uuids=self._read_uuids(),
            whole_graph_count=graph_count,
            diagnostics=self._read_diagnostics(),
            session_ns=max(lengths_ns) if lengths_ns and all(lengths_ns) else None,
            to_see_kernels=self._describe_missing_kernels(),
            to_see_sizes=NSYS_SIZES_ADVICE,
            to_see_memory=describe_memory_capture(self._file),
            to_see_clocks=describe_clock_capture(self._file),
            started_ns=min(starts_ns, default=None),
            clock_zeros_ns={None: min(starts_ns)} if len(starts_ns) == 1 and min(starts_ns) in SINCE_1970 else {},
            impossible_rows=self._impossible_rows,
        )

    @cached_property
    def _impossible_rows(self) -> ImpossibleRows:
        """The operations whose times cannot be."""
        impossible_rows = ImpossibleRows()
        for table, row_label in OPERATION_LABELS.items():
            if self._file.has_columns(table, "start", "end"):
                with self._report_damage(table):
                    impossible_rows = impossible_rows.add(
                        count_impossible_operations(self._file, table, row_label, self._get_kernel_name)
                    )
        return impossible_rows

    def _get_kernel_name(self, kernel: int) -> str:
        """Return the name with this id, "" for none."""
        return read_strings(self._file, [kernel]).get(kernel, "")

    def _describe_missing_kernels(self) -> str:
        """Describe what to do where nothing ran on a GPU: it depends on whether kernels were launched."""
        launches = 0 if self.has_kernels() else count_launches(self._file)
        return describe_missing_gpu(launches, NSYS_LAUNCHED_ADVICE) if launches else NSYS_KERNELS_ADVICE

    def _report_damage(self, table: str) -> AbstractContextManager[None]:
        return report_damage(self._file, table)

    def _read_gpus(self) -> dict[tuple[int, int], str]:
        has_columns = self._file.has_columns
        if not (
            has_columns("TARGET_INFO_GPU", "id", "name")
            and has_columns("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid")
        ):
            return {}
        sql = (
            "SELECT d.pid, d.cudaId, g.name FROM TARGET_INFO_CUDA_DEVICE d "
            "JOIN TARGET_INFO_GPU g ON g.id = d.gpuId WHERE g.name IS NOT NULL"
        )
        with self._report_damage("TARGET_INFO_GPU"):
            rows = self._file.fetch_rows(sql)
            check_integers(*(number for row in rows for number in row[:2]))
            return {(pid, device): check_text(name) for pid, device, name in rows}

    def _read_uuids(self) -> dict[tuple[int, int], str]:
        """Return the GPU of each device of a process by its UUID; where none is on record, of one machine by its
        number.
        """
        has_columns = self._file.has_columns
        if not has_columns("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid"):
            return {}
        uuid_sql, one_machine_sql = "d.uuid" if has_columns("TARGET_INFO_CUDA_DEVICE", "uuid") else "NULL", "0"
        join = ""
        if has_columns("TARGET_INFO_GPU", "id", "uuid", "vmId"):
            uuid_sql, join = f"ifnull({uuid_sql}, g.uuid)", "LEFT JOIN TARGET_INFO_GPU g ON g.id = d.gpuId"
            one_machine_sql = "(SELECT count(DISTINCT vmId) FROM TARGET_INFO_GPU) = 1"
        sql = f"SELECT d.pid, d.cudaId, d.gpuId, {uuid_sql}, {one_machine_sql} FROM TARGET_INFO_CUDA_DEVICE d {join}"
        identities_by_device: dict[tuple[int, int], set[str]] = {}
        with self._report_damage("TARGET_INFO_CUDA_DEVICE"):
            for pid, device, gpu_id, uuid, one_machine in self._file.fetch_rows(sql):
                is_real_uuid = isinstance(uuid, str) and set(uuid.upper()) - {*"GPU-0"}
                identity = uuid if is_real_uuid else f"{self.path} {gpu_id}" if one_machine else None
                if identity is not None:
                    identities_by_device.setdefault((pid, device), set()).add(identity)
        return {device: min(identities) for device, identities in identities_by_device.items() if len(identities) == 1}

    def _read_models(self) -> tuple[str, ...]:
        if not self._file.has_columns("TARGET_INFO_GPU", "name"):
            return ()
        sql = "SELECT DISTINCT name FROM TARGET_INFO_GPU WHERE name IS NOT NULL ORDER BY name"
        with self._report_damage("TARGET_INFO_GPU"):
            return tuple(check_text(name) for (name,) in self._file.fetch_rows(sql))

    def _read_diagnostics(self) -> tuple[Diagnostic, ...]:
        if not self._file.has_columns("DIAGNOSTIC_EVENT", "severity", "text"):
            return ()
        sql = "SELECT text FROM DIAGNOSTIC_EVENT WHERE severity IN (2, 3) ORDER BY severity DESC, "
        sql += self._file.find_row_id_name("DIAGNOSTIC_EVENT") or "text"
        setting_tables = [
            table
            for table in ("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV")
            if self._file.has_columns(table, "name", "value")
        ]
        settings = (
            row for table in setting_tables for row in self._file.fetch_rows(f"SELECT name, value FROM {table}")
        )
        return build_diagnostics((text for (text,) in self._file.fetch_rows(sql)), settings)

    def _read_numbers(self, table: str, column: str) -> list[int]:
        """Return the number in each row, 0 where it is not above 0; none where the version has no such column."""
        rows = self._file.fetch_rows(f"SELECT {column} FROM {table}") if self._file.has_columns(table, column) else ()
        return [number if type(number) is int and number > 0 else 0 for (number,) in rows]

    def setups(self) -> Mapping[int, Setup]:
        """Return nothing: no export says of which rank it is."""
        return {}

    def list_unrequested_processes(self) -> Set[int]:
        """Return the processes that ran kernels in the spans read so far, but in no lane that was requested."""
        return self._unrequested_processes

    def has_kernels(self) -> bool:
        """Return whether anything ran on a GPU."""
        return KERNEL_TABLE in self._file.tables and bool(
            self._file.fetch_rows(f"SELECT 1 FROM {KERNEL_TABLE} LIMIT 1")
        )

    def lanes(self) -> Sequence[Lane]:
        """Return every (process, device) that ran a kernel, by process and device."""
        return self._lanes

    @cached_property
    def _lanes(self) -> tuple[Lane, ...]:
        return tuple(sorted({Lane(pid, device) for pid, device, _ in self._kernel_places}))

    @cached_property
    def _kernel_places(self) -> Set[tuple[int, int, int]]:
        """The (process, device, context) of all kernels."""
        if KERNEL_TABLE not in self._file.tables:
            return frozenset()
        places = self._file.fetch_distinct("globalPid, deviceId, contextId", KERNEL_TABLE)
        with self._report_damage(KERNEL_TABLE):
            for pid, device, context in places:
                check_process(pid, device)
                check_integers(device, context)
        return places

    def library_kernels(self) -> Set[tuple[str, str]]:
        """Return the names of the kernels of known communication libraries."""
        if KERNEL_TABLE not in self._file.tables:
            return frozenset()
        ids = self._file.fetch_distinct("shortName, demangledName", KERNEL_TABLE)
        with self._report_damage(KERNEL_TABLE):
            texts = read_strings(self._file, (number for pair in ids for number in pair))
        names = {(texts.get(short, ""), texts.get(full, "")) for short, full in ids}
        return {pair for pair in names if find_communication_library(*pair) is not None}

    # -- ranges

    def ranges(self, patterns: Sequence[str]) -> Mapping[int, Ranges]:
        """Return the ranges whose name matches a pattern, open ones too; those before the profiler's start are left
        out.
        """
        if NVTX_TABLE not in self._file.tables or not patterns:
            return {}
        cached_patterns, cached_ranges = self._cached_ranges
        if not cached_patterns.issuperset(patterns):
            cached_patterns = cached_patterns.union(patterns)
            with self._report_damage(NVTX_TABLE):
                cached_ranges = read_named_ranges(self._file, sorted(cached_patterns))
            # What was read is kept where it is not most of a large table: who looks for a convention asks for the same
            # again.
            if sum(map(len, cached_ranges.values())) < MANY_ROWS:
                self._cached_ranges = cached_patterns, cached_ranges
        return cached_ranges if cached_patterns == {*patterns} else select_by_name(cached_ranges, patterns)

    def ranges_around(self, spans: Mapping[int, Interval]) -> Mapping[int, Ranges]:
        """Return the ranges of each process that touch its span, open ones included, NCCL's own left out."""
        if NVTX_TABLE not in self._file.tables or not spans:
            return {}
        with self._report_damage(NVTX_TABLE):
            return read_touching_ranges(self._file, spans)

    def module_calls(self) -> Mapping[int, Ranges]:
        """Return none: a program that marks its modules does it with ranges."""
        return {}

    def program_records(self, _spans: Mapping[int, Interval]) -> Mapping[int, ProgramRecords]:
        """Return none: what a program was doing is said by its ranges alone."""
        return {}

    def common_range_names(self, global_pid: int) -> Sequence[tuple[str, int]]:
        """Return the names that most ranges of a process have, with their counts."""
        return list_common_names(self._file, global_pid) if NVTX_TABLE in self._file.tables else ()

    # -- kernels

    def kernels(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels]:
        """Return the kernels of each lane that touch its span; None: all of them."""
        bounded = [span for span in spans.values() if span is not None]
        whole_table = len(bounded) < len(spans)
        conditions = {lane: "1" if span is None else build_touch_condition(span) for lane, span in spans.items()}
        if whole_table or not bounded:
            return self._read_kernels(conditions, "1", whole_table=whole_table)
        search_span = find_hull(bounded)
        with self._report_damage(KERNEL_TABLE):
            row_id_ranges = find_touching_rows(self._file, KERNEL_TABLE, search_span)
        return self._read_kernels(
            conditions, build_touch_condition(search_span), whole_table=False, row_id_ranges=row_id_ranges
        )

    def kernels_launched(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Kernels]:
        """Return the kernels of each lane that have a launch row starting in its span, edges included."""
        if RUNTIME_TABLE not in self._file.tables:
            return {}
        processes = group_by_key(
            (lane.global_pid, span) for lane, span in spans.items()
        )  # of one on several devices all
        with self._report_damage(RUNTIME_TABLE):
            calls = read_started_calls(
                self._file, {pid: find_hull(process_spans) for pid, process_spans in processes.items()}
            )
        ids = {
            lane: correlations
            for lane in spans
            if (correlations := calls.get(lane.global_pid, EMPTY_CALL_TABLE).correlations)
        }
        if not ids:
            return {}
        conditions = {
            lane: build_bounds_condition("correlationId", correlations[0], correlations[-1])
            for lane, correlations in ids.items()
        }
        any_id = build_bounds_condition(
            "correlationId",
            min(correlations[0] for correlations in ids.values()),
            max(correlations[-1] for correlations in ids.values()),
        )
        candidates = self._read_kernels(conditions, any_id, whole_table=False)
        starts_by_lane = {
            lane: calls[lane.global_pid].find_starts(kernels.correlation) for lane, kernels in candidates.items()
        }
        indices_by_lane = {
            lane: find_touching_spans(at_ns, at_ns, *spans[lane]) for lane, at_ns in starts_by_lane.items()
        }
        return {lane: kernels.take(indices_by_lane[lane]) for lane, kernels in candidates.items()}

    def idle(self, spans: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
        """Return those of the spans of each lane in which no kernel runs."""
        if KERNEL_TABLE not in self._file.tables:
            return spans
        locate_rows = self._file.build_row_locator(KERNEL_TABLE, "start", sum(map(len, spans.values())))

        row_condition = f"{self._file.find_row_id_name(KERNEL_TABLE) or 0} BETWEEN ? AND ?"

        def find_busy(lanes: Sequence[Lane], span: Interval) -> set[Lane]:
            condition = f"{row_condition} AND end > ? AND start < ? AND end >= start"
            condition += f" AND globalPid IN ({format_ids(lane.global_pid for lane in lanes)})"
            if len(lanes) == 1 and lanes[0].device is not None:
                condition += f" AND deviceId = {lanes[0].device}"
            sql = f"SELECT DISTINCT globalPid, deviceId FROM {KERNEL_TABLE} WHERE {condition} LIMIT {len(lanes)}"
            rows = self._file.fetch_rows(sql, (*locate_rows(*span), *span))
            return {Lane(pid, lane_device) for pid, device in rows for lane_device in (device, None)}

        return select_idle_spans(spans, find_busy, self._read_kernel_times)

    def _read_kernel_times(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Iterable[Interval]]:
        """Return when kernels ran that touch the hull of the spans, by lane."""
        times_by_lane: dict[Lane, list[Interval]] = defaultdict(list)
        columns, span = "globalPid, deviceId, start, end", find_hull(spans.values())
        with self._report_damage(KERNEL_TABLE):
            row_id_ranges = find_touching_rows(self._file, KERNEL_TABLE, span)
            for pid, device, start, end in self._file.scan_rows(
                columns, KERNEL_TABLE, build_touch_condition(span), row_id_ranges=row_id_ranges
            ):
                check_process(pid, device)
                check_integers(device, start, end)
                for lane in (Lane(pid, device), Lane(pid, None)) if start <= end else ():
                    times_by_lane[lane].append((start, end))
        return times_by_lane

    def _read_kernels(
        self,
        conditions: Mapping[Lane, str],
        hull_condition: str,
        *,
        whole_table: bool,
        row_id_ranges: Sequence[Interval] | None = None,
    ) -> dict[Lane, Kernels]:
        """Return the kernels that pass ``hull_condition``, which is cheap and checked first, and the condition of their
        lane.
        """
        if KERNEL_TABLE not in self._file.tables or not conditions:
            return {}
        conditions_by_process: dict[int, list[str]] = defaultdict(list)
        for lane, condition in conditions.items():
            device = "" if lane.device is None else f"deviceId = {lane.device} AND "
            conditions_by_process[lane.global_pid].append(f"({device}{condition})")
        process_condition = build_process_condition(
            "globalPid", {pid: " OR ".join(parts) for pid, parts in conditions_by_process.items()}
        )
        # Kernels of other processes pass, to be named: a rank that nobody requested would else be missing in silence.
        foreign_condition = f"(globalPid NOT IN ({format_ids(conditions_by_process)}) OR globalPid IS NULL)"
        where = "1" if whole_table else f"{hull_condition} AND ({process_condition} OR {foreign_condition})"
        with self._report_damage(KERNEL_TABLE):
            whole_table = whole_table or (row_id_ranges is None and has_many_rows(self._file, KERNEL_TABLE, where))
            tables, foreign_processes = read_kernels(
                self._file, conditions, where, whole_table=whole_table, row_id_ranges=row_id_ranges
            )
        self._unrequested_processes |= foreign_processes
        return self._build_named_kernels({lane: table for lane, table in tables.items() if table})

    def _build_named_kernels(self, tables: Mapping[Lane, KernelColumns]) -> dict[Lane, Kernels]:
        """Return kernels with their names, by start."""
        names = read_strings(self._file, (number for table in tables.values() for number in table.list_read_name_ids()))
        return {lane: table.build_kernels(names, self.path) for lane, table in tables.items()}

    # -- launches and other calls

    def launch_calls(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
        """Return the earliest launch row of each kernel: several rows per id exist, kernels never multiply."""
        with self._report_damage(RUNTIME_TABLE):
            return read_launch_calls(self._file, kernels)

    def issue_calls(
        self, kernels: Mapping[Lane, Kernels], launches: Mapping[Lane, LaunchCalls], /
    ) -> Mapping[Lane, LaunchCalls]:
        """Return the launch of each kernel; of one in a CUDA graph the creation of its node, where it is on record."""
        return read_issue_calls(self._file, kernels, launches)

    def stated_modules(self, _kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[str]]:
        """Return none: kernels of nsys name no module."""
        return {}

    def stream_waits(self) -> Mapping[int, Sequence[StreamWait]] | None:
        """Return every stream-wait by process, in the order of its place; None where there is no row of one."""
        return read_stream_waits(self._file, lambda: self._kernel_places, self._report_damage)

    def collectives(self, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Sequence[Collective | None]] | None:
        """Return what the payloads of NCCL's own ranges say of the kernels that were launched inside them."""
        with self._report_damage(NVTX_TABLE):
            return read_collectives(self._file, kernels)

    def launch_records(
        self, spans: Mapping[int, Interval | None], kernels: Mapping[Lane, Kernels], /
    ) -> Mapping[int, Sequence[LaunchRecord]] | None:
        """Return how much work is on record of the calls that launch some and start in the span of their process."""
        return read_launch_records(self._file, spans, kernels)

    def api_calls(self, name_globs: Sequence[str], spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Api]] | None:
        """Return the calls whose name matches a glob and that start in the span, one per correlation id, by process."""
        with self._report_damage(RUNTIME_TABLE):
            return read_api_calls(self._file, name_globs, spans)

    def copies(self, spans: Mapping[Lane, Interval]) -> Mapping[Lane, Sequence[Copy]] | None:
        """Return the copies of each lane that were launched in its span; None where the version has no kinds of
        memory.
        """
        with self._report_damage(MEMCPY_TABLE):
            return read_copies(self._file, spans)

    def copies_as_kernels(self, kinds: Sequence[str]) -> Mapping[Lane, Kernels]:
        """Return all copies of these kinds, each named for its kind, by process and device."""
        with self._report_damage(MEMCPY_TABLE):
            return select_copies(self, read_copies_as_kernels(self._file, kinds), kinds)

    def copies_between_gpus(self) -> Mapping[Lane, Kernels]:
        """Return the copies to another GPU, and those that a collective launched."""
        return self.copies_as_kernels(INTER_GPU_COPY_KINDS)

    def transfers(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Kernels] | None:
        """Return the copies and memsets of each lane that touch its span; None where the version has no place of
        each.
        """
        transfers: Mapping[Lane, Kernels] = {}
        for table in TRANSFER_TABLES:
            with self._report_damage(table):
                table_transfers = read_transfers(self._file, table, spans)
            if table_transfers is None:
                return None
            transfers = merge_copies(transfers, table_transfers)
        return transfers

    def memory(self) -> Mapping[Lane, Memory] | None:
        """Return what each process had allocated on each device; None where the trace was captured without memory
        events.
        """
        with self._report_damage(MEMORY_EVENTS):
            return read_memory(self._file)

    def sm_clocks(self, spans: Mapping[Lane, Interval | None]) -> Mapping[Lane, Series] | None:
        """Return samples of the SM clock of each lane around its span, in Hz; None where GPU metrics were not
        sampled.
        """
        with self._report_damage(SAMPLES_TABLE):
            return read_sm_clocks(self._file, spans)
