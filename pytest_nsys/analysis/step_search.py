"""The step that nobody marked: the largest unit of kernels that repeats on every rank.

It is looked for on one rank, that with most kernels; on the others what begins it there must begin the same unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import NamedTuple, TypeVar

from pytest_nsys.analysis.candidates import ranges_by_rank
from pytest_nsys.analysis.kernel_anchors import KernelOrder, kernel_order
from pytest_nsys.analysis.model_parts import ModuleCalls
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.step_choice import RepeatedUnit, choose, held
from pytest_nsys.analysis.step_facts import FoundUnits, NoUnits, RepeatedPart, UnitIs
from pytest_nsys.analysis.step_segments import FEWEST_KERNELS, Work
from pytest_nsys.analysis.step_verdict import AmongRanges, confidence_in, spans_of, what_it_is
from pytest_nsys.core.columns import Vector, as_vector, distinct
from pytest_nsys.core.conventions import KernelAnchor
from pytest_nsys.core.exact import median
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import Interval, Range, Value
from pytest_nsys.core.words import counted, printable

T = TypeVar("T")

FEWEST = 2 * FEWEST_KERNELS
"""Kernels without which no unit of them is there twice."""

FEWEST_CALLS = 2
"""Calls of a module that several units are parts of, for each to be a larger unit."""

MOST_TRIED = 32
"""Kernels that take turns in beginning the same unit: so many are looked for on the other ranks."""

MOST_HELD = 4
"""Those among them that go on to the next rank."""

APART = 1.5
"""Times a unit may be as long on one rank as on another."""


def search(run: Run, steps: Mapping[int, Interval] | None = None) -> FoundUnits | NoUnits:
    """The same unit on all ranks of a run with kernels, or why there is none. ``steps`` are the only steps that there
    are, by rank, where a framework marks one: what repeats is told of that.
    """
    return _Search(run, steps or {}).found()


class _Begun(NamedTuple):
    """Units that a kernel begins, of one rank first: from when to when they are, by rank, and how far apart."""

    anchor: KernelAnchor
    unit: RepeatedUnit
    spans: dict[int, Sequence[Interval]]
    periods: list[Value]


class _Search:
    """One search, which reads a rank after the other."""

    def __init__(self, run: Run, steps: Mapping[int, Interval]) -> None:
        self.run, self.steps = run, steps
        self.tracks = {number: track for number, track in run.whole().tracks.items() if len(track.kernels)}

    def found(self) -> FoundUnits | NoUnits:
        """What the search comes to."""
        found = self._found()
        if isinstance(found, FoundUnits):
            return found
        return replace(found, repeated=_if_all_agree(self._in_modules(number) for number in self.tracks))

    def _found(self) -> FoundUnits | NoUnits:
        sizes = {number: len(track.kernels) for number, track in self.tracks.items()}
        if not sizes or max(sizes.values()) < FEWEST:
            most = max(sizes.values(), default=0)
            return NoUnits(f"{counted(most, 'kernel')} {'is' if most == 1 else 'are'} too few to repeat")
        first = max(sizes, key=lambda number: (sizes[number], -number))
        work = Work(kernel_order(self.tracks[first]))
        units = self._choose(first, work)
        if not units:
            return NoUnits("no sequence of kernels repeats")
        left = [*islice(self._begun(first, work, units), 1 if len(self.tracks) == 1 else None)]
        for number in sorted(self.tracks.keys() - {first}):
            holds = self._held_on(number, work, left)
            if not holds:
                name = printable(str(left[0].anchor), 80)
                return NoUnits(f"kernels repeat on rank {first} from {name} to the next, on rank {number} they do not")
            left = holds
        return self._told(first, work, left[0])

    def _choose(self, first: int, work: Work) -> list[RepeatedUnit]:
        """The units of the first rank. Where they are parts of a module that is called several times, a larger one is
        looked for, of which each holds one call: of many layers alike those are more than of steps.
        """
        units, modules = choose(work), self._modules_of(first)
        holder = modules.find_holder(_starts_of(work, units[0])) if units else None
        if holder is None or modules.count_calls(holder) < FEWEST_CALLS:
            return units
        return choose(work, lambda unit: modules.start_once(holder, _starts_of(work, unit))) or units

    def _begun(self, first: int, work: Work, units: Sequence[RepeatedUnit]) -> Iterator[_Begun]:
        """What begins the unit on the first rank, the best first."""
        for unit in units:
            yield self._of(first, work, unit)
        for unit in units:
            for places in unit.segments.marker.others[:MOST_TRIED]:
                if (other := held(work, places, unit)) is not None:
                    yield self._of(first, work, other)

    def _of(self, first: int, work: Work, unit: RepeatedUnit) -> _Begun:
        return _Begun(self._anchor(work, unit), unit, {first: spans_of(work, unit)}, [_period(unit)])

    def _held_on(self, number: int, work: Work, each: Sequence[_Begun]) -> list[_Begun]:
        """Those that begin the same unit on another rank too."""
        order = kernel_order(self.tracks[number])
        if order.launched != work.order.launched:
            return []
        own, found = Work(order), []
        for begun in each:
            unit = held(own, as_vector(order.occurrences(begun.anchor)), begun.unit)
            length_ns = begun.unit.length_ns
            if unit is not None and length_ns / APART <= unit.length_ns <= length_ns * APART:
                begun.spans[number] = spans_of(own, unit)
                begun.periods.append(_period(unit))
                found.append(begun)
            if len(found) == MOST_HELD:
                break
        return found

    @cached_property
    def _spelled(self) -> Mapping[str, set[str]]:
        """What each name of a kernel of the run, short or full, stands for."""
        found: dict[str, set[str]] = {}
        for track in self.tracks.values():
            names = track.kernels.names
            for short, own in distinct(track.kernels.name, track.kernels.full_name)[1]:
                full = names.get(own) or names[short]
                for name in (names[short], full):
                    found.setdefault(name, set()).add(full)
        return found

    def _name(self, order: KernelOrder, place: int) -> str:
        """The short name of a kernel, where no other one has it."""
        short, full = order.name_of(place)
        return short if len(self._spelled[short]) == 1 else full

    def _anchor(self, work: Work, unit: RepeatedUnit) -> KernelAnchor:
        place, order = int(unit.segments.marker.places[0]), work.order
        if not unit.level:
            return KernelAnchor(self._name(order, place))
        before = int(work.heads[work.heads.searchsorted(place) - 1])
        return KernelAnchor(self._name(order, place), self._name(order, before))

    @kept
    def _modules_of(self, number: int) -> ModuleCalls:
        process = self.tracks[number].rank.process
        recorded = self.run.traces[process.trace].module_calls().get(process.global_pid, ())
        return ModuleCalls(recorded, ranges_by_rank(self.run)[number].ranges)

    def _in_modules(self, number: int) -> RepeatedPart | None:
        launched_ns = as_vector(ranges_by_rank(self.run)[number].launched_ns)
        return self._modules_of(number).find_repeated(launched_ns, self.steps.get(number))

    def _told(self, first: int, work: Work, begun: _Begun) -> FoundUnits:
        each = {
            number: AmongRanges(spans, ranges_by_rank(self.run)[number], self._modules_of(number))
            for number, spans in sorted(begun.spans.items())
        }
        what, inside = what_it_is(work, begun.unit, each[first])
        pattern = _if_all_agree(around.pattern for around in each.values()) if what is UnitIs.STEP else None
        repeated = None
        if what in (UnitIs.PART, UnitIs.MAYBE_PART) or self.steps:
            parts = (around.find_repeated(self.steps.get(number)) for number, around in each.items())
            repeated = _if_all_agree(parts)
        name = str(begun.anchor)
        return FoundUnits(
            begun.anchor,
            what,
            confidence_in(what, begun.unit),
            {number: [Range(*span, 0, name) for span in around.spans] for number, around in each.items()},
            max(begun.periods),
            work.order.launched,
            pattern,
            inside,
            repeated,
            len(begun.unit.kinds),
        )


def _if_all_agree(each: Iterable[T | None]) -> T | None:
    """What was found, where it is that of every rank."""
    found = {*each}
    return found.pop() if len(found) == 1 else None


def _starts_of(work: Work, unit: RepeatedUnit) -> Vector:
    starts: Vector = work.at_ns[unit.segments.edges[unit.own]]
    return starts


def _period(unit: RepeatedUnit) -> Value:
    """The median distance from one unit to what begins next."""
    lengths = unit.segments.lengths_ns
    whole = unit.own[unit.own < len(lengths) - 1]
    apart: Sequence[int] = lengths[whole if len(whole) else unit.own].tolist()
    return median(apart)
