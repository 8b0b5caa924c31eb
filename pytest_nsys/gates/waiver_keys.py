"""Which assertions do the entries under ``waivers:`` excuse, which of their rows, how far, until when and why?"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence

from yaml.nodes import Node

from pytest_nsys.analysis.metrics import Metric
from pytest_nsys.analysis.table import Selector
from pytest_nsys.core.errors import did_you_mean
from pytest_nsys.core.units import ANY, limit_value, parse_quantity
from pytest_nsys.core.words import printable
from pytest_nsys.gates.assertion_keys import Selecting
from pytest_nsys.gates.kinds import clean_name
from pytest_nsys.gates.limits import impossible
from pytest_nsys.gates.matrix_keys import is_for
from pytest_nsys.gates.model import Assertion, Comparator, Constant, GateFile, Severity, Waiver
from pytest_nsys.gates.yaml_nodes import Reader

NEEDED: Mapping[str, str] = {
    "assertion": "the name of an assertion",
    "ceiling": "how far a value may go, such as 3ms",
    "expires": "a day such as 2026-12-31",
    "reason": "why the rows may be outside their limit",
}
"""What each key that a waiver needs says."""

_ITEM = re.compile(r"\[[^\W\d]\w*=.*\]")
"""What ``for:`` adds to the name of an assertion."""


def attach_waivers(
    reader: Reader, node: Node, gate: GateFile, every: Sequence[Assertion], *, all_known: bool
) -> tuple[Assertion, ...]:
    """The assertions of a gate file, each with the waivers that name it.

    ``every`` assertion of the file may be named, also by those for other configurations. ``all_known``: every entry
    under ``assertions:`` could be read, so a name that none of them has is a mistake.
    """
    found: dict[str, list[Waiver]] = {}
    assertions = gate.assertions
    for item in reader.items(node, "waivers"):
        if not is_for(reader, item, gate.configuration, gate.names):
            continue
        entry = _Waiver(reader, item, gate, "waiver", "a waiver")
        named = entry.named(assertions, every, all_known=all_known)
        waiver = entry.waiver(named) if entry.fields else None
        if waiver is not None:
            for assertion in named:
                found.setdefault(assertion.name, []).append(waiver)
    return tuple(dataclasses.replace(a, waivers=tuple(found.get(a.name, ()))) for a in assertions)


def dimensions_left(assertion: Assertion, metric: Metric, axes: Collection[str]) -> tuple[str, ...]:
    """The dimensions that judged rows of the assertion may still be told apart by, mesh axes among them."""
    left = list(metric.dimensions)
    if metric.outside:  # what rows there are only its file knows
        return tuple(dict.fromkeys((*left, *axes)))
    for step in assertion.aggregates:
        if step.over is None:
            return tuple(d for d in (*left, *(axes if "rank" in left else ())) if d in assertion.where)
        for taken in step.over:
            if taken not in left and "rank" in left:
                left = [*(d for d in left if d != "rank"), *axes]
            left = [d for d in left if d != taken]
    return (*left, *(axes if "rank" in left else ()))


def _called(name: str, assertions: Sequence[Assertion]) -> list[Assertion]:
    exact = [a for a in assertions if a.name == name]
    return exact or [a for a in assertions if a.name.startswith(name) and _ITEM.fullmatch(a.name.removeprefix(name))]


class _Waiver(Selecting):
    """One mapping under ``waivers:``."""

    def named(self, assertions: Sequence[Assertion], every: Sequence[Assertion], *, all_known: bool) -> list[Assertion]:
        """Of these assertions those that the waiver is for: one, or all items that one ``for:`` makes."""
        written = self.text("assertion")
        if written is None:
            return []
        name = clean_name(written)
        found = _called(name, assertions)
        if not found and all_known and not _called(name, every):
            names = dict.fromkeys(part for a in every for part in (a.name, _ITEM.sub("", a.name)))
            hint = did_you_mean(name, names) or ": write its id, or its sentence"
            self.mistake("assertion", f"no assertion of this file is '{printable(name, 60)}'{hint}")
        return found

    def waiver(self, named: Sequence[Assertion]) -> Waiver | None:
        """The waiver, None where a key is missing or mistaken."""
        for key in self.missing():
            self.mistake("", f"a waiver needs '{key}': {NEEDED[key]}")
        for assertion in named[:1]:
            self._check_waivable(assertion)
        ceiling = self._ceiling(named[0] if named else None)
        where = self._waived(named)
        said = self.values()
        if ceiling is None or "expires" not in said or "reason" not in said:
            return None
        return Waiver(
            ceiling=ceiling.value,
            unit=ceiling.unit,
            expires=said["expires"],
            reason=" ".join(said["reason"].split()),
            location=self.reader.location(self.node),
            link=said.get("link", ""),
            where=where,
            shared=len(named) > 1,
        )

    def _check_waivable(self, assertion: Assertion) -> None:
        why = None
        if assertion.xfail is not None:
            why = "its xfail expects it to fail already"
        elif assertion.severity is Severity.WARN:
            why = "with severity: warn it never fails"
        elif assertion.require.comparator is Comparator.NE:
            why = "!= has no ceiling"
        if why is not None:
            self.mistake("assertion", f"'{printable(assertion.name, 60)}' cannot be waived: {why}")

    def _ceiling(self, assertion: Assertion | None) -> Constant | None:
        """How far a value may go, in the base of the metric's unit."""
        if "ceiling" not in self.fields:
            return None

        def parse(text: str) -> Constant:
            quantity = parse_quantity(text, any_unit=assertion is not None and assertion.outside is not None)
            if assertion is None:
                return Constant(quantity.value)
            values = assertion.judged
            open_unit = next(iter(quantity.amounts)) if assertion.outside is not None else ANY
            ceiling = limit_value(quantity, open_unit or values.unit, values.name)
            comparator, limit = assertion.require.comparator, assertion.require.limit
            if why := impossible(ceiling, values):
                self.mistake("ceiling", f"ceiling {quantity.text} cannot be right: {why}")
            held = comparator is not None and isinstance(limit, Constant) and comparator.holds(ceiling, limit.value)
            if held and comparator is not Comparator.NE:
                self.mistake("ceiling", f"ceiling {quantity.text} waives nothing: it holds '{assertion.require.text}'")
            return Constant(ceiling, open_unit)

        return self.reader.parsed(self.fields["ceiling"], "ceiling", parse)

    def _waived(self, named: Sequence[Assertion]) -> dict[str, Selector]:
        """The rows that are waived, by dimensions that judged rows still have."""
        if "where" not in self.fields or not named:
            return {}
        first = named[0]
        if first.balance_across is not None:
            self.mistake("where", "a balance is one value, the worst: its waiver takes no 'where'")
            return {}
        metric = first.measures
        where = self.where(metric, fixed=())
        left = dimensions_left(first, metric, self.gate.axes)
        for key, _ in self.reader.entries(self.fields["where"], "where"):
            if key.value in where and key.value not in left:
                rest = f"{', '.join(left)} left" if left else "no dimension left"
                what = f"the assertion takes every {key.value} together: its rows have {rest}"
                self.reader.mistake(key, what)
            elif key.value in where and any(a.where.get(key.value) != first.where.get(key.value) for a in named):
                what = f"'for' makes an item of each {key.value}: name the item itself, as in '{named[0].name}'"
                self.reader.mistake(key, what)
        return where
