"""What changed by itself between two windows of a rank? The rows of both that are longer, more or fewer, or elsewhere.

What only waited for another rank, moved, was blocked or hid less because of something else is no root: of communication
counts what is left of its length without its waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.explain.causes import classify_change
from pytest_nsys.analysis.explain.parts import (
    AT_END,
    NEXT_STEP,
    Breakdown,
    Change,
    ChangeKind,
    Part,
    Root,
    What,
)
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.kept import grouped, kept

ALIKE_LEAST = Fraction(1, 50)
"""All compute changed alike only if it did by more than this share."""

FEWEST_ALIKE = 3
"""So many kernels are all compute, at least: of fewer each is named."""

NEARLY_ALL = Fraction(9, 10)
"""Of the time of all compute, and of that beside the largest kernel; of a change, for it to be of one stage."""

FEWEST_LATE = 3
"""Of so many kernels that are launched later, none of them by most of it, all launches are later."""

PAGEABLE = "pageable"

_COPIES = (What.COPY, What.MEMSET)

Side = Callable[[int], Breakdown | None]
"""The window of a rank, None where there is none."""


class Found(NamedTuple):
    """A root on one rank, and the kernels through which it acts: whose time it is, or before which the GPU waits."""

    change: Change
    through: frozenset[str]

    @property
    def otherwise(self) -> bool:
        """Whether it is in the way without running longer: elsewhere, or, as what is communicated, in other pieces."""
        root, _, before, now, was, is_now, *_ = self.change
        pieces = root.of is What.COLLECTIVE and 0 < 3 * min(was, is_now) <= 2 * max(was, is_now)
        return root.kind is ChangeKind.ELSEWHERE or (pieces and 5 * abs(now - before) <= before)

    @property
    def most_ns(self) -> int:
        """How much it may account for, at most: of what runs otherwise all of its time."""
        return max(self.change.before_ns, self.change.now_ns) if self.otherwise else abs(self.change.change_ns)


class Roots:
    """The roots of what changed between two sides of a window, by rank; of each rank they are found once.

    ``ranks`` are all that both sides know.
    """

    def __init__(self, was: Side, now: Side, ranks: Collection[int] = ()) -> None:
        self._was, self._now, self._ranks = was, now, sorted(ranks)

    @kept
    def both(self, rank: int) -> tuple[Breakdown, Breakdown] | None:
        """The window of a rank before and now; None where one side does not know it."""
        was, now = self._was(rank), self._now(rank)
        return None if was is None or now is None else (was, now)

    @kept
    def of(self, rank: int) -> tuple[Found, ...]:
        """All that changed by itself on a rank, largest first."""
        both = self.both(rank)
        found = () if both is None else _RankDifference(rank, *both).find()
        return tuple(sorted(found, key=lambda each: each.change.largest_first))

    @kept
    def alike(self, root: Root) -> tuple[Change, ...]:
        """A root on every rank where it changed by half as much as where it changed most, or more."""
        own = [each.change for rank in self._ranks for each in self.of(rank) if each.change.root == root]
        most = max((abs(change.change_ns) for change in own), default=0)
        return tuple(change for change in own if 2 * abs(change.change_ns) >= most)


class _Length(NamedTuple):
    """How many kernels, copies or calls there are, and how long they are in all, by themselves."""

    number: int = 0
    ns: int = 0


def _add(lengths: Iterable[_Length], *, less: Iterable[_Length] = ()) -> _Length:
    own, other = [*lengths], [*less]
    return _Length(*(sum(each[n] for each in own) - sum(each[n] for each in other) for n in (0, 1)))


_Key = tuple[What, str, str]
"""What a root is of: its name, and of communication its stage."""


def _make_key(part: Part) -> _Key:
    return part.what, part.name, part.stage if part.what is What.COLLECTIVE and part.stage != NO_STAGE else ""


class _RankDifference:
    """How the rows of a rank differ."""

    def __init__(self, rank: int, was: Breakdown, now: Breakdown) -> None:
        self._rank, self._sides = rank, (was, now)
        known = {What.KERNEL, What.COLLECTIVE, *_COPIES, What.CALL} - {*was.unknown, *now.unknown}
        self._rows = [[part for part in side.parts if part.what in known] for side in self._sides]
        self._unmatched = {part.name for side in self._rows for part in side if part.waits_ns is None}
        self._by_key = [grouped((_make_key(part), part) for part in side) for side in self._rows]
        keys = sorted({*self._by_key[0], *self._by_key[1]})
        self._lengths = {key: [_add(map(self._measure, side.get(key, ()))) for side in self._by_key] for key in keys}
        self._late = self._find_late()

    def find(self) -> Iterator[Found]:
        """All that changed by itself."""
        moved, crossed = self._find_moved(What.KERNEL), self._find_moved(What.COLLECTIVE)
        for name in moved:
            yield self._describe_moved(What.KERNEL, name, [name, *crossed])
        if not moved:  # else what communicates is what it was, though it is in the way of compute
            yield from (self._describe_moved(What.COLLECTIVE, name, [name]) for name in crossed)
        alike = self._find_alike()
        if alike:
            yield self._describe_alike(alike)
        told = {(What.KERNEL, name) for name in alike} | {(What.COLLECTIVE, name) for name in crossed if not moved}
        changes = [*self._find_changed(told)]
        calls = [each for each in changes if each.change.root.of is What.CALL]
        held = [each for each in changes if PAGEABLE in each.change.root.name and each.change.change_ns > 0] or calls
        yield from (each for each in changes if each not in calls or held is calls)  # else the host stands in a copy
        yield from self._find_late_launches(sum(each.change.change_ns for each in held))
        yield from self._find_behind_compute()

    def _measure(self, part: Part | None) -> _Length:
        """Without waits where both sides know those of all."""
        if part is None:
            return _Length()
        waits_ns = 0 if part.name in self._unmatched else sum((part.waits_ns or {}).values())
        return _Length(part.number, part.length_ns - waits_ns)

    def _make_root(self, root: Root, lengths: Iterable[_Length], through: Iterable[str]) -> Found:
        was, now = lengths
        return Found(Change(root, self._rank, was.ns, now.ns, was.number, now.number), frozenset(through))

    # Elsewhere

    def _find_moved(self, what: What) -> list[str]:
        """What runs as often as before, and for the most part on other streams."""
        rows = [grouped((p.name, p) for p in side if p.what is what) for side in self._rows]
        same = self._match_streams(what)
        found = []
        for name in sorted(rows[0].keys() & rows[1].keys()):
            before, after = (side[name] for side in rows)
            count = sum(part.number for part in after)
            streams = {part.stream for part in before}
            there = sum(part.number for part in after if same.get(part.stream) not in streams)
            if sum(part.number for part in before) == count < 2 * there:
                found.append(name)
        return found

    def _match_streams(self, what: What) -> dict[int, int]:
        """By stream now the one before that did most of the same; of a new one nothing."""
        if what is What.COLLECTIVE:  # it is in the way of compute, on whichever stream, or is not
            return {part.stream: part.stream for side in self._rows for part in side}
        before = grouped((part.name, part) for part in self._rows[0] if part.what is what)
        shared = Counter[tuple[int, int]]()
        for new in self._rows[1]:
            for old in before.get(new.name, ()) if new.what is what else ():
                shared[old.stream, new.stream] += min(old.length_ns, new.length_ns)
        found: dict[int, int] = {}
        for (stream, own), _ in sorted(shared.items(), key=lambda item: (-item[1], item[0])):
            if own not in found and stream not in found.values():
                found[own] = stream
        return found

    def _describe_moved(self, what: What, name: str, through: Iterable[str]) -> Found:
        before, after = ([part for part in side if (part.what, part.name) == (what, name)] for side in self._rows)
        stages = {part.stage for part in after}
        stage = stages.pop() if len(stages) == 1 and NO_STAGE not in stages else ""
        lengths = [_add(map(self._measure, side)) for side in (before, after)]
        return self._make_root(Root(ChangeKind.ELSEWHERE, what, name, stage), lengths, through)

    # All compute alike

    def _find_alike(self) -> frozenset[str]:
        """The compute that changed by about one share, where nearly all did: also of what is beside the largest."""
        rows = {name: both for (what, name, _), both in self._lengths.items() if what is What.KERNEL}
        same = {name: (was.ns, now.ns) for name, (was, now) in rows.items() if was.number == now.number and was.ns}
        before = sum(was for was, _ in same.values())
        by = Fraction(sum(now for _, now in same.values()) - before, before or 1)
        alike = {name for name, (was, now) in same.items() if 2 * abs(Fraction(now - was, was) - by) <= abs(by)}
        largest = max(rows, key=lambda name: (rows[name][0].ns, name), default="")
        rest = sum(was.ns for name, (was, _) in rows.items() if name != largest)
        some = len(alike) >= FEWEST_ALIKE and abs(by) > ALIKE_LEAST and 10 * rest >= before
        told = sum(same[name][0] for name in alike - {largest})
        return frozenset(alike if some and largest in alike and told >= NEARLY_ALL * rest else ())

    def _describe_alike(self, alike: Collection[str]) -> Found:
        before, after = (_add(self._lengths[What.KERNEL, name, ""][n] for name in alike) for n in (0, 1))
        root = Root(classify_change((0, 0), after.ns - before.ns), What.ALL, "")
        found = self._make_root(root, (before, after), alike)
        was, now = (side.clock_mhz for side in self._sides)
        clocks = None if was is None or now is None or was == now else (was, now)
        return found._replace(change=found.change._replace(clock_mhz=clocks))

    # Replaced, longer or shorter, more or fewer

    def _find_changed(self, told: Collection[tuple[What, str]]) -> Iterator[Found]:
        """What gave way to another in its place, by pair; then what else changed of each name. Of what is ``told``
        nothing else is.
        """
        rows = {key: [*both] for key, both in self._lengths.items()}
        pairs = dict[tuple[_Key, _Key], tuple[_Length, _Length]]()
        for gone, came in self._pair_replaced():
            lost, won = self._subtract(*gone), self._subtract(*reversed(came))
            keys = next(_make_key(part) for part in gone if part), next(_make_key(part) for part in came if part)
            before, after = pairs.get(keys, (_Length(), _Length()))
            pairs[keys] = _add([before, lost]), _add([after, won])
            rows[keys[0]][0] = _add([rows[keys[0]][0]], less=[lost])
            rows[keys[1]][1] = _add([rows[keys[1]][1]], less=[won])
        for (old, new), lengths in sorted(pairs.items()):
            root = Root(ChangeKind.REPLACED, new[0], new[1], self._find_stage(new), old[1])
            yield self._make_root(root, lengths, self._list_acted_on(old) | self._list_acted_on(new))
        for key, (was, now) in rows.items():
            if key[:2] not in told and was != now:
                kind = classify_change((was.number, now.number), now.ns - was.ns)
                yield self._make_root(
                    Root(kind, key[0], key[1], self._find_stage(key)), (was, now), self._list_acted_on(key)
                )

    def _pair_replaced(self) -> Iterator[tuple[_Both, _Both]]:
        """What is gone from a place, and what came there."""
        sides = [
            {(part.what, part.stage, part.stream, part.name): part for part in side if part.what is not What.CALL}
            for side in self._rows
        ]
        places = grouped((at[:3], (sides[0].get(at), sides[1].get(at))) for at in sorted({*sides[0], *sides[1]}))
        for rows in places.values():
            named = {part.name: both for both in rows for part in both if part}
            moved = {n: (_measure_growth(both, "number"), _measure_growth(both, "order")) for n, both in named.items()}
            gone = [(name, -number, -order) for name, (number, order) in moved.items() if number < 0]
            came = [(name, number, order) for name, (number, order) in moved.items() if number > 0]
            yield from ((named[old], named[new]) for old, new in _match_in_place(gone, came))

    def _subtract(self, more: Part | None, less: Part | None) -> _Length:
        """How many kernels there are more, and how long those are, where the others are no longer than they were."""
        number, ns = _add([self._measure(more)], less=[self._measure(less)])
        return _Length(number, max(0, ns))

    def _find_stage(self, key: _Key) -> str:
        """Its own, or the one in which nearly all of a kernel's change is; empty where there is none."""
        stages = Counter[str]()
        for sign, side in zip((-1, 1), self._by_key, strict=True):
            for part in side.get(key, ()):
                stages[part.stage or NO_STAGE] += sign * part.length_ns
        total = sum(map(abs, stages.values()))
        stage = max(sorted(stages), key=lambda stage: abs(stages[stage]), default=NO_STAGE)
        return key[2] or (stage if stage != NO_STAGE and abs(stages[stage]) >= NEARLY_ALL * total else "")

    def _list_acted_on(self, key: _Key) -> set[str]:
        """The kernels through which a change acts: its own; of copies those that they block; of a call, and of a copy
        that the host stands in, those that are launched later.
        """
        what, name, _ = key
        found = {name}
        if what in _COPIES:
            found |= {str(what), *(n for side in self._by_key for part in side.get(key, ()) for n in part.beside_ns)}
        return found | {*(self._late if what is What.CALL or PAGEABLE in name else ())}

    # Launched later

    def _find_late(self) -> dict[str, tuple[int, int]]:
        """For how long the GPU waits, before and now, until each kernel is launched that is launched later, and until
        the window's end.

        Where the kernels before it are shorter, the GPU waits, too: for a launch that came when it always did.
        """
        was, now = self._sides
        by_name = [{key[1]: own for key, own in side.items() if key[0] is What.KERNEL} for side in self._by_key]
        means = [{name: _average_launch(own) for name, own in side.items()} for side in by_name]
        found = {
            name: (was.time_ns.get((What.HOST, name), 0), ns)
            for (what, name), ns in now.time_ns.items()
            if what is What.HOST and (means[1].get(name) or 0) > (means[0].get(name) or means[1].get(name) or 0)
        }
        longer = max(0, now.length_ns - was.length_ns)
        for end in ((What.IDLE, AT_END), (What.HOST, NEXT_STEP)):
            before, after = (side.time_ns.get(end, 0) for side in self._sides)
            found[end[1]] = before, min(after, before + longer)
        return {name: both for name, both in sorted(found.items()) if both[1] > both[0]}

    def _find_late_launches(self, told_ns: int) -> Iterator[Found]:
        """Kernels that are launched later, less what is known to be of calls and copies, the longest first; and less
        time between two steps, where the step is shorter.
        """
        late: dict[str, tuple[int, int]] = {}
        for name, (before, after) in sorted(self._late.items(), key=lambda item: (item[1][0] - item[1][1], item[0])):
            part = min(told_ns, after - before)
            told_ns -= part
            if 4 * part < 3 * (after - before):
                late[name] = before, after - part
        longer = [after - before for before, after in late.values()]
        if len(late) >= FEWEST_LATE and 2 * max(longer) < sum(longer):
            late = {"": (sum(before for before, _ in late.values()), sum(after for _, after in late.values()))}
        for name, both in sorted(late.items()):
            lengths = (_Length(ns=ns) for ns in both)
            yield self._make_root(Root(ChangeKind.LATER, What.HOST, name), lengths, [name] if name else self._late)
        before, after = (side.time_ns.get((What.HOST, NEXT_STEP), 0) for side in self._sides)
        if after < before and self._sides[1].length_ns < self._sides[0].length_ns:
            root = Root(ChangeKind.SHORTER, What.HOST, NEXT_STEP)
            yield self._make_root(root, (_Length(ns=before), _Length(ns=after)), [NEXT_STEP])

    def _find_behind_compute(self) -> Iterator[Found]:
        """Communication before which more compute is launched than there was, and than was added, so that more of it
        is exposed.
        """
        launched = [sum(part.launched for part in side if part.what is What.KERNEL) for side in self._rows]
        more = max(0, launched[1] - launched[0])
        for key in sorted(self._by_key[0].keys() & self._by_key[1].keys()):
            before, after = ([part for part in side[key] if part.is_hidden] for side in self._by_key)
            known = all(part.launched == part.number for part in (*before, *after))
            later = sum(part.after for part in after) - sum(part.after for part in before)
            old, new = (
                _Length(sum(part.number for part in side), sum(part.exposed_ns for part in side))
                for side in (before, after)
            )
            if known and old.number == new.number and later > more * new.number and new.ns > old.ns:
                yield self._make_root(Root(ChangeKind.LATER, *key), (old, new), [key[1]])


def _average_launch(parts: Sequence[Part]) -> Fraction | None:
    """When kernels are launched, from the window's start on; None where none has a launch."""
    launched = sum(part.launched for part in parts)
    return Fraction(sum(part.launch_ns for part in parts), launched) if launched else None


_Both = tuple[Part | None, Part | None]
"""A row before and now."""


def _measure_growth(both: _Both, field: str) -> int:
    """By how much a column of a row grew."""
    before, after = (getattr(part, field) if part else 0 for part in both)
    return int(after - before)


_Placed = tuple[str, int, int]
"""A name, how many kernels of it there are fewer, or more, in one place, and the sum of their numbers in its order."""


def _match_in_place(gone: Iterable[_Placed], came: Iterable[_Placed]) -> Iterator[tuple[str, str]]:
    """Of kernels that are gone from a place, and such as came there: those of one number that lie nearest in the order.

    Others that came or went may lie between, so many and no more.
    """
    went, new = sorted(gone), sorted(came)
    between = sum(number for _, number, _ in (*went, *new))
    pairs = sorted((abs(a[2] - b[2]), a[0], b[0], a[1]) for a in went for b in new if a[1] == b[1])
    taken: set[str] = set()
    for distance, a, b, number in pairs:
        if distance <= number * (between - 2 * number) and not taken & {a, b}:
            taken |= {a, b}
            yield a, b
