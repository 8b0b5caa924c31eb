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
from pytest_nsys.traces.sqlite_columns import (
    Columns,
    OddValue,
    check_text,
    check_whole,
    damage,
    fill,
    impossible_rows,
    read_blocks,
    read_texts,
)
from pytest_nsys.traces.sqlite_conditions import touches, within
from pytest_nsys.traces.sqlite_file import SqliteFile, SqlRow
from pytest_nsys.traces.sqlite_zones import find_impossible

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CUDA_EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
# No table of nsys: copies of a rocpd database that no GPU took part in.
HOST_COPY = "HOST_COPY"

NVTX = "NVTX_EVENTS"
STRINGS = "StringIds"

REQUIRED = {
    KERNEL: "start end deviceId contextId streamId correlationId globalPid shortName demangledName",
    RUNTIME: "start end globalTid correlationId nameId",
    NVTX: "start end eventType globalTid",
    STRINGS: "id value",
}

PLACE = ("globalPid", "deviceId", "contextId", "streamId")
# In the order in which sort_into_lanes takes them.
KERNEL_ROW = ("start", "end", "correlationId", "shortName", "demangledName", "graphNodeId", *PLACE)


def kernel_row(file: SqliteFile, table: str = KERNEL, name: str = "") -> Sequence[str]:
    """Return ``KERNEL_COLUMNS`` of a table in SQL, each a whole number; ``name_expression`` stands for the names of a
    kernel.
    """
    name_columns = {"shortName": name, "demangledName": name} if name else {}
    row = [name_columns.get(column) or file.column(table, column) for column in KERNEL_ROW]
    correlation, graph_node = KERNEL_ROW.index("correlationId"), KERNEL_ROW.index("graphNodeId")
    row[correlation] = f"ifnull({row[correlation]}, {NO_LAUNCH})"
    row[graph_node] = f"{row[graph_node]} IS NOT NULL"
    return row


# What runs on the GPU, by table, and what one row of it is called.
OPERATIONS = {KERNEL: "kernel", MEMCPY: "copy", MEMSET: "memset", GRAPHS: "graph replay"}


def read_impossible(file: SqliteFile, table: str, what: str, name_of: Callable[[int], str]) -> ImpossibleRows:
    """Count the rows of one of ``OPERATION_LABELS`` whose times cannot be. Raises TypeError for a value that cannot
    be.
    """
    stream, name = file.column(table, "streamId"), file.column(table, "shortName")
    row_id_ranges = find_impossible(file, table) if table == KERNEL else None  # whose zones later questions use again
    return impossible_rows(file, table, what, stream, name, name_of, row_id_ranges)


# nsys serialises a thread as its process with the thread's number in the low 24 bits.
THREAD_BITS = 0xFFFFFF


def by_process(column: str, conditions: Mapping[int, str]) -> str:
    """Return SQL that applies to each row the condition of its process, found by halving."""

    def choose(pids: Sequence[int]) -> str:
        if len(pids) == 1:
            (pid,) = pids
            return f"({within(column, pid, pid | THREAD_BITS)} AND ({conditions[pid]}))"
        middle = len(pids) // 2
        return f"CASE WHEN {column} < {pids[middle]} THEN {choose(pids[:middle])} ELSE {choose(pids[middle:])} END"

    # Halving: eight ranks cost three comparisons a row, not eight.
    return choose(sorted(conditions))


def touching(column: str, spans: Mapping[int, Interval]) -> str:
    """Return SQL that lets through the ranges that touch the span of their process."""
    low, high = min(lo for lo, _ in spans.values()), max(hi for _, hi in spans.values())
    conditions = {pid: touches(span) for pid, span in spans.items()}
    return f"{touches((low, high))} AND {by_process(column, conditions)}"


def starting(column: str, spans: Mapping[int, Interval], also: str = "1") -> str:
    """Return SQL that lets through the calls that pass ``extra_condition`` and start in the span of their process."""
    low, high = min(lo for lo, _ in spans.values()), max(hi for _, hi in spans.values())
    conditions = {pid: within("start", lo, hi) for pid, (lo, hi) in spans.items()}
    return f"{also} AND {within('start', low, high)} AND {by_process(column, conditions)}"


def read_kernels(
    file: SqliteFile,
    lanes: Collection[Lane] | None,
    where: str,
    *,
    whole: bool,
    table: str = KERNEL,
    name: str = "",
    stretches: Sequence[Interval] | None = None,
) -> tuple[dict[Lane, Columns], set[int]]:
    """Return the kernels that pass, by lane, and the processes of those that are in none of the lanes; None: all lanes.

    ``whole_table``: they may be as many as the table has. ``name_expression`` stands for the names of kernels,
    ``row_id_ranges`` say where they are.
    """
    row = kernel_row(file, table, name)
    return read_blocks(
        file,
        row,
        table,
        where,
        lambda blocks: fill(lanes, blocks, _placed),
        whole=whole,
        explain=_explain_kernel,
        stretches=stretches,
    )


def _placed(place: Sequence[int]) -> tuple[Lane, Stream]:
    pid, *stream = place
    return Lane(pid, stream[0]), Stream(*stream)


def _explain_kernel(row: SqlRow) -> None:
    pid, *place = row[KERNEL_ROW.index(PLACE[0]) :]
    check_process(pid, place[0])
    check_whole(*place, *row)


def check_process(pid: object, device: object) -> None:
    """Raise InvalidValue for a kernel without a process, which could be of any rank."""
    if pid is None:
        raise OddValue(f"a kernel on device {device} has no process: its globalPid is NULL")
    check_whole(pid)


def labels(file: SqliteFile, table: str, usual: Sequence[str]) -> Mapping[object, str]:
    """Return the labels of a table by number, in lower case. Raises TypeError for one that is no text."""
    if file.has(table, "id", "label"):
        return {number: check_text(label).lower() for number, label in file.rows(f"SELECT id, label FROM {table}")}
    return dict(enumerate(usual))


def strings(file: SqliteFile, ids: Iterable[int | None]) -> Mapping[int, str]:
    """Return the texts of ids, by id. Raises TraceError for an id or text that is none."""
    if STRINGS not in file.tables:
        return {}
    with damage(file, STRINGS):
        return read_texts(file, {i for i in ids if i is not None}, STRINGS, "value")
