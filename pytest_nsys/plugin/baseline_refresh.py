"""Which baselines does ``--nsys-update-baselines`` write in a session, what is printed about them, and what still
fails?
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

import pytest

from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.gates.model import Assertion, GateFile
from pytest_nsys.plugin.session import NsysSession
from pytest_nsys.plugin.settings import ACCEPTANCE
from pytest_nsys.reports.stored.unresolved_failures import (
    UnresolvedFailure,
    find_unresolved_failures,
    render_unresolved_failures,
)
from pytest_nsys.tools.git import format_merge_advice
from pytest_nsys.verdicts.gate_windows import pack_gate_windows
from pytest_nsys.verdicts.refresh import GateBaselineRefresh, WrittenBaseline
from pytest_nsys.verdicts.refresh_modes import RefreshMode, RefreshOptions


def get_session_refresh(session: NsysSession) -> SessionRefresh:
    """Return the refreshes of a session, created on the first call."""
    if SESSION_REFRESH not in session.config.stash:
        session.config.stash[SESSION_REFRESH] = SessionRefresh(session)
    return session.config.stash[SESSION_REFRESH]


class SessionRefresh:
    """Holds the refreshes of one session, one for each gate file, and writes them at its end."""

    def __init__(self, session: NsysSession) -> None:
        self.session = session
        self.refusals: dict[str, str] = {}  # why nothing is written, by gate file
        self.written: list[WrittenBaseline] = []
        self.write_errors: dict[str, NsysError] = {}  # why what was accepted could not be written, by gate file
        self.restarted: list[str] = []  # assertions whose history starts anew with this run
        self.unresolved: list[UnresolvedFailure] = []  # what still fails after writing
        self._refreshes: dict[str, GateBaselineRefresh] = {}
        self.acceptance = session.config.stash.get(ACCEPTANCE, RefreshOptions())

    def is_chosen(self, assertion: Assertion) -> bool:
        """Whether the assertion has rows to write, or a limit from the history, which then starts anew with this
        run.
        """
        follows_history = assertion.needs_baseline and self.session.history_path is not None
        return assertion.reads_stored_baseline or (follows_history and self.mode.replaces)

    @property
    def mode(self) -> RefreshMode:
        """Return which rows are written."""
        return self.acceptance.mode

    def get_refresh(self, gate: GateFile) -> GateBaselineRefresh:
        """Return the refresh of a gate file's baseline; all items of the file share it."""
        if gate.address not in self._refreshes:
            reason = str(self.session.config.getoption("nsys_reason"))
            context, windows_keeper = (
                self.session.get_context(gate),
                pack_gate_windows if self.acceptance.keeps_windows else None,
            )
            self._refreshes[gate.address] = GateBaselineRefresh(
                context.gate, context, reason, self.mode, self.session.format_path, windows_keeper
            )
        return self._refreshes[gate.address]

    def write_baselines(self, gates: Collection[GateFile]) -> bool:
        """Write every refreshed baseline, once per file. Return whether all could be written.

        ``gates`` are all gate files that were judged or refreshed.
        """
        for refresh in self._refreshes.values():
            if not refresh.wanted_assertions or refresh.gate.address in self.refusals:
                continue
            try:
                self.written.append(refresh.write())
            except NsysError as error:
                self.write_errors[refresh.gate.address] = error
        self._rejudge(gates)
        return self.complete

    @property
    def complete(self) -> bool:
        """Whether all that was accepted could be written."""
        return not self.write_errors

    def _rejudge(self, gates: Iterable[GateFile]) -> None:
        """Find which assertions still fail with the new baselines.

        A refused gate file is skipped, and one whose baseline cannot be written: the reason explains it. A limit from
        the history starts anew with this run.
        """
        contexts = []
        for gate in gates:
            with contextlib.suppress(NsysError):  # its items report it
                contexts.append(self.session.reopen_context(gate))

        def is_resolved(gate: GateFile, assertion: Assertion) -> bool:
            refresh = self._refreshes.get(gate.address)
            is_restarted = not assertion.reads_stored_baseline and self.is_chosen(assertion)
            is_restarted = is_restarted and (refresh is None or assertion.full_name not in refresh.reasons_without_data)
            is_explained = gate.address in self.refusals or gate.address in self.write_errors
            return assertion.needs_baseline and (is_restarted or is_explained)

        in_cli = ACCEPTANCE in self.session.config.stash
        self.unresolved = find_unresolved_failures(
            contexts, is_resolved, self.mode, "" if in_cli else "baseline refresh "
        )

    def render_lines(self, *, only_first: bool = False) -> list[str]:
        """Return the lines on what was written, what was not, and what still fails.

        They show the old and new value of every changed row; with ``only_first``, only of the first row of each series.
        """
        from pytest_nsys.reports.stored.refresh_changes import render_noise, render_written_rows

        format_path, lines = self.session.format_path, []
        for written_baseline in self.written:
            lines.append(f"baseline {format_path(written_baseline.path)}: {written_baseline.summary}")
            lines += [
                f"  {line}"
                for line in render_written_rows(written_baseline, self.session.format_path, is_folded=only_first)
            ]
            lines += (
                [f"  {self.session.format_message(written_baseline.windows_text)}"]
                if written_baseline.windows_text
                else []
            )
            lines += [f"  {note}" for note in written_baseline.notes]
            if written_baseline.mode is RefreshMode.CALIBRATE:
                refresh = next(refresh for refresh in self._refreshes.values() if refresh.path == written_baseline.path)
                lines += render_noise(refresh.gate, written_baseline.new, refresh.context.captures)
            advice = format_merge_advice(written_baseline.path.parent.parent) if written_baseline.old is None else None
            lines += [f"  {advice}"] if advice else []
        lines += [
            self.session.format_message(f"baseline of {gate} not written: refused: {refusal}")
            for gate, refusal in self.refusals.items()
        ]
        lines += [self.session.format_message(f"baseline not written: {error}") for error in self.write_errors.values()]
        if self.restarted:
            names = ", ".join(map(sanitize_line, self.restarted))
            lines.append(f"limits from the history start over with this run: {names}")
        reason = str(self.session.config.getoption("nsys_reason"))
        unresolved_lines = render_unresolved_failures(self.unresolved, reason, format_path)
        lines += map(self.session.format_message, unresolved_lines)
        if lines:
            return lines
        cut_short = any(refresh.wanted_assertions for refresh in self._refreshes.values())
        why_nothing = "the session was cut short" if cut_short else "no assertion with a baseline was measured"
        return [f"no baseline was written: {why_nothing}"]


SESSION_REFRESH = pytest.StashKey[SessionRefresh]()
