"""Is a repeating unit of kernels a step, a layer, or steps of several kinds, judged by the ranges around it?

Kernels alone cannot distinguish a trace of layers from one of steps, and only a step may become an anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from pytest_nsys.analysis.steps.anchor_candidates import RankRanges
from pytest_nsys.analysis.steps.model_parts import count_numbered_parts, find_holder, parse_part_numbers
from pytest_nsys.analysis.steps.search_result import Confidence, RepeatedPart, UnitType
from pytest_nsys.analysis.steps.unit_choice import (
    MIN_SURE_VOTES,
    RepeatedUnit,
    holds_more,
    repeats_inside,
    runs_between_optimizers,
)
from pytest_nsys.core.arrays import numpy
from pytest_nsys.core.columns import as_vector
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, make_pattern_matcher
from pytest_nsys.core.model import Interval

KNOWN_STEP_PATTERNS = tuple(
    dict.fromkeys(c.range_anchor for c in BUILT_IN_CONVENTIONS.values() if c.range_anchor and not c.part)
)
"""The patterns of the ranges with which frameworks mark their steps."""

MAX_MODULES_PER_UNIT = 2
"""The maximum number of different module numbers in one layer: its own, and that of the next layer, which is
prefetched.
"""

MAX_OUTSIDE_SHARE = 0.005
MAX_OUTSIDE_KERNELS = 2
"""At least this many kernels before the first unit or after the last one, with names that no unit has, show that the
units are parts.
"""

MIN_WARM_UP_SHARE = 0.5
"""What precedes the first unit is a warm-up if it takes longer than a unit and holds at least this share of its
kernels.
"""

# A step has high confidence if it repeats this often, this exactly, and with several markers.
MIN_UNITS_FOR_HIGH = 5
MIN_SIMILARITY_FOR_HIGH = 0.95


class UnitsAmongRanges:
    """Relates the units of a rank, given as ``spans`` of time, to the closed ranges and the modules of its process."""

    def __init__(self, spans: Sequence[Interval], rank_ranges: RankRanges) -> None:
        self.rank_ranges = rank_ranges
        self.starts_ns, self.ends_ns = numpy.array(spans, numpy.int64).reshape(-1, 2).T

    def find_enclosing_step_or_module(self) -> str | None:
        """Return a framework's step range, else a module class, whose instances each hold several units if they hold
        any.

        Returns None if there is neither.
        """
        for pattern in KNOWN_STEP_PATTERNS:
            ranges = self.rank_ranges.select_by_name(make_pattern_matcher(pattern))
            if (
                holder := find_holder(self.starts_ns, as_vector(ranges.start_ns), as_vector(ranges.end_ns))
            ) is not None:
                return ranges[holder].name
        return self.rank_ranges.module_calls.find_holder_class(self.starts_ns)

    @cached_property
    def module_word(self) -> str | None:
        """The word of the numbered modules if each unit is one of them, such as ``layers`` for ``layers.3``; else
        None.
        """
        ranges = self.rank_ranges.select_by_name(parse_part_numbers)
        range_starts_ns, name_codes = as_vector(ranges.start_ns), as_vector(ranges.name)
        units = self.starts_ns.searchsorted(range_starts_ns, "right") - 1
        is_inside = (units >= 0) & (range_starts_ns < self.ends_ns[units])
        numbers_by_word: dict[str, list[set[str]]] = {}
        for unit, i in sorted({*zip(units[is_inside].tolist(), name_codes[is_inside].tolist(), strict=True)}):
            for word, number in parse_part_numbers(ranges.names[i]):
                numbers_by_word.setdefault(word, [set() for _ in self.starts_ns])[unit].add(number)
        return next((word for word, numbers in numbers_by_word.items() if _are_units_numbered(numbers)), None)

    def find_repeated_part(self, step: Interval | None) -> RepeatedPart | None:
        """Return which parts of a step the units are, by modules, else by ranges; None if nothing proves their number.

        ``step`` is the only step, if one is marked.
        """
        if (
            part := self.rank_ranges.module_calls.find_repeated_modules(self.rank_ranges.launched_ns, step)
        ) is not None:
            return part
        ranges = self.rank_ranges.ranges
        range_starts_ns, name_codes = as_vector(ranges.start_ns), as_vector(ranges.name)
        step_slice = slice(None) if step is None else slice(*range_starts_ns.searchsorted((step[0], step[1] + 1)))
        counts = {ranges.names[i]: n for i, n in enumerate(numpy.bincount(name_codes[step_slice]).tolist()) if n}
        name = self.module_word
        if name is not None:
            count = count_numbered_parts(counts, name)
        elif (name := self.unit_pattern) is not None:
            matches = make_pattern_matcher(name)
            count = sum(n for range_name, n in counts.items() if matches(range_name))
        return None if name is None or count < 2 else RepeatedPart(name, count)

    @cached_property
    def unit_pattern(self) -> str | None:
        """The pattern of ranges that start exactly once in each unit; of several the one with most time; None without
        any.
        """
        return (
            self.rank_ranges.find_pattern_once_in_each(self.starts_ns, self.ends_ns)
            if len(self.starts_ns) > 1
            else None
        )


def _are_units_numbered(numbers_by_unit: Sequence[set[str]]) -> bool:
    """Return whether at least half of the units have numbers, which differ from one such unit to the next."""
    nonempty = [unit_numbers for unit_numbers in numbers_by_unit if unit_numbers]
    if len(nonempty) < 2 or 2 * len(nonempty) < len(numbers_by_unit):
        return False
    return all(len(numbers) <= MAX_MODULES_PER_UNIT for numbers in nonempty) and all(
        a != b for a, b in pairwise(nonempty)
    )


def determine_unit_type(unit: RepeatedUnit, units: UnitsAmongRanges) -> tuple[UnitType, str | None]:
    """Determine the type of the units and, for a part, the range or module that holds several of them, if there is
    one.
    """
    holder = units.find_enclosing_step_or_module()
    if holder is not None or units.module_word is not None:
        return UnitType.PART, holder
    if _may_be_part(unit):
        return UnitType.MAYBE_PART, None
    if len(unit.kinds) > 1:
        return UnitType.KINDS, None
    return (UnitType.TWO_SPEEDS if unit.has_two_speeds else UnitType.STEP), None


def rate_confidence(unit_type: UnitType, unit: RepeatedUnit) -> Confidence:
    """Rate how certain it is that the units are of this type."""
    if unit_type in (UnitType.MAYBE_PART, UnitType.TWO_SPEEDS):
        return Confidence.LOW
    is_sure = (
        len(unit) >= MIN_UNITS_FOR_HIGH
        and unit.similarity >= MIN_SIMILARITY_FOR_HIGH
        and unit.segments.marker.votes >= MIN_SURE_VOTES
    )
    return Confidence.HIGH if unit_type is UnitType.STEP and is_sure else Confidence.MEDIUM


def _may_be_part(unit: RepeatedUnit) -> bool:
    """Return whether something inside or outside the units contradicts that they are whole steps."""
    segments, sequence = unit.segments, unit.segments.sequence
    is_unit_name = numpy.zeros(sequence.name_count, numpy.bool_)
    for start, stop in zip(unit.start_positions, unit.end_positions, strict=True):
        is_unit_name[sequence.name_codes[start:stop]] = True
    is_strange = ~is_unit_name[sequence.name_codes]
    has_warm_up = _has_warm_up(unit)
    # Kernels at either end that no unit has may belong to a step that the units are parts of.
    outside = [is_strange[unit.end_position :], *([] if has_warm_up else [is_strange[: unit.first_position]])]
    if any(kernels.sum() >= max(MAX_OUTSIDE_KERNELS, MAX_OUTSIDE_SHARE * len(sequence)) for kernels in outside):
        return True
    counted_kinds = segments.kinds[int(unit.segment_numbers[0]) if has_warm_up else 0 :]
    other_kinds = {*counted_kinds.tolist()} - {*unit.kinds, *segments.kinds[unit.longer_segments].tolist(), -1}
    # A segment of another kind that holds a unit and more may be the step.
    if any(holds_more(segments.leader_counts[kind], unit.name_counts) for kind in other_kinds):
        return True
    return runs_between_optimizers(unit) or not repeats_inside(segments, unit.kinds[:1])


def _has_warm_up(unit: RepeatedUnit) -> bool:
    """Return whether what precedes the first unit is a warm-up: it takes longer than a unit and runs the same
    kernels.
    """
    sequence = unit.segments.sequence
    counts = numpy.bincount(sequence.name_codes[: unit.first_position], minlength=sequence.name_count)
    is_longer = int(sequence.times_ns[unit.first_position] - sequence.times_ns[0]) > unit.median_length_ns
    return is_longer and bool(
        numpy.minimum(counts, unit.name_counts).sum() >= MIN_WARM_UP_SHARE * unit.name_counts.sum()
    )
