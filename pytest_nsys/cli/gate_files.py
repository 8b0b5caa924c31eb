"""Which gate files do paths of files and folders mean?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.gates.finding import gate_files_below


def gate_files_of(values: Sequence[str]) -> list[str]:
    """The gate files that paths of files and folders mean. Raises UsageMistake for a folder without any."""
    found: list[str] = []
    for value in values:
        own = sorted(map(str, gate_files_below(Path(value)))) if Path(value).is_dir() else [value]
        if not own:
            raise UsageMistake(f"{value}: holds no gate file (*{GATE_SUFFIX})")
        found += own
    return found
