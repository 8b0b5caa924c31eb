"""Which kernels account for a row that is worse than its baseline? The windows of both sides, taken apart.

A row of several captures or windows is explained by the one whose value is nearest to it. A stored baseline keeps the
breakdown of the run that it was last written from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.analysis.explained import Breakdown, Explained, RankWait
from pytest_nsys.analysis.metrics import Metric, Unit
from pytest_nsys.analysis.rank_window import RankWindow
from pytest_nsys.analysis.run import Run
from pytest_nsys.analysis.throughput import steady_periods
from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.errors import NothingMeasured
from pytest_nsys.core.exact import distance, percentile
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import KernelsMode, Label, Span, Value
from pytest_nsys.gates.model import JudgedRow, Labels, Outcome
from pytest_nsys.stored.baselines.breakdowns import MOST_KERNELS

if TYPE_CHECKING:
    from pytest_nsys.analysis.causes import Parts

MEDIAN_PERIOD = "p50"
EXPLAINED = (Outcome.FAILED, Outcome.INCONCLUSIVE)


BreakdownOf = Callable[[Metric, WindowSpec, Labels, Value], Breakdown | None]
"""The window of a row's rank that gave a value, taken apart; None where there is none."""


@dataclass
class RunBreakdowns:
    """Opened traces, each window of which is taken apart once."""

    captures: Captures

    def breakdown(self, metric: Metric, spec: WindowSpec, labels: Labels, value: Value) -> Breakdown | None:
        """The window of the row's rank, of all captures and windows, whose own value is nearest to ``value``."""
        rank = labels.get("rank")
        if not isinstance(rank, int):
            return None
        wanted = tuple(labels.get(dimension) for dimension in metric.dimensions)
        nearest: tuple[Value, int, int] | None = None
        for capture, run in enumerate(self.captures.runs):
            for n, window in enumerate(run.measured(spec).ranks.get(rank, ())):
                for row in metric.rows(window):
                    if row.labels == wanted:
                        at = (distance(row.value, value), capture, n)
                        nearest = at if nearest is None else min(nearest, at)
        if nearest is None:
            return None
        _, capture, n = nearest
        if "quantile" in labels:
            typical = typical_period(self.captures.runs[capture], spec, labels["quantile"])
            with suppress(NothingMeasured):  # a cut of the window alone need not hold that period
                return None if typical is None else self._broken_down(capture, typical, 0, rank)
            return None
        return self._broken_down(capture, spec, n, rank)

    @kept
    def _broken_down(self, capture: int, spec: WindowSpec, n: int, rank: int) -> Breakdown:
        from pytest_nsys.analysis.breakdown import break_down  # only what moved pays for what takes it apart

        windows, waits = self._together(capture, spec, n, len(self.captures.runs[capture].measured(spec).ranks[rank]))
        return break_down(windows, rank, waits.get(rank, {}))

    @kept
    def _together(
        self, capture: int, spec: WindowSpec, n: int, count: int
    ) -> tuple[Mapping[int, RankWindow], Mapping[int, Mapping[int, RankWait]]]:
        """The n-th windows of the ranks that have as many, and what their collectives waited over files."""
        from pytest_nsys.analysis.straggling import waits_over_files

        ranks = self.captures.runs[capture].measured(spec).ranks
        beside = {number: windows[n] for number, windows in ranks.items() if len(windows) == count}
        return beside, waits_over_files(beside)

    def to_keep(self, metric: Metric, spec: WindowSpec) -> Iterator[tuple[int, Breakdown]]:
        """What a baseline keeps of the first capture to explain a metric, by rank, each when it is asked for.

        That is the middle window of the pick, of periods that of the median one.
        """
        run = self.captures.runs[0]
        if "quantile" in metric.dimensions:
            typical = typical_period(run, spec, MEDIAN_PERIOD)
            if typical is None:
                return
            spec = typical
        for rank, windows in sorted(run.measured(spec).ranks.items()):
            middle = len(windows) // 2
            if windows and len(windows[middle].communication) <= MOST_KERNELS:  # of more none is stored
                yield rank, self._broken_down(0, spec, middle, rank)


def typical_period(run: Run, spec: WindowSpec, quantile: Label) -> WindowSpec | None:
    """The period that stands for a quantile of all: of the steady anchors the one that is nearest to it on all ranks.

    One step for all of them, so that a collective is matched and the trace passed once. None where a rank has none, or
    the window is not of the convention's anchors.
    """
    if spec.anchor is not None:
        return None
    away: Counter[int] = Counter()
    steady = [steady_periods(run.anchors(rank)) for rank in run.ranks]
    for own in steady:
        middle = percentile(list(own.values()), int(str(quantile).removeprefix("p"))) if own else 0
        away.update({index: abs(period_ns - middle) for index, period_ns in own.items()})
    shared = [index for index in away if all(index in own for own in steady)]
    if not shared:
        return None
    index = min(shared, key=lambda index: (away[index], index))
    return WindowSpec(str(index), Span.PERIOD, KernelsMode.CLIPPED)


def _change(
    metric: Metric, parts: Parts, row: JudgedRow, labels: Mapping[str, Label], was: Breakdown, now: Breakdown
) -> int | None:
    """How far the row moved, in ns; of an aggregate the row that it was taken from, which was another one before.

    None where that was not kept.
    """
    if row.value is not None and row.baseline is not None and not row.origin and metric.unit is Unit.NS:
        return round(row.value - row.baseline)
    before, after = (parts.measured_ns(side, labels) for side in (was, now))
    return None if before is None or after is None else after - before


def explain_rows(
    metric: Metric, spec: WindowSpec, rows: Sequence[JudgedRow], before: BreakdownOf, now: BreakdownOf
) -> list[Explained]:
    """Why the rows that are worse than their baseline are so, in the order of the rows.

    A row that stands for several ranks at once, or of a metric that has no parts, is left out.
    """
    parts = metric.parts
    if parts is None:
        return []
    found = []
    for row in rows:
        labels = {**row.origin, **row.labels}
        if row.outcome not in EXPLAINED or row.value is None or row.baseline is None:
            continue
        if not all(dimension in labels for dimension in metric.dimensions):
            continue
        was = before(metric, spec, labels, row.baseline)
        is_now = now(metric, spec, labels, row.value)
        if was is None or is_now is None:
            continue
        change = _change(metric, parts, row, labels, was, is_now)
        if change is not None:
            found.append(Explained(labels, parts.explain(labels, change, was, is_now)))
    return found
