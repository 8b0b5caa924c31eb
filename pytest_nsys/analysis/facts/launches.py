"""Do kernels and the calls that launched them belong together, and can their rows be true?"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from pytest_nsys.analysis.facts.fact import MeasuredFact
from pytest_nsys.analysis.facts.quality_context import QualityContext
from pytest_nsys.analysis.windows.run import UnlaunchedKernels, WindowGroup
from pytest_nsys.core.columns import sum_column
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.numbers import format_percent, format_percent_of, format_value
from pytest_nsys.core.text_format import format_count, sanitize_line

# As a share of the kernel time; many good traces have this much without a launch.
FEW_UNLAUNCHED = Fraction(1, 100)


def measure_unlaunched(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the share of the windows' kernel time that is in kernels without a launch.

    If kernels are counted by launch, these are in no window; otherwise their stage is a guess.
    """
    if context.group.spec.is_by_launch:
        unlaunched, reason = context.group.unlaunched, "with kernels: launched they are left out of the windows"
    elif context.looks_up_launches():
        unlaunched = find_unlaunched(context.group)
        reason = "their stage could only be looked up at their GPU start, which runs behind"
    else:
        return
    if unlaunched.unlaunched_count:
        yield MeasuredFact(
            unlaunched.time_share,
            _describe_unlaunched(unlaunched, "around the windows"),
            reason,
            context.run.facts[0].to_see_calls,
            is_doubtful=unlaunched.time_share > FEW_UNLAUNCHED,
        )


def _describe_unlaunched(unlaunched: UnlaunchedKernels, place: str) -> str:
    """Describe kernels without a launch: ``13 of 250 kernels of the run, 4% of their time, have no launch …``."""
    subject = (
        f"{unlaunched.unlaunched_count} of {format_count(unlaunched.kernel_count, 'kernel')} {place}, "
        f"{format_percent(unlaunched.time_share)} of their time,"
    )
    return f"{subject} {'has' if unlaunched.unlaunched_count == 1 else 'have'} no launch on record"


@memoize_method
def find_unlaunched(group: WindowGroup) -> UnlaunchedKernels:
    """Count the kernels around the windows that have no launch, and all kernels there."""
    return UnlaunchedKernels.add_up(
        UnlaunchedKernels.measure(track.kernels, track.launch_ns) for track in group.tracks.values()
    )


def measure_unlaunched_in_run(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the share of the whole run's kernel time that is in kernels without a launch, which no step can hold."""
    try:
        unlaunched, reason = find_unlaunched(context.run.load_whole_run()), "with kernels: launched they are in no step"
    except NothingMeasured:  # a cut holds only launched kernels
        return
    if unlaunched.unlaunched_count:
        yield MeasuredFact(
            unlaunched.time_share,
            _describe_unlaunched(unlaunched, "of the run"),
            reason,
            context.run.facts[0].to_see_calls,
        )


def measure_impossible_rows(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the number of rows of GPU work that cannot be true.

    These are rows that a reader left out because they end before they start, or start and end at 0; kernels that begin
    before their launch; duplicates; and kernels that cover several later ones of a stream that otherwise keeps its
    order.
    """
    impossible = [facts.impossible_rows for facts in context.run.facts]
    number, reason = (
        sum(rows.number for rows in impossible),
        next((rows.first_row for rows in impossible if rows.first_row), ""),
    )
    for rank, track in context.group.tracks.items():
        kernels, covering = track.gpu_track.kernels, track.gpu_track.covering_kernels
        for kernel in covering:
            name, stream = (
                sanitize_line(kernels.names[kernels.name[kernel]], 60),
                kernels.streams[kernels.stream[kernel]],
            )
            length = format_value(kernels.end_ns[kernel] - kernels.start_ns[kernel])
            reason = reason or f"{name} of {length} lies over later kernels of stream {stream.number} of rank {rank}"
        number += len(covering)
        if context.reads_launches() and track.launch_coverage.early_count:
            number += track.launch_coverage.early_count
            lead = format_value(track.launch_coverage.lead_ns)
            reason = reason or f"a kernel of rank {rank} begins {lead} before the call that launched it"
        if duplicates := track.gpu_track.duplicate_count:
            number += duplicates
            reason = (
                reason
                or f"{format_count(duplicates, 'kernel')} of rank {rank} stand there twice, of one launch and length"
            )
    if number:
        words = f"{format_count(number, 'row')} of the GPU's work cannot be true"
        yield MeasuredFact(number, words, reason, "profile or export again")


def measure_nested_launches(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the share of launches inside ranges of two threads, only one of which was used."""
    if not context.looks_up_launches():
        return
    contexts = [track.contexts for track in context.group.tracks.values()]
    if claimed_twice := sum(lookup.doubly_claimed_count for lookup in contexts):
        lookup_count = sum(len(lookup.codes) for lookup in contexts)
        share = (
            f"{format_percent_of(claimed_twice, lookup_count)} of {lookup_count} launches lie inside ranges of two "
            "threads"
        )
        yield MeasuredFact(
            Fraction(claimed_twice, lookup_count), share, "the shorter range was taken", is_doubtful=False
        )


def measure_graph_kernels(context: QualityContext) -> Iterator[MeasuredFact]:
    """Yield the number of kernels in CUDA graphs, whose order and waits, which the step's budget depends on, are not on
    record.
    """
    tracks = context.group.tracks.values()
    if node_count := sum(sum_column(track.kernels.graph_node) for track in tracks):
        subject = (
            f"{node_count} of {format_count(sum(len(track.kernels) for track in tracks), 'kernel')} around the windows"
        )
        reason = (
            "one launch starts many, what each waits for inside is not recorded, and its stage is that of the launch"
        )
        yield MeasuredFact(
            node_count, f"{subject} ran in CUDA graphs", reason, is_doubtful=bool(context.metric.median_window_metric)
        )
