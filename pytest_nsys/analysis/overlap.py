"""How well is communication hidden behind compute? (definition 1 of each metric)

Per stage, over the kernels of communication streams: a kernel is exposed while no compute kernel of the window runs.
Concurrent communication on two streams is summed by the per-stage numbers and counted once by the ``wall_`` ones. No
communication, or only kernels of no length, gives no row: an exposed time of 0 would be green on nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.exact import exact
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.model import Note, Row, share_of


def _communicating(window: RankWindow) -> Iterator[tuple[str, list[int], int]]:
    """(stage, kernels, Σ length) of the stages whose communication lasted some time."""
    for stage, members in window.by_stage.items():
        if total := sum(window.durations_ns[i] for i in members):
            yield stage, members, total


def comm_ns(window: RankWindow) -> Iterator[Row]:
    """Σ length of communication kernels, per (rank, stage)."""
    for stage, _, total in _communicating(window):
        yield Row((window.rank.number, stage), total)


def exposed_ns(window: RankWindow) -> Iterator[Row]:
    """Σ over communication kernels of the part during which no compute kernel runs, per (rank, stage)."""
    for stage, members, _ in _communicating(window):
        yield Row((window.rank.number, stage), sum(window.exposed_ns[i] for i in members))


def overlap(window: RankWindow) -> Iterator[Row]:
    """(comm − exposed) / comm, per (rank, stage)."""
    for stage, members, total in _communicating(window):
        hidden = total - sum(window.exposed_ns[i] for i in members)
        yield Row((window.rank.number, stage), exact(Fraction(hidden, total)))


def _kernel_overlaps(window: RankWindow, members: list[int]) -> list[Fraction]:
    lengths = window.durations_ns
    return [Fraction(lengths[i] - window.exposed_ns[i], lengths[i]) for i in members if lengths[i]]


def overlap_min(window: RankWindow) -> Iterator[Row]:
    """The least hidden single kernel, per (rank, stage)."""
    for stage, members, _ in _communicating(window):
        yield Row((window.rank.number, stage), exact(min(_kernel_overlaps(window, members))))


def overlap_max(window: RankWindow) -> Iterator[Row]:
    """The best hidden single kernel, per (rank, stage)."""
    for stage, members, _ in _communicating(window):
        yield Row((window.rank.number, stage), exact(max(_kernel_overlaps(window, members))))


def barrier_ns(window: RankWindow) -> Iterator[Row]:
    """Σ length of communication kernels on compute streams, per rank."""
    yield Row((window.rank.number,), sum(window.durations_ns[i] for i in window.barriers))


def _exposed(communication: Intervals, window: RankWindow) -> int:
    return communication.total_ns - communication.common_ns(window.compute_time)


def wall_exposed_ns(window: RankWindow) -> Iterator[Row]:
    """Time with communication and without compute, per rank: concurrent communication counts once."""
    if window.communication_time.total_ns:
        yield Row((window.rank.number,), _exposed(window.communication_time, window))


def stage_wall_exposed_ns(window: RankWindow) -> Iterator[Row]:
    """Time with communication of a stage and without compute, per (rank, stage)."""
    for stage, members, _ in _communicating(window):
        yield Row((window.rank.number, stage), _exposed(Intervals(window.spans(members)), window))


def wall_overlap(window: RankWindow) -> Iterator[Row]:
    """Share of the time with communication during which compute runs, per rank."""
    yield from _wall_overlap(window, window.communication_time)


def wall_exposed_all_ns(window: RankWindow) -> Iterator[Row]:
    """Time with communication, barriers included, and without compute, per rank."""
    if window.all_communication_time.total_ns:
        yield Row((window.rank.number,), _exposed(window.all_communication_time, window))


def wall_overlap_all(window: RankWindow) -> Iterator[Row]:
    """Share of the time with communication, barriers included, during which compute runs, per rank."""
    yield from _wall_overlap(window, window.all_communication_time)


def _wall_overlap(window: RankWindow, communication: Intervals) -> Iterator[Row]:
    if communication.total_ns:
        hidden = communication.common_ns(window.compute_time)
        yield Row((window.rank.number,), exact(Fraction(hidden, communication.total_ns)))


def overlap_tax_ns(window: RankWindow) -> Iterator[Row]:
    """What overlapping cost the compute, per (rank, stage): Σ (length − median length of that kernel alone).

    Over compute kernels that ran under communication anywhere in the run; the medians are those of the rank's whole
    run. A kernel name that never ran alone is left out; :func:`tax_notes` tells its share.
    """
    medians = window.track.whole.alone_median_ns
    taxed: dict[str, Fraction] = {}
    for i in window.under_communication:
        alone = medians.get(window.kernels.full_name[i])
        if alone is not None:
            stage = window.context(i)[0]
            taxed[stage] = taxed.get(stage, Fraction(0)) + _length(window, i) - alone
    for stage, tax in sorted(taxed.items()):
        yield Row((window.rank.number, stage), exact(tax))


def tax_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """How many of the compute kernels under communication are left out, because none of their name ran alone."""
    for run in captures:
        without = under = 0
        for window in run.measured(spec):
            medians = window.track.whole.alone_median_ns
            without += sum(window.kernels.full_name[i] not in medians for i in window.under_communication)
            under += len(window.under_communication)
        if without:
            what = f"{share_of(without, under)} of {under} compute kernels under communication"
            yield Note(f"overlap_tax_ns leaves out {what}: kernels of their name never ran alone")


def _length(window: RankWindow, i: int) -> int:
    """The whole length of a kernel, also where the window cuts it."""
    kernels, position = window.track.kernels, window.positions[i]
    return kernels.end_ns[position] - kernels.start_ns[position]
