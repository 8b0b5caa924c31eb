"""What does a program, or an agent with little room, need of an answer? One JSON object of at most 8 kB.

A trace, a comparison and a session of pytest have the same keys, which ``brief.schema.json`` describes. Times are whole
nanoseconds; sentences are those of the other outputs. What does not fit is left out from the end of the longest list,
and counted.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pytest_nsys.core.text_format import format_rank_ranges, sanitize_line
from pytest_nsys.core.version import VERSION
from pytest_nsys.reports.tables.formats import sanitize_json

BRIEF_FORMAT = 1
"""The version of the keys: a new key leaves it, another meaning raises it."""

BRIEF_SCHEMA_ID = "https://pytest-nsys.github.io/pytest-nsys/schemas/brief-1.json"

MAX_BRIEF_BYTES = 8_000
MAX_ROOTS = 5
MAX_TEXT_LENGTH = 300
"""The most characters of a text; kernel names and paths may be longer in the trace."""


class BriefSubject(StrEnum):
    """Names what a brief is about."""

    TRACE = "trace"
    COMPARISON = "comparison"
    SESSION = "session"


class BriefStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds the length of a step on the slowest rank, before and now."""

    gate: Annotated[str, Meta(description="The gate file with its configuration; empty for a trace.")]
    noun: Annotated[str, Meta(description="What was measured: step, decode step, p90 step or window.")]
    before_ns: Annotated[
        int | None, Meta(description="In the base or baseline; null for a trace, which is compared with nothing.")
    ]
    now_ns: int


class BriefRanks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Says how many ranks there are, and which to look at."""

    count: Annotated[int | None, Meta(description="How many ranks the run has; null if unknown.")]
    slowest: Annotated[int | None, Meta(description="The rank with the longest step now; null if unknown.")]
    red: Annotated[str, Meta(description="The ranks of failed rows, such as 0-3, 7; empty for a trace.")]


class BriefRoot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Describes a root cause of a change, or a finding in a trace."""

    text: Annotated[str, Meta(description="What happened and where, as one sentence.")]
    kind: Annotated[str, Meta(description="How it changed, such as longer, new or gone; or the kind of the finding.")]
    name: Annotated[str, Meta(description="The kernel, copy or call; empty if there is no single one.")]
    ranks: Annotated[str, Meta(description="The ranks on which it changed, such as 0-3, 7.")]
    waiting: Annotated[str, Meta(description="The ranks that wait for one of them.")]
    stages: list[str]
    scope: Annotated[
        str, Meta(description="The part of the program that launches it, or what a late host is in; empty if unknown.")
    ]
    amount_ns: Annotated[
        int | None,
        Meta(
            description="How much longer on the rank where most changed, negative: shorter. Of a finding the most "
            "that fixing it could win; null if it only casts doubt."
        ),
    ]


class BriefRed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names a failed assertion, its limit, and its worst row."""

    id: Annotated[str, Meta(description="The pytest item, FILE::NAME.")]
    limit: str
    worst: Annotated[str, Meta(description="Value and place of the worst row; the reason if there is no row.")]


class BriefCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds a command to type next, and what it is for."""

    command: str
    purpose: str


class BriefOmissions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counts what did not fit, by list."""

    roots: int = 0
    reds: int = 0
    doubtful: int = 0


class Brief(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds an answer in brief."""

    subject: BriefSubject
    verdict: Annotated[str, Meta(description="The outcome in a word or two; measured for a trace.")]
    headline: Annotated[str, Meta(description="What happened, in one sentence.")]
    steps: list[BriefStep]
    ranks: BriefRanks
    roots: Annotated[list[BriefRoot], Meta(description="Root causes or findings, the largest first.")]
    reds: Annotated[list[BriefRed], Meta(description="Failed assertions, the worst first.")]
    doubtful: Annotated[list[str], Meta(description="What makes the figures doubtful.")]
    next: Annotated[list[BriefCommand], Meta(description="Complete commands, the most useful first.")]
    left_out: Annotated[BriefOmissions, Meta(description="How many did not fit, by list.")] = BriefOmissions()
    format: int = BRIEF_FORMAT
    pytest_nsys: str = VERSION


def format_brief_text(text: str) -> str:
    """Return a text on one line, without control characters, cut to what a brief has room for."""
    return sanitize_line(text, MAX_TEXT_LENGTH)


def format_brief_ranks(ranks: Collection[int]) -> str:
    """Return rank numbers in ASCII: ``0-3, 7``; empty for none."""
    return sanitize_line(format_rank_ranges(sorted(ranks)).replace("–", "-"), MAX_TEXT_LENGTH) if ranks else ""


def render_brief(brief: Brief) -> str:
    """Return a brief as JSON in ASCII with a line for each key, at most 8 kB.

    The last roots, reds and doubts are left out until it fits; one of each stays.
    """
    lists: dict[str, list[Any]] = {
        "roots": brief.roots[:MAX_ROOTS],
        "reds": [*brief.reds],
        "doubtful": [*brief.doubtful],
    }
    while True:
        left_out = BriefOmissions(
            **{name: len(getattr(brief, name)) - len(kept_items) for name, kept_items in lists.items()}
        )
        text = _encode(msgspec.structs.replace(brief, **lists, left_out=left_out))
        longest = max(lists.values(), key=len)
        if len(text) <= MAX_BRIEF_BYTES or len(longest) <= 1:
            return text
        longest.pop()


def _encode(brief: Brief) -> str:
    items = msgspec.to_builtins(brief).items()
    lines = (f' "{key}": {json.dumps(value)}' for key, value in items)
    return sanitize_json("{\n" + ",\n".join(lines) + "\n}\n")


def build_brief_schema() -> dict[str, Any]:
    """Return the JSON schema of a brief, made from its types."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": BRIEF_SCHEMA_ID,
        "title": "Brief of pytest-nsys, format 1",
        **msgspec.json.schema(Brief),
    }
