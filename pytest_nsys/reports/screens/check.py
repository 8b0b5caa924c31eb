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
"""Of a group that no view shows, what it is about."""
WHOLE_WORDS: Mapping[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


class Plugin(Struct):
    """Whether pytest loads the plugin in this folder; ``why_not`` is empty where it does."""

    active: bool
    why_not: str
    rootdir: str | None
    inifile: str | None


class Surroundings(Struct):
    """What is installed, and what pytest does here. ``extras`` say whether the packages of each can be imported, and
    ``notes`` what may surprise, but is not a problem by itself.
    """

    pytest_nsys: str
    python: str
    executable: str
    pytest: str
    plugin: Plugin
    nsys: str | None
    extras: dict[str, bool]
    notes: list[str]


class TraceFile(Struct):
    path: str
    format: str
    profiler: str | None


class Group(Struct):
    """The metrics that one command shows. ``without`` are those that have no row, by the reason."""

    name: str
    metrics: int
    with_rows: int
    without: dict[str, list[str]]


class RunShape(Struct):
    """What the traces hold, all of them one run. ``quality`` are the bounds that are crossed, ``doubts`` what makes
    figures of a step doubtful within them. Not ``anchored``: the whole run is measured.
    """

    files: list[TraceFile]
    ranks: list[int]
    gpu: str | None
    convention: str
    anchored: bool
    measured_as: str
    quality: list[str]
    doubts: list[str]
    groups: list[Group]


class MistakeAt(Struct):
    """A mistake of a gate file; its place counts from 1."""

    line: int | None
    column: int | None
    what: str


class CheckedGate(Struct):
    """A gate file; ``assertions`` is None where it has mistakes."""

    file: str
    assertions: int | None
    mistakes: list[MistakeAt]
    warning: str | None


class Checked(Struct):
    """What ``pytest-nsys check --format json`` prints, as ``check.schema.json`` describes it. ``problems`` say what is
    wrong, the most urgent first, each with what to do; ``run`` is None where no trace was given, or none can be read.
    """

    version: int
    good: bool
    problems: list[str]
    surroundings: Surroundings
    gate_files: list[CheckedGate]
    not_collected: list[str]
    run: RunShape | None


def as_json_report(found: Checked) -> str:
    """One object."""
    return as_json(msgspec.to_builtins(found))


def as_text(found: Checked) -> str:
    """One screen: what is there, then what is wrong."""
    lines = [*_surroundings(found.surroundings)]
    for part in (_gate_files(found), _run(found.run) if found.run is not None else ()):
        lines += ["", *told] if (told := [*part]) else []
    doubts = found.run.doubts if found.run is not None else []
    good = f"no error; {counted(len(doubts), 'doubt')} above" if doubts else "no problem found"
    lines += ["", *([f"problem: {problem}" for problem in found.problems] or [good])]
    return "\n".join(printable(line, 4000) for line in lines) + "\n"


def _gate_files(found: Checked) -> Iterator[str]:
    """A line for each good file and each mistake, with its place in front, as editors read it."""
    for each in found.gate_files:
        for m in each.mistakes:
            yield str(Mistake(each.file, m.what, m.line, m.column))
        if each.assertions is not None:
            yield f"{each.file}: good, {counted(each.assertions, 'assertion')}"
        if each.warning is not None:
            yield f"warning: {each.file}: {each.warning}"
    for path in found.not_collected:
        yield f"warning: {path}: pytest does not collect it, so nothing is judged by it"


def _line(label: str, text: str, indent: str = "") -> list[str]:
    further = f"{indent}  " if indent else ""
    own = wrap(text, WIDTH - LABEL, initial_indent=indent, subsequent_indent=further, **WHOLE_WORDS) or [""]
    return [f"{label if not n else '':{LABEL}}{part}" for n, part in enumerate(own)]


def _surroundings(found: Surroundings) -> Iterator[str]:
    yield from _line("python", f"{found.python} ({found.executable})")
    ini = os.path.relpath(found.plugin.inifile, found.plugin.rootdir) if found.plugin.inifile else "no ini file"
    yield from _line("pytest", f"{found.pytest}, rootdir {found.plugin.rootdir}, {ini}")
    for note in found.notes:
        yield from _line("", f"note: {note}")
    active = "active" if found.plugin.active else f"NOT active: {found.plugin.why_not}"
    yield from _line("plugin", f"pytest-nsys {found.pytest_nsys}, {active}")
    yield from _line("nsys", found.nsys or "not on PATH: reports (.nsys-rep) cannot be read, exports can")
    yield from _line("extras", ", ".join(f"{name} {'yes' if there else 'no'}" for name, there in found.extras.items()))


def _run(found: RunShape) -> Iterator[str]:
    for file in found.files[:SHOWN]:
        what = f"{file.format} {profiler_shown(file.profiler)}" if file.profiler else file.format
        yield from _line("trace" if file is found.files[0] else "", f"{file.path}: {what}")
    if len(found.files) > SHOWN:
        yield from _line("", f"… and {len(found.files) - SHOWN} more files")
    yield from _line("ranks", ", ".join(filter(None, [counted(len(found.ranks), "rank"), found.gpu or "GPU unknown"])))
    yield from _line("convention", f"{found.convention.removeprefix('convention ')}; {found.measured_as}")
    if not found.anchored:
        marks = dict.fromkeys(MARKS.get(file.format, "NVTX") for file in found.files)
        yield from _line("", f"note: the whole run is measured: for figures of a step, mark it ({', '.join(marks)})")
    good = "no bound is crossed" if found.doubts else "all checks passed"
    crossed = f"{counted(len(found.quality), 'check')} failed, see below" if found.quality else good
    yield from _line("quality", crossed)
    for number, doubt in enumerate(found.doubts):
        yield from _line("" if number else "in doubt", doubt, indent="  " if number else "")
    for n, group in enumerate(found.groups):
        name = SAID.get(group.name, group.name)
        yield from _line("" if n else "metrics", f"{name:<12}{group.with_rows} of {group.metrics} have rows")
        for reason, names in group.without.items():
            yield from _line("", f"{named(names)}: {reason}", indent="  ")


def named(names: Sequence[str]) -> str:
    """Some names, and how many more."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN + 1 else ""
    return ", ".join(names[:SHOWN] if more else names) + more


MARKS = {
    "torch.profiler": "prof.step() or record_function",
    "JAX": "jax.profiler.StepTraceAnnotation",
    "database of rocprofv3": "ROCTx",
}
"""What marks a step, by what wrote the trace; NVTX elsewhere."""
