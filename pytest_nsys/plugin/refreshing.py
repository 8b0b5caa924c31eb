"""Which baselines does ``--nsys-update-baselines`` write in a session, what is said of them, and what is still red?"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

import pytest

from pytest_nsys.core.errors import NsysError
from pytest_nsys.core.words import printable
from pytest_nsys.gates.model import Assertion, GateFile
from pytest_nsys.plugin.session import NsysSession
from pytest_nsys.plugin.settings import ACCEPTANCE
from pytest_nsys.reports.stored.unresolved_failures import (
    UnresolvedFailure,
    find_unresolved_failures,
    format_unresolved_failures,
)
from pytest_nsys.tools.git import merge_advice
from pytest_nsys.verdicts.gate_windows import kept_windows
from pytest_nsys.verdicts.refresh import Refresh, Written
from pytest_nsys.verdicts.refresh_modes import Acceptance, Mode


def refreshing_of(session: NsysSession) -> Refreshing:
    """Return the refreshes of a session, made when first asked for."""
    if REFRESHING not in session.config.stash:
        session.config.stash[REFRESHING] = Refreshing(session)
    return session.config.stash[REFRESHING]


class Refreshing:
    """Holds the refreshes of one session, one for each gate file, and writes them at its end."""

    def __init__(self, session: NsysSession) -> None:
        self.session = session
        self.refused: dict[str, str] = {}  # by gate file, why nothing is written
        self.written: list[Written] = []
        self.not_written: list[NsysError] = []
        self.begun: list[str] = []  # assertions whose past in the history ends here
        self.left: list[UnresolvedFailure] = []  # what is still red once all is written
        self._refreshes: dict[str, Refresh] = {}
        self.acceptance = session.config.stash.get(ACCEPTANCE, Acceptance())

    def chosen(self, assertion: Assertion) -> bool:
        """Whether it has rows that are written, or follows a history, which then begins anew with this run."""
        follows_history = assertion.needs_baseline and self.session.history is not None
        return assertion.reads_stored or (follows_history and self.mode.replaces)

    @property
    def mode(self) -> Mode:
        """Return which rows are written."""
        return self.acceptance.mode

    def of(self, gate: GateFile) -> Refresh:
        """Return the refresh of a gate file's baseline, one for all of its items."""
        if gate.address not in self._refreshes:
            reason = str(self.session.config.getoption("nsys_reason"))
            context, windows_keeper = self.session.context(gate), kept_windows if self.acceptance.windows else None
            self._refreshes[gate.address] = Refresh(
                context.gate, context, reason, self.mode, self.session.shown, windows_keeper
            )
        return self._refreshes[gate.address]

    def write(self, gates: Collection[GateFile]) -> bool:
        """Write every refreshed baseline, once per file. Returns whether all could be written.

        ``gates`` are all gate files that were judged or refreshed.
        """
        for refresh in self._refreshes.values():
            if not refresh.wanted or refresh.gate.address in self.refused:
                continue
            try:
                self.written.append(refresh.write())
            except NsysError as error:
                self.not_written.append(error)
        self._look_again(gates)
        return self.complete

    @property
    def complete(self) -> bool:
        """Whether all that was accepted could be written."""
        return not self.not_written

    def _look_again(self, gates: Iterable[GateFile]) -> None:
        """Find what is still red by what is stored and written now.

        Of a gate file that was refused the refusal says why its baselines are; a limit from the history begins anew
        with this run.
        """
        contexts = []
        for gate in gates:
            with contextlib.suppress(NsysError):  # told by its items
                contexts.append(self.session.looked_at_again(gate))

        def is_resolved(gate: GateFile, assertion: Assertion) -> bool:
            refresh = self._refreshes.get(gate.address)
            is_restarted = not assertion.reads_stored and self.chosen(assertion)
            is_restarted = is_restarted and (refresh is None or assertion.full_name not in refresh.without_data)
            return assertion.needs_baseline and (is_restarted or gate.address in self.refused)

        in_cli = ACCEPTANCE in self.session.config.stash
        self.left = find_unresolved_failures(contexts, is_resolved, self.mode, "" if in_cli else "baseline refresh ")

    def lines(self, *, folded: bool = False) -> list[str]:
        """Return the lines that say what was written, what was not, and what is still red.

        They have the old and new value of every changed row; with ``only_first`` of the first of each series.
        """
        from pytest_nsys.reports.stored.changes import noise_lines, written_lines

        format_path, lines = self.session.shown, []
        for written_baseline in self.written:
            lines.append(f"baseline {format_path(written_baseline.path)}: {written_baseline.words}")
            lines += [f"  {line}" for line in written_lines(written_baseline, self.session.shown, folded=folded)]
            lines += [f"  {self.session.told(written_baseline.kept)}"] if written_baseline.kept else []
            lines += [f"  {note}" for note in written_baseline.notes]
            if written_baseline.mode is Mode.CALIBRATE:
                refresh = next(refresh for refresh in self._refreshes.values() if refresh.path == written_baseline.path)
                lines += noise_lines(refresh.gate, written_baseline.new, refresh.context.captures)
            advice = merge_advice(written_baseline.path.parent.parent) if written_baseline.old is None else None
            lines += [f"  {advice}"] if advice else []
        lines += [
            self.session.told(f"baseline of {gate} not written: refused: {refusal}")
            for gate, refusal in self.refused.items()
        ]
        lines += [self.session.told(f"baseline not written: {error}") for error in self.not_written]
        if self.begun:
            names = ", ".join(map(printable, self.begun))
            lines.append(f"limits from the history start over with this run: {names}")
        reason = str(self.session.config.getoption("nsys_reason"))
        unresolved_lines = format_unresolved_failures(self.left, reason, format_path)
        lines += map(self.session.told, unresolved_lines)
        if lines:
            return lines
        cut_short = any(refresh.wanted for refresh in self._refreshes.values())
        why_nothing = "the session was cut short" if cut_short else "no assertion with a baseline was measured"
        return [f"no baseline was written: {why_nothing}"]


REFRESHING = pytest.StashKey[Refreshing]()
