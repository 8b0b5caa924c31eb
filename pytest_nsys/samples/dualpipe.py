"""What does a trace of a DualPipeV training step look like, good or with a regression in it?

A step is simulated rank by rank: no rank depends on another, so a regression of one leaves the rows of the
others as they were. Streams, ranges and launch pattern are those of PithTrain; the durations are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from pytest_nsys.samples import schema
from pytest_nsys.samples.builder import global_pid
from pytest_nsys.samples.export import Export
from pytest_nsys.samples.schema import Cell
from pytest_nsys.samples.shape import Regression, StepShape
from pytest_nsys.samples.step import RankStep

__all__ = ["SAMPLE_REGRESSION", "SAMPLE_SHAPE", "Regression", "StepShape", "with_kernels", "write_dualpipe"]

GPU_MODEL = "NVIDIA H100 80GB HBM3"
_VM = 1
_FIRST_PID, _LAST_PID = 900, 4_000


SAMPLE_SHAPE = StepShape(
    chunks=12,
    layers=2,
    kernels_per_stage=1,
    transfers_per_stage=1,
    stage3_communication=True,
    nccl_ranges=False,
)
"""Small enough to ship: four ranks, twelve anchors, every purpose but the CP ring."""

SAMPLE_REGRESSION = Regression(ranks=frozenset({3}), communication={"stage4_f": 1.6}, compute={"stage3_b": 0.35})
"""On rank 3 the combine got slower, and the backward of the experts leaves less to hide behind."""


def write_dualpipe(
    path: Path,
    shape: StepShape,
    regression: Regression | tuple[Regression, ...] = (),
    *,
    compute_scale: float = 1.0,
    comm_scale: float = 1.0,
    version: str = "3.25",
) -> Path:
    """Write the trace of one step, all ranks in one file, with the regressions on the ranks they name."""
    pids = process_ids(shape)
    with Export(path, version) as export:
        put_machine(export, pids)
        for rank, pid in enumerate(pids):
            defects = defects_of(rank, regression)
            RankStep(shape, rank, defects, export, serialized(pid), compute_scale, comm_scale).run()
    return path


def defects_of(rank: int, regression: Regression | tuple[Regression, ...]) -> Regression:
    """What the regressions do to one rank, joined."""
    defects = Regression()
    for each in (regression,) if isinstance(regression, Regression) else regression:
        defects = defects.joined(each) if each.hits(rank) else defects
    return defects


def serialized(pid: int) -> int:
    """The process id as the rows of the samples have it."""
    return global_pid(pid, vm_id=_VM)


def process_ids(shape: StepShape) -> list[int]:
    """The process of each rank, in an order that has nothing to do with the ranks'."""
    return Random(f"{shape.seed}:processes").sample(range(_FIRST_PID, _LAST_PID), shape.world)


def with_kernels(shape: StepShape, kernels: int) -> StepShape:
    """``shape`` with as many chunks as it takes to have about ``kernels`` kernels."""
    few, more = (_kernels_of_rank_0(replace(shape, chunks=chunks)) for chunks in (2, 12))
    per_chunk = (more - few) / 10
    chunks = round((kernels / shape.world - few) / per_chunk) + 2
    return replace(shape, chunks=max(1, chunks))


class _Counter(Export):
    """An export that only counts: nothing is opened, nothing is written."""

    kernels = 0

    def put(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:  # noqa: ARG002
        self.kernels += len(rows) if table == schema.KERNEL else 0


def _kernels_of_rank_0(shape: StepShape) -> int:
    counter = _Counter(Path("unwritten"))
    RankStep(shape, 0, Regression(), counter, global_pid(1)).run()
    return counter.kernels


def put_machine(export: Export, pids: Sequence[int]) -> None:
    """Put the processes, and the GPU of each, into the export."""
    if schema.PROCESSES in schema.tables(export.version):
        processes = [(serialized(pid), pid, "python3.11") for pid in pids]
        export.put(schema.PROCESSES, ("globalPid", "pid", "name"), processes)
    gpus = [(device, GPU_MODEL, 132, device) for device in range(len(pids))]
    export.put("TARGET_INFO_GPU", ("id", "name", "smCount", "cuDevice"), gpus)
    devices = [(device, device, pid) for device, pid in enumerate(pids)]
    export.put("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"), devices)
