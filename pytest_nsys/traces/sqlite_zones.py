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

from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import Interval
from pytest_nsys.traces.sqlite_conditions import FIRST
from pytest_nsys.traces.sqlite_file import SqliteFile

# So many rows of a zone are skipped at once, and are little to read in vain.
ZONE_ROWS = 8192
# A smaller table is passed as quickly as zones are chosen.
FEWEST_ROWS = 100_000

Number = int | float | None


class Zone(NamedTuple):
    """Describes the rows between two ids: from when to when they are, and the length of the shortest, in ns.

    A bound is None where one of the values is no number.
    """

    rows: Interval
    earliest: Number
    latest: Number
    shortest: Number


def find_starting(file: SqliteFile, table: str, span: Interval) -> Sequence[Interval] | None:
    """Find the ranges of row ids of all rows that start in a span; None where they may be anywhere."""
    return _stretches(file, table, "start", lambda zone: _touches(zone, span))


def find_touching(file: SqliteFile, table: str, span: Interval) -> Sequence[Interval] | None:
    """Find the ranges of row ids of all rows that touch a span; None where they may be anywhere."""
    return _stretches(file, table, "end", lambda zone: _touches(zone, span))


def find_impossible(file: SqliteFile, table: str) -> Sequence[Interval] | None:
    """Find the ranges of row ids of all rows that end before they start, or were not timed; None where they may be
    anywhere.
    """
    return _stretches(file, table, "end", lambda zone: None in zone[1:] or (zone.shortest or 0) <= 0)


def _touches(zone: Zone, span: Interval) -> bool:
    return (zone.earliest is None or zone.earliest <= span[1]) and (zone.latest is None or zone.latest >= span[0])


def _stretches(file: SqliteFile, table: str, latest: str, wanted: Callable[[Zone], bool]) -> Sequence[Interval] | None:
    # No row is as small as a byte: beyond that the ids have gaps, and zones would be counted that hold nothing.
    if not FEWEST_ROWS <= file.about(table) <= file.size_bytes or table in file.defined or not file.row_id(table):
        return None
    zones = _zones(file, table, latest)
    matching_ranges = [zone.rows for zone in zones if wanted(zone)]
    # Where most zones may match, one pass over the whole table is quicker than many ranges.
    if 2 * len(matching_ranges) > len(zones):
        return None
    # Zones begin at row id 1: rows with an id below it are read in any case.
    joined_ranges: list[Interval] = [(FIRST, 0)]
    for first, last in matching_ranges:
        joined_ranges.append((joined_ranges.pop()[0] if joined_ranges[-1][1] + 1 == first else first, last))
    return joined_ranges


@kept
def _zones(file: SqliteFile, table: str, latest: str) -> Sequence[Zone]:
    row_id = file.row_id(table)
    bound_columns = f"min(ifnull(start, '')), max(ifnull(start, '')), max(ifnull({latest}, '')), "
    bound_columns += "min(end - start)" if latest == "end" else "1"

    def read_zones(connection: sqlite3.Connection, low: int, high: int) -> list[Zone]:
        sql = f"SELECT {bound_columns} FROM {table} WHERE {row_id} BETWEEN ? AND ?"
        read_so_far = []
        for first in range(max(low, 1), min(high, file.about(table)) + 1, ZONE_ROWS):
            rows = first, min(first + ZONE_ROWS - 1, high)
            *times, shortest = connection.execute(sql, rows).fetchone()
            # SQLite orders texts above all numbers: the maximum shows that one of the values is no number.
            earliest, latest_start, latest_time = (bound if isinstance(bound, int | float) else None for bound in times)
            read_so_far.append(Zone(rows, None if latest_start is None else earliest, latest_time, shortest))
        return read_so_far

    return [zone for zones in file.halves(table, read_zones) for zone in zones]
