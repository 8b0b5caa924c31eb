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
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.core.columns import Column, counts, distinct, least_ratio, minus, sums_by, take, total, where
from pytest_nsys.core.exact import exact
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.model import Note, Value
from pytest_nsys.core.numbers import share_of


def _communicating(window: RankWindow) -> Iterator[tuple[str, Column, int]]:
    """(stage, kernels, Σ length) of the stages whose communication lasted some time."""
    for stage, members in window.by_stage.items():
        if length := total(take(window.durations_ns, members)):
            yield stage, members, length


def comm_ns(window: RankWindow) -> Mapping[str, int]:
    """Σ length of communication kernels, per (rank, stage)."""
    return {stage: length for stage, _, length in _communicating(window)}


def exposed_ns(window: RankWindow) -> Mapping[str, int]:
    """Communication time without compute, summed over kernels, per (rank, stage)."""
    return {stage: total(take(window.exposed_ns, members)) for stage, members, _ in _communicating(window)}


def overlap(window: RankWindow) -> Mapping[str, Value]:
    """(comm − exposed) / comm, per (rank, stage)."""
    each = (
        (stage, total(take(window.exposed_ns, members)), length) for stage, members, length in _communicating(window)
    )
    return {stage: exact(1 - Fraction(exposed, length)) for stage, exposed, length in each}


def _least_share(window: RankWindow, parts_ns: Column, members: Column) -> Fraction:
    """The smallest share that the part of a kernel is of its length."""
    lasting = take(members, where(take(window.durations_ns, members)))
    parts, lengths = take(parts_ns, lasting), take(window.durations_ns, lasting)
    least = least_ratio(parts, lengths)
    return Fraction(parts[least], lengths[least])


def overlap_min(window: RankWindow) -> Mapping[str, Value]:
    """Overlap of the least overlapped kernel, per (rank, stage)."""
    hidden = minus(window.durations_ns, window.exposed_ns)
    return {stage: exact(_least_share(window, hidden, members)) for stage, members, _ in _communicating(window)}


def overlap_max(window: RankWindow) -> Mapping[str, Value]:
    """Overlap of the best overlapped kernel, per (rank, stage)."""
    each = ((stage, _least_share(window, window.exposed_ns, members)) for stage, members, _ in _communicating(window))
    return {stage: exact(1 - share) for stage, share in each}


def barrier_ns(window: RankWindow) -> int:
    """Σ length of communication kernels on compute streams, per rank."""
    return total(take(window.durations_ns, window.barriers))


def wall_exposed_ns(window: RankWindow) -> int | None:
    """Time with communication and without compute, per rank: concurrent communication counts once."""
    return _wall_exposed(window, window.meanwhile.communication_time)


def wall_overlap(window: RankWindow) -> Value | None:
    """Share of communication's time that compute hides, per rank."""
    return _wall_overlap(window, window.meanwhile.communication_time)


def wall_exposed_all_ns(window: RankWindow) -> int | None:
    """Time with communication, barriers included, and without compute, per rank."""
    return _wall_exposed(window, window.meanwhile.all_communication_time)


def wall_overlap_all(window: RankWindow) -> Value | None:
    """Share of all communication's time, barriers included, that compute hides, per rank."""
    return _wall_overlap(window, window.meanwhile.all_communication_time)


def _wall_exposed(window: RankWindow, communication: Intervals) -> int | None:
    hidden = communication.common_ns(window.meanwhile.compute_time)
    return communication.total_ns - hidden if communication.total_ns else None


def _wall_overlap(window: RankWindow, communication: Intervals) -> Value | None:
    hidden = communication.common_ns(window.meanwhile.compute_time)
    return exact(Fraction(hidden, communication.total_ns)) if communication.total_ns else None


def overlap_tax_ns(window: RankWindow) -> Mapping[str, Value]:
    """What overlapping cost the compute, per (rank, stage): Σ (length − median length of that kernel alone).

    Over compute kernels that ran under communication anywhere in the run; the medians are those of the rank's whole
    run. A kernel name that never ran alone is left out; :func:`tax_notes` tells its share.
    """
    medians = window.track.whole.alone_median_ns
    numbers, stages = window.stages
    under, names = window.under_communication, window.kernels.full_name
    columns = take(window.whole_durations_ns, under), take(numbers, under), take(names, under)
    taxed: dict[str, Value] = {}
    for (stage, name), (length, kernels) in sums_by(lambda n, name: (stages[n], name), *columns).items():
        if name in medians:
            taxed[stage] = taxed.get(stage, 0) + length - kernels * medians[name]
    return {stage: exact(Fraction(tax)) for stage, tax in sorted(taxed.items())}


def tax_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """How many of the compute kernels under communication are left out, because none of their name ran alone."""
    for run in captures:
        without = under = 0
        for window in run.measured(spec):
            medians = window.track.whole.alone_median_ns
            names = take(window.kernels.full_name, window.under_communication)
            numbers, known = distinct(names)
            each = zip(known, counts(numbers, len(known)), strict=True)
            without += sum(kernels for (name,), kernels in each if name not in medians)
            under += len(names)
        if without:
            what = f"{share_of(without, under)} of {under} compute kernels under communication"
            yield Note(f"overlap_tax_ns leaves out {what}: kernels of their name never ran alone")
