"""How are the clocks of several files aligned to one, and how exactly?

Each file counts its times from the start of its own session. A collective ends at about the same time on all of its
ranks, so the ends of matched collectives show how far two clocks are apart: by the exact median of their differences.
The remainder is how far the aligned ends of one collective still are from each other. The *residual* of a process group
is the 95th percentile of the remainders of its collectives. A time difference between two of its clocks has an error of
the residual, or of the remainder of that very collective if that is larger: a clock that drifts, a rank that is late to
end and a wrongly matched collective all increase the error.

A delay that one host has equally in every collective cannot be seen in the ends: it is attributed to the host's clock.

If no ends are matched, the starts of the sessions place a clock, but only to draw timelines. They are off by as much as
the hosts' clocks disagree, which is unknown here, so no wait is based on them. They can also cast doubt on a match: if
by them the n-th collective of one file is rather another one of the other file, and the ends fit that about as well, it
is unknown which is right.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from typing import NamedTuple

from pytest_nsys.analysis.metrics.collectives import MatchedGroup, make_signature, match_window
from pytest_nsys.analysis.windows.run import Run, WindowGroup
from pytest_nsys.core.errors import NothingMeasured, NsysError
from pytest_nsys.core.exact import median, percentile
from pytest_nsys.core.memoize import group_by_key, memoize_method
from pytest_nsys.core.model import Clock, Rank
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import format_count

END_TOGETHER = ("AllReduce", "AllGather", "ReduceScatter", "AllToAll", "Barrier")
"""Lists the kinds that no rank can leave before all have contributed; in other kinds the root may leave much
earlier.
"""

FEWEST_MATCHED_ENDS = 5
"""The minimum number of matched ends to compare two clocks: if chance decides who ends first, all of them are on one
side of the true difference once in 16 cases.
"""

HARDLY_WORSE_FACTOR = 2
"""Another match fits about as well if its ends are at most this many times as far apart; step lengths differ by much
more than the ends of one collective.
"""

RESIDUAL_PERCENT = 95
"""The percentage of a group's collectives that the residual covers."""


class CollectiveEnds(NamedTuple):
    """Holds when collectives of one group that end together ended on each of its clocks, by the last rank on that
    clock.
    """

    places: Sequence[int]  # their positions among all collectives of the group
    ends_by_clock: Mapping[Clock, Sequence[int]]


class ClockPlacement(NamedTuple):
    """Says how far a clock is ahead of its root clock, and the error of that."""

    root_clock: Clock
    ahead_ns: int
    error_ns: int


class ClockAgreement(NamedTuple):
    """Says how well the clocks of one group agree: its residual, and the error of a time difference in each
    collective.
    """

    residual_ns: int
    errors_ns: Sequence[int]  # the error in ns of a time difference in each collective
    clock_count: int = 1
    end_count: int = 0  # number of its own matched ends; 0 if its clocks are tied by other groups


class ClockAlignment(NamedTuple):
    """Says how a clock is aligned with the first one to draw timelines."""

    ahead_ns: int | None  # subtracted from its times; None if unknown
    error_ns: int | None  # the error of ahead_ns; None if unknown

    @property
    def description(self) -> str:
        """Return a note on the alignment for users; empty for the first clock, and for one that equals it."""
        if self == EXACT_ALIGNMENT:
            return ""
        if self.ahead_ns is None:
            return "clocks could not be aligned"
        if self.error_ns is None:
            return "clocks aligned by the start of the session alone: error unknown"
        return f"clocks aligned within {format_value(self.error_ns)} by the ends of matched collectives"


EXACT_ALIGNMENT = ClockAlignment(0, 0)
"""The alignment of a single clock, and of the first of several."""


@dataclass(frozen=True)
class CommonClock:
    """Aligns the clocks of some windows. Clocks that matched ends tie to each other have one root."""

    placements: Mapping[Clock, ClockPlacement]  # of all clocks, in order
    epochs_ns: Mapping[Clock, int]  # the moments from which times count, in ns since 1970, where files say so
    doubts_by_group: Mapping[str, str]  # by group, why its collectives may be matched wrongly
    has_too_few_ends: bool  # collectives were matched, but too few to tie the clocks of their group

    def find_alignment(self, clock: Clock) -> ClockAlignment:
        """Return how a clock is aligned with the first one."""
        first_clock, placement = next(iter(self.placements)), self.placements[clock]
        if placement.root_clock == first_clock:
            return ClockAlignment(placement.ahead_ns, placement.error_ns)
        epochs = self._root_epochs_ns
        has_both_epochs = first_clock in epochs and placement.root_clock in epochs
        return ClockAlignment(
            epochs[first_clock][0] - epochs[placement.root_clock][0] + placement.ahead_ns if has_both_epochs else None,
            None,
        )

    @cached_property
    def _root_epochs_ns(self) -> Mapping[Clock, Sequence[int]]:
        """Return by root the moments from which its times count, in ns since 1970: one for each clock whose file says
        it.
        """
        clocks, epochs = self.placements.items(), self.epochs_ns
        return group_by_key(
            (placement.root_clock, epochs[clock] + placement.ahead_ns) for clock, placement in clocks if clock in epochs
        )

    @property
    def disagreement_ns(self) -> int | None:
        """Return the largest difference between alignment by ends and by session starts, in ns; None if unknown."""
        repeated_epochs = (epochs for epochs in self._root_epochs_ns.values() if len(epochs) > 1)
        return max((max(epochs) - min(epochs) for epochs in repeated_epochs), default=None)

    def rebase(self, rank: Rank, time_ns: int) -> int:
        """Return a time of a rank on its root clock, in ns; such times are comparable within an agreement."""
        return time_ns - self.placements[rank.process.clock].ahead_ns

    def measure_agreement(self, group: MatchedGroup, ranks: Mapping[int, Rank]) -> ClockAgreement:
        """Return how well the clocks of a group agree. Raises ValueError if that is unknown."""
        collective_count = len(next(iter(group.transfers_by_rank.values())))
        clocks = _collect_clocks(group, ranks)
        if len(clocks) == 1:
            return ClockAgreement(0, [0] * collective_count)
        if group.members in self.doubts_by_group:
            raise ValueError(self.doubts_by_group[group.members])
        if len({self.placements[clock].root_clock for clock in clocks}) > 1:
            raise ValueError(
                f"its ranks use {len(clocks)} clocks, and fewer than {FEWEST_MATCHED_ENDS} matched ends align them: "
                "measure a window with more collectives"
            )
        ends = _find_ends(group, ranks)
        residuals_ns = self._measure_residuals(ends)
        has_own_ends = len(residuals_ns) >= FEWEST_MATCHED_ENDS
        if has_own_ends:
            residual_ns, largest_ns = int(percentile(residuals_ns, RESIDUAL_PERCENT)), max(residuals_ns)
        else:
            # Tied by other groups: the two clocks with the largest errors bound the error of any pair.
            residual_ns = largest_ns = sum(sorted(self.placements[clock].error_ns for clock in clocks)[-2:])
        errors_ns = [largest_ns] * collective_count
        for place, own_residual_ns in zip(ends.places, residuals_ns, strict=True):
            errors_ns[place] = max(residual_ns, own_residual_ns)
        return ClockAgreement(residual_ns, errors_ns, len(clocks), len(residuals_ns) if has_own_ends else 0)

    def _measure_residuals(self, ends: CollectiveEnds) -> list[int]:
        """Return how far the ends of each collective are from each other, in ns, once they are rebased."""
        rebased_ends = [
            [end - self.placements[clock].ahead_ns for end in clock_ends]
            for clock, clock_ends in ends.ends_by_clock.items()
        ]
        return [max(same_collective) - min(same_collective) for same_collective in zip(*rebased_ends, strict=True)]


@memoize_method
def align_clocks(group: WindowGroup) -> CommonClock:
    """Align the clocks of all ranks by the collectives in the windows or, if these are too few, in the whole run."""
    clocks = align_by_collectives(group)
    if clocks.has_too_few_ends and not group.spec.is_whole_run:
        if (placements := _read_placements(group.run, clocks)) is not None:
            return replace(clocks, placements=placements, has_too_few_ends=False)
        with contextlib.suppress(NsysError):  # outside of the windows the run may be damaged
            return align_clocks(group.run.load_whole_run())
    return clocks


def _read_placements(run: Run, clocks: CommonClock) -> Mapping[Clock, ClockPlacement] | None:
    """Return the alignment that the run's only file, a cut of several files, stores; None if it stores none."""
    ties = run.facts[0].clock_ties
    if len(run.traces) > 1 or not {clock.machine for clock in clocks.placements} <= {*ties}:
        return None
    clock_ties = {clock: ties[clock.machine] for clock in clocks.placements}
    return {
        clock: ClockPlacement(Clock(0, tie.root_machine), tie.ahead_ns, tie.error_ns)
        for clock, tie in clock_ties.items()
    }


def align_by_collectives(group: WindowGroup) -> CommonClock:
    """Align the clocks by only the collectives in the windows; for a whole run these are all there are."""
    ranks = {window.rank.number: window.rank for window in group}
    clock_order = list(dict.fromkeys(ranks[number].process.clock for number in sorted(ranks)))
    epochs = read_epochs(group.run)
    doubts_by_group: dict[str, str] = {}
    differences: dict[tuple[Clock, Clock], list[int]] = {}
    matched_groups = _match_over_clocks(group, ranks) if len(clock_order) > 1 else []
    for matched_group in matched_groups:
        ends = _find_ends(matched_group, ranks)
        hub_clock, *other_clocks = sorted(ends.ends_by_clock, key=clock_order.index)
        for other_clock in other_clocks:
            if (doubt := _find_doubt(matched_group, ends, (hub_clock, other_clock), epochs)) is not None:
                doubts_by_group[matched_group.members] = doubt
        for other_clock in other_clocks if matched_group.members not in doubts_by_group else ():
            end_differences = (
                b - a for a, b in zip(ends.ends_by_clock[hub_clock], ends.ends_by_clock[other_clock], strict=True)
            )
            differences.setdefault((hub_clock, other_clock), []).extend(end_differences)
    placements = _place_clocks(clock_order, differences)
    has_too_few_ends = any(
        len({placements[clock].root_clock for clock in _collect_clocks(matched_group, ranks)}) > 1
        for matched_group in matched_groups
    )
    return CommonClock({clock: placements[clock] for clock in clock_order}, epochs, doubts_by_group, has_too_few_ends)


def _match_over_clocks(group: WindowGroup, ranks: Mapping[int, Rank]) -> list[MatchedGroup]:
    """Return the matched groups of all windows whose ranks use several clocks."""
    try:
        windows = group.list_run_windows()
    except NothingMeasured:  # reported when the windows are requested
        return []
    matched_groups = (matched_group for window in windows for matched_group in match_window(window).groups)
    return [matched_group for matched_group in matched_groups if len(_collect_clocks(matched_group, ranks)) > 1]


def _collect_clocks(group: MatchedGroup, ranks: Mapping[int, Rank]) -> set[Clock]:
    return {ranks[rank].process.clock for rank in group.transfers_by_rank}


def _find_ends(group: MatchedGroup, ranks: Mapping[int, Rank]) -> CollectiveEnds:
    first_transfers = next(iter(group.transfers_by_rank.values()))
    places = [place for place, transfer in enumerate(first_transfers) if transfer.kind in END_TOGETHER]
    ends_by_clock: dict[Clock, list[list[int]]] = {}
    for rank, transfers in group.transfers_by_rank.items():
        ends_by_clock.setdefault(ranks[rank].process.clock, []).append([transfers[place].end_ns for place in places])
    return CollectiveEnds(
        places, {clock: [*map(max, zip(*rank_ends, strict=True))] for clock, rank_ends in ends_by_clock.items()}
    )


def read_epochs(run: Run) -> dict[Clock, int]:
    """Return the time origin of each clock, in ns since 1970, if its file states it."""
    clocks = {rank.process.clock for rank in run.ranks}
    clocks_per_trace = Counter(clock.trace for clock in clocks)
    epochs: dict[Clock, int] = {}
    for clock in clocks:
        machine_epochs = run.facts[clock.trace].clock_zeros_ns
        epoch_ns = machine_epochs.get(
            clock.machine, machine_epochs.get(None) if clocks_per_trace[clock.trace] == 1 else None
        )
        if epoch_ns is not None:
            epochs[clock] = epoch_ns
    return epochs


def _find_doubt(
    group: MatchedGroup, ends: CollectiveEnds, clocks: tuple[Clock, Clock], epochs: Mapping[Clock, int]
) -> str | None:
    """Return why the n-th collective on one clock may not be the n-th on the other; None if it surely is."""
    (hub_clock, other_clock), n = clocks, len(ends.places)
    if hub_clock not in epochs or other_clock not in epochs or not n:
        return None
    hub_ends, other_ends = (ends.ends_by_clock[clock] for clock in clocks)
    middle_ns = other_ends[n // 2] + epochs[other_clock] - epochs[hub_clock]
    distances = [abs(end - middle_ns) for end in hub_ends]
    nearest = distances.index(min(distances))
    shift = nearest - n // 2
    shared_places = range(max(0, -shift), min(n, n - shift))
    if 2 * distances[nearest] > distances[n // 2] or not shift or len(shared_places) < max(FEWEST_MATCHED_ENDS, n // 2):
        return None  # if session starts are far off, no other match is much more plausible
    first_transfers = next(iter(group.transfers_by_rank.values()))
    signatures = [make_signature(first_transfers[place]) for place in ends.places]
    if any(signatures[k] != signatures[k + shift] for k in shared_places):
        return None
    matched_differences, shifted_differences = (
        [other_ends[k] - hub_ends[k + offset] for k in shared_places] for offset in (0, shift)
    )
    if _measure_end_spread(shifted_differences) > HARDLY_WORSE_FACTOR * _measure_end_spread(matched_differences):
        return None
    return (
        f"by the starts of their sessions its files are {format_count(abs(shift), 'collective')} apart, and the ends "
        "fit "
        "that about as well: profile the same steps on all ranks"
    )


def _measure_end_spread(differences: Sequence[int]) -> int:
    middle_ns = int(median(differences))
    return int(percentile([abs(difference - middle_ns) for difference in differences], RESIDUAL_PERCENT))


def _place_clocks(
    clock_order: Sequence[Clock], differences: Mapping[tuple[Clock, Clock], Sequence[int]]
) -> dict[Clock, ClockPlacement]:
    """Place every clock by the chain of ties to its root with the smallest error. The first of tied clocks is their
    root.
    """
    ties: dict[Clock, list[tuple[Clock, int, int]]] = {}
    for (hub_clock, other_clock), end_differences in differences.items():
        if len(end_differences) >= FEWEST_MATCHED_ENDS:
            ahead_ns = int(median(end_differences) // 1)  # the median: a few late ranks do not move it
            error_ns = max(abs(difference - ahead_ns) for difference in end_differences)
            ties.setdefault(hub_clock, []).append((other_clock, ahead_ns, error_ns))
            ties.setdefault(other_clock, []).append((hub_clock, -ahead_ns, error_ns))
    positions = {clock: place for place, clock in enumerate(clock_order)}
    placements: dict[Clock, ClockPlacement] = {}
    for root in clock_order:
        queue = [(0, positions[root], 0)]
        while queue:
            error_ns, place, ahead_ns = heappop(queue)
            if (clock := clock_order[place]) not in placements:
                placements[clock] = ClockPlacement(root, ahead_ns, error_ns)
                for other_clock, tie_ahead_ns, tie_error_ns in ties.get(clock, ()):
                    heappush(queue, (error_ns + tie_error_ns, positions[other_clock], ahead_ns + tie_ahead_ns))
    return placements
