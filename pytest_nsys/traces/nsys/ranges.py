"""Which ranges of an export touch the spans of some processes? As columns: those of operators outnumber kernels."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.conventions import COMMUNICATION_PREFIX
from pytest_nsys.core.model import OPEN_END_NS, Interval
from pytest_nsys.core.ranges import Ranges
from pytest_nsys.traces.answers import named_ranges
from pytest_nsys.traces.nsys.tables import NVTX, THREAD_BITS, touching
from pytest_nsys.traces.sqlite_columns import OddValue, Unfit, blocks, check_text, check_whole, joined, split, worth
from pytest_nsys.traces.sqlite_conditions import FIRST, among, name_condition, within
from pytest_nsys.traces.sqlite_file import SqliteFile, SqlRow

RANGE_EVENTS = among("eventType", (59, 60, 70, 71))
"""Push/pop and start/end ranges, recorded and imported; marks, categories, domain and thread rows are none."""

NUMBERS = ("start", f"ifnull(end, {OPEN_END_NS})", "globalTid", "eventType")

NAMELESS, FIRST_ID = FIRST, FIRST >> 1
"""A name is the id of its text or, below all ids, NAMELESS or behind it the number of a text that stands in its row."""

Texts = Callable[[Iterable[int]], Mapping[int, str]]
"""Looks texts up by their ids."""
Some = Sequence[Column]
"""Start, end, thread (serialised) and name of some ranges."""


def read_around(file: SqliteFile, spans: Mapping[int, Interval], texts: Texts) -> dict[int, Ranges]:
    """The ranges of each process that touch its span, open ones included, NCCL's own left out.

    Raises TypeError for a damaged row.
    """
    where = f"{touching('globalTid', spans)} AND {within('start', low=0)} AND {RANGE_EVENTS}"
    whole = worth(_about(file, spans))
    inline: dict[str, int] = {}
    if whole:
        with suppress(Unfit), closing(_blocks(file, where, inline)) as some:
            return _ranges(some, inline, texts)
        inline.clear()
    return _ranges(_rows(file, where, inline, whole=whole), inline, texts)


def _about(file: SqliteFile, spans: Mapping[int, Interval]) -> int:
    """How many rows touch the spans, if they are spread evenly between the first and the last."""
    count = file.about(NVTX)
    if not (worth(count) and (row_id := file.row_id(NVTX))):
        return count
    ends = f"SELECT min(max(start, 0)), max(start) FROM {NVTX} WHERE {row_id} IN (2, {count})"
    ((first, last),) = file.rows(ends)
    if type(first) is not int or type(last) is not int or first >= last:
        return count
    low, high = min(lo for lo, _ in spans.values()), max(hi for _, hi in spans.values())
    return max(0, count * (min(high, last) - max(low, first)) // (last - first))


def _blocks(file: SqliteFile, where: str, inline: dict[str, int]) -> Generator[Some, None, None]:
    """Those named by an id in blocks, then those that have their text as rows. Raises Unfit."""
    has_text = file.has(NVTX, "text")
    row = (*NUMBERS, f"ifnull({file.column(NVTX, 'textId')}, {NAMELESS})")
    with closing(blocks(file, row, NVTX, f"{where} AND text IS NULL" if has_text else where)) as found:
        for start, end, tid, _, name in found:
            if any(NAMELESS < number < FIRST_ID for number in columns.values(name)[:2]):
                raise Unfit("an id is where texts are numbered")
            yield start, end, tid, name
    if has_text:
        yield from _rows(file, f"text IS NOT NULL AND {where}", inline, whole=True)


def _rows(file: SqliteFile, where: str, inline: dict[str, int], *, whole: bool) -> Iterator[Some]:
    """Raises OddValue."""
    text, text_id = (file.column(NVTX, name) for name in ("text", "textId"))
    values: Sequence[str] = ()
    if text != "NULL":
        condition, values = name_condition("text", COMMUNICATION_PREFIX + "%")
        where = f"{where} AND (text IS NULL OR NOT ({condition}))"
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


def _ranges(some: Iterable[Some], inline: Mapping[str, int], texts: Texts) -> dict[int, Ranges]:
    """The ranges by process; ``inline`` is filled while they are read."""
    parts_of: dict[int, list[Some]] = {}
    for start, end, tid, name in some:
        numbers, keys = columns.distinct(tid)
        threads = columns.take(array("q", [thread & THREAD_BITS for (thread,) in keys]), numbers)
        pids = list(dict.fromkeys(thread & ~THREAD_BITS for (thread,) in keys))
        process = {pid: number for number, pid in enumerate(pids)}
        processes = columns.take(array("q", [process[thread & ~THREAD_BITS] for (thread,) in keys]), numbers)
        for pid, parts in zip(pids, split(processes, len(pids), (start, end, threads, name)), strict=True):
            parts_of.setdefault(pid, []).append(parts)
    found = {pid: [joined(column) for column in zip(*parts, strict=True)] for pid, parts in parts_of.items()}
    parts_of.clear()
    used = [columns.values(name) for *_, name in found.values()]
    known = dict(texts(number for names in used for number in names if number >= FIRST_ID))
    known |= {number: text for text, number in inline.items()}
    told = {pid: named_ranges(known, *own) for pid, own in found.items()}
    return {pid: own for pid, own in told.items() if len(own)}
