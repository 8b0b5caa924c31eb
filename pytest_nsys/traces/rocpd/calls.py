"""Which call of the HIP runtime launched each kernel or copy of a rocpd database?

The event of a kernel has the stack id of the event of the call that it was dispatched in. Under ``--hsa-trace`` that is
a call of HSA inside the one of HIP, whose stack id is its parent: then the call of HIP is the launch.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.model import NO_LAUNCH, Api, Interval
from pytest_nsys.core.operations import LaunchCalls
from pytest_nsys.traces.call_table import CallTable, earliest_calls
from pytest_nsys.traces.rocpd.parts import Part
from pytest_nsys.traces.sqlite_columns import Block, worth
from pytest_nsys.traces.sqlite_conditions import among, listed, one_of, within
from pytest_nsys.traces.sqlite_kernels import joined, read_blocks
from pytest_nsys.traces.sqlite_values import OddValue, check_whole, texts_of

NO_STACK = 0
_NONE = array("q", [NO_LAUNCH])
GRAPH_LAUNCH = "*GraphLaunch*"


class Events(NamedTuple):
    """Events of calls, by id, and the parent of each call of HSA; ``asked`` are parents that were looked for."""

    ids: Column
    stacks: Column
    parents: Mapping[int, int]
    asked: Set[int] = frozenset()


def read_calls(part: Part, correlations: Sequence[Column]) -> dict[int, CallTable]:
    """The call that launched what has these correlations, by process. Raises TypeError for a damaged row."""
    wanted = columns.values(joined(correlations))
    wanted = wanted[1:] if wanted[:1] == _NONE else wanted
    if not len(wanted) or not (part.categories.hip or part.categories.hsa):
        return {}
    whole = worth(len(wanted))
    events = _events(part, within("stack_id", wanted[0], wanted[-1]), whole=whole)
    while outside := set(events.parents.values()) - {*events.stacks, *events.asked}:
        events = _together(events, _events(part, one_of("stack_id", outside), whole=False), outside)
    if not len(events.ids):
        return {}
    row = ("start", "end", "pid", "tid", f"ifnull(event_id, {NO_LAUNCH})")
    where = within("event_id", *columns.bounds(events.ids))
    found = read_blocks(
        part.file, row, part.table("region"), where, lambda rows: _by_process(part, events, rows), whole=whole
    )
    tables: dict[int, CallTable] = {}
    for pid, parts in found.items():
        stack, *calls = map(joined, zip(*parts, strict=True))
        tables[pid] = _launching(earliest_calls(stack, LaunchCalls(*calls)), events.parents)
    return tables


def _by_process(part: Part, events: Events, rows: Iterable[Block]) -> dict[int, list[Block]]:
    """Stack id, start, end and thread of the calls among regions. Raises OddValue."""
    found: dict[int, list[Block]] = defaultdict(list)
    for start, end, pid, tid, event in rows:
        if columns.exceeds(start, end):
            raise OddValue("a call ends before it starts")
        stack = columns.joined(events.ids, events.stacks, NO_LAUNCH, event)
        own = columns.where_not(columns.equal(stack, NO_LAUNCH))
        each = [columns.take(column, own) for column in (stack, start, end, tid)]
        numbers, pids = columns.distinct(columns.take(pid, own))
        for (number,), some in zip(pids, columns.members(numbers, len(pids)), strict=True):
            found[part.process(number)].append([columns.take(column, some) for column in each])
    return found


def _events(part: Part, where: str, *, whole: bool) -> Events:
    """The events of calls that pass."""
    hip, hsa = part.categories.hip, part.categories.hsa
    table = part.table("event")
    parent = f"CASE WHEN category_id IN ({listed(hsa)}) THEN {part.file.column(table, 'parent_stack_id')} END"
    row = ("id", f"ifnull(stack_id, {NO_STACK})", f"ifnull({parent}, {NO_STACK})", "category_id")
    where = f"{where} AND {among('category_id', [*hip, *hsa])} AND category_id IS NOT NULL"
    found = read_blocks(part.file, row, table, where, list[Block], whole=whole)
    ids, stacks, parents, _ = map(joined, zip(*found, strict=True)) if found else (array("q") for _ in row)
    inner = columns.where_not(columns.equal(parents, NO_STACK))
    of_hsa = zip(columns.take(stacks, inner), columns.take(parents, inner), strict=True)
    return Events(ids, stacks, dict(of_hsa))


def _together(events: Events, others: Events, asked: Set[int]) -> Events:
    ids, stacks = joined([events.ids, others.ids]), joined([events.stacks, others.stacks])
    order = columns.order(ids)
    parents = {**events.parents, **others.parents}
    return Events(columns.take(ids, order), columns.take(stacks, order), parents, events.asked | asked)


def _launching(calls: CallTable, parents: Mapping[int, int]) -> CallTable:
    """The same table, in which a call of HSA inside another call is that one."""
    if not parents:
        return calls
    known = {stack: i for i, stack in enumerate(calls.ids)}

    def outermost(stack: int) -> int:
        seen = {stack}
        while (parent := parents.get(stack, stack)) in known and parent not in seen:
            seen.add(stack := parent)
        return known[stack]

    rows = array("q", map(outermost, calls.ids))
    return CallTable(calls.ids, LaunchCalls(*(columns.take(column, rows) for column in calls.calls)))


def stacks_started(part: Part, spans: Mapping[int, Interval]) -> set[int]:
    """The stack ids of the calls that start in the hull of the spans, and of the calls of HSA inside them. Raises
    TypeError for a damaged row.
    """
    categories = (*part.categories.hip, *part.categories.hsa)
    low, high = min(low for low, _ in spans.values()), max(high for _, high in spans.values())
    row = f"start, {part.of_event('category_id')}, {part.of_event('stack_id')}"
    rows = part.file.scan(row, part.table("region"), within("start", low, high))
    found: set[int] = set()
    for start, category, stack in rows:
        check_whole(start, 0 if stack is None else stack)
        if category in categories and stack is not None:
            found.add(stack)
    added = found
    while added and any(map(part.has_events, part.categories.hsa)):
        table = part.table("event")
        inside = f"{among('category_id', part.categories.hsa)} AND {one_of('parent_stack_id', added)}"
        added = {stack for stack, _ in part.file.scan("stack_id, id", table, inside) if type(stack) is int} - found
        found |= added
    return found


def graph_launches(part: Part) -> frozenset[int]:
    """The stack ids of the calls that launched a graph. Raises TypeError for a damaged row."""
    names = _named(part, [GRAPH_LAUNCH])
    if not names:
        return frozenset()
    rows = part.file.scan(f"{part.of_event('stack_id')}, 0", part.table("region"), one_of("name_id", names))
    return frozenset(stack for stack, _ in rows if type(stack) is int)


def api_calls(part: Part, name_globs: Sequence[str], spans: Mapping[int, Interval]) -> dict[int, list[Api]] | None:
    """The calls of HIP whose name matches a glob and that start in the span, by process; None where there is no call.

    Raises TypeError for a damaged row.
    """
    if not any(part.has_events(category) for category in part.categories.hip):
        return None
    names = _named(part, name_globs)
    own = {row: spans[pid] for row, pid in part.processes.items() if pid in spans}
    if not names or not own:
        return {}
    low, high = min(low for low, _ in own.values()), max(high for _, high in own.values())
    where = f"{within('start', low, high)} AND {one_of('name_id', names)}"
    row = f"start, end, pid, tid, name_id, {part.of_event('category_id')}"
    calls: dict[int, list[Api]] = defaultdict(list)
    for start, end, pid, tid, name, category in part.file.scan(row, part.table("region"), where):
        check_whole(start, end, pid, tid, name, 0 if category is None else category)
        process = part.process(pid)
        if category in part.categories.hip and pid in own and own[pid][0] <= start <= own[pid][1]:
            calls[process].append(Api(start, names[name], end, tid))
    return {pid: sorted(some, key=lambda call: (call.start_ns, call.name)) for pid, some in calls.items()}


def _named(part: Part, globs: Sequence[str]) -> dict[int, str]:
    matches = " OR ".join("string GLOB ?" for _ in globs)
    return texts_of(part.file.rows(f'SELECT id, string FROM "{part.table("string")}" WHERE {matches}', globs))
