"""``pytest-nsys cut``: the window that is measured, as a small trace to look at, to send, and to measure again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from pytest_nsys.analysis.cutting import cut as cut_out
from pytest_nsys.analysis.preflight import about_uncounted
from pytest_nsys.cli.options import MeasureOptions, measuring
from pytest_nsys.cli.output import note_lines, print_notes
from pytest_nsys.core.errors import UsageMistake, one_line
from pytest_nsys.core.model import Note
from pytest_nsys.core.words import counted, printable
from pytest_nsys.gates.convention_keys import check_named
from pytest_nsys.reports.chrome_trace import chrome_trace, packed
from pytest_nsys.reports.targets import check_target
from pytest_nsys.tools.whole_file import write_whole
from pytest_nsys.traces.opening import JSON, find_traces, given_twice

VIEWER = "https://ui.perfetto.dev"


@click.command()
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", required=True, help="File to write: NAME.json.gz or NAME.json.")
@measuring(without=["format", "executor"])
def cut(asked: MeasureOptions, traces: tuple[str, ...], output: str) -> None:
    """Write the measured window of a run as a small trace.

    TRACE: files, folders or globs of one run. The cut opens in Perfetto and chrome://tracing. Commands and gates
    read it as a trace, and with the same options measure the same values.
    """
    paths = _files(traces)
    target = _target(output, paths, [Path(value) for value in traces])
    with asked.one_run(traces) as (captures, spec):
        (run,) = captures.runs
        found = cut_out(run, spec, frozenset(asked.chosen(run.ranks)))
        _write(output, target, packed(chrome_trace([found]), target))
        clocks = map(Note, found.clock_lines())
        doubts = note_lines([*asked.notes, *about_uncounted(run.measured(spec)), *clocks])
    launched = sum(len(w) for one in found.ranks for w in one.windows)
    what = f"{counted(len(found.ranks), 'rank')}, {counted(launched, 'kernel')}, {spec}"
    click.echo(f"wrote {printable(output)}: {what}; open it in {VIEWER}")
    print_notes(doubts)


def _files(values: Sequence[str]) -> list[Path]:
    """The files of the run. Raises UsageMistake for a path that means nothing, and for a file that comes twice."""
    check_named(values)
    paths = [path for value in values for path in find_traces(value, Path())]
    if twice := given_twice([[path] for path in paths]):
        raise UsageMistake(f"{twice.first} and {twice.second} are the same trace: one process would count twice")
    return paths


def _target(output: str, traces: Sequence[Path], given: Sequence[Path]) -> Path:
    """The file to write. Raises UsageMistake where it would replace what is read, or could not be told for a trace."""
    path = Path(output)
    shown = f"--output {printable(output)}"
    if not path.name.endswith(JSON) or path.is_dir():
        raise UsageMistake(f"{shown}: name a file that ends in {' or '.join(reversed(JSON))}")
    if not path.parent.is_dir():
        raise UsageMistake(f"{shown}: there is no folder {path.parent}; make it first")
    if any(place.is_dir() and place.samefile(path.parent) for place in given):
        raise UsageMistake(f"{shown}: lies in the folder of the traces, and would be taken for one more: give another")
    check_target(shown, path, [(trace, "is one of the traces") for trace in traces], cut=True)
    return path


def _write(output: str, target: Path, content: bytes) -> None:
    """Raises UsageMistake where the file cannot be written; an earlier one stays."""
    with one_line(UsageMistake, f"--output {printable(output)}: cannot be written"):
        write_whole(target, content)
