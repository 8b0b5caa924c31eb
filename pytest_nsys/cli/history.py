"""What did past runs measure? ``pytest-nsys history`` shows how their rows moved."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from pytest_nsys.analysis.metrics.names import resolve_metric
from pytest_nsys.analysis.metrics.table import Selector
from pytest_nsys.cli.options import (
    check_dimensions,
    format_option,
    parse_selectors,
    print_notes,
    where_option,
)
from pytest_nsys.cli.terminal_text import echo
from pytest_nsys.core.errors import NothingMeasured, UsageMistake, prefix_errors, suggest_or_list, suggest_word
from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.text_format import format_count, sanitize_line
from pytest_nsys.gates.comparability import format_circumstance
from pytest_nsys.reports.stored.history_report import list_accepted_refreshes, render_history
from pytest_nsys.reports.tables.formats import Format
from pytest_nsys.reports.words.trend import COMMIT_LENGTH, build_trend
from pytest_nsys.stored.history.stored_runs import (
    History,
    RowTrack,
    describe_clock_ahead,
    list_known_values,
    load_history,
    select_tracks,
)

DEFAULT_DATABASE = "perf.db"


@click.command()
@click.argument("metrics", metavar="[METRIC]…", nargs=-1)
@click.option(
    *("--history", "database"),
    metavar="FILE",
    default=DEFAULT_DATABASE,
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
    selectors = parse_selectors(where)
    past_runs = _select_key(path, load_history(path, _select_gates(path, of), branch, last), key)
    tracks = _select_tracks(path, past_runs, metrics, selectors, branch, of)
    trends = [build_trend(track, past_runs.verdicts) for track in tracks]
    with prefix_errors(str(path)):
        text, doubts = render_history(past_runs, tracks, trends, format, sys.stdout.encoding or "ascii")
    echo(text, nl=False)
    accepted_notes = [f"note: {line}" for line in list_accepted_refreshes(trends)]
    notes = [
        *_describe_compared_runs(tracks),
        *accepted_notes,
        *(f"warning: {doubt}" for doubt in (*doubts, describe_clock_ahead(past_runs.runs)) if doubt),
    ]
    print_notes(sanitize_line(note, 2000) for note in notes)


def _select_gates(path: Path, pattern: str | None) -> list[str] | None:
    """Return the stored gate files that match the pattern; None for all. Raises UsageMistake if none matches."""
    if pattern is None:
        return None
    stored_gates = list_known_values(path, "gate")
    gates = [gate for gate in stored_gates if gate == pattern or fnmatch.fnmatchcase(gate, pattern)]
    if stored_gates and not gates:
        suggestion = suggest_or_list(pattern, stored_gates, "stored are")
        raise UsageMistake(f"{path}: there is no run of the gate file '{sanitize_line(pattern, 100)}'{suggestion}")
    return gates


def _select_key(path: Path, past_runs: History, key: str | None) -> History:
    """Return the history of the runs whose key begins with ``key``. Raises UsageMistake if there is none."""
    if key is None:
        return past_runs
    digests = sorted({run.digest for run in past_runs.runs if run.digest is not None})
    if digests and not any(digest.startswith(key) for digest in digests):
        raise UsageMistake(
            f"{path}: there is no run of the key '{sanitize_line(key, 40)}': stored are {', '.join(digests)}"
        )
    runs = tuple(run for run in past_runs.runs if (run.digest or "").startswith(key))
    return History(
        runs, tuple(series for series in past_runs.series if series.digest.startswith(key)), past_runs.verdicts
    )


def _select_tracks(
    path: Path,
    past_runs: History,
    metrics: Sequence[str],
    selectors: Mapping[str, Selector],
    branch: str | None,
    gate: str | None,
) -> list[RowTrack]:
    """Return the requested rows over time.

    Raises UsageMistake for a metric or dimension that no run has, NothingMeasured if nothing is stored.
    """
    if not past_runs.runs:
        raise NothingMeasured(
            f"{path}: holds no run{'' if branch is None else _describe_missing_branch(path, branch, gate)}"
        )
    if not past_runs.series:
        raise NothingMeasured(f"{path}: no row is stored: none of the runs could be judged")
    names = sorted({series.sid.metric for series in past_runs.series})
    if len(metrics) > 1 and resolve_metric(" ".join(metrics)) is not None:  # a name in plain words: step time
        metrics = [" ".join(metrics)]
    metrics = [_resolve_stored_name(metric, names) for metric in metrics]
    for metric in metrics:
        if metric not in names:
            suggestion = suggest_or_list(metric, names, "stored are")
            raise UsageMistake(f"{path}: no run has the metric '{sanitize_line(metric, 60)}'{suggestion}")
    _check_selectors(past_runs, metrics, selectors)
    tracks, missing_rows = select_tracks(past_runs, metrics, selectors)
    if not tracks:
        by_reason = group_by_key((reason, row) for row, reason in missing_rows)
        reasons = "; ".join(f"{', '.join(dict.fromkeys(rows))}: {reason}" for reason, rows in by_reason.items())
        raise NothingMeasured(f"{path}: no row matches: {reasons}")
    return tracks


def _resolve_stored_name(name: str, names: Sequence[str]) -> str:
    """Return the stored name of a metric that was given by a synonym, such as ``exposed``. Measured names are only in
    the history.
    """
    metric = resolve_metric(name) if name not in names else None
    return name if metric is None else metric.name


def _describe_missing_branch(path: Path, branch: str, gate: str | None) -> str:
    """Describe that the branch has no run, and which branches have one; empty if none of the history's runs names a
    branch.
    """
    if not list_known_values(path, "gate"):
        return ""
    branches = list_known_values(path, "branch")
    suggestion = suggest_word(branch, branches) if branch not in branches else ""
    gate_text = f" in {gate}" if gate is not None else ""
    branches_text = f"there are {', '.join(branches)}" if branches else "none of its runs is of a known branch"
    return f" of the branch {sanitize_line(branch, 100)}{suggestion}{gate_text}; {branches_text}"


def _check_selectors(past_runs: History, metrics: Sequence[str], selectors: Mapping[str, Selector]) -> None:
    """Raise UsageMistake if a named metric (without names: every metric) lacks a selected dimension."""
    axes = sorted({axis for run in past_runs.runs for coordinates in run.coordinates.values() for axis in coordinates})
    dimensions = {series.sid.metric: series.dimensions for series in past_runs.series}
    if metrics:
        for metric in metrics:
            check_dimensions(metric, dimensions[metric], axes, selectors)
    else:
        all_dimensions = list(
            dict.fromkeys(dimension for series_dimensions in dimensions.values() for dimension in series_dimensions)
        )
        check_dimensions("what is stored", all_dimensions, axes, selectors)


def _describe_compared_runs(tracks: Sequence[RowTrack]) -> Iterator[str]:
    """Yield the range of runs shown, then the key of each gate's newest run."""
    runs = {run.id: run for track in tracks for run in track.runs}
    times, last_commit = [run.time for run in runs.values()], runs[max(runs)].commit
    commit_text = f" at {last_commit[:COMMIT_LENGTH]}" if last_commit else ""
    yield f"note: {format_count(len(runs), 'run')} from {min(times)} to {max(times)}{commit_text}"
    newest = {(track.series.gate, track.series.digest): track.runs[-1] for track in tracks}
    for (gate, digest), run in newest.items():
        key_text = ", ".join(
            f"{name} {format_circumstance(value)}" for name, value in (run.key or {}).items() if value is not None
        )
        yield f"note: {gate}, key {digest}: {key_text}"
