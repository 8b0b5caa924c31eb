"""Which repeating segments of kernels are a unit of work, and which of several such units is the largest?

The thresholds were set on real traces whose steps are known: a wrong step is worse than none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, permutations

from pytest_nsys.analysis.steps.segments import (
    HASHED_KERNELS,
    MIN_SEGMENT_KERNELS,
    RankSequence,
    Segments,
    cut_segments,
    find_markers,
)
from pytest_nsys.analysis.windows.kernel_similarity import MAX_COUNT_CELLS, MIN_SIMILARITY
from pytest_nsys.core.arrays import numpy
from pytest_nsys.core.columns import Vector
from pytest_nsys.core.model import Interval

MIN_INTERIOR_SHARE = 0.95
"""The minimum share that the units cover between the first and the last of them, of kernels and of kernel time."""

MIN_TOTAL_SHARE = 0.50
"""The minimum share that the units cover of everything that the rank ran."""

# Two units that are less similar, or have fewer votes, must cover more.
MIN_TOTAL_SHARE_OF_TWO = 0.90
MIN_SIMILARITY_OF_FEW = 0.95
"""The minimum median similarity of two units, and of four or more whose marker is a pair of names."""

MIN_SIMILARITY_OF_TWO = 0.97
"""The minimum similarity of two units that cover less than MIN_TOTAL_SHARE_OF_TWO, if their marker has enough votes."""

MIN_SIMILARITY_OF_THREE = 0.98
"""The minimum similarity of three units whose marker is a pair of names, such as micro-batches after an optimizer."""

MIN_SURE_VOTES = 3  # markers that begin the same unit
# A unit holds several of another one that is more frequent and shorter by these factors, and covers as much within 1 %.
MIN_COUNT_RATIO = 1.5
MAX_UNIT_LENGTH_RATIO = 0.75
SHARE_TOLERANCE = 0.01
MIN_TURN_DIFFERENCE = 0.02
"""A larger unit that holds several smaller ones is the unit if their similarities at two places in it differ by this
much.
"""

MAX_MISSING_SHARE = 0.1
"""Of the kernels by which two units differ, the maximum share that only the smaller one may have."""

MAX_LATE_SHARE = 0.02
"""If the first unit begins after more kernels than this share of a unit, pairs of names are also tried, which may begin
units earlier.
"""

# The order is checked on the first units of a kind, at some positions of each: at three quarters of them a kernel
# lies within NEAR_SHARE of the unit, or NEAR_KERNELS, from where it lay in the unit before.
CHECKED_UNITS = 64
CHECKED_POSITIONS = 32
NEAR_SHARE = 0.05
NEAR_KERNELS = 8
MIN_ORDER_SHARE = 0.75

MAX_STEP_KINDS = 3

# A name that occurs this often in a unit belongs to its layers.
MIN_REPEATS = 4
MIN_REPEATED_SHARE = 0.5
"""The minimum share of a unit's kernel time that is in names which occur at least MIN_REPEATS times in it."""


# The shortest and the longest units are left out when lengths are compared.
TRIMMED_LENGTHS = 2
MIN_SPEED_RATIO = 1.5
"""Sorted unit lengths fall into two speeds if one of them is this many times the next lower one."""

MIN_UNITS_BESIDE_LONGER = 5
"""The minimum number of units next to which longer segments may also count as units."""

MIN_OWN_KERNEL_SHARE = 0.90
"""The minimum share of a longer segment's additional time that is in kernels whose names a unit has, too."""


@dataclass(frozen=True, eq=False)
class RepeatedUnit:
    """Describes a unit of work: the segments of some kinds.

    With ``holds_longer``, each of the other segments between them holds a unit and more.
    """

    segments: Segments
    kinds: tuple[int, ...]  # numbers of kinds of segments
    holds_longer: bool = False

    def __len__(self) -> int:
        return len(self.segment_numbers)

    @cached_property
    def segment_numbers(self) -> Vector:
        """The indices of the unit's segments."""
        return numpy.flatnonzero(numpy.isin(self.segments.kinds, self.kinds))

    @cached_property
    def start_positions(self) -> Vector:
        """The position at which each unit begins."""
        return self.segments.edges[self.segment_numbers]

    @cached_property
    def end_positions(self) -> Vector:
        """The position after the last kernel of each unit."""
        return self.segments.edges[self.segment_numbers + 1]

    @property
    def first_position(self) -> int:
        """The position at which the first unit begins."""
        return int(self.start_positions[0])

    @property
    def end_position(self) -> int:
        """The position after the last unit."""
        return int(self.end_positions[-1])

    @property
    def starts_ns(self) -> Vector:
        """The time in ns at which each unit is launched; if no launches are known, at which it starts to run."""
        starts_ns: Vector = self.segments.sequence.times_ns[self.start_positions]
        return starts_ns

    @property
    def spans_ns(self) -> list[Interval]:
        """The (start, end) in ns in which each unit is launched; if no launches are known, in which it runs."""
        at_ns = self.segments.sequence.times_ns
        ends_ns: Vector = numpy.append(at_ns, at_ns[-1] + 1)[self.end_positions]
        return [*zip(self.starts_ns.tolist(), ends_ns.tolist(), strict=True)]

    @property
    def median_size(self) -> float:
        """The median number of kernels in a unit."""
        return float(numpy.median(self.end_positions - self.start_positions))

    @property
    def lengths_ns(self) -> Vector:
        return self.segments.lengths_ns[self.segment_numbers]

    @property
    def median_length_ns(self) -> float:
        return float(numpy.median(self.lengths_ns))

    @property
    def has_two_speeds(self) -> bool:
        """Whether some units are far longer than the others, with few lengths in between."""
        inner_lengths_ns = sorted(self.lengths_ns.tolist())[TRIMMED_LENGTHS:-TRIMMED_LENGTHS]
        return any(longer_ns >= MIN_SPEED_RATIO * shorter_ns for shorter_ns, longer_ns in pairwise(inner_lengths_ns))

    @property
    def name_counts(self) -> Vector:
        """The name counts of the first unit of the kind."""
        leader: Vector = self.segments.leader_counts[self.kinds[0]]
        return leader

    @property
    def other_segments(self) -> Vector:
        """The indices of the segments between the first unit and the last that are no units."""
        return numpy.setdiff1d(numpy.arange(self.segment_numbers[0], self.segment_numbers[-1]), self.segment_numbers)

    @property
    def longer_segments(self) -> Vector:
        """The indices of the segments that hold a unit and more."""
        return self.other_segments if self.holds_longer else self.segment_numbers[:0]

    @cached_property
    def similarity(self) -> float:
        """The median similarity of the units to the first of their kind."""
        leaders = numpy.unique(self.segments.kinds[self.segment_numbers], return_index=True)[1]
        followers = numpy.delete(self.segment_numbers, leaders)
        return float(numpy.median(self.segments.similarities[followers])) if len(followers) else 1.0

    def measure_share(self, start: int, stop: int) -> float:
        """Measure the share that the units, longer segments included, cover between two positions."""
        counted_segments = numpy.union1d(self.segment_numbers, self.longer_segments)
        edges = self.segments.edges
        return self.segments.sequence.measure_share(edges[counted_segments], edges[counted_segments + 1], start, stop)

    @cached_property
    def interior_share(self) -> float:
        """The share that the units cover between the first and the last of them."""
        return self.measure_share(self.first_position, self.end_position)

    @cached_property
    def total_share(self) -> float:
        """The share that the units cover of everything that the rank ran."""
        return self.measure_share(0, len(self.segments.sequence))


UnitRule = Callable[[Segments], RepeatedUnit | None]
"""Builds a unit from the segments of a marker; returns None if the segments are not good enough."""


def _find_frequent_kinds(segments: Segments) -> list[int]:
    """Return the kinds that at least two segments have."""
    return [kind for kind in range(len(segments.leader_counts)) if (segments.kinds == kind).sum() >= 2]


def take_main_kind(segments: Segments) -> RepeatedUnit | None:
    """Return the segments of the main kind as a unit; None if they are not good enough."""
    times_ns = numpy.diff(segments.sequence.time_before_ns[segments.edges])
    kinds = _find_frequent_kinds(segments)
    if not kinds:
        return None
    unit = RepeatedUnit(segments, (max(kinds, key=lambda kind: int(times_ns[segments.kinds == kind].sum())),))
    if not _covers_enough(unit):
        unit = _add_longer_segments(unit)
    # a segment of another kind between the units, shorter than half a unit
    sizes = numpy.diff(segments.edges)[unit.other_segments]
    return (
        unit if _covers_enough(unit) and _is_similar_enough(unit) and not (sizes < unit.median_size / 2).any() else None
    )


def take_several_kinds(segments: Segments) -> RepeatedUnit | None:
    """Return the segments of two or three kinds as a unit; None if they are not steps of these kinds."""
    kinds = _find_frequent_kinds(segments)
    if not 2 <= len(kinds) <= MAX_STEP_KINDS:
        return None
    unit, leaders = RepeatedUnit(segments, tuple(kinds)), segments.leader_counts
    follows_itself = (
        segments.kinds[unit.segment_numbers[unit.segment_numbers > 0]]
        == segments.kinds[unit.segment_numbers[unit.segment_numbers > 0] - 1]
    )
    if not _covers_enough(unit) or not follows_itself.any():
        return None
    return None if any(holds_more(leaders[a], leaders[b]) for a, b in permutations(kinds, 2)) else unit


def _covers_enough(unit: RepeatedUnit) -> bool:
    """Return whether the units cover enough between the first and the last, and enough of everything that the rank
    ran.
    """
    return unit.interior_share >= MIN_INTERIOR_SHARE and unit.total_share >= MIN_TOTAL_SHARE


def _add_longer_segments(unit: RepeatedUnit) -> RepeatedUnit:
    """Add the segments that hold a unit and more of its own kernels, such as steps after a validation.

    A segment of a layer and what follows the last layer is not added, because that is made of other kernels.
    """
    sequence, other_segments = unit.segments.sequence, unit.other_segments
    is_too_rare = len(unit) < MIN_UNITS_BESIDE_LONGER or len(other_segments) * 2 > len(unit)
    if is_too_rare or not len(other_segments) or not repeats_inside(unit.segments, unit.kinds):
        return unit
    counts = sequence.count_names(unit.segments.edges[other_segments], unit.segments.edges[other_segments + 1])
    unit_counts = numpy.median(sequence.count_names(unit.start_positions, unit.end_positions), axis=0)
    holds_unit = numpy.minimum(counts, unit_counts).sum(axis=1) >= MIN_SIMILARITY * unit_counts.sum()
    extra_time_ns = numpy.maximum(counts - unit_counts, 0) * sequence.weights_ns
    is_own_kernels = extra_time_ns[:, unit_counts > 0].sum(axis=1) >= MIN_OWN_KERNEL_SHARE * extra_time_ns.sum(axis=1)
    return replace(unit, holds_longer=True) if (holds_unit & is_own_kernels).all() else unit


def _is_similar_enough(unit: RepeatedUnit) -> bool:
    """Return whether the units are similar enough, given their number and the level and votes of their marker."""
    if unit.segments.marker.level:
        return len(unit) > 2 and unit.similarity >= (
            MIN_SIMILARITY_OF_FEW if len(unit) > 3 else MIN_SIMILARITY_OF_THREE
        )
    is_sure = unit.similarity >= MIN_SIMILARITY_OF_TWO and unit.segments.marker.votes >= MIN_SURE_VOTES
    return (
        len(unit) > 2
        or is_sure
        or (unit.similarity >= MIN_SIMILARITY_OF_FEW and unit.total_share >= MIN_TOTAL_SHARE_OF_TWO)
    )


def holds_more(counts: Vector, other_counts: Vector) -> bool:
    """Return whether a stretch holds another one and more, judged by the counts of their names."""
    return bool(
        numpy.minimum(counts, other_counts).sum() >= MIN_SIMILARITY * other_counts.sum()
        and counts.sum() > other_counts.sum()
    )


def repeats_inside(segments: Segments, kinds: Sequence[int]) -> bool:
    """Return whether most of a segment's time, for each kind, is in names that occur often in it, as the layers of a
    step do.
    """
    counts = segments.leader_counts[list(kinds)]
    times_ns = counts * segments.sequence.weights_ns
    return bool(((times_ns * (counts >= MIN_REPEATS)).sum(axis=1) >= MIN_REPEATED_SHARE * times_ns.sum(axis=1)).all())


def runs_between_optimizers(unit: RepeatedUnit) -> bool:
    """Return whether the optimizer runs in at most two thirds of the units: then they are micro-batches."""
    optimizers_before = unit.segments.sequence.optimizers_before
    has_optimizer = optimizers_before[unit.end_positions] > optimizers_before[unit.start_positions]
    return bool(optimizers_before[-1]) and 3 * int(has_optimizer.sum()) <= 2 * len(unit)


UnitFilter = Callable[[RepeatedUnit], bool]


def choose_units(sequence: RankSequence, is_accepted: UnitFilter = lambda _: True) -> list[RepeatedUnit]:
    """Choose the largest unit that repeats on a rank, followed by the same unit with its other markers.

    Only units that ``is_accepted`` accepts count. The list is empty if nothing repeats.
    """
    units = _choose_largest_unit_at_level(sequence, 0, is_accepted)
    if units:
        unit = units[0]
        is_late = unit.first_position > MAX_LATE_SHARE * unit.median_size
        if not is_late and unit.segments.similarities[unit.segment_numbers].min() > 1 - MIN_TURN_DIFFERENCE:
            return units
    pair_units = _choose_largest_unit_at_level(sequence, 1, is_accepted)
    if pair_units and (not units or len(pair_units[0]) > len(units[0]) or _is_rather_step(pair_units[0], units[0])):
        return pair_units
    return units


def _is_rather_step(unit: RepeatedUnit, other_unit: RepeatedUnit) -> bool:
    """Return whether a unit that is no more frequent than another one is nevertheless the step.

    It is if it holds several of the other in a fixed pattern, or if the other begins where the host does not run ahead.
    """
    is_steadier = len(other_unit) - len(unit) <= 1 and other_unit.has_two_speeds and not unit.has_two_speeds
    return _is_made_of_turns(unit, other_unit) or (is_steadier and _is_same_unit(unit, other_unit))


def find_same_unit(sequence: RankSequence, positions: Vector, unit: RepeatedUnit) -> RepeatedUnit | None:
    """Return the unit of another rank that begins at these positions, found by the rule that found ``unit``; None
    without one.
    """
    if (
        not 2 <= len(positions) <= len(sequence) // MIN_SEGMENT_KERNELS
        or len(positions) * sequence.name_count > MAX_COUNT_CELLS
    ):
        return None
    segments = cut_segments(sequence, replace(unit.segments.marker, positions=positions))
    rule = take_main_kind if len(unit.kinds) == 1 else take_several_kinds
    same_unit = None if segments is None else rule(segments)
    return same_unit if same_unit is not None and has_kernels_in_order(same_unit) else None


def _choose_largest_unit_at_level(sequence: RankSequence, level: int, is_accepted: UnitFilter) -> list[RepeatedUnit]:
    """Choose the largest unit, of one kind or of several, among those that the markers of one level begin."""
    segments_by_marker = [
        segments for marker in find_markers(sequence, level) if (segments := cut_segments(sequence, marker)) is not None
    ]
    units, steps = (
        _find_largest(
            [unit for segments in segments_by_marker if (unit := rule(segments)) is not None and is_accepted(unit)]
        )
        for rule in (take_main_kind, take_several_kinds)
    )
    if not units or not steps:
        return units or steps
    are_more_units = (
        len(steps[0]) > len(units[0]) and abs(steps[0].total_share - units[0].total_share) <= SHARE_TOLERANCE
    )
    return steps if are_more_units and repeats_inside(steps[0].segments, steps[0].kinds) else units


def _find_largest(units: Sequence[RepeatedUnit]) -> list[RepeatedUnit]:
    """Return the largest of the good units whose kernels come in one order, once for each of its markers, the best
    marker first.
    """
    candidates = list(units)
    while candidates:
        single_units = [
            unit for unit in candidates if not any(_holds_several(unit, other_unit) for other_unit in candidates)
        ]
        best = min(single_units, key=lambda unit: (len(unit), -unit.total_share, unit.first_position))
        same_units = [unit for unit in candidates if _is_same_unit(unit, best)]
        highest_count = max(map(len, same_units))
        # a marker that begins the unit where the host runs ahead splits one speed into two
        same_units.sort(
            key=lambda unit: (
                unit.has_two_speeds or len(unit) < highest_count - 1,
                -len(unit),
                len(unit.segments.kinds),
                unit.first_position,
            )
        )
        if has_kernels_in_order(same_units[0]):
            return same_units
        candidates = [unit for unit in candidates if unit not in same_units]
    return []


def _holds_several(unit: RepeatedUnit, other_unit: RepeatedUnit) -> bool:
    """Return whether a unit consists of several of another one that covers as much of the span from its first to its
    last.
    """
    return (
        len(other_unit) > MIN_COUNT_RATIO * len(unit)
        and other_unit.median_length_ns < MAX_UNIT_LENGTH_RATIO * unit.median_length_ns
        and other_unit.measure_share(unit.first_position, unit.end_position) >= unit.interior_share - SHARE_TOLERANCE
        and not _is_made_of_turns(unit, other_unit)
        and (not runs_between_optimizers(other_unit) or runs_between_optimizers(unit))
    )


def _is_made_of_turns(unit: RepeatedUnit, other_unit: RepeatedUnit) -> bool:
    """Return whether a unit holds a fixed number of the other units, one of which does more, such as the micro-batch
    that the optimizer ends.
    """
    first_turns = other_unit.start_positions.searchsorted(unit.start_positions)
    counts = other_unit.start_positions.searchsorted(unit.end_positions) - first_turns
    turn_count = int(numpy.median(counts))
    full_units = first_turns[counts == turn_count]
    if turn_count < 2 or len(full_units) < 2 or len(full_units) < len(unit) - 1:
        return False
    similarities = other_unit.segments.similarities[other_unit.segment_numbers][
        full_units[:, None] + numpy.arange(turn_count)
    ]
    median_by_turn = numpy.median(similarities, axis=0)
    turn_difference = float(median_by_turn.max() - median_by_turn.min())
    if (
        turn_difference < MIN_TURN_DIFFERENCE
        or float(numpy.median(numpy.abs(similarities - median_by_turn), axis=0).max()) > turn_difference / 2
    ):
        return False
    compared_turns = full_units[len(full_units) // 2] + numpy.array([median_by_turn.argmax(), median_by_turn.argmin()])
    usual_counts, odd_counts = other_unit.segments.sequence.count_names(
        other_unit.start_positions[compared_turns], other_unit.end_positions[compared_turns]
    )
    missing = min(
        int(numpy.maximum(usual_counts - odd_counts, 0).sum()), int(numpy.maximum(odd_counts - usual_counts, 0).sum())
    )
    return missing <= MAX_MISSING_SHARE * int(numpy.abs(usual_counts - odd_counts).sum())


def _is_same_unit(unit: RepeatedUnit, other_unit: RepeatedUnit) -> bool:
    """Return whether two markers begin the same unit, at different positions in it."""
    similarity = unit.segments.sequence.measure_similarity(unit.name_counts, other_unit.name_counts[None])
    return len(unit.kinds) == len(other_unit.kinds) and bool(similarity[0] >= MIN_SIMILARITY)


def has_kernels_in_order(unit: RepeatedUnit) -> bool:
    """Return whether most kernels of a unit also occur in the previous unit of its kind, near the same position."""
    hashes, kinds = unit.segments.sequence.run_hashes, unit.segments.kinds[unit.segment_numbers]
    found_count = checked_count = 0
    for kind in unit.kinds:
        units_of_kind = numpy.flatnonzero(kinds == kind)[:CHECKED_UNITS]
        edges = zip(
            unit.start_positions[units_of_kind].tolist(),
            (unit.end_positions[units_of_kind] - HASHED_KERNELS + 1).tolist(),
            strict=True,
        )
        for (start, stop), (next_start, next_stop) in pairwise(edges):
            if stop <= start or next_stop <= next_start:
                continue
            distance = max(NEAR_KERNELS, int(NEAR_SHARE * (next_stop - next_start + HASHED_KERNELS - 1)))
            offsets = numpy.unique(numpy.linspace(0, next_stop - next_start - 1, CHECKED_POSITIONS).astype(numpy.int64))
            nearby = start + offsets[:, None] + numpy.arange(-distance, distance + 1)
            is_match = hashes[nearby.clip(start, stop - 1)] == hashes[next_start + offsets][:, None]
            found_count += int((is_match & (start <= nearby) & (nearby < stop)).any(axis=1).sum())
            checked_count += len(offsets)
    return found_count >= MIN_ORDER_SHARE * checked_count
