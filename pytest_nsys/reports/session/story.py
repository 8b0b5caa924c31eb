"""What happened, told once? The step, every red of a session below what is at its root, and what was not judged.

All outputs tell this, each as long as it has room for: the first line is :mod:`pytest_nsys.reports.session.headline`.
Nothing depends on the order in which the records came.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from pytest_nsys.analysis.explain.parts import UNCHANGED, Change, Explained, Root, StepChange
from pytest_nsys.analysis.metrics.registry import PERIOD, STEP_TIME, metric_called
from pytest_nsys.analysis.windows.spans import RUN, noun_of
from pytest_nsys.core.conventions import NO_STAGE
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import KernelsMode, Label
from pytest_nsys.gates.model import JudgedRow, Outcome
from pytest_nsys.reports.session.record import Record

FOLDED_SHARE = Fraction(5, 100)
"""A root that leads in no row, and is less than this of the largest one, is not told."""

WINDOW = "window_ns"
STEP_TIMES = frozenset({WINDOW, PERIOD, STEP_TIME})
"""Metrics that are the length of a step."""

USUAL = "p50"
"""The quantile of periods that is the length of a step."""

ONE_OF_MANY = frozenset({"max", "median", "mean", "min"})
"""Aggregates of lengths of a step that are the length of one."""

NEARLY_UNCHANGED = Fraction(1, 100)
"""A step that moved by less is unchanged where the median of all is."""

OF_KERNELS = f"kernels {KernelsMode.LAUNCHED}"
"""How windows are measured that reach from their first kernel to the last: then the length of one is no step's."""

MOVED = (Outcome.FAILED, Outcome.ACCEPTED, Outcome.IMPROVED)
"""Outcomes of an assertion whose rows are not what they were, or not within their limit."""

EXPOSED = "explain.causes:EXPOSED"
EXPLAINED_AS_EXPOSED = (EXPOSED, "explain.causes:COVER", "explain.causes:ALL_EXPOSED")
"""How times and shares of exposed communication are explained: a row of one says what is behind that of another."""

NOT_JUDGED = (Outcome.ERROR, Outcome.INCOMPARABLE, Outcome.NO_DATA, Outcome.INCONCLUSIVE)


class StepTold(NamedTuple):
    """Holds what happened to the step of a gate file or configuration: that of the slowest rank."""

    address: str
    """The gate file, with its configuration."""
    before_ns: int
    """Its length before."""
    now_ns: int
    """Its length now."""
    noun: str = "step"
    """*window* where the windows are no steps, *p90 step* of a quantile, *decode step* of a kind."""

    @property
    def share(self) -> Fraction:
        """By how much of its length it is longer."""
        return Fraction(self.now_ns, self.before_ns) - 1

    @property
    def unchanged(self) -> bool:
        return abs(self.share) < UNCHANGED


class Red(NamedTuple):
    """A failed assertion, and its failed rows below one root, the worst first."""

    record: Record
    rows: tuple[JudgedRow, ...]


class StoryRoot(NamedTuple):
    """Holds a root, and every red that it explains."""

    root: Root
    """What changed, of all stages."""
    stages: tuple[str, ...]
    """Those in which it did."""
    changes: Mapping[tuple[str, int], Change]
    """How much it changed, by address and rank."""
    reds: tuple[Red, ...] = ()
    """Empty where all that it explains stands below a larger root."""
    waiting: tuple[int, ...] = ()
    """Ranks of rows that wait for those ranks."""
    waits_in: str = ""
    """The kernel in which they do."""

    @property
    def ranks(self) -> list[int]:
        return sorted({rank for _, rank in self.changes})

    @property
    def addresses(self) -> list[str]:
        """The gate files, or configurations of them, in which it happened."""
        return sorted({address for address, _ in self.changes})

    @property
    def of_step(self) -> bool:
        """Whether it explains the length of a step."""
        return any(is_step_time(red.record) for red in self.reds)

    @property
    def largest(self) -> Change:
        """The change of the rank on which most changed."""
        return min(self.changes.values(), key=lambda change: (-abs(change.change_ns), change.rank))


class NotJudged(NamedTuple):
    """One thing that kept assertions of one gate file from being judged, and how many."""

    outcome: Outcome
    message: str
    records: tuple[Record, ...]


class Story(NamedTuple):
    """Holds what happened in a session, as facts."""

    steps: Mapping[str, StepTold]
    """By address, where a length before is known."""
    roots: tuple[StoryRoot, ...]
    """The largest first, those that explain the length of a step before all others, those without a red at last."""
    unexplained: tuple[Red, ...]
    """Failed rows below no root."""
    not_judged: tuple[NotJudged, ...]
    """Each thing that kept assertions from being judged, once."""
    worlds: Mapping[str, int | None]
    """The number of ranks by address, of all addresses that were judged."""
    warning: bool = False
    """Whether nothing failed, and all is of assertions that only warn."""

    @property
    def step(self) -> StepTold | None:
        """What happened to the step, of several the one that moved most: where what leads happened, if there is any."""
        return most_moved(self.steps[address] for address in self.leading if address in self.steps)

    @property
    def leading(self) -> list[str]:
        """Where what leads happened."""
        return self.roots[0].addresses if self.roots else self.failed

    @property
    def reds(self) -> list[Red]:
        return [*(red for root in self.roots for red in root.reds), *self.unexplained]

    @property
    def rootless(self) -> list[Record]:
        """What failed and stands below no root with any of its rows."""
        rooted = {red.record.known_by for root in self.roots for red in root.reds}
        return [red.record for red in self.unexplained if red.record.known_by not in rooted]

    @property
    def failed(self) -> list[str]:
        """The addresses with a red."""
        return sorted({red.record.address for red in self.reds})


def story_of(records: Iterable[Record], told: Sequence[Record] = ()) -> Story:
    """Tell what happened in a session of these ``records``; of one in which nothing failed, what its warnings tell.
    With ``told``: what these of them tell.
    """
    records = sorted(records, key=lambda record: record.known_by)
    failed = [record for record in records if record.state == Outcome.FAILED]
    warned = [r for r in records if r.outcome is Outcome.FAILED and r.good and not r.xfailed]
    warning = not told and not failed and bool(warned)
    told = led_by(sorted(told, key=lambda record: record.known_by) or failed or warned)
    places = _Places(told)
    rootless = (Red(record, places.without_root(record)) for record in told)
    periods = {step.address: step for record in records if (step := _period_of(record)) is not None}
    steps = grouped((step.address, _steady(step, periods)) for each in told if (step := step_of(each)) is not None)
    return Story(
        {address: step for address, own in steps.items() if (step := most_moved(own)) is not None},
        tuple(_worth_telling(_roots(told, places))),
        tuple(red for red in rootless if red.rows or not failed_rows(red.record)),
        tuple(_not_judged(records)),
        {record.address: _world(record) for record in records},
        warning=warning,
    )


def _world(record: Record) -> int | None:
    """How many ranks its run has; where it does not say so, how many were judged, None of none."""
    return record.key.world if record.key is not None else len({used.rank for used in record.verdict.windows}) or None


def worst_first(records: Iterable[Record]) -> list[Record]:
    """What failed, then what deserves a look, then the rest, by how near it is to failing."""

    def key(record: Record) -> tuple[int, Fraction]:
        left = [row.headroom for row in record.verdict.rows if row.headroom is not None]
        return 2 if not record.is_open else int(record.good), min(left, default=Fraction(1 << 62))

    return sorted(records, key=key)


def led_by(records: Iterable[Record]) -> list[Record]:
    """The worst first, but the length of a step above all else."""
    return sorted(worst_first(records), key=lambda record: not (record.is_open and is_step_time(record)))


def is_step_time(record: Record) -> bool:
    """Whether a record is of the length of a step."""
    *aggregates, metric = record.subject.split()
    return metric in STEP_TIMES and ONE_OF_MANY.issuperset(aggregates)


def is_of_kernels(record: Record) -> bool:
    """Whether a record is of how long the kernels of a step take, from the first to the last, and not of the step."""
    return record.subject.split()[-1] == WINDOW and record.verdict.measured_as.endswith(OF_KERNELS)


# The step


def most_moved(steps: Iterable[StepTold]) -> StepTold | None:
    """Of several windows the step, of several steps that whose length moved most; None of none."""
    usual = re.compile(r"(?!p\d).*step").fullmatch
    return min(steps, key=lambda t: (not usual(t.noun), -abs(t.share), t.address, -t.before_ns), default=None)


def step_of(record: Record) -> StepTold | None:
    """What happened to the step in the windows of an assertion; None where no length before is known."""
    rows = failed_rows(record)
    step = record.verdict.step or _lengths(rows if is_step_time(record) else ())
    before, now = step.slowest
    quantile = rows[0].labels.get("quantile", USUAL) if rows and record.verdict.step is None else USUAL
    noun = _noun(record) if quantile == USUAL else f"{quantile} step"
    noun = f"{record.kind} {noun}" if record.kind and noun.endswith("step") else noun
    return StepTold(record.address, before, now, noun) if before else None


def _period_of(record: Record) -> StepTold | None:
    """The median step of all, whose length an assertion judges; None where it does not, or none before is known."""
    rows = record.verdict.rows if record.subject.split()[-1] in (PERIOD, STEP_TIME) else ()
    before, now = _lengths(row for row in rows if _labels(row).get("quantile", USUAL) == USUAL).slowest
    return StepTold(record.address, before, now) if before else None


def _steady(step: StepTold, periods: Mapping[str, StepTold]) -> StepTold:
    """The median step where that is unchanged, for one that is nearly: it need not be typical."""
    usual = periods.get(step.address)
    return usual if usual is not None and usual.unchanged and abs(step.share) < NEARLY_UNCHANGED else step


def _noun(record: Record) -> str:
    """What the lengths are of that an assertion knows: of step times steps, whatever its window is."""
    metric, windows = record.assertion.metric, record.verdict.windows
    if metric == PERIOD and any(used.window.name == RUN for used in windows):
        return "period"
    return "step" if metric == STEP_TIME else noun_of(windows)


def _lengths(rows: Iterable[JudgedRow]) -> StepChange:
    """The lengths of steps as far as rows of them say."""
    known = {_rank(row.labels): (round(row.baseline), round(row.value or 0)) for row in rows if row.baseline}
    return StepChange({rank: both[0] for rank, both in known.items()}, {rank: both[1] for rank, both in known.items()})


def _rank(labels: Mapping[str, Label]) -> int:
    """The rank of a row; of one that is of no one rank 0."""
    rank = labels.get("rank")
    return rank if isinstance(rank, int) else 0


# The roots


class _Places:
    """Which root a failed row stands below: its own, or that of the same place and kind in another assertion; of a row
    that waits for a rank what made that late.
    """

    def __init__(self, reds: Sequence[Record]) -> None:
        self._known: dict[tuple[object, ...], Change] = {}
        self._changes: dict[str, dict[Change, None]] = {}
        for record in reversed(reds):
            for row in explained_rows(record):
                self._changes.setdefault(record.address, {}).update(dict.fromkeys(row.roots))
                if row.roots:
                    self._known[self._of(record, row.labels)] = row.roots[0]

    @staticmethod
    def _of(record: Record, labels: Mapping[str, Label]) -> tuple[object, ...]:
        """What a row is of, and how it is explained, whichever assertion judges it: overlap as exposed time is."""
        metric = metric_called(record.assertion.metric)
        by = metric.explained_by if metric is not None else ""
        return record.address, EXPOSED if by in EXPLAINED_AS_EXPOSED else by, _place(labels)

    def of(self, record: Record, row: JudgedRow) -> Change | None:
        """What is at the root of a failed row; None where nothing is known."""
        labels = _labels(row)
        if not labels:
            return next((each.roots[0] for each in explained_rows(record) if each.roots), None)
        return self._known.get(self._of(record, labels)) or self._late(record, labels)

    def _late(self, record: Record, labels: Mapping[str, Label]) -> Change | None:
        """What made the rank late that a row waits for, in windows that show it: another may begin when that comes."""
        same = (each for each in record.verdict.causes if _place(each.labels) == _place(labels))
        leading = next((each.explanation.leading for each in same), None)
        last = leading.straggler if leading is not None else None
        changes = self._changes.get(record.address, {})
        there = (each for each in changes if each.rank == last and each.change_ns > 0)
        return max(there, key=lambda each: (each.change_ns, each), default=None)

    def rooted(self, record: Record) -> dict[Root, list[JudgedRow]]:
        """The failed rows by root; below each at last those of other ranks that have none of their own."""
        own, others = self._told(record)
        found = grouped((_all_stages(change.root), row) for change, row in own)
        first = {_but_rank(row): root for root, rows in reversed(found.items()) for row in rows}
        for row in others:
            if root := first.get(_but_rank(row)):
                found[root].append(row)
        return found

    def without_root(self, record: Record) -> tuple[JudgedRow, ...]:
        """The failed rows that stand below no root, nor do the same of another rank."""
        own, others = self._told(record)
        told = {_but_rank(row) for _, row in own}
        return tuple(row for row in others if _but_rank(row) not in told)

    def _told(self, record: Record) -> tuple[list[tuple[Change, JudgedRow]], list[JudgedRow]]:
        pairs = [(self.of(record, row), row) for row in failed_rows(record)]
        return [(change, row) for change, row in pairs if change], [row for change, row in pairs if not change]


def failed_rows(record: Record) -> list[JudgedRow]:
    """The rows for which an assertion is red, accepted or better, the worst first."""
    own = record.verdict.rows if record.outcome in MOVED else ()
    return [row for row in own if row.outcome is record.outcome and not row.waived]


def explained_rows(record: Record) -> list[Explained]:
    """Those of the failed rows that are explained, in their order."""
    failed = {_place(_labels(row)) for row in failed_rows(record)}
    return [each for each in record.verdict.causes if _place({}) in failed or _place(each.labels) in failed]


def _place(labels: Mapping[str, Label]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((dimension, str(label)) for dimension, label in labels.items()))


def _but_rank(row: JudgedRow) -> tuple[tuple[str, str], ...]:
    return _place({dimension: label for dimension, label in _labels(row).items() if dimension != "rank"})


def _labels(row: JudgedRow) -> dict[str, Label]:
    """Those by which a failed row is explained; none of a step time, which is explained by one rank."""
    return {**row.origin, **row.labels}


def _roots(reds: Sequence[Record], places: _Places) -> Iterator[StoryRoot]:
    below = grouped((root, Red(record, tuple(rows))) for record in reds for root, rows in places.rooted(record).items())
    explained = grouped(
        (_all_stages(change.root), (record.address, row, change))
        for record in reds
        for row in explained_rows(record)
        for change in row.roots
    )
    for root, told in explained.items():
        alike = ((address, each) for address, row, _ in told for each in row.alike if _all_stages(each.root) == root)
        changes = _changes(chain(((address, change) for address, _, change in told), alike))
        waits = [row for address, row, change in told if (address, row.labels.get("rank", change.rank)) not in changes]
        ranks = sorted({_rank(row.labels) for row in waits})
        stages = sorted({change.root.stage for _, _, change in told} - {"", NO_STAGE})
        yield StoryRoot(root, tuple(stages), changes, tuple(below.get(root, ())), tuple(ranks), _waits_in(waits))


def _all_stages(root: Root) -> Root:
    return root._replace(stage="")


def _changes(told: Iterable[tuple[str, Change]]) -> dict[tuple[str, int], Change]:
    """By address and rank the sum over stages, of each the largest that any row tells."""
    largest: dict[tuple[str, int, str], Change] = {}
    for address, change in told:
        at = address, change.rank, change.root.stage
        largest[at] = max(largest.get(at, change), change, key=lambda each: (abs(each.change_ns), each))
    found: dict[tuple[str, int], Change] = {}
    for (address, rank, _), change in sorted(largest.items()):
        other = found.get((address, rank))
        found[address, rank] = change._replace(root=_all_stages(change.root)) if other is None else _sum(other, change)
    return found


def _sum(one: Change, other: Change) -> Change:
    before, now = one.before_ns + other.before_ns, one.now_ns + other.now_ns
    return one._replace(before_ns=before, now_ns=now, was=one.was + other.was, is_now=one.is_now + other.is_now)


def _waits_in(rows: Sequence[Explained]) -> str:
    """The kernel in which most of these rows wait."""
    names = [cause.root.name for row in rows for cause in row.explanation.causes[:1] if cause.root.name]
    return max(sorted(set(names)), key=names.count, default="")


def _worth_telling(roots: Iterable[StoryRoot]) -> Iterator[StoryRoot]:
    """The largest first, what is behind a longer step before all others, and what leads in a row before what leads in
    none; without small ones of these.
    """
    found = sorted(roots, key=lambda root: (not root.of_step, not root.reds, -abs(root.largest.change_ns), root.root))
    least = max((abs(root.largest.change_ns) for root in found), default=0) * FOLDED_SHARE
    return (root for root in found if root.reds or abs(root.largest.change_ns) >= least)


# What was not judged


def _not_judged(records: Sequence[Record]) -> Iterator[NotJudged]:
    """One mistake of a gate file once, however many assertions it keeps from being judged."""
    for outcome in NOT_JUDGED:
        own = grouped(((record.file, _mistake(record)), record) for record in records if record.state == outcome)
        for same in own.values():
            yield NotJudged(outcome, same[0].message, tuple(same))


def _mistake(record: Record) -> str:
    """What is wrong, in whichever trace and configuration."""
    said = record.message
    for name in filter(None, (*record.traces, record.configuration)):
        said = said.replace(name, "")
    return said
