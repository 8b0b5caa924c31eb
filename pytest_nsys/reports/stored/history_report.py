"""How is a history reported: as a table, as JSON, or as CSV without gaps for change-point tools?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

from pytest_nsys.core.errors import UsageMistake
from pytest_nsys.core.exact import encode_exact_text, median
from pytest_nsys.core.model import Value
from pytest_nsys.core.numbers import format_change, format_in_one_unit, format_value
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.reports.page.plots import render_sparkline
from pytest_nsys.reports.tables.formats import (
    UNLIMITED_LENGTH,
    Cell,
    Column,
    Format,
    Measure,
    Table,
    make_number_column,
    make_text_columns,
    render_json,
    to_json_value,
)
from pytest_nsys.reports.words.trend import COMMIT_LENGTH, Trend
from pytest_nsys.stored.history.stored_runs import (
    History,
    RowTrack,
    StoredRun,
    describe_measurements,
    format_spaced_time,
    select_full_columns,
)

JSON_DEFINITION = 1
"""The version of the layout of the printed JSON."""


def render_history(
    history: History, tracks: Sequence[RowTrack], trends: Sequence[Trend], format: Format, encoding: str = "utf-8"
) -> tuple[str, Sequence[str]]:
    """Render some rows (at least one), each with its trend. Return the report, and notes on its accuracy.

    A table uses only characters of ``encoding``. Raises UsageMistake for rows that the format cannot hold.
    """
    match format:
        case Format.CSV:
            return _render_csv(tracks)
        case Format.JSON:
            return render_json(_build_history_json(history, tracks, trends)), ()
    return _build_history_table(tracks, trends, encoding).render(format), ()


def _build_history_table(tracks: Sequence[RowTrack], trends: Sequence[Trend], encoding: str) -> Table:
    """Build the table of a history. Columns with the same text in every line are left out."""
    how_measured_texts, units = describe_measurements(tracks), [track.series.unit for track in tracks]
    gates, keys = ([getattr(track.series, name) for track in tracks] for name in ("gate", "digest"))
    values = [format_in_one_unit([t.values[0], median(t.values), t.values[-1]], t.series.unit) for t in tracks]
    first, middle, last = zip(*values, strict=True)
    cells: dict[str, Sequence[Cell]] = {
        "gate": gates if len({*gates}) > 1 else (),
        "key": keys if len({*zip(gates, keys, strict=True)}) > 1 else (),
        "metric": [track.series.sid.metric for track in tracks],
        "row": [track.labels_text for track in tracks],
        "measured": how_measured_texts,
        "trend": [
            render_sparkline(track.values, encoding, (trend.low, trend.high))
            for track, trend in zip(tracks, trends, strict=True)
        ],
        "runs": [len(track.runs) for track in tracks],
        "first": first,
        "median": middle,
        "last": last,
        # The last value against the median of the earlier ones.
        "change": [
            None if track.earlier_median is None else format_change(track.values[-1], track.earlier_median, unit)
            for track, unit in zip(tracks, units, strict=True)
        ],
        "limit": [_format_last_limit(trend) for trend in trends],
        "moved": [_format_last_shift(trend) for trend in trends],
    }
    shown_cells = {name: column for name, column in cells.items() if name in ALWAYS_SHOWN or any(column)}
    columns = [make_number_column(name) if name == "runs" else Column(name) for name in shown_cells]
    return Table(columns, [*zip(*shown_cells.values(), strict=True)])


ALWAYS_SHOWN = ("row", "change")  # a table without them does not say what moved


def _format_last_limit(trend: Trend) -> str | None:
    """Format the limit of the newest run; None if no limit of this row is known."""
    limits = [moment.limit for moment in trend.points if moment.limit is not None]
    return format_value(limits[-1], trend.unit) if limits else None


def _format_last_shift(trend: Trend) -> str | None:
    """Describe the last run at which the row shifted permanently: ``+9.6% at 474e9573e0, 2026-01-10``."""
    if not trend.shifts:
        return None
    shift = trend.shifts[-1]
    change, moment = format_change(shift.after, shift.before, trend.unit), trend.points[shift.position]
    return f"{change} at {moment.run_text}"


def _convert_value(value: Value | None, unit: str) -> object:
    return None if value is None else to_json_value(Measure(value, unit))


def _build_history_json(history: History, tracks: Sequence[RowTrack], trends: Sequence[Trend]) -> dict[str, object]:
    used_runs = {run.id for track in tracks for run in track.runs}
    runs = [run for run in history.runs if run.id in used_runs or run.key is None]
    return {
        "definition": JSON_DEFINITION,
        "runs": [_build_run_json(run, history.verdicts.get(run.id, ())) for run in runs],
        "rows": [_build_history_row(*pair) for pair in zip(tracks, trends, strict=True)],
    }


_RUN_FIELDS = [field.name for field in fields(StoredRun) if field.name != "coordinates"]


def _build_run_json(run: StoredRun, verdicts: Sequence[Mapping[str, object]]) -> dict[str, object]:
    verdict_members = [{k: v for k, v in verdict.items() if k not in ("id", "run")} for verdict in verdicts]
    run_members = {name: getattr(run, name) for name in _RUN_FIELDS}
    return {
        **run_members,
        "verdicts": [{**verdict, "xfailed": bool(verdict["xfailed"])} for verdict in verdict_members],
    }


def _build_history_row(track: RowTrack, trend: Trend) -> dict[str, object]:
    series = track.series
    return {
        "gate": series.gate,
        "digest": series.digest,
        **series.sid._asdict(),
        "unit": series.unit,
        "better": series.better,
        "labels": dict(track.labels_by_dimension),
        "median": _convert_value(median(track.values), series.unit),
        "earlier": _convert_value(track.earlier_median, series.unit),
        "values": [
            {
                "run": run.id,
                "time": run.time,
                "value": _convert_value(moment.value, series.unit),
                "exact": encode_exact_text(moment.value),
                "limit": _convert_value(moment.limit, series.unit),
                "accepted": moment.acceptance_reason,
            }
            for run, moment in zip(track.runs, trend.points, strict=True)
        ],
        "moved": [
            {
                "run": track.runs[shift.position].id,
                "commit": track.runs[shift.position].commit,
                "before": _convert_value(shift.before, series.unit),
                "after": _convert_value(shift.after, series.unit),
            }
            for shift in trend.shifts
        ],
    }


def list_accepted_refreshes(trends: Sequence[Trend]) -> Iterator[str]:
    """List each refresh once, with its reason and its metrics."""
    metrics_by_refresh: dict[tuple[str, str], dict[str, None]] = {}
    for trend in trends:
        for moment in trend.points:
            if moment.acceptance_reason is not None:
                metrics_by_refresh.setdefault((moment.run_text, moment.acceptance_reason), {})[trend.quantity] = None
    for (place, reason), metrics in metrics_by_refresh.items():
        yield f"accepted at {place}: {reason} ({', '.join(metrics)})"


def _format_commit(run: StoredRun) -> str:
    return run.commit[:COMMIT_LENGTH] + ("+" if run.dirty else "") if run.commit else ""


def _render_csv(tracks: Sequence[RowTrack]) -> tuple[str, list[str]]:
    """Render the CSV of one gate file and key. Return it with notes.

    Raises UsageMistake for several gate files.
    """
    gates = list(dict.fromkeys(track.series.gate for track in tracks))
    if len(gates) > 1:
        raise UsageMistake(f"csv is of one gate file: give --of; stored are {', '.join(gates)}")
    # Only the newest run's key: change-point tools compare a whole column, and different keys are not comparable.
    digest = max((run.id, run.digest or "") for track in tracks for run in track.runs)[1]
    other_digests = {track.series.digest for track in tracks} - {digest}
    notes = (
        [f"left out: runs of another key, {', '.join(sorted(other_digests))}; --key chooses"] if other_digests else []
    )
    columns, runs, holes = select_full_columns([track for track in tracks if track.series.digest == digest])
    branches = sorted({run.branch or "(none)" for run in runs})
    if len(branches) > 1:
        holes.append(f"runs of several branches, {', '.join(branches)}: --branch chooses")
    rows = [
        (
            *(format_spaced_time(run.time), run.commit, sanitize_line(run.branch or "")),
            *(Measure(track.value_by_run[run.id], track.series.unit) for _, track in columns),
        )
        for run in runs
    ]
    header = make_text_columns(
        "time", "commit", "branch", *(sanitize_line(name, UNLIMITED_LENGTH) for name, _ in columns)
    )
    return Table([*header], rows).render(Format.CSV), [*notes, *holes]
