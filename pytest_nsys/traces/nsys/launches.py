"""Which call launched each of some operations of a GPU, when did it begin and end, and on which thread?

Several rows of an id exist (event class 67 repeats rows): the earliest counts, and kernels never multiply.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.model import NO_LAUNCH, Interval, Lane
from pytest_nsys.core.tables import Kernels, LaunchCalls
from pytest_nsys.traces.launches import EMPTY, CallTable, Earliest
from pytest_nsys.traces.nsys.tables import RUNTIME, THREAD_BITS, by_process, starting
from pytest_nsys.traces.sqlite_columns import Block, blocks, worth
from pytest_nsys.traces.sqlite_conditions import listed, within
from pytest_nsys.traces.sqlite_file import SqliteFile
from pytest_nsys.traces.sqlite_kernels import as_blocks, read_blocks
from pytest_nsys.traces.sqlite_values import OddValue, check_row

JSON_IN_SQLITE = (3, 38)
"""Since this version every SQLite knows json_each."""

START = ("globalTid", f"ifnull(correlationId, {NO_LAUNCH})", "start")
CALL = (*START, "end")


def launches(file: SqliteFile, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, Column]:
    """The start of the earliest launch row of each kernel, NO_LAUNCH where there is none."""
    known = call_tables(file, _wanted(kernels))
    return {lane: known.get(lane.global_pid, EMPTY).starts_of(some.correlation) for lane, some in kernels.items()}


def launch_calls(file: SqliteFile, kernels: Mapping[Lane, Kernels]) -> Mapping[Lane, LaunchCalls]:
    """The call that launched each kernel."""
    known = call_tables(file, _wanted(kernels), CALL)
    return {lane: known.get(lane.global_pid, EMPTY).of(some.correlation) for lane, some in kernels.items()}


def _wanted(kernels: Mapping[Lane, Kernels]) -> dict[int, Earliest]:
    found: dict[int, Column] = {}
    for lane, some in kernels.items():
        found.setdefault(lane.global_pid, array("q")).extend(some.correlation)
    return {pid: Earliest(own) for pid, own in found.items()}


def call_tables(file: SqliteFile, some: Mapping[int, Earliest], row: Sequence[str] = START) -> dict[int, CallTable]:
    """The earliest call of each wanted correlation that has one, by process. Raises OddValue."""
    wanted = {pid: own for pid, own in some.items() if own.ids}
    if RUNTIME not in file.tables or not wanted:
        return {}
    low, high = min(own.ids[0] for own in wanted.values()), max(own.ids[-1] for own in wanted.values())
    between = f"{within('correlationId', low, high)} AND correlationId IS NOT NULL"
    each = {pid: among_ids(own.ids) for pid, own in sorted(wanted.items())}
    where = f"{between} AND {by_process('globalTid', {pid: condition for pid, (condition, _) in each.items()})}"
    lists = [text for _, texts in each.values() for text in texts]
    many = worth(sum(len(own.ids) for own in wanted.values()))
    fast = blocks(file, row, RUNTIME) if many and worth(file.about(RUNTIME)) else None
    rows = file.parts(", ".join(row), RUNTIME, where, lists, whole=many)
    return as_blocks(fast, rows, lambda found: _earliest(found, wanted))


def calls_started(file: SqliteFile, spans: Mapping[int, Interval]) -> dict[int, CallTable]:
    """The earliest call of each correlation that starts in the span of its process. Raises OddValue."""
    where = starting("globalTid", spans)
    found = read_blocks(file, START, RUNTIME, where, list[Block], whole=False, explain=check_row)
    started: dict[int, Column] = {}
    for tid, correlation, _ in found:
        for thread, rows in _by_thread(tid):
            started.setdefault(thread & ~THREAD_BITS, array("q")).extend(columns.take(correlation, rows))
    return _earliest(found, {pid: Earliest(own) for pid, own in started.items()})


def _earliest(found: Iterable[Block], wanted: Mapping[int, Earliest]) -> dict[int, CallTable]:
    """The calls among blocks of ``CALL`` or ``START``, by process."""
    for tid, correlation, start, *end in found:
        if end and columns.exceeds(start, *end):
            raise OddValue("a call ends before it starts")
        for thread, rows in _by_thread(tid):
            if (own := wanted.get(thread & ~THREAD_BITS)) is not None:
                call = [columns.take(column, rows) for column in (start, *end)]
                numbers = [array("q", [thread & THREAD_BITS]) * len(rows)] if end else []
                own.see(columns.take(correlation, rows), *call, *numbers)
    return {pid: own.table() for pid, own in wanted.items()}


def _by_thread(tid: Column) -> Iterator[tuple[int, Column]]:
    numbers, keys = columns.distinct(tid)
    for (thread,), rows in zip(keys, columns.members(numbers, len(keys)), strict=True):
        yield thread, rows


def among_ids(ids: Column) -> tuple[str, Sequence[str]]:
    """SQL that lets through at least the rows of these ascending ids, and what its placeholders stand for: the bounds,
    and the list where it says more, which at any length is one text of JSON.
    """
    between = within("correlationId", ids[0], ids[-1])
    if ids[-1] - ids[0] <= 2 * len(ids) or sqlite3.sqlite_version_info < JSON_IN_SQLITE:
        return between, []
    known = "(correlationId IN (SELECT value FROM json_each(?)) OR typeof(correlationId) <> 'integer')"
    return f"{between} AND {known}", [f"[{listed(ids)}]"]
