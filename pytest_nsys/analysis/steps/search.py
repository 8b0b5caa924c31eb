"""Which largest unit of kernels repeats on every rank, as a step does that nobody marked?

It is searched on one rank, that with most kernels; on the others, what begins it there must begin the same unit.
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
"""The fewest kernels of a rank among which a unit can appear twice."""

FEWEST_CALLS = 2
"""The fewest calls of a module that holds several units at which each call is tried as a larger unit."""

MOST_TRIED = 32
"""The most kernels that begin the same unit in turns and are searched on the other ranks."""

MOST_HELD = 4
"""The most of these kernels that go on to the next rank."""

APART = 1.5
"""The largest ratio of a unit's length on one rank to that on another."""


def search(run: Run, steps: Mapping[int, Interval] | None = None) -> FoundUnits | NoUnits:
    """Find the same unit on all ranks of a run with kernels, or say why there is none.

    ``marked_steps`` are the only steps by rank, where a framework marks one: what repeats is then reported inside them.
    """
    ranks, steps = ranges_by_rank(run), steps or {}
    search_result = _find_units(ranks, steps)
    if isinstance(search_result, FoundUnits):
        return search_result
    repeated_parts = (
        rank_ranges.modules.find_repeated(rank_ranges.launched_ns, steps.get(rank))
        for rank, rank_ranges in ranks.items()
    )
    return replace(search_result, repeated=_if_all_agree(repeated_parts))


@dataclass(frozen=True, slots=True)
class _Begun:
    """Describes units that a kernel begins: those of the first rank, and the spans and periods on each rank."""

    anchor: KernelAnchor  # by full names
    unit: RepeatedUnit  # of the first rank
    spans: dict[int, Sequence[Interval]]
    periods: dict[int, Value]

    def add(self, rank: int, unit: RepeatedUnit) -> _Begun:
        """Return the same with the units of a rank."""
        return replace(self, spans={**self.spans, rank: unit.spans}, periods={**self.periods, rank: _period(unit)})


def _find_units(ranks: Mapping[int, RankRanges], steps: Mapping[int, Interval]) -> FoundUnits | NoUnits:
    """Find the units that repeat on every rank, or say why there are none."""
    sizes = {number: len(rank_ranges.track.kernels) for number, rank_ranges in ranks.items()}
    if not sizes or max(sizes.values()) < FEWEST:
        highest_count = max(sizes.values(), default=0)
        return NoUnits(f"{counted(highest_count, 'kernel')} {'is' if highest_count == 1 else 'are'} too few to repeat")
    first_rank = max(sizes, key=lambda number: (sizes[number], -number))
    sequence = Work(kernel_order(ranks[first_rank].track))
    units = _choose(sequence, ranks[first_rank])
    if not units:
        return NoUnits("no sequence of kernels repeats")
    beginnings = [*islice(_list_beginnings(first_rank, sequence, units), 1 if len(ranks) == 1 else None)]
    for number in sorted(ranks.keys() - {first_rank}):
        remaining = _follow_on_rank(number, ranks[number], sequence.order.launched, beginnings)
        if not remaining:
            name = printable(str(_shorten(beginnings[0].anchor, ranks)), 80)
            return NoUnits(f"kernels repeat on rank {first_rank} from {name} to the next, on rank {number} they do not")
        beginnings = remaining
    return _describe_units(ranks, steps, first_rank, beginnings[0])


def _choose(work: Work, around: RankRanges) -> list[RepeatedUnit]:
    """Choose the units of the first rank.

    Where they are parts of a module that is called several times, a larger unit is searched of which each holds one
    call: of many similar layers there are more than of steps.
    """
    units, modules = choose(work), around.modules
    holder = modules.find_holder(units[0].starts_ns) if units else None
    if holder is None or modules.count_calls(holder) < FEWEST_CALLS:
        return units
    return choose(work, lambda unit: modules.start_once(holder, unit.starts_ns)) or units


def _list_beginnings(first: int, work: Work, units: Sequence[RepeatedUnit]) -> Iterator[_Begun]:
    """Yield what begins the unit on the first rank, the best first."""
    alternatives = ((unit, positions) for unit in units for positions in unit.segments.marker.others[:MOST_TRIED])
    same_units = (
        same_unit
        for unit, positions in alternatives
        if (same_unit := find_same_unit(work, positions, unit)) is not None
    )
    for group in (units, same_units):
        for unit in group:
            position = int(unit.segments.marker.places[0])
            anchor = KernelAnchor(work.order.name_of(position)[1])
            if unit.segments.marker.level:
                previous_position = int(work.heads[work.heads.searchsorted(position) - 1])
                anchor = anchor._replace(after=work.order.name_of(previous_position)[1])
            yield _Begun(anchor, unit, {}, {}).add(first, unit)


def _follow_on_rank(number: int, around: RankRanges, launched: bool, begun: Sequence[_Begun]) -> list[_Begun]:
    """Return the beginnings that also begin the same unit on another rank."""
    kernels = kernel_order(around.track)
    if kernels.launched != launched:
        return []
    sequence, confirmed = Work(kernels), list[_Begun]()
    for beginning in begun:
        unit = find_same_unit(sequence, as_vector(kernels.occurrences(beginning.anchor)), beginning.unit)
        length_ns = beginning.unit.length_ns
        if unit is not None and length_ns / APART <= unit.length_ns <= length_ns * APART:
            confirmed.append(beginning.add(number, unit))
        if len(confirmed) == MOST_HELD:
            break
    return confirmed


def _shorten(anchor: KernelAnchor, ranks: Mapping[int, RankRanges]) -> KernelAnchor:
    """Return the anchor by short names, where no other kernel has them."""
    names: set[tuple[str, str]] = set()
    for rank_ranges in ranks.values():
        kernels = rank_ranges.track.kernels
        for short, full in distinct(kernels.name, kernels.full_name)[1]:
            names.add((kernels.names[short], kernels.names.get(full) or kernels.names[short]))
    after = None if anchor.after is None else shorten_name(anchor.after, names)
    return KernelAnchor(shorten_name(anchor.kernel, names), after)


def _describe_units(
    ranks: Mapping[int, RankRanges], steps: Mapping[int, Interval], first: int, begun: _Begun
) -> FoundUnits:
    """Build the result of the units that a kernel begins on all ranks."""
    units_by_rank = {number: AmongRanges(spans, ranks[number]) for number, spans in sorted(begun.spans.items())}
    unit_type, holder = what_it_is(begun.unit, units_by_rank[first])
    pattern = _if_all_agree(units.pattern for units in units_by_rank.values()) if unit_type is UnitIs.STEP else None
    repeated_part = None
    if unit_type in (UnitIs.PART, UnitIs.MAYBE_PART) or steps:
        repeated_part = _if_all_agree(units.find_repeated(steps.get(number)) for number, units in units_by_rank.items())
    anchor = _shorten(begun.anchor, ranks)
    return FoundUnits(
        anchor,
        unit_type,
        confidence_in(unit_type, begun.unit),
        {number: [Range(*span, 0, str(anchor)) for span in spans] for number, spans in sorted(begun.spans.items())},
        max(begun.periods.values()),
        begun.unit.segments.work.order.launched,
        pattern,
        holder,
        repeated_part,
        len(begun.unit.kinds),
    )


def _if_all_agree(each: Iterable[T | None]) -> T | None:
    """Return the value that is the same on every rank, else None."""
    distinct_values = {*each}
    return distinct_values.pop() if len(distinct_values) == 1 else None


def _period(unit: RepeatedUnit) -> Value:
    """Return the median distance from one unit to what begins next, in ns."""
    lengths_ns = unit.segments.lengths_ns
    followed_units = unit.members[unit.members < len(lengths_ns) - 1]
    distances_ns: Sequence[int] = lengths_ns[followed_units if len(followed_units) else unit.members].tolist()
    return median(distances_ns)
