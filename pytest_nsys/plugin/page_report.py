"""``--nsys-html``: what does a judged item hand over to be drawn, and what page does the session make of it?

The process that judges has the traces and draws nothing: it hands plain data to its report. The controller writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from pytest_nsys.analysis.captures import Captures
from pytest_nsys.core.errors import HistoryError, NsysError
from pytest_nsys.core.exact import exact_value
from pytest_nsys.core.words import counted, place_words, printable
from pytest_nsys.gates.model import Verdict
from pytest_nsys.plugin.session import NsysSession
from pytest_nsys.reports.headline import led_by
from pytest_nsys.reports.page.pictures import Pictures, pictures_of, series_of
from pytest_nsys.reports.page.plots import Panel, Point, panel_svg, sparkline
from pytest_nsys.reports.page.session_page import session_page
from pytest_nsys.reports.session.digest import Digest
from pytest_nsys.reports.session.record import Record
from pytest_nsys.stored.baselines.baseline_file import SeriesId
from pytest_nsys.stored.history.reading import History, StoredSeries, load
from pytest_nsys.tools.git import revision_of
from pytest_nsys.verdicts.evaluate import GateContext
from pytest_nsys.verdicts.references import OtherRun
from pytest_nsys.verdicts.stored_baseline import StoredBaseline

MOST_PLOTS = 8
PAST_RUNS = 50
THIS_RUN = "this run"

_SENT = pytest.StashKey[set[str]]()


def draw(session: NsysSession, verdict: Verdict, context: GateContext) -> Pictures:
    """What the page draws of a verdict. A window is handed over once by a process."""
    base = _accepted(session, context)
    sent = session.config.stash.setdefault(_SENT, set())
    pictures = pictures_of(verdict, context.captures, base, sent)
    if session.history is not None:
        pictures["series"] = series_of(verdict, context.captures, context.gate.run, session.store(context.gate).gate)
    return pictures


def _accepted(session: NsysSession, context: GateContext) -> Captures | None:
    """The run that this one is held against, as far as it is at hand: the base, or the windows that are kept of the
    accepted run. None where there is none, or where those cannot be drawn.
    """
    held, gate = context.baseline, context.gate
    if isinstance(held, OtherRun):
        return held.before
    with contextlib.suppress(NsysError):
        if isinstance(held, StoredBaseline) and (kept := held.window) is not None:
            return session.library.captures([str(kept)], kept.parent, gate.resolved_convention, gate.workload)
    return None


def page_text(digest: Digest) -> str:
    """The page of a session, whose history has not got it yet."""
    panels, why = _trend(digest)
    plots = [panel_svg(panel, f"trend-{number}") for number, panel in enumerate(panels, 1)]
    return session_page(digest, [*_facts(digest), *map(_spark, panels[:1])], plots, why)


def _facts(digest: Digest) -> Iterator[str]:
    """Of what the page is: the commit that is checked out, when it was traced; nothing that is not known."""
    revision = revision_of(digest.checkout) if digest.checkout is not None and digest.records else None
    if revision is not None and revision.commit is not None:
        changed = ", with local changes" if revision.dirty else ""
        branch = f" on {printable(revision.branch, 100)}" if revision.branch else ""
        yield f"commit {revision.commit[:10]}{branch}{changed}"
    dates = sorted({record.began for record in digest.records if record.began})
    if dates:
        yield f"traced {dates[0]} UTC"


def _spark(panel: Panel) -> str:
    values = [point.value for point in panel.points]
    return f"trend {sparkline(values)} {panel.title}, last {counted(len(values), 'run')}"


def _trend(digest: Digest) -> tuple[Sequence[Panel], str]:
    """The past of each worst row that the history knows, what failed first; else why there is none."""
    path = digest.history
    if path is None:
        return (), ""
    asked = [
        (record, drawn["series"])
        for record in led_by(digest.records)
        if (drawn := digest.pictures.get(record.known_by)) is not None and drawn["series"] is not None
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
    panels = [panel for panel in found if panel is not None][:MOST_PLOTS]
    return panels, "" if panels else "The history has no earlier run of these rows."


def _panel(record: Record, asked: Mapping[str, Any], past: History) -> Panel | None:
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
    return Panel(": ".join(filter(None, [record.title, place])), sid.metric, of_row.unit, tuple(points))
