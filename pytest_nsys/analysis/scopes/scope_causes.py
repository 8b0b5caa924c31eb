"""Which kernels made a part of the program take longer, or less long? As the parts of an explanation."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_nsys.analysis.explain.breakdown_model import Change, ChangeKind, Explanation, RootCause, RowActivity
from pytest_nsys.analysis.scopes.scope_times import NO_USAGE, ScopeUsage, sum_scopes
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.scopes import ScopeSelector, make_scope_matcher

COMPUTE_TIME = "compute_ns"
EXPLAINED_METRICS = ("scope_ns", COMPUTE_TIME)
"""The times of a part of the program that are sums over its kernels."""


def explain_scope(scope: ScopeSelector, metric_name: str, base: RankWindow, head: RankWindow) -> Explanation:
    """Explain why a part of the program takes longer in one window of a rank than in another: by its kernels, largest
    change first, which add up to all of it.

    ``metric_name`` is one of EXPLAINED_METRICS.
    """
    usages_by_side = [_sum_kernels(window, scope, metric_name) for window in (base, head)]
    changes: list[Change] = []
    for name in sorted({*usages_by_side[0], *usages_by_side[1]}):
        before, now = (usages.get(name, NO_USAGE) for usages in usages_by_side)
        if before.time_ns != now.time_ns:
            activity = (
                RowActivity.KERNEL if (now if now.launches else before).compute_launches else RowActivity.COLLECTIVE
            )
            root = RootCause(_choose_kind(before, now), activity, name)
            counts = before.launches, now.launches
            changes.append(Change(root, head.rank.number, before.time_ns, now.time_ns, *counts))
    causes = tuple(sorted(changes, key=lambda change: change.sort_key))
    return Explanation(sum(cause.change_ns for cause in causes), causes, 0)


def _sum_kernels(window: RankWindow, scope: ScopeSelector, metric_name: str) -> Mapping[str, ScopeUsage]:
    """Return what the kernels of a part of the program did, by name; of compute alone where nothing else counts."""
    matches = make_scope_matcher(scope.kind, scope.pattern)
    usages = sum_scopes(window, scope.kind).sum_kernels(matches, scope.direction)
    if metric_name != COMPUTE_TIME:
        return usages
    return {name: usage for name, usage in usages.items() if usage.compute_launches}


def _choose_kind(before: ScopeUsage, now: ScopeUsage) -> ChangeKind:
    if not before.launches:
        return ChangeKind.NEW
    if not now.launches:
        return ChangeKind.GONE
    if before.launches != now.launches:
        return ChangeKind.OFTEN if now.launches > before.launches else ChangeKind.RARELY
    return ChangeKind.LONGER if now.time_ns > before.time_ns else ChangeKind.SHORTER
