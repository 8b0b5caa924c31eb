"""What did past runs measure? ``pytest-nsys history`` shows how their rows moved."""

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
    past_runs = _without_other_keys(path, load(path, _gates(path, of), branch, last), key)
    tracks = _tracks(path, past_runs, metrics, selectors, branch, of)
    trends = on_one_scale([trend_of(track, past_runs.verdicts) for track in tracks])
    with naming(str(path)):
        text, doubts = history_report(past_runs, tracks, trends, format, sys.stdout.encoding or "ascii")
    say(text, nl=False)
    accepted_notes = [f"note: {line}" for line in accepted_lines(trends)]
    notes = [
        *_notes(tracks),
        *accepted_notes,
        *(f"warning: {doubt}" for doubt in (*doubts, ahead(past_runs.runs)) if doubt),
    ]
    print_notes(printable(note, 2000) for note in notes)


def _gates(path: Path, wanted: str | None) -> list[str] | None:
    """Return the gate files that are meant, None for all. Raises UsageMistake where none is."""
    if wanted is None:
        return None
    stored_gates = known_in(path, "gate")
    gates = [gate for gate in stored_gates if gate == wanted or fnmatch.fnmatchcase(gate, wanted)]
    if stored_gates and not gates:
        suggestion = hint(wanted, stored_gates, "stored are")
        raise UsageMistake(f"{path}: there is no run of the gate file '{printable(wanted, 100)}'{suggestion}")
    return gates


def _without_other_keys(path: Path, stored: History, key: str | None) -> History:
    """Return the history of the runs whose key begins so. Raises UsageMistake where there is none."""
    if key is None:
        return stored
    digests = sorted({run.digest for run in stored.runs if run.digest is not None})
    if digests and not any(digest.startswith(key) for digest in digests):
        raise UsageMistake(
            f"{path}: there is no run of the key '{printable(key, 40)}': stored are {', '.join(digests)}"
        )
    runs = tuple(run for run in stored.runs if (run.digest or "").startswith(key))
    return History(runs, tuple(series for series in stored.series if series.digest.startswith(key)), stored.verdicts)


def _tracks(
    path: Path,
    stored: History,
    metrics: Sequence[str],
    selectors: Mapping[str, Selector],
    branch: str | None,
    gate: str | None,
) -> list[Track]:
    """Return the rows that are requested, over time.

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
            suggestion = hint(metric, names, "stored are")
            raise UsageMistake(f"{path}: no run has the metric '{printable(metric, 60)}'{suggestion}")
    _check_where(stored, metrics, selectors)
    tracks, missing_rows = tracks_of(stored, metrics, selectors)
    if not tracks:
        by_reason = grouped((reason, row) for row, reason in missing_rows)
        reasons = "; ".join(f"{', '.join(dict.fromkeys(rows))}: {reason}" for reason, rows in by_reason.items())
        raise NothingMeasured(f"{path}: no row matches: {reasons}")
    return tracks


def _stored_as(name: str, names: Sequence[str]) -> str:
    """Return the name of a metric that a person calls otherwise, as in ``exposed``; histories have names of their own,
    too.
    """
    metric = metric_named(name) if name not in names else None
    return name if metric is None else metric.name


def _of_branch(path: Path, branch: str, gate: str | None) -> str:
    """Describe which branch has no run, and which branches have one; empty for a history without any run."""
    if not known_in(path, "gate"):
        return ""
    branches = known_in(path, "branch")
    suggestion = did_you_mean(branch, branches) if branch not in branches else ""
    gate_text = f" in {gate}" if gate is not None else ""
    branches_text = f"there are {', '.join(branches)}" if branches else "none of its runs is of a known branch"
    return f" of the branch {printable(branch, 100)}{suggestion}{gate_text}; {branches_text}"


def _check_where(stored: History, metrics: Sequence[str], selectors: Mapping[str, Selector]) -> None:
    """Raise UsageMistake where a named metric, or with none named every one, lacks a dimension that is selected."""
    axes = sorted({axis for run in stored.runs for coordinates in run.coordinates.values() for axis in coordinates})
    dimensions = {series.sid.metric: series.dimensions for series in stored.series}
    if metrics:
        for metric in metrics:
            check_dimensions(metric, dimensions[metric], axes, selectors)
    else:
        all_dimensions = list(
            dict.fromkeys(dimension for series_dimensions in dimensions.values() for dimension in series_dimensions)
        )
        check_dimensions("what is stored", all_dimensions, axes, selectors)


def _notes(tracks: Sequence[Track]) -> Iterator[str]:
    """Yield over which runs the rows are, and what is compared of each gate file's newest run of a key."""
    runs = {run.id: run for track in tracks for run in track.runs}
    times, last_commit = [run.time for run in runs.values()], runs[max(runs)].commit
    commit_text = f" at {last_commit[:SHORT_COMMIT]}" if last_commit else ""
    yield f"note: {counted(len(runs), 'run')} from {min(times)} to {max(times)}{commit_text}"
    newest = {(track.series.gate, track.series.digest): track.runs[-1] for track in tracks}
    for (gate, digest), run in newest.items():
        key_text = ", ".join(f"{name} {shown(value)}" for name, value in (run.key or {}).items() if value is not None)
        yield f"note: {gate}, key {digest}: {key_text}"
