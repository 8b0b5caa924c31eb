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

from pytest_nsys.analysis.windows.run_conditions import RunKey
from pytest_nsys.core.errors import BaselineError, convert_os_errors
from pytest_nsys.core.file_names import BASELINE_SUFFIX, WINDOW_SUFFIX, GateAddress
from pytest_nsys.gates.model import GateFile
from pytest_nsys.stored.baselines.baseline_file import (
    WINDOW_DIGEST_KEY,
    Baseline,
    SeriesId,
    list_unread_series,
    load_baseline,
    parse_baseline,
)
from pytest_nsys.tools.files import lock_folder, write_atomically


@dataclass(frozen=True, slots=True)
class BaselineStore:
    """Reads and writes the folder of one gate file's baselines, one file per key."""

    folder: Path
    gate: str  # path of the gate file, relative to the parent of the baseline folder

    def list_names(self) -> Sequence[str]:
        """Return the names of the baseline files, sorted."""
        return sorted(path.name for path in self.folder.glob(f"*{BASELINE_SUFFIX}"))

    def build_path(self, key: RunKey) -> Path:
        """Return the path of the baseline of a key."""
        return self.folder / f"{key.digest}{BASELINE_SUFFIX}"

    def load(self, key: RunKey) -> Baseline | None:
        """Return the baseline of a key, None where there is none. Raises BaselineError."""
        path = self.build_path(key)
        baseline = self.load_file(path)
        if baseline is not None and baseline.key != key.as_json():
            raise BaselineError(
                f"{path}: holds another key than its name says; restore it from git, or delete it and refresh"
            )
        return baseline

    def load_file(self, path: Path) -> Baseline | None:
        """Return the baseline in one of the folder's files, None where there is none. Raises BaselineError."""
        content = _read_baseline_bytes(path)
        if content is None:
            return None
        baseline = parse_baseline(content, str(path))
        if baseline.gate != self.gate:
            raise BaselineError(
                f"{path}: is the baseline of another gate file, {baseline.gate}: move it, or rename one"
            )
        return baseline

    def read_stored_window(self, path: Path, baseline: Baseline) -> bytes | None:
        """Return the stored windows of the run that a baseline was last written of, a cut's bytes; None where none are
        stored.

        The file of any other run is none: its bytes must be those whose hash the baseline stores.
        """
        stored_digest = baseline.provenance.get(WINDOW_DIGEST_KEY)
        with contextlib.suppress(BaselineError):
            content = _read_baseline_bytes(build_window_path(path)) if stored_digest is not None else None
            return content if content is not None and stored_digest == compute_digest(content) else None
        return None

    def load_all(self) -> list[tuple[Path, Baseline]]:
        """Return every baseline of the gate file that can be read, with its path, sorted by file name.

        Raises BaselineError where there are files but none can be read: that is not a folder without a baseline.
        """
        baselines, first_error = [], None
        for name in self.list_names():
            path = self.folder / name
            try:
                baseline = self.load_file(path)
            except BaselineError as error:
                first_error = first_error or error
            else:
                baselines += [(path, baseline)] if baseline is not None else []
        if first_error is not None and not baselines:
            raise first_error
        return baselines

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder, so that nobody else writes there between reading and saving. Raises BaselineError."""
        _check_inside_repository(self.folder)
        with contextlib.ExitStack() as stack:
            with convert_os_errors(BaselineError, f"{self.folder}: cannot be written", "; nothing was changed"):
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(lock_folder(self.folder))  # without locks there still is the rename
            yield

    def save(self, path: Path, baseline: Baseline, window: bytes | None = None) -> bool:
        """Write the file whole, or not at all, and beside it the windows of its run, if these are given.

        Windows that the baseline does not name are removed. Returns whether the file's bytes changed. Raises
        BaselineError.
        """
        try:
            content = baseline.serialize().encode()
        except UnicodeEncodeError as error:
            raise BaselineError(f"{path}: cannot be written: {error}; nothing was changed") from error
        with convert_os_errors(BaselineError, f"{path}: cannot be written", "; nothing was changed"):
            is_changed = not path.exists() or path.read_bytes() != content
            if is_changed or window is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                _check_inside_folder(path)
            if window is not None:  # before what names it: as long as that says otherwise it is nobody's
                write_atomically(build_window_path(path), window)
            if is_changed:
                write_atomically(path, content)
            if WINDOW_DIGEST_KEY not in baseline.provenance:
                build_window_path(path).unlink(missing_ok=True)
        return is_changed

    def check_writable_folder(self) -> None:
        """Raise BaselineError where the folder cannot be written, before anything is measured in vain."""
        _check_inside_repository(self.folder)
        folder = self.folder
        while not folder.exists():
            folder = folder.parent
        if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
            return
        problem = f"no permission for {folder}" if folder.is_dir() else f"{folder} is not a folder"
        raise BaselineError(f"{self.folder}: cannot be written: {problem}; nothing was changed")


def build_window_path(path: Path) -> Path:
    """Return the path of the stored windows that belong to a baseline file."""
    return path.with_name(path.name.removesuffix(BASELINE_SUFFIX) + WINDOW_SUFFIX)


def compute_digest(content: bytes) -> str:
    """Return the SHA-256 by which a baseline names its file of windows."""
    return sha256(content).hexdigest()


def _check_inside_repository(folder: Path) -> None:
    """Raise BaselineError where a link leads out of the repository in which the baselines seem to be.

    What is written there is in no review.
    """
    repository = next((parent for parent in folder.parent.parents if (parent / ".git").exists()), None)
    if repository is not None and not (target := folder.resolve()).is_relative_to(repository.resolve()):
        raise BaselineError(
            f"{folder}: is not written: a link leads out of the repository {repository}, to {target}: "
            "make it a folder, or name that one"
        )


def _read_baseline_bytes(path: Path) -> bytes | None:
    _check_inside_folder(path)
    with convert_os_errors(BaselineError, f"{path}: cannot be read"):
        return path.read_bytes() if path.exists() else None


def _check_inside_folder(path: Path) -> None:
    """Raise BaselineError where a link leads out of the baseline folder."""
    root = path.parent.parent.resolve()
    if not path.resolve().is_relative_to(root):
        raise BaselineError(f"{path}: leads out of the baseline folder {root}: make it a plain file")


def find_store(gate_file: Path, folder: Path, root: Path, configuration: str = "") -> BaselineStore:
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
    address = GateAddress(stored_path, configuration)
    return BaselineStore(folder / _build_folder_name(address), str(address))


def _build_folder_name(address: GateAddress) -> str:
    return address.stem.replace("/", "__")


@dataclass(frozen=True, slots=True)
class PruneResult:
    """Describes what was dropped from one file.

    Without ``series`` it is a file of windows that no baseline names.
    """

    path: Path
    series: tuple[SeriesId, ...]
    row_count: int
    is_removed: bool  # whether nothing was left, so that the file is gone, too


@dataclass(frozen=True, slots=True)
class OrphanedBaselines:
    """Describes the folder of a gate file that does not exist any more, and its baselines."""

    folder: Path
    gate: str
    files: tuple[Path, ...]


def prune_store(
    gate: GateFile, store: BaselineStore, *, dry_run: bool = False
) -> tuple[list[PruneResult], list[BaselineError]]:
    """Drop the series that no assertion reads from every baseline of a gate file.

    Returns what was dropped, and why a file was left as it is. ``dry_run`` writes nothing.
    """
    results: list[PruneResult] = []
    errors: list[BaselineError] = []
    if not store.folder.is_dir():
        return results, errors
    with contextlib.nullcontext() if dry_run else store.lock():
        for name in store.list_names():
            try:
                results += _prune_file(gate, store, store.folder / name, dry_run)
            except BaselineError as error:
                errors.append(error)
        results += _prune_windows(store, dry_run)
    return results, errors


def _prune_windows(store: BaselineStore, dry_run: bool) -> list[PruneResult]:
    """Remove the stored window files that belong to no baseline, and return a result for each; with ``dry_run`` only
    return what would be removed.
    """
    results = []
    for window in sorted(store.folder.glob(f"*{WINDOW_SUFFIX}")):
        path = window.with_name(window.name.removesuffix(WINDOW_SUFFIX) + BASELINE_SUFFIX)
        with contextlib.suppress(BaselineError):  # told where the baseline is read
            stored = store.load_file(path)
            if stored is None or store.read_stored_window(path, stored) is None:
                results.append(PruneResult(window, (), 0, is_removed=True))
                if not dry_run:
                    _remove_file(window)
    return results


def _prune_file(gate: GateFile, store: BaselineStore, path: Path, dry_run: bool) -> list[PruneResult]:
    stored = store.load_file(path)
    dropped_series = list_unread_series(gate, stored) if stored is not None else []
    if stored is None or not dropped_series:
        return []
    row_count = sum(len(stored.series.pop(sid).rows) for sid in dropped_series)
    if not dry_run and stored.series:
        store.save(path, stored)
    elif not dry_run:
        _remove_file(build_window_path(path))
        _remove_file(path)
    return [PruneResult(path, tuple(dropped_series), row_count, not stored.series)]


def find_orphans(folder: Path, root: Path, known_stores: Collection[BaselineStore]) -> list[OrphanedBaselines]:
    """Find the folders below a baseline folder whose gate file, or configuration of it, is not there any more.

    ``known_stores`` are those of gate files that were read, all configurations of each. A gate file's path is stored
    relative to the parent of the baseline folder, or to ``root``. A folder with a file that is no baseline, or with
    baselines of several gate files, is left out: nobody can say whose it is.
    """
    orphans: list[OrphanedBaselines] = []
    if not folder.is_dir():
        return orphans
    stores, files_read = (
        {store.folder for store in known_stores},
        {GateAddress.parse_file_and_configuration(store.gate).file for store in known_stores},
    )
    for gate_folder in sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()):
        files = sorted(path for path in gate_folder.iterdir() if not path.name.endswith(WINDOW_SUFFIX))
        if (
            gate_folder in stores
            or not files
            or any(path.suffix != BASELINE_SUFFIX or path.is_symlink() for path in files)
        ):
            continue
        try:
            gates = {load_baseline(path).gate for path in files}
        except BaselineError:
            continue
        gate = gates.pop()
        file = GateAddress.parse_file_and_configuration(gate).file
        exists = file not in files_read and any((base_folder / file).exists() for base_folder in (folder.parent, root))
        if not gates and not exists:
            orphans.append(OrphanedBaselines(gate_folder, gate, tuple(files)))
    return orphans


def remove_orphan(orphan: OrphanedBaselines) -> None:
    """Remove the baselines of a lost gate file and their folder. Raises BaselineError."""
    _check_inside_repository(orphan.folder)
    for path in orphan.files:
        _remove_file(build_window_path(path))
        _remove_file(path)


def _remove_file(path: Path) -> None:
    """Remove a file, and its folder where it was the last one."""
    with convert_os_errors(BaselineError, f"{path}: cannot be removed"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # other files are in it
        path.parent.rmdir()
