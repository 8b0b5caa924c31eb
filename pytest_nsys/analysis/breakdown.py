"""What was a window's time made of, kernel by kernel, so that two windows can be held against each other?

Communication is taken apart into length, what of it was exposed and which compute hid the rest; compute into count,
length, place and when it was launched; the window into what ran, and idle time into what the GPU waited for. The parts
of one window add up to its metrics to the nanosecond: every instant of a union belongs to exactly one kernel, the one
that had been running longest. Beside them stand what the host waited in, what was copied, and the clock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from pytest_nsys.analysis.beside_kernels import clock_mhz, host_waits, transferred
from pytest_nsys.analysis.budget import budget_of
from pytest_nsys.analysis.budget_facts import BudgetPart
from pytest_nsys.analysis.explained import (
    AT_END,
    AT_START,
    NEXT_STEP,
    UNNAMED,
    Barrier,
    Breakdown,
    Communication,
    Compute,
    ComputePlace,
    GapsBefore,
    RankWait,
    Wall,
)
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.windows import clocks
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
    where,
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
    waits = {**_waits(together, window), **over_files}
    return Breakdown(
        communication=_communication(window, waits),
        barriers=_barriers(window, waits),
        compute=_compute(window),
        walls=_walls(window),
        budget=_budget(window),
        gaps=_gaps_before(window),
        calls=host_waits(window),
        transfers=transferred(window),
        clock_mhz=clock_mhz(window),
    )


def _budget(window: RankWindow) -> Mapping[BudgetPart, Mapping[str, int]] | None:
    found: dict[BudgetPart, Counter[str]] = {}
    try:
        for part, name, ns in budget_of(window).names():
            last = NEXT_STEP if part is BudgetPart.BETWEEN else AT_END
            found.setdefault(part, Counter())[last if name is None or last == NEXT_STEP else telling_name(name)] += ns
    except NoRows:
        return None
    found[BudgetPart.COMPUTE] = Counter({UNNAMED: window.length_ns - sum(own.total() for own in found.values())})
    return {part: dict(sorted(found[part].items())) for part in BudgetPart if part in found}


@kept
def _names(window: RankWindow) -> tuple[Column, Sequence[str]]:
    """A number for each kernel, and the telling name that the number stands for: numbered as the names are sorted."""
    return window.named(lambda short, full: telling_name(full or short))


def _in_order(window: RankWindow, kernels: Column) -> Column:
    """The same by start, then by end and name: those that start together stand in any order in a trace."""
    keys = *window.starts_and_ends(kernels), take(_names(window)[0], kernels)
    return take(kernels, order(*keys))


def _name(window: RankWindow, i: int) -> str:
    numbers, names = _names(window)
    return names[numbers[i]]


def _by_name(window: RankWindow, values: Column, kernels: Column) -> dict[str, tuple[int, int]]:
    """(sum, number) of the values, one for each of some kernels, by name; the names in order."""
    numbers, names = _names(window)
    found = sums_by(names.__getitem__, values, take(numbers, kernels))
    return dict(sorted(found.items()))


class _Owners:
    """Which of some kernels an instant belongs to: of those that run, the one that started first."""

    def __init__(self, window: RankWindow, kernels: Column) -> None:
        kernels = _in_order(window, kernels)
        self.begins, self.ends, owners = segments(*window.starts_and_ends(kernels))
        self.kernels = take(kernels, owners)

    def of(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """(kernel, ns) of the parts of a span that the kernels cover."""
        first = max(0, bisect_right(self.begins, start) - 1)
        for at in range(first, bisect_left(self.begins, end)):
            if (shared := min(self.ends[at], end) - max(self.begins[at], start)) > 0:
                yield self.kernels[at], shared


@kept
def _computing(window: RankWindow) -> _Owners:
    return _Owners(window, window.compute)


def _communication(window: RankWindow, waits: Mapping[int, RankWait]) -> dict[str, tuple[Communication, ...]]:
    owners, launched = _computing(window), sorted(set(take(window.launch_ns, window.compute)) - {NO_LAUNCH})
    found = {}
    for stage, members in window.by_stage.items():
        kernels = []
        for i in _in_order(window, members):
            hidden: dict[str, int] = {}
            start, end = window.kernels.start_ns[i], window.kernels.end_ns[i]
            for owner, shared in owners.of(start, end):
                name = _name(window, owner)
                hidden[name] = hidden.get(name, 0) + shared
            own = window.durations_ns[i], window.exposed_ns[i], dict(sorted(hidden.items()))
            launch = window.launch_ns[i]
            after = None if launch == NO_LAUNCH else bisect_left(launched, launch)
            kernels.append(Communication(_name(window, i), *own, waits.get(i), start - window.start_ns, after))
        found[stage] = tuple(kernels)
    return found


def _barriers(window: RankWindow, waits: Mapping[int, RankWait]) -> dict[str, Barrier]:
    numbers, names = _names(window)
    members = members_by(names.__getitem__, numbers, among=window.barriers)
    return {
        name: Barrier(len(own), total(take(window.durations_ns, own)), _together(own, waits))
        for name, own in sorted(members.items())
    }


def _together(kernels: Sequence[int], waits: Mapping[int, RankWait]) -> RankWait | None:
    """The waits of all kernels as one, where each has one; for the rank that most of it was for."""
    by_rank: Counter[int] = Counter()
    for i in kernels:
        if i not in waits:
            return None
        by_rank[waits[i].last] += waits[i].wait_ns
    return RankWait(by_rank.total(), min(by_rank, key=lambda rank: (-by_rank[rank], rank)))


def _compute(window: RankWindow) -> dict[str, Compute]:
    compute, launches = window.compute, window.launch_ns
    launched = take(compute, where_not(equal(take(launches, compute), NO_LAUNCH)))
    lengths = _by_name(window, take(window.durations_ns, compute), compute)
    launch = _by_name(window, take(launches, launched), launched)
    places, found = _places(window), {}
    for name, (length, kernels) in lengths.items():
        launch_sum, with_launch = launch.get(name, (0, 0))
        found[name] = Compute(
            kernels=kernels,
            length_ns=length,
            launched=with_launch,
            launch_ns=launch_sum - with_launch * window.start_ns,
            places=tuple(places[name]),
        )
    return found


def _places(window: RankWindow) -> dict[str, list[ComputePlace]]:
    """Where the compute kernels of each name run, by stage and stream."""
    kernels, (codes, stages), (numbers, names) = window.kernels, window.stages, _names(window)
    streams = sorted(window.compute_streams, key=kernels.streams.__getitem__)
    place = {stream: number for number, stream in enumerate(streams)}
    lanes = members_by(lambda code, stream: (stages[code], place[stream]), codes, kernels.stream, among=window.compute)
    found: dict[str, list[ComputePlace]] = {}
    for (stage, stream), own in sorted(lanes.items()):
        own_names = take(numbers, own)
        orders = sums_by(names.__getitem__, array("q", range(len(own))), own_names)
        for name, (length, count) in sums_by(names.__getitem__, take(window.durations_ns, own), own_names).items():
            found.setdefault(name, []).append(ComputePlace(stage, stream, count, length, orders[name][0]))
    return found


def _walls(window: RankWindow) -> dict[Wall, dict[str, int]]:
    """Each instant of the window by what it went to, and by the kernel."""
    window, between_ns = window.meanwhile, _between_ns(window)
    computing, communicating = _computing(window), _Owners(window, window.all_communication)
    alone = minus(communicating.ends, communicating.begins)
    exposed = minus(alone, window.compute_time.covered(communicating.begins, communicating.ends))
    of_kernels = {
        Wall.COMPUTE: _by_name(window, minus(computing.ends, computing.begins), computing.kernels),
        Wall.EXPOSED: _by_name(window, exposed, communicating.kernels),
    }
    found = {wall: Counter({name: ns for name, (ns, _) in own.items()}) for wall, own in of_kernels.items()}
    launch, idle = Counter[str](), Counter[str]()
    for name, launch_ns, idle_ns in _gaps(window, between_ns):
        launch[name] += launch_ns
        idle[name] += idle_ns
    found |= {Wall.LAUNCH: launch, Wall.IDLE: idle}
    return {wall: {name: ns for name, ns in sorted(by.items()) if ns} for wall, by in found.items()}


def _between_ns(window: RankWindow) -> int:
    """How long the GPU waited for the next step to be launched; 0 where that is not known."""
    with suppress(NoRows):
        return budget_of(window).lines.parts[BudgetPart.BETWEEN]
    return 0


def _gaps(window: RankWindow, between_ns: int) -> Iterator[tuple[str, int, int]]:
    """Of each idle time the kernel that ended it, how long that was not launched, and how long it was; at the end
    between two steps, where nothing computes for so long.
    """
    free = window.start_ns
    for start, end in window.busy_time:
        first = bisect_left(window.kernels.start_ns, start)
        together = range(first, bisect_right(window.kernels.start_ns, start))
        i = first if len(together) == 1 else _in_order(window, array("q", together))[0]
        launch = window.launch_ns[i]
        waiting = 0 if launch == NO_LAUNCH else max(0, min(launch, start) - free)
        yield _name(window, i), waiting, start - free - waiting
        free = max(free, end)
    tail_ns = window.end_ns - free
    between_ns = min(tail_ns, between_ns)
    yield NEXT_STEP, between_ns, 0
    yield AT_END, 0, tail_ns - between_ns


def _gaps_before(window: RankWindow) -> dict[str, GapsBefore]:
    """The times without compute, by the compute kernel that ended them."""
    window = window.meanwhile
    computing, (numbers, names) = _computing(window), _names(window)
    begins, ends = computing.begins, computing.ends
    if not begins:
        return {AT_END: GapsBefore(1, window.length_ns)} if window.length_ns else {}
    lengths = minus(begins[1:], ends[:-1])
    some = where(lengths)
    after = take(numbers, take(computing.kernels[1:], some))
    found = {name: (ns, gaps) for name, (ns, gaps) in sums_by(names.__getitem__, take(lengths, some), after).items()}
    edges = {AT_START: (begins[0] - window.start_ns, 1), AT_END: (window.end_ns - ends[-1], 1)}
    return {name: GapsBefore(gaps, ns) for name, (ns, gaps) in sorted({**found, **edges}.items()) if ns}


def _waits(together: Mapping[int, RankWindow], window: RankWindow) -> dict[int, RankWait]:
    """By kernel of the window how long it waited for the last rank of its group.

    The n-th kernel of a name, stage and purpose belongs to the n-th of the others. A collective ends nowhere before it
    has begun everywhere: kernels that do not all run at one moment are not the same collective, and say nothing.
    """
    groups: dict[str | None, list[RankWindow]] = {}
    found: dict[int, RankWait] = {}
    for place, members in window.by_place.items():
        *_, purpose = place
        if purpose not in groups:
            groups[purpose] = [w for w in together.values() if _in_group(window.rank, w.rank, purpose)]
        series = {w.rank.number: list(w.spans(w.by_place.get(place, array("q")))) for w in groups[purpose]}
        if len(series) < 2 or len({len(spans) for spans in series.values()}) > 1:
            continue
        for n, i in enumerate(members):
            at = {number: spans[n] for number, spans in series.items()}
            begun, last = max((start, number) for number, (start, _) in at.items())
            if begun <= min(end for _, end in at.values()):
                found[i] = RankWait(begun - window.kernels.start_ns[i], last)
    return found


def _in_group(rank: Rank, other: Rank, purpose: str | None) -> bool:
    """Whether two ranks of one trace take part in the same communication.

    A purpose that is named after a mesh axis, as ``ep_a2a``, joins the ranks that differ on that axis alone.
    """
    if clocks((rank, other)) > 1:
        return False
    axis = next((axis for axis in rank.coordinates if purpose is not None and purpose.split("_")[0] == axis), None)
    return all(other.coordinates.get(a) == at for a, at in rank.coordinates.items() if axis is not None and a != axis)
