"""What is an assertion called?

Its name is the id that it was given, else its sentence up to the comparison, ``exposed_ns <=``: a test keeps its name,
and with it its past, when its limit changes. Where that does not tell several apart, each keeps its whole sentence. The
whole sentence is its full name, which people read, and which means it wherever its name does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pytest_nsys.core.words import no_command
from pytest_nsys.gates.model import Assertion, GateFile, Location

QUOTED = '"(?:[^"]|"")*"'
"""A label in a sentence that holds blanks or signs; a double quote in it is written twice."""

_COMPARISON = re.compile(rf"{QUOTED}|(?P<compared>!=|[<>=≤≥]+|(?<!\S)(?:below|above|within|at\s+(?:least|most))(?!\S))")
_LABELS_APART = re.compile(rf"{QUOTED}|\|")
_PLAIN_LABEL = re.compile(r"(?:(?!!=)[^\s<>=≤≥|\"])+")
_OF_SENTENCES = {"of", "over", "no", "balance", "pipeline", "measured", "where", "below", "above", "within", "at"}
"""Words that are no labels in a sentence, unless they are quoted."""

_ITEM = re.compile(r"\[[^\W\d]\w*=.*\]$")
"""What ``for:`` adds to the name of an assertion."""


def clean_name(text: str) -> str:
    """``text`` as a part of a test's name: one line, no control characters, no ``::``, no command of CI."""
    visible = "".join(c for c in text if c.isprintable() or c.isspace())
    name = " ".join(visible.split())
    while "::" in name:
        name = name.replace("::", ":")
    return no_command(name)


def without_limit(sentence: str) -> str:
    """A sentence up to its comparison; all of one that has none, as ``no syncs``."""
    found = next((match for match in _COMPARISON.finditer(sentence) if match["compared"]), None)
    return sentence[: found.end()] if found else sentence


def labels_of(text: str) -> list[str]:
    """The labels that stand in a sentence as ``stage2_f|"a kernel"``. Raises ValueError where one is missing."""
    apart = _LABELS_APART.sub(lambda match: "\0" if match[0] == "|" else match[0], text).split("\0")
    found = [re.sub(QUOTED, lambda match: match[0][1:-1].replace('""', '"'), each) for each in apart]
    if not all(found):
        raise ValueError(f"a label is missing in '{text}'")
    return found


def written_labels(labels: Iterable[str]) -> str:
    """The labels as a sentence has them."""

    def written(label: str) -> str:
        plain = _PLAIN_LABEL.fullmatch(label) and label not in _OF_SENTENCES
        return label if plain else '"' + label.replace('"', '""') + '"'

    return "|".join(map(written, labels))


def without_item(name: str) -> str:
    """The name of all items of a ``for:``, of one of them."""
    return _ITEM.sub("", name)


def told_apart(gates: Sequence[GateFile]) -> list[GateFile]:
    """The configurations of a gate file, or the only one, with full names where two entries of one share a name."""
    alike: set[Location] = set()
    for gate in gates:
        places: dict[str, set[Location]] = {}
        for each in gate.assertions:
            places.setdefault(without_item(each.name), set()).add(each.location)
        alike.update(*(some for some in places.values() if len(some) > 1))
    return [
        replace(
            gate, assertions=tuple(replace(a, name=a.full_name) if a.location in alike else a for a in gate.assertions)
        )
        for gate in gates
    ]


def names_of(assertion: Assertion) -> tuple[str, str]:
    """What names it, wherever one may be written."""
    return assertion.name, assertion.full_name


def names_of_others(assertion: Assertion, gate: GateFile) -> frozenset[str]:
    """What names the other assertions of the gate file."""
    others = (one for one in gate.assertions if one.name != assertion.name)
    return frozenset(name for one in others for name in names_of(one)) - {*names_of(assertion)}


def called(name: str, assertions: Sequence[Assertion]) -> list[Assertion]:
    """The assertions that a name or a sentence means: one, or all items of one ``for:``. Of several entries with ids
    that say the same a sentence means none.
    """
    ways = (
        lambda one: one.name == name,
        lambda one: one.full_name == name,
        lambda one: name in map(without_item, names_of(one)),
        lambda one: one.sentence == name,
    )
    found = next(filter(None, ([one for one in assertions if way(one)] for way in ways)), [])
    return found if len({one.location for one in found}) == 1 else []
