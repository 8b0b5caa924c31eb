"""How does the story of a session leave as JSON? As facts, with each sentence beside what it is made of."""

from __future__ import annotations

from typing import Any

from pytest_nsys.analysis.explain.parts import Change
from pytest_nsys.core.file_names import Address
from pytest_nsys.core.words import printable
from pytest_nsys.reports.session.headline import length_words
from pytest_nsys.reports.session.roots import called_in, root_sentence
from pytest_nsys.reports.session.story import Red, Story, StoryRoot

LONGEST_NAME = 2000

Json = dict[str, Any]
"""An object, as ``report.schema.json`` describes it."""


def story_json(story: Story) -> Json:
    """Return the story of a session as ``report.schema.json`` describes it."""
    display_names = called_in(story)
    return {
        "steps": [
            {
                **_place(step.address),
                "text": length_words(step),
                "noun": step.noun,
                "before_ns": step.before_ns,
                "now_ns": step.now_ns,
                "unchanged": step.unchanged,
            }
            for _, step in sorted(story.steps.items())
        ],
        "roots": [_root(root, root_sentence(root, story, display_names)) for root in story.roots],
        "unexplained": [_red(red) for red in story.unexplained],
        "not_judged": [
            {
                "file": unjudged.records[0].file,
                "outcome": unjudged.outcome,
                "message": unjudged.message,
                "assertions": [record.title for record in unjudged.records],
            }
            for unjudged in story.not_judged
        ],
        "warning": story.warning,
    }


def change_json(change: Change) -> Json:
    """Return a change as JSON; names are cut, and show no control characters."""
    root = change.root
    return {
        "kind": root.kind,
        "of": root.of,
        "name": printable(root.name, LONGEST_NAME),
        "stage": printable(root.stage, LONGEST_NAME),
        "instead_of": printable(root.instead_of, LONGEST_NAME),
        "rank": change.rank,
        "before_ns": change.before_ns,
        "now_ns": change.now_ns,
        "was": change.was,
        "is_now": change.is_now,
        "clock_mhz": change.clock_mhz,
    }


def _root(root: StoryRoot, text: str) -> Json:
    changes = sorted(root.changes.items())
    return {
        "text": text,
        "stages": [printable(stage, LONGEST_NAME) for stage in root.stages],
        "changes": [{**change_json(change), **_place(address)} for (address, _), change in changes],
        "waiting": [*root.waiting],
        "waits_in": printable(root.waits_in, LONGEST_NAME),
        "reds": [_red(red) for red in root.reds],
    }


def _place(address: str) -> Json:
    parsed = Address.of(address)
    return {"file": printable(parsed.file, LONGEST_NAME), "configuration": parsed.configuration}


def _red(red: Red) -> Json:
    record = red.record
    return {
        "file": record.file,
        "configuration": record.configuration,
        "line": record.line,
        "name": record.name,
        "failed_rows": len(red.rows),
    }
