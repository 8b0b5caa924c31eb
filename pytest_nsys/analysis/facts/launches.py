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

FEW = Fraction(1, 100)
"""Of the kernel time: so little without a launch is in many good traces."""


def measure_unlaunched(ground: Ground) -> Iterator[Measured]:
    """Yield the share of the kernel time in the windows of kernels without a launch.

    Counted by launches they are in no window; else their stage is a guess.
    """
    if ground.group.spec.by_launch:
        found, why = ground.group.unlaunched, "with kernels: launched they are left out of the windows"
    elif ground.looks_up_launches():
        found = launchless(ground.group)
        why = "their stage could only be looked up at their GPU start, which runs behind"
    else:
        return
    if found.kernels:
        yield Measured(
            found.share,
            _without_launch(found, "around the windows"),
            why,
            ground.run.facts[0].to_see_calls,
            doubtful=found.share > FEW,
        )


def _without_launch(found: Unlaunched, where: str) -> str:
    """Return ``13 of 250 kernels of the run, 4% of their time, have no launch on record``."""
    which = f"{found.kernels} of {counted(found.among, 'kernel')} {where}, {percent(found.share)} of their time,"
    return f"{which} {'has' if found.kernels == 1 else 'have'} no launch on record"


@kept
def launchless(group: WindowGroup) -> Unlaunched:
    """Return the kernels around the windows without a launch, and of how many."""
    return Unlaunched.of_all(Unlaunched.of(track.kernels, track.launch_ns) for track in group.tracks.values())


def measure_unlaunched_in_run(ground: Ground) -> Iterator[Measured]:
    """Yield the share of the kernel time of the whole run of kernels without a launch: no step can hold them."""
    try:
        found, why = launchless(ground.run.whole()), "with kernels: launched they are in no step"
    except NothingMeasured:  # of a cut, which has the launched ones alone
        return
    if found.kernels:
        yield Measured(found.share, _without_launch(found, "of the run"), why, ground.run.facts[0].to_see_calls)


def measure_impossible_rows(ground: Ground) -> Iterator[Measured]:
    """Yield how many rows cannot be true: those that a reader left out, as they end before they start or at 0, kernels
    that begin before they are launched, that stand there twice, and that lie over several later ones of a stream that
    otherwise keeps its order.
    """
    impossible = [facts.impossible for facts in ground.run.facts]
    number, why = sum(each.number for each in impossible), next((each.first for each in impossible if each.first), "")
    for rank, track in ground.group.tracks.items():
        kernels, covering = track.on_gpu.kernels, track.on_gpu.covering
        for kernel in covering:
            name, stream = printable(kernels.names[kernels.name[kernel]], 60), kernels.streams[kernels.stream[kernel]]
            took = format_value(kernels.end_ns[kernel] - kernels.start_ns[kernel])
            why = why or f"{name} of {took} lies over later kernels of stream {stream.number} of rank {rank}"
        number += len(covering)
        if ground.reads_launches() and track.launched.early:
            number += track.launched.early
            lead = format_value(track.launched.lead_ns)
            why = why or f"a kernel of rank {rank} begins {lead} before the call that launched it"
        if twice := track.on_gpu.doubled:
            number += twice
            why = why or f"{counted(twice, 'kernel')} of rank {rank} stand there twice, of one launch and length"
    if number:
        words = f"{counted(number, 'row')} of the GPU's work cannot be true"
        yield Measured(number, words, why, "profile or export again")


def measure_nested_launches(ground: Ground) -> Iterator[Measured]:
    """Yield the share of launches that lie in ranges of two threads, of which one was taken."""
    if not ground.looks_up_launches():
        return
    found = [track.contexts for track in ground.group.tracks.values()]
    if twice := sum(each.claimed_twice for each in found):
        looked_up = sum(len(each.codes) for each in found)
        share = f"{share_of(twice, looked_up)} of {looked_up} launches lie inside ranges of two threads"
        yield Measured(Fraction(twice, looked_up), share, "the shorter range was taken", doubtful=False)


def measure_graph_kernels(ground: Ground) -> Iterator[Measured]:
    """Yield how many kernels ran in CUDA graphs: neither their order nor what each waits for is on record, on which a
    budget of the step hangs.
    """
    tracks = ground.group.tracks.values()
    if nodes := sum(total(track.kernels.graph_node) for track in tracks):
        which = f"{nodes} of {counted(sum(len(track.kernels) for track in tracks), 'kernel')} around the windows"
        why = "one launch starts many, what each waits for inside is not recorded, and its stage is that of the launch"
        yield Measured(nodes, f"{which} ran in CUDA graphs", why, doubtful=bool(ground.metric.window_by))
