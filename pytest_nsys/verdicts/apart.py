"""Which windows are behind the rows of one side, and what were they made of?

A row of several captures or windows is explained by the one whose value is nearest to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.explain.parts import Breakdown, RankWait
from pytest_nsys.analysis.metrics.registry import Metric, Scope
from pytest_nsys.analysis.metrics.throughput import STATISTICS, counted_periods, slowest_rank
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, RunWindow
from pytest_nsys.analysis.windows.spans import LookedAt, UsedWindow, WindowSpec, marks_steps
from pytest_nsys.core.errors import NoRows, NothingMeasured, NsysError
from pytest_nsys.core.exact import distance
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import KernelsMode, Label, Span, Value
from pytest_nsys.gates.model import Labels

if TYPE_CHECKING:
    from pytest_nsys.analysis.explain.roots import Roots

MEDIAN_PERIOD = "p50"

ALIKE = 50
"""Two steps are alike where they differ by no more than one part of so many."""


class Apart:
    """One window of all ranks: by rank how long it is, in ns, and what it was made of, found when it is asked for.

    ``at`` is where it stands in its trace.
    """

    def __init__(self, lengths_ns: Mapping[int, int], take_apart: Callable[[int], Breakdown], at: LookedAt) -> None:
        self.lengths_ns, self.at = lengths_ns, at
        self._take_apart = take_apart

    def get(self, rank: Label | None) -> Breakdown | None:
        """The window of a rank; None where it has none."""
        return self._take_apart(rank) if isinstance(rank, int) and rank in self.lengths_ns else None


@dataclass
class RunBreakdowns:
    """Opened traces, each window of which is taken apart once. A rank waits for those ``among`` some, where no
    others are in the run that it is held against.
    """

    captures: Captures
    among: frozenset[int] | None = None

    @cached_property
    def ranks(self) -> frozenset[int]:
        """Those of the run; none of one without kernels."""
        with suppress(NsysError):
            return frozenset(rank.number for rank in self.captures.runs[0].ranks)
        return frozenset()

    def apart(self, metric: Metric, spec: WindowSpec, labels: Labels, value: Value) -> Apart | None:
        """The window of the row's rank, of all captures and windows, whose own value is nearest to ``value``.

        Where none has the row, or it is of no one rank, the middle one.
        """
        if metric.slowest:
            step = self._step(metric, spec, value)
            return None if step is None else self._apart(*step)
        rank = labels.get("rank")
        if not isinstance(rank, int):
            capture, n = self._of_all_ranks(metric, spec, value)
            return self._apart(capture, spec, n)
        capture, n = self._nearest(metric, spec, labels, value)
        if "quantile" in labels:
            of = None if labels["quantile"] == MEDIAN_PERIOD else rank  # a rank that waits may do so a step later
            typical = typical_period(self.captures.runs[capture], spec, labels["quantile"], of)
            with suppress(NothingMeasured):  # a cut of the window alone need not hold that period
                return None if typical is None else self._apart(capture, typical, 0)
            return None
        return self._apart(capture, spec, n, len(self._windows(self.captures.runs[capture], spec, labels)))

    def _nearest(self, metric: Metric, spec: WindowSpec, labels: Labels, value: Value) -> tuple[int, int]:
        """The capture and the number of the window of a rank that gave a value; the middle one where none did."""
        if len(self.captures.runs) == len(self._windows(self.captures.runs[0], spec, labels)) == 1:
            return 0, 0
        wanted = tuple(labels.get(dimension) for dimension in metric.dimensions)
        found: list[tuple[Value, int, int]] = []
        for capture, run in enumerate(self.captures.runs if metric.scope is Scope.RANK else ()):
            for n, window in enumerate(self._windows(run, spec, labels)):
                own = (row.value for row in metric.rows(window) if row.labels == wanted)
                found += ((distance(each, value), capture, n) for each in own)
        _, capture, n = min(found, default=(0, 0, len(self._windows(self.captures.runs[0], spec, labels)) // 2))
        return capture, n

    @staticmethod
    def _windows(run: Run, spec: WindowSpec, labels: Labels) -> Sequence[RankWindow]:
        rank = labels["rank"]
        return run.measured(spec).ranks.get(rank, ()) if isinstance(rank, int) else ()

    def _of_all_ranks(self, metric: Metric, spec: WindowSpec, value: Value) -> tuple[int, int]:
        """The capture and the number of the windows of all ranks that gave a value, or of the middle ones."""
        if metric.scope is Scope.RUN:
            capture, n, _ = self._nearest_run(metric, spec, value)
            return capture, n
        return 0, min(map(len, self.captures.runs[0].measured(spec).ranks.values()), default=0) // 2

    @kept
    def _apart(self, capture: int, spec: WindowSpec, n: int, count: int | None = None) -> Apart:
        """The n-th windows of the ranks that have one, of those that have ``count`` in all, where that is given.

        Raises NothingMeasured.
        """
        ranks = self.captures.runs[capture].measured(spec).ranks
        own = {
            rank: windows[n] for rank, windows in ranks.items() if n < len(windows) and count in (None, len(windows))
        }
        how = spec.by_launch, spec.kind
        used = tuple(UsedWindow(capture, rank, window.window, *how) for rank, window in sorted(own.items()))
        lengths = {rank: window.length_ns for rank, window in own.items()}
        at = LookedAt(spec, capture, n, used)
        return Apart(lengths, lambda rank: self._broken_down(capture, spec, n, rank), at)

    @kept
    def roots(self, was: Apart, now: Apart) -> Roots:
        """Those of what changed between a window before and one of these traces."""
        from pytest_nsys.analysis.explain.roots import (
            Roots,  # as what takes a window apart: only what moved pays for it
        )

        return Roots(was.get, now.get, was.lengths_ns.keys() & now.lengths_ns.keys())

    def looked_at(self, spec: WindowSpec, apart: Apart | None) -> LookedAt | None:
        """The window that was taken apart; None where it stands for a quantile or a step time, and the judged one
        took about as long, and so shows it as well.
        """
        at = None if apart is None else apart.at
        if at is None or at.spec == spec or at.spec.index is None:
            return at
        run = self.captures.runs[at.capture]
        for rank in run.ranks:
            group = run.measured(spec)
            periods, own = counted_periods(group.tracks[rank.number]), group.windows.get(rank.number, ())
            judged = own[len(own) // 2].index if own else None
            steps = [periods[index] for index in (at.spec.index, judged) if index in periods]
            if len(steps) < 2 or ALIKE * (max(steps) - min(steps)) > max(steps):
                return at
        return None

    def slowest(self, metric: Metric, spec: WindowSpec, value: Value) -> int:
        """The rank that a step time is of."""
        _, _, window = self._nearest_run(metric, spec, value)
        return slowest_rank(window)

    def _nearest_run(self, metric: Metric, spec: WindowSpec, value: Value) -> tuple[int, int, RunWindow]:
        """The capture and the n-th window of all ranks whose row is nearest to ``value``, which it was made from."""
        found: dict[tuple[Value, int, int], RunWindow] = {}
        for capture, run in enumerate(self.captures.runs):
            for n, window in enumerate(run.measured(spec).together()):
                with suppress(NoRows):
                    found |= {(distance(row.value, value), capture, n): window for row in metric.rows(window)}
        at = min(found)
        return at[1], at[2], found[at]

    def _step(self, metric: Metric, spec: WindowSpec, value: Value) -> tuple[int, WindowSpec, int] | None:
        """What a step time is explained by: of which capture, under which spec the n-th window; None where no one
        window has all ranks.
        """
        capture, n, _ = self._nearest_run(metric, spec, value)
        run = self.captures.runs[capture]
        own = step_of(run, spec)
        if own is None:
            return None
        n = n if own == spec else 0
        with suppress(NothingMeasured):  # a cut of the window alone need not hold that step
            if n < len(run.measured(own).together()):
                return capture, own, n
        return None

    @kept
    def _broken_down(self, capture: int, spec: WindowSpec, n: int, rank: int) -> Breakdown:
        from pytest_nsys.analysis.budget.breakdown import break_down  # only what moved pays for what takes it apart

        own = self.captures.runs[capture].measured(spec).ranks[rank]
        windows, waits = self._together(capture, spec, n, len(own))
        return break_down({**windows, rank: own[n]}, rank, waits.get(rank, {}))

    @kept
    def _together(
        self, capture: int, spec: WindowSpec, n: int, count: int
    ) -> tuple[Mapping[int, RankWindow], Mapping[int, Mapping[int, RankWait]]]:
        """The n-th windows of the ranks that have as many, and what their collectives waited over files."""
        from pytest_nsys.analysis.metrics.straggling import waits_over_files

        ranks = self.captures.runs[capture].measured(spec).ranks
        known = {number: own for number, own in ranks.items() if self.among is None or number in self.among}
        beside = {number: windows[n] for number, windows in known.items() if len(windows) == count}
        return beside, waits_over_files(beside)


def usual(labels: Labels) -> Labels:
    """Of a quantile of periods the median, which every other is held against."""
    return {**labels, "quantile": MEDIAN_PERIOD} if "quantile" in labels else labels


def typical_period(run: Run, spec: WindowSpec, quantile: Label, of: int | None = None) -> WindowSpec | None:
    """The step that stands for a quantile of all, their mean or the longest: the one that is nearest to it on all
    ranks, or on rank ``of``.

    Of the median one step for all ranks, so that a collective is matched and the trace passed once. None where a rank
    has none, or the window is not of the convention's anchors.
    """
    if spec.anchor is not None:
        return None
    away: dict[int, Fraction] = {}
    tracks = run.measured(spec).tracks
    each = {rank.number: counted_periods(tracks[rank.number]) if rank.number in tracks else {} for rank in run.ranks}
    for own in each.values() if of is None else [each[of]]:
        middle = STATISTICS[str(quantile)](list(own.values())) if own else 0
        for index, period_ns in own.items():
            away[index] = away.get(index, 0) + Fraction(distance(period_ns, middle))
    shared = [index for index in away if all(index in own for own in each.values())]
    if not shared:
        return None
    index = min(shared, key=lambda index: (away[index], index))
    if marks_steps(run.convention):
        kernels = run.convention.kernels if spec.whole_run else spec.kernels
        return WindowSpec(str(index), Span.RANGE, kernels, spec.kind)
    return WindowSpec(str(index), Span.PERIOD, KernelsMode.CLIPPED)


def step_of(run: Run, spec: WindowSpec) -> WindowSpec | None:
    """What a step time is explained by: the window where it is stated how many steps that holds, or where it is all
    there is, else the median period. None where no one step has all ranks, or its anchors are not the convention's.
    """
    if run.workload.steps is not None:
        return spec
    if all(len(run.anchors_under(rank, spec)) == 1 for rank in run.ranks):
        return WindowSpec("0", Span.RANGE, KernelsMode.CLIPPED) if spec.whole_run or spec.explicit else spec
    return typical_period(run, spec, MEDIAN_PERIOD)
