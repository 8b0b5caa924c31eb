"""Do kernels and the calls that launched them belong together, and can their rows be true?"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pytest_nsys.analysis.facts.fact import Measured
from pytest_nsys.analysis.facts.ground import Ground
from pytest_nsys.analysis.windows.run import Unlaunched, WindowGroup
from pytest_nsys.core.columns import total
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.kept import kept
from pytest_nsys.core.numbers import format_value, percent, share_of
from pytest_nsys.core.words import counted, printable

# A share of the kernel time: so little without a launch is in many good traces.
FEW = Fraction(1, 100)


def measure_unlaunched(ground: Ground) -> Iterator[Measured]:
    """Yield the share of the kernel time in the windows of kernels without a launch.

    Counted by launches they are in no window; else their stage is a guess.
    """
    if ground.group.spec.by_launch:
        unlaunched, reason = ground.group.unlaunched, "with kernels: launched they are left out of the windows"
    elif ground.looks_up_launches():
        unlaunched = launchless(ground.group)
        reason = "their stage could only be looked up at their GPU start, which runs behind"
    else:
        return
    if unlaunched.kernels:
        yield Measured(
            unlaunched.share,
            _without_launch(unlaunched, "around the windows"),
            reason,
            ground.run.facts[0].to_see_calls,
            doubtful=unlaunched.share > FEW,
        )


def _without_launch(found: Unlaunched, where: str) -> str:
    """Describe kernels without a launch: ``13 of 250 kernels of the run, 4% of their time, have no launch …``."""
    subject = f"{found.kernels} of {counted(found.among, 'kernel')} {where}, {percent(found.share)} of their time,"
    return f"{subject} {'has' if found.kernels == 1 else 'have'} no launch on record"


@kept
def launchless(group: WindowGroup) -> Unlaunched:
    """Find the kernels around the windows without a launch, and of how many."""
    return Unlaunched.of_all(Unlaunched.of(track.kernels, track.launch_ns) for track in group.tracks.values())


def measure_unlaunched_in_run(ground: Ground) -> Iterator[Measured]:
    """Yield the share of the kernel time of the whole run of kernels without a launch: no step can hold them."""
    try:
        unlaunched, reason = launchless(ground.run.whole()), "with kernels: launched they are in no step"
    except NothingMeasured:  # of a cut, which has the launched ones alone
        return
    if unlaunched.kernels:
        yield Measured(
            unlaunched.share, _without_launch(unlaunched, "of the run"), reason, ground.run.facts[0].to_see_calls
        )


def measure_impossible_rows(ground: Ground) -> Iterator[Measured]:
    """Yield how many rows of the GPU's work cannot be true.

    They are those that a reader left out, as they end before they start or at 0, kernels that begin before they are
    launched, that stand there twice, and that lie over several later ones of a stream that otherwise keeps its order.
    """
    impossible = [facts.impossible for facts in ground.run.facts]
    number, reason = (
        sum(rows.number for rows in impossible),
        next((rows.first for rows in impossible if rows.first), ""),
    )
    for rank, track in ground.group.tracks.items():
        kernels, covering = track.on_gpu.kernels, track.on_gpu.covering
        for kernel in covering:
            name, stream = printable(kernels.names[kernels.name[kernel]], 60), kernels.streams[kernels.stream[kernel]]
            length = format_value(kernels.end_ns[kernel] - kernels.start_ns[kernel])
            reason = reason or f"{name} of {length} lies over later kernels of stream {stream.number} of rank {rank}"
        number += len(covering)
        if ground.reads_launches() and track.launched.early:
            number += track.launched.early
            lead = format_value(track.launched.lead_ns)
            reason = reason or f"a kernel of rank {rank} begins {lead} before the call that launched it"
        if duplicates := track.on_gpu.doubled:
            number += duplicates
            reason = (
                reason or f"{counted(duplicates, 'kernel')} of rank {rank} stand there twice, of one launch and length"
            )
    if number:
        words = f"{counted(number, 'row')} of the GPU's work cannot be true"
        yield Measured(number, words, reason, "profile or export again")


def measure_nested_launches(ground: Ground) -> Iterator[Measured]:
    """Yield the share of launches that lie in ranges of two threads, of which one was taken."""
    if not ground.looks_up_launches():
        return
    contexts = [track.contexts for track in ground.group.tracks.values()]
    if claimed_twice := sum(lookup.claimed_twice for lookup in contexts):
        lookup_count = sum(len(lookup.codes) for lookup in contexts)
        share = f"{share_of(claimed_twice, lookup_count)} of {lookup_count} launches lie inside ranges of two threads"
        yield Measured(Fraction(claimed_twice, lookup_count), share, "the shorter range was taken", doubtful=False)


def measure_graph_kernels(ground: Ground) -> Iterator[Measured]:
    """Yield how many kernels ran in CUDA graphs: a budget of the step depends on what is not on record of them.

    That is their order, and what each waits for.
    """
    tracks = ground.group.tracks.values()
    if node_count := sum(total(track.kernels.graph_node) for track in tracks):
        subject = f"{node_count} of {counted(sum(len(track.kernels) for track in tracks), 'kernel')} around the windows"
        reason = (
            "one launch starts many, what each waits for inside is not recorded, and its stage is that of the launch"
        )
        yield Measured(node_count, f"{subject} ran in CUDA graphs", reason, doubtful=bool(ground.metric.window_by))
