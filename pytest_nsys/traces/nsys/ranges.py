"""Which ranges of an export have a name, or touch the spans of some processes? Those of operators outnumber kernels."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import chain

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.conventions import COMMUNICATION_PREFIX, like
from pytest_nsys.core.model import OPEN_END_NS, Interval
from pytest_nsys.core.tables import Ranges
from pytest_nsys.traces.answers import named_ranges, not_by_nccl
from pytest_nsys.traces.nsys.tables import NVTX, STRINGS, THREAD_BITS, strings, touching
from pytest_nsys.traces.sqlite_columns import (
    OddValue,
    blocks,
    check_text,
    check_whole,
    damage,
    has_many,
    split,
    texts_of,
)
from pytest_nsys.traces.sqlite_conditions import (
    FIRST,
    NO_TEXT,
    among,
    any_name,
    name_condition,
    one_of,
    within,
)
from pytest_nsys.traces.sqlite_file import SqliteFile, SqlRow, Unfit

RANGE_EVENTS = among("eventType", (59, 60, 70, 71))
"""Push/pop and start/end ranges, recorded and imported; marks, categories, domain and thread rows are none."""

_RECORDED = f"{within('start', low=0)} AND {RANGE_EVENTS}"
NUMBERS = ("start", f"ifnull(end, {OPEN_END_NS})", "globalTid", "eventType")

NAMELESS, FIRST_ID = FIRST, FIRST >> 1
"""A name is the id of its text or, below all ids, NAMELESS or behind it the number of a text that stands in its row."""

Texts = Callable[[Iterable[int]], Mapping[int, str]]
"""Looks texts up by their ids."""
Some = Sequence[Column]
"""Start, end, thread (serialised) and name of some ranges."""


def read_named(file: SqliteFile, patterns: Sequence[str]) -> dict[int, Ranges]:
    """The ranges of each process whose name matches a pattern, open ones too; those before the profiler's start are
    left out. Raises TypeError for a damaged row.
    """
    ids: dict[int, str] = {}
    if STRINGS in file.tables:
        condition, values = any_name("value", patterns)
        odd = f"id IS NULL OR value IS NULL OR {NO_TEXT.format('value')}"
        with damage(file, STRINGS):
            ids = texts_of(file.scan("id, value", STRINGS, f"{condition} OR {odd}", values))
    conditions, values = [one_of("textId", ids)] if ids and file.has(NVTX, "textId") else [], []
    if file.has(NVTX, "text"):
        condition, values = any_name("text", patterns)
        conditions.append(f"(text IS NOT NULL AND ({condition} OR {NO_TEXT.format('text')}))")
    if not conditions:
        return {}
    inline: dict[str, int] = {}
    some = _rows(file, f"({' OR '.join(conditions)}) AND {_RECORDED}", values, inline, whole=False)
    return _ranges(some, inline, lambda _: ids, like(*patterns))


def of_names(ranges: Mapping[int, Ranges], patterns: Sequence[str]) -> dict[int, Ranges]:
    """Those of the ranges of each process whose name matches a pattern."""
    matches = like(*patterns)
    found = {}
    for pid, own in ranges.items():
        wanted = array("q", map(matches, own.names))
        some = own.take(columns.where(columns.take(wanted, own.name)))
        if len(some):
            numbers, names = columns.distinct(some.name)
            texts = [own.names[name] for (name,) in names]
            found[pid] = Ranges(some.start_ns, some.end_ns, some.thread, numbers, texts)
    return found


def read_around(file: SqliteFile, spans: Mapping[int, Interval]) -> dict[int, Ranges]:
    """The ranges of each process that touch its span, open ones included, NCCL's own left out.

    Raises TypeError for a damaged row.
    """
    text = file.column(NVTX, "text")
    by_nccl, values = name_condition(text, COMMUNICATION_PREFIX + "%")
    where = f"{touching('globalTid', spans)} AND {_RECORDED}"
    whole = has_many(file, NVTX, where)
    inline: dict[str, int] = {}
    if whole:
        with suppress(Unfit), closing(_blocks(file, f"{where} AND {text} IS NULL")) as by_id:
            by_text = _rows(file, f"{text} IS NOT NULL AND NOT ({by_nccl}) AND {where}", values, inline, whole=True)
            return _ranges(chain(by_id, by_text), inline, partial(strings, file))
        inline.clear()
    rows = _rows(file, f"{where} AND ({text} IS NULL OR NOT ({by_nccl}))", values, inline, whole=whole)
    return _ranges(rows, inline, partial(strings, file))


def common_names(file: SqliteFile, global_pid: int) -> list[tuple[str, int]]:
    """The names that most ranges of a process have, with their counts."""
    text, text_id = (file.column(NVTX, name) for name in ("text", "textId"))
    sql = (
        f"SELECT {text}, {text_id}, count(*) FROM {NVTX} WHERE start >= 0 AND {RANGE_EVENTS} "
        f"AND globalTid BETWEEN {global_pid} AND {global_pid | THREAD_BITS} "
        f"GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 5000"
    )
    rows = file.rows(sql)
    ids = strings(file, (text_id for text, text_id, _ in rows if text is None))
    named = ((text if text is not None else ids.get(text_id), count) for text, text_id, count in rows)
    return [(name, count) for name, count in named if name is not None]


def _blocks(file: SqliteFile, where: str) -> Generator[Some, None, None]:
    """Those that are named by an id. Raises Unfit."""
    row = (*NUMBERS, f"ifnull({file.column(NVTX, 'textId')}, {NAMELESS})")
    with closing(blocks(file, row, NVTX, where)) as found:
        for start, end, tid, _, name in found:
            if any(NAMELESS < number < FIRST_ID for number in columns.values(name)[:2]):
                raise Unfit("an id is where texts are numbered")
            yield start, end, tid, name


def _rows(
    file: SqliteFile, where: str, values: Sequence[str], inline: dict[str, int], *, whole: bool
) -> Iterator[Some]:
    """Raises OddValue."""
    text, text_id = (file.column(NVTX, name) for name in ("text", "textId"))
    for rows in file.parts(", ".join((*NUMBERS, text, text_id)), NVTX, where, values, whole=whole):
        if rows:
            *numbers, own, ids = zip(*rows, strict=True)
            for name in dict.fromkeys(own):
                if name is not None:
                    inline.setdefault(check_text(name), NAMELESS + 1 + len(inline))
            named = [i if t is None else inline[t] for t, i in zip(own, ids, strict=True)]
            try:
                start, end, tid, _ = (array("q", column) for column in numbers)
                if min(filter(None, ids), default=0) < FIRST_ID:
                    raise OddValue("an id is where texts are numbered")
                yield start, end, tid, array("q", [NAMELESS if name is None else name for name in named])
            except (TypeError, OverflowError):
                _explain(rows)
                raise


def _explain(rows: Iterable[SqlRow]) -> None:
    for *numbers, _, text_id in rows:
        check_whole(*numbers, 0 if text_id is None else text_id)


def _ranges(
    some: Iterable[Some], inline: Mapping[str, int], texts: Texts, wanted: Callable[[str], bool] = not_by_nccl
) -> dict[int, Ranges]:
    """The ranges by process; ``inline`` is filled while they are read."""
    parts_of: dict[int, list[Some]] = {}
    for start, end, tid, name in some:
        numbers, keys = columns.distinct(tid)
        threads = columns.take(array("i", [thread & THREAD_BITS for (thread,) in keys]), numbers)
        pids = list(dict.fromkeys(thread & ~THREAD_BITS for (thread,) in keys))
        process = {pid: number for number, pid in enumerate(pids)}
        processes = columns.take(array("q", [process[thread & ~THREAD_BITS] for (thread,) in keys]), numbers)
        for pid, parts in zip(
            pids, split(processes, len(pids), (start, end, threads, columns.narrowed(name))), strict=True
        ):
            parts_of.setdefault(pid, []).append(parts)
    found = {pid: [columns.chained(column) for column in zip(*parts, strict=True)] for pid, parts in parts_of.items()}
    parts_of.clear()
    used = [columns.values(name) for *_, name in found.values()]
    known = dict(texts(number for names in used for number in names if number >= FIRST_ID))
    known |= {number: text for text, number in inline.items()}
    told = {pid: named_ranges(known, *own, wanted=wanted) for pid, own in found.items()}
    return {pid: own for pid, own in told.items() if len(own)}
