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
    """Describes the windows of some ranks of a run, as each of several specs picks them."""

    run: Run
    specs: Sequence[WindowSpec]
    views: Sequence[Mapping[int, Sequence[RankWindow]]]  # the windows by rank, for each spec
    named: Sequence[str] = ()  # patterns of further ranges that are kept wherever in the run they are

    @property
    def ranks(self) -> list[Rank]:
        """The ranks of all views, by number."""
        ranks_by_number = {number: windows[0].rank for view in self.views for number, windows in view.items()}
        return [ranks_by_number[number] for number in sorted(ranks_by_number)]

    @property
    def measured(self) -> str:
        """A text that says how the windows were picked."""
        return "; ".join(map(str, self.specs))

    @property
    def patterns(self) -> list[str]:
        """The patterns of the ranges of which all are kept."""
        convention = self.run.convention
        patterns = (
            convention.range_anchor,
            convention.setup_pattern,
            *(spec.anchor for spec in self.specs),
            *self.named,
        )
        return sorted({pattern for pattern in patterns if pattern is not None})

    @property
    def clocks(self) -> list[Clock]:
        """The clocks that the ranks use, that of the lowest rank first."""
        return list(dict.fromkeys(rank.process.clock for rank in self.ranks))

    def windows(self) -> Iterator[RankWindow]:
        """Yield the windows of all ranks in all views."""
        return chain.from_iterable(map(self.windows_of, self.ranks))

    def windows_of(self, rank: Rank) -> list[RankWindow]:
        """Return the windows of a rank in all views."""
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
        windows_by_view = [(rank, windows_of_rank) for rank in ranks for windows_of_rank in _each_view(windows, rank)]
        spans = [(rank, _gpu_span(windows_of_rank), windows_of_rank) for rank, windows_of_rank in windows_by_view]
        parts.append(
            CutPart(
                trace=windows.run.traces[number],
                clocks={clock.machine: index for clock, index in numbers.items() if clock.trace == number},
                on_gpu=grouped((rank.lane, span) for rank, span, _ in spans),
                on_host={
                    pid: hull(host_spans)
                    for pid, host_spans in grouped(
                        (rank.process.global_pid, _host_span(windows_of_rank, span))
                        for rank, span, windows_of_rank in spans
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
    """Return the time from the first to the last GPU operation that the windows of a rank need.

    They need those in the windows, those launched in them, and what followed until compute did, where no compute covers
    the end.
    """
    track = own[0].track
    if own[0].spec.whole_run:
        return EVER
    on_gpu = track.on_gpu
    times = [*(t for w in own for t in w.ran_ns), *(on_gpu.around.spans.get(track.rank.lane) or ())]
    times += [*_bounds(track.kernels), *_bounds(on_gpu.kernels)]
    kernels_after = on_gpu.after.kernels.get(track.rank.lane) if goes_on(on_gpu) else None
    transfers_after = (on_gpu.after.transfers or {}).get(track.rank.lane) if goes_on(on_gpu) else None
    for operations in (kernels_after, transfers_after):
        times += [*bounds(operations.start_ns)] if operations is not None and len(operations) else []
    return min(times), max(times)


def _bounds(kernels: Kernels) -> tuple[int, ...]:
    return (bounds(kernels.start_ns)[0], bounds(kernels.end_ns)[1]) if len(kernels) else ()


def _host_span(own: Sequence[RankWindow], on_gpu: Interval) -> Interval:
    """Return the time around the launches of all that is kept of the GPU, and around the windows."""
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
    """Build the mark of a cut, which says what its rows cannot."""
    run, convention = windows.run, windows.run.convention
    is_custom = convention != BUILT_IN.get(convention.name)
    return Mark(
        measured=windows.measured,
        convention=convention.name,
        fingerprint=convention.fingerprint(),
        mapping=spelled_convention(convention) if is_custom else None,
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
    """Build what the traces say together, without what is of one rank; the files that they are of are not named."""
    run, ranks = windows.run, windows.ranks
    traces = {rank.process.trace: run.facts[rank.process.trace] for rank in ranks}
    first, all_facts = next(iter(traces.values())), [*traces.values()]
    clocks = {n: next(rank for rank in ranks if rank.process.clock == clock) for n, clock in enumerate(windows.clocks)}
    zeros = zeros_of(run)
    sessions = (
        (_process_in_cut(windows, rank), facts.sessions_ns.get(rank.process.global_pid, facts.session_ns))
        for rank in ranks
        for facts in (traces[rank.process.trace],)
    )
    return first._replace(
        models=sorted({model for facts in all_facts for model in facts.models}),
        whole_graphs=max(facts.whole_graphs for facts in all_facts),
        diagnostics=[
            Diagnostic(diagnostic.told, diagnostic.told) for facts in all_facts for diagnostic in facts.diagnostics
        ],
        files=sum(facts.files for facts in all_facts),
        on_gpus=[*_on_gpus(windows, traces)],
        slows_host=next((facts.slows_host for facts in all_facts if facts.slows_host), ""),
        impossible=reduce(ImpossibleRows.and_, (facts.impossible for facts in all_facts), ImpossibleRows()),
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
    """Return the questions to which the trace of a window has an answer."""
    track, window_start = window.track, (window.start_ns, window.start_ns)
    answers = (
        track.api_calls(SYNCHRONISING_CALLS, window_start),
        track.on_gpu.copies(window_start),
        track.on_gpu.transfers,
        track.around.stream_waits,
        track.collectives,
    )
    return {name for name, answer in zip(MAY_LACK, answers, strict=True) if answer is not None}


def _lost_work(windows: RunCut) -> Iterator[LostWork]:
    """Yield the work that the traces lost of the calls in the windows, by process."""
    processes = {rank.process: _process_in_cut(windows, rank) for rank in windows.ranks}
    for spec in windows.specs:
        group = windows.run.measured(spec)
        parts = zip(called_spans(group), launch_records(group), strict=True)
        for trace, (spans, records_by_process) in enumerate(parts):
            for pid, records in (records_by_process or {}).items():
                process = processes.get(ProcessId(trace, pid))
                if process is not None and any(record.without or record.outside for record in records):
                    lost_calls = [(r.kind, r.calls, str(r.without), r.first, r.outside) for r in records]
                    yield LostWork(process, spans[pid], lost_calls)


def _process_in_cut(windows: RunCut, rank: Rank) -> int:
    return process_in_cut(windows.clocks.index(rank.process.clock), rank.process.global_pid)


def _on_gpus(windows: RunCut, traces: Mapping[int, TraceFacts]) -> Iterator[Note]:
    """Yield what nvidia-smi said before and after the run, by the name of the file that it was said beside."""
    for number, facts in traces.items():
        path = windows.run.traces[number].path
        for note in notes_on_gpus(path):
            yield note._replace(text=note.text.replace(f"{path.parent}/", "", 1))
        yield from facts.on_gpus


def _describe_rank(windows: RunCut, rank: Rank) -> MarkedRank:
    run, views = windows.run, _each_view(windows, rank)
    facts = run.facts[rank.process.trace]
    periods = (idle_periods(run.measured(spec)).get(rank.number, ()) for spec in windows.specs)
    track, ran_ns = views[0][0].track, hull(w.ran_ns for windows_of_view in views for w in windows_of_view)
    memory, clocks = track.memory, run.traces[rank.process.trace].sm_clocks({rank.lane: ran_ns})
    return MarkedRank(
        process=_process_in_cut(windows, rank),
        device=rank.device,
        number=rank.number,
        setup=rank.setup,
        on_gpu=[
            span
            for windows_of_view in views
            if (span := windows_of_view[0].track.on_gpu.around.spans.get(rank.lane)) is not None
        ],
        called=[
            span
            for windows_of_view in views
            if windows_of_view[0].spec.by_launch
            and (span := windows_of_view[0].track.around.spans.get(rank.lane)) is not None
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
        else _levels(
            memory.levels,
            hull((w.window.start_ns, w.window.end_ns) for windows_of_view in views for w in windows_of_view),
        ),
        freed_earlier=memory.earlier if memory is not None else 0,
        sm_clocks=None
        if clocks is None
        else [*zip(*clocks.get(rank.lane, Series.of(())).between(*ran_ns), strict=True)],
    )


def _shares(run: Run, rank: Rank, facts: TraceFacts) -> dict[int, int]:
    """Return the number of each GPU of a rank by its device, in a run in which processes share one; else nothing."""
    if not run.shared_gpus:
        return {}
    numbers = {
        uuid: n
        for n, uuid in enumerate(sorted({uuid for trace_facts in run.facts for uuid in trace_facts.uuids.values()}))
    }
    gpus_of_rank = ((device, uuid) for (pid, device), uuid in sorted(facts.uuids.items()) if pid == rank.pid)
    return {device: numbers[uuid] for device, uuid in gpus_of_rank if rank.device in (None, device)}


def _tie(windows: RunCut, rank: Rank) -> Tie | None:
    """Return how the clock of a rank is tied to another of the cut; None where its root is not in the cut."""
    clocks = windows.clocks
    if len(clocks) < 2:
        return None
    groups = [windows.run.measured(spec) for spec in windows.specs]
    unaligned_groups = (group for group in groups if by_collectives_of(group).too_few) if len(groups) > 1 else iter(())
    clock_place = common_clock(next(unaligned_groups, groups[0])).placed[rank.process.clock]
    return (
        Tie(clocks.index(clock_place.root), clock_place.ahead_ns, clock_place.error_ns)
        if clock_place.root in clocks
        else None
    )


def _levels(levels: Series, shown: Interval) -> list[tuple[int, int]]:
    """Return the bytes that were allocated when the windows began, the changes until they ended, and the peak of the
    run.
    """
    all_levels = [*zip(*levels, strict=True)]
    peak = max(all_levels, key=lambda level: (level[1], -level[0]), default=None)
    chosen_levels = [*zip(*levels.levels(*shown), strict=True)]
    if peak is not None and peak not in chosen_levels:
        chosen_levels = sorted(
            [peak, *chosen_levels], key=itemgetter(0)
        )  # stable: before what follows it at its moment
    return chosen_levels


# -- the file


class CutFile(NamedTuple):
    """Holds the content of a cut's file."""

    content: bytes
    is_sqlite: bool  # whether it is written as tables, else as JSON

    def packed(self, name: str) -> bytes:
        """Return the content for a file of this name, packed where it ends in ``.gz``."""
        # Without a time in it, equal windows give equal files.
        return gzip.compress(self.content, mtime=0) if name.endswith(".gz") else self.content


def write_cut(windows: RunCut) -> CutFile:
    """Return the windows as a part of their traces, in the format of these. Raises NsysError."""
    parts = [(reader_of(part.trace), part) for part in find_parts(windows)]
    is_sqlite = isinstance(parts[0][0], NsysSqlite)
    mark = describe_cut(windows).dumps()
    if is_sqlite:
        return CutFile(write_tables([part for part in parts if isinstance(part[0], NsysSqlite)], mark), is_sqlite)
    from pytest_nsys.traces.chrome.cut import write_events

    return CutFile(write_events(parts, mark), is_sqlite)
