"""Are gate files well written? A part of ``pytest-nsys check``, which needs no trace for it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.cli.asking import collected, shown
from pytest_nsys.cli.saying import say
from pytest_nsys.core.errors import GateFileError, Mistake
from pytest_nsys.core.file_names import GATE_SUFFIX, gate_files_below, misnamed, named_as_gate
from pytest_nsys.core.words import counted, typed
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.kinds import SCHEMA, SCHEMA_TITLE
from pytest_nsys.reports.screens.check import CheckedGate, MistakeAt


class GateFiles(NamedTuple):
    """What is told of gate files; ``problems`` say what is wrong, ``not_collected`` which of them pytest leaves out."""

    files: Sequence[CheckedGate] = ()
    not_collected: Sequence[str] = ()
    problems: Sequence[str] = ()


def holds_gates(path: Path) -> bool:
    """Whether a path means gate files: one by its name, or a folder with some."""
    return any(gate_files_below(path, named_as_gate)) if path.is_dir() else named_as_gate(path.name)


def checked_gates(values: Sequence[str], *, collects: bool) -> GateFiles:
    """The gate files that files and folders mean: those that pytest collects, or where it ``collects`` none, all."""
    absent = [f"{value}: there is no such file or folder" for value in values if not Path(value).exists()]
    there = [value for value in values if Path(value).exists()]
    below: list[Path] = []
    for path in map(Path, there):
        below += gate_files_below(path, named_as_gate) if path.is_dir() else [path]
    if not collects:
        return _told(below, [], absent)
    found, said = collected(there, None) if there else ([], "")
    paths = [shown(each.path) for each in found]
    known = {path.resolve() for path in paths}
    missed = [path for path in below if path.resolve() not in known and not misnamed(path.name)]
    told = _told(paths, missed, absent)
    if said and not any(each.mistakes for each in told.files):  # a mark that is not registered, a conftest
        say(said, err=True, nl=False)
        return GateFiles((), told.not_collected, [*absent, "pytest cannot collect the gate files: see what it printed"])
    if there and not found:
        none = f"pytest collects no gate file (*{GATE_SUFFIX}) in {', '.join(there)}"
        return told._replace(problems=[*told.problems, none])
    return told


def _told(paths: Sequence[Path], missed: Sequence[Path], absent: Sequence[str]) -> GateFiles:
    files = [_checked(path) for path in paths]
    wrong = [f"{each.file}: {counted(len(each.mistakes), 'mistake')}" for each in files if each.mistakes]
    return GateFiles(files, [*map(str, missed)], [*absent, *wrong])


def _checked(path: Path) -> CheckedGate:
    try:
        if why := misnamed(path.name):
            raise GateFileError([Mistake(str(path), why, 1, 1)])
        gate = load_gate_file(path.resolve(), display=path)
    except GateFileError as error:
        return CheckedGate(str(path), None, [MistakeAt(m.line, m.column, m.text) for m in error.mistakes], None)
    return CheckedGate(str(path), len(gate.assertions), [], _stale_schema(path) or None)


_NAMED_SCHEMA = re.compile(r"^#.*\$schema[=:]\s*(?P<path>\S+)", re.MULTILINE)


def _stale_schema(path: Path) -> str:
    """That the copy of the schema, which the gate file names for editors, is of another version; else empty."""
    with contextlib.suppress(OSError, UnicodeError, ValueError):
        found = _NAMED_SCHEMA.search(path.read_text(encoding="utf-8"))
        copy = path.parent / found["path"] if found is not None else None
        own = copy.read_bytes() if copy is not None and copy.is_file() else b""
        if copy is not None and SCHEMA_TITLE in own and own != SCHEMA.read_bytes():
            command = typed(["cp", str(SCHEMA), str(shown(copy))])
            return f"its copy of the schema is of another version: {command}"
    return ""
