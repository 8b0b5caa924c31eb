"""What does a gate file (``*.nsys.yaml``) ask for, and what is wrong with an invalid one?

The file is data: no tags, no templating, a closed set of keys (``gate_file.keys.ini``). All mistakes are reported
together. The JSON Schema, generated from the same keys, checks the same structure; only this module checks sentences,
units and names.

Under ``matrix:`` a file lists configurations. Each is the gate file with some keys, above all the trace, replaced by
its own. The assertions are read once for each configuration, as a word such as a mesh axis may mean something else
there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from yaml.nodes import MappingNode, Node, ScalarNode

from pytest_nsys.analysis.fact_bounds import Bounds
from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.metrics.table import Selector
from pytest_nsys.core.errors import ArgumentMistake, suggest_or_list, suggest_word
from pytest_nsys.core.file_names import CONFIGURATION_PATTERN, GateAddress
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.core.units import ANY_UNIT, convert_to_limit, parse_quantity
from pytest_nsys.gates.assertion_keys import RowSelectionEntry, read_assertion_entry
from pytest_nsys.gates.assertion_names import clean_name, disambiguate_names, find_assertions, list_names, strip_item
from pytest_nsys.gates.convention_keys import read_convention_key
from pytest_nsys.gates.kinds import GATE_FILE_VERSION, MappingEntry, read_quality_bounds
from pytest_nsys.gates.limits import (
    describe_impossible_value,
    describe_unusable_unit,
    list_measurement_units,
    strip_step_suffix,
)
from pytest_nsys.gates.model import Assertion, Comparator, Constant, GateFile, Severity, Waiver
from pytest_nsys.gates.workload_keys import check_needed_keys, read_workload
from pytest_nsys.gates.yaml_nodes import NodeReader, compose, is_empty, read_file_bytes

MISSING_KEYS = {
    "version": f"'version' is missing: write version: {GATE_FILE_VERSION}",
    "assertions": "'assertions' is missing: a gate without assertions always passes",
}
PLAIN_KEYS = ("measurements", "run", "comparable_on", "tolerance", "window", "span", "kernels", "allow_missing")
"""Keys whose values go unchanged into the GateFile field of the same name."""


def load_gate_file(path: Path, *, display: Path | None = None) -> GateFile:
    """Return the gate file at ``path``. Raises GateFileError, which holds all of its mistakes.

    Mistakes and locations show ``display`` as the file.
    """
    return parse_gate_file(read_file_bytes(path, NodeReader(display or path)), path=path, display=display)


def load_configuration(path: Path) -> GateFile:
    """Return the gate file at ``path``; if it has a matrix, the configuration named in brackets after the path.

    Raises GateFileError, and ArgumentMistake if the path does not name one configuration.
    """
    file, name = GateAddress.parse_file_and_configuration(str(path))
    gate = load_gate_file(Path(file))
    gate_found = next((candidate for candidate in gate.judged_gates if candidate.configuration == name), None)
    if gate_found is not None:
        return gate_found
    if not gate.matrix:
        raise ArgumentMistake(f"{sanitize_line(file, 1000)} has no matrix: leave [{name}] out")
    problem = (
        f"no configuration of {sanitize_line(file, 1000)} is '{name}'"
        if name
        else f"{sanitize_line(file, 1000)} has a matrix"
    )
    example = GateAddress(Path(file).name, gate.configuration_names[0])
    raise ArgumentMistake(f"{problem}{suggest_or_list(name, gate.configuration_names, 'it has')}; write {example}")


def parse_gate_file(content: str | bytes, *, path: Path, display: Path | None = None) -> GateFile:
    """Parse ``content`` as a gate file at ``path``, which is not read itself. Raises GateFileError."""
    reader = NodeReader(display or path)
    root = compose(content.encode() if isinstance(content, str) else content, reader)
    file = MappingEntry(reader, root, "file", "a gate file")
    for key in file.list_missing():
        file.add_mistake("", MISSING_KEYS[key])
    entry_by_name = read_matrix(reader, file) or {"": file}
    names = tuple(filter(None, entry_by_name))
    entries = {name: (entry, _read_gate(reader, entry, path, name, names)) for name, entry in entry_by_name.items()}
    gates_read = {name: _read_assertions(reader, *parts) for name, parts in entries.items()}
    gates = dict(zip(gates_read, disambiguate_names([gate for gate, _ in gates_read.values()]), strict=True))
    unique_assertions = {
        (assertion.name, assertion.location): assertion
        for gate in gates.values()
        for assertion in _select_uniquely_named(reader, gate.assertions)
    }
    sorted_assertions = sorted(unique_assertions.values(), key=lambda assertion: assertion.location.line)
    are_all_known = all(is_known for _, is_known in gates_read.values())
    complete_gates = []
    for name, gate in gates.items():
        _check_tolerance(entry_by_name[name], gate, sorted_assertions)
        if name and gates_read[name][1] and not gate.assertions:
            file.add_mistake(MATRIX, f"no assertion applies to '{name}': it would always pass")
        complete_gates.append(
            _read_waivers(reader, entry_by_name[name], gate, sorted_assertions, all_known=are_all_known)
        )
    if names:
        complete_gates = [
            replace(
                _read_gate(reader, file, path, names=names),
                assertions=tuple(sorted_assertions),
                matrix=tuple(complete_gates),
            )
        ]
    reader.raise_mistakes()
    return complete_gates[0]


def override_quality(gate: GateFile, quality: Mapping[str, object]) -> GateFile:
    """Return a gate file with other bounds, named and written as below its key ``quality``: ``{"missing_ranks": 126}``.

    Raises GateFileError.
    """
    if not quality:
        return gate
    reader = NodeReader(Path("quality"))
    bounds = read_quality_bounds(reader, compose(json.dumps(dict(quality), default=str).encode(), reader), "quality")
    reader.raise_mistakes()
    return replace(gate, quality=replace(gate.quality, **{name: getattr(bounds, name) for name in quality}))


def _read_gate(
    reader: NodeReader, file: MappingEntry, path: Path, configuration: str = "", names: tuple[str, ...] = ()
) -> GateFile:
    """Return the settings that the file, or one of its configurations, makes for all assertions: a gate file without
    assertions.
    """
    values = file.read_values()
    run, quality = values.get("run", {}), values.get("quality", Bounds())
    return GateFile(
        path=path,
        assertions=(),
        convention=read_convention_key(reader, file.fields.get("convention")),
        traces=values.get("trace", ()),
        workload=read_workload(reader, file.fields.get("workload"), values, path.parent),
        quality=replace(quality, world=int(run["world"])) if "world" in run else quality,
        configuration=configuration,
        configuration_names=names,
        **{key: values[key] for key in PLAIN_KEYS if key in values},
    )


def _check_tolerance(file: MappingEntry, gate: GateFile, assertions: Sequence[Assertion]) -> None:
    """Record as a mistake a tolerance in a unit of outside measurements, in a file that judges no measurement."""
    foreign_units = list_measurement_units(gate.tolerance)
    if foreign_units and not any(assertion.outside_metric for assertion in assertions):
        file.add_mistake("tolerance", describe_unusable_unit(foreign_units[0]))


def _read_assertions(reader: NodeReader, file: MappingEntry, gate: GateFile) -> tuple[GateFile, bool]:
    """Return the gate file with its assertions, in order, and whether every entry could be read."""
    assertions: list[Assertion] = []
    all_known = "assertions" in file.fields
    for node in reader.read_items(file.fields["assertions"], "assertions") if all_known else ():
        if not is_for_configuration(reader, node, gate.configuration, gate.configuration_names):
            continue
        entry_assertions = read_assertion_entry(reader, node, gate)
        all_known = all_known and bool(entry_assertions)
        assertions += entry_assertions
    check_needed_keys(reader, assertions, file.fields)
    return replace(gate, assertions=tuple(assertions)), all_known


def _select_uniquely_named(reader: NodeReader, assertions: Iterable[Assertion]) -> Iterator[Assertion]:
    """Yield the assertions with a new name; record a mistake for each whose name an earlier one has."""
    first_by_name: dict[str, Assertion] = {}
    for assertion in assertions:
        first = first_by_name.setdefault(assertion.name, assertion)
        if first is not assertion:
            _, line, column = assertion.location
            problem = (
                f"'{sanitize_line(assertion.name, 60)}' is already the name of the assertion on line "
                f"{first.location.line}"
            )
            reader.add_mistake_at(line, column, f"{problem}: give it another id")
        else:
            yield assertion


# Configurations

MATRIX = "matrix"
PER_CONFIGURATION_KEYS = ("trace", "measurements")
"""Keys that each configuration sets for itself, as two configurations cannot share a trace."""


def read_matrix(reader: NodeReader, file: MappingEntry) -> dict[str, MappingEntry]:
    """Return the gate file's mapping for each configuration, by name; empty if there is no readable matrix.

    A configuration without a value gets its trace from the command line. A path, or a list of paths, is its trace. A
    mapping may hold any keys.
    """
    if MATRIX not in file.fields:
        return {}
    for key in PER_CONFIGURATION_KEYS:
        if key in file.fields:
            file.add_mistake(key, f"with a matrix '{key}' belongs to each configuration: write it there")
    entries: dict[str, MappingEntry] = {}
    spellings: dict[str, str] = {}
    for word, value in reader.read_entries(file.fields[MATRIX], MATRIX):
        name = word.value
        shown_name = sanitize_line(name, 40)
        if re.fullmatch(CONFIGURATION_PATTERN, name) is None:
            reader.add_mistake(
                word, f"a configuration is named by letters, digits, '.', '_' and '-', not '{shown_name}'"
            )
            continue
        first_name = spellings.setdefault(name.lower(), name)
        if first_name != name:  # some file systems ignore case, so their baselines would share a folder
            reader.add_mistake(
                word, f"'{shown_name}' and '{sanitize_line(first_name, 40)}' differ only in capitals: rename one"
            )
        entries[name] = _read_configuration(reader, file, value)
    return entries


def _read_configuration(reader: NodeReader, file: MappingEntry, value: Node) -> MappingEntry:
    if is_empty(value):
        return file
    if isinstance(value, MappingNode):
        return file.copy_with_keys(MappingEntry(reader, value, "configuration", "a configuration").fields)
    return file.copy_with_keys({"trace": value})


def is_for_configuration(reader: NodeReader, node: Node, name: str, names: Collection[str]) -> bool:
    """Return whether an assertion or a waiver applies to the configuration ``name``, one of ``names``; it does unless
    its keys say otherwise.
    """
    value = _find_matrix_node(node)
    if value is None:
        return True
    if not names:
        reader.add_mistake(value, "'matrix' picks configurations of the file, which has no 'matrix'")
        return True

    def parse_glob(text: str) -> str:
        glob = text.strip()
        if not any(fnmatchcase(configuration, glob) for configuration in names):
            shown_glob = sanitize_line(glob, 40)
            raise ValueError(
                f"no configuration of the matrix is '{shown_glob}'{suggest_or_list(glob, names, 'they are')}"
            )
        return glob

    globs = [reader.read_parsed(item, MATRIX, parse_glob) for item in reader.read_one_or_items(value, MATRIX)]
    return None in globs or not globs or any(glob is not None and fnmatchcase(name, glob) for glob in globs)


def _find_matrix_node(node: Node) -> Node | None:
    """Return the value of ``matrix:`` in a mapping; None where it has none."""
    pairs = node.value if isinstance(node, MappingNode) else ()
    return next((value for key, value in pairs if isinstance(key, ScalarNode) and key.value == MATRIX), None)


# Waivers

NEEDED_WAIVER_KEYS: Mapping[str, str] = {
    "assertion": "the name of an assertion",
    "ceiling": "how far a value may go, such as 3ms",
    "expires": "a day such as 2026-12-31",
    "reason": "why the rows may be outside their limit",
}
"""Keys that every waiver needs, each with what it states."""


def _read_waivers(
    reader: NodeReader, file: MappingEntry, gate: GateFile, all_assertions: Sequence[Assertion], *, all_known: bool
) -> GateFile:
    """Return the gate file with each waiver added to the assertions that it names.

    A waiver may name any of ``all_assertions`` of the file, also those for other configurations. ``all_known`` says
    that every entry under ``assertions:`` could be read, so that an unknown name is a mistake.
    """
    if "waivers" not in file.fields:
        return gate
    waivers_by_name: dict[str, list[Waiver]] = {}
    for item in reader.read_items(file.fields["waivers"], "waivers"):
        if not is_for_configuration(reader, item, gate.configuration, gate.configuration_names):
            continue
        entry = _WaiverEntry(reader, item, gate, "waiver", "a waiver")
        waived_assertions = entry.find_named_assertions(gate.assertions, all_assertions, all_known=all_known)
        waiver = entry.read_waiver(waived_assertions) if entry.fields else None
        if waiver is not None:
            for assertion in waived_assertions:
                waivers_by_name.setdefault(assertion.name, []).append(waiver)
    return replace(
        gate,
        assertions=tuple(
            replace(assertion, waivers=tuple(waivers_by_name.get(assertion.name, ()))) for assertion in gate.assertions
        ),
    )


def list_remaining_dimensions(assertion: Assertion, metric: Metric, axes: Collection[str]) -> tuple[str, ...]:
    """List the dimensions that judged rows of the assertion may still differ in, mesh axes among them."""
    dimensions = list(metric.dimensions)
    if metric.is_outside_trace:  # only the file of measurements knows its rows
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


class _WaiverEntry(RowSelectionEntry):
    """Reads one mapping under ``waivers:``."""

    def find_named_assertions(
        self, assertions: Sequence[Assertion], all_assertions: Sequence[Assertion], *, all_known: bool
    ) -> list[Assertion]:
        """Return the assertions that the waiver names, among ``assertions``: one, or all items of one ``for:``."""
        assertion_text = self.read_text("assertion")
        if assertion_text is None:
            return []
        name = clean_name(assertion_text)
        matches = find_assertions(name, assertions)
        if not matches and all_known and not find_assertions(name, all_assertions):
            names = dict.fromkeys(
                part
                for assertion in all_assertions
                for own_name in list_names(assertion)
                for part in (own_name, strip_item(own_name))
            )
            hint = suggest_word(name, names) or ": write its id, or its sentence"
            self.add_mistake("assertion", f"no assertion of this file is '{sanitize_line(name, 60)}'{hint}")
        return matches

    def read_waiver(self, assertions: Sequence[Assertion]) -> Waiver | None:
        """Return the waiver; None where a key is missing or mistaken."""
        for key in self.list_missing():
            self.add_mistake("", f"a waiver needs '{key}': {NEEDED_WAIVER_KEYS[key]}")
        for assertion in assertions[:1]:
            self._check_waivable(assertion)
        ceiling = self._read_ceiling(assertions[0] if assertions else None)
        where = self._read_waived_rows(assertions)
        values = self.read_values()
        if ceiling is None or "expires" not in values or "reason" not in values:
            return None
        return Waiver(
            ceiling=ceiling.value,
            unit=ceiling.unit,
            expires=values["expires"],
            reason=" ".join(values["reason"].split()),
            location=self.reader.locate(self.node),
            link=values.get("link", ""),
            where=where,
            shared=len(assertions) > 1,
        )

    def _check_waivable(self, assertion: Assertion) -> None:
        """Record as a mistake that the waiver is for an assertion that never fails, or whose limit has no ceiling."""
        reason = None
        if assertion.xfail is not None:
            reason = "its xfail expects it to fail already"
        elif assertion.severity.failed is Severity.WARN:
            reason = "with severity: warn it never fails"
        elif assertion.requirement.comparator is Comparator.NE:
            reason = "!= has no ceiling"
        if reason is not None:
            self.add_mistake("assertion", f"'{sanitize_line(assertion.name, 60)}' cannot be waived: {reason}")

    def _read_ceiling(self, assertion: Assertion | None) -> Constant | None:
        """Read how far a waived value may go, in the base of the metric's unit."""
        if "ceiling" not in self.fields:
            return None

        def parse_ceiling(text: str) -> Constant:
            if assertion is not None and assertion.measured_metric.is_share_of_step:
                text = strip_step_suffix(text)
            quantity = parse_quantity(
                text, allow_any_unit=assertion is not None and assertion.outside_metric is not None
            )
            if assertion is None:
                return Constant(quantity.value)
            target = assertion.limit_target
            open_unit = next(iter(quantity.amounts)) if assertion.outside_metric is not None else ANY_UNIT
            ceiling = convert_to_limit(quantity, open_unit or target.unit, target.name)
            comparator, limit = assertion.requirement.comparator, assertion.requirement.limit
            if reason := describe_impossible_value(ceiling, target):
                self.add_mistake("ceiling", f"ceiling {quantity.text} cannot be right: {reason}")
            is_within_limit = (
                comparator is not None and isinstance(limit, Constant) and comparator.is_satisfied(ceiling, limit.value)
            )
            if is_within_limit and comparator is not Comparator.NE:
                self.add_mistake(
                    "ceiling", f"ceiling {quantity.text} waives nothing: it holds '{assertion.requirement.text}'"
                )
            return Constant(ceiling, open_unit)

        return self.reader.read_parsed(self.fields["ceiling"], "ceiling", parse_ceiling)

    def _read_waived_rows(self, assertions: Sequence[Assertion]) -> dict[str, Selector]:
        """Read the selectors of the waived rows, by dimensions that judged rows still have."""
        if "where" not in self.fields or not assertions:
            return {}
        first = assertions[0]
        if first.balance_across is not None:
            self.add_mistake("where", "a balance is one value, the worst: its waiver takes no 'where'")
            return {}
        metric = first.measured_metric
        where = self.read_where(metric, selected_dimensions=())
        dimensions = list_remaining_dimensions(first, metric, self.gate.axes)
        for key, _ in self.reader.read_entries(self.fields["where"], "where"):
            if key.value in where and key.value not in dimensions:
                dimensions_text = f"{', '.join(dimensions)} left" if dimensions else "no dimension left"
                problem = f"the assertion takes every {key.value} together: its rows have {dimensions_text}"
                self.reader.add_mistake(key, problem)
            elif key.value in where and any(
                assertion.where.get(key.value) != first.where.get(key.value) for assertion in assertions
            ):
                problem = f"'for' makes an item of each {key.value}: name the item itself, as in '{assertions[0].name}'"
                self.reader.add_mistake(key, problem)
        return where
