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
"""A root that explains no red, and is less than this share of the largest root, is not told."""

WINDOW = "window_ns"
STEP_TIMES = frozenset({WINDOW, PERIOD, STEP_TIME})
"""Metrics that are the length of a step."""

USUAL = "p50"
"""The quantile of periods that is the length of a step."""

ONE_OF_MANY = frozenset({"max", "median", "mean", "min"})
"""Aggregates of step lengths that are the length of a single step."""

NEARLY_UNCHANGED = Fraction(1, 100)
"""A step that changed by less than this share is unchanged where the median of all steps is."""

OF_KERNELS = f"kernels {KernelsMode.LAUNCHED}"
"""How the measurement of windows ends that reach from their first kernel to the last: their length is not a step's."""

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
    """The step's length before."""
    now_ns: int
    """The step's length now."""
    noun: str = "step"
    """*window* where the windows are no steps, *p90 step* of a quantile, *decode step* of a kind."""

    @property
    def share(self) -> Fraction:
        """The share of its length before by which it is longer, negative where it is shorter."""
        return Fraction(self.now_ns, self.before_ns) - 1

    @property
    def unchanged(self) -> bool:
        return abs(self.share) < UNCHANGED


class Red(NamedTuple):
    """Holds a failed assertion, and its failed rows below one root, the worst first."""

    record: Record
    rows: tuple[JudgedRow, ...]


class StoryRoot(NamedTuple):
    """Holds a root cause, and every red that it explains."""

    root: Root
    """What changed, of all stages."""
    stages: tuple[str, ...]
    """The stages in which it changed."""
    changes: Mapping[tuple[str, int], Change]
    """How much it changed, by gate file or configuration, and rank."""
    reds: tuple[Red, ...] = ()
    """What it explains; empty where all of that stands below a larger root."""
    waiting: tuple[int, ...] = ()
    """Ranks that wait for the ranks on which it changed."""
    waits_in: str = ""
    """The kernel in which they wait."""

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
    """Holds one thing that kept assertions of one gate file from being judged, and those assertions."""

    outcome: Outcome
    message: str
    records: tuple[Record, ...]


class Story(NamedTuple):
    """Holds what happened in a session, as facts."""

    steps: Mapping[str, StepTold]
    """What happened to the step of each gate file or configuration, where a length before is known."""
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
        rooted_identities = {red.record.known_by for root in self.roots for red in root.reds}
        return [red.record for red in self.unexplained if red.record.known_by not in rooted_identities]

    @property
    def failed(self) -> list[str]:
        """The addresses with a red."""
        return sorted({red.record.address for red in self.reds})


def story_of(records: Iterable[Record], told: Sequence[Record] = ()) -> Story:
    """Return what happened in a session of these ``records``; of one in which nothing failed, what its warnings tell.

    With ``told_records``, return what these of the records tell.
    """
    records = sorted(records, key=lambda record: record.known_by)
    failed_records = [record for record in records if record.state == Outcome.FAILED]
    warned_records = [
        record for record in records if record.outcome is Outcome.FAILED and record.good and not record.xfailed
    ]
    is_warning = not told and not failed_records and bool(warned_records)
    told = led_by(sorted(told, key=lambda record: record.known_by) or failed_records or warned_records)
    root_index = _Places(told)
    rootless_reds = (Red(record, root_index.without_root(record)) for record in told)
    median_step_by_address = {step.address: step for record in records if (step := _period_of(record)) is not None}
    steps = grouped(
        (step.address, _steady(step, median_step_by_address))
        for told_record in told
        if (step := step_of(told_record)) is not None
    )
    return Story(
        {address: step for address, address_steps in steps.items() if (step := most_moved(address_steps)) is not None},
        tuple(_worth_telling(_roots(told, root_index))),
        tuple(red for red in rootless_reds if red.rows or not failed_rows(red.record)),
        tuple(_not_judged(records)),
        {record.address: _world(record) for record in records},
        warning=is_warning,
    )


def _world(record: Record) -> int | None:
    """Return how many ranks a record's run has; where it does not say so, how many were judged, None of none."""
    return record.key.world if record.key is not None else len({used.rank for used in record.verdict.windows}) or None


def worst_first(records: Iterable[Record]) -> list[Record]:
    """Return the records that failed, then those that deserve a look, then the rest, each by its least headroom."""

    def rate_record(record: Record) -> tuple[int, Fraction]:
        headrooms = [row.headroom for row in record.verdict.rows if row.headroom is not None]
        return 2 if not record.is_open else int(record.good), min(headrooms, default=Fraction(1 << 62))

    return sorted(records, key=rate_record)


def led_by(records: Iterable[Record]) -> list[Record]:
    """Return the records worst first, but those of the length of a step before all others."""
    return sorted(worst_first(records), key=lambda record: not (record.is_open and is_step_time(record)))


def is_step_time(record: Record) -> bool:
    """Whether a record is of the length of a step."""
    *aggregates, metric = record.subject.split()
    return metric in STEP_TIMES and ONE_OF_MANY.issuperset(aggregates)


def is_of_kernels(record: Record) -> bool:
    """Whether a record is of how long the kernels of a step take, from the first to the last, and not of the step
    itself.
    """
    return record.subject.split()[-1] == WINDOW and record.verdict.measured_as.endswith(OF_KERNELS)


# The step


def most_moved(steps: Iterable[StepTold]) -> StepTold | None:
    """Return the step whose length changed most, before windows and quantiles; None of none."""
    is_whole_step = re.compile(r"(?!p\d).*step").fullmatch
    return min(
        steps,
        key=lambda step: (not is_whole_step(step.noun), -abs(step.share), step.address, -step.before_ns),
        default=None,
    )


def step_of(record: Record) -> StepTold | None:
    """Return what happened to the step in the windows of an assertion; None where no length before is known."""
    rows = failed_rows(record)
    step = record.verdict.step or _lengths(rows if is_step_time(record) else ())
    baseline_ns, current_ns = step.slowest
    quantile = rows[0].labels.get("quantile", USUAL) if rows and record.verdict.step is None else USUAL
    noun = _noun(record) if quantile == USUAL else f"{quantile} step"
    noun = f"{record.kind} {noun}" if record.kind and noun.endswith("step") else noun
    return StepTold(record.address, baseline_ns, current_ns, noun) if baseline_ns else None


def _period_of(record: Record) -> StepTold | None:
    """Return what happened to the median step, whose length an assertion judges; None where it does not, or none is
    stored.
    """
    rows = record.verdict.rows if record.subject.split()[-1] in (PERIOD, STEP_TIME) else ()
    baseline_ns, current_ns = _lengths(row for row in rows if _labels(row).get("quantile", USUAL) == USUAL).slowest
    return StepTold(record.address, baseline_ns, current_ns) if baseline_ns else None


def _steady(step: StepTold, periods: Mapping[str, StepTold]) -> StepTold:
    """Return the median step in place of one that is nearly unchanged, where the median is unchanged: one need not be
    typical.
    """
    median_step = periods.get(step.address)
    return (
        median_step
        if median_step is not None and median_step.unchanged and abs(step.share) < NEARLY_UNCHANGED
        else step
    )


def _noun(record: Record) -> str:
    """Return what the lengths are of that an assertion knows: of step times steps, whatever its window is."""
    metric, windows = record.assertion.metric, record.verdict.windows
    if metric == PERIOD and any(used.window.name == RUN for used in windows):
        return "period"
    return "step" if metric == STEP_TIME else noun_of(windows)


def _lengths(rows: Iterable[JudgedRow]) -> StepChange:
    """Return the lengths of steps before and now by rank, as far as these rows say."""
    lengths_by_rank = {_rank(row.labels): (round(row.baseline), round(row.value or 0)) for row in rows if row.baseline}
    return StepChange(
        {rank: lengths_ns[0] for rank, lengths_ns in lengths_by_rank.items()},
        {rank: lengths_ns[1] for rank, lengths_ns in lengths_by_rank.items()},
    )


def _rank(labels: Mapping[str, Label]) -> int:
    """Return the rank of a row; 0 of a row of no single rank."""
    rank = labels.get("rank")
    return rank if isinstance(rank, int) else 0


# The roots


class _Places:
    """Finds which root a failed row stands below.

    It is the row's own root, or that of the same place and kind in another assertion; of a row that waits for a rank it
    is what made that rank late.
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
        """Return what a row is of and how it is explained, whichever assertion judges it: overlap is explained as
        exposed time.
        """
        metric = metric_called(record.assertion.metric)
        explainer = metric.explained_by if metric is not None else ""
        return record.address, EXPOSED if explainer in EXPLAINED_AS_EXPOSED else explainer, _place(labels)

    def of(self, record: Record, row: JudgedRow) -> Change | None:
        """Return what is at the root of a failed row; None where nothing is known."""
        labels = _labels(row)
        if not labels:
            return next((explained.roots[0] for explained in explained_rows(record) if explained.roots), None)
        return self._known.get(self._of(record, labels)) or self._late(record, labels)

    def _late(self, record: Record, labels: Mapping[str, Label]) -> Change | None:
        """Return what made the rank late that a row waits for; None where no row shows it."""
        # Only a change on the late rank in windows that show it: another window may begin just when that rank comes.
        same_place = (candidate for candidate in record.verdict.causes if _place(candidate.labels) == _place(labels))
        leading_cause = next((candidate.explanation.leading for candidate in same_place), None)
        late_rank = leading_cause.straggler if leading_cause is not None else None
        changes = self._changes.get(record.address, {})
        late_changes = (candidate for candidate in changes if candidate.rank == late_rank and candidate.change_ns > 0)
        return max(late_changes, key=lambda candidate: (candidate.change_ns, candidate), default=None)

    def rooted(self, record: Record) -> dict[Root, list[JudgedRow]]:
        """Return the failed rows of a record by root; the last of each are rows of other ranks without a root of their
        own.
        """
        rooted_rows, rootless_rows = self._told(record)
        rows_by_root = grouped((_all_stages(change.root), row) for change, row in rooted_rows)
        root_by_place = {_but_rank(row): root for root, rows in reversed(rows_by_root.items()) for row in rows}
        for row in rootless_rows:
            if root := root_by_place.get(_but_rank(row)):
                rows_by_root[root].append(row)
        return rows_by_root

    def without_root(self, record: Record) -> tuple[JudgedRow, ...]:
        """Return the failed rows that stand below no root, and whose place has none on any other rank either."""
        rooted_rows, rootless_rows = self._told(record)
        rooted_places = {_but_rank(row) for _, row in rooted_rows}
        return tuple(row for row in rootless_rows if _but_rank(row) not in rooted_places)

    def _told(self, record: Record) -> tuple[list[tuple[Change, JudgedRow]], list[JudgedRow]]:
        """Return the failed rows with a root, each with that, and those without one."""
        pairs = [(self.of(record, row), row) for row in failed_rows(record)]
        return [(change, row) for change, row in pairs if change], [row for change, row in pairs if not change]


def failed_rows(record: Record) -> list[JudgedRow]:
    """Return the rows for which an assertion is red, accepted or better, the worst first."""
    rows = record.verdict.rows if record.outcome in MOVED else ()
    return [row for row in rows if row.outcome is record.outcome and not row.waived]


def explained_rows(record: Record) -> list[Explained]:
    """Return the failed rows that are explained, in their order."""
    failed_places = {_place(_labels(row)) for row in failed_rows(record)}
    return [
        explained
        for explained in record.verdict.causes
        if _place({}) in failed_places or _place(explained.labels) in failed_places
    ]


def _place(labels: Mapping[str, Label]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((dimension, str(label)) for dimension, label in labels.items()))


def _but_rank(row: JudgedRow) -> tuple[tuple[str, str], ...]:
    return _place({dimension: label for dimension, label in _labels(row).items() if dimension != "rank"})


def _labels(row: JudgedRow) -> dict[str, Label]:
    """Return the labels by which a failed row is explained; none of a step time, which one rank explains."""
    return {**row.origin, **row.labels}


def _roots(reds: Sequence[Record], places: _Places) -> Iterator[StoryRoot]:
    reds_by_root = grouped(
        (root, Red(record, tuple(rows))) for record in reds for root, rows in places.rooted(record).items()
    )
    explained_by_root = grouped(
        (_all_stages(change.root), (record.address, row, change))
        for record in reds
        for row in explained_rows(record)
        for change in row.roots
    )
    for root, explained_changes in explained_by_root.items():
        alike_changes = (
            (address, alike_change)
            for address, row, _ in explained_changes
            for alike_change in row.alike
            if _all_stages(alike_change.root) == root
        )
        changes = _changes(chain(((address, change) for address, _, change in explained_changes), alike_changes))
        waiting_rows = [
            row
            for address, row, change in explained_changes
            if (address, row.labels.get("rank", change.rank)) not in changes
        ]
        ranks = sorted({_rank(row.labels) for row in waiting_rows})
        stages = sorted({change.root.stage for _, _, change in explained_changes} - {"", NO_STAGE})
        yield StoryRoot(
            root, tuple(stages), changes, tuple(reds_by_root.get(root, ())), tuple(ranks), _waits_in(waiting_rows)
        )


def _all_stages(root: Root) -> Root:
    return root._replace(stage="")


def _changes(told: Iterable[tuple[str, Change]]) -> dict[tuple[str, int], Change]:
    """Return the sum of the changes over stages, by address and rank."""
    largest: dict[tuple[str, int, str], Change] = {}
    for address, change in told:
        key = address, change.rank, change.root.stage
        # Several rows tell of one change, each as far as its own windows show it: the largest is all of it.
        largest[key] = max(
            largest.get(key, change), change, key=lambda candidate: (abs(candidate.change_ns), candidate)
        )
    total_by_rank: dict[tuple[str, int], Change] = {}
    for (address, rank, _), change in sorted(largest.items()):
        known_change = total_by_rank.get((address, rank))
        total_by_rank[address, rank] = (
            change._replace(root=_all_stages(change.root)) if known_change is None else _sum(known_change, change)
        )
    return total_by_rank


def _sum(one: Change, other: Change) -> Change:
    baseline_ns, current_ns = one.before_ns + other.before_ns, one.now_ns + other.now_ns
    return one._replace(
        before_ns=baseline_ns, now_ns=current_ns, was=one.was + other.was, is_now=one.is_now + other.is_now
    )


def _waits_in(rows: Sequence[Explained]) -> str:
    """Return the kernel in which most of these rows wait; empty where none is known."""
    names = [cause.root.name for row in rows for cause in row.explanation.causes[:1] if cause.root.name]
    return max(sorted(set(names)), key=names.count, default="")


def _worth_telling(roots: Iterable[StoryRoot]) -> Iterator[StoryRoot]:
    """Yield the roots to tell, the largest first; those of a step's length lead, and those without a red come last.

    Small roots without a red are left out.
    """
    sorted_roots = sorted(
        roots, key=lambda root: (not root.of_step, not root.reds, -abs(root.largest.change_ns), root.root)
    )
    # A root with a red is told however small it is.
    min_ns = max((abs(root.largest.change_ns) for root in sorted_roots), default=0) * FOLDED_SHARE
    return (root for root in sorted_roots if root.reds or abs(root.largest.change_ns) >= min_ns)


# What was not judged


def _not_judged(records: Sequence[Record]) -> Iterator[NotJudged]:
    """Yield each thing that kept assertions of a gate file from being judged, once, however many assertions it is."""
    for outcome in NOT_JUDGED:
        records_by_reason = grouped(
            ((record.file, _mistake(record)), record) for record in records if record.state == outcome
        )
        for records_alike in records_by_reason.values():
            yield NotJudged(outcome, records_alike[0].message, tuple(records_alike))


def _mistake(record: Record) -> str:
    """Return what is wrong, without the names of trace and configuration."""
    message = record.message
    for name in filter(None, (*record.traces, record.configuration)):
        message = message.replace(name, "")
    return message
