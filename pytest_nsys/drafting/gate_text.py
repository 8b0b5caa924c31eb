"""Renders a drafted gate file as YAML, with a comment above every line that needs a reason.

Names come from the traced program, which is not trusted: a value is quoted wherever YAML could read it as something
else, and each comment line is printable text. The same draft gives the same bytes.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from pytest_nsys.analysis.steps.convention_fit import ConventionChoice
from pytest_nsys.analysis.windows.window_selection import MEDIAN
from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, Convention, Purpose, format_anchor
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.drafting.sentences import DraftSentence

SCHEMA_NAME = "nsys-gate-file.schema.json"
"""The name of the copy of the schema next to the gate file, by which editors check the file."""

# The repository's line length of 120, less two for ``# ``.
LINE_WIDTH = 118

_PLAIN_SCALAR = re.compile(
    r"[A-Za-z][A-Za-z0-9_./()+-]*(?: (?:[A-Za-z0-9_./()+%-]|[<>=]=(?= ))+(?:, [A-Za-z0-9]+\))?)*"
)
# YAML 1.1 reads these words as null, true or false, not as text.
_YAML_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


@dataclass(frozen=True)
class Draft:
    """Holds the parts of a drafted gate file before they are rendered."""

    head_comments: tuple[str, ...]  # comment lines for its head
    traces: tuple[str, ...]  # go into ``trace:``
    choice: ConventionChoice
    relative_tolerance: Fraction
    absolute_tolerance: str  # in gate-file syntax
    tolerance_reasons: tuple[str, ...]
    sentences: Sequence[DraftSentence] = field(default_factory=tuple)
    allow_missing: str = ""  # the line ``allow_missing:``; empty if not needed
    world: int = 1  # number of ranks
    activity_comments: tuple[str, ...] = ()  # the part of ``head_comments`` about what takes most of the time


def render_gate_file(draft: Draft) -> str:
    """Render a draft as the text of a gate file."""
    return "\n".join(line.rstrip() for line in _render_lines(draft)) + "\n"


def format_scalar(text: str) -> str:
    """Format a value for YAML: plain if YAML can only read it as this text, else in double quotes."""
    if _PLAIN_SCALAR.fullmatch(text) and text.lower() not in _YAML_WORDS:
        return text
    in_quotes = json.dumps(text, ensure_ascii=False)
    codes = ((c, ord(c)) for c in in_quotes)
    return "".join(c if c.isprintable() else f"\\u{n:04x}" if n < 0x10000 else f"\\U{n:08x}" for c, n in codes)


def render_comment(text: str, indent: str = "") -> Iterator[str]:
    """Render a text as wrapped comment lines; lines that begin with blanks stay indented."""
    line_text = sanitize_line(text, 400)
    next_indent = " " * (len(line_text) - len(line_text.lstrip()) + 2) if line_text.startswith(" ") else ""
    for line in textwrap.wrap(
        line_text, LINE_WIDTH - len(indent), subsequent_indent=next_indent, break_long_words=False
    ):
        yield f"{indent}# {line}"


def _render_comments(texts: Sequence[str], indent: str = "") -> Iterator[str]:
    for text in texts:
        yield from render_comment(text, indent)


def _render_lines(draft: Draft) -> Iterator[str]:
    choice = draft.choice
    yield f"# yaml-language-server: $schema=./{SCHEMA_NAME}"
    yield "#"
    yield from _render_comments(draft.head_comments)
    yield "version: 1"
    if draft.traces:
        yield "# Another run: --nsys-trace=PATH."
        values = [format_scalar(trace) for trace in draft.traces]
        yield f"trace: {values[0]}" if len(values) == 1 else "trace:"
        yield from (f"  - {value}" for value in values if len(values) > 1)
    yield f"run: {{world: {draft.world}}}  # ranks: a missing one is an error"
    yield ""
    yield from _render_convention(choice)
    yield from _render_comments(choice.reasons.get("window", ()))
    yield f"window: {format_scalar(choice.spec.window_label.removeprefix(f'{MEDIAN} '))}"
    if choice.allowed_quality:
        yield ""
        yield from render_comment(
            "Without these lines nothing could be judged on this trace: delete each one once you capture more."
        )
        yield from _render_comments(choice.reasons.get("quality", ()))
        yield f"quality: {{{', '.join(f'{check}: {bound.value}' for check, bound in choice.allowed_quality.items())}}}"
    yield ""
    yield from _render_comments(draft.tolerance_reasons)
    yield f"tolerance: {{rel: {int(100 * draft.relative_tolerance)}%, abs: {draft.absolute_tolerance}}}"
    if draft.allow_missing:
        yield ""
        yield from render_comment("In this trace these ranks lack rows that other ranks have. Is that right?")
        yield draft.allow_missing
    yield ""
    yield "assertions:"
    yield from _render_assertions(draft.sentences)


def _render_convention(choice: ConventionChoice) -> Iterator[str]:
    convention, base, generic = choice.convention, choice.base_convention, BUILT_IN_CONVENTIONS["generic"]
    yield from _render_comments(choice.reasons.get("convention", ()))
    other_candidates = [candidate for candidate in choice.candidates if candidate.pattern != convention.anchor]
    if other_candidates:
        yield from render_comment(
            "Other ranges that could anchor:" if choice.has_anchor else "Ranges that were looked at:"
        )
        yield from _render_comments(
            [f"  '{sanitize_line(candidate.pattern, 60)}': {candidate}" for candidate in other_candidates]
        )
    if convention == BUILT_IN_CONVENTIONS.get(convention.name):
        yield f"convention: {convention.name}"
        return
    named_base = generic if convention.libraries else Convention("custom")
    extended_base = base if BUILT_IN_CONVENTIONS.get(base.name) == base else named_base
    yield "convention:"
    if extended_base.name in BUILT_IN_CONVENTIONS:
        yield f"  extends: {extended_base.name}"
    for key, lines in _list_differing_keys(convention, extended_base):
        yield from _render_comments(choice.reasons.get(key, ()), "  ")
        yield from (f"  {line}" for line in lines)


def _list_differing_keys(convention: Convention, base: Convention) -> Iterator[tuple[str, list[str]]]:
    """List the keys whose values a convention does not share with ``base``, each with its lines of YAML."""
    for key in ("anchor", "setup", "stage"):
        value = getattr(convention, key)
        if value is not None and value != getattr(base, key):
            yield key, [f"{key}: {format_scalar(value) if isinstance(value, str) else format_anchor(value)}"]
    if convention.purposes != base.purposes:
        yield "purposes", ["purposes:", *(f"  {_format_purpose(purpose)}" for purpose in convention.purposes)]
    if convention.communication != base.communication:
        yield "communication", [f"communication: [{', '.join(_quote_text(glob) for glob in convention.communication)}]"]
    if convention.copies != base.copies:
        yield "copies", [f"copies: [{', '.join(convention.copies)}]"]
    for key in ("span", "kernels") if convention.kernel_anchor is None else ("kernels",):
        if getattr(convention, key) is not getattr(base, key) or base.name in ("custom", "generic"):
            yield key, [f"{key}: {getattr(convention, key)}"]


def _format_purpose(purpose: Purpose) -> str:
    parts = [("stage", purpose.stages), ("range", purpose.ranges)]
    inside = ", ".join(f"{key}: [{', '.join(_quote_text(v) for v in values)}]" for key, values in parts if values)
    return f"{format_scalar(purpose.name)}: {{{inside}}}"


def _quote_text(text: str) -> str:
    """Put any text in double quotes, as inside brackets more characters are special in YAML."""
    plain = format_scalar(text)
    return plain if plain.startswith('"') else f'"{plain}"'


def _render_assertions(sentences: Sequence[DraftSentence]) -> Iterator[str]:
    group = ""
    for sentence in sentences:
        if sentence.group != group:
            if group:
                yield ""
            group = sentence.group
            yield from render_comment(group, "  ")
            yield ""
        yield from _render_comments(sentence.reasons, "  ")
        if isinstance(sentence.entry, str):
            yield f"  - {format_scalar(sentence.entry)}"
            continue
        yield f"  - {_format_flow_value(sentence.entry)}"


def _format_flow_value(value: str | Mapping[str, Any]) -> str:
    """Format a value for use inside braces, quoted if a character of it could end the value there."""
    if isinstance(value, str):
        return _quote_text(value) if set(value) & set(",[]{}") else format_scalar(value)
    return "{" + ", ".join(f"{key}: {_format_flow_value(member)}" for key, member in value.items()) + "}"
