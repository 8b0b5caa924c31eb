"""What is a unit of kernels that repeats: a step, a layer, several kinds of steps? The ranges around it may say so.

Kernels alone cannot tell a trace of layers from one of steps, and only a step may be written as an anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy

from pytest_nsys.analysis.candidates import RankRanges
from pytest_nsys.analysis.model_parts import ModuleCalls, count_numbered, numbers_in
from pytest_nsys.analysis.step_choice import MANY_VOTES, RepeatedUnit, between_optimizers, holds, repeats_inside
from pytest_nsys.analysis.step_facts import Confidence, RepeatedPart, UnitIs
from pytest_nsys.analysis.step_segments import Work
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

    def __init__(self, spans: Sequence[Interval], around: RankRanges, modules: ModuleCalls) -> None:
        self.spans, self.around, self.modules = spans, around, modules
        self.starts, self.ends = numpy.array(spans, numpy.int64).reshape(-1, 2).T

    def holder(self) -> str | None:
        """A range that frameworks mark steps with, where each that holds a unit holds several."""
        for pattern in KNOWN_STEPS:
            own = self.around.named(like(pattern))
            start, end = as_vector(own.start_ns), as_vector(own.end_ns)
            counts = self.starts.searchsorted(end) - self.starts.searchsorted(start)
            if counts.any() and counts[counts > 0].min() > 1:
                return own[int(counts.argmax())].name
        return None

    def holding_module(self) -> str | None:
        """A module, by its class, of which each call that holds a unit holds several."""
        return self.modules.find_holder(self.starts)

    @cached_property
    def module_word(self) -> str | None:
        """The word of the modules that are numbered, where each unit is one of them: ``layers`` of ``layers.3``."""
        own = self.around.named(numbers_in)
        numbers = [numbers_in(name) for name in own.names]
        start, name = as_vector(own.start_ns), as_vector(own.name)
        place = self.starts.searchsorted(start, "right") - 1
        inside = (place >= 0) & (start < self.ends[place])
        seen: dict[str, list[set[str]]] = {}
        for at, i in numpy.unique(numpy.stack([place[inside], name[inside]]), axis=1).T.tolist():
            for word, number in numbers[i]:
                seen.setdefault(word, [set() for _ in self.spans])[at].add(number)
        return next((word for word, each in seen.items() if _counts_units(each)), None)

    def find_repeated(self, step: Interval | None) -> RepeatedPart | None:
        """Return what the units are parts of a step as, by modules, else by ranges; ``step`` is the only one there is,
        where one is marked. None where nothing proves a number.
        """
        if (part := self.modules.find_repeated(as_vector(self.around.launched_ns), step)) is not None:
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
        return self.around.once_in_each(self.starts, self.ends) if len(self.spans) > 1 else None


def spans_of(work: Work, unit: RepeatedUnit) -> list[Interval]:
    """From when to when each unit is launched, or runs where no launches are known."""
    edges = numpy.append(work.at_ns, work.at_ns[-1] + 1)[unit.segments.edges].tolist()
    return [(edges[i], edges[i + 1]) for i in unit.own.tolist()]


def _counts_units(numbers: Sequence[set[str]]) -> bool:
    known = [each for each in numbers if each]
    if len(known) < 2 or 2 * len(known) < len(numbers):
        return False
    return all(len(each) <= MOST_MODULES for each in known) and all(a != b for a, b in pairwise(known))


def what_it_is(work: Work, unit: RepeatedUnit, around: AmongRanges) -> tuple[UnitIs, str | None]:
    """What the units are; of a part the range that holds several, where one does."""
    if (holder := around.holder()) is not None:
        return UnitIs.PART, holder
    if (holder := around.holding_module()) is not None:
        return UnitIs.PART, holder
    if around.module_word is not None:
        return UnitIs.PART, None
    if _may_be_part(work, unit):
        return UnitIs.MAYBE_PART, None
    if len(unit.kinds) > 1:
        return UnitIs.KINDS, None
    return (UnitIs.TWO_SPEEDS if unit.two_speeds else UnitIs.STEP), None


def confidence_in(what: UnitIs, unit: RepeatedUnit) -> Confidence:
    """How sure it is."""
    if what in (UnitIs.MAYBE_PART, UnitIs.TWO_SPEEDS):
        return Confidence.LOW
    sure = len(unit) >= MANY_UNITS and unit.alike >= ALIKE_UNITS and unit.votes >= MANY_VOTES
    return Confidence.HIGH if what is UnitIs.STEP and sure else Confidence.MEDIUM


def _may_be_part(work: Work, unit: RepeatedUnit) -> bool:
    found = unit.segments
    first, after = unit.first, int(found.edges[unit.own[-1] + 1])
    known = numpy.zeros(work.size, numpy.bool_)
    for i in unit.own:
        known[work.numbers[found.edges[i] : found.edges[i + 1]]] = True
    strange = ~known[work.numbers]
    warms_up = _warms_up(work, unit)
    before = 0 if warms_up else int(strange[:first].sum())
    if any(count >= max(OUTSIDE_KERNELS, OUTSIDE * len(work)) for count in (before, int(strange[after:].sum()))):
        return True
    from_here = found.kind[int(unit.own[0]) if warms_up else 0 :]
    same = {*unit.kinds, *found.kind[unit.beside].tolist()}
    odd = [kind for kind in range(len(found.leaders)) if kind not in same and (from_here == kind).any()]
    if any(holds(found.leaders[kind], unit.counts) for kind in odd):
        return True
    return between_optimizers(work, unit) or not repeats_inside(work, unit.counts)


def _warms_up(work: Work, unit: RepeatedUnit) -> bool:
    counts = numpy.bincount(work.numbers[: unit.first], minlength=work.size)
    longer = int(work.at_ns[unit.first] - work.at_ns[0]) > unit.length_ns
    return longer and bool(numpy.minimum(counts, unit.counts).sum() >= WARM_UP * unit.counts.sum())
