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
    """How one rank spent its collectives of one group and kind, and by how much that may be wrong."""

    wait_ns: int = 0
    transfer_ns: int = 0
    error_ns: int = 0

    def and_(self, other: Share) -> Share:
        return Share(*map(sum, zip(self, other, strict=True)))

    def seen(self, value_ns: int) -> int | None:
        """A value of these collectives, None where it is less than it may be wrong by."""
        return value_ns if value_ns >= self.error_ns else None


Key = tuple[int, str, str]
"""(rank, group, kind)"""


@dataclass(frozen=True)
class Matched:
    """The waits of a window. ``unmatched`` says of which groups there are none, and why.

    ``agreements`` are of groups whose ranks stand on several clocks: of each name the worst.
    """

    shares: Mapping[Key, Share]
    lags_ns: Mapping[Key, int]
    unmatched: Sequence[str] = ()
    agreements: Mapping[str, Agreement] = field(default_factory=dict)


@kept
def matched(window: RunWindow) -> Matched:
    """The collectives of all groups, matched over their ranks."""
    shares: dict[Key, Share] = {}
    lags: dict[Key, int] = {}
    agreements: dict[str, Agreement] = {}
    unmatched = [*matches(window).unmatched]
    for group in matches(window).groups:
        try:
            agreement = common_clock(window.group).agreement(group, _ranks(window))
        except ValueError as why:
            unmatched.append(f"group {printable(group.name, 60)}: {why}")
            continue
        if agreement.clocks > 1:
            agreements[group.name] = max(agreement, agreements.get(group.name, agreement))
        own = _shares(window, group, agreement)
        for (number, kind), share in own.items():
            key = (number, group.ranks[number][0].group, kind)  # a communicator has a name in each process
            longest = max(other.wait_ns for (_, k), other in own.items() if k == kind)
            shares[key] = share.and_(shares.get(key, Share()))  # of another group of the same name
            lags[key] = lags.get(key, 0) + longest - share.wait_ns
    return Matched(shares, lags, unmatched, agreements)


def _shares(window: RunWindow, group: MatchedGroup, agreement: Agreement) -> dict[tuple[int, str], Share]:
    """By rank and kind how the ranks of a group spent its collectives; none waits longer than its kernel runs."""
    found: dict[tuple[int, str], Share] = {}
    for number, transfer, share, _ in _each(window, group, agreement):
        found[number, transfer.kind] = share.and_(found.get((number, transfer.kind), Share()))
    return found


def _each(
    window: RunWindow, group: MatchedGroup, agreement: Agreement
) -> Iterator[tuple[int, Transfer, Share, Sequence[int]]]:
    """Of each rank's kernel of each collective how it was spent, and which ranks came last."""
    clock, ranks = common_clock(window.group), _ranks(window)
    for together, error_ns in zip(group.collectives, agreement.errors_ns, strict=True):
        starts = [clock.rebased(ranks[number], t.start_ns) for number, t in zip(group.ranks, together, strict=True)]
        waits = _waits(starts, [t.length_ns for t in together])
        last = [number for number, start in zip(group.ranks, starts, strict=True) if start == max(starts)]
        for number, transfer, wait_ns in zip(group.ranks, together, waits, strict=True):
            yield number, transfer, Share(wait_ns, transfer.length_ns - wait_ns, error_ns), last


class Waited(NamedTuple):
    """From when until when the kernel of a collective waited for the rank that came last, ``for_rank``."""

    start_ns: int
    end_ns: int
    kind: str
    for_rank: int


@kept
def waited(window: RunWindow) -> Mapping[int, Sequence[Waited]]:
    """By rank the waits of its collectives, each on its own clock, that are longer than they may be wrong by."""
    found: dict[int, list[Waited]] = {}
    for group in matches(window).groups:
        with contextlib.suppress(ValueError):  # it is told of by who asks for the metric
            agreement = common_clock(window.group).agreement(group, _ranks(window))
            for number, transfer, share, (last, *_) in _each(window, group, agreement):
                if share.wait_ns and share.seen(share.wait_ns) is not None and number != last:
                    until = transfer.start_ns + share.wait_ns
                    found.setdefault(number, []).append(Waited(transfer.start_ns, until, transfer.kind, last))
    return found


def _waits(starts: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """How long each kernel of one collective runs before the last one starts."""
    last = max(starts)
    return [min(last - start, length) for start, length in zip(starts, lengths, strict=True)]


def _ranks(window: RunWindow) -> Mapping[int, Rank]:
    return {number: own.rank for number, own in window.by_rank.items()}


def waits_over_files(by_rank: Mapping[int, RankWindow]) -> Mapping[int, Mapping[int, RankWait]]:
    """By rank and kernel of its window how long it waited, and for whom, of the groups that can be matched.

    Empty where all ranks stand on one clock: there the starts say it, and no record of a collective need be read. This
    explains what changed within a rank, so it stands on lengths alone, whatever the clocks: on several of them the
    shortest kernel is taken for the transfer, and what another rank's takes longer for its wait.
    """
    found: dict[int, dict[int, RankWait]] = {}
    if clocks([window.rank for window in by_rank.values()]) > 1:
        for group in match(by_rank).groups:
            one_clock = clocks([by_rank[number].rank for number in group.ranks]) == 1
            for together in group.collectives:
                lengths = [t.length_ns for t in together]
                starts = [t.start_ns for t in together]
                waits = _waits(starts, lengths) if one_clock else [length - min(lengths) for length in lengths]
                _, last = min(zip(waits, group.ranks, strict=True))
                for number, transfer, wait_ns in zip(group.ranks, together, waits, strict=True):
                    found.setdefault(number, {})[transfer.index] = RankWait(wait_ns, last)
    return found


def _found(window: RunWindow) -> Matched:
    """Raises NoRows where no group can be matched."""
    found = matched(window)
    if found.shares:
        return found
    if found.unmatched:
        raise NoRows("; ".join(found.unmatched))
    blind = [w for w in window.by_rank.values() if transfers(w) and w.track.collectives is None]
    if blind:
        raise NoRows(f"the trace does not say who communicates with whom: {blind[0].track.around.facts.to_see_sizes}")
    raise NoRows("no collective of a process group runs in the windows")


def _rows(found: Matched, values: Mapping[Key, int]) -> Iterator[Row | Unseen]:
    for labels, value in sorted(values.items()):
        share = found.shares[labels]
        yield Unseen(labels, share.error_ns) if share.seen(value) is None else Row(labels, value)


def collective_wait_ns(window: RunWindow) -> Iterator[Row | Unseen]:
    """Σ time in collectives before the last rank came, per (rank, group, collective)."""
    found = _found(window)
    return _rows(found, {labels: share.wait_ns for labels, share in found.shares.items()})


def collective_transfer_ns(window: RunWindow) -> Iterator[Row | Unseen]:
    """Σ time in collectives after the last rank came, per (rank, group, collective)."""
    found = _found(window)
    return _rows(found, {labels: share.transfer_ns for labels, share in found.shares.items()})


def stragglers(found: Matched) -> Iterator[tuple[Labels, int, int]]:
    """Of each group and kind the rank with the largest lag, and the lag; none where all are known to wait alike, or not
    known to wait otherwise.
    """
    worst: dict[Labels, tuple[int, int]] = {}
    for (number, group, kind), lag in sorted(found.lags_ns.items()):
        if lag > worst.get((group, kind), (0, 0))[1] and found.shares[number, group, kind].seen(lag) is not None:
            worst[group, kind] = (number, lag)
    for labels, (number, lag) in sorted(worst.items()):
        yield labels, number, lag


def wait_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """How well the clocks are one on which the waits of collectives stand."""
    for run in captures:
        if clocks(run.ranks) > 1:
            try:
                together = run.measured(spec).together()
            except NothingMeasured:
                return
            yield from (Note(line) for line in dict.fromkeys(line for each in together for line in agreeing(each)))


def agreeing(window: RunWindow) -> Iterator[str]:
    """How well the clocks of a window's ranks are one, a line for each name of a group, and what that leaves unsaid."""
    found = matched(window)
    for name, own in sorted(found.agreements.items()):
        known = f"group {printable(name, 60)}: waits are accurate to {format_value(own.residual_ns)} per collective"
        ends = counted(own.ends, "matched end") if own.ends else "matched ends of other windows or groups"
        yield f"{known}, by {ends} on {own.clocks} clocks"
    apart = common_clock(window.group).apart_ns
    if apart and found.agreements:
        yield f"the starts of sessions would shift these clocks by up to {format_value(apart)}"
    waits = found.shares.items()
    unseen = grouped(((group, kind), n) for (n, group, kind), own in waits if own.seen(own.wait_ns) is None)
    for (group, kind), ranks in sorted(unseen.items()):
        error = max(found.shares[number, group, kind].error_ns for number in ranks)
        yield (
            f"group {printable(group, 60)} {kind}: no wait of {ranks_words(ranks)}: it is below the "
            f"error of {format_value(error)}"
        )
