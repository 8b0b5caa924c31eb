"""Who waits for whom in a collective, and how long does the transfer itself take?

The n-th collective of a process group is one and the same on all of its ranks. A rank waits from its own start to the
start of the last; the rest is transfer. Where the ranks use several clocks these are one by the ends of what is
matched (see :mod:`~pytest_nsys.analysis.metrics.common_clock`), and what is less than they may be apart is not known.
The straggler is the rank that waits least.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_nsys.analysis.explain.parts import RankWait
from pytest_nsys.analysis.metrics.collectives import (
    Labels,
    MatchedGroup,
    Transfer,
    match,
    matches,
    transfers,
)
from pytest_nsys.analysis.metrics.common_clock import Agreement, common_clock
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, RunWindow
from pytest_nsys.analysis.windows.spans import WindowSpec, clocks
from pytest_nsys.core.errors import NoRows, NothingMeasured
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.model import Note, Rank, Row, Unseen
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.words import counted, printable, ranks_words


class Share(NamedTuple):
    """Says how one rank spent its collectives of one group and kind, and by how much that may be wrong."""

    wait_ns: int = 0
    transfer_ns: int = 0
    error_ns: int = 0

    def and_(self, other: Share) -> Share:
        return Share(*map(sum, zip(self, other, strict=True)))

    def seen(self, value_ns: int) -> int | None:
        """Return a value of these collectives, in ns; None where it is less than it may be wrong by."""
        return value_ns if value_ns >= self.error_ns else None


Key = tuple[int, str, str]
"""Holds (rank, process group, kind of collective)."""


@dataclass(frozen=True)
class Matched:
    """Holds the waits of a window, and says of which groups there are none."""

    shares: Mapping[Key, Share]
    lags_ns: Mapping[Key, int]  # how much shorter each rank waits than the one that waits longest
    unmatched: Sequence[str] = ()  # of which groups there are no waits, and why
    agreements: Mapping[str, Agreement] = field(default_factory=dict)  # of groups on several clocks: by name the worst


@kept
def matched(window: RunWindow) -> Matched:
    """Match the collectives of all groups over their ranks, and measure how long each rank waited."""
    shares: dict[Key, Share] = {}
    lags_ns: dict[Key, int] = {}
    agreements: dict[str, Agreement] = {}
    unmatched_reasons = [*matches(window).unmatched]
    for group in matches(window).groups:
        try:
            agreement = common_clock(window.group).agreement(group, _ranks(window))
        except ValueError as error:
            unmatched_reasons.append(f"group {printable(group.name, 60)}: {error}")
            continue
        if agreement.clocks > 1:
            agreements[group.name] = max(agreement, agreements.get(group.name, agreement))
        group_shares = _shares(window, group, agreement)
        for (rank, kind), share in group_shares.items():
            key = (rank, group.ranks[rank][0].group, kind)  # a communicator has a name in each process
            longest_ns = max(other_share.wait_ns for (_, k), other_share in group_shares.items() if k == kind)
            shares[key] = share.and_(shares.get(key, Share()))  # of another group of the same name
            lags_ns[key] = lags_ns.get(key, 0) + longest_ns - share.wait_ns
    return Matched(shares, lags_ns, unmatched_reasons, agreements)


def _shares(window: RunWindow, group: MatchedGroup, agreement: Agreement) -> dict[tuple[int, str], Share]:
    """Return by rank and kind how the ranks of a group spent its collectives; none waits longer than its kernel
    runs.
    """
    wait_shares: dict[tuple[int, str], Share] = {}
    for rank, transfer, share, _ in _each(window, group, agreement):
        wait_shares[rank, transfer.kind] = share.and_(wait_shares.get((rank, transfer.kind), Share()))
    return wait_shares


def _each(
    window: RunWindow, group: MatchedGroup, agreement: Agreement
) -> Iterator[tuple[int, Transfer, Share, Sequence[int]]]:
    """Yield for each rank's kernel of each collective how it was spent, and which ranks came last."""
    clock, ranks = common_clock(window.group), _ranks(window)
    for same_collective, error_ns in zip(group.collectives, agreement.errors_ns, strict=True):
        starts = [clock.rebased(ranks[rank], t.start_ns) for rank, t in zip(group.ranks, same_collective, strict=True)]
        waits = _waits(starts, [t.length_ns for t in same_collective])
        last_ranks = [rank for rank, start in zip(group.ranks, starts, strict=True) if start == max(starts)]
        for rank, transfer, wait_ns in zip(group.ranks, same_collective, waits, strict=True):
            yield rank, transfer, Share(wait_ns, transfer.length_ns - wait_ns, error_ns), last_ranks


class Waited(NamedTuple):
    """Says from when until when the kernel of a collective waited, and for which rank."""

    start_ns: int
    end_ns: int
    kind: str
    for_rank: int  # the one that came last


@kept
def waited(window: RunWindow) -> Mapping[int, Sequence[Waited]]:
    """Return by rank the waits of its collectives, each on its own clock, that are longer than they may be wrong by."""
    intervals: dict[int, list[Waited]] = {}
    for group in matches(window).groups:
        with contextlib.suppress(ValueError):  # it is told of by who asks for the metric
            agreement = common_clock(window.group).agreement(group, _ranks(window))
            for rank, transfer, share, (last_rank, *_) in _each(window, group, agreement):
                if share.wait_ns and share.seen(share.wait_ns) is not None and rank != last_rank:
                    end_ns = transfer.start_ns + share.wait_ns
                    intervals.setdefault(rank, []).append(Waited(transfer.start_ns, end_ns, transfer.kind, last_rank))
    return intervals


def _waits(starts: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """Return how long each kernel of one collective runs before the last one starts, in ns."""
    last_start = max(starts)
    return [min(last_start - start, length) for start, length in zip(starts, lengths, strict=True)]


def _ranks(window: RunWindow) -> Mapping[int, Rank]:
    return {rank: rank_window.rank for rank, rank_window in window.by_rank.items()}


def waits_over_files(by_rank: Mapping[int, RankWindow]) -> Mapping[int, Mapping[int, RankWait]]:
    """Return by rank and kernel of its window how long it waited, and for whom, of the groups that can be matched.

    Empty where all ranks stand on one clock: there the starts say it, and no record of a collective need be read. This
    explains what changed within a rank, so it stands on lengths alone, whatever the clocks: on several of them the
    shortest kernel is taken for the transfer, and what another rank's takes longer for its wait.
    """
    waits_by_rank: dict[int, dict[int, RankWait]] = {}
    if clocks([window.rank for window in by_rank.values()]) > 1:
        for group in match(by_rank).groups:
            one_clock = clocks([by_rank[rank].rank for rank in group.ranks]) == 1
            for same_collective in group.collectives:
                lengths = [t.length_ns for t in same_collective]
                starts = [t.start_ns for t in same_collective]
                waits = _waits(starts, lengths) if one_clock else [length - min(lengths) for length in lengths]
                _, last_rank = min(zip(waits, group.ranks, strict=True))
                for rank, transfer, wait_ns in zip(group.ranks, same_collective, waits, strict=True):
                    waits_by_rank.setdefault(rank, {})[transfer.index] = RankWait(wait_ns, last_rank)
    return waits_by_rank


def _found(window: RunWindow) -> Matched:
    """Return the matched waits of a window. Raises NoRows where no group can be matched."""
    waits = matched(window)
    if waits.shares:
        return waits
    if waits.unmatched:
        raise NoRows("; ".join(waits.unmatched))
    blind_windows = [w for w in window.by_rank.values() if transfers(w) and w.track.collectives is None]
    if blind_windows:
        raise NoRows(
            f"the trace does not say who communicates with whom: {blind_windows[0].track.around.facts.to_see_sizes}"
        )
    raise NoRows("no collective of a process group runs in the windows")


def _rows(found: Matched, values: Mapping[Key, int]) -> Iterator[Row | Unseen]:
    for labels, value in sorted(values.items()):
        share = found.shares[labels]
        yield Unseen(labels, share.error_ns) if share.seen(value) is None else Row(labels, value)


def collective_wait_ns(window: RunWindow) -> Iterator[Row | Unseen]:
    """Σ time in collectives before the last rank came, per (rank, group, collective)."""
    waits = _found(window)
    return _rows(waits, {labels: share.wait_ns for labels, share in waits.shares.items()})


def collective_transfer_ns(window: RunWindow) -> Iterator[Row | Unseen]:
    """Σ time in collectives after the last rank came, per (rank, group, collective)."""
    waits = _found(window)
    return _rows(waits, {labels: share.transfer_ns for labels, share in waits.shares.items()})


def stragglers(found: Matched) -> Iterator[tuple[Labels, int, int]]:
    """Yield of each group and kind the rank with the largest lag, and the lag in ns.

    None where all are known to wait alike, or not known to wait otherwise.
    """
    worst: dict[Labels, tuple[int, int]] = {}
    for (rank, group, kind), lag_ns in sorted(found.lags_ns.items()):
        if lag_ns > worst.get((group, kind), (0, 0))[1] and found.shares[rank, group, kind].seen(lag_ns) is not None:
            worst[group, kind] = (rank, lag_ns)
    for labels, (rank, lag_ns) in sorted(worst.items()):
        yield labels, rank, lag_ns


def wait_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """Yield how well the clocks agree that the waits of collectives stand on."""
    for run in captures:
        if clocks(run.ranks) > 1:
            try:
                windows = run.measured(spec).together()
            except NothingMeasured:
                return
            yield from (Note(line) for line in dict.fromkeys(line for window in windows for line in agreeing(window)))


def agreeing(window: RunWindow) -> Iterator[str]:
    """Yield how well the clocks of a window's ranks agree, a line for each name of a group, and what that leaves
    unsaid.
    """
    waits = matched(window)
    for name, agreement in sorted(waits.agreements.items()):
        accuracy_text = (
            f"group {printable(name, 60)}: waits are accurate to {format_value(agreement.residual_ns)} per collective"
        )
        ends_text = (
            counted(agreement.ends, "matched end") if agreement.ends else "matched ends of other windows or groups"
        )
        yield f"{accuracy_text}, by {ends_text} on {agreement.clocks} clocks"
    disagreement_ns = common_clock(window.group).apart_ns
    if disagreement_ns and waits.agreements:
        yield f"the starts of sessions would shift these clocks by up to {format_value(disagreement_ns)}"
    share_items = waits.shares.items()
    uncertain_ranks = grouped(
        ((group, kind), rank)
        for (rank, group, kind), wait_share in share_items
        if wait_share.seen(wait_share.wait_ns) is None
    )
    for (group, kind), ranks in sorted(uncertain_ranks.items()):
        error_ns = max(waits.shares[rank, group, kind].error_ns for rank in ranks)
        yield (
            f"group {printable(group, 60)} {kind}: no wait of {ranks_words(ranks)}: it is below the "
            f"error of {format_value(error_ns)}"
        )
