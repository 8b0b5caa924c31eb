"""Who waits for whom in a collective, and how long does the transfer itself take?

The n-th collective of a process group is the same one on all of its ranks. A rank waits from its own start to the start
of the last rank; the rest is transfer. Several clocks are aligned by the ends of matched collectives (see
:mod:`~pytest_nsys.analysis.metrics.common_clock`); a time smaller than the alignment error is not known. The straggler
is the rank that waits least.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_nsys.analysis.explain.breakdown_model import RankWait
from pytest_nsys.analysis.metrics.collectives import (
    CollectiveLabels,
    MatchedGroup,
    Transfer,
    group_transfers,
    match_ranks,
    match_window,
)
from pytest_nsys.analysis.metrics.common_clock import ClockAgreement, align_clocks
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, RunWindow
from pytest_nsys.analysis.windows.window_selection import WindowSpec, count_clocks
from pytest_nsys.core.errors import NoRows, NothingMeasured
from pytest_nsys.core.memoize import group_by_key, memoize_method
from pytest_nsys.core.model import Note, Rank, Row, RowBelowError
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import format_count, format_ranks, sanitize_line


class WaitShare(NamedTuple):
    """Says how one rank spent its collectives of one group and kind, and the error of these times."""

    wait_ns: int = 0
    transfer_ns: int = 0
    error_ns: int = 0

    def add(self, addend: WaitShare) -> WaitShare:
        return WaitShare(*map(sum, zip(self, addend, strict=True)))

    def drop_uncertain(self, value_ns: int) -> int | None:
        """Return a time of these collectives, in ns; None if it is less than its error."""
        return value_ns if value_ns >= self.error_ns else None


WaitKey = tuple[int, str, str]
"""Holds (rank, process group, kind of collective)."""


@dataclass(frozen=True)
class MatchedWaits:
    """Holds the waits of a window, and says which groups have none."""

    shares: Mapping[WaitKey, WaitShare]
    lags_ns: Mapping[WaitKey, int]  # how much shorter each rank waits than the rank that waits longest, in ns
    unmatched_reasons: Sequence[str] = ()  # which groups have no waits, and why
    agreements: Mapping[str, ClockAgreement] = field(
        default_factory=dict
    )  # of groups on several clocks: by name the worst


@memoize_method
def match_waits(window: RunWindow) -> MatchedWaits:
    """Match the collectives of all groups over their ranks, and measure how long each rank waited."""
    shares: dict[WaitKey, WaitShare] = {}
    lags_ns: dict[WaitKey, int] = {}
    agreements: dict[str, ClockAgreement] = {}
    unmatched_reasons = [*match_window(window).unmatched_reasons]
    for group in match_window(window).groups:
        try:
            agreement = align_clocks(window.group).measure_agreement(group, _map_ranks(window))
        except ValueError as error:
            unmatched_reasons.append(f"group {sanitize_line(group.name, 60)}: {error}")
            continue
        if agreement.clock_count > 1:
            agreements[group.name] = max(agreement, agreements.get(group.name, agreement))
        group_shares = _sum_wait_shares(window, group, agreement)
        for (rank, kind), share in group_shares.items():
            key = (
                rank,
                group.transfers_by_rank[rank][0].group,
                kind,
            )  # a communicator's name differs between processes
            longest_ns = max(other_share.wait_ns for (_, k), other_share in group_shares.items() if k == kind)
            shares[key] = share.add(shares.get(key, WaitShare()))  # of another group of the same name
            lags_ns[key] = lags_ns.get(key, 0) + longest_ns - share.wait_ns
    return MatchedWaits(shares, lags_ns, unmatched_reasons, agreements)


def _sum_wait_shares(
    window: RunWindow, group: MatchedGroup, agreement: ClockAgreement
) -> dict[tuple[int, str], WaitShare]:
    """Return by rank and kind how the ranks of a group spent its collectives; no wait is longer than its kernel."""
    wait_shares: dict[tuple[int, str], WaitShare] = {}
    for rank, transfer, share, _ in _iterate_waits(window, group, agreement):
        wait_shares[rank, transfer.kind] = share.add(wait_shares.get((rank, transfer.kind), WaitShare()))
    return wait_shares


def _iterate_waits(
    window: RunWindow, group: MatchedGroup, agreement: ClockAgreement
) -> Iterator[tuple[int, Transfer, WaitShare, Sequence[int]]]:
    """Yield for each rank's kernel of each collective how its time was spent, and which ranks came last."""
    clock, ranks = align_clocks(window.group), _map_ranks(window)
    for same_collective, error_ns in zip(group.collectives, agreement.errors_ns, strict=True):
        starts = [
            clock.rebase(ranks[rank], t.start_ns)
            for rank, t in zip(group.transfers_by_rank, same_collective, strict=True)
        ]
        waits = _measure_waits(starts, [t.length_ns for t in same_collective])
        last_ranks = [rank for rank, start in zip(group.transfers_by_rank, starts, strict=True) if start == max(starts)]
        for rank, transfer, wait_ns in zip(group.transfers_by_rank, same_collective, waits, strict=True):
            yield rank, transfer, WaitShare(wait_ns, transfer.length_ns - wait_ns, error_ns), last_ranks


class WaitInterval(NamedTuple):
    """Says when the kernel of a collective waited, and for which rank."""

    start_ns: int
    end_ns: int
    kind: str
    for_rank: int  # the rank that came last


@memoize_method
def list_wait_intervals(window: RunWindow) -> Mapping[int, Sequence[WaitInterval]]:
    """Return by rank the waits of its collectives, on the rank's own clock; only those longer than their error."""
    intervals: dict[int, list[WaitInterval]] = {}
    for group in match_window(window).groups:
        with contextlib.suppress(ValueError):  # reported when the metric is measured
            agreement = align_clocks(window.group).measure_agreement(group, _map_ranks(window))
            for rank, transfer, share, (last_rank, *_) in _iterate_waits(window, group, agreement):
                if share.wait_ns and share.drop_uncertain(share.wait_ns) is not None and rank != last_rank:
                    end_ns = transfer.start_ns + share.wait_ns
                    intervals.setdefault(rank, []).append(
                        WaitInterval(transfer.start_ns, end_ns, transfer.kind, last_rank)
                    )
    return intervals


def _measure_waits(starts: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """Return how long each kernel of one collective runs before the last one starts, in ns."""
    last_start = max(starts)
    return [min(last_start - start, length) for start, length in zip(starts, lengths, strict=True)]


def _map_ranks(window: RunWindow) -> Mapping[int, Rank]:
    return {rank: rank_window.rank for rank, rank_window in window.by_rank.items()}


def measure_waits_over_files(by_rank: Mapping[int, RankWindow]) -> Mapping[int, Mapping[int, RankWait]]:
    """Return by rank and kernel of its window how long it waited, and for which rank, for the groups that can be
    matched.

    Empty if all ranks use one clock: then start times show it, and no record of a collective need be read. The result
    explains changes within a rank, so it uses only lengths, which need no common clock: the shortest kernel of a
    collective counts as the transfer, and what another rank's kernel takes longer counts as its wait.
    """
    waits_by_rank: dict[int, dict[int, RankWait]] = {}
    if count_clocks([window.rank for window in by_rank.values()]) > 1:
        for group in match_ranks(by_rank).groups:
            one_clock = count_clocks([by_rank[rank].rank for rank in group.transfers_by_rank]) == 1
            for same_collective in group.collectives:
                lengths = [t.length_ns for t in same_collective]
                starts = [t.start_ns for t in same_collective]
                waits = _measure_waits(starts, lengths) if one_clock else [length - min(lengths) for length in lengths]
                _, last_rank = min(zip(waits, group.transfers_by_rank, strict=True))
                for rank, transfer, wait_ns in zip(group.transfers_by_rank, same_collective, waits, strict=True):
                    waits_by_rank.setdefault(rank, {})[transfer.index] = RankWait(wait_ns, last_rank)
    return waits_by_rank


def _require_waits(window: RunWindow) -> MatchedWaits:
    """Return the matched waits of a window. Raises NoRows if no group can be matched."""
    waits = match_waits(window)
    if waits.shares:
        return waits
    if waits.unmatched_reasons:
        raise NoRows("; ".join(waits.unmatched_reasons))
    blind_windows = [w for w in window.by_rank.values() if group_transfers(w) and w.track.collectives is None]
    if blind_windows:
        raise NoRows(
            "the trace does not say who communicates with whom: "
            f"{blind_windows[0].track.trace_context.facts.to_see_sizes}"
        )
    raise NoRows("no collective of a process group runs in the windows")


def _make_wait_rows(waits: MatchedWaits, values: Mapping[WaitKey, int]) -> Iterator[Row | RowBelowError]:
    for labels, value in sorted(values.items()):
        share = waits.shares[labels]
        yield RowBelowError(labels, share.error_ns) if share.drop_uncertain(value) is None else Row(labels, value)


def collective_wait_ns(window: RunWindow) -> Iterator[Row | RowBelowError]:
    """Σ time in collectives before the last rank came, per (rank, group, collective)."""
    waits = _require_waits(window)
    return _make_wait_rows(waits, {labels: share.wait_ns for labels, share in waits.shares.items()})


def collective_transfer_ns(window: RunWindow) -> Iterator[Row | RowBelowError]:
    """Σ time in collectives after the last rank came, per (rank, group, collective)."""
    waits = _require_waits(window)
    return _make_wait_rows(waits, {labels: share.transfer_ns for labels, share in waits.shares.items()})


def find_stragglers(waits: MatchedWaits) -> Iterator[tuple[CollectiveLabels, int, int]]:
    """Yield, for each group and kind, the rank with the largest lag, and the lag in ns.

    Nothing if all are known to wait alike, or differences are within the error.
    """
    worst: dict[CollectiveLabels, tuple[int, int]] = {}
    for (rank, group, kind), lag_ns in sorted(waits.lags_ns.items()):
        if (
            lag_ns > worst.get((group, kind), (0, 0))[1]
            and waits.shares[rank, group, kind].drop_uncertain(lag_ns) is not None
        ):
            worst[group, kind] = (rank, lag_ns)
    for labels, (rank, lag_ns) in sorted(worst.items()):
        yield labels, rank, lag_ns


def wait_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """Yield how well the clocks agree on which the waits of collectives are based."""
    for run in captures:
        if count_clocks(run.ranks) > 1:
            try:
                windows = run.load_windows(spec).list_run_windows()
            except NothingMeasured:
                return
            yield from (
                Note(line)
                for line in dict.fromkeys(line for window in windows for line in describe_clock_agreement(window))
            )


def describe_clock_agreement(window: RunWindow) -> Iterator[str]:
    """Yield how well the clocks of a window's ranks agree, one line per group name, and which waits are therefore
    unknown.
    """
    waits = match_waits(window)
    for name, agreement in sorted(waits.agreements.items()):
        accuracy_text = (
            f"group {sanitize_line(name, 60)}: waits are accurate to {format_value(agreement.residual_ns)} per "
            "collective"
        )
        ends_text = (
            format_count(agreement.end_count, "matched end")
            if agreement.end_count
            else "matched ends of other windows or groups"
        )
        yield f"{accuracy_text}, by {ends_text} on {agreement.clock_count} clocks"
    disagreement_ns = align_clocks(window.group).disagreement_ns
    if disagreement_ns and waits.agreements:
        yield f"the starts of sessions would shift these clocks by up to {format_value(disagreement_ns)}"
    share_items = waits.shares.items()
    uncertain_ranks = group_by_key(
        ((group, kind), rank)
        for (rank, group, kind), wait_share in share_items
        if wait_share.drop_uncertain(wait_share.wait_ns) is None
    )
    for (group, kind), ranks in sorted(uncertain_ranks.items()):
        error_ns = max(waits.shares[rank, group, kind].error_ns for rank in ranks)
        yield (
            f"group {sanitize_line(group, 60)} {kind}: no wait of {format_ranks(ranks)}: it is below the "
            f"error of {format_value(error_ns)}"
        )
