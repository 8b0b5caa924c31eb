"""What belongs to the picked windows of a rank, so that they can leave the trace alone and be measured again?

Their kernels, the ranges and the calls of the API around these and around their launches, and the anchors elsewhere in
the run: by their number and lengths the same window is picked again, and the steady metrics are what they were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.model import (
    NO_LAUNCH,
    Api,
    Copy,
    Interval,
    Kernels,
    KernelsMode,
    Lane,
    Memory,
    Range,
    Rank,
    Stream,
    Trace,
    TraceFacts,
)
from pytest_nsys.core.series import Series
from pytest_nsys.traces.copies_as_kernels import touching_span

EVERY_CALL = ("*",)


class Edges(NamedTuple):
    """Kernels that are in no window and belong to what is measured again, by their ``positions`` in ``kernels``.

    ``span_ns``: on the GPU all kernels of that time are here, where that is not the windows' own.
    """

    kernels: Kernels
    launch_ns: Sequence[int]
    positions: Sequence[int]
    span_ns: Interval | None


@dataclass(frozen=True)
class RankCut:
    """The windows of one rank, and ``span_ns`` around all that is shown of it.

    ``ranges`` touch the span, ``anchors`` do not. ``calls``, ``copies``, ``transfers``, the copies and memsets that
    ran in the windows, ``memory`` and ``sm_clocks`` are None where the trace has no record of any.
    """

    rank: Rank
    windows: Sequence[RankWindow]
    edges: Edges
    ranges: Sequence[Range]
    anchors: Sequence[Range]
    calls: Sequence[Api] | None
    copies: Sequence[Copy] | None
    transfers: Kernels | None
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
    edges = _edges(spec, ranks)
    for windows, crossing in zip(ranks, edges, strict=True):
        pid = windows[0].rank.process.global_pid
        bounds = [t for w in windows for t in (w.window.start_ns, w.window.end_ns)]
        spans[pid] = _hull([*_touched(windows, crossing), *bounds, *spans.get(pid, ())])
        lanes[windows[0].rank.lane] = spans[pid]
    calls, copies, around = trace.api_calls(EVERY_CALL, spans), trace.copies(lanes), trace.ranges_around(spans)
    for windows, crossing in zip(ranks, edges, strict=True):
        rank = windows[0].rank
        called = None if calls is None else calls.get(rank.process.global_pid, ())
        copied = None if copies is None else copies.get(rank.lane, ())
        events = [event.start_ns for some in (called, copied) for event in some or ()]
        transfers = windows[0].track.on_gpu.transfers
        if transfers is not None:
            transfers = touching_span(transfers, _on_gpu(windows))
            events += [*transfers.start_ns, *transfers.end_ns]
        memory, clocks = _memory(windows), _sm_clocks(windows)
        events += [*(memory.levels.at_ns[1:] if memory else ()), *(clocks.at_ns if clocks else ())]
        low, high = span = _hull([*_touched(windows, crossing), *events])
        ranges = around.get(rank.process.global_pid, ())
        touching = [r for r in ranges if r.start_ns <= high and r.end_ns >= low]
        shown = set(touching)
        elsewhere = [anchor for anchor in _anchors(run, rank, spec) if anchor not in shown]
        facts = run.facts[rank.process.trace]
        yield RankCut(
            rank=rank,
            windows=windows,
            edges=crossing,
            ranges=touching,
            anchors=elsewhere,
            calls=called,
            copies=copied,
            transfers=transfers,
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


def _edges(spec: WindowSpec, ranks: Sequence[Sequence[RankWindow]]) -> list[Edges]:
    """Of windows that take kernels by their time on the GPU those that cross an edge, so that both ways to count these
    find what they need; of windows of launches those that ran meanwhile, which tell how many have no launch.
    """
    if spec.whole_run or spec.kernels is not KernelsMode.LAUNCHED:
        return [_crossing(windows) for windows in ranks]
    found = []
    for windows in ranks:
        on_gpu, span = windows[0].track.on_gpu, _on_gpu(windows)
        ran = on_gpu.kernels
        own = {_identity(w.track.kernels, i) for w in windows for i in w.positions}
        others = [i for i in _touching(ran, span) if _identity(ran, i) not in own]
        found.append(Edges(ran, on_gpu.launch_ns, others, span))
    return found


def _on_gpu(windows: Sequence[RankWindow]) -> Interval:
    """The time of the windows on the GPU, from the first to the last."""
    return _hull([t for w in windows for t in (w.start_ns, w.end_ns)])


def _crossing(windows: Sequence[RankWindow]) -> Edges:
    """The kernels that touch a window and are in none; of the whole run there are none."""
    track = windows[0].track
    found: set[int] = set()
    for w in () if windows[0].spec.whole_run else windows:
        found.update(_touching(track.kernels, (w.window.start_ns, w.window.end_ns)))
    return Edges(track.kernels, track.launch_ns, sorted(found.difference(*(w.positions for w in windows))), None)


def _touching(kernels: Kernels, span: Interval) -> Iterator[int]:
    times = zip(kernels.start_ns, kernels.end_ns, strict=True)
    return (i for i, (start, end) in enumerate(times) if start <= span[1] and end >= span[0])


def _identity(kernels: Kernels, i: int) -> tuple[int, int, int, Stream]:
    return kernels.start_ns[i], kernels.end_ns[i], kernels.correlation[i], kernels.streams[kernels.stream[i]]


def _touched(windows: Sequence[RankWindow], edges: Edges) -> Iterator[int]:
    """When kernels and launches are, and where the windows begin and end that are anchors: a span that was given may be
    as long as it likes.
    """
    for w in windows:
        yield from _times(w.track.kernels, w.track.launch_ns, w.positions)
        if w.spec.explicit is None:
            yield w.window.start_ns
            yield w.window.end_ns
    yield from _times(edges.kernels, edges.launch_ns, edges.positions)


def _times(kernels: Kernels, launches: Sequence[int], positions: Sequence[int]) -> Iterator[int]:
    for i in positions:
        yield kernels.start_ns[i]
        yield kernels.end_ns[i]
        if launches[i] != NO_LAUNCH:
            yield launches[i]


def _hull(times: Sequence[int]) -> Interval:
    return min(times), max(times)
