"""Which ranks, processes and files were recorded, and what does the profiler say of it?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.analysis.facts.fact import Measured
from pytest_nsys.analysis.facts.ground import Ground
from pytest_nsys.analysis.metrics.common_clock import zeros_of
from pytest_nsys.analysis.metrics.gpu_state import sm_clock_mhz
from pytest_nsys.analysis.metrics.throughput import profiler_overhead
from pytest_nsys.analysis.windows.run import Run, WindowGroup
from pytest_nsys.analysis.windows.spans import absent_ranks, clocks
from pytest_nsys.analysis.windows.tracks import RankTrack
from pytest_nsys.core.errors import NoRows, SeveralCaptures
from pytest_nsys.core.model import SINCE_1970, Interval, ProcessId, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import MEGAHERTZ
from pytest_nsys.core.words import are, counted, printable, ranks_words
from pytest_nsys.traces.gpu_log import notes_on_gpus


def measure_missing_ranks(ground: Ground) -> Iterator[Measured]:
    """Yield how many ranks are promised and in no trace: by the setup labels, by the gate file, by numbers left out."""
    run, stated_world = ground.run, ground.bounds.world
    is_labelled = any(rank.setup is not None for rank in run.ranks)
    if stated_world is not None and not is_labelled:
        yield _missing_gpus(run, stated_world)
        return
    absent_count, world, absent_text = absent_ranks(run.ranks)
    reason = f"no trace holds rank{'' if absent_count == 1 else 's'} {absent_text}"
    if run.sizes:
        reason += " of the setup labels' mesh"
    elif absent_count:
        reason += f", though there is a rank {run.ranks[-1].number}"
    if stated_world is not None and stated_world - len(run.ranks) > absent_count:
        absent_count, world = stated_world - len(run.ranks), stated_world
        reason = f"the gate file states world {world}, and the traces hold {counted(len(run.ranks), 'rank')}"
    yield Measured(
        absent_count, f"{absent_count} of {world} ranks {are(absent_count)} missing", reason, "profile all ranks"
    )


def _missing_gpus(run: Run, world: int) -> Measured:
    """Measure how many GPUs are missing: a process may have one or several, and what counts is how many there are.

    Raises SeveralCaptures for more.
    """
    gpu_text, file_text = counted(len(run.ranks), "GPU"), counted(len(run.traces), "file")
    if len(run.ranks) > world:
        raise SeveralCaptures(
            f"{run.traces[0].path}: {gpu_text} ran kernels in {file_text}, but the gate file states world {world}: "
            "correct run: {world: …}, or give the files of one profiling window"
        )
    absent_count = world - len(run.ranks)
    words = f"{absent_count} of {world} GPUs {are(absent_count)} missing"
    reason = f"the gate file states world {world}, and {gpu_text} ran kernels in {file_text}"
    return Measured(absent_count, words, reason, "give the files of all processes")


def measure_shared_gpus(ground: Ground) -> Iterator[Measured]:
    """Yield how many GPUs several processes used, as under MPS."""
    if shared_gpus := ground.run.shared_gpus:
        first_ranks = sorted({rank.number for rank in shared_gpus[0]})
        rest_text = (
            f", and {counted(len(shared_gpus) - 1, 'more GPU')} {are(len(shared_gpus) - 1)} shared"
            if len(shared_gpus) > 1
            else ""
        )
        words = f"{ranks_words(first_ranks)} ran on one GPU{rest_text}"
        reason = "each waits for kernels of the other, and its idle time is not that of the GPU"
        yield Measured(len(shared_gpus), words, reason, "give each process a GPU of its own")


def measure_numbering(ground: Ground) -> Iterator[Measured]:
    """Yield how ranks are numbered that no label numbers."""
    for note in ground.run.rank_notes:
        yield Measured(1, note.text, doubtful=note.warning)


def measure_unlabelled_processes(ground: Ground) -> Iterator[Measured]:
    """Yield the processes that ran kernels beside labelled ones, and are judged nowhere."""
    for number, trace in enumerate(ground.run.traces):
        rank_processes = {rank.process.global_pid for rank in ground.run.ranks if rank.process.trace == number}
        if unlabelled := trace.unasked() - rank_processes:
            pids = ", ".join(str(ProcessId(number, pid).pid) for pid in sorted(unlabelled))
            words, reason = f"{trace.path}: kernels of process {pids} are not judged", "it has no setup label"
            yield Measured(len(unlabelled), words, reason, "push one, or correct the convention's setup expression")


def measure_whole_graphs(ground: Ground) -> Iterator[Measured]:
    """Yield how many replays of CUDA graphs were recorded without their kernels."""
    graphs = sum(facts.whole_graphs for facts in ground.run.facts)
    words = f"{counted(graphs, 'CUDA graph replay')} {'was' if graphs == 1 else 'were'} traced whole"
    yield Measured(graphs, words, "their kernels are in no window", "capture with --cuda-graph-trace=node")


_LOSS = re.compile(r"\b(dropped|lost|discarded|overflow\w*)\b", re.IGNORECASE)
_OF_EVENTS = re.compile(r"\b(event|record|range|buffer|activit|kernel)", re.IGNORECASE)
# What is lost of samples, of the operating system or of the network is in no figure; "no events" is no loss.
_NOT_OURS = re.compile(
    r"\b(no|0|zero) (\w+ ){0,3}(event|record)|sampl|perf\b|ftrace|schedul|OS runtime|ETW|network|metric", re.IGNORECASE
)


def tells_of_loss(text: str) -> bool:
    """Return whether a diagnostic says that events of the GPU, its API or NVTX were lost.

    ``Not all … events might have been collected`` says no such thing: the profiler writes it of most good traces.
    """
    return bool(_LOSS.search(text) and _OF_EVENTS.search(text) and not _NOT_OURS.search(text))


def measure_dropped(ground: Ground) -> Iterator[Measured]:
    """Yield how many signs there are of lost events: what the profiler says, and kernels outside of its session."""
    loss_texts = [
        diagnostic.told
        for facts in ground.run.facts
        for diagnostic in facts.diagnostics
        if tells_of_loss(diagnostic.raw)
    ]
    outside_count = ground.group.out_of_session if ground.metric.of_kernels else 0
    parts = [f"the profiler says: {printable(loss_texts[0])}"] if loss_texts else []
    if outside_count:
        verb = "lies" if outside_count == 1 else "lie"
        parts.append(f"{counted(outside_count, 'kernel')} around the windows {verb} outside the profiler's session")
    number = len(loss_texts) + outside_count
    words = f"events were dropped or are out of range, {counted(number, 'sign')} of it"
    reason = f"{' and '.join(parts)}, so rows may be missing or wrong"
    yield Measured(number, words, reason, "profile fewer steps or event kinds, or export again")


def measure_diagnostics(ground: Ground) -> Iterator[Measured]:
    """Yield how many warnings and errors the profiler wrote. Most are of good traces, too."""
    run = ground.run
    by_trace = zip(run.traces, run.facts, strict=True)
    problems = [
        (trace.path, printable(diagnostic.told)) for trace, facts in by_trace for diagnostic in facts.diagnostics
    ]
    texts = [f"{path} says: {text}" for path, text in problems[:3]]
    words = f"the profiler reports {counted(len(problems), 'problem')}"
    yield Measured(len(problems), words, " | ".join(texts), "fix what it reports", doubtful=False)


def measure_reader_notes(ground: Ground) -> Iterator[Measured]:
    """Yield what the readers of the traces found worth telling."""
    for facts in ground.run.facts:
        for text in facts.notes:
            yield Measured(1, printable(text, 1000), doubtful=False)


def measure_gpu_state(ground: Ground) -> Iterator[Measured]:
    """Yield what nvidia-smi said of the GPUs before and after the run: throttling, clocks and drivers."""
    for trace, facts in zip(ground.run.traces, ground.run.facts, strict=True):
        cut_notes = (note._replace(text=f"{trace.path}: {note.text}") for note in facts.on_gpus)
        for note in (*notes_on_gpus(trace.path), *cut_notes):
            yield Measured(1, note.text, doubtful=note.warning)


class Apart(NamedTuple):
    """Describes a gap between two files of a run: one ends ``gap_ns`` before the next begins."""

    earlier: Path
    later: Path
    gap_ns: int

    def __str__(self) -> str:
        return f"{self.earlier} ends {format_value(self.gap_ns)} before {self.later} begins"


def measure_apart(ground: Ground) -> Iterator[Measured]:
    """Yield the time between two files, of which one is of another run."""
    if (gap := apart(ground.group)) is not None:
        reason = "files of one run overlap in time, and one of these is of another run"
        yield Measured(gap.gap_ns, str(gap), reason, "give the files that were written together")


def apart(group: WindowGroup) -> Apart | None:
    """Find the longest time between files of a run, as far as their clocks are absolute; None where all overlap."""
    zeros = zeros_of(group.run)
    clocked_tracks = [
        (track.rank.process.clock, track) for track in group.tracks.values() if track.rank.process.clock in zeros
    ]
    spans = sorted((*_moments(group.run, track, zeros[clock]), track.rank.trace) for clock, track in clocked_tracks)
    gaps: list[Apart] = []
    for number, (begins, _, later_file) in enumerate(spans[1:], 1):
        ends, earlier_file = max((end, path) for _, end, path in spans[:number])
        gaps += [Apart(earlier_file, later_file, begins - ends)] if begins > ends else []
    return max(gaps, key=lambda gap: gap.gap_ns, default=None)


def _moments(run: Run, track: RankTrack, zero_ns: int) -> Interval:
    """Find when the profiler was on at least, in ns since 1970: its session, the anchors and the kernels around
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


def measure_clocks(ground: Ground) -> Iterator[Measured]:
    """Yield how many clocks the ranks' times count on."""
    number = clocks(ground.run.ranks)
    words = f"the ranks use {counted(number, 'clock')}"
    reason = "times of different files or machines are comparable only within the error of their clocks"
    yield Measured(number, words, reason, "profile all ranks into one report")


def measure_profiler_overhead(ground: Ground) -> Iterator[Measured]:
    """Yield how much longer a step takes under the profiler, in the window where it is most."""
    try:
        overheads = [profiler_overhead(window) for window in ground.group.together()]
    except NoRows as error:
        words = f"the overhead of the profiler is unknown: {error}"
        reason, remedy = "a distorted step would pass unnoticed", "measure a step without the profiler"
        yield Measured(None, words, reason, remedy)
        return
    words = f"a step takes {format_value(max(overheads), '%', 6)} longer under the profiler"
    reason = "the trace measures the program and its profiler, not the program alone"
    yield Measured(max(overheads), words, reason, "trace fewer kinds of events")


def measure_sm_clock(ground: Ground) -> Iterator[Measured]:
    """Yield the lowest median clock of the SMs of a rank."""
    clocks_by_rank: list[tuple[Value, int]] = []
    for window in ground.group:
        try:
            clocks_by_rank.append((sm_clock_mhz(window), window.rank.number))
        except NoRows as error:
            words = f"rank {window.rank.number}: the clock of the SMs is unknown: {error}"
            yield Measured(None, words, "a throttled GPU would pass unnoticed", "sample GPU metrics")
            return
    clock, number = min(clocks_by_rank)
    words = f"rank {number}: the SMs ran at {format_value(clock, MEGAHERTZ, 6)} (median of the window)"
    reason = "the GPU was throttled or its clocks were set low, so all times are longer than they should be"
    yield Measured(clock, words, reason, "let the GPU cool, or lock its clocks (nvidia-smi --lock-gpu-clocks)")
