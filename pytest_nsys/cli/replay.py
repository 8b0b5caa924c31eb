"""``pytest-nsys replay``: what would a gate file have caught, had it been there?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from pytest_nsys.cli.asking import folder_option, stores
from pytest_nsys.cli.group import Exit
from pytest_nsys.cli.history import DATABASE
from pytest_nsys.cli.options import format_option
from pytest_nsys.cli.output import print_answer
from pytest_nsys.core.errors import UsageMistake, hint
from pytest_nsys.core.file_names import Address
from pytest_nsys.core.model import Note
from pytest_nsys.core.words import printable
from pytest_nsys.reports.replay_report import COLUMNS, about, cells, json_run, sentences
from pytest_nsys.reports.tables import Format, Row, Table
from pytest_nsys.stored.history.reading import ahead, known_in, load
from pytest_nsys.verdicts.replay import Replay

NOT_REPLAYED = "bounds of quality, measured noise and causes need the traces: they are not replayed"


@click.command()
@click.argument("gate_file", metavar="GATE")
@click.option(
    "--history",
    "--db",
    "database",
    metavar="PATH",
    default=DATABASE,
    help=f"Database of --nsys-history. Default: {DATABASE}.",
)
@click.option("--of", "of", metavar="GATE", help="Replay the runs of this gate file, as stored. Default: GATE's own.")
@click.option("--branch", help="Only runs of this branch.")
@click.option("--last", "--limit", type=click.IntRange(1), metavar="N", help="Tell the last N runs of each key.")
@folder_option
@format_option
@click.pass_context
def replay(
    context: click.Context,
    gate_file: str,
    database: str,
    of: str | None,
    branch: str | None,
    last: int | None,
    baseline_dir: str | None,
    format: Format,
) -> None:
    """Judge the runs of a history by GATE: what would it have caught?

    Needs no trace: rows are those that earlier sessions stored. A stored baseline is the last run before that a refresh
    accepted, else the run before. Of a matrix one configuration may be named: 'step.nsys.yaml[llama-8b]'.

    Exit codes: 0 runs were judged, whatever was found; 2 a mistake; 3 no run could be judged.
    """
    path, configuration = Path(database), Address.of(gate_file).configuration
    found = [(gate, place.store(gate).gate) for gate, place in stores([gate_file], baseline_dir)]
    chosen = [(gate, of or name) for gate, name in found if configuration in ("", gate.configuration)]
    if not chosen:
        names = [gate.configuration for gate, _ in found]
        raise UsageMistake(f"{printable(gate_file)}: no configuration{hint(configuration, names, 'it has')}")
    known = known_in(path, "gate")
    _check_names(path, [name for _, name in chosen], known)
    replays = [(name, Replay(gate, load(path, [name], branch), last)) for gate, name in chosen if name in known]
    several = len(replays) > 1
    rows: list[Row] = [cells(run, name if several else None) for name, replayed in replays for run in replayed.runs]
    json_rows = [json_run(run, name) for name, replayed in replays for run in replayed.runs]
    lines = [line for name, replayed in replays for line in sentences(replayed, name if several else "")]
    notes = [Note(NOT_REPLAYED)]
    branches = {run.run.branch or "(none)" for _, replayed in replays for run in replayed.runs}
    if len(branches) > 1:
        notes.append(Note(f"runs of several branches ({', '.join(sorted(branches))}): --branch chooses one"))
    notes += [Note(doubt, True) for doubt in dict.fromkeys(ahead(own.history.runs) for _, own in replays) if doubt]
    columns = COLUMNS if several else COLUMNS[1:]
    print_answer(format, Table(columns, rows), about(replays), notes, json_rows=json_rows, below=lines)
    judged = any(run.found for _, replayed in replays for run in replayed.runs)
    context.exit(Exit.GOOD if judged else Exit.NO_DATA)


def _check_names(path: Path, names: Sequence[str], known: Sequence[str]) -> None:
    """Raises UsageMistake where the history has no run of any of these gate files."""
    if not any(name in known for name in names):
        told = hint(names[0], known, "stored are")
        raise UsageMistake(
            f"{path}: no run is of the gate file '{printable(names[0], 100)}'{told}: --of NAME picks one"
        )
