"""How do the picked windows of a run leave as a small trace that Perfetto and chrome://tracing open?

One process for each rank: the window, its exposed communication, why no compute runs, a lane for each stream with
arrows from the launches, the calls of the API, the ranges of each CPU thread. Categories and arguments are those of
torch.profiler; times are microseconds with three decimals, so that no nanosecond is lost. What no event shows stands in
the first member, from which :mod:`pytest_nsys.traces.chrome.cut` reads the same ranks and windows again. The same
windows give the same bytes.

Spans of one lane never cross: they follow each other, or, of CPU ranges, nest. What crosses goes to a second lane of
the same name.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pytest_nsys.analysis.cutting import RankCut, RunCut, Some, identity
from pytest_nsys.analysis.rank_window import StreamUse
from pytest_nsys.analysis.timeline import exposed_parts, in_order
from pytest_nsys.analysis.timeline_gaps import parts_of_gaps
from pytest_nsys.core.conventions import BUILT_IN, COMPUTE, NO_STAGE
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.model import (
    NO_KERNELS,
    NO_LAUNCH,
    OPEN_END_NS,
    Collective,
    Interval,
    Kernels,
    KernelsMode,
    Rank,
    Stream,
)
from pytest_nsys.core.operations import NO_CALLS, LaunchCalls
from pytest_nsys.core.spelled_convention import spelled_convention
from pytest_nsys.reports.tables import without_halves
from pytest_nsys.traces.chrome.cut import CUT, FORMAT
from pytest_nsys.traces.chrome.cut_process import (
    CALL,
    CLOCK,
    COLLECTIVE,
    COPY,
    COUNTER,
    GRAPH_NODE,
    KERNEL,
    MEMORY,
    RANGE,
    TRANSFER,
)

PACKED = ".gz"
PID_BITS = 24
EXACT_NS = 1 << 52
"""Up to here viewers, which take microseconds for floats, keep every nanosecond."""
SECOND_NS = 1_000_000_000

WINDOW, EXPOSED, GAP = "window", "exposed", "gap"
LAUNCH = "launch"
"""Name of a launch whose call the trace does not name."""

Json = Any


def packed(text: str, path: Path) -> bytes:
    """The file's bytes: packed where its name ends in ``.gz``, without a time in them."""
    content = text.encode("ascii")
    return gzip.compress(content, mtime=0) if path.name.endswith(PACKED) else content


def chrome_trace(sides: Sequence[RunCut]) -> str:
    """The windows of one run, or of base and head side by side, as JSON in ASCII."""
    bases, pids = _bases(sides), _process_ids(sides)
    tids, arrows = itertools.count(1), itertools.count(1)
    about: list[Json] = []
    events: list[str] = []
    for number, (side, base_ns) in enumerate(zip(sides, bases, strict=True)):
        for one in side.ranks:
            pid, own_ns = pids[number, one.rank.number], base_ns + _ahead_ns(side, one)
            numbered = [(next(tids), lane) for lane in lanes_of(one)]
            about.append(_about(side, one, pid, own_ns, numbered))
            events += _names(side, one, pid, len(about), numbered)
            events += _events(numbered, pid, own_ns, arrows)
            events += _counters(one, pid, own_ns)
    first = sides[-1]
    convention = first.run.convention
    # Of the whole run: they tell its convention from that of runs without known libraries.
    libraries = sorted({pair for trace in first.run.traces for pair in trace.library_kernels()})
    traces = list({one.rank.process.trace: one.facts for one in first.ranks}.values())
    cut: Json = {
        "format": FORMAT,
        "measured": first.measured,
        "views": [
            {"measured": str(spec), "whole_run": spec.whole_run, "launched": spec.kernels is KernelsMode.LAUNCHED}
            for spec in first.specs
        ],
        "convention": convention.name,
        "fingerprint": convention.fingerprint(),
        **({} if convention == BUILT_IN.get(convention.name) else {"mapping": spelled_convention(convention)}),
        **({"copies": list(convention.copies)} if convention.copies else {}),
        **({"libraries": libraries} if libraries else {}),
        "ranges": first.patterns,
        "diagnostics": [each.told for facts in traces for each in facts.diagnostics],
        "to_see": (traces[0].to_see_sizes, traces[0].to_see_memory, traces[0].to_see_clocks),
        "counts_gpus": all(facts.counts_gpus for facts in traces),
        "files": len({one.rank.process.trace for one in first.ranks}),
        "processes": about,
    }
    listed = ",\n".join(events)
    return without_halves(f'{{"{CUT}":{_json(cut)},\n"displayTimeUnit":"ns",\n"traceEvents":[\n{listed}\n]}}\n')


def _json(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"))


def _ahead_ns(side: RunCut, one: RankCut) -> int:
    """What is taken off the times of a rank to have those of the first one's clock; nothing where it is unknown."""
    return side.standing(one).ahead_ns or 0


def _bases(sides: Sequence[RunCut]) -> list[int]:
    """What is taken off the times of each side on its first rank's clock.

    Nothing of a trace whose times are small, so that they are those of its other viewers. The windows of two sides,
    whose clocks have nothing in common, begin at the same moment.
    """
    spans, begins = [], []
    for side in sides:
        ahead = {one.rank.number: _ahead_ns(side, one) for one in side.ranks}
        shown = [tuple(t - ahead[one.rank.number] for t in one.span_ns) for one in side.ranks]
        spans.append((min(low for low, _ in shown), max(high for _, high in shown)))
        each = ((max(r.span_ns[0], w.start_ns) - ahead[r.rank.number]) for r in side.ranks for w in r.windows)
        begins.append(min(each))
    if len(sides) == 1:
        low, high = spans[0]
        return [0 if low >= 0 and high < EXACT_NS else low // SECOND_NS * SECOND_NS]
    lead = max(begin - low for begin, (low, _) in zip(begins, spans, strict=True))
    return [begin - lead for begin in begins]


def _process_ids(sides: Sequence[RunCut]) -> dict[tuple[int, int], int]:
    """The number of each process by place of its side and rank: head's own, and another one where two ranks share it.

    A viewer takes 0 for no process. Ranks that only their order numbers have ascending ones, by which they are read
    again in that order.
    """
    own = {(place, one.rank.number): one.rank.pid for place, side in enumerate(sides) for one in side.ranks}
    taken = {0, *own.values()}
    free = (n for n in itertools.chain(range(max(taken) + 1, 1 << PID_BITS), itertools.count(1)) if n not in taken)
    found: dict[tuple[int, int], int] = {}
    for place, pid in sorted(own.items(), key=lambda item: (-item[0][0], item[0][1])):
        found[place] = next(free) if pid in (0, *found.values()) else pid
    read = sides[-1]
    ordered = {(len(sides) - 1, one.rank.number): read.clocks.index(one.rank.process.clock) for one in read.ranks}
    placed = [(clock, found[place]) for place, clock in ordered.items()]
    if placed != sorted(placed) and all(one.rank.setup is None for one in read.ranks):
        found |= {place: next(free) for place in ordered}
    return found


def _about(side: RunCut, one: RankCut, pid: int, base_ns: int, lanes: Sequence[tuple[int, Lane]]) -> Json:
    rank, facts = one.rank, one.facts
    setup = rank.setup
    return {
        "pid": pid,
        "side": side.side,
        "rank": rank.number,
        "trace": rank.trace.name,
        "setup": None if setup is None else setup._asdict(),
        "base_ns": base_ns,
        "clock": side.clocks.index(rank.process.clock),
        "zero_ns": side.zero_ns(one),
        "tie": side.tie(one),
        "gpus": {
            str(device): model
            for (own, device), model in sorted(facts.gpus.items())
            if own == rank.pid and rank.device in (None, device)
        },
        "models": list(facts.models),
        "profiler": facts.profiler_version,
        "whole_graphs": facts.whole_graphs,
        "calls": one.calls is not None,
        "copies": one.copies is not None,
        "transfers": any(view.transfers is not None for view in one.views),
        "memory": one.memory is not None,
        "earlier": one.memory.earlier if one.memory else 0,
        "clocks": one.sm_clocks is not None,
        "collectives": any(w.track.collectives is not None for w in one.windows),
        "threads": {str(tid): lane.thread for tid, lane in lanes if lane.thread is not None},
        "waits": one.waits,
        "views": [
            {"windows": [(w.window.start_ns, w.window.end_ns) for w in view.windows], "on_gpu": view.on_gpu_ns}
            for view in one.views
        ],
        "session_ns": facts.sessions_ns.get(rank.process.global_pid, facts.session_ns),
        "last_ns": one.last_ns,
        "anchors": [(r.start_ns, None if r.end_ns == OPEN_END_NS else r.end_ns, r.thread, r.name) for r in one.anchors],
    }


def _names(side: RunCut, one: RankCut, pid: int, order: int, lanes: Sequence[tuple[int, Lane]]) -> Iterator[str]:
    """The names of the process and of its lanes, and the order in which a viewer shows them; how well its clock is that
    of the others.
    """

    def name(kind: str, tid: int, **args: Json) -> str:
        return _json({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args})

    yield name("process_name", 0, name=title(side.side, one.rank))
    if words := side.standing(one).words:
        yield name("process_labels", 0, labels=words)
    yield name("process_sort_index", 0, sort_index=order)
    for place, (tid, lane) in enumerate(lanes):
        yield name("thread_name", tid, name=lane.name)
        yield name("thread_sort_index", tid, sort_index=place)


def _events(lanes: Sequence[tuple[int, Lane]], pid: int, base_ns: int, arrows: Iterator[int]) -> Iterator[str]:
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


def _counters(one: RankCut, pid: int, base_ns: int) -> Iterator[str]:
    """What was allocated and how fast the SMs ran, as curves; the level at the start of a window begins with what is
    shown.
    """
    shown = {MEMORY: one.memory and one.memory.levels, CLOCK: one.sm_clocks}
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


class Slice(NamedTuple):
    """One event with a duration. Where an arrow to a kernel starts, ``is_launch``."""

    start_ns: int
    end_ns: int
    category: str
    name: str
    args: Mapping[str, Json]
    is_launch: bool = False


@dataclass(frozen=True)
class Lane:
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


def title(side: str, rank: Rank) -> str:
    """``head rank 3 (pp=1 dp=0)``."""
    place = " ".join(f"{axis}={at}" for axis, at in rank.coordinates.items())
    words = [side, f"rank {rank.number}", f"({place})" if place else ""]
    return " ".join(word for word in words if word)


def lanes_of(one: RankCut) -> Iterator[Lane]:
    """The lanes of a rank, from what a person looks for first to the threads of the CPU."""
    shown: list[tuple[str, int | None, Iterable[Slice], bool]] = [
        ("window", None, _windows(one), True),
        ("exposed communication", None, _once(_exposed(one)), False),
        ("without compute", None, _once(_gaps(one)), False),
        *((name, None, spans, False) for name, spans in _streams(one)),
        ("copies and memsets", None, _transfers(one), False),
        ("copies (their starts)", None, _copies(one), True),
        *((f"CUDA API, thread {thread}", thread, spans, True) for thread, spans in _calls(one)),
        *((f"thread {thread}", thread, spans, True) for thread, spans in _threads(one)),
    ]
    for name, thread, spans, nested in shown:
        for lane in without_crossings(spans, nested=nested):
            yield Lane(name, lane, thread)


def _once(spans: Iterable[Slice]) -> Iterator[Slice]:
    """Each of the spans once: windows that are picked in two ways may be the same."""
    return iter({(*span[:4], *span.args.items()): span for span in spans}.values())


def _windows(one: RankCut) -> Iterator[Slice]:
    """Each window, and what of the GPU's time was measured where that is another span."""
    for w in one.windows:
        own = w.window
        facts = {"index": own.index, "count": own.count, "measured": str(w.spec), "kernels": len(w)}
        yield _within(one.span_ns, (own.start_ns, own.end_ns), WINDOW, own.name, facts)
        if w.spec.kernels is KernelsMode.LAUNCHED and not w.spec.whole_run:
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
            for each in parts_of_gaps(w):
                by, gap = each.producer, each.gap
                args = {} if gap is None else {"waiting": gap.waiting, "stage": gap.waiting_stage}
                args |= {} if by is None else {"producer": by.name, "producer_stage": by.stage}
                yield Slice(each.start, each.end, GAP, each.part, args)


def _streams(one: RankCut) -> Iterator[tuple[str, list[Slice]]]:
    """The kernels of each stream, compute first; a kernel of two windows is shown once."""
    uses = {use.stream: use for w in reversed(one.windows) for use in w.streams}
    found: dict[Stream, list[Slice]] = {stream: [] for stream in uses}
    recorded = {id(w.track.kernels): w.track.collectives or {} for w in one.windows}
    for some, position, facts in _kernels_once(one, uses):
        kernels = some.kernels
        collective = recorded.get(id(kernels), {}).get(position)
        span = _kernel(kernels, position, some.calls, collective, facts)
        found.setdefault(kernels.streams[kernels.stream[position]], []).append(span)
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


def _kernel(
    kernels: Kernels, position: int, calls: LaunchCalls, collective: Collective | None, facts: Mapping[str, Json]
) -> Slice:
    """A kernel in its whole length, also where the window cuts it."""
    stream = kernels.streams[kernels.stream[position]]
    name, full = _name(kernels, position), kernels.names.get(kernels.full_name[position], "")
    correlation = kernels.correlation[position]
    args: dict[str, Json] = {**facts}
    args |= {"demangled": full} if full != name else {}
    args |= {"device": stream.device, "context": stream.context, "stream": stream.number}
    args |= {"correlation": correlation} if correlation != NO_LAUNCH else {}
    args |= _launch(calls, position)
    args |= {GRAPH_NODE: 1} if kernels.graph_node[position] else {}
    if collective is not None:
        said = collective._asdict()
        args |= {written: said[field] for field, written in COLLECTIVE.items() if said[field] is not None}
    return Slice(kernels.start_ns[position], kernels.end_ns[position], KERNEL, name, args)


def _launch(calls: LaunchCalls, i: int) -> dict[str, Json]:
    """What is known of the call that launched something."""
    start, end, thread = (column[i] for column in calls)
    return {} if start == NO_LAUNCH else {"launch_ns": start, "launch_length_ns": end - start, "launch_thread": thread}


def _name(kernels: Kernels, i: int) -> str:
    return kernels.names[kernels.name[i]]


def _calls(one: RankCut) -> Iterator[tuple[int, list[Slice]]]:
    """The calls of each thread; those that launched kernels by their time."""
    shown = [Some(w.track.kernels, w.track.launch_calls, w.positions) for w in one.windows]
    waiting: dict[int, tuple[int, int, int]] = {}
    for kernels, launch, positions in (*shown, *(some for view in one.views for some in view.others)):
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
    """The copies and memsets that ran in the windows, in their whole length."""
    shown: Counter[object] = Counter()
    for view in one.views:
        own: Counter[object] = Counter()
        some, calls, positions = view.transfers or Some(NO_KERNELS, NO_CALLS, ())
        for i in positions:
            if not _is_new((identity(some, i), _name(some, i)), own, shown):
                continue
            place, correlation = some.streams[some.stream[i]], some.correlation[i]
            args: dict[str, Json] = {"device": place.device, "context": place.context, "stream": place.number}
            args |= {"correlation": correlation} if correlation != NO_LAUNCH else {}
            args |= _launch(calls, i)
            yield Slice(some.start_ns[i], some.end_ns[i], TRANSFER, _name(some, i), args)


def _threads(one: RankCut) -> Iterator[tuple[int, list[Slice]]]:
    """The ranges of each thread. Of two with the same times, as shown, the longer one comes first."""
    found: dict[int, list[Slice]] = {}
    for r in sorted(one.ranges, key=lambda r: (r.start_ns, -r.end_ns, r.name)):
        found.setdefault(r.thread, []).append(_within(one.span_ns, (r.start_ns, r.end_ns), RANGE, r.name, {}))
    yield from sorted(found.items())
