"""Which gate files lie below a folder?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pytest_nsys.errors import UsageMistake
from pytest_nsys.gates.baseline_file import GATE_SUFFIX

NOT_SEARCHED = ("node_modules", "venv", "build", "dist")
"""Beside hidden folders."""


def gate_files_below(root: Path) -> list[str]:
    """The gate files below a folder, sorted."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in NOT_SEARCHED]
        found += [str(Path(folder, name)) for name in files if name.endswith(GATE_SUFFIX)]
    return sorted(found)


def gate_files_of(values: Sequence[str]) -> list[str]:
    """The gate files that paths of files and folders mean. Raises UsageMistake for a folder without any."""
    found: list[str] = []
    for value in values:
        own = gate_files_below(Path(value)) if Path(value).is_dir() else [value]
        if not own:
            raise UsageMistake(f"{value}: holds no gate file (*{GATE_SUFFIX})")
        found += own
    return found
