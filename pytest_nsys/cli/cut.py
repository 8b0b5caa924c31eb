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
    given = [Path(value) for value in traces]
    if as_format == PERFETTO and gate is not None:
        raise UsageMistake("--gate writes a trace to judge: leave --format perfetto out, or draw one window")
    draws = as_format == PERFETTO
    suffixes = JSON if draws else SQLITE if is_of_tables(paths[0]) else JSON
    if output is None:
        target = _beside(paths, given, asked, gate, DRAWING_SUFFIX if draws else f".cut{suffixes[-1]}")
    else:
        target = _target(output, paths, given, suffixes, draws=draws)
    if gate is not None:
        _cut_for_gate(gate, asked, traces, target)
        return
    with asked.one_run(traces) as (captures, spec):
        (run,) = captures.runs
        ranks = frozenset(asked.chosen(run.ranks))
        windows = cut_out(run, [spec], ranks)
        if draws:
            drawing = draw(run, spec, ranks)
            target.write(packed(perfetto_json([drawing]), target.path.name))
        else:
            target.write(write_cut(windows).packed(target.path.name))
        doubts = [*asked.notes, *captures.notes_of(spec, "unknown_communication")]
        doubts += map(Note, drawing.clock_lines() if draws else ())
    launched = sum(map(len, windows.windows()))
    what = f"{counted(len(windows.ranks), 'rank')}, {counted(launched, 'kernel')}, {spec}"
    say(f"wrote {target.shown}: {what}" + (f"; open it in {VIEWER}" if draws else ""))
    if not draws:
        options = [word for option in asked.typed for word in option]
        say(f"to look at it: {typed(['pytest-nsys', 'cut', str(target.path), *options, '--format', PERFETTO])}")
    if lying := next((path for folder in (Path(), paths[0].parent) for path in sorted(folder.glob(GATES))), None):
        command = typed(["pytest-nsys", "cut", "--gate", os.path.relpath(lying), *traces])
        say(f"for what a gate judges: {command}")
    print_notes(note_lines(doubts))


def _cut_for_gate(gate_file: str, asked: MeasureOptions, traces: Sequence[str], target: Target) -> None:
    """Write what a gate file judges, and say of each assertion that cannot be judged on it as on the traces."""
    if asked.typed:
        raise UsageMistake(f"--gate says what is measured, of every rank: leave {asked.typed[0][0]} out")
    if not Path(Address.of(gate_file).file).is_file():
        raise UsageMistake(f"--gate {printable(gate_file)}: is not a file: give one gate file")
    gate = load_one(Path(gate_file))
    with reading(None, "") as library:
        fitting = library.fitting(traces, Path(), one_run=True) if gate.convention is None else None
        if fitting is not None:
            _, place = stores([gate_file], None)[0]
            gate = resolved(gate, lambda _: fitting, store=place.store(gate))
        convention, requests = gate.resolved_convention, requests_of(gate)
        captures = library.one_run(traces, Path(), convention, gate.workload, requests)
        for spec in dict.fromkeys(request.spec for request in requests):
            captures.refuse_twins(spec)
        found = gate_windows(gate, captures.runs[0])
        content = write_cut(found).packed(target.path.name)
        with tempfile.TemporaryDirectory() as draft:
            small = Path(draft, target.path.name)
            small.write_bytes(content)
            again = library.one_run([str(small)], Path(), convention, gate.workload)
            lacking = list(unheld(GateContext(captures, gate), GateContext(again, gate)))
        target.write(content)
    size = format_value(len(content), SIZE)
    say(f"wrote {target.shown} ({size}): {_held(found)}")
    say(_judged(gate, gate_file, len(lacking)))
    notes = [Note(fitting.told)] if fitting is not None else []
    notes += [
        Note(f"{gate_file}:{a.location.line}: '{a.full_name}' cannot be judged on the cut: it {why}", True)
        for a, why in lacking
    ]
    print_notes(note_lines(notes))


def _held(found: RunCut) -> str:
    each = (
        f"{counted(sum(len(w) for own in view.values() for w in own), 'kernel')} ({spec})"
        for view, spec in zip(found.views, found.specs, strict=True)
    )
    return ", ".join([counted(len(found.ranks), "rank"), *each])


def _judged(gate: GateFile, gate_file: str, unlike: int) -> str:
    own = sum(assertion.outside is None for assertion in gate.assertions)
    held = f"{own - unlike} of {own} assertions" if unlike else f"all {own} assertions" if own > 1 else "the assertion"
    return f"{held} of {printable(gate_file)} judge{'s' * (own == 1)} the cut like the trace"


def _files(values: Sequence[str]) -> list[Path]:
    """The files of the run. Raises UsageMistake for a path that means nothing."""
    check_named(values)
    return [path for value in values for path in find_traces(value, Path())]


def _target(
    output: str, traces: Sequence[Path], given: Sequence[Path], suffixes: Sequence[str], *, draws: bool
) -> Target:
    """The file that is named. Raises UsageMistake where it would replace what is read, or could not be told for a
    trace.
    """
    path = Path(output)
    option = f"--output {printable(output)}"
    if not path.name.endswith(tuple(suffixes)) or path.is_dir():
        raise UsageMistake(f"{option}: name a file that ends in {' or '.join(reversed(suffixes))}")
    check_target(option, path, [(trace, "is one of the traces") for trace in traces], cut=True)
    among = any(place.is_dir() and place.samefile(path.parent) for place in given)
    own = DRAWING_SUFFIX if draws else f".cut{suffixes[-1]}"
    if among and not draws and not path.name.endswith(own):
        why = f"would be read as one of them: give another, or end it in {own}"
        raise UsageMistake(f"{option}: is in the folder of the traces and {why}")
    return Target(path, printable(output))


def _beside(
    traces: Sequence[Path], given: Sequence[Path], asked: MeasureOptions, gate: str | None, suffix: str
) -> Target:
    """A file beside the first trace, named by the trace, or by the folder of several, and by what is cut of it."""
    whole = given[0] if len(given) == 1 and given[0].is_dir() else traces[0] if len(traces) == 1 else traces[0].parent
    window, ranks = asked.window or "", [f"rank{number}" for number in asked.ranks]
    chosen = [re.sub(r"[^\w.-]+", "-", window)[:LONGEST_WORD].strip("-"), *ranks]
    chosen += [f"gate-{Path(Address.of(gate).stem).name}"] if gate is not None else []
    name = ".".join([stem_of(whole), *filter(None, chosen)])
    path = traces[0].parent / f"{name}{suffix}"
    if not os.access(path.parent, os.W_OK):
        raise UsageMistake(f"{printable(str(path))}: cannot be written: name a file elsewhere with -o")
    return Target(path, printable(str(path)), named=False)


class Target(NamedTuple):
    """The file of the cut, ``shown`` as it was typed; not ``named``: nobody chose it, and it replaces nothing."""

    path: Path
    shown: str
    named: bool = True

    def write(self, content: bytes) -> None:
        """Raises UsageMistake where the file cannot be written; an earlier one stays."""
        what, then = (f"--output {self.shown}", "") if self.named else (self.shown, ": name a file elsewhere with -o")
        with one_line(UsageMistake, f"{what}: cannot be written", then):
            if self.named or not self.path.exists():
                write_whole(self.path, content)
            elif self.path.read_bytes() != content:
                raise UsageMistake(f"{self.shown}: is there already, and is not this cut: name another file with -o")
