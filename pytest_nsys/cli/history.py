"""``pytest-nsys history``: which rows of the gates, over which runs, are asked for?"""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from pytest_nsys.analysis.table import Selector
from pytest_nsys.cli.options import check_dimensions, selectors_of, where_option
from pytest_nsys.cli.output import deliver, format_of, print_notes
from pytest_nsys.core.errors import NothingMeasured, UsageMistake, did_you_mean, hint
from pytest_nsys.core.words import counted, printable
from pytest_nsys.gates.comparability import shown
from pytest_nsys.reports.history_report import SUFFIXES, Form, history_report
from pytest_nsys.stored.history.reading import History, ahead, known_in, load
from pytest_nsys.stored.history.tracks import Track, tracks_of

DATABASE = "perf.db"


@click.command()
@click.argument("metrics", metavar="[METRIC]…", nargs=-1)
@click.option(
    "--db",
    "--history",
    "database",
    metavar="PATH",
    help=f"Database of --nsys-history; nsys_history of the ini file is not read. Default: {DATABASE}.",
)
@where_option
@click.option("--branch", help="Only runs of this branch.")
@click.option("--gate", help="Only runs of this gate file, as stored (glob).")
@click.option("--key", metavar="DIGEST", help="Only runs of this key: its first digits are enough.")
@click.option("--last", "--limit", type=click.IntRange(1), metavar="N", help="Last N runs of each gate and key.")
@click.option(
    "--format",
    type=click.Choice([form.value for form in Form]),
    help="Default: the suffix of --output, else table. csv has one column per row, for change-point tools; otava "
    "is the configuration for it.",
)
@click.option("-o", "--output", metavar="FILE", help="File to write. Default: standard output.")
def history(
    metrics: tuple[str, ...],
    database: str | None,
    where: tuple[str, ...],
    branch: str | None,
    gate: str | None,
    key: str | None,
    last: int | None,
    format: str | None,
    output: str | None,
) -> None:
    """Show the rows of METRICs (default: all) over time, oldest run first."""
    read = [(Path(database or DATABASE), "is the history that is read")]
    may_be_yaml = format in (None, Form.OTAVA)
    form = Form(format_of(format, output, SUFFIXES, read, default=Form.TABLE, yaml=may_be_yaml))
    path = _database(database)
    selectors = selectors_of(where)
    stored = _without_other_keys(load(path, _gates(path, gate), branch, last), key)
    tracks = _tracks(path, stored, metrics, selectors, branch, gate)
    encoding = "utf-8" if output is not None else sys.stdout.encoding or "ascii"
    text, doubts = history_report(stored, tracks, form, encoding)
    deliver(text, output)
    notes = [*_notes(tracks), *(f"warning: {doubt}" for doubt in (*doubts, ahead(stored.runs)) if doubt)]
    print_notes(printable(note, 2000) for note in notes)


def _database(given: str | None) -> Path:
    """The database that is read. Raises UsageMistake where none is named and the default one is not there."""
    if given is not None:
        return Path(given)
    if not Path(DATABASE).exists():
        raise UsageMistake(
            f"{DATABASE}: there is no such file, and it is only the default: write --db PATH, with the path of "
            "--nsys-history or of nsys_history in the ini file"
        )
    return Path(DATABASE)


def _gates(path: Path, wanted: str | None) -> list[str] | None:
    """The gate files that are meant, None for all. Raises UsageMistake where none is."""
    if wanted is None:
        return None
    stored = known_in(path, "gate")
    found = [gate for gate in stored if gate == wanted or fnmatch.fnmatchcase(gate, wanted)]
    if stored and not found:
        told = hint(wanted, stored, "stored are")
        raise UsageMistake(f"{path}: no run is of the gate file '{printable(wanted, 100)}'{told}")
    return found


def _without_other_keys(stored: History, key: str | None) -> History:
    if key is None:
        return stored
    digests = sorted({run.digest for run in stored.runs if run.digest is not None})
    if digests and not any(digest.startswith(key) for digest in digests):
        raise UsageMistake(f"no run is of the key '{printable(key, 40)}': stored are {', '.join(digests)}")
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
    for metric in metrics:
        if metric not in names:
            told = hint(metric, names, "stored are")
            raise UsageMistake(f"{path}: no run has the metric '{printable(metric, 60)}'{told}")
    _check_where(stored, metrics, selectors)
    tracks, absent = tracks_of(stored, metrics, selectors)
    if not tracks:
        by_reason: dict[str, list[str]] = {}
        for what, why in absent:
            by_reason.setdefault(why, []).append(what)
        told = "; ".join(f"{', '.join(dict.fromkeys(of))}: {why}" for why, of in by_reason.items())
        raise NothingMeasured(f"{path}: no row matches: {told}")
    return tracks


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
    times = {run.id: run.time for track in tracks for run in track.runs}
    yield f"note: {counted(len(times), 'run')} from {min(times.values())} to {max(times.values())}"
    newest = {(track.series.gate, track.series.digest): track.runs[-1] for track in tracks}
    for (gate, digest), run in newest.items():
        words = ", ".join(f"{name} {shown(value)}" for name, value in (run.key or {}).items() if value is not None)
        yield f"note: {gate}, key {digest}: {words}"
