"""Which rows does the page show over time, and what does it say below each? The worst row of each assertion, failed
assertions first.

Each has its own axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytest_nsys.core.errors import HistoryError
from pytest_nsys.core.model import Label
from pytest_nsys.core.text_format import format_count, format_labels
from pytest_nsys.core.units import HASH
from pytest_nsys.gates.model import JudgedRow
from pytest_nsys.reports.drawings.pictures import MeasuredWorstRow
from pytest_nsys.reports.page.plots import list_trend_notes, render_sparkline, render_trend_svg
from pytest_nsys.reports.page.templating import TemplateData
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.session import Session
from pytest_nsys.reports.session.story import sort_by_severity
from pytest_nsys.reports.words.trend import Trend, TrendPoint, build_trend
from pytest_nsys.stored.history.stored_runs import History, find_track, load_history

MAX_PLOTS = 8
MAX_STAGES = 16
PAST_RUNS = 50
THIS_RUN = "this run"


class PastTrends(NamedTuple):
    """Holds the trends of the worst rows, or the reason why there are none."""

    trends: Sequence[Trend] = ()
    missing_reason: str = ""  # also empty if no trends were requested
    stage_trends: Sequence[Trend] = ()  # of the overlap, a row for each stage

    @property
    def short_lines(self) -> list[str]:
        """The first trend as one line of text."""
        lines = ((render_sparkline(trend.values, ends=(trend.low, trend.high)), trend) for trend in self.trends[:1])
        return [f"trend {line} {trend.title}, last {format_count(len(trend.values), 'run')}" for line, trend in lines]

    def draw_plots(self) -> list[TemplateData]:
        """Return the plot of each trend, and the notes below it."""
        return _draw_plots(self.trends, "trend")

    def draw_stage_plots(self) -> list[TemplateData]:
        """Return the plot of the overlap in each stage."""
        return _draw_plots(self.stage_trends, "stage-trend")


def _draw_plots(trends: Sequence[Trend], ident: str) -> list[TemplateData]:
    from markupsafe import Markup

    return [
        {"plot": Markup(render_trend_svg(trend, f"{ident}-{number}")), "told": list_trend_notes(trend)}
        for number, trend in enumerate(trends, 1)
    ]


def load_past(session: Session) -> PastTrends:
    """Return the trend of each worst row that the history contains."""
    path = session.history_path
    if path is None:
        return PastTrends()
    wanted_rows = [
        (record, pictures.worst_row)
        for record in sort_by_severity(session.records)
        if (pictures := session.pictures.get(record.identity)) is not None and pictures.worst_row is not None
    ]
    if not wanted_rows:
        return PastTrends(missing_reason="A history keeps no row of this session.")
    try:
        gates = {worst.gate_path for _, worst in wanted_rows}
        history = load_history(path, gates, last=PAST_RUNS) if path.exists() else History((), (), {})
    except HistoryError as error:
        return PastTrends(missing_reason=f"The history cannot be read: {error}")
    first_record = {
        worst: record for record, worst in reversed(wanted_rows)
    }  # several assertions may judge the same row: it is drawn once
    trends_or_none = [
        _build_record_trend(record, worst, history) for record, worst in wanted_rows if first_record[worst] is record
    ]
    found_trends = [trend for trend in trends_or_none if trend is not None]
    trends = [trend for trend in found_trends if _has_moved(trend)][:MAX_PLOTS]
    missing_reason = "No judged row has moved." if found_trends else "The history has no earlier run of these rows."
    stage_trends = [
        trend
        for record, worst in wanted_rows
        if first_record[worst] is record
        for trend in _list_stage_trends(record, worst, history)
    ]
    return PastTrends(trends, "" if trends else missing_reason, stage_trends[:MAX_STAGES])


def _has_moved(trend: Trend) -> bool:
    """Whether a plot would show more than a level line; the identity of something has no height."""
    return trend.unit != HASH and len({*trend.values}) > 1


def _list_stage_trends(record: AssertionRecord, current: MeasuredWorstRow, history: History) -> Iterator[Trend]:
    """Yield the trend of a judged overlap in each stage, on the rank where it is nearest to failing; nothing if the
    worst row's own trend says it all.
    """
    dimensions = record.verdict.assertion.measured_metric.dimensions
    if "overlap" not in current.series.metric or "stage" not in dimensions:
        return
    worst_by_stage: dict[Label, JudgedRow] = {}
    for row in record.verdict.rows:  # worst first
        if row.value is not None and all(dimension in row.labels for dimension in dimensions):
            worst_by_stage.setdefault(row.labels["stage"], row)
    if len(worst_by_stage) < 2:
        return
    for stage in sorted(worst_by_stage, key=str):
        row = worst_by_stage[stage]
        labels = tuple(row.labels[dimension] for dimension in dimensions)
        track = find_track(history, current.gate_path, current.digest, current.series, labels)
        if track is not None and row.value is not None:
            title = f"{current.series.metric} {format_labels(track.labels_by_dimension)}"
            yield build_trend(track, history.verdicts, title, TrendPoint(row.value, THIS_RUN, limit=row.limit))


def _build_record_trend(record: AssertionRecord, current: MeasuredWorstRow, history: History) -> Trend | None:
    """Return the values of a row in earlier runs and now; None if the history does not contain it."""
    track = find_track(history, current.gate_path, current.digest, current.series, current.labels)
    if track is None:
        return None
    title = ": ".join(filter(None, [record.title, format_labels(track.labels_by_dimension)]))
    return build_trend(track, history.verdicts, title, TrendPoint(current.value, THIS_RUN, limit=current.limit))
