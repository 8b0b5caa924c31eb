"""The runs of the past: ``pytest-nsys history`` shows their rows, or what a gate file would have caught in them."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from pytest_nsys.analysis.metric_names import metric_named
from pytest_nsys.analysis.table import Selector
from pytest_nsys.cli.asking import stores
from pytest_nsys.cli.group import Exit
from pytest_nsys.cli.options import (
    check_dimensions,
    format_option,
    print_answer,
    print_notes,
    selectors_of,
    where_option,
)
from pytest_nsys.cli.saying import say
from pytest_nsys.core.errors import NothingMeasured, UsageMistake, did_you_mean, hint, naming
from pytest_nsys.core.file_names import Address
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Note
from pytest_nsys.core.words import counted, printable
from pytest_nsys.gates.comparability import shown
from pytest_nsys.reports.history_report import (
    REPLAY_COLUMNS,
    about_replays,
    accepted_lines,
    history_report,
    json_run,
    replay_cells,
    replay_sentences,
)
from pytest_nsys.reports.tables import Format, Row, Table
from pytest_nsys.reports.trend import SHORT_COMMIT, on_one_scale, trend_of
from pytest_nsys.stored.history.reading import History, Track, ahead, known_in, load, tracks_of
from pytest_nsys.verdicts.replay import Replay

DATABASE = "perf.db"


@click.command()
@click.argument("metrics", metavar="[METRIC]…", nargs=-1)
@click.option(
    *("--history", "database"),
    metavar="FILE",
    default=DATABASE,
    show_default=True,
    help="The file that pytest --nsys-history=FILE writes.",
)
@click.option("--gate", metavar="FILE", help="Judge the runs by this gate file: what would it have caught?")
@where_option
@click.option("--of", metavar="GATE", help="Only runs of this gate file, as stored (glob).")
@click.option("--branch", metavar="NAME", help="Only runs of this branch.")
@click.option("--key", metavar="DIGEST", help="Only runs of this key: its first digits are enough.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="The last N runs of each gate and key.")
@format_option
@click.pass_context
def history(
    context: click.Context,
    metrics: tuple[str, ...],
    database: str,
    gate: str | None,
    where: tuple[str, ...],
    of: str | None,
    branch: str | None,
    key: str | None,
    last: int | None,
    format: Format,
) -> None:
    """Show earlier runs, or what a gate would have caught.

    Shows the rows of each METRIC (default: all) over time, oldest run first; --format csv has a column for each row,
    for change-point tools. No trace is needed.

    With --gate, each run is held against the last run before it that was accepted, else against the run before. Of a
    matrix one configuration may be named: 'step.nsys.yaml[llama-8b]'.

    Exit codes: 0 whatever was found; 2 a mistake; 3 no row, or no run could be judged.
    """
    path = Path(database)
    if gate is not None:
        if metrics or where:
            raise UsageMistake("--gate judges by all that the file asserts: leave METRIC and --where out")
        context.exit(_judge(path, gate, of, branch, key, last, format))
    selectors = selectors_of(where)
    stored = _without_other_keys(path, load(path, _gates(path, of), branch, last), key)
    tracks = _tracks(path, stored, metrics, selectors, branch, of)
    trends = on_one_scale([trend_of(track, stored.verdicts) for track in tracks])
    with naming(str(path)):
        text, doubts = history_report(stored, tracks, trends, format, sys.stdout.encoding or "ascii")
    say(text, nl=False)
    told = [f"note: {line}" for line in accepted_lines(trends)]
    notes = [*_notes(tracks), *told, *(f"warning: {doubt}" for doubt in (*doubts, ahead(stored.runs)) if doubt)]
    print_notes(printable(note, 2000) for note in notes)


def _gates(path: Path, wanted: str | None) -> list[str] | None:
    """The gate files that are meant, None for all. Raises UsageMistake where none is."""
    if wanted is None:
        return None
    stored = known_in(path, "gate")
    found = [gate for gate in stored if gate == wanted or fnmatch.fnmatchcase(gate, wanted)]
    if stored and not found:
        told = hint(wanted, stored, "stored are")
        raise UsageMistake(f"{path}: there is no run of the gate file '{printable(wanted, 100)}'{told}")
    return found


def _without_other_keys(path: Path, stored: History, key: str | None) -> History:
    if key is None:
        return stored
    digests = sorted({run.digest for run in stored.runs if run.digest is not None})
    if digests and not any(digest.startswith(key) for digest in digests):
        raise UsageMistake(
            f"{path}: there is no run of the key '{printable(key, 40)}': stored are {', '.join(digests)}"
        )
    runs = tuple(run for run in stored.runs if (run.digest or "").startswith(key))
    return History(runs, tuple(s for s in stored.series if s.digest.startswith(key)), stored.verdicts)


def _tracks(
    path: Path,
    stored: History,
    metrics: Sequence[str],
    selectors: Mapping[str, Selector],
    branch: str | None,
    gate: str | None,
) -> list[Track]:
    """The rows that are asked for.

    Raises UsageMistake for a metric or dimension that no run has, NothingMeasured where nothing is stored.
    """
    if not stored.runs:
        raise NothingMeasured(f"{path}: holds no run{'' if branch is None else _of_branch(path, branch, gate)}")
    if not stored.series:
        raise NothingMeasured(f"{path}: no row is stored: none of the runs could be judged")
    names = sorted({series.sid.metric for series in stored.series})
    if len(metrics) > 1 and metric_named(" ".join(metrics)) is not None:  # as people say it: step time
        metrics = [" ".join(metrics)]
    metrics = [_stored_as(metric, names) for metric in metrics]
    for metric in metrics:
        if metric not in names:
            told = hint(metric, names, "stored are")
            raise UsageMistake(f"{path}: no run has the metric '{printable(metric, 60)}'{told}")
    _check_where(stored, metrics, selectors)
    tracks, absent = tracks_of(stored, metrics, selectors)
    if not tracks:
        by_reason = grouped((why, what) for what, why in absent)
        told = "; ".join(f"{', '.join(dict.fromkeys(of))}: {why}" for why, of in by_reason.items())
        raise NothingMeasured(f"{path}: no row matches: {told}")
    return tracks


def _stored_as(name: str, names: Sequence[str]) -> str:
    """The name of a metric that a person calls otherwise, as in ``exposed``; histories have names of their own, too."""
    meant = metric_named(name) if name not in names else None
    return name if meant is None else meant.name


def _of_branch(path: Path, branch: str, gate: str | None) -> str:
    """Which branch has no run, and which branches have one; empty for a history without any run."""
    if not known_in(path, "gate"):
        return ""
    known = known_in(path, "branch")
    meant = did_you_mean(branch, known) if branch not in known else ""
    where = f" in {gate}" if gate is not None else ""
    there = f"there are {', '.join(known)}" if known else "none of its runs is of a known branch"
    return f" of the branch {printable(branch, 100)}{meant}{where}; {there}"


def _check_where(stored: History, metrics: Sequence[str], selectors: Mapping[str, Selector]) -> None:
    """Every metric that was named has the dimensions that are selected; where none was named, one of all has."""
    axes = sorted({axis for run in stored.runs for own in run.coordinates.values() for axis in own})
    dimensions = {series.sid.metric: series.dimensions for series in stored.series}
    if metrics:
        for metric in metrics:
            check_dimensions(metric, dimensions[metric], axes, selectors)
    else:
        every = list(dict.fromkeys(d for own in dimensions.values() for d in own))
        check_dimensions("what is stored", every, axes, selectors)


def _notes(tracks: Sequence[Track]) -> Iterator[str]:
    """Over which runs the rows are, and what is compared of each gate file's newest run of a key."""
    runs = {run.id: run for track in tracks for run in track.runs}
    times, last = [run.time for run in runs.values()], runs[max(runs)].commit
    at = f" at {last[:SHORT_COMMIT]}" if last else ""
    yield f"note: {counted(len(runs), 'run')} from {min(times)} to {max(times)}{at}"
    newest = {(track.series.gate, track.series.digest): track.runs[-1] for track in tracks}
    for (gate, digest), run in newest.items():
        words = ", ".join(f"{name} {shown(value)}" for name, value in (run.key or {}).items() if value is not None)
        yield f"note: {gate}, key {digest}: {words}"


NOT_REPLAYED = "bounds of quality, measured noise and causes need the traces: they are not judged here"


def _judge(
    path: Path, gate_file: str, of: str | None, branch: str | None, key: str | None, last: int | None, format: Format
) -> Exit:
    """Tell what a gate file says of the stored runs."""
    file, configuration = Address.of(gate_file)
    if not Path(file).is_file():
        raise UsageMistake(f"--gate {printable(file)}: there is no such file; --of {printable(file)} picks stored runs")
    found = [(gate, place.store(gate).gate) for gate, place in stores([gate_file], None)]
    chosen = [(gate, name) for gate, name in found if configuration in ("", gate.configuration)]
    if not chosen:
        names = [gate.configuration for gate, _ in found]
        raise UsageMistake(f"{printable(gate_file)}: no configuration{hint(configuration, names, 'it has')}")
    known, meant = known_in(path, "gate"), _gates(path, of)
    asked = [(gate, each) for gate, name in chosen for each in (meant if meant is not None else [name])]
    _check_names(path, [name for _, name in asked], known)
    replays = [
        (name, Replay(gate, _without_other_keys(path, load(path, [name], branch), key), last))
        for gate, name in asked
        if name in known
    ]
    several = len(replays) > 1
    rows: list[Row] = [
        replay_cells(run, name if several else None) for name, replayed in replays for run in replayed.runs
    ]
    json_rows = [json_run(run, name) for name, replayed in replays for run in replayed.runs]
    lines = [line for name, replayed in replays for line in replay_sentences(replayed, name if several else "")]
    notes = [Note(NOT_REPLAYED)]
    branches = {run.run.branch or "(none)" for _, replayed in replays for run in replayed.runs}
    if len(branches) > 1:
        notes.append(Note(f"runs of several branches ({', '.join(sorted(branches))}): --branch chooses one"))
    notes += [Note(doubt, True) for doubt in dict.fromkeys(ahead(own.history.runs) for _, own in replays) if doubt]
    columns = REPLAY_COLUMNS if several else REPLAY_COLUMNS[1:]
    print_answer(format, Table(columns, rows), about_replays(replays), notes, json_rows=json_rows, below=lines)
    judged = any(run.found for _, replayed in replays for run in replayed.runs)
    return Exit.GOOD if judged else Exit.NO_DATA


def _check_names(path: Path, names: Sequence[str], known: Sequence[str]) -> None:
    """Raises UsageMistake where the history has no run of any of these gate files."""
    if not any(name in known for name in names):
        told = hint(names[0], known, "stored are")
        raise UsageMistake(
            f"{path}: there is no run of the gate file '{printable(names[0], 100)}'{told}: --of NAME picks one"
        )
