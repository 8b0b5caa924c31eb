"""Where is the SQLite export of a report (``.nsys-rep``, ``.qdrep``) or of other files, and who writes it?

An export is written once, into the cache beside its source. An entry is named after the source's name, a hash of its
content and the version of what writes it, so nothing old is read for something new. It appears whole, by renaming, and
under a lock, so that several processes write it once.

An export of the user's own beside the report, of the same name, is taken as it is where both state the same session.
Where they do not say, one that is not older is taken, with a note: a file's time is no proof of what is in it.

The session is told by when it began, on the clock of its target, in ns. A report's format is not documented, and this
asks for one place of it alone: the offset of the session's clock, a text of digits, which reports of 2021 to 2025 have
and which their exports repeat. Where it is not found nothing is known.
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

from pytest_nsys.core.errors import TraceError, one_line
from pytest_nsys.core.model import TraceFacts
from pytest_nsys.core.words import printable
from pytest_nsys.tools.files import lock
from pytest_nsys.tools.nsys_command import Nsys, export_sqlite, find_nsys, is_report, version_order
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from pytest_nsys.traces.sqlite_file import SqliteFile

CACHE = ".pytest_nsys_cache"
LONGEST_NAME = 150
"""Of a source in the name of its entry: a file name has 255 bytes."""


class Export(NamedTuple):
    """The export of a source; ``note`` where a person should know of the place."""

    path: Path
    note: str | None = None


class ExportedTrace(NsysSqlite):
    """A source that is read through its export, and goes by its own name."""

    def __init__(self, source: Path, export: Export) -> None:
        self._note = export.note
        super().__init__(export.path)
        self.path = source

    def facts(self) -> TraceFacts:
        """As the export has them, and where the export lies if that is not beside its source."""
        found = super().facts()
        return found if self._note is None else found._replace(notes=(*found.notes, self._note))


@dataclass(frozen=True)
class Wanted:
    """The export of ``source``, whose content has the hash ``digest``; ``version`` None: of any version."""

    source: Path
    digest: str
    version: str | None

    @property
    def beside(self) -> Path:
        return self.source.parent / CACHE

    @property
    def places(self) -> tuple[Path, Path]:
        """Where it may lie, the first one preferred."""
        return self.beside, user_cache()

    @property
    def start(self) -> str:
        """Of the entry's name, up to the version."""
        return f"{self.source.name[:LONGEST_NAME]}-{self.digest[:16]}-"

    def known(self, folder: Path) -> Path | None:
        """The entry in a folder; the newest one where any version is wanted."""
        if self.version is not None:
            path = folder / f"{self.start}{self.version}.sqlite"
            return path if path.is_file() else None
        found = _starting(folder, self.start)
        return max(found, key=lambda path: version_order(path.stem.removeprefix(self.start)), default=None)

    def told(self, export: Path) -> Export:
        """The export, with a note where it is not beside its source."""
        if export.parent == self.beside:
            return Export(export)
        return Export(export, f"{self.source}: its export lies at {export}, not beside it")


def find_export(wanted: Wanted) -> Export | None:
    """The export that is there already, None where there is none."""
    found = (wanted.known(folder) for folder in wanted.places)
    return next((wanted.told(path) for path in found if path is not None), None)


def write_export(wanted: Wanted, write: Callable[[Path], object]) -> Export:
    """The export, written by ``write`` to the path that it is given unless another process does so first.

    Raises TraceError where there is no place for it, and what ``write`` raises; then nothing of it is left.
    """
    with _locked_folder(wanted) as (folder, held):
        known = wanted.known(folder)  # by somebody who held the lock before
        if known is None:
            known = folder / f"{wanted.start}{wanted.version}.sqlite"
            if held:  # left by a process that was killed: its lock is free
                for path in _starting(folder, f".{wanted.start}", ".partial"):
                    path.unlink(missing_ok=True)
            with whole(known, folder / f".{wanted.start}{os.getpid()}.partial") as partial:
                write(partial)
            if held and folder == wanted.beside:
                _forget_older(wanted, folder)
        return wanted.told(known)


@contextlib.contextmanager
def whole(target: Path, partial: Path) -> Iterator[Path]:
    """A path to write to that becomes ``target`` at the end, or nothing where that fails. Raises TraceError."""
    try:
        yield partial
        with one_line(TraceError, f"{target}: cannot be written"):
            partial.replace(target)
    finally:
        for path in (partial, partial.with_name(partial.name + "-journal")):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def user_cache() -> Path:
    """Where exports lie whose source stands in a folder that cannot be written."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "pytest-nsys"


def _starting(folder: Path, start: str, end: str = ".sqlite") -> list[Path]:
    with contextlib.suppress(OSError):
        return [path for path in folder.iterdir() if path.name.startswith(start) and path.name.endswith(end)]
    return []


@contextlib.contextmanager
def _locked_folder(wanted: Wanted) -> Iterator[tuple[Path, bool]]:
    """The first folder that can be written, and whether its lock is held; raises TraceError where none can."""
    why = []
    for folder in wanted.places:
        try:
            file = _made(folder).joinpath(f".{wanted.start}lock").open("a")
        except OSError as error:
            why.append(f"{folder}: {error.strerror}")
            continue
        with file:
            yield folder, lock(file.fileno(), lambda: _tell_that_it_waits(wanted.source))
        return
    raise TraceError(f"{wanted.source}: there is no place for its export: {'; '.join(why)}")


def _made(folder: Path) -> Path:
    if not folder.exists() and folder.parent.exists() and not folder.parent.stat().st_mode & 0o222:
        raise PermissionError(errno.EACCES, "the folder is read-only", str(folder))  # which would not stop root
    folder.mkdir(parents=True, exist_ok=True)
    ignored = folder / ".gitignore"
    if not ignored.exists():
        ignored.write_text("# Exports of reports, written by pytest-nsys; may be deleted.\n*\n", encoding="utf-8")
    return folder


def _tell_that_it_waits(source: Path) -> None:
    if sys.stderr.isatty():
        print(f"waiting for another process that exports {printable(source.name)}", file=sys.stderr)


def _forget_older(wanted: Wanted, folder: Path) -> None:
    """Delete the exports of what the source held before it was replaced."""
    name = re.escape(wanted.source.name[:LONGEST_NAME])
    older = re.compile(rf"\.?{name}-[0-9a-f]{{16}}-(lock|[0-9.]+\.sqlite)")
    for path in folder.iterdir():
        if older.fullmatch(path.name) and not path.name.removeprefix(".").startswith(wanted.start):
            with contextlib.suppress(OSError):
                path.unlink()


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
