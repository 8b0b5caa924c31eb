"""Which segments repeat so that they are a unit of work, and which of several such units is the largest?

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
"""Of all from the first unit to the last, at least: the smaller of kernels and their time."""

COVER = 0.50
"""Of all that the rank ran, at least."""

COVER_OF_TWO = 0.90
ALIKE_OF_FEW = 0.95
"""Median: of two units, and of four and more that two names begin together."""

ALIKE_OF_TWO = 0.97
"""Of two that cover less, between the ends of others, with votes."""

ALIKE_OF_THREE = 0.98
"""Of three that two names begin together: the first kernel of a micro-batch after an optimizer."""

MANY_VOTES = 3
SEVERAL_TIMES = 1.5
SEVERAL_SHORTER = 0.75
SAME_COVER = 0.01
TURNS_APART = 0.02
"""How much less alike the units inside a larger one are at one turn than at another, for the larger to be the unit."""

MISSING = 0.1
"""Of what differs between two, so much at most is only in the one that does less."""

LATE = 0.02
"""Of a unit, before the first: a marker of two names may begin it earlier."""

CHECKED_UNITS = 64
CHECKED_PLACES = 32
NEAR = 0.05
NEAR_KERNELS = 8
IN_ORDER = 0.75

MOST_KINDS_OF_STEPS = 3

OFTEN = 4
REPEATED = 0.5
"""Of a unit's kernel time, in names that occur often in it."""


LEFT_ASIDE = 2
JUMP = 1.5
"""From one length to the next, of two speeds; at either end of the lengths some are left aside."""

FEWEST_BESIDE = 5
"""Units without which none is told from others that hold more."""

OWN_KERNELS = 0.90
"""Of what others hold more, in time: of the unit's own kernels."""


@dataclass(frozen=True, eq=False)
class RepeatedUnit:
    """What repeats: segments of these ``kinds``; where it ``holds_longer`` ones, those between hold one and more."""

    segments: Segments
    kinds: tuple[int, ...]
    holds_longer: bool = False

    def __len__(self) -> int:
        return len(self.members)

    @cached_property
    def members(self) -> Vector:
        """The numbers of its segments."""
        return numpy.flatnonzero(numpy.isin(self.segments.kind, self.kinds))

    @cached_property
    def firsts(self) -> Vector:
        """The place at which each unit begins."""
        return self.segments.edges[self.members]

    @cached_property
    def afters(self) -> Vector:
        """The place after the last kernel of each unit."""
        return self.segments.edges[self.members + 1]

    @property
    def first(self) -> int:
        """The place at which the first unit begins."""
        return int(self.firsts[0])

    @property
    def after(self) -> int:
        """The place after the last unit."""
        return int(self.afters[-1])

    @property
    def starts_ns(self) -> Vector:
        """When each unit is launched, or runs where no launches are known."""
        starts: Vector = self.segments.work.at_ns[self.firsts]
        return starts

    @property
    def spans(self) -> list[Interval]:
        """From when to when each unit is launched, or runs where no launches are known."""
        at_ns = self.segments.work.at_ns
        ends: Vector = numpy.append(at_ns, at_ns[-1] + 1)[self.afters]
        return [*zip(self.starts_ns.tolist(), ends.tolist(), strict=True)]

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
        """Whether some are far longer than others, and few between."""
        inner = sorted(self.lengths_ns.tolist())[LEFT_ASIDE:-LEFT_ASIDE]
        return any(after >= JUMP * before for before, after in pairwise(inner))

    @property
    def counts(self) -> Vector:
        """The names of the first of the kind."""
        leader: Vector = self.segments.leaders[self.kinds[0]]
        return leader

    @property
    def odd(self) -> Vector:
        """The numbers of the other segments between the first unit and the last."""
        return numpy.setdiff1d(numpy.arange(self.members[0], self.members[-1]), self.members)

    @property
    def beside(self) -> Vector:
        """Those that hold a unit, and more."""
        return self.odd if self.holds_longer else self.members[:0]

    @cached_property
    def alike(self) -> float:
        """How much they are like the first of their kind, the median."""
        leaders = numpy.unique(self.segments.kind[self.members], return_index=True)[1]
        others = numpy.delete(self.members, leaders)
        return float(numpy.median(self.segments.alike[others])) if len(others) else 1.0

    def share(self, low: int, high: int) -> float:
        """Return how much of what stands from one place to another units hold, those beside them included."""
        inside = numpy.union1d(self.members, self.beside)
        edges = self.segments.edges
        return self.segments.work.share(edges[inside], edges[inside + 1], low, high)

    @cached_property
    def interior(self) -> float:
        """The share of all from the first unit to the last."""
        return self.share(self.first, self.after)

    @cached_property
    def cover(self) -> float:
        """The share of all that the rank ran."""
        return self.share(0, len(self.segments.work))


Rule = Callable[[Segments], RepeatedUnit | None]
"""Makes of the segments of a marker a unit, where they are a good one."""


def _find_frequent_kinds(found: Segments) -> list[int]:
    """Return the kinds of two segments and more."""
    return [kind for kind in range(len(found.leaders)) if (found.kind == kind).sum() >= 2]


def take_main_kind(found: Segments) -> RepeatedUnit | None:
    """Return the segments of the main kind, where they are a good unit."""
    times = numpy.diff(found.work.time_before[found.edges])
    kinds = _find_frequent_kinds(found)
    if not kinds:
        return None
    unit = RepeatedUnit(found, (max(kinds, key=lambda kind: int(times[found.kind == kind].sum())),))
    if not _fills(unit):
        unit = _add_longer_segments(unit)
    # a segment of another kind between the units that is shorter than half of one
    sizes = numpy.diff(found.edges)[unit.odd]
    return unit if _fills(unit) and _repeats(unit) and not (sizes < unit.size / 2).any() else None


def take_several_kinds(found: Segments) -> RepeatedUnit | None:
    """Return the segments of two or three kinds, where they are steps of these kinds."""
    kinds = _find_frequent_kinds(found)
    if not 2 <= len(kinds) <= MOST_KINDS_OF_STEPS:
        return None
    unit, leaders = RepeatedUnit(found, tuple(kinds)), found.leaders
    follows_itself = found.kind[unit.members[unit.members > 0]] == found.kind[unit.members[unit.members > 0] - 1]
    if not _fills(unit) or not follows_itself.any():
        return None
    return None if any(holds_more(leaders[a], leaders[b]) for a, b in permutations(kinds, 2)) else unit


def _fills(unit: RepeatedUnit) -> bool:
    return unit.interior >= INTERIOR and unit.cover >= COVER


def _add_longer_segments(unit: RepeatedUnit) -> RepeatedUnit:
    """Count the segments that hold a unit and more of its own kernels, too: steps that a validation goes before.

    A layer and what stands behind the last one are not so: that is made of other kernels.
    """
    work, odd = unit.segments.work, unit.odd
    few = len(unit) < FEWEST_BESIDE or len(odd) * 2 > len(unit)
    if few or not len(odd) or not repeats_inside(unit.segments, unit.kinds):
        return unit
    counts = work.counts(unit.segments.edges[odd], unit.segments.edges[odd + 1])
    one = numpy.median(work.counts(unit.firsts, unit.afters), axis=0)
    held = numpy.minimum(counts, one).sum(axis=1) >= ALIKE * one.sum()
    more = numpy.maximum(counts - one, 0) * work.weights
    same = more[:, one > 0].sum(axis=1) >= OWN_KERNELS * more.sum(axis=1)
    return replace(unit, holds_longer=True) if (held & same).all() else unit


def _repeats(unit: RepeatedUnit) -> bool:
    if unit.segments.marker.level:
        return len(unit) > 2 and unit.alike >= (ALIKE_OF_FEW if len(unit) > 3 else ALIKE_OF_THREE)
    sure = unit.alike >= ALIKE_OF_TWO and unit.segments.marker.votes >= MANY_VOTES
    return len(unit) > 2 or sure or (unit.alike >= ALIKE_OF_FEW and unit.cover >= COVER_OF_TWO)


def holds_more(one: Vector, other: Vector) -> bool:
    """Return whether one stretch, by the counts of its names, is the other, and more."""
    return bool(numpy.minimum(one, other).sum() >= ALIKE * other.sum() and one.sum() > other.sum())


def repeats_inside(found: Segments, kinds: Sequence[int]) -> bool:
    """Return whether most of the time of a segment of each kind is in names that occur often in it, as those of layers
    do in a step.
    """
    counts = found.leaders[list(kinds)]
    times = counts * found.work.weights
    return bool(((times * (counts >= OFTEN)).sum(axis=1) >= REPEATED * times.sum(axis=1)).all())


def runs_between_optimizers(unit: RepeatedUnit) -> bool:
    """Return whether the optimizer runs, but in at most two thirds of the units: these are micro-batches."""
    before = unit.segments.work.optimizers_before
    held = before[unit.afters] > before[unit.firsts]
    return bool(before[-1]) and 3 * int(held.sum()) <= 2 * len(unit)


Fits = Callable[[RepeatedUnit], bool]


def choose(work: Work, fits: Fits = lambda _: True) -> list[RepeatedUnit]:
    """Return the largest unit that repeats on a rank, and then as other markers begin it, of those that fit; empty
    where nothing repeats.
    """
    units = _choose_at_level(work, 0, fits)
    if units:
        unit = units[0]
        late = unit.first > LATE * unit.size
        if not late and unit.segments.alike[unit.members].min() > 1 - TURNS_APART:
            return units
    better = _choose_at_level(work, 1, fits)
    if better and (not units or len(better[0]) > len(units[0]) or _is_surer(better[0], units[0])):
        return better
    return units


def _is_surer(unit: RepeatedUnit, other: RepeatedUnit) -> bool:
    """Return whether of a unit and another, of which it has no more, it is the step all the same: several of the other
    in turns, or the other begun where the host does not run ahead.
    """
    steadier = len(other) - len(unit) <= 1 and other.two_speeds and not unit.two_speeds
    return _in_turns(unit, other) or (steadier and _is_same(unit, other))


def find_same_unit(work: Work, places: Vector, unit: RepeatedUnit) -> RepeatedUnit | None:
    """Return the units of another rank that begin at these places as those of ``unit`` do; None where they do not."""
    if not 2 <= len(places) <= len(work) // FEWEST_KERNELS or len(places) * work.size > MOST_COUNTS:
        return None
    found = cut_segments(work, replace(unit.segments.marker, places=places))
    rule = take_main_kind if len(unit.kinds) == 1 else take_several_kinds
    other = None if found is None else rule(found)
    return other if other is not None and is_in_order(other) else None


def _choose_at_level(work: Work, level: int, fits: Fits) -> list[RepeatedUnit]:
    each = [found for marker in find_markers(work, level) if (found := cut_segments(work, marker)) is not None]
    units, steps = (
        _find_largest([unit for found in each if (unit := rule(found)) is not None and fits(unit)])
        for rule in (take_main_kind, take_several_kinds)
    )
    if not units or not steps:
        return units or steps
    more = len(steps[0]) > len(units[0]) and abs(steps[0].cover - units[0].cover) <= SAME_COVER
    return steps if more and repeats_inside(steps[0].segments, steps[0].kinds) else units


def _find_largest(units: Sequence[RepeatedUnit]) -> list[RepeatedUnit]:
    """Return the largest of the good units whose kernels come in one order, first as its best marker begins it."""
    left = list(units)
    while left:
        single = [unit for unit in left if not any(_is_several(unit, other) for other in left)]
        best = min(single, key=lambda unit: (len(unit), -unit.cover, unit.first))
        same = [unit for unit in left if _is_same(unit, best)]
        most = max(map(len, same))
        # one that begins it where the host runs ahead makes two speeds of one
        same.sort(key=lambda u: (u.two_speeds or len(u) < most - 1, -len(u), len(u.segments.kind), u.first))
        if is_in_order(same[0]):
            return same
        left = [unit for unit in left if unit not in same]
    return []


def _is_several(unit: RepeatedUnit, other: RepeatedUnit) -> bool:
    """Return whether a unit is several of the other: of what lies between its first and its last those hold as much."""
    return (
        len(other) > SEVERAL_TIMES * len(unit)
        and other.length_ns < SEVERAL_SHORTER * unit.length_ns
        and other.share(unit.first, unit.after) >= unit.interior - SAME_COVER
        and not _in_turns(unit, other)
        and (not runs_between_optimizers(other) or runs_between_optimizers(unit))
    )


def _in_turns(unit: RepeatedUnit, other: RepeatedUnit) -> bool:
    """Return whether of the others in each unit those of one turn do more, as the last micro-batch that ends with the
    optimizer.
    """
    firsts = other.firsts.searchsorted(unit.firsts)
    counts = other.firsts.searchsorted(unit.afters) - firsts
    turns = int(numpy.median(counts))
    full = firsts[counts == turns]
    if turns < 2 or len(full) < 2 or len(full) < len(unit) - 1:
        return False
    alike = other.segments.alike[other.members][full[:, None] + numpy.arange(turns)]
    usual = numpy.median(alike, axis=0)
    apart = float(usual.max() - usual.min())
    if apart < TURNS_APART or float(numpy.median(numpy.abs(alike - usual), axis=0).max()) > apart / 2:
        return False
    middle = full[len(full) // 2] + numpy.array([usual.argmax(), usual.argmin()])
    one, least = other.segments.work.counts(other.firsts[middle], other.afters[middle])
    missing = min(int(numpy.maximum(one - least, 0).sum()), int(numpy.maximum(least - one, 0).sum()))
    return missing <= MISSING * int(numpy.abs(one - least).sum())


def _is_same(unit: RepeatedUnit, other: RepeatedUnit) -> bool:
    """Return whether two markers begin the same unit, each at another place of it."""
    alike = unit.segments.work.alike(unit.counts, other.counts[None])
    return len(unit.kinds) == len(other.kinds) and bool(alike[0] >= ALIKE)


def is_in_order(unit: RepeatedUnit) -> bool:
    """Return whether what lies in a unit lay in the one before it of its kind, near the same place."""
    rows, kinds = unit.segments.work.hash_of_row, unit.segments.kind[unit.members]
    hits = places = 0
    for kind in unit.kinds:
        of_kind = numpy.flatnonzero(kinds == kind)[:CHECKED_UNITS]
        edges = zip(unit.firsts[of_kind].tolist(), (unit.afters[of_kind] - IN_A_ROW + 1).tolist(), strict=True)
        for (first, after), (next_first, next_after) in pairwise(edges):
            if after <= first or next_after <= next_first:
                continue
            near = max(NEAR_KERNELS, int(NEAR * (next_after - next_first + IN_A_ROW - 1)))
            offsets = numpy.unique(numpy.linspace(0, next_after - next_first - 1, CHECKED_PLACES).astype(numpy.int64))
            around = first + offsets[:, None] + numpy.arange(-near, near + 1)
            same = rows[around.clip(first, after - 1)] == rows[next_first + offsets][:, None]
            hits += int((same & (first <= around) & (around < after)).any(axis=1).sum())
            places += len(offsets)
    return hits >= IN_ORDER * places
