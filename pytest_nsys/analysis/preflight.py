"""What in a trace casts doubt on what was measured from it? Notes, from what was read anyway and from small tables."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_nsys.analysis.overlap import tax_without_sample
from pytest_nsys.analysis.rank_window import RankTrack
from pytest_nsys.analysis.run import Run, WindowGroup
from pytest_nsys.analysis.steady import window_typicality
from pytest_nsys.analysis.windows import Pick
from pytest_nsys.model import NO_LAUNCH, KernelsMode, Note, ProcessId, counted, printable

FEW_ANCHORS = 5
UNTYPICAL = 5
"""A window this many MAD away from the steady median is no typical one."""


def notes_on(run: Run, pick: Pick) -> Iterator[Note]:
    """What a person should know about the windows of a run that were measured under ``pick``."""
    yield from run.rank_notes
    for number, (trace, facts) in enumerate(zip(run.traces, run.facts, strict=True)):
        own = {rank.process.global_pid for rank in run.ranks if rank.process.trace == number}
        unasked = ", ".join(str(ProcessId(number, pid).pid) for pid in sorted(trace.unasked() - own))
        if unasked:
            yield Note(f"{trace.path}: kernels of process {unasked} are not judged: it has no setup label", True)
        if facts.whole_graphs:
            n = facts.whole_graphs
            yield Note(f"{trace.path}: {n} CUDA graph replays were traced whole: their kernels are in no window", True)
        for text in facts.diagnostics[:3]:
            yield Note(f"{trace.path}: the profiler says: {printable(text)}", True)
    group = run.measured(pick)
    yield from _about_anchors(group)
    tracks = list(group.tracks.values())
    if pick.kernels is KernelsMode.LAUNCHED:
        yield from _about_unlaunched(group)
    else:
        yield from _about_launches(tracks)
    yield from _about_streams(group)
    yield from _about_tax(group)


def _about_anchors(group: WindowGroup) -> tuple[Note, ...]:
    """Computed once for a group: a run of thousands of anchors is asked by every assertion."""
    if group.anchor_notes is None:
        group.anchor_notes = tuple(_anchor_notes(group))
    return group.anchor_notes


def _anchor_notes(group: WindowGroup) -> Iterator[Note]:
    having = [(n, len(t.anchors)) for n, t in group.tracks.items() if t.anchors]
    few = [(n, count) for n, count in having if count < FEW_ANCHORS]
    if few:
        number, count = few[0]
        yield Note(f"rank {number} has {counted(count, 'anchor')}: the median of under {FEW_ANCHORS} says little", True)
    for number, windows in group.ranks.items():
        for row in window_typicality(windows[0]) if len(windows) == 1 else ():
            if row.value > UNTYPICAL:
                far = round(float(row.value), 1)
                yield Note(f"rank {number}: the window is untypical, {far} MAD from the steady median", True)


def _share(part: int, whole: int) -> str:
    return f"{round(100 * part / whole, 1)} %"


def _about_launches(tracks: list[RankTrack]) -> Iterator[Note]:
    """Only of tracks whose launches were read for some metric: a note never causes a pass over a table."""
    known = [track for track in tracks if "launch_ns" in track.__dict__ or track.looked_up]
    full = [track for track in known if "launch_ns" in track.__dict__]
    part = [track for track in known if "launch_ns" not in track.__dict__]
    kernels = sum(len(track.kernels) for track in full) + sum(track.looked_up for track in part)
    without = sum(t == NO_LAUNCH for track in full for t in track.launch_ns)
    without += sum(track.without_launch for track in part)
    if without:
        yield Note(
            f"{_share(without, kernels)} of {kernels} kernels around the windows have no launch row: their stage was "
            "looked up at their GPU start",
            without * 10 > kernels,
        )
    twice = sum(track.claimed_twice for track in known)
    if twice:
        looked_up = sum(track.looked_up for track in known)
        share = f"{_share(twice, looked_up)} of {looked_up}"
        yield Note(f"{share} launches lie inside ranges of two threads: the shorter range was taken")
    nodes = sum(sum(track.kernels.graph_node) for track in tracks)
    if nodes:
        yield Note(f"{nodes} kernels came from CUDA graphs: their stage is that of the graph's launch")


def _about_unlaunched(group: WindowGroup) -> Iterator[Note]:
    without, ran = group.unlaunched
    if without:
        yield Note(
            f"{_share(without, ran)} of {ran} kernels that ran during the windows have no launch row and are left out",
            without * 10 > ran,
        )


def _about_streams(group: WindowGroup) -> Iterator[Note]:
    windows = [window for own in group.ranks.values() for window in own if len(window)]
    flagged = [w for w in windows if "communicates" in w.track.__dict__]
    barriers = sum(len(w.barriers) for w in flagged)
    if barriers and not any(w.communication for w in flagged):
        length = sum(w.durations_ns[i] for w in flagged for i in w.barriers)
        yield Note(
            f"0 communication streams, all communication is barrier: {barriers} kernels on compute streams, "
            f"{round(length / 1e6, 3)} ms"
        )


def _about_tax(group: WindowGroup) -> Iterator[Note]:
    """Only of windows whose overlap tax was asked for: it reads the whole run."""
    taxed = [w for own in group.ranks.values() for w in own if "under_communication" in w.__dict__]
    counts = [tax_without_sample(window) for window in taxed]
    without, under = sum(n for n, _ in counts), sum(n for _, n in counts)
    if without:
        yield Note(
            f"overlap_tax_ns leaves out {_share(without, under)} of {under} compute kernels under communication: "
            "kernels of their name never ran alone"
        )
