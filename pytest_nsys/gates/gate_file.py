"""What does a gate file (``*.nsys.yaml``) ask for, and if it cannot be meant, what is wrong with it?

The file is data: no tags, no templating, a closed set of keys (``gate_file.keys.ini``). All mistakes are reported
together. The JSON Schema, made of the same keys, says the same of the structure; sentences, units and names are judged
here alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_nsys.analysis.metrics import Bounds
from pytest_nsys.core.errors import ArgumentMistake, hint
from pytest_nsys.core.file_names import Address
from pytest_nsys.core.words import printable
from pytest_nsys.gates.assertion_keys import read_assertion
from pytest_nsys.gates.convention_keys import read_convention
from pytest_nsys.gates.kinds import VERSION, Entry
from pytest_nsys.gates.limits import of_no_metric, own_units
from pytest_nsys.gates.matrix_keys import MATRIX, is_for, read_matrix
from pytest_nsys.gates.model import Assertion, GateFile
from pytest_nsys.gates.waiver_keys import attach_waivers
from pytest_nsys.gates.workload_keys import check_needed, read_workload
from pytest_nsys.gates.yaml_nodes import Reader, compose, read

MISSING = {
    "version": f"'version' is missing: write version: {VERSION}",
    "assertions": "'assertions' is missing: a gate without assertions would pass on nothing",
}
SETTINGS = ("tolerance", "window", "span", "kernels", "allow_missing")
"""Keys that hold for assertions that say nothing else."""


def load_gate_file(path: Path, *, display: Path | None = None) -> GateFile:
    """The gate file at ``path``; GateFileError holds all of its mistakes.

    Mistakes and locations show ``display`` as the file.
    """
    return loads_gate_file(read(path, Reader(display or path)), path=path, display=display)


def load_one(path: Path) -> GateFile:
    """The gate file at ``path``, of one with a matrix the configuration that stands behind it in brackets.

    Raises GateFileError, and ArgumentMistake where no one configuration is named.
    """
    file, name = Address.of(str(path))
    gate = load_gate_file(Path(file))
    found = next((one for one in gate.each if one.configuration == name), None)
    if found is not None:
        return found
    if not gate.matrix:
        raise ArgumentMistake(f"{printable(file, 1000)} has no matrix: leave [{name}] out")
    which = (
        f"no configuration of {printable(file, 1000)} is '{name}'" if name else f"{printable(file, 1000)} has a matrix"
    )
    example = Address(Path(file).name, gate.names[0])
    raise ArgumentMistake(f"{which}{hint(name, gate.names, 'it has')}; write {example}")


def loads_gate_file(content: str | bytes, *, path: Path, display: Path | None = None) -> GateFile:
    """The gate file that ``content`` is, as it would be at ``path``, where nothing is read."""
    reader = Reader(display or path)
    root = compose(content.encode() if isinstance(content, str) else content, reader)
    file = Entry(reader, root, "file", "a gate file")
    for key in file.missing():
        file.mistake("", MISSING[key])
    own = read_matrix(reader, file)
    if not own:
        gate = _read_gate(reader, file, path)
        gate, known = _with_assertions(reader, file, gate)
        _check_tolerance(file, gate, gate.assertions)
        gate = _with_waivers(reader, file, gate, gate.assertions, all_known=known)
        reader.raise_any()
        return gate
    names = tuple(own)
    entries = {name: (entry, _read_gate(reader, entry, path, name, names)) for name, entry in own.items()}
    judged = {name: _with_assertions(reader, *each) for name, each in entries.items()}
    every = {assertion.name: assertion for gate, _ in judged.values() for assertion in gate.assertions}
    ordered = sorted(every.values(), key=lambda assertion: assertion.location.line)
    known = all(all_known for _, all_known in judged.values())
    matrix = []
    for name, (gate, all_known) in judged.items():
        _check_tolerance(own[name], gate, ordered)
        if all_known and not gate.assertions:
            file.mistake(MATRIX, f"no assertion is judged on '{name}': it would pass on nothing")
        matrix.append(_with_waivers(reader, own[name], gate, ordered, all_known=known))
    whole = _read_gate(reader, file, path, names=names)
    reader.raise_any()
    return replace(whole, assertions=tuple(ordered), matrix=tuple(matrix))


def _read_gate(
    reader: Reader, file: Entry, path: Path, configuration: str = "", names: tuple[str, ...] = ()
) -> GateFile:
    """What the file, or a configuration of it, says for all of its assertions."""
    said = file.values()
    convention = read_convention(reader, file.fields.get("convention"))
    run, quality = said.get("run", {}), said.get("quality", Bounds())
    return GateFile(
        path=path,
        assertions=(),
        convention=convention,
        traces=said.get("trace", ()),
        measurements=said.get("measurements", ()),
        run=run,
        workload=read_workload(reader, file.fields.get("workload"), said, path.parent),
        comparable_on=said.get("comparable_on"),
        quality=replace(quality, world=int(run["world"])) if "world" in run else quality,
        configuration=configuration,
        names=names,
        **{key: said[key] for key in SETTINGS if key in said},
    )


def _check_tolerance(file: Entry, gate: GateFile, every: Sequence[Assertion]) -> None:
    """Notes a tolerance in a unit of measurements in a file that judges none."""
    foreign = own_units(gate.tolerance)
    if foreign and not any(assertion.outside for assertion in every):
        file.mistake("tolerance", of_no_metric(foreign[0]))


def _with_assertions(reader: Reader, file: Entry, gate: GateFile) -> tuple[GateFile, bool]:
    """The same with its assertions, and whether every entry could be read."""
    assertions, all_known = _read_assertions(reader, file, gate)
    check_needed(reader, assertions, file.fields)
    return replace(gate, assertions=assertions), all_known


def _with_waivers(
    reader: Reader, file: Entry, gate: GateFile, every: Sequence[Assertion], *, all_known: bool
) -> GateFile:
    """The same with its waivers. ``every`` assertion of the file may be waived, ``all_known``: there is no other."""
    if "waivers" not in file.fields:
        return gate
    node = file.fields["waivers"]
    return replace(gate, assertions=attach_waivers(reader, node, gate, every, all_known=all_known))


def _read_assertions(reader: Reader, file: Entry, gate: GateFile) -> tuple[tuple[Assertion, ...], bool]:
    """All assertions of the file, or of one configuration, in order, and whether every entry could be read.

    There is at least one, and their names differ.
    """
    if "assertions" not in file.fields:
        return (), False
    found: dict[str, Assertion] = {}
    all_known = True
    for node in reader.items(file.fields["assertions"], "assertions"):
        if not is_for(reader, node, gate.configuration, gate.names):
            continue
        made = read_assertion(reader, node, gate)
        all_known = all_known and bool(made)
        for assertion in made:
            first = found.setdefault(assertion.name, assertion)
            if first is not assertion:
                shown = printable(assertion.name, 60)
                what = f"'{shown}' is the name of the assertion on line {first.location.line} already"
                reader.mistake(node, f"{what}: give it another id")
    return tuple(found.values()), all_known
