"""How are the files called that the project knows by their names, and which gate files lie below a folder?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

GATE_SUFFIX = ".nsys.yaml"
BASELINE_SUFFIX = ".json"
WINDOW_SUFFIX = ".window.json.gz"
"""Of the windows of an accepted run, which are kept beside its baseline."""

SUFFIXES = (GATE_SUFFIX, ".nsys.yml")
"""The ending of a gate file, and the one that is a mistake."""

NOT_SEARCHED = ("build", "dist", "node_modules", "venv", "_darcs", "CVS", "{arch}")
"""Folders, beside hidden ones and virtual environments, into which pytest does not look unless it is told to."""


def gate_files_below(top: Path, suffixes: tuple[str, ...] = (GATE_SUFFIX,)) -> Iterator[Path]:
    """The gate files below a folder. Links are followed, but no folder is entered twice."""
    entered: set[str] = set()
    for folder, folders, names in os.walk(top, followlinks=True):
        real = os.path.realpath(folder)
        if real in entered:
            folders[:] = []
            continue
        entered.add(real)
        folders[:] = sorted(name for name in folders if _searched(folder, name))
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(suffixes))


def _searched(folder: str, name: str) -> bool:
    known = name.startswith(".") or name.endswith(".egg") or name in NOT_SEARCHED
    return not known and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
