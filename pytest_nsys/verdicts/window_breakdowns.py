"""Which windows gave the rows of one run their values, and what were these windows made of?

A row that several captures or windows have is explained by the window whose value is nearest to the row's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_nsys.analysis.captures.captures import Captures
from pytest_nsys.analysis.explain.breakdown_model import Breakdown, Change, RankWait, RootCause
from pytest_nsys.analysis.metrics.registry import Metric, MetricScope
from pytest_nsys.analysis.metrics.throughput import PERIOD_STATISTICS, find_slowest_rank, select_counted_periods
from pytest_nsys.analysis.windows.rank_window import RankWindow
from pytest_nsys.analysis.windows.run import Run, RunWindow
from pytest_nsys.analysis.windows.window_selection import ExaminedWindow, UsedWindow, WindowSpec, marks_steps
from pytest_nsys.core.conventions import make_pattern_matcher
from pytest_nsys.core.errors import NoRows, NothingMeasured, NsysError
from pytest_nsys.core.exact import distance
from pytest_nsys.core.kernel_names import make_stable_name
from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.model import KernelsMode, Label, Span, Value
from pytest_nsys.core.scopes import KernelPlace, ScopeKind
from pytest_nsys.gates.model import JudgedLabels

if TYPE_CHECKING:
    from pytest_nsys.analysis.explain.root_causes import RootCauses

MEDIAN_PERIOD = "p50"

ALIKE_STEP_DIVISOR = 50
"""Two steps count as alike where their lengths differ by no more than one part in this many."""


TOLD_KINDS = (ScopeKind.MODULE, ScopeKind.RANGE)
"""The kinds of places that say more than a root cause says by itself: it has its stage, and its kernel names the op."""


class WindowBreakdown:
    """Describes one window of all ranks: its length on each rank and, computed on demand, its breakdown."""

    def __init__(
        self, lengths_ns: Mapping[int, int], break_down_rank: Callable[[int], Breakdown], location: ExaminedWindow
    ) -> None:
        self.lengths_ns, self.location = lengths_ns, location  # lengths by rank; where the window stands in its trace
        self._break_down_rank = break_down_rank

    def find_breakdown(self, rank: Label | None) -> Breakdown | None:
        """Return what the window of a rank was made of; None where the rank has no window."""
        return self._break_down_rank(rank) if isinstance(rank, int) and rank in self.lengths_ns else None


@dataclass
class RunBreakdowns:
    """Breaks down the windows of opened traces, each window once."""

    captures: Captures
    peer_ranks: frozenset[int] | None = None  # ranks that others may wait for: those of the other run; None: all
    _places: dict[RootCause, KernelPlace | None] = field(default_factory=dict)

    @cached_property
    def ranks(self) -> frozenset[int]:
        """Return the numbers of the run's ranks; empty where the run has no kernels."""
        with suppress(NsysError):
            return frozenset(rank.number for rank in self.captures.runs[0].ranks)
        return frozenset()

    def break_down_row(
        self, metric: Metric, spec: WindowSpec, labels: JudgedLabels, value: Value
    ) -> WindowBreakdown | None:
        """Break down the window that a row is explained by; None where no window explains it.

        That is, of all captures, the window of the row's rank whose value is nearest to ``value``. It is the middle
        window if none has the row, or if the row does not belong to a single rank.
        """
        if metric.of_slowest_rank:
            step = self._find_explaining_step(metric, spec, value)
            return None if step is None else self._break_down_window(*step)
        rank = labels.get("rank")
        if not isinstance(rank, int):
            capture, n = self._find_window_of_all_ranks(metric, spec, value)
            return self._break_down_window(capture, spec, n)
        capture, n = self._find_nearest_window(metric, spec, labels, value)
        if "quantile" in labels:
            # The step of a quantile differs by rank: a rank that waits may do so a step later.
            only_rank = None if labels["quantile"] == MEDIAN_PERIOD else rank
            typical_spec = find_typical_step(self.captures.runs[capture], spec, labels["quantile"], only_rank)
            with suppress(NothingMeasured):  # a cut of the window may lack that period
                return None if typical_spec is None else self._break_down_window(capture, typical_spec, 0)
            return None
        return self._break_down_window(
            capture, spec, n, len(self._list_rank_windows(self.captures.runs[capture], spec, labels))
        )

    def _find_nearest_window(
        self, metric: Metric, spec: WindowSpec, labels: JudgedLabels, value: Value
    ) -> tuple[int, int]:
        """Return the index of the capture, and of the rank's window in it, that gave a value; of the middle window if
        none did.
        """
        if len(self.captures.runs) == len(self._list_rank_windows(self.captures.runs[0], spec, labels)) == 1:
            return 0, 0
        row_labels = tuple(labels.get(dimension) for dimension in metric.dimensions)
        candidates: list[tuple[Value, int, int]] = []
        for capture, run in enumerate(self.captures.runs if metric.scope is MetricScope.RANK else ()):
            for n, window in enumerate(self._list_rank_windows(run, spec, labels)):
                row_values = (row.value for row in metric.measure_rows(window) if row.labels == row_labels)
                candidates += ((distance(row_value, value), capture, n) for row_value in row_values)
        _, capture, n = min(
            candidates, default=(0, 0, len(self._list_rank_windows(self.captures.runs[0], spec, labels)) // 2)
        )
        return capture, n

    @staticmethod
    def _list_rank_windows(run: Run, spec: WindowSpec, labels: JudgedLabels) -> Sequence[RankWindow]:
        rank = labels["rank"]
        return run.load_windows(spec).windows_by_rank.get(rank, ()) if isinstance(rank, int) else ()

    def _find_window_of_all_ranks(self, metric: Metric, spec: WindowSpec, value: Value) -> tuple[int, int]:
        """Return the capture and the number of the windows of all ranks that gave a value, or those of the middle
        windows.
        """
        if metric.scope is MetricScope.RUN:
            capture, n, _ = self._find_nearest_run_window(metric, spec, value)
            return capture, n
        return 0, min(map(len, self.captures.runs[0].load_windows(spec).windows_by_rank.values()), default=0) // 2

    @memoize_method
    def _break_down_window(self, capture: int, spec: WindowSpec, n: int, count: int | None = None) -> WindowBreakdown:
        """Break down the n-th windows of the ranks that have one, with ``count`` only of the ranks that have ``count``
        windows.

        Raises NothingMeasured.
        """
        ranks = self.captures.runs[capture].load_windows(spec).windows_by_rank
        rank_windows = {
            rank: windows[n] for rank, windows in ranks.items() if n < len(windows) and count in (None, len(windows))
        }
        launch_and_kind = spec.is_by_launch, spec.kind
        used_windows = tuple(
            UsedWindow(capture, rank, window.window, *launch_and_kind) for rank, window in sorted(rank_windows.items())
        )
        lengths_ns = {rank: window.length_ns for rank, window in rank_windows.items()}
        location = ExaminedWindow(spec, capture, n, used_windows)
        return WindowBreakdown(lengths_ns, lambda rank: self._break_down_rank_window(capture, spec, n, rank), location)

    def find_nearest_step(
        self, baseline: RunBreakdowns, windows: tuple[WindowBreakdown, WindowBreakdown], spec: WindowSpec, rank: Label
    ) -> int | None:
        """Return the index of the step, which the baseline and these traces have, that is nearest to the median of both
        runs, on ``rank`` or, if that is no number, on all ranks; None if they share no step.
        """
        periods_by_rank = [
            {
                number: select_counted_periods(track)
                for number, track in side.captures.runs[window.location.capture].load_windows(spec).tracks.items()
                if not isinstance(rank, int) or number == rank
            }
            for side, window in zip((baseline, self), windows, strict=True)
        ]
        shared_ranks = sorted(periods_by_rank[0].keys() & periods_by_rank[1].keys())
        all_periods = [side[number] for number in shared_ranks for side in periods_by_rank if side[number]]
        medians = [PERIOD_STATISTICS[MEDIAN_PERIOD](list(periods.values())) for periods in all_periods]
        shared_indices = set.intersection(*map(set, all_periods)) if all_periods else set()

        def rate_index(index: int) -> tuple[Value, int]:
            distances = (distance(periods[index], median) for periods, median in zip(all_periods, medians, strict=True))
            return sum(distances, Fraction(0)), index

        return min(shared_indices, key=rate_index, default=None)

    def break_down_step(self, like: WindowBreakdown, index: int) -> WindowBreakdown:
        """Break down the step of an index in these traces, chosen as another window is. Raises NsysError."""
        location = like.location
        return self._break_down_window(location.capture, replace(location.spec, window=str(index)), location.position)

    @memoize_method
    def find_roots(self, baseline: WindowBreakdown, current: WindowBreakdown) -> RootCauses:
        """Return the root causes of what changed between a baseline window and a window of these traces."""
        from pytest_nsys.analysis.explain.root_causes import (
            RootCauses,  # imported late, as break_down_window is: only rows that moved pay for it
        )

        return RootCauses(
            baseline.find_breakdown, current.find_breakdown, baseline.lengths_ns.keys() & current.lengths_ns.keys()
        )

    def find_examined_window(self, spec: WindowSpec, breakdown: WindowBreakdown | None) -> ExaminedWindow | None:
        """Return the window that was broken down, to be named in a message.

        None if it explains a quantile or a step time and is about as long as the judged window, which then shows the
        same.
        """
        location = None if breakdown is None else breakdown.location
        if location is None or location.spec == spec or location.spec.index is None:
            return location
        run = self.captures.runs[location.capture]
        for rank in run.ranks:
            group = run.load_windows(spec)
            periods, rank_windows = (
                select_counted_periods(group.tracks[rank.number]),
                group.picked_windows.get(rank.number, ()),
            )
            judged_index = rank_windows[len(rank_windows) // 2].index if rank_windows else None
            lengths_ns = [periods[index] for index in (location.spec.index, judged_index) if index in periods]
            if len(lengths_ns) < 2 or ALIKE_STEP_DIVISOR * (max(lengths_ns) - min(lengths_ns)) > max(lengths_ns):
                return location
        return None

    def find_slowest_rank(self, metric: Metric, spec: WindowSpec, value: Value) -> int:
        """Return the number of the slowest rank, whose step a step time is."""
        _, _, window = self._find_nearest_run_window(metric, spec, value)
        return find_slowest_rank(window)

    def _find_nearest_run_window(self, metric: Metric, spec: WindowSpec, value: Value) -> tuple[int, int, RunWindow]:
        """Return the capture, the number n and the n-th windows of all ranks whose row is nearest to ``value``."""
        candidates: dict[tuple[Value, int, int], RunWindow] = {}
        for capture, run in enumerate(self.captures.runs):
            for n, window in enumerate(run.load_windows(spec).list_run_windows()):
                with suppress(NoRows):
                    candidates |= {
                        (distance(row.value, value), capture, n): window for row in metric.measure_rows(window)
                    }
        nearest = min(candidates)
        return nearest[1], nearest[2], candidates[nearest]

    def _find_explaining_step(
        self, metric: Metric, spec: WindowSpec, value: Value
    ) -> tuple[int, WindowSpec, int] | None:
        """Return the capture, the window spec and the number of the window that explain a step time; None if no single
        window has all ranks.
        """
        capture, n, _ = self._find_nearest_run_window(metric, spec, value)
        run = self.captures.runs[capture]
        step_spec = find_step_spec(run, spec)
        if step_spec is None:
            return None
        n = n if step_spec == spec else 0
        with suppress(NothingMeasured):  # a cut of the window may lack that step
            if n < len(run.load_windows(step_spec).list_run_windows()):
                return capture, step_spec, n
        return None

    def find_rank_window(self, breakdown: WindowBreakdown, rank: int) -> RankWindow | None:
        """Return the window of a rank that was broken down; None where the rank has none."""
        location = breakdown.location
        if rank not in breakdown.lengths_ns:
            return None
        run = self.captures.runs[location.capture]
        return run.load_windows(location.spec).windows_by_rank[rank][location.position]

    def find_kernel_place(
        self,
        baseline_run: RunBreakdowns,
        sides: tuple[WindowBreakdown, WindowBreakdown],
        change: Change,
    ) -> KernelPlace | None:
        """Return where in the program the kernels of a root cause are launched that account for the change from a
        baseline window to a window of these traces; None where nothing says so.

        It is looked for on the first rank that is asked for: another rank's trace would be read anew for it.
        """
        root = change.root
        if root not in self._places:
            windows = baseline_run.find_rank_window(sides[0], change.rank), self.find_rank_window(sides[1], change.rank)
            place = _find_place(*windows, root.name)
            anchor = self.captures.convention.range_anchor
            # A step is no part of the program; of a few short ones most kernels are launched in one.
            is_step = place is not None and anchor is not None and make_pattern_matcher(anchor)(place.pattern)
            self._places[root] = None if is_step else place
        return self._places[root]

    @memoize_method
    def find_host_place(self, window: WindowBreakdown, rank: int) -> KernelPlace | None:
        """Return the range or call in which the host of a rank stands while its GPU waits for the next step; None where
        none is on record.
        """
        from pytest_nsys.analysis.budget.budget import find_host_activity  # only a red pays for the import

        rank_window = self.find_rank_window(window, rank)
        host = "" if rank_window is None else find_host_activity(rank_window)
        return KernelPlace(ScopeKind.RANGE, host, None, None) if host else None

    @memoize_method
    def _break_down_rank_window(self, capture: int, spec: WindowSpec, n: int, rank: int) -> Breakdown:
        from pytest_nsys.analysis.budget.breakdown import break_down_window  # only rows that moved pay for the import

        rank_windows = self.captures.runs[capture].load_windows(spec).windows_by_rank[rank]
        windows, waits = self._collect_windows_and_waits(capture, spec, n, len(rank_windows))
        return break_down_window({**windows, rank: rank_windows[n]}, rank, waits.get(rank, {}))

    @memoize_method
    def _collect_windows_and_waits(
        self, capture: int, spec: WindowSpec, n: int, count: int
    ) -> tuple[Mapping[int, RankWindow], Mapping[int, Mapping[int, RankWait]]]:
        """Return the n-th windows of the ranks that have as many windows, and how long their collectives waited."""
        from pytest_nsys.analysis.metrics.collective_waits import measure_waits_over_files

        ranks = self.captures.runs[capture].load_windows(spec).windows_by_rank
        peer_windows = {
            number: windows for number, windows in ranks.items() if self.peer_ranks is None or number in self.peer_ranks
        }
        nth_windows = {number: windows[n] for number, windows in peer_windows.items() if len(windows) == count}
        return nth_windows, measure_waits_over_files(nth_windows)


def _find_place(base: RankWindow | None, head: RankWindow | None, kernel_name: str) -> KernelPlace | None:
    """Return where the kernels of a stable name are launched; of a kernel that is gone, where it was.

    None where nothing says so, and where nearly all kernels are launched, as in the range of the step.
    """
    from pytest_nsys.analysis.scopes.kernel_place import find_kernel_place  # only a red pays for the import

    def is_wanted(short: str, full: str) -> bool:
        return make_stable_name(full or short) == kernel_name

    for window, earlier_window in ((head, base), (base, None)):
        if window is not None:
            place = find_kernel_place(window, is_wanted, earlier_window)
            if place is not None:
                usual_place = find_kernel_place(window, lambda _short, _full: True)
                says_something = usual_place is None or usual_place.pattern != place.pattern
                return place if place.kind in TOLD_KINDS and says_something else None
    return None


def use_median_period(labels: JudgedLabels) -> JudgedLabels:
    """Return the labels with the median in place of any other quantile of periods, as every quantile is compared with
    the median.
    """
    return {**labels, "quantile": MEDIAN_PERIOD} if "quantile" in labels else labels


def find_typical_step(run: Run, spec: WindowSpec, quantile: Label, only_rank: int | None = None) -> WindowSpec | None:
    """Return the spec of the one step that stands for a quantile, the mean or the longest of all steps.

    It is the step that is nearest to that figure on all ranks, or on ``only_rank``. For the median it is one step for
    all ranks, so that a collective is matched and the trace passed once. None where a rank lacks the step, or where the
    window does not stand on the convention's anchors.
    """
    if spec.anchor is not None:
        return None
    distances: dict[int, Fraction] = {}
    tracks = run.load_windows(spec).tracks
    periods_by_rank = {
        rank.number: select_counted_periods(tracks[rank.number]) if rank.number in tracks else {} for rank in run.ranks
    }
    for periods in periods_by_rank.values() if only_rank is None else [periods_by_rank[only_rank]]:
        target_ns = PERIOD_STATISTICS[str(quantile)](list(periods.values())) if periods else 0
        for index, period_ns in periods.items():
            distances[index] = distances.get(index, 0) + Fraction(distance(period_ns, target_ns))
    shared_indices = [index for index in distances if all(index in periods for periods in periods_by_rank.values())]
    if not shared_indices:
        return None
    index = min(shared_indices, key=lambda index: (distances[index], index))
    if marks_steps(run.convention):
        kernels = run.convention.kernels if spec.is_whole_run else spec.kernels
        return WindowSpec(str(index), Span.RANGE, kernels, spec.kind)
    return WindowSpec(str(index), Span.PERIOD, KernelsMode.CLIPPED)


def find_step_spec(run: Run, spec: WindowSpec) -> WindowSpec | None:
    """Return the spec of the window that explains a step time; None where no one step has all ranks.

    It is the window itself where the number of its steps is stated, or where it is all there is, else the step of the
    median period. None also where its anchors are not the convention's.
    """
    if run.workload.steps is not None:
        return spec
    if all(len(run.list_pickable_anchors(rank, spec)) == 1 for rank in run.ranks):
        return WindowSpec("0", Span.RANGE, KernelsMode.CLIPPED) if spec.is_whole_run or spec.explicit_span_ns else spec
    return find_typical_step(run, spec, MEDIAN_PERIOD)
