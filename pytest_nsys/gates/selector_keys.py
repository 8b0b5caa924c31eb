"""Which rows does a mapping under ``assertions:`` pick, and which does it take together?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from yaml.nodes import Node, ScalarNode

from pytest_nsys.analysis.table import Selector
from pytest_nsys.core.hints import did_you_mean
from pytest_nsys.core.model import printable
from pytest_nsys.gates.assertion import Aggregate
from pytest_nsys.gates.limits import MetricSpec
from pytest_nsys.gates.sentences import AGGREGATE_WORDS, aggregate_word, check_dimension, selector_value, unknown_axis
from pytest_nsys.gates.yaml_nodes import Reader

MAX_ITEMS = 1000
"""Most items that one ``for:`` may make."""


@dataclass(frozen=True, slots=True)
class SelectorKeys:
    """Reads ``where``, ``for``, ``across`` and ``balance`` of one assertion on one metric."""

    reader: Reader
    fields: Mapping[str, Node]
    metric: MetricSpec
    axes: Collection[str]

    def balance(self) -> str | None:
        """The mesh axis across which the metric is to be balanced."""
        if "balance" not in self.fields:
            return None
        node = self.fields["balance"]
        axis = self.reader.text(node, "balance")
        if axis is None:
            return None
        if axis.strip() not in self.axes or "rank" not in self.metric.dimensions:
            self.reader.mistakes.at(node, unknown_axis(axis.strip(), self.axes))
        if "across" in self.fields:
            self.reader.mistakes.at(self.fields["across"], "'across' and 'balance' cannot stand together")
        return axis.strip()

    def across(self) -> tuple[Aggregate, ...]:
        """One aggregate for each dimension that is named, in the order written."""
        if "across" not in self.fields:
            return ()
        found = []
        for key, node in self.reader.entries(self.fields["across"], "across"):
            if wrong := check_dimension(key.value, self.metric, self.axes):
                self.reader.mistakes.at(key, wrong)
            word = self.reader.text(node, "across")
            if word is not None and self._is_aggregate(word.strip(), node):
                found.append(Aggregate(word.strip(), (key.value,)))
        return tuple(found)

    def _is_aggregate(self, word: str, node: Node) -> bool:
        try:
            if aggregate_word(word):
                return True
            known = ", ".join(AGGREGATE_WORDS)
            hint = did_you_mean(word, AGGREGATE_WORDS) or f": words are {known}, p1 … p99"
            self.reader.mistakes.at(node, f"'{printable(word, 40)}' takes nothing together{hint}")
        except ValueError as mistake:
            self.reader.mistakes.at(node, str(mistake))
        return False

    def where(self, fixed: Collection[str]) -> dict[str, Selector]:
        """The selectors of ``where:``; ``fixed`` are dimensions that a sentence selects already."""
        if "where" not in self.fields:
            return {}
        found = {}
        for key, node in self.reader.entries(self.fields["where"], "where"):
            if self._selects(key, fixed):
                nodes = [node] if isinstance(node, ScalarNode) else self.reader.items(node, key.value)
                found[key.value] = Selector(tuple(self._labels(key.value, nodes)))
        return found

    def choices(self, fixed: Collection[str]) -> list[dict[str, Selector]]:
        """The selectors of each item that ``for:`` makes; without it one choice of nothing."""
        if "for" not in self.fields:
            return [{}]
        labels: dict[str, list[str]] = {}
        for key, node in self.reader.entries(self.fields["for"], "for"):
            if self._selects(key, fixed):
                nodes = self.reader.items(node, f"for {printable(key.value, 40)}")
                some = self._labels(key.value, nodes)
                labels[key.value] = list(dict.fromkeys(some))
                if len(labels[key.value]) < len(some):
                    self.reader.mistakes.at(node, f"for {key.value} names a value twice")
        count = math.prod(len(some) for some in labels.values())
        if count > MAX_ITEMS:
            what = f"this makes {count} items: at most {MAX_ITEMS} are allowed"
            self.reader.mistakes.at(self.fields["for"], what)
            return []
        products = itertools.product(*labels.values())
        return [{d: Selector((one,)) for d, one in zip(labels, p, strict=True)} for p in products]

    def _selects(self, key: ScalarNode, fixed: Collection[str]) -> bool:
        wrong = check_dimension(key.value, self.metric, self.axes)
        if wrong is None and key.value in fixed:
            wrong = f"'{key.value}' is selected already"
        if wrong is not None:
            self.reader.mistakes.at(key, wrong)
        return wrong is None

    def _labels(self, dimension: str, nodes: Iterable[Node]) -> list[str]:
        found = []
        for node in nodes:
            text = self.reader.text(node, dimension)
            if text is None:
                continue
            try:
                found.append(selector_value(dimension, text.strip(), self.axes))
            except ValueError as mistake:
                self.reader.mistakes.at(node, str(mistake))
        return found
