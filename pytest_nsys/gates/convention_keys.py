"""Under which convention is a trace read: one that a gate file names or spells out, or the usual one of its format?"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from yaml.nodes import MappingNode, Node, ScalarNode

from pytest_nsys.core.conventions import BUILT_IN, DEFAULT, Convention, ConventionMistake
from pytest_nsys.core.errors import ArgumentMistake, UsageMistake, hint
from pytest_nsys.core.words import printable
from pytest_nsys.gates.keys import KEYS
from pytest_nsys.gates.kinds import Entry, read_name
from pytest_nsys.gates.yaml_nodes import Reader, compose_file


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


Kind = TypeVar("Kind")
Named = str | os.PathLike[str] | Convention
"""A built-in name, a YAML file, or the convention itself."""

CONVENTION_HELP = (
    "A built-in name, or a YAML file: a convention alone, or a gate file, for the one in it. Default: kineto for "
    f"traces of torch.profiler, jax for those of JAX, that of a cut for a cut; else {DEFAULT}."
)


def convention_for(traces: Sequence[str], name: Named | None, anchor: str | None) -> Convention:
    """The convention that is named, else the usual one of the first trace. Raises as opening it does."""
    check_named(traces)
    if name is None:
        from pytest_nsys.traces.opening import find_traces, usual_convention  # no gate file needs it

        name = usual_convention(find_traces(traces[0], Path())[0])
    return convention_of(name, anchor)


def check_named(traces: Sequence[str]) -> None:
    """Raises UsageMistake for a path without a letter, as a variable of the shell leaves it."""
    if "" in traces:
        raise UsageMistake("the path of a trace is empty")


def convention_of(value: Named, anchor: str | None = None) -> Convention:
    """The convention that ``value`` is, names or holds, with another anchor where one is given."""
    if isinstance(value, Convention):
        found = value
    elif isinstance(value, str | os.PathLike):
        found = built_in_or_read(os.fspath(value), BUILT_IN, "convention", _read)
    else:
        raise ArgumentMistake(f"convention= is a name, the path of a YAML file or a Convention, not {value!r}")
    if anchor is None:
        return found
    if not isinstance(anchor, str):
        raise ArgumentMistake(f"anchor= is the name of a range, as in 'ProfilerStep#%', not {anchor!r}")
    if not anchor.strip():
        raise ArgumentMistake("--anchor is empty")
    return dataclasses.replace(found, anchor=anchor)


def _read(reader: Reader, root: MappingNode) -> Convention:
    """The mapping of a convention, or a gate file, of which only ``convention:`` is read."""
    keys = {key.value: node for key, node in reader.entries(root, "a convention")}
    is_gate_file = bool(keys.keys() & (set(KEYS["file"]) - {"span", "kernels"}))
    return read_convention(reader, keys.get("convention") if is_gate_file else root)


def built_in_or_read(
    value: str, built_in: Mapping[str, Kind], what: str, read: Callable[[Reader, MappingNode], Kind | None]
) -> Kind:
    """What a built-in name stands for, else what a YAML file holds. Raises ArgumentMistake, GateFileError."""
    if value in built_in:
        return built_in[value]
    path = Path(value)
    if not path.is_file():
        raise ArgumentMistake(f"'{printable(value)}' is no {what} and no file{hint(value, built_in, 'built in are')}")
    reader = Reader(path)
    found = read(reader, compose_file(path, reader))
    reader.raise_any()
    assert found is not None  # else there was a mistake
    return found
