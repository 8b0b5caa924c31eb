"""Does a two-stage pipeline hide its shorter stage? Read off named ranges, each rank by itself.

A unit of work is the period of one anchor: from its start to the next anchor's start; the last anchor has none. A range
belongs to the unit that it starts in, whole, however far it reaches. All times of a rank are of one process, so clocks
of two ranks are never compared.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.windows.rank_window import RankWindow, most_frequent
from pytest_nsys.analysis.windows.run import Run, RunWindow
from pytest_nsys.analysis.windows.spans import WindowSpec, periods, steady_indices
from pytest_nsys.core.conventions import like
from pytest_nsys.core.errors import NothingMeasured, UsageMistake
from pytest_nsys.core.exact import exact, median
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import OPEN_END_NS, Interval, Note, Range, Value
from pytest_nsys.core.words import are, counted, printable
from pytest_nsys.core.workload import TwoStages

STAGES = ("stage0", "stage1")
FEWEST_UNITS = 5
"""Units that must be left after the warm-up: the median of fewer is unreliable."""


class PipelineUnit(NamedTuple):
    """One unit of work: its period, and the summed lengths of the ranges of each stage."""

    period_ns: int
    first_ns: int
    second_ns: int

    @property
    def hidden(self) -> Fraction:
        """The part of the shorter stage that ran behind the longer one, between 0 and 1."""
        hidden_ns = max(0, self.first_ns + self.second_ns - self.period_ns)
        return min(Fraction(1), Fraction(hidden_ns, max(1, min(self.first_ns, self.second_ns))))


class Pipeline(NamedTuple):
    """The units of one rank after the warm-up that hold both stages, and how many of ``counted`` do not, by why.

    ``overlapping`` ranges of a stage lie, wholly or in part, in another one of it on the same thread, and count twice.
    """

    units: tuple[PipelineUnit, ...]
    counted: int
    gaps: Mapping[str, int]
    overlapping: int

    @property
    def period_ns(self) -> Value:
        """Median period."""
        return median([unit.period_ns for unit in self.units])

    @property
    def stages_ns(self) -> tuple[Value, Value]:
        """Median length of each stage."""
        return median([unit.first_ns for unit in self.units]), median([unit.second_ns for unit in self.units])

    @property
    def score(self) -> Value:
        """Median hidden part."""
        return median([exact(unit.hidden) for unit in self.units])

    @property
    def serialization(self) -> Value | None:
        """Where the median period stands: 0 at the longer stage, 1 at the sum of both; None where a stage is empty."""
        shorter, longer = sorted(self.stages_ns)
        return exact((Fraction(self.period_ns) - longer) / Fraction(shorter)) if shorter else None


def overlap_score(window: RunWindow) -> Mapping[int, Value]:
    """Median of (stage0 + stage1 − period) / shorter stage: from 0 (serial) to 1 (hidden), per rank.

    The ranges of the stages and the units that are left out as warm-up are those that the gate file states.
    """
    return {number: pipeline.score for number, pipeline in pipelines(window).items()}


def serialization(window: RunWindow) -> Mapping[int, Value]:
    """(period − longer stage) / (sum of both stages − longer stage), of medians, per rank: 0 is hidden, 1 is serial.

    Not clamped: more than 1 where something beside the stages takes time, negative where units overlap each other.
    """
    found: dict[int, Value] = {}
    for number, pipeline in pipelines(window).items():
        if (value := pipeline.serialization) is None:
            empty = STAGES[0 if pipeline.stages_ns[0] == 0 else 1]
            where = _place(window.by_rank[number])
            raise NothingMeasured(f"{where}: {empty} takes 0 ns at the median, so there is nothing to hide")
        found[number] = value
    return found


def pipeline_stage_ns(window: RunWindow) -> Mapping[tuple[int, str], Value]:
    """Median length of a pipeline's stage over the units of work, per (rank, stage0 or stage1)."""
    each = pipelines(window).items()
    return {(n, stage): own.stages_ns[place] for n, own in each for place, stage in enumerate(STAGES)}


def share(window: RunWindow) -> Mapping[tuple[int, str], Value]:
    """Share of the steady time in a block's ranges, per (rank, block: the range's name).

    Ranges of one name count once where they nest or overlap, on whatever threads of the process. A rank without a
    block of another rank has 0 of it.
    """
    blocks = window.run.workload.blocks
    if not blocks:
        return {}
    spans = {number: _steady_span(own) for number, own in window.by_rank.items()}
    times = {number: _named_times(window.run, own, blocks) for number, own in window.by_rank.items()}
    covered = {
        (number, name): time.covered_ns(*spans[number]) for number, own in times.items() for name, time in own.items()
    }
    names = sorted({name for (_, name), length in covered.items() if length})
    for pattern in blocks:
        if not any(map(like(pattern), names)):
            first = next(iter(window.by_rank.values()))
            raise NothingMeasured(
                f"{first.rank.trace}: no range of block '{printable(pattern)}' in the steady periods; "
                f"{_what_exists(window.run, first)}"
            )
    return {
        (number, name): exact(Fraction(covered.get((number, name), 0), end - start))
        for number, (start, end) in spans.items()
        for name in names
    }


def pipelines(window: RunWindow) -> dict[int, Pipeline]:
    """The pipeline of each rank by number; empty where no stages are stated.

    Raises NothingMeasured where a rank has too few units with both stages, UsageMistake where a range is of both.
    """
    stages = window.run.workload.pipeline
    if stages is None:
        return {}
    return {number: _pipeline(window.run, own, stages) for number, own in window.by_rank.items()}


def pipeline_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """What a person should know of the units: how many were left out, and what was counted twice."""
    windows = (window for run in captures for window in run.measured(spec).together()[:1])
    for number, found in (each for window in windows for each in pipelines(window).items()):
        left_out = found.counted - len(found.units)
        if left_out:
            why = _why_left_out(found.gaps)
            of = counted(found.counted, "unit")
            yield Note(f"rank {number}: {left_out} of {of} after the warm-up {are(left_out)} left out: {why}", True)
        if found.overlapping:
            ranges = counted(found.overlapping, "range")
            yield Note(
                f"rank {number}: {ranges} of a stage {are(found.overlapping)} inside another one of it on the same "
                "thread, so that time counts twice: let the patterns match only the outer ranges",
                True,
            )


def _place(window: RankWindow) -> str:
    return f"{window.rank.trace}: rank {window.rank.number}"


def _marks(window: RankWindow) -> Sequence[Range]:
    """The anchors, between which units of work lie: also those without a kernel, for ranges alone are looked at."""
    return window.track.group.run.marks(window.rank, window.spec)


def _what_exists(run: Run, window: RankWindow) -> str:
    process = window.rank.process
    common = most_frequent(run.traces[process.trace].common_range_names(process.global_pid))
    return f"most frequent ranges: {common}" if common else "the trace holds no ranges"


def _why_left_out(gaps: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {why}" for why, number in gaps.items() if number)


def _pipeline(run: Run, window: RankWindow, stages: TwoStages) -> Pipeline:
    lengths = periods(_marks(window))
    _check_enough(window, len(lengths), stages.warm_up)
    found = _stage_times(run, window, stages)
    for stage, patterns, by_unit in zip(STAGES, stages[:2], found.by_unit, strict=True):
        if not by_unit:
            named = " or ".join(f"'{printable(pattern)}'" for pattern in patterns)
            what = f"no range of {stage}, {named}, starts in a period of the anchor"
            raise NothingMeasured(f"{_place(window)}: {what}; {_what_exists(run, window)}")
    first, second = found.by_unit
    gaps = {"with a range that was never closed": 0, "without stage0": 0, "without stage1": 0, "without either": 0}
    units = []
    for k in range(stages.warm_up, len(lengths)):
        if k in found.unclosed:
            gaps["with a range that was never closed"] += 1
        elif k in first and k in second:
            units.append(PipelineUnit(lengths[k], first[k], second[k]))
        else:
            gaps["without stage0" if k in second else "without stage1" if k in first else "without either"] += 1
    after = len(lengths) - stages.warm_up
    if len(units) < FEWEST_UNITS:
        raise NothingMeasured(
            f"{_place(window)}: {len(units)} of {counted(after, 'unit')} after the warm-up hold both stages "
            f"({_why_left_out(gaps)}), and it takes {FEWEST_UNITS}; {_what_exists(run, window)}"
        )
    return Pipeline(tuple(units), after, gaps, found.overlapping)


def _check_enough(window: RankWindow, units: int, warm_up: int) -> None:
    if units >= warm_up + FEWEST_UNITS:
        return
    said = f"{counted(len(_marks(window)), 'anchor')} make {counted(units, 'unit')} of work"
    if units < FEWEST_UNITS:
        remedy = f"capture {FEWEST_UNITS + 1} anchors at least"
    else:
        remedy = f"lower warmup to {units - FEWEST_UNITS} or less (pipeline: {{warmup: …}})"
    raise NothingMeasured(
        f"{_place(window)}: {said}, of which {warm_up} are warm-up and {FEWEST_UNITS} must be left: {remedy}"
    )


class _StageTimes(NamedTuple):
    """Summed length of the ranges of each stage by unit, and the units with a range that was never closed."""

    by_unit: tuple[dict[int, int], dict[int, int]]
    unclosed: set[int]
    overlapping: int


def _stage_times(run: Run, window: RankWindow, stages: TwoStages) -> _StageTimes:
    starts = [anchor.start_ns for anchor in _marks(window)]
    by_unit: tuple[dict[int, int], dict[int, int]] = ({}, {})
    unclosed: set[int] = set()
    reach: dict[tuple[int, int], int] = {}
    overlapping = 0
    stage_of = _stage_of(stages)
    for r in run.named(window.rank, (*stages.first, *stages.second)):
        unit = bisect_right(starts, r.start_ns) - 1
        if not 0 <= unit < len(starts) - 1:
            continue
        stage = stage_of(r)
        if r.end_ns == OPEN_END_NS:
            unclosed.add(unit)
            by_unit[stage].setdefault(unit, 0)
            continue
        by_unit[stage][unit] = by_unit[stage].get(unit, 0) + r.end_ns - r.start_ns
        before = reach.get((stage, r.thread), r.start_ns)
        overlapping += r.start_ns < before and r.start_ns < r.end_ns
        reach[stage, r.thread] = max(before, r.end_ns)
    return _StageTimes(by_unit, unclosed, overlapping)


def _stage_of(stages: TwoStages) -> Callable[[Range], int]:
    """Which of the two stages a range is of. Raises UsageMistake for one of both."""
    matchers = [[like(pattern) for pattern in patterns] for patterns in stages[:2]]
    known: dict[str, int] = {}

    def stage_of(r: Range) -> int:
        """0 or 1; a name is matched once."""
        if r.name not in known:
            first, second = (any(matches(r.name) for matches in own) for own in matchers)
            if first and second:
                what = f"range '{printable(r.name)}' is of stage0 and of stage1"
                raise UsageMistake(f"{what}: write patterns that each match the ranges of one stage")
            known[r.name] = 0 if first else 1
        return known[r.name]

    return stage_of


def _steady_span(window: RankWindow) -> Interval:
    """From the start of the first steady anchor to the end of the last steady period."""
    steady = steady_indices(len(_marks(window)))
    last = min(steady.stop, len(_marks(window)) - 1)
    starts = [anchor.start_ns for anchor in _marks(window)]
    if len(starts) < 2 or starts[last] <= starts[steady.start]:
        raise NothingMeasured(f"{_place(window)}: {counted(len(starts), 'anchor')} make no steady period")
    return starts[steady.start], starts[last]


def _named_times(run: Run, window: RankWindow, patterns: Sequence[str]) -> dict[str, Intervals]:
    """When ranges of each name ran."""
    spans = grouped((r.name, (r.start_ns, r.end_ns)) for r in run.named(window.rank, tuple(patterns)))
    return {name: Intervals.of(own) for name, own in spans.items()}
