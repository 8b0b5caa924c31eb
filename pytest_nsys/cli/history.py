"""The runs of the past: ``pytest-nsys history`` shows their rows."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from pytest_nsys.analysis.metrics.names import metric_named
from pytest_nsys.analysis.metrics.table import Selector
from pytest_nsys.cli.options import (
    check_dimensions,
    format_option,
    print_notes,
    selectors_of,
    where_option,
)
from pytest_nsys.cli.saying import say
from pytest_nsys.core.errors import NothingMeasured, UsageMistake, did_you_mean, hint, naming
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.words import counted, printable
from pytest_nsys.gates.comparability import shown
from pytest_nsys.reports.stored.history import accepted_lines, history_report
from pytest_nsys.reports.tables.formats import Format
from pytest_nsys.reports.words.trend import SHORT_COMMIT, on_one_scale, trend_of
from pytest_nsys.stored.history.reading import History, Track, ahead, known_in, load, tracks_of

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
@where_option
@click.option("--of", metavar="GATE", help="Only runs of this gate file, as stored (glob).")
@click.option("--branch", metavar="NAME", help="Only runs of this branch.")
@click.option("--key", metavar="DIGEST", help="Only runs of this key: its first digits are enough.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="The last N runs of each gate and key.")
@format_option
def history(
    metrics: tuple[str, ...],
    database: str,
    where: tuple[str, ...],
    of: str | None,
    branch: str | None,
    key: str | None,
    last: int | None,
    format: Format,
) -> None:
    """Show earlier runs: how each row moved.

    Shows the rows of each METRIC (default: all) over time, oldest run first; --format csv has a column for each row,
    for change-point tools. No trace is needed.

    Exit codes: 0 whatever was found; 2 a mistake; 3 no row.
    """
    path = Path(database)
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
