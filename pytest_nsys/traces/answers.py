"""What do all formats answer alike, once they are in columns? Launches, ranges, idle spans, levels of memory."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from pytest_nsys.core import columns
from pytest_nsys.core.columns import NEVER, Column
from pytest_nsys.core.conventions import COMMUNICATION_PREFIX
from pytest_nsys.core.model import NO_LAUNCH, Api, Interval, Lane
from pytest_nsys.core.tables import NO_CALLS, LaunchCalls, Memory, Ranges, Series


class ApiCalls(NamedTuple):
    """Calls of the API in any order, as parallel columns; ``name`` holds indices into ``names``."""

    start_ns: Column
    end_ns: Column
    thread: Column
    name: Column
    correlation: Column
    names: Sequence[str]

    def take(self, rows: Column) -> ApiCalls:
        """The calls at ``rows``, in that order."""
        start, end, thread, name, correlation = (columns.take(column, rows) for column in self[:5])
        return ApiCalls(start, end, thread, name, correlation, self.names)

    def rows(self) -> Iterator[Api]:
        """Each call as one object, in their order."""
        names = map(self.names.__getitem__, self.name)
        return map(Api, self.start_ns, names, self.end_ns, self.thread)


class CallTable(NamedTuple):
    """The earliest call of each of some ascending correlations, of one process."""

    ids: Column
    calls: LaunchCalls

    def of(self, correlation: Column) -> LaunchCalls:
        """The call of each correlation, NO_LAUNCH where there is none."""
        each = zip(self.calls, (NO_LAUNCH, NO_LAUNCH, 0), strict=True)
        start, end, thread = (columns.joined(self.ids, own, missing, correlation) for own, missing in each)
        return LaunchCalls(start, end, columns.narrowed(thread))

    def starts_of(self, correlation: Column) -> Column:
        """The start of the call of each correlation, NO_LAUNCH where there is none."""
        return columns.joined(self.ids, self.calls.start_ns, NO_LAUNCH, correlation)

    def starts(self) -> dict[int, int]:
        """The start of the call by correlation."""
        return dict(zip(self.ids, self.calls.start_ns, strict=True))


EMPTY = CallTable(array("q"), NO_CALLS)


class Earliest:
    """The earliest call of each of some correlations, while calls are read; NO_LAUNCH is no correlation."""

    def __init__(self, correlation: Column) -> None:
        ids = columns.values(correlation)
        self.ids = ids[1:] if ids and ids[0] == NO_LAUNCH else ids
        self._calls: list[Column] = []

    def see(self, correlation: Column, *calls: Column) -> None:
        """More calls, of other correlations too: start, end and thread of each, or always its start alone."""
        self._calls = self._calls or [array("q", [NEVER]) * len(self.ids) for _ in calls]
        columns.lower(self.ids, self._calls, correlation, calls)

    def missing(self) -> Column:
        """The correlations of which no call was seen."""
        return columns.take(self.ids, columns.where(columns.equal(self._calls[0], NEVER))) if self._calls else self.ids

    def table(self) -> CallTable:
        """What was seen; calls that were seen by their start alone have no end and no thread."""
        ids, calls = self.ids, self._calls or [*NO_CALLS]
        seen = columns.where_not(columns.equal(calls[0], NEVER))
        if len(seen) < len(ids):
            ids, *calls = (columns.take(column, seen) for column in (ids, *calls))
        return CallTable(ids, LaunchCalls(*calls, *NO_CALLS[len(calls) :]))


def earliest_calls(correlation: Column, calls: LaunchCalls) -> CallTable:
    """The earliest of some calls by correlation; those whose correlation is NO_LAUNCH have none."""
    found = Earliest(correlation)
    found.see(correlation, *calls)
    return found.table()


def not_by_nccl(name: str) -> bool:
    """Whether a range is none of NCCL's own."""
    return not name.startswith(COMMUNICATION_PREFIX)


def named_ranges(
    known: Mapping[int, str],
    start: Column,
    end: Column,
    thread: Column,
    name: Column,
    *,
    wanted: Callable[[str], bool] = not_by_nccl,
) -> Ranges:
    """Those of a known name that is wanted, by start, end and name."""
    numbers = columns.values(name)
    names = list(dict.fromkeys(known[number] for number in numbers if number in known and wanted(known[number])))
    place = {text: i for i, text in enumerate(names)}
    at = array("i", [place.get(known[number], -1) if number in known else -1 for number in numbers])
    name = columns.joined(numbers, at, -1, name)
    own = columns.where_not(columns.equal(name, -1))
    if len(own) < len(name):
        start, end, thread, name = (columns.take(column, own) for column in (start, end, thread, name))
    order = columns.order(start, end)
    _settle_ties(order, columns.take(start, order), columns.take(end, order), lambda i: names[name[i]])
    start, end, thread, name = (columns.take(column, order) for column in (start, end, thread, name))
    return Ranges(start, end, thread, name, names)


def _settle_ties(order: Column, start: Column, end: Column, name_of: Callable[[int], str]) -> None:
    """Put ranges of one span, which stand together in ``order``, in the order of their names."""
    high = 0
    for low in columns.where_not(columns.minus(start[1:], start[:-1])):
        if low >= high:
            high = low + 1
            while high < len(order) and (start[high], end[high]) == (start[low], end[low]):
                high += 1
            order[low:high] = array("q", sorted(order[low:high], key=name_of))


AT_ONCE = 32
"""So many lanes are looked for in the same rows."""

Busy = Callable[[Sequence[Lane], Interval], Collection[Lane]]
"""Those lanes of some on which a kernel runs in a span, as far as a quick look sees it."""


def idle(
    spans: Mapping[Lane, Sequence[Interval]],
    busy: Busy,
    times: Callable[[Mapping[Lane, Interval]], Mapping[Lane, Iterable[Interval]]],
) -> Mapping[Lane, Sequence[Interval]]:
    """Those of the spans, by start, in which no kernel of the lane runs.

    Ranks mostly do the same at the same time: they are looked at together. ``times`` are of all kernels that touch
    a span, for the spans that are left.
    """
    left: dict[Lane, list[Interval]] = {}
    for together in _groups(spans):
        lanes, own = zip(*together, strict=True)
        found = busy(lanes, (max(low for low, _ in own), min(high for _, high in own)))
        for lane, span in together:
            if lane not in found and (len(lanes) == 1 or lane not in busy([lane], span)):
                left.setdefault(lane, []).append(span)
    kernels = times({lane: (own[0][0], own[-1][1]) for lane, own in left.items()}) if left else {}
    each = {lane: idle_among(*_columns(kernels.get(lane, ())), own) for lane, own in left.items()}
    return {lane: own for lane, own in each.items() if own}


def _columns(kernels: Iterable[Interval]) -> tuple[Column, Column]:
    """The starts and the ends of kernels, by start."""
    starts, ends = zip(*sorted(kernels), strict=True) if kernels else ((), ())
    return array("q", starts), array("q", ends)


def _groups(spans: Mapping[Lane, Sequence[Interval]]) -> Iterator[list[tuple[Lane, Interval]]]:
    """All spans, those of several lanes together that have some time in common."""
    group: dict[Lane, Interval] = {}
    until = 0
    each = [(span, lane) for lane, own in spans.items() for span in own]
    for span, lane in sorted(each, key=itemgetter(0)):
        if group and (lane in group or span[0] >= until or len(group) == AT_ONCE):
            yield [*group.items()]
            group = {}
        until = min(until, span[1]) if group else span[1]
        group[lane] = span
    if group:
        yield [*group.items()]


def idle_among(starts: Column, ends: Column, spans: Sequence[Interval]) -> list[Interval]:
    """Those of the spans in which none of the kernels, by start, runs."""
    latest = array("q", accumulate(ends, max, initial=0))
    return [(low, high) for low, high in spans if not (n := bisect_left(starts, high)) or latest[n] <= low]


class Allocation(NamedTuple):
    """One allocation, or the free of one at ``place``, a process and an address; ``lane`` is None where it is on no
    device, or nothing says on which.
    """

    start_ns: int
    place: tuple[int, int]
    lane: Lane | None
    size_bytes: int
    frees: bool


def levels(each: Iterable[Allocation]) -> dict[Lane, Memory]:
    """What each process had allocated on each device.

    An allocation is freed by its address: what was allocated before the recording began is in no sum, and its free
    takes nothing off.
    """
    held: dict[tuple[int, int], tuple[Lane, int]] = {}
    level: defaultdict[Lane, int] = defaultdict(int)
    changes: defaultdict[Lane, list[tuple[int, int]]] = defaultdict(list)
    earlier: defaultdict[Lane, int] = defaultdict(int)
    for start, place, lane, size, frees in each:
        if place in held and (frees or lane is not None):  # its free may be lost
            where, freed = held.pop(place)
            level[where] -= freed
            changes[where].append((start, level[where]))
        elif frees and lane is not None:
            earlier[lane] += 1
        if not frees and lane is not None:
            held[place] = (lane, size)
            level[lane] += size
            changes[lane].append((start, level[lane]))
    return {lane: Memory(Series.of(changes[lane]), earlier[lane]) for lane in {*changes, *earlier}}
