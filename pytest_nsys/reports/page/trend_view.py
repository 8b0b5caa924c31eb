"""Which rows does the page show over time, and what does it say below each? Those of the worst rows, what failed first.

Rows of one unit stand on one scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pytest_nsys.core.errors import HistoryError
from pytest_nsys.core.words import counted, place_words
from pytest_nsys.reports.drawings.pictures import Measured
from pytest_nsys.reports.page.page import Drawn
from pytest_nsys.reports.page.plots import sparkline, told_below, trend_svg
from pytest_nsys.reports.session.record import Record
from pytest_nsys.reports.session.session import Session
from pytest_nsys.reports.session.story import led_by
from pytest_nsys.reports.words.trend import Moment, Trend, on_one_scale, trend_of
from pytest_nsys.stored.history.reading import History, load, track_of

MOST_PLOTS = 8
PAST_RUNS = 50
THIS_RUN = "this run"


class Past(NamedTuple):
    """Holds the worst rows over time, or why there are none."""

    trends: Sequence[Trend] = ()
    why: str = ""  # empty also where nobody asked for trends

    @property
    def in_short(self) -> list[str]:
        """The first trend as one line of text."""
        lines = ((sparkline(trend.values, ends=(trend.low, trend.high)), trend) for trend in self.trends[:1])
        return [f"trend {line} {trend.title}, last {counted(len(trend.values), 'run')}" for line, trend in lines]

    def drawn(self) -> list[Drawn]:
        """Return the plot of each trend, and what is said below it."""
        from markupsafe import Markup

        return [
            {"plot": Markup(trend_svg(trend, f"trend-{number}")), "told": told_below(trend)}
            for number, trend in enumerate(self.trends, 1)
        ]


def past_of(session: Session) -> Past:
    """Return the past of each worst row that the history knows."""
    path = session.history
    if path is None:
        return Past()
    wanted_rows = [
        (record, pictures.worst)
        for record in led_by(session.records)
        if (pictures := session.pictures.get(record.known_by)) is not None and pictures.worst is not None
    ]
    if not wanted_rows:
        return Past(why="A history keeps no row of this session.")
    try:
        gates = {worst.gate for _, worst in wanted_rows}
        history = load(path, gates, last=PAST_RUNS) if path.exists() else History((), (), {})
    except HistoryError as error:
        return Past(why=f"The history cannot be read: {error}")
    first_record = {
        worst: record for record, worst in reversed(wanted_rows)
    }  # several assertions may judge one row: it is drawn once
    trends_or_none = [_trend(record, worst, history) for record, worst in wanted_rows if first_record[worst] is record]
    trends = on_one_scale([trend for trend in trends_or_none if trend is not None][:MOST_PLOTS])
    return Past(trends, "" if trends else "The history has no earlier run of these rows.")


def _trend(record: Record, now: Measured, past: History) -> Trend | None:
    """Return the values of a row in the past and now; None where the history has no past of it."""
    track = track_of(past, now.gate, now.digest, now.series, now.labels)
    if track is None:
        return None
    title = ": ".join(filter(None, [record.title, place_words(track.named)]))
    return trend_of(track, past.verdicts, title, Moment(now.value, THIS_RUN, limit=now.limit))
