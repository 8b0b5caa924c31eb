"""May a report be written to this file? Not if that would overwrite an input or another report.

The check uses the file's identity (also through links), its content and its name, so that a mistyped option cannot
destroy a trace, a gate file, a baseline or a history.
"""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterable
from pathlib import Path

from pytest_nsys.core.errors import NsysError, TraceError, UsageMistake
from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.core.text_format import sanitize_line

PROTECTED_SUFFIXES = {
    GATE_SUFFIX: "a gate file",
    ".sqlite": "a trace",
    ".sqlite3": "a trace",
    ".nsys-rep": "a trace",
    ".qdrep": "a trace",
    ".qdstrm": "a trace",
    ".db": "a database",
}
"""Suffixes that no report has, with the kind of such a file."""

CUT_SUFFIXES = (".sqlite", ".sqlite3")
"""Suffixes that a cut may have."""
YAML_SUFFIXES = (".yaml", ".yml")
# First bytes of files that are never overwritten, whatever their name.
SQLITE_START, BASELINE_START = b"SQLite format 3\x00", b'{\n"format": '


def check_report_target(
    option_text: str, path: Path, used_files: Iterable[tuple[Path, str]], *, is_cut: bool = False
) -> None:
    """Raise UsageMistake if a report cannot or must not be written to a file.

    ``option_text`` is the option with its value. ``used_files`` are the other files that are read or written, each with
    its description. A report that ``is_cut``, the cut of a trace, may replace an earlier cut.
    """
    if obstacle := _find_obstacle(path):
        raise UsageMistake(f"{sanitize_line(option_text)}: {obstacle}")
    reason = next(
        (description for used_file, description in used_files if is_same_file(path, used_file)), None
    ) or _explain_protection(path, is_cut=is_cut)
    if reason is not None:
        raise UsageMistake(f"{sanitize_line(option_text)}: {reason}: give another file")


def _find_obstacle(path: Path) -> str:
    """Return why the file cannot be written; empty if no obstacle is known."""
    try:
        if path.is_dir():
            return "is a folder; name a file in it"
        if not path.parent.is_dir():
            return f"there is no folder {path.parent}; make it first"
        writable = os.access(path if path.exists() else path.parent, os.W_OK)
    except OSError as error:  # e.g. the name is too long
        return f"cannot be written: {error.strerror}"
    return "" if writable else "cannot be written: permission denied"


def is_same_file(path: Path, other_path: Path) -> bool:
    """Whether two paths are the same file, under any names; False for a pipe or device, which may be used for both."""
    with contextlib.suppress(OSError, RuntimeError):
        if path.exists() and not path.is_file():
            return False
        return path.resolve() == other_path.resolve() or (
            path.exists() and other_path.exists() and os.path.samefile(path, other_path)
        )
    return False


def list_trace_files(values: Iterable[str], base_folder: Path) -> list[Path]:
    """Return the trace files that arguments name; an argument that names none is reported later, when it is read."""
    from pytest_nsys.traces.trace_files import find_traces

    trace_files: list[Path] = []
    for value in values:
        with contextlib.suppress(NsysError):
            trace_files += find_traces(value, base_folder)
    return trace_files


def _explain_protection(path: Path, *, is_cut: bool) -> str | None:
    """Return why a file must not be replaced; None if it may be."""
    is_file = path.is_file()
    if is_cut and is_file and _holds_cut(path):
        return None
    first_bytes = _read_first_bytes(path) if is_file else b""
    if first_bytes == SQLITE_START:
        return "is a SQLite database"
    for suffix, description in PROTECTED_SUFFIXES.items():
        if path.name.endswith(suffix) and (is_file or not is_cut or suffix not in CUT_SUFFIXES):
            return f"is {description}" if is_file else f"is the name of {description}"
    if is_file and path.name.endswith(YAML_SUFFIXES):  # a gate file under another name, or settings
        return "is YAML, which no report is"
    if first_bytes.startswith(BASELINE_START):
        return "is a baseline"
    return "is a trace of a profiler" if is_file and _is_profile(path) else None


def _read_first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed if it is gzip; empty if it cannot be read."""
    with contextlib.suppress(OSError, EOFError), (gzip.open if path.name.endswith(".gz") else open)(path, "rb") as file:
        return bytes(file.read(len(SQLITE_START)))
    return b""


def _holds_cut(path: Path) -> bool:
    from pytest_nsys.traces.trace_files import read_cut_mark  # imported only if the file exists

    with contextlib.suppress(TraceError):
        return read_cut_mark(path) is not None
    return False


def _is_profile(path: Path) -> bool:
    from pytest_nsys.traces.chrome.writers import find_writer

    with contextlib.suppress(TraceError):
        return find_writer(path) is not None
    return False
