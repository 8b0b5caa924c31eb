"""``--nsys-html``: how does a session leave as a page? Verdicts first, then the windows behind them, then the past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, zip_longest
from typing import Any

from pytest_nsys.core.model import Step, counted
from pytest_nsys.gates.verdict import Outcome
from pytest_nsys.reports.causes import labels_words, part_cells, shared_words, signed
from pytest_nsys.reports.page.drawn import Picture, Pictures
from pytest_nsys.reports.page.margin_bars import MIDDLE, WIDTH, RowsView, nearness, rows_view
from pytest_nsys.reports.page.page import render
from pytest_nsys.reports.page.spread_view import SpreadView, spread_view
from pytest_nsys.reports.page.timeline_view import COLUMNS, TimelineView, timeline_view
from pytest_nsys.reports.session.digest import Digest, name_of, ordered_states, shared_causes
from pytest_nsys.reports.session.gate_changes import change_lines
from pytest_nsys.reports.session.record import notes_of, state, steps_of
from pytest_nsys.reports.tables import WHOLE_TEXT, Table, number, table_of

MOST_TIMELINES = 8
"""What fits a page that a phone opens."""

LOOKED_AT = (Outcome.FAILED, Outcome.INCONCLUSIVE, Outcome.IMPROVED)
"""Outcomes of an assertion that pytest may take as passed, and that deserve a look all the same."""


@dataclass(frozen=True, slots=True)
class AssertionView:
    """One assertion. ``windows`` are (id, title) of its timelines on the page; ``causes`` say of a row how much it
    changed and why: (row, change, parts).
    """

    record: Mapping[str, Any]
    state: str
    open: bool
    rows: RowsView
    causes: tuple[tuple[str, str, Table], ...]
    differences: Table
    spread: SpreadView | None
    windows: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileView:
    """One gate file: the assertions to look at first, then the others."""

    name: str
    run: str
    against: str
    headline: str
    open: tuple[AssertionView, ...]
    folded: tuple[AssertionView, ...]
    windows: tuple[tuple[str, tuple[str, ...]], ...]
    notes: tuple[str, ...]


def session_page(digest: Digest, trend: Sequence[str] = (), trend_why: str = "") -> str:
    """The page, with the plots of the past; ``trend_why`` says why there are none."""
    from markupsafe import Markup

    chosen = chosen_windows(digest)
    views = {picture["key"]: timeline_view(picture, number) for number, picture in enumerate(chosen, 1)}
    return render(
        "session.html.j2",
        interactive=bool(views),
        digest=digest,
        gate_changes=list(change_lines(digest.gate_changes)) if digest.gate_changes is not None else [],
        shared_causes=[
            (cause, [(name, shared_words(rows)) for name, rows in reds.items()])
            for cause, reds in shared_causes(digest.records)
        ],
        chips=[(word, digest.counts[word]) for word in ordered_states(digest.counts)],
        files=[_file(name, records, digest.pictures, views) for name, records in digest.files.items()],
        timelines=list(views.values()),
        timeline_columns=COLUMNS,
        trend=[Markup(plot) for plot in trend],
        trend_why=trend_why,
        bar={"width": WIDTH, "middle": MIDDLE},
    )


def is_open(record: Mapping[str, Any]) -> bool:
    """Whether a person should look at it."""
    return not record["good"] or record["outcome"] in LOOKED_AT


def worst_first(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What failed, then what deserves a look, then the rest, by how near it is to failing."""

    def key(record: Mapping[str, Any]) -> tuple[int, Fraction]:
        near = nearness(record["judged"])
        return (2 if not is_open(record) else int(record["good"]), near if near is not None else Fraction(1 << 62))

    return sorted(records, key=key)


def chosen_windows(digest: Digest) -> list[Picture]:
    """The windows that are drawn: of what deserves a look each assertion's worst rank, then each one's second.

    Where everything is green the one that is nearest to failing.
    """
    pictures = digest.pictures
    handed = {one["key"]: one for each in pictures.values() for one in each["windows"] if one["head"] or one["why"]}
    records = [record for record in worst_first(digest.records) if name_of(record) in pictures]
    red = [record for record in records if is_open(record)]
    own = [[one["key"] for one in pictures[name_of(record)]["windows"]] for record in red or records[:1]]
    keys = dict.fromkeys(key for key in chain.from_iterable(zip_longest(*own)) if key in handed)
    return [handed[key] for key in keys][:MOST_TIMELINES]


def _file(
    name: str,
    records: Sequence[Mapping[str, Any]],
    pictures: Mapping[tuple[str, int, str], Pictures],
    views: Mapping[str, TimelineView],
) -> FileView:
    ranked = worst_first(records)
    shown = [_assertion(record, pictures.get(name_of(record)), views) for record in ranked]
    counts = {word: sum(state(record) == word for record in records) for word in map(state, records)}
    windows = dict.fromkeys((r["measured_as"], tuple(r["windows"])) for r in records if r["measured_as"])
    notes = dict.fromkeys(note for r in records if not is_open(r) for note in _notes(r))
    return FileView(
        name=name,
        run=next((r["run"] for r in records if r["run"]), ""),
        against=", ".join(dict.fromkeys(r["baseline"] for r in records if r["baseline"])),
        headline=f"{counted(len(records), 'assertion')}: "
        + ", ".join(f"{counts[word]} {word}" for word in ordered_states(counts)),
        open=tuple(view for view in shown if view.open),
        folded=tuple(view for view in shown if not view.open),
        windows=tuple(windows),
        notes=tuple(notes),
    )


def _assertion(
    record: Mapping[str, Any], pictures: Pictures | None, views: Mapping[str, TimelineView]
) -> AssertionView:
    differences = [(each["name"], each["now"], each["baseline"]) for each in record["differences"]]
    spread = pictures["spread"] if pictures is not None else None
    keys = [one["key"] for one in pictures["windows"]] if pictures is not None else []
    return AssertionView(
        record=record,
        state=state(record),
        open=is_open(record),
        rows=rows_view(record),
        causes=tuple(_cause(each) for each in record["causes"]),
        differences=table_of("What differs", ("circumstance", "now", "baseline"), differences, longest=WHOLE_TEXT),
        spread=spread_view(spread, record["unit"]) if spread is not None else None,
        windows=tuple((views[key].id, views[key].title) for key in keys if key in views),
        steps=tuple(steps_of(record)),
        notes=tuple(_notes(record)) if is_open(record) else (),
    )


def _notes(record: Mapping[str, Any]) -> list[str]:
    return [*record["warnings"], *map(str, notes_of(record))]


def _cause(row: Mapping[str, Any]) -> tuple[str, str, Table]:
    where = labels_words(row["labels"])
    parts = table_of(f"Causes of {where}", (number("change"), "what"), part_cells(row), longest=WHOLE_TEXT)
    return where, signed(row["change_ns"]), parts
