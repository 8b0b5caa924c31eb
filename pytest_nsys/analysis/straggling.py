"""Who waits for whom in a collective, and how long does the transfer itself take?

The n-th collective of a process group is one and the same on all of its ranks. Where all ranks stand on one clock (of
one machine, in one file), a rank waits from its own start to the start of the last; the rest is transfer. Other clocks
are never compared: there the shortest kernel is taken for the transfer, and what another rank's takes longer for its
wait. The straggler is the rank that waits least.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_nsys.analysis.collectives import Labels, Transfer, on_record, transfers
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.ranks import clocks
from pytest_nsys.analysis.run import RunWindow
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.model import Row
from pytest_nsys.core.words import printable

SYMMETRIC = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")
"""Kinds in which every rank records the same size."""


class Wait(NamedTuple):
    """How long a rank was in a collective before the last one came, and which rank that was."""

    wait_ns: int
    last: int


class Share(NamedTuple):
    """How one rank spent its collectives of one group and kind."""

    wait_ns: int = 0
    transfer_ns: int = 0

    def and_(self, other: Share) -> Share:
        return Share(self.wait_ns + other.wait_ns, self.transfer_ns + other.transfer_ns)


class Matched(NamedTuple):
    """The waits of a run: by rank, group and kind. ``unmatched`` says of which groups there are none, and why."""

    shares: Mapping[tuple[int, str, str], Share]
    lags_ns: Mapping[tuple[int, str, str], int]
    unmatched: tuple[str, ...]


def matched(by_rank: Mapping[int, RankWindow]) -> Matched:
    """The collectives of all groups, matched over their ranks."""
    shares: dict[tuple[int, str, str], Share] = {}
    lags: dict[tuple[int, str, str], int] = {}
    unmatched: list[str] = []
    for ranks in _groups(by_rank).values():
        names = {number: own[0].group for number, own in ranks.items()}  # a communicator has one in each process
        try:
            _check(ranks)
        except ValueError as why:
            unmatched.append(f"group {printable(next(iter(names.values())), 60)}: {why}")
            continue
        own: dict[tuple[int, str], Share] = {}
        for collective in _collectives(by_rank, ranks):
            for number, (transfer, share) in collective.items():
                own[number, transfer.kind] = share.and_(own.get((number, transfer.kind), Share()))
        for (number, kind), share in own.items():
            key = (number, names[number], kind)
            longest = max(other.wait_ns for (_, k), other in own.items() if k == kind)
            shares[key] = share.and_(shares.get(key, Share()))  # of another group of the same name
            lags[key] = lags.get(key, 0) + longest - share.wait_ns
    return Matched(shares, lags, tuple(unmatched))


def waits_over_files(by_rank: Mapping[int, RankWindow]) -> Mapping[int, Mapping[int, Wait]]:
    """By rank and kernel of its window how long it waited, and for whom, of the groups that can be matched.

    Empty where all ranks stand on one clock: there the starts say it, and no record of a collective need be read.
    """
    found: dict[int, dict[int, Wait]] = {}
    if clocks([window.rank for window in by_rank.values()]) > 1:
        for ranks in _groups(by_rank).values():
            with contextlib.suppress(ValueError):  # `collectives` says why a group cannot be matched
                _check(ranks)
                for collective in _collectives(by_rank, ranks):
                    last = min(collective, key=lambda number: (collective[number][1].wait_ns, number))
                    for number, (transfer, share) in collective.items():
                        found.setdefault(number, {})[transfer.index] = Wait(share.wait_ns, last)
    return found


def _collectives(
    by_rank: Mapping[int, RankWindow], ranks: Mapping[int, Sequence[Transfer]]
) -> Iterator[dict[int, tuple[Transfer, Share]]]:
    """Each collective of a group: by rank its kernel, and how the rank spent it."""
    one_clock = clocks([by_rank[number].rank for number in ranks]) == 1
    for together in zip(*ranks.values(), strict=True):
        yield dict(zip(ranks, zip(together, _split(together, one_clock=one_clock), strict=True), strict=True))


def _groups(by_rank: Mapping[int, RankWindow]) -> dict[str, dict[int, list[Transfer]]]:
    """The collectives of each process group by rank, in the order in which they ran.

    Sends and receives of more than two ranks are between different pairs, and left out.
    """
    found: dict[str, dict[int, list[Transfer]]] = {}
    for number, window in sorted(by_rank.items()):
        for transfer in on_record(window):
            record = transfer.record
            if record.members is None or record.group is None:
                continue
            if transfer.kind == "SendRecv" and record.group_size != 2:
                continue
            found.setdefault(record.members, {}).setdefault(number, []).append(transfer)
    for ranks in found.values():
        for own in ranks.values():
            own.sort(key=lambda t: (t.start_ns, t.end_ns, t.kind))
    return dict(sorted(found.items()))


def _check(ranks: Mapping[int, Sequence[Transfer]]) -> None:
    """Raises ValueError where the collectives of a group cannot be told to be the same on all of its ranks."""
    sizes = {t.record.group_size for own in ranks.values() for t in own}
    if sizes == {None}:
        raise ValueError("its size is not recorded")
    if sizes != {len(ranks)}:
        wanted = ", ".join(str(size) for size in sorted(size for size in sizes if size is not None))
        raise ValueError(f"it has {wanted} ranks, of which {len(ranks)} are here")
    counts = sorted({len(own) for own in ranks.values()})
    if len(counts) > 1:
        raise ValueError(f"its ranks have from {counts[0]} to {counts[-1]} collectives in their windows")
    signatures = {tuple((t.kind, t.bytes if t.kind in SYMMETRIC else None) for t in own) for own in ranks.values()}
    if len(signatures) > 1:
        raise ValueError("its ranks have different collectives in their windows")


def _split(together: Sequence[Transfer], *, one_clock: bool) -> list[Share]:
    """Wait and transfer of each rank in one collective; no rank waits longer than its kernel runs."""
    if one_clock:
        last = max(t.start_ns for t in together)
        waits = [min(last - t.start_ns, t.length_ns) for t in together]
    else:
        shortest = min(t.length_ns for t in together)
        waits = [t.length_ns - shortest for t in together]
    return [Share(wait, t.length_ns - wait) for wait, t in zip(waits, together, strict=True)]


def _matched(window: RunWindow) -> Matched:
    """Raises NoRows where no group can be matched."""
    found = matched(window.by_rank)
    if found.shares:
        return found
    if found.unmatched:
        raise NoRows("; ".join(found.unmatched))
    blind = [w for w in window.by_rank.values() if transfers(w) and w.track.collectives is None]
    if blind:
        raise NoRows(f"the trace does not say who communicates with whom: {blind[0].track.around.facts.to_see_sizes}")
    raise NoRows("no collective of a process group runs in the windows")


def collective_wait_ns(window: RunWindow) -> Iterator[Row]:
    """Σ of how long the rank waited in its collectives for the last one of the group, per (rank, group, collective)."""
    for labels, share in sorted(_matched(window).shares.items()):
        yield Row(labels, share.wait_ns)


def collective_transfer_ns(window: RunWindow) -> Iterator[Row]:
    """Σ length of the rank's collectives after the last rank came, per (rank, group, collective)."""
    for labels, share in sorted(_matched(window).shares.items()):
        yield Row(labels, share.transfer_ns)


def straggler_lag_ns(window: RunWindow) -> Iterator[Row]:
    """How much less the rank waits than the one that waits longest, per (rank, group, collective).

    The straggler, for which the others wait, has the largest lag of its group.
    """
    for labels, lag in sorted(_matched(window).lags_ns.items()):
        yield Row(labels, lag)


def stragglers(found: Matched) -> Iterator[tuple[Labels, int, int]]:
    """Of each group and kind the rank with the largest lag, and the lag; none where all wait alike."""
    worst: dict[Labels, tuple[int, int]] = {}
    for (number, group, kind), lag in sorted(found.lags_ns.items()):
        if lag > worst.get((group, kind), (0, 0))[1]:
            worst[group, kind] = (number, lag)
    for labels, (number, lag) in sorted(worst.items()):
        yield labels, number, lag
