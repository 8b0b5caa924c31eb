"""Are gate files valid? A part of ``pytest-nsys check`` that needs no trace."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_nsys.cli.pytest_session import collect_gates, shorten_path
from pytest_nsys.cli.terminal_text import echo
from pytest_nsys.core.errors import GateFileError, Mistake
from pytest_nsys.core.file_names import GATE_SUFFIX, find_gate_files, find_name_mistake, has_gate_name
from pytest_nsys.core.text_format import format_count, quote_command
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.kinds import SCHEMA, SCHEMA_TITLE
from pytest_nsys.reports.screens.check import CheckedGate, LocatedMistake


class GateFileCheck(NamedTuple):
    """Holds the results of a check of gate files."""

    files: Sequence[CheckedGate] = ()
    not_collected: Sequence[str] = ()  # gate files that pytest does not collect
    problems: Sequence[str] = ()


def has_gate_files(path: Path) -> bool:
    """Return whether a path is a gate file (by its name), or a folder that contains some."""
    return any(find_gate_files(path, has_gate_name)) if path.is_dir() else has_gate_name(path.name)


def check_gate_files(values: Sequence[str], *, can_collect: bool) -> GateFileCheck:
    """Check the gate files named by files and folders: those that pytest collects, or all if pytest cannot run."""
    absent_files = [f"{value}: there is no such file or folder" for value in values if not Path(value).exists()]
    existing_files = [value for value in values if Path(value).exists()]
    gate_paths: list[Path] = []
    for path in map(Path, existing_files):
        gate_paths += find_gate_files(path, has_gate_name) if path.is_dir() else [path]
    if not can_collect:
        return _build_check(gate_paths, [], absent_files)
    gates, output = collect_gates(existing_files, None) if existing_files else ([], "")
    paths = [shorten_path(gate.path) for gate in gates]
    collected_paths = {path.resolve() for path in paths}
    missed_paths = [
        path for path in gate_paths if path.resolve() not in collected_paths and not find_name_mistake(path.name)
    ]
    checked = _build_check(paths, missed_paths, absent_files)
    if output and not any(gate.mistakes for gate in checked.files):  # an unregistered mark, a broken conftest
        echo(output, err=True, nl=False)
        return GateFileCheck(
            (), checked.not_collected, [*absent_files, "pytest cannot collect the gate files: see what it printed"]
        )
    if existing_files and not gates:
        problem = f"pytest collects no gate file (*{GATE_SUFFIX}) in {', '.join(existing_files)}"
        return checked._replace(problems=[*checked.problems, problem])
    return checked


def _build_check(paths: Sequence[Path], missed_paths: Sequence[Path], absent_files: Sequence[str]) -> GateFileCheck:
    """Check each gate file, and return the results and the problems."""
    files = [_check_gate(path) for path in paths]
    problems = [f"{gate.file}: {format_count(len(gate.mistakes), 'mistake')}" for gate in files if gate.mistakes]
    return GateFileCheck(files, [*map(str, missed_paths)], [*absent_files, *problems])


def _check_gate(path: Path) -> CheckedGate:
    """Check one gate file, and return its number of assertions or its mistakes."""
    try:
        if problem := find_name_mistake(path.name):
            raise GateFileError([Mistake(str(path), problem, 1, 1)])
        gate = load_gate_file(path.resolve(), display=path)
    except GateFileError as error:
        return CheckedGate(
            str(path),
            None,
            [LocatedMistake(mistake.line, mistake.column, mistake.text) for mistake in error.mistakes],
            None,
        )
    return CheckedGate(str(path), len(gate.assertions), [], _describe_stale_schema(path) or None)


_NAMED_SCHEMA = re.compile(r"^#.*\$schema[=:]\s*(?P<path>\S+)", re.MULTILINE)


def _describe_stale_schema(path: Path) -> str:
    """Describe that the copy of the schema that the gate file names for editors is of another version; else return an
    empty text.
    """
    with contextlib.suppress(OSError, UnicodeError, ValueError):
        match = _NAMED_SCHEMA.search(path.read_text(encoding="utf-8"))
        copy = path.parent / match["path"] if match is not None else None
        content = copy.read_bytes() if copy is not None and copy.is_file() else b""
        if copy is not None and SCHEMA_TITLE in content and content != SCHEMA.read_bytes():
            command = quote_command(["cp", str(SCHEMA), str(shorten_path(copy))])
            return f"its copy of the schema is of another version: {command}"
    return ""
