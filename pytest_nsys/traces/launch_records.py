"""Of the calls that launched work, how many have it on record? One answer for all formats, from columns.

A call of the runtime stands around one of the driver, and the kernel has the id of the inner one: both are one launch.
A call is looked at twice only where its work is missing: whether its thread was capturing a graph then, whether the
profiler had begun to record kernels, or had stopped.
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
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import NO_LAUNCH, Api, Interval, Lane, LaunchKind, LaunchRecord
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.answers import ApiCalls
from pytest_nsys.traces.other_profilers import LAUNCHES

_OF_KERNELS, _OF_GRAPHS = LAUNCHES
KINDS: Mapping[str, LaunchKind] = {
    _OF_GRAPHS: LaunchKind.GRAPH,
    _OF_KERNELS: LaunchKind.KERNEL,
    **dict.fromkeys(("cudaMemcpy*", "cuMemcpy*", "hipMemcpy*"), LaunchKind.COPY),
}
"""Of a call by a glob of its name."""

BEGINS_CAPTURE, ENDS_CAPTURE = "*StreamBeginCapture*", "*StreamEndCapture*"
CAPTURES = (BEGINS_CAPTURE, ENDS_CAPTURE)

NEXT_IDS = 16
"""How far the id of a call is from that of one that it makes, at most."""

INSIDE_NS = 1_000_000
"""A call begins so soon after the one that it is inside of: so much around a span is read with it."""


def _nothing_more(_: Interval) -> Set[int]:
    """Where all calls of a process are at hand."""
    return frozenset()


class Recorded(NamedTuple):
    """What of one process is on record, as far as launches go.

    ``read`` are the correlations of kernels that were read before, ascending, ``others`` those of whatever else ran,
    ``lacking`` those of replays that ran less than another one of their graph, with the missing share. The rest is
    asked for where work is missing: ``kernels`` are the correlations of more kernels, and in the end of all,
    ``kernel_calls`` go from the first call that launched a recorded one to the last (None: there is none), ``captures``
    are the calls that begin and end one, ``empty`` the correlations of copies of 0 bytes, ``launching`` those of calls
    between two that launch.
    """

    read: Column
    others: Column
    lacking: Mapping[int, Fraction]
    kernels: Callable[[], Iterable[Column]]
    kernel_calls: Callable[[], Interval | None]
    captures: Callable[[], Iterable[Api]]
    empty: Callable[[], Set[int]]
    launching: Callable[[Interval], Set[int]] = _nothing_more


def kind_of_call(name: str) -> LaunchKind | None:
    """What a call of that name launches; None for a call that launches nothing."""
    return next((kind for glob, kind in KINDS.items() if fnmatchcase(name, glob)), None)


def is_of_a_capture(name: str) -> bool:
    """Whether a call of that name begins the capture of a graph, or ends it."""
    return any(fnmatchcase(name, glob) for glob in CAPTURES)


def around(span: Interval | None) -> Interval | None:
    """The time in which the calls of a span are, and those that they are inside of."""
    return None if span is None else (span[0] - INSIDE_NS, span[1] + INSIDE_NS)


def ids_of(kernels: Mapping[Lane, Kernels]) -> dict[int, Column]:
    """The correlations of kernels, ascending, by process."""
    each = grouped((lane.global_pid, own.correlation) for lane, own in kernels.items())
    return {pid: columns.values(columns.chained(own)) for pid, own in each.items()}


def lacking_of(graphs: Column, correlations: Column) -> dict[int, Fraction]:
    """The share that is missing of each replay that ran fewer nodes than another of its graph; of each node the number
    of its graph and the correlation of its replay.
    """
    numbers, keys = columns.distinct(graphs, correlations) if len(graphs) else (array("q"), [])
    nodes = dict(zip(keys, columns.counts(numbers, len(keys)), strict=True))
    most: Counter[int] = Counter()
    for (graph, _), count in nodes.items():
        most[graph] = max(most[graph], count)
    ran, whole = Counter[int](), Counter[int]()
    for (graph, correlation), count in nodes.items():
        ran[correlation] += count
        whole[correlation] += most[graph]
    return {c: Fraction(whole[c] - count, whole[c]) for c, count in ran.items() if count < whole[c]}


class _Lost(NamedTuple):
    """A call of which a ``share`` of the work is on no record."""

    call: Api
    kind: LaunchKind
    correlation: int
    share: Fraction


def records_of(calls: ApiCalls, recorded: Recorded, span: Interval | None) -> tuple[LaunchRecord, ...]:
    """What is on record of the work of those calls that start in the span, by kind."""
    kinds = [kind_of_call(name) for name in calls.names]
    calls = _launching(calls, bytearray(kind is not None for kind in kinds))
    outermost = columns.outermost(calls.thread, calls.start_ns, calls.end_ns)
    launches, launch_of = columns.where(outermost), columns.latest(outermost)
    starts = columns.take(calls.start_ns, launches)
    chosen = columns.touching(starts, starts, *span) if span is not None else array("q", range(len(launches)))

    def without_work(kernels: Column) -> Column:
        ran = array("q", columns.sums(launch_of, _known(calls, kernels, recorded), len(launches)))
        return columns.take(chosen, columns.where_not(columns.take(ran, chosen)))

    without = without_work(recorded.read)
    for kernels in recorded.kernels() if without else ():
        if not (without := without_work(kernels)):
            break
    shares = {n: Fraction(1) for n in without} | {
        launch_of[i]: recorded.lacking[calls.correlation[i]] for i in _among(calls.correlation, recorded.lacking)
    }
    named = columns.counts(columns.take(calls.name, columns.take(launches, chosen)), len(kinds))
    counts = {kind: sum(n for n, own in zip(named, kinds, strict=True) if own is kind) for kind in LaunchKind}
    lost = []
    for n in sorted(shares.keys() & {*chosen}) if shares else ():
        (call,) = calls.take(launches[n : n + 1]).rows()
        if (kind := kind_of_call(call.name)) is not None:
            lost.append(_Lost(call, kind, calls.correlation[launches[n]], shares[n]))
    return _by_kind(counts, lost, recorded)


def _launching(calls: ApiCalls, launches: bytearray) -> ApiCalls:
    """The calls that launch work, each correlation once, by thread, by start, the longest first."""
    rows = columns.where(columns.take(launches, calls.name))
    known = columns.where_not(columns.equal(columns.take(calls.correlation, rows), NO_LAUNCH))
    calls = calls.take(columns.take(rows, known))
    nothing = array("q", bytes(8 * len(known)))
    if len(columns.values(calls.correlation)) < len(known):  # profilers of old wrote rows twice
        calls = calls.take(columns.order(calls.correlation, calls.start_ns))
        calls = calls.take(columns.where(columns.records(calls.correlation, nothing)))
        nothing = nothing[: len(calls.correlation)]
    return calls.take(columns.order(calls.thread, calls.start_ns, columns.minus(nothing, calls.end_ns)))


def _among(column: Column, some: Collection[int]) -> Column:
    """The indices of what is one of some."""
    ids = array("q", sorted(some))
    return columns.where(columns.joined(ids, _ones(ids), 0, column))


def _ones(column: Column) -> Column:
    return array("q", [1]) * len(column)


def _known(calls: ApiCalls, kernels: Column, recorded: Recorded) -> Column:
    """1 for each call that has work among these kernels, and whatever else ran."""
    others = recorded.others
    known = columns.joined(kernels, _ones(kernels), 0, calls.correlation)
    known = columns.later(known, columns.joined(others, _ones(others), 0, calls.correlation))
    for i in _with_next_id(calls, known, kernels, recorded.launching):
        known[i] = 1
    return known


def _with_next_id(
    calls: ApiCalls, known: Column, kernels: Column, launching: Callable[[Interval], Set[int]]
) -> Iterator[int]:
    """The calls without work of which a kernel has one of the next ids, which no other launch of the thread comes
    before: where calls of the driver are not traced, a kernel has the id of one that the runtime made.
    """
    lost = columns.where_not(known)
    if not lost:
        return
    own = columns.values(calls.correlation)
    free = columns.take(kernels, columns.where_not(columns.joined(own, _ones(own), 0, kernels)))
    behind = own[-1], own[-1] + NEXT_IDS
    if beyond := free[bisect_right(free, behind[0]) : bisect_right(free, behind[1])]:  # of calls that were not read?
        of_others = launching(behind)
        free = free[: bisect_right(free, behind[0])] + array("q", [n for n in beyond if n not in of_others])
    at, last = 0, len(known) - 1
    for i in sorted(lost, key=calls.correlation.__getitem__) if free else ():
        first = calls.correlation[i]
        until = first + NEXT_IDS
        if i < last and calls.thread[i + 1] == calls.thread[i] and calls.correlation[i + 1] > first:
            until = min(until, calls.correlation[i + 1])
        at = bisect_right(free, first, lo=at)
        if at < len(free) and free[at] < until:
            at += 1
            yield i


def _by_kind(counts: Mapping[LaunchKind, int], lost: Sequence[_Lost], recorded: Recorded) -> tuple[LaunchRecord, ...]:
    """The records of so many calls of each kind, some of which lost work, as far as they ever had some."""
    nothing = _without_work(lost, recorded) if lost else set()
    edges = recorded.kernel_calls() if len(nothing) < len(lost) else None
    found = []
    for kind in LaunchKind:
        own = [each for each in lost if each.kind is kind and each not in nothing]
        inside = [each for each in own if edges is None or edges[0] <= each.call.start_ns <= edges[1]]
        outside = len(own) - len(inside)
        calls = counts[kind] - outside - sum(each.kind is kind for each in nothing)
        if calls or outside:
            share = sum((each.share for each in inside), Fraction())
            without = share.numerator if share.denominator == 1 else share
            found.append(LaunchRecord(kind, calls, without, min((e.call for e in inside), default=None), outside))
    return tuple(found)


def _without_work(lost: Sequence[_Lost], recorded: Recorded) -> set[_Lost]:
    """Those of the calls that launched nothing: while their thread captured a graph, or of 0 bytes."""
    empty = recorded.empty() if any(each.kind is LaunchKind.COPY for each in lost) else ()
    captures = _captures(recorded.captures())
    found = set()
    for each in lost:
        moments, depths = captures.get(each.call.thread, ([], []))
        at = bisect_right(moments, each.call.start_ns)
        if (at and depths[at - 1] > 0) or each.correlation in empty:
            found.add(each)
    return found


def _captures(calls: Iterable[Api]) -> dict[int, tuple[list[int], list[int]]]:
    """By thread the moments of which each begins or ends a capture, and how many are going on from then on."""
    found: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], [0]))
    for call in sorted(calls):
        begins = fnmatchcase(call.name, BEGINS_CAPTURE)
        moments, depths = found[call.thread]
        moments.append(call.start_ns)
        depths.append(max(depths[-1] + (1 if begins else -1), 0))
    return {thread: (moments, depths[1:]) for thread, (moments, depths) in found.items()}
