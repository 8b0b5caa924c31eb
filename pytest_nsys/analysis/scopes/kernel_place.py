"""Where in the program is a kernel launched, which forty layers may share? As data, for whoever names the kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from pytest_nsys.analysis.scopes.changed_scope import TELLING_KINDS
from pytest_nsys.analysis.scopes.scope_times import find_track_directions, find_track_scopes
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.columns import Column, find_distinct_rows, find_nonzero, sum_values_by, take
from pytest_nsys.core.scopes import DIRECTIONS, KernelPlace, ScopeKind, fold_numbers

_MOST_PERCENT = 90
"""What the scopes of one pattern must have of a kernel's time, or of its change, in percent: then it is called so."""


WantsKernel = Callable[[str, str], bool]
"""Says of a kernel's short name and its demangled one whether it is meant."""


def find_kernel_place(window: RankWindow, is_wanted: WantsKernel, base: RankWindow | None = None) -> KernelPlace | None:
    """Return where the kernels of some names are launched that take nearly all of their time; with ``base`` where
    nearly all of the change is.

    None where they are launched all over the program, or nothing says where.
    """
    for kind in TELLING_KINDS:
        times_by_place = _sum_by_place(window, is_wanted, kind)
        if base is not None:
            base_times = _sum_by_place(base, is_wanted, kind)
            times_by_place = {
                place: times_by_place.get(place, 0) - base_times.get(place, 0)
                for place in sorted(times_by_place.keys() | base_times.keys())
            }
        if any(path for path, _, _ in times_by_place):
            return _choose_place(kind, times_by_place)
    return None


def _sum_by_place(window: RankWindow, is_wanted: WantsKernel, kind: ScopeKind) -> Mapping[tuple[str, int, str], int]:
    """Return the time of the kernels by path (empty: none), number of the pass, and line of source (empty: none)."""
    kernels, names = window.kernels, window.kernels.names
    numbers, keys = find_distinct_rows(kernels.name, kernels.full_name)
    flags = bytearray(is_wanted(names[short], names.get(full, "")) for short, full in keys)
    rows = find_nonzero(take(flags, numbers))
    scopes, sources = (find_track_scopes(window.track, each) for each in (kind, ScopeKind.SOURCE))

    def select(column: Column) -> Column:
        return take(window.select_from_track(column), rows)

    sums = sum_values_by(
        lambda code, direction, line: (scopes.tree.texts[max(code, 0)], direction, sources.tree.texts[max(line, 0)]),
        take(window.durations_ns, rows),
        *map(select, (scopes.codes, find_track_directions(window.track), sources.codes)),
    )
    return {place: time_ns for place, (time_ns, _) in sums.items()}


def _choose_place(kind: ScopeKind, times_by_place: Mapping[tuple[str, int, str], int]) -> KernelPlace | None:
    """Return the place that has nearly all of the times, whether they grew or shrank: exactly, else without numbers,
    else the module around several, but not the whole model.
    """
    total_ns = sum(map(abs, times_by_place.values()))
    formats: list[Callable[[str], str]] = [str, partial(fold_numbers, kind)]
    if kind is ScopeKind.MODULE:
        deepest = max(len(_SEPARATOR.findall(path)) for path, _, _ in times_by_place)
        formats += [partial(_cut_path, kind, depth) for depth in range(deepest, 1, -1)]
    for format_path in formats:
        times: dict[str, int] = {}
        for (path, _, _), time_ns in times_by_place.items():
            times[format_path(path)] = times.get(format_path(path), 0) + abs(time_ns)
        pattern = max(times, key=lambda each: (times[each], each))
        if pattern and total_ns and 100 * times[pattern] >= _MOST_PERCENT * total_ns:
            parts = [place for place, t in times_by_place.items() if format_path(place[0]) == pattern and t]
            directions = {DIRECTIONS[direction] for _, direction, _ in parts}
            lines = {line for _, _, line in parts}
            return KernelPlace(
                kind,
                pattern,
                directions.pop() if len(directions) == 1 else None,
                (lines.pop() or None) if len(lines) == 1 else None,
            )
    return None


_SEPARATOR = re.compile(r"[./]")


def _cut_path(kind: ScopeKind, depth: int, path: str) -> str:
    """Return the first elements of a path, so many, without numbers."""
    ends = [match.start() for match in _SEPARATOR.finditer(path)]
    return fold_numbers(kind, path if len(ends) < depth else path[: ends[depth - 1]])
