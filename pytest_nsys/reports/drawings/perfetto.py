"""How are windows of a run written as JSON that ui.perfetto.dev and chrome://tracing open?

Each rank is a process with lanes for the window, its exposed communication, the reasons why no compute runs, each
stream with arrows from the launches, the API calls, and the ranges of each CPU thread. Categories and arguments are
those of torch.profiler; times are microseconds with three decimals, so that no nanosecond is lost. The file is only a
drawing; to measure again, write a cut. The same windows give the same bytes.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_nsys.analysis.metrics.common_clock import EXACT_ALIGNMENT, ClockAlignment, align_clocks
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.file_names import DRAWING_MARK_MEMBER
from pytest_nsys.core.intervals import find_hull
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import NO_LAUNCH, Clock, Interval, Rank
from pytest_nsys.core.tables import NO_KERNELS, NO_LAUNCH_CALLS
from pytest_nsys.core.text_format import format_ranks
from pytest_nsys.core.trace import Trace
from pytest_nsys.reports.drawings.lanes import KERNEL, DrawnLane, Json, KernelSelection, RankDrawing, list_lanes
from pytest_nsys.reports.tables.formats import sanitize_json

BASE, HEAD = "base", "head"
COUNTER = "C"
"""The phase of an event that sets a counter."""
MEMORY, CLOCK = "allocated bytes", "SM clock in Hz"
PACKED_SUFFIX = ".gz"
MAX_EXACT_NS = 1 << 52
"""Viewers read microseconds as floats, which are exact to the nanosecond up to this time."""
SECOND_NS = 1_000_000_000
EVERY_CALL = ("*",)


@dataclass(frozen=True)
class RunDrawing:
    """Holds the drawings of some ranks of a run, and the offsets between their clocks."""

    spec: WindowSpec
    ranks: Sequence[RankDrawing]
    side: str  # BASE or HEAD; empty if only one run is drawn
    standings: Mapping[Clock, ClockAlignment]  # each clock's offset from the first rank's

    def find_clock_standing(self, drawing: RankDrawing) -> ClockAlignment:
        """Return the alignment of a rank's clock with the clock of the first rank."""
        return self.standings.get(drawing.rank.process.clock, EXACT_ALIGNMENT)

    def find_clock_ahead_ns(self, drawing: RankDrawing) -> int:
        """Return by how many ns a rank's clock is ahead of the first rank's, to be subtracted from its times; 0 if
        unknown.
        """
        return self.find_clock_standing(drawing).ahead_ns or 0

    def describe_clocks(self) -> Iterator[str]:
        """Yield lines on how well the clocks of the other ranks agree with the first rank's."""
        for text, ranks in group_by_key(
            (self.find_clock_standing(drawing).description, drawing.rank.number) for drawing in self.ranks
        ).items():
            if text:
                yield f"{format_ranks(ranks)}: {text}"


def draw_run(run: Run, spec: WindowSpec, ranks: Collection[int] | None = None, side: str = "") -> RunDrawing:
    """Return the drawing of the windows of some ranks, by default of all.

    Raises NothingMeasured where one of the ranks has no window, or an empty one.
    """
    rank_group = run.load_windows(spec)
    windows_by_rank = rank_group.require_filled_windows(ranks)
    windows_by_trace = group_by_key((windows[0].rank.process.trace, windows) for windows in windows_by_rank.values())
    drawings = [
        drawing
        for trace_number, trace_windows in windows_by_trace.items()
        for drawing in _draw_trace(run.traces[trace_number], trace_windows)
    ]
    sorted_drawings = sorted(drawings, key=lambda drawing: drawing.rank.number)
    clocks = dict.fromkeys(drawing.rank.process.clock for drawing in sorted_drawings)
    shared_clock = align_clocks(rank_group) if len(clocks) > 1 else None
    return RunDrawing(
        spec,
        sorted_drawings,
        side,
        {} if shared_clock is None else {clock: shared_clock.find_alignment(clock) for clock in clocks},
    )


def _draw_trace(trace: Trace, windows_of_ranks: Sequence[Sequence[RankWindow]]) -> Iterator[RankDrawing]:
    """Yield the drawings of the ranks of one trace; its tables are read once for all ranks."""
    spans = {windows[0].rank.lane: _measure_span(windows) for windows in windows_of_ranks}
    hull_by_process = {
        pid: find_hull(process_spans)
        for pid, process_spans in group_by_key((lane.global_pid, span) for lane, span in spans.items()).items()
    }
    ranges, calls = trace.ranges_around(hull_by_process), trace.api_calls(EVERY_CALL, hull_by_process) or {}
    transfers_by_lane = {
        windows[0].rank.lane: windows[0].track.gpu_track.transfers or NO_KERNELS for windows in windows_of_ranks
    }
    launches = trace.launch_calls(transfers_by_lane)
    for windows in windows_of_ranks:
        track, lane = windows[0].track, windows[0].rank.lane
        transfers, (start_ns, end_ns) = transfers_by_lane[lane], spans[lane]
        yield RankDrawing(
            rank=track.rank,
            windows=windows,
            other_kernels=KernelSelection(
                track.gpu_track.kernels, track.gpu_track.launch_calls, range(len(track.gpu_track.kernels))
            ),
            transfers=KernelSelection(transfers, launches.get(lane, NO_LAUNCH_CALLS), range(len(transfers))),
            ranges=[
                cpu_range
                for cpu_range in ranges.get(lane.global_pid, ())
                if cpu_range.start_ns <= end_ns and cpu_range.end_ns >= start_ns
            ],
            calls=calls.get(lane.global_pid, ()),
            memory=track.memory and track.memory.levels.select_levels(start_ns, end_ns),
            sm_clocks=track.gpu_track.sm_clocks and track.gpu_track.sm_clocks.select_between(start_ns, end_ns),
            span_ns=spans[lane],
        )


def _measure_span(windows: Sequence[RankWindow]) -> Interval:
    """Return the time span that covers the windows, their kernels and the launches."""
    track = windows[0].track
    # A span given by a person may be much longer than its kernels: it would stretch the drawing.
    times = [
        time_ns
        for window in windows
        if window.spec.explicit_span_ns is None
        for time_ns in (window.window.start_ns, window.window.end_ns)
    ]
    for tracks in (track, track.gpu_track):
        times += [
            *tracks.kernels.start_ns,
            *tracks.kernels.end_ns,
            *(launch_ns for launch_ns in tracks.launch_ns if launch_ns != NO_LAUNCH),
        ]
    return min(times), max(times)


def pack_text(text: str, name: str) -> bytes:
    """Return the bytes of a file: gzip where its name ends in ``.gz``, without a time stamp, so that equal text gives
    equal bytes.
    """
    content = text.encode("ascii")
    return gzip.compress(content, mtime=0) if name.endswith(PACKED_SUFFIX) else content


def render_perfetto_json(sides: Sequence[RunDrawing]) -> str:
    """Return the windows of one run, or of base and head side by side, as JSON in ASCII."""
    tids, arrows, pids = itertools.count(1), itertools.count(1), itertools.count(1)
    events: list[str] = []
    for side, side_base_ns in zip(sides, _find_time_bases(sides), strict=True):
        for pid, drawing in zip(pids, side.ranks, strict=False):
            rank_base_ns = side_base_ns + side.find_clock_ahead_ns(drawing)
            numbered_lanes = [(next(tids), lane) for lane in list_lanes(drawing)]
            events += _list_name_events(side, drawing, pid, numbered_lanes)
            events += _list_events(numbered_lanes, pid, rank_base_ns, arrows)
            events += _list_counter_events(drawing, pid, rank_base_ns)
    event_text = ",\n".join(events)
    metadata = _dump_json({"measured": "; ".join(dict.fromkeys(str(side.spec) for side in sides))})
    return sanitize_json(
        f'{{"{DRAWING_MARK_MEMBER}":{metadata},\n"displayTimeUnit":"ns",\n"traceEvents":[\n{event_text}\n]}}\n'
    )


def _dump_json(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"))


def _find_time_bases(sides: Sequence[RunDrawing]) -> list[int]:
    """Return for each side the time that is subtracted from its times, in ns of its first rank's clock.

    It is 0 for a trace with small times, so that they equal those in other viewers. The clocks of two sides are
    unrelated, so their windows are made to begin at the same time.
    """
    spans, begins = [], []
    for side in sides:
        ahead_by_rank = {drawing.rank.number: side.find_clock_ahead_ns(drawing) for drawing in side.ranks}
        shown_spans = [
            tuple(time_ns - ahead_by_rank[drawing.rank.number] for time_ns in drawing.span_ns) for drawing in side.ranks
        ]
        spans.append((min(low for low, _ in shown_spans), max(high for _, high in shown_spans)))
        window_starts = (
            (max(drawing.span_ns[0], window.start_ns) - ahead_by_rank[drawing.rank.number])
            for drawing in side.ranks
            for window in drawing.windows
        )
        begins.append(min(window_starts))
    if len(sides) == 1:
        low, high = spans[0]
        # Subtract whole seconds, so that the remainder still resembles the times in other viewers.
        return [0 if low >= 0 and high < MAX_EXACT_NS else low // SECOND_NS * SECOND_NS]
    lead = max(begin - low for begin, (low, _) in zip(begins, spans, strict=True))
    return [begin - lead for begin in begins]


def _list_name_events(
    side: RunDrawing, drawing: RankDrawing, pid: int, lanes: Sequence[tuple[int, DrawnLane]]
) -> Iterator[str]:
    """Yield events that name a process and its lanes, order them for a viewer, and say how well its clock agrees."""

    def make_name_event(kind: str, tid: int, **args: Json) -> str:
        return _dump_json({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args})

    yield make_name_event("process_name", 0, name=format_rank_title(side.side, drawing.rank))
    if clock_text := side.find_clock_standing(drawing).description:
        yield make_name_event("process_labels", 0, labels=clock_text)
    yield make_name_event("process_sort_index", 0, sort_index=pid)
    for position, (tid, lane) in enumerate(lanes):
        yield make_name_event("thread_name", tid, name=lane.name)
        yield make_name_event("thread_sort_index", tid, sort_index=position)


def _list_events(
    lanes: Sequence[tuple[int, DrawnLane]], pid: int, base_ns: int, arrows: Iterator[int]
) -> Iterator[str]:
    """Yield the events of one rank, lane by lane; the end of an arrow follows the kernel that it points to."""

    def make_event(phase: str, category: str, name: str, tid: int, time_ns: int, **details: Json) -> dict[str, Json]:
        return {"ph": phase, "cat": category, "name": name, "pid": pid, "tid": tid, "ts": time_ns - base_ns, **details}

    arrows_by_launch: dict[int, list[int]] = {}
    for _, lane in lanes:
        for span in lane.spans:
            if span.category == KERNEL and (launch_ns := span.args.get("launch_ns")) is not None:
                arrows_by_launch.setdefault(launch_ns, []).append(next(arrows))
    open_arrows = {time_ns: iter(numbers) for time_ns, numbers in arrows_by_launch.items()}
    for tid, lane in lanes:
        for span in lane.spans:
            details = {"dur": span.end_ns - span.start_ns, **({"args": span.args} if span.args else {})}
            yield _format_event(make_event("X", span.category, span.name, tid, span.start_ns, **details))
            if span.is_launch:
                for number in arrows_by_launch.pop(span.start_ns, ()):
                    yield _format_event(make_event("s", "ac2g", "ac2g", tid, span.start_ns, id=number))
            elif span.category == KERNEL and "launch_ns" in span.args:
                number = next(open_arrows[span.args["launch_ns"]])
                yield _format_event(make_event("f", "ac2g", "ac2g", tid, span.start_ns, id=number, bp="e"))


def _list_counter_events(drawing: RankDrawing, pid: int, base_ns: int) -> Iterator[str]:
    """Yield the curves of allocated bytes and of the SM clock."""
    series_by_name = {MEMORY: drawing.memory, CLOCK: drawing.sm_clocks}
    for name, series in series_by_name.items():
        for change_ns, value in zip(*series, strict=True) if series else ():
            # A level that was set before the window is shown from the window's start on.
            shown_ns = max(change_ns, drawing.span_ns[0]) - base_ns
            yield _format_event(
                {"ph": COUNTER, "name": name, "pid": pid, "tid": 0, "ts": shown_ns, "args": {"value": value}}
            )


def _format_event(event: Mapping[str, Json]) -> str:
    """Return an event as JSON with its times in microseconds."""
    parts = []
    for key, value in event.items():
        # A float would not keep three decimals exactly.
        text = f"{value // 1000}.{value % 1000:03d}" if key in ("ts", "dur") else _dump_json(value)
        parts.append(f'"{key}":{text}')
    return "{" + ",".join(parts) + "}"


def format_rank_title(side: str, rank: Rank) -> str:
    """Return the title of a rank: ``head rank 3 (pp=1 dp=0)``."""
    coordinates = " ".join(f"{axis}={position}" for axis, position in rank.coordinates.items())
    words = [side, f"rank {rank.number}", f"({coordinates})" if coordinates else ""]
    return " ".join(word for word in words if word)
