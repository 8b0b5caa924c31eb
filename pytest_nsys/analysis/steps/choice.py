"""Which segments of kernels repeat so that they are a unit of work, and which of several such units is the largest?

The thresholds were set on real traces whose steps are known, so that nothing is found rather than a wrong step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, permutations

from pytest_nsys.analysis.steps.segments import FEWEST_KERNELS, IN_A_ROW, Segments, Work, cut_segments, find_markers
from pytest_nsys.analysis.windows.likeness import ALIKE, MOST_COUNTS
from pytest_nsys.core.arrays import numpy
from pytest_nsys.core.columns import Vector
from pytest_nsys.core.model import Interval

INTERIOR = 0.95
"""The smallest share that units must have of all from the first to the last: of kernels and of their time."""

COVER = 0.50
"""The smallest share that units must have of all that the rank ran."""

# Two units that are less similar, or have fewer votes, must cover more.
COVER_OF_TWO = 0.90
ALIKE_OF_FEW = 0.95
"""The smallest median similarity of two units, and of four and more that two names begin together."""

ALIKE_OF_TWO = 0.97
"""The smallest similarity of two units that cover less, between the ends of others, with votes."""

ALIKE_OF_THREE = 0.98
"""The smallest similarity of three units that two names begin together, as a micro-batch after an optimizer."""

MANY_VOTES = 3  # names, or pairs of them, that begin the same unit
# A unit is several of another one that is more frequent and shorter by these factors, and covers as much within 1 %.
SEVERAL_TIMES = 1.5
SEVERAL_SHORTER = 0.75
SAME_COVER = 0.01
TURNS_APART = 0.02
"""How much less similar the units inside a larger one are at one turn than at another, for the larger to be the unit.
"""

MISSING = 0.1
"""The largest share of what differs between two units that only the one which does less may have."""

LATE = 0.02
"""The share of a unit's size before the first unit from which on a marker of two names may begin it earlier."""

# The order is checked on the first units of a kind, at some positions of each: at three quarters of them a kernel
# lies within NEAR_SHARE of the unit, or NEAR_KERNELS, from where it lay in the unit before.
CHECKED_UNITS = 64
CHECKED_PLACES = 32
NEAR = 0.05
NEAR_KERNELS = 8
IN_ORDER = 0.75

MOST_KINDS_OF_STEPS = 3

# A name that occurs so often in a unit is one of its layers'.
OFTEN = 4
REPEATED = 0.5
"""The smallest share of a unit's kernel time that is in names which occur often in it."""


# The shortest and the longest units are left out when lengths are compared.
LEFT_ASIDE = 2
JUMP = 1.5
"""The smallest ratio of one length to the next lower one that makes two speeds."""

FEWEST_BESIDE = 5
"""The fewest units that can be distinguished from other segments which hold more."""

OWN_KERNELS = 0.90
"""The smallest share of a unit's own kernels in the additional time of longer segments."""


@dataclass(frozen=True, eq=False)
class RepeatedUnit:
    """Describes what repeats: the segments of some kinds.

    Where it ``holds_longer`` ones, the segments between them hold a unit and more.
    """

    segments: Segments
    kinds: tuple[int, ...]  # numbers of kinds of segments
    holds_longer: bool = False

    def __len__(self) -> int:
        return len(self.members)

    @cached_property
    def members(self) -> Vector:
        """The numbers of its segments."""
        return numpy.flatnonzero(numpy.isin(self.segments.kind, self.kinds))

    @cached_property
    def firsts(self) -> Vector:
        """The position at which each unit begins."""
        return self.segments.edges[self.members]

    @cached_property
    def afters(self) -> Vector:
        """The position after the last kernel of each unit."""
        return self.segments.edges[self.members + 1]

    @property
    def first(self) -> int:
        """The position at which the first unit begins."""
        return int(self.firsts[0])

    @property
    def after(self) -> int:
        """The position after the last unit."""
        return int(self.afters[-1])

    @property
    def starts_ns(self) -> Vector:
        """The time in ns at which each unit is launched, or runs where no launches are known."""
        starts_ns: Vector = self.segments.work.at_ns[self.firsts]
        return starts_ns

    @property
    def spans(self) -> list[Interval]:
        """The (start, end) in ns in which each unit is launched, or runs where no launches are known."""
        at_ns = self.segments.work.at_ns
        ends_ns: Vector = numpy.append(at_ns, at_ns[-1] + 1)[self.afters]
        return [*zip(self.starts_ns.tolist(), ends_ns.tolist(), strict=True)]

    @property
    def size(self) -> float:
        """The median number of kernels in a unit."""
        return float(numpy.median(self.afters - self.firsts))

    @property
    def lengths_ns(self) -> Vector:
        return self.segments.lengths_ns[self.members]

    @property
    def length_ns(self) -> float:
        return float(numpy.median(self.lengths_ns))

    @property
    def two_speeds(self) -> bool:
        """Whether some units are far longer than others, and few lie between."""
        inner_lengths_ns = sorted(self.lengths_ns.tolist())[LEFT_ASIDE:-LEFT_ASIDE]
        return any(longer_ns >= JUMP * shorter_ns for shorter_ns, longer_ns in pairwise(inner_lengths_ns))

    @property
    def counts(self) -> Vector:
        """The name counts of the first unit of the kind."""
        leader: Vector = self.segments.leaders[self.kinds[0]]
        return leader

    @property
    def odd(self) -> Vector:
        """The numbers of the other segments between the first unit and the last."""
        return numpy.setdiff1d(numpy.arange(self.members[0], self.members[-1]), self.members)

    @property
    def beside(self) -> Vector:
        """The numbers of the segments that hold a unit, and more."""
        return self.odd if self.holds_longer else self.members[:0]

    @cached_property
    def alike(self) -> float:
        """The median similarity of the units to the first of their kind."""
        leaders = numpy.unique(self.segments.kind[self.members], return_index=True)[1]
        followers = numpy.delete(self.members, leaders)
        return float(numpy.median(self.segments.alike[followers])) if len(followers) else 1.0

    def share(self, low: int, high: int) -> float:
        """Measure the share of what lies between two positions that the units hold, longer segments included."""
        counted_segments = numpy.union1d(self.members, self.beside)
        edges = self.segments.edges
        return self.segments.work.share(edges[counted_segments], edges[counted_segments + 1], low, high)

    @cached_property
    def interior(self) -> float:
        """The units' share of all from the first unit to the last."""
        return self.share(self.first, self.after)

    @cached_property
    def cover(self) -> float:
        """The units' share of all that the rank ran."""
        return self.share(0, len(self.segments.work))


Rule = Callable[[Segments], RepeatedUnit | None]
"""Makes a unit of the segments of a marker, or None where they are no good one."""


def _find_frequent_kinds(found: Segments) -> list[int]:
    """Return the kinds that two segments or more have."""
    return [kind for kind in range(len(found.leaders)) if (found.kind == kind).sum() >= 2]


def take_main_kind(found: Segments) -> RepeatedUnit | None:
    """Return the segments of the main kind as a unit, None where they are no good one."""
    times_ns = numpy.diff(found.work.time_before[found.edges])
    kinds = _find_frequent_kinds(found)
    if not kinds:
        return None
    unit = RepeatedUnit(found, (max(kinds, key=lambda kind: int(times_ns[found.kind == kind].sum())),))
    if not _fills(unit):
        unit = _add_longer_segments(unit)
    # a segment of another kind between the units that is shorter than half of one
    sizes = numpy.diff(found.edges)[unit.odd]
    return unit if _fills(unit) and _repeats(unit) and not (sizes < unit.size / 2).any() else None


def take_several_kinds(found: Segments) -> RepeatedUnit | None:
    """Return the segments of two or three kinds as a unit, None where they are no steps of these kinds."""
    kinds = _find_frequent_kinds(found)
    if not 2 <= len(kinds) <= MOST_KINDS_OF_STEPS:
        return None
    unit, leaders = RepeatedUnit(found, tuple(kinds)), found.leaders
    follows_itself = found.kind[unit.members[unit.members > 0]] == found.kind[unit.members[unit.members > 0] - 1]
    if not _fills(unit) or not follows_itself.any():
        return None
    return None if any(holds_more(leaders[a], leaders[b]) for a, b in permutations(kinds, 2)) else unit


def _fills(unit: RepeatedUnit) -> bool:
    """Return whether the units hold enough of all between them, and of all that the rank ran."""
    return unit.interior >= INTERIOR and unit.cover >= COVER


def _add_longer_segments(unit: RepeatedUnit) -> RepeatedUnit:
    """Add the segments that hold a unit and more of its own kernels: steps that a validation precedes.

    A layer and what stands behind the last one are not so, for that is made of other kernels.
    """
    sequence, other_segments = unit.segments.work, unit.odd
    is_too_rare = len(unit) < FEWEST_BESIDE or len(other_segments) * 2 > len(unit)
    if is_too_rare or not len(other_segments) or not repeats_inside(unit.segments, unit.kinds):
        return unit
    counts = sequence.counts(unit.segments.edges[other_segments], unit.segments.edges[other_segments + 1])
    unit_counts = numpy.median(sequence.counts(unit.firsts, unit.afters), axis=0)
    holds_unit = numpy.minimum(counts, unit_counts).sum(axis=1) >= ALIKE * unit_counts.sum()
    extra_time_ns = numpy.maximum(counts - unit_counts, 0) * sequence.weights
    is_own_kernels = extra_time_ns[:, unit_counts > 0].sum(axis=1) >= OWN_KERNELS * extra_time_ns.sum(axis=1)
    return replace(unit, holds_longer=True) if (holds_unit & is_own_kernels).all() else unit


def _repeats(unit: RepeatedUnit) -> bool:
    """Return whether the units are similar enough for their number, and for how their marker begins them."""
    if unit.segments.marker.level:
        return len(unit) > 2 and unit.alike >= (ALIKE_OF_FEW if len(unit) > 3 else ALIKE_OF_THREE)
    is_sure = unit.alike >= ALIKE_OF_TWO and unit.segments.marker.votes >= MANY_VOTES
    return len(unit) > 2 or is_sure or (unit.alike >= ALIKE_OF_FEW and unit.cover >= COVER_OF_TWO)


def holds_more(one: Vector, other: Vector) -> bool:
    """Return whether a stretch, by the counts of its names, holds the other one, and more."""
    return bool(numpy.minimum(one, other).sum() >= ALIKE * other.sum() and one.sum() > other.sum())


def repeats_inside(found: Segments, kinds: Sequence[int]) -> bool:
    """Return whether most time of a segment of each kind is in names that occur often in it, as a step's layers do."""
    counts = found.leaders[list(kinds)]
    times_ns = counts * found.work.weights
    return bool(((times_ns * (counts >= OFTEN)).sum(axis=1) >= REPEATED * times_ns.sum(axis=1)).all())


def runs_between_optimizers(unit: RepeatedUnit) -> bool:
    """Return whether the optimizer runs, but in at most two thirds of the units: these are micro-batches."""
    optimizers_before = unit.segments.work.optimizers_before
    has_optimizer = optimizers_before[unit.afters] > optimizers_before[unit.firsts]
    return bool(optimizers_before[-1]) and 3 * int(has_optimizer.sum()) <= 2 * len(unit)


Fits = Callable[[RepeatedUnit], bool]


def choose(work: Work, fits: Fits = lambda _: True) -> list[RepeatedUnit]:
    """Choose the largest unit that repeats on a rank, followed by the same unit as other markers begin it.

    Only units that ``is_accepted`` takes count. The list is empty where nothing repeats.
    """
    units = _choose_at_level(work, 0, fits)
    if units:
        unit = units[0]
        is_late = unit.first > LATE * unit.size
        if not is_late and unit.segments.alike[unit.members].min() > 1 - TURNS_APART:
            return units
    pair_units = _choose_at_level(work, 1, fits)
    if pair_units and (not units or len(pair_units[0]) > len(units[0]) or _is_surer(pair_units[0], units[0])):
        return pair_units
    return units


def _is_surer(unit: RepeatedUnit, other: RepeatedUnit) -> bool:
    """Return whether a unit that is no more frequent than another is the step all the same.

    It is made of several of the other in turns, or the other begins where the host does not run ahead.
    """
    is_steadier = len(other) - len(unit) <= 1 and other.two_speeds and not unit.two_speeds
    return _in_turns(unit, other) or (is_steadier and _is_same(unit, other))


def find_same_unit(work: Work, places: Vector, unit: RepeatedUnit) -> RepeatedUnit | None:
    """Return the units of another rank that begin at these positions like those of ``unit``; None where they do not."""
    if not 2 <= len(places) <= len(work) // FEWEST_KERNELS or len(places) * work.size > MOST_COUNTS:
        return None
    segments = cut_segments(work, replace(unit.segments.marker, places=places))
    rule = take_main_kind if len(unit.kinds) == 1 else take_several_kinds
    same_unit = None if segments is None else rule(segments)
    return same_unit if same_unit is not None and is_in_order(same_unit) else None


def _choose_at_level(work: Work, level: int, fits: Fits) -> list[RepeatedUnit]:
    """Choose the largest unit that markers of one level begin, of one kind or of several."""
    segments_by_marker = [
        segments for marker in find_markers(work, level) if (segments := cut_segments(work, marker)) is not None
    ]
    units, steps = (
        _find_largest([unit for segments in segments_by_marker if (unit := rule(segments)) is not None and fits(unit)])
        for rule in (take_main_kind, take_several_kinds)
    )
    if not units or not steps:
        return units or steps
    are_more_units = len(steps[0]) > len(units[0]) and abs(steps[0].cover - units[0].cover) <= SAME_COVER
    return steps if are_more_units and repeats_inside(steps[0].segments, steps[0].kinds) else units


def _find_largest(units: Sequence[RepeatedUnit]) -> list[RepeatedUnit]:
    """Find the largest of the good units whose kernels come in one order, first as its best marker begins it."""
    candidates = list(units)
    while candidates:
        single_units = [
            unit for unit in candidates if not any(_is_several(unit, other_unit) for other_unit in candidates)
        ]
        best = min(single_units, key=lambda unit: (len(unit), -unit.cover, unit.first))
        same_units = [unit for unit in candidates if _is_same(unit, best)]
        highest_count = max(map(len, same_units))
        # one that begins it where the host runs ahead makes two speeds of one
        same_units.sort(
            key=lambda unit: (
                unit.two_speeds or len(unit) < highest_count - 1,
                -len(unit),
                len(unit.segments.kind),
                unit.first,
            )
        )
        if is_in_order(same_units[0]):
            return same_units
        candidates = [unit for unit in candidates if unit not in same_units]
    return []


def _is_several(unit: RepeatedUnit, other: RepeatedUnit) -> bool:
    """Return whether a unit is several of another, which hold as much of what lies between its first and its last."""
    return (
        len(other) > SEVERAL_TIMES * len(unit)
        and other.length_ns < SEVERAL_SHORTER * unit.length_ns
        and other.share(unit.first, unit.after) >= unit.interior - SAME_COVER
        and not _in_turns(unit, other)
        and (not runs_between_optimizers(other) or runs_between_optimizers(unit))
    )


def _in_turns(unit: RepeatedUnit, other: RepeatedUnit) -> bool:
    """Return whether one turn of the other units in each unit does more, as the micro-batch that the optimizer ends."""
    first_turns = other.firsts.searchsorted(unit.firsts)
    counts = other.firsts.searchsorted(unit.afters) - first_turns
    turn_count = int(numpy.median(counts))
    full_units = first_turns[counts == turn_count]
    if turn_count < 2 or len(full_units) < 2 or len(full_units) < len(unit) - 1:
        return False
    similarities = other.segments.alike[other.members][full_units[:, None] + numpy.arange(turn_count)]
    median_by_turn = numpy.median(similarities, axis=0)
    turn_difference = float(median_by_turn.max() - median_by_turn.min())
    if (
        turn_difference < TURNS_APART
        or float(numpy.median(numpy.abs(similarities - median_by_turn), axis=0).max()) > turn_difference / 2
    ):
        return False
    compared_turns = full_units[len(full_units) // 2] + numpy.array([median_by_turn.argmax(), median_by_turn.argmin()])
    usual_counts, odd_counts = other.segments.work.counts(other.firsts[compared_turns], other.afters[compared_turns])
    missing = min(
        int(numpy.maximum(usual_counts - odd_counts, 0).sum()), int(numpy.maximum(odd_counts - usual_counts, 0).sum())
    )
    return missing <= MISSING * int(numpy.abs(usual_counts - odd_counts).sum())


def _is_same(unit: RepeatedUnit, other: RepeatedUnit) -> bool:
    """Return whether two markers begin the same unit, each at another position of it."""
    similarity = unit.segments.work.alike(unit.counts, other.counts[None])
    return len(unit.kinds) == len(other.kinds) and bool(similarity[0] >= ALIKE)


def is_in_order(unit: RepeatedUnit) -> bool:
    """Return whether the kernels of a unit also lie in the one before it of its kind, near the same position."""
    hashes, kinds = unit.segments.work.hash_of_row, unit.segments.kind[unit.members]
    found_count = checked_count = 0
    for kind in unit.kinds:
        units_of_kind = numpy.flatnonzero(kinds == kind)[:CHECKED_UNITS]
        edges = zip(
            unit.firsts[units_of_kind].tolist(), (unit.afters[units_of_kind] - IN_A_ROW + 1).tolist(), strict=True
        )
        for (start, stop), (next_start, next_stop) in pairwise(edges):
            if stop <= start or next_stop <= next_start:
                continue
            distance = max(NEAR_KERNELS, int(NEAR * (next_stop - next_start + IN_A_ROW - 1)))
            offsets = numpy.unique(numpy.linspace(0, next_stop - next_start - 1, CHECKED_PLACES).astype(numpy.int64))
            nearby = start + offsets[:, None] + numpy.arange(-distance, distance + 1)
            is_match = hashes[nearby.clip(start, stop - 1)] == hashes[next_start + offsets][:, None]
            found_count += int((is_match & (start <= nearby) & (nearby < stop)).any(axis=1).sum())
            checked_count += len(offsets)
    return found_count >= IN_ORDER * checked_count
