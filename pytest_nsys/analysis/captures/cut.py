"""What belongs to the picked windows of a run, so that they can leave their traces and be measured again?

Spans of time say it: the operations of each GPU in the windows and until compute came next, ranges and waiting calls of
each host around these and around their launches; everywhere in the run the ranges that mark steps and ranks. What the
rows of a part cannot say, as which steps the run has, goes into the mark. Windows that are picked in several ways leave
together.
"""

from __future__ import annotations

import gzip
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from pytest_nsys.analysis.budget.gaps import goes_on
from pytest_nsys.analysis.facts.lost_work import called_spans, launch_records
from pytest_nsys.analysis.facts.steps import idle_periods
from pytest_nsys.analysis.metrics.activity import SYNCHRONISING_CALLS
from pytest_nsys.analysis.metrics.common_clock import by_collectives_of, common_clock, zeros_of
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.spans import WindowSpec
from pytest_nsys.core.columns import bounds
from pytest_nsys.core.conventions import BUILT_IN, spelled_convention
from pytest_nsys.core.intervals import hull
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import (
    NO_LAUNCH,
    OPEN_END_NS,
    Clock,
    Diagnostic,
    ImpossibleRows,
    Interval,
    Note,
    Picked,
    ProcessId,
    Rank,
    Tie,
    TraceFacts,
)
from pytest_nsys.core.tables import Kernels, Series
from pytest_nsys.traces.cut import (
    AGAIN,
    MAY_LACK,
    CutPart,
    LostWork,
    Mark,
    MarkedRank,
    process_in_cut,
    reader_of,
)
from pytest_nsys.traces.gpu_log import notes_on_gpus
from pytest_nsys.traces.nsys.cut import write_tables
from pytest_nsys.traces.nsys.sqlite import NsysSqlite

EVER: Interval = (NO_LAUNCH + 1, OPEN_END_NS)


@dataclass(frozen=True)
class RunCut:
    """The windows of some ranks of a run as each of the specs picks them: ``views`` has them by rank.

    ``named`` are patterns of ranges that are kept wherever in the run they are.
    """

    run: Run
    specs: Sequence[WindowSpec]
    views: Sequence[Mapping[int, Sequence[RankWindow]]]
    named: Sequence[str] = ()

    @property
    def ranks(self) -> list[Rank]:
        """Those of all views, by number."""
        known = {number: windows[0].rank for view in self.views for number, windows in view.items()}
        return [known[number] for number in sorted(known)]

    @property
    def measured(self) -> str:
        """How the windows were picked, in words."""
        return "; ".join(map(str, self.specs))

    @property
    def patterns(self) -> list[str]:
        """Of which ranges all are kept."""
        convention = self.run.convention
        own = (convention.range_anchor, convention.setup_pattern, *(spec.anchor for spec in self.specs), *self.named)
        return sorted({pattern for pattern in own if pattern is not None})

    @property
    def clocks(self) -> list[Clock]:
        """Those that the ranks use, that of the lowest rank first."""
        return list(dict.fromkeys(rank.process.clock for rank in self.ranks))

    def windows(self) -> Iterator[RankWindow]:
        """The windows of all ranks in all views."""
        return chain.from_iterable(map(self.windows_of, self.ranks))

    def windows_of(self, rank: Rank) -> list[RankWindow]:
        """The windows of a rank in all views."""
        return [window for view in self.views for window in view.get(rank.number, ())]


def cut(
    run: Run, specs: Sequence[WindowSpec], ranks: Collection[int] | None = None, named: Sequence[str] = ()
) -> RunCut:
    """Pick the windows of all ranks, or of some, as each spec picks them.

    Raises NothingMeasured where one of the ranks has none, or an empty one.
    """
    return RunCut(run, specs, [run.measured(spec).filled(ranks) for spec in specs], named)


# -- rows


def find_parts(windows: RunCut) -> list[CutPart]:
    """Find what of each trace belongs to the windows, in the order of the traces."""
    numbers = {clock: number for number, clock in enumerate(windows.clocks)}
    by_trace = grouped((rank.process.trace, rank) for rank in windows.ranks)
    parts = []
    for number, ranks in sorted(by_trace.items()):
        each = [(rank, own) for rank in ranks for own in _each_view(windows, rank)]
        spans = [(rank, _gpu_span(own), own) for rank, own in each]
        parts.append(
            CutPart(
                trace=windows.run.traces[number],
                clocks={clock.machine: at for clock, at in numbers.items() if clock.trace == number},
                on_gpu=grouped((rank.lane, span) for rank, span, _ in spans),
                on_host={
                    pid: hull(own)
                    for pid, own in grouped(
                        (rank.process.global_pid, _host_span(own, span)) for rank, span, own in spans
                    ).items()
                },
                patterns=windows.patterns,
                waiting=SYNCHRONISING_CALLS,
            )
        )
    return parts


def _each_view(windows: RunCut, rank: Rank) -> list[Sequence[RankWindow]]:
    return [view[rank.number] for view in windows.views if rank.number in view]


def _gpu_span(own: Sequence[RankWindow]) -> Interval:
    """From the first operation that is looked at for the windows of a rank to the last: those in the windows, those
    launched in them, and what followed until compute did, where no compute covers the end.
    """
    track = own[0].track
    if own[0].spec.whole_run:
        return EVER
    on_gpu = track.on_gpu
    times = [*(t for w in own for t in w.ran_ns), *(on_gpu.around.spans.get(track.rank.lane) or ())]
    times += [*_bounds(track.kernels), *_bounds(on_gpu.kernels)]
    after = on_gpu.after.kernels.get(track.rank.lane) if goes_on(on_gpu) else None
    moved = (on_gpu.after.transfers or {}).get(track.rank.lane) if goes_on(on_gpu) else None
    for some in (after, moved):
        times += [*bounds(some.start_ns)] if some is not None and len(some) else []
    return min(times), max(times)


def _bounds(kernels: Kernels) -> tuple[int, ...]:
    return (bounds(kernels.start_ns)[0], bounds(kernels.end_ns)[1]) if len(kernels) else ()


def _host_span(own: Sequence[RankWindow], on_gpu: Interval) -> Interval:
    """Around the launches of all that is kept of the GPU, and around the windows."""
    track = own[0].track
    if own[0].spec.whole_run:
        return EVER
    times = [*on_gpu, *(t for w in own for t in (w.window.start_ns, w.window.end_ns))]
    launches = [*track.launch_ns, *track.on_gpu.launch_ns]
    if goes_on(track.on_gpu) and (calls := track.on_gpu.after.launch_calls.get(track.rank.lane)) is not None:
        launches += calls.start_ns
    times += [launch for launch in launches if launch != NO_LAUNCH]
    return min(times), max(times)


# -- the mark


def describe_cut(windows: RunCut) -> Mark:
    """Say what the rows of a cut cannot."""
    run, convention = windows.run, windows.run.convention
    marked = convention != BUILT_IN.get(convention.name)
    return Mark(
        measured=windows.measured,
        convention=convention.name,
        fingerprint=convention.fingerprint(),
        mapping=spelled_convention(convention) if marked else None,
        copies=list(convention.copies),
        # Of the whole run: they tell its convention from that of runs without known libraries.
        libraries=sorted({pair for trace in run.traces for pair in trace.library_kernels()}),
        ranges=windows.patterns,
        recorded=sorted(set().union(*map(_recorded, windows.windows()))),
        lost=[*_lost_work(windows)],
        facts=_facts(windows),
        anchored=any(run.anchors(rank, spec) for rank in windows.ranks for spec in (None, *windows.specs)),
        ranks=[_describe_rank(windows, rank) for rank in windows.ranks],
    )


def _facts(windows: RunCut) -> TraceFacts:
    """What the traces say together, without what is of one rank; the files that they are of are not named."""
    run, ranks = windows.run, windows.ranks
    traces = {rank.process.trace: run.facts[rank.process.trace] for rank in ranks}
    first, each = next(iter(traces.values())), [*traces.values()]
    clocks = {n: next(rank for rank in ranks if rank.process.clock == clock) for n, clock in enumerate(windows.clocks)}
    zeros = zeros_of(run)
    sessions = (
        (_process_in_cut(windows, rank), own.sessions_ns.get(rank.process.global_pid, own.session_ns))
        for rank in ranks
        for own in (traces[rank.process.trace],)
    )
    return first._replace(
        models=sorted({model for facts in each for model in facts.models}),
        whole_graphs=max(facts.whole_graphs for facts in each),
        diagnostics=[Diagnostic(one.told, one.told) for facts in each for one in facts.diagnostics],
        files=sum(facts.files for facts in each),
        on_gpus=[*_on_gpus(windows, traces)],
        slows_host=next((facts.slows_host for facts in each if facts.slows_host), ""),
        impossible=reduce(ImpossibleRows.and_, (facts.impossible for facts in each), ImpossibleRows()),
        views=[Picked(spec.window, spec.span, spec.kernels, spec.kind) for spec in windows.specs],
        sessions_ns={process: session_ns for process, session_ns in sessions if session_ns is not None},
        zeros_ns={n: zeros[rank.process.clock] for n, rank in clocks.items() if rank.process.clock in zeros},
        ties={n: tie for n, rank in clocks.items() if (tie := _tie(windows, rank)) is not None},
        to_see_kernels=AGAIN,
        to_see_ranges=AGAIN,
        gpus={},
        uuids={},
        units={},
        numbers={},
        notes=(),
        session_ns=None,
        started_ns=None,
    )


def _recorded(window: RankWindow) -> set[str]:
    """The questions to which the trace of a window has an answer."""
    track, at = window.track, (window.start_ns, window.start_ns)
    answers = (
        track.api_calls(SYNCHRONISING_CALLS, at),
        track.on_gpu.copies(at),
        track.on_gpu.transfers,
        track.around.stream_waits,
        track.collectives,
    )
    return {name for name, answer in zip(MAY_LACK, answers, strict=True) if answer is not None}


def _lost_work(windows: RunCut) -> Iterator[LostWork]:
    processes = {rank.process: _process_in_cut(windows, rank) for rank in windows.ranks}
    for spec in windows.specs:
        group = windows.run.measured(spec)
        each = zip(called_spans(group), launch_records(group), strict=True)
        for trace, (spans, found) in enumerate(each):
            for pid, records in (found or {}).items():
                process = processes.get(ProcessId(trace, pid))
                if process is not None and any(record.without or record.outside for record in records):
                    said = [(r.kind, r.calls, str(r.without), r.first, r.outside) for r in records]
                    yield LostWork(process, spans[pid], said)


def _process_in_cut(windows: RunCut, rank: Rank) -> int:
    return process_in_cut(windows.clocks.index(rank.process.clock), rank.process.global_pid)


def _on_gpus(windows: RunCut, traces: Mapping[int, TraceFacts]) -> Iterator[Note]:
    """What nvidia-smi said before and after the run, by the name of the file that it was said beside."""
    for number, facts in traces.items():
        path = windows.run.traces[number].path
        for note in notes_on_gpus(path):
            yield note._replace(text=note.text.replace(f"{path.parent}/", "", 1))
        yield from facts.on_gpus


def _describe_rank(windows: RunCut, rank: Rank) -> MarkedRank:
    run, each = windows.run, _each_view(windows, rank)
    facts = run.facts[rank.process.trace]
    periods = (idle_periods(run.measured(spec)).get(rank.number, ()) for spec in windows.specs)
    track, ran = each[0][0].track, hull(w.ran_ns for own in each for w in own)
    memory, clocks = track.memory, run.traces[rank.process.trace].sm_clocks({rank.lane: ran})
    return MarkedRank(
        process=_process_in_cut(windows, rank),
        device=rank.device,
        number=rank.number,
        setup=rank.setup,
        on_gpu=[span for own in each if (span := own[0].track.on_gpu.around.spans.get(rank.lane)) is not None],
        called=[
            span
            for own in each
            if own[0].spec.by_launch and (span := own[0].track.around.spans.get(rank.lane)) is not None
        ],
        idle=sorted({*chain.from_iterable(periods)}),
        units=[(*place, [*steps.on_host], [*steps.on_gpu]) for place, steps in run.steps_to_keep(rank).items()],
        gpus={
            device: model
            for (pid, device), model in sorted(facts.gpus.items())
            if pid == rank.pid and rank.device in (None, device)
        },
        shares=_shares(run, rank, facts),
        memory=None
        if memory is None
        else _levels(memory.levels, hull((w.window.start_ns, w.window.end_ns) for own in each for w in own)),
        freed_earlier=memory.earlier if memory is not None else 0,
        sm_clocks=None if clocks is None else [*zip(*clocks.get(rank.lane, Series.of(())).between(*ran), strict=True)],
    )


def _shares(run: Run, rank: Rank, facts: TraceFacts) -> dict[int, int]:
    """The number of each GPU of a rank by its device, in a run in which processes share one."""
    if not run.shared_gpus:
        return {}
    numbers = {uuid: n for n, uuid in enumerate(sorted({own for each in run.facts for own in each.uuids.values()}))}
    own = ((device, uuid) for (pid, device), uuid in sorted(facts.uuids.items()) if pid == rank.pid)
    return {device: numbers[uuid] for device, uuid in own if rank.device in (None, device)}


def _tie(windows: RunCut, rank: Rank) -> Tie | None:
    """How the clock of a rank is tied, by the place of clocks in the cut; None where its root is not in it."""
    clocks = windows.clocks
    if len(clocks) < 2:
        return None
    groups = [windows.run.measured(spec) for spec in windows.specs]
    few = (group for group in groups if by_collectives_of(group).too_few) if len(groups) > 1 else iter(())
    placed = common_clock(next(few, groups[0])).placed[rank.process.clock]
    return Tie(clocks.index(placed.root), placed.ahead_ns, placed.error_ns) if placed.root in clocks else None


def _levels(levels: Series, shown: Interval) -> list[tuple[int, int]]:
    """What was allocated when windows began, what changed until they ended, and the peak of the run."""
    known = [*zip(*levels, strict=True)]
    peak = max(known, key=lambda level: (level[1], -level[0]), default=None)
    found = [*zip(*levels.levels(*shown), strict=True)]
    if peak is not None and peak not in found:
        found = sorted([peak, *found], key=itemgetter(0))  # stable: before what follows it at its moment
    return found


# -- the file


class CutFile(NamedTuple):
    """What is written of a cut; ``is_sqlite``: as tables, else as JSON."""

    content: bytes
    is_sqlite: bool

    def packed(self, name: str) -> bytes:
        """What a file of this name holds: packed where it ends in ``.gz``, without a time in it."""
        return gzip.compress(self.content, mtime=0) if name.endswith(".gz") else self.content


def write_cut(windows: RunCut) -> CutFile:
    """The windows as a part of their traces, in the format of these. Raises NsysError."""
    parts = [(reader_of(part.trace), part) for part in find_parts(windows)]
    is_sqlite = isinstance(parts[0][0], NsysSqlite)
    mark = describe_cut(windows).dumps()
    if is_sqlite:
        return CutFile(write_tables([each for each in parts if isinstance(each[0], NsysSqlite)], mark), is_sqlite)
    from pytest_nsys.traces.chrome.cut import write_events

    return CutFile(write_events(parts, mark), is_sqlite)
