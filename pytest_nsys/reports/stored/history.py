"""How is a history reported: as a table, JSON, or the CSV without a hole that change-point tools read?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.exact import exact_text, median
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import change_words, format_together, format_value
from pytest_nsys.core.words import printable
from pytest_nsys.reports.page.plots import sparkline
from pytest_nsys.reports.tables.formats import (
    WHOLE_TEXT,
    Cell,
    Column,
    Format,
    Measure,
    Table,
    as_json,
    json_value,
    number,
    texts,
)
from pytest_nsys.reports.words.trend import SHORT_COMMIT, Trend
from pytest_nsys.stored.history.reading import History, StoredRun, Track, how_measured, spaced_time, without_holes

DEFINITION = 1
"""The version of the layout of the printed JSON."""


def history_report(
    history: History, tracks: Sequence[Track], trends: Sequence[Trend], format: Format, encoding: str = "utf-8"
) -> tuple[str, Sequence[str]]:
    """Render some rows, at least one, each with its trend. Return the report, and what is to be doubted of it.

    ``encoding`` is what the characters of a table must exist in. Raises UsageMistake for what the format cannot hold.
    """
    match format:
        case Format.CSV:
            return _wide(tracks)
        case Format.JSON:
            return as_json(_json(history, tracks, trends)), ()
    return _table(tracks, trends, encoding).render(format), ()


def _table(tracks: Sequence[Track], trends: Sequence[Trend], encoding: str) -> Table:
    """Build the table of a history. Columns that would say the same in every line are left out."""
    how_measured_texts, units = how_measured(tracks), [track.series.unit for track in tracks]
    gates, keys = ([getattr(track.series, name) for track in tracks] for name in ("gate", "digest"))
    values = [format_together([t.values[0], median(t.values), t.values[-1]], t.series.unit) for t in tracks]
    first, middle, last = zip(*values, strict=True)
    cells: dict[str, Sequence[Cell]] = {
        "gate": gates if len({*gates}) > 1 else (),
        "key": keys if len({*zip(gates, keys, strict=True)}) > 1 else (),
        "metric": [track.series.sid.metric for track in tracks],
        "row": [track.place for track in tracks],
        "measured": how_measured_texts,
        "trend": [
            sparkline(track.values, encoding, (trend.low, trend.high))
            for track, trend in zip(tracks, trends, strict=True)
        ],
        "runs": [len(track.runs) for track in tracks],
        "first": first,
        "median": middle,
        "last": last,
        # The last value against the median of the earlier ones.
        "change": [
            None if track.earlier is None else change_words(track.values[-1], track.earlier, unit)
            for track, unit in zip(tracks, units, strict=True)
        ],
        "limit": [_last_limit(trend) for trend in trends],
        "moved": [_moved(trend) for trend in trends],
    }
    shown_cells = {name: column for name, column in cells.items() if name in ALWAYS or any(column)}
    columns = [number(name) if name == "runs" else Column(name) for name in shown_cells]
    return Table(columns, [*zip(*shown_cells.values(), strict=True)])


ALWAYS = ("row", "change")  # a table without them does not say what moved


def _last_limit(trend: Trend) -> str | None:
    """Format the limit that the newest run was held to, as far as one says it of this row."""
    limits = [moment.limit for moment in trend.moments if moment.limit is not None]
    return format_value(limits[-1], trend.unit) if limits else None


def _moved(trend: Trend) -> str | None:
    """Describe the last run at which the row moved for good: ``+9.6% at 474e9573e0, 2026-01-10``."""
    if not trend.shifts:
        return None
    shift = trend.shifts[-1]
    change, moment = change_words(shift.after, shift.before, trend.unit), trend.moments[shift.at]
    return f"{change} at {moment.place}"


def _number(value: Value | None, unit: str) -> object:
    return None if value is None else json_value(Measure(value, unit))


def _json(history: History, tracks: Sequence[Track], trends: Sequence[Trend]) -> dict[str, object]:
    used_runs = {run.id for track in tracks for run in track.runs}
    runs = [run for run in history.runs if run.id in used_runs or run.key is None]
    return {
        "definition": DEFINITION,
        "runs": [_run(run, history.verdicts.get(run.id, ())) for run in runs],
        "rows": [_json_row(*pair) for pair in zip(tracks, trends, strict=True)],
    }


_RUN_FIELDS = [field.name for field in fields(StoredRun) if field.name != "coordinates"]


def _run(run: StoredRun, verdicts: Sequence[Mapping[str, object]]) -> dict[str, object]:
    verdict_members = [{k: v for k, v in verdict.items() if k not in ("id", "run")} for verdict in verdicts]
    run_members = {name: getattr(run, name) for name in _RUN_FIELDS}
    return {
        **run_members,
        "verdicts": [{**verdict, "xfailed": bool(verdict["xfailed"])} for verdict in verdict_members],
    }


def _json_row(track: Track, trend: Trend) -> dict[str, object]:
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
            {
                "run": run.id,
                "time": run.time,
                "value": _number(moment.value, series.unit),
                "exact": exact_text(moment.value),
                "limit": _number(moment.limit, series.unit),
                "accepted": moment.accepted,
            }
            for run, moment in zip(track.runs, trend.moments, strict=True)
        ],
        "moved": [
            {
                "run": track.runs[shift.at].id,
                "commit": track.runs[shift.at].commit,
                "before": _number(shift.before, series.unit),
                "after": _number(shift.after, series.unit),
            }
            for shift in trend.shifts
        ],
    }


def accepted_lines(trends: Sequence[Trend]) -> Iterator[str]:
    """List each refresh once, with its reason and the metrics that it was of."""
    metrics_by_refresh: dict[tuple[str, str], dict[str, None]] = {}
    for trend in trends:
        for moment in trend.moments:
            if moment.accepted is not None:
                metrics_by_refresh.setdefault((moment.place, moment.accepted), {})[trend.quantity] = None
    for (place, reason), metrics in metrics_by_refresh.items():
        yield f"accepted at {place}: {reason} ({', '.join(metrics)})"


def _commit(run: StoredRun) -> str:
    return run.commit[:SHORT_COMMIT] + ("+" if run.dirty else "") if run.commit else ""


def _wide(tracks: Sequence[Track]) -> tuple[str, list[str]]:
    """Render the CSV of one gate file and key. Return it and what is to be said of it.

    Raises UsageMistake for several gate files.
    """
    gates = list(dict.fromkeys(track.series.gate for track in tracks))
    if len(gates) > 1:
        raise UsageMistake(f"csv is of one gate file: give --of; stored are {', '.join(gates)}")
    # The key of the newest run: change-point tools compare what is in one column, and keys are not comparable.
    digest = max((run.id, run.digest or "") for track in tracks for run in track.runs)[1]
    other_digests = {track.series.digest for track in tracks} - {digest}
    notes = (
        [f"left out: runs of another key, {', '.join(sorted(other_digests))}; --key chooses"] if other_digests else []
    )
    columns, runs, holes = without_holes([track for track in tracks if track.series.digest == digest])
    branches = sorted({run.branch or "(none)" for run in runs})
    if len(branches) > 1:
        holes.append(f"runs of several branches, {', '.join(branches)}: --branch chooses")
    rows = [
        (
            *(spaced_time(run.time), run.commit, printable(run.branch or "")),
            *(Measure(track.by_run[run.id], track.series.unit) for _, track in columns),
        )
        for run in runs
    ]
    header = texts("time", "commit", "branch", *(printable(name, WHOLE_TEXT) for name, _ in columns))
    return Table([*header], rows).render(Format.CSV), [*notes, *holes]
