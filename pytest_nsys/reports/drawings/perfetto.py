"""How do the picked windows of a run become JSON that ui.perfetto.dev and chrome://tracing open?

One process for each rank: the window, its exposed communication, why no compute runs, a lane for each stream with
arrows from the launches, the calls of the API, the ranges of each CPU thread. Categories and arguments are those of
torch.profiler; times are microseconds with three decimals, so that no nanosecond is lost. It is a drawing: what is
measured again is a cut. The same windows give the same bytes.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_nsys.analysis.metrics.common_clock import ALONE, ClockStanding, common_clock
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.core.file_names import DRAWING_MEMBER
from pytest_nsys.core.intervals import hull
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import NO_LAUNCH, Clock, Interval, Rank
from pytest_nsys.core.tables import NO_CALLS, NO_KERNELS
from pytest_nsys.core.trace import Trace
from pytest_nsys.core.words import ranks_words
from pytest_nsys.reports.drawings.lanes import KERNEL, DrawnLane, Json, LaunchedKernels, RankDrawing, lanes_of
from pytest_nsys.reports.tables.formats import without_halves

BASE, HEAD = "base", "head"
COUNTER = "C"
"""Phase of an event that shows a number from its time on."""
MEMORY, CLOCK = "allocated bytes", "SM clock in Hz"
PACKED = ".gz"
EXACT_NS = 1 << 52
"""Up to here viewers, which take microseconds for floats, keep every nanosecond."""
SECOND_NS = 1_000_000_000
EVERY_CALL = ("*",)


@dataclass(frozen=True)
class RunDrawing:
    """The windows of some ranks of a run. ``side`` names one of two runs, else empty. ``standings`` say how well the
    clocks of the ranks are that of the first.
    """

    spec: WindowSpec
    ranks: Sequence[RankDrawing]
    side: str
    standings: Mapping[Clock, ClockStanding]

    def standing(self, one: RankDrawing) -> ClockStanding:
        """How the times of a rank are shown beside those of the others."""
        return self.standings.get(one.rank.process.clock, ALONE)

    def ahead_ns(self, one: RankDrawing) -> int:
        """What is taken off the times of a rank to have those of the first one's clock; nothing where it is unknown."""
        return self.standing(one).ahead_ns or 0

    def clock_lines(self) -> Iterator[str]:
        """How well the clocks of the other ranks are that of the first."""
        for words, ranks in grouped((self.standing(one).words, one.rank.number) for one in self.ranks).items():
            if words:
                yield f"{ranks_words(ranks)}: {words}"


def draw(run: Run, spec: WindowSpec, ranks: Collection[int] | None = None, side: str = "") -> RunDrawing:
    """Collect what is drawn of the windows of all ranks, or of some.

    Raises NothingMeasured where one of the ranks has none, or an empty one.
    """
    group = run.measured(spec)
    filled = group.filled(ranks)
    by_trace = grouped((windows[0].rank.process.trace, windows) for windows in filled.values())
    each = [one for number, own in by_trace.items() for one in _draw_trace(run.traces[number], own)]
    found = sorted(each, key=lambda one: one.rank.number)
    clocks = dict.fromkeys(one.rank.process.clock for one in found)
    common = common_clock(group) if len(clocks) > 1 else None
    return RunDrawing(spec, found, side, {} if common is None else {clock: common.standing(clock) for clock in clocks})


def _draw_trace(trace: Trace, ranks: Sequence[Sequence[RankWindow]]) -> Iterator[RankDrawing]:
    """The ranks of one trace, whose tables are passed once for all of them."""
    spans = {own[0].rank.lane: _span(own) for own in ranks}
    hulls = {pid: hull(own) for pid, own in grouped((lane.global_pid, span) for lane, span in spans.items()).items()}
    ranges, calls = trace.ranges_around(hulls), trace.api_calls(EVERY_CALL, hulls) or {}
    moved = {own[0].rank.lane: own[0].track.on_gpu.transfers or NO_KERNELS for own in ranks}
    launches = trace.launch_calls(moved)
    for windows in ranks:
        track, lane = windows[0].track, windows[0].rank.lane
        transfers, (low, high) = moved[lane], spans[lane]
        yield RankDrawing(
            rank=track.rank,
            windows=windows,
            others=LaunchedKernels(track.on_gpu.kernels, track.on_gpu.launch_calls, range(len(track.on_gpu.kernels))),
            transfers=LaunchedKernels(transfers, launches.get(lane, NO_CALLS), range(len(transfers))),
            ranges=[r for r in ranges.get(lane.global_pid, ()) if r.start_ns <= high and r.end_ns >= low],
            calls=calls.get(lane.global_pid, ()),
            memory=track.memory and track.memory.levels.levels(low, high),
            sm_clocks=track.on_gpu.sm_clocks and track.on_gpu.sm_clocks.between(low, high),
            span_ns=spans[lane],
        )


def _span(windows: Sequence[RankWindow]) -> Interval:
    """Around the kernels, their launches and the windows that are anchors: a span that was given may be as long as it
    likes.
    """
    track = windows[0].track
    times = [t for w in windows if w.spec.explicit is None for t in (w.window.start_ns, w.window.end_ns)]
    for some in (track, track.on_gpu):
        times += [*some.kernels.start_ns, *some.kernels.end_ns, *(at for at in some.launch_ns if at != NO_LAUNCH)]
    return min(times), max(times)


def packed(text: str, name: str) -> bytes:
    """The file's bytes: packed where its name ends in ``.gz``, without a time in them."""
    content = text.encode("ascii")
    return gzip.compress(content, mtime=0) if name.endswith(PACKED) else content


def perfetto_json(sides: Sequence[RunDrawing]) -> str:
    """The windows of one run, or of base and head side by side, as JSON in ASCII."""
    tids, arrows, pids = itertools.count(1), itertools.count(1), itertools.count(1)
    events: list[str] = []
    for side, base_ns in zip(sides, _bases(sides), strict=True):
        for pid, one in zip(pids, side.ranks, strict=False):
            own_ns = base_ns + side.ahead_ns(one)
            numbered = [(next(tids), lane) for lane in lanes_of(one)]
            events += _names(side, one, pid, numbered)
            events += _events(numbered, pid, own_ns, arrows)
            events += _counters(one, pid, own_ns)
    listed = ",\n".join(events)
    said = _json({"measured": "; ".join(dict.fromkeys(str(side.spec) for side in sides))})
    return without_halves(f'{{"{DRAWING_MEMBER}":{said},\n"displayTimeUnit":"ns",\n"traceEvents":[\n{listed}\n]}}\n')


def _json(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"))


def _bases(sides: Sequence[RunDrawing]) -> list[int]:
    """What is taken off the times of each side on its first rank's clock.

    Nothing of a trace whose times are small, so that they are those of its other viewers. The windows of two sides,
    whose clocks have nothing in common, begin at the same moment.
    """
    spans, begins = [], []
    for side in sides:
        ahead = {one.rank.number: side.ahead_ns(one) for one in side.ranks}
        shown = [tuple(t - ahead[one.rank.number] for t in one.span_ns) for one in side.ranks]
        spans.append((min(low for low, _ in shown), max(high for _, high in shown)))
        each = ((max(r.span_ns[0], w.start_ns) - ahead[r.rank.number]) for r in side.ranks for w in r.windows)
        begins.append(min(each))
    if len(sides) == 1:
        low, high = spans[0]
        return [0 if low >= 0 and high < EXACT_NS else low // SECOND_NS * SECOND_NS]
    lead = max(begin - low for begin, (low, _) in zip(begins, spans, strict=True))
    return [begin - lead for begin in begins]


def _names(side: RunDrawing, one: RankDrawing, pid: int, lanes: Sequence[tuple[int, DrawnLane]]) -> Iterator[str]:
    """The names of the process and of its lanes, and the order in which a viewer shows them; how well its clock is that
    of the others.
    """

    def name(kind: str, tid: int, **args: Json) -> str:
        return _json({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args})

    yield name("process_name", 0, name=title(side.side, one.rank))
    if words := side.standing(one).words:
        yield name("process_labels", 0, labels=words)
    yield name("process_sort_index", 0, sort_index=pid)
    for place, (tid, lane) in enumerate(lanes):
        yield name("thread_name", tid, name=lane.name)
        yield name("thread_sort_index", tid, sort_index=place)


def _events(lanes: Sequence[tuple[int, DrawnLane]], pid: int, base_ns: int, arrows: Iterator[int]) -> Iterator[str]:
    """The events of one rank, lane by lane; an arrow's end follows what it is bound to."""

    def event(ph: str, cat: str, name: str, tid: int, time_ns: int, **more: Json) -> dict[str, Json]:
        return {"ph": ph, "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": time_ns - base_ns, **more}

    launched: dict[int, list[int]] = {}
    for _, lane in lanes:
        for span in lane.spans:
            if span.category == KERNEL and (called := span.args.get("launch_ns")) is not None:
                launched.setdefault(called, []).append(next(arrows))
    waiting = {time_ns: iter(numbers) for time_ns, numbers in launched.items()}
    for tid, lane in lanes:
        for span in lane.spans:
            more = {"dur": span.end_ns - span.start_ns, **({"args": span.args} if span.args else {})}
            yield _timed(event("X", span.category, span.name, tid, span.start_ns, **more))
            if span.is_launch:
                for number in launched.pop(span.start_ns, ()):
                    yield _timed(event("s", "ac2g", "ac2g", tid, span.start_ns, id=number))
            elif span.category == KERNEL and "launch_ns" in span.args:
                number = next(waiting[span.args["launch_ns"]])
                yield _timed(event("f", "ac2g", "ac2g", tid, span.start_ns, id=number, bp="e"))


def _counters(one: RankDrawing, pid: int, base_ns: int) -> Iterator[str]:
    """What was allocated and how fast the SMs ran, as curves; the level at the start of a window begins with what is
    shown.
    """
    shown = {MEMORY: one.memory, CLOCK: one.sm_clocks}
    for name, series in shown.items():
        for at, value in zip(*series, strict=True) if series else ():
            time = max(at, one.span_ns[0]) - base_ns
            yield _timed({"ph": COUNTER, "name": name, "pid": pid, "tid": 0, "ts": time, "args": {"value": value}})


def _timed(event: Mapping[str, Json]) -> str:
    """An event as JSON, its times in microseconds: a float would lose what three decimals keep."""
    parts = []
    for key, value in event.items():
        time = f"{value // 1000}.{value % 1000:03d}" if key in ("ts", "dur") else _json(value)
        parts.append(f'"{key}":{time}')
    return "{" + ",".join(parts) + "}"


def title(side: str, rank: Rank) -> str:
    """``head rank 3 (pp=1 dp=0)``."""
    place = " ".join(f"{axis}={at}" for axis, at in rank.coordinates.items())
    words = [side, f"rank {rank.number}", f"({place})" if place else ""]
    return " ".join(word for word in words if word)
