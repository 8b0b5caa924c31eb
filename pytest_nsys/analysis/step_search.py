"""The step that nobody marked: the largest unit of kernels that repeats on every rank.

It is looked for on one rank, that with most kernels; on the others what begins it there must begin the same unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from pytest_nsys.analysis.candidates import all_ranges
from pytest_nsys.analysis.kernel_anchors import KernelOrder, kernel_order
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.step_choice import Unit, choose, held
from pytest_nsys.analysis.step_facts import FoundUnits, NoUnits, UnitIs
from pytest_nsys.analysis.step_segments import FEWEST_KERNELS, Work
from pytest_nsys.analysis.step_verdict import Around, confidence_in, what_it_is
from pytest_nsys.core.columns import as_vector, distinct
from pytest_nsys.core.conventions import KernelAnchor
from pytest_nsys.core.exact import median
from pytest_nsys.core.model import Range, Value
from pytest_nsys.core.words import counted, printable

FEWEST = 2 * FEWEST_KERNELS
"""Kernels without which no unit of them is there twice."""

APART = 1.5
"""Times a unit may be as long on one rank as on another."""


def search(run: Run) -> FoundUnits | NoUnits:
    """The same unit on all ranks of a run with kernels, or why there is none."""
    return _Search(run).found()


class _Search:
    """One search, and what it has read of each rank."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.tracks = {number: track for number, track in run.whole().tracks.items() if len(track.kernels)}
        self._works: dict[int, Work] = {}

    def work(self, number: int) -> Work:
        """The kernels of a rank in their order."""
        if number not in self._works:
            self._works[number] = Work(kernel_order(self.tracks[number]))
        return self._works[number]

    def found(self) -> FoundUnits | NoUnits:
        """What the search comes to."""
        sizes = {number: len(track.kernels) for number, track in self.tracks.items()}
        if not sizes or max(sizes.values()) < FEWEST:
            return NoUnits(f"{counted(max(sizes.values(), default=0), 'kernel')} are too few to repeat")
        first = max(sizes, key=lambda number: (sizes[number], -number))
        units = choose(self.work(first))
        if not units:
            return NoUnits("no sequence of kernels repeats")
        refused: NoUnits | None = None
        for unit in units:
            anchor = self._anchor(self.work(first), unit)
            others = self._on_others(first, unit, anchor)
            if not isinstance(others, NoUnits):
                return self._told(first, anchor, {**others, first: unit})
            refused = refused or others
        assert refused is not None
        return refused

    def _on_others(self, first: int, unit: Unit, anchor: KernelAnchor) -> dict[int, Unit] | NoUnits:
        """The units of every other rank, or which has none."""
        found: dict[int, Unit] = {}
        for number in sorted(self.tracks.keys() - {first}):
            work = self.work(number)
            own = None
            if work.order.launched == self.work(first).order.launched:
                own = held(work, as_vector(work.order.occurrences(anchor)), unit)
            if own is None or not unit.length_ns / APART <= own.length_ns <= unit.length_ns * APART:
                name = printable(str(anchor), 80)
                return NoUnits(f"kernels repeat on rank {first} from {name} to the next, on rank {number} they do not")
            found[number] = own
        return found

    @cached_property
    def _spelled(self) -> Mapping[str, set[str]]:
        """By short name of a kernel of the run all the full names that share it."""
        found: dict[str, set[str]] = {}
        for track in self.tracks.values():
            names = track.kernels.names
            for short, full in distinct(track.kernels.name, track.kernels.full_name)[1]:
                found.setdefault(names[short], set()).add(names.get(full) or names[short])
        return found

    def _name(self, order: KernelOrder, place: int) -> str:
        """The short name of a kernel, where it is of no other one too."""
        short, full = order.name_of(place)
        alone = len(self._spelled[short]) == 1 and not any(
            short in own for key, own in self._spelled.items() if key != short
        )
        return short if alone else full

    def _anchor(self, work: Work, unit: Unit) -> KernelAnchor:
        places, order = unit.segments.marker.places, work.order
        after = None
        if unit.level:
            before = int(work.heads.searchsorted(places[0])) - 1
            after = self._name(order, int(work.heads[before]))
        return KernelAnchor(self._name(order, int(places[0])), after)

    def _told(self, first: int, anchor: KernelAnchor, units: Mapping[int, Unit]) -> FoundUnits:
        ranges = all_ranges(self.run)
        each = {
            number: Around(self.work(number), units[number], self.tracks[number].rank, ranges)
            for number in sorted(units)
        }
        unit = units[first]
        what, inside = what_it_is(each[first])
        pattern = each[first].pattern() if what is UnitIs.STEP else None
        if pattern is not None and any(around.pattern() != pattern for around in each.values()):
            pattern = None
        return FoundUnits(
            anchor,
            what,
            confidence_in(what, unit),
            {number: [Range(*span, 0, str(anchor)) for span in around.spans] for number, around in each.items()},
            max(_period(own) for own in units.values()),
            self.work(first).order.launched,
            pattern,
            inside,
            len(unit.kinds),
        )


def _period(unit: Unit) -> Value:
    """The median distance from one unit to what begins next."""
    lengths = unit.segments.lengths_ns
    whole = unit.own[unit.own < len(lengths) - 1]
    apart: Sequence[int] = lengths[whole if len(whole) else unit.own].tolist()
    return median(apart)
