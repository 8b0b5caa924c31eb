"""What is at the root of a change? What of a window ran longer by itself, more often, less often or was launched later.

A kernel that only waited for another rank, moved, was blocked or hid less because of something else is none: of
communication counts what is left of its length without its waits. Two windows of a rank have their roots; what is
behind a row is found among those of its rank, and of the ranks that it waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.explained import UNNAMED, Breakdown, Cause, CauseKind, Compute, RankWait, Wall
from pytest_nsys.analysis.root_facts import Root, RootChange, RootKind, RootOf
from pytest_nsys.core.kept import grouped, kept

ALIKE_LEAST = 50
"""All compute changed alike only if it did by more than one part of so many."""

FEWEST_ALIKE = 3
"""So many kernels are all compute, at least: of fewer each is named."""

MOST_BEHIND = 4, 5
"""The roots of a row account for so much of what its roots account for."""

LEAST_BEHIND = 20
"""And none of them for less than one part of so many."""


Side = Callable[[int], Breakdown | None]
"""The window of a rank, None where there is none."""


class Roots:
    """The roots of what changed between two sides of a window, by rank; of each rank they are found once."""

    def __init__(self, was: Side, now: Side) -> None:
        self._was, self._now = was, now

    @kept
    def of(self, rank: int) -> tuple[RootChange, ...]:
        """All that changed by itself on a rank, largest first; empty where one side does not know the rank."""
        was, now = self._was(rank), self._now(rank)
        found = () if was is None or now is None else _of_rank(rank, was, now)
        return tuple(sorted(found, key=_largest_first))

    def behind(self, rank: int, causes: Iterable[Cause], change_ns: int) -> tuple[RootChange, ...]:
        """What accounts for most of a row of a rank that changed for these causes, the largest first."""
        return _most(self._credited(rank, causes, change_ns))

    def _credited(self, rank: int, causes: Iterable[Cause], change_ns: int) -> Iterator[tuple[RootChange, int]]:
        own = grouped((name, each) for each in self.of(rank) for name in _names(each))
        for cause in causes:
            if cause.change_ns * change_ns <= 0:
                continue
            blamed = self._blamed(rank, cause, own)
            for each in blamed:
                yield each, min(abs(cause.change_ns), abs(each.change_ns))

    def _blamed(self, rank: int, cause: Cause, own: Mapping[str, Sequence[RootChange]]) -> Sequence[RootChange]:
        if cause.straggler is not None and cause.straggler != rank:
            return [each for each in self.of(cause.straggler) if each.change_ns * cause.change_ns > 0][:1]
        mine = own.get(cause.kernel, ())
        host = cause.kind in (CauseKind.LAUNCH_BOUND, CauseKind.STARVED, CauseKind.COVER_LATE)
        found = [each for each in mine if (each.root.of is RootOf.HOST) is host]
        sign = -1 if cause.kind in (CauseKind.COVER_SHRANK, CauseKind.COVER_VANISHED) else 1
        found = [each for each in found if sign * each.change_ns * cause.change_ns > 0]
        if found or sign < 0 or cause.kind not in _FOLLOWS:
            return found
        return [each for each in self.of(rank) if each.change_ns * cause.change_ns > 0][:1]


_FOLLOWS = (CauseKind.MOVED, CauseKind.COVER_MOVED, CauseKind.IDLE, CauseKind.BESIDE, CauseKind.STALLED)
"""What happens to a kernel because something else changed."""


def roots_of(was: Mapping[int, Breakdown], now: Mapping[int, Breakdown]) -> tuple[RootChange, ...]:
    """The roots of what changed on all ranks that both sides know, the largest first."""
    found = Roots(was.get, now.get)
    return tuple(sorted((each for rank in was for each in found.of(rank)), key=_largest_first))


def _largest_first(each: RootChange) -> tuple[int, int, Root]:
    return -abs(each.change_ns), each.rank, each.root


def _names(each: RootChange) -> Iterator[str]:
    """The kernels whose causes it is behind."""
    yield each.root.name
    if each.root.instead_of:
        yield each.root.instead_of


def _most(credited: Iterable[tuple[RootChange, int]]) -> tuple[RootChange, ...]:
    sums: Counter[RootChange] = Counter()
    for each, ns in credited:
        sums[each] += ns
    sums = Counter({each: min(ns, abs(each.change_ns)) for each, ns in sums.items()})
    part, of = MOST_BEHIND
    total, told, found = sums.total(), 0, []
    for each, ns in sorted(sums.items(), key=lambda item: (-item[1], _largest_first(item[0]))):
        if told * of >= part * total or ns * LEAST_BEHIND < total:
            break
        found.append(each)
        told += ns
    return tuple(found)


class _Length(NamedTuple):
    """How many kernels of a name and how long they are in all, by themselves."""

    kernels: int
    ns: int


def _of_rank(rank: int, was: Breakdown, now: Breakdown) -> Iterator[RootChange]:
    yield from _compute(rank, was.compute, now.compute)
    for stage in sorted({*was.communication, *now.communication}):
        yield from _collectives(rank, stage, _in_stage(was, now, stage))
    yield from _collectives(rank, "", _barriers(was, now))
    yield from _host(rank, was, now)


def _compute(rank: int, was: Mapping[str, Compute], now: Mapping[str, Compute]) -> Iterator[RootChange]:
    alike = _alike(was, now)
    if alike:
        before, after = (_sum(side[name] for name in alike) for side in (was, now))
        kind = RootKind.LONGER if after.ns > before.ns else RootKind.SHORTER
        yield RootChange(Root(kind, RootOf.ALL, ""), rank, before.ns, after.ns, before.kernels, after.kernels)
    for name in sorted({*was, *now} - alike):
        before, after = (_sum([side[name]] if name in side else []) for side in (was, now))
        yield from _change(rank, RootOf.KERNEL, name, "", before, after)


def _sum(kernels: Iterable[Compute]) -> _Length:
    own = [*kernels]
    return _Length(sum(each.kernels for each in own), sum(each.length_ns for each in own))


def _alike(was: Mapping[str, Compute], now: Mapping[str, Compute]) -> frozenset[str]:
    """The compute kernels that changed by about one share, where nearly all did: also of those beside the largest."""
    same = {name: own for name, own in was.items() if name in now and now[name].kernels == own.kernels}
    shares = {name: Fraction(now[name].length_ns, own.length_ns) for name, own in same.items() if own.length_ns}
    before = sum(own.length_ns for own in was.values())
    middle, passed = Fraction(1), 0
    for name in sorted(shares, key=lambda name: (shares[name], name)):
        passed += was[name].length_ns
        if 2 * passed >= before:
            middle = shares[name]
            break
    alike = {name for name, share in shares.items() if abs(share - middle) * 4 <= abs(middle - 1)}
    largest = max(was, key=lambda name: (was[name].length_ns, name), default="")
    rest = before - (was[largest].length_ns if was else 0)
    told = sum(was[name].length_ns for name in alike - {largest})
    some = len(alike) >= FEWEST_ALIKE and abs(middle - 1) * ALIKE_LEAST > 1
    return frozenset(alike if some and largest in alike and 10 * told >= 9 * rest and 10 * rest >= before else ())


def _in_stage(was: Breakdown, now: Breakdown, stage: str) -> Mapping[str, tuple[_Length, _Length]]:
    """The communication of a stage by name: without its waits, where both sides know those of every kernel."""
    sides = [grouped((kernel.name, kernel) for kernel in side.communication.get(stage, ())) for side in (was, now)]
    found = {}
    for name in {*sides[0], *sides[1]}:
        both = [side.get(name, []) for side in sides]
        known = all(kernel.wait for kernels in both for kernel in kernels)
        waits = [sum(_waited(kernel.wait) for kernel in kernels) if known else 0 for kernels in both]
        lengths = [
            _Length(len(kernels), sum(kernel.length_ns for kernel in kernels) - wait)
            for kernels, wait in zip(both, waits, strict=True)
        ]
        found[name] = lengths[0], lengths[1]
    return found


def _barriers(was: Breakdown, now: Breakdown) -> Mapping[str, tuple[_Length, _Length]]:
    found = {}
    for name in {*was.barriers, *now.barriers}:
        both = [side.barriers.get(name) for side in (was, now)]
        known = all(each is None or each.wait for each in both)
        lengths = [
            _Length(each.kernels, each.length_ns - (_waited(each.wait) if known else 0)) if each else _Length(0, 0)
            for each in both
        ]
        found[name] = lengths[0], lengths[1]
    return found


def _waited(wait: RankWait | None) -> int:
    return wait.wait_ns if wait else 0


def _collectives(rank: int, stage: str, lengths: Mapping[str, tuple[_Length, _Length]]) -> Iterator[RootChange]:
    for name in sorted(lengths):
        yield from _change(rank, RootOf.COLLECTIVE, name, stage, *lengths[name])


def _host(rank: int, was: Breakdown, now: Breakdown) -> Iterator[RootChange]:
    """How much longer the GPU waits until a kernel is launched, where that is launched later.

    Where the kernels before it are shorter, the GPU waits, too: for a launch that came when it always did.
    """
    before, after = was.walls[Wall.LAUNCH], now.walls[Wall.LAUNCH]
    for name in sorted(after) if UNNAMED not in before else ():
        old, new = was.compute.get(name), now.compute.get(name)
        if not old or not new or not old.launched or not new.launched:
            continue
        later = Fraction(new.launch_ns, new.launched) > Fraction(old.launch_ns, old.launched)
        if later and after[name] > before.get(name, 0):
            yield RootChange(Root(RootKind.LATER, RootOf.HOST, name), rank, before.get(name, 0), after[name])


def _change(rank: int, of: RootOf, name: str, stage: str, was: _Length, now: _Length) -> Iterator[RootChange]:
    if was.kernels != now.kernels:
        kind = RootKind.APPEARED if now.kernels > was.kernels else RootKind.VANISHED
    elif was.ns != now.ns:
        kind = RootKind.LONGER if now.ns > was.ns else RootKind.SHORTER
    else:
        return
    yield RootChange(Root(kind, of, name, stage), rank, was.ns, now.ns, was.kernels, now.kernels)
