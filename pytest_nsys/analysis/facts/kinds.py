"""Which kinds of facts are there? For each what measures it, to what it applies, and from when on it is told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.fact_bounds import DEFAULTS, FEW_ANCHORS, Bounds, unit_of
from pytest_nsys.analysis.facts import communication, launches, lost_work, recording, steps
from pytest_nsys.analysis.facts.fact import Fact, Measured, Weight, is_worse
from pytest_nsys.analysis.facts.ground import Ground
from pytest_nsys.core.model import Value


class FactKind(NamedTuple):
    """Describes a kind of fact. A value that is no worse than ``quiet_value``, nor than the bound, is not told."""

    measure: Callable[[Ground], Iterator[Measured]]  # yields what there is
    hangs: Callable[[Ground], bool] = Ground.is_measured  # to which metrics the kind applies
    quiet: Value = 0
    on_demand: bool = False  # it reads more, and is looked at only where a gate file bounds it


KINDS: Mapping[str, FactKind] = {
    "missing_ranks": FactKind(recording.measure_missing_ranks),
    "shared_gpus": FactKind(recording.measure_shared_gpus, Ground.counts_kernels),
    "impossible_rows": FactKind(launches.measure_impossible_rows, Ground.counts_kernels),
    "launches_without_work": FactKind(lost_work.measure_launches_without_work, Ground.counts_kernels),
    "processes_without_kernels": FactKind(lost_work.measure_processes_without_kernels, Ground.counts_kernels),
    "unlaunched": FactKind(launches.measure_unlaunched, Ground.counts_kernels),
    # Real captures begin with it: 5% to 7% in some, more in slices of a run.
    "unlaunched_in_run": FactKind(launches.measure_unlaunched_in_run, Ground.follows_launches, quiet=Fraction(5, 100)),
    "unstaged": FactKind(communication.measure_unstaged, Ground.looks_up_stages, on_demand=True),
    "unclassified": FactKind(communication.measure_unclassified, Ground.looks_up_purposes, on_demand=True),
    "unknown_communication": FactKind(communication.measure_unknown_communication, Ground.counts_kernels),
    "unsized_collectives": FactKind(communication.measure_unsized_collectives, Ground.tells_groups_apart),
    "whole_graphs": FactKind(recording.measure_whole_graphs, Ground.counts_kernels),
    "dropped": FactKind(recording.measure_dropped),
    "diagnostics": FactKind(recording.measure_diagnostics),
    "anchors": FactKind(steps.measure_anchors, quiet=FEW_ANCHORS),
    "empty_anchors": FactKind(steps.measure_empty_anchors, Ground.counts_kernels),
    "uneven_anchors": FactKind(steps.measure_uneven_anchors),
    "apart": FactKind(recording.measure_apart),
    "typicality": FactKind(steps.measure_typicality, quiet=5),
    "slow_steps": FactKind(steps.measure_slow_steps, quiet=Fraction(5, 100)),
    "clocks": FactKind(recording.measure_clocks, on_demand=True),
    "profiler_overhead": FactKind(recording.measure_profiler_overhead, on_demand=True),
    "sm_clock": FactKind(recording.measure_sm_clock, on_demand=True),
    # What follows has no bound: no amount of it is an error.
    "launches_outside": FactKind(lost_work.measure_launches_outside, Ground.counts_kernels),
    "unlike_steps": FactKind(steps.measure_unlike_steps, Ground.follows_launches, quiet=Fraction(5, 100)),
    "missing_steps": FactKind(steps.measure_missing_steps),
    "other_steps": FactKind(steps.measure_other_steps),
    "unmatched_patterns": FactKind(communication.measure_unmatched_patterns, Ground.tells_streams_apart),
    "unlabelled_processes": FactKind(recording.measure_unlabelled_processes),
    "gpu_state": FactKind(recording.measure_gpu_state),
    "single_step": FactKind(steps.measure_single_step),
    "shared_streams": FactKind(communication.measure_shared_streams, Ground.tells_streams_apart),
    "numbering": FactKind(recording.measure_numbering),
    "reader_notes": FactKind(recording.measure_reader_notes),
    "missing_sizes": FactKind(communication.measure_missing_sizes, Ground.reads_sizes),
    "unordered_streams": FactKind(communication.measure_unordered_streams),
    "uneven_pipeline": FactKind(steps.measure_uneven_pipeline),
    "mixed_labels": FactKind(steps.measure_mixed_labels),
    "nested_launches": FactKind(launches.measure_nested_launches, Ground.counts_kernels),
    "graph_kernels": FactKind(launches.measure_graph_kernels),
}


def facts_of(ground: Ground, names: Collection[str] = KINDS) -> Iterator[Fact]:
    """Yield the facts about a run that apply to a metric, in the order of their kinds; of all kinds or of some."""
    for name, kind in ((name, kind) for name, kind in KINDS.items() if name in names):
        bound = getattr(ground.bounds, name, None)
        if name in ground.metric.untouched or (kind.on_demand and bound is None) or not kind.hangs(ground):
            continue
        for measured in kind.measure(ground):
            is_beyond_bound = bound is not None and is_worse(name, measured.value, bound)
            if is_beyond_bound or is_worse(name, measured.value, kind.quiet):
                yield weighed(name, measured, ground.bounds)


def weighed(name: str, found: Measured, bounds: Bounds) -> Fact:
    """Return the fact with its weight: an error beyond its bound, a note within one that a gate file has of its own."""
    bound, default = getattr(bounds, name, None), DEFAULTS.get(name)
    if bound is not None and is_worse(name, found.value, bound):
        weight = Weight.ERROR
    else:
        weight = Weight.DOUBT if found.doubtful and bound in (None, default) else Weight.NOTE
    return Fact(name, unit_of(name), found, weight, bound)
