"""Where are the baselines of a gate file, and how are they read, written and pruned without ever losing one?

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
    """Reads and writes the folder of one gate file's baselines, one file per key."""

    folder: Path
    gate: str  # path of the gate file, relative to the parent of the baseline folder

    def names(self) -> Sequence[str]:
        """Return the names of the baseline files, sorted."""
        return sorted(path.name for path in self.folder.glob(f"*{BASELINE_SUFFIX}"))

    def path(self, key: RunKey) -> Path:
        """Return the path of the baseline of a key."""
        return self.folder / f"{key.digest}{BASELINE_SUFFIX}"

    def load(self, key: RunKey) -> Baseline | None:
        """Return the baseline of a key, None where there is none. Raises BaselineError."""
        path = self.path(key)
        baseline = self.at(path)
        if baseline is not None and baseline.key != key.as_json():
            raise BaselineError(
                f"{path}: holds another key than its name says; restore it from git, or delete it and refresh"
            )
        return baseline

    def at(self, path: Path) -> Baseline | None:
        """Return the baseline in one of the folder's files, None where there is none. Raises BaselineError."""
        content = _read(path)
        if content is None:
            return None
        baseline = loads(content, str(path))
        if baseline.gate != self.gate:
            raise BaselineError(
                f"{path}: is the baseline of another gate file, {baseline.gate}: move it, or rename one"
            )
        return baseline

    def kept_window(self, path: Path, baseline: Baseline) -> bytes | None:
        """Return the stored windows of the run that a baseline was last written of, a cut's bytes; None where none are
        stored.

        The file of any other run is none: its bytes must be those whose hash the baseline stores.
        """
        stored_digest = baseline.provenance.get(WINDOW)
        with contextlib.suppress(BaselineError):
            content = _read(window_beside(path)) if stored_digest is not None else None
            return content if content is not None and stored_digest == digest_of(content) else None
        return None

    def all(self) -> list[tuple[Path, Baseline]]:
        """Return every baseline of the gate file that can be read, with its path, sorted by file name.

        Raises BaselineError where there are files but none can be read: that is not a folder without a baseline.
        """
        baselines, first_error = [], None
        for name in self.names():
            path = self.folder / name
            try:
                baseline = self.at(path)
            except BaselineError as error:
                first_error = first_error or error
            else:
                baselines += [(path, baseline)] if baseline is not None else []
        if first_error is not None and not baselines:
            raise first_error
        return baselines

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder, so that nobody else writes there between reading and saving. Raises BaselineError."""
        _check_at_home(self.folder)
        with contextlib.ExitStack() as stack:
            with one_line(BaselineError, f"{self.folder}: cannot be written", "; nothing was changed"):
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked_folder(self.folder))  # without locks there still is the rename
            yield

    def save(self, path: Path, baseline: Baseline, window: bytes | None = None) -> bool:
        """Write the file whole, or not at all, and beside it the windows of its run, if these are given.

        Windows that the baseline does not name are removed. Returns whether the file's bytes changed. Raises
        BaselineError.
        """
        try:
            content = baseline.dumps().encode()
        except UnicodeEncodeError as error:
            raise BaselineError(f"{path}: cannot be written: {error}; nothing was changed") from error
        with one_line(BaselineError, f"{path}: cannot be written", "; nothing was changed"):
            is_changed = not path.exists() or path.read_bytes() != content
            if is_changed or window is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                _inside(path)
            if window is not None:  # before what names it: as long as that says otherwise it is nobody's
                write_whole(window_beside(path), window)
            if is_changed:
                write_whole(path, content)
            if WINDOW not in baseline.provenance:
                window_beside(path).unlink(missing_ok=True)
        return is_changed

    def writable(self) -> None:
        """Raise BaselineError where the folder cannot be written, before anything is measured in vain."""
        _check_at_home(self.folder)
        folder = self.folder
        while not folder.exists():
            folder = folder.parent
        if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
            return
        problem = f"no permission for {folder}" if folder.is_dir() else f"{folder} is not a folder"
        raise BaselineError(f"{self.folder}: cannot be written: {problem}; nothing was changed")


def window_beside(path: Path) -> Path:
    """Return the path of the stored windows that belong to a baseline file."""
    return path.with_name(path.name.removesuffix(BASELINE_SUFFIX) + WINDOW_SUFFIX)


def digest_of(content: bytes) -> str:
    """Return the SHA-256 by which a baseline names its file of windows."""
    return sha256(content).hexdigest()


def _check_at_home(folder: Path) -> None:
    """Raise BaselineError where a link leads out of the repository in which the baselines seem to be.

    What is written there is in no review.
    """
    repository = next((parent for parent in folder.parent.parents if (parent / ".git").exists()), None)
    if repository is not None and not (target := folder.resolve()).is_relative_to(repository.resolve()):
        raise BaselineError(
            f"{folder}: is not written: a link leads out of the repository {repository}, to {target}: "
            "make it a folder, or name that one"
        )


def _read(path: Path) -> bytes | None:
    _inside(path)
    with one_line(BaselineError, f"{path}: cannot be read"):
        return path.read_bytes() if path.exists() else None


def _inside(path: Path) -> None:
    """Raise BaselineError where a link leads out of the baseline folder."""
    root = path.parent.parent.resolve()
    if not path.resolve().is_relative_to(root):
        raise BaselineError(f"{path}: leads out of the baseline folder {root}: make it a plain file")


def store_of(gate_file: Path, folder: Path, root: Path, configuration: str = "") -> BaselineStore:
    """Return the store of a gate file, or of one ``configuration`` of its matrix, in a baseline folder.

    It is named by the gate file's path relative to the parent of the baseline folder, so that it does not depend on
    where pytest was started; by the path relative to ``root`` where the gate file lies elsewhere.
    """
    for base_folder in (folder.parent, root):
        if gate_file.is_relative_to(base_folder):
            stored_path = gate_file.relative_to(base_folder).as_posix()
            break
    else:
        stored_path = gate_file.name
    address = Address(stored_path, configuration)
    return BaselineStore(folder / _folder_name(address), str(address))


def _folder_name(address: Address) -> str:
    return address.stem.replace("/", "__")


@dataclass(frozen=True, slots=True)
class Pruned:
    """Describes what was dropped from one file.

    Without ``series`` it is a file of windows that no baseline names.
    """

    path: Path
    series: tuple[SeriesId, ...]
    rows: int
    removed: bool  # whether nothing was left, so that the file is gone, too


@dataclass(frozen=True, slots=True)
class Orphan:
    """Describes the folder of a gate file that does not exist any more, and its baselines."""

    folder: Path
    gate: str
    files: tuple[Path, ...]


def prune(gate: GateFile, store: BaselineStore, *, dry_run: bool = False) -> tuple[list[Pruned], list[BaselineError]]:
    """Drop the series that no assertion reads from every baseline of a gate file.

    Returns what was dropped, and why a file was left as it is. ``dry_run`` writes nothing.
    """
    results: list[Pruned] = []
    errors: list[BaselineError] = []
    if not store.folder.is_dir():
        return results, errors
    with contextlib.nullcontext() if dry_run else store.locked():
        for name in store.names():
            try:
                results += _prune_file(gate, store, store.folder / name, dry_run)
            except BaselineError as error:
                errors.append(error)
        results += _prune_windows(store, dry_run)
    return results, errors


def _prune_windows(store: BaselineStore, dry_run: bool) -> list[Pruned]:
    """Remove the stored windows that belong to no baseline beside them."""
    results = []
    for window in sorted(store.folder.glob(f"*{WINDOW_SUFFIX}")):
        path = window.with_name(window.name.removesuffix(WINDOW_SUFFIX) + BASELINE_SUFFIX)
        with contextlib.suppress(BaselineError):  # told where the baseline is read
            stored = store.at(path)
            if stored is None or store.kept_window(path, stored) is None:
                results.append(Pruned(window, (), 0, removed=True))
                if not dry_run:
                    _remove(window)
    return results


def _prune_file(gate: GateFile, store: BaselineStore, path: Path, dry_run: bool) -> list[Pruned]:
    stored = store.at(path)
    dropped_series = stale(gate, stored) if stored is not None else []
    if stored is None or not dropped_series:
        return []
    row_count = sum(len(stored.series.pop(sid).rows) for sid in dropped_series)
    if not dry_run and stored.series:
        store.save(path, stored)
    elif not dry_run:
        _remove(window_beside(path))
        _remove(path)
    return [Pruned(path, tuple(dropped_series), row_count, not stored.series)]


def orphans(folder: Path, root: Path, known: Collection[BaselineStore]) -> list[Orphan]:
    """Find the folders below a baseline folder whose gate file, or configuration of it, is not there any more.

    ``known_stores`` are those of gate files that were read, all configurations of each. A gate file's path is stored
    relative to the parent of the baseline folder, or to ``root``. A folder with a file that is no baseline, or with
    baselines of several gate files, is left out: nobody can say whose it is.
    """
    orphans: list[Orphan] = []
    if not folder.is_dir():
        return orphans
    stores, files_read = {store.folder for store in known}, {Address.of(store.gate).file for store in known}
    for gate_folder in sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()):
        files = sorted(path for path in gate_folder.iterdir() if not path.name.endswith(WINDOW_SUFFIX))
        if (
            gate_folder in stores
            or not files
            or any(path.suffix != BASELINE_SUFFIX or path.is_symlink() for path in files)
        ):
            continue
        try:
            gates = {load(path).gate for path in files}
        except BaselineError:
            continue
        gate = gates.pop()
        file = Address.of(gate).file
        exists = file not in files_read and any((base_folder / file).exists() for base_folder in (folder.parent, root))
        if not gates and not exists:
            orphans.append(Orphan(gate_folder, gate, tuple(files)))
    return orphans


def remove(orphan: Orphan) -> None:
    """Remove the baselines of a lost gate file and their folder. Raises BaselineError."""
    _check_at_home(orphan.folder)
    for path in orphan.files:
        _remove(window_beside(path))
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a file, and its folder where it was the last one."""
    with one_line(BaselineError, f"{path}: cannot be removed"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # other files are in it
        path.parent.rmdir()
