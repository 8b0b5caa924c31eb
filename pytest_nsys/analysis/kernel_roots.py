"""Which kernels changed by themselves? Compute that takes longer, runs more often, gave way to another kernel or has
another stream; communication by what is left of it without its waits, or launched later among the compute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction

from pytest_nsys.analysis.explained import Breakdown, Communication, Compute, ComputePlace
from pytest_nsys.analysis.found_roots import Found, Length, Place, changed, found, paired, summed
from pytest_nsys.analysis.root_facts import Root, RootKind, RootOf
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.kept import grouped

ALIKE_LEAST = Fraction(1, 50)
"""All compute changed alike only if it did by more than this share."""

FEWEST_ALIKE = 3
"""So many kernels are all compute, at least: of fewer each is named."""

NEARLY_ALL = Fraction(9, 10)
"""Of the time of all compute, and of that beside the largest kernel; of a change, for it to be of one stage."""


def kernel_roots(rank: int, was: Breakdown, now: Breakdown) -> Iterator[Found]:
    """What of a rank's kernels changed by itself."""
    crossed = _crossed(was, now)
    moved = {each.change.root.name: each for each in _elsewhere(rank, was.compute, now.compute, crossed)}
    yield from moved.values()
    yield from _compute(rank, was, now)
    for name in sorted(crossed):
        before, after = (summed([_barrier(side, name), *_of_name(side, name)]) for side in (was, now))
        if moved:  # onto a stream that communicates: what runs there is what it was, though it is in the way of compute
            yield from changed(rank, (RootOf.COLLECTIVE, name, ""), before, after)
        else:
            yield found(rank, Root(RootKind.ELSEWHERE, RootOf.COLLECTIVE, name), before, after)
    launched = [sum(own.launched for own in side.compute.values()) for side in (was, now)]
    for stage in sorted({*was.communication, *now.communication}):
        sides = (_kernels(was, stage, crossed), _kernels(now, stage, crossed))
        yield from _communication(rank, "" if stage == NO_STAGE else stage, *sides, max(0, launched[1] - launched[0]))
    for name in sorted({*was.barriers, *now.barriers} - crossed):
        before, after = (_barrier(side, name) for side in (was, now))
        yield from changed(rank, (RootOf.COLLECTIVE, name, ""), before, after)


# Compute


def _compute(rank: int, was: Breakdown, now: Breakdown) -> Iterator[Found]:
    alike = _alike(was.compute, now.compute)
    if alike:
        before, after = (summed(_length(side.compute[name]) for name in alike) for side in (was, now))
        kind = RootKind.LONGER if after.ns > before.ns else RootKind.SHORTER
        all_of_it = found(rank, Root(kind, RootOf.ALL, ""), before, after, alike)
        if was.clock_mhz is not None is not now.clock_mhz and was.clock_mhz != now.clock_mhz:
            clocks = was.clock_mhz, now.clock_mhz
            all_of_it = all_of_it._replace(change=all_of_it.change._replace(clock_mhz=clocks))
        yield all_of_it
    changes = _Changes(was.compute, now.compute)
    yield from changes.replaced(rank)
    yield from changes.others(rank, {*was.compute, *now.compute} - alike)


def _length(own: Compute | ComputePlace) -> Length:
    return Length(own.kernels, own.length_ns)


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


def _stage(places: Sequence[ComputePlace]) -> str:
    """The stage of all these places; empty where there are several, or none."""
    stages = {place.stage for place in places}
    return stages.pop() if len(stages) == 1 and NO_STAGE not in stages else ""


def _elsewhere(
    rank: int, was: Mapping[str, Compute], now: Mapping[str, Compute], crossed: Collection[str]
) -> Iterator[Found]:
    """Compute most of which runs on another stream than before: ``crossed`` communication is in its way there."""
    before = {name: {place.stream for place in own.places} for name, own in was.items()}
    same = _same_streams(was, now)
    for name in sorted(was.keys() & now.keys()):
        moved = [place for place in now[name].places if same.get(place.stream) not in before[name]]
        there = summed(map(_length, moved))
        if before[name] and was[name].kernels == now[name].kernels and 2 * there.number > now[name].kernels:
            root = Root(RootKind.ELSEWHERE, RootOf.KERNEL, name, _stage(moved))
            yield found(rank, root, Length(), there, [name, *crossed])


def _same_streams(was: Mapping[str, Compute], now: Mapping[str, Compute]) -> dict[int, int]:
    """By compute stream now the one before that did most of the same; of a new one nothing."""
    shared = Counter[tuple[int, int]]()
    for name in was.keys() & now.keys():
        for new in now[name].places:
            for old in was[name].places:
                shared[old.stream, new.stream] += min(old.length_ns, new.length_ns)
    found: dict[int, int] = {}
    for (before, stream), _ in sorted(shared.items(), key=lambda item: (-item[1], item[0])):
        if stream not in found and before not in found.values():
            found[stream] = before
    return found


class _Changes:
    """How the compute kernels of each name changed, in each place: of a stage on a stream."""

    def __init__(self, was: Mapping[str, Compute], now: Mapping[str, Compute]) -> None:
        self._sides = was, now
        self._pairs = Counter[tuple[str, str]]()
        self._paired: dict[tuple[str, str], list[tuple[Length, Length]]] = {}
        places = sorted({_at(place) for side in (was, now) for own in side.values() for place in own.places})
        for at in places:
            self._pair(*({name: own for name, each in side.items() if (own := _here(each, at))} for side in (was, now)))

    def _pair(self, was: Mapping[str, ComputePlace], now: Mapping[str, ComputePlace]) -> None:
        """Pair what is gone from a place with what came there."""
        less, more = {}, {}
        for name in {*was, *now}:
            old, new = was.get(name), now.get(name)
            by, order = (_number(new) - _number(old), (new.order if new else 0) - (old.order if old else 0))
            if by < 0:
                less[name] = Place(name, -by, -order)
            elif by > 0:
                more[name] = Place(name, by, order)
        for gone, came in paired(less.values(), more.values()):
            lengths = (
                _difference(was.get(gone), now.get(gone)),
                _difference(now.get(came), was.get(came)),
            )
            self._paired.setdefault((gone, came), []).append(lengths)

    def replaced(self, rank: int) -> Iterator[Found]:
        """The kernels that gave way to others, by pair, with the time of both."""
        for (gone, came), lengths in sorted(self._paired.items()):
            before, after = (summed(side) for side in zip(*lengths, strict=True))
            root = Root(RootKind.REPLACED, RootOf.KERNEL, came, _stage(self._sides[1][came].places), gone)
            yield found(rank, root, before, after, [gone, came])

    def others(self, rank: int, names: Collection[str]) -> Iterator[Found]:
        """What else changed of each name: what was paired is left out."""
        for name in sorted(names):
            before, after = (_length(side[name]) if name in side else Length() for side in self._sides)
            for (gone, came), lengths in self._paired.items():
                if gone == name:
                    before = before.less(summed(old for old, _ in lengths))
                if came == name:
                    after = after.less(summed(new for _, new in lengths))
            yield from changed(rank, (RootOf.KERNEL, name, self._stage_of(name)), before, after)

    def _stage_of(self, name: str) -> str:
        """The stage in which nearly all of a kernel's change is; empty where there is none."""
        stages: Counter[str] = Counter()
        for sign, side in zip((-1, 1), self._sides, strict=True):
            for place in side[name].places if name in side else ():
                stages[place.stage] += sign * place.length_ns
        total = sum(map(abs, stages.values()))
        stage = max(sorted(stages), key=lambda stage: abs(stages[stage]), default=NO_STAGE)
        return stage if stage != NO_STAGE and abs(stages[stage]) >= NEARLY_ALL * total else ""


def _at(place: ComputePlace) -> tuple[str, int]:
    return place.stage, place.stream


def _here(own: Compute, at: tuple[str, int]) -> ComputePlace | None:
    return next((place for place in own.places if _at(place) == at), None)


def _number(place: ComputePlace | None) -> int:
    return place.kernels if place else 0


def _difference(more: ComputePlace | None, less: ComputePlace | None) -> Length:
    """How many kernels there are more, and how long those are: no longer than all, for the others may be longer now."""
    many, few = (_length(place) if place else Length() for place in (more, less))
    return Length(many.number - few.number, min(max(0, many.ns - few.ns), many.ns))


# Communication


def _crossed(was: Breakdown, now: Breakdown) -> frozenset[str]:
    """The communication that became barriers, or no longer is one: as many kernels as before, on other streams."""
    barriers = {*was.barriers, *now.barriers}
    counts = [Counter(kernel.name for own in side.communication.values() for kernel in own) for side in (was, now)]

    def moved(name: str) -> bool:
        old, new = (side.barriers[name].kernels if name in side.barriers else 0 for side in (was, now))
        return old != new and counts[0][name] + old == counts[1][name] + new

    return frozenset(filter(moved, barriers))


def _kernels(side: Breakdown, stage: str, without: Collection[str]) -> dict[str, list[Communication]]:
    own = side.communication.get(stage, ())
    return grouped((kernel.name, kernel) for kernel in own if kernel.name not in without)


def _of_name(side: Breakdown, name: str) -> Iterator[Length]:
    for kernels in side.communication.values():
        for kernel in kernels:
            if kernel.name == name:
                yield Length(1, kernel.length_ns - (kernel.wait.wait_ns if kernel.wait else 0))


def _barrier(side: Breakdown, name: str) -> Length:
    own = side.barriers.get(name)
    return Length() if own is None else Length(own.kernels, own.length_ns - (own.wait.wait_ns if own.wait else 0))


Kernels = Mapping[str, Sequence[Communication]]
"""The communication of one stage, by name."""


def _communication(rank: int, stage: str, was: Kernels, now: Kernels, more: int) -> Iterator[Found]:
    """Of one stage; ``more`` kernels of compute are launched than before."""
    pairs = dict(_renamed(was, now))
    for old, new in sorted(pairs.items()):
        root = Root(RootKind.REPLACED, RootOf.COLLECTIVE, new, stage, old)
        yield found(rank, root, *_own(was[old], now[new]), [old, new])
    for name in sorted({*was, *now} - pairs.keys() - {*pairs.values()}):
        before, after = was.get(name, ()), now.get(name, ())
        yield from changed(rank, (RootOf.COLLECTIVE, name, stage), *_own(before, after))
        yield from _launched_later(rank, stage, before, after, more)


def _renamed(was: Kernels, now: Kernels) -> Iterator[tuple[str, str]]:
    gone = (Place(name, len(was[name]), sum(_order(was, name))) for name in was.keys() - now.keys())
    came = (Place(name, len(now[name]), sum(_order(now, name))) for name in now.keys() - was.keys())
    return paired(gone, came)


def _order(kernels: Kernels, name: str) -> Iterator[int]:
    starts = sorted((kernel.start_ns, n) for n, own in sorted(kernels.items()) for kernel in own)
    return (place for place, (_, n) in enumerate(starts) if n == name)


def _own(was: Sequence[Communication], now: Sequence[Communication]) -> tuple[Length, Length]:
    """How many kernels and how long, without their waits where both sides know those of all."""
    known = all(kernel.wait for side in (was, now) for kernel in side)
    before, after = (
        Length(len(side), sum(k.length_ns - (k.wait.wait_ns if known and k.wait else 0) for k in side))
        for side in (was, now)
    )
    return before, after


def _launched_later(
    rank: int, stage: str, was: Sequence[Communication], now: Sequence[Communication], more: int
) -> Iterator[Found]:
    """Communication before which more compute is launched than there was, and than was added, so that more of it is
    exposed.
    """
    if len(was) != len(now) or any(kernel.after is None for kernel in (*was, *now)):
        return
    before, after = (sorted(side, key=lambda kernel: (kernel.after or 0, kernel.start_ns or 0)) for side in (was, now))
    both = zip(before, after, strict=True)
    later = [(old, new) for old, new in both if (new.after or 0) - (old.after or 0) > more]
    old_length, length = (Length(len(was), sum(pair[side].exposed_ns for pair in later)) for side in (0, 1))
    if length.ns > old_length.ns:
        yield found(rank, Root(RootKind.LATER, RootOf.COLLECTIVE, now[0].name, stage), old_length, length)
