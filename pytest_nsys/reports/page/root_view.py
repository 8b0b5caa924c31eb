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
"""Ranks and configurations of which a section says how much each changed; the JSON report has all."""

NOT_JUDGED = (Outcome.NO_DATA, Outcome.INCOMPARABLE, Outcome.ERROR)
NO_ROOT = "Cause not known"
ELSE = "What else to look at"


class Section(NamedTuple):
    """Records of one root, in the order in which they are told; ``root`` is None of what has none.

    ``said`` is what happened to all of them.
    """

    title: str
    records: Sequence[Record]
    root: StoryRoot | None = None
    said: str = ""


def sections_of(session: Session) -> list[Section]:
    """What deserves a look, each assertion once: below the largest root that it has a row of."""
    story = session.story
    told: set[tuple[str, int, str]] = set()
    found = []
    for section in _sections(story, session):
        own = [record for record in section.records if record.known_by not in told]
        told.update(record.known_by for record in own)
        if own or section.root is not None:
            found.append(section._replace(records=own))
    return found


def _sections(story: Story, session: Session) -> Iterator[Section]:
    called = called_in(story)
    for root in story.roots:
        if root.reds:
            words = as_sentence(root_sentence(root, story, called), called.values())
            yield Section(words, [red.record for red in root.reds], root)
    yield Section(NO_ROOT, [red.record for red in story.unexplained])
    for each in story.not_judged:
        title = as_sentence(f"{each.outcome}: {counted(len(each.records), 'assertion')}")
        yield Section(title, each.records, said=as_sentence(each.message))
    yield Section(ELSE, [record for record in led_by(session.records) if record.is_open])


def section_views(
    sections: Sequence[Section], pictures: AssertionPictures, views: Mapping[str, Drawn]
) -> Iterator[Drawn]:
    """What the template draws of each. A picture stands in the first section that it belongs to, and is ``above`` the
    others; the first title ``is_told`` by the page's first line.
    """
    drawn: set[str] = set()
    causes = sum(section.root is not None for section in sections)
    for ordinal, section in enumerate(sections, 1):
        keys = [key for key in windows_of(section, pictures) if key in views]
        key = next((key for key in keys if key not in drawn), None)
        above = next((views[one] for one in keys), None) if key is None else None
        key = None if section.title == ELSE and drawn else key  # what failed is drawn
        drawn |= {key} if key is not None else set()
        waits = section.root.waiting if section.root is not None else ()
        peer = next((one for one in keys if one not in drawn and views[one]["rank"] in waits), None)
        drawn |= {peer} if peer is not None else set()
        told: set[str] = set()
        steps = section.records[0].next_steps if section.records else ()
        by_assertion = grouped(((record.file, record.line, record.name), record) for record in section.records)
        yield {
            "id": f"root-{ordinal}",
            "nth": section.title if section.root is None else _nth(ordinal, causes),
            "title": section.title,
            "is_told": len(sections) == 1 or (ordinal == 1 and section.root is not None),
            "said": section.said,
            "timeline": views[key] if key is not None else None,
            "waiting": views[peer] if peer is not None else None,
            "above": above,
            "assertions": [_without(_assertion(own, pictures, views, told), steps) for own in by_assertion.values()],
            "changes": _changes(section.root) if section.root is not None else None,
            "next": steps,
        }


def _nth(ordinal: int, causes: int) -> str:
    return f"cause {ordinal} of {causes}" if causes > 1 else "the cause"


def _without(view: Drawn, steps: Sequence[Step]) -> Drawn:
    """An assertion without the steps that end its section: what accepts a run accepts all of it."""
    return {**view, "next": [step for step in view["next"] if step not in steps]}


def windows_of(section: Section, pictures: AssertionPictures) -> list[str]:
    """The keys of its windows: where most of the root happened (of ranks alike that of the worst row), then by
    turn those of each assertion, worst first; none where nothing was judged, which a picture does not explain.
    """
    if section.records and all(record.outcome in NOT_JUDGED for record in section.records):
        return []
    known = [(record, pictures[record.known_by].windows) for record in section.records if record.known_by in pictures]
    changes = section.root.changes if section.root is not None else {}
    most = max((abs(change.change_ns) for change in changes.values()), default=0)
    largest = {at for at, change in changes.items() if most - abs(change.change_ns) <= most * ALIKE}
    first = (one.key for record, own in known for one in own if (record.address, one.rank) in largest)
    return [*dict.fromkeys(chain(first, (one.key for one in by_turn([own for _, own in known]))))]


def _assertion(
    records: Sequence[Record],
    pictures: AssertionPictures,
    views: Mapping[str, Drawn],
    told: set[str],
) -> Drawn:
    """One assertion of the worst configuration, and a table of all where it is judged in several."""
    first, *others = records
    view = assertion_view(first, pictures.get(first.known_by), views, told)
    return {**view, "others": len(others), "configurations": _configurations(records) if others else None}


def _configurations(records: Sequence[Record]) -> Table:
    columns = (*texts("outcome", "configuration"), *numbers("value"), *texts("limit", "worst row"), *numbers("rows"))
    lines = [
        (r.state, r.configuration or r.file, w["value"], w["limit"], w["row"], counted(r.rows, "row"))
        for r, w in ((record, record.worst) for record in records)
    ]
    return table_of("Configurations", columns, lines)


def _changes(root: StoryRoot) -> Table | None:
    """How much the root changed, by configuration and rank; None where one line says it all."""
    if len(root.changes) < 2:
        return None
    several = len(root.addresses) > 1
    changes = sorted(root.changes.items(), key=lambda each: (-abs(each[1].change_ns), each[0]))
    scale = scale_of([ns for _, one in changes for ns in (one.before_ns, one.now_ns)], TIME)
    lines = [
        (
            *((address,) if several else ()),
            str(rank),
            *(format_value(ns, scale=scale) for ns in (one.before_ns, one.now_ns)),
            format_signed(one.change_ns, scale=scale),
        )
        for (address, rank), one in changes[:MOST_CHANGES]
    ]
    columns = (*(texts("where") if several else ()), number("rank"), *numbers("before", "now", "change"))
    more = f" (the largest {MOST_CHANGES} of {len(changes)})" if len(changes) > MOST_CHANGES else ""
    return table_of(f"By rank{more}", columns, lines)
