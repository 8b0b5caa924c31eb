"""``pytest-nsys cut``: the window that is measured, as a small trace to look at, to send, and to measure again."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from pytest_nsys.analysis.captures.cut import RunCut, write_cut
from pytest_nsys.analysis.captures.cut import cut as cut_out
from pytest_nsys.cli.asking import stores
from pytest_nsys.cli.options import MeasureOptions, measuring, note_lines, print_notes, reading
from pytest_nsys.cli.saying import say
from pytest_nsys.core.errors import UsageMistake, one_line
from pytest_nsys.core.file_names import DRAWING_SUFFIX, GATE_SUFFIX, Address
from pytest_nsys.core.model import Note
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.units import SIZE
from pytest_nsys.core.words import counted, printable, typed
from pytest_nsys.gates.convention_keys import check_named
from pytest_nsys.gates.gate_file import load_one
from pytest_nsys.gates.model import GateFile, requests_of
from pytest_nsys.reports.drawings.perfetto import draw, packed, perfetto_json
from pytest_nsys.reports.tables.targets import check_target
from pytest_nsys.tools.files import write_whole
from pytest_nsys.traces.opening import JSON, SQLITE, find_traces, is_of_tables, stem_of
from pytest_nsys.verdicts.evaluate import GateContext, resolved
from pytest_nsys.verdicts.gate_windows import gate_windows, unheld

VIEWER = "https://ui.perfetto.dev"
TRACE, PERFETTO = "trace", "perfetto"
FORMATS = (TRACE, PERFETTO)
LONGEST_WORD = 40
GATES = f"*{GATE_SUFFIX}"


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
@measuring(without=["format", "executor"])
def cut(asked: MeasureOptions, traces: tuple[str, ...], output: str | None, gate: str | None, as_format: str) -> None:
    """Write the measured window of a run as a small trace.

    TRACES: files, folders or globs of one run.

    A cut of exports of nsys or of databases of rocprofv3 is SQLite with the tables of nsys, one of torch.profiler or
    JAX is JSON with their events. Commands and gates read it as a trace, and with the same options measure the same
    values. With --gate the gate file passes or fails on the cut as it does on TRACES.
    """
    paths = _files(traces)
    typed_paths = [Path(value) for value in traces]
    if as_format == PERFETTO and gate is not None:
        raise UsageMistake("--gate writes a trace to judge: leave --format perfetto out, or draw one window")
    is_drawing = as_format == PERFETTO
    suffixes = JSON if is_drawing else SQLITE if is_of_tables(paths[0]) else JSON
    if output is None:
        target = _beside(paths, typed_paths, asked, gate, DRAWING_SUFFIX if is_drawing else f".cut{suffixes[-1]}")
    else:
        target = _target(output, paths, typed_paths, suffixes, draws=is_drawing)
    if gate is not None:
        _cut_for_gate(gate, asked, traces, target)
        return
    with asked.one_run(traces) as (captures, spec):
        (run,) = captures.runs
        ranks = frozenset(asked.chosen(run.ranks))
        windows = cut_out(run, [spec], ranks)
        if is_drawing:
            drawing = draw(run, spec, ranks)
            target.write(packed(perfetto_json([drawing]), target.path.name))
        else:
            target.write(write_cut(windows).packed(target.path.name))
        notes = [*asked.notes, *captures.notes_of(spec, "unknown_communication")]
        notes += map(Note, drawing.clock_lines() if is_drawing else ())
    kernel_count = sum(map(len, windows.windows()))
    contents = f"{counted(len(windows.ranks), 'rank')}, {counted(kernel_count, 'kernel')}, {spec}"
    say(f"wrote {target.shown}: {contents}" + (f"; open it in {VIEWER}" if is_drawing else ""))
    if not is_drawing:
        options = [option_part for option in asked.typed for option_part in option]
        say(f"to look at it: {typed(['pytest-nsys', 'cut', str(target.path), *options, '--format', PERFETTO])}")
    if nearby_gate := next((path for folder in (Path(), paths[0].parent) for path in sorted(folder.glob(GATES))), None):
        command = typed(["pytest-nsys", "cut", "--gate", os.path.relpath(nearby_gate), *traces])
        say(f"for what a gate judges: {command}")
    print_notes(note_lines(notes))


def _cut_for_gate(gate_file: str, asked: MeasureOptions, traces: Sequence[str], target: Target) -> None:
    """Write what a gate file judges, and print each assertion that cannot be judged on the cut as on the traces."""
    if asked.typed:
        raise UsageMistake(f"--gate says what is measured, of every rank: leave {asked.typed[0][0]} out")
    if not Path(Address.of(gate_file).file).is_file():
        raise UsageMistake(f"--gate {printable(gate_file)}: is not a file: give one gate file")
    gate = load_one(Path(gate_file))
    with reading(None, "") as library:
        convention_choice = library.fitting(traces, Path(), one_run=True) if gate.convention is None else None
        if convention_choice is not None:
            _, place = stores([gate_file], None)[0]
            gate = resolved(gate, lambda _: convention_choice, store=place.store(gate))
        convention, requests = gate.resolved_convention, requests_of(gate)
        captures = library.one_run(traces, Path(), convention, gate.workload, requests)
        for spec in dict.fromkeys(request.spec for request in requests):
            captures.refuse_twins(spec)
        run_cut = gate_windows(gate, captures.runs[0])
        content = write_cut(run_cut).packed(target.path.name)
        with tempfile.TemporaryDirectory() as draft_folder:
            draft_path = Path(draft_folder, target.path.name)
            draft_path.write_bytes(content)
            cut_captures = library.one_run([str(draft_path)], Path(), convention, gate.workload)
            lost_assertions = list(unheld(GateContext(captures, gate), GateContext(cut_captures, gate)))
        target.write(content)
    size = format_value(len(content), SIZE)
    say(f"wrote {target.shown} ({size}): {_held(run_cut)}")
    say(_judged(gate, gate_file, len(lost_assertions)))
    notes = [Note(convention_choice.told)] if convention_choice is not None else []
    notes += [
        Note(
            f"{gate_file}:{assertion.location.line}: '{assertion.full_name}' cannot be judged on the cut: it {reason}",
            True,
        )
        for assertion, reason in lost_assertions
    ]
    print_notes(note_lines(notes))


def _held(found: RunCut) -> str:
    view_texts = (
        f"{counted(sum(len(w) for windows in view.values() for w in windows), 'kernel')} ({spec})"
        for view, spec in zip(found.views, found.specs, strict=True)
    )
    return ", ".join([counted(len(found.ranks), "rank"), *view_texts])


def _judged(gate: GateFile, gate_file: str, unlike: int) -> str:
    assertion_count = sum(assertion.outside is None for assertion in gate.assertions)
    kept_text = (
        f"{assertion_count - unlike} of {assertion_count} assertions"
        if unlike
        else f"all {assertion_count} assertions"
        if assertion_count > 1
        else "the assertion"
    )
    return f"{kept_text} of {printable(gate_file)} judge{'s' * (assertion_count == 1)} the cut like the trace"


def _files(values: Sequence[str]) -> list[Path]:
    """Return the files of the run. Raises UsageMistake for a path that means nothing."""
    check_named(values)
    return [path for path_text in values for path in find_traces(path_text, Path())]


def _target(
    output: str, traces: Sequence[Path], given: Sequence[Path], suffixes: Sequence[str], *, draws: bool
) -> Target:
    """Return the file that --output names.

    Raises UsageMistake where it would replace what is read, or could not be recognised as a trace.
    """
    path = Path(output)
    option = f"--output {printable(output)}"
    if not path.name.endswith(tuple(suffixes)) or path.is_dir():
        raise UsageMistake(f"{option}: name a file that ends in {' or '.join(reversed(suffixes))}")
    check_target(option, path, [(trace, "is one of the traces") for trace in traces], cut=True)
    is_in_trace_folder = any(place.is_dir() and place.samefile(path.parent) for place in given)
    own_suffix = DRAWING_SUFFIX if draws else f".cut{suffixes[-1]}"
    if is_in_trace_folder and not draws and not path.name.endswith(own_suffix):
        problem = f"would be read as one of them: give another, or end it in {own_suffix}"
        raise UsageMistake(f"{option}: is in the folder of the traces and {problem}")
    return Target(path, printable(output))


def _beside(
    traces: Sequence[Path], given: Sequence[Path], asked: MeasureOptions, gate: str | None, suffix: str
) -> Target:
    """Return a file beside the first trace, named by the trace, or the folder of several, and by what is cut of it."""
    named_after = (
        given[0] if len(given) == 1 and given[0].is_dir() else traces[0] if len(traces) == 1 else traces[0].parent
    )
    window, ranks = asked.window or "", [f"rank{number}" for number in asked.ranks]
    name_parts = [re.sub(r"[^\w.-]+", "-", window)[:LONGEST_WORD].strip("-"), *ranks]
    name_parts += [f"gate-{Path(Address.of(gate).stem).name}"] if gate is not None else []
    name = ".".join([stem_of(named_after), *filter(None, name_parts)])
    path = traces[0].parent / f"{name}{suffix}"
    if not os.access(path.parent, os.W_OK):
        raise UsageMistake(f"{printable(str(path))}: cannot be written: name a file elsewhere with -o")
    return Target(path, printable(str(path)), named=False)


class Target(NamedTuple):
    """Describes the file of the cut."""

    path: Path
    shown: str  # as it was typed
    named: bool = True  # False where nobody chose it, so that it replaces nothing

    def write(self, content: bytes) -> None:
        """Write the file. Raises UsageMistake where it cannot be written; an earlier one stays."""
        subject, advice = (
            (f"--output {self.shown}", "") if self.named else (self.shown, ": name a file elsewhere with -o")
        )
        with one_line(UsageMistake, f"{subject}: cannot be written", advice):
            if self.named or not self.path.exists():
                write_whole(self.path, content)
            elif self.path.read_bytes() != content:
                raise UsageMistake(f"{self.shown}: is there already, and is not this cut: name another file with -o")
