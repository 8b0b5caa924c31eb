"""Which call of the HIP runtime launched each kernel or copy of a rocpd database?

The event of a kernel has the stack id of the event of the call that it was dispatched in. Under ``--hsa-trace`` that is
a call of HSA inside the one of HIP, whose stack id is its parent: then the call of HIP is the launch.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.model import NO_LAUNCH, Api, Interval
from pytest_nsys.core.tables import LaunchCalls
from pytest_nsys.traces.answers import CallTable, earliest_calls
from pytest_nsys.traces.rocpd.parts import NO_STACK, Part
from pytest_nsys.traces.sqlite_columns import (
    Block,
    OddValue,
    check_whole,
    read_blocks,
    texts_of,
    worth,
)
from pytest_nsys.traces.sqlite_conditions import LISTED, among, listed, one_of, within

_NONE = array("q", [NO_LAUNCH])
GRAPH_LAUNCH = "*GraphLaunch*"


class Regions(NamedTuple):
    """Calls as columns; ``parent`` is the stack id of the call around one of HSA, NO_STACK for others."""

    start_ns: Column
    end_ns: Column
    pid: Column
    tid: Column
    stack: Column
    parent: Column


def read_calls(part: Part, correlations: Sequence[Column]) -> dict[int, CallTable]:
    """The call that launched what has these correlations, by process. Raises TypeError for a damaged row."""
    wanted = columns.values(columns.chained(correlations))
    wanted = wanted[1:] if wanted[:1] == _NONE else wanted
    found, asked = [_regions(part, wanted)], set(wanted)
    while around := set(found[-1].parent) - {NO_STACK} - asked:
        found.append(_regions(part, array("q", sorted(around))))
        asked |= around
    calls = Regions(*map(columns.chained, zip(*found, strict=True)))
    if columns.exceeds(calls.start_ns, calls.end_ns):
        raise OddValue("a call ends before it starts")
    if columns.bounds(calls.start_ns)[0] < 0:
        raise OddValue("a call starts before the clock of its machine did")
    inner = columns.where_not(columns.equal(calls.parent, NO_STACK))
    parents = dict(zip(columns.take(calls.stack, inner), columns.take(calls.parent, inner), strict=True))
    numbers, pids = columns.distinct(calls.pid)
    tables: dict[int, CallTable] = {}
    for (pid,), rows in zip(pids, columns.members(numbers, len(pids)), strict=True):
        stack, *own = (columns.take(each, rows) for each in (calls.stack, calls.start_ns, calls.end_ns, calls.tid))
        tables[part.process(pid)] = _launching(earliest_calls(stack, LaunchCalls(*own)), parents)
    return tables


def _regions(part: Part, wanted: Column) -> Regions:
    """The calls of these stack ids. rocprofv3 numbers a region as its event's stack, so it is found by its number; what
    is not there, as the events of other writers are not, is looked for in the whole table.
    """
    if wanted and worth(len(wanted)):
        found = _read(part, f"id BETWEEN {wanted[0]} AND {wanted[-1]}", whole=True)
    else:
        parts = (wanted[at : at + LISTED] for at in range(0, len(wanted), LISTED))
        found = [block for some in parts for block in _read(part, f"id IN ({listed(some)})", whole=False)]
    missing = sorted(set(wanted).difference(*(stack for *_, stack, _ in found)))
    if missing:
        events = [event for (event,) in part.file.scan("id", part.table("event"), _one_of("stack_id", missing))]
        if events:
            found += _read(part, _one_of("event_id", events), whole=worth(len(events)))
    each = (
        Regions(*map(columns.chained, zip(*found, strict=True))) if found else Regions(*(array("q") for _ in range(6)))
    )
    own = columns.where_not(columns.equal(columns.joined(wanted, wanted, NO_LAUNCH, each.stack), NO_LAUNCH))
    return Regions(*(columns.take(column, own) for column in each))


def _read(part: Part, where: str, *, whole: bool) -> list[Block]:
    hsa = part.categories.hsa
    parent = f"CASE WHEN category_id IN ({listed(hsa)}) THEN parent_stack_id END" if hsa else "NULL"
    row = ("start", "end", "pid", "tid", part.stack(NO_STACK), f"ifnull({part.of_event(parent)}, {NO_STACK})")
    return read_blocks(part.file, row, part.table("region"), where, list[Block], whole=whole)


def _one_of(column: str, ids: Sequence[int]) -> str:
    """Rows of one of the ids; of too many for a statement, rows between them."""
    return one_of(column, ids) if len(ids) <= LISTED else within(column, min(ids), max(ids))


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
