"""Which keys has each mapping of a gate file? One table, of which the schema and the docs are made as well."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("gate_file.keys.ini")
SCHEMA = SOURCE.with_name("gate_file.schema.json")
SCHEMA_TITLE = b'"title": "pytest-nsys gate file"'
"""What is in every version of the schema."""

_ROW = re.compile(
    r"^\[(?P<section>\w+)\]$|^(?P<key>\w+) = (?P<kind>\w+)(?P<needed>, needed)?: (?P<help>.+(?:\n    .+)*)$",
    re.MULTILINE,
)


class Key(NamedTuple):
    """One key of a mapping. ``kind`` is one of ``kinds.KINDS``; ``help``, in lines, is what editors and docs say."""

    kind: str
    help: str
    needed: bool


def _table() -> dict[str, dict[str, Key]]:
    found: dict[str, dict[str, Key]] = {}
    section: dict[str, Key] = {}
    text = SOURCE.read_text(encoding="utf-8")
    if left := [line for line in _ROW.sub("", text).splitlines() if line.strip() and not line.startswith("#")]:
        raise ValueError(f"{SOURCE.name}: '{left[0]}' is no row: write key = kind: what it says")
    for row in _ROW.finditer(text):
        if row["section"]:
            section = found.setdefault(row["section"], {})
        else:
            section[row["key"]] = Key(row["kind"], row["help"], row["needed"] is not None)
    whole = ("version", "matrix", "assertions", "waivers")
    own = {name: key for name, key in found["file"].items() if name not in whole}
    return {**found, "baseline": found["tolerance"] | found["baseline"], "configuration": own}


KEYS: Mapping[str, Mapping[str, Key]] = _table()
"""The keys of every mapping, in the order in which they are told."""
