"""``pytest-nsys check``: are the installation, gate files and traces in order?"""

from __future__ import annotations

import contextlib
import glob
from pathlib import Path

import click

from pytest_nsys.cli.command_group import ExitCode
from pytest_nsys.cli.environment import inspect_environment
from pytest_nsys.cli.gate_check import GateFileCheck, check_gate_files, has_gate_files
from pytest_nsys.cli.shared_options import anchor_option, convention_option, executor_option
from pytest_nsys.cli.terminal_text import echo
from pytest_nsys.core.conventions import Anchor
from pytest_nsys.core.errors import GateFileError, UsageMistake
from pytest_nsys.core.file_names import GATE_SUFFIX, GateAddress, has_gate_name
from pytest_nsys.gates.gate_file import load_configuration
from pytest_nsys.reports.screens.check import CheckResult, render_check_json, render_check_text
from pytest_nsys.reports.tables.report_targets import YAML_SUFFIXES


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
    gates, traces = _split_gates_and_traces(words)
    trace_options = {"--convention": convention, "--anchor": anchor, "--executor": executor}
    if not traces and (given_options := [name for name, value in trace_options.items() if value is not None]):
        raise UsageMistake(f"{given_options[0]} is for traces: give one, or leave it out")
    surroundings = inspect_environment()
    if not words and not gates:
        surroundings.notes.append("there is no gate file below this folder: pytest-nsys init TRACE… writes one")
    gate_results = check_gate_files(gates, can_collect=surroundings.plugin.active) if gates else GateFileCheck()
    run, unreadable = None, list[str]()
    code = ExitCode.MISTAKE if gate_results.problems else ExitCode.GOOD
    if traces:
        from pytest_nsys.cli.trace_check import check_run  # not needed for gate files alone

        run, unreadable, run_code = check_run(traces, convention, anchor, executor)
        code = code or run_code
    problems = [*gate_results.problems, *unreadable, *filter(None, [surroundings.plugin.why_not])]
    problems += run.quality if run is not None else []
    result = CheckResult(
        1, not problems, problems, surroundings, list(gate_results.files), list(gate_results.not_collected), run
    )
    echo(render_check_json(result) if format == "json" else render_check_text(result), nl=False)
    context.exit(code or (ExitCode.WORSE if problems else ExitCode.GOOD))


def _split_gates_and_traces(words: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the gate files and their folders, and the other paths, which are traces. Raises UsageMistake for other
    YAML files.
    """
    if not words:
        return (["."] if has_gate_files(Path()) else []), []
    files = [file for word in words for file in _expand_gate_glob(GateAddress.parse_file_and_configuration(word).file)]
    gates = [file for file in files if file and has_gate_files(Path(file))]
    traces = [file for file in files if file not in gates]
    for word in words:
        if (
            GateAddress.parse_file_and_configuration(word).configuration
            and Path(GateAddress.parse_file_and_configuration(word).file).is_file()
        ):
            with contextlib.suppress(GateFileError):  # which is told of the file
                load_configuration(Path(word))
    if yaml_file := next((word for word in traces if word.endswith(YAML_SUFFIXES) and Path(word).is_file()), None):
        raise UsageMistake(f"{yaml_file}: pytest finds gate files by name: end it in {GATE_SUFFIX}")
    return gates, traces


def _expand_gate_glob(path_text: str) -> list[str]:
    """Return the gate files that a quoted glob matches; any other path unchanged, because globs of traces are expanded
    later.
    """
    if not has_gate_name(path_text) or Path(path_text).exists():
        return [path_text]
    return sorted(glob.glob(path_text, recursive=True)) or [path_text]
