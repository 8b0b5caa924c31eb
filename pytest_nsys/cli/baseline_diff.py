"""``pytest-nsys baseline diff``: what is different in the stored baselines since a commit?"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import click

from pytest_nsys.cli.ending import Exit
from pytest_nsys.cli.options import format_option
from pytest_nsys.cli.output import print_rows
from pytest_nsys.core.errors import BaselineError, UsageMistake
from pytest_nsys.core.model import Value, counted, printable
from pytest_nsys.core.units import format_value
from pytest_nsys.plugin.session import BASELINES
from pytest_nsys.reports.tables import Cell, CellKind, Column, Format, Measure
from pytest_nsys.reports.text import change_words
from pytest_nsys.stored.baselines.baseline_file import load
from pytest_nsys.stored.baselines.changes import Change, FileChange, file_changes
from pytest_nsys.tools.git import snapshot_of

COLUMNS = (
    Column("file"),
    Column("metric"),
    Column("labels"),
    Column("old", CellKind.NUMBER),
    Column("new", CellKind.NUMBER),
    Column("change"),
    Column("unit"),
    Column("measured"),
)


@click.command()
@click.argument("ref")
@click.argument("folder", default=BASELINES)
@click.option("--merge-base", is_flag=True, help="Since the merge base of REF and HEAD, as --nsys-baseline-ref reads.")
@click.option("--exit-code", is_flag=True, help="End with 1 where something differs, as git diff does.")
@format_option
@click.pass_context
def diff(context: click.Context, ref: str, folder: str, merge_base: bool, exit_code: bool, format: Format) -> None:
    """The rows of the baselines below FOLDER (default: baselines/) that differ between REF and the work tree.

    REF itself is meant, and with --merge-base the commit that REF and HEAD have in common. FOLDER may be gone by now.
    Exit codes: 0, or 1 where something differs and --exit-code is given; 2 a mistake, or a file that cannot be read.
    """
    root = Path(os.path.normpath(folder))
    snapshot = snapshot_of(root.absolute(), ref, merge_base=merge_base)
    found = file_changes(root, snapshot)
    if not found and not _holds_baseline(root):
        raise UsageMistake(f"{folder}: there are no baselines here, and none at {snapshot.words}")
    for_people = format in (Format.TABLE, Format.MARKDOWN)
    rows = [_row(change, row, for_people) for change in found for row in change.rows]
    if rows or format is not Format.TABLE:
        about = {"since": snapshot.commit, "ref": ref, "merge_base": merge_base, "files": [_file(c) for c in found]}
        print_rows(format, COLUMNS, rows, about)
    for change in found:
        click.echo(_about(change), err=True)
    files = f"{counted(len(found), 'file')} changed" if found else "no baseline changed"
    click.echo(f"{files} since {snapshot.words}, in the work tree", err=True)
    if any(change.broken for change in found):
        context.exit(Exit.MISTAKE)
    context.exit(Exit.WORSE if found and exit_code else Exit.GOOD)


def _holds_baseline(root: Path) -> bool:
    """Whether ``root`` or a file below it can be read as a baseline."""
    for path in (root, *root.rglob("*.json")) if root.exists() else ():
        with contextlib.suppress(BaselineError):
            load(path)
            return True
    return False


def _row(change: FileChange, row: Change, for_people: bool) -> list[Cell]:
    sid = row.series
    return [
        str(change.path),
        sid.metric,
        row.where,
        *(_value(value, row.unit, for_people) for value in (row.old, row.new)),
        change_words(row.new, row.old, row.unit),
        row.unit,
        ", ".join(sid.how),
    ]


def _value(value: Value | None, unit: str, for_people: bool) -> Cell:
    if value is None or for_people:
        return None if value is None else format_value(value, unit)
    return Measure(value, CellKind.RATIO if unit == "%" else CellKind.NUMBER)


def _file(change: FileChange) -> dict[str, object]:
    """A file as JSON has it."""
    origin = change.new.provenance if change.new is not None else {}
    known = {name: origin.get(name) for name in ("reason", "commit")}
    return {"file": str(change.path), "state": str(change.state), "about": change.broken or change.words, **known}


def _about(change: FileChange) -> str:
    """A file with what happened to it, and why."""
    if change.broken:
        return f"error: {printable(change.broken, 2000)}"
    origin = change.new.provenance if change.new is not None else {}
    said = [f"{name} {origin[name]}" for name in ("reason", "commit") if origin.get(name)]
    return printable(f"{change.path}: {change.words}{'; ' if said else ''}{', '.join(said)}", 2000)
