"""``pytest-nsys cut``: write the measured window as a small trace to look at, to send, and to measure again."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from pytest_nsys.analysis.captures.trace_cut import RunCut, render_cut
from pytest_nsys.analysis.captures.trace_cut import cut_run as cut_out
from pytest_nsys.cli.options import MeasureOptions, add_measure_options, format_notes, open_cache, print_notes
from pytest_nsys.cli.pytest_session import list_gates_with_stores
from pytest_nsys.cli.terminal_text import echo
from pytest_nsys.core.errors import UsageMistake, convert_os_errors
from pytest_nsys.core.file_names import DRAWING_SUFFIX, GATE_SUFFIX, GateAddress
from pytest_nsys.core.model import Note
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.text_format import format_count, quote_command, sanitize_line
from pytest_nsys.core.units import SIZE
from pytest_nsys.gates.convention_keys import check_trace_paths
from pytest_nsys.gates.gate_file import load_configuration
from pytest_nsys.gates.model import GateFile, build_requests
from pytest_nsys.reports.drawings.perfetto import draw_run, pack_text, render_perfetto_json
from pytest_nsys.reports.tables.report_targets import check_report_target
from pytest_nsys.tools.files import write_atomically
from pytest_nsys.traces.trace_files import JSON_SUFFIXES, SQLITE_SUFFIXES, find_traces, get_trace_stem, is_table_trace
from pytest_nsys.verdicts.evaluate import GateContext, resolve_gate_convention
from pytest_nsys.verdicts.gate_windows import cut_gate_windows, list_unjudged_assertions

VIEWER = "https://ui.perfetto.dev"
TRACE, PERFETTO = "trace", "perfetto"
FORMATS = (TRACE, PERFETTO)
MAX_WINDOW_NAME = 40
GATE_GLOB = f"*{GATE_SUFFIX}"


@click.command()
@click.argument("traces", metavar="TRACES…", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", help="File to write. Default: beside the trace.")
@click.option("--gate", metavar="FILE", help="Write every window that this gate file judges, of every rank.")
@click.option(
    "--format",
    "as_format",
    metavar="FORMAT",
    type=click.Choice(FORMATS),
    default=TRACE,
    help=f"A trace to measure, or JSON to look at in {VIEWER}: {' or '.join(FORMATS)}. Default: {TRACE}.",
)
@add_measure_options(omitted=["format", "executor"])
def cut(
    measure_options: MeasureOptions, traces: tuple[str, ...], output: str | None, gate: str | None, as_format: str
) -> None:
    """Write the measured window of a run as a small trace.

    TRACES: files, folders or globs of one run.

    A cut of exports of nsys or of databases of rocprofv3 is SQLite with the tables of nsys, one of torch.profiler or
    JAX is JSON with their events. Commands and gates read it as a trace, and with the same options measure the same
    values. With --gate the gate file passes or fails on the cut as it does on TRACES.
    """
    paths = _find_cut_sources(traces)
    typed_paths = [Path(value) for value in traces]
    if as_format == PERFETTO and gate is not None:
        raise UsageMistake("--gate writes a trace to judge: leave --format perfetto out, or draw one window")
    is_drawing = as_format == PERFETTO
    suffixes = JSON_SUFFIXES if is_drawing else SQLITE_SUFFIXES if is_table_trace(paths[0]) else JSON_SUFFIXES
    if output is None:
        target = _choose_default_target(
            paths, typed_paths, measure_options, gate, DRAWING_SUFFIX if is_drawing else f".cut{suffixes[-1]}"
        )
    else:
        target = _choose_named_target(output, paths, typed_paths, suffixes, is_drawing=is_drawing)
    if gate is not None:
        _cut_for_gate(gate, measure_options, traces, target)
        return
    with measure_options.open_one_run(traces) as (captures, spec):
        (run,) = captures.runs
        ranks = frozenset(measure_options.select_ranks(run.ranks))
        windows = cut_out(run, [spec], ranks)
        if is_drawing:
            drawing = draw_run(run, spec, ranks)
            target.write(pack_text(render_perfetto_json([drawing]), target.path.name))
        else:
            target.write(render_cut(windows).pack(target.path.name))
        notes = [*measure_options.notes, *captures.list_notes_of(spec, "unknown_communication")]
        notes += map(Note, drawing.describe_clocks() if is_drawing else ())
    kernel_count = sum(map(len, windows.list_windows()))
    contents = f"{format_count(len(windows.ranks), 'rank')}, {format_count(kernel_count, 'kernel')}, {spec}"
    echo(f"wrote {target.path_text}: {contents}" + (f"; open it in {VIEWER}" if is_drawing else ""))
    if not is_drawing:
        options = [option_part for option in measure_options.typed_options for option_part in option]
        echo(
            f"to look at it: {quote_command(['pytest-nsys', 'cut', str(target.path), *options, '--format', PERFETTO])}"
        )
    if nearby_gate := next(
        (path for folder in (Path(), paths[0].parent) for path in sorted(folder.glob(GATE_GLOB))), None
    ):
        command = quote_command(["pytest-nsys", "cut", "--gate", os.path.relpath(nearby_gate), *traces])
        echo(f"for what a gate judges: {command}")
    print_notes(format_notes(notes))


def _cut_for_gate(gate_file: str, measure_options: MeasureOptions, traces: Sequence[str], target: CutTarget) -> None:
    """Write the windows that a gate file judges, and print each assertion that cannot be judged on the cut as on the
    traces.
    """
    if measure_options.typed_options:
        raise UsageMistake(
            f"--gate says what is measured, of every rank: leave {measure_options.typed_options[0][0]} out"
        )
    if not Path(GateAddress.parse_file_and_configuration(gate_file).file).is_file():
        raise UsageMistake(f"--gate {sanitize_line(gate_file)}: is not a file: give one gate file")
    gate = load_configuration(Path(gate_file))
    with open_cache(None, "") as library:
        convention_choice = library.choose_convention(traces, Path(), one_run=True) if gate.convention is None else None
        if convention_choice is not None:
            _, place = list_gates_with_stores([gate_file], None)[0]
            gate = resolve_gate_convention(gate, lambda _: convention_choice, store=place.find_gate_store(gate))
        convention, requests = gate.resolved_convention, build_requests(gate)
        captures = library.open_one_run(traces, Path(), convention, gate.workload, requests)
        for spec in dict.fromkeys(request.spec for request in requests):
            captures.check_no_twins(spec)
        run_cut = cut_gate_windows(gate, captures.runs[0])
        content = render_cut(run_cut).pack(target.path.name)
        with tempfile.TemporaryDirectory() as draft_folder:
            draft_path = Path(draft_folder, target.path.name)
            draft_path.write_bytes(content)
            cut_captures = library.open_one_run([str(draft_path)], Path(), convention, gate.workload)
            lost_assertions = list(
                list_unjudged_assertions(GateContext(captures, gate), GateContext(cut_captures, gate))
            )
        target.write(content)
    size = format_value(len(content), SIZE)
    echo(f"wrote {target.path_text} ({size}): {_describe_contents(run_cut)}")
    echo(_describe_judged_assertions(gate, gate_file, len(lost_assertions)))
    notes = [Note(convention_choice.description)] if convention_choice is not None else []
    notes += [
        Note(
            f"{gate_file}:{assertion.location.line}: '{assertion.full_name}' cannot be judged on the cut: it {reason}",
            True,
        )
        for assertion, reason in lost_assertions
    ]
    print_notes(format_notes(notes))


def _describe_contents(run_cut: RunCut) -> str:
    view_texts = (
        f"{format_count(sum(len(w) for windows in view.values() for w in windows), 'kernel')} ({spec})"
        for view, spec in zip(run_cut.views, run_cut.specs, strict=True)
    )
    return ", ".join([format_count(len(run_cut.ranks), "rank"), *view_texts])


def _describe_judged_assertions(gate: GateFile, gate_file: str, lost_count: int) -> str:
    assertion_count = sum(assertion.outside_metric is None for assertion in gate.assertions)
    kept_text = (
        f"{assertion_count - lost_count} of {assertion_count} assertions"
        if lost_count
        else f"all {assertion_count} assertions"
        if assertion_count > 1
        else "the assertion"
    )
    return f"{kept_text} of {sanitize_line(gate_file)} judge{'s' * (assertion_count == 1)} the cut like the trace"


def _find_cut_sources(path_texts: Sequence[str]) -> list[Path]:
    """Return the files of the run. Raises UsageMistake for a path without traces."""
    check_trace_paths(path_texts)
    return [path for path_text in path_texts for path in find_traces(path_text, Path())]


def _choose_named_target(
    output: str, traces: Sequence[Path], typed_paths: Sequence[Path], suffixes: Sequence[str], *, is_drawing: bool
) -> CutTarget:
    """Return the file that --output names.

    Raises UsageMistake if it would overwrite an input, or could not be recognised as a trace.
    """
    path = Path(output)
    option = f"--output {sanitize_line(output)}"
    if not path.name.endswith(tuple(suffixes)) or path.is_dir():
        raise UsageMistake(f"{option}: name a file that ends in {' or '.join(reversed(suffixes))}")
    check_report_target(option, path, [(trace, "is one of the traces") for trace in traces], is_cut=True)
    is_in_trace_folder = any(place.is_dir() and place.samefile(path.parent) for place in typed_paths)
    own_suffix = DRAWING_SUFFIX if is_drawing else f".cut{suffixes[-1]}"
    if is_in_trace_folder and not is_drawing and not path.name.endswith(own_suffix):
        problem = f"would be read as one of them: give another, or end it in {own_suffix}"
        raise UsageMistake(f"{option}: is in the folder of the traces and {problem}")
    return CutTarget(path, sanitize_line(output))


def _choose_default_target(
    traces: Sequence[Path], typed_paths: Sequence[Path], measure_options: MeasureOptions, gate: str | None, suffix: str
) -> CutTarget:
    """Return a path next to the first trace, named by the trace (or the folder of several traces) and by the window."""
    named_after = (
        typed_paths[0]
        if len(typed_paths) == 1 and typed_paths[0].is_dir()
        else traces[0]
        if len(traces) == 1
        else traces[0].parent
    )
    window, ranks = measure_options.window or "", [f"rank{number}" for number in measure_options.ranks]
    name_parts = [re.sub(r"[^\w.-]+", "-", window)[:MAX_WINDOW_NAME].strip("-"), *ranks]
    name_parts += [f"gate-{Path(GateAddress.parse_file_and_configuration(gate).stem).name}"] if gate is not None else []
    name = ".".join([get_trace_stem(named_after), *filter(None, name_parts)])
    path = traces[0].parent / f"{name}{suffix}"
    if not os.access(path.parent, os.W_OK):
        raise UsageMistake(f"{sanitize_line(str(path))}: cannot be written: name a file elsewhere with -o")
    return CutTarget(path, sanitize_line(str(path)), is_named=False)


class CutTarget(NamedTuple):
    """Describes the file of the cut."""

    path: Path
    path_text: str  # as it was typed
    is_named: bool = True  # False for a default path, which overwrites nothing

    def write(self, content: bytes) -> None:
        """Write the file. Raises UsageMistake if it cannot be written; an earlier file stays."""
        subject, advice = (
            (f"--output {self.path_text}", "") if self.is_named else (self.path_text, ": name a file elsewhere with -o")
        )
        with convert_os_errors(UsageMistake, f"{subject}: cannot be written", advice):
            if self.is_named or not self.path.exists():
                write_atomically(self.path, content)
            elif self.path.read_bytes() != content:
                raise UsageMistake(
                    f"{self.path_text}: is there already, and is not this cut: name another file with -o"
                )
