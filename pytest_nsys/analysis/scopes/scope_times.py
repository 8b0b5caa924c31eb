"""How long did the kernels of each scope run, in which pass, and which kernels have none?

A kernel has one path of each kind. Its time is *exclusive* to the innermost scope of the path, *inclusive* in all of
them. What has no path is *unattributed*, by the reason. Exclusive and unattributed times sum to the time of all kernels
of the window, exactly.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.scopes.process_scopes import KernelLaunch, KernelScopes, ProcessScopes, mark_unattributed
from pytest_nsys.analysis.windows.rank_track import MAX_COLUMN_NS, RankTrack, TraceContext
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.core.columns import (
    Column,
    as_vector,
    clip,
    count_numbers,
    fill_column,
    find_distinct_rows,
    find_zeros,
    list_distinct,
    mark_equal,
    sum_by_number,
    take,
)
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.kernel_names import make_stable_name
from pytest_nsys.core.memoize import group_by_key, memoize_method
from pytest_nsys.core.model import Interval
from pytest_nsys.core.scopes import (
    DIRECTIONS,
    ROOT,
    UNATTRIBUTED_REASONS,
    Direction,
    ScopeKind,
    ScopeTree,
    UnattributedReason,
)
from pytest_nsys.core.tables import NO_RANGES, ProgramRecords


@memoize_method
def _load_processes(trace_context: TraceContext) -> Mapping[int, ProcessScopes]:
    """Read what the trace records of the program of each process that ran a kernel, on first use."""
    spans = trace_context.launch_spans
    records = trace_context.trace.program_records(spans)
    range_spans = {pid: span for pid, span in spans.items() if records.get(pid, ProgramRecords()).ranges is None}
    is_label = trace_context.convention.parse_setup
    processes = {pid: ProcessScopes(records[pid], NO_RANGES, is_label) for pid in spans if pid not in range_spans}
    processes |= _read_ranges(trace_context, range_spans, records)
    # The forward pass of what a window launches may lie before the window.
    longer_spans = {
        pid: (-MAX_COLUMN_NS, end_ns) for pid, (_, end_ns) in range_spans.items() if processes[pid].lacks_forward_ops
    }
    return processes | _read_ranges(trace_context, longer_spans, records)


def _read_ranges(
    trace_context: TraceContext, spans: Mapping[int, Interval], records: Mapping[int, ProgramRecords]
) -> dict[int, ProcessScopes]:
    """Read the ranges of processes whose ranges alone say what each is."""
    ranges = trace_context.trace.ranges_around(spans) if spans else {}
    is_label = trace_context.convention.parse_setup
    return {pid: ProcessScopes(records.get(pid), ranges.get(pid, NO_RANGES), is_label) for pid in spans}


def _get_launch(track: RankTrack) -> KernelLaunch:
    return KernelLaunch(track.kernels, track.issue_calls, track.launch_calls)


@memoize_method
def find_track_scopes(track: RankTrack, kind: ScopeKind) -> KernelScopes:
    """Return the scope of each kernel around the windows of a rank."""
    if kind is ScopeKind.STAGE:
        return _find_stages(track)
    if not len(track.kernels):
        return KernelScopes(track.kernels.start_ns, ScopeTree())
    return _load_processes(track.trace_context)[track.rank.process.global_pid].find_scopes(kind, _get_launch(track))


def _find_stages(track: RankTrack) -> KernelScopes:
    tree, (codes, contexts, _), launch = ScopeTree(), track.contexts, _get_launch(track)
    numbers = [ROOT if stage == NO_STAGE else tree.add(ROOT, stage) for stage, _ in contexts]
    stage_numbers = take(array("q", numbers), codes)
    return KernelScopes(mark_unattributed(stage_numbers, launch), tree)


@memoize_method
def find_track_directions(track: RankTrack) -> Column:
    """Return the number of the direction of each kernel around the windows of a rank."""
    if not len(track.kernels):
        return track.kernels.start_ns
    return _load_processes(track.trace_context)[track.rank.process.global_pid].find_directions(_get_launch(track))


class ScopeUsage(NamedTuple):
    """Holds what the kernels of a scope did."""

    time_ns: int = 0
    launches: int = 0
    compute_ns: int = 0  # of those that do not communicate
    exposed_ns: int = 0  # of communication on streams of its own, while no compute ran
    compute_launches: int = 0
    communication_launches: int = 0  # of those on streams of their own


NO_USAGE = ScopeUsage()


def sum_usages(usages: Iterable[ScopeUsage]) -> ScopeUsage:
    """Return the usage of all together."""
    return ScopeUsage(*map(sum, zip(*usages, strict=True)))


class ScopeTimes:
    """Sums what the kernels of a window did, by scope of one kind and direction."""

    def __init__(self, window: RankWindow, kind: ScopeKind) -> None:
        self.kind = kind
        scopes = find_track_scopes(window.track, kind)
        self.tree = scopes.tree
        self._codes = window.select_from_track(scopes.codes)
        self._window = window

    @cached_property
    def _directions(self) -> Column:
        return self._window.select_from_track(find_track_directions(self._window.track))

    def _sum_columns(self, numbers: Column, size: int) -> Iterator[ScopeUsage]:
        """Yield the usage of the kernels with each number below ``size``."""
        window, compute = self._window, self._window.compute
        compute_ns = fill_column(compute, take(window.durations_ns, compute), len(window), 0)
        times, computed, exposed = (
            sum_by_number(numbers, column, size) for column in (window.durations_ns, compute_ns, window.exposed_ns)
        )
        counts = (count_numbers(take(numbers, rows), size) for rows in (compute, window.communication))
        yield from map(ScopeUsage, times, count_numbers(numbers, size), computed, exposed, *counts)

    @cached_property
    def exclusive(self) -> Mapping[tuple[int, Direction], ScopeUsage]:
        """The usage of each innermost scope by direction; under a negative number that of kernels without one."""
        rows, keys = find_distinct_rows(self._codes, self._directions)
        usages = self._sum_columns(rows, len(keys))
        return {(code, DIRECTIONS[direction]): usage for (code, direction), usage in zip(keys, usages, strict=True)}

    @cached_property
    def unattributed(self) -> Mapping[UnattributedReason, ScopeUsage]:
        """The usage of the kernels without a scope of this kind, by the reason."""
        return {
            UNATTRIBUTED_REASONS[-1 - code]: sum_usages(usages)
            for code, usages in group_by_key(
                (code, usage) for (code, _), usage in self.exclusive.items() if code < ROOT
            ).items()
        }

    @cached_property
    def inclusive(self) -> Mapping[int, Mapping[Direction, ScopeUsage]]:
        """The usage of each scope and all inside it, by direction."""
        sums: dict[int, dict[Direction, ScopeUsage]] = {}
        for (code, direction), usage in self.exclusive.items():
            for number in self.tree.list_ancestors(max(code, ROOT)):
                by_direction = sums.setdefault(number, {})
                by_direction[direction] = sum_usages([by_direction.get(direction, NO_USAGE), usage])
        return sums

    def list_paths(self) -> list[str]:
        """Return the paths that have a kernel in the window, in the order of their first launches."""
        used = {number for code in list_distinct(self._codes) for number in self.tree.list_ancestors(max(code, ROOT))}
        return [self.tree.texts[number] for number in sorted(used)]

    def sum_matching(
        self, matches: Callable[[str], bool], direction: Direction | None = None
    ) -> Mapping[str, ScopeUsage]:
        """Return the usage of each outermost scope that matches, by its path; of one direction, or of all.

        A kernel counts once, however many of its scopes match.
        """
        rows, scopes = find_distinct_rows(self._number_matching(matches, direction))
        usages = self._sum_columns(rows, len(scopes))
        return {self.tree.texts[scope]: usage for (scope,), usage in zip(scopes, usages, strict=True) if scope != ROOT}

    def sum_kernels(
        self, matches: Callable[[str], bool], direction: Direction | None = None
    ) -> Mapping[str, ScopeUsage]:
        """Return the usage of each kernel, by its stable name, in the scopes that match; of one direction, or of
        all.
        """
        name_codes, names = self._window.encode_names(lambda short, full: make_stable_name(full or short))
        rows, keys = find_distinct_rows(self._number_matching(matches, direction), name_codes)
        usages = group_by_key(
            (names[name], usage)
            for (scope, name), usage in zip(keys, self._sum_columns(rows, len(keys)), strict=True)
            if scope != ROOT
        )
        return {name: sum_usages(usages[name]) for name in sorted(usages)}

    def _number_matching(self, matches: Callable[[str], bool], direction: Direction | None) -> Column:
        """Return for each kernel the number of its outermost scope that matches; ROOT without one, or in another
        direction.
        """
        outermost = array("q", self.tree.find_outermost(matches))
        numbers = take(outermost, clip(self._codes, ROOT, len(self.tree)))
        if direction is not None:
            others = find_zeros(mark_equal(self._directions, DIRECTIONS.index(direction)))
            as_vector(numbers)[as_vector(others)] = ROOT
        return numbers


@memoize_method
def sum_scopes(window: RankWindow, kind: ScopeKind) -> ScopeTimes:
    """Return the sums of a window for one kind of scopes, which metrics and views share."""
    return ScopeTimes(window, kind)
