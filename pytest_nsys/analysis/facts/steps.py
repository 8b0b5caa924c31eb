"""Do the steps of a run say enough? Their number on each rank, whether they have kernels, and how alike they are.

A window is found by counting anchors. Where the record of the kernels does not reach over that of the ranges, or where
one rank has fewer anchors than the ranks beside it, the one in the middle may be whole and be another piece of work.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from pytest_nsys.analysis.fact_bounds import FEW_ANCHORS
from pytest_nsys.analysis.facts.fact import Measured
from pytest_nsys.analysis.facts.ground import Ground
from pytest_nsys.analysis.metrics.throughput import Deviation, deviation
from pytest_nsys.analysis.windows.run import Run, WindowGroup
from pytest_nsys.analysis.windows.spans import MEDIAN, STEADY, WindowSpec, anchor_of, numbered, whole_steps
from pytest_nsys.analysis.windows.step_kinds import counted_steps
from pytest_nsys.core.columns import take
from pytest_nsys.core.conventions import KernelAnchor
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.exact import median
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.model import OPEN_END_NS, Interval, Lane, Range
from pytest_nsys.core.numbers import percent
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.words import are, counted, ranks_words


def measure_anchors(ground: Ground) -> Iterator[Measured]:
    """Yield the fewest anchors of a rank, where something is a median over anchors.

    One range that was asked for by name is no median; an index is none. Nor is one step alone that ``first`` asks for,
    or the default where runs like this one have no more to choose from: that is told.
    """
    spec = ground.group.spec
    counts = anchor_counts(ground.group)
    usual_steps = ground.bounds.usual_steps
    reason, remedy = "the median of so few is unreliable", "profile more steps"
    if spec.anchor is not None:
        counts = [(number, count) for number, count in counts if count > 1]
    elif spec.window not in (MEDIAN, STEADY) and (is_one(counts) or "quantile" not in ground.metric.dimensions):
        return
    elif spec.window == MEDIAN and is_one(counts):
        if usual_steps is not None and usual_steps < FEW_ANCHORS:
            return
        reason = reason if usual_steps is None else f"the run it is held against had {usual_steps}"
        remedy = "profile more steps, or, where one is what you capture, write window: first"
    if counts:
        fewest = min(count for _, count in counts)
        ranks = [number for number, count in counts if count == fewest]
        verb = "has" if len(ranks) == 1 else "have"
        yield Measured(fewest, f"{ranks_words(ranks)} {verb} {counted(fewest, spec.unit)}", reason, remedy)


def measure_single_step(ground: Ground) -> Iterator[Measured]:
    """Yield that every rank has one step, from which nobody can tell how much steps differ."""
    if is_one(anchor_counts(ground.group)):
        yield Measured(1, "one step", "the noise within this run is unknown", "several captures would show it")


def measure_empty_anchors(ground: Ground) -> Iterator[Measured]:
    """Yield the rank with the greatest share of anchors in which no kernel runs."""
    emptiest = max(empty_anchors(ground.group), key=lambda empty: Fraction(empty.anchors, empty.of), default=None)
    if emptiest is not None:
        reason = "its kernels were not recorded for as long as its ranges, so any window may lack some"
        remedy = "profile fewer steps, and look at what the profiler said"
        yield Measured(Fraction(emptiest.anchors, emptiest.of), str(emptiest), reason, remedy)


def measure_uneven_anchors(ground: Ground) -> Iterator[Measured]:
    """Yield how many anchors a rank has more than another, where the window is found by their number."""
    spec, uneven = ground.group.spec, uneven_anchors(ground.group)
    is_by_count = spec.window in (MEDIAN, STEADY, "last") or spec.anchor is not None
    if uneven is not None and uneven.alike and is_by_count:
        yield Measured(uneven.apart, str(uneven), OTHER_WORK, "profile the same steps on all ranks")


def measure_uneven_pipeline(ground: Ground) -> Iterator[Measured]:
    """Yield by how many anchors ranks at two places of a pipeline differ, which may rightly have other numbers."""
    uneven = uneven_anchors(ground.group)
    if uneven is not None and not uneven.alike:
        yield Measured(uneven.apart, str(uneven), OTHER_WORK, doubtful=False)


OTHER_WORK = "so their windows hold different work"


def measure_mixed_labels(ground: Ground) -> Iterator[Measured]:
    """Yield the ranks whose steps are of several kinds under one label, which take no turns."""
    tracks = ground.group.tracks.items()
    if mixed_ranks := [number for number, track in tracks if track.steps is not None and track.steps.mixed]:
        words = f"{ranks_words(mixed_ranks)}: steps under one label launch other kernels, and take no turns"
        yield Measured(len(mixed_ranks), words, "the median is of several kinds of steps", doubtful=False)


def measure_other_steps(ground: Ground) -> Iterator[Measured]:
    """Yield that the ranks hold no step of the same number."""
    if are_at_other_steps(ground.group):
        words = "the ranks hold no step of the same number"
        yield Measured(1, words, "what is compared across them is other work", "profile the same steps on all ranks")


def measure_slow_steps(ground: Ground) -> Iterator[Measured]:
    """Yield the greatest share of a rank's time in steps that are far longer than the judged one."""
    if (slow := slow_steps(ground.group)) is not None:
        yield Measured(slow.share, str(slow), "'mean step time' counts every step")


def measure_unlike_steps(ground: Ground) -> Iterator[Measured]:
    """Yield by how great a share of its kernels the judged step differs from most steps of its rank.

    It is of the rank where it is most, and of steps of launches that are of one kind.
    """
    differences: list[tuple[Fraction, int, int, int]] = []
    for number, windows in ground.group.ranks.items():
        track = windows[0].track if windows else None
        if track is None or track.steps is None or track.steps.mixed or whole_steps(track.anchors) < FEWEST_ALIKE:
            continue
        try:
            kernel_counts = kernels_by_step(ground.group)[number]
        except NothingMeasured:  # of a cut
            return
        usual_count = int(median(kernel_counts[: whole_steps(track.anchors)]))
        judged_counts = [kernel_counts[i] for window in windows if (i := window.window.index) is not None]
        differences += [
            (Fraction(abs(count - usual_count), usual_count or 1), number, count, usual_count)
            for count in judged_counts
        ]
    share, number, count, usual_count = max(differences, default=(Fraction(), 0, 0, 0))
    if share:
        words = f"rank {number}: the judged step has {counted(count, 'kernel')}, most steps {usual_count}"
        yield Measured(share, words, "it is other work, or rows are missing", "look at another window")


@kept
def kernels_by_step(group: WindowGroup) -> Mapping[int, Sequence[int]]:
    """Count by rank how many kernels each step launched that its windows are picked from. Raises NothingMeasured."""
    counts_by_rank = {}
    for number, track in group.run.whole().tracks.items():
        launch_times = take(track.launch_ns, track.launch_order)
        steps = group.tracks[number].anchors if number in group.tracks else ()
        counts_by_rank[number] = [
            bisect_left(launch_times, s.end_ns) - bisect_left(launch_times, s.start_ns) for s in steps
        ]
    return counts_by_rank


# Whole steps: fewer do not say what most are like.
FEWEST_ALIKE = 5


def measure_missing_steps(ground: Ground) -> Iterator[Measured]:
    """Yield the rank that lacks the most of the steps between its first and last, by their numbers."""
    missing_count, rank, first, last = max(_missing_steps(ground.group), default=(0, 0, 0, 0))
    if missing_count:
        words = f"rank {-rank}: {missing_count} of steps {first} to {last} {are(missing_count)} not on record"
        yield Measured(missing_count, words, "the step before each is longer by it", "profile without a break")


@kept
def _missing_steps(group: WindowGroup) -> Sequence[tuple[int, int, int, int]]:
    """Find (number of missing steps, −rank, first, last) of each rank whose steps are numbered."""
    gaps = []
    for number, track in group.tracks.items() if not group.run.convention.kinds else ():
        if numbers := [*numbered(group.run.marks(track.rank, group.spec))]:
            gaps.append((numbers[-1] - numbers[0] + 1 - len(numbers), -number, numbers[0], numbers[-1]))
    return gaps


def measure_typicality(ground: Ground) -> Iterator[Measured]:
    """Yield how far the window of a rank is from its steady median, of the rank where it is farthest, in MAD."""
    farthest = max(deviations(ground.group), key=lambda item: item[1].in_spreads, default=None)
    if farthest is not None:
        words, reason = (
            f"rank {farthest[0]}: the window is {farthest[1]}",
            "an untypical window does not represent the run",
        )
        yield Measured(farthest[1].in_spreads, words, reason, "profile more steps or take another window")


class Empty(NamedTuple):
    """Counts a rank's anchors, which are of a ``unit``, that have no kernel."""

    rank: int
    anchors: int
    of: int  # all of the rank
    unit: str

    def __str__(self) -> str:
        have = "has" if self.anchors == 1 else "have"
        return f"rank {self.rank}: {self.anchors} of {counted(self.of, self.unit)} {have} no kernel"


class Uneven(NamedTuple):
    """Describes the fewest and the most anchors of ranks that should have as many."""

    fewest: tuple[int, int]  # (number of anchors, rank)
    most: tuple[int, int]
    alike: bool  # whether they are of one ``pp`` coordinate
    of: str = "anchor"  # what they are, ``step`` say

    @property
    def apart(self) -> int:
        """How many anchors lie between them."""
        return self.most[0] - self.fewest[0]

    def __str__(self) -> str:
        (least_count, rank), (most_count, other_rank) = self.fewest, self.most
        return f"rank {rank} has {counted(least_count, self.of)}, rank {other_rank} has {most_count}"


def empty_anchors(group: WindowGroup) -> list[Empty]:
    """Find the ranks that have anchors without a kernel, wherever these lie."""
    empties = []
    for number, periods in idle_periods(group).items():
        starts, rank = {start for start, _ in periods}, group.tracks[number].rank
        anchors = group.run.marks(rank, group.spec)
        empties.append(
            Empty(number, sum(anchor.start_ns in starts for anchor in anchors), len(anchors), group.spec.unit)
        )
    return empties


@kept
def idle_periods(group: WindowGroup) -> Mapping[int, Sequence[Interval]]:
    """Find by rank the times from one anchor to the next in which none of its kernels runs.

    Under kernels: launched none is launched in them, either. A unit of kernels always has some.
    """
    periods_by_rank: dict[int, Sequence[Interval]] = {}
    if isinstance(anchor_of(group.run.convention, group.spec), KernelAnchor):
        return periods_by_rank
    idle_by_trace = _idle(group.run, WindowSpec(group.spec.anchor or MEDIAN))
    for number, (trace, idle) in enumerate(zip(group.run.traces, idle_by_trace, strict=True)):
        if idle and group.spec.by_launch:
            idle = _without_launch(trace, idle)
        periods_by_rank |= {rank.number: idle[rank.lane] for rank in group.run.ranks_of(number) if rank.lane in idle}
    return {number: periods for number, periods in periods_by_rank.items() if number in group.tracks}


@kept
def _idle(run: Run, spec: WindowSpec) -> list[Mapping[Lane, Sequence[Interval]]]:
    """Read the idle periods of each trace, whichever windows are measured."""
    idle_by_trace = []
    for number, trace in enumerate(run.traces):
        anchors = {rank.lane: run.anchors(rank, spec) for rank in run.ranks_of(number)}
        idle_by_trace.append(
            trace.idle({lane: _periods(rank_anchors) for lane, rank_anchors in anchors.items() if rank_anchors})
        )
    return idle_by_trace


def _periods(anchors: Sequence[Range]) -> list[Interval]:
    """List the times from one anchor to the next, of the last to the end of the trace."""
    starts = sorted({anchor.start_ns for anchor in anchors})
    return list(pairwise([*starts, OPEN_END_NS]))


def _without_launch(trace: Trace, idle: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
    """Keep the idle periods in which nothing is launched."""
    try:
        kernels = trace.kernels_launched({lane: (spans[0][0], spans[-1][1]) for lane, spans in idle.items()})
    except NothingMeasured:  # of a cut, which says what it was in its trace
        return idle
    launches = {lane: sorted(calls.start_ns) for lane, calls in trace.launch_calls(kernels).items()}
    unlaunched = {lane: _between(launches.get(lane, ()), spans) for lane, spans in idle.items()}
    return {lane: spans for lane, spans in unlaunched.items() if spans}


def _between(launches: Sequence[int], spans: Sequence[Interval]) -> list[Interval]:
    """Select the spans in which there is no launch."""
    return [(low, high) for low, high in spans if bisect_left(launches, low) == bisect_left(launches, high)]


def uneven_anchors(group: WindowGroup) -> Uneven | None:
    """Find the worst difference among the ranks of one ``pp`` coordinate, where pipelines do as much; else among all
    ranks.

    None where all ranks have as many.
    """
    anchors = {number: len(track.anchors) for number, track in group.tracks.items()}
    counts, unit = [(count, number) for number, count in anchors.items()], group.spec.unit
    counts_by_stage = grouped(
        (group.tracks[number].rank.coordinates.get("pp"), (count, number)) for count, number in counts
    )
    uneven_stages = [
        Uneven(min(stage_counts), max(stage_counts), True, unit) for stage_counts in counts_by_stage.values()
    ]
    worst = max(uneven_stages, key=lambda uneven: uneven.apart, default=None)
    if worst is not None and worst.apart:
        return worst
    among_all = Uneven(min(counts), max(counts), False, unit) if counts else None
    return among_all if among_all is not None and among_all.apart else None


# Times the judged step: steps that take longer are slow.
LONG = Fraction(3, 2)


class SlowSteps(NamedTuple):
    """Counts the steps of a rank that take over ``SLOW_STEP_FACTOR`` times as long as the judged one."""

    rank: int
    steps: int
    of: int
    share: Fraction  # of the time of all steps, that the slow ones take

    def __str__(self) -> str:
        slow = f"{self.steps} of {counted(self.of, 'step')} {'takes' if self.steps == 1 else 'take'}"
        length_text = f"over {float(LONG):g} times as long as the judged one, {percent(self.share)} of the time of all"
        return f"rank {self.rank}: {slow} {length_text}"


def slow_steps(group: WindowGroup) -> SlowSteps | None:
    """Return the rank whose longer steps make up most of its run; None where no rank has any."""
    slow_by_rank = []
    for number, windows in group.ranks.items():
        lengths = [*counted_steps(windows[0].track.step_lengths_ns).values()] if windows else []
        judged_ns = median([window.length_ns for window in windows if window.window.index is not None] or [0])
        slow = [ns for ns in lengths if judged_ns and ns > LONG * Fraction(judged_ns)]
        slow_by_rank.append(SlowSteps(number, len(slow), len(lengths), Fraction(sum(slow), sum(lengths) or 1)))
    worst = max(
        slow_by_rank, key=lambda slow_steps_of_rank: (slow_steps_of_rank.share, -slow_steps_of_rank.rank), default=None
    )
    return worst if worst is not None and worst.steps else None


def are_at_other_steps(group: WindowGroup) -> bool:
    """Return whether steps count up on every rank, and no two ranks hold a whole one of the same number."""
    counting_tracks = [
        track for track in group.tracks.values() if track.steps is not None and not track.convention.kinds
    ]
    step_numbers = [{*[*numbered(track.anchors)][: whole_steps(track.anchors)]} for track in counting_tracks]
    return len(step_numbers) > 1 and all(step_numbers) and not set.intersection(*step_numbers)


def anchor_counts(group: WindowGroup) -> list[tuple[int, int]]:
    """Return (rank number, number of anchors) of each rank that has one."""
    return [(number, len(track.anchors)) for number, track in group.tracks.items() if track.anchors]


def is_one(counts: Sequence[tuple[int, int]]) -> bool:
    """Return whether every rank has one anchor: the run is one step."""
    return {count for _, count in counts} == {1}


def deviations(group: WindowGroup) -> list[tuple[int, Deviation]]:
    """Measure (rank number, how far its window is from the steady median) where each has one window by an anchor."""
    return [
        (number, window_deviation)
        for number, windows in group.ranks.items()
        if len(windows) == 1 and (window_deviation := deviation(windows[0])) is not None
    ]
