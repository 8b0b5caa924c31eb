"""What in a baseline folder does nobody read any more? Series of other assertions, folders of lost gate files."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pytest_nsys.core.errors import BaselineError
from pytest_nsys.core.file_names import BASELINE_SUFFIX
from pytest_nsys.gates.assertion import GateFile
from pytest_nsys.stored.baselines.baseline_file import Baseline, SeriesId, load
from pytest_nsys.stored.baselines.series import stale
from pytest_nsys.stored.baselines.store import BaselineStore


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was dropped from one file. ``removed``: nothing was left, so the file went with it."""

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
        for name in store.files.names(store.folder):
            try:
                found += _prune_file(gate, store, store.folder / name, dry_run)
            except BaselineError as error:
                errors.append(error)
    return found, errors


def _prune_file(gate: GateFile, store: BaselineStore, path: Path, dry_run: bool) -> list[Pruned]:
    stored = store.at(path)
    dropped = stale(gate, stored) if stored is not None else []
    if stored is None or not dropped:
        return []
    rows = sum(len(stored.series.pop(sid).rows) for sid in dropped)
    if not dry_run and stored.series:
        store.save(path, stored)
    elif not dry_run:
        _remove(path)
    return [Pruned(path, tuple(dropped), rows, not stored.series)]


def orphans(folder: Path, root: Path, known: Collection[Path]) -> list[Orphan]:
    """The folders below a baseline folder whose gate file is neither there any more nor among the ``known`` stores.

    A gate file's path is stored relative to what holds the baseline folder, or to ``root``. A folder with a file that
    is no baseline, or with baselines of several gate files, is nobody's to judge and is left out.
    """
    found: list[Orphan] = []
    if not folder.is_dir():
        return found
    for own in sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()):
        files = sorted(own.iterdir())
        if own in known or not files:
            continue
        try:
            gates = {_loaded(path).gate for path in files}
        except BaselineError:
            continue
        gate = gates.pop()
        if not gates and not any((anchor / gate).exists() for anchor in (folder.parent, root)):
            found.append(Orphan(own, gate, tuple(files)))
    return found


def _loaded(path: Path) -> Baseline:
    if path.suffix != BASELINE_SUFFIX or path.is_symlink():
        raise BaselineError(f"{path}: is no baseline")
    return load(path)


def remove(orphan: Orphan) -> None:
    """Remove the baselines of a lost gate file and their folder. Raises BaselineError."""
    for path in orphan.files:
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a file, and its folder where it was the last."""
    try:
        path.unlink()
    except OSError as error:
        raise BaselineError(f"{path}: cannot be removed: {error.strerror}") from error
    with contextlib.suppress(OSError):  # other files are in it
        path.parent.rmdir()
