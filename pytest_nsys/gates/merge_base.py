"""What is a branch held against that must not be its own judge? The baselines of the merge base; and what it changed.

A gate file that is not at the merge base has no other baselines than the branch's own. Its limits, tolerances and
waivers are always the branch's, so the lines that it changes are told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path

from pytest_nsys.errors import BaselineError
from pytest_nsys.gates.git_files import Snapshot, snapshot_of
from pytest_nsys.gates.shelf import Files, WorkTree

SHOWN_LINES = 12


@dataclass
class Snapshots:
    """The merge bases of one ref, each repository asked once."""

    ref: str
    _known: dict[Path, Snapshot | BaselineError] = field(default_factory=dict)

    def around(self, folder: Path) -> Snapshot:
        """The repository around a folder at the merge base. Raises BaselineError, the same one each time."""
        folder = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
        if folder not in self._known:
            try:
                found: Snapshot | BaselineError = snapshot_of(folder, self.ref)
            except BaselineError as error:
                found = error
            same = [s for s in self._known.values() if isinstance(s, Snapshot) and isinstance(found, Snapshot)]
            self._known[folder] = next((s for s in same if s.top == found.top), found)  # type: ignore[union-attr]
        known = self._known[folder]
        if isinstance(known, BaselineError):
            raise known
        return known


@dataclass
class AtMergeBase:
    """The baselines of one gate file as they were at the merge base of a ref and HEAD.

    A gate file that is not there yet has none: then its baselines are those of the work tree, and a note says so.
    """

    gate: Path
    snapshots: Snapshots

    @cached_property
    def snapshot(self) -> Snapshot:
        """The repository of the gate file. Raises BaselineError."""
        return self.snapshots.around(self.gate.parent)

    @cached_property
    def _is_new(self) -> bool:
        return not self.snapshot.entries([self.gate])

    @property
    def _files(self) -> Files:
        return WorkTree() if self._is_new else self.snapshot

    @property
    def origin(self) -> str:
        """What follows a path, to say of when its content is. Raises BaselineError."""
        return self._files.origin

    @property
    def note(self) -> str:
        """That nobody else's baseline is at hand for a gate file that is new. Raises BaselineError."""
        if not self._is_new:
            return ""
        return f"this gate file is not at {self.snapshot.words} yet: it is held against the branch's own baseline"

    def gate_changes(self) -> str:
        """What the branch changes in the gate file itself, whose limits are its own; may be empty.

        Raises BaselineError.
        """
        new = self.gate.read_bytes()
        entry = self.snapshot.entries([self.gate]).get(self.gate)
        if entry is None or entry.holds(new):
            return ""
        old = self.snapshot.content(self.gate) or b""
        lines = _changed_lines(old.decode("utf-8", "replace"), new.decode("utf-8", "replace"))
        where = ", ".join(map(str, lines[:SHOWN_LINES])) + (" …" if len(lines) > SHOWN_LINES else "")
        return (
            f"this gate file is another one than at {self.snapshot.words} (lines {where}): its limits, tolerances and "
            "waivers are the branch's own"
        )

    def names(self, folder: Path) -> Sequence[str]:
        """The names of the baseline files in a folder, sorted. Raises BaselineError."""
        return self._files.names(folder)

    def read(self, path: Path) -> bytes | None:
        """The content of a baseline file, None where there is none. Raises BaselineError."""
        return self._files.read(path)


def _changed_lines(old: str, new: str) -> list[int]:
    """The lines of ``new`` that are not in ``old``, and those before which some of ``old`` are gone."""
    blocks = SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False).get_opcodes()
    changed = [range(start + 1, max(end, start + 1) + 1) for tag, _, _, start, end in blocks if tag != "equal"]
    return [line for block in changed for line in block]
