"""Which files does a path mean, and of which format is each?

One value (file, folder or glob) is one run: a folder means the traces directly in it, a glob what it matches. A new
format is one module of this package and one entry in ``READERS``. A report and the export of the same name beside it
are one trace.
"""

from __future__ import annotations

import glob
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pytest_nsys.core.conventions import DEFAULT
from pytest_nsys.core.errors import TraceError, UsageMistake
from pytest_nsys.core.model import Trace, printable
from pytest_nsys.traces.folders import (
    XPLANE,
    by_number,
    check_xplanes,
    mixed,
    split_profile,
    the_iteration,
    traces_in,
    why_xplane,
)
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from pytest_nsys.traces.recorded import RecordedTrace


def _report(path: Path) -> Trace:
    from pytest_nsys.traces.nsys.report import NsysReport  # it starts programs, which few runs need

    return NsysReport(path)


def _parquet(path: Path) -> Trace:
    from pytest_nsys.traces.nsys.parquet import NsysParquet

    return NsysParquet(path)


def _raw_stream(path: Path) -> Trace:
    from pytest_nsys.traces.nsys.report import raw_stream

    return raw_stream(path)


def _json(path: Path) -> Trace:
    from pytest_nsys.traces.chrome.writers import open_json  # gates on exports of nsys do not pay for it

    return open_json(path)


def _xplane(path: Path) -> Trace:
    raise TraceError(f"{path}: {why_xplane([path.name])}")


READERS: Mapping[str, Callable[[Path], Trace]] = {
    ".sqlite": NsysSqlite,
    ".sqlite3": NsysSqlite,
    ".db": NsysSqlite,
    ".nsys-rep": _report,
    ".qdrep": _report,
    ".qdstrm": _raw_stream,
    ".pt.trace.json": _json,
    ".pt.trace.json.gz": _json,
    ".json": _json,
    ".json.gz": _json,
    XPLANE: _xplane,
}
REPORTS = (".nsys-rep", ".qdrep")
EXPORTS = (".sqlite", ".sqlite3")
IN_FOLDERS = (*EXPORTS, *REPORTS)
"""Suffixes that a folder is searched for; another file is read when it is named."""

PARQUET = "_pqtdir"
"""How nsys ends the name of a folder of Parquet files, which is one trace."""


def find_traces(value: str, base: Path) -> tuple[Path, ...]:
    """The files that ``value`` means, relative to ``base``, in the order of their names.

    Raises UsageMistake where there are none.
    """
    try:
        return _find(value, base / Path(value).expanduser())
    except OSError as error:
        raise UsageMistake(f"{printable(value)}: cannot be looked at: {error.strerror}") from error


def _find(value: str, path: Path) -> tuple[Path, ...]:
    if is_parquet(path):
        return (path,)
    if path.is_dir():
        found = [*traces_in(path, IN_FOLDERS), *filter(is_parquet, sorted(path.iterdir()))] or the_iteration(path)
        found = found or split_profile(path)
        if not found:
            raise UsageMistake(f"{path}: {_why_no_traces(path)}")
        check_xplanes(path)
        return _one_of_each(found)
    if path.exists():
        return (path,)
    if glob.has_magic(value):
        matches = sorted((Path(p) for p in glob.glob(str(path), recursive=True)), key=by_number)
        found = [p for p in matches if p.is_file() or is_parquet(p)]
        if not found:
            folders = f"; {matches[0]} is a folder, and each folder is a run of its own" if matches else ""
            raise UsageMistake(f"{path}: matches no file{folders}")
        return _one_of_each(found)
    raise UsageMistake(f"{path}: there is no such file or folder")


def is_parquet(path: Path) -> bool:
    """Whether the path is a folder of Parquet files that nsys wrote."""
    return path.is_dir() and (path.name.endswith(PARQUET) or (path / "StringIds.parquet").is_file())


def _one_of_each(found: Sequence[Path]) -> tuple[Path, ...]:
    """Without the exports that lie beside their report, whose reader takes them where they are not older, and without
    a second export of another kind.
    """
    reports = {path.with_suffix("") for path in found if path.suffix in REPORTS}
    exports = {path.with_suffix("") for path in found if path.suffix in EXPORTS}

    def extra(path: Path) -> bool:
        if path.suffix in EXPORTS:
            return path.with_suffix("") in reports
        return path.name.endswith(PARQUET) and path.with_name(path.name.removesuffix(PARQUET)) in reports | exports

    return tuple(path for path in found if not extra(path))


def _why_no_traces(folder: Path) -> str:
    entries = sorted(folder.iterdir())
    raw = [p.name for p in entries if p.suffix == ".qdstrm"]
    if raw:
        return f"holds no trace, but {printable(raw[0])}, which nsys could not turn into a report: capture it again"
    if xplane := why_xplane([p.name for p in entries]):
        return xplane
    inside = [p.name for p in entries if p.is_dir() and p.name[0] != "." and any(p.glob("*.sqlite"))]
    if inside:
        return f"holds no trace itself; its folder {inside[0]} does: one run is one folder"
    return "holds no trace (*.sqlite, *.json, *.json.gz)"


def check_one_format(traces: Sequence[Trace]) -> None:
    """Raises TraceError where the traces of one run are of two formats; a report is of the format of its export."""
    if what := mixed([trace.path for trace in traces], list(map(_format, traces))):
        raise TraceError(what)


def _format(trace: Trace) -> type:
    reader = trace.format if isinstance(trace, RecordedTrace) else type(trace)
    return NsysSqlite if issubclass(reader, NsysSqlite) else reader


def open_trace(path: Path) -> Trace:
    """The trace in a file. Raises TraceError for a file that is none."""
    return _reader_of(path)(path)


def usual_convention(path: Path) -> str:
    """The built-in convention that a trace of this format is read under where nobody names one; a cut is read under
    that of the cut. Raises TraceError for a file that cannot be read, UsageMistake for a cut under a convention of
    somebody's own.
    """
    if _reader_of(path) is _json:
        from pytest_nsys.traces.chrome.writers import writer_of

        if (writer := writer_of(path)) is not None:
            return writer.convention(path)
    return DEFAULT


def _reader_of(path: Path) -> Callable[[Path], Trace]:
    """By the suffix, else by the first bytes: gzip or JSON in a file of any name, the rest is taken for an export."""
    if is_parquet(path):
        return _parquet
    known = next((read for suffix, read in READERS.items() if path.name.endswith(suffix)), None)
    if known is not None:
        return known
    try:
        with path.open("rb") if path.is_file() else io.BytesIO() as file:  # a pipe would wait for ever
            start = file.read(2)
    except OSError:
        start = b""  # the reader says why
    return _json if start == b"\x1f\x8b" or start[:1] in (b"{", b"[") else NsysSqlite
