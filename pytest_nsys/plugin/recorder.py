"""What does ``--nsys-history`` write to the history at the end of a pytest session?

Every item attaches its entry to its report, also on an xdist worker. The controller collects the entries and writes
them at the end, in one transaction.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_nsys.core.errors import HistoryError, NsysError
from pytest_nsys.core.memoize import memoize_method
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.gates.model import Assertion, GateFile, Outcome, Verdict
from pytest_nsys.plugin.session import NsysSession, get_nsys_session
from pytest_nsys.plugin.settings import JUDGED_TREE, find_setting_path, install
from pytest_nsys.plugin.terminal_text import print_terminal_line
from pytest_nsys.stored.history.database import (
    DELAYED,
    PlainData,
    RunEntry,
    append_session,
    check_writable,
    collect_run_facts,
    collect_series_facts,
    collect_verdict_facts,
    find_series_id,
)
from pytest_nsys.tools.git import Revision, read_revision
from pytest_nsys.verdicts.evaluate import GateContext

_SERIES_KEYS = ("metric", "definition", "window", "span", "kernels")
_SENT_SERIES = pytest.StashKey[set[tuple[object, ...]]]()


def start(config: pytest.Config) -> None:
    """Let the session be recorded, unless another process does it. Raises pytest.UsageError for a database that cannot
    store runs.
    """
    path = find_setting_path(config, "nsys_history")
    if path is None or hasattr(config, "workerinput") or JUDGED_TREE in config.stash:  # these only read it
        return
    try:
        check_writable(path)
    except HistoryError as error:
        raise pytest.UsageError(f"--nsys-history: {error}") from error
    install(config, HistoryRecorder(path, get_nsys_session(config)), "nsys-history")


class HistoryEntry(NamedTuple):
    """Holds the history entry of one assertion."""

    file: str  # the gate file with its configuration
    folder: Path  # the folder of the gate file
    gate: str  # the gate file's path as stored in its baselines
    trace: str  # the traces as a person would type them
    verdict: PlainData
    facts: PlainData | None = None
    series: PlainData | None = None
    xfailed: bool = False


def build_history_entry(
    session: NsysSession,
    gate: GateFile,
    assertion: Assertion,
    context: GateContext | None,
    outcome_and_message: tuple[str, str],
    verdict: Verdict | None = None,
) -> HistoryEntry:
    """Return the history entry of an assertion with an outcome and message."""
    row = verdict.nearest_row if verdict is not None else None
    if verdict is not None and verdict.delayed:
        outcome_and_message = DELAYED, outcome_and_message[1]
    sid = None
    if context is not None:
        with contextlib.suppress(NsysError):  # the verdict says what is wrong with the trace
            sid = find_series_id(assertion, context.captures)
    facts = collect_verdict_facts(
        assertion, *outcome_and_message, verdict.unit if verdict is not None else "", row, sid
    )
    entry = HistoryEntry(
        gate.address, gate.path.parent, session.open_store(gate).gate, _describe_traces(session, gate), facts
    )
    if context is not None:
        with contextlib.suppress(NsysError):
            entry = entry._replace(facts=collect_run_facts(context.captures, context.gate.run))
            if outcome_and_message[0] != Outcome.ERROR:
                entry = entry._replace(
                    series=_select_unsent_series(session, gate, collect_series_facts(assertion, context.captures))
                )
    return entry


def _select_unsent_series(session: NsysSession, gate: GateFile, series: PlainData) -> PlainData | None:
    """Return the rows of a series; None if another assertion of this process has already sent them."""
    sent_series = session.config.stash.setdefault(_SENT_SERIES, set())
    series_id = gate.address, *(series[part] for part in _SERIES_KEYS)
    if series_id in sent_series:
        return None
    sent_series.add(series_id)
    return series


def _describe_traces(session: NsysSession, gate: GateFile) -> str:
    try:
        source = session.sources.find_trace_source(gate)
    except NsysError:
        return ""
    return ", ".join(session.format_path(source.folder / value) for value in source.paths)


class HistoryRecorder:
    """A pytest plugin that collects the history entries of the reports, and writes them when the session ends."""

    def __init__(self, path: Path, session: NsysSession) -> None:
        self.path, self.session = path, session
        self.runs: dict[str, RunEntry] = {}
        self.summary_line = ""
        self._series: set[tuple[object, ...]] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        entry: HistoryEntry | None = getattr(report, "nsys_history", None)
        if entry is None:
            return
        if entry.file not in self.runs:
            self.runs[entry.file] = RunEntry(entry.gate, entry.trace, self._find_revision(entry.folder))
        run, series = self.runs[entry.file], entry.series
        run.facts = run.facts or entry.facts
        run.verdicts[report.nodeid] = {**entry.verdict, "xfailed": int(entry.xfailed)}
        if series is not None:
            series_id = entry.file, *(series[part] for part in _SERIES_KEYS)
            if series_id not in self._series:
                self._series.add(series_id)
                run.series.append(series)

    def _is_refresh_complete(self) -> bool:
        """Whether everything that a refresh accepted could be written."""
        from pytest_nsys.plugin.baseline_refresh import get_session_refresh

        return get_session_refresh(self.session).complete

    @memoize_method  # files that the session writes later must not count as changes
    def _find_revision(self, folder: Path) -> Revision:
        """Return the git revision of a folder, as it was at the first verdict."""
        return read_revision(folder)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write all entries, or fail the session. An interrupted session writes nothing."""
        shown_path = self.session.format_path(self.path)
        # An interrupted session has not judged all of its assertions.
        if session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            if self.runs:
                self.summary_line = f"history {shown_path}: not written: the session was interrupted"
            return
        if self.session.is_updating and (session.shouldfail or not self._is_refresh_complete()):
            self.summary_line = f"history {shown_path}: not written: not all that it would call accepted was"
            return
        runs = [run for _, run in sorted(self.runs.items())]
        try:
            future_time = append_session(self.path, runs)
        except HistoryError as error:
            self.summary_line = f"history not written: {error}"
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            return
        rows = sum(len(series["rows"]) for run in runs for series in run.series)
        if runs:
            self.summary_line = (
                f"history {shown_path}: {format_count(len(runs), 'run')} added, {format_count(rows, 'row')}"
            )
            if future_time is not None:
                self.summary_line += (
                    f"; it holds a run of {sanitize_line(future_time, 40)}: a clock was ahead, so runs stand as written"
                )
        elif not session.config.getoption("collectonly", default=False):
            self.summary_line = f"history {shown_path}: nothing added: no assertion of a gate file ran"

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.summary_line:
            print_terminal_line(terminalreporter, self.summary_line)
