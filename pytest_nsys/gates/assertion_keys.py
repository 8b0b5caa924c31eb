"""What does one entry under ``assertions:`` ask for: a sentence alone, or a mapping with further keys?"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterable, Mapping

from yaml.nodes import Node, ScalarNode

from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.metrics.table import Selector
from pytest_nsys.core.conventions import STEP_KIND_NAMES
from pytest_nsys.core.text_format import sanitize_line
from pytest_nsys.gates.assertion_names import clean_name, clean_sentence, quote_labels, strip_limit
from pytest_nsys.gates.kinds import MappingEntry
from pytest_nsys.gates.limits import (
    SentenceMistake,
    describe_useless_warning,
    parse_requirement,
)
from pytest_nsys.gates.model import (
    Assertion,
    BaselineLimit,
    Constant,
    GateFile,
    Requirement,
    Severity,
)
from pytest_nsys.gates.sentences import (
    explain_wrong_dimension,
    parse_selector_value,
    parse_sentence,
)
from pytest_nsys.gates.yaml_nodes import NodeReader

MAX_ITEMS = 1000
"""Most items that one ``for:`` may make."""


class RowSelectionEntry(MappingEntry):
    """Reads a mapping that selects rows of a metric, with the keys ``where`` and ``for``.

    ``gate`` is what the file says for all of its assertions.
    """

    def __init__(self, reader: NodeReader, node: Node, gate: GateFile, section: str, noun: str) -> None:
        super().__init__(reader, node, section, noun)
        self.gate = gate

    def read_where(self, metric: Metric, selected_dimensions: Collection[str]) -> dict[str, Selector]:
        """Read the selectors of ``where:``, by dimension. ``selected_dimensions`` are those that a sentence selects
        already.
        """
        selectors = {}
        for dimension, node in self._read_dimensions(metric, "where", selected_dimensions):
            nodes = self.reader.read_one_or_items(node, dimension)
            selectors[dimension] = Selector(tuple(self._read_labels(metric, dimension, nodes)))
        return selectors

    def read_for_choices(self, metric: Metric, selected_dimensions: Collection[str]) -> list[dict[str, Selector]]:
        """Read the selectors of each item that ``for:`` makes; without the key one item that selects nothing."""
        labels: dict[str, list[str]] = {}
        for dimension, node in self._read_dimensions(metric, "for", selected_dimensions):
            dimension_labels = self._read_labels(
                metric, dimension, self.reader.read_items(node, f"for {sanitize_line(dimension, 40)}")
            )
            labels[dimension] = list(dict.fromkeys(dimension_labels))
            if len(labels[dimension]) < len(dimension_labels):
                self.reader.add_mistake(node, f"for {dimension} names a value twice")
        count = math.prod(len(dimension_labels) for dimension_labels in labels.values())
        if count > MAX_ITEMS:
            self.add_mistake("for", f"this makes {count} items: at most {MAX_ITEMS} are allowed")
            return []
        products = itertools.product(*labels.values())
        return [
            {dimension: Selector((label,)) for dimension, label in zip(labels, product, strict=True)}
            for product in products
        ]

    def _read_dimensions(
        self, metric: Metric, key: str, selected_dimensions: Collection[str]
    ) -> Iterable[tuple[str, Node]]:
        """Yield the dimensions of the metric that stand under a key. Each mistake, such as one that is selected
        elsewhere, is noted.
        """
        if key not in self.fields:
            return
        for word, node in self.reader.read_entries(self.fields[key], key):
            problem = explain_wrong_dimension(word.value, metric, self.gate.axes)
            if problem is None and word.value in selected_dimensions:
                problem = f"'{word.value}' is selected already"
            if problem is not None:
                self.reader.add_mistake(word, problem)
            else:
                yield word.value, node

    def _read_labels(self, metric: Metric, dimension: str, nodes: Iterable[Node]) -> list[str]:
        def parse_label(text: str) -> str:
            return parse_selector_value(metric, dimension, text.strip(), self.gate.axes)

        labels = (self.reader.read_parsed(node, dimension, parse_label) for node in nodes)
        return [label for label in labels if label is not None]


MAX_ID_LENGTH = 200


def read_assertion_entry(reader: NodeReader, node: Node, gate: GateFile) -> list[Assertion]:
    """Return the assertions that one entry stands for: several where it has ``for:``, none where it is mistaken.

    ``gate`` is what the file says for all of its assertions.
    """
    if isinstance(node, ScalarNode):
        sentence = _read_sentence(reader, node, "an assertion", gate)
        if sentence is None:
            return []
        full_name, name = clean_name(node.value), clean_name(strip_limit(node.value))
        return [dataclasses.replace(sentence, name=name, full_name=full_name, sentence=clean_sentence(node.value))]
    entry = _AssertionEntry(reader, node, gate)
    return entry.read_assertions() if entry.fields else []


def _read_sentence(reader: NodeReader, node: Node, noun: str, gate: GateFile) -> Assertion | None:
    return reader.read_parsed(node, noun, lambda text: parse_sentence(text, gate, reader.locate(node)))


class _AssertionEntry(RowSelectionEntry):
    """Reads one mapping under ``assertions:``."""

    def __init__(self, reader: NodeReader, node: Node, gate: GateFile) -> None:
        super().__init__(reader, node, gate, "assertion", "an assertion")
        self._options = self.read_values()

    def read_assertions(self) -> list[Assertion]:
        """Return all assertions that the entry stands for."""
        name = self._read_id()
        if "assert" not in self.fields:
            self.add_mistake("", "an assertion needs 'assert' with a sentence")
            return []
        sentence = _read_sentence(self.reader, self.fields["assert"], "assert", self.gate)
        if sentence is None:
            return []
        metric = sentence.measured_metric
        self._check_delay(sentence)
        self._check_kind(sentence.kind)
        where = self.read_where(metric, selected_dimensions=sentence.where)
        warn = self._read_early_limit(sentence)
        full_name = name or clean_name(self._format_sentence(where))
        name = name or clean_name(self._format_sentence(where, with_limit=False))
        assertions = []
        for choice in self.read_for_choices(metric, selected_dimensions={**sentence.where, **where}):
            item_labels = ",".join(
                f"{dimension}={clean_name(selector.values[0])}" for dimension, selector in choice.items()
            )
            item_suffix = f"[{item_labels}]" if item_labels else ""
            assertion = dataclasses.replace(
                sentence,
                name=name + item_suffix,
                full_name=full_name + item_suffix,
                sentence=self._format_sentence({**where, **choice}),
                location=self.reader.locate(self.node),
                where={**sentence.where, **where, **choice},
                warn=warn,
                **self._options,
            )
            assertions.append(assertion)
        return assertions

    def _check_delay(self, sentence: Assertion) -> None:
        """Record a useless ``fail_after`` as a mistake: only a failure that noise may explain can wait for the next
        run, and only if it would fail the test without waiting.
        """
        limit = sentence.requirement.limit
        if "fail_after" not in self.fields:
            return
        if not isinstance(limit, BaselineLimit) or limit.is_exact:
            problem = (
                "'fail_after' waits out noise: it needs a baseline with a tolerance, and "
                f"'{sentence.requirement.text}' "
            )
            self.add_mistake("fail_after", problem + "has none")
        if "xfail" in self.fields:
            self.add_mistake("fail_after", "'fail_after' cannot be used with 'xfail', which expects the first bad run")
        if self._options.get("severity", sentence.severity).inconclusive is Severity.FAIL:
            problem = "'fail_after' makes bad runs inconclusive: it cannot be used with severity: {inconclusive: fail}"
            self.add_mistake("fail_after", problem)

    def _check_kind(self, kind: str | None) -> None:
        """Record as a mistake a ``window`` that picks another kind of steps than the sentence: it would be ignored."""
        window_kind = self._options.get("window", "").rpartition(" ")[2]
        kinds = STEP_KIND_NAMES if self.gate.convention is None else self.gate.convention.kind_names
        if kind is not None and window_kind in kinds and window_kind != kind:
            self.add_mistake(
                "window", f"one kind of steps at a time: '{kind}' in the sentence, or '{window_kind}' here"
            )

    def _read_id(self) -> str | None:
        """Read the id as a name; None without one."""
        identifier = self.read_text("id")
        if identifier is None:
            return None
        if "::" in identifier:
            self.add_mistake("id", "an id cannot hold '::', which separates the parts of a test's address")
        if not 0 < len(clean_name(identifier)) <= MAX_ID_LENGTH:
            self.add_mistake("id", f"an id has 1 to {MAX_ID_LENGTH} printable characters")
        return clean_name(identifier)

    def _format_sentence(self, where: Mapping[str, Selector], *, with_limit: bool = True) -> str:
        """Return the sentence with the selectors of the other keys added, or only its part before the comparison.

        The whole sentence can be written in place of the entry.
        """
        sentence: str = self.fields["assert"].value
        main_part = sentence if with_limit else strip_limit(sentence)
        selectors = " ".join(f"{dimension} {quote_labels(selector.values)}" for dimension, selector in where.items())
        before, after = (selectors, "") if not sentence.startswith("no ") else ("", f"where {selectors}" * bool(where))
        return clean_sentence(f"{before} {main_part} {after}")

    def _read_early_limit(self, sentence: Assertion) -> Requirement | None:
        """Read the early limit, and note as a mistake one that warns of all values that hold the limit, or of none."""
        node = self.fields.get("warn")
        if node is None:
            return None

        def parse_early_limit(text: str) -> Requirement:
            try:
                return parse_requirement(text, sentence.limit_target, constant=True)
            except SentenceMistake as mistake:
                if isinstance(node, ScalarNode) and node.style == ">":
                    problem = f'{mistake} (YAML reads > as the start of a block: quote it, as in ">= 60%")'
                    raise SentenceMistake(mistake.offset, problem) from None
                raise

        early_limit, requirement = self.reader.read_parsed(node, "warn", parse_early_limit), sentence.requirement
        if (
            early_limit is None
            or not isinstance(early_limit.limit, Constant)
            or not isinstance(requirement.limit, Constant)
        ):
            return early_limit
        assert early_limit.comparator is not None
        assert requirement.comparator is not None
        if uselessness := describe_useless_warning(
            early_limit.comparator, early_limit.limit.value, requirement.comparator, requirement.limit.value
        ):
            problem = (
                f"'{early_limit.text}' {uselessness} where '{requirement.text}' holds: write a limit that is reached "
                "before it"
            )
            self.add_mistake("warn", problem)
        return early_limit
