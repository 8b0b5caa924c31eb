"""Which kinds of facts are there? For each, what measures it, to which metrics it applies, and from which value on it
is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.fact_bounds import DEFAULT_BOUNDS, FEW_ANCHORS, Bounds, find_fact_unit
from pytest_nsys.analysis.facts import communication, launches, lost_work, recording, steps
from pytest_nsys.analysis.facts.fact import Fact, MeasuredFact, Weight, is_worse
from pytest_nsys.analysis.facts.quality_context import QualityContext
from pytest_nsys.core.model import Value


class FactKind(NamedTuple):
    """Describes a kind of fact. A value that is no worse than ``quiet_value`` and than the bound is not shown."""

    measure: Callable[[QualityContext], Iterator[MeasuredFact]]  # yields what there is
    applies: Callable[[QualityContext], bool] = QualityContext.is_measured  # to which metrics the kind applies
    quiet_value: Value = 0
    on_demand: bool = False  # it reads more, so it is only measured if a gate file bounds it


FACT_KINDS: Mapping[str, FactKind] = {
    "missing_ranks": FactKind(recording.measure_missing_ranks),
    "shared_gpus": FactKind(recording.measure_shared_gpus, QualityContext.counts_kernels),
    "impossible_rows": FactKind(launches.measure_impossible_rows, QualityContext.counts_kernels),
    "launches_without_work": FactKind(lost_work.measure_launches_without_work, QualityContext.counts_kernels),
    "processes_without_kernels": FactKind(lost_work.measure_processes_without_kernels, QualityContext.counts_kernels),
    "unlaunched": FactKind(launches.measure_unlaunched, QualityContext.counts_kernels),
    # Real captures start with unlaunched kernels: 5% to 7% in some, more in slices of a run.
    "unlaunched_in_run": FactKind(
        launches.measure_unlaunched_in_run, QualityContext.follows_launches, quiet_value=Fraction(5, 100)
    ),
    "unstaged": FactKind(communication.measure_unstaged, QualityContext.looks_up_stages, on_demand=True),
    "unclassified": FactKind(communication.measure_unclassified, QualityContext.looks_up_purposes, on_demand=True),
    "unknown_communication": FactKind(communication.measure_unknown_communication, QualityContext.counts_kernels),
    "unsized_collectives": FactKind(communication.measure_unsized_collectives, QualityContext.needs_groups),
    "whole_graphs": FactKind(recording.measure_whole_graphs, QualityContext.counts_kernels),
    "dropped": FactKind(recording.measure_dropped),
    "diagnostics": FactKind(recording.measure_diagnostics),
    "anchors": FactKind(steps.measure_anchors, quiet_value=FEW_ANCHORS),
    "empty_anchors": FactKind(steps.measure_empty_anchors, QualityContext.counts_kernels),
    "uneven_anchors": FactKind(steps.measure_uneven_anchors),
    "apart": FactKind(recording.measure_file_gap),
    "typicality": FactKind(steps.measure_typicality, quiet_value=5),
    "slow_steps": FactKind(steps.measure_slow_steps, quiet_value=Fraction(5, 100)),
    "clocks": FactKind(recording.measure_clocks, on_demand=True),
    "profiler_overhead": FactKind(recording.measure_overhead_fact, on_demand=True),
    "sm_clock": FactKind(recording.measure_sm_clock, on_demand=True),
    # What follows has no bound: no amount of it is an error.
    "launches_outside": FactKind(lost_work.measure_launches_outside, QualityContext.counts_kernels),
    "unlike_steps": FactKind(steps.measure_unlike_steps, QualityContext.follows_launches, quiet_value=Fraction(5, 100)),
    "missing_steps": FactKind(steps.measure_missing_steps),
    "other_steps": FactKind(steps.measure_other_steps),
    "unmatched_patterns": FactKind(communication.measure_unmatched_patterns, QualityContext.needs_streams),
    "unlabelled_processes": FactKind(recording.measure_unlabelled_processes),
    "gpu_state": FactKind(recording.measure_gpu_state),
    "single_step": FactKind(steps.measure_single_step),
    "shared_streams": FactKind(communication.measure_shared_streams, QualityContext.needs_streams),
    "numbering": FactKind(recording.measure_numbering),
    "reader_notes": FactKind(recording.measure_reader_notes),
    "missing_sizes": FactKind(communication.measure_missing_sizes, QualityContext.reads_sizes),
    "unordered_streams": FactKind(communication.measure_unordered_streams),
    "uneven_pipeline": FactKind(steps.measure_uneven_pipeline),
    "mixed_labels": FactKind(steps.measure_mixed_labels),
    "nested_launches": FactKind(launches.measure_nested_launches, QualityContext.counts_kernels),
    "graph_kernels": FactKind(launches.measure_graph_kernels),
}


def measure_facts(context: QualityContext, names: Collection[str] = FACT_KINDS) -> Iterator[Fact]:
    """Yield the facts about a run that apply to a metric, in the order of their kinds; of all kinds or of some."""
    for name, kind in ((name, kind) for name, kind in FACT_KINDS.items() if name in names):
        bound = getattr(context.bounds, name, None)
        if name in context.metric.irrelevant_facts or (kind.on_demand and bound is None) or not kind.applies(context):
            continue
        for measured in kind.measure(context):
            is_beyond_bound = bound is not None and is_worse(name, measured.value, bound)
            if is_beyond_bound or is_worse(name, measured.value, kind.quiet_value):
                yield weigh_fact(name, measured, context.bounds)


def weigh_fact(name: str, measured: MeasuredFact, bounds: Bounds) -> Fact:
    """Return the fact with its weight: an error beyond its bound, a note within a bound that the gate file states."""
    bound, default = getattr(bounds, name, None), DEFAULT_BOUNDS.get(name)
    if bound is not None and is_worse(name, measured.value, bound):
        weight = Weight.ERROR
    else:
        weight = Weight.DOUBT if measured.is_doubtful and bound in (None, default) else Weight.NOTE
    return Fact(name, find_fact_unit(name), measured, weight, bound)
