"""What stands on which lane of a cut: windows, what is exposed, why no compute runs, streams, copies, threads?

Spans of one lane never cross: they follow each other, or, of CPU ranges, nest. What crosses goes to a second lane of
the same name.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_nsys.analysis.budget import budget_of
from pytest_nsys.analysis.cutting import RankCut, Some, identity
from pytest_nsys.analysis.rank_window import StreamUse
from pytest_nsys.analysis.timeline import exposed_parts, in_order
from pytest_nsys.core.conventions import COMPUTE, NO_STAGE
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.model import NO_LAUNCH, OPEN_END_NS, Collective, Interval, Stream
from pytest_nsys.core.tables import Kernels
from pytest_nsys.traces.chrome.cut import CALL, COLLECTIVE, COPY, GRAPH_NODE, KERNEL, RANGE, TRANSFER

WINDOW, EXPOSED, GAP = "window", "exposed", "gap"
LAUNCH = "launch"
"""Name of a launch whose call the trace does not name."""

Json = Any


class Slice(NamedTuple):
    """One event with a duration. Where an arrow to a kernel starts, ``is_launch``."""

    start_ns: int
    end_ns: int
    category: str
    name: str
    args: Mapping[str, Json]
    is_launch: bool = False


@dataclass(frozen=True)
class CutLane:
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


def lanes_of(one: RankCut, *, drawn: bool = True) -> Iterator[CutLane]:
    """The lanes of a rank, from what a person looks for first to the threads of the CPU. Not ``drawn``: without what
    follows from the rest.
    """
    shown: list[tuple[str, int | None, Iterable[Slice], bool]] = [
        ("window", None, _windows(one), True),
        ("exposed communication", None, _once(_exposed(one)) if drawn else (), False),
        ("without compute", None, _once(_gaps(one)) if drawn else (), False),
        *((name, None, spans, False) for name, spans in _streams(one)),
        ("copies and memsets", None, _transfers(one), False),
        ("copies (their starts)", None, _copies(one), True),
        *((f"CUDA API, thread {thread}", thread, spans, True) for thread, spans in _calls(one, drawn=drawn)),
        *((f"thread {thread}", thread, spans, True) for thread, spans in _threads(one)),
    ]
    for name, thread, spans, nested in shown:
        for lane in without_crossings(spans, nested=nested):
            yield CutLane(name, lane, thread)


def _once(spans: Iterable[Slice]) -> Iterator[Slice]:
    """Each of the spans once: windows that are picked in two ways may be the same."""
    return iter({(*span[:4], *span.args.items()): span for span in spans}.values())


def _windows(one: RankCut) -> Iterator[Slice]:
    """Each window, and what of the GPU's time was measured where that is another span."""
    for w in one.windows:
        own = w.window
        facts = {"index": own.index, "count": own.count, "measured": str(w.spec), "kernels": len(w)}
        yield _within(one.span_ns, (own.start_ns, own.end_ns), WINDOW, own.name, facts)
        if w.spec.by_launch:
            yield _within(one.span_ns, (w.start_ns, w.end_ns), WINDOW, "measured on the GPU", {})


def _within(shown: Interval, span: Interval, category: str, name: str, args: Mapping[str, Json]) -> Slice:
    """A span cut at the edges of what is shown; then its own times are among the arguments."""
    start, end = max(span[0], shown[0]), min(span[1], shown[1])
    if (start, end) != span:
        args = {**args, "start_ns": span[0], "end_ns": None if span[1] == OPEN_END_NS else span[1]}
    return Slice(start, max(start, end), category, name, args)


def _exposed(one: RankCut) -> Iterator[Slice]:
    """The parts of each communication kernel during which no compute ran: their lengths sum to ``exposed_ns``."""
    for w in one.windows:
        kernels = w.kernels
        for i, gap in exposed_parts(w):
            stage = w.context(i)[0]
            said = "exposed" if stage == NO_STAGE else f"exposed {stage}"
            stream = kernels.streams[kernels.stream[i]].number
            args = {"stage": stage, "kernel": _name(kernels, i), "stream": stream, "exposed_ns": gap[1] - gap[0]}
            yield Slice(*gap, EXPOSED, said, args)


def _gaps(one: RankCut) -> Iterator[Slice]:
    """The parts of each time without compute, as the budget has them; nothing of a window without a budget."""
    for w in one.windows:
        with contextlib.suppress(NoRows):
            for start, end, part, waiting, by in budget_of(w).each():
                name, stage = (waiting.name, waiting.stage) if waiting is not None else (None, NO_STAGE)
                args = {"waiting": name, "stage": stage}
                args |= {} if by is None else {"producer": by.name, "producer_stage": by.stage}
                yield Slice(start, end, GAP, part, args)


def _streams(one: RankCut) -> Iterator[tuple[str, list[Slice]]]:
    """The kernels of each stream, compute first; a kernel of two windows is shown once."""
    uses = {use.stream: use for w in reversed(one.windows) for use in w.streams}
    found: dict[Stream, list[Slice]] = {stream: [] for stream in uses}
    recorded = {id(w.track.kernels): w.track.collectives or {} for w in one.windows}
    for some, position, facts in _kernels_once(one, uses):
        collective = recorded.get(id(some.kernels), {}).get(position)
        found.setdefault(some.stream(position), []).append(_kernel(some, position, collective, facts))
    for name, use in in_order(uses.values()):
        kind = COMPUTE if use.purpose == COMPUTE else f"communication, {use.purpose}"
        yield f"{name}, {kind}", _by_time(found.pop(use.stream))
    for stream, spans in sorted(found.items()):
        yield f"stream {stream.number}, not measured", _by_time(spans)


def _kernels_once(one: RankCut, uses: Mapping[Stream, StreamUse]) -> Iterator[tuple[Some, int, Mapping[str, Json]]]:
    """The kernels of all windows with what they are in them, then all others, each by its place among some."""
    shown: Counter[object] = Counter()
    each: list[Counter[object]] = [Counter() for _ in one.views]
    for view, own in zip(one.views, each, strict=True):
        seen: set[int] = set()
        for w in view.windows:
            some = Some(w.track.kernels, w.track.launch_calls, w.positions)
            for i, position in enumerate(w.positions):
                if position not in seen and _is_new(identity(w.track.kernels, position), own, shown):
                    stream = w.kernels.streams[w.kernels.stream[i]]
                    yield some, position, {"stage": w.context(i)[0], "purpose": uses[stream].purpose}
                seen.add(position)
    for view, own in zip(one.views, each, strict=True):
        for some in view.others:
            for position in some.positions:
                if _is_new(identity(some.kernels, position), own, shown):
                    yield some, position, {"measured": False}


def _is_new(what: object, own: Counter[object], shown: Counter[object]) -> bool:
    """Whether a view has it once more than was shown of any view before."""
    own[what] += 1
    shown[what] = max(own[what], before := shown[what])
    return shown[what] > before


def _by_time(spans: Iterable[Slice]) -> list[Slice]:
    """In order of start; what starts together stays as it is."""
    return sorted(spans, key=lambda span: span.start_ns)


def _kernel(some: Some, i: int, collective: Collective | None, facts: Mapping[str, Json]) -> Slice:
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


def _place(some: Some, i: int) -> dict[str, Json]:
    """Where something ran, and what is known of the call that launched it."""
    place, correlation = some.stream(i), some.kernels.correlation[i]
    start, end, thread = (column[i] for column in some.calls)
    args: dict[str, Json] = {"device": place.device, "context": place.context, "stream": place.number}
    args |= {"correlation": correlation} if correlation != NO_LAUNCH else {}
    launched = {"launch_ns": start, "launch_length_ns": end - start, "launch_thread": thread}
    return args | (launched if start != NO_LAUNCH else {})


def _name(kernels: Kernels, i: int) -> str:
    return kernels.names[kernels.name[i]]


def _calls(one: RankCut, *, drawn: bool) -> Iterator[tuple[int, list[Slice]]]:
    """The calls of each thread; where it is ``drawn`` those that launched kernels, by their time."""
    shown = [Some(w.track.kernels, w.track.launch_calls, w.positions) for w in one.windows]
    waiting: dict[int, tuple[int, int, int]] = {}
    for kernels, launch, positions in (*shown, *(some for view in one.views for some in view.others)) if drawn else ():
        for i in positions:
            waiting.setdefault(launch.start_ns[i], (kernels.correlation[i], launch.end_ns[i], launch.thread[i]))
    waiting.pop(NO_LAUNCH, None)
    found: dict[int, list[Slice]] = {}
    # Of several calls at one moment the one that is called a launch is it.
    for call in sorted(one.calls or (), key=lambda call: (call.start_ns, "aunch" not in call.name, call.name)):
        known = waiting.pop(call.start_ns, None)
        args = {} if known is None else {"correlation": known[0]}
        span = Slice(call.start_ns, call.end_ns, CALL, call.name, args, is_launch=known is not None)
        found.setdefault(call.thread, []).append(span)
    for time, (correlation, end_ns, thread) in sorted(waiting.items()):
        span = Slice(time, end_ns, LAUNCH, LAUNCH, {"correlation": correlation}, is_launch=True)
        found.setdefault(thread, []).append(span)
    yield from sorted(found.items())


def _copies(one: RankCut) -> Iterator[Slice]:
    """Every copy at its start, with the memories that it is between."""
    for copy in one.copies or ():
        between = f" ({copy.source} -> {copy.target})" if copy.source and copy.target else ""
        args = {"source": copy.source, "target": copy.target, "launch_ns": copy.launch_ns}
        yield Slice(copy.start_ns, copy.start_ns, COPY, f"Memcpy{between}", args)


def _transfers(one: RankCut) -> Iterator[Slice]:
    """The copies and memsets that ran in the windows, in their whole length; between GPUs by the name of their kind."""
    shown: Counter[object] = Counter()
    between = one.windows[0].track.copies_between_gpus
    called = {identity(between, i): _name(between, i) for i in range(len(between))}
    for some in (view.transfers for view in one.views if view.transfers is not None):
        own, work = Counter[object](), some.kernels
        for i in some.positions:
            if _is_new((identity(work, i), _name(work, i)), own, shown):
                name = called.get(identity(work, i), _name(work, i))
                yield Slice(work.start_ns[i], work.end_ns[i], TRANSFER, name, _place(some, i))


def _threads(one: RankCut) -> Iterator[tuple[int, list[Slice]]]:
    """The ranges of each thread. Of two with the same times, as shown, the longer one comes first."""
    found: dict[int, list[Slice]] = {}
    for r in sorted(one.ranges, key=lambda r: (r.start_ns, -r.end_ns, r.name)):
        found.setdefault(r.thread, []).append(_within(one.span_ns, (r.start_ns, r.end_ns), RANGE, r.name, {}))
    yield from sorted(found.items())
