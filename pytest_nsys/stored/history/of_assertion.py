"""Which past runs of one assertion may its limit follow, and for how many runs has it been bad?

A verdict belongs to an assertion by what it measured, whatever its id was then. Runs stand in the order in which they
were written. Only the standard library is used: a limit may be read from here in every gate run.
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
    """Says what a past run means to an assertion."""

    HELD = enum.auto()
    OUT = enum.auto()  # a row was outside its limit
    ERROR = enum.auto()
    ACCEPTED = enum.auto()  # by a refresh
    ABSENT = enum.auto()  # the assertion did not run


@dataclass(frozen=True)
class OfAssertion:
    """Identifies one assertion of a gate file by what it measures (``sid``), so that its past verdicts are found.

    No verdict under a name in ``other_names`` is its own. But what failed under such a name before this assertion had a
    verdict is no run to follow: the name may have been its own.
    """

    assertion: Assertion
    sid: SeriesId
    others: Collection[str] = ()  # names that the gate file's other assertions have now

    @cached_property
    def measured(self) -> str:
        """What it measures, as its verdicts store it."""
        return measured_text(self.sid)

    def own(self, verdicts: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Select the assertion's own verdicts of a run.

        These are the ones under its name, else under its full name, else of the same rows, else any on what it
        measures. A verdict that could not be measured at all does not say what it is about: it is found by its name.
        """
        names = names_of(self.assertion)
        candidates = [
            verdict
            for verdict in verdicts
            if verdict["assertion"] not in self.others
            and (
                verdict["measured"] == self.measured or (verdict["measured"] is None and verdict["assertion"] in names)
            )
        ]
        verdicts_by_name = ([verdict for verdict in candidates if verdict["assertion"] == name] for name in names)
        same_rows = [verdict for verdict in candidates if verdict["selected"] == selected_text(self.assertion)]
        return next(filter(None, verdicts_by_name), None) or same_rows or candidates


def standing(own: Sequence[Mapping[str, Any]], assertion: Assertion) -> RunState:
    """Return what a run with these verdicts means to an assertion.

    Outside of its limit is also a run with a row that a waiver accepted, or that is new or missing, and an
    *inconclusive* one that fails.
    """
    outcomes = {verdict["outcome"] for verdict in own}
    bad_outcomes = {*_BAD, Outcome.INCONCLUSIVE} if assertion.severity.inconclusive is Severity.FAIL else {*_BAD}
    if REFRESH in outcomes:
        return RunState.ACCEPTED
    if Outcome.ERROR in outcomes:
        return RunState.ERROR
    if outcomes & bad_outcomes or any(map(_off, own)):
        return RunState.OUT
    return RunState.HELD if own else RunState.ABSENT


def _off(verdict: Mapping[str, Any]) -> bool:
    """Return whether a row is outside its limit, or exists on one side alone.

    Without any row there was nothing to compare.
    """
    is_unmatched = verdict["outcome"] == Outcome.NO_DATA and (verdict["value"] is not None or verdict["row"])
    return bool(is_unmatched) or (verdict["margin"] is not None and exact_value(verdict["margin"]) < 0)


@dataclass(frozen=True)
class PastOf:
    """Reads the past runs of a gate file that are comparable with the judged run, for one assertion."""

    path: Path  # of the database
    gate: str
    key: Mapping[str, Any]  # key of the judged run, and maybe its conditions
    of: OfAssertion
    on: Collection[str] | None = None  # the conditions that must agree, None: all
    # What is of the judged run's own commit, or the same capture, is no run to follow.
    commits: Collection[str] = ()  # those that the judged run may be of
    times: Mapping[tuple[SeriesId, RowLabels], Value] = field(default_factory=dict)  # its rows of time that are not 0

    def last_runs(
        self, count: int, branch: str | None = None, lag: int = 0, kind: Mapping[str, str] | None = None
    ) -> list[dict[RowLabels, Value]]:
        """Return the rows of the last ``count`` runs that the limit may follow, oldest first, without the newest
        ``lag``.

        It follows runs of ``branch`` (None: of any) in which the assertion held, from the last one on that a refresh
        accepted; of a commit's runs on one branch the first that was judged; of the judged run's own commit, or
        capture, only what a refresh accepted. A run in which the assertion did not run counts as long as it had run in
        none, and nothing of what it measures was bad. ``column_values`` are columns of the rows, and what they must
        hold.

        Raises HistoryError.
        """
        with reading(self.path) as connection:
            if connection is None:
                return []
            open_history = _Past(self, connection, kind or {})
            rows_by_run: list[dict[RowLabels, Value]] = []
            for run in open_history.runs({} if branch is None else {"branch": branch}):
                if len(rows_by_run) == count + lag:
                    break
                is_accepted = open_history.standing(run) is RunState.ACCEPTED
                if not is_accepted and open_history.is_itself(run):
                    continue
                if (
                    open_history.follows(run)
                    and (is_accepted or not open_history.judged_before(run))
                    and (rows := open_history.rows(run))
                ):
                    rows_by_run.append(rows)
                if is_accepted:
                    break
            return rows_by_run[lag:][::-1]

    def bad_in_a_row(self, branch: str) -> BadRuns | None:
        """Return the last runs on a branch in which the assertion was bad, up to one that held or was refreshed.

        It is None where the branch has no run in which the assertion was judged. Runs in which it could not be judged,
        was *inconclusive* by itself or did not run do not end the series.

        Raises HistoryError.
        """
        with reading(self.path) as connection:
            if connection is None:
                return None
            open_history, bad_runs, is_judged = _Past(self, connection, {}), list[PastRun](), False
            for run in open_history.runs({"branch": branch}):
                verdicts = open_history.own(run)
                if bad_verdicts := [verdict for verdict in verdicts if verdict["outcome"] in _BAD]:
                    bad_runs.append(PastRun(run.time, run.commit, any(map(_red, bad_verdicts))))
                elif any(verdict["outcome"] in _ENDING for verdict in verdicts):
                    return BadRuns(branch, tuple(bad_runs))
                is_judged = is_judged or any(verdict["outcome"] == Outcome.INCONCLUSIVE for verdict in verdicts)
            return BadRuns(branch, tuple(bad_runs)) if bad_runs or is_judged else None


def _red(verdict: Mapping[str, Any]) -> bool:
    """Return whether a bad verdict failed its session."""
    return (verdict["outcome"], verdict["severity"], verdict["xfailed"]) == (Outcome.FAILED, Severity.FAIL, 0)


@dataclass
class _Past:
    """Holds the opened history while it is read for one assertion."""

    asked: PastOf
    connection: sqlite3.Connection
    kind: Mapping[str, str]

    def runs(self, where: Mapping[str, str], before: StoredRun | None = None) -> Iterator[StoredRun]:
        """Iterate over the comparable runs, newest first."""
        accepted_values = {name: [value] for name, value in {"gate": self.asked.gate, **where}.items()}
        condition = "key IS NOT NULL" + (f" AND id < {before.id}" if before is not None else "")
        request, assertion = self.asked, self.asked.of.assertion
        unit, window, kind = assertion.measures.unit, assertion.window, assertion.kind
        for run in stored_runs(self.connection, accepted_values, newest_first=True, besides=condition):
            past_facts = {**(run.key or {}), **run.facts}
            if are_alike(request.key, past_facts, request.on, unit=unit, window=window, kind=kind):
                yield run

    def own(self, run: StoredRun) -> list[Mapping[str, Any]]:
        """List the verdicts of the assertion in a run."""
        return self.asked.of.own(self._of_measured(run))

    def _of_measured(self, run: StoredRun) -> list[Mapping[str, Any]]:
        """List the verdicts of a run on what the assertion measures, of whichever assertion."""
        identity = self.asked.of
        condition = "run = ? AND (measured = ? OR (measured IS NULL AND assertion IN (?, ?))) ORDER BY id"
        return list(
            records(self.connection, "verdicts", condition, (run.id, identity.measured, *names_of(identity.assertion)))
        )

    def standing(self, run: StoredRun) -> RunState:
        return standing(self.own(run), self.asked.of.assertion)

    def follows(self, run: StoredRun) -> bool:
        """Return whether a limit may follow the run."""
        run_state = self.standing(run)
        if run_state is not RunState.ABSENT:
            return run_state in (RunState.HELD, RunState.ACCEPTED)
        measured_states = (standing([verdict], self.asked.of.assertion) for verdict in self._of_measured(run))
        return run.id < self._first and not {RunState.OUT, RunState.ERROR} & {*measured_states}

    def is_itself(self, run: StoredRun) -> bool:
        """Return whether a run is of the commit that is judged, or is the same capture."""
        if run.commit is not None and run.commit in self.asked.commits:
            return True
        times = self.asked.times
        if len(times) < ENOUGH:
            return False
        rows = records(self.connection, "rows", "run = ? AND unit = ?", (run.id, TIME))
        stored = {(SeriesId(*(row[name] for name in SeriesId._fields)), labels_of(row)): row["value"] for row in rows}
        common_rows = [key for key in times if key in stored]
        return len(common_rows) >= ENOUGH and all(times[key] == exact_value(stored[key]) for key in common_rows)

    def judged_before(self, run: StoredRun) -> bool:
        """Return whether an earlier run of the same commit and branch stands for it."""
        if run.commit is None:
            return False
        earlier_runs = self.runs({"commit_id": run.commit}, before=run)
        return any(
            earlier_run.branch == run.branch
            and (self.standing(earlier_run) is RunState.OUT or (self.follows(earlier_run) and self.rows(earlier_run)))
            for earlier_run in earlier_runs
        )

    def rows(self, run: StoredRun) -> dict[RowLabels, Value]:
        """Read the rows that the assertion measures from a run, by labels."""
        condition_values = {**self.asked.of.sid._asdict(), **self.kind}
        conditions = " AND ".join(f'"{name}" = ?' for name in condition_values)
        rows = records(
            self.connection, "rows", f"run = ? AND {conditions} ORDER BY id", (run.id, *condition_values.values())
        )
        return {labels_of(row): exact_value(row["value"]) for row in rows}

    @cached_property
    def _first(self) -> float:
        """The id of the first run that has a verdict of the assertion, infinite where there is none."""
        identity = self.asked.of
        query = (
            "SELECT assertion, min(run) FROM verdicts "
            "WHERE (measured = ? OR (measured IS NULL AND assertion IN (?, ?))) "
            "AND run IN (SELECT id FROM runs WHERE gate = ?) GROUP BY assertion"
        )
        first_runs = self.connection.execute(query, (identity.measured, *names_of(identity.assertion), self.asked.gate))
        return min((run for name, run in first_runs if name not in identity.others), default=float("inf"))
