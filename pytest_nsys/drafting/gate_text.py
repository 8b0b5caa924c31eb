"""How does a drafted gate file read? As YAML with a comment above every line whose reason somebody will want to know.

Names come from somebody else's program: a value is quoted wherever YAML could read it otherwise, a comment is one line
of printable text. The same draft gives the same bytes.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from pytest_nsys.analysis.steps.convention_fit import Choice
from pytest_nsys.analysis.windows.spans import MEDIAN
from pytest_nsys.core.conventions import BUILT_IN, Convention, Purpose, written_anchor
from pytest_nsys.core.words import printable
from pytest_nsys.drafting.sentences import DraftSentence

SCHEMA_NAME = "nsys-gate-file.schema.json"
"""The copy of the schema beside the gate file, which editors check it by."""

# Two less than the repository's own lines, for ``# ``.
LINE = 118

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./()+-]*(?: (?:[A-Za-z0-9_./()+%-]|[<>=]=(?= ))+(?:, [A-Za-z0-9]+\))?)*")
# YAML 1.1 reads these words as null, true or false, not as text.
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


@dataclass(frozen=True)
class Draft:
    """Holds a gate file before it is text."""

    about: tuple[str, ...]  # comment lines for its head
    traces: tuple[str, ...]  # go into ``trace:``
    choice: Choice
    tolerance: Fraction
    smallest: str  # as a gate file writes it
    tolerance_why: tuple[str, ...]
    sentences: Sequence[DraftSentence] = field(default_factory=tuple)
    allow_missing: str = ""  # its line
    world: int = 1  # number of ranks
    mostly: tuple[str, ...] = ()  # those of ``head_comments`` that say what takes most of the time


def gate_text(draft: Draft) -> str:
    """Render a draft as the text of a gate file."""
    return "\n".join(line.rstrip() for line in _lines(draft)) + "\n"


def scalar(text: str) -> str:
    """Format a value as YAML has it: plain where it can only be read as that text, else in double quotes."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    in_quotes = json.dumps(text, ensure_ascii=False)
    codes = ((c, ord(c)) for c in in_quotes)
    return "".join(c if c.isprintable() else f"\\u{n:04x}" if n < 0x10000 else f"\\U{n:08x}" for c, n in codes)


def comment(text: str, indent: str = "") -> Iterator[str]:
    """Render a text as comment lines, wrapped; what begins with blanks stays indented."""
    line_text = printable(text, 400)
    next_indent = " " * (len(line_text) - len(line_text.lstrip()) + 2) if line_text.startswith(" ") else ""
    for line in textwrap.wrap(line_text, LINE - len(indent), subsequent_indent=next_indent, break_long_words=False):
        yield f"{indent}# {line}"


def _comments(texts: Sequence[str], indent: str = "") -> Iterator[str]:
    for text in texts:
        yield from comment(text, indent)


def _lines(draft: Draft) -> Iterator[str]:
    choice = draft.choice
    yield f"# yaml-language-server: $schema=./{SCHEMA_NAME}"
    yield "#"
    yield from _comments(draft.about)
    yield "version: 1"
    if draft.traces:
        yield "# Another run: --nsys-trace=PATH."
        values = [scalar(trace) for trace in draft.traces]
        yield f"trace: {values[0]}" if len(values) == 1 else "trace:"
        yield from (f"  - {value}" for value in values if len(values) > 1)
    yield f"run: {{world: {draft.world}}}  # ranks: a missing one is an error"
    yield ""
    yield from _convention_lines(choice)
    yield from _comments(choice.reasons.get("window", ()))
    yield f"window: {scalar(choice.spec.asked.removeprefix(f'{MEDIAN} '))}"
    if choice.quality:
        yield ""
        yield from comment(
            "Without these lines nothing could be judged on this trace: delete each one once you capture more."
        )
        yield from _comments(choice.reasons.get("quality", ()))
        yield f"quality: {{{', '.join(f'{check}: {bound.value}' for check, bound in choice.quality.items())}}}"
    yield ""
    yield from _comments(draft.tolerance_why)
    yield f"tolerance: {{rel: {int(100 * draft.tolerance)}%, abs: {draft.smallest}}}"
    if draft.allow_missing:
        yield ""
        yield from comment("In this trace these ranks lack rows that other ranks have. Is that right?")
        yield draft.allow_missing
    yield ""
    yield "assertions:"
    yield from _assertion_lines(draft.sentences)


def _convention_lines(choice: Choice) -> Iterator[str]:
    convention, base, generic = choice.convention, choice.base, BUILT_IN["generic"]
    yield from _comments(choice.reasons.get("convention", ()))
    other_candidates = [candidate for candidate in choice.candidates if candidate.pattern != convention.anchor]
    if other_candidates:
        yield from comment("Other ranges that could anchor:" if choice.anchored else "Ranges that were looked at:")
        yield from _comments([f"  '{printable(candidate.pattern, 60)}': {candidate}" for candidate in other_candidates])
    if convention == BUILT_IN.get(convention.name):
        yield f"convention: {convention.name}"
        return
    named_base = generic if convention.libraries else Convention("custom")
    extended_base = base if BUILT_IN.get(base.name) == base else named_base
    yield "convention:"
    if extended_base.name in BUILT_IN:
        yield f"  extends: {extended_base.name}"
    for key, lines in _differing(convention, extended_base):
        yield from _comments(choice.reasons.get(key, ()), "  ")
        yield from (f"  {line}" for line in lines)


def _differing(convention: Convention, base: Convention) -> Iterator[tuple[str, list[str]]]:
    """List the keys of a convention that are not those of its base, each with its lines."""
    for key in ("anchor", "setup", "stage"):
        value = getattr(convention, key)
        if value is not None and value != getattr(base, key):
            yield key, [f"{key}: {scalar(value) if isinstance(value, str) else written_anchor(value)}"]
    if convention.purposes != base.purposes:
        yield "purposes", ["purposes:", *(f"  {_purpose(purpose)}" for purpose in convention.purposes)]
    if convention.communication != base.communication:
        yield "communication", [f"communication: [{', '.join(_quoted(glob) for glob in convention.communication)}]"]
    if convention.copies != base.copies:
        yield "copies", [f"copies: [{', '.join(convention.copies)}]"]
    for key in ("span", "kernels") if convention.kernel_anchor is None else ("kernels",):
        if getattr(convention, key) is not getattr(base, key) or base.name in ("custom", "generic"):
            yield key, [f"{key}: {getattr(convention, key)}"]


def _purpose(purpose: Purpose) -> str:
    parts = [("stage", purpose.stages), ("range", purpose.ranges)]
    inside = ", ".join(f"{key}: [{', '.join(_quoted(v) for v in values)}]" for key, values in parts if values)
    return f"{scalar(purpose.name)}: {{{inside}}}"


def _quoted(text: str) -> str:
    """Quote a text in double quotes whatever it is: inside brackets more characters have a meaning."""
    plain = scalar(text)
    return plain if plain.startswith('"') else f'"{plain}"'


def _assertion_lines(sentences: Sequence[DraftSentence]) -> Iterator[str]:
    group = ""
    for sentence in sentences:
        if sentence.group != group:
            if group:
                yield ""
            group = sentence.group
            yield from comment(group, "  ")
            yield ""
        yield from _comments(sentence.why, "  ")
        if isinstance(sentence.entry, str):
            yield f"  - {scalar(sentence.entry)}"
            continue
        yield f"  - {_value(sentence.entry)}"


def _value(value: str | Mapping[str, Any]) -> str:
    """Format a value for inside of braces: what could end there is quoted."""
    if isinstance(value, str):
        return _quoted(value) if set(value) & set(",[]{}") else scalar(value)
    return "{" + ", ".join(f"{key}: {_value(member)}" for key, member in value.items()) + "}"
