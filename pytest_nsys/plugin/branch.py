"""What does this branch change in its baselines and gate files, seen from where it began, and is it red for that?

One item judges what it does to gate files, as each assertion is judged. It is there whatever else is collected,
selected or left of a gate file, so that no deleted file is green.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pytest

from pytest_nsys.core.errors import BaselineError, GateFileError
from pytest_nsys.gates.gate_changes import GateChange, GateChanges, gate_changes
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.loosening_rules import NONE, ChangeKind, KeyChange
from pytest_nsys.outcomes import GateFailed
from pytest_nsys.plugin import base_ini, left_out
from pytest_nsys.plugin.base_ini import snapshots_of
from pytest_nsys.plugin.items import GateItem, JudgedItem
from pytest_nsys.plugin.session import NsysSession, session_of
from pytest_nsys.plugin.settings import in_force, split
from pytest_nsys.plugin.sources import plain
from pytest_nsys.reports.changes import (
    SHOWN,
    ChangedBaseline,
    change_lines,
    changed_baselines,
    gate_change_lines,
    gate_headline,
)
from pytest_nsys.stored.baselines.changes import FileChange, file_changes
from pytest_nsys.tools.git import Snapshot
from pytest_nsys.verdicts.merge_base import not_held, then_and_now, wider_noise

FROM_INI = ("nsys_trace", "nsys_measurements", "nsys_baseline_dir", "nsys_history")
"""Keys of the ini file that say what is judged, and by what."""


class Branch:
    """What differs between the work tree and the merge base of ``ref`` and HEAD. Files are named as they are shown."""

    def __init__(self, session: NsysSession, ref: str) -> None:
        self.session = session
        self.snapshots = snapshots_of(session.config, ref)
        self._known: dict[Path, tuple[GateChange, ...]] = {}
        self._changed: dict[Path, Sequence[FileChange]] = {}

    def _changed_baselines(self, files: Iterable[str]) -> Iterator[tuple[str, list[ChangedBaseline]]]:
        """Since when, and what changes in the baselines of gate files; nothing where none are read from there."""
        if self.session.snapshots is None:
            return
        gates = sorted({plain(self.session.here / file) for file in files})
        for folder, gate in sorted({self.session.baseline_folder(gate): gate for gate in gates}.items()):
            with contextlib.suppress(BaselineError):  # said by the verdicts
                snapshot = self.snapshots.around(gate.parent)
                changes = self._files(folder, snapshot)
                yield snapshot.words, changed_baselines(changes, self.session.told, snapshot.words)

    def _files(self, folder: Path, snapshot: Snapshot) -> Sequence[FileChange]:
        """The baseline files in a folder that are not as they were. Raises BaselineError."""
        if folder not in self._changed:
            self._changed[folder] = file_changes(folder, snapshot)
        return self._changed[folder]

    def _wider_noise(self, snapshot: Snapshot) -> Iterator[GateChange]:
        """What of the noise of a repository's baselines lets more pass than it did; nothing where none is read."""
        for path, entry in snapshot.gate_files.items() if self.session.snapshots is not None else ():
            with contextlib.suppress(BaselineError, GateFileError):  # said by the verdicts
                changed = self._files(self.session.baseline_folder(path), snapshot)
                if path.is_file() and (changed or not entry.holds(path.read_bytes())):
                    for gate in load_gate_file(path).each:
                        for own, old, new in then_and_now(gate, self.session.store(gate)):
                            for change in wider_noise(gate, old, new):
                                yield replace(change, file=self.session.shown(own), since=snapshot.words)

    def baseline_changes(self, files: Iterable[str]) -> list[ChangedBaseline]:
        """Each baseline file of these gate files that changes."""
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
        """What the branch loosens in its gate files, and in the noise of their baselines.

        Looked at are the repositories around gate files, and around what pytest was told to run: there a gate file may
        be gone.
        """
        here = self.session.here
        folders = dict.fromkeys(plain(here / file).parent for file in files)
        asked = dict.fromkeys(plain(here / argument.partition("::")[0]) for argument in self.session.config.args)
        asked |= dict.fromkeys(self._asked)
        found: dict[Path, tuple[GateChange, ...]] = {}
        problems = []
        todo = [*{**folders, **asked}]
        for folder in todo:
            try:
                snapshot = self.snapshots.around(folder)
                todo += [path for path in self._submodules(snapshot, asked) if path not in todo]
                if snapshot.top not in self._known:
                    own = gate_changes(snapshot, self.session.shown)
                    self._known[snapshot.top] = (*own, *self._not_held(snapshot), *self._wider_noise(snapshot))
                found[snapshot.top] = self._known[snapshot.top]
            except BaselineError as error:
                problems += [self.session.told(str(error))] if folder in folders or not folders else []
        told = tuple(change for changes in (*found.values(), self._ini_changes) for change in changes)
        return GateChanges(told, next(iter(problems), ""), self.refuses_gate_changes)

    @cached_property
    def _asked(self) -> list[Path]:
        return [plain(path) for path in base_ini.asked(self.session.config)]

    @cached_property
    def _ini_changes(self) -> tuple[GateChange, ...]:
        """The keys of the ini file that say what is judged, and by what, where nobody types it. A new one begins
        something, unless it takes the place of the baseline folder that is found without it.
        """
        config, found = self.session.config, []
        try:
            snapshot = self.snapshots.around(config.rootpath)
        except BaselineError:  # said by the verdicts
            return ()
        base = base_ini.at_merge_base(config, self.snapshots.ref)
        for name in (name for name in FROM_INI if not config.getoption(name)):
            values, folder = in_force(config, name)
            now = self._named([values] if isinstance(values, str) else values or (), folder)
            was = self._named(base.lines(name), base.folder)
            if was != now and (was or (name == "nsys_baseline_dir" and snapshot.gate_files)):
                change = KeyChange(ChangeKind.CHANGED, name, ", ".join(was) or NONE, ", ".join(now) or NONE)
                file = config.inipath or config.rootpath
                found.append(GateChange(change, file=self.session.shown(file), since=snapshot.words))
        return tuple(found)

    def _named(self, values: Iterable[str], folder: Path) -> list[str]:
        """The paths that lines of an ini file in this folder mean, each with its configuration."""
        pairs = (split(value, folder) for value in values)
        return [f"{name}{'=' * bool(name)}{self.session.shown(plain(folder / path))}" for name, path in pairs]

    def _not_held(self, snapshot: Snapshot) -> Iterator[GateChange]:
        """The configurations of the gate files that took the place of others and are their own judges."""
        for path, entry in snapshot.gate_files.items() if self.session.snapshots is not None else ():
            if path.is_file() and not entry.holds(path.read_bytes()):
                with contextlib.suppress(BaselineError):  # said by the verdicts
                    for change in not_held(path, self.session.store):
                        yield GateChange(change, file=self.session.shown(path), since=snapshot.words)

    def _submodules(self, snapshot: Snapshot, asked: Iterable[Path]) -> Iterator[Path]:
        """Those that were there at the merge base, and are checked out, around or below what is asked."""
        real = [path.resolve() for path in asked]
        for path in snapshot.submodules:
            near = any(path.is_relative_to(each) or each.is_relative_to(path) for each in real)
            if near and (path / ".git").exists():
                yield path

    def gate_files_asked(self) -> Iterator[Path]:
        """The gate files of the merge base that are still there, in or below what is to be judged. Where it cannot be
        read :meth:`gate_changes` says so.
        """
        base = base_ini.at_merge_base(self.session.config, self.snapshots.ref)
        for asked in self._asked:
            real, todo = asked.resolve(), [asked]
            for folder in todo:
                with contextlib.suppress(BaselineError):
                    snapshot = self.snapshots.around(folder)
                    todo += [path for path in self._submodules(snapshot, [asked]) if path not in todo]
                    for path in (path for path in snapshot.gate_files if path.is_relative_to(real) and path.is_file()):
                        inside = (real / folder for folder in path.relative_to(real).parents if folder.name)
                        if not any(map(base.passes_over, inside)):
                            yield path

    @property
    def refuses_gate_changes(self) -> bool:
        """Whether a branch that loosens its gate files is red. The stricter of option and ini key counts.

        A workflow's own default must not loosen what the repository asks for.
        """
        config = self.session.config
        return "fail" in (config.getoption("nsys_gate_changes"), config.getini("nsys_gate_changes"))


NAME = "gate changes"


class GateChangesItem(JudgedItem):
    """What the branch does to the gate files of the merge base; it fails where they ask for less."""

    def runtest(self) -> None:
        if told := _refused(self.session, self.session.items):
            raise GateFailed("\n  ".join(told))

    def reportinfo(self) -> tuple[Path, int, str]:
        """No line of any file: the item is about all of them."""
        return self.path, 0, self.name


def looked_at(session: pytest.Session) -> GateChanges | None:
    """What the branch changes, seen from the gate files that were collected; None without a ref."""
    own = session_of(session.config)
    files = dict.fromkeys(own.shown(item.path) for item in session.items if isinstance(item, GateItem))
    return own.branch.gate_changes(files) if own.branch is not None else None


def _refused(session: pytest.Session, items: Sequence[pytest.Item]) -> list[str]:
    """Why the session is red whatever it judges: the first line says it, the others say each."""
    changes, lines = looked_at(session), []
    selection = session.config.pluginmanager.get_plugin(left_out.NAME)
    gone = left_out.lines(selection.refused(items)) if selection is not None else []
    if changes is not None and changes.bad:
        lines += [f"{gate_headline(changes)} (--nsys-gate-changes=fail)", *gate_change_lines(changes, at_most=SHOWN)]
    if gone:
        lines += ["the repository leaves out what is to be judged (--nsys-gate-changes=fail)", *gone[:SHOWN]]
    return lines


def guard(session: pytest.Session) -> None:
    """Put the item before all others, after everything that selects: nothing leaves it out.

    Of a session with nothing else it would make a green one, unless there is something to say.
    """
    branch = session_of(session.config).branch
    if branch is None or not branch.refuses_gate_changes or session.config.getoption("collectonly"):
        return
    if session.items or _refused(session, ()):
        item = GateChangesItem.from_parent(session, name=NAME, nodeid=f"nsys::{NAME}")
        item.add_marker("nsys")
        session.items.insert(0, item)
