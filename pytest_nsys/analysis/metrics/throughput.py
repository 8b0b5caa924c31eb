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
"""What is told of the lengths of steps, by the label of its row."""


def anchors(window: RankWindow) -> int:
    """Number of anchors, per rank."""
    return len(window.anchors)


def step_periods(track: RankTrack) -> dict[int, int]:
    """How long each anchor lasts by its index, in ns: a whole step as long as it has the GPU, anything else from its
    start to the next one's. Raises NoRows where steps of several kinds are asked for together.
    """
    if track.steps is None:
        return dict(enumerate(periods(track.anchors)))
    if track.convention.kinds:
        return kind_step_lengths(track.group.run, track.rank, track.group.spec)
    return dict(track.step_lengths_ns)


def kind_step_lengths(run: AskedRun, rank: Rank, spec: WindowSpec) -> dict[int, int]:
    """How long the whole steps of a rank that are of the spec's kind have the GPU, in ns, by their index among those of
    it. Raises as :meth:`RunSteps.of` does, and NoRows where the window is none of several kinds.
    """
    if spec.kind is None and not spec.picks_steps and len(run.steps.counts) > 1:
        several = counts_in_words(run.steps.counts)
        raise NoRows(f"the window holds {several}, which share no median: say which, as window: {run.steps.usual}")
    own = run.rank_steps(rank, spec)
    lengths = own.lengths_ns() if own is not None else {}
    begins = {step.start_ns for step in run.steps.of(rank.number, spec.kind)}
    return dict(enumerate(ns for start_ns, ns in lengths.items() if start_ns in begins))


def counted_periods(track: RankTrack) -> dict[int, int]:
    """The same of the anchors that a mean, a median and every quantile count."""
    return counted_steps(step_periods(track))


def period_ns(window: RankWindow) -> Mapping[str, Value]:
    """Length of the whole steps but the first, on the GPU with kernels launched, per (rank, quantile): p50, p90, p99,
    their mean and the longest. Of parts of a step it is the time from the start of one to the next.
    """
    if len(window.anchors) == 1:
        raise NoRows("one step has no period and no percentiles: write step time in its place, or capture more steps")
    found = list(counted_periods(window.track).values())
    return {statistic: of(found) for statistic, of in STATISTICS.items()} if found else {}


class Deviation(NamedTuple):
    """How far the length of a window is from the median of the steady anchors, and their MAD; both in ns."""

    apart_ns: Value
    spread_ns: Value

    @property
    def in_spreads(self) -> Value:
        """The distance in MAD. A MAD of 0 is taken for 1 ns, the least that a clock tells."""
        return exact(Fraction(self.apart_ns) / Fraction(self.spread_ns or 1))

    def __str__(self) -> str:
        if self.apart_ns and not self.spread_ns:
            return f"{format_value(self.apart_ns)} from the steady median, which most others hit exactly (a MAD of 0)"
        return f"{format_value(self.in_spreads, BARE)} MAD from the steady median"


def deviation(window: RankWindow) -> Deviation | None:
    """How typical a window is; None for one that is no anchor, or without steady ones."""
    if window.window.index is None or (usual := _usual_length(window.track, window.spec.span)) is None:
        return None
    middle, spread = usual
    own_ns = window.length_ns if window.goes_on else window.window.length_ns
    return Deviation(distance(own_ns, middle), spread)


@kept
def _usual_length(track: RankTrack, span: Span) -> tuple[Value, Value] | None:
    """Median and MAD of the counted steps of a rank, of the middle half of what is none; None without any."""
    if track.steps is not None:
        lengths: list[Value] = [*counted_periods(track).values()]
    else:
        spans = span_lengths(track.anchors, span)
        lengths = [spans[i] for i in steady_indices(len(track.anchors)) if i < len(spans)]
    if not lengths:
        return None
    middle = median(lengths)
    return middle, median([distance(length, middle) for length in lengths])


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
    tracks = [own.track for own in window.by_rank.values()]
    stated = window.run.workload.samples or window.run.workload.local_samples
    if stated is None and tracks[0].convention.kinds and tracks[0].group.spec.anchor is None:
        return tokens_per_second(tracks)
    tokens = samples_of(window) * sequence_length_of(window)
    return exact(Fraction(SECOND_NS * tokens) / Fraction(_step_time_ns(window)))


def profiler_overhead(window: RunWindow) -> Value:
    """How much longer a step takes under the profiler: p50 period of the slowest rank / step time without it − 1.

    Where ``steps`` says how many steps a window holds, its length over them is the step.
    """
    without = unprofiled_step_ns(window.run)
    if without is None:
        raise NoRows(f"no unprofiled step time is given: {STATE_UNPROFILED}")
    return exact(Fraction(_step_time_ns(window, _p50)) / Fraction(without) - 1)


def unprofiled_step_ns(run: Run) -> Value | None:
    """How long a step takes without the profiler: as stated, else as measured, of ranks the longest; None where nobody
    says. Raises NoRows for a measurement that is none.
    """
    if run.workload.step_time_ns is not None or STEP_TIME not in run.measurements.names:
        return run.workload.step_time_ns
    kind, rows = run.measurements.kind(STEP_TIME), run.measurements.rows(STEP_TIME)
    longest = max(value for _, value in rows)
    if kind.unit != TIME or set(kind.dimensions) - {"rank"} or longest <= 0:
        what = f"{STEP_TIME} is not a step time ({kind})"
        raise NoRows(f"{run.measurements.shown}: {what}: write one in ms or s, or one per rank")
    return longest


def _p50(values: Sequence[Value]) -> Value:
    return percentile(values, 50)


def slowest_rank(window: RunWindow) -> int:
    """The rank that ``step_time_ns`` is of: of several as slow the first. Raises NoRows."""
    lengths = step_lengths(window)
    return min(lengths, key=lambda rank: (-lengths[rank], rank))


def step_lengths(window: RunWindow, middle: Callable[[Sequence[Value]], Value] = median) -> dict[int, Value]:
    """Length of a step of each rank, in ns. Raises NoRows where that of one is not known."""
    return {rank: _step_ns(own, window.run.workload, middle) for rank, own in sorted(window.by_rank.items())}


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
        (only,) = window.anchors
        return only.end_ns - only.start_ns if window.window.index is None else window.length_ns
    anchors = counted(len(window.anchors), window.track.group.spec.unit)
    raise NoRows(
        f"rank {window.rank.number} has {anchors}, and it takes two to see how long "
        "a step is: trace more steps, or state how many the window holds: workload: {steps: N}"
    )


def samples_of(window: RunWindow) -> int:
    """The global batch of a step. Raises NoRows where it is not stated."""
    workload = window.run.workload
    if workload.samples is not None:
        return workload.samples
    if workload.local_samples is None:
        raise NoRows("no batch is stated: write workload: {samples: N}, or {config: FILE.toml} of TorchTitan")
    return workload.local_samples * data_parallel_of(window)


def data_parallel_of(window: RunWindow) -> int:
    """How many replicas read their own samples. Raises NoRows where nothing says."""
    parallel = window.run.workload.parallel
    if parallel is not None:
        return parallel.replicate * shards_of(window, parallel)
    sizes = window.run.sizes
    axes = {axis: size for axis, size in sizes.items() if axis == "dp" or axis.startswith("dp_")}
    if not axes:
        raise NoRows("the data-parallel degree is not known: write workload: {data_parallel: N}")
    return prod(axes.values())


def shards_of(window: RunWindow, parallel: Parallel) -> int:
    """The sharded data-parallel degree: stated, or what the other degrees leave of the world.

    Raises NoRows where the degrees do not divide the world.
    """
    world, degrees = world_of(window), _degrees(parallel)
    if world % degrees:
        what = "cannot be divided by the parallel degrees of the configuration"
        raise NoRows(f"{counted(world, 'rank')} {what}, {degrees} together")
    return world // degrees if parallel.shard is None else parallel.shard


def check_world(window: RunWindow, parallel: Parallel) -> None:
    """Raises NoRows where all degrees are stated, and are those of another number of ranks."""
    world, degrees = world_of(window), _degrees(parallel)
    if parallel.shard is not None and world != degrees:
        made = counted(degrees, "rank")
        raise NoRows(f"the parallel degrees of the configuration make {made}, and the run has {world}")


def _degrees(parallel: Parallel) -> int:
    """How many ranks the degrees make, those of a shard that is not stated left out."""
    ranks = parallel.replicate * parallel.tensor * parallel.pipeline * parallel.context
    return ranks * (parallel.shard or 1)


def world_of(window: RunWindow) -> int:
    """How many ranks the program had: stated, else as the traces say, else as the degrees do, and never fewer than were
    traced.
    """
    workload = window.run.workload
    if workload.world is not None:
        return workload.world
    sizes = window.run.sizes
    said = prod(sizes.values()) if sizes else _degrees(workload.parallel or Parallel())
    return max(said, len(window.run.ranks))


def sequence_length_of(window: RunWindow) -> int:
    """Tokens of a sample: stated, or in the setup label. Raises NoRows where neither says."""
    stated = window.run.workload.sequence_length
    labels = {own.rank.setup.sequence_length for own in window.by_rank.values() if own.rank.setup is not None}
    found = stated if stated is not None else next(iter(labels)) if len(labels) == 1 else None
    if found is None:
        raise NoRows("the tokens of a sample are not known: write run: {sequence_length: N}")
    return found


def tokens_per_second(tracks: Sequence[RankTrack]) -> Value:
    """Tokens of the steps over the time that these take, of the rank that takes longest: the ranks of an engine work on
    the same batch. Raises NoRows where labels do not say how many, or the ranks' differ.
    """
    each = [_tokens_in_time(track) for track in tracks]
    if len({tokens for tokens, _ in each}) > 1:
        raise NoRows("the ranks work on other numbers of tokens: give the traces of one engine")
    tokens, taken_ns = max(each, key=lambda own: own[1])
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
