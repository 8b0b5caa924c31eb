"""What does a user state about the traced work that no trace can show?"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple


class TwoStages(NamedTuple):
    """Describes the two stages of a pipeline by patterns (``%``) of the ranges that make up each, summed per unit of
    work.
    """

    first: tuple[str, ...]  # patterns of the ranges of the first stage
    second: tuple[str, ...]
    warm_up: int = 10  # first units, which are left out of what is told of the pipeline

    @property
    def identity_words(self) -> tuple[str, ...]:
        """Each pattern with its stage, and the warm-up: what makes two pipelines the same."""
        first, second = (f"stage0: {p}" for p in self.first), (f"stage1: {p}" for p in self.second)
        return (*first, *second, f"warmup: {self.warm_up}")


class Parallel(NamedTuple):
    """Holds the parallel degrees of a run."""

    replicate: int = 1
    shard: int | None = None  # None: what the others leave of the world
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1


class Workload(NamedTuple):
    """Holds what a user states about the traced work and no trace can show; everything is None until it is stated."""

    steps: int | None = None  # how many a window holds
    step_time_ns: int | None = None  # how long a step takes without the profiler
    samples: int | None = None  # the global batch of a step
    sequence_length: int | None = None  # tokens of a sample
    peak_gb_per_s: Fraction | None = None  # bandwidth of the network per GPU (1 GB = 1e9 bytes)
    pipeline: TwoStages | None = None
    blocks: tuple[str, ...] = ()  # patterns of ranges whose share of the period is told
    local_samples: int | None = None  # the batch of one replica
    parallel: Parallel | None = None  # how many replicas there are
    world: int | None = None  # ranks of the program
    model: str | None = None  # its name


def format_batch(workload: Workload) -> str:
    """Describe what is stated of the batch of a step; empty where nothing is."""
    parts = []
    if workload.samples is not None:
        parts.append(f"{workload.samples} samples")
    elif workload.local_samples is not None:
        parts.append(f"{workload.local_samples} samples per replica")
        if workload.parallel is not None:
            shard = "rest" if workload.parallel.shard is None else workload.parallel.shard
            parts.append(f"dp {workload.parallel.replicate}x{shard}")
    return ", ".join(parts)
