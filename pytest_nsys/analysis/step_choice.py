"""Which segments repeat so that they are a unit of work, and which of several such units is the largest?

The thresholds were set on real traces whose steps are known, so that nothing is found rather than a wrong step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, permutations

import numpy

from pytest_nsys.analysis.alike import ALIKE, MOST_COUNTS
from pytest_nsys.analysis.step_segments import FEWEST_KERNELS, Segments, Work, markers, segments
from pytest_nsys.core.columns import Vector

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
IN_A_ROW = 4
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

_NONE: Vector = numpy.empty(0, numpy.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedUnit:
    """What repeats: the segments at ``own``, which are of these ``kinds``. ``alike``: the median of how much they are
    like the first of their kind; ``interior`` and ``cover`` are shares, with those ``beside`` them: they hold one, and
    more.
    """

    segments: Segments
    kinds: tuple[int, ...]
    own: Vector
    alike: float
    interior: float
    cover: float
    beside: Vector

    def __len__(self) -> int:
        return len(self.own)

    @property
    def level(self) -> int:
        return self.segments.marker.level

    @property
    def votes(self) -> int:
        return self.segments.marker.votes

    @property
    def lengths_ns(self) -> Vector:
        return self.segments.lengths_ns[self.own]

    @property
    def length_ns(self) -> float:
        return float(numpy.median(self.lengths_ns))

    @property
    def two_speeds(self) -> bool:
        """Whether some are far longer than others, and few between."""
        inner = sorted(self.lengths_ns.tolist())[LEFT_ASIDE:-LEFT_ASIDE]
        return any(after >= JUMP * before for before, after in pairwise(inner))

    @property
    def first(self) -> int:
        """The place at which the first unit begins."""
        return int(self.segments.edges[self.own[0]])

    @property
    def counts(self) -> Vector:
        """The names of the first of the kind."""
        leader: Vector = self.segments.leaders[self.kinds[0]]
        return leader


def _unit(work: Work, found: Segments, kinds: tuple[int, ...], beside: Vector = _NONE) -> RepeatedUnit:
    own = numpy.flatnonzero(numpy.isin(found.kind, kinds))
    all_of = numpy.union1d(own, beside)
    edges = found.edges
    shares = []
    for before in (numpy.arange(len(work) + 1), work.time_before):
        inside = int((before[edges[all_of + 1]] - before[edges[all_of]]).sum())
        between = int(before[edges[own[-1] + 1]] - before[edges[own[0]]])
        shares.append((inside / max(1, between), inside / max(1, int(before[-1]))))
    firsts = numpy.unique(found.kind[own], return_index=True)[1]
    others = numpy.delete(own, firsts)
    like = float(numpy.median(found.alike[others])) if len(others) else 1.0
    interior, cover = (min(each) for each in zip(*shares, strict=True))
    return RepeatedUnit(found, kinds, own, like, interior, cover, beside)


def _often(found: Segments) -> list[int]:
    """The kinds of two segments and more."""
    return [kind for kind in range(len(found.leaders)) if (found.kind == kind).sum() >= 2]


def one_kind(work: Work, found: Segments) -> RepeatedUnit | None:
    """The segments of the main kind, where they are a good unit."""
    times = numpy.diff(work.time_before[found.edges])
    often = _often(found)
    if not often:
        return None
    main = max(often, key=lambda kind: int(times[found.kind == kind].sum()))
    unit = _unit(work, found, (main,))
    if not _fills(unit):
        unit = _with_more(work, unit)
    return unit if _fills(unit) and _repeats(unit) and not _crumbs(unit) else None


def _fills(unit: RepeatedUnit) -> bool:
    return unit.interior >= INTERIOR and unit.cover >= COVER


def _with_more(work: Work, unit: RepeatedUnit) -> RepeatedUnit:
    """The same, with the segments that hold a unit and more of its own kernels: steps that a validation goes before.

    A layer and what stands behind the last one are not so: that is made of other kernels.
    """
    between = numpy.arange(unit.own[0], unit.own[-1])
    odd = numpy.setdiff1d(between, unit.own)
    few = len(unit) < FEWEST_BESIDE or len(odd) * 2 > len(unit)
    if few or not len(odd) or not repeats_inside(work, unit.counts):
        return unit
    edges = unit.segments.edges
    counts = work.counts(edges[odd], edges[odd + 1])
    one = numpy.median(work.counts(edges[unit.own], edges[unit.own + 1]), axis=0)
    held = numpy.minimum(counts, one).sum(axis=1) >= ALIKE * one.sum()
    more = numpy.maximum(counts - one, 0) * work.weights
    same = more[:, one > 0].sum(axis=1) >= OWN_KERNELS * more.sum(axis=1)
    if not (held & same).all():
        return unit
    return _unit(work, unit.segments, unit.kinds, odd)


def _repeats(unit: RepeatedUnit) -> bool:
    if unit.level:
        return len(unit) > 2 and unit.alike >= (ALIKE_OF_FEW if len(unit) > 3 else ALIKE_OF_THREE)
    sure = unit.alike >= ALIKE_OF_TWO and unit.votes >= MANY_VOTES
    return len(unit) > 2 or sure or (unit.alike >= ALIKE_OF_FEW and unit.cover >= COVER_OF_TWO)


def _crumbs(unit: RepeatedUnit) -> bool:
    """Whether a segment of another kind, shorter than half a unit, lies between the units."""
    between = numpy.arange(unit.own[0], unit.own[-1])
    odd = between[unit.segments.kind[between] != unit.kinds[0]]
    sizes = numpy.diff(unit.segments.edges)
    return bool((sizes[odd] < numpy.median(sizes[unit.own]) / 2).any())


def several_kinds(work: Work, found: Segments) -> RepeatedUnit | None:
    """The segments of two or three kinds, where they are steps of these kinds."""
    often = _often(found)
    if not 2 <= len(often) <= MOST_KINDS_OF_STEPS:
        return None
    unit = _unit(work, found, tuple(often))
    if not _fills(unit):
        return None
    if any(holds(found.leaders[one], found.leaders[other]) for one, other in permutations(often, 2)):
        return None
    follow = found.kind[1:] == found.kind[:-1]
    return unit if bool((follow & numpy.isin(found.kind[1:], often)).any()) else None


def holds(one: Vector, other: Vector) -> bool:
    """Whether one is the other, and more."""
    return bool(numpy.minimum(one, other).sum() >= ALIKE * other.sum() and one.sum() > other.sum())


Fits = Callable[[RepeatedUnit], bool]


def choose(work: Work, fits: Fits = lambda _: True) -> list[RepeatedUnit]:
    """The largest unit that repeats on a rank, and then as other markers begin it, of those that fit; empty where
    nothing repeats.
    """
    found = _of_level(work, 0, fits)
    if found and _before(found[0]) <= LATE and found[0].segments.alike[found[0].own].min() > 1 - TURNS_APART:
        return found
    better = _of_level(work, 1, fits)
    if better and (not found or len(better[0]) > len(found[0]) or _surer(work, better[0], found[0])):
        return better
    return found


def _surer(work: Work, unit: RepeatedUnit, other: RepeatedUnit) -> bool:
    """Whether of a unit and another, of which it has no more, it is the step all the same."""
    return _in_turns(work, unit, other) or _steadier(work, unit, other)


def _steadier(work: Work, unit: RepeatedUnit, other: RepeatedUnit) -> bool:
    """Whether it is the other, begun where the host does not run ahead."""
    lost = len(other) - len(unit)
    return lost <= 1 and other.two_speeds and not unit.two_speeds and _same(work, unit, other)


def held(work: Work, places: Vector, unit: RepeatedUnit) -> RepeatedUnit | None:
    """The units of another rank, which begin at these places as those of ``unit`` do; None where they do not."""
    if not 2 <= len(places) <= len(work) // FEWEST_KERNELS or len(places) * work.size > MOST_COUNTS:
        return None
    found = segments(work, replace(unit.segments.marker, places=places))
    own = None if found is None else (one_kind if len(unit.kinds) == 1 else several_kinds)(work, found)
    return own if own is not None and in_order(work, own) else None


def repeats_inside(work: Work, counts: Vector) -> bool:
    """Whether most of a unit's time is in names that occur often in it, as those of layers do in a step."""
    times = counts * work.weights
    return bool(times[counts >= OFTEN].sum() >= REPEATED * times.sum())


def between_optimizers(work: Work, unit: RepeatedUnit) -> bool:
    """Whether the optimizer runs, but in at most two thirds of the units: they are micro-batches, however alike."""
    edges, before = unit.segments.edges, work.optimizers_before
    held = before[edges[unit.own + 1]] > before[edges[unit.own]]
    return bool(before[-1]) and 3 * int(held.sum()) <= 2 * len(unit)


def _before(unit: RepeatedUnit) -> float:
    """How much lies before the first unit, in units."""
    sizes = numpy.diff(unit.segments.edges)[unit.own]
    return unit.first / float(numpy.median(sizes))


def _of_level(work: Work, level: int, fits: Fits) -> list[RepeatedUnit]:
    each = [found for marker in markers(work, level) if (found := segments(work, marker)) is not None]
    units, kinds = (_largest(work, [*filter(fits, _good(work, each, what))]) for what in (one_kind, several_kinds))
    if not units or not kinds:
        return units or kinds
    (unit, *_), (steps, *_) = units, kinds
    more = len(steps) > len(unit) and abs(steps.cover - unit.cover) <= SAME_COVER
    inside = all(repeats_inside(work, steps.segments.leaders[kind]) for kind in steps.kinds)
    return kinds if more and inside else units


def _good(
    work: Work, each: Iterable[Segments], what: Callable[[Work, Segments], RepeatedUnit | None]
) -> list[RepeatedUnit]:
    return [unit for found in each if (unit := what(work, found)) is not None]


def _largest(work: Work, good: Sequence[RepeatedUnit]) -> list[RepeatedUnit]:
    """The largest of the good units whose kernels come in one order, first as its best marker begins it."""
    left = list(good)
    while left:
        single = [unit for unit in left if not any(_several(work, unit, other) for other in left)]
        best = min(single, key=lambda unit: (len(unit), -unit.cover, unit.first))
        same = [unit for unit in left if _same(work, unit, best)]
        most = max(map(len, same))
        same.sort(key=partial(_as_marker, most=most))
        if in_order(work, same[0]):
            return same
        left = [unit for unit in left if unit not in same]
    return []


def _as_marker(unit: RepeatedUnit, most: int) -> tuple[bool, int, int, int]:
    """The best marker of a unit first: one that begins it where the host runs ahead makes two speeds of one."""
    return unit.two_speeds or len(unit) < most - 1, -len(unit), len(unit.segments.kind), unit.first


def _several(work: Work, unit: RepeatedUnit, other: RepeatedUnit) -> bool:
    """Whether a unit is several of the other: of what lies between its first and its last those hold as much."""
    return (
        len(other) > SEVERAL_TIMES * len(unit)
        and other.length_ns < SEVERAL_SHORTER * unit.length_ns
        and _held_inside(work, unit, other) >= unit.interior - SAME_COVER
        and not _in_turns(work, unit, other)
        and (not between_optimizers(work, other) or between_optimizers(work, unit))
    )


def _held_inside(work: Work, unit: RepeatedUnit, other: RepeatedUnit) -> float:
    """How much of what lies between the first and the last unit others hold: of kernels or their time, the smaller."""
    low, high = unit.first, int(unit.segments.edges[unit.own[-1] + 1])
    inside = numpy.union1d(other.own, other.beside)
    firsts, afters = (other.segments.edges[inside + i].clip(low, high) for i in (0, 1))
    sums = (numpy.arange(len(work) + 1), work.time_before)
    return min(int((own[afters] - own[firsts]).sum()) / max(1, int(own[high] - own[low])) for own in sums)


def _in_turns(work: Work, unit: RepeatedUnit, other: RepeatedUnit) -> bool:
    """Whether of the others in each unit those of one turn do more: the last micro-batch ends with the optimizer."""
    places = unit.segments.edges[unit.own]
    starts = other.segments.edges[other.own]
    inside = [starts.searchsorted(edges) for edges in (places, unit.segments.edges[unit.own + 1])]
    counts = inside[1] - inside[0]
    turns = int(numpy.median(counts))
    full = inside[0][counts == turns]
    if turns < 2 or len(full) < 2 or len(full) < len(unit) - 1:
        return False
    like = other.segments.alike[other.own][full[:, None] + numpy.arange(turns)]
    usual = numpy.median(like, axis=0)
    apart = float(usual.max() - usual.min())
    if apart < TURNS_APART or float(numpy.median(numpy.abs(like - usual), axis=0).max()) > apart / 2:
        return False
    each = other.own[full[len(full) // 2] + numpy.array([usual.argmax(), usual.argmin()])]
    one, least = work.counts(other.segments.edges[each], other.segments.edges[each + 1])
    missing = min(int(numpy.maximum(one - least, 0).sum()), int(numpy.maximum(least - one, 0).sum()))
    return missing <= MISSING * int(numpy.abs(one - least).sum())


def _same(work: Work, unit: RepeatedUnit, other: RepeatedUnit) -> bool:
    """Whether two markers begin the same unit, each at another place of it."""
    return len(unit.kinds) == len(other.kinds) and bool(work.alike(unit.counts, other.counts[None])[0] >= ALIKE)


def in_order(work: Work, unit: RepeatedUnit) -> bool:
    """Whether what lies in a unit lay in the one before it of its kind, near the same place."""
    found, held, asked = unit.segments, 0, 0
    for kind in unit.kinds:
        own = unit.own[found.kind[unit.own] == kind][:CHECKED_UNITS]
        for before, now in zip(own[:-1].tolist(), own[1:].tolist(), strict=True):
            one = work.numbers[found.edges[before] : found.edges[before + 1]]
            other = work.numbers[found.edges[now] : found.edges[now + 1]]
            hits, places = _in_place(one, other)
            held, asked = held + hits, asked + places
    return held >= IN_ORDER * asked


def _in_place(one: Vector, other: Vector) -> tuple[int, int]:
    """(how many, of how many) rows of names of the other stand in the one near the same offset."""
    last = len(other) - IN_A_ROW
    if last < 0 or len(one) < IN_A_ROW:
        return 0, 0
    offsets = numpy.unique(numpy.linspace(0, last, CHECKED_PLACES).astype(numpy.int64))
    near = max(NEAR_KERNELS, int(NEAR * len(other)))
    hits = 0
    for offset in offsets.tolist():
        low = max(0, offset - near)
        high = min(len(one) - IN_A_ROW, offset + near) + 1
        if high <= low:
            continue
        same = one[low:high] == other[offset]
        for place in range(1, IN_A_ROW):
            same &= one[low + place : high + place] == other[offset + place]
        hits += bool(same.any())
    return hits, len(offsets)
