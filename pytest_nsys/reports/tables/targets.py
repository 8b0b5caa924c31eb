"""May a report be written into this file? Not where that would replace what is read, or another report.

Told by what the file is (also by another name or link), by what it holds, and by its name, so that a trace, a gate
file, a baseline or a history outlives a slip in an option.
"""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterable
from pathlib import Path

from pytest_nsys.core.errors import NsysError, TraceError, UsageMistake
from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.core.words import printable

NAMES = {
    GATE_SUFFIX: "a gate file",
    ".sqlite": "a trace",
    ".sqlite3": "a trace",
    ".nsys-rep": "a trace",
    ".qdrep": "a trace",
    ".qdstrm": "a trace",
    ".db": "a database",
}
"""What is never a report, by how its name ends."""

EXPORTS = (".sqlite", ".sqlite3")
"""What a cut may be called."""
YAML = (".yaml", ".yml")
SQLITE, BASELINE = b"SQLite format 3\x00", b'{\n"format": '


def check_target(shown: str, path: Path, others: Iterable[tuple[Path, str]], *, cut: bool = False) -> None:
    """Raises UsageMistake where a report cannot or must not be written. ``shown`` is the option with its value.

    ``others`` are the files that are read or written besides, each with what it is; ``cut``: the report is the cut of
    a trace, and may replace an earlier one.
    """
    if obstacle := _find_obstacle(path):
        raise UsageMistake(f"{printable(shown)}: {obstacle}")
    why = next((what for other, what in others if same_file(path, other)), None) or _why_not(path, cut=cut)
    if why is not None:
        raise UsageMistake(f"{printable(shown)}: {why}: give another file")


def _find_obstacle(path: Path) -> str:
    """Say why nothing can be written there; empty where nothing is known against it."""
    try:
        if path.is_dir():
            return "is a folder; name a file in it"
        if not path.parent.is_dir():
            return f"there is no folder {path.parent}; make it first"
        writable = os.access(path if path.exists() else path.parent, os.W_OK)
    except OSError as error:  # a name that is too long
        return f"cannot be written: {error.strerror}"
    return "" if writable else "cannot be written: permission denied"


def same_file(one: Path, other: Path) -> bool:
    """Whether both are one file, by whatever names; a pipe or a device may well be both."""
    with contextlib.suppress(OSError, RuntimeError):
        if one.exists() and not one.is_file():
            return False
        return one.resolve() == other.resolve() or (one.exists() and other.exists() and os.path.samefile(one, other))
    return False


def files_of(values: Iterable[str], base: Path) -> list[Path]:
    """The files that traces mean, none for what means none: that is said where it is read."""
    from pytest_nsys.traces.opening import find_traces

    found: list[Path] = []
    for value in values:
        with contextlib.suppress(NsysError):
            found += find_traces(value, base)
    return found


def _why_not(path: Path, *, cut: bool) -> str | None:
    is_file = path.is_file()
    if cut and is_file and _is_cut(path):
        return None
    start = _start(path) if is_file else b""
    if start == SQLITE:
        return "is a SQLite database"
    for suffix, what in NAMES.items():
        if path.name.endswith(suffix) and (is_file or not cut or suffix not in EXPORTS):
            return f"is {what}" if is_file else f"is the name of {what}"
    if is_file and path.name.endswith(YAML):
        return "is YAML, which no report is"
    if start.startswith(BASELINE):
        return "is a baseline"
    return "is a trace of a profiler" if is_file and _is_profile(path) else None


def _start(path: Path) -> bytes:
    with contextlib.suppress(OSError, EOFError), (gzip.open if path.name.endswith(".gz") else open)(path, "rb") as file:
        return bytes(file.read(len(SQLITE)))
    return b""


def _is_cut(path: Path) -> bool:
    from pytest_nsys.traces.opening import mark_of  # only a file that is there pays for these imports

    with contextlib.suppress(TraceError):
        return mark_of(path) is not None
    return False


def _is_profile(path: Path) -> bool:
    from pytest_nsys.traces.chrome.writers import writer_of

    with contextlib.suppress(TraceError):
        return writer_of(path) is not None
    return False
