"""Which rows have the times of a part of the program, and why may there be none?

A part is named by a pattern: all scopes that it names are taken together, a kernel counts once. A part without a kernel
has no row, and the reason says what to type instead.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from pytest_nsys.analysis.scopes.scope_times import ScopeTimes, ScopeUsage, sum_scopes
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.numbers import format_percent
from pytest_nsys.core.scopes import (
    ROOT,
    Direction,
    ScopeKind,
    ScopeSelector,
    UnattributedReason,
    fold_numbers,
    make_scope_matcher,
    unify_separators,
)
from pytest_nsys.core.text_format import sanitize_line

_TO_SEE: Mapping[ScopeKind, str] = {
    ScopeKind.STAGE: "the convention names no stage, or no range states one",
    ScopeKind.MODULE: "profile with with_modules=True or with_stack=True, or mark modules with ranges named like "
    "layers.3.attn",
    ScopeKind.OP: "profile with ProfilerActivity.CPU, or under torch.autograd.profiler.emit_nvtx",
    ScopeKind.RANGE: "mark it with record_function, NVTX or ROCTx",
    ScopeKind.SOURCE: "profile with with_stack=True",
}
_MAX_NEAREST = 3


def scope_ns(window: RankWindow, scope: ScopeSelector | None = None) -> Mapping[tuple[Label, ...], Value]:
    """Σ length of the kernels that a part of the program launched, per (rank, kind, scope, direction); a scope has the
    time of those inside it, too.
    """
    if scope is not None:
        return _measure(window, scope, lambda usage: usage.time_ns)
    rows: dict[tuple[Label, ...], Value] = {}
    for kind in ScopeKind:
        times = sum_scopes(window, kind)
        for number, by_direction in sorted(times.inclusive.items()):
            for direction, usage in by_direction.items():
                key = (kind.value, times.tree.texts[number], direction.value)
                rows[key] = rows.get(key, 0) + usage.time_ns
    return rows


def compute_ns(window: RankWindow, scope: ScopeSelector) -> Mapping[tuple[Label, ...], Value]:
    """Σ length of the compute kernels that a part of the program launched, per rank."""
    return _measure(window, scope, lambda usage: usage.compute_ns if usage.compute_launches else None, "compute kernel")


def exposed_ns(window: RankWindow, scope: ScopeSelector) -> Mapping[tuple[Label, ...], Value]:
    """Time of the communication that a part of the program launched, on streams of its own, while no compute ran, per
    rank.
    """
    return _measure(
        window,
        scope,
        lambda usage: usage.exposed_ns if usage.communication_launches else None,
        "communication on a stream of its own",
    )


def _measure(
    window: RankWindow,
    scope: ScopeSelector,
    read_value: Callable[[ScopeUsage], int | None],
    needed: str = "kernel",
) -> Mapping[tuple[Label, ...], Value]:
    """Return the value of a part of the program, or of each scope that is one. Raises NoRows where it has no kernel
    that counts.
    """
    times, matches = sum_scopes(window, scope.kind), make_scope_matcher(scope.kind, scope.pattern)
    usages = times.sum_matching(matches, scope.direction)
    if not usages:
        raise NoRows(_explain_no_kernel(window, times, scope))
    if problem := _explain_partial_record(times, scope):
        raise NoRows(problem)
    values = {path: value for path, usage in usages.items() if (value := read_value(usage)) is not None}
    if not values:
        raise NoRows(f"{scope.kind} {_quote(scope.pattern)} launches no {needed} in the window")
    return {(path,): value for path, value in values.items()} if scope.is_each else {(): sum(values.values())}


_MOST_UNKNOWN_PERCENT = 1
"""How much of the time of all kernels may have no scope because nothing recorded it: any of it may be of the part."""

_MOST_HOMELESS_PERCENT = 10
"""How much of the compute of a backward pass may have no module because its forward was not recorded. What sums up
gradients has none by nature.
"""


def _explain_partial_record(times: ScopeTimes, scope: ScopeSelector) -> str:
    """Return why the time of a part of the program may be more than what is known of it; empty where it is all."""
    total_ns = sum(usage.time_ns for usage in times.exclusive.values())
    unknown = {
        reason: usage.time_ns
        for reason, usage in times.unattributed.items()
        if reason is not UnattributedReason.OUTSIDE and usage.time_ns
    }
    if 100 * sum(unknown.values()) > _MOST_UNKNOWN_PERCENT * total_ns:
        share = format_percent(Fraction(sum(unknown.values()), total_ns), 2)
        return (
            f"{share} of the kernels' time is of no known {scope.kind} ({', '.join(unknown)}): some may be of this one"
        )
    if scope.kind not in (ScopeKind.MODULE, ScopeKind.SOURCE) or scope.direction not in (None, Direction.BACKWARD):
        return ""
    backward = {
        code: usage.compute_ns for (code, passed), usage in times.exclusive.items() if passed is Direction.BACKWARD
    }
    homeless_ns, backward_ns = sum(ns for code, ns in backward.items() if code <= ROOT), sum(backward.values())
    if 100 * homeless_ns <= _MOST_HOMELESS_PERCENT * backward_ns:
        return ""
    share = format_percent(Fraction(homeless_ns, backward_ns), 2)
    return (
        f"{share} of the backward pass is of no known {scope.kind}: its forward was not recorded; profile whole steps"
    )


def _explain_no_kernel(window: RankWindow, times: ScopeTimes, scope: ScopeSelector) -> str:
    """Return why a part of the program has no kernel in the window, and the nearest names to type."""
    paths, matches = times.list_paths(), make_scope_matcher(scope.kind, scope.pattern)
    if not paths:
        reason = f"no kernel of the window has a {scope.kind}: {_TO_SEE[scope.kind]}"
        return reason + _suggest_other_kind(window, scope)
    if any(map(matches, paths)):
        others = [d.value for d in Direction if d is not scope.direction and times.sum_matching(matches, d)]
        part = f"{scope.kind} {_quote(scope.pattern)}"
        return f"{part} has no {scope.direction} kernel in the window, only {', '.join(others)}"
    problem = f"no kernel of the window is in {scope.kind} {_quote(scope.pattern)}"
    if other_kind := _suggest_other_kind(window, scope):
        return problem + other_kind
    return f"{problem}; the nearest: {', '.join(map(_quote, find_nearest_patterns(scope.kind, scope.pattern, paths)))}"


def _suggest_other_kind(window: RankWindow, scope: ScopeSelector) -> str:
    """Return which other kind has what the pattern names, as the end of a message; empty where none has."""
    for kind in ScopeKind:
        if kind is not scope.kind and sum_scopes(window, kind).sum_matching(make_scope_matcher(kind, scope.pattern)):
            return f"; there is a {kind} of that name: write 'of {kind} {_quote(scope.pattern)}'"
    return ""


_SEPARATORS = {ScopeKind.MODULE: re.compile(r"[./]")}
_SLASH = re.compile("/")


def find_nearest_patterns(kind: ScopeKind, pattern: str, paths: Iterable[str]) -> list[str]:
    """Return what to type instead of a pattern that names nothing: ends of paths, numbers replaced by ``*``."""
    separator = _SEPARATORS.get(kind, _SLASH)

    def count_elements(text: str) -> int:
        return 1 + len(separator.findall(unify_separators(kind, text)))

    candidates: dict[str, None] = {}
    for path in paths:
        # The shortest end of the path that has as many elements as the pattern.
        starts = [*(match.end() for match in reversed([*separator.finditer(path)])), 0]
        ends = (path[start:] for start in starts)
        end = next((end for end in ends if count_elements(end) >= count_elements(pattern)), path)
        # Without the number of a layer one pattern stands for all of them.
        candidates.setdefault(fold_numbers(kind, end))
    near = difflib.get_close_matches(pattern, candidates, n=_MAX_NEAREST, cutoff=0.5)
    return near or [*candidates][:_MAX_NEAREST]


def _quote(pattern: str) -> str:
    shown = sanitize_line(pattern, 80)
    return f'"{shown}"' if any(character in " <>=" for character in shown) else shown
