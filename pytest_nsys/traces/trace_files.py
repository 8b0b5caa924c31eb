"""Which files does a path match, in which order, and in which format is each?

One value (file, folder or glob) is one run: a folder stands for the traces directly in it, a glob for what it matches.
Names sort by their numbers: ``rank2`` before ``rank10``. TorchTitan keeps the traces of all ranks at one step in
``iteration_N/``: each of these folders is a run. A new format is one module of this package and one entry in
``READERS``. A report and the export of the same name next to it are one trace.

A copy of a trace under another name is no second sample of a program. Sizes of real traces all differ, so files are
only read if they have the same size, and then up to the first byte in which they differ.
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

from pytest_nsys.core.errors import SeveralCaptures, TraceError, UsageMistake, convert_os_errors, suggest_path
from pytest_nsys.core.file_names import CUT_MARK_TABLE, CUT_SUFFIXES, DRAWING_SUFFIX, GATE_SUFFIX
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.trace import Trace
from pytest_nsys.traces.other_profilers import UNREAD_SUFFIXES, describe_csv
from pytest_nsys.traces.sidecars.gpu_log import GPU_LOG_SUFFIX as GPU_LOG
from pytest_nsys.traces.sqlite.file import SQLITE_MAGIC, SqliteFile, read_first_page

if TYPE_CHECKING:
    from pytest_nsys.traces.cut_trace import CutMark, UsualConvention


class DuplicateTrace(NamedTuple):
    """Names two paths to one trace: one file, or two with the same bytes."""

    first: Path
    second: Path

    @property
    def is_file_copy(self) -> bool:
        """Whether the two are different files with the same bytes."""
        return self.first.resolve() != self.second.resolve()


def find_duplicate_trace(captures: Iterable[Iterable[Path]]) -> DuplicateTrace | None:
    """Return the first trace that two of the captures share; None if they share none."""
    return next(iterate_duplicate_traces(captures), None)


def iterate_duplicate_traces(captures: Iterable[Iterable[Path]]) -> Iterator[DuplicateTrace]:
    """Yield each trace that an earlier capture also holds, once."""
    earlier_paths: dict[object, list[Path]] = {}
    for capture in captures:
        likeness_and_paths = [(_compute_likeness(path), path) for path in capture]
        for likeness, second in likeness_and_paths:
            duplicates = (
                earlier_path
                for earlier_path in earlier_paths.get(likeness, ())
                if earlier_path.resolve() == second.resolve() or _have_same_bytes(earlier_path, second)
            )
            if first := next(duplicates, None):
                yield DuplicateTrace(first, second)
        for likeness, path in likeness_and_paths:
            earlier_paths.setdefault(likeness, []).append(path)


def _iterate_files(path: Path) -> Iterator[Path]:
    """Yield the files of a trace, which may be a folder of them."""
    return iter(sorted(path.rglob("*.parquet"))) if path.is_dir() else iter([path])


def _compute_likeness(path: Path) -> object:
    """Return a value that is equal for two traces with the same bytes; for an empty trace, one that equals no other."""
    try:
        files = [(str(file.relative_to(path)), *_read_size_and_sample(file)) for file in _iterate_files(path)]
    except OSError:  # the reader says why
        return path
    return tuple(files) if any(size for _, size, _ in files) else path


def _read_size_and_sample(path: Path) -> tuple[int, int]:
    """Return the size of a file in bytes and a hash of samples of it, because the traces of all ranks may have one
    size.
    """
    size = path.stat().st_size
    if not size:
        return 0, 0
    with path.open("rb") as file:
        samples = []
        for n in range(SAMPLES_OF_FILE):
            file.seek(size * n // SAMPLES_OF_FILE)
            samples.append(file.read(SAMPLE_BYTES))
    return size, hash(b"".join(samples))


def _have_same_bytes(first: Path, second: Path) -> bool:
    try:
        pairs = zip(_iterate_files(first), _iterate_files(second), strict=True)
        return all(filecmp.cmp(a, b, shallow=False) for a, b in pairs)
    except OSError:
        return False


# Samples of a file, which usually suffice to show that it is no copy of another.
SAMPLES_OF_FILE, SAMPLE_BYTES = 16, 1 << 12

# Only JSON with a profiler's markers counts: folders of traces also hold other JSON.
JSON_SUFFIXES = (".json", ".json.gz")
SQLITE_SUFFIXES = (".sqlite", ".sqlite.gz")
XPLANE_SUFFIX = ".xplane.pb"
# How rocprofv3 ends its databases' names, and begins those of their tables; other databases lie beside traces, too.
ROCPD_SUFFIX, ROCPD_RESULTS_SUFFIX, ROCPD_TABLE_PREFIX = ".db", "_results.db", "rocpd_"
CSV_SUFFIX = ".csv"
# Bytes in which the header of a CSV file is.
CSV_HEADER_BYTES = 1 << 10
ITERATION_FOLDER = re.compile(r"iteration_(\d+)")
# JAX names the folder of a profile by the second in which it began.
JAX_PROFILE_FOLDER = re.compile(r"\d{4}(_\d\d){5}.*")
# The same trace once more, which JAX writes beside it on request (create_perfetto_trace).
JAX_PERFETTO_FILES = ("perfetto_trace.json.gz", "perfetto_trace.json")
_NUMBER_PART = re.compile(r"(\d+)")


def make_number_key(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Return the key by which paths are sorted: numbers in a name by their value, the rest as text."""
    parts = _NUMBER_PART.split(str(path))
    return [(int(part), "") if part.isascii() and part.isdecimal() else (-1, part) for part in parts], str(path)


def list_traces_in(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the traces directly in a folder, sorted by number: files with the suffixes, and a profiler's JSON and
    databases.
    """
    files = sorted((path for path in folder.iterdir() if path.is_file()), key=make_number_key)
    trace_paths = [
        path
        for path in files
        if path.name.endswith(tuple(suffixes))
        or _is_json_trace(path)
        or (path.suffix == ROCPD_SUFFIX and _is_rocpd_file(path))
    ]
    return exclude_cuts([path for path in trace_paths if path.name not in JAX_PERFETTO_FILES] or trace_paths)


def exclude_cuts(paths: list[Path]) -> list[Path]:
    """Return the files without cuts of traces; if all are cuts, all of them."""
    return [path for path in paths if not path.name.endswith((*CUT_SUFFIXES, DRAWING_SUFFIX))] or paths


def _is_json_trace(path: Path) -> bool:
    if not path.name.endswith(JSON_SUFFIXES):
        return False
    from pytest_nsys.traces.chrome.writers import is_trace  # gates on exports of nsys do not pay for it

    return is_trace(path)


def list_iteration_folders(folder: Path) -> list[Path]:
    """Return the folders of TorchTitan's steps that hold traces, ordered by step."""
    folders = [path for path in folder.iterdir() if ITERATION_FOLDER.fullmatch(path.name) and path.is_dir()]
    return [path for path in sorted(folders, key=make_number_key) if list_traces_in(path, ())]


def list_jax_traces(folder: Path) -> list[Path]:
    """Return the traces of JAX below a log folder, ordered by host. Raises UsageMistake if a host lacks its JSON.

    One profiling window may lie in several ``profile/<time>/``, because each process names its folder by its own clock.
    """
    root = next((path for path in (folder / "plugins" / "profile", folder / "profile") if path.is_dir()), folder)
    traces: list[Path] = []
    for profile_folder in root.iterdir():
        if profile_folder.is_dir() and JAX_PROFILE_FOLDER.fullmatch(profile_folder.name):
            check_xplanes(profile_folder)
            traces += list_traces_in(profile_folder, ())
    return sorted(traces, key=lambda path: (make_number_key(Path(path.name)), make_number_key(path)))


def list_host_databases(folder: Path) -> list[Path]:
    """Return the databases of rocprofv3 in ``HOST/``, the folder that it creates below its output folder."""
    return [
        path for path in sorted(folder.glob(f"*/*{ROCPD_RESULTS_SUFFIX}"), key=make_number_key) if _is_rocpd_file(path)
    ]


def check_xplanes(folder: Path) -> None:
    """Raise UsageMistake if a profile of JAX in a folder has no JSON next to it: a rank would be missing."""
    names = {path.name for path in folder.iterdir()}
    xplanes_without_json = [
        n
        for n in sorted(names)
        if not {n.replace(XPLANE_SUFFIX, f".trace{suffix}") for suffix in JSON_SUFFIXES} & names
    ]
    if problem := describe_xplane_without_json(folder, xplanes_without_json):
        raise UsageMistake(f"{folder}: {problem}")


def list_iteration_traces(folder: Path) -> list[Path]:
    """Return the traces of the only step in a folder; empty if it holds none. Raises SeveralCaptures for several
    steps.
    """
    folders = list_iteration_folders(folder)
    if len(folders) > 1:
        names = ", ".join(path.name for path in folders[:3]) + (" …" if len(folders) > 3 else "")
        raise SeveralCaptures(
            f"{folder}: holds the traces of {len(folders)} steps ({names}), each with its ranks: give one of them"
        )
    return list_traces_in(folders[0], ()) if folders else []


def describe_xplane_without_json(folder: Path, names: Sequence[str]) -> str | None:
    """Describe what to do about a profile of JAX that exists only as protobuf; None if there is none."""
    xplanes = [name for name in names if name.endswith(XPLANE_SUFFIX)]
    if not xplanes:
        return None
    source = str(folder / xplanes[0])
    target = source.removesuffix(XPLANE_SUFFIX) + ".trace.json.gz"
    return (
        f"holds {sanitize_line(xplanes[0])} without its trace.json.gz: install xprof beside JAX and profile again, or "
        'convert it: python -c "import gzip; from xprof.convert.raw_to_tool_data import xspace_to_tool_data as tool; '
        f"gzip.open({target!r}, 'wt').write(tool([{source!r}], 'trace_viewer', {{}})[0])\""
    )


def _open_report(path: Path) -> Trace:
    from pytest_nsys.traces.nsys.export_cache import (
        ExportedTrace,
        find_or_write_export,  # it starts programs, which few runs need
    )

    return ExportedTrace(path, find_or_write_export(path))


def _open_parquet(path: Path) -> Trace:
    from pytest_nsys.traces.nsys.export_cache import ExportedTrace
    from pytest_nsys.traces.nsys.parquet import export_parquet

    return ExportedTrace(path, export_parquet(path))


def _refuse_raw_stream(path: Path) -> Trace:
    from pytest_nsys.traces.nsys.export_cache import raise_raw_stream_error

    return raise_raw_stream_error(path)


def _open_sqlite(path: Path) -> Trace:
    """Open a SQLite file with the reader of the profiler that wrote it, which the names of its tables show."""
    file = SqliteFile(path, remedy="profile again") if path.suffix == ROCPD_SUFFIX else SqliteFile(path)
    if not _has_rocpd_tables(file):
        from pytest_nsys.traces.nsys.sqlite import NsysSqlite  # whoever looks for a trace does not read it yet

        trace = NsysSqlite(path, file)
        if (mark := _read_file_mark(file)) is None:
            return trace
        from pytest_nsys.traces.cut_trace import CutTrace  # nor do whole traces pay for what reads a part of one

        return CutTrace.from_cut_file(trace, mark)
    from pytest_nsys.traces.rocpd.database import RocpdDatabase  # gates on exports of nsys do not pay for it

    return RocpdDatabase(path, file)


def is_table_trace(path: Path) -> bool:
    """Return whether a trace consists of tables, of nsys or of rocprofv3, and not of JSON."""
    return _choose_reader(path) is not _open_json_trace


def _read_file_mark(file: SqliteFile) -> CutMark | None:
    """Return the mark of a cut; None for an ordinary export. Raises TraceError for a damaged mark."""
    if CUT_MARK_TABLE not in file.tables:
        return None
    from pytest_nsys.traces.cut_trace import parse_cut_mark

    return parse_cut_mark(
        file.path, "".join(str(text) for (text,) in file.fetch_rows(f"SELECT mark FROM {CUT_MARK_TABLE}"))
    )


def read_cut_mark(path: Path) -> CutMark | None:
    """Return the mark of a cut; None for a whole trace, and for a file that is no trace. Raises TraceError for a
    damaged cut.
    """
    reader = _choose_reader(path)
    if reader is _open_json_trace:
        from pytest_nsys.traces.chrome.writers import read_json_cut_mark

        return read_json_cut_mark(path)
    if reader is not _open_sqlite or CUT_MARK_TABLE.encode() not in read_first_page(
        path
    ):  # where a cut names its first tables
        return None
    with closing(SqliteFile(path)) as file:
        return _read_file_mark(file)


def _has_rocpd_tables(file: SqliteFile) -> bool:
    return any(name.startswith(ROCPD_TABLE_PREFIX) for name in file.tables)


def _is_rocpd_file(path: Path) -> bool:
    """Return whether rocprofv3 wrote the file; also True for an unreadable one with such a name, which then fails on
    opening.
    """
    try:
        with closing(SqliteFile(path)) as file:
            return _has_rocpd_tables(file)
    except TraceError:
        return path.name.endswith(ROCPD_RESULTS_SUFFIX)


def _open_json_trace(path: Path) -> Trace:
    from pytest_nsys.traces.chrome.writers import open_json  # gates on exports of nsys do not pay for it

    return open_json(path)


def _refuse_xplane(path: Path) -> Trace:
    raise TraceError(f"{path}: {describe_xplane_without_json(path.parent, [path.name])}")


def _refuse_other_profiler(path: Path) -> Trace:
    raise TraceError(f"{path}: {_describe_other_file(path)}")


READERS: Mapping[str, Callable[[Path], Trace]] = {
    ".sqlite": _open_sqlite,
    ".sqlite3": _open_sqlite,
    ".sqlite.gz": _open_sqlite,
    ROCPD_SUFFIX: _open_sqlite,
    ".nsys-rep": _open_report,
    ".qdrep": _open_report,
    ".qdstrm": _refuse_raw_stream,
    ".pt.trace.json": _open_json_trace,
    ".pt.trace.json.gz": _open_json_trace,
    ".json": _open_json_trace,
    ".json.gz": _open_json_trace,
    XPLANE_SUFFIX: _refuse_xplane,
}
READER_LABELS: Mapping[Callable[[Path], Trace], str] = {
    _open_sqlite: "SQLite export of nsys",
    _open_parquet: "Parquet export of nsys",
    _open_report: "report of nsys",
    _refuse_raw_stream: "raw data of nsys",
    _open_json_trace: "JSON",
    _refuse_xplane: "profile of XLA",
    _refuse_other_profiler: "file of another profiler",
}
"""The format that each reader reads, if nothing in the file says more."""
REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
EXPORT_SUFFIXES = (".sqlite", ".sqlite3")
FOLDER_SUFFIXES = (*EXPORT_SUFFIXES, *REPORT_SUFFIXES, *CUT_SUFFIXES[:1])
"""Suffixes that are searched for in a folder; other files are only read if they are named."""

# How nsys ends the name of a folder of Parquet files, which is one trace.
PARQUET_FOLDER_SUFFIX = "_pqtdir"


def find_traces(value: str, base: Path) -> tuple[Path, ...]:
    """Return the files that ``value``, relative to ``base``, matches, sorted by name.

    Raises UsageMistake if there are none.
    """
    if not value.strip():  # such as an unset variable, which would match the folder
        raise UsageMistake("the path of a trace is empty")
    with convert_os_errors(UsageMistake, f"{sanitize_line(value)}: cannot be read"):
        return _resolve_path(value, base / Path(value).expanduser())


def matches_anything(value: str, base: Path) -> bool:
    """Return whether ``value`` matches anything, trace or not; a folder that git keeps only with a placeholder is
    nothing.

    Raises UsageMistake if the path cannot be read.
    """
    with convert_os_errors(UsageMistake, f"{sanitize_line(value)}: cannot be read"):
        path = base / Path(value).expanduser()
        if path.is_dir():
            return any(not entry.name.startswith(".") for entry in path.iterdir())
        return path.exists() or (glob.has_magic(value) and any(glob.iglob(str(path), recursive=True)))


def _resolve_path(value: str, path: Path) -> tuple[Path, ...]:
    if is_parquet(path):
        return (path,)
    if path.is_dir():
        traces = [
            *list_traces_in(path, FOLDER_SUFFIXES),
            *filter(is_parquet, sorted(path.iterdir())),
        ] or list_iteration_traces(path)
        traces = traces or list_jax_traces(path) or list_host_databases(path)
        if not traces:
            raise UsageMistake(f"{path}: {_describe_missing_traces(path)}")
        check_xplanes(path)
        return _exclude_repeated_exports(traces)
    if path.exists():
        return (path,)
    if glob.has_magic(value):
        matches = sorted((Path(p) for p in glob.glob(str(path), recursive=True)), key=make_number_key)
        traces = exclude_cuts([p for p in matches if (p.is_file() and not p.name.endswith(GPU_LOG)) or is_parquet(p)])
        if not traces:
            folder_text = f"; {matches[0]} is a folder, and each folder is a run of its own" if matches else ""
            raise UsageMistake(f"{path}: matches no file{folder_text}")
        return _exclude_repeated_exports(traces)
    raise UsageMistake(f"{path}: there is no such file or folder{sanitize_line(suggest_path(path))}")


def get_trace_stem(path: Path) -> str:
    """Return the name of a trace, or of a folder with several, without the endings that state its format."""
    name = path.resolve().name
    suffixes = [suffix for suffix in (*READERS, PARQUET_FOLDER_SUFFIX) if name.endswith(suffix)]
    return name.removesuffix(max(suffixes, key=len, default=""))


def is_parquet(path: Path) -> bool:
    """Return whether the path is a folder of Parquet files that nsys wrote."""
    return path.is_dir() and (path.name.endswith(PARQUET_FOLDER_SUFFIX) or (path / "StringIds.parquet").is_file())


def _exclude_repeated_exports(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the traces without exports that repeat their report, or another export of it.

    The reader of a report uses the export next to it, if that is not older.
    """
    reports = {path.with_suffix("") for path in paths if path.suffix in REPORT_SUFFIXES}
    exports = {path.with_suffix("") for path in paths if path.suffix in EXPORT_SUFFIXES}

    def is_repeated(path: Path) -> bool:
        if path.suffix in EXPORT_SUFFIXES:
            return path.with_suffix("") in reports
        return (
            path.name.endswith(PARQUET_FOLDER_SUFFIX)
            and path.with_name(path.name.removesuffix(PARQUET_FOLDER_SUFFIX)) in reports | exports
        )

    return _exclude_idle_databases([path for path in paths if not is_repeated(path)])


def _exclude_idle_databases(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the traces without the databases of launchers such as torchrun: rocprofv3 writes one for every process.

    Such a database has no kernel and no range. If all are like that, they stay, so that an error can name them.
    """
    busy_paths = tuple(
        path for path in paths if path.suffix != ROCPD_SUFFIX or len(paths) == 1 or not _is_idle_database(path)
    )
    return busy_paths or tuple(paths)


def _is_idle_database(path: Path) -> bool:
    """Return whether a process used no GPU and marked nothing; False for an unreadable trace, which fails on
    opening.
    """
    try:
        with closing(_open_sqlite(path)) as trace:
            return not trace.facts().has_kernels and not trace.ranges(["%"])
    except TraceError:
        return False


def _describe_missing_traces(folder: Path) -> str:
    entries = sorted(folder.iterdir())
    raw_files = [p.name for p in entries if p.suffix == ".qdstrm"]
    if raw_files:
        return (
            f"holds no trace, but {sanitize_line(raw_files[0])}, which nsys could not turn into a report: capture it "
            "again"
        )
    if xplane := describe_xplane_without_json(folder, [p.name for p in entries]):
        return xplane
    if problem := _describe_other_files(folder):
        return problem
    trace_folders = [p.name for p in entries if p.is_dir() and p.name[0] != "." and list_traces_in(p, FOLDER_SUFFIXES)]
    if trace_folders:
        return f"holds no trace itself; its folder {trace_folders[0]} does: one run is one folder"
    return (
        "holds no trace "
        f"({', '.join(f'*{suffix}' for suffix in (*FOLDER_SUFFIXES, *JSON_SUFFIXES, ROCPD_RESULTS_SUFFIX))})"
    )


def _describe_other_files(folder: Path) -> str | None:
    """Describe the first file of a profiler that is not supported, and what to do; None if there is none."""
    files = sorted(path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file())
    for path in files:
        if path.name.endswith(JSON_SUFFIXES):
            from pytest_nsys.traces.chrome.writers import describe_foreign_json

            with suppress(TraceError):  # of what cannot be read nothing is known
                if problem := describe_foreign_json([path]):
                    return problem
        elif problem := _describe_other_file(path):
            return f"holds {sanitize_line(path.name)}, which {problem}"
    return None


def _describe_other_file(path: Path) -> str | None:
    """Describe a file that is not JSON, and what to do, if it is from an unsupported profiler; else return None."""
    for suffix, problem in UNREAD_SUFFIXES.items():
        if path.name.endswith(suffix):
            return problem
    if path.suffix != CSV_SUFFIX:
        return None
    with suppress(OSError), path.open("rb") as file:
        return describe_csv(file.read(CSV_HEADER_BYTES))
    return None


def check_one_format(traces: Sequence[Trace]) -> None:
    """Raise SeveralCaptures if the traces of one run have two formats; a report has the format of its export."""
    for trace in traces:
        if _get_reader_class(trace) is not _get_reader_class(traces[0]) and not (
            _is_nsys_trace(trace) and _is_nsys_trace(traces[0])
        ):
            raise SeveralCaptures(
                f"{traces[0].path} and {trace.path} are of two formats: one run is of one profiler: give the files of "
                "one"
            )


def _get_reader_class(trace: Trace) -> type:
    from pytest_nsys.traces.recorded_trace import RecordedTrace

    return trace.format if isinstance(trace, RecordedTrace) else type(trace)


def _is_nsys_trace(trace: Trace) -> bool:
    from pytest_nsys.traces.nsys.sqlite import NsysSqlite  # traces that one reader reads never ask

    return issubclass(_get_reader_class(trace), NsysSqlite)


def open_trace(path: Path) -> Trace:
    """Open the trace in a file. Raises TraceError for a file that is no trace."""
    return _choose_reader(path)(path)


def describe_format(path: Path) -> str:
    """Describe which profiler wrote a trace, and in which format. Raises TraceError for a file that cannot be read."""
    reader = _choose_reader(path)
    if read_cut_mark(path) is not None:
        return "pytest-nsys cut"
    if reader is _open_json_trace:
        from pytest_nsys.traces.chrome.writers import WRITERS, find_writer

        trace_writer = find_writer(path)
        return next(
            (name for name, writer in WRITERS.items() if writer is trace_writer), READER_LABELS[_open_json_trace]
        )
    if reader is _open_sqlite and _is_rocpd_file(path):
        return "database of rocprofv3"
    return READER_LABELS[reader]


def find_usual_convention(path: Path) -> UsualConvention | None:
    """Return the convention under which a trace of this format is usually read; None for exports of nsys.

    A cut is read under the convention it was cut under. Raises TraceError for a file that cannot be read, UsageMistake
    for a cut with an unknown convention.
    """
    if (mark := read_cut_mark(path)) is not None:
        from pytest_nsys.traces.cut_trace import find_cut_convention

        return find_cut_convention(path, mark)
    if _choose_reader(path) is _open_json_trace:
        from pytest_nsys.traces.chrome.writers import find_writer

        if (writer := find_writer(path)) is not None:
            return writer.usual_convention
    return None


def _choose_reader(path: Path) -> Callable[[Path], Trace]:
    """Return the reader of a file, by its suffix, else by its first bytes (gzip or JSON, whatever the name).

    Any other file is read as an export of nsys.
    """
    if is_parquet(path):
        return _open_parquet
    if path.name.endswith(GATE_SUFFIX):
        raise TraceError(f"{path}: is a gate file, not a trace: pytest judges by it, `pytest-nsys check` checks it")
    if path.is_file() and _describe_other_file(path) is not None:
        return _refuse_other_profiler
    reader = next((suffix_reader for suffix, suffix_reader in READERS.items() if path.name.endswith(suffix)), None)
    if reader is not None:
        return reader
    try:
        with path.open("rb") if path.is_file() else io.BytesIO() as file:  # reading a pipe would block
            start = file.read(2)
    except OSError:
        start = b""  # the reader says why
    if start == b"\x1f\x8b":
        from pytest_nsys.traces.chrome.json_stream import read_head

        with suppress(TraceError):  # the reader says why
            return _open_sqlite if read_head(path, len(SQLITE_MAGIC)) == SQLITE_MAGIC else _open_json_trace
        return _open_json_trace
    return _open_json_trace if start[:1] in (b"{", b"[") else _open_sqlite
