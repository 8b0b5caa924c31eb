"""Under which convention is a trace measured without a gate file: one that is named, or the usual one of its format?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from yaml.nodes import MappingNode

from pytest_nsys.core.conventions import BUILT_IN, DEFAULT, Convention
from pytest_nsys.core.errors import ArgumentMistake, UsageMistake
from pytest_nsys.core.hints import hint
from pytest_nsys.core.model import printable
from pytest_nsys.gates.convention_keys import read_convention
from pytest_nsys.gates.keys import KEYS
from pytest_nsys.gates.yaml_nodes import Mistakes, Reader, compose_file
from pytest_nsys.traces.opening import find_traces, usual_convention

Kind = TypeVar("Kind")

CONVENTION_HELP = (
    "A built-in name, or a YAML file: a convention alone, or a gate file, for the one in it. Default: kineto for "
    f"traces of torch.profiler, jax for those of JAX, that of a cut for a cut; else {DEFAULT}."
)


def convention_for(traces: Sequence[str], name: str | Convention | None, anchor: str | None) -> Convention:
    """The convention that is named, else the usual one of the first trace. Raises as opening it does."""
    check_named(traces)
    if name is None:
        name = usual_convention(find_traces(traces[0], Path())[0])
    return convention_of(name, anchor)


def check_named(traces: Sequence[str]) -> None:
    """Raises UsageMistake for a path without a letter, as a variable of the shell leaves it."""
    if "" in traces:
        raise UsageMistake("the path of a trace is empty")


def convention_of(value: str | Convention, anchor: str | None = None) -> Convention:
    """The convention that ``value`` is, names or holds, with another anchor where one is given."""
    found = value if isinstance(value, Convention) else built_in_or_read(value, BUILT_IN, "convention", _read)
    if anchor is None:
        return found
    if not anchor.strip():
        raise UsageMistake("--anchor is empty")
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
    mistakes = Mistakes(path)
    found = read(Reader(mistakes), compose_file(path, mistakes))
    mistakes.raise_any()
    assert found is not None  # else there was a mistake
    return found
