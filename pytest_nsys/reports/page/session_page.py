"""``--nsys-html``: how does a session leave as a page? What happened, then each root with its picture and what it made
red, then what holds, and the past.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from pytest_nsys.analysis.explain.parts import Explained
from pytest_nsys.core.words import printable
from pytest_nsys.merge_base.base_verdict import SHOWN_REDS
from pytest_nsys.reports.drawings.pictures import AssertionPictures, Picture, by_turn
from pytest_nsys.reports.page.assertion_view import MIDDLE, WIDTH, assertion_view, doubts_in, notes_of
from pytest_nsys.reports.page.page import Drawn, render
from pytest_nsys.reports.page.root_view import Section, section_views, sections_of, windows_of
from pytest_nsys.reports.page.timeline_view import COLUMNS, Mark, marks_of, timeline_views
from pytest_nsys.reports.page.trend_view import past_of
from pytest_nsys.reports.session.headline import of_session
from pytest_nsys.reports.session.record import Record
from pytest_nsys.reports.session.session import Session, counts_words, find_run, list_baselines, list_windows
from pytest_nsys.reports.session.story import led_by, worst_first
from pytest_nsys.reports.session.two_sides import beside, tables
from pytest_nsys.tools.git import revision_of

MOST_TIMELINES = 8
MOST_DRAWN = 24_000
"""Kernels, transfers and gaps in all pictures of one gate file; several share an eighth: a phone opens the page."""


def session_page(session: Session) -> str:
    """The page of a session, whose history has not got it yet."""
    past, sections = past_of(session), sections_of(session)
    pictures = _once(session, sections)
    chosen = choose_windows(session.records, sections, pictures)
    drawn = timeline_views(chosen, _marks(session.records, pictures, chosen), _places(session.records, pictures))
    views = {picture.key: view for picture, view in zip(chosen, drawn, strict=True)}
    told = [*section_views(sections, pictures, views)]
    above = [one["id"] for view in told for one in (view["timeline"], view["waiting"]) if one is not None]
    headline, base = of_session(session), session.merge_base
    explained = {record.explained for record in session.bad}
    base_reds = [*base.reds[:SHOWN_REDS]] if base is not None else []
    return render(
        "session.html.j2",
        interactive=bool(views) or len(told) > 1,
        session=session,
        headline=headline,
        counts=_counts(session, headline),
        beside=[*beside(session.comparison)] if session.comparison is not None else [],
        two_sides=tables(session.comparison, verbose=True) if session.comparison is not None else [],
        facts=[*_facts(session), *past.in_short],
        doubts=doubts_in(session.records),
        merge_base=[
            printable(base.headline, 2000),
            *(red.splitlines()[0] for red in base_reds if red in explained),
            *base.beside_reds(),
        ]
        if base is not None
        else [],
        merge_base_reds=[red for red in base_reds if red not in explained],
        gate_diffs=[each for each in base.differences if each.diff] if base is not None else [],
        sections=told,
        files=[_file(records, pictures, views) for records in session.files.values()],
        timelines=(more := [view for view in views.values() if view["id"] not in above]),
        more_windows=_titles(more, [view for view in views.values() if view["id"] in above]),
        timeline_columns=COLUMNS,
        trends=past.drawn(),
        trend_why=past.why,
        bar={"width": WIDTH, "middle": MIDDLE},
    )


def _titles(more: Sequence[Drawn], above: Sequence[Drawn]) -> list[str]:
    """What the windows further down are of; of a rank that has one above, which window it is."""
    known = {view["title"] for view in above}
    return [f"{view['title']}, {view['about']}" if view["title"] in known else view["title"] for view in more]


def _once(session: Session, sections: Sequence[Section]) -> AssertionPictures:
    """The pictures, of each window of a rank one: those that only differ in which kernels count look alike."""
    pictures = session.pictures
    of = {one.key: r.traces for r in session.records if (p := pictures.get(r.known_by)) for one in p.windows}
    handed = {one.key: one for own in pictures.values() for one in own.windows if one.head is not None}
    first: dict[tuple[tuple[str, ...], int, str], str] = {}
    same: dict[str, str] = {}
    for key in dict.fromkeys(chain((key for each in sections for key in windows_of(each, pictures)), handed)):
        if key in handed and (head := handed[key].head) is not None:
            same[key] = first.setdefault((of.get(key, ()), handed[key].rank, head.window), key)

    def known(one: Picture) -> Picture:
        key = same.get(one.key, one.key)
        return one if key == one.key else replace(one, key=key, base=None, head=None)

    return {at: replace(own, windows=[*map(known, own.windows)]) for at, own in pictures.items()}


def _counts(session: Session, headline: str) -> str:
    """How many assertions ended how; empty where the headline says it."""
    told = session.headline
    all_alike = len(session.counts) == 1 and told == counts_words(session.records)
    return "" if all_alike or told.lower() == headline.lower() else told


def choose_windows(
    records: Sequence[Record], sections: Sequence[Section], pictures: AssertionPictures
) -> list[Picture]:
    """Choose what is drawn: the first window of each section, then their others by turn, as long as there is room.

    Where everything is green the one that is nearest to failing.
    """
    handed = {one.key: one for each in pictures.values() for one in each.windows if one.head or one.why}
    own = [[key for key in windows_of(section, pictures) if key in handed] for section in sections]
    if not sections:
        nearest = next((record for record in led_by(records) if record.known_by in pictures), None)
        own = [[one.key for one in pictures[nearest.known_by].windows if one.key in handed]] if nearest else []
    several = len({record.address for record in records}) > 1
    room, chosen = MOST_DRAWN // (8 if several else 1), list[Picture]()
    for key in dict.fromkeys(by_turn(own)):
        room -= _drawn(handed[key])
        if not chosen or (room >= 0 and len(chosen) < MOST_TIMELINES):
            chosen.append(handed[key])
    return chosen


def _drawn(picture: Picture) -> int:
    sides = [one for one in (picture.base, picture.head) if one is not None]
    return sum(len(side.gaps) + sum(len(lane.bars) for lane in side.lanes) for side in sides)


def _marks(records: Sequence[Record], pictures: AssertionPictures, chosen: Sequence[Picture]) -> dict[str, list[Mark]]:
    """Of each window the kernels that caused what is bad in it."""
    shown: dict[str, list[Explained]] = {}
    for record in records:
        for one in pictures[record.known_by].windows if record.known_by in pictures else ():
            shown.setdefault(one.key, []).extend(record.verdict.causes if record.is_open else ())
    return {one.key: marks_of(shown.get(one.key, ()), one.rank) for one in chosen}


def _places(records: Sequence[Record], pictures: AssertionPictures) -> dict[str, str]:
    """By the key of a picture the gate file or configuration that it is of, where there are several."""
    several = len({record.address for record in records}) > 1
    known = [record for record in records if several and record.known_by in pictures]
    return {one.key: r.configuration or r.file for r in known for one in pictures[r.known_by].windows}


def _file(records: Sequence[Record], pictures: AssertionPictures, views: Mapping[str, Drawn]) -> dict[str, Any]:
    """One gate file, and the assertions that hold."""
    holding = [record for record in worst_first(records) if not record.is_open]
    return {
        "name": records[0].address,
        "run": find_run(records).run,
        "against": ", ".join(list_baselines(records)),
        "headline": counts_words(records),
        "assertions": [assertion_view(record, pictures.get(record.known_by), views, set()) for record in holding],
        "windows": list_windows(records),
        "notes": [*dict.fromkeys(note for record in holding for note in notes_of(record))],
    }


def _facts(session: Session) -> Iterator[str]:
    """Of what the page is: the commit that is checked out, when it was traced; nothing that is not known."""
    revision = revision_of(session.checkout) if session.checkout is not None and session.records else None
    if revision is not None and revision.commit is not None:
        changed = ", with local changes" if revision.dirty else ""
        branch = f" on {printable(revision.branch, 100)}" if revision.branch else ""
        yield f"commit {revision.commit[:10]}{branch}{changed}"
    dates = sorted({record.began for record in session.records if record.began})
    if dates:
        yield f"traced {dates[0]} UTC"
