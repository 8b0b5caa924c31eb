"""What a person says of the work that was traced, where no trace can."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple


class TwoStages(NamedTuple):
    """The two stages of a pipeline: patterns (``%``) of the ranges that make up each, summed per unit of work.

    The first ``warm_up`` units are left out of what is told of the pipeline.
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    warm_up: int = 10

    @property
    def words(self) -> tuple[str, ...]:
        """Each pattern with its stage, and the warm-up: what makes two pipelines the same."""
        first, second = (f"stage0: {p}" for p in self.first), (f"stage1: {p}" for p in self.second)
        return (*first, *second, f"warmup: {self.warm_up}")


class Parallel(NamedTuple):
    """The parallel degrees of a run. ``shard`` None: what the others leave of the world."""

    replicate: int = 1
    shard: int | None = None
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1


class Workload(NamedTuple):
    """What a person says of the work that was traced, where no trace can: everything is None until it is stated.

    ``steps`` is how many steps a window holds, ``step_time_ns`` how long a step takes without the profiler,
    ``samples`` the global batch of a step, ``sequence_length`` tokens of a sample, ``peak_gb_per_s`` the bandwidth of
    the network per GPU (1 GB = 1e9 bytes). ``blocks`` are patterns of ranges whose share of the period is told.
    ``local_samples`` is the batch of one replica, ``parallel`` how many of them there are, ``world`` the ranks of the
    program, ``model`` its name.
    """

    steps: int | None = None
    step_time_ns: int | None = None
    samples: int | None = None
    sequence_length: int | None = None
    peak_gb_per_s: Fraction | None = None
    pipeline: TwoStages | None = None
    blocks: tuple[str, ...] = ()
    local_samples: int | None = None
    parallel: Parallel | None = None
    world: int | None = None
    model: str | None = None


def batch_words(workload: Workload) -> str:
    """What is stated of the batch of a step, in words; empty where nothing is."""
    said = []
    if workload.samples is not None:
        said.append(f"{workload.samples} samples")
    elif workload.local_samples is not None:
        said.append(f"{workload.local_samples} samples per replica")
        if workload.parallel is not None:
            shard = "rest" if workload.parallel.shard is None else workload.parallel.shard
            said.append(f"dp {workload.parallel.replicate}x{shard}")
    return ", ".join(said)
