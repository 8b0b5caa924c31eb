"""What is at the root of a change? What of a window ran longer by itself, more often, less often, later or elsewhere.

A kernel that only waited for another rank, moved, was blocked or hid less because of something else is none: of
communication counts what is left of its length without its waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import chain

from pytest_nsys.analysis.explained import Breakdown
from pytest_nsys.analysis.found_roots import Found
from pytest_nsys.analysis.host_roots import host_roots
from pytest_nsys.analysis.kernel_roots import kernel_roots
from pytest_nsys.analysis.root_facts import Root, RootChange
from pytest_nsys.core.kept import kept

Side = Callable[[int], Breakdown | None]
"""The window of a rank, None where there is none."""


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
        if both is None:
            return ()
        return tuple(sorted(chain(kernel_roots(rank, *both), host_roots(rank, *both)), key=_largest))

    @kept
    def alike(self, root: Root) -> tuple[RootChange, ...]:
        """A root on every rank where it changed by half as much as where it changed most, or more."""
        own = [each.change for rank in self._ranks for each in self.of(rank) if each.change.root == root]
        most = max((abs(change.change_ns) for change in own), default=0)
        return tuple(change for change in own if 2 * abs(change.change_ns) >= most)

    @kept
    def waits_for(self, rank: int, name: str, least_ns: int) -> int | None:
        """The rank for which the communication kernels of a name wait longer than before; None where that is by no
        more than ``least_ns``.
        """
        both = self.both(rank)
        if both is None:
            return None
        before, after = (side.waits(name) for side in both)
        longer = {last: ns - before[last] for last, ns in after.items() if last != rank}
        last = min(longer, key=lambda last: (-longer[last], last), default=rank)
        waits = after.total() - before.total()
        return last if last != rank and longer[last] > 0 and waits > least_ns else None


def _largest(each: Found) -> tuple[int, int, Root]:
    return largest_first(each.change)


def largest_first(change: RootChange) -> tuple[int, int, Root]:
    return -abs(change.change_ns), change.rank, change.root
