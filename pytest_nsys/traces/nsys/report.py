"""Reading a report (``.nsys-rep``, ``.qdrep``): where is its SQLite export, and who writes it?

nsys exports a report once, into the cache of ``export_cache.py``. An export of the user's own beside the report, of
the same name, is taken as it is where both state the same session. Where they do not say, one that is not older is
taken, with a note: a file's time is no proof of what is in it.

The session is told by when it began, on the clock of its target, in ns. A report's format is not documented, and this
asks for one place of it alone: the offset of the session's clock, a text of digits, which reports of 2021 to 2025 have
and which their exports repeat. Where it is not found nothing is known.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import mmap
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pytest_nsys.core.errors import TraceError, one_line
from pytest_nsys.core.words import printable
from pytest_nsys.tools.nsys_command import Nsys, export_sqlite, find_nsys, is_report
from pytest_nsys.traces.nsys.export_cache import (
    LONGEST_NAME,
    Export,
    Wanted,
    find_export,
    whole,
    write_export,
)
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from pytest_nsys.traces.sqlite_file import SqliteFile

OWN_EXPORTS = (".sqlite", ".sqlite3")


def raw_stream(path: Path) -> NsysSqlite:
    """The reader of a ``.qdstrm``: there is none. Raises TraceError."""
    raise TraceError(f"{path}: {WHY_RAW.format(printable(path.name))}")


WHY_RAW = (
    "is raw data that nsys did not turn into a report: run `QdstrmImporter -i {}` of the Nsight Systems that "
    "captured it (in its folder host-linux-x64), and give the report"
)


def exported(report: Path) -> Export:
    """The SQLite export of a report, from beside it, from a cache, or written now. Raises TraceError."""
    own = own_export(report)
    if own is not None:
        return own
    nsys = find_nsys()
    wanted = Wanted(report, _digest(report), None if nsys is None else nsys.version)
    known = find_export(wanted)
    if known is not None:
        return known
    if nsys is None:
        raise TraceError(f"{report}: {_why_not_without(report)}")
    return write_export(wanted, functools.partial(_write, nsys, report))


def _write(nsys: Nsys, report: Path, target: Path) -> None:
    with _progress(report, nsys) as told:
        export_sqlite(nsys, report, target, told)


def own_export(report: Path) -> Export | None:
    """The user's own export beside a report, of the same name: of its session, or not known to be of another.

    Raises TraceError for a report that cannot be read, or that is empty.
    """
    with one_line(TraceError, f"{report}: cannot be read"):
        status = report.stat()
    if status.st_size == 0:
        raise TraceError(f"{report}: is empty (0 bytes): the capture, or its copy, was not finished")
    for suffix in OWN_EXPORTS:
        path = report.with_suffix(suffix)
        own = is_export_of(path, report) if path.is_file() else False
        if own:
            return Export(path)
        if own is None and path.stat().st_mtime_ns >= status.st_mtime_ns:
            note = f"{report}: the rows are those of {path.name}, which does not say that it is its export"
            return Export(path, note)
    return None


def export_to(report: Path, target: Path) -> Nsys:
    """Export a report to a file of the caller's choice, which is replaced only by a whole export. Raises TraceError."""
    nsys = find_nsys()
    if nsys is None:
        raise TraceError(f"{report}: {_why_not_without(report)}")
    partial = target.with_name(f".{target.name[:LONGEST_NAME]}.{os.getpid()}.partial")
    with whole(target, partial):
        _write(nsys, report, partial)
    return nsys


def _digest(report: Path) -> str:
    with one_line(TraceError, f"{report}: cannot be read"), report.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _why_not_without(report: Path) -> str:
    if not is_report(report):
        return "is not an Nsight Systems report"
    target = report.with_suffix(".sqlite").name
    beside = "".join(_why_not(report.with_suffix(suffix), report) for suffix in OWN_EXPORTS)
    return printable(
        f"is a report, and nsys, which must export it, is not on PATH{beside}: install Nsight Systems, or run "
        f"`nsys export --type=sqlite -o {target} {report.name}` elsewhere and give that",
        1000,
    )


def _why_not(export: Path, report: Path) -> str:
    """Why a file beside a report is not read in its place."""
    if not export.is_file():
        return ""
    other = is_export_of(export, report) is False
    why = "the export of another capture" if other else "older than the report"
    return f"; {export.name} beside it is {why}, so it is not read"


class _Told:
    """Writes how far the export is, over and over on one line."""

    def __init__(self, what: str) -> None:
        self.what = what
        self(0)

    def __call__(self, percent: int) -> None:
        print(f"\r{self.what}: {percent}%", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _progress(report: Path, nsys: Nsys) -> Iterator[_Told | None]:
    """Shown on a terminal alone."""
    if not sys.stderr.isatty():
        yield None
        return
    size = report.stat().st_size
    told = _Told(f"exporting {printable(report.name)} ({size / 1e6:.1f} MB) with nsys {nsys.version}")
    try:
        yield told
    finally:
        print(file=sys.stderr)


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
