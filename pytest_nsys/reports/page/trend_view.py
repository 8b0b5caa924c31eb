"""Which rows does the page show over time, and what does it say below each? The worst row of each assertion, failed
assertions first.

Each has its own axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pytest_nsys.core.errors import HistoryError
from pytest_nsys.core.text_format import format_count, format_labels
from pytest_nsys.reports.drawings.pictures import MeasuredWorstRow
from pytest_nsys.reports.page.plots import list_trend_notes, render_sparkline, render_trend_svg
from pytest_nsys.reports.page.templating import TemplateData
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.session import Session
from pytest_nsys.reports.session.story import sort_by_severity
from pytest_nsys.reports.words.trend import Trend, TrendPoint, build_trend
from pytest_nsys.stored.history.stored_runs import History, find_track, load_history

MAX_PLOTS = 8
PAST_RUNS = 50
THIS_RUN = "this run"


class PastTrends(NamedTuple):
    """Holds the trends of the worst rows, or the reason why there are none."""

    trends: Sequence[Trend] = ()
    missing_reason: str = ""  # also empty if no trends were requested

    @property
    def short_lines(self) -> list[str]:
        """The first trend as one line of text."""
        lines = ((render_sparkline(trend.values, ends=(trend.low, trend.high)), trend) for trend in self.trends[:1])
        return [f"trend {line} {trend.title}, last {format_count(len(trend.values), 'run')}" for line, trend in lines]

    def draw_plots(self) -> list[TemplateData]:
        """Return the plot of each trend, and the notes below it."""
        from markupsafe import Markup

        return [
            {"plot": Markup(render_trend_svg(trend, f"trend-{number}")), "told": list_trend_notes(trend)}
            for number, trend in enumerate(self.trends, 1)
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
    trends = [trend for trend in trends_or_none if trend is not None][:MAX_PLOTS]
    return PastTrends(trends, "" if trends else "The history has no earlier run of these rows.")


def _build_record_trend(record: AssertionRecord, current: MeasuredWorstRow, history: History) -> Trend | None:
    """Return the values of a row in earlier runs and now; None if the history does not contain it."""
    track = find_track(history, current.gate_path, current.digest, current.series, current.labels)
    if track is None:
        return None
    title = ": ".join(filter(None, [record.title, format_labels(track.labels_by_dimension)]))
    return build_trend(track, history.verdicts, title, TrendPoint(current.value, THIS_RUN, limit=current.limit))
