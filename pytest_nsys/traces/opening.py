"""Which files does a path mean, in which order, and of which format is each?

One value (file, folder or glob) is one run: a folder means the traces directly in it, a glob what it matches. Names
sort by their numbers: ``rank2`` before ``rank10``. TorchTitan keeps the traces of all ranks at one step in
``iteration_N/``: each of these folders is a run. A new format is one module of this package and one entry in
``READERS``. A report and the export of the same name beside it are one trace.

A copy of a trace under another name is no second sample of what a program does. Real traces are all of different sizes,
so nothing is read to see one: only files of one size are compared, up to the first byte in which they differ.
"""

from __future__ import annotations

import filecmp
import glob
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_nsys.core.errors import SeveralCaptures, TraceError, UsageMistake, one_line
from pytest_nsys.core.file_names import CUT_SUFFIXES, CUT_TABLE, DRAWING_SUFFIX, GATE_SUFFIX
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.words import printable
from pytest_nsys.traces.gpu_log import ENDING as GPU_LOG
from pytest_nsys.traces.other_profilers import SUFFIXES, describe_csv
from pytest_nsys.traces.sqlite_file import MAGIC, SqliteFile, first_page

if TYPE_CHECKING:
    from pytest_nsys.traces.cut import Mark, Usual


class Twice(NamedTuple):
    """Two paths that are one trace: one file, or two with the same bytes."""

    first: Path
    second: Path

    @property
    def is_copy(self) -> bool:
        return self.first.resolve() != self.second.resolve()


def given_twice(captures: Iterable[Iterable[Path]]) -> Twice | None:
    """The first trace that two of the captures share; None where there is none."""
    return next(shared(captures), None)


def shared(captures: Iterable[Iterable[Path]]) -> Iterator[Twice]:
    """The traces of captures that one before them has, too, each once."""
    earlier: dict[object, list[Path]] = {}
    for capture in captures:
        own = [(_likeness(path), path) for path in capture]
        for likeness, second in own:
            same = (
                one
                for one in earlier.get(likeness, ())
                if one.resolve() == second.resolve() or _same_bytes(one, second)
            )
            if first := next(same, None):
                yield Twice(first, second)
        for likeness, path in own:
            earlier.setdefault(likeness, []).append(path)


def _files(path: Path) -> Iterator[Path]:
    """The files of a trace, which may be a folder of them."""
    return iter(sorted(path.rglob("*.parquet"))) if path.is_dir() else iter([path])


def _likeness(path: Path) -> object:
    """What two traces of the same bytes have in common; one without a byte has nothing in common with any other."""
    try:
        files = [(str(file.relative_to(path)), *_size_and_sample(file)) for file in _files(path)]
    except OSError:  # the reader says why
        return path
    return tuple(files) if any(size for _, size, _ in files) else path


def _size_and_sample(path: Path) -> tuple[int, int]:
    """The size of a file, and a number for bytes from all over it: ranks' traces may all be as large."""
    size = path.stat().st_size
    if not size:
        return 0, 0
    with path.open("rb") as file:
        some = []
        for n in range(SAMPLES):
            file.seek(size * n // SAMPLES)
            some.append(file.read(SAMPLE_BYTES))
    return size, hash(b"".join(some))


def _same_bytes(first: Path, second: Path) -> bool:
    try:
        pairs = zip(_files(first), _files(second), strict=True)
        return all(filecmp.cmp(a, b, shallow=False) for a, b in pairs)
    except OSError:
        return False


SAMPLES, SAMPLE_BYTES = 16, 1 << 12
"""Of a file, to see at once that it is no copy of another."""

JSON = (".json", ".json.gz")
"""Only those count in which a profiler's marks are: other JSON lies beside traces."""
SQLITE = (".sqlite", ".sqlite.gz")
XPLANE = ".xplane.pb"
ROCPD, RESULTS, ROCPD_TABLES = ".db", "_results.db", "rocpd_"
"""How rocprofv3 ends its databases' names, and begins those of their tables; other databases lie beside traces, too."""
CSV = ".csv"
LOOKED_AT = 1 << 10
"""Bytes in which the header of a CSV file is."""
ITERATION = re.compile(r"iteration_(\d+)")
PROFILE = re.compile(r"\d{4}(_\d\d){5}.*")
"""How JAX names the folder of a profile: by the second in which it began."""
PERFETTO = ("perfetto_trace.json.gz", "perfetto_trace.json")
"""The same trace once more, which JAX writes beside it where it is asked to."""
_DIGITS = re.compile(r"(\d+)")


def by_number(path: Path) -> tuple[list[tuple[int, str]], str]:
    """What paths are sorted by: numbers in a name by their value, the rest as text."""
    parts = _DIGITS.split(str(path))
    return [(int(part), "") if part.isascii() and part.isdecimal() else (-1, part) for part in parts], str(path)


def traces_in(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """The traces directly in a folder: files of the suffixes, and JSON and databases that a profiler wrote."""
    files = sorted((path for path in folder.iterdir() if path.is_file()), key=by_number)
    found = [
        path
        for path in files
        if path.name.endswith(tuple(suffixes)) or _is_json_trace(path) or (path.suffix == ROCPD and _is_rocpd(path))
    ]
    return without_cuts([path for path in found if path.name not in PERFETTO] or found)


def without_cuts(found: list[Path]) -> list[Path]:
    """The files without the cuts of traces that lie among them; where all are cuts, they are what is meant."""
    return [path for path in found if not path.name.endswith((*CUT_SUFFIXES, DRAWING_SUFFIX))] or found


def _is_json_trace(path: Path) -> bool:
    if not path.name.endswith(JSON):
        return False
    from pytest_nsys.traces.chrome.writers import is_trace  # gates on exports of nsys do not pay for it

    return is_trace(path)


def iterations(folder: Path) -> list[Path]:
    """The folders of TorchTitan's steps that hold traces, by step."""
    found = [path for path in folder.iterdir() if ITERATION.fullmatch(path.name) and path.is_dir()]
    return [path for path in sorted(found, key=by_number) if traces_in(path, ())]


def split_profile(folder: Path) -> list[Path]:
    """The traces of JAX below a log folder, by host: one profiling window may lie in several ``profile/<time>/``, for
    each process names its folder by its own clock. Raises UsageMistake where one lacks its JSON.
    """
    root = next((path for path in (folder / "plugins" / "profile", folder / "profile") if path.is_dir()), folder)
    found: list[Path] = []
    for window in root.iterdir():
        if window.is_dir() and PROFILE.fullmatch(window.name):
            check_xplanes(window)
            found += traces_in(window, ())
    return sorted(found, key=lambda path: (by_number(Path(path.name)), by_number(path)))


def of_hosts(folder: Path) -> list[Path]:
    """The databases of rocprofv3 in ``HOST/``, as it puts them below the folder that it is given."""
    return [path for path in sorted(folder.glob(f"*/*{RESULTS}"), key=by_number) if _is_rocpd(path)]


def check_xplanes(folder: Path) -> None:
    """Raises UsageMistake where a profile of JAX in a folder has no JSON beside it: a rank would be missing."""
    names = {path.name for path in folder.iterdir()}
    alone = [n for n in sorted(names) if not {n.replace(XPLANE, f".trace{suffix}") for suffix in JSON} & names]
    if why := why_xplane(folder, alone):
        raise UsageMistake(f"{folder}: {why}")


def the_iteration(folder: Path) -> list[Path]:
    """The traces of the one step that a folder holds, none where it holds none. Raises UsageMistake for several."""
    found = iterations(folder)
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:3]) + (" …" if len(found) > 3 else "")
        raise SeveralCaptures(
            f"{folder}: holds the traces of {len(found)} steps ({names}), each with its ranks: give one of them"
        )
    return traces_in(found[0], ()) if found else []


def why_xplane(folder: Path, names: Sequence[str]) -> str | None:
    """What to do about a profile of JAX of which only the protobuf is there; None where there is none."""
    found = [name for name in names if name.endswith(XPLANE)]
    if not found:
        return None
    source = str(folder / found[0])
    target = source.removesuffix(XPLANE) + ".trace.json.gz"
    return (
        f"holds {printable(found[0])} without its trace.json.gz: install xprof beside JAX and profile again, or "
        'convert it: python -c "import gzip; from xprof.convert.raw_to_tool_data import xspace_to_tool_data as tool; '
        f"gzip.open({target!r}, 'wt').write(tool([{source!r}], 'trace_viewer', {{}})[0])\""
    )


def _report(path: Path) -> Trace:
    from pytest_nsys.traces.nsys.exports import (
        ExportedTrace,
        exported,  # it starts programs, which few runs need
    )

    return ExportedTrace(path, exported(path))


def _parquet(path: Path) -> Trace:
    from pytest_nsys.traces.nsys.exports import ExportedTrace
    from pytest_nsys.traces.nsys.parquet import exported

    return ExportedTrace(path, exported(path))


def _raw_stream(path: Path) -> Trace:
    from pytest_nsys.traces.nsys.exports import raw_stream

    return raw_stream(path)


def _sqlite(path: Path) -> Trace:
    """The names of its tables tell which profiler wrote it."""
    file = SqliteFile(path, again="profile again") if path.suffix == ROCPD else SqliteFile(path)
    if not _has_rocpd(file):
        from pytest_nsys.traces.nsys.sqlite import NsysSqlite  # whoever looks for a trace does not read it yet

        trace = NsysSqlite(path, file)
        if (mark := _mark_in(file)) is None:
            return trace
        from pytest_nsys.traces.cut import CutTrace  # nor do whole traces pay for what reads a part of one

        return CutTrace.of(trace, mark)
    from pytest_nsys.traces.rocpd.database import Rocpd  # gates on exports of nsys do not pay for it

    return Rocpd(path, file)


def is_of_tables(path: Path) -> bool:
    """Whether a trace is tables, of nsys or of rocprofv3, else JSON."""
    return _reader_of(path) is not _json


def _mark_in(file: SqliteFile) -> Mark | None:
    """The mark of a cut, None for an export that is none. Raises TraceError."""
    if CUT_TABLE not in file.tables:
        return None
    from pytest_nsys.traces.cut import read_mark

    return read_mark(file.path, "".join(str(text) for (text,) in file.rows(f"SELECT mark FROM {CUT_TABLE}")))


def mark_of(path: Path) -> Mark | None:
    """The mark of a cut; None for a whole trace, and for a file that is none. Raises TraceError for a damaged cut."""
    reader = _reader_of(path)
    if reader is _json:
        from pytest_nsys.traces.chrome.writers import mark_of_json

        return mark_of_json(path)
    if reader is not _sqlite or CUT_TABLE.encode() not in first_page(path):  # where a cut names its first tables
        return None
    with closing(SqliteFile(path)) as file:
        return _mark_in(file)


def _has_rocpd(file: SqliteFile) -> bool:
    return any(name.startswith(ROCPD_TABLES) for name in file.tables)


def _is_rocpd(path: Path) -> bool:
    """Whether rocprofv3 wrote the file; one that is called as if and cannot be read fails where it is opened."""
    try:
        with closing(SqliteFile(path)) as file:
            return _has_rocpd(file)
    except TraceError:
        return path.name.endswith(RESULTS)


def _json(path: Path) -> Trace:
    from pytest_nsys.traces.chrome.writers import open_json  # gates on exports of nsys do not pay for it

    return open_json(path)


def _xplane(path: Path) -> Trace:
    raise TraceError(f"{path}: {why_xplane(path.parent, [path.name])}")


def _refused(path: Path) -> Trace:
    raise TraceError(f"{path}: {_why_other(path)}")


READERS: Mapping[str, Callable[[Path], Trace]] = {
    ".sqlite": _sqlite,
    ".sqlite3": _sqlite,
    ".sqlite.gz": _sqlite,
    ROCPD: _sqlite,
    ".nsys-rep": _report,
    ".qdrep": _report,
    ".qdstrm": _raw_stream,
    ".pt.trace.json": _json,
    ".pt.trace.json.gz": _json,
    ".json": _json,
    ".json.gz": _json,
    XPLANE: _xplane,
}
IN_WORDS: Mapping[Callable[[Path], Trace], str] = {
    _sqlite: "SQLite export of nsys",
    _parquet: "Parquet export of nsys",
    _report: "report of nsys",
    _raw_stream: "raw data of nsys",
    _json: "JSON",
    _xplane: "profile of XLA",
    _refused: "file of another profiler",
}
"""What each reader reads, where nothing in the file says more."""
REPORTS = (".nsys-rep", ".qdrep")
EXPORTS = (".sqlite", ".sqlite3")
IN_FOLDERS = (*EXPORTS, *REPORTS, *CUT_SUFFIXES[:1])
"""Suffixes that a folder is searched for; another file is read when it is named."""

PARQUET = "_pqtdir"
"""How nsys ends the name of a folder of Parquet files, which is one trace."""


def find_traces(value: str, base: Path) -> tuple[Path, ...]:
    """The files that ``value`` means, relative to ``base``, in the order of their names.

    Raises UsageMistake where there are none.
    """
    if not value.strip():  # as of a variable that nobody set: it would mean the folder
        raise UsageMistake("the path of a trace is empty")
    with one_line(UsageMistake, f"{printable(value)}: cannot be read"):
        return _find(value, base / Path(value).expanduser())


def is_there(value: str, base: Path) -> bool:
    """Whether ``value`` means anything at all, be it no trace; a folder that is kept empty in git is nothing.

    Raises UsageMistake where that cannot be told.
    """
    with one_line(UsageMistake, f"{printable(value)}: cannot be read"):
        path = base / Path(value).expanduser()
        if path.is_dir():
            return any(not inside.name.startswith(".") for inside in path.iterdir())
        return path.exists() or (glob.has_magic(value) and any(glob.iglob(str(path), recursive=True)))


def _find(value: str, path: Path) -> tuple[Path, ...]:
    if is_parquet(path):
        return (path,)
    if path.is_dir():
        found = [*traces_in(path, IN_FOLDERS), *filter(is_parquet, sorted(path.iterdir()))] or the_iteration(path)
        found = found or split_profile(path) or of_hosts(path)
        if not found:
            raise UsageMistake(f"{path}: {_why_no_traces(path)}")
        check_xplanes(path)
        return _one_of_each(found)
    if path.exists():
        return (path,)
    if glob.has_magic(value):
        matches = sorted((Path(p) for p in glob.glob(str(path), recursive=True)), key=by_number)
        found = without_cuts([p for p in matches if (p.is_file() and not p.name.endswith(GPU_LOG)) or is_parquet(p)])
        if not found:
            folders = f"; {matches[0]} is a folder, and each folder is a run of its own" if matches else ""
            raise UsageMistake(f"{path}: matches no file{folders}")
        return _one_of_each(found)
    raise UsageMistake(f"{path}: there is no such file or folder")


def stem_of(path: Path) -> str:
    """The name of a trace, or of a folder that holds several, without what says its format."""
    name = path.resolve().name
    known = [suffix for suffix in (*READERS, PARQUET) if name.endswith(suffix)]
    return name.removesuffix(max(known, key=len, default=""))


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

    return _of_workers([path for path in found if not extra(path)])


def _of_workers(found: Sequence[Path]) -> tuple[Path, ...]:
    """Without the databases of launchers, as torchrun is one: rocprofv3 writes one for every process. Such a database
    has no kernel and no range; where all are so, they stay, to be told of.
    """
    working = tuple(path for path in found if path.suffix != ROCPD or len(found) == 1 or not _is_idle(path))
    return working or tuple(found)


def _is_idle(path: Path) -> bool:
    """Whether a process used no GPU and marked nothing; a trace that cannot be read fails where it is opened."""
    try:
        with closing(_sqlite(path)) as trace:
            return not trace.facts().has_kernels and not trace.ranges(["%"])
    except TraceError:
        return False


def _why_no_traces(folder: Path) -> str:
    entries = sorted(folder.iterdir())
    raw = [p.name for p in entries if p.suffix == ".qdstrm"]
    if raw:
        return f"holds no trace, but {printable(raw[0])}, which nsys could not turn into a report: capture it again"
    if xplane := why_xplane(folder, [p.name for p in entries]):
        return xplane
    if why := _why_others(folder):
        return why
    inside = [p.name for p in entries if p.is_dir() and p.name[0] != "." and traces_in(p, IN_FOLDERS)]
    if inside:
        return f"holds no trace itself; its folder {inside[0]} does: one run is one folder"
    return f"holds no trace ({', '.join(f'*{suffix}' for suffix in (*IN_FOLDERS, *JSON, RESULTS))})"


def _why_others(folder: Path) -> str | None:
    """What the first file of a profiler that is not read is, and what to do; None where there is none."""
    files = sorted(path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file())
    for path in files:
        if path.name.endswith(JSON):
            from pytest_nsys.traces.chrome.writers import why_not_read

            with suppress(TraceError):  # of what cannot be read nothing is known
                if why := why_not_read([path]):
                    return why
        elif why := _why_other(path):
            return f"holds {printable(path.name)}, which {why}"
    return None


def _why_other(path: Path) -> str | None:
    """What a file that is no JSON is, and what to do, where a profiler wrote it that is not read; else None."""
    for suffix, why in SUFFIXES.items():
        if path.name.endswith(suffix):
            return why
    if path.suffix != CSV:
        return None
    with suppress(OSError), path.open("rb") as file:
        return describe_csv(file.read(LOOKED_AT))
    return None


def check_one_format(traces: Sequence[Trace]) -> None:
    """Raises TraceError where the traces of one run are of two formats; a report is of the format of its export."""
    for trace in traces:
        if _reader(trace) is not _reader(traces[0]) and not (_of_nsys(trace) and _of_nsys(traces[0])):
            raise SeveralCaptures(
                f"{traces[0].path} and {trace.path} are of two formats: one run is of one profiler: give the files of "
                "one"
            )


def _reader(trace: Trace) -> type:
    from pytest_nsys.traces.recorded import RecordedTrace

    return trace.format if isinstance(trace, RecordedTrace) else type(trace)


def _of_nsys(trace: Trace) -> bool:
    from pytest_nsys.traces.nsys.sqlite import NsysSqlite  # traces that one reader reads never ask

    return issubclass(_reader(trace), NsysSqlite)


def open_trace(path: Path) -> Trace:
    """The trace in a file. Raises TraceError for a file that is none."""
    return _reader_of(path)(path)


def format_of(path: Path) -> str:
    """What wrote a trace, and as what, in words. Raises TraceError for a file that cannot be read."""
    reader = _reader_of(path)
    if mark_of(path) is not None:
        return "pytest-nsys cut"
    if reader is _json:
        from pytest_nsys.traces.chrome.writers import WRITERS, writer_of

        found = writer_of(path)
        return next((name for name, writer in WRITERS.items() if writer is found), IN_WORDS[_json])
    if reader is _sqlite and _is_rocpd(path):
        return "database of rocprofv3"
    return IN_WORDS[reader]


def usual_convention(path: Path) -> Usual | None:
    """Under which convention a trace of this format is usually read, None for exports of nsys; a cut is read under that
    of the cut. Raises TraceError for a file that cannot be read, UsageMistake for a cut whose convention is not known.
    """
    if (mark := mark_of(path)) is not None:
        from pytest_nsys.traces.cut import usual_of

        return usual_of(path, mark)
    if _reader_of(path) is _json:
        from pytest_nsys.traces.chrome.writers import writer_of

        if (writer := writer_of(path)) is not None:
            return writer.usual
    return None


def _reader_of(path: Path) -> Callable[[Path], Trace]:
    """By the suffix, else by the first bytes: gzip or JSON in a file of any name, the rest is taken for an export."""
    if is_parquet(path):
        return _parquet
    if path.name.endswith(GATE_SUFFIX):
        raise TraceError(f"{path}: is a gate file, not a trace: pytest judges by it, `pytest-nsys check` checks it")
    if path.is_file() and _why_other(path) is not None:
        return _refused
    known = next((read for suffix, read in READERS.items() if path.name.endswith(suffix)), None)
    if known is not None:
        return known
    try:
        with path.open("rb") if path.is_file() else io.BytesIO() as file:  # a pipe would wait for ever
            start = file.read(2)
    except OSError:
        start = b""  # the reader says why
    if start == b"\x1f\x8b":
        from pytest_nsys.traces.chrome.json_stream import head

        with suppress(TraceError):  # the reader says why
            return _sqlite if head(path, len(MAGIC)) == MAGIC else _json
        return _json
    return _json if start[:1] in (b"{", b"[") else _sqlite
