"""How are the files called that the project knows by their names, and which gate files lie below a folder?"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

GATE_SUFFIX = ".nsys.yaml"
BASELINE_SUFFIX = ".json"
WINDOW_SUFFIX = ".window.json.gz"
"""Of the windows of an accepted run, which are kept beside its baseline."""

SUFFIXES = (GATE_SUFFIX, ".nsys.yml")
"""The ending of a gate file, and the one that is a mistake."""

CONFIGURATION = "[A-Za-z0-9][A-Za-z0-9._-]{0,59}"
"""How a configuration of a gate file's matrix is named: in node ids, in folders, and on the command line."""

_ADDRESS = re.compile(rf"(?P<file>.+)\[(?P<name>{CONFIGURATION})\]", re.DOTALL)

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


class Address(NamedTuple):
    """A gate file, and one configuration of its matrix: ``perf/step.nsys.yaml[llama-8b]``. Empty: the whole file."""

    file: str
    configuration: str = ""

    @classmethod
    def of(cls, text: str) -> Address:
        """What a person typed; a name that is no gate file's has no brackets of ours."""
        match = _ADDRESS.fullmatch(text)
        return cls(match["file"], match["name"]) if match and match["file"].endswith(SUFFIXES) else cls(text)

    @property
    def stem(self) -> str:
        """Fit to name files of it: ``perf/step@llama-8b``."""
        own = self.file.removesuffix(GATE_SUFFIX)
        return f"{own}@{self.configuration}" if self.configuration else own

    def __str__(self) -> str:
        return f"{self.file}[{self.configuration}]" if self.configuration else self.file
