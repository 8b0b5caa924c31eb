"""Which tables, columns and rows of an export are read?

A column that every version has is required where it stands in ``REQUIRED_COLUMNS``; of a newer one
:meth:`~pytest_nsys.traces.sqlite.file.SqliteFile.get_column` gives NULL in versions without it. What each kernel is
made of is ``KERNEL_COLUMNS``.

Rows are chosen by SQL conditions that are plain comparisons, the cheapest first. Only whole numbers of the trace that
were checked become part of a condition; texts are parameters. SQLite keeps any type in any column, and to it a text is
beyond every number and NULL beside them all. A condition that asks for what lies inside would drop such a row in
silence, and what is judged would be better for it. So the conditions here drop what surely lies outside: a damaged row
passes them, and is refused where it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from pytest_nsys.core.model import NO_LAUNCH, ImpossibleRows, Interval, Lane, Stream
from pytest_nsys.traces.sqlite.columns import (
    InvalidValue,
    KernelColumns,
    check_integers,
    check_text,
    count_impossible_rows,
    read_column_blocks,
    read_texts,
    report_damage,
    sort_into_lanes,
)
from pytest_nsys.traces.sqlite.conditions import build_bounds_condition, build_touch_condition
from pytest_nsys.traces.sqlite.file import SqliteFile, SqlRow
from pytest_nsys.traces.sqlite.zones import find_impossible_rows

KERNEL_TABLE = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME_TABLE = "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY_TABLE = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET_TABLE = "CUPTI_ACTIVITY_KIND_MEMSET"
SYNCHRONIZATION_TABLE = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CUDA_EVENT_TABLE = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
GRAPHS_TABLE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
GRAPH_NODES_TABLE = "CUDA_GRAPH_NODE_EVENTS"
# No table of nsys: copies of a rocpd database that no GPU took part in.
HOST_COPY_TABLE = "HOST_COPY"

NVTX_TABLE = "NVTX_EVENTS"
STRINGS_TABLE = "StringIds"

REQUIRED_COLUMNS = {
    KERNEL_TABLE: "start end deviceId contextId streamId correlationId globalPid shortName demangledName",
    RUNTIME_TABLE: "start end globalTid correlationId nameId",
    NVTX_TABLE: "start end eventType globalTid",
    STRINGS_TABLE: "id value",
}

PLACE_COLUMNS = ("globalPid", "deviceId", "contextId", "streamId")
# In the order in which sort_into_lanes takes them.
KERNEL_COLUMNS = ("start", "end", "correlationId", "shortName", "demangledName", "graphNodeId", *PLACE_COLUMNS)


def build_kernel_columns(file: SqliteFile, table: str = KERNEL_TABLE, name_expression: str = "") -> Sequence[str]:
    """Return ``KERNEL_COLUMNS`` of a table in SQL, each a whole number; ``name_expression`` stands for the names of a
    kernel.
    """
    name_columns = {"shortName": name_expression, "demangledName": name_expression} if name_expression else {}
    row = [name_columns.get(column) or file.get_column(table, column) for column in KERNEL_COLUMNS]
    correlation, graph_node = KERNEL_COLUMNS.index("correlationId"), KERNEL_COLUMNS.index("graphNodeId")
    row[correlation] = f"ifnull({row[correlation]}, {NO_LAUNCH})"
    row[graph_node] = f"{row[graph_node]} IS NOT NULL"
    return row


# What runs on the GPU, by table, and what one row of it is called.
OPERATION_LABELS = {KERNEL_TABLE: "kernel", MEMCPY_TABLE: "copy", MEMSET_TABLE: "memset", GRAPHS_TABLE: "graph replay"}


def count_impossible_operations(
    file: SqliteFile, table: str, row_label: str, get_name: Callable[[int], str]
) -> ImpossibleRows:
    """Count the rows of one of ``OPERATION_LABELS`` whose times cannot be. Raises TypeError for a value that cannot
    be.
    """
    stream, name = file.get_column(table, "streamId"), file.get_column(table, "shortName")
    row_id_ranges = (
        find_impossible_rows(file, table) if table == KERNEL_TABLE else None
    )  # whose zones later questions use again
    return count_impossible_rows(file, table, row_label, stream, name, get_name, row_id_ranges)


# nsys serialises a thread as its process with the thread's number in the low 24 bits.
THREAD_BITS = 0xFFFFFF


def build_process_condition(column: str, conditions: Mapping[int, str]) -> str:
    """Return SQL that applies to each row the condition of its process, found by halving."""

    def choose(pids: Sequence[int]) -> str:
        if len(pids) == 1:
            (pid,) = pids
            return f"({build_bounds_condition(column, pid, pid | THREAD_BITS)} AND ({conditions[pid]}))"
        middle = len(pids) // 2
        return f"CASE WHEN {column} < {pids[middle]} THEN {choose(pids[:middle])} ELSE {choose(pids[middle:])} END"

    # Halving: eight ranks cost three comparisons a row, not eight.
    return choose(sorted(conditions))


def build_process_touch_condition(column: str, spans: Mapping[int, Interval]) -> str:
    """Return SQL that lets through the ranges that touch the span of their process."""
    low, high = min(lo for lo, _ in spans.values()), max(hi for _, hi in spans.values())
    conditions = {pid: build_touch_condition(span) for pid, span in spans.items()}
    return f"{build_touch_condition((low, high))} AND {build_process_condition(column, conditions)}"


def build_process_start_condition(column: str, spans: Mapping[int, Interval], extra_condition: str = "1") -> str:
    """Return SQL that lets through the calls that pass ``extra_condition`` and start in the span of their process."""
    low, high = min(lo for lo, _ in spans.values()), max(hi for _, hi in spans.values())
    conditions = {pid: build_bounds_condition("start", lo, hi) for pid, (lo, hi) in spans.items()}
    return (
        f"{extra_condition} AND {build_bounds_condition('start', low, high)} AND "
        f"{build_process_condition(column, conditions)}"
    )


def read_kernels(
    file: SqliteFile,
    lanes: Collection[Lane] | None,
    where: str,
    *,
    whole_table: bool,
    table: str = KERNEL_TABLE,
    name_expression: str = "",
    row_id_ranges: Sequence[Interval] | None = None,
) -> tuple[dict[Lane, KernelColumns], set[int]]:
    """Return the kernels that pass, by lane, and the processes of those that are in none of the lanes; None: all lanes.

    ``whole_table``: they may be as many as the table has. ``name_expression`` stands for the names of kernels,
    ``row_id_ranges`` say where they are.
    """
    row = build_kernel_columns(file, table, name_expression)
    return read_column_blocks(
        file,
        row,
        table,
        where,
        lambda blocks: sort_into_lanes(lanes, blocks, _locate_kernel),
        whole_table=whole_table,
        explain_row=_explain_kernel,
        row_id_ranges=row_id_ranges,
    )


def _locate_kernel(place: Sequence[int]) -> tuple[Lane, Stream]:
    pid, *stream = place
    return Lane(pid, stream[0]), Stream(*stream)


def _explain_kernel(row: SqlRow) -> None:
    pid, *place = row[KERNEL_COLUMNS.index(PLACE_COLUMNS[0]) :]
    check_process(pid, place[0])
    check_integers(*place, *row)


def check_process(pid: object, device: object) -> None:
    """Raise InvalidValue for a kernel without a process, which could be of any rank."""
    if pid is None:
        raise InvalidValue(f"a kernel on device {device} has no process: its globalPid is NULL")
    check_integers(pid)


def read_labels(file: SqliteFile, table: str, default_labels: Sequence[str]) -> Mapping[object, str]:
    """Return the labels of a table by number, in lower case. Raises TypeError for one that is no text."""
    if file.has_columns(table, "id", "label"):
        return {
            number: check_text(label).lower() for number, label in file.fetch_rows(f"SELECT id, label FROM {table}")
        }
    return dict(enumerate(default_labels))


def read_strings(file: SqliteFile, ids: Iterable[int | None]) -> Mapping[int, str]:
    """Return the texts of ids, by id. Raises TraceError for an id or text that is none."""
    if STRINGS_TABLE not in file.tables:
        return {}
    with report_damage(file, STRINGS_TABLE):
        return read_texts(file, {i for i in ids if i is not None}, STRINGS_TABLE, "value")
