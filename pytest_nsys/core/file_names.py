"""Which names do the project's files have, and which gate files are below a folder?"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

GATE_SUFFIX = ".nsys.yaml"
BASELINE_SUFFIX = ".json"
# Windows of an accepted run, which are kept beside its baseline: a cut of whatever format its traces had.
WINDOW_SUFFIX = ".window.gz"
# A cut that lies beside its trace.
CUT_SUFFIXES = (".cut.sqlite.gz", ".cut.json.gz")
# Windows drawn for a viewer, and the member of their root that distinguishes them from traces.
DRAWING_SUFFIX, DRAWING_MARK_MEMBER = ".perfetto.json.gz", "pytestNsysDrawing"
# What holds the mark of a cut: a table of one row, a member of the root of JSON.
CUT_MARK_TABLE, CUT_MARK_MEMBER = "PYTEST_NSYS_CUT", "pytestNsysCut"

_GATE_LIKE_NAME = re.compile(r"(?P<stem>[^.#].*)\.nsys\.ya?ml(?P<more>.*)", re.IGNORECASE | re.DOTALL)
# Behind the name of a gate file: what an editor keeps, what a gate file is made of, and whose it is (REUSE).
_FOREIGN_ENDING = re.compile(r"(?:.*~|\.(?:j2|jinja2?|tmpl|tpl|template|in|license))", re.DOTALL)

# How a configuration of a gate file's matrix is named: in node ids, in folders, and on the command line, so without a
# sign that any of them reads.
CONFIGURATION_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,59}"

_GATE_ADDRESS = re.compile(rf"(?P<file>.+)\[(?P<name>{CONFIGURATION_PATTERN})\]", re.DOTALL)

# pytest's default ``norecursedirs``, beside hidden folders and virtual environments: into these it does not look unless
# it is told to.
SKIPPED_FOLDERS = ("build", "dist", "node_modules", "venv", "_darcs", "CVS", "{arch}")


def has_gate_name(name: str) -> bool:
    """Whether a file has a gate file's name, or was meant to have one."""
    return name.endswith(GATE_SUFFIX) or find_name_mistake(name) != ""


def find_name_mistake(name: str) -> str:
    """Return what is wrong with the name of a file that was meant to be a gate file; empty if nothing is."""
    if name.endswith(GATE_SUFFIX):
        corrected_name = re.sub(r"[\[\]]+", "-", name.removesuffix(GATE_SUFFIX)).strip("-") + GATE_SUFFIX
        return (
            f"pytest reads '[' in a path as the parameters of a test: rename it to {corrected_name}"
            if "[" in name
            else ""
        )
    gate_like = _GATE_LIKE_NAME.fullmatch(name)
    if gate_like is None or _FOREIGN_ENDING.fullmatch(gate_like["more"]):
        return ""
    return (
        f"pytest finds gate files by name: end it in {GATE_SUFFIX}, as {gate_like['stem']}{GATE_SUFFIX}, or delete it"
    )


def find_gate_files(
    top: Path, accepts_name: Callable[[str], bool] = lambda name: name.endswith(GATE_SUFFIX)
) -> Iterator[Path]:
    """Yield the gate files below a folder, by name. Links are followed, but no folder is entered twice."""
    entered_folders: set[str] = set()
    for folder, folders, names in os.walk(top, followlinks=True):
        real = os.path.realpath(folder)
        if real in entered_folders:
            folders[:] = []
            continue
        entered_folders.add(real)
        folders[:] = sorted(name for name in folders if _is_searched(folder, name))
        yield from (Path(folder, name) for name in sorted(names) if accepts_name(name))


def _is_searched(folder: str, name: str) -> bool:
    skips = name.startswith(".") or name.endswith(".egg") or name in SKIPPED_FOLDERS
    return not skips and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))


class GateAddress(NamedTuple):
    """Names a gate file and one configuration of its matrix: ``perf/step.nsys.yaml[llama-8b]``. Empty: all of it."""

    file: str
    configuration: str = ""

    @classmethod
    def parse_file_and_configuration(cls, text: str) -> GateAddress:
        """Parse what a user typed; brackets have a meaning only after a gate file's name."""
        match = _GATE_ADDRESS.fullmatch(text)
        return cls(match["file"], match["name"]) if match and has_gate_name(match["file"]) else cls(text)

    @property
    def stem(self) -> str:
        """The path to name files of it: ``perf/step@llama-8b``."""
        file_stem = self.file.removesuffix(GATE_SUFFIX)
        return f"{file_stem}@{self.configuration}" if self.configuration else file_stem

    def __str__(self) -> str:
        return f"{self.file}[{self.configuration}]" if self.configuration else self.file
