"""How is the story of a session laid out? A section for each root: the picture of where it happened, the assertions
that it made red, and what to type; then what has no root, what was not judged, and what else deserves a look.

An assertion that several configurations share is one, told of the worst of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from pytest_nsys.core.kept import grouped
from pytest_nsys.core.model import Step
from pytest_nsys.core.numbers import format_signed, format_value, scale_of
from pytest_nsys.core.units import TIME
from pytest_nsys.core.words import counted
from pytest_nsys.gates.model import Outcome
from pytest_nsys.reports.drawings.pictures import AssertionPictures, by_turn
from pytest_nsys.reports.page.assertion_view import assertion_view
from pytest_nsys.reports.page.page import Drawn
from pytest_nsys.reports.session.headline import as_sentence
from pytest_nsys.reports.session.record import Record
from pytest_nsys.reports.session.roots import called_in, root_sentence
from pytest_nsys.reports.session.session import Session
from pytest_nsys.reports.session.story import Story, StoryRoot, led_by
from pytest_nsys.reports.tables.formats import Table, number, numbers, table_of, texts
from pytest_nsys.reports.words.roots import ALIKE

MOST_CHANGES = 64
"""So many ranks and configurations a section lists with their changes; the JSON report has all."""

NOT_JUDGED = (Outcome.NO_DATA, Outcome.INCOMPARABLE, Outcome.ERROR)
NO_ROOT = "Cause not known"
ELSE = "What else to look at"


class Section(NamedTuple):
    """Holds the records of one root, in the order in which they are told, or those of none."""

    title: str
    records: Sequence[Record]
    root: StoryRoot | None = None
    said: str = ""  # what happened to all of its records


def sections_of(session: Session) -> list[Section]:
    """Return the sections of what deserves a look, each assertion once: below the largest root that it has a row of."""
    story = session.story
    told_identities: set[tuple[str, int, str]] = set()
    filled_sections = []
    for section in _sections(story, session):
        untold_records = [record for record in section.records if record.known_by not in told_identities]
        told_identities.update(record.known_by for record in untold_records)
        if untold_records or section.root is not None:
            filled_sections.append(section._replace(records=untold_records))
    return filled_sections


def _sections(story: Story, session: Session) -> Iterator[Section]:
    """Yield the sections with all of their assertions, of which one may be in several."""
    display_names = called_in(story)
    for root in story.roots:
        if root.reds:
            sentence = as_sentence(root_sentence(root, story, display_names), display_names.values())
            yield Section(sentence, [red.record for red in root.reds], root)
    yield Section(NO_ROOT, [red.record for red in story.unexplained])
    for unjudged in story.not_judged:
        title = as_sentence(f"{unjudged.outcome}: {counted(len(unjudged.records), 'assertion')}")
        yield Section(title, unjudged.records, said=as_sentence(unjudged.message))
    yield Section(ELSE, [record for record in led_by(session.records) if record.is_open])


def section_views(
    sections: Sequence[Section], pictures: AssertionPictures, views: Mapping[str, Drawn]
) -> Iterator[Drawn]:
    """Yield what the template draws of each section.

    A picture stands in the first section that it belongs to, and is ``above`` the others. The first title ``is_told``
    by the page's first line.
    """
    drawn_keys: set[str] = set()
    cause_count = sum(section.root is not None for section in sections)
    for ordinal, section in enumerate(sections, 1):
        keys = [key for key in windows_of(section, pictures) if key in views]
        key = next((key for key in keys if key not in drawn_keys), None)
        view_above = next((views[window_key] for window_key in keys), None) if key is None else None
        key = None if section.title == ELSE and drawn_keys else key  # what failed is drawn
        drawn_keys |= {key} if key is not None else set()
        waiting_ranks = section.root.waiting if section.root is not None else ()
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
        steps = section.records[0].next_steps if section.records else ()
        by_assertion = grouped(((record.file, record.line, record.name), record) for record in section.records)
        yield {
            "id": f"root-{ordinal}",
            "nth": section.title if section.root is None else _nth(ordinal, cause_count),
            "title": section.title,
            "is_told": len(sections) == 1 or (ordinal == 1 and section.root is not None),
            "said": section.said,
            "timeline": views[key] if key is not None else None,
            "waiting": views[waiting_key] if waiting_key is not None else None,
            "above": view_above,
            "assertions": [
                _without(_assertion(records, pictures, views, told_causes), steps) for records in by_assertion.values()
            ],
            "changes": _changes(section.root) if section.root is not None else None,
            "next": steps,
        }


def _nth(ordinal: int, causes: int) -> str:
    return f"cause {ordinal} of {causes}" if causes > 1 else "the cause"


def _without(view: Drawn, steps: Sequence[Step]) -> Drawn:
    """Return an assertion without the steps that end its section: what accepts a run accepts all of it."""
    return {**view, "next": [step for step in view["next"] if step not in steps]}


def windows_of(section: Section, pictures: AssertionPictures) -> list[str]:
    """Return the keys of a section's windows; none where nothing was judged, which a picture does not explain.

    The first are where most of the root happened, of ranks alike that of the worst row; then come those of each
    assertion by turn, worst first.
    """
    if section.records and all(record.outcome in NOT_JUDGED for record in section.records):
        return []
    drawn_records = [
        (record, pictures[record.known_by].windows) for record in section.records if record.known_by in pictures
    ]
    changes = section.root.changes if section.root is not None else {}
    largest_ns = max((abs(change.change_ns) for change in changes.values()), default=0)
    largest_places = {
        address_and_rank
        for address_and_rank, change in changes.items()
        if largest_ns - abs(change.change_ns) <= largest_ns * ALIKE
    }
    first_keys = (
        picture.key
        for record, windows in drawn_records
        for picture in windows
        if (record.address, picture.rank) in largest_places
    )
    return [
        *dict.fromkeys(
            chain(first_keys, (picture.key for picture in by_turn([windows for _, windows in drawn_records])))
        )
    ]


def _assertion(
    records: Sequence[Record],
    pictures: AssertionPictures,
    views: Mapping[str, Drawn],
    told: set[str],
) -> Drawn:
    """Return one assertion of its worst configuration, with a table of all where it is judged in several."""
    first, *other_records = records
    view = assertion_view(first, pictures.get(first.known_by), views, told)
    return {**view, "others": len(other_records), "configurations": _configurations(records) if other_records else None}


def _configurations(records: Sequence[Record]) -> Table:
    columns = (*texts("outcome", "configuration"), *numbers("value"), *texts("limit", "worst row"), *numbers("rows"))
    lines = [
        (
            shown_record.state,
            shown_record.configuration or shown_record.file,
            worst["value"],
            worst["limit"],
            worst["row"],
            counted(shown_record.rows, "row"),
        )
        for shown_record, worst in ((record, record.worst) for record in records)
    ]
    return table_of("Configurations", columns, lines)


def _changes(root: StoryRoot) -> Table | None:
    """Return how much a root changed, by configuration and rank; None where one line says it all."""
    if len(root.changes) < 2:
        return None
    has_several_addresses = len(root.addresses) > 1
    changes = sorted(root.changes.items(), key=lambda item: (-abs(item[1].change_ns), item[0]))
    scale = scale_of([ns for _, change in changes for ns in (change.before_ns, change.now_ns)], TIME)
    lines = [
        (
            *((address,) if has_several_addresses else ()),
            str(rank),
            *(format_value(ns, scale=scale) for ns in (change.before_ns, change.now_ns)),
            format_signed(change.change_ns, scale=scale),
        )
        for (address, rank), change in changes[:MOST_CHANGES]
    ]
    columns = (*(texts("where") if has_several_addresses else ()), number("rank"), *numbers("before", "now", "change"))
    omitted_text = f" (the largest {MOST_CHANGES} of {len(changes)})" if len(changes) > MOST_CHANGES else ""
    return table_of(f"By rank{omitted_text}", columns, lines)
