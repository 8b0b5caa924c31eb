"""The step that nobody marked: the largest unit of kernels that repeats on every rank.

It is looked for on one rank, that with most kernels; on the others what begins it there must begin the same unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from pytest_nsys.analysis.steps.candidates import RankRanges, ranges_by_rank
from pytest_nsys.analysis.steps.choice import RepeatedUnit, choose, find_same_unit
from pytest_nsys.analysis.steps.facts import FoundUnits, NoUnits, UnitIs
from pytest_nsys.analysis.steps.segments import FEWEST_KERNELS, Work
from pytest_nsys.analysis.steps.verdict import AmongRanges, confidence_in, what_it_is
from pytest_nsys.analysis.windows.kernel_anchors import kernel_order, shorten_name
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.core.columns import as_vector, distinct
from pytest_nsys.core.conventions import KernelAnchor
from pytest_nsys.core.exact import median
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
    ranks, steps = ranges_by_rank(run), steps or {}
    found = _find_units(ranks, steps)
    if isinstance(found, FoundUnits):
        return found
    parts = (own.modules.find_repeated(own.launched_ns, steps.get(rank)) for rank, own in ranks.items())
    return replace(found, repeated=_if_all_agree(parts))


@dataclass(frozen=True, slots=True)
class _Begun:
    """Units that a kernel begins, called by its full name: those of the first rank, and by rank from when to when they
    are and how far apart.
    """

    anchor: KernelAnchor
    unit: RepeatedUnit
    spans: dict[int, Sequence[Interval]]
    periods: dict[int, Value]

    def add(self, rank: int, unit: RepeatedUnit) -> _Begun:
        """Return the same with the units of a rank."""
        return replace(self, spans={**self.spans, rank: unit.spans}, periods={**self.periods, rank: _period(unit)})


def _find_units(ranks: Mapping[int, RankRanges], steps: Mapping[int, Interval]) -> FoundUnits | NoUnits:
    sizes = {number: len(own.track.kernels) for number, own in ranks.items()}
    if not sizes or max(sizes.values()) < FEWEST:
        most = max(sizes.values(), default=0)
        return NoUnits(f"{counted(most, 'kernel')} {'is' if most == 1 else 'are'} too few to repeat")
    first = max(sizes, key=lambda number: (sizes[number], -number))
    work = Work(kernel_order(ranks[first].track))
    units = _choose(work, ranks[first])
    if not units:
        return NoUnits("no sequence of kernels repeats")
    begun = [*islice(_list_beginnings(first, work, units), 1 if len(ranks) == 1 else None)]
    for number in sorted(ranks.keys() - {first}):
        holds = _follow_on_rank(number, ranks[number], work.order.launched, begun)
        if not holds:
            name = printable(str(_shorten(begun[0].anchor, ranks)), 80)
            return NoUnits(f"kernels repeat on rank {first} from {name} to the next, on rank {number} they do not")
        begun = holds
    return _describe_units(ranks, steps, first, begun[0])


def _choose(work: Work, around: RankRanges) -> list[RepeatedUnit]:
    """The units of the first rank. Where they are parts of a module that is called several times, a larger one is
    looked for, of which each holds one call: of many layers alike those are more than of steps.
    """
    units, modules = choose(work), around.modules
    holder = modules.find_holder(units[0].starts_ns) if units else None
    if holder is None or modules.count_calls(holder) < FEWEST_CALLS:
        return units
    return choose(work, lambda unit: modules.start_once(holder, unit.starts_ns)) or units


def _list_beginnings(first: int, work: Work, units: Sequence[RepeatedUnit]) -> Iterator[_Begun]:
    """What begins the unit on the first rank, the best first."""
    turns = ((unit, places) for unit in units for places in unit.segments.marker.others[:MOST_TRIED])
    others = (other for unit, places in turns if (other := find_same_unit(work, places, unit)) is not None)
    for each in (units, others):
        for unit in each:
            place = int(unit.segments.marker.places[0])
            anchor = KernelAnchor(work.order.name_of(place)[1])
            if unit.segments.marker.level:
                before = int(work.heads[work.heads.searchsorted(place) - 1])
                anchor = anchor._replace(after=work.order.name_of(before)[1])
            yield _Begun(anchor, unit, {}, {}).add(first, unit)


def _follow_on_rank(number: int, around: RankRanges, launched: bool, begun: Sequence[_Begun]) -> list[_Begun]:
    """Those that begin the same unit on another rank too."""
    order = kernel_order(around.track)
    if order.launched != launched:
        return []
    work, found = Work(order), list[_Begun]()
    for each in begun:
        unit = find_same_unit(work, as_vector(order.occurrences(each.anchor)), each.unit)
        length_ns = each.unit.length_ns
        if unit is not None and length_ns / APART <= unit.length_ns <= length_ns * APART:
            found.append(each.add(number, unit))
        if len(found) == MOST_HELD:
            break
    return found


def _shorten(anchor: KernelAnchor, ranks: Mapping[int, RankRanges]) -> KernelAnchor:
    """The anchor by short names, where no other kernel has them."""
    known: set[tuple[str, str]] = set()
    for own in ranks.values():
        kernels = own.track.kernels
        for short, full in distinct(kernels.name, kernels.full_name)[1]:
            known.add((kernels.names[short], kernels.names.get(full) or kernels.names[short]))
    after = None if anchor.after is None else shorten_name(anchor.after, known)
    return KernelAnchor(shorten_name(anchor.kernel, known), after)


def _describe_units(
    ranks: Mapping[int, RankRanges], steps: Mapping[int, Interval], first: int, begun: _Begun
) -> FoundUnits:
    each = {number: AmongRanges(spans, ranks[number]) for number, spans in sorted(begun.spans.items())}
    what, inside = what_it_is(begun.unit, each[first])
    pattern = _if_all_agree(around.pattern for around in each.values()) if what is UnitIs.STEP else None
    repeated = None
    if what in (UnitIs.PART, UnitIs.MAYBE_PART) or steps:
        repeated = _if_all_agree(around.find_repeated(steps.get(number)) for number, around in each.items())
    anchor = _shorten(begun.anchor, ranks)
    return FoundUnits(
        anchor,
        what,
        confidence_in(what, begun.unit),
        {number: [Range(*span, 0, str(anchor)) for span in spans] for number, spans in sorted(begun.spans.items())},
        max(begun.periods.values()),
        begun.unit.segments.work.order.launched,
        pattern,
        inside,
        repeated,
        len(begun.unit.kinds),
    )


def _if_all_agree(each: Iterable[T | None]) -> T | None:
    """What was found, where it is that of every rank."""
    found = {*each}
    return found.pop() if len(found) == 1 else None


def _period(unit: RepeatedUnit) -> Value:
    """The median distance from one unit to what begins next."""
    lengths = unit.segments.lengths_ns
    whole = unit.members[unit.members < len(lengths) - 1]
    apart: Sequence[int] = lengths[whole if len(whole) else unit.members].tolist()
    return median(apart)
