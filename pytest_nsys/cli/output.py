"""Where does an answer go? Rows to standard output in the format asked for, notes to standard error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click

from pytest_nsys.analysis.windows import WindowSpec
from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.model import Note, Rank, Window
from pytest_nsys.core.words import printable
from pytest_nsys.reports.tables import Format, Table
from pytest_nsys.reports.targets import check_target
from pytest_nsys.tools.files import write_whole

DEFINITION = 1
"""Of the columns that the four primitives print."""

LONGEST_NOTE = 2000


def format_of(
    format: str | None,
    output: str | None,
    suffixes: Mapping[str, str],
    read: Iterable[tuple[Path, str]],
    *,
    default: str,
    yaml: bool = False,
) -> str:
    """The format asked for, else the one that the name of the file asks for.

    Raises UsageMistake for a file that must not be written: an empty name, one of a suffix that is of no format where
    none is asked for, and what is ``read``, each with what it is; as :func:`check_target`, of which ``yaml`` is.
    """
    if output is not None:
        check_target(f"--output {output}", Path(output), read, yaml=yaml)
        if not output.strip():
            raise UsageMistake("--output is empty: write --output FILE")
    suffix = Path(output).suffix.lower() if output is not None else ""
    if format is not None or not suffix:
        return format or default
    if suffix not in suffixes:
        raise UsageMistake(
            f"--output {output}: {suffix} is of no format: give --format, or one of {', '.join(suffixes)}"
        )
    return suffixes[suffix]


def deliver(text: str, output: str | None) -> None:
    """Write an answer into the file that was asked for, whole or not at all, or print it."""
    if output is None:
        click.echo(text, nl=False)
    else:
        write_whole(Path(output), text.encode())


def shown(path: Path) -> Path:
    """The path as a person would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def print_answer(
    format: Format,
    table: Table,
    about: Mapping[str, object] | None = None,
    notes: Iterable[Note] | None = None,
    *,
    json_rows: Sequence[Mapping[str, object]] | None = None,
    below: Iterable[str] = (),
) -> None:
    """Print the rows, ``below`` them what people read besides, and beside them the notes, which JSON has as well."""
    lines = {} if notes is None else {"notes": note_lines(notes)}
    click.echo(table.render(format, {**(about or {}), **lines}, json_rows), nl=False)
    if format in (Format.TABLE, Format.MARKDOWN):
        for number, line in enumerate(below):
            click.echo(line if number else f"\n{line}")
    print_notes(lines.get("notes", ()))


def about_windows(
    traces: Sequence[str], spec: WindowSpec, windows: Sequence[Mapping[str, object]], definition: int = DEFINITION
) -> dict[str, object]:
    """What JSON says of rows: of which trace, under which definition, and in which windows."""
    trace = traces[0] if len(traces) == 1 else list(traces)
    return {"trace": trace, "kernels": mode_of(spec), "definition": definition, "windows": list(windows)}


def mode_of(spec: WindowSpec) -> str:
    """Which kernels were measured, in one word."""
    return "all" if spec.whole_run else str(spec.kernels)


def note_lines(notes: Iterable[Note]) -> list[str]:
    """Each note as one line that says whether it casts doubt."""
    return [Note(printable(note.text, LONGEST_NOTE), note.warning).labelled for note in notes]


def print_notes(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line, err=True)


def json_window(rank: Rank, window: Window, gpu_ns: tuple[int, int] | None) -> dict[str, object]:
    """A window as JSON has it; ``gpu_ns`` bounds what was measured, None where the window holds no kernel."""
    gpu_start, gpu_end = gpu_ns or (None, None)
    return {
        "rank": rank.number,
        "pid": rank.pid,
        "name": window.name,
        "start": window.start_ns,
        "end": window.end_ns,
        "index": window.index,
        "count": window.count,
        "gpu_start": gpu_start,
        "gpu_end": gpu_end,
    }
