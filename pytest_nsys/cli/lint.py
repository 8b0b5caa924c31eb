"""``pytest-nsys lint``: are gate files well written, and what do newer rules change in them? Without a trace."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from pytest_nsys.cli.asking import Collected, collected, folder_option, shown
from pytest_nsys.cli.group import Exit
from pytest_nsys.core.errors import BaselineError, GateFileError, Mistake, UsageMistake
from pytest_nsys.core.file_names import GATE_SUFFIX, gate_files_below, misnamed, named_as_gate
from pytest_nsys.core.words import counted, printable
from pytest_nsys.gates.gate_file import load_gate_file
from pytest_nsys.gates.kinds import SCHEMA, SCHEMA_TITLE
from pytest_nsys.gates.model import GateFile
from pytest_nsys.reports.tables import as_json
from pytest_nsys.stored.baselines.changes import Upgrade, upgrades


class Linted(NamedTuple):
    """What is told of a gate file. ``assertions`` is None where it has mistakes.

    ``baselines`` is how many are stored, None where nobody asked; ``unread`` says why some cannot be read.
    """

    path: Path
    assertions: int | None
    mistakes: Sequence[Mistake] = ()
    upgrades: Sequence[Upgrade] = ()
    baselines: int | None = None
    unread: str = ""

    @property
    def code(self) -> Exit:
        """The exit code that the file asks for."""
        return Exit.MISTAKE if self.mistakes or self.unread else Exit.WORSE if self.upgrades else Exit.GOOD


@click.command()
@click.argument("gate_files", nargs=-1, required=True, metavar="FILES…")
@click.option("--upgrade", is_flag=True, help="List what newer rules change, with the line to write.")
@click.option("--format", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@folder_option
@click.pass_context
def lint(
    context: click.Context, gate_files: tuple[str, ...], upgrade: bool, format: str, baseline_dir: str | None
) -> None:
    """Check gate files (or folders of them) without a trace.

    Finds FILES as pytest does. Prints every mistake, and each good file. --upgrade also reads the stored baselines and
    lists what newer rules change for the runs behind them.

    Exit codes: 0 good; 1 --upgrade has lines to write; 2 mistakes.
    """
    found, missed, said = _gate_files(gate_files, baseline_dir)
    linted = [_linted(each, upgrade=upgrade) for each in found]
    if said and not any(each.mistakes for each in linted):  # a mark that is not registered, a conftest
        click.echo(said, err=True, nl=False)
        raise UsageMistake("pytest cannot collect the gate files: see its output above")
    if format == "json":
        click.echo(as_json(_json(linted, missed)), nl=False)
    else:
        for line in _lines(linted, missed):
            click.echo(printable(line, 4000))
    context.exit(max(each.code for each in linted))


def _gate_files(values: Sequence[str], baseline_dir: str | None) -> tuple[list[Collected], list[Path], str]:
    """The gate files that pytest collects, those in the folders that it does not, and what it says of mistakes.

    Raises UsageMistake for what is none, and where pytest collects none.
    """
    for value in values:
        path = Path(value)
        if not path.exists():
            raise UsageMistake(f"{value}: there is no such file or folder")
        if path.is_file() and not named_as_gate(path.name):
            raise UsageMistake(f"{value}: pytest takes gate files by their name: end it in {GATE_SUFFIX}")
    found, said = collected(values, baseline_dir)
    if not found:
        click.echo(said, err=True, nl=False)
        raise UsageMistake(f"pytest collects no gate file (*{GATE_SUFFIX}) in {', '.join(values)}")
    known = {each.path.resolve() for each in found}
    below = [path for value in values if Path(value).is_dir() for path in gate_files_below(Path(value))]
    return found, [path for path in below if path.resolve() not in known], said


def _linted(one: Collected, *, upgrade: bool) -> Linted:
    path = shown(one.path)
    if why := misnamed(path.name):
        return Linted(path, None, [Mistake(str(path), why, 1, 1)])
    try:
        gate = load_gate_file(one.path, display=path)
    except GateFileError as error:
        return Linted(path, None, error.mistakes)
    return _upgraded(one, gate, path) if upgrade else Linted(path, len(gate.assertions))


def _upgraded(one: Collected, gate: GateFile, path: Path) -> Linted:
    try:
        stored = [(own, [baseline for _, baseline in one.store(own).all()]) for own in gate.each]
    except BaselineError as error:
        return Linted(path, len(gate.assertions), unread=str(error))
    refresh = f'pytest-nsys baseline refresh {path} --trace=TRACE --reason "…"'
    found = dict.fromkeys(upgrade for own, baselines in stored for upgrade in upgrades(own, baselines, refresh))
    return Linted(path, len(gate.assertions), (), tuple(found), sum(len(baselines) for _, baselines in stored))


_NAMED_SCHEMA = re.compile(r"^#.*\$schema[=:]\s*(?P<path>\S+)", re.MULTILINE)


def _stale_schema(path: Path) -> str:
    """That the copy of the schema, which the gate file names for editors, is of another version; else empty."""
    with contextlib.suppress(OSError, UnicodeError, ValueError):
        found = _NAMED_SCHEMA.search(path.read_text(encoding="utf-8"))
        copy = path.parent / found["path"] if found is not None else None
        own = copy.read_bytes() if copy is not None and copy.is_file() else b""
        if copy is not None and SCHEMA_TITLE in own and own != SCHEMA.read_bytes():
            command = shlex.join(["cp", str(SCHEMA), str(shown(copy))])
            return f"{path}: its copy of the schema is of another version: {command}"
    return ""


def _lines(linted: Sequence[Linted], missed: Sequence[Path]) -> list[str]:
    lines = []
    for each in linted:
        lines += [str(m) for m in each.mistakes]
        lines += [f"{each.path}:{u.line}: {u.what}; {u.remedy}" for u in each.upgrades]
        lines += [f"{each.path}: {each.unread}"] if each.unread else []
        if each.code == 0 and each.assertions is not None:
            of = {None: "", 0: "; no baseline is stored, so a run alone tells what else changes"}
            told = of.get(each.baselines, "; nothing changes, as far as its baselines tell")
            lines.append(f"{each.path}: good, {counted(each.assertions, 'assertion')}{told}")
    lines += [f"warning: {stale}" for each in linted if (stale := _stale_schema(each.path))]
    lines += [f"warning: {path}: pytest does not collect it, so nothing is judged by it" for path in missed]
    return lines


def _json(linted: Sequence[Linted], missed: Sequence[Path]) -> dict[str, object]:
    files = [
        {
            "file": str(each.path),
            "assertions": each.assertions,
            "mistakes": [{"line": m.line, "column": m.column, "what": m.text} for m in each.mistakes],
            "upgrades": [{"line": u.line, "what": u.what, "remedy": u.remedy} for u in each.upgrades],
            "unreadable": each.unread or None,
        }
        for each in linted
    ]
    return {"gate_files": files, "not_collected": list(map(str, missed)), "good": all(not each.code for each in linted)}
