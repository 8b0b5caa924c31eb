"""Of the calls of a rocpd database that launched work, how many have it on record?

The work has the stack id of its call, or under ``--hsa-trace`` that of a call of HSA inside it. No row says that a call
failed, or of which graph a replay is.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence, Set
from functools import cached_property

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import NO_LAUNCH, Api, Interval, Lane, LaunchRecord
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.answers import ApiCalls
from pytest_nsys.traces.launch_records import CAPTURES, KINDS, NEXT_IDS, Recorded, around, ids_of, records_of
from pytest_nsys.traces.rocpd.captures import Captured
from pytest_nsys.traces.rocpd.regions import api_calls, named_calls, read_calls
from pytest_nsys.traces.sqlite_columns import Block, damage, read_blocks
from pytest_nsys.traces.sqlite_conditions import listed, one_of, within

KERNELS, COPIES = "kernel_dispatch", "memory_copy"
EVER = (-(1 << 63), (1 << 63) - 1)


def read_launch_records(
    capture: Captured, spans: Mapping[int, Interval | None], kernels: Mapping[Lane, Kernels]
) -> dict[int, tuple[LaunchRecord, ...]] | None:
    """What is on record of the work of the calls that start in the span of their process, by process; of a process
    without a span of all. None where the capture has no call. Raises TypeError for a damaged row.
    """
    if not any(capture.has_events(category) for category in capture.categories.hip):
        return None
    calls = _read_calls(capture, spans)
    if not calls:
        return {}
    work = _Work(capture, calls, ids_of(kernels))
    each = {pid: records_of(own, work.of(pid), spans.get(pid)) for pid, own in calls.items()}
    return {pid: found for pid, found in each.items() if found}


def _read_calls(capture: Captured, spans: Mapping[int, Interval | None]) -> dict[int, ApiCalls]:
    """The calls in the spans that launch work, by process."""
    known = named_calls(capture, [*KINDS])
    if not known:
        return {}
    bounded = {row: around(spans.get(pid)) for row, pid in capture.processes.items()}
    own = (
        f"WHEN {row} THEN {'1' if span is None else within('start', *span)}" for row, span in sorted(bounded.items())
    )
    where = f"{one_of('name_id', known)} AND CASE pid {' '.join(own)} ELSE 1 END"
    row = ("start", "end", "pid", "tid", "name_id", capture.stack(NO_LAUNCH))
    blocks = read_blocks(capture.file, row, capture.table("region"), where, list[Block], whole=None in bounded.values())
    if not blocks:
        return {}
    start, end, pid, tid, name, stack = map(columns.chained, zip(*blocks, strict=True))
    ids, names = array("q", sorted(known)), [known[number] for number in sorted(known)]
    number = columns.joined(ids, array("q", range(len(ids))), 0, name)
    everything = ApiCalls(start, end, tid, number, stack, names)
    return {own: everything.take(rows) for own, rows in columns.members_by(capture.process, pid).items()}


class _Work:
    """What of the work of some calls is in the tables of a capture."""

    def __init__(self, capture: Captured, calls: Mapping[int, ApiCalls], read: Mapping[int, Column]) -> None:
        self._capture, self._calls, self._read = capture, calls, read

    def of(self, pid: int) -> Recorded:
        """What is on record of one process."""
        return Recorded(
            self._read.get(pid, array("q")),
            self._ran(COPIES).get(pid, array("q")),
            {},
            lambda: self._ran(KERNELS).get(pid, array("q")),
            lambda: self._kernel_calls.get(pid),
            lambda: self._captures.get(pid, ()),
            lambda: self._empty,
            self._launching,
        )

    @kept
    def _ran(self, kind: str) -> Mapping[int, Column]:
        hsa = [*filter(self._capture.has_events, self._capture.categories.hsa)]
        each = [columns.bounds(own.correlation) for own in self._calls.values()]
        low, high = min(low for low, _ in each), max(high for _, high in each) + NEXT_IDS
        found = self._stacks(kind, "1" if hsa else self._capture.of_event(within("stack_id", low, high)))
        if not hsa:
            return {pid: columns.values(own) for pid, own in found.items()}
        inside = f"category_id IN ({listed(hsa)}) AND typeof(stack_id) = typeof(parent_stack_id)"
        rows = self._capture.file.scan("stack_id, parent_stack_id", self._capture.table("event"), inside)
        parents: dict[int, int] = dict(rows)
        return {pid: array("q", sorted(_with_calls_around(own, parents))) for pid, own in found.items()}

    def _stacks(self, kind: str, where: str) -> dict[int, Column]:
        """The stack ids of what ran and passes, by process."""
        found: dict[int, list[Column]] = {}
        capture, table = self._capture, self._capture.table(kind)
        with damage(capture.file, table):
            row = ("pid", capture.stack(NO_LAUNCH))
            for pid, stack in read_blocks(capture.file, row, table, where, list[Block], whole=where == "1"):
                for own, rows in columns.members_by(capture.process, pid).items():
                    found.setdefault(own, []).append(columns.take(stack, rows))
        return {pid: columns.chained(own) for pid, own in found.items()}

    @cached_property
    def _kernel_calls(self) -> Mapping[int, Interval]:
        """By process from the first call that launched a kernel to the last."""
        tables = read_calls(self._capture, [*self._stacks(KERNELS, "1").values()])
        return {pid: columns.bounds(own.calls.start_ns) for pid, own in tables.items() if own.ids}

    def _launching(self, ids: Interval) -> Set[int]:
        """Those of the stack ids between two that are of a call that launches work."""
        where = f"{one_of('name_id', named_calls(self._capture, [*KINDS]))} AND "
        where += self._capture.of_event(within("stack_id", *ids))
        rows = self._capture.file.scan(f"{self._capture.of_event('stack_id')}, 0", self._capture.table("region"), where)
        return {stack for stack, _ in rows}

    @cached_property
    def _captures(self) -> Mapping[int, Sequence[Api]]:
        """By process the calls that begin the capture of a graph, or end it."""
        return api_calls(self._capture, CAPTURES, dict.fromkeys(self._calls, EVER)) or {}

    @cached_property
    def _empty(self) -> Set[int]:
        """The stack ids of calls that copy 0 bytes, as far as their arguments are on record."""
        table = self._capture.table("arg")
        if not self._capture.file.has(table, "event_id", "name", "value"):
            return frozenset()
        row = f"{self._capture.of_event('stack_id')}, 0"
        rows = self._capture.file.scan(row, table, "name = 'sizeBytes' AND value = '0'")
        return frozenset(stack for stack, _ in rows)


def _with_calls_around(stacks: Column, parents: Mapping[int, int]) -> set[int]:
    """The stack ids, and those of the calls that they are inside of."""
    found, added = {*stacks}, {*stacks}
    while added := {parents[stack] for stack in added if stack in parents} - found:
        found |= added
    return found
