"""Which convention does a gate file name or spell out?"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode

from pytest_nsys.core.conventions import (
    BUILT_IN,
    COMPUTE,
    DEFAULT,
    MIXED,
    UNKNOWN,
    Convention,
    ConventionMistake,
    CopyKind,
    Purpose,
)
from pytest_nsys.core.families import OTHER, TABLES, Families, Family
from pytest_nsys.core.hints import did_you_mean
from pytest_nsys.core.model import KernelsMode, Span, printable
from pytest_nsys.gates.yaml_nodes import Reader

CONVENTION_KEYS = (
    "extends",
    "name",
    "anchor",
    "setup",
    "stage",
    "purposes",
    "communication",
    "copies",
    "families",
    "span",
    "kernels",
)
PURPOSE_KEYS = ("stage", "range")

_RESERVED = (COMPUTE, MIXED, UNKNOWN)


def read_convention(reader: Reader, node: Node | None) -> Convention:
    """The convention behind the key; where it holds a mistake, as much of it as can be read.

    A key that is given replaces the one of the convention that is extended, whole.
    """
    if node is None:
        return BUILT_IN[DEFAULT]
    if isinstance(node, ScalarNode):
        return _built_in(reader, node, "convention") or BUILT_IN[DEFAULT]
    fields = reader.mapping(node, "convention", CONVENTION_KEYS)
    base = _built_in(reader, fields["extends"], "extends") if "extends" in fields else None
    base = base or Convention(name="custom")
    given = _given(reader, fields)
    try:
        return dataclasses.replace(base, **given)
    except ConventionMistake as mistake:
        reader.mistakes.at(fields[mistake.key], str(mistake))
    except (OverflowError, RecursionError):
        reader.mistakes.at(node, "an expression in this convention is too large")
    return base


def mesh_axes(convention: Convention) -> tuple[str, ...]:
    """Axes that the setup label states: the groups ``X`` of its expression that have an ``X_size`` beside them."""
    if convention.setup is None:
        return ()
    groups = re.compile(convention.setup).groupindex
    return tuple(group for group in groups if f"{group}_size" in groups)


def _built_in(reader: Reader, node: Node, what: str) -> Convention | None:
    name = reader.text(node, what)
    if name is None:
        return None
    if name not in BUILT_IN:
        hint = did_you_mean(name, BUILT_IN) or f": built in are {', '.join(BUILT_IN)}"
        reader.mistakes.at(node, f"unknown convention '{printable(name, 40)}'{hint}")
    return BUILT_IN.get(name)


def _given(reader: Reader, fields: dict[str, Node]) -> dict[str, Any]:
    """The keys that are given and read well, as fields of a Convention."""
    texts = {key: reader.text(fields[key], key) for key in ("name", "anchor", "setup", "stage") if key in fields}
    given: dict[str, Any] = {key: text.strip() for key, text in texts.items() if text is not None}
    if "purposes" in fields:
        given["purposes"] = _purposes(reader, fields["purposes"])
    if "communication" in fields:
        given["communication"] = reader.texts(fields["communication"], "communication")
    if "copies" in fields:
        given["copies"] = _copies(reader, fields["copies"])
    if "families" in fields and (families := read_families(reader, fields["families"])):
        given["families"] = families
    if "span" in fields and (span := reader.choice(fields["span"], "span", Span)):
        given["span"] = span
    if "kernels" in fields and (mode := reader.choice(fields["kernels"], "kernels", KernelsMode)):
        given["kernels"] = mode
    return given


def _purposes(reader: Reader, node: Node) -> tuple[Purpose, ...]:
    found = []
    for key, value in reader.entries(node, "purposes"):
        if key.value in _RESERVED:
            reader.mistakes.at(key, f"'{key.value}' is no purpose to define: {', '.join(_RESERVED)} have a meaning")
        name = printable(key.value, 60)
        if isinstance(value, MappingNode):
            patterns = reader.mapping(value, f"purpose {name}", PURPOSE_KEYS)
            stages, ranges = (reader.texts(patterns[key], key) if key in patterns else () for key in PURPOSE_KEYS)
            found.append(Purpose(key.value, stages, ranges))
        else:
            found.append(Purpose(key.value, reader.texts(value, f"purpose {name}")))
    return tuple(found)


def _copies(reader: Reader, node: Node) -> tuple[CopyKind, ...]:
    """One kind of copies, or a list of them, in one order: it means nothing."""
    nodes = [node] if isinstance(node, ScalarNode) else reader.items(node, "copies")
    found = {reader.choice(item, "copies", CopyKind) for item in nodes}
    return tuple(kind for kind in CopyKind if kind in found)


def read_families(reader: Reader, node: Node) -> Families | None:
    """A built-in table by its name, or the families that are spelt out, in their order."""
    if isinstance(node, ScalarNode):
        name = reader.text(node, "families")
        if name is not None and name not in TABLES:
            hint = did_you_mean(name, TABLES) or f": built in are {', '.join(TABLES)}"
            reader.mistakes.at(node, f"unknown families '{printable(name, 40)}'{hint}")
        return TABLES.get(name or "")
    found = []
    for key, value in reader.entries(node, "families"):
        if key.value == OTHER:
            reader.mistakes.at(key, f"'{OTHER}' is no family to define: it is what no family matches")
        found.append(Family(key.value, reader.texts(value, f"family {printable(key.value, 60)}")))
    return tuple(found)
