"""What belongs to the picked windows of a rank, so that they can leave the trace alone and be measured again?

Their kernels, what ran meanwhile and until compute came next, for what streams waited, the ranges and the calls of the
API around these and around their launches, and the anchors elsewhere in the run: by their number and lengths the same
window is picked again, and the steady metrics are what they were. Windows that are picked in several ways leave
together; what several of them hold is there once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeVar

from pytest_nsys.analysis.activity import SYNCHRONISING_CALLS
from pytest_nsys.analysis.common_clock import (
    ALONE,
    ClockStanding,
    CommonClock,
    by_collectives_of,
    common_clock,
    zeros_of,
)
from pytest_nsys.analysis.facts.lost_work import launch_records
from pytest_nsys.analysis.facts.steps import idle_periods
from pytest_nsys.analysis.gaps import goes_on
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.windows import WindowSpec, anchor_of
from pytest_nsys.core.conventions import KernelAnchor
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import (
    NO_LAUNCH,
    Api,
    Clock,
    Copy,
    Interval,
    Lane,
    LaunchRecord,
    Range,
    Rank,
    StepsOfRun,
    Stream,
    Tie,
    TraceFacts,
)
from pytest_nsys.core.tables import NO_CALLS, NO_KERNELS, Kernels, LaunchCalls, Memory, Series, StreamWait
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.words import ranks_words
from pytest_nsys.traces.copies_as_kernels import merged

EVERY_CALL = ("*",)


T = TypeVar("T", bound=Hashable)


class Some(NamedTuple):
    """Some of the ``kernels``, by their ``positions``, and what launched each of all."""

    kernels: Kernels
    calls: LaunchCalls
    positions: Sequence[int]

    def stream(self, i: int) -> Stream:
        """Where one of the kernels ran."""
        return self.kernels.streams[self.kernels.stream[i]]


@dataclass(frozen=True)
class CutView:
    """The windows of one rank as one spec picks them.

    ``others`` are in no window and belong to what is measured again. ``on_gpu_ns``: all kernels of that time are here,
    where that is not the windows' own. ``transfers`` are the copies and memsets that ran in the windows and until
    compute came next; None where the trace has no record of any. ``launches`` is what is on record of the calls in the
    windows, where work of one is not.
    """

    windows: Sequence[RankWindow]
    others: Sequence[Some]
    on_gpu_ns: Interval | None
    transfers: Some | None
    launches: Sequence[LaunchRecord]


@dataclass(frozen=True)
class RankCut:
    """The windows of one rank, and ``span_ns`` around all that is shown of it.

    ``ranges`` touch the span of one of the views, ``anchors`` do not. ``calls``, ``copies``, ``waits`` of streams in
    the whole run, ``memory`` and ``sm_clocks`` are None where the trace has no record of any. ``idle`` are the periods
    of anchors, anywhere in the run, that have no kernel, ``units`` those of a kernel that anchors: see TraceFacts.
    """

    rank: Rank
    views: Sequence[CutView]
    ranges: Sequence[Range]
    anchors: Sequence[Range]
    calls: Sequence[Api] | None
    copies: Sequence[Copy] | None
    waits: Sequence[StreamWait] | None
    memory: Memory | None
    sm_clocks: Series | None
    facts: TraceFacts
    span_ns: Interval
    idle: Sequence[Interval] = ()
    units: Mapping[tuple[str, bool], StepsOfRun] = field(default_factory=dict)

    @property
    def windows(self) -> list[RankWindow]:
        """Those of all views."""
        return [window for view in self.views for window in view.windows]


@dataclass(frozen=True)
class RunCut:
    """The windows of some ranks of a run, with how they were picked. ``side`` names one of two runs, else empty.

    ``named`` are patterns of ranges that are here wherever in the run they are. Not ``drawn``: it has what is measured,
    and nothing that is there to be looked at alone.
    """

    run: Run
    specs: Sequence[WindowSpec]
    ranks: Sequence[RankCut]
    side: str = ""
    named: Sequence[str] = ()
    drawn: bool = True

    @property
    def measured(self) -> str:
        """How the windows were picked, in words."""
        return "; ".join(map(str, self.specs))

    @property
    def patterns(self) -> list[str]:
        """Of which ranges all are here."""
        convention = self.run.convention
        own = (convention.range_anchor, convention.setup_pattern, *(spec.anchor for spec in self.specs), *self.named)
        return sorted({pattern for pattern in own if pattern is not None})

    @property
    def clocks(self) -> list[Clock]:
        """Those that the ranks use, that of the lowest rank first."""
        return list(dict.fromkeys(one.rank.process.clock for one in self.ranks))

    @cached_property
    def _common(self) -> CommonClock | None:
        """That of windows whose own collectives are too few, if there are such: the others tie clocks themselves."""
        if len(self.clocks) < 2:
            return None
        first, *others = (self.run.measured(spec) for spec in self.specs)
        few = (group for group in (first, *others) if by_collectives_of(group).too_few) if others else ()
        return common_clock(next(iter(few), first))

    def standing(self, one: RankCut) -> ClockStanding:
        """How the times of a rank are shown beside those of the others."""
        return ALONE if self._common is None else self._common.standing(one.rank.process.clock)

    def tie(self, one: RankCut) -> Tie | None:
        """How the clock of a rank is tied, by the place of clocks among these; None where its root is not shown."""
        placed = None if self._common is None else self._common.placed[one.rank.process.clock]
        if placed is None or placed.root not in self.clocks:
            return None
        return Tie(self.clocks.index(placed.root), placed.ahead_ns, placed.error_ns)

    def clock_lines(self) -> Iterator[str]:
        """How well the clocks of the other ranks are that of the first."""
        for words, ranks in grouped((self.standing(one).words, one.rank.number) for one in self.ranks).items():
            if words:
                yield f"{ranks_words(ranks)}: {words}"

    def zero_ns(self, one: RankCut) -> int | None:
        """The moment from which the times of a rank count, in ns since 1970; None where its trace does not say."""
        return self._zeros.get(one.rank.process.clock)

    @cached_property
    def _zeros(self) -> Mapping[Clock, int]:
        return zeros_of(self.run)


def cut(
    run: Run,
    specs: Sequence[WindowSpec],
    ranks: Collection[int] | None = None,
    side: str = "",
    named: Sequence[str] = (),
    *,
    drawn: bool = True,
) -> RunCut:
    """The windows of all ranks, or of some, as each spec picks them; with all ranges ``named`` by a pattern. Not
    ``drawn``: of the calls only those that are measured.

    Raises NothingMeasured where one of the ranks has none, or an empty one.
    """
    pieces = [piece for spec in specs for piece in _as_picked(run, spec, ranks, drawn=drawn)]
    each = grouped((piece.rank.number, piece) for piece in pieces)
    found = [_whole(run, specs, tuple(named), _together(own)) for _, own in sorted(each.items())]
    return RunCut(run, specs, found, side, named, drawn)


def _as_picked(run: Run, spec: WindowSpec, ranks: Collection[int] | None, *, drawn: bool) -> Iterator[RankCut]:
    """The ranks with the windows of one spec, and what is around these."""
    filled = list(run.measured(spec).filled(ranks).values())
    for number, trace in enumerate(run.traces):
        own = [windows for windows in filled if windows[0].rank.process.trace == number]
        yield from _of_a_trace(run, trace, own, EVERY_CALL if drawn else SYNCHRONISING_CALLS) if own else ()


def _of_a_trace(
    run: Run, trace: Trace, ranks: Sequence[Sequence[RankWindow]], called_like: Sequence[str]
) -> Iterator[RankCut]:
    """The ranks of one trace, whose tables are passed once for all of them."""
    spans: dict[int, Interval] = {}
    lanes: dict[Lane, Interval] = {}
    transfers: dict[Lane, Kernels] = {}
    others = [list(_others(windows)) for windows in ranks]
    for windows, beside in zip(ranks, others, strict=True):
        pid, lane = windows[0].rank.process.global_pid, windows[0].rank.lane
        bounds = [t for w in windows for t in (w.window.start_ns, w.window.end_ns)]
        lanes[lane] = spans[pid] = _hull([*_touched(windows, beside), *bounds, *spans.get(pid, ())])
        if (own := _transfers(windows)) is not None:
            transfers[lane] = own
    calls, copies, around = _calls(trace, spans, called_like), trace.copies(lanes), trace.ranges_around(spans)
    transfer_calls, waits = trace.launch_calls(transfers), trace.stream_waits()
    for windows, beside in zip(ranks, others, strict=True):
        rank = windows[0].rank
        pid, lane = rank.process.global_pid, rank.lane
        called = None if calls is None else calls.get(pid, ())
        copied = None if copies is None else copies.get(lane, ())
        events = [event.start_ns for some in (called, copied) for event in some or ()]
        if (moved := transfers.get(lane)) is not None:
            events += [*moved.start_ns, *moved.end_ns]
        waited = None if waits is None else waits.get(pid, ())
        memory, clocks = _memory(windows), _sm_clocks(windows)
        # The peak of the run may be anywhere: it makes nothing else be shown.
        until_ns = max(w.window.end_ns for w in windows)
        allocated = [at_ns for at_ns in memory.levels.at_ns[1:] if at_ns <= until_ns] if memory else ()
        events += [*allocated, *(clocks.at_ns if clocks else ())]
        low, high = span = _hull([*_touched(windows, beside), *events])
        view = CutView(
            windows=windows,
            others=beside,
            on_gpu_ns=_on_gpu(windows) if _launched(windows) else None,
            transfers=None if moved is None else Some(moved, transfer_calls.get(lane, NO_CALLS), range(len(moved))),
            launches=_launches(run, windows[0]),
        )
        yield RankCut(
            rank=rank,
            views=[view],
            ranges=[r for r in around.get(pid, ()) if r.start_ns <= high and r.end_ns >= low],
            anchors=(),
            calls=called,
            copies=copied,
            waits=None if waited is None else [w for w in waited if rank.device in (None, w.stream.device)],
            memory=memory,
            sm_clocks=clocks,
            facts=run.facts[rank.process.trace],
            span_ns=span,
        )


def _together(pieces: Sequence[RankCut]) -> RankCut:
    """The windows of one rank as several specs pick them."""
    first, *others = pieces
    if not others:
        return first
    samples = [list(zip(*piece.sm_clocks, strict=True)) for piece in pieces if piece.sm_clocks is not None]
    return replace(
        first,
        views=[view for piece in pieces for view in piece.views],
        ranges=_once(piece.ranges for piece in pieces),
        calls=None if first.calls is None else _once(piece.calls or () for piece in pieces),
        copies=None if first.copies is None else _once(piece.copies or () for piece in pieces),
        memory=first.memory and first.memory._replace(levels=_levels(p.memory.levels for p in pieces if p.memory)),
        sm_clocks=Series.of(sorted(_once(samples))) if samples else None,
        span_ns=_hull([*chain.from_iterable(piece.span_ns for piece in pieces)]),
    )


def _once(parts: Iterable[Iterable[T]]) -> list[T]:
    """What is in any of the parts, as often as in the one that has it most often."""
    found: Counter[T] = Counter()
    for part in parts:
        found |= Counter(part)
    return list(found.elements())


def _levels(parts: Iterable[Series]) -> Series:
    """What was allocated, of parts of one series: what several of them hold once, all levels of a moment in order."""
    found: dict[int, list[int]] = {}
    for part in parts:
        for at_ns, own in grouped(zip(*part, strict=True)).items():
            found[at_ns] = max(own, found.get(at_ns, []), key=len)
    return Series.of((at_ns, level) for at_ns in sorted(found) for level in found[at_ns])


def _whole(run: Run, specs: Sequence[WindowSpec], named: tuple[str, ...], one: RankCut) -> RankCut:
    """The same with what is told of the rest of the run: its anchors, which have no kernel, ranges that are named."""
    rank, shown = one.rank, set(one.ranges)
    picked = [spec for spec in (None, *specs) if not isinstance(anchor_of(run.convention, spec), KernelAnchor)]
    anchors = _once(run.anchors(rank, spec) for spec in picked)
    idle = _once(idle_periods(run.measured(spec)).get(rank.number, ()) for spec in specs)
    everywhere = _once([anchors, run.named(rank, named)]) if named else anchors
    elsewhere = [each for each in everywhere if each not in shown]
    return replace(one, anchors=elsewhere, idle=idle, units=run.steps_to_keep(rank))


def _memory(windows: Sequence[RankWindow]) -> Memory | None:
    """What was allocated when the first window begins, what changed until the last one ends, and the run's peak."""
    found = windows[0].track.memory
    if found is None:
        return None
    own, levels = [w.window for w in windows], found.levels
    shown = [*zip(*levels.levels(min(w.start_ns for w in own), max(w.end_ns for w in own)), strict=True)]
    peak = max(zip(*levels, strict=True), key=lambda level: (level[1], -level[0]), default=None)
    if peak is not None and peak not in shown:
        shown = sorted([peak, *shown], key=lambda level: level[0])  # stable: before what follows it at its moment
    return found._replace(levels=Series.of(shown))


def _sm_clocks(windows: Sequence[RankWindow]) -> Series | None:
    """The samples from the start of the first window to the end of the last."""
    found = windows[0].track.on_gpu.sm_clocks
    return None if found is None else found.between(*_on_gpu(windows))


def _calls(
    trace: Trace, spans: Mapping[int, Interval], called_like: Sequence[str]
) -> Mapping[int, Sequence[Api]] | None:
    """The calls of each process in its span, and those before it in which a thread still stood when it began."""
    alike = called_like == SYNCHRONISING_CALLS  # then one pass finds both
    until = {pid: (min(0, low), high if alike else low - 1) for pid, (low, high) in spans.items()}
    before = trace.api_calls(SYNCHRONISING_CALLS, until)
    found = {} if alike else trace.api_calls(called_like, spans)
    if found is None or before is None:
        return None
    standing = {pid: [call for call in own if call.end_ns >= spans[pid][0]] for pid, own in before.items()}
    return {pid: [*standing.get(pid, ()), *found.get(pid, ())] for pid in {**standing, **found}}


def _launches(run: Run, window: RankWindow) -> Sequence[LaunchRecord]:
    """What is on record of the calls in the windows of a rank's process, where work of one is not."""
    process = window.rank.process
    found = (launch_records(run.measured(window.spec))[process.trace] or {}).get(process.global_pid, ())
    return found if any(record.without or record.outside for record in found) else ()


def _transfers(windows: Sequence[RankWindow]) -> Kernels | None:
    """The copies and memsets that ran in the windows, and until compute came next."""
    track = windows[0].track.on_gpu
    if track.transfers is None:
        return None
    after = (track.after.transfers or {}).get(track.rank.lane, NO_KERNELS) if goes_on(track) else NO_KERNELS
    return merged([some for some in (track.transfers, after) if len(some)]) or NO_KERNELS


def _others(windows: Sequence[RankWindow]) -> Iterator[Some]:
    """What ran on the GPU between the edges of the windows and is in none, so that all ways to count find what they
    need; and what followed until compute did, where no compute covers the end.
    """
    track = windows[0].track.on_gpu
    if _launched(windows):
        own = {identity(w.track.kernels, i) for w in windows for i in w.positions}
        others = [i for i in range(len(track.kernels)) if identity(track.kernels, i) not in own]
    else:
        others = sorted({*range(len(track.kernels))}.difference(*(w.positions for w in windows)))
    yield Some(track.kernels, track.launch_calls, others)
    after = track.after.kernels.get(track.rank.lane) if goes_on(track) else None
    if after is not None:
        yield Some(after, track.after.launch_calls[track.rank.lane], range(len(after)))


def _launched(windows: Sequence[RankWindow]) -> bool:
    """Whether the windows take kernels by their launches, and not by their time on the GPU."""
    spec = windows[0].spec
    return spec.by_launch


def _on_gpu(windows: Sequence[RankWindow]) -> Interval:
    """The time of the windows and of their kernels on the GPU, from the first to the last."""
    return _hull([t for w in windows for t in w.ran_ns])


def identity(kernels: Kernels, i: int) -> tuple[int, int, int, Stream]:
    """By what a kernel is the same one, whichever window it was read for."""
    return kernels.start_ns[i], kernels.end_ns[i], kernels.correlation[i], kernels.streams[kernels.stream[i]]


def _touched(windows: Sequence[RankWindow], others: Iterable[Some]) -> Iterator[int]:
    """When kernels and launches are, and where the windows begin and end that are anchors: a span that was given may be
    as long as it likes.
    """
    for w in windows:
        yield from _times(w.track.kernels, w.track.launch_ns, w.positions)
        if w.spec.explicit is None:
            yield w.window.start_ns
            yield w.window.end_ns
    for kernels, calls, positions in others:
        yield from _times(kernels, calls.start_ns, positions)


def _times(kernels: Kernels, launches: Sequence[int], positions: Sequence[int]) -> Iterator[int]:
    for i in positions:
        yield kernels.start_ns[i]
        yield kernels.end_ns[i]
        if launches[i] != NO_LAUNCH:
            yield launches[i]


def _hull(times: Sequence[int]) -> Interval:
    return min(times), max(times)
