"""What a damaged export really holds, read row by row with no regard for speed: the oracle of its figures.

A row is damaged where a value has a type that it cannot have. What is judged of a file with such a row may be green
only where every figure is that of the undamaged file; of any other file the figures must be those found here.
"""

import contextlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from pytest_nsys.core.model import Value

RANGES = (59, 60, 70, 71)
THREAD_BITS = 0xFFFFFF
KERNEL, NVTX, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"
WHOLE = "start end deviceId contextId streamId globalPid shortName demangledName"


class Damaged(Exception):
    """A value that cannot be, or a file that cannot be read."""


Totals = dict[int, tuple[int, int]]
"""By process: kernels in its window, and the sum of their lengths."""


def totals(path: Path) -> Totals:
    """Those of the median anchor, kernels contained. Raises Damaged."""
    try:
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.text_factory = lambda raw: raw.decode("utf-8", "replace")
            of_rocpd = database.execute("SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_string%'").fetchone()
            return _rocpd_totals(database, of_rocpd[0][len("rocpd_string") :]) if of_rocpd else _totals(database)
    except (sqlite3.Error, ValueError) as error:
        raise Damaged(str(error)) from error


def _rows(database: sqlite3.Connection, table: str, names: str) -> Iterator[tuple[Any, ...]]:
    known = {str(row[1]).lower() for row in database.execute(f'PRAGMA table_info("{table}")')}
    if not known:
        return iter(())
    columns = (name if name.lower() in known else "NULL" for name in names.split())
    return iter(database.execute(f'SELECT {", ".join(columns)} FROM "{table}"').fetchall())


def _whole(*values: object) -> None:
    if any(type(value) is not int for value in values):
        raise Damaged(f"{values} are no whole numbers")


def _totals(database: sqlite3.Connection) -> Totals:
    names: dict[int, str] = {}
    for number, text in _rows(database, "StringIds", "id value"):
        _whole(number)
        if not isinstance(text, str):
            raise Damaged(f"string {number} is no text")
        names[number] = text
    anchors: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for start, end, kind, text, number, tid in _rows(database, NVTX, "start end eventType text textId globalTid"):
        _whole(kind)
        if kind not in RANGES:
            continue
        _whole(start, tid, start if end is None else end, 0 if number is None else number)
        if text is not None and not isinstance(text, str):
            raise Damaged("the name of a range is no text")
        name = text if text is not None else names.get(number, "")
        if start >= 0 and name.startswith("forward chunk") and "backward chunk" in name[13:]:
            anchors[tid & ~THREAD_BITS].append((start, 2**63 if end is None else end))
    for start, tid, number, name in _rows(database, RUNTIME, "start globalTid correlationId nameId"):
        _whole(start, tid, 0 if number is None else number, name)
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    windows = {pid: sorted(own)[len(own) // 2] for pid, own in anchors.items()}
    for *values, correlation in _rows(database, KERNEL, WHOLE + " correlationId"):
        _whole(*values, 0 if correlation is None else correlation)
        start, end, pid, name = values[0], values[1], values[5], values[6]
        if end < start or name not in names:
            raise Damaged("a kernel ends before it starts, or has no name")
        low, high = windows.get(pid, (0, -1))
        if low <= start and end <= high:
            found[pid].append((start, end))
    return {pid: (len(own), sum(end - start for start, end in own)) for pid, own in found.items()}


def _rocpd_totals(database: sqlite3.Connection, uuid: str) -> Totals:
    """Rows are looked up by their ids, too: where pages are mixed, that finds others than a pass over the table."""
    if (said := database.execute("PRAGMA integrity_check(1)").fetchone()) != ("ok",):
        raise Damaged(str(said))
    events: dict[int, tuple[Any, ...]] = {}
    for number, category, stack, parent, more in _rows(
        database, f"rocpd_event{uuid}", "id category_id stack_id parent_stack_id extdata"
    ):
        _whole(number, *(0 if value is None else value for value in (category, stack, parent)))
        if not isinstance(more, str):
            raise Damaged("what an event keeps is no text")
        kept = json.loads(more)
        events[number] = (category, stack, kept.get("message") if isinstance(kept, dict) else None)
    strings = dict(_rows(database, f"rocpd_string{uuid}", "id string"))
    symbols = dict(_rows(database, f"rocpd_info_kernel_symbol{uuid}", "id display_name"))
    for number, text in (*strings.items(), *symbols.items()):
        _whole(number)
        if not isinstance(text, str):
            raise Damaged("a name is no text")
    anchors: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for start, end, pid, tid, name, event in _rows(
        database, f"rocpd_region{uuid}", "start end pid tid name_id event_id"
    ):
        _whole(start, end, pid, tid, name, 0 if event is None else event)
        category, _, message = events.get(event, (None, None, None))
        if end < start:
            raise Damaged("a region ends before it starts")
        if "MARKER" in strings.get(category, "") and (message or "").startswith("forward chunk"):
            anchors[pid].append((start, end))
    windows = {pid: sorted(own)[len(own) // 2] for pid, own in anchors.items()}
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    columns = "start end pid agent_id stream_id kernel_id event_id"
    for *values, event in _rows(database, f"rocpd_kernel_dispatch{uuid}", columns):
        _whole(*values, 0 if event is None else event)
        start, end, pid, name = values[0], values[1], values[2], values[5]
        if end < start or (name not in symbols and name != 0):
            raise Damaged("a kernel ends before it starts, or has no name")
        low, high = windows.get(pid, (0, -1))
        if low <= start and end <= high:
            found[pid].append((start, end))
    return {pid: (len(own), sum(end - start for start, end in own)) for pid, own in found.items()}


SCALES = {"%": Fraction(1, 100), "GiB": Fraction(1), "ms": Fraction(10**6), "W": Fraction(1)}
"""Of the units of the undamaged measurements, in the unit that each is judged in."""


def unlike_measurements(path: Path, green: Mapping[str, Mapping[Any, Value]]) -> str:
    """In what the values that were judged, by metric, are not those of a file of measurements; empty for nothing."""
    try:
        entries = json.loads(path.read_bytes(), parse_float=Fraction, parse_constant=_no_number)
        held: dict[str, list[Fraction]] = {name: [] for name in green}
        for entry in entries:
            unit, value = entry.get("unit"), entry["value"]
            if unit not in SCALES or isinstance(value, bool | str):
                return "" if isinstance(unit, str) else f"{entry} is green"
            held.setdefault(f"measured {'_'.join(entry['metric'].split())}", []).append(SCALES[unit] * value)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        return f"the file is damaged: {error!r}"
    wrong = {name: (held[name], rows) for name, rows in green.items() if sorted(held[name]) != sorted(rows.values())}
    return str(wrong) if wrong else ""


def _no_number(text: str) -> object:
    raise ValueError(text)
