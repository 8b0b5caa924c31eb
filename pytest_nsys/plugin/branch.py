"""What does this branch change in its baselines and gate files, seen from where it began?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pytest_nsys.core.errors import BaselineError
from pytest_nsys.gates.gate_changes import GateChange, GateChanges, gate_changes
from pytest_nsys.plugin.session import NsysSession, plain
from pytest_nsys.reports.changed_baselines import change_lines, plain_changes
from pytest_nsys.stored.baselines.changes import file_changes
from pytest_nsys.stored.baselines.store import Snapshots


class Branch:
    """What differs between the work tree and the merge base of ``ref`` and HEAD. Files are named as they are shown."""

    def __init__(self, session: NsysSession, ref: str) -> None:
        self.session = session
        self.snapshots = Snapshots(ref)
        self._known: dict[Path, tuple[GateChange, ...]] = {}

    def _changed_baselines(self, files: Iterable[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Since when, and what changes in the baselines of gate files; nothing where none are read from there."""
        if self.session.snapshots is None:
            return
        gates = sorted({plain(self.session.here / file) for file in files})
        for folder, gate in sorted({self.session.baseline_folder(gate): gate for gate in gates}.items()):
            with contextlib.suppress(BaselineError):  # said by the verdicts
                snapshot = self.snapshots.around(gate.parent)
                changes = file_changes(folder, snapshot)
                yield snapshot.words, plain_changes(changes, self.session.told, snapshot.words)

    def baseline_changes(self, files: Iterable[str]) -> list[dict[str, Any]]:
        """Each baseline file of these gate files that changes, as plain data."""
        return [change for _, changes in self._changed_baselines(files) for change in changes]

    def baseline_change_lines(self, files: Iterable[str]) -> list[str]:
        """The same for a terminal, a row in a line; also where nothing changed, so that it is seen to be looked at."""
        told: dict[str, list[str]] = {}
        for since, changes in self._changed_baselines(files):
            told.setdefault(since, []).extend(change_lines(changes))
        lines = []
        for since, changed in told.items():
            head = f"baselines changed in this branch since {since}:"
            lines += [head, *(f"  {line}" for line in changed)] if changed else [f"baselines of {since}, all unchanged"]
        return lines

    def gate_changes(self, files: Iterable[str]) -> GateChanges:
        """What the branch loosens in its gate files.

        Looked at are the repositories around gate files, and around what pytest was told to run: there a gate file may
        be gone.
        """
        here = self.session.here
        folders = dict.fromkeys(plain(here / file).parent for file in files)
        asked = dict.fromkeys(plain(here / argument.partition("::")[0]) for argument in self.session.config.args)
        found: dict[Path, tuple[GateChange, ...]] = {}
        problems = []
        for folder in {**folders, **asked}:
            try:
                snapshot = self.snapshots.around(folder)
                if snapshot.top not in self._known:
                    self._known[snapshot.top] = gate_changes(snapshot, self.session.shown)
                found[snapshot.top] = self._known[snapshot.top]
            except BaselineError as error:
                problems += [self.session.told(str(error))] if folder in folders or not folders else []
        told = tuple(change for changes in found.values() for change in changes)
        return GateChanges(told, next(iter(problems), ""), self.refuses_gate_changes)

    @property
    def refuses_gate_changes(self) -> bool:
        """Whether a branch that loosens its gate files is red. The stricter of option and ini key counts.

        A workflow's own default must not loosen what the repository asks for.
        """
        config = self.session.config
        return "fail" in (config.getoption("nsys_gate_changes"), config.getini("nsys_gate_changes"))
