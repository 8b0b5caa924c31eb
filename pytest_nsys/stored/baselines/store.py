"""Where do the baselines of a gate file lie, and how are they read, written and pruned without ever losing one?

One file for each gate file and key, named by the key's hash. It is written through a temporary file and a rename, under
a lock, so that of two refreshes at once none is lost.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pytest_nsys.analysis.windows.circumstances import RunKey
from pytest_nsys.core.errors import BaselineError, one_line
from pytest_nsys.core.file_names import BASELINE_SUFFIX, WINDOW_SUFFIX, Address
from pytest_nsys.gates.model import GateFile
from pytest_nsys.stored.baselines.baseline_file import WINDOW, Baseline, SeriesId, load, loads, stale
from pytest_nsys.tools.files import locked_folder, write_whole


@dataclass(frozen=True, slots=True)
class BaselineStore:
    """The folder of one gate file's baselines, one file a key.

    ``gate`` is the gate file's path as stored, relative to the folder that holds the baseline folder.
    """

    folder: Path
    gate: str

    def names(self) -> Sequence[str]:
        """The names of the baseline files, sorted."""
        return sorted(path.name for path in self.folder.glob(f"*{BASELINE_SUFFIX}"))

    def path(self, key: RunKey) -> Path:
        """Where the baseline of a key lies."""
        return self.folder / f"{key.digest}{BASELINE_SUFFIX}"

    def load(self, key: RunKey) -> Baseline | None:
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
        content = _read(path)
        if content is None:
            return None
        found = loads(content, str(path))
        if found.gate != self.gate:
            raise BaselineError(f"{path}: is the baseline of another gate file, {found.gate}: move it, or rename one")
        return found

    def kept_window(self, path: Path, baseline: Baseline) -> bytes | None:
        """The windows of the run that a baseline was written of last, the file of a cut; None where none are kept.

        A file of any other run is none: its bytes are those that the baseline says.
        """
        said = baseline.provenance.get(WINDOW)
        with contextlib.suppress(BaselineError):
            content = _read(window_beside(path)) if said is not None else None
            return content if content is not None and said == digest_of(content) else None
        return None

    def all(self) -> list[tuple[Path, Baseline]]:
        """Every baseline of the gate file that can be read, by name of its file.

        Raises BaselineError where there are files but none can be read: that is not a folder without a baseline.
        """
        found, broken = [], None
        for name in self.names():
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
        _check_at_home(self.folder)
        with contextlib.ExitStack() as held:
            with one_line(BaselineError, f"{self.folder}: cannot be written", "; nothing was changed"):
                self.folder.mkdir(parents=True, exist_ok=True)
                held.enter_context(locked_folder(self.folder))  # without locks there still is the rename
            yield

    def save(self, path: Path, baseline: Baseline, window: bytes | None = None) -> bool:
        """Write the file whole, or not at all, and beside it the windows of its run, if these are to be kept. Windows
        of which the baseline says nothing are removed. Returns whether its bytes changed. Raises BaselineError.
        """
        try:
            content = baseline.dumps().encode()
        except UnicodeEncodeError as error:
            raise BaselineError(f"{path}: cannot be written: {error}; nothing was changed") from error
        with one_line(BaselineError, f"{path}: cannot be written", "; nothing was changed"):
            changed = not path.exists() or path.read_bytes() != content
            if changed or window is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                _inside(path)
            if window is not None:  # before what names it: as long as that says otherwise it is nobody's
                write_whole(window_beside(path), window)
            if changed:
                write_whole(path, content)
            if WINDOW not in baseline.provenance:
                window_beside(path).unlink(missing_ok=True)
        return changed

    def writable(self) -> None:
        """Raises BaselineError where the folder cannot be written, before anything is measured in vain."""
        _check_at_home(self.folder)
        folder = self.folder
        while not folder.exists():
            folder = folder.parent
        if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
            return
        why = f"no permission for {folder}" if folder.is_dir() else f"{folder} is not a folder"
        raise BaselineError(f"{self.folder}: cannot be written: {why}; nothing was changed")


def window_beside(path: Path) -> Path:
    """Where the windows of the accepted run lie that a baseline file is of."""
    return path.with_name(path.name.removesuffix(BASELINE_SUFFIX) + WINDOW_SUFFIX)


def digest_of(content: bytes) -> str:
    """What a baseline says of the file of windows that belongs to it."""
    return sha256(content).hexdigest()


def _check_at_home(folder: Path) -> None:
    """Raises BaselineError where a link leads out of the repository that the baselines seem to be in: what is written
    there is in no review.
    """
    top = next((above for above in folder.parent.parents if (above / ".git").exists()), None)
    if top is not None and not (there := folder.resolve()).is_relative_to(top.resolve()):
        raise BaselineError(
            f"{folder}: is not written: a link leads out of the repository {top}, to {there}: make it a folder, or "
            "name that one"
        )


def _read(path: Path) -> bytes | None:
    _inside(path)
    with one_line(BaselineError, f"{path}: cannot be read"):
        return path.read_bytes() if path.exists() else None


def _inside(path: Path) -> None:
    root = path.parent.parent.resolve()
    if not path.resolve().is_relative_to(root):
        raise BaselineError(f"{path}: leads out of the baseline folder {root}: make it a plain file")


def store_of(gate_file: Path, folder: Path, root: Path, configuration: str = "") -> BaselineStore:
    """The store of a gate file, or of one ``configuration`` of its matrix, in a baseline folder.

    Named by the gate file's path relative to what holds the baseline folder, so that it does not depend on where pytest
    was started; by the path relative to ``root`` where the gate file lies elsewhere.
    """
    for anchor in (folder.parent, root):
        if gate_file.is_relative_to(anchor):
            relative = gate_file.relative_to(anchor).as_posix()
            break
    else:
        relative = gate_file.name
    address = Address(relative, configuration)
    return BaselineStore(folder / _folder_name(address), str(address))


def _folder_name(address: Address) -> str:
    return address.stem.replace("/", "__")


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was dropped from one file. ``removed``: nothing was left, so the file went with it. Without ``series`` it is
    a file of windows of which no baseline says anything.
    """

    path: Path
    series: tuple[SeriesId, ...]
    rows: int
    removed: bool


@dataclass(frozen=True, slots=True)
class Orphan:
    """The folder of a gate file that does not exist any more, and its baselines."""

    folder: Path
    gate: str
    files: tuple[Path, ...]


def prune(gate: GateFile, store: BaselineStore, *, dry_run: bool = False) -> tuple[list[Pruned], list[BaselineError]]:
    """Drop the series that no assertion reads from every baseline of a gate file.

    Returns what was dropped, and why a file was left as it is. ``dry_run`` writes nothing.
    """
    found: list[Pruned] = []
    errors: list[BaselineError] = []
    if not store.folder.is_dir():
        return found, errors
    with contextlib.nullcontext() if dry_run else store.locked():
        for name in store.names():
            try:
                found += _prune_file(gate, store, store.folder / name, dry_run)
            except BaselineError as error:
                errors.append(error)
        found += _prune_windows(store, dry_run)
    return found, errors


def _prune_windows(store: BaselineStore, dry_run: bool) -> list[Pruned]:
    """Remove the windows that are of another run than the baseline beside them, or of none."""
    found = []
    for window in sorted(store.folder.glob(f"*{WINDOW_SUFFIX}")):
        path = window.with_name(window.name.removesuffix(WINDOW_SUFFIX) + BASELINE_SUFFIX)
        with contextlib.suppress(BaselineError):  # told where the baseline is read
            stored = store.at(path)
            if stored is None or store.kept_window(path, stored) is None:
                found.append(Pruned(window, (), 0, removed=True))
                if not dry_run:
                    _remove(window)
    return found


def _prune_file(gate: GateFile, store: BaselineStore, path: Path, dry_run: bool) -> list[Pruned]:
    stored = store.at(path)
    dropped = stale(gate, stored) if stored is not None else []
    if stored is None or not dropped:
        return []
    rows = sum(len(stored.series.pop(sid).rows) for sid in dropped)
    if not dry_run and stored.series:
        store.save(path, stored)
    elif not dry_run:
        _remove(window_beside(path))
        _remove(path)
    return [Pruned(path, tuple(dropped), rows, not stored.series)]


def orphans(folder: Path, root: Path, known: Collection[BaselineStore]) -> list[Orphan]:
    """The folders below a baseline folder whose gate file, or configuration of it, is not there any more.

    ``known`` are the stores of gate files that were read, all configurations of each. A gate file's path is stored
    relative to what holds the baseline folder, or to ``root``. A folder with a file that is no baseline, or with
    baselines of several gate files, is nobody's to judge and is left out.
    """
    found: list[Orphan] = []
    if not folder.is_dir():
        return found
    stores, files_read = {store.folder for store in known}, {Address.of(store.gate).file for store in known}
    for own in sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()):
        files = sorted(path for path in own.iterdir() if not path.name.endswith(WINDOW_SUFFIX))
        if own in stores or not files or any(path.suffix != BASELINE_SUFFIX or path.is_symlink() for path in files):
            continue
        try:
            gates = {load(path).gate for path in files}
        except BaselineError:
            continue
        gate = gates.pop()
        file = Address.of(gate).file
        there = file not in files_read and any((anchor / file).exists() for anchor in (folder.parent, root))
        if not gates and not there:
            found.append(Orphan(own, gate, tuple(files)))
    return found


def remove(orphan: Orphan) -> None:
    """Remove the baselines of a lost gate file and their folder. Raises BaselineError."""
    _check_at_home(orphan.folder)
    for path in orphan.files:
        _remove(window_beside(path))
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a file, and its folder where it was the last."""
    with one_line(BaselineError, f"{path}: cannot be removed"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # other files are in it
        path.parent.rmdir()
