"""Under which convention is a trace read: one that is named or spelled out, or (``auto``) the one that it fits?"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from yaml.nodes import MappingNode, Node, ScalarNode

from pytest_nsys.core.conventions import BUILT_IN_CONVENTIONS, YAML_ANCHOR, Anchor, Convention, ConventionMistake
from pytest_nsys.core.errors import ArgumentMistake, GateFileError, UsageMistake, suggest_or_list
from pytest_nsys.core.file_names import GateAddress
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.gates.kinds import KEYS, MappingEntry, make_name_reader, read_anchor
from pytest_nsys.gates.yaml_nodes import NodeReader, compose
from pytest_nsys.gates.yaml_nodes import read_file_bytes as read_file

AUTO = "auto"
"""Finds the convention in the trace; the default."""


_read_convention_name = make_name_reader({AUTO: None, **BUILT_IN_CONVENTIONS}, "convention")


def read_convention_key(reader: NodeReader, node: Node | None) -> Convention | None:
    """Return the convention behind the key; None for ``auto`` and for an unknown name.

    A mapping with mistakes gives the parts that can be read. A given key replaces the whole key of the extended
    convention.
    """
    if node is None or (isinstance(node, ScalarNode) and node.value.strip() == AUTO):
        return None
    if isinstance(node, ScalarNode):
        convention: Convention | None = _read_convention_name(reader, node, "convention")
        return convention
    entry = MappingEntry(reader, node, "convention")
    values = entry.read_values()
    base = values.pop("extends", None) or Convention(name="custom")
    try:
        return dataclasses.replace(base.with_anchor(values.get("anchor")), **values)
    except ConventionMistake as mistake:
        entry.add_mistake(mistake.key, str(mistake))
    except (OverflowError, RecursionError):
        entry.add_mistake("", "an expression in this convention is too large")
    return base


Kind = TypeVar("Kind")
ConventionSource = str | os.PathLike[str] | Convention
"""Names a convention: a built-in name, a YAML file, or the convention itself."""

CONVENTION_HELP = (
    "A built-in name, a YAML file of a convention, or a gate file. Default: auto, which finds convention and anchor "
    "in the trace."
)


def check_trace_paths(traces: Sequence[str]) -> None:
    """Raise UsageMistake for an empty path, such as an unset shell variable gives."""
    if "" in traces:
        raise UsageMistake("the path of a trace is empty")


def parse_anchor_option(text: str) -> Anchor:
    """Parse ``--anchor``: the pattern of a range, or a kernel anchor in gate-file syntax. Raises UsageMistake."""
    if not YAML_ANCHOR.fullmatch(text):
        return text
    reader = NodeReader(Path("--anchor"))
    try:
        value = json.dumps(text) if text.lstrip().startswith("kernel:") else text
        ((_, node),) = compose(f"anchor: {value}".encode(errors="replace"), reader).value
        anchor = read_anchor(reader, node)
        reader.raise_mistakes()
    except GateFileError as error:
        raise UsageMistake(f"--anchor {sanitize_line(text, 60)}: {error.mistakes[0].text}") from None
    assert anchor is not None  # else there was a mistake
    return anchor


def load_convention(value: ConventionSource | None, anchor: Anchor | None = None) -> Convention | None:
    """Return the convention that ``value`` is, names or holds as a file; ``anchor`` replaces its anchor.

    None if the convention has to be found in the trace. Raises ArgumentMistake, GateFileError.
    """
    if anchor is not None and not isinstance(anchor, Anchor):
        expected = "the name of a range, as in 'ProfilerStep#%', or a KernelAnchor"
        raise ArgumentMistake(f"anchor= is {expected}, not {anchor!r}")
    if anchor is not None and not (anchor if isinstance(anchor, str) else anchor.kernel).strip():
        raise ArgumentMistake("--anchor is empty")
    if value is None or isinstance(value, Convention):
        convention = value
    elif isinstance(value, str | os.PathLike):
        address = GateAddress.parse_file_and_configuration(os.fspath(value))
        convention = load_built_in_or_file(
            address.file,
            {**BUILT_IN_CONVENTIONS, AUTO: None},
            "convention",
            partial(_read_convention_file, configuration=address.configuration),
        )
    else:
        raise ArgumentMistake(f"convention= is a name, the path of a YAML file or a Convention, not {value!r}")
    return convention if convention is None else convention.with_anchor(anchor)


def _read_convention_file(reader: NodeReader, root: MappingNode, configuration: str = "") -> Convention | None:
    """Read the mapping of a convention, or ``convention:`` of a gate file or of its ``configuration``."""
    keys = {key.value: node for key, node in reader.read_entries(root, "a convention")}
    if configuration and "matrix" in keys:
        configurations = {key.value: node for key, node in reader.read_entries(keys["matrix"], "matrix")}
        if configuration not in configurations:
            reader.add_mistake(
                keys["matrix"],
                f"no configuration is '{configuration}'{suggest_or_list(configuration, configurations, 'it has')}",
            )
        elif isinstance(node := configurations[configuration], MappingNode):
            keys |= {key.value: value for key, value in reader.read_entries(node, configuration)}
    is_gate_file = bool(keys.keys() & (set(KEYS["file"]) - {"span", "kernels"}))
    return read_convention_key(reader, keys.get("convention") if is_gate_file else root)


def load_built_in_or_file(
    value: str, built_in: Mapping[str, Kind | None], noun: str, read: Callable[[NodeReader, MappingNode], Kind | None]
) -> Kind | None:
    """Return what a built-in name stands for, else what a YAML file holds. Raises ArgumentMistake, GateFileError."""
    if value in built_in:
        return built_in[value]
    path = Path(value)
    if not path.is_file():
        file_advice = "; a file has a line for each family: attention: ['flash_*', '*mha*']"
        advice = suggest_or_list(value, built_in, "built in are") if built_in else file_advice
        raise ArgumentMistake(f"'{sanitize_line(value)}' is no {noun} and no file{advice}")
    reader = NodeReader(path)
    value_read = read(reader, compose(read_file(path, reader), reader))
    reader.raise_mistakes()
    return value_read
