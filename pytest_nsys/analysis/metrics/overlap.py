"""How well is communication hidden behind compute? (definition 1 of each metric)

Per stage, over the kernels of communication streams: a kernel is exposed while no compute kernel of the window runs.
Concurrent communication on two streams is summed by the per-stage numbers and counted once by the ``wall_`` ones. No
communication, or only kernels of no length, gives no row: an exposed time of 0 would be green on nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.columns import (
    Column,
    count_numbers,
    find_distinct_rows,
    find_least_ratio,
    find_nonzero,
    subtract,
    sum_column,
    sum_values_by,
    take,
)
from pytest_nsys.core.exact import simplify_fraction
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.numbers import format_percent_of


def _list_communicating_stages(window: RankWindow) -> Iterator[tuple[str, Column, int]]:
    """Yield (stage, kernels, Σ length in ns) of the stages whose communication lasted some time."""
    for stage, members in window.communication_by_stage.items():
        # Kernels without length have no share; an assertion would pass on no data.
        if length := sum_column(take(window.durations_ns, members)):
            yield stage, members, length


def comm_ns(window: RankWindow) -> Mapping[str, int]:
    """Σ length of communication kernels, per (rank, stage)."""
    return {stage: length for stage, _, length in _list_communicating_stages(window)}


def exposed_ns(window: RankWindow) -> Mapping[str, int]:
    """Communication time without compute, summed over kernels, per (rank, stage)."""
    return {
        stage: sum_column(take(window.exposed_ns, members)) for stage, members, _ in _list_communicating_stages(window)
    }


def overlap(window: RankWindow) -> Mapping[str, Value]:
    """(comm − exposed) / comm, per (rank, stage)."""
    stage_times = (
        (stage, sum_column(take(window.exposed_ns, members)), length)
        for stage, members, length in _list_communicating_stages(window)
    )
    return {stage: simplify_fraction(1 - Fraction(exposed, length)) for stage, exposed, length in stage_times}


def _find_least_share(window: RankWindow, parts_ns: Column, members: Column) -> Fraction:
    """Return the smallest share that a part of a kernel is of its length."""
    lasting_kernels = take(members, find_nonzero(take(window.durations_ns, members)))
    parts, lengths = take(parts_ns, lasting_kernels), take(window.durations_ns, lasting_kernels)
    least_index = find_least_ratio(parts, lengths)
    return Fraction(parts[least_index], lengths[least_index])


def overlap_min(window: RankWindow) -> Mapping[str, Value]:
    """Overlap of the least overlapped kernel, per (rank, stage)."""
    hidden_ns = subtract(window.durations_ns, window.exposed_ns)
    return {
        stage: simplify_fraction(_find_least_share(window, hidden_ns, members))
        for stage, members, _ in _list_communicating_stages(window)
    }


def overlap_max(window: RankWindow) -> Mapping[str, Value]:
    """Overlap of the best overlapped kernel, per (rank, stage)."""
    stage_shares = (
        (stage, _find_least_share(window, window.exposed_ns, members))
        for stage, members, _ in _list_communicating_stages(window)
    )
    return {stage: simplify_fraction(1 - share) for stage, share in stage_shares}


def barrier_ns(window: RankWindow) -> int:
    """Σ length of communication kernels on compute streams, per rank."""
    return sum_column(take(window.durations_ns, window.barriers))


def wall_exposed_ns(window: RankWindow) -> int | None:
    """Time with communication and without compute, per rank: concurrent communication counts once."""
    return _measure_wall_exposed(window, window.gpu_window.communication_time)


def wall_overlap(window: RankWindow) -> Value | None:
    """Share of communication's time that compute hides, per rank."""
    return _measure_wall_overlap(window, window.gpu_window.communication_time)


def wall_exposed_all_ns(window: RankWindow) -> int | None:
    """Time with communication, barriers included, and without compute, per rank."""
    return _measure_wall_exposed(window, window.gpu_window.all_communication_time)


def wall_overlap_all(window: RankWindow) -> Value | None:
    """Share of all communication's time, barriers included, that compute hides, per rank."""
    return _measure_wall_overlap(window, window.gpu_window.all_communication_time)


def _measure_wall_exposed(window: RankWindow, communication: Intervals) -> int | None:
    hidden_ns = communication.measure_common_ns(window.gpu_window.compute_time)
    return communication.total_ns - hidden_ns if communication.total_ns else None


def _measure_wall_overlap(window: RankWindow, communication: Intervals) -> Value | None:
    hidden_ns = communication.measure_common_ns(window.gpu_window.compute_time)
    return simplify_fraction(Fraction(hidden_ns, communication.total_ns)) if communication.total_ns else None


def overlap_tax_ns(window: RankWindow) -> Mapping[str, Value]:
    """What overlapping cost the compute, per (rank, stage): Σ (length − median length of that kernel alone).

    Over compute kernels that ran under communication anywhere in the run; the medians are those of the rank's whole
    run. A kernel name that never ran alone is left out; :func:`tax_notes` tells its share.
    """
    medians = window.track.whole_track.isolated_median_ns
    stage_numbers, stages = window.stage_codes
    covered_kernels, names = window.compute_under_communication, window.kernels.full_name
    columns = (
        take(window.uncut_durations_ns, covered_kernels),
        take(stage_numbers, covered_kernels),
        take(names, covered_kernels),
    )
    tax_by_stage: dict[str, Value] = {}
    for (stage, name), (length, kernels) in sum_values_by(lambda n, name: (stages[n], name), *columns).items():
        if name in medians:  # a kernel that never ran alone has no length to compare with
            tax_by_stage[stage] = tax_by_stage.get(stage, 0) + length - kernels * medians[name]
    return {stage: simplify_fraction(Fraction(tax)) for stage, tax in sorted(tax_by_stage.items())}


def tax_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """Yield a note on how many compute kernels under communication are left out, because none of their name ran
    alone.
    """
    for run in captures:
        left_out_count = covered_count = 0
        for window in run.load_windows(spec):
            medians = window.track.whole_track.isolated_median_ns
            names = take(window.kernels.full_name, window.compute_under_communication)
            numbers, distinct_names = find_distinct_rows(names)
            name_counts = zip(distinct_names, count_numbers(numbers, len(distinct_names)), strict=True)
            left_out_count += sum(kernels for (name,), kernels in name_counts if name not in medians)
            covered_count += len(names)
        if left_out_count:
            share_text = (
                f"{format_percent_of(left_out_count, covered_count)} of {covered_count} compute kernels under "
                "communication"
            )
            yield Note(f"overlap_tax_ns leaves out {share_text}: kernels of their name never ran alone")
