"""What was a window's time made of, kernel by kernel, so that two windows can be held against each other?

Communication is taken apart into length, what of it was exposed and which compute hid the rest; compute into count,
length and when it was launched; idle time into what the GPU waited for. The parts of one window add up to its metrics
to the nanosecond: every instant of a union belongs to exactly one kernel, the one that had been running longest.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_nsys.analysis.intervals import Intervals
from pytest_nsys.analysis.quality import clocks
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import RunWindow
from pytest_nsys.analysis.structure import plain_name
from pytest_nsys.model import NO_LAUNCH, Rank


class Wait(NamedTuple):
    """How long a rank was in a collective before the last one came, and which rank that was."""

    wait_ns: int
    last: int


class Communication(NamedTuple):
    """One communication kernel of a stage. ``hidden_by`` gives the ns during which each compute kernel hid it.

    ``wait`` is None where the ranks of its group cannot be matched on one clock.
    """

    name: str
    length_ns: int
    exposed_ns: int
    hidden_by: Mapping[str, int]
    wait: Wait | None = None


class Compute(NamedTuple):
    """The compute kernels of one name: how many, how long in all, and when, summed, from the window's start on.

    ``launched`` of them have a launch; ``launch_ns`` and ``queued_ns`` (from launch to start) are sums over those.
    """

    kernels: int
    length_ns: int
    start_ns: int
    launched: int
    launch_ns: int
    queued_ns: int


class Breakdown(NamedTuple):
    """One window of one rank. ``communication`` is by stage, in order of start; ``barriers`` and ``compute`` by name.

    ``window_ns`` = ``compute_wall_ns`` + ``exposed_wall_ns`` (communication, barriers too, without compute) +
    ``waiting_for_launch_ns`` + ``idle_other_ns``.
    """

    communication: Mapping[str, Sequence[Communication]]
    barriers: Mapping[str, tuple[int, int]]
    compute: Mapping[str, Compute]
    window_ns: int
    compute_wall_ns: int
    exposed_wall_ns: int
    waiting_for_launch_ns: int
    idle_other_ns: int


def break_down(together: RunWindow, rank: int) -> Breakdown:
    """The window of a rank; the windows of the others say for whom it waited."""
    window = together.by_rank[rank]
    busy = Intervals(window.spans(range(len(window))))
    waiting = _waiting_for_launch(window, busy)
    idle = window.length_ns - busy.total_ns
    return Breakdown(
        communication=_communication(together, window),
        barriers=_barriers(window),
        compute=_compute(window),
        window_ns=window.length_ns,
        compute_wall_ns=window.compute_time.total_ns,
        exposed_wall_ns=busy.total_ns - window.compute_time.total_ns,
        waiting_for_launch_ns=waiting,
        idle_other_ns=idle - waiting,
    )


def _name(window: RankWindow, i: int) -> str:
    return plain_name(window.kernels.names[window.kernels.name[i]])


class _Owners:
    """Which compute kernel an instant belongs to: of those that run, the one that started first."""

    def __init__(self, window: RankWindow) -> None:
        self._starts: list[int] = []
        self._segments: list[tuple[int, int, int]] = []
        spans = zip(window.spans(window.compute), window.compute, strict=True)
        reach: int | None = None
        for (start, end), i in sorted(spans, key=lambda one: (one[0][0], one[1])):
            begin = start if reach is None else max(start, reach)
            if end > begin:
                self._starts.append(begin)
                self._segments.append((begin, end, i))
                reach = end

    def of(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """(kernel, ns) of the parts of a span that compute covers."""
        first = max(0, bisect_right(self._starts, start) - 1)
        for at in range(first, bisect_left(self._starts, end)):
            begin, stop, i = self._segments[at]
            if (shared := min(stop, end) - max(begin, start)) > 0:
                yield i, shared


def _communication(together: RunWindow, window: RankWindow) -> dict[str, tuple[Communication, ...]]:
    owners, waits = _Owners(window), _waits(together, window)
    found = {}
    for stage, members in window.by_stage.items():
        kernels = []
        for i in sorted(members, key=lambda i: (window.kernels.start_ns[i], i)):
            hidden: dict[str, int] = {}
            for owner, shared in owners.of(window.kernels.start_ns[i], window.kernels.end_ns[i]):
                name = _name(window, owner)
                hidden[name] = hidden.get(name, 0) + shared
            by = dict(sorted(hidden.items()))
            kernels.append(
                Communication(_name(window, i), window.durations_ns[i], window.exposed_ns[i], by, waits.get(i))
            )
        found[stage] = tuple(kernels)
    return found


def _barriers(window: RankWindow) -> dict[str, tuple[int, int]]:
    """(count, ns) by name."""
    found: dict[str, tuple[int, int]] = {}
    for i in window.barriers:
        count, length = found.get(_name(window, i), (0, 0))
        found[_name(window, i)] = (count + 1, length + window.durations_ns[i])
    return dict(sorted(found.items()))


def _compute(window: RankWindow) -> dict[str, Compute]:
    found: dict[str, list[int]] = {}
    starts = window.kernels.start_ns
    for i in window.compute:
        sums = found.setdefault(_name(window, i), [0] * len(Compute._fields))
        sums[0] += 1
        sums[1] += window.durations_ns[i]
        sums[2] += starts[i] - window.start_ns
        launch = _launch(window, i)
        if launch is not None:
            sums[3] += 1
            sums[4] += launch - window.start_ns
            sums[5] += starts[i] - launch
    return {name: Compute(*sums) for name, sums in sorted(found.items())}


def _launch(window: RankWindow, i: int) -> int | None:
    launch = window.track.launch_ns[window.positions[i]]
    return None if launch == NO_LAUNCH else launch


def _waiting_for_launch(window: RankWindow, busy: Intervals) -> int:
    """Idle time that ended with a kernel, up to the moment at which that kernel was launched."""
    first_at: dict[int, int] = {}
    for i, start in enumerate(window.kernels.start_ns):
        first_at.setdefault(start, i)
    waiting, free = 0, window.start_ns
    for start, end in busy:
        launch = _launch(window, first_at[start]) if start in first_at else None
        if launch is not None:
            waiting += max(0, min(launch, start) - free)
        free = max(free, end)
    return waiting


def _waits(together: RunWindow, window: RankWindow) -> dict[int, Wait]:
    """By kernel of the window how long it waited for the last rank of its group.

    The n-th kernel of a name, stage and purpose belongs to the n-th of the others. A collective ends nowhere before it
    has begun everywhere: kernels that do not all run at one moment are not the same collective, and say nothing.
    """
    groups: dict[str | None, list[RankWindow]] = {}
    found: dict[int, Wait] = {}
    for place, members in window.by_place.items():
        *_, purpose = place
        if purpose not in groups:
            groups[purpose] = [w for w in together.by_rank.values() if _in_group(window.rank, w.rank, purpose)]
        series = {w.rank.number: list(w.spans(w.by_place.get(place, ()))) for w in groups[purpose]}
        if len(series) < 2 or len({len(spans) for spans in series.values()}) > 1:
            continue
        for n, i in enumerate(members):
            at = {number: spans[n] for number, spans in series.items()}
            begun, last = max((start, number) for number, (start, _) in at.items())
            if begun <= min(end for _, end in at.values()):
                found[i] = Wait(begun - window.kernels.start_ns[i], last)
    return found


def _in_group(rank: Rank, other: Rank, purpose: str | None) -> bool:
    """Whether two ranks of one trace take part in the same communication.

    A purpose that is named after a mesh axis, as ``ep_a2a``, joins the ranks that differ on that axis alone.
    """
    if clocks((rank, other)) > 1:
        return False
    axis = next((axis for axis in rank.coordinates if purpose is not None and purpose.split("_")[0] == axis), None)
    return all(other.coordinates.get(a) == at for a, at in rank.coordinates.items() if axis is not None and a != axis)
