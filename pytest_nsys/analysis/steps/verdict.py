"""Is a unit of kernels that repeats a step, a layer, or steps of several kinds, as the ranges around it may say?

Kernels alone cannot distinguish a trace of layers from one of steps, and only a step may become an anchor.
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
"""The patterns of the ranges with which frameworks mark their steps."""

MOST_MODULES = 2
"""The most numbers of one module word in a layer: its own, and the next one's, which is prefetched."""

OUTSIDE = 0.005
OUTSIDE_KERNELS = 2
"""The fewest kernels before the first unit, or after the last, with names of no unit, for the units to be parts."""

WARM_UP = 0.5
"""The share of a unit's kernels from which on what precedes the first unit is a warm-up, if it takes longer than a
unit.
"""

# Only a step that repeats so often, so exactly and with several markers is told with high confidence.
MANY_UNITS = 5
ALIKE_UNITS = 0.95


class AmongRanges:
    """Holds the units of a rank, by their ``spans`` of time, among the closed ranges and the modules of its process."""

    def __init__(self, spans: Sequence[Interval], around: RankRanges) -> None:
        self.around = around
        self.starts, self.ends = numpy.array(spans, numpy.int64).reshape(-1, 2).T

    def find_holder(self) -> str | None:
        """Return a framework's step range, else a class of modules, of which each one that holds a unit holds several.

        None where there is none.
        """
        for pattern in KNOWN_STEPS:
            ranges = self.around.named(like(pattern))
            if (holder := find_holder(self.starts, as_vector(ranges.start_ns), as_vector(ranges.end_ns))) is not None:
                return ranges[holder].name
        return self.around.modules.find_holder(self.starts)

    @cached_property
    def module_word(self) -> str | None:
        """The word of the numbered modules where each unit is one of them: ``layers`` of ``layers.3``; else None."""
        ranges = self.around.named(numbers_in)
        range_starts_ns, name_codes = as_vector(ranges.start_ns), as_vector(ranges.name)
        units = self.starts.searchsorted(range_starts_ns, "right") - 1
        is_inside = (units >= 0) & (range_starts_ns < self.ends[units])
        numbers_by_word: dict[str, list[set[str]]] = {}
        for unit, i in sorted({*zip(units[is_inside].tolist(), name_codes[is_inside].tolist(), strict=True)}):
            for word, number in numbers_in(ranges.names[i]):
                numbers_by_word.setdefault(word, [set() for _ in self.starts])[unit].add(number)
        return next((word for word, numbers in numbers_by_word.items() if _counts_units(numbers)), None)

    def find_repeated(self, step: Interval | None) -> RepeatedPart | None:
        """Return which parts of a step the units are, by modules, else by ranges; None where nothing proves a number.

        ``step`` is the only step there is, where one is marked.
        """
        if (part := self.around.modules.find_repeated(self.around.launched_ns, step)) is not None:
            return part
        ranges = self.around.ranges
        range_starts_ns, name_codes = as_vector(ranges.start_ns), as_vector(ranges.name)
        step_slice = slice(None) if step is None else slice(*range_starts_ns.searchsorted((step[0], step[1] + 1)))
        counts = {ranges.names[i]: n for i, n in enumerate(numpy.bincount(name_codes[step_slice]).tolist()) if n}
        name = self.module_word
        if name is not None:
            count = count_numbered(counts, name)
        elif (name := self.pattern) is not None:
            matches = like(name)
            count = sum(n for range_name, n in counts.items() if matches(range_name))
        return None if name is None or count < 2 else RepeatedPart(name, count)

    @cached_property
    def pattern(self) -> str | None:
        """The pattern of ranges of which exactly one starts in each unit, of several that with most time; else None."""
        return self.around.once_in_each(self.starts, self.ends) if len(self.starts) > 1 else None


def _counts_units(numbers: Sequence[set[str]]) -> bool:
    """Return whether the numbers in at least half of the units differ from each unit to the next."""
    nonempty = [unit_numbers for unit_numbers in numbers if unit_numbers]
    if len(nonempty) < 2 or 2 * len(nonempty) < len(numbers):
        return False
    return all(len(numbers) <= MOST_MODULES for numbers in nonempty) and all(a != b for a, b in pairwise(nonempty))


def what_it_is(unit: RepeatedUnit, around: AmongRanges) -> tuple[UnitIs, str | None]:
    """Determine what the units are, and for a part the range or module that holds several of them, if one does."""
    holder = around.find_holder()
    if holder is not None or around.module_word is not None:
        return UnitIs.PART, holder
    if _may_be_part(unit):
        return UnitIs.MAYBE_PART, None
    if len(unit.kinds) > 1:
        return UnitIs.KINDS, None
    return (UnitIs.TWO_SPEEDS if unit.two_speeds else UnitIs.STEP), None


def confidence_in(what: UnitIs, unit: RepeatedUnit) -> Confidence:
    """Rate how sure it is that the units are what they seem."""
    if what in (UnitIs.MAYBE_PART, UnitIs.TWO_SPEEDS):
        return Confidence.LOW
    is_sure = len(unit) >= MANY_UNITS and unit.alike >= ALIKE_UNITS and unit.segments.marker.votes >= MANY_VOTES
    return Confidence.HIGH if what is UnitIs.STEP and is_sure else Confidence.MEDIUM


def _may_be_part(unit: RepeatedUnit) -> bool:
    """Return whether something contradicts that the units are whole steps, by what lies outside of them and inside."""
    segments, sequence = unit.segments, unit.segments.work
    is_unit_name = numpy.zeros(sequence.size, numpy.bool_)
    for start, stop in zip(unit.firsts, unit.afters, strict=True):
        is_unit_name[sequence.numbers[start:stop]] = True
    is_strange = ~is_unit_name[sequence.numbers]
    has_warm_up = _warms_up(unit)
    # Kernels at either end that no unit has may be the rest of a step whose parts the units are.
    outside = [is_strange[unit.after :], *([] if has_warm_up else [is_strange[: unit.first]])]
    if any(kernels.sum() >= max(OUTSIDE_KERNELS, OUTSIDE * len(sequence)) for kernels in outside):
        return True
    counted_kinds = segments.kind[int(unit.members[0]) if has_warm_up else 0 :]
    other_kinds = {*counted_kinds.tolist()} - {*unit.kinds, *segments.kind[unit.beside].tolist(), -1}
    # A segment of another kind that holds a unit and more may be the step.
    if any(holds_more(segments.leaders[kind], unit.counts) for kind in other_kinds):
        return True
    return runs_between_optimizers(unit) or not repeats_inside(segments, unit.kinds[:1])


def _warms_up(unit: RepeatedUnit) -> bool:
    """Return whether what precedes the first unit is a warm-up: longer than a unit, and of its kernels."""
    sequence = unit.segments.work
    counts = numpy.bincount(sequence.numbers[: unit.first], minlength=sequence.size)
    is_longer = int(sequence.at_ns[unit.first] - sequence.at_ns[0]) > unit.length_ns
    return is_longer and bool(numpy.minimum(counts, unit.counts).sum() >= WARM_UP * unit.counts.sum())
