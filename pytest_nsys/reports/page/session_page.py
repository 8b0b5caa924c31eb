"""How is a session shown as a page (``--nsys-html``)? What happened, then each root with its picture and the assertions
that failed because of it, then what holds, and the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from pytest_nsys.analysis.explain.breakdown_model import RowExplanation
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.merge_base.base_verdict import MAX_SHOWN_REDS
from pytest_nsys.reports.drawings.pictures import Picture, PicturesByAssertion, interleave_lists
from pytest_nsys.reports.page.assertion_view import BAR_MIDDLE, BAR_WIDTH, build_assertion_view, list_doubts, list_notes
from pytest_nsys.reports.page.root_view import Section, build_section_views, list_sections, list_window_keys
from pytest_nsys.reports.page.templating import TemplateData, render_page
from pytest_nsys.reports.page.timeline_view import LANE_COLUMNS, BlamedKernels, build_timeline_views, list_marks
from pytest_nsys.reports.page.trend_view import load_past
from pytest_nsys.reports.session.comparison_tables import build_comparison_tables, describe_comparison
from pytest_nsys.reports.session.headline import format_headline
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.session import (
    Session,
    find_run_record,
    format_counts,
    list_baselines,
    list_window_sets,
)
from pytest_nsys.reports.session.story import sort_by_severity, sort_worst_first
from pytest_nsys.tools.git import read_revision

MAX_TIMELINES = 8
MAX_DRAWN_ITEMS = 24_000
"""The most kernels, transfers and gaps in all pictures of a page, so that a phone can open it; an eighth of it if there
are several gate files or configurations.
"""


def render_session_page(session: Session) -> str:
    """Return the page of a session; the history has not stored the session yet."""
    past_trends, sections = load_past(session), list_sections(session)
    pictures = _deduplicate_pictures(session, sections)
    drawn_pictures = choose_windows(session.records, sections, pictures)
    if not sections and session.comparison is None:  # nothing changed: the base would be the same picture again
        drawn_pictures = [replace(picture, base=None) for picture in drawn_pictures]
    timelines = build_timeline_views(
        drawn_pictures, _collect_marks(session.records, pictures, drawn_pictures), _name_runs(session.records, pictures)
    )
    views = {picture.key: view for picture, view in zip(drawn_pictures, timelines, strict=True)}
    section_list = [*build_section_views(sections, pictures, views)]
    ids_above = [
        timeline["id"]
        for view in section_list
        for timeline in (view["timeline"], view["waiting"])
        if timeline is not None
    ]
    headline, merge_base = format_headline(session), session.merge_base
    told_explanations = {record.full_explanation for record in session.bad}
    base_reds = [*merge_base.reds[:MAX_SHOWN_REDS]] if merge_base is not None else []
    return render_page(
        "session.html.j2",
        interactive=bool(views) or len(section_list) > 1,
        session=session,
        headline=headline,
        counts=_format_counts(session, headline),
        beside=[*describe_comparison(session.comparison)] if session.comparison is not None else [],
        two_sides=build_comparison_tables(session.comparison, verbose=True) if session.comparison is not None else [],
        facts=[*_list_run_facts(session), *past_trends.short_lines],
        doubts=list_doubts(session.records),
        merge_base=[
            sanitize_line(merge_base.headline, 2000),
            *(red.splitlines()[0] for red in base_reds if red in told_explanations),
            *merge_base.list_remarks(),
        ]
        if merge_base is not None
        else [],
        merge_base_reds=[red for red in base_reds if red not in told_explanations],
        gate_diffs=[difference for difference in merge_base.differences if difference.diff]
        if merge_base is not None
        else [],
        sections=section_list,
        files=[_build_file_view(records, pictures, views) for records in session.records_by_address.values()],
        timelines=(other_views := [view for view in views.values() if view["id"] not in ids_above]),
        more_windows=_list_titles(other_views, [view for view in views.values() if view["id"] in ids_above]),
        timeline_columns=LANE_COLUMNS,
        trends=past_trends.draw_plots(),
        stage_trends=past_trends.draw_stage_plots(),
        trend_why=past_trends.missing_reason,
        bar={"width": BAR_WIDTH, "middle": BAR_MIDDLE},
    )


def _list_titles(views_below: Sequence[TemplateData], views_above: Sequence[TemplateData]) -> list[str]:
    """Return the titles of the windows further down; if the rank has a picture above, the title says which window it
    is.
    """
    titles_above = {view["title"] for view in views_above}
    return [
        f"{view['title']}, {view['about']}" if view["title"] in titles_above else view["title"] for view in views_below
    ]


def _deduplicate_pictures(session: Session, sections: Sequence[Section]) -> PicturesByAssertion:
    """Return one picture for each window of a rank: windows that differ only in which kernels count look alike."""
    pictures = session.pictures
    traces_by_key = {
        picture.key: record.traces
        for record in session.records
        if (drawn := pictures.get(record.identity))
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
        chain((key for section in sections for key in list_window_keys(section, pictures)), picture_by_key)
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


def _format_counts(session: Session, headline: str) -> str:
    """Return the number of assertions by state; empty if the headline says it."""
    count_line = session.headline
    all_alike = len(session.counts) == 1 and count_line == format_counts(session.records)
    return "" if all_alike or count_line.lower() == headline.lower() else count_line.removesuffix(f"; {headline}")


def choose_windows(
    records: Sequence[AssertionRecord], sections: Sequence[Section], pictures: PicturesByAssertion
) -> list[Picture]:
    """Return the pictures to draw: the first window of each section, then the sections' other windows in turn, while
    they fit into the limit of drawn items.

    If everything passed, it is the window of the assertion nearest to failing.
    """
    picture_by_key = {
        picture.key: picture
        for assertion_pictures in pictures.values()
        for picture in assertion_pictures.windows
        if picture.head or picture.missing_reason
    }
    keys_by_section = [
        [key for key in list_window_keys(section, pictures) if key in picture_by_key] for section in sections
    ]
    if not sections:
        nearest = next((record for record in sort_by_severity(records) if record.identity in pictures), None)
        near_pictures = pictures[nearest.identity].windows if nearest is not None else ()
        keys_by_section = [[picture.key for picture in near_pictures if picture.key in picture_by_key][:1]]
    has_several_addresses = _has_several_gates(records)
    room, chosen_pictures = MAX_DRAWN_ITEMS // (8 if has_several_addresses else 1), list[Picture]()
    for key in dict.fromkeys(interleave_lists(keys_by_section)):
        # The first window is always drawn: a page without a picture explains nothing.
        room -= _count_drawn_items(picture_by_key[key])
        if not chosen_pictures or (room >= 0 and len(chosen_pictures) < MAX_TIMELINES):
            chosen_pictures.append(picture_by_key[key])
    return chosen_pictures


def _has_several_gates(records: Sequence[AssertionRecord]) -> bool:
    """Whether several gate files or configurations judge; claims are judged with the settings of one."""
    return len({record.address for record in records if not record.assertion.is_claim}) > 1


def _count_drawn_items(picture: Picture) -> int:
    """Return how many kernels, transfers and gaps a picture draws."""
    sides = [timeline for timeline in (picture.base, picture.head) if timeline is not None]
    return sum(len(side.gaps) + sum(len(lane.bars) for lane in side.lanes) for side in sides)


def _collect_marks(
    records: Sequence[AssertionRecord], pictures: PicturesByAssertion, drawn_pictures: Sequence[Picture]
) -> dict[str, list[BlamedKernels]]:
    """Return the kernels to mark in each picture: the causes of failures in it."""
    causes_by_key: dict[str, list[RowExplanation]] = {}
    for record in records:
        for picture in pictures[record.identity].windows if record.identity in pictures else ():
            causes_by_key.setdefault(picture.key, []).extend(record.verdict.causes if record.needs_attention else ())
    return {picture.key: list_marks(causes_by_key.get(picture.key, ()), picture.rank) for picture in drawn_pictures}


def _name_runs(records: Sequence[AssertionRecord], pictures: PicturesByAssertion) -> dict[str, str]:
    """Return the gate file or configuration of each picture, by the picture's key; empty if there is only one."""
    has_several_addresses = _has_several_gates(records)
    drawn_records = [record for record in records if has_several_addresses and record.identity in pictures]
    return {
        picture.key: record.configuration or record.file
        for record in drawn_records
        for picture in pictures[record.identity].windows
    }


def _build_file_view(
    records: Sequence[AssertionRecord], pictures: PicturesByAssertion, views: Mapping[str, TemplateData]
) -> dict[str, Any]:
    """Return the template's data for one gate file, with the assertions that hold."""
    passing_records = [record for record in sort_worst_first(records) if not record.needs_attention]
    return {
        "name": records[0].address,
        "run": find_run_record(records).run,
        "against": ", ".join(list_baselines(records)),
        "headline": format_counts(records),
        "assertions": [
            build_assertion_view(record, pictures.get(record.identity), views, set()) for record in passing_records
        ],
        "windows": list_window_sets(records),
        "notes": [*dict.fromkeys(note for record in passing_records for note in list_notes(record))],
    }


def _list_run_facts(session: Session) -> Iterator[str]:
    """Yield facts about the run: the commit that is checked out, and when it was traced; unknown facts are left out."""
    revision = read_revision(session.checkout) if session.checkout is not None and session.records else None
    if revision is not None and revision.commit is not None:
        changes_text = ", with local changes" if revision.dirty else ""
        branch = f" on {sanitize_line(revision.branch, 100)}" if revision.branch else ""
        yield f"commit {revision.commit[:10]}{branch}{changes_text}"
    dates = sorted({record.start_time for record in session.records if record.start_time})
    if dates:
        yield f"traced {dates[0]} UTC"
