"""Which kernels account for a row that is worse than its baseline? The windows of both sides, taken apart.

A row of several captures or windows is explained by the one whose value is nearest to it. A stored baseline keeps the
breakdown of the run that it was last written from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pytest_nsys.analysis.breakdown import Breakdown, break_down
from pytest_nsys.analysis.causes import Explained, explain, explainable, measured_ns
from pytest_nsys.analysis.run import RunWindow, WindowGroup
from pytest_nsys.analysis.statistics import distance
from pytest_nsys.analysis.windows import Pick
from pytest_nsys.evaluation import Evidence
from pytest_nsys.gates.verdict import JudgedRow, Outcome
from pytest_nsys.metrics import Metric, Unit
from pytest_nsys.model import Label, Value

EXPLAINED = (Outcome.FAILED, Outcome.INCONCLUSIVE)


class Side(Protocol):
    """One side of a comparison, taken apart."""

    def breakdown(self, metric: Metric, pick: Pick, labels: Mapping[str, Label], value: Value) -> Breakdown | None:
        """The window of the row's rank that gave ``value``; None where there is none."""
        ...


@dataclass
class TakenApart:
    """Opened traces, each window of which is taken apart once."""

    evidence: Evidence
    _known: dict[tuple[int, Pick, int, int], Breakdown] = field(default_factory=dict)

    def breakdown(self, metric: Metric, pick: Pick, labels: Mapping[str, Label], value: Value) -> Breakdown | None:
        """The window of the row's rank, of all captures and windows, whose own value is nearest to ``value``."""
        rank = labels.get("rank")
        wanted = tuple(labels.get(dimension) for dimension in metric.dimensions)
        nearest: tuple[Value, int, int] | None = None
        for capture, run in enumerate(self.evidence.captures):
            for n, window in enumerate(run.measured(pick).ranks.get(rank, ()) if isinstance(rank, int) else ()):
                for row in metric.rows(window):
                    if row.labels == wanted:
                        at = (distance(row.value, value), capture, n)
                        nearest = at if nearest is None else min(nearest, at)
        if nearest is None or not isinstance(rank, int):
            return None
        return self._broken_down(nearest[1], pick, nearest[2], rank)

    def _broken_down(self, capture: int, pick: Pick, n: int, rank: int) -> Breakdown:
        key = (capture, pick, n, rank)
        if key not in self._known:
            group = self.evidence.captures[capture].measured(pick)
            self._known[key] = break_down(_beside(group, rank, n), rank)
        return self._known[key]

    def middle(self, pick: Pick) -> Iterator[tuple[int, Breakdown]]:
        """The middle window of each rank in the first capture, by rank, when it is asked for: what a baseline keeps."""
        for rank, windows in sorted(self.evidence.captures[0].measured(pick).ranks.items()):
            if windows:
                yield rank, self._broken_down(0, pick, len(windows) // 2, rank)


def _beside(group: WindowGroup, rank: int, n: int) -> RunWindow:
    """The n-th window of a rank, beside those of the ranks that have as many."""
    count = len(group.ranks[rank])
    return RunWindow(group.run, {number: w[n] for number, w in group.ranks.items() if len(w) == count})


def _change(metric: Metric, row: JudgedRow, labels: Mapping[str, Label], was: Breakdown, now: Breakdown) -> int | None:
    """How far the row moved, in ns; of an aggregate the row that it was taken from, which was another one before.

    None where that was not kept.
    """
    if row.value is not None and row.baseline is not None and not row.origin and metric.unit is Unit.NS:
        return round(row.value - row.baseline)
    before, after = (measured_ns(metric.name, labels, side) for side in (was, now))
    return None if before is None or after is None else after - before


def explain_rows(metric: Metric, pick: Pick, rows: Sequence[JudgedRow], before: Side, now: Side) -> list[Explained]:
    """Why the rows that are worse than their baseline are so, in the order of the rows.

    A row that stands for several ranks at once, or of a metric that has no parts, is left out.
    """
    found = []
    for row in rows if explainable(metric.name) else ():
        labels = {**row.origin, **row.labels}
        if row.outcome not in EXPLAINED or row.value is None or row.baseline is None:
            continue
        if not all(dimension in labels for dimension in metric.dimensions):
            continue
        was = before.breakdown(metric, pick, labels, row.baseline)
        is_now = now.breakdown(metric, pick, labels, row.value)
        if was is None or is_now is None:
            continue
        change = _change(metric, row, labels, was, is_now)
        if change is not None:
            found.append(Explained(labels, explain(metric.name, labels, change, was, is_now)))
    return found
