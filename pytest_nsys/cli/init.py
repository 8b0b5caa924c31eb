"""``pytest-nsys init``: a trace in, a gate file with reasons and its baseline out."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from pytest_nsys.analysis.candidates import Candidate
from pytest_nsys.analysis.capture_cache import CaptureCache
from pytest_nsys.cli.drafts import Left, Trial, drafted, judged, store_rows
from pytest_nsys.cli.stores import stores
from pytest_nsys.cli.updating import folder_option
from pytest_nsys.core.errors import BaselineError, NothingMeasured, NsysError, UsageMistake
from pytest_nsys.core.file_names import GATE_SUFFIX
from pytest_nsys.core.model import counted, printable
from pytest_nsys.drafting.choice import candidate_words
from pytest_nsys.gates import gate_file
from pytest_nsys.gates.choosing_convention import convention_of
from pytest_nsys.reports.session.gate_text import SCHEMA_NAME, Draft, gate_text
from pytest_nsys.tools.whole_file import write_whole
from pytest_nsys.verdicts.refresh import Written

SCHEMA = Path(gate_file.__file__).with_name("gate_file.schema.json")
SCHEMA_TITLE = b'"title": "pytest-nsys gate file"'
SHOWN_LEFT = 3


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE…")
@click.option("-o", "--output", default=f"gates{GATE_SUFFIX}", show_default=True, help="The gate file to write.")
@click.option("--convention", help="A built-in name, or a YAML file, instead of the one that fits best.")
@click.option("--yes", is_flag=True, help="Never ask: take the best. So it is without a terminal, too.")
@click.option("--force", is_flag=True, help="Overwrite the gate file and its baseline where they exist.")
@folder_option
def init(
    traces: tuple[str, ...], output: str, convention: str | None, yes: bool, force: bool, baseline_dir: str | None
) -> None:
    """Write a gate file for a trace, with its baseline: what must stay true, each line with its reason.

    Each TRACE is one run (file, folder or glob in quotes); several are captures of one program, whose spread sets the
    margins. What is written passes on the trace it came from.
    """
    asking = Asking(requests=not yes and sys.stdin.isatty() and sys.stdout.isatty(), told=yes)
    path = _target(output, asking, force=force)
    given = convention_of(convention, None) if convention is not None else None
    with contextlib.closing(CaptureCache()) as library:
        trial = Trial(library, traces)
        draft, left = drafted(trial, path, given, asking.anchor)
        written = _write(path, draft, trial, baseline_dir, replaces=force or path.exists())
    _tell(path, draft, written, left, traces, baseline_dir, asking)


@dataclass
class Asking:
    """Whether a person is asked, and how often the best was taken instead. ``told``: they said so."""

    requests: bool
    told: bool
    taken: int = 0

    def anchor(self, candidates: Sequence[Candidate]) -> Candidate:
        """One of several anchors, the best first."""
        if not self.requests:
            self.taken = max(self.taken, len(candidates))
            return candidates[0]
        click.echo("Which range repeats once per unit of steady work?")
        for number, candidate in enumerate(candidates, 1):
            click.echo(f"  {number}  {candidate_words(candidate)}")
        chosen = click.prompt("Anchor", type=click.IntRange(1, len(candidates)), default=1)
        return candidates[int(chosen) - 1]


# The files


def _target(output: str, asking: Asking, *, force: bool) -> Path:
    """Where the gate file goes. Raises UsageMistake where it cannot, or must not without a word."""
    path = Path(os.path.abspath(output))
    if not path.name.endswith(GATE_SUFFIX) or path.name == GATE_SUFFIX:
        raise UsageMistake(f"{printable(output)}: pytest takes gate files by their name: end it in {GATE_SUFFIX}")
    if "[" in str(path):
        raise UsageMistake(f"{printable(output)}: pytest takes brackets in a path for parameters: give one without")
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"there is no folder {path.parent}: make it first"
        raise UsageMistake(f"{printable(output)}: {what}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageMistake(f"{printable(output)}: cannot be written: permission denied")
    schema = path.with_name(SCHEMA_NAME)
    if schema.exists() and SCHEMA_TITLE not in schema.read_bytes():
        raise UsageMistake(f"{schema}: is not the schema of gate files, which init writes there: move it")
    if path.exists() and not force:
        if not asking.requests:
            raise UsageMistake(f"{printable(output)}: exists already: give --force to overwrite it, or another -o")
        if not click.confirm(f"{printable(output)} exists. Overwrite it and its baseline?"):
            raise UsageMistake(f"{printable(output)}: left as it was")
    return path


def _write(path: Path, draft: Draft, trial: Trial, baseline_dir: str | None, *, replaces: bool) -> Written | None:
    """The gate file, the schema beside it and the baseline: all of them, or as it was before."""
    schema = path.with_name(SCHEMA_NAME)
    before = {each: each.read_bytes() if each.exists() else None for each in (path, schema)}
    try:
        write_whole(schema, SCHEMA.read_bytes())
        write_whole(path, gate_text(draft).encode())
        found = stores([str(path)], baseline_dir)[0]
        captures = trial.captures(found.gate.convention)
        if not replaces and found.store.all():
            raise BaselineError(f"{found.store.folder}: holds baselines of this gate file already: give --force")
        written = store_rows(found.gate, captures, found.store)
        if wrong := judged(found.gate, captures, found.store):
            raise NothingMeasured(f"the drafted gate does not pass on its own trace: {next(iter(wrong.values()))}")
    except (NsysError, OSError):
        for each, content in before.items():
            if content is None:
                each.unlink(missing_ok=True)
            else:
                write_whole(each, content)
        raise
    return written


# What is said


def _tell(
    path: Path,
    draft: Draft,
    written: Written | None,
    left: Sequence[Left],
    traces: Sequence[str],
    baseline_dir: str | None,
    asking: Asking,
) -> None:
    """What was done and what to type next, in at most twenty lines."""
    shown = os.path.relpath(path)
    choice = draft.choice
    own = "this trace" if len(traces) == 1 else "these traces"
    click.echo(f"wrote {shown}: {counted(len(draft.sentences), 'assertion')}, all of which pass on {own}")
    if written is not None:
        click.echo(f"wrote {os.path.relpath(written.path)}: their baseline, {counted(len(written.changes), 'row')}")
    click.echo(f"wrote {os.path.relpath(path.with_name(SCHEMA_NAME))}: editors check the gate file by it")
    anchor = f"anchor '{printable(choice.convention.anchor, 60)}', " if choice.convention.anchor else ""
    click.echo(f"convention {choice.convention.name}, {anchor}{choice.spec}")
    if asking.taken > 1 and choice.convention.anchor:
        why = "as --yes says" if asking.told else "no terminal to ask on"
        click.echo(f"took the best of {asking.taken} anchors ({why}); the others stand in the file")
    for check, value in choice.quality.items():
        click.echo(f"warning: quality {check} is set to {value} for this trace; the file says why")
    for each in left[:SHOWN_LEFT]:
        click.echo(f"left out '{printable(each.title, 60)}': {printable(each.why, 160)}")
    given = [] if draft.traces else [f"--nsys-trace={trace}" for trace in traces]
    gate = ["pytest", shown, *([f"--nsys-baseline-dir={baseline_dir}"] if baseline_dir else [])]
    accept = ["pytest-nsys", "baseline", "refresh", shown, *(["--baseline-dir", baseline_dir] if baseline_dir else [])]
    click.echo("\nnow type:")
    click.echo(f"  {shlex.join([*gate, *given])}")
    click.echo(f"  {shlex.join(gate)} --nsys-trace=THE_NEXT_RUN")
    click.echo(f'  {shlex.join(accept)} --trace=THE_NEXT_RUN --reason "…"')
