"""What belongs to the picked windows of a run, so that they can be cut out of their traces and measured again?

Spans of time decide it: the operations of each GPU in the windows and until the next compute, and the ranges and
waiting calls of each host around these and around their launches; ranges that mark steps and ranks are kept everywhere
in the run. The mark of the cut holds what the remaining rows cannot say, such as which steps the run has. Windows that
are picked by several specs are cut together.
"""

from __future__ import annotations

import gzip
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from pytest_nsys.analysis.budget.gaps import is_open_ended
from pytest_nsys.analysis.facts.lost_work import find_call_spans, read_judged_launches
from pytest_nsys.analysis.facts.steps import find_idle_periods
from pytest_nsys.analysis.metrics.activity import SYNCHRONISING_CALLS
from pytest_nsys.analysis.metrics.common_clock import align_by_collectives, align_clocks, read_epochs
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import WindowSpec
from pytest_nsys.core.columns import find_min_max
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, encode_convention
from pytest_nsys.core.intervals import find_hull
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import (
    NO_LAUNCH,
    OPEN_END_NS,
    Clock,
    ClockTie,
    CutWindowSpec,
    Diagnostic,
    ImpossibleRows,
    Interval,
    Note,
    ProcessId,
    Rank,
    TraceFacts,
)
from pytest_nsys.core.tables import Kernels, Series
from pytest_nsys.traces.cut_trace import (
    CUT_AGAIN,
    OPTIONAL_QUESTIONS,
    CutMark,
    CutPart,
    LostWork,
    MarkedRank,
    build_cut_process_id,
    unwrap_reader,
)
from pytest_nsys.traces.nsys.cut import build_cut_database
from pytest_nsys.traces.nsys.sqlite import NsysSqlite
from pytest_nsys.traces.sidecars.gpu_log import make_gpu_notes

WHOLE_TIME: Interval = (NO_LAUNCH + 1, OPEN_END_NS)


@dataclass(frozen=True)
class RunCut:
    """Describes the windows of some ranks of a run, as picked by several specs."""

    run: Run
    specs: Sequence[WindowSpec]
    views: Sequence[Mapping[int, Sequence[RankWindow]]]  # the windows by rank, for each spec
    extra_patterns: Sequence[str] = ()  # patterns of further ranges that are kept everywhere in the run

    @property
    def ranks(self) -> list[Rank]:
        """The ranks of all views, by number."""
        ranks_by_number = {number: windows[0].rank for view in self.views for number, windows in view.items()}
        return [ranks_by_number[number] for number in sorted(ranks_by_number)]

    @property
    def description(self) -> str:
        """A text that says how the windows were picked."""
        return "; ".join(map(str, self.specs))

    @property
    def patterns(self) -> list[str]:
        """The patterns of the ranges that are all kept."""
        convention = self.run.convention
        patterns = (
            convention.range_anchor,
            convention.setup_pattern,
            *(spec.anchor for spec in self.specs),
            *self.extra_patterns,
        )
        return sorted({pattern for pattern in patterns if pattern is not None})

    @property
    def clocks(self) -> list[Clock]:
        """The clocks that the ranks use, that of the lowest rank first."""
        return list(dict.fromkeys(rank.process.clock for rank in self.ranks))

    def list_windows(self) -> Iterator[RankWindow]:
        """Yield the windows of all ranks in all views."""
        return chain.from_iterable(map(self.list_windows_of, self.ranks))

    def list_windows_of(self, rank: Rank) -> list[RankWindow]:
        """Return the windows of a rank in all views."""
        return [window for view in self.views for window in view.get(rank.number, ())]


def cut_run(
    run: Run, specs: Sequence[WindowSpec], ranks: Collection[int] | None = None, extra_patterns: Sequence[str] = ()
) -> RunCut:
    """Pick the windows of all ranks, or of some, by each spec.

    Raises NothingMeasured if one of the ranks has no window, or an empty one.
    """
    return RunCut(run, specs, [run.load_windows(spec).require_filled_windows(ranks) for spec in specs], extra_patterns)


# -- rows


def find_cut_parts(windows: RunCut) -> list[CutPart]:
    """Find the part of each trace that belongs to the windows, in the order of the traces."""
    numbers = {clock: number for number, clock in enumerate(windows.clocks)}
    by_trace = group_by_key((rank.process.trace, rank) for rank in windows.ranks)
    parts = []
    for number, ranks in sorted(by_trace.items()):
        windows_by_view = [(rank, windows_of_rank) for rank in ranks for windows_of_rank in _list_views(windows, rank)]
        spans = [
            (rank, _measure_gpu_span(windows_of_rank), windows_of_rank) for rank, windows_of_rank in windows_by_view
        ]
        parts.append(
            CutPart(
                trace=windows.run.traces[number],
                clock_numbers={clock.machine: index for clock, index in numbers.items() if clock.trace == number},
                gpu_spans=group_by_key((rank.lane, span) for rank, span, _ in spans),
                host_spans={
                    pid: find_hull(host_spans)
                    for pid, host_spans in group_by_key(
                        (rank.process.global_pid, _measure_host_span(windows_of_rank, span))
                        for rank, span, windows_of_rank in spans
                    ).items()
                },
                range_patterns=windows.patterns,
                wait_globs=SYNCHRONISING_CALLS,
            )
        )
    return parts


def _list_views(windows: RunCut, rank: Rank) -> list[Sequence[RankWindow]]:
    return [view[rank.number] for view in windows.views if rank.number in view]


def _measure_gpu_span(windows: Sequence[RankWindow]) -> Interval:
    """Return the time from the first to the last GPU operation that the windows of a rank need.

    They need the operations in them, those launched in them, and, if no compute covers their end, those until the next
    compute.
    """
    track = windows[0].track
    if windows[0].spec.is_whole_run:
        return WHOLE_TIME
    on_gpu = track.gpu_track
    times = [*(t for w in windows for t in w.full_span_ns), *(on_gpu.trace_context.spans.get(track.rank.lane) or ())]
    times += [*_list_bounds(track.kernels), *_list_bounds(on_gpu.kernels)]
    kernels_after = on_gpu.context_after.kernels.get(track.rank.lane) if is_open_ended(on_gpu) else None
    transfers_after = (on_gpu.context_after.transfers or {}).get(track.rank.lane) if is_open_ended(on_gpu) else None
    for operations in (kernels_after, transfers_after):
        times += [*find_min_max(operations.start_ns)] if operations is not None and len(operations) else []
    return min(times), max(times)


def _list_bounds(kernels: Kernels) -> tuple[int, ...]:
    return (find_min_max(kernels.start_ns)[0], find_min_max(kernels.end_ns)[1]) if len(kernels) else ()


def _measure_host_span(windows: Sequence[RankWindow], gpu_span: Interval) -> Interval:
    """Return the time around the windows and around the launches of all kept GPU operations."""
    track = windows[0].track
    if windows[0].spec.is_whole_run:
        return WHOLE_TIME
    times = [*gpu_span, *(t for w in windows for t in (w.window.start_ns, w.window.end_ns))]
    launches = [*track.launch_ns, *track.gpu_track.launch_ns]
    if (
        is_open_ended(track.gpu_track)
        and (calls := track.gpu_track.context_after.launch_calls.get(track.rank.lane)) is not None
    ):
        launches += calls.start_ns
    times += [launch for launch in launches if launch != NO_LAUNCH]
    return min(times), max(times)


# -- the mark


def build_cut_mark(windows: RunCut) -> CutMark:
    """Build the mark of a cut, which holds what its rows cannot say."""
    run, convention = windows.run, windows.run.convention
    is_custom = convention != BUILT_IN_CONVENTIONS.get(convention.name)
    return CutMark(
        measured=windows.description,
        convention=convention.name,
        fingerprint=convention.compute_fingerprint(),
        mapping=encode_convention(convention) if is_custom else None,
        copies=list(convention.copies),
        # Of the whole run: a baseline distinguishes conventions by known libraries.
        libraries=sorted({pair for trace in run.traces for pair in trace.library_kernels()}),
        ranges=windows.patterns,
        recorded=sorted(set().union(*map(_find_recorded, windows.list_windows()))),
        lost=[*_list_lost_work(windows)],
        facts=_build_cut_facts(windows),
        anchored=any(run.find_anchors(rank, spec) for rank in windows.ranks for spec in (None, *windows.specs)),
        ranks=[_build_marked_rank(windows, rank) for rank in windows.ranks],
    )


def _build_cut_facts(windows: RunCut) -> TraceFacts:
    """Combine the facts of all traces, without those of a single rank and without file names."""
    run, ranks = windows.run, windows.ranks
    traces = {rank.process.trace: run.facts[rank.process.trace] for rank in ranks}
    first, all_facts = next(iter(traces.values())), [*traces.values()]
    clocks = {n: next(rank for rank in ranks if rank.process.clock == clock) for n, clock in enumerate(windows.clocks)}
    zeros = read_epochs(run)
    sessions = (
        (_resolve_cut_process(windows, rank), facts.sessions_ns.get(rank.process.global_pid, facts.session_ns))
        for rank in ranks
        for facts in (traces[rank.process.trace],)
    )
    return first._replace(
        models=sorted({model for facts in all_facts for model in facts.models}),
        whole_graph_count=max(facts.whole_graph_count for facts in all_facts),
        diagnostics=[
            Diagnostic(diagnostic.safe_text, diagnostic.safe_text)
            for facts in all_facts
            for diagnostic in facts.diagnostics
        ],
        file_count=sum(facts.file_count for facts in all_facts),
        gpu_log_notes=[*_list_gpu_notes(windows, traces)],
        slowing_setting=next((facts.slowing_setting for facts in all_facts if facts.slowing_setting), ""),
        impossible_rows=reduce(ImpossibleRows.add, (facts.impossible_rows for facts in all_facts), ImpossibleRows()),
        cut_window_specs=[CutWindowSpec(spec.window, spec.span, spec.kernels, spec.kind) for spec in windows.specs],
        sessions_ns={process: session_ns for process, session_ns in sessions if session_ns is not None},
        clock_zeros_ns={n: zeros[rank.process.clock] for n, rank in clocks.items() if rank.process.clock in zeros},
        clock_ties={n: tie for n, rank in clocks.items() if (tie := _find_tie(windows, rank)) is not None},
        to_see_kernels=CUT_AGAIN,
        to_see_ranges=CUT_AGAIN,
        gpus={},
        uuids={},
        cut_steps={},
        rank_numbers={},
        notes=(),
        session_ns=None,
        started_ns=None,
    )


def _find_recorded(window: RankWindow) -> set[str]:
    """Return the names of the queries that the trace of a window can answer."""
    track, window_start = window.track, (window.start_ns, window.start_ns)
    answers = (
        track.select_api_calls(SYNCHRONISING_CALLS, window_start),
        track.gpu_track.select_copies(window_start),
        track.gpu_track.transfers,
        track.trace_context.stream_waits,
        track.collectives,
    )
    return {name for name, answer in zip(OPTIONAL_QUESTIONS, answers, strict=True) if answer is not None}


def _list_lost_work(windows: RunCut) -> Iterator[LostWork]:
    """Yield, by process, the work of calls in the windows that the traces lost."""
    processes = {rank.process: _resolve_cut_process(windows, rank) for rank in windows.ranks}
    for spec in windows.specs:
        group = windows.run.load_windows(spec)
        parts = zip(find_call_spans(group), read_judged_launches(group), strict=True)
        for trace, (spans, records_by_process) in enumerate(parts):
            for pid, records in (records_by_process or {}).items():
                process = processes.get(ProcessId(trace, pid))
                if process is not None and any(record.unrecorded or record.outside_calls for record in records):
                    lost_calls = [
                        (r.kind, r.calls, str(r.unrecorded), r.first_unrecorded, r.outside_calls) for r in records
                    ]
                    yield LostWork(process, spans[pid], lost_calls)


def _resolve_cut_process(windows: RunCut, rank: Rank) -> int:
    return build_cut_process_id(windows.clocks.index(rank.process.clock), rank.process.global_pid)


def _list_gpu_notes(windows: RunCut, traces: Mapping[int, TraceFacts]) -> Iterator[Note]:
    """Yield what nvidia-smi reported before and after the run, by the name of the trace file next to the report."""
    for number, facts in traces.items():
        path = windows.run.traces[number].path
        for note in make_gpu_notes(path):
            yield note._replace(text=note.text.replace(f"{path.parent}/", "", 1))
        yield from facts.gpu_log_notes


def _build_marked_rank(windows: RunCut, rank: Rank) -> MarkedRank:
    run, views = windows.run, _list_views(windows, rank)
    facts = run.facts[rank.process.trace]
    periods = (find_idle_periods(run.load_windows(spec)).get(rank.number, ()) for spec in windows.specs)
    track, ran_ns = views[0][0].track, find_hull(w.full_span_ns for windows_of_view in views for w in windows_of_view)
    memory, clocks = track.memory, run.traces[rank.process.trace].sm_clocks({rank.lane: ran_ns})
    return MarkedRank(
        process=_resolve_cut_process(windows, rank),
        device=rank.device,
        number=rank.number,
        setup=rank.setup,
        on_gpu=[
            span
            for windows_of_view in views
            if (span := windows_of_view[0].track.gpu_track.trace_context.spans.get(rank.lane)) is not None
        ],
        called=[
            span
            for windows_of_view in views
            if windows_of_view[0].spec.is_by_launch
            and (span := windows_of_view[0].track.trace_context.spans.get(rank.lane)) is not None
        ],
        idle=sorted({*chain.from_iterable(periods)}),
        units=[
            (*place, [*steps.host_spans], [*steps.gpu_spans])
            for place, steps in run.collect_steps_for_cut(rank).items()
        ],
        gpus={
            device: model
            for (pid, device), model in sorted(facts.gpus.items())
            if pid == rank.pid and rank.device in (None, device)
        },
        shares=_number_shared_gpus(run, rank, facts),
        memory=None
        if memory is None
        else _select_levels(
            memory.levels,
            find_hull((w.window.start_ns, w.window.end_ns) for windows_of_view in views for w in windows_of_view),
        ),
        freed_earlier=memory.earlier_frees if memory is not None else 0,
        sm_clocks=None
        if clocks is None
        else [*zip(*clocks.get(rank.lane, Series.from_time_value_pairs(())).select_between(*ran_ns), strict=True)],
    )


def _number_shared_gpus(run: Run, rank: Rank, facts: TraceFacts) -> dict[int, int]:
    """Return the number of each GPU of a rank by its device, if processes of the run share a GPU; otherwise nothing."""
    if not run.ranks_of_shared_gpus:
        return {}
    numbers = {
        uuid: n
        for n, uuid in enumerate(sorted({uuid for trace_facts in run.facts for uuid in trace_facts.uuids.values()}))
    }
    gpus_of_rank = ((device, uuid) for (pid, device), uuid in sorted(facts.uuids.items()) if pid == rank.pid)
    return {device: numbers[uuid] for device, uuid in gpus_of_rank if rank.device in (None, device)}


def _find_tie(windows: RunCut, rank: Rank) -> ClockTie | None:
    """Return how the clock of a rank is tied to another one of the cut; None if its root clock is not in the cut."""
    clocks = windows.clocks
    if len(clocks) < 2:
        return None
    groups = [windows.run.load_windows(spec) for spec in windows.specs]
    unaligned_groups = (
        (group for group in groups if align_by_collectives(group).has_too_few_ends) if len(groups) > 1 else iter(())
    )
    clock_place = align_clocks(next(unaligned_groups, groups[0])).placements[rank.process.clock]
    return (
        ClockTie(clocks.index(clock_place.root_clock), clock_place.ahead_ns, clock_place.error_ns)
        if clock_place.root_clock in clocks
        else None
    )


def _select_levels(levels: Series, span: Interval) -> list[tuple[int, int]]:
    """Return the bytes allocated when the windows began, the changes until they ended, and the peak of the run."""
    all_levels = [*zip(*levels, strict=True)]
    peak = max(all_levels, key=lambda level: (level[1], -level[0]), default=None)
    chosen_levels = [*zip(*levels.select_levels(*span), strict=True)]
    if peak is not None and peak not in chosen_levels:
        chosen_levels = sorted(
            [peak, *chosen_levels], key=itemgetter(0)
        )  # stable sort: keeps the order of changes at the same time
    return chosen_levels


# -- the file


class CutFile(NamedTuple):
    """Holds the content of a cut's file."""

    content: bytes
    is_sqlite: bool  # whether it is written as tables, else as JSON

    def pack(self, file_name: str) -> bytes:
        """Return the content for a file of this name, compressed if it ends in ``.gz``."""
        # Without a time in it, equal windows give equal files.
        return gzip.compress(self.content, mtime=0) if file_name.endswith(".gz") else self.content


def render_cut(windows: RunCut) -> CutFile:
    """Return the windows as a part of their traces, in the same format. Raises NsysError."""
    parts = [(unwrap_reader(part.trace), part) for part in find_cut_parts(windows)]
    is_sqlite = isinstance(parts[0][0], NsysSqlite)
    mark = build_cut_mark(windows).to_json()
    if is_sqlite:
        return CutFile(build_cut_database([part for part in parts if isinstance(part[0], NsysSqlite)], mark), is_sqlite)
    from pytest_nsys.traces.chrome.cut_writer import render_cut_file

    return CutFile(render_cut_file(parts, mark), is_sqlite)
