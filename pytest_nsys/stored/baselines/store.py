"""Where do the baselines of a gate file lie, and how are they read and written without ever losing one?

One file for each gate file and key, named by the key's hash. It is read from the folder, or as it was at a commit; it
is written through a temporary file and a rename, under a lock, so that of two refreshes at once none is lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pytest_nsys.analysis.identity import Key
from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.file_names import BASELINE_SUFFIX, GATE_SUFFIX
from pytest_nsys.stored.baselines.baseline_file import Baseline, loads
from pytest_nsys.tools.whole_file import write_whole


class Files(Protocol):
    """Where baseline files are read from."""

    @property
    def origin(self) -> str:
        """What follows a path, to say of when its content is. Raises BaselineError."""
        ...

    @property
    def note(self) -> str:
        """What a person should know about where the files come from; may be empty."""
        ...

    def names(self, folder: Path) -> Sequence[str]:
        """The names of the baseline files in a folder, sorted; none where there is no such folder."""
        ...

    def read(self, path: Path) -> bytes | None:
        """The content of a file, None where there is none. Raises BaselineError."""
        ...


class WorkTree:
    """The files as they lie on the disk."""

    origin = ""
    note = ""

    def names(self, folder: Path) -> Sequence[str]:
        return sorted(path.name for path in folder.glob(f"*{BASELINE_SUFFIX}"))

    def read(self, path: Path) -> bytes | None:
        _inside(path)
        try:
            return path.read_bytes() if path.exists() else None
        except OSError as error:
            raise BaselineError(f"{path}: cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class BaselineStore:
    """The folder of one gate file's baselines, one file a key.

    ``gate`` is the gate file's path as stored, relative to the folder that holds the baseline folder.
    """

    folder: Path
    gate: str
    files: Files = field(default_factory=WorkTree)

    def path(self, key: Key) -> Path:
        """Where the baseline of a key lies."""
        return self.folder / f"{key.digest}{BASELINE_SUFFIX}"

    def load(self, key: Key) -> Baseline | None:
        """The baseline of a key, None where there is none. Raises BaselineError."""
        path = self.path(key)
        found = self.at(path)
        if found is not None and found.key != key.as_json():
            raise BaselineError(
                f"{path}: holds another key than its name says; restore it from git, or delete it and refresh"
            )
        return found

    def at(self, path: Path) -> Baseline | None:
        """The baseline in one of the folder's files, None where there is none. Raises BaselineError."""
        content = self.files.read(path)
        if content is None:
            return None
        found = loads(content, f"{path}{self.files.origin}")
        if found.gate != self.gate:
            raise BaselineError(f"{path}: is the baseline of another gate file, {found.gate}: move it, or rename one")
        return found

    def all(self) -> list[tuple[Path, Baseline]]:
        """Every baseline of the gate file that can be read, by name of its file.

        Raises BaselineError where there are files but none can be read: that is not a folder without a baseline.
        """
        found, broken = [], None
        for name in self.files.names(self.folder):
            path = self.folder / name
            try:
                baseline = self.at(path)
            except BaselineError as error:
                broken = broken or error
            else:
                found += [(path, baseline)] if baseline is not None else []
        if broken is not None and not found:
            raise broken
        return found

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes here meanwhile, so that what was read is still there to be added to."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder, os.O_RDONLY)  # the folder itself: a lock file would end up in git
        except OSError as error:
            raise BaselineError(f"{self.folder}: cannot be written: {error.strerror}; nothing was changed") from error
        try:
            with contextlib.suppress(OSError):  # a file system without locks still has the rename
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def save(self, path: Path, baseline: Baseline) -> bool:
        """Write the file whole, or not at all. Returns whether its bytes changed. Raises BaselineError."""
        try:
            content = baseline.dumps().encode()
        except UnicodeEncodeError as error:
            raise BaselineError(f"{path}: cannot be written: {error}; nothing was changed") from error
        try:
            if path.exists() and path.read_bytes() == content:
                return False
            self.folder.mkdir(parents=True, exist_ok=True)
            _inside(path)
            write_whole(path, content)
        except OSError as error:
            raise BaselineError(f"{path}: cannot be written: {error.strerror}; nothing was changed") from error
        return True

    def writable(self) -> None:
        """Raises BaselineError where the folder cannot be written, before anything is measured in vain."""
        folder = self.folder
        while not folder.exists():
            folder = folder.parent
        if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
            return
        why = f"no permission for {folder}" if folder.is_dir() else f"{folder} is no folder"
        raise BaselineError(f"{self.folder}: cannot be written: {why}; nothing was changed")


def _inside(path: Path) -> None:
    root = path.parent.parent.resolve()
    if not path.resolve().is_relative_to(root):
        raise BaselineError(f"{path}: leads out of the baseline folder {root}: make it a plain file")


def store_of(gate_file: Path, folder: Path, root: Path, files: Files | None = None) -> BaselineStore:
    """The store of a gate file in a baseline folder.

    Named by the gate file's path relative to what holds the baseline folder, so that it does not depend on where pytest
    was started; by the path relative to ``root`` where the gate file lies elsewhere.
    """
    for anchor in (folder.parent, root):
        if gate_file.is_relative_to(anchor):
            relative = gate_file.relative_to(anchor).as_posix()
            break
    else:
        relative = gate_file.name
    name = relative.removesuffix(GATE_SUFFIX).replace("/", "__")
    return BaselineStore(folder / name, relative, files or WorkTree())
