"""What is a unit of kernels that repeats: a step, a layer, several kinds of steps? The ranges around it may say so.

Kernels alone cannot tell a trace of layers from one of steps, and only a step may be written as an anchor.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

import numpy

from pytest_nsys.analysis.candidates import ClosedRanges, range_patterns
from pytest_nsys.analysis.step_choice import MANY_VOTES, Unit, holds
from pytest_nsys.analysis.step_facts import Confidence, UnitIs
from pytest_nsys.analysis.step_segments import Work
from pytest_nsys.core.columns import Vector
from pytest_nsys.core.conventions import BUILT_IN, PARTS_OF_A_STEP, like
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Range, Rank

KNOWN_STEPS = (
    *dict.fromkeys(c.range_anchor for c in BUILT_IN.values() if c.range_anchor and c.anchor not in PARTS_OF_A_STEP),
    "execute_%context_%",
    "step[%]",
)
"""Patterns of the ranges that frameworks mark their steps with."""

_MODULE = re.compile(r"([^\W\d]\w*)\.(\d+)(?!\w)")
"""A module of several, as PyTorch writes it: ``layers.3``."""

MOST_MODULES = 2
"""Numbers of one module in a layer: its own, and the next one's, which is fetched."""

OUTSIDE = 0.005
OUTSIDE_KERNELS = 2
"""Kernels before the first unit, or after the last, whose names no unit has."""

WARM_UP = 0.5
"""Of a unit's kernels: so many before the first, which take longer than it, warm up."""

OFTEN = 4
REPEATED = 0.5
"""Of a unit's kernel time, in names that occur often in it: in a step layers repeat."""

LEFT_ASIDE = 2
JUMP = 1.5
"""From one length to the next, of two speeds; at either end of the lengths some are left aside."""

MANY_UNITS = 5
ALIKE_UNITS = 0.95


class Around:
    """The units of a rank among the ranges of its process."""

    def __init__(self, work: Work, unit: Unit, rank: Rank, ranges: ClosedRanges) -> None:
        self.work, self.unit = work, unit
        self.ranges = ranges.by_process.get((rank.process.trace, rank.process.global_pid), ())
        edges = numpy.append(work.at_ns, work.at_ns[-1] + 1)[unit.segments.edges]
        self.spans = [(int(edges[i]), int(edges[i + 1])) for i in unit.own]
        self.starts = [start for start, _ in self.spans]

    def holder(self) -> str | None:
        """A range that frameworks mark steps with, where each that holds a unit holds several."""
        for pattern in KNOWN_STEPS:
            matches = like(pattern)
            held = [
                (count, r.name)
                for r in self.ranges
                if matches(r.name)
                and (count := bisect_left(self.starts, r.end_ns) - bisect_left(self.starts, r.start_ns))
            ]
            if held and min(held)[0] > 1:
                return max(held)[1]
        return None

    def in_modules(self) -> bool:
        """Whether each unit is one of the modules that are numbered."""
        seen: dict[str, list[set[str]]] = {}
        for r in self.ranges:
            found = _MODULE.findall(r.name)
            place = bisect_left(self.starts, r.start_ns + 1) - 1 if found else -1
            if place >= 0 and r.start_ns < self.spans[place][1]:
                for word, number in found:
                    seen.setdefault(word, [set() for _ in self.spans])[place].add(number)
        return any(_counts_units(each) for each in seen.values())

    def pattern(self) -> str | None:
        """The ranges on one thread of which exactly one starts in each unit, of several those with most time."""
        if len(self.spans) < 2:
            return None
        patterns = range_patterns({r.name for r in self.ranges})
        own = grouped((patterns[r.name], r) for r in self.ranges if r.name in patterns)
        found = {pattern: each for pattern, each in own.items() if self._once(each)}
        return max(found, key=lambda each: (sum(r.end_ns - r.start_ns for r in found[each]), each), default=None)

    def _once(self, each: Sequence[Range]) -> bool:
        """A range that holds the whole step starts before its first kernel: so the last unit may have none."""
        if len({r.thread for r in each}) > 1:
            return False
        starts = [r.start_ns for r in each]
        counts = [bisect_left(starts, end) - bisect_left(starts, start) for start, end in self.spans]
        return set(counts[:-1]) == {1} and counts[-1] <= 1


def _counts_units(numbers: Sequence[set[str]]) -> bool:
    known = [each for each in numbers if each]
    if len(known) < 2 or 2 * len(known) < len(numbers):
        return False
    return all(len(each) <= MOST_MODULES for each in known) and all(a != b for a, b in pairwise(known))


def what_it_is(around: Around) -> tuple[UnitIs, str | None]:
    """What the units are; of a part the range that holds several, where one does."""
    if (holder := around.holder()) is not None:
        return UnitIs.PART, holder
    if around.in_modules():
        return UnitIs.PART, None
    if _may_be_part(around.work, around.unit):
        return UnitIs.MAYBE_PART, None
    if len(around.unit.kinds) > 1:
        return UnitIs.KINDS, None
    return (UnitIs.TWO_SPEEDS if _two_speeds(around.unit.lengths_ns) else UnitIs.STEP), None


def confidence_in(what: UnitIs, unit: Unit) -> Confidence:
    """How sure it is."""
    if what in (UnitIs.MAYBE_PART, UnitIs.TWO_SPEEDS):
        return Confidence.LOW
    sure = len(unit) >= MANY_UNITS and unit.alike >= ALIKE_UNITS and unit.votes >= MANY_VOTES
    return Confidence.HIGH if what is UnitIs.STEP and sure else Confidence.MEDIUM


def _may_be_part(work: Work, unit: Unit) -> bool:
    found = unit.segments
    first, after = unit.first, int(found.edges[unit.own[-1] + 1])
    known = numpy.zeros(work.size, numpy.bool_)
    for i in unit.own:
        known[work.numbers[found.edges[i] : found.edges[i + 1]]] = True
    strange = ~known[work.numbers]
    before = 0 if _warms_up(work, unit) else int(strange[:first].sum())
    if any(count >= max(OUTSIDE_KERNELS, OUTSIDE * len(work)) for count in (before, int(strange[after:].sum()))):
        return True
    odd = [kind for kind in range(len(found.leaders)) if kind not in unit.kinds and (found.kind == kind).any()]
    if any(holds(found.leaders[kind], unit.counts) for kind in odd):
        return True
    times = unit.counts * work.weights
    return bool(times[unit.counts >= OFTEN].sum() < REPEATED * times.sum())


def _warms_up(work: Work, unit: Unit) -> bool:
    sizes = numpy.diff(unit.segments.edges)[unit.own]
    longer = int(work.at_ns[unit.first] - work.at_ns[0]) > unit.length_ns
    return unit.first >= WARM_UP * float(numpy.median(sizes)) and longer


def _two_speeds(lengths: Vector) -> bool:
    inner = sorted(lengths.tolist())[LEFT_ASIDE:-LEFT_ASIDE]
    return any(after >= JUMP * before for before, after in pairwise(inner))
