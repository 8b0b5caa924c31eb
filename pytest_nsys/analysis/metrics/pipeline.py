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

from pytest_nsys.analysis.windows.rank_window import RankWindow, format_frequent_ranges
from pytest_nsys.analysis.windows.run import Run, RunWindow
from pytest_nsys.analysis.windows.window_selection import WindowSpec, list_periods, select_steady_indices
from pytest_nsys.core.conventions import make_pattern_matcher
from pytest_nsys.core.errors import NothingMeasured, UsageMistake
from pytest_nsys.core.exact import median, simplify_fraction
from pytest_nsys.core.intervals import Intervals
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import OPEN_END_NS, Interval, Note, Range, Value
from pytest_nsys.core.text_format import format_count, is_or_are, sanitize_line
from pytest_nsys.core.workload import TwoStages

STAGE_NAMES = ("stage0", "stage1")
FEWEST_UNITS = 5
"""Counts the units that must be left after the warm-up: the median of fewer is unreliable."""


class PipelineUnit(NamedTuple):
    """Describes one unit of work: its period, and the summed lengths of the ranges of each stage."""

    period_ns: int
    first_ns: int
    second_ns: int

    @property
    def hidden_share(self) -> Fraction:
        """Return the part of the shorter stage that ran behind the longer one, between 0 and 1."""
        hidden_ns = max(0, self.first_ns + self.second_ns - self.period_ns)
        # A stage without length is completely hidden.
        return min(Fraction(1), Fraction(hidden_ns, max(1, min(self.first_ns, self.second_ns))))


class Pipeline(NamedTuple):
    """Holds the units of one rank after the warm-up that hold both stages, and how many do not, by why."""

    units: tuple[PipelineUnit, ...]
    unit_count: int  # units after the warm-up
    gap_counts: Mapping[str, int]  # how many of these units lack a stage, by reason
    # Ranges that overlap another range of their stage on the same thread: they count twice.
    overlapping_count: int

    @property
    def period_ns(self) -> Value:
        """Return the median period of the units, in ns."""
        return median([unit.period_ns for unit in self.units])

    @property
    def stages_ns(self) -> tuple[Value, Value]:
        """Return the median length of each stage, in ns."""
        return median([unit.first_ns for unit in self.units]), median([unit.second_ns for unit in self.units])

    @property
    def score(self) -> Value:
        """Return the median hidden part, between 0 and 1."""
        return median([simplify_fraction(unit.hidden_share) for unit in self.units])

    @property
    def serialization(self) -> Value | None:
        """Return where the median period stands: 0 at the longer stage, 1 at the sum of both; None where a stage is
        empty.
        """
        shorter, longer = sorted(self.stages_ns)
        return simplify_fraction((Fraction(self.period_ns) - longer) / Fraction(shorter)) if shorter else None


def overlap_score(window: RunWindow) -> Mapping[int, Value]:
    """Median of (stage0 + stage1 − period) / shorter stage: from 0 (serial) to 1 (hidden), per rank.

    The ranges of the stages and the units that are left out as warm-up are those that the gate file states.
    """
    return {rank: pipeline.score for rank, pipeline in measure_pipelines(window).items()}


def serialization(window: RunWindow) -> Mapping[int, Value]:
    """(period − longer stage) / (sum of both stages − longer stage), of medians, per rank: 0 is hidden, 1 is serial.

    Not clamped: more than 1 where something beside the stages takes time, negative where units overlap each other.
    """
    positions: dict[int, Value] = {}
    for rank, pipeline in measure_pipelines(window).items():
        if (value := pipeline.serialization) is None:
            empty_stage = STAGE_NAMES[0 if pipeline.stages_ns[0] == 0 else 1]
            place_text = _format_rank_place(window.by_rank[rank])
            raise NothingMeasured(f"{place_text}: {empty_stage} takes 0 ns at the median, so there is nothing to hide")
        positions[rank] = value
    return positions


def pipeline_stage_ns(window: RunWindow) -> Mapping[tuple[int, str], Value]:
    """Median length of a pipeline's stage over the units of work, per (rank, stage0 or stage1)."""
    rank_pipelines = measure_pipelines(window).items()
    return {
        (rank, stage): pipeline.stages_ns[stage_index]
        for rank, pipeline in rank_pipelines
        for stage_index, stage in enumerate(STAGE_NAMES)
    }


def share(window: RunWindow) -> Mapping[tuple[int, str], Value]:
    """Share of the steady time in a block's ranges, per (rank, block: the range's name).

    Ranges of one name count once where they nest or overlap, on whatever threads of the process. A rank without a
    block of another rank has 0 of it.
    """
    blocks = window.run.workload.blocks
    if not blocks:
        return {}
    spans = {rank: _find_steady_span(rank_window) for rank, rank_window in window.by_rank.items()}
    times = {rank: _find_range_times(window.run, rank_window, blocks) for rank, rank_window in window.by_rank.items()}
    covered_ns = {
        (rank, name): time.measure_covered_ns(*spans[rank])
        for rank, rank_times in times.items()
        for name, time in rank_times.items()
    }
    names = sorted({name for (_, name), length in covered_ns.items() if length})
    for pattern in blocks:
        if not any(map(make_pattern_matcher(pattern), names)):
            first_window = next(iter(window.by_rank.values()))
            raise NothingMeasured(
                f"{first_window.rank.trace}: no range of block '{sanitize_line(pattern)}' in the steady periods; "
                f"{_describe_ranges(window.run, first_window)}"
            )
    return {
        (rank, name): simplify_fraction(Fraction(covered_ns.get((rank, name), 0), end - start))
        for rank, (start, end) in spans.items()
        for name in names
    }


def measure_pipelines(window: RunWindow) -> dict[int, Pipeline]:
    """Return the pipeline of each rank by number; empty where no stages are stated.

    Raises NothingMeasured where a rank has too few units with both stages, UsageMistake where a range is of both.
    """
    stages = window.run.workload.pipeline
    if stages is None:
        return {}
    return {rank: _measure_pipeline(window.run, rank_window, stages) for rank, rank_window in window.by_rank.items()}


def pipeline_notes(captures: Sequence[Run], spec: WindowSpec) -> Iterator[Note]:
    """Yield what a person should know of the units: how many were left out, and what was counted twice."""
    windows = (window for run in captures for window in run.load_windows(spec).list_run_windows()[:1])
    for rank, pipeline in (rank_pipeline for window in windows for rank_pipeline in measure_pipelines(window).items()):
        left_out_count = pipeline.unit_count - len(pipeline.units)
        if left_out_count:
            gaps_text = _describe_gaps(pipeline.gap_counts)
            units_text = format_count(pipeline.unit_count, "unit")
            yield Note(
                f"rank {rank}: {left_out_count} of {units_text} after the warm-up {is_or_are(left_out_count)} left "
                "out: "
                f"{gaps_text}",
                True,
            )
        if pipeline.overlapping_count:
            ranges_text = format_count(pipeline.overlapping_count, "range")
            yield Note(
                f"rank {rank}: {ranges_text} of a stage {is_or_are(pipeline.overlapping_count)} inside another one of "
                "it "
                "on the same thread, so that time counts twice: let the patterns match only the outer ranges",
                True,
            )


def _format_rank_place(window: RankWindow) -> str:
    return f"{window.rank.trace}: rank {window.rank.number}"


def _list_anchor_marks(window: RankWindow) -> Sequence[Range]:
    """Return the anchors, between which units of work lie: also those without a kernel, for ranges alone are
    looked at.
    """
    return window.track.window_group.run.find_anchors_of_kind(window.rank, window.spec)


def _describe_ranges(run: Run, window: RankWindow) -> str:
    process = window.rank.process
    common = format_frequent_ranges(run.traces[process.trace].common_range_names(process.global_pid))
    return f"most frequent ranges: {common}" if common else "the trace holds no ranges"


def _describe_gaps(gap_counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in gap_counts.items() if count)


def _measure_pipeline(run: Run, window: RankWindow, stages: TwoStages) -> Pipeline:
    lengths_ns = list_periods(_list_anchor_marks(window))
    _check_enough_units(window, len(lengths_ns), stages.warm_up)
    stage_times = _sum_stage_times(run, window, stages)
    for stage, patterns, unit_times in zip(STAGE_NAMES, stages[:2], stage_times.times_by_unit, strict=True):
        if not unit_times:
            patterns_text = " or ".join(f"'{sanitize_line(pattern)}'" for pattern in patterns)
            missing_text = f"no range of {stage}, {patterns_text}, starts in a period of the anchor"
            raise NothingMeasured(f"{_format_rank_place(window)}: {missing_text}; {_describe_ranges(run, window)}")
    first_times, second_times = stage_times.times_by_unit
    gap_counts = {
        "with a range that was never closed": 0,
        "without stage0": 0,
        "without stage1": 0,
        "without either": 0,
    }
    units = []
    for k in range(stages.warm_up, len(lengths_ns)):
        if k in stage_times.unclosed_units:
            gap_counts["with a range that was never closed"] += 1
        elif k in first_times and k in second_times:
            units.append(PipelineUnit(lengths_ns[k], first_times[k], second_times[k]))
        else:
            gap_counts[
                "without stage0" if k in second_times else "without stage1" if k in first_times else "without either"
            ] += 1
    unit_count = len(lengths_ns) - stages.warm_up
    if len(units) < FEWEST_UNITS:
        raise NothingMeasured(
            f"{_format_rank_place(window)}: {len(units)} of {format_count(unit_count, 'unit')} after the warm-up hold "
            "both stages "
            f"({_describe_gaps(gap_counts)}), and it takes {FEWEST_UNITS}; {_describe_ranges(run, window)}"
        )
    return Pipeline(tuple(units), unit_count, gap_counts, stage_times.overlapping_count)


def _check_enough_units(window: RankWindow, unit_count: int, warm_up: int) -> None:
    if unit_count >= warm_up + FEWEST_UNITS:
        return
    made_text = (
        f"{format_count(len(_list_anchor_marks(window)), 'anchor')} make {format_count(unit_count, 'unit')} of work"
    )
    if unit_count < FEWEST_UNITS:
        remedy = f"capture {FEWEST_UNITS + 1} anchors at least"  # the last anchor has no period
    else:
        remedy = f"lower warmup to {unit_count - FEWEST_UNITS} or less (pipeline: {{warmup: …}})"
    raise NothingMeasured(
        f"{_format_rank_place(window)}: {made_text}, of which {warm_up} are warm-up and {FEWEST_UNITS} must be left: "
        f"{remedy}"
    )


class _StageTimes(NamedTuple):
    """Holds the summed length of the ranges of each stage by unit, and the units with a range that was never closed."""

    times_by_unit: tuple[dict[int, int], dict[int, int]]
    unclosed_units: set[int]
    overlapping_count: int


def _sum_stage_times(run: Run, window: RankWindow, stages: TwoStages) -> _StageTimes:
    starts_ns = [anchor.start_ns for anchor in _list_anchor_marks(window)]
    times_by_unit: tuple[dict[int, int], dict[int, int]] = ({}, {})
    unclosed_units: set[int] = set()
    reached_by_thread: dict[tuple[int, int], int] = {}
    overlapping_count = 0
    find_stage = _make_stage_finder(stages)
    for r in run.list_rank_ranges(window.rank, (*stages.first, *stages.second)):
        unit = bisect_right(starts_ns, r.start_ns) - 1
        if not 0 <= unit < len(starts_ns) - 1:
            continue
        stage = find_stage(r)
        if r.end_ns == OPEN_END_NS:
            unclosed_units.add(unit)
            times_by_unit[stage].setdefault(unit, 0)
            continue
        times_by_unit[stage][unit] = times_by_unit[stage].get(unit, 0) + r.end_ns - r.start_ns
        reached_ns = reached_by_thread.get((stage, r.thread), r.start_ns)
        overlapping_count += r.start_ns < reached_ns and r.start_ns < r.end_ns
        reached_by_thread[stage, r.thread] = max(reached_ns, r.end_ns)
    return _StageTimes(times_by_unit, unclosed_units, overlapping_count)


def _make_stage_finder(stages: TwoStages) -> Callable[[Range], int]:
    """Return a function that says which of the two stages a range is of. It raises UsageMistake for one of both."""
    matchers = [[make_pattern_matcher(pattern) for pattern in patterns] for patterns in stages[:2]]
    stage_by_name: dict[str, int] = {}

    def find_stage(r: Range) -> int:
        """Return 0 or 1; a name is matched once."""
        if r.name not in stage_by_name:
            is_first, is_second = (any(is_match(r.name) for is_match in stage_matchers) for stage_matchers in matchers)
            if is_first and is_second:
                clash_text = f"range '{sanitize_line(r.name)}' is of stage0 and of stage1"
                raise UsageMistake(f"{clash_text}: write patterns that each match the ranges of one stage")
            stage_by_name[r.name] = 0 if is_first else 1
        return stage_by_name[r.name]

    return find_stage


def _find_steady_span(window: RankWindow) -> Interval:
    """Return the span from the start of the first steady anchor to the end of the last steady period, in ns."""
    steady_range = select_steady_indices(len(_list_anchor_marks(window)))
    last = min(steady_range.stop, len(_list_anchor_marks(window)) - 1)
    starts_ns = [anchor.start_ns for anchor in _list_anchor_marks(window)]
    if len(starts_ns) < 2 or starts_ns[last] <= starts_ns[steady_range.start]:
        raise NothingMeasured(
            f"{_format_rank_place(window)}: {format_count(len(starts_ns), 'anchor')} make no steady period"
        )
    return starts_ns[steady_range.start], starts_ns[last]


def _find_range_times(run: Run, window: RankWindow, patterns: Sequence[str]) -> dict[str, Intervals]:
    """Return when ranges of each name ran."""
    spans = group_by_key((r.name, (r.start_ns, r.end_ns)) for r in run.list_rank_ranges(window.rank, tuple(patterns)))
    return {name: Intervals.from_spans(range_spans) for name, range_spans in spans.items()}
