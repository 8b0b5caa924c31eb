"""How long is a step, is it steady with a typical median window, and how much work does it do in a second?

A step is the period of an anchor: the file's own counter of steps may count others. Where a window holds several steps
(``workload: {steps: N}``) a step is that part of it. What the work is comes from what is stated of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import prod
from typing import NamedTuple

from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, RunWindow
from pytest_nsys.analysis.windows.spans import WindowSpec, periods, span_lengths, steady_indices
from pytest_nsys.analysis.windows.step_kinds import SECOND_NS, counted_steps, counts_in_words
from pytest_nsys.analysis.windows.tracks import AskedRun, RankTrack
from pytest_nsys.core.conventions import PARTS_OF_A_STEP
from pytest_nsys.core.errors import NoRows
from pytest_nsys.core.exact import distance, exact, mean, median, percentile
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import Rank, Span, Value
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import BARE, TIME
from pytest_nsys.core.words import counted, printable
from pytest_nsys.core.workload import Parallel, Workload

QUANTILES = (50, 90, 99)
STATISTICS: Mapping[str, Callable[[Sequence[Value]], Value]] = {
    **{f"p{quantile}": partial(percentile, percent=quantile) for quantile in QUANTILES},
    "mean": mean,
    "max": max,
}
"""Maps the label of a row to what it takes of the lengths of steps."""


def anchors(window: RankWindow) -> int:
    """Number of anchors, per rank."""
    return len(window.anchors)


def step_periods(track: RankTrack) -> dict[int, int]:
    """Return how long each anchor lasts by its index, in ns.

    A whole step lasts as long as it has the GPU, anything else from its start to the next one's. Raises NoRows where
    steps of several kinds are asked for together.
    """
    if track.steps is None:
        return dict(enumerate(periods(track.anchors)))
    if track.convention.kinds:
        return kind_step_lengths(track.group.run, track.rank, track.group.spec)
    return dict(track.step_lengths_ns)


def kind_step_lengths(run: AskedRun, rank: Rank, spec: WindowSpec) -> dict[int, int]:
    """Return how long the whole steps of the spec's kind have the GPU on a rank, in ns, by their index among those of
    the kind.

    Raises what :meth:`RunSteps.of` raises, and NoRows where the window is none of several kinds.
    """
    if spec.kind is None and not spec.picks_steps and len(run.steps.counts) > 1:
        kinds_text = counts_in_words(run.steps.counts)
        raise NoRows(f"the window holds {kinds_text}, which share no median: say which, as window: {run.steps.usual}")
    rank_steps = run.rank_steps(rank, spec)
    lengths_ns = rank_steps.lengths_ns() if rank_steps is not None else {}
    step_starts_ns = {step.start_ns for step in run.steps.of(rank.number, spec.kind)}
    return dict(enumerate(ns for start_ns, ns in lengths_ns.items() if start_ns in step_starts_ns))


def counted_periods(track: RankTrack) -> dict[int, int]:
    """Return the lengths of the anchors that a mean, a median and every quantile count, by their index, in ns."""
    return counted_steps(step_periods(track))


def period_ns(window: RankWindow) -> Mapping[str, Value]:
    """Length of the whole steps but the first, on the GPU with kernels launched, per (rank, quantile): p50, p90, p99,
    their mean and the longest. Of parts of a step it is the time from the start of one to the next.
    """
    if len(window.anchors) == 1:
        raise NoRows("one step has no period and no percentiles: write step time in its place, or capture more steps")
    periods_ns = list(counted_periods(window.track).values())
    return {statistic: summarize(periods_ns) for statistic, summarize in STATISTICS.items()} if periods_ns else {}


class Deviation(NamedTuple):
    """Says how far the length of a window is from the median of the steady anchors."""

    apart_ns: Value
    spread_ns: Value  # the MAD of the steady anchors

    @property
    def in_spreads(self) -> Value:
        """Return the distance in MAD. A MAD of 0 is taken for 1 ns, the least that a clock tells."""
        return exact(Fraction(self.apart_ns) / Fraction(self.spread_ns or 1))  # most others hit the median exactly

    def __str__(self) -> str:
        if self.apart_ns and not self.spread_ns:
            return f"{format_value(self.apart_ns)} from the steady median, which most others hit exactly (a MAD of 0)"
        return f"{format_value(self.in_spreads, BARE)} MAD from the steady median"


def deviation(window: RankWindow) -> Deviation | None:
    """Return how typical a window is; None for one that is no anchor, or without steady ones."""
    if window.window.index is None or (steady_length := _usual_length(window.track, window.spec.span)) is None:
        return None
    median_ns, mad_ns = steady_length
    length_ns = window.length_ns if window.goes_on else window.window.length_ns
    return Deviation(distance(length_ns, median_ns), mad_ns)


@kept
def _usual_length(track: RankTrack, span: Span) -> tuple[Value, Value] | None:
    """Return median and MAD, in ns, of the counted steps of a rank, of the middle half where there are none; None
    without any.
    """
    if track.steps is not None:
        lengths_ns: list[Value] = [*counted_periods(track).values()]
    else:
        spans = span_lengths(track.anchors, span)
        lengths_ns = [spans[i] for i in steady_indices(len(track.anchors)) if i < len(spans)]
    if not lengths_ns:
        return None
    median_ns = median(lengths_ns)
    return median_ns, median([distance(length_ns, median_ns) for length_ns in lengths_ns])


STEP_TIME = "step_time"
STATE_UNPROFILED = (
    "state workload: {step_time: 412ms} in the gate file, or measure step_time (pytest --nsys-measurements)"
)


def step_time_ns(window: RunWindow) -> Value:
    """Length of a step of the slowest rank: the median of its whole steps but the first, whatever the window; of a
    single step that; with ``steps: N`` the window over N.
    """
    return _step_time_ns(window)


def samples_per_s(window: RunWindow) -> Value:
    """Samples of a step over all ranks / ``step_time_ns``."""
    return exact(Fraction(SECOND_NS * samples_of(window)) / Fraction(_step_time_ns(window)))


def tokens_per_s(window: RunWindow) -> Value:
    """Tokens of a step over all ranks / ``step_time_ns``; where nobody states the batch and labels of steps say their
    tokens, these of the steady steps over the time that they take.
    """
    tracks = [rank_window.track for rank_window in window.by_rank.values()]
    stated_samples = window.run.workload.samples or window.run.workload.local_samples
    if stated_samples is None and tracks[0].convention.kinds and tracks[0].group.spec.anchor is None:
        return tokens_per_second(tracks)
    tokens = samples_of(window) * sequence_length_of(window)
    return exact(Fraction(SECOND_NS * tokens) / Fraction(_step_time_ns(window)))


def profiler_overhead(window: RunWindow) -> Value:
    """Return how much longer a step takes under the profiler: p50 period of the slowest rank / step time without it −
    1.

    Where ``steps`` says how many steps a window holds, its length over them is the step. Raises NoRows where no step
    time without the profiler is known.
    """
    unprofiled_ns = unprofiled_step_ns(window.run)
    if unprofiled_ns is None:
        raise NoRows(f"no unprofiled step time is given: {STATE_UNPROFILED}")
    return exact(Fraction(_step_time_ns(window, _p50)) / Fraction(unprofiled_ns) - 1)


def unprofiled_step_ns(run: Run) -> Value | None:
    """Return how long a step takes without the profiler, in ns: as stated, else as measured, of ranks the longest.

    None where nobody says. Raises NoRows for a measurement that is none.
    """
    if run.workload.step_time_ns is not None or STEP_TIME not in run.measurements.names:
        return run.workload.step_time_ns
    kind, rows = run.measurements.kind(STEP_TIME), run.measurements.rows(STEP_TIME)
    longest = max(value for _, value in rows)
    if kind.unit != TIME or set(kind.dimensions) - {"rank"} or longest <= 0:
        problem = f"{STEP_TIME} is not a step time ({kind})"
        raise NoRows(f"{run.measurements.shown}: {problem}: write one in ms or s, or one per rank")
    return longest


def _p50(values: Sequence[Value]) -> Value:
    return percentile(values, 50)


def slowest_rank(window: RunWindow) -> int:
    """Return the rank that ``step_time_ns`` is of: of several as slow the first. Raises NoRows."""
    lengths = step_lengths(window)
    # Of several as slow the first, so that reports are the same each time.
    return min(lengths, key=lambda rank: (-lengths[rank], rank))


def step_lengths(window: RunWindow, middle: Callable[[Sequence[Value]], Value] = median) -> dict[int, Value]:
    """Return the length of a step of each rank, in ns. Raises NoRows where that of one is not known."""
    return {
        rank: _step_ns(rank_window, window.run.workload, middle) for rank, rank_window in sorted(window.by_rank.items())
    }


def _step_time_ns(window: RunWindow, middle: Callable[[Sequence[Value]], Value] = median) -> Value:
    longest = max(step_lengths(window, middle).values())
    if not longest:
        raise NoRows("the steps have no length")
    return longest


def _step_ns(window: RankWindow, workload: Workload, middle: Callable[[Sequence[Value]], Value]) -> Value:
    if workload.steps is not None:
        return exact(Fraction(window.length_ns, workload.steps))
    if window.spec.anchor in PARTS_OF_A_STEP or (not window.spec.anchor and window.track.convention.marks_parts):
        raise NoRows(
            f"an anchor of the convention {window.track.convention.name} is a part of a step: pick a window of whole "
            "steps, and state how many: workload: {steps: N}"
        )
    if steps := [*counted_periods(window.track).values()]:
        return middle(list[Value](steps))
    if len(window.anchors) == 1 and window.spec.span is not Span.PERIOD:
        (only_anchor,) = window.anchors
        return only_anchor.end_ns - only_anchor.start_ns if window.window.index is None else window.length_ns
    anchors_text = counted(len(window.anchors), window.track.group.spec.unit)
    raise NoRows(
        f"rank {window.rank.number} has {anchors_text}, and it takes two to see how long "
        "a step is: trace more steps, or state how many the window holds: workload: {steps: N}"
    )


def samples_of(window: RunWindow) -> int:
    """Return the global batch of a step. Raises NoRows where it is not stated."""
    workload = window.run.workload
    if workload.samples is not None:
        return workload.samples
    if workload.local_samples is None:
        raise NoRows("no batch is stated: write workload: {samples: N}, or {config: FILE.toml} of TorchTitan")
    return workload.local_samples * data_parallel_of(window)


def data_parallel_of(window: RunWindow) -> int:
    """Return how many replicas read their own samples. Raises NoRows where nothing says."""
    parallel = window.run.workload.parallel
    if parallel is not None:
        return parallel.replicate * shards_of(window, parallel)
    sizes = window.run.sizes
    axes = {axis: size for axis, size in sizes.items() if axis == "dp" or axis.startswith("dp_")}
    if not axes:
        raise NoRows("the data-parallel degree is not known: write workload: {data_parallel: N}")
    return prod(axes.values())


def shards_of(window: RunWindow, parallel: Parallel) -> int:
    """Return the sharded data-parallel degree: stated, or what the other degrees leave of the world.

    Raises NoRows where the degrees do not divide the world.
    """
    world_size, degree_product = world_of(window), _degrees(parallel)
    if world_size % degree_product:
        problem = "cannot be divided by the parallel degrees of the configuration"
        raise NoRows(f"{counted(world_size, 'rank')} {problem}, {degree_product} together")
    return world_size // degree_product if parallel.shard is None else parallel.shard


def check_world(window: RunWindow, parallel: Parallel) -> None:
    """Raise NoRows where all degrees are stated, and are those of another number of ranks."""
    world_size, degree_product = world_of(window), _degrees(parallel)
    if parallel.shard is not None and world_size != degree_product:
        made_text = counted(degree_product, "rank")
        raise NoRows(f"the parallel degrees of the configuration make {made_text}, and the run has {world_size}")


def _degrees(parallel: Parallel) -> int:
    """Return how many ranks the degrees make, those of a shard that is not stated left out."""
    ranks = parallel.replicate * parallel.tensor * parallel.pipeline * parallel.context
    return ranks * (parallel.shard or 1)


def world_of(window: RunWindow) -> int:
    """Return how many ranks the program had: stated, else as the traces say, else as the degrees do.

    Never fewer than were traced.
    """
    workload = window.run.workload
    if workload.world is not None:
        return workload.world
    sizes = window.run.sizes
    traced_size = prod(sizes.values()) if sizes else _degrees(workload.parallel or Parallel())
    return max(traced_size, len(window.run.ranks))  # labels and degrees may say too little


def sequence_length_of(window: RunWindow) -> int:
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


def tokens_per_second(tracks: Sequence[RankTrack]) -> Value:
    """Return the tokens of the steps over the time that these take, per second, of the rank that takes longest.

    The ranks of an engine work on the same batch. Raises NoRows where labels do not say how many, or the ranks' differ.
    """
    token_counts = [_tokens_in_time(track) for track in tracks]
    if len({tokens for tokens, _ in token_counts}) > 1:
        raise NoRows("the ranks work on other numbers of tokens: give the traces of one engine")
    tokens, taken_ns = max(token_counts, key=lambda token_count: token_count[1])  # the other ranks wait for that one
    return exact(Fraction(tokens * SECOND_NS, taken_ns))


def _tokens_in_time(track: RankTrack) -> tuple[int, int]:
    tokens = taken_ns = 0
    for index, length_ns in counted_steps(track.step_lengths_ns).items():
        name = track.anchors[index].name
        work = track.convention.step_of(name)
        if work is None or work.tokens is None:
            raise NoRows(f"the label '{printable(name, 80)}' does not say how many tokens the step works on")
        tokens, taken_ns = tokens + work.tokens, taken_ns + length_ns
    if not taken_ns:
        raise NoRows("the steps have no length")
    return tokens, taken_ns
