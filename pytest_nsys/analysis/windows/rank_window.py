"""One window of one rank, and what every metric asks of it: who communicates, where, under which stage.

A kernel that communicates on a stream which also computes in the window is an in-order *barrier*: never exposed, never
overlapped. A *communication stream* has no compute kernel in the window. Compute is what runs on compute streams. On a
stream that keeps no order communication is judged by time, as on one of its own.

Of a window without a kernel one line says why, and what could be measured instead. Where the GPU runs far behind the
CPU no kernel executes inside the CPU times of its own range; where a slice was cut out of a trace the launches are
gone. The line gives the lag, the share without a launch row, and how many anchors hold kernels in each mode.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

from pytest_nsys.analysis.windows.spans import RUN, WindowSpec, marks_steps
from pytest_nsys.analysis.windows.tracks import Context, Contexts, RankTrack
from pytest_nsys.core.columns import (
    Column,
    Flags,
    Indices,
    counts,
    distinct,
    members_by,
    minus,
    narrowed,
    spread,
    sums_by,
    take,
    total,
    where,
    where_not,
)
from pytest_nsys.core.conventions import BUILT_IN, COMPUTE, MIXED, UNKNOWN, Convention, like
from pytest_nsys.core.errors import did_you_mean
from pytest_nsys.core.intervals import Intervals, hull
from pytest_nsys.core.model import Interval, KernelsMode, Range, Rank, Span, Stream, Window
from pytest_nsys.core.numbers import format_together, share_of
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.words import printable

C = TypeVar("C", "array[int]", bytearray)


class StreamUse(NamedTuple):
    """What one stream did in a window. ``purpose`` is ``compute`` for a compute stream."""

    stream: Stream
    communication_kernels: int
    compute_kernels: int
    communication_ns: int
    compute_ns: int
    purpose: str


class RankWindow:
    """The kernels of ``track`` that are in ``window`` under the spec's mode; times cut where the mode is clipped.

    ``positions`` are their indices in the track. ``start_ns`` and ``end_ns`` bound the window in GPU time: the
    window's own, but with mode launched from the first start to the last end of its kernels; a step, which
    ``goes_on`` between its kernels and those of the next one, until that has the GPU. ``ran_ns`` is around all of it.
    """

    def __init__(self, track: RankTrack, window: Window, spec: WindowSpec, positions: Indices) -> None:
        self.track, self.window, self.spec, self.positions = track, window, spec, positions
        self.rank = track.rank
        self._whole = len(positions) == len(track.kernels)
        kernels = track.kernels if self._whole else track.kernels.take(positions)
        clipped = spec.kernels is KernelsMode.CLIPPED and not spec.whole_run
        self.kernels = kernels.cut(window.start_ns, window.end_ns) if clipped else kernels
        self._is_track = self.kernels is track.kernels
        self.start_ns, self.end_ns = window.start_ns, window.end_ns
        self.goes_on, self.ran_ns = False, (self.start_ns, self.end_ns)
        if spec.by_launch and len(kernels):
            own = min(kernels.start_ns), max(kernels.end_ns)
            on_gpu = None if window.index is None or track.steps is None else track.steps.time_on_gpu(window.start_ns)
            self.start_ns, self.end_ns = on_gpu or own
            self.goes_on, self.ran_ns = on_gpu is not None, hull([own, on_gpu or own])

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def anchors(self) -> Sequence[Range]:
        """Those of its rank that it was picked from."""
        return self.track.anchors

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    @cached_property
    def meanwhile(self) -> RankWindow:
        """All that ran in its time, cut at its edges, whichever step launched it; itself where it is no step of
        launches: then its time is that of its kernels.
        """
        if not self.goes_on:
            return self
        spec = WindowSpec(f"{self.start_ns}:{self.end_ns}", kernels=KernelsMode.CLIPPED)
        window = Window(self.start_ns, self.end_ns, self.window.name)
        return RankWindow(self.track.on_gpu, window, spec, in_window(self.track.on_gpu, window, spec))

    def named(self, called: Callable[[str, str], str]) -> tuple[Column, Sequence[str]]:
        """A number for each kernel, and what that stands for: how its short name, and the demangled one that may be
        empty, is called. Numbered as the names are sorted.
        """
        kernels, names = self.kernels, self.kernels.names
        numbers, ids = distinct(kernels.name, kernels.full_name)
        told = [called(names[short], names.get(full, "")) for short, full in ids]
        place = {name: at for at, name in enumerate(sorted({*told}))}
        return take(array("q", [place[name] for name in told]), numbers), [*place]

    def _here(self, of_track: C) -> C:
        """What is known of each kernel of the track, of those of the window."""
        return of_track if self._whole else take(of_track, self.positions)

    @cached_property
    def communicates(self) -> Flags:
        """1 where a kernel of the window is communication."""
        return self._here(self.track.communicates)

    @cached_property
    def durations_ns(self) -> Column:
        """Length of each kernel in the window."""
        return narrowed(minus(self.kernels.end_ns, self.kernels.start_ns))

    @cached_property
    def whole_durations_ns(self) -> Column:
        """Length of each kernel, also of what the window cuts off."""
        return self._here(minus(self.track.kernels.end_ns, self.track.kernels.start_ns))

    @cached_property
    def launch_ns(self) -> Column:
        """Start of the earliest launch row of each kernel of the window, NO_LAUNCH where there is none."""
        return self._here(self.track.launch_ns)

    @cached_property
    def by_name(self) -> Mapping[tuple[int, int], tuple[int, int]]:
        """(time in ns, number) of the kernels of each (short name id, demangled name id)."""
        return sums_by(lambda *ids: ids, self.durations_ns, self.kernels.name, self.kernels.full_name)

    @property
    def whole_names(self) -> frozenset[str]:
        """The demangled names of the kernels, the short ones of those without."""
        names = self.kernels.names
        return frozenset(names.get(full) or names[short] for short, full in self.by_name)

    @cached_property
    def compute_streams(self) -> frozenset[int]:
        """Indices of the streams with at least one compute kernel in the window."""
        computing = counts(take(self.kernels.stream, self.compute), len(self.kernels.streams))
        return frozenset(stream for stream, kernels in enumerate(computing) if kernels)

    @cached_property
    def all_communication(self) -> Column:
        """The communication kernels, barriers too, by index in the window."""
        return where(self.communicates)

    @cached_property
    def _in_order(self) -> Flags:
        """Of :attr:`all_communication`, 1 where the kernel's stream computes too, if it is one that keeps order."""
        none = self.track.unordered
        computes = bytearray(i in self.compute_streams and s not in none for i, s in enumerate(self.kernels.streams))
        return take(computes, take(self.kernels.stream, self.all_communication))

    @cached_property
    def communication(self) -> Column:
        """The communication kernels on communication streams, by index in the window."""
        return take(self.all_communication, where_not(self._in_order))

    @cached_property
    def barriers(self) -> Column:
        """The communication kernels on compute streams, by index in the window."""
        return take(self.all_communication, where(self._in_order))

    @property
    def hides_barriers(self) -> bool:
        """Whether compute may run during a barrier: on another stream, for a barrier is in order with its own."""
        return bool(self.barriers) and len(self.compute_streams) > 1

    @cached_property
    def compute(self) -> Column:
        """The compute kernels, by index in the window."""
        return where_not(self.communicates)

    def starts_and_ends(self, indices: Column) -> tuple[Column, Column]:
        """When the kernels at ``indices`` start and end."""
        return take(self.kernels.start_ns, indices), take(self.kernels.end_ns, indices)

    def spans(self, indices: Column) -> Iterator[Interval]:
        """(start, end) of the kernels at ``indices``."""
        return zip(*self.starts_and_ends(indices), strict=True)

    def time_of(self, indices: Column) -> Intervals:
        """When any of the kernels at ``indices`` ran."""
        return self.kernels.time_of(indices)

    @cached_property
    def busy_time(self) -> Intervals:
        """When any kernel ran."""
        return Intervals(self.kernels.start_ns, self.kernels.end_ns)

    @cached_property
    def compute_time(self) -> Intervals:
        """When compute ran."""
        return self.track.compute_time if self._is_track else self.time_of(self.compute)

    @cached_property
    def communication_time(self) -> Intervals:
        """When communication ran on communication streams."""
        return self.time_of(self.communication)

    @cached_property
    def all_communication_time(self) -> Intervals:
        """When communication ran, barriers included."""
        return self.track.communication_time if self._is_track else self.time_of(self.all_communication)

    @cached_property
    def exposed_ns(self) -> Column:
        """Of each kernel of ``communication`` the part during which no compute ran; 0 of any other kernel."""
        compute = self.track.on_gpu.compute_time if self.goes_on else self.compute_time
        hidden = compute.covered(*self.starts_and_ends(self.communication))
        exposed = minus(take(self.durations_ns, self.communication), hidden)
        return narrowed(spread(self.communication, exposed, len(self), 0))

    @cached_property
    def under_communication(self) -> Column:
        """The compute kernels during which communication ran anywhere in the run, by index in the window."""
        covered = self.track.whole.communication_time.covered(*self.starts_and_ends(self.compute))
        return take(self.compute, where(covered))

    def context(self, i: int) -> Context:
        """(stage, purpose) of kernel ``i`` of the window."""
        return self._contexts.of(i)

    @cached_property
    def _contexts(self) -> Contexts:
        contexts = self.track.contexts
        return contexts._replace(codes=self._here(contexts.codes))

    def contexts_of(self, communication: Column) -> dict[Context, int]:
        """How many of these communication kernels have each (stage, purpose)."""
        codes, known, _ = self._contexts
        each = zip(known, counts(take(codes, communication), len(known)), strict=True)
        return {context: number for context, number in each if number}

    @cached_property
    def by_stage(self) -> dict[str, Column]:
        """The kernels of ``communication`` by stage, stages ordered by name."""
        codes, known, _ = self._contexts
        return dict(sorted(members_by(lambda code: known[code][0], codes, among=self.communication).items()))

    @cached_property
    def by_place(self) -> dict[tuple[str, str, str | None], Column]:
        """The communication kernels, barriers too, by short name, stage and purpose, each in order of start."""
        (codes, known, _), names = self._contexts, self.kernels.names
        columns = self.kernels.name, codes
        return members_by(lambda name, code: (names[name], *known[code]), *columns, among=self.all_communication)

    @property
    def stages(self) -> tuple[Column, Sequence[str]]:
        """A number for each kernel, and the stage that the number stands for; two numbers may stand for one."""
        codes, known, _ = self._contexts
        return codes, [stage for stage, _ in known]

    @cached_property
    def all_by_stage(self) -> dict[str, Column]:
        """All kernels of the window by stage, stages ordered by name."""
        numbers, stages = self.stages
        return dict(sorted(members_by(stages.__getitem__, numbers).items()))

    @cached_property
    def by_stream(self) -> dict[Stream, Column]:
        """All kernels of the window by stream, ordered by (device, context, stream)."""
        return dict(sorted(members_by(self.kernels.streams.__getitem__, self.kernels.stream).items()))

    @cached_property
    def streams(self) -> list[StreamUse]:
        """What each stream did, in the order of :attr:`by_stream`."""
        return [self._stream_use(stream, indices) for stream, indices in self.by_stream.items()]

    def _stream_use(self, stream: Stream, indices: Column) -> StreamUse:
        communication = take(indices, where(take(self.communicates, indices)))
        communication_ns = total(take(self.durations_ns, communication))
        compute = len(indices) - len(communication)
        return StreamUse(
            stream=stream,
            communication_kernels=len(communication),
            compute_kernels=compute,
            communication_ns=communication_ns,
            compute_ns=total(take(self.durations_ns, indices)) - communication_ns,
            purpose=COMPUTE if compute else self._purpose(communication),
        )

    def _purpose(self, communication: Column) -> str:
        """Unanimous vote: disagreement is ``mixed``, also between a known and an unknown purpose."""
        votes = {purpose or UNKNOWN for _, purpose in self.contexts_of(communication)}
        return votes.pop() if len(votes) == 1 else MIXED


def in_window(track: RankTrack, window: Window, spec: WindowSpec) -> Indices:
    """Indices in the track of the kernels that are in the window under the spec's mode."""
    starts, ends = track.kernels.start_ns, track.kernels.end_ns
    low, high = window.start_ns, window.end_ns
    if spec.whole_run:
        return range(len(starts))
    # What begins with the next window belongs to that.
    until = bisect_left if marks_steps(track.convention, spec) and window.index is not None else bisect_right
    if spec.kernels is KernelsMode.LAUNCHED:
        # A period is half open: a launch at the next anchor's start belongs to the next one.
        half_open = spec.span is Span.PERIOD and window.index is not None
        by_launch, launch = track.launch_order, track.launch_ns
        first = bisect_left(by_launch, low, key=launch.__getitem__)
        after = (bisect_left if half_open else until)(by_launch, high, key=launch.__getitem__)
        return array("q", sorted(by_launch[first:after]))
    if spec.kernels is KernelsMode.CONTAINED:
        first, after = bisect_left(starts, low), until(starts, high)
        return array("q", [i for i in range(first, after) if ends[i] <= high])
    first, after = bisect_left(starts, low - track.longest_ns), until(starts, high)
    touching = (
        i
        for i in range(first, after)
        if (starts[i] < high and ends[i] > low) or (starts[i] == ends[i] and low <= starts[i])
    )
    return array("q", touching)


SHOWN = 5
_NUMBER = re.compile(r"\d+")


def pattern_of(name: str) -> str:
    """The name with each number replaced by the wildcard: an anchor pattern that a person can paste."""
    return _NUMBER.sub("%", name)


def most_frequent(names: Sequence[tuple[str, int]]) -> str:
    """The patterns of the most frequent of these range names, with their counts; empty where there are none."""
    counts: Counter[str] = Counter()
    for name, count in names:
        counts[pattern_of(name)] += count
    named = {name: n for name, n in counts.items() if not name.startswith(("aten::", "nccl"))} or counts
    common = sorted(named.items(), key=lambda item: (-item[1], item[0]))[: 2 * SHOWN]
    return ", ".join(f"'{printable(name, 60)}' ({count})" for name, count in common)


def explain_no_anchor(trace: Trace, convention: Convention, rank: Rank, spec: WindowSpec) -> str:
    """No range matches the anchor: the most frequent names are shown instead."""
    anchor = spec.anchor or convention.anchor
    names = trace.common_range_names(rank.process.global_pid)
    shown = most_frequent(names)
    what = f"no range matches the anchor '{printable(str(anchor))}'" if anchor else "the convention names no anchor"
    what += did_you_mean(spec.anchor or "", convention.kind_names)
    if not shown:
        seen = f"the trace holds no ranges at all: {trace.facts().to_see_ranges}"
    else:
        seen = f"most frequent ranges: {shown}"
    fits = _convention_with_anchor([name for name, _ in names])
    if fits is not None and fits.anchor != convention.anchor:
        remedy = f"convention: {fits.name}, which has an anchor for it (in a command --convention {fits.name})"
    else:
        remedy = "convention: {anchor: …} (in a command --anchor; `pytest-nsys TRACE` tells what repeats)"
    remedy += f", or window: {RUN} (`pytest-nsys TRACE --window {RUN}`)"
    return f"{rank.trace}: rank {rank.number} (process {rank.pid}): {what}; {seen}. Set {remedy}"


def _convention_with_anchor(names: Sequence[str]) -> Convention | None:
    """The first built-in convention whose anchor one of these range names matches."""
    with_anchor = ((convention, like(convention.anchor)) for convention in BUILT_IN.values() if convention.anchor)
    return next((convention for convention, is_anchor in with_anchor if any(map(is_anchor, names))), None)


def explain_empty(windows: Sequence[RankWindow], whole: RankTrack | None) -> str:
    """Which windows of a rank hold no kernel, how far the GPU is behind, and what to do.

    ``whole`` is all that the rank ran, None where that is the window.
    """
    rank, spec = windows[0].rank, windows[0].spec
    if whole is not None and not len(whole.kernels):
        label = f" with the setup label '{printable(rank.setup.text)}'" if rank.setup is not None else ""
        return f"{rank.trace}: no kernel belongs to process {rank.pid}{label}: ids do not join, or it used no GPU"
    empty = [window.window for window in windows if not len(window)]
    where = f"window '{printable(empty[0].name, 80)}'"
    if empty[0].index is not None:
        where += f" (index {empty[0].index} of {empty[0].count})"
    if len(windows) > 1:
        where = f"{len(empty)} of {len(windows)} windows, the first {where[len('window ') :]},"
    said = [f"{rank.trace}: rank {rank.number} (process {rank.pid}): {where} holds no kernel, kernels {spec.kernels}"]
    if whole is not None:
        said.append(_lag(whole))
        if anchors := windows[0].anchors:
            told = ", ".join(f"{mode} {n}" for mode, n in _counts(whole, anchors).items())
            said.append(f"anchors that hold kernels: {told} of {len(anchors)}")
        said.append(f"`pytest-nsys TRACE` tells what repeats; window {RUN} measures the whole run")
    return "; ".join(said)


def _lag(track: RankTrack) -> str:
    lags, launched = track.lags_ns, track.launched
    share = f"{share_of(launched.without, launched.kernels)} of {launched.kernels} kernels have no launch row"
    if not lags:
        return share
    median, longest = format_together([lags[len(lags) // 2], lags[-1]])
    return f"the GPU is {median} behind the CPU (median; at most {longest}; {share})"


def _counts(track: RankTrack, ranges: Sequence[Range]) -> dict[KernelsMode, int]:
    """How many of the ranges hold a kernel, by mode."""
    starts, ends = track.kernels.start_ns, track.kernels.end_ns
    busy, launches = Intervals(starts, ends), take(track.launch_ns, track.launch_order)
    found = dict.fromkeys(KernelsMode, 0)
    for r in ranges:
        inside = range(bisect_left(starts, r.start_ns), bisect_right(starts, r.end_ns))
        found[KernelsMode.CONTAINED] += any(ends[i] <= r.end_ns for i in inside)
        found[KernelsMode.CLIPPED] += busy.covered_ns(r.start_ns, r.end_ns) > 0
        found[KernelsMode.LAUNCHED] += bisect_left(launches, r.start_ns) < bisect_right(launches, r.end_ns)
    return found
