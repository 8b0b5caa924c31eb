"""Which calls and which ranges does a rocpd database hold? Both are regions: spans of time of a thread.

A call of the HIP runtime launched each kernel or copy. The event of a kernel has the stack id of the event of the call
that it was dispatched in. Under ``--hsa-trace`` that is a call of HSA inside the one of HIP, whose stack id is its
parent: then the call of HIP is the launch.

A range is a region whose event is of a category of markers: of ROCTx, or a call of RCCL, which are as its ranges in
NCCL. Its region is named for the call (``roctxThreadRangeA``); its own name is the message that the event keeps beside
it. Where there is no message the region's name is the range's.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.model import NO_LAUNCH, Api, Interval, Range
from pytest_nsys.core.tables import LaunchCalls, Ranges
from pytest_nsys.traces.answers import CallTable, earliest_calls, named_ranges
from pytest_nsys.traces.other_profilers import LAUNCHES
from pytest_nsys.traces.rocpd.captures import NO_STACK, Captured
from pytest_nsys.traces.sqlite_columns import (
    Block,
    OddValue,
    check_text,
    check_whole,
    read_blocks,
    read_texts,
    texts_of,
    worth,
)
from pytest_nsys.traces.sqlite_conditions import LISTED, among, any_name, listed, one_of, touches, within
from pytest_nsys.traces.sqlite_file import SqlRow

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


def read_calls(capture: Captured, correlations: Sequence[Column]) -> dict[int, CallTable]:
    """The call that launched what has these correlations, by process. Raises TypeError for a damaged row."""
    wanted = columns.values(columns.chained(correlations))
    wanted = wanted[1:] if wanted[:1] == _NONE else wanted
    found, asked = [_regions(capture, wanted)], set(wanted)
    while around := set(found[-1].parent) - {NO_STACK} - asked:
        found.append(_regions(capture, array("q", sorted(around))))
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
        tables[capture.process(pid)] = _launching(earliest_calls(stack, LaunchCalls(*own)), parents)
    return tables


def _regions(capture: Captured, wanted: Column) -> Regions:
    """The calls of these stack ids. rocprofv3 numbers a region as its event's stack, so it is found by its number; what
    is not there, as the events of other writers are not, is looked for in the whole table.
    """
    if wanted and worth(len(wanted)):
        found = _read(capture, f"id BETWEEN {wanted[0]} AND {wanted[-1]}", whole=True)
    else:
        parts = (wanted[at : at + LISTED] for at in range(0, len(wanted), LISTED))
        found = [block for some in parts for block in _read(capture, f"id IN ({listed(some)})", whole=False)]
    missing = sorted(set(wanted).difference(*(stack for *_, stack, _ in found)))
    if missing:
        events = [event for (event,) in capture.file.scan("id", capture.table("event"), _one_of("stack_id", missing))]
        if events:
            found += _read(capture, _one_of("event_id", events), whole=worth(len(events)))
    each = (
        Regions(*map(columns.chained, zip(*found, strict=True))) if found else Regions(*(array("q") for _ in range(6)))
    )
    own = columns.where_not(columns.equal(columns.joined(wanted, wanted, NO_LAUNCH, each.stack), NO_LAUNCH))
    return Regions(*(columns.take(column, own) for column in each))


def _read(capture: Captured, where: str, *, whole: bool) -> list[Block]:
    hsa = capture.categories.hsa
    parent = f"CASE WHEN category_id IN ({listed(hsa)}) THEN parent_stack_id END" if hsa else "NULL"
    row = ("start", "end", "pid", "tid", capture.stack(NO_STACK), f"ifnull({capture.of_event(parent)}, {NO_STACK})")
    return read_blocks(capture.file, row, capture.table("region"), where, list[Block], whole=whole)


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


def stacks_started(capture: Captured, spans: Collection[Interval]) -> set[int]:
    """The stack ids of the calls that start in the hull of the spans, and of the calls of HSA inside them. Raises
    TypeError for a damaged row.
    """
    categories = (*capture.categories.hip, *capture.categories.hsa)
    low, high = min(low for low, _ in spans), max(high for _, high in spans)
    row = f"start, {capture.of_event('category_id')}, {capture.of_event('stack_id')}"
    rows = capture.file.scan(row, capture.table("region"), within("start", low, high))
    found: set[int] = set()
    for start, category, stack in rows:
        check_whole(start, 0 if stack is None else stack)
        if category in categories and stack is not None:
            found.add(stack)
    added = found
    while added and any(map(capture.has_events, capture.categories.hsa)):
        table = capture.table("event")
        inside = f"{among('category_id', capture.categories.hsa)} AND {one_of('parent_stack_id', added)}"
        added = {stack for stack, _ in capture.file.scan("stack_id, id", table, inside) if type(stack) is int} - found
        found |= added
    return found


def graph_launches(capture: Captured) -> frozenset[int]:
    """The stack ids of the calls that launched a graph. Raises TypeError for a damaged row."""
    names = named_calls(capture, [GRAPH_LAUNCH])
    if not names:
        return frozenset()
    rows = capture.file.scan(f"{capture.of_event('stack_id')}, 0", capture.table("region"), one_of("name_id", names))
    return frozenset(stack for stack, _ in rows if type(stack) is int)


def count_launches(capture: Captured) -> int:
    """Return how many calls launched a kernel, or a graph of them. Raises TypeError for a damaged row."""
    names = named_calls(capture, LAUNCHES)
    where = one_of("name_id", names)
    return sum(1 for _ in capture.file.scan("id, 0", capture.table("region"), where)) if names else 0


def api_calls(
    capture: Captured, name_globs: Sequence[str], spans: Mapping[int, Interval]
) -> dict[int, list[Api]] | None:
    """The calls of HIP whose name matches a glob and that start in the span, by process; None where there is no call.

    Raises TypeError for a damaged row.
    """
    if not any(capture.has_events(category) for category in capture.categories.hip):
        return None
    names = named_calls(capture, name_globs)
    own = {row: spans[pid] for row, pid in capture.processes.items() if pid in spans}
    if not names or not own:
        return {}
    low, high = min(low for low, _ in own.values()), max(high for _, high in own.values())
    where = f"{within('start', low, high)} AND {one_of('name_id', names)}"
    row = f"start, end, pid, tid, name_id, {capture.of_event('category_id')}"
    calls: dict[int, list[Api]] = defaultdict(list)
    for start, end, pid, tid, name, category in capture.file.scan(row, capture.table("region"), where):
        check_whole(start, end, pid, tid, name, 0 if category is None else category)
        process = capture.process(pid)
        if category in capture.categories.hip and pid in own and own[pid][0] <= start <= own[pid][1]:
            calls[process].append(Api(start, names[name], end, tid))
    return {pid: sorted(some, key=lambda call: (call.start_ns, call.name)) for pid, some in calls.items()}


def named_calls(capture: Captured, globs: Sequence[str]) -> dict[int, str]:
    """The names of calls that match a glob, by id. Raises TypeError for what is no name."""
    matches = " OR ".join("string GLOB ?" for _ in globs)
    return texts_of(capture.file.rows(f'SELECT id, string FROM "{capture.table("string")}" WHERE {matches}', globs))


# -- ranges

MESSAGE = "CASE WHEN json_valid(extdata) THEN json_extract(extdata, '$.message') END"
CALL_PREFIX = "roctx"
"""Of what a region of a range is called for its call: without a message it is no range."""

_ROW = "start, end, pid, tid, name_id, event_id"


def read_ranges(capture: Captured, patterns: Sequence[str], matches: Callable[[str], bool]) -> dict[int, Ranges]:
    """The ranges whose name matches, by process, in order. Raises TypeError for a damaged row."""
    messages = _messages(capture, *any_name(MESSAGE, patterns))
    named = [(row, messages[row[-1]]) for row in _regions_of(capture, list(messages))]
    if capture.has_own_names:
        named += _named_by_region(capture, patterns)
    found: dict[int, list[Range]] = defaultdict(list)
    for (start, end, pid, tid, _, _), name in named:
        if matches(name):
            found[capture.process(pid)].append(_range(start, end, tid, name))
    return {pid: Ranges.of(sorted(ranges, key=itemgetter(0, 1, 3))) for pid, ranges in found.items()}


def _regions_of(capture: Captured, events: Sequence[int]) -> list[SqlRow]:
    """The regions of some events. rocprofv3 numbers a region as its event's stack; what is not found there, or is a
    mark, is looked for in the whole table.
    """
    table, event = capture.table("region"), capture.table("event")
    found: list[SqlRow] = []
    for at in range(0, len(events), LISTED):
        some = listed(events[at : at + LISTED])
        stacks = f'SELECT stack_id FROM "{event}" WHERE id IN ({some})'
        found += capture.file.rows(f'SELECT {_ROW} FROM "{table}" WHERE id IN ({stacks}) AND event_id IN ({some})')
    missing = set(events).difference(row[-1] for row in found)
    found += capture.file.scan(_ROW, table, one_of("event_id", missing)) if missing else ()
    for row in found:
        check_whole(*row)
    return found


def _named_by_region(capture: Captured, patterns: Sequence[str]) -> Iterator[tuple[SqlRow, str]]:
    """The regions of markers without a message, and of RCCL, that the patterns let through, and their names."""
    condition, values = any_name("string", patterns)
    ids = texts_of(capture.file.rows(f'SELECT id, string FROM "{capture.table("string")}" WHERE {condition}', values))
    if ids:
        row = f"{_ROW}, {capture.of_event('category_id')}, {capture.of_event(MESSAGE)}"
        for *region, category, message in capture.file.scan(row, capture.table("region"), one_of("name_id", ids)):
            check_whole(*region, 0 if category is None else category)
            unnamed = category in capture.categories.markers and not message
            if (unnamed or category in capture.categories.rccl) and (name := _own_name(ids[region[4]])):
                yield tuple(region), name


def read_around(capture: Captured, spans: Mapping[int, Interval]) -> dict[int, Ranges]:
    """The ranges of each process that touch its span, NCCL's own left out. Raises TypeError for a damaged row."""
    own = {row: spans[pid] for row, pid in capture.processes.items() if pid in spans}
    events = _events(capture)
    if not own or events is None:
        return {}
    hull = min(low for low, _ in own.values()), max(high for _, high in own.values())
    where = f"{within('event_id', *events)} AND {touches(hull)} AND {_is_marker(capture)}"
    row = (*_ROW.split(", "), f"ifnull({capture.of_event('category_id')}, 0)")
    whole = worth(capture.file.about(capture.table("region")) // 4)
    found = read_blocks(capture.file, row, capture.table("region"), where, list[Block], whole=whole)
    if not found:
        return {}
    start, end, pid, tid, name, event, _ = map(columns.chained, zip(*found, strict=True))
    if columns.exceeds(start, end):
        raise OddValue("a range ends before it starts")
    names = _names(capture, event, name)
    numbers, keys = columns.distinct(pid)
    around: dict[int, Ranges] = {}
    for (number,), rows in zip(keys, columns.members(numbers, len(keys)), strict=True):
        global_pid = capture.process(number)
        if (span := own.get(number)) is not None:
            if span != hull:
                rows = array("q", [i for i in rows if start[i] <= span[1] and end[i] >= span[0]])
            each = (columns.take(column, rows) for column in (start, end, tid, event))
            around[global_pid] = named_ranges(names, *each)
    return {pid: ranges for pid, ranges in around.items() if len(ranges)}


def common_names(capture: Captured, global_pid: int) -> list[tuple[str, int]]:
    """The names that most ranges of a process have, with their counts. Raises TypeError for what is no name."""
    rows = capture.rows_of(global_pid)
    events = _events(capture)
    if not rows or events is None:
        return []
    sql = (
        f'SELECT {capture.of_event(MESSAGE)}, name_id, count(*) FROM "{capture.table("region")}" '
        f"WHERE {among('pid', rows)} AND {within('event_id', *events)} AND {_is_marker(capture)} "
        "GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 5000"
    )
    found = capture.file.rows(sql)
    called = read_texts(
        capture.file, {name_id for message, name_id, _ in found if not message}, capture.table("string"), "string"
    )
    named = ((check_text(message or _own_name(called.get(name_id, ""))), count) for message, name_id, count in found)
    return [(name, count) for name, count in named if name]


def _range(start: int, end: int, thread: int, name: str) -> Range:
    if end < start:
        raise OddValue("a range ends before it starts")
    return Range(start, end, thread, name)


def _events(capture: Captured) -> Interval | None:
    """The first and the last event of a marker: they stand together, so little else is between them."""
    table, bounds = capture.table("event"), []
    for category in capture.categories.markers:
        ends = capture.file.rows(f'SELECT min(id), max(id) FROM "{table}" WHERE category_id = {category}')
        bounds += [end for end in ends if end != (None, None)]
    return (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None


def _is_marker(capture: Captured) -> str:
    """Rows whose event is of a marker, or whose event or its category is no number, in SQL."""
    markers = listed(capture.categories.markers)
    marker = capture.of_event(f"category_id IN ({markers}) OR typeof(category_id) NOT IN ('integer', 'null')")
    return f"({marker} OR typeof(event_id) NOT IN ('integer', 'null'))"


def _own_name(region: str) -> str:
    """What a range without a message is called."""
    return "" if region.startswith(CALL_PREFIX) else region


def _messages(capture: Captured, condition: str, values: Sequence[str]) -> dict[int, str]:
    """The messages that pass, by event."""
    markers = capture.categories.markers
    if not markers:
        return {}
    where = f"category_id IN ({listed(markers)}) AND ({condition})"
    return texts_of(capture.file.rows(f'SELECT id, {MESSAGE} FROM "{capture.table("event")}" WHERE {where}', values))


def _names(capture: Captured, events: Column, regions: Column) -> dict[int, str]:
    """The name of each range that has one, by event; ``regions`` are the ids of the names of their regions."""
    where = f"id IN ({listed(events)})"
    if len(events) > LISTED:
        low, high = columns.bounds(events)
        where = f"id BETWEEN {low} AND {high} AND category_id IN ({listed(capture.categories.markers)})"
    rows = capture.file.rows(f'SELECT id, {MESSAGE} FROM "{capture.table("event")}" WHERE {where}')
    found = {event: check_text(message) for event, message in rows if message}
    unnamed = {event: region for event, region in zip(events, regions, strict=True) if event not in found}
    called = read_texts(capture.file, {*unnamed.values()}, capture.table("string"), "string")
    return found | {event: name for event, region in unnamed.items() if (name := _own_name(called.get(region, "")))}
