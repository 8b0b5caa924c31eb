"""Which ranks, processes and files were recorded, and what does the profiler say of it?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.analysis.facts.fact import MeasuredFact
from pytest_nsys.analysis.facts.quality_context import QualityContext
from pytest_nsys.analysis.metrics.common_clock import read_epochs
from pytest_nsys.analysis.metrics.gpu_state import sm_clock_mhz
from pytest_nsys.analysis.metrics.throughput import measure_profiler_overhead
from pytest_nsys.analysis.windows.rank_track import RankTrack
from pytest_nsys.analysis.windows.run import Run, WindowGroup
from pytest_nsys.analysis.windows.window_selection import count_absent_ranks, count_clocks
from pytest_nsys.core.errors import NoRows, SeveralCaptures
from pytest_nsys.core.model import SINCE_1970, Interval, ProcessId, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import format_count, format_ranks, is_or_are, sanitize_line
from pytest_nsys.core.units import MEGAHERTZ
from pytest_nsys.traces.sidecars.gpu_log import make_gpu_notes


def measure_missing_ranks(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the number of ranks that are in no trace although setup labels, the gate file or gaps in the numbers imply
    them.
    """
    run, stated_world = context.run, context.bounds.world
    is_labelled = any(rank.setup is not None for rank in run.ranks)
    if stated_world is not None and not is_labelled:
        yield _measure_missing_gpus(run, stated_world)
        return
    absent_count, world, absent_text = count_absent_ranks(run.ranks)
    reason = f"no trace holds rank{'' if absent_count == 1 else 's'} {absent_text}"
    if run.mesh_sizes:
        reason += " of the setup labels' mesh"
    elif absent_count:
        reason += f", though there is a rank {run.ranks[-1].number}"
    if stated_world is not None and stated_world - len(run.ranks) > absent_count:
        absent_count, world = stated_world - len(run.ranks), stated_world
        reason = f"the gate file states world {world}, and the traces hold {format_count(len(run.ranks), 'rank')}"
    yield MeasuredFact(
        absent_count, f"{absent_count} of {world} ranks {is_or_are(absent_count)} missing", reason, "profile all ranks"
    )


def _measure_missing_gpus(run: Run, world: int) -> MeasuredFact:
    """Measure how many GPUs are missing; GPUs are counted, since a process may have several. Raises SeveralCaptures for
    too many.
    """
    gpu_text, file_text = format_count(len(run.ranks), "GPU"), format_count(len(run.traces), "file")
    if len(run.ranks) > world:
        raise SeveralCaptures(
            f"{run.traces[0].path}: {gpu_text} ran kernels in {file_text}, but the gate file states world {world}: "
            "correct run: {world: …}, or give the files of one profiling window"
        )
    absent_count = world - len(run.ranks)
    words = f"{absent_count} of {world} GPUs {is_or_are(absent_count)} missing"
    reason = f"the gate file states world {world}, and {gpu_text} ran kernels in {file_text}"
    return MeasuredFact(absent_count, words, reason, "give the files of all processes")


def measure_shared_gpus(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the number of GPUs that several processes used, as under MPS."""
    if shared_gpus := context.run.ranks_of_shared_gpus:
        first_ranks = sorted({rank.number for rank in shared_gpus[0]})
        rest_text = (
            f", and {format_count(len(shared_gpus) - 1, 'more GPU')} {is_or_are(len(shared_gpus) - 1)} shared"
            if len(shared_gpus) > 1
            else ""
        )
        words = f"{format_ranks(first_ranks)} ran on one GPU{rest_text}"
        reason = "each waits for kernels of the other, and its idle time is not that of the GPU"
        yield MeasuredFact(len(shared_gpus), words, reason, "give each process a GPU of its own")


def measure_numbering(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield how ranks without labels are numbered."""
    for note in context.run.rank_notes:
        yield MeasuredFact(1, note.text, is_doubtful=note.warning)


def measure_unlabelled_processes(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the processes without a label that ran kernels next to labelled ones, and are not judged."""
    for number, trace in enumerate(context.run.traces):
        rank_processes = {rank.process.global_pid for rank in context.run.ranks if rank.process.trace == number}
        if unlabelled := trace.list_unrequested_processes() - rank_processes:
            pids = ", ".join(str(ProcessId(number, pid).pid) for pid in sorted(unlabelled))
            words, reason = f"{trace.path}: kernels of process {pids} are not judged", "it has no setup label"
            yield MeasuredFact(len(unlabelled), words, reason, "push one, or correct the convention's setup expression")


def measure_whole_graphs(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield how many replays of CUDA graphs were recorded without their kernels."""
    graphs = sum(facts.whole_graph_count for facts in context.run.facts)
    words = f"{format_count(graphs, 'CUDA graph replay')} {'was' if graphs == 1 else 'were'} traced whole"
    yield MeasuredFact(graphs, words, "their kernels are in no window", "capture with --cuda-graph-trace=node")


_LOSS = re.compile(r"\b(dropped|lost|discarded|overflow\w*)\b", re.IGNORECASE)
_EVENT_WORDS = re.compile(r"\b(event|record|range|buffer|activit|kernel)", re.IGNORECASE)
# Lost samples and events of the OS or the network affect no figure; "no events" is no loss.
_OTHER_LOSS = re.compile(
    r"\b(no|0|zero) (\w+ ){0,3}(event|record)|sampl|perf\b|ftrace|schedul|OS runtime|ETW|network|metric", re.IGNORECASE
)


def reports_loss(text: str) -> bool:
    """Return whether a diagnostic says that events of the GPU, its API or NVTX were lost.

    ``Not all … events might have been collected`` is not such a message: the profiler writes it for most good traces.
    """
    return bool(_LOSS.search(text) and _EVENT_WORDS.search(text) and not _OTHER_LOSS.search(text))


def measure_dropped(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the number of signs of lost events: messages of the profiler, and kernels outside of its session."""
    loss_texts = [
        diagnostic.safe_text
        for facts in context.run.facts
        for diagnostic in facts.diagnostics
        if reports_loss(diagnostic.raw)
    ]
    outside_count = context.group.out_of_session_kernel_count if context.metric.reads_kernels else 0
    parts = [f"the profiler says: {sanitize_line(loss_texts[0])}"] if loss_texts else []
    if outside_count:
        verb = "lies" if outside_count == 1 else "lie"
        parts.append(
            f"{format_count(outside_count, 'kernel')} around the windows {verb} outside the profiler's session"
        )
    number = len(loss_texts) + outside_count
    words = f"events were dropped or are out of range, {format_count(number, 'sign')} of it"
    reason = f"{' and '.join(parts)}, so rows may be missing or wrong"
    yield MeasuredFact(number, words, reason, "profile fewer steps or event kinds, or export again")


def measure_diagnostics(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the number of warnings and errors that the profiler wrote; most good traces have some."""
    run = context.run
    by_trace = zip(run.traces, run.facts, strict=True)
    problems = [
        (trace.path, sanitize_line(diagnostic.safe_text))
        for trace, facts in by_trace
        for diagnostic in facts.diagnostics
    ]
    texts = [f"{path} says: {text}" for path, text in problems[:3]]
    words = f"the profiler reports {format_count(len(problems), 'problem')}"
    yield MeasuredFact(len(problems), words, " | ".join(texts), "fix what it reports", is_doubtful=False)


def measure_reader_notes(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the notes of the trace readers."""
    for facts in context.run.facts:
        for text in facts.notes:
            yield MeasuredFact(1, sanitize_line(text, 1000), is_doubtful=False)


def measure_gpu_state(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield what nvidia-smi reported about the GPUs before and after the run: throttling, clocks and drivers."""
    for trace, facts in zip(context.run.traces, context.run.facts, strict=True):
        cut_notes = (note._replace(text=f"{trace.path}: {note.text}") for note in facts.gpu_log_notes)
        for note in (*make_gpu_notes(trace.path), *cut_notes):
            yield MeasuredFact(1, note.text, is_doubtful=note.warning)


class FileGap(NamedTuple):
    """Describes a gap between two files of a run: one ends ``gap_ns`` before the next begins."""

    earlier_file: Path
    later_file: Path
    gap_ns: int

    def __str__(self) -> str:
        return f"{self.earlier_file} ends {format_value(self.gap_ns)} before {self.later_file} begins"


def measure_file_gap(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the time between two files, one of which belongs to another run."""
    if (gap := find_file_gap(context.group)) is not None:
        reason = "files of one run overlap in time, and one of these is of another run"
        yield MeasuredFact(gap.gap_ns, str(gap), reason, "give the files that were written together")


def find_file_gap(group: WindowGroup) -> FileGap | None:
    """Find the longest time between files of a run, as far as their clocks are absolute; None if all overlap."""
    zeros = read_epochs(group.run)
    clocked_tracks = [
        (track.rank.process.clock, track) for track in group.tracks.values() if track.rank.process.clock in zeros
    ]
    spans = sorted(
        (*_find_recorded_span(group.run, track, zeros[clock]), track.rank.trace) for clock, track in clocked_tracks
    )
    gaps: list[FileGap] = []
    for number, (begins, _, later_file) in enumerate(spans[1:], 1):
        ends, earlier_file = max((end, path) for _, end, path in spans[:number])
        gaps += [FileGap(earlier_file, later_file, begins - ends)] if begins > ends else []
    return max(gaps, key=lambda gap: gap.gap_ns, default=None)


def _find_recorded_span(run: Run, track: RankTrack, zero_ns: int) -> Interval:
    """Find a span in which the profiler was certainly on, in ns since 1970: its session, the anchors and kernels around
    windows.
    """
    process, facts = track.rank.process, run.facts[track.rank.process.trace]
    times = [t for anchor in track.anchors for t in (anchor.start_ns, anchor.end_ns)]
    times += [*track.kernels.start_ns[:1], *track.kernels.end_ns[-1:]]
    low, high = min(times, default=0), max(times, default=0)
    if low in SINCE_1970:  # an export can shift all times to UTC
        return low, high
    session_ns = facts.sessions_ns.get(process.global_pid, facts.session_ns) or 0
    return zero_ns + (min(low, 0) if session_ns else low), zero_ns + max(high, session_ns)


def measure_clocks(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the number of clocks that the ranks' times use."""
    number = count_clocks(context.run.ranks)
    words = f"the ranks use {format_count(number, 'clock')}"
    reason = "times of different files or machines are comparable only within the error of their clocks"
    yield MeasuredFact(number, words, reason, "profile all ranks into one report")


def measure_overhead_fact(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield by which share a step is longer under the profiler, for the worst window."""
    try:
        overheads = [measure_profiler_overhead(window) for window in context.group.list_run_windows()]
    except NoRows as error:
        words = f"the overhead of the profiler is unknown: {error}"
        reason, remedy = "a distorted step would pass unnoticed", "measure a step without the profiler"
        yield MeasuredFact(None, words, reason, remedy)
        return
    words = f"a step takes {format_value(max(overheads), '%', 6)} longer under the profiler"
    reason = "the trace measures the program and its profiler, not the program alone"
    yield MeasuredFact(max(overheads), words, reason, "trace fewer kinds of events")


def measure_sm_clock(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the lowest median SM clock over the ranks."""
    clocks_by_rank: list[tuple[Value, int]] = []
    for window in context.group:
        try:
            clocks_by_rank.append((sm_clock_mhz(window), window.rank.number))
        except NoRows as error:
            words = f"rank {window.rank.number}: the clock of the SMs is unknown: {error}"
            yield MeasuredFact(None, words, "a throttled GPU would pass unnoticed", "sample GPU metrics")
            return
    clock, number = min(clocks_by_rank)
    words = f"rank {number}: the SMs ran at {format_value(clock, MEGAHERTZ, 6)} (median of the window)"
    reason = "the GPU was throttled or its clocks were set low, so all times are longer than they should be"
    yield MeasuredFact(clock, words, reason, "let the GPU cool, or lock its clocks (nvidia-smi --lock-gpu-clocks)")
