"""What did a history see of one assertion: the runs that its limit follows, and how long has it been bad?

A verdict is of the assertion by what it measured, whatever its id was then. The order is that in which runs were
written. Standard library alone: a limit may be read from here in every gate run.
"""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_nsys.analysis.fact_bounds import ENOUGH
from pytest_nsys.core.exact import exact_value
from pytest_nsys.core.model import Value
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.comparability import are_alike
from pytest_nsys.gates.judgement import BadRuns, PastRun
from pytest_nsys.gates.model import Assertion, Outcome, Severity
from pytest_nsys.gates.names import names_of
from pytest_nsys.stored.baselines.baseline_file import RowLabels, SeriesId
from pytest_nsys.stored.history.database import DELAYED, REFRESH, measured_text, reading, selected_text
from pytest_nsys.stored.history.reading import StoredRun, labels_of, records, stored_runs

_BAD = (Outcome.FAILED, Outcome.ACCEPTED, DELAYED)
_ENDING = (Outcome.PASSED, Outcome.IMPROVED, REFRESH)


class RunState(enum.Enum):
    """What a run is to an assertion. ``OUT``: a row was outside its limit; ``ABSENT``: the assertion did not run."""

    HELD = enum.auto()
    OUT = enum.auto()
    ERROR = enum.auto()
    ACCEPTED = enum.auto()
    ABSENT = enum.auto()


@dataclass(frozen=True)
class OfAssertion:
    """One assertion of a gate file, as its verdicts are found again: by what it measures, ``sid``.

    ``others`` are the names that the gate file's other assertions have now: none of their verdicts is its own. But what
    failed under such a name before this one had a verdict is no run to follow: the name may have been its own.
    """

    assertion: Assertion
    sid: SeriesId
    others: Collection[str] = ()

    @cached_property
    def measured(self) -> str:
        """What it measures, as its verdicts say it."""
        return measured_text(self.sid)

    def own(self, verdicts: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Its own of a run's verdicts: under its name, else its full one, else of the same rows, else of any that it
        measures.

        One that could not be measured at all does not say what it is of: it is known by its name.
        """
        names = names_of(self.assertion)
        free = [
            verdict
            for verdict in verdicts
            if verdict["assertion"] not in self.others
            and (
                verdict["measured"] == self.measured or (verdict["measured"] is None and verdict["assertion"] in names)
            )
        ]
        named = ([verdict for verdict in free if verdict["assertion"] == name] for name in names)
        alike = [verdict for verdict in free if verdict["selected"] == selected_text(self.assertion)]
        return next(filter(None, named), None) or alike or free


def standing(own: Sequence[Mapping[str, Any]], assertion: Assertion) -> RunState:
    """What the run with these verdicts of an assertion is to it. Out is also a run with a row that a waiver let pass,
    or that is new or lost, and an *inconclusive* one that is red.
    """
    outcomes = {verdict["outcome"] for verdict in own}
    bad = {*_BAD, Outcome.INCONCLUSIVE} if assertion.severity.inconclusive is Severity.FAIL else {*_BAD}
    if REFRESH in outcomes:
        return RunState.ACCEPTED
    if Outcome.ERROR in outcomes:
        return RunState.ERROR
    if outcomes & bad or any(map(_off, own)):
        return RunState.OUT
    return RunState.HELD if own else RunState.ABSENT


def _off(verdict: Mapping[str, Any]) -> bool:
    """Whether a row is outside its limit, or stands on one side alone; without any row there was nothing to compare."""
    unmatched = verdict["outcome"] == Outcome.NO_DATA and (verdict["value"] is not None or verdict["row"])
    return bool(unmatched) or (verdict["margin"] is not None and exact_value(verdict["margin"]) < 0)


@dataclass(frozen=True)
class PastOf:
    """The runs of a gate file in the history at ``path`` that are alike ``key``, or in what is compared ``on``; ``key``
    may hold the facts as well. Looked at for one assertion.

    ``commits`` are those that the judged run may be of, ``times`` its rows of time that are not 0: what is of its own
    commit, or the same capture, is no run to hold it to.
    """

    path: Path
    gate: str
    key: Mapping[str, Any]
    of: OfAssertion
    on: Collection[str] | None = None
    commits: Collection[str] = ()
    times: Mapping[tuple[SeriesId, RowLabels], Value] = field(default_factory=dict)

    def last_runs(
        self, count: int, branch: str | None = None, lag: int = 0, kind: Mapping[str, str] | None = None
    ) -> list[dict[RowLabels, Value]]:
        """The rows of the last ``count`` runs that the limit may follow, oldest first; the newest ``lag`` that it may
        stay out.

        It follows runs of ``branch`` (None: of any) in which the assertion held, from the last one on that a refresh
        accepted; of a commit's runs on one branch the first that was judged; of the judged run's own commit, or
        capture, what a refresh accepted alone. A run in which the assertion did not run
        counts as long as it had run in none, and nothing of what it measures was bad. ``kind`` are columns of the rows,
        and what they must hold.

        Raises HistoryError.
        """
        with reading(self.path) as connection:
            if connection is None:
                return []
            past = _Past(self, connection, kind or {})
            found: list[dict[RowLabels, Value]] = []
            for run in past.runs({} if branch is None else {"branch": branch}):
                if len(found) == count + lag:
                    break
                accepted = past.standing(run) is RunState.ACCEPTED
                if not accepted and past.is_itself(run):
                    continue
                if past.follows(run) and (accepted or not past.judged_before(run)) and (rows := past.rows(run)):
                    found.append(rows)
                if accepted:
                    break
            return found[lag:][::-1]

    def bad_in_a_row(self, branch: str) -> BadRuns | None:
        """The last runs on a branch in which the assertion was bad, up to one that held or was refreshed; None where
        the branch has no run in which it was judged.

        Those in which it could not be judged, was *inconclusive* by itself or did not run do not end the series.

        Raises HistoryError.
        """
        with reading(self.path) as connection:
            if connection is None:
                return None
            past, found, judged = _Past(self, connection, {}), list[PastRun](), False
            for run in past.runs({"branch": branch}):
                own = past.own(run)
                if bad := [verdict for verdict in own if verdict["outcome"] in _BAD]:
                    found.append(PastRun(run.time, run.commit, any(map(_red, bad))))
                elif any(verdict["outcome"] in _ENDING for verdict in own):
                    return BadRuns(branch, tuple(found))
                judged = judged or any(verdict["outcome"] == Outcome.INCONCLUSIVE for verdict in own)
            return BadRuns(branch, tuple(found)) if found or judged else None


def _red(verdict: Mapping[str, Any]) -> bool:
    """Whether a bad verdict failed its session."""
    return (verdict["outcome"], verdict["severity"], verdict["xfailed"]) == (Outcome.FAILED, Severity.FAIL, 0)


@dataclass
class _Past:
    """An opened history, asked for one assertion."""

    asked: PastOf
    connection: sqlite3.Connection
    kind: Mapping[str, str]

    def runs(self, where: Mapping[str, str], before: StoredRun | None = None) -> Iterator[StoredRun]:
        """The runs alike, newest first."""
        columns = {name: [value] for name, value in {"gate": self.asked.gate, **where}.items()}
        besides = "key IS NOT NULL" + (f" AND id < {before.id}" if before is not None else "")
        asked, assertion = self.asked, self.asked.of.assertion
        unit, window, kind = assertion.measures.unit, assertion.window, assertion.kind
        for run in stored_runs(self.connection, columns, newest_first=True, besides=besides):
            was = {**(run.key or {}), **run.facts}
            if are_alike(asked.key, was, asked.on, unit=unit, window=window, kind=kind):
                yield run

    def own(self, run: StoredRun) -> list[Mapping[str, Any]]:
        """The verdicts of the assertion in a run."""
        return self.asked.of.own(self._of_measured(run))

    def _of_measured(self, run: StoredRun) -> list[Mapping[str, Any]]:
        """The verdicts of a run on what the assertion measures, whosever they are."""
        of = self.asked.of
        ask = "run = ? AND (measured = ? OR (measured IS NULL AND assertion IN (?, ?))) ORDER BY id"
        return list(records(self.connection, "verdicts", ask, (run.id, of.measured, *names_of(of.assertion))))

    def standing(self, run: StoredRun) -> RunState:
        return standing(self.own(run), self.asked.of.assertion)

    def follows(self, run: StoredRun) -> bool:
        """Whether a limit may follow the run."""
        found = self.standing(run)
        if found is not RunState.ABSENT:
            return found in (RunState.HELD, RunState.ACCEPTED)
        each = (standing([verdict], self.asked.of.assertion) for verdict in self._of_measured(run))
        return run.id < self._first and not {RunState.OUT, RunState.ERROR} & {*each}

    def is_itself(self, run: StoredRun) -> bool:
        """Whether a run is of the commit that is judged, or the same capture."""
        if run.commit is not None and run.commit in self.asked.commits:
            return True
        times = self.asked.times
        if len(times) < ENOUGH:
            return False
        found = records(self.connection, "rows", "run = ? AND unit = ?", (run.id, TIME))
        stored = {(SeriesId(*(row[name] for name in SeriesId._fields)), labels_of(row)): row["value"] for row in found}
        shared = [key for key in times if key in stored]
        return len(shared) >= ENOUGH and all(times[key] == exact_value(stored[key]) for key in shared)

    def judged_before(self, run: StoredRun) -> bool:
        """Whether an earlier run of the same commit and branch stands for it."""
        if run.commit is None:
            return False
        earlier = self.runs({"commit_id": run.commit}, before=run)
        return any(
            one.branch == run.branch and (self.standing(one) is RunState.OUT or (self.follows(one) and self.rows(one)))
            for one in earlier
        )

    def rows(self, run: StoredRun) -> dict[RowLabels, Value]:
        """What the assertion reads of a run."""
        wanted = {**self.asked.of.sid._asdict(), **self.kind}
        names = " AND ".join(f'"{name}" = ?' for name in wanted)
        found = records(self.connection, "rows", f"run = ? AND {names} ORDER BY id", (run.id, *wanted.values()))
        return {labels_of(row): exact_value(row["value"]) for row in found}

    @cached_property
    def _first(self) -> float:
        """The number of the first run that has a verdict of the assertion."""
        of = self.asked.of
        ask = (
            "SELECT assertion, min(run) FROM verdicts "
            "WHERE (measured = ? OR (measured IS NULL AND assertion IN (?, ?))) "
            "AND run IN (SELECT id FROM runs WHERE gate = ?) GROUP BY assertion"
        )
        told = self.connection.execute(ask, (of.measured, *names_of(of.assertion), self.asked.gate))
        return min((run for name, run in told if name not in of.others), default=float("inf"))
