"""What does a branch do to the gate files of its merge base, by which it would be judged otherwise?

A branch that writes itself another limit, or deletes the lines that fail, is green by construction; what it changes is
told by meaning. All gate files of the commit are looked at, whichever of them the session judges.

Two gate files are compared by what they mean, field by field: each field of what a gate file becomes has one rule in a
table. A field without one counts as changed wherever it differs, so that a new key is never overlooked. Comments, order
and spelling are no change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_nsys.core.errors import BaselineError, GateFileError
from pytest_nsys.core.file_names import named_as_gate
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.words import printable
from pytest_nsys.gates.gate_file import load_gate_file, loads_gate_file
from pytest_nsys.gates.loosening_rules import (
    ASSERTION_RULES,
    GATE_RULES,
    GONE,
    NONE,
    ChangeKind,
    KeyChange,
    Rule,
    Sides,
    another,
)
from pytest_nsys.gates.model import Assertion, FromBaseline, GateFile
from pytest_nsys.tools.git import LINK, Snapshot, TreeEntry

FILE = "gate file"


@dataclass(frozen=True, slots=True)
class GateChange:
    """One thing that a gate file, as shown in ``file``, asks otherwise than at the merge base, which ``since`` names.

    ``assertions`` are those that it is true of, which now stand on ``lines``; none: it is the file, or a key of it.
    """

    change: KeyChange
    assertions: tuple[str, ...] = ()
    lines: tuple[int, ...] = ()
    file: str = ""
    since: str = ""


@dataclass(frozen=True, slots=True)
class GateChanges:
    """All that a branch loosens. ``problem`` says why it cannot be told, or not of all; ``refused``: it is an error."""

    found: tuple[GateChange, ...] = ()
    problem: str = ""
    refused: bool = False

    @property
    def bad(self) -> bool:
        """Whether the session fails by it."""
        return self.refused and bool(self.found or self.problem)


def gate_changes(then: Snapshot, shown: Callable[[Path], str]) -> tuple[GateChange, ...]:
    """What the work tree asks otherwise than a commit did, by file. Raises BaselineError."""
    tree = _ChangedFiles(then, shown)
    try:
        changed = {p: tree.changes(p) for p, entry in then.gate_files.items() if not _is_as_it_was(then, p, entry)}
        changed |= {path: tree.submodule(path) for path in then.submodules if not (path / ".git").exists()}
        return tuple(
            replace(each, file=shown(path), since=then.words) for path, found in changed.items() for each in found
        )
    except OSError as error:
        raise BaselineError(f"{error.filename or then.top}: cannot be read: {error.strerror or error}") from error


def _is_as_it_was(then: Snapshot, path: Path, entry: TreeEntry) -> bool:
    if entry.mode != LINK:
        return path.is_file() and not path.is_symlink() and entry.names(path.read_bytes())
    if not path.is_symlink() or not entry.names(bytes(path.readlink())):
        return False
    held = then.gate_file(path)  # where the link leads may be no gate file by its name
    return held is None or (path.is_file() and path.read_bytes() == held)


class _ChangedFiles:
    """The gate files that are not as they were."""

    def __init__(self, then: Snapshot, shown: Callable[[Path], str]) -> None:
        self._then = then
        self._shown = shown

    @cached_property
    def _listed(self) -> dict[str, bool]:
        return self._then.checked_out()

    def changes(self, path: Path) -> Iterator[GateChange]:
        """What became of one of them."""
        if path.is_file():
            yield from self._compared(path, path)
        elif self._listed.get(self._then.place(path), True):  # else the checkout leaves it out
            moved = self._moved_to(path)
            now = GONE if moved is None else f"renamed to {self._shown(moved)}"
            yield _of_file(ChangeKind.LOOSENED, "judged", now)
            if moved is not None:
                yield from self._compared(path, moved)

    def submodule(self, path: Path) -> Iterator[GateChange]:
        """What became of one that is not there, or a folder now: of its gate files nobody can tell any more."""
        if self._listed.get(self._then.place(path)) is None:
            yield GateChange(KeyChange(ChangeKind.CHANGED, "submodule", "its gate files", GONE))

    def _compared(self, old: Path, new: Path) -> Iterator[GateChange]:
        try:
            now = self._load(new)
        except GateFileError as error:
            yield _of_file(ChangeKind.LOOSENED, "judged", f"not understood: {_first(error)}")
            return
        held = self._then.gate_file(old)
        if held is None:
            yield _of_file(ChangeKind.CHANGED, "a link out of the repository", "another one")
            return
        try:
            yield from compared(self._load(old, held), now)
        except GateFileError as error:
            yield _of_file(ChangeKind.CHANGED, f"not understood by this version: {_first(error)}", "another one")

    def _load(self, path: Path, content: bytes | None = None) -> GateFile:
        display = Path(self._shown(path))
        if content is None:
            return load_gate_file(path, display=display)
        return loads_gate_file(content, path=path, display=display)

    def _moved_to(self, path: Path) -> Path | None:
        """The new gate file that holds what this one held, or the most of its assertions; None: there is none."""
        names = [name for name in self._listed if named_as_gate(PurePosixPath(name).name)]
        new = sorted({self._then.top / name for name in names} - {*self._then.gate_files})
        new = [other for other in new if other.is_file()]
        entry = self._then.gate_files[path]
        same = next((other for other in new if entry.names(other.read_bytes())), None)
        if same is not None:
            return same
        held = self._names(path, self._then.gate_file(path) or b"")
        kept = [(len(held & self._names(other)), other) for other in new]
        most, nearest = max(kept, default=(0, None), key=lambda pair: pair[0])
        return nearest if 2 * most >= max(len(held), 1) else None

    def _names(self, path: Path, content: bytes | None = None) -> set[str]:
        try:
            return {assertion.name for assertion in self._load(path, content).assertions}
        except GateFileError:
            return set()


def _of_file(kind: ChangeKind, was: str, now: str) -> GateChange:
    return GateChange(KeyChange(kind, FILE, was, now))


def _first(error: GateFileError) -> str:
    return printable(str(error).partition("\n")[0], 400)


def compared(old: GateFile, new: GateFile) -> Iterator[GateChange]:
    """What ``new`` asks otherwise than ``old`` and is not tighter, where one has a matrix by configuration.

    A change of all of them is told once. Of a file without a matrix each configuration of a later one is made.
    """
    now = {gate.configuration: gate for gate in new.each}
    both: list[tuple[str, GateFile, GateFile]] = []
    for was in old.each:
        if was.configuration in now or not was.configuration:
            same = [now[was.configuration]] if was.configuration in now else new.each
            both += [(gate.configuration, was, gate) for gate in same]
        else:
            yield GateChange(KeyChange(ChangeKind.LOOSENED, "configuration", was.configuration, GONE))
    told = grouped((change, name) for name, was, gate in both for change in _of_one(was, gate))
    for change, names in told.items():
        some = f" [{', '.join(names)}]" if len(names) < len(both) else ""
        yield replace(change, change=replace(change.change, key=change.change.key + some))


def _of_one(old: GateFile, new: GateFile) -> list[GateChange]:
    """What ``new`` asks otherwise than ``old`` and is not tighter; a change of many assertions is told once."""
    found = [GateChange(change) for change in _fields(GATE_RULES, old, new, Sides((old, new)))]
    for change, assertions in grouped(_of_assertions(old, new)).items():
        own = [assertion for assertion in assertions if assertion is not None]
        found.append(GateChange(change, tuple(a.full_name for a in own), tuple(a.location.line for a in own)))
    return found


def asked_less(old: GateFile, new: GateFile, name: str) -> KeyChange | None:
    """The first thing that a gate file asks otherwise than before, and not tighter, of all assertions or of the one of
    this name; None where it asks no less.
    """
    known = _known_again(old.assertions, new.assertions)
    same = ((was, known[was.name]) for was in old.assertions if was.name in known)
    was, now = next((pair for pair in same if pair[1].name == name), (None, None))
    if was is None or now is None:
        return KeyChange(ChangeKind.CHANGED, "assertion", NONE, name)
    changes = chain(_fields(GATE_RULES, old, new, Sides((old, new))), _between(was, now, old, new))
    return next(changes, None)


def _of_assertions(old: GateFile, new: GateFile) -> Iterator[tuple[KeyChange, Assertion | None]]:
    """Each change of an assertion, with what the assertion is now."""
    known = _known_again(old.assertions, new.assertions)
    free = [assertion for assertion in new.assertions if assertion not in known.values()]
    for was in old.assertions:
        now = known.get(was.name)
        changes = _between(was, now, old, new) if now is not None else None
        if now is None:
            now, changes = _counterpart(was, old, new, free)
        if now is not None and now in free:
            free.remove(now)
            if _has_id(was):  # by which it may be selected
                yield KeyChange(ChangeKind.CHANGED, "id", was.name, now.full_name), now
        if changes is None:
            what = was.sentence if was.full_name == was.sentence else f"{was.full_name} ({was.sentence})"
            changes = [KeyChange(ChangeKind.LOOSENED, "assertion", what, GONE)]
        yield from ((change, now) for change in changes)
        if _follows_history(was) and not (now is not None and _follows_history(now)):
            for other in (each for each in free if _follows_history(each) and was.metric == each.metric):
                yield KeyChange(ChangeKind.CHANGED, "series of the history", was.full_name, other.full_name), other


def _known_again(old: Iterable[Assertion], new: Iterable[Assertion]) -> dict[str, Assertion]:
    """The assertions of now that were there before, by the name that they had: where a full name is there still that
    one, else by name.
    """
    full, named = ({getattr(now, by): now for now in new} for by in ("full_name", "name"))
    same = {was.name: full[was.full_name] for was in old if was.full_name in full}
    taken = {now.name for now in same.values()}
    by_name = {was.name: named[was.name] for was in old if was.name in named and was.name not in taken}
    return {**by_name, **same}


def _follows_history(assertion: Assertion) -> bool:
    limit = assertion.require.limit
    return isinstance(limit, FromBaseline) and limit.history is not None


def _has_id(assertion: Assertion) -> bool:
    """Whether its name was given to it, and is not its sentence, which says the limit."""
    return assertion.full_name != assertion.sentence and assertion.require.text not in assertion.full_name


def _between(was: Assertion, now: Assertion, old: GateFile, new: GateFile) -> list[KeyChange]:
    """What one assertion asks otherwise than another."""
    if was.metric != now.metric:
        return [KeyChange(ChangeKind.CHANGED, "assertion", was.sentence, now.sentence)]
    return list(_fields(ASSERTION_RULES, was, now, Sides((old, new), (was, now))))


def _counterpart(
    was: Assertion, old: GateFile, new: GateFile, free: Iterable[Assertion]
) -> tuple[Assertion | None, list[KeyChange] | None]:
    """What stands in for an assertion whose name is gone, and what it asks otherwise; (None, None): nothing does.

    One that asks no less, else a new one that has the same rows, or the same limit, and differs least.
    """
    for alike in (_same_rows, _same_limit):
        asked = [(now, _between(was, now, old, new)) for now in new.assertions if alike(was, now)]
        kept = [pair for pair in asked if not pair[1]] or [pair for pair in asked if pair[0] in free]
        if kept:
            return min(kept, key=lambda pair: len(pair[1]))
    return None, None


def _same_rows(one: Assertion, other: Assertion) -> bool:
    return all(getattr(one, f) == getattr(other, f) for f in ("metric", "where", "aggregates", "balance_across"))


def _same_limit(one: Assertion, other: Assertion) -> bool:
    return (one.metric, one.require.text) == (other.metric, other.require.text)


def _fields(rules: Mapping[str, Rule], old: Any, new: Any, sides: Sides) -> Iterator[KeyChange]:
    for field in dataclasses.fields(old):
        was, now = getattr(old, field.name), getattr(new, field.name)
        if was != now:
            yield from rules.get(field.name, another(field.name))(was, now, sides)
