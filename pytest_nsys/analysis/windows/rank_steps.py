"""From when to when does each step of a rank last, on the host and on the GPU?

Steps follow one another without a gap. If kernels are counted by launch, a step holds what was launched from its begin
to that of the next step. It has the GPU from its first kernel on the main stream to the first one of the next step, so
a gap between two steps belongs to the first. If kernels are counted by time, both spans are those of the host. The last
of several steps ends with its own work, and no mean, median or quantile counts it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise

from pytest_nsys.analysis.windows.kernel_similarity import KernelSequence
from pytest_nsys.analysis.windows.rank_track import MAX_COLUMN_NS, RankTrack
from pytest_nsys.analysis.windows.window_selection import RankSteps, build_step_spans
from pytest_nsys.core.columns import (
    Column,
    as_vector,
    find_distinct_rows,
    find_min_max,
    find_nonzero,
    find_touching_spans,
    find_zeros,
    mark_equal,
    subtract,
    sum_by_number,
    take,
)
from pytest_nsys.core.model import Range
from pytest_nsys.core.tables import Kernels

MIN_MAIN_STREAM_SHARE = Fraction(9, 10)
"""The main stream is the lowest one whose compute time is at least this share of the highest."""


def find_steps_by_time(anchors: Sequence[Range], *, last_end_ns: int | None = None) -> RankSteps:
    """Find the steps of a rank whose kernels are counted by time; each has the GPU for the time that it takes on the
    host.

    The last step ends at ``last_end_ns`` if that is later than the end of its range.
    """
    steps = build_step_spans(anchors)
    if last_end_ns is not None and steps:
        steps[-1] = steps[-1]._replace(end_ns=max(steps[-1].end_ns, last_end_ns))
    return RankSteps(steps, [(step.start_ns, step.end_ns) for step in steps])


def find_steps_by_launch(whole_track: RankTrack, anchors: Sequence[Range], *, extend_last_step: bool) -> RankSteps:
    """Find the steps of a rank by what was launched in them; ``whole_track`` holds all kernels of the rank.

    A step without a kernel on the main stream has no window; its time belongs to the step before. Labels of several
    kinds that alternate, such as micro-batches of which one steps the optimizer, are one step together. What was
    launched after the last range belongs to the last step; a single step gets it only with ``extend_last_step``.
    """
    kernels, launch_order = whole_track.kernels, whole_track.launch_order
    steps, has_mixed_kinds = (
        (build_step_spans(anchors), False)
        if extend_last_step
        else _join_alternating_steps(whole_track, build_step_spans(anchors))
    )
    extend_last_step |= len(steps) > 1
    main_kernels = _select_main_stream_kernels(whole_track, steps)
    launch_times_ns, starts = take(whole_track.launch_ns, main_kernels), take(kernels.start_ns, main_kernels)
    edge_positions = _locate_step_edges(launch_times_ns, steps)
    if steps and not extend_last_step:
        launches_in_range = bisect_right(launch_times_ns, steps[-1].end_ns)
        extend_last_step = launches_in_range <= edge_positions[-2]  # the range only marks where the step begins
        edge_positions[-1] = len(launch_times_ns) if extend_last_step else launches_in_range
    begun_steps = [
        (step, min(starts[a:b])) for step, (a, b) in zip(steps, pairwise(edge_positions), strict=True) if a < b
    ]
    if not begun_steps:
        return RankSteps((), missing_reason="no step launches a kernel on the stream that computes most")
    # If steps begin at the same time, the first has the time: a step without length is no window.
    gpu_begins = list(accumulate((begin_ns for _, begin_ns in begun_steps), max))
    begun_steps = [
        step_and_begin
        for step_and_begin, (previous_ns, begin_ns) in zip(
            begun_steps, pairwise([gpu_begins[0] - 1, *gpu_begins]), strict=True
        )
        if begin_ns > previous_ns
    ]
    gpu_begins = sorted({*gpu_begins})
    (last_step, _), end_ns = begun_steps[-1], steps[-1].end_ns
    launches_ns = take(whole_track.launch_ns, launch_order)
    end_ns = max(
        end_ns,
        launches_ns[(len(launches_ns) if extend_last_step else bisect_right(launches_ns, end_ns)) - 1] + 1,
    )
    latest_ns = (
        MAX_COLUMN_NS if extend_last_step else max(steps[-1].end_ns, end_ns - 1)
    )  # includes what is launched at the range's end
    last_end_ns = max(_find_end_of_work(whole_track, last_step.start_ns, latest_ns), gpu_begins[-1])
    if len(begun_steps) == 1:  # a single step's range may outlast its GPU work: the host was not done
        last_end_ns = max(last_end_ns, last_step.end_ns)
    host_edges_ns = [*(step.start_ns for step, _ in begun_steps), end_ns]
    host_steps = [
        step._replace(start_ns=a, end_ns=b)
        for (step, _), (a, b) in zip(begun_steps, pairwise(host_edges_ns), strict=True)
    ]
    return RankSteps(host_steps, list(pairwise([*gpu_begins, last_end_ns])), has_mixed_kinds=has_mixed_kinds)


def _select_main_stream_kernels(whole_track: RankTrack, steps: Sequence[Range]) -> Column:
    """Select the launched kernels of the stream that computes most from the first step on, in order of their launches.

    Of streams that compute nearly as much, the lowest is taken; on a rank that only communicates, the busiest.
    """
    kernels, launched = whole_track.kernels, whole_track.launch_order
    first_launch = bisect_left(take(whole_track.launch_ns, launched), steps[0].start_ns) if steps else 0
    launched = launched[first_launch:]
    compute_kernels = take(launched, find_zeros(take(whole_track.communicates, launched))) or launched
    lengths = take(subtract(kernels.end_ns, kernels.start_ns), compute_kernels)
    time_by_stream_ns = sum_by_number(take(kernels.stream, compute_kernels), lengths, len(kernels.streams))
    kernels_by_stream = {
        i: take(launched, find_nonzero(mark_equal(take(kernels.stream, launched), i)))
        for i in {*take(kernels.stream, compute_kernels)}
    }
    busiest_streams = [
        i for i in kernels_by_stream if time_by_stream_ns[i] >= MIN_MAIN_STREAM_SHARE * max(time_by_stream_ns)
    ]
    main_stream = min(busiest_streams, key=kernels.streams.__getitem__, default=-1)
    steps_by_stream = {
        i: _count_steps_with_launches(take(whole_track.launch_ns, on_stream), steps)
        for i, on_stream in kernels_by_stream.items()
    }
    # If most steps have no kernel there, as after a change of streams, take the stream that most steps use.
    if kernels_by_stream and 2 * steps_by_stream[main_stream] < max(steps_by_stream.values()):
        main_stream = min(
            kernels_by_stream, key=lambda i: (-steps_by_stream[i], -time_by_stream_ns[i], kernels.streams[i])
        )
    return kernels_by_stream.get(main_stream, launched[:0])


def _locate_step_edges(launch_times_ns: Column, steps: Sequence[Range]) -> list[int]:
    """Return the position among launch times at which each step begins, and the end of the last step, which gets all
    the rest.
    """
    return [*(bisect_left(launch_times_ns, step.start_ns) for step in steps), len(launch_times_ns)]


def _count_steps_with_launches(launch_times_ns: Column, steps: Sequence[Range]) -> int:
    return sum(first < end for first, end in pairwise(_locate_step_edges(launch_times_ns, steps)))


def _find_end_of_work(whole_track: RankTrack, start_ns: int, end_ns: int) -> int:
    """Return when the last kernel, copy or memset ended that was launched in a host span, both edges included."""
    latest_end_ns = start_ns
    transfers = whole_track.transfers
    transfer_calls = whole_track.trace_context.transfer_calls.get(whole_track.rank.lane) if transfers else None
    for work, launch_times_ns in (
        (whole_track.kernels, whole_track.launch_ns),
        (transfers, transfer_calls.start_ns if transfer_calls else None),
    ):
        if work is None or launch_times_ns is None:
            continue
        if launched_in_span := find_touching_spans(launch_times_ns, launch_times_ns, start_ns, end_ns):
            latest_end_ns = max(latest_end_ns, find_min_max(take(work.end_ns, launched_in_span))[1])
    return latest_end_ns


MAX_ALTERNATING_KINDS = 4
"""The maximum number of kinds of steps for which groups are searched: of more kinds none returns often enough."""


def _join_alternating_steps(whole_track: RankTrack, steps: list[Range]) -> tuple[list[Range], bool]:
    """Join steps of several kinds that alternate; also return whether kinds return without alternating."""
    if len(steps) < MIN_STEPS_FOR_GROUPS:
        return steps, False
    launch_times_ns = take(whole_track.launch_ns, whole_track.launch_order)
    edge_positions = [
        bisect_left(launch_times_ns, at_ns) for at_ns in (*(step.start_ns for step in steps), steps[-1].end_ns)
    ]
    groups, has_mixed_kinds = group_alternating_steps(whole_track.kernels, whole_track.launch_order, edge_positions)
    return [steps[group[0]]._replace(end_ns=steps[group[-1]].end_ns) for group in groups], has_mixed_kinds


def group_alternating_steps(
    kernels: Kernels, launch_order: Column, edge_positions: Sequence[int], *, max_group_size: int | None = None
) -> tuple[list[range], bool]:
    """Return which steps belong together, as ranges of their numbers, and whether kinds return without alternating.

    Several kinds that alternate are joined in groups of at most ``max_group_size`` that end with the rarest kind;
    otherwise each step stands alone. A step has the kernels of ``launch_order`` from one of ``edge_positions`` to the
    next.
    """
    count = len(edge_positions) - 1
    single_steps = [range(i, i + 1) for i in range(count)]
    if count < MIN_STEPS_FOR_GROUPS:
        return single_steps, False
    lengths = take(subtract(kernels.end_ns, kernels.start_ns), launch_order)
    name_codes, _ = find_distinct_rows(take(kernels.name, launch_order), take(kernels.full_name, launch_order))
    edges = as_vector(array("q", edge_positions[:-1]))  # without the last step, which the end of profiling cuts
    kinds = KernelSequence(as_vector(name_codes), as_vector(lengths)).group_into_kinds(
        edges[:-1], edges[1:], MAX_ALTERNATING_KINDS
    )
    if kinds is None:
        return single_steps, False
    inner_kinds: list[int] = kinds[0][1:].tolist()  # the start of profiling disturbs the first
    new_kinds = [b for a, b in pairwise(inner_kinds) if a != b]
    if len({*new_kinds}) == len(new_kinds):  # all alike, or each kind in one block, as after a warm-up
        return single_steps, False
    size = next((n for n in range(2, len(inner_kinds) // 2 + 1) if inner_kinds[n:] == inner_kinds[:-n]), None)
    if size is None or (max_group_size is not None and size > max_group_size):
        return single_steps, size is None
    period = inner_kinds[:size]
    # The rarest kind ends a group, such as the micro-batch that steps the optimizer.
    rarest = min(period, key=lambda kind: (period.count(kind), period.index(kind)))
    end = 1 + max(i for i, kind in enumerate(period) if kind == rarest)  # the first step that ends a group, among all
    return [range(i, min(i + size, count)) for i in range(count) if (i - end - 1) % size == 0], False


MIN_STEPS_FOR_GROUPS = 6
"""The minimum number of labels in which groups are searched: the first, two whole groups of two, and the last."""
