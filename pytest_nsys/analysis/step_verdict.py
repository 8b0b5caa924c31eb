"""What is a unit of kernels that repeats: a step, a layer, several kinds of steps? The ranges around it may say so.

Kernels alone cannot tell a trace of layers from one of steps, and only a step may be written as an anchor.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise

import numpy

from pytest_nsys.analysis.candidates import are_steps, range_patterns
from pytest_nsys.analysis.model_parts import ModuleCalls, count_numbered, numbers_in
from pytest_nsys.analysis.step_choice import MANY_VOTES, RepeatedUnit, between_optimizers, holds, repeats_inside
from pytest_nsys.analysis.step_facts import Confidence, RepeatedPart, UnitIs
from pytest_nsys.analysis.step_segments import Work
from pytest_nsys.core.columns import Column, Vector, as_vector, members, minus, take, total, values
from pytest_nsys.core.conventions import BUILT_IN, like
from pytest_nsys.core.model import Interval
from pytest_nsys.core.tables import Ranges

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
    """The units of a rank, in ``spans`` of time, among the closed ranges and the modules of its process. ``moments``
    are those, in their order, at which its kernels were launched, or ran.
    """

    def __init__(self, spans: Sequence[Interval], ranges: Ranges, modules: ModuleCalls, moments: Vector) -> None:
        self.spans, self.ranges, self.modules, self.moments = spans, ranges, modules, moments
        self.starts, self.ends = numpy.array(spans, numpy.int64).reshape(-1, 2).T

    def _like(self, fits: Callable[[str], object]) -> tuple[Vector, Vector, Vector]:
        """(start, end, name) of the ranges whose name fits."""
        flags = numpy.array([bool(fits(name)) for name in self.ranges.names], numpy.bool_)
        columns = (as_vector(own) for own in (self.ranges.start_ns, self.ranges.end_ns, self.ranges.name))
        chosen = flags[as_vector(self.ranges.name)] if len(flags) else slice(0)
        start, end, name = (column[chosen] for column in columns)
        return start, end, name

    def holder(self) -> str | None:
        """A range that frameworks mark steps with, where each that holds a unit holds several."""
        for pattern in KNOWN_STEPS:
            start, end, name = self._like(like(pattern))
            counts = self.starts.searchsorted(end) - self.starts.searchsorted(start)
            if counts.any() and counts[counts > 0].min() > 1:
                return self.ranges.names[int(name[counts.argmax()])]
        return None

    def holding_module(self) -> str | None:
        """A module, by its class, of which each call that holds a unit holds several."""
        return self.modules.find_holder(self.starts)

    @cached_property
    def module_word(self) -> str | None:
        """The word of the modules that are numbered, where each unit is one of them: ``layers`` of ``layers.3``."""
        by_name = {name: found for name in self.ranges.names if (found := numbers_in(name))}
        numbers = {i: by_name[name] for i, name in enumerate(self.ranges.names) if name in by_name}
        start, _, name = self._like(by_name.__contains__)
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
        if (part := self.modules.find_repeated(self.moments, step)) is not None:
            return part
        starts, names = as_vector(self.ranges.start_ns), as_vector(self.ranges.name)
        inside = slice(None) if step is None else slice(*starts.searchsorted((step[0], step[1] + 1)))
        counts = {self.ranges.names[i]: n for i, n in enumerate(numpy.bincount(names[inside]).tolist()) if n}
        name = self.module_word
        if name is not None:
            count = count_numbered(counts, name)
        elif (name := self.pattern) is not None:
            fits = like(name)
            count = sum(n for each, n in counts.items() if fits(each))
        return None if name is None or count < 2 else RepeatedPart(name, count)

    @cached_property
    def pattern(self) -> str | None:
        """The ranges on one thread of which exactly one starts in each unit, of several those with most time."""
        if len(self.spans) < 2 or not len(self.ranges):
            return None
        patterns = range_patterns(self.ranges.names)
        known = {pattern: i for i, pattern in enumerate(sorted(set(patterns.values())))}
        of_name = array("q", [known.get(patterns.get(name, ""), len(known)) for name in self.ranges.names])
        groups = members(take(of_name, self.ranges.name), len(known) + 1)
        times = {pattern: self._time_once(groups[i]) for pattern, i in known.items()}
        return max((p for p, time in times.items() if time is not None), key=lambda p: (times[p] or 0, p), default=None)

    def _time_once(self, rows: Column) -> int | None:
        """The time of ranges of which one starts in each unit; None of others. Those inside another of them do not
        count, nor a few without a kernel until the next one: these are steps of no work.

        A range that holds the whole step starts before its first kernel: so the last unit may have none.
        """
        starts, ends = (as_vector(take(own, rows)) for own in (self.ranges.start_ns, self.ranges.end_ns))
        if not len(starts):  # a name that open ranges alone have
            return None
        outermost = numpy.diff(numpy.maximum.accumulate(ends), prepend=-1) > 0
        starts, ends = starts[outermost], ends[outermost]
        before = self.moments.searchsorted(numpy.append(starts, max(self.moments[-1] + 1, starts[-1])))
        working = starts[numpy.diff(before) > 0]
        starts = working if are_steps(len(working), len(starts)) else starts
        counts = starts.searchsorted(self.ends) - starts.searchsorted(self.starts)
        once = bool((counts[:-1] == 1).all()) and counts[-1] <= 1
        if not once or len(values(take(self.ranges.thread, rows))) > 1:
            return None
        return total(minus(take(self.ranges.end_ns, rows), take(self.ranges.start_ns, rows)))


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
