"""What belongs to the picked windows of a rank, so that they can leave the trace alone and be measured again?

Their kernels, what ran meanwhile and until compute came next, for what streams waited, the ranges and the calls of the
API around these and around their launches, and the anchors elsewhere in the run: by their number and lengths the same
window is picked again, and the steady metrics are what they were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pytest_nsys.analysis.activity import SYNCHRONISING_CALLS
from pytest_nsys.analysis.common_clock import ALONE, CommonClock, Standing, common_clock, zeros_of
from pytest_nsys.analysis.gaps import goes_on
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.grouping import grouped
from pytest_nsys.core.model import (
    NO_KERNELS,
    NO_LAUNCH,
    Api,
    Clock,
    Copy,
    Interval,
    Kernels,
    KernelsMode,
    Lane,
    Memory,
    Range,
    Rank,
    Stream,
    Tie,
    Trace,
    TraceFacts,
)
from pytest_nsys.core.operations import NO_CALLS, LaunchCalls, StreamWait
from pytest_nsys.core.series import Series
from pytest_nsys.core.words import ranks_words
from pytest_nsys.traces.copies_as_kernels import merged

EVERY_CALL = ("*",)


class Others(NamedTuple):
    """Kernels that are in no window and belong to what is measured again, by their ``positions`` in ``kernels``."""

    kernels: Kernels
    calls: LaunchCalls
    positions: Sequence[int]


@dataclass(frozen=True)
class RankCut:
    """The windows of one rank, and ``span_ns`` around all that is shown of it.

    ``on_gpu_ns``: all kernels of that time are here, where that is not the windows' own. ``ranges`` touch the span,
    ``anchors`` do not. ``calls``, ``copies``, ``transfers``, the copies and memsets that ran in the windows and until
    compute came next, ``waits`` of streams in the whole run, ``memory`` and ``sm_clocks`` are None where the trace has
    no record of any.
    """

    rank: Rank
    windows: Sequence[RankWindow]
    others: Sequence[Others]
    on_gpu_ns: Interval | None
    ranges: Sequence[Range]
    anchors: Sequence[Range]
    calls: Sequence[Api] | None
    copies: Sequence[Copy] | None
    transfers: Kernels | None
    transfer_calls: LaunchCalls
    waits: Sequence[StreamWait] | None
    memory: Memory | None
    sm_clocks: Series | None
    facts: TraceFacts
    span_ns: Interval


@dataclass(frozen=True)
class RunCut:
    """The windows of some ranks of a run, with how they were picked. ``side`` names one of two runs, else empty."""

    run: Run
    spec: WindowSpec
    ranks: Sequence[RankCut]
    side: str = ""

    @property
    def clocks(self) -> list[Clock]:
        """Those that the ranks use, that of the lowest rank first."""
        return list(dict.fromkeys(one.rank.process.clock for one in self.ranks))

    @cached_property
    def _common(self) -> CommonClock | None:
        return common_clock(self.run.measured(self.spec)) if len(self.clocks) > 1 else None

    def standing(self, one: RankCut) -> Standing:
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
                yield f"times of {ranks_words(ranks)} are {words}"

    def zero_ns(self, one: RankCut) -> int | None:
        """The moment from which the times of a rank count, in ns since 1970; None where its trace does not say."""
        return self._zeros.get(one.rank.process.clock)

    @cached_property
    def _zeros(self) -> Mapping[Clock, int]:
        return zeros_of(self.run)


def cut(run: Run, spec: WindowSpec, ranks: Collection[int] | None = None, side: str = "") -> RunCut:
    """The windows of all ranks, or of some. Raises NothingMeasured where one of them has none, or an empty one."""
    filled = list(run.measured(spec).filled(ranks).values())
    found: list[RankCut] = []
    for number, trace in enumerate(run.traces):
        own = [windows for windows in filled if windows[0].rank.process.trace == number]
        found += _of_a_trace(run, trace, spec, own) if own else ()
    return RunCut(run, spec, sorted(found, key=lambda one: one.rank.number), side)


def _of_a_trace(run: Run, trace: Trace, spec: WindowSpec, ranks: Sequence[Sequence[RankWindow]]) -> Iterator[RankCut]:
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
    calls, copies, around = _calls(trace, spans), trace.copies(lanes), trace.ranges_around(spans)
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
        events += [*(memory.levels.at_ns[1:] if memory else ()), *(clocks.at_ns if clocks else ())]
        low, high = span = _hull([*_touched(windows, beside), *events])
        ranges = around.get(pid, ())
        touching = [r for r in ranges if r.start_ns <= high and r.end_ns >= low]
        shown = set(touching)
        elsewhere = [anchor for anchor in _anchors(run, rank, spec) if anchor not in shown]
        facts = run.facts[rank.process.trace]
        yield RankCut(
            rank=rank,
            windows=windows,
            others=beside,
            on_gpu_ns=_on_gpu(windows) if _launched(windows) else None,
            ranges=touching,
            anchors=elsewhere,
            calls=called,
            copies=copied,
            transfers=moved,
            transfer_calls=transfer_calls.get(lane, NO_CALLS),
            waits=None if waited is None else [w for w in waited if rank.device in (None, w.stream.device)],
            memory=memory,
            sm_clocks=clocks,
            facts=facts,
            span_ns=span,
        )


def _memory(windows: Sequence[RankWindow]) -> Memory | None:
    """What was allocated when the first window begins, and what changed until the last one ends."""
    found = windows[0].track.memory
    own = [w.window for w in windows]
    span = min(w.start_ns for w in own), max(w.end_ns for w in own)
    return None if found is None else found._replace(levels=found.levels.levels(*span))


def _sm_clocks(windows: Sequence[RankWindow]) -> Series | None:
    """The samples from the start of the first window to the end of the last."""
    found = windows[0].track.on_gpu.sm_clocks
    return None if found is None else found.between(*_on_gpu(windows))


def _anchors(run: Run, rank: Rank, spec: WindowSpec) -> list[Range]:
    """Those of the convention, and those of a window that is given by name."""
    own = run.anchors(rank)
    known = set(own)
    return [*own, *(anchor for anchor in run.anchors(rank, spec.anchor) if anchor not in known)]


def _calls(trace: Trace, spans: Mapping[int, Interval]) -> Mapping[int, Sequence[Api]] | None:
    """The calls of each process in its span, and those before it in which a thread still stood when it began."""
    found = trace.api_calls(EVERY_CALL, spans)
    before = trace.api_calls(SYNCHRONISING_CALLS, {pid: (0, low - 1) for pid, (low, _) in spans.items()})
    if found is None or before is None:
        return found
    standing = {pid: [call for call in own if call.end_ns >= spans[pid][0]] for pid, own in before.items()}
    return {pid: [*standing.get(pid, ()), *found.get(pid, ())] for pid in {**standing, **found}}


def _transfers(windows: Sequence[RankWindow]) -> Kernels | None:
    """The copies and memsets that ran in the windows, and until compute came next."""
    track = windows[0].track.on_gpu
    if track.transfers is None:
        return None
    after = (track.after.transfers or {}).get(track.rank.lane, NO_KERNELS) if goes_on(track) else NO_KERNELS
    return merged([some for some in (track.transfers, after) if len(some)]) or NO_KERNELS


def _others(windows: Sequence[RankWindow]) -> Iterator[Others]:
    """What ran on the GPU between the edges of the windows and is in none, so that all ways to count find what they
    need; and what followed until compute did, where no compute covers the end.
    """
    track = windows[0].track.on_gpu
    if _launched(windows):
        own = {_identity(w.track.kernels, i) for w in windows for i in w.positions}
        others = [i for i in range(len(track.kernels)) if _identity(track.kernels, i) not in own]
    else:
        others = sorted({*range(len(track.kernels))}.difference(*(w.positions for w in windows)))
    yield Others(track.kernels, track.launch_calls, others)
    after = track.after.kernels.get(track.rank.lane) if goes_on(track) else None
    if after is not None:
        yield Others(after, track.after.launch_calls[track.rank.lane], range(len(after)))


def _launched(windows: Sequence[RankWindow]) -> bool:
    """Whether the windows take kernels by their launches, and not by their time on the GPU."""
    spec = windows[0].spec
    return spec.kernels is KernelsMode.LAUNCHED and not spec.whole_run


def _on_gpu(windows: Sequence[RankWindow]) -> Interval:
    """The time of the windows on the GPU, from the first to the last."""
    return _hull([t for w in windows for t in (w.start_ns, w.end_ns)])


def _identity(kernels: Kernels, i: int) -> tuple[int, int, int, Stream]:
    return kernels.start_ns[i], kernels.end_ns[i], kernels.correlation[i], kernels.streams[kernels.stream[i]]


def _touched(windows: Sequence[RankWindow], others: Iterable[Others]) -> Iterator[int]:
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
