"""What does a trace of a DualPipeV training step look like, good or with a regression in it?

A step is simulated rank by rank: no rank depends on another, so a regression of one leaves the rows of the
others as they were. Streams, ranges and launch pattern are those of PithTrain; the durations are drawn.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.support.samples import schema
from tests.support.samples.builder import global_pid
from tests.support.samples.schema import Export
from tests.support.samples.step import RankStep, Regression, StepShape

__all__ = ["SAMPLE_REGRESSION", "SAMPLE_SHAPE", "Regression", "StepShape", "write_dualpipe", "write_ranks"]

GPU_MODEL = "NVIDIA H100 80GB HBM3"
_VM = 1
_FIRST_PID, _LAST_PID = 900, 4_000


SAMPLE_SHAPE = StepShape(
    chunks=12, layers=2, kernels_per_stage=1, transfers_per_stage=1, stage3_communication=True, nccl_ranges=False
)
"""Small enough to ship: four ranks, twelve anchors, every purpose but the CP ring."""

GOOD = Regression()

SAMPLE_REGRESSION = Regression(ranks=frozenset({3}), communication={"stage4_f": 1.6}, compute={"stage3_b": 0.35})
"""On rank 3 the combine got slower, and the backward of the experts leaves less to hide behind."""


def write_dualpipe(path: Path, shape: StepShape, regression: Regression = GOOD) -> Path:
    """Write the trace of one step, all ranks in one file, with the regression on the ranks it names."""
    pids = process_ids(shape)
    with Export(path) as export:
        put_machine(export, pids)
        for rank, pid in enumerate(pids):
            put_rank(export, shape, rank, pid, regression)
    return path


def write_ranks(folder: Path, shape: StepShape, regression: Regression = GOOD) -> Path:
    """Write the same step into a file for each rank, ``rank0.sqlite`` and so on; the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, pid in enumerate(process_ids(shape)):
        with Export(folder / f"rank{rank}.sqlite") as export:
            put_machine(export, [pid])
            put_rank(export, shape, rank, pid, regression)
    return folder


def put_rank(export: Export, shape: StepShape, rank: int, pid: int, regression: Regression = GOOD) -> None:
    """Put one rank's step into the export, with what the regression does to it."""
    hit = regression.ranks is None or rank in regression.ranks
    RankStep(shape, rank, regression if hit else GOOD, export, serialized(pid)).run()


def serialized(pid: int) -> int:
    """The process id as the rows of the samples have it."""
    return global_pid(pid, vm_id=_VM)


def process_ids(shape: StepShape) -> list[int]:
    """The process of each rank, in an order that has nothing to do with the ranks'."""
    return Random(f"{shape.seed}:processes").sample(range(_FIRST_PID, _LAST_PID), shape.world)


def put_machine(export: Export, pids: Sequence[int]) -> None:
    """Put the processes, and the GPU of each, into the export."""
    processes = [(serialized(pid), pid, "python3.11") for pid in pids]
    export.put(schema.PROCESSES, ("globalPid", "pid", "name"), processes)
    gpus = [(device, GPU_MODEL, 132, device) for device in range(len(pids))]
    export.put("TARGET_INFO_GPU", ("id", "name", "smCount", "cuDevice"), gpus)
    devices = [(device, device, pid) for device, pid in enumerate(pids)]
    export.put("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"), devices)
