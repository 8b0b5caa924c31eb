"""Which largest unit of kernels repeats on every rank, as an unmarked step does?

The unit is searched on the rank with most kernels. On the other ranks the same kernel must begin the same unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from pytest_nsys.analysis.steps.anchor_candidates import RankRanges, read_ranges_by_rank
from pytest_nsys.analysis.steps.search_result import FoundUnits, NoUnits, UnitType
from pytest_nsys.analysis.steps.segments import MIN_SEGMENT_KERNELS, RankSequence
from pytest_nsys.analysis.steps.unit_choice import RepeatedUnit, choose_units, find_same_unit
from pytest_nsys.analysis.steps.unit_type import UnitsAmongRanges, determine_unit_type, rate_confidence
from pytest_nsys.analysis.windows.kernel_anchors import order_kernels, shorten_name
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.core.columns import as_vector, find_distinct_rows
from pytest_nsys.core.conventions import KernelAnchor
from pytest_nsys.core.exact import median
from pytest_nsys.core.model import Interval, Range, Value
from pytest_nsys.core.text_format import format_count, sanitize_line

T = TypeVar("T")

MIN_KERNELS_TO_REPEAT = 2 * MIN_SEGMENT_KERNELS
"""The minimum number of kernels on a rank in which a unit can appear twice."""

MIN_HOLDER_CALLS = 2
"""A module whose calls each hold several units is tried as a larger unit if it is called this often."""

MAX_TRIED_MARKERS = 32
"""The maximum number of markers of one unit that are tried on the other ranks."""

MAX_BEGINNINGS = 4
"""The maximum number of kernels, out of those markers, that are kept for the next rank."""

MAX_RANK_LENGTH_RATIO = 1.5
"""The maximum ratio between a unit's lengths on two ranks."""


def search_steps(run: Run, marked_steps: Mapping[int, Interval] | None = None) -> FoundUnits | NoUnits:
    """Find the same unit on all ranks of a run with kernels, or say why there is none.

    ``marked_steps`` holds the only step of each rank, if a framework marks one: then the search looks inside these
    steps.
    """
    ranks, marked_steps = read_ranges_by_rank(run), marked_steps or {}
    search_result = _find_units(ranks, marked_steps)
    if isinstance(search_result, FoundUnits):
        return search_result
    repeated_parts = (
        rank_ranges.module_calls.find_repeated_modules(rank_ranges.launched_ns, marked_steps.get(rank))
        for rank, rank_ranges in ranks.items()
    )
    return replace(search_result, repeated_part=_find_agreed_value(repeated_parts))


@dataclass(frozen=True, slots=True)
class _UnitBeginning:
    """Describes the units that one kernel begins: those of the first rank, and the spans and periods on each rank."""

    anchor: KernelAnchor  # with full kernel names
    unit: RepeatedUnit  # on the first rank
    spans_by_rank: dict[int, Sequence[Interval]]
    period_by_rank_ns: dict[int, Value]

    def add_rank(self, rank: int, unit: RepeatedUnit) -> _UnitBeginning:
        """Return a copy with the units of one more rank."""
        return replace(
            self,
            spans_by_rank={**self.spans_by_rank, rank: unit.spans_ns},
            period_by_rank_ns={**self.period_by_rank_ns, rank: _measure_period_ns(unit)},
        )


def _find_units(ranks: Mapping[int, RankRanges], marked_steps: Mapping[int, Interval]) -> FoundUnits | NoUnits:
    """Find the units that repeat on every rank, or say why there are none."""
    sizes = {number: len(rank_ranges.track.kernels) for number, rank_ranges in ranks.items()}
    if not sizes or max(sizes.values()) < MIN_KERNELS_TO_REPEAT:
        highest_count = max(sizes.values(), default=0)
        return NoUnits(
            f"{format_count(highest_count, 'kernel')} {'is' if highest_count == 1 else 'are'} too few to repeat"
        )
    first_rank = max(sizes, key=lambda number: (sizes[number], -number))
    sequence = RankSequence(order_kernels(ranks[first_rank].track))
    units = _choose_first_rank_units(sequence, ranks[first_rank])
    if not units:
        return NoUnits("no sequence of kernels repeats")
    beginnings = [*islice(_list_beginnings(first_rank, sequence, units), 1 if len(ranks) == 1 else None)]
    for number in sorted(ranks.keys() - {first_rank}):
        remaining = _follow_on_rank(number, ranks[number], sequence.order.is_by_launch, beginnings)
        if not remaining:
            name = sanitize_line(str(_shorten_anchor(beginnings[0].anchor, ranks)), 80)
            return NoUnits(f"kernels repeat on rank {first_rank} from {name} to the next, on rank {number} they do not")
        beginnings = remaining
    return _build_found_units(ranks, marked_steps, first_rank, beginnings[0])


def _choose_first_rank_units(sequence: RankSequence, rank_ranges: RankRanges) -> list[RepeatedUnit]:
    """Choose the units of the first rank.

    If they are parts of a module that is called several times, a larger unit is searched that holds one call of the
    module: similar layers are more frequent than steps and would win otherwise.
    """
    units, modules = choose_units(sequence), rank_ranges.module_calls
    holder = modules.find_holder_class(units[0].starts_ns) if units else None
    if holder is None or modules.count_calls(holder) < MIN_HOLDER_CALLS:
        return units
    return choose_units(sequence, lambda unit: modules.is_called_once_between(holder, unit.starts_ns)) or units


def _list_beginnings(
    first_rank: int, sequence: RankSequence, units: Sequence[RepeatedUnit]
) -> Iterator[_UnitBeginning]:
    """Yield the kernels that begin the unit on the first rank, the best first."""
    alternatives = (
        (unit, positions)
        for unit in units
        for positions in unit.segments.marker.alternating_positions[:MAX_TRIED_MARKERS]
    )
    same_units = (
        same_unit
        for unit, positions in alternatives
        if (same_unit := find_same_unit(sequence, positions, unit)) is not None
    )
    for group in (units, same_units):
        for unit in group:
            position = int(unit.segments.marker.positions[0])
            anchor = KernelAnchor(sequence.order.get_names(position)[1])
            if unit.segments.marker.level:
                previous_position = int(sequence.launch_heads[sequence.launch_heads.searchsorted(position) - 1])
                anchor = anchor._replace(after=sequence.order.get_names(previous_position)[1])
            yield _UnitBeginning(anchor, unit, {}, {}).add_rank(first_rank, unit)


def _follow_on_rank(
    rank: int, rank_ranges: RankRanges, is_by_launch: bool, beginnings: Sequence[_UnitBeginning]
) -> list[_UnitBeginning]:
    """Return the beginnings that also begin the same unit on another rank."""
    kernels = order_kernels(rank_ranges.track)
    if kernels.is_by_launch != is_by_launch:
        return []
    sequence, confirmed = RankSequence(kernels), list[_UnitBeginning]()
    for beginning in beginnings:
        unit = find_same_unit(sequence, as_vector(kernels.find_occurrences(beginning.anchor)), beginning.unit)
        length_ns = beginning.unit.median_length_ns
        if (
            unit is not None
            and length_ns / MAX_RANK_LENGTH_RATIO <= unit.median_length_ns <= length_ns * MAX_RANK_LENGTH_RATIO
        ):
            confirmed.append(beginning.add_rank(rank, unit))
        if len(confirmed) == MAX_BEGINNINGS:
            break
    return confirmed


def _shorten_anchor(anchor: KernelAnchor, ranks: Mapping[int, RankRanges]) -> KernelAnchor:
    """Return the anchor with short kernel names, if no other kernel has the same short names."""
    names: set[tuple[str, str]] = set()
    for rank_ranges in ranks.values():
        kernels = rank_ranges.track.kernels
        for short, full in find_distinct_rows(kernels.name, kernels.full_name)[1]:
            names.add((kernels.names[short], kernels.names.get(full) or kernels.names[short]))
    after = None if anchor.after is None else shorten_name(anchor.after, names)
    return KernelAnchor(shorten_name(anchor.kernel, names), after)


def _build_found_units(
    ranks: Mapping[int, RankRanges], marked_steps: Mapping[int, Interval], first_rank: int, beginning: _UnitBeginning
) -> FoundUnits:
    """Build the result for the units that one kernel begins on all ranks."""
    units_by_rank = {
        number: UnitsAmongRanges(spans, ranks[number]) for number, spans in sorted(beginning.spans_by_rank.items())
    }
    unit_type, holder = determine_unit_type(beginning.unit, units_by_rank[first_rank])
    pattern = (
        _find_agreed_value(units.unit_pattern for units in units_by_rank.values())
        if unit_type is UnitType.STEP
        else None
    )
    repeated_part = None
    if unit_type in (UnitType.PART, UnitType.MAYBE_PART) or marked_steps:
        repeated_part = _find_agreed_value(
            units.find_repeated_part(marked_steps.get(number)) for number, units in units_by_rank.items()
        )
    anchor = _shorten_anchor(beginning.anchor, ranks)
    return FoundUnits(
        anchor,
        unit_type,
        rate_confidence(unit_type, beginning.unit),
        {
            number: [Range(*span, 0, str(anchor)) for span in spans]
            for number, spans in sorted(beginning.spans_by_rank.items())
        },
        max(beginning.period_by_rank_ns.values()),
        beginning.unit.segments.sequence.order.is_by_launch,
        pattern,
        holder,
        repeated_part,
        len(beginning.unit.kinds),
    )


def _find_agreed_value(values: Iterable[T | None]) -> T | None:
    """Return the value if it is the same on every rank, else None."""
    distinct_values = {*values}
    return distinct_values.pop() if len(distinct_values) == 1 else None


def _measure_period_ns(unit: RepeatedUnit) -> Value:
    """Return the median time from the start of a unit to whatever segment begins next, in ns."""
    lengths_ns = unit.segments.lengths_ns
    followed_units = unit.segment_numbers[unit.segment_numbers < len(lengths_ns) - 1]
    distances_ns: Sequence[int] = lengths_ns[followed_units if len(followed_units) else unit.segment_numbers].tolist()
    return median(distances_ns)
