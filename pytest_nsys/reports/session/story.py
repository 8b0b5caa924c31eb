"""What happened, told once? The step, every red of a session below what is at its root, and what was not judged.

All outputs tell this, each as long as it has room for: the first line is :mod:`pytest_nsys.reports.headline`. Nothing
depends on the order in which the records came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from pytest_nsys.analysis.explained import Cause, CauseKind, Explained
from pytest_nsys.analysis.metrics import metric_called
from pytest_nsys.analysis.root_facts import Root, RootChange, RootKind, RootOf, StepChange
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Label
from pytest_nsys.gates.model import JudgedRow, Outcome, Verdict
from pytest_nsys.reports.session.digest import Digest, worst_first
from pytest_nsys.reports.session.record import Record

UNCHANGED = Fraction(5, 1000)
"""A step whose length moved by less is unchanged."""

FOLDED_SHARE = Fraction(5, 100)
"""A root behind less of a row's change is not told of it."""

STEP_TIMES = frozenset({"window_ns", "period_ns", "step_time_ns"})
"""Metrics that are the length of a step."""

USUAL = "p50"
"""The quantile of periods that is the length of a step."""

ONE_OF_MANY = frozenset({"max", "median", "mean", "min"})
"""Aggregates of lengths of a step that are the length of one."""

NOT_JUDGED = (Outcome.ERROR, Outcome.INCOMPARABLE, Outcome.NO_DATA, Outcome.INCONCLUSIVE)


class StepTold(NamedTuple):
    """What happened to the step of a gate file or configuration: that of the slowest rank, before and now, in ns.

    ``noun`` is *window* where the windows are no steps.
    """

    address: str
    before_ns: int
    now_ns: int
    noun: str = "step"

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
    """A root, and every red that it explains. ``changes`` are by address and rank where it happened.

    ``waiting`` are the ranks of rows that wait for those ranks, and ``waits_in`` the kernel in which they do. ``reds``
    is empty where all that it explains stands below a larger root.
    """

    root: Root
    changes: Mapping[tuple[str, int], RootChange]
    reds: tuple[Red, ...] = ()
    waiting: tuple[int, ...] = ()
    waits_in: str = ""

    @property
    def ranks(self) -> list[int]:
        return sorted({rank for _, rank in self.changes})

    @property
    def addresses(self) -> list[str]:
        """The gate files, or configurations of them, in which it happened."""
        return sorted({address for address, _ in self.changes})

    @property
    def range_ns(self) -> tuple[int, int]:
        """The least and the greatest change over ranks."""
        moved = [change.change_ns for change in self.changes.values()]
        return min(moved), max(moved)

    @property
    def largest(self) -> RootChange:
        """The change of the rank on which most changed."""
        return min(self.changes.values(), key=lambda change: (-abs(change.change_ns), change.rank))


class NotJudged(NamedTuple):
    """One thing that kept assertions of one gate file from being judged, and how many."""

    outcome: Outcome
    message: str
    records: tuple[Record, ...]


class Story(NamedTuple):
    """``roots`` come largest first, those that explain the length of a step before all others.

    ``unexplained`` are reds below no root. ``warning``: nothing failed, and all is of assertions that only warn.
    ``worlds`` is the number of ranks by address, of all addresses that were judged.
    """

    step: StepTold | None
    roots: tuple[StoryRoot, ...]
    unexplained: tuple[Red, ...]
    not_judged: tuple[NotJudged, ...]
    worlds: Mapping[str, int | None]
    warning: bool = False

    @property
    def reds(self) -> list[Red]:
        return [*(red for root in self.roots for red in root.reds), *self.unexplained]

    @property
    def failed(self) -> list[str]:
        """The addresses with a red."""
        return sorted({red.record.address for red in self.reds})


def story_of(digest: Digest) -> Story:
    """What happened in a session; of one in which nothing failed, what its warnings tell."""
    records = sorted(digest.records, key=lambda record: record.known_by)
    reds = [record for record in records if record.state == Outcome.FAILED]
    warned = [r for r in records if r.outcome is Outcome.FAILED and r.good and not r.xfailed]
    told = led_by(reds or warned)
    places = _Places(told)
    rootless = (Red(record, places.without_root(record)) for record in told)
    return Story(
        _step(told),
        tuple(sorted(_roots(told, places), key=_largest_first)),
        tuple(red for red in rootless if red.rows or not failed_rows(red.record)),
        tuple(_not_judged(records)),
        {record.address: record.key.world if record.key is not None else None for record in records},
        warning=not reds and bool(warned),
    )


def led_by(records: Iterable[Record]) -> list[Record]:
    """The worst first, but the length of a step above all else."""
    return sorted(worst_first(records), key=lambda record: not (record.is_open and is_step_time(record)))


def is_step_time(record: Record) -> bool:
    """Whether a record is of the length of a step."""
    *aggregates, metric = record.subject.split()
    return metric in STEP_TIMES and ONE_OF_MANY.issuperset(aggregates)


# The step


def _step(reds: Sequence[Record]) -> StepTold | None:
    """Of the address whose step moved most the step; None where no side before is known."""
    found = [told for record in reds if (told := _step_of(record)) is not None]
    return min(found, key=lambda t: (t.noun != "step", -abs(t.share), t.address, -t.before_ns), default=None)


def _step_of(record: Record) -> StepTold | None:
    step = record.verdict.step or _lengths(record)
    shared = step.before_ns.keys() & step.now_ns.keys()
    before, now = (max((side[rank] for rank in shared), default=0) for side in step)
    return StepTold(record.address, before, now, noun_of(record.verdict)) if before else None


def _lengths(record: Record) -> StepChange:
    """The lengths of steps as far as the rows say, or the budgets of those that are explained."""
    if is_step_time(record):
        rows = [row for row in failed_rows(record) if row.labels.get("quantile", USUAL) == USUAL]
        known = {_rank(row.labels): (round(row.baseline), round(row.value or 0)) for row in rows if row.baseline}
    else:
        budgets = [(_rank(row.labels), row.explanation.budget) for row in explained_rows(record)]
        known = {rank: (budget.before_ns, budget.now_ns) for rank, budget in budgets if budget is not None}
    return StepChange({rank: both[0] for rank, both in known.items()}, {rank: both[1] for rank, both in known.items()})


def _rank(labels: Mapping[str, Label]) -> int:
    """The rank of a row; of one that is of no one rank 0."""
    rank = labels.get("rank")
    return rank if isinstance(rank, int) else 0


def noun_of(verdict: Verdict) -> str:
    """What the windows are: steps, as far as their names say so."""
    names = {used.window.name.lower() for used in verdict.windows}
    return "step" if all("step" in name or "iteration" in name for name in names) else "window"


# The roots


class _Places:
    """Which root a failed row stands below: its own, or that of the same place and kind in another assertion."""

    def __init__(self, reds: Sequence[Record]) -> None:
        self._known: dict[tuple[object, ...], RootChange] = {}
        for record in reversed(reds):
            for row in explained_rows(record):
                if changes := roots_of(row):
                    self._known[self._of(record, row.labels)] = changes[0]

    @staticmethod
    def _of(record: Record, labels: Mapping[str, Label]) -> tuple[object, ...]:
        """What a row is of, and how it is explained, whichever assertion judges it: overlap as exposed time is."""
        metric = metric_called(record.assertion.metric)
        return record.address, metric.explained_by if metric is not None else None, _place(labels)

    def of(self, record: Record, row: JudgedRow) -> RootChange | None:
        """What is at the root of a failed row; None where nothing is known."""
        if labels := _labels(row):
            return self._known.get(self._of(record, labels))
        return next((changes[0] for each in explained_rows(record) if (changes := roots_of(each))), None)

    def rooted(self, record: Record) -> dict[Root, list[JudgedRow]]:
        pairs = ((self.of(record, row), row) for row in failed_rows(record))
        return grouped((change.root, row) for change, row in pairs if change is not None)

    def without_root(self, record: Record) -> tuple[JudgedRow, ...]:
        return tuple(row for row in failed_rows(record) if self.of(record, row) is None)


def failed_rows(record: Record) -> list[JudgedRow]:
    """The rows for which an assertion is red, the worst first."""
    return [row for row in record.verdict.rows if row.outcome is Outcome.FAILED and not row.waived]


def explained_rows(record: Record) -> list[Explained]:
    """Those of the failed rows that are explained, in their order."""
    failed = {_place(_labels(row)) for row in failed_rows(record)}
    return [each for each in record.verdict.causes if _place({}) in failed or _place(each.labels) in failed]


def _place(labels: Mapping[str, Label]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((dimension, str(label)) for dimension, label in labels.items()))


def _labels(row: JudgedRow) -> dict[str, Label]:
    """Those by which a failed row is explained; none of a step time, which is explained by one rank."""
    return {**row.origin, **row.labels}


def _roots(reds: Sequence[Record], places: _Places) -> Iterator[StoryRoot]:
    below = grouped((root, Red(record, tuple(rows))) for record in reds for root, rows in places.rooted(record).items())
    explained = grouped(
        (change.root, (record.address, row, change))
        for record in reds
        for row in explained_rows(record)
        for change in roots_of(row)
    )
    for root, told in explained.items():
        changes: dict[tuple[str, int], RootChange] = {}
        for address, _, change in told:
            at = address, change.rank
            changes[at] = max(changes.get(at, change), change, key=lambda c: (abs(c.change_ns), c))
        waits = [row for address, row, change in told if (address, row.labels.get("rank", change.rank)) not in changes]
        ranks = sorted({_rank(row.labels) for row in waits})
        yield StoryRoot(root, changes, tuple(below.get(root, ())), tuple(ranks), _waits_in(waits))


def _waits_in(rows: Sequence[Explained]) -> str:
    """The kernel in which most of these rows wait."""
    names = [cause.kernel for row in rows for cause in row.explanation.causes[:1] if cause.kernel]
    return max(sorted(set(names)), key=names.count, default="")


def _largest_first(root: StoryRoot) -> tuple[bool, int, Root]:
    steps = any(is_step_time(red.record) for red in root.reds)
    return not steps, -abs(root.largest.change_ns), root.root


def roots_of(row: Explained) -> list[RootChange]:
    """The roots behind a row that are worth telling, the largest first."""
    if not row.roots:
        leading = row.explanation.leading
        return [] if leading is None else [_root_of(leading, row)]
    least = abs(row.explanation.change_ns) * FOLDED_SHARE
    return [change for number, change in enumerate(row.roots) if not number or abs(change.change_ns) >= least]


_COLLECTIVE = (CauseKind.EXPOSED, CauseKind.WAITS, CauseKind.BARRIER, CauseKind.MOVED, CauseKind.BLOCKS)
_HOST = (CauseKind.LAUNCH_BOUND, CauseKind.STARVED, CauseKind.IDLE, CauseKind.STALLED, CauseKind.BESIDE)
_KINDS = {
    CauseKind.SHORTER: RootKind.SHORTER,
    CauseKind.COVER_SHRANK: RootKind.SHORTER,
    CauseKind.APPEARED: RootKind.APPEARED,
    CauseKind.VANISHED: RootKind.VANISHED,
    CauseKind.COVER_VANISHED: RootKind.VANISHED,
    CauseKind.COVER_LATE: RootKind.LATER,
    CauseKind.WAITS: RootKind.LATER,
    CauseKind.SLOWEST: RootKind.LATER,
    CauseKind.COVER_MOVED: RootKind.ELSEWHERE,
    CauseKind.COVER_GREW: RootKind.ELSEWHERE,
    CauseKind.MOVED: RootKind.ELSEWHERE,
}


def _root_of(cause: Cause, row: Explained) -> RootChange:
    """What leads, as the root of a row for which none was looked for."""
    own = row.labels.get("rank")
    rank = cause.straggler if cause.straggler is not None else own if isinstance(own, int) else 0
    of = RootOf.COLLECTIVE if cause.kind in _COLLECTIVE else RootOf.HOST if cause.kind in _HOST else RootOf.KERNEL
    kind = _KINDS.get(cause.kind, RootKind.LONGER if cause.now_ns >= cause.before_ns else RootKind.SHORTER)
    if cause.kind in (CauseKind.COMPUTE, CauseKind.EXPOSED) and cause.was != cause.kernels:
        kind = RootKind.APPEARED if cause.kernels > cause.was else RootKind.VANISHED
    root = Root(kind, of if cause.kernel else RootOf.ALL, cause.kernel, str(row.labels.get("stage", "")))
    return RootChange(root, rank, cause.before_ns, cause.now_ns, cause.was, cause.kernels)


# What was not judged


def _not_judged(records: Sequence[Record]) -> Iterator[NotJudged]:
    """One mistake of a gate file once, however many assertions it keeps from being judged."""
    for outcome in NOT_JUDGED:
        own = grouped(((record.file, record.message), record) for record in records if record.state == outcome)
        for (_, message), same in own.items():
            yield NotJudged(outcome, message, tuple(same))
