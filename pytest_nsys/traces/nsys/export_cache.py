"""Exports that are written once: what lies in the cache beside a source, and who may write there now?

An entry is named after the source's name, a hash of its content and the version of what writes it, so nothing old is
read for something new. It appears whole, by renaming, and under a lock, so that several processes write it once.
"""

from __future__ import annotations

import contextlib
import errno
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
from pytest_nsys.tools.nsys_command import version_order
from pytest_nsys.traces.nsys.sqlite import NsysSqlite

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
