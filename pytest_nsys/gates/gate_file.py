"""What does a gate file (``*.nsys.yaml``) ask for, and if it cannot be meant, what is wrong with it?

The file is data: no tags, no templating, a closed set of keys. All mistakes are reported together. The JSON Schema
beside this module says the same of the structure; sentences, units and names are judged here alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from yaml.nodes import MappingNode, Node

from pytest_nsys.analysis.quality import Bounds
from pytest_nsys.core.conventions import Convention
from pytest_nsys.core.hints import did_you_mean
from pytest_nsys.core.model import KernelsMode, Label, Span, printable
from pytest_nsys.gates.assertion import Assertion, GateFile
from pytest_nsys.gates.assertion_keys import Defaults, read_assertion
from pytest_nsys.gates.comparability import FIELDS
from pytest_nsys.gates.convention_keys import mesh_axes, read_convention
from pytest_nsys.gates.limits import MetricSpec
from pytest_nsys.gates.quality_keys import read_quality
from pytest_nsys.gates.setting_keys import read_allow_missing, read_tolerance, read_window
from pytest_nsys.gates.waiver_keys import attach_waivers
from pytest_nsys.gates.workload_keys import check_needed, read_workload
from pytest_nsys.gates.yaml_nodes import Mistakes, Reader, compose, read

GATE_FILE_KEYS = (
    *("version", "trace", "convention", "window", "span", "kernels", "tolerance", "run"),
    *("comparable_on", "allow_missing"),
    *("quality", "workload", "pipeline", "blocks"),
    "assertions",
    "waivers",
)
RUN_NUMBERS = ("world", "micro_batch", "sequence_length")
RUN_KEYS = ("gpu", *RUN_NUMBERS)
"""Keys of ``run:`` that are no mesh axis."""

VERSION = 1


def load_gate_file(path: Path, metrics: Mapping[str, MetricSpec], *, display: Path | None = None) -> GateFile:
    """The gate file at ``path``; GateFileError holds all of its mistakes.

    ``metrics`` are those that an assertion may name. Mistakes and locations show ``display`` as the file.
    """
    return loads_gate_file(read(path, Mistakes(display or path)), metrics, path=path, display=display)


def loads_gate_file(
    content: str | bytes, metrics: Mapping[str, MetricSpec], *, path: Path, display: Path | None = None
) -> GateFile:
    """The gate file that ``content`` is, as it would be at ``path``, where nothing is read."""
    shown = display or path
    mistakes = Mistakes(shown)
    root = compose(content.encode() if isinstance(content, str) else content, mistakes)
    reader = Reader(mistakes)
    fields = reader.mapping(root, "a gate file", GATE_FILE_KEYS)
    _check_version(reader, root, fields)
    convention = read_convention(reader, fields.get("convention"))
    run = _read_run(reader, fields["run"]) if "run" in fields else {}
    defaults = _read_defaults(reader, fields, Defaults(shown, metrics, known_axes(convention, run)))
    traces = reader.texts(fields["trace"], "trace") if "trace" in fields else ()
    quality = read_quality(reader, fields["quality"]) if "quality" in fields else Bounds()
    comparable_on = _read_comparable_on(reader, fields["comparable_on"]) if "comparable_on" in fields else None
    workload = read_workload(reader, fields, run, path.parent)
    assertions, all_known = _read_assertions(reader, root, fields, defaults)
    check_needed(mistakes, assertions, fields)
    if "waivers" in fields:
        assertions = attach_waivers(reader, fields["waivers"], assertions, defaults, all_known=all_known)
    mistakes.raise_any()
    return GateFile(
        path=path,
        assertions=assertions,
        convention=convention,
        traces=traces,
        run=run,
        workload=workload,
        comparable_on=comparable_on,
        quality=replace(quality, world=int(run["world"])) if "world" in run else quality,
        tolerance=defaults.tolerance,
        window=defaults.window,
        span=defaults.span,
        kernels=defaults.kernels,
        allow_missing=defaults.allow_missing,
    )


def known_axes(convention: Convention, run: Mapping[str, Label]) -> tuple[str, ...]:
    """The mesh axes that the setup label or ``run:`` states."""
    return tuple(dict.fromkeys((*mesh_axes(convention), *(key for key in run if key not in RUN_KEYS))))


def _check_version(reader: Reader, root: MappingNode, fields: Mapping[str, Node]) -> None:
    if "version" not in fields:
        reader.mistakes.at(root, f"'version' is missing: write version: {VERSION}")
        return
    version = reader.whole(fields["version"], "version")
    if version not in (None, VERSION):
        what = f"version {version} is not known here: write version: {VERSION}"
        reader.mistakes.at(fields["version"], what)


def _read_defaults(reader: Reader, fields: Mapping[str, Node], defaults: Defaults) -> Defaults:
    """What the file says for all of its assertions."""
    window = read_window(reader, fields["window"]) if "window" in fields else None
    return Defaults(
        defaults.shown_path,
        defaults.metrics,
        defaults.axes,
        read_tolerance(reader, fields["tolerance"]) if "tolerance" in fields else None,
        window or defaults.window,
        reader.choice(fields["span"], "span", Span) if "span" in fields else None,
        reader.choice(fields["kernels"], "kernels", KernelsMode) if "kernels" in fields else None,
        read_allow_missing(reader, fields["allow_missing"]) if "allow_missing" in fields else {},
    )


def _read_run(reader: Reader, node: Node) -> dict[str, Label]:
    """What the file states of the run because its traces do not say it."""
    found: dict[str, Label] = {}
    for key, value in reader.entries(node, "run"):
        name = key.value
        if name == "gpu":
            gpu = reader.text(value, "gpu")
            if gpu is not None:
                found[name] = gpu.strip()
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
            reader.mistakes.at(key, f"'{printable(name, 40)}' is no name for a mesh axis")
        else:
            number = reader.whole(value, name, at_least=1)
            if number is not None:
                found[name] = number
    return found


def _read_comparable_on(reader: Reader, node: Node) -> tuple[str, ...]:
    """The circumstances that must agree with a baseline's, in the order of ``FIELDS``."""
    found: list[str] = []
    for item in reader.items(node, "comparable_on"):
        name = reader.text(item, "a circumstance")
        if name is None:
            continue
        shown = printable(name, 40)
        if name not in FIELDS:
            known = did_you_mean(name, FIELDS) or f": they are {', '.join(FIELDS)}"
            reader.mistakes.at(item, f"unknown circumstance '{shown}'{known}")
        elif name in found:
            reader.mistakes.at(item, f"'{shown}' is named twice")
        found.append(name)
    return tuple(name for name in FIELDS if name in found)


def _read_assertions(
    reader: Reader, root: MappingNode, fields: Mapping[str, Node], defaults: Defaults
) -> tuple[tuple[Assertion, ...], bool]:
    """All assertions of the file, in its order, and whether every entry could be read.

    There is at least one, and their names differ.
    """
    if "assertions" not in fields:
        reader.mistakes.at(root, "'assertions' is missing: a gate without assertions would pass on nothing")
        return (), False
    found: dict[str, Assertion] = {}
    all_known = True
    for node in reader.items(fields["assertions"], "assertions"):
        made = read_assertion(reader, node, defaults)
        all_known = all_known and bool(made)
        for assertion in made:
            first = found.setdefault(assertion.name, assertion)
            if first is not assertion:
                shown = printable(assertion.name, 60)
                what = f"'{shown}' is the name of the assertion on line {first.location.line} already"
                reader.mistakes.at(node, f"{what}: give it another id")
    return tuple(found.values()), all_known
