"""Which part of the program takes longer, or less long, than it did: as data, of two windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pytest_nsys.analysis.scopes.scope_times import NO_USAGE, ScopeTimes, ScopeUsage, sum_scopes
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.scopes import Direction, ScopeKind

TELLING_KINDS = (ScopeKind.MODULE, ScopeKind.STAGE, ScopeKind.RANGE, ScopeKind.OP)
"""Lists the kinds of scopes by how well they tell a person which part of the program is meant, the best first."""


class ScopeChange(NamedTuple):
    """Says how the exclusive time of a scope in one pass changed."""

    kind: ScopeKind
    path: str
    direction: Direction
    base: ScopeUsage
    head: ScopeUsage

    @property
    def change_ns(self) -> int:
        """How much longer its own kernels run than on the base, in ns; negative where they run less long."""
        return self.head.time_ns - self.base.time_ns


def _map_by_path(times: ScopeTimes) -> Mapping[tuple[str, Direction], ScopeUsage]:
    return {
        (times.tree.texts[code], direction): usage for (code, direction), usage in times.exclusive.items() if code > 0
    }


def list_scope_changes(base: RankWindow, head: RankWindow, kind: ScopeKind) -> list[ScopeChange]:
    """Return how the exclusive time of each scope of a kind changed from one window to another, the largest change
    first.
    """
    base_usage, head_usage = (_map_by_path(sum_scopes(window, kind)) for window in (base, head))
    changes = [
        ScopeChange(kind, *key, base_usage.get(key, NO_USAGE), head_usage.get(key, NO_USAGE))
        for key in sorted(base_usage.keys() | head_usage.keys())
    ]
    return sorted(changes, key=lambda change: -abs(change.change_ns))


def find_changed_scope(base: RankWindow, head: RankWindow) -> ScopeChange | None:
    """Return the scope whose own kernels changed most between two windows of a rank; None where none did.

    It is of the first of TELLING_KINDS that both windows have scopes of.
    """
    for kind in TELLING_KINDS:
        if all(sum_scopes(window, kind).inclusive for window in (base, head)):
            first = list_scope_changes(base, head, kind)[0]
            return first if first.change_ns else None
    return None
