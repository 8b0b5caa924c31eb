"""What stands on which lane of a drawing: windows, what is exposed, why no compute runs, streams, copies, threads?

Spans of one lane never cross: they follow each other, or, of CPU ranges, nest. What crosses goes to a second lane of
the same name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_nsys.analysis.budget.budget import budget_of
from pytest_nsys.analysis.budget.timeline import exposed_parts, in_order
from pytest_nsys.analysis.windows.rank_window import RankWindow, StreamUse
from pytest_nsys.core.conventions import COMPUTE, NO_STAGE
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.model import NO_LAUNCH, Api, Collective, Interval, Range, Rank, Stream
from pytest_nsys.core.tables import Kernels, LaunchCalls, Series

KERNEL, CALL, RANGE = "kernel", "cuda_runtime", "user_annotation"
"""Categories of events, as torch.profiler calls them."""
WINDOW, EXPOSED, GAP, TRANSFER = "window", "exposed", "gap", "transfer"
GRAPH_NODE = "graph node id"
LAUNCH = "launch"
"""Name of a launch whose call the trace does not name."""
COLLECTIVE = {
    "name": "Collective name",
    "group": "Process Group Name",
    "members": "Process Group Members",
    "group_size": "Group size",
    "in_elements": "In msg nelems",
    "out_elements": "Out msg nelems",
    "dtype": "dtype",
}
"""What torch.profiler calls the fields of a Collective; it has no word for what tells two groups of a name apart."""

Json = Any


class LaunchedKernels(NamedTuple):
    """Some of the ``kernels``, by their ``positions``, and what launched each of all."""

    kernels: Kernels
    calls: LaunchCalls
    positions: Sequence[int]


@dataclass(frozen=True)
class RankDrawing:
    """The windows of one rank with what is drawn around them, in ``span_ns``. ``others`` are all kernels of that time,
    ``transfers`` its copies and memsets.
    """

    rank: Rank
    windows: Sequence[RankWindow]
    others: LaunchedKernels
    transfers: LaunchedKernels
    ranges: Sequence[Range]
    calls: Sequence[Api]
    memory: Series | None
    sm_clocks: Series | None
    span_ns: Interval


class Slice(NamedTuple):
    """One event with a duration. Where an arrow to a kernel starts, ``is_launch``."""

    start_ns: int
    end_ns: int
    category: str
    name: str
    args: Mapping[str, Json]
    is_launch: bool = False


@dataclass(frozen=True)
class DrawnLane:
    """Spans by start, the outer of two before the inner. ``thread`` is that of ranges, as the trace numbers it."""

    name: str
    spans: Sequence[Slice]
    thread: int | None = None


def without_crossings(spans: Iterable[Slice], *, nested: bool = False) -> list[list[Slice]]:
    """The spans on as few lanes as it takes, first come first served, that none crosses another of its lane.

    ``nested``: one may lie inside another.
    """
    lanes: list[tuple[list[Slice], list[int]]] = []  # each with the ends that the next span may lie inside of
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        lane = next((lane for lane in lanes if _has_room(lane[1], span, nested)), None)
        if lane is None:
            lanes.append(lane := ([], []))
        lane[0].append(span)
        lane[1].append(span.end_ns)
    return [lane for lane, _ in lanes]


def _has_room(ends: list[int], span: Slice, nested: bool) -> bool:
    while ends and ends[-1] <= span.start_ns:
        ends.pop()
    return not ends or (nested and span.end_ns <= ends[-1])


def lanes_of(one: RankDrawing) -> Iterator[DrawnLane]:
    """The lanes of a rank, from what a person looks for first to the threads of the CPU."""
    shown: list[tuple[str, int | None, Iterable[Slice], bool]] = [
        ("window", None, _windows(one), True),
        ("exposed communication", None, _exposed(one), False),
        ("without compute", None, _gaps(one), False),
        *((name, None, spans, False) for name, spans in _streams(one)),
        ("copies and memsets", None, _transfers(one), False),
        *((f"CUDA API, thread {thread}", thread, spans, True) for thread, spans in _calls(one)),
        *((f"thread {thread}", thread, spans, True) for thread, spans in _threads(one)),
    ]
    for name, thread, spans, nested in shown:
        for lane in without_crossings(spans, nested=nested):
            yield DrawnLane(name, lane, thread)


def _windows(one: RankDrawing) -> Iterator[Slice]:
    """Each window, and what of the GPU's time was measured where that is another span."""
    for w in one.windows:
        own = w.window
        facts = {"index": own.index, "count": own.count, "measured": str(w.spec), "kernels": len(w)}
        yield _within(one.span_ns, (own.start_ns, own.end_ns), WINDOW, own.name, facts)
        if w.spec.by_launch:
            yield _within(one.span_ns, (w.start_ns, w.end_ns), WINDOW, "measured on the GPU", {})


def _within(shown: Interval, span: Interval, category: str, name: str, args: Mapping[str, Json]) -> Slice:
    """A span cut at the edges of what is shown."""
    start = max(span[0], shown[0])
    return Slice(start, max(start, min(span[1], shown[1])), category, name, args)


def _exposed(one: RankDrawing) -> Iterator[Slice]:
    """The parts of each communication kernel during which no compute ran: their lengths sum to ``exposed_ns``."""
    for w in one.windows:
        kernels = w.kernels
        for i, gap in exposed_parts(w):
            stage = w.context(i)[0]
            said = "exposed" if stage == NO_STAGE else f"exposed {stage}"
            stream = kernels.streams[kernels.stream[i]].number
            args = {"stage": stage, "kernel": _name(kernels, i), "stream": stream, "exposed_ns": gap[1] - gap[0]}
            yield Slice(*gap, EXPOSED, said, args)


def _gaps(one: RankDrawing) -> Iterator[Slice]:
    """The parts of each time without compute, as the budget has them; nothing of a window without a budget."""
    for w in one.windows:
        with contextlib.suppress(NoRows):
            for start, end, part, waiting, by in budget_of(w).each():
                name, stage = (waiting.name, waiting.stage) if waiting is not None else (None, NO_STAGE)
                args = {"waiting": name, "stage": stage}
                args |= {} if by is None else {"producer": by.name, "producer_stage": by.stage}
                yield Slice(start, end, GAP, part, args)


def _streams(one: RankDrawing) -> Iterator[tuple[str, list[Slice]]]:
    """The kernels of each stream, compute first; a kernel of two windows is shown once."""
    uses = {use.stream: use for w in reversed(one.windows) for use in w.streams}
    found: dict[Stream, list[Slice]] = {stream: [] for stream in uses}
    for some, position, facts, collective in _kernels_once(one, uses):
        stream = some.kernels.streams[some.kernels.stream[position]]
        found.setdefault(stream, []).append(_kernel(some, position, collective, facts))
    for name, use in in_order(uses.values()):
        kind = COMPUTE if use.purpose == COMPUTE else f"communication, {use.purpose}"
        yield f"{name}, {kind}", _by_time(found.pop(use.stream))
    for stream, spans in sorted(found.items()):
        yield f"stream {stream.number}, not measured", _by_time(spans)


def _kernels_once(
    one: RankDrawing, uses: Mapping[Stream, StreamUse]
) -> Iterator[tuple[LaunchedKernels, int, Mapping[str, Json], Collective | None]]:
    """The kernels of all windows, each by its place among some, with what they are in them; then all others."""
    shown: set[object] = set()
    for w in one.windows:
        some, collectives = _launched(w), w.track.collectives or {}
        for i, position in enumerate(w.positions):
            if (key := _identity(some.kernels, position)) not in shown:
                facts = {"stage": w.context(i)[0], "purpose": uses[key[-1]].purpose}
                yield some, position, facts, collectives.get(position)
                shown.add(key)
    for position in one.others.positions:
        if _identity(one.others.kernels, position) not in shown:
            yield one.others, position, {"measured": False}, None


def _launched(w: RankWindow) -> LaunchedKernels:
    return LaunchedKernels(w.track.kernels, w.track.launch_calls, w.positions)


def _identity(kernels: Kernels, i: int) -> tuple[int, int, int, Stream]:
    """By what a kernel is the same one, whichever window it was read for."""
    return kernels.start_ns[i], kernels.end_ns[i], kernels.correlation[i], kernels.streams[kernels.stream[i]]


def _by_time(spans: Iterable[Slice]) -> list[Slice]:
    """In order of start; what starts together stays as it is."""
    return sorted(spans, key=lambda span: span.start_ns)


def _kernel(some: LaunchedKernels, i: int, collective: Collective | None, facts: Mapping[str, Json]) -> Slice:
    """A kernel in its whole length, also where the window cuts it."""
    kernels = some.kernels
    name, full = _name(kernels, i), kernels.names.get(kernels.full_name[i], "")
    args: dict[str, Json] = {**facts}
    args |= {"demangled": full} if full != name else {}
    args |= _place(some, i)
    args |= {GRAPH_NODE: 1} if kernels.graph_node[i] else {}
    if collective is not None:
        said = collective._asdict()
        args |= {written: said[field] for field, written in COLLECTIVE.items() if said[field] is not None}
    return Slice(kernels.start_ns[i], kernels.end_ns[i], KERNEL, name, args)


def _place(some: LaunchedKernels, i: int) -> dict[str, Json]:
    """Where something ran, and what is known of the call that launched it."""
    place, correlation = some.kernels.streams[some.kernels.stream[i]], some.kernels.correlation[i]
    start = some.calls.start_ns[i]
    args: dict[str, Json] = {"device": place.device, "context": place.context, "stream": place.number}
    args |= {"correlation": correlation} if correlation != NO_LAUNCH else {}
    return args | ({"launch_ns": start} if start != NO_LAUNCH else {})


def _name(kernels: Kernels, i: int) -> str:
    return kernels.names[kernels.name[i]]


def _calls(one: RankDrawing) -> Iterator[tuple[int, list[Slice]]]:
    """The calls of each thread, and the launches of kernels whose call the trace does not name."""
    launches: dict[int, tuple[int, int]] = {}
    for _, calls, positions in (*map(_launched, one.windows), one.others):
        launches |= {calls.start_ns[i]: (calls.end_ns[i], calls.thread[i]) for i in positions}
    launches.pop(NO_LAUNCH, None)
    found: dict[int, list[Slice]] = {}
    # Of several calls at one moment the one that is called a launch is it.
    for call in sorted(one.calls, key=lambda call: (call.start_ns, "aunch" not in call.name, call.name)):
        is_launch = launches.pop(call.start_ns, None) is not None
        found.setdefault(call.thread, []).append(Slice(call.start_ns, call.end_ns, CALL, call.name, {}, is_launch))
    for start, (end, thread) in sorted(launches.items()):
        found.setdefault(thread, []).append(Slice(start, end, LAUNCH, LAUNCH, {}, is_launch=True))
    yield from sorted(found.items())


def _transfers(one: RankDrawing) -> Iterator[Slice]:
    """The copies and memsets that ran in the windows, in their whole length; between GPUs by the name of their kind."""
    some, between = one.transfers, one.windows[0].track.copies_between_gpus
    called = {_identity(between, i): _name(between, i) for i in range(len(between))}
    work = some.kernels
    for i in some.positions:
        name = called.get(_identity(work, i), _name(work, i))
        yield Slice(work.start_ns[i], work.end_ns[i], TRANSFER, name, _place(some, i))


def _threads(one: RankDrawing) -> Iterator[tuple[int, list[Slice]]]:
    """The ranges of each thread. Of two with the same times, as shown, the longer one comes first."""
    found: dict[int, list[Slice]] = {}
    for r in sorted(one.ranges, key=lambda r: (r.start_ns, -r.end_ns, r.name)):
        found.setdefault(r.thread, []).append(_within(one.span_ns, (r.start_ns, r.end_ns), RANGE, r.name, {}))
    yield from sorted(found.items())
