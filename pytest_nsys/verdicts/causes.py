"""Why is a row worse than before? The windows of both sides, taken apart, and the roots of what changed between them.

Both sides are runs; of the one that a baseline was last written of the windows are kept beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from pytest_nsys.analysis.explain.parts import Change, ChangeKind, Explained, Explanation, Root, StepChange, What
from pytest_nsys.analysis.metrics.registry import METRICS, PERIOD, Metric
from pytest_nsys.analysis.metrics.table import MetricTable
from pytest_nsys.analysis.windows.spans import LookedAt, WindowSpec
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.exact import distance
from pytest_nsys.core.kept import kept
from pytest_nsys.core.model import Label, Value
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.model import WORSE, JudgedRow, Labels, Outcome, Verdict, spec_for
from pytest_nsys.verdicts.apart import MEDIAN_PERIOD, Apart, RunBreakdowns, usual

if TYPE_CHECKING:
    from pytest_nsys.analysis.captures.captures import Captures
    from pytest_nsys.analysis.explain.roots import Roots

EXPLAINED = (*WORSE, Outcome.INCONCLUSIVE, Outcome.IMPROVED)

MATERIAL = 100
"""What is held to no baseline is explained where it got worse by more than one part of so many."""


ON_GPU = (What.KERNEL, What.COLLECTIVE, What.COPY, What.MEMSET, What.ALL)
"""Roots that are the same on other ranks. Of what the host does, ranks that wait show something of their own."""


class Why(NamedTuple):
    """Why the rows of an assertion that are worse than before are so, in their order, and what became of a step beside
    it; None where one side does not know it. The worst row was ``looked_at`` in these windows of now. ``lacks`` is what
    it would have taken to say why the worst one is red; empty where that is known.
    """

    rows: tuple[Explained, ...] = ()
    step: StepChange | None = None
    looked_at: LookedAt | None = None
    lacks: str = ""


class _Sides(NamedTuple):
    """The windows that explain a row, and those that say what became of a step."""

    was: Apart
    now: Apart
    step: StepChange


TO_HAVE_THEM = "give its trace with --nsys-against"
NONE_KEPT = f"no windows of the run before are kept: {TO_HAVE_THEM}"
LOST = "{} is gone, or not the file that the baseline names: take it from git, or give the trace with --nsys-against"


def explain_rows(
    metric: Metric, spec: WindowSpec, rows: Sequence[JudgedRow], before: RunBreakdowns, now: RunBreakdowns
) -> Why:
    """A row is left out where one side does not know its window, or where nothing is known to be behind it."""
    asked = _Rows(metric, spec, before, now)
    found: list[Explained] = []
    steps: list[StepChange] = []
    windows: list[LookedAt | None] = []
    lacking: list[str] = []
    for row in rows if not metric.outside else ():
        if row.outcome in EXPLAINED:
            labels = asked.labels(row)
            sides = asked.sides(row, labels)
            if sides is not None:
                each = asked.explained(row, labels, sides)
                found += [] if each is None else [asked.with_all_ranks(each, sides)]
                steps.append(sides.step)
            lacking += [asked.lacks(row, labels, sides)] if row.baseline is not None and row.outcome in WORSE else []
            windows += [looked_at(metric, spec, [row], now) if sides is None else now.looked_at(spec, sides.now)]
    return Why(
        tuple(found), steps[0] if steps else None, windows[0] if windows else None, lacking[0] if lacking else ""
    )


def looked_at(metric: Metric, spec: WindowSpec, rows: Sequence[JudgedRow], now: RunBreakdowns) -> LookedAt | None:
    """The windows that gave the worst row its value, where nothing is known of before; None where none is bad."""
    row = next((row for row in rows if row.outcome in EXPLAINED), None)
    if row is not None and row.value is not None and not metric.outside:
        with suppress(NsysError):
            return now.looked_at(spec, now.apart(metric, spec, {**row.origin, **row.labels}, row.value))
    return None


def against(verdict: Verdict, before: Captures) -> LookedAt | None:
    """The windows of before that those which explain the worst row of a verdict are held against; None where there are
    none.
    """
    row = next((row for row in verdict.rows if row.outcome in EXPLAINED), None)
    value = None if row is None else row.value if row.baseline is None else row.baseline
    if row is None or value is None:
        return None
    metric, spec = verdict.assertion.measures, spec_for(before.convention, verdict.assertion)
    with suppress(NsysError):  # what is kept of a run need not have it
        apart = RunBreakdowns(before).apart(metric, spec, usual({**row.origin, **row.labels}), value)
        return None if apart is None else apart.at
    return None


def between_steps(before: MetricTable, now: MetricTable) -> StepChange | None:
    """The median periods of the ranks of which both sides know it, or the step time, which is of no rank: it stands
    for rank 0. None where there are none.
    """
    was, is_now = (
        {labels.get("rank", 0): round(value) for labels, value in side.labelled() if usual(labels) == labels}
        for side in (before, now)
    )
    ranks = sorted(rank for rank in was.keys() & is_now.keys() if isinstance(rank, int))
    return StepChange({rank: was[rank] for rank in ranks}, {rank: is_now[rank] for rank in ranks}) if ranks else None


@dataclass
class _Rows:
    """The rows of a metric under a window spec, held against another side."""

    metric: Metric
    spec: WindowSpec
    before: RunBreakdowns
    now: RunBreakdowns

    def labels(self, row: JudgedRow) -> Labels:
        """Those of the row that an aggregate was taken from; of a step time with the rank that it is of."""
        slowest = self.metric.slowest and row.value is not None
        return {**row.origin, **row.labels} | (
            {"rank": self.now.slowest(self.metric, self.spec, row.value)} if slowest and row.value is not None else {}
        )

    def sides(self, row: JudgedRow, labels: Labels) -> _Sides | None:
        """Of a quantile of periods the step that it is, against the median one, unless it is that which got longer."""
        value = row.baseline if row.value is None else row.value
        baseline = value if row.baseline is None else row.baseline
        if value is None or baseline is None:
            return None
        typical = usual(labels)
        was = self._was(self.metric, typical, baseline)
        now = self.now.apart(self.metric, self.spec, typical, value)
        if was is None or now is None:
            return None
        step = StepChange(*(self._of_one_step(side.lengths_ns) for side in (was, now)))
        odd = self.now.apart(self.metric, self.spec, labels, value) if typical != labels else None
        rank = labels.get("rank")
        if odd is None or not isinstance(rank, int) or rank not in was.lengths_ns or rank not in now.lengths_ns:
            return _Sides(was, now, step)
        typical_ns = was.lengths_ns[rank]
        moved = value - (typical_ns if row.baseline is None else row.baseline)
        # The typical step has half of the change, or more: whichever way it goes.
        all_steps = 2 * (now.lengths_ns[rank] - typical_ns) * moved >= moved * moved
        return _Sides(was, now, step) if all_steps else _Sides(now, odd, step)

    def _was(self, metric: Metric, labels: Labels, value: Value) -> Apart | None:
        """The window of before behind a value; None where nobody kept it."""
        with suppress(NsysError):  # a constant is judged on one side, whatever the other is
            return self.before.apart(metric, self.spec, labels, value)
        return None

    def lacks(self, row: JudgedRow, labels: Labels, sides: _Sides | None) -> str:
        """What is missing to take a row apart; empty where nothing is."""
        rank = labels.get("rank")
        if sides is not None:
            there = not isinstance(rank, int) or rank in sides.was.lengths_ns
            return "" if there else f"no windows of rank {rank} are kept of the run before: {TO_HAVE_THEM}"
        if row.value is not None and self.now.apart(self.metric, self.spec, usual(labels), row.value) is None:
            return "the trace does not hold a step that all ranks have, of the convention's anchors, in full"
        return f"the windows that are kept of the run before are others: {TO_HAVE_THEM}"

    def _of_one_step(self, lengths_ns: Mapping[int, int]) -> Mapping[int, int]:
        """The lengths of a step where it is stated how many a window holds."""
        steps = (self.now.captures.runs[0].workload.steps if self.metric.slowest else None) or 1
        return {rank: round(Fraction(ns, steps)) for rank, ns in lengths_ns.items()}

    def explained(self, row: JudgedRow, labels: Labels, sides: _Sides) -> Explained | None:
        """The row by its own parts, else by the roots of what it hangs on; None where nothing is known to be behind it.

        A row of several ranks, or of a metric that has no parts, has the roots alone.
        """
        from pytest_nsys.analysis.explain.credits import behind, came_or_went

        metric, roots, parts = self.metric, self.now.roots(sides.was, sides.now), self.metric.hangs_on
        shared = sides.was.lengths_ns.keys() & sides.now.lengths_ns.keys()
        ranks = sorted(shared & {labels["rank"]} if "rank" in labels else shared)
        if metric.counts:
            named = str(labels.get("kernel", labels.get("call", "")))
            found = came_or_went(roots, ranks, metric.subject, named)
            return _of_roots(labels, found)
        both = {rank: own for rank in ranks if (own := roots.both(rank)) is not None}
        if parts is None or not both:
            return None
        causes = {rank: [*parts.causes(*own, labels)] for rank, own in both.items()}
        measured = [[parts.measured_ns(own[n], labels) for own in both.values()] for n in (0, 1)]
        is_known = None not in (*measured[0], *measured[1])
        before, after = (sum(ns or 0 for ns in side) for side in measured)
        change, beside = after - before, list[Change]()
        if not is_known:  # what runs at once counts several times in its parts: these say how far it moved
            every = [cause for own in causes.values() for cause in own]
            before, change = sum(cause.before_ns for cause in every), sum(cause.change_ns for cause in every)
        steps = self.now.captures.runs[0].workload.steps if metric.slowest else None
        alone = metric.parts is not None and "rank" in labels and {*metric.dimensions} <= labels.keys()
        itself = alone and metric.unit == TIME and not row.origin and usual(labels) == labels
        if itself and row.value is not None and row.baseline is not None:
            is_known, change = True, round((row.value - row.baseline) * (steps or 1))
        elif row.baseline is None and MATERIAL * change <= before:
            return None
        if metric.slowest and row.baseline is not None:
            beside = [_slowest_before(ranks[0], sides, row.baseline * (steps or 1))]
        found = behind(roots, causes, change, self._of_step)
        if not (alone and is_known):
            return _of_roots(labels, found) if change > 0 else None
        where = labels if steps is None else {**labels, "window": f"window of {steps} steps"}
        return Explained(where, parts.explain(labels, change, *both[ranks[0]], beside), found)

    def with_all_ranks(self, told: Explained, sides: _Sides) -> Explained:
        """With its roots on the other ranks, and the kernels of the windows that were taken apart for it."""
        roots = self.now.roots(sides.was, sides.now)
        own = {change.root: change for change in told.roots if change.root.of in ON_GPU}
        alike = tuple(each for root, change in own.items() for each in roots.alike(root) if change in roots.alike(root))
        ranks = {told.labels.get("rank"), *(change.rank for change in told.roots)}
        windows = [side.get(rank) for side in sides[:2] for rank in ranks]
        beside = frozenset(name for apart in windows if apart is not None for name in apart.names)
        return told._replace(alike=alike, beside=beside)

    @kept
    def _of_step(self) -> Roots | None:
        """The roots of the median period of anchors, which is all of a step; None where one side does not know it."""
        periods = METRICS[PERIOD]
        labels: dict[str, Label] = {"rank": 0, "quantile": MEDIAN_PERIOD}
        with suppress(NsysError):
            was, now = self._was(periods, labels, 0), self.now.apart(periods, self.spec, labels, 0)
            return None if was is None or now is None else self.now.roots(was, now)
        return None


def _of_roots(labels: Labels, roots: tuple[Change, ...]) -> Explained | None:
    return Explained(labels, Explanation(0, (), 0), roots) if roots else None


def _slowest_before(rank: int, sides: _Sides, baseline_ns: Value) -> Change:
    """That another rank was the slowest, where one was: a step time is then not that of the same rank before."""
    lengths = sides.was.lengths_ns
    longer = [other for other in lengths if lengths[other] > lengths[rank]]
    first = min([rank, *sorted(longer)], key=lambda other: distance(lengths[other], baseline_ns))
    root = Root(ChangeKind.ELSEWHERE, What.RANK, "")
    return Change(root, rank, lengths[first], lengths[rank], straggler=first)
