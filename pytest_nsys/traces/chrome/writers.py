"""Which profiler wrote a trace in Chrome's JSON? Its first bytes tell it, never its name.

A new profiler is one entry of ``WRITERS``: what marks its files, and its reader.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.file_names import CUT_MARK_MEMBER
from pytest_nsys.core.model import MACHINE_BITS
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.trace import Trace
from pytest_nsys.traces.chrome.jax import JaxTrace
from pytest_nsys.traces.chrome.json_stream import BLOCK, read_head, read_json_blocks
from pytest_nsys.traces.chrome.kineto import KinetoTrace
from pytest_nsys.traces.cut_trace import CutMark, CutTrace, UsualConvention, parse_cut_mark
from pytest_nsys.traces.other_profilers import describe_json

HEAD_BYTES = 1 << 18
_WIDE_TEXT_STARTS = (b"{\0", b"[\0", b"\xff\xfe", b"\xfe\xff")
"""How text in characters of two or four bytes begins, after the zeros of the first character."""


class TraceWriter(NamedTuple):
    """Describes one profiler whose JSON traces can be read."""

    marks_pattern: re.Pattern[bytes]  # what its files hold near their beginning
    open_trace: Callable[[Path, Mapping[int, int]], Trace]  # the numbers are those of a cut's processes, by machine
    usual_convention: UsualConvention  # under which its traces are read where nothing else is stated


_CATEGORIES = (
    rb"[Kk]ernel|cpu_op|Operator|cuda_runtime|cuda_driver|Runtime|Memcpy|gpu_mem\w+|(?:gpu_)?user_annotation|"
    rb"python_function|ac2g|fwdbwd|async_\w+|Trace"
)


_CUT_MARK = re.compile(rb'"' + CUT_MARK_MEMBER.encode() + rb'"\s*:\s*')
"""Matches the member of the root that holds the mark of a cut; it stands before the events."""
JAX_METADATA = "highres-ticks"

WRITERS: Mapping[str, TraceWriter] = {
    "JAX": TraceWriter(
        re.compile(rb'(?<!\\)"(?:' + JAX_METADATA.encode() + rb'"|/device:[A-Z]+:\d+|/host:CPU")'),
        JaxTrace,
        UsualConvention(BUILT_IN_CONVENTIONS["jax"]),
    ),
    "torch.profiler": TraceWriter(
        re.compile(
            rb'"(?:schemaVersion|distributedInfo|deviceProperties|baseTimeNanoseconds)"\s*:|'
            rb'"cat"\s*:\s*"(?:' + _CATEGORIES + rb')"'
        ),
        KinetoTrace,
        UsualConvention(BUILT_IN_CONVENTIONS["kineto"]),
    ),
}


def find_writer(path: Path) -> TraceWriter | None:
    """Return the profiler that wrote a file, None for other JSON. Raises TraceError where it cannot be read."""
    start = read_head(path, HEAD_BYTES)
    if b"\0" in start[:4] and start.strip(b"\0")[:2] in _WIDE_TEXT_STARTS:
        raise TraceError(f"{path}: is text in UTF-16 or UTF-32: write it as UTF-8, as profilers do")
    if start.startswith(b"SQLite format 3"):
        raise TraceError(f"{path}: is a packed SQLite database: unpack it (gunzip {shlex.quote(path.name)})")
    if start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] not in (b"{", b"["):
        raise TraceError(f"{path}: is not JSON: give what torch.profiler or the profiler of JAX wrote")
    if describe_json(start, path.name) is not None:  # torch_npu has the categories of torch.profiler, too
        return None
    return next((writer for writer in WRITERS.values() if writer.marks_pattern.search(start)), None)


def is_trace(path: Path) -> bool:
    """Whether a profiler wrote the file. A file that cannot be read may be a trace, and fails where it is opened."""
    try:
        return find_writer(path) is not None
    except TraceError:
        return True


def read_json_cut_mark(path: Path) -> CutMark | None:
    """Read the mark of a cut; None for a trace that is no cut. Raises TraceError."""
    if (match := _CUT_MARK.search(read_head(path, HEAD_BYTES))) is None:
        return None
    text = b"".join(read_json_blocks(path, BLOCK)).decode(
        "utf-8", "replace"
    )  # the mark itself is ASCII, as all before it is
    return parse_cut_mark(path, text[match.end() :])


def open_json(path: Path) -> Trace:
    """Open the trace in a JSON file, plain or gzip. Raises TraceError for a file that is none."""
    writer = find_writer(path)
    if writer is None:
        problem = "is JSON, but no trace of torch.profiler or JAX: it has none of their marks"
        raise TraceError(f"{path}: {describe_foreign_json([path]) or problem}")
    if (mark := read_json_cut_mark(path)) is None:
        return writer.open_trace(path, {})
    numbers = {rank.process >> MACHINE_BITS: rank.pid for rank in mark.ranks}
    return CutTrace.from_cut_file(writer.open_trace(path, numbers), mark)


def describe_foreign_json(paths: Iterable[Path]) -> str | None:
    """Describe what the first JSON file of a profiler without support is, and what to do; None where no file is one."""
    descriptions = (describe_json(read_head(path, HEAD_BYTES), sanitize_line(path.name)) for path in paths)
    return next(filter(None, descriptions), None)
