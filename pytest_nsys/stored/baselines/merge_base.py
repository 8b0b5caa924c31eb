"""What is a branch held against that must not be its own judge? The baselines of the merge base.

A gate file that is not at the merge base has no other baselines than the branch's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pytest_nsys.core.errors import BaselineError
from pytest_nsys.stored.baselines.store import Files, WorkTree
from pytest_nsys.tools.git_files import Snapshot, snapshot_of


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

    def seen_by(self, gate: Path) -> AtMergeBase:
        """The baselines of a gate file."""
        return AtMergeBase(gate, self)


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
        return self.snapshot.top / self.snapshot.place(self.gate) not in self.snapshot.gate_files

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

    def names(self, folder: Path) -> Sequence[str]:
        """The names of the baseline files in a folder, sorted. Raises BaselineError."""
        return self._files.names(folder)

    def read(self, path: Path) -> bytes | None:
        """The content of a baseline file, None where there is none. Raises BaselineError."""
        return self._files.read(path)
