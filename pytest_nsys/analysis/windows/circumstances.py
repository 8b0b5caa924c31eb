"""Under which circumstances was a run taken? What must agree before two runs are compared, or one with a baseline."""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pytest_nsys.analysis.fact_bounds import FEW_ANCHORS
from pytest_nsys.core.errors import TraceError
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.units import decimal
from pytest_nsys.core.workload import batch_words

if TYPE_CHECKING:
    from pytest_nsys.analysis.windows.run import Run

Facts = Mapping[str, Sequence[str | int] | None]
"""Circumstances that are compared but do not name a baseline; None where none is stated."""

RUN_FACTS = ("gpu", "world", "micro_batch", "sequence_length")
"""What a gate file may state of a run beside the sizes of mesh axes."""


class Launcher(enum.StrEnum):
    """What the number of GPUs per file says of how the program was launched."""

    PER_NODE = "1-process-per-node"
    PER_GPU = "1-process-per-gpu"
    UNCLEAR = "unclear"

    @classmethod
    def of(cls, gpus: int, files: int) -> Launcher:
        """A file of two GPUs or more is of a node; near one GPU per file leaves room for a host without any."""
        per_file = Fraction(gpus, files)
        if per_file >= 2:
            return cls.PER_NODE
        return cls.PER_GPU if abs(per_file - 1) <= Fraction(5, 100) else cls.UNCLEAR


@dataclass(frozen=True, slots=True)
class RunKey:
    """What makes runs comparable. None where the trace does not say, or there is none; None is equal only to None."""

    convention: str | None
    mesh: Mapping[str, int] | None
    micro_batch: int | None
    sequence_length: int | None
    world: int | None
    gpu: str | None

    def as_json(self) -> dict[str, Any]:
        """The key in clear, as it stands in the file."""
        return asdict(self) | {"mesh": None if self.mesh is None else dict(sorted(self.mesh.items()))}

    def unlike(self, stated: Mapping[str, Label]) -> Iterator[tuple[str, Label, Label]]:
        """What is stated of the run and known to be otherwise: its name, as it is stated, and as it is."""
        known = {**(self.mesh or {}), **self.as_json()}
        for name, said in stated.items():
            found = known.get(name)
            same = str(said).lower() in str(found).lower() if name == "gpu" else said == found
            if found is not None and not same:
                yield name, said, found

    @property
    def digest(self) -> str:
        """The first 12 digits of the hash that names the file."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()[:12]


def key_of(runs: Sequence[Run], stated: Mapping[str, Label]) -> RunKey:
    """What makes captures of one program comparable to others; ``stated`` counts where the trace does not say it.

    Raises TraceError where the captures are of different programs.
    """
    first, *others = (_key(run, stated) for run in runs)
    for other in others:
        if other != first:
            differing = [n for n, v in first.as_json().items() if other.as_json()[n] != v]
            raise TraceError(f"the captures differ in {', '.join(differing)}: give captures of one program")
    return first


def _key(capture: Run, stated: Mapping[str, Label]) -> RunKey:
    ranks = capture.ranks
    setup = next((rank.setup for rank in ranks if rank.setup is not None), None)
    mesh = dict(setup.sizes) if setup else {}
    mesh |= {axis: int(n) for axis, n in stated.items() if axis not in RUN_FACTS and axis not in mesh}

    def told(name: str, found: int | None) -> int | None:
        return int(stated[name]) if found is None and name in stated else found

    gpu = capture.gpu_model()
    return RunKey(
        convention=capture.convention.fingerprint(capture.libraries) if capture.traces else None,
        mesh=mesh or None,
        micro_batch=told("micro_batch", setup.micro_batch if setup else None),
        sequence_length=told("sequence_length", setup.sequence_length if setup else None),
        world=len(ranks) if setup is not None else int(stated.get("world", len(ranks))) or None,
        gpu=str(stated["gpu"]) if gpu is None and "gpu" in stated else gpu,
    )


def facts_of(runs: Sequence[Run]) -> Facts:
    """How many anchors the ranks have, as far as that makes a difference, the steps that are stated, the GPUs, how the
    files say that they were launched, the anchors' names with their numbers left out (of steps that have kinds the
    kind, where all are of one, and how many there are of each, which nobody compares), the major version of the
    profiler, and what is stated of a pipeline, of blocks, of the batch and of the network.
    """
    each = [(run, rank) for run in runs for rank in run.ranks]
    anchors = [run.anchors(rank) for run, rank in each]
    together = [run.labels_of_a_step(rank) for run, rank in each]
    shapes = {re.sub(r"[0-9]+", "N", name) for name in {anchor.name for own in anchors for anchor in own}}
    kinds = {kind for run in runs for kind in run.steps.counts}
    if runs[0].convention.kinds:  # how many there are, and with what work, is up to the requests
        shapes, anchors = kinds if len(kinds) == 1 else set(), []
    traced, stated = [run for run in runs if run.traces], runs[0].workload
    peak, batch = stated.peak_gb_per_s, batch_words(stated)
    found: dict[str, set[int] | set[str]] = {
        "steps": {_how_many(len(own), labels) for own, labels in zip(anchors, together, strict=False) if own},
        "step_counts": {len(own) for own in anchors if own},
        "kind_steps": {count for run in runs for count in run.steps.counts.values()},
        "kind_work": {line for run in runs for line in run.steps.work_words()},
        "anchor": shapes,
        "profiler": {version.split(".")[0] for version in profilers_of(runs)},
        "stated_steps": {stated.steps} if stated.steps else {"no"},
        "gpus": {run.count_gpus([rank.number for rank in run.ranks]) for run in traced},
        "launcher": {str(Launcher.of(len(run.ranks), run.files)) for run in traced},
        "pipeline": set(stated.pipeline.words if stated.pipeline else ()),
        "blocks": set(stated.blocks),
        "batch": {batch} if batch else set(),
        "peak": set() if peak is None else {_stored_rate(peak)},
    }
    return {name: sorted(values) or None for name, values in found.items()}


def _how_many(steps: int, labels: int) -> str:
    """Return a number of steps as far as it changes a figure: one has no median, of few it is unreliable, and one of
    several ``labels`` is no step of one.
    """
    number = "1" if steps == 1 else f"2 to {FEW_ANCHORS - 1}" if steps < FEW_ANCHORS else f"{FEW_ANCHORS} and more"
    return number if labels == 1 else f"{number}, {labels} labels each"


def steps_of(facts: Mapping[str, Any]) -> int:
    """The most anchors, of one kind, that a rank had; 0 where none has any, or nobody says."""
    each = (facts.get(name) for name in ("step_counts", "kind_steps"))  # of a file that somebody may have edited
    counts = (count for stored in each if isinstance(stored, list | tuple) for count in stored)
    return max((count for count in counts if isinstance(count, int)), default=0)


def profilers_of(runs: Sequence[Run]) -> tuple[str, ...]:
    """The versions of the profiler that wrote the traces."""
    versions = {facts.profiler_version for run in runs for facts in run.facts}
    return tuple(sorted(v for v in versions if v is not None))


def profiler_shown(version: str) -> str:
    """The version of a profiler as people read it: torch.profiler tells that of its schema alone."""
    return f"schema {version}" if version.isdigit() else version


def _stored_rate(rate: Value) -> str:
    """A bandwidth as baselines have it since the first: ``3 350 GB/s``."""
    whole, point, rest = decimal(rate, 3).partition(".")
    return f"{int(whole):_}".replace("_", " ") + f"{point}{rest} GB/s"
