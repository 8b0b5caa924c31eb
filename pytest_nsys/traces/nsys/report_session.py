"""Is an export that of a report? Both state when the session began, on the clock of its target, in ns.

A report's format is not documented, and this asks for one place of it alone: the offset of the session's clock, a text
of digits, which reports of 2021 to 2025 have and which their exports repeat. Where it is not found nothing is known.
"""

from __future__ import annotations

import contextlib
import mmap
import re
from pathlib import Path

from pytest_nsys.core.errors import TraceError
from pytest_nsys.traces.sqlite_file import SqliteFile

_OFFSET = re.compile(rb'"\x00\*[\x02-\x15]-([0-9]{1,19})2\x06Offset')
LOOKED_AT = 64 * 1024 * 1024
"""Bytes at either end of a report: it stands among the strings, before or behind the events."""


def is_export_of(export: Path, report: Path) -> bool | None:
    """Whether both state the same session; None where one of them states none, or the export cannot be read."""
    stated, begun = _of_export(export), _of_report(report)
    return bool(stated & begun) if stated and begun else None


def _of_report(path: Path) -> frozenset[int]:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            ends = (content[:LOOKED_AT], content[max(LOOKED_AT, len(content) - LOOKED_AT) :])
    except (OSError, ValueError):  # its reader says why
        return frozenset()
    return frozenset(int(found[1]) for end in ends for found in _OFFSET.finditer(end)) - {0}


def _of_export(path: Path) -> frozenset[int]:
    with contextlib.suppress(TraceError), contextlib.closing(SqliteFile(path)) as file:  # its reader says why
        if file.has("ANALYSIS_DETAILS", "startTime"):
            found = file.rows("SELECT startTime FROM ANALYSIS_DETAILS")
            return frozenset(value for (value,) in found if type(value) is int) - {0}
    return frozenset()
