"""Are the steps of a run sufficient? Their number on each rank, whether they have kernels, and how alike they are.

A window is found by counting anchors. If kernels were recorded for less time than ranges, or one rank has fewer anchors
than the others, the middle anchor may be complete but hold different work.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from pytest_nsys.analysis.fact_bounds import FEW_ANCHORS
from pytest_nsys.analysis.facts.fact import MeasuredFact
from pytest_nsys.analysis.facts.quality_context import QualityContext
from pytest_nsys.analysis.metrics.throughput import Deviation, measure_deviation
from pytest_nsys.analysis.windows.run import Run, WindowGroup
from pytest_nsys.analysis.windows.step_kinds import drop_first_step
from pytest_nsys.analysis.windows.window_selection import (
    MEDIAN,
    STEADY,
    WindowSpec,
    count_whole_steps,
    find_anchor,
    map_step_numbers,
)
from pytest_nsys.core.columns import take
from pytest_nsys.core.conventions import KernelAnchor
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.exact import median
from pytest_nsys.core.memoize import group_by_key, memoize_method
from pytest_nsys.core.model import OPEN_END_NS, Interval, Lane, Range
from pytest_nsys.core.numbers import format_percent
from pytest_nsys.core.text_format import format_count, format_ranks, is_or_are
from pytest_nsys.core.trace import Trace


def measure_anchors(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the number of anchors on the rank that has fewest, if the metric is a median over anchors.

    A single range that was requested by name is no median, nor is an index, nor a single step that ``first`` requests.
    Nor is the default if runs like this one have no more steps; another fact reports that.
    """
    spec = context.group.spec
    counts = count_rank_anchors(context.group)
    usual_steps = context.bounds.usual_steps
    reason, remedy = "the median of so few is unreliable", "profile more steps"
    if spec.anchor is not None:
        counts = [(number, count) for number, count in counts if count > 1]
    elif spec.window not in (MEDIAN, STEADY) and (
        is_single_step(counts) or "quantile" not in context.metric.dimensions
    ):
        return
    elif spec.window == MEDIAN and is_single_step(counts):
        if usual_steps is not None and usual_steps < FEW_ANCHORS:
            return
        reason = reason if usual_steps is None else f"the run it is held against had {usual_steps}"
        remedy = "profile more steps, or, where one is what you capture, write window: first"
    if counts:
        fewest = min(count for _, count in counts)
        ranks = [number for number, count in counts if count == fewest]
        verb = "has" if len(ranks) == 1 else "have"
        yield MeasuredFact(
            fewest, f"{format_ranks(ranks)} {verb} {format_count(fewest, spec.source_noun)}", reason, remedy
        )


def measure_single_step(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield that every rank has only one step, so that the variation between steps is unknown."""
    if is_single_step(count_rank_anchors(context.group)):
        yield MeasuredFact(1, "one step", "the noise within this run is unknown", "several captures would show it")


def measure_empty_anchors(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the rank with the greatest share of anchors in which no kernel runs."""
    emptiest = max(
        find_empty_anchors(context.group),
        key=lambda empty: Fraction(empty.empty_count, empty.anchor_count),
        default=None,
    )
    if emptiest is not None:
        reason = "its kernels were not recorded for as long as its ranges, so any window may lack some"
        remedy = "profile fewer steps, and look at what the profiler said"
        yield MeasuredFact(Fraction(emptiest.empty_count, emptiest.anchor_count), str(emptiest), reason, remedy)


def measure_uneven_anchors(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield how many more anchors one rank has than another, if the window is found by counting them."""
    spec, uneven = context.group.spec, find_uneven_anchors(context.group)
    is_by_count = spec.window in (MEDIAN, STEADY, "last") or spec.anchor is not None
    if uneven is not None and uneven.is_one_stage and is_by_count:
        yield MeasuredFact(uneven.difference, str(uneven), OTHER_WORK_REASON, "profile the same steps on all ranks")


def measure_uneven_pipeline(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the difference in anchors between ranks at two pipeline stages, which may legitimately differ."""
    uneven = find_uneven_anchors(context.group)
    if uneven is not None and not uneven.is_one_stage:
        yield MeasuredFact(uneven.difference, str(uneven), OTHER_WORK_REASON, is_doubtful=False)


OTHER_WORK_REASON = "so their windows hold different work"


def measure_mixed_labels(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the ranks whose steps are of several kinds under one label, and do not alternate."""
    tracks = context.group.tracks.items()
    if mixed_ranks := [
        number for number, track in tracks if track.steps_by_kind is not None and track.steps_by_kind.has_mixed_kinds
    ]:
        words = f"{format_ranks(mixed_ranks)}: steps under one label launch other kernels, and take no turns"
        yield MeasuredFact(len(mixed_ranks), words, "the median is of several kinds of steps", is_doubtful=False)


def measure_other_steps(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield that no step number occurs on all ranks."""
    if has_no_common_step(context.group):
        words = "the ranks hold no step of the same number"
        yield MeasuredFact(
            1, words, "what is compared across them is other work", "profile the same steps on all ranks"
        )


def measure_slow_steps(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the largest share of a rank's time in steps that are far longer than the judged one."""
    if (slow := find_slow_steps(context.group)) is not None:
        yield MeasuredFact(slow.share, str(slow), "'mean step time' counts every step")


def measure_unlike_steps(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the share of its kernels by which the judged step differs from most steps of its rank.

    The worst rank is taken; only steps of launches of a single kind are compared.
    """
    differences: list[tuple[Fraction, int, int, int]] = []
    for number, windows in context.group.windows_by_rank.items():
        track = windows[0].track if windows else None
        if (
            track is None
            or track.steps_by_kind is None
            or track.steps_by_kind.has_mixed_kinds
            or count_whole_steps(track.anchors) < MIN_WHOLE_STEPS
        ):
            continue
        try:
            kernel_counts = count_kernels_by_step(context.group)[number]
        except NothingMeasured:  # of a cut
            return
        usual_count = int(median(kernel_counts[: count_whole_steps(track.anchors)]))
        judged_counts = [kernel_counts[i] for window in windows if (i := window.window.index) is not None]
        differences += [
            (Fraction(abs(count - usual_count), usual_count or 1), number, count, usual_count)
            for count in judged_counts
        ]
    share, number, count, usual_count = max(differences, default=(Fraction(), 0, 0, 0))
    if share:
        words = f"rank {number}: the judged step has {format_count(count, 'kernel')}, most steps {usual_count}"
        yield MeasuredFact(share, words, "it is other work, or rows are missing", "look at another window")


@memoize_method
def count_kernels_by_step(group: WindowGroup) -> Mapping[int, Sequence[int]]:
    """Count by rank the kernels that each step among those its windows are picked from launched. Raises
    NothingMeasured.
    """
    counts_by_rank = {}
    for number, track in group.run.load_whole_run().tracks.items():
        launch_times = take(track.launch_ns, track.launch_order)
        steps = group.tracks[number].anchors if number in group.tracks else ()
        counts_by_rank[number] = [
            bisect_left(launch_times, s.end_ns) - bisect_left(launch_times, s.start_ns) for s in steps
        ]
    return counts_by_rank


# Minimum number of whole steps to know what most steps are like.
MIN_WHOLE_STEPS = 5


def measure_missing_steps(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the rank that lacks most steps between its first and last, by their numbers."""
    missing_count, rank, first, last = max(_find_missing_steps(context.group), default=(0, 0, 0, 0))
    if missing_count:
        words = f"rank {-rank}: {missing_count} of steps {first} to {last} {is_or_are(missing_count)} not on record"
        yield MeasuredFact(missing_count, words, "the step before each is longer by it", "profile without a break")


@memoize_method
def _find_missing_steps(group: WindowGroup) -> Sequence[tuple[int, int, int, int]]:
    """Find (number of missing steps, −rank, first, last) of each rank whose steps are numbered."""
    gaps = []
    for number, track in group.tracks.items() if not group.run.convention.kinds else ():
        if numbers := [*map_step_numbers(group.run.find_anchors_of_kind(track.rank, group.spec))]:
            gaps.append((numbers[-1] - numbers[0] + 1 - len(numbers), -number, numbers[0], numbers[-1]))
    return gaps


TYPICAL_SHARE = Fraction(5, 1000)
"""A window that is so near to the steady median is typical, as a step that changes by no more is unchanged: where steps
hardly vary, a few MAD are microseconds.
"""


def measure_typicality(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield how far the window of a rank is from its steady median, in MAD, for the farthest rank.

    Without a bound in the gate file, windows near the median are left out.
    """
    is_bounded = context.bounds.typicality is not None
    deviations = (item for item in measure_deviations(context.group) if is_bounded or item[1].share > TYPICAL_SHARE)
    farthest = max(deviations, key=lambda item: item[1].in_mads, default=None)
    if farthest is not None:
        words = f"rank {farthest[0]}: window {farthest[1]}"
        yield MeasuredFact(farthest[1].in_mads, words, "untypical", "profile more steps")


class EmptyAnchors(NamedTuple):
    """Counts the anchors of a rank that have no kernel; ``unit`` is their noun."""

    rank: int
    empty_count: int
    anchor_count: int  # all of the rank
    unit: str

    def __str__(self) -> str:
        have = "has" if self.empty_count == 1 else "have"
        return f"rank {self.rank}: {self.empty_count} of {format_count(self.anchor_count, self.unit)} {have} no kernel"


class UnevenAnchors(NamedTuple):
    """Describes the fewest and the most anchors of ranks that should have equally many."""

    fewest: tuple[int, int]  # (number of anchors, rank)
    most: tuple[int, int]
    is_one_stage: bool  # whether the ranks have one ``pp`` coordinate
    unit: str = "anchor"  # noun for the anchors, such as ``step``

    @property
    def difference(self) -> int:
        """The difference between the most and the fewest anchors."""
        return self.most[0] - self.fewest[0]

    def __str__(self) -> str:
        (least_count, rank), (most_count, other_rank) = self.fewest, self.most
        return f"rank {rank} has {format_count(least_count, self.unit)}, rank {other_rank} has {most_count}"


def find_empty_anchors(group: WindowGroup) -> list[EmptyAnchors]:
    """Find the ranks that have anchors without a kernel, wherever these lie."""
    empties = []
    for number, periods in find_idle_periods(group).items():
        starts, rank = {start for start, _ in periods}, group.tracks[number].rank
        anchors = group.run.find_anchors_of_kind(rank, group.spec)
        empties.append(
            EmptyAnchors(
                number, sum(anchor.start_ns in starts for anchor in anchors), len(anchors), group.spec.source_noun
            )
        )
    return empties


@memoize_method
def find_idle_periods(group: WindowGroup) -> Mapping[int, Sequence[Interval]]:
    """Find by rank the times from one anchor to the next in which none of its kernels runs.

    If kernels count by launch, none is launched in them, either. A unit that a kernel begins is never idle.
    """
    periods_by_rank: dict[int, Sequence[Interval]] = {}
    if isinstance(find_anchor(group.run.convention, group.spec), KernelAnchor):
        return periods_by_rank
    idle_by_trace = _read_idle_periods(group.run, WindowSpec(group.spec.anchor or MEDIAN))
    for number, (trace, idle) in enumerate(zip(group.run.traces, idle_by_trace, strict=True)):
        if idle and group.spec.is_by_launch:
            idle = _keep_unlaunched_periods(trace, idle)
        periods_by_rank |= {
            rank.number: idle[rank.lane] for rank in group.run.list_trace_ranks(number) if rank.lane in idle
        }
    return {number: periods for number, periods in periods_by_rank.items() if number in group.tracks}


@memoize_method
def _read_idle_periods(run: Run, spec: WindowSpec) -> list[Mapping[Lane, Sequence[Interval]]]:
    """Read the idle periods of each trace, whichever windows are measured."""
    idle_by_trace = []
    for number, trace in enumerate(run.traces):
        anchors = {rank.lane: run.find_anchors(rank, spec) for rank in run.list_trace_ranks(number)}
        idle_by_trace.append(
            trace.idle({lane: _list_periods(rank_anchors) for lane, rank_anchors in anchors.items() if rank_anchors})
        )
    return idle_by_trace


def _list_periods(anchors: Sequence[Range]) -> list[Interval]:
    """List the times from one anchor to the next; the last one ends with the trace."""
    starts = sorted({anchor.start_ns for anchor in anchors})
    return list(pairwise([*starts, OPEN_END_NS]))


def _keep_unlaunched_periods(
    trace: Trace, idle: Mapping[Lane, Sequence[Interval]]
) -> Mapping[Lane, Sequence[Interval]]:
    """Keep the idle periods in which nothing is launched."""
    try:
        kernels = trace.kernels_launched({lane: (spans[0][0], spans[-1][1]) for lane, spans in idle.items()})
    except NothingMeasured:  # a cut stores the answer of its trace
        return idle
    launches = {lane: sorted(calls.start_ns) for lane, calls in trace.launch_calls(kernels).items()}
    unlaunched = {lane: _select_spans_between(launches.get(lane, ()), spans) for lane, spans in idle.items()}
    return {lane: spans for lane, spans in unlaunched.items() if spans}


def _select_spans_between(launches: Sequence[int], spans: Sequence[Interval]) -> list[Interval]:
    """Select the spans in which there is no launch."""
    return [(low, high) for low, high in spans if bisect_left(launches, low) == bisect_left(launches, high)]


def find_uneven_anchors(group: WindowGroup) -> UnevenAnchors | None:
    """Find the largest difference between ranks of one ``pp`` coordinate or, if these agree, between all ranks.

    None if all ranks have equally many.
    """
    anchors = {number: len(track.anchors) for number, track in group.tracks.items()}
    counts, unit = [(count, number) for number, count in anchors.items()], group.spec.source_noun
    counts_by_stage = group_by_key(
        (group.tracks[number].rank.coordinates.get("pp"), (count, number)) for count, number in counts
    )
    uneven_stages = [
        UnevenAnchors(min(stage_counts), max(stage_counts), True, unit) for stage_counts in counts_by_stage.values()
    ]
    worst = max(uneven_stages, key=lambda uneven: uneven.difference, default=None)
    if worst is not None and worst.difference:
        return worst
    among_all = UnevenAnchors(min(counts), max(counts), False, unit) if counts else None
    return among_all if among_all is not None and among_all.difference else None


# Steps longer than the judged one times this factor are slow.
SLOW_STEP_FACTOR = Fraction(3, 2)


class SlowSteps(NamedTuple):
    """Counts the steps of a rank that are over ``SLOW_STEP_FACTOR`` times as long as the judged one."""

    rank: int
    slow_count: int
    step_count: int
    share: Fraction  # share of the time of all steps that the slow ones take

    def __str__(self) -> str:
        slow = (
            f"{self.slow_count} of {format_count(self.step_count, 'step')} "
            f"{'takes' if self.slow_count == 1 else 'take'}"
        )
        length_text = (
            f"over {float(SLOW_STEP_FACTOR):g} times as long as the judged one, {format_percent(self.share)} of the "
            "time of all"
        )
        return f"rank {self.rank}: {slow} {length_text}"


def find_slow_steps(group: WindowGroup) -> SlowSteps | None:
    """Return the slow steps of the rank where they make up the largest share of the run; None if no rank has any."""
    slow_by_rank = []
    for number, windows in group.windows_by_rank.items():
        lengths = [*drop_first_step(windows[0].track.step_lengths_ns).values()] if windows else []
        judged_ns = median([window.length_ns for window in windows if window.window.index is not None] or [0])
        slow = [ns for ns in lengths if judged_ns and ns > SLOW_STEP_FACTOR * Fraction(judged_ns)]
        slow_by_rank.append(SlowSteps(number, len(slow), len(lengths), Fraction(sum(slow), sum(lengths) or 1)))
    worst = max(
        slow_by_rank, key=lambda slow_steps_of_rank: (slow_steps_of_rank.share, -slow_steps_of_rank.rank), default=None
    )
    return worst if worst is not None and worst.slow_count else None


def has_no_common_step(group: WindowGroup) -> bool:
    """Return whether steps are numbered on every rank, and no two ranks hold a whole step of the same number."""
    counting_tracks = [
        track for track in group.tracks.values() if track.steps_by_kind is not None and not track.convention.kinds
    ]
    step_numbers = [
        {*[*map_step_numbers(track.anchors)][: count_whole_steps(track.anchors)]} for track in counting_tracks
    ]
    return len(step_numbers) > 1 and all(step_numbers) and not set.intersection(*step_numbers)


def count_rank_anchors(group: WindowGroup) -> list[tuple[int, int]]:
    """Return (rank number, number of anchors) of each rank that has one."""
    return [(number, len(track.anchors)) for number, track in group.tracks.items() if track.anchors]


def is_single_step(counts: Sequence[tuple[int, int]]) -> bool:
    """Return whether every rank has one anchor: the run is one step."""
    return {count for _, count in counts} == {1}


def measure_deviations(group: WindowGroup) -> list[tuple[int, Deviation]]:
    """Measure (rank number, how far its window is from the steady median) where each has one window by an anchor."""
    return [
        (number, window_deviation)
        for number, windows in group.windows_by_rank.items()
        if len(windows) == 1 and (window_deviation := measure_deviation(windows[0])) is not None
    ]
