"""How are the files called that the project knows by their names, and which gate files lie below a folder?"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

GATE_SUFFIX = ".nsys.yaml"
BASELINE_SUFFIX = ".json"
WINDOW_SUFFIX = ".window.gz"
"""Of the windows of an accepted run, which are kept beside its baseline: a cut of whatever format its traces had."""
CUT_SUFFIXES = (".cut.sqlite.gz", ".cut.json.gz")
"""Of a cut that lies beside its trace."""
DRAWING_SUFFIX, DRAWING_MEMBER = ".perfetto.json.gz", "pytestNsysDrawing"
"""Of windows as a viewer opens them, and the member of their root by which they are no trace."""
CUT_TABLE, CUT_MEMBER = "PYTEST_NSYS_CUT", "pytestNsysCut"
"""What holds the mark of a cut: a table of one row, a member of the root of JSON."""

_MEANT = re.compile(r"(?P<stem>[^.#].*)\.nsys\.ya?ml(?P<more>.*)", re.IGNORECASE | re.DOTALL)
_OF_OTHERS = re.compile(r"(?:.*~|\.(?:j2|jinja2?|tmpl|tpl|template|in|license))", re.DOTALL)
"""Behind the name of a gate file: what an editor keeps, what a gate file is made of, and whose it is (REUSE)."""

CONFIGURATION = "[A-Za-z0-9][A-Za-z0-9._-]{0,59}"
"""How a configuration of a gate file's matrix is named: in node ids, in folders, and on the command line."""

_ADDRESS = re.compile(rf"(?P<file>.+)\[(?P<name>{CONFIGURATION})\]", re.DOTALL)

NOT_SEARCHED = ("build", "dist", "node_modules", "venv", "_darcs", "CVS", "{arch}")
"""Folders, beside hidden ones and virtual environments, into which pytest does not look unless it is told to."""


def named_as_gate(name: str) -> bool:
    """Whether a file is a gate file by its name, or was meant to be one."""
    return name.endswith(GATE_SUFFIX) or misnamed(name) != ""


def misnamed(name: str) -> str:
    """What is wrong with the name of a file that was meant to be a gate file; empty where nothing is."""
    if name.endswith(GATE_SUFFIX):
        right = re.sub(r"[\[\]]+", "-", name.removesuffix(GATE_SUFFIX)).strip("-") + GATE_SUFFIX
        return f"pytest reads '[' in a path as the parameters of a test: rename it to {right}" if "[" in name else ""
    meant = _MEANT.fullmatch(name)
    if meant is None or _OF_OTHERS.fullmatch(meant["more"]):
        return ""
    return f"pytest finds gate files by name: end it in {GATE_SUFFIX}, as {meant['stem']}{GATE_SUFFIX}, or delete it"


def gate_files_below(
    top: Path, wanted: Callable[[str], bool] = lambda name: name.endswith(GATE_SUFFIX)
) -> Iterator[Path]:
    """The gate files below a folder. Links are followed, but no folder is entered twice."""
    entered: set[str] = set()
    for folder, folders, names in os.walk(top, followlinks=True):
        real = os.path.realpath(folder)
        if real in entered:
            folders[:] = []
            continue
        entered.add(real)
        folders[:] = sorted(name for name in folders if _searched(folder, name))
        yield from (Path(folder, name) for name in sorted(names) if wanted(name))


def _searched(folder: str, name: str) -> bool:
    passed_over = name.startswith(".") or name.endswith(".egg") or name in NOT_SEARCHED
    return not passed_over and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))


class Address(NamedTuple):
    """A gate file, and one configuration of its matrix: ``perf/step.nsys.yaml[llama-8b]``. Empty: the whole file."""

    file: str
    configuration: str = ""

    @classmethod
    def of(cls, text: str) -> Address:
        """What a person typed; a name that is no gate file's has no brackets of ours."""
        match = _ADDRESS.fullmatch(text)
        return cls(match["file"], match["name"]) if match and named_as_gate(match["file"]) else cls(text)

    @property
    def stem(self) -> str:
        """Fit to name files of it: ``perf/step@llama-8b``."""
        own = self.file.removesuffix(GATE_SUFFIX)
        return f"{own}@{self.configuration}" if self.configuration else own

    def __str__(self) -> str:
        return f"{self.file}[{self.configuration}]" if self.configuration else self.file
