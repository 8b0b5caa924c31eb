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
    """The rows over time; ``why`` there are none, empty where nobody asked for any."""

    trends: Sequence[Trend] = ()
    why: str = ""

    @property
    def in_short(self) -> list[str]:
        """A line of the first one."""
        lines = ((sparkline(one.values, ends=(one.low, one.high)), one) for one in self.trends[:1])
        return [f"trend {line} {one.title}, last {counted(len(one.values), 'run')}" for line, one in lines]

    def drawn(self) -> list[Drawn]:
        """A plot of each, and what is said below it."""
        from markupsafe import Markup

        return [
            {"plot": Markup(trend_svg(trend, f"trend-{number}")), "told": told_below(trend)}
            for number, trend in enumerate(self.trends, 1)
        ]


def past_of(session: Session) -> Past:
    """The past of each worst row that the history knows."""
    path = session.history
    if path is None:
        return Past()
    asked = [
        (record, drawn.worst)
        for record in led_by(session.records)
        if (drawn := session.pictures.get(record.known_by)) is not None and drawn.worst is not None
    ]
    if not asked:
        return Past(why="A history keeps no row of this session.")
    try:
        gates = {worst.gate for _, worst in asked}
        past = load(path, gates, last=PAST_RUNS) if path.exists() else History((), (), {})
    except HistoryError as error:
        return Past(why=f"The history cannot be read: {error}")
    first = {worst: record for record, worst in reversed(asked)}  # several may judge one row
    found = [_trend(record, worst, past) for record, worst in asked if first[worst] is record]
    trends = on_one_scale([trend for trend in found if trend is not None][:MOST_PLOTS])
    return Past(trends, "" if trends else "The history has no earlier run of these rows.")


def _trend(record: Record, now: Measured, past: History) -> Trend | None:
    """The values of the past and of now; None where there is no past."""
    track = track_of(past, now.gate, now.digest, now.series, now.labels)
    if track is None:
        return None
    title = ": ".join(filter(None, [record.title, place_words(track.named)]))
    return trend_of(track, past.verdicts, title, Moment(now.value, THIS_RUN, limit=now.limit))
