"""Which ranges does a rocpd database hold? Those of ROCTx, and the calls of RCCL, which are as its ranges in NCCL.

A range is a region whose event is of a category of markers. Its region is named for the call (``roctxThreadRangeA``);
its own name is the message that the event keeps beside it. Where there is no message the region's name is the range's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

from pytest_nsys.core.conventions import COMMUNICATION_PREFIX
from pytest_nsys.core.model import Interval, Range
from pytest_nsys.core.ranges import Ranges
from pytest_nsys.traces.rocpd.parts import Part
from pytest_nsys.traces.sqlite_conditions import among, any_name, listed, one_of, touches, within
from pytest_nsys.traces.sqlite_file import SqlRow
from pytest_nsys.traces.sqlite_values import OddValue, check_text, check_whole, texts_of

MESSAGE = "CASE WHEN json_valid(extdata) THEN json_extract(extdata, '$.message') END"
CALL_PREFIX = "roctx"
"""Of what a region of a range is called for its call: without a message it is no range."""

LISTED = 20_000
"""Ids that are asked for at once."""

_ROW = "start, end, pid, tid, name_id, event_id"


def read_ranges(part: Part, patterns: Sequence[str], matches: Callable[[str], bool]) -> dict[int, list[Range]]:
    """The ranges whose name matches, by process. Raises TypeError for a damaged row."""
    table, strings = part.table("region"), part.table("string")
    condition, values = any_name("string", patterns)
    ids = texts_of(part.file.rows(f'SELECT id, string FROM "{strings}" WHERE {condition}', values))
    messages = _messages(part, *any_name(MESSAGE, patterns))
    chosen = [one_of(column, some) for column, some in (("name_id", ids), ("event_id", messages)) if some]
    if not chosen:
        return {}
    category, message = part.of_event("category_id"), part.of_event(MESSAGE)
    rows = part.file.scan(f"{_ROW}, {category}, {message}", table, " OR ".join(chosen))
    markers, rccl = part.categories.markers, part.categories.rccl
    found: dict[int, list[Range]] = defaultdict(list)
    for *numbers, category_id, message in rows:
        check_whole(*numbers, 0 if category_id is None else category_id)
        start, end, pid, tid, name_id, _ = numbers
        name = message if category_id in markers and message else _own_name(ids.get(name_id, ""))
        if name and category_id in (*markers, *rccl) and matches(check_text(name)):
            found[part.process(pid)].append(_range(start, end, tid, name))
    return found


def read_around(part: Part, spans: Mapping[int, Interval]) -> dict[int, Ranges]:
    """The ranges of each process that touch its span, NCCL's own left out. Raises TypeError for a damaged row."""
    own = {row: spans[pid] for row, pid in part.processes.items() if pid in spans}
    events = _events(part)
    if not own or events is None:
        return {}
    low, high = min(low for low, _ in own.values()), max(high for _, high in own.values())
    where = f"{touches((low, high))} AND {within('event_id', *events)} AND {_is_marker(part)}"
    rows = list(part.file.scan(f"{_ROW}, {part.of_event('category_id')}", part.table("region"), where))
    for row in rows:
        check_whole(*row)
    names = _names(part, rows)
    found: dict[int, list[Range]] = defaultdict(list)
    for start, end, pid, tid, _, event, _ in rows:
        global_pid, name = part.process(pid), names[event]
        touching = pid in own and start <= own[pid][1] and end >= own[pid][0]
        if touching and name and not name.startswith(COMMUNICATION_PREFIX):
            found[global_pid].append(_range(start, end, tid, name))
    return {pid: Ranges.of(in_order(ranges)) for pid, ranges in found.items()}


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
    called = _strings(part, (name_id for message, name_id, _ in found if not message))
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
    """An event of a marker, or of a category that is no number, in SQL."""
    markers = listed(part.categories.markers)
    return part.of_event(f"category_id IN ({markers}) OR typeof(category_id) NOT IN ('integer', 'null')")


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


def _names(part: Part, rows: Sequence[SqlRow]) -> dict[int, str]:
    """The name of each range, by event."""
    table, named = part.table("event"), {event: name_id for *_, name_id, event, _ in rows}
    events = list(named)
    found: dict[int, str] = {}
    for at in range(0, len(events), LISTED):
        some = listed(events[at : at + LISTED])
        for event, message in part.file.rows(f'SELECT id, {MESSAGE} FROM "{table}" WHERE id IN ({some})'):
            if message:
                found[event] = check_text(message)
    called = _strings(part, (name_id for event, name_id in named.items() if event not in found))
    return {event: found.get(event) or _own_name(called.get(name_id, "")) for event, name_id in named.items()}


def _strings(part: Part, ids: Iterable[int]) -> dict[int, str]:
    wanted = sorted(set(ids))
    found: dict[int, str] = {}
    for at in range(0, len(wanted), LISTED):
        some = listed(wanted[at : at + LISTED])
        found |= texts_of(part.file.rows(f'SELECT id, string FROM "{part.table("string")}" WHERE id IN ({some})'))
    return found
