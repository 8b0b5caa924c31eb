"""What makes the windows of a run doubtful: files of other runs, anchors that are other work, or communication that
counts as compute? Here the facts, and the notes that tell of them; ``quality`` holds them against bounds.

The window is found by counting anchors. Where the record of the kernels does not reach over that of the ranges, or
where one rank has fewer anchors than the ranks beside it, the one in the middle may be whole and be another piece of
work.

What kernels of a known communication library cover of other communication, while they count as compute, is told as
hidden, and what they leave exposed themselves is told of nobody.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.analysis.around import RankTrack
from pytest_nsys.analysis.bounds import FEW_ANCHORS
from pytest_nsys.analysis.common_clock import zeros_of
from pytest_nsys.analysis.run import Run, WindowGroup
from pytest_nsys.analysis.sharing import sharing_in
from pytest_nsys.analysis.step_kinds import counted_steps
from pytest_nsys.analysis.throughput import Deviation, deviation
from pytest_nsys.analysis.windows import MEDIAN, WindowSpec, anchor_of, numbered, whole_steps
from pytest_nsys.core.columns import total
from pytest_nsys.core.conventions import BUILT_IN, Convention, KernelAnchor
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.exact import median
from pytest_nsys.core.families import KnownLibrary, qualified_name
from pytest_nsys.core.kept import grouped, kept
from pytest_nsys.core.model import (
    OPEN_END_NS,
    SINCE_1970,
    Interval,
    Lane,
    Note,
    ProcessId,
    Range,
    Trace,
    Value,
)
from pytest_nsys.core.numbers import format_value, percent, share_of
from pytest_nsys.core.words import counted, printable, ranks_words
from pytest_nsys.traces.gpu_log import notes_on_gpus


class Empty(NamedTuple):
    """How many of a rank's anchors, which are of a ``unit``, have no kernel."""

    rank: int
    anchors: int
    of: int
    unit: str

    def __str__(self) -> str:
        have = "has" if self.anchors == 1 else "have"
        return f"rank {self.rank}: {self.anchors} of {counted(self.of, self.unit)} {have} no kernel"


class Uneven(NamedTuple):
    """The fewest and the most anchors of ranks that should have as many; ``alike``: they are of one ``pp`` coordinate.

    Each is (number of what they are ``of``, rank).
    """

    fewest: tuple[int, int]
    most: tuple[int, int]
    alike: bool
    of: str = "anchor"

    @property
    def apart(self) -> int:
        """How many anchors lie between them."""
        return self.most[0] - self.fewest[0]

    def __str__(self) -> str:
        (few, rank), (many, other) = self.fewest, self.most
        return f"rank {rank} has {counted(few, self.of)}, rank {other} has {many}"


def empty_anchors(group: WindowGroup) -> list[Empty]:
    """The ranks that have such anchors, wherever these lie."""
    found = []
    for number, own in idle_periods(group).items():
        starts, rank = {start for start, _ in own}, group.tracks[number].rank
        anchors = group.run.marks(rank, group.spec)
        found.append(Empty(number, sum(anchor.start_ns in starts for anchor in anchors), len(anchors), group.spec.unit))
    return found


@kept
def idle_periods(group: WindowGroup) -> Mapping[int, Sequence[Interval]]:
    """By rank the times from one anchor to the next in which none of its kernels runs; under kernels: launched, in
    which none is launched either. A unit of kernels always has some.
    """
    found: dict[int, Sequence[Interval]] = {}
    if isinstance(anchor_of(group.run.convention, group.spec), KernelAnchor):
        return found
    each = _idle(group.run, WindowSpec(group.spec.anchor or MEDIAN))
    for number, (trace, idle) in enumerate(zip(group.run.traces, each, strict=True)):
        if idle and group.spec.by_launch:
            idle = _without_launch(trace, idle)
        found |= {rank.number: idle[rank.lane] for rank in group.run.ranks_of(number) if rank.lane in idle}
    return {number: own for number, own in found.items() if number in group.tracks}


@kept
def _idle(run: Run, spec: WindowSpec) -> list[Mapping[Lane, Sequence[Interval]]]:
    """By trace, whichever windows are measured."""
    each = []
    for number, trace in enumerate(run.traces):
        anchors = {rank.lane: run.anchors(rank, spec) for rank in run.ranks_of(number)}
        each.append(trace.idle({lane: _periods(own) for lane, own in anchors.items() if own}))
    return each


def _periods(anchors: Sequence[Range]) -> list[Interval]:
    starts = sorted({anchor.start_ns for anchor in anchors})
    return list(pairwise([*starts, OPEN_END_NS]))


def _without_launch(trace: Trace, idle: Mapping[Lane, Sequence[Interval]]) -> Mapping[Lane, Sequence[Interval]]:
    try:
        kernels = trace.kernels_launched({lane: (own[0][0], own[-1][1]) for lane, own in idle.items()})
    except NothingMeasured:  # of a cut, which says what it was in its trace
        return idle
    launches = {lane: sorted(own) for lane, own in trace.launches(kernels).items()}
    each = {lane: _between(launches.get(lane, ()), own) for lane, own in idle.items()}
    return {lane: own for lane, own in each.items() if own}


def _between(launches: Sequence[int], spans: Sequence[Interval]) -> list[Interval]:
    """The spans in which there is none."""
    return [(low, high) for low, high in spans if bisect_left(launches, low) == bisect_left(launches, high)]


def uneven_anchors(group: WindowGroup) -> Uneven | None:
    """The worst difference among the ranks of one ``pp`` coordinate, where pipelines do as much; else among all ranks.

    None where all ranks have as many.
    """
    anchors = {number: len(track.anchors) for number, track in group.tracks.items()}
    counts, of = [(count, number) for number, count in anchors.items()], group.spec.unit
    places = grouped((group.tracks[number].rank.coordinates.get("pp"), (count, number)) for count, number in counts)
    alike = [Uneven(min(own), max(own), True, of) for own in places.values()]
    worst = max(alike, key=lambda each: each.apart, default=None)
    if worst is not None and worst.apart:
        return worst
    among_all = Uneven(min(counts), max(counts), False, of) if counts else None
    return among_all if among_all is not None and among_all.apart else None


LONG = Fraction(3, 2)
"""Times the judged step: steps that take longer are told where they make up MUCH of the run."""

MUCH = Fraction(5, 100)


class SlowSteps(NamedTuple):
    """How many ``steps`` of a rank, ``of`` how many, take over ``LONG`` times as long as the judged one, and the
    ``share`` of the time of all that they take.
    """

    rank: int
    steps: int
    of: int
    share: Fraction

    def __str__(self) -> str:
        slow = f"{self.steps} of {counted(self.of, 'step')} {'takes' if self.steps == 1 else 'take'}"
        told = f"over {float(LONG):g} times as long as the judged one, {percent(self.share)} of the time of all"
        return f"rank {self.rank}: {slow} {told}: 'mean step time' counts every step"


def slow_steps(group: WindowGroup) -> SlowSteps | None:
    """Return the rank whose longer steps make up most of its run, where that is MUCH; else None."""
    found = []
    for number, windows in group.ranks.items():
        lengths = [*counted_steps(windows[0].track.step_lengths_ns).values()] if windows else []
        judged = median([window.length_ns for window in windows if window.window.index is not None] or [0])
        slow = [ns for ns in lengths if judged and ns > LONG * Fraction(judged)]
        found.append(SlowSteps(number, len(slow), len(lengths), Fraction(sum(slow), sum(lengths) or 1)))
    worst = max(found, key=lambda each: (each.share, -each.rank), default=None)
    return worst if worst is not None and worst.share >= MUCH else None


def are_at_other_steps(group: WindowGroup) -> bool:
    """Return whether steps count up on every rank, and no two ranks hold a whole one of the same number."""
    stepping = [track for track in group.tracks.values() if track.steps is not None and not track.convention.kinds]
    each = [{*[*numbered(track.anchors)][: whole_steps(track.anchors)]} for track in stepping]
    return len(each) > 1 and all(each) and not set.intersection(*each)


class Apart(NamedTuple):
    """A file ends ``gap_ns`` before the next one begins."""

    earlier: Path
    later: Path
    gap_ns: int

    def __str__(self) -> str:
        return f"{self.earlier} ends {format_value(self.gap_ns)} before {self.later} begins"


def apart(group: WindowGroup) -> Apart | None:
    """The longest time between files of a run, as far as their clocks are absolute; None where all overlap."""
    zeros = zeros_of(group.run)
    each = [(track.rank.process.clock, track) for track in group.tracks.values() if track.rank.process.clock in zeros]
    spans = sorted((*_moments(group.run, track, zeros[clock]), track.rank.trace) for clock, track in each)
    found: list[Apart] = []
    for number, (begins, _, later) in enumerate(spans[1:], 1):
        ends, earlier = max((end, path) for _, end, path in spans[:number])
        found += [Apart(earlier, later, begins - ends)] if begins > ends else []
    return max(found, key=lambda each: each.gap_ns, default=None)


def _moments(run: Run, track: RankTrack, zero_ns: int) -> Interval:
    """When the profiler was on at least, in ns since 1970: its session, the anchors and the kernels around windows."""
    process, facts = track.rank.process, run.facts[track.rank.process.trace]
    times = [t for anchor in track.anchors for t in (anchor.start_ns, anchor.end_ns)]
    times += [*track.kernels.start_ns[:1], *track.kernels.end_ns[-1:]]
    low, high = min(times, default=0), max(times, default=0)
    if low in SINCE_1970:  # an export can shift all times to UTC
        return low, high
    session_ns = facts.sessions_ns.get(process.global_pid, facts.session_ns) or 0
    return zero_ns + (min(low, 0) if session_ns else low), zero_ns + max(high, session_ns)


SHOWN = 3
WHY_UNCOUNTED = "communication that runs beside them looks hidden"


class Uncounted(NamedTuple):
    """Time in ns of such kernels by qualified name, how many there are, and the time of all kernels."""

    times_ns: Mapping[str, int]
    kernels: int
    whole_ns: int
    known: frozenset[KnownLibrary]

    @property
    def share(self) -> Value:
        """Of the time of all kernels."""
        return Fraction(sum(self.times_ns.values()), self.whole_ns or 1)

    @property
    def libraries(self) -> str:
        """Whose kernels they are."""
        return ", ".join(sorted({known.library for known in self.known}))

    @property
    def words(self) -> str:
        """How many, of whom, how long, and which take longest."""
        order = sorted(self.times_ns.items(), key=lambda item: (-item[1], item[0]))
        each = [f"{printable(name, 80)} {format_value(ns)}" for name, ns in order[:SHOWN]]
        more = [f"{len(order) - SHOWN} more"] if len(order) > SHOWN else []
        count = "counts" if self.kernels == 1 else "count"
        who = f"{counted(self.kernels, 'kernel')} of {self.libraries} {count} as compute"
        return f"{who}, {percent(self.share)} of the kernel time ({', '.join([*each, *more])})"

    def globs(self, convention: Convention) -> tuple[str, ...]:
        """What the convention names so far, and them."""
        return (*convention.communication, *sorted({known.glob for known in self.known}))

    def remedy(self, convention: Convention) -> str:
        """The line that makes them communication."""
        key = f"communication: {json.dumps(self.globs(convention), ensure_ascii=False)}"
        if convention == BUILT_IN.get(convention.name):
            return f"write convention: {{extends: {convention.name}, {key}}}"
        return f"write {key} in the convention"


def uncounted(group: WindowGroup) -> Uncounted | None:
    """Such kernels in the windows of a group; None for none."""
    times: Counter[str] = Counter()
    found: set[KnownLibrary] = set()
    kernels = 0
    for window in group:
        names, own = window.kernels.names, window.track.uncounted
        for key in own.keys() & window.by_name.keys() if own else ():
            ns, count = window.by_name[key]
            times[qualified_name(names.get(key[1], "") or names[key[0]])] += ns
            found.add(own[key])
            kernels += count
    if not kernels:
        return None
    whole = sum(total(window.durations_ns) for window in group)
    return Uncounted(times, kernels, whole, frozenset(found))


UNTYPICAL = 5
"""A window this many MAD away from the steady median is no typical one."""


def launchless(group: WindowGroup) -> tuple[int, int]:
    """Kernels around the windows without a launch row, and of how many."""
    found = [track.launched for track in group.tracks.values()]
    return sum(each.without for each in found), sum(each.kernels for each in found)


def anchor_counts(group: WindowGroup) -> list[tuple[int, int]]:
    """(rank number, number of anchors) of each rank that has one."""
    return [(number, len(track.anchors)) for number, track in group.tracks.items() if track.anchors]


def is_one(counts: Sequence[tuple[int, int]]) -> bool:
    """Whether every rank has one anchor: the run is one step."""
    return {count for _, count in counts} == {1}


def have_anchors(ranks: Sequence[int], count: int, spec: WindowSpec) -> str:
    """How many anchors these ranks have, in words."""
    return f"{ranks_words(ranks)} {'has' if len(ranks) == 1 else 'have'} {counted(count, spec.unit)}"


def deviations(group: WindowGroup) -> list[tuple[int, Deviation]]:
    """(rank number, how far its window is from the steady median) where each has one window by an anchor."""
    return [
        (number, found)
        for number, windows in group.ranks.items()
        if len(windows) == 1 and (found := deviation(windows[0])) is not None
    ]


def notes_on(
    run: Run, spec: WindowSpec, *, stages: bool = True, streams: bool = True, launches: bool = True
) -> Iterator[Note]:
    """What a person should know about the windows of a run that were measured under ``spec``.

    ``stages``: the metric looks stages or purposes up at launches; ``streams``: it tells streams apart; ``launches``:
    it is read off launches in another way. What is told depends on what was asked alone, never on what is read already.
    """
    yield from run.rank_notes
    for number, (trace, facts) in enumerate(zip(run.traces, run.facts, strict=True)):
        own = {rank.process.global_pid for rank in run.ranks if rank.process.trace == number}
        unasked = ", ".join(str(ProcessId(number, pid).pid) for pid in sorted(trace.unasked() - own))
        if unasked:
            yield Note(f"{trace.path}: kernels of process {unasked} are not judged: it has no setup label", True)
        if facts.whole_graphs:
            n = facts.whole_graphs
            yield Note(f"{trace.path}: {n} CUDA graph replays were traced whole: their kernels are in no window", True)
        for each in facts.diagnostics[:3]:
            yield Note(f"{trace.path}: the profiler says: {printable(each.told)}", True)
        for text in facts.notes:
            yield Note(printable(text, 1000))
        yield from notes_on_gpus(trace.path)
        yield from (note._replace(text=f"{trace.path}: {note.text}") for note in facts.on_gpus)
    group = run.measured(spec)
    yield from about_uncounted(group)
    yield from _about_order(group)
    if (found := apart(group)) is not None:
        yield Note(f"{found}: files of one run overlap in time", True)
    yield from _about_anchors(group)
    by_launch = spec.by_launch
    if by_launch:
        yield from _about_unlaunched(group)
    elif stages:
        yield from _about_launches(group)
    if by_launch or stages or launches:
        yield from _about_early(group)
    yield from about_graphs(group)
    if streams:
        yield from _about_streams(group)


def about_uncounted(group: WindowGroup) -> Iterator[Note]:
    """That kernels of known communication libraries count as compute."""
    if (found := uncounted(group)) is not None:
        yield Note(f"{found.words}: {WHY_UNCOUNTED}; {found.remedy(group.run.convention)}", True)


def _about_order(group: WindowGroup) -> Iterator[Note]:
    """That streams keep no order: once, with the one that shows it most."""
    found = [(share, n, s) for n, track in group.tracks.items() for s, share in track.unordered.items()]
    if found:
        share, number, stream = max(found, key=lambda each: (each[0], -each[1]))
        more = f", and {counted(len(found) - 1, 'more such stream')}" if len(found) > 1 else ""
        inside = f"{percent(share)} of its kernel time runs inside other kernels of it"
        yield Note(
            f"stream {stream.number} of rank {number} keeps no order{more}: {inside}. Its order proves nothing; "
            "its communication is no barrier and is judged by time"
        )


ONE_STEP = Note("one step: the noise within this run is unknown; several captures would show it", True)


@kept
def _about_anchors(group: WindowGroup) -> tuple[Note, ...]:
    """Computed once for a group: a run of thousands of anchors is asked by every assertion."""
    return tuple(_anchor_notes(group))


def _anchor_notes(group: WindowGroup) -> Iterator[Note]:
    counts = anchor_counts(group)
    if is_one(counts):
        yield ONE_STEP
        counts = []
    few = grouped((count, number) for number, count in counts if count < FEW_ANCHORS)
    for count, ranks in sorted(few.items()):
        yield Note(
            f"{have_anchors(ranks, count, group.spec)}: with fewer than {FEW_ANCHORS} the median is unreliable", True
        )
    for empty in empty_anchors(group):
        yield Note(f"{empty}: its kernels were not recorded for as long as its ranges", True)
    if uneven := uneven_anchors(group):
        yield Note(f"{uneven}: windows picked by number hold different work", uneven.alike)
    mixed = [number for number, track in group.tracks.items() if track.steps is not None and track.steps.mixed]
    if mixed:
        yield Note(
            f"{ranks_words(mixed)}: steps under one label launch other kernels, and take no turns: they are mixed"
        )
    if are_at_other_steps(group):
        yield Note("the ranks hold no step of the same number: what is compared across them is other work", True)
    if slow := slow_steps(group):
        yield Note(str(slow), True)
    for number, found in deviations(group):
        if found.in_spreads > UNTYPICAL:
            yield Note(f"rank {number}: the window is untypical, {found}", True)


def _about_launches(group: WindowGroup) -> Iterator[Note]:
    """Of the kernels that were looked up."""
    tracks = list(group.tracks.values())
    found = [track.looked_up for track in tracks if track.looked_up is not None]
    looked_up = sum(len(each.codes) for each in found)
    without, whole = launchless(group) if looked_up else (0, 0)
    if without:
        which = f"{share_of(without, whole)} of {whole} kernels around the windows"
        yield Note(f"{which} have no launch row: their stage was looked up at their GPU start", without * 10 > whole)
    if twice := sum(each.claimed_twice for each in found):
        share = f"{share_of(twice, looked_up)} of {looked_up}"
        yield Note(f"{share} launches lie inside ranges of two threads: the shorter range was taken")


def about_graphs(group: WindowGroup) -> Iterator[Note]:
    """That of kernels of a CUDA graph one launch is on record: neither their order nor what each waits for."""
    tracks = group.tracks.values()
    if nodes := sum(total(track.kernels.graph_node) for track in tracks):
        which = f"{nodes} of {counted(sum(len(track.kernels) for track in tracks), 'kernel')} around the windows"
        unknown = "what each waits for inside is not recorded, and its stage is that of the launch"
        yield Note(f"{which} ran in CUDA graphs: one launch starts many, {unknown}")


def _about_unlaunched(group: WindowGroup) -> Iterator[Note]:
    without, ran = group.unlaunched
    if without:
        which = f"{share_of(without, ran)} of {ran} kernels that ran during the windows"
        yield Note(f"{which} have no launch row and are left out", without * 10 > ran)


def _about_early(group: WindowGroup) -> Iterator[Note]:
    found = [(track.launched, number) for number, track in group.tracks.items()]
    if early := sum(launched.early for launched, _ in found):
        whole = counted(sum(launched.kernels for launched, _ in found), "kernel")
        most, number = max(found, key=lambda each: each[0].lead_ns)
        which = f"of {whole} around the windows, {early} began before the launch, by up to {format_value(most.lead_ns)}"
        yield Note(f"{which} (rank {number}): the clocks of CPU and GPU disagree, or it is another one's launch", True)


def _about_streams(group: WindowGroup) -> Iterator[Note]:
    windows = [window for window in group if len(window)]
    built_in = {pattern for convention in BUILT_IN.values() for pattern in convention.communication}
    for pattern in group.run.convention.communication:
        if pattern in built_in:  # it is for whichever library there is; one that a person wrote is meant to match
            continue
        if not any(fnmatchcase(name, pattern) for window in windows for name in set(window.kernels.names.values())):
            yield Note(f"no kernel around the windows is like the communication pattern '{printable(pattern)}'", True)
    if why := sharing_in(windows).why_not_in_own:
        yield Note(why)
