"""Which lanes does a drawing of a rank have: windows, exposed parts, times without compute, streams, copies, threads?

Slices of one lane never overlap partially: they follow each other, and CPU ranges may nest. A slice that would cross
another goes to a second lane of the same name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_nsys.analysis.budget.budget import measure_budget
from pytest_nsys.analysis.budget.timeline import list_exposed_parts, sort_streams
from pytest_nsys.analysis.windows.rank_window import RankWindow, StreamUse
from pytest_nsys.core.conventions import COMPUTE_PURPOSE, NO_STAGE
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.model import NO_LAUNCH, Api, Collective, Interval, Range, Rank, Stream
from pytest_nsys.core.tables import Kernels, LaunchCalls, Series

KERNEL, CALL, RANGE = "kernel", "cuda_runtime", "user_annotation"
"""Categories of events, as torch.profiler calls them."""
WINDOW, EXPOSED, GAP, TRANSFER = "window", "exposed", "gap", "transfer"
GRAPH_NODE = "graph node id"
LAUNCH = "launch"
"""The name of a launch whose call the trace does not name."""
COLLECTIVE_ARGS = {
    "name": "Collective name",
    "group": "Process Group Name",
    "members": "Process Group Members",
    "group_size": "Group size",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "dtype": "dtype",
}
"""torch.profiler's names for the fields of a Collective; it has no name for the field that distinguishes groups of the
same name.
"""

Json = Any


class KernelSelection(NamedTuple):
    """Describes some kernels of a table, together with the launch calls of the whole table."""

    kernels: Kernels
    calls: LaunchCalls
    positions: Sequence[int]  # of the selected kernels in the table


@dataclass(frozen=True)
class RankDrawing:
    """Holds the windows of one rank and everything that is drawn around them."""

    rank: Rank
    windows: Sequence[RankWindow]
    other_kernels: KernelSelection  # all kernels in the drawn time span
    transfers: KernelSelection  # copies and memsets in the drawn time span
    ranges: Sequence[Range]
    calls: Sequence[Api]
    memory: Series | None
    sm_clocks: Series | None
    span_ns: Interval


class Slice(NamedTuple):
    """Describes one event with a duration."""

    start_ns: int
    end_ns: int
    category: str
    name: str
    args: Mapping[str, Json]
    is_launch: bool = False  # whether an arrow to a kernel starts here


@dataclass(frozen=True)
class DrawnLane:
    """Holds the slices of one lane by start, an outer slice before the inner one."""

    name: str
    spans: Sequence[Slice]
    thread: int | None = None  # of ranges and calls, as the trace numbers it


def split_crossing_slices(spans: Iterable[Slice], *, may_nest: bool = False) -> list[list[Slice]]:
    """Return the slices distributed over lanes so that none crosses another in its lane; each goes to the first lane
    with room.

    With ``may_nest`` a slice may lie inside another one.
    """
    open_lanes: list[tuple[list[Slice], list[int]]] = []  # each with the ends of slices in which the next may nest
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        lane = next((lane for lane in open_lanes if _has_room(lane[1], span, may_nest)), None)
        if lane is None:
            open_lanes.append(lane := ([], []))
        lane[0].append(span)
        lane[1].append(span.end_ns)
    return [lane for lane, _ in open_lanes]


def _has_room(end_times: list[int], span: Slice, may_nest: bool) -> bool:
    """Whether a slice fits behind, or with ``may_nest`` inside, the slices of a lane that end at these times.

    Removes the end times before the start of the slice.
    """
    while end_times and end_times[-1] <= span.start_ns:
        end_times.pop()
    return not end_times or (may_nest and span.end_ns <= end_times[-1])


def list_lanes(drawing: RankDrawing) -> Iterator[DrawnLane]:
    """Yield the lanes of a rank, most important first, the threads of the CPU last."""
    named_slices: list[tuple[str, int | None, Iterable[Slice], bool]] = [
        ("window", None, _list_window_slices(drawing), True),
        ("exposed communication", None, _list_exposed_slices(drawing), False),
        ("without compute", None, _list_gap_slices(drawing), False),
        *((name, None, spans, False) for name, spans in _list_stream_lanes(drawing)),
        ("copies and memsets", None, _list_transfer_slices(drawing), False),
        *((f"CUDA API, thread {thread}", thread, spans, True) for thread, spans in _list_call_lanes(drawing)),
        *((f"thread {thread}", thread, spans, True) for thread, spans in _list_thread_lanes(drawing)),
    ]
    for name, thread, spans, may_nest in named_slices:
        for lane in split_crossing_slices(spans, may_nest=may_nest):
            yield DrawnLane(name, lane, thread)


def _list_window_slices(drawing: RankDrawing) -> Iterator[Slice]:
    """Yield each window, and the span measured on the GPU if it differs."""
    for rank_window in drawing.windows:
        window = rank_window.window
        facts = {
            "index": window.index,
            "count": window.count,
            "measured": str(rank_window.spec),
            "kernels": len(rank_window),
        }
        yield _clip_slice(drawing.span_ns, (window.start_ns, window.end_ns), WINDOW, window.name, facts)
        if rank_window.spec.is_by_launch:
            yield _clip_slice(
                drawing.span_ns, (rank_window.start_ns, rank_window.end_ns), WINDOW, "measured on the GPU", {}
            )


def _clip_slice(shown_ns: Interval, span_ns: Interval, category: str, name: str, args: Mapping[str, Json]) -> Slice:
    """Return a slice clipped to the shown time span."""
    start = max(span_ns[0], shown_ns[0])
    return Slice(start, max(start, min(span_ns[1], shown_ns[1])), category, name, args)


def _list_exposed_slices(drawing: RankDrawing) -> Iterator[Slice]:
    """Yield the parts of each communication kernel during which no compute ran; their lengths sum to ``exposed_ns``."""
    for window in drawing.windows:
        kernels = window.kernels
        for i, interval in list_exposed_parts(window):
            stage = window.get_context(i)[0]
            label = "exposed" if stage == NO_STAGE else f"exposed {stage}"
            stream = kernels.streams[kernels.stream[i]].number
            args = {
                "stage": stage,
                "kernel": _find_kernel_name(kernels, i),
                "stream": stream,
                "exposed_ns": interval[1] - interval[0],
            }
            yield Slice(*interval, EXPOSED, label, args)


def _list_gap_slices(drawing: RankDrawing) -> Iterator[Slice]:
    """Yield the parts of each time without compute, as divided by the budget; none for a window without a budget."""
    for window in drawing.windows:
        with contextlib.suppress(NoRows):
            for start, end, part, waiting, producer in measure_budget(window).list_gap_parts():
                name, stage = (waiting.name, waiting.stage) if waiting is not None else (None, NO_STAGE)
                args = {"waiting": name, "stage": stage}
                args |= {} if producer is None else {"producer": producer.name, "producer_stage": producer.stage}
                yield Slice(start, end, GAP, part, args)


def _list_stream_lanes(drawing: RankDrawing) -> Iterator[tuple[str, list[Slice]]]:
    """Yield the kernels of each stream with its name, compute first; a kernel of two windows is shown once."""
    use_by_stream = {use.stream: use for window in reversed(drawing.windows) for use in window.stream_uses}
    slices_by_stream: dict[Stream, list[Slice]] = {stream: [] for stream in use_by_stream}
    for selection, position, facts, collective in _list_kernels_once(drawing, use_by_stream):
        stream = selection.kernels.streams[selection.kernels.stream[position]]
        slices_by_stream.setdefault(stream, []).append(_make_kernel_slice(selection, position, collective, facts))
    for name, use in sort_streams(use_by_stream.values()):
        kind = COMPUTE_PURPOSE if use.purpose == COMPUTE_PURPOSE else f"communication, {use.purpose}"
        yield f"{name}, {kind}", _sort_slices_by_start(slices_by_stream.pop(use.stream))
    for stream, spans in sorted(slices_by_stream.items()):
        yield f"stream {stream.number}, not measured", _sort_slices_by_start(spans)


def _list_kernels_once(
    drawing: RankDrawing, use_by_stream: Mapping[Stream, StreamUse]
) -> Iterator[tuple[KernelSelection, int, Mapping[str, Json], Collective | None]]:
    """Yield each kernel of all windows once, then all other kernels: each as its table, position in it, facts, and
    collective.
    """
    listed_keys: set[object] = set()
    for window in drawing.windows:
        selection, collectives = _select_window_kernels(window), window.track.collectives or {}
        for i, position in enumerate(window.positions):
            if (key := _identify_kernel(selection.kernels, position)) not in listed_keys:
                facts = {"stage": window.get_context(i)[0], "purpose": use_by_stream[key[-1]].purpose}
                yield selection, position, facts, collectives.get(position)
                listed_keys.add(key)
    for position in drawing.other_kernels.positions:
        if _identify_kernel(drawing.other_kernels.kernels, position) not in listed_keys:
            yield drawing.other_kernels, position, {"measured": False}, None


def _select_window_kernels(window: RankWindow) -> KernelSelection:
    return KernelSelection(window.track.kernels, window.track.launch_calls, window.positions)


def _identify_kernel(kernels: Kernels, i: int) -> tuple[int, int, int, Stream]:
    """Return the identity of a kernel, equal however often and for whichever window it was read."""
    return kernels.start_ns[i], kernels.end_ns[i], kernels.correlation[i], kernels.streams[kernels.stream[i]]


def _sort_slices_by_start(spans: Iterable[Slice]) -> list[Slice]:
    """Return the slices sorted by start; slices with equal starts keep their order."""
    return sorted(spans, key=lambda span: span.start_ns)


def _make_kernel_slice(
    selection: KernelSelection, i: int, collective: Collective | None, facts: Mapping[str, Json]
) -> Slice:
    """Return the slice of a kernel in its full length, even if the window cuts it."""
    kernels = selection.kernels
    name, full_name = _find_kernel_name(kernels, i), kernels.names.get(kernels.full_name[i], "")
    args: dict[str, Json] = {**facts}
    args |= {"demangled": full_name} if full_name != name else {}
    args |= _build_location_args(selection, i)
    args |= {GRAPH_NODE: 1} if kernels.graph_node[i] else {}
    if collective is not None:
        fields = collective._asdict()
        args |= {arg_name: fields[field] for field, arg_name in COLLECTIVE_ARGS.items() if fields[field] is not None}
    return Slice(kernels.start_ns[i], kernels.end_ns[i], KERNEL, name, args)


def _build_location_args(selection: KernelSelection, i: int) -> dict[str, Json]:
    """Return the arguments with the place (device, stream) of a kernel or copy, and when its launch call began."""
    stream, correlation = selection.kernels.streams[selection.kernels.stream[i]], selection.kernels.correlation[i]
    launch_ns = selection.calls.start_ns[i]
    args: dict[str, Json] = {"device": stream.device, "context": stream.context, "stream": stream.number}
    args |= {"correlation": correlation} if correlation != NO_LAUNCH else {}
    return args | ({"launch_ns": launch_ns} if launch_ns != NO_LAUNCH else {})


def _find_kernel_name(kernels: Kernels, i: int) -> str:
    return kernels.names[kernels.name[i]]


def _list_call_lanes(drawing: RankDrawing) -> Iterator[tuple[int, list[Slice]]]:
    """Yield the API calls of each thread, and the launches of kernels whose call the trace does not name."""
    launches: dict[int, tuple[int, int]] = {}
    for _, calls, positions in (*map(_select_window_kernels, drawing.windows), drawing.other_kernels):
        launches |= {calls.start_ns[i]: (calls.end_ns[i], calls.thread[i]) for i in positions}
    launches.pop(NO_LAUNCH, None)
    slices_by_thread: dict[int, list[Slice]] = {}
    # Of several calls at the same time, the one named a launch comes first ("Launch" or "launch", hence "aunch").
    for call in sorted(drawing.calls, key=lambda call: (call.start_ns, "aunch" not in call.name, call.name)):
        is_launch = launches.pop(call.start_ns, None) is not None
        slices_by_thread.setdefault(call.thread, []).append(
            Slice(call.start_ns, call.end_ns, CALL, call.name, {}, is_launch)
        )
    for start, (end, thread) in sorted(launches.items()):
        slices_by_thread.setdefault(thread, []).append(Slice(start, end, LAUNCH, LAUNCH, {}, is_launch=True))
    yield from sorted(slices_by_thread.items())


def _list_transfer_slices(drawing: RankDrawing) -> Iterator[Slice]:
    """Yield the copies and memsets that ran in the windows, in full length; a copy between GPUs is named by its
    kind.
    """
    selection, copies_between_gpus = drawing.transfers, drawing.windows[0].track.read_copies_between_gpus
    name_by_copy = {
        _identify_kernel(copies_between_gpus, i): _find_kernel_name(copies_between_gpus, i)
        for i in range(len(copies_between_gpus))
    }
    transfers = selection.kernels
    for i in selection.positions:
        name = name_by_copy.get(_identify_kernel(transfers, i), _find_kernel_name(transfers, i))
        yield Slice(transfers.start_ns[i], transfers.end_ns[i], TRANSFER, name, _build_location_args(selection, i))


def _list_thread_lanes(drawing: RankDrawing) -> Iterator[tuple[int, list[Slice]]]:
    """Yield the ranges of each CPU thread."""
    slices_by_thread: dict[int, list[Slice]] = {}
    # The longer range comes first, so that ranges with equal times after clipping nest as in the trace.
    for cpu_range in sorted(
        drawing.ranges, key=lambda cpu_range: (cpu_range.start_ns, -cpu_range.end_ns, cpu_range.name)
    ):
        slices_by_thread.setdefault(cpu_range.thread, []).append(
            _clip_slice(drawing.span_ns, (cpu_range.start_ns, cpu_range.end_ns), RANGE, cpu_range.name, {})
        )
    yield from sorted(slices_by_thread.items())
