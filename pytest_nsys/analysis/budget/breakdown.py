"""What was a window's time made of, kernel by kernel, so that two windows can be compared?

The result is one table: a row for the kernels of each name, stage and stream, for copies of each kind and for each call
that waits. In addition the window's length is divided by activity, to the nanosecond: if several kernels run, an
instant belongs to the one that has been running longest.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from pytest_nsys.analysis.budget.budget import measure_budget
from pytest_nsys.analysis.budget.surroundings import list_host_waits, list_transfers, measure_clock_mhz
from pytest_nsys.analysis.explain.breakdown_model import (
    AT_END,
    NEXT_STEP,
    OWN_STREAM,
    Breakdown,
    BreakdownRow,
    RankWait,
    RowActivity,
)
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.window_selection import count_clocks
from pytest_nsys.core.columns import (
    Column,
    find_zeros,
    group_indices_by,
    mark_equal,
    sort_indices,
    split_into_segments,
    subtract,
    sum_column,
    sum_values_by,
    take,
)
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.kernel_names import make_stable_name
from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.model import NO_LAUNCH, Rank


def break_down_window(
    windows: Mapping[int, RankWindow], rank: int, waits_over_files: Mapping[int, RankWait] = MappingProxyType({})
) -> Breakdown:
    """Break down the window of a rank by kernels, copies and calls.

    The windows of the other ranks show which rank it waited for; ``waits_over_files`` do so for ranks on other clocks.
    """
    window = windows[rank]
    waits = {**_match_waits(windows, window), **waits_over_files}
    parts = [*_sum_compute(window), *_sum_barriers(window, waits), *_sum_communication(window, waits)]
    calls, transfers = list_host_waits(window), list_transfers(window)
    return Breakdown(
        [*parts, *(calls or ()), *(transfers or ())],
        time_ns=_split_time(window.gpu_window, _measure_between_steps(window)),
        budget=_split_budget(window),
        unrecorded=[
            *((RowActivity.CALL,) if calls is None else ()),
            *((RowActivity.COPY, RowActivity.MEMSET) if transfers is None else ()),
        ],
        clock_mhz=measure_clock_mhz(window),
    )


def _split_budget(window: RankWindow) -> Mapping[BudgetPart, Mapping[str, int]] | None:
    """Split the time without compute by budget part and by what held compute up; None if the window has no budget."""
    ns_by_part: dict[BudgetPart, Counter[str]] = {}
    try:
        for part, name, ns in measure_budget(window).sum_by_name():
            end_name = NEXT_STEP if part is BudgetPart.BETWEEN else AT_END
            ns_by_part.setdefault(part, Counter())[
                end_name if name is None or end_name == NEXT_STEP else make_stable_name(name)
            ] += ns
    except NoRows:
        return None
    return ns_by_part


def _measure_between_steps(window: RankWindow) -> int:
    """Return how long the GPU waited for the launch of the next step, in ns; 0 if unknown."""
    with suppress(NoRows):
        return measure_budget(window).lines.parts[BudgetPart.BETWEEN]
    return 0


@memoize_method
def _number_names(window: RankWindow) -> tuple[Column, Sequence[str]]:
    """Return a number for each kernel, and the name of each number; numbers are in the order of the sorted names."""
    return window.encode_names(lambda short, full: make_stable_name(full or short))


def _sort_kernels_by_start(window: RankWindow, kernels: Column) -> Column:
    """Sort kernels by start, then by end and name."""
    # Kernels that start together have no fixed order, so it may differ between two traces of one program.
    keys = *window.take_starts_and_ends(kernels), take(_number_names(window)[0], kernels)
    return take(kernels, sort_indices(*keys))


# The rows


def _group_kernels(window: RankWindow, activity: RowActivity, kernels: Column) -> Iterator[tuple[BreakdownRow, Column]]:
    """Yield a row for the kernels of each name, stage and stream, with the indices of its kernels."""
    (codes, stages), (numbers, names), streams = window.stage_codes, _number_names(window), window.kernels.streams
    compute_streams = sorted(window.compute_streams, key=streams.__getitem__)
    stream_numbers = {stream: number for number, stream in enumerate(compute_streams)}
    columns = codes, window.kernels.stream
    lanes = group_indices_by(
        lambda code, stream: (stages[code], stream_numbers.get(stream, OWN_STREAM)), *columns, subset=kernels
    )
    for (stage, stream), members in sorted(lanes.items()):
        lane = _sort_kernels_by_start(window, members)
        for name, positions in sorted(group_indices_by(names.__getitem__, take(numbers, lane)).items()):
            row_kernels = take(lane, positions)
            launches = take(window.launch_ns, row_kernels)
            launches = take(launches, find_zeros(mark_equal(launches, NO_LAUNCH)))
            yield (
                BreakdownRow(
                    activity,
                    name,
                    stage,
                    stream,
                    number=len(row_kernels),
                    length_ns=sum_column(take(window.durations_ns, row_kernels)),
                    launched_count=len(launches),
                    launch_sum_ns=sum_column(launches) - len(launches) * window.start_ns,
                    order=sum_column(positions),
                ),
                row_kernels,
            )


def _sum_compute(window: RankWindow) -> Iterator[BreakdownRow]:
    return (part for part, _ in _group_kernels(window, RowActivity.KERNEL, window.compute))


def _sum_barriers(window: RankWindow, waits: Mapping[int, RankWait]) -> Iterator[BreakdownRow]:
    for part, row_kernels in _group_kernels(window, RowActivity.COLLECTIVE, window.barriers):
        yield part._replace(wait_ns_by_rank=_sum_waits(row_kernels, waits))


def _sum_communication(window: RankWindow, waits: Mapping[int, RankWait]) -> Iterator[BreakdownRow]:
    compute_owners, (numbers, names) = _find_owners(window), _number_names(window)
    launched = sorted(set(take(window.launch_ns, window.compute)) - {NO_LAUNCH})
    for part, row_kernels in _group_kernels(window, RowActivity.COLLECTIVE, window.communication):
        hidden_ns = Counter[str]()
        for start, end in window.iterate_intervals(row_kernels):
            for kernel, shared_ns in compute_owners.find_overlaps(start, end):
                hidden_ns[names[numbers[kernel]]] += shared_ns
        yield part._replace(
            stream=OWN_STREAM,  # even if it shares a stream that keeps no order
            exposed_ns=sum_column(take(window.exposed_ns, row_kernels)),
            wait_ns_by_rank=_sum_waits(row_kernels, waits),
            launches_before=sum(bisect_left(launched, launch) for launch in take(window.launch_ns, row_kernels)),
            ns_by_kernel=dict(sorted(hidden_ns.items())),
        )


def _sum_waits(kernels: Column, waits: Mapping[int, RankWait]) -> Mapping[int, int] | None:
    waits_by_rank = Counter[int]()
    for i in kernels:
        if i not in waits:
            return None
        waits_by_rank[waits[i].last_rank] += waits[i].wait_ns
    return dict(waits_by_rank)


# Where the time went


class _InstantOwners:
    """Assigns each instant to one of some kernels: of those that run, the one that started first."""

    def __init__(self, window: RankWindow, kernels: Column) -> None:
        kernels = _sort_kernels_by_start(window, kernels)
        self.starts_ns, self.ends_ns, owners = split_into_segments(*window.take_starts_and_ends(kernels))
        self.kernels = take(kernels, owners)

    def find_overlaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield (kernel, ns) for each part of a span that the kernels cover."""
        first = max(0, bisect_right(self.starts_ns, start) - 1)
        for index in range(first, bisect_left(self.starts_ns, end)):
            if (shared_ns := min(self.ends_ns[index], end) - max(self.starts_ns[index], start)) > 0:
                yield self.kernels[index], shared_ns


@memoize_method
def _find_owners(window: RankWindow) -> _InstantOwners:
    return _InstantOwners(window, window.compute)


def _split_time(window: RankWindow, between_ns: int) -> dict[tuple[RowActivity, str], int]:
    """Divide the time of the window by activity and by kernel."""
    compute_owners, communication_owners = _find_owners(window), _InstantOwners(window, window.all_communication)
    owned_ns = subtract(communication_owners.ends_ns, communication_owners.starts_ns)
    exposed_ns = subtract(
        owned_ns,
        window.compute_time.measure_cover_per_span(communication_owners.starts_ns, communication_owners.ends_ns),
    )
    (numbers, names), ns_by_activity = _number_names(window), Counter[tuple[RowActivity, str]]()
    for activity, lengths, owners in (
        (RowActivity.KERNEL, subtract(compute_owners.ends_ns, compute_owners.starts_ns), compute_owners.kernels),
        (RowActivity.COLLECTIVE, exposed_ns, communication_owners.kernels),
    ):
        by_name = sum_values_by(names.__getitem__, lengths, take(numbers, owners))
        ns_by_activity.update({(activity, name): ns for name, (ns, _) in by_name.items()})
    for name, host_ns, idle_ns in _find_gaps(window, between_ns):
        ns_by_activity[RowActivity.HOST, name] += host_ns
        ns_by_activity[RowActivity.IDLE, name] += idle_ns
    return {key: ns for key, ns in sorted(ns_by_activity.items()) if ns}


def _find_gaps(window: RankWindow, between_ns: int) -> Iterator[tuple[str, int, int]]:
    """Yield for each idle time (the kernel that ended it, the ns until its launch, the length in ns).

    At the end of a step, the time until the next step is a gap of its own, if nothing computes for that long.
    """
    free_ns, (numbers, names) = window.start_ns, _number_names(window)
    for start, end in window.busy_time:
        first = bisect_left(window.kernels.start_ns, start)
        starting_kernels = range(first, bisect_right(window.kernels.start_ns, start))
        i = first if len(starting_kernels) == 1 else _sort_kernels_by_start(window, array("q", starting_kernels))[0]
        launch = window.launch_ns[i]
        launch_wait_ns = 0 if launch == NO_LAUNCH else max(0, min(launch, start) - free_ns)
        yield names[numbers[i]], launch_wait_ns, start - free_ns - launch_wait_ns
        free_ns = max(free_ns, end)
    tail_ns = window.end_ns - free_ns
    between_ns = min(tail_ns, between_ns)
    yield NEXT_STEP, between_ns, 0
    yield AT_END, 0, tail_ns - between_ns


# Who waited for whom


def _match_waits(windows: Mapping[int, RankWindow], window: RankWindow) -> dict[int, RankWait]:
    """Return how long each communication kernel of the window waited for the last rank of its group.

    The n-th kernel of a name, stage and purpose on one rank is matched with the n-th on the others.
    """
    groups: dict[str | None, list[RankWindow]] = {}
    waits: dict[int, RankWait] = {}
    for place, members in window.communication_by_context.items():
        *_, purpose = place
        if purpose not in groups:
            groups[purpose] = [w for w in windows.values() if _is_in_group(window.rank, w.rank, purpose)]
        spans_by_rank = {
            w.rank.number: list(w.iterate_intervals(w.communication_by_context.get(place, array("q"))))
            for w in groups[purpose]
        }
        if len(spans_by_rank) < 2 or len({len(spans) for spans in spans_by_rank.values()}) > 1:
            continue
        for n, i in enumerate(members):
            span_of_rank = {number: spans[n] for number, spans in spans_by_rank.items()}
            last_start_ns, last_rank = max((start, number) for number, (start, _) in span_of_rank.items())
            # A collective ends nowhere before it has begun everywhere: kernels that do not all run at one time are not
            # the same collective.
            if last_start_ns <= min(end for _, end in span_of_rank.values()):
                waits[i] = RankWait(last_start_ns - window.kernels.start_ns[i], last_rank)
    return waits


def _is_in_group(rank: Rank, other_rank: Rank, purpose: str | None) -> bool:
    """Return whether two ranks of one trace take part in the same communication.

    A purpose that is named after a mesh axis, such as ``ep_a2a``, joins the ranks that differ only on that axis.
    """
    if count_clocks((rank, other_rank)) > 1:
        return False
    axis = next((axis for axis in rank.coordinates if purpose is not None and purpose.split("_")[0] == axis), None)
    return all(
        other_rank.coordinates.get(a) == coordinate
        for a, coordinate in rank.coordinates.items()
        if axis is not None and a != axis
    )
