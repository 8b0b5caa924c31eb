"""From when to when does each step of a rank last, on the host and on the GPU?

Steps follow one another without a hole. With kernels counted by their launches a step holds what was launched from its
begin to that of the next one, and has the GPU from its first kernel on the main stream to the next step's: what lies
between two steps is time of the first. Counted by time, both are the host's. The last of several steps has no next one:
it ends with its own work, and no mean, median or quantile counts it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise

from pytest_nsys.analysis.windows.likeness import NamedKernels
from pytest_nsys.analysis.windows.spans import RankSteps, lasting
from pytest_nsys.analysis.windows.tracks import LONGEST_NS, RankTrack
from pytest_nsys.core.columns import (
    Column,
    as_vector,
    bounds,
    distinct,
    equal,
    minus,
    sums,
    take,
    touching,
    where,
    where_not,
)
from pytest_nsys.core.model import Range
from pytest_nsys.core.tables import Kernels

NEARLY_MOST = Fraction(9, 10)
"""Of the most compute time that a stream has: streams with so much are as good a main stream, and the lowest is it."""


def steps_by_time(marks: Sequence[Range], *, to_the_end: int | None = None) -> RankSteps:
    """Return the steps of a rank whose kernels are counted by time: as long on the GPU as on the host.

    ``to_the_end``: until when the last one lasts, where that is not the end of its range.
    """
    steps = lasting(marks)
    if to_the_end is not None and steps:
        steps[-1] = steps[-1]._replace(end_ns=max(steps[-1].end_ns, to_the_end))
    return RankSteps(steps, [(step.start_ns, step.end_ns) for step in steps])


def steps_by_launch(whole: RankTrack, marks: Sequence[Range], *, to_the_end: bool) -> RankSteps:
    """Return the steps of a rank, all of whose kernels are ``whole``, by what was launched in them.

    A step without a kernel on the main stream has no window: its time is that of the step before. Labels that take
    turns, as those of micro-batches of which one steps the optimizer, are one step together. What was launched after
    the last range belongs to the last step, of one alone only ``to_the_end``.
    """
    kernels, launched = whole.kernels, whole.launch_order
    steps, mixed = (lasting(marks), False) if to_the_end else _in_turns(whole, lasting(marks))
    to_the_end |= len(steps) > 1
    main = _on_main_stream(whole, steps)
    moments, starts = take(whole.launch_ns, main), take(kernels.start_ns, main)
    places = _places(moments, steps)
    if steps and not to_the_end:
        own = bisect_right(moments, steps[-1].end_ns)
        to_the_end = own <= places[-2]  # the range only marks where the step begins
        places[-1] = len(moments) if to_the_end else own
    begun = [(step, min(starts[a:b])) for step, (a, b) in zip(steps, pairwise(places), strict=True) if a < b]
    if not begun:
        return RankSteps((), why="no step launches a kernel on the stream that computes most")
    # Of steps that begin at one moment the first has the time: one of no length is no window.
    begins = list(accumulate((at for _, at in begun), max))
    begun = [own for own, (before, at) in zip(begun, pairwise([begins[0] - 1, *begins]), strict=True) if at > before]
    begins = sorted({*begins})
    (last, _), end_ns = begun[-1], steps[-1].end_ns
    every = take(whole.launch_ns, launched)
    end_ns = max(end_ns, every[(len(every) if to_the_end else bisect_right(every, end_ns)) - 1] + 1)
    latest_ns = LONGEST_NS if to_the_end else max(steps[-1].end_ns, end_ns - 1)  # what the range's end launches, too
    last_ns = max(_work_until(whole, last.start_ns, latest_ns), begins[-1])
    if len(begun) == 1:  # the range of a step alone may go on after its work: the host was not done
        last_ns = max(last_ns, last.end_ns)
    edges = [*(step.start_ns for step, _ in begun), end_ns]
    found = [step._replace(start_ns=a, end_ns=b) for (step, _), (a, b) in zip(begun, pairwise(edges), strict=True)]
    return RankSteps(found, list(pairwise([*begins, last_ns])), mixed=mixed)


def _on_main_stream(whole: RankTrack, steps: Sequence[Range]) -> Column:
    """Return the launched kernels of the stream that computes most from the first step on, in order of their launches.

    Of streams that nearly compute most it is the lowest, of a rank that only communicates the busiest. Where most steps
    have no kernel there, as after a change of streams, it is the one on which most steps have some.
    """
    kernels, launched = whole.kernels, whole.launch_order
    of_steps = bisect_left(take(whole.launch_ns, launched), steps[0].start_ns) if steps else 0
    launched = launched[of_steps:]
    own = take(launched, where_not(take(whole.communicates, launched))) or launched
    lengths = take(minus(kernels.end_ns, kernels.start_ns), own)
    times = sums(take(kernels.stream, own), lengths, len(kernels.streams))
    each = {i: take(launched, where(equal(take(kernels.stream, launched), i))) for i in {*take(kernels.stream, own)}}
    near = [i for i in each if times[i] >= NEARLY_MOST * max(times)]
    main = min(near, key=kernels.streams.__getitem__, default=-1)
    in_steps = {i: _steps_with(take(whole.launch_ns, on_stream), steps) for i, on_stream in each.items()}
    if each and 2 * in_steps[main] < max(in_steps.values()):
        main = min(each, key=lambda i: (-in_steps[i], -times[i], kernels.streams[i]))
    return each.get(main, launched[:0])


def _places(moments: Column, steps: Sequence[Range]) -> list[int]:
    """Return where among moments each step begins, and the end of the last: all after its begin is of it."""
    return [*(bisect_left(moments, step.start_ns) for step in steps), len(moments)]


def _steps_with(moments: Column, steps: Sequence[Range]) -> int:
    return sum(first < end for first, end in pairwise(_places(moments, steps)))


def _work_until(whole: RankTrack, start_ns: int, end_ns: int) -> int:
    """Until when kernels, copies and memsets ran that were launched in a span of the host, its edges included."""
    found = start_ns
    transfers = whole.transfers
    moved = whole.around.transfer_calls.get(whole.rank.lane) if transfers else None
    for work, calls in ((whole.kernels, whole.launch_ns), (transfers, moved.start_ns if moved else None)):
        if work is None or calls is None:
            continue
        if own := touching(calls, calls, start_ns, end_ns):
            found = max(found, bounds(take(work.end_ns, own))[1])
    return found


MOST_KINDS = 4
"""Of more kinds none comes back often enough to take turns."""


def _in_turns(whole: RankTrack, steps: list[Range]) -> tuple[list[Range], bool]:
    """Join steps of several kinds that take turns; and say whether there are kinds that come back and take none."""
    if len(steps) < FEWEST_IN_TURNS:
        return steps, False
    moments = take(whole.launch_ns, whole.launch_order)
    places = [bisect_left(moments, at_ns) for at_ns in (*(step.start_ns for step in steps), steps[-1].end_ns)]
    turns, mixed = groups_in_turns(whole.kernels, whole.launch_order, places)
    return [steps[own[0]]._replace(end_ns=steps[own[-1]].end_ns) for own in turns], mixed


def groups_in_turns(
    kernels: Kernels, launched: Column, places: Sequence[int], *, most: int | None = None
) -> tuple[list[range], bool]:
    """Return which steps are one together, as ranges of their numbers: several kinds that take turns, in groups of at
    ``most`` so many that end with the rarest kind, else each alone; and whether there are several kinds that come back
    and take no turns.

    A step has the ``launched`` kernels from one of the ``places`` to the next.
    """
    count = len(places) - 1
    alone = [range(i, i + 1) for i in range(count)]
    if count < FEWEST_IN_TURNS:
        return alone, False
    lengths = take(minus(kernels.end_ns, kernels.start_ns), launched)
    numbers, _ = distinct(take(kernels.name, launched), take(kernels.full_name, launched))
    edges = as_vector(array("q", places[:-1]))  # without the last step, which the profiler's end cuts
    found = NamedKernels(as_vector(numbers), as_vector(lengths)).kinds(edges[:-1], edges[1:], MOST_KINDS)
    if found is None:
        return alone, False
    inner: list[int] = found[0][1:].tolist()  # the profiler's start disturbs the first
    changes = [b for a, b in pairwise(inner) if a != b]
    if len({*changes}) == len(changes):  # all alike, or each kind stands together: a warm-up
        return alone, False
    size = next((n for n in range(2, len(inner) // 2 + 1) if inner[n:] == inner[:-n]), None)
    if size is None or (most is not None and size > most):
        return alone, size is None
    period = inner[:size]
    rarest = min(period, key=lambda kind: (period.count(kind), period.index(kind)))
    end = 1 + max(i for i, kind in enumerate(period) if kind == rarest)  # the first step that ends a group, among all
    return [range(i, min(i + size, count)) for i in range(count) if (i - end - 1) % size == 0], False


FEWEST_IN_TURNS = 6
"""Labels: two whole groups of two, after the first and before the last."""
