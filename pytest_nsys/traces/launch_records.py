"""How many of the calls that launched work have it on record? One answer for all formats, from columns.

A runtime call encloses a driver call, and the kernel has the id of the inner one: both are one launch. A call whose
work is missing is checked further: whether its thread was capturing a graph then, and whether the profiler had not yet
begun, or had stopped, to record kernels.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.core import columns
from pytest_nsys.core.columns import Column
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import NO_LAUNCH, Api, Interval, Lane, LaunchKind, LaunchRecord
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.other_profilers import LAUNCH_GLOBS
from pytest_nsys.traces.trace_queries import ApiCalls

_KERNEL_LAUNCH_GLOB, _GRAPH_LAUNCH_GLOB = LAUNCH_GLOBS
LAUNCH_KINDS_BY_GLOB: Mapping[str, LaunchKind] = {
    _GRAPH_LAUNCH_GLOB: LaunchKind.GRAPH,
    _KERNEL_LAUNCH_GLOB: LaunchKind.KERNEL,
    **dict.fromkeys(("cudaMemcpy*", "cuMemcpy*", "hipMemcpy*"), LaunchKind.COPY),
}

CAPTURE_BEGIN_GLOB, CAPTURE_END_GLOB = "*StreamBeginCapture*", "*StreamEndCapture*"
CAPTURE_GLOBS = (CAPTURE_BEGIN_GLOB, CAPTURE_END_GLOB)

# The maximum distance between the ids of a call and of a call that it makes.
LARGEST_ID_DISTANCE = 16

# A call begins so soon after the one that it is inside of: so much around a span is read with it.
NESTED_CALL_NS = 1_000_000


def _find_no_ids(_: Interval) -> Set[int]:
    """Return no id, for a format that has read all calls of a process."""
    return frozenset()


class RecordedWork(NamedTuple):
    """Holds what is on record of the work of one process; the functions read the rest where work is missing."""

    kernel_ids: Column  # correlations of the kernels that were read before, ascending
    other_ids: Column  # correlations of whatever else ran, ascending
    missing_shares: Mapping[int, Fraction]  # missing share of replays that ran less than another one of their graph
    iterate_more_kernel_ids: Callable[[], Iterable[Column]]  # correlations of more kernels, and in the end of all
    # From the first call that launched a recorded kernel to the last; None: there is none.
    find_kernel_call_span: Callable[[], Interval | None]
    list_capture_calls: Callable[[], Iterable[Api]]  # the calls that begin or end the capture of a graph
    find_empty_copies: Callable[[], Set[int]]  # correlations of copies of 0 bytes
    find_launching_ids: Callable[[Interval], Set[int]] = (
        _find_no_ids  # correlations between two that are of launching calls
    )


def find_launch_kind(name: str) -> LaunchKind | None:
    """Return what a call of that name launches; None for a call that launches nothing."""
    return next((kind for glob, kind in LAUNCH_KINDS_BY_GLOB.items() if fnmatchcase(name, glob)), None)


def is_capture_call(name: str) -> bool:
    """Return whether a call of that name begins the capture of a graph, or ends it."""
    return any(fnmatchcase(name, glob) for glob in CAPTURE_GLOBS)


def widen_span(span: Interval | None) -> Interval | None:
    """Return the time in which the calls of a span are, and those that they are inside of."""
    return None if span is None else (span[0] - NESTED_CALL_NS, span[1] + NESTED_CALL_NS)


def group_ids_by_process(kernels: Mapping[Lane, Kernels]) -> dict[int, Column]:
    """Return the correlations of kernels, ascending, by process."""
    correlations = group_by_key((lane.global_pid, lane_kernels.correlation) for lane, lane_kernels in kernels.items())
    return {pid: columns.list_distinct(columns.concatenate_columns(parts)) for pid, parts in correlations.items()}


def measure_missing_shares(graphs: Column, correlations: Column) -> dict[int, Fraction]:
    """Return the share that is missing of each replay that ran fewer nodes than another one of its graph, by
    correlation.

    Each node has the number of its graph and the correlation of its replay.
    """
    replay_numbers, keys = columns.find_distinct_rows(graphs, correlations) if len(graphs) else (array("q"), [])
    nodes_by_replay = dict(zip(keys, columns.count_numbers(replay_numbers, len(keys)), strict=True))
    most_nodes: Counter[int] = Counter()
    for (graph, _), count in nodes_by_replay.items():
        most_nodes[graph] = max(most_nodes[graph], count)
    nodes_run, nodes_expected = Counter[int](), Counter[int]()
    for (graph, correlation), count in nodes_by_replay.items():
        nodes_run[correlation] += count
        nodes_expected[correlation] += most_nodes[graph]
    return {
        correlation: Fraction(nodes_expected[correlation] - count, nodes_expected[correlation])
        for correlation, count in nodes_run.items()
        if count < nodes_expected[correlation]
    }


class _LostCall(NamedTuple):
    """Describes a call of which a ``share`` of the work is on no record."""

    call: Api
    kind: LaunchKind
    correlation: int
    share: Fraction


def build_launch_records(calls: ApiCalls, work: RecordedWork, span: Interval | None) -> tuple[LaunchRecord, ...]:
    """Return how much work is on record of the calls that start in the span, one record per kind of launch."""
    kinds = [find_launch_kind(name) for name in calls.names]
    calls = _select_launching(calls, bytearray(kind is not None for kind in kinds))
    # A call of the runtime and the one of the driver inside it are one launch.
    outermost = columns.mark_outermost(calls.thread, calls.start_ns, calls.end_ns)
    launches, launch_of = columns.find_nonzero(outermost), columns.find_latest_flags(outermost)
    starts = columns.take(calls.start_ns, launches)
    launches_in_span = (
        columns.find_touching_spans(starts, starts, *span) if span is not None else array("q", range(len(launches)))
    )

    def find_workless(kernels: Column) -> Column:
        recorded_counts = array(
            "q", columns.sum_by_number(launch_of, _mark_recorded(calls, kernels, work), len(launches))
        )
        return columns.take(launches_in_span, columns.find_zeros(columns.take(recorded_counts, launches_in_span)))

    workless_launches = find_workless(work.kernel_ids)
    for kernels in work.iterate_more_kernel_ids() if workless_launches else ():
        if not (workless_launches := find_workless(kernels)):
            break
    shares = {n: Fraction(1) for n in workless_launches} | {
        launch_of[i]: work.missing_shares[calls.correlation[i]]
        for i in _find_members(calls.correlation, work.missing_shares)
    }
    name_counts = columns.count_numbers(columns.take(calls.name, columns.take(launches, launches_in_span)), len(kinds))
    counts = {
        kind: sum(n for n, name_kind in zip(name_counts, kinds, strict=True) if name_kind is kind)
        for kind in LaunchKind
    }
    lost_calls = []
    for n in sorted(shares.keys() & {*launches_in_span}) if shares else ():
        (call,) = calls.take(launches[n : n + 1]).iterate_calls()
        if (kind := find_launch_kind(call.name)) is not None:
            lost_calls.append(_LostCall(call, kind, calls.correlation[launches[n]], shares[n]))
    return _build_records(counts, lost_calls, work)


def _select_launching(calls: ApiCalls, is_launch_name: bytearray) -> ApiCalls:
    """Return the calls that launch work, each correlation once, by thread, by start, the longest first."""
    rows = columns.find_nonzero(columns.take(is_launch_name, calls.name))
    rows_with_id = columns.find_zeros(columns.mark_equal(columns.take(calls.correlation, rows), NO_LAUNCH))
    calls = calls.take(columns.take(rows, rows_with_id))
    zeros = array("q", bytes(8 * len(rows_with_id)))
    if len(columns.list_distinct(calls.correlation)) < len(rows_with_id):  # old profilers wrote rows twice
        calls = calls.take(columns.sort_indices(calls.correlation, calls.start_ns))
        calls = calls.take(columns.find_nonzero(columns.mark_records(calls.correlation, zeros)))
        zeros = zeros[: len(calls.correlation)]
    return calls.take(columns.sort_indices(calls.thread, calls.start_ns, columns.subtract(zeros, calls.end_ns)))


def _find_members(column: Column, values: Collection[int]) -> Column:
    """Return the indices at which the column has one of the values."""
    ids = array("q", sorted(values))
    return columns.find_nonzero(columns.look_up_keys(ids, _make_ones(ids), 0, column))


def _make_ones(column: Column) -> Column:
    return array("q", [1]) * len(column)


def _mark_recorded(calls: ApiCalls, kernels: Column, work: RecordedWork) -> Column:
    """Return 1 for each call that has work among these kernels, or whatever else ran, else 0."""
    other_ids = work.other_ids
    marks = columns.look_up_keys(kernels, _make_ones(kernels), 0, calls.correlation)
    marks = columns.take_maximum(marks, columns.look_up_keys(other_ids, _make_ones(other_ids), 0, calls.correlation))
    for i in _find_calls_by_following_kernel_id(calls, marks, kernels, work.find_launching_ids):
        marks[i] = 1
    return marks


def _find_calls_by_following_kernel_id(
    calls: ApiCalls, marks: Column, kernels: Column, find_launching_ids: Callable[[Interval], Set[int]]
) -> Iterator[int]:
    """Yield the calls without work for which a kernel has one of the next ids, before any other launch of the thread.

    If driver calls are not traced, a kernel has the id of a driver call that the runtime call made.
    """
    unmarked_calls = columns.find_zeros(marks)
    if not unmarked_calls:
        return
    call_ids = columns.list_distinct(calls.correlation)
    unclaimed_ids = columns.take(
        kernels, columns.find_zeros(columns.look_up_keys(call_ids, _make_ones(call_ids), 0, kernels))
    )
    next_ids = call_ids[-1], call_ids[-1] + LARGEST_ID_DISTANCE
    # Ids behind the last call that was read may be of calls that were not: these are asked for.
    if later_ids := unclaimed_ids[bisect_right(unclaimed_ids, next_ids[0]) : bisect_right(unclaimed_ids, next_ids[1])]:
        claimed_ids = find_launching_ids(next_ids)
        unclaimed_ids = unclaimed_ids[: bisect_right(unclaimed_ids, next_ids[0])] + array(
            "q", [n for n in later_ids if n not in claimed_ids]
        )
    position, last_index = 0, len(marks) - 1
    for i in sorted(unmarked_calls, key=calls.correlation.__getitem__) if unclaimed_ids else ():
        call_id = calls.correlation[i]
        id_limit = call_id + LARGEST_ID_DISTANCE
        if i < last_index and calls.thread[i + 1] == calls.thread[i] and calls.correlation[i + 1] > call_id:
            id_limit = min(id_limit, calls.correlation[i + 1])
        position = bisect_right(unclaimed_ids, call_id, lo=position)
        if position < len(unclaimed_ids) and unclaimed_ids[position] < id_limit:
            position += 1
            yield i


def _build_records(
    counts: Mapping[LaunchKind, int], lost_calls: Sequence[_LostCall], work: RecordedWork
) -> tuple[LaunchRecord, ...]:
    """Return the records of so many calls of each kind, some of which lost work, as far as they ever had some."""
    workless_calls = _find_workless_calls(lost_calls, work) if lost_calls else set()
    kernel_call_span = work.find_kernel_call_span() if len(workless_calls) < len(lost_calls) else None
    records = []
    for kind in LaunchKind:
        kind_calls = [
            lost_call for lost_call in lost_calls if lost_call.kind is kind and lost_call not in workless_calls
        ]
        calls_inside = [
            lost_call
            for lost_call in kind_calls
            if kernel_call_span is None or kernel_call_span[0] <= lost_call.call.start_ns <= kernel_call_span[1]
        ]
        outside_count = len(kind_calls) - len(calls_inside)
        calls = counts[kind] - outside_count - sum(lost_call.kind is kind for lost_call in workless_calls)
        if calls or outside_count:
            share = sum((lost_call.share for lost_call in calls_inside), Fraction())
            missing_share = share.numerator if share.denominator == 1 else share
            records.append(
                LaunchRecord(
                    kind,
                    calls,
                    missing_share,
                    min((lost_call.call for lost_call in calls_inside), default=None),
                    outside_count,
                )
            )
    return tuple(records)


def _find_workless_calls(lost_calls: Sequence[_LostCall], work: RecordedWork) -> set[_LostCall]:
    """Return those of the calls that launched nothing: while their thread captured a graph, or of 0 bytes."""
    empty_copies = (
        work.find_empty_copies() if any(lost_call.kind is LaunchKind.COPY for lost_call in lost_calls) else ()
    )
    captures_by_thread = _track_captures(work.list_capture_calls())
    workless_calls = set()
    for lost_call in lost_calls:
        moments, depths = captures_by_thread.get(lost_call.call.thread, ([], []))
        position = bisect_right(moments, lost_call.call.start_ns)
        if (position and depths[position - 1] > 0) or lost_call.correlation in empty_copies:
            workless_calls.add(lost_call)
    return workless_calls


def _track_captures(calls: Iterable[Api]) -> dict[int, tuple[list[int], list[int]]]:
    """Return by thread the moments at which a capture begins or ends, and how many are going on from then on."""
    captures_by_thread: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], [0]))
    for call in sorted(calls):
        is_begin = fnmatchcase(call.name, CAPTURE_BEGIN_GLOB)
        moments, depths = captures_by_thread[call.thread]
        moments.append(call.start_ns)
        depths.append(max(depths[-1] + (1 if is_begin else -1), 0))
    return {thread: (moments, depths[1:]) for thread, (moments, depths) in captures_by_thread.items()}
