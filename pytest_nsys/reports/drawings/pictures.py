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
    """The window of one rank; the same ``key`` is the same picture. ``head`` is None where it was handed over before,
    ``why`` says why there is none at all. Those that are ``beside`` each other are windows of one run.
    """

    key: str
    beside: str
    rank: int
    base: Timeline | None = None
    head: Timeline | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """The values of one row over the steady windows, as (index of the anchor, value); ``median`` is the anchor that the
    default window is. ``why`` there are none. ``limit`` is that of the row.
    """

    row: str
    limit: Value | None
    values: Sequence[tuple[int, Value]] = ()
    median: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """The worst row of an assertion as a history names it, its value, and its limit, None where it has none."""

    gate: str
    digest: str
    series: SeriesId
    labels: tuple[Label, ...]
    value: Value
    limit: Value | None


@dataclass(frozen=True, slots=True)
class Pictures:
    """All that is drawn of one assertion; ``worst`` is None where a history has no such row."""

    windows: Sequence[Picture]
    spread: Spread | None
    worst: Measured | None = None


AssertionPictures = Mapping[tuple[str, int, str], Pictures]
"""What is drawn of each assertion, by what it is ``known_by``."""

MOST_RANKS = 8
MOST_STEADY_KERNELS = 200_000
"""Of more kernels in the steady windows of all ranks, whose reading would cost more than the gate."""

FEWEST_WINDOWS = 3

T = TypeVar("T")


def pictures_of(
    verdict: Verdict, head: Captures, base: Captures | None = None, sent: set[str] | None = None
) -> Pictures:
    """What is drawn of a verdict. ``sent`` are the keys of windows that were handed over; it gets those of this one."""
    sent = sent if sent is not None else set()
    now, before = find_explaining_windows(verdict, head, base)
    windows = [_picture(rank, now, before, sent) for rank in ranks_of(verdict, head.runs[0])]
    return Pictures(windows, _spread(verdict, spec_for(head.convention, verdict.assertion), head))


def by_turn(lists: Iterable[Sequence[T]]) -> Iterator[T]:
    """The first of each list, then the second of each."""
    return (each for each in chain.from_iterable(zip_longest(*lists)) if each is not None)


def ranks_of(verdict: Verdict, run: Run) -> list[int]:
    """The ranks of the rows that do not hold, worst first; where all hold that of the row nearest to failing.

    All ranks where the rows are of no one rank, and none where they are of no trace.
    """
    if verdict.assertion.outside is not None:
        return []
    nearest = verdict.nearest
    rows = rows_to_show(verdict) or ([nearest] if nearest is not None else [])
    known = {rank.number for rank in run.ranks}
    own = [rank for row in rows if isinstance(rank := _labels(row).get("rank"), int) and rank in known]
    return (list(dict.fromkeys(own)) or sorted(known))[:MOST_RANKS]


def worst_of(verdict: Verdict, head: Captures, stated: Mapping[str, Label], gate: str) -> Measured | None:
    """The worst row's measurement. ``gate`` is the gate file's path as its baselines know it."""
    labels, row = _own_labels(verdict), verdict.nearest
    if labels is None or row is None or row.value is None:
        return None
    series = series_id(verdict.assertion.measures, spec_for(head.convention, verdict.assertion))
    return Measured(gate, head.key(stated).digest, series, labels, row.value, row.limit)


def _labels(row: JudgedRow) -> Mapping[str, Label]:
    return {**row.origin, **row.labels}


def _own_labels(verdict: Verdict) -> tuple[Label, ...] | None:
    """The labels of the metric's row behind the verdict's worst; None where several rows are behind it."""
    row, metric = verdict.nearest, verdict.assertion.measures
    if row is None or row.value is None or verdict.assertion.balance_across is not None:
        return None
    labels = _labels(row)
    return tuple(labels[d] for d in metric.dimensions) if all(d in labels for d in metric.dimensions) else None


class ExplainingWindows(NamedTuple):
    """Those of one side that explain a verdict: of the ranks of a ``capture`` the ``n``-th window that ``spec`` picks,
    None: the middle one.
    """

    side: Captures
    spec: WindowSpec
    capture: int = 0
    n: int | None = None

    @property
    def run(self) -> Run:
        return self.side.runs[self.capture]

    @property
    def words(self) -> Iterator[str]:
        """What tells them from others."""
        spec = self.spec
        yield from map(str, ("|", *self.side.paths, spec.window, spec.span, spec.kernels, self.capture, self.n))


def find_explaining_windows(
    verdict: Verdict, head: Captures, base: Captures | None
) -> tuple[ExplainingWindows, ExplainingWindows | None]:
    """Find the windows that explain a verdict in this run, and in the run before; None where there is none."""
    at, spec = verdict.looked_at, spec_for(head.convention, verdict.assertion)
    now = ExplainingWindows(head, spec) if at is None else ExplainingWindows(head, at.spec, at.capture, at.n)
    if base is None:
        return now, None
    was = against(verdict, base) if at is not None else None
    return now, ExplainingWindows(base, spec) if was is None else ExplainingWindows(base, was.spec, was.capture, was.n)


def _picture(rank: int, now: ExplainingWindows, before: ExplainingWindows | None, sent: set[str]) -> Picture:
    sides = [word for side in (now, before) if side is not None for word in side.words]
    key, beside = (
        sha256("\0".join([*sides, now.side.convention.fingerprint(), of]).encode("utf-8", "surrogatepass")).hexdigest()
        for of in (str(rank), "all")
    )
    if key in sent:
        return Picture(key, beside, rank)
    sent.add(key)
    try:
        head = _timeline(now, rank)
    except NsysError as error:
        return Picture(key, beside, rank, why=printable(str(error), 400))
    base = None
    with contextlib.suppress(NsysError):  # what is kept of a run before need not have this window
        if before is not None and rank in {each.number for each in before.side.runs[0].ranks}:
            base = _timeline(before, rank)
    return Picture(key, beside, rank, base, head)


def _timeline(at: ExplainingWindows, rank: int) -> Timeline:
    group = at.run.measured(at.spec)
    windows = group.filled({rank})[rank]
    window = windows[len(windows) // 2 if at.n is None or at.n >= len(windows) else at.n]
    return timeline_of(window, common_clock(group).standing(window.rank.process.clock))


def _spread(verdict: Verdict, spec: WindowSpec, head: Captures) -> Spread | None:
    """The value of the worst row in each steady window of its rank; None where there is no such thing."""
    metric, labels, row = verdict.assertion.measures, _own_labels(verdict), verdict.nearest
    if labels is None or row is None or metric.scope is not Scope.RANK or "rank" not in metric.dimensions:
        return None
    if spec.whole_run or spec.explicit is not None or spec.anchor is not None:
        return None
    rank = labels[metric.dimensions.index("rank")]
    if not isinstance(rank, int):
        return None
    words = place_words(zip(metric.dimensions, labels, strict=True))
    spread = Spread(printable(words), row.limit)
    run = head.runs[0]
    try:
        if why := _why_not(run, spec, rank):
            return replace(spread, why=why)
        values, median = _steady_values(run, metric, spec, labels, rank)
        return replace(spread, values=values, median=median)
    except NsysError as error:
        return replace(spread, why=printable(str(error), 400))


def _why_not(run: Run, spec: WindowSpec, rank: int) -> str:
    """Why the steady windows are not measured; empty where they are."""
    count = max((len(run.anchors(each)) for each in run.ranks if each.number == rank), default=0)
    steady = len(steady_indices(count))
    if steady < FEWEST_WINDOWS:
        return f"the middle half of {count} anchors is {steady}: too few to show a distribution"
    kernels = steady * sum(len(windows[0]) for windows in run.measured(spec).ranks.values() if windows)
    if kernels > MOST_STEADY_KERNELS:
        return f"about {kernels} kernels would have to be read, of at most {MOST_STEADY_KERNELS}"
    return ""


def _steady_values(
    run: Run, metric: Metric, spec: WindowSpec, labels: Sequence[Label], rank: int
) -> tuple[list[tuple[int, Value]], int]:
    values: list[tuple[int, Value]] = []
    windows = run.measured(replace(spec, window=STEADY)).filled({rank})[rank]
    for window in windows:
        with contextlib.suppress(NoRows):
            found = {row.labels: row.value for row in metric.rows(window)}
            if tuple(labels) in found and window.window.index is not None:
                values.append((window.window.index, found[tuple(labels)]))
    return values, (windows[0].window.count or 0) // 2
