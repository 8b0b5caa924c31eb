"""``--nsys-html``: how does a session leave as a page? Verdicts first, then the windows behind them, then the past.

How near each row is to its limit is a bar from the line of the limit: to the left what is left, to the right what is
beyond it. Each side of an assertion has its own scale: a row far beyond would hide what is left of the others. How a
row varies over the steady windows is a dot for each window along the values, the median one marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from pytest_nsys.analysis.explained import Explained
from pytest_nsys.core.exact import median, percentile
from pytest_nsys.core.kept import grouped
from pytest_nsys.core.numbers import format_value
from pytest_nsys.core.words import counted, printable
from pytest_nsys.gates.model import JudgedRow, Outcome, Verdict
from pytest_nsys.reports.causes import cause_table
from pytest_nsys.reports.changes import gate_change_lines
from pytest_nsys.reports.explanation import row_table
from pytest_nsys.reports.headline import as_sentence, of_session
from pytest_nsys.reports.page.page import Drawn, percent, render
from pytest_nsys.reports.page.pictures import Picture, Pictures, Spread, by_turn
from pytest_nsys.reports.page.timeline_view import COLUMNS, Mark, marks_of, timeline_views
from pytest_nsys.reports.page.trend_view import past_of
from pytest_nsys.reports.roots import called_in, root_sentence
from pytest_nsys.reports.session.digest import (
    Digest,
    FileRecords,
    counts_words,
    worst_first,
)
from pytest_nsys.reports.session.record import Record
from pytest_nsys.reports.session.story import led_by, story_of
from pytest_nsys.reports.session.two_sides import beside, tables
from pytest_nsys.reports.tables import WHOLE_TEXT, table_of
from pytest_nsys.tools.git import revision_of

MOST_TIMELINES = 8
"""What fits a page that a phone opens."""


def session_page(digest: Digest) -> str:
    """The page of a session, whose history has not got it yet."""
    past = past_of(digest)
    chosen = chosen_windows(digest)
    drawn = timeline_views(chosen, _marks(digest, chosen))
    views = {picture.key: view for picture, view in zip(chosen, drawn, strict=True)}
    reds = [*_groups(digest, views)]
    above = [group["timeline"]["id"] for group in reds if group["timeline"] is not None]
    return render(
        "session.html.j2",
        interactive=bool(views),
        drawn=bool(views),
        digest=digest,
        headline=of_session(digest),
        beside=[*beside(digest.comparison)] if digest.comparison is not None else [],
        two_sides=tables(digest.comparison, verbose=True) if digest.comparison is not None else [],
        facts=[*_facts(digest), *past.in_short],
        gate_changes=list(gate_change_lines(digest.gate_changes)) if digest.gate_changes is not None else [],
        groups=reds,
        files=[_file(file, digest.pictures, views) for file in digest.files],
        timelines=[view for view in views.values() if view["id"] not in above],
        timeline_columns=COLUMNS,
        trends=past.drawn(),
        trend_why=past.why,
        bar={"width": WIDTH, "middle": MIDDLE},
    )


def chosen_windows(digest: Digest) -> list[Picture]:
    """The windows that are drawn: of what deserves a look each assertion's worst rank, then each one's second.

    Where everything is green the one that is nearest to failing.
    """
    pictures = digest.pictures
    handed = {one.key: one for each in pictures.values() for one in each.windows if one.head or one.why}
    records = [record for record in led_by(digest.records) if record.known_by in pictures]
    red = [record for record in records if record.is_open]
    own = [[one.key for one in pictures[record.known_by].windows] for record in red or records[:1]]
    keys = dict.fromkeys(key for key in by_turn(own) if key in handed)
    return [handed[key] for key in keys][:MOST_TIMELINES]


def _marks(digest: Digest, chosen: Sequence[Picture]) -> dict[str, list[Mark]]:
    """Of each window the kernels that caused what is bad in it."""
    shown: dict[str, list[Explained]] = {}
    for record in digest.records:
        for one in digest.pictures[record.known_by].windows if record.known_by in digest.pictures else ():
            shown.setdefault(one.key, []).extend(record.verdict.causes if record.is_open else ())
    return {one.key: marks_of(shown.get(one.key, ()), one.rank) for one in chosen}


def _groups(digest: Digest, views: Mapping[str, Drawn]) -> Iterator[dict[str, Any]]:
    """What deserves a look, by what caused it: the cause, then the assertions. A row is explained once in a group.

    The cause that leads all has its timeline at once: the first one.
    """
    found = groups(digest)
    for number, (title, rooted, records) in enumerate(found):
        told: set[str] = set()
        yield {
            "title": title if rooted or len(found) > 1 else "",
            "timeline": next(iter(views.values()), None) if rooted and not number else None,
            "assertions": [_assertion(r, digest.pictures.get(r.known_by), views, told) for r in records],
        }


def _file(
    file: FileRecords, pictures: Mapping[tuple[str, int, str], Pictures], views: Mapping[str, Drawn]
) -> dict[str, Any]:
    """One gate file, and the assertions that hold."""
    holding = [record for record in worst_first(file.records) if not record.is_open]
    return {
        "name": file.name,
        "run": file.run,
        "against": ", ".join(file.baselines),
        "headline": counts_words(file.records),
        "assertions": [_assertion(record, pictures.get(record.known_by), views, set()) for record in holding],
        "windows": file.windows,
        "notes": [*dict.fromkeys(note for record in holding for note in _notes(record))],
    }


def _assertion(record: Record, pictures: Pictures | None, views: Mapping[str, Drawn], told: set[str]) -> dict[str, Any]:
    """One assertion. ``windows`` are (id, title) of its timelines on the page; ``causes`` say of a row how much it
    changed and why: (row, change, parts). Those that are ``told`` above are left out; it gets these.
    """
    verdict = record.verdict
    spread = pictures.spread if pictures is not None else None
    keys = [one.key for one in pictures.windows] if pictures is not None else []
    causes = {str(row): row for row in verdict.causes if str(row) not in told}
    told.update(causes)
    return {
        "record": record,
        "said": as_sentence(record.message),
        "rows": _rows(verdict),
        "causes": [cause_table(each) for each in causes.values()],
        "differences": table_of(
            "What differs", ("circumstance", "now", "baseline"), verdict.differences, longest=WHOLE_TEXT
        ),
        "spread": _spread(spread, verdict.unit) if spread is not None else None,
        "windows": [(views[key]["id"], views[key]["title"]) for key in keys if key in views],
        "notes": _notes(record) if record.is_open else [],
    }


def _notes(record: Record) -> list[str]:
    return [*record.verdict.warnings, *map(str, record.verdict.notes)]


WIDTH, MIDDLE = 140, 70
"""Of a bar's picture in pixels: its length, and where the limit is."""

MOST_ROWS = 500
"""Of one assertion; the JSON report has all of them."""


def _rows(verdict: Verdict) -> dict[str, Any]:
    """The rows of one assertion, worst first: those to look at, and those that hold. ``more`` says what is left out."""
    rows = verdict.rows
    table = row_table(verdict, rows, MOST_ROWS, margins=True)
    margins = [Fraction(row.margin) for row in rows if row.margin is not None]
    scales = max((-m for m in margins if m < 0), default=None), max((m for m in margins if m > 0), default=None)
    lines = [
        {
            "word": "waived" if row.waived else "near" if row.early_warning else str(row.outcome),
            "cells": cells,
            "bar": _bar(row, scales),
        }
        for row, cells in zip(rows, table.rows, strict=False)
    ]
    return {
        "columns": table.columns,
        "lines": [line for line in lines if line["word"] != "passed"],
        "holding": [line for line in lines if line["word"] == "passed"],
        "more": f"… {counted(table.more, 'more row')}, in the JSON report" if table.more else "",
    }


def _bar(row: JudgedRow, scales: tuple[Fraction | None, Fraction | None]) -> dict[str, Any] | None:
    """A bar from ``left`` of so much ``width``, None of a row without a limit; the kinds differ in shape too."""
    margin = row.margin
    if margin is None:
        return None
    scale = scales[0] if margin < 0 else scales[1]
    width = int(abs(Fraction(margin)) * (MIDDLE - 2) / scale) if scale else 0
    kind = "waived" if row.waived else "crossed" if margin < 0 or row.outcome is Outcome.FAILED else "held"
    return {"left": MIDDLE if margin < 0 else MIDDLE - width, "width": width, "kind": kind}


EDGE = Fraction(4, 100)
"""Of the width, left free at either side."""

ROWS = 4
"""Dots stand in so many rows, by turn, so that equal ones are all seen."""


def _spread(spread: Spread, unit: str) -> dict[str, Any]:
    """The distribution of an assertion's worst row: the dots, the box of the middle half, and the limit where it is
    among the values; or ``why`` there are none. ``unit`` is that of its values.
    """
    values, limit = spread.values, spread.limit
    if not values:
        return {"row": spread.row, "why": spread.why or "no steady window has this row"}
    own = sorted(value for _, value in values)
    shown = [*own, *([limit] if limit is not None and _is_near(limit, own[0], own[-1]) else [])]
    low, high = Fraction(min(shown)), Fraction(max(shown))

    def x(value: Fraction | int) -> Fraction:
        return EDGE + (1 - 2 * EDGE) * (Fraction(value) - low) / (high - low) if high > low else Fraction(1, 2)

    first, third = percentile(own, 25), percentile(own, 75)
    words = [format_value(value, unit) for value in (own[0], median(own), own[-1])]
    dots = [
        (percent(x(v)), n % ROWS, f"window {i + 1}: {format_value(v, unit)}", i == spread.median)
        for n, (i, v) in enumerate(values)
    ]
    said = f"{len(own)} steady windows of {spread.row}: from {words[0]} to {words[2]}, median {words[1]}"
    marked = next((format_value(v, unit) for i, v in values if i == spread.median), "")
    said += f"; the median-indexed window has {marked}" if marked else ""
    return {
        "row": spread.row,
        "dots": dots,
        "box": (percent(x(first)), percent(x(third) - x(first))),
        "middle": percent(x(median(own))),
        "limit": percent(x(limit)) if limit in shown and limit is not None else "",
        "ends": (format_value(low, unit), format_value(high, unit)),
        "said": said,
        "why": "",
    }


def _is_near(limit: Fraction | int, low: Fraction | int, high: Fraction | int) -> bool:
    """Whether the dots are still told apart beside it."""
    room = 3 * max(high - low, abs(Fraction(high)) / 20)
    return low - room <= limit <= high + room


# Records by what is at the root of them

NO_ROOT = {
    Outcome.FAILED: "Cause not known",
    Outcome.PASSED: "Cause not known",
    Outcome.NO_DATA: "No data",
    Outcome.ERROR: "Not judged",
}
"""What stands for a root, by the outcome of what has none."""


class RootGroup(NamedTuple):
    """Records below one root; ``title`` tells it, also where there is none and ``rooted`` is False."""

    title: str
    rooted: bool
    records: Sequence[Record]


def groups(digest: Digest) -> list[RootGroup]:
    """What deserves a look by what is at its root, then by how it ended. A record stands once."""
    story = story_of(digest)
    called, told, found = called_in(story), set[tuple[str, int, str]](), []
    for root in story.roots:
        own = {red.record.known_by: red.record for red in root.reds if red.record.known_by not in told}
        told.update(own)
        if own:
            title = as_sentence(root_sentence(root, story, called), called.values())
            found.append(RootGroup(title, True, [*own.values()]))
    rest = [record for record in led_by(digest.records) if record.is_open and record.known_by not in told]
    by_outcome = grouped((NO_ROOT.get(record.outcome, as_sentence(record.outcome)), record) for record in rest)
    return [*found, *(RootGroup(title, False, records) for title, records in by_outcome.items())]


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
