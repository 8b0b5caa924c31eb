"""What was a window's time made of, kernel by kernel, so that two windows can be compared?

One table: a row for the kernels of each name, stage and stream, for copies of each kind and for each call that waits.
Beside it the window's length by what it went to, to the nanosecond: every instant of a union belongs to exactly one
kernel, the one that had been running longest.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from pytest_nsys.analysis.budget.budget import budget_of
from pytest_nsys.analysis.budget.surroundings import clock_mhz, host_waits, transferred
from pytest_nsys.analysis.explain.budget_lines import BudgetPart
from pytest_nsys.analysis.explain.parts import AT_END, NEXT_STEP, OWN_STREAM, Breakdown, Part, RankWait, What
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.spans import clocks
from pytest_nsys.core.columns import (
    Column,
    equal,
    members_by,
    minus,
    order,
    segments,
    sums_by,
    take,
    total,
    where_not,
)
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.kept import kept
from pytest_nsys.core.kernel_names import telling_name
from pytest_nsys.core.model import NO_LAUNCH, Rank


def break_down(
    together: Mapping[int, RankWindow], rank: int, over_files: Mapping[int, RankWait] = MappingProxyType({})
) -> Breakdown:
    """Break down the window of a rank by kernels, copies and calls.

    The other windows say for whom it waited; ``waits_over_files`` say it of ranks on other clocks.
    """
    window = together[rank]
    waits = {**_match_waits(together, window), **over_files}
    parts = [*_sum_compute(window), *_sum_barriers(window, waits), *_sum_communication(window, waits)]
    calls, transfers = host_waits(window), transferred(window)
    return Breakdown(
        [*parts, *(calls or ()), *(transfers or ())],
        time_ns=_split_time(window.meanwhile, _measure_between_steps(window)),
        budget=_split_budget(window),
        unknown=[
            *((What.CALL,) if calls is None else ()),
            *((What.COPY, What.MEMSET) if transfers is None else ()),
        ],
        clock_mhz=clock_mhz(window),
    )


def _split_budget(window: RankWindow) -> Mapping[BudgetPart, Mapping[str, int]] | None:
    """Split the time without compute by its class, and by what held compute up; None where the window has no budget."""
    ns_by_part: dict[BudgetPart, Counter[str]] = {}
    try:
        for part, name, ns in budget_of(window).names():
            end_name = NEXT_STEP if part is BudgetPart.BETWEEN else AT_END
            ns_by_part.setdefault(part, Counter())[
                end_name if name is None or end_name == NEXT_STEP else telling_name(name)
            ] += ns
    except NoRows:
        return None
    return ns_by_part


def _measure_between_steps(window: RankWindow) -> int:
    """Return how long the GPU waited for the next step to be launched, in ns; 0 where that is not known."""
    with suppress(NoRows):
        return budget_of(window).lines.parts[BudgetPart.BETWEEN]
    return 0


@kept
def _number_names(window: RankWindow) -> tuple[Column, Sequence[str]]:
    """Return a number for each kernel, and the name that each number stands for; names are numbered as they sort."""
    return window.named(lambda short, full: telling_name(full or short))


def _sort_by_start(window: RankWindow, kernels: Column) -> Column:
    """Sort kernels by start, then by end and name."""
    # Kernels that start together stand in any order in a trace, and in another one in two traces of one program.
    keys = *window.starts_and_ends(kernels), take(_number_names(window)[0], kernels)
    return take(kernels, order(*keys))


# The rows


def _group_kernels(window: RankWindow, what: What, kernels: Column) -> Iterator[tuple[Part, Column]]:
    """Yield a row for the kernels of each name, stage and stream, with the kernels that it stands for."""
    (codes, stages), (numbers, names), streams = window.stages, _number_names(window), window.kernels.streams
    compute_streams = sorted(window.compute_streams, key=streams.__getitem__)
    stream_numbers = {stream: number for number, stream in enumerate(compute_streams)}
    columns = codes, window.kernels.stream
    lanes = members_by(
        lambda code, stream: (stages[code], stream_numbers.get(stream, OWN_STREAM)), *columns, among=kernels
    )
    for (stage, stream), members in sorted(lanes.items()):
        lane = _sort_by_start(window, members)
        for name, positions in sorted(members_by(names.__getitem__, take(numbers, lane)).items()):
            row_kernels = take(lane, positions)
            launches = take(window.launch_ns, row_kernels)
            launches = take(launches, where_not(equal(launches, NO_LAUNCH)))
            yield (
                Part(
                    what,
                    name,
                    stage,
                    stream,
                    number=len(row_kernels),
                    length_ns=total(take(window.durations_ns, row_kernels)),
                    launched=len(launches),
                    launch_ns=total(launches) - len(launches) * window.start_ns,
                    order=total(positions),
                ),
                row_kernels,
            )


def _sum_compute(window: RankWindow) -> Iterator[Part]:
    return (part for part, _ in _group_kernels(window, What.KERNEL, window.compute))


def _sum_barriers(window: RankWindow, waits: Mapping[int, RankWait]) -> Iterator[Part]:
    for part, row_kernels in _group_kernels(window, What.COLLECTIVE, window.barriers):
        yield part._replace(waits_ns=_sum_waits(row_kernels, waits))


def _sum_communication(window: RankWindow, waits: Mapping[int, RankWait]) -> Iterator[Part]:
    compute_owners, (numbers, names) = _find_owners(window), _number_names(window)
    launched = sorted(set(take(window.launch_ns, window.compute)) - {NO_LAUNCH})
    for part, row_kernels in _group_kernels(window, What.COLLECTIVE, window.communication):
        hidden_ns = Counter[str]()
        for start, end in window.spans(row_kernels):
            for kernel, shared_ns in compute_owners.of(start, end):
                hidden_ns[names[numbers[kernel]]] += shared_ns
        yield part._replace(
            stream=OWN_STREAM,  # also where it shares one that keeps no order
            exposed_ns=total(take(window.exposed_ns, row_kernels)),
            waits_ns=_sum_waits(row_kernels, waits),
            after=sum(bisect_left(launched, launch) for launch in take(window.launch_ns, row_kernels)),
            beside_ns=dict(sorted(hidden_ns.items())),
        )


def _sum_waits(kernels: Column, waits: Mapping[int, RankWait]) -> Mapping[int, int] | None:
    waits_by_rank = Counter[int]()
    for i in kernels:
        if i not in waits:
            return None
        waits_by_rank[waits[i].last] += waits[i].wait_ns
    return dict(waits_by_rank)


# Where the time went


class _Owners:
    """Knows which of some kernels an instant belongs to: of those that run, the one that started first."""

    def __init__(self, window: RankWindow, kernels: Column) -> None:
        kernels = _sort_by_start(window, kernels)
        self.begins, self.ends, owners = segments(*window.starts_and_ends(kernels))
        self.kernels = take(kernels, owners)

    def of(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield (kernel, ns) for each part of a span that the kernels cover."""
        first = max(0, bisect_right(self.begins, start) - 1)
        for index in range(first, bisect_left(self.begins, end)):
            if (shared_ns := min(self.ends[index], end) - max(self.begins[index], start)) > 0:
                yield self.kernels[index], shared_ns


@kept
def _find_owners(window: RankWindow) -> _Owners:
    return _Owners(window, window.compute)


def _split_time(window: RankWindow, between_ns: int) -> dict[tuple[What, str], int]:
    """Divide the time of the window by what it went to, and by the kernel."""
    compute_owners, communication_owners = _find_owners(window), _Owners(window, window.all_communication)
    owned_ns = minus(communication_owners.ends, communication_owners.begins)
    exposed_ns = minus(owned_ns, window.compute_time.covered(communication_owners.begins, communication_owners.ends))
    (numbers, names), ns_by_activity = _number_names(window), Counter[tuple[What, str]]()
    for activity, lengths, owners in (
        (What.KERNEL, minus(compute_owners.ends, compute_owners.begins), compute_owners.kernels),
        (What.COLLECTIVE, exposed_ns, communication_owners.kernels),
    ):
        by_name = sums_by(names.__getitem__, lengths, take(numbers, owners))
        ns_by_activity.update({(activity, name): ns for name, (ns, _) in by_name.items()})
    for name, host_ns, idle_ns in _find_gaps(window, between_ns):
        ns_by_activity[What.HOST, name] += host_ns
        ns_by_activity[What.IDLE, name] += idle_ns
    return {key: ns for key, ns in sorted(ns_by_activity.items()) if ns}


def _find_gaps(window: RankWindow, between_ns: int) -> Iterator[tuple[str, int, int]]:
    """Yield for each idle time the kernel that ended it, how long that was not launched, and how long it was.

    At the end the time between two steps stands for itself, where nothing computes for so long.
    """
    free_ns, (numbers, names) = window.start_ns, _number_names(window)
    for start, end in window.busy_time:
        first = bisect_left(window.kernels.start_ns, start)
        starting_kernels = range(first, bisect_right(window.kernels.start_ns, start))
        i = first if len(starting_kernels) == 1 else _sort_by_start(window, array("q", starting_kernels))[0]
        launch = window.launch_ns[i]
        launch_wait_ns = 0 if launch == NO_LAUNCH else max(0, min(launch, start) - free_ns)
        yield names[numbers[i]], launch_wait_ns, start - free_ns - launch_wait_ns
        free_ns = max(free_ns, end)
    tail_ns = window.end_ns - free_ns
    between_ns = min(tail_ns, between_ns)
    yield NEXT_STEP, between_ns, 0
    yield AT_END, 0, tail_ns - between_ns


# Who waited for whom


def _match_waits(together: Mapping[int, RankWindow], window: RankWindow) -> dict[int, RankWait]:
    """Return how long each communication kernel of the window waited for the last rank of its group.

    The n-th kernel of a name, stage and purpose belongs to the n-th of the others.
    """
    groups: dict[str | None, list[RankWindow]] = {}
    waits: dict[int, RankWait] = {}
    for place, members in window.by_place.items():
        *_, purpose = place
        if purpose not in groups:
            groups[purpose] = [w for w in together.values() if _is_in_group(window.rank, w.rank, purpose)]
        spans_by_rank = {w.rank.number: list(w.spans(w.by_place.get(place, array("q")))) for w in groups[purpose]}
        if len(spans_by_rank) < 2 or len({len(spans) for spans in spans_by_rank.values()}) > 1:
            continue
        for n, i in enumerate(members):
            span_of_rank = {number: spans[n] for number, spans in spans_by_rank.items()}
            last_start_ns, last_rank = max((start, number) for number, (start, _) in span_of_rank.items())
            # A collective ends nowhere before it has begun everywhere: kernels that do not all run at one moment are
            # not the same collective, and say nothing.
            if last_start_ns <= min(end for _, end in span_of_rank.values()):
                waits[i] = RankWait(last_start_ns - window.kernels.start_ns[i], last_rank)
    return waits


def _is_in_group(rank: Rank, other: Rank, purpose: str | None) -> bool:
    """Whether two ranks of one trace take part in the same communication.

    A purpose that is named after a mesh axis, as ``ep_a2a``, joins the ranks that differ on that axis alone.
    """
    if clocks((rank, other)) > 1:
        return False
    axis = next((axis for axis in rank.coordinates if purpose is not None and purpose.split("_")[0] == axis), None)
    return all(
        other.coordinates.get(a) == coordinate
        for a, coordinate in rank.coordinates.items()
        if axis is not None and a != axis
    )
