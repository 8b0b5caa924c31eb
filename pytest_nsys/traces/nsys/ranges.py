"""Which ranges of an export have a name, or touch the spans of some processes? Those of operators outnumber kernels."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import chain

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.conventions import COMMUNICATION_PREFIX, make_pattern_matcher
from pytest_nsys.core.model import OPEN_END_NS, Interval
from pytest_nsys.core.tables import Ranges
from pytest_nsys.traces.nsys.tables import (
    NVTX_TABLE,
    STRINGS_TABLE,
    THREAD_BITS,
    build_process_touch_condition,
    read_strings,
)
from pytest_nsys.traces.sqlite.columns import (
    InvalidValue,
    check_integers,
    check_text,
    collect_texts,
    has_many_rows,
    iterate_blocks,
    report_damage,
    split_by_group,
)
from pytest_nsys.traces.sqlite.conditions import (
    MIN_INT64,
    NOT_TEXT,
    build_bounds_condition,
    build_ids_condition,
    build_membership_condition,
    build_name_condition,
    build_names_condition,
)
from pytest_nsys.traces.sqlite.file import FastReadError, SqliteFile, SqlRow
from pytest_nsys.traces.trace_queries import is_not_nccl_range, select_named_ranges

# Push/pop and start/end ranges, recorded and imported; marks, categories, domain and thread rows are none.
RANGE_EVENTS = build_membership_condition("eventType", (59, 60, 70, 71))

_RECORDED_RANGES = f"{build_bounds_condition('start', low=0)} AND {RANGE_EVENTS}"
NUMBER_COLUMNS = ("start", f"ifnull(end, {OPEN_END_NS})", "globalTid", "eventType")

# A name is the id of its text or, below all ids, NO_NAME_ID or behind it the number of a text that stands in its row.
NO_NAME_ID, FIRST_TEXT_ID = MIN_INT64, MIN_INT64 >> 1

TextLookup = Callable[[Iterable[int]], Mapping[int, str]]
"""Looks texts up by their ids."""
RangeBlock = Sequence[Column]
"""Start, end, thread (serialised) and name of some ranges."""


def read_named_ranges(file: SqliteFile, patterns: Sequence[str]) -> dict[int, Ranges]:
    """Return the ranges of each process whose name matches a pattern, open ones too.

    Ranges before the profiler's start are left out. Raises TypeError for a damaged row.
    """
    ids: dict[int, str] = {}
    if STRINGS_TABLE in file.tables:
        condition, values = build_names_condition("value", patterns)
        odd_condition = f"id IS NULL OR value IS NULL OR {NOT_TEXT.format('value')}"
        with report_damage(file, STRINGS_TABLE):
            ids = collect_texts(file.scan_rows("id, value", STRINGS_TABLE, f"{condition} OR {odd_condition}", values))
    conditions, values = (
        [build_ids_condition("textId", ids)] if ids and file.has_columns(NVTX_TABLE, "textId") else [],
        [],
    )
    if file.has_columns(NVTX_TABLE, "text"):
        condition, values = build_names_condition("text", patterns)
        conditions.append(f"(text IS NOT NULL AND ({condition} OR {NOT_TEXT.format('text')}))")
    if not conditions:
        return {}
    inline_ids: dict[str, int] = {}
    range_blocks = _read_by_row(
        file, f"({' OR '.join(conditions)}) AND {_RECORDED_RANGES}", values, inline_ids, whole_table=False
    )
    return _build_ranges(range_blocks, inline_ids, lambda _: ids, make_pattern_matcher(*patterns))


def select_by_name(ranges: Mapping[int, Ranges], patterns: Sequence[str]) -> dict[int, Ranges]:
    """Return those of the ranges of each process whose name matches a pattern."""
    matches = make_pattern_matcher(*patterns)
    selected = {}
    for pid, process_ranges in ranges.items():
        name_flags = array("q", map(matches, process_ranges.names))
        matching_ranges = process_ranges.take(columns.find_nonzero(columns.take(name_flags, process_ranges.name)))
        if len(matching_ranges):
            numbers, names = columns.find_distinct_rows(matching_ranges.name)
            texts = [process_ranges.names[name] for (name,) in names]
            selected[pid] = Ranges(
                matching_ranges.start_ns, matching_ranges.end_ns, matching_ranges.thread, numbers, texts
            )
    return selected


def read_touching_ranges(file: SqliteFile, spans: Mapping[int, Interval]) -> dict[int, Ranges]:
    """Return the ranges of each process that touch its span, open ones included, NCCL's own left out.

    Raises TypeError for a damaged row.
    """
    text = file.get_column(NVTX_TABLE, "text")
    nccl_condition, values = build_name_condition(text, COMMUNICATION_PREFIX + "%")
    where = f"{build_process_touch_condition('globalTid', spans)} AND {_RECORDED_RANGES}"
    whole_table = has_many_rows(file, NVTX_TABLE, where)
    inline_ids: dict[str, int] = {}
    if whole_table:
        with suppress(FastReadError), closing(_read_fast(file, f"{where} AND {text} IS NULL")) as by_id:
            by_text = _read_by_row(
                file, f"{text} IS NOT NULL AND NOT ({nccl_condition}) AND {where}", values, inline_ids, whole_table=True
            )
            return _build_ranges(chain(by_id, by_text), inline_ids, partial(read_strings, file))
        inline_ids.clear()
    rows = _read_by_row(
        file, f"{where} AND ({text} IS NULL OR NOT ({nccl_condition}))", values, inline_ids, whole_table=whole_table
    )
    return _build_ranges(rows, inline_ids, partial(read_strings, file))


def list_common_names(file: SqliteFile, global_pid: int) -> list[tuple[str, int]]:
    """Return the names that most ranges of a process have, with their counts."""
    text, text_id = (file.get_column(NVTX_TABLE, name) for name in ("text", "textId"))
    sql = (
        f"SELECT {text}, {text_id}, count(*) FROM {NVTX_TABLE} WHERE start >= 0 AND {RANGE_EVENTS} "
        f"AND globalTid BETWEEN {global_pid} AND {global_pid | THREAD_BITS} "
        f"GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 5000"
    )
    rows = file.fetch_rows(sql)
    texts = read_strings(file, (text_id for text, text_id, _ in rows if text is None))
    names_and_counts = ((text if text is not None else texts.get(text_id), count) for text, text_id, count in rows)
    return [(name, count) for name, count in names_and_counts if name is not None]


def _read_fast(file: SqliteFile, where: str) -> Generator[RangeBlock, None, None]:
    """Yield the ranges that are named by an id, in blocks. Raises FastReadError."""
    expressions = (*NUMBER_COLUMNS, f"ifnull({file.get_column(NVTX_TABLE, 'textId')}, {NO_NAME_ID})")
    with closing(iterate_blocks(file, expressions, NVTX_TABLE, where)) as column_blocks:
        for start, end, tid, _, name in column_blocks:
            if any(NO_NAME_ID < number < FIRST_TEXT_ID for number in columns.list_distinct(name)[:2]):
                raise FastReadError("an id is where texts are numbered")
            yield start, end, tid, name


def _read_by_row(
    file: SqliteFile, where: str, values: Sequence[str], inline_ids: dict[str, int], *, whole_table: bool
) -> Iterator[RangeBlock]:
    """Yield the ranges that pass in blocks, and number the texts in their rows in ``inline_ids``. Raises
    InvalidValue.
    """
    text, text_id = (file.get_column(NVTX_TABLE, name) for name in ("text", "textId"))
    for rows in file.read_chunks(
        ", ".join((*NUMBER_COLUMNS, text, text_id)), NVTX_TABLE, where, values, whole_table=whole_table
    ):
        if rows:
            *numbers, inline_texts, text_ids = zip(*rows, strict=True)
            for name in dict.fromkeys(inline_texts):
                if name is not None:
                    inline_ids.setdefault(check_text(name), NO_NAME_ID + 1 + len(inline_ids))
            name_ids = [
                text_id if inline_text is None else inline_ids[inline_text]
                for inline_text, text_id in zip(inline_texts, text_ids, strict=True)
            ]
            try:
                start, end, tid, _ = (array("q", column) for column in numbers)
                if min(filter(None, text_ids), default=0) < FIRST_TEXT_ID:
                    raise InvalidValue("an id is where texts are numbered")
                yield start, end, tid, array("q", [NO_NAME_ID if name is None else name for name in name_ids])
            except (TypeError, OverflowError):
                _explain_rows(rows)
                raise


def _explain_rows(rows: Iterable[SqlRow]) -> None:
    """Raise InvalidValue for the first of the rows that holds what is no whole number."""
    for *numbers, _, text_id in rows:
        check_integers(*numbers, 0 if text_id is None else text_id)


def _build_ranges(
    range_blocks: Iterable[RangeBlock],
    inline_ids: Mapping[str, int],
    look_up_texts: TextLookup,
    name_filter: Callable[[str], bool] = is_not_nccl_range,
) -> dict[int, Ranges]:
    """Return the ranges by process; ``inline_ids`` is filled while they are read."""
    parts_by_process: dict[int, list[RangeBlock]] = {}
    for start, end, tid, name in range_blocks:
        thread_numbers, keys = columns.find_distinct_rows(tid)
        threads = columns.take(array("i", [thread & THREAD_BITS for (thread,) in keys]), thread_numbers)
        pids = list(dict.fromkeys(thread & ~THREAD_BITS for (thread,) in keys))
        number_by_process = {pid: number for number, pid in enumerate(pids)}
        process_numbers = columns.take(
            array("q", [number_by_process[thread & ~THREAD_BITS] for (thread,) in keys]), thread_numbers
        )
        for pid, parts in zip(
            pids,
            split_by_group(process_numbers, len(pids), (start, end, threads, columns.narrow_column(name))),
            strict=True,
        ):
            parts_by_process.setdefault(pid, []).append(parts)
    columns_by_process = {
        pid: [columns.concatenate_columns(column) for column in zip(*parts, strict=True)]
        for pid, parts in parts_by_process.items()
    }
    parts_by_process.clear()
    used_names = [columns.list_distinct(name) for *_, name in columns_by_process.values()]
    names_by_id = dict(look_up_texts(number for names in used_names for number in names if number >= FIRST_TEXT_ID))
    names_by_id |= {number: text for text, number in inline_ids.items()}
    ranges_by_process = {
        pid: select_named_ranges(names_by_id, *range_columns, name_filter=name_filter)
        for pid, range_columns in columns_by_process.items()
    }
    return {pid: ranges for pid, ranges in ranges_by_process.items() if len(ranges)}
