"""Which profiler wrote a trace in Chrome's JSON? Told by what is in its first bytes, never by its name.

A new profiler is one entry of ``WRITERS``: what marks its files, and its reader.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.core.conventions import BUILT_IN, Convention, read_convention
from pytest_nsys.core.errors import TraceError, UsageMistake
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.words import printable
from pytest_nsys.traces.chrome.cut import MARK, CutTrace
from pytest_nsys.traces.chrome.jax import Jax
from pytest_nsys.traces.chrome.json_stream import head
from pytest_nsys.traces.chrome.kineto import Kineto
from pytest_nsys.traces.other_profilers import describe_json

LOOKED_AT = 1 << 18
_WIDE = (b"{\0", b"[\0", b"\xff\xfe", b"\xfe\xff")
"""How text in characters of two or four bytes begins, behind the zeros of the first."""


class Usual(NamedTuple):
    """Under which convention traces of a format are usually read. ``certain``: this trace under no other one.

    ``whole_run``: it has no windows.
    """

    convention: Convention
    certain: bool = False
    whole_run: bool = False


class Writer(NamedTuple):
    """One profiler: an expression that its files hold near their beginning, what reads them, and under which convention
    they are usually read.
    """

    marks: re.Pattern[bytes]
    read: Callable[[Path], Trace]
    usual: Callable[[Path], Usual]


_CATEGORIES = (
    rb"[Kk]ernel|cpu_op|Operator|cuda_runtime|cuda_driver|Runtime|Memcpy|gpu_mem\w+|(?:gpu_)?user_annotation|"
    rb"python_function|ac2g|fwdbwd|async_\w+|Trace"
)


def _of_a_cut(path: Path) -> Usual:
    """What it was cut under. Raises UsageMistake for a convention of which a cut keeps the name alone, as older ones do
    of any that is not built in: it has to be named.
    """
    cut = CutTrace(path).about
    convention = BUILT_IN.get(cut.convention)
    if convention is None or convention.fingerprint() != cut.fingerprint:
        convention = _kept(cut.mapping)
    if convention is None or convention.fingerprint() != cut.fingerprint:
        raise UsageMistake(
            f"{path}: is a cut under a convention that is not built in ('{printable(cut.convention, 60)}'): name the "
            "file that has it, --convention FILE"
        )
    whole_run = all(view.whole_run for view in cut.views) and not any(one.anchors or one.units for one in cut.processes)
    return Usual(convention, certain=True, whole_run=whole_run)


def _kept(mapping: object) -> Convention | None:
    try:
        return read_convention(mapping)
    except ValueError:
        return None


WRITERS: Mapping[str, Writer] = {
    "pytest-nsys cut": Writer(MARK, CutTrace, _of_a_cut),
    "JAX": Writer(
        re.compile(rb'(?<!\\)"(?:highres-ticks"|/device:[A-Z]+:\d+|/host:CPU")'), Jax, lambda _: Usual(BUILT_IN["jax"])
    ),
    "torch.profiler": Writer(
        re.compile(
            rb'"(?:schemaVersion|distributedInfo|deviceProperties|baseTimeNanoseconds)"\s*:|'
            rb'"cat"\s*:\s*"(?:' + _CATEGORIES + rb')"'
        ),
        Kineto,
        lambda _: Usual(BUILT_IN["kineto"]),
    ),
}


def writer_of(path: Path) -> Writer | None:
    """The profiler that wrote a file, None for JSON of another kind. Raises TraceError where it cannot be read."""
    start = head(path, LOOKED_AT)
    if b"\0" in start[:4] and start.strip(b"\0")[:2] in _WIDE:
        raise TraceError(f"{path}: is text in UTF-16 or UTF-32: write it as UTF-8, as profilers do")
    if start.startswith(b"SQLite format 3"):
        raise TraceError(f"{path}: is a packed SQLite database: unpack it (gunzip {shlex.quote(path.name)})")
    if start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] not in (b"{", b"["):
        raise TraceError(f"{path}: is not JSON: give what torch.profiler or the profiler of JAX wrote")
    if describe_json(start, path.name) is not None:  # torch_npu has the categories of torch.profiler, too
        return None
    return next((writer for writer in WRITERS.values() if writer.marks.search(start)), None)


def is_trace(path: Path) -> bool:
    """Whether a profiler wrote the file; one that cannot be read may be one, and fails where it is opened."""
    try:
        return writer_of(path) is not None
    except TraceError:
        return True


def open_json(path: Path) -> Trace:
    """The trace in a JSON file, plain or gzip. Raises TraceError for a file that is none."""
    writer = writer_of(path)
    if writer is None:
        why = "is JSON, but no trace of torch.profiler or JAX: it has none of their marks"
        raise TraceError(f"{path}: {why_not_read([path]) or why}")
    return writer.read(path)


def why_not_read(paths: Iterable[Path]) -> str | None:
    """What the first JSON of another profiler is, and what to do; None where no file is that."""
    each = (describe_json(head(path, LOOKED_AT), printable(path.name)) for path in paths)
    return next(filter(None, each), None)
