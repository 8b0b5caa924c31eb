"""Under which conditions was a run taken, so that it may be compared with another run or a stored baseline?"""

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
from pytest_nsys.core.units import format_decimal
from pytest_nsys.core.workload import format_batch

if TYPE_CHECKING:
    from pytest_nsys.analysis.windows.run import Run

RunConditions = Mapping[str, Sequence[str | int] | None]
"""Conditions that are compared but do not name a baseline file; a value is None if nothing states it."""

STATED_RUN_FIELDS = ("gpu", "world", "micro_batch", "sequence_length")
"""Keys that a gate file may state about a run, in addition to the sizes of mesh axes."""


class Launcher(enum.StrEnum):
    """Says how the program was launched, judged by the number of GPUs per trace file."""

    PER_NODE = "1-process-per-node"
    PER_GPU = "1-process-per-gpu"
    UNCLEAR = "unclear"

    @classmethod
    def classify(cls, gpu_count: int, file_count: int) -> Launcher:
        """Return whether each process drives one GPU or a whole node."""
        # Near one GPU per file: one process per GPU, with room for a file of a host without GPU.
        per_file = Fraction(gpu_count, file_count)
        if per_file >= 2:
            return cls.PER_NODE
        return cls.PER_GPU if abs(per_file - 1) <= Fraction(5, 100) else cls.UNCLEAR


@dataclass(frozen=True, slots=True)
class RunKey:
    """Holds what makes two runs comparable.

    A field is None if the trace does not say it, or it does not exist; None equals only None.
    """

    convention: str | None  # its fingerprint
    mesh: Mapping[str, int] | None  # ranks by axis
    micro_batch: int | None
    sequence_length: int | None
    world: int | None  # ranks of the whole job
    gpu: str | None  # model, as 'NVIDIA H200'

    def as_json(self) -> dict[str, Any]:
        """Return the key as a dictionary, in the form in which a baseline file stores it."""
        return asdict(self) | {"mesh": None if self.mesh is None else dict(sorted(self.mesh.items()))}

    def list_contradictions(self, stated_facts: Mapping[str, Label]) -> Iterator[tuple[str, Label, Label]]:
        """Yield each stated fact that the run contradicts: (name, stated value, value of the run)."""
        run_facts = {**(self.mesh or {}), **self.as_json()}
        for name, stated_value in stated_facts.items():
            run_value = run_facts.get(name)
            is_same = (
                str(stated_value).lower() in str(run_value).lower() if name == "gpu" else stated_value == run_value
            )
            if run_value is not None and not is_same:
                yield name, stated_value, run_value

    @property
    def digest(self) -> str:
        """The first 12 hexadecimal digits of the hash that names the baseline file."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()[:12]


def build_run_key(runs: Sequence[Run], stated_facts: Mapping[str, Label]) -> RunKey:
    """Build the key that the captures of one program share; ``stated_facts`` fill in what the traces do not say.

    Raises TraceError if the captures are of different programs.
    """
    first_key, *other_keys = (_build_capture_key(run, stated_facts) for run in runs)
    for other_key in other_keys:
        if other_key != first_key:
            differing = [n for n, v in first_key.as_json().items() if other_key.as_json()[n] != v]
            raise TraceError(f"the captures differ in {', '.join(differing)}: give captures of one program")
    return first_key


def _build_capture_key(capture: Run, stated_facts: Mapping[str, Label]) -> RunKey:
    ranks = capture.ranks
    setup = next((rank.setup for rank in ranks if rank.setup is not None), None)
    mesh = dict(setup.sizes) if setup else {}
    mesh |= {axis: int(n) for axis, n in stated_facts.items() if axis not in STATED_RUN_FIELDS and axis not in mesh}

    def choose_size(name: str, traced_size: int | None) -> int | None:
        return int(stated_facts[name]) if traced_size is None and name in stated_facts else traced_size

    gpu = capture.find_gpu_model()
    return RunKey(
        convention=capture.convention.compute_fingerprint(capture.libraries) if capture.traces else None,
        mesh=mesh or None,
        micro_batch=choose_size("micro_batch", setup.micro_batch if setup else None),
        sequence_length=choose_size("sequence_length", setup.sequence_length if setup else None),
        world=len(ranks) if setup is not None else int(stated_facts.get("world", len(ranks))) or None,
        gpu=str(stated_facts["gpu"]) if gpu is None and "gpu" in stated_facts else gpu,
    )


def collect_run_conditions(runs: Sequence[Run]) -> RunConditions:
    """Collect the conditions of a run that are compared with those of a baseline: sorted values by name.

    They hold the number of anchors of the ranks (as far as it changes a figure), the stated steps, the GPUs, the
    launcher, the anchors' names with numbers replaced, the profiler's major version, and what is stated about pipeline,
    blocks, batch and network. If steps have kinds and all are of one kind, the kind replaces the anchor's name, and the
    number of steps is shown but not compared.
    """
    run_ranks = [(run, rank) for run in runs for rank in run.ranks]
    anchors = [run.find_anchors(rank) for run, rank in run_ranks]
    labels_per_step = [run.count_labels_per_step(rank) for run, rank in run_ranks]
    anchor_patterns = {
        re.sub(r"[0-9]+", "N", name) for name in {anchor.name for rank_anchors in anchors for anchor in rank_anchors}
    }
    kinds = {kind for run in runs for kind in run.steps_by_kind.counts_by_kind}
    if runs[0].convention.kinds:  # the requests decide how many steps there are, and their work
        anchor_patterns, anchors = kinds if len(kinds) == 1 else set(), []
    traced_runs, workload = [run for run in runs if run.traces], runs[0].workload
    peak_gb_per_s, batch = workload.peak_gb_per_s, format_batch(workload)
    conditions: dict[str, set[int] | set[str]] = {
        "steps": {
            _format_step_count(len(rank_anchors), labels)
            for rank_anchors, labels in zip(anchors, labels_per_step, strict=False)
            if rank_anchors
        },
        "step_counts": {len(rank_anchors) for rank_anchors in anchors if rank_anchors},
        "kind_steps": {count for run in runs for count in run.steps_by_kind.counts_by_kind.values()},
        "kind_work": {line for run in runs for line in run.steps_by_kind.describe_work()},
        "anchor": anchor_patterns,
        "profiler": {version.split(".")[0] for version in list_profiler_versions(runs)},
        "stated_steps": {workload.steps} if workload.steps else {"no"},
        "gpus": {run.count_gpus([rank.number for rank in run.ranks]) for run in traced_runs},
        "launcher": {str(Launcher.classify(len(run.ranks), run.file_count)) for run in traced_runs},
        "pipeline": set(workload.pipeline.identity_words if workload.pipeline else ()),
        "blocks": set(workload.blocks),
        "batch": {batch} if batch else set(),
        "peak": set() if peak_gb_per_s is None else {_format_stored_bandwidth(peak_gb_per_s)},
    }
    return {name: sorted(values) or None for name, values in conditions.items()}


def _format_step_count(step_count: int, labels_per_step: int) -> str:
    """Format a number of steps only as exactly as it matters to a figure: one step has no median, few have an
    unreliable one.

    Steps of several labels (``labels_per_step``) are other units than steps of one label, so the text says so.
    """
    number = (
        "1" if step_count == 1 else f"2 to {FEW_ANCHORS - 1}" if step_count < FEW_ANCHORS else f"{FEW_ANCHORS} and more"
    )
    return number if labels_per_step == 1 else f"{number}, {labels_per_step} labels each"


def count_stored_steps(conditions: Mapping[str, Any]) -> int:
    """Return the highest number of anchors of one kind on a rank, read from stored conditions; 0 if none is stored."""
    # A baseline file may have been edited: its values may have any type.
    stored_counts = (conditions.get(name) for name in ("step_counts", "kind_steps"))
    counts = (count for stored in stored_counts if isinstance(stored, list | tuple) for count in stored)
    return max((count for count in counts if isinstance(count, int)), default=0)


def list_profiler_versions(runs: Sequence[Run]) -> tuple[str, ...]:
    """List the profiler versions that wrote the traces of some runs, sorted, without duplicates."""
    versions = {facts.profiler_version for run in runs for facts in run.facts}
    return tuple(sorted(v for v in versions if v is not None))


def format_profiler_version(version: str) -> str:
    """Format a profiler's version for people; torch.profiler writes only the version of its schema."""
    return f"schema {version}" if version.isdigit() else version


def _format_stored_bandwidth(gb_per_s: Value) -> str:
    """Format a bandwidth in GB/s in the form that baseline files have always used: ``3 350 GB/s``."""
    integer_part, point, decimals = format_decimal(gb_per_s, 3).partition(".")
    return f"{int(integer_part):_}".replace("_", " ") + f"{point}{decimals} GB/s"
