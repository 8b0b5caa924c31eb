"""How is the story of a session written as JSON? As facts; each sentence stands next to the facts that it states."""

from __future__ import annotations

from typing import Any

from pytest_nsys.analysis.explain.breakdown_model import Change
from pytest_nsys.core.file_names import GateAddress
from pytest_nsys.core.scopes import KernelPlace
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.reports.session.headline import describe_step_length
from pytest_nsys.reports.session.root_sentence import choose_story_names, format_root_sentence
from pytest_nsys.reports.session.story import RedAssertion, Story, StoryRoot

LONGEST_NAME = 2000

Json = dict[str, Any]
"""An object, as ``report.schema.json`` describes it."""


def build_story_json(story: Story) -> Json:
    """Return the story of a session as ``report.schema.json`` describes it."""
    display_names = choose_story_names(story)
    return {
        "steps": [
            {
                **_build_address_json(step.address),
                "text": describe_step_length(step),
                "noun": step.noun,
                "before_ns": step.before_ns,
                "now_ns": step.now_ns,
                "unchanged": step.is_unchanged,
            }
            for _, step in sorted(story.steps.items())
        ],
        "roots": [_build_root_json(root, format_root_sentence(root, story, display_names)) for root in story.roots],
        "unexplained": [_build_red_json(red) for red in story.unexplained_reds],
        "not_judged": [
            {
                "file": unjudged_group.records[0].file,
                "outcome": unjudged_group.outcome,
                "message": unjudged_group.message,
                "assertions": [record.title for record in unjudged_group.records],
            }
            for unjudged_group in story.not_judged
        ],
        "warning": story.is_warning,
    }


def build_change_json(change: Change) -> Json:
    """Return a change as JSON; names are shortened and have no control characters."""
    root = change.root
    return {
        "kind": root.kind,
        "of": root.activity,
        "name": sanitize_line(root.name, LONGEST_NAME),
        "stage": sanitize_line(root.stage, LONGEST_NAME),
        "instead_of": sanitize_line(root.instead_of, LONGEST_NAME),
        "rank": change.rank,
        "before_ns": change.baseline_ns,
        "now_ns": change.current_ns,
        "was": change.baseline_count,
        "is_now": change.current_count,
        "clock_mhz": change.clock_mhz,
    }


def _build_root_json(root: StoryRoot, text: str) -> Json:
    changes = sorted(root.changes.items())
    return {
        "text": text,
        "stages": [sanitize_line(stage, LONGEST_NAME) for stage in root.stages],
        "changes": [{**build_change_json(change), **_build_address_json(address)} for (address, _), change in changes],
        "waiting": [*root.waiting_ranks],
        "waits_in": sanitize_line(root.waiting_kernel, LONGEST_NAME),
        "scope": None if root.place is None else _build_place_json(root.place),
        "reds": [_build_red_json(red) for red in root.reds],
    }


def _build_place_json(place: KernelPlace) -> Json:
    return {
        "kind": place.kind,
        "path": sanitize_line(place.pattern, LONGEST_NAME),
        "direction": place.direction,
        "source": None if place.source_line is None else sanitize_line(place.source_line, LONGEST_NAME),
    }


def _build_address_json(address: str) -> Json:
    parsed_address = GateAddress.parse_file_and_configuration(address)
    return {"file": sanitize_line(parsed_address.file, LONGEST_NAME), "configuration": parsed_address.configuration}


def _build_red_json(red: RedAssertion) -> Json:
    record = red.record
    return {
        "file": record.file,
        "configuration": record.configuration,
        "line": record.line,
        "name": record.name,
        "failed_rows": len(red.rows),
    }
