"""``pytest-nsys check``: is all well with what is installed here, with gate files, and with traces?"""

from __future__ import annotations

import contextlib
import glob
from pathlib import Path

import click

from pytest_nsys.cli.environment import look_around
from pytest_nsys.cli.gate_check import GateFiles, checked_gates, holds_gates
from pytest_nsys.cli.group import Exit
from pytest_nsys.cli.saying import say
from pytest_nsys.cli.shared_options import anchor_option, convention_option, executor_option
from pytest_nsys.core.conventions import Anchor
from pytest_nsys.core.errors import GateFileError, UsageMistake
from pytest_nsys.core.file_names import GATE_SUFFIX, Address, named_as_gate
from pytest_nsys.gates.gate_file import load_one
from pytest_nsys.reports.screens.check import Checked, as_json_report, as_text
from pytest_nsys.reports.tables.targets import YAML


@click.command()
@click.argument("words", metavar="[GATE FILES or TRACES…]", nargs=-1)
@convention_option
@anchor_option
@click.option("--format", type=click.Choice(["table", "json"]), default="table", help="Output format.")
@executor_option
@click.pass_context
def check(
    context: click.Context,
    words: tuple[str, ...],
    convention: str | None,
    anchor: Anchor | None,
    format: str,
    executor: str | None,
) -> None:
    """Check gate files, traces and what is installed.

    Says what is wrong, or why there is nothing. Without a path: all gate files below this folder. A folder means its
    gate files, or if it has none, the traces of a run. Of gate files, those that pytest finds, it shows every mistake;
    of traces, which are one run, format, ranks, convention, trace quality, and which metrics have rows, or what to
    capture for them.

    Exit codes: 0 no problem, also where the whole run is measured; 1 the plugin is not active, or the traces' quality
    is too low; 2 a mistake, or an unreadable file; 3 no data.
    """
    gates, traces = _told_apart(words)
    trace_options = {"--convention": convention, "--anchor": anchor, "--executor": executor}
    if not traces and (given_options := [name for name, value in trace_options.items() if value is not None]):
        raise UsageMistake(f"{given_options[0]} is for traces: give one, or leave it out")
    surroundings = look_around()
    if not words and not gates:
        surroundings.notes.append("there is no gate file below this folder: pytest-nsys init TRACE… writes one")
    gate_results = checked_gates(gates, collects=surroundings.plugin.active) if gates else GateFiles()
    run, unreadable = None, list[str]()
    code = Exit.MISTAKE if gate_results.problems else Exit.GOOD
    if traces:
        from pytest_nsys.cli.trace_check import checked_run  # gate files alone need nothing that reads traces

        run, unreadable, run_code = checked_run(traces, convention, anchor, executor)
        code = code or run_code
    problems = [*gate_results.problems, *unreadable, *filter(None, [surroundings.plugin.why_not])]
    problems += run.quality if run is not None else []
    result = Checked(
        1, not problems, problems, surroundings, list(gate_results.files), list(gate_results.not_collected), run
    )
    say(as_json_report(result) if format == "json" else as_text(result), nl=False)
    context.exit(code or (Exit.WORSE if problems else Exit.GOOD))


def _told_apart(words: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the gate files and folders of them, and the rest, which are traces. Raises UsageMistake for other YAML."""
    if not words:
        return (["."] if holds_gates(Path()) else []), []
    files = [file for word in words for file in _spelled_out(Address.of(word).file)]
    gates = [file for file in files if file and holds_gates(Path(file))]
    traces = [file for file in files if file not in gates]
    for word in words:
        if Address.of(word).configuration and Path(Address.of(word).file).is_file():
            with contextlib.suppress(GateFileError):  # which is told of the file
                load_one(Path(word))
    if yaml_file := next((word for word in traces if word.endswith(YAML) and Path(word).is_file()), None):
        raise UsageMistake(f"{yaml_file}: pytest finds gate files by name: end it in {GATE_SUFFIX}")
    return gates, traces


def _spelled_out(word: str) -> list[str]:
    """Return the gate files that a quoted glob matches; any other path as it is, for traces have globs of their own."""
    if not named_as_gate(word) or Path(word).exists():
        return [word]
    return sorted(glob.glob(word, recursive=True)) or [word]
