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
    """Names two paths that are one trace: one file, or two with the same bytes."""

    first: Path
    second: Path

    @property
    def is_copy(self) -> bool:
        """Whether the two are different files with the same bytes."""
        return self.first.resolve() != self.second.resolve()


def given_twice(captures: Iterable[Iterable[Path]]) -> Twice | None:
    """Return the first trace that two of the captures share; None where there is none."""
    return next(shared(captures), None)


def shared(captures: Iterable[Iterable[Path]]) -> Iterator[Twice]:
    """Yield the traces of captures that an earlier capture has, too, each once."""
    earlier_paths: dict[object, list[Path]] = {}
    for capture in captures:
        likeness_and_paths = [(_likeness(path), path) for path in capture]
        for likeness, second in likeness_and_paths:
            duplicates = (
                earlier_path
                for earlier_path in earlier_paths.get(likeness, ())
                if earlier_path.resolve() == second.resolve() or _same_bytes(earlier_path, second)
            )
            if first := next(duplicates, None):
                yield Twice(first, second)
        for likeness, path in likeness_and_paths:
            earlier_paths.setdefault(likeness, []).append(path)


def _files(path: Path) -> Iterator[Path]:
    """Yield the files of a trace, which may be a folder of them."""
    return iter(sorted(path.rglob("*.parquet"))) if path.is_dir() else iter([path])


def _likeness(path: Path) -> object:
    """Return a value that two traces of the same bytes have in common; a trace without a byte has none in common with
    another.
    """
    try:
        files = [(str(file.relative_to(path)), *_size_and_sample(file)) for file in _files(path)]
    except OSError:  # the reader says why
        return path
    return tuple(files) if any(size for _, size, _ in files) else path


def _size_and_sample(path: Path) -> tuple[int, int]:
    """Return the size of a file in bytes, and a hash of bytes from all over it: ranks' traces may all be as large."""
    size = path.stat().st_size
    if not size:
        return 0, 0
    with path.open("rb") as file:
        samples = []
        for n in range(SAMPLES):
            file.seek(size * n // SAMPLES)
            samples.append(file.read(SAMPLE_BYTES))
    return size, hash(b"".join(samples))


def _same_bytes(first: Path, second: Path) -> bool:
    try:
        pairs = zip(_files(first), _files(second), strict=True)
        return all(filecmp.cmp(a, b, shallow=False) for a, b in pairs)
    except OSError:
        return False


# Bytes of a file by which it mostly shows at once that it is no copy of another.
SAMPLES, SAMPLE_BYTES = 16, 1 << 12

# Only those count in which a profiler's marks are: other JSON lies beside traces.
JSON = (".json", ".json.gz")
SQLITE = (".sqlite", ".sqlite.gz")
XPLANE = ".xplane.pb"
# How rocprofv3 ends its databases' names, and begins those of their tables; other databases lie beside traces, too.
ROCPD, RESULTS, ROCPD_TABLES = ".db", "_results.db", "rocpd_"
CSV = ".csv"
# Bytes in which the header of a CSV file is.
LOOKED_AT = 1 << 10
ITERATION = re.compile(r"iteration_(\d+)")
# JAX names the folder of a profile by the second in which it began.
PROFILE = re.compile(r"\d{4}(_\d\d){5}.*")
# The same trace once more, which JAX writes beside it on request (create_perfetto_trace).
PERFETTO = ("perfetto_trace.json.gz", "perfetto_trace.json")
_DIGITS = re.compile(r"(\d+)")


def by_number(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Return the key by which paths are sorted: numbers in a name by their value, the rest as text."""
    parts = _DIGITS.split(str(path))
    return [(int(part), "") if part.isascii() and part.isdecimal() else (-1, part) for part in parts], str(path)


def traces_in(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the traces directly in a folder, by number: files of the suffixes, and JSON and databases of a
    profiler.
    """
    files = sorted((path for path in folder.iterdir() if path.is_file()), key=by_number)
    trace_paths = [
        path
        for path in files
        if path.name.endswith(tuple(suffixes)) or _is_json_trace(path) or (path.suffix == ROCPD and _is_rocpd(path))
    ]
    return without_cuts([path for path in trace_paths if path.name not in PERFETTO] or trace_paths)


def without_cuts(found: list[Path]) -> list[Path]:
    """Return the files without the cuts of traces that lie among them; where all are cuts, they are what is meant."""
    return [path for path in found if not path.name.endswith((*CUT_SUFFIXES, DRAWING_SUFFIX))] or found


def _is_json_trace(path: Path) -> bool:
    if not path.name.endswith(JSON):
        return False
    from pytest_nsys.traces.chrome.writers import is_trace  # gates on exports of nsys do not pay for it

    return is_trace(path)


def iterations(folder: Path) -> list[Path]:
    """Return the folders of TorchTitan's steps that hold traces, ordered by step."""
    folders = [path for path in folder.iterdir() if ITERATION.fullmatch(path.name) and path.is_dir()]
    return [path for path in sorted(folders, key=by_number) if traces_in(path, ())]


def split_profile(folder: Path) -> list[Path]:
    """Return the traces of JAX below a log folder, ordered by host. Raises UsageMistake where one lacks its JSON.

    One profiling window may lie in several ``profile/<time>/``, as each process names its folder by its own clock.
    """
    root = next((path for path in (folder / "plugins" / "profile", folder / "profile") if path.is_dir()), folder)
    traces: list[Path] = []
    for profile_folder in root.iterdir():
        if profile_folder.is_dir() and PROFILE.fullmatch(profile_folder.name):
            check_xplanes(profile_folder)
            traces += traces_in(profile_folder, ())
    return sorted(traces, key=lambda path: (by_number(Path(path.name)), by_number(path)))


def of_hosts(folder: Path) -> list[Path]:
    """Return the databases of rocprofv3 in ``HOST/``, as it puts them below the folder that it is given."""
    return [path for path in sorted(folder.glob(f"*/*{RESULTS}"), key=by_number) if _is_rocpd(path)]


def check_xplanes(folder: Path) -> None:
    """Raise UsageMistake where a profile of JAX in a folder has no JSON beside it: a rank would be missing."""
    names = {path.name for path in folder.iterdir()}
    xplanes_without_json = [
        n for n in sorted(names) if not {n.replace(XPLANE, f".trace{suffix}") for suffix in JSON} & names
    ]
    if problem := why_xplane(folder, xplanes_without_json):
        raise UsageMistake(f"{folder}: {problem}")


def the_iteration(folder: Path) -> list[Path]:
    """Return the traces of the one step that a folder holds, none where it holds none. Raises SeveralCaptures for
    several.
    """
    folders = iterations(folder)
    if len(folders) > 1:
        names = ", ".join(path.name for path in folders[:3]) + (" …" if len(folders) > 3 else "")
        raise SeveralCaptures(
            f"{folder}: holds the traces of {len(folders)} steps ({names}), each with its ranks: give one of them"
        )
    return traces_in(folders[0], ()) if folders else []


def why_xplane(folder: Path, names: Sequence[str]) -> str | None:
    """Describe what to do about a profile of JAX of which only the protobuf is there; None where there is none."""
    xplanes = [name for name in names if name.endswith(XPLANE)]
    if not xplanes:
        return None
    source = str(folder / xplanes[0])
    target = source.removesuffix(XPLANE) + ".trace.json.gz"
    return (
        f"holds {printable(xplanes[0])} without its trace.json.gz: install xprof beside JAX and profile again, or "
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
    """Open a SQLite file with the reader of the profiler that wrote it, told by the names of its tables."""
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
    """Return whether a trace is tables, of nsys or of rocprofv3, else JSON."""
    return _reader_of(path) is not _json


def _mark_in(file: SqliteFile) -> Mark | None:
    """Return the mark of a cut, None for an export that is none. Raises TraceError for a damaged mark."""
    if CUT_TABLE not in file.tables:
        return None
    from pytest_nsys.traces.cut import read_mark

    return read_mark(file.path, "".join(str(text) for (text,) in file.rows(f"SELECT mark FROM {CUT_TABLE}")))


def mark_of(path: Path) -> Mark | None:
    """Return the mark of a cut; None for a whole trace, and for a file that is none. Raises TraceError for a damaged
    cut.
    """
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
    """Return whether rocprofv3 wrote the file; one that is named like it and cannot be read fails where it is
    opened.
    """
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

# How nsys ends the name of a folder of Parquet files, which is one trace.
PARQUET = "_pqtdir"


def find_traces(value: str, base: Path) -> tuple[Path, ...]:
    """Return the files that ``value`` means, relative to ``base``, in the order of their names.

    Raises UsageMistake where there are none.
    """
    if not value.strip():  # as of a variable that nobody set: it would mean the folder
        raise UsageMistake("the path of a trace is empty")
    with one_line(UsageMistake, f"{printable(value)}: cannot be read"):
        return _find(value, base / Path(value).expanduser())


def is_there(value: str, base: Path) -> bool:
    """Return whether ``value`` means anything at all, be it no trace; a folder that is kept empty in git is nothing.

    Raises UsageMistake where the path cannot be read.
    """
    with one_line(UsageMistake, f"{printable(value)}: cannot be read"):
        path = base / Path(value).expanduser()
        if path.is_dir():
            return any(not entry.name.startswith(".") for entry in path.iterdir())
        return path.exists() or (glob.has_magic(value) and any(glob.iglob(str(path), recursive=True)))


def _find(value: str, path: Path) -> tuple[Path, ...]:
    if is_parquet(path):
        return (path,)
    if path.is_dir():
        traces = [*traces_in(path, IN_FOLDERS), *filter(is_parquet, sorted(path.iterdir()))] or the_iteration(path)
        traces = traces or split_profile(path) or of_hosts(path)
        if not traces:
            raise UsageMistake(f"{path}: {_why_no_traces(path)}")
        check_xplanes(path)
        return _one_of_each(traces)
    if path.exists():
        return (path,)
    if glob.has_magic(value):
        matches = sorted((Path(p) for p in glob.glob(str(path), recursive=True)), key=by_number)
        traces = without_cuts([p for p in matches if (p.is_file() and not p.name.endswith(GPU_LOG)) or is_parquet(p)])
        if not traces:
            folder_text = f"; {matches[0]} is a folder, and each folder is a run of its own" if matches else ""
            raise UsageMistake(f"{path}: matches no file{folder_text}")
        return _one_of_each(traces)
    raise UsageMistake(f"{path}: there is no such file or folder")


def stem_of(path: Path) -> str:
    """Return the name of a trace, or of a folder that holds several, without what says its format."""
    name = path.resolve().name
    suffixes = [suffix for suffix in (*READERS, PARQUET) if name.endswith(suffix)]
    return name.removesuffix(max(suffixes, key=len, default=""))


def is_parquet(path: Path) -> bool:
    """Return whether the path is a folder of Parquet files that nsys wrote."""
    return path.is_dir() and (path.name.endswith(PARQUET) or (path / "StringIds.parquet").is_file())


def _one_of_each(found: Sequence[Path]) -> tuple[Path, ...]:
    """Return the traces without exports that repeat their report, or another export of it.

    A report's reader takes the export beside it where that is not older.
    """
    reports = {path.with_suffix("") for path in found if path.suffix in REPORTS}
    exports = {path.with_suffix("") for path in found if path.suffix in EXPORTS}

    def is_repeated(path: Path) -> bool:
        if path.suffix in EXPORTS:
            return path.with_suffix("") in reports
        return path.name.endswith(PARQUET) and path.with_name(path.name.removesuffix(PARQUET)) in reports | exports

    return _of_workers([path for path in found if not is_repeated(path)])


def _of_workers(found: Sequence[Path]) -> tuple[Path, ...]:
    """Return the traces without the databases of launchers such as torchrun: rocprofv3 writes one for every process.

    Such a database has no kernel and no range; where all are so, they stay, for an error to name them.
    """
    busy_paths = tuple(path for path in found if path.suffix != ROCPD or len(found) == 1 or not _is_idle(path))
    return busy_paths or tuple(found)


def _is_idle(path: Path) -> bool:
    """Return whether a process used no GPU and marked nothing; a trace that cannot be read fails where it is opened."""
    try:
        with closing(_sqlite(path)) as trace:
            return not trace.facts().has_kernels and not trace.ranges(["%"])
    except TraceError:
        return False


def _why_no_traces(folder: Path) -> str:
    entries = sorted(folder.iterdir())
    raw_files = [p.name for p in entries if p.suffix == ".qdstrm"]
    if raw_files:
        return (
            f"holds no trace, but {printable(raw_files[0])}, which nsys could not turn into a report: capture it again"
        )
    if xplane := why_xplane(folder, [p.name for p in entries]):
        return xplane
    if problem := _why_others(folder):
        return problem
    trace_folders = [p.name for p in entries if p.is_dir() and p.name[0] != "." and traces_in(p, IN_FOLDERS)]
    if trace_folders:
        return f"holds no trace itself; its folder {trace_folders[0]} does: one run is one folder"
    return f"holds no trace ({', '.join(f'*{suffix}' for suffix in (*IN_FOLDERS, *JSON, RESULTS))})"


def _why_others(folder: Path) -> str | None:
    """Describe the first file of a profiler that is not read, and what to do; None where there is none."""
    files = sorted(path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file())
    for path in files:
        if path.name.endswith(JSON):
            from pytest_nsys.traces.chrome.writers import why_not_read

            with suppress(TraceError):  # of what cannot be read nothing is known
                if problem := why_not_read([path]):
                    return problem
        elif problem := _why_other(path):
            return f"holds {printable(path.name)}, which {problem}"
    return None


def _why_other(path: Path) -> str | None:
    """Describe a file that is no JSON, and what to do, where a profiler that is not read wrote it; else return None."""
    for suffix, problem in SUFFIXES.items():
        if path.name.endswith(suffix):
            return problem
    if path.suffix != CSV:
        return None
    with suppress(OSError), path.open("rb") as file:
        return describe_csv(file.read(LOOKED_AT))
    return None


def check_one_format(traces: Sequence[Trace]) -> None:
    """Raise SeveralCaptures where the traces of one run are of two formats; a report is of the format of its export."""
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
    """Open the trace in a file. Raises TraceError for a file that is none."""
    return _reader_of(path)(path)


def format_of(path: Path) -> str:
    """Describe which profiler wrote a trace, and as what. Raises TraceError for a file that cannot be read."""
    reader = _reader_of(path)
    if mark_of(path) is not None:
        return "pytest-nsys cut"
    if reader is _json:
        from pytest_nsys.traces.chrome.writers import WRITERS, writer_of

        trace_writer = writer_of(path)
        return next((name for name, writer in WRITERS.items() if writer is trace_writer), IN_WORDS[_json])
    if reader is _sqlite and _is_rocpd(path):
        return "database of rocprofv3"
    return IN_WORDS[reader]


def usual_convention(path: Path) -> Usual | None:
    """Return under which convention a trace of this format is usually read, None for exports of nsys.

    A cut is read under the convention it was cut under. Raises TraceError for a file that cannot be read, UsageMistake
    for a cut whose convention is not known.
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
    """Return the reader of a file, by its suffix, else by its first bytes: gzip or JSON in a file of any name.

    Everything else is taken for an export of nsys.
    """
    if is_parquet(path):
        return _parquet
    if path.name.endswith(GATE_SUFFIX):
        raise TraceError(f"{path}: is a gate file, not a trace: pytest judges by it, `pytest-nsys check` checks it")
    if path.is_file() and _why_other(path) is not None:
        return _refused
    reader = next((suffix_reader for suffix, suffix_reader in READERS.items() if path.name.endswith(suffix)), None)
    if reader is not None:
        return reader
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
