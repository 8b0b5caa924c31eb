"""What does ``pytest-nsys check`` find, for a person on one screen, and for a program as one object?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

import msgspec
from msgspec import Struct

from pytest_nsys.analysis.windows.run_conditions import format_profiler_version
from pytest_nsys.core.errors import Mistake
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.reports.tables.formats import render_json

SCREEN_WIDTH = 110
LABEL_WIDTH = 13
SHOWN_COUNT = 3
GROUP_WORDS = {"cut": "GPU state"}
"""The words for groups of metrics that no view shows."""
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
    notes: list[str]  # facts that may surprise, but are not problems


class TraceFile(Struct):
    path: str
    format: str
    profiler: str | None


class MetricGroup(Struct):
    """Counts the metrics that one command shows, and says why some have no row."""

    name: str
    metrics: int
    with_rows: int
    without: dict[str, list[str]]  # the metrics without rows, by reason


class RunShape(Struct):
    """Says what the traces hold, all of them one run."""

    files: list[TraceFile]
    ranks: list[int]
    gpu: str | None
    convention: str
    anchored: bool  # False: the whole run is measured
    measured_as: str
    quality: list[str]  # the quality bounds that are crossed
    doubts: list[str]  # doubts about figures of a step although no bound is crossed
    groups: list[MetricGroup]


class LocatedMistake(Struct):
    """Describes a mistake of a gate file; its place counts from 1."""

    line: int | None
    column: int | None
    what: str


class CheckedGate(Struct):
    """Describes a gate file that was checked."""

    file: str
    assertions: int | None  # None if it has mistakes
    mistakes: list[LocatedMistake]
    warning: str | None


class CheckResult(Struct):
    """Holds what ``pytest-nsys check --format json`` prints, as ``check.schema.json`` describes it."""

    version: int
    good: bool
    problems: list[str]  # the problems, most urgent first, each with what to do
    surroundings: Surroundings
    gate_files: list[CheckedGate]
    not_collected: list[str]
    run: RunShape | None  # None if no trace was given, or none can be read


def render_check_json(result: CheckResult) -> str:
    """Return the result of a check as one JSON object."""
    return render_json(msgspec.to_builtins(result))


def render_check_text(result: CheckResult) -> str:
    """Return the result of a check as one screen: what was found, then the problems."""
    lines = [*_render_python_and_plugin(result.surroundings)]
    for part in (_render_gate_files(result), _render_run_shape(result.run) if result.run is not None else ()):
        lines += ["", *part_lines] if (part_lines := [*part]) else []
    doubts = result.run.doubts if result.run is not None else []
    verdict_text = f"no error; {format_count(len(doubts), 'doubt')} above" if doubts else "no problem found"
    lines += ["", *([f"problem: {problem}" for problem in result.problems] or [verdict_text])]
    return "\n".join(sanitize_line(line, 4000) for line in lines) + "\n"


def _render_gate_files(result: CheckResult) -> Iterator[str]:
    """Yield a line for each valid file and each mistake; mistakes begin with ``FILE:LINE``, which editors recognise."""
    for checked_gate in result.gate_files:
        for mistake in checked_gate.mistakes:
            yield str(Mistake(checked_gate.file, mistake.what, mistake.line, mistake.column))
        if checked_gate.assertions is not None:
            yield f"{checked_gate.file}: good, {format_count(checked_gate.assertions, 'assertion')}"
        if checked_gate.warning is not None:
            yield f"warning: {checked_gate.file}: {checked_gate.warning}"
    for path in result.not_collected:
        yield f"warning: {path}: pytest does not collect it, so nothing is judged by it"


def _wrap_line(label: str, text: str, indent: str = "") -> list[str]:
    indent_below = f"{indent}  " if indent else ""
    parts = wrap(
        text, SCREEN_WIDTH - LABEL_WIDTH, initial_indent=indent, subsequent_indent=indent_below, **WHOLE_WORDS
    ) or [""]
    return [f"{label if not n else '':{LABEL_WIDTH}}{part}" for n, part in enumerate(parts)]


def _render_python_and_plugin(surroundings: Surroundings) -> Iterator[str]:
    yield from _wrap_line("python", f"{surroundings.python} ({surroundings.executable})")
    ini_text = (
        os.path.relpath(surroundings.plugin.inifile, surroundings.plugin.rootdir)
        if surroundings.plugin.inifile
        else "no ini file"
    )
    yield from _wrap_line("pytest", f"{surroundings.pytest}, rootdir {surroundings.plugin.rootdir}, {ini_text}")
    for note in surroundings.notes:
        yield from _wrap_line("", f"note: {note}")
    plugin_text = "active" if surroundings.plugin.active else f"NOT active: {surroundings.plugin.why_not}"
    yield from _wrap_line("plugin", f"pytest-nsys {surroundings.pytest_nsys}, {plugin_text}")
    yield from _wrap_line("nsys", surroundings.nsys or "not on PATH: reports (.nsys-rep) cannot be read, exports can")
    yield from _wrap_line(
        "extras",
        ", ".join(f"{name} {'yes' if is_installed else 'no'}" for name, is_installed in surroundings.extras.items()),
    )


def _render_run_shape(run: RunShape) -> Iterator[str]:
    for file in run.files[:SHOWN_COUNT]:
        format_text = f"{file.format} {format_profiler_version(file.profiler)}" if file.profiler else file.format
        yield from _wrap_line("trace" if file is run.files[0] else "", f"{file.path}: {format_text}")
    if len(run.files) > SHOWN_COUNT:
        yield from _wrap_line("", f"… and {len(run.files) - SHOWN_COUNT} more files")
    yield from _wrap_line(
        "ranks", ", ".join(filter(None, [format_count(len(run.ranks), "rank"), run.gpu or "GPU unknown"]))
    )
    yield from _wrap_line("convention", f"{run.convention.removeprefix('convention ')}; {run.measured_as}")
    if not run.anchored:
        markers = dict.fromkeys(STEP_MARKERS.get(file.format, "NVTX") for file in run.files)
        yield from _wrap_line(
            "", f"note: the whole run is measured: for figures of a step, mark it ({', '.join(markers)})"
        )
    passed_text = "no bound is crossed" if run.doubts else "all checks passed"
    quality_text = f"{format_count(len(run.quality), 'check')} failed, see below" if run.quality else passed_text
    yield from _wrap_line("quality", quality_text)
    for number, doubt in enumerate(run.doubts):
        yield from _wrap_line("" if number else "in doubt", doubt, indent="  " if number else "")
    for n, group in enumerate(run.groups):
        name = GROUP_WORDS.get(group.name, group.name)
        yield from _wrap_line("" if n else "metrics", f"{name:<12}{group.with_rows} of {group.metrics} have rows")
        for reason, names in group.without.items():
            yield from _wrap_line("", f"{format_names(names)}: {reason}", indent="  ")


def format_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    # 'and 1 more' is no shorter than the name.
    more_text = f" and {len(names) - SHOWN_COUNT} more" if len(names) > SHOWN_COUNT + 1 else ""
    return ", ".join(names[:SHOWN_COUNT] if more_text else names) + more_text


STEP_MARKERS = {
    "torch.profiler": "prof.step() or record_function",
    "JAX": "jax.profiler.StepTraceAnnotation",
    "database of rocprofv3": "ROCTx",
}
"""What marks a step in a trace, by its profiler; NVTX for all others."""
