"""How are the clocks of several files one, and how well?

Each file counts its times from the start of its own session. A collective ends at about the same moment on all of its
ranks, so the ends of matched collectives say how far two clocks are apart: by the exact median of their differences.
What they leave is how far the rebased ends of one collective still are from each other. The *residual* of a process
group is the 95th percentile of what is left of its collectives. A difference between two of its clocks is known to
within the residual, or to within what is left of that very collective where that is more: a clock that drifts, a rank
that is late to end and a collective that was matched wrongly all make the error larger.

What no ends can tell is a delay that one host has in each and every collective alike: it is taken for its clock's.

Where no ends are matched the starts of the sessions place a clock, to draw timelines. They are off by what hosts
disagree about the time, which nothing here can tell, so no wait stands on them. And they doubt a match: where by them
the n-th collective of one file is rather another one of the other file, and the ends fit that about as well, nobody
knows which it is.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from typing import NamedTuple

from pytest_nsys.analysis.metrics.collectives import MatchedGroup, matches, signature
from pytest_nsys.analysis.windows.run import Run, WindowGroup
from pytest_nsys.core.errors import NothingMeasured, NsysError
from pytest_nsys.core.exact import median, percentile
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.model import Clock, Rank
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.words import counted

END_TOGETHER = ("AllReduce", "AllGather", "ReduceScatter", "AllToAll", "Barrier")
"""Kinds that no rank can leave before all have given their part: of others the root may be gone long before."""

FEWEST = 5
"""Matched ends by which two clocks are held against each other: where chance says who ends first, all of so many are on
one side of the truth once in 16 times.
"""

HARDLY_WORSE = 2
"""How many times as far the ends of another match may be from each other, to fit about as well: lengths of steps differ
by much more than moments at which a collective ends.
"""

WITHIN = 95
"""Per cent of a group's collectives of which no more than the residual is left."""


class Ends(NamedTuple):
    """When collectives of one group that end together did so on each of its clocks: on the last of its ranks there.

    ``at`` are their places among all collectives of the group.
    """

    at: Sequence[int]
    by_clock: Mapping[Clock, Sequence[int]]


class Placed(NamedTuple):
    """How far a clock is ahead of the clock ``root``, and by how much that may be wrong."""

    root: Clock
    ahead_ns: int
    error_ns: int


class Agreement(NamedTuple):
    """How well the clocks of one group are one: its residual, and by how much a difference in each collective may be
    wrong. ``ends`` is how many of its own that stands on; 0 where the ends of other groups tie its clocks.
    """

    residual_ns: int
    errors_ns: Sequence[int]
    clocks: int = 1
    ends: int = 0


class ClockStanding(NamedTuple):
    """How a clock is drawn beside the first: ``ahead_ns`` is taken off its times, None where nothing says what. It may
    be wrong by ``error_ns``, None where it is unknown.
    """

    ahead_ns: int | None
    error_ns: int | None

    @property
    def words(self) -> str:
        """What a person should know of it: nothing of the first clock, and of one that is the same."""
        if self == ALONE:
            return ""
        if self.ahead_ns is None:
            return "clocks could not be aligned"
        if self.error_ns is None:
            return "clocks aligned by the start of the session alone: error unknown"
        return f"clocks aligned within {format_value(self.error_ns)} by the ends of matched collectives"


ALONE = ClockStanding(0, 0)
"""How the only clock stands, and the first of several."""


@dataclass(frozen=True)
class CommonClock:
    """The clocks of some windows as one. Clocks that matched ends tie to each other have one root.

    ``placed`` are all clocks, the first first. ``zeros_ns`` are the moments from which times count, in ns since 1970,
    where files say so. ``doubted`` says by group why its collectives may be matched wrongly; ``too_few``: some are
    matched, and too few to tie the clocks of their group.
    """

    placed: Mapping[Clock, Placed]
    zeros_ns: Mapping[Clock, int]
    doubted: Mapping[str, str]
    too_few: bool

    def standing(self, clock: Clock) -> ClockStanding:
        """How a clock is drawn beside the first."""
        first, placed = next(iter(self.placed)), self.placed[clock]
        if placed.root == first:
            return ClockStanding(placed.ahead_ns, placed.error_ns)
        moments = self._root_moments_ns
        known = first in moments and placed.root in moments
        return ClockStanding(moments[first][0] - moments[placed.root][0] + placed.ahead_ns if known else None, None)

    @cached_property
    def _root_moments_ns(self) -> Mapping[Clock, Sequence[int]]:
        """By root the moments from which its times count, in ns since 1970: one for each clock whose file says it."""
        clocks, zeros = self.placed.items(), self.zeros_ns
        return grouped((each.root, zeros[clock] + each.ahead_ns) for clock, each in clocks if clock in zeros)

    @property
    def apart_ns(self) -> int | None:
        """The most that ends and starts of sessions disagree; None where it is unknown."""
        several = (own for own in self._root_moments_ns.values() if len(own) > 1)
        return max((max(own) - min(own) for own in several), default=None)

    def rebased(self, rank: Rank, time_ns: int) -> int:
        """A time of a rank on the clock of its root: what is compared over the ranks of an agreement."""
        return time_ns - self.placed[rank.process.clock].ahead_ns

    def agreement(self, group: MatchedGroup, ranks: Mapping[int, Rank]) -> Agreement:
        """How well the clocks of a group are one. Raises ValueError where that is not known."""
        collectives = len(next(iter(group.ranks.values())))
        clocks = _clocks(group, ranks)
        if len(clocks) == 1:
            return Agreement(0, [0] * collectives)
        if group.members in self.doubted:
            raise ValueError(self.doubted[group.members])
        if len({self.placed[clock].root for clock in clocks}) > 1:
            raise ValueError(
                f"its ranks use {len(clocks)} clocks, and fewer than {FEWEST} matched ends align them: "
                "measure a window with more collectives"
            )
        ends = _ends(group, ranks)
        left = self._left(ends)
        own_ends = len(left) >= FEWEST
        if own_ends:
            residual, most = int(percentile(left, WITHIN)), max(left)
        else:
            residual = most = sum(sorted(self.placed[clock].error_ns for clock in clocks)[-2:])
        errors = [most] * collectives
        for place, own in zip(ends.at, left, strict=True):
            errors[place] = max(residual, own)
        return Agreement(residual, errors, len(clocks), len(left) if own_ends else 0)

    def _left(self, ends: Ends) -> list[int]:
        """How far the ends of each collective are from each other once they are rebased."""
        rebased = [[end - self.placed[clock].ahead_ns for end in own] for clock, own in ends.by_clock.items()]
        return [max(together) - min(together) for together in zip(*rebased, strict=True)]


@kept
def common_clock(group: WindowGroup) -> CommonClock:
    """The clocks of all ranks as one: by the collectives in the windows, where these are too few of the whole run."""
    own = by_collectives_of(group)
    if own.too_few and not group.spec.whole_run:
        if (placed := _placed_by_file(group.run, own)) is not None:
            return replace(own, placed=placed, too_few=False)
        with contextlib.suppress(NsysError):  # elsewhere the run may be damaged
            return common_clock(group.run.whole())
    return own


def _placed_by_file(run: Run, own: CommonClock) -> Mapping[Clock, Placed] | None:
    """The clocks as the only file of the run has them, a cut of several; None where it does not say."""
    ties = run.facts[0].ties
    if len(run.traces) > 1 or not {clock.machine for clock in own.placed} <= {*ties}:
        return None
    told = {clock: ties[clock.machine] for clock in own.placed}
    return {clock: Placed(Clock(0, tie.root), tie.ahead_ns, tie.error_ns) for clock, tie in told.items()}


def by_collectives_of(group: WindowGroup) -> CommonClock:
    """The clocks as the collectives in the windows alone tie them; of whole runs there is nothing else."""
    ranks = {window.rank.number: window.rank for window in group}
    order = list(dict.fromkeys(ranks[number].process.clock for number in sorted(ranks)))
    zeros = zeros_of(group.run)
    doubted: dict[str, str] = {}
    differences: dict[tuple[Clock, Clock], list[int]] = {}
    several = _matched(group, ranks) if len(order) > 1 else []
    for each in several:
        ends = _ends(each, ranks)
        hub, *others = sorted(ends.by_clock, key=order.index)
        for other in others:
            if (why := _doubt(each, ends, (hub, other), zeros)) is not None:
                doubted[each.members] = why
        for other in others if each.members not in doubted else ():
            apart = (b - a for a, b in zip(ends.by_clock[hub], ends.by_clock[other], strict=True))
            differences.setdefault((hub, other), []).extend(apart)
    placed = _placed(order, differences)
    too_few = any(len({placed[clock].root for clock in _clocks(each, ranks)}) > 1 for each in several)
    return CommonClock({clock: placed[clock] for clock in order}, zeros, doubted, too_few)


def _matched(group: WindowGroup, ranks: Mapping[int, Rank]) -> list[MatchedGroup]:
    """The groups of all windows whose ranks stand on several clocks."""
    try:
        together = group.together()
    except NothingMeasured:  # whoever asks for the windows is told
        return []
    found = (each for window in together for each in matches(window).groups)
    return [each for each in found if len(_clocks(each, ranks)) > 1]


def _clocks(group: MatchedGroup, ranks: Mapping[int, Rank]) -> set[Clock]:
    return {ranks[number].process.clock for number in group.ranks}


def _ends(group: MatchedGroup, ranks: Mapping[int, Rank]) -> Ends:
    first = next(iter(group.ranks.values()))
    at = [place for place, transfer in enumerate(first) if transfer.kind in END_TOGETHER]
    by_clock: dict[Clock, list[list[int]]] = {}
    for number, own in group.ranks.items():
        by_clock.setdefault(ranks[number].process.clock, []).append([own[place].end_ns for place in at])
    return Ends(at, {clock: [*map(max, zip(*some, strict=True))] for clock, some in by_clock.items()})


def zeros_of(run: Run) -> dict[Clock, int]:
    """The moment from which the times of each clock count, in ns since 1970, where its file says so."""
    clocks = {rank.process.clock for rank in run.ranks}
    machines = Counter(clock.trace for clock in clocks)
    found: dict[Clock, int] = {}
    for clock in clocks:
        known = run.facts[clock.trace].zeros_ns
        zero = known.get(clock.machine, known.get(None) if machines[clock.trace] == 1 else None)
        if zero is not None:
            found[clock] = zero
    return found


def _doubt(group: MatchedGroup, ends: Ends, clocks: tuple[Clock, Clock], zeros: Mapping[Clock, int]) -> str | None:
    """Why the n-th collective of one clock may be another one than the n-th of the other; None where it is the same."""
    (hub, other), n = clocks, len(ends.at)
    if hub not in zeros or other not in zeros or not n:
        return None
    here, there = (ends.by_clock[clock] for clock in clocks)
    middle = there[n // 2] + zeros[other] - zeros[hub]
    away = [abs(end - middle) for end in here]
    nearest = away.index(min(away))
    shift = nearest - n // 2
    both = range(max(0, -shift), min(n, n - shift))
    if 2 * away[nearest] > away[n // 2] or not shift or len(both) < max(FEWEST, n // 2):
        return None  # of starts that are far off no match is much nearer to the truth
    first = next(iter(group.ranks.values()))
    kinds = [signature(first[place]) for place in ends.at]
    if any(kinds[k] != kinds[k + shift] for k in both):
        return None
    matched, shifted = ([there[k] - here[k + by] for k in both] for by in (0, shift))
    if _spread(shifted) > HARDLY_WORSE * _spread(matched):
        return None
    return (
        f"by the starts of their sessions its files are {counted(abs(shift), 'collective')} apart, and the ends fit "
        "that about as well: profile the same steps on all ranks"
    )


def _spread(differences: Sequence[int]) -> int:
    middle = int(median(differences))
    return int(percentile([abs(each - middle) for each in differences], WITHIN))


def _placed(order: Sequence[Clock], differences: Mapping[tuple[Clock, Clock], Sequence[int]]) -> dict[Clock, Placed]:
    """Every clock, by the ties to its root by which it may be wrong least. The first of those tied is their root."""
    ties: dict[Clock, list[tuple[Clock, int, int]]] = {}
    for (hub, other), apart in differences.items():
        if len(apart) >= FEWEST:
            ahead = int(median(apart) // 1)
            error = max(abs(each - ahead) for each in apart)
            ties.setdefault(hub, []).append((other, ahead, error))
            ties.setdefault(other, []).append((hub, -ahead, error))
    rank = {clock: place for place, clock in enumerate(order)}
    found: dict[Clock, Placed] = {}
    for root in order:
        ahead_of = [(0, rank[root], 0)]
        while ahead_of:
            error, place, ahead = heappop(ahead_of)
            if (clock := order[place]) not in found:
                found[clock] = Placed(root, ahead, error)
                for other, more, own in ties.get(clock, ()):
                    heappush(ahead_of, (error + own, rank[other], ahead + more))
    return found
