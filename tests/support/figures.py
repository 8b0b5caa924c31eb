"""What does every metric say of every format and window? ``python -m tests.support.figures`` writes it down again.

The traces are the example's and some that builders write, so a clone without the reference traces holds each metric
to the nanosecond. Do it again only where a figure is meant to change: the diff of figures.json says which ones do.
"""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from pytest_nsys import NsysError, open_run
from pytest_nsys.analysis.metrics.quantities import QUANTITIES
from pytest_nsys.analysis.metrics.registry import METRICS
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention
from pytest_nsys.core.model import KernelsMode, Span
from pytest_nsys.core.workload import TwoStages, Workload
from tests.fuzz.kinds import write_good
from tests.support.gates import MS, write_trace
from tests.support.samples.builder import Process, TraceBuilder
from tests.support.samples.formats import ENDINGS, Format
from tests.support.samples.gpu_state import allocate, free, sm_clock
from tests.support.samples.known_step import write_known_step
from tests.support.samples.nccl import NcclRanges
from tests.support.samples.odd_rows import raw
from tests.support.samples.schema import MEMCPY
from tests.support.samples.two_stages import ANCHOR, TwoStageShape, write_two_stages

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "figures.json"
EXAMPLE = "examples/traces/dualpipe.sqlite"
WORKLOAD = Workload(
    steps=1,
    samples=6,
    sequence_length=2048,
    peak_gb_per_s=Fraction(2),
    pipeline=TwoStages(("encode",), ("decode",), 1),
    blocks=("decode",),
)
STEP_TIMES = {"step/uneven.sqlite": 14_000_003}
"""Of which trace it is stated how long a step takes without the profiler."""

VIEWS: tuple[dict[str, Any], ...] = (
    *({"window": window} for window in ("median", "first", "last", "steady", "run", "1")),
    *({"kernels": kernels} for kernels in ("clipped", "launched")),
    {"span": "period"},
    {"span": "period", "kernels": "clipped"},
)
CONVENTIONS: Mapping[Format, str] = {
    Format.NSYS: "pithtrain",
    Format.KINETO: "kineto",
    Format.JAX: "jax",
    Format.ROCPD: "pithtrain",
}
"""Under which one the trace that ``write_good`` writes is read."""

COLUMNS = (
    *("gpu_gap_ns", "family_launches", "collective_count", "traffic_share", "bandwidth_utilisation"),
    *("collective_transfer_ns", "sync_calls"),
)
"""What views show that no metric says."""

Figures = dict[str, dict[str, dict[str, str]]]
"""By trace and view, and by metric: the exact value of each row, by its labels."""


def uneven(trace: TraceBuilder, processes: Sequence[Process]) -> None:
    """A rank that is late for a sum, compute among the communication, a copy of pageable memory, and what was recorded
    of the GPUs.
    """
    nccl = NcclRanges(trace)
    for rank, process in enumerate(processes):
        nccl.communicator(process, 7, ranks=len(processes), rank=rank)
        nccl.call(process, "ncclAllReduce", 50 * MS, 50 * MS + 5_000, 7, 1_000_003)
        process.kernel(
            "ncclDevKernel_AllReduce", 51 * MS + 100_003 * rank, 52 * MS, stream=77, launch_ns=50 * MS + 1_000
        )
        process.kernel("gelu", 53 * MS, 53 * MS + 7_001, stream=28, launch_ns=50 * MS + 6_000)
        copy = {"start": 53 * MS, "end": 54 * MS, "bytes": 4, "copyKind": 1, "srcKind": 0, "dstKind": 2}
        number = process.api("cudaMemcpyAsync_v3020", 52 * MS, 53 * MS)
        raw(process, MEMCPY, **copy, deviceId=0, contextId=1, streamId=7, correlationId=number)
        allocate(process, 5, 1_000_003, address=1)
        for at in (44, 64):
            allocate(process, at * MS, 3_001 + rank + at, address=2)
            free(process, (at + 2) * MS, 3_001 + rank + at, address=2)
        sm_clock(trace, *((7_000_001 * k, 1_980_000_001 - 1_003 * k) for k in range(12)), gpu=rank)


def traces(folder: Path) -> Iterator[tuple[str, Path, Convention]]:
    """Name, path and convention of each trace; what is built is written into the folder."""
    pithtrain = BUILT_IN_CONVENTIONS["pithtrain"]
    yield EXAMPLE, ROOT / EXAMPLE, pithtrain
    yield "step/uneven.sqlite", write_trace(folder / "step" / "uneven.sqlite", edit=uneven), pithtrain
    for format, convention in CONVENTIONS.items():
        name = f"{format}.{ENDINGS[format]}"
        (folder / "stages").mkdir(exist_ok=True)
        yield f"step/{name}", write_good(folder / "step" / name), BUILT_IN_CONVENTIONS[convention]
        stages = write_two_stages(folder / "stages" / name, TwoStageShape(units=6, warm_up=1), format)
        yield f"stages/{name}", stages, replace(BUILT_IN_CONVENTIONS["generic"], anchor=ANCHOR)
    for format in (Format.NSYS, Format.KINETO):
        name = f"blocked/{format}.{ENDINGS[format]}"
        yield name, write_known_step(folder / name, format), pithtrain


def figures() -> Figures:
    """What is measured now; a metric that a trace or a view has no rows of is left out."""
    found: Figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path, convention in traces(Path(folder)):
            workload = WORKLOAD._replace(step_time_ns=STEP_TIMES.get(name))
            with open_run(path, convention=convention, workload=workload) as run:
                for view in VIEWS:
                    of_view = found[" ".join([name, *view.values()])] = {}
                    for metric, known in METRICS.items():
                        every: dict[str, Any] = {"statistic": "*"} if "statistic" in known.dimensions else {}
                        with contextlib.suppress(NsysError):
                            rows = run.rows(metric, **view, **every)
                            of_view[metric] = {" ".join(map(str, row.labels.values())): str(row.value) for row in rows}
                    own = {"window": "median", "span": None, "kernels": None, **view}
                    spec = run.captures.make_spec(
                        own["window"], own["span"] and Span(own["span"]), own["kernels"] and KernelsMode(own["kernels"])
                    )
                    for column in COLUMNS:
                        with contextlib.suppress(NsysError):
                            if shown := run.captures.measure_rows(QUANTITIES[column], spec).rows:
                                of_view[column] = {" ".join(map(str, row.labels)): str(row.value) for row in shown}
    return found


def text(found: Figures) -> str:
    """JSON with the rows of a metric in one line: a diff shows the metrics that changed."""
    blocks = []
    for name, metrics in found.items():
        lines = ",\n".join(f"{json.dumps(metric)}: {json.dumps(rows)}" for metric, rows in metrics.items())
        blocks.append(f"{json.dumps(name)}: {{\n{lines}\n}}")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(figures()), encoding="utf-8")
