"""Which configurations does a gate file judge, under ``matrix:``, and for which of them is an assertion, or a waiver?

A configuration is the gate file with keys of its own in place of the file's: its trace above all. Assertions are read
once for each, so that what they mean, such as a mesh axis, is what it means there.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import fnmatchcase

from yaml.nodes import MappingNode, Node, ScalarNode

from pytest_nsys.core.errors import hint
from pytest_nsys.core.file_names import CONFIGURATION
from pytest_nsys.core.words import printable
from pytest_nsys.gates.kinds import Entry
from pytest_nsys.gates.yaml_nodes import Reader, is_empty

MATRIX = "matrix"
OF_EACH = ("trace", "measurements")
"""Keys that each configuration has of its own: for two of them one trace would be one too few."""


def read_matrix(reader: Reader, file: Entry) -> dict[str, Entry]:
    """The gate file as each configuration has it, by name; empty where there is no matrix, or none to be read.

    A name alone has its trace from the command line; a path or a list of them is its trace; a mapping holds any keys.
    """
    if MATRIX not in file.fields:
        return {}
    for key in OF_EACH:
        if key in file.fields:
            file.mistake(key, f"with a matrix '{key}' belongs to each configuration: write it there")
    found: dict[str, Entry] = {}
    spelled: dict[str, str] = {}
    for word, value in reader.entries(file.fields[MATRIX], MATRIX):
        name = word.value
        shown = printable(name, 40)
        if re.fullmatch(CONFIGURATION, name) is None:
            reader.mistake(word, f"a configuration is named by letters, digits, '.', '_' and '-', not '{shown}'")
            continue
        other = spelled.setdefault(name.lower(), name)
        if other != name:  # their baselines lie in folders, which some systems do not tell apart
            reader.mistake(word, f"'{shown}' and '{printable(other, 40)}' differ in capitals alone: name one otherwise")
        found[name] = _configuration(reader, file, value)
    return found


def _configuration(reader: Reader, file: Entry, value: Node) -> Entry:
    if is_empty(value):
        return file
    if isinstance(value, MappingNode):
        return Entry(reader, value, "configuration", "a configuration").over(file)
    return file.over(file, {"trace": value})


def is_for(reader: Reader, node: Node, name: str, names: Collection[str]) -> bool:
    """Whether an assertion or a waiver is for the configuration ``name``, one of ``names``: by default it is."""
    value = _said(node)
    if value is None:
        return True
    if not names:
        reader.mistake(value, "'matrix' picks configurations of the file, which has no 'matrix'")
        return True

    def parse(text: str) -> str:
        glob = text.strip()
        if not any(fnmatchcase(each, glob) for each in names):
            shown = printable(glob, 40)
            raise ValueError(f"no configuration of the matrix is '{shown}'{hint(glob, names, 'they are')}")
        return glob

    globs = [reader.parsed(item, MATRIX, parse) for item in reader.one_or_items(value, MATRIX)]
    return None in globs or not globs or any(glob is not None and fnmatchcase(name, glob) for glob in globs)


def _said(node: Node) -> Node | None:
    """The value of ``matrix:`` in a mapping."""
    pairs = node.value if isinstance(node, MappingNode) else ()
    return next((value for key, value in pairs if isinstance(key, ScalarNode) and key.value == MATRIX), None)
