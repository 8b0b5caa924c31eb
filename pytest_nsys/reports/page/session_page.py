"""How does a session leave as a page (``--nsys-html``)? What happened, then each root with its picture and what it made
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
"""The most kernels, transfers and gaps in all pictures of one gate file; several share an eighth: a phone opens it."""


def session_page(session: Session) -> str:
    """Return the page of a session that its history has not stored yet."""
    past_trends, sections = past_of(session), sections_of(session)
    pictures = _once(session, sections)
    drawn_pictures = choose_windows(session.records, sections, pictures)
    timelines = timeline_views(
        drawn_pictures, _marks(session.records, pictures, drawn_pictures), _places(session.records, pictures)
    )
    views = {picture.key: view for picture, view in zip(drawn_pictures, timelines, strict=True)}
    section_list = [*section_views(sections, pictures, views)]
    ids_above = [
        timeline["id"]
        for view in section_list
        for timeline in (view["timeline"], view["waiting"])
        if timeline is not None
    ]
    headline, merge_base = of_session(session), session.merge_base
    told_explanations = {record.explained for record in session.bad}
    base_reds = [*merge_base.reds[:SHOWN_REDS]] if merge_base is not None else []
    return render(
        "session.html.j2",
        interactive=bool(views) or len(section_list) > 1,
        session=session,
        headline=headline,
        counts=_counts(session, headline),
        beside=[*beside(session.comparison)] if session.comparison is not None else [],
        two_sides=tables(session.comparison, verbose=True) if session.comparison is not None else [],
        facts=[*_facts(session), *past_trends.in_short],
        doubts=doubts_in(session.records),
        merge_base=[
            printable(merge_base.headline, 2000),
            *(red.splitlines()[0] for red in base_reds if red in told_explanations),
            *merge_base.beside_reds(),
        ]
        if merge_base is not None
        else [],
        merge_base_reds=[red for red in base_reds if red not in told_explanations],
        gate_diffs=[difference for difference in merge_base.differences if difference.diff]
        if merge_base is not None
        else [],
        sections=section_list,
        files=[_file(records, pictures, views) for records in session.files.values()],
        timelines=(other_views := [view for view in views.values() if view["id"] not in ids_above]),
        more_windows=_titles(other_views, [view for view in views.values() if view["id"] in ids_above]),
        timeline_columns=COLUMNS,
        trends=past_trends.drawn(),
        trend_why=past_trends.why,
        bar={"width": WIDTH, "middle": MIDDLE},
    )


def _titles(more: Sequence[Drawn], above: Sequence[Drawn]) -> list[str]:
    """Return what the windows further down are of; of a rank that has one above, which window it is."""
    titles_above = {view["title"] for view in above}
    return [f"{view['title']}, {view['about']}" if view["title"] in titles_above else view["title"] for view in more]


def _once(session: Session, sections: Sequence[Section]) -> AssertionPictures:
    """Return the pictures, one of each window of a rank: those that only differ in which kernels count look alike."""
    pictures = session.pictures
    traces_by_key = {
        picture.key: record.traces
        for record in session.records
        if (drawn := pictures.get(record.known_by))
        for picture in drawn.windows
    }
    picture_by_key = {
        picture.key: picture
        for drawn_pictures in pictures.values()
        for picture in drawn_pictures.windows
        if picture.head is not None
    }
    first_key: dict[tuple[tuple[str, ...], int, str], str] = {}
    shared_key: dict[str, str] = {}
    for key in dict.fromkeys(
        chain((key for section in sections for key in windows_of(section, pictures)), picture_by_key)
    ):
        if key in picture_by_key and (head := picture_by_key[key].head) is not None:
            shared_key[key] = first_key.setdefault(
                (traces_by_key.get(key, ()), picture_by_key[key].rank, head.window), key
            )

    def share_picture(picture: Picture) -> Picture:
        key = shared_key.get(picture.key, picture.key)
        return picture if key == picture.key else replace(picture, key=key, base=None, head=None)

    return {
        identity: replace(drawn_pictures, windows=[*map(share_picture, drawn_pictures.windows)])
        for identity, drawn_pictures in pictures.items()
    }


def _counts(session: Session, headline: str) -> str:
    """Return how many assertions ended how; empty where the headline says it."""
    count_line = session.headline
    all_alike = len(session.counts) == 1 and count_line == counts_words(session.records)
    return "" if all_alike or count_line.lower() == headline.lower() else count_line


def choose_windows(
    records: Sequence[Record], sections: Sequence[Section], pictures: AssertionPictures
) -> list[Picture]:
    """Return what is drawn: the first window of each section, then their others by turn, as long as there is room.

    Where everything is green it is the window that is nearest to failing.
    """
    picture_by_key = {
        picture.key: picture
        for assertion_pictures in pictures.values()
        for picture in assertion_pictures.windows
        if picture.head or picture.why
    }
    keys_by_section = [[key for key in windows_of(section, pictures) if key in picture_by_key] for section in sections]
    if not sections:
        nearest = next((record for record in led_by(records) if record.known_by in pictures), None)
        keys_by_section = (
            [[picture.key for picture in pictures[nearest.known_by].windows if picture.key in picture_by_key]]
            if nearest
            else []
        )
    has_several_addresses = len({record.address for record in records}) > 1
    room, chosen_pictures = MOST_DRAWN // (8 if has_several_addresses else 1), list[Picture]()
    for key in dict.fromkeys(by_turn(keys_by_section)):
        room -= _drawn(picture_by_key[key])
        if not chosen_pictures or (room >= 0 and len(chosen_pictures) < MOST_TIMELINES):
            chosen_pictures.append(picture_by_key[key])
    return chosen_pictures


def _drawn(picture: Picture) -> int:
    """Return how many kernels, transfers and gaps a picture has."""
    sides = [timeline for timeline in (picture.base, picture.head) if timeline is not None]
    return sum(len(side.gaps) + sum(len(lane.bars) for lane in side.lanes) for side in sides)


def _marks(records: Sequence[Record], pictures: AssertionPictures, chosen: Sequence[Picture]) -> dict[str, list[Mark]]:
    """Return for each window the kernels that caused what is bad in it."""
    causes_by_key: dict[str, list[Explained]] = {}
    for record in records:
        for picture in pictures[record.known_by].windows if record.known_by in pictures else ():
            causes_by_key.setdefault(picture.key, []).extend(record.verdict.causes if record.is_open else ())
    return {picture.key: marks_of(causes_by_key.get(picture.key, ()), picture.rank) for picture in chosen}


def _places(records: Sequence[Record], pictures: AssertionPictures) -> dict[str, str]:
    """Return the gate file or configuration of each picture by its key; empty where there is only one."""
    has_several_addresses = len({record.address for record in records}) > 1
    drawn_records = [record for record in records if has_several_addresses and record.known_by in pictures]
    return {
        picture.key: record.configuration or record.file
        for record in drawn_records
        for picture in pictures[record.known_by].windows
    }


def _file(records: Sequence[Record], pictures: AssertionPictures, views: Mapping[str, Drawn]) -> dict[str, Any]:
    """Return one gate file, and the assertions that hold."""
    passing_records = [record for record in worst_first(records) if not record.is_open]
    return {
        "name": records[0].address,
        "run": find_run(records).run,
        "against": ", ".join(list_baselines(records)),
        "headline": counts_words(records),
        "assertions": [
            assertion_view(record, pictures.get(record.known_by), views, set()) for record in passing_records
        ],
        "windows": list_windows(records),
        "notes": [*dict.fromkeys(note for record in passing_records for note in notes_of(record))],
    }


def _facts(session: Session) -> Iterator[str]:
    """Yield what the page is of: the commit that is checked out, when it was traced; nothing that is not known."""
    revision = revision_of(session.checkout) if session.checkout is not None and session.records else None
    if revision is not None and revision.commit is not None:
        changes_text = ", with local changes" if revision.dirty else ""
        branch = f" on {printable(revision.branch, 100)}" if revision.branch else ""
        yield f"commit {revision.commit[:10]}{branch}{changes_text}"
    dates = sorted({record.began for record in session.records if record.began})
    if dates:
        yield f"traced {dates[0]} UTC"
