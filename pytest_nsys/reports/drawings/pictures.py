"""What does the page draw of a verdict? The windows of the ranks that matter, the steady windows beside, the past.

All of it is made by the process that has the traces: it crosses from an xdist worker with the report.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, zip_longest
from typing import NamedTuple, TypeVar

from pytest_nsys.analysis.budget.timeline import Timeline, timeline_of
from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.metrics.common_clock import common_clock
from pytest_nsys.analysis.metrics.registry import Metric, Scope
from pytest_nsys.analysis.windows.run import Run
from pytest_nsys.analysis.windows.spans import STEADY, WindowSpec, steady_indices
from pytest_nsys.core.errors import NoRows, NsysError
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.words import place_words, printable
from pytest_nsys.gates.model import JudgedRow, Verdict, spec_for
from pytest_nsys.reports.words.explanation import rows_to_show
from pytest_nsys.stored.baselines.baseline_file import SeriesId, series_id
from pytest_nsys.verdicts.causes import against


@dataclass(frozen=True, slots=True)
class Picture:
    """Holds the timelines of one rank's window in head and base, or why there are none."""

    key: str  # equal keys are the same picture
    beside: str  # equal for the windows of one run, which are drawn beside each other
    rank: int
    base: Timeline | None = None
    head: Timeline | None = None  # None also where the same picture was handed over before
    why: str = ""  # why there is no timeline at all


@dataclass(frozen=True, slots=True)
class Spread:
    """Holds the values of one row over the steady windows, or why they were not measured."""

    row: str
    limit: Value | None
    values: Sequence[tuple[int, Value]] = ()  # each with the index of its anchor
    median: int = 0  # the index of the anchor that the default window is
    why: str = ""  # why there are no values


@dataclass(frozen=True, slots=True)
class Measured:
    """Holds the worst row of an assertion under the names by which a history stores it."""

    gate: str
    digest: str  # of the run's key, which says what makes runs comparable
    series: SeriesId
    labels: tuple[Label, ...]
    value: Value
    limit: Value | None


@dataclass(frozen=True, slots=True)
class Pictures:
    """Holds all that is drawn of one assertion."""

    windows: Sequence[Picture]
    spread: Spread | None
    worst: Measured | None = None  # None where a history has no such row


AssertionPictures = Mapping[tuple[str, int, str], Pictures]
"""What is drawn of each assertion, by the record's ``identity``."""

MOST_RANKS = 8
MOST_STEADY_KERNELS = 200_000
"""With more kernels in the steady windows of all ranks no spread is measured: reading them would cost more than the
gate.
"""

FEWEST_WINDOWS = 3  # of fewer dots nobody sees a distribution

T = TypeVar("T")


def pictures_of(
    verdict: Verdict, head: Captures, base: Captures | None = None, sent: set[str] | None = None
) -> Pictures:
    """Return what is drawn of a verdict.

    ``sent_keys`` are the keys of windows that were handed over before; those of this verdict are added to it.
    """
    sent = sent if sent is not None else set()
    current, baseline = find_explaining_windows(verdict, head, base)
    windows = [_picture(rank, current, baseline, sent) for rank in ranks_of(verdict, head.runs[0])]
    return Pictures(windows, _spread(verdict, spec_for(head.convention, verdict.assertion), head))


def by_turn(lists: Iterable[Sequence[T]]) -> Iterator[T]:
    """Yield the first item of each list, then the second of each, and so on."""
    return (item for item in chain.from_iterable(zip_longest(*lists)) if item is not None)


def ranks_of(verdict: Verdict, run: Run) -> list[int]:
    """Return the ranks of the rows that do not hold, worst first; where all hold the rank of the row nearest to
    failing.

    They are all ranks where the rows are of no single rank, and none where the rows are of no trace.
    """
    if verdict.assertion.outside is not None:
        return []
    nearest = verdict.nearest
    rows = rows_to_show(verdict) or ([nearest] if nearest is not None else [])
    run_ranks = {rank.number for rank in run.ranks}
    row_ranks = [rank for row in rows if isinstance(rank := _labels(row).get("rank"), int) and rank in run_ranks]
    return (list(dict.fromkeys(row_ranks)) or sorted(run_ranks))[:MOST_RANKS]


def worst_of(verdict: Verdict, head: Captures, stated: Mapping[str, Label], gate: str) -> Measured | None:
    """Return the worst row as a history names it; None where several rows are behind it or it has no value.

    ``gate_path`` is the path of the gate file as its baselines know it.
    """
    labels, row = _own_labels(verdict), verdict.nearest
    if labels is None or row is None or row.value is None:
        return None
    series = series_id(verdict.assertion.measures, spec_for(head.convention, verdict.assertion))
    return Measured(gate, head.key(stated).digest, series, labels, row.value, row.limit)


def _labels(row: JudgedRow) -> Mapping[str, Label]:
    return {**row.origin, **row.labels}


def _own_labels(verdict: Verdict) -> tuple[Label, ...] | None:
    """Return the labels of the metric's row behind the verdict's worst row; None where several rows are behind it."""
    row, metric = verdict.nearest, verdict.assertion.measures
    if row is None or row.value is None or verdict.assertion.balance_across is not None:
        return None
    labels = _labels(row)
    return (
        tuple(labels[dimension] for dimension in metric.dimensions)
        if all(dimension in labels for dimension in metric.dimensions)
        else None
    )


class ExplainingWindows(NamedTuple):
    """Describes the windows of one side that explain a verdict."""

    side: Captures
    spec: WindowSpec
    capture: int = 0
    n: int | None = None  # which of the windows that the spec picks, None: the middle one

    @property
    def run(self) -> Run:
        return self.side.runs[self.capture]

    @property
    def words(self) -> Iterator[str]:
        """The texts that tell these windows from others."""
        spec = self.spec
        yield from map(str, ("|", *self.side.paths, spec.window, spec.span, spec.kernels, self.capture, self.n))


def find_explaining_windows(
    verdict: Verdict, head: Captures, base: Captures | None
) -> tuple[ExplainingWindows, ExplainingWindows | None]:
    """Return the windows that explain a verdict in this run and in the run before; None where there is none before."""
    explaining, spec = verdict.looked_at, spec_for(head.convention, verdict.assertion)
    current = (
        ExplainingWindows(head, spec)
        if explaining is None
        else ExplainingWindows(head, explaining.spec, explaining.capture, explaining.n)
    )
    if base is None:
        return current, None
    matching = against(verdict, base) if explaining is not None else None
    return current, ExplainingWindows(base, spec) if matching is None else ExplainingWindows(
        base, matching.spec, matching.capture, matching.n
    )


def _picture(rank: int, now: ExplainingWindows, before: ExplainingWindows | None, sent: set[str]) -> Picture:
    """Return the picture of one rank; without timelines where they were handed over before."""
    key_parts = [part for windows in (now, before) if windows is not None for part in windows.words]
    key, run_key = (
        sha256(
            "\0".join([*key_parts, now.side.convention.fingerprint(), rank_text]).encode("utf-8", "surrogatepass")
        ).hexdigest()
        for rank_text in (str(rank), "all")
    )
    if key in sent:
        return Picture(key, run_key, rank)
    sent.add(key)
    try:
        head_timeline = _timeline(now, rank)
    except NsysError as error:
        return Picture(key, run_key, rank, why=printable(str(error), 400))
    base_timeline = None
    with contextlib.suppress(NsysError):  # what is stored of the run before need not have this window
        if before is not None and rank in {base_rank.number for base_rank in before.side.runs[0].ranks}:
            base_timeline = _timeline(before, rank)
    return Picture(key, run_key, rank, base_timeline, head_timeline)


def _timeline(at: ExplainingWindows, rank: int) -> Timeline:
    """Return the timeline of the window of one rank that explains a verdict."""
    rank_group = at.run.measured(at.spec)
    windows = rank_group.filled({rank})[rank]
    window = windows[len(windows) // 2 if at.n is None or at.n >= len(windows) else at.n]
    return timeline_of(window, common_clock(rank_group).standing(window.rank.process.clock))


def _spread(verdict: Verdict, spec: WindowSpec, head: Captures) -> Spread | None:
    """Return the value of the worst row in each steady window of its rank; None where the row has no such values."""
    metric, labels, row = verdict.assertion.measures, _own_labels(verdict), verdict.nearest
    if labels is None or row is None or metric.scope is not Scope.RANK or "rank" not in metric.dimensions:
        return None
    if spec.whole_run or spec.explicit is not None or spec.anchor is not None:
        return None
    rank = labels[metric.dimensions.index("rank")]
    if not isinstance(rank, int):
        return None
    place = place_words(zip(metric.dimensions, labels, strict=True))
    spread = Spread(printable(place), row.limit)
    run = head.runs[0]
    try:
        if reason := _why_not(run, spec, rank):
            return replace(spread, why=reason)
        values, median = _steady_values(run, metric, spec, labels, rank)
        return replace(spread, values=values, median=median)
    except NsysError as error:
        return replace(spread, why=printable(str(error), 400))


def _why_not(run: Run, spec: WindowSpec, rank: int) -> str:
    """Return why the steady windows are not measured; empty where they are."""
    count = max((len(run.anchors(run_rank)) for run_rank in run.ranks if run_rank.number == rank), default=0)
    steady_count = len(steady_indices(count))
    if steady_count < FEWEST_WINDOWS:
        return f"the middle half of {count} anchors is {steady_count}: too few to show a distribution"
    kernel_count = steady_count * sum(len(windows[0]) for windows in run.measured(spec).ranks.values() if windows)
    if kernel_count > MOST_STEADY_KERNELS:
        return f"about {kernel_count} kernels would have to be read, of at most {MOST_STEADY_KERNELS}"
    return ""


def _steady_values(
    run: Run, metric: Metric, spec: WindowSpec, labels: Sequence[Label], rank: int
) -> tuple[list[tuple[int, Value]], int]:
    """Return the row's value in each steady window as pairs with the anchor's index, and the index of the median
    window.
    """
    values: list[tuple[int, Value]] = []
    windows = run.measured(replace(spec, window=STEADY)).filled({rank})[rank]
    for window in windows:
        with contextlib.suppress(NoRows):
            value_by_labels = {row.labels: row.value for row in metric.rows(window)}
            if tuple(labels) in value_by_labels and window.window.index is not None:
                values.append((window.window.index, value_by_labels[tuple(labels)]))
    return values, (windows[0].window.count or 0) // 2
