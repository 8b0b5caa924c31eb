"""Which profiler wrote a trace in Chrome's JSON? Its first bytes tell it, never its name.

A new profiler is one entry of ``WRITERS``: what marks its files, and its reader.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.core.conventions import BUILT_IN
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.file_names import CUT_MEMBER
from pytest_nsys.core.model import MACHINE_BITS
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.words import printable
from pytest_nsys.traces.chrome.jax import Jax
from pytest_nsys.traces.chrome.json_stream import BLOCK, blocks, head
from pytest_nsys.traces.chrome.kineto import Kineto
from pytest_nsys.traces.cut import CutTrace, Mark, Usual, read_mark
from pytest_nsys.traces.other_profilers import describe_json

LOOKED_AT = 1 << 18
_WIDE = (b"{\0", b"[\0", b"\xff\xfe", b"\xfe\xff")
"""How text in characters of two or four bytes begins, after the zeros of the first character."""


class Writer(NamedTuple):
    """Describes one profiler whose JSON traces can be read."""

    marks: re.Pattern[bytes]  # what its files hold near their beginning
    read: Callable[[Path, Mapping[int, int]], Trace]  # the numbers are those of a cut's processes, by machine
    usual: Usual  # under which its traces are read where nothing else is stated


_CATEGORIES = (
    rb"[Kk]ernel|cpu_op|Operator|cuda_runtime|cuda_driver|Runtime|Memcpy|gpu_mem\w+|(?:gpu_)?user_annotation|"
    rb"python_function|ac2g|fwdbwd|async_\w+|Trace"
)


_CUT = re.compile(rb'"' + CUT_MEMBER.encode() + rb'"\s*:\s*')
"""Matches the member of the root that holds the mark of a cut; it stands before the events."""
JAX_METADATA = "highres-ticks"

WRITERS: Mapping[str, Writer] = {
    "JAX": Writer(
        re.compile(rb'(?<!\\)"(?:' + JAX_METADATA.encode() + rb'"|/device:[A-Z]+:\d+|/host:CPU")'),
        Jax,
        Usual(BUILT_IN["jax"]),
    ),
    "torch.profiler": Writer(
        re.compile(
            rb'"(?:schemaVersion|distributedInfo|deviceProperties|baseTimeNanoseconds)"\s*:|'
            rb'"cat"\s*:\s*"(?:' + _CATEGORIES + rb')"'
        ),
        Kineto,
        Usual(BUILT_IN["kineto"]),
    ),
}


def writer_of(path: Path) -> Writer | None:
    """Return the profiler that wrote a file, None for other JSON. Raises TraceError where it cannot be read."""
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
    """Whether a profiler wrote the file. A file that cannot be read may be a trace, and fails where it is opened."""
    try:
        return writer_of(path) is not None
    except TraceError:
        return True


def mark_of_json(path: Path) -> Mark | None:
    """Read the mark of a cut; None for a trace that is no cut. Raises TraceError."""
    if (match := _CUT.search(head(path, LOOKED_AT))) is None:
        return None
    text = b"".join(blocks(path, BLOCK)).decode("utf-8", "replace")  # the mark itself is ASCII, as all before it is
    return read_mark(path, text[match.end() :])


def open_json(path: Path) -> Trace:
    """Open the trace in a JSON file, plain or gzip. Raises TraceError for a file that is none."""
    writer = writer_of(path)
    if writer is None:
        problem = "is JSON, but no trace of torch.profiler or JAX: it has none of their marks"
        raise TraceError(f"{path}: {why_not_read([path]) or problem}")
    if (mark := mark_of_json(path)) is None:
        return writer.read(path, {})
    numbers = {rank.process >> MACHINE_BITS: rank.pid for rank in mark.ranks}
    return CutTrace.of(writer.read(path, numbers), mark)


def why_not_read(paths: Iterable[Path]) -> str | None:
    """Describe what the first JSON file of a profiler without support is, and what to do; None where no file is one."""
    descriptions = (describe_json(head(path, LOOKED_AT), printable(path.name)) for path in paths)
    return next(filter(None, descriptions), None)
