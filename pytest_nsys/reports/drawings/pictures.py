"""What does the page draw of a verdict? The windows of the ranks that matter and, beside them, the steady windows and
the history.

The process that has the traces draws all of it; the report carries it from the xdist worker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, zip_longest
from typing import NamedTuple, TypeVar

from pytest_nsys.analysis.budget.strips import RankStrip, list_rank_strips
from pytest_nsys.analysis.budget.timeline import Timeline, build_timeline
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.common_clock import align_clocks
from pytest_nsys.analysis.metrics.registry import Metric, MetricScope
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.window_selection import STEADY, WindowSpec, select_steady_indices
from pytest_nsys.core.errors import NoRows, NsysError
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.text_format import format_labels, sanitize_line
from pytest_nsys.gates.model import JudgedRow, Outcome, Verdict, resolve_window_spec
from pytest_nsys.reports.words.verdict_text import select_rows_to_show
from pytest_nsys.stored.baselines.baseline_file import SeriesId, build_series_id
from pytest_nsys.verdicts.row_causes import find_baseline_window


@dataclass(frozen=True, slots=True)
class Picture:
    """Holds the timelines of one rank's window in head and base, or the reason why there are none."""

    key: str  # equal keys are the same picture
    run_key: str  # equal for the windows of one run, which share a frame
    rank: int
    base: Timeline | None = None
    head: Timeline | None = None  # also None if this picture was already sent
    missing_reason: str = ""  # why there is no timeline at all


@dataclass(frozen=True, slots=True)
class RankPicture:
    """Holds what the windows of all ranks are made of, in head and base."""

    key: str  # equal keys are the same picture
    base: Sequence[RankStrip] = ()
    head: Sequence[RankStrip] = ()  # also empty if this picture was already sent
    omitted_count: int = 0  # how many ranks it leaves out


@dataclass(frozen=True, slots=True)
class Spread:
    """Holds the values of one row over the steady windows, or the reason why they were not measured."""

    row: str
    limit: Value | None
    values: Sequence[tuple[int, Value]] = ()  # each with the index of its anchor
    median_index: int = 0  # index of the default window's anchor
    missing_reason: str = ""  # why there are no values


@dataclass(frozen=True, slots=True)
class MeasuredWorstRow:
    """Holds the worst row of an assertion, named as in a history."""

    gate_path: str
    digest: str  # of the run's key, which decides what it is comparable with
    series: SeriesId
    labels: tuple[Label, ...]
    value: Value
    limit: Value | None


@dataclass(frozen=True, slots=True)
class VerdictPictures:
    """Holds all that is drawn of one assertion."""

    windows: Sequence[Picture]
    spread: Spread | None
    worst_row: MeasuredWorstRow | None = None  # None if a history cannot store the row
    ranks: RankPicture | None = None  # None if nothing failed, or if there is one rank


PicturesByAssertion = Mapping[tuple[str, int, str], VerdictPictures]
"""What is drawn of each assertion, by the record's ``identity``."""

MAX_RANKS = 8
MAX_STRIPS = 128
"""A page draws at most this many ranks below each other."""

MAX_STEADY_KERNELS = 200_000
"""With more kernels in the steady windows of all ranks, no spread is measured: reading them would take longer than the
gate itself.
"""

MIN_STEADY_WINDOWS = 3  # fewer points show no distribution

T = TypeVar("T")


def draw_verdict(
    verdict: Verdict, head: Captures, base: Captures | None = None, sent_keys: set[str] | None = None
) -> VerdictPictures:
    """Return what is drawn of a verdict.

    ``sent_keys`` are the keys of pictures that were already sent; those of this verdict are added to it.
    """
    sent_keys = sent_keys if sent_keys is not None else set()
    current, baseline = find_explaining_windows(verdict, head, base)
    windows = [_draw_picture(rank, current, baseline, sent_keys) for rank in select_drawn_ranks(verdict, head.runs[0])]
    return VerdictPictures(
        windows,
        _measure_spread(verdict, resolve_window_spec(head.convention, verdict.assertion), head),
        ranks=_draw_ranks(verdict, current, baseline, sent_keys),
    )


def _draw_ranks(
    verdict: Verdict, current: ExplainingWindows, baseline: ExplainingWindows | None, sent_keys: set[str]
) -> RankPicture | None:
    """Return what the windows of all ranks are made of; None for a verdict that did not fail, or a single rank."""
    ranks = sorted(rank.number for rank in current.run.ranks)
    if verdict.outcome is not Outcome.FAILED or verdict.assertion.outside_metric is not None or len(ranks) < 2:
        return None
    key = _build_key(current, baseline, "ranks")
    if key in sent_keys:
        return RankPicture(key)
    sent_keys.add(key)
    red_ranks = select_drawn_ranks(verdict, current.run)
    shown_ranks = sorted([*dict.fromkeys([*red_ranks, *ranks])][:MAX_STRIPS])
    head = _list_stacked_strips(current, shown_ranks)
    base = _list_stacked_strips(baseline, shown_ranks) if baseline is not None else []
    return RankPicture(key, base, head, len(ranks) - len(shown_ranks))


def _list_stacked_strips(explaining: ExplainingWindows, ranks: Sequence[int]) -> list[RankStrip]:
    """Return what the window of each of these ranks that the run has is made of; nothing if none can be read."""
    run_ranks = {rank.number for rank in explaining.run.ranks}
    own_ranks = [rank for rank in ranks if rank in run_ranks]
    with contextlib.suppress(NsysError):  # the stored windows of the base may lack this one
        strips = list_rank_strips(explaining.run, explaining.spec, own_ranks, explaining.window_index)
        return [strip.stack_parts() for strip in strips]
    return []


def interleave_lists(lists: Iterable[Sequence[T]]) -> Iterator[T]:
    """Yield the first item of each list, then the second of each, and so on."""
    return (item for item in chain.from_iterable(zip_longest(*lists)) if item is not None)


def select_drawn_ranks(verdict: Verdict, run: Run) -> list[int]:
    """Return the ranks of the rows outside their limits, worst first; if there are none, the rank of the row nearest to
    failing.

    Returns all ranks if no row belongs to one rank; none for values measured outside a trace.
    """
    if verdict.assertion.outside_metric is not None:
        return []
    nearest = verdict.nearest_row
    rows = select_rows_to_show(verdict) or ([nearest] if nearest is not None else [])
    run_ranks = {rank.number for rank in run.ranks}
    row_ranks = [
        rank for row in rows if isinstance(rank := _merge_row_labels(row).get("rank"), int) and rank in run_ranks
    ]
    return (list(dict.fromkeys(row_ranks)) or sorted(run_ranks))[:MAX_RANKS]


def measure_worst_row(
    verdict: Verdict, head: Captures, stated_labels: Mapping[str, Label], gate_path: str
) -> MeasuredWorstRow | None:
    """Return the worst row as a history names it; None if it aggregates several rows or has no value.

    ``gate_path`` is the path of the gate file as stored in its baselines.
    """
    labels, row = _find_metric_labels(verdict), verdict.nearest_row
    if labels is None or row is None or row.value is None:
        return None
    series = build_series_id(verdict.assertion.measured_metric, resolve_window_spec(head.convention, verdict.assertion))
    return MeasuredWorstRow(gate_path, head.build_key(stated_labels).digest, series, labels, row.value, row.limit)


def _merge_row_labels(row: JudgedRow) -> Mapping[str, Label]:
    return {**row.origin, **row.labels}


def _find_metric_labels(verdict: Verdict) -> tuple[Label, ...] | None:
    """Return the labels of the metric row that the verdict's worst row judges; None if it aggregates several rows."""
    row, metric = verdict.nearest_row, verdict.assertion.measured_metric
    if row is None or row.value is None or verdict.assertion.balance_across is not None:
        return None
    labels = _merge_row_labels(row)
    return (
        tuple(labels[dimension] for dimension in metric.dimensions)
        if all(dimension in labels for dimension in metric.dimensions)
        else None
    )


class ExplainingWindows(NamedTuple):
    """Describes the windows of one side that explain a verdict."""

    captures: Captures
    spec: WindowSpec
    capture_index: int = 0
    window_index: int | None = None  # index among the windows that the spec picks, None: the middle one

    @property
    def run(self) -> Run:
        return self.captures.runs[self.capture_index]

    @property
    def key_parts(self) -> Iterator[str]:
        """Yield the texts that identify these windows."""
        spec = self.spec
        yield from map(
            str,
            ("|", *self.captures.paths, spec.window, spec.span, spec.kernels, self.capture_index, self.window_index),
        )


def find_explaining_windows(
    verdict: Verdict, head: Captures, base: Captures | None
) -> tuple[ExplainingWindows, ExplainingWindows | None]:
    """Return the windows that explain a verdict in head and in the base; the latter is None without a base."""
    explaining_window, spec = verdict.examined_window, resolve_window_spec(head.convention, verdict.assertion)
    current = (
        ExplainingWindows(head, spec)
        if explaining_window is None
        else ExplainingWindows(head, explaining_window.spec, explaining_window.capture, explaining_window.position)
    )
    if base is None:
        return current, None
    matching_window = find_baseline_window(verdict, base) if explaining_window is not None else None
    return current, ExplainingWindows(base, spec) if matching_window is None else ExplainingWindows(
        base, matching_window.spec, matching_window.capture, matching_window.position
    )


def _draw_picture(
    rank: int, current: ExplainingWindows, baseline: ExplainingWindows | None, sent_keys: set[str]
) -> Picture:
    """Return the picture of one rank; without timelines if it was already sent."""
    key, run_key = (_build_key(current, baseline, rank_text) for rank_text in (str(rank), "all"))
    if key in sent_keys:
        return Picture(key, run_key, rank)
    sent_keys.add(key)
    try:
        head_timeline = _build_timeline(current, rank)
    except NsysError as error:
        return Picture(key, run_key, rank, missing_reason=sanitize_line(str(error), 400))
    base_timeline = None
    with contextlib.suppress(NsysError):  # the stored windows of the base may lack this one
        if baseline is not None and rank in {base_rank.number for base_rank in baseline.captures.runs[0].ranks}:
            base_timeline = _build_timeline(baseline, rank)
    return Picture(key, run_key, rank, base_timeline, head_timeline)


def _build_key(current: ExplainingWindows, baseline: ExplainingWindows | None, subject: str) -> str:
    """Return the key of a picture of some windows; ``subject`` says which of their pictures it is."""
    key_parts = [part for windows in (current, baseline) if windows is not None for part in windows.key_parts]
    text = "\0".join([*key_parts, current.captures.convention.compute_fingerprint(), subject])
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _build_timeline(explaining: ExplainingWindows, rank: int) -> Timeline:
    """Return the timeline of the window of one rank that explains a verdict."""
    rank_group = explaining.run.load_windows(explaining.spec)
    windows = rank_group.require_filled_windows({rank})[rank]
    window = windows[
        len(windows) // 2
        if explaining.window_index is None or explaining.window_index >= len(windows)
        else explaining.window_index
    ]
    return build_timeline(window, align_clocks(rank_group).find_alignment(window.rank.process.clock))


def _measure_spread(verdict: Verdict, spec: WindowSpec, head: Captures) -> Spread | None:
    """Return the value of the worst row in each steady window of its rank; None if the row has no value per window."""
    metric, labels, row = verdict.assertion.measured_metric, _find_metric_labels(verdict), verdict.nearest_row
    if labels is None or row is None or metric.scope is not MetricScope.RANK or "rank" not in metric.dimensions:
        return None
    if spec.is_whole_run or spec.explicit_span_ns is not None or spec.anchor is not None:
        return None
    rank = labels[metric.dimensions.index("rank")]
    if not isinstance(rank, int):
        return None
    place = format_labels(zip(metric.dimensions, labels, strict=True))
    spread = Spread(sanitize_line(place), row.limit)
    run = head.runs[0]
    try:
        if reason := _explain_no_spread(run, spec, rank):
            return replace(spread, missing_reason=reason)
        values, median = _measure_steady_values(run, metric, spec, labels, rank)
        return replace(spread, values=values, median_index=median)
    except NsysError as error:
        return replace(spread, missing_reason=sanitize_line(str(error), 400))


def _explain_no_spread(run: Run, spec: WindowSpec, rank: int) -> str:
    """Return why the steady windows are not measured; empty if they are."""
    count = max((len(run.find_anchors(run_rank)) for run_rank in run.ranks if run_rank.number == rank), default=0)
    steady_count = len(select_steady_indices(count))
    if steady_count < MIN_STEADY_WINDOWS:
        return f"the middle half of {count} anchors is {steady_count}: too few to show a distribution"
    kernel_count = steady_count * sum(
        len(windows[0]) for windows in run.load_windows(spec).windows_by_rank.values() if windows
    )
    if kernel_count > MAX_STEADY_KERNELS:
        return f"about {kernel_count} kernels would have to be read, of at most {MAX_STEADY_KERNELS}"
    return ""


def _measure_steady_values(
    run: Run, metric: Metric, spec: WindowSpec, labels: Sequence[Label], rank: int
) -> tuple[list[tuple[int, Value]], int]:
    """Return (anchor index, value) for each steady window, and the anchor index of the median window."""
    values: list[tuple[int, Value]] = []
    windows = run.load_windows(replace(spec, window=STEADY)).require_filled_windows({rank})[rank]
    for window in windows:
        with contextlib.suppress(NoRows):
            value_by_labels = {row.labels: row.value for row in metric.measure_rows(window)}
            if tuple(labels) in value_by_labels and window.window.index is not None:
                values.append((window.window.index, value_by_labels[tuple(labels)]))
    return values, (windows[0].window.count or 0) // 2
