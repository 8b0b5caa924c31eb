"""What is a unit of kernels that repeats: a step, a layer, several kinds of steps? The ranges around it may say so.

Kernels alone cannot tell a trace of layers from one of steps, and only a step may be written as an anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from pytest_nsys.analysis.steps.candidates import RankRanges
from pytest_nsys.analysis.steps.choice import (
    MANY_VOTES,
    RepeatedUnit,
    holds_more,
    repeats_inside,
    runs_between_optimizers,
)
from pytest_nsys.analysis.steps.facts import Confidence, RepeatedPart, UnitIs
from pytest_nsys.analysis.steps.model_parts import count_numbered, find_holder, numbers_in
from pytest_nsys.core.arrays import numpy
from pytest_nsys.core.columns import as_vector
from pytest_nsys.core.conventions import BUILT_IN, like
from pytest_nsys.core.model import Interval

KNOWN_STEPS = tuple(dict.fromkeys(c.range_anchor for c in BUILT_IN.values() if c.range_anchor and not c.part))
"""Patterns of the ranges that frameworks mark their steps with."""

MOST_MODULES = 2
"""Numbers of one module in a layer: its own, and the next one's, which is fetched."""

OUTSIDE = 0.005
OUTSIDE_KERNELS = 2
"""Kernels before the first unit, or after the last, whose names no unit has."""

WARM_UP = 0.5
"""Of a unit's kernels: where so many are before the first too, and all there takes longer than it, it warms up."""

MANY_UNITS = 5
ALIKE_UNITS = 0.95


class AmongRanges:
    """The units of a rank, in ``spans`` of time, among the closed ranges and the modules of its process."""

    def __init__(self, spans: Sequence[Interval], around: RankRanges) -> None:
        self.around = around
        self.starts, self.ends = numpy.array(spans, numpy.int64).reshape(-1, 2).T

    def find_holder(self) -> str | None:
        """Return a range that frameworks mark steps with, else a module by its class, where each that holds a unit
        holds several.
        """
        for pattern in KNOWN_STEPS:
            own = self.around.named(like(pattern))
            if (holder := find_holder(self.starts, as_vector(own.start_ns), as_vector(own.end_ns))) is not None:
                return own[holder].name
        return self.around.modules.find_holder(self.starts)

    @cached_property
    def module_word(self) -> str | None:
        """The word of the modules that are numbered, where each unit is one of them: ``layers`` of ``layers.3``."""
        own = self.around.named(numbers_in)
        start, name = as_vector(own.start_ns), as_vector(own.name)
        place = self.starts.searchsorted(start, "right") - 1
        inside = (place >= 0) & (start < self.ends[place])
        seen: dict[str, list[set[str]]] = {}
        for at, i in sorted({*zip(place[inside].tolist(), name[inside].tolist(), strict=True)}):
            for word, number in numbers_in(own.names[i]):
                seen.setdefault(word, [set() for _ in self.starts])[at].add(number)
        return next((word for word, each in seen.items() if _counts_units(each)), None)

    def find_repeated(self, step: Interval | None) -> RepeatedPart | None:
        """Return what the units are parts of a step as, by modules, else by ranges; ``step`` is the only one there is,
        where one is marked. None where nothing proves a number.
        """
        if (part := self.around.modules.find_repeated(self.around.launched_ns, step)) is not None:
            return part
        ranges = self.around.ranges
        starts, names = as_vector(ranges.start_ns), as_vector(ranges.name)
        inside = slice(None) if step is None else slice(*starts.searchsorted((step[0], step[1] + 1)))
        counts = {ranges.names[i]: n for i, n in enumerate(numpy.bincount(names[inside]).tolist()) if n}
        name = self.module_word
        if name is not None:
            count = count_numbered(counts, name)
        elif (name := self.pattern) is not None:
            fits = like(name)
            count = sum(n for each, n in counts.items() if fits(each))
        return None if name is None or count < 2 else RepeatedPart(name, count)

    @cached_property
    def pattern(self) -> str | None:
        """The ranges of which exactly one starts in each unit, of several those with most time."""
        return self.around.once_in_each(self.starts, self.ends) if len(self.starts) > 1 else None


def _counts_units(numbers: Sequence[set[str]]) -> bool:
    known = [each for each in numbers if each]
    if len(known) < 2 or 2 * len(known) < len(numbers):
        return False
    return all(len(each) <= MOST_MODULES for each in known) and all(a != b for a, b in pairwise(known))


def what_it_is(unit: RepeatedUnit, around: AmongRanges) -> tuple[UnitIs, str | None]:
    """What the units are; of a part the range that holds several, where one does."""
    holder = around.find_holder()
    if holder is not None or around.module_word is not None:
        return UnitIs.PART, holder
    if _may_be_part(unit):
        return UnitIs.MAYBE_PART, None
    if len(unit.kinds) > 1:
        return UnitIs.KINDS, None
    return (UnitIs.TWO_SPEEDS if unit.two_speeds else UnitIs.STEP), None


def confidence_in(what: UnitIs, unit: RepeatedUnit) -> Confidence:
    """How sure it is."""
    if what in (UnitIs.MAYBE_PART, UnitIs.TWO_SPEEDS):
        return Confidence.LOW
    sure = len(unit) >= MANY_UNITS and unit.alike >= ALIKE_UNITS and unit.segments.marker.votes >= MANY_VOTES
    return Confidence.HIGH if what is UnitIs.STEP and sure else Confidence.MEDIUM


def _may_be_part(unit: RepeatedUnit) -> bool:
    found, work = unit.segments, unit.segments.work
    known = numpy.zeros(work.size, numpy.bool_)
    for first, after in zip(unit.firsts, unit.afters, strict=True):
        known[work.numbers[first:after]] = True
    strange = ~known[work.numbers]
    warms_up = _warms_up(unit)
    outside = [strange[unit.after :], *([] if warms_up else [strange[: unit.first]])]
    if any(kernels.sum() >= max(OUTSIDE_KERNELS, OUTSIDE * len(work)) for kernels in outside):
        return True
    from_here = found.kind[int(unit.members[0]) if warms_up else 0 :]
    odd = {*from_here.tolist()} - {*unit.kinds, *found.kind[unit.beside].tolist(), -1}
    if any(holds_more(found.leaders[kind], unit.counts) for kind in odd):
        return True
    return runs_between_optimizers(unit) or not repeats_inside(found, unit.kinds[:1])


def _warms_up(unit: RepeatedUnit) -> bool:
    work = unit.segments.work
    counts = numpy.bincount(work.numbers[: unit.first], minlength=work.size)
    longer = int(work.at_ns[unit.first] - work.at_ns[0]) > unit.length_ns
    return longer and bool(numpy.minimum(counts, unit.counts).sum() >= WARM_UP * unit.counts.sum())
