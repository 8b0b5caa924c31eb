"""Which tables, columns and rows of an export are read?

A column that every version has is required where it stands in ``REQUIRED``; of a newer one
:meth:`~pytest_nsys.traces.sqlite_file.SqliteFile.column` gives NULL in versions without it. What each kernel is made of
is ``KERNEL_ROW``.

Rows are chosen by SQL conditions that are plain comparisons, the cheapest first. Only whole numbers of the trace that
were checked become part of a condition; texts are parameters. SQLite keeps any type in any column, and to it a text is
beyond every number and NULL beside them all. A condition that asks for what lies inside would drop such a row in
silence, and what is judged would be better for it. So the conditions here drop what surely lies outside: a damaged row
passes them, and is refused where it is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pytest_nsys.core.model import NO_LAUNCH, Interval
from pytest_nsys.traces.sqlite_file import SqliteFile

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
SYNCHRONIZATION = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CUDA_EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NVTX = "NVTX_EVENTS"
STRINGS = "StringIds"

REQUIRED = {
    KERNEL: "start end deviceId contextId streamId correlationId globalPid shortName demangledName",
    RUNTIME: "start end globalTid correlationId nameId",
    NVTX: "start end eventType globalTid",
    STRINGS: "id value",
}

KERNEL_ROW = (
    *("start", "end", "correlationId", "deviceId", "contextId", "streamId"),
    *("shortName", "demangledName", "graphNodeId", "globalPid"),
)
"""The columns of a kernel in the order in which :func:`~pytest_nsys.traces.nsys.columns.fill` takes them."""
DEVICE, CONTEXT, STREAM, PROCESS = map(KERNEL_ROW.index, ("deviceId", "contextId", "streamId", "globalPid"))


def kernel_row(file: SqliteFile, table: str = KERNEL, name: str = "") -> Sequence[str]:
    """``KERNEL_ROW`` of a table in SQL, each a whole number; ``name`` in place of the names of a kernel."""
    named = {"shortName": name, "demangledName": name} if name else {}
    row = [named.get(column) or file.column(table, column) for column in KERNEL_ROW]
    correlation, node = KERNEL_ROW.index("correlationId"), KERNEL_ROW.index("graphNodeId")
    row[correlation] = f"ifnull({row[correlation]}, {NO_LAUNCH})"
    row[node] = f"{row[node]} IS NOT NULL"
    return row


THREAD_BITS = 0xFFFFFF
RUNS = 64
"""So many runs of ids are told apart by comparisons; more are a list."""
FIRST, LAST = -(1 << 63), (1 << 63) - 1
NO_TEXT = "({0} < '' OR {0} >= x'')"
"""A number or a blob where a name is; NULL is none."""


def within(column: str, low: int | None = None, high: int | None = None) -> str:
    """Drops the rows whose value is a number outside the bounds."""
    below = [f"({column} < {low} AND {column} >= {FIRST})"] if low is not None else []
    above = [f"({column} > {high} AND {column} <= {LAST})"] if high is not None else []
    return f"({' OR '.join(below + above)}) IS NOT TRUE"


def among(column: str, numbers: Iterable[int]) -> str:
    """Drops the rows whose value is another number."""
    return f"({column} IN ({listed(numbers)}) OR typeof({column}) <> 'integer')"


def name_condition(column: str, pattern: str) -> tuple[str, list[str]]:
    """A filter that lets through at least the names that match: a range on the text where the pattern has a prefix."""
    prefix = pattern.split("%", 1)[0]
    if prefix == pattern:
        return f"{column} = ?", [pattern]
    if prefix and prefix[-1] not in "\ud7ff\U0010ffff":  # these have no successor that UTF-8 can write
        return f"({column} >= ? AND {column} < ?)", [prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)]
    glob = "".join("*" if c == "%" else f"[{c}]" if c in "*?[" else c for c in pattern)
    return f"{column} GLOB ?", [glob]


def any_name(column: str, patterns: Sequence[str]) -> tuple[str, list[str]]:
    """A filter that lets through at least the names that match one of the patterns."""
    conditions = [name_condition(column, pattern) for pattern in patterns]
    return " OR ".join(c for c, _ in conditions), [bound for _, bounds in conditions for bound in bounds]


def by_process(column: str, conditions: Mapping[int, str]) -> str:
    """Each process's own condition, found by halving: eight ranks cost three comparisons a row, not eight."""

    def choose(pids: Sequence[int]) -> str:
        if len(pids) == 1:
            (pid,) = pids
            return f"({within(column, pid, pid | THREAD_BITS)} AND ({conditions[pid]}))"
        middle = len(pids) // 2
        return f"CASE WHEN {column} < {pids[middle]} THEN {choose(pids[:middle])} ELSE {choose(pids[middle:])} END"

    return choose(sorted(conditions))


def touching(column: str, spans: Mapping[int, Interval]) -> str:
    """Ranges that touch the span of their process; the hull of all spans is looked at first."""
    low, high = min(lo for lo, _ in spans.values()), max(hi for _, hi in spans.values())
    own = {pid: touches(span) for pid, span in spans.items()}
    return f"{touches((low, high))} AND {by_process(column, own)}"


def touches(span: Interval) -> str:
    """Rows that touch the span, those without an end included."""
    return f"{within('start', high=span[1])} AND {within('end', low=span[0])}"


def starting(column: str, spans: Mapping[int, Interval], also: str = "1") -> str:
    """Calls that start in the span of their process, and pass ``also``, where the hull of all spans lets them."""
    low, high = min(lo for lo, _ in spans.values()), max(hi for _, hi in spans.values())
    own = {pid: within("start", lo, hi) for pid, (lo, hi) in spans.items()}
    return f"{within('start', low, high)} AND {also} AND {by_process(column, own)}"


def one_of(column: str, ids: Collection[int]) -> str:
    """Drops the rows whose value is NULL or another number. Names that are alike were mostly numbered together: where
    the ids are few runs a row costs some comparisons, which are a third of looking it up in a list. What is no whole
    number differs from its own bits, which is quicker to see than its type.
    """
    runs = _runs(ids)
    known = _in_runs(column, runs) if len(runs) <= RUNS else f"{column} IN ({listed(ids)})"
    return f"({known} OR ({column} | 0) <> +{column})"


def _runs(ids: Iterable[int]) -> list[Interval]:
    """The ids as their runs of numbers without a gap, first and last of each."""
    found: list[Interval] = []
    for number in sorted(ids):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _in_runs(column: str, runs: Sequence[Interval]) -> str:
    """Whether a number is in one of the runs, found by halving."""
    if len(runs) == 1:
        return f"{column} BETWEEN {runs[0][0]} AND {runs[0][1]}"
    middle = len(runs) // 2
    below, above = _in_runs(column, runs[:middle]), _in_runs(column, runs[middle:])
    return f"({column} < {runs[middle][0]} AND {below} OR {column} >= {runs[middle][0]} AND {above})"


def listed(numbers: Iterable[int]) -> str:
    """Ids as the text of a list."""
    return ",".join(str(int(n)) for n in numbers)
