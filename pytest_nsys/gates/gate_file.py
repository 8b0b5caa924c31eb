"""What does a gate file (``*.nsys.yaml``) ask for, and if it cannot be meant, what is wrong with it?

The file is data: no tags, no templating, a closed set of keys (``gate_file.keys.ini``). All mistakes are reported
together. The JSON Schema, made of the same keys, says the same of the structure; sentences, units and names are judged
here alone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_nsys.analysis.quality import Bounds
from pytest_nsys.core.words import printable
from pytest_nsys.gates.assertion import Assertion, GateFile
from pytest_nsys.gates.assertion_keys import read_assertion
from pytest_nsys.gates.convention_keys import read_convention
from pytest_nsys.gates.kinds import VERSION, Entry
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


def loads_gate_file(content: str | bytes, *, path: Path, display: Path | None = None) -> GateFile:
    """The gate file that ``content`` is, as it would be at ``path``, where nothing is read."""
    reader = Reader(display or path)
    root = compose(content.encode() if isinstance(content, str) else content, reader)
    file = Entry(reader, root, "file", "a gate file")
    for key in file.missing():
        file.mistake("", MISSING[key])
    said = file.values()
    convention = read_convention(reader, file.fields.get("convention"))
    run, quality = said.get("run", {}), said.get("quality", Bounds())
    gate = GateFile(
        path=path,
        assertions=(),
        convention=convention,
        traces=said.get("trace", ()),
        measurements=said.get("measurements", ()),
        run=run,
        workload=read_workload(reader, file.fields.get("workload"), said, path.parent),
        comparable_on=said.get("comparable_on"),
        quality=replace(quality, world=int(run["world"])) if "world" in run else quality,
        **{key: said[key] for key in SETTINGS if key in said},
    )
    assertions, all_known = _read_assertions(reader, file, gate)
    check_needed(reader, assertions, file.fields)
    if "waivers" in file.fields:
        assertions = attach_waivers(reader, file.fields["waivers"], assertions, gate, all_known=all_known)
    reader.raise_any()
    return replace(gate, assertions=assertions)


def _read_assertions(reader: Reader, file: Entry, gate: GateFile) -> tuple[tuple[Assertion, ...], bool]:
    """All assertions of the file, in its order, and whether every entry could be read.

    There is at least one, and their names differ.
    """
    if "assertions" not in file.fields:
        return (), False
    found: dict[str, Assertion] = {}
    all_known = True
    for node in reader.items(file.fields["assertions"], "assertions"):
        made = read_assertion(reader, node, gate)
        all_known = all_known and bool(made)
        for assertion in made:
            first = found.setdefault(assertion.name, assertion)
            if first is not assertion:
                shown = printable(assertion.name, 60)
                what = f"'{shown}' is the name of the assertion on line {first.location.line} already"
                reader.mistake(node, f"{what}: give it another id")
    return tuple(found.values()), all_known
