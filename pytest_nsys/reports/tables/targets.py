"""May a report be written into this file? Not where that would replace a file that is read, or another report.

This is judged by the file itself (also under another name or link), by its content, and by its name, so that a trace, a
gate file, a baseline or a history outlives a slip in an option.
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
"""Endings of file names that no report has, with what such a file is."""

EXPORTS = (".sqlite", ".sqlite3")
"""Endings that the file of a cut may have."""
YAML = (".yaml", ".yml")
# How the files begin that are never overwritten, whatever they are called.
SQLITE, BASELINE = b"SQLite format 3\x00", b'{\n"format": '


def check_target(shown: str, path: Path, others: Iterable[tuple[Path, str]], *, cut: bool = False) -> None:
    """Check that a report can and may be written into a file. Raises UsageMistake where not.

    ``option_text`` is the option with its value. ``used_files`` are the files that are read or written besides, each
    with what it is. Where the report ``is_cut``, the cut of a trace, it may replace an earlier cut.
    """
    if obstacle := _find_obstacle(path):
        raise UsageMistake(f"{printable(shown)}: {obstacle}")
    reason = next((description for used_file, description in others if same_file(path, used_file)), None) or _why_not(
        path, cut=cut
    )
    if reason is not None:
        raise UsageMistake(f"{printable(shown)}: {reason}: give another file")


def _find_obstacle(path: Path) -> str:
    """Return why the file cannot be written; empty where nothing is known against it."""
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
    """Whether two paths are one file, by whatever names; never of a pipe or a device, which may well be both."""
    with contextlib.suppress(OSError, RuntimeError):
        if one.exists() and not one.is_file():
            return False
        return one.resolve() == other.resolve() or (one.exists() and other.exists() and os.path.samefile(one, other))
    return False


def files_of(values: Iterable[str], base: Path) -> list[Path]:
    """Return the trace files that arguments mean; where one means none, that is reported where it is read."""
    from pytest_nsys.traces.opening import find_traces

    trace_files: list[Path] = []
    for value in values:
        with contextlib.suppress(NsysError):
            trace_files += find_traces(value, base)
    return trace_files


def _why_not(path: Path, *, cut: bool) -> str | None:
    """Return why a file must not be replaced; None where it may be."""
    is_file = path.is_file()
    if cut and is_file and _is_cut(path):
        return None
    first_bytes = _start(path) if is_file else b""
    if first_bytes == SQLITE:
        return "is a SQLite database"
    for suffix, description in NAMES.items():
        if path.name.endswith(suffix) and (is_file or not cut or suffix not in EXPORTS):
            return f"is {description}" if is_file else f"is the name of {description}"
    if is_file and path.name.endswith(YAML):  # a gate file under another name, or settings
        return "is YAML, which no report is"
    if first_bytes.startswith(BASELINE):
        return "is a baseline"
    return "is a trace of a profiler" if is_file and _is_profile(path) else None


def _start(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked where it is gzip; empty where it cannot be read."""
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
