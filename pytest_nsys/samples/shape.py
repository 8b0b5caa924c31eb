"""What is one training step made of, and what can go wrong in it? The parameters of the simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True)
class StepShape:
    """The step: the mesh, the work per rank, and how the trace tells of it.

    ``chunks`` is the number of steady anchors (a forward and a backward chunk in one), ``layers`` those of
    one chunk, and ``transfers_per_stage`` the communication kernels of one stage. ``jitter`` is the largest
    relative deviation of a kernel's duration. ``text`` says how NVTX names its ranges; ``both``: inline on
    even ranks, registered on odd ones.
    """

    pp: int = 2
    dp: int = 1
    cp: int = 1
    ep: int = 2
    chunks: int = 15
    layers: int = 4
    kernels_per_stage: int = 3
    transfers_per_stage: int = 2
    micro_batch: int = 1
    sequence_length: int = 2048
    seed: int = 1
    jitter: float = 0.15
    text: Literal["inline", "registered", "both"] = "both"
    operator_ranges: bool = False
    stage3_communication: bool = False
    nccl_ranges: bool = True

    @property
    def world(self) -> int:
        return self.pp * self.dp * self.cp * self.ep

    def registered(self, rank: int) -> bool:
        """Whether the ranges of ``rank`` are named by registered strings."""
        return self.text == "registered" or (self.text == "both" and rank % 2 == 1)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where ``rank`` stands in the mesh: the last axis runs fastest."""
        sizes = {"pp": self.pp, "dp": self.dp, "cp": self.cp, "ep": self.ep}
        found = {}
        for axis, size in reversed(sizes.items()):
            rank, found[axis] = divmod(rank, size)
        return {axis: found[axis] for axis in sizes}

    def setup_label(self, rank: int) -> str:
        at = self.coordinates(rank)
        return (
            f"rank={rank}; pp={at['pp']}/{self.pp} dp={at['dp']}/{self.dp} cp={at['cp']}/{self.cp} "
            f"ep={at['ep']}/{self.ep}; mbs={self.micro_batch} seq={self.sequence_length}"
        )


@dataclass(frozen=True)
class Regression:
    """What a bad change does to some ranks; without ``ranks``, to all. The keys are stages (``stage4_f``).

    ``communication`` and ``compute`` are factors on durations, ``stream`` moves a stage's communication to
    another stream, ``missing`` stages (2 to 4) are never entered, ``extra_launches`` adds so many short compute
    kernels to each visit of a stage.
    """

    ranks: frozenset[int] | None = None
    communication: Mapping[str, float] = field(default_factory=dict)
    compute: Mapping[str, float] = field(default_factory=dict)
    stream: Mapping[str, int] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    extra_launches: Mapping[str, int] = field(default_factory=dict)

    def hits(self, rank: int) -> bool:
        return self.ranks is None or rank in self.ranks

    def joined(self, other: Regression) -> Regression:
        """Both at once, on the ranks of this one."""
        return replace(
            self,
            communication=_product(self.communication, other.communication),
            compute=_product(self.compute, other.compute),
            stream={**self.stream, **other.stream},
            missing=self.missing | other.missing,
            extra_launches={**self.extra_launches, **other.extra_launches},
        )


def _product(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {stage: one.get(stage, 1.0) * other.get(stage, 1.0) for stage in {**one, **other}}
