"""Where is the SQLite export of a report (``.nsys-rep``, ``.qdrep``) or of other files, and who writes it?

An export is written once, into the cache beside its source. An entry is named after the source's name, a hash of its
content and the version of what writes it, so nothing old is read for something new. It appears whole, by renaming, and
under a lock, so that several processes write it once.

An export of the user's own beside the report, of the same name, is taken as it is where both state the same session.
Where they do not say, one that is not older is taken, with a note: a file's time is no proof of what is in it.

A session is identified by when it began, on the clock of its target, in ns. A report's format is not documented, and
this asks for one place of it alone: the offset of the session's clock, a text of digits, which reports of 2021 to 2025
have and which their exports repeat. Where it is not found nothing is known.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import mmap
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.core.errors import TraceError, convert_os_errors
from pytest_nsys.core.model import TraceFacts
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.tools.files import lock_descriptor
from pytest_nsys.tools.nsys_command import InstalledNsys, export_sqlite, find_nsys, is_report, parse_version
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from pytest_nsys.traces.sqlite.file import SqliteFile

CACHE_FOLDER = ".pytest_nsys_cache"
# Characters of a source in the name of its entry: a file name has 255 bytes, which the hash and the version share.
LONGEST_SOURCE_NAME = 150


class Export(NamedTuple):
    """Names the export of a source."""

    path: Path
    note: str | None = None  # where a person should know of the place


class ExportedTrace(NsysSqlite):
    """Reads a source through its export, and goes by the name of the source."""

    def __init__(self, source: Path, export: Export) -> None:
        self._note = export.note
        super().__init__(export.path)
        self.path = source

    def facts(self) -> TraceFacts:
        """Return the facts of the export, with a note of where it lies if that is not beside its source."""
        facts = super().facts()
        return facts if self._note is None else facts._replace(notes=(*facts.notes, self._note))


@dataclass(frozen=True)
class ExportRequest:
    """Describes a SQLite export to find or write: of which report or folder, with which hash of its content, and by
    which version of the program that writes it.
    """

    source: Path
    digest: str  # hash of the source's content
    version: str | None  # of the program that writes the export; None: of any version

    @property
    def folder_beside(self) -> Path:
        """The cache folder beside the source."""
        return self.source.parent / CACHE_FOLDER

    @property
    def cache_folders(self) -> tuple[Path, Path]:
        """The folders in which the export may lie, the preferred one first."""
        return self.folder_beside, get_user_cache()

    @property
    def name_prefix(self) -> str:
        """The beginning of the entry's name, up to the version."""
        return f"{self.source.name[:LONGEST_SOURCE_NAME]}-{self.digest[:16]}-"

    def find_entry(self, folder: Path) -> Path | None:
        """Return the entry in a folder, None for none; the newest one where any version will do."""
        if self.version is not None:
            path = folder / f"{self.name_prefix}{self.version}.sqlite"
            return path if path.is_file() else None
        entries = _list_entries(folder, self.name_prefix)
        return max(entries, key=lambda path: parse_version(path.stem.removeprefix(self.name_prefix)), default=None)

    def make_export(self, path: Path) -> Export:
        """Return the export at a path, with a note where it is not beside its source."""
        if path.parent == self.folder_beside:
            return Export(path)
        return Export(path, f"{self.source}: its export lies at {path}, not beside it")


def find_export(request: ExportRequest) -> Export | None:
    """Return the export that is there already, None where there is none."""
    entries = (request.find_entry(folder) for folder in request.cache_folders)
    return next((request.make_export(path) for path in entries if path is not None), None)


def write_export(request: ExportRequest, write: Callable[[Path], object]) -> Export:
    """Return the export, written by ``write`` to the path that it is given unless another process does so first.

    Raises TraceError where there is no place for it, and what ``write`` raises; then nothing of it is left.
    """
    with _lock_folder(request) as (folder, is_locked):
        entry = request.find_entry(folder)  # by somebody who held the lock before
        if entry is None:
            entry = folder / f"{request.name_prefix}{request.version}.sqlite"
            if is_locked:  # left by a process that was killed: its lock is free
                for path in _list_entries(folder, f".{request.name_prefix}", ".partial"):
                    path.unlink(missing_ok=True)
            with publish_when_complete(entry, folder / f".{request.name_prefix}{os.getpid()}.partial") as partial:
                write(partial)
            if is_locked and folder == request.folder_beside:
                _delete_older(request, folder)
        return request.make_export(entry)


@contextlib.contextmanager
def publish_when_complete(target: Path, partial: Path) -> Iterator[Path]:
    """Yield a path to write to that becomes ``target`` at the end, or nothing where that fails. Raises TraceError."""
    try:
        yield partial
        with convert_os_errors(TraceError, f"{target}: cannot be written"):
            partial.replace(target)
    finally:
        for path in (partial, partial.with_name(partial.name + "-journal")):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def get_user_cache() -> Path:
    """Return the folder of exports whose source stands in a folder that cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "pytest-nsys"


def _list_entries(folder: Path, prefix: str, suffix: str = ".sqlite") -> list[Path]:
    """Return the files of a folder whose names begin and end so; none where the folder cannot be read."""
    with contextlib.suppress(OSError):
        return [path for path in folder.iterdir() if path.name.startswith(prefix) and path.name.endswith(suffix)]
    return []


@contextlib.contextmanager
def _lock_folder(request: ExportRequest) -> Iterator[tuple[Path, bool]]:
    """Yield the first folder that can be written, and whether its lock is held. Raises TraceError where none can be
    written.
    """
    failures = []
    for folder in request.cache_folders:
        try:
            file = _make_folder(folder).joinpath(f".{request.name_prefix}lock").open("a")
        except OSError as error:
            failures.append(f"{folder}: {error.strerror}")
            continue
        with file:
            yield folder, lock_descriptor(file.fileno(), lambda: _print_waiting(request.source))
        return
    raise TraceError(f"{request.source}: there is no place for its export: {'; '.join(failures)}")


def _make_folder(folder: Path) -> Path:
    """Make a cache folder that git ignores, and return it. Raises OSError where it cannot be made."""
    if not folder.exists() and folder.parent.exists() and not folder.parent.stat().st_mode & 0o222:
        raise PermissionError(errno.EACCES, "the folder is read-only", str(folder))  # which would not stop root
    folder.mkdir(parents=True, exist_ok=True)
    gitignore = folder / ".gitignore"
    if not gitignore.exists():
        gitignore.write_text("# Exports of reports, written by pytest-nsys; may be deleted.\n*\n", encoding="utf-8")
    return folder


def _print_waiting(source: Path) -> None:
    if sys.stderr.isatty():
        print(f"waiting for another process that exports {sanitize_line(source.name)}", file=sys.stderr)


def _delete_older(request: ExportRequest, folder: Path) -> None:
    """Delete the exports of what the source held before it was replaced."""
    name = re.escape(request.source.name[:LONGEST_SOURCE_NAME])
    older_entry = re.compile(rf"\.?{name}-[0-9a-f]{{16}}-(lock|[0-9.]+\.sqlite)")
    for path in folder.iterdir():
        if older_entry.fullmatch(path.name) and not path.name.removeprefix(".").startswith(request.name_prefix):
            with contextlib.suppress(OSError):
                path.unlink()


USER_EXPORT_SUFFIXES = (".sqlite", ".sqlite3")


def raise_raw_stream_error(path: Path) -> NsysSqlite:
    """Raise TraceError for a ``.qdstrm``, which has no reader."""
    raise TraceError(f"{path}: {RAW_STREAM_ADVICE.format(sanitize_line(path.name))}")


RAW_STREAM_ADVICE = (
    "is raw data that nsys did not turn into a report: run `QdstrmImporter -i {}` of the Nsight Systems that "
    "captured it (in its folder host-linux-x64), and give the report"
)


def find_or_write_export(report: Path) -> Export:
    """Return the SQLite export of a report, from beside it, from a cache, or written now. Raises TraceError."""
    user_export = find_user_export(report)
    if user_export is not None:
        return user_export
    nsys = find_nsys()
    request = ExportRequest(report, _hash_report(report), None if nsys is None else nsys.version)
    cached_export = find_export(request)
    if cached_export is not None:
        return cached_export
    if nsys is None:
        raise TraceError(f"{report}: {_describe_missing_nsys(report)}")
    return write_export(request, functools.partial(_run_export, nsys, report))


def _run_export(nsys: InstalledNsys, report: Path, target: Path) -> None:
    with _show_progress(report, nsys) as progress:
        export_sqlite(nsys, report, target, progress)


def find_user_export(report: Path) -> Export | None:
    """Return the user's own export beside a report, of the same name: of its session, or not known to be of another.

    None where there is none. Raises TraceError for a report that cannot be read, or that is empty.
    """
    with convert_os_errors(TraceError, f"{report}: cannot be read"):
        status = report.stat()
    if status.st_size == 0:
        raise TraceError(f"{report}: is empty (0 bytes): the capture, or its copy, was not finished")
    for suffix in USER_EXPORT_SUFFIXES:
        path = report.with_suffix(suffix)
        is_of_report = is_export_of(path, report) if path.is_file() else False
        if is_of_report:
            return Export(path)
        if is_of_report is None and path.stat().st_mtime_ns >= status.st_mtime_ns:
            note = f"{report}: the rows are those of {path.name}, which does not say that it is its export"
            return Export(path, note)
    return None


def export_report(report: Path, target: Path) -> InstalledNsys:
    """Export a report to a file of the caller's choice, and return the nsys that did it. Raises TraceError.

    Only a whole export replaces the file.
    """
    nsys = find_nsys()
    if nsys is None:
        raise TraceError(f"{report}: {_describe_missing_nsys(report)}")
    partial = target.with_name(f".{target.name[:LONGEST_SOURCE_NAME]}.{os.getpid()}.partial")
    with publish_when_complete(target, partial):
        _run_export(nsys, report, partial)
    return nsys


def _hash_report(report: Path) -> str:
    with convert_os_errors(TraceError, f"{report}: cannot be read"), report.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe_missing_nsys(report: Path) -> str:
    if not is_report(report):
        return "is not an Nsight Systems report"
    target = report.with_suffix(".sqlite").name
    unused_exports = "".join(
        _describe_unused_export(report.with_suffix(suffix), report) for suffix in USER_EXPORT_SUFFIXES
    )
    return sanitize_line(
        f"is a report, and nsys, which must export it, is not on PATH{unused_exports}: install Nsight Systems, or run "
        f"`nsys export --type=sqlite -o {target} {report.name}` elsewhere and give that",
        1000,
    )


def _describe_unused_export(export: Path, report: Path) -> str:
    """Describe why a file beside a report is not read in its place; empty where there is no such file."""
    if not export.is_file():
        return ""
    is_of_other = is_export_of(export, report) is False
    problem = "the export of another capture" if is_of_other else "older than the report"
    return f"; {export.name} beside it is {problem}, so it is not read"


class _ProgressLine:
    """Prints how far the export is, over and over on one line."""

    def __init__(self, label: str) -> None:
        self.label = label
        self(0)

    def __call__(self, percent: int) -> None:
        print(f"\r{self.label}: {percent}%", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _show_progress(report: Path, nsys: InstalledNsys) -> Iterator[_ProgressLine | None]:
    """Yield what prints the progress of an export on a terminal; None where standard error is none."""
    if not sys.stderr.isatty():
        yield None
        return
    size = report.stat().st_size
    progress = _ProgressLine(f"exporting {sanitize_line(report.name)} ({size / 1e6:.1f} MB) with nsys {nsys.version}")
    try:
        yield progress
    finally:
        print(file=sys.stderr)


_CLOCK_OFFSET = re.compile(rb'"\x00\*[\x02-\x15]-([0-9]{1,19})2\x06Offset')
# Bytes at either end of a report that are searched: the offset stands among the strings, before or behind the events.
SEARCHED_BYTES = 64 * 1024 * 1024


def is_export_of(export: Path, report: Path) -> bool | None:
    """Return whether both state the same session; None where one of them states none, or the export cannot be read."""
    export_starts, report_starts = _read_export_starts(export), _read_report_starts(report)
    return bool(export_starts & report_starts) if export_starts and report_starts else None


def _read_report_starts(path: Path) -> frozenset[int]:
    """Return when the sessions of a report began, in ns on the clock of its target; empty where it does not say."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            ends = (content[:SEARCHED_BYTES], content[max(SEARCHED_BYTES, len(content) - SEARCHED_BYTES) :])
    except (OSError, ValueError):  # its reader says why
        return frozenset()
    return frozenset(int(match[1]) for end in ends for match in _CLOCK_OFFSET.finditer(end)) - {0}


def _read_export_starts(path: Path) -> frozenset[int]:
    """Return when the sessions of an export began, in ns on the clock of its target; empty where it does not say."""
    with contextlib.suppress(TraceError), contextlib.closing(SqliteFile(path)) as file:  # its reader says why
        if file.has_columns("ANALYSIS_DETAILS", "startTime"):
            rows = file.fetch_rows("SELECT startTime FROM ANALYSIS_DETAILS")
            return frozenset(value for (value,) in rows if type(value) is int) - {0}
    return frozenset()
