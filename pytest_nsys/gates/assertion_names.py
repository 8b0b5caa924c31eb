"""What is an assertion called?

Its name is the id that it was given, else its sentence up to the comparison, ``exposed_ns <=``: a test keeps its name,
and with it its history, when its limit changes. Where several assertions would share a name, each is named by its whole
sentence. The whole sentence is the full name, which finds the assertion wherever the name does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pytest_nsys.core.text_format import neutralize_commands
from pytest_nsys.gates.model import Assertion, GateFile, Location

QUOTED_LABEL = '"(?:[^"]|"")*"'
"""Pattern of a label in double quotes, which may hold blanks or signs; a double quote in it is written twice."""

_COMPARISON_OR_LABEL = re.compile(
    rf"{QUOTED_LABEL}|(?P<compared>!=|[<>=≤≥]+|(?<!\S)(?:below|above|within|at\s+(?:least|most))(?!\S))"
)
_LABEL_SEPARATOR = re.compile(rf"{QUOTED_LABEL}|\|")
_PLAIN_LABEL = re.compile(r"(?:(?!!=)[^\s<>=≤≥|\"])+")
_GRAMMAR_WORDS = {"of", "over", "no", "balance", "pipeline", "measured", "where", "below", "above", "within", "at"}
"""Words of the grammar, which are no labels in a sentence unless they are quoted."""

_ITEM_SUFFIX = re.compile(r"\[[^\W\d]\w*=.*\]$")
"""Matches the suffix that ``for:`` adds to the name of an assertion, such as ``[stage=fwd]``."""


def clean_name(text: str) -> str:
    """Return ``text`` fit for a part of a test's name: one line, no control characters, no ``::``, no command of CI."""
    name = _keep_printable(text)
    while "::" in name:
        name = name.replace("::", ":")
    return neutralize_commands(name)


def clean_sentence(text: str) -> str:
    """Return ``text`` on one line, without control characters and commands of CI; ``::`` stays, but at the start."""
    return neutralize_commands(_keep_printable(text))


def _keep_printable(text: str) -> str:
    """Return ``text`` on one line, without control characters."""
    visible = "".join(c for c in text if c.isprintable() or c.isspace())
    return " ".join(visible.split())


def strip_limit(sentence: str) -> str:
    """Return the part of a sentence before its comparison; all of a sentence without one, such as ``no syncs``."""
    comparison = next((match for match in _COMPARISON_OR_LABEL.finditer(sentence) if match["compared"]), None)
    return sentence[: comparison.end()] if comparison else sentence


def split_labels(text: str) -> list[str]:
    """Return the labels that a sentence writes as ``stage2_f|"a kernel"``. Raises ValueError where one is missing."""
    quoted_labels = _LABEL_SEPARATOR.sub(lambda match: "\0" if match[0] == "|" else match[0], text).split("\0")
    labels = [re.sub(QUOTED_LABEL, lambda match: match[0][1:-1].replace('""', '"'), label) for label in quoted_labels]
    if not all(labels):
        raise ValueError(f"a label is missing in '{text}'")
    return labels


def quote_labels(labels: Iterable[str]) -> str:
    """Return the labels as a sentence writes them, quoted where they need it."""

    def format_label(label: str) -> str:
        is_plain = _PLAIN_LABEL.fullmatch(label) and label not in _GRAMMAR_WORDS
        return label if is_plain else '"' + label.replace('"', '""') + '"'

    return "|".join(map(format_label, labels))


def strip_item(name: str) -> str:
    """Return the name without the labels that ``for:`` added: the name of all items of that ``for:``."""
    return _ITEM_SUFFIX.sub("", name)


def disambiguate_names(gates: Sequence[GateFile]) -> list[GateFile]:
    """Return these configurations of one gate file, with full names for assertions that would share a name in one of
    them.
    """
    ambiguous: set[Location] = set()
    for gate in gates:
        locations_by_name: dict[str, set[Location]] = {}
        for assertion in gate.assertions:
            locations_by_name.setdefault(strip_item(assertion.name), set()).add(assertion.location)
        ambiguous.update(*(sharing for sharing in locations_by_name.values() if len(sharing) > 1))
    return [
        replace(
            gate,
            assertions=tuple(replace(a, name=a.full_name) if a.location in ambiguous else a for a in gate.assertions),
        )
        for gate in gates
    ]


def list_names(assertion: Assertion) -> tuple[str, str]:
    """Return the name and the full name of an assertion, either of which may be written to mean it."""
    return assertion.name, assertion.full_name


def list_other_names(assertion: Assertion, gate: GateFile) -> frozenset[str]:
    """Return the names and full names of the other assertions of the gate file."""
    other_assertions = (candidate for candidate in gate.assertions if candidate.name != assertion.name)
    return frozenset(name for candidate in other_assertions for name in list_names(candidate)) - {
        *list_names(assertion)
    }


def find_assertions(name: str, assertions: Sequence[Assertion]) -> list[Assertion]:
    """Return the assertions that a name or a sentence means: a single one, or all items of one ``for:``.

    Empty if no assertion has the name, or if several entries have the sentence.
    """
    conditions = (
        lambda candidate: candidate.name == name,
        lambda candidate: candidate.full_name == name,
        lambda candidate: name in map(strip_item, list_names(candidate)),
        lambda candidate: clean_name(candidate.sentence) == name,
    )
    matches = next(
        filter(None, ([candidate for candidate in assertions if is_meant(candidate)] for is_meant in conditions)), []
    )
    return matches if len({candidate.location for candidate in matches}) == 1 else []
