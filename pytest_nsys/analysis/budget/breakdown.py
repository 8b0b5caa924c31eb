"""What was a window's time made of, kernel by kernel, so that two windows can be held against each other?

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
    """The window of a rank; the windows of the others say for whom it waited, on other clocks ``over_files``."""
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
    found: dict[BudgetPart, Counter[str]] = {}
    try:
        for part, name, ns in budget_of(window).names():
            last = NEXT_STEP if part is BudgetPart.BETWEEN else AT_END
            found.setdefault(part, Counter())[last if name is None or last == NEXT_STEP else telling_name(name)] += ns
    except NoRows:
        return None
    return found


def _measure_between_steps(window: RankWindow) -> int:
    """How long the GPU waited for the next step to be launched; 0 where that is not known."""
    with suppress(NoRows):
        return budget_of(window).lines.parts[BudgetPart.BETWEEN]
    return 0


@kept
def _number_names(window: RankWindow) -> tuple[Column, Sequence[str]]:
    """A number for each kernel, and the telling name that the number stands for: numbered as the names are sorted."""
    return window.named(lambda short, full: telling_name(full or short))


def _sort_by_start(window: RankWindow, kernels: Column) -> Column:
    """The same by start, then by end and name: those that start together stand in any order in a trace."""
    keys = *window.starts_and_ends(kernels), take(_number_names(window)[0], kernels)
    return take(kernels, order(*keys))


# The rows


def _group_kernels(window: RankWindow, what: What, kernels: Column) -> Iterator[tuple[Part, Column]]:
    """A row for some kernels of each name, stage and stream, and which these are."""
    (codes, stages), (numbers, names), streams = window.stages, _number_names(window), window.kernels.streams
    computing = sorted(window.compute_streams, key=streams.__getitem__)
    place = {stream: number for number, stream in enumerate(computing)}
    columns = codes, window.kernels.stream
    lanes = members_by(lambda code, stream: (stages[code], place.get(stream, OWN_STREAM)), *columns, among=kernels)
    for (stage, stream), members in sorted(lanes.items()):
        lane = _sort_by_start(window, members)
        for name, at in sorted(members_by(names.__getitem__, take(numbers, lane)).items()):
            own = take(lane, at)
            launches = take(window.launch_ns, own)
            launches = take(launches, where_not(equal(launches, NO_LAUNCH)))
            yield (
                Part(
                    what,
                    name,
                    stage,
                    stream,
                    number=len(own),
                    length_ns=total(take(window.durations_ns, own)),
                    launched=len(launches),
                    launch_ns=total(launches) - len(launches) * window.start_ns,
                    order=total(at),
                ),
                own,
            )


def _sum_compute(window: RankWindow) -> Iterator[Part]:
    return (part for part, _ in _group_kernels(window, What.KERNEL, window.compute))


def _sum_barriers(window: RankWindow, waits: Mapping[int, RankWait]) -> Iterator[Part]:
    for part, own in _group_kernels(window, What.COLLECTIVE, window.barriers):
        yield part._replace(waits_ns=_sum_waits(own, waits))


def _sum_communication(window: RankWindow, waits: Mapping[int, RankWait]) -> Iterator[Part]:
    computing, (numbers, names) = _find_owners(window), _number_names(window)
    launched = sorted(set(take(window.launch_ns, window.compute)) - {NO_LAUNCH})
    for part, own in _group_kernels(window, What.COLLECTIVE, window.communication):
        hidden = Counter[str]()
        for start, end in window.spans(own):
            for kernel, shared in computing.of(start, end):
                hidden[names[numbers[kernel]]] += shared
        yield part._replace(
            stream=OWN_STREAM,  # also where it shares one that keeps no order
            exposed_ns=total(take(window.exposed_ns, own)),
            waits_ns=_sum_waits(own, waits),
            after=sum(bisect_left(launched, launch) for launch in take(window.launch_ns, own)),
            beside_ns=dict(sorted(hidden.items())),
        )


def _sum_waits(kernels: Column, waits: Mapping[int, RankWait]) -> Mapping[int, int] | None:
    found = Counter[int]()
    for i in kernels:
        if i not in waits:
            return None
        found[waits[i].last] += waits[i].wait_ns
    return dict(found)


# Where the time went


class _Owners:
    """Which of some kernels an instant belongs to: of those that run, the one that started first."""

    def __init__(self, window: RankWindow, kernels: Column) -> None:
        kernels = _sort_by_start(window, kernels)
        self.begins, self.ends, owners = segments(*window.starts_and_ends(kernels))
        self.kernels = take(kernels, owners)

    def of(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """(kernel, ns) of the parts of a span that the kernels cover."""
        first = max(0, bisect_right(self.begins, start) - 1)
        for at in range(first, bisect_left(self.begins, end)):
            if (shared := min(self.ends[at], end) - max(self.begins[at], start)) > 0:
                yield self.kernels[at], shared


@kept
def _find_owners(window: RankWindow) -> _Owners:
    return _Owners(window, window.compute)


def _split_time(window: RankWindow, between_ns: int) -> dict[tuple[What, str], int]:
    """Each instant of the window by what it went to, and by the kernel."""
    computing, communicating = _find_owners(window), _Owners(window, window.all_communication)
    alone = minus(communicating.ends, communicating.begins)
    exposed = minus(alone, window.compute_time.covered(communicating.begins, communicating.ends))
    (numbers, names), found = _number_names(window), Counter[tuple[What, str]]()
    for what, lengths, owners in (
        (What.KERNEL, minus(computing.ends, computing.begins), computing.kernels),
        (What.COLLECTIVE, exposed, communicating.kernels),
    ):
        by_name = sums_by(names.__getitem__, lengths, take(numbers, owners))
        found.update({(what, name): ns for name, (ns, _) in by_name.items()})
    for name, host_ns, idle_ns in _find_gaps(window, between_ns):
        found[What.HOST, name] += host_ns
        found[What.IDLE, name] += idle_ns
    return {key: ns for key, ns in sorted(found.items()) if ns}


def _find_gaps(window: RankWindow, between_ns: int) -> Iterator[tuple[str, int, int]]:
    """Of each idle time the kernel that ended it, how long that was not launched, and how long it was; at the end
    between two steps, where nothing computes for so long.
    """
    free, (numbers, names) = window.start_ns, _number_names(window)
    for start, end in window.busy_time:
        first = bisect_left(window.kernels.start_ns, start)
        together = range(first, bisect_right(window.kernels.start_ns, start))
        i = first if len(together) == 1 else _sort_by_start(window, array("q", together))[0]
        launch = window.launch_ns[i]
        waiting = 0 if launch == NO_LAUNCH else max(0, min(launch, start) - free)
        yield names[numbers[i]], waiting, start - free - waiting
        free = max(free, end)
    tail_ns = window.end_ns - free
    between_ns = min(tail_ns, between_ns)
    yield NEXT_STEP, between_ns, 0
    yield AT_END, 0, tail_ns - between_ns


# Who waited for whom


def _match_waits(together: Mapping[int, RankWindow], window: RankWindow) -> dict[int, RankWait]:
    """By kernel of the window how long it waited for the last rank of its group.

    The n-th kernel of a name, stage and purpose belongs to the n-th of the others. A collective ends nowhere before it
    has begun everywhere: kernels that do not all run at one moment are not the same collective, and say nothing.
    """
    groups: dict[str | None, list[RankWindow]] = {}
    found: dict[int, RankWait] = {}
    for place, members in window.by_place.items():
        *_, purpose = place
        if purpose not in groups:
            groups[purpose] = [w for w in together.values() if _is_in_group(window.rank, w.rank, purpose)]
        series = {w.rank.number: list(w.spans(w.by_place.get(place, array("q")))) for w in groups[purpose]}
        if len(series) < 2 or len({len(spans) for spans in series.values()}) > 1:
            continue
        for n, i in enumerate(members):
            at = {number: spans[n] for number, spans in series.items()}
            begun, last = max((start, number) for number, (start, _) in at.items())
            if begun <= min(end for _, end in at.values()):
                found[i] = RankWait(begun - window.kernels.start_ns[i], last)
    return found


def _is_in_group(rank: Rank, other: Rank, purpose: str | None) -> bool:
    """Whether two ranks of one trace take part in the same communication.

    A purpose that is named after a mesh axis, as ``ep_a2a``, joins the ranks that differ on that axis alone.
    """
    if clocks((rank, other)) > 1:
        return False
    axis = next((axis for axis in rank.coordinates if purpose is not None and purpose.split("_")[0] == axis), None)
    return all(other.coordinates.get(a) == at for a, at in rank.coordinates.items() if axis is not None and a != axis)
