"""``--nsys-update-baselines``: which baselines does a session write, what is said of them, and what is still red?"""

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
    """Return what a session writes, made when first asked for."""
    if REFRESHING not in session.config.stash:
        session.config.stash[REFRESHING] = Refreshing(session)
    return session.config.stash[REFRESHING]


class Refreshing:
    """The refreshes of one session: one for each gate file. ``refused`` says of a gate file why nothing is written,
    ``begun`` are the assertions whose past in the history ends here. Once all is written, ``left`` is still red.
    """

    def __init__(self, session: NsysSession) -> None:
        self.session = session
        self.refused: dict[str, str] = {}
        self.written: list[Written] = []
        self.not_written: list[NsysError] = []
        self.begun: list[str] = []
        self.left: list[UnresolvedFailure] = []
        self._refreshes: dict[str, Refresh] = {}
        self.acceptance = session.config.stash.get(ACCEPTANCE, Acceptance())

    def chosen(self, assertion: Assertion) -> bool:
        """Whether it has rows that are written, or follows a history, which then begins anew with this run."""
        follows = assertion.needs_baseline and self.session.history is not None
        return assertion.reads_stored or (follows and self.mode.replaces)

    @property
    def mode(self) -> Mode:
        """Which rows are written."""
        return self.acceptance.mode

    def of(self, gate: GateFile) -> Refresh:
        """The refresh of a gate file's baseline, one for all of its items."""
        if gate.address not in self._refreshes:
            reason = str(self.session.config.getoption("nsys_reason"))
            context, keep = self.session.context(gate), kept_windows if self.acceptance.windows else None
            self._refreshes[gate.address] = Refresh(context.gate, context, reason, self.mode, self.session.shown, keep)
        return self._refreshes[gate.address]

    def write(self, gates: Collection[GateFile]) -> bool:
        """Write every refreshed baseline, once per file. Returns whether all could be written. ``gates`` are all that
        were looked at.
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
        """What is red by what is stored and written now. Of a gate file that was refused the refusal says why its
        baselines are; a limit from the history begins anew with this run.
        """
        contexts = []
        for gate in gates:
            with contextlib.suppress(NsysError):  # told by its items
                contexts.append(self.session.looked_at_again(gate))

        def is_resolved(gate: GateFile, assertion: Assertion) -> bool:
            refresh = self._refreshes.get(gate.address)
            anew = not assertion.reads_stored and self.chosen(assertion)
            anew = anew and (refresh is None or assertion.full_name not in refresh.without_data)
            return assertion.needs_baseline and (anew or gate.address in self.refused)

        in_cli = ACCEPTANCE in self.session.config.stash
        self.left = find_unresolved_failures(contexts, is_resolved, self.mode, "" if in_cli else "baseline refresh ")

    def lines(self, *, folded: bool = False) -> list[str]:
        """Old and new value of every changed row, or the first of each series, and what was not written."""
        from pytest_nsys.reports.stored.changes import noise_lines, written_lines

        shown, lines = self.session.shown, []
        for written in self.written:
            lines.append(f"baseline {shown(written.path)}: {written.words}")
            lines += [f"  {line}" for line in written_lines(written, self.session.shown, folded=folded)]
            lines += [f"  {self.session.told(written.kept)}"] if written.kept else []
            lines += [f"  {note}" for note in written.notes]
            if written.mode is Mode.CALIBRATE:
                refresh = next(refresh for refresh in self._refreshes.values() if refresh.path == written.path)
                lines += noise_lines(refresh.gate, written.new, refresh.context.captures)
            advice = merge_advice(written.path.parent.parent) if written.old is None else None
            lines += [f"  {advice}"] if advice else []
        lines += [
            self.session.told(f"baseline of {gate} not written: refused: {why}") for gate, why in self.refused.items()
        ]
        lines += [self.session.told(f"baseline not written: {why}") for why in self.not_written]
        if self.begun:
            names = ", ".join(map(printable, self.begun))
            lines.append(f"limits from the history start over with this run: {names}")
        reason = str(self.session.config.getoption("nsys_reason"))
        left = format_unresolved_failures(self.left, reason, shown)
        lines += map(self.session.told, left)
        if lines:
            return lines
        cut_short = any(refresh.wanted for refresh in self._refreshes.values())
        why = "the session was cut short" if cut_short else "no assertion with a baseline was measured"
        return [f"no baseline was written: {why}"]


REFRESHING = pytest.StashKey[Refreshing]()
