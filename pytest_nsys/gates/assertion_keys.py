"""What does one entry under ``assertions:`` ask for: a sentence alone, or with keys beside it?"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterable, Mapping

from yaml.nodes import Node, ScalarNode

from pytest_nsys.analysis.metrics.registry import Metric
from pytest_nsys.analysis.metrics.table import Selector
from pytest_nsys.core.conventions import KIND_WORDS
from pytest_nsys.core.words import printable
from pytest_nsys.gates.kinds import Entry
from pytest_nsys.gates.limits import (
    SentenceMistake,
    parse_requirement,
    warns_alike,
)
from pytest_nsys.gates.model import (
    Assertion,
    Constant,
    FromBaseline,
    GateFile,
    Requirement,
    Severity,
)
from pytest_nsys.gates.names import clean_name, without_limit, written_labels
from pytest_nsys.gates.sentences import (
    check_dimension,
    parse_sentence,
    selector_value,
)
from pytest_nsys.gates.yaml_nodes import NodeReader

MAX_ITEMS = 1000
"""Most items that one ``for:`` may make."""


class Selecting(Entry):
    """Reads a mapping that selects rows of a metric, with the keys ``where`` and ``for``.

    ``gate`` is what the file says for all of its assertions.
    """

    def __init__(self, reader: NodeReader, node: Node, gate: GateFile, section: str, what: str) -> None:
        super().__init__(reader, node, section, what)
        self.gate = gate

    def where(self, metric: Metric, fixed: Collection[str]) -> dict[str, Selector]:
        """Read the selectors of ``where:``, by dimension. ``selected_dimensions`` are those that a sentence selects
        already.
        """
        selectors = {}
        for dimension, node in self._dimensions(metric, "where", fixed):
            nodes = self.reader.one_or_items(node, dimension)
            selectors[dimension] = Selector(tuple(self._labels(metric, dimension, nodes)))
        return selectors

    def choices(self, metric: Metric, fixed: Collection[str]) -> list[dict[str, Selector]]:
        """Read the selectors of each item that ``for:`` makes; without the key one item that selects nothing."""
        labels: dict[str, list[str]] = {}
        for dimension, node in self._dimensions(metric, "for", fixed):
            dimension_labels = self._labels(
                metric, dimension, self.reader.items(node, f"for {printable(dimension, 40)}")
            )
            labels[dimension] = list(dict.fromkeys(dimension_labels))
            if len(labels[dimension]) < len(dimension_labels):
                self.reader.mistake(node, f"for {dimension} names a value twice")
        count = math.prod(len(dimension_labels) for dimension_labels in labels.values())
        if count > MAX_ITEMS:
            self.mistake("for", f"this makes {count} items: at most {MAX_ITEMS} are allowed")
            return []
        products = itertools.product(*labels.values())
        return [
            {dimension: Selector((label,)) for dimension, label in zip(labels, product, strict=True)}
            for product in products
        ]

    def _dimensions(self, metric: Metric, key: str, fixed: Collection[str]) -> Iterable[tuple[str, Node]]:
        """Yield the dimensions of the metric that stand under a key. Each mistake, such as one that is selected
        elsewhere, is noted.
        """
        if key not in self.fields:
            return
        for word, node in self.reader.entries(self.fields[key], key):
            problem = check_dimension(word.value, metric, self.gate.axes)
            if problem is None and word.value in fixed:
                problem = f"'{word.value}' is selected already"
            if problem is not None:
                self.reader.mistake(word, problem)
            else:
                yield word.value, node

    def _labels(self, metric: Metric, dimension: str, nodes: Iterable[Node]) -> list[str]:
        def parse_label(text: str) -> str:
            return selector_value(metric, dimension, text.strip(), self.gate.axes)

        labels = (self.reader.parsed(node, dimension, parse_label) for node in nodes)
        return [label for label in labels if label is not None]


MAX_ID = 200


def read_assertion(reader: NodeReader, node: Node, gate: GateFile) -> list[Assertion]:
    """Return the assertions that one entry stands for: several where it has ``for:``, none where it is mistaken.

    ``gate`` is what the file says for all of its assertions.
    """
    if isinstance(node, ScalarNode):
        sentence = _read_sentence(reader, node, "an assertion", gate)
        if sentence is None:
            return []
        full_name, name = clean_name(node.value), clean_name(without_limit(node.value))
        return [dataclasses.replace(sentence, name=name, full_name=full_name, sentence=full_name)]
    entry = _AssertionEntry(reader, node, gate)
    return entry.assertions() if entry.fields else []


def _read_sentence(reader: NodeReader, node: Node, what: str, gate: GateFile) -> Assertion | None:
    return reader.parsed(node, what, lambda text: parse_sentence(text, gate, reader.location(node)))


class _AssertionEntry(Selecting):
    """Reads one mapping under ``assertions:``."""

    def __init__(self, reader: NodeReader, node: Node, gate: GateFile) -> None:
        super().__init__(reader, node, gate, "assertion", "an assertion")
        self._options = self.values()

    def assertions(self) -> list[Assertion]:
        """Return all assertions that the entry stands for."""
        name = self._name()
        if "assert" not in self.fields:
            self.mistake("", "an assertion needs 'assert' with a sentence")
            return []
        sentence = _read_sentence(self.reader, self.fields["assert"], "assert", self.gate)
        if sentence is None:
            return []
        metric = sentence.measures
        self._check_delay(sentence)
        self._check_kind(sentence.kind)
        where = self.where(metric, fixed=sentence.where)
        warn = self._warn(sentence)
        full_name = name or self._words(where)
        name = name or self._words(where, with_limit=False)
        assertions = []
        for choice in self.choices(metric, fixed={**sentence.where, **where}):
            item_labels = ",".join(
                f"{dimension}={clean_name(selector.values[0])}" for dimension, selector in choice.items()
            )
            item_suffix = f"[{item_labels}]" if item_labels else ""
            assertion = dataclasses.replace(
                sentence,
                name=name + item_suffix,
                full_name=full_name + item_suffix,
                sentence=self._words({**where, **choice}),
                location=self.reader.location(self.node),
                where={**sentence.where, **where, **choice},
                warn=warn,
                **self._options,
            )
            assertions.append(assertion)
        return assertions

    def _check_delay(self, sentence: Assertion) -> None:
        """Record ``fail_after`` as a mistake where it cannot matter: only what noise may explain can wait for the next
        run, and only where it would be red without waiting.
        """
        limit = sentence.require.limit
        if "fail_after" not in self.fields:
            return
        if not isinstance(limit, FromBaseline) or limit.exact:
            problem = (
                f"'fail_after' waits out noise: it needs a baseline with a tolerance, and '{sentence.require.text}' "
            )
            self.mistake("fail_after", problem + "has none")
        if "xfail" in self.fields:
            self.mistake("fail_after", "'fail_after' cannot be used with 'xfail', which expects the first bad run")
        if self._options.get("severity", sentence.severity).inconclusive is Severity.FAIL:
            problem = "'fail_after' makes bad runs inconclusive: it cannot be used with severity: {inconclusive: fail}"
            self.mistake("fail_after", problem)

    def _check_kind(self, kind: str | None) -> None:
        """Record a ``window`` that picks steps of another kind than the sentence, which would be passed over."""
        window_kind = self._options.get("window", "").rpartition(" ")[2]
        kinds = KIND_WORDS if self.gate.convention is None else self.gate.convention.kind_names
        if kind is not None and window_kind in kinds and window_kind != kind:
            self.mistake("window", f"one kind of steps at a time: '{kind}' in the sentence, or '{window_kind}' here")

    def _name(self) -> str | None:
        """Read the id as a name; None without one."""
        identifier = self.text("id")
        if identifier is None:
            return None
        if "::" in identifier:
            self.mistake("id", "an id cannot hold '::', which separates the parts of a test's address")
        if not 0 < len(clean_name(identifier)) <= MAX_ID:
            self.mistake("id", f"an id has 1 to {MAX_ID} printable characters")
        return clean_name(identifier)

    def _words(self, where: Mapping[str, Selector], *, with_limit: bool = True) -> str:
        """Return the sentence for people: as written, with what the keys beside it select, or only up to its
        comparison.

        It can be written in place of the entry.
        """
        sentence: str = self.fields["assert"].value
        main_part = sentence if with_limit else without_limit(sentence)
        selectors = " ".join(f"{dimension} {written_labels(selector.values)}" for dimension, selector in where.items())
        before, after = (selectors, "") if not sentence.startswith("no ") else ("", f"where {selectors}" * bool(where))
        return clean_name(f"{before} {main_part} {after}")

    def _warn(self, sentence: Assertion) -> Requirement | None:
        """Read the early limit, and note as a mistake one that warns of all values that hold the limit, or of none."""
        node = self.fields.get("warn")
        if node is None:
            return None

        def parse_early_limit(text: str) -> Requirement:
            try:
                return parse_requirement(text, sentence.judged, constant=True)
            except SentenceMistake as mistake:
                if isinstance(node, ScalarNode) and node.style == ">":
                    problem = f'{mistake} (YAML reads > as the start of a block: quote it, as in ">= 60%")'
                    raise SentenceMistake(mistake.offset, problem) from None
                raise

        early_limit, requirement = self.reader.parsed(node, "warn", parse_early_limit), sentence.require
        if (
            early_limit is None
            or not isinstance(early_limit.limit, Constant)
            or not isinstance(requirement.limit, Constant)
        ):
            return early_limit
        assert early_limit.comparator is not None
        assert requirement.comparator is not None
        if uselessness := warns_alike(
            early_limit.comparator, early_limit.limit.value, requirement.comparator, requirement.limit.value
        ):
            problem = (
                f"'{early_limit.text}' {uselessness} where '{requirement.text}' holds: write a limit that is reached "
                "before it"
            )
            self.mistake("warn", problem)
        return early_limit
