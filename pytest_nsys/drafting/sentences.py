"""Which assertions does a first gate file hold, with which limits, and why each? At most fourteen, each on data.

Structure is exact; ratios are limited by constants; times, which depend on the machine, by the baseline. Sentences
without which a slower step would pass are never dropped: step time, compute, exposed time, launches, syncs, kernels. A
sentence on stages is followed by one on work without a stage, which no row of a stage shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.fact_bounds import FEW_ANCHORS
from pytest_nsys.analysis.metrics.activity import SYNCHRONISING_CALLS, parse_waiting_call
from pytest_nsys.analysis.metrics.names import format_spoken_name
from pytest_nsys.analysis.metrics.registry import METRICS, STEP_TIME_METRIC
from pytest_nsys.analysis.metrics.stream_sharing import (
    ALL_STREAM_METRICS,
    OWN_STREAM_METRICS,
    WallMetrics,
    choose_wall_metrics,
    measure_sharing,
)
from pytest_nsys.analysis.metrics.table import NothingSelected
from pytest_nsys.analysis.metrics.throughput import measure_step_periods, select_counted_periods
from pytest_nsys.analysis.windows.rank_track import MAX_COLUMN_NS
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.step_kinds import sort_by_count
from pytest_nsys.analysis.windows.window_selection import RUN, WindowSpec
from pytest_nsys.core.conventions import NO_STAGE, UNKNOWN_PURPOSE
from pytest_nsys.core.exact import median, simplify_fraction
from pytest_nsys.core.model import KernelsMode, Label, Value
from pytest_nsys.core.numbers import format_change, format_distance, format_distinctly, format_percent, format_value
from pytest_nsys.core.text_format import format_count, format_labels, sanitize_line
from pytest_nsys.core.units import RATIO, TIME
from pytest_nsys.drafting.margins import (
    GUESSED_MARGIN,
    MAX_STEP_MARGIN,
    MIN_MARGIN,
    ROUGH_MARGIN,
    choose_absolute_ns,
    choose_points_margin,
    choose_relative_margin,
    estimate_noise,
    format_ns,
    round_hundredths_above,
    round_percent_below,
)
from pytest_nsys.drafting.steady_steps import StepMisses, count_misses
from pytest_nsys.gates.judgement import MOST_EXCUSED_TOLERANCES
from pytest_nsys.gates.selection import measure_balance

LabelTuple = tuple[Label, ...]


@dataclass(frozen=True)
class CaptureFigures:
    """Reads what the captures hold under one window spec. Raises NothingMeasured where a window is empty."""

    captures: Captures
    spec: WindowSpec

    @property
    def capture_count(self) -> int:
        """The number of captures."""
        return len(self.captures.runs)

    def read_rows(self, metric: str) -> dict[LabelTuple, Value]:
        """Return the rows of a metric, medians over the captures; none where some capture lacks a row."""
        table = self.captures.measure_rows(METRICS[metric], self.spec)
        return {} if table.missing else {row.labels: row.value for row in table.rows}

    def list_row_values(self, metric: str) -> dict[LabelTuple, list[Value]]:
        """List the values of every row, one for each capture."""
        values_by_row: dict[LabelTuple, list[Value]] = {labels: [] for labels in self.read_rows(metric)}
        for table in self.captures.measure_each_capture(METRICS[metric], self.spec):
            for row in table.rows:
                if row.labels in values_by_row:
                    values_by_row[row.labels].append(row.value)
        return values_by_row

    @property
    def windows(self) -> list[RankWindow]:
        """The windows of every rank of every capture."""
        return [window for run in self.captures.runs for window in run.load_windows(self.spec)]

    def describe_largest(self, metric: str, subset: Mapping[LabelTuple, Value] | None = None) -> str:
        """Describe the largest row, of all or of some: ``1 278 us (rank 5 stage4_f)``."""
        rows = self.read_rows(metric) if subset is None else subset
        return self.describe_row(metric, max(rows.items(), key=_make_value_key))

    def describe_smallest(self, metric: str, subset: Mapping[LabelTuple, Value]) -> str:
        """Describe the smallest of some rows."""
        return self.describe_row(metric, min(subset.items(), key=_make_value_key))

    def describe_row(self, metric: str, row: tuple[LabelTuple, Value]) -> str:
        """Describe a value with the labels of its row."""
        labels, value = row
        place = format_labels(zip(METRICS[metric].dimensions, labels, strict=True))
        return f"{format_value(value, METRICS[metric].unit)} ({sanitize_line(place, 60)})"


def _make_value_key(row: tuple[LabelTuple, Value]) -> tuple[Value, str]:
    return row[1], str(row[0])


def group_by_stage(rows: Mapping[LabelTuple, Value]) -> dict[str, dict[LabelTuple, Value]]:
    """Group rows per (rank, stage) by stage, stages ordered by name."""
    rows_by_stage: dict[str, dict[LabelTuple, Value]] = {}
    for labels, value in rows.items():
        rows_by_stage.setdefault(str(labels[1]), {})[labels] = value
    return dict(sorted(rows_by_stage.items()))


# Assertions

STEP_LENGTHS = ("window_ns", "step_time_ns", "period_ns")
# Without these metrics a slower step would pass: they are drafted, with a warning, however much captures differ.
ALWAYS_DRAFTED = (*STEP_LENGTHS, "compute_ns")

# A longer first gate file is not read.
MAX_SENTENCES = 14
MAX_STAGES = 4
# A lower limit on an overlap would be of no use.
MIN_OVERLAP_PERCENT = 5

# In percent of the time of all kernels; autotuning may replace kernels with a smaller share.
BIG_KERNEL_PERCENT = 2

Entry = str | Mapping[str, str | Mapping[str, str]]


@dataclass(frozen=True)
class DraftSentence:
    """Holds one entry under ``assertions:``: a sentence, or the keys of a mapping."""

    entry: Entry
    reasons: tuple[str, ...]  # comment lines
    group: str  # the heading it stands below
    rank: int  # if there are too many sentences, the largest rank is dropped first, NEVER_OMITTED never
    doubt: str = ""  # how much the captures differ, if that is too much for the sentence; reported
    is_drafted: bool = True  # False: left out of the file because of its doubt

    @property
    def title(self) -> str:
        """The name of the sentence in a message."""
        return self.entry if isinstance(self.entry, str) else str(self.entry.get("id", self.entry["assert"]))


# Values of ``DraftSentence.rank``.
NEVER_OMITTED, OMITTED_FIRST = 0, 99
# With fewer steps the slowest tenth is one step or none.
MIN_STEPS_FOR_P90 = 2 * FEW_ANCHORS
STRUCTURE_GROUP, COMMUNICATION_GROUP, TIME_GROUP = "Structure", "Communication", "Time"
# In the order of the file.
GROUPS = (STRUCTURE_GROUP, COMMUNICATION_GROUP, TIME_GROUP)


def choose_file_tolerance(figures: CaptureFigures) -> Fraction:
    """Choose the relative tolerance of the gate file, as a fraction of the baseline, from the spread of the window
    lengths.
    """
    return min(
        MAX_STEP_MARGIN,
        choose_relative_margin([*figures.list_row_values("window_ns").values()], choose_file_absolute_ns(figures)),
    )


def choose_file_absolute_ns(figures: CaptureFigures) -> int:
    """Choose the absolute tolerance of times, in ns: at most 1% of the shortest window."""
    return choose_absolute_ns(min(figures.read_rows("window_ns").values()))


def draft_sentences(figures: CaptureFigures) -> list[DraftSentence]:
    """Draft the assertions in the order of the file, including those that are left out because of a doubt."""
    windows = figures.windows
    sentences: list[DraftSentence] = []
    communicates = any(window.communication for window in windows)
    wall_metrics = choose_wall_metrics(measure_sharing(windows))
    if communicates:
        sentences += _draft_streams(figures)
    sentences += _draft_barrier_limits(figures, wall_metrics, communicates=communicates)
    sentences += _draft_launched(figures)
    sentences += _draft_syncs(figures)
    sentences += _draft_pageable_copies(figures)
    if communicates:
        sentences += _draft_overlaps(figures, wall_metrics)
        sentences += _draft_exposed(figures, wall_metrics)
    sentences += _draft_balance(figures)
    sentences += _draft_times(figures)
    sentences += _draft_memory(figures)
    while sum(sentence.is_drafted for sentence in sentences) > MAX_SENTENCES:
        sentences.remove(
            max((sentence for sentence in sentences if sentence.is_drafted), key=lambda sentence: sentence.rank)
        )
    return sorted(sentences, key=lambda sentence: GROUPS.index(sentence.group))


def _format_rank_count(figures: CaptureFigures) -> str:
    ranks = len(figures.captures.runs[0].ranks)
    return "the rank" if ranks == 1 else f"each of {ranks} ranks"


def _draft_streams(figures: CaptureFigures) -> Iterator[DraftSentence]:
    rows = figures.read_rows("comm_streams")
    counts: dict[Label, int] = {}
    for (rank, _), value in rows.items():
        counts[rank] = counts.get(rank, 0) + int(value)
    used_purposes = sorted({str(purpose) for (_, purpose), value in rows.items() if value})
    purpose_list = sanitize_line(f" ({', '.join(used_purposes)})", 80) if used_purposes != [UNKNOWN_PURPOSE] else ""
    count_text = " to ".join(map(str, sorted({min(counts.values()), max(counts.values())})))
    reason = f"Streams that communicate, on {_format_rank_count(figures)}: {count_text}{purpose_list}."
    yield DraftSentence("comm streams == baseline", (reason,), STRUCTURE_GROUP, 2)
    if not figures.captures.convention.purposes:
        return
    reasons = {
        "mixed": "A stream with two purposes runs in order what could run side by side.",
        "unknown": "New communication would have no purpose yet.",
    }
    for purpose, reason in reasons.items():
        if not any(value for (_, row_purpose), value in rows.items() if row_purpose == purpose):
            yield DraftSentence(
                f"no {purpose} comm streams", (reason,), STRUCTURE_GROUP, 3 if purpose == "mixed" else 9
            )


def _draft_barrier_limits(
    figures: CaptureFigures, wall_metrics: WallMetrics, *, communicates: bool
) -> Iterator[DraftSentence]:
    rows = figures.read_rows("barrier_ns")
    if rows and not any(rows.values()):
        if communicates:
            reason = "Communication on a compute stream would wait for that stream's compute."
            yield DraftSentence("no barrier", (reason,), STRUCTURE_GROUP, 4)
        return
    exposed_rows = figures.read_rows(wall_metrics.exposed) if wall_metrics == ALL_STREAM_METRICS else {}
    if rows:
        largest_text = figures.describe_largest("barrier_ns")
        is_hidden = any(window.can_hide_barriers for window in figures.windows)
        effect = "only other streams' compute can hide it" if is_hidden else "it never overlaps"
        reasons = [f"{largest_text} of communication on compute streams: {effect}."]
        if not communicates:
            reasons.append("All communication is such, so 'exposed' and 'overlap' have no rows.")
        is_never_omitted = rows == exposed_rows or not (is_hidden or communicates)
        yield _draft_upper_limit(
            figures, "barrier_ns", tuple(reasons), COMMUNICATION_GROUP, NEVER_OMITTED if is_never_omitted else 4
        )
    if wall_metrics == ALL_STREAM_METRICS:
        if not communicates:
            yield from _draft_wall_overlap(figures, wall_metrics.overlap)
        if exposed_rows and exposed_rows != rows:  # else the 'barrier' sentence covers the same value
            largest_exposed = figures.describe_largest(wall_metrics.exposed, exposed_rows)
            reason = f"At most {largest_exposed} of communication without compute on any stream, 'barrier' included."
            yield _draft_upper_limit(figures, wall_metrics.exposed, (reason,), COMMUNICATION_GROUP, NEVER_OMITTED)


def _draft_launched(figures: CaptureFigures) -> Iterator[DraftSentence]:
    """Draft exact sentences on structure, only in a kernels mode that does not depend on when the GPU ran a kernel."""
    if figures.spec.kernels is KernelsMode.LAUNCHED or figures.spec.is_whole_run:
        yield from (*_draft_launches(figures), *_draft_kernels(figures))
        return
    if figures.captures.convention.kernel_anchor is not None:  # mode ``clipped``: too few launches are recorded
        yield from _draft_kernels(figures)
        return
    launched_figures = CaptureFigures(figures.captures, replace(figures.spec, kernels=KernelsMode.LAUNCHED))
    if not all(len(window) for window in launched_figures.windows):
        return
    edge_reason = "Counted where they are launched: when the GPU gets to them moves the edges of a window."
    mode_key = {"kernels": str(KernelsMode.LAUNCHED)}
    for sentence in _draft_launches(launched_figures):
        yield replace(
            sentence, entry=_make_mapping(sentence.entry) | mode_key, reasons=(*sentence.reasons, edge_reason)
        )
    for sentence in _draft_kernels(launched_figures):
        yield replace(sentence, entry=_make_mapping(sentence.entry) | mode_key)


def _make_mapping(entry: Entry) -> dict[str, str | Mapping[str, str]]:
    return {"assert": entry} if isinstance(entry, str) else dict(entry)


def _make_unstaged_entry(metric: str, assertion: str, *, is_of_all: bool = False) -> Entry:
    """Make the entry for kernels without a stage, with the name of the built-in assertion; ``is_of_all``: for all
    kernels.
    """
    name = metric if is_of_all else f"{metric} without a stage"
    return {"id": name, "assert": f"{metric} of stage {NO_STAGE}{assertion.removeprefix(metric)}"}


def _draft_launches(figures: CaptureFigures) -> Iterator[DraftSentence]:
    """Draft sentences on the launches with a stage, and on those without one."""
    launches = figures.list_row_values("launches")
    with_stage = {labels: captures for labels, captures in launches.items() if labels[1] != NO_STAGE}
    without_stage = {labels: captures for labels, captures in launches.items() if labels[1] == NO_STAGE}
    change_text = "One more or fewer: the program changed."
    if _is_exact(with_stage):
        reason = f"{_format_launch_count(with_stage)} in stages. {change_text}"
        yield DraftSentence("launches == baseline", (reason,), STRUCTURE_GROUP, NEVER_OMITTED)
    if _is_exact(without_stage):
        reason = f"{_format_launch_count(without_stage)} {'without a stage' if with_stage else 'in all'}. {change_text}"
        sentence = _make_unstaged_entry("launches", "launches == baseline", is_of_all=not with_stage)
        yield DraftSentence(sentence, (reason,), STRUCTURE_GROUP, NEVER_OMITTED)


def _is_exact(captures_by_row: Mapping[LabelTuple, Sequence[Value]]) -> bool:
    """Whether there are rows, and each has the same value in every capture."""
    return bool(captures_by_row) and all(len(set(captures)) == 1 for captures in captures_by_row.values())


def _format_launch_count(captures_by_row: Mapping[LabelTuple, Sequence[Value]]) -> str:
    return format_count(int(sum(captures[0] for captures in captures_by_row.values())), "kernel")


def _draft_kernels(figures: CaptureFigures) -> Iterator[DraftSentence]:
    """Draft a sentence on kernels with a larger share of the time than any kernel that only some captures ran."""
    shares = figures.list_row_values("kernel_share")
    chance_shares = [max(captures) for captures in shares.values() if len(captures) < figures.capture_count]
    limit = max([BIG_KERNEL_PERCENT, *(ceil(100 * Fraction(share)) for share in chance_shares)])
    big_rows = [(labels, value) for labels, value in figures.read_rows("kernel_share").items() if 100 * value > limit]
    if big_rows:
        largest_text = figures.describe_largest("kernel_share", dict(big_rows))
        count_text = (
            f"{len(big_rows)} of {format_count(len(shares), 'kernel')} {'has' if len(big_rows) == 1 else 'have'}"
        )
        reason = f"{count_text} over {limit}% of the kernel time, most {largest_text}."
        yield DraftSentence(f"no new or vanished kernels above {limit}%", (reason,), STRUCTURE_GROUP, NEVER_OMITTED)


def _draft_syncs(figures: CaptureFigures) -> Iterator[DraftSentence]:
    syncs = figures.list_row_values("syncs")
    if syncs and not any(any(captures) for captures in syncs.values()):
        reasons = ["No synchronising call in the window."]
        if not any(_has_synchronising_call(window) for window in figures.windows):
            reasons.append("None in the rest of the trace, either: a profiler that does not record them sees none.")
        yield DraftSentence("no syncs", tuple(reasons), STRUCTURE_GROUP, NEVER_OMITTED)
    elif _is_exact(syncs):
        reasons = [f"How often the CPU waits for the GPU: at most {figures.describe_largest('syncs')}."]
        yield DraftSentence("syncs <= baseline", tuple(reasons), STRUCTURE_GROUP, NEVER_OMITTED)


def _has_synchronising_call(window: RankWindow) -> bool:
    """Whether the trace has a synchronising call of this rank's process, inside or outside of the window."""
    whole_span = {window.rank.process.global_pid: (-MAX_COLUMN_NS, MAX_COLUMN_NS)}
    calls = window.track.trace_context.trace.api_calls(SYNCHRONISING_CALLS, whole_span) or {}
    return any(parse_waiting_call(call.name) for process_calls in calls.values() for call in process_calls)


def _draft_pageable_copies(figures: CaptureFigures) -> Iterator[DraftSentence]:
    copies = figures.list_row_values("pageable_copies")
    if _is_exact(copies) and any(captures[0] for captures in copies.values()):
        reason = f"Copies from or to pageable host memory: at most {figures.describe_largest('pageable_copies')}."
        yield DraftSentence("pageable copies <= baseline", (reason,), STRUCTURE_GROUP, 1)


def _draft_overlaps(figures: CaptureFigures, wall_metrics: WallMetrics) -> Iterator[DraftSentence]:
    """Draft a limit for each stage; for pairs (forward, backward) where there are many; for the rank where there is
    none.
    """
    stages = {stage: rows for stage, rows in group_by_stage(figures.read_rows("overlap")).items() if stage != NO_STAGE}
    if not stages:
        yield from _draft_wall_overlap(figures, wall_metrics.overlap)
        return
    groups: dict[str, dict[LabelTuple, Value]] = {}
    for stage, rows in stages.items():
        name = stage.rpartition("_")[0] if len(stages) > MAX_STAGES else ""
        groups.setdefault(name or stage, {}).update(rows)
    overlaps = figures.list_row_values("overlap")
    limits = {
        name: (round_percent_below(rows.values(), choose_points_margin([overlaps[labels] for labels in rows])), rows)
        for name, rows in groups.items()
    }
    worst_limits = sorted((limit, name) for name, (limit, _) in limits.items() if limit >= MIN_OVERLAP_PERCENT)[
        :MAX_STAGES
    ]
    for name in sorted(name for _, name in worst_limits):
        limit, rows = limits[name]
        entry: Entry = f"{name} overlap >= {limit}%"
        if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) is None:
            entry = {"id": f"overlap of {name}", "assert": f"overlap >= {limit}%", "where": {"stage": name}}
        yield DraftSentence(
            entry, _describe_overlap(figures, "overlap", rows, limit), COMMUNICATION_GROUP, OMITTED_FIRST
        )


def _draft_wall_overlap(figures: CaptureFigures, metric: str) -> Iterator[DraftSentence]:
    rows = figures.read_rows(metric)
    if rows:
        limit = round_percent_below(rows.values(), choose_points_margin([*figures.list_row_values(metric).values()]))
        if limit >= MIN_OVERLAP_PERCENT:
            reasons = _describe_overlap(figures, metric, rows, limit)
            yield DraftSentence(f"{format_spoken_name(METRICS[metric])} >= {limit}%", reasons, COMMUNICATION_GROUP, 4)


def _describe_overlap(
    figures: CaptureFigures, metric: str, rows: Mapping[LabelTuple, Value], limit: int
) -> tuple[str, ...]:
    headroom = format_distance(Fraction(min(rows.values())) - Fraction(limit, 100), RATIO)
    smallest_text = figures.describe_smallest(metric, rows)
    median_text = f", median {format_percent(median(list(rows.values())))}" if len(rows) > 1 else ""

    def breaks_limit(labels: LabelTuple, value: Value) -> bool:
        return labels in rows and 100 * Fraction(value) < limit

    misses = count_misses(figures.captures, figures.spec, METRICS[metric], breaks_limit)
    return (f"At worst {smallest_text}{median_text}: headroom {headroom}.", *_describe_misses(misses))


def _draft_exposed(figures: CaptureFigures, wall_metrics: WallMetrics) -> Iterator[DraftSentence]:
    """Draft limits of exposed time per stage, and for communication without a stage.

    If nothing has a stage, draft only the latter, unless a sentence on ``wall_metrics`` covers it already.
    """
    by_name = group_by_stage(figures.read_rows("exposed_ns"))
    without_stage = by_name.pop(NO_STAGE, {})
    with_stage = {labels: value for rows in by_name.values() for labels, value in rows.items()}
    if not (rows := with_stage or (without_stage if wall_metrics == OWN_STREAM_METRICS else {})):
        return
    reason = f"At most {figures.describe_largest('exposed_ns', rows)} of communication without compute beside it."
    yield _draft_upper_limit(figures, "exposed_ns", (reason,), COMMUNICATION_GROUP, NEVER_OMITTED, rows)
    if with_stage and without_stage:
        reason = (
            "The same of communication without a stage: at most "
            f"{figures.describe_largest('exposed_ns', without_stage)}."
        )
        sentence = _draft_upper_limit(
            figures, "exposed_ns", (reason,), COMMUNICATION_GROUP, NEVER_OMITTED, without_stage
        )
        yield replace(sentence, entry=_make_unstaged_entry("exposed", sentence.title))


def _draft_balance(figures: CaptureFigures) -> Iterator[DraftSentence]:
    if figures.captures.mesh.sizes.get("pp", 1) < 2 or not figures.read_rows("compute_ns"):
        return
    tables = figures.captures.measure_each_capture(METRICS["compute_ns"], figures.spec)
    try:
        ratios = [value for table in tables for _, value in measure_balance(table, table.label_rows(), "pp")]
    except NothingSelected:
        return
    limit = round_hundredths_above(max(ratios), choose_points_margin([ratios]))
    ratio_text = f"{float(max(ratios)):.3f}"
    reason = f"{ratio_text}: the most compute of a pipeline stage over the least. The slowest stage limits the step."
    yield DraftSentence(f"balance of compute across pp <= {float(limit):.2f}", (reason,), TIME_GROUP, 5)


def _draft_times(figures: CaptureFigures) -> Iterator[DraftSentence]:
    step_sentences = _draft_step(figures)
    yield from step_sentences
    windows = figures.read_rows("window_ns")
    # With a single step, step time and window time are the same.
    if not step_sentences or [*figures.read_rows("step_time_ns").values()] != [max(windows.values())]:
        extent = "from end to end"
        if any(window.is_gpu_step for window in figures.windows):
            extent = "until the next step begins on the GPU"
        elif figures.spec.is_whole_run or figures.spec.kernels is KernelsMode.LAUNCHED:
            extent = "from the first start to the last end of its kernels"
        reasons = (f"At most {figures.describe_largest('window_ns')}: the window, {extent}.",)
        yield _draft_upper_limit(figures, "window_ns", reasons, TIME_GROUP, 2 if step_sentences else NEVER_OMITTED)
    drafted_metrics = [(metric.draft_hint, metric.name) for metric in METRICS.values() if metric.draft_hint is not None]
    for (extent, rank), name in sorted(drafted_metrics, key=lambda item: item[0].priority):
        if figures.read_rows(name):
            yield _draft_upper_limit(
                figures, name, (f"At most {figures.describe_largest(name)}: {extent}.",), TIME_GROUP, rank
            )


def _draft_step(figures: CaptureFigures) -> list[DraftSentence]:
    """Draft limits of step time, or of the anchor's period if a step has several anchors; empty for a whole run."""
    if figures.spec.window == RUN:
        return []
    if counts := figures.captures.runs[0].steps_by_kind.shared_counts:
        return list(_draft_step_times(figures, counts))
    if rows := figures.read_rows("step_time_ns"):
        length_text = format_value(rows[()])
        reason = f"{length_text}: a step of the slowest rank, {_describe_median_steps(figures.windows)}."
        if any(len(window.anchors) == 1 for window in figures.windows):
            reason = f"{length_text}: the step, on the slowest rank."
        return [
            _draft_upper_limit(figures, "step_time_ns", (reason,), TIME_GROUP, NEVER_OMITTED),
            *_draft_slow_steps(figures),
        ]
    rows = _select_periods(figures, "p50")
    if not rows:
        return []
    largest_text = figures.describe_largest("period_ns", rows)
    reason = f"At most {largest_text} from one anchor to the next: the median of all but the first."
    return [_draft_upper_limit(figures, "period_ns", (reason,), TIME_GROUP, NEVER_OMITTED, rows, "p50 ")]


def _describe_median_steps(windows: Sequence[RankWindow]) -> str:
    """Describe the steps whose median is the step time."""
    step_counts = [len(select_counted_periods(window.track)) for window in windows]
    if any(
        len(measure_step_periods(window.track)) > number for window, number in zip(windows, step_counts, strict=True)
    ):
        return "the median of all whole steps but the first"
    max_count = max(step_counts)
    return "the only whole one" if max_count == 1 else f"the median of {max_count} whole ones"


def _draft_slow_steps(figures: CaptureFigures) -> Iterator[DraftSentence]:
    """Draft limits that see slow steps, which a median does not: the mean and, with enough steps, the p90."""
    if rows := _select_periods(figures, "mean"):
        reason = f"At most {figures.describe_largest('period_ns', rows)} on average: a median hides slow steps."
        yield _draft_upper_limit(
            figures, "period_ns", (reason,), TIME_GROUP, NEVER_OMITTED, rows, "mean ", STEP_TIME_METRIC
        )
    rows = _select_periods(figures, "p90")
    if rows and len(figures.windows[0].anchors) >= MIN_STEPS_FOR_P90:
        reason = (
            f"At most {figures.describe_largest('period_ns', rows)} for nine steps in ten: a median hides a slow "
            "quarter."
        )
        yield _draft_upper_limit(
            figures, "period_ns", (reason,), TIME_GROUP, NEVER_OMITTED, rows, "p90 ", STEP_TIME_METRIC
        )


def _select_periods(figures: CaptureFigures, quantile: str) -> dict[LabelTuple, Value]:
    return {labels: value for labels, value in figures.read_rows("period_ns").items() if labels[1] == quantile}


def select_drafted_kinds(counts: Mapping[str, int], shown_kind: str | None) -> Mapping[str, int]:
    """Select the kinds with enough steps for a median, and ``shown_kind``; all kinds if none has enough.

    Rare kinds are left out so that their noise does not loosen the gate.
    """
    has_few_steps = max(counts.values(), default=0) < FEW_ANCHORS
    return {
        kind: count for kind, count in counts.items() if has_few_steps or count >= FEW_ANCHORS or kind == shown_kind
    }


def _draft_step_times(figures: CaptureFigures, counts: Mapping[str, int]) -> Iterator[DraftSentence]:
    """Draft a limit for each kind of steps that has enough of them, the most frequent first."""
    for kind, count in sort_by_count(select_drafted_kinds(counts, figures.spec.kind)):
        kind_figures = replace(figures, spec=replace(figures.spec, kind=kind))
        if rows := kind_figures.read_rows("step_time_ns"):
            median_text = ", the median" if count > 1 else ","
            reason = (
                f"{format_count(count, f'{kind} step')}{median_text} {format_value(max(rows.values()))} on the GPU."
            )
            yield _draft_upper_limit(
                kind_figures, "step_time_ns", (reason,), TIME_GROUP, NEVER_OMITTED, qualifier=f"{kind} "
            )
    if sum(counts.values()) > 1:  # with a single step, throughput repeats its step time
        yield from _draft_throughput(replace(figures, spec=WindowSpec(RUN)))


def _draft_throughput(figures: CaptureFigures) -> Iterator[DraftSentence]:
    """Draft a limit of an engine's tokens per second over steps of all kinds: it sees a change in their mix, which no
    step time does.
    """
    for rate in figures.read_rows("tokens_per_s").values():
        reason = (
            f"{format_value(rate, METRICS['tokens_per_s'].unit)} over steps of all kinds, with the time between them."
        )
        share = min(MAX_STEP_MARGIN, choose_relative_margin([*figures.list_row_values("tokens_per_s").values()]))
        sentence = f"tokens_per_s above baseline minus {int(100 * share)}%"
        yield DraftSentence({"assert": sentence, "window": RUN}, (reason,), TIME_GROUP, NEVER_OMITTED)


def _draft_memory(figures: CaptureFigures) -> Iterator[DraftSentence]:
    if figures.read_rows("peak_allocated_bytes"):
        largest_text = figures.describe_largest("peak_allocated_bytes")
        reason = f"At most {largest_text} allocated on the GPU at any moment of the run."
        yield _draft_upper_limit(figures, "peak_allocated_bytes", (reason,), TIME_GROUP, 1)


def _draft_upper_limit(
    figures: CaptureFigures,
    metric: str,
    reasons: tuple[str, ...],
    group: str,
    rank: int,
    subset: Mapping[LabelTuple, Value] | None = None,
    qualifier: str = "",
    named_metric: str = "",
) -> DraftSentence:
    """Draft an upper limit of a time or of memory by its baseline, with the file's tolerance if that is neither too
    narrow nor too wide.

    ``subset`` holds the judged rows; the comment shows the limit of the largest. ``named_metric`` is the metric that
    the sentence names, if its name differs from ``metric``.
    """
    medians = figures.read_rows(metric) if subset is None else subset
    rows = [captures for labels, captures in figures.list_row_values(metric).items() if labels in medians]
    is_rough, is_time = METRICS[metric].is_noisy, METRICS[metric].unit == TIME
    absolute = choose_file_absolute_ns(figures) if is_time else 0
    max_share, file_share = _choose_max_share(figures, metric, max(medians.values())), choose_file_tolerance(figures)
    guessed_share = ROUGH_MARGIN if is_rough else GUESSED_MARGIN
    row_share = min(max_share, choose_relative_margin(rows, absolute, guessed_share))
    doubt, aggregate = _find_tolerance_doubt(rows, max(row_share, file_share), absolute, METRICS[metric].unit), ""
    if doubt and metric not in STEP_LENGTHS and len(rows) > 1:
        # The largest row of a capture varies less by chance than each of many rows.
        largest_rows = [[max(captures) for captures in zip(*rows, strict=True)]]
        share = min(max_share, choose_relative_margin(largest_rows, absolute, guessed_share))
        if not _find_tolerance_doubt(largest_rows, max(share, file_share), absolute, METRICS[metric].unit):
            rows, row_share, doubt, aggregate = largest_rows, share, "", "max "
    if metric == "compute_ns" and (compute_absolute := choose_absolute_ns(min(map(min, rows)))) < absolute:
        row_share, absolute = min(max_share, choose_relative_margin(rows, compute_absolute)), compute_absolute
        words = f"max({int(100 * row_share)}%, {format_ns(absolute)})"
    elif row_share <= file_share:
        row_share, words = file_share, "tolerance"
    else:
        words = f"max({int(100 * row_share)}%, {format_ns(absolute)})" if is_time else f"{int(100 * row_share)}%"
    limit = _describe_limit(max(medians.values()), row_share, absolute, METRICS[metric].unit)
    sentence = (
        f"{aggregate}{qualifier}{format_spoken_name(METRICS[named_metric or metric])} below baseline plus {words}"
    )

    def breaks_limit(labels: LabelTuple, value: Value) -> bool:
        median_value = medians.get(labels)
        return median_value is not None and Fraction(value) > Fraction(median_value) + max(
            row_share * Fraction(median_value), Fraction(absolute)
        )

    misses = count_misses(figures.captures, figures.spec, METRICS[metric], breaks_limit)
    comment_lines = (
        f"{reasons[0]} {limit}",
        *reasons[1:],
        *_describe_misses(misses),
        *([f"{doubt[:1].upper()}{doubt[1:]}."] if doubt else []),
    )
    must_draft = not doubt or metric in ALWAYS_DRAFTED
    outlying_captures = figures.captures.describe_outlying_captures(METRICS[metric], figures.spec)
    return DraftSentence(sentence, comment_lines, group, rank, doubt or "; ".join(outlying_captures), must_draft)


def _choose_max_share(figures: CaptureFigures, metric: str, largest: Value) -> Fraction:
    """Choose the largest relative tolerance of a metric, as a fraction of its baseline; for times, what comes to a
    tenth of the step.
    """
    if metric in STEP_LENGTHS or not largest:
        return MAX_STEP_MARGIN
    if METRICS[metric].unit != TIME:
        return Fraction(1)
    share = MAX_STEP_MARGIN * Fraction(min(figures.read_rows("window_ns").values())) / Fraction(largest)
    return max(MIN_MARGIN, Fraction(int(100 * share), 100))


def _find_tolerance_doubt(rows: Sequence[Sequence[Value]], share: Fraction, smallest: Value, unit: str) -> str:
    """Describe the change that a tolerance cannot see because captures differ by more than twice as much; empty if none
    do.
    """
    hidden_noise = []
    for captures in rows:
        noise = estimate_noise(captures, len(rows))
        tolerance = max(share * abs(Fraction(median(captures))), Fraction(smallest))
        if noise is not None and noise > MOST_EXCUSED_TOLERANCES * tolerance:
            hidden_noise.append((Fraction(noise), tolerance))
    if not hidden_noise:
        return ""
    noise_text, tolerance_text = (format_value(simplify_fraction(amount), unit) for amount in max(hidden_noise))
    advice = "take captures that are more alike, or more of them"
    return f"captures differ by up to {noise_text} by chance, more than twice a tolerance of {tolerance_text}: {advice}"


def _describe_misses(misses: StepMisses | None) -> tuple[str, ...]:
    return () if misses is None else (str(misses),)


def _describe_limit(value: Value, share: Fraction, smallest: Value, unit: str) -> str:
    """Describe the limit that a tolerance gives: ``Limit: 471 us (+12%).``"""
    limit = simplify_fraction(value + max(share * Fraction(value), Fraction(smallest)))
    change_text = f" ({format_change(limit, value, unit)})" if value else ""
    return f"Limit: {format_distinctly(value, limit, unit)[1]}{change_text}."
