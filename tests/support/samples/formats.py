"""How does one and the same step look in every format that the package reads?

A simulated step is written once, rank by rank: as exports of nsys, as traces of torch.profiler or of JAX, or as
databases of rocprofv3. Each is a folder with a file per rank. What the profilers tell in their own ways differs
(clocks, process ids, how a rank is named); kernels, launches, ranges and setup labels are the same, to the nanosecond.
"""

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.samples import schema
from tests.support.samples.builder import DRIVER_API, PUSH_POP_RANGE, TraceBuilder
from tests.support.samples.dualpipe import GOOD, GPU_MODEL, process_ids, put_rank, write_ranks
from tests.support.samples.jax import JaxBuilder
from tests.support.samples.kineto import KinetoBuilder
from tests.support.samples.rocpd import RocpdBuilder
from tests.support.samples.schema import Cell, Export
from tests.support.samples.step import Regression, StepShape

KINETO_CLOCK_NS = 4_458_676_522_690_655_001
"""Where the clock of torch.profiler stands at the zero of the others: times of 19 digits, which no float holds."""

_THREAD_BITS = 0xFFFFFF
_VERSION = re.compile(r"_v\d+\Z")


class Format(enum.StrEnum):
    """Which profiler wrote it."""

    NSYS = "nsys"
    KINETO = "kineto"
    JAX = "jax"
    ROCPD = "rocpd"


ENDINGS: Mapping[Format, str] = {Format.NSYS: "sqlite", Format.KINETO: "json", Format.JAX: "json", Format.ROCPD: "db"}
"""How the names of its files end, by which a reader is chosen."""

BUILDERS: Mapping[Format, Callable[[], TraceBuilder | KinetoBuilder | RocpdBuilder]] = {
    Format.NSYS: TraceBuilder,
    Format.KINETO: partial(KinetoBuilder, rank=None),
    Format.JAX: JaxBuilder,
    Format.ROCPD: RocpdBuilder,
}
"""What writes a trace that states no rank."""


def write_one(folder: Path, format: Format | str, put: Callable[[Any], object]) -> Path:
    """A trace of one process in a folder; see :func:`write_process`."""
    return write_process(folder / f"run.{ENDINGS[Format(format)]}", format, put)


def write_process(path: Path, format: Format | str, put: Callable[[Any], object]) -> Path:
    """A trace of one process, whose rows ``put`` writes by the calls that all builders have; the file."""
    trace = BUILDERS[Format(format)]()
    put(trace.process() if isinstance(trace, TraceBuilder) else trace)
    return trace.write(path)


def write_step(folder: Path, format: Format | str, shape: StepShape, regression: Regression = GOOD) -> Path:
    """Write one step, a file per rank, with the regression on the ranks it names; the folder."""
    if format == Format.NSYS:
        return write_ranks(folder, shape, regression)
    for rank, pid in enumerate(process_ids(shape)):
        made = _Rows()
        put_rank(made, shape, rank, pid, regression)
        if format == Format.KINETO:
            torch = KinetoBuilder(rank, shape.world, pid=pid, device=rank, gpu=GPU_MODEL)
            _put(torch, made, KINETO_CLOCK_NS)
            torch.write(folder / f"rank{rank}_trace.json.gz")
        elif format == Format.ROCPD:
            rocm = RocpdBuilder(pid, device=rank, gpu=GPU_MODEL)
            _put(rocm, made, 0)
            rocm.write(folder / f"{pid}_results.db")
        else:
            jax = JaxBuilder()
            _put(jax, made, 0)
            jax.write(folder / f"host{rank}.trace.json.gz")
    return folder


class _Rows(Export):
    """An export that is never written: its rows stay in memory."""

    def __init__(self) -> None:
        super().__init__(Path("unwritten"))
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def put(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        self.rows.setdefault(table, []).extend(dict(zip(columns, row, strict=True)) for row in rows)


def _put(trace: KinetoBuilder | RocpdBuilder, made: _Rows, zero_ns: int) -> None:
    """Put what a step leaves in an export of nsys into a trace whose clock stands at ``zero_ns`` at its zero."""
    called: dict[int, int] = {}
    texts = dict(made.strings.rows())

    def span(row: dict[str, Any]) -> tuple[int, int]:
        return zero_ns + row["start"], zero_ns + row["end"]

    for row in made.rows[schema.NVTX]:
        if row["eventType"] == PUSH_POP_RANGE and row["start"] >= 0:  # before that the profiler was not on
            name = row["text"] if row["textId"] is None else texts[row["textId"]]
            trace.range(name, *span(row), thread=row["globalTid"] & _THREAD_BITS)
    for row in made.rows[schema.RUNTIME]:
        name, thread = _VERSION.sub("", texts[row["nameId"]]), row["globalTid"] & _THREAD_BITS
        if isinstance(trace, RocpdBuilder):  # gives the stack ids itself
            called[row["correlationId"]] = trace.api(name, *span(row), thread=thread)
        else:
            cat = "cuda_driver" if row["eventClass"] == DRIVER_API else ""
            trace.api(name, *span(row), thread=thread, correlation=row["correlationId"], cat=cat)
    for row in made.rows[schema.KERNEL]:
        name, correlation = texts[row["demangledName"]], called.get(row["correlationId"], row["correlationId"])
        trace.kernel(name, *span(row), stream=row["streamId"], correlation=correlation)
