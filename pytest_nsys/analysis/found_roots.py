"""What is a root while it is looked for? A change on one rank, and the kernels through which it acts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pytest_nsys.analysis.root_facts import Root, RootChange, RootKind, RootOf


class Found(NamedTuple):
    """A root on one rank, and the kernels through which it acts: whose time it is, or before which the GPU waits."""

    change: RootChange
    through: frozenset[str]

    @property
    def of(self) -> RootOf:
        return self.change.root.of

    @property
    def otherwise(self) -> bool:
        """Whether it is in the way without running longer: elsewhere, or, as what is communicated, in other pieces."""
        root, _, before, now, was, is_now, _ = self.change
        pieces = root.of is RootOf.COLLECTIVE and 0 < 3 * min(was, is_now) <= 2 * max(was, is_now)
        return root.kind is RootKind.ELSEWHERE or (pieces and 5 * abs(now - before) <= before)

    @property
    def most_ns(self) -> int:
        """How much it may account for, at most: of what runs otherwise all of its time."""
        return max(self.change.before_ns, self.change.now_ns) if self.otherwise else abs(self.change.change_ns)


class Length(NamedTuple):
    """How many kernels, copies or calls there are, and how long they are in all, by themselves."""

    number: int = 0
    ns: int = 0

    def less(self, other: Length) -> Length:
        return Length(self.number - other.number, self.ns - other.ns)


def summed(lengths: Iterable[Length]) -> Length:
    own = [*lengths]
    return Length(sum(each.number for each in own), sum(each.ns for each in own))


def found(rank: int, root: Root, was: Length, now: Length, through: Iterable[str] = ()) -> Found:
    change = RootChange(root, rank, was.ns, now.ns, was.number, now.number)
    return Found(change, frozenset(through or [root.name]))


def changed(
    rank: int, root: tuple[RootOf, str, str], was: Length, now: Length, through: Iterable[str] = ()
) -> Iterator[Found]:
    """How a thing changed by itself, what it is, its name and its stage being given: nothing where it did not."""
    if was.number != now.number:
        kind = RootKind.APPEARED if now.number > was.number else RootKind.VANISHED
    elif was.ns != now.ns:
        kind = RootKind.LONGER if now.ns > was.ns else RootKind.SHORTER
    else:
        return
    yield found(rank, Root(kind, *root), was, now, through)


class Place(NamedTuple):
    """How many kernels of a name there are fewer, or more, in one place, and the sum of their numbers in its order."""

    name: str
    number: int
    order: int


def paired(gone: Iterable[Place], came: Iterable[Place]) -> Iterator[tuple[str, str]]:
    """Of kernels that are gone from a place, and such as came there: those of one number that lie nearest in the order.

    Others that came or went may lie between, so many and no more.
    """
    went, new = sorted(gone), sorted(came)
    between = sum(each.number for each in (*went, *new))
    apart = sorted(
        (abs(a.order - b.order), a.name, b.name, a.number) for a in went for b in new if a.number == b.number
    )
    taken: set[str] = set()
    for distance, a, b, number in apart:
        if distance <= number * (between - 2 * number) and not taken & {a, b}:
            taken |= {a, b}
            yield a, b
