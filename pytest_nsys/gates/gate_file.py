"""What does a gate file (``*.nsys.yaml``) ask for, and what is wrong with one that cannot be meant?

The file is data: no tags, no templating, a closed set of keys (``gate_file.keys.ini``). All mistakes are reported
together. The JSON Schema, made of the same keys, says the same of the structure; sentences, units and names are judged
here alone.

Under ``matrix:`` it judges configurations. Each is the gate file with keys of its own in place of the file's: its trace
above all. Assertions are read once for each, so that what they mean, such as a mesh axis, is what it means there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from yaml.nodes import MappingNode, Node, ScalarNode

from pytest_nsys.analysis.fact_bounds import Bounds
from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.metrics.table import Selector
from pytest_nsys.core.errors import ArgumentMistake, did_you_mean, hint
from pytest_nsys.core.file_names import CONFIGURATION, Address
from pytest_nsys.core.units import ANY, limit_value, parse_quantity
from pytest_nsys.core.words import printable
from pytest_nsys.gates.assertion_keys import Selecting, read_assertion
from pytest_nsys.gates.convention_keys import read_convention
from pytest_nsys.gates.kinds import VERSION, Entry
from pytest_nsys.gates.limits import impossible, of_no_metric, own_units, without_step
from pytest_nsys.gates.model import Assertion, Comparator, Constant, GateFile, Severity, Waiver
from pytest_nsys.gates.names import called, clean_name, names_of, told_apart, without_item
from pytest_nsys.gates.workload_keys import check_needed, read_workload
from pytest_nsys.gates.yaml_nodes import NodeReader, compose, is_empty, read

MISSING = {
    "version": f"'version' is missing: write version: {VERSION}",
    "assertions": "'assertions' is missing: a gate without assertions always passes",
}
AS_WRITTEN = ("measurements", "run", "comparable_on", "tolerance", "window", "span", "kernels", "allow_missing")
"""Keys whose values are fields of a GateFile by the same name."""


def load_gate_file(path: Path, *, display: Path | None = None) -> GateFile:
    """Return the gate file at ``path``. Raises GateFileError, which holds all of its mistakes.

    Mistakes and locations show ``display`` as the file.
    """
    return loads_gate_file(read(path, NodeReader(display or path)), path=path, display=display)


def load_one(path: Path) -> GateFile:
    """Return the gate file at ``path``; of one with a matrix the configuration that stands behind it in brackets.

    Raises GateFileError, and ArgumentMistake where no one configuration is named.
    """
    file, name = Address.of(str(path))
    gate = load_gate_file(Path(file))
    gate_found = next((candidate for candidate in gate.each if candidate.configuration == name), None)
    if gate_found is not None:
        return gate_found
    if not gate.matrix:
        raise ArgumentMistake(f"{printable(file, 1000)} has no matrix: leave [{name}] out")
    problem = (
        f"no configuration of {printable(file, 1000)} is '{name}'" if name else f"{printable(file, 1000)} has a matrix"
    )
    example = Address(Path(file).name, gate.names[0])
    raise ArgumentMistake(f"{problem}{hint(name, gate.names, 'it has')}; write {example}")


def loads_gate_file(content: str | bytes, *, path: Path, display: Path | None = None) -> GateFile:
    """Return the gate file that ``content`` is, as if it stood at ``path``, where nothing is read. Raises
    GateFileError.
    """
    reader = NodeReader(display or path)
    root = compose(content.encode() if isinstance(content, str) else content, reader)
    file = Entry(reader, root, "file", "a gate file")
    for key in file.missing():
        file.mistake("", MISSING[key])
    entry_by_name = read_matrix(reader, file) or {"": file}
    names = tuple(filter(None, entry_by_name))
    entries = {name: (entry, _read_gate(reader, entry, path, name, names)) for name, entry in entry_by_name.items()}
    gates_read = {name: _with_assertions(reader, *parts) for name, parts in entries.items()}
    gates = dict(zip(gates_read, told_apart([gate for gate, _ in gates_read.values()]), strict=True))
    unique_assertions = {
        (assertion.name, assertion.location): assertion
        for gate in gates.values()
        for assertion in _unlike(reader, gate.assertions)
    }
    sorted_assertions = sorted(unique_assertions.values(), key=lambda assertion: assertion.location.line)
    are_all_known = all(is_known for _, is_known in gates_read.values())
    complete_gates = []
    for name, gate in gates.items():
        _check_tolerance(entry_by_name[name], gate, sorted_assertions)
        if name and gates_read[name][1] and not gate.assertions:
            file.mistake(MATRIX, f"no assertion applies to '{name}': it would always pass")
        complete_gates.append(
            _with_waivers(reader, entry_by_name[name], gate, sorted_assertions, all_known=are_all_known)
        )
    if names:
        complete_gates = [
            replace(
                _read_gate(reader, file, path, names=names),
                assertions=tuple(sorted_assertions),
                matrix=tuple(complete_gates),
            )
        ]
    reader.raise_any()
    return complete_gates[0]


def _read_gate(
    reader: NodeReader, file: Entry, path: Path, configuration: str = "", names: tuple[str, ...] = ()
) -> GateFile:
    """Return what the file, or a configuration of it, says for all of its assertions, as a gate file without any."""
    values = file.values()
    run, quality = values.get("run", {}), values.get("quality", Bounds())
    return GateFile(
        path=path,
        assertions=(),
        convention=read_convention(reader, file.fields.get("convention")),
        traces=values.get("trace", ()),
        workload=read_workload(reader, file.fields.get("workload"), values, path.parent),
        quality=replace(quality, world=int(run["world"])) if "world" in run else quality,
        configuration=configuration,
        names=names,
        **{key: values[key] for key in AS_WRITTEN if key in values},
    )


def _check_tolerance(file: Entry, gate: GateFile, every: Sequence[Assertion]) -> None:
    """Record a tolerance in a unit of measurements in a file that judges none."""
    foreign_units = own_units(gate.tolerance)
    if foreign_units and not any(assertion.outside for assertion in every):
        file.mistake("tolerance", of_no_metric(foreign_units[0]))


def _with_assertions(reader: NodeReader, file: Entry, gate: GateFile) -> tuple[GateFile, bool]:
    """Return the gate file with its assertions, in order, and whether every entry could be read."""
    assertions: list[Assertion] = []
    all_known = "assertions" in file.fields
    for node in reader.items(file.fields["assertions"], "assertions") if all_known else ():
        if not is_for(reader, node, gate.configuration, gate.names):
            continue
        entry_assertions = read_assertion(reader, node, gate)
        all_known = all_known and bool(entry_assertions)
        assertions += entry_assertions
    check_needed(reader, assertions, file.fields)
    return replace(gate, assertions=tuple(assertions)), all_known


def _unlike(reader: NodeReader, assertions: Iterable[Assertion]) -> Iterator[Assertion]:
    """Yield the assertions, and note those whose name another has already."""
    first_by_name: dict[str, Assertion] = {}
    for assertion in assertions:
        first = first_by_name.setdefault(assertion.name, assertion)
        if first is not assertion:
            _, line, column = assertion.location
            problem = (
                f"'{printable(assertion.name, 60)}' is already the name of the assertion on line {first.location.line}"
            )
            reader.mistake_at(line, column, f"{problem}: give it another id")
        else:
            yield assertion


# Configurations

MATRIX = "matrix"
OF_EACH = ("trace", "measurements")
"""Keys that each configuration has of its own: for two of them one trace would be one too few."""


def read_matrix(reader: NodeReader, file: Entry) -> dict[str, Entry]:
    """Return the gate file as each configuration has it, by name; empty where there is no matrix, or none to be read.

    A name alone has its trace from the command line; a path or a list of them is its trace; a mapping holds any keys.
    """
    if MATRIX not in file.fields:
        return {}
    for key in OF_EACH:
        if key in file.fields:
            file.mistake(key, f"with a matrix '{key}' belongs to each configuration: write it there")
    entries: dict[str, Entry] = {}
    spellings: dict[str, str] = {}
    for word, value in reader.entries(file.fields[MATRIX], MATRIX):
        name = word.value
        shown_name = printable(name, 40)
        if re.fullmatch(CONFIGURATION, name) is None:
            reader.mistake(word, f"a configuration is named by letters, digits, '.', '_' and '-', not '{shown_name}'")
            continue
        first_name = spellings.setdefault(name.lower(), name)
        if first_name != name:  # their baselines lie in folders, which some systems do not tell apart
            reader.mistake(
                word, f"'{shown_name}' and '{printable(first_name, 40)}' differ only in capitals: rename one"
            )
        entries[name] = _configuration(reader, file, value)
    return entries


def _configuration(reader: NodeReader, file: Entry, value: Node) -> Entry:
    if is_empty(value):
        return file
    if isinstance(value, MappingNode):
        return file.with_keys(Entry(reader, value, "configuration", "a configuration").fields)
    return file.with_keys({"trace": value})


def is_for(reader: NodeReader, node: Node, name: str, names: Collection[str]) -> bool:
    """Return whether an assertion or a waiver is for the configuration ``name``, one of ``names``: by default it is."""
    value = _said(node)
    if value is None:
        return True
    if not names:
        reader.mistake(value, "'matrix' picks configurations of the file, which has no 'matrix'")
        return True

    def parse_glob(text: str) -> str:
        glob = text.strip()
        if not any(fnmatchcase(configuration, glob) for configuration in names):
            shown_glob = printable(glob, 40)
            raise ValueError(f"no configuration of the matrix is '{shown_glob}'{hint(glob, names, 'they are')}")
        return glob

    globs = [reader.parsed(item, MATRIX, parse_glob) for item in reader.one_or_items(value, MATRIX)]
    return None in globs or not globs or any(glob is not None and fnmatchcase(name, glob) for glob in globs)


def _said(node: Node) -> Node | None:
    """Return the value of ``matrix:`` in a mapping; None where it has none."""
    pairs = node.value if isinstance(node, MappingNode) else ()
    return next((value for key, value in pairs if isinstance(key, ScalarNode) and key.value == MATRIX), None)


# Waivers

NEEDED: Mapping[str, str] = {
    "assertion": "the name of an assertion",
    "ceiling": "how far a value may go, such as 3ms",
    "expires": "a day such as 2026-12-31",
    "reason": "why the rows may be outside their limit",
}
"""What each key that a waiver needs says."""


def _with_waivers(
    reader: NodeReader, file: Entry, gate: GateFile, every: Sequence[Assertion], *, all_known: bool
) -> GateFile:
    """Return the gate file, each assertion with the waivers that name it.

    A waiver may name any of ``all_assertions`` of the file, also those for other configurations. ``all_known``: every
    entry under ``assertions:`` could be read, so a name that none of them has is a mistake.
    """
    if "waivers" not in file.fields:
        return gate
    waivers_by_name: dict[str, list[Waiver]] = {}
    for item in reader.items(file.fields["waivers"], "waivers"):
        if not is_for(reader, item, gate.configuration, gate.names):
            continue
        entry = _WaiverEntry(reader, item, gate, "waiver", "a waiver")
        waived_assertions = entry.named(gate.assertions, every, all_known=all_known)
        waiver = entry.waiver(waived_assertions) if entry.fields else None
        if waiver is not None:
            for assertion in waived_assertions:
                waivers_by_name.setdefault(assertion.name, []).append(waiver)
    return replace(
        gate,
        assertions=tuple(
            replace(assertion, waivers=tuple(waivers_by_name.get(assertion.name, ()))) for assertion in gate.assertions
        ),
    )


def dimensions_left(assertion: Assertion, metric: Metric, axes: Collection[str]) -> tuple[str, ...]:
    """List the dimensions that judged rows of the assertion may still differ in, mesh axes among them."""
    dimensions = list(metric.dimensions)
    if metric.outside:  # what rows there are only its file knows
        return tuple(dict.fromkeys((*dimensions, *axes)))
    for step in assertion.aggregates:
        if step.over is None:
            return tuple(
                dimension
                for dimension in (*dimensions, *(axes if "rank" in dimensions else ()))
                if dimension in assertion.where
            )
        for over_dimension in step.over:
            if over_dimension not in dimensions and "rank" in dimensions:
                dimensions = [*(dimension for dimension in dimensions if dimension != "rank"), *axes]
            dimensions = [dimension for dimension in dimensions if dimension != over_dimension]
    return (*dimensions, *(axes if "rank" in dimensions else ()))


class _WaiverEntry(Selecting):
    """Reads one mapping under ``waivers:``."""

    def named(self, assertions: Sequence[Assertion], every: Sequence[Assertion], *, all_known: bool) -> list[Assertion]:
        """Return those of these assertions that the waiver is for: one, or all items that one ``for:`` makes."""
        assertion_text = self.text("assertion")
        if assertion_text is None:
            return []
        name = clean_name(assertion_text)
        matches = called(name, assertions)
        if not matches and all_known and not called(name, every):
            names = dict.fromkeys(
                part
                for assertion in every
                for own_name in names_of(assertion)
                for part in (own_name, without_item(own_name))
            )
            hint = did_you_mean(name, names) or ": write its id, or its sentence"
            self.mistake("assertion", f"no assertion of this file is '{printable(name, 60)}'{hint}")
        return matches

    def waiver(self, named: Sequence[Assertion]) -> Waiver | None:
        """Return the waiver; None where a key is missing or mistaken."""
        for key in self.missing():
            self.mistake("", f"a waiver needs '{key}': {NEEDED[key]}")
        for assertion in named[:1]:
            self._check_waivable(assertion)
        ceiling = self._ceiling(named[0] if named else None)
        where = self._waived(named)
        values = self.values()
        if ceiling is None or "expires" not in values or "reason" not in values:
            return None
        return Waiver(
            ceiling=ceiling.value,
            unit=ceiling.unit,
            expires=values["expires"],
            reason=" ".join(values["reason"].split()),
            location=self.reader.location(self.node),
            link=values.get("link", ""),
            where=where,
            shared=len(named) > 1,
        )

    def _check_waivable(self, assertion: Assertion) -> None:
        """Record as a mistake that the waiver is for an assertion that never fails, or whose limit has no ceiling."""
        reason = None
        if assertion.xfail is not None:
            reason = "its xfail expects it to fail already"
        elif assertion.severity.failed is Severity.WARN:
            reason = "with severity: warn it never fails"
        elif assertion.require.comparator is Comparator.NE:
            reason = "!= has no ceiling"
        if reason is not None:
            self.mistake("assertion", f"'{printable(assertion.name, 60)}' cannot be waived: {reason}")

    def _ceiling(self, assertion: Assertion | None) -> Constant | None:
        """Read how far a value may go, in the base of the metric's unit."""
        if "ceiling" not in self.fields:
            return None

        def parse_ceiling(text: str) -> Constant:
            if assertion is not None and assertion.measures.of_step:
                text = without_step(text)
            quantity = parse_quantity(text, any_unit=assertion is not None and assertion.outside is not None)
            if assertion is None:
                return Constant(quantity.value)
            target = assertion.judged
            open_unit = next(iter(quantity.amounts)) if assertion.outside is not None else ANY
            ceiling = limit_value(quantity, open_unit or target.unit, target.name)
            comparator, limit = assertion.require.comparator, assertion.require.limit
            if reason := impossible(ceiling, target):
                self.mistake("ceiling", f"ceiling {quantity.text} cannot be right: {reason}")
            is_within_limit = (
                comparator is not None and isinstance(limit, Constant) and comparator.holds(ceiling, limit.value)
            )
            if is_within_limit and comparator is not Comparator.NE:
                self.mistake("ceiling", f"ceiling {quantity.text} waives nothing: it holds '{assertion.require.text}'")
            return Constant(ceiling, open_unit)

        return self.reader.parsed(self.fields["ceiling"], "ceiling", parse_ceiling)

    def _waived(self, named: Sequence[Assertion]) -> dict[str, Selector]:
        """Read the selectors of the waived rows, by dimensions that judged rows still have."""
        if "where" not in self.fields or not named:
            return {}
        first = named[0]
        if first.balance_across is not None:
            self.mistake("where", "a balance is one value, the worst: its waiver takes no 'where'")
            return {}
        metric = first.measures
        where = self.where(metric, fixed=())
        dimensions = dimensions_left(first, metric, self.gate.axes)
        for key, _ in self.reader.entries(self.fields["where"], "where"):
            if key.value in where and key.value not in dimensions:
                dimensions_text = f"{', '.join(dimensions)} left" if dimensions else "no dimension left"
                problem = f"the assertion takes every {key.value} together: its rows have {dimensions_text}"
                self.reader.mistake(key, problem)
            elif key.value in where and any(
                assertion.where.get(key.value) != first.where.get(key.value) for assertion in named
            ):
                problem = f"'for' makes an item of each {key.value}: name the item itself, as in '{named[0].name}'"
                self.reader.mistake(key, problem)
        return where
