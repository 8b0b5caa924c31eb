"""What does ``pytest-nsys check`` find, for a person on one screen, and for a program as one object?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

import msgspec
from msgspec import Struct

from pytest_nsys.analysis.windows.circumstances import profiler_shown
from pytest_nsys.core.errors import Mistake
from pytest_nsys.core.words import counted, printable
from pytest_nsys.reports.tables.formats import as_json

WIDTH = 110
LABEL = 13
SHOWN = 3
SAID = {"cut": "GPU state"}
"""Says what a group is about that no view shows."""
WHOLE_WORDS: Mapping[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


class Plugin(Struct):
    """Says whether pytest loads the plugin in this folder; ``why_not`` is empty where it does."""

    active: bool
    why_not: str
    rootdir: str | None
    inifile: str | None


class Surroundings(Struct):
    """Says what is installed, and what pytest does here."""

    pytest_nsys: str
    python: str
    executable: str
    pytest: str
    plugin: Plugin
    nsys: str | None
    extras: dict[str, bool]  # whether the packages of each can be imported
    notes: list[str]  # what may surprise, and is no problem by itself


class TraceFile(Struct):
    path: str
    format: str
    profiler: str | None


class Group(Struct):
    """Counts the metrics that one command shows, and says why some have no row."""

    name: str
    metrics: int
    with_rows: int
    without: dict[str, list[str]]  # the metrics that have no row, by the reason


class RunShape(Struct):
    """Says what the traces hold, all of them one run."""

    files: list[TraceFile]
    ranks: list[int]
    gpu: str | None
    convention: str
    anchored: bool  # False: the whole run is measured
    measured_as: str
    quality: list[str]  # the bounds that are crossed
    doubts: list[str]  # what makes figures of a step doubtful within the bounds
    groups: list[Group]


class MistakeAt(Struct):
    """Describes a mistake of a gate file; its place counts from 1."""

    line: int | None
    column: int | None
    what: str


class CheckedGate(Struct):
    """Describes a gate file that was checked."""

    file: str
    assertions: int | None  # None where it has mistakes
    mistakes: list[MistakeAt]
    warning: str | None


class Checked(Struct):
    """Holds what ``pytest-nsys check --format json`` prints, as ``check.schema.json`` describes it."""

    version: int
    good: bool
    problems: list[str]  # what is wrong, the most urgent first, each with what to do
    surroundings: Surroundings
    gate_files: list[CheckedGate]
    not_collected: list[str]
    run: RunShape | None  # None where no trace was given, or none can be read


def as_json_report(found: Checked) -> str:
    """Return the result of a check as one JSON object."""
    return as_json(msgspec.to_builtins(found))


def as_text(found: Checked) -> str:
    """Return the result of a check as one screen: what is there, then what is wrong."""
    lines = [*_surroundings(found.surroundings)]
    for part in (_gate_files(found), _run(found.run) if found.run is not None else ()):
        lines += ["", *part_lines] if (part_lines := [*part]) else []
    doubts = found.run.doubts if found.run is not None else []
    verdict_text = f"no error; {counted(len(doubts), 'doubt')} above" if doubts else "no problem found"
    lines += ["", *([f"problem: {problem}" for problem in found.problems] or [verdict_text])]
    return "\n".join(printable(line, 4000) for line in lines) + "\n"


def _gate_files(found: Checked) -> Iterator[str]:
    """Yield a line for each good file and each mistake, with its place in front, as editors read it."""
    for checked_gate in found.gate_files:
        for mistake in checked_gate.mistakes:
            yield str(Mistake(checked_gate.file, mistake.what, mistake.line, mistake.column))
        if checked_gate.assertions is not None:
            yield f"{checked_gate.file}: good, {counted(checked_gate.assertions, 'assertion')}"
        if checked_gate.warning is not None:
            yield f"warning: {checked_gate.file}: {checked_gate.warning}"
    for path in found.not_collected:
        yield f"warning: {path}: pytest does not collect it, so nothing is judged by it"


def _line(label: str, text: str, indent: str = "") -> list[str]:
    indent_below = f"{indent}  " if indent else ""
    parts = wrap(text, WIDTH - LABEL, initial_indent=indent, subsequent_indent=indent_below, **WHOLE_WORDS) or [""]
    return [f"{label if not n else '':{LABEL}}{part}" for n, part in enumerate(parts)]


def _surroundings(found: Surroundings) -> Iterator[str]:
    yield from _line("python", f"{found.python} ({found.executable})")
    ini_text = os.path.relpath(found.plugin.inifile, found.plugin.rootdir) if found.plugin.inifile else "no ini file"
    yield from _line("pytest", f"{found.pytest}, rootdir {found.plugin.rootdir}, {ini_text}")
    for note in found.notes:
        yield from _line("", f"note: {note}")
    plugin_text = "active" if found.plugin.active else f"NOT active: {found.plugin.why_not}"
    yield from _line("plugin", f"pytest-nsys {found.pytest_nsys}, {plugin_text}")
    yield from _line("nsys", found.nsys or "not on PATH: reports (.nsys-rep) cannot be read, exports can")
    yield from _line(
        "extras", ", ".join(f"{name} {'yes' if is_installed else 'no'}" for name, is_installed in found.extras.items())
    )


def _run(found: RunShape) -> Iterator[str]:
    for file in found.files[:SHOWN]:
        format_text = f"{file.format} {profiler_shown(file.profiler)}" if file.profiler else file.format
        yield from _line("trace" if file is found.files[0] else "", f"{file.path}: {format_text}")
    if len(found.files) > SHOWN:
        yield from _line("", f"… and {len(found.files) - SHOWN} more files")
    yield from _line("ranks", ", ".join(filter(None, [counted(len(found.ranks), "rank"), found.gpu or "GPU unknown"])))
    yield from _line("convention", f"{found.convention.removeprefix('convention ')}; {found.measured_as}")
    if not found.anchored:
        markers = dict.fromkeys(MARKS.get(file.format, "NVTX") for file in found.files)
        yield from _line("", f"note: the whole run is measured: for figures of a step, mark it ({', '.join(markers)})")
    passed_text = "no bound is crossed" if found.doubts else "all checks passed"
    quality_text = f"{counted(len(found.quality), 'check')} failed, see below" if found.quality else passed_text
    yield from _line("quality", quality_text)
    for number, doubt in enumerate(found.doubts):
        yield from _line("" if number else "in doubt", doubt, indent="  " if number else "")
    for n, group in enumerate(found.groups):
        name = SAID.get(group.name, group.name)
        yield from _line("" if n else "metrics", f"{name:<12}{group.with_rows} of {group.metrics} have rows")
        for reason, names in group.without.items():
            yield from _line("", f"{named(names)}: {reason}", indent="  ")


def named(names: Sequence[str]) -> str:
    """Return some names, and how many more there are."""
    # 'and 1 more' is no shorter than the name.
    more_text = f" and {len(names) - SHOWN} more" if len(names) > SHOWN + 1 else ""
    return ", ".join(names[:SHOWN] if more_text else names) + more_text


MARKS = {
    "torch.profiler": "prof.step() or record_function",
    "JAX": "jax.profiler.StepTraceAnnotation",
    "database of rocprofv3": "ROCTx",
}
"""Maps what wrote a trace to what marks a step in it; elsewhere it is NVTX."""
