"""Which queries do all formats answer alike, once they are in columns? Launches, ranges, idle spans, levels of
memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from pytest_nsys.core import columns
from pytest_nsys.core.columns import NO_END, Column
from pytest_nsys.core.conventions import COMMUNICATION_PREFIX
from pytest_nsys.core.model import NO_LAUNCH, Api, Interval, Lane
from pytest_nsys.core.tables import NO_LAUNCH_CALLS, LaunchCalls, Memory, Ranges, Series


class ApiCalls(NamedTuple):
    """Holds calls of the API in any order, as parallel columns."""

    start_ns: Column
    end_ns: Column
    thread: Column
    name: Column  # indices into names
    correlation: Column
    names: Sequence[str]

    def take(self, indices: Column) -> ApiCalls:
        """Return the calls at ``indices``, in that order."""
        start, end, thread, name, correlation = (columns.take(column, indices) for column in self[:5])
        return ApiCalls(start, end, thread, name, correlation, self.names)

    def iterate_calls(self) -> Iterator[Api]:
        """Yield each call as one object, in their order."""
        names = map(self.names.__getitem__, self.name)
        return map(Api, self.start_ns, names, self.end_ns, self.thread)


class CallTable(NamedTuple):
    """Holds the earliest call of each of some ascending correlations, of one process."""

    correlations: Column
    calls: LaunchCalls

    def find_calls(self, correlation: Column) -> LaunchCalls:
        """Return the call of each correlation; NO_LAUNCH if there is none."""
        values_and_defaults = zip(self.calls, (NO_LAUNCH, NO_LAUNCH, 0), strict=True)
        start, end, thread = (
            columns.look_up_keys(self.correlations, values, default, correlation)
            for values, default in values_and_defaults
        )
        return LaunchCalls(start, end, columns.narrow_column(thread))

    def find_starts(self, correlation: Column) -> Column:
        """Return the start of the call of each correlation in ns; NO_LAUNCH if there is none."""
        return columns.look_up_keys(self.correlations, self.calls.start_ns, NO_LAUNCH, correlation)

    def build_start_map(self) -> dict[int, int]:
        """Return the start of each call in ns, by correlation."""
        return dict(zip(self.correlations, self.calls.start_ns, strict=True))


EMPTY_CALL_TABLE = CallTable(array("q"), NO_LAUNCH_CALLS)


class EarliestCalls:
    """Collects the earliest call of each of some correlations while calls are read; NO_LAUNCH does not count as a
    correlation.
    """

    def __init__(self, correlation: Column) -> None:
        ids = columns.list_distinct(correlation)
        self.correlations = ids[1:] if ids and ids[0] == NO_LAUNCH else ids
        self._calls: list[Column] = []

    def add_calls(self, correlation: Column, *calls: Column) -> None:
        """Add calls, including those of other correlations: the start, end and thread of each, or in all calls of this
        method only the start.
        """
        self._calls = self._calls or [array("q", [NO_END]) * len(self.correlations) for _ in calls]
        columns.lower_to_minimum(self.correlations, self._calls, correlation, calls)

    def list_missing(self) -> Column:
        """Return the correlations of which no call was added."""
        return (
            columns.take(self.correlations, columns.find_nonzero(columns.mark_equal(self._calls[0], NO_END)))
            if self._calls
            else self.correlations
        )

    def build_table(self) -> CallTable:
        """Return the calls that were added; those added by their start alone have no end and no thread."""
        ids, calls = self.correlations, self._calls or [*NO_LAUNCH_CALLS]
        rows_with_call = columns.find_zeros(columns.mark_equal(calls[0], NO_END))
        if len(rows_with_call) < len(ids):
            ids, *calls = (columns.take(column, rows_with_call) for column in (ids, *calls))
        return CallTable(ids, LaunchCalls(*calls, *NO_LAUNCH_CALLS[len(calls) :]))


def find_earliest_calls(correlation: Column, calls: LaunchCalls) -> CallTable:
    """Return the earliest of some calls by correlation; those whose correlation is NO_LAUNCH have none."""
    earliest = EarliestCalls(correlation)
    earliest.add_calls(correlation, *calls)
    return earliest.build_table()


def is_not_nccl_range(name: str) -> bool:
    """Return whether a range is not one that NCCL itself writes."""
    return not name.startswith(COMMUNICATION_PREFIX)


def select_named_ranges(
    names_by_id: Mapping[int, str],
    start: Column,
    end: Column,
    thread: Column,
    name: Column,
    *,
    name_filter: Callable[[str], bool] = is_not_nccl_range,
) -> Ranges:
    """Return the ranges whose name is known and passes ``name_filter``, ordered by start, end and name."""
    numbers = columns.list_distinct(name)
    names = list(
        dict.fromkeys(
            names_by_id[number] for number in numbers if number in names_by_id and name_filter(names_by_id[number])
        )
    )
    index_by_name = {text: i for i, text in enumerate(names)}
    new_ids = array(
        "i", [index_by_name.get(names_by_id[number], -1) if number in names_by_id else -1 for number in numbers]
    )
    name = columns.look_up_keys(numbers, new_ids, -1, name)
    named_rows = columns.find_zeros(columns.mark_equal(name, -1))
    if len(named_rows) < len(name):
        start, end, thread, name = (columns.take(column, named_rows) for column in (start, end, thread, name))
    order = columns.sort_indices(start, end)
    _sort_ties_by_name(order, columns.take(start, order), columns.take(end, order), lambda i: names[name[i]])
    start, end, thread, name = (columns.take(column, order) for column in (start, end, thread, name))
    return Ranges(start, end, thread, name, names)


def _sort_ties_by_name(order: Column, start: Column, end: Column, get_name: Callable[[int], str]) -> None:
    """Put ranges of one span, which stand together in ``order``, in the order of their names."""
    high = 0
    for low in columns.find_zeros(columns.subtract(start[1:], start[:-1])):
        if low >= high:
            high = low + 1
            while high < len(order) and (start[high], end[high]) == (start[low], end[low]):
                high += 1
            order[low:high] = array("q", sorted(order[low:high], key=get_name))


# Number of lanes searched in the same rows: ranks mostly do the same at the same time.
LANES_AT_ONCE = 32

BusyLaneFinder = Callable[[Sequence[Lane], Interval], Collection[Lane]]
"""Returns the lanes, of some, on which a quick look finds a kernel in a span."""


def select_idle_spans(
    spans: Mapping[Lane, Sequence[Interval]],
    find_busy_lanes: BusyLaneFinder,
    read_kernel_times: Callable[[Mapping[Lane, Interval]], Mapping[Lane, Iterable[Interval]]],
) -> Mapping[Lane, Sequence[Interval]]:
    """Return the spans of each lane, by start, in which no kernel of the lane runs.

    ``read_kernel_times`` reads the times of all kernels that touch a span, for lanes that the quick look does not
    decide.
    """
    unresolved_spans: dict[Lane, list[Interval]] = {}
    for group in _group_overlapping_spans(spans):
        lanes, group_spans = zip(*group, strict=True)
        busy_lanes = find_busy_lanes(lanes, (max(low for low, _ in group_spans), min(high for _, high in group_spans)))
        # A kernel of one lane hides that another is idle for a part of it: each idle lane of a group is asked for once
        # more, alone.
        for lane, span in group:
            if lane not in busy_lanes and (len(lanes) == 1 or lane not in find_busy_lanes([lane], span)):
                unresolved_spans.setdefault(lane, []).append(span)
    kernel_times = (
        read_kernel_times(
            {lane: (lane_spans[0][0], lane_spans[-1][1]) for lane, lane_spans in unresolved_spans.items()}
        )
        if unresolved_spans
        else {}
    )
    idle_by_lane = {
        lane: select_idle_among(*_sort_into_columns(kernel_times.get(lane, ())), lane_spans)
        for lane, lane_spans in unresolved_spans.items()
    }
    return {lane: idle_spans for lane, idle_spans in idle_by_lane.items() if idle_spans}


def _sort_into_columns(kernels: Iterable[Interval]) -> tuple[Column, Column]:
    """Return the starts and the ends of kernels, ordered by start."""
    starts, ends = zip(*sorted(kernels), strict=True) if kernels else ((), ())
    return array("q", starts), array("q", ends)


def _group_overlapping_spans(spans: Mapping[Lane, Sequence[Interval]]) -> Iterator[list[tuple[Lane, Interval]]]:
    """Yield all spans in groups of several lanes whose spans have some time in common."""
    group: dict[Lane, Interval] = {}
    common_end = 0
    spans_with_lanes = [(span, lane) for lane, lane_spans in spans.items() for span in lane_spans]
    for span, lane in sorted(spans_with_lanes, key=itemgetter(0)):
        if group and (lane in group or span[0] >= common_end or len(group) == LANES_AT_ONCE):
            yield [*group.items()]
            group = {}
        common_end = min(common_end, span[1]) if group else span[1]
        group[lane] = span
    if group:
        yield [*group.items()]


def select_idle_among(starts: Column, ends: Column, spans: Sequence[Interval]) -> list[Interval]:
    """Return those of the spans in which none of the kernels runs; the kernels are ordered by start."""
    latest = array("q", accumulate(ends, max, initial=0))
    return [(low, high) for low, high in spans if not (n := bisect_left(starts, high)) or latest[n] <= low]


class Allocation(NamedTuple):
    """Describes one allocation of memory, or the free of one."""

    start_ns: int
    process_address: tuple[int, int]  # process and address
    lane: Lane | None  # None where it is on no device, or nothing says on which
    size_bytes: int
    is_free: bool


def measure_memory_levels(allocations: Iterable[Allocation]) -> dict[Lane, Memory]:
    """Return the bytes that each process had allocated on each device, after each change.

    An allocation is freed by its address. Memory allocated before the recording began is in no sum, so its free is
    ignored.
    """
    live_allocations: dict[tuple[int, int], tuple[Lane, int]] = {}
    level: defaultdict[Lane, int] = defaultdict(int)
    changes: defaultdict[Lane, list[tuple[int, int]]] = defaultdict(list)
    freed_earlier: defaultdict[Lane, int] = defaultdict(int)
    for start, process_address, lane, size_bytes, is_free in allocations:
        if process_address in live_allocations and (
            is_free or lane is not None
        ):  # the free of an earlier allocation may be lost
            freed_lane, freed_bytes = live_allocations.pop(process_address)
            level[freed_lane] -= freed_bytes
            changes[freed_lane].append((start, level[freed_lane]))
        elif is_free and lane is not None:
            freed_earlier[lane] += 1
        if not is_free and lane is not None:
            live_allocations[process_address] = (lane, size_bytes)
            level[lane] += size_bytes
            changes[lane].append((start, level[lane]))
    return {
        lane: Memory(Series.from_time_value_pairs(changes[lane]), freed_earlier[lane])
        for lane in {*changes, *freed_earlier}
    }
