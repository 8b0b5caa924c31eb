"""What does ``--nsys-history`` put into the history at the end of a pytest session?

Every item hands its part to its report, also from an xdist worker. The controller takes it from the reports and writes
it at the end, in one transaction.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_nsys.core.errors import HistoryError, NsysError
from pytest_nsys.core.kept import kept
from pytest_nsys.core.words import counted, printable
from pytest_nsys.gates.model import Assertion, GateFile, Outcome, Verdict
from pytest_nsys.plugin.saying import say
from pytest_nsys.plugin.session import NsysSession, session_of
from pytest_nsys.plugin.settings import JUDGED_TREE, install, path_of
from pytest_nsys.stored.history.database import (
    DELAYED,
    Plain,
    RunEntry,
    append,
    check_writable,
    run_facts,
    series_facts,
    sid_of,
    verdict_facts,
)
from pytest_nsys.tools.git import Revision, revision_of
from pytest_nsys.verdicts.evaluate import GateContext

_SERIES = ("metric", "definition", "window", "span", "kernels")
_SENT = pytest.StashKey[set[tuple[object, ...]]]()


def start(config: pytest.Config) -> None:
    """Have the session recorded, unless another process does it. Raises pytest.UsageError for a database that takes no
    runs.
    """
    path = path_of(config, "nsys_history")
    if path is None or hasattr(config, "workerinput") or JUDGED_TREE in config.stash:  # which only reads it
        return
    try:
        check_writable(path)
    except HistoryError as error:
        raise pytest.UsageError(f"--nsys-history: {error}") from error
    install(config, Recorder(path, session_of(config)), "nsys-history")


class HistoryEntry(NamedTuple):
    """Holds what one assertion puts into the history."""

    file: str  # the gate file with its configuration
    folder: Path  # in which the gate file lies
    gate: str  # the gate file as its baselines know it
    trace: str  # the traces as a person would type them
    verdict: Plain
    facts: Plain | None = None
    series: Plain | None = None
    xfailed: bool = False


def entry_of(
    session: NsysSession,
    gate: GateFile,
    assertion: Assertion,
    context: GateContext | None,
    decided: tuple[str, str],
    verdict: Verdict | None = None,
) -> HistoryEntry:
    """Return what an assertion puts into the history, as its outcome and message say."""
    row = verdict.nearest if verdict is not None else None
    if verdict is not None and verdict.delayed:
        decided = DELAYED, decided[1]
    sid = None
    if context is not None:
        with contextlib.suppress(NsysError):  # the verdict says what is wrong with the trace
            sid = sid_of(assertion, context.captures)
    facts = verdict_facts(assertion, *decided, verdict.unit if verdict is not None else "", row, sid)
    entry = HistoryEntry(gate.address, gate.path.parent, session.store(gate).gate, _trace(session, gate), facts)
    if context is not None:
        with contextlib.suppress(NsysError):
            entry = entry._replace(facts=run_facts(context.captures, context.gate.run))
            if decided[0] != Outcome.ERROR:
                entry = entry._replace(series=_unsent(session, gate, series_facts(assertion, context.captures)))
    return entry


def _unsent(session: NsysSession, gate: GateFile, series: Plain) -> Plain | None:
    """Return the rows of a series; None where another assertion of the same process brought them along."""
    sent_series = session.config.stash.setdefault(_SENT, set())
    series_id = gate.address, *(series[part] for part in _SERIES)
    if series_id in sent_series:
        return None
    sent_series.add(series_id)
    return series


def _trace(session: NsysSession, gate: GateFile) -> str:
    try:
        source = session.sources.traces(gate)
    except NsysError:
        return ""
    return ", ".join(session.shown(source.base / value) for value in source.values)


class Recorder:
    """Collects, as a plugin of pytest, the history entries of the reports, and writes them when the session ends."""

    def __init__(self, path: Path, session: NsysSession) -> None:
        self.path, self.session = path, session
        self.runs: dict[str, RunEntry] = {}
        self.line = ""
        self._series: set[tuple[object, ...]] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        entry: HistoryEntry | None = getattr(report, "nsys_history", None)
        if entry is None:
            return
        if entry.file not in self.runs:
            self.runs[entry.file] = RunEntry(entry.gate, entry.trace, self._revision(entry.folder))
        run, series = self.runs[entry.file], entry.series
        run.facts = run.facts or entry.facts
        run.verdicts[report.nodeid] = {**entry.verdict, "xfailed": int(entry.xfailed)}
        if series is not None:
            series_id = entry.file, *(series[part] for part in _SERIES)
            if series_id not in self._series:
                self._series.add(series_id)
                run.series.append(series)

    def _is_accepted(self) -> bool:
        """Whether all that a refresh accepts could be written."""
        from pytest_nsys.plugin.refreshing import refreshing_of

        return refreshing_of(self.session).complete

    @kept  # what the session itself writes later must not make the work tree dirty
    def _revision(self, folder: Path) -> Revision:
        """Return the git revision of a folder, as it was at the first verdict."""
        return revision_of(folder)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write everything, or fail the session; nothing of one that was interrupted."""
        shown_path = self.session.shown(self.path)
        # A session that was interrupted did not see all of its assertions.
        if session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            if self.runs:
                self.line = f"history {shown_path}: not written: the session was interrupted"
            return
        if self.session.updating and (session.shouldfail or not self._is_accepted()):
            self.line = f"history {shown_path}: not written: not all that it would call accepted was"
            return
        runs = [run for _, run in sorted(self.runs.items())]
        try:
            future_time = append(self.path, runs)
        except HistoryError as error:
            self.line = f"history not written: {error}"
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            return
        rows = sum(len(series["rows"]) for run in runs for series in run.series)
        if runs:
            self.line = f"history {shown_path}: {counted(len(runs), 'run')} added, {counted(rows, 'row')}"
            if future_time is not None:
                self.line += (
                    f"; it holds a run of {printable(future_time, 40)}: a clock was ahead, so runs stand as written"
                )
        elif not session.config.getoption("collectonly", default=False):
            self.line = f"history {shown_path}: nothing added: no assertion of a gate file ran"

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.line:
            say(terminalreporter, self.line)
