"""Which ranges does a rocpd database hold? Those of ROCTx, and the calls of RCCL, which are as its ranges in NCCL.

A range is a region whose event is of a category of markers. Its region is named for the call (``roctxThreadRangeA``);
its own name is the message that the event keeps beside it. Where there is no message the region's name is the range's.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.model import Interval, Range
from pytest_nsys.core.ranges import Ranges
from pytest_nsys.traces.answers import named_ranges
from pytest_nsys.traces.rocpd.parts import Part
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

MESSAGE = "CASE WHEN json_valid(extdata) THEN json_extract(extdata, '$.message') END"
CALL_PREFIX = "roctx"
"""Of what a region of a range is called for its call: without a message it is no range."""

_ROW = "start, end, pid, tid, name_id, event_id"


def read_ranges(part: Part, patterns: Sequence[str], matches: Callable[[str], bool]) -> dict[int, list[Range]]:
    """The ranges whose name matches, by process. Raises TypeError for a damaged row."""
    messages = _messages(part, *any_name(MESSAGE, patterns))
    named = [(row, messages[row[-1]]) for row in _regions_of(part, list(messages))]
    if part.has_own_names:
        named += _named_by_region(part, patterns)
    found: dict[int, list[Range]] = defaultdict(list)
    for (start, end, pid, tid, _, _), name in named:
        if matches(name):
            found[part.process(pid)].append(_range(start, end, tid, name))
    return found


def _regions_of(part: Part, events: Sequence[int]) -> list[SqlRow]:
    """The regions of some events. rocprofv3 numbers a region as its event's stack; what is not found there, or is a
    mark, is looked for in the whole table.
    """
    table, event = part.table("region"), part.table("event")
    found: list[SqlRow] = []
    for at in range(0, len(events), LISTED):
        some = listed(events[at : at + LISTED])
        stacks = f'SELECT stack_id FROM "{event}" WHERE id IN ({some})'
        found += part.file.rows(f'SELECT {_ROW} FROM "{table}" WHERE id IN ({stacks}) AND event_id IN ({some})')
    missing = set(events).difference(row[-1] for row in found)
    found += part.file.scan(_ROW, table, one_of("event_id", missing)) if missing else ()
    for row in found:
        check_whole(*row)
    return found


def _named_by_region(part: Part, patterns: Sequence[str]) -> Iterator[tuple[SqlRow, str]]:
    """The regions of markers without a message, and of RCCL, that the patterns let through, and their names."""
    condition, values = any_name("string", patterns)
    ids = texts_of(part.file.rows(f'SELECT id, string FROM "{part.table("string")}" WHERE {condition}', values))
    if ids:
        row = f"{_ROW}, {part.of_event('category_id')}, {part.of_event(MESSAGE)}"
        for *region, category, message in part.file.scan(row, part.table("region"), one_of("name_id", ids)):
            check_whole(*region, 0 if category is None else category)
            unnamed = category in part.categories.markers and not message
            if (unnamed or category in part.categories.rccl) and (name := _own_name(ids[region[4]])):
                yield tuple(region), name


def read_around(part: Part, spans: Mapping[int, Interval]) -> dict[int, Ranges]:
    """The ranges of each process that touch its span, NCCL's own left out. Raises TypeError for a damaged row."""
    own = {row: spans[pid] for row, pid in part.processes.items() if pid in spans}
    events = _events(part)
    if not own or events is None:
        return {}
    hull = min(low for low, _ in own.values()), max(high for _, high in own.values())
    where = f"{within('event_id', *events)} AND {touches(hull)} AND {_is_marker(part)}"
    row = (*_ROW.split(", "), f"ifnull({part.of_event('category_id')}, 0)")
    whole = worth(part.file.about(part.table("region")) // 4)
    found = read_blocks(part.file, row, part.table("region"), where, list[Block], whole=whole)
    if not found:
        return {}
    start, end, pid, tid, name, event, _ = map(columns.chained, zip(*found, strict=True))
    if columns.exceeds(start, end):
        raise OddValue("a range ends before it starts")
    names = _names(part, event, name)
    numbers, keys = columns.distinct(pid)
    around: dict[int, Ranges] = {}
    for (number,), rows in zip(keys, columns.members(numbers, len(keys)), strict=True):
        global_pid = part.process(number)
        if (span := own.get(number)) is not None:
            if span != hull:
                rows = array("q", [i for i in rows if start[i] <= span[1] and end[i] >= span[0]])
            each = (columns.take(column, rows) for column in (start, end, tid, event))
            around[global_pid] = named_ranges(names, *each)
    return {pid: ranges for pid, ranges in around.items() if len(ranges)}


def common_names(part: Part, global_pid: int) -> list[tuple[str, int]]:
    """The names that most ranges of a process have, with their counts. Raises TypeError for what is no name."""
    rows = part.rows_of(global_pid)
    events = _events(part)
    if not rows or events is None:
        return []
    sql = (
        f'SELECT {part.of_event(MESSAGE)}, name_id, count(*) FROM "{part.table("region")}" '
        f"WHERE {among('pid', rows)} AND {within('event_id', *events)} AND {_is_marker(part)} "
        "GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 5000"
    )
    found = part.file.rows(sql)
    called = read_texts(
        part.file, {name_id for message, name_id, _ in found if not message}, part.table("string"), "string"
    )
    named = ((check_text(message or _own_name(called.get(name_id, ""))), count) for message, name_id, count in found)
    return [(name, count) for name, count in named if name]


def in_order(ranges: list[Range]) -> list[Range]:
    """By start, end and name."""
    return sorted(ranges, key=itemgetter(0, 1, 3))


def _range(start: int, end: int, thread: int, name: str) -> Range:
    if end < start:
        raise OddValue("a range ends before it starts")
    return Range(start, end, thread, name)


def _events(part: Part) -> Interval | None:
    """The first and the last event of a marker: they stand together, so little else is between them."""
    table, bounds = part.table("event"), []
    for category in part.categories.markers:
        ends = part.file.rows(f'SELECT min(id), max(id) FROM "{table}" WHERE category_id = {category}')
        bounds += [end for end in ends if end != (None, None)]
    return (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None


def _is_marker(part: Part) -> str:
    """Rows whose event is of a marker, or whose event or its category is no number, in SQL."""
    markers = listed(part.categories.markers)
    marker = part.of_event(f"category_id IN ({markers}) OR typeof(category_id) NOT IN ('integer', 'null')")
    return f"({marker} OR typeof(event_id) NOT IN ('integer', 'null'))"


def _own_name(region: str) -> str:
    """What a range without a message is called."""
    return "" if region.startswith(CALL_PREFIX) else region


def _messages(part: Part, condition: str, values: Sequence[str]) -> dict[int, str]:
    """The messages that pass, by event."""
    markers = part.categories.markers
    if not markers:
        return {}
    sql = (
        f'SELECT id, {MESSAGE} FROM "{part.table("event")}" WHERE category_id IN ({listed(markers)}) AND ({condition})'
    )
    return texts_of(part.file.rows(sql, values))


def _names(part: Part, events: Column, regions: Column) -> dict[int, str]:
    """The name of each range that has one, by event; ``regions`` are the ids of the names of their regions."""
    where = f"id IN ({listed(events)})"
    if len(events) > LISTED:
        low, high = columns.bounds(events)
        where = f"id BETWEEN {low} AND {high} AND category_id IN ({listed(part.categories.markers)})"
    rows = part.file.rows(f'SELECT id, {MESSAGE} FROM "{part.table("event")}" WHERE {where}')
    found = {event: check_text(message) for event, message in rows if message}
    unnamed = {event: region for event, region in zip(events, regions, strict=True) if event not in found}
    called = read_texts(part.file, {*unnamed.values()}, part.table("string"), "string")
    return found | {event: name for event, region in unnamed.items() if (name := _own_name(called.get(region, "")))}
