"""Where in a large table stand the rows of a span of time? SQLite has no index of an export that would say so.

Profilers write what happened together mostly together, but in no order to rely on. So one pass notes of each zone, some
thousand rows that stand side by side, from when to when they are: it costs half as much again as any other pass, and
each later question reads the zones that may hold an answer, which are few. A value that is no number is in no order
with any: its zone is always read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.model import Interval
from pytest_nsys.traces.sqlite.conditions import MIN_INT64
from pytest_nsys.traces.sqlite.file import SqliteFile

# So many rows of a zone are skipped at once, and are little to read in vain.
ZONE_ROWS = 8192
# A smaller table is passed as quickly as zones are chosen.
FEWEST_ZONED_ROWS = 100_000

ZoneBound = int | float | None


class Zone(NamedTuple):
    """Describes the rows between two ids: from when to when they are, and the length of the shortest, in ns.

    A bound is None where one of the values is no number.
    """

    row_ids: Interval
    earliest: ZoneBound
    latest: ZoneBound
    shortest: ZoneBound


def find_starting_rows(file: SqliteFile, table: str, span: Interval) -> Sequence[Interval] | None:
    """Find the ranges of row ids of all rows that start in a span; None where they may be anywhere."""
    return _find_row_id_ranges(file, table, "start", lambda zone: _may_touch(zone, span))


def find_touching_rows(file: SqliteFile, table: str, span: Interval) -> Sequence[Interval] | None:
    """Find the ranges of row ids of all rows that touch a span; None where they may be anywhere."""
    return _find_row_id_ranges(file, table, "end", lambda zone: _may_touch(zone, span))


def find_impossible_rows(file: SqliteFile, table: str) -> Sequence[Interval] | None:
    """Find the ranges of row ids of all rows that end before they start, or were not timed; None where they may be
    anywhere.
    """
    return _find_row_id_ranges(file, table, "end", lambda zone: None in zone[1:] or (zone.shortest or 0) <= 0)


def _may_touch(zone: Zone, span: Interval) -> bool:
    return (zone.earliest is None or zone.earliest <= span[1]) and (zone.latest is None or zone.latest >= span[0])


def _find_row_id_ranges(
    file: SqliteFile, table: str, latest_column: str, may_match: Callable[[Zone], bool]
) -> Sequence[Interval] | None:
    # No row is as small as a byte: beyond that the ids have gaps, and zones would be counted that hold nothing.
    if (
        not FEWEST_ZONED_ROWS <= file.estimate_row_count(table) <= file.size_bytes
        or table in file.temporary_views
        or not file.find_row_id_name(table)
    ):
        return None
    zones = _read_zones(file, table, latest_column)
    matching_ranges = [zone.row_ids for zone in zones if may_match(zone)]
    # Where most zones may match, one pass over the whole table is quicker than many ranges.
    if 2 * len(matching_ranges) > len(zones):
        return None
    # Zones begin at row id 1: rows with an id below it are read in any case.
    joined_ranges: list[Interval] = [(MIN_INT64, 0)]
    for first, last in matching_ranges:
        joined_ranges.append((joined_ranges.pop()[0] if joined_ranges[-1][1] + 1 == first else first, last))
    return joined_ranges


@memoize_method
def _read_zones(file: SqliteFile, table: str, latest_column: str) -> Sequence[Zone]:
    row_id = file.find_row_id_name(table)
    bound_columns = f"min(ifnull(start, '')), max(ifnull(start, '')), max(ifnull({latest_column}, '')), "
    bound_columns += "min(end - start)" if latest_column == "end" else "1"

    def read_zones(connection: sqlite3.Connection, low: int, high: int) -> list[Zone]:
        sql = f"SELECT {bound_columns} FROM {table} WHERE {row_id} BETWEEN ? AND ?"
        read_so_far = []
        for first in range(max(low, 1), min(high, file.estimate_row_count(table)) + 1, ZONE_ROWS):
            rows = first, min(first + ZONE_ROWS - 1, high)
            *times, shortest = connection.execute(sql, rows).fetchone()
            # SQLite orders texts above all numbers: the maximum shows that one of the values is no number.
            earliest, latest_start, latest_time = (bound if isinstance(bound, int | float) else None for bound in times)
            read_so_far.append(Zone(rows, None if latest_start is None else earliest, latest_time, shortest))
        return read_so_far

    return [zone for zones in file.read_halves(table, read_zones) for zone in zones]
