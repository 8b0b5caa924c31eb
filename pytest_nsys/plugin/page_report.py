"""``--nsys-html``: what does a judged item hand over to be drawn, and what page does the session make of it?

The process that judges has the traces and draws nothing: it hands plain data to its report. The controller writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pytest_nsys.core.errors import HistoryError
from pytest_nsys.core.exact import exact_value
from pytest_nsys.core.words import place_words
from pytest_nsys.gates.verdict import Verdict
from pytest_nsys.plugin.session import NsysSession
from pytest_nsys.reports.page.pictures import Pictures, pictures_of, series_of
from pytest_nsys.reports.page.plots import Panel, Point, panel_svg
from pytest_nsys.reports.page.session_page import session_page, worst_first
from pytest_nsys.reports.session.digest import Digest, name_of
from pytest_nsys.stored.baselines.baseline_file import SeriesId
from pytest_nsys.stored.history.reading import History, StoredSeries, load
from pytest_nsys.verdicts.evaluate import GateContext
from pytest_nsys.verdicts.references import OtherRun

MOST_PLOTS = 8
PAST_RUNS = 50
THIS_RUN = "this run"

_SENT = pytest.StashKey[set[str]]()


def draw(session: NsysSession, verdict: Verdict, context: GateContext) -> Pictures:
    """What the page draws of a verdict. A window is handed over once by a process."""
    base = context.baseline.before if isinstance(context.baseline, OtherRun) else None
    sent = session.config.stash.setdefault(_SENT, set())
    pictures = pictures_of(verdict, context.captures, base, sent)
    if session.history is not None:
        pictures["series"] = series_of(verdict, context.captures, context.gate.run, session.store(context.gate).gate)
    return pictures


def page_text(digest: Digest) -> str:
    """The page of a session, whose history has not got it yet."""
    return session_page(digest, *_trend(digest))


def _trend(digest: Digest) -> tuple[Sequence[str], str]:
    """A plot of each worst row that the history knows, what failed first; else why there is none."""
    path = digest.history
    if path is None:
        return (), ""
    asked = [
        (record, drawn["series"])
        for record in worst_first(digest.records)
        if (drawn := digest.pictures.get(name_of(record))) is not None and drawn["series"] is not None
    ]
    if not asked:
        return (), "No row of this session is one that a history keeps."
    try:
        gates = {series["gate"] for _, series in asked}
        past = load(path, gates, last=PAST_RUNS) if path.exists() else History((), (), {})
    except HistoryError as error:
        return (), f"The history cannot be read: {error}"
    first = {str(series): (record, series) for record, series in reversed(asked)}  # several may judge one row
    found = [_panel(record, series, past) for record, series in asked if first[str(series)][0] is record]
    panels = [panel for panel in found if panel is not None]
    plots = [panel_svg(panel, f"trend-{number}") for number, panel in enumerate(panels[:MOST_PLOTS], 1)]
    return plots, "" if plots else "The history has no earlier run of these rows."


def _panel(record: Mapping[str, Any], asked: Mapping[str, Any], past: History) -> Panel | None:
    """The values of the past and of now; None where there is no past."""
    labels, sid = tuple(asked["labels"]), SeriesId(*asked["sid"])
    of_row: StoredSeries | None = next(
        (
            s
            for s in past.series
            if (s.gate, s.digest, s.sid) == (asked["gate"], asked["digest"], sid) and labels in s.rows
        ),
        None,
    )
    values = of_row.rows.get(labels, {}) if of_row is not None else {}
    points = [
        Point(values[run.id], run.time[:16].replace("T", " "), (run.commit or "")[:8])
        for run in past.runs
        if run.id in values
    ]
    if not points or of_row is None:
        return None
    points.append(Point(exact_value(asked["value"]), THIS_RUN))
    place = place_words(zip(of_row.dimensions, labels, strict=True))
    return Panel(": ".join(filter(None, [record["name"], place])), sid.metric, of_row.unit, tuple(points))
