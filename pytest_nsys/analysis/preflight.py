"""What in a trace casts doubt on what was measured from it? Notes, from what was read anyway and from small tables."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from pytest_nsys.analysis.bounds import FEW_ANCHORS
from pytest_nsys.analysis.doubts import WHY_UNCOUNTED, apart, empty_anchors, uncounted, uneven_anchors
from pytest_nsys.analysis.quality import UNTYPICAL, anchor_counts, deviations, have_anchors, launchless
from pytest_nsys.analysis.run import Run, WindowGroup
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.columns import take, total
from pytest_nsys.core.conventions import BUILT_IN
from pytest_nsys.core.grouping import grouped
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import KernelsMode, Note, ProcessId
from pytest_nsys.core.numbers import format_value, percent, share_of
from pytest_nsys.core.words import counted, printable
from pytest_nsys.traces.gpu_log import notes_on_gpus


def notes_on(
    run: Run, spec: WindowSpec, *, stages: bool = True, streams: bool = True, launches: bool = True
) -> Iterator[Note]:
    """What a person should know about the windows of a run that were measured under ``spec``.

    ``stages``: the metric looks stages or purposes up at launches; ``streams``: it tells streams apart; ``launches``:
    it is read off launches in another way. What is told depends on what was asked alone, never on what is read already.
    """
    yield from run.rank_notes
    for number, (trace, facts) in enumerate(zip(run.traces, run.facts, strict=True)):
        own = {rank.process.global_pid for rank in run.ranks if rank.process.trace == number}
        unasked = ", ".join(str(ProcessId(number, pid).pid) for pid in sorted(trace.unasked() - own))
        if unasked:
            yield Note(f"{trace.path}: kernels of process {unasked} are not judged: it has no setup label", True)
        if facts.whole_graphs:
            n = facts.whole_graphs
            yield Note(f"{trace.path}: {n} CUDA graph replays were traced whole: their kernels are in no window", True)
        for each in facts.diagnostics[:3]:
            yield Note(f"{trace.path}: the profiler says: {printable(each.told)}", True)
        for text in facts.notes:
            yield Note(printable(text, 1000))
        yield from notes_on_gpus(trace.path)
        yield from (note._replace(text=f"{trace.path}: {note.text}") for note in facts.on_gpus)
    group = run.measured(spec)
    yield from about_uncounted(group)
    yield from _about_order(group)
    if (found := apart(group)) is not None:
        yield Note(f"{found}: files of one run overlap in time", True)
    yield from _about_anchors(group)
    by_launch = spec.kernels is KernelsMode.LAUNCHED and not spec.whole_run
    if by_launch:
        yield from _about_unlaunched(group)
    elif stages:
        yield from _about_launches(group)
    if by_launch or stages or launches:
        yield from _about_early(group)
    if streams:
        yield from _about_streams(group)


def about_uncounted(group: WindowGroup) -> Iterator[Note]:
    """That kernels of known communication libraries count as compute."""
    if (found := uncounted(group)) is not None:
        yield Note(f"{found.words}: {WHY_UNCOUNTED}; {found.remedy(group.run.convention)}", True)


def _about_order(group: WindowGroup) -> Iterator[Note]:
    """That streams keep no order: once, with the one that shows it most."""
    found = [(share, n, s) for n, track in group.tracks.items() for s, share in track.unordered.items()]
    if found:
        share, number, stream = max(found, key=lambda each: (each[0], -each[1]))
        more = f", and {counted(len(found) - 1, 'more such stream')}" if len(found) > 1 else ""
        inside = f"{percent(share)} of its kernel time runs inside other kernels of it"
        yield Note(
            f"stream {stream.number} of rank {number} keeps no order{more}: {inside}. Its order proves nothing; "
            "its communication is no barrier and is judged by time"
        )


@kept
def _about_anchors(group: WindowGroup) -> tuple[Note, ...]:
    """Computed once for a group: a run of thousands of anchors is asked by every assertion."""
    return tuple(_anchor_notes(group))


def _anchor_notes(group: WindowGroup) -> Iterator[Note]:
    few = grouped((count, number) for number, count in anchor_counts(group) if count < FEW_ANCHORS)
    for count, ranks in sorted(few.items()):
        yield Note(f"{have_anchors(ranks, count)}: the median of under {FEW_ANCHORS} says little", True)
    for empty in empty_anchors(group):
        yield Note(f"{empty}: the record of its kernels does not reach over that of its ranges", True)
    if uneven := uneven_anchors(group):
        yield Note(f"{uneven}: windows that are found by their number are other pieces of work", uneven.alike)
    for number, found in deviations(group):
        if found.in_spreads > UNTYPICAL:
            yield Note(f"rank {number}: the window is untypical, {found}", True)


def _about_launches(group: WindowGroup) -> Iterator[Note]:
    """Of the kernels that were looked up: all of a few, of many those that communicate."""
    tracks = list(group.tracks.values())
    looked_up = sum(track.looked_up for track in tracks)
    without, whole = launchless(group) if looked_up else (0, 0)
    if without:
        which = f"{share_of(without, whole)} of {whole} kernels around the windows"
        yield Note(f"{which} have no launch row: their stage was looked up at their GPU start", without * 10 > whole)
    twice = sum(track.claimed_twice for track in tracks)
    if twice:
        share = f"{share_of(twice, looked_up)} of {looked_up}"
        yield Note(f"{share} launches lie inside ranges of two threads: the shorter range was taken")
    nodes = sum(total(track.kernels.graph_node) for track in tracks)
    if nodes:
        yield Note(f"{nodes} kernels came from CUDA graphs: their stage is that of the graph's launch")


def _about_unlaunched(group: WindowGroup) -> Iterator[Note]:
    without, ran = group.unlaunched
    if without:
        which = f"{share_of(without, ran)} of {ran} kernels that ran during the windows"
        yield Note(f"{which} have no launch row and are left out", without * 10 > ran)


def _about_early(group: WindowGroup) -> Iterator[Note]:
    found = [(track.launched, number) for number, track in group.tracks.items()]
    if early := sum(launched.early for launched, _ in found):
        whole = counted(sum(launched.kernels for launched, _ in found), "kernel")
        most, number = max(found, key=lambda each: each[0].lead_ns)
        which = f"of {whole} around the windows, {early} began before the launch, by up to {format_value(most.lead_ns)}"
        yield Note(f"{which} (rank {number}): the clocks of CPU and GPU disagree, or it is another one's launch", True)


NO_STREAM = "no communication stream"
"""How the note begins that tells why nothing of communication streams is measured."""


def _about_streams(group: WindowGroup) -> Iterator[Note]:
    windows = [window for window in group if len(window)]
    built_in = {pattern for convention in BUILT_IN.values() for pattern in convention.communication}
    for pattern in group.run.convention.communication:
        if pattern in built_in:  # it is for whichever library there is; one that a person wrote is meant to match
            continue
        if not any(fnmatchcase(name, pattern) for window in windows for name in set(window.kernels.names.values())):
            yield Note(f"no kernel around the windows is like the communication pattern '{printable(pattern)}'", True)
    if any(w.communication for w in windows):
        return
    barriers = sum(len(w.barriers) for w in windows)
    hidden = "; compute of other streams may hide it: see wall_overlap_all, wall_exposed_all_ns"
    if not barriers:
        yield Note(f"{NO_STREAM}: no communication kernel in the windows")
        return
    length = sum(total(take(w.durations_ns, w.barriers)) for w in windows)
    yield Note(
        f"{NO_STREAM}: all communication ({counted(barriers, 'kernel')}, {format_value(length)}) is on compute streams"
        f"{hidden if any(w.hides_barriers for w in windows) else ''}"
    )
