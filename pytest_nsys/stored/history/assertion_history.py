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

from pytest_nsys.analysis.fact_bounds import ENOUGH_ROWS
from pytest_nsys.core.exact import parse_exact
from pytest_nsys.core.model import Value
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.assertion_names import list_names
from pytest_nsys.gates.comparability import is_comparable
from pytest_nsys.gates.judgement import BadRuns, PastRun
from pytest_nsys.gates.model import Assertion, Outcome, Severity
from pytest_nsys.stored.baselines.baseline_file import RowLabels, SeriesId
from pytest_nsys.stored.history.database import DELAYED, REFRESH, format_measurement, format_selection, open_for_reading
from pytest_nsys.stored.history.stored_runs import StoredRun, iterate_stored_runs, parse_labels, read_records

_BAD_OUTCOMES = (Outcome.FAILED, Outcome.ACCEPTED, DELAYED)
_ENDING_OUTCOMES = (Outcome.PASSED, Outcome.IMPROVED, REFRESH)


class RunState(enum.Enum):
    """Says what a past run means to an assertion."""

    WITHIN_LIMIT = enum.auto()
    OUTSIDE_LIMIT = enum.auto()  # a row was outside its limit
    ERROR = enum.auto()
    ACCEPTED = enum.auto()  # by a refresh
    NOT_RUN = enum.auto()  # the assertion did not run


@dataclass(frozen=True)
class AssertionIdentity:
    """Identifies one assertion of a gate file by what it measures (``sid``), so that its past verdicts are found.

    No verdict under a name in ``other_names`` is its own. But what failed under such a name before this assertion had a
    verdict is no run to follow: the name may have been its own.
    """

    assertion: Assertion
    sid: SeriesId
    other_names: Collection[str] = ()  # names that the gate file's other assertions have now

    @cached_property
    def measurement_text(self) -> str:
        """What it measures, as its verdicts store it."""
        return format_measurement(self.sid)

    def select_own_verdicts(self, verdicts: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Select the assertion's own verdicts of a run.

        These are the ones under its name, else under its full name, else of the same rows, else any on what it
        measures. A verdict that could not be measured at all does not say what it is about: it is found by its name.
        """
        names = list_names(self.assertion)
        candidates = [
            verdict
            for verdict in verdicts
            if verdict["assertion"] not in self.other_names
            and (
                verdict["measured"] == self.measurement_text
                or (verdict["measured"] is None and verdict["assertion"] in names)
            )
        ]
        verdicts_by_name = ([verdict for verdict in candidates if verdict["assertion"] == name] for name in names)
        same_rows = [verdict for verdict in candidates if verdict["selected"] == format_selection(self.assertion)]
        return next(filter(None, verdicts_by_name), None) or same_rows or candidates


def classify_run(verdicts: Sequence[Mapping[str, Any]], assertion: Assertion) -> RunState:
    """Return what a run with these verdicts means to an assertion.

    Outside of its limit is also a run with a row that a waiver accepted, or that is new or missing, and an
    *inconclusive* one that fails.
    """
    outcomes = {verdict["outcome"] for verdict in verdicts}
    bad_outcomes = (
        {*_BAD_OUTCOMES, Outcome.INCONCLUSIVE} if assertion.severity.inconclusive is Severity.FAIL else {*_BAD_OUTCOMES}
    )
    if REFRESH in outcomes:
        return RunState.ACCEPTED
    if Outcome.ERROR in outcomes:
        return RunState.ERROR
    if outcomes & bad_outcomes or any(map(_has_row_outside, verdicts)):
        return RunState.OUTSIDE_LIMIT
    return RunState.WITHIN_LIMIT if verdicts else RunState.NOT_RUN


def _has_row_outside(verdict: Mapping[str, Any]) -> bool:
    """Return whether a row is outside its limit, or exists on one side alone.

    Without any row there was nothing to compare.
    """
    is_unmatched = verdict["outcome"] == Outcome.NO_DATA and (verdict["value"] is not None or verdict["row"])
    return bool(is_unmatched) or (verdict["margin"] is not None and parse_exact(verdict["margin"]) < 0)


@dataclass(frozen=True)
class AssertionHistory:
    """Reads the past runs of a gate file that are comparable with the judged run, for one assertion."""

    path: Path  # of the database
    gate: str
    key: Mapping[str, Any]  # key of the judged run, and maybe its conditions
    identity: AssertionIdentity
    comparable_on: Collection[str] | None = None  # the conditions that must agree, None: all
    # What is of the judged run's own commit, or the same capture, is no run to follow.
    own_commits: Collection[str] = ()  # those that the judged run may be of
    own_times: Mapping[tuple[SeriesId, RowLabels], Value] = field(
        default_factory=dict
    )  # its rows of time that are not 0

    def read_last_runs(
        self, count: int, branch: str | None = None, lag: int = 0, column_values: Mapping[str, str] | None = None
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
        with open_for_reading(self.path) as connection:
            if connection is None:
                return []
            open_history = _OpenHistory(self, connection, column_values or {})
            rows_by_run: list[dict[RowLabels, Value]] = []
            for run in open_history.iterate_runs({} if branch is None else {"branch": branch}):
                if len(rows_by_run) == count + lag:
                    break
                is_accepted = open_history.classify(run) is RunState.ACCEPTED
                if not is_accepted and open_history.is_itself(run):
                    continue
                if (
                    open_history.can_follow(run)
                    and (is_accepted or not open_history.was_judged_before(run))
                    and (rows := open_history.read_rows(run))
                ):
                    rows_by_run.append(rows)
                if is_accepted:
                    break
            return rows_by_run[lag:][::-1]

    def read_bad_runs(self, branch: str) -> BadRuns | None:
        """Return the last runs on a branch in which the assertion was bad, up to one that held or was refreshed.

        It is None where the branch has no run in which the assertion was judged. Runs in which it could not be judged,
        was *inconclusive* by itself or did not run do not end the series.

        Raises HistoryError.
        """
        with open_for_reading(self.path) as connection:
            if connection is None:
                return None
            open_history, bad_runs, is_judged = _OpenHistory(self, connection, {}), list[PastRun](), False
            for run in open_history.iterate_runs({"branch": branch}):
                verdicts = open_history.list_assertion_verdicts(run)
                if bad_verdicts := [verdict for verdict in verdicts if verdict["outcome"] in _BAD_OUTCOMES]:
                    bad_runs.append(PastRun(run.time, run.commit, any(map(_has_failed_session, bad_verdicts))))
                elif any(verdict["outcome"] in _ENDING_OUTCOMES for verdict in verdicts):
                    return BadRuns(branch, tuple(bad_runs))
                is_judged = is_judged or any(verdict["outcome"] == Outcome.INCONCLUSIVE for verdict in verdicts)
            return BadRuns(branch, tuple(bad_runs)) if bad_runs or is_judged else None


def _has_failed_session(verdict: Mapping[str, Any]) -> bool:
    """Return whether a stored verdict made its session fail: it failed with severity fail, and was not expected to."""
    return (verdict["outcome"], verdict["severity"], verdict["xfailed"]) == (Outcome.FAILED, Severity.FAIL, 0)


@dataclass
class _OpenHistory:
    """Holds the opened history while it is read for one assertion."""

    request: AssertionHistory
    connection: sqlite3.Connection
    column_values: Mapping[str, str]

    def iterate_runs(self, columns: Mapping[str, str], before_run: StoredRun | None = None) -> Iterator[StoredRun]:
        """Iterate over the comparable runs, newest first."""
        accepted_values = {name: [value] for name, value in {"gate": self.request.gate, **columns}.items()}
        condition = "key IS NOT NULL" + (f" AND id < {before_run.id}" if before_run is not None else "")
        request, assertion = self.request, self.request.identity.assertion
        unit, window, kind = assertion.measured_metric.unit, assertion.window, assertion.kind
        for run in iterate_stored_runs(self.connection, accepted_values, newest_first=True, extra_condition=condition):
            past_facts = {**(run.key or {}), **run.facts}
            if is_comparable(request.key, past_facts, request.comparable_on, unit=unit, window=window, kind=kind):
                yield run

    def list_assertion_verdicts(self, run: StoredRun) -> list[Mapping[str, Any]]:
        """List the verdicts of the assertion in a run."""
        return self.request.identity.select_own_verdicts(self._list_measured_verdicts(run))

    def _list_measured_verdicts(self, run: StoredRun) -> list[Mapping[str, Any]]:
        """List the verdicts of a run on what the assertion measures, of whichever assertion."""
        identity = self.request.identity
        condition = "run = ? AND (measured = ? OR (measured IS NULL AND assertion IN (?, ?))) ORDER BY id"
        return list(
            read_records(
                self.connection,
                "verdicts",
                condition,
                (run.id, identity.measurement_text, *list_names(identity.assertion)),
            )
        )

    def classify(self, run: StoredRun) -> RunState:
        return classify_run(self.list_assertion_verdicts(run), self.request.identity.assertion)

    def can_follow(self, run: StoredRun) -> bool:
        """Return whether a limit may follow the run."""
        run_state = self.classify(run)
        if run_state is not RunState.NOT_RUN:
            return run_state in (RunState.WITHIN_LIMIT, RunState.ACCEPTED)
        measured_states = (
            classify_run([verdict], self.request.identity.assertion) for verdict in self._list_measured_verdicts(run)
        )
        return run.id < self._first_run_id and not {RunState.OUTSIDE_LIMIT, RunState.ERROR} & {*measured_states}

    def is_itself(self, run: StoredRun) -> bool:
        """Return whether a run is of the commit that is judged, or is the same capture."""
        if run.commit is not None and run.commit in self.request.own_commits:
            return True
        times = self.request.own_times
        if len(times) < ENOUGH_ROWS:
            return False
        rows = read_records(self.connection, "rows", "run = ? AND unit = ?", (run.id, TIME))
        stored = {
            (SeriesId(*(row[name] for name in SeriesId._fields)), parse_labels(row)): row["value"] for row in rows
        }
        common_rows = [key for key in times if key in stored]
        return len(common_rows) >= ENOUGH_ROWS and all(times[key] == parse_exact(stored[key]) for key in common_rows)

    def was_judged_before(self, run: StoredRun) -> bool:
        """Return whether an earlier run of the same commit and branch stands for it."""
        if run.commit is None:
            return False
        earlier_runs = self.iterate_runs({"commit_id": run.commit}, before_run=run)
        return any(
            earlier_run.branch == run.branch
            and (
                self.classify(earlier_run) is RunState.OUTSIDE_LIMIT
                or (self.can_follow(earlier_run) and self.read_rows(earlier_run))
            )
            for earlier_run in earlier_runs
        )

    def read_rows(self, run: StoredRun) -> dict[RowLabels, Value]:
        """Read the rows that the assertion measures from a run, by labels."""
        condition_values = {**self.request.identity.sid._asdict(), **self.column_values}
        conditions = " AND ".join(f'"{name}" = ?' for name in condition_values)
        rows = read_records(
            self.connection, "rows", f"run = ? AND {conditions} ORDER BY id", (run.id, *condition_values.values())
        )
        return {parse_labels(row): parse_exact(row["value"]) for row in rows}

    @cached_property
    def _first_run_id(self) -> float:
        """The id of the first run that has a verdict of the assertion, infinite where there is none."""
        identity = self.request.identity
        query = (
            "SELECT assertion, min(run) FROM verdicts "
            "WHERE (measured = ? OR (measured IS NULL AND assertion IN (?, ?))) "
            "AND run IN (SELECT id FROM runs WHERE gate = ?) GROUP BY assertion"
        )
        first_runs = self.connection.execute(
            query, (identity.measurement_text, *list_names(identity.assertion), self.request.gate)
        )
        return min((run for name, run in first_runs if name not in identity.other_names), default=float("inf"))
