"""What is at the root of a change? What of a window ran longer by itself, more often, less often, later or elsewhere.

A kernel that only waited for another rank, moved, was blocked or hid less because of something else is none: of
communication counts what is left of its length without its waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.explained import UNNAMED, Breakdown, Compute, RankWait, Wall
from pytest_nsys.analysis.root_facts import Root, RootChange, RootKind, RootOf
from pytest_nsys.core.kept import grouped, kept

ALIKE_LEAST = Fraction(1, 50)
"""All compute changed alike only if it did by more than this share."""

FEWEST_ALIKE = 3
"""So many kernels are all compute, at least: of fewer each is named."""

NEARLY_ALL = Fraction(9, 10)
"""Of the time of all compute, and of that beside the largest kernel."""

Side = Callable[[int], Breakdown | None]
"""The window of a rank, None where there is none."""


class Found(NamedTuple):
    """A root on one rank, and the kernels through which it acts: whose time it is, or before which the GPU waits."""

    change: RootChange
    through: frozenset[str]

    @property
    def of(self) -> RootOf:
        return self.change.root.of


class Roots:
    """The roots of what changed between two sides of a window, by rank; of each rank they are found once."""

    def __init__(self, was: Side, now: Side) -> None:
        self._was, self._now = was, now

    @kept
    def both(self, rank: int) -> tuple[Breakdown, Breakdown] | None:
        """The window of a rank before and now; None where one side does not know it."""
        was, now = self._was(rank), self._now(rank)
        return None if was is None or now is None else (was, now)

    @kept
    def of(self, rank: int) -> tuple[Found, ...]:
        """All that changed by itself on a rank, largest first."""
        both = self.both(rank)
        return () if both is None else tuple(sorted(_of_rank(rank, *both), key=lambda each: largest_first(each.change)))

    @kept
    def waits_for(self, rank: int, name: str) -> int | None:
        """The rank for which the communication kernels of a name wait longer than before; None where they do not."""
        both = self.both(rank)
        if both is None:
            return None
        before, after = (_waits(side, name) for side in both)
        longer = {last: ns - before[last] for last, ns in after.items() if last != rank}
        last = min(longer, key=lambda last: (-longer[last], last), default=rank)
        return last if last != rank and longer[last] > 0 and after.total() > before.total() else None


def _waits(side: Breakdown, name: str) -> Counter[int]:
    """How long the kernels of a name wait in all, by the rank that comes last."""
    every = (kernel.wait for own in side.communication.values() for kernel in own if kernel.name == name)
    found = Counter[int]()
    for wait in (*every, *(own.wait for barrier, own in side.barriers.items() if barrier == name)):
        if wait is not None:
            found[wait.last] += wait.wait_ns
    return found


def roots_of(was: Mapping[int, Breakdown], now: Mapping[int, Breakdown]) -> tuple[RootChange, ...]:
    """The roots of what changed on all ranks that both sides know, the largest first."""
    found = Roots(was.get, now.get)
    return tuple(sorted((each.change for rank in was for each in found.of(rank)), key=largest_first))


def largest_first(change: RootChange) -> tuple[int, int, Root]:
    return -abs(change.change_ns), change.rank, change.root


class _Length(NamedTuple):
    """How many kernels there are and how long they are in all, by themselves."""

    kernels: int = 0
    ns: int = 0


def _of_rank(rank: int, was: Breakdown, now: Breakdown) -> Iterator[Found]:
    yield from _compute(rank, was.compute, now.compute)
    turned = _turned(was, now)
    yield from _elsewhere(rank, was.compute, now.compute, turned)
    yield from _collectives(rank, "", *(_in_all(side, turned) for side in (was, now)))
    for stage in sorted({*was.communication, *now.communication}):
        yield from _collectives(rank, stage, *(_but(_in_stage(side, stage), turned) for side in (was, now)))
    yield from _collectives(rank, "", *(_but(_barriers(side), turned) for side in (was, now)))
    yield from _host(rank, was, now)


def _found(rank: int, root: Root, was: _Length, now: _Length, through: Iterable[str] = ()) -> Found:
    change = RootChange(root, rank, was.ns, now.ns, was.kernels, now.kernels)
    return Found(change, frozenset(through or [root.name]))


def _changed(rank: int, of: RootOf, name: str, stage: str, was: _Length, now: _Length) -> Iterator[Found]:
    """How a thing changed by itself: nothing where it did not."""
    if was.kernels != now.kernels:
        kind = RootKind.APPEARED if now.kernels > was.kernels else RootKind.VANISHED
    elif was.ns != now.ns:
        kind = RootKind.LONGER if now.ns > was.ns else RootKind.SHORTER
    else:
        return
    yield _found(rank, Root(kind, of, name, stage), was, now)


# Compute


def _compute(rank: int, was: Mapping[str, Compute], now: Mapping[str, Compute]) -> Iterator[Found]:
    alike = _alike(was, now)
    if alike:
        before, after = (_sum(side[name] for name in alike) for side in (was, now))
        kind = RootKind.LONGER if after.ns > before.ns else RootKind.SHORTER
        yield _found(rank, Root(kind, RootOf.ALL, ""), before, after, alike)
    pairs = _replaced(was, now)
    for old, new in pairs.items():
        root = Root(RootKind.REPLACED, RootOf.KERNEL, new, instead_of=old)
        yield _found(rank, root, _sum([was[old]]), _sum([now[new]]), [old, new])
    for name in sorted({*was, *now} - alike - pairs.keys() - {*pairs.values()}):
        before, after = (_sum([side[name]] if name in side else []) for side in (was, now))
        yield from _changed(rank, RootOf.KERNEL, name, "", before, after)


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
    alike = {name for name, share in shares.items() if 2 * abs(share - middle) <= abs(middle - 1)}
    largest = max(was, key=lambda name: (was[name].length_ns, name), default="")
    rest = before - (was[largest].length_ns if was else 0)
    told = sum(was[name].length_ns for name in alike - {largest})
    some = len(alike) >= FEWEST_ALIKE and abs(middle - 1) > ALIKE_LEAST and 10 * rest >= before
    return frozenset(alike if some and largest in alike and told >= NEARLY_ALL * rest else ())


def _replaced(was: Mapping[str, Compute], now: Mapping[str, Compute]) -> dict[str, str]:
    """By kernel that is gone the one that came as often, and runs in its place in the order."""
    gone = grouped((was[name].kernels, name) for name in sorted(was.keys() - now.keys()))
    came = grouped((now[name].kernels, name) for name in sorted(now.keys() - was.keys()))
    found: dict[str, str] = {}
    for count, names in gone.items():
        before = sorted(names, key=lambda name: (was[name].start_ns, name))
        after = sorted(came.get(count, ()), key=lambda name: (now[name].start_ns, name))
        if len(before) == len(after):
            found |= dict(zip(before, after, strict=True))
    return found


def _elsewhere(
    rank: int, was: Mapping[str, Compute], now: Mapping[str, Compute], turned: Collection[str]
) -> Iterator[Found]:
    """Compute most of which runs on another stream than before: ``turned`` communication is in its way there."""
    before = {name: {place.stream for place in own.places} for name, own in was.items()}
    same = _same_streams(was, now)
    for name in sorted(was.keys() & now.keys()):
        moved = [place for place in now[name].places if same.get(place.stream) not in before[name]]
        there = _Length(sum(place.kernels for place in moved), sum(place.length_ns for place in moved))
        if before[name] and was[name].kernels == now[name].kernels and 2 * there.kernels > now[name].kernels:
            root = Root(RootKind.ELSEWHERE, RootOf.KERNEL, name)
            yield _found(rank, root, _Length(), there, [name, *turned])


def _same_streams(was: Mapping[str, Compute], now: Mapping[str, Compute]) -> dict[int, int]:
    """By compute stream now the one before that did most of the same; of a new one nothing."""
    shared = Counter[tuple[int, int]]()
    for name in was.keys() & now.keys():
        for new in now[name].places:
            for old in was[name].places:
                shared[old.stream, new.stream] += min(old.length_ns, new.length_ns)
    found: dict[int, int] = {}
    for (old_stream, stream), _ in sorted(shared.items(), key=lambda item: (-item[1], item[0])):
        if stream not in found and old_stream not in found.values():
            found[stream] = old_stream
    return found


# Communication


def _turned(was: Breakdown, now: Breakdown) -> frozenset[str]:
    """What communicates on a stream of compute and did not before, or no longer does: as often as it did."""
    beside = [Counter(kernel.name for own in side.communication.values() for kernel in own) for side in (was, now)]
    within = [Counter({name: own.kernels for name, own in side.barriers.items()}) for side in (was, now)]
    came = {name: within[1][name] - within[0][name] for name in {*within[0], *within[1]}}
    return frozenset(name for name, by in came.items() if by and by == beside[0][name] - beside[1][name])


def _in_all(side: Breakdown, names: Set[str]) -> dict[str, _Length]:
    """The communication of these names, of all stages, and on streams of compute."""
    found = dict.fromkeys(names, _Length())
    for lengths in (*(_in_stage(side, stage) for stage in side.communication), _barriers(side)):
        for name in names & lengths.keys():
            found[name] = _Length(*(a + b for a, b in zip(found[name], lengths[name], strict=True)))
    return found


def _but(lengths: Mapping[str, _Length], names: Collection[str]) -> dict[str, _Length]:
    return {name: length for name, length in lengths.items() if name not in names}


def _in_stage(side: Breakdown, stage: str) -> dict[str, _Length]:
    """The communication of a stage by name: without its waits, where those of every kernel are known."""
    found = {}
    for name, kernels in grouped((kernel.name, kernel) for kernel in side.communication.get(stage, ())).items():
        waits = [kernel.wait for kernel in kernels]
        found[name] = _without(waits, _Length(len(kernels), sum(kernel.length_ns for kernel in kernels)))
    return found


def _barriers(side: Breakdown) -> dict[str, _Length]:
    return {name: _without([own.wait], _Length(own.kernels, own.length_ns)) for name, own in side.barriers.items()}


def _without(waits: Iterable[RankWait | None], length: _Length) -> _Length:
    known = [wait.wait_ns for wait in waits if wait is not None]
    return length._replace(ns=length.ns - sum(known))


def _collectives(rank: int, stage: str, was: Mapping[str, _Length], now: Mapping[str, _Length]) -> Iterator[Found]:
    for name in sorted({*was, *now}):
        yield from _changed(rank, RootOf.COLLECTIVE, name, stage, was.get(name, _Length()), now.get(name, _Length()))


# The host


def _host(rank: int, was: Breakdown, now: Breakdown) -> Iterator[Found]:
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
            root = Root(RootKind.LATER, RootOf.HOST, name)
            yield _found(rank, root, _Length(ns=before.get(name, 0)), _Length(ns=after[name]))
