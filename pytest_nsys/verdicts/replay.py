"""What would a gate file have said of the runs that the history keeps?

Each run is judged by its stored rows, by the rules that judge a session. A limit from the stored baseline is held
against the run that was accepted last before it, by a refresh; where none was, against the run before. A limit from the
history follows the runs in which its assertion held, as replayed. What needs the traces again is not replayed: bounds
of ``quality``, measured noise, causes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import chain, combinations, islice

from pytest_nsys.analysis.metrics import Better, Metric, measured
from pytest_nsys.analysis.table import MetricTable, count_unstaged
from pytest_nsys.analysis.windows import spec_under
from pytest_nsys.core.conventions import BUILT_IN, Convention
from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.families import LIBRARIES
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Row, Value
from pytest_nsys.gates.comparability import are_alike
from pytest_nsys.gates.judgement import BadRuns, Judgement, PastRun, Reference, delayed, judge
from pytest_nsys.gates.model import Assertion, FromBaseline, FromHistory, GateFile, Outcome, Verdict, spec_for
from pytest_nsys.gates.names import names_of_others
from pytest_nsys.gates.settling import settled_as
from pytest_nsys.stored.baselines.baseline_file import NO_WINDOW, RowLabels, SeriesId, series_id
from pytest_nsys.stored.history.database import REFRESH
from pytest_nsys.stored.history.of_assertion import OfAssertion, RunState, standing
from pytest_nsys.stored.history.reading import History, HistorySeries, StoredRun, newest
from pytest_nsys.verdicts.evaluate import message_of
from pytest_nsys.verdicts.references import follow_runs, in_common


class After(enum.StrEnum):
    """What became of a red: of the same rows in the next comparable run, held against the same."""

    STILL = "still there in the next run"
    BACK = "back in the next run"
    NOISE = "back in the next run of the same commit"
    ACCEPTED = "accepted by a refresh"
    LAST = "no later run"


@dataclass(frozen=True)
class Replayed:
    """What an assertion says of one run. ``against`` is the run that it is held against, where that is one.

    ``after`` is what became of it where it is red.
    """

    verdict: Verdict
    against: StoredRun | None = None
    after: After | None = None

    @property
    def red(self) -> bool:
        """Whether the session had failed by it: by what is expected to fail, unless it did."""
        failed = self.verdict.outcome is Outcome.FAILED and not self.verdict.good
        return not (failed if self.verdict.assertion.xfail is not None else self.verdict.good)

    @property
    def bad(self) -> bool:
        """Whether it failed, also where that is delayed."""
        return self.verdict.delayed or self.verdict.outcome is Outcome.FAILED

    @property
    def out(self) -> bool:
        """Whether no limit may follow the run: a row is outside its limit, new or lost, or *inconclusive* and red."""
        margin, outcome = self.verdict.margin, self.verdict.outcome
        unclear = outcome is Outcome.INCONCLUSIVE and not self.verdict.good
        unmatched = outcome is Outcome.NO_DATA and bool(self.verdict.rows)
        return self.bad or unclear or unmatched or (margin is not None and margin < 0)


@dataclass(frozen=True)
class ReplayedRun:
    """One run; without ``found`` nothing could be judged on it."""

    run: StoredRun
    found: tuple[Replayed, ...]

    @property
    def red(self) -> bool:
        return any(each.red for each in self.found)


@dataclass
class Replay:
    """A gate file over the runs of a history, oldest first: those of its own, as the caller has chosen them.

    ``last``: of each key only so many are told. What the others say is known all the same: limits and ``fail_after``
    look back at them.
    """

    gate: GateFile
    history: History
    last: int | None = None
    _reasons: dict[str, str] = field(default_factory=dict)
    _said: dict[tuple[str, int], Replayed] = field(default_factory=dict)

    @cached_property
    def runs(self) -> Sequence[ReplayedRun]:
        """What the gate says of each run that is told."""
        told = {run.id for run in newest(self.history.runs, self.last)}
        each = (ReplayedRun(run, tuple(self._judged(place, run))) for place, run in enumerate(self.history.runs))
        return [replayed for replayed in each if replayed.run.id in told]

    @property
    def not_replayed(self) -> Mapping[str, str]:
        """The assertions that were judged on no run, and why."""
        judged = {each.verdict.assertion.name for run in self.runs for each in run.found}
        left = (assertion for assertion in self.gate.assertions if assertion.name not in judged)
        return {each.full_name: self._reasons.get(each.name, "no run has its rows") for each in left}

    def _judged(self, place: int, run: StoredRun) -> Iterator[Replayed]:
        for assertion in self.gate.assertions:
            try:
                found = self._one(assertion, place, run)
            except (_NotReplayed, NsysError) as why:
                self._reasons[assertion.name] = str(why)
            else:
                self._said[assertion.name, run.id] = found
                yield found

    def _one(self, assertion: Assertion, place: int, run: StoredRun) -> Replayed:
        stored = self._series(assertion, run)
        settled = _settled(assertion, stored, run)
        reference, against = self._reference(settled, stored, place)
        judgement = self._held(settled, stored, run, reference)
        verdict = _verdict(settled, judgement, self._waited(settled, judgement, stored, place))
        found = Replayed(verdict, against)
        if not found.red or verdict.outcome is not Outcome.FAILED:
            return found
        return Replayed(verdict, against, self._after(settled, stored, place, reference))

    def _held(
        self, assertion: Assertion, stored: HistorySeries, run: StoredRun, reference: Reference | None
    ) -> Judgement:
        now = _table(assertion.measures, _rows(stored, run), run)
        return judge(assertion, now, reference, datetime.fromisoformat(run.time).date())

    def _waited(self, assertion: Assertion, judgement: Judgement, stored: HistorySeries, place: int) -> Judgement:
        """The judgement after ``fail_after``, which counts what was replayed on the branch."""
        if assertion.fail_after == 1 or judgement.outcome is not Outcome.FAILED:
            return judgement
        return delayed(judgement, assertion.fail_after, self._bad_in_a_row(assertion, stored, place))

    def _bad_in_a_row(self, assertion: Assertion, stored: HistorySeries, place: int) -> BadRuns | None:
        """The last runs of the branch in which the assertion was bad, up to one that held or was accepted; None where
        it was judged in no run of the branch.
        """
        branch = self.history.runs[place].branch
        if branch is None:
            return None
        found, judged = list[PastRun](), False
        for run, _ in self._alike(stored, place, before=True):
            said = self._said.get((assertion.name, run.id))
            if run.branch != branch:
                continue
            if self._accepted(assertion, stored.sid, run):
                return BadRuns(branch, tuple(found))
            if said is not None and said.bad:
                red = said.verdict.outcome is Outcome.FAILED and said.red and assertion.xfail is None
                found.append(PastRun(run.time, run.commit, red))
            elif said is not None and said.verdict.outcome in (Outcome.PASSED, Outcome.IMPROVED):
                return BadRuns(branch, tuple(found))
            judged = judged or (said is not None and said.verdict.outcome is Outcome.INCONCLUSIVE)
        return BadRuns(branch, tuple(found)) if found or judged else None

    def _series(self, assertion: Assertion, run: StoredRun) -> HistorySeries:
        """The rows of the run that the assertion reads. Raises _NotReplayed."""
        if assertion.pipeline:
            raise _NotReplayed("the rule of pipeline: needs serialization, which no history keeps")
        if run.key is None:
            raise _NotReplayed("its runs ended in error")
        convention, metric = self.gate.convention, assertion.measures
        if convention is not None and run.key.get("convention") not in _fingerprints(convention):
            raise _NotReplayed("its runs were measured under another convention")
        named = [s for s in self._by_run.get(run.id, ()) if s.sid.metric == metric.name]
        if not named:
            raise _NotReplayed(f"no run has rows of {metric.name}: runs under this gate file store them")
        own = [s for s in named if s.sid.definition == metric.definition]
        if not own:
            raise _NotReplayed(f"{metric.name} was of definition {named[0].sid.definition}, now {metric.definition}")
        fitting = [s for s in own if _measured_so(assertion, s.sid, convention)]
        if not fitting:
            raise _NotReplayed(f"{metric.name} was measured otherwise: {', '.join(own[0].sid.how)}")
        if len({s.sid for s in fitting}) > 1:
            hows = "; ".join(", ".join(s.sid.how) for s in fitting)
            raise _NotReplayed(f"{metric.name} was measured in several ways ({hows}): name the convention")
        return fitting[0]

    @cached_property
    def _by_run(self) -> Mapping[int, list[HistorySeries]]:
        """What was measured in each run."""
        return grouped((run, s) for s in self.history.series for run in dict.fromkeys(chain(*s.rows.values())))

    @cached_property
    def _refreshed(self) -> frozenset[int]:
        """The runs that were accepted."""
        verdicts = self.history.verdicts.items()
        return frozenset(run for run, own in verdicts if any(each["outcome"] == REFRESH for each in own))

    def _accepted(self, assertion: Assertion, sid: SeriesId, run: StoredRun) -> bool:
        """Whether the run was accepted: for the assertion, or where that did not run for any."""
        if run.id not in self._refreshed:
            return False
        own = OfAssertion(assertion, sid, names_of_others(assertion, self.gate)).own(self.history.verdicts[run.id])
        return not own or standing(own, assertion) is RunState.ACCEPTED

    def _reference(
        self, assertion: Assertion, stored: HistorySeries, place: int
    ) -> tuple[Reference | None, StoredRun | None]:
        """What the run is held against, and the one run that it is. Raises _NotReplayed where it is the first."""
        limit = assertion.require.limit
        if not isinstance(limit, FromBaseline):
            return None, None
        if limit.history is not None:
            return self._of_history(assertion, limit.history, stored, place), None
        earlier = self._alike(stored, place, before=True)
        judged = (
            (run, rows)
            for run, rows in earlier
            if self._accepted(assertion, stored.sid, run)
            or not (run.outcome == Outcome.ERROR or self._is_itself(place, run))
        )
        last = next(judged, None)
        if last is None:
            raise _NotReplayed("there is no earlier comparable run")
        accepted = (pair for pair in chain([last], judged) if self._accepted(assertion, stored.sid, pair[0]))
        run, rows = (next(accepted, None) if self._refreshed else None) or last
        return Reference([_table(assertion.measures, rows, run)], origin=run.time), run

    def _of_history(self, assertion: Assertion, asked: FromHistory, stored: HistorySeries, place: int) -> Reference:
        followed = self._followed(assertion, asked, stored, place)
        runs = [*islice(followed, asked.lag, asked.lag + asked.runs)][::-1]
        tables = [_table(assertion.measures, rows, runs[-1][0]) for rows in in_common([rows for _, rows in runs])]
        if not tables:
            raise _NotReplayed("there are no earlier comparable runs")
        return follow_runs(assertion, tables, asked.source)

    def _followed(
        self, assertion: Assertion, asked: FromHistory, stored: HistorySeries, place: int
    ) -> Iterator[tuple[StoredRun, Mapping[RowLabels, Value]]]:
        """The earlier runs that the limit follows, the newest first: those in which it held, from the last accepted one
        on; of a commit's runs on one branch the first.
        """
        for run, rows in self._alike(stored, place, before=True):
            if asked.branch not in (None, run.branch):
                continue
            said = self._said.get((assertion.name, run.id))
            accepted = self._accepted(assertion, stored.sid, run)
            if not accepted and self._is_itself(place, run):
                continue
            if accepted or not ((said is not None and said.out) or self._again(stored, place, run)):
                yield run, rows
            if accepted:
                return

    def _is_itself(self, place: int, run: StoredRun) -> bool:
        """Whether a run is of the commit of that at ``place``, which is never held to itself."""
        return run.commit is not None and run.commit == self.history.runs[place].commit

    def _again(self, stored: HistorySeries, place: int, run: StoredRun) -> bool:
        """Whether a run that is comparable with the one at ``place`` is another one of an earlier one's commit."""
        same = self._of_commit.get((run.commit, run.branch), ()) if run.commit is not None else ()
        earlier = (other for other in same if other.id < run.id)
        return any(self._rows_alike(stored, place, other) is not None for other in earlier)

    @cached_property
    def _of_commit(self) -> Mapping[tuple[str | None, str | None], list[StoredRun]]:
        return grouped(((run.commit, run.branch), run) for run in self.history.runs)

    def _alike(
        self, stored: HistorySeries, place: int, *, before: bool
    ) -> Iterator[tuple[StoredRun, Mapping[RowLabels, Value]]]:
        """The runs before or after one, the nearest first, that are comparable with it and have the same rows."""
        runs = self.history.runs
        for at in range(place - 1, -1, -1) if before else range(place + 1, len(runs)):
            if (rows := self._rows_alike(stored, place, runs[at])) is not None:
                yield runs[at], rows

    def _rows_alike(self, stored: HistorySeries, place: int, run: StoredRun) -> Mapping[RowLabels, Value] | None:
        """The same rows of a run that is comparable with the one at ``place``; None where it is not, or has none."""
        now = self.history.runs[place]
        circumstances = {**(now.key or {}), **now.facts}
        was = {**(run.key or {}), **run.facts}
        on, unit, window = self.gate.comparable_on, stored.unit, stored.sid.window
        if run.key is None or not are_alike(circumstances, was, on, unit=unit, window=window):
            return None
        own = next((s for s in self._by_run.get(run.id, ()) if (s.sid, s.unit) == (stored.sid, stored.unit)), None)
        return _rows(own, run) if own is not None and own.dimensions == stored.dimensions else None

    def _after(self, assertion: Assertion, stored: HistorySeries, place: int, reference: Reference | None) -> After:
        """What became of it in the next comparable run of the branch."""
        run = self.history.runs[place]
        if self._accepted(assertion, stored.sid, run):
            return After.ACCEPTED
        for later, rows in self._alike(stored, place, before=False):
            if later.branch != run.branch:
                continue
            day = datetime.fromisoformat(later.time).date()
            if judge(assertion, _table(assertion.measures, rows, later), reference, day).outcome is Outcome.FAILED:
                return After.STILL
            same = run.commit is not None and later.commit == run.commit and not (run.dirty or later.dirty)
            return After.NOISE if same else After.BACK
        return After.LAST


class _NotReplayed(Exception):
    """Why an assertion is not judged on a run, in words."""


def _fingerprints(convention: Convention) -> set[str]:
    """Those that runs under the convention may have: without, and with, kernels of libraries that it knows."""
    known = [library.name for library in LIBRARIES] if convention.libraries else []
    some = [among for count in range(3) for among in combinations(known, count)]
    return {convention.fingerprint(added) for added in some}


def _measured_so(assertion: Assertion, sid: SeriesId, convention: Convention | None) -> bool:
    """Whether rows were measured as the assertion asks; of a convention that is to be found, as far as that says."""
    if assertion.outside is not None:
        return sid.how == (NO_WINDOW,) * 3
    if convention is not None:
        return sid == series_id(assertion.measures, spec_for(convention, assertion))
    asked = spec_under(BUILT_IN["generic"], assertion.window, assertion.span, assertion.kernels)
    windows = {asked.window, f"{asked.window} {assertion.kind}"} if assertion.kind else {asked.window}
    stated = (
        assertion.span is None or sid.span == asked.span,
        assertion.kernels is None or sid.kernels == asked.kernels,
    )
    return sid.window in windows and all(stated)


def _settled(assertion: Assertion, stored: HistorySeries, run: StoredRun) -> Assertion:
    """The assertion, with what the stored rows say of a measurement. Raises UsageMistake where it does not fit them."""
    if assertion.outside is None:
        return assertion
    name = stored.sid.metric.partition(" ")[2] or stored.sid.metric
    better = Better(stored.better) if stored.better else None
    axes = {axis for own in run.coordinates.values() for axis in own}
    return settled_as(assertion, measured(name, stored.unit, better, stored.dimensions), axes)


def _rows(stored: HistorySeries, run: StoredRun) -> dict[RowLabels, Value]:
    return {labels: values[run.id] for labels, values in stored.rows.items() if run.id in values}


def _table(metric: Metric, rows: Mapping[RowLabels, Value], run: StoredRun) -> MetricTable:
    """The rows of a run as a gate sees them."""
    sizes: dict[str, int] = {}
    for where in run.coordinates.values():
        for axis, at in where.items():
            sizes[axis] = max(sizes.get(axis, 0), at + 1)
    mesh = (run.key or {}).get("mesh")
    sizes |= mesh if isinstance(mesh, dict) else {}
    found = [Row(labels, value) for labels, value in rows.items()]
    mesh_table = MetricTable(metric.dimensions, found, run.coordinates, sizes, metric.every_stage, metric.without)
    return count_unstaged(replace(mesh_table, patchy=metric.over_clocks))


def _verdict(assertion: Assertion, judged: Judgement, waited: Judgement) -> Verdict:
    return Verdict(
        assertion=assertion,
        outcome=waited.outcome,
        message=message_of(assertion, judged),
        unit=assertion.judged.unit,
        rows=waited.rows,
        delayed=waited is not judged,
    )
