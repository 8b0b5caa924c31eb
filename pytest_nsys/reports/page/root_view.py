"""How is the story of a session laid out? A section for each root: the picture of where it happened, the assertions
that failed because of it, and what to type. Then sections for failures without a root, for what was not judged, and for
what else deserves a look.

An assertion of several configurations is shown once, in its worst configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from pytest_nsys.core.memoize import group_by_key
from pytest_nsys.core.model import NextStep
from pytest_nsys.core.numbers import choose_scale, format_signed, format_value
from pytest_nsys.core.text_format import format_count
from pytest_nsys.core.units import TIME
from pytest_nsys.gates.model import Outcome
from pytest_nsys.reports.drawings.pictures import PicturesByAssertion, RankPicture, interleave_lists
from pytest_nsys.reports.page.assertion_view import build_assertion_view
from pytest_nsys.reports.page.rank_view import build_rank_view
from pytest_nsys.reports.page.templating import TemplateData
from pytest_nsys.reports.page.waterfall import build_kernel_table, draw_waterfall
from pytest_nsys.reports.session.headline import as_sentence
from pytest_nsys.reports.session.record import AssertionRecord
from pytest_nsys.reports.session.root_sentence import choose_story_names, format_root_sentence
from pytest_nsys.reports.session.session import Session
from pytest_nsys.reports.session.story import Story, StoryRoot, sort_by_severity
from pytest_nsys.reports.tables.formats import (
    Table,
    build_text_table,
    make_number_column,
    make_number_columns,
    make_text_columns,
)
from pytest_nsys.reports.words.change_text import ALIKE_CHANGE_SHARE

MAX_CHANGES = 64
"""A section lists the changes of at most this many ranks and configurations; the JSON report has all."""

UNDRAWN_OUTCOMES = (Outcome.NO_DATA, Outcome.INCOMPARABLE, Outcome.ERROR)
NO_ROOT_TITLE = "Cause not known"
OTHER_TITLE = "What else to look at"


class Section(NamedTuple):
    """Holds the records of one root, or of no root, in the order shown."""

    title: str
    records: Sequence[AssertionRecord]
    root: StoryRoot | None = None
    description: str = ""  # the message that all of its records share


def list_sections(session: Session) -> list[Section]:
    """Return the sections for all that deserves a look. Each assertion is in one: that of the largest root of any of
    its rows.
    """
    story = session.story
    told_identities: set[tuple[str, int, str]] = set()
    filled_sections = []
    for section in _list_all_sections(story, session):
        untold_records = [record for record in section.records if record.identity not in told_identities]
        told_identities.update(record.identity for record in untold_records)
        if untold_records or section.root is not None:
            filled_sections.append(section._replace(records=untold_records))
    return filled_sections


def _list_all_sections(story: Story, session: Session) -> Iterator[Section]:
    """Yield the sections with all of their assertions; an assertion may be in several."""
    display_names = choose_story_names(story)
    for root in story.roots:
        if root.reds:
            sentence = as_sentence(format_root_sentence(root, story, display_names), display_names.values())
            yield Section(sentence, [red.record for red in root.reds], root)
    yield Section(NO_ROOT_TITLE, [red.record for red in story.unexplained_reds])
    for unjudged_group in story.not_judged:
        title = as_sentence(f"{unjudged_group.outcome}: {format_count(len(unjudged_group.records), 'assertion')}")
        yield Section(title, unjudged_group.records, description=as_sentence(unjudged_group.message))
    yield Section(OTHER_TITLE, [record for record in sort_by_severity(session.records) if record.needs_attention])


def build_section_views(
    sections: Sequence[Section], pictures: PicturesByAssertion, views: Mapping[str, TemplateData]
) -> Iterator[TemplateData]:
    """Yield the template's data for each section.

    A picture stands in the first section that it belongs to; later sections refer to it as ``above``. ``is_told`` marks
    the first title, which the page's headline already says.
    """
    drawn_keys: set[str] = set()
    rank_pictures = {
        drawn.ranks.key: drawn.ranks for drawn in pictures.values() if drawn.ranks is not None and drawn.ranks.head
    }
    drawn_ranks: list[RankPicture] = []
    cause_count = sum(section.root is not None for section in sections)
    for ordinal, section in enumerate(sections, 1):
        keys = [key for key in list_window_keys(section, pictures) if key in views]
        key = next((key for key in keys if key not in drawn_keys), None)
        view_above = next((views[window_key] for window_key in keys), None) if key is None else None
        key = None if section.title == OTHER_TITLE and drawn_keys else key  # the rest needs no picture
        drawn_keys |= {key} if key is not None else set()
        waiting_ranks = section.root.waiting_ranks if section.root is not None else ()
        waiting_key = next(
            (
                window_key
                for window_key in keys
                if window_key not in drawn_keys and views[window_key]["rank"] in waiting_ranks
            ),
            None,
        )
        drawn_keys |= {waiting_key} if waiting_key is not None else set()
        told_causes: set[str] = set()
        red_records = section.records if section.title != OTHER_TITLE else ()
        # The steps of the worst assertion end the section: those of the others mostly repeat them.
        steps = section.records[0].next_steps if section.records else ()
        by_assertion = group_by_key(((record.file, record.line, record.name), record) for record in section.records)
        yield {
            "id": f"root-{ordinal}",
            "nth": section.title if section.root is None else _format_position(ordinal, cause_count),
            "title": section.title,
            "is_told": len(sections) == 1 or (ordinal == 1 and section.root is not None),
            "said": section.description,
            "waterfall": next(filter(None, (draw_waterfall(record.verdict) for record in red_records)), None),
            "kernels": next(filter(None, (build_kernel_table(record.verdict) for record in red_records)), None),
            "ranks": _build_ranks(section, pictures, rank_pictures, drawn_ranks) if red_records else None,
            "timeline": views[key] if key is not None else None,
            "waiting": views[waiting_key] if waiting_key is not None else None,
            "above": view_above,
            "assertions": [
                _drop_steps(_build_section_assertion(records, pictures, views, told_causes), steps)
                for records in by_assertion.values()
            ],
            "changes": _build_change_table(section.root) if section.root is not None else None,
            "next": steps,
        }


def _build_ranks(
    section: Section,
    pictures: PicturesByAssertion,
    rank_pictures: Mapping[str, RankPicture],
    drawn_ranks: list[RankPicture],
) -> TemplateData | None:
    """Return the drawing of all ranks of the section's worst assertion, and add it to those that are drawn.

    None if there is none, or if it is drawn further up.
    """
    for record in section.records:
        drawn = pictures.get(record.identity)
        picture = rank_pictures.get(drawn.ranks.key) if drawn is not None and drawn.ranks is not None else None
        # Two workers of xdist name the same windows by other keys.
        if picture is not None and all(picture.head != above.head for above in drawn_ranks):
            drawn_ranks.append(picture)
            root = section.root
            changes = root.changes if root is not None else {}
            return build_rank_view(
                picture,
                f"ranks-{len(drawn_ranks)}",
                cause_ranks={rank for address, rank in changes if address == record.address},
                waiting_ranks=root.waiting_ranks if root is not None else (),
                red_ranks={
                    rank
                    for row in record.verdict.rows
                    if row.outcome is Outcome.FAILED and isinstance(rank := row.labels.get("rank"), int)
                },
            )
    return None


def _format_position(ordinal: int, cause_count: int) -> str:
    return f"cause {ordinal} of {cause_count}" if cause_count > 1 else "the cause"


def _drop_steps(view: TemplateData, steps: Sequence[NextStep]) -> TemplateData:
    """Return an assertion without the next steps that end its section: accepting a run accepts all of it."""
    return {**view, "next": [step for step in view["next"] if step not in steps]}


def list_window_keys(section: Section, pictures: PicturesByAssertion) -> list[str]:
    """Return the keys of a section's windows; none if nothing was judged, because a picture would not explain that.

    First come the windows where the root changed most (among similar ranks, the rank of the worst row), then those of
    the assertions in turn, worst first.
    """
    if section.records and all(record.outcome in UNDRAWN_OUTCOMES for record in section.records):
        return []
    drawn_records = [
        (record, pictures[record.identity].windows) for record in section.records if record.identity in pictures
    ]
    changes = section.root.changes if section.root is not None else {}
    largest_ns = max((abs(change.change_ns) for change in changes.values()), default=0)
    largest_places = {
        address_and_rank
        for address_and_rank, change in changes.items()
        if largest_ns - abs(change.change_ns) <= largest_ns * ALIKE_CHANGE_SHARE
    }
    first_keys = (
        picture.key
        for record, windows in drawn_records
        for picture in windows
        if (record.address, picture.rank) in largest_places
    )
    return [
        *dict.fromkeys(
            chain(first_keys, (picture.key for picture in interleave_lists([windows for _, windows in drawn_records])))
        )
    ]


def _build_section_assertion(
    records: Sequence[AssertionRecord],
    pictures: PicturesByAssertion,
    views: Mapping[str, TemplateData],
    told_causes: set[str],
) -> TemplateData:
    """Return one assertion in its worst configuration, with a table of all configurations if there are several."""
    first, *other_records = records
    view = build_assertion_view(first, pictures.get(first.identity), views, told_causes)
    return {
        **view,
        "others": len(other_records),
        "configurations": _build_configuration_table(records) if other_records else None,
    }


def _build_configuration_table(records: Sequence[AssertionRecord]) -> Table:
    columns = (
        *make_text_columns("outcome", "configuration"),
        *make_number_columns("value"),
        *make_text_columns("limit", "worst row"),
        *make_number_columns("rows"),
    )
    lines = [
        (
            shown_record.state,
            shown_record.configuration or shown_record.file,
            worst["value"],
            worst["limit"],
            worst["row"],
            format_count(shown_record.rows, "row"),
        )
        for shown_record, worst in ((record, record.worst) for record in records)
    ]
    return build_text_table("Configurations", columns, lines)


def _build_change_table(root: StoryRoot) -> Table | None:
    """Return how much a root changed, by configuration and rank; None if one line would say it all."""
    if len(root.changes) < 2:
        return None
    has_several_addresses = len(root.gate_addresses) > 1
    changes = sorted(root.changes.items(), key=lambda item: (-abs(item[1].change_ns), item[0]))
    scale = choose_scale([ns for _, change in changes for ns in (change.baseline_ns, change.current_ns)], TIME)
    lines = [
        (
            *((address,) if has_several_addresses else ()),
            str(rank),
            *(format_value(ns, scale=scale) for ns in (change.baseline_ns, change.current_ns)),
            format_signed(change.change_ns, scale=scale),
        )
        for (address, rank), change in changes[:MAX_CHANGES]
    ]
    columns = (
        *(make_text_columns("where") if has_several_addresses else ()),
        make_number_column("rank"),
        *make_number_columns("before", "now", "change"),
    )
    omitted_text = f" (the largest {MAX_CHANGES} of {len(changes)})" if len(changes) > MAX_CHANGES else ""
    return build_text_table(f"By rank{omitted_text}", columns, lines)
