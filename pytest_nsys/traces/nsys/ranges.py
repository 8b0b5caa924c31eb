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

# Push/pop and start/end ranges, recorded and imported; marks, categories, domain and thread rows are none.
RANGE_EVENTS = among("eventType", (59, 60, 70, 71))

_RECORDED = f"{within('start', low=0)} AND {RANGE_EVENTS}"
NUMBERS = ("start", f"ifnull(end, {OPEN_END_NS})", "globalTid", "eventType")

# A name is the id of its text or, below all ids, NO_NAME_ID or behind it the number of a text that stands in its row.
NAMELESS, FIRST_ID = FIRST, FIRST >> 1

Texts = Callable[[Iterable[int]], Mapping[int, str]]
"""Looks texts up by their ids."""
Some = Sequence[Column]
"""Start, end, thread (serialised) and name of some ranges."""


def read_named(file: SqliteFile, patterns: Sequence[str]) -> dict[int, Ranges]:
    """Return the ranges of each process whose name matches a pattern, open ones too.

    Ranges before the profiler's start are left out. Raises TypeError for a damaged row.
    """
    ids: dict[int, str] = {}
    if STRINGS in file.tables:
        condition, values = any_name("value", patterns)
        odd_condition = f"id IS NULL OR value IS NULL OR {NO_TEXT.format('value')}"
        with damage(file, STRINGS):
            ids = texts_of(file.scan("id, value", STRINGS, f"{condition} OR {odd_condition}", values))
    conditions, values = [one_of("textId", ids)] if ids and file.has(NVTX, "textId") else [], []
    if file.has(NVTX, "text"):
        condition, values = any_name("text", patterns)
        conditions.append(f"(text IS NOT NULL AND ({condition} OR {NO_TEXT.format('text')}))")
    if not conditions:
        return {}
    inline_ids: dict[str, int] = {}
    range_blocks = _rows(file, f"({' OR '.join(conditions)}) AND {_RECORDED}", values, inline_ids, whole=False)
    return _ranges(range_blocks, inline_ids, lambda _: ids, like(*patterns))


def of_names(ranges: Mapping[int, Ranges], patterns: Sequence[str]) -> dict[int, Ranges]:
    """Return those of the ranges of each process whose name matches a pattern."""
    matches = like(*patterns)
    selected = {}
    for pid, process_ranges in ranges.items():
        name_flags = array("q", map(matches, process_ranges.names))
        matching_ranges = process_ranges.take(columns.where(columns.take(name_flags, process_ranges.name)))
        if len(matching_ranges):
            numbers, names = columns.distinct(matching_ranges.name)
            texts = [process_ranges.names[name] for (name,) in names]
            selected[pid] = Ranges(
                matching_ranges.start_ns, matching_ranges.end_ns, matching_ranges.thread, numbers, texts
            )
    return selected


def read_around(file: SqliteFile, spans: Mapping[int, Interval]) -> dict[int, Ranges]:
    """Return the ranges of each process that touch its span, open ones included, NCCL's own left out.

    Raises TypeError for a damaged row.
    """
    text = file.column(NVTX, "text")
    nccl_condition, values = name_condition(text, COMMUNICATION_PREFIX + "%")
    where = f"{touching('globalTid', spans)} AND {_RECORDED}"
    whole_table = has_many(file, NVTX, where)
    inline_ids: dict[str, int] = {}
    if whole_table:
        with suppress(Unfit), closing(_blocks(file, f"{where} AND {text} IS NULL")) as by_id:
            by_text = _rows(
                file, f"{text} IS NOT NULL AND NOT ({nccl_condition}) AND {where}", values, inline_ids, whole=True
            )
            return _ranges(chain(by_id, by_text), inline_ids, partial(strings, file))
        inline_ids.clear()
    rows = _rows(file, f"{where} AND ({text} IS NULL OR NOT ({nccl_condition}))", values, inline_ids, whole=whole_table)
    return _ranges(rows, inline_ids, partial(strings, file))


def common_names(file: SqliteFile, global_pid: int) -> list[tuple[str, int]]:
    """Return the names that most ranges of a process have, with their counts."""
    text, text_id = (file.column(NVTX, name) for name in ("text", "textId"))
    sql = (
        f"SELECT {text}, {text_id}, count(*) FROM {NVTX} WHERE start >= 0 AND {RANGE_EVENTS} "
        f"AND globalTid BETWEEN {global_pid} AND {global_pid | THREAD_BITS} "
        f"GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 5000"
    )
    rows = file.rows(sql)
    texts = strings(file, (text_id for text, text_id, _ in rows if text is None))
    names_and_counts = ((text if text is not None else texts.get(text_id), count) for text, text_id, count in rows)
    return [(name, count) for name, count in names_and_counts if name is not None]


def _blocks(file: SqliteFile, where: str) -> Generator[Some, None, None]:
    """Yield the ranges that are named by an id, in blocks. Raises FastReadError."""
    expressions = (*NUMBERS, f"ifnull({file.column(NVTX, 'textId')}, {NAMELESS})")
    with closing(blocks(file, expressions, NVTX, where)) as column_blocks:
        for start, end, tid, _, name in column_blocks:
            if any(NAMELESS < number < FIRST_ID for number in columns.values(name)[:2]):
                raise Unfit("an id is where texts are numbered")
            yield start, end, tid, name


def _rows(
    file: SqliteFile, where: str, values: Sequence[str], inline: dict[str, int], *, whole: bool
) -> Iterator[Some]:
    """Yield the ranges that pass in blocks, and number the texts in their rows in ``inline_ids``. Raises
    InvalidValue.
    """
    text, text_id = (file.column(NVTX, name) for name in ("text", "textId"))
    for rows in file.parts(", ".join((*NUMBERS, text, text_id)), NVTX, where, values, whole=whole):
        if rows:
            *numbers, inline_texts, text_ids = zip(*rows, strict=True)
            for name in dict.fromkeys(inline_texts):
                if name is not None:
                    inline.setdefault(check_text(name), NAMELESS + 1 + len(inline))
            name_ids = [
                text_id if inline_text is None else inline[inline_text]
                for inline_text, text_id in zip(inline_texts, text_ids, strict=True)
            ]
            try:
                start, end, tid, _ = (array("q", column) for column in numbers)
                if min(filter(None, text_ids), default=0) < FIRST_ID:
                    raise OddValue("an id is where texts are numbered")
                yield start, end, tid, array("q", [NAMELESS if name is None else name for name in name_ids])
            except (TypeError, OverflowError):
                _explain(rows)
                raise


def _explain(rows: Iterable[SqlRow]) -> None:
    """Raise InvalidValue for the first of the rows that holds what is no whole number."""
    for *numbers, _, text_id in rows:
        check_whole(*numbers, 0 if text_id is None else text_id)


def _ranges(
    some: Iterable[Some], inline: Mapping[str, int], texts: Texts, wanted: Callable[[str], bool] = not_by_nccl
) -> dict[int, Ranges]:
    """Return the ranges by process; ``inline_ids`` is filled while they are read."""
    parts_by_process: dict[int, list[Some]] = {}
    for start, end, tid, name in some:
        thread_numbers, keys = columns.distinct(tid)
        threads = columns.take(array("i", [thread & THREAD_BITS for (thread,) in keys]), thread_numbers)
        pids = list(dict.fromkeys(thread & ~THREAD_BITS for (thread,) in keys))
        number_by_process = {pid: number for number, pid in enumerate(pids)}
        process_numbers = columns.take(
            array("q", [number_by_process[thread & ~THREAD_BITS] for (thread,) in keys]), thread_numbers
        )
        for pid, parts in zip(
            pids, split(process_numbers, len(pids), (start, end, threads, columns.narrowed(name))), strict=True
        ):
            parts_by_process.setdefault(pid, []).append(parts)
    columns_by_process = {
        pid: [columns.chained(column) for column in zip(*parts, strict=True)] for pid, parts in parts_by_process.items()
    }
    parts_by_process.clear()
    used_names = [columns.values(name) for *_, name in columns_by_process.values()]
    names_by_id = dict(texts(number for names in used_names for number in names if number >= FIRST_ID))
    names_by_id |= {number: text for text, number in inline.items()}
    ranges_by_process = {
        pid: named_ranges(names_by_id, *range_columns, wanted=wanted)
        for pid, range_columns in columns_by_process.items()
    }
    return {pid: ranges for pid, ranges in ranges_by_process.items() if len(ranges)}
