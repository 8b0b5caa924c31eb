"""How do the picked windows of a run leave as a small trace that Perfetto and chrome://tracing open?

One process for each rank: the window, its exposed communication, why no compute runs, a lane for each stream with
arrows from the launches, the calls of the API, the ranges of each CPU thread. Categories and arguments are those of
torch.profiler; times are microseconds with three decimals, so that no nanosecond is lost. What no event shows stands in
the first member, from which :mod:`pytest_nsys.traces.chrome.cut` reads the same ranks and windows again. The same
windows give the same bytes.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from pathlib import Path

from pytest_nsys.analysis.cutting import RankCut, RunCut
from pytest_nsys.analysis.run import Run
from pytest_nsys.core.conventions import BUILT_IN, spelled_convention
from pytest_nsys.core.file_names import WINDOW_SUFFIX
from pytest_nsys.core.model import OPEN_END_NS, ImpossibleRows, LaunchRecord, Note, Rank, TraceFacts
from pytest_nsys.reports.cut_lanes import CutLane, Json, lanes_of
from pytest_nsys.reports.tables import without_halves
from pytest_nsys.traces.chrome.cut import CLOCK, COUNTER, CUT, FORMAT, KERNEL, MEMORY
from pytest_nsys.traces.gpu_log import notes_on_gpus
from pytest_nsys.verdicts.evaluate import GateContext
from pytest_nsys.verdicts.gate_windows import gate_windows

PACKED = ".gz"
PID_BITS = 24
EXACT_NS = 1 << 52
"""Up to here viewers, which take microseconds for floats, keep every nanosecond."""
SECOND_NS = 1_000_000_000
MOST_KEPT_KERNELS = 50_000
"""At 20 bytes of a packed kernel no more fit beside a baseline; a million would take a minute to find that out."""


def kept_windows(context: GateContext, ranks: frozenset[int] | None = None) -> bytes:
    """What a gate file judges of a run, of all ranks or of some, as the file that is kept beside its baseline.

    Raises NothingMeasured, UsageMistake where there is nothing to keep, or too much.
    """
    found = gate_windows(context.gate, context.captures.runs[0], MOST_KEPT_KERNELS, ranks)
    return packed(chrome_trace([found]), Path(WINDOW_SUFFIX))


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
            numbered = [(next(tids), lane) for lane in lanes_of(one, drawn=side.drawn)]
            about.append(_about(side, one, pid, own_ns, numbered))
            events += _names(side, one, pid, len(about), numbered)
            events += _events(numbered, pid, own_ns, arrows if side.drawn else None)
            events += _counters(one, pid, own_ns)
    first = sides[-1]
    convention = first.run.convention
    # Of the whole run: they tell its convention from that of runs without known libraries.
    libraries = sorted({pair for trace in first.run.traces for pair in trace.library_kernels()})
    traces = list({one.rank.process.trace: one.facts for one in first.ranks}.values())
    impossible = reduce(ImpossibleRows.and_, (facts.impossible for facts in traces), ImpossibleRows())
    cut: Json = {
        "format": FORMAT,
        "measured": first.measured,
        "views": [(spec.window, spec.span, spec.kernels, spec.kind) for spec in first.specs],
        "convention": convention.name,
        "fingerprint": convention.fingerprint(),
        **({} if convention == BUILT_IN.get(convention.name) else {"mapping": spelled_convention(convention)}),
        **({"copies": list(convention.copies)} if convention.copies else {}),
        **({"libraries": libraries} if libraries else {}),
        **({"impossible": impossible} if impossible.number else {}),
        "ranges": first.patterns,
        "diagnostics": [each.told for facts in traces for each in facts.diagnostics],
        "to_see": (traces[0].to_see_sizes, traces[0].to_see_memory, traces[0].to_see_clocks),
        "on_gpus": list(_on_gpus(first)),
        "files": len({one.rank.process.trace for one in first.ranks}),
        "processes": about,
    }
    listed = ",\n".join(events)
    return without_halves(f'{{"{CUT}":{_json(cut)},\n"displayTimeUnit":"ns",\n"traceEvents":[\n{listed}\n]}}\n')


def _on_gpus(side: RunCut) -> Iterator[Note]:
    """What nvidia-smi said before and after the run, by the name of the file that it was said beside."""
    for number in dict.fromkeys(one.rank.process.trace for one in side.ranks):
        path = side.run.traces[number].path
        for note in notes_on_gpus(path):
            yield note._replace(text=note.text.replace(f"{path.parent}/", "", 1))
        yield from side.run.facts[number].on_gpus


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


def _about(side: RunCut, one: RankCut, pid: int, base_ns: int, lanes: Sequence[tuple[int, CutLane]]) -> Json:
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
            {
                "windows": [(w.window.start_ns, w.window.end_ns) for w in view.windows],
                "on_gpu": view.on_gpu_ns,
                **({"launches": [_said(record) for record in view.launches]} if view.launches else {}),
            }
            for view in one.views
        ],
        "session_ns": facts.sessions_ns.get(rank.process.global_pid, facts.session_ns),
        "idle": one.idle,
        **({"shares": shares} if (shares := _shares(side.run, rank, facts)) else {}),
        **({"units": [(*place, *units) for place, units in one.units.items()]} if one.units else {}),
        "anchors": [(r.start_ns, None if r.end_ns == OPEN_END_NS else r.end_ns, r.thread, r.name) for r in one.anchors],
    }


def _said(record: LaunchRecord) -> Json:
    """What became of the calls of one kind, with the missing share as a fraction."""
    return {**record._asdict(), "without": Fraction(record.without).as_integer_ratio()}


def _shares(run: Run, rank: Rank, facts: TraceFacts) -> dict[str, int]:
    """The number of each GPU of a rank by its device, in a run in which processes share one."""
    if not run.shared_gpus:
        return {}
    numbers = {uuid: n for n, uuid in enumerate(sorted({own for each in run.facts for own in each.uuids.values()}))}
    own = ((device, uuid) for (pid, device), uuid in sorted(facts.uuids.items()) if pid == rank.pid)
    return {str(device): numbers[uuid] for device, uuid in own if rank.device in (None, device)}


def _names(side: RunCut, one: RankCut, pid: int, order: int, lanes: Sequence[tuple[int, CutLane]]) -> Iterator[str]:
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


def _events(
    lanes: Sequence[tuple[int, CutLane]], pid: int, base_ns: int, arrows: Iterator[int] | None
) -> Iterator[str]:
    """The events of one rank, lane by lane; an arrow's end follows what it is bound to. None: there are no arrows."""

    def event(ph: str, cat: str, name: str, tid: int, time_ns: int, **more: Json) -> dict[str, Json]:
        return {"ph": ph, "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": time_ns - base_ns, **more}

    launched: dict[int, list[int]] = {}
    for _, lane in lanes:
        for span in lane.spans:
            if arrows is not None and span.category == KERNEL and (called := span.args.get("launch_ns")) is not None:
                launched.setdefault(called, []).append(next(arrows))
    waiting = {time_ns: iter(numbers) for time_ns, numbers in launched.items()}
    for tid, lane in lanes:
        for span in lane.spans:
            more = {"dur": span.end_ns - span.start_ns, **({"args": span.args} if span.args else {})}
            yield _timed(event("X", span.category, span.name, tid, span.start_ns, **more))
            if span.is_launch:
                for number in launched.pop(span.start_ns, ()):
                    yield _timed(event("s", "ac2g", "ac2g", tid, span.start_ns, id=number))
            elif arrows is not None and span.category == KERNEL and "launch_ns" in span.args:
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


def title(side: str, rank: Rank) -> str:
    """``head rank 3 (pp=1 dp=0)``."""
    place = " ".join(f"{axis}={at}" for axis, at in rank.coordinates.items())
    words = [side, f"rank {rank.number}", f"({place})" if place else ""]
    return " ".join(word for word in words if word)
