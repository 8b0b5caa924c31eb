"""Which kernels of several ranks are one collective? The n-th of a process group is the n-th on each of its ranks.

Groups are told by their members (ranks, or the id of the communicator), so that this holds over files and hosts, too. A
group of which that cannot be said, because ranks are missing or have other collectives in their windows, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_nsys.analysis.collectives import Transfer, on_record
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import RunWindow
from pytest_nsys.core.kept import kept
from pytest_nsys.core.words import printable

SYMMETRIC = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")
"""Kinds in which every rank records the same size."""


@dataclass(frozen=True)
class MatchedGroup:
    """The collectives of one process group by rank, in the order in which they ran: as many on each, of equal kinds."""

    members: str
    ranks: Mapping[int, Sequence[Transfer]]

    @property
    def name(self) -> str:
        """What its first rank calls it: a communicator has a name in each process."""
        return next(iter(self.ranks.values()))[0].group

    @property
    def collectives(self) -> Iterator[tuple[Transfer, ...]]:
        """The kernels of each collective, in the order of ``ranks``."""
        return zip(*self.ranks.values(), strict=True)


class Matches(NamedTuple):
    """The groups that are matched. ``unmatched`` says of which others they are not, and why."""

    groups: Sequence[MatchedGroup]
    unmatched: Sequence[str]


@kept
def matches(window: RunWindow) -> Matches:
    """The collectives of all groups of a run, matched over their ranks."""
    return match(window.by_rank)


def match(by_rank: Mapping[int, RankWindow]) -> Matches:
    """The collectives of all groups of some ranks, matched over these."""
    found: list[MatchedGroup] = []
    unmatched: list[str] = []
    for members, ranks in _groups(by_rank).items():
        group = MatchedGroup(members, ranks)
        try:
            _check(ranks)
        except ValueError as why:
            unmatched.append(f"group {printable(group.name, 60)}: {why}")
        else:
            found.append(group)
    return Matches(found, unmatched)


def _groups(by_rank: Mapping[int, RankWindow]) -> dict[str, dict[int, list[Transfer]]]:
    """The collectives of each process group by rank, in the order in which they ran.

    Sends and receives of more than two ranks are between different pairs, and left out.
    """
    found: dict[str, dict[int, list[Transfer]]] = {}
    for number, own in sorted(by_rank.items()):
        for transfer in on_record(own):
            record = transfer.record
            if record.members is None or record.group is None:
                continue
            if transfer.kind == "SendRecv" and record.group_size != 2:
                continue
            found.setdefault(record.members, {}).setdefault(number, []).append(transfer)
    for ranks in found.values():
        for transfers in ranks.values():
            transfers.sort(key=lambda t: (t.start_ns, t.end_ns, t.kind))
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
    signatures = {tuple(map(signature, own)) for own in ranks.values()}
    if len(signatures) > 1:
        raise ValueError("its ranks have different collectives in their windows")


def signature(transfer: Transfer) -> tuple[str, int | None]:
    """What of a collective is the same on all of its ranks."""
    return transfer.kind, transfer.bytes if transfer.kind in SYMMETRIC else None
