"""``pytest-nsys history``: how did the rows of the gates move from run to run?"""

from __future__ import annotations

import csv
import enum
import fnmatch
import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import click

from pytest_nsys.analysis.table import Selector
from pytest_nsys.cli.output import format_of, print_notes
from pytest_nsys.cli.selecting import check_dimensions, selectors_of, where_option
from pytest_nsys.core.errors import NothingMeasured, UsageMistake
from pytest_nsys.core.exact import exact_text
from pytest_nsys.core.hints import did_you_mean
from pytest_nsys.core.model import Value, counted, printable
from pytest_nsys.core.statistics import median
from pytest_nsys.core.units import RATIO, format_value
from pytest_nsys.gates.comparability import shown
from pytest_nsys.gates.verdict import JudgedRow, Outcome
from pytest_nsys.reports.page.plots import Panel, Point, sparkline, svg
from pytest_nsys.reports.tables import WHOLE_TEXT, CellKind, Column, Row, as_json, as_table, json_value
from pytest_nsys.reports.targets import check_target
from pytest_nsys.reports.text import change
from pytest_nsys.stored.history.reading import History, StoredRun, branches_in, gates_in, load
from pytest_nsys.stored.history.tracks import Track, column_names, how_measured, otava_time, tracks_of, wide
from pytest_nsys.tools.whole_file import write_whole

DATABASE = "perf.db"
OTAVA_CSV = "perf.csv"
DEFINITION = 1
"""Of the JSON that is printed."""

MOST_PLOTS = 100
_SHORT_COMMIT = 10


class Form(enum.StrEnum):
    """How a history is printed. ``otava`` is the configuration with which Apache Otava reads the CSV."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    SVG = "svg"
    OTAVA = "otava"


SUFFIXES = {".txt": Form.TABLE, ".csv": Form.CSV, ".json": Form.JSON, ".svg": Form.SVG, ".yaml": Form.OTAVA}
"""Which format a file's name asks for, where no --format does."""


@dataclass(frozen=True)
class Found:
    """What was asked for, and what is to be said beside it."""

    path: Path
    history: History
    tracks: Sequence[Track]
    notes: Sequence[str]


@click.command()
@click.argument("metrics", metavar="[METRIC]…", nargs=-1)
@click.option(
    "--db",
    "database",
    metavar="PATH",
    help=f"What --nsys-history wrote, or nsys_history of the ini file, which is not read here. Default: {DATABASE}.",
)
@where_option
@click.option("--branch", help="Runs of this branch only.")
@click.option("--gate", help="Runs of this gate file only, as stored; a glob.")
@click.option("--key", metavar="DIGEST", help="Runs of this key only: its first digits do.")
@click.option("--last", "--limit", type=click.IntRange(1), metavar="N", help="The last N runs of each gate and key.")
@click.option(
    "--format",
    type=click.Choice([form.value for form in Form]),
    help="Default: table, or what the name of --output ends in. csv has a column per row, for change-point tools; "
    "otava is the configuration for it.",
)
@click.option("--output", metavar="FILE", help="Write there instead of to standard output.")
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
    """The rows of METRICs (all without one) over time, oldest run first."""
    if output is not None:
        _check_output(output, Path(database or DATABASE), format)
    form = Form(format_of(format, output, SUFFIXES, Form.TABLE))
    path = _database(database)
    selectors = selectors_of(where)
    stored = _without_other_keys(load(path, _gates(path, gate), branch, last), key)
    found = _found(path, stored, metrics, selectors, branch, gate)
    notes = list(found.notes)
    match form:
        case Form.TABLE:
            encoding = "utf-8" if output is not None else sys.stdout.encoding or "ascii"
            text = as_table(*_table(found.tracks, encoding))
        case Form.JSON:
            text = as_json(_json(found))
        case Form.SVG:
            text = _svg(found)
        case Form.CSV | Form.OTAVA:
            text, more = _wide(found, form)
            notes += more
    if output is None:
        click.echo(text, nl=False)
    else:
        write_whole(Path(output), text.encode())
    print_notes(printable(note, 2000) for note in notes)


def _check_output(output: str, database: Path, format: str | None) -> None:
    """Raises UsageMistake where the report would replace the history, or what else is no report."""
    others = [(database, "is the history that is read")]
    check_target(f"--output {output}", Path(output), others, yaml=format in (None, Form.OTAVA))


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
    stored = gates_in(path)
    found = [gate for gate in stored if gate == wanted or fnmatch.fnmatchcase(gate, wanted)]
    if stored and not found:
        hint = did_you_mean(wanted, stored) or f": stored are {', '.join(stored)}"
        raise UsageMistake(f"{path}: no run is of the gate file '{printable(wanted, 100)}'{hint}")
    return found


def _without_other_keys(stored: History, key: str | None) -> History:
    if key is None:
        return stored
    digests = sorted({run.digest for run in stored.runs if run.digest is not None})
    if digests and not any(digest.startswith(key) for digest in digests):
        raise UsageMistake(f"no run is of the key '{printable(key, 40)}': stored are {', '.join(digests)}")
    runs = tuple(run for run in stored.runs if (run.digest or "").startswith(key))
    return History(runs, tuple(s for s in stored.series if s.digest.startswith(key)), stored.verdicts)


def _found(
    path: Path,
    stored: History,
    metrics: Sequence[str],
    selectors: Mapping[str, Selector],
    branch: str | None,
    gate: str | None,
) -> Found:
    """Raises UsageMistake for a metric or dimension that no run has, NothingMeasured where nothing is stored."""
    if not stored.runs:
        raise NothingMeasured(f"{path}: holds no run{'' if branch is None else _of_branch(path, branch, gate)}")
    if not stored.series:
        raise NothingMeasured(f"{path}: no row is stored: none of the runs could be judged")
    names = sorted({series.sid.metric for series in stored.series})
    for metric in metrics:
        if metric not in names:
            hint = did_you_mean(metric, names) or f": stored are {', '.join(names)}"
            raise UsageMistake(f"{path}: no run has the metric '{printable(metric, 60)}'{hint}")
    _check_where(stored, metrics, selectors)
    tracks, absent = tracks_of(stored, metrics, selectors)
    if not tracks:
        raise NothingMeasured(f"{path}: no row is meant: {_why_absent(absent)}")
    return Found(path, stored, tracks, [_about(tracks), *(_key_words(*pair) for pair in _keys(tracks))])


def _why_absent(absent: Sequence[tuple[str, str]]) -> str:
    """Each reason once, with the measurements that it is of."""
    by_reason: dict[str, list[str]] = {}
    for what, why in absent:
        by_reason.setdefault(why, []).append(what)
    return "; ".join(f"{', '.join(dict.fromkeys(of))}: {why}" for why, of in by_reason.items())


def _of_branch(path: Path, branch: str, gate: str | None) -> str:
    """Which branch has no run, and which branches have one; empty for a history without any run."""
    if not gates_in(path):
        return ""
    known = branches_in(path)
    hint = did_you_mean(branch, known) if branch not in known else ""
    where = f" in {gate}" if gate is not None else ""
    there = f"there are {', '.join(known)}" if known else "none of its runs is of a known branch"
    return f" of the branch {printable(branch, 100)}{hint}{where}; {there}"


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


def _keys(tracks: Sequence[Track]) -> list[tuple[str, StoredRun]]:
    """The gate files and keys, each with its newest run."""
    newest = {(track.series.gate, track.series.digest): track.runs[-1] for track in tracks}
    return [(gate, run) for (gate, _), run in newest.items()]


def _about(tracks: Sequence[Track]) -> str:
    times = {run.id: run.time for track in tracks for run in track.runs}
    return f"note: {counted(len(times), 'run')} from {min(times.values())} to {max(times.values())}"


def _key_words(gate: str, run: StoredRun) -> str:
    words = ", ".join(f"{name} {shown(value)}" for name, value in (run.key or {}).items() if value is not None)
    return f"note: {gate}, key {run.digest}: {words}"


def _table(tracks: Sequence[Track], encoding: str) -> tuple[list[Column], list[Row]]:
    """Columns that would say the same in every line (gate, key, how it was measured) are left out."""
    how = how_measured(tracks)
    several_gates = len({track.series.gate for track in tracks}) > 1
    several_keys = len({(track.series.gate, track.series.digest) for track in tracks}) > 1
    shown_first = (
        ("gate", several_gates),
        ("key", several_keys),
        ("metric", True),
        ("row", True),
        ("measured", any(how)),
    )
    names = [name for name, is_shown in shown_first if is_shown]
    columns = [*map(Column, names), Column("trend"), Column("runs", CellKind.NUMBER)]
    columns += [Column(name) for name in ("first", "median", "last", "change", "commit")]
    rows: list[Row] = []
    for track, measured in zip(tracks, how, strict=True):
        unit = track.series.unit
        cells = {
            "gate": track.series.gate,
            "key": track.series.digest,
            "metric": track.series.sid.metric,
            "row": track.place,
            "measured": measured,
        }
        values = [format_value(v, unit) for v in (track.values[0], median(track.values), track.values[-1])]
        commit = (track.runs[-1].commit or "")[:_SHORT_COMMIT] or None
        trend = sparkline(track.values, encoding)
        rows.append((*(cells[n] for n in names), trend, len(track.runs), *values, _change(track), commit))
    return columns, rows


def _change(track: Track) -> str | None:
    """The last value against the median of the earlier ones."""
    if track.earlier is None:
        return None
    return change(JudgedRow({}, track.values[-1], None, Outcome.PASSED, baseline=track.earlier), track.series.unit)


def _number(value: Value | None, unit: str) -> object:
    return json_value(value, CellKind.RATIO if unit == RATIO else CellKind.NUMBER)


def _json(found: Found) -> dict[str, object]:
    used = {run.id for track in found.tracks for run in track.runs}
    return {
        "definition": DEFINITION,
        "runs": [
            {**_run(run), "verdicts": [_verdict(v) for v in found.history.verdicts.get(run.id, ())]}
            for run in found.history.runs
            if run.id in used or run.key is None
        ],
        "rows": [_json_row(track) for track in found.tracks],
    }


_RUN_FIELDS = [field.name for field in fields(StoredRun) if field.name != "coordinates"]


def _run(run: StoredRun) -> dict[str, object]:
    return {name: getattr(run, name) for name in _RUN_FIELDS}


def _verdict(stored: Mapping[str, object]) -> dict[str, object]:
    kept = {name: value for name, value in stored.items() if name not in ("id", "run")}
    return {**kept, "xfailed": bool(stored["xfailed"])}


def _json_row(track: Track) -> dict[str, object]:
    series = track.series
    return {
        "gate": series.gate,
        "digest": series.digest,
        **series.sid._asdict(),
        "unit": series.unit,
        "better": series.better,
        "labels": dict(track.named),
        "median": _number(median(track.values), series.unit),
        "earlier": _number(track.earlier, series.unit),
        "values": [
            {"run": run.id, "time": run.time, "value": _number(value, series.unit), "exact": exact_text(value)}
            for run, value in zip(track.runs, track.values, strict=True)
        ],
    }


def _svg(found: Found) -> str:
    if len(found.tracks) > MOST_PLOTS:
        raise UsageMistake(f"{len(found.tracks)} rows are too many to plot: name metrics, or give --where")
    several = len({track.series.gate for track in found.tracks}) > 1
    panels = [
        Panel(f"{name}, {track.series.gate}" if several else name, track.series.sid.metric, track.series.unit, points)
        for name, track in zip(column_names(found.tracks), found.tracks, strict=True)
        if (points := _points(track))
    ]
    metrics = ", ".join(dict.fromkeys(track.series.sid.metric for track in found.tracks))
    gates = ", ".join(dict.fromkeys(track.series.gate for track in found.tracks))
    return svg(f"{metrics} of {gates}", panels)


def _points(track: Track) -> tuple[Point, ...]:
    return tuple(
        Point(value, run.time.replace("T", " ").removesuffix("Z")[:16], _at(run))
        for run, value in zip(track.runs, track.values, strict=True)
    )


def _at(run: StoredRun) -> str:
    """Commit, branch and outcome of a run in words."""
    commit = (run.commit or "")[:_SHORT_COMMIT] + ("+" if run.dirty else "")
    return ", ".join(part for part in (commit, run.branch, run.outcome) if part)


def _wide(found: Found, form: Form) -> tuple[str, list[str]]:
    """The table of one gate file and key, and what is to be said of it. Raises UsageMistake for several gate files."""
    gates = list(dict.fromkeys(track.series.gate for track in found.tracks))
    if len(gates) > 1:
        raise UsageMistake(f"{form} is of one gate file: give --gate; stored are {', '.join(gates)}")
    digest = max((run.time, run.id, run.digest or "") for track in found.tracks for run in track.runs)[2]
    others = {track.series.digest for track in found.tracks} - {digest}
    notes = [f"warning: left out: runs of another key, {', '.join(sorted(others))}; --key chooses"] if others else []
    table = wide([track for track in found.tracks if track.series.digest == digest])
    notes += [f"warning: {note}" for note in table.notes]
    branches = sorted({run.branch or "(none)" for run in table.runs})
    if len(branches) > 1:
        notes.append(f"warning: runs of several branches, {', '.join(branches)}: --branch chooses")
    if form is Form.OTAVA:
        return _otava(gates[0], table.names, table.tracks), notes
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["time", "commit", "branch", *(printable(name, WHOLE_TEXT) for name in table.names)])
    units = [track.series.unit for track in table.tracks]
    for run in table.runs:
        values = [_number(value, unit) for value, unit in zip(table.line(run), units, strict=True)]
        writer.writerow([otava_time(run.time), run.commit or "", printable(run.branch or ""), *values])
    return out.getvalue(), notes


def _otava(gate: str, names: Sequence[str], tracks: Sequence[Track]) -> str:
    """A test of Apache Otava that reads ``perf.csv``; JSON's strings are YAML's."""
    name = gate.removesuffix(".nsys.yaml").replace("/", ".")
    lines = [
        "tests:",
        f"  {json.dumps(name)}:",
        "    type: csv",
        f"    file: {OTAVA_CSV}",
        "    time_column: time",
        "    attributes: [commit, branch]",
        "    metrics:",
    ]
    for column, track in zip(names, tracks, strict=True):
        lines.append(f"      {json.dumps(printable(column, WHOLE_TEXT))}:")
        lines.append(f"        direction: {-1 if track.series.better == 'lower' else 1}")
    return "\n".join(lines) + "\n"
