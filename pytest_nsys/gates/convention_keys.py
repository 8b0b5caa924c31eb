"""Which convention does a gate file name or spell out?"""

from __future__ import annotations

import dataclasses
import re

from yaml.nodes import Node, ScalarNode

from pytest_nsys.core.conventions import BUILT_IN, DEFAULT, Convention, ConventionMistake
from pytest_nsys.gates.kinds import Entry, read_name
from pytest_nsys.gates.yaml_nodes import Reader


def read_convention(reader: Reader, node: Node | None) -> Convention:
    """The convention behind the key; where it holds a mistake, as much of it as can be read.

    A key that is given replaces the one of the convention that is extended, whole.
    """
    if node is None:
        return BUILT_IN[DEFAULT]
    if isinstance(node, ScalarNode):
        return read_name(reader, node, "convention") or BUILT_IN[DEFAULT]
    entry = Entry(reader, node, "convention")
    given = entry.values()
    base = given.pop("extends", None) or Convention(name="custom")
    try:
        return dataclasses.replace(base, **given)
    except ConventionMistake as mistake:
        entry.mistake(mistake.key, str(mistake))
    except (OverflowError, RecursionError):
        entry.mistake("", "an expression in this convention is too large")
    return base


def mesh_axes(convention: Convention) -> tuple[str, ...]:
    """Axes that the setup label states: the groups ``X`` of its expression that have an ``X_size`` beside them."""
    if convention.setup is None:
        return ()
    groups = re.compile(convention.setup).groupindex
    return tuple(group for group in groups if f"{group}_size" in groups)
