"""Which files does a path mean, and of which format is each?

One value (file, folder or glob) is one run: a folder means the traces directly in it, a glob what it matches. A new
format is one module of this package and one entry in ``READERS``.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from pathlib import Path

from pytest_nsys.errors import TraceError, UsageMistake
from pytest_nsys.model import Trace, printable
from pytest_nsys.traces.nsys_sqlite import NsysSqlite

READERS: Mapping[str, Callable[[Path], Trace]] = {
    ".sqlite": NsysSqlite,
    ".sqlite3": NsysSqlite,
    ".db": NsysSqlite,
}
IN_FOLDERS = (".sqlite", ".sqlite3")
"""Suffixes that a folder is searched for; another file is read when it is named."""

REPORTS = (".nsys-rep", ".qdrep")


def find_traces(value: str, base: Path) -> tuple[Path, ...]:
    """The files that ``value`` means, relative to ``base``, in the order of their names.

    Raises UsageMistake where there are none.
    """
    try:
        return _find(value, base / Path(value).expanduser())
    except OSError as error:
        raise UsageMistake(f"{printable(value)}: cannot be looked at: {error.strerror}") from error


def _find(value: str, path: Path) -> tuple[Path, ...]:
    if path.is_dir():
        found = sorted(p for p in path.iterdir() if p.suffix in IN_FOLDERS and p.is_file())
        if not found:
            raise UsageMistake(f"{path}: {_why_no_traces(path)}")
        return tuple(found)
    if path.exists():
        return (path,)
    if glob.has_magic(value):
        matches = sorted(Path(p) for p in glob.glob(str(path), recursive=True))
        found = [p for p in matches if p.is_file()]
        if not found:
            raise UsageMistake(f"{path}: matches no file")
        return tuple(found)
    raise UsageMistake(f"{path}: there is no such file or folder")


def _why_no_traces(folder: Path) -> str:
    entries = sorted(folder.iterdir())
    reports = [p.name for p in entries if p.suffix in REPORTS]
    if reports:
        return f"holds no trace, but {reports[0]}: export it with `nsys export --type=sqlite {reports[0]}`"
    inside = [p.name for p in entries if p.is_dir() and any(p.glob("*.sqlite"))]
    if inside:
        return f"holds no trace itself; its folder {inside[0]} does: one run is one folder"
    return "holds no trace (*.sqlite)"


def open_trace(path: Path) -> Trace:
    """The trace in a file. Raises TraceError for a file that is none."""
    if path.suffix in REPORTS:
        target = path.with_suffix(".sqlite").name
        raise TraceError(
            f"{path}: is a report, not an export: run `nsys export --type=sqlite -o {target} {path.name}` and give that"
        )
    return READERS.get(path.suffix, NsysSqlite)(path)
