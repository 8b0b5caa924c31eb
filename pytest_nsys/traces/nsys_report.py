"""Reading a report (``.nsys-rep``, ``.qdrep``): where is its SQLite export, and who writes it?

nsys exports a report once, into the cache of ``export_cache.py``. An export of the user's own beside the report, of
the same name and not older, is taken as it is.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pytest_nsys.errors import TraceError
from pytest_nsys.model import printable
from pytest_nsys.nsys_command import Nsys, export_sqlite, find_nsys, is_report
from pytest_nsys.traces.export_cache import (
    LONGEST_NAME,
    Export,
    ExportedTrace,
    Wanted,
    find_export,
    whole,
    write_export,
)
from pytest_nsys.traces.nsys_sqlite import NsysSqlite

OWN_EXPORTS = (".sqlite", ".sqlite3")


class NsysReport(ExportedTrace):
    """A report, read through its export; written first where there is none."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, exported(path))


def raw_stream(path: Path) -> NsysSqlite:
    """The reader of a ``.qdstrm``: there is none. Raises TraceError."""
    raise TraceError(f"{path}: {WHY_RAW.format(printable(path.name))}")


WHY_RAW = (
    "is raw data that nsys could not turn into a report: run `QdstrmImporter -i {}` of the Nsight Systems that "
    "captured it (in its folder host-linux-x64), and give the report"
)


def exported(report: Path) -> Export:
    """The SQLite export of a report, from beside it, from a cache, or written now. Raises TraceError."""
    own = own_export(report)
    if own is not None:
        return Export(own)
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


def own_export(report: Path) -> Path | None:
    """The user's own export beside a report: of the same name, and not older than the report.

    Raises TraceError for a report that cannot be read, or that is empty.
    """
    try:
        status = report.stat()
    except OSError as error:
        raise TraceError(f"{report}: cannot be read: {error.strerror}") from error
    if status.st_size == 0:
        raise TraceError(f"{report}: is empty (0 bytes): the capture, or its copy, was not finished")
    for suffix in OWN_EXPORTS:
        path = report.with_suffix(suffix)
        if path.is_file() and path.stat().st_mtime_ns >= status.st_mtime_ns:
            return path
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
    try:
        with report.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TraceError(f"{report}: cannot be read: {error.strerror}") from error


def _why_not_without(report: Path) -> str:
    if not is_report(report):
        return "is no Nsight Systems report"
    target = report.with_suffix(".sqlite").name
    older = [report.with_suffix(s).name for s in OWN_EXPORTS if report.with_suffix(s).is_file()]
    beside = f"; {older[0]} beside it is older than the report, so it is not read" if older else ""
    return printable(
        f"is a report, and nsys, which must export it, is not on PATH{beside}: install Nsight Systems, or run "
        f"`nsys export --type=sqlite -o {target} {report.name}` elsewhere and give that",
        1000,
    )


class _Told:
    """Writes how far the export is, over and over on one line."""

    def __init__(self, what: str) -> None:
        self.what = what
        self(0)

    def __call__(self, percent: int) -> None:
        print(f"\r{self.what}: {percent} %", end="", file=sys.stderr, flush=True)


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
