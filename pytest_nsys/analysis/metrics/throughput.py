"""How long is a step, is it steady with a typical median window, and how much work does it do per second?

A step is the period of an anchor; the program's own step counter may count other units. If a window holds several steps
(``workload: {steps: N}``), a step is that fraction of it. The work of a step is what is stated about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import prod
from typing import NamedTuple

from pytest_nsys.analysis.windows.rank_track import RankTrack, RunInterface
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, RunWindow
from pytest_nsys.analysis.windows.step_kinds import SECOND_NS, drop_first_step, format_kind_counts
from pytest_nsys.analysis.windows.window_selection import (
    WindowSpec,
    list_periods,
    list_span_lengths,
    select_steady_indices,
)
from pytest_nsys.core.conventions import PART_ANCHORS
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.exact import distance, mean, median, percentile, simplify_fraction
from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.model import Rank, Span, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.core.units import BARE, TIME
from pytest_nsys.core.workload import Parallel, Workload

QUANTILES = (50, 90, 99)
PERIOD_STATISTICS: Mapping[str, Callable[[Sequence[Value]], Value]] = {
    **{f"p{quantile}": partial(percentile, percent=quantile) for quantile in QUANTILES},
    "mean": mean,
    "max": max,
}
"""Maps the label of a row to what it takes of the lengths of steps."""


def anchors(window: RankWindow) -> int:
    """Number of anchors, per rank."""
    return len(window.anchors)


def measure_step_periods(track: RankTrack) -> dict[int, int]:
    """Return how long each anchor lasts by its index, in ns.

    A whole step lasts as long as it has the GPU, anything else from its start to the next one's. Raises NoRows if steps
    of several kinds are requested together.
    """
    if track.steps_by_kind is None:
        return dict(enumerate(list_periods(track.anchors)))
    if track.convention.kinds:
        return measure_kind_steps(track.window_group.run, track.rank, track.window_group.spec)
    return dict(track.step_lengths_ns)


def measure_kind_steps(run: RunInterface, rank: Rank, spec: WindowSpec) -> dict[int, int]:
    """Return how long the whole steps of the spec's kind have the GPU on a rank, in ns, by their index among those of
    the kind.

    Raises as :meth:`StepsByKind.select_steps` does, and NoRows if steps of several kinds are requested together.
    """
    if spec.kind is None and not spec.picks_steps and len(run.steps_by_kind.counts_by_kind) > 1:
        kinds_text = format_kind_counts(run.steps_by_kind.counts_by_kind)
        raise NoRows(
            f"the window holds {kinds_text}, which share no median: say which, as window: "
            f"{run.steps_by_kind.default_kind}"
        )
    rank_steps = run.find_rank_steps(rank, spec)
    lengths_ns = rank_steps.measure_lengths_ns() if rank_steps is not None else {}
    step_starts_ns = {step.start_ns for step in run.steps_by_kind.select_steps(rank.number, spec.kind)}
    return dict(enumerate(ns for start_ns, ns in lengths_ns.items() if start_ns in step_starts_ns))


def select_counted_periods(track: RankTrack) -> dict[int, int]:
    """Return the lengths of the anchors that a mean, a median and every quantile count, by their index, in ns."""
    return drop_first_step(measure_step_periods(track))


def period_ns(window: RankWindow) -> Mapping[str, Value]:
    """Length of the whole steps but the first, on the GPU with kernels launched, per (rank, quantile): p50, p90, p99,
    their mean and the longest. Of parts of a step it is the time from the start of one to the next.
    """
    if len(window.anchors) == 1:
        raise NoRows("one step has no period and no percentiles: write step time in its place, or capture more steps")
    periods_ns = list(select_counted_periods(window.track).values())
    return (
        {statistic: summarize(periods_ns) for statistic, summarize in PERIOD_STATISTICS.items()} if periods_ns else {}
    )


class Deviation(NamedTuple):
    """Says how far the length of a window is from the median of the steady anchors."""

    distance_ns: Value
    mad_ns: Value  # the MAD of the steady anchors
    median_ns: Value  # their median

    @property
    def share(self) -> Fraction:
        """Return the distance as a share of the median."""
        return Fraction(self.distance_ns) / Fraction(self.median_ns or 1)

    @property
    def in_mads(self) -> Value:
        """Return the distance in MAD. A MAD of 0 counts as 1 ns, the resolution of the clock."""
        return simplify_fraction(
            Fraction(self.distance_ns) / Fraction(self.mad_ns or 1)
        )  # a MAD of 0: most lengths equal the median

    def __str__(self) -> str:
        if self.distance_ns and not self.mad_ns:
            return (
                f"{format_value(self.distance_ns)} from the steady median, which most others hit exactly (a MAD of 0)"
            )
        return f"{format_value(self.in_mads, BARE)} MAD from the steady median"


def measure_deviation(window: RankWindow) -> Deviation | None:
    """Return how typical a window is; None for one that is no anchor, or without steady ones."""
    if window.window.index is None or (steady_length := _find_steady_length(window.track, window.spec.span)) is None:
        return None
    median_ns, mad_ns = steady_length
    length_ns = window.length_ns if window.is_gpu_step else window.window.length_ns
    return Deviation(distance(length_ns, median_ns), mad_ns, median_ns)


@memoize_method
def _find_steady_length(track: RankTrack, span: Span) -> tuple[Value, Value] | None:
    """Return median and MAD, in ns, of the counted steps of a rank, of the middle half where there are none; None
    without any.
    """
    if track.steps_by_kind is not None:
        lengths_ns: list[Value] = [*select_counted_periods(track).values()]
    else:
        spans = list_span_lengths(track.anchors, span)
        lengths_ns = [spans[i] for i in select_steady_indices(len(track.anchors)) if i < len(spans)]
    if not lengths_ns:
        return None
    median_ns = median(lengths_ns)
    return median_ns, median([distance(length_ns, median_ns) for length_ns in lengths_ns])


MEASURED_STEP_TIME = "step_time"
STATE_UNPROFILED_HINT = (
    "state workload: {step_time: 412ms} in the gate file, or measure step_time (pytest --nsys-measurements)"
)


def step_time_ns(window: RunWindow) -> Value:
    """Length of a step of the slowest rank: the median of its whole steps but the first, whatever the window; of a
    single step that; with ``steps: N`` the window over N.
    """
    return _measure_step_time_ns(window)


def samples_per_s(window: RunWindow) -> Value:
    """Samples of a step over all ranks / ``step_time_ns``."""
    return simplify_fraction(Fraction(SECOND_NS * count_samples(window)) / Fraction(_measure_step_time_ns(window)))


def tokens_per_s(window: RunWindow) -> Value:
    """Tokens of a step over all ranks / ``step_time_ns``; where nobody states the batch and labels of steps say their
    tokens, these of the steady steps over the time that they take.
    """
    tracks = [rank_window.track for rank_window in window.by_rank.values()]
    stated_samples = window.run.workload.samples or window.run.workload.local_samples
    if stated_samples is None and tracks[0].convention.kinds and tracks[0].window_group.spec.anchor is None:
        return measure_tokens_per_second(tracks)
    tokens = count_samples(window) * find_sequence_length(window)
    return simplify_fraction(Fraction(SECOND_NS * tokens) / Fraction(_measure_step_time_ns(window)))


def measure_profiler_overhead(window: RunWindow) -> Value:
    """Return how much longer a step takes under the profiler: p50 period of the slowest rank / step time without it −
    1.

    Where ``steps`` says how many steps a window holds, its length over them is the step. Raises NoRows where no step
    time without the profiler is known.
    """
    unprofiled_ns = find_unprofiled_step_ns(window.run)
    if unprofiled_ns is None:
        raise NoRows(f"no unprofiled step time is given: {STATE_UNPROFILED_HINT}")
    return simplify_fraction(Fraction(_measure_step_time_ns(window, _take_p50)) / Fraction(unprofiled_ns) - 1)


def find_unprofiled_step_ns(run: Run) -> Value | None:
    """Return how long a step takes without the profiler, in ns: as stated, else as measured on the slowest rank.

    None if unknown. Raises NoRows for a measurement that is no step time.
    """
    if run.workload.step_time_ns is not None or MEASURED_STEP_TIME not in run.measurements.names:
        return run.workload.step_time_ns
    kind, rows = run.measurements.find_kind(MEASURED_STEP_TIME), run.measurements.list_rows(MEASURED_STEP_TIME)
    longest = max(value for _, value in rows)
    if kind.unit != TIME or set(kind.dimensions) - {"rank"} or longest <= 0:
        problem = f"{MEASURED_STEP_TIME} is not a step time ({kind})"
        raise NoRows(f"{run.measurements.paths_text}: {problem}: write one in ms or s, or one per rank")
    return longest


def _take_p50(values: Sequence[Value]) -> Value:
    return percentile(values, 50)


def find_slowest_rank(window: RunWindow) -> int:
    """Return the rank whose step ``step_time_ns`` is; of equally slow ones the first. Raises NoRows."""
    lengths = measure_step_lengths(window)
    # Of equally slow ranks the first, so that reports are deterministic.
    return min(lengths, key=lambda rank: (-lengths[rank], rank))


def measure_step_lengths(window: RunWindow, average: Callable[[Sequence[Value]], Value] = median) -> dict[int, Value]:
    """Return the length of a step of each rank, in ns. Raises NoRows if one is unknown."""
    return {
        rank: _measure_step_ns(rank_window, window.run.workload, average)
        for rank, rank_window in sorted(window.by_rank.items())
    }


def _measure_step_time_ns(window: RunWindow, average: Callable[[Sequence[Value]], Value] = median) -> Value:
    longest = max(measure_step_lengths(window, average).values())
    if not longest:
        raise NoRows("the steps have no length")
    return longest


def _measure_step_ns(window: RankWindow, workload: Workload, average: Callable[[Sequence[Value]], Value]) -> Value:
    if workload.steps is not None:
        return simplify_fraction(Fraction(window.length_ns, workload.steps))
    if window.spec.anchor in PART_ANCHORS or (not window.spec.anchor and window.track.convention.marks_parts):
        raise NoRows(
            f"an anchor of the convention {window.track.convention.name} is a part of a step: pick a window of whole "
            "steps, and state how many: workload: {steps: N}"
        )
    if steps := [*select_counted_periods(window.track).values()]:
        return average(list[Value](steps))
    if len(window.anchors) == 1 and window.spec.span is not Span.PERIOD:
        (only_anchor,) = window.anchors
        return only_anchor.end_ns - only_anchor.start_ns if window.window.index is None else window.length_ns
    anchors_text = format_count(len(window.anchors), window.track.window_group.spec.source_noun)
    raise NoRows(
        f"rank {window.rank.number} has {anchors_text}, and it takes two to see how long "
        "a step is: trace more steps, or state how many the window holds: workload: {steps: N}"
    )


def count_samples(window: RunWindow) -> int:
    """Return the global batch of a step. Raises NoRows where it is not stated."""
    workload = window.run.workload
    if workload.samples is not None:
        return workload.samples
    if workload.local_samples is None:
        raise NoRows("no batch is stated: write workload: {samples: N}, or {config: FILE.toml} of TorchTitan")
    return workload.local_samples * find_data_parallel_degree(window)


def find_data_parallel_degree(window: RunWindow) -> int:
    """Return how many replicas read their own samples. Raises NoRows if unknown."""
    parallel = window.run.workload.parallel
    if parallel is not None:
        return parallel.replicate * find_shard_degree(window, parallel)
    sizes = window.run.mesh_sizes
    axes = {axis: size for axis, size in sizes.items() if axis == "dp" or axis.startswith("dp_")}
    if not axes:
        raise NoRows("the data-parallel degree is not known: write workload: {data_parallel: N}")
    return prod(axes.values())


def find_shard_degree(window: RunWindow, parallel: Parallel) -> int:
    """Return the sharded data-parallel degree: stated, or the world size divided by the other degrees.

    Raises NoRows if the degrees do not divide the world size.
    """
    world_size, degree_product = find_world_size(window), _count_degree_ranks(parallel)
    if world_size % degree_product:
        problem = "cannot be divided by the parallel degrees of the configuration"
        raise NoRows(f"{format_count(world_size, 'rank')} {problem}, {degree_product} together")
    return world_size // degree_product if parallel.shard is None else parallel.shard


def check_world(window: RunWindow, parallel: Parallel) -> None:
    """Raise NoRows if all degrees are stated, and their product is not the world size."""
    world_size, degree_product = find_world_size(window), _count_degree_ranks(parallel)
    if parallel.shard is not None and world_size != degree_product:
        made_text = format_count(degree_product, "rank")
        raise NoRows(f"the parallel degrees of the configuration make {made_text}, and the run has {world_size}")


def _count_degree_ranks(parallel: Parallel) -> int:
    """Return the product of the degrees, without an unstated shard degree."""
    ranks = parallel.replicate * parallel.tensor * parallel.pipeline * parallel.context
    return ranks * (parallel.shard or 1)


def find_world_size(window: RunWindow) -> int:
    """Return how many ranks the program had: stated, else from the traces, else from the degrees.

    It is never less than the number of traced ranks.
    """
    workload = window.run.workload
    if workload.world is not None:
        return workload.world
    sizes = window.run.mesh_sizes
    traced_size = prod(sizes.values()) if sizes else _count_degree_ranks(workload.parallel or Parallel())
    return max(traced_size, len(window.run.ranks))  # labels and degrees may state too few


def find_sequence_length(window: RunWindow) -> int:
    """Return the tokens of a sample: stated, or in the setup label. Raises NoRows where neither says."""
    stated_length = window.run.workload.sequence_length
    labels = {
        rank_window.rank.setup.sequence_length
        for rank_window in window.by_rank.values()
        if rank_window.rank.setup is not None
    }
    sequence_length = stated_length if stated_length is not None else next(iter(labels)) if len(labels) == 1 else None
    if sequence_length is None:
        raise NoRows("the tokens of a sample are not known: write run: {sequence_length: N}")
    return sequence_length


def measure_tokens_per_second(tracks: Sequence[RankTrack]) -> Value:
    """Return the tokens of the steps per second of their time, on the rank that takes longest.

    The ranks of an engine work on the same batch. Raises NoRows if labels do not state tokens, or ranks disagree.
    """
    token_counts = [_count_tokens(track) for track in tracks]
    if len({tokens for tokens, _ in token_counts}) > 1:
        raise NoRows("the ranks work on other numbers of tokens: give the traces of one engine")
    tokens, taken_ns = max(token_counts, key=lambda token_count: token_count[1])  # the other ranks wait for the slowest
    return simplify_fraction(Fraction(tokens * SECOND_NS, taken_ns))


def _count_tokens(track: RankTrack) -> tuple[int, int]:
    tokens = taken_ns = 0
    for index, length_ns in drop_first_step(track.step_lengths_ns).items():
        name = track.anchors[index].name
        work = track.convention.parse_step(name)
        if work is None or work.tokens is None:
            raise NoRows(f"the label '{sanitize_line(name, 80)}' does not say how many tokens the step works on")
        tokens, taken_ns = tokens + work.tokens, taken_ns + length_ns
    if not taken_ns:
        raise NoRows("the steps have no length")
    return tokens, taken_ns
